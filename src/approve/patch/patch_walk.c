/* SPDX-License-Identifier: Apache-2.0 */
/*
 * patch: the directory that a file is in, held open.
 *
 * Component by component from the root, each below the one that is held: where a link is refused,
 * one that is put there meanwhile is met by the kernel and leads nowhere.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "approve/patch/patch_priv.h"
#include "base/auto.h"

#define MAX_LINKS 40

static bool is_link(int dir, const char *name)
{
    struct stat st;

    return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode);
}

/* The directory `name` below dir, or -errno. */
static int enter(int dir, const char *name, const struct sp_patch_walk *how)
{
    const int flags = O_PATH | O_DIRECTORY | O_CLOEXEC | (how->refuses_links ? O_NOFOLLOW : 0);
    int fd = openat(dir, name, flags);

    if (fd < 0 && errno == ENOENT && how->makes_parents) {
        if (mkdirat(dir, name, 0777) < 0 && errno != EEXIST)
            return -errno;
        fd = openat(dir, name, flags);
    }
    if (fd >= 0)
        return fd;
    const int err = errno;
    return how->refuses_links && err == ENOTDIR && is_link(dir, name) ? -ELOOP : -err;
}

int sp_patch_walk(const char *path, const struct sp_patch_walk *how, int *ret_dir,
                  const char **ret_name)
{
    auto_close int dir = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    const char *at = path + 1;
    char name[NAME_MAX + 1];

    if (dir < 0)
        return -errno;
    for (const char *slash; (slash = strchr(at, '/')) != NULL; at = slash + 1) {
        const size_t n = (size_t)(slash - at);

        if (n > NAME_MAX)
            return -ENAMETOOLONG;
        memcpy(name, at, n);
        name[n] = 0;
        const int next = enter(dir, n == 0 ? "." : name, how); /* a link's target may have "//" */
        if (next < 0)
            return next;
        (void)close(dir);
        dir = next;
    }
    if (*at == 0)
        return -EISDIR;
    if (how->refuses_links && is_link(dir, at))
        return -ELOOP;
    *ret_name = at;
    *ret_dir = TAKE_FD(dir);
    return 0;
}

/* Where the link at path points, seen from its directory. */
static char *read_link(const char *path)
{
    char target[PATH_MAX];
    char *joined = NULL;
    const ssize_t n = readlink(path, target, sizeof target);

    if (n < 0)
        return NULL;
    if ((size_t)n == sizeof target) {
        errno = ENAMETOOLONG;
        return NULL;
    }
    const int dir_len = target[0] == '/' ? 0 : (int)(strrchr(path, '/') - path) + 1;
    if (asprintf(&joined, "%.*s%.*s", dir_len, path, (int)n, target) < 0)
        return NULL;
    return joined;
}

char *sp_patch_follow(const char *path)
{
    auto_free char *at = strdup(path);

    for (int i = 0; at != NULL && i < MAX_LINKS; i++) {
        char *next = is_link(AT_FDCWD, at) ? read_link(at) : NULL;

        if (next == NULL)
            return is_link(AT_FDCWD, at) ? NULL : TAKE_PTR(at);
        free(at);
        at = next;
    }
    errno = at == NULL ? ENOMEM : ELOOP;
    return NULL;
}
