/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gitdir: the small files by which a repository says where the rest of it is.
 */
#ifndef SP_SANDBOX_GITDIR_H
#define SP_SANDBOX_GITDIR_H

#include "base/error.h"
#include "sandbox/canonical.h"

#define SP_GITDIR_MAX 4096 /* bytes of a file that are looked at */

enum sp_gitdir_file {
    SP_GITDIR_DOT_GIT,   /* "gitdir: <path>" */
    SP_GITDIR_COMMONDIR, /* "<path>" */
    SP_GITDIR_WORKTREE,  /* a repository's config: core.worktree */
};

/*
 * Reads the file at `path`, no symlink on the way to it, against the directory `base`. *ret_path is
 * what it names, absolute but not normalised, to be freed; NULL if it names nothing, or cannot be
 * read by us. who: the regular file that was seen there, refused if it is another one by now; as it
 * was just before it was read when this returns.
 */
int sp_gitdir_read(const char *path, enum sp_gitdir_file file, const char *base,
                   struct sp_identity *who, char **ret_path, struct sp_err *e);

/* The same from the text. NULL: it names nothing, or (errno ENOMEM) there is no memory. */
char *sp_gitdir_parse(const char *text, enum sp_gitdir_file file, const char *base);

#endif
