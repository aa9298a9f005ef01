/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remote_fixture: a real server, perhaps behind a proxy that can be cut, and jobs on it whose
 * every word is kept.
 */
#ifndef SP_REMOTE_FIXTURE_H
#define SP_REMOTE_FIXTURE_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "base/auto.h"
#include "base/buf.h"
#include "engine/job.h"
#include "engine/remote/remote.h"
#include "process_fixture.h"

#define PIPES 4

/* ---- the loop ---- */

static struct fixture {
    struct sp_loop *loop;
    struct sp_backend *backend;
    struct sp_timer tick;
    bool (*is_done)(void *what);
    void *what;
    uint64_t deadline_ms;
    bool is_late;

    pid_t server;
    int server_out;
    char url[128];
    struct sp_backend_facts facts;
    unsigned facts_told;
    struct sp_err facts_error;
    int fds;
} fx;

static inline void fx_tick(struct sp_timer *t)
{
    fx.is_late = test_now_ms() > fx.deadline_ms;
    if (fx.is_late || fx.is_done(fx.what))
        sp_loop_stop(fx.loop);
    else
        assert_true(sp_loop_timer(fx.loop, t, sp_loop_now(fx.loop) + 1, fx_tick));
}

static inline bool comes_true(bool (*is_done)(void *what), void *what, uint64_t patience_ms)
{
    struct sp_err e;

    fx.is_done = is_done;
    fx.what = what;
    fx.deadline_ms = test_now_ms() + patience_ms;
    assert_true(sp_loop_timer(fx.loop, &fx.tick, 0, fx_tick));
    assert_int_equal(sp_loop_run(fx.loop, &e), 0);
    return !fx.is_late;
}

static inline void until(bool (*is_done)(void *what), void *what)
{
    assert_true(comes_true(is_done, what, DEADLINE_MS));
}

static inline bool never(void *what)
{
    (void)what;
    return false;
}

static inline void pass(uint64_t ms)
{
    (void)comes_true(never, NULL, ms);
}

/* ---- a job, and all that was told of it ---- */

struct told {
    struct sp_job job;
    unsigned started, refused, exited, closed, failed, gaps, refusals;
    enum sp_job_sandbox sandbox;
    struct sp_buf out, err;
    size_t bytes; /* of both */
    int code, denied;
    struct sp_err error;
    char why[400];
    char order[64]; /* s o x c: as told, runs of output as one */
    bool refuses;   /* output */
    bool keeps_none;
    size_t sum; /* of all bytes */
    bool releases_at_output;
};

static inline struct told *told_of(struct sp_job *j)
{
    return SP_CONTAINER(j, struct told, job);
}

static inline void note(struct told *t, char c)
{
    const size_t n = strlen(t->order);

    if (n + 1 < sizeof t->order && !(c == 'o' && n != 0 && t->order[n - 1] == 'o'))
        t->order[n] = c;
}

static inline void fx_started(struct sp_job *j, enum sp_job_sandbox sandbox)
{
    told_of(j)->started++;
    told_of(j)->sandbox = sandbox;
    note(told_of(j), 's');
}

static inline void fx_refused(struct sp_job *j, const struct sp_err *e)
{
    told_of(j)->refused++;
    told_of(j)->error = *e;
    note(told_of(j), 'r');
}

static inline bool fx_output(struct sp_job *j, enum sp_stream stream, struct sp_str bytes)
{
    struct told *t = told_of(j);

    assert_true(bytes.n != 0);
    if (t->refuses) {
        t->refusals++;
        return false;
    }
    note(t, 'o');
    t->bytes += bytes.n;
    for (size_t i = 0; i < bytes.n; i++)
        t->sum += (unsigned char)bytes.p[i];
    if (!t->keeps_none)
        assert_true(sp_buf_add_str(stream == SP_STREAM_STDERR ? &t->err : &t->out, bytes));
    if (t->releases_at_output)
        sp_job_release(j);
    return true;
}

static inline void fx_gap(struct sp_job *j, uint64_t bytes)
{
    (void)bytes;
    told_of(j)->gaps++;
    note(told_of(j), 'g');
}

static inline void fx_exited(struct sp_job *j, const struct sp_job_exit *how)
{
    told_of(j)->exited++;
    told_of(j)->code = how->code;
    told_of(j)->denied = how->denied;
    note(told_of(j), 'x');
}

static inline void fx_closed(struct sp_job *j)
{
    told_of(j)->closed++;
    note(told_of(j), 'c');
}

static inline void fx_failed(struct sp_job *j, const char *why)
{
    told_of(j)->failed++;
    (void)snprintf(told_of(j)->why, sizeof told_of(j)->why, "%s", why);
    note(told_of(j), 'f');
}

static const struct sp_job_ops fx_ops = {fx_started, fx_refused, fx_output, fx_gap, fx_exited,
                                         fx_closed,  NULL,       fx_failed, NULL};

static inline bool is_over(void *what)
{
    const struct told *t = what;

    return t->refused + t->closed + t->failed != 0;
}

static inline bool is_started(void *what)
{
    const struct told *t = what;

    return t->started + t->refused + t->failed != 0;
}

static inline bool has_exited(void *what)
{
    const struct told *t = what;

    return t->exited != 0;
}

static inline bool has_output(void *what)
{
    const struct told *t = what;

    return t->bytes != 0;
}

/* Of a script that says its pid first, on a server of this machine. */
static inline pid_t pid_told(struct told *t)
{
    assert_true(sp_buf_add(&t->out, "", 1));
    return (pid_t)atoi(t->out.data);
}

static inline bool is_gone(void *what)
{
    return kill(*(pid_t *)what, 0) < 0 && errno == ESRCH;
}

static inline void told_done(struct told *t)
{
    sp_job_release(&t->job);
    sp_buf_done(&t->out);
    sp_buf_done(&t->err);
}
#define auto_told __attribute__((cleanup(told_done)))

/* sh -c script */
static inline struct sp_start script(const char *text, struct sp_str argv[3])
{
    argv[0] = SP_STR("/bin/sh");
    argv[1] = SP_STR("-c");
    argv[2] = sp_str_of(text);
    return (struct sp_start){.label = SP_STR("1000"), .cwd = SP_STR("/"), .argv = argv, .argc = 3};
}

static inline void start(struct told *t, const struct sp_start *l)
{
    struct sp_err e;

    if (sp_job_start(fx.backend, &t->job, &fx_ops, l, &e) < 0)
        fail_msg("start: %s", e.msg);
}

static inline void start_script(struct told *t, const char *text)
{
    struct sp_str argv[3];
    const struct sp_start l = script(text, argv);

    start(t, &l);
}

/* ---- calls ---- */

struct asked {
    struct sp_job_call call;
    unsigned answers;
};

static inline void fx_answered(struct sp_job_call *c)
{
    SP_CONTAINER(c, struct asked, call)->answers++;
}

static inline bool is_answered(void *what)
{
    return ((struct asked *)what)->answers != 0;
}

static inline enum sp_job_result answer_of(struct asked *a)
{
    until(is_answered, a);
    assert_int_equal(a->answers, 1);
    return a->call.result;
}

static inline enum sp_job_result write_text(struct told *t, const char *text)
{
    struct asked a = {.call.fn = fx_answered};

    sp_job_write(&t->job, &a.call, sp_str_of(text));
    return answer_of(&a);
}

static inline enum sp_job_result terminate(struct told *t)
{
    struct asked a = {.call.fn = fx_answered};

    sp_job_terminate(&t->job, &a.call);
    return answer_of(&a);
}

/* ---- the server ---- */

/* more: one more argument and its value; NULL: none */
static inline void start_server_with(const char *listen, const char *more, const char *value)
{
    const char *program = getenv("SALLYPORT");
    int ends[2];

    assert_non_null(program); /* the path of the binary, set by meson */
    assert_int_equal(pipe(ends), 0);
    fx.server = fork();
    assert_true(fx.server >= 0);
    if (fx.server == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        CHILD_CHECK(dup2(ends[1], 1) == 1);
        CHILD_CHECK(syscall(SYS_close_range, 3, ~0U, 0) == 0);
        (void)execl(program, program, "serve", "--listen", listen, more, value, (char *)NULL);
        _exit(98);
    }
    (void)close(ends[1]);
    fx.server_out = ends[0];
    char line[128];
    assert_true(read_until(ends[0], line, sizeof line, "\n", DEADLINE_MS));
    line[strcspn(line, "\n")] = 0;
    (void)snprintf(fx.url, sizeof fx.url, "%s", line);
}

static inline void start_server(const char *listen)
{
    start_server_with(listen, NULL, NULL);
}

static inline void stop_server(int number)
{
    if (fx.server <= 0)
        return;
    assert_int_equal(kill(fx.server, number), 0);
    const int status = reap(fx.server, DEADLINE_MS);
    if (number != SIGKILL)
        assert_int_equal(status, 0);
    fx.server = 0;
    (void)close(fx.server_out);
}

static inline void connect_backend(const char *url)
{
    const struct sp_client_options o = {.url = url, .client_name = "test"};
    struct sp_err e;

    if (sp_remote_new(fx.loop, &o, &fx.backend, &e) < 0)
        fail_msg("sp_remote_new: %s", e.msg);
}

static inline int fx_setup_bare(void **state)
{
    struct sp_err e;

    (void)state;
    fx = (struct fixture){.fds = open_fds()};
    assert_int_equal(sp_loop_new(&fx.loop, &e), 0);
    return 0;
}

static inline int fx_setup(void **state)
{
    (void)fx_setup_bare(state);
    start_server("ws://127.0.0.1:0");
    connect_backend(fx.url);
    return 0;
}

static inline int fx_teardown(void **state)
{
    (void)state;
    sp_backend_free(fx.backend);
    sp_loop_cancel(fx.loop, &fx.tick);
    sp_loop_free(fx.loop);
    stop_server(SIGTERM);
    for (int i = 0; i < 2000 && open_fds() != fx.fds; i++)
        (void)poll(NULL, 0, 1); /* a look-up's thread ends after its answer */
    assert_int_equal(open_fds(), fx.fds);
    assert_no_children();
    return 0;
}

/* ---- facts ---- */

static inline void fx_facts(struct sp_backend_wait *w, const struct sp_backend_facts *facts,
                            const struct sp_err *e)
{
    (void)w;
    fx.facts_told++;
    if (facts != NULL)
        fx.facts = *facts;
    else
        fx.facts_error = *e;
}

static inline bool has_facts(void *what)
{
    (void)what;
    return fx.facts_told != 0;
}

#endif
