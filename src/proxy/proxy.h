/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proxy: the process that carries the connections of one managed cell (`sallyport proxy`,
 * internal).
 *
 * It lives in the host's network namespace and accepts from sockets that were made in the cell's,
 * so nothing is copied between namespaces. It asks the front about each host (proxy_message.h), and
 * ends with the front's socket.
 */
#ifndef SP_PROXY_PROXY_H
#define SP_PROXY_PROXY_H

#include "base/error.h"

#define SP_PROXY_CONNECTIONS_MAX  1024 /* of a cell; more wait in the backlog */
#define SP_PROXY_HOST_CONNECTIONS 256  /* of one host and port */
#define SP_PROXY_DIALS_MAX        256  /* connections that are judged or dialled */
#define SP_PROXY_VERDICTS_MAX     4096 /* kept; the oldest is asked again */

int sp_proxy_run(int socket, struct sp_err *e);

#endif
