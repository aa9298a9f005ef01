/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/glob.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/buf.h"
#include "sandbox/glob_match.h"
#include "sandbox/resolve.h"

void sp_glob_done(struct sp_glob *g)
{
    for (size_t i = 0; i < g->form_count; i++)
        free(g->forms[i]);
    free(g->forms);
    free(g->prefix);
    *g = (struct sp_glob){0};
}

static int no_memory(struct sp_err *e)
{
    return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read a glob pattern");
}

static int invalid(const char *pattern, const char *why, struct sp_err *e)
{
    return sp_fail(e, SP_E_INVALID, 0, "invalid glob pattern `%.200s`: %s", pattern, why);
}

/* ---- tidying ---- */

/* Copies one thing of the pattern: an escaped character, a class, or a byte. A [ that is not
 * closed is escaped, so that no expansion closes it; a class's own braces mean nothing. */
static bool copy_thing(struct sp_buf *out, const char **p, bool *ret_is_sane)
{
    const char *at = *p;

    if (*at == '\\' && at[1] == '/') { /* a slash is one with or without it */
        *p += 1;
        return true;
    }
    if (*at == '\\') {
        *p += at[1] == 0 ? 1 : 2;
        return sp_buf_add(out, at[1] == 0 ? "\\\\" : at, 2);
    }
    if (*at == '[') {
        const size_t n = sp_glob_class_length(at);

        *p += n == 0 ? 1 : n;
        if (n == 0)
            return sp_buf_add(out, "\\[", 2);
        *ret_is_sane &= sp_glob_class_is_sane(at, n);
        return sp_buf_add(out, at, n);
    }
    *p += 1;
    return sp_buf_add(out, at, 1);
}

static int tidy(const char *pattern, struct sp_buf *out, struct sp_err *e)
{
    bool is_sane = true;

    for (const char *p = pattern; *p != 0;)
        if (!copy_thing(out, &p, &is_sane))
            return no_memory(e);
    if (!sp_buf_add(out, "", 1))
        return no_memory(e);
    return is_sane ? 0 : invalid(pattern, "a range runs backwards", e);
}

/* The length of what begins here and is to be taken whole. From here on every [ is closed. */
static size_t thing_length(const char *p)
{
    if (*p == '[')
        return sp_glob_class_length(p);
    return *p == '\\' ? 2 : 1;
}

/* ---- the literal directory ---- */

static char *unescape(const char *text, size_t n)
{
    char *out = malloc(n + 1);
    size_t len = 0;

    if (out == NULL)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\\')
            i++;
        out[len++] = text[i];
    }
    out[len] = 0;
    return out;
}

/* The bytes before the first wildcard, and whether there is one. */
static size_t literal_length(const char *tidied, bool *ret_is_wild)
{
    const char *p = tidied;

    while (*p != 0 && strchr("*?[{}", *p) == NULL)
        p += thing_length(p);
    *ret_is_wild = *p != 0;
    return (size_t)(p - tidied);
}

/* Returns what is left for the forms; NULL: no memory. */
static const char *take_prefix(struct sp_glob *g, const char *tidied)
{
    bool is_wild = false;
    size_t n = literal_length(tidied, &is_wild);

    while (is_wild && n > 1 && tidied[n - 1] != '/')
        n--;
    auto_free char *literal = unescape(tidied, n);
    if (literal == NULL)
        return NULL;
    g->prefix = sp_path_normalise(literal, NULL);
    g->is_literal = !is_wild;
    return g->prefix == NULL ? NULL : tidied + n;
}

/* ---- braces ---- */

struct brace {
    const char *open, *close;
};

/* The first pair that is in no other. false: there is none, or (*ret_is_sane) one without the
 * other.
 */
static bool find_brace(const char *text, struct brace *ret, bool *ret_is_sane)
{
    size_t depth = 0;

    *ret_is_sane = false;
    for (const char *p = text; *p != 0; p += thing_length(p)) {
        if (*p == '{' && depth++ == 0)
            ret->open = p;
        if (*p == '}' && depth == 0)
            return false;
        if (*p == '}' && --depth == 0) {
            ret->close = p;
            return true;
        }
    }
    *ret_is_sane = depth == 0;
    return false;
}

/* The end of the alternative that begins at p: a comma that is in no other pair, or close. */
static const char *alternative_end(const char *p, const char *close)
{
    size_t depth = 0;

    for (; p < close; p += thing_length(p)) {
        if (*p == ',' && depth == 0)
            return p;
        depth += *p == '{';
        depth -= *p == '}';
    }
    return close;
}

static bool push_form(struct sp_glob *g, char *form)
{
    if (g->form_count == g->form_cap) {
        const size_t cap = g->form_cap == 0 ? 4 : g->form_cap * 2;
        char **forms = realloc(g->forms, cap * sizeof *forms);

        if (forms == NULL)
            return false;
        g->forms = forms;
        g->form_cap = cap;
    }
    g->forms[g->form_count++] = form;
    return true;
}

static char *join3(const char *a, size_t a_len, const char *b, size_t b_len, const char *c)
{
    const size_t c_len = strlen(c);
    char *out = malloc(a_len + b_len + c_len + 1);

    if (out != NULL) {
        memcpy(out, a, a_len);
        memcpy(out + a_len, b, b_len);
        memcpy(out + a_len + b_len, c, c_len + 1);
    }
    return out;
}

/* Puts the alternatives of the form's pair in its place. */
static int open_brace(struct sp_glob *g, size_t at, struct brace pair, const char *pattern,
                      struct sp_err *e)
{
    const char *form = g->forms[at];
    const char *end = pair.open;

    while (end != pair.close) {
        const char *begin = end + 1;

        end = alternative_end(begin, pair.close);
        auto_free char *one =
            join3(form, (size_t)(pair.open - form), begin, (size_t)(end - begin), pair.close + 1);
        if (g->form_count > SP_GLOB_FORMS) /* one of them is the form itself */
            return invalid(pattern, "its braces stand for too many patterns", e);
        if (one == NULL || !push_form(g, one))
            return no_memory(e);
        one = NULL;
    }
    free(g->forms[at]);
    g->forms[at] = g->forms[--g->form_count];
    return 0;
}

static int open_braces(struct sp_glob *g, const char *pattern, struct sp_err *e)
{
    for (size_t i = 0; i < g->form_count;) {
        struct brace pair = {0};
        bool is_sane = true;

        if (!find_brace(g->forms[i], &pair, &is_sane)) {
            if (!is_sane)
                return invalid(pattern, "its braces do not match", e);
            i++;
            continue;
        }
        const int r = open_brace(g, i, pair, pattern, e);
        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- components ---- */

/* Without empty components and `.`, with `**` at the end meaning something below. */
static int tidy_components(char **form, size_t *ret_depth, const char *pattern, struct sp_err *e)
{
    auto_free char *old = *form;
    char *out = malloc(strlen(old) + 3);
    size_t len = 0;
    size_t depth = 0;
    bool is_last_any = false;

    *form = out;
    if (out == NULL)
        return no_memory(e);
    out[0] = 0;
    for (const char *p = old; *p != 0; p += strspn(p, "/")) {
        const size_t n = strcspn(p, "/");
        const struct sp_str name = {p, n};

        p += n;
        if (n == 0 || sp_str_eq(name, SP_STR(".")))
            continue;
        if (sp_str_eq(name, SP_STR("..")))
            return invalid(pattern, "`..` behind a wildcard", e);
        is_last_any = sp_str_eq(name, SP_STR("**"));
        if (len != 0)
            out[len++] = '/';
        memcpy(out + len, name.p, n);
        len += n;
        depth = is_last_any || depth == SIZE_MAX ? SIZE_MAX : depth + 1;
    }
    if (is_last_any) {
        out[len++] = '/';
        out[len++] = '*';
    }
    out[len] = 0;
    *ret_depth = depth;
    return 0;
}

static int tidy_forms(struct sp_glob *g, const char *pattern, struct sp_err *e)
{
    for (size_t i = 0; i < g->form_count; i++) {
        size_t depth = 0;
        const int r = tidy_components(&g->forms[i], &depth, pattern, e);

        if (r < 0)
            return r;
        if (depth > g->max_depth)
            g->max_depth = depth;
    }
    return 0;
}

/* ---- reading ---- */

static int read_forms(struct sp_glob *g, const char *rest, const char *pattern, struct sp_err *e)
{
    auto_free char *whole = strdup(rest);

    if (whole == NULL || !push_form(g, whole))
        return no_memory(e);
    whole = NULL;
    const int r = open_braces(g, pattern, e);
    return r < 0 ? r : tidy_forms(g, pattern, e);
}

int sp_glob_read(const char *pattern, struct sp_glob *ret, struct sp_err *e)
{
    auto_glob struct sp_glob g = {0};
    auto_buf struct sp_buf tidied = {0};

    if (pattern[0] != '/')
        return invalid(pattern, "it is not absolute", e);
    if (strlen(pattern) > SP_GLOB_MAX)
        return invalid(pattern, "it is too long", e);
    int r = tidy(pattern, &tidied, e);
    if (r < 0)
        return r;
    const char *rest = take_prefix(&g, tidied.data);
    if (rest == NULL)
        return no_memory(e);
    if (!g.is_literal)
        r = read_forms(&g, rest, pattern, e);
    if (r < 0)
        return r;
    *ret = g;
    g = (struct sp_glob){0};
    return 0;
}

/* ---- matching ---- */

bool sp_glob_matches_below(const struct sp_glob *g, const char *below)
{
    for (size_t i = 0; i < g->form_count; i++)
        if (*below != 0 && sp_glob_form_matches(g->forms[i], below))
            return true;
    return false;
}

static bool matches(const struct sp_glob *g, const char *path)
{
    if (g->prefix == NULL) /* none was read */
        return true;
    if (g->is_literal)
        return strcmp(g->prefix, path) == 0;
    if (!sp_path_is_in(path, g->prefix))
        return false;
    const char *below = path + strlen(g->prefix);
    below += *below == '/';
    return sp_glob_matches_below(g, below);
}

bool sp_glob_matches(const char *pattern, const char *path)
{
    auto_glob struct sp_glob g = {0};

    return sp_glob_read(pattern, &g, NULL) < 0 || matches(&g, path);
}

bool sp_glob_covers(const char *pattern, const char *path)
{
    auto_glob struct sp_glob g = {0};
    auto_free char *part = strdup(path);

    if (part == NULL || sp_glob_read(pattern, &g, NULL) < 0)
        return true;
    for (size_t n = strlen(part); n > 1; n--) {
        part[n] = 0;
        if (matches(&g, part))
            return true;
        while (part[n - 1] != '/')
            n--;
    }
    return matches(&g, "/");
}
