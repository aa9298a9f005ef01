/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules_parse: the language of rule files, from its bytes to the rules of a part.
 *
 * It is a small subset of Starlark: assignments, and calls of three functions. Anything that
 * Starlark has beyond it is reported as "unsupported". The bytes are valid UTF-8 without NUL, and
 * no pointer passes the end of the text.
 *
 * Arguments are checked in the order in which Codex checks them, so that the first error is the
 * same. Errors are reported at the beginning of the call. Examples are tried after the whole file
 * was read: each against the rules of its own call, with the host executables of all files so far;
 * first what must not match, then what must.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "approve/rules/rules_priv.h"
#include "base/auto.h"
#include "base/grow.h"
#include "base/hostname.h"
#include "base/json.h"
#include "base/utf8.h"

#define MAX_DEPTH      64 /* brackets in brackets */
#define MAX_MEMORY     (64U << 20)
#define MAX_WORDS      (1U << 20) /* of all rules and examples of one file together */
#define MAX_WORK       200000000U /* comparisons for the examples of one file */
#define MAX_PARAMETERS 5
#define SHOWN_RULE     100 /* bytes of a rule in an error message */
#define SHOWN_EXAMPLES 200

enum type {
    NOTHING, /* None */
    BOOL,
    INT, /* the value is not kept */
    STRING,
    LIST,
};
static const char *const type_names[] = {"NoneType", "bool", "int", "string", "list"};

struct value {
    enum type type;
    struct sp_str text;        /* STRING */
    const struct value *items; /* LIST */
    uint32_t count;
};

/* The examples of one call, checked at the end of the file. */
struct examples {
    const char *at;
    uint32_t first_rule, rule_count; /* in the part */
    const struct sp_words *match, *not_match;
    uint32_t match_count, not_match_count;
};

/* Functions that read return false after an error, which is in *e. */
struct reader {
    const char *name;
    struct sp_str text;
    const char *p; /* next byte */
    const struct sp_rules_parts *before;
    struct sp_rules_part *part;
    struct sp_arena scratch; /* values */
    struct sp_rules_table names;
    struct value *named; /* by the numbers of `names` */
    uint32_t named_cap;
    struct examples *examples;
    uint32_t example_count, example_cap;
    uint32_t depth;
    uint32_t words;
    size_t memory;
    const char *counted; /* up to here lines are counted */
    uint32_t line;       /* of it */
    /* Receives every error; NULL: stop at the first. */
    void (*tell)(void *user, const char *text);
    void *user;
    uint32_t faults;
    struct sp_err *e;
};

enum function { PREFIX_RULE, NETWORK_RULE, HOST_EXECUTABLE, FUNCTIONS };
static const struct {
    const char *name;
    struct parameter {
        const char *name; /* NULL: none */
        enum type type;
        bool is_needed, may_be_none;
    } parameters[MAX_PARAMETERS];
} functions[FUNCTIONS] = {
    [PREFIX_RULE] = {"prefix_rule",
                     {{"pattern", LIST, true, false},
                      {"decision", STRING, false, false},
                      {"match", LIST, false, false},
                      {"not_match", LIST, false, false},
                      {"justification", STRING, false, true}}},
    [NETWORK_RULE] = {"network_rule",
                      {{"host", STRING, true, false},
                       {"protocol", STRING, true, false},
                       {"decision", STRING, true, false},
                       {"justification", STRING, false, true}}},
    [HOST_EXECUTABLE] = {"host_executable",
                         {{"name", STRING, true, false}, {"paths", LIST, true, false}}},
};
enum { PATTERN, DECISION, MATCH, NOT_MATCH, JUSTIFICATION }; /* prefix_rule */
enum { HOST, PROTOCOL, HOST_DECISION, HOST_JUSTIFICATION };  /* network_rule */
enum { NAME, PATHS };                                        /* host_executable */

struct call {
    enum function function;
    const char *at;                      /* its first byte */
    struct value values[MAX_PARAMETERS]; /* by parameter */
    bool is_given[MAX_PARAMETERS];
    uint32_t positional;
};

/* ---- errors and memory ---- */

SP_PRINTF(3, 4)
static bool fail_at(struct reader *r, const char *at, const char *fmt, ...)
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

static bool no_memory(struct reader *r)
{
    r->faults++;
    (void)sp_fail(r->e, SP_E_SYSTEM, ENOMEM, "read the rules in %s", r->name);
    r->tell = NULL; /* parsing stops here */
    return false;
}

/* The values of a file are bounded, so that a small file with sums of lists cannot exhaust memory.
 */
static void *take_memory(struct reader *r, struct sp_arena *from, size_t count, size_t size)
{
    if (count > (MAX_MEMORY - r->memory) / size) {
        (void)fail_at(r, r->p, "the values of this file take more than %u MiB", MAX_MEMORY >> 20);
        r->tell = NULL; /* parsing stops here */
        return NULL;
    }
    r->memory += count * size;
    void *p = sp_arena_new(from, count * size);
    if (p == NULL)
        (void)no_memory(r);
    return p;
}

/* Zeroed memory for values, and for what the part keeps; NULL: refused. */
static void *scratch_memory(struct reader *r, size_t count, size_t size)
{
    return take_memory(r, &r->scratch, count, size);
}

static void *part_memory(struct reader *r, size_t count, size_t size)
{
    return take_memory(r, &r->part->arena, count, size);
}

/* ---- blanks and names ---- */

static bool at_end(const struct reader *r)
{
    return r->p == r->text.p + r->text.n;
}

static size_t left(const struct reader *r)
{
    return (size_t)(r->text.p + r->text.n - r->p);
}

static bool is_at(const struct reader *r, const char *s)
{
    const size_t n = strlen(s);

    return left(r) >= n && memcmp(r->p, s, n) == 0;
}

static void skip_blanks(struct reader *r)
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

static bool at_name(const struct reader *r)
{
    return !at_end(r) && is_name_start(*r->p);
}

/* A name begins at p. */
static struct sp_str read_name(struct reader *r)
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

static bool at_string(const struct reader *r)
{
    return is_at(r, "\"") || is_at(r, "'") || is_at(r, "r\"") || is_at(r, "r'");
}

/* \xHH, \uXXXX or \UXXXXXXXX, whose letter is at p. The UTF-8 of the character is never longer than
 * the escape. */
static bool read_code(struct reader *r, struct string *s)
{
    const char *at = r->p;
    const int digits = *r->p == 'x' ? 2 : *r->p == 'u' ? 4 : 8;
    uint32_t c = 0;

    r->p++;
    for (int i = 0; i < digits; i++, r->p++) {
        const int d = at_end(r) ? -1 : sp_hex_digit(*r->p);

        if (d < 0)
            return fail_at(r, at,
                           "invalid string escape sequence: `\\%c` needs %d "
                           "hexadecimal digits",
                           *at, digits);
        c = c << 4 | (uint32_t)d;
    }
    if (c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF))
        return fail_at(r, at, "invalid string escape sequence `%.*s`: not a character", digits + 1,
                       at);
    s->out += sp_utf8_encode(c, s->out);
    return true;
}

/* A backslash is at p, and at least one byte follows. */
static bool read_escape(struct reader *r, struct string *s)
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
    return fail_at(r, r->p, "unsupported string escape; a backslash itself is written `\\\\`");
}

/* Whether the quotes at p end the string. */
static bool is_closed_at(const struct reader *r, const struct string *s, const char *p)
{
    const char *end = r->text.p + r->text.n;

    return *p == s->quote &&
           (!s->has_lines || (end - p >= 3 && p[1] == s->quote && p[2] == s->quote));
}

/* An upper bound for the value: the bytes up to the next quotes that may end the string. */
static size_t longest(const struct reader *r, const struct string *s)
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

static bool read_string(struct reader *r, struct sp_str *ret)
{
    struct string s = {.from = r->p, .is_raw = *r->p == 'r'};

    r->p += s.is_raw;
    s.quote = *r->p;
    s.has_lines = is_at(r, s.quote == '"' ? "\"\"\"" : "'''");
    r->p += s.has_lines ? 3 : 1;
    char *text = scratch_memory(r, longest(r, &s) + 1, 1);
    if (text == NULL)
        return false;
    s.out = text;
    while (!at_end(r) && !is_closed_at(r, &s, r->p)) {
        if (*r->p == '\n' && !s.has_lines)
            break;
        if (*r->p == '\\' && left(r) > 1) {
            if (!s.is_raw) {
                if (!read_escape(r, &s))
                    return false;
                continue;
            }
            /* In a raw string the backslash stays, except before the quote. */
            if (r->p[1] != s.quote)
                *s.out++ = '\\';
            r->p++;
            if (*r->p != '\r')
                *s.out++ = *r->p;
            r->p++;
            continue;
        }
        if (*r->p != '\r') /* line ends become LF */
            *s.out++ = *r->p;
        r->p++;
    }
    if (at_end(r) || *r->p == '\n')
        return fail_at(r, s.from, "unfinished string literal");
    r->p += s.has_lines ? 3 : 1;
    *ret = (struct sp_str){text, (size_t)(s.out - text)};
    return true;
}

/* ---- values ---- */

static char next(const struct reader *r)
{
    return at_end(r) ? 0 : *r->p;
}

static bool enter_bracket(struct reader *r, const char *at)
{
    if (r->depth == MAX_DEPTH)
        return fail_at(r, at, "nested deeper than %d", MAX_DEPTH);
    r->depth++;
    return true;
}

/* Reports what stands at p instead of `what`. */
static bool fail_expecting(struct reader *r, const char *what)
{
    const char c = next(r);

    if (c == 0)
        return fail_at(r, r->p, "unexpected end of the file, expected %s", what);
    if (strchr(")],\"'", c) != NULL)
        return fail_at(r, r->p, "unexpected `%c`, expected %s", c, what);
    if (c == '\n')
        return fail_at(r, r->p, "unexpected end of the line, expected %s", what);
    return fail_at(r, r->p, "unsupported expression");
}

static bool is_digit_of(char c, int base)
{
    if (base == 16 && (c | 0x20) >= 'a' && (c | 0x20) <= 'f')
        return true;
    return c >= '0' && c <= (base < 10 ? '0' + base - 1 : '9');
}

/* Integers are accepted, but no parameter takes one, so the value is dropped. */
static bool read_integer(struct reader *r, struct value *ret)
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
        return fail_at(r, from, "an integer does not begin with 0");
    if (r->p < end && (*r->p == '.' || at_name(r)))
        return fail_at(r, from, "unsupported expression");
    *ret = (struct value){.type = INT};
    return true;
}

static bool read_value(struct reader *r, struct value *ret);

static bool read_list(struct reader *r, struct value *ret)
{
    struct value *items = NULL;
    struct value item = {0};
    uint32_t count = 0;
    uint32_t cap = 0;

    if (!enter_bracket(r, r->p))
        return false;
    r->p++;
    for (skip_blanks(r); next(r) != ']'; skip_blanks(r)) {
        if (!read_value(r, &item))
            return false;
        if (count == cap) {
            struct value *more = scratch_memory(r, cap == 0 ? 4 : (size_t)cap * 2, sizeof *more);

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
    *ret = (struct value){.type = LIST, .items = items, .count = count};
    return true;
}

static bool read_parentheses(struct reader *r, struct value *ret)
{
    if (!enter_bracket(r, r->p))
        return false;
    r->p++;
    skip_blanks(r);
    if (next(r) == ')')
        return fail_at(r, r->p, "unsupported expression");
    if (!read_value(r, ret))
        return false;
    if (next(r) == ',')
        return fail_at(r, r->p, "unsupported expression");
    if (next(r) != ')')
        return fail_expecting(r, "`)`");
    r->p++;
    r->depth--;
    return true;
}

static const char *const keywords[] = {
    "and", "as",   "assert", "break",  "class",  "continue", "def",  "del",    "elif",     "else",
    "for", "from", "global", "if",     "import", "in",       "is",   "lambda", "nonlocal", "not",
    "or",  "pass", "raise",  "return", "try",    "while",    "with", "yield",  "load",     NULL,
};

/* FUNCTIONS: no function has this name. */
static enum function function_of(struct sp_str name)
{
    int f = 0;

    while (f < FUNCTIONS && !sp_str_eq(name, sp_str_of(functions[f].name)))
        f++;
    return (enum function)f;
}

/* True, False, None, or a variable that was assigned before. */
static bool read_named(struct reader *r, struct value *ret)
{
    const char *at = r->p;
    const struct sp_str name = read_name(r);

    *ret = (struct value){.type = BOOL};
    if (sp_str_eq(name, SP_STR("True")) || sp_str_eq(name, SP_STR("False")))
        return true;
    ret->type = NOTHING;
    if (sp_str_eq(name, SP_STR("None")))
        return true;
    const uint32_t number = sp_rules_find(&r->names, name);
    if (number != SP_RULES_NONE) {
        *ret = r->named[number];
        return true;
    }
    if (sp_str_is_any_of(name, keywords) || function_of(name) != FUNCTIONS || next(r) == '(' ||
        next(r) == '"' || next(r) == '\'')
        return fail_at(r, at, "unsupported expression");
    return fail_at(r, at, "variable `" SP_STR_FMT "` not found", SP_STR_ARG(name));
}

static bool read_term(struct reader *r, struct value *ret)
{
    const char c = next(r);

    if (at_string(r)) {
        *ret = (struct value){.type = STRING};
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
    return fail_at(r, r->p, "unsupported expression");
}

/* a + b, into a. */
static bool join(struct reader *r, const char *at, struct value *a, const struct value *b)
{
    if (a->type != b->type || (a->type != STRING && a->type != LIST && a->type != INT))
        return fail_at(r, at, "Operation `+` not supported for types `%s` and `%s`",
                       type_names[a->type], type_names[b->type]);
    if (a->type == STRING) {
        const size_t n = a->text.n + b->text.n;
        char *text = scratch_memory(r, n + 1, 1);

        if (text == NULL)
            return false;
        if (a->text.n != 0)
            memcpy(text, a->text.p, a->text.n);
        if (b->text.n != 0)
            memcpy(text + a->text.n, b->text.p, b->text.n);
        a->text = (struct sp_str){text, n};
    }
    if (a->type == LIST) {
        const size_t n = (size_t)a->count + b->count;
        struct value *items = scratch_memory(r, n + 1, sizeof *items);

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
static bool read_value(struct reader *r, struct value *ret)
{
    const char *at = r->p;
    struct value more = {0};

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

/* ---- assignments ---- */

/* NAME = VALUE; p is at the "=". */
static bool read_assignment(struct reader *r, struct sp_str name)
{
    struct value v = {0};

    if (sp_str_is_any_of(name, keywords))
        return fail_at(r, name.p, "unsupported expression");
    if (sp_str_eq(name, SP_STR("True")) || sp_str_eq(name, SP_STR("False")) ||
        sp_str_eq(name, SP_STR("None")) || function_of(name) != FUNCTIONS)
        return fail_at(r, name.p, "`" SP_STR_FMT "` cannot be given another value",
                       SP_STR_ARG(name));
    r->p++;
    skip_blanks(r);
    if (!read_value(r, &v))
        return false;
    const uint32_t *number = sp_rules_put(&r->names, name, r->names.count);
    if (number == NULL || (*number >= r->named_cap && !SP_GROW(r->named, *number, r->named_cap)))
        return no_memory(r);
    r->named[*number] = v;
    return true;
}

/* ---- arguments ---- */

/* Number, presence and type of the arguments, by the table above. */
static bool check_arguments(struct reader *r, const struct call *c)
{
    const struct parameter *known = functions[c->function].parameters;
    const char *function = functions[c->function].name;
    uint32_t count = 0;

    while (count < MAX_PARAMETERS && known[count].name != NULL)
        count++;
    if (c->positional > count)
        return fail_at(r, c->at, "Found %u extra positional argument(s) for call to %s",
                       c->positional - count, function);
    for (uint32_t i = 0; i < count; i++)
        if (known[i].is_needed && !c->is_given[i])
            return fail_at(r, c->at, "Missing parameter `%s` for call to `%s`", known[i].name,
                           function);
    for (uint32_t i = 0; i < count; i++) {
        const enum type type = c->values[i].type;

        if (!c->is_given[i] || type == known[i].type || (known[i].may_be_none && type == NOTHING))
            continue;
        return fail_at(r, c->at, "Type of parameter `%s` doesn't match, expected `%s`, actual `%s`",
                       known[i].name, known[i].type == LIST ? "list" : "str", type_names[type]);
    }
    return true;
}

/* Counts n more words of rules and examples. */
static bool count_words(struct reader *r, const char *at, size_t n)
{
    if (n > MAX_WORDS - r->words)
        return fail_at(r, at, "the rules and examples of this file have more than %u words",
                       MAX_WORDS);
    r->words += (uint32_t)n;
    return true;
}

/* Copies s into the memory of the part, or of the reader. */
static bool keep(struct reader *r, struct sp_arena *to, struct sp_str s, struct sp_str *ret)
{
    char *copy = take_memory(r, to, s.n + 1, 1);

    if (copy == NULL)
        return false;
    if (s.n != 0)
        memcpy(copy, s.p, s.n);
    *ret = (struct sp_str){copy, s.n};
    return true;
}

static bool take_justification(struct reader *r, const struct call *c, uint32_t index,
                               struct sp_str *ret)
{
    *ret = (struct sp_str){NULL, 0};
    if (!c->is_given[index] || c->values[index].type == NOTHING)
        return true;
    if (sp_utf8_trim(c->values[index].text).n == 0)
        return fail_at(r, c->at, "invalid rule: justification cannot be empty");
    return keep(r, &r->part->arena, c->values[index].text, ret);
}

/* The line of p, which is not before that of the call before. Each byte is counted once. */
static uint32_t line_at(struct reader *r, const char *p)
{
    for (; r->counted < p; r->counted++)
        r->line += *r->counted == '\n';
    return r->line;
}

/* Lists the call, which ends at r->p. */
static bool add_entry(struct reader *r, const struct call *c, struct sp_rules_entry x)
{
    struct sp_rules_part *p = r->part;

    if (!SP_GROW(p->entries, p->entry_count, p->entry_cap))
        return no_memory(r);
    x.line = line_at(r, c->at);
    x.last_line = line_at(r, r->p);
    x.from = (size_t)(c->at - r->text.p);
    x.to = (size_t)(r->p - r->text.p);
    p->entries[p->entry_count++] = x;
    return true;
}

/* ---- prefix_rule ---- */

/* One element of a pattern: a word, or a list of alternatives. */
static bool take_element(struct reader *r, const char *at, const struct value *v,
                         struct sp_words *ret)
{
    const struct value *items = v->type == LIST ? v->items : v;
    const uint32_t count = v->type == LIST ? v->count : 1;

    if (v->type != STRING && v->type != LIST)
        return fail_at(r, at,
                       "invalid pattern element: pattern element must be a string or list of "
                       "strings (got %s)",
                       type_names[v->type]);
    for (uint32_t i = 0; i < count; i++)
        if (items[i].type != STRING)
            return fail_at(r, at,
                           "invalid pattern element: pattern alternative must be a string (got %s)",
                           type_names[items[i].type]);
    if (count == 0)
        return fail_at(r, at, "invalid pattern element: pattern alternatives cannot be empty");
    if (!count_words(r, at, count))
        return false;
    struct sp_str *words = part_memory(r, count, sizeof *words);
    if (words == NULL)
        return false;
    *ret = (struct sp_words){words, count};
    for (uint32_t i = 0; i < count; i++)
        if (!keep(r, &r->part->arena, items[i].text, &words[i]))
            return false;
    return true;
}

/* *ret_words: the words of one rule of this pattern, with all alternatives behind the first. */
static bool take_pattern(struct reader *r, const struct call *c, struct sp_words **ret,
                         uint32_t *ret_words)
{
    const struct value *pattern = &c->values[PATTERN];

    struct sp_words *all = part_memory(r, (size_t)pattern->count + 1, sizeof *all);
    if (all == NULL)
        return false;
    *ret_words = 0;
    for (uint32_t i = 0; i < pattern->count; i++) {
        if (!take_element(r, c->at, &pattern->items[i], &all[i]))
            return false;
        *ret_words += i == 0 ? 1 : all[i].count;
    }
    if (pattern->count == 0)
        return fail_at(r, c->at, "invalid pattern element: pattern cannot be empty");
    *ret = all;
    return true;
}

/* Examples are shell command lines, or lists of words. */
static bool take_examples(struct reader *r, const struct call *c, uint32_t index,
                          const struct sp_words **ret, uint32_t *ret_count)
{
    const struct value *list = &c->values[index];

    *ret = NULL;
    *ret_count = c->is_given[index] ? list->count : 0;
    if (*ret_count == 0)
        return true;
    struct sp_words *all = scratch_memory(r, list->count, sizeof *all);
    if (all == NULL)
        return false;
    for (uint32_t i = 0; i < list->count; i++) {
        const struct value *v = &list->items[i];
        auto_segments struct sp_segments split = {0};
        struct sp_words line = {0};
        struct sp_err e = {0};

        if (v->type == STRING) {
            if (sp_words_split(&split, v->text, &e) < 0)
                return e.code == SP_E_INVALID
                           ? fail_at(r, c->at,
                                     "invalid example: example string has invalid shell syntax")
                           : no_memory(r);
            if (split.count == 0 || split.items[0].count == 0)
                return fail_at(r, c->at, "invalid example: example cannot be an empty string");
            line = split.items[0];
        } else if (v->type != LIST) {
            return fail_at(r, c->at,
                           "invalid example: example must be a string or list of strings (got %s)",
                           type_names[v->type]);
        }
        for (uint32_t k = 0; k < v->count; k++)
            if (v->items[k].type != STRING)
                return fail_at(r, c->at, "invalid example: example tokens must be strings (got %s)",
                               type_names[v->items[k].type]);
        if (v->type == LIST && v->count == 0)
            return fail_at(r, c->at, "invalid example: example cannot be an empty list");
        const uint32_t count = v->type == LIST ? v->count : line.count;
        if (!count_words(r, c->at, count))
            return false;
        struct sp_str *words = scratch_memory(r, count, sizeof *words);
        if (words == NULL)
            return false;
        for (uint32_t k = 0; k < count; k++) {
            if (v->type == LIST)
                words[k] = v->items[k].text;
            else if (!keep(r, &r->scratch, line.items[k], &words[k]))
                return false;
        }
        all[i] = (struct sp_words){words, count};
    }
    *ret = all;
    return true;
}

/* The first line is what Codex says; the second helps. `all` ends with NULL. */
static bool fail_decision(struct reader *r, const char *at, struct sp_str decision,
                          const char *const *all, const char *listed)
{
    struct sp_nearest near = sp_nearest_to(decision);
    char meant[60] = "";

    for (; *all != NULL; all++)
        sp_nearest_offer(&near, *all);
    if (near.best != NULL)
        (void)snprintf(meant, sizeof meant, "; did you mean `%s`?", near.best);
    return fail_at(r, at, "invalid decision: " SP_STR_FMT "\n    it can be %s%s",
                   SP_STR_ARG(decision), listed, meant);
}

/* Adds nothing to the part unless all arguments are valid. */
static bool execute_prefix(struct reader *r, const struct call *c)
{
    struct sp_rules_part *p = r->part;
    struct examples x = {.at = c->at, .first_rule = p->rule_count};
    struct sp_prefix_rule rule = {.rest_count = c->values[PATTERN].count - 1};
    struct sp_words *pattern = NULL;
    uint32_t words = 0;

    while (c->is_given[DECISION] && rule.verdict <= SP_VERDICT_FORBIDDEN &&
           !sp_str_eq(c->values[DECISION].text, sp_str_of(sp_verdict_name(rule.verdict))))
        rule.verdict++;
    if (rule.verdict > SP_VERDICT_FORBIDDEN)
        return fail_decision(r, c->at, c->values[DECISION].text,
                             (const char *const[]){"allow", "prompt", "forbidden", NULL},
                             "allow, prompt or forbidden");
    if (!take_justification(r, c, JUSTIFICATION, &rule.justification) ||
        !take_pattern(r, c, &pattern, &words) ||
        !take_examples(r, c, MATCH, &x.match, &x.match_count) ||
        !take_examples(r, c, NOT_MATCH, &x.not_match, &x.not_match_count) || pattern == NULL)
        return false;
    if (!count_words(r, c->at, (size_t)pattern[0].count * words))
        return false;
    /* One rule for each alternative of the first word; all share the rest of the pattern. */
    rule.rest = pattern + 1;
    for (uint32_t i = 0; i < pattern[0].count; i++) {
        if (!SP_GROW(p->rules, p->rule_count, p->rule_cap))
            return no_memory(r);
        rule.first = pattern[0].items[i];
        p->rules[p->rule_count++] = rule;
    }
    x.rule_count = p->rule_count - x.first_rule;
    const struct sp_rules_entry entry = {.kind = SP_RULES_PREFIX,
                                         .decision = sp_str_of(sp_verdict_name(rule.verdict)),
                                         .pattern = pattern,
                                         .count = rule.rest_count + 1,
                                         .justification = rule.justification};
    if (!add_entry(r, c, entry))
        return false;
    if (x.match_count + x.not_match_count == 0)
        return true;
    if (!SP_GROW(r->examples, r->example_count, r->example_cap))
        return no_memory(r);
    r->examples[r->example_count++] = x;
    return true;
}

/* ---- network_rule ---- */

static bool execute_network(struct reader *r, const struct call *c)
{
    static const char *const protocols[][2] = {
        {"http", "http"},          {"https", "https"},           {"https_connect", "https"},
        {"http-connect", "https"}, {"socks5_tcp", "socks5_tcp"}, {"socks5_udp", "socks5_udp"},
    };
    static const char *const decisions[][2] = {
        {"allow", "allow"}, {"prompt", "prompt"}, {"deny", "deny"}, {"forbidden", "deny"}};
    const struct sp_str host = c->values[HOST].text;
    const struct sp_str protocol = c->values[PROTOCOL].text;
    const struct sp_str decision = c->values[HOST_DECISION].text;
    struct sp_rules_part *p = r->part;
    struct sp_network_rule rule = {0};

    for (size_t i = 0; i < sizeof protocols / sizeof *protocols; i++)
        if (sp_str_eq(protocol, sp_str_of(protocols[i][0])))
            rule.protocol = sp_str_of(protocols[i][1]);
    if (rule.protocol.p == NULL) {
        struct sp_nearest near = sp_nearest_to(protocol);

        for (size_t i = 0; i < sizeof protocols / sizeof *protocols; i++)
            sp_nearest_offer(&near, protocols[i][0]);
        return fail_at(r, c->at,
                       "invalid rule: network_rule protocol must be one of http, https, "
                       "socks5_tcp, socks5_udp (got " SP_STR_FMT ")%s%s%s",
                       SP_STR_ARG(protocol), near.best != NULL ? "\n    did you mean `" : "",
                       near.best != NULL ? near.best : "", near.best != NULL ? "`?" : "");
    }
    for (size_t i = 0; i < sizeof decisions / sizeof *decisions; i++)
        if (sp_str_eq(decision, sp_str_of(decisions[i][0])))
            rule.decision = sp_str_of(decisions[i][1]);
    if (rule.decision.p == NULL)
        return fail_decision(r, c->at, decision,
                             (const char *const[]){"allow", "prompt", "deny", NULL},
                             "allow, prompt or deny");
    if (!take_justification(r, c, HOST_JUSTIFICATION, &rule.justification))
        return false;
    char *room = part_memory(r, host.n + 1, 1);
    if (room == NULL)
        return false;
    const char *wrong = sp_hostname_normal(host, room, &rule.host);
    if (wrong != NULL) /* texts that end in a blank want the host behind them */
        return fail_at(r, c->at, "invalid rule: network_rule host %s" SP_STR_FMT, wrong,
                       SP_STR_ARG(wrong[strlen(wrong) - 1] == ' ' ? host : SP_STR("")));
    if (!count_words(r, c->at, 1))
        return false;
    if (!SP_GROW(p->network, p->network_count, p->network_cap))
        return no_memory(r);
    p->network[p->network_count++] = rule;
    const struct sp_rules_entry entry = {.kind = SP_RULES_NETWORK,
                                         .decision = rule.decision,
                                         .host = rule.host,
                                         .protocol = rule.protocol,
                                         .justification = rule.justification};
    return add_entry(r, c, entry);
}

/* ---- host_executable ---- */

/* Each path is absolute, with the name of the program as its last component. */
static bool execute_host(struct reader *r, const struct call *c)
{
    const struct value *list = &c->values[PATHS];
    const struct sp_str name = c->values[NAME].text;
    struct sp_host_executable host = {.count = list->count};
    struct sp_rules_part *p = r->part;
    bool climbs;

    if (name.n == 0)
        return fail_at(r, c->at, "invalid rule: host_executable name cannot be empty");
    if (memchr(name.p, '/', name.n) != NULL || sp_str_eq(name, SP_STR(".")) ||
        sp_str_eq(name, SP_STR("..")))
        return fail_at(r, c->at,
                       "invalid rule: host_executable name must be a bare executable name "
                       "(got " SP_STR_FMT ")",
                       SP_STR_ARG(name));
    if (!keep(r, &p->arena, name, &host.name) || !count_words(r, c->at, (size_t)list->count + 1))
        return false;
    struct sp_str *paths = part_memory(r, (size_t)list->count + 1, sizeof *paths);
    if (paths == NULL)
        return false;
    for (uint32_t i = 0; i < list->count; i++) {
        const struct value *v = &list->items[i];

        if (v->type != STRING)
            return fail_at(r, c->at, "invalid rule: host_executable paths must be strings (got %s)",
                           type_names[v->type]);
        if (v->text.n == 0 || v->text.p[0] != '/')
            return fail_at(r, c->at,
                           "invalid rule: host_executable paths must be absolute "
                           "(got " SP_STR_FMT ")",
                           SP_STR_ARG(v->text));
        char *room = part_memory(r, v->text.n + 1, 1);
        if (room == NULL)
            return false;
        paths[i] = sp_rules_normal_path(v->text, room, &climbs);
        if (!sp_str_eq(sp_base_name(paths[i]), name))
            return fail_at(r, c->at,
                           "invalid rule: host_executable path `" SP_STR_FMT
                           "` must have basename `" SP_STR_FMT "`",
                           SP_STR_ARG(v->text), SP_STR_ARG(name));
    }
    host.paths = paths;
    if (!SP_GROW(p->hosts, p->host_count, p->host_cap))
        return no_memory(r);
    p->hosts[p->host_count++] = host;
    const struct sp_rules_entry entry = {
        .kind = SP_RULES_PROGRAM, .program = host.name, .paths = {paths, host.count}};
    return add_entry(r, c, entry);
}

/* ---- calls ---- */

/* Whether "=" is at p, and not "==". */
static bool is_at_assignment(const struct reader *r)
{
    return next(r) == '=' && !is_at(r, "==");
}

static bool fail_unknown_function(struct reader *r, struct sp_str name)
{
    struct sp_nearest near = sp_nearest_to(name);

    if (sp_str_is_any_of(name, keywords))
        return fail_at(r, name.p, "unsupported expression");
    for (int i = 0; i < FUNCTIONS; i++)
        sp_nearest_offer(&near, functions[i].name);
    return near.best != NULL
               ? fail_at(r, name.p, "there is no `" SP_STR_FMT "`; did you mean `%s`?",
                         SP_STR_ARG(name), near.best)
               : fail_at(r, name.p,
                         "there is no `" SP_STR_FMT
                         "`: a rule is prefix_rule, network_rule or host_executable",
                         SP_STR_ARG(name));
}

/* The first line is what Codex says; the second helps. */
static void fail_parameter(struct reader *r, const struct call *c, struct sp_str name,
                           struct sp_str unknown)
{
    struct sp_nearest near = sp_nearest_to(unknown);

    for (size_t i = 0; i < MAX_PARAMETERS; i++)
        if (functions[c->function].parameters[i].name != NULL)
            sp_nearest_offer(&near, functions[c->function].parameters[i].name);
    (void)fail_at(
        r, name.p,
        "Found `" SP_STR_FMT "` extra named parameter(s) for call to " SP_STR_FMT "%s%s%s",
        SP_STR_ARG(unknown), SP_STR_ARG(name), near.best != NULL ? "\n    did you mean `" : "",
        near.best != NULL ? near.best : "", near.best != NULL ? "`?" : "");
}

/* NAME(ARGUMENT, ...), p is at the "(". Errors in arguments are reported after all were read, at
 * the beginning of the call. After an error in the meaning of a call, not in its syntax, parsing
 * goes on if all errors are wanted. */
static bool read_call(struct reader *r, struct sp_str name)
{
    static bool (*const execute[])(struct reader * r, const struct call *c) = {
        [PREFIX_RULE] = execute_prefix,
        [NETWORK_RULE] = execute_network,
        [HOST_EXECUTABLE] = execute_host,
    };
    struct call c = {.function = function_of(name), .at = name.p};
    struct sp_str unknown = {0}; /* p NULL: none */
    struct sp_str twice = {0};
    bool has_keyword = false;
    bool is_good = false;

    if (c.function == FUNCTIONS)
        return fail_unknown_function(r, name);
    if (!enter_bracket(r, r->p))
        return false;
    r->p++;
    for (skip_blanks(r); next(r) != ')'; skip_blanks(r)) {
        const char *at = r->p;
        struct sp_str keyword = {0};
        struct value v = {0};
        uint32_t i = 0;

        if (at_name(r))
            keyword = read_name(r);
        skip_blanks(r);
        if (keyword.p != NULL && is_at_assignment(r)) {
            r->p++;
            skip_blanks(r);
        } else { /* a positional argument */
            keyword.p = NULL;
            r->p = at;
        }
        if (!read_value(r, &v))
            return false;
        if (keyword.p == NULL && has_keyword)
            return fail_at(r, at, "positional argument after non positional");
        has_keyword |= keyword.p != NULL;
        if (keyword.p == NULL)
            i = c.positional++;
        while (keyword.p != NULL && i < MAX_PARAMETERS &&
               (functions[c.function].parameters[i].name == NULL ||
                !sp_str_eq(keyword, sp_str_of(functions[c.function].parameters[i].name))))
            i++;
        if (i >= MAX_PARAMETERS) {
            unknown = keyword.p != NULL ? keyword : unknown;
        } else if (keyword.p != NULL && c.is_given[i]) {
            twice = keyword;
        } else {
            c.is_given[i] = true;
            c.values[i] = v;
        }
        if (next(r) == ')')
            break;
        if (next(r) != ',')
            return fail_expecting(r, "`)`");
        r->p++;
    }
    r->p++;
    r->depth--;
    if (twice.p != NULL)
        (void)fail_at(r, name.p, "Argument `" SP_STR_FMT "` occurs more than once",
                      SP_STR_ARG(twice));
    else if (unknown.p != NULL)
        fail_parameter(r, &c, name, unknown);
    else
        is_good = check_arguments(r, &c) && execute[c.function](r, &c);
    return is_good || r->tell != NULL;
}

/* ---- examples: does one match ---- */

/* The rules of a call differ only in their first word. */
static bool matches_named(const struct sp_prefix_rule *rules, uint32_t count, struct sp_str name,
                          struct sp_words example)
{
    if (example.count < rules[0].rest_count + 1)
        return false;
    for (uint32_t i = 0; i < rules[0].rest_count; i++)
        if (!sp_rules_element_has(&rules[0].rest[i], example.items[i + 1]))
            return false;
    for (uint32_t i = 0; i < count; i++)
        if (sp_str_eq(rules[i].first, name))
            return true;
    return false;
}

static bool matches(struct reader *r, const struct sp_rules_hosts *hosts, const struct examples *x,
                    struct sp_words example, bool *ret)
{
    const struct sp_prefix_rule *rules = &r->part->rules[x->first_rule];
    const struct sp_str first = example.items[0];
    bool climbs;

    *ret = matches_named(rules, x->rule_count, first, example);
    if (*ret || first.n == 0 || first.p[0] != '/')
        return true;
    char *room = scratch_memory(r, first.n + 1, 1);
    if (room == NULL)
        return false;
    const struct sp_str path = sp_rules_normal_path(first, room, &climbs);
    if ((!climbs || rules[0].verdict != SP_VERDICT_ALLOW) && path.n > 1 &&
        sp_rules_hosts_allow(hosts, path))
        *ret = matches_named(rules, x->rule_count, sp_base_name(path), example);
    return true;
}

/* ---- examples: error messages ---- */

static bool add_element(struct sp_buf *out, const struct sp_str *words, uint32_t count)
{
    bool is_good = count == 1 || sp_buf_add(out, "[", 1);

    for (uint32_t i = 0; is_good && i < count && out->len <= SHOWN_RULE; i++)
        is_good = (i == 0 || sp_buf_add(out, ", ", 2)) && sp_json_add_str(out, words[i]);
    return is_good && (count == 1 || sp_buf_add(out, "]", 1));
}

/* Truncates at a character boundary. */
static void cut(struct sp_buf *b, size_t max)
{
    if (b->len <= max)
        return;
    b->len = max;
    while (b->len > 0 && ((unsigned char)b->data[b->len] & 0xC0) == 0x80)
        b->len--;
    (void)sp_buf_add(b, "...", 3); /* cannot fail: the text was longer before */
}

/* Appends the pattern in the syntax of prefix_rule. */
static bool add_rule(struct sp_buf *out, const struct sp_prefix_rule *rules, uint32_t count)
{
    bool is_good = sp_buf_add_str(out, SP_STR("prefix_rule(["));

    if (count > 1)
        is_good = is_good && sp_buf_add(out, "[", 1);
    for (uint32_t i = 0; is_good && i < count && out->len <= SHOWN_RULE; i++)
        is_good = (i == 0 || sp_buf_add(out, ", ", 2)) && sp_json_add_str(out, rules[i].first);
    if (count > 1)
        is_good = is_good && sp_buf_add(out, "]", 1);
    for (uint32_t i = 0; is_good && i < rules[0].rest_count && out->len <= SHOWN_RULE; i++)
        is_good = sp_buf_add(out, ", ", 2) &&
                  add_element(out, rules[0].rest[i].items, rules[0].rest[i].count);
    is_good = is_good && sp_buf_add_str(out, SP_STR("])"));
    cut(out, SHOWN_RULE);
    return is_good;
}

/* ---- examples: all calls ---- */

static bool check_not_match(struct reader *r, const struct sp_rules_hosts *hosts,
                            const struct examples *x)
{
    bool does;

    for (uint32_t i = 0; i < x->not_match_count; i++) {
        auto_buf struct sp_buf rule = {0};
        auto_buf struct sp_buf text = {0};

        if (!matches(r, hosts, x, x->not_match[i], &does))
            return false;
        if (!does)
            continue;
        if (!add_rule(&rule, &r->part->rules[x->first_rule], x->rule_count) ||
            !sp_words_add_quoted(&text, x->not_match[i]))
            return no_memory(r);
        cut(&text, SHOWN_EXAMPLES);
        (void)fail_at(r, x->at, "expected example to not match rule `%.*s`: %.*s", (int)rule.len,
                      rule.data, (int)text.len, text.data);
        if (r->tell == NULL)
            return false;
    }
    return true;
}

static bool check_match(struct reader *r, const struct sp_rules_hosts *hosts,
                        const struct examples *x)
{
    auto_buf struct sp_buf unmatched = {0};
    auto_buf struct sp_buf rule = {0};
    bool does;

    for (uint32_t i = 0; i < x->match_count; i++) {
        if (!matches(r, hosts, x, x->match[i], &does))
            return false;
        auto_buf struct sp_buf text = {0};
        if (!does && unmatched.len <= SHOWN_EXAMPLES &&
            ((unmatched.len != 0 && !sp_buf_add(&unmatched, ", ", 2)) ||
             !sp_words_add_quoted(&text, x->match[i]) ||
             !sp_json_add_str(&unmatched, sp_buf_str(&text))))
            return no_memory(r);
    }
    if (unmatched.len == 0)
        return true;
    if (!add_rule(&rule, &r->part->rules[x->first_rule], x->rule_count))
        return no_memory(r);
    cut(&unmatched, SHOWN_EXAMPLES);
    (void)fail_at(r, x->at,
                  "expected every example to match at least one rule. rules: [%.*s]; "
                  "unmatched examples: [%.*s]",
                  (int)rule.len, rule.data, (int)unmatched.len, unmatched.data);
    return r->tell != NULL;
}

static void check_examples(struct reader *r)
{
    struct sp_rules_hosts hosts = {0};
    uint64_t work = 0; /* comparisons that the examples of a file cost: bounded */
    bool is_good = true;

    for (uint32_t i = 0; is_good && i < r->before->count; i++)
        is_good = sp_rules_hosts_add(&hosts, r->before->items[i]);
    is_good = is_good && sp_rules_hosts_add(&hosts, r->part);
    if (!is_good)
        (void)no_memory(r);
    for (uint32_t i = 0; is_good && i < r->example_count; i++) {
        const struct examples *x = &r->examples[i];
        const struct sp_prefix_rule *rule = &r->part->rules[x->first_rule];
        uint64_t words = x->rule_count;

        for (uint32_t k = 0; k < rule->rest_count; k++)
            words += rule->rest[k].count;
        work += words * ((uint64_t)x->match_count + x->not_match_count);
        is_good = work <= MAX_WORK
                      ? check_not_match(r, &hosts, x) && check_match(r, &hosts, x)
                      : fail_at(r, x->at, "too many examples for so many alternatives");
    }
    sp_rules_hosts_done(&hosts);
}

/* ---- a whole text ---- */

static bool read_statements(struct reader *r)
{
    const size_t valid = sp_utf8_valid_prefix(r->text);
    const char *nul = r->text.n == 0 ? NULL : memchr(r->text.p, 0, r->text.n);

    if (r->text.n > SP_RULES_MAX_BYTES)
        return fail_at(r, r->text.p, "the file has more than %d bytes", SP_RULES_MAX_BYTES);
    if (nul != NULL && (size_t)(nul - r->text.p) <= valid)
        return fail_at(r, nul, "a NUL byte");
    if (valid != r->text.n)
        return fail_at(r, r->text.p + valid, "not valid UTF-8");
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
            return fail_at(r, line, "unexpected indentation");
        if (!at_name(r) || at_string(r))
            return fail_at(r, r->p, "unsupported expression");
        const struct sp_str name = read_name(r);
        skip_blanks(r);
        const bool is_good = is_at_assignment(r) ? read_assignment(r, name)
                             : next(r) == '('    ? read_call(r, name)
                                                 : fail_at(r, name.p, "unsupported expression");
        if (!is_good)
            return false;
        skip_blanks(r);
        if (!at_end(r) && *r->p != '\n')
            return fail_expecting(r, "the end of the line");
    }
}

int sp_rules_add_text(struct sp_rules_maker *m, const char *name, struct sp_str text,
                      void (*tell)(void *user, const char *text), void *user, struct sp_err *e)
{
    struct sp_err unheard = {0};
    struct reader r = {.name = name,
                       .text = text,
                       .p = text.p,
                       .before = &m->parts,
                       .part = sp_rules_part_new(name),
                       .tell = tell,
                       .user = user,
                       .e = e == NULL ? &unheard : e};

    if (r.text.n == 0)
        r.text.p = r.p = "";
    r.counted = r.text.p;
    r.line = 1;
    if (r.part == NULL)
        (void)no_memory(&r);
    else if (read_statements(&r))
        check_examples(&r);
    if (r.faults == 0 && !sp_rules_parts_add(&m->parts, r.part))
        (void)no_memory(&r);
    sp_arena_done(&r.scratch);
    sp_rules_table_done(&r.names);
    free(r.named);
    free(r.examples);
    sp_rules_part_unref(r.part);
    return r.faults == 0 ? 0 : -(int)r.e->code;
}
