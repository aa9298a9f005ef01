/* SPDX-License-Identifier: Apache-2.0 */
#include "os/mount.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stddef.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/auto.h"

int sp_path_open(int dir, const char *path)
{
    const struct open_how how = {
        .flags = O_PATH | O_CLOEXEC | O_NOFOLLOW,
        .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_BENEATH,
    };

    while (*path == '/')
        path++;
    const long fd = syscall(SYS_openat2, dir, *path == 0 ? "." : path, &how, sizeof how);
    return fd < 0 ? -errno : (int)fd;
}

static uint64_t attributes(unsigned flags)
{
    return ((flags & SP_MOUNT_READ_ONLY) != 0 ? (uint64_t)MOUNT_ATTR_RDONLY : 0) |
           ((flags & SP_MOUNT_NO_SUID) != 0 ? (uint64_t)MOUNT_ATTR_NOSUID : 0) |
           ((flags & SP_MOUNT_NO_DEV) != 0 ? (uint64_t)MOUNT_ATTR_NODEV : 0) |
           ((flags & SP_MOUNT_NO_EXEC) != 0 ? (uint64_t)MOUNT_ATTR_NOEXEC : 0);
}

int sp_mount_new(const char *type, const char *const *options, unsigned flags)
{
    auto_close int fs = fsopen(type, FSOPEN_CLOEXEC);

    if (fs < 0)
        return -errno;
    for (; options != NULL && options[0] != NULL; options += 2)
        if (fsconfig(fs, FSCONFIG_SET_STRING, options[0], options[1], 0) < 0)
            return -errno;
    if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return -errno;
    const int tree = fsmount(fs, FSMOUNT_CLOEXEC, (unsigned)attributes(flags));
    return tree < 0 ? -errno : tree;
}

int sp_mount_clone(int fd, bool deep)
{
    const int tree = open_tree(fd, "",
                               AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC |
                                   (deep ? (unsigned)AT_RECURSIVE : 0U));

    return tree < 0 ? -errno : tree;
}

int sp_mount_set(int tree, bool deep, unsigned flags)
{
    struct mount_attr attr = {.attr_set = attributes(flags)};

    return mount_setattr(tree, "", AT_EMPTY_PATH | (deep ? (unsigned)AT_RECURSIVE : 0U), &attr,
                         sizeof attr) < 0
               ? -errno
               : 0;
}

bool sp_mount_line(char *line, const char **ret_point, const char **ret_type)
{
    char *type = strstr(line, " - ");
    char *point = line;

    for (int i = 0; point != NULL && i < 4; i++) {
        point = strchr(point, ' ');
        point += point != NULL;
    }
    if (type == NULL || point == NULL)
        return false;
    type += 3;
    type[strcspn(type, " \n")] = 0;
    point[strcspn(point, " ")] = 0;
    char *out = point;
    for (const char *in = point; *in != 0; out++)
        if (in[0] == '\\' && in[1] != 0 && in[2] != 0 && in[3] != 0) {
            *out = (char)((in[1] - '0') * 64 + (in[2] - '0') * 8 + (in[3] - '0'));
            in += 4;
        } else {
            *out = *in++;
        }
    *out = 0;
    *ret_point = point;
    *ret_type = type;
    return true;
}

int sp_mount_pivot(int root)
{
    /* pivot_root(".", "."): the old root is stacked on the new one, and umount2(".") removes it. */
    if (fchdir(root) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 ||
        chdir("/") < 0)
        return -errno;
    return 0;
}
