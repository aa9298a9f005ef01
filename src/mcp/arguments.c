/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arguments: one table of slots per tool. exec_command and write_stdin exist twice: as codex
 * defines them, for the C library, and with further members, for MCP. Both share a table, so that a
 * member has one type in both.
 */
#include "mcp/arguments.h"

#include <assert.h>

#include "sandbox/policy_json.h"

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
