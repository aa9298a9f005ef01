/* SPDX-License-Identifier: Apache-2.0 */
/*
 * resolve: turns the entries of a policy into paths, and answers whether a path may be read or
 * written.
 *
 * Paths are compared lexically, by components; survey.h handles symlinks.
 */
#ifndef SP_SANDBOX_RESOLVE_H
#define SP_SANDBOX_RESOLVE_H

#include "base/path.h"
#include "sandbox/profile.h"

#define SP_NO_ENTRY SIZE_MAX

/* A path with an access. */
struct sp_fact {
    char *path; /* absolute, normalised */
    enum sp_access access;
    bool skips_missing;
    bool is_minimal; /* one of the directories behind `minimal` */
    size_t entry;    /* index in the profile */
};

struct sp_resolved {
    bool is_open; /* disabled, external, unrestricted: everything may be written */
    bool is_full_read, is_full_write, wants_minimal, has_denied_reads;
    struct sp_fact *facts; /* in the order of the entries */
    size_t count;
    char **globs; /* absolute patterns, sorted, each once */
    size_t glob_count;
    uint32_t glob_depth; /* 0: unlimited */
};
void sp_resolved_done(struct sp_resolved *r);

/* A missing `tmpdir` or `slash_tmp`, an `unknown`, and `project_roots` without roots make no fact.
 */
int sp_resolve(const struct sp_policy *p, struct sp_resolved *ret, struct sp_err *e);

/* The path must be normalised. ret_why (may be NULL): the deciding fact, or NULL. */
enum sp_access sp_resolved_access(const struct sp_resolved *r, const char *path,
                                  const struct sp_fact **ret_why);

/* Names that commands must not create directly below a writable root: programs run or trust their
 * contents. .git .agents .codex .aws .sallyport */
extern const char *const sp_protected_names[];
#define SP_PROTECTED_COUNT 5

/* Access is WRITE, and the path is not below a protected name of a writable root (unless an entry
 * reopens that name). ret_name (may be NULL): the protected name if it is the reason, else NULL. */
bool sp_resolved_can_write(const struct sp_resolved *r, const char *path,
                           const struct sp_fact **ret_why, const char **ret_name);

#endif
