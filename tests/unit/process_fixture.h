/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process_fixture: for tests with children and descriptors. Every wait has a deadline, and what a
 * test leaves behind is counted.
 */
#ifndef SP_PROCESS_FIXTURE_H
#define SP_PROCESS_FIXTURE_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "test.h"

#define DEADLINE_MS 20000 /* far more than anything takes, also under a sanitizer */

/* In a child, where cmocka's asserts would jump into the parent's story. */
#define CHILD_CHECK(condition)                                                      \
    do {                                                                            \
        if (!(condition)) {                                                         \
            (void)dprintf(2, "%s:%d: child: %s\n", __FILE__, __LINE__, #condition); \
            _exit(99);                                                              \
        }                                                                           \
    } while (0)

static inline uint64_t test_now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static inline int open_fds(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = -1; /* the directory's own */

    assert_non_null(d);
    for (const struct dirent *entry; (entry = readdir(d)) != NULL;)
        n += entry->d_name[0] != '.';
    (void)closedir(d);
    return n;
}

static inline void assert_no_children(void)
{
    siginfo_t info = {0};

    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0)
        fail_msg("a child is left: pid %d (0: it runs)", (int)info.si_pid);
    assert_int_equal(errno, ECHILD);
}

/*
 * For a subreaper, whose children are what got away from others: those that are dead or dying are
 * reaped, one that lives on is killed and told of.
 */
static inline bool bury_children(int deadline_ms)
{
    const uint64_t until = test_now_ms() + (uint64_t)deadline_ms;
    bool is_fine = true;
    char path[64];

    (void)snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    for (;;) {
        const pid_t pid = waitpid(-1, NULL, WNOHANG);

        if (pid > 0)
            continue;
        if (pid < 0 && errno == ECHILD)
            return is_fine;
        if (test_now_ms() >= until) {
            FILE *f = fopen(path, "re");
            int left;

            is_fine = false;
            while (f != NULL && fscanf(f, "%d", &left) == 1)
                (void)kill(left, SIGKILL);
            if (f != NULL)
                (void)fclose(f);
        }
        (void)poll(NULL, 0, 1); /* the dying are no event */
    }
}

static inline bool wait_fd(int fd, short events, int deadline_ms)
{
    struct pollfd p = {.fd = fd, .events = events};
    const uint64_t until = test_now_ms() + (uint64_t)deadline_ms;

    for (;;) {
        const uint64_t now = test_now_ms();
        const int r = poll(&p, 1, now < until ? (int)(until - now) : 0);

        if (r > 0)
            return true;
        if (r == 0 || errno != EINTR)
            return false;
    }
}

/* Reads until nobody holds the other end, which is how a test knows that a whole tree is gone. */
static inline bool read_to_end(int fd, char *text, size_t size, size_t *ret_len, int deadline_ms)
{
    const uint64_t until = test_now_ms() + (uint64_t)deadline_ms;
    size_t len = 0;
    char rest[4096];

    for (;;) {
        const uint64_t now = test_now_ms();

        if (!wait_fd(fd, POLLIN, now < until ? (int)(until - now) : 0))
            return false;
        const size_t room = text != NULL && len + 1 < size ? size - 1 - len : 0;
        const ssize_t n = room != 0 ? read(fd, text + len, room) : read(fd, rest, sizeof rest);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (n <= 0)
            break;
        len += room != 0 ? (size_t)n : 0;
    }
    if (text != NULL)
        text[len] = 0;
    if (ret_len != NULL)
        *ret_len = len;
    return true;
}

/* Reads up to and with the text, which must come. */
static inline bool read_until(int fd, char *text, size_t size, const char *what, int deadline_ms)
{
    const uint64_t until = test_now_ms() + (uint64_t)deadline_ms;
    size_t len = 0;

    for (;;) {
        const uint64_t now = test_now_ms();

        text[len] = 0;
        if (strstr(text, what) != NULL)
            return true;
        if (len + 1 == size || !wait_fd(fd, POLLIN, now < until ? (int)(until - now) : 0))
            return false;
        const ssize_t n = read(fd, text + len, size - 1 - len);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (n <= 0)
            return false;
        len += (size_t)n;
    }
}

/* The child's exit status, or 128 + signal; one that does not end in time is killed: -1. */
static inline int reap(pid_t pid, int deadline_ms)
{
    const int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    int status = 0;
    bool is_late = false;

    assert_true(pidfd >= 0);
    if (!wait_fd(pidfd, POLLIN, deadline_ms)) {
        is_late = true;
        (void)kill(pid, SIGKILL);
    }
    (void)close(pidfd);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (is_late)
        return -1;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

#endif
