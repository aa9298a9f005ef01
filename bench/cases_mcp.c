/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cases: MCP: what a host waits for a command, from the line that asks to the line that answers.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "cases.h"
#include "raw.h"
#include "spawn.h"

enum { WARM = 20, DEADLINE_MS = 60000, LINE_MAX_BYTES = 65536 };

struct host {
    struct bench_kid kid;
    int to, from; /* -1: not there */
    char line[LINE_MAX_BYTES];
};

/* ---- the server ---- */

static int start(struct host *h, const char *program, const char *directory, struct sp_err *e)
{
    char home[4200];
    char path[] = "PATH=/usr/local/bin:/usr/bin:/bin";
    char *const argv[] = {(char *)(uintptr_t)program, (char *)(uintptr_t) "mcp",
                          (char *)(uintptr_t) "--cwd", (char *)(uintptr_t)directory, NULL};
    char *const envp[] = {path, home, NULL};
    int to[2];
    int from[2];

    (void)snprintf(home, sizeof home, "SALLYPORT_HOME=%s/home", directory);
    if (pipe2(to, O_CLOEXEC) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "make a pipe");
    if (pipe2(from, O_CLOEXEC) < 0) {
        (void)close(to[0]);
        (void)close(to[1]);
        return sp_fail(e, SP_E_SYSTEM, errno, "make a pipe");
    }
    const struct bench_spawn s = {
        .argv = argv, .envp = envp, .stdio = {to[0], from[1], -1}, .death_signal = SIGTERM};
    const int r = bench_spawn(&s, &h->kid, e);
    (void)close(to[0]);
    (void)close(from[1]);
    h->to = to[1];
    h->from = from[0];
    if (r == 0)
        bench_kid_enlist(&h->kid, SIGTERM);
    return r;
}

static void end(struct host *h)
{
    if (h->to >= 0)
        (void)close(TAKE_FD(h->to));
    if (h->kid.pid != 0)
        bench_kid_end(&h->kid, SIGTERM);
    if (h->from >= 0)
        (void)close(TAKE_FD(h->from));
}

/* ---- asking it ---- */

static int read_line(struct host *h, struct sp_err *e)
{
    size_t n = 0;

    do {
        struct pollfd p = {.fd = h->from, .events = POLLIN};

        if (n + 1 >= sizeof h->line || poll(&p, 1, DEADLINE_MS) <= 0)
            return sp_fail(e, SP_E_FAILED, 0, "no answer to tools/call");
        const ssize_t got = read(h->from, h->line + n, sizeof h->line - 1 - n);
        if (got <= 0)
            return sp_fail(e, SP_E_FAILED, 0, "sallyport mcp has ended");
        n += (size_t)got;
    } while (h->line[n - 1] != '\n');
    h->line[n] = 0;
    return 0;
}

static int call_true(struct host *h, struct sp_err *e)
{
    static const char request[] =
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":"
        "\"exec_command\",\"arguments\":{\"argv\":[\"/bin/true\"]},\"_meta\":{"
        "\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\","
        "\"io.modelcontextprotocol/clientCapabilities\":{}}}}\n";

    if (write(h->to, request, sizeof request - 1) != (ssize_t)sizeof request - 1)
        return sp_fail(e, SP_E_SYSTEM, errno, "ask sallyport mcp");
    const int r = read_line(h, e);
    if (r < 0)
        return r;
    return strstr(h->line, "\"exit_code\":0") != NULL
               ? 0
               : sp_fail(e, SP_E_FAILED, 0, "not the answer to tools/call: %.200s", h->line);
}

/* ---- measuring ---- */

static int turn(struct bench *b, struct host *h, struct bench_samples *s, struct sp_err *e)
{
    int r = 0;

    for (int i = 0; r == 0 && s->n == 0 && i < WARM; i++)
        r = h != NULL ? call_true(h, e) : bench_raw_true(false, e);
    const uint64_t until = bench_now() + b->turn_ns;
    while (r == 0 && s->n < b->max_starts && bench_now() < until) {
        const uint64_t begin = bench_now();

        r = h != NULL ? call_true(h, e) : bench_raw_true(false, e);
        bench_samples_add(s, bench_seconds_since(begin));
    }
    bench_samples_turn(s);
    return r;
}

static int find_program(struct bench *b, char *ret, size_t size, struct sp_err *e)
{
    const struct bench_case_options o = {.ack = BENCH_ACK_NOW};
    struct bench_seat server = {0};
    int r = bench_seat_open(b, &server, BENCH_OURS, &o, e);

    if (r < 0)
        return r;
    r = bench_seat_program(&server, ret, size, e);
    bench_seat_close(&server);
    return r;
}

static int measure(struct bench *b, struct host *h, struct bench_samples samples[2],
                   struct sp_err *e)
{
    char program[4096];
    char directory[4096];
    int r = find_program(b, program, sizeof program, e);

    if (r < 0)
        return r;
    (void)snprintf(directory, sizeof directory, "%s/mcp", b->scratch);
    if (mkdir(directory, 0700) < 0 && errno != EEXIST)
        return sp_fail(e, SP_E_SYSTEM, errno, "make %s", directory);
    r = start(h, program, directory, e);
    for (int k = 0; r == 0 && k < b->rounds && !bench_is_stopped(); k++) {
        r = turn(b, h, &samples[0], e);
        if (r == 0)
            r = turn(b, NULL, &samples[1], e);
    }
    return r;
}

void bench_case_mcp(struct bench *b)
{
    struct bench_samples samples[2] = {0};
    struct host *h = calloc(1, sizeof *h);
    struct sp_err e = {0};

    if (h == NULL || b->command[BENCH_OURS] == NULL) {
        free(h);
        return;
    }
    h->to = h->from = -1;
    if (measure(b, h, samples, &e) < 0) {
        bench_seat_drop(b, &(struct bench_seat){.side = BENCH_OURS}, &e);
    } else {
        b->report.v[BENCH_M_MCP_P50][BENCH_OURS] = bench_samples_middle(&samples[0]);
        b->report.v[BENCH_M_MCP_P99][BENCH_OURS] = bench_samples_at(&samples[0], 0.99);
        b->report.v[BENCH_M_MCP_P50][BENCH_RAW] = bench_samples_middle(&samples[1]);
        b->report.v[BENCH_M_MCP_P99][BENCH_RAW] = bench_samples_at(&samples[1], 0.99);
    }
    end(h);
    free(h);
    bench_samples_done(&samples[0]);
    bench_samples_done(&samples[1]);
}
