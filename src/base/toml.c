/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reader: lines, headers, keys, values and strings, numbers and dates; and the tree that it
 * makes. Reading functions return false after they have filled *r->e.
 *
 * A key is defined once. Which later lines may still add to a table follows from how the table came
 * to be (BY_*).
 */
#include "base/toml.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/auto.h"
#include "base/hash.h"
#include "base/utf8.h"

#define FIRST_SLOTS 64 /* a power of two, as all sizes of the index */
#define SHOWN_BYTES 60 /* of a key in a message */

/* How a table or array came to be, which decides what later lines may add to it. */
enum {
    BY_PASSING, /* [a] of a header [a.b]: a header may still define it */
    BY_HEADER,
    BY_DOTS,  /* by a dotted key: dotted keys of the same section may add to it */
    BY_VALUE, /* inline: closed */
};

struct reader {
    struct sp_toml *doc;
    const char *p, *end;          /* the rest of the text */
    struct sp_toml_value **slots; /* hash index: (table, key) to value */
    uint32_t slot_count, keyed;
    uint32_t values, section; /* a section: from one header to the next */
    struct sp_err *e;
};

/* ---- messages ---- */

static int refuse(const struct sp_toml *doc, size_t at, struct sp_err *e, const char *fmt,
                  va_list args)
{
    char story[sizeof e->msg];
    uint32_t line = 1;
    uint32_t column = 1; /* in characters, not bytes */

    (void)vsnprintf(story, sizeof story, fmt, args);
    /* Names are cut to fit; half a character becomes question marks. */
    for (size_t n; story[n = sp_utf8_valid_prefix(sp_str_of(story))] != 0;)
        story[n] = '?';
    if (doc->has_no_places)
        return sp_fail(e, SP_E_INVALID, 0, "%s: %s", doc->name, story);
    for (size_t i = 0; i < at && i < doc->text.n; i++) {
        if (doc->text.p[i] == '\n') {
            line++;
            column = 1;
        } else if (((unsigned char)doc->text.p[i] & 0xC0) != 0x80) {
            column++;
        }
    }
    return sp_fail(e, SP_E_INVALID, 0, "%s: line %u, column %u: %s", doc->name, line, column,
                   story);
}

SP_PRINTF(3, 4)
static bool fail(struct reader *r, const char *at, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    (void)refuse(r->doc, (size_t)(at - r->doc->text.p), r->e, fmt, args);
    va_end(args);
    return false;
}

static bool no_memory(struct reader *r)
{
    (void)sp_fail(r->e, SP_E_SYSTEM, ENOMEM, "read %s", r->doc->name);
    return false;
}

int sp_toml_refuse(const struct sp_toml_value *v, struct sp_err *e, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    const int r = refuse(v->doc, v->at, e, fmt, args);
    va_end(args);
    return r;
}

int sp_toml_refuse_key(const struct sp_toml_value *v, struct sp_err *e, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    const int r = refuse(v->doc, v->key_at, e, fmt, args);
    va_end(args);
    return r;
}

const char *sp_toml_type_name(enum sp_toml_type type)
{
    static const char *const names[] = {
        [SP_TOML_STRING] = "a string",
        [SP_TOML_INTEGER] = "an integer",
        [SP_TOML_FLOAT] = "a float",
        [SP_TOML_BOOLEAN] = "a boolean",
        [SP_TOML_OFFSET_DATE_TIME] = "a date and time",
        [SP_TOML_LOCAL_DATE_TIME] = "a date and time",
        [SP_TOML_LOCAL_DATE] = "a date",
        [SP_TOML_LOCAL_TIME] = "a time",
        [SP_TOML_ARRAY] = "an array",
        [SP_TOML_TABLE] = "a table",
    };

    return names[type];
}

/* ---- the tree ---- */

static void append_child(struct sp_toml_value *parent, struct sp_toml_value *v)
{
    v->next = NULL;
    if (parent->last == NULL)
        parent->first = v;
    else
        parent->last->next = v;
    parent->last = v;
    parent->count++;
}

struct sp_toml_value *sp_toml_get(const struct sp_toml_value *table, struct sp_str key)
{
    for (struct sp_toml_value *v = table->first; v != NULL; v = v->next)
        if (sp_str_eq(v->key, key))
            return v;
    return NULL;
}

void sp_toml_merge(struct sp_toml_value *table, struct sp_toml_value *over)
{
    struct sp_toml_value *next;

    for (struct sp_toml_value *v = over->first; v != NULL; v = next) {
        struct sp_toml_value *old = sp_toml_get(table, v->key);

        next = v->next;
        if (old == NULL) {
            append_child(table, v);
        } else if (old->type == SP_TOML_TABLE && v->type == SP_TOML_TABLE) {
            sp_toml_merge(old, v);
        } else { /* takes the place of old */
            struct sp_toml_value **link = &table->first;

            while (*link != old)
                link = &(*link)->next;
            v->next = old->next;
            *link = v;
            if (table->last == old)
                table->last = v;
        }
    }
    over->first = over->last = NULL;
    over->count = 0;
}

/* ---- the index of keys ---- */

/* The slot of this key of this table, or the free slot where it belongs. */
static struct sp_toml_value **slot_of(struct sp_toml_value **slots, uint32_t count,
                                      const struct sp_toml_value *table, struct sp_str key)
{
    const struct sp_hash of_key = sp_hash(key);
    const uint64_t of_table = (uint64_t)(uintptr_t)table * UINT64_C(0x9E3779B97F4A7C15);
    uint32_t i = (uint32_t)((of_key.a ^ of_table >> 17) & (count - 1));

    while (slots[i] != NULL && (slots[i]->parent != table || !sp_str_eq(slots[i]->key, key)))
        i = (i + 1) & (count - 1);
    return &slots[i];
}

static bool grow_index(struct reader *r)
{
    const uint32_t count = r->slot_count == 0 ? FIRST_SLOTS : r->slot_count * 2;
    struct sp_toml_value **slots = calloc(count, sizeof(struct sp_toml_value *));

    if (slots == NULL)
        return no_memory(r);
    for (uint32_t i = 0; i < r->slot_count; i++)
        if (r->slots[i] != NULL)
            *slot_of(slots, count, r->slots[i]->parent, r->slots[i]->key) = r->slots[i];
    free(r->slots);
    r->slots = slots;
    r->slot_count = count;
    return true;
}

static struct sp_toml_value *find_value(const struct reader *r, const struct sp_toml_value *table,
                                        struct sp_str key)
{
    return r->slot_count == 0 ? NULL : *slot_of(r->slots, r->slot_count, table, key);
}

/* Appends a child without a type yet; key.p is NULL in an array. NULL: refused. */
static struct sp_toml_value *add_value(struct reader *r, struct sp_toml_value *parent,
                                       struct sp_str key, const char *key_at)
{
    if (r->values == SP_TOML_MAX_VALUES) {
        (void)fail(r, key_at, "more than %d values", SP_TOML_MAX_VALUES);
        return NULL;
    }
    struct sp_toml_value *v = sp_arena_new(&r->doc->arena, sizeof *v);
    if (v == NULL) {
        (void)no_memory(r);
        return NULL;
    }
    v->doc = r->doc;
    v->key = key;
    v->at = v->key_at = (uint32_t)(key_at - r->doc->text.p);
    v->parent = parent;
    v->depth = parent->depth + 1;
    if (key.p != NULL) {
        if (r->keyed >= r->slot_count / 2 && !grow_index(r))
            return NULL;
        *slot_of(r->slots, r->slot_count, parent, key) = v;
        r->keyed++;
    }
    append_child(parent, v);
    r->values++;
    return v;
}

/* Makes v an array or a table, if that is not too deep. */
static bool make_container(struct reader *r, struct sp_toml_value *v, enum sp_toml_type type,
                           uint8_t made)
{
    if (v->depth > SP_TOML_MAX_DEPTH)
        return fail(r, r->doc->text.p + v->at, "more than %d tables and arrays deep",
                    SP_TOML_MAX_DEPTH);
    v->type = type;
    v->made = made;
    v->section = r->section;
    return true;
}

/* ---- white space ---- */

static void skip_blanks(struct reader *r)
{
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\t'))
        r->p++;
}

static bool is_here(const struct reader *r, const char *text)
{
    const size_t n = strlen(text);

    return (size_t)(r->end - r->p) >= n && memcmp(r->p, text, n) == 0;
}

static bool is_at_newline(const struct reader *r)
{
    return is_here(r, "\n") || is_here(r, "\r\n");
}

static void skip_newline(struct reader *r)
{
    r->p += *r->p == '\r' ? 2 : 1;
}

static bool skip_comment(struct reader *r)
{
    if (r->p == r->end || *r->p != '#')
        return true;
    while (r->p < r->end && !is_at_newline(r)) {
        const unsigned char c = (unsigned char)*r->p;

        if ((c < ' ' && c != '\t') || c == 0x7F)
            return fail(r, r->p, "a control character in a comment");
        r->p++;
    }
    return true;
}

static bool end_line(struct reader *r, const char *after)
{
    skip_blanks(r);
    if (!skip_comment(r))
        return false;
    if (r->p == r->end)
        return true;
    if (!is_at_newline(r))
        return fail(r, r->p, "expected the end of the line after %s", after);
    skip_newline(r);
    return true;
}

/* ---- strings ---- */

/* A string while it is read. Content is never longer than its source, so one block of that size
 * holds it. */
struct string {
    char quote; /* " or ' */
    bool has_lines;
    char *out; /* end of the content so far */
};

/* \uXXXX or \UXXXXXXXX, with r->p at its letter. */
static bool read_code(struct reader *r, struct string *s)
{
    const char *at = r->p - 1;
    const int digits = *r->p == 'u' ? 4 : 8;
    uint32_t c = 0;

    r->p++;
    for (int i = 0; i < digits; i++, r->p++) {
        const int d = r->p == r->end ? -1 : sp_hex_digit(*r->p);

        if (d < 0)
            return fail(r, at, "`\\%c` needs %d hexadecimal digits", at[1], digits);
        c = c << 4 | (uint32_t)d;
    }
    if (c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF))
        return fail(r, at, "U+%04X is not a character", c);
    s->out += sp_utf8_encode(c, s->out);
    return true;
}

/* The backslash is at p. */
static bool read_escape(struct reader *r, struct string *s)
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
    if (s->has_lines && (c == ' ' || c == '\t' || is_at_newline(r))) {
        /* At the end of a line: skips all white space up to the next word. */
        skip_blanks(r);
        if (!is_at_newline(r))
            return fail(r, at, "a backslash before blanks, but not at the end of a line");
        while (is_at_newline(r)) {
            skip_newline(r);
            skip_blanks(r);
        }
        return true;
    }
    return fail(r, at, "unknown escape; a backslash itself is written `\\\\`");
}

/* Content up to and with the closing quotes; `first` is where the opening ones are. */
static bool read_content(struct reader *r, struct string *s, const char *first)
{
    for (;;) {
        if (r->p == r->end)
            return fail(r, first, "a string without an end");
        const unsigned char c = (unsigned char)*r->p;

        if (c == (unsigned char)s->quote) {
            /* One quote closes a string of one line. Three close the other kind, and up to two
             * more before these three are content. */
            const size_t closing = s->has_lines ? 3 : 1;
            const size_t most = s->has_lines ? 5 : 1;
            size_t n = 0;

            while (n < most && (size_t)(r->end - r->p) > n && r->p[n] == s->quote)
                n++;
            r->p += n;
            const size_t content = n >= closing ? n - closing : n;
            memset(s->out, s->quote, content);
            s->out += content;
            if (n >= closing)
                return true;
        } else if (c == '\\' && s->quote == '"') {
            if (!read_escape(r, s))
                return false;
        } else if (is_at_newline(r)) {
            if (!s->has_lines)
                return fail(r, r->p, "a string of one line does not end on it");
            skip_newline(r);
            *s->out++ = '\n';
        } else if ((c < ' ' && c != '\t') || c == 0x7F) {
            return fail(r, r->p, "a control character in a string");
        } else {
            *s->out++ = (char)c;
            r->p++;
        }
    }
}

static bool read_string(struct reader *r, bool allows_lines, struct sp_str *ret)
{
    const char *first = r->p;
    struct string s = {.quote = *r->p};

    s.has_lines = allows_lines && is_here(r, s.quote == '"' ? "\"\"\"" : "'''");
    r->p += s.has_lines ? 3 : 1;
    if (s.has_lines && is_at_newline(r))
        skip_newline(r); /* a line end right behind the opening quotes is not content */

    /* An upper bound for the content: up to the closing quotes, and the two quotes that may stand
     * before the last three. */
    const char *p = r->p;
    while (p < r->end && (s.has_lines || *p != '\n')) {
        if (*p == '\\' && s.quote == '"' && r->end - p > 1)
            p++;
        else if (*p == s.quote &&
                 (!s.has_lines || (r->end - p >= 3 && p[1] == s.quote && p[2] == s.quote)))
            break;
        p++;
    }
    char *text = sp_arena_new(&r->doc->arena, (size_t)(p - r->p) + 2 + 1);
    if (text == NULL)
        return no_memory(r);
    s.out = text;
    if (!read_content(r, &s, first))
        return false;
    *ret = (struct sp_str){text, (size_t)(s.out - text)};
    return true;
}

/* ---- keys ---- */

static bool is_bare(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
}

static bool read_key_part(struct reader *r, struct sp_str *ret, const char **ret_at)
{
    skip_blanks(r);
    *ret_at = r->p;
    if (r->p < r->end && (*r->p == '"' || *r->p == '\''))
        return read_string(r, false, ret);
    while (r->p < r->end && is_bare(*r->p))
        r->p++;
    if (r->p == *ret_at)
        return fail(r, r->p, "expected a key");
    return sp_arena_str(&r->doc->arena, (struct sp_str){*ret_at, (size_t)(r->p - *ret_at)}, ret) ||
           no_memory(r);
}

/* Whether another part follows; steps over the dot. */
static bool skip_dot(struct reader *r)
{
    skip_blanks(r);
    if (r->p == r->end || *r->p != '.')
        return false;
    r->p++;
    return true;
}

static bool refuse_again(struct reader *r, const char *at, struct sp_str key, const char *rest)
{
    const int shown = key.n > SHOWN_BYTES ? SHOWN_BYTES : (int)key.n;

    return fail(r, at, "`%.*s` is defined already%s", shown, key.p, rest);
}

/* ---- dates and times ---- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The value of `count` digits at p + off; -1: not all of these are digits. */
static int digits_at(const struct reader *r, size_t off, size_t count)
{
    int v = 0;

    if ((size_t)(r->end - r->p) < off + count)
        return -1;
    for (size_t i = off; i < off + count; i++) {
        if (!is_digit(r->p[i]))
            return -1;
        v = v * 10 + (r->p[i] - '0');
    }
    return v;
}

static bool has_at(const struct reader *r, size_t off, char c)
{
    return (size_t)(r->end - r->p) > off && r->p[off] == c;
}

static int days_of(int year, int month)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    const bool is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);

    return month == 2 && is_leap ? 29 : days[month - 1];
}

static bool read_day(struct reader *r)
{
    const int year = digits_at(r, 0, 4);
    const int month = digits_at(r, 5, 2);
    const int day = digits_at(r, 8, 2);

    if (month < 0 || day < 0 || !has_at(r, 7, '-'))
        return fail(r, r->p, "a date is written YYYY-MM-DD");
    if (year < 1 || month < 1 || month > 12 || day < 1 || day > days_of(year, month))
        return fail(r, r->p, "there is no such date");
    r->p += 10;
    return true;
}

static bool read_time(struct reader *r)
{
    const int hour = digits_at(r, 0, 2);
    const int minute = digits_at(r, 3, 2);
    const int second = digits_at(r, 6, 2);

    if (hour < 0 || minute < 0 || second < 0 || !has_at(r, 2, ':') || !has_at(r, 5, ':'))
        return fail(r, r->p, "a time is written HH:MM:SS");
    if (hour > 23 || minute > 59 || second > 59)
        return fail(r, r->p, "there is no such time");
    r->p += 8;
    if (has_at(r, 0, '.')) {
        if (digits_at(r, 1, 1) < 0)
            return fail(r, r->p, "expected digits after the point");
        r->p++;
        while (r->p < r->end && is_digit(*r->p))
            r->p++;
    }
    return true;
}

static bool read_offset(struct reader *r, bool *ret_has)
{
    if (has_at(r, 0, 'Z') || has_at(r, 0, 'z')) {
        *ret_has = true;
        r->p++;
        return true;
    }
    if (!has_at(r, 0, '+') && !has_at(r, 0, '-'))
        return true;
    const int hour = digits_at(r, 1, 2);
    const int minute = digits_at(r, 4, 2);
    if (hour < 0 || hour > 23 || minute < 0 || minute > 59 || !has_at(r, 3, ':'))
        return fail(r, r->p, "the offset of a time is written +HH:MM, -HH:MM or Z");
    *ret_has = true;
    r->p += 6;
    return true;
}

static bool read_date_time(struct reader *r, struct sp_toml_value *v)
{
    bool has_offset = false;

    v->type = SP_TOML_LOCAL_DATE;
    if (!read_day(r))
        return false;
    if (!has_at(r, 0, 'T') && !has_at(r, 0, 't') && !(has_at(r, 0, ' ') && digits_at(r, 1, 1) >= 0))
        return true;
    r->p++;
    if (!read_time(r) || !read_offset(r, &has_offset))
        return false;
    v->type = has_offset ? SP_TOML_OFFSET_DATE_TIME : SP_TOML_LOCAL_DATE_TIME;
    return true;
}

/* ---- integers ---- */

static int digit_of(char c, int base)
{
    const int d = sp_hex_digit(c);

    return d < base ? d : -1;
}

/* At least one digit; single underscores may stand between two of them. */
static bool skip_digits(struct reader *r, int base)
{
    if (r->p == r->end || digit_of(*r->p, base) < 0)
        return fail(r, r->p, "expected a digit");
    while (r->p < r->end && (digit_of(*r->p, base) >= 0 || *r->p == '_')) {
        if (*r->p == '_' && (r->end - r->p < 2 || digit_of(r->p[1], base) < 0))
            return fail(r, r->p, "an underscore stands between two digits");
        r->p++;
    }
    return true;
}

/* Digits that skip_digits has accepted. */
static bool make_integer(struct reader *r, struct sp_toml_value *v, struct sp_str digits, int base,
                         bool is_negative)
{
    int64_t n = 0;

    for (size_t i = 0; i < digits.n; i++) {
        if (digits.p[i] == '_')
            continue;
        const int64_t d = digit_of(digits.p[i], base);

        /* A negative number is built downwards: INT64_MIN has no positive counterpart. */
        if (__builtin_mul_overflow(n, (int64_t)base, &n) ||
            __builtin_add_overflow(n, is_negative ? -d : d, &n))
            return fail(r, digits.p, "an integer has at most 64 bits");
    }
    v->type = SP_TOML_INTEGER;
    v->integer = n;
    return true;
}

/* ---- floats ---- */

static bool make_float(struct reader *r, struct sp_toml_value *v, struct sp_str text)
{
    auto_free char *plain = malloc(text.n + 1);
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0); /* "." for any LC_NUMERIC */
    size_t n = 0;

    if (plain == NULL || c == (locale_t)0) {
        if (c != (locale_t)0)
            freelocale(c);
        return no_memory(r);
    }
    for (size_t i = 0; i < text.n; i++)
        if (text.p[i] != '_')
            plain[n++] = text.p[i];
    plain[n] = 0;
    v->type = SP_TOML_FLOAT;
    v->real = strtod_l(plain, NULL, c);
    freelocale(c);
    return true;
}

static bool read_decimal(struct reader *r, struct sp_toml_value *v, const char *first,
                         bool is_negative)
{
    const char *digits = r->p;

    if (!skip_digits(r, 10))
        return false;
    const struct sp_str whole = {digits, (size_t)(r->p - digits)};
    if (whole.n > 1 && digits[0] == '0')
        return fail(r, digits, "a number does not begin with 0");
    if (!has_at(r, 0, '.') && !has_at(r, 0, 'e') && !has_at(r, 0, 'E'))
        return make_integer(r, v, whole, 10, is_negative);

    if (*r->p == '.') {
        r->p++;
        if (!skip_digits(r, 10))
            return false;
    }
    if (has_at(r, 0, 'e') || has_at(r, 0, 'E')) {
        r->p++;
        if (has_at(r, 0, '+') || has_at(r, 0, '-'))
            r->p++;
        if (!skip_digits(r, 10))
            return false;
    }
    return make_float(r, v, (struct sp_str){first, (size_t)(r->p - first)});
}

static bool read_number(struct reader *r, struct sp_toml_value *v)
{
    const char *first = r->p;
    const bool is_negative = *r->p == '-';
    const bool is_time = digits_at(r, 0, 2) >= 0 && has_at(r, 2, ':');

    if (is_time || (digits_at(r, 0, 4) >= 0 && has_at(r, 4, '-'))) {
        v->type = SP_TOML_LOCAL_TIME;
        if (!(is_time ? read_time(r) : read_date_time(r, v)))
            return false;
        v->text = (struct sp_str){first, (size_t)(r->p - first)};
        return true;
    }
    const int base = is_here(r, "0x") ? 16 : is_here(r, "0o") ? 8 : is_here(r, "0b") ? 2 : 10;
    if (base != 10) {
        const char *digits = r->p += 2;

        return skip_digits(r, base) &&
               make_integer(r, v, (struct sp_str){digits, (size_t)(r->p - digits)}, base, false);
    }
    if (*r->p == '+' || *r->p == '-')
        r->p++;
    if (!is_here(r, "inf") && !is_here(r, "nan"))
        return read_decimal(r, v, first, is_negative);
    const double real = *r->p == 'i' ? (double)INFINITY : (double)NAN;
    v->type = SP_TOML_FLOAT;
    v->real = is_negative ? -real : real;
    r->p += 3;
    return true;
}

/* ---- values ---- */

/* NOLINTBEGIN(misc-no-recursion): no deeper than SP_TOML_MAX_DEPTH */

static bool read_value(struct reader *r, struct sp_toml_value *v);

/* Blanks, comments and line ends between two values of an array. */
static bool skip_space(struct reader *r)
{
    for (;;) {
        skip_blanks(r);
        if (!skip_comment(r))
            return false;
        if (!is_at_newline(r))
            return true;
        skip_newline(r);
    }
}

static bool read_array(struct reader *r, struct sp_toml_value *v)
{
    if (!make_container(r, v, SP_TOML_ARRAY, BY_VALUE))
        return false;
    r->p++;
    if (!skip_space(r))
        return false;
    while (!is_here(r, "]")) {
        struct sp_toml_value *item = add_value(r, v, (struct sp_str){0}, r->p);

        if (item == NULL || !read_value(r, item) || !skip_space(r))
            return false;
        if (is_here(r, "]"))
            break;
        if (!is_here(r, ","))
            return fail(r, r->p, "expected `,` or `]` in an array");
        r->p++;
        if (!skip_space(r))
            return false;
    }
    r->p++;
    return true;
}

/* One step of a dotted key down from *table. */
static bool step_by_dots(struct reader *r, struct sp_str key, const char *at,
                         struct sp_toml_value **table)
{
    struct sp_toml_value *v = find_value(r, *table, key);

    if (v == NULL) {
        v = add_value(r, *table, key, at);
        *table = v;
        return v != NULL && make_container(r, v, SP_TOML_TABLE, BY_DOTS);
    }
    if (v->type != SP_TOML_TABLE || v->made == BY_HEADER || v->made == BY_VALUE ||
        (v->made == BY_DOTS && v->section != r->section))
        return refuse_again(r, at, key, ", and nothing can be added to it here");
    v->made = BY_DOTS;
    v->section = r->section;
    *table = v;
    return true;
}

static bool read_pair(struct reader *r, struct sp_toml_value *table)
{
    struct sp_str key = {0};
    const char *at = r->p;

    if (!read_key_part(r, &key, &at))
        return false;
    while (skip_dot(r))
        if (!step_by_dots(r, key, at, &table) || !read_key_part(r, &key, &at))
            return false;
    if (r->p == r->end || *r->p != '=')
        return fail(r, r->p, "expected `=` after a key");
    r->p++;
    skip_blanks(r);
    if (find_value(r, table, key) != NULL)
        return refuse_again(r, at, key, "");
    struct sp_toml_value *v = add_value(r, table, key, at);
    return v != NULL && read_value(r, v);
}

/* TOML 1.0: on one line, without a trailing comma. */
static bool read_inline_table(struct reader *r, struct sp_toml_value *v)
{
    if (!make_container(r, v, SP_TOML_TABLE, BY_VALUE))
        return false;
    r->p++;
    skip_blanks(r);
    if (is_here(r, "}")) {
        r->p++;
        return true;
    }
    for (;;) {
        if (!read_pair(r, v))
            return false;
        skip_blanks(r);
        if (is_here(r, "}"))
            break;
        if (!is_here(r, ","))
            return fail(r, r->p, "expected `,` or `}` in an inline table");
        r->p++;
    }
    r->p++;
    return true;
}

static bool read_value(struct reader *r, struct sp_toml_value *v)
{
    const char c = r->p == r->end ? 0 : *r->p;

    v->at = (uint32_t)(r->p - r->doc->text.p);
    v->made = BY_VALUE;
    if (c == '"' || c == '\'') {
        v->type = SP_TOML_STRING;
        return read_string(r, true, &v->text);
    }
    if (c == '[')
        return read_array(r, v);
    if (c == '{')
        return read_inline_table(r, v);
    if ((c >= '0' && c <= '9') || c == '+' || c == '-' || is_here(r, "inf") || is_here(r, "nan"))
        return read_number(r, v);

    const bool is_true = is_here(r, "true");
    if (!is_true && !is_here(r, "false"))
        return fail(r, r->p, "expected a value (a string stands in quotes)");
    v->type = SP_TOML_BOOLEAN;
    v->boolean = is_true;
    r->p += is_true ? 4 : 5;
    return true;
}

/* NOLINTEND(misc-no-recursion) */

/* ---- headers ---- */

/* One step of a header's name down from *table. */
static bool step_by_header(struct reader *r, struct sp_str key, const char *at,
                           struct sp_toml_value **table)
{
    struct sp_toml_value *v = find_value(r, *table, key);

    if (v == NULL) {
        v = add_value(r, *table, key, at);
        *table = v;
        return v != NULL && make_container(r, v, SP_TOML_TABLE, BY_PASSING);
    }
    if (v->type == SP_TOML_ARRAY && v->made == BY_HEADER)
        v = v->last; /* the name of an array of tables means its newest table */
    if (v->type != SP_TOML_TABLE || v->made == BY_VALUE)
        return refuse_again(r, at, key, ", and nothing can be added to it here");
    *table = v;
    return true;
}

/* The last key of a header: defines a table, or appends one to an array of tables. */
static bool define(struct reader *r, struct sp_str key, const char *at, bool is_array,
                   struct sp_toml_value **table)
{
    const enum sp_toml_type type = is_array ? SP_TOML_ARRAY : SP_TOML_TABLE;
    struct sp_toml_value *v = find_value(r, *table, key);

    if (v != NULL && (v->type != type || v->made != (is_array ? BY_HEADER : BY_PASSING)))
        return refuse_again(r, at, key, "");
    if (v == NULL) {
        v = add_value(r, *table, key, at);
        if (v == NULL || !make_container(r, v, type, BY_HEADER))
            return false;
    }
    v->made = BY_HEADER;
    if (is_array) {
        v = add_value(r, v, (struct sp_str){0}, at);
        if (v == NULL || !make_container(r, v, SP_TOML_TABLE, BY_HEADER))
            return false;
    }
    *table = v;
    return true;
}

/* [NAME] or [[NAME]]; *table becomes what it names. */
static bool read_header(struct reader *r, struct sp_toml_value **table)
{
    const bool is_array = is_here(r, "[[");
    const char *close = is_array ? "]]" : "]";
    struct sp_str key = {0};
    const char *at = r->p;

    r->p += strlen(close);
    r->section++;
    *table = r->doc->root;
    if (!read_key_part(r, &key, &at))
        return false;
    while (skip_dot(r))
        if (!step_by_header(r, key, at, table) || !read_key_part(r, &key, &at))
            return false;
    if (!is_here(r, close))
        return fail(r, r->p, "expected `%s` at the end of a header", close);
    r->p += strlen(close);
    return define(r, key, at, is_array, table) && end_line(r, "a header");
}

/* ---- the whole text ---- */

static bool read_all(struct reader *r, struct sp_str text)
{
    struct sp_toml *doc = r->doc;

    if (text.n > SP_TOML_MAX_BYTES) {
        (void)sp_fail(r->e, SP_E_INVALID, 0, "%s: more than %d bytes", doc->name,
                      SP_TOML_MAX_BYTES);
        return false;
    }
    const char *copy = sp_arena_copy(&doc->arena, text);
    doc->root = sp_arena_new(&doc->arena, sizeof *doc->root);
    if (copy == NULL || doc->root == NULL)
        return no_memory(r);
    doc->text = (struct sp_str){copy, text.n};
    doc->root->type = SP_TOML_TABLE;
    doc->root->doc = doc;
    r->p = copy;
    r->end = copy + text.n;
    const size_t good = sp_utf8_valid_prefix(doc->text);
    if (good != text.n)
        return fail(r, copy + good, "not UTF-8");

    struct sp_toml_value *table = doc->root;
    for (;;) {
        skip_blanks(r);
        if (r->p == r->end)
            return true;
        if (*r->p == '[') {
            if (!read_header(r, &table))
                return false;
        } else if (*r->p == '#' || is_at_newline(r)) {
            if (!end_line(r, "a comment"))
                return false;
        } else if (!read_pair(r, table) || !end_line(r, "a value")) {
            return false;
        }
    }
}

int sp_toml_parse(struct sp_toml *t, const char *name, struct sp_str text, struct sp_err *e)
{
    struct sp_err own = {0};
    struct reader r = {.doc = t, .e = e == NULL ? &own : e};

    t->name = sp_arena_copy(&t->arena, sp_str_of(name));
    if (t->name == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read %s", name);
    const bool is_read = read_all(&r, text);
    free(r.slots);
    if (is_read)
        return 0;
    sp_toml_done(t);
    return -(int)r.e->code;
}
