/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/binary.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"

#define ANSWER_MS 5000

#ifndef SP_BINDIR /* meson passes the installed one */
#define SP_BINDIR "/usr/local/bin"
#endif

/* Starts `PROGRAM --version` with stdout on `out`, no variables and default signals. */
static int start_version(const char *program, int out, pid_t *ret)
{
    char *const argv[] = {(char *)(uintptr_t) "sallyport", (char *)(uintptr_t) "--version", NULL};
    char *const envp[] = {NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none;
    sigset_t all;
    int r = posix_spawn_file_actions_init(&files);

    if (r != 0)
        return r;
    r = posix_spawnattr_init(&attributes);
    if (r != 0) {
        (void)posix_spawn_file_actions_destroy(&files);
        return r;
    }
    sigemptyset(&none);
    sigfillset(&all);
    if ((r = posix_spawnattr_setsigmask(&attributes, &none)) == 0 &&
        (r = posix_spawnattr_setsigdefault(&attributes, &all)) == 0 &&
        (r = posix_spawnattr_setflags(&attributes,
                                      POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF)) == 0 &&
        (r = posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO)) == 0 &&
        (r = posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0)) ==
            0 &&
        (r = posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0)) ==
            0)
        r = posix_spawn(ret, program, &files, &attributes, argv, envp);
    (void)posix_spawnattr_destroy(&attributes);
    (void)posix_spawn_file_actions_destroy(&files);
    return r;
}

/* Reads until end of file or until `text` is full. false: no end of file within ANSWER_MS. */
static bool read_answer(int in, char *text, size_t size)
{
    const uint64_t until = sp_clock_ms() + ANSWER_MS;
    size_t n = 0;

    for (uint64_t now = sp_clock_ms(); n + 1 < size && now < until; now = sp_clock_ms()) {
        struct pollfd p = {.fd = in, .events = POLLIN};

        if (poll(&p, 1, (int)(until - now)) < 0)
            continue; /* EINTR: a signal for the host */
        const ssize_t got = read(in, text + n, size - 1 - n);
        if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) {
            text[n] = 0;
            return true;
        }
        if (got > 0)
            n += (size_t)got;
    }
    text[n] = 0;
    return false;
}

static int check_version(const char *program, struct sp_err *e)
{
    static const char ours[] = "sallyport " SP_VERSION "\n";
    auto_close int in = -1;
    auto_close int out = -1;
    char text[64];
    int ends[2];
    pid_t pid;

    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "ask %s for its version", program);
    in = ends[0];
    /* Above 2, even if the host has closed 0 to 2: dup2 onto itself would keep O_CLOEXEC. */
    out = fcntl(ends[1], F_DUPFD_CLOEXEC, 3);
    (void)close(ends[1]);
    if (out < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "ask %s for its version", program);
    const int r = start_version(program, out, &pid);
    if (r != 0)
        return sp_fail(e, SP_E_SYSTEM, r, "run %s", program);
    (void)close(TAKE_FD(out));
    if (!read_answer(in, text, sizeof text))
        (void)kill(pid, SIGKILL); /* not reaped yet, so the pid is still its own */
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    if (strcmp(text, ours) == 0)
        return 0;
    text[strcspn(text, "\n")] = 0;
    return sp_fail(
        e, SP_E_INVALID, 0,
        "%s is not of this library's version, %s: it says `%s`. Install both together, or "
        "name the right program (option program, $SALLYPORT_PROGRAM)",
        program, SP_VERSION, text);
}

int sp_binary_find(const char *asked, char **ret, struct sp_err *e)
{
    const char *variable = secure_getenv("SALLYPORT_PROGRAM");
    const char *program = asked != NULL                          ? asked
                          : variable != NULL && variable[0] != 0 ? variable
                                                                 : SP_BINDIR "/sallyport";

    if (strchr(program, '/') == NULL)
        return sp_fail(e, SP_E_INVALID, 0,
                       "the program `%s` must be named by its path, with a slash", program);
    if (access(program, X_OK) < 0)
        return sp_fail(
            e, SP_E_NOT_FOUND, errno,
            "the program that runs commands, %s: install it, or name it (option program, "
            "$SALLYPORT_PROGRAM)",
            program);
    const int r = check_version(program, e);
    if (r < 0)
        return r;
    /* Absolute: it runs later, perhaps from another working directory. */
    *ret = realpath(program, NULL);
    return *ret != NULL ? 0 : sp_fail(e, SP_E_SYSTEM, errno, "find %s", program);
}
