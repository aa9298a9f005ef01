/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mounts: changing the view itself.
 */
#include <fcntl.h>
#include <linux/mount.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "escape.h"
#include "tries.h"

/* <sys/mount.h> and <linux/mount.h> do not go together. */
#define BIND_FLAGS    4096UL /* MS_BIND */
#define REMOUNT_FLAGS 32UL   /* MS_REMOUNT */
#define DETACH        2      /* MNT_DETACH */

int try_mount_tmpfs(const struct row *r)
{
    const char *at = where(r->a);
    const int said = answer(syscall(SYS_mount, "none", at, "tmpfs", 0UL, NULL));

    if (said == 0)
        (void)syscall(SYS_umount2, at, DETACH);
    return said;
}

int try_mount_bind(const struct row *r)
{
    const char *at = where(r->a);
    const int said = answer(syscall(SYS_mount, "/", at, NULL, BIND_FLAGS, NULL));

    if (said == 0)
        (void)syscall(SYS_umount2, at, DETACH);
    return said;
}

/* Of what the host has mounted only with flags (6) that contradict each other. */
int try_umount(const struct row *r)
{
    return answer(syscall(SYS_umount2, where(r->a), (int)r->n));
}

/* Read-write with all other flags as they are: where / is read-write nothing changes. */
int try_remount(const struct row *r)
{
    struct statvfs fs;
    unsigned long flags = BIND_FLAGS | REMOUNT_FLAGS;

    if (statvfs(where(r->a), &fs) < 0)
        return errno;
    flags |= fs.f_flag & (ST_NOSUID | ST_NODEV | ST_NOEXEC); /* the same bits */
    return answer(syscall(SYS_mount, NULL, where(r->a), NULL, flags, NULL));
}

int try_fsopen(const struct row *r)
{
    return answer_fd(syscall(SYS_fsopen, r->a, FSOPEN_CLOEXEC));
}

int try_open_tree(const struct row *r)
{
    return answer_fd(
        syscall(SYS_open_tree, AT_FDCWD, where(r->a), OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC));
}

int try_open_tree_attr(const struct row *r)
{
    struct mount_attr attr = {.attr_clr = MOUNT_ATTR_RDONLY};

    return answer_fd(syscall(467, AT_FDCWD, where(r->a), OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC, &attr,
                             sizeof attr));
}

int try_move_mount(const struct row *r)
{
    return answer(syscall(SYS_move_mount, AT_FDCWD, where(r->a), AT_FDCWD, where(r->b), 0));
}

int try_mount_setattr(const struct row *r)
{
    struct mount_attr attr = {.attr_clr = MOUNT_ATTR_RDONLY};

    return answer(syscall(SYS_mount_setattr, AT_FDCWD, where(r->a), 0, &attr, sizeof attr));
}

/* The directories are not there: whoever may, is told so. */
int try_pivot_root(const struct row *r)
{
    return answer(syscall(SYS_pivot_root, where(r->a), where(r->a)));
}

int try_chroot(const struct row *r)
{
    return answer(chroot(where(r->a)));
}
