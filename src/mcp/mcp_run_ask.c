/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The questions of a run: from its manager to all who answer (approvers.h), of whom the host is
 * one, and the answer back.
 *
 *   none --ask--> open --told--> told --decide----------------> none
 *                   ^              '--decide, while held--> kept --held no more--> none
 *                   '--attach------'
 *
 * A question that the manager takes back is none from any of these. Numbers of questions are the
 * manager's, and the approver is asked in the caller's name: an answer that comes when the run is
 * gone finds nothing.
 */
#include <errno.h>
#include <stdlib.h>

#include "approve/approvers.h"
#include "base/auto.h"
#include "base/log.h"
#include "mcp/ended.h"
#include "mcp/mcp_log.h"
#include "mcp/mcp_priv.h"

#define ABORTED    "aborted by user"
#define READING_MS 500 /* a person needs at least that for a question */

static struct sp_mcp_run *run_of_question(const struct sp_mcp_caller *c, uint64_t question)
{
    struct sp_mcp_run *r = c->runs;

    while (r != NULL && r->question != question)
        r = r->next;
    return r;
}

/* ---- telling ---- */

static void on_telling(struct sp_deferred *d)
{
    struct sp_mcp_run *r = SP_CONTAINER(d, struct sp_mcp_run, telling);

    if (r->result != NULL) {
        if (!r->is_held || r->is_cancelled)
            sp_mcp_run_tell_kept(r);
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
        r->hurry(r); /* which may be its end */
    }
}

void sp_mcp_run_tell_soon(struct sp_mcp_run *r)
{
    sp_loop_defer(r->caller->mcp->options.loop, &r->telling, on_telling);
}

/* ---- an answer that has to wait ---- */

static void copy_text(struct sp_buf *to, struct sp_str from, struct sp_str *ret)
{
    if (from.n == 0)
        return;
    (void)sp_buf_add_str(to, from); /* there is room: keep_decision has seen to that */
    *ret = (struct sp_str){to->data + to->len - from.n, from.n};
}

static bool copy_amendment(struct sp_words from, struct sp_decision_text *to)
{
    struct sp_str *words = calloc(from.count, sizeof *words);

    if (words == NULL)
        return false;
    to->impl = words;
    for (uint32_t i = 0; i < from.count; i++)
        copy_text(&to->text, from.items[i], &words[i]);
    to->decision.amendment = (struct sp_words){words, from.count};
    return true;
}

static size_t text_bytes(const struct sp_decision *d)
{
    size_t n = d->rejection.n + d->host.n + 1;

    for (uint32_t i = 0; i < d->amendment.count; i++)
        n += d->amendment.items[i].n;
    return n;
}

static bool fill_kept(struct sp_decision_text *to, const struct sp_decision *from)
{
    to->decision = (struct sp_decision){.kind = from->kind,
                                        .allows_host = from->allows_host,
                                        .wants_strict_review = from->wants_strict_review};
    if (sp_buf_room(&to->text, text_bytes(from)) == NULL) /* once: what points into it stays */
        return false;
    copy_text(&to->text, from->rejection, &to->decision.rejection);
    copy_text(&to->text, from->host, &to->decision.host);
    if (from->amendment.count != 0 && !copy_amendment(from->amendment, to))
        return false;
    if (from->permissions == NULL)
        return true;
    to->decision.permissions = &to->grant;
    return sp_profile_copy(&from->permissions->extra, &to->grant.extra);
}

static void drop_kept(struct sp_mcp_run *r)
{
    if (r->kept == NULL)
        return;
    sp_decision_text_done(r->kept);
    free(r->kept);
    r->kept = NULL;
}

static bool keep_decision(struct sp_mcp_run *r, const struct sp_decision *d)
{
    r->kept = calloc(1, sizeof *r->kept);
    if (r->kept == NULL)
        return false;
    if (fill_kept(r->kept, d))
        return true;
    drop_kept(r);
    return false;
}

/* ---- answering ---- */

void sp_mcp_run_close_question(struct sp_mcp_run *r)
{
    struct sp_approver *chain = r->caller->approver;
    const uint64_t question = r->question;

    r->question = 0;
    r->host = (struct sp_mcp_host){0};
    drop_kept(r);
    r->is_told = false;
    if (question != 0)
        chain->ops->withdraw(chain, question, r->caller);
}

/* Who stops a call stops that one: there is no turn here that all calls belong to. */
static void pass_on(struct sp_mcp_run *r, const struct sp_decision *d)
{
    const struct sp_decision aborted = {.kind = SP_DECISION_DENIED, .rejection = SP_STR(ABORTED)};
    struct sp_manager *m = r->caller->manager;
    const uint64_t question = r->question;

    r->question = 0;
    r->is_told = false;
    if (d->kind == SP_DECISION_ABORT && r->engine_call != 0 && sp_manager_cancel(m, r->engine_call))
        return;
    sp_manager_decide(m, question, d->kind == SP_DECISION_ABORT ? &aborted : d);
}

const struct sp_approval_question *sp_mcp_run_question(const struct sp_mcp_run *r)
{
    return r->question == 0 || r->kept != NULL
               ? NULL
               : sp_approvals_question(sp_manager_approvals(r->caller->manager), r->question);
}

/* What all who were asked came to. */
static void settle(struct sp_mcp_run *r, const struct sp_decision *d)
{
    const struct sp_decision no_memory = {
        .kind = SP_DECISION_DENIED, .rejection = SP_STR("there was no memory to keep the answer")};

    if (!r->is_held)
        pass_on(r, d);
    else if (!keep_decision(r, d))
        pass_on(r, &no_memory); /* which starts nothing either */
}

void sp_mcp_run_hold(struct sp_mcp_run *r, bool is_held)
{
    r->is_held = is_held;
    if (is_held || r->kept == NULL)
        return;
    struct sp_decision_text *kept = TAKE_PTR(r->kept);
    pass_on(r, &kept->decision);
    sp_decision_text_done(kept);
    free(kept);
}

/* ---- the host, as one of those who answer ---- */

bool sp_mcp_run_asks_host(const struct sp_mcp_run *r)
{
    return r->host.done != NULL;
}

void sp_mcp_run_decide(struct sp_mcp_run *r, const struct sp_decision *d)
{
    const struct sp_mcp_host host = r->host;

    if (host.done == NULL)
        return;
    r->host = (struct sp_mcp_host){0};
    host.done(host.user, r->question, d);
}

void sp_mcp_run_is_shown(struct sp_mcp_run *r)
{
    r->host.shown_ms = sp_loop_now(r->caller->mcp->options.loop);
}

bool sp_mcp_run_is_too_quick(const struct sp_mcp_run *r)
{
    return sp_loop_now(r->caller->mcp->options.loop) < r->host.shown_ms + READING_MS;
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
    struct sp_mcp_caller *c = SP_CONTAINER(a, struct sp_mcp_caller, host);
    struct sp_mcp_run *r = run_of_question(c, q->id);

    if (r == NULL) {
        done(user, q->id, &gone);
        return;
    }
    r->host = (struct sp_mcp_host){.done = done, .user = user};
    r->is_told = false;
    sp_mcp_run_tell_soon(r);
}

/* Somebody else was faster. */
static void withdraw_from_host(struct sp_approver *a, uint64_t question, void *user)
{
    struct sp_mcp_run *r = run_of_question(SP_CONTAINER(a, struct sp_mcp_caller, host), question);

    if (r == NULL || r->host.user != user)
        return;
    r->host = (struct sp_mcp_host){0};
    r->was_withdrawn = r->was_withdrawn || r->is_told;
    if (r->was_withdrawn)
        sp_mcp_run_tell_soon(r);
}

int sp_mcp_caller_open_approvers(struct sp_mcp_caller *c, struct sp_err *e)
{
    static const struct sp_approver_ops ops = {.ask = ask_host, .withdraw = withdraw_from_host};
    struct sp_approvers *all = c->mcp->options.approvers;

    c->host = (struct sp_approver){.ops = &ops, .name = "the host"};
    return sp_approvers_chain(all, &c->host, &c->approver, e);
}

static void on_answer(void *user, uint64_t question, const struct sp_decision *d)
{
    struct sp_mcp_run *r = run_of_question(user, question);
    const struct sp_decision no = {.kind = SP_DECISION_DENIED, .rejection = d->rejection};

    if (r != NULL && r->kept == NULL)
        settle(r, d->kind == SP_DECISION_FAILED ? &no : d);
}

/* ---- what the manager tells ---- */

static void on_ask(void *user, const struct sp_approval_question *q)
{
    const struct sp_decision nobody = {.kind = SP_DECISION_DENIED,
                                       .rejection = SP_STR(SP_NOBODY_ANSWERS)};
    struct sp_mcp_caller *c = user;
    struct sp_mcp_run *r = sp_mcp_run_of_call(c, q->call_id);

    if (r == NULL || r->is_cancelled) {
        sp_manager_decide(c->manager, q->id, &nobody);
        return;
    }
    sp_mcp_run_close_question(r);
    r->question = q->id;
    r->asked++;
    sp_mcp_run_tell_soon(r);
    c->approver->ops->ask(c->approver, q, on_answer, c);
}

static void on_withdraw(void *user, uint64_t question)
{
    struct sp_mcp_run *r = run_of_question(user, question);

    if (r == NULL)
        return;
    r->was_withdrawn = r->was_withdrawn || r->is_told;
    sp_mcp_run_close_question(r);
    if (r->was_withdrawn)
        sp_mcp_run_tell_soon(r);
}

static void on_warning(struct sp_mcp_caller *c, const struct sp_exec_event *e)
{
    struct sp_mcp_run *r = e->call_id.n == 0 ? NULL : sp_mcp_run_of_call(c, e->call_id);
    struct sp_buf *to = r != NULL && !r->is_cancelled ? &r->warnings : &c->warnings;
    const size_t before = to->len;

    if ((before != 0 && !sp_buf_add(to, "\n", 1)) || !sp_buf_add_str(to, e->message)) {
        to->len = before;
        sp_log(SP_LOG_WARN, SP_STR_FMT, SP_STR_ARG(e->message));
    }
}

static void on_begin(struct sp_mcp_caller *c, const struct sp_exec_event *e)
{
    struct sp_mcp_run *r = sp_mcp_run_of_call(c, e->call_id);

    if (r == NULL)
        return;
    r->session_id = e->process_id;
    if (e->process_id != 0)
        sp_mcp_log(c, e->process_id, false);
    if (r->begun != NULL)
        r->begun(r);
    if (r->ops != NULL && r->ops->started != NULL)
        r->ops->started(r->user, r->session_id);
}

/* A call that waits for the process tells its end. */
static bool is_waited_for(const struct sp_mcp_caller *c, int session_id)
{
    const struct sp_mcp_run *r = c->runs;

    while (r != NULL && (r->session_id != session_id || r->is_cancelled))
        r = r->next;
    return r != NULL;
}

static void on_end(struct sp_mcp_caller *c, const struct sp_exec_event *e)
{
    struct sp_manager_view v = {0};

    if (e->process_id == 0)
        return;
    sp_mcp_log(c, e->process_id, true);
    /* What a call has ended, or its cancellation, is no news. */
    if (!is_waited_for(c, e->process_id) && sp_manager_view(c->manager, e->process_id, &v) &&
        v.end_reason != SP_END_TERMINATED)
        sp_mcp_ended_add(c, e->process_id);
}

static void on_event(void *user, const struct sp_exec_event *e)
{
    if (e->type == SP_EVENT_BEGIN)
        on_begin(user, e);
    else if (e->type == SP_EVENT_END)
        on_end(user, e);
    else if (e->type == SP_EVENT_WARNING)
        on_warning(user, e);
    else if (e->type == SP_EVENT_NOTICE)
        sp_mcp_log_notice(user, e->message);
}

const struct sp_manager_ops sp_mcp_manager_ops = {
    .event = on_event, .ask = on_ask, .withdraw = on_withdraw};
