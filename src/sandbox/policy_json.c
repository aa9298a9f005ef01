/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading. Everything is built in a local struct with a cleanup attribute and handed over whole: an
 * error leaves *ret untouched.
 */
#include "sandbox/policy_json.h"

#include <errno.h>

#include "base/auto.h"
#include "base/uri.h"
#include "sandbox/policy_words.h"

/* ==== profiles, modes and grants ==== */

#define PERMISSION_PATH "permission path"

/* Values of `path.type`; SPECIAL stands for all keyword places. */
enum { SPECIAL = -1 };

static const struct sp_word path_types[] = {
    {"path", SP_PLACE_PATH, false},
    {"glob_pattern", SP_PLACE_GLOB, false},
    {"special", SPECIAL, false},
    {0},
};

static const struct sp_word request_members[] = {{.name = "network"}, {.name = "file_system"}, {0}};
static const struct sp_word network_members[] = {{.name = "enabled"}, {0}};
static const struct sp_word file_system_members[] = {
    {.name = "entries"}, {.name = "glob_scan_max_depth"}, {.name = "read"}, {.name = "write"}, {0}};

static int need_map(struct sp_json *j, uint32_t token, struct sp_err *e)
{
    if (sp_json_type(j, token) != SP_JSON_OBJECT)
        return sp_json_wrong_type(j, token, "a map", e);
    return 0;
}

/* ---- entries ---- */

/* The place of an entry while it is read. */
struct target {
    enum sp_place place;
    struct sp_str text, subpath; /* point into the JSON text, or to `path` */
    char *path;                  /* owned */
};

static int read_text(struct sp_json *j, uint32_t object, const char *key, const char *what,
                     struct sp_str *ret, struct sp_err *e)
{
    const int r = sp_json_need_str(j, object, key, ret, e);

    return r < 0 ? r : sp_policy_check_text(*ret, what, e);
}

static int read_literal(struct sp_json *j, uint32_t object, enum sp_path_form form,
                        struct target *t, struct sp_err *e)
{
    const uint32_t path = sp_json_get(j, object, "path");

    if (path == SP_JSON_NONE)
        return sp_fail(e, SP_E_INVALID, 0, "missing field `path`");
    const int r = sp_policy_read_path(j, path, form, PERMISSION_PATH, &t->path, e);
    if (r == 0)
        t->text = sp_str_of(t->path);
    return r;
}

static int read_special(struct sp_json *j, uint32_t object, struct target *t, struct sp_err *e)
{
    uint32_t value;
    struct sp_str subpath = {0};
    int place = SP_PLACE_ROOT;
    int r = sp_json_need_object(j, object, "value", &value, e);

    if (r == 0)
        r = sp_word_need(j, value, "kind", sp_words_special, &place, e);
    if (r < 0)
        return r;
    t->place = (enum sp_place)place;
    if (place != SP_PLACE_PROJECT && place != SP_PLACE_UNKNOWN)
        return 0;

    r = sp_json_opt_str(j, value, "subpath", &subpath, e);
    if (r == 0)
        r = sp_policy_check_text(subpath, "permission subpath", e);
    if (r == 0 && place == SP_PLACE_UNKNOWN)
        r = read_text(j, value, "path", PERMISSION_PATH, &t->text, e);
    *(place == SP_PLACE_UNKNOWN ? &t->subpath : &t->text) = subpath;
    return r;
}

static int read_target(struct sp_json *j, uint32_t object, enum sp_path_form form, struct target *t,
                       struct sp_err *e)
{
    int type = SPECIAL;
    const int r = sp_word_need(j, object, "type", path_types, &type, e);

    if (r < 0)
        return r;
    if (type == SPECIAL)
        return read_special(j, object, t, e);
    t->place = (enum sp_place)type;
    if (type == SP_PLACE_GLOB)
        return read_text(j, object, "pattern", "permission pattern", &t->text, e);
    return read_literal(j, object, form, t, e);
}

static int read_entry(struct sp_json *j, uint32_t token, enum sp_path_form form,
                      struct sp_profile *p, struct sp_err *e)
{
    struct target t = {0};
    uint32_t path;
    int access = SP_ACCESS_DENY;
    int skips_missing = false;
    int r = need_map(j, token, e);

    if (r == 0)
        r = sp_json_need_object(j, token, "path", &path, e);
    if (r == 0)
        r = read_target(j, path, form, &t, e);
    if (r == 0)
        r = sp_word_need(j, token, "access", sp_words_access, &access, e);
    if (r == 0)
        r = sp_word_opt(j, token, "missing_path_behavior", sp_words_missing, &skips_missing, e);
    if (r == 0)
        r = sp_profile_add(p, t.place, (enum sp_access)access, skips_missing, t.text, t.subpath, e);
    free(t.path);
    return r;
}

static int check_count(const struct sp_json *j, uint32_t array, size_t before, struct sp_err *e)
{
    if (before + j->tokens[array].children > SP_POLICY_MAX_ENTRIES)
        return sp_fail(e, SP_E_INVALID, 0, "more than %d sandbox permission entries",
                       SP_POLICY_MAX_ENTRIES);
    return 0;
}

static int read_glob_depth(struct sp_json *j, uint32_t object, struct sp_profile *p,
                           struct sp_err *e)
{
    static const char key[] = "glob_scan_max_depth";
    uint64_t depth = 0;
    const uint32_t t = sp_json_get(j, object, key);

    if (t == SP_JSON_NONE || sp_json_type(j, t) == SP_JSON_NULL)
        return 0;
    const int r = sp_json_need_u64(j, object, key, UINT64_MAX, &depth, e);
    if (r < 0)
        return r;
    if (depth == 0)
        return sp_fail(e, SP_E_INVALID, 0, "invalid value: integer `0`, expected a nonzero usize");
    /* No path is deeper than UINT32_MAX. */
    p->glob_depth = depth < UINT32_MAX ? (uint32_t)depth : UINT32_MAX;
    return 0;
}

/* `entries` and `glob_scan_max_depth`. */
static int read_entries(struct sp_json *j, uint32_t object, enum sp_path_form form,
                        struct sp_profile *p, struct sp_err *e)
{
    uint32_t array;
    int r = sp_json_need_array(j, object, "entries", &array, e);

    if (r == 0)
        r = check_count(j, array, 0, e);
    if (r < 0)
        return r;
    for (uint32_t t = sp_json_first(j, array); r == 0 && t != SP_JSON_NONE;
         t = sp_json_next(j, array, t))
        r = read_entry(j, t, form, p, e);
    return r < 0 ? r : read_glob_depth(j, object, p, e);
}

/* ---- the tagged form ---- */

static int read_managed(struct sp_json *j, uint32_t object, enum sp_path_form form,
                        struct sp_profile *p, struct sp_err *e)
{
    uint32_t file_system;
    int is_unrestricted = false;
    int r = sp_json_need_object(j, object, "file_system", &file_system, e);

    if (r == 0)
        r = sp_word_need(j, file_system, "type", sp_words_file_system, &is_unrestricted, e);
    p->is_unrestricted = is_unrestricted;
    if (r == 0 && !is_unrestricted)
        r = read_entries(j, file_system, form, p, e);
    return r;
}

static int read_tagged(struct sp_json *j, uint32_t object, enum sp_path_form form,
                       struct sp_profile *ret, struct sp_err *e)
{
    auto_profile struct sp_profile p = {0};
    int kind = SP_PROFILE_MANAGED;
    int has_network = true; /* for `disabled` */
    int r = sp_word_need(j, object, "type", sp_words_kind, &kind, e);

    p.kind = (enum sp_profile_kind)kind;
    if (r == 0 && kind == SP_PROFILE_MANAGED)
        r = read_managed(j, object, form, &p, e);
    if (r == 0 && kind != SP_PROFILE_DISABLED)
        r = sp_word_need(j, object, "network", sp_words_network, &has_network, e);
    if (r < 0)
        return r;
    p.has_network = has_network;
    *ret = p;
    p = (struct sp_profile){0};
    return 0;
}

/* ---- grants, and profiles without a `type` ---- */

/* An unknown member of a profile might be a restriction that we do not enforce: refuse it. */
static int check_members(struct sp_json *j, uint32_t object, const struct sp_word *known,
                         struct sp_err *e)
{
    for (uint32_t key = sp_json_first(j, object); key != SP_JSON_NONE;
         key = sp_json_next(j, object, key)) {
        const struct sp_str name = sp_json_str(j, key);
        const struct sp_word *w = known;

        while (w->name != NULL && !sp_str_eq(name, sp_str_of(w->name)))
            w++;
        if (w->name == NULL)
            return sp_word_refuse("field", name, known, e);
    }
    return 0;
}

static int read_network(struct sp_json *j, uint32_t object, bool is_strict, struct sp_profile *p,
                        struct sp_err *e)
{
    const uint32_t enabled = sp_json_get(j, object, "enabled");
    const int r = is_strict ? check_members(j, object, network_members, e) : 0;

    if (r < 0 || enabled == SP_JSON_NONE || sp_json_type(j, enabled) == SP_JSON_NULL)
        return r;
    return sp_json_need_bool(j, object, "enabled", &p->has_network, e);
}

static int read_paths(struct sp_json *j, uint32_t object, const char *key, enum sp_access access,
                      struct sp_profile *p, struct sp_err *e)
{
    uint32_t array = SP_JSON_NONE;
    int r = sp_json_opt_array(j, object, key, &array, e);

    if (r < 0 || array == SP_JSON_NONE)
        return r;
    r = check_count(j, array, p->count, e);
    for (uint32_t t = sp_json_first(j, array); r == 0 && t != SP_JSON_NONE;
         t = sp_json_next(j, array, t)) {
        auto_free char *path = NULL;

        r = sp_policy_read_path(j, t, SP_PATH_NATIVE, PERMISSION_PATH, &path, e);
        if (r == 0)
            r = sp_profile_add(p, SP_PLACE_PATH, access, false, sp_str_of(path), (struct sp_str){0},
                               e);
    }
    return r;
}

static bool has_member(struct sp_json *j, uint32_t object, const char *key)
{
    return sp_json_get(j, object, key) != SP_JSON_NONE;
}

static int read_file_system(struct sp_json *j, uint32_t object, bool is_strict,
                            struct sp_profile *p, struct sp_err *e)
{
    int r = is_strict ? check_members(j, object, file_system_members, e) : 0;

    if (r < 0)
        return r;
    if (has_member(j, object, "entries") || has_member(j, object, "glob_scan_max_depth")) {
        if (has_member(j, object, "read") || has_member(j, object, "write"))
            return sp_fail(e, SP_E_INVALID, 0,
                           "`read` and `write` cannot be combined with `entries`");
        return read_entries(j, object, SP_PATH_NATIVE, p, e);
    }
    r = read_paths(j, object, "read", SP_ACCESS_READ, p, e);
    if (r == 0)
        r = read_paths(j, object, "write", SP_ACCESS_WRITE, p, e);
    return r;
}

static int read_request(struct sp_json *j, uint32_t token, bool is_strict, struct sp_profile *ret,
                        struct sp_err *e)
{
    auto_profile struct sp_profile p = {0};
    uint32_t network = SP_JSON_NONE;
    uint32_t file_system = SP_JSON_NONE;
    int r = need_map(j, token, e);

    if (r == 0 && is_strict)
        r = check_members(j, token, request_members, e);
    if (r == 0)
        r = sp_json_opt_object(j, token, "network", &network, e);
    if (r == 0 && network != SP_JSON_NONE)
        r = read_network(j, network, is_strict, &p, e);
    if (r == 0)
        r = sp_json_opt_object(j, token, "file_system", &file_system, e);
    if (r == 0 && file_system != SP_JSON_NONE)
        r = read_file_system(j, file_system, is_strict, &p, e);
    if (r < 0)
        return r;
    *ret = p;
    p = (struct sp_profile){0};
    return 0;
}

int sp_grant_read(struct sp_json *j, uint32_t token, struct sp_grant *ret, struct sp_err *e)
{
    return read_request(j, token, false, &ret->extra, e);
}

/* ---- legacy modes ---- */

static int read_roots(struct sp_json *j, uint32_t array, struct sp_legacy *l, struct sp_err *e)
{
    const uint32_t count = j->tokens[array].children;
    int r = 0;

    if (count == 0)
        return 0;
    if (count > SP_POLICY_MAX_ROOTS)
        return sp_fail(e, SP_E_INVALID, 0, "more than %d writable roots", SP_POLICY_MAX_ROOTS);
    l->roots = calloc(count, sizeof *l->roots);
    if (l->roots == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read a sandbox policy");
    for (uint32_t t = sp_json_first(j, array); r == 0 && t != SP_JSON_NONE;
         t = sp_json_next(j, array, t)) {
        r = sp_policy_read_path(j, t, SP_PATH_NATIVE, "writable root", &l->roots[l->root_count], e);
        l->root_count += r == 0;
    }
    return r;
}

static int read_workspace_write(struct sp_json *j, uint32_t object, struct sp_legacy *l,
                                struct sp_err *e)
{
    uint32_t roots = SP_JSON_NONE;
    int r = sp_policy_def_array(j, object, "writable_roots", &roots, e);

    if (r == 0 && roots != SP_JSON_NONE)
        r = read_roots(j, roots, l, e);
    if (r == 0)
        r = sp_json_def_bool(j, object, "network_access", &l->has_network, e);
    if (r == 0)
        r = sp_json_def_bool(j, object, "exclude_tmpdir_env_var", &l->excludes_tmpdir, e);
    if (r == 0)
        r = sp_json_def_bool(j, object, "exclude_slash_tmp", &l->excludes_slash_tmp, e);
    return r;
}

static int read_mode_members(struct sp_json *j, uint32_t object, struct sp_legacy *l,
                             struct sp_err *e)
{
    int has_network = false;
    int r = 0;

    switch (l->mode) {
    case SP_MODE_FULL_ACCESS:
        return 0;
    case SP_MODE_READ_ONLY:
        return sp_json_def_bool(j, object, "network_access", &l->has_network, e);
    case SP_MODE_WORKSPACE_WRITE:
        return read_workspace_write(j, object, l, e);
    case SP_MODE_EXTERNAL:
        if (has_member(j, object, "network_access"))
            r = sp_word_need(j, object, "network_access", sp_words_network, &has_network, e);
        l->has_network = has_network;
        return r;
    }
    return sp_fail(e, SP_E_INVALID, 0, "unknown sandbox mode");
}

int sp_legacy_read(struct sp_json *j, uint32_t token, struct sp_legacy *ret, struct sp_err *e)
{
    auto_legacy struct sp_legacy l = {0};
    struct sp_word modes[5];
    int mode = SP_MODE_READ_ONLY;
    int r = need_map(j, token, e);

    if (r < 0)
        return r;
    sp_words_add_modes(modes, 0);
    const bool is_older = !has_member(j, token, "type") && has_member(j, token, "mode");
    r = sp_word_need(j, token, is_older ? "mode" : "type", modes, &mode, e);
    l.mode = (enum sp_mode)mode;
    if (r == 0)
        r = read_mode_members(j, token, &l, e);
    if (r < 0)
        return r;
    *ret = l;
    l = (struct sp_legacy){0};
    return 0;
}

/* ---- profiles in any form ---- */

static int read_legacy_profile(struct sp_json *j, uint32_t token, struct sp_profile *ret,
                               struct sp_err *e)
{
    auto_legacy struct sp_legacy l = {0};
    const int r = sp_legacy_read(j, token, &l, e);

    return r < 0 ? r : sp_profile_from_legacy(&l, ret, e);
}

int sp_profile_read(struct sp_json *j, uint32_t token, struct sp_profile *ret, struct sp_err *e)
{
    struct sp_word types[8];
    enum sp_mode mode;
    size_t kinds = 0;
    int any;
    int r = need_map(j, token, e);

    if (r < 0)
        return r;
    const uint32_t type = sp_json_get(j, token, "type");
    if (type == SP_JSON_NONE)
        return has_member(j, token, "mode") ? read_legacy_profile(j, token, ret, e)
                                            : read_request(j, token, true, ret, e);

    /* One list of all valid types, for the error message. */
    for (; sp_words_kind[kinds].name != NULL; kinds++)
        types[kinds] = sp_words_kind[kinds];
    sp_words_add_modes(types, kinds);
    r = sp_word_read(j, type, types, &any, e);
    if (r < 0)
        return r;
    if (sp_mode_read(sp_json_str(j, type), &mode))
        return read_legacy_profile(j, token, ret, e);
    return read_tagged(j, token, SP_PATH_NATIVE, ret, e);
}

/* ==== the sandbox member of a request ==== */

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

/* The tokens of `cwd` and `workspaceRoots`, or SP_JSON_NONE. */
struct surroundings {
    uint32_t cwd, roots;
};

/* ---- decoding ---- */

/* Checks the syntax of a URI; the path need not be valid on this host. */
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

/* The members of `policyContext`, if present, replace the object's own. */
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

/* Checks members without effect on Linux, so that clients get the same errors on every host. */
static int check_unused_members(struct sp_json *j, uint32_t object, struct sp_err *e)
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

/* ---- building the policy ---- */

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

/* Has workspace roots, or a pattern that is neither absolute nor below `~`. */
static bool depends_on_cwd(const struct sp_profile *p)
{
    for (size_t i = 0; i < p->count; i++) {
        const char *text = p->entries[i].text;

        if (p->entries[i].place == SP_PLACE_PROJECT)
            return true;
        if (p->entries[i].place == SP_PLACE_GLOB && text[0] != '/' &&
            !(text[0] == '~' && (text[1] == 0 || text[1] == '/')))
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
        r = check_unused_members(j, token, e);
    if (r == 0)
        r = read_tagged(j, permissions, SP_PATH_URI, &p.profile, e);
    if (r == 0)
        r = place_cwd(j, s.cwd, cwd, &p, e);
    if (r == 0 && s.roots != SP_JSON_NONE)
        r = place_roots(j, s.roots, &p, e);
    if (r == 0 && home != SP_JSON_NONE)
        r = sp_policy_read_path(j, home, SP_PATH_URI, "home directory", &p.home, e);
    /* An unusable TMPDIR is ignored, not an error. */
    if (r == 0 && tmpdir != NULL && tmpdir[0] == '/' && strlen(tmpdir) <= SP_POLICY_MAX_PATH) {
        p.tmpdir = strdup(tmpdir);
        r = p.tmpdir != NULL ? 0 : no_memory(e);
    }
    if (r < 0)
        return r;
    *ret = p;
    p = (struct sp_policy){0};
    return 0;
}
