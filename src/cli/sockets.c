/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/sockets.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/runtime_dir.h"
#include "base/str.h"
#include "core/journal.h"

/* ---- the folder ---- */

/* Another user's, as after sudo, is not the place for what is ours. */
static bool is_own_directory(const char *path)
{
    struct stat st;

    return path != NULL && path[0] == '/' && stat(path, &st) == 0 && S_ISDIR(st.st_mode) &&
           st.st_uid == geteuid();
}

static void name_folder(char *ret, size_t size)
{
    const char *xdg = getenv("XDG_RUNTIME_DIR");

    if (is_own_directory(xdg))
        (void)snprintf(ret, size, "%s/sallyport", xdg);
    else
        sp_runtime_dir(ret, size);
}

/* Its descriptor, or -1: it is not there, or others can get at it. */
static int open_folder(const char *path)
{
    struct stat st;
    auto_close int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0 || fstat(fd, &st) < 0)
        return -1;
    if (st.st_uid != geteuid() || (st.st_mode & 077) != 0) {
        errno = EPERM;
        return -1;
    }
    return TAKE_FD(fd);
}

int sp_sockets_prepare(char *ret, size_t size, struct sp_err *e)
{
    name_folder(ret, size);
    if (mkdir(ret, 0700) < 0 && errno != EEXIST)
        return sp_fail(e, SP_E_SYSTEM, errno, "make %s", ret);
    auto_close int fd = open_folder(ret);
    if (fd < 0 && errno == EPERM)
        return sp_fail(e, SP_E_INVALID, 0,
                       "%s is not for us alone: give it mode 0700, or remove it", ret);
    return fd < 0 ? sp_fail(e, SP_E_SYSTEM, errno, "open %s", ret) : 0;
}

/* ---- who is there ---- */

static bool read_pid(const char *name, pid_t *ret)
{
    const size_t n = strlen(name);
    uint64_t pid;

    if (n < 6 || strcmp(name + n - 5, ".sock") != 0 ||
        !sp_str_to_u64((struct sp_str){name, n - 5}, INT32_MAX, &pid) || pid == 0)
        return false;
    *ret = (pid_t)pid;
    return true;
}

static bool is_dead(pid_t pid)
{
    return kill(pid, 0) < 0 && errno == ESRCH;
}

enum state { LIVE, SILENT, STALE };

/* A socket that refuses and has no process is nobody's. With one it may be about to listen, or of a
 * process that has the number of a dead server now. */
static enum state look_at(const char *path, pid_t pid)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0 || strlen(path) >= sizeof un.sun_path)
        return SILENT;
    memcpy(un.sun_path, path, strlen(path) + 1);
    if (connect(fd, (const struct sockaddr *)&un, sizeof un) == 0 || errno == EAGAIN)
        return LIVE;
    return errno == ECONNREFUSED && is_dead(pid) ? STALE : SILENT;
}

static int by_pid(const void *a, const void *b)
{
    const pid_t x = ((const struct sp_socket *)a)->pid;
    const pid_t y = ((const struct sp_socket *)b)->pid;

    return (x > y) - (x < y);
}

/* The folder, to be read; NULL: there is none that is ours. */
static DIR *open_list(char *folder, size_t size)
{
    name_folder(folder, size);
    const int fd = open_folder(folder);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);

    if (d == NULL && fd >= 0)
        (void)close(fd);
    return d;
}

/* The next socket there and its server's pid; false: that was the last. A stale one is removed.
 * Without `asks_all` only those are asked whose process is gone. */
static bool next_live(DIR *d, const char *folder, bool asks_all, struct sp_socket *ret)
{
    char path[600];
    const struct dirent *entry;

    while ((entry = readdir(d)) != NULL) {
        if (!read_pid(entry->d_name, &ret->pid) || (!asks_all && !is_dead(ret->pid)))
            continue;
        (void)snprintf(path, sizeof path, "%.500s/%d.sock", folder, (int)ret->pid);
        const enum state state = look_at(path, ret->pid);
        if (state == STALE)
            (void)unlinkat(dirfd(d), entry->d_name, 0); /* or somebody else does */
        if (state != LIVE)
            continue;
        (void)snprintf(ret->url, sizeof ret->url, "unix://%.120s", path);
        return true;
    }
    return false;
}

unsigned sp_sockets_find(struct sp_socket ret[SP_MAX_SOCKETS])
{
    char folder[512];
    unsigned count = 0;
    DIR *d = open_list(folder, sizeof folder);

    if (d == NULL)
        return 0;
    while (count < SP_MAX_SOCKETS && next_live(d, folder, true, &ret[count]))
        count++;
    (void)closedir(d);
    qsort(ret, count, sizeof ret[0], by_pid);
    return count;
}

/* ---- ours ---- */

static void sweep(void)
{
    struct sp_socket other;
    char folder[512];
    DIR *d = open_list(folder, sizeof folder);

    if (d == NULL)
        return;
    while (next_live(d, folder, false, &other))
        continue;
    (void)closedir(d);
}

int sp_sockets_own_url(char *ret, size_t size, struct sp_err *e)
{
    char folder[512];
    const int r = sp_sockets_prepare(folder, sizeof folder, e);

    if (r < 0)
        return r;
    sweep();
    if (snprintf(ret, size, "unix://%s/%d.sock", folder, (int)getpid()) >= (int)size)
        return sp_fail(e, SP_E_INVALID, 0, "the path %s is too long for a socket", folder);
    return 0;
}
