/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matching goes first, one pattern without braces against one path; then reading a pattern into
 * such forms.
 */
#include "sandbox/glob.h"

#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/buf.h"
#include "base/grow.h"
#include "base/str.h"
#include "base/utf8.h"
#include "sandbox/resolve.h"

/* ---- characters ---- */

#define NO_CHARACTER 0x110000 /* + the byte: what is not UTF-8 stands for itself */

/* Returns the character at *p and advances *p; *p < end. */
static uint32_t next_character(const char **p, const char *end)
{
    static const unsigned char lead_mask[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    const unsigned char *at = (const unsigned char *)*p;
    const size_t n = *at < 0x80 ? 1 : *at < 0xE0 ? 2 : *at < 0xF0 ? 3 : 4;

    if (n == 1 || n > (size_t)(end - *p) || !sp_utf8_is_valid((struct sp_str){*p, n})) {
        *p += 1;
        return n == 1 ? *at : NO_CHARACTER + *at;
    }
    uint32_t c = *at & lead_mask[n];
    for (size_t i = 1; i < n; i++)
        c = c << 6 | (at[i] & 0x3F);
    *p += n;
    return c;
}

/* ---- classes ---- */

/* The length of the class at `text`, from [ to ], within one component; 0: not closed. */
static size_t class_length(const char *text)
{
    size_t n = 1;

    if (text[n] == '!' || text[n] == '^')
        n++;
    if (text[n] == ']') /* a leading ] is a member */
        n++;
    for (; text[n] != 0 && text[n] != '/'; n++) {
        if (text[n] == ']')
            return n + 1;
        if (text[n] == '\\' && text[n + 1] != 0 && text[n + 1] != '/')
            n++;
    }
    return 0;
}

static uint32_t class_character(const char **p, const char *end)
{
    if (**p == '\\' && *p + 1 < end)
        (*p)++;
    return next_character(p, end);
}

/* The next range of a class; a single character is a range of one. */
static void next_range(const char **p, const char *end, uint32_t *ret_low, uint32_t *ret_high)
{
    *ret_low = class_character(p, end);
    *ret_high = *ret_low;
    if (end - *p >= 2 && **p == '-') {
        (*p)++;
        *ret_high = class_character(p, end);
    }
}

/* Whether the class has c; *ret_is_sane (may be NULL) becomes false if a range runs backwards. */
static bool class_has(const char *text, size_t n, uint32_t c, bool *ret_is_sane)
{
    const bool is_negated = text[1] == '!' || text[1] == '^';
    const char *p = text + 1 + is_negated;
    bool is_in = false;

    while (p < text + n - 1) {
        uint32_t low;
        uint32_t high;

        next_range(&p, text + n - 1, &low, &high);
        is_in |= low <= c && c <= high;
        if (low > high && ret_is_sane != NULL)
            *ret_is_sane = false;
    }
    return is_in != is_negated;
}

/* ---- one component ---- */

/* Matches one character at *name against *form, which is not a star; advances both. */
static bool match_one(const char **form, const char *form_end, const char **name,
                      const char *name_end)
{
    const uint32_t c = next_character(name, name_end);
    const size_t n = **form == '[' ? class_length(*form) : 0;

    if (n != 0) {
        const char *class = *form;

        *form += n;
        return class_has(class, n, c, NULL);
    }
    if (**form == '?') {
        (*form)++;
        return true;
    }
    if (**form == '\\' && *form + 1 < form_end)
        (*form)++;
    return next_character(form, form_end) == c;
}

/* On a mismatch the latest star takes one more character. Earlier stars need no retry: the literal
 * text between two stars has matched at its earliest place. */
static bool component_matches(const char *form, const char *form_end, const char *name,
                              const char *name_end)
{
    const char *after_star = NULL;
    const char *taken = NULL;

    while (name < name_end || form < form_end) {
        if (form < form_end && *form == '*') {
            after_star = ++form;
            taken = name;
            continue;
        }
        if (form < form_end && name < name_end && match_one(&form, form_end, &name, name_end))
            continue;
        if (after_star == NULL || taken == name_end)
            return false;
        (void)next_character(&taken, name_end);
        form = after_star;
        name = taken;
    }
    return true;
}

/* ---- components ---- */

static const char *component_end(const char *p)
{
    return strchrnul(p, '/');
}

static const char *next_component(const char *end)
{
    return *end == '/' ? end + 1 : end;
}

/* Matches one form against a path, both relative. `**` backtracks as a star does, a component at a
 * time. */
static bool form_matches(const char *form, const char *path)
{
    const char *after_stars = NULL;
    const char *taken = NULL;

    while (*path != 0 || *form != 0) {
        if (form[0] == '*' && form[1] == '*' && (form[2] == '/' || form[2] == 0)) {
            form = next_component(component_end(form));
            after_stars = form;
            taken = path;
            continue;
        }
        const char *form_end = component_end(form);
        const char *end = component_end(path);
        if (*form != 0 && *path != 0 && component_matches(form, form_end, path, end)) {
            form = next_component(form_end);
            path = next_component(end);
            continue;
        }
        if (after_stars == NULL || *taken == 0)
            return false;
        taken = next_component(component_end(taken));
        form = after_stars;
        path = taken;
    }
    return true;
}

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

/* Copies one item of the pattern: an escaped character, a class, or a byte. An unclosed [ is
 * escaped, so that the expansion of braces cannot close it. */
static bool copy_item(struct sp_buf *out, const char **p, bool *ret_is_sane)
{
    const char *at = *p;

    if (*at == '\\' && at[1] == '/') { /* an escaped slash is a slash */
        *p += 1;
        return true;
    }
    if (*at == '\\') {
        *p += at[1] == 0 ? 1 : 2;
        return sp_buf_add(out, at[1] == 0 ? "\\\\" : at, 2);
    }
    if (*at == '[') {
        const size_t n = class_length(at);

        *p += n == 0 ? 1 : n;
        if (n == 0)
            return sp_buf_add(out, "\\[", 2);
        (void)class_has(at, n, 0, ret_is_sane);
        return sp_buf_add(out, at, n);
    }
    *p += 1;
    return sp_buf_add(out, at, 1);
}

/* The length of the item at p, in a text of copy_item: every [ is closed. */
static size_t item_length(const char *p)
{
    if (*p == '[')
        return class_length(p);
    return *p == '\\' ? 2 : 1;
}

/* ---- the literal directory ---- */

/* Sets prefix, the directories before the first wildcard without escapes, and returns the rest of
 * the pattern; NULL: no memory. */
static const char *take_prefix(struct sp_glob *g, const char *tidied)
{
    const char *end = tidied;
    size_t len = 0;

    while (*end != 0 && strchr("*?[{}", *end) == NULL)
        end += item_length(end);
    g->is_literal = *end == 0;
    while (!g->is_literal && end > tidied + 1 && end[-1] != '/')
        end--;
    auto_free char *literal = malloc((size_t)(end - tidied) + 1);
    if (literal == NULL)
        return NULL;
    for (const char *p = tidied; p < end; p++) {
        if (*p == '\\')
            p++;
        literal[len++] = *p;
    }
    literal[len] = 0;
    g->prefix = sp_path_normalise(literal, NULL);
    return g->prefix == NULL ? NULL : end;
}

/* ---- braces ---- */

struct brace {
    const char *open, *close;
};

/* The first outermost pair. false: there is none, or (*ret_is_sane false) braces are unbalanced. */
static bool find_brace(const char *text, struct brace *ret, bool *ret_is_sane)
{
    size_t depth = 0;

    *ret_is_sane = false;
    for (const char *p = text; *p != 0; p += item_length(p)) {
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

/* The end of the alternative at p: a comma outside of inner pairs, or close. */
static const char *alternative_end(const char *p, const char *close)
{
    size_t depth = 0;

    for (; p < close; p += item_length(p)) {
        if (*p == ',' && depth == 0)
            return p;
        depth += *p == '{';
        depth -= *p == '}';
    }
    return close;
}

static bool push_form(struct sp_glob *g, char *form)
{
    if (!SP_GROW(g->forms, g->form_count, g->form_cap))
        return false;
    g->forms[g->form_count++] = form;
    return true;
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
        /* Replaces the form by one form for each alternative of the pair. */
        const char *form = g->forms[i];
        const char *end = pair.open;
        while (end != pair.close) {
            const char *begin = end + 1;
            char *one = NULL;

            end = alternative_end(begin, pair.close);
            if (g->form_count > SP_GLOB_FORMS) /* not >=: the count includes form */
                return invalid(pattern, "its braces stand for too many patterns", e);
            if (asprintf(&one, "%.*s%.*s%s", (int)(pair.open - form), form, (int)(end - begin),
                         begin, pair.close + 1) < 0)
                return no_memory(e);
            if (!push_form(g, one)) {
                free(one);
                return no_memory(e);
            }
        }
        free(g->forms[i]);
        g->forms[i] = g->forms[--g->form_count];
    }
    return 0;
}

/* ---- components ---- */

/* Removes empty components and `.`; a final `**` becomes `**` and `*`: at least one component. */
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

/* ---- reading ---- */

int sp_glob_read(const char *pattern, struct sp_glob *ret, struct sp_err *e)
{
    auto_glob struct sp_glob g = {0};
    auto_buf struct sp_buf tidied = {0};

    if (pattern[0] != '/')
        return invalid(pattern, "it is not absolute", e);
    if (strlen(pattern) > SP_GLOB_MAX)
        return invalid(pattern, "it is too long", e);
    bool is_sane = true;
    for (const char *p = pattern; *p != 0;)
        if (!copy_item(&tidied, &p, &is_sane))
            return no_memory(e);
    if (!sp_buf_add(&tidied, "", 1))
        return no_memory(e);
    if (!is_sane)
        return invalid(pattern, "a range runs backwards", e);
    const char *rest = take_prefix(&g, tidied.data);
    if (rest == NULL)
        return no_memory(e);
    if (!g.is_literal) {
        auto_free char *whole = strdup(rest);

        if (whole == NULL || !push_form(&g, whole))
            return no_memory(e);
        whole = NULL; /* owned by g */
        int r = open_braces(&g, pattern, e);
        for (size_t i = 0; r == 0 && i < g.form_count; i++) {
            size_t depth = 0;

            r = tidy_components(&g.forms[i], &depth, pattern, e);
            if (depth > g.max_depth)
                g.max_depth = depth;
        }
        if (r < 0)
            return r;
    }
    *ret = TAKE_STRUCT(g);
    return 0;
}

/* ---- matching ---- */

bool sp_glob_matches_below(const struct sp_glob *g, const char *below)
{
    for (size_t i = 0; i < g->form_count; i++)
        if (*below != 0 && form_matches(g->forms[i], below))
            return true;
    return false;
}

bool sp_glob_matches_path(const struct sp_glob *g, const char *path)
{
    assert(g->prefix != NULL);
    if (g->is_literal)
        return strcmp(g->prefix, path) == 0;
    if (!sp_path_is_in(path, g->prefix))
        return false;
    const char *below = path + strlen(g->prefix);
    below += *below == '/';
    return sp_glob_matches_below(g, below);
}

bool sp_glob_covers(const char *pattern, const char *path)
{
    auto_glob struct sp_glob g = {0};
    auto_free char *part = strdup(path);

    if (part == NULL || sp_glob_read(pattern, &g, NULL) < 0)
        return true;
    for (size_t n = strlen(part); n > 1; n--) {
        part[n] = 0;
        if (sp_glob_matches_path(&g, part))
            return true;
        while (part[n - 1] != '/')
            n--;
    }
    return sp_glob_matches_path(&g, "/");
}
