/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gated: starts that wait for the gate's leave (gate.h). Such a start holds no process, and belongs
 * to its connection: with that it ends.
 */
#ifndef SP_SERVER_RPC_GATED_H
#define SP_SERVER_RPC_GATED_H

#include "server/rpc/conn.h"

/* A start that goes through the connection's gate. held: bytes of it that are not in *o. */
int sp_gated_start(struct sp_rpc_call *c, const struct sp_start *o, size_t held, struct sp_err *e);

/*
 * A request about a process whose start waits: answered as its method says, *ret_done says so. 0
 * and not done: there is none of that name.
 */
int sp_gated_call(struct sp_rpc_call *c, const struct sp_session *s, struct sp_str id,
                  bool *ret_done, struct sp_err *e);

/* What methods say about one; `start` is the request that waits. */
int sp_gated_exists(struct sp_rpc_call *c, struct sp_request *start, struct sp_err *e);
int sp_gated_write(struct sp_rpc_call *c, struct sp_request *start, struct sp_err *e);
int sp_gated_signal(struct sp_rpc_call *c, struct sp_request *start, struct sp_err *e);
int sp_gated_terminate(struct sp_rpc_call *c, struct sp_request *start, struct sp_err *e);

/* The request waits for no leave any more. */
void sp_gated_forget(struct sp_request *r);

#endif
