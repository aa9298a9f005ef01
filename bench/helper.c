/* SPDX-License-Identifier: Apache-2.0 */
#include "helper.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "network_load.h"
#include "pattern.h"

enum { LIFE_S = 300, STDIO_BUFFER = 4096 };

static bool write_all(const char *p, size_t n)
{
    while (n > 0) {
        const ssize_t w = write(STDOUT_FILENO, p, n);

        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0)
            return false;
        p += w;
        n -= (size_t)w;
    }
    return true;
}

static int echo(void)
{
    struct termios t;
    char buf[4096];
    ssize_t n = 1;

    if (tcgetattr(STDIN_FILENO, &t) == 0) {
        cfmakeraw(&t);
        if (tcsetattr(STDIN_FILENO, TCSANOW, &t) < 0)
            return 1;
    }
    for (buf[0] = 'R'; n > 0 && write_all(buf, (size_t)n);)
        n = read(STDIN_FILENO, buf, sizeof buf);
    return 0;
}

static int flood(uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes;) {
        const uint64_t n = bytes - at < BENCH_BLOCK ? bytes - at : BENCH_BLOCK;

        if (!write_all(bench_pattern_at(at), n))
            return 1;
        at += n;
    }
    return 0;
}

/* So many lines with every write. */
static int lines(uint64_t count, uint64_t together)
{
    for (uint64_t i = 0; i < count;) {
        const uint64_t n = count - i < together ? count - i : together;

        if (!write_all(bench_pattern_at(i * BENCH_LINE), n * BENCH_LINE))
            return 1;
        i += n;
    }
    return 0;
}

int bench_helper_main(int argc, char **argv)
{
    const char *part = argc > 0 ? argv[0] : "";
    uint64_t n = 0;

    (void)alarm(LIFE_S);
    if (strcmp(part, "echo") == 0)
        return echo();
    if (strcmp(part, "relay") == 0)
        return bench_relay(false, false);
    if (strcmp(part, "relay2") == 0)
        return bench_relay(false, true);
    if (strcmp(part, "relay2_tty") == 0)
        return bench_relay(true, true);
    if (strcmp(part, "respond") == 0)
        return bench_respond();
    if (strcmp(part, "files") == 0)
        return bench_respond_files();
    if (strcmp(part, "network-server") == 0)
        return bench_network_server();
    if (strcmp(part, "network") == 0)
        return bench_network_client(argc - 1, argv + 1);
    if (argc == 2 && sp_str_to_u64(sp_str_of(argv[1]), UINT64_MAX / 2, &n)) {
        if (strcmp(part, "flood") == 0)
            return flood(n);
        if (strcmp(part, "lines") == 0)
            return lines(n, 1);
        if (strcmp(part, "print") == 0)
            return lines(n, STDIO_BUFFER / BENCH_LINE);
    }
    (void)fprintf(stderr, "sallyport-bench: no such helper: %s\n", part);
    return 2;
}
