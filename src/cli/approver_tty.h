/* SPDX-License-Identifier: Apache-2.0 */
/*
 * approver_tty: a person at our controlling terminal answers (approvals.md 7.6), one question at a
 * time, with one key and no Enter. Never on stdin or stdout, which are the command's.
 *
 * What was typed before a question was seen is no answer to it, and neither is what comes as more
 * than one byte: a paste, or a key that sends a sequence.
 */
#ifndef SP_CLI_APPROVER_TTY_H
#define SP_CLI_APPROVER_TTY_H

#include "approve/approver.h"
#include "core/loop.h"

/* Whether there is a terminal to ask on. */
bool sp_approver_tty_exists(void);
int sp_approver_tty_new(struct sp_loop *loop, struct sp_approver **ret, struct sp_error *e);

#endif
