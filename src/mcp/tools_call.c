/* SPDX-License-Identifier: Apache-2.0 */
/* From a tool's name and its arguments to the manager, and back. */
#include <errno.h>
#include <stdlib.h>

#include "base/auto.h"
#include "mcp/arguments.h"
#include "mcp/reply.h"
#include "mcp/tools.h"

/* A call that has not been answered. It is the manager that ends it, whatever happens. */
struct call {
    sp_tool_fn *fn;
    void *user;
    bool is_refused; /* its arguments were not understood */
    bool is_compat;
    bool is_json; /* its answer's text is the structured one as well */
    struct sp_compat_call compat;
    char id[]; /* what compat.session_id points to */
};

/* What the manager is told besides the arguments. */
struct names {
    struct sp_str call_id, turn_id;
};

/* ---- back ---- */

static void tell(struct call *c, const struct sp_tool_reply *r)
{
    sp_tool_fn *fn = c->fn;
    void *user = c->user;

    free(c);
    fn(user, r);
}

/* Text and JSON are as large as the output; without memory for them the caller still hears that its
 * call is over. */
static void tell_no_memory(struct call *c, const struct sp_reply *from)
{
    const struct sp_tool_reply r = {
        .has_failed = true, .text = SP_STR("no memory for the answer"), .from = from};

    tell(c, &r);
}

static void tell_compat(struct call *c, const struct sp_reply *from)
{
    auto_buf struct sp_buf text = {0};

    if (!sp_compat_add_text(&text, from, &c->compat)) {
        tell_no_memory(c, from);
        return;
    }
    struct sp_tool_reply r = {.has_failed = sp_compat_has_failed(from),
                              .text = {text.data, text.len},
                              .from = c->is_refused ? NULL : from};
    if (!r.has_failed)
        r.structured = r.text;
    tell(c, &r);
}

static void tell_plain(struct call *c, const struct sp_reply *from)
{
    auto_buf struct sp_buf structured = {0};
    const bool has_failed = from->fault != SP_FAULT_NONE;

    if (!has_failed && !sp_tools_add_structured(&structured, from)) {
        tell_no_memory(c, from);
        return;
    }
    const struct sp_tool_reply r = {.has_failed = has_failed,
                                    .text = from->text,
                                    .structured = {structured.data, structured.len},
                                    .from = c->is_refused ? NULL : from};
    tell(c, &r);
}

static void tell_json(struct call *c, const struct sp_reply *from)
{
    const bool has_failed = from->fault != SP_FAULT_NONE;
    const struct sp_tool_reply r = {.has_failed = has_failed,
                                    .text = from->text,
                                    .structured = {from->text.p, has_failed ? 0 : from->text.n},
                                    .from = c->is_refused ? NULL : from};

    tell(c, &r);
}

static void on_reply(void *user, const struct sp_reply *from)
{
    struct call *c = user;

    if (c->is_compat)
        tell_compat(c, from);
    else if (c->is_json)
        tell_json(c, from);
    else
        tell_plain(c, from);
}

/* ---- there ---- */

static int refuse(struct sp_manager *m, struct call *c, struct sp_str prefix, const char *why,
                  uint64_t *ret_call, struct sp_err *e)
{
    auto_buf struct sp_buf text = {0};

    if (!sp_buf_add_str(&text, prefix) || !sp_buf_add_str(&text, sp_str_of(why)))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "refuse a call");
    c->is_refused = true;
    return sp_manager_refuse(m, (struct sp_str){text.data, text.len}, on_reply, c, ret_call, e);
}

/* The arguments could not be read: the model hears why. */
static int refuse_arguments(struct sp_manager *m, struct call *c, uint64_t *ret_call,
                            struct sp_err *e)
{
    if (e->code == SP_E_SYSTEM)
        return -SP_E_SYSTEM;
    const struct sp_err why = *e;
    return refuse(m, c, SP_STR("failed to parse function arguments: "), why.msg, ret_call, e);
}

static int call_exec(struct sp_manager *m, const struct sp_tools_options *o, struct call *c,
                     const struct names *names, struct sp_str arguments, uint64_t *ret_call,
                     struct sp_err *e)
{
    auto_arguments struct sp_arguments a = {0};
    struct sp_exec_ask ask = {.call_id = names->call_id, .turn_id = names->turn_id};

    if (sp_arguments_exec(&a, arguments, o, &ask, e) < 0)
        return refuse_arguments(m, c, ret_call, e);
    return sp_manager_exec(m, &ask, on_reply, c, ret_call, e);
}

static int call_write(struct sp_manager *m, const struct sp_tools_options *o, struct call *c,
                      const struct names *names, struct sp_str arguments, uint64_t *ret_call,
                      struct sp_err *e)
{
    auto_arguments struct sp_arguments a = {0};
    struct sp_write_ask ask = {.call_id = names->call_id};

    if (sp_arguments_write(&a, arguments, o, &ask, e) < 0)
        return refuse_arguments(m, c, ret_call, e);
    return sp_manager_write(m, &ask, on_reply, c, ret_call, e);
}

static int call_permissions(struct sp_manager *m, const struct sp_tools_options *o, struct call *c,
                            const struct names *names, struct sp_str arguments, uint64_t *ret_call,
                            struct sp_err *e)
{
    auto_arguments struct sp_arguments a = {0};
    struct sp_permissions_ask ask = {.call_id = names->call_id, .turn_id = names->turn_id};

    (void)o;
    c->is_json = true;
    if (sp_arguments_permissions(&a, arguments, &ask, e) < 0)
        return refuse_arguments(m, c, ret_call, e);
    return sp_manager_request_permissions(m, &ask, on_reply, c, ret_call, e);
}

static int type_into_session(struct sp_manager *m, struct call *c, const struct names *names,
                             const struct sp_compat_ask *from, uint64_t *ret_call, struct sp_err *e)
{
    auto_buf struct sp_buf chars = {0};
    struct sp_write_ask ask = {
        .call_id = names->call_id, .is_compat = true, .yield = from->timeout};

    if (sp_compat_read_id(c->compat.session_id, &ask.session_id, e) < 0) {
        const struct sp_err why = *e;

        return refuse(m, c, (struct sp_str){0}, why.msg, ret_call, e);
    }
    if (!sp_compat_add_input(&chars, from->input, from->input_count))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "type into a session");
    ask.chars = (struct sp_str){chars.data, chars.len};
    return sp_manager_write(m, &ask, on_reply, c, ret_call, e);
}

static int open_session(struct sp_manager *m, struct call *c, const struct names *names,
                        const struct sp_compat_ask *from, uint64_t *ret_call, struct sp_err *e)
{
    const struct sp_exec_ask ask = {.call_id = names->call_id,
                                    .turn_id = names->turn_id,
                                    .argv = from->input,
                                    .argc = from->input_count,
                                    .is_tty = true,
                                    .is_compat = true,
                                    .yield = from->timeout};

    if (from->input_count == 0)
        return refuse(m, c, SP_STR("unified exec failed: "),
                      "missing command line for unified exec request", ret_call, e);
    return sp_manager_exec(m, &ask, on_reply, c, ret_call, e);
}

static int call_compat(struct sp_manager *m, const struct sp_tools_options *o, struct call *c,
                       const struct names *names, struct sp_str arguments, uint64_t *ret_call,
                       struct sp_err *e)
{
    auto_arguments struct sp_arguments a = {0};
    struct sp_compat_ask ask = {0};

    (void)o;
    c->is_compat = true;
    if (sp_arguments_compat(&a, arguments, &ask, e) < 0)
        return refuse_arguments(m, c, ret_call, e);
    if (ask.timeout.has_yield_time && ask.timeout.yield_time_ms > SP_COMPAT_MAX_MS)
        c->compat.cut_ms = ask.timeout.yield_time_ms;
    if (ask.session_id.p == NULL)
        return open_session(m, c, names, &ask, ret_call, e);
    /* The unescaped id is not longer than the arguments, for which `id` has room. */
    memcpy(c->id, ask.session_id.p, ask.session_id.n);
    c->compat.session_id = (struct sp_str){c->id, ask.session_id.n};
    return type_into_session(m, c, names, &ask, ret_call, e);
}

typedef int tool_fn(struct sp_manager *m, const struct sp_tools_options *o, struct call *c,
                    const struct names *names, struct sp_str arguments, uint64_t *ret_call,
                    struct sp_err *e);

static tool_fn *find_tool(const struct sp_tools_options *o, struct sp_str name)
{
    if (sp_str_eq(name, SP_STR("exec_command")))
        return call_exec;
    if (sp_str_eq(name, SP_STR("write_stdin")))
        return call_write;
    if (o->has_unified_exec && sp_str_eq(name, SP_STR("unified_exec")))
        return call_compat;
    if (o->has_additional_permissions && sp_str_eq(name, SP_STR("request_permissions")))
        return call_permissions;
    return NULL;
}

int sp_tools_call(struct sp_manager *m, const struct sp_tools_options *o, struct sp_str tool,
                  struct sp_str call_id, struct sp_str turn_id, struct sp_str arguments,
                  sp_tool_fn *fn, void *user, uint64_t *ret_call, struct sp_err *e)
{
    const struct names names = {call_id, turn_id};
    tool_fn *call_tool = find_tool(o, tool);

    if (call_tool == NULL)
        return sp_fail(e, SP_E_NO_METHOD, 0, "there is no tool `" SP_STR_FMT "`", SP_STR_ARG(tool));
    auto_free struct call *c = calloc(1, sizeof *c + (call_tool == call_compat ? arguments.n : 0));
    if (c == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "call a tool");
    c->fn = fn;
    c->user = user;
    const int r = call_tool(m, o, c, &names, arguments, ret_call, e);
    if (r == 0)
        c = NULL; /* the manager's until it answers */
    return r;
}
