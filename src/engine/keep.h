/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keep: copies that live together and go together. What an ask borrows is kept here for as long as
 * the call lasts. A failing copy says so; what was copied before it goes with the rest.
 */
#ifndef SP_ENGINE_KEEP_H
#define SP_ENGINE_KEEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/env_policy.h"
#include "base/str.h"

struct sp_keep {
    struct sp_keep_block *blocks;
};

void sp_keep_done(struct sp_keep *k);

/* Zeroed, aligned for anything; NULL: no memory. */
void *sp_keep_alloc(struct sp_keep *k, size_t n);

/* All of these: false if there is no memory, and *ret is untouched. A copy of a string has a NUL
 * behind it; a p of NULL stays NULL. */
bool sp_keep_str(struct sp_keep *k, struct sp_str s, struct sp_str *ret);
bool sp_keep_text(struct sp_keep *k, const char *text, const char **ret); /* NULL stays NULL */
bool sp_keep_strs(struct sp_keep *k, const struct sp_str *items, uint32_t count,
                  const struct sp_str **ret);
bool sp_keep_vars(struct sp_keep *k, struct sp_environ_vars vars, struct sp_environ_vars *ret);

/* own, policy, set and never_seen of an ask; the rest is left as it is. */
bool sp_keep_environ(struct sp_keep *k, const struct sp_environ_ask *ask,
                     struct sp_environ_ask *ret);

#endif
