/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files_fixture: a server without clients, with real cells (the program in SALLYPORT), and calls
 * that write down what they are told.
 */
#ifndef SP_FILES_FIXTURE_H
#define SP_FILES_FIXTURE_H

#include <sys/mman.h>
#include <sys/prctl.h>

#include "base/auto.h"
#include "base/log.h"
#include "core/cell_pool.h"
#include "core/cells.h"
#include "core/files.h"
#include "os/spawn.h"
#include "tree_fixture.h"

static const char *program;
static struct sp_loop *loop;
static struct sp_front *server;
static struct sp_files_client client;
static struct sp_err error;
static int fds_before;

/* ---- calls ---- */

struct call {
    struct sp_files_call call; /* first: they are one */
    bool is_done, has_answer;
    unsigned turn; /* the how manieth to be done */
    struct sp_file_answer answer;
    struct sp_err e;
    char data[4096]; /* the beginning of it */
    uint64_t sum;    /* over all of it */
};

static unsigned turns;

static inline void on_done(struct sp_files_call *c, const struct sp_file_answer *a,
                           const struct sp_err *e)
{
    struct call *call = (struct call *)(void *)c;

    assert_false(call->is_done);
    call->is_done = true;
    call->turn = ++turns;
    call->has_answer = a != NULL;
    if (a == NULL) {
        assert_true(e->code != SP_E_NONE && e->msg[0] != 0);
        call->e = *e;
        return;
    }
    call->answer = *a;
    call->sum = 0;
    for (uint64_t i = 0; i < a->data_len; i++)
        call->sum += (unsigned char)a->window[i];
    const size_t n = a->data_len < sizeof call->data - 1 ? a->data_len : sizeof call->data - 1;
    memcpy(call->data, a->window, n);
    call->data[n] = 0;
}

static inline struct sp_files_job a_job(enum sp_file_op op, const char *below)
{
    return (struct sp_files_job){
        .request = {.op = op, .path = at(below), .follows = true, .fd = -1}, .session = 1};
}

static inline int ask(struct call *c, const struct sp_files_job *job)
{
    *c = (struct call){.call.done = on_done};
    error = (struct sp_err){0};
    return sp_files_ask(server->files, &client, job, &c->call, &error);
}

static inline void asks(struct call *c, const struct sp_files_job *job)
{
    if (ask(c, job) < 0)
        fail_msg("%s", error.msg);
    assert_false(c->is_done); /* never from within */
}

static inline struct sp_files_job a_write(const char *below, const char *text)
{
    struct sp_files_job job = a_job(SP_FILE_WRITE, below);

    job.raw = sp_str_of(text);
    return job;
}

/* ---- turns of the loop until something is so ---- */

static bool (*awaited)(const void *about);
static const void *awaited_about;
static uint64_t awaited_until;
static bool was_late;

static inline void on_look(struct sp_timer *t)
{
    was_late = test_now_ms() >= awaited_until;
    if (was_late || awaited(awaited_about))
        sp_loop_stop(loop);
    else
        assert_true(sp_loop_timer(loop, t, sp_loop_now(loop) + 1, on_look));
}

static inline void until(bool (*is_so)(const void *), const void *about)
{
    struct sp_timer look = {0};

    awaited = is_so;
    awaited_about = about;
    awaited_until = test_now_ms() + DEADLINE_MS;
    assert_true(sp_loop_timer(loop, &look, 0, on_look));
    assert_int_equal(sp_loop_run(loop, NULL), 0);
    sp_loop_cancel(loop, &look);
    if (was_late)
        fail_msg("%s", "it did not happen");
}

static inline bool is_done(const void *call)
{
    return ((const struct call *)call)->is_done;
}

static inline bool has_come(const void *time_ms)
{
    return test_now_ms() >= *(const uint64_t *)time_ms;
}

static inline void let_pass(uint64_t ms)
{
    const uint64_t then = test_now_ms() + ms;

    until(has_come, &then);
}

static inline uint32_t count_workers(void)
{
    return server->files->worker_count + server->files->orphan_count;
}

static inline bool has_workers(const void *n)
{
    return count_workers() == *(const uint32_t *)n;
}

static inline void until_workers(uint32_t n)
{
    until(has_workers, &n);
}

static inline void awaits(struct call *c)
{
    until(is_done, c);
}

/* Asked, done, without an error. */
static inline void does(struct call *c, const struct sp_files_job *job)
{
    asks(c, job);
    awaits(c);
    if (!c->has_answer)
        fail_msg("%s", c->e.msg);
}

/* ---- beginning and end ---- */

static inline void on_drained(void *user)
{
    (void)user;
}

static inline int files_begin(void **state)
{
    static char run[PATH_MAX + 8];
    const struct sp_front_options o = {.program = program,
                                       .max_processes = 8,
                                       .nofile_soft = 64,
                                       .nofile_hard = 64,
                                       .runtime_dir = run,
                                       .drained = on_drained};

    (void)tree_begin(state);
    (void)snprintf(run, sizeof run, "%s/run", tree);
    fds_before = open_fds();
    client = (struct sp_files_client){0};
    turns = 0;
    assert_int_equal(sp_loop_new(&loop, &error), 0);
    if (sp_front_new(loop, &o, &server, &error) < 0)
        fail_msg("%s", error.msg);
    return 0;
}

static inline int files_end(void **state)
{
    assert_true(sp_list_is_empty(&client.calls));
    assert_int_equal(client.working, 0);
    assert_int_equal(client.waiting, 0);
    sp_front_free(server);
    sp_loop_free(loop);
    /* We are a subreaper: whoever got away would be ours. What a killed cell leaves is dying. */
    assert_true(bury_children(2000));
    assert_int_equal(open_fds(), fds_before);
    return tree_end(state);
}

#define files_test(name) cmocka_unit_test_setup_teardown(name, files_begin, files_end)

static inline int files_main(const struct CMUnitTest *all, size_t count)
{
    struct sp_err e = {0};

    program = getenv("SALLYPORT");
    if (program == NULL || sp_spawn_reserve(&e) < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
        return 77;
    (void)signal(SIGPIPE, SIG_IGN);
    (void)sp_log_set_level("error");
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return _cmocka_run_group_tests("tests", all, count, NULL, NULL);
}

#endif
