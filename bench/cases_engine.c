/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cases: the engine, in this program, with cells of ours: what a model's call costs beyond the
 * process itself.
 */
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "cases.h"
#include "engine/local.h"
#include "engine/manager.h"
#include "raw.h"
#include "spawn.h"

enum { WARM = 20, DEADLINE_MS = 60000 };

struct engine {
    struct sp_loop *loop;
    struct sp_backend *backend;
    struct sp_manager *manager;
    struct sp_timer deadline;
    bool is_answered;
    enum sp_fault fault;
    int process_id;
    int exit_code; /* -1: it lives */
};

/* ---- the engine ---- */

static void on_deadline(struct sp_timer *t)
{
    sp_loop_stop(SP_CONTAINER(t, struct engine, deadline)->loop);
}

static void on_reply(void *user, const struct sp_reply *r)
{
    struct engine *g = user;

    g->is_answered = true;
    g->fault = r->fault;
    g->process_id = r->process_id;
    g->exit_code = r->answer.fate == SP_ANSWER_EXITED ? r->answer.exit_code : -1;
    sp_loop_stop(g->loop);
}

static void engine_close(struct engine *g)
{
    sp_manager_free(g->manager);
    sp_backend_free(g->backend);
    sp_loop_free(g->loop);
    *g = (struct engine){0};
}

/* Closed again in any case. */
static int engine_open(struct engine *g, const char *program, struct sp_err *e)
{
    const struct sp_local_options local = {.program = program, .cwd = "/"};
    struct sp_environment_spec place = {.id = "local", .cwd = "/"};
    const struct sp_env_request environment = {
        .own = environ,
        .policy = {.inherit = SP_ENV_ALL, .ignores_default_excludes = true},
        .plain = sp_env_plain};
    static const struct sp_manager_ops ops;

    *g = (struct engine){0};
    int r = sp_loop_new(&g->loop, e);
    if (r == 0)
        r = sp_local_new(g->loop, &local, &g->backend, e);
    if (r == 0) {
        place.backend = g->backend;
        const struct sp_manager_options o = {.loop = g->loop,
                                             .environments = &place,
                                             .environment_count = 1,
                                             .ops = &ops,
                                             .approvals.policy.kind = SP_APPROVAL_NEVER,
                                             .environ = &environment};
        r = sp_manager_new(&o, &g->manager, e);
    }
    return r;
}

/* Until the call that was begun is answered. */
static int await(struct engine *g, struct sp_err *e)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    const uint64_t now_ms = (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
    if (!sp_loop_timer(g->loop, &g->deadline, now_ms + DEADLINE_MS, on_deadline))
        return sp_fail(e, SP_E_LIMIT, 0, "no memory");
    const int r = sp_loop_run(g->loop, e);
    sp_loop_cancel(g->loop, &g->deadline);
    if (r < 0)
        return r;
    if (!g->is_answered)
        return sp_fail(e, SP_E_FAILED, 0, "a call was not answered within %d s",
                       DEADLINE_MS / 1000);
    return g->fault == SP_FAULT_NONE ? 0 : sp_fail(e, SP_E_FAILED, 0, "a call failed");
}

static int exec_command(struct engine *g, const struct sp_str *argv, uint32_t argc,
                        uint64_t yield_ms, struct sp_err *e)
{
    const struct sp_exec_request ask = {
        .call_id = SP_STR("bench"),
        .argv = argv,
        .argc = argc,
        .yield = {.has_yield_time = true, .yield_time_ms = yield_ms}};
    uint64_t call;

    g->is_answered = false;
    const int r = sp_manager_exec(g->manager, &ask, on_reply, g, &call, e);
    return r < 0 ? r : await(g, e);
}

static int exec_true(struct engine *g, struct sp_err *e)
{
    const struct sp_str argv[] = {SP_STR("/bin/true")};
    const int r = exec_command(g, argv, 1, 30000, e);

    if (r == 0 && g->exit_code != 0)
        return sp_fail(e, SP_E_FAILED, 0, "/bin/true ended with %d", g->exit_code);
    return r;
}

/* ---- exec_command of true ---- */

enum { ENGINE, SERVER, KERNEL, PARTIES };

static int once(int party, struct engine *g, struct bench_seat *seat, struct sp_err *e)
{
    static const char *const argv[] = {"/bin/true", NULL};
    static const struct bench_command cmd = {.argv = argv};

    if (party == ENGINE)
        return exec_true(g, e);
    return party == SERVER ? bench_seat_run(seat, &cmd, e) : bench_raw_true(false, e);
}

static int turn(struct bench *b, int party, struct engine *g, struct bench_seat *seat,
                struct sp_err *e)
{
    int r = 0;

    for (int i = 0; r == 0 && seat->samples.n == 0 && i < WARM; i++)
        r = once(party, g, seat, e);
    const uint64_t end = bench_now() + b->turn_ns;
    while (r == 0 && seat->samples.n < b->max_starts && bench_now() < end) {
        const uint64_t begin = bench_now();

        r = once(party, g, seat, e);
        bench_samples_add(&seat->samples, bench_seconds_since(begin));
    }
    bench_samples_turn(&seat->samples);
    return r;
}

static void report_exec(struct bench *b, struct bench_seat seats[PARTIES])
{
    struct bench_report *r = &b->report;

    r->v[BENCH_M_EXEC_P50][BENCH_OURS] = bench_samples_middle(&seats[ENGINE].samples);
    r->v[BENCH_M_EXEC_P99][BENCH_OURS] = bench_samples_at(&seats[ENGINE].samples, 0.99);
    r->v[BENCH_M_EXEC_RPC][BENCH_OURS] = bench_samples_middle(&seats[SERVER].samples);
    r->v[BENCH_M_EXEC_P50][BENCH_RAW] = r->v[BENCH_M_EXEC_RPC][BENCH_RAW] =
        bench_samples_middle(&seats[KERNEL].samples);
    r->v[BENCH_M_EXEC_P99][BENCH_RAW] = bench_samples_at(&seats[KERNEL].samples, 0.99);
}

static int measure_exec(struct bench *b, struct bench_seat seats[PARTIES], struct sp_err *e)
{
    const struct bench_case_options o = {.ack = BENCH_ACK_NOW};
    struct engine g = {0};
    char program[4096];
    int r = bench_seat_open(b, &seats[SERVER], BENCH_OURS, &o, e);

    if (r == 0)
        r = bench_seat_program(&seats[SERVER], program, sizeof program, e);
    if (r == 0)
        r = engine_open(&g, program, e);
    for (int k = 0; r == 0 && k < b->rounds && !bench_is_stopped(); k++) {
        bench_client_deadline(seats[SERVER].client, 60 * BENCH_S);
        for (int i = 0; r == 0 && i < PARTIES; i++)
            r = turn(b, i, &g, &seats[i], e);
    }
    if (r == 0)
        report_exec(b, seats);
    engine_close(&g);
    return r;
}

void bench_case_exec(struct bench *b)
{
    struct bench_seat seats[PARTIES] = {0};
    struct sp_err e = {0};

    if (b->command[BENCH_OURS] == NULL)
        return; /* cells need a file to run */
    if (measure_exec(b, seats, &e) < 0)
        bench_seat_drop(b, &(struct bench_seat){.side = BENCH_OURS}, &e);
    if (seats[SERVER].is_on)
        bench_seat_close(&seats[SERVER]);
    bench_samples_done(&seats[ENGINE].samples);
    bench_samples_done(&seats[KERNEL].samples);
}

/* ---- a poll of a command that says nothing ---- */

static double cpu_of(clockid_t clock)
{
    struct timespec t = {0};

    (void)clock_gettime(clock, &t); /* one that has ended used nothing more */
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* This program and its children: the engine and its cells. */
static double cpu_used(void)
{
    double sum = cpu_of(CLOCK_PROCESS_CPUTIME_ID);
    char path[64];
    int pid;

    (void)snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    FILE *f = fopen(path, "re");
    while (f != NULL && fscanf(f, "%d", &pid) == 1) {
        clockid_t clock;

        if (clock_getcpuclockid(pid, &clock) == 0)
            sum += cpu_of(clock);
    }
    if (f != NULL)
        (void)fclose(f);
    return sum;
}

static int poll_once(struct engine *g, double *ret_cpu, struct sp_err *e)
{
    const struct sp_str argv[] = {SP_STR("/bin/sleep"), SP_STR("1000")};
    int r = exec_command(g, argv, 2, 250, e);
    if (r < 0)
        return r;
    const struct sp_write_request ask = {.call_id = SP_STR("bench"), .session_id = g->process_id};
    const double before = cpu_used();
    uint64_t call;

    g->is_answered = false;
    r = sp_manager_write(g->manager, &ask, on_reply, g, &call, e);
    if (r == 0)
        r = await(g, e);
    *ret_cpu = cpu_used() - before;
    return r;
}

static int measure_poll(struct bench *b, double *ret_cpu, struct sp_err *e)
{
    const struct bench_case_options o = {.ack = BENCH_ACK_NOW};
    struct bench_seat server = {0};
    struct engine g = {0};
    char program[4096];
    int r = bench_seat_open(b, &server, BENCH_OURS, &o, e);

    if (r < 0)
        return r;
    r = bench_seat_program(&server, program, sizeof program, e);
    bench_seat_close(&server);
    if (r == 0)
        r = engine_open(&g, program, e);
    if (r == 0)
        r = poll_once(&g, ret_cpu, e);
    engine_close(&g);
    return r;
}

void bench_case_poll(struct bench *b)
{
    struct sp_err e = {0};
    double cpu = 0;

    if (b->command[BENCH_OURS] == NULL)
        return;
    if (measure_poll(b, &cpu, &e) < 0)
        bench_seat_drop(b, &(struct bench_seat){.side = BENCH_OURS}, &e);
    else
        b->report.v[BENCH_M_POLL_CPU][BENCH_OURS] = cpu;
}
