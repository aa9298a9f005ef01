/* SPDX-License-Identifier: Apache-2.0 */
/*
 * patch_files: a patch held against files and applied, by the process that calls. What there is to
 * say goes to stdout and stderr; each returns an exit status.
 */
#ifndef SP_CLI_PATCH_FILES_H
#define SP_CLI_PATCH_FILES_H

#include "base/buf.h"
#include "base/error.h"

enum sp_patch_what {
    SP_PATCH_CHECK,    /* prints what success would print */
    SP_PATCH_WRITE,    /* applies it */
    SP_PATCH_REPORT,   /* prints what would change, for another process (approve/patch/patch.h) */
    SP_PATCH_APPROVED, /* applies it if it changes what was reported, which is before the patch */
};

struct sp_patch_way {
    enum sp_patch_what what;
    const char *cwd;  /* the directory we are in, without a link in it */
    const char *base; /* the same, as whoever asks calls it */
    bool keeps_endings, refuses_links;
};

/* way NULL: it is only looked whether it is a patch. */
int sp_patch_files(struct sp_str text, const struct sp_patch_way *way);
/* All of stdin: a patch, with room for what comes before one that was approved. */
int sp_patch_files_read(struct sp_buf *out, struct sp_err *e);
/* On stderr, as the errors of a patch are worded (approvals.md 14.2). */
int sp_patch_files_complain(const struct sp_err *e);

#endif
