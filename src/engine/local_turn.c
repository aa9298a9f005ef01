/* SPDX-License-Identifier: Apache-2.0 */
/* local: what the owner of a job is told, a piece a turn, so that the noisy starve nobody. */
#include "base/auto.h"
#include "engine/local_priv.h"

#define TURN_BYTES (192U << 10)

void sp_local_wake(struct sp_local_task *t)
{
    sp_loop_defer(t->local->backend.loop, &t->turn, sp_local_turn);
}

/* ---- ends ---- */

/* Nothing more will be heard of it. Its place, its ring and its memory are free now. */
static void let_go(struct sp_local_task *t)
{
    t->is_over = true;
    sp_local_end_calls(t, false);
    sp_proc_free(t->proc);
    t->proc = NULL;
}

static void tell_lost(struct sp_local_task *t)
{
    const bool has_cell = t->proc->seat.cell != NULL;

    t->is_lost = true;
    let_go(t);
    t->job->ops->failed(t->job, has_cell ? "process output is broken" : "process cell ended");
}

static void tell_exit(struct sp_local_task *t)
{
    const struct sp_proc *p = t->proc;
    const struct sp_job_exit how = {
        .code = p->state.exit.code,
        .signal = p->state.exit.signal,
        .denied = p->was_denied,
        .denial = p->denial,
        .kernel = &p->state.exit,
    };

    t->has_told_exit = true;
    t->job->ops->exited(t->job, &how);
}

static void tell_closed(struct sp_local_task *t)
{
    let_go(t);
    t->job->ops->closed(t->job);
}

/* ---- the log ---- */

/* What is not taken comes again, and counts as read up to where it begins. */
static bool tell_output(struct sp_local_task *t, const struct sp_record *r)
{
    const struct sp_str bytes = {(const char *)r->data, r->len};

    if (t->job->ops->output(t->job, r->stream, bytes) || t->is_released)
        return !t->is_released;
    t->is_blocked = true;
    t->proc->sent.pos = r->pos;
    t->proc->sent.seq = r->seq - 1;
    t->proc->sent.bytes = r->bytes_before;
    return false;
}

/* true: go on with the next. */
static bool tell_record(struct sp_local_task *t, const struct sp_record *r)
{
    const struct sp_proc *p = t->proc;

    if (p->is_lost && r->seq > p->last_real_seq) {
        tell_lost(t);
        return false;
    }
    /* Retention may have forgotten the record of the exit, and never the exit. */
    if (!t->has_told_exit && p->state.exit_seq != 0 && r->seq >= p->state.exit_seq)
        tell_exit(t);
    if (t->is_released)
        return false;
    if (r->type == SP_RECORD_OUTPUT && r->len > 0)
        return tell_output(t, r);
    if (r->type == SP_RECORD_CLOSED) {
        tell_closed(t);
        return false;
    }
    return true;
}

/* The next record, or the word that some are missing before it. false: nothing to tell now. */
static bool tell_next(struct sp_local_task *t, uint32_t *told)
{
    struct sp_proc *p = t->proc;
    const uint64_t missed = p->sent.missed_bytes;
    struct sp_record r;

    if (sp_proc_next(p, &r) <= 0)
        return false;
    *told += r.len;
    if (p->sent.missed_bytes != missed)
        t->job->ops->gap(t->job, p->sent.missed_bytes - missed);
    return !t->is_released && tell_record(t, &r);
}

static void tell_log(struct sp_local_task *t)
{
    uint32_t told = 0;
    bool goes_on = true;

    while (goes_on && told < TURN_BYTES)
        goes_on = tell_next(t, &told);
    if (t->is_released || t->proc == NULL)
        return;
    sp_proc_served(t->proc);
    if (goes_on)
        sp_loop_again(t->local->backend.loop, &t->turn, sp_local_turn);
}

/* ---- a turn ---- */

static void tell_start(struct sp_local_task *t)
{
    t->has_told_started = true;
    if (t->proc != NULL) {
        t->job->ops->started(t->job, t->is_confined ? SP_JOB_SANDBOX_LINUX : SP_JOB_SANDBOX_NONE);
        return;
    }
    t->is_over = true;
    t->job->ops->refused(t->job, &t->refusal);
}

static bool is_answered(const struct sp_local_task *t)
{
    return t->refusal.code != SP_E_NONE || (t->proc != NULL && t->proc->life != SP_PROC_STARTING);
}

static void take_turn(struct sp_local_task *t)
{
    sp_local_check_calls(t);
    if (!sp_local_tell_calls(t))
        return;
    if (!t->has_told_started && is_answered(t))
        tell_start(t);
    if (!t->is_released && t->has_told_started && t->proc != NULL && !t->is_blocked)
        tell_log(t);
}

void sp_local_turn(struct sp_deferred *d)
{
    struct sp_local_task *t = SP_CONTAINER(d, struct sp_local_task, turn);

    t->is_telling = true;
    take_turn(t);
    t->is_telling = false;
    if (t->is_released)
        free(t);
}
