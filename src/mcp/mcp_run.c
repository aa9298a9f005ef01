/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mcp_run: the life of a run, its questions, and its description for progress messages.
 *
 * A run is freed in one place, when its tool is done with it. A waiter that leaves sets ops to
 * NULL; the tool ends the run later like any other.
 *
 * The manager asks caller->questions, which finds the run and asks the configured approvers; the
 * host is one of them (caller->host).
 *
 *   none --ask--> open --told--> told --decide----------------> none
 *                   ^              '--decide, while held--> kept --end of hold--> none
 *                   '--attach------'
 *
 * A question that the manager withdraws is closed in any of these states. Approvers answer by the
 * number of the question, in the caller's name: an answer for a run that is gone finds nothing.
 *
 * Questions about hosts are different: a command may have several at once, and may go on after its
 * call was answered. Each waits in caller->host_questions for a run about its process that has no
 * other question: the call that started it, or one that polls it.
 */
#include "mcp/mcp_run.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "approve/approvers.h"
#include "base/auto.h"
#include "base/log.h"
#include "base/utf8.h"
#include "mcp/output.h"
#include "mcp/tool.h"

#define FAILURE_MAX    8192
#define COMMAND_MAX    80   /* bytes of a command in a note */
#define READING_MS     500  /* a person needs at least this long to read a question */
#define LINE_MAX_BYTES 200  /* of a description */
#define TAIL_BYTES     4096 /* of output, in which its last line is searched */
#define ELLIPSIS       "\xe2\x80\xa6"

struct sp_mcp_kept_result {
    struct sp_mcp_result result;
    struct sp_arena keep;
};

/* Stands for a result that there was no memory to keep. */
static struct sp_mcp_kept_result lost_result = {
    .result = {.is_error = true,
               .text = SP_STR("there was no memory to keep the result of this call")}};

static void on_telling(struct sp_deferred *d);

static struct sp_mcp_run *run_of(struct sp_list *link)
{
    return SP_CONTAINER(link, struct sp_mcp_run, link);
}

static struct sp_mcp_run *run_of_call(const struct sp_mcp_caller *c, struct sp_str call_id)
{
    sp_list_each(i, &c->runs) {
        if (sp_str_eq(sp_str_of(run_of(i)->call_id), call_id))
            return run_of(i);
    }
    return NULL;
}

static struct sp_mcp_run *run_of_question(const struct sp_mcp_caller *c, uint64_t question)
{
    sp_list_each(i, &c->runs) {
        if (run_of(i)->question == question)
            return run_of(i);
    }
    return NULL;
}

struct host_question {
    struct sp_list link;
    uint64_t id;
    struct sp_mcp_asker asker;
    bool is_asked; /* a run has it, or approvers that need none */
};

static struct host_question *find_host_question(const struct sp_mcp_caller *c, uint64_t id)
{
    sp_list_each(i, &c->host_questions) {
        struct host_question *q = SP_CONTAINER(i, struct host_question, link);

        if (q->id == id)
            return q;
    }
    return NULL;
}

static void free_host_question(struct host_question *q)
{
    if (q == NULL)
        return;
    sp_list_remove(&q->link);
    free(q);
}

static void tell_soon(struct sp_mcp_run *r)
{
    sp_loop_defer(r->caller->loop, &r->telling, on_telling);
}

/* ---- sessions that ended while no call waited for them ---- */

/* Appends a line for each that no result has mentioned yet, except `told`, the session whose end
 * this result reports (0: none). Each is mentioned once. */
static bool add_ended(struct sp_mcp_caller *c, int told, struct sp_buf *out)
{
    bool ok = true;

    for (uint32_t i = 0; ok && i < c->ended_count; i++) {
        struct sp_mcp_ended *e = &c->ended[i];
        struct sp_manager_view v = {0};

        if (!e->is_noted && e->session_id != told &&
            sp_manager_view(c->manager, e->session_id, &v) && v.has_exited && !v.is_end_told) {
            const bool is_long = v.command.n > COMMAND_MAX;

            v.command.n = is_long ? COMMAND_MAX : v.command.n;
            ok = (out->len == 0 || sp_buf_add(out, "\n", 1)) &&
                 sp_buf_printf(out, "Session %d has ended with code %d: ", v.process_id,
                               v.exit_code) &&
                 sp_question_add_visible(out, v.command, false) &&
                 (!is_long || sp_buf_add_str(out, SP_STR(" ...")));
        }
        e->is_noted = true;
    }
    return ok;
}

/* ---- the end ---- */

static void free_kept_decision(struct sp_mcp_kept_decision *k)
{
    if (k == NULL)
        return;
    sp_grant_done(&k->grant);
    sp_arena_done(&k->keep);
    free(k);
}

/* A question about a host stays open: another run may get it (show_host_questions). */
static void close_question(struct sp_mcp_run *r)
{
    struct sp_approver *approvers = r->caller->approvers;
    const uint64_t question = r->question;
    struct host_question *about_host = find_host_question(r->caller, question);

    if (about_host != NULL)
        about_host->is_asked = false;

    r->question = 0;
    r->asker = r->host = (struct sp_mcp_asker){0};
    free_kept_decision(TAKE_PTR(r->kept));
    r->is_told = false;
    if (question != 0)
        approvers->ops->withdraw(approvers, question, r->caller);
}

static void free_kept_result(struct sp_mcp_kept_result *k)
{
    if (k == NULL || k == &lost_result)
        return;
    sp_arena_done(&k->keep);
    free(k);
}

static void unlink_run(struct sp_mcp_run *r)
{
    if (!sp_list_is_linked(&r->link))
        return;
    sp_list_remove(&r->link);
    r->caller->run_count--;
}

static void show_host_questions(struct sp_mcp_caller *c);

static void free_run(struct sp_mcp_run *r)
{
    struct sp_mcp_caller *c = r->caller;

    unlink_run(r);
    sp_loop_undefer(r->caller->loop, &r->telling);
    sp_loop_undefer(r->caller->loop, &r->deferred);
    close_question(r);
    sp_mcp_inspection_forget(r->describing);
    sp_mcp_inspection_forget(r->inspection);
    if (r->free_data != NULL)
        r->free_data(r);
    /* The call started nothing: its key can be used again. */
    if (r->key_item != NULL && r->key_item->run == r)
        sp_mcp_key_forget(r->key_item);
    sp_list_remove(&r->key_wait);
    sp_mcp_denials_done(&r->denials);
    sp_arguments_done(&r->arguments);
    free(r->refusal);
    free_kept_result(r->result);
    sp_buf_done(&r->typed);
    sp_buf_done(&r->output);
    sp_buf_done(&r->network);
    sp_buf_done(&r->warnings);
    free(r);
    show_host_questions(c);
}

static void tell_result(struct sp_mcp_run *r, const struct sp_mcp_result *result)
{
    unlink_run(r); /* the waiter may look at the runs that are left */
    if (r->was_withdrawn && r->ops != NULL)
        r->ops->withdrawn(r->user);
    if (r->ops != NULL)
        r->ops->done(r->user, result);
    free_run(r);
}

void sp_mcp_run_done(struct sp_mcp_run *r, const struct sp_mcp_result *result)
{
    struct sp_mcp_caller *c = r->caller;
    const struct sp_str parts[] = {result->note, sp_buf_str(&c->warnings),
                                   sp_buf_str(&r->warnings)};
    struct sp_mcp_result full = *result;
    auto_buf struct sp_buf note = {0};
    bool ok = true;

    r->engine_call = 0;
    if (r->is_cancelled) {
        free_run(r);
        return;
    }
    for (size_t i = 0; ok && i < sizeof parts / sizeof parts[0]; i++)
        if (parts[i].n != 0)
            ok = (note.len == 0 || sp_buf_add(&note, "\n", 1)) && sp_buf_add_str(&note, parts[i]);
    if (ok && add_ended(c, r->omits_end ? 0 : r->session_id, &note)) {
        full.note = sp_buf_str(&note);
        sp_buf_done(&c->warnings);
    }
    if (!r->is_held) {
        tell_result(r, &full);
        return;
    }
    close_question(r);
    struct sp_mcp_kept_result *k = calloc(1, sizeof *k);
    if (k != NULL)
        k->result = full;
    if (k == NULL || !sp_arena_str(&k->keep, full.text, &k->result.text) ||
        !sp_arena_str(&k->keep, full.note, &k->result.note) ||
        !sp_arena_str(&k->keep, full.structured, &k->result.structured)) {
        free_kept_result(k);
        k = &lost_result;
    }
    r->result = k;
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
        result.text = sp_buf_str(&valid);
    sp_mcp_run_done(r, &result);
}

/* ---- the start ---- */

int sp_mcp_run_start(struct sp_mcp_caller *c, const struct sp_mcp_run_request *request,
                     const struct sp_mcp_run_ops *ops, void *user, struct sp_mcp_run **ret,
                     struct sp_err *e)
{
    const struct sp_mcp_tool *tool = sp_mcp_tool_find(c->mcp, request->tool);

    if (tool == NULL)
        return sp_fail(e, SP_E_NO_METHOD, 0, "Unknown tool: " SP_STR_FMT,
                       SP_STR_ARG(request->tool));
    if (c->run_count >= SP_MCP_RUNS_MAX)
        return sp_fail(e, SP_E_LIMIT, 0, "%d calls are waiting already; wait for some of them",
                       SP_MCP_RUNS_MAX);
    struct sp_mcp_run *r = calloc(1, sizeof *r);
    if (r == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "begin a call");
    r->caller = c;
    r->ops = ops;
    r->user = user;
    r->tool = tool;
    r->waits_for_end = request->waits_for_end;
    r->repeats_output = request->repeats_output;
    r->has_no_approver =
        request->cannot_ask_host && !sp_approvers_has_others(c->mcp->options.approvers);
    r->warnings.max = SP_MCP_WARNINGS_MAX;
    r->arguments = *request->arguments;
    *request->arguments = (struct sp_arguments){0};
    (void)snprintf(r->call_id, sizeof r->call_id, "mcp-%" PRIu32 "-%" PRIu64, (uint32_t)c->number,
                   ++c->next_run);
    sp_list_prepend(&c->runs, &r->link);
    c->run_count++;
    const int began = tool->start(r, e);
    if (began < 0) {
        free_run(r);
        return began;
    }
    *ret = r;
    show_host_questions(c);
    return 0;
}

/* ---- the waiter ---- */

static void on_telling(struct sp_deferred *d)
{
    struct sp_mcp_run *r = SP_CONTAINER(d, struct sp_mcp_run, telling);

    if (r->result != NULL && r->is_held && !r->is_cancelled)
        return;
    if (r->result != NULL) {
        tell_result(r, &r->result->result);
        return;
    }
    if (r->was_withdrawn && r->ops != NULL) {
        r->was_withdrawn = false;
        r->ops->withdrawn(r->user);
    }
    if (sp_mcp_run_question(r) != NULL && !r->is_told && r->ops != NULL) {
        r->is_told = true;
        r->ops->question(r->user);
    }
    if (r->is_in_hurry && r->engine_call == 0 && r->hurry != NULL) {
        r->is_in_hurry = false;
        r->hurry(r); /* may free the run */
    }
}

static void hurry(struct sp_mcp_run *r)
{
    r->is_in_hurry = true;
    tell_soon(r);
}

void sp_mcp_run_cancel(struct sp_mcp_run *r)
{
    r->is_cancelled = true;
    r->ops = NULL;
    close_question(r);
    if (r->engine_call != 0)
        (void)sp_manager_cancel(r->caller->manager, r->engine_call);
    else
        hurry(r); /* or on_telling frees it, if it has a kept result */
    show_host_questions(r->caller);
}

void sp_mcp_run_answer_now(struct sp_mcp_run *r)
{
    r->was_cut_short = true;
    if (r->engine_call != 0)
        sp_manager_answer_now(r->caller->manager, r->engine_call);
    else
        hurry(r);
}

/* ---- answers to a question ---- */

const struct sp_approval_question *sp_mcp_run_question(const struct sp_mcp_run *r)
{
    if (r->question == 0 || r->kept != NULL)
        return NULL;
    return sp_approvals_question(sp_manager_approvals(r->caller->manager), r->question);
}

/* An abort stops this call alone: MCP has no turn that several calls belong to. */
static void pass_decision(struct sp_mcp_run *r, const struct sp_decision *d)
{
    const struct sp_decision aborted = {
        .kind = SP_DECISION_DENIED, .by = d->by, .rejection = SP_STR("aborted by user")};
    const struct sp_mcp_asker asker = r->asker;
    const uint64_t question = r->question;
    const bool is_abort = d->kind == SP_DECISION_ABORT;
    struct host_question *about_host = find_host_question(r->caller, question);
    struct sp_mcp_caller *c = r->caller;

    r->question = 0;
    r->asker = (struct sp_mcp_asker){0};
    r->is_told = false;
    free_host_question(about_host);
    if (is_abort && about_host == NULL && r->engine_call != 0) {
        sp_approvals_note_abort(sp_manager_approvals(r->caller->manager), question, d->by);
        if (sp_manager_cancel(r->caller->manager, r->engine_call))
            return;
    }
    asker.done(asker.user, question, is_abort ? &aborted : d);
    show_host_questions(c);
}

void sp_mcp_run_attach(struct sp_mcp_run *r, const struct sp_mcp_run_ops *ops, void *user)
{
    r->ops = ops;
    r->user = user;
    r->is_told = false;
    r->was_withdrawn = false;
    /* Only the waiter that leaves was in a hurry. An answer that exists already stays early. */
    r->is_in_hurry = false;
    if (r->was_cut_short && r->engine_call != 0 &&
        sp_manager_wait_on(r->caller->manager, r->engine_call))
        r->was_cut_short = false;
    r->is_held = ops == NULL;
    if (r->is_held)
        return;
    if (r->kept != NULL) {
        struct sp_mcp_kept_decision *kept = TAKE_PTR(r->kept);

        pass_decision(r, &kept->decision);
        free_kept_decision(kept);
    }
    tell_soon(r);
}

static bool copy_decision(struct sp_mcp_kept_decision *to, const struct sp_decision *from)
{
    struct sp_decision *d = &to->decision;

    *d = *from;
    if (from->permissions != NULL)
        d->permissions = &to->grant;
    return sp_arena_str(&to->keep, from->rejection, &d->rejection) &&
           sp_arena_str(&to->keep, from->host, &d->host) &&
           sp_arena_strs(&to->keep, from->amendment.items, from->amendment.count,
                         &d->amendment.items) &&
           (from->permissions == NULL ||
            sp_profile_copy(&from->permissions->extra, &to->grant.extra));
}

/* Approvers that need no run have answered. */
static void answer_host_question(struct host_question *q, const struct sp_decision *d)
{
    if (q == NULL)
        return;
    const struct sp_mcp_asker asker = q->asker;
    const uint64_t id = q->id;
    free_host_question(q);
    asker.done(asker.user, id, d);
}

/* The answer of the approvers, from the chain. */
static void on_answer(void *user, uint64_t question, const struct sp_decision *d)
{
    struct sp_mcp_run *r = run_of_question(user, question);
    const struct sp_decision no_memory = {
        .kind = SP_DECISION_FAILED, .rejection = SP_STR("there was no memory to keep the answer")};

    if (r == NULL) {
        answer_host_question(find_host_question(user, question), d);
        return;
    }
    if (r->kept != NULL)
        return;
    if (!r->is_held) {
        pass_decision(r, d);
        return;
    }
    r->kept = calloc(1, sizeof *r->kept);
    if (r->kept != NULL && copy_decision(r->kept, d))
        return;
    free_kept_decision(TAKE_PTR(r->kept));
    pass_decision(r, &no_memory); /* a denial starts nothing, so the hold is kept */
}

/* ---- the host as an approver ---- */

bool sp_mcp_run_asks_host(const struct sp_mcp_run *r)
{
    return r->host.done != NULL;
}

void sp_mcp_run_decide(struct sp_mcp_run *r, const struct sp_decision *d)
{
    const struct sp_mcp_asker host = r->host;

    if (host.done == NULL)
        return;
    r->host = (struct sp_mcp_asker){0};
    host.done(host.user, r->question, d);
}

void sp_mcp_run_note_shown(struct sp_mcp_run *r)
{
    r->host_shown_ms = sp_loop_now(r->caller->loop);
}

bool sp_mcp_run_is_too_quick(const struct sp_mcp_run *r)
{
    return sp_loop_now(r->caller->loop) < r->host_shown_ms + READING_MS;
}

void sp_mcp_run_ask_next(struct sp_mcp_run *r, const char *why)
{
    const struct sp_decision d = {.kind = SP_DECISION_FAILED, .rejection = sp_str_of(why)};

    sp_mcp_run_decide(r, &d);
}

static void ask_host(struct sp_approver *a, const struct sp_approval_question *q,
                     sp_approver_fn *done, void *user)
{
    static const struct sp_decision gone = {.kind = SP_DECISION_FAILED,
                                            .rejection = SP_STR("the call has ended")};
    struct sp_mcp_run *r = run_of_question(SP_CONTAINER(a, struct sp_mcp_caller, host), q->id);

    if (r == NULL) {
        done(user, q->id, &gone);
        return;
    }
    r->host = (struct sp_mcp_asker){.done = done, .user = user};
    r->host_shown_ms = 0;
    r->is_told = false;
    tell_soon(r);
}

/* The waiter has heard of the question: tell it that the question is closed. */
static void tell_withdrawn(struct sp_mcp_run *r, bool was_told)
{
    r->was_withdrawn = r->was_withdrawn || was_told;
    if (r->was_withdrawn)
        tell_soon(r);
}

/* Another approver was faster. */
static void withdraw_from_host(struct sp_approver *a, uint64_t question, void *user)
{
    struct sp_mcp_run *r = run_of_question(SP_CONTAINER(a, struct sp_mcp_caller, host), question);

    if (r == NULL || r->host.user != user)
        return;
    r->host = (struct sp_mcp_asker){0};
    tell_withdrawn(r, r->is_told);
}

const struct sp_approver_ops sp_mcp_host_ops = {.ask = ask_host, .withdraw = withdraw_from_host};

/* ---- questions about hosts ---- */

struct process_search {
    struct sp_str call_id;
    int id;
};

static void find_process(void *user, const struct sp_manager_view *v)
{
    struct process_search *s = user;

    if (sp_str_eq(v->call_id, s->call_id))
        s->id = v->process_id;
}

/* A run about the process of the question, which shows no other question. */
static struct sp_mcp_run *find_free_run(const struct sp_mcp_caller *c,
                                        const struct sp_approval_question *q)
{
    struct process_search s = {.call_id = q->call_id};

    sp_manager_each(c->manager, find_process, &s);
    sp_list_each(i, &c->runs) {
        struct sp_mcp_run *r = run_of(i);

        if (r->question == 0 && !r->is_cancelled &&
            (sp_str_eq(sp_str_of(r->call_id), q->call_id) || (s.id != 0 && r->session_id == s.id)))
            return r;
    }
    return NULL;
}

static bool show_host_question(struct sp_mcp_caller *c, struct host_question *q)
{
    const struct sp_approval_question *question =
        sp_approvals_question(sp_manager_approvals(c->manager), q->id);
    struct sp_mcp_run *r = question == NULL ? NULL : find_free_run(c, question);

    if (question == NULL || (r == NULL && !sp_approvers_has_others(c->mcp->options.approvers)))
        return false;
    q->is_asked = true;
    if (r != NULL) {
        r->question = q->id;
        r->asker = q->asker;
        r->asked++;
        tell_soon(r);
    }
    c->approvers->ops->ask(c->approvers, question, on_answer, c);
    return true;
}

/* Answers that come at once change the list. */
static void show_host_questions(struct sp_mcp_caller *c)
{
    struct sp_list *i = c->manager == NULL ? &c->host_questions : c->host_questions.next;

    while (i != &c->host_questions) {
        struct host_question *q = SP_CONTAINER(i, struct host_question, link);

        i = !q->is_asked && show_host_question(c, q) ? c->host_questions.next : i->next;
    }
}

static void ask_about_host(struct sp_mcp_caller *c, const struct sp_approval_question *question,
                           struct sp_mcp_asker asker)
{
    static const struct sp_decision no_memory = {.kind = SP_DECISION_FAILED,
                                                 .rejection = SP_STR("there was no memory to ask")};
    struct host_question *q = calloc(1, sizeof *q);

    if (q == NULL) {
        asker.done(asker.user, question->id, &no_memory);
        return;
    }
    *q = (struct host_question){.id = question->id, .asker = asker};
    sp_list_append(&c->host_questions, &q->link);
    show_host_questions(c);
}

/* ---- questions of the manager ---- */

static void ask_for_run(struct sp_approver *a, const struct sp_approval_question *q,
                        sp_approver_fn *done, void *user)
{
    const struct sp_decision nobody = {.kind = SP_DECISION_FAILED,
                                       .rejection = SP_STR(SP_NO_APPROVER)};
    struct sp_mcp_caller *c = SP_CONTAINER(a, struct sp_mcp_caller, questions);
    struct sp_mcp_run *r = run_of_call(c, q->call_id);

    if (q->kind == SP_QUESTION_NETWORK) {
        ask_about_host(c, q, (struct sp_mcp_asker){.done = done, .user = user});
        return;
    }
    if (r == NULL || r->is_cancelled) {
        done(user, q->id, &nobody);
        return;
    }
    close_question(r);
    r->question = q->id;
    r->asker = (struct sp_mcp_asker){.done = done, .user = user};
    r->asked++;
    tell_soon(r);
    c->approvers->ops->ask(c->approvers, q, on_answer, c);
}

static void withdraw_from_run(struct sp_approver *a, uint64_t question, void *user)
{
    struct sp_mcp_caller *c = SP_CONTAINER(a, struct sp_mcp_caller, questions);
    struct sp_mcp_run *r = run_of_question(c, question);
    struct host_question *about_host = find_host_question(c, question);

    (void)user;
    if (r == NULL && about_host != NULL && about_host->is_asked)
        c->approvers->ops->withdraw(c->approvers, question, c);
    free_host_question(about_host);
    if (r == NULL)
        return;
    const bool was_told = r->is_told;
    close_question(r);
    tell_withdrawn(r, was_told);
    show_host_questions(c);
}

const struct sp_approver_ops sp_mcp_question_ops = {.ask = ask_for_run,
                                                    .withdraw = withdraw_from_run};

/* ---- events of the manager ---- */

static void on_end(struct sp_mcp_caller *c, const struct sp_exec_event *e)
{
    struct sp_manager_view v = {0};

    if (e->process_id == 0)
        return;
    sp_mcp_caller_log(c, e->process_id, true, SP_STR(""));
    sp_list_each(i, &c->runs) {
        const struct sp_mcp_run *r = SP_CONTAINER(i, struct sp_mcp_run, link);

        if (r->session_id == e->process_id && !r->is_cancelled && !r->omits_end)
            return; /* a call waits for the process and reports its end */
    }
    /* A process that a call or its cancellation terminated is no news. */
    if (!sp_manager_view(c->manager, e->process_id, &v) || v.end_reason == SP_END_TERMINATED)
        return;
    if (c->ended_count == SP_MCP_ENDED_MAX) { /* forget the oldest */
        c->ended_count--;
        memmove(&c->ended[0], &c->ended[1], c->ended_count * sizeof c->ended[0]);
    }
    c->ended[c->ended_count++] = (struct sp_mcp_ended){.session_id = e->process_id};
}

static void on_event(void *user, const struct sp_exec_event *e)
{
    struct sp_mcp_caller *c = user;
    struct sp_mcp_run *r = e->call_id.n == 0 ? NULL : run_of_call(c, e->call_id);

    if (e->type == SP_EVENT_BEGIN && r != NULL) {
        r->session_id = e->process_id;
        if (e->process_id != 0)
            sp_mcp_caller_log(c, e->process_id, false, SP_STR(""));
        if (r->begun != NULL)
            r->begun(r);
        if (r->ops != NULL && r->ops->started != NULL)
            r->ops->started(r->user, r->session_id);
    } else if (e->type == SP_EVENT_END) {
        on_end(c, e);
    } else if (e->type == SP_EVENT_WARNING) {
        struct sp_buf *to = r != NULL && !r->is_cancelled ? &r->warnings : &c->warnings;
        const size_t before = to->len;

        if ((before != 0 && !sp_buf_add(to, "\n", 1)) || !sp_buf_add_str(to, e->message)) {
            to->len = before;
            sp_log(SP_LOG_WARN, SP_STR_FMT, SP_STR_ARG(e->message));
        }
    } else if (e->type == SP_EVENT_NOTICE) {
        sp_mcp_caller_log(c, 0, true, e->message);
    }
}

const struct sp_manager_ops sp_mcp_manager_ops = {.event = on_event};

void sp_mcp_runs_close(struct sp_mcp_caller *c)
{
    sp_list_each(i, &c->runs)
        sp_mcp_run_cancel(run_of(i));
    sp_manager_free(c->manager);
    sp_list_each_safe(i, &c->runs)
        free_run(run_of(i));
    assert(c->run_count == 0);
    sp_approver_free(c->approvers);
    sp_approver_free(c->console);
}

/* ---- a description for progress messages ---- */

static void on_described(void *user, const struct sp_inspection *found)
{
    static const char *const words[SP_DOING_MAX] = {
        [SP_DOING_UNKNOWN] = "running",
        [SP_DOING_RUNNING] = "running",
        [SP_DOING_SLEEPING] = "sleeping",
        [SP_DOING_READING_TERMINAL] = "blocked reading its terminal",
        [SP_DOING_READING_STDIN] = "blocked reading its stdin",
        [SP_DOING_WAITING_FOR_CHILD] = "waiting for a child process",
        [SP_DOING_STOPPED] = "stopped",
    };
    struct sp_mcp_run *r = user;

    r->describing = NULL;
    r->doing =
        found != NULL && (unsigned)found->doing < SP_DOING_MAX ? words[found->doing] : "running";
}

/* Finds the last line of the kept output that is not blank. A carriage return starts the line
 * again, as on a terminal. `out` is its room. false: out of memory. */
static bool find_last_line(const struct sp_manager_view *v, struct sp_buf *out, struct sp_str *ret)
{
    static const char blanks[] = " \t\n\r";
    const struct sp_str pieces[] = {v->head, v->tail[0], v->tail[1]};
    const size_t count = sizeof pieces / sizeof pieces[0];
    struct sp_mcp_plain plain = {0};
    size_t left = TAIL_BYTES;
    size_t skip = 0;
    size_t i = count;

    while (i > 0 && left != 0) { /* find the first piece, and the bytes to skip in it */
        const size_t n = pieces[--i].n;

        skip = n > left ? n - left : 0;
        left -= n - skip;
    }
    for (; i < count; i++, skip = 0)
        if (pieces[i].n != skip &&
            !sp_mcp_plain_add(&plain, out, (struct sp_str){pieces[i].p + skip, pieces[i].n - skip}))
            return false;
    struct sp_str s = sp_buf_str(out);
    while (s.n != 0 && memchr(blanks, s.p[s.n - 1], sizeof blanks - 1) != NULL)
        s.n--;
    size_t from = s.n;
    while (from != 0 && s.p[from - 1] != '\n' && s.p[from - 1] != '\r')
        from--;
    while (from < s.n && memchr(blanks, s.p[from], sizeof blanks - 1) != NULL)
        from++;
    *ret = (struct sp_str){s.p + from, s.n - from};
    return true;
}

bool sp_mcp_run_describe(struct sp_mcp_run *r, struct sp_buf *out)
{
    auto_buf struct sp_buf tail = {0};
    auto_buf struct sp_buf visible = {0};
    struct sp_manager_view v = {0};
    struct sp_str line = {0};
    size_t n = LINE_MAX_BYTES - (sizeof ELLIPSIS - 1);

    if (r->question != 0)
        return sp_buf_add_str(out, SP_STR("waiting for approval"));
    if (r->session_id == 0)
        return sp_buf_add_str(out, r->engine_call != 0 ? SP_STR("starting") : SP_STR("running"));
    if (sp_manager_view(r->caller->manager, r->session_id, &v) && !find_last_line(&v, &tail, &line))
        return false;
    if (line.n == 0) {
        /* The last known state. A new one is asked for, for the next time: nothing waits for it. */
        if (r->describing == NULL)
            r->describing = sp_mcp_inspect(r->caller, r->session_id, 0, on_described, r);
        return sp_buf_add_str(out, sp_str_of(r->doing != NULL ? r->doing : "running"));
    }
    if (!sp_question_add_visible(&visible, line, false))
        return false;
    if (visible.len <= LINE_MAX_BYTES)
        return sp_buf_add(out, visible.data, visible.len);
    while (n > 0 && ((unsigned char)visible.data[n] & 0xc0) == 0x80) /* cut between characters */
        n--;
    return sp_buf_add(out, visible.data, n) && sp_buf_add_str(out, SP_STR(ELLIPSIS));
}
