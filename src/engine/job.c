/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/job.h"

#include "approve/run_plan.h"
#include "os/seccomp.h"
#include "sandbox/denial.h"
#include "sandbox/profile.h"

int sp_job_start(struct sp_backend *b, struct sp_job *j, const struct sp_job_ops *ops,
                 const struct sp_start *s, struct sp_err *e)
{
    if (s->argc == 0 || s->argv[0].n == 0)
        return sp_fail(e, SP_E_INVALID, 0, "missing program for %s spawn",
                       s->is_tty ? "PTY" : "pipe");
    struct sp_start start = *s;
    struct sp_env_request environ;
    if (s->policy != NULL && s->policy->profile.kind != SP_PROFILE_DISABLED && s->environ != NULL) {
        environ = *s->environ;
        environ.is_confined = true;
        environ.network = sp_profile_managed(&s->policy->profile);
        environ.has_no_network = !s->policy->profile.has_network && environ.network == NULL;
        start.environ = &environ;
    }
    sp_job_release(j); /* an ended job may be started again */
    *j = (struct sp_job){.backend = b, .ops = ops};
    const int r = b->ops->job->start(b, j, &start, e);
    if (r < 0)
        *j = (struct sp_job){0};
    return r;
}

static void begin_call(struct sp_job *j, struct sp_job_call *c)
{
    c->job = j;
    c->result = SP_JOB_OK;
    c->error = (struct sp_err){0};
    c->link = (struct sp_list){0};
}

void sp_job_write(struct sp_job *j, struct sp_job_call *c, struct sp_str bytes)
{
    begin_call(j, c);
    j->backend->ops->job->write(j, c, bytes);
}

void sp_job_close_stdin(struct sp_job *j, struct sp_job_call *c)
{
    begin_call(j, c);
    j->backend->ops->job->close_stdin(j, c);
}

bool sp_job_flush(struct sp_job *j, struct sp_job_call *c)
{
    if (j->backend->ops->job->flush == NULL)
        return false;
    begin_call(j, c);
    j->backend->ops->job->flush(j, c);
    return true;
}

bool sp_job_inspect(struct sp_job *j, struct sp_job_inspection *l)
{
    if (j->backend == NULL || j->backend->ops->job->inspect == NULL)
        return false;
    begin_call(j, &l->call);
    l->found = (struct sp_inspection){0};
    return j->backend->ops->job->inspect(j, l);
}

void sp_job_signal(struct sp_job *j, struct sp_job_call *c, int signal)
{
    begin_call(j, c);
    j->backend->ops->job->signal(j, c, signal);
}

void sp_job_resize(struct sp_job *j, struct sp_job_call *c, uint16_t rows, uint16_t cols)
{
    begin_call(j, c);
    j->backend->ops->job->resize(j, c, rows, cols);
}

void sp_job_terminate(struct sp_job *j, struct sp_job_call *c)
{
    begin_call(j, c);
    j->backend->ops->job->terminate(j, c);
}

void sp_job_go_on(struct sp_job *j)
{
    if (j->backend != NULL)
        j->backend->ops->job->go_on(j);
}

void sp_job_release(struct sp_job *j)
{
    if (j->backend == NULL)
        return;
    j->backend->ops->job->release(j);
    *j = (struct sp_job){0};
}

void sp_backend_ask_facts(struct sp_backend *b, struct sp_backend_wait *w)
{
    b->ops->ask_facts(b, w);
}

void sp_backend_forget_facts(struct sp_backend_wait *w)
{
    if (w->backend != NULL)
        w->backend->ops->forget_facts(w);
}

void sp_backend_free(struct sp_backend *b)
{
    if (b != NULL)
        b->ops->free(b);
}

void sp_job_apply_plan(struct sp_start *s, const struct sp_run_plan *p)
{
    s->policy = sp_run_plan_is_confined(p) ? &p->policy : NULL;
    if (!p->is_unconfined)
        return;
    if (p->unconfined.argv != NULL) {
        s->argv = p->unconfined.argv;
        s->argc = p->unconfined.argc;
    }
    if (p->unconfined.program.path != NULL) {
        s->file = sp_str_of(p->unconfined.program.path);
        s->dev = p->unconfined.program.dev;
        s->ino = p->unconfined.program.ino;
    }
}

/* ---- denials ---- */

bool sp_denied_is_likely(enum sp_job_sandbox sandbox, int exit_code, struct sp_str out,
                         struct sp_str err)
{
    struct sp_denial d;

    if (sandbox != SP_JOB_SANDBOX_LINUX || exit_code <= 0)
        return false;
    sp_denial_init(&d);
    sp_denial_feed(&d, SP_STREAM_STDOUT, out.p, out.n);
    sp_denial_feed(&d, SP_STREAM_STDERR, err.p, err.n);
    return sp_denial_is_likely(true, exit_code, &d);
}

bool sp_denied_judge(enum sp_job_sandbox sandbox, const struct sp_job_exit *how, struct sp_str out,
                     struct sp_str err)
{
    /* A lost connection leaves the code -1: the output then says nothing about a sandbox. */
    if (sandbox == SP_JOB_SANDBOX_NONE || how->code <= 0)
        return false;
    if (how->denied == 1 || (how->denial != NULL && how->denial->has_evidence))
        return true;
    return sp_denied_is_likely(sandbox, how->code, out, err);
}

const char *sp_denied_call_name(int call)
{
    return sp_syscall_name(call);
}
