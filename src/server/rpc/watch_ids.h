/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_ids: the watches that the kernel has for us, each for everybody who waits for something
 * there.
 */
#ifndef SP_SERVER_RPC_WATCH_IDS_H
#define SP_SERVER_RPC_WATCH_IDS_H

#include <stdbool.h>
#include <stddef.h>

struct sp_watch_id;

struct sp_watch_ids {
    int fd;                    /* of os/notify.h, the owner's */
    struct sp_watch_id *known; /* by number */
    size_t count, cap;
    bool has_unused;
};

/* One more who uses it; false: no memory. */
bool sp_watch_ids_use(struct sp_watch_ids *ids, int id);
void sp_watch_ids_leave(struct sp_watch_ids *ids, int id);
/* Removes what nobody uses. Not while a path is being looked at: what that adds may be one of
 * these. */
void sp_watch_ids_sweep(struct sp_watch_ids *ids);
/* One that the kernel spoke of: removed if nobody knows it, for whoever wanted it has ended before
 * it was told. The same holds. */
void sp_watch_ids_check(struct sp_watch_ids *ids, int id);
void sp_watch_ids_done(struct sp_watch_ids *ids);

#endif
