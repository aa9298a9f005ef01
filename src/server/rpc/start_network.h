/* SPDX-License-Identifier: Apache-2.0 */
/*
 * start_network: what process/start says about a managed network (exec-server-protocol.md 4.7).
 *
 * There is no proxy here. Everything is decoded as if there were one, so that a mistake is called
 * by its name; then whatever asks for one is refused: a command that was to be watched never runs
 * unwatched.
 */
#ifndef SP_SERVER_RPC_START_NETWORK_H
#define SP_SERVER_RPC_START_NETWORK_H

#include "base/json.h"

struct sp_start_network {
    bool is_enforced;         /* enforceManagedNetwork */
    bool has_facts;           /* managedNetwork says anything */
    bool has_proxy;           /* networkProxy is there, ... */
    bool is_proxy_enabled;    /* ... and wants one */
    bool has_timeout;         /* its policy is asked for at the client, ... */
    uint64_t timeout_ms;      /* ... which has so much time */
    bool has_empty_domain;    /* a pattern that matches nothing */
    struct sp_str bad_socket; /* a path that is none; p NULL: all are */
};

/* The members of the params, in the order of the checks. */
int sp_start_network_read(struct sp_json *j, uint32_t params, struct sp_start_network *ret,
                          struct sp_err *e);
/* What is wrong with them, whoever is to run. */
int sp_start_network_judge(const struct sp_start_network *n, struct sp_str process_id,
                           struct sp_err *e);
/* That there is no proxy, to those who need one. */
int sp_start_network_refuse(const struct sp_start_network *n, struct sp_err *e);

#endif
