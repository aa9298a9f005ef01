/* SPDX-License-Identifier: Apache-2.0 */
#include "mcp/arguments.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>

#include "base/ere.h"
#include "sandbox/policy_words.h"

/* Both lists of slots, in one table. */
static int read_both(struct sp_arguments *a, struct sp_slots own, struct sp_slots more,
                     struct sp_err *e)
{
    struct sp_slot all[SP_SLOTS_MAX];

    assert(own.count + more.count <= SP_SLOTS_MAX);
    memcpy(all, own.items, own.count * sizeof *all);
    if (more.count != 0)
        memcpy(all + own.count, more.items, more.count * sizeof *all);
    own.items = all;
    own.count += more.count;
    return sp_slots_read(a, own, e);
}

/* text p NULL: MCP's wording of errors, and `cmd` is optional. */
static int read_exec(struct sp_arguments *a, struct sp_str text, const struct sp_tools_options *o,
                     struct sp_slots more, struct sp_exec_ask *ret, struct sp_err *e)
{
    struct sp_str ignored = {0}; /* takes `shell` where it is fixed */
    const struct sp_slot slots[] = {
        {.name = "cmd", .type = SP_SLOT_STRING, .to = &ret->cmd, .is_needed = text.p != NULL},
        {.name = "workdir", .type = SP_SLOT_STRING, .to = &ret->workdir},
        {.name = "tty", .type = SP_SLOT_BOOL, .to = &ret->is_tty},
        {.name = "yield_time_ms",
         .type = SP_SLOT_U64,
         .to = &ret->yield.yield_time_ms,
         .has = &ret->yield.has_yield_time},
        {.name = "max_output_tokens",
         .type = SP_SLOT_USIZE,
         .to = &ret->max_tokens,
         .has = &ret->has_max_tokens},
        {.name = "shell",
         .type = SP_SLOT_STRING,
         .to = o->has_fixed_shell ? &ignored : &ret->shell},
        {.name = "login", .type = SP_SLOT_BOOL, .to = &ret->login, .has = &ret->has_login},
        {.name = "environment_id", .type = SP_SLOT_STRING, .to = &ret->environment_id},
        {.name = "sandbox_permissions",
         .type = SP_SLOT_PERMISSIONS,
         .to = &ret->permissions,
         .has = &ret->has_permissions},
        {.name = "additional_permissions", .type = SP_SLOT_GRANT, .to = &ret->additional},
        {.name = "justification", .type = SP_SLOT_STRING, .to = &ret->justification},
        {.name = "prefix_rule",
         .type = SP_SLOT_WORDS,
         .to = &ret->prefix_rule,
         .count = &ret->prefix_rule_count},
    };
    struct sp_slots own = SP_SLOTS(slots);

    own.text = text;
    return read_both(a, own, more, e);
}

static int read_write(struct sp_arguments *a, struct sp_str text, const struct sp_tools_options *o,
                      struct sp_slots more, struct sp_write_ask *ret, struct sp_err *e)
{
    const struct sp_slot slots[] = {
        {.name = "session_id", .type = SP_SLOT_I32, .to = &ret->session_id, .is_needed = true},
        {.name = "chars", .type = SP_SLOT_STRING, .to = &ret->chars},
        {.name = "yield_time_ms",
         .type = SP_SLOT_U64,
         .to = &ret->yield.yield_time_ms,
         .has = &ret->yield.has_yield_time},
        {.name = "max_output_tokens",
         .type = SP_SLOT_USIZE,
         .to = &ret->max_tokens,
         .has = &ret->has_max_tokens},
        {.name = "no_timeout", .type = SP_SLOT_BOOL, .to = &ret->no_timeout},
    };
    struct sp_slots own = SP_SLOTS(slots);

    own.text = text;
    own.count -= !o->has_no_timeout; /* without the feature, the last member is unknown */
    return read_both(a, own, more, e);
}

int sp_arguments_exec(struct sp_arguments *a, struct sp_str text, const struct sp_tools_options *o,
                      struct sp_exec_ask *ret, struct sp_err *e)
{
    const int r = sp_arguments_parse(a, text, e);

    return r < 0 ? r : read_exec(a, text, o, (struct sp_slots){0}, ret, e);
}

int sp_arguments_write(struct sp_arguments *a, struct sp_str text, const struct sp_tools_options *o,
                       struct sp_write_ask *ret, struct sp_err *e)
{
    const int r = sp_arguments_parse(a, text, e);

    return r < 0 ? r : read_write(a, text, o, (struct sp_slots){0}, ret, e);
}

int sp_arguments_exec_with(struct sp_arguments *a, const struct sp_tools_options *o,
                           struct sp_slots more, struct sp_exec_ask *ret, struct sp_err *e)
{
    return read_exec(a, (struct sp_str){0}, o, more, ret, e);
}

int sp_arguments_write_with(struct sp_arguments *a, const struct sp_tools_options *o,
                            struct sp_slots more, struct sp_write_ask *ret, struct sp_err *e)
{
    return read_write(a, (struct sp_str){0}, o, more, ret, e);
}

int sp_arguments_permissions(struct sp_arguments *a, struct sp_str text,
                             struct sp_permissions_ask *ret, struct sp_err *e)
{
    const struct sp_slot slots[] = {
        {.name = "permissions", .type = SP_SLOT_GRANT, .to = &ret->permissions, .is_needed = true},
        {.name = "reason", .type = SP_SLOT_STRING, .to = &ret->reason},
        {.name = "environment_id", .type = SP_SLOT_STRING, .to = &ret->environment_id},
    };
    struct sp_slots all = SP_SLOTS(slots);
    const int r = sp_arguments_parse(a, text, e);

    all.text = text;
    return r < 0 ? r : sp_slots_read(a, all, e);
}

int sp_arguments_compat(struct sp_arguments *a, struct sp_str text, struct sp_compat_ask *ret,
                        struct sp_err *e)
{
    const struct sp_slot slots[] = {
        {.name = "input",
         .type = SP_SLOT_WORDS,
         .to = &ret->input,
         .count = &ret->input_count,
         .is_needed = true},
        {.name = "session_id", .type = SP_SLOT_STRING, .to = &ret->session_id},
        {.name = "timeout_ms",
         .type = SP_SLOT_U64,
         .to = &ret->timeout.yield_time_ms,
         .has = &ret->timeout.has_yield_time},
    };
    struct sp_slots all = SP_SLOTS(slots);
    const int r = sp_arguments_parse(a, text, e);

    all.text = text;
    return r < 0 ? r : sp_slots_read(a, all, e);
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

bool sp_compat_add_input(struct sp_buf *out, const struct sp_str *input, uint32_t count)
{
    const size_t mark = out->len;

    for (uint32_t i = 0; i < count; i++) {
        if (input[i].n == 0)
            continue;
        const bool needs_space =
            out->len > mark && !is_space(out->data[out->len - 1]) && !is_space(input[i].p[0]);
        if ((needs_space && !sp_buf_add(out, " ", 1)) || !sp_buf_add_str(out, input[i])) {
            out->len = mark;
            return false;
        }
    }
    return true;
}

int sp_compat_read_id(struct sp_str text, int *ret, struct sp_err *e)
{
    const bool has_sign = text.n > 1 && (text.p[0] == '-' || text.p[0] == '+');
    const bool is_negative = has_sign && text.p[0] == '-';
    const struct sp_str digits = {text.p + has_sign, text.n - has_sign};
    const char *why = digits.n == 0 ? "cannot parse integer from empty string"
                                    : "number too large to fit in target type";
    uint64_t v = 0;

    for (size_t i = 0; i < digits.n; i++)
        if (digits.p[i] < '0' || digits.p[i] > '9')
            why = "invalid digit found in string";
    if (!sp_str_to_u64(digits, (uint64_t)INT32_MAX + is_negative, &v))
        return sp_fail(e, SP_E_INVALID, 0, "invalid session_id: " SP_STR_FMT " due to error %s",
                       SP_STR_ARG(sp_policy_shown(text)), why);
    *ret = (int)(is_negative ? -(int64_t)v : (int64_t)v);
    return 0;
}

/* ---- until ---- */

static int take_number(const struct sp_json *j, uint32_t token, const char *name, uint64_t max,
                       uint64_t *ret, struct sp_err *e)
{
    const enum sp_json_type type = sp_json_type(j, token);
    struct sp_number n = {0};
    const bool is_number = type == SP_JSON_INT || type == SP_JSON_UINT || type == SP_JSON_REAL;

    if (!is_number || sp_number_read(sp_json_raw(j, token), &n) != SP_NUMBER_WHOLE ||
        n.is_negative || n.magnitude == 0 || n.magnitude > max)
        return sp_fail(e, SP_E_INVALID, 0, "`until`: `%s` is a number from 1 to %" PRIu64, name,
                       max);
    *ret = n.magnitude;
    return 0;
}

/* Compiles the pattern, so that an error is reported before a command is started for it. */
static int take_pattern(struct sp_json *j, uint32_t token, struct sp_until *ret, struct sp_err *e)
{
    struct sp_ere *x = NULL;

    if (sp_json_type(j, token) != SP_JSON_STRING)
        return sp_fail(e, SP_E_INVALID, 0, "`until`: `pattern` is a regular expression, a string");
    ret->kind = SP_UNTIL_PATTERN;
    ret->pattern = sp_json_str(j, token);
    const int r = sp_ere_new(ret->pattern, &x, e);
    sp_ere_free(x);
    return r < 0 ? sp_wrap(e, "`until`: `pattern`") : 0;
}

/* 1: *ret is a condition. 0: null, or an unknown member. */
static int take_condition(struct sp_json *j, uint32_t key, struct sp_until *ret, struct sp_err *e)
{
    const struct sp_str name = sp_json_str(j, key);
    const uint32_t value = key + 1;
    uint64_t port = 0;
    int r = 0;

    if (sp_json_type(j, value) == SP_JSON_NULL)
        return 0;
    if (sp_str_eq(name, SP_STR("exit"))) {
        if (sp_json_type(j, value) != SP_JSON_TRUE)
            return sp_fail(e, SP_E_INVALID, 0, "`until`: `exit` is true, or left out");
        ret->kind = SP_UNTIL_EXIT;
    } else if (sp_str_eq(name, SP_STR("pattern"))) {
        r = take_pattern(j, value, ret, e);
    } else if (sp_str_eq(name, SP_STR("quiet_ms"))) {
        ret->kind = SP_UNTIL_QUIET;
        r = take_number(j, value, "quiet_ms", INT32_MAX, &ret->quiet_ms, e);
    } else if (sp_str_eq(name, SP_STR("port"))) {
        ret->kind = SP_UNTIL_PORT;
        r = take_number(j, value, "port", UINT16_MAX, &port, e);
        ret->port = (uint16_t)port;
    } else {
        return 0;
    }
    return r < 0 ? r : 1;
}

/* Each member of the object is a condition. */
static int take_conditions(struct sp_json *j, uint32_t token, struct sp_mcp_until *ret,
                           struct sp_err *e)
{
    const uint32_t before = ret->count;

    if (sp_json_type(j, token) != SP_JSON_OBJECT)
        return sp_fail(e, SP_E_INVALID, 0, "`until` is an object");
    for (uint32_t key = sp_json_first(j, token); key != SP_JSON_NONE;
         key = sp_json_next(j, token, key)) {
        struct sp_until one = {0};
        const int r = take_condition(j, key, &one, e);

        if (r < 0)
            return r;
        if (r == 0)
            continue;
        if (ret->count == SP_UNTIL_COUNT_MAX)
            return sp_fail(e, SP_E_INVALID, 0, "`until` has at most %d conditions",
                           SP_UNTIL_COUNT_MAX);
        ret->items[ret->count++] = one;
    }
    if (ret->count == before)
        return sp_fail(e, SP_E_INVALID, 0,
                       "`until` has one or more of {\"exit\":true}, {\"pattern\":\"ERE\"}, "
                       "{\"quiet_ms\":2000}, {\"port\":3000}");
    return 0;
}

int sp_mcp_until_read(struct sp_json *j, uint32_t token, struct sp_mcp_until *ret, struct sp_err *e)
{
    int r = 0;

    if (token == SP_JSON_NONE)
        return 0;
    if (sp_json_type(j, token) != SP_JSON_ARRAY)
        return take_conditions(j, token, ret, e);
    /* A list of objects is accepted, too; the schema does not say so, because some hosts refuse
     * unions. */
    for (uint32_t t = sp_json_first(j, token); r == 0 && t != SP_JSON_NONE;
         t = sp_json_next(j, token, t))
        r = take_conditions(j, t, ret, e);
    return r;
}

bool sp_mcp_is_to_completion(struct sp_str tool, struct sp_json *j)
{
    if (!sp_str_eq(tool, SP_STR("exec_command")) || sp_json_type(j, 0) != SP_JSON_OBJECT)
        return false;
    const uint32_t yield = sp_json_get(j, 0, "yield_time_ms");
    const uint32_t until = sp_json_get(j, 0, "until");
    if ((yield != SP_JSON_NONE && sp_json_type(j, yield) != SP_JSON_NULL) ||
        until == SP_JSON_NONE || sp_json_type(j, until) != SP_JSON_OBJECT ||
        j->tokens[until].children != 1)
        return false;
    const uint32_t exit = sp_json_get(j, until, "exit");
    return exit != SP_JSON_NONE && sp_json_type(j, exit) == SP_JSON_TRUE;
}

/* ---- keys: what an xterm sends in its normal mode ---- */

static const struct {
    struct sp_str name, sends;
} known_keys[] = {
    {SP_STR("Enter"), SP_STR("\r")},         {SP_STR("Tab"), SP_STR("\t")},
    {SP_STR("Escape"), SP_STR("\033")},      {SP_STR("Backspace"), SP_STR("\177")},
    {SP_STR("Delete"), SP_STR("\033[3~")},   {SP_STR("Up"), SP_STR("\033[A")},
    {SP_STR("Down"), SP_STR("\033[B")},      {SP_STR("Right"), SP_STR("\033[C")},
    {SP_STR("Left"), SP_STR("\033[D")},      {SP_STR("Home"), SP_STR("\033[H")},
    {SP_STR("End"), SP_STR("\033[F")},       {SP_STR("PageUp"), SP_STR("\033[5~")},
    {SP_STR("PageDown"), SP_STR("\033[6~")}, {SP_STR("F1"), SP_STR("\033OP")},
    {SP_STR("F2"), SP_STR("\033OQ")},        {SP_STR("F3"), SP_STR("\033OR")},
    {SP_STR("F4"), SP_STR("\033OS")},        {SP_STR("F5"), SP_STR("\033[15~")},
    {SP_STR("F6"), SP_STR("\033[17~")},      {SP_STR("F7"), SP_STR("\033[18~")},
    {SP_STR("F8"), SP_STR("\033[19~")},      {SP_STR("F9"), SP_STR("\033[20~")},
    {SP_STR("F10"), SP_STR("\033[21~")},     {SP_STR("F11"), SP_STR("\033[23~")},
    {SP_STR("F12"), SP_STR("\033[24~")},
};

static int add_key(struct sp_buf *out, struct sp_str name, struct sp_err *e)
{
    const bool is_control =
        name.n == 3 && name.p[0] == 'C' && name.p[1] == '-' && name.p[2] >= 'a' && name.p[2] <= 'z';
    const char control = is_control ? (char)(name.p[2] - 'a' + 1) : 0;
    struct sp_str sends = {&control, is_control};

    for (size_t i = 0; sends.n == 0 && i < sizeof known_keys / sizeof known_keys[0]; i++)
        if (sp_str_eq(name, known_keys[i].name))
            sends = known_keys[i].sends;
    if (sends.n == 0)
        return sp_fail(e, SP_E_INVALID, 0,
                       "unknown key `%.*s`, expected one of Enter, Tab, Escape, Backspace, Delete, "
                       "Up, Down, Left, Right, Home, End, PageUp, PageDown, F1 to F12, C-a to C-z",
                       (int)(name.n > 40 ? 40 : name.n), name.p);
    return sp_buf_add_str(out, sends) ? 0 : sp_fail(e, SP_E_SYSTEM, ENOMEM, "type a key");
}

int sp_mcp_keys_add(struct sp_buf *out, struct sp_json *j, uint32_t token, struct sp_err *e)
{
    const enum sp_json_type type = sp_json_type(j, token);
    struct sp_str names = type == SP_JSON_STRING ? sp_json_str(j, token) : (struct sp_str){0};
    int r = 0;

    if (type != SP_JSON_STRING && type != SP_JSON_ARRAY)
        return sp_fail(e, SP_E_INVALID, 0, "`keys` is a list of names of keys");
    while (r == 0 && names.n != 0) { /* names separated by blanks */
        const struct sp_str name = sp_str_cut(&names, ' ');

        if (name.n != 0)
            r = add_key(out, name, e);
    }
    for (uint32_t t = type == SP_JSON_ARRAY ? sp_json_first(j, token) : SP_JSON_NONE;
         r == 0 && t != SP_JSON_NONE; t = sp_json_next(j, token, t))
        r = sp_json_type(j, t) == SP_JSON_STRING
                ? add_key(out, sp_json_str(j, t), e)
                : sp_fail(e, SP_E_INVALID, 0, "`keys` is a list of names of keys");
    return r;
}
