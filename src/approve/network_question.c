/* SPDX-License-Identifier: Apache-2.0 */
/*
 * network_question: a question about a host, from its wording to its answer and the last request
 * that waits for it.
 *
 * Callbacks may end the command or any request. So a question that ends leaves the list first, then
 * its command is told, for the last time, and then one request after the other.
 */
#include <assert.h>
#include <stdlib.h>

#include "approve/network_priv.h"
#include "base/auto.h"
#include "base/clock.h"
#include "base/truncate.h"

#define TOO_LATE       "approval request timed out"
#define REFUSAL_TOKENS 900

/* ---- the end of a question ---- */

static void take_out(struct sp_network_question *q)
{
    struct sp_network *n = q->approvals->network;

    sp_list_remove(&q->link);
    n->count--;
    q->is_ending = true;
    sp_asking_done(&q->asking);
}

static void free_question(struct sp_network_question *q)
{
    sp_arena_done(&q->arena);
    free(q);
}

static void tell_waiting(struct sp_network_question *q, const struct sp_network_ending *end)
{
    while (q->waiting != NULL) {
        struct sp_network_request *r = q->waiting;

        q->waiting = r->next;
        r->next = NULL;
        r->question = NULL;
        if (end->state == SP_NETWORK_DENIED)
            sp_network_deny(r, end->reason, end->text);
        else
            r->state = end->state;
        if (r->told != NULL)
            r->told(r);
    }
}

static bool log_answer(const struct sp_network_question *q, const char *decision,
                       enum sp_decider by, struct sp_err *e)
{
    const struct sp_network_note note = {
        .command = q->command,
        .url = q->argv[1],
        .requirement = "ask",
        .decision = decision,
        .by = by,
        .is_asked = true,
    };

    return sp_network_audit(q->approvals, &note, e);
}

/* A cancelled command has no other questions: their requests move to this one. */
static void adopt_requests(struct sp_network_question *q)
{
    sp_list_each_safe(i, &q->approvals->network->questions) {
        struct sp_network_question *o = SP_CONTAINER(i, struct sp_network_question, link);
        struct sp_network_request **end = &q->waiting;

        if (o->command != q->command)
            continue;
        (void)log_answer(o, sp_decision_name(SP_DECISION_ABORT), q->asking.decided_by, NULL);
        take_out(o);
        while (*end != NULL)
            end = &(*end)->next;
        *end = o->waiting;
        for (struct sp_network_request *r = o->waiting; r != NULL; r = r->next)
            r->question = q;
        free_question(o);
    }
}

static void finish_question(struct sp_network_question *q, const struct sp_network_ending *end)
{
    struct sp_network_command *c = q->command;
    const struct sp_network_outcome o = {.text = end->text,
                                         .is_cancelled = end->is_cancelled,
                                         .is_interrupted = end->is_interrupted};

    assert(!q->is_ending);
    take_out(q);
    if (end->is_cancelled) {
        c->is_cancelled = true;
        c->cancelled_by = q->asking.decided_by;
        adopt_requests(q);
    }
    q->command = NULL;
    if (end->state == SP_NETWORK_DENIED && c->outcome != NULL)
        c->outcome(c, &o);
    tell_waiting(q, end);
    free_question(q);
}

/* ---- decisions that answer other questions ---- */

static void deny_known(struct sp_network_question *q, enum sp_decider by)
{
    auto_buf struct sp_buf text = {0};

    (void)log_answer(q, sp_decision_name(SP_DECISION_DENIED), by, NULL);
    if (!sp_network_add_refusal(&text, sp_str_of(q->host.text), SP_NETWORK_REASON_DENIED))
        text.len = 0;
    finish_question(q, &(struct sp_network_ending){.state = SP_NETWORK_DENIED,
                                                   .reason = SP_NETWORK_REASON_DENIED,
                                                   .text = sp_buf_str(&text)});
}

/* Logs an approval. false: that is mandatory and failed, so the request was denied. */
static bool log_approval(struct sp_network_question *q, const char *decision, enum sp_decider by)
{
    struct sp_err e = {0};

    if (log_answer(q, decision, by, &e))
        return true;
    finish_question(
        q, &(struct sp_network_ending){.state = SP_NETWORK_DENIED, .text = sp_str_of(e.msg)});
    return false;
}

/* Ends the open questions that rules or earlier decisions answer by now. */
static void settle_known(struct sp_approvals *a)
{
    struct sp_list *i = a->network->questions.next;

    while (i != &a->network->questions) {
        struct sp_network_question *q = SP_CONTAINER(i, struct sp_network_question, link);
        const struct sp_network_standing known = sp_network_standing(a, &q->host, q->key);

        if (!known.is_denied && !known.is_allowed) {
            i = i->next;
            continue;
        }
        if (known.is_denied)
            deny_known(q, known.by);
        else if (log_approval(q, sp_decision_name(SP_DECISION_APPROVED), known.by))
            finish_question(q, &(struct sp_network_ending){.state = SP_NETWORK_ALLOWED});
        i = a->network->questions.next; /* callbacks may have changed the list */
    }
}

/* ---- answers ---- */

static void accept_host(struct sp_network_question *q, enum sp_decision_kind kind)
{
    struct sp_approvals *a = q->approvals;
    const struct sp_network_standing known = sp_network_standing(a, &q->host, q->key);
    const bool is_once = kind == SP_DECISION_APPROVED;
    const char *name = kind == SP_DECISION_NETWORK_AMENDMENT ? "approved_with_network_policy_allow"
                                                             : sp_decision_name(kind);

    if (known.is_denied) { /* denied meanwhile, which an approval does not undo */
        deny_known(q, known.by);
        return;
    }
    if (!log_approval(q, name, q->asking.decided_by))
        return;
    if (!is_once)
        sp_network_remember(a, q->key, true);
    if (kind == SP_DECISION_NETWORK_AMENDMENT)
        sp_network_amend(q, true);
    finish_question(q, &(struct sp_network_ending){.state = is_once ? SP_NETWORK_ALLOWED_ONCE
                                                                    : SP_NETWORK_ALLOWED});
    if (!is_once)
        settle_known(a);
}

static void cancel_command(struct sp_network_question *q, struct sp_str text, bool is_interrupted)
{
    finish_question(q, &(struct sp_network_ending){.state = SP_NETWORK_DENIED,
                                                   .reason = SP_NETWORK_REASON_NOT_ALLOWED,
                                                   .text = text,
                                                   .is_cancelled = true,
                                                   .is_interrupted = is_interrupted});
}

static void deny_from_now_on(struct sp_network_question *q)
{
    struct sp_approvals *a = q->approvals;

    (void)log_answer(q, "denied_with_network_policy_deny", q->asking.decided_by, NULL);
    sp_network_remember_denied(q);
    sp_network_amend(q, false);
    cancel_command(q, SP_STR(SP_NETWORK_BY_USER), false);
    settle_known(a);
}

/* The answer names another host: it counts as a denial. */
static void reject_mismatch(struct sp_network_question *q, struct sp_str named)
{
    auto_buf struct sp_buf text = {0};

    (void)log_answer(q, sp_decision_name(SP_DECISION_DENIED), q->asking.decided_by, NULL);
    if (!sp_network_add_mismatch(&text, named, sp_str_of(q->host.text)) ||
        !sp_buf_add(&text, "", 1)) {
        cancel_command(q, SP_STR(SP_NETWORK_BY_USER), false);
        return;
    }
    sp_approvals_warn(q->approvals, text.data);
    cancel_command(q, (struct sp_str){text.data, text.len - 1}, false);
}

static void take_amendment(struct sp_network_question *q, const struct sp_decision *d)
{
    struct sp_hostname named;

    if (sp_hostname_read(d->host, &named) != NULL || strcmp(named.text, q->host.text) != 0)
        reject_mismatch(q, d->host);
    else if (d->allows_host)
        accept_host(q, SP_DECISION_NETWORK_AMENDMENT);
    else
        deny_from_now_on(q);
}

/* Whether the request was refused by a decision; without one (no approver, timeout) the command
 * goes on without the host. */
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

static void reject_host(struct sp_network_question *q, const struct sp_decision *d)
{
    auto_buf struct sp_buf text = {0};

    (void)log_answer(q, sp_decision_name(d->kind), q->asking.decided_by, NULL);
    if (!add_rejection(&text, q, d))
        text.len = 0;
    if (is_refusal(q, d))
        cancel_command(q, text.len != 0 ? sp_buf_str(&text) : SP_STR(SP_NETWORK_BY_USER),
                       d->kind == SP_DECISION_ABORT);
    else
        finish_question(q, &(struct sp_network_ending){.state = SP_NETWORK_DENIED,
                                                       .reason = SP_NETWORK_REASON_NOT_ALLOWED,
                                                       .text = sp_buf_str(&text)});
}

static void on_told(struct sp_asking *asking, const struct sp_decision *d)
{
    struct sp_network_question *q = SP_CONTAINER(asking, struct sp_network_question, asking);

    switch (d->kind) {
    case SP_DECISION_APPROVED:
    case SP_DECISION_APPROVED_FOR_SESSION:
        accept_host(q, d->kind);
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
    reject_host(q, d);
}

/* ---- a new question ---- */

static bool keep_text(struct sp_network_question *q, struct sp_str text, struct sp_str *ret)
{
    ret->p = sp_arena_copy(&q->arena, text);
    ret->n = text.n;
    return ret->p != NULL;
}

static bool fill_question(struct sp_network_question *q, struct sp_str url, struct sp_str key,
                          struct sp_str turn_id)
{
    const struct sp_network_command *c = q->command;
    struct sp_approval_question *to = &q->asking.question;
    auto_buf struct sp_buf shown = {0};
    auto_buf struct sp_buf reason = {0};
    auto_buf struct sp_buf asking = {0};

    q->argv[0] = SP_STR("network-access");
    *to = (struct sp_approval_question){
        .kind = SP_QUESTION_NETWORK,
        .call_id = c->call_id,
        .environment = c->environment,
        .cwd = c->cwd,
        .argv = {q->argv, 2},
        .profile = c->policy,
        .profile_name = c->policy_name,
        .host = sp_str_of(q->host.text),
        .protocol = sp_network_wire(q->protocol),
    };
    return keep_text(q, url, &q->argv[1]) && keep_text(q, key, &q->key) &&
           keep_text(q, turn_id, &to->turn_id) && sp_words_add_quoted(&shown, to->argv) &&
           keep_text(q, sp_buf_str(&shown), &to->command) &&
           sp_buf_printf(&reason, "%s is not in the allowed_domains", q->host.text) &&
           keep_text(q, sp_buf_str(&reason), &to->reason) &&
           sp_words_add_quoted(&asking, c->argv) &&
           keep_text(q, sp_buf_str(&asking), &to->asking_command) &&
           keep_text(q, key, &to->approval_id);
}

struct sp_network_question *sp_network_question_new(const struct sp_network_request *r,
                                                    struct sp_str url, struct sp_str key,
                                                    struct sp_str turn_id)
{
    struct sp_network *n = r->approvals->network;
    struct sp_network_question *q = calloc(1, sizeof *q);

    if (q == NULL)
        return NULL;
    q->approvals = r->approvals;
    q->command = r->command;
    q->host = r->host;
    q->protocol = r->protocol;
    q->asking.told = on_told;
    if (!fill_question(q, url, key, turn_id)) {
        free_question(q);
        return NULL;
    }
    sp_list_prepend(&n->questions, &q->link);
    n->count++;
    return q;
}

/* ---- requests and commands that end ---- */

void sp_network_question_replace(struct sp_network_question *q)
{
    auto_buf struct sp_buf text = {0};

    (void)log_answer(q, sp_decision_name(SP_DECISION_ABORT), SP_DECIDER_NONE, NULL);
    if (!sp_network_add_blocked(&text, q->argv[1]))
        text.len = 0;
    finish_question(q, &(struct sp_network_ending){.state = SP_NETWORK_DENIED,
                                                   .reason = SP_NETWORK_REASON_NOT_ALLOWED,
                                                   .text = sp_buf_str(&text)});
}

static void finish_abandoned(struct sp_network_question *q, uint64_t since_ms)
{
    auto_buf struct sp_buf text = {0};

    (void)log_answer(q, sp_decision_name(SP_DECISION_ABORT), SP_DECIDER_NONE, NULL);
    if (!sp_network_add_disconnected(&text, sp_clock_ms() - since_ms))
        text.len = 0;
    finish_question(q, &(struct sp_network_ending){.state = SP_NETWORK_DENIED,
                                                   .reason = SP_NETWORK_REASON_NOT_ALLOWED,
                                                   .text = sp_buf_str(&text)});
}

/* Takes the request off its question. Returns the question if no other request waits for it, else
 * NULL. */
static struct sp_network_question *stop_waiting(struct sp_network_request *r)
{
    struct sp_network_question *q = r->question;

    if (q == NULL)
        return NULL;
    for (struct sp_network_request **at = &q->waiting; *at != NULL; at = &(*at)->next)
        if (*at == r) {
            *at = r->next;
            break;
        }
    r->next = NULL;
    r->question = NULL;
    return q->waiting == NULL && !q->is_ending ? q : NULL;
}

void sp_network_hang_up(struct sp_network_request *r)
{
    const uint64_t since_ms = r->since_ms;
    auto_buf struct sp_buf text = {0};

    if (r->state != SP_NETWORK_ASKING)
        return;
    struct sp_network_question *q = stop_waiting(r);
    if (!sp_network_add_disconnected(&text, sp_clock_ms() - since_ms))
        text.len = 0;
    sp_network_deny(r, SP_NETWORK_REASON_NOT_ALLOWED, sp_buf_str(&text));
    if (q != NULL)
        finish_abandoned(q, since_ms); /* last: callbacks may free r */
}

void sp_network_request_done(struct sp_network_request *r)
{
    const uint64_t since_ms = r->since_ms;

    if (r->approvals == NULL)
        return;
    struct sp_network_question *q = stop_waiting(r);
    if (r->state == SP_NETWORK_ASKING)
        r->state = SP_NETWORK_DENIED;
    r->text = SP_STR("");
    r->approvals = NULL;
    sp_buf_done(&r->own_text);
    if (q != NULL)
        finish_abandoned(q, since_ms);
}

void sp_network_command_done(struct sp_approvals *a, struct sp_network_command *c)
{
    struct sp_list *i = a->network == NULL ? NULL : a->network->questions.next;

    c->outcome = NULL; /* the command ended: no more outcomes */
    while (i != NULL && i != &a->network->questions) {
        struct sp_network_question *q = SP_CONTAINER(i, struct sp_network_question, link);

        if (q->command != c) {
            i = i->next;
            continue;
        }
        finish_abandoned(q, q->waiting->since_ms);
        i = a->network->questions.next; /* callbacks may have changed the list */
    }
}

void sp_network_free(struct sp_network *n)
{
    if (n == NULL)
        return;
    n->is_closing = true; /* callbacks may ask again */
    while (!sp_list_is_empty(&n->questions)) {
        struct sp_network_question *q =
            SP_CONTAINER(sp_list_first(&n->questions), struct sp_network_question, link);

        finish_abandoned(q, q->waiting->since_ms);
    }
    sp_cache_free(n->denied);
    sp_cache_free(n->approved);
    sp_cache_free(n->noted);
    free(n);
}
