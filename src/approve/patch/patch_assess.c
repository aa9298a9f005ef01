/* SPDX-License-Identifier: Apache-2.0 */
#include "approve/patch/patch_assess.h"

#include <errno.h>
#include <stdlib.h>

#include "base/auto.h"
#include "sandbox/resolve.h"

static const char empty_patch[] = "patch rejected: empty patch";
static const char outside[] =
    "patch rejected: writing outside of the project; rejected by user approval settings";
static const char read_only[] =
    "patch rejected: writing is blocked by read-only sandbox; rejected by user approval settings";

struct assessor {
    const struct sp_patch_assess_ask *ask;
    struct sp_resolved rules;
    struct sp_patch_assessment *ret;
};

void sp_patch_assessment_done(struct sp_patch_assessment *a)
{
    if (a == NULL)
        return;
    for (uint32_t i = 0; i < a->parent_count; i++)
        free(a->parents[i]);
    free(a->parents);
    *a = (struct sp_patch_assessment){0};
}

/* ---- what is writable ---- */

static bool is_free(const struct sp_patch_assess_ask *ask)
{
    return ask->profile == NULL || ask->profile->profile.kind != SP_PROFILE_MANAGED;
}

static bool can_write(const struct assessor *a, const char *path)
{
    return path == NULL || is_free(a->ask) || sp_resolved_can_write(&a->rules, path, NULL, NULL);
}

/* ---- directories that would have to be writable ---- */

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The parents of all targets that the profile does not open, each once. */
static int find_parents(struct assessor *a, struct sp_err *e)
{
    const struct sp_patch_changes *c = a->ask->changes;
    struct sp_patch_assessment *r = a->ret;
    bool ok;
    uint32_t kept = 0;

    r->parents = calloc((size_t)c->count * 2 + 1, sizeof *r->parents);
    ok = r->parents != NULL;
    for (uint32_t i = 0; ok && i < c->count * 2; i++) {
        const char *path = i % 2 == 0 ? c->items[i / 2].full_path : c->items[i / 2].full_target;

        if (can_write(a, path))
            continue;
        const char *slash = strrchr(path, '/');
        const size_t n = slash == NULL || slash == path ? 1 : (size_t)(slash - path);
        r->parents[r->parent_count] = strndup(path, n);
        ok = r->parents[r->parent_count] != NULL;
        r->parent_count += ok;
    }
    if (!ok)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "assess a patch");
    if (r->parent_count > 1)
        qsort(r->parents, r->parent_count, sizeof *r->parents, by_text);
    for (uint32_t i = 0; i < r->parent_count; i++) {
        if (kept > 0 && strcmp(r->parents[kept - 1], r->parents[i]) == 0)
            free(r->parents[i]);
        else
            r->parents[kept++] = r->parents[i];
    }
    r->parent_count = kept;
    return 0;
}

/* ---- the decision ---- */

static int assess(struct assessor *a, struct sp_err *e)
{
    const struct sp_patch_assess_ask *ask = a->ask;
    const struct sp_patch_changes *c = ask->changes;
    bool can_write_all = true;
    bool has_root = is_free(ask) || a->rules.is_open || a->rules.is_full_write;

    a->ret->verdict = SP_PATCH_REJECT;
    a->ret->text = empty_patch;
    if (c->count == 0)
        return 0;
    for (uint32_t i = 0; can_write_all && i < c->count; i++)
        can_write_all =
            can_write(a, c->items[i].full_path) && can_write(a, c->items[i].full_target);
    for (size_t i = 0; !has_root && i < a->rules.count; i++)
        has_root = a->rules.facts[i].access == SP_ACCESS_WRITE;
    const bool needs_question = ask->policy.kind == SP_APPROVAL_UNTRUSTED ||
                                (!can_write_all && ask->policy.kind != SP_APPROVAL_ON_FAILURE) ||
                                (!is_free(ask) && !ask->has_sandbox);
    if (needs_question && !sp_approval_may_ask_by_guess(&ask->policy)) {
        a->ret->text = has_root ? outside : read_only;
        return 0;
    }
    a->ret->text = NULL;
    a->ret->verdict = needs_question ? SP_PATCH_QUESTION : SP_PATCH_APPROVE;
    return needs_question ? find_parents(a, e) : 0;
}

int sp_patch_assess(const struct sp_patch_assess_ask *ask, struct sp_patch_assessment *ret,
                    struct sp_err *e)
{
    struct sp_patch_assessment result = {.is_free = is_free(ask)};
    struct assessor a = {.ask = ask, .ret = &result};
    int r = ask->profile == NULL ? 0 : sp_resolve(ask->profile, &a.rules, e);

    if (r == 0)
        r = assess(&a, e);
    sp_resolved_done(&a.rules);
    if (r < 0)
        sp_patch_assessment_done(&result);
    else
        *ret = result;
    return r;
}
