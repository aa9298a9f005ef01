/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file_path: the ways to open a path on a hostile disk.
 *
 * Where no symlink may be followed, a path is opened component by component, each with O_NOFOLLOW
 * below the directory that is already held. A symlink that a command puts there in the meantime is
 * refused by the kernel.
 */
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

#include "base/auto.h"
#include "cell/file/file_priv.h"

#define HOLD (O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
#define LIST (O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC)

/* Over slashes and components that are a single dot. */
static const char *skip_empty_components(const char *at)
{
    while (*at == '/' || (at[0] == '.' && (at[1] == '/' || at[1] == 0)))
        at++;
    return at;
}

int sp_file_open_parent(int dir, const char *path, int *ret_dir, const char **ret_name)
{
    auto_close int held = dir == AT_FDCWD ? open("/", HOLD) : openat(dir, ".", HOLD);
    const char *at = skip_empty_components(path);
    char component[NAME_MAX + 1];

    if (held < 0)
        return -errno;
    for (;;) {
        const size_t n = strcspn(at, "/");
        const char *rest = skip_empty_components(at + n);

        if (*rest == 0 && (n == 0 || at[n] == 0))
            break;
        if (n > NAME_MAX)
            return -ENAMETOOLONG;
        memcpy(component, at, n);
        component[n] = 0;
        const int next = openat(held, component, HOLD);
        if (next < 0)
            return -errno;
        (void)close(held);
        held = next;
        at = rest;
        if (*rest == 0) /* a trailing slash: the last component had to be a directory */
            break;
    }
    *ret_name = at;
    *ret_dir = TAKE_FD(held);
    return 0;
}

/* -ENOSYS: the kernel or a seccomp filter (EPERM) does not allow openat2. */
static int try_openat2(int dir, const char *path, int flags, mode_t mode, uint64_t resolve)
{
    const struct open_how how = {
        .flags = (uint64_t)(unsigned)flags, .mode = mode, .resolve = resolve};
    const long fd = syscall(SYS_openat2, dir, path, &how, sizeof how);

    return fd >= 0 ? (int)fd : errno == EPERM ? -ENOSYS : -errno;
}

int sp_file_open_to_write(const char *path, int flags, mode_t mode)
{
    int fd = try_openat2(AT_FDCWD, path, flags, mode & 0777, RESOLVE_NO_MAGICLINKS);

    if (fd != -ENOSYS)
        return fd;
    fd = open(path, flags, mode);
    return fd < 0 ? -errno : fd;
}

/* Takes the descriptor over: closedir closes it. NULL: errno. */
static DIR *list_of(int fd)
{
    DIR *names = fd < 0 ? NULL : fdopendir(fd);

    if (names == NULL && fd >= 0) {
        const int err = errno;

        (void)close(fd);
        errno = err;
    }
    return names;
}

DIR *sp_file_read_dir(int dir, const char *path, int flags)
{
    return list_of(openat(dir, path, LIST | flags));
}

DIR *sp_file_read_dir_below(int dir, const char *path)
{
    const char *relative = skip_empty_components(path);
    auto_close int parent = -1;
    const char *name = "";
    int fd = try_openat2(dir, *relative == 0 ? "." : relative, LIST | O_NOFOLLOW, 0,
                         RESOLVE_NO_SYMLINKS);

    if (fd == -ENOSYS || fd == -ENAMETOOLONG) {
        fd = sp_file_open_parent(dir, path, &parent, &name);
        if (fd == 0)
            return sp_file_read_dir(parent, name[0] == 0 ? "." : name, O_NOFOLLOW);
    }
    if (fd < 0)
        errno = -fd;
    return list_of(fd);
}

bool sp_file_is_placeholder(int dir, const char *path, const char *name)
{
    const struct dirent *d;
    struct stat st;

    if (name[0] != '.' || fstatat(dir, path, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
        !S_ISDIR(st.st_mode) || st.st_uid != geteuid())
        return false;
    const mode_t mode = st.st_mode & SP_PLACEHOLDER_MASK;
    if (mode != SP_PLACEHOLDER_MODE && mode != SP_PLACEHOLDER_COVER)
        return false;
    DIR *names = sp_file_read_dir(dir, path, O_NOFOLLOW);
    if (names == NULL)
        return false;
    while ((d = readdir(names)) != NULL && sp_is_dots(d->d_name))
        continue;
    (void)closedir(names);
    return d == NULL;
}

bool sp_file_is_process_memory(int fd)
{
    char path[64];
    char name[PATH_MAX];
    struct statfs fs;

    if (fstatfs(fd, &fs) < 0 || fs.f_type != PROC_SUPER_MAGIC)
        return false;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(path, name, sizeof name);
    return n < 4 || memcmp(name + n - 4, "/mem", 4) == 0;
}
