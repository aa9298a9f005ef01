/* SPDX-License-Identifier: Apache-2.0 */
/*
 * start_network: the members of process/start about a managed network.
 *
 * This server runs no proxy. All members are decoded and checked as if it did, so that a mistake
 * gets its own error; then a start that asks for a proxy is refused, since a command that was to
 * run behind a proxy must not run without one.
 */
#ifndef SP_SERVER_RPC_START_NETWORK_H
#define SP_SERVER_RPC_START_NETWORK_H

#include "server/rpc/params.h"

struct sp_start_network {
    bool is_enforced;         /* enforceManagedNetwork */
    bool has_facts;           /* managedNetwork has any member */
    bool has_proxy;           /* networkProxy is there */
    bool is_proxy_enabled;    /* networkProxy.proxy.enabled */
    bool has_timeout;         /* networkProxy.policyDecisionTimeoutMs is there */
    uint64_t timeout_ms;      /* its value */
    bool has_empty_domain;    /* a domain pattern is "" */
    struct sp_str bad_socket; /* the first path that is not absolute; p NULL: none */
};

/* Decodes the members, in the order of the checks; the error is in params->err. */
void sp_start_network_read(const struct sp_params *params, struct sp_start_network *ret);
/* Refuses members that no server could serve. */
int sp_start_network_judge(const struct sp_start_network *n, struct sp_str process_id,
                           struct sp_err *e);
/* Refuses what needs a proxy. */
int sp_start_network_refuse(const struct sp_start_network *n, struct sp_err *e);

#endif
