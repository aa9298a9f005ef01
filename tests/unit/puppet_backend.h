/* SPDX-License-Identifier: Apache-2.0 */
/*
 * puppet_backend: processes that do what the test says, when it says so, in a time that is not
 * spent: the clock moves when the loop would sleep. Link with --wrap=clock_gettime, epoll_wait.
 */
#ifndef SP_PUPPET_BACKEND_H
#define SP_PUPPET_BACKEND_H

#include <stdio.h>
#include <sys/epoll.h>

#define HAS_PUPPET_CLOCK

#include "manager_fixture.h"

/* ---- the clock ---- */

static uint64_t clock_ns = 1000000000000;

int __real_clock_gettime(clockid_t which, struct timespec *ret);
int __wrap_clock_gettime(clockid_t which, struct timespec *ret);
int __wrap_clock_gettime(clockid_t which, struct timespec *ret)
{
    if (which == CLOCK_THREAD_CPUTIME_ID) /* work is work */
        return __real_clock_gettime(which, ret);

    const uint64_t ns = clock_ns + (which == CLOCK_REALTIME ? 1700000000000000000 : 0);

    *ret = (struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    return 0;
}

int __real_epoll_wait(int fd, struct epoll_event *ev, int max, int timeout);
int __wrap_epoll_wait(int fd, struct epoll_event *ev, int max, int timeout);
int __wrap_epoll_wait(int fd, struct epoll_event *ev, int max, int timeout)
{
    const int n = __real_epoll_wait(fd, ev, max, 0);

    if (n == 0 && timeout < 0)
        fail_msg("nothing would ever happen; the story so far: %s", story);
    if (n == 0 && timeout > 0)
        clock_ns += (uint64_t)timeout * 1000000;
    return n;
}

/* ---- processes ---- */

#define JOBS_MAX 100

struct job {
    struct sp_job *job;           /* NULL: released */
    char asked[512];              /* "write:x signal:2 terminate release " */
    struct sp_job_call *calls[8]; /* not yet answered, the oldest first */
    size_t call_count;
    char script[256];
    char cwd[128];
    bool is_confined, is_tty, wants_stdin;
    bool has_network_mark;
};

static struct job jobs[JOBS_MAX];
static size_t job_count;
static enum sp_job_result next_result;
static bool is_mute;              /* calls are not answered until the test does it */
static struct sp_err start_error; /* code NONE: none */
static bool can_look;
static struct sp_inspection next_look;

static struct sp_backend_facts puppet_facts;
static struct sp_err facts_error; /* code NONE: facts are told */
static bool withholds_facts;

static struct sp_list facts_waits = SP_LIST_EMPTY(facts_waits);
static struct sp_deferred facts_deferred;
static struct sp_deferred calls_deferred;

static inline void note(struct job *j, const char *what, const char *detail)
{
    const size_t n = strlen(j->asked);

    (void)snprintf(j->asked + n, sizeof j->asked - n, "%s%s ", what, detail);
}

static inline struct job *job_of(const struct sp_job *j)
{
    return j->impl;
}

static inline int puppet_start(struct sp_backend *b, struct sp_job *j, const struct sp_start *l,
                               struct sp_err *e)
{
    struct job *p = &jobs[job_count++];

    (void)b;
    assert_true(job_count < JOBS_MAX);
    *p = (struct job){.job = j,
                      .is_confined = l->policy != NULL,
                      .is_tty = l->is_tty,
                      .wants_stdin = l->wants_stdin,
                      .has_network_mark = l->environ->has_no_network};
    (void)snprintf(p->script, sizeof p->script, "%.*s", (int)l->argv[l->argc - 1].n,
                   l->argv[l->argc - 1].p);
    (void)snprintf(p->cwd, sizeof p->cwd, "%.*s", (int)l->cwd.n, l->cwd.p);
    note(p, "start:", l->label.p);
    j->impl = p;
    if (start_error.code == SP_E_NONE)
        return 0;
    *e = start_error;
    p->job = NULL;
    return -(int)start_error.code;
}

static inline void answer_call(struct job *p, enum sp_job_result result)
{
    struct sp_job_call *c = p->calls[0];

    assert_true(p->call_count > 0);
    memmove(p->calls, p->calls + 1, --p->call_count * sizeof p->calls[0]);
    c->result = result;
    if (result == SP_JOB_LOST)
        (void)sp_fail(&c->error, SP_E_FAILED, 0, "connection lost");
    if (result == SP_JOB_REFUSED)
        (void)sp_fail(&c->error, SP_E_FAILED, 0, "refused");
    c->fn(c);
}

static inline void answer_all(struct sp_deferred *d)
{
    (void)d;
    for (size_t i = 0; i < job_count; i++)
        while (jobs[i].call_count != 0)
            answer_call(&jobs[i], next_result);
}

static inline void take_call(struct sp_job *j, struct sp_job_call *c)
{
    assert_true(job_of(j)->call_count < 8);
    job_of(j)->calls[job_of(j)->call_count++] = c;
    if (!is_mute)
        sp_loop_defer(loop, &calls_deferred, answer_all);
}

static inline void puppet_write(struct sp_job *j, struct sp_job_call *c, struct sp_str bytes)
{
    char text[64];

    (void)snprintf(text, sizeof text, "%.*s", (int)bytes.n, bytes.p);
    note(job_of(j), "write:", text);
    take_call(j, c);
}

static inline void puppet_close_stdin(struct sp_job *j, struct sp_job_call *c)
{
    note(job_of(j), "close", "");
    take_call(j, c);
}

static inline void puppet_signal(struct sp_job *j, struct sp_job_call *c, int signal)
{
    char text[16];

    (void)snprintf(text, sizeof text, "%d", signal);
    note(job_of(j), "signal:", text);
    take_call(j, c);
}

static inline void puppet_resize(struct sp_job *j, struct sp_job_call *c, uint16_t rows,
                                 uint16_t cols)
{
    char text[32];

    (void)snprintf(text, sizeof text, "%ux%u", rows, cols);
    note(job_of(j), "resize:", text);
    take_call(j, c);
}

static inline void puppet_terminate(struct sp_job *j, struct sp_job_call *c)
{
    note(job_of(j), "terminate", "");
    take_call(j, c);
}

static inline bool puppet_inspect(struct sp_job *j, struct sp_job_inspection *l)
{
    char text[64] = "";

    if (!can_look)
        return false;
    for (uint32_t i = 0; i < l->port_count; i++)
        (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%s%u", i == 0 ? "" : ",",
                       l->ports[i]);
    note(job_of(j), l->wants_doing ? "look" : "ports:", text);
    l->found = next_look;
    take_call(j, &l->call);
    return true;
}

static inline void puppet_go_on(struct sp_job *j)
{
    note(job_of(j), "go_on", "");
}

static inline void puppet_release(struct sp_job *j)
{
    note(job_of(j), "release", "");
    job_of(j)->job = NULL;
    job_of(j)->call_count = 0;
}

static inline void tell_facts(struct sp_deferred *d)
{
    (void)d;
    for (struct sp_list *i; (i = sp_list_take_first(&facts_waits)) != NULL;) {
        struct sp_backend_wait *w = SP_CONTAINER(i, struct sp_backend_wait, link);

        w->backend = NULL;
        w->fn(w, facts_error.code == SP_E_NONE ? &puppet_facts : NULL, &facts_error);
    }
}

static inline void puppet_ask_facts(struct sp_backend *b, struct sp_backend_wait *w)
{
    w->backend = b;
    sp_list_append(&facts_waits, &w->link);
    if (!withholds_facts)
        sp_loop_defer(loop, &facts_deferred, tell_facts);
}

static inline void puppet_forget_facts(struct sp_backend_wait *w)
{
    sp_list_remove(&w->link);
    w->backend = NULL;
}

static const struct sp_backend_job_ops puppet_job_ops = {
    .start = puppet_start,
    .write = puppet_write,
    .close_stdin = puppet_close_stdin,
    .signal = puppet_signal,
    .resize = puppet_resize,
    .terminate = puppet_terminate,
    .go_on = puppet_go_on,
    .release = puppet_release,
    .inspect = puppet_inspect,
};

static const struct sp_backend_ops puppet_ops = {
    .job = &puppet_job_ops,
    .ask_facts = puppet_ask_facts,
    .forget_facts = puppet_forget_facts,
};

static struct sp_backend puppets = {.ops = &puppet_ops};

/* ---- what they do ---- */

static inline struct sp_job *live(size_t i)
{
    assert_true(i < job_count);
    assert_non_null(jobs[i].job);
    return jobs[i].job;
}

static inline void say_started(size_t i)
{
    struct sp_job *j = live(i);

    j->ops->started(j, jobs[i].is_confined ? SP_JOB_SANDBOX_LINUX : SP_JOB_SANDBOX_NONE);
}

static inline void say(size_t i, const char *text)
{
    struct sp_job *j = live(i);

    assert_true(j->ops->output(j, SP_STREAM_STDOUT, sp_str_of(text)));
}

static inline void say_exited(size_t i, int code)
{
    struct sp_job *j = live(i);
    const struct sp_job_exit how = {
        .code = code, .signal = code > 128 ? code - 128 : 0, .denied = -1};

    j->ops->exited(j, &how);
}

static inline void say_closed(size_t i)
{
    struct sp_job *j = live(i);

    j->ops->closed(j);
}

static inline void say_failed(size_t i, const char *why)
{
    struct sp_job *j = live(i);

    j->ops->failed(j, why);
}

static inline void end_with(size_t i, int code)
{
    say_exited(i, code);
    say_closed(i);
}

static inline bool was_asked(size_t i, const char *what)
{
    return strstr(jobs[i].asked, what) != NULL;
}

/* A call whose process has been started, as the n-th of the test. */
static inline void exec_started(struct answer *a, const char *cmd, bool is_tty, uint64_t yield_ms)
{
    const size_t n = job_count;

    exec_for(a, cmd, is_tty, yield_ms);
    until(job_count == n + 1);
    say_started(n);
}

/* One that lives on in the background. */
static inline int exec_background(const char *cmd, bool is_tty)
{
    struct answer a;

    exec_started(&a, cmd, is_tty, 250);
    until(a.is_there);
    assert_running(&a, a.process_id);
    return a.process_id;
}

/* ---- every test's beginning and end ---- */

static struct sp_environment_spec puppet_place;

static inline int begin_puppets(void **state)
{
    (void)state;
    if (sp_loop_new(&loop, NULL) < 0)
        return -1;
    job_count = 0;
    next_result = SP_JOB_OK;
    is_mute = withholds_facts = can_look = false;
    next_look = (struct sp_inspection){0};
    start_error = facts_error = (struct sp_err){0};
    puppet_facts = (struct sp_backend_facts){.cwd = "/site"};
    puppets.loop = loop;
    begin_manager();
    puppet_place = (struct sp_environment_spec){.id = "local", .backend = &puppets, .cwd = "/site"};
    options.environments = &puppet_place;
    options.environment_count = 1;
    make_manager();
    return 0;
}

static inline void remake_manager(void)
{
    end_manager();
    make_manager();
    forget_story();
}

static inline int end_puppets(void **state)
{
    (void)state;
    end_manager();
    assert_true(sp_list_is_empty(&facts_waits));
    for (size_t i = 0; i < job_count; i++)
        assert_null(jobs[i].job); /* every job was released */
    sp_loop_undefer(loop, &facts_deferred);
    sp_loop_undefer(loop, &calls_deferred);
    sp_loop_free(loop);
    return 0;
}

#define puppet_test(f) cmocka_unit_test_setup_teardown(f, begin_puppets, end_puppets)

#endif
