/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec_command and write_stdin from the manager's reply to their result. The reply is kept while
 * the kernel is asked what the process is doing; tool_answer.c words it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/utf8.h"
#include "mcp/tool_answer.h"

/* ---- what a call keeps ---- */

static void forget_item(struct sp_mcp_work *c)
{
    if (c->item != NULL && c->item->run == c->run)
        sp_mcp_memory_forget(c->run->caller, c->item);
    c->item = NULL;
}

static void free_call(struct sp_mcp_run *r)
{
    struct sp_mcp_work *c = r->data;

    forget_item(c);
    sp_mcp_memory_unwait(&c->wait);
    sp_mcp_glance_forget(c->glance);
    sp_mcp_denials_done(&c->denials);
    sp_arguments_done(&c->arguments);
    sp_buf_done(&c->typed);
    sp_buf_done(&c->output);
    free(c);
}

struct sp_mcp_work *sp_mcp_work_new(struct sp_mcp_run *r)
{
    struct sp_mcp_work *c = calloc(1, sizeof *c);

    if (c == NULL)
        return NULL;
    c->run = c->wait.run = r;
    r->data = c;
    r->free_data = free_call;
    return c;
}

/* ---- errors ---- */

/* The manager says itself whether its output can still be read. */
static void answer_fault(struct sp_mcp_work *c, const struct sp_reply *reply)
{
    struct sp_mcp_run *r = c->run;
    struct sp_mcp_result result = {.is_error = true, .text = reply->text};
    struct sp_manager_view v;

    if (reply->fault == SP_FAULT_UNKNOWN &&
        !sp_manager_view(r->caller->manager, c->write.session_id, &v))
        result.note = SP_STR(SP_MCP_UNKNOWN_HINT);
    sp_mcp_run_done(r, &result);
}

static void fail_now(struct sp_deferred *d)
{
    struct sp_mcp_run *r = SP_CONTAINER(d, struct sp_mcp_run, deferred);
    const struct sp_mcp_work *c = r->data;

    sp_mcp_run_fail(r, SP_STR_FMT, SP_STR_ARG(sp_mcp_view(&c->output)));
}

int sp_mcp_work_refuse(struct sp_mcp_work *c, const char *prefix, struct sp_err *e)
{
    if (e->code == SP_E_SYSTEM)
        return -SP_E_SYSTEM;
    const struct sp_err why = *e;
    if (!sp_buf_printf(&c->output, "%s%s", prefix, why.msg))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "refuse a call");
    sp_loop_defer(sp_mcp_run_options(c->run)->loop, &c->run->deferred, fail_now);
    return 0;
}

/* ---- the answer ---- */

static void compose(struct sp_mcp_work *c, const struct sp_look *look)
{
    auto_buf struct sp_buf text = {0};
    auto_buf struct sp_buf structured = {0};

    if (!sp_mcp_answer_add(&text, &structured, c, look)) {
        sp_mcp_tool_no_memory(c->run);
        return;
    }
    const struct sp_mcp_result result = {.text = sp_mcp_view(&text),
                                         .structured = sp_mcp_view(&structured)};
    sp_mcp_run_done(c->run, &result);
}

static void on_look(void *user, const struct sp_look *look)
{
    struct sp_mcp_work *c = user;

    c->glance = NULL;
    compose(c, look);
}

/* ---- what was replied ---- */

/* What the reply borrows is the call's from now on. */
static bool keep_reply(struct sp_mcp_work *c, const struct sp_reply *reply)
{
    c->reply = *reply;
    c->reply.text = c->reply.error = (struct sp_str){0};
    c->reply.denial = NULL;
    c->reply.kernel = NULL;
    const struct sp_str id = reply->answer.chunk_id;
    const size_t n = id.n < sizeof c->chunk_id ? id.n : sizeof c->chunk_id;
    if (n != 0)
        memcpy(c->chunk_id, id.p, n);
    c->reply.answer.chunk_id = (struct sp_str){c->chunk_id, n};
    c->reply.answer.more = (struct sp_str){0};
    c->output.len = 0;
    if (!sp_buf_add_str(&c->output, reply->answer.output))
        return false;
    c->reply.answer.output = sp_mcp_view(&c->output);
    return true;
}

static bool find_denials(struct sp_mcp_work *c, const struct sp_reply *reply)
{
    struct sp_manager_view v = {0};
    struct sp_mcp_denied what = {.kernel = reply->kernel,
                                 .denial = reply->denial,
                                 .was_denied = reply->was_denied,
                                 .output = reply->answer.output,
                                 .exit_code = reply->answer.exit_code};

    if (sp_manager_view(c->run->caller->manager, reply->process_id, &v))
        what.cwd = v.cwd;
    what.environment = v.environment;
    return sp_mcp_denials_find(&c->denials, c->run->caller->mcp, &what);
}

void sp_mcp_work_answer(struct sp_mcp_work *c, const struct sp_reply *reply)
{
    c->run->engine_call = 0;
    if (reply->fault != SP_FAULT_NONE) {
        answer_fault(c, reply);
        return;
    }
    if (!keep_reply(c, reply) || !find_denials(c, reply)) {
        sp_mcp_tool_no_memory(c->run);
        return;
    }
    if (reply->answer.fate == SP_ANSWER_RUNNING || reply->is_output_held)
        c->glance = sp_mcp_glance(c->run->caller, reply->process_id, on_look, c);
    if (c->glance == NULL)
        compose(c, NULL);
}

/* ---- a process whose end was answered before ---- */

static bool add_kept(struct sp_buf *out, const struct sp_manager_view *v)
{
    auto_buf struct sp_buf bytes = {0};
    bool ok = sp_buf_add_str(&bytes, v->head);

    if (v->omitted != 0)
        ok = ok && sp_buf_printf(&bytes, "\n" SP_HEADTAIL_MARKER "\n", v->omitted);
    return ok && sp_buf_add_str(&bytes, v->tail[0]) && sp_buf_add_str(&bytes, v->tail[1]) &&
           sp_utf8_add_lossy(out, sp_mcp_view(&bytes));
}

void sp_mcp_work_answer_view(struct sp_mcp_work *c, const struct sp_manager_view *v)
{
    auto_buf struct sp_buf output = {0};

    if (!add_kept(&output, v)) {
        sp_mcp_tool_no_memory(c->run);
        return;
    }
    const struct sp_reply reply = {
        .answer = {.fate = SP_ANSWER_EXITED,
                   .exit_code = v->exit_code,
                   .has_token_count = true,
                   .token_count = sp_allowance_tokens_of(v->total),
                   .omitted = v->omitted,
                   .output = sp_mcp_view(&output)},
        .has_max_tokens = c->exec.has_max_tokens,
        .max_tokens = c->exec.max_tokens,
        .was_denied = v->was_denied,
        .process_id = v->process_id,
        .signal = v->signal,
        .to = v->total,
        .woken_by = -1,
        .has_exited = true,
        .is_output_held = v->is_output_held,
        .end_reason = v->end_reason,
        .denial = v->denial,
        .kernel = v->kernel,
    };
    sp_mcp_work_answer(c, &reply);
}
