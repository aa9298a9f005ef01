/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics: counts requests, and writes the server's counts as Prometheus text.
 */
#ifndef SP_SERVER_RPC_METRICS_H
#define SP_SERVER_RPC_METRICS_H

#include "server/net/listen.h"
#include "server/rpc/conn.h"

enum sp_rpc_outcome { SP_RPC_OUTCOME_OK, SP_RPC_OUTCOME_ERROR, SP_RPC_OUTCOME_DISCONNECTED };
/* Counts one finished request. */
void sp_metrics_count(struct sp_method_stats *s, uint64_t started_us, enum sp_rpc_outcome how);

void sp_metrics_write(const struct sp_rpc *rpc, const struct sp_listener_stats *net,
                      struct sp_buf *out);

#endif
