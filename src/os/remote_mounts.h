/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remote_mounts: which paths lie on file systems that may not answer, because a server or a process
 * does their work: NFS, CIFS, FUSE and the like. Read from mountinfo, which never waits for them.
 */
#ifndef SP_OS_REMOTE_MOUNTS_H
#define SP_OS_REMOTE_MOUNTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sp_remote_mounts {
    int fd;              /* of mountinfo; -1: it cannot be read, and every path counts as remote */
    uint64_t generation; /* grows with every change */
    char **points;
    size_t count;
};

void sp_remote_mounts_open(struct sp_remote_mounts *m);
void sp_remote_mounts_close(struct sp_remote_mounts *m);
/* Reads again what has changed; one system call if nothing has. */
void sp_remote_mounts_refresh(struct sp_remote_mounts *m);
/* Whether an absolute path without symlinks is on one. */
bool sp_remote_mounts_have(const struct sp_remote_mounts *m, const char *path);

#endif
