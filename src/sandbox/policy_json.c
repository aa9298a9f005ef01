/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is read is built in a local struct with a cleanup attribute and handed over whole: an error
 * leaves *ret untouched.
 */
#include "sandbox/policy_json.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>

#include "base/auto.h"
#include "base/uri.h"
#include "base/utf8.h"
#include "sandbox/network_json.h"
#include "sandbox/resolve.h"

/* ==== keywords ==== */

#define SHOWN_BYTES     120 /* of a client's text in an error message */
#define SHOWN_URI_BYTES 300 /* of a URI in an error message */

static int no_memory(struct sp_err *e)
{
    return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read a sandbox policy");
}

const struct sp_word sp_words_access[] = {
    {"read", SP_ACCESS_READ, false},
    {"write", SP_ACCESS_WRITE, false},
    {"deny", SP_ACCESS_DENY, false},
    {"none", SP_ACCESS_DENY, true},
    {0},
};

static const struct sp_word network_words[] = {
    {"restricted", false, false},
    {"enabled", true, false},
    {0},
};

static const struct sp_word missing_words[] = {
    {"skip", true, false},
    {0},
};

static const struct sp_word kind_words[] = {
    {"managed", SP_PROFILE_MANAGED, false},
    {"disabled", SP_PROFILE_DISABLED, false},
    {"external", SP_PROFILE_EXTERNAL, false},
    {0},
};

static const struct sp_word file_system_words[] = {
    {"restricted", false, false},
    {"unrestricted", true, false},
    {0},
};

const struct sp_word sp_words_special[] = {
    {"root", SP_PLACE_ROOT, false},
    {"minimal", SP_PLACE_MINIMAL, false},
    {"project_roots", SP_PLACE_PROJECT, false},
    {"current_working_directory", SP_PLACE_PROJECT, true},
    {"tmpdir", SP_PLACE_TMPDIR, false},
    {"slash_tmp", SP_PLACE_SLASH_TMP, false},
    {"unknown", SP_PLACE_UNKNOWN, false},
    {0},
};

static void add_modes(struct sp_word *list, size_t count)
{
    static const enum sp_mode modes[] = {SP_MODE_FULL_ACCESS, SP_MODE_READ_ONLY, SP_MODE_EXTERNAL,
                                         SP_MODE_WORKSPACE_WRITE};

    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++)
        list[count++] = (struct sp_word){sp_mode_name(modes[i]), modes[i], false};
    list[count] = (struct sp_word){0};
}

const char *sp_word_name(const struct sp_word *list, int value)
{
    while (list->name != NULL && (list->is_old || list->value != value))
        list++;
    assert(list->name != NULL);
    return list->name;
}

/* ---- reading words ---- */

struct sp_str sp_policy_shown(struct sp_str s)
{
    if (s.n > SHOWN_BYTES)
        s.n = sp_utf8_valid_prefix((struct sp_str){s.p, SHOWN_BYTES});
    return s;
}

int sp_word_refuse(const char *kind, struct sp_str got, const struct sp_word *list,
                   struct sp_err *e)
{
    const struct sp_str shown = sp_policy_shown(got);
    char names[240] = "";
    size_t len = 0;
    size_t count = 0;
    size_t n = 0;

    for (const struct sp_word *w = list; w->name != NULL; w++)
        count += !w->is_old;
    for (const struct sp_word *w = list; w->name != NULL; w++) {
        if (w->is_old)
            continue;
        const char *between = n == 0 ? "" : count == 2 ? " or " : ", ";
        const int r = snprintf(names + len, sizeof names - len, "%s`%s`", between, w->name);

        assert(r > 0 && (size_t)r < sizeof names - len); /* all lists are short constants */
        len += (size_t)r;
        n++;
    }
    return sp_fail(e, SP_E_INVALID, 0, "unknown %s `" SP_STR_FMT "%s`, expected %s%s", kind,
                   SP_STR_ARG(shown), shown.n < got.n ? "…" : "", count > 2 ? "one of " : "",
                   names);
}

int sp_word_read(struct sp_json *j, uint32_t token, const struct sp_word *list, int *ret,
                 struct sp_err *e)
{
    if (sp_json_type(j, token) != SP_JSON_STRING)
        return sp_json_wrong_type(j, token, "a string", e);

    const struct sp_str s = sp_json_str(j, token);
    for (const struct sp_word *w = list; w->name != NULL; w++)
        if (sp_str_eq(s, sp_str_of(w->name))) {
            *ret = w->value;
            return 0;
        }
    return sp_word_refuse("variant", s, list, e);
}

static int need_word(struct sp_json *j, uint32_t object, const char *key,
                     const struct sp_word *list, int *ret, struct sp_err *e)
{
    const uint32_t t = sp_json_get(j, object, key);

    if (t == SP_JSON_NONE)
        return sp_fail(e, SP_E_INVALID, 0, "missing field `%s`", key);
    return sp_word_read(j, t, list, ret, e);
}

static int opt_word(struct sp_json *j, uint32_t object, const char *key, const struct sp_word *list,
                    int *ret, struct sp_err *e)
{
    const uint32_t t = sp_json_get(j, object, key);

    if (t == SP_JSON_NONE || sp_json_type(j, t) == SP_JSON_NULL)
        return 0;
    return sp_word_read(j, t, list, ret, e);
}

static int def_array(struct sp_json *j, uint32_t object, const char *key, uint32_t *ret,
                     struct sp_err *e)
{
    const uint32_t t = sp_json_get(j, object, key);

    if (t == SP_JSON_NONE)
        return 0;
    if (sp_json_type(j, t) != SP_JSON_ARRAY)
        return sp_json_wrong_type(j, t, "a sequence", e);
    *ret = t;
    return 0;
}

/* ---- reading paths ---- */

int sp_policy_check_text(struct sp_str s, const char *what, struct sp_err *e)
{
    if (s.n > SP_POLICY_MAX_PATH)
        return sp_fail(e, SP_E_INVALID, 0, "invalid sandbox %s: longer than %d bytes", what,
                       SP_POLICY_MAX_PATH);
    if (sp_str_has_nul(s))
        return sp_fail(e, SP_E_INVALID, 0, "invalid sandbox %s: holds a NUL byte", what);
    return 0;
}

/* Reads an absolute path and normalises it; the caller frees *ret. */
static int read_path(struct sp_json *j, uint32_t token, enum sp_path_form form, const char *what,
                     char **ret, struct sp_err *e)
{
    auto_uri struct sp_uri u = {0};
    int r;

    if (sp_json_type(j, token) != SP_JSON_STRING)
        return sp_json_wrong_type(j, token, "a string", e);
    struct sp_str text = sp_json_str(j, token);
    if (form == SP_PATH_URI) {
        if ((r = sp_uri_read(text, &u, e)) < 0)
            return r;
        if (u.path == NULL)
            return sp_fail(e, SP_E_INVALID, 0,
                           "invalid sandbox %s URI: '%.*s%s' is invalid on 'linux'", what,
                           SHOWN_URI_BYTES, u.text, strlen(u.text) > SHOWN_URI_BYTES ? "…" : "");
        text = sp_str_of(u.path);
    }
    if ((r = sp_policy_check_text(text, what, e)) < 0)
        return r;
    if (text.n == 0 || text.p[0] != '/') {
        const struct sp_str shown = sp_policy_shown(text);

        return sp_fail(e, SP_E_INVALID, 0, "invalid sandbox %s: '" SP_STR_FMT "%s' is not absolute",
                       what, SP_STR_ARG(shown), shown.n < text.n ? "…" : "");
    }
    auto_free char *path = sp_str_dup(text);
    *ret = path == NULL ? NULL : sp_path_normalise(path, NULL);
    return *ret != NULL ? 0 : no_memory(e);
}

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
static const struct sp_word network_members[] = {{.name = "enabled"}, {.name = "managed"}, {0}};
static const struct sp_word managed_members[] = {{.name = "managed"}, {0}};
static const struct sp_word file_system_members[] = {
    {.name = "entries"}, {.name = "glob_scan_max_depth"}, {.name = "read"}, {.name = "write"}, {0}};

static int need_map(struct sp_json *j, uint32_t token, struct sp_err *e)
{
    if (sp_json_type(j, token) != SP_JSON_OBJECT)
        return sp_json_wrong_type(j, token, "a map", e);
    return 0;
}

int sp_policy_check_members(struct sp_json *j, uint32_t object, const struct sp_word *known,
                            struct sp_err *e)
{
    sp_json_each(j, object, key) {
        const struct sp_str name = sp_json_str(j, key);
        const struct sp_word *w = known;

        while (w->name != NULL && !sp_str_eq(name, sp_str_of(w->name)))
            w++;
        if (w->name == NULL)
            return sp_word_refuse("field", name, known, e);
    }
    return 0;
}

/* ---- entries ---- */

/* The place of an entry while it is read. */
struct target {
    enum sp_place place;
    struct sp_str text, subpath; /* point into the JSON text, or to *path */
    char **path;                 /* a literal path, normalised; the caller frees it */
};

static int read_text(struct sp_json *j, uint32_t object, const char *key, const char *what,
                     struct sp_str *ret, struct sp_err *e)
{
    const int r = sp_json_need_str(j, object, key, ret, e);

    return r < 0 ? r : sp_policy_check_text(*ret, what, e);
}

static int read_special(struct sp_json *j, uint32_t object, struct target *t, struct sp_err *e)
{
    uint32_t value;
    struct sp_str subpath = {0};
    int place = SP_PLACE_ROOT;
    int r;

    if ((r = sp_json_need_object(j, object, "value", &value, e)) < 0 ||
        (r = need_word(j, value, "kind", sp_words_special, &place, e)) < 0)
        return r;
    t->place = (enum sp_place)place;
    if (place != SP_PLACE_PROJECT && place != SP_PLACE_UNKNOWN)
        return 0;
    if ((r = sp_json_opt_str(j, value, "subpath", &subpath, e)) < 0 ||
        (r = sp_policy_check_text(subpath, "permission subpath", e)) < 0)
        return r;
    if (place == SP_PLACE_PROJECT) {
        t->text = subpath;
        return 0;
    }
    t->subpath = subpath;
    return read_text(j, value, "path", PERMISSION_PATH, &t->text, e);
}

static int read_target(struct sp_json *j, uint32_t object, enum sp_path_form form, struct target *t,
                       struct sp_err *e)
{
    const uint32_t path = sp_json_get(j, object, "path");
    int type = SPECIAL;
    int r = need_word(j, object, "type", path_types, &type, e);

    if (r < 0)
        return r;
    if (type == SPECIAL)
        return read_special(j, object, t, e);
    t->place = (enum sp_place)type;
    if (type == SP_PLACE_GLOB)
        return read_text(j, object, "pattern", "permission pattern", &t->text, e);
    if (path == SP_JSON_NONE)
        return sp_fail(e, SP_E_INVALID, 0, "missing field `path`");
    r = read_path(j, path, form, PERMISSION_PATH, t->path, e);
    if (r == 0)
        t->text = sp_str_of(*t->path);
    return r;
}

static int read_entry(struct sp_json *j, uint32_t token, enum sp_path_form form,
                      struct sp_profile *p, struct sp_err *e)
{
    auto_free char *path_text = NULL;
    struct target t = {.path = &path_text};
    uint32_t path;
    int access = SP_ACCESS_DENY;
    int skips_missing = false;
    int r;

    if ((r = need_map(j, token, e)) < 0 ||
        (r = sp_json_need_object(j, token, "path", &path, e)) < 0 ||
        (r = read_target(j, path, form, &t, e)) < 0 ||
        (r = need_word(j, token, "access", sp_words_access, &access, e)) < 0 ||
        (r = opt_word(j, token, "missing_path_behavior", missing_words, &skips_missing, e)) < 0)
        return r;
    return sp_profile_add(p, t.place, (enum sp_access)access, skips_missing, t.text, t.subpath, e);
}

static int check_count(const struct sp_json *j, uint32_t array, size_t before, struct sp_err *e)
{
    if (before + j->tokens[array].children > SP_POLICY_MAX_ENTRIES)
        return sp_fail(e, SP_E_INVALID, 0, "more than %d sandbox permission entries",
                       SP_POLICY_MAX_ENTRIES);
    return 0;
}

/* `entries` and `glob_scan_max_depth`. */
static int read_entries(struct sp_json *j, uint32_t object, enum sp_path_form form,
                        struct sp_profile *p, struct sp_err *e)
{
    static const char depth_key[] = "glob_scan_max_depth";
    uint64_t depth = 0;
    uint32_t array;
    int r;

    if ((r = sp_json_need_array(j, object, "entries", &array, e)) < 0 ||
        (r = check_count(j, array, 0, e)) < 0)
        return r;
    sp_json_each(j, array, t)
        if ((r = read_entry(j, t, form, p, e)) < 0)
            return r;
    const uint32_t t = sp_json_get(j, object, depth_key);
    if (t == SP_JSON_NONE || sp_json_type(j, t) == SP_JSON_NULL)
        return 0;
    if ((r = sp_json_need_u64(j, object, depth_key, UINT64_MAX, &depth, e)) < 0)
        return r;
    if (depth == 0)
        return sp_fail(e, SP_E_INVALID, 0, "invalid value: integer `0`, expected a nonzero usize");
    /* No path is deeper than UINT32_MAX. */
    p->glob_depth = depth < UINT32_MAX ? (uint32_t)depth : UINT32_MAX;
    return 0;
}

/* ---- the network ---- */

/* "restricted", "enabled" or, in files, {"managed":{...}}. */
static int need_network(struct sp_json *j, uint32_t object, enum sp_path_form form,
                        struct sp_profile *p, struct sp_err *e)
{
    const uint32_t t = sp_json_get(j, object, "network");
    uint32_t managed = SP_JSON_NONE;
    int has_network = false;
    int r;

    if (form == SP_PATH_NATIVE && t != SP_JSON_NONE && sp_json_type(j, t) == SP_JSON_OBJECT) {
        if ((r = sp_policy_check_members(j, t, managed_members, e)) < 0 ||
            (r = sp_json_need_object(j, t, "managed", &managed, e)) < 0)
            return r;
        return sp_network_policy_read(j, managed, &p->managed, e);
    }
    r = need_word(j, object, "network", network_words, &has_network, e);
    p->has_network = has_network;
    return r;
}

/* ---- the tagged form ---- */

static int read_tagged(struct sp_json *j, uint32_t object, enum sp_path_form form,
                       struct sp_profile *ret, struct sp_err *e)
{
    auto_profile struct sp_profile p = {0};
    uint32_t file_system;
    int kind = SP_PROFILE_MANAGED;
    int is_unrestricted = false;
    int r = need_word(j, object, "type", kind_words, &kind, e);

    if (r < 0)
        return r;
    if (kind == SP_PROFILE_MANAGED &&
        ((r = sp_json_need_object(j, object, "file_system", &file_system, e)) < 0 ||
         (r = need_word(j, file_system, "type", file_system_words, &is_unrestricted, e)) < 0 ||
         (!is_unrestricted && (r = read_entries(j, file_system, form, &p, e)) < 0)))
        return r;
    p.has_network = kind == SP_PROFILE_DISABLED;
    if (kind != SP_PROFILE_DISABLED && (r = need_network(j, object, form, &p, e)) < 0)
        return r;
    p.kind = (enum sp_profile_kind)kind;
    p.is_unrestricted = is_unrestricted;
    *ret = TAKE_STRUCT(p);
    return 0;
}

/* ---- grants, and profiles without a `type` ---- */

static int read_network(struct sp_json *j, uint32_t object, bool is_strict, struct sp_profile *p,
                        struct sp_err *e)
{
    const uint32_t enabled = sp_json_get(j, object, "enabled");
    const uint32_t managed = is_strict ? sp_json_get(j, object, "managed") : SP_JSON_NONE;
    int r = is_strict ? sp_policy_check_members(j, object, network_members, e) : 0;

    if (r == 0 && enabled != SP_JSON_NONE && sp_json_type(j, enabled) != SP_JSON_NULL)
        r = sp_json_need_bool(j, object, "enabled", &p->has_network, e);
    if (r < 0 || managed == SP_JSON_NONE)
        return r;
    if (enabled != SP_JSON_NONE)
        return sp_fail(e, SP_E_INVALID, 0, "`enabled` cannot be combined with `managed`");
    return sp_network_policy_read(j, managed, &p->managed, e);
}

static int read_paths(struct sp_json *j, uint32_t object, const char *key, enum sp_access access,
                      struct sp_profile *p, struct sp_err *e)
{
    uint32_t array = SP_JSON_NONE;
    int r = sp_json_opt_array(j, object, key, &array, e);

    if (r < 0 || array == SP_JSON_NONE)
        return r;
    if ((r = check_count(j, array, p->count, e)) < 0)
        return r;
    sp_json_each(j, array, t) {
        auto_free char *path = NULL;

        if ((r = read_path(j, t, SP_PATH_NATIVE, PERMISSION_PATH, &path, e)) < 0 ||
            (r = sp_profile_add(p, SP_PLACE_PATH, access, false, sp_str_of(path),
                                (struct sp_str){0}, e)) < 0)
            return r;
    }
    return 0;
}

static bool has_member(struct sp_json *j, uint32_t object, const char *key)
{
    return sp_json_get(j, object, key) != SP_JSON_NONE;
}

static int read_file_system(struct sp_json *j, uint32_t object, bool is_strict,
                            struct sp_profile *p, struct sp_err *e)
{
    int r = is_strict ? sp_policy_check_members(j, object, file_system_members, e) : 0;

    if (r < 0)
        return r;
    if (has_member(j, object, "entries") || has_member(j, object, "glob_scan_max_depth")) {
        if (has_member(j, object, "read") || has_member(j, object, "write"))
            return sp_fail(e, SP_E_INVALID, 0,
                           "`read` and `write` cannot be combined with `entries`");
        return read_entries(j, object, SP_PATH_NATIVE, p, e);
    }
    if ((r = read_paths(j, object, "read", SP_ACCESS_READ, p, e)) < 0)
        return r;
    return read_paths(j, object, "write", SP_ACCESS_WRITE, p, e);
}

static int read_request(struct sp_json *j, uint32_t token, bool is_strict, struct sp_profile *ret,
                        struct sp_err *e)
{
    auto_profile struct sp_profile p = {0};
    uint32_t network = SP_JSON_NONE;
    uint32_t file_system = SP_JSON_NONE;
    int r;

    if ((r = need_map(j, token, e)) < 0 ||
        (is_strict && (r = sp_policy_check_members(j, token, request_members, e)) < 0) ||
        (r = sp_json_opt_object(j, token, "network", &network, e)) < 0 ||
        (network != SP_JSON_NONE && (r = read_network(j, network, is_strict, &p, e)) < 0) ||
        (r = sp_json_opt_object(j, token, "file_system", &file_system, e)) < 0 ||
        (file_system != SP_JSON_NONE &&
         (r = read_file_system(j, file_system, is_strict, &p, e)) < 0))
        return r;
    *ret = TAKE_STRUCT(p);
    return 0;
}

int sp_grant_read(struct sp_json *j, uint32_t token, struct sp_grant *ret, struct sp_err *e)
{
    return read_request(j, token, false, &ret->extra, e);
}

/* ---- legacy modes ---- */

static int read_workspace_write(struct sp_json *j, uint32_t object, struct sp_legacy *l,
                                struct sp_err *e)
{
    uint32_t roots = SP_JSON_NONE;
    int r = def_array(j, object, "writable_roots", &roots, e);

    if (r < 0)
        return r;
    const uint32_t count = roots == SP_JSON_NONE ? 0 : j->tokens[roots].children;
    if (count > SP_POLICY_MAX_ROOTS)
        return sp_fail(e, SP_E_INVALID, 0, "more than %d writable roots", SP_POLICY_MAX_ROOTS);
    if (count != 0) {
        l->roots = calloc(count, sizeof *l->roots);
        if (l->roots == NULL)
            return no_memory(e);
        sp_json_each(j, roots, t) {
            if ((r = read_path(j, t, SP_PATH_NATIVE, "writable root", &l->roots[l->root_count],
                               e)) < 0)
                return r;
            l->root_count++;
        }
    }
    if ((r = sp_json_def_bool(j, object, "network_access", &l->has_network, e)) < 0 ||
        (r = sp_json_def_bool(j, object, "exclude_tmpdir_env_var", &l->excludes_tmpdir, e)) < 0)
        return r;
    return sp_json_def_bool(j, object, "exclude_slash_tmp", &l->excludes_slash_tmp, e);
}

int sp_legacy_read(struct sp_json *j, uint32_t token, struct sp_legacy *ret, struct sp_err *e)
{
    auto_legacy struct sp_legacy l = {0};
    struct sp_word modes[5];
    int mode = SP_MODE_READ_ONLY;
    int has_network = false;
    int r = need_map(j, token, e);

    if (r < 0)
        return r;
    add_modes(modes, 0);
    const bool is_older = !has_member(j, token, "type") && has_member(j, token, "mode");
    r = need_word(j, token, is_older ? "mode" : "type", modes, &mode, e);
    l.mode = (enum sp_mode)mode;
    if (r == 0 && l.mode == SP_MODE_READ_ONLY)
        r = sp_json_def_bool(j, token, "network_access", &l.has_network, e);
    if (r == 0 && l.mode == SP_MODE_WORKSPACE_WRITE)
        r = read_workspace_write(j, token, &l, e);
    if (r == 0 && l.mode == SP_MODE_EXTERNAL && has_member(j, token, "network_access")) {
        r = need_word(j, token, "network_access", network_words, &has_network, e);
        l.has_network = has_network;
    }
    if (r < 0)
        return r;
    *ret = TAKE_STRUCT(l);
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
    for (; kind_words[kinds].name != NULL; kinds++)
        types[kinds] = kind_words[kinds];
    add_modes(types, kinds);
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
    int r;

    if (j->tokens[array].children > SP_POLICY_MAX_ROOTS)
        return sp_fail(e, SP_E_INVALID, 0, "more than %d %s", SP_POLICY_MAX_ROOTS, what);
    sp_json_each(j, array, t)
        if ((r = check_uri(j, t, e)) < 0)
            return r;
    return 0;
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
        r = def_array(j, object, "workspaceRoots", &ret->roots, e);
    if (r == 0 && ret->roots != SP_JSON_NONE)
        r = check_uris(j, ret->roots, "workspace roots", e);
    return r;
}

/* Checks members without effect on Linux, so that clients get the same errors on every host. */
static int check_unused_members(struct sp_json *j, uint32_t object, struct sp_err *e)
{
    uint32_t temporary = SP_JSON_NONE;
    bool uses_legacy_landlock = false;
    int level = 0;
    int ignored = 0;
    const uint32_t override = sp_json_get(j, object, "sandboxOverride");
    int r;

    if ((override != SP_JSON_NONE &&
         (r = sp_word_read(j, override, override_words, &ignored, e)) < 0) ||
        (r = sp_json_opt_array(j, object, "temporaryDirectories", &temporary, e)) < 0 ||
        (temporary != SP_JSON_NONE &&
         (r = check_uris(j, temporary, "temporary directories", e)) < 0) ||
        (r = need_word(j, object, "windowsSandboxLevel", level_words, &level, e)) < 0 ||
        (r = opt_word(j, object, "windowsSandboxProxySettingsMode", proxy_settings_words, &ignored,
                      e)) < 0 ||
        (r = sp_json_def_bool(j, object, "useLegacyLandlock", &uses_legacy_landlock, e)) < 0)
        return r;
    return level != LEVEL_MXC
               ? 0
               : sp_fail(e, SP_E_INVALID, 0, "native MXC is unavailable on this executor");
}

/* ---- building the policy ---- */

static int place_roots(struct sp_json *j, uint32_t array, struct sp_policy *p, struct sp_err *e)
{
    sp_json_each(j, array, t) {
        auto_free char *root = NULL;
        const int r = read_path(j, t, SP_PATH_URI, "workspace root", &root, e);

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
        return read_path(j, token, SP_PATH_URI, "cwd", &p->cwd, e);
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
    uint32_t context = SP_JSON_NONE;
    uint32_t permissions;
    uint32_t home;
    int r;

    if (sp_json_type(j, token) != SP_JSON_OBJECT)
        return sp_json_wrong_type(j, token, "a map", e);
    /* The members of `policyContext`, if present, replace the object's own. */
    if ((r = sp_json_need_object(j, token, "permissions", &permissions, e)) < 0 ||
        (r = read_surroundings(j, token, &s, e)) < 0 ||
        (r = sp_json_opt_object(j, token, "policyContext", &context, e)) < 0 ||
        (context != SP_JSON_NONE && (r = read_surroundings(j, context, &s, e)) < 0) ||
        (r = opt_uri(j, token, "userHomeDir", &home, e)) < 0 ||
        (r = check_unused_members(j, token, e)) < 0 ||
        (r = read_tagged(j, permissions, SP_PATH_URI, &p.profile, e)) < 0 ||
        (r = place_cwd(j, s.cwd, cwd, &p, e)) < 0 ||
        (s.roots != SP_JSON_NONE && (r = place_roots(j, s.roots, &p, e)) < 0) ||
        (home != SP_JSON_NONE &&
         (r = read_path(j, home, SP_PATH_URI, "home directory", &p.home, e)) < 0))
        return r;
    /* An unusable TMPDIR is ignored, not an error. */
    if (tmpdir != NULL && tmpdir[0] == '/' && strlen(tmpdir) <= SP_POLICY_MAX_PATH &&
        (p.tmpdir = strdup(tmpdir)) == NULL)
        return no_memory(e);
    *ret = TAKE_STRUCT(p);
    return 0;
}

/* ==== writing ==== */

/* After a failure the put functions have no effect. */
struct writer {
    struct sp_buf *out;
    enum sp_path_form form;
    bool has_no_room, has_no_spelling;
};

static void put(struct writer *w, const char *text)
{
    w->has_no_room = w->has_no_room || !sp_buf_add_str(w->out, sp_str_of(text));
}

static void put_string(struct writer *w, const char *text)
{
    const struct sp_str s = sp_str_of(text);

    w->has_no_spelling = w->has_no_spelling || !sp_utf8_is_valid(s);
    w->has_no_room = w->has_no_room || !sp_json_add_str(w->out, s);
}

static void put_path(struct writer *w, const char *path)
{
    if (w->form != SP_PATH_URI) {
        put_string(w, path);
        return;
    }
    put(w, "\""); /* URIs are ASCII without characters that JSON escapes */
    w->has_no_room = w->has_no_room || !sp_uri_add(w->out, sp_str_of(path));
    put(w, "\"");
}

static void put_word(struct writer *w, const char *before, const struct sp_word *list, int value)
{
    put(w, before);
    put_string(w, sp_word_name(list, value));
}

/* After a failure truncates the output to `mark`. */
static int finish(const struct writer *w, size_t mark, struct sp_err *e)
{
    if (!w->has_no_room && !w->has_no_spelling)
        return 0;
    w->out->len = mark;
    if (w->has_no_spelling)
        return sp_fail(e, SP_E_INVALID, 0, "a path that is not UTF-8 cannot be written as JSON");
    return sp_fail(e, SP_E_SYSTEM, ENOMEM, "write a sandbox policy");
}

/* ---- entries ---- */

static void put_entry(struct writer *w, const struct sp_entry *entry)
{
    const bool is_unknown = entry->place == SP_PLACE_UNKNOWN;
    const char *subpath = is_unknown ? entry->subpath : entry->text;

    put(w, "{\"path\":");
    if (entry->place == SP_PLACE_PATH) {
        put(w, "{\"type\":\"path\",\"path\":");
        put_path(w, entry->text);
    } else if (entry->place == SP_PLACE_GLOB) {
        put(w, "{\"type\":\"glob_pattern\",\"pattern\":");
        put_string(w, entry->text);
    } else {
        put_word(w, "{\"type\":\"special\",\"value\":{\"kind\":", sp_words_special,
                 (int)entry->place);
        if (is_unknown) {
            put(w, ",\"path\":");
            put_string(w, entry->text != NULL ? entry->text : "");
        }
        if (subpath != NULL) {
            put(w, ",\"subpath\":");
            put_string(w, subpath);
        }
        put(w, "}");
    }
    put_word(w, "},\"access\":", sp_words_access, (int)entry->access);
    if (entry->skips_missing)
        put_word(w, ",\"missing_path_behavior\":", missing_words, true);
    put(w, "}");
}

static void put_entries(struct writer *w, const struct sp_profile *p)
{
    put(w, "\"entries\":[");
    for (size_t i = 0; i < p->count; i++) {
        put(w, i != 0 ? "," : "");
        put_entry(w, &p->entries[i]);
    }
    put(w, "]");
    if (p->glob_depth != 0)
        w->has_no_room =
            w->has_no_room || !sp_buf_printf(w->out, ",\"glob_scan_max_depth\":%u", p->glob_depth);
}

/* ---- profiles ---- */

int sp_profile_write(struct sp_buf *out, const struct sp_profile *p, enum sp_path_form form,
                     struct sp_err *e)
{
    struct writer w = {.out = out, .form = form};
    const size_t mark = out->len;

    put_word(&w, "{\"type\":", kind_words, (int)p->kind);
    if (p->kind == SP_PROFILE_MANAGED) {
        put_word(&w, ",\"file_system\":{\"type\":", file_system_words, p->is_unrestricted);
        if (!p->is_unrestricted) {
            put(&w, ",");
            put_entries(&w, p);
        }
        put(&w, "}");
    }
    const struct sp_network_policy *managed = form == SP_PATH_NATIVE ? sp_profile_managed(p) : NULL;
    if (p->kind != SP_PROFILE_DISABLED && managed != NULL) {
        put(&w, ",\"network\":{\"managed\":");
        w.has_no_room = w.has_no_room || !sp_network_policy_write(managed, out);
        put(&w, "}");
    } else if (p->kind != SP_PROFILE_DISABLED) {
        put_word(&w, ",\"network\":", network_words, p->has_network);
    }
    put(&w, "}");
    return finish(&w, mark, e);
}

/* ---- grants ---- */

/* Whether a list of paths to read and one to write express all entries, in this order. */
static bool is_plain(const struct sp_profile *p)
{
    enum sp_access last = SP_ACCESS_READ;

    if (p->glob_depth != 0)
        return false;
    for (size_t i = 0; i < p->count; i++) {
        const struct sp_entry *entry = &p->entries[i];

        if (entry->place != SP_PLACE_PATH || entry->access < last || entry->skips_missing)
            return false;
        last = entry->access;
    }
    return true;
}

/* Omits an empty list. Returns whether this or an earlier list was written. */
static bool put_list(struct writer *w, const struct sp_profile *p, enum sp_access access,
                     const char *name, bool is_second)
{
    bool is_begun = false;

    for (size_t i = 0; i < p->count; i++) {
        if (p->entries[i].access != access)
            continue;
        if (!is_begun) {
            put(w, is_second ? "," : "");
            put_string(w, name);
        }
        put(w, is_begun ? "," : ":[");
        put_path(w, p->entries[i].text);
        is_begun = true;
    }
    put(w, is_begun ? "]" : "");
    return is_begun || is_second;
}

int sp_grant_write(struct sp_buf *out, const struct sp_grant *g, struct sp_err *e)
{
    struct writer w = {.out = out, .form = SP_PATH_NATIVE};
    const struct sp_profile *p = &g->extra;
    const bool has_file_system = p->count != 0 || p->glob_depth != 0;
    const size_t mark = out->len;

    put(&w, p->has_network ? "{\"network\":{\"enabled\":true}" : "{");
    if (has_file_system) {
        put(&w, p->has_network ? ",\"file_system\":{" : "\"file_system\":{");
        if (is_plain(p))
            (void)put_list(&w, p, SP_ACCESS_WRITE, "write",
                           put_list(&w, p, SP_ACCESS_READ, "read", false));
        else
            put_entries(&w, p);
        put(&w, "}");
    }
    put(&w, "}");
    return finish(&w, mark, e);
}
