/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an answer about a host means, for the request, for others, and for later (approvals.md 11,
 * 6 and 7).
 */
#include "approve/network_priv.h"
#include "base/auto.h"
#include "base/truncate.h"

#define TOO_LATE       "approval request timed out"
#define REFUSAL_TOKENS 900

/* ---- what is known by now ---- */

static void deny_known(struct sp_network_question *q, enum sp_decider by)
{
    auto_buf struct sp_buf text = {0};

    (void)sp_network_note_answer(q, sp_decision_name(SP_DECISION_DENIED), by, NULL);
    if (!sp_network_add_refusal(&text, sp_str_of(q->host.text), SP_NETWORK_REASON_DENIED))
        text.len = 0;
    sp_network_finish(q, &(struct sp_network_ending){.state = SP_NETWORK_DENIED,
                                                     .reason = SP_NETWORK_REASON_DENIED,
                                                     .text = sp_network_view(&text)});
}

/* false: it has to be written down and cannot, so it was denied. */
static bool write_down_yes(struct sp_network_question *q, const char *decision, enum sp_decider by)
{
    struct sp_err e = {0};

    if (sp_network_note_answer(q, decision, by, &e))
        return true;
    sp_network_finish(
        q, &(struct sp_network_ending){.state = SP_NETWORK_DENIED, .text = sp_str_of(e.msg)});
    return false;
}

/* Questions that need no answer any more, since another one had it. */
static void settle_known(struct sp_approvals *a)
{
    struct sp_network_question *q = a->network->first;

    while (q != NULL) {
        const struct sp_network_standing known = sp_network_standing(a, &q->host, q->key);

        if (!known.is_denied && !known.is_allowed) {
            q = q->next;
            continue;
        }
        if (known.is_denied)
            deny_known(q, known.by);
        else if (write_down_yes(q, sp_decision_name(SP_DECISION_APPROVED), known.by))
            sp_network_finish(q, &(struct sp_network_ending){.state = SP_NETWORK_ALLOWED});
        q = a->network->first; /* who was told may have changed the list */
    }
}

/* ---- answers ---- */

static void accept(struct sp_network_question *q, enum sp_decision_kind kind)
{
    struct sp_approvals *a = q->approvals;
    const struct sp_network_standing known = sp_network_standing(a, &q->host, q->key);
    const bool is_once = kind == SP_DECISION_APPROVED;
    const char *name = kind == SP_DECISION_NETWORK_AMENDMENT ? "approved_with_network_policy_allow"
                                                             : sp_decision_name(kind);

    if (known.is_denied) { /* meanwhile; a later yes does not undo it */
        deny_known(q, known.by);
        return;
    }
    if (!write_down_yes(q, name, q->asking.decided_by))
        return;
    if (!is_once)
        sp_network_remember(a, q->key, true);
    if (kind == SP_DECISION_NETWORK_AMENDMENT)
        sp_network_amend(q, true);
    sp_network_finish(q, &(struct sp_network_ending){.state = is_once ? SP_NETWORK_ALLOWED_ONCE
                                                                      : SP_NETWORK_ALLOWED});
    if (!is_once)
        settle_known(a);
}

static void cancel(struct sp_network_question *q, struct sp_str text, bool is_interrupted)
{
    sp_network_finish(q, &(struct sp_network_ending){.state = SP_NETWORK_DENIED,
                                                     .reason = SP_NETWORK_REASON_NOT_ALLOWED,
                                                     .text = text,
                                                     .is_cancelled = true,
                                                     .is_interrupted = is_interrupted});
}

static void deny_from_now_on(struct sp_network_question *q)
{
    struct sp_approvals *a = q->approvals;

    (void)sp_network_note_answer(q, "denied_with_network_policy_deny", q->asking.decided_by, NULL);
    sp_network_remember_denied(q);
    sp_network_amend(q, false);
    cancel(q, SP_STR(SP_NETWORK_BY_USER), false);
    settle_known(a);
}

/* The answer is about a host that nobody asked for: that is no answer. */
static void reject_mismatch(struct sp_network_question *q, struct sp_str named)
{
    auto_buf struct sp_buf text = {0};

    (void)sp_network_note_answer(q, sp_decision_name(SP_DECISION_DENIED), q->asking.decided_by,
                                 NULL);
    if (!sp_network_add_mismatch(&text, named, sp_str_of(q->host.text)) ||
        !sp_buf_add(&text, "", 1)) {
        cancel(q, SP_STR(SP_NETWORK_BY_USER), false);
        return;
    }
    sp_approvals_warn(q->approvals, text.data);
    cancel(q, (struct sp_str){text.data, text.len - 1}, false);
}

static void take_amendment(struct sp_network_question *q, const struct sp_decision *d)
{
    struct sp_network_host named;

    if (sp_network_host_read(d->host, &named) != NULL || strcmp(named.text, q->host.text) != 0)
        reject_mismatch(q, d->host);
    else if (d->allows_host)
        accept(q, SP_DECISION_NETWORK_AMENDMENT);
    else
        deny_from_now_on(q);
}

/* Nobody said no: nobody could, or not in time. The command goes on without the host. */
static bool is_refusal(const struct sp_network_question *q, const struct sp_decision *d)
{
    return d->kind != SP_DECISION_TIMED_OUT && !q->asking.is_replaced &&
           q->asking.decided_by != SP_DECIDER_CONFIG;
}

static bool add_rejection(struct sp_buf *out, const struct sp_network_question *q,
                          const struct sp_decision *d)
{
    const struct sp_allowance max = {SP_ALLOWANCE_TOKENS, REFUSAL_TOKENS};

    if (d->kind == SP_DECISION_TIMED_OUT && d->rejection.n == 0)
        return sp_buf_add_str(out, SP_STR(TOO_LATE));
    if (d->kind != SP_DECISION_TIMED_OUT && !is_refusal(q, d))
        return sp_network_add_blocked(out, q->argv[1]);
    return sp_truncate_add(out, d->rejection.n == 0 ? SP_STR(SP_NETWORK_BY_USER) : d->rejection,
                           max);
}

static void reject(struct sp_network_question *q, const struct sp_decision *d)
{
    auto_buf struct sp_buf text = {0};

    (void)sp_network_note_answer(q, sp_decision_name(d->kind), q->asking.decided_by, NULL);
    if (!add_rejection(&text, q, d))
        text.len = 0;
    if (is_refusal(q, d))
        cancel(q, text.len != 0 ? sp_network_view(&text) : SP_STR(SP_NETWORK_BY_USER),
               d->kind == SP_DECISION_ABORT);
    else
        sp_network_finish(q, &(struct sp_network_ending){.state = SP_NETWORK_DENIED,
                                                         .reason = SP_NETWORK_REASON_NOT_ALLOWED,
                                                         .text = sp_network_view(&text)});
}

void sp_network_on_told(struct sp_asking *asking, const struct sp_decision *d)
{
    struct sp_network_question *q = SP_CONTAINER(asking, struct sp_network_question, asking);

    switch (d->kind) {
    case SP_DECISION_APPROVED:
    case SP_DECISION_APPROVED_FOR_SESSION:
        accept(q, d->kind);
        return;
    case SP_DECISION_NETWORK_AMENDMENT:
        take_amendment(q, d);
        return;
    case SP_DECISION_DENIED:
    case SP_DECISION_AMENDMENT:
    case SP_DECISION_TIMED_OUT:
    case SP_DECISION_ABORT:
    case SP_DECISION_NO_OPINION:
    case SP_DECISION_FAILED:
    case SP_DECISION_MAX:
        break;
    }
    reject(q, d);
}
