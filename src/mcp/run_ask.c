/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The questions of a run: from its manager to whoever can answer, and the answer back.
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

#include "approve/approver.h"
#include "base/auto.h"
#include "base/log.h"
#include "mcp/ended.h"
#include "mcp/log.h"
#include "mcp/mcp_priv.h"

#define ABORTED "aborted by user"

static struct sp_mcp_run *run_of_question(const struct sp_mcp_caller *c, uint64_t question)
{
    struct sp_mcp_run *r = c->runs;

    while (r != NULL && r->question != question)
        r = r->next;
    return r;
}

static struct sp_approver *approver_of(const struct sp_mcp_run *r)
{
    return r->caller->mcp->options.approver;
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

static void stop_asking_approver(struct sp_mcp_run *r)
{
    if (!r->is_asking_approver)
        return;
    r->is_asking_approver = false;
    approver_of(r)->ops->withdraw(approver_of(r), r->question, r->caller);
}

void sp_mcp_run_close_question(struct sp_mcp_run *r)
{
    stop_asking_approver(r);
    drop_kept(r);
    r->question = 0;
    r->is_told = false;
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

const struct sp_question *sp_mcp_run_question(const struct sp_mcp_run *r)
{
    return r->question == 0 || r->kept != NULL
               ? NULL
               : sp_approvals_question(sp_manager_approvals(r->caller->manager), r->question);
}

void sp_mcp_run_decide(struct sp_mcp_run *r, const struct sp_decision *d)
{
    const struct sp_decision no_memory = {
        .kind = SP_DECISION_DENIED, .rejection = SP_STR("there was no memory to keep the answer")};

    if (r->question == 0 || r->kept != NULL)
        return;
    stop_asking_approver(r);
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

/* ---- the configured approver ---- */

/* As the engine words it of an approver of its own. */
static void decide_by_broken_approver(struct sp_mcp_run *r, struct sp_str why)
{
    const char *name = approver_of(r)->name;
    struct sp_decision d = {.kind = SP_DECISION_DENIED, .rejection = why};
    auto_buf struct sp_buf text = {0};

    if (name != NULL && sp_buf_printf(&text, "approval required, but %s did not answer: ", name) &&
        sp_buf_add_str(&text, why))
        d.rejection = (struct sp_str){text.data, text.len};
    sp_mcp_run_decide(r, &d);
}

static void on_approver(void *user, uint64_t question, const struct sp_decision *d)
{
    struct sp_mcp_run *r = run_of_question(user, question);

    if (r == NULL || !r->is_asking_approver)
        return;
    r->is_asking_approver = false;
    if (d->kind == SP_DECISION_FAILED)
        decide_by_broken_approver(r, d->rejection);
    else if (d->kind == SP_DECISION_NO_OPINION)
        decide_by_broken_approver(r, SP_STR("it said nothing"));
    else
        sp_mcp_run_decide(r, d);
}

void sp_mcp_run_ask_approver(struct sp_mcp_run *r)
{
    const struct sp_decision nobody = {.kind = SP_DECISION_DENIED,
                                       .rejection = SP_STR(SP_NOBODY_ANSWERS)};
    const struct sp_question *q = sp_mcp_run_question(r);
    struct sp_approver *a = approver_of(r);

    if (q == NULL || r->is_asking_approver)
        return;
    if (a == NULL) {
        sp_mcp_run_decide(r, &nobody);
        return;
    }
    r->is_asking_approver = true;
    a->ops->ask(a, q, on_approver, r->caller);
}

bool sp_mcp_run_is_asking_approver(const struct sp_mcp_run *r)
{
    return r->is_asking_approver;
}

/* ---- what the manager tells ---- */

static void on_ask(void *user, const struct sp_question *q)
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

static void on_warning(struct sp_mcp_caller *c, const struct sp_event *e)
{
    struct sp_mcp_run *r = e->call_id.n == 0 ? NULL : sp_mcp_run_of_call(c, e->call_id);
    struct sp_buf *to = r != NULL && !r->is_cancelled ? &r->warnings : &c->warnings;
    const size_t before = to->len;

    if ((before != 0 && !sp_buf_add(to, "\n", 1)) || !sp_buf_add_str(to, e->message)) {
        to->len = before;
        sp_log(SP_LOG_WARN, SP_STR_FMT, SP_STR_ARG(e->message));
    }
}

static void on_begin(struct sp_mcp_caller *c, const struct sp_event *e)
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

static void on_end(struct sp_mcp_caller *c, const struct sp_event *e)
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

static void on_event(void *user, const struct sp_event *e)
{
    if (e->type == SP_EVENT_BEGIN)
        on_begin(user, e);
    else if (e->type == SP_EVENT_END)
        on_end(user, e);
    else if (e->type == SP_EVENT_WARNING)
        on_warning(user, e);
}

const struct sp_manager_ops sp_mcp_manager_ops = {
    .event = on_event, .ask = on_ask, .withdraw = on_withdraw};
