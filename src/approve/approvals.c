/* SPDX-License-Identifier: Apache-2.0 */
#include "approve/approvals.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "approve/approvals_priv.h"
#include "base/log.h"

/* ---- beginning and end ---- */

static bool copy_text(const char **text)
{
    if (*text == NULL)
        return true;
    *text = strdup(*text);
    return *text != NULL;
}

static bool copy_fingerprint(struct sp_str *s)
{
    char *copy = strndup(s->n == 0 ? "" : s->p, s->n);

    if (copy == NULL)
        return false;
    s->p = copy;
    return true;
}

static void forget_grant(struct sp_stored_grant *g)
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
        forget_grant(&a->grants[--a->grant_count]);
    sp_cache_free(a->cache);
    free(a->tally.turn_id);
    free(a->strict_turn);
    sp_rules_unref(a->options.rules);
    free((char *)(uintptr_t)a->options.audit_log);
    free((char *)(uintptr_t)a->options.user_dir);
    free((char *)(uintptr_t)a->options.fingerprint.p);
    free(a);
}

int sp_approvals_new(const struct sp_approvals_options *o, struct sp_approvals **ret,
                     struct sp_err *e)
{
    if (o->needs_hooks && o->hook_count == 0 && o->reviewer == NULL)
        return sp_fail(e, SP_E_STATE, 0, "permission hooks are configured, and none was opened");
    struct sp_approvals *a = calloc(1, sizeof *a);
    bool ok;
    if (a == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "prepare approvals");
    a->options = *o;
    a->options.rules = o->rules == NULL ? NULL : sp_rules_ref(o->rules);
    ok = copy_text(&a->options.audit_log); /* all three: what is not copied is not ours to free */
    ok = copy_text(&a->options.user_dir) && ok;
    if (!copy_fingerprint(&a->options.fingerprint)) {
        a->options.fingerprint = (struct sp_str){0};
        ok = false;
    }
    a->cache = sp_cache_new();
    if (!ok || a->cache == NULL) {
        sp_approvals_free(a);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "prepare approvals");
    }
    *ret = a;
    return 0;
}

void sp_approvals_warn(struct sp_approvals *a, const char *text)
{
    if (a->options.warn != NULL)
        a->options.warn(a->options.user, text);
    else
        sp_log(SP_LOG_WARN, "%s", text);
}

/* ---- what changes while it lives ---- */

bool sp_approvals_set_rules(struct sp_approvals *a, struct sp_rules *rules,
                            struct sp_str fingerprint)
{
    struct sp_rules *before = a->options.rules;
    const bool is_in_file = a->options.user_dir != NULL && !a->options.ignores_user_dir;

    /* What was accepted is in a file that was read, or would be lost. */
    rules = sp_rules_with_amendments(rules, is_in_file ? NULL : before, NULL);
    if (rules == NULL || !copy_fingerprint(&fingerprint)) {
        sp_rules_unref(rules);
        return false;
    }
    free((char *)(uintptr_t)a->options.fingerprint.p);
    a->options.fingerprint = fingerprint;
    a->options.rules = rules;
    sp_rules_unref(before);
    return true;
}

void sp_approvals_set_policy(struct sp_approvals *a, const struct sp_approval_policy *p)
{
    a->options.policy = *p;
}

void sp_approvals_set_nobody_answers(struct sp_approvals *a, bool nobody_answers)
{
    a->options.nobody_answers = nobody_answers;
}

const struct sp_approval_policy *sp_approvals_policy(const struct sp_approvals *a)
{
    return &a->options.policy;
}

bool sp_approvals_can_ask(const struct sp_approvals *a)
{
    const struct sp_approvals_options *o = &a->options;

    return (o->approver != NULL && !o->nobody_answers) || o->reviewer != NULL || o->hook_count != 0;
}

bool sp_approvals_is_strict(const struct sp_approvals *a, struct sp_str turn_id)
{
    return a->options.reviewer != NULL &&
           (a->options.strict_review ||
            (a->strict_turn != NULL && sp_str_eq(sp_str_of(a->strict_turn), turn_id)));
}

int sp_approvals_be_strict(struct sp_approvals *a, struct sp_str turn_id, struct sp_err *e)
{
    char *turn = turn_id.n == 0 ? NULL : strndup(turn_id.p, turn_id.n);
    if (turn_id.n != 0 && turn == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "review everything");
    if (turn == NULL) {
        a->options.strict_review = true;
        return 0;
    }
    free(a->strict_turn);
    a->strict_turn = turn;
    return 0;
}

static void complain(struct sp_approvals *a, const struct sp_err *why)
{
    char reason[sizeof why->msg + 128];
    char text[sizeof reason + 64];

    (void)snprintf(text, sizeof text, "Failed to apply execpolicy amendment: %s",
                   sp_error_text(why, reason, sizeof reason));
    sp_approvals_warn(a, text);
}

void sp_approvals_amend(struct sp_approvals *a, struct sp_words prefix)
{
    struct sp_err e = {0};

    if (a->options.user_dir != NULL && sp_rules_amend_prefix(a->options.user_dir, prefix, &e) < 0) {
        complain(a, &e);
        return;
    }
    struct sp_rules *more = sp_rules_with_prefix(a->options.rules, prefix, &e);
    if (more == NULL) {
        complain(a, &e);
        return;
    }
    sp_rules_unref(a->options.rules);
    a->options.rules = more;
}

/* ---- grants ---- */

static bool is_for(const struct sp_stored_grant *g, struct sp_str environment,
                   struct sp_str turn_id)
{
    return sp_str_eq(sp_str_of(g->environment), environment) &&
           (g->turn_id == NULL || sp_str_eq(sp_str_of(g->turn_id), turn_id));
}

int sp_approvals_granted(const struct sp_approvals *a, struct sp_str environment,
                         struct sp_str turn_id, struct sp_grant *ret, struct sp_err *e)
{
    for (size_t i = 0; i < a->grant_count; i++) {
        struct sp_grant both = {0};

        if (!is_for(&a->grants[i], environment, turn_id))
            continue;
        const int r = sp_grant_merge(ret, &a->grants[i].grant, &both, e);
        if (r < 0)
            return r;
        sp_grant_done(ret);
        *ret = both;
    }
    return 0;
}

int sp_approvals_grant(struct sp_approvals *a, struct sp_str environment, struct sp_str turn_id,
                       const struct sp_grant *grant, struct sp_err *e)
{
    struct sp_stored_grant g = {.environment = strndup(environment.p, environment.n)};
    int r = 0;

    if (turn_id.n != 0)
        g.turn_id = strndup(turn_id.p, turn_id.n);
    if (g.environment == NULL || (turn_id.n != 0 && g.turn_id == NULL) ||
        !sp_profile_copy(&grant->extra, &g.grant.extra))
        r = sp_fail(e, SP_E_SYSTEM, ENOMEM, "keep a grant");
    if (r == 0)
        r = sp_grant_normalise(&g.grant, e);
    if (r < 0) {
        forget_grant(&g);
        return r;
    }
    if (a->grant_count == SP_GRANTS_MAX) {
        forget_grant(&a->grants[0]);
        memmove(&a->grants[0], &a->grants[1], (SP_GRANTS_MAX - 1) * sizeof a->grants[0]);
        a->grant_count--;
    }
    a->grants[a->grant_count++] = g;
    return 0;
}
