/* SPDX-License-Identifier: Apache-2.0 */
/*
 * environ: the environment of a command that a model runs (unified-exec.md 9.1, 9.2).
 *
 * Layers, each over the one before: what the policy lets through and sets; who runs the command;
 * what keeps programs plain (the ten); what the sandbox says of this attempt. Names that no command
 * may see are taken out at the end, whoever set them. All strings are borrowed, nothing is kept.
 *
 * An environment that was made is NAME=VALUE strings with their NULs, sorted by name.
 */
#ifndef SP_BASE_ENV_POLICY_H
#define SP_BASE_ENV_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/env.h"
#include "base/error.h"
#include "base/str.h"

struct sp_environ_var {
    struct sp_str name, value;
};

struct sp_environ_vars {
    const struct sp_environ_var *items;
    uint32_t count;
};

/* No colour, no pager, no terminal tricks: the ten, and SALLYPORT=1. Not for one-shot runs. */
extern const struct sp_environ_vars sp_environ_plain;

struct sp_environ_ask {
    char *const *own; /* where inheriting begins: NULL-terminated NAME=VALUE */
    struct sp_env_policy policy;
    struct sp_environ_vars set; /* the policy's `set` */

    struct sp_str thread_id, session_id, call_id; /* p NULL: not known */
    struct sp_str permission_profile;             /* p NULL: none is active, so none is named */

    struct sp_environ_vars plain; /* sp_environ_plain, other names, or none */
    struct sp_environ_vars marks; /* of this attempt besides: the proxy's variables */
    /* Of this attempt's sandbox; sp_job_start sets them for one that has a policy. Under a sandbox
     * nothing is inherited that looks like a credential (base/env.h). */
    bool is_confined, has_no_network;
    const struct sp_str *never_seen; /* names of our own credentials, besides those built in */
    uint32_t never_seen_count;
};

/*
 * SP_E_INVALID for a name that is empty or has a '=', SP_E_FAILED for a NUL byte: neither can be
 * told to a program. SP_E_SYSTEM without memory.
 */
int sp_environ_make(const struct sp_environ_ask *ask, struct sp_buf *out, uint32_t *ret_count,
                    struct sp_err *e);

/* Appends a sentence with the names of what a sandbox leaves out of `own`, or nothing. false: no
 * memory. */
bool sp_environ_add_left_out(const struct sp_environ_ask *ask, struct sp_buf *out);

/* What the policy alone makes of `own`: the measure of an overlay. */
int sp_environ_of_policy(const struct sp_environ_ask *ask, struct sp_buf *out, uint32_t *ret_count,
                         struct sp_err *e);

/*
 * What an executor that evaluates the policy itself must be told besides: every variable of `made`
 * that is not the same in `of_policy`, and CODEX_PERMISSION_PROFILE if it is there at all.
 * leaves_path: PATH is the executor's, because it restores a snapshot and the policy sets none.
 * false: no memory.
 */
bool sp_environ_overlay(struct sp_str of_policy, struct sp_str made, bool leaves_path,
                        struct sp_buf *out, uint32_t *ret_count);

#endif
