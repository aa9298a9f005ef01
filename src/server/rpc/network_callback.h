/* SPDX-License-Identifier: Apache-2.0 */
/*
 * network_callback: the managed network of a process, between its proxy and its client.
 *
 * Every verdict is reported as network/policyDecision, if the link has room. A host on no list is
 * asked about with network/policyRequest, if the start has a policyDecisionTimeoutMs: one request
 * for a host, port and protocol at a time, for all connections of the process that wait for it. A
 * clear `allow` holds for the process. Everything else denies: another answer, an error, silence,
 * SP_ASK_MAX open requests, a detached session.
 */
#ifndef SP_SERVER_RPC_NETWORK_CALLBACK_H
#define SP_SERVER_RPC_NETWORK_CALLBACK_H

#include "core/managed.h"

struct sp_rpc;
struct sp_network_callback;

#define SP_NETWORK_CALLBACK_GRACE_MS   5000 /* to the client's time-out, for the way */
#define SP_NETWORK_CALLBACK_ALLOWED    4096 /* hosts that are remembered; more are asked again */
#define SP_NETWORK_CALLBACK_REASON     1024 /* bytes of a reason; a longer one is not passed on */
#define SP_NETWORK_CALLBACK_RESERVE    16   /* decisions are dropped unless so many more fit */
#define SP_NETWORK_CALLBACK_ANSWER_MAX (64U << 10)

/* For sp_start.net_ops; sp_start.net_user is the callback. */
extern const struct sp_net_ops sp_network_callback_ops;

/* timeout_ms 0: the client is not asked. NULL: no memory. */
struct sp_network_callback *sp_network_callback_new(struct sp_rpc *rpc, uint64_t timeout_ms);
/* The process has been made, and frees the callback with itself. */
void sp_network_callback_bind(struct sp_network_callback *c, struct sp_proc *p);
/* The start failed; NULL is fine. Not after sp_network_callback_bind. */
void sp_network_callback_free(struct sp_network_callback *c);

#endif
