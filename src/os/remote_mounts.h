/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remote_mounts: which paths are on file systems that may hang, because a server or a process
 * serves them: NFS, CIFS, FUSE and others. The list comes from mountinfo, which never waits for
 * them.
 */
#ifndef SP_OS_REMOTE_MOUNTS_H
#define SP_OS_REMOTE_MOUNTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sp_remote_mounts {
    int fd;              /* mountinfo; -1: not readable, every path counts as remote */
    uint64_t generation; /* grows with every change */
    char **points;
    size_t count;
};

void sp_remote_mounts_open(struct sp_remote_mounts *m);
void sp_remote_mounts_close(struct sp_remote_mounts *m);
/* Reads mountinfo again if it has changed; one poll if not. */
void sp_remote_mounts_refresh(struct sp_remote_mounts *m);
/* Whether an absolute path without symlinks is on a remote file system. */
bool sp_remote_mounts_have(const struct sp_remote_mounts *m, const char *path);

#endif
