/* SPDX-License-Identifier: Apache-2.0 */
/*
 * network: requests for hosts: the texts about them, the audit log, what rules and earlier
 * decisions say, and the judgement of a request. network_question.c has the questions.
 */
#include "approve/network.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "approve/network_priv.h"
#include "base/auto.h"
#include "base/clock.h"

/* ---- texts ---- */

static const struct {
    const char *wire, *label;
} protocols[] = {
#define X(name, wire, label) [SP_NETWORK_##name] = {wire, label},
    SP_NETWORK_PROTOCOLS(X)
#undef X
};

static const struct {
    const char *wire, *text;
} reasons[] = {
#define X(name, wire, text) [SP_NETWORK_REASON_##name] = {wire, text},
    SP_NETWORK_REASONS(X)
#undef X
};

const char *sp_network_wire(enum sp_network_protocol p)
{
    return protocols[p].wire;
}

const char *sp_network_reason_name(enum sp_network_reason r)
{
    return reasons[(unsigned)r < SP_NETWORK_REASON_MAX ? r : SP_NETWORK_REASON_OTHER].wire;
}

bool sp_network_add_refusal(struct sp_buf *out, struct sp_str host, enum sp_network_reason r)
{
    const size_t mark = out->len;

    if (host.n == 0)
        return sp_buf_add_str(out, SP_STR(SP_NETWORK_NO_HOST));
    if (sp_buf_add_str(out, SP_STR("Network access to \"")) &&
        sp_question_add_visible(out, host, false) &&
        sp_buf_printf(
            out, "\" was blocked: %s.",
            reasons[(unsigned)r < SP_NETWORK_REASON_MAX ? r : SP_NETWORK_REASON_OTHER].text))
        return true;
    out->len = mark;
    return false;
}

bool sp_network_add_blocked(struct sp_buf *out, struct sp_str url)
{
    return sp_buf_add_str(out, SP_STR("Network access to \"")) && sp_buf_add_str(out, url) &&
           sp_buf_add_str(out, SP_STR("\" was blocked by policy."));
}

static bool add_crowded(struct sp_buf *out, struct sp_str url)
{
    return sp_buf_add_str(out, SP_STR("Network access to \"")) && sp_buf_add_str(out, url) &&
           sp_buf_add_str(out, SP_STR("\" was blocked: too many questions are open; try again when "
                                      "some are answered."));
}

bool sp_network_add_disconnected(struct sp_buf *out, uint64_t ms)
{
    return sp_buf_printf(
        out, "Network request disconnected after %" PRIu64 " ms, before approval could complete",
        ms);
}

bool sp_network_add_mismatch(struct sp_buf *out, struct sp_str named, struct sp_str asked)
{
    return sp_buf_add_str(out, SP_STR("network policy amendment host '")) &&
           sp_question_add_visible(out, named, false) &&
           sp_buf_add_str(out, SP_STR("' does not match approved host '")) &&
           sp_buf_add_str(out, asked) && sp_buf_add_str(out, SP_STR("'"));
}

static bool add_url(struct sp_buf *out, enum sp_network_protocol p, struct sp_str host,
                    uint16_t port)
{
    const bool is_v6 = host.n != 0 && memchr(host.p, ':', host.n) != NULL;

    return sp_buf_printf(out, "%s://%s",
                         (unsigned)p < SP_NETWORK_PROTOCOL_MAX ? protocols[p].label : "unknown",
                         is_v6 ? "[" : "") &&
           sp_question_add_visible(out, host, false) &&
           sp_buf_printf(out, "%s:%u", is_v6 ? "]" : "", port);
}

/* The environment may contain "#"; the fields behind it cannot, so different keys never look
 * alike. */
static bool add_key(struct sp_buf *out, struct sp_str environment, enum sp_network_protocol p,
                    struct sp_str host, uint16_t port)
{
    return sp_buf_add_str(out, SP_STR("network#")) && sp_buf_add_str(out, environment) &&
           sp_buf_printf(out, "#%s#", protocols[p].label) && sp_buf_add_str(out, host) &&
           sp_buf_printf(out, "#%u", port);
}

/* ---- the audit log ---- */

/* Whether the log has this decision already: a command may try a host again and again, so a
 * decision without a question is logged once per command, host and decision. */
static bool is_noted(struct sp_approvals *a, const struct sp_network_note *n)
{
    auto_buf struct sp_buf key = {0};
    struct sp_network *known = a->network;
    const struct sp_str call = n->command->call_id;

    if (known == NULL ||
        !sp_buf_printf(&key, "%s %s %zu ", n->decision, sp_decider_name(n->by), call.n) ||
        !sp_buf_add_str(&key, call) || !sp_buf_add_str(&key, n->url))
        return false;
    if (known->noted == NULL)
        known->noted = sp_cache_new();
    const struct sp_str text = sp_buf_str(&key);
    if (known->noted == NULL || sp_cache_has(known->noted, text, false))
        return known->noted != NULL;
    (void)sp_cache_store(known->noted, text, false); /* without memory it is logged again */
    return false;
}

bool sp_network_audit(struct sp_approvals *a, const struct sp_network_note *n, struct sp_err *e)
{
    const struct sp_str argv[] = {SP_STR("network-access"), n->url};
    const struct sp_audit_entry entry = {
        .call_id = n->command->call_id,
        .environment = n->command->environment,
        .cwd = n->command->cwd,
        .command = {argv, 2},
        .policy = &n->command->approval,
        .requirement = n->requirement,
        .decision = n->decision,
        .decided_by = sp_decider_name(n->by),
    };

    if (a->options.audit_log == NULL || (!n->is_asked && is_noted(a, n)))
        return true;
    return sp_approvals_audit(a, &entry, e);
}

/* ---- what rules and earlier decisions say ---- */

/* Rules may spell addresses in any way, so compare the canonical forms. */
static bool is_about(const struct sp_network_rule *rule, const struct sp_hostname *host)
{
    struct sp_hostname named;

    if (sp_str_eq(rule->host, sp_str_of(host->text)))
        return true;
    return host->is_address && sp_hostname_read(rule->host, &named) == NULL && named.is_address &&
           strcmp(named.text, host->text) == 0;
}

enum word { UNSAID, ALLOW, DENY };

/* The last rule of the files, then the last amendment; no amendment overrides a deny in a file. */
static enum word word_of_rules(const struct sp_rules *rules, const struct sp_hostname *host)
{
    enum word files = UNSAID;
    enum word amended = UNSAID;
    struct sp_network_rule rule;

    for (uint32_t i = 0; rules != NULL && sp_rules_network(rules, i, &rule); i++) {
        const bool allows = sp_str_eq(rule.decision, SP_STR("allow"));

        if ((allows || sp_str_eq(rule.decision, SP_STR("deny"))) && is_about(&rule, host))
            *(rule.is_amendment ? &amended : &files) = allows ? ALLOW : DENY;
    }
    return files == DENY || amended == UNSAID ? files : amended;
}

/* The key of a host that was denied at every port. */
struct host_key {
    char text[SP_HOSTNAME_MAX + 8];
};

static struct sp_str key_of_host(const struct sp_hostname *host, struct host_key *room)
{
    (void)snprintf(room->text, sizeof room->text, "host %s", host->text);
    return sp_str_of(room->text);
}

static bool is_denied(const struct sp_network *n, const struct sp_hostname *host, struct sp_str key)
{
    struct host_key room = {0};

    return n != NULL && n->denied != NULL &&
           (sp_cache_has(n->denied, key, false) ||
            sp_cache_has(n->denied, key_of_host(host, &room), false));
}

struct sp_network_standing sp_network_standing(const struct sp_approvals *a,
                                               const struct sp_hostname *host, struct sp_str key)
{
    const struct sp_network *n = a->network;
    const enum word word = word_of_rules(a->options.rules, host);

    if (word == DENY)
        return (struct sp_network_standing){.is_denied = true, .by = SP_DECIDER_RULE};
    if (is_denied(n, host, key))
        return (struct sp_network_standing){.is_denied = true, .by = SP_DECIDER_CACHE};
    if (word == ALLOW)
        return (struct sp_network_standing){.is_allowed = true, .by = SP_DECIDER_RULE};
    if (n != NULL && n->approved != NULL && sp_cache_has(n->approved, key, false))
        return (struct sp_network_standing){.is_allowed = true, .by = SP_DECIDER_CACHE};
    return (struct sp_network_standing){.by = SP_DECIDER_CONFIG};
}

void sp_network_remember(struct sp_approvals *a, struct sp_str key, bool allows)
{
    struct sp_cache **list = allows ? &a->network->approved : &a->network->denied;

    if (*list == NULL)
        *list = sp_cache_new();
    if (*list == NULL || !sp_cache_store(*list, key, false))
        sp_approvals_warn(a, "a decision about a host could not be remembered: no memory");
}

void sp_network_remember_denied(const struct sp_network_question *q)
{
    struct host_key room = {0};

    sp_network_remember(q->approvals, q->key, false);
    sp_network_remember(q->approvals, key_of_host(&q->host, &room), false);
}

static void warn_amendment(struct sp_approvals *a, const struct sp_err *why)
{
    char reason[sizeof why->msg + 128];
    char text[sizeof reason + 64];

    (void)snprintf(text, sizeof text, "Failed to apply network policy amendment: %s",
                   sp_error_text(why, reason, sizeof reason));
    sp_approvals_warn(a, text);
}

/* If an allow rule could not be written, only this host, port and protocol stay allowed; a deny
 * rule counts for the host in any case. */
void sp_network_amend(const struct sp_network_question *q, bool allows)
{
    struct sp_approvals *a = q->approvals;
    const struct sp_str host = sp_str_of(q->host.text);
    const struct sp_str protocol = sp_str_of(sp_network_wire(q->protocol));
    struct sp_err e = {0};

    if (a->options.user_dir != NULL &&
        sp_rules_amend_network(a->options.user_dir, host, protocol, allows, &e) < 0) {
        warn_amendment(a, &e);
        if (allows)
            return;
    }
    struct sp_rules *more = sp_rules_with_network(a->options.rules, host, protocol, allows, &e);
    if (more == NULL) {
        warn_amendment(a, &e);
        return;
    }
    sp_rules_unref(a->options.rules);
    a->options.rules = more;
}

/* ---- denying ---- */

void sp_network_deny(struct sp_network_request *r, enum sp_network_reason reason,
                     struct sp_str text)
{
    r->state = SP_NETWORK_DENIED;
    r->reason = reason;
    r->own_text.len = 0;
    r->text = sp_buf_add_str(&r->own_text, text) && text.n != 0 ? sp_buf_str(&r->own_text)
                                                                : SP_STR(SP_NETWORK_NO_HOST);
}

static void refuse_request(struct sp_network_request *r, enum sp_network_reason reason,
                           struct sp_str url, struct sp_str text, enum sp_decider by)
{
    const struct sp_network_note note = {
        .command = r->command,
        .url = url,
        .requirement = by == SP_DECIDER_CONFIG || by == SP_DECIDER_RULE ? "forbidden" : "ask",
        .decision = sp_decision_name(SP_DECISION_DENIED),
        .by = by,
    };

    (void)sp_network_audit(r->approvals, &note, NULL); /* denied either way */
    sp_network_deny(r, reason, text);
    if (r->command->outcome != NULL)
        r->command->outcome(r->command, &(struct sp_network_outcome){.text = text});
}

/* Refuses with the standard text of the reason. */
static void refuse_for(struct sp_network_request *r, enum sp_network_reason reason,
                       struct sp_str url, enum sp_decider by)
{
    auto_buf struct sp_buf text = {0};

    if (!sp_network_add_refusal(&text, sp_str_of(r->host.text), reason))
        text.len = 0;
    refuse_request(r, reason, url, sp_buf_str(&text), by);
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
    if (r->command->outcome != NULL)
        r->command->outcome(r->command, &(struct sp_network_outcome){.text = sp_str_of(e.msg)});
}

/* Every policy but `never` asks about hosts, and only for commands in a sandbox. */
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

/* The open question of this command about this host; turn_id NULL: in any turn. */
static struct sp_network_question *find_question(const struct sp_network_request *r,
                                                 struct sp_str key, const struct sp_str *turn_id)
{
    sp_list_each(i, &r->approvals->network->questions) {
        struct sp_network_question *q = SP_CONTAINER(i, struct sp_network_question, link);

        if (q->command == r->command && sp_str_eq(q->key, key) &&
            (turn_id == NULL || sp_str_eq(q->asking.question.turn_id, *turn_id)))
            return q;
    }
    return NULL;
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

    if (older != NULL) /* answers could not tell the two questions apart */
        sp_network_question_replace(older);
    if (n->count == SP_NETWORK_QUESTIONS_MAX) {
        if (!add_crowded(&text, url))
            text.len = 0;
        refuse_request(r, SP_NETWORK_REASON_NOT_ALLOWED, url, sp_buf_str(&text), SP_DECIDER_CONFIG);
        return;
    }
    struct sp_network_question *q = sp_network_question_new(r, url, key, turn_id);
    if (q == NULL) {
        refuse_for(r, SP_NETWORK_REASON_OTHER, url, SP_DECIDER_CONFIG);
        return;
    }
    wait_for(q, r);
    sp_asking_begin(&q->asking, r->approvals); /* last: callbacks may free q and r */
}

static void ask_or_join(struct sp_network_request *r, struct sp_str url, struct sp_str key,
                        struct sp_str turn_id)
{
    struct sp_network_question *q = find_question(r, key, &turn_id);

    if (r->command->is_cancelled)
        refuse_request(r, SP_NETWORK_REASON_NOT_ALLOWED, url, SP_STR(SP_NETWORK_BY_USER),
                       r->command->cancelled_by);
    else if (!may_ask(r->approvals, r->command)) {
        auto_buf struct sp_buf text = {0};

        if (!sp_network_add_blocked(&text, url))
            text.len = 0;
        refuse_request(r, SP_NETWORK_REASON_NOT_ALLOWED, url, sp_buf_str(&text), SP_DECIDER_CONFIG);
    } else if (q != NULL)
        wait_for(q, r);
    else
        open_question(r, url, key, turn_id);
}

/* ---- judging ---- */

static void judge_request(struct sp_network_request *r, const struct sp_network_ask *ask,
                          struct sp_str url, struct sp_str key)
{
    const struct sp_network_standing known = sp_network_standing(r->approvals, &r->host, key);
    /* A rule may allow a literal local address; a name that resolves to one is never allowed by its
     * rule. */
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
                                     .since_ms = sp_clock_ms()};
    if (a->network == NULL) {
        a->network = calloc(1, sizeof *a->network);
        if (a->network != NULL)
            sp_list_init(&a->network->questions);
    }
    if (a->network == NULL) {
        refuse_for(r, SP_NETWORK_REASON_OTHER, (struct sp_str){0}, SP_DECIDER_CONFIG);
        return;
    }
    if (ask->port == 0 || (unsigned)ask->protocol >= SP_NETWORK_PROTOCOL_MAX ||
        sp_hostname_read(ask->host, &r->host) != NULL) {
        if (!add_url(&url, ask->protocol, ask->host, ask->port))
            url.len = 0;
        refuse_for(r, SP_NETWORK_REASON_OTHER, sp_buf_str(&url), SP_DECIDER_CONFIG);
        return;
    }
    if (add_url(&url, r->protocol, sp_str_of(r->host.text), r->port) &&
        add_key(&key, ask->command->environment, r->protocol, sp_str_of(r->host.text), r->port))
        judge_request(r, ask, sp_buf_str(&url), sp_buf_str(&key));
    else
        refuse_for(r, SP_NETWORK_REASON_OTHER, sp_buf_str(&url), SP_DECIDER_CONFIG);
}
