/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http: the requests to web servers of one connection, and the bodies that are streamed to it.
 */
#ifndef SP_SERVER_RPC_HTTP_RELAY_H
#define SP_SERVER_RPC_HTTP_RELAY_H

#include "core/http_client.h"
#include "server/rpc/conn.h"

/* Of a response that is not streamed: with the rest it fits a message that clients take. */
#define SP_WEB_MAX_BODY (47U << 20)

struct sp_web_job; /* one request, or what is still to come of its response */

/* Whether a stream of that name is under way. */
bool sp_web_is_active(const struct sp_conn *conn, struct sp_str id);
/* The request waits for its response from here on. */
int sp_web_begin(struct sp_rpc_call *c, const struct sp_web_ask *ask, struct sp_str id,
                 bool is_stream, struct sp_err *e);
/* The connection has ended: so do its requests. */
void sp_web_close(struct sp_conn *conn);

#endif
