/* SPDX-License-Identifier: Apache-2.0 */
/*
 * start_network: the members of process/start about the network.
 *
 *   networkProxy           a proxy to start: the command gets a managed network (core/managed.h)
 *   managedNetwork         facts about a proxy that runs already: refused
 *   enforceManagedNetwork  without either, a sandbox has no network
 *
 * All members are decoded first, so that a mistake gets its own error in every state.
 */
#ifndef SP_SERVER_RPC_START_NETWORK_H
#define SP_SERVER_RPC_START_NETWORK_H

#include "sandbox/profile.h"
#include "server/rpc/params.h"

struct sp_start_network {
    bool is_enforced;      /* enforceManagedNetwork */
    bool has_facts;        /* managedNetwork has any member */
    bool has_proxy;        /* networkProxy is there */
    bool has_timeout;      /* networkProxy.policyDecisionTimeoutMs is there */
    uint64_t timeout_ms;   /* its value */
    bool is_proxy_enabled; /* members of networkProxy.proxy, from here on */
    bool is_limited, has_socks, uses_upstream, allows_local;
    bool reviews_domains, holds_credentials; /* anything that this server does not do */
    struct sp_str bad_socket;                /* the first path that is not absolute; p NULL: none */
    uint32_t domains;                        /* token, or SP_JSON_NONE */
    struct sp_network_policy *policy;        /* owned; set by sp_start_network_judge */
};
static inline void sp_start_network_done(struct sp_start_network *n)
{
    sp_network_policy_free(n->policy);
    n->policy = NULL;
}

/* Reads the members; errors stay in params->err. */
void sp_start_network_read(const struct sp_params *params, struct sp_start_network *ret);
/* Refuses members that no server could serve, and makes the policy of a networkProxy. */
int sp_start_network_judge(struct sp_start_network *n, struct sp_json *j, struct sp_str process_id,
                           struct sp_err *e);
/* Refuses what this server does not do. */
int sp_start_network_check(const struct sp_start_network *n, bool has_sandbox, struct sp_err *e);
/* Gives the profile of the sandbox its network. `network: enabled` of a profile does not mean the
 * host's network if there is a networkProxy. */
int sp_start_network_apply(struct sp_start_network *n, struct sp_profile *profile,
                           struct sp_err *e);

#endif
