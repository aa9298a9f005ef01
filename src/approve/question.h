/* SPDX-License-Identifier: Apache-2.0 */
/*
 * question: what a person is asked before a command or a patch runs, what may be answered, and both
 * as JSON.
 */
#ifndef SP_APPROVE_QUESTION_H
#define SP_APPROVE_QUESTION_H

#include "approve/judge.h"
#include "approve/patch/patch.h"

enum sp_question_kind {
    SP_QUESTION_RUN,         /* a rule or the policy asks: may it run in its sandbox? */
    SP_QUESTION_ESCALATE,    /* the caller asks to run it without a sandbox */
    SP_QUESTION_ADDITIONAL,  /* the caller asks for more than its sandbox allows */
    SP_QUESTION_RETRY,       /* the sandbox denied it something: run it again without? */
    SP_QUESTION_PATCH,       /* files are to be changed */
    SP_QUESTION_PERMISSIONS, /* may commands do `additional` from now on? */
    SP_QUESTION_NETWORK,     /* a running command wants to reach a host that is not listed */
};

struct sp_approval_question {
    uint64_t id; /* for the answer; not 0, unique per asking side */
    enum sp_question_kind kind;
    struct sp_str call_id, turn_id, environment;
    struct sp_str approval_id; /* of a question about a part of the call; n 0: about the call */
    int64_t at_ms;             /* since 1970, UTC */
    struct sp_str command;     /* as a person would type it */
    struct sp_words argv;
    struct sp_words preface; /* env NAME=VALUE ...: variables that the caller sets; count 0: none */
    struct sp_str cwd, reason; /* reason may be empty */
    const struct sp_segments *segments;
    struct sp_words amendment;         /* the rule that is offered; count 0: none */
    const struct sp_grant *additional; /* additional permissions; NULL: none */
    bool is_free;                      /* approval means: without a sandbox */
    bool is_guess; /* RETRY: only its output suggests a denial, and it may print anything */
    const struct sp_policy *profile;        /* profile of the command; NULL: none */
    const char *profile_name;               /* NULL: it has none */
    const struct sp_patch_changes *changes; /* PATCH; else NULL */
    struct sp_str grant_root;               /* PATCH: n 0: none */
    /* PATCH: directories outside of what the sandbox allows to write, opened by a yes. */
    char *const *opened;
    uint32_t opened_count;
    /* NETWORK; else empty. argv is what is asked for, asking_command the command that runs. */
    struct sp_str asking_command; /* as a person would type it */
    struct sp_str shown_host;     /* `github.com, port 22, by ssh` */
    struct sp_str host;           /* offered for a permanent allow or deny rule */
    const char *protocol;         /* "http", "https", "socks5_tcp", "socks5_udp" */
};

/* Whether the amendment may be answered; other questions only show it. */
bool sp_question_offers_amendment(const struct sp_approval_question *q);
/* Whether an amendment for the host may be answered. */
bool sp_question_offers_host(const struct sp_approval_question *q);

enum sp_decision_kind {
    SP_DECISION_DENIED, /* also for answers that cannot be parsed */
    SP_DECISION_APPROVED,
    SP_DECISION_APPROVED_FOR_SESSION,
    SP_DECISION_AMENDMENT, /* approved, and the rule is kept; must be the offered one */
    SP_DECISION_NETWORK_AMENDMENT,
    SP_DECISION_TIMED_OUT,
    SP_DECISION_ABORT, /* denied, and the turn is interrupted */
    /* From programs. From a person both are a denial. */
    SP_DECISION_NO_OPINION,
    SP_DECISION_FAILED, /* rejection says how */
    SP_DECISION_MAX
};
const char *sp_decision_name(enum sp_decision_kind k); /* as in the audit log */

/* Who decided, as in the audit log. Zero is NONE, so that no decision is logged as a person's
 * unless it says so. */
enum sp_decider {
    SP_DECIDER_NONE, /* the question was withdrawn before an answer */
    SP_DECIDER_USER, /* a person, also through a client or a host */
    SP_DECIDER_PROGRAM,
    SP_DECIDER_REVIEWER,
    SP_DECIDER_HOOK,
    SP_DECIDER_CACHE,
    SP_DECIDER_RULE,
    SP_DECIDER_CONFIG,
};
const char *sp_decider_name(enum sp_decider by);

struct sp_decision {
    enum sp_decision_kind kind;
    enum sp_decider by;        /* of the approvers: USER, PROGRAM, or NONE */
    struct sp_str rejection;   /* DENIED: text for the caller; n 0: the default */
    struct sp_words amendment; /* AMENDMENT */
    struct sp_str host;        /* NETWORK_AMENDMENT */
    bool allows_host;
    /* PERMISSIONS, approved: what is granted, at most what was asked; NULL: all of it. With any
     * other question such an answer is invalid. */
    const struct sp_grant *permissions;
    bool wants_strict_review; /* ... and every command until then is reviewed */
};

/* Whether a yes means that something runs without a sandbox. */
bool sp_question_is_free(const struct sp_approval_question *q);
/* Whether a yes lets a patch write outside of what its sandbox allows: in the `opened` directories.
 */
bool sp_question_leaves_sandbox(const struct sp_approval_question *q);
/* The place of a permission that is asked for, as a person reads it. */
struct sp_str sp_question_place(const struct sp_entry *entry);

/* The question as one JSON object, without a line feed. false: no memory. */
bool sp_question_add_json(struct sp_buf *out, const struct sp_approval_question *q);

/* A parsed decision, and what it points into. */
struct sp_decision_text {
    struct sp_decision decision;
    struct sp_buf text;
    struct sp_grant grant; /* decision.permissions points here */
    void *impl;
};
void sp_decision_text_done(struct sp_decision_text *d);
/* Reads {"decision":...} in any spelling of Codex and its clients, or a grant of permissions.
 * Anything else is a denial; so is running out of memory. may_decline, for programs: {},
 * {"decision":null} or no output is NO_OPINION, and what is no decision is FAILED. */
void sp_decision_read(struct sp_str json, bool may_decline, struct sp_decision_text *ret);

/* A grant in canonical form, for keys. false: no memory, or the grant has none. */
bool sp_question_add_grant(struct sp_buf *out, const struct sp_grant *g);

/* Appends text that is safe to show: control characters, bytes that are not UTF-8, and invisible or
 * bidirectional characters are escaped; line feeds too unless keeps_lines. false: no memory. */
bool sp_question_add_whole(struct sp_buf *out, struct sp_str text, bool keeps_lines);
/* The same for messages: beyond SP_QUESTION_VISIBLE_MAX bytes the middle is left out. */
bool sp_question_add_visible(struct sp_buf *out, struct sp_str text, bool keeps_lines);
#define SP_QUESTION_VISIBLE_MAX 4096

/* The part to leave out of the middle so that about `keep` bytes stay, cut between characters; n 0:
 * nothing. */
struct sp_str sp_question_middle(struct sp_str text, size_t keep);
/* The text as above, with the middle replaced by a line "NOT SHOWN: n bytes". A person who has not
 * seen the middle is offered neither an answer that is kept nor one that runs without a sandbox. */
bool sp_question_add_ends(struct sp_buf *out, struct sp_str text, struct sp_str middle,
                          bool keeps_lines);

#endif
