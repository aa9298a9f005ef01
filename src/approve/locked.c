/* SPDX-License-Identifier: Apache-2.0 */
#include "approve/locked.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "os/fd.h"

#define TRIES    8 /* should it be replaced while we wait, again and again */
#define PAUSE_MS 2

static long now_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Whoever can read a file can lock it, a confined command, too: nobody is waited for without end.
 */
static int lock(int fd, int how, long deadline)
{
    const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000L};

    while (flock(fd, how | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return -errno;
        if (now_ms() >= deadline)
            return -EAGAIN;
        (void)nanosleep(&pause, NULL);
    }
    return 0;
}

static bool is_in_place(int dir, const char *name, const struct stat *seen)
{
    struct stat st;

    return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_ino == seen->st_ino &&
           st.st_dev == seen->st_dev;
}

/* *ret: the descriptor; untouched, and 0 returned, if another file took its place meanwhile. */
static int try_open(int dir, const char *name, long deadline, int *ret)
{
    const int flags = O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    auto_close int fd = sp_fd_lift(openat(dir, name, flags, 0600));
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    const int r = lock(fd, LOCK_EX, deadline);
    if (r == 0 && is_in_place(dir, name, &st))
        *ret = TAKE_FD(fd);
    return r;
}

int sp_locked_open(int dir, const char *name)
{
    const long deadline = now_ms() + SP_LOCKED_WAIT_MS;
    int fd = -1;

    for (int i = 0; i < TRIES; i++) {
        const int r = try_open(dir, name, deadline, &fd);

        if (r < 0)
            return r;
        if (fd >= 0)
            return fd;
    }
    return -EAGAIN;
}

void sp_locked_share(int fd)
{
    (void)lock(fd, LOCK_SH, now_ms() + SP_LOCKED_WAIT_MS); /* without it, we read what is there */
}
