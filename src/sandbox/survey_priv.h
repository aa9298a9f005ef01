/* SPDX-License-Identifier: Apache-2.0 */
/*
 * survey_priv: what the files behind survey.h share.
 */
#ifndef SP_SANDBOX_SURVEY_PRIV_H
#define SP_SANDBOX_SURVEY_PRIV_H

#include "sandbox/canonical.h"
#include "sandbox/spots.h"

/* A fact, and where its path leads. */
struct sp_located_entry {
    const struct sp_fact *fact;
    struct sp_canonical at;
};

struct sp_making {
    const struct sp_policy *policy;
    const struct sp_resolved *resolved;
    struct sp_located_entry *views; /* one a fact */
    size_t view_count;
    struct sp_spots spots;
    struct sp_survey out; /* its spots come last */
    struct sp_err *e;
};

int sp_making_no_memory(struct sp_making *m);
int sp_making_changed(struct sp_making *m, const char *path);

/* who: of what is at path. */
int sp_making_add(struct sp_making *m, const char *path, const struct sp_identity *who,
                  enum sp_access access, enum sp_spot_why why, size_t entry);
/* who: of the directory that it would be in. */
int sp_making_add_missing(struct sp_making *m, const char *path, const struct sp_identity *who,
                          enum sp_access access, enum sp_spot_why why, size_t entry);
int sp_making_settle(struct sp_making *m);

/* The first symlink on the way that a command could point elsewhere, or NULL. */
const struct sp_symlink *sp_making_writable_link(const struct sp_making *m,
                                                 const struct sp_canonical *at);
/* Refuses a path that is to be READ or DENY and has such a symlink on its way. */
int sp_making_check_links(struct sp_making *m, const char *path, const struct sp_canonical *at,
                          enum sp_access access);
int sp_making_refuse_link(struct sp_making *m, const char *path, const char *link,
                          enum sp_access access);

/* ---- marks ---- */

/* who NULL: nothing is there. */
int sp_making_mark(struct sp_making *m, const char *path, bool follows, bool is_exact,
                   const struct sp_identity *who);
/* Everything on the way from `path` to where it led. */
int sp_making_mark_way(struct sp_making *m, const char *path, const struct sp_canonical *at);
/* Each once. Refused: two that saw different things. */
int sp_making_sort_marks(struct sp_making *m);

/* ---- parts ---- */

/* The protected names below every writable root, and what their .git leads to. */
int sp_making_protect(struct sp_making *m);
/* What the patterns match. */
int sp_making_expand(struct sp_making *m);
/* The directories that must not be renamed; the spots are final. */
int sp_making_pin(struct sp_making *m);

#endif
