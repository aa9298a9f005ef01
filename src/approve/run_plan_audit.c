/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was decided, written down before anything comes of it (approvals.md 12.4).
 */
#include <stdio.h>

#include "approve/approvals_priv.h"
#include "base/auto.h"
#include "base/log.h"

static void note_free_run(const struct sp_run_plan *p)
{
    auto_buf struct sp_buf words = {0};

    if (p->is_free && p->has_policy && sp_words_add_quoted(&words, p->ask.argv))
        sp_log(SP_LOG_WARN, "without a sandbox: " SP_STR_FMT,
               (int)(words.len > 200 ? 200 : words.len), words.data);
}

/* At the default place one complaint is enough; a log that was asked for is a condition. */
static bool cannot_write(struct sp_approvals *a, const struct sp_err *why, struct sp_err *e)
{
    char reason[sizeof why->msg + 128];
    char text[sizeof reason + 64];

    (void)sp_error_text(why, reason, sizeof reason);
    if (a->options.must_audit) {
        (void)sp_fail(e, SP_E_FAILED, 0, "audit log: %s", reason);
        return false;
    }
    if (!a->has_complained) {
        (void)snprintf(text, sizeof text, "no audit log is kept: %s", reason);
        sp_approvals_warn(a, text);
    }
    a->has_complained = true;
    return true;
}

bool sp_approvals_audit(struct sp_approvals *a, const struct sp_audit_entry *entry,
                        struct sp_err *e)
{
    struct sp_err why = {0};

    return a->options.audit_log == NULL ||
           sp_audit_append(a->options.audit_log, entry, &why) == 0 || cannot_write(a, &why, e);
}

bool sp_run_plan_audit(struct sp_run_plan *p, const char *requirement, const char *decision,
                       enum sp_decider by, bool runs)
{
    if (runs)
        note_free_run(p);
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
        .decided_by = sp_decider_name(by),
        .attempt = !runs                        ? NULL
                   : sp_run_plan_is_confined(p) ? "confined"
                                                : "free",
    };
    if (sp_approvals_audit(p->approvals, &entry, &p->error))
        return true;
    p->state = SP_RUN_PLAN_FAILED;
    return false;
}
