/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watches: fs/watchMissing, which tells a client once when paths that do not exist may have
 * appeared. One inotify descriptor, made for the first watch, serves all connections.
 */
#ifndef SP_SERVER_RPC_WATCHES_H
#define SP_SERVER_RPC_WATCHES_H

#include "server/rpc/conn.h"

#define SP_WATCH_MAX_PATHS 64   /* missing paths of one watch */
#define SP_WATCH_MAX       1024 /* watches of one connection */

/* ---- reference counts of inotify watches ---- */

struct sp_watch_id;

/* The kernel has one watch for each inode, so paths in one directory share it. */
struct sp_watch_ids {
    int fd;                    /* of os/notify.h; the owner closes it */
    struct sp_watch_id *known; /* sorted by id */
    size_t count, cap;
    bool has_unused;
};

/* Adds a reference; false: no memory. */
bool sp_watch_ids_use(struct sp_watch_ids *ids, int id);
void sp_watch_ids_leave(struct sp_watch_ids *ids, int id);
/* Removes the watches without references. Only while no file operation is adding watches: the id
 * that it will report may be one of these. */
void sp_watch_ids_sweep(struct sp_watch_ids *ids);
/* An event came for this id. Removes the watch if it is unknown: its client has gone before the
 * operation that added it was done. The same restriction applies. */
void sp_watch_ids_check(struct sp_watch_ids *ids, int id);
void sp_watch_ids_done(struct sp_watch_ids *ids);

#endif
