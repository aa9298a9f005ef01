/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules_parse: the text of a rule file: blanks, names and strings, values, statements.
 *
 * The language is a small subset of Starlark. Anything that Starlark has beyond it is reported as
 * "unsupported". The bytes are valid UTF-8 without NUL, and no pointer passes the end of the text.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "approve/rules/rules_priv.h"
#include "base/grow.h"
#include "base/utf8.h"

/* ---- errors and memory ---- */

bool sp_rules_fail(struct sp_rules_reader *r, const char *at, const char *fmt, ...)
{
    char text[sizeof r->e->msg];
    size_t line = 1;
    size_t column = 1; /* in characters, not bytes */
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    for (const char *p = r->text.p; p < at; p++) {
        if (*p == '\n') {
            line++;
            column = 1;
        } else if (((unsigned char)*p & 0xC0) != 0x80) {
            column++;
        }
    }
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
    r->tell = NULL; /* parsing stops here */
    return false;
}

/* The values of a file are bounded, so that a small file with sums of lists cannot exhaust memory.
 */
static void *take_memory(struct sp_rules_reader *r, struct sp_arena *from, size_t count,
                         size_t size)
{
    if (count > (SP_RULES_MAX_MEMORY - r->memory) / size) {
        (void)sp_rules_fail(r, r->p, "the values of this file take more than %u MiB",
                            SP_RULES_MAX_MEMORY >> 20);
        r->tell = NULL; /* parsing stops here */
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

/* ---- blanks and names ---- */

static bool at_end(const struct sp_rules_reader *r)
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

static void skip_blanks(struct sp_rules_reader *r)
{
    while (!at_end(r)) {
        /* of CR LF, the LF ends the line */
        if (*r->p == ' ' || *r->p == '\t' || (r->depth > 0 && *r->p == '\n') || is_at(r, "\r\n"))
            r->p++;
        else if (*r->p == '#')
            while (!at_end(r) && *r->p != '\n')
                r->p++;
        else
            return;
    }
}

static bool is_name_start(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool at_name(const struct sp_rules_reader *r)
{
    return !at_end(r) && is_name_start(*r->p);
}

/* A name begins at p. */
static struct sp_str read_name(struct sp_rules_reader *r)
{
    const char *from = r->p;

    while (!at_end(r) && (is_name_start(*r->p) || (*r->p >= '0' && *r->p <= '9')))
        r->p++;
    return (struct sp_str){from, (size_t)(r->p - from)};
}

/* ---- strings ---- */

/* A string literal being read. Its value is never longer than its source. */
struct string {
    const char *from;
    char quote;
    bool is_raw, has_lines;
    char *out;
};

static bool at_string(const struct sp_rules_reader *r)
{
    return is_at(r, "\"") || is_at(r, "'") || is_at(r, "r\"") || is_at(r, "r'");
}

/* \xHH, \uXXXX or \UXXXXXXXX, whose letter is at p. The UTF-8 of the character is never longer than
 * the escape. */
static bool read_code(struct sp_rules_reader *r, struct string *s)
{
    const char *at = r->p;
    const int digits = *r->p == 'x' ? 2 : *r->p == 'u' ? 4 : 8;
    uint32_t c = 0;

    r->p++;
    for (int i = 0; i < digits; i++, r->p++) {
        const int d = at_end(r) ? -1 : sp_hex_digit(*r->p);

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
    s->out += sp_utf8_encode(c, s->out);
    return true;
}

/* A backslash is at p, and at least one byte follows. */
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
    if (c == '0' && !(left(r) > 1 && r->p[1] >= '0' && r->p[1] <= '7')) { /* not octal */
        *s->out++ = 0;
        r->p++;
        return true;
    }
    return sp_rules_fail(r, r->p,
                         "unsupported string escape; a backslash itself is written `\\\\`");
}

/* Whether the quotes at p end the string. */
static bool is_closed_at(const struct sp_rules_reader *r, const struct string *s, const char *p)
{
    const char *end = r->text.p + r->text.n;

    return *p == s->quote &&
           (!s->has_lines || (end - p >= 3 && p[1] == s->quote && p[2] == s->quote));
}

/* An upper bound for the value: the bytes up to the next quotes that may end the string. */
static size_t longest(const struct sp_rules_reader *r, const struct string *s)
{
    const char *end = r->text.p + r->text.n;
    const char *p = r->p;

    while (p < end && (s->has_lines || *p != '\n')) {
        if (*p == '\\' && end - p > 1)
            p += end - p > 2 && p[1] == '\r' ? 2 : 1;
        else if (is_closed_at(r, s, p))
            break;
        p++;
    }
    return (size_t)(p - r->p);
}

static bool read_content(struct sp_rules_reader *r, struct string *s)
{
    while (!at_end(r) && !is_closed_at(r, s, r->p)) {
        if (*r->p == '\n' && !s->has_lines)
            break;
        if (*r->p == '\\' && left(r) > 1) {
            if (!s->is_raw) {
                if (!read_escape(r, s))
                    return false;
                continue;
            }
            /* In a raw string the backslash stays, except before the quote. */
            if (r->p[1] != s->quote)
                *s->out++ = '\\';
            r->p++;
            if (*r->p != '\r')
                *s->out++ = *r->p;
            r->p++;
            continue;
        }
        if (*r->p != '\r') /* line ends become LF */
            *s->out++ = *r->p;
        r->p++;
    }
    if (at_end(r) || *r->p == '\n')
        return sp_rules_fail(r, s->from, "unfinished string literal");
    r->p += s->has_lines ? 3 : 1;
    return true;
}

static bool read_string(struct sp_rules_reader *r, struct sp_str *ret)
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

const char *sp_rules_type_name(enum sp_rules_type type)
{
    static const char *const names[] = {"NoneType", "bool", "int", "string", "list"};

    return names[type];
}

/* ---- values ---- */

static char next(const struct sp_rules_reader *r)
{
    return at_end(r) ? 0 : *r->p;
}

static bool enter_bracket(struct sp_rules_reader *r, const char *at)
{
    if (r->depth == SP_RULES_MAX_DEPTH)
        return sp_rules_fail(r, at, "nested deeper than %d", SP_RULES_MAX_DEPTH);
    r->depth++;
    return true;
}

/* Reports what stands at p instead of `what`. */
static bool fail_expecting(struct sp_rules_reader *r, const char *what)
{
    const char c = next(r);

    if (c == 0)
        return sp_rules_fail(r, r->p, "unexpected end of the file, expected %s", what);
    if (strchr(")],\"'", c) != NULL)
        return sp_rules_fail(r, r->p, "unexpected `%c`, expected %s", c, what);
    if (c == '\n')
        return sp_rules_fail(r, r->p, "unexpected end of the line, expected %s", what);
    return sp_rules_fail(r, r->p, "unsupported expression");
}

static bool is_digit_of(char c, int base)
{
    if (base == 16 && (c | 0x20) >= 'a' && (c | 0x20) <= 'f')
        return true;
    return c >= '0' && c <= (base < 10 ? '0' + base - 1 : '9');
}

/* Integers are accepted, but no parameter takes one, so the value is dropped. */
static bool read_integer(struct sp_rules_reader *r, struct sp_rules_value *ret)
{
    const char *from = r->p;
    const char *end = r->text.p + r->text.n;
    const char kind = end - r->p > 2 && *r->p == '0' ? (char)(r->p[1] | 0x20) : 0;
    const int base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;

    if (base != 10 && is_digit_of(r->p[2], base))
        r->p += 2;
    while (r->p < end && is_digit_of(*r->p, base))
        r->p++;
    if (base == 10 && *from == '0' && r->p - from > 1)
        return sp_rules_fail(r, from, "an integer does not begin with 0");
    if (r->p < end && (*r->p == '.' || at_name(r)))
        return sp_rules_fail(r, from, "unsupported expression");
    *ret = (struct sp_rules_value){.type = SP_RULES_INT};
    return true;
}

static bool read_value(struct sp_rules_reader *r, struct sp_rules_value *ret);

static bool read_list(struct sp_rules_reader *r, struct sp_rules_value *ret)
{
    struct sp_rules_value *items = NULL;
    struct sp_rules_value item = {0};
    uint32_t count = 0;
    uint32_t cap = 0;

    if (!enter_bracket(r, r->p))
        return false;
    r->p++;
    for (skip_blanks(r); next(r) != ']'; skip_blanks(r)) {
        if (!read_value(r, &item))
            return false;
        if (count == cap) {
            struct sp_rules_value *more =
                sp_rules_memory(r, cap == 0 ? 4 : (size_t)cap * 2, sizeof *more);

            if (more == NULL)
                return false;
            if (count != 0)
                memcpy(more, items, count * sizeof *more);
            items = more;
            cap = cap == 0 ? 4 : cap * 2;
        }
        items[count++] = item;
        if (next(r) == ']')
            break;
        if (next(r) != ',')
            return fail_expecting(r, "`]`");
        r->p++;
    }
    r->p++;
    r->depth--;
    *ret = (struct sp_rules_value){.type = SP_RULES_LIST, .items = items, .count = count};
    return true;
}

static bool read_parentheses(struct sp_rules_reader *r, struct sp_rules_value *ret)
{
    if (!enter_bracket(r, r->p))
        return false;
    r->p++;
    skip_blanks(r);
    if (next(r) == ')')
        return sp_rules_fail(r, r->p, "unsupported expression");
    if (!read_value(r, ret))
        return false;
    if (next(r) == ',')
        return sp_rules_fail(r, r->p, "unsupported expression");
    if (next(r) != ')')
        return fail_expecting(r, "`)`");
    r->p++;
    r->depth--;
    return true;
}

static const char *const keywords[] = {
    "and", "as",   "assert", "break",  "class",  "continue", "def",  "del",    "elif",     "else",
    "for", "from", "global", "if",     "import", "in",       "is",   "lambda", "nonlocal", "not",
    "or",  "pass", "raise",  "return", "try",    "while",    "with", "yield",  "load",
};

static bool is_keyword(struct sp_str name)
{
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if (sp_str_eq(name, sp_str_of(keywords[i])))
            return true;
    return false;
}

/* True, False, None, or a variable that was assigned before. */
static bool read_named(struct sp_rules_reader *r, struct sp_rules_value *ret)
{
    const char *at = r->p;
    const struct sp_str name = read_name(r);

    *ret = (struct sp_rules_value){.type = SP_RULES_BOOL};
    if (sp_str_eq(name, SP_STR("True")) || sp_str_eq(name, SP_STR("False")))
        return true;
    ret->type = SP_RULES_NOTHING;
    if (sp_str_eq(name, SP_STR("None")))
        return true;
    const uint32_t number = sp_rules_find(&r->names, name);
    if (number != SP_RULES_NONE) {
        *ret = r->named[number];
        return true;
    }
    if (is_keyword(name) || sp_rules_function(name) != SP_RULES_FUNCTIONS || next(r) == '(' ||
        next(r) == '"' || next(r) == '\'')
        return sp_rules_fail(r, at, "unsupported expression");
    return sp_rules_fail(r, at, "variable `" SP_STR_FMT "` not found", SP_STR_ARG(name));
}

static bool read_term(struct sp_rules_reader *r, struct sp_rules_value *ret)
{
    const char c = next(r);

    if (at_string(r)) {
        *ret = (struct sp_rules_value){.type = SP_RULES_STRING};
        return read_string(r, &ret->text);
    }
    if (c == '[')
        return read_list(r, ret);
    if (c == '(')
        return read_parentheses(r, ret);
    if (c >= '0' && c <= '9')
        return read_integer(r, ret);
    if (at_name(r))
        return read_named(r, ret);
    if (c == 0 || c == '\n' || c == ',' || c == ')' || c == ']')
        return fail_expecting(r, "a value");
    return sp_rules_fail(r, r->p, "unsupported expression");
}

/* a + b, into a. */
static bool join(struct sp_rules_reader *r, const char *at, struct sp_rules_value *a,
                 const struct sp_rules_value *b)
{
    if (a->type != b->type ||
        (a->type != SP_RULES_STRING && a->type != SP_RULES_LIST && a->type != SP_RULES_INT))
        return sp_rules_fail(r, at, "Operation `+` not supported for types `%s` and `%s`",
                             sp_rules_type_name(a->type), sp_rules_type_name(b->type));
    if (a->type == SP_RULES_STRING) {
        const size_t n = a->text.n + b->text.n;
        char *text = sp_rules_memory(r, n + 1, 1);

        if (text == NULL)
            return false;
        if (a->text.n != 0)
            memcpy(text, a->text.p, a->text.n);
        if (b->text.n != 0)
            memcpy(text + a->text.n, b->text.p, b->text.n);
        a->text = (struct sp_str){text, n};
    }
    if (a->type == SP_RULES_LIST) {
        const size_t n = (size_t)a->count + b->count;
        struct sp_rules_value *items = sp_rules_memory(r, n + 1, sizeof *items);

        if (items == NULL)
            return false;
        if (a->count != 0)
            memcpy(items, a->items, a->count * sizeof *items);
        if (b->count != 0)
            memcpy(items + a->count, b->items, b->count * sizeof *items);
        a->items = items;
        a->count = (uint32_t)n;
    }
    return true;
}

/* Terms, joined by +. */
static bool read_value(struct sp_rules_reader *r, struct sp_rules_value *ret)
{
    const char *at = r->p;
    struct sp_rules_value more = {0};

    if (!read_term(r, ret))
        return false;
    for (skip_blanks(r); next(r) == '+'; skip_blanks(r)) {
        r->p++;
        skip_blanks(r);
        if (!read_term(r, &more) || !join(r, at, ret, &more))
            return false;
    }
    return true;
}

/* ---- statements ---- */

/* NAME = VALUE; p is at the "=". */
static bool read_assignment(struct sp_rules_reader *r, struct sp_str name)
{
    struct sp_rules_value v = {0};

    if (is_keyword(name))
        return sp_rules_fail(r, name.p, "unsupported expression");
    if (sp_str_eq(name, SP_STR("True")) || sp_str_eq(name, SP_STR("False")) ||
        sp_str_eq(name, SP_STR("None")) || sp_rules_function(name) != SP_RULES_FUNCTIONS)
        return sp_rules_fail(r, name.p, "`" SP_STR_FMT "` cannot be given another value",
                             SP_STR_ARG(name));
    r->p++;
    skip_blanks(r);
    if (!read_value(r, &v))
        return false;
    const uint32_t *number = sp_rules_put(&r->names, name, r->names.count);
    if (number == NULL || (*number >= r->named_cap && !SP_GROW(r->named, *number, r->named_cap)))
        return sp_rules_no_memory(r);
    r->named[*number] = v;
    return true;
}

/* "NAME =" in front of an argument; false: the argument is positional. */
static bool read_keyword(struct sp_rules_reader *r, struct sp_str *ret)
{
    const char *from = r->p;

    *ret = (struct sp_str){NULL, 0};
    if (!at_name(r))
        return false;
    *ret = read_name(r);
    skip_blanks(r);
    if (next(r) == '=' && (r->p + 1 == r->text.p + r->text.n || r->p[1] != '=')) {
        r->p++;
        skip_blanks(r);
        return true;
    }
    r->p = from;
    return false;
}

/* Errors in arguments are reported after all were read, at the beginning of the call. */
struct arguments {
    struct sp_rules_call call;
    struct sp_str unknown, twice; /* p NULL: none */
    bool has_keyword;
};

static bool read_argument(struct sp_rules_reader *r, struct arguments *a)
{
    const char *at = r->p;
    struct sp_rules_value v = {0};
    struct sp_str name;
    const bool is_named = read_keyword(r, &name);

    if (!read_value(r, &v))
        return false;
    if (!is_named && a->has_keyword)
        return sp_rules_fail(r, at, "positional argument after non positional");
    a->has_keyword |= is_named;
    const uint32_t i = is_named ? sp_rules_parameter(a->call.function, name) : a->call.positional++;
    if (i >= SP_RULES_MAX_PARAMETERS) {
        if (is_named)
            a->unknown = name;
    } else if (is_named && a->call.is_given[i]) {
        a->twice = name;
    } else {
        a->call.is_given[i] = true;
        a->call.values[i] = v;
    }
    return true;
}

/* After an error in the meaning of a call, not in its syntax, parsing goes on if all errors are
 * wanted. */
static bool read_call(struct sp_rules_reader *r, struct sp_str name)
{
    struct arguments a = {.call = {.function = sp_rules_function(name), .at = name.p}};
    bool is_good = false;

    if (a.call.function == SP_RULES_FUNCTIONS)
        return sp_rules_fail(r, name.p, "unsupported expression");
    if (!enter_bracket(r, r->p))
        return false;
    r->p++;
    for (skip_blanks(r); next(r) != ')'; skip_blanks(r)) {
        if (!read_argument(r, &a))
            return false;
        if (next(r) == ')')
            break;
        if (next(r) != ',')
            return fail_expecting(r, "`)`");
        r->p++;
    }
    r->p++;
    r->depth--;
    if (a.twice.p != NULL)
        (void)sp_rules_fail(r, name.p, "Argument `" SP_STR_FMT "` occurs more than once",
                            SP_STR_ARG(a.twice));
    else if (a.unknown.p != NULL)
        (void)sp_rules_fail(
            r, name.p, "Found `" SP_STR_FMT "` extra named parameter(s) for call to " SP_STR_FMT,
            SP_STR_ARG(a.unknown), SP_STR_ARG(name));
    else
        is_good = sp_rules_execute(r, &a.call);
    return is_good || r->tell != NULL;
}

static bool read_statement(struct sp_rules_reader *r)
{
    if (!at_name(r) || at_string(r))
        return sp_rules_fail(r, r->p, "unsupported expression");
    const struct sp_str name = read_name(r);
    skip_blanks(r);
    if (next(r) == '=' && (r->p + 1 == r->text.p + r->text.n || r->p[1] != '='))
        return read_assignment(r, name);
    if (next(r) == '(')
        return read_call(r, name);
    return sp_rules_fail(r, name.p, "unsupported expression");
}

static bool read_statements(struct sp_rules_reader *r)
{
    for (;;) {
        const char *line = r->p;

        skip_blanks(r);
        if (at_end(r))
            return true;
        if (*r->p == '\n') {
            r->p++;
            continue;
        }
        if (r->p != line)
            return sp_rules_fail(r, line, "unexpected indentation");
        if (!read_statement(r))
            return false;
        skip_blanks(r);
        if (!at_end(r) && *r->p != '\n')
            return fail_expecting(r, "the end of the line");
    }
}

/* ---- a whole text ---- */

static bool check_bytes(struct sp_rules_reader *r)
{
    const size_t valid = sp_utf8_valid_prefix(r->text);
    const char *nul = r->text.n == 0 ? NULL : memchr(r->text.p, 0, r->text.n);

    if (r->text.n > SP_RULES_MAX_BYTES)
        return sp_rules_fail(r, r->text.p, "the file has more than %d bytes", SP_RULES_MAX_BYTES);
    if (nul != NULL && (size_t)(nul - r->text.p) <= valid)
        return sp_rules_fail(r, nul, "a NUL byte");
    if (valid != r->text.n)
        return sp_rules_fail(r, r->text.p + valid, "not valid UTF-8");
    return true;
}

int sp_rules_read_part(const struct sp_rules_parts *before, const char *name, struct sp_str text,
                       void (*tell)(void *user, const char *text), void *user,
                       struct sp_rules_part **ret, struct sp_err *e)
{
    struct sp_err unheard = {0};
    struct sp_rules_reader r = {.name = name,
                                .text = text,
                                .p = text.p,
                                .before = before,
                                .part = sp_rules_part_new(name),
                                .tell = tell,
                                .user = user,
                                .e = e == NULL ? &unheard : e};

    if (r.text.n == 0)
        r.text.p = r.p = "";
    if (r.part == NULL)
        (void)sp_rules_no_memory(&r);
    else if (check_bytes(&r) && read_statements(&r))
        (void)sp_rules_check_examples(&r);
    sp_arena_done(&r.scratch);
    sp_rules_table_done(&r.names);
    free(r.named);
    free(r.examples);
    if (r.faults > 0) {
        sp_rules_part_unref(r.part);
        return -(int)r.e->code;
    }
    *ret = r.part;
    return 0;
}
