/* SPDX-License-Identifier: Apache-2.0 */
/*
 * placeholder: empty directories that stand where a protected name is missing while a sandbox needs
 * something to mount over (sandbox.md 3.4).
 *
 * Each is counted, and removed with its last user, of this server or another. What exists is
 * written down in a runtime directory of ours, one file for each server, so that the next one
 * removes what a killed one has left.
 */
#ifndef SP_CORE_PLACEHOLDER_H
#define SP_CORE_PLACEHOLDER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

#define SP_MAX_PLACEHOLDERS 2048 /* of a server */

struct sp_placeholders;

/* Removes what dead servers have left, too. `dir`: the runtime directory; made if it is missing;
 * NULL: none is kept (nothing is written down then). */
int sp_placeholders_new(const char *dir, struct sp_placeholders **ret, struct sp_error *e);
/* Removes those that are left. */
void sp_placeholders_free(struct sp_placeholders *t);

/* One user more. 1: none is needed, for neither we nor a command of ours can make anything there.
 * -SP_E_STATE: something else is there by now. */
int sp_placeholder_take(struct sp_placeholders *t, const char *path, uint64_t *ret_dev,
                        uint64_t *ret_ino, struct sp_error *e);
/* Whether an empty directory as we make them is there: this server's or another's. */
bool sp_placeholder_is_at(const char *path);
/* Whether the one that was taken is still there. */
bool sp_placeholder_stands(const struct sp_placeholders *t, const char *path);
/* Whether this server has one there, as far as it knows. */
bool sp_placeholder_is_ours(const struct sp_placeholders *t, const char *path);
/* One user less. */
void sp_placeholder_drop(struct sp_placeholders *t, const char *path);

/* Where servers of this user keep such things: into ret, or "" if there is no good place. */
void sp_runtime_dir(char *ret, unsigned long size);

#endif
