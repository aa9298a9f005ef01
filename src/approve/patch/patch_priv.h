/* SPDX-License-Identifier: Apache-2.0 */
/*
 * patch_priv: what the files of patch share: text as lines are compared, the new text of a file,
 * and directories that are walked to.
 */
#ifndef SP_APPROVE_PATCH_PATCH_PRIV_H
#define SP_APPROVE_PATCH_PATCH_PRIV_H

#include "approve/patch/patch.h"

#define SP_PATCH_MAX_BYTES   (16U << 20)  /* of a patch */
#define SP_PATCH_MAX_LINES   (4U << 20)   /* of a patch, and of a file */
#define SP_PATCH_FILE_BYTES  (64U << 20)  /* of a file to update */
#define SP_PATCH_ALL_BYTES   (256U << 20) /* of all files of one patch */
#define SP_PATCH_SHOWN_BYTES (1U << 20)   /* of a deleted file: what a question can show */
/* Lines looked at while a patch is held against its files. Each search costs at most one pass over
 * the rest of the file for each of the four ways to compare; only a patch that was made for it
 * comes near. */
#define SP_PATCH_MAX_STEPS (1ULL << 29)

/* ---- the changes (patch_store.c) ---- */

/* What changes point into. */
struct sp_patch_store {
    struct sp_patch_change *items;
    struct sp_buf *before, *after; /* of each */
    char *added;                   /* the contents of new files */
    char *words;                   /* paths as written */
    uint32_t count;
};

/* ---- text (patch_text.c) ---- */

/* White space is Unicode's. The text is UTF-8. */
struct sp_str sp_patch_trim(struct sp_str s);
struct sp_str sp_patch_trim_end(struct sp_str s);
/* Appends s with typographic dashes, quotes and spaces as ASCII has them. false: no memory. */
bool sp_patch_add_folded(struct sp_buf *out, struct sp_str s);
/* At most max bytes of it, cut between characters. */
struct sp_str sp_patch_cut(struct sp_str s, size_t max);
/* The next line of *rest, without its LF; false: there is none. */
bool sp_patch_next_line(struct sp_str *rest, struct sp_str *ret);

/* ---- the lines of a file, and where others are among them (patch_find.c) ---- */

enum { SP_PATCH_LEVELS = 4 }; /* exact, end trimmed, both ends trimmed, folded */

struct sp_patch_level {
    struct sp_hash *keys; /* of each line; NULL: not made yet */
    uint32_t *last;       /* a table: the last line that has a key, plus 1 */
    uint32_t mask;
};

struct sp_patch_lines {
    const struct sp_str *items;
    uint32_t count;
    struct sp_patch_level levels[SP_PATCH_LEVELS];
    struct sp_buf scratch;
    uint64_t *steps; /* what is left of SP_PATCH_MAX_STEPS */
};
void sp_patch_lines_done(struct sp_patch_lines *l); /* items are the caller's */

#define SP_PATCH_NOT_FOUND UINT32_MAX
/* The first line at or after `start` where the pattern is; is_at_end: only the file's end counts.
 * An empty pattern is at start. */
int sp_patch_find(struct sp_patch_lines *l, const struct sp_str *pattern, uint32_t count,
                  uint32_t start, bool is_at_end, uint32_t *ret, struct sp_err *e);

/* ---- the new text of a file (patch_update.c) ---- */

/* why: the whole story if it is longer than an error holds; may be NULL. */
int sp_patch_update(struct sp_str before, const struct sp_patch_hunk *h, const char *full_path,
                    bool keeps_line_endings, uint64_t *steps, struct sp_buf *ret_after,
                    struct sp_buf *ret_why, struct sp_err *e);

/* ---- directories (patch_walk.c) ---- */

struct sp_patch_walk {
    bool refuses_links; /* in any component, the last one included */
    bool makes_parents;
};
/* The directory that holds `path` (absolute, normal), and the last component. -errno; ELOOP: a link
 * where none may be. */
int sp_patch_walk(const char *path, const struct sp_patch_walk *how, int *ret_dir,
                  const char **ret_name);
/* Where a chain of links at the end of `path` leads, to be freed; NULL with errno. */
char *sp_patch_follow(const char *path);

#endif
