/* SPDX-License-Identifier: Apache-2.0 */
/* local: what the owner of a job asks. Nothing is answered before its turn. */
#include <errno.h>
#include <signal.h>

#include "base/auto.h"
#include "core/process_inspect.h"
#include "engine/local_priv.h"

#define MAX_QUEUED   (1U << 20) /* for a stdin that nobody reads */
#define TERMINATE_MS 100

static struct sp_local_task *task_of(const struct sp_job *j)
{
    return j->impl;
}

/* ---- lists ---- */

static void add(struct sp_local_calls *l, struct sp_job_call *c)
{
    c->impl = NULL;
    if (l->first == NULL)
        l->first = c;
    else
        l->last->impl = c;
    l->last = c;
}

static struct sp_job_call *take(struct sp_local_calls *l)
{
    struct sp_job_call *c = l->first;

    if (c != NULL)
        l->first = c->impl;
    return c;
}

static void answer(struct sp_local_task *t, struct sp_job_call *c, enum sp_job_result result)
{
    c->result = result;
    add(&t->answered, c);
    /* Not in this turn of the loop: who asks whenever it is answered would keep it from ending. */
    sp_loop_again(t->local->backend.loop, &t->turn, sp_local_turn);
}

static void answer_all(struct sp_local_task *t, struct sp_local_calls *l, enum sp_job_result result)
{
    struct sp_job_call *c;

    while ((c = take(l)) != NULL)
        answer(t, c, result);
}

static void refuse(struct sp_local_task *t, struct sp_job_call *c, int err, const char *what)
{
    (void)sp_fail(&c->error, SP_E_SYSTEM, err, "%s", what);
    answer(t, c, SP_JOB_REFUSED);
}

bool sp_local_tell_calls(struct sp_local_task *t)
{
    /* Who asks again while it is told is answered in the next turn. */
    struct sp_local_calls now = t->answered;
    struct sp_job_call *c;

    t->answered = (struct sp_local_calls){0};
    while (!t->is_released && (c = take(&now)) != NULL)
        c->fn(c);
    return !t->is_released;
}

/* ---- how it stands ---- */

/* Whether it has ended, whether or not that was told. */
static bool has_exited(const struct sp_local_task *t)
{
    return t->proc == NULL || t->proc->life >= SP_PROC_EXITED;
}

static bool is_starting(const struct sp_local_task *t)
{
    return t->proc != NULL && t->proc->life == SP_PROC_STARTING;
}

/* The cell went before it could be told how the process ended. */
static bool is_lost(const struct sp_local_task *t)
{
    return t->is_lost || (t->proc != NULL && t->proc->is_lost && t->proc->state.exit.code < 0);
}

static enum sp_job_result gone(const struct sp_local_task *t, struct sp_job_call *c)
{
    if (!is_lost(t))
        return SP_JOB_GONE;
    (void)sp_fail(&c->error, SP_E_FAILED, 0, "process cell ended");
    return SP_JOB_LOST;
}

/* ---- input ---- */

static enum sp_job_result input_result(const struct sp_local_task *t, struct sp_job_call *c)
{
    if (is_starting(t))
        return SP_JOB_NOT_YET;
    if (has_exited(t) || t->proc->input.state == SP_INPUT_BROKEN)
        return gone(t, c);
    return t->proc->input.state == SP_INPUT_OPEN ? SP_JOB_OK : SP_JOB_NO_STDIN;
}

static bool fits(const struct sp_input *in, size_t n)
{
    return in->bytes == 0 || (in->bytes <= MAX_QUEUED && n <= MAX_QUEUED - in->bytes);
}

void sp_local_write(struct sp_job *j, struct sp_job_call *c, struct sp_str bytes)
{
    static const struct sp_str once = {0}; /* no id: it is never sent twice */
    struct sp_local_task *t = task_of(j);
    enum sp_job_result result = input_result(t, c);

    if (result != SP_JOB_OK) {
        answer(t, c, result);
        return;
    }
    const enum sp_input_result r =
        fits(&t->proc->input, bytes.n) ? sp_proc_write(t->proc, once, bytes) : SP_INPUT_FULL;
    if (r == SP_INPUT_FAILED) {
        refuse(t, c, ENOMEM, "write to its stdin");
        return;
    }
    result = r == SP_INPUT_FULL ? SP_JOB_FULL : input_result(t, c); /* it may have closed it */
    answer(t, c, result);
}

void sp_local_close_stdin(struct sp_job *j, struct sp_job_call *c)
{
    struct sp_local_task *t = task_of(j);
    const enum sp_job_result result = input_result(t, c);
    const bool is_closing = result == SP_JOB_NO_STDIN && t->proc->input.state == SP_INPUT_CLOSING;

    if (result == SP_JOB_OK)
        (void)sp_input_close(&t->proc->input);
    answer(t, c, is_closing ? SP_JOB_OK : result);
}

static bool has_queued_input(const struct sp_local_task *t)
{
    return t->proc != NULL && t->proc->input.bytes > 0;
}

static void on_room(struct sp_waiter *w)
{
    struct sp_local_task *t = SP_CONTAINER(w, struct sp_local_task, on_room);

    if (has_queued_input(t))
        sp_waiters_add_first(&t->proc->on_room, w);
    else
        answer_all(t, &t->flushes, SP_JOB_OK);
}

void sp_local_flush(struct sp_job *j, struct sp_job_call *c)
{
    struct sp_local_task *t = task_of(j);

    if (!has_queued_input(t)) {
        const enum sp_job_result result = input_result(t, c);

        answer(t, c, result);
        return;
    }
    add(&t->flushes, c);
    t->on_room.fn = on_room;
    if (t->on_room.list == NULL)
        sp_waiters_add(&t->proc->on_room, &t->on_room);
}

/* ---- signals and sizes: the cell answers ---- */

struct request {
    struct sp_proc_call call;
    struct sp_local_task *task;
    struct sp_job_call *asker;
};

static void on_done(struct sp_waiter *w)
{
    struct request *r = SP_CONTAINER(w, struct request, call.waiter);
    struct sp_local_task *t = r->task;
    struct sp_job_call *c = r->asker;
    const int err = r->call.err;

    free(r);
    if (err == 0)
        answer(t, c, SP_JOB_OK);
    else if (is_lost(t))
        answer(t, c, gone(t, c));
    else
        refuse(t, c, err, "ask the process");
}

static struct request *new_request(struct sp_local_task *t, struct sp_job_call *c)
{
    struct request *r = calloc(1, sizeof *r);

    if (r == NULL) {
        refuse(t, c, ENOMEM, "ask the process");
        return NULL;
    }
    *r = (struct request){.call.waiter.fn = on_done, .task = t, .asker = c};
    return r;
}

void sp_local_signal(struct sp_job *j, struct sp_job_call *c, int signal)
{
    struct sp_local_task *t = task_of(j);

    if (is_starting(t)) {
        answer(t, c, SP_JOB_NOT_YET);
        return;
    }
    /* What is left of its group can still be killed. */
    if (t->proc == NULL || (has_exited(t) && (signal != SIGKILL || t->proc->is_lost))) {
        answer(t, c, SP_JOB_OK);
        return;
    }
    struct request *r = new_request(t, c);
    if (r != NULL)
        sp_proc_signal(t->proc, &r->call, signal);
}

void sp_local_resize(struct sp_job *j, struct sp_job_call *c, uint16_t rows, uint16_t cols)
{
    struct sp_local_task *t = task_of(j);

    if (is_starting(t)) {
        answer(t, c, SP_JOB_NOT_YET);
        return;
    }
    if (has_exited(t)) {
        const enum sp_job_result result = gone(t, c);

        answer(t, c, result);
        return;
    }
    if (!t->proc->is_tty) {
        (void)sp_fail(&c->error, SP_E_INVALID, 0, "the process has no terminal");
        answer(t, c, SP_JOB_REFUSED);
        return;
    }
    struct request *r = new_request(t, c);
    if (r != NULL)
        sp_proc_resize(t->proc, &r->call, rows, cols);
}

/* ---- terminate ---- */

static void on_kill_timer(struct sp_timer *timer)
{
    struct sp_local_task *t = SP_CONTAINER(timer, struct sp_local_task, kill_timer);

    answer_all(t, &t->terminates, SP_JOB_OK);
}

/* It is killed, or will be as soon as it has started; whoever asked waits for its end, but not
 * long. */
static void kill_now(struct sp_local_task *t)
{
    struct sp_loop *loop = t->local->backend.loop;

    if ((!is_starting(t) && !sp_proc_terminate(t->proc)) ||
        !sp_loop_timer(loop, &t->kill_timer, sp_loop_now(loop) + TERMINATE_MS, on_kill_timer))
        answer_all(t, &t->terminates, SP_JOB_OK);
}

void sp_local_terminate(struct sp_job *j, struct sp_job_call *c)
{
    struct sp_local_task *t = task_of(j);

    if (has_exited(t)) {
        answer(t, c, SP_JOB_OK);
        return;
    }
    add(&t->terminates, c);
    t->is_terminating = true;
    if (t->kill_timer.slot == 0)
        kill_now(t);
}

void sp_local_kill_late(struct sp_local_task *t)
{
    if (t->is_terminating)
        kill_now(t);
}

/* ---- a look ---- */

bool sp_local_look(struct sp_job *j, struct sp_job_look *l)
{
    struct sp_local_task *t = task_of(j);
    const struct sp_look_ask ask = {
        .wants_doing = l->wants_doing,
        .ports = l->ports,
        .port_count = l->port_count < SP_LOOK_PORTS ? l->port_count : SP_LOOK_PORTS,
    };

    if (is_starting(t)) {
        answer(t, &l->call, SP_JOB_NOT_YET);
    } else if (t->proc == NULL || is_lost(t)) {
        const enum sp_job_result result = gone(t, &l->call);

        answer(t, &l->call, result);
    } else {
        sp_proc_look(t->proc, &ask, &l->found);
        answer(t, &l->call, SP_JOB_OK);
    }
    return true;
}

/* ---- ends ---- */

void sp_local_check_calls(struct sp_local_task *t)
{
    if (has_exited(t)) {
        sp_loop_cancel(t->local->backend.loop, &t->kill_timer);
        answer_all(t, &t->terminates, SP_JOB_OK);
    }
}

void sp_local_end_calls(struct sp_local_task *t, bool is_dropped)
{
    struct sp_waiter *w;

    sp_loop_cancel(t->local->backend.loop, &t->start_timer);
    sp_loop_cancel(t->local->backend.loop, &t->kill_timer);
    sp_waiters_remove(&t->on_room);
    while (t->proc != NULL && (w = t->proc->on_done.first) != NULL) {
        struct request *r = SP_CONTAINER(w, struct request, call.waiter);

        sp_waiters_remove(w);
        if (!is_dropped)
            answer(t, r->asker, SP_JOB_OK); /* it has exited: there is nobody to be told */
        free(r);
    }
    if (is_dropped)
        return;
    answer_all(t, &t->terminates, SP_JOB_OK);
    answer_all(t, &t->flushes, SP_JOB_GONE);
}
