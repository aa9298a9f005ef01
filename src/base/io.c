/* SPDX-License-Identifier: Apache-2.0 */
#include "base/io.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"

#define CHUNK 65536

int sp_read_all(int fd, size_t max, struct sp_buf *ret)
{
    size_t total = 0;

    for (;;) {
        char *room = sp_buf_room(ret, CHUNK);
        if (room == NULL)
            return ENOMEM;

        const ssize_t n = read(fd, room, CHUNK);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno;
        if (n == 0)
            return 0;
        ret->len += (size_t)n;
        total += (size_t)n;
        if (total > max)
            return EFBIG;
    }
}

int sp_read_file(const char *path, size_t max, struct sp_buf *ret)
{
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return errno;
    if (!S_ISREG(st.st_mode))
        return S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
    return sp_read_all(fd, max, ret);
}

ssize_t sp_read_text(char *text, size_t size, const char *path, ...)
{
    char name[600];
    size_t len = 0;
    ssize_t n = -1;
    va_list args;

    va_start(args, path);
    const int name_len = vsnprintf(name, sizeof name, path, args);
    va_end(args);
    assert(name_len >= 0 && (size_t)name_len < sizeof name);
    auto_close int fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    while (len < size - 1 && (n = read(fd, text + len, size - 1 - len)) > 0)
        len += (size_t)n;
    text[len] = 0;
    return n < 0 && len == 0 ? -1 : (ssize_t)len;
}

int sp_write_all(int fd, const void *bytes, size_t n)
{
    const char *p = bytes;

    while (n > 0) {
        const ssize_t done = write(fd, p, n);

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return done < 0 ? errno : EIO;
        p += done;
        n -= (size_t)done;
    }
    return 0;
}

ssize_t sp_write_no_sigpipe(int fd, const void *bytes, size_t n)
{
    const struct timespec now = {0};
    sigset_t pipe;
    sigset_t old;
    sigset_t pending;

    (void)sigemptyset(&pipe);
    (void)sigaddset(&pipe, SIGPIPE);
    (void)pthread_sigmask(SIG_BLOCK, &pipe, &old);
    const bool was_pending = sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1;
    const ssize_t r = write(fd, bytes, n);
    const int err = errno;
    /* Consume the signal of this write, but not one that was pending before. */
    if (r < 0 && err == EPIPE && !was_pending)
        while (sigtimedwait(&pipe, NULL, &now) < 0 && errno == EINTR)
            continue;
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    errno = err;
    return r;
}

int sp_check_owner(const struct stat *st, const char *path, struct sp_err *e)
{
    if (st->st_uid == geteuid() || st->st_uid == 0)
        return 0;
    return sp_fail(e, SP_E_INVALID, 0,
                   "%s: belongs to user %u, so it is not trusted; it must belong to you or to root",
                   path, (unsigned)st->st_uid);
}

int sp_check_trusted(const struct stat *st, const char *path, struct sp_err *e)
{
    const int r = sp_check_owner(st, path, e);

    if (r < 0 || (st->st_mode & (S_IWGRP | S_IWOTH)) == 0)
        return r;
    return sp_fail(e, SP_E_INVALID, 0,
                   "%s: others may write it (mode %04o), so it is not trusted; chmod go-w it", path,
                   (unsigned)st->st_mode & 07777);
}
