/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_backend: a backend whose process does what a script says, and that notes what it was asked.
 */
#ifndef SP_FAKE_BACKEND_H
#define SP_FAKE_BACKEND_H

#include <signal.h>
#include <stdio.h>

#include "base/auto.h"
#include "engine/job.h"
#include "os/loop.h"
#include "process_fixture.h"

enum fake_what {
    FAKE_END, /* of the script */
    FAKE_PAUSE,
    FAKE_STARTED,
    FAKE_CONFINED, /* started, under a sandbox */
    FAKE_REFUSED,
    FAKE_OUT,
    FAKE_ERR,
    FAKE_GAP,
    FAKE_EXITED,
    FAKE_SIGNALLED,
    FAKE_CLOSED,
    FAKE_FAILED,
};

struct fake_step {
    enum fake_what what;
    const char *text; /* output, or why */
    int number;       /* code, signal, milliseconds; output: how many times */
};

/* clang-format off */
#define END           {FAKE_END, NULL, 0}
#define PAUSE(ms)     {FAKE_PAUSE, NULL, (ms)}
#define STARTED       {FAKE_STARTED, NULL, 0}
#define CONFINED      {FAKE_CONFINED, NULL, 0}
#define REFUSED(why)  {FAKE_REFUSED, (why), 0}
#define OUT(text)     {FAKE_OUT, (text), 1}
#define OUTS(text, n) {FAKE_OUT, (text), (n)}
#define ERR(text)     {FAKE_ERR, (text), 1}
#define ERRS(text, n) {FAKE_ERR, (text), (n)}
#define GAP           {FAKE_GAP, NULL, 0}
#define EXITED(code)  {FAKE_EXITED, NULL, (code)}
#define SIGNALLED(n)  {FAKE_SIGNALLED, NULL, (n)}
#define CLOSED        {FAKE_CLOSED, NULL, 0}
#define FAILED(why)   {FAKE_FAILED, (why), 0}
/* clang-format on */

struct fake {
    struct sp_backend backend;
    struct sp_job *job;
    const struct fake_step *next;
    const struct fake_step *on_term, *on_kill, *on_terminate; /* what is played then; NULL: on */
    bool has_no_term;                                         /* refuses SIGTERM */
    struct sp_job_call *call;                                 /* to be answered */
    struct sp_deferred answer;
    uint64_t term_ms, terminate_ms; /* the turns in which it was asked */
    void (*terminated)(void);       /* told while it is asked */
    struct sp_timer timer;
    char asked[256]; /* "start term kill terminate release " */
};

static void fake_note(struct fake *f, const char *what)
{
    (void)strncat(f->asked, what, sizeof f->asked - strlen(f->asked) - 1);
    (void)strncat(f->asked, " ", sizeof f->asked - strlen(f->asked) - 1);
}

static inline void fake_tell(struct sp_job *j, const struct fake_step *s)
{
    struct sp_err e = {.code = SP_E_SYSTEM, .sys = ENOENT};
    const bool is_signal = s->what == FAKE_SIGNALLED;
    const struct sp_job_exit how = {.code = is_signal ? 128 + s->number : s->number,
                                    .signal = is_signal ? s->number : 0,
                                    .denied = -1};

    switch (s->what) {
    case FAKE_END:
    case FAKE_PAUSE:
        return;
    case FAKE_STARTED:
        j->ops->started(j, SP_JOB_SANDBOX_NONE);
        return;
    case FAKE_CONFINED:
        j->ops->started(j, SP_JOB_SANDBOX_LINUX);
        return;
    case FAKE_REFUSED:
        (void)snprintf(e.msg, sizeof e.msg, "%s", s->text);
        j->ops->refused(j, &e);
        return;
    case FAKE_OUT:
    case FAKE_ERR:
        for (int i = 0; i < s->number; i++)
            assert_true(j->ops->output(j, s->what == FAKE_OUT ? SP_STREAM_STDOUT : SP_STREAM_STDERR,
                                       sp_str_of(s->text)));
        return;
    case FAKE_GAP:
        j->ops->gap(j, 0);
        return;
    case FAKE_EXITED:
    case FAKE_SIGNALLED:
        j->ops->exited(j, &how);
        return;
    case FAKE_CLOSED:
        j->ops->closed(j);
        return;
    case FAKE_FAILED:
        j->ops->failed(j, s->text);
        return;
    }
}

static void fake_on_timer(struct sp_timer *t);

static void fake_play(struct fake *f, const struct fake_step *steps)
{
    const bool is_pause = steps->what == FAKE_PAUSE;
    const uint64_t due = test_now_ms() + (is_pause ? (uint64_t)steps->number : 0);

    f->next = is_pause ? steps + 1 : steps;
    if (f->next->what != FAKE_END)
        assert_true(sp_loop_timer(f->backend.loop, &f->timer, due, fake_on_timer));
}

/* All up to the next pause in one turn; what is told may have us play something else. */
static void fake_on_timer(struct sp_timer *t)
{
    struct fake *f = SP_CONTAINER(t, struct fake, timer);

    while (f->next != NULL && f->next->what != FAKE_END) {
        const struct fake_step *s = f->next++;

        if (s->what == FAKE_PAUSE) {
            fake_play(f, s);
            return;
        }
        fake_tell(f->job, s);
    }
}

static struct fake *fake_of(const struct sp_job *j)
{
    return SP_CONTAINER(j->backend, struct fake, backend);
}

static int fake_start(struct sp_backend *b, struct sp_job *j, const struct sp_start *l,
                      struct sp_err *e)
{
    struct fake *f = SP_CONTAINER(b, struct fake, backend);

    assert_false(l->is_tty);
    assert_false(l->wants_stdin);
    fake_note(f, "start");
    if (f->next == NULL)
        return sp_fail(e, SP_E_LIMIT, 0, "too many");
    f->job = j;
    fake_play(f, f->next);
    return 0;
}

static void fake_react(struct fake *f, const struct fake_step *steps)
{
    if (steps == NULL)
        return;
    sp_loop_cancel(f->backend.loop, &f->timer);
    fake_play(f, steps);
}

static void fake_on_answer(struct sp_deferred *d)
{
    struct fake *f = SP_CONTAINER(d, struct fake, answer);

    f->call->result = SP_JOB_REFUSED;
    f->call->fn(f->call);
}

static void fake_signal(struct sp_job *j, struct sp_job_call *c, int signal)
{
    struct fake *f = fake_of(j);

    f->call = c;
    f->term_ms = signal == SIGTERM ? sp_loop_now(f->backend.loop) : f->term_ms;
    if (f->has_no_term && signal == SIGTERM)
        sp_loop_defer(f->backend.loop, &f->answer, fake_on_answer);
    fake_note(f, signal == SIGTERM ? "term" : signal == SIGKILL ? "kill" : "signal");
    fake_react(f, signal == SIGTERM ? f->on_term : signal == SIGKILL ? f->on_kill : NULL);
}

static void fake_terminate(struct sp_job *j, struct sp_job_call *c)
{
    struct fake *f = fake_of(j);

    (void)c;
    f->terminate_ms = sp_loop_now(f->backend.loop);
    fake_note(f, "terminate");
    fake_react(f, f->on_terminate);
    if (f->terminated != NULL)
        f->terminated();
}

static void fake_release(struct sp_job *j)
{
    struct fake *f = fake_of(j);

    fake_note(f, "release");
    sp_loop_cancel(f->backend.loop, &f->timer);
    sp_loop_undefer(f->backend.loop, &f->answer);
    f->job = NULL;
    f->next = NULL;
}

static const struct sp_backend_job_ops fake_job_ops = {
    .start = fake_start,
    .signal = fake_signal,
    .terminate = fake_terminate,
    .release = fake_release,
};

static const struct sp_backend_ops fake_ops = {.job = &fake_job_ops};

static inline void fake_init(struct fake *f, struct sp_loop *loop, const struct fake_step *steps)
{
    *f = (struct fake){.backend = {.ops = &fake_ops, .loop = loop}, .next = steps};
}

#endif
