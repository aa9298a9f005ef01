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

/* ---- the directory ---- */

static void name_directory(char *ret, size_t size)
{
    const char *xdg = getenv("XDG_RUNTIME_DIR");
    struct stat st;

    /* After sudo, XDG_RUNTIME_DIR may be another user's. */
    if (xdg != NULL && xdg[0] == '/' && stat(xdg, &st) == 0 && S_ISDIR(st.st_mode) &&
        st.st_uid == geteuid())
        (void)snprintf(ret, size, "%s/sallyport", xdg);
    else
        sp_runtime_dir(ret, size);
}

/* Its descriptor; -1: missing, or EPERM if others have access. */
static int open_directory(const char *path)
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

/* Makes the directory if necessary. Fails unless it is ours alone. */
static int prepare_directory(char *ret, size_t size, struct sp_err *e)
{
    name_directory(ret, size);
    if (mkdir(ret, 0700) < 0 && errno != EEXIST)
        return sp_fail(e, SP_E_SYSTEM, errno, "make %s", ret);
    auto_close int fd = open_directory(ret);
    if (fd < 0 && errno == EPERM)
        return sp_fail(e, SP_E_INVALID, 0,
                       "%s is not for us alone: give it mode 0700, or remove it", ret);
    return fd < 0 ? sp_fail(e, SP_E_SYSTEM, errno, "open %s", ret) : 0;
}

/* ---- the servers ---- */

/* The PID of "PID.sock"; false: another file. */
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

/* A socket that refuses connections is stale only if its process is gone: otherwise the server may
 * be about to listen. (If another process got the pid of a dead server, its socket stays.) */
static enum state probe_socket(const char *path, pid_t pid)
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

/* NULL: there is no directory of ours. */
static DIR *open_sockets(char *directory, size_t size)
{
    name_directory(directory, size);
    const int fd = open_directory(directory);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);

    if (d == NULL && fd >= 0)
        (void)close(fd);
    return d;
}

/* The next live server; false: no more. Stale sockets are removed. Without `probes_all` only
 * sockets whose process is gone are probed, to remove them. */
static bool next_live(DIR *d, const char *directory, bool probes_all, struct sp_socket *ret)
{
    char path[600];
    const struct dirent *entry;

    while ((entry = readdir(d)) != NULL) {
        if (!read_pid(entry->d_name, &ret->pid) || (!probes_all && !is_dead(ret->pid)))
            continue;
        (void)snprintf(path, sizeof path, "%.500s/%d.sock", directory, (int)ret->pid);
        const enum state state = probe_socket(path, ret->pid);
        if (state == STALE)
            (void)unlinkat(dirfd(d), entry->d_name, 0); /* fails if another process was faster */
        if (state != LIVE)
            continue;
        (void)snprintf(ret->url, sizeof ret->url, "unix://%.120s", path);
        return true;
    }
    return false;
}

unsigned sp_sockets_find(struct sp_socket ret[SP_MAX_SOCKETS])
{
    char directory[512];
    unsigned count = 0;
    DIR *d = open_sockets(directory, sizeof directory);

    if (d == NULL)
        return 0;
    while (count < SP_MAX_SOCKETS && next_live(d, directory, true, &ret[count]))
        count++;
    (void)closedir(d);
    qsort(ret, count, sizeof ret[0], by_pid);
    return count;
}

/* ---- our own socket ---- */

static void remove_stale_sockets(void)
{
    struct sp_socket other;
    char directory[512];
    DIR *d = open_sockets(directory, sizeof directory);

    if (d == NULL)
        return;
    while (next_live(d, directory, false, &other))
        continue;
    (void)closedir(d);
}

int sp_sockets_own_url(char *ret, size_t size, struct sp_err *e)
{
    char directory[512];
    const int r = prepare_directory(directory, sizeof directory, e);

    if (r < 0)
        return r;
    remove_stale_sockets();
    if (snprintf(ret, size, "unix://%s/%d.sock", directory, (int)getpid()) >= (int)size)
        return sp_fail(e, SP_E_INVALID, 0, "the path %s is too long for a socket", directory);
    return 0;
}
