/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan of a patch: whether it may be applied, and what else it may write to then (approvals.md
 * 8, 14.4).
 */
#include "approve/approvals_priv.h"
#include "base/auto.h"

int sp_run_plan_assess_patch(struct sp_run_plan *p, struct sp_err *e)
{
    static const enum sp_requirement_kind kinds[] = {
        [SP_PATCH_REJECT] = SP_REQUIRE_REFUSAL,
        [SP_PATCH_APPROVE] = SP_REQUIRE_NOTHING,
        [SP_PATCH_QUESTION] = SP_REQUIRE_ANSWER,
    };
    const struct sp_patch_assess_ask ask = {
        .changes = p->ask.changes,
        .policy = p->approval,
        .profile = p->has_policy ? &p->policy : NULL,
        .has_sandbox = true, /* if there is none, its start will fail */
    };
    const int r = sp_patch_assess(&ask, &p->assessment, e);

    if (r == 0)
        p->requirement.kind = kinds[p->assessment.verdict];
    return r;
}

int sp_run_plan_open_parents(struct sp_run_plan *p, struct sp_err *e)
{
    struct sp_grant parents = {0};
    struct sp_profile wider;
    int r = 0;

    if (!p->has_policy)
        return 0;
    for (uint32_t i = 0; r == 0 && i < p->assessment.parent_count; i++)
        r = sp_profile_add(&parents.extra, SP_PLACE_PATH, SP_ACCESS_WRITE, false,
                           sp_str_of(p->assessment.parents[i]), (struct sp_str){0}, e);
    if (r == 0)
        r = sp_profile_widen(&p->policy.profile, &parents, &wider, e);
    sp_grant_done(&parents);
    if (r < 0)
        return r;
    sp_profile_done(&p->policy.profile);
    p->policy.profile = wider;
    return 0;
}

bool sp_run_plan_make_read_only(struct sp_profile *p)
{
    p->has_network = false;
    for (size_t i = 0; i < p->count; i++)
        if (p->entries[i].access == SP_ACCESS_WRITE)
            p->entries[i].access = SP_ACCESS_READ;
    if (p->kind == SP_PROFILE_MANAGED && !p->is_unrestricted)
        return true;
    /* All may be read then, and nothing that it says of places counts. */
    sp_profile_done(p);
    return sp_profile_add(p, SP_PLACE_ROOT, SP_ACCESS_READ, false, (struct sp_str){0},
                          (struct sp_str){0}, NULL) == 0;
}

/* Whether fn is true of the key of every file that is touched. */
static bool for_all_keys(const struct sp_run_plan *p,
                         bool (*fn)(struct sp_cache *c, struct sp_str key))
{
    for (uint32_t i = 0; i < p->ask.changes->count; i++) {
        const struct sp_patch_change *change = &p->ask.changes->items[i];
        const char *const paths[] = {change->full_path, change->full_target};

        for (size_t k = 0; k < sizeof paths / sizeof paths[0]; k++) {
            auto_buf struct sp_buf key = {0};

            if (paths[k] == NULL)
                continue;
            if (!sp_cache_add_patch_key(&key, p->ask.environment, sp_str_of(paths[k])) ||
                !fn(p->approvals->cache, (struct sp_str){key.data, key.len}))
                return false;
        }
    }
    return true;
}

static bool has(struct sp_cache *c, struct sp_str key)
{
    return sp_cache_has(c, key, false);
}

static bool store(struct sp_cache *c, struct sp_str key)
{
    return sp_cache_store(c, key, false);
}

bool sp_run_plan_is_patch_cached(const struct sp_run_plan *p)
{
    return for_all_keys(p, has);
}

bool sp_run_plan_cache_patch(struct sp_run_plan *p)
{
    return for_all_keys(p, store);
}
