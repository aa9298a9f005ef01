/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The `sandbox` member of requests: permissions and what their words mean.
 *
 * All of it is decoded, also what has no effect here, so that a client hears of its mistakes on any
 * host. Only paths that are used must be paths of this host.
 */
#include <errno.h>

#include "base/auto.h"
#include "base/uri.h"
#include "sandbox/policy_words.h"

enum { LEVEL_MXC = 1 };

static const struct sp_word override_words[] = {
    {.name = "noOverride"},
    {.name = "escalatedSandboxWithRestrictions"},
    {.name = "bypassSandboxFirstAttempt"},
    {0},
};

static const struct sp_word level_words[] = {
    {.name = "disabled"},
    {.name = "restricted-token"},
    {.name = "elevated"},
    {.name = "mxc", .value = LEVEL_MXC},
    {0},
};

static const struct sp_word proxy_settings_words[] = {
    {.name = "reconcile"}, {.name = "preserve"}, {0}};

/* The members that place a policy; the tokens of the values, or SP_JSON_NONE. */
struct surroundings {
    uint32_t cwd, roots;
};

/* ---- decoding ---- */

/* A URI as such; whose path it is does not matter. */
static int check_uri(struct sp_json *j, uint32_t token, struct sp_err *e)
{
    auto_uri struct sp_uri u = {0};

    if (sp_json_type(j, token) != SP_JSON_STRING)
        return sp_json_wrong_type(j, token, "a string", e);
    return sp_uri_read(sp_json_str(j, token), &u, e);
}

static int check_uris(struct sp_json *j, uint32_t array, const char *what, struct sp_err *e)
{
    int r = 0;

    if (j->tokens[array].children > SP_POLICY_MAX_ROOTS)
        return sp_fail(e, SP_E_INVALID, 0, "more than %d %s", SP_POLICY_MAX_ROOTS, what);
    for (uint32_t t = sp_json_first(j, array); r == 0 && t != SP_JSON_NONE;
         t = sp_json_next(j, array, t))
        r = check_uri(j, t, e);
    return r;
}

/* *ret is SP_JSON_NONE if the member is absent or null. */
static int opt_uri(struct sp_json *j, uint32_t object, const char *key, uint32_t *ret,
                   struct sp_err *e)
{
    const uint32_t t = sp_json_get(j, object, key);

    *ret = SP_JSON_NONE;
    if (t == SP_JSON_NONE || sp_json_type(j, t) == SP_JSON_NULL)
        return 0;
    *ret = t;
    return check_uri(j, t, e);
}

static int read_surroundings(struct sp_json *j, uint32_t object, struct surroundings *ret,
                             struct sp_err *e)
{
    int r = opt_uri(j, object, "cwd", &ret->cwd, e);

    ret->roots = SP_JSON_NONE;
    if (r == 0)
        r = sp_policy_def_array(j, object, "workspaceRoots", &ret->roots, e);
    if (r == 0 && ret->roots != SP_JSON_NONE)
        r = check_uris(j, ret->roots, "workspace roots", e);
    return r;
}

/* Those of `policyContext`, if there is one, take the place of the object's own. */
static int find_surroundings(struct sp_json *j, uint32_t object, struct surroundings *ret,
                             struct sp_err *e)
{
    uint32_t context = SP_JSON_NONE;
    int r = read_surroundings(j, object, ret, e);

    if (r == 0)
        r = sp_json_opt_object(j, object, "policyContext", &context, e);
    if (r == 0 && context != SP_JSON_NONE)
        r = read_surroundings(j, context, ret, e);
    return r;
}

/* What is said for other hosts, and for records. */
static int check_the_rest(struct sp_json *j, uint32_t object, struct sp_err *e)
{
    uint32_t temporary = SP_JSON_NONE;
    bool uses_legacy_landlock = false;
    int level = 0;
    int ignored = 0;
    int r = 0;
    const uint32_t override = sp_json_get(j, object, "sandboxOverride");

    if (override != SP_JSON_NONE)
        r = sp_word_read(j, override, override_words, &ignored, e);
    if (r == 0)
        r = sp_json_opt_array(j, object, "temporaryDirectories", &temporary, e);
    if (r == 0 && temporary != SP_JSON_NONE)
        r = check_uris(j, temporary, "temporary directories", e);
    if (r == 0)
        r = sp_word_need(j, object, "windowsSandboxLevel", level_words, &level, e);
    if (r == 0)
        r = sp_word_opt(j, object, "windowsSandboxProxySettingsMode", proxy_settings_words,
                        &ignored, e);
    if (r == 0)
        r = sp_json_def_bool(j, object, "useLegacyLandlock", &uses_legacy_landlock, e);
    if (r == 0 && level == LEVEL_MXC)
        r = sp_fail(e, SP_E_INVALID, 0, "native MXC is unavailable on this executor");
    return r;
}

/* ---- placing ---- */

static int no_memory(struct sp_err *e)
{
    return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read a sandbox policy");
}

static int place_roots(struct sp_json *j, uint32_t array, struct sp_policy *p, struct sp_err *e)
{
    for (uint32_t t = sp_json_first(j, array); t != SP_JSON_NONE; t = sp_json_next(j, array, t)) {
        auto_free char *root = NULL;
        const int r = sp_policy_read_path(j, t, SP_PATH_URI, "workspace root", &root, e);

        if (r < 0)
            return r;
        if (!sp_policy_add_root(p, sp_str_of(root)))
            return no_memory(e);
    }
    return 0;
}

/* A pattern that begins nowhere is taken from the cwd; one of the home directory is not. */
static bool is_relative_pattern(const char *pattern)
{
    const bool is_at_home = pattern[0] == '~' && (pattern[1] == 0 || pattern[1] == '/');

    return pattern[0] != '/' && !is_at_home;
}

static bool depends_on_cwd(const struct sp_profile *p)
{
    for (size_t i = 0; i < p->count; i++) {
        const struct sp_entry *entry = &p->entries[i];

        if (entry->place == SP_PLACE_PROJECT ||
            (entry->place == SP_PLACE_GLOB && is_relative_pattern(entry->text)))
            return true;
    }
    return false;
}

static int place_cwd(struct sp_json *j, uint32_t token, const char *fallback, struct sp_policy *p,
                     struct sp_err *e)
{
    if (token != SP_JSON_NONE)
        return sp_policy_read_path(j, token, SP_PATH_URI, "cwd", &p->cwd, e);
    if (fallback != NULL) {
        p->cwd = strdup(fallback);
        return p->cwd != NULL ? 0 : no_memory(e);
    }
    if (depends_on_cwd(&p->profile))
        return sp_fail(e, SP_E_INVALID, 0,
                       "file system sandbox context with dynamic permissions requires cwd");
    return 0;
}

/* A TMPDIR that names no place is no error: there is none then. */
static int place_tmpdir(const char *tmpdir, struct sp_policy *p, struct sp_err *e)
{
    if (tmpdir == NULL || tmpdir[0] != '/' || strlen(tmpdir) > SP_POLICY_MAX_PATH)
        return 0;
    p->tmpdir = strdup(tmpdir);
    return p->tmpdir != NULL ? 0 : no_memory(e);
}

int sp_policy_read(struct sp_json *j, uint32_t token, const char *cwd, const char *tmpdir,
                   struct sp_policy *ret, struct sp_err *e)
{
    auto_policy struct sp_policy p = {0};
    struct surroundings s;
    uint32_t permissions;
    uint32_t home;

    if (sp_json_type(j, token) != SP_JSON_OBJECT)
        return sp_json_wrong_type(j, token, "a map", e);
    int r = sp_json_need_object(j, token, "permissions", &permissions, e);
    if (r == 0)
        r = find_surroundings(j, token, &s, e);
    if (r == 0)
        r = opt_uri(j, token, "userHomeDir", &home, e);
    if (r == 0)
        r = check_the_rest(j, token, e);
    if (r == 0)
        r = sp_profile_read_tagged(j, permissions, SP_PATH_URI, &p.profile, e);
    if (r == 0)
        r = place_cwd(j, s.cwd, cwd, &p, e);
    if (r == 0 && s.roots != SP_JSON_NONE)
        r = place_roots(j, s.roots, &p, e);
    if (r == 0 && home != SP_JSON_NONE)
        r = sp_policy_read_path(j, home, SP_PATH_URI, "home directory", &p.home, e);
    if (r == 0)
        r = place_tmpdir(tmpdir, &p, e);
    if (r < 0)
        return r;
    *ret = p;
    p = (struct sp_policy){0};
    return 0;
}
