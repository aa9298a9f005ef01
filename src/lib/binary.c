/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/binary.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/child.h"
#include "base/clock.h"

#define ANSWER_MS 5000

#ifndef SP_BINDIR /* meson passes the installed one */
#define SP_BINDIR "/usr/local/bin"
#endif

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
    static const char *const argv[] = {"sallyport", "--version", NULL};
    char *const no_env[] = {NULL};
    struct sp_child child;
    char text[64];
    int ends[2];
    int status;

    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "ask %s for its version", program);
    auto_close int in = ends[0];
    const int r = sp_child_start(&child, program, argv, no_env,
                                 (int[]){SP_CHILD_NULL, ends[1], SP_CHILD_NULL});
    (void)close(ends[1]);
    if (r != 0)
        return sp_fail(e, SP_E_SYSTEM, r, "run %s", program);
    if (!read_answer(in, text, sizeof text))
        sp_child_signal(&child, SIGKILL);
    (void)sp_child_reap(&child, true, &status);
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
