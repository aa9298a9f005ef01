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
#include "base/clock.h"
#include "os/fd.h"

#define TRIES    8 /* in case the file is replaced while we wait for the lock */
#define PAUSE_MS 2

/* Any process that can read a file can lock it, confined commands included, so waiting has a
 * limit. */
static int lock(int fd, int how, uint64_t deadline)
{
    const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000L};

    while (flock(fd, how | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return -errno;
        if (sp_clock_ms() >= deadline)
            return -EAGAIN;
        (void)nanosleep(&pause, NULL);
    }
    return 0;
}

/* Sets *ret to the locked descriptor, unless the file was replaced while we waited. 0 or -errno. */
static int try_open(int dir, const char *name, uint64_t deadline, int *ret)
{
    const int flags = O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    auto_close int fd = sp_fd_lift(openat(dir, name, flags, 0600));
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    const int r = lock(fd, LOCK_EX, deadline);
    struct stat now;
    if (r == 0 && fstatat(dir, name, &now, AT_SYMLINK_NOFOLLOW) == 0 && now.st_ino == st.st_ino &&
        now.st_dev == st.st_dev)
        *ret = TAKE_FD(fd);
    return r;
}

int sp_locked_open(int dir, const char *name)
{
    const uint64_t deadline = sp_clock_ms() + SP_LOCKED_WAIT_MS;
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
    (void)lock(fd, LOCK_SH,
               sp_clock_ms() + SP_LOCKED_WAIT_MS); /* without the lock, read the file as it is */
}
