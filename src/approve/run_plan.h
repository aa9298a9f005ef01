/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan: one request's way from its judgement to its last attempt (approvals.md 3, 7, 10).
 *
 *   begin --> GO, or ASKING --> GO --denied--> retry --> GO, or ASKING --> GO
 *       '--------------'--> REFUSED, FAILED <--------------------'
 *
 * It keeps the policy, the rules and the profile that it began with: what changes meanwhile is for
 * others. Embedded in whoever makes the request.
 */
#ifndef SP_APPROVE_RUN_PLAN_H
#define SP_APPROVE_RUN_PLAN_H

#include "approve/approvals.h"
#include "approve/asking.h"
#include "approve/patch/patch_assess.h"
#include "approve/program.h"
#include "base/env_policy.h"

enum sp_run_plan_state {
    SP_RUN_PLAN_NEW,
    SP_RUN_PLAN_ASKING,  /* told will be called */
    SP_RUN_PLAN_GO,      /* is_free says how */
    SP_RUN_PLAN_REFUSED, /* by a policy, a rule or a person: reason says why */
    SP_RUN_PLAN_FAILED,  /* error says why */
};

/* Everything is borrowed until sp_run_plan_done. */
struct sp_run_plan_ask {
    struct sp_str call_id, turn_id, environment;
    struct sp_words argv;
    struct sp_str command; /* as a person would type it; n 0: argv, quoted */
    struct sp_str cwd;
    bool is_tty;
    enum sp_permissions permissions;
    const struct sp_grant *additional; /* normalised; of ADDITIONAL */
    struct sp_str justification;
    struct sp_words prefix;
    const struct sp_policy *policy; /* NULL: no sandbox */
    const char *policy_name;
    const char *policy_cwd;   /* of a policy that has none; NULL: none */
    bool keeps_policy;        /* the caller's own choice: no rule takes its sandbox away */
    struct sp_str key_more;   /* more of what an approval for the session is for; n 0: nothing */
    const char *shell;        /* the configured one; NULL: none */
    struct sp_str cannot_ask; /* why no question can be asked now; n 0: it can */
    bool nobody_answers;      /* no person would: only hooks and a reviewer are asked */
    struct sp_str environ;    /* of the command: NAME=VALUE strings with their NULs; p NULL: it runs
                                 elsewhere, and no rule takes its sandbox away */
    struct sp_words preface;  /* is judged, and shown, before argv; count 0: nothing */
    const struct sp_patch_changes
        *changes; /* a patch: what would become of which file; else NULL */
};

/* How a command runs whose sandbox was taken away (plan_free.c). */
#define SP_RUN_PLAN_MARKS 6
struct sp_run_plan_free {
    struct sp_program program; /* by a rule: the file that it allows; path NULL: as it is found */
    struct sp_str *argv;       /* NULL: as it was asked */
    uint32_t argc;
    bool drops_login; /* no login shell, no snapshot of one */
    struct sp_environ_var marks[SP_RUN_PLAN_MARKS];
    uint32_t mark_count;
    char git_count[16], git_key[32], git_value[32]; /* of marks */
};

struct sp_run_plan {
    /* The state is no longer ASKING. If the answer was given at once: from within the function. */
    void (*told)(struct sp_run_plan *p);
    enum sp_run_plan_state state;
    bool is_free;    /* the next attempt has no sandbox by decision */
    bool is_abort;   /* REFUSED: the turn is to be interrupted */
    bool has_policy; /* and this is it, with all that was granted: */
    struct sp_policy policy;
    struct sp_run_plan_free free; /* is_free: how */
    struct sp_buf reason;         /* REFUSED; short enough for a caller */
    struct sp_err error;

    /* its own */
    struct sp_approvals *approvals; /* NULL: not begun, or done */
    struct sp_run_plan_ask ask;
    struct sp_approval_policy approval;
    struct sp_rules *rules;
    struct sp_requirement requirement;
    struct sp_asking asking;
    struct sp_patch_assessment assessment; /* of a patch */
    struct sp_grant granted;               /* what policy has beyond the profile */
    struct sp_buf key, command;
    bool has_requirement, was_approved, is_retry, is_guess, is_preapproved;
};

/* Judges. Nothing has side effects but the question and the log. told may be NULL: nobody waits. */
void sp_run_plan_begin(struct sp_run_plan *p, struct sp_approvals *a,
                       const struct sp_run_plan_ask *ask, void (*told)(struct sp_run_plan *p));

/*
 * The attempt was denied by its sandbox; is_guess: by the words of its output alone. false: that is
 * the result. true: the state says what is next, and is_free how.
 */
bool sp_run_plan_retry(struct sp_run_plan *p, bool is_guess);

/* What is told of an attempt that may be repeated: before the question, and after a yes. */
#define SP_RUN_PLAN_FAILED_NOTICE "Execution failed: the sandbox denied it something (exit code %d)"
#define SP_RUN_PLAN_RETRY_NOTICE  "retrying command without sandbox"

/* Whether the next attempt has a sandbox. */
static inline bool sp_run_plan_is_confined(const struct sp_run_plan *p)
{
    return p->has_policy && !p->is_free && sp_profile_needs_sandbox(&p->policy.profile);
}

/* Whether sp_run_plan_retry would lead to a second attempt, or a question about one. */
bool sp_run_plan_can_retry(const struct sp_run_plan *p, bool is_guess);

/* An open question is withdrawn. Zero or done already is fine. */
void sp_run_plan_done(struct sp_run_plan *p);

/* Whether stored grants cover what is asked for besides (9.3): then nobody needs to be asked. */
bool sp_run_plan_is_granted(struct sp_approvals *a, struct sp_str environment,
                            struct sp_str turn_id, const struct sp_grant *additional,
                            const struct sp_policy *policy);

#endif
