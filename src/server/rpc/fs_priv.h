/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fs_priv: the open files of a connection.
 */
#ifndef SP_SERVER_RPC_FS_PRIV_H
#define SP_SERVER_RPC_FS_PRIV_H

#include "server/rpc/fs.h"

struct sp_fs_handle {
    struct sp_task task;       /* of `closes` */
    struct sp_request *closes; /* an fs/close that is answered when it is closed; NULL: none */
    struct sp_files *files;
    struct sp_closing closing;
    char id[SP_FS_MAX_HANDLE_ID];
    size_t id_len;
    int fd; /* -1: not yet, or it could not be opened */
    uint32_t refs;
    char path[]; /* what was opened: in the way of others at that path */
};

struct sp_fs {
    struct sp_fs_handle *handles[SP_FS_MAX_HANDLES];
    uint32_t handle_count;
};

void sp_fs_close_handles(struct sp_fs *fs);
/* Answers that the request's handle is none: it could not be opened. */
void sp_fs_fail_unknown(struct sp_request *r);

#endif
