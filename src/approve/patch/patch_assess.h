/* SPDX-License-Identifier: Apache-2.0 */
/*
 * patch_assess: whether a patch may be applied without asking, after a question, or not at all. A
 * pure function of the changes, the approval policy and the profile.
 */
#ifndef SP_APPROVE_PATCH_PATCH_ASSESS_H
#define SP_APPROVE_PATCH_PATCH_ASSESS_H

#include "approve/judge.h"
#include "approve/patch/patch.h"

struct sp_patch_assess_ask {
    const struct sp_patch_changes *changes;
    struct sp_approval_policy policy;
    const struct sp_policy *profile; /* including grants made before; NULL: full access */
    bool has_sandbox;                /* this host can confine */
};

enum sp_patch_verdict {
    SP_PATCH_REJECT,   /* text says why */
    SP_PATCH_APPROVE,  /* without asking */
    SP_PATCH_QUESTION, /* ask first */
};

struct sp_patch_assessment {
    enum sp_patch_verdict verdict;
    bool is_free;     /* APPROVE, QUESTION: no sandbox confines the patch, so links are refused */
    const char *text; /* REJECT: "patch rejected: ..."; else NULL */
    /* QUESTION: directories that need write permission in addition if it is approved: the parents
     * of the targets that the profile does not open. Each once; absolute. */
    char **parents;
    uint32_t parent_count;
};
void sp_patch_assessment_done(struct sp_patch_assessment *a);

/* Fails only for lack of memory. */
int sp_patch_assess(const struct sp_patch_assess_ask *ask, struct sp_patch_assessment *ret,
                    struct sp_err *e);

#endif
