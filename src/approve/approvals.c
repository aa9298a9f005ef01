/* SPDX-License-Identifier: Apache-2.0 */
#include "approve/approvals.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "approve/approvals_priv.h"
#include "base/log.h"

/* ---- begin and end ---- */

static void stored_grant_done(struct sp_stored_grant *g)
{
    free(g->environment);
    free(g->turn_id);
    sp_grant_done(&g->grant);
    *g = (struct sp_stored_grant){0};
}

void sp_approvals_free(struct sp_approvals *a)
{
    if (a == NULL)
        return;
    sp_network_free(a->network);
    while (a->grant_count > 0)
        stored_grant_done(&a->grants[--a->grant_count]);
    sp_cache_free(a->cache);
    free(a->tally.turn_id);
    free(a->strict_turn);
    sp_rules_unref(a->options.rules);
    free(a->fingerprint);
    sp_arena_done(&a->arena);
    free(a);
}

int sp_approvals_new(const struct sp_approvals_options *o, struct sp_approvals **ret,
                     struct sp_err *e)
{
    if (o->needs_hooks && o->hook_count == 0 && o->reviewer == NULL)
        return sp_fail(e, SP_E_STATE, 0, "permission hooks are configured, and none was opened");
    struct sp_approvals *a = calloc(1, sizeof *a);
    if (a == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "prepare approvals");
    a->options = *o;
    sp_list_init(&a->asking);
    a->options.rules = o->rules == NULL ? NULL : sp_rules_ref(o->rules);
    a->options.fingerprint.p = a->fingerprint = sp_str_dup(o->fingerprint);
    a->cache = sp_cache_new();
    if (a->fingerprint == NULL || a->cache == NULL ||
        !sp_arena_text(&a->arena, o->audit_log, &a->options.audit_log) ||
        !sp_arena_text(&a->arena, o->user_dir, &a->options.user_dir)) {
        sp_approvals_free(a);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "prepare approvals");
    }
    sp_cache_set_store(a->cache, &o->store);
    *ret = a;
    return 0;
}

void sp_approvals_restore(struct sp_approvals *a, struct sp_str key, bool covers_retry, void *kept)
{
    (void)sp_cache_restore(a->cache, key, covers_retry, kept); /* no memory: asked again */
}

void sp_approvals_warn(struct sp_approvals *a, const char *text)
{
    if (a->options.warn != NULL)
        a->options.warn(a->options.user, text);
    else
        sp_log(SP_LOG_WARN, "%s", text);
}

void sp_approvals_tell_kept(struct sp_approvals *a)
{
    char path[PATH_MAX];

    if (a->options.kept == NULL || a->options.user_dir == NULL)
        return;
    (void)snprintf(path, sizeof path, "%s/rules/default.rules", a->options.user_dir);
    a->options.kept(a->options.user, path);
}

/* ---- rules, policy, strictness ---- */

bool sp_approvals_set_rules(struct sp_approvals *a, struct sp_rules *rules,
                            struct sp_str fingerprint)
{
    struct sp_rules *before = a->options.rules;
    const bool is_in_file = a->options.user_dir != NULL && !a->options.ignores_user_dir;

    /* Amendments that are not in a file of the new set would be lost. */
    rules = sp_rules_renew(rules, is_in_file ? NULL : before, false, NULL);
    char *copy = rules == NULL ? NULL : sp_str_dup(fingerprint);
    if (copy == NULL) {
        sp_rules_unref(rules);
        return false;
    }
    /* Not only the key: the answers must not come back together with the rules of before. */
    if (!sp_str_eq(a->options.fingerprint, fingerprint))
        sp_cache_clear(a->cache);
    free(a->fingerprint);
    a->fingerprint = copy;
    a->options.fingerprint = (struct sp_str){copy, fingerprint.n};
    a->options.rules = rules;
    sp_network_rules_changed(a, before);
    sp_rules_unref(before);
    return true;
}

void sp_approvals_set_no_approver(struct sp_approvals *a, bool has_no_approver)
{
    a->options.has_no_approver = has_no_approver;
}

const struct sp_approval_policy *sp_approvals_policy(const struct sp_approvals *a)
{
    return &a->options.policy;
}

bool sp_approvals_can_ask(const struct sp_approvals *a)
{
    const struct sp_approvals_options *o = &a->options;

    return (o->approver != NULL && !o->has_no_approver) || o->reviewer != NULL ||
           o->hook_count != 0;
}

bool sp_approvals_is_strict(const struct sp_approvals *a, struct sp_str turn_id)
{
    return a->options.reviewer != NULL &&
           (a->options.strict_review ||
            (a->strict_turn != NULL && sp_str_eq(sp_str_of(a->strict_turn), turn_id)));
}

/* ---- grants ---- */

/* Merges all grants for this environment and turn (NULL: every turn) into *ret, which is zero
 * before. */
static int merge_granted(const struct sp_approvals *a, struct sp_str environment,
                         const struct sp_str *turn_id, struct sp_grant *ret, struct sp_err *e)
{
    for (size_t i = 0; i < a->grant_count; i++) {
        struct sp_grant both = {0};
        const struct sp_stored_grant *g = &a->grants[i];

        if (!sp_str_eq(sp_str_of(g->environment), environment) ||
            (g->turn_id != NULL && turn_id != NULL && !sp_str_eq(sp_str_of(g->turn_id), *turn_id)))
            continue;
        const int r = sp_grant_merge(ret, &g->grant, &both, e);
        if (r < 0)
            return r;
        sp_grant_done(ret);
        *ret = both;
    }
    return 0;
}

int sp_approvals_widen(const struct sp_approvals *a, struct sp_str environment,
                       const struct sp_str *turn_id, const struct sp_grant *more,
                       struct sp_profile *profile, struct sp_err *e)
{
    static const struct sp_grant nothing;
    struct sp_grant granted = {0};
    struct sp_grant all = {0};
    struct sp_profile wider;
    int r = merge_granted(a, environment, turn_id, &granted, e);

    if (r == 0)
        r = sp_grant_merge(&granted, more != NULL ? more : &nothing, &all, e);
    if (r == 0)
        r = sp_profile_widen(profile, &all, &wider, e);
    if (r == 0) {
        sp_profile_done(profile);
        *profile = wider;
    }
    sp_grant_done(&granted);
    sp_grant_done(&all);
    return r;
}

bool sp_approvals_cover(const struct sp_approvals *a, struct sp_str environment,
                        struct sp_str turn_id, const struct sp_grant *additional,
                        const struct sp_policy *policy)
{
    const struct sp_policy nothing = {0};
    struct sp_grant granted = {0};
    struct sp_grant both = {0};
    bool is_covered = false;

    if (a->grant_count == 0 || additional == NULL)
        return false;
    if (merge_granted(a, environment, &turn_id, &granted, NULL) == 0 &&
        sp_grant_intersect(&granted, additional, policy != NULL ? policy : &nothing, &both, NULL) ==
            0)
        is_covered = sp_profile_equal(&both.extra, &additional->extra);
    sp_grant_done(&both);
    sp_grant_done(&granted);
    return is_covered;
}

int sp_approvals_grant(struct sp_approvals *a, struct sp_str environment, struct sp_str turn_id,
                       const struct sp_grant *grant, bool is_strict, struct sp_err *e)
{
    struct sp_stored_grant g = {.environment = sp_str_dup(environment)};
    char *strict_turn = NULL;
    int r = 0;

    if (turn_id.n != 0) {
        g.turn_id = sp_str_dup(turn_id);
        strict_turn = is_strict ? sp_str_dup(turn_id) : NULL;
    }
    if (g.environment == NULL || (turn_id.n != 0 && g.turn_id == NULL) ||
        (turn_id.n != 0 && is_strict && strict_turn == NULL) ||
        !sp_profile_copy(&grant->extra, &g.grant.extra))
        r = sp_fail(e, SP_E_SYSTEM, ENOMEM, "keep a grant");
    if (r == 0)
        r = sp_grant_normalise(&g.grant, e);
    if (r < 0) {
        stored_grant_done(&g);
        free(strict_turn);
        return r;
    }
    if (strict_turn != NULL) {
        free(a->strict_turn);
        a->strict_turn = strict_turn;
    } else if (is_strict) {
        a->options.strict_review = true;
    }
    if (grant->extra.count == 0 && !grant->extra.has_network) { /* nothing to keep */
        stored_grant_done(&g);
        return 0;
    }
    if (a->grant_count == SP_GRANTS_MAX) {
        stored_grant_done(&a->grants[0]);
        memmove(&a->grants[0], &a->grants[1], (SP_GRANTS_MAX - 1) * sizeof a->grants[0]);
        a->grant_count--;
    }
    a->grants[a->grant_count++] = g;
    return 0;
}

/* ---- the audit log ---- */

bool sp_approvals_audit(struct sp_approvals *a, const struct sp_audit_entry *entry,
                        struct sp_err *e)
{
    struct sp_err why = {0};
    char reason[sizeof why.msg + 128];
    char text[sizeof reason + 64];

    if (a->options.audit_log == NULL)
        return true;
    const bool is_written = sp_audit_append(a->options.audit_log, entry, &why) == 0;
    if (!is_written)
        (void)sp_error_text(&why, reason, sizeof reason);
    if (a->options.must_audit && a->options.audited != NULL)
        a->options.audited(a->options.user, is_written ? NULL : reason);
    if (is_written)
        return true;
    if (a->options.must_audit) {
        (void)sp_fail(e, SP_E_FAILED, 0, "audit log: %s", reason);
        return false;
    }
    if (!a->has_complained) { /* the log at the default place is optional: warn once */
        (void)snprintf(text, sizeof text, "no audit log is kept: %s", reason);
        sp_approvals_warn(a, text);
    }
    a->has_complained = true;
    return true;
}

void sp_approvals_note_end(struct sp_approvals *a, struct sp_str call_id, struct sp_str environment,
                           const struct sp_command_receipt *receipt)
{
    const struct sp_audit_entry entry = {
        .call_id = call_id, .environment = environment, .receipt = receipt};
    struct sp_err e = {0};

    /* Nothing is left to be refused: a log that fails here is told, even if it is mandatory. */
    if (a->options.audits_receipts && receipt != NULL && !sp_approvals_audit(a, &entry, &e))
        sp_approvals_warn(a, e.msg);
}
