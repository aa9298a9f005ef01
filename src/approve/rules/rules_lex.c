/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The smallest things in a rule file: blanks, names, strings; and how a fault is told.
 *
 * The bytes are valid UTF-8 without NUL, and no pointer passes the end.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "approve/rules/rules_priv.h"

/* ---- faults ---- */

/* Columns are characters, not bytes. */
static void find_place(const struct sp_rules_reader *r, const char *at, size_t *line,
                       size_t *column)
{
    *line = 1;
    *column = 1;
    for (const char *p = r->text.p; p < at; p++) {
        if (*p == '\n') {
            ++*line;
            *column = 1;
        } else if (((unsigned char)*p & 0xC0) != 0x80) {
            ++*column;
        }
    }
}

bool sp_rules_fail(struct sp_rules_reader *r, const char *at, const char *fmt, ...)
{
    char text[sizeof r->e->msg];
    size_t line;
    size_t column;
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    find_place(r, at, &line, &column);
    struct sp_err e;
    (void)sp_fail(&e, SP_E_INVALID, 0, "%s:%zu:%zu: %s", r->name, line, column, text);
    if (r->faults++ == 0)
        *r->e = e;
    if (r->tell != NULL)
        r->tell(r->user, e.msg);
    return false;
}

bool sp_rules_no_memory(struct sp_rules_reader *r)
{
    r->faults++;
    (void)sp_fail(r->e, SP_E_SYSTEM, ENOMEM, "read the rules in %s", r->name);
    r->tell = NULL; /* no way to go on */
    return false;
}

static void *take_memory(struct sp_rules_reader *r, struct sp_arena *from, size_t count,
                         size_t size)
{
    if (count > (SP_RULES_MAX_MEMORY - r->memory) / size) {
        (void)sp_rules_fail(r, r->p, "the values of this file take more than %u MiB",
                            SP_RULES_MAX_MEMORY >> 20);
        r->tell = NULL; /* no way to go on */
        return NULL;
    }
    r->memory += count * size;
    void *p = sp_arena_new(from, count * size);
    if (p == NULL)
        (void)sp_rules_no_memory(r);
    return p;
}

void *sp_rules_memory(struct sp_rules_reader *r, size_t count, size_t size)
{
    return take_memory(r, &r->scratch, count, size);
}

void *sp_rules_part_memory(struct sp_rules_reader *r, size_t count, size_t size)
{
    return take_memory(r, &r->part->arena, count, size);
}

bool sp_rules_count_words(struct sp_rules_reader *r, const char *at, size_t n)
{
    if (n > SP_RULES_MAX_WORDS - r->words)
        return sp_rules_fail(r, at, "the rules and examples of this file have more than %u words",
                             SP_RULES_MAX_WORDS);
    r->words += (uint32_t)n;
    return true;
}

/* ---- blanks and names ---- */

bool sp_rules_at_end(const struct sp_rules_reader *r)
{
    return r->p == r->text.p + r->text.n;
}

static size_t left(const struct sp_rules_reader *r)
{
    return (size_t)(r->text.p + r->text.n - r->p);
}

static bool is_at(const struct sp_rules_reader *r, const char *s)
{
    const size_t n = strlen(s);

    return left(r) >= n && memcmp(r->p, s, n) == 0;
}

void sp_rules_skip_blanks(struct sp_rules_reader *r)
{
    while (!sp_rules_at_end(r)) {
        /* CR LF: the LF is the line's end. */
        if (*r->p == ' ' || *r->p == '\t' || (r->depth > 0 && *r->p == '\n') || is_at(r, "\r\n"))
            r->p++;
        else if (*r->p == '#')
            while (!sp_rules_at_end(r) && *r->p != '\n')
                r->p++;
        else
            return;
    }
}

static bool is_name_start(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

bool sp_rules_at_name(const struct sp_rules_reader *r)
{
    return !sp_rules_at_end(r) && is_name_start(*r->p);
}

bool sp_rules_read_name(struct sp_rules_reader *r, struct sp_str *ret)
{
    const char *from = r->p;

    while (!sp_rules_at_end(r) && (is_name_start(*r->p) || (*r->p >= '0' && *r->p <= '9')))
        r->p++;
    *ret = (struct sp_str){from, (size_t)(r->p - from)};
    return true;
}

/* ---- strings ---- */

/* A string while it is read. What is read is never longer than what was written. */
struct string {
    const char *from;
    char quote;
    bool is_raw, has_lines;
    char *out;
};

bool sp_rules_at_string(const struct sp_rules_reader *r)
{
    return is_at(r, "\"") || is_at(r, "'") || is_at(r, "r\"") || is_at(r, "r'");
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static void add_utf8(struct string *s, uint32_t c)
{
    if (c < 0x80) {
        *s->out++ = (char)c;
        return;
    }
    if (c < 0x800) {
        *s->out++ = (char)(0xC0 | c >> 6);
    } else {
        if (c < 0x10000) {
            *s->out++ = (char)(0xE0 | c >> 12);
        } else {
            *s->out++ = (char)(0xF0 | c >> 18);
            *s->out++ = (char)(0x80 | (c >> 12 & 0x3F));
        }
        *s->out++ = (char)(0x80 | (c >> 6 & 0x3F));
    }
    *s->out++ = (char)(0x80 | (c & 0x3F));
}

/* \xHH, \uXXXX or \UXXXXXXXX: its letter is at p. Each is a character, and at least as long as its
 * bytes. */
static bool read_code(struct sp_rules_reader *r, struct string *s)
{
    const char *at = r->p;
    const int digits = *r->p == 'x' ? 2 : *r->p == 'u' ? 4 : 8;
    uint32_t c = 0;

    r->p++;
    for (int i = 0; i < digits; i++, r->p++) {
        const int d = sp_rules_at_end(r) ? -1 : hex_digit(*r->p);

        if (d < 0)
            return sp_rules_fail(r, at,
                                 "invalid string escape sequence: `\\%c` needs %d "
                                 "hexadecimal digits",
                                 *at, digits);
        c = c << 4 | (uint32_t)d;
    }
    if (c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF))
        return sp_rules_fail(r, at, "invalid string escape sequence `%.*s`: not a character",
                             digits + 1, at);
    add_utf8(s, c);
    return true;
}

static bool is_octal_behind(const struct sp_rules_reader *r)
{
    return left(r) > 1 && r->p[1] >= '0' && r->p[1] <= '7';
}

/* The backslash is at p, and something behind it. */
static bool read_escape(struct sp_rules_reader *r, struct string *s)
{
    static const char letters[] = "\\\"'nrtbfva";
    static const char bytes[] = "\\\"'\n\r\t\b\f\v\a";
    const char c = *++r->p;
    const char *known = strchr(letters, c);

    if (known != NULL) {
        *s->out++ = bytes[known - letters];
        r->p++;
        return true;
    }
    if (c == '\n' || is_at(r, "\r\n")) {
        r->p += c == '\n' ? 1 : 2;
        return true;
    }
    if (c == 'x' || c == 'u' || c == 'U')
        return read_code(r, s);
    if (c == '0' && !is_octal_behind(r)) {
        *s->out++ = 0;
        r->p++;
        return true;
    }
    return sp_rules_fail(r, r->p,
                         "unsupported string escape; a backslash itself is written `\\\\`");
}

/* A raw string's backslash takes a quote with it, and is gone then; before all else it stays. */
static void read_raw_escape(struct sp_rules_reader *r, struct string *s)
{
    if (r->p[1] != s->quote)
        *s->out++ = '\\';
    r->p++;
    if (*r->p != '\r')
        *s->out++ = *r->p;
    r->p++;
}

static bool is_closed_here(const struct sp_rules_reader *r, const struct string *s)
{
    return *r->p == s->quote &&
           (!s->has_lines || (left(r) >= 3 && r->p[1] == s->quote && r->p[2] == s->quote));
}

static bool read_content(struct sp_rules_reader *r, struct string *s)
{
    while (!sp_rules_at_end(r) && !is_closed_here(r, s)) {
        if (*r->p == '\n' && !s->has_lines)
            break;
        if (*r->p == '\\' && left(r) > 1) {
            if (s->is_raw)
                read_raw_escape(r, s);
            else if (!read_escape(r, s))
                return false;
            continue;
        }
        if (*r->p != '\r') /* a line's end is LF, whoever wrote it */
            *s->out++ = *r->p;
        r->p++;
    }
    if (sp_rules_at_end(r) || *r->p == '\n')
        return sp_rules_fail(r, s->from, "unfinished string literal");
    r->p += s->has_lines ? 3 : 1;
    return true;
}

/* The most bytes that the string can have: up to the next quote that may end it. */
static size_t longest(const struct sp_rules_reader *r, const struct string *s)
{
    const char *end = r->text.p + r->text.n;
    const char *p = r->p;

    while (p < end && (s->has_lines || *p != '\n')) {
        if (*p == '\\' && end - p > 1)
            p += end - p > 2 && p[1] == '\r' ? 2 : 1;
        else if (*p == s->quote &&
                 (!s->has_lines || (end - p >= 3 && p[1] == s->quote && p[2] == s->quote)))
            break;
        p++;
    }
    return (size_t)(p - r->p);
}

bool sp_rules_read_string(struct sp_rules_reader *r, struct sp_str *ret)
{
    struct string s = {.from = r->p, .is_raw = *r->p == 'r'};

    r->p += s.is_raw;
    s.quote = *r->p;
    s.has_lines = is_at(r, s.quote == '"' ? "\"\"\"" : "'''");
    r->p += s.has_lines ? 3 : 1;
    char *text = sp_rules_memory(r, longest(r, &s) + 1, 1);
    if (text == NULL)
        return false;
    s.out = text;
    if (!read_content(r, &s))
        return false;
    *ret = (struct sp_str){text, (size_t)(s.out - text)};
    return true;
}
