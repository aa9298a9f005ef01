/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mount: mounts as descriptors. A tree is made or cloned, given its flags while nobody can see it,
 * and only then attached. All functions return a descriptor or 0, or minus errno.
 */
#ifndef SP_OS_MOUNT_H
#define SP_OS_MOUNT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum sp_mount_flags {
    SP_MOUNT_READ_ONLY = 1,
    SP_MOUNT_NO_SUID = 2,
    SP_MOUNT_NO_DEV = 4,
    SP_MOUNT_NO_EXEC = 8,
};

/* O_PATH of a path without any symlink in it, below `dir`; `path` may begin with a slash. */
int sp_path_open(int dir, const char *path);
/* Whether the descriptor is this inode. */
bool sp_path_is(int fd, uint64_t dev, uint64_t ino);

/* A new file system: "tmpfs", "devpts", "proc". options: name, value, ..., NULL. */
int sp_mount_new(const char *type, const char *const *options, unsigned flags);
/* A copy of what is mounted at fd and, `deep`, below it. */
int sp_mount_clone(int fd, bool deep);
/* Sets flags on a tree or an attached mount. */
int sp_mount_set(int tree, bool deep, unsigned flags);
/* Puts a tree over what `target` (O_PATH) is. */
int sp_mount_attach(int tree, int target);
/* No mount event goes in or out from here on. */
int sp_mount_make_private(void);
int sp_mount_detach(const char *path);
/* The descriptor becomes the root and the working directory; the old one is gone. */
int sp_mount_pivot(int root);

#endif
