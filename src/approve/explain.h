/* SPDX-License-Identifier: Apache-2.0 */
/*
 * explain: whether a policy lets a path be read and written, and which of its entries says so.
 *
 * The answer comes from the same survey and plan that a sandbox is made of, as if this host had
 * every feature. Ordinary file permissions apply in addition and are not considered.
 */
#ifndef SP_APPROVE_EXPLAIN_H
#define SP_APPROVE_EXPLAIN_H

#include "sandbox/survey.h"

/* A policy applied to the disk as it is now. */
struct sp_explainer {
    const struct sp_policy *policy;
    struct sp_resolved resolved;
    struct sp_survey survey;
    struct sp_buf plan;
};
/* fixed: as for sp_survey_make. *ret is zero before, and needs sp_explainer_done even after a
 * failure. */
int sp_explainer_init(struct sp_explainer *ret, const struct sp_policy *p,
                      const struct sp_fixed_places *fixed, struct sp_err *e);
void sp_explainer_done(struct sp_explainer *q);
#define auto_explainer __attribute__((cleanup(sp_explainer_done)))

struct sp_explained {
    char *path, *real; /* as written, made absolute; and where it leads */
    bool can_read, can_write;
    struct sp_buf reason; /* of both answers; NUL-terminated */
    struct sp_buf notes;  /* lines; NUL-terminated, often empty */
};
void sp_explained_done(struct sp_explained *x);
#define auto_explained __attribute__((cleanup(sp_explained_done)))

/* A relative path is relative to `cwd`; NULL: refused. */
int sp_explain_path(const struct sp_explainer *q, const char *cwd, const char *path,
                    struct sp_explained *ret, struct sp_err *e);

#endif
