/* SPDX-License-Identifier: Apache-2.0 */
#include "approve/network.h"

#include <stdlib.h>

#include "approve/network_priv.h"
#include "base/auto.h"

/* ---- where a request ends up ---- */

void sp_network_deny(struct sp_network_request *r, enum sp_network_reason reason,
                     struct sp_str text)
{
    r->state = SP_NETWORK_DENIED;
    r->reason = reason;
    r->own_text.len = 0;
    r->text = sp_buf_add_str(&r->own_text, text) && text.n != 0 ? sp_network_view(&r->own_text)
                                                                : SP_STR(SP_NETWORK_NO_HOST);
}

static void tell_outcome(struct sp_network_command *c, struct sp_str text)
{
    const struct sp_network_outcome o = {.text = text};

    if (c->outcome != NULL)
        c->outcome(c, &o);
}

static bool add_request_url(struct sp_buf *out, const struct sp_network_request *r)
{
    return sp_network_add_url(out, r->protocol, sp_str_of(r->host.text), r->port);
}

/* ---- without a question ---- */

static void refuse(struct sp_network_request *r, enum sp_network_reason reason, struct sp_str url,
                   struct sp_str text, enum sp_decider by)
{
    const struct sp_network_note note = {
        .command = r->command,
        .url = url,
        .requirement = by == SP_DECIDER_CONFIG || by == SP_DECIDER_RULE ? "forbidden" : "ask",
        .decision = sp_decision_name(SP_DECISION_DENIED),
        .by = by,
    };

    (void)sp_network_audit(r->approvals, &note, NULL); /* nothing comes of it in any case */
    sp_network_deny(r, reason, text);
    tell_outcome(r->command, text);
}

/* With the words of 11 for this reason. */
static void refuse_for(struct sp_network_request *r, enum sp_network_reason reason,
                       struct sp_str url, enum sp_decider by)
{
    auto_buf struct sp_buf text = {0};

    if (!sp_network_add_refusal(&text, sp_str_of(r->host.text), reason))
        text.len = 0;
    refuse(r, reason, url, sp_network_view(&text), by);
}

static void refuse_by_policy(struct sp_network_request *r, struct sp_str url)
{
    auto_buf struct sp_buf text = {0};

    if (!sp_network_add_blocked(&text, url))
        text.len = 0;
    refuse(r, SP_NETWORK_REASON_NOT_ALLOWED, url, sp_network_view(&text), SP_DECIDER_CONFIG);
}

static void allow_known(struct sp_network_request *r, struct sp_str url, enum sp_decider by)
{
    const struct sp_network_note note = {
        .command = r->command,
        .url = url,
        .requirement = by == SP_DECIDER_CACHE ? "ask" : "skip",
        .decision = sp_decision_name(SP_DECISION_APPROVED),
        .by = by,
    };
    struct sp_err e = {0};

    if (sp_network_audit(r->approvals, &note, &e)) {
        r->state = SP_NETWORK_ALLOWED;
        return;
    }
    sp_network_deny(r, SP_NETWORK_REASON_OTHER, sp_str_of(e.msg));
    tell_outcome(r->command, sp_str_of(e.msg));
}

/* Table of 2, last row but one. */
static bool may_ask(const struct sp_approvals *a, const struct sp_network_command *c)
{
    switch (c->approval.kind) {
    case SP_APPROVAL_UNTRUSTED:
    case SP_APPROVAL_ON_FAILURE:
    case SP_APPROVAL_ON_REQUEST:
    case SP_APPROVAL_GRANULAR:
        return c->policy != NULL && c->policy->profile.kind == SP_PROFILE_MANAGED &&
               sp_approvals_can_ask(a) && !a->network->is_closing;
    case SP_APPROVAL_NEVER:
    case SP_APPROVAL_MAX:
        break;
    }
    return false;
}

/* ---- joining a question, or asking one ---- */

/* Of this command, for this host; turn_id NULL: in whichever turn. */
static struct sp_network_question *find_question(const struct sp_network_request *r,
                                                 struct sp_str key, const struct sp_str *turn_id)
{
    struct sp_network_question *q = r->approvals->network->first;

    while (q != NULL && !(q->command == r->command && sp_str_eq(q->key, key) &&
                          (turn_id == NULL || sp_str_eq(q->asking.question.turn_id, *turn_id))))
        q = q->next;
    return q;
}

static void wait_for(struct sp_network_question *q, struct sp_network_request *r)
{
    struct sp_network_request **at = &q->waiting;

    while (*at != NULL)
        at = &(*at)->next;
    *at = r;
    r->next = NULL;
    r->question = q;
    r->state = SP_NETWORK_ASKING;
}

static void open_question(struct sp_network_request *r, struct sp_str url, struct sp_str key,
                          struct sp_str turn_id)
{
    struct sp_network *n = r->approvals->network;
    struct sp_network_question *older = find_question(r, key, NULL);
    auto_buf struct sp_buf text = {0};

    if (older != NULL) /* answers could not tell the two apart (12.1) */
        sp_network_question_replace(older);
    if (n->count == SP_NETWORK_QUESTIONS_MAX) {
        if (!sp_network_add_crowded(&text, url))
            text.len = 0;
        refuse(r, SP_NETWORK_REASON_NOT_ALLOWED, url, sp_network_view(&text), SP_DECIDER_CONFIG);
        return;
    }
    struct sp_network_question *q = sp_network_question_new(r, url, key, turn_id);
    if (q == NULL) {
        refuse_for(r, SP_NETWORK_REASON_OTHER, url, SP_DECIDER_CONFIG);
        return;
    }
    wait_for(q, r);
    sp_asking_begin(&q->asking, r->approvals); /* the last thing: q and r may be gone */
}

static void ask_or_join(struct sp_network_request *r, struct sp_str url, struct sp_str key,
                        struct sp_str turn_id)
{
    struct sp_network_question *q = find_question(r, key, &turn_id);

    if (r->command->is_cancelled)
        refuse(r, SP_NETWORK_REASON_NOT_ALLOWED, url, SP_STR(SP_NETWORK_BY_USER), SP_DECIDER_USER);
    else if (!may_ask(r->approvals, r->command))
        refuse_by_policy(r, url);
    else if (q != NULL)
        wait_for(q, r);
    else
        open_question(r, url, key, turn_id);
}

/* ---- judging ---- */

static void judge(struct sp_network_request *r, const struct sp_network_ask *ask, struct sp_str url,
                  struct sp_str key)
{
    const struct sp_network_standing known = sp_network_standing(r->approvals, &r->host, key);
    /* Of a literal its own listing counts; a name that leads here does not, listed or not. */
    const bool is_local = r->host.is_local ? !(known.is_allowed && known.by == SP_DECIDER_RULE)
                                           : ask->resolves_to_local;

    if (known.is_denied)
        refuse_for(r, SP_NETWORK_REASON_DENIED, url, known.by);
    else if (is_local && !ask->allows_local)
        refuse_for(r, SP_NETWORK_REASON_NOT_ALLOWED_LOCAL, url, SP_DECIDER_CONFIG);
    else if (known.is_allowed)
        allow_known(r, url, known.by);
    else
        ask_or_join(r, url, key, ask->turn_id);
}

static bool is_sane(const struct sp_network_ask *ask)
{
    return ask->port != 0 && (unsigned)ask->protocol < SP_NETWORK_PROTOCOL_MAX;
}

void sp_network_ask(struct sp_network_request *r, struct sp_approvals *a,
                    const struct sp_network_ask *ask, void (*told)(struct sp_network_request *r))
{
    auto_buf struct sp_buf url = {0};
    auto_buf struct sp_buf key = {0};

    *r = (struct sp_network_request){.told = told,
                                     .approvals = a,
                                     .command = ask->command,
                                     .port = ask->port,
                                     .protocol = ask->protocol,
                                     .since_ms = sp_network_clock_ms()};
    if (a->network == NULL)
        a->network = calloc(1, sizeof *a->network);
    if (a->network == NULL) {
        refuse_for(r, SP_NETWORK_REASON_OTHER, (struct sp_str){0}, SP_DECIDER_CONFIG);
        return;
    }
    if (!is_sane(ask) || sp_network_host_read(ask->host, &r->host) != NULL) {
        if (!sp_network_add_url(&url, ask->protocol, ask->host, ask->port))
            url.len = 0;
        refuse_for(r, SP_NETWORK_REASON_OTHER, sp_network_view(&url), SP_DECIDER_CONFIG);
        return;
    }
    if (add_request_url(&url, r) && sp_network_add_key(&key, ask->command->environment, r->protocol,
                                                       sp_str_of(r->host.text), r->port))
        judge(r, ask, sp_network_view(&url), sp_network_view(&key));
    else
        refuse_for(r, SP_NETWORK_REASON_OTHER, sp_network_view(&url), SP_DECIDER_CONFIG);
}
