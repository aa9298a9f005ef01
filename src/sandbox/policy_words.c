/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy_words: the keywords of policies, for reading and writing, and parts that all readers of
 * policies share.
 */
#include "sandbox/policy_words.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>

#include "base/auto.h"
#include "base/uri.h"
#include "base/utf8.h"
#include "sandbox/resolve.h"

#define SHOWN_BYTES     120 /* of a client's text in an error message */
#define SHOWN_URI_BYTES 300 /* of a URI in an error message */

const struct sp_word sp_words_access[] = {
    {"read", SP_ACCESS_READ, false},
    {"write", SP_ACCESS_WRITE, false},
    {"deny", SP_ACCESS_DENY, false},
    {"none", SP_ACCESS_DENY, true},
    {0},
};

const struct sp_word sp_words_network[] = {
    {"restricted", false, false},
    {"enabled", true, false},
    {0},
};

const struct sp_word sp_words_missing[] = {
    {"skip", true, false},
    {0},
};

const struct sp_word sp_words_kind[] = {
    {"managed", SP_PROFILE_MANAGED, false},
    {"disabled", SP_PROFILE_DISABLED, false},
    {"external", SP_PROFILE_EXTERNAL, false},
    {0},
};

const struct sp_word sp_words_file_system[] = {
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

void sp_words_add_modes(struct sp_word *list, size_t count)
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

int sp_word_need(struct sp_json *j, uint32_t object, const char *key, const struct sp_word *list,
                 int *ret, struct sp_err *e)
{
    const uint32_t t = sp_json_get(j, object, key);

    if (t == SP_JSON_NONE)
        return sp_fail(e, SP_E_INVALID, 0, "missing field `%s`", key);
    return sp_word_read(j, t, list, ret, e);
}

int sp_word_opt(struct sp_json *j, uint32_t object, const char *key, const struct sp_word *list,
                int *ret, struct sp_err *e)
{
    const uint32_t t = sp_json_get(j, object, key);

    if (t == SP_JSON_NONE || sp_json_type(j, t) == SP_JSON_NULL)
        return 0;
    return sp_word_read(j, t, list, ret, e);
}

int sp_policy_def_array(struct sp_json *j, uint32_t object, const char *key, uint32_t *ret,
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

static int normalise(const char *path, const char *what, char **ret, struct sp_err *e)
{
    const int r = sp_policy_check_text(sp_str_of(path), what, e);

    if (r < 0)
        return r;
    char *normal = sp_path_normalise(path, NULL);
    if (normal == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read a sandbox policy");
    *ret = normal;
    return 0;
}

static int read_uri(struct sp_str text, const char *what, char **ret, struct sp_err *e)
{
    auto_uri struct sp_uri u = {0};
    const int r = sp_uri_read(text, &u, e);

    if (r < 0)
        return r;
    if (u.path == NULL) {
        const bool is_cut = strlen(u.text) > SHOWN_URI_BYTES;

        return sp_fail(e, SP_E_INVALID, 0, "invalid sandbox %s URI: '%.*s%s' is invalid on 'linux'",
                       what, SHOWN_URI_BYTES, u.text, is_cut ? "…" : "");
    }
    return normalise(u.path, what, ret, e);
}

static int read_native(struct sp_str text, const char *what, char **ret, struct sp_err *e)
{
    const int r = sp_policy_check_text(text, what, e);

    if (r < 0)
        return r;
    if (text.n == 0 || text.p[0] != '/') {
        const struct sp_str shown = sp_policy_shown(text);

        return sp_fail(e, SP_E_INVALID, 0, "invalid sandbox %s: '" SP_STR_FMT "%s' is not absolute",
                       what, SP_STR_ARG(shown), shown.n < text.n ? "…" : "");
    }
    auto_free char *path = malloc(text.n + 1);
    if (path == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read a sandbox policy");
    memcpy(path, text.p, text.n);
    path[text.n] = 0;
    return normalise(path, what, ret, e);
}

int sp_policy_read_path(struct sp_json *j, uint32_t token, enum sp_path_form form, const char *what,
                        char **ret, struct sp_err *e)
{
    if (sp_json_type(j, token) != SP_JSON_STRING)
        return sp_json_wrong_type(j, token, "a string", e);

    const struct sp_str text = sp_json_str(j, token);
    return form == SP_PATH_URI ? read_uri(text, what, ret, e) : read_native(text, what, ret, e);
}
