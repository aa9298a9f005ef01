/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Statements and values of a rule file. What the language of the peer has beyond them is named as
 * what it is: unsupported.
 */
#include "approve/rules/rules_priv.h"

const char *sp_rules_type_name(enum sp_rules_type type)
{
    static const char *const names[] = {"NoneType", "bool", "int", "string", "list"};

    return names[type];
}

static char next(const struct sp_rules_reader *r)
{
    return sp_rules_at_end(r) ? 0 : *r->p;
}

bool sp_rules_enter(struct sp_rules_reader *r, const char *at)
{
    if (r->depth == SP_RULES_MAX_DEPTH)
        return sp_rules_fail(r, at, "nested deeper than %d", SP_RULES_MAX_DEPTH);
    r->depth++;
    return true;
}

/* Something else stands where only the end of a line, a comma or a bracket may. */
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

/* ---- terms ---- */

static bool is_digit_of(char c, int base)
{
    if (base == 16 && (c | 0x20) >= 'a' && (c | 0x20) <= 'f')
        return true;
    return c >= '0' && c <= (base < 10 ? '0' + base - 1 : '9');
}

/* An integer; nobody asks for its value. */
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
    if (r->p < end && (*r->p == '.' || sp_rules_at_name(r)))
        return sp_rules_fail(r, from, "unsupported expression");
    *ret = (struct sp_rules_value){.type = SP_RULES_INT};
    return true;
}

/* One more at the end of a list that is read; its memory doubles. */
static bool add_item(struct sp_rules_reader *r, struct sp_rules_value **items, uint32_t *cap,
                     uint32_t count, const struct sp_rules_value *item)
{
    if (count == *cap) {
        const uint32_t more = *cap == 0 ? 4 : *cap * 2;
        struct sp_rules_value *copy = sp_rules_memory(r, more, sizeof *copy);

        if (copy == NULL)
            return false;
        if (count != 0)
            memcpy(copy, *items, count * sizeof *copy);
        *items = copy;
        *cap = more;
    }
    (*items)[count] = *item;
    return true;
}

static bool read_list(struct sp_rules_reader *r, struct sp_rules_value *ret)
{
    struct sp_rules_value *items = NULL;
    struct sp_rules_value item = {0};
    uint32_t count = 0;
    uint32_t cap = 0;

    if (!sp_rules_enter(r, r->p))
        return false;
    r->p++;
    for (sp_rules_skip_blanks(r); next(r) != ']'; sp_rules_skip_blanks(r)) {
        if (!sp_rules_read_value(r, &item) || !add_item(r, &items, &cap, count, &item))
            return false;
        count++;
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
    if (!sp_rules_enter(r, r->p))
        return false;
    r->p++;
    sp_rules_skip_blanks(r);
    if (next(r) == ')')
        return sp_rules_fail(r, r->p, "unsupported expression");
    if (!sp_rules_read_value(r, ret))
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

static bool read_named(struct sp_rules_reader *r, struct sp_rules_value *ret)
{
    const char *at = r->p;
    struct sp_str name;

    (void)sp_rules_read_name(r, &name);
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

    if (sp_rules_at_string(r)) {
        *ret = (struct sp_rules_value){.type = SP_RULES_STRING};
        return sp_rules_read_string(r, &ret->text);
    }
    if (c == '[')
        return read_list(r, ret);
    if (c == '(')
        return read_parentheses(r, ret);
    if (c >= '0' && c <= '9')
        return read_integer(r, ret);
    if (sp_rules_at_name(r))
        return read_named(r, ret);
    if (c == 0 || c == '\n' || c == ',' || c == ')' || c == ']')
        return fail_expecting(r, "a value");
    return sp_rules_fail(r, r->p, "unsupported expression");
}

/* ---- sums ---- */

static bool join_texts(struct sp_rules_reader *r, struct sp_rules_value *a,
                       const struct sp_rules_value *b)
{
    const size_t n = a->text.n + b->text.n;
    char *text = sp_rules_memory(r, n + 1, 1);

    if (text == NULL)
        return false;
    if (a->text.n != 0)
        memcpy(text, a->text.p, a->text.n);
    if (b->text.n != 0)
        memcpy(text + a->text.n, b->text.p, b->text.n);
    a->text = (struct sp_str){text, n};
    return true;
}

static bool join_lists(struct sp_rules_reader *r, struct sp_rules_value *a,
                       const struct sp_rules_value *b)
{
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
    return true;
}

static bool join(struct sp_rules_reader *r, const char *at, struct sp_rules_value *a,
                 const struct sp_rules_value *b)
{
    if (a->type == b->type && a->type == SP_RULES_STRING)
        return join_texts(r, a, b);
    if (a->type == b->type && a->type == SP_RULES_LIST)
        return join_lists(r, a, b);
    if (a->type == b->type && a->type == SP_RULES_INT)
        return true;
    return sp_rules_fail(r, at, "Operation `+` not supported for types `%s` and `%s`",
                         sp_rules_type_name(a->type), sp_rules_type_name(b->type));
}

bool sp_rules_read_value(struct sp_rules_reader *r, struct sp_rules_value *ret)
{
    const char *at = r->p;
    struct sp_rules_value more = {0};

    if (!read_term(r, ret))
        return false;
    for (sp_rules_skip_blanks(r); next(r) == '+'; sp_rules_skip_blanks(r)) {
        r->p++;
        sp_rules_skip_blanks(r);
        if (!read_term(r, &more) || !join(r, at, ret, &more))
            return false;
    }
    return true;
}

/* ---- statements ---- */

static bool assign(struct sp_rules_reader *r, struct sp_str name, const struct sp_rules_value *v)
{
    uint32_t *number = sp_rules_put(&r->names, name, r->names.count);
    void *array = r->named;

    if (number == NULL)
        return sp_rules_no_memory(r);
    if (*number >= r->named_cap &&
        sp_rules_grow(r->named, *number, &r->named_cap, sizeof *r->named, &array) == NULL)
        return sp_rules_no_memory(r);
    r->named = array;
    r->named[*number] = *v;
    return true;
}

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
    sp_rules_skip_blanks(r);
    return sp_rules_read_value(r, &v) && assign(r, name, &v);
}

/* NAME = in front of an argument, if it is there. */
static bool read_keyword(struct sp_rules_reader *r, struct sp_str *ret)
{
    const char *from = r->p;

    *ret = (struct sp_str){NULL, 0};
    if (!sp_rules_at_name(r))
        return false;
    (void)sp_rules_read_name(r, ret);
    sp_rules_skip_blanks(r);
    if (next(r) == '=' && (r->p + 1 == r->text.p + r->text.n || r->p[1] != '=')) {
        r->p++;
        sp_rules_skip_blanks(r);
        return true;
    }
    r->p = from;
    return false;
}

/* Faults of an argument are told once all have been read, as faults of the call. */
struct arguments {
    struct sp_rules_call call;
    struct sp_str unknown, twice; /* p NULL: none */
    bool has_keyword;
};

static void place_named(struct arguments *a, struct sp_str name, const struct sp_rules_value *v)
{
    const uint32_t i = sp_rules_parameter(a->call.function, name);

    a->has_keyword = true;
    if (i == SP_RULES_MAX_PARAMETERS) {
        a->unknown = name;
    } else if (a->call.is_given[i]) {
        a->twice = name;
    } else {
        a->call.is_given[i] = true;
        a->call.values[i] = *v;
    }
}

static bool read_argument(struct sp_rules_reader *r, struct arguments *a)
{
    const char *at = r->p;
    struct sp_rules_value v = {0};
    struct sp_str name;
    const bool is_named = read_keyword(r, &name);

    if (!sp_rules_read_value(r, &v))
        return false;
    if (is_named) {
        place_named(a, name, &v);
        return true;
    }
    if (a->has_keyword)
        return sp_rules_fail(r, at, "positional argument after non positional");
    const uint32_t i = a->call.positional++;
    if (i < SP_RULES_MAX_PARAMETERS) {
        a->call.is_given[i] = true;
        a->call.values[i] = v;
    }
    return true;
}

static bool read_arguments(struct sp_rules_reader *r, struct arguments *a)
{
    if (!sp_rules_enter(r, r->p))
        return false;
    r->p++;
    for (sp_rules_skip_blanks(r); next(r) != ')'; sp_rules_skip_blanks(r)) {
        if (!read_argument(r, a))
            return false;
        if (next(r) == ')')
            break;
        if (next(r) != ',')
            return fail_expecting(r, "`)`");
        r->p++;
    }
    r->p++;
    r->depth--;
    return true;
}

/* Faults in what a call says, not in how it is written: whoever wants all faults hears more. */
static bool read_call(struct sp_rules_reader *r, struct sp_str name)
{
    struct arguments a = {.call = {.function = sp_rules_function(name), .at = name.p}};
    bool is_good = false;

    if (a.call.function == SP_RULES_FUNCTIONS)
        return sp_rules_fail(r, name.p, "unsupported expression");
    if (!read_arguments(r, &a))
        return false;
    if (a.twice.p != NULL)
        (void)sp_rules_fail(r, name.p, "Argument `" SP_STR_FMT "` occurs more than once",
                            SP_STR_ARG(a.twice));
    else if (a.unknown.p != NULL)
        (void)sp_rules_fail(
            r, name.p, "Found `" SP_STR_FMT "` extra named parameter(s) for call to " SP_STR_FMT,
            SP_STR_ARG(a.unknown), SP_STR_ARG(name));
    else
        is_good = sp_rules_carry_out(r, &a.call);
    return is_good || r->tell != NULL;
}

static bool read_statement(struct sp_rules_reader *r)
{
    struct sp_str name;

    if (!sp_rules_at_name(r) || sp_rules_at_string(r))
        return sp_rules_fail(r, r->p, "unsupported expression");
    (void)sp_rules_read_name(r, &name);
    sp_rules_skip_blanks(r);
    if (next(r) == '=' && (r->p + 1 == r->text.p + r->text.n || r->p[1] != '='))
        return read_assignment(r, name);
    if (next(r) == '(')
        return read_call(r, name);
    return sp_rules_fail(r, name.p, "unsupported expression");
}

bool sp_rules_read_file(struct sp_rules_reader *r)
{
    for (;;) {
        const char *line = r->p;

        sp_rules_skip_blanks(r);
        if (sp_rules_at_end(r))
            return true;
        if (*r->p == '\n') {
            r->p++;
            continue;
        }
        if (r->p != line)
            return sp_rules_fail(r, line, "unexpected indentation");
        if (!read_statement(r))
            return false;
        sp_rules_skip_blanks(r);
        if (!sp_rules_at_end(r) && *r->p != '\n')
            return fail_expecting(r, "the end of the line");
    }
}
