/* SPDX-License-Identifier: Apache-2.0 */
#include "server/net/own_sockets.h"

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

static bool is_dead(pid_t pid)
{
    return kill(pid, 0) < 0 && errno == ESRCH;
}

static int by_name(const void *a, const void *b)
{
    return strverscmp(((const struct sp_own_socket *)a)->name,
                      ((const struct sp_own_socket *)b)->name);
}

/* NAME of NAME.sock: letters, digits, - and _. */
static bool read_name(const char *file, char ret[64])
{
    const size_t n = strlen(file);

    if (n < 6 || n - 5 >= 64 || strcmp(file + n - 5, ".sock") != 0)
        return false;
    memcpy(ret, file, n - 5);
    ret[n - 5] = 0;
    return strspn(ret, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == n - 5;
}

/* A server listens there; its pid. */
static bool accepts(const char *path, pid_t *ret_pid)
{
    struct ucred peer = {0};
    socklen_t len = sizeof peer;
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0 || strlen(path) >= sizeof un.sun_path) {
        errno = EINVAL;
        return false;
    }
    memcpy(un.sun_path, path, strlen(path) + 1);
    *ret_pid = 0;
    if (connect(fd, (const struct sockaddr *)&un, sizeof un) < 0)
        return errno == EAGAIN;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0)
        *ret_pid = peer.pid;
    return true;
}

unsigned sp_own_sockets_find(struct sp_own_socket *ret)
{
    char directory[512];
    char path[600];
    char name[64];
    const struct dirent *entry;
    unsigned count = 0;
    uint64_t pid = 0;
    pid_t listener = 0;

    name_directory(directory, sizeof directory);
    const int fd = open_directory(directory);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (d == NULL && fd >= 0)
        (void)close(fd);
    while (d != NULL && count < SP_OWN_SOCKETS_MAX && (entry = readdir(d)) != NULL) {
        if (!read_name(entry->d_name, name))
            continue;
        const bool is_pid = sp_str_to_u64(sp_str_of(name), INT32_MAX, &pid) && pid != 0;
        const bool is_stale = is_pid && is_dead((pid_t)pid);

        if (ret == NULL && !is_stale)
            continue;
        (void)snprintf(path, sizeof path, "%.500s/%s.sock", directory, name);
        if (accepts(path, &listener)) {
            if (ret == NULL)
                continue;
            memcpy(ret[count].name, name, sizeof name);
            ret[count].pid = listener;
            (void)snprintf(ret[count].url, sizeof ret[count].url, "unix://%.120s", path);
            count++;
        } else if (errno == ECONNREFUSED && is_stale) {
            /* A live process may be about to listen. (If another process got the pid of a dead
             * server, its socket stays.) Fails if another process was faster. */
            (void)unlinkat(dirfd(d), entry->d_name, 0);
        }
    }
    if (d != NULL)
        (void)closedir(d);
    if (count > 1)
        qsort(ret, count, sizeof ret[0], by_name);
    return count;
}

bool sp_own_socket_named(const char *name, struct sp_own_socket *ret)
{
    auto_free struct sp_own_socket *found = calloc(SP_OWN_SOCKETS_MAX, sizeof *found);
    const unsigned count = found == NULL ? 0 : sp_own_sockets_find(found);
    const char *slash = strchr(name, '/');
    const char *word = slash != NULL ? slash + 1 : name;

    if (strncmp(name, "user:", 5) == 0)
        word = name + 5;
    for (unsigned i = 0; i < count; i++)
        if (strcmp(found[i].name, word) == 0) {
            *ret = found[i];
            return true;
        }
    return false;
}

int sp_own_socket_path(const char *name, char *ret, size_t size, struct sp_err *e)
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
    if (snprintf(ret, size, "%s/%s.sock", directory, name) >= (int)size)
        return sp_fail(e, SP_E_INVALID, 0, "the path %s is too long for a socket", directory);
    return 0;
}

int sp_own_socket_url(pid_t pid, char *ret, size_t size, struct sp_err *e)
{
    char path[600];
    char name[32];

    (void)snprintf(name, sizeof name, "%d", (int)(pid != 0 ? pid : getpid()));
    const int r = sp_own_socket_path(name, path, sizeof path, e);
    if (r < 0)
        return r;
    (void)sp_own_sockets_find(NULL);
    if (snprintf(ret, size, "unix://%s", path) >= (int)size)
        return sp_fail(e, SP_E_INVALID, 0, "the path %s is too long for a socket", path);
    return 0;
}
