/* SPDX-License-Identifier: Apache-2.0 */
/*
 * patch: the apply_patch format: recognised in a command, parsed, verified against the files,
 * applied. All hunks are verified before the first file is written, and each file is written beside
 * its place and renamed.
 */
#ifndef SP_APPROVE_PATCH_PATCH_H
#define SP_APPROVE_PATCH_PATCH_H

#include "approve/script/script.h"

enum sp_patch_kind { SP_PATCH_ADD, SP_PATCH_DELETE, SP_PATCH_UPDATE };

/* A context line is in both lists with the same p: the lists point into one copy of the text. */
struct sp_patch_chunk {
    struct sp_str context; /* the text behind "@@"; p NULL: none */
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

/* SP_E_INVALID: "invalid patch: ..." or "invalid hunk at line N, ...". At most 16 MiB. */
int sp_patch_parse(struct sp_str text, struct sp_patch *ret, struct sp_err *e);

/* What a command is. */
enum sp_patch_call {
    SP_PATCH_CALL_NONE,  /* an ordinary command */
    SP_PATCH_CALL_PATCH, /* *ret_text is the patch, *ret_cd its directory (p NULL: none) */
    SP_PATCH_CALL_BARE,  /* a patch without apply_patch: refused with a hint */
};
int sp_patch_recognise(struct sp_words argv, enum sp_patch_call *ret, struct sp_buf *ret_text,
                       struct sp_buf *ret_cd, struct sp_err *e);

/* SHA-256 over the kind, the paths and the texts before and after. */
struct sp_patch_digest {
    uint8_t bytes[32];
};

/* One file that the patch changes; before and after are whole files. */
struct sp_patch_change {
    enum sp_patch_kind kind;
    struct sp_str path, move_to;         /* as written */
    const char *full_path, *full_target; /* absolute, lexically normal; target NULL: no move */
    /* UPDATE: both. ADD: after. DELETE: before, if it is text of at most SP_PATCH_SHOWN_BYTES (else
     * p NULL). */
    struct sp_str before, after;
    /* UPDATE, from a report: the unified diff instead of before and after. p NULL: they are
     * here. */
    struct sp_str diff;
    struct sp_patch_digest digest; /* from a report */
};
struct sp_patch_changes {
    const struct sp_patch_change *items;
    uint32_t count;
    void *impl;
};
void sp_patch_changes_done(struct sp_patch_changes *c);

/* The changes as the patch alone gives them (kinds, paths, contents of new files); no file is
 * read. */
int sp_patch_list(const struct sp_patch *p, const char *cwd, struct sp_patch_changes *ret,
                  struct sp_err *e);
/* What kind of file is at a path; links are followed. */
enum sp_patch_there {
    SP_PATCH_THERE_FILE,
    SP_PATCH_THERE_DIR,
    SP_PATCH_THERE_OTHER,
    SP_PATCH_THERE_DANGLING, /* a link without target */
};

/* Where the files are read, if not from the disk of this process. Both return 0 or -errno. */
struct sp_patch_source {
    void *user;
    int (*stat)(void *user, const char *path, enum sp_patch_there *ret);
    /* Appends a regular file of at most max bytes; EFBIG: it is larger. */
    int (*read)(void *user, const char *path, uint64_t max, struct sp_buf *out);
    uint64_t max_file, max_all, max_steps; /* instead of the bounds below */
};

/* Verifies the patch against the files below cwd (absolute). They are read with the rights of the
 * caller, or by `source` (NULL: from the disk). ret_why (may be NULL): the full text of an error
 * about lines that were not found, which struct sp_err truncates; empty for other errors. Bounds:
 * 64 MiB and 4 Mi lines a file, 256 MiB all files, and 2^29 inspected lines: a search is one pass
 * over the rest of a file at each of four levels. */
int sp_patch_verify(const struct sp_patch *p, const char *cwd, bool keeps_line_endings,
                    const struct sp_patch_source *source, struct sp_patch_changes *ret,
                    struct sp_buf *ret_why, struct sp_err *e);

/* A report carries what one process verified to a process that may not read the files itself. Kinds
 * and paths always come from the patch, not from the report. */
#define SP_PATCH_REPORT_BYTES (16U << 20)
/* SP_E_LIMIT: the report would be larger than SP_PATCH_REPORT_BYTES. */
int sp_patch_add_report(struct sp_buf *out, const struct sp_patch_changes *c, struct sp_err *e);
/* Completes the changes that sp_patch_list made. After a failure they can only be freed. */
int sp_patch_read_report(struct sp_str report, struct sp_patch_changes *c, struct sp_err *e);

/* Appends the digests of reported changes, a line each, and then the patch. */
bool sp_patch_add_approved(struct sp_buf *out, const struct sp_patch_changes *c,
                           struct sp_str patch);
/* Splits that text into the lines of digests and the patch. */
int sp_patch_find_approved(struct sp_str text, struct sp_str *ret_digests, struct sp_str *ret_patch,
                           struct sp_err *e);
/* Whether the changes are the approved ones; the error names the first that differs. */
int sp_patch_check_approved(const struct sp_patch_changes *c, struct sp_str digests,
                            struct sp_err *e);

/* Writes verified changes, in order, up to the first failure; *ret_done is the number of files
 * done. Each file is replaced atomically, after its bytes are synced. A file that changed since it
 * was verified is refused. refuses_links: no component of a path may be a symbolic link (for a
 * patch that no sandbox confines). only_checks: nothing but that is checked, and nothing written.
 */
int sp_patch_apply(const struct sp_patch_changes *c, bool refuses_links, bool only_checks,
                   uint32_t *ret_done, struct sp_err *e);
/* "Success. Updated the following files:" and its lines. */
bool sp_patch_add_summary(struct sp_buf *out, const struct sp_patch_changes *c);
/* Appends a unified diff of one change, for a question. */
bool sp_patch_add_diff(struct sp_buf *out, const struct sp_patch_change *c);

#endif
