/* SPDX-License-Identifier: Apache-2.0 */
/*
 * question: what a person is asked before a command or a patch runs, what may be answered, and both
 * as JSON (approvals.md 7.5, 12.1 to 12.3).
 */
#ifndef SP_APPROVE_QUESTION_H
#define SP_APPROVE_QUESTION_H

#include "approve/judge.h"
#include "approve/patch/patch.h"

enum sp_question_kind {
    SP_QUESTION_RUN,         /* by a rule, or since the policy asks: may it run in its sandbox? */
    SP_QUESTION_ESCALATE,    /* the caller asks to run it without a sandbox */
    SP_QUESTION_ADDITIONAL,  /* the caller asks for more than its sandbox allows */
    SP_QUESTION_RETRY,       /* the sandbox denied it something: again, without? */
    SP_QUESTION_PATCH,       /* files are to be changed */
    SP_QUESTION_PERMISSIONS, /* may commands do `additional` from now on? */
    SP_QUESTION_NETWORK,     /* a command that runs wants to reach a host that is not listed */
};

struct sp_approval_question {
    uint64_t id; /* for the answer; never 0, never used again by whoever asks */
    enum sp_question_kind kind;
    struct sp_str call_id, turn_id, environment;
    struct sp_str approval_id; /* of a question about a part of the call; n 0: the call's */
    int64_t at_ms;             /* since 1970 */
    struct sp_str command;     /* as a person would type it */
    struct sp_words argv;
    struct sp_words preface;   /* env NAME=VALUE ...: what else the caller says; count 0: nothing */
    struct sp_str cwd, reason; /* reason: n 0: none */
    const struct sp_segments *segments;
    struct sp_words amendment;         /* the rule that is offered; count 0: none */
    const struct sp_grant *additional; /* what it gets besides; NULL: nothing */
    bool is_free;                      /* yes means: without a sandbox */
    bool is_guess; /* RETRY: only what it printed speaks for a denial, and it may print anything */
    const struct sp_policy *profile;        /* that it runs under; NULL: none */
    const char *profile_name;               /* NULL: it has none */
    const struct sp_patch_changes *changes; /* PATCH; else NULL */
    struct sp_str grant_root;               /* PATCH: n 0: none */
    /* NETWORK; else empty. argv is then what is asked for, and this is who asks: */
    struct sp_str asking_command; /* as a person would type it */
    struct sp_str host;           /* offered to be allowed or denied from now on */
    const char *protocol;         /* "http", "https", "socks5_tcp", "socks5_udp" */
};

/* Whether the rule is among what may be answered; a question about more than that shows it only. */
bool sp_question_offers_amendment(const struct sp_approval_question *q);
/* The same of the host. */
bool sp_question_offers_host(const struct sp_approval_question *q);

enum sp_decision_kind {
    SP_DECISION_DENIED, /* whatever is not understood is this */
    SP_DECISION_APPROVED,
    SP_DECISION_APPROVED_FOR_SESSION,
    SP_DECISION_AMENDMENT, /* approved, and the rule is kept; it must be the one that was offered */
    SP_DECISION_NETWORK_AMENDMENT,
    SP_DECISION_TIMED_OUT,
    SP_DECISION_ABORT, /* denied, and the turn is interrupted */
    /* Of programs: said on purpose, or by accident. From a person both are a denial. */
    SP_DECISION_NO_OPINION,
    SP_DECISION_FAILED, /* rejection says how */
    SP_DECISION_MAX
};
const char *sp_decision_name(enum sp_decision_kind k); /* as the audit has it */

struct sp_decision {
    enum sp_decision_kind kind;
    struct sp_str rejection;   /* DENIED: what the caller is told; n 0: the usual */
    struct sp_words amendment; /* AMENDMENT */
    struct sp_str host;        /* NETWORK_AMENDMENT */
    bool allows_host;
    /* PERMISSIONS, approved: for the turn, or for the session. What was not asked is not granted;
     * NULL: all that was asked. An answer that names some is none to any other question. */
    const struct sp_grant *permissions;
    bool wants_strict_review; /* ... and everything that runs by then is reviewed */
};

/* The question as one JSON object, without a line feed. false: no memory. */
bool sp_question_add_json(struct sp_buf *out, const struct sp_approval_question *q);

/* A decision that was read, and what it points into. */
struct sp_decision_text {
    struct sp_decision decision;
    struct sp_buf text;
    struct sp_grant grant; /* what decision.permissions points to */
    void *impl;
};
void sp_decision_text_done(struct sp_decision_text *d);
/*
 * Reads a decision of 7.5, in today's words, those of old, or those of clients, or the answer of
 * 12.3. What is no decision is a denial; so is everything if there is no memory.
 */
void sp_decision_read(struct sp_str json, struct sp_decision_text *ret);
/* The same out of an object's member `decision`: {"decision":...}. */
void sp_decision_read_answer(struct sp_str json, struct sp_decision_text *ret);
/* The same of a program, which may also say nothing ({}, {"decision":null}, or no word): that is no
 * opinion; and what is no decision has failed. */
void sp_decision_read_opinion(struct sp_str json, struct sp_decision_text *ret);

/* A grant in one fixed spelling, for keys. false: no memory, or it has none. */
bool sp_question_add_grant(struct sp_buf *out, const struct sp_grant *g);

/*
 * For a person's eyes: control characters, bytes that are not UTF-8, and marks that change the
 * direction of text or are not seen, are escaped; line feeds too unless keeps_lines. false: no
 * memory.
 */
bool sp_question_add_whole(struct sp_buf *out, struct sp_str text, bool keeps_lines);
/* The same for messages: more than 4 KiB is cut in the middle. */
bool sp_question_add_visible(struct sp_buf *out, struct sp_str text, bool keeps_lines);
#define SP_QUESTION_VISIBLE_MAX 4096

/* What has to be left out of the middle so that about `keep` bytes stay, cut between characters;
 * n 0: nothing. */
struct sp_str sp_question_middle(struct sp_str text, size_t keep);
/* The text as above without its middle, which a line of its own counts: "NOT SHOWN: n bytes". A
 * person who has not seen the middle is offered neither an answer that is kept nor one that runs
 * without a sandbox. */
bool sp_question_add_ends(struct sp_buf *out, struct sp_str text, struct sp_str middle,
                          bool keeps_lines);

#endif
