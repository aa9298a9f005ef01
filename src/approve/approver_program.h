/* SPDX-License-Identifier: Apache-2.0 */
/*
 * approver_program: a program that answers questions (approvals.md 7.6). It is started once for
 * each, without a shell and without a sandbox, reads {"version":1,"question":{...}} and a line feed
 * on its stdin, and writes {"decision":...} on its stdout. It may say that it has no opinion, by {}
 * or by no word; whatever else it does has failed.
 *
 * It leads a process group, which is killed when nobody waits for its answer any more. Nobody's
 * child but these is ever waited for.
 */
#ifndef SP_APPROVE_APPROVER_PROGRAM_H
#define SP_APPROVE_APPROVER_PROGRAM_H

#include "approve/approver.h"
#include "os/loop.h"

#define SP_APPROVER_ANSWER_MAX 65536

/* path: of the program, with a slash in it. */
int sp_approver_program_new(struct sp_loop *loop, const char *path, struct sp_approver **ret,
                            struct sp_err *e);

#endif
