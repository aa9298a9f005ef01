/* SPDX-License-Identifier: Apache-2.0 */
/*
 * asking: one question and all who may answer it, one after the other.
 *
 *   HOOK (each, in order) --no opinion--> known? --no--> REVIEWER (some attempts), or else APPROVER
 *     '--yes, no, failed--> decided <-yes--'    <--------------'--------------------------'
 *
 * Each stage has a deadline, and each attempt a number of its own, so late answers are ignored.
 * What hooks and the reviewer allow is allowed once. The struct is embedded in its owner.
 */
#ifndef SP_APPROVE_ASKING_H
#define SP_APPROVE_ASKING_H

#include "approve/approver.h"
#include "base/list.h"
#include "os/loop.h"

struct sp_approvals;

#define SP_HOOK_MS         30000 /* for the answer of a hook */
#define SP_REVIEW_MS       90000 /* for one attempt of the reviewer */
#define SP_REVIEW_ATTEMPTS 3

enum sp_asking_stage {
    SP_ASKING_CLOSED,
    SP_ASKING_HOOK,
    SP_ASKING_REVIEWER,
    SP_ASKING_APPROVER,
};

struct sp_asking {
    /* Filled by the owner, and valid until the end; id and at_ms are set here. */
    struct sp_approval_question question;
    /* Called once, perhaps from within begin; the asking is closed by then and may be freed. A
     * denial has its text, except a plain one of a person; d is borrowed. */
    void (*decided)(struct sp_asking *q, const struct sp_decision *d);
    /* Whether it was approved for the session before. NULL: no. */
    bool (*is_known)(struct sp_asking *q);
    struct sp_str cannot_ask; /* why no question can be asked, which is a denial; n 0: it can */
    bool is_review;           /* only the reviewer is asked: nothing else objects */
    bool has_no_approver;     /* no approver is asked: hooks and the reviewer only */
    bool is_replaced;         /* for `decided`: ABORT because a newer question has the same ids */
    bool is_announced;        /* private: reported as waiting for the approver */

    enum sp_decider
        decided_by; /* for `decided`; of an open question: who aborts the call that asks */

    /* private */
    struct sp_approvals *approvals;
    struct sp_list link;     /* in the open ones of the approvals */
    struct sp_approver *who; /* who is asked now, unless it is closed */
    size_t hook;
    enum sp_asking_stage stage;
    unsigned attempt; /* of the reviewer */
    struct sp_timer timer;
    struct sp_buf text; /* of a denial, worded here */
};

void sp_asking_begin(struct sp_asking *q, struct sp_approvals *a);
static inline bool sp_asking_is_open(const struct sp_asking *q)
{
    return q->stage != SP_ASKING_CLOSED;
}
/* Withdraws an open question without calling `decided`. Zero is fine. */
void sp_asking_done(struct sp_asking *q);

#endif
