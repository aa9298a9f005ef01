/* SPDX-License-Identifier: Apache-2.0 */
/*
 * patch_priv: what the files of patch share: bounds, lines of text, the storage of changes, and the
 * search that the fuzzer compares with a plain one.
 */
#ifndef SP_APPROVE_PATCH_PATCH_PRIV_H
#define SP_APPROVE_PATCH_PATCH_PRIV_H

#include "approve/patch/patch.h"
#include "base/arena.h"
#include "base/utf8.h"

#define SP_PATCH_MAX_BYTES   (16U << 20)  /* of a patch */
#define SP_PATCH_MAX_LINES   (4U << 20)   /* of a patch, and of a file */
#define SP_PATCH_FILE_BYTES  (64U << 20)  /* of a file to update */
#define SP_PATCH_ALL_BYTES   (256U << 20) /* of all files of one patch */
#define SP_PATCH_SHOWN_BYTES (1U << 20)   /* of a deleted file that a question shows */
/* Lines inspected while a patch is verified. Each search costs at most one pass over the rest of
 * the file at each of the four levels; only a crafted patch comes near. */
#define SP_PATCH_MAX_STEPS (1ULL << 29)

/* ---- changes (patch_verify.c) ---- */

/* Owns what the members of struct sp_patch_changes point to; it is their impl. */
struct sp_patch_store {
    struct sp_arena arena;
    struct sp_patch_change *items;
    struct sp_buf *before, *after; /* of each */
    uint32_t count;
};

/* ---- text (patch_parse.c) ---- */

/* At most max bytes of s, cut between characters. */
static inline struct sp_str sp_patch_cut(struct sp_str s, size_t max)
{
    return s.n <= max ? s : (struct sp_str){s.p, sp_utf8_valid_prefix((struct sp_str){s.p, max})};
}
/* Takes the next line off *rest, without its LF; false: there is none. */
bool sp_patch_next_line(struct sp_str *rest, struct sp_str *ret);

/* ---- the lines of a file, and the new text (patch_verify.c); exported for the fuzzer ---- */

/* Appends s with typographic dashes, quotes and spaces as ASCII. false: out of memory. */
bool sp_patch_add_folded(struct sp_buf *out, struct sp_str s);

enum { SP_PATCH_LEVELS = 4 }; /* exact, end trimmed, both ends trimmed, folded */

struct sp_patch_level {
    struct sp_hash *keys; /* hash of each line; NULL: not made yet */
    uint32_t *last;       /* hash table: the last line with a key, plus 1; 0: free */
    uint32_t mask;
};

struct sp_patch_lines {
    const struct sp_str *items;
    uint32_t count;
    struct sp_patch_level levels[SP_PATCH_LEVELS];
    struct sp_buf scratch;
    uint64_t *steps; /* remaining budget, shared by all files of a patch */
};
void sp_patch_lines_done(struct sp_patch_lines *l); /* does not free items */

#define SP_PATCH_NOT_FOUND UINT32_MAX
/* Finds the pattern at or behind line `start`; is_at_end: only at the end of the file. An empty
 * pattern is found at start. */
int sp_patch_find(struct sp_patch_lines *l, const struct sp_str *pattern, uint32_t count,
                  uint32_t start, bool is_at_end, uint32_t *ret, struct sp_err *e);

/* Appends the text of the file after the hunk. ret_why as in sp_patch_verify. */
int sp_patch_update(struct sp_str before, const struct sp_patch_hunk *h, const char *full_path,
                    bool keeps_line_endings, uint64_t *steps, struct sp_buf *ret_after,
                    struct sp_buf *ret_why, struct sp_err *e);

#endif
