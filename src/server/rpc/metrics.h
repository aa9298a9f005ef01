/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics: the server's counts as Prometheus text.
 */
#ifndef SP_SERVER_RPC_METRICS_H
#define SP_SERVER_RPC_METRICS_H

#include "server/net/listen.h"
#include "server/rpc/conn.h"

void sp_metrics_write(const struct sp_rpc *rpc, const struct sp_listener_stats *net,
                      struct sp_buf *out);

#endif
