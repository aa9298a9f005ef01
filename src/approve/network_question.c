/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A question about a host, from its wording to the last request that waits for it (approvals.md 11,
 * 5 and 8); network_answer.c has what its answers mean.
 *
 * Callbacks may end the command or any request. So a question that ends leaves the list first, then
 * its command hears of it, for the last time, and then one request after the other.
 */
#include <stdlib.h>

#include "approve/network_priv.h"
#include "base/auto.h"

/* ---- the end of a question ---- */

static void take_out(struct sp_network_question *q)
{
    struct sp_network *n = q->approvals->network;

    *(q->prev != NULL ? &q->prev->next : &n->first) = q->next;
    if (q->next != NULL)
        q->next->prev = q->prev;
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

bool sp_network_note_answer(const struct sp_network_question *q, const char *decision,
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

/* A command that is cancelled has no other questions: who waits for them waits for this one. */
static void gather(struct sp_network_question *q)
{
    struct sp_network_question *next;

    for (struct sp_network_question *o = q->approvals->network->first; o != NULL; o = next) {
        struct sp_network_request **end = &q->waiting;

        next = o->next;
        if (o->command != q->command)
            continue;
        (void)sp_network_note_answer(o, sp_decision_name(SP_DECISION_ABORT), SP_DECIDER_USER, NULL);
        take_out(o);
        while (*end != NULL)
            end = &(*end)->next;
        *end = o->waiting;
        for (struct sp_network_request *r = o->waiting; r != NULL; r = r->next)
            r->question = q;
        free_question(o);
    }
}

void sp_network_finish(struct sp_network_question *q, const struct sp_network_ending *end)
{
    struct sp_network_command *c = q->command;
    const struct sp_network_outcome o = {.text = end->text,
                                         .is_cancelled = end->is_cancelled,
                                         .is_interrupted = end->is_interrupted};

    take_out(q);
    if (end->is_cancelled) {
        c->is_cancelled = true;
        gather(q);
    }
    q->command = NULL;
    if (end->state == SP_NETWORK_DENIED && c->outcome != NULL)
        c->outcome(c, &o);
    tell_waiting(q, end);
    free_question(q);
}

/* ---- the beginning ---- */

static bool keep(struct sp_network_question *q, struct sp_str text, struct sp_str *ret)
{
    ret->p = sp_arena_copy(&q->arena, text);
    ret->n = text.n;
    return ret->p != NULL;
}

static bool word(struct sp_network_question *q, struct sp_str url, struct sp_str key,
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
    return keep(q, url, &q->argv[1]) && keep(q, key, &q->key) && keep(q, turn_id, &to->turn_id) &&
           sp_words_add_quoted(&shown, to->argv) &&
           keep(q, sp_network_view(&shown), &to->command) &&
           sp_buf_printf(&reason, "%s is not in the allowed_domains", q->host.text) &&
           keep(q, sp_network_view(&reason), &to->reason) &&
           sp_words_add_quoted(&asking, c->argv) &&
           keep(q, sp_network_view(&asking), &to->asking_command) && keep(q, key, &to->approval_id);
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
    q->asking.told = sp_network_on_told;
    if (!word(q, url, key, turn_id)) {
        free_question(q);
        return NULL;
    }
    q->next = n->first;
    if (q->next != NULL)
        q->next->prev = q;
    n->first = q;
    n->count++;
    return q;
}

/* ---- who does not wait any more ---- */

void sp_network_question_replace(struct sp_network_question *q)
{
    auto_buf struct sp_buf text = {0};

    (void)sp_network_note_answer(q, sp_decision_name(SP_DECISION_ABORT), SP_DECIDER_CONFIG, NULL);
    if (!sp_network_add_blocked(&text, q->argv[1]))
        text.len = 0;
    sp_network_finish(q, &(struct sp_network_ending){.state = SP_NETWORK_DENIED,
                                                     .reason = SP_NETWORK_REASON_NOT_ALLOWED,
                                                     .text = sp_network_view(&text)});
}

static void finish_abandoned(struct sp_network_question *q, uint64_t since_ms)
{
    auto_buf struct sp_buf text = {0};

    (void)sp_network_note_answer(q, sp_decision_name(SP_DECISION_ABORT), SP_DECIDER_USER, NULL);
    if (!sp_network_add_disconnected(&text, sp_network_clock_ms() - since_ms))
        text.len = 0;
    sp_network_finish(q, &(struct sp_network_ending){.state = SP_NETWORK_DENIED,
                                                     .reason = SP_NETWORK_REASON_NOT_ALLOWED,
                                                     .text = sp_network_view(&text)});
}

/* Its question, if nobody else waits for that; NULL: nothing is left to do. */
static struct sp_network_question *leave(struct sp_network_request *r)
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
    struct sp_network_question *q = leave(r);
    if (!sp_network_add_disconnected(&text, sp_network_clock_ms() - since_ms))
        text.len = 0;
    sp_network_deny(r, SP_NETWORK_REASON_NOT_ALLOWED, sp_network_view(&text));
    if (q != NULL)
        finish_abandoned(q, since_ms); /* the last thing: r may be gone */
}

void sp_network_request_done(struct sp_network_request *r)
{
    const uint64_t since_ms = r->since_ms;

    if (r->approvals == NULL)
        return;
    struct sp_network_question *q = leave(r);
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
    struct sp_network_question *q = a->network == NULL ? NULL : a->network->first;

    c->outcome = NULL; /* what is said of it from now on is said too late */
    while (q != NULL) {
        if (q->command != c) {
            q = q->next;
            continue;
        }
        finish_abandoned(q, q->waiting->since_ms);
        q = a->network->first;
    }
}

void sp_network_free(struct sp_network *n)
{
    if (n == NULL)
        return;
    n->is_closing = true; /* who is told may ask again */
    while (n->first != NULL)
        finish_abandoned(n->first, n->first->waiting->since_ms);
    sp_cache_free(n->denied);
    sp_cache_free(n->approved);
    sp_cache_free(n->noted);
    free(n);
}
