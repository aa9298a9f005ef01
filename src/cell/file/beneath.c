/* SPDX-License-Identifier: Apache-2.0 */
/*
 * place: where a path leads when no link may be followed: component by component, each below the
 * one that is held, so that a link put there meanwhile is met by the kernel and leads nowhere.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/syscall.h>

#include "base/auto.h"
#include "cell/file/file_priv.h"

#define HOLD (O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

/* Over slashes and components that are a single dot. */
static const char *skip_nothing(const char *at)
{
    while (*at == '/' || (at[0] == '.' && (at[1] == '/' || at[1] == 0)))
        at++;
    return at;
}

static int enter(int *dir, const char *name, size_t n)
{
    char component[NAME_MAX + 1];

    if (n > NAME_MAX)
        return -ENAMETOOLONG;
    memcpy(component, name, n);
    component[n] = 0;
    const int next = openat(*dir, component, HOLD);
    if (next < 0)
        return -errno;
    (void)close(*dir);
    *dir = next;
    return 0;
}

int sp_place_parent(int dir, const char *path, int *ret_dir, const char **ret_name)
{
    auto_close int held = dir == AT_FDCWD ? open("/", HOLD) : openat(dir, ".", HOLD);
    const char *at = skip_nothing(path);

    if (held < 0)
        return -errno;
    for (;;) {
        const size_t n = strcspn(at, "/");
        const char *next = skip_nothing(at + n);

        if (*next == 0 && (n == 0 || at[n] == 0))
            break;
        const int r = enter(&held, at, n);
        if (r < 0)
            return r;
        at = next; /* a slash at the end: the component before must be a directory */
        if (*next == 0)
            break;
    }
    *ret_name = at;
    *ret_dir = TAKE_FD(held);
    return 0;
}

/* A kernel or a filter that does not know the call: -ENOSYS. */
static int open_strictly(int dir, const char *path, int flags, mode_t mode, uint64_t resolve)
{
    const struct open_how how = {
        .flags = (uint64_t)(unsigned)flags, .mode = mode, .resolve = resolve};
    const long fd = syscall(SYS_openat2, dir, path, &how, sizeof how);

    return fd >= 0 ? (int)fd : errno == EPERM ? -ENOSYS : -errno;
}

int sp_place_open_to_write(const char *path, int flags, mode_t mode)
{
    int fd = open_strictly(AT_FDCWD, path, flags, mode & 0777, RESOLVE_NO_MAGICLINKS);

    if (fd != -ENOSYS)
        return fd;
    fd = open(path, flags, mode);
    return fd < 0 ? -errno : fd;
}

int sp_place_open(const struct sp_file_ask *ask, int flags)
{
    auto_close int dir = -1;
    const char *name = "";
    int fd;

    if (ask->follows && (flags & O_CREAT) != 0)
        return sp_place_open_to_write(ask->path, flags | O_CLOEXEC, 0666);
    if (ask->follows) {
        fd = open(ask->path, flags | O_CLOEXEC);
        return fd < 0 ? -errno : fd;
    }
    const int r = sp_place_parent(AT_FDCWD, ask->path, &dir, &name);
    if (r < 0)
        return r;
    fd = openat(dir, name[0] == 0 ? "." : name, flags | O_CLOEXEC | O_NOFOLLOW, 0666);
    return fd < 0 ? -errno : fd;
}

int sp_place_open_dir(int dir, const char *path)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    const char *from_here = skip_nothing(path);
    auto_close int parent = -1;
    const char *name = "";
    int fd = open_strictly(dir, *from_here == 0 ? "." : from_here, flags, 0, RESOLVE_NO_SYMLINKS);

    if (fd != -ENOSYS && fd != -ENAMETOOLONG)
        return fd;
    const int r = sp_place_parent(dir, path, &parent, &name);
    if (r < 0)
        return r;
    fd = openat(parent, name[0] == 0 ? "." : name, flags);
    return fd < 0 ? -errno : fd;
}

int sp_place_close(int fd)
{
    return close(fd) < 0 && errno != EINTR ? -errno : 0;
}
