/* SPDX-License-Identifier: Apache-2.0 */
/*
 * approver_tty: a person at our controlling terminal answers, one question at a time. Never on
 * stdin or stdout, which are the command's.
 *
 * A single key with silence before and after it means "no", or "yes" to a command in a sandbox. A
 * yes to a command without a sandbox, or one that keeps a rule, is a word and Enter. Input from
 * before the keys were shown is no answer, and neither are replies of the terminal itself to
 * queries of earlier commands. A terminal that another program reads key by key is not used.
 */
#ifndef SP_CLI_APPROVER_TTY_H
#define SP_CLI_APPROVER_TTY_H

#include "approve/approver.h"
#include "os/loop.h"

/* is_once: for a single command; no answer for the session is offered, which ends with it. */
int sp_approver_tty_new(struct sp_loop *loop, bool is_once, struct sp_approver **ret,
                        struct sp_err *e);

#endif
