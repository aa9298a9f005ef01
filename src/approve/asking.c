/* SPDX-License-Identifier: Apache-2.0 */
#include "approve/asking.h"

#include <assert.h>
#include <stdio.h>

#include "approve/approvals_priv.h"
#include "base/auto.h"
#include "base/clock.h"

#define BY_CONFIGURATION "rejected by configuration"
#define NO_MEMORY        "no memory to ask"

/* The reviewer's refusals that interrupt the turn: so many in a row, or so many of the last
 * answers. */
#define MAX_REFUSALS_IN_ROW     3
#define ANSWERS_REMEMBERED      50
#define MAX_REFUSALS_REMEMBERED 10

#define REVIEW_TOO_LATE                                                                       \
    "The automatic permission approval review did not finish before its deadline. Do not "    \
    "assume the action is unsafe based on the timeout alone. You may retry once, or ask the " \
    "user for guidance or explicit approval."
#define REVIEW_REFUSED "This action was rejected due to unacceptable risk."
#define REVIEW_ADVICE                                                                           \
    "Do not try to get the same done in another way around this. Go on with something that is " \
    "safer, or stop and ask the user, who may approve it knowing the risk."
#define REVIEW_DENIED "automatic approval review denied the action"

const char *sp_decider_name(enum sp_decider by)
{
    static const char *const names[] = {
        [SP_DECIDER_NONE] = "none",       [SP_DECIDER_USER] = "user",
        [SP_DECIDER_PROGRAM] = "program", [SP_DECIDER_REVIEWER] = "reviewer",
        [SP_DECIDER_HOOK] = "hook",       [SP_DECIDER_CACHE] = "cache",
        [SP_DECIDER_RULE] = "rule",       [SP_DECIDER_CONFIG] = "config",
    };

    return names[by];
}

/* ---- the end ---- */

/* Reports whether the question waits for the approver: the owner stops its own timers meanwhile. */
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
    sp_list_remove(&q->link);
    q->stage = SP_ASKING_CLOSED;
}

static void finish_asking(struct sp_asking *q, const struct sp_decision *d, enum sp_decider by)
{
    close_asking(q);
    q->decided_by = by;
    q->decided(q, d);
}

static void deny_asking(struct sp_asking *q, struct sp_str text, enum sp_decider by)
{
    const struct sp_decision d = {.kind = SP_DECISION_DENIED, .rejection = text};

    finish_asking(q, &d, by);
}

/* ---- asking one approver ---- */

static void withdraw_asking(struct sp_asking *q)
{
    sp_loop_cancel(q->approvals->options.loop, &q->timer);
    if (q->who != NULL)
        q->who->ops->withdraw(q->who, q->question.id, q->approvals);
}

static void take_answer(struct sp_asking *q, const struct sp_decision *d);

static void on_too_late(struct sp_timer *t)
{
    struct sp_asking *q = SP_CONTAINER(t, struct sp_asking, timer);
    const struct sp_decision d = {.kind = SP_DECISION_TIMED_OUT};

    withdraw_asking(q);
    if (q->stage == SP_ASKING_APPROVER)
        finish_asking(q, &d, SP_DECIDER_CONFIG);
    else
        take_answer(q, &d);
}

static struct sp_asking *find_asking(const struct sp_approvals *a, uint64_t question)
{
    sp_list_each(i, &a->asking) {
        struct sp_asking *q = SP_CONTAINER(i, struct sp_asking, link);

        if (q->question.id == question)
            return q;
    }
    return NULL;
}

static void on_answer(void *user, uint64_t question, const struct sp_decision *d)
{
    struct sp_asking *q = find_asking(user, question);

    if (q == NULL)
        return;
    sp_loop_cancel(q->approvals->options.loop, &q->timer);
    take_answer(q, d);
}

/* Each attempt gets a new number, so a late answer matches no question. May finish q before it
 * returns: the approver may answer at once. */
static void ask_one(struct sp_asking *q, enum sp_asking_stage stage, struct sp_approver *who,
                    uint64_t within_ms)
{
    struct sp_approvals *a = q->approvals;

    if (q->cannot_ask.n != 0) {
        deny_asking(q, q->cannot_ask, SP_DECIDER_CONFIG);
        return;
    }
    q->stage = stage;
    q->who = who;
    q->question.id = ++a->last_question;
    announce(q, stage == SP_ASKING_APPROVER);
    if (within_ms != 0 &&
        !sp_loop_timer(a->options.loop, &q->timer, sp_clock_ms() + 1 + within_ms, on_too_late)) {
        deny_asking(q, SP_STR(NO_MEMORY), SP_DECIDER_CONFIG);
        return;
    }
    who->ops->ask(who, &q->question, on_answer, a);
}

/* ---- the approver ---- */

/* Whether the decision is one that this question offers; any other counts as a denial. */
static bool is_answer(const struct sp_asking *q, const struct sp_decision *d)
{
    if (d->permissions != NULL && q->question.kind != SP_QUESTION_PERMISSIONS)
        return false;
    switch (d->kind) {
    case SP_DECISION_AMENDMENT:
        return sp_question_offers_amendment(&q->question) &&
               sp_words_equal(d->amendment, q->question.amendment);
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

/* The approver is broken: denied by configuration, not by a person. */
static void deny_by_broken_approver(struct sp_asking *q, struct sp_str why)
{
    const char *name = q->who->name;

    if (name == NULL ||
        !sp_buf_printf(&q->text, "approval required, but %s did not answer: ", name) ||
        !sp_buf_add_str(&q->text, why))
        q->text.len = 0;
    deny_asking(q, q->text.len != 0 ? sp_buf_str(&q->text) : why, SP_DECIDER_CONFIG);
}

/* Answers name a question by its call_id and approval_id, so of two questions with the same ids the
 * older one could not be answered any more. Abort it, without ending the turn, which the newer
 * question belongs to. false: the callback of the older one has ended q as well. */
static bool replace_older(struct sp_asking *q)
{
    static const struct sp_decision abort = {.kind = SP_DECISION_ABORT};
    struct sp_approvals *a = q->approvals;
    struct sp_asking *older = NULL;

    sp_list_each(i, &a->asking) {
        struct sp_asking *o = SP_CONTAINER(i, struct sp_asking, link);

        if (o != q && o->stage == SP_ASKING_APPROVER && q->question.call_id.n != 0 &&
            sp_str_eq(o->question.call_id, q->question.call_id) &&
            sp_str_eq(o->question.approval_id, q->question.approval_id)) {
            older = o;
            break;
        }
    }
    if (older == NULL)
        return true;
    /* Give q a number first, to find out afterwards whether it is still open. */
    const uint64_t id = q->question.id = ++a->last_question;
    q->stage = SP_ASKING_APPROVER;
    q->who = NULL;
    withdraw_asking(older);
    older->is_replaced = true;
    finish_asking(older, &abort, SP_DECIDER_NONE);
    return find_asking(a, id) != NULL;
}

/* ---- the reviewer ---- */

/* Counts one more answer in this turn. true: it is a refusal that ends the turn. */
static bool count_review(struct sp_approvals *a, struct sp_str turn_id, bool is_refusal)
{
    struct sp_review_tally *t = &a->tally;

    if (t->turn_id == NULL || !sp_str_eq(sp_str_of(t->turn_id), turn_id)) {
        char *copy = strndup(turn_id.n == 0 ? "" : turn_id.p, turn_id.n);

        if (copy != NULL) { /* without memory the new turn inherits the old tally */
            free(t->turn_id);
            *t = (struct sp_review_tally){.turn_id = copy};
        }
    }
    t->row = is_refusal ? t->row + 1 : 0;
    t->last = (t->last << 1 | is_refusal) & ((UINT64_C(1) << ANSWERS_REMEMBERED) - 1);
    if (!is_refusal ||
        (t->row < MAX_REFUSALS_IN_ROW && __builtin_popcountll(t->last) < MAX_REFUSALS_REMEMBERED))
        return false;
    sp_approvals_warn(a, "the automatic reviewer has refused too much in this turn: the turn is "
                         "interrupted");
    return true;
}

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

    finish_asking(q, &once, by);
}

/* The reviewer approves once, refuses for good, or is asked again until its last attempt. */
static void take_review(struct sp_asking *q, const struct sp_decision *d)
{
    const bool is_said = d->kind == SP_DECISION_DENIED || d->kind == SP_DECISION_ABORT;
    const bool is_late = d->kind == SP_DECISION_TIMED_OUT;
    struct sp_decision no = {.kind = d->kind, .rejection = SP_STR(REVIEW_DENIED)};

    if (is_answer(q, d) &&
        (d->kind == SP_DECISION_APPROVED || d->kind == SP_DECISION_APPROVED_FOR_SESSION)) {
        (void)count_review(q->approvals, q->question.turn_id, false);
        allow_once(q, d, SP_DECIDER_REVIEWER);
        return;
    }
    if (!is_said && q->attempt != SP_REVIEW_ATTEMPTS) {
        review(q);
        return;
    }
    if (is_late) {
        no.rejection = SP_STR(REVIEW_TOO_LATE);
    } else if (!is_said || d->rejection.n != 0) {
        const bool has_reason = is_said || (d->kind == SP_DECISION_FAILED && d->rejection.n != 0);

        if (sp_buf_add_str(&q->text, SP_STR(REVIEW_REFUSED "\nReason: ")) &&
            (is_said || sp_buf_printf(&q->text, "the automatic review failed (%s): ",
                                      q->who->name != NULL ? q->who->name : "the reviewer")) &&
            sp_buf_add_str(&q->text,
                           has_reason ? d->rejection : SP_STR("its answer is no decision")) &&
            sp_buf_add_str(&q->text, SP_STR("\n" REVIEW_ADVICE)))
            no.rejection = sp_buf_str(&q->text); /* without memory the short text stays */
    }
    if (!is_late)
        no.kind =
            count_review(q->approvals, q->question.turn_id, true) || d->kind == SP_DECISION_ABORT
                ? SP_DECISION_ABORT
                : SP_DECISION_DENIED;
    finish_asking(q, &no, SP_DECIDER_REVIEWER);
}

/* ---- hooks ---- */

static void after_hooks(struct sp_asking *q)
{
    static const struct sp_decision yes = {.kind = SP_DECISION_APPROVED};
    const struct sp_approvals_options *o = &q->approvals->options;

    if (!sp_approvals_is_strict(q->approvals, q->question.turn_id) && q->is_known != NULL &&
        q->is_known(q))
        finish_asking(q, &yes, SP_DECIDER_CACHE);
    else if (o->reviewer != NULL)
        review(q);
    else if (o->approver != NULL && !o->has_no_approver && !q->has_no_approver) {
        if (replace_older(q))
            ask_one(q, SP_ASKING_APPROVER, o->approver, o->timeout_ms);
    } else
        deny_asking(q, SP_STR(SP_NO_APPROVER), SP_DECIDER_CONFIG);
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

/* A hook allows once or refuses. One that has no opinion leaves it to the next; so does one that
 * allows in a strict turn, where the reviewer decides. A broken hook allows nothing. */
static void take_hook_answer(struct sp_asking *q, const struct sp_decision *d)
{
    const enum sp_decision_kind kind = is_answer(q, d) ? d->kind : SP_DECISION_MAX;
    const bool allows = kind == SP_DECISION_APPROVED || kind == SP_DECISION_APPROVED_FOR_SESSION;
    const char *name = q->who->name;
    struct sp_str why = d->rejection;

    if (d->kind == SP_DECISION_NO_OPINION ||
        (allows && sp_approvals_is_strict(q->approvals, q->question.turn_id))) {
        q->hook++;
        ask_hook(q);
    } else if (allows) {
        allow_once(q, d, SP_DECIDER_HOOK);
    } else if (kind == SP_DECISION_DENIED || kind == SP_DECISION_ABORT) {
        const struct sp_decision no = {.kind = kind,
                                       .rejection = why.n != 0 ? why : SP_STR(BY_CONFIGURATION)};

        finish_asking(q, &no, SP_DECIDER_HOOK);
    } else {
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
        deny_asking(q, q->text.len != 0 ? sp_buf_str(&q->text) : SP_STR(NO_MEMORY),
                    SP_DECIDER_HOOK);
    }
}

/* ---- any stage ---- */

static void take_answer(struct sp_asking *q, const struct sp_decision *d)
{
    static const struct sp_decision no = {.kind = SP_DECISION_DENIED};

    switch (q->stage) {
    case SP_ASKING_HOOK:
        take_hook_answer(q, d);
        return;
    case SP_ASKING_REVIEWER:
        take_review(q, d);
        return;
    case SP_ASKING_APPROVER:
        if (d->kind == SP_DECISION_FAILED)
            deny_by_broken_approver(q, d->rejection);
        else if (d->kind == SP_DECISION_NO_OPINION)
            deny_by_broken_approver(q, SP_STR("it said nothing"));
        else
            finish_asking(q, is_answer(q, d) ? d : &no,
                          d->kind == SP_DECISION_TIMED_OUT ? SP_DECIDER_CONFIG : d->by);
        return;
    case SP_ASKING_CLOSED:
        break;
    }
}

void sp_asking_begin(struct sp_asking *q, struct sp_approvals *a)
{
    assert(!sp_asking_is_open(q));
    q->approvals = a;
    q->question.at_ms = (int64_t)(sp_clock_read_ns(CLOCK_REALTIME) / 1000000);
    q->hook = 0;
    q->attempt = 0;
    q->is_replaced = false;
    q->decided_by = SP_DECIDER_NONE;
    q->text.len = 0;
    sp_list_prepend(&a->asking, &q->link);
    ask_hook(q);
}

void sp_asking_done(struct sp_asking *q)
{
    if (sp_asking_is_open(q)) {
        withdraw_asking(q);
        close_asking(q);
    }
    sp_buf_done(&q->text);
}

/* ---- by number ---- */

/* Questions to hooks and the reviewer are not the approver's to answer. */
static struct sp_asking *find_for_user(const struct sp_approvals *a, uint64_t question)
{
    struct sp_asking *q = find_asking(a, question);

    return q != NULL && q->stage == SP_ASKING_APPROVER ? q : NULL;
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

void sp_approvals_note_abort(struct sp_approvals *a, uint64_t question, enum sp_decider by)
{
    struct sp_asking *q = find_for_user(a, question);

    if (q != NULL)
        q->decided_by = by;
}
