/* SPDX-License-Identifier: Apache-2.0 */
/*
 * approver: the interface of everything that answers questions: a person at a terminal, a program,
 * a client, a callback. An approver that never answers need not exist: no approver means denial.
 */
#ifndef SP_APPROVE_APPROVER_H
#define SP_APPROVE_APPROVER_H

#include "approve/question.h"

struct sp_approver;

/* May be called from within ask. *d is borrowed for the call. */
typedef void sp_approver_fn(void *user, uint64_t question, const struct sp_decision *d);

struct sp_approver_ops {
    /* Calls done once, unless the question is withdrawn before. The question is valid until then.
     * Question numbers are unique per `user`. */
    void (*ask)(struct sp_approver *a, const struct sp_approval_question *q, sp_approver_fn *done,
                void *user);
    /* done is not called any more. Ignored if the question is not open. */
    void (*withdraw)(struct sp_approver *a, uint64_t question, void *user);
    /* The same, since another approver, called `via`, has answered with *d; NULL: withdraw is
     * called.
     */
    void (*outdone)(struct sp_approver *a, uint64_t question, void *user,
                    const struct sp_decision *d, const char *via);
    void (*free)(struct sp_approver *a); /* no question is open */
};

struct sp_approver {
    const struct sp_approver_ops *ops;
    const char *name; /* for messages; NULL: none */
    /* Set before each ask: how long the question may wait for this approver; 0: no limit is known.
     */
    uint64_t limit_ms;
};

static inline void sp_approver_free(struct sp_approver *a)
{
    if (a != NULL)
        a->ops->free(a);
}

#endif
