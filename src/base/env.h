/* SPDX-License-Identifier: Apache-2.0 */
/*
 * env: the variables of a child process.
 *
 * An env is built in layers: our own variables that the policy passes, the ones it sets, those of
 * the request, those we add; a later layer overrides an earlier one. Names and values are bytes and
 * need not be UTF-8. The result is sorted by name.
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
    int rank;       /* the layer: of equal names the highest rank wins, */
    uint32_t order; /* then the latest */
};

struct sp_env_policy {
    enum sp_env_inherit inherit;
    bool ignores_default_excludes;
    const struct sp_str *exclude, *include_only; /* patterns */
    uint32_t exclude_count, include_only_count;
    /* Under a sandbox: names that look like credentials are not inherited, unless a pattern of
     * `keep` matches or include_only has the literal name. */
    bool hides_secrets;
    const struct sp_str *keep;
    uint32_t keep_count;
};

struct sp_env_var {
    struct sp_str name, value;
};

struct sp_env_vars {
    const struct sp_env_var *items;
    uint32_t count;
};

/* Patterns of names that look like credentials; p is NULL at the end. */
#define SP_ENV_SECRETS 10
extern const struct sp_str sp_env_secrets[SP_ENV_SECRETS + 1];

/* An env under construction; the strings are borrowed. */
struct sp_env {
    struct sp_env_pair *pairs;
    uint32_t count, cap;
};
void sp_env_done(struct sp_env *e);

/* Adds a variable. false: no memory. */
bool sp_env_add(struct sp_env *e, struct sp_str name, struct sp_str value, int rank);

/* The first layer: the variables of `own` (NAME=VALUE, NULL at the end) that the policy passes. */
bool sp_env_inherit(struct sp_env *e, const struct sp_env_policy *p, char *const *own, int rank);
/* Whether include_only is empty or has the name. */
bool sp_env_is_included(const struct sp_env_policy *p, struct sp_str name);

/* Matches the whole name, with * and ?, ignoring ASCII case; an empty pattern matches nothing. */
bool sp_env_matches(struct sp_str pattern, struct sp_str name);

/*
 * Sorts, resolves equal names, drops private variables, and writes NAME=VALUE strings with their
 * NULs. CODEX_TOOL_CALL_ID is dropped unless its rank is metadata_rank; with has_metadata,
 * CODEX_THREAD_ID likewise. false: no memory.
 */
bool sp_env_write(struct sp_env *e, int metadata_rank, bool has_metadata, struct sp_buf *out,
                  uint32_t *ret_count);
/* A secret of the executor itself, which no child gets. Ignores ASCII case. */
bool sp_env_is_private(struct sp_str name);

/* Appends a sentence with the names of `own` that a sandbox does not pass, or nothing. false: no
 * memory. */
bool sp_env_add_left_out(const struct sp_env_policy *p, char *const *own, struct sp_buf *out);

/* The value of a variable in NAME=VALUE strings with their NULs; p NULL: unset. */
struct sp_str sp_env_value(struct sp_str environ, const char *name);

#endif
