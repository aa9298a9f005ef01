/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mount: mounts as descriptors. A tree is made or cloned, gets its flags while it is still
 * detached, and is attached last. All functions return a descriptor or 0, or minus errno.
 */
#ifndef SP_OS_MOUNT_H
#define SP_OS_MOUNT_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/types.h>

enum sp_mount_flags {
    SP_MOUNT_READ_ONLY = 1,
    SP_MOUNT_NO_SUID = 2,
    SP_MOUNT_NO_DEV = 4,
    SP_MOUNT_NO_EXEC = 8,
};

/* O_PATH of a path below `dir` that has no symlinks; `path` may begin with a slash. */
int sp_path_open(int dir, const char *path);
/* Whether the descriptor refers to this inode. */
static inline bool sp_path_is(int fd, uint64_t dev, uint64_t ino)
{
    struct stat st;

    return fstat(fd, &st) == 0 && st.st_dev == dev && st.st_ino == ino;
}

/* A new file system: "tmpfs", "devpts", "proc". options: name, value, ..., NULL. */
int sp_mount_new(const char *type, const char *const *options, unsigned flags);
/* A copy of the mount at fd and, if deep, of the mounts below it. */
int sp_mount_clone(int fd, bool deep);
/* Adds flags to a tree or an attached mount. */
int sp_mount_set(int tree, bool deep, unsigned flags);
/* Mounts a tree on `target` (O_PATH). */
static inline int sp_mount_attach(int tree, int target)
{
    return move_mount(tree, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0
               ? -errno
               : 0;
}
/* Ends propagation of mounts in both directions. */
static inline int sp_mount_make_private(void)
{
    return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ? -errno : 0;
}
static inline int sp_mount_detach(const char *path)
{
    return umount2(path, MNT_DETACH) < 0 ? -errno : 0;
}
/* Makes the descriptor the root and the working directory, and detaches the old root. */
int sp_mount_pivot(int root);

/* Takes apart a line of mountinfo, in place: "36 35 98:0 / /mnt rw,noatime - ext4 /dev/root rw".
 * The mount point loses its escapes: blanks and some other characters are written as \ooo. false:
 * not such a line. */
bool sp_mount_line(char *line, const char **ret_point, const char **ret_type);

#endif
