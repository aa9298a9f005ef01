/* SPDX-License-Identifier: Apache-2.0 */
/*
 * audit: every decision as one line of a hash-chained log.
 */
#ifndef SP_APPROVE_AUDIT_H
#define SP_APPROVE_AUDIT_H

#include "approve/judge.h"
#include "base/receipt.h"

struct sp_audit_entry {
    struct sp_str call_id, environment, cwd;
    struct sp_words command;
    const struct sp_segments *segments;
    const struct sp_rule_matches *matches;
    const struct sp_approval_policy *policy;
    const char *requirement; /* "skip", "ask", "forbidden" */
    const char *decision;    /* "approved", "denied", ... */
    const char *decided_by;  /* sp_decider_name */
    const char *attempt;     /* "confined", "free"; NULL: nothing runs */
    /* Not NULL: the line is no decision, but tells how the command of an earlier one ended. Then
     * only the first two members count besides. */
    const struct sp_command_receipt *receipt;
};

/* Appends one line, in one write, under an exclusive lock: seq and prev follow the last line of the
 * file, which is created with mode 0600 if it is missing. A part of an entry, left by a writer
 * that was killed, is removed first. */
int sp_audit_append(const char *path, const struct sp_audit_entry *entry, struct sp_err *e);

struct sp_audit_report {
    uint64_t entries;
    char last[65]; /* hash of the last line, in hex */
    uint64_t line; /* of the first error; 0: none */
    char fault[200];
};
/* 0 with *ret filled even if the log is broken; an unreadable file is an error. */
int sp_audit_verify(const char *path, struct sp_audit_report *ret, struct sp_err *e);

#endif
