/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/glob_match.h"

#include <stdint.h>
#include <string.h>

#include "base/str.h"
#include "base/utf8.h"

/* ---- characters ---- */

#define NO_CHARACTER 0x110000 /* + the byte: what is not UTF-8 stands for itself */

/* The character at *p, which is moved behind it; p < end. */
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

size_t sp_glob_class_length(const char *text)
{
    size_t n = 1;

    if (text[n] == '!' || text[n] == '^')
        n++;
    if (text[n] == ']') /* the first is one of the characters */
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

/* The next range of a class; a single character is one from itself to itself. */
static void next_range(const char **p, const char *end, uint32_t *ret_low, uint32_t *ret_high)
{
    *ret_low = class_character(p, end);
    *ret_high = *ret_low;
    if (end - *p >= 2 && **p == '-') {
        (*p)++;
        *ret_high = class_character(p, end);
    }
}

bool sp_glob_class_is_sane(const char *text, size_t n)
{
    const char *p = text + 1 + (text[1] == '!' || text[1] == '^');

    while (p < text + n - 1) {
        uint32_t low;
        uint32_t high;

        next_range(&p, text + n - 1, &low, &high);
        if (low > high)
            return false;
    }
    return true;
}

static bool class_has(const char *text, size_t n, uint32_t c)
{
    const bool is_negated = text[1] == '!' || text[1] == '^';
    const char *p = text + 1 + is_negated;
    bool is_in = false;

    while (p < text + n - 1) {
        uint32_t low;
        uint32_t high;

        next_range(&p, text + n - 1, &low, &high);
        is_in |= low <= c && c <= high;
    }
    return is_in != is_negated;
}

/* ---- one component ---- */

/* Whether the one character at *name is what *form asks for, which is no star; moves both. */
static bool match_one(const char **form, const char *form_end, const char **name,
                      const char *name_end)
{
    const uint32_t c = next_character(name, name_end);
    const size_t n = **form == '[' ? sp_glob_class_length(*form) : 0;

    if (n != 0) {
        const char *class = *form;

        *form += n;
        return class_has(class, n, c);
    }
    if (**form == '?') {
        (*form)++;
        return true;
    }
    if (**form == '\\' && *form + 1 < form_end)
        (*form)++;
    return next_character(form, form_end) == c;
}

/* A star that turns out too short takes one character more; earlier stars need not be asked again,
 * for what lies between two is the same wherever it begins. */
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

static bool is_any_depth(const char *form)
{
    return form[0] == '*' && form[1] == '*' && (form[2] == '/' || form[2] == 0);
}

/* The same way of going back, a component at a time. */
bool sp_glob_form_matches(const char *form, const char *path)
{
    const char *after_stars = NULL;
    const char *taken = NULL;

    while (*path != 0 || *form != 0) {
        if (is_any_depth(form)) {
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
