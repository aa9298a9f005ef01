/* SPDX-License-Identifier: Apache-2.0 */
/*
 * network: requests for hosts: what rules and earlier decisions say, and the questions about the
 * rest, from their wording to the last request that waits for the answer.
 *
 * Callbacks may end the command or any request. So a question that ends leaves the list first, then
 * its command is told, for the last time, and then one request after the other.
 */
#include "approve/network.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "approve/approvals_priv.h"
#include "base/arena.h"
#include "base/auto.h"
#include "base/clock.h"
#include "base/truncate.h"

#define TOO_LATE       "approval request timed out"
#define REFUSAL_TOKENS 900
#define NO_HOST        "Network access was blocked by policy."
#define BY_USER        "rejected by user"

#define ONCE_MAX 1024 /* hosts allowed to single commands; the oldest is dropped */

/* What one conversation knows about hosts. */
struct sp_network {
    struct sp_list questions; /* open ones */
    uint32_t count;
    struct sp_list commands; /* those that have begun */
    struct sp_list once;     /* struct once, oldest first */
    uint32_t once_count;
    bool is_closing; /* no new questions */
    /* By key (environment, protocol, host, port); NULL: none yet. */
    struct sp_cache *denied, *approved;
    struct sp_cache *known; /* hosts that were approved at some port */
    struct sp_cache *noted; /* decisions that are in the log already */
};

/* A host that is allowed to one command. */
struct once {
    struct sp_list link;
    const struct sp_network_command *command;
    struct sp_hostname host;
    size_t key_len;
    char key[];
};

/* One question, and all requests that wait for its answer. */
struct sp_network_question {
    struct sp_list link;
    struct sp_asking asking;
    struct sp_approvals *approvals;
    struct sp_network_command *command;
    struct sp_network_request *waiting; /* oldest first */
    bool is_ending;                     /* it left the list, and its requests are being told */
    struct sp_hostname host;
    enum sp_network_protocol protocol;
    struct sp_str key;
    struct sp_str argv[2];
    struct sp_arena arena; /* storage of its texts */
};

/* The end of a question, for all requests that wait. */
struct ending {
    enum sp_network_state state;
    enum sp_network_reason reason;
    struct sp_str text;
    bool is_cancelled, is_interrupted; /* see struct sp_network_outcome */
};
/* ---- texts ---- */

static const struct {
    const char *wire, *label;
} protocols[] = {
#define X(name, wire, label) [SP_NETWORK_##name] = {wire, label},
    SP_NETWORK_PROTOCOLS(X)
#undef X
};

static const char *wire_name(enum sp_network_protocol p)
{
    return protocols[p].wire;
}

bool sp_network_add_refusal(struct sp_buf *out, struct sp_str host, enum sp_network_reason r)
{
    const size_t mark = out->len;

    if (host.n == 0)
        return sp_buf_add_str(out, SP_STR(NO_HOST));
    if (sp_buf_add_str(out, SP_STR("Network access to \"")) &&
        sp_question_add_visible(out, host, false) &&
        sp_buf_printf(out, "\" was blocked: %s.", sp_network_reason_text(r)->sentence))
        return true;
    out->len = mark;
    return false;
}

static bool add_blocked(struct sp_buf *out, struct sp_str url, const char *why)
{
    return sp_buf_add_str(out, SP_STR("Network access to \"")) && sp_buf_add_str(out, url) &&
           sp_buf_printf(out, "\" was blocked%s.", why);
}

static bool add_disconnected(struct sp_buf *out, uint64_t ms)
{
    return sp_buf_printf(
        out, "Network request disconnected after %" PRIu64 " ms, before approval could complete",
        ms);
}

static bool add_mismatch(struct sp_buf *out, struct sp_str named, struct sp_str asked)
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

struct note {
    struct sp_network_command *command;
    struct sp_str url;
    const char *requirement, *decision;
    enum sp_decider by;
    bool is_asked;  /* else it is logged once per command */
    bool is_denial; /* counts for SP_NETWORK_LOGGED_DENIALS */
};

/* A command may try a host again and again, so a decision without a question is logged once per
 * command, host and decision. false: no memory. */
static bool add_note_key(struct sp_buf *out, const struct note *n)
{
    const struct sp_str call = n->command->call_id;

    return sp_buf_printf(out, "%s %s %zu ", n->decision, sp_decider_name(n->by), call.n) &&
           sp_buf_add_str(out, call) && sp_buf_add_str(out, n->url);
}

/* Only what the log really has is noted. Without memory it is logged again. */
static void note_logged(struct sp_network *known, struct sp_str key)
{
    if (known->noted == NULL)
        known->noted = sp_cache_new();
    if (known->noted != NULL && key.n != 0)
        (void)sp_cache_store(known->noted, key, false);
}

/* false: the decision must be logged and cannot be. */
static bool audit_note(struct sp_approvals *a, const struct note *n, struct sp_err *e)
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
    auto_buf struct sp_buf key = {0};

    if (a->options.audit_log == NULL)
        return true;
    if (n->is_asked || a->network == NULL)
        return sp_approvals_audit(a, &entry, e);
    if (!add_note_key(&key, n))
        key.len = 0;
    if (a->network->noted != NULL && sp_cache_has(a->network->noted, sp_buf_str(&key), false))
        return true;
    if (!n->is_denial && n->command->logged_approvals == SP_NETWORK_LOGGED_APPROVALS) {
        if (a->options.must_audit)
            (void)sp_fail(e, SP_E_LIMIT, 0, "audit log: it has %d hosts of this command",
                          SP_NETWORK_LOGGED_APPROVALS);
        return !a->options.must_audit;
    }
    *(n->is_denial ? &n->command->logged_denials : &n->command->logged_approvals) += 1;
    if (!sp_approvals_audit(a, &entry, e))
        return false;
    note_logged(a->network, sp_buf_str(&key));
    return true;
}

/* ---- what rules and earlier decisions say ---- */

/* What rules and earlier decisions say of a host. Neither: a question is needed. */
struct standing {
    bool is_denied, is_allowed;
    bool is_once; /* allowed to this command alone */
    enum sp_decider by;
};

/* Rules may spell addresses in any way, so compare the canonical forms. */
static bool is_about(const struct sp_network_rule *rule, const struct sp_hostname *host)
{
    struct sp_hostname named;

    if (sp_str_eq(rule->host, sp_str_of(host->text)))
        return true;
    return host->is_address && sp_hostname_read(rule->host, &named) == NULL && named.is_address &&
           strcmp(named.text, host->text) == 0;
}

/* The last rule of the files, then the last amendment; no amendment overrides a deny in a file. */
static enum sp_network_word word_of_rules(const struct sp_rules *rules,
                                          const struct sp_hostname *host)
{
    enum sp_network_word files = SP_NETWORK_UNSAID;
    enum sp_network_word amended = SP_NETWORK_UNSAID;
    struct sp_network_rule rule;

    for (uint32_t i = 0; rules != NULL && sp_rules_network(rules, i, &rule); i++) {
        const bool allows = sp_str_eq(rule.decision, SP_STR("allow"));

        if ((allows || sp_str_eq(rule.decision, SP_STR("deny"))) && is_about(&rule, host))
            *(rule.is_amendment ? &amended : &files) = allows ? SP_NETWORK_ALLOW : SP_NETWORK_DENY;
    }
    return files == SP_NETWORK_DENY || amended == SP_NETWORK_UNSAID ? files : amended;
}

bool sp_network_is_denied_by_rules(const struct sp_rules *rules, const struct sp_hostname *host)
{
    return word_of_rules(rules, host) == SP_NETWORK_DENY;
}

/* The key of a host that was denied at every port, or allowed at some. */
struct host_key {
    char text[SP_HOSTNAME_MAX + 8];
};

static struct sp_str key_of_host(const struct sp_hostname *host, struct host_key *room)
{
    (void)snprintf(room->text, sizeof room->text, "host %s", host->text);
    return sp_str_of(room->text);
}

static bool is_stored(const struct sp_cache *c, struct sp_str key)
{
    return c != NULL && sp_cache_has(c, key, false);
}

enum sp_network_word sp_network_word(const struct sp_approvals *a, const struct sp_hostname *host,
                                     enum sp_decider *ret_by)
{
    const struct sp_network *n = a->network;
    const enum sp_network_word word = word_of_rules(a->options.rules, host);
    struct host_key room = {0};
    const struct sp_str key = key_of_host(host, &room);

    *ret_by = word != SP_NETWORK_UNSAID ? SP_DECIDER_RULE : SP_DECIDER_CACHE;
    if (word == SP_NETWORK_DENY || n == NULL)
        return word;
    if (is_stored(n->denied, key)) {
        *ret_by = SP_DECIDER_CACHE;
        return SP_NETWORK_DENY;
    }
    return word == SP_NETWORK_UNSAID && is_stored(n->known, key) ? SP_NETWORK_ALLOW : word;
}

/* key n 0: of any port and protocol. */
static const struct once *find_once(const struct sp_approvals *a,
                                    const struct sp_network_command *c,
                                    const struct sp_hostname *host, struct sp_str key)
{
    if (a->network == NULL)
        return NULL;
    sp_list_each(i, &a->network->once) {
        const struct once *o = SP_CONTAINER(i, struct once, link);

        if (o->command == c && strcmp(o->host.text, host->text) == 0 &&
            (key.n == 0 || sp_str_eq((struct sp_str){o->key, o->key_len}, key)))
            return o;
    }
    return NULL;
}

bool sp_network_knows(const struct sp_approvals *a, const struct sp_network_command *c,
                      const struct sp_hostname *host)
{
    enum sp_decider by;
    const enum sp_network_word word = sp_network_word(a, host, &by);

    return word == SP_NETWORK_ALLOW ||
           (word == SP_NETWORK_UNSAID && find_once(a, c, host, (struct sp_str){0}) != NULL);
}

static struct standing find_standing(const struct sp_approvals *a,
                                     const struct sp_network_command *c,
                                     const struct sp_hostname *host, struct sp_str key)
{
    const struct sp_network *n = a->network;
    const enum sp_network_word rules = word_of_rules(a->options.rules, host);
    struct host_key room = {0};

    if (rules == SP_NETWORK_DENY)
        return (struct standing){.is_denied = true, .by = SP_DECIDER_RULE};
    if (n != NULL && (is_stored(n->denied, key) || is_stored(n->denied, key_of_host(host, &room))))
        return (struct standing){.is_denied = true, .by = SP_DECIDER_CACHE};
    if (rules == SP_NETWORK_ALLOW)
        return (struct standing){.is_allowed = true, .by = SP_DECIDER_RULE};
    if (n != NULL && is_stored(n->approved, key))
        return (struct standing){.is_allowed = true, .by = SP_DECIDER_CACHE};
    if (find_once(a, c, host, key) != NULL)
        return (struct standing){.is_allowed = true, .is_once = true, .by = SP_DECIDER_CACHE};
    return (struct standing){.by = SP_DECIDER_CONFIG};
}

static void drop_once(struct sp_network *n, struct once *o)
{
    sp_list_remove(&o->link);
    n->once_count--;
    free(o);
}

/* command NULL: of all commands. */
static void drop_all_once(struct sp_network *n, const struct sp_network_command *command)
{
    sp_list_each_safe(i, &n->once) {
        struct once *o = SP_CONTAINER(i, struct once, link);

        if (command == NULL || o->command == command)
            drop_once(n, o);
    }
}

/* Without memory the next connection of the command asks again. */
static void remember_once(const struct sp_network_question *q)
{
    struct sp_network *n = q->approvals->network;
    struct once *o = malloc(sizeof *o + q->key.n);

    if (o == NULL)
        return;
    *o = (struct once){.command = q->command, .host = q->host, .key_len = q->key.n};
    memcpy(o->key, q->key.p, q->key.n);
    if (n->once_count == ONCE_MAX)
        drop_once(n, SP_CONTAINER(n->once.next, struct once, link));
    sp_list_append(&n->once, &o->link);
    n->once_count++;
}

/* ---- changes ---- */

static void tell_changed(struct sp_approvals *a, struct sp_str denied)
{
    sp_list_each_safe(i, &a->network->commands) {
        struct sp_network_command *c = SP_CONTAINER(i, struct sp_network_command, link);

        if (c->changed != NULL)
            c->changed(c, denied);
    }
}

void sp_network_rules_changed(struct sp_approvals *a, const struct sp_rules *before)
{
    struct sp_network_rule rule;
    struct sp_hostname host;

    if (a->network == NULL || sp_list_is_empty(&a->network->commands))
        return;
    tell_changed(a, (struct sp_str){0});
    for (uint32_t i = 0; sp_rules_network(a->options.rules, i, &rule); i++)
        if (sp_str_eq(rule.decision, SP_STR("deny")) &&
            sp_hostname_read(rule.host, &host) == NULL &&
            word_of_rules(a->options.rules, &host) == SP_NETWORK_DENY &&
            word_of_rules(before, &host) != SP_NETWORK_DENY)
            tell_changed(a, sp_str_of(host.text));
}

static void remember(struct sp_approvals *a, struct sp_cache **list, struct sp_str key)
{
    if (*list == NULL)
        *list = sp_cache_new();
    if (*list == NULL || !sp_cache_store(*list, key, false))
        sp_approvals_warn(a, "a decision about a host could not be remembered: no memory");
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
static void amend_host(const struct sp_network_question *q, bool allows)
{
    struct sp_approvals *a = q->approvals;
    const struct sp_str host = sp_str_of(q->host.text);
    const struct sp_str protocol = sp_str_of(wire_name(q->protocol));
    struct sp_err e = {0};

    if (a->options.user_dir != NULL &&
        sp_rules_amend_network(a->options.user_dir, host, protocol, allows, &e) < 0) {
        warn_amendment(a, &e);
        if (allows)
            return;
    } else {
        sp_approvals_tell_kept(a);
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

static void deny_request(struct sp_network_request *r, enum sp_network_reason reason,
                         struct sp_str text)
{
    r->state = SP_NETWORK_DENIED;
    r->reason = reason;
    r->own_text.len = 0;
    r->text = sp_buf_add_str(&r->own_text, text) && text.n != 0 ? sp_buf_str(&r->own_text)
                                                                : SP_STR(NO_HOST);
}

static void refuse_request(struct sp_network_request *r, enum sp_network_reason reason,
                           struct sp_str url, struct sp_str text, enum sp_decider by)
{
    const struct note note = {
        .command = r->command,
        .url = url,
        .requirement = by == SP_DECIDER_CONFIG || by == SP_DECIDER_RULE ? "forbidden" : "ask",
        .decision = sp_decision_name(SP_DECISION_DENIED),
        .by = by,
        .is_denial = true,
    };

    if (r->command->logged_denials < SP_NETWORK_LOGGED_DENIALS)
        (void)audit_note(r->approvals, &note, NULL); /* denied either way */
    deny_request(r, reason, text);
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

static void allow_known(struct sp_network_request *r, struct sp_str url, enum sp_decider by,
                        bool is_once)
{
    const struct note note = {
        .command = r->command,
        .url = url,
        .requirement = by == SP_DECIDER_CACHE ? "ask" : "skip",
        .decision = sp_decision_name(SP_DECISION_APPROVED),
        .by = by,
    };
    struct sp_err e = {0};

    if (audit_note(r->approvals, &note, &e)) {
        r->state = is_once ? SP_NETWORK_ALLOWED_ONCE : SP_NETWORK_ALLOWED;
        return;
    }
    deny_request(r, SP_NETWORK_REASON_OTHER, sp_str_of(e.msg));
    if (r->command->outcome != NULL)
        r->command->outcome(r->command, &(struct sp_network_outcome){.text = sp_str_of(e.msg)});
}

/* Every policy but `never` asks about hosts, and only for commands in a sandbox whose network is
 * managed and asks. */
static bool may_ask(const struct sp_approvals *a, const struct sp_network_command *c)
{
    const struct sp_network_policy *lists =
        c->policy == NULL ? NULL : sp_profile_managed(&c->policy->profile);

    switch (c->approval.kind) {
    case SP_APPROVAL_UNTRUSTED:
    case SP_APPROVAL_ON_FAILURE:
    case SP_APPROVAL_ON_REQUEST:
    case SP_APPROVAL_GRANULAR:
        return lists != NULL && lists->asks && c->policy->profile.kind == SP_PROFILE_MANAGED &&
               sp_approvals_can_ask(a) && !a->network->is_closing;
    case SP_APPROVAL_NEVER:
    case SP_APPROVAL_MAX:
        break;
    }
    return false;
}

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

static bool log_answer(const struct sp_network_question *q, const char *decision,
                       enum sp_decider by, struct sp_err *e)
{
    const struct note note = {
        .command = q->command,
        .url = q->argv[1],
        .requirement = "ask",
        .decision = decision,
        .by = by,
        .is_asked = true,
    };

    return audit_note(q->approvals, &note, e);
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

static void finish_question(struct sp_network_question *q, const struct ending *end)
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
    while (q->waiting != NULL) {
        struct sp_network_request *r = q->waiting;

        q->waiting = r->next;
        r->next = NULL;
        r->question = NULL;
        if (end->state == SP_NETWORK_DENIED)
            deny_request(r, end->reason, end->text);
        else
            r->state = end->state;
        if (r->decided != NULL)
            r->decided(r);
    }
    free_question(q);
}

/* The requests are denied, and the command goes on without the host. */
static void finish_denied(struct sp_network_question *q, enum sp_network_reason reason,
                          const struct sp_buf *text)
{
    finish_question(q, &(struct ending){
                           .state = SP_NETWORK_DENIED, .reason = reason, .text = sp_buf_str(text)});
}

/* ---- decisions that answer other questions ---- */

static void deny_known(struct sp_network_question *q, enum sp_decider by)
{
    auto_buf struct sp_buf text = {0};

    (void)log_answer(q, sp_decision_name(SP_DECISION_DENIED), by, NULL);
    if (!sp_network_add_refusal(&text, sp_str_of(q->host.text), SP_NETWORK_REASON_DENIED))
        text.len = 0;
    finish_denied(q, SP_NETWORK_REASON_DENIED, &text);
}

/* Logs an approval. false: that is mandatory and failed, so the request was denied. */
static bool log_approval(struct sp_network_question *q, const char *decision, enum sp_decider by)
{
    struct sp_err e = {0};

    if (log_answer(q, decision, by, &e))
        return true;
    finish_question(q, &(struct ending){.state = SP_NETWORK_DENIED,
                                        .reason = SP_NETWORK_REASON_OTHER,
                                        .text = sp_str_of(e.msg)});
    return false;
}

/* Ends the open questions that rules or earlier decisions answer by now. */
static void settle_known(struct sp_approvals *a)
{
    struct sp_list *i = a->network->questions.next;

    while (i != &a->network->questions) {
        struct sp_network_question *q = SP_CONTAINER(i, struct sp_network_question, link);
        const struct standing known = find_standing(a, q->command, &q->host, q->key);

        if (!known.is_denied && !known.is_allowed) {
            i = i->next;
            continue;
        }
        if (known.is_denied)
            deny_known(q, known.by);
        else if (log_approval(q, sp_decision_name(SP_DECISION_APPROVED), known.by))
            finish_question(q, &(struct ending){.state = SP_NETWORK_ALLOWED});
        i = a->network->questions.next; /* callbacks may have changed the list */
    }
}

/* ---- answers ---- */

static void accept_host(struct sp_network_question *q, enum sp_decision_kind kind)
{
    struct sp_approvals *a = q->approvals;
    const struct standing known = find_standing(a, q->command, &q->host, q->key);
    const bool is_once = kind == SP_DECISION_APPROVED;
    struct host_key room = {0};
    const char *name = kind == SP_DECISION_NETWORK_AMENDMENT ? "approved_with_network_policy_allow"
                                                             : sp_decision_name(kind);

    if (known.is_denied) { /* denied meanwhile, which an approval does not undo */
        deny_known(q, known.by);
        return;
    }
    if (!log_approval(q, name, q->asking.decided_by))
        return;
    if (is_once) {
        remember_once(q);
    } else {
        remember(a, &a->network->approved, q->key);
        remember(a, &a->network->known, key_of_host(&q->host, &room));
    }
    if (kind == SP_DECISION_NETWORK_AMENDMENT)
        amend_host(q, true);
    tell_changed(a, (struct sp_str){0});
    finish_question(
        q, &(struct ending){.state = is_once ? SP_NETWORK_ALLOWED_ONCE : SP_NETWORK_ALLOWED});
    if (!is_once)
        settle_known(a);
}

static void cancel_command(struct sp_network_question *q, struct sp_str text, bool is_interrupted)
{
    finish_question(q, &(struct ending){.state = SP_NETWORK_DENIED,
                                        .reason = SP_NETWORK_REASON_NOT_ALLOWED,
                                        .text = text,
                                        .is_cancelled = true,
                                        .is_interrupted = is_interrupted});
}

/* A rule about the host. An answer that names another host counts as a denial. */
static void take_amendment(struct sp_network_question *q, const struct sp_decision *d)
{
    struct sp_approvals *a = q->approvals;
    auto_buf struct sp_buf text = {0};
    struct host_key room = {0};
    struct sp_hostname named;

    if (sp_hostname_read(d->host, &named) != NULL || strcmp(named.text, q->host.text) != 0) {
        struct sp_str why = SP_STR(BY_USER);

        (void)log_answer(q, sp_decision_name(SP_DECISION_DENIED), q->asking.decided_by, NULL);
        if (add_mismatch(&text, d->host, sp_str_of(q->host.text)) && sp_buf_add(&text, "", 1)) {
            sp_approvals_warn(a, text.data);
            why = (struct sp_str){text.data, text.len - 1};
        }
        cancel_command(q, why, false);
    } else if (d->allows_host) {
        accept_host(q, SP_DECISION_NETWORK_AMENDMENT);
    } else {
        (void)log_answer(q, "denied_with_network_policy_deny", q->asking.decided_by, NULL);
        remember(a, &a->network->denied, q->key);
        remember(a, &a->network->denied, key_of_host(&q->host, &room));
        amend_host(q, false);
        tell_changed(a, sp_str_of(q->host.text));
        cancel_command(q, SP_STR(BY_USER), false);
        settle_known(a);
    }
}

static void on_decided(struct sp_asking *asking, const struct sp_decision *d)
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

    /* A person or a program refuses the host, which cancels the command; without such a decision
     * (no approver, timeout) the command goes on without the host. */
    const struct sp_allowance max = {SP_ALLOWANCE_TOKENS, REFUSAL_TOKENS};
    const bool is_late = d->kind == SP_DECISION_TIMED_OUT;
    const bool is_refusal =
        !is_late && !q->asking.is_replaced && q->asking.decided_by != SP_DECIDER_CONFIG;
    auto_buf struct sp_buf text = {0};
    bool ok;

    (void)log_answer(q, sp_decision_name(d->kind), q->asking.decided_by, NULL);
    if (is_late && d->rejection.n == 0)
        ok = sp_buf_add_str(&text, SP_STR(TOO_LATE));
    else if (!is_late && !is_refusal)
        ok = add_blocked(&text, q->argv[1], " by policy");
    else
        ok = sp_truncate_add(&text, d->rejection.n == 0 ? SP_STR(BY_USER) : d->rejection, max);
    if (!ok)
        text.len = 0;
    if (is_refusal)
        cancel_command(q, text.len != 0 ? sp_buf_str(&text) : SP_STR(BY_USER),
                       d->kind == SP_DECISION_ABORT);
    else
        finish_denied(q, SP_NETWORK_REASON_NOT_ALLOWED, &text);
}

/* ---- a new question ---- */

static bool keep_text(struct sp_network_question *q, struct sp_str text, struct sp_str *ret)
{
    ret->p = sp_arena_copy(&q->arena, text);
    ret->n = text.n;
    return ret->p != NULL;
}

/* `github.com, port 22, by ssh`: what a person reads. */
static bool add_people(struct sp_buf *out, const struct sp_network_request *r)
{
    const char *by = r->protocol == SP_NETWORK_HTTP    ? "http"
                     : r->protocol == SP_NETWORK_HTTPS ? "https"
                     : r->port == 22                   ? "ssh"
                     : r->port == 9418                 ? "git"
                                                       : "tcp";

    return sp_buf_printf(out, "%s, port %u, by %s", r->host.text, r->port, by);
}

static struct sp_network_question *new_question(const struct sp_network_request *r,
                                                struct sp_str url, struct sp_str key,
                                                struct sp_str turn_id)
{
    const struct sp_network_command *c = r->command;
    struct sp_network_question *q = calloc(1, sizeof *q);
    auto_buf struct sp_buf shown = {0};
    auto_buf struct sp_buf reason = {0};
    auto_buf struct sp_buf asking = {0};
    auto_buf struct sp_buf people = {0};

    if (q == NULL)
        return NULL;
    q->approvals = r->approvals;
    q->command = r->command;
    q->host = r->host;
    q->protocol = r->protocol;
    q->argv[0] = SP_STR("network-access");
    q->asking.decided = on_decided;
    q->asking.has_no_approver = c->has_no_approver;
    struct sp_approval_question *to = &q->asking.question;
    *to = (struct sp_approval_question){
        .kind = SP_QUESTION_NETWORK,
        .call_id = c->call_id,
        .environment = c->environment,
        .cwd = c->cwd,
        .argv = {q->argv, 2},
        .profile = c->policy,
        .profile_name = c->policy_name,
        .host = sp_str_of(q->host.text),
        .protocol = wire_name(q->protocol),
    };
    if (!keep_text(q, url, &q->argv[1]) || !keep_text(q, key, &q->key) ||
        !keep_text(q, turn_id, &to->turn_id) || !sp_words_add_quoted(&shown, to->argv) ||
        !keep_text(q, sp_buf_str(&shown), &to->command) ||
        !sp_buf_printf(&reason, "%s is not in the allowed_domains", q->host.text) ||
        !keep_text(q, sp_buf_str(&reason), &to->reason) || !sp_words_add_quoted(&asking, c->argv) ||
        !keep_text(q, sp_buf_str(&asking), &to->asking_command) || !add_people(&people, r) ||
        !keep_text(q, sp_buf_str(&people), &to->shown_host) ||
        !keep_text(q, key, &to->approval_id)) {
        free_question(q);
        return NULL;
    }
    sp_list_prepend(&r->approvals->network->questions, &q->link);
    r->approvals->network->count++;
    return q;
}

/* ---- commands ---- */

static bool need_network(struct sp_approvals *a)
{
    if (a->network != NULL)
        return true;
    a->network = calloc(1, sizeof *a->network);
    if (a->network == NULL)
        return false;
    sp_list_init(&a->network->questions);
    sp_list_init(&a->network->commands);
    sp_list_init(&a->network->once);
    return true;
}

bool sp_network_command_begin(struct sp_approvals *a, struct sp_network_command *c)
{
    if (!need_network(a))
        return false;
    sp_list_append(&a->network->commands, &c->link);
    return true;
}

/* ---- requests and commands that end ---- */

static void replace_question(struct sp_network_question *q)
{
    auto_buf struct sp_buf text = {0};

    (void)log_answer(q, sp_decision_name(SP_DECISION_ABORT), SP_DECIDER_NONE, NULL);
    if (!add_blocked(&text, q->argv[1], " by policy"))
        text.len = 0;
    finish_denied(q, SP_NETWORK_REASON_NOT_ALLOWED, &text);
}

static void finish_abandoned(struct sp_network_question *q, uint64_t since_ms)
{
    auto_buf struct sp_buf text = {0};

    (void)log_answer(q, sp_decision_name(SP_DECISION_ABORT), SP_DECIDER_NONE, NULL);
    if (!add_disconnected(&text, sp_clock_ms() - since_ms))
        text.len = 0;
    finish_denied(q, SP_NETWORK_REASON_NOT_ALLOWED, &text);
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
    if (!add_disconnected(&text, sp_clock_ms() - since_ms))
        text.len = 0;
    deny_request(r, SP_NETWORK_REASON_NOT_ALLOWED, sp_buf_str(&text));
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
    sp_list_remove(&c->link);
    while (i != NULL && i != &a->network->questions) {
        struct sp_network_question *q = SP_CONTAINER(i, struct sp_network_question, link);

        if (q->command != c) {
            i = i->next;
            continue;
        }
        finish_abandoned(q, q->waiting->since_ms);
        i = a->network->questions.next; /* callbacks may have changed the list */
    }
    if (a->network != NULL)
        drop_all_once(a->network, c);
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
    drop_all_once(n, NULL);
    sp_cache_free(n->denied);
    sp_cache_free(n->approved);
    sp_cache_free(n->known);
    sp_cache_free(n->noted);
    free(n);
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
        replace_question(older);
    if (n->count == SP_NETWORK_QUESTIONS_MAX) {
        if (!add_blocked(&text, url,
                         ": too many questions are open; try again when some are answered"))
            text.len = 0;
        refuse_request(r, SP_NETWORK_REASON_NOT_ALLOWED, url, sp_buf_str(&text), SP_DECIDER_CONFIG);
        return;
    }
    struct sp_network_question *q = new_question(r, url, key, turn_id);
    if (q == NULL) {
        refuse_for(r, SP_NETWORK_REASON_OTHER, url, SP_DECIDER_CONFIG);
        return;
    }
    wait_for(q, r);
    sp_asking_begin(&q->asking, r->approvals); /* last: callbacks may free q and r */
}

/* ---- judging ---- */

static void judge_request(struct sp_network_request *r, const struct sp_network_ask *ask,
                          struct sp_str url, struct sp_str key)
{
    const struct standing known = find_standing(r->approvals, r->command, &r->host, key);
    const enum sp_network_reason reason = sp_network_standing_reason(ask->standing);
    struct sp_network_question *q = find_question(r, key, &ask->turn_id);

    if (known.is_denied)
        refuse_for(r, SP_NETWORK_REASON_DENIED, url, known.by);
    else if (reason != SP_NETWORK_REASON_NONE && ask->standing != SP_STANDING_UNLISTED)
        refuse_for(r, reason, url, SP_DECIDER_CONFIG);
    else if (ask->standing != SP_STANDING_UNLISTED)
        allow_known(r, url, SP_DECIDER_CONFIG, false);
    else if (known.is_allowed)
        allow_known(r, url, known.by, known.is_once);
    else if (r->command->is_cancelled)
        refuse_request(r, SP_NETWORK_REASON_NOT_ALLOWED, url, SP_STR(BY_USER),
                       r->command->cancelled_by);
    else if (!may_ask(r->approvals, r->command)) {
        auto_buf struct sp_buf text = {0};

        if (!add_blocked(&text, url, " by policy"))
            text.len = 0;
        refuse_request(r, SP_NETWORK_REASON_NOT_ALLOWED, url, sp_buf_str(&text), SP_DECIDER_CONFIG);
    } else if (q != NULL)
        wait_for(q, r);
    else
        open_question(r, url, key, ask->turn_id);
}

void sp_network_ask(struct sp_network_request *r, struct sp_approvals *a,
                    const struct sp_network_ask *ask, void (*decided)(struct sp_network_request *r))
{
    auto_buf struct sp_buf url = {0};
    auto_buf struct sp_buf key = {0};

    *r = (struct sp_network_request){.decided = decided,
                                     .approvals = a,
                                     .command = ask->command,
                                     .port = ask->port,
                                     .protocol = ask->protocol,
                                     .since_ms = sp_clock_ms()};
    if (!need_network(a)) {
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
