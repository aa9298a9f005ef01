/* SPDX-License-Identifier: Apache-2.0 */
/*
 * placeholder: empty directories that stand where a protected name is missing while a sandbox needs
 * something to mount over.
 *
 * Each is counted, and removed with its last user. Servers that share one know of each other by a
 * lock on the placeholder itself: a user holds it shared (LOCK_SH), and it is removed only by a
 * server that gets it alone (LOCK_EX). What exists is written down in a journal, so that the next
 * server removes what a killed one has left.
 */
#ifndef SP_CORE_PLACEHOLDER_H
#define SP_CORE_PLACEHOLDER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

#define SP_MAX_PLACEHOLDERS 2048 /* of a server */

struct sp_journal;
struct sp_placeholders;

/* One that was taken. */
struct sp_placeholder_at {
    uint64_t dev, ino;
    int fd; /* the table's; a process with a duplicate keeps the lock */
};

/* journal: NULL, or it outlives the table. */
int sp_placeholders_new(struct sp_journal *journal, struct sp_placeholders **ret, struct sp_err *e);
/* Removes those that are left. */
void sp_placeholders_free(struct sp_placeholders *t);

/* One user more. 1: none is needed, for neither we nor a command of ours can make anything there.
 * -SP_E_STATE: something else is there by now. */
int sp_placeholder_take(struct sp_placeholders *t, const char *path, struct sp_placeholder_at *ret,
                        struct sp_err *e);
/* Whether an empty directory as we make them is there: this server's or another's. */
bool sp_placeholder_is_at(const char *path);
/* Whether the one that was taken is still there. */
bool sp_placeholder_stands(const struct sp_placeholders *t, const char *path);
/* Whether this server has one there, as far as it knows. */
bool sp_placeholder_is_ours(const struct sp_placeholders *t, const char *path);
/* One user less. */
void sp_placeholder_drop(struct sp_placeholders *t, const char *path);

/* Removes one that a dead server has left, unless another server uses it. false: it may still be
 * there, and could not be looked at. */
bool sp_placeholder_remove(const char *path);

#endif
