/* SPDX-License-Identifier: Apache-2.0 */
/*
 * approver_tty: a person at our controlling terminal answers, one question at a time. Never on
 * stdin or stdout, which are the command's.
 *
 * A key alone, with silence before and after it, answers "no", and "yes" to what runs in a sandbox.
 * A yes that runs a command without one, or that keeps a rule, is a word and Enter. What was typed
 * before the keys were shown is no answer, and neither is what a terminal types by itself
 * (tty_input.h). A terminal that another program reads key by key is not used.
 */
#ifndef SP_CLI_APPROVER_TTY_H
#define SP_CLI_APPROVER_TTY_H

#include "approve/approver.h"
#include "os/loop.h"

/* Whether there is a terminal to ask on. */
bool sp_approver_tty_exists(void);
int sp_approver_tty_new(struct sp_loop *loop, struct sp_approver **ret, struct sp_err *e);

#endif
