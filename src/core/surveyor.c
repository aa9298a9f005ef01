/* SPDX-License-Identifier: Apache-2.0 */
#include "core/surveyor.h"

#include <errno.h>
#include <stdlib.h>

#include "base/auto.h"
#include "core/workers.h"
#include "sandbox/hidden_paths.h"

#define STACK_BYTES (512U << 10)
#define IDLE_S      5

struct sp_survey_job {
    struct sp_work work;
    struct sp_survey_ask *ask; /* used by the loop's thread only; NULL: cancelled */
    struct sp_surveyor *surveyor;
    struct sp_policy policy;
    struct sp_survey survey;
    struct sp_err e;
    int r;
};

/* Lives until the last thread has ended: threads that hang still use fn and fixed. */
struct sp_surveyor {
    struct sp_workers *workers;
    sp_survey_fn *fn;
    struct sp_hidden_paths hidden_paths;
    struct sp_fixed_places fixed; /* points into hidden_paths */
};

static void free_job(struct sp_survey_job *j)
{
    sp_policy_done(&j->policy);
    sp_survey_done(&j->survey);
    free(j);
}

static void run_job(struct sp_work *w)
{
    struct sp_survey_job *j = SP_CONTAINER(w, struct sp_survey_job, work);

    j->r = j->surveyor->fn(&j->policy, &j->surveyor->fixed, &j->survey, &j->e);
}

static void on_job_done(struct sp_work *w)
{
    struct sp_survey_job *j = SP_CONTAINER(w, struct sp_survey_job, work);
    struct sp_survey_ask *a = j->ask;

    if (a != NULL) {
        a->job = NULL;
        a->done(a, &j->policy, &j->survey, j->r, &j->e);
    }
    free_job(j);
}

static void drop_job(struct sp_work *w)
{
    free_job(SP_CONTAINER(w, struct sp_survey_job, work));
}

static void on_ended(void *user)
{
    struct sp_surveyor *s = user;

    sp_hidden_paths_done(&s->hidden_paths);
    free(s);
}

int sp_surveyor_new(struct sp_loop *loop, sp_survey_fn *fn, const struct sp_fixed_places *fixed,
                    struct sp_surveyor **ret, struct sp_err *e)
{
    struct sp_surveyor *s = calloc(1, sizeof *s);

    if (s == NULL || !sp_hidden_paths_copy(fixed, &s->hidden_paths)) {
        if (s != NULL)
            on_ended(s);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make the surveyor");
    }
    s->fn = fn;
    s->fixed = sp_hidden_paths_places(&s->hidden_paths);
    const struct sp_workers_options o = {
        .threads = SP_SURVEYOR_THREADS,
        .share = SP_SURVEYOR_SHARE,
        .idle_s = IDLE_S,
        .stack_bytes = STACK_BYTES,
        .run = run_job,
        .done = on_job_done,
        .drop = drop_job,
        .user = s,
        .ended = on_ended,
    };
    const int r = sp_workers_new(loop, &o, &s->workers, e);
    if (r < 0)
        on_ended(s);
    else
        *ret = s;
    return r;
}

void sp_surveyor_free(struct sp_surveyor *s)
{
    if (s != NULL)
        (void)sp_workers_free(s->workers);
}

int sp_surveyor_ask(struct sp_surveyor *s, uint64_t session, const struct sp_policy *p,
                    struct sp_survey_ask *a, struct sp_err *e)
{
    struct sp_survey_job *j = calloc(1, sizeof *j);

    if (j == NULL || !sp_policy_copy(p, &j->policy)) {
        free(j);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "survey the sandbox policy");
    }
    j->ask = a;
    j->surveyor = s;
    j->work.key = session;
    const int r = sp_workers_add(s->workers, &j->work);
    if (r != 0) { /* no thread: fail now, the caller's deadline is seconds away */
        (void)sp_workers_withdraw(s->workers, &j->work);
        free_job(j);
        return sp_fail(e, SP_E_SYSTEM, r, "survey the sandbox policy");
    }
    a->job = j;
    return 0;
}

void sp_surveyor_cancel(struct sp_survey_ask *a)
{
    struct sp_survey_job *j = a->job;

    a->job = NULL;
    if (j == NULL)
        return;
    j->ask = NULL;
    /* A waiting job is freed now: it would stay for as long as the threads hang. */
    if (sp_workers_withdraw(j->surveyor->workers, &j->work))
        free_job(j);
}
