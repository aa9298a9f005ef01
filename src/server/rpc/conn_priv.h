/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conn_priv: what conn.c and request.c share; nobody else includes this.
 */
#ifndef SP_SERVER_RPC_CONN_PRIV_H
#define SP_SERVER_RPC_CONN_PRIV_H

#include "server/rpc/conn.h"

uint64_t sp_conn_clock_us(void);

enum sp_rpc_outcome { SP_RPC_OUTCOME_OK, SP_RPC_OUTCOME_ERROR, SP_RPC_OUTCOME_DISCONNECTED };
/* m NULL: a method that is not known. */
void sp_conn_count(struct sp_rpc *rpc, const struct sp_method *m, uint64_t started_us,
                   enum sp_rpc_outcome how);

void sp_conn_reply_error(struct sp_conn *conn, struct sp_str id, int code, struct sp_str message);
void sp_conn_reply_failure(struct sp_conn *conn, struct sp_str id, const struct sp_err *e);

/* Ends it without an answer. */
void sp_request_drop(struct sp_request *r);

#endif
