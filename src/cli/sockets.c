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

/* ---- the servers ---- */

static bool is_dead(pid_t pid)
{
    return kill(pid, 0) < 0 && errno == ESRCH;
}

static int by_pid(const void *a, const void *b)
{
    const pid_t x = ((const struct sp_socket *)a)->pid;
    const pid_t y = ((const struct sp_socket *)b)->pid;

    return (x > y) - (x < y);
}

/* A server listens there. */
static bool accepts(const char *path)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0 || strlen(path) >= sizeof un.sun_path) {
        errno = EINVAL;
        return false;
    }
    memcpy(un.sun_path, path, strlen(path) + 1);
    return connect(fd, (const struct sockaddr *)&un, sizeof un) == 0 || errno == EAGAIN;
}

/* Finds live servers, and removes stale sockets. ret NULL: only looks at sockets whose process is
 * gone, to remove them. */
static unsigned look_at_sockets(struct sp_socket *ret)
{
    char directory[512];
    char path[600];
    const struct dirent *entry;
    unsigned count = 0;
    uint64_t pid;

    name_directory(directory, sizeof directory);
    const int fd = open_directory(directory);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (d == NULL && fd >= 0)
        (void)close(fd);
    while (d != NULL && count < SP_MAX_SOCKETS && (entry = readdir(d)) != NULL) {
        const size_t n = strlen(entry->d_name);

        if (n < 6 || strcmp(entry->d_name + n - 5, ".sock") != 0 ||
            !sp_str_to_u64((struct sp_str){entry->d_name, n - 5}, INT32_MAX, &pid) || pid == 0 ||
            (ret == NULL && !is_dead((pid_t)pid)))
            continue;
        (void)snprintf(path, sizeof path, "%.500s/%d.sock", directory, (int)pid);
        if (accepts(path)) {
            if (ret == NULL)
                continue;
            ret[count].pid = (pid_t)pid;
            (void)snprintf(ret[count].url, sizeof ret[count].url, "unix://%.120s", path);
            count++;
        } else if (errno == ECONNREFUSED && is_dead((pid_t)pid)) {
            /* A live process may be about to listen. (If another process got the pid of a dead
             * server, its socket stays.) Fails if another process was faster. */
            (void)unlinkat(dirfd(d), entry->d_name, 0);
        }
    }
    if (d != NULL)
        (void)closedir(d);
    return count;
}

unsigned sp_sockets_find(struct sp_socket ret[SP_MAX_SOCKETS])
{
    const unsigned count = look_at_sockets(ret);

    qsort(ret, count, sizeof ret[0], by_pid);
    return count;
}

int sp_sockets_own_url(char *ret, size_t size, struct sp_err *e)
{
    char directory[512];

    name_directory(directory, sizeof directory);
    if (mkdir(directory, 0700) < 0 && errno != EEXIST)
        return sp_fail(e, SP_E_SYSTEM, errno, "make %s", directory);
    auto_close int fd = open_directory(directory);
    if (fd < 0 && errno == EPERM)
        return sp_fail(e, SP_E_INVALID, 0,
                       "%s is not for us alone: give it mode 0700, or remove it", directory);
    if (fd < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "open %s", directory);
    (void)look_at_sockets(NULL);
    if (snprintf(ret, size, "unix://%s/%d.sock", directory, (int)getpid()) >= (int)size)
        return sp_fail(e, SP_E_INVALID, 0, "the path %s is too long for a socket", directory);
    return 0;
}
