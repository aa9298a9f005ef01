/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_plan: one request, from its judgement to its last attempt.
 *
 *   begin --> GO, or ASKING --> GO --denied--> retry --> GO, or ASKING --> GO
 *       '--------------'--> REFUSED, FAILED <--------------------'
 *
 * A plan keeps the policy, the rules and the profile that it began with; later changes do not
 * affect it. The struct is embedded in its owner.
 */
#ifndef SP_APPROVE_RUN_PLAN_H
#define SP_APPROVE_RUN_PLAN_H

#include "approve/approvals.h"
#include "approve/asking.h"
#include "approve/program.h"
#include "base/env.h"

enum sp_run_plan_state {
    SP_RUN_PLAN_NEW,
    SP_RUN_PLAN_ASKING,  /* `decided` will be called */
    SP_RUN_PLAN_GO,      /* is_free says how */
    SP_RUN_PLAN_REFUSED, /* by a policy, a rule or a person: reason says why */
    SP_RUN_PLAN_FAILED,  /* error says why */
};

/* Everything is borrowed until sp_run_plan_done. */
struct sp_run_plan_request {
    struct sp_str call_id, turn_id, environment;
    struct sp_words argv;
    struct sp_str command; /* for display; n 0: argv, quoted */
    struct sp_str cwd;
    bool is_tty;
    enum sp_permissions permissions;
    const struct sp_grant *additional; /* ADDITIONAL: normalised */
    struct sp_str justification;
    struct sp_words prefix;
    const struct sp_policy *policy; /* NULL: no sandbox */
    const char *policy_name;
    const char *policy_cwd;   /* for a policy without one; NULL: none */
    bool keeps_policy;        /* the caller chose the policy: no rule takes the sandbox away */
    struct sp_str key_more;   /* more of the key of an approval for the session; n 0: nothing */
    const char *shell;        /* the configured one; NULL: none */
    struct sp_str cannot_ask; /* why no question can be asked now; n 0: it can */
    bool has_no_approver;     /* no approver answers: only hooks and the reviewer are asked */
    struct sp_str environ;    /* of the command: NAME=VALUE strings with their NULs; p NULL: it runs
                                 elsewhere, and no rule takes its sandbox away */
    struct sp_words preface;  /* judged and shown before argv; count 0: none */
    const struct sp_patch_changes *changes; /* a patch: its changes; else NULL */
};

/* How a command without its sandbox runs. */
#define SP_RUN_PLAN_MARKS 6
struct sp_run_plan_unconfined {
    struct sp_program program; /* set free by a rule: the file; path NULL: found as usual */
    struct sp_str *argv;       /* NULL: as in the request */
    uint32_t argc;
    bool drops_login; /* no login shell, no snapshot of one */
    struct sp_env_var marks[SP_RUN_PLAN_MARKS];
    uint32_t mark_count;
    char git_count[16], git_key[32], git_value[32]; /* storage for marks */
};

/* What the changes of a patch need beyond the profile. */
struct sp_run_plan_patch {
    bool is_free;        /* no sandbox confines the patch, so links are refused */
    const char *refusal; /* "patch rejected: ..."; NULL: none */
    /* Directories that are opened for writing if the patch is approved: the parents of the targets
     * that the profile does not open. Each once; absolute. */
    char **parents;
    uint32_t parent_count;
};

struct sp_run_plan {
    /* Called when the state is no longer ASKING; from within the function if the answer came at
     * once. */
    void (*decided)(struct sp_run_plan *p);
    enum sp_run_plan_state state;
    bool is_unconfined; /* the next attempt runs without a sandbox */
    bool is_abort;      /* REFUSED: the turn is to be interrupted */
    bool has_policy;    /* policy is set, with all grants */
    struct sp_policy policy;
    /* What commands of this conversation may write, and may have written: the policy with the
     * grants of every turn. No file in there decides what runs without a sandbox. */
    struct sp_policy reach;
    struct sp_run_plan_unconfined unconfined; /* is_unconfined: how it runs */
    struct sp_buf reason;                     /* REFUSED: for the caller, truncated */
    struct sp_err error;

    /* private */
    struct sp_approvals *approvals; /* NULL: not begun, or done */
    struct sp_run_plan_request request;
    struct sp_approval_policy approval;
    struct sp_rules *rules;
    struct sp_requirement requirement;
    struct sp_asking asking;
    struct sp_run_plan_patch patch;
    struct sp_buf key, command;
    bool has_requirement, was_approved, is_retry, is_guess, is_preapproved;
};

/* Judges the request; asks and logs, nothing else. `decided` may be NULL. */
void sp_run_plan_begin(struct sp_run_plan *p, struct sp_approvals *a,
                       const struct sp_run_plan_request *request,
                       void (*decided)(struct sp_run_plan *p));

/* The sandbox denied the attempt something; is_guess: only its output says so. false: no second
 * attempt. true: the state says what is next, and is_unconfined how. */
bool sp_run_plan_retry(struct sp_run_plan *p, bool is_guess);

/* Notices for the caller: before the question about a retry, and after its approval. */
#define SP_RUN_PLAN_FAILED_NOTICE "Execution failed: the sandbox denied it something (exit code %d)"
#define SP_RUN_PLAN_RETRY_NOTICE  "retrying command without sandbox"

/* Whether the next attempt has a sandbox. */
static inline bool sp_run_plan_is_confined(const struct sp_run_plan *p)
{
    return p->has_policy && !p->is_unconfined && sp_profile_needs_sandbox(&p->policy.profile);
}

/* Whether sp_run_plan_retry would lead to a second attempt, or a question about one. */
bool sp_run_plan_can_retry(const struct sp_run_plan *p, bool is_guess);

/* Withdraws an open question. Zero or done before is fine. */
void sp_run_plan_done(struct sp_run_plan *p);

/* Takes all writes and the network away, to verify a patch. false: no memory. */
bool sp_run_plan_make_read_only(struct sp_profile *p);

#endif
