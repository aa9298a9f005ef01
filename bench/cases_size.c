/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cases: memory and size.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "cases.h"
#include "memory.h"
#include "raw.h"
#include "spawn.h"

enum { PTYS = 500, WINDOW = 16, SETTLE_MS = 300, SPARE_PTYS = 64, IDLE_S = 2 };

static const char *const true_argv[] = {"/bin/true", NULL};
static const char *const sleep_argv[] = {"/bin/sleep", "1000", NULL};

/* What a server still does after its last answer is not idle memory. */
static void settle(void)
{
    (void)poll(NULL, 0, SETTLE_MS);
}

/* ---- idle ---- */

static int turn_memory(struct bench *b, struct bench_seat *s, struct sp_err *e)
{
    const struct bench_command cmd = {.argv = true_argv};
    struct bench_memory fresh = {0};
    struct bench_memory used = {0};
    int r = bench_server_start(&s->server, b->command[s->side], NULL, e);

    settle();
    if (r == 0)
        r = bench_memory_of(s->server.kid.pid, &fresh, e);
    if (r == 0)
        r = bench_client_open(s->server.url, BENCH_ACK_NOW, &s->client, e);
    if (r == 0)
        r = bench_seat_run(s, &cmd, e);
    settle();
    if (r == 0)
        r = bench_memory_of(s->server.kid.pid, &used, e);
    if (r == 0) {
        b->report.v[BENCH_M_IDLE_FRESH][s->side] = fresh.pss_bytes;
        b->report.v[BENCH_M_IDLE][s->side] = used.pss_bytes;
        b->report.v[BENCH_M_IDLE_PRIVATE][s->side] = used.private_bytes;
    }
    /* Not later: what both map would be shared between them. */
    bench_client_free(TAKE_PTR(s->client));
    bench_server_stop(&s->server);
    return r;
}

void bench_case_memory(struct bench *b)
{
    const struct bench_case_options o = {.not_yet = true, .no_raw = true};
    struct bench_seat seats[BENCH_SIDES];

    bench_seats_open(b, seats, &o);
    if (b->url != NULL)
        seats[BENCH_OURS].is_on = false; /* we know no process of it */
    bench_take_turns(b, seats, 1, turn_memory);
    bench_seats_close(seats);
}

/* ---- 500 terminals ---- */

static int end_all(struct bench_seat *s, struct sp_err *e)
{
    int asked = 0;
    int replies = 0;
    int closed = 0;
    int64_t id;
    int r = 0;

    while (r == 0 && (replies < PTYS || closed < PTYS)) {
        struct bench_message m;

        if (asked < PTYS && asked - replies < WINDOW) {
            r = bench_client_terminate(s->client, s->procs - (uint64_t)asked++, &id, e);
            continue;
        }
        r = bench_client_next(s->client, &m, e);
        replies += r == 0 && m.kind == BENCH_REPLY;
        closed += r == 0 && m.kind == BENCH_CLOSED;
    }
    if (r < 0)
        (void)sp_wrap(e, "terminate, %d of %d answered, %d closed", replies, PTYS, closed);
    return r;
}

static int ptys_on_server(struct bench *b, struct bench_seat *s, struct sp_err *e)
{
    const struct bench_command once = {.argv = true_argv, .is_tty = true};
    const struct bench_command cmd = {.argv = sleep_argv, .is_tty = true};
    const bool has_memory = s->server.kid.pid > 0; /* not if only a URL is known */
    struct bench_memory before = {0};
    struct bench_memory after = {0};
    int r = bench_seat_run(s, &once, e); /* what the first one needs is not the 500's */

    settle();
    if (r == 0 && has_memory)
        r = bench_memory_of(s->server.kid.pid, &before, e);

    uint64_t begin = bench_now();
    if (r == 0)
        r = bench_seat_start_many(s, &cmd, PTYS, e);
    const double start_took = bench_seconds_since(begin);

    settle();
    if (r == 0 && has_memory)
        r = bench_memory_of(s->server.kid.pid, &after, e);
    if (r < 0)
        return r;
    b->report.v[BENCH_M_PTYS_START][s->side] = start_took;
    if (has_memory) {
        b->report.v[BENCH_M_PTYS_PRIVATE][s->side] =
            (after.private_bytes - before.private_bytes) / PTYS;
        b->report.v[BENCH_M_PTYS_PSS][s->side] = (after.pss_bytes - before.pss_bytes) / PTYS;
    }
    begin = bench_now();
    r = end_all(s, e);
    if (r == 0)
        b->report.v[BENCH_M_PTYS_END][s->side] = bench_seconds_since(begin);
    return r;
}

static int ptys_raw(struct bench *b, struct sp_err *e)
{
    static char path[] = "/bin/sleep";
    static char word[] = "1000";
    static struct bench_raw_child children[PTYS];
    char *const argv[] = {path, word, NULL};
    uint64_t begin = bench_now();
    int started = 0;
    int r = 0;

    for (; r == 0 && started < PTYS && !bench_is_stopped(); started += r == 0) {
        r = bench_raw_start(&children[started], argv, true, e);
        if (r == 0)
            bench_kid_enlist(&children[started].kid, SIGKILL);
    }
    if (r == 0)
        b->report.v[BENCH_M_PTYS_START][BENCH_RAW] = bench_seconds_since(begin);
    settle();
    begin = bench_now();
    for (int i = 0; i < started; i++)
        (void)kill(children[i].kid.pid, SIGKILL); /* ours until it is reaped below */
    for (int i = 0; i < started; i++)
        bench_raw_end(&children[i]);
    if (r == 0)
        b->report.v[BENCH_M_PTYS_END][BENCH_RAW] = bench_seconds_since(begin);
    return r;
}

/* ---- ten thousand idle ones ---- */

/* As many as the kernel has terminals for. */
static int count_terminals(int wanted)
{
    FILE *f = fopen("/proc/sys/kernel/pty/max", "re");
    int max = 0;

    if (f == NULL || fscanf(f, "%d", &max) != 1)
        max = 0;
    if (f != NULL)
        (void)fclose(f);
    return max - SPARE_PTYS < wanted ? max - SPARE_PTYS : wanted;
}

static int turn_idle_10k(struct bench *b, struct bench_seat *s, struct sp_err *e)
{
    const struct bench_command once = {.argv = true_argv, .is_tty = true};
    const struct bench_command cmd = {.argv = sleep_argv, .is_tty = true};
    const int count = count_terminals(b->is_quick ? 1000 : 10000);
    struct bench_memory before = {0};
    struct bench_memory after = {0};
    struct bench_memory later = {0};
    int r = bench_seat_run(s, &once, e);

    settle();
    if (r == 0)
        r = bench_memory_of(s->server.kid.pid, &before, e);
    if (r == 0)
        r = bench_seat_start_many(s, &cmd, count, e);
    settle();
    if (r == 0)
        r = bench_memory_of(s->server.kid.pid, &after, e);
    (void)poll(NULL, 0, IDLE_S * 1000);
    if (r == 0)
        r = bench_memory_of(s->server.kid.pid, &later, e);
    if (r < 0)
        return r;
    b->report.v[BENCH_M_IDLE_10K][s->side] = (after.pss_bytes - before.pss_bytes) / count;
    b->report.v[BENCH_M_IDLE_10K_CPU][s->side] = (later.cpu_seconds - after.cpu_seconds) / IDLE_S;
    return 0;
}

void bench_case_idle_10k(struct bench *b)
{
    static const char *const extra[] = {"--max-processes", "20000", NULL};
    const struct bench_case_options o = {.ack = BENCH_ACK_NOW, .extra = extra, .no_raw = true};
    struct bench_seat seats[BENCH_SIDES];

    if (b->url != NULL)
        return;
    bench_seats_open(b, seats, &o);
    bench_take_turns(b, seats, 1, turn_idle_10k);
    bench_seats_close(seats);
}

/* ---- 500 ---- */

static int turn_ptys(struct bench *b, struct bench_seat *s, struct sp_err *e)
{
    return s->side == BENCH_RAW ? ptys_raw(b, e) : ptys_on_server(b, s, e);
}

void bench_case_ptys(struct bench *b)
{
    const struct bench_case_options o = {.ack = BENCH_ACK_NOW};
    struct bench_seat seats[BENCH_SIDES];

    bench_seats_open(b, seats, &o);
    bench_take_turns(b, seats, 1, turn_ptys);
    bench_seats_close(seats);
}

/* ---- the binary ---- */

static int stripped_size(struct bench *b, enum bench_side side, const char *binary,
                         struct sp_err *e)
{
    char out[4096];
    char from[4096];
    char strip[] = "strip";
    char flag[] = "-o";
    char *const argv[] = {strip, flag, out, from, NULL};
    const struct bench_spawn how = {.argv = argv, .stdio = {-1, -1, -1}, .death_signal = SIGKILL};
    struct bench_kid kid;
    struct stat st = {0};
    int status = 0;

    (void)snprintf(out, sizeof out, "%s/stripped", b->scratch);
    (void)snprintf(from, sizeof from, "%s", binary);
    int r = bench_spawn(&how, &kid, e);
    if (r == 0)
        r = bench_kid_reap(&kid, 60 * BENCH_S, &status, e);
    if (r == 0 && (status != 0 || stat(out, &st) < 0))
        r = sp_fail(e, SP_E_FAILED, 0, "strip %s", binary);
    if (r == 0)
        b->report.v[BENCH_M_SIZE][side] = (double)st.st_size;
    (void)unlink(out);
    return r;
}

/* The file that runs, so that the command line may be a name in PATH. */
static int turn_size(struct bench *b, struct bench_seat *s, struct sp_err *e)
{
    char link[64];
    char path[4096];

    if (s->side == BENCH_OURS && b->binary != NULL)
        return stripped_size(b, s->side, b->binary, e);
    if (s->server.kid.pid <= 0)
        return sp_fail(e, SP_E_STATE, 0, "say which file it is with --binary");
    (void)snprintf(link, sizeof link, "/proc/%d/exe", (int)s->server.kid.pid);

    const ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "look at %s", link);
    path[n] = 0;
    return stripped_size(b, s->side, path, e);
}

void bench_case_size(struct bench *b)
{
    const struct bench_case_options o = {.no_raw = true};
    struct bench_seat seats[BENCH_SIDES];

    bench_seats_open(b, seats, &o);
    bench_take_turns(b, seats, 1, turn_size);
    bench_seats_close(seats);
}
