/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy_args: a sandbox policy as people give it on a command line.
 */
#ifndef SP_CLI_POLICY_ARGS_H
#define SP_CLI_POLICY_ARGS_H

#include "sandbox/profile.h"

#define SP_PROFILE_FILE_MAX (1U << 20) /* bytes */

struct sp_policy_args {
    const char *mode;         /* NULL: not given */
    const char *profile_file; /* NULL: none */
    const char *const *writable;
    size_t writable_count;
    bool has_network;
    const char *cwd; /* absolute; the workspace */
};

/* Without a mode and a file: read-only. TMPDIR and HOME are the environment's. */
int sp_policy_from_args(const struct sp_policy_args *a, struct sp_policy *ret, struct sp_err *e);

#endif
