/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is known of a host without a question: by rules, and by what was said before in this
 * conversation (approvals.md 11, 3 and 6).
 */
#include <stdio.h>

#include "approve/network_priv.h"

/* ---- rules ---- */

/* Rules name addresses in any spelling, too. */
static bool is_about(const struct sp_network_rule *rule, const struct sp_network_host *host)
{
    struct sp_network_host named;

    if (sp_str_eq(rule->host, sp_str_of(host->text)))
        return true;
    return host->is_address && sp_network_host_read(rule->host, &named) == NULL &&
           named.is_address && strcmp(named.text, host->text) == 0;
}

enum word { UNSAID, ALLOW, DENY };

/* The last word of the files, then that of amendments; no amendment takes a file's no back. */
static enum word word_of_rules(const struct sp_rules *rules, const struct sp_network_host *host)
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

/* A whole host that was denied: not for the asking, and also if the rules no longer say so. */
struct host_key {
    char text[SP_NETWORK_HOST_MAX + 8];
};

static struct sp_str key_of_host(const struct sp_network_host *host, struct host_key *room)
{
    (void)snprintf(room->text, sizeof room->text, "host %s", host->text);
    return sp_str_of(room->text);
}

static bool is_denied(const struct sp_network *n, const struct sp_network_host *host,
                      struct sp_str key)
{
    struct host_key room = {0};

    return n != NULL && n->denied != NULL &&
           (sp_cache_has(n->denied, key, false) ||
            sp_cache_has(n->denied, key_of_host(host, &room), false));
}

struct sp_network_standing sp_network_standing(const struct sp_approvals *a,
                                               const struct sp_network_host *host,
                                               struct sp_str key)
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

/* ---- for later ---- */

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

static void complain(struct sp_approvals *a, const struct sp_err *why)
{
    char reason[sizeof why->msg + 128];
    char text[sizeof reason + 64];

    (void)snprintf(text, sizeof text, "Failed to apply network policy amendment: %s",
                   sp_error_text(why, reason, sizeof reason));
    sp_approvals_warn(a, text);
}

/* An allowance that could not be written is for this host, port and protocol alone; a refusal is
 * for the host in any case. */
void sp_network_amend(const struct sp_network_question *q, bool allows)
{
    struct sp_approvals *a = q->approvals;
    const struct sp_str host = sp_str_of(q->host.text);
    const struct sp_str protocol = sp_str_of(sp_network_wire(q->protocol));
    struct sp_err e = {0};

    if (a->options.user_dir != NULL &&
        sp_rules_amend_network(a->options.user_dir, host, protocol, allows, &e) < 0) {
        complain(a, &e);
        if (allows)
            return;
    }
    struct sp_rules *more = sp_rules_with_network(a->options.rules, host, protocol, allows, &e);
    if (more == NULL) {
        complain(a, &e);
        return;
    }
    sp_rules_unref(a->options.rules);
    a->options.rules = more;
}
