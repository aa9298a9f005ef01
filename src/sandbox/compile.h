/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compile: a survey and what the kernel offers, made into a plan that a cell can carry out.
 */
#ifndef SP_SANDBOX_COMPILE_H
#define SP_SANDBOX_COMPILE_H

#include "sandbox/plan.h"
#include "sandbox/survey.h"

/* What this host lets us do, found out by doing it (core/probe.h). */
struct sp_powers {
    bool has_cells;       /* namespaces, mounts, a /proc of our own */
    bool has_own_network; /* ... and a network namespace with loopback */
    bool has_filter;      /* seccomp */
    bool has_notices;     /* refused calls can be told */
    int landlock;         /* level; 0: none */
    uint32_t failed_step; /* enum sp_build_step: why there are no cells; NONE: there are */
    int failed_errno;
};

/* What a plan needs and does not find here, and how to get it. For people. */
const char *sp_powers_remedy(uint32_t step, int err);

/* The highest tier that meets the policy: into *ret, a struct sp_plan. Refused with the missing
 * piece and its remedy if none does; never weaker than asked for. EMPTY ops without an inode are
 * placeholders, which the caller makes before the plan is used. */
int sp_plan_compile(const struct sp_survey *s, bool has_network, const struct sp_powers *powers,
                    struct sp_buf *ret, struct sp_err *e);

/* One line for each thing that the plan does, for people. false: no memory. */
bool sp_plan_print(const struct sp_plan *p, struct sp_buf *out);
const char *sp_tier_name(uint32_t tier);

#endif
