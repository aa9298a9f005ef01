/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run from its beginning to its result. It is freed in one place, when its tool is done with it:
 * whoever stops waiting leaves a run that nobody hears of, and its tool ends it as any other.
 */
#include "mcp/mcp_run.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "approve/approvers.h"
#include "base/auto.h"
#include "base/utf8.h"
#include "mcp/ended.h"
#include "mcp/mcp_priv.h"
#include "mcp/tool.h"

#define FAILURE_MAX 8192

struct sp_mcp_kept_result {
    bool is_error;
    struct sp_buf text, note, structured;
};

static struct sp_loop *loop_of(const struct sp_mcp_run *r)
{
    return r->caller->mcp->options.loop;
}

static struct sp_str view(const struct sp_buf *b)
{
    return (struct sp_str){b->len == 0 ? "" : b->data, b->len};
}

/* ---- all of a caller ---- */

struct sp_mcp_run *sp_mcp_run_of_call(const struct sp_mcp_caller *c, struct sp_str call_id)
{
    struct sp_mcp_run *r = c->runs;

    while (r != NULL && !sp_str_eq(sp_str_of(r->call_id), call_id))
        r = r->next;
    return r;
}

static void link_run(struct sp_mcp_caller *c, struct sp_mcp_run *r)
{
    r->caller = c;
    r->next = c->runs;
    if (r->next != NULL)
        r->next->prev = r;
    c->runs = r;
    c->run_count++;
}

static void unlink_run(struct sp_mcp_run *r)
{
    struct sp_mcp_caller *c = r->caller;

    *(r->prev != NULL ? &r->prev->next : &c->runs) = r->next;
    if (r->next != NULL)
        r->next->prev = r->prev;
    r->prev = r->next = NULL;
    c->run_count--;
}

void sp_mcp_runs_let_go(struct sp_mcp_caller *c)
{
    for (struct sp_mcp_run *r = c->runs; r != NULL; r = r->next)
        sp_mcp_run_cancel(r);
}

void sp_mcp_runs_free(struct sp_mcp_caller *c)
{
    while (c->runs != NULL)
        sp_mcp_run_free(c->runs);
}

/* ---- a result that nobody could be told ---- */

/* In place of one that there was no memory for. */
static struct sp_mcp_kept_result lost;

static void free_kept(struct sp_mcp_kept_result *k)
{
    if (k == NULL || k == &lost)
        return;
    sp_buf_done(&k->text);
    sp_buf_done(&k->note);
    sp_buf_done(&k->structured);
    free(k);
}

static struct sp_mcp_kept_result *keep_result(const struct sp_mcp_result *from)
{
    struct sp_mcp_kept_result *k = calloc(1, sizeof *k);

    if (k != NULL && sp_buf_add_str(&k->text, from->text) && sp_buf_add_str(&k->note, from->note) &&
        sp_buf_add_str(&k->structured, from->structured)) {
        k->is_error = from->is_error;
        return k;
    }
    free_kept(k);
    return &lost;
}

/* ---- the end ---- */

/* It is in no list any more, or about to be in none. */
static void free_parts(struct sp_mcp_run *r)
{
    sp_loop_undefer(loop_of(r), &r->telling);
    sp_loop_undefer(loop_of(r), &r->deferred);
    sp_mcp_run_close_question(r);
    sp_mcp_run_forget_looking(r);
    if (r->free_data != NULL)
        r->free_data(r);
    free_kept(r->result);
    sp_buf_done(&r->warnings);
    free(r);
}

void sp_mcp_run_free(struct sp_mcp_run *r)
{
    unlink_run(r);
    free_parts(r);
}

static void tell(struct sp_mcp_run *r, const struct sp_mcp_result *result)
{
    unlink_run(r); /* who is told may look at what is left */
    if (r->was_withdrawn && r->ops != NULL)
        r->ops->withdrawn(r->user);
    if (r->ops != NULL)
        r->ops->done(r->user, result);
    free_parts(r);
}

void sp_mcp_run_tell_kept(struct sp_mcp_run *r)
{
    const struct sp_mcp_result no_memory = {
        .is_error = true, .text = SP_STR("there was no memory to keep the result of this call")};
    struct sp_mcp_kept_result *k = r->result;

    if (k == &lost) {
        tell(r, &no_memory);
        return;
    }
    const struct sp_mcp_result result = {.is_error = k->is_error,
                                         .text = view(&k->text),
                                         .note = view(&k->note),
                                         .structured = view(&k->structured)};
    tell(r, &result);
}

static bool add_line(struct sp_buf *out, struct sp_str text)
{
    return text.n == 0 ||
           ((out->len == 0 || sp_buf_add(out, "\n", 1)) && sp_buf_add_str(out, text));
}

void sp_mcp_run_done(struct sp_mcp_run *r, const struct sp_mcp_result *result)
{
    struct sp_mcp_caller *c = r->caller;
    struct sp_mcp_result full = *result;
    auto_buf struct sp_buf note = {0};

    r->engine_call = 0;
    if (r->is_cancelled) {
        sp_mcp_run_free(r);
        return;
    }
    if (add_line(&note, result->note) && add_line(&note, view(&c->warnings)) &&
        add_line(&note, view(&r->warnings)) && sp_mcp_ended_add_note(c, r->session_id, &note)) {
        full.note = view(&note);
        sp_buf_done(&c->warnings);
    }
    if (!r->is_held) {
        tell(r, &full);
        return;
    }
    sp_mcp_run_close_question(r);
    r->result = keep_result(&full);
}

void sp_mcp_run_fail(struct sp_mcp_run *r, const char *fmt, ...)
{
    char text[FAILURE_MAX];
    auto_buf struct sp_buf valid = {0};
    struct sp_mcp_result result = {.is_error = true};
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    const struct sp_str all = sp_str_of(text);
    const size_t good = sp_utf8_valid_prefix(all);
    result.text = (struct sp_str){text, good};
    if (good != all.n && sp_utf8_add_lossy(&valid, all))
        result.text = view(&valid);
    sp_mcp_run_done(r, &result);
}

/* ---- the beginning ---- */

int sp_mcp_run_start(struct sp_mcp_caller *c, const struct sp_mcp_run_ask *ask,
                     const struct sp_mcp_run_ops *ops, void *user, struct sp_mcp_run **ret,
                     struct sp_err *e)
{
    const struct sp_mcp_tool *tool = sp_mcp_tool_find(c->mcp, ask->tool);

    if (tool == NULL)
        return sp_fail(e, SP_E_NO_METHOD, 0, "Unknown tool: " SP_STR_FMT, SP_STR_ARG(ask->tool));
    if (c->run_count >= SP_MCP_RUNS_MAX)
        return sp_fail(e, SP_E_LIMIT, 0, "%d calls are waiting already; wait for some of them",
                       SP_MCP_RUNS_MAX);
    struct sp_mcp_run *r = calloc(1, sizeof *r);
    if (r == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "begin a call");
    r->ops = ops;
    r->user = user;
    r->tool = tool;
    r->waits_for_end = ask->waits_for_end;
    r->repeats_output = ask->repeats_output;
    r->nobody_answers = ask->cannot_ask_host && !sp_approvers_has_others(c->mcp->options.approvers);
    r->warnings.max = SP_MCP_WARNINGS_MAX;
    (void)snprintf(r->call_id, sizeof r->call_id, "mcp-%" PRIu32 "-%" PRIu64, (uint32_t)c->number,
                   ++c->next_run);
    link_run(c, r);
    const int began = tool->start(r, ask->arguments, e);
    if (began < 0) {
        sp_mcp_run_free(r);
        return began;
    }
    *ret = r;
    return 0;
}

/* ---- who waits ---- */

void sp_mcp_run_attach(struct sp_mcp_run *r, const struct sp_mcp_run_ops *ops, void *user)
{
    r->ops = ops;
    r->user = user;
    r->is_told = false;
    r->was_withdrawn = false;
    sp_mcp_run_hold(r, false);
    sp_mcp_run_tell_soon(r);
}

static void hurry(struct sp_mcp_run *r)
{
    r->is_in_hurry = true;
    sp_mcp_run_tell_soon(r);
}

void sp_mcp_run_cancel(struct sp_mcp_run *r)
{
    r->is_cancelled = true;
    r->ops = NULL;
    sp_mcp_run_close_question(r);
    if (r->engine_call != 0)
        (void)sp_manager_cancel(r->caller->manager, r->engine_call);
    else
        hurry(r); /* or, if it has a result already, it is freed there */
}

void sp_mcp_run_abandon(struct sp_mcp_run *r)
{
    const int orphan =
        r->owns_process && !r->caller->mcp->options.keeps_cancelled ? r->session_id : 0;
    struct sp_manager *m = r->caller->manager;

    sp_mcp_run_cancel(r);
    if (orphan != 0)
        sp_manager_terminate(m, orphan, NULL, NULL);
}

void sp_mcp_run_answer_now(struct sp_mcp_run *r)
{
    r->was_cut_short = true;
    if (r->engine_call != 0)
        sp_manager_answer_now(r->caller->manager, r->engine_call);
    else
        hurry(r);
}
