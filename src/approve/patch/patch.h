/* SPDX-License-Identifier: Apache-2.0 */
/*
 * patch: the patch format of approvals.md 14: recognised in a command, parsed, held against the
 * files, applied. All hunks are verified before the first file is written, and each file is
 * written beside its place and renamed.
 */
#ifndef SP_APPROVE_PATCH_PATCH_H
#define SP_APPROVE_PATCH_PATCH_H

#include "approve/script/script.h"

enum sp_patch_kind { SP_PATCH_ADD, SP_PATCH_DELETE, SP_PATCH_UPDATE };

/* A context line is in both lists, as the same bytes: the same p. */
struct sp_patch_chunk {
    struct sp_str context; /* of "@@ ..."; p NULL: none */
    const struct sp_str *old_lines, *new_lines;
    uint32_t old_count, new_count;
    bool is_at_end; /* "*** End of File" */
};

struct sp_patch_hunk {
    enum sp_patch_kind kind;
    struct sp_str path, move_to; /* move_to.p NULL: none; as written */
    struct sp_str content;       /* ADD */
    const struct sp_patch_chunk *chunks;
    uint32_t chunk_count;
};

struct sp_patch {
    const struct sp_patch_hunk *hunks;
    uint32_t hunk_count;
    struct sp_str environment_id; /* p NULL: none */
    void *impl;
};
void sp_patch_done(struct sp_patch *p);

/* SP_E_INVALID: "invalid patch: ..." or "invalid hunk at line N, ..." (14.2). Bounded: 16 MiB. */
int sp_patch_parse(struct sp_str text, struct sp_patch *ret, struct sp_err *e);

/* What a command is (14.1). */
enum sp_patch_call {
    SP_PATCH_CALL_NONE,  /* an ordinary command */
    SP_PATCH_CALL_PATCH, /* *ret_text is the patch, *ret_cd its directory (p NULL: none) */
    SP_PATCH_CALL_BARE,  /* a patch without apply_patch: M18 with the hint */
};
int sp_patch_recognise(struct sp_words argv, enum sp_patch_call *ret, struct sp_buf *ret_text,
                       struct sp_buf *ret_cd, struct sp_err *e);

/* What is to become of a file, whole: two are the same only if nothing of it has changed. */
struct sp_patch_digest {
    uint8_t bytes[32];
};

/* What would become of each file; the texts are whole files. */
struct sp_patch_change {
    enum sp_patch_kind kind;
    struct sp_str path, move_to;         /* as written */
    const char *full_path, *full_target; /* absolute, lexically normal; target NULL: no move */
    /* Of UPDATE both; of ADD after; of DELETE before, if it is text that can be read and is not
     * large (else p NULL). */
    struct sp_str before, after;
    /* Of UPDATE, if another process has read the files: what sp_patch_add_diff says, and before and
     * after are not there. p NULL: they are. */
    struct sp_str diff;
    struct sp_patch_digest digest; /* the same */
};
struct sp_patch_changes {
    const struct sp_patch_change *items;
    uint32_t count;
    void *impl;
};
void sp_patch_changes_done(struct sp_patch_changes *c);

/* What a patch says of its files, which are not looked at: kinds, paths, what new ones contain. */
int sp_patch_list(const struct sp_patch *p, const char *cwd, struct sp_patch_changes *ret,
                  struct sp_err *e);
/* What is at a path, links followed. */
enum sp_patch_there {
    SP_PATCH_THERE_FILE,
    SP_PATCH_THERE_DIR,
    SP_PATCH_THERE_OTHER,
    SP_PATCH_THERE_DANGLING, /* a link that leads nowhere */
};

/* Where the files are, if not on the disk of this process. Both functions return 0 or -errno. */
struct sp_patch_source {
    void *user;
    int (*look)(void *user, const char *path, enum sp_patch_there *ret);
    /* A regular file of at most max bytes, appended; EFBIG: it has more. */
    int (*read)(void *user, const char *path, uint64_t max, struct sp_buf *out);
    uint64_t max_file, max_all, max_steps; /* instead of the bounds below */
};

/*
 * Holds the patch against the files below cwd (absolute): the reads are made as whoever calls, or
 * by `source` (NULL: the disk).
 * ret_why (may be NULL): the whole story of lines that were not found, of which an error holds the
 * beginning; else it stays empty. Bounds: 64 MiB and 4 Mi lines a file, 256 MiB all files, and
 * 2^29 lines looked at: a search is one pass over the rest of a file at each of four levels.
 */
int sp_patch_verify(const struct sp_patch *p, const char *cwd, bool keeps_line_endings,
                    const struct sp_patch_source *source, struct sp_patch_changes *ret,
                    struct sp_buf *ret_why, struct sp_err *e);

/*
 * Verified by another process, which may read less than we: it tells what would become of the
 * files, and we hear it. The kinds and paths are the patch's own, whatever it tells.
 */
#define SP_PATCH_REPORT_BYTES (16U << 20)
/* SP_E_LIMIT: it would be larger than that. */
int sp_patch_add_report(struct sp_buf *out, const struct sp_patch_changes *c, struct sp_err *e);
/* Fills what sp_patch_list has made. After a failure they are only good to be freed. */
int sp_patch_read_report(struct sp_str report, struct sp_patch_changes *c, struct sp_err *e);

/* The digests of changes that were heard of, a line each, before the patch that they are of. */
bool sp_patch_add_approved(struct sp_buf *out, const struct sp_patch_changes *c,
                           struct sp_str patch);
/* The patch in that text; the digests are the lines before it. */
int sp_patch_find_approved(struct sp_str text, struct sp_str *ret_digests, struct sp_str *ret_patch,
                           struct sp_err *e);
/* Whether they are what was approved; the error names the first that is not. */
int sp_patch_check_approved(const struct sp_patch_changes *c, struct sp_str digests,
                            struct sp_err *e);

/* Whether no component of any path is a symbolic link, as far as it is there. */
int sp_patch_check_links(const struct sp_patch_changes *c, struct sp_err *e);
/*
 * Writes what was verified. Stops at the first failure; *ret_done says how many were carried out,
 * exactly: each file is replaced in one step, after its bytes are on the disk. A file that has
 * changed since it was read is refused.
 * refuses_links: no component of a path may be a symbolic link (a free patch).
 */
int sp_patch_apply(const struct sp_patch_changes *c, bool refuses_links, uint32_t *ret_done,
                   struct sp_err *e);
/* "Success. Updated the following files:" and its lines. */
bool sp_patch_add_summary(struct sp_buf *out, const struct sp_patch_changes *c);
/* A unified diff of one change, for a question (12.2). */
bool sp_patch_add_diff(struct sp_buf *out, const struct sp_patch_change *c);

#endif
