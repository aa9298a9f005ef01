/* SPDX-License-Identifier: Apache-2.0 */
/*
 * resolve: a policy's entries as paths, and the answer to "may this path be read, be written?".
 *
 * Paths are compared by their components, lexically; symlinks are survey.h's business.
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
    bool is_minimal; /* one of the platform's defaults */
    size_t entry;    /* of the profile */
};

struct sp_resolved {
    bool is_open; /* disabled, external, unrestricted: everything may be written */
    bool is_full_read, is_full_write, wants_minimal, has_denied_reads;
    struct sp_fact *facts; /* in the order of the entries */
    size_t count;
    char **globs; /* absolute patterns, sorted, each once */
    size_t glob_count;
    uint32_t glob_depth; /* 0: as deep as it goes */
};
void sp_resolved_done(struct sp_resolved *r);

/* A `tmpdir` or `slash_tmp` that is not there, an `unknown`, `project_roots` without roots: no
 * fact. */
int sp_resolve(const struct sp_policy *p, struct sp_resolved *ret, struct sp_err *e);

/* ret_why (may be NULL): the fact that decided, or NULL. The path is normalised. */
enum sp_access sp_resolved_access(const struct sp_resolved *r, const char *path,
                                  const struct sp_fact **ret_why);

/* The names that nobody plants directly below a writable root: .git .agents .codex .aws .sallyport
 */
extern const char *const sp_protected_names[];
#define SP_PROTECTED_COUNT 5

/* As access, and not below a protected name of a writable root unless an entry reopens it;
 * ret_name (may be NULL): that name if it is the reason, else NULL. */
bool sp_resolved_can_write(const struct sp_resolved *r, const char *path,
                           const struct sp_fact **ret_why, const char **ret_name);

#endif
