/* SPDX-License-Identifier: Apache-2.0 */
#include "core/probe.h"

#include <errno.h>

#include "base/log.h"
#include "core/cell_child.h"
#include "os/landlock.h"

struct trial {
    const char *program;
    struct sp_plan plan;
    uint32_t step; /* of its failure */
    int err;
};

static bool try_it(struct trial *t)
{
    auto_buf struct sp_buf plan = {0};
    struct sp_err e = {0};

    t->plan.version = SP_PLAN_VERSION;
    t->plan.bytes = t->plan.strings = sizeof t->plan;
    t->plan.view =
        t->plan.tier == SP_TIER_THIN && t->plan.landlock == 0 ? SP_VIEW_OPEN : SP_VIEW_READ;
    t->step = SP_BUILD_PLAN;
    t->err = ENOMEM;
    if (!sp_buf_add(&plan, &t->plan, sizeof t->plan))
        return false;
    const bool ok = sp_cell_try(t->program, &plan, &t->step, &t->err, &e) == 0;
    if (!ok)
        sp_log(SP_LOG_INFO, "trial of tier %s: %s", sp_tier_name(t->plan.tier), e.msg);
    return ok;
}

/* As it is, then without what a host may lack and a sandbox can do without. */
static bool try_without_extras(struct trial *t)
{
    bool ok = try_it(t);

    if (!ok && t->step == SP_BUILD_LANDLOCK && t->plan.tier == SP_TIER_CELL &&
        (t->err == ENOSYS || t->err == EOPNOTSUPP)) {
        t->plan.landlock = 0;
        ok = try_it(t);
    }
    if (!ok && t->step == SP_BUILD_SECCOMP) {
        t->plan.notifies = 0;
        ok = try_it(t);
    }
    return ok;
}

/* Nothing was learnt of this host: it is not said of it, and asked again. */
static int fail_for_now(const struct trial *t, struct sp_err *e)
{
    return sp_fail(e, SP_E_FAILED, t->err, "failed to prepare process sandbox; try again");
}

int sp_powers_probe(const char *program, struct sp_powers *ret, struct sp_err *e)
{
    const uint32_t landlock = (uint32_t)sp_landlock_abi();
    struct trial t = {
        .program = program,
        .plan = {.tier = SP_TIER_CELL, .net = SP_NET_OWN, .landlock = landlock, .notifies = 1}};

    *ret = (struct sp_powers){.landlock = (int)landlock};
    ret->has_own_network = ret->has_cells = try_without_extras(&t);
    if (!ret->has_cells && sp_cell_is_passing(t.err))
        return fail_for_now(&t, e);
    if (!ret->has_cells && (t.step == SP_BUILD_NAMESPACES || t.step == SP_BUILD_LOOPBACK)) {
        /* The network's namespace alone may be what is refused. */
        t.plan.net = SP_NET_FILTER;
        ret->has_cells = try_without_extras(&t);
        if (!ret->has_cells && sp_cell_is_passing(t.err))
            return fail_for_now(&t, e);
    }
    if (!ret->has_cells) {
        ret->failed_step = t.step;
        ret->failed_errno = t.err;
        t.plan = (struct sp_plan){
            .tier = SP_TIER_THIN, .net = SP_NET_FILTER, .landlock = landlock, .notifies = 1};
        ret->has_filter = try_without_extras(&t);
        if (!ret->has_filter && sp_cell_is_passing(t.err))
            return fail_for_now(&t, e);
        if (!ret->has_filter && t.step != SP_BUILD_SECCOMP) {
            ret->has_filter = true; /* it is something else: Landlock */
            ret->landlock = 0;
        }
    } else {
        ret->has_filter = true;
        ret->landlock = (int)t.plan.landlock;
    }
    ret->has_notices = t.plan.notifies != 0;
    return 0;
}
