/* SPDX-License-Identifier: Apache-2.0 */
/*
 * command_env: the variables of a command that a model runs.
 *
 * Layers, a later one overrides an earlier one: the variables that the policy passes and sets; ids
 * of the caller; variables that keep programs plain; marks of the sandbox of this attempt.
 * Credentials of our own are removed at the end, from all layers. All strings are borrowed.
 *
 * The result is NAME=VALUE strings with their NULs, sorted by name.
 */
#ifndef SP_ENGINE_COMMAND_ENV_H
#define SP_ENGINE_COMMAND_ENV_H

#include "base/arena.h"
#include "base/env.h"
#include "base/error.h"
#include "sandbox/network_policy.h"

/* NO_COLOR, TERM=dumb, PAGER=cat ..., as Codex sets them, and SALLYPORT=1. Not for one-shot runs.
 */
extern const struct sp_env_vars sp_env_plain;

struct sp_env_request {
    char *const *own; /* the variables to inherit from: NAME=VALUE, NULL at the end */
    struct sp_env_policy policy;
    struct sp_env_vars set; /* the policy's `set` */
    /* For a server: the policy is carried out here and all variables are sent, instead of the
     * policy for the server's own. */
    bool is_sent_whole;

    struct sp_str thread_id, session_id, call_id; /* p NULL: none */
    struct sp_str permission_profile;             /* p NULL: none */

    struct sp_env_vars plain; /* sp_env_plain, other names, or none */
    /* Further ones of this attempt. Without its sandbox: GIT_CONFIG_*, PATH, BASH_ENV and ENV, as
     * the plan sets them against files that commands may have written. */
    struct sp_env_vars marks;
    /* The sandbox of this attempt; sp_job_start sets them if there is a policy. Under a sandbox
     * names that look like credentials are not inherited (hides_secrets). */
    bool is_confined, has_no_network;
    const struct sp_network_policy *network; /* its managed network; NULL: none. Sets the variables
                                                of the proxy, whatever the layers before have */
    const struct sp_str *never_seen;         /* further names of our own credentials */
    uint32_t never_seen_count;
};

/*
 * SP_E_INVALID for a name that is empty or contains '=', SP_E_FAILED for a NUL byte, SP_E_SYSTEM
 * without memory.
 */
int sp_env_make(const struct sp_env_request *ask, struct sp_buf *out, uint32_t *ret_count,
                struct sp_err *e);

/* The first layer alone, which sp_env_overlay compares with. */
int sp_env_of_policy(const struct sp_env_request *ask, struct sp_buf *out, uint32_t *ret_count,
                     struct sp_err *e);

/*
 * The variables to send to an executor that evaluates the policy itself: those of `made` that
 * differ from `of_policy`, and CODEX_PERMISSION_PROFILE always. leaves_path: without PATH, because
 * the executor restores its own from a snapshot. false: no memory.
 */
bool sp_env_overlay(struct sp_str of_policy, struct sp_str made, bool leaves_path,
                    struct sp_buf *out, uint32_t *ret_count);

/* Copies into the arena. false: no memory, *ret is untouched. */
bool sp_env_copy_vars(struct sp_arena *a, struct sp_env_vars vars, struct sp_env_vars *ret);
/* Copies own, policy, set and never_seen of a request; the other fields still point where they did.
 */
bool sp_env_copy_request(struct sp_arena *a, const struct sp_env_request *ask,
                         struct sp_env_request *ret);

#endif
