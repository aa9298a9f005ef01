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

struct sp_explained {
    char *path, *real; /* as written, made absolute; and where it leads */
    bool can_read, can_write;
    struct sp_buf reason; /* of both answers; NUL-terminated */
    struct sp_buf notes;  /* lines; NUL-terminated, often empty */
};
void sp_explained_done(struct sp_explained *x);
/* fixed: as for sp_survey_make. A relative path is relative to `cwd`; NULL: refused. */
int sp_explain_path(const struct sp_policy *p, const struct sp_fixed_places *fixed, const char *cwd,
                    const char *path, struct sp_explained *ret, struct sp_err *e);

/* The answers for all paths (NULL at the end), as text. */
int sp_explain(const struct sp_policy *p, const struct sp_fixed_places *fixed, const char *cwd,
               char *const *paths, struct sp_buf *out, struct sp_err *e);

#endif
