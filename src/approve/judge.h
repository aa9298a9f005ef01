/* SPDX-License-Identifier: Apache-2.0 */
/*
 * judge: what a command needs before it may run: nothing, an answer to a question, or it may not
 * run. A pure function of the command, the rules, the policy and the profile, except that it stats
 * the files of matching rules.
 */
#ifndef SP_APPROVE_JUDGE_H
#define SP_APPROVE_JUDGE_H

#include "approve/rules/rules.h"
#include "sandbox/profile.h"

/* name, on the wire and in the configuration, in messages */
#define SP_APPROVALS(X)                        \
    X(UNTRUSTED, "untrusted", "UnlessTrusted") \
    X(ON_FAILURE, "on-failure", "OnFailure")   \
    X(ON_REQUEST, "on-request", "OnRequest")   \
    X(GRANULAR, "granular", "Granular")        \
    X(NEVER, "never", "Never")
enum sp_approval_kind {
#define X(name, wire, text) SP_APPROVAL_##name,
    SP_APPROVALS(X)
#undef X
        SP_APPROVAL_MAX
};

struct sp_approval_policy {
    enum sp_approval_kind kind;
    /* GRANULAR: which questions may be asked */
    bool sandbox_approval, rules, skill_approval, request_permissions, mcp_elicitations;
};
/* A name, or the JSON object {"granular":{...}}. SP_E_INVALID. */
int sp_approval_read(struct sp_str text, struct sp_approval_policy *ret, struct sp_err *e);
/* As messages name it: `Never`, `Granular(...)`. */
bool sp_approval_add_name(struct sp_buf *out, const struct sp_approval_policy *p);

enum sp_known_safe { SP_KNOWN_SAFE_LIST, SP_KNOWN_SAFE_OFF, SP_KNOWN_SAFE_LIST_GIT };

enum sp_permissions {
    SP_PERMISSIONS_DEFAULT,
    SP_PERMISSIONS_ESCALATED,
    SP_PERMISSIONS_ADDITIONAL,
};

/* The policy would ask, but there is no approver. */
#define SP_NO_APPROVER                                                                             \
    "approval required, but the client cannot answer questions; allow it by a rule, configure an " \
    "approver, or change the approval policy"

/* Whether the policy lets a question through; granular: its switch for this kind of question. That
 * of guesses and escalation is sandbox_approval. */
static inline bool sp_approval_may_ask(const struct sp_approval_policy *p, bool granular)
{
    return p->kind == SP_APPROVAL_UNTRUSTED || p->kind == SP_APPROVAL_ON_FAILURE ||
           p->kind == SP_APPROVAL_ON_REQUEST || (p->kind == SP_APPROVAL_GRANULAR && granular);
}

/* Guesses about segments that no rule matches. */
bool sp_judge_is_known_safe(struct sp_words segment, enum sp_known_safe how);
enum sp_danger { SP_DANGER_NONE, SP_DANGER_FORCED_RM, SP_DANGER_OTHER };
int sp_judge_danger(struct sp_words argv, enum sp_danger *ret, struct sp_err *e);

struct sp_judge_request {
    struct sp_words argv;
    const struct sp_rules *rules; /* NULL: none */
    struct sp_approval_policy policy;
    const struct sp_policy *profile; /* NULL: full access */
    enum sp_permissions permissions;
    bool is_preapproved;    /* a stored grant covers the additional permissions */
    struct sp_words prefix; /* the requested prefix_rule; count 0: none */
    /* A segment that is judged before those of the command: it can only add restrictions, and no
     * rule is offered. count 0: none. */
    struct sp_words preface;
    enum sp_known_safe known_safe;
    const char *shell; /* the configured one; NULL: none */
    /* Ignore allow rules, and offer none: the program that runs may not be the one they name
     * (program.h). */
    bool ignores_allow;
    bool has_no_approver; /* no approver: refusals say SP_NO_APPROVER */
};

enum sp_requirement_kind { SP_REQUIRE_NOTHING, SP_REQUIRE_ANSWER, SP_REQUIRE_REFUSAL };

struct sp_requirement {
    enum sp_requirement_kind kind;
    bool is_free; /* NOTHING: every segment has an allow rule, from a file that no command under the
                     profile may write. Whether the programs qualify as well, program.h knows. */
    struct sp_buf reason;      /* of the question (may be empty) or of the refusal */
    struct sp_words amendment; /* offered; count 0: none */
    struct sp_segments segments;
    struct sp_rule_matches matches; /* of all segments, for the audit log */
    void *impl;
};
void sp_requirement_done(struct sp_requirement *r);

/* The reason of a refusal for people: clients compare some of its texts, which name types of
 * theirs. */
struct sp_str sp_judge_plain_reason(struct sp_str reason);

/* Fails only for lack of memory. */
int sp_judge(const struct sp_judge_request *request, struct sp_requirement *ret, struct sp_err *e);

/* Whether a rule that allows this prefix would allow anything at all: `bash`, `python -c`, `git`.
 * No such rule is offered. */
bool sp_judge_is_too_wide(struct sp_words prefix);

/* Warns about each rule file that commands under this profile may write: its allow rules do not set
 * commands free. */
void sp_judge_tell_doubtful(const struct sp_rules *rules, const struct sp_policy *profile,
                            void (*warn)(void *user, const char *text), void *user);

/* Whether anything may run without a sandbox under this profile: not if it denies reads. */
bool sp_judge_may_run_free(const struct sp_policy *profile);

#endif
