/* SPDX-License-Identifier: Apache-2.0 */
/*
 * surveyor: what the disk has at the paths of a policy, found out at once or in worker threads,
 * because the disk may answer late or never.
 *
 * A survey that hangs keeps its thread. Once SP_SURVEYOR_SHARE threads hang for a session, or all
 * threads hang, further surveys wait, and fail by the deadline of the start that requested them.
 */
#ifndef SP_CORE_SURVEYOR_H
#define SP_CORE_SURVEYOR_H

#include "os/loop.h"
#include "sandbox/survey.h"

#define SP_SURVEYOR_THREADS 64
#define SP_SURVEYOR_SHARE   8 /* of one session: others still get a thread when its disk hangs */

/* Resolves and surveys a policy; placeholders count as missing. In any thread. */
int sp_survey_policy(const struct sp_policy *p, const struct sp_fixed_places *fixed,
                     struct sp_survey *ret, struct sp_err *e);
/* The same, after making the missing directories of `fixed` that a command could make otherwise. */
int sp_survey_and_prepare(const struct sp_policy *p, const struct sp_fixed_places *fixed,
                          struct sp_survey *ret, struct sp_err *e);

struct sp_surveyor;
struct sp_survey_job;

/* Embedded in the caller. done is called from the loop; it may take over (and empty) the survey. */
struct sp_survey_request {
    void (*done)(struct sp_survey_request *a, const struct sp_policy *policy,
                 struct sp_survey *survey, int r, struct sp_err *e);
    struct sp_survey_job *job; /* NULL: no survey is pending */
};

/* `fixed` is copied. */
int sp_surveyor_new(struct sp_loop *loop, const struct sp_fixed_places *fixed,
                    struct sp_surveyor **ret, struct sp_err *e);
/* Threads that hang are detached, and clean up once their disk answers. */
void sp_surveyor_free(struct sp_surveyor *s);

/* The policy is copied. */
int sp_surveyor_ask(struct sp_surveyor *s, uint64_t session, const struct sp_policy *p,
                    struct sp_survey_request *a, struct sp_err *e);
void sp_surveyor_cancel(struct sp_survey_request *a); /* fine if no survey is pending */

#endif
