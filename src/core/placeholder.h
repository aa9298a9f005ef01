/* SPDX-License-Identifier: Apache-2.0 */
/*
 * placeholder: empty directories at missing names that are protected, denied or read-only, for a
 * sandbox to mount over.
 *
 * Each has a reference count, and is removed with its last reference. Servers that share one
 * coordinate by flock on the placeholder itself: a server that uses it holds LOCK_SH, and only a
 * server that gets LOCK_EX removes it. A journal lists the placeholders, so that the next server
 * removes those of a killed one.
 */
#ifndef SP_CORE_PLACEHOLDER_H
#define SP_CORE_PLACEHOLDER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

#define SP_MAX_PLACEHOLDERS 2048 /* of a server */

struct sp_journal;
struct sp_placeholder;

/* Those of a server. Zero but for the journal at first. */
struct sp_placeholders {
    struct sp_placeholder *first;
    unsigned count;
    struct sp_journal *journal; /* NULL, or it outlives the table */
};

struct sp_placeholder_at {
    uint64_t dev, ino;
    int fd; /* owned by the table; a process with a duplicate keeps the lock */
};

/* Removes the remaining placeholders. */
void sp_placeholders_free(struct sp_placeholders *t);

enum {
    SP_PLACEHOLDER_TAKEN,
    SP_PLACEHOLDER_NEEDLESS, /* neither we nor a command can create the name */
    /* The parent directory is this user's and has no write permission. A command could give it. */
    SP_PLACEHOLDER_UNWRITABLE,
};
/* Takes a reference, if the result is TAKEN. -SP_E_STATE: another file has appeared there. */
int sp_placeholder_take(struct sp_placeholders *t, const char *path, struct sp_placeholder_at *ret,
                        struct sp_err *e);
/* Whether the path is a placeholder of any server. */
bool sp_placeholder_is_at(const char *path);
/* Whether the placeholder of this server is still in place. */
bool sp_placeholder_stands(const struct sp_placeholders *t, const char *path);
/* Whether this server has a placeholder there, by its table. */
bool sp_placeholder_is_ours(const struct sp_placeholders *t, const char *path);
/* Drops a reference. */
void sp_placeholder_drop(struct sp_placeholders *t, const char *path);

/* Removes a placeholder of a dead server, unless another server uses it. false: it could not be
 * opened and may still be there. */
bool sp_placeholder_remove(const char *path);

#endif
