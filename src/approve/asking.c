/* SPDX-License-Identifier: Apache-2.0 */
#include "approve/asking.h"

#include <stdio.h>
#include <time.h>

#include "approve/approvals_priv.h"
#include "base/auto.h"

#define BY_CONFIGURATION "rejected by configuration"
#define NO_MEMORY        "no memory to ask"

const char *sp_decider_name(enum sp_decider by)
{
    static const char *const names[] = {
        [SP_DECIDER_CONFIG] = "config",     [SP_DECIDER_RULE] = "rule",
        [SP_DECIDER_CACHE] = "cache",       [SP_DECIDER_HOOK] = "hook",
        [SP_DECIDER_REVIEWER] = "reviewer", [SP_DECIDER_USER] = "user",
    };

    return names[by];
}

static struct sp_str view(const struct sp_buf *b)
{
    return (struct sp_str){b->len == 0 ? "" : b->data, b->len};
}

static int64_t wall_clock_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static uint64_t clock_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000 + 1;
}

/* ---- the end ---- */

/* Whether the question waits for a person, for whoever stops clocks meanwhile. */
static void announce(struct sp_asking *q, bool is_open)
{
    const struct sp_approvals_options *o = &q->approvals->options;

    if (q->is_announced == is_open)
        return;
    q->is_announced = is_open;
    if (o->asking != NULL)
        o->asking(o->user, is_open);
}

static void close_asking(struct sp_asking *q)
{
    struct sp_approvals *a = q->approvals;

    announce(q, false);

    sp_loop_cancel(a->options.loop, &q->timer);
    *(q->prev != NULL ? &q->prev->next : &a->asking) = q->next;
    if (q->next != NULL)
        q->next->prev = q->prev;
    q->prev = q->next = NULL;
    q->stage = SP_ASKING_CLOSED;
}

static void finish(struct sp_asking *q, const struct sp_decision *d, enum sp_decider by)
{
    close_asking(q);
    q->decided_by = by;
    q->told(q, d);
}

static void deny(struct sp_asking *q, struct sp_str text, enum sp_decider by)
{
    const struct sp_decision d = {.kind = SP_DECISION_DENIED, .rejection = text};

    finish(q, &d, by);
}

/* ---- one of them is asked ---- */

static void withdraw(struct sp_asking *q)
{
    sp_loop_cancel(q->approvals->options.loop, &q->timer);
    if (q->who != NULL)
        q->who->ops->withdraw(q->who, q->question.id, q->approvals);
}

static void hear(struct sp_asking *q, const struct sp_decision *d);

static void on_too_late(struct sp_timer *t)
{
    struct sp_asking *q = SP_CONTAINER(t, struct sp_asking, timer);
    const struct sp_decision d = {.kind = SP_DECISION_TIMED_OUT};

    withdraw(q);
    if (q->stage == SP_ASKING_USER)
        finish(q, &d, SP_DECIDER_CONFIG);
    else
        hear(q, &d);
}

static struct sp_asking *find(const struct sp_approvals *a, uint64_t question)
{
    for (struct sp_asking *q = a->asking; q != NULL; q = q->next)
        if (q->question.id == question)
            return q;
    return NULL;
}

static void on_answer(void *user, uint64_t question, const struct sp_decision *d)
{
    struct sp_asking *q = find(user, question);

    if (q == NULL)
        return;
    sp_loop_cancel(q->approvals->options.loop, &q->timer);
    hear(q, d);
}

/* A new number each time, so that a late answer is nobody's. The last thing done to q here: the
 * answer may be given at once. */
static void ask_one(struct sp_asking *q, enum sp_asking_stage stage, struct sp_approver *who,
                    uint64_t within_ms)
{
    struct sp_approvals *a = q->approvals;

    if (q->cannot_ask.n != 0) {
        deny(q, q->cannot_ask, SP_DECIDER_CONFIG);
        return;
    }
    q->stage = stage;
    q->who = who;
    q->question.id = ++a->last_question;
    announce(q, stage == SP_ASKING_USER);
    if (within_ms != 0 &&
        !sp_loop_timer(a->options.loop, &q->timer, clock_ms() + within_ms, on_too_late)) {
        deny(q, SP_STR(NO_MEMORY), SP_DECIDER_CONFIG);
        return;
    }
    who->ops->ask(who, &q->question, on_answer, a);
}

/* ---- the person ---- */

static bool is_offered(const struct sp_asking *q, struct sp_words amendment)
{
    return sp_question_offers_amendment(&q->question) &&
           sp_words_equal(amendment, q->question.amendment);
}

/* What was not offered, and whatever is no decision, counts as no. */
static bool is_answer(const struct sp_asking *q, const struct sp_decision *d)
{
    if (d->permissions != NULL && q->question.kind != SP_QUESTION_PERMISSIONS)
        return false;
    switch (d->kind) {
    case SP_DECISION_AMENDMENT:
        return is_offered(q, d->amendment);
    case SP_DECISION_NETWORK_AMENDMENT:
        return q->question.kind == SP_QUESTION_NETWORK;
    case SP_DECISION_DENIED:
    case SP_DECISION_APPROVED:
    case SP_DECISION_APPROVED_FOR_SESSION:
    case SP_DECISION_TIMED_OUT:
    case SP_DECISION_ABORT:
        return true;
    case SP_DECISION_NO_OPINION:
    case SP_DECISION_FAILED:
    case SP_DECISION_MAX:
        break;
    }
    return false;
}

/* Nobody said no, but nobody can say yes either. */
static void deny_by_broken_approver(struct sp_asking *q, struct sp_str why)
{
    const char *name = q->who->name;

    if (name == NULL ||
        !sp_buf_printf(&q->text, "approval required, but %s did not answer: ", name) ||
        !sp_buf_add_str(&q->text, why))
        q->text.len = 0;
    deny(q, q->text.len != 0 ? view(&q->text) : why, SP_DECIDER_CONFIG);
}

static void hear_user(struct sp_asking *q, const struct sp_decision *d)
{
    static const struct sp_decision no = {.kind = SP_DECISION_DENIED};

    const enum sp_decider by =
        d->kind == SP_DECISION_TIMED_OUT ? SP_DECIDER_CONFIG : SP_DECIDER_USER;

    if (d->kind == SP_DECISION_FAILED)
        deny_by_broken_approver(q, d->rejection);
    else if (d->kind == SP_DECISION_NO_OPINION)
        deny_by_broken_approver(q, SP_STR("it said nothing"));
    else
        finish(q, is_answer(q, d) ? d : &no, by);
}

static bool is_same(const struct sp_approval_question *a, const struct sp_approval_question *b)
{
    return sp_str_eq(a->call_id, b->call_id) && sp_str_eq(a->approval_id, b->approval_id);
}

static struct sp_asking *find_older(const struct sp_asking *q)
{
    struct sp_asking *older = q->question.call_id.n == 0 ? NULL : q->approvals->asking;

    while (older != NULL && (older == q || older->stage != SP_ASKING_USER ||
                             !is_same(&older->question, &q->question)))
        older = older->next;
    return older;
}

/*
 * Answers name a question by its call's id, or by that and its own (12.1): of two with the same,
 * nobody could answer the first any more. The turn goes on, for it has the second in it. false: who
 * was told of that has no more use for the second either, and q is gone.
 */
static bool replace_older(struct sp_asking *q)
{
    static const struct sp_decision abort = {.kind = SP_DECISION_ABORT};
    struct sp_approvals *a = q->approvals;
    struct sp_asking *older = find_older(q);

    if (older == NULL)
        return true;
    /* Open, and with a number by which it is found again, but nobody is asked it yet. */
    const uint64_t id = q->question.id = ++a->last_question;
    q->stage = SP_ASKING_USER;
    q->who = NULL;
    withdraw(older);
    older->is_replaced = true;
    finish(older, &abort, SP_DECIDER_USER);
    return find(a, id) != NULL;
}

static void ask_user(struct sp_asking *q)
{
    const struct sp_approvals_options *o = &q->approvals->options;

    if (replace_older(q))
        ask_one(q, SP_ASKING_USER, o->approver, o->timeout_ms);
}

/* ---- the reviewer ---- */

static void review(struct sp_asking *q)
{
    const struct sp_approvals_options *o = &q->approvals->options;
    const uint64_t ms = o->review_timeout_ms != 0 ? o->review_timeout_ms : SP_REVIEW_MS;

    q->attempt++;
    ask_one(q, SP_ASKING_REVIEWER, o->reviewer, ms);
}

static void allow_once(struct sp_asking *q, const struct sp_decision *d, enum sp_decider by)
{
    const struct sp_decision once = {.kind = SP_DECISION_APPROVED,
                                     .permissions = d->permissions,
                                     .wants_strict_review = d->wants_strict_review};

    finish(q, &once, by);
}

static void deny_by_review(struct sp_asking *q, const struct sp_decision *d)
{
    struct sp_approvals *a = q->approvals;
    struct sp_decision no = {.kind = d->kind};

    if (!sp_review_add_refusal(&q->text, d, q->who->name))
        q->text.len = 0; /* the short one will do */
    no.rejection = q->text.len != 0 ? view(&q->text) : SP_STR(SP_REVIEW_DENIED);
    if (d->kind != SP_DECISION_TIMED_OUT &&
        (sp_review_is_too_much(a, q->question.turn_id, true) || d->kind == SP_DECISION_ABORT))
        no.kind = SP_DECISION_ABORT;
    else if (d->kind != SP_DECISION_TIMED_OUT)
        no.kind = SP_DECISION_DENIED;
    finish(q, &no, SP_DECIDER_REVIEWER);
}

static void hear_reviewer(struct sp_asking *q, const struct sp_decision *d)
{
    if (is_answer(q, d) &&
        (d->kind == SP_DECISION_APPROVED || d->kind == SP_DECISION_APPROVED_FOR_SESSION)) {
        (void)sp_review_is_too_much(q->approvals, q->question.turn_id, false);
        allow_once(q, d, SP_DECIDER_REVIEWER);
    } else if (d->kind == SP_DECISION_DENIED || d->kind == SP_DECISION_ABORT ||
               q->attempt == SP_REVIEW_ATTEMPTS) {
        deny_by_review(q, d);
    } else {
        review(q);
    }
}

/* ---- hooks ---- */

static void after_hooks(struct sp_asking *q)
{
    static const struct sp_decision yes = {.kind = SP_DECISION_APPROVED};
    const struct sp_approvals_options *o = &q->approvals->options;

    if (!sp_approvals_is_strict(q->approvals, q->question.turn_id) && q->is_known != NULL &&
        q->is_known(q))
        finish(q, &yes, SP_DECIDER_CACHE);
    else if (o->reviewer != NULL)
        review(q);
    else if (o->approver != NULL && !o->nobody_answers && !q->nobody_answers)
        ask_user(q);
    else
        deny(q, SP_STR(SP_NOBODY_ANSWERS), SP_DECIDER_CONFIG);
}

static void ask_hook(struct sp_asking *q)
{
    const struct sp_approvals_options *o = &q->approvals->options;

    if (q->hook < o->hook_count && !q->is_review)
        ask_one(q, SP_ASKING_HOOK, o->hooks[q->hook],
                o->hook_timeout_ms != 0 ? o->hook_timeout_ms : SP_HOOK_MS);
    else
        after_hooks(q);
}

static void deny_by_broken_hook(struct sp_asking *q, const struct sp_decision *d)
{
    const char *name = q->who->name;
    struct sp_str why = d->rejection;

    if (d->kind == SP_DECISION_TIMED_OUT)
        why = SP_STR("no answer before its deadline");
    else if (d->kind != SP_DECISION_FAILED || why.n == 0)
        why = SP_STR("its answer is no decision");
    if (!sp_buf_printf(&q->text, "permission hook %zu (%s) failed: ", q->hook + 1,
                       name != NULL ? name : "without a name") ||
        !sp_buf_add_str(&q->text, why) ||
        !sp_buf_add_str(&q->text,
                        SP_STR("; nothing is allowed until it works or is not configured")))
        q->text.len = 0;
    deny(q, q->text.len != 0 ? view(&q->text) : SP_STR(NO_MEMORY), SP_DECIDER_HOOK);
}

static void next_hook(struct sp_asking *q)
{
    q->hook++;
    ask_hook(q);
}

static void hear_hook(struct sp_asking *q, const struct sp_decision *d)
{
    const struct sp_decision no = {.kind = d->kind,
                                   .rejection = d->rejection.n != 0 ? d->rejection
                                                                    : SP_STR(BY_CONFIGURATION)};

    if (d->kind == SP_DECISION_NO_OPINION) {
        next_hook(q);
        return;
    }
    switch (is_answer(q, d) ? d->kind : SP_DECISION_MAX) {
    case SP_DECISION_APPROVED:
    case SP_DECISION_APPROVED_FOR_SESSION:
        if (sp_approvals_is_strict(q->approvals, q->question.turn_id))
            next_hook(q); /* the reviewer has the last word */
        else
            allow_once(q, d, SP_DECIDER_HOOK);
        return;
    case SP_DECISION_DENIED:
    case SP_DECISION_ABORT:
        finish(q, &no, SP_DECIDER_HOOK);
        return;
    case SP_DECISION_TIMED_OUT:
    case SP_DECISION_AMENDMENT:
    case SP_DECISION_NETWORK_AMENDMENT:
    case SP_DECISION_NO_OPINION:
    case SP_DECISION_FAILED:
    case SP_DECISION_MAX:
        break;
    }
    deny_by_broken_hook(q, d);
}

/* ---- all of them ---- */

static void hear(struct sp_asking *q, const struct sp_decision *d)
{
    switch (q->stage) {
    case SP_ASKING_HOOK:
        hear_hook(q, d);
        return;
    case SP_ASKING_REVIEWER:
        hear_reviewer(q, d);
        return;
    case SP_ASKING_USER:
        hear_user(q, d);
        return;
    case SP_ASKING_CLOSED:
        break;
    }
}

void sp_asking_begin(struct sp_asking *q, struct sp_approvals *a)
{
    q->approvals = a;
    q->question.at_ms = wall_clock_ms();
    q->hook = 0;
    q->attempt = 0;
    q->is_replaced = false;
    q->text.len = 0;
    q->prev = NULL;
    q->next = a->asking;
    if (q->next != NULL)
        q->next->prev = q;
    a->asking = q;
    ask_hook(q);
}

void sp_asking_done(struct sp_asking *q)
{
    if (sp_asking_is_open(q)) {
        withdraw(q);
        close_asking(q);
    }
    sp_buf_done(&q->text);
}

/* ---- by number ---- */

/* What hooks and the reviewer are asked, no person answers. */
static struct sp_asking *find_for_user(const struct sp_approvals *a, uint64_t question)
{
    struct sp_asking *q = find(a, question);

    return q != NULL && q->stage == SP_ASKING_USER ? q : NULL;
}

const struct sp_approval_question *sp_approvals_question(const struct sp_approvals *a,
                                                         uint64_t question)
{
    const struct sp_asking *q = find_for_user(a, question);

    return q != NULL ? &q->question : NULL;
}

void sp_approvals_decide(struct sp_approvals *a, uint64_t question, const struct sp_decision *d)
{
    if (find_for_user(a, question) != NULL)
        on_answer(a, question, d);
}
