/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compile: turns a survey, together with the features of the host, into a plan for a cell (plan.c).
 *
 * Looks at the disk itself for /run and the directories that name lookups need in it. The survey
 * has no marks for these: a cell is reused although they have changed.
 */
#ifndef SP_SANDBOX_COMPILE_H
#define SP_SANDBOX_COMPILE_H

#include "sandbox/plan.h"
#include "sandbox/survey.h"

/* Sandbox features of this host, found by trying them (core/cell_child.h). */
struct sp_host_features {
    bool has_full_tier;   /* namespaces, mounts, our own /proc */
    bool has_own_network; /* and a network namespace with loopback */
    bool has_filter;      /* seccomp filters */
    bool has_notices;     /* seccomp notifications of refused calls */
    int landlock;         /* ABI level; 0: none */
    uint32_t failed_step; /* enum sp_build_step that prevents cells; NONE: has_full_tier */
    int failed_errno;
};

/* A setting that makes the failed step work, as text for users. */
const char *sp_host_features_remedy(uint32_t step, int err);

/* Appends a struct sp_plan for the highest available tier to *ret. Of `network` only the network
 * counts. Never weaker than the policy: if
 * no tier can enforce it, fails with the missing feature and its remedy. EMPTY ops without an inode
 * are placeholders, which the caller creates before the plan is used. */
int sp_plan_compile(const struct sp_survey *s, const struct sp_profile *network,
                    const struct sp_host_features *host_features, struct sp_buf *ret,
                    struct sp_err *e);

/* Prints the plan for users, one line per property and place. false: no memory. */
bool sp_plan_print(const struct sp_plan *p, struct sp_buf *out);
/* The plan as one JSON object, with a newline. */
bool sp_plan_add_json(const struct sp_plan *p, struct sp_buf *out);
const char *sp_tier_name(uint32_t tier); /* in JSON */

#endif
