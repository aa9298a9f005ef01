/* SPDX-License-Identifier: Apache-2.0 */
/*
 * asking: one question, and all who may answer it, one after the other (approvals.md 7.2).
 *
 *   HOOK (each, in order) --no opinion--> known? --no--> REVIEWER (some attempts), or else USER
 *     '--yes, no, failed--> told  <--yes---'    <--------------'--------------------------'
 *
 * Each of them has a deadline, and each attempt a number of its own: who answers late answers
 * nothing. What hooks and the reviewer allow is allowed once. Embedded in whoever wants to know.
 */
#ifndef SP_APPROVE_ASKING_H
#define SP_APPROVE_ASKING_H

#include "approve/approver.h"
#include "os/loop.h"

struct sp_approvals;

#define SP_HOOK_MS         30000 /* for a hook's answer */
#define SP_REVIEW_MS       90000 /* for one attempt of the reviewer */
#define SP_REVIEW_ATTEMPTS 3

/* Who decided, as the audit has it. */
enum sp_decider {
    SP_DECIDER_CONFIG,
    SP_DECIDER_RULE,
    SP_DECIDER_CACHE,
    SP_DECIDER_HOOK,
    SP_DECIDER_REVIEWER,
    SP_DECIDER_USER,
};
const char *sp_decider_name(enum sp_decider by);

enum sp_asking_stage {
    SP_ASKING_CLOSED,
    SP_ASKING_HOOK,
    SP_ASKING_REVIEWER,
    SP_ASKING_USER,
};

struct sp_asking {
    /* To be filled before; what it points to stays until the end. id and at_ms are filled here. */
    struct sp_approval_question question;
    /* Once, perhaps from within begin; it is closed by then, and may be done with. A denial has its
     * text, unless it is a person's plain one; d is borrowed for the call. */
    void (*told)(struct sp_asking *q, const struct sp_decision *d);
    /* Whether the person has said yes to it before, for the session. NULL: nobody has. */
    bool (*is_known)(struct sp_asking *q);
    struct sp_str cannot_ask; /* why no person may be asked, which is a no; n 0: one may be */
    bool is_review;           /* the reviewer alone is asked: nothing else speaks against it */
    bool nobody_answers;      /* no person is asked: hooks and the reviewer alone */
    bool is_replaced;         /* for told: ABORT since another question has its id */
    bool is_announced;        /* its own: told as a question that waits for a person */

    enum sp_decider decided_by; /* for told */

    /* its own */
    struct sp_approvals *approvals;
    struct sp_asking *prev, *next; /* that are open */
    struct sp_approver *who;       /* is asked now, unless it is closed */
    size_t hook;
    enum sp_asking_stage stage;
    unsigned attempt; /* of the reviewer */
    struct sp_timer timer;
    struct sp_buf text; /* of a denial that was worded here */
};

void sp_asking_begin(struct sp_asking *q, struct sp_approvals *a);
static inline bool sp_asking_is_open(const struct sp_asking *q)
{
    return q->stage != SP_ASKING_CLOSED;
}
/* An open one is withdrawn, and nobody is told. Zero is fine. */
void sp_asking_done(struct sp_asking *q);

#endif
