/* SPDX-License-Identifier: Apache-2.0 */
#include "mcp/arguments.h"

#include <assert.h>

#define ALL(slots) ((struct sp_slots){.items = (slots), .count = sizeof(slots) / sizeof(slots)[0]})

static int read_both(struct sp_arguments *a, struct sp_str text, struct sp_slots own,
                     struct sp_slots more, struct sp_err *e)
{
    struct sp_slot all[SP_SLOTS_MAX];

    assert(own.count + more.count <= SP_SLOTS_MAX);
    memcpy(all, own.items, own.count * sizeof *all);
    if (more.count != 0)
        memcpy(all + own.count, more.items, more.count * sizeof *all);
    return sp_slots_read(a, text,
                         (struct sp_slots){all, own.count + more.count, more.names_members}, e);
}

static int read_exec(struct sp_arguments *a, struct sp_str text, const struct sp_tools_options *o,
                     bool needs_cmd, struct sp_slots more, struct sp_exec_ask *ret,
                     struct sp_err *e)
{
    struct sp_str fixed = {0}; /* where a shell goes that nobody may choose */
    const struct sp_slot slots[] = {
        {.name = "cmd", .type = SP_SLOT_STRING, .to = &ret->cmd, .is_needed = needs_cmd},
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
        {.name = "shell", .type = SP_SLOT_STRING, .to = o->has_fixed_shell ? &fixed : &ret->shell},
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

    return read_both(a, text, ALL(slots), more, e);
}

int sp_arguments_exec(struct sp_arguments *a, struct sp_str text, const struct sp_tools_options *o,
                      struct sp_exec_ask *ret, struct sp_err *e)
{
    return read_exec(a, text, o, true, (struct sp_slots){0}, ret, e);
}

int sp_arguments_exec_with(struct sp_arguments *a, struct sp_str text,
                           const struct sp_tools_options *o, struct sp_slots more,
                           struct sp_exec_ask *ret, struct sp_err *e)
{
    return read_exec(a, text, o, false, more, ret, e);
}

int sp_arguments_write_with(struct sp_arguments *a, struct sp_str text,
                            const struct sp_tools_options *o, struct sp_slots more,
                            struct sp_write_ask *ret, struct sp_err *e)
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

    struct sp_slots own = ALL(slots);

    /* A feature that is off has no member: the last one is then like any that is not known. */
    own.count -= !o->has_no_timeout;
    return read_both(a, text, own, more, e);
}

int sp_arguments_write(struct sp_arguments *a, struct sp_str text, const struct sp_tools_options *o,
                       struct sp_write_ask *ret, struct sp_err *e)
{
    return sp_arguments_write_with(a, text, o, (struct sp_slots){0}, ret, e);
}

int sp_arguments_permissions(struct sp_arguments *a, struct sp_str text,
                             struct sp_permissions_ask *ret, struct sp_err *e)
{
    const struct sp_slot slots[] = {
        {.name = "permissions", .type = SP_SLOT_GRANT, .to = &ret->permissions, .is_needed = true},
        {.name = "reason", .type = SP_SLOT_STRING, .to = &ret->reason},
        {.name = "environment_id", .type = SP_SLOT_STRING, .to = &ret->environment_id},
    };

    return sp_slots_read(a, text, ALL(slots), e);
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

    return sp_slots_read(a, text, ALL(slots), e);
}
