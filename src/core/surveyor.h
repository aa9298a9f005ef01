/* SPDX-License-Identifier: Apache-2.0 */
/*
 * surveyor: surveys of policies in threads, because the disk may take long, or not answer at all.
 *
 * A survey that hangs keeps its thread. Once SP_SURVEYOR_SHARE threads hang for a session, or all
 * threads, further surveys wait, and fail by the deadline of the start that asked for them.
 */
#ifndef SP_CORE_SURVEYOR_H
#define SP_CORE_SURVEYOR_H

#include "os/loop.h"
#include "sandbox/survey.h"

#define SP_SURVEYOR_THREADS 64
#define SP_SURVEYOR_SHARE   8 /* of one session: others still find a thread when its disk hangs */

struct sp_surveyor;
struct sp_survey_job;

/* Embedded by who asks. done is called from the loop; the survey may be taken over (and emptied).
 */
struct sp_survey_ask {
    void (*done)(struct sp_survey_ask *a, const struct sp_policy *policy, struct sp_survey *survey,
                 int r, struct sp_err *e);
    struct sp_survey_job *job; /* NULL: nothing is under way */
};

/* What a thread does: everything that it uses is its own, or a copy. */
typedef int sp_survey_fn(const struct sp_policy *p, const struct sp_fixed_places *fixed,
                         struct sp_survey *ret, struct sp_err *e);

int sp_surveyor_new(struct sp_loop *loop, sp_survey_fn *fn, const struct sp_fixed_places *fixed,
                    struct sp_surveyor **ret, struct sp_err *e);
/* Threads that hang are left alone, and clean up when they do not any more. */
void sp_surveyor_free(struct sp_surveyor *s);

int sp_surveyor_ask(struct sp_surveyor *s, uint64_t session, const struct sp_policy *p,
                    struct sp_survey_ask *a, struct sp_err *e);
void sp_surveyor_cancel(struct sp_survey_ask *a); /* nothing under way: fine */

#endif
