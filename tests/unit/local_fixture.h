/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local_fixture: a local backend with real cells (the program in SALLYPORT), and owners of jobs
 * that write down what they are told.
 */
#ifndef SP_LOCAL_FIXTURE_H
#define SP_LOCAL_FIXTURE_H

#include "base/auto.h"
#include "base/buf.h"
#include "base/log.h"
#include "engine/local.h"
#include "process_fixture.h"
#include "sandbox/profile.h"

struct owner {
    struct sp_job job;
    char story[4096]; /* "started closed ..." */
    size_t story_len;
    struct sp_buf out, err;
    uint64_t bytes, gap_bytes;
    unsigned outputs, refusals;
    bool is_full; /* takes no output */
    bool is_over, is_inside;
    bool drops;      /* counts output and keeps none */
    bool kills_rest; /* asks for a KILL when it hears of the exit */
    struct sp_job_exit exit;
    struct sp_denial_facts denial;
    struct sp_err error;
    char why[128];
    enum sp_job_sandbox sandbox;
};

struct asked {
    struct sp_job_call call;
    bool is_answered;
};

static struct sp_loop *loop;
static struct sp_backend *backend;
static struct sp_local_options options;
static int fds_before;
static bool is_calling; /* a function of the backend: nothing may be told from there */
static struct asked late_kill;

static inline struct owner *owner_of(struct sp_job *j)
{
    return SP_CONTAINER(j, struct owner, job);
}

static inline void tell(struct owner *o, const char *what)
{
    assert_false(is_calling);
    assert_false(o->is_over);
    o->story_len += (size_t)snprintf(o->story + o->story_len, sizeof o->story - o->story_len,
                                     "%s%s", o->story_len == 0 ? "" : " ", what);
    assert_true(o->story_len < sizeof o->story);
    sp_loop_stop(loop);
}

static inline void on_started(struct sp_job *j, enum sp_job_sandbox sandbox)
{
    owner_of(j)->sandbox = sandbox;
    tell(owner_of(j), "started");
}

static inline void on_refused(struct sp_job *j, const struct sp_err *e)
{
    owner_of(j)->error = *e;
    tell(owner_of(j), "refused");
    owner_of(j)->is_over = true;
}

static inline bool on_output(struct sp_job *j, enum sp_stream stream, struct sp_str bytes)
{
    struct owner *o = owner_of(j);

    assert_false(is_calling);
    assert_false(o->is_over);
    assert_true(bytes.n > 0);
    sp_loop_stop(loop);
    if (o->is_full) {
        o->refusals++;
        return false;
    }
    o->outputs++;
    o->bytes += bytes.n;
    if (!o->drops)
        assert_true(sp_buf_add(stream == SP_STREAM_STDERR ? &o->err : &o->out, bytes.p, bytes.n));
    return true;
}

static inline void on_gap(struct sp_job *j, uint64_t bytes)
{
    owner_of(j)->gap_bytes += bytes;
    tell(owner_of(j), "gap");
}

static inline void on_answer(struct sp_job_call *c)
{
    assert_false(is_calling);
    SP_CONTAINER(c, struct asked, call)->is_answered = true;
    sp_loop_stop(loop);
}

static inline struct asked *prepare(struct asked *a)
{
    *a = (struct asked){.call.fn = on_answer};
    return a;
}

static inline void on_exited(struct sp_job *j, const struct sp_job_exit *how)
{
    struct owner *o = owner_of(j);

    o->exit = *how;
    if (how->denial != NULL)
        o->denial = *how->denial;
    o->exit.denial = how->denial != NULL ? &o->denial : NULL;
    tell(o, "exited");
    if (o->kills_rest)
        sp_job_signal(j, &prepare(&late_kill)->call, SIGKILL);
}

static inline void on_closed(struct sp_job *j)
{
    tell(owner_of(j), "closed");
    owner_of(j)->is_over = true;
}

static inline void on_failed(struct sp_job *j, const char *why)
{
    (void)snprintf(owner_of(j)->why, sizeof owner_of(j)->why, "%s", why);
    tell(owner_of(j), "failed");
    owner_of(j)->is_over = true;
}

static const struct sp_job_ops owner_ops = {
    .started = on_started,
    .refused = on_refused,
    .output = on_output,
    .gap = on_gap,
    .exited = on_exited,
    .closed = on_closed,
    .failed = on_failed,
};

/* ---- waiting ---- */

static inline void on_deadline(struct sp_timer *t)
{
    (void)t;
    fail_msg("nothing came in time");
}

static inline void on_pause_end(struct sp_timer *t)
{
    (void)t;
    sp_loop_stop(loop);
}

static inline void turn(void)
{
    struct sp_timer deadline = {0};
    struct sp_err e = {0};

    assert_true(sp_loop_timer(loop, &deadline, sp_loop_now(loop) + DEADLINE_MS, on_deadline));
    assert_int_equal(sp_loop_run(loop, &e), 0);
    sp_loop_cancel(loop, &deadline);
}

#define until(condition)     \
    do {                     \
        while (!(condition)) \
            turn();          \
    } while (0)

/* Lets the loop run for so long, for what must not happen. */
static inline void run_for(unsigned ms)
{
    const uint64_t end = test_now_ms() + ms;

    while (test_now_ms() < end) {
        struct sp_timer t = {0};

        assert_true(sp_loop_timer(loop, &t, end, on_pause_end));
        assert_int_equal(sp_loop_run(loop, NULL), 0);
        sp_loop_cancel(loop, &t);
    }
}

/* ---- starting and asking ---- */

static char *const test_env[] = {(char *)(uintptr_t) "PATH=/usr/bin:/bin", NULL};

static inline struct sp_start script(const char *text, struct sp_str argv[3],
                                     struct sp_env_request *env)
{
    argv[0] = SP_STR("/bin/sh");
    argv[1] = SP_STR("-c");
    argv[2] = sp_str_of(text);
    *env = (struct sp_env_request){.own = test_env, .policy.inherit = SP_ENV_ALL};
    return (struct sp_start){
        .label = SP_STR("test"), .cwd = SP_STR("/"), .argv = argv, .argc = 3, .environ = env};
}

static inline int start_launch(struct owner *o, const struct sp_start *l, struct sp_err *e)
{
    is_calling = true;
    const int r = sp_job_start(backend, &o->job, &owner_ops, l, e);
    is_calling = false;
    return r;
}

static inline void start_script(struct owner *o, const char *text, bool is_tty, bool wants_stdin)
{
    struct sp_str argv[3];
    struct sp_env_request env;
    struct sp_start l = script(text, argv, &env);
    struct sp_err e = {0};

    l.is_tty = is_tty;
    l.wants_stdin = wants_stdin;
    if (start_launch(o, &l, &e) < 0)
        fail_msg("%s: %s", e.msg, strerror(e.sys));
}

static inline bool has_told(const struct owner *o, const char *what)
{
    return strstr(o->story, what) != NULL;
}

static inline void finish(struct owner *o)
{
    sp_job_release(&o->job);
    sp_buf_done(&o->out);
    sp_buf_done(&o->err);
    *o = (struct owner){0};
}

static inline enum sp_job_result answer_to(struct asked *a)
{
    is_calling = false;
    until(a->is_answered);
    return a->call.result;
}

static inline enum sp_job_result write_to(struct owner *o, const char *bytes, size_t n)
{
    struct asked a;

    is_calling = true;
    sp_job_write(&o->job, &prepare(&a)->call, (struct sp_str){bytes, n});
    return answer_to(&a);
}

static inline enum sp_job_result close_stdin_of(struct owner *o)
{
    struct asked a;

    is_calling = true;
    sp_job_close_stdin(&o->job, &prepare(&a)->call);
    return answer_to(&a);
}

static inline enum sp_job_result signal_to(struct owner *o, int number)
{
    struct asked a;

    is_calling = true;
    sp_job_signal(&o->job, &prepare(&a)->call, number);
    return answer_to(&a);
}

static inline enum sp_job_result terminate(struct owner *o)
{
    struct asked a;

    is_calling = true;
    sp_job_terminate(&o->job, &prepare(&a)->call);
    return answer_to(&a);
}

static inline void assert_out(const struct owner *o, const char *text)
{
    assert_int_equal(o->out.len, strlen(text));
    assert_memory_equal(o->out.data, text, o->out.len);
}

/* The process whose number a script has printed. */
static inline pid_t printed_pid(const struct owner *o)
{
    char text[32] = {0};

    memcpy(text, o->out.data, o->out.len < 31 ? o->out.len : 31);
    const long pid = strtol(text, NULL, 10);
    assert_true(pid > 1);
    return (pid_t)pid;
}

static inline bool is_gone(pid_t pid)
{
    char path[64];
    char text[256] = {0};

    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return true;
    const ssize_t n = read(fd, text, sizeof text - 1);
    (void)close(fd);
    const char *state = n <= 0 ? NULL : strrchr(text, ')');
    return state == NULL || state[2] == 'Z' || state[2] == 'X';
}

static inline void await_gone(pid_t pid)
{
    const uint64_t end = test_now_ms() + DEADLINE_MS;

    while (!is_gone(pid)) {
        assert_true(test_now_ms() < end);
        run_for(5);
    }
}

/* ---- every test's beginning and end ---- */

static inline void make_backend(void)
{
    struct sp_err e = {0};

    if (sp_local_new(loop, &options, &backend, &e) < 0)
        fail_msg("%s", e.msg);
}

static inline int begin(void **state)
{
    (void)state;
    fds_before = open_fds();
    if (sp_loop_new(&loop, NULL) < 0)
        return -1;
    options = (struct sp_local_options){.program = getenv("SALLYPORT"), .cwd = "/"};
    make_backend();
    return 0;
}

static inline int end(void **state)
{
    (void)state;
    sp_backend_free(backend);
    sp_backend_free(NULL);
    backend = NULL;
    sp_loop_free(loop);
    assert_no_children();
    return open_fds() == fds_before ? 0 : -1;
}

#define local_test(f) cmocka_unit_test_setup_teardown(f, begin, end)

#endif
