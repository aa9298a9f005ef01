/* SPDX-License-Identifier: Apache-2.0 */
/*
 * environment: what a child's environment is made of (exec-server-protocol.md 5.9).
 *
 * Layers, each over the one before: what the policy lets through of our own, what it sets, what the
 * request gives, what we add. Names are bytes; nothing need be UTF-8. The result is sorted by name.
 */
#ifndef SP_BASE_ENV_H
#define SP_BASE_ENV_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/str.h"

enum sp_env_inherit { SP_ENV_NONE, SP_ENV_CORE, SP_ENV_ALL };

struct sp_env_pair {
    struct sp_str name, value;
    int rank;       /* of equal names the highest wins, */
    uint32_t order; /* of equal ranks the latest */
};

struct sp_env_policy {
    enum sp_env_inherit inherit;
    bool ignores_default_excludes;
    const struct sp_str *exclude, *include_only; /* patterns */
    uint32_t exclude_count, include_only_count;
    /* Under a sandbox: what looks like a credential is not inherited, unless a pattern of `keep`
     * matches its name, or include_only has it without a wildcard. */
    bool hides_secrets;
    const struct sp_str *keep;
    uint32_t keep_count;
};

/* The names that look like a credential; p NULL at the end. */
#define SP_ENV_SECRETS 10
extern const struct sp_str sp_env_secrets[SP_ENV_SECRETS + 1];
bool sp_env_is_secret(struct sp_str name);
/* Whether the policy names the variable, so that a sandbox lets it through. */
bool sp_env_is_kept(const struct sp_env_policy *p, struct sp_str name);

/* A list under construction; the strings are borrowed. */
struct sp_env {
    struct sp_env_pair *pairs;
    uint32_t count, cap;
};
void sp_env_done(struct sp_env *e);

/* Lays one pair over whatever has this name. false: no memory. */
bool sp_env_add(struct sp_env *e, struct sp_str name, struct sp_str value, int rank);

/* The first layer: what the policy lets through of `own` (NULL-terminated NAME=VALUE). */
bool sp_env_inherit(struct sp_env *e, const struct sp_env_policy *p, char *const *own, int rank);
/* Whether a name that the policy sets passes its own include_only. */
bool sp_env_is_included(const struct sp_env_policy *p, struct sp_str name);

/* The whole name against * and ?, ASCII case ignored; the empty pattern matches nothing. */
bool sp_env_matches(struct sp_str pattern, struct sp_str name);

/*
 * Sorts, settles equal names, leaves out what no child may see, and writes NAME=VALUE strings with
 * their NULs. CODEX_TOOL_CALL_ID is left out unless its rank is metadata_rank; so is
 * CODEX_THREAD_ID if there is metadata. false: no memory.
 */
bool sp_env_write(struct sp_env *e, int metadata_rank, bool has_metadata, struct sp_buf *out,
                  uint32_t *ret_count);
bool sp_env_has(const struct sp_env *e, struct sp_str name);
/* A variable that no child ever sees: a secret of the executor itself. ASCII case ignored. */
bool sp_env_is_private(struct sp_str name);

#endif
