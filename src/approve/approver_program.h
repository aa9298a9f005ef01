/* SPDX-License-Identifier: Apache-2.0 */
/*
 * approver_program: a program that answers questions, as an approver, a hook or the reviewer.
 *
 * It is started once for each question, without a shell and without a sandbox, reads
 * {"version":1,"question":{...}} and a line feed on stdin, and writes {"decision":...} to stdout.
 * It declines to answer with {} or no output; anything else is a failure.
 *
 * It leads a process group, which is killed when its answer is not needed any more. No child but
 * these is ever waited for, so a host program keeps its own children.
 */
#ifndef SP_APPROVE_APPROVER_PROGRAM_H
#define SP_APPROVE_APPROVER_PROGRAM_H

#include "approve/approvals.h"
#include "os/loop.h"

#define SP_APPROVER_ANSWER_MAX 65536

/* path must contain a slash. */
int sp_approver_program_new(struct sp_loop *loop, const char *path, struct sp_approver **ret,
                            struct sp_err *e);

/* ---- hooks and the reviewer, as the configuration names them ---- */

#define SP_HOOKS_MAX 16

struct sp_hooks {
    struct sp_approver *hooks[SP_HOOKS_MAX];
    size_t count;
    struct sp_approver *reviewer; /* NULL: none */
};

/*
 * paths: of permission hooks, NULL at the end, or NULL. reviewer: program:PATH, or NULL. *ret is
 * zero before, and needs sp_hooks_done even after a failure; the approvers are entered into *o.
 */
int sp_hooks_open(struct sp_hooks *ret, struct sp_loop *loop, char *const *paths,
                  const char *reviewer, struct sp_approvals_options *o, struct sp_err *e);
void sp_hooks_done(struct sp_hooks *h); /* after the approvals that ask them */

#endif
