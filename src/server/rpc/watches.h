/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watches: clients that know of paths that are not there, and want to be told once when that may
 * have changed (fs/watchMissing). One inotify descriptor for all connections, made for the first.
 */
#ifndef SP_SERVER_RPC_WATCHES_H
#define SP_SERVER_RPC_WATCHES_H

#include "server/rpc/conn.h"

#define SP_WATCH_MAX_PATHS 64   /* missing ones of one watch */
#define SP_WATCH_MAX       1024 /* watches of one connection */

/* The connection ends: so do its watches. */
void sp_watches_drop(struct sp_conn *conn);
/* The server ends; no connection is left. */
void sp_watches_free(struct sp_rpc *rpc);

#endif
