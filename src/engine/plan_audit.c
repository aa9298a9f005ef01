/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was decided, written down before anything comes of it (approvals.md 12.4).
 */
#include <stdio.h>

#include "base/auto.h"
#include "base/log.h"
#include "engine/approvals_priv.h"

static void note_free_run(const struct sp_plan *p)
{
    auto_buf struct sp_buf words = {0};

    if (p->is_free && p->has_policy && sp_words_add_quoted(&words, p->ask.argv))
        sp_log(SP_LOG_WARN, "without a sandbox: " SP_STR_FMT,
               (int)(words.len > 200 ? 200 : words.len), words.data);
}

/* At the default place one complaint is enough; a log that was asked for is a condition. */
static bool cannot_write(struct sp_plan *p, const struct sp_error *why)
{
    struct sp_approvals *a = p->approvals;
    char reason[sizeof why->msg + 128];
    char text[sizeof reason + 64];

    (void)sp_error_text(why, reason, sizeof reason);
    if (a->options.must_audit) {
        (void)sp_fail(&p->error, SP_E_FAILED, 0, "audit log: %s", reason);
        p->state = SP_PLAN_FAILED;
        return false;
    }
    if (!a->has_complained) {
        (void)snprintf(text, sizeof text, "no audit log is kept: %s", reason);
        sp_approvals_warn(a, text);
    }
    a->has_complained = true;
    return true;
}

bool sp_plan_audit(struct sp_plan *p, const char *requirement, const char *decision,
                   const char *decided_by, bool runs)
{
    const struct sp_approvals_options *o = &p->approvals->options;
    struct sp_error e = {0};

    if (runs)
        note_free_run(p);
    if (o->audit_log == NULL)
        return true;
    const struct sp_audit_entry entry = {
        .call_id = p->ask.call_id,
        .environment = p->ask.environment,
        .cwd = p->ask.cwd,
        .command = p->ask.argv,
        .segments = &p->requirement.segments,
        .matches = &p->requirement.matches,
        .policy = &p->approval,
        .requirement = requirement,
        .decision = decision,
        .decided_by = decided_by,
        .attempt = !runs                    ? NULL
                   : sp_plan_is_confined(p) ? "confined"
                                            : "free",
    };
    return sp_audit_append(o->audit_log, &entry, &e) == 0 || cannot_write(p, &e);
}
