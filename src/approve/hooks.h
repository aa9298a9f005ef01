/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hooks: the programs that are asked before a person, or in the person's place (approvals.md 7.2),
 * as the configuration names them.
 */
#ifndef SP_APPROVE_HOOKS_H
#define SP_APPROVE_HOOKS_H

#include "approve/approvals.h"

#define SP_HOOKS_MAX 16

struct sp_hooks {
    struct sp_approver *hooks[SP_HOOKS_MAX];
    size_t count;
    struct sp_approver *reviewer; /* NULL: none */
};

/*
 * paths: of permission hooks, NULL at the end, or NULL. reviewer: program:PATH, or NULL. *ret is
 * zero, and to be ended also after a failure; o is told of what was opened.
 */
int sp_hooks_open(struct sp_hooks *ret, struct sp_loop *loop, char *const *paths,
                  const char *reviewer, struct sp_approvals_options *o, struct sp_err *e);
/* After the approvals that ask them. */
void sp_hooks_done(struct sp_hooks *h);

#endif
