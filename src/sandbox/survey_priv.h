/* SPDX-License-Identifier: Apache-2.0 */
/*
 * survey_priv: shared by the files that make a survey.
 *
 * Order: facts become spots, protected names and patterns are added, then missing paths, our own
 * places and hidden paths; pins come last, when the spots are final. Every step adds marks, which
 * are merged at the end.
 */
#ifndef SP_SANDBOX_SURVEY_PRIV_H
#define SP_SANDBOX_SURVEY_PRIV_H

#include "sandbox/survey.h"

/* ---- spots ---- */

/* A table of spots; the innermost one above a path decides about it. Spots are added in rounds:
 * additions take effect when sp_spots_settle has sorted them in. */
struct sp_spots {
    struct sp_spot *items;
    size_t count, cap;
    size_t settled; /* the first `settled` items are sorted, each path once; only these are found */
};
void sp_spots_done(struct sp_spots *t);

/* The path is copied. false: no memory */
bool sp_spots_add(struct sp_spots *t, const char *path, const struct sp_spot *like);

/* Sorts, and keeps one spot per path: hidden before deny, then our own places, write, read. Among
 * equals the later reason of enum sp_spot_why decides, then an entry that is not a temporary
 * directory (p). Fails if two spots of one path saw different inodes. */
int sp_spots_settle(struct sp_spots *t, const struct sp_policy *p, struct sp_err *e);

/* The innermost spot at or above the first n bytes of path; NULL: none. */
const struct sp_spot *sp_spots_over(const struct sp_spots *t, const char *path, size_t n);

/* Whether names may be created and renamed in the directory that is the first n bytes of path. */
bool sp_spots_can_write(const struct sp_spots *t, const char *path, size_t n);

/* Whether the entry of the profile is `tmpdir` or `slash_tmp`; false for SP_NO_ENTRY. */
bool sp_entry_is_temporary(const struct sp_policy *p, size_t entry);

/* ---- a survey that is being made ---- */

/* A fact and its resolved path. */
struct sp_located_entry {
    const struct sp_fact *fact;
    struct sp_canonical at;
};

struct sp_making {
    const struct sp_policy *policy;
    const struct sp_resolved *resolved;
    struct sp_located_entry *located; /* one per fact */
    size_t view_count;
    struct sp_spots spots;
    struct sp_survey out; /* out.spots is set at the end, from spots */
    struct sp_err *e;
};

int sp_making_no_memory(struct sp_making *m);
int sp_making_changed(struct sp_making *m, const char *path);

/* who: the inode at path. */
int sp_making_add(struct sp_making *m, const char *path, const struct sp_identity *who,
                  enum sp_access access, enum sp_spot_why why, size_t entry);
/* who: the directory that would contain it. */
int sp_making_add_missing(struct sp_making *m, const char *path, const struct sp_identity *who,
                          enum sp_access access, enum sp_spot_why why, size_t entry);

/* Fails if a command could replace a symlink on the way: the access could not be enforced. */
int sp_making_check_links(struct sp_making *m, const char *path, const struct sp_canonical *at,
                          enum sp_access access);
int sp_making_refuse_link(struct sp_making *m, const char *path, const char *link,
                          enum sp_access access);

/* ---- marks ---- */

/* who NULL: the path is missing. */
int sp_making_mark(struct sp_making *m, const char *path, bool follows, bool is_exact,
                   const struct sp_identity *who);
/* Marks `path`, each symlink on the way, and the result. */
int sp_making_mark_way(struct sp_making *m, const char *path, const struct sp_canonical *at);

/* ---- parts ---- */

/* The protected names below each writable root, and the directories that .git leads to. */
int sp_making_protect(struct sp_making *m);
/* The matches of patterns. */
int sp_making_expand(struct sp_making *m);

/* ---- files of a repository that name a directory (survey_protect.c) ---- */

#define SP_GITDIR_MAX 4096 /* only this many bytes of a file are read */

enum sp_gitdir_file {
    SP_GITDIR_DOT_GIT,   /* "gitdir: <path>" */
    SP_GITDIR_COMMONDIR, /* "<path>" */
    SP_GITDIR_WORKTREE,  /* a repository's config: core.worktree */
};

/*
 * Reads the file at `path`, which has no symlink on the way. *ret_path is the path that it names,
 * relative paths taken from the directory `base`; absolute, not normalised, owned by the caller;
 * NULL if there is none, or if we may not read the file. *who is the regular file that was seen:
 * another inode is an error. On return *who has the state just before the read.
 */
int sp_gitdir_read(const char *path, enum sp_gitdir_file file, const char *base,
                   struct sp_identity *who, char **ret_path, struct sp_err *e);

/* The same from the text. NULL: no path, or (errno ENOMEM) no memory. */
char *sp_gitdir_parse(const char *text, enum sp_gitdir_file file, const char *base);

#endif
