/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tools_call: from a tool's name and its JSON arguments to the manager, and back to text and JSON.
 * unified_exec is expressed by the two tools that replaced it; its replies have their own wording.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/auto.h"
#include "base/json.h"
#include "mcp/arguments.h"

#define UNIFIED_FAILED "unified exec failed: "

/* An unanswered call, freed when the manager answers, which it always does. */
struct call {
    sp_tool_fn *fn;
    void *user;
    bool is_refused; /* bad arguments */
    bool is_compat;  /* unified_exec */
    bool is_json;    /* the text of its answer is JSON, too */
    /* unified_exec */
    struct sp_str session_id; /* as the model wrote it; empty: a new session */
    uint64_t cut_ms;          /* the requested timeout if it exceeds the maximum, else 0 */
    char id[];                /* session_id points to it */
};

/* Passed to the manager beside the arguments. */
struct names {
    struct sp_str call_id, turn_id;
};

/* ---- back: the structured form ---- */

static bool add_structured(struct sp_buf *out, const struct sp_reply *r)
{
    const struct sp_exec_answer *a = &r->answer;
    auto_buf struct sp_buf text = {0};

    if (!sp_buf_add(out, "{", 1) ||
        (a->chunk_id.n != 0 && !(sp_buf_add_str(out, SP_STR("\"chunk_id\":")) &&
                                 sp_json_add_str(out, a->chunk_id) && sp_buf_add(out, ",", 1))))
        return false;
    /* Digits, not %f: a locale may have a comma where JSON wants a point. */
    if (!sp_buf_printf(out, "\"wall_time_seconds\":%" PRIu64 ".%09" PRIu64, a->wall_ns / 1000000000,
                       a->wall_ns % 1000000000) ||
        (a->fate == SP_ANSWER_EXITED && !sp_buf_printf(out, ",\"exit_code\":%d", a->exit_code)) ||
        (a->fate == SP_ANSWER_RUNNING &&
         !sp_buf_printf(out, ",\"session_id\":%d", a->session_id)) ||
        (a->has_token_count &&
         !sp_buf_printf(out, ",\"original_token_count\":%" PRIu64, a->token_count)))
        return false;
    return sp_answer_add_output(&text, a, r->has_max_tokens, r->max_tokens) &&
           sp_buf_add_str(out, SP_STR(",\"output\":")) && sp_json_add_str(out, sp_buf_str(&text)) &&
           sp_buf_add(out, "}", 1);
}

/* ---- back: the replies of unified_exec ---- */

static bool add_compat_failure(struct sp_buf *out, const struct sp_reply *r, const struct call *c)
{
    struct sp_str error = r->error;

    switch (r->fault) {
    case SP_FAULT_UNKNOWN:
        return sp_buf_add_str(out, SP_STR(UNIFIED_FAILED "Unknown session id ")) &&
               sp_buf_add_str(out, c->session_id);
    case SP_FAULT_CREATE:
    case SP_FAULT_REJECTED:
        (void)sp_str_skip_prefix(&error, SP_STR("Failed to create unified exec process: "));
        return sp_buf_add_str(out,
                              SP_STR(UNIFIED_FAILED "Failed to create unified exec session: ")) &&
               sp_buf_add_str(out, error);
    case SP_FAULT_ARGUMENTS:
    case SP_FAULT_ABORTED:
        return sp_buf_add_str(out, r->text);
    case SP_FAULT_NONE:
    case SP_FAULT_STDIN_CLOSED:
    case SP_FAULT_WRITE:
    case SP_FAULT_FAILED:
        break;
    }
    return sp_buf_add_str(out, SP_STR(UNIFIED_FAILED)) && sp_buf_add_str(out, error);
}

static bool add_compat_denial(struct sp_buf *out, const struct sp_reply *r)
{
    if (!sp_buf_add_str(out, SP_STR(UNIFIED_FAILED "Command denied by sandbox: ")))
        return false;
    if (r->answer.output.n != 0)
        return sp_buf_add_str(out, r->answer.output);
    return sp_buf_printf(out, "exit code %d", r->answer.exit_code);
}

/* The output is taken from the reply's text, where it has been truncated already. */
static bool add_compat_result(struct sp_buf *out, const struct sp_reply *r, const struct call *c)
{
    static const char before[] = "Output:\n";
    auto_buf struct sp_buf output = {0};
    const char *p = r->text.n == 0 ? NULL : memmem(r->text.p, r->text.n, before, sizeof before - 1);

    if (c->cut_ms != 0 &&
        !sp_buf_printf(&output,
                       "Warning: requested timeout %" PRIu64 "ms exceeds maximum of %dms; clamping "
                       "to %dms.\n",
                       c->cut_ms, SP_COMPAT_MAX_MS, SP_COMPAT_MAX_MS))
        return false;
    if (p != NULL) {
        p += sizeof before - 1;
        if (!sp_buf_add(&output, p, r->text.n - (size_t)(p - r->text.p)))
            return false;
    }
    return (r->answer.fate == SP_ANSWER_RUNNING
                ? sp_buf_printf(out, "{\"session_id\":\"%d\"", r->answer.session_id)
                : sp_buf_add_str(out, SP_STR("{\"session_id\":null"))) &&
           sp_buf_add_str(out, SP_STR(",\"output\":")) &&
           sp_json_add_str(out, sp_buf_str(&output)) && sp_buf_add(out, "}", 1);
}

static void on_reply(void *user, const struct sp_reply *from)
{
    struct call *c = user;
    sp_tool_fn *fn = c->fn;
    void *fn_user = c->user;
    auto_buf struct sp_buf made = {0};
    struct sp_tool_reply r = {.has_failed = from->fault != SP_FAULT_NONE,
                              .text = from->text,
                              .from = c->is_refused ? NULL : from};
    bool ok = true;

    if (c->is_compat) {
        ok = r.has_failed       ? add_compat_failure(&made, from, c)
             : from->was_denied ? add_compat_denial(&made, from)
                                : add_compat_result(&made, from, c);
        r.has_failed = r.has_failed || from->was_denied;
        r.text = sp_buf_str(&made);
        if (!r.has_failed)
            r.structured = r.text;
    } else if (!r.has_failed && c->is_json) {
        r.structured = r.text;
    } else if (!r.has_failed) {
        ok = add_structured(&made, from);
        r.structured = sp_buf_str(&made);
    }
    if (!ok) /* text and JSON are as large as the output */
        r = (struct sp_tool_reply){
            .has_failed = true, .text = SP_STR("no memory for the answer"), .from = from};
    free(c);
    fn(fn_user, &r);
}

/* ---- there ---- */

static int refuse(struct sp_manager *m, struct call *c, struct sp_str prefix, const char *why,
                  uint64_t *ret_call, struct sp_err *e)
{
    auto_buf struct sp_buf text = {0};

    if (!sp_buf_add_str(&text, prefix) || !sp_buf_add_str(&text, sp_str_of(why)))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "refuse a call");
    c->is_refused = true;
    return sp_manager_refuse(m, sp_buf_str(&text), on_reply, c, ret_call, e);
}

/* Bad arguments are a reply for the model, out of memory is an error. */
static int refuse_arguments(struct sp_manager *m, struct call *c, uint64_t *ret_call,
                            struct sp_err *e)
{
    const struct sp_err why = *e;

    if (why.code == SP_E_SYSTEM)
        return -SP_E_SYSTEM;
    return refuse(m, c, SP_STR("failed to parse function arguments: "), why.msg, ret_call, e);
}

typedef int tool_fn(struct sp_manager *m, const struct sp_tools_options *o, struct call *c,
                    const struct names *names, struct sp_str arguments, uint64_t *ret_call,
                    struct sp_err *e);

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

    /* The unescaped id is not longer than the arguments, for which `id` has room. */
    memcpy(c->id, from->session_id.p, from->session_id.n);
    c->session_id = (struct sp_str){c->id, from->session_id.n};
    if (sp_compat_read_id(c->session_id, &ask.session_id, e) < 0) {
        const struct sp_err why = *e;

        return refuse(m, c, (struct sp_str){0}, why.msg, ret_call, e);
    }
    if (!sp_compat_add_input(&chars, from->input, from->input_count))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "type into a session");
    ask.chars = (struct sp_str){chars.data, chars.len};
    return sp_manager_write(m, &ask, on_reply, c, ret_call, e);
}

static int call_compat(struct sp_manager *m, const struct sp_tools_options *o, struct call *c,
                       const struct names *names, struct sp_str arguments, uint64_t *ret_call,
                       struct sp_err *e)
{
    auto_arguments struct sp_arguments a = {0};
    struct sp_compat_ask from = {0};

    (void)o;
    c->is_compat = true;
    if (sp_arguments_compat(&a, arguments, &from, e) < 0)
        return refuse_arguments(m, c, ret_call, e);
    if (from.timeout.has_yield_time && from.timeout.yield_time_ms > SP_COMPAT_MAX_MS)
        c->cut_ms = from.timeout.yield_time_ms;
    if (from.session_id.p != NULL)
        return type_into_session(m, c, names, &from, ret_call, e);
    if (from.input_count == 0)
        return refuse(m, c, SP_STR(UNIFIED_FAILED), "missing command line for unified exec request",
                      ret_call, e);
    const struct sp_exec_ask ask = {.call_id = names->call_id,
                                    .turn_id = names->turn_id,
                                    .argv = from.input,
                                    .argc = from.input_count,
                                    .is_tty = true,
                                    .is_compat = true,
                                    .yield = from.timeout};
    return sp_manager_exec(m, &ask, on_reply, c, ret_call, e);
}

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
        c = NULL; /* on_reply frees it */
    return r;
}
