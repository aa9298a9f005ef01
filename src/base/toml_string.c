/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strings, in their four forms. What is read is never longer than what was written, so one block of
 * that size holds it.
 */
#include "base/toml_priv.h"

/* A string while it is read. */
struct string {
    char quote; /* " or ' */
    bool has_lines;
    char *out; /* the next byte goes here */
};

/* ---- escapes ---- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static char *add_utf8(char *out, uint32_t c)
{
    if (c < 0x80) {
        *out++ = (char)c;
        return out;
    }
    if (c < 0x800) {
        *out++ = (char)(0xC0 | c >> 6);
    } else {
        if (c < 0x10000) {
            *out++ = (char)(0xE0 | c >> 12);
        } else {
            *out++ = (char)(0xF0 | c >> 18);
            *out++ = (char)(0x80 | (c >> 12 & 0x3F));
        }
        *out++ = (char)(0x80 | (c >> 6 & 0x3F));
    }
    *out++ = (char)(0x80 | (c & 0x3F));
    return out;
}

/* \uXXXX or \UXXXXXXXX, its letter at p: at least as long as what it stands for. */
static bool read_code(struct sp_toml_reader *r, struct string *s)
{
    const char *at = r->p - 1;
    const int digits = *r->p == 'u' ? 4 : 8;
    uint32_t c = 0;

    r->p++;
    for (int i = 0; i < digits; i++, r->p++) {
        const int d = r->p == r->end ? -1 : hex_digit(*r->p);

        if (d < 0)
            return sp_toml_fail(r, at, "`\\%c` needs %d hexadecimal digits", at[1], digits);
        c = c << 4 | (uint32_t)d;
    }
    if (c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF))
        return sp_toml_fail(r, at, "U+%04X is not a character", c);
    s->out = add_utf8(s->out, c);
    return true;
}

/* The backslash at the end of a line takes all white space up to the next word with it. */
static bool skip_line_end(struct sp_toml_reader *r, const char *at)
{
    sp_toml_skip_blanks(r);
    if (!sp_toml_at_newline(r))
        return sp_toml_fail(r, at, "a backslash before blanks, but not at the end of a line");
    while (sp_toml_at_newline(r)) {
        sp_toml_skip_newline(r);
        sp_toml_skip_blanks(r);
    }
    return true;
}

/* The backslash is at p. */
static bool read_escape(struct sp_toml_reader *r, struct string *s)
{
    static const char letters[] = "btnfr\"\\";
    static const char bytes[] = "\b\t\n\f\r\"\\";
    const char *at = r->p++;
    const char c = r->p == r->end ? 0 : *r->p;
    const char *known = c == 0 ? NULL : strchr(letters, c);

    if (known != NULL) {
        *s->out++ = bytes[known - letters];
        r->p++;
        return true;
    }
    if (c == 'u' || c == 'U')
        return read_code(r, s);
    if (s->has_lines && (c == ' ' || c == '\t' || sp_toml_at_newline(r)))
        return skip_line_end(r, at);
    return sp_toml_fail(r, at, "unknown escape; a backslash itself is written `\\\\`");
}

/* ---- strings ---- */

/*
 * Quotes are at p. One closes a string of one line; three close the other kind, and up to two more
 * before them belong to it. *ret_ends: whether they did.
 */
static void read_quotes(struct sp_toml_reader *r, struct string *s, bool *ret_ends)
{
    size_t n = 0;

    while (n < (s->has_lines ? 5 : 1) && (size_t)(r->end - r->p) > n && r->p[n] == s->quote)
        n++;
    r->p += n;
    *ret_ends = !s->has_lines || n >= 3;
    const size_t own = *ret_ends ? n - (s->has_lines ? 3 : 1) : n;
    memset(s->out, s->quote, own);
    s->out += own;
}

/* One byte that is neither a quote nor an escape. */
static bool read_plain(struct sp_toml_reader *r, struct string *s)
{
    const unsigned char c = (unsigned char)*r->p;

    if (sp_toml_at_newline(r)) {
        if (!s->has_lines)
            return sp_toml_fail(r, r->p, "a string of one line does not end on it");
        sp_toml_skip_newline(r);
        *s->out++ = '\n';
        return true;
    }
    if ((c < ' ' && c != '\t') || c == 0x7F)
        return sp_toml_fail(r, r->p, "a control character in a string");
    *s->out++ = (char)c;
    r->p++;
    return true;
}

static bool read_content(struct sp_toml_reader *r, struct string *s, const char *first)
{
    bool ends = false;

    while (!ends) {
        bool is_good = true;

        if (r->p == r->end)
            return sp_toml_fail(r, first, "a string without an end");
        if (*r->p == s->quote)
            read_quotes(r, s, &ends);
        else if (*r->p == '\\' && s->quote == '"')
            is_good = read_escape(r, s);
        else
            is_good = read_plain(r, s);
        if (!is_good)
            return false;
    }
    return true;
}

/* The most bytes that a string can have whose content begins at `from`. */
static size_t longest(const struct sp_toml_reader *r, const struct string *s, const char *from)
{
    const char *p = from;

    while (p < r->end && (s->has_lines || *p != '\n')) {
        if (*p == '\\' && s->quote == '"' && r->end - p > 1)
            p++;
        else if (*p == s->quote &&
                 (!s->has_lines || (r->end - p >= 3 && p[1] == s->quote && p[2] == s->quote)))
            break;
        p++;
    }
    return (size_t)(p - from) + 2; /* the two quotes that may stand before the last three */
}

bool sp_toml_read_string(struct sp_toml_reader *r, bool allows_lines, struct sp_str *ret)
{
    const char *first = r->p;
    struct string s = {.quote = *r->p};

    s.has_lines = allows_lines && sp_toml_is_here(r, s.quote == '"' ? "\"\"\"" : "'''");
    r->p += s.has_lines ? 3 : 1;
    if (s.has_lines && sp_toml_at_newline(r))
        sp_toml_skip_newline(r); /* the one right behind the opening is not content */

    char *text = sp_arena_new(&r->doc->arena, longest(r, &s, r->p) + 1);
    if (text == NULL)
        return sp_toml_no_memory(r);
    s.out = text;
    if (!read_content(r, &s, first))
        return false;
    *ret = (struct sp_str){text, (size_t)(s.out - text)};
    return true;
}
