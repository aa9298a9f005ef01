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
#include "base/str.h"
#include "core/placeholder.h"

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

int sp_sockets_prepare(char *ret, size_t size, struct sp_error *e)
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

int sp_sockets_own_url(char *ret, size_t size, struct sp_error *e)
{
    char folder[512];
    const int r = sp_sockets_prepare(folder, sizeof folder, e);

    if (r < 0)
        return r;
    if (snprintf(ret, size, "unix://%s/%d.sock", folder, (int)getpid()) >= (int)size)
        return sp_fail(e, SP_E_INVALID, 0, "the path %s is too long for a socket", folder);
    return 0;
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
    const bool is_refused = errno == ECONNREFUSED;
    return is_refused && kill(pid, 0) < 0 && errno == ESRCH ? STALE : SILENT;
}

static int by_pid(const void *a, const void *b)
{
    const pid_t x = ((const struct sp_socket *)a)->pid;
    const pid_t y = ((const struct sp_socket *)b)->pid;

    return (x > y) - (x < y);
}

unsigned sp_sockets_find(struct sp_socket ret[SP_MAX_SOCKETS])
{
    char folder[512];
    char path[sizeof folder + 32];
    unsigned count = 0;
    const struct dirent *entry;
    pid_t pid;

    name_folder(folder, sizeof folder);
    const int fd = open_folder(folder);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (d == NULL) {
        if (fd >= 0)
            (void)close(fd);
        return 0;
    }
    while (count < SP_MAX_SOCKETS && (entry = readdir(d)) != NULL) {
        if (!read_pid(entry->d_name, &pid))
            continue;
        (void)snprintf(path, sizeof path, "%s/%d.sock", folder, (int)pid);
        const enum state state = look_at(path, pid);
        if (state == STALE)
            (void)unlinkat(dirfd(d), entry->d_name, 0); /* or somebody else does */
        if (state != LIVE)
            continue;
        ret[count].pid = pid;
        (void)snprintf(ret[count].url, sizeof ret[count].url, "unix://%.120s", path);
        count++;
    }
    (void)closedir(d);
    qsort(ret, count, sizeof ret[0], by_pid);
    return count;
}
