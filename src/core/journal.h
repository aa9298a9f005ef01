/* SPDX-License-Identifier: Apache-2.0 */
/*
 * journal: lists the placeholders and cgroup directories that a server has made, so that the next
 * server can remove them if this one is killed.
 *
 * There is one file for each server in the runtime directory, locked (flock) while the server or
 * its open cell lives. An unlocked file belongs to a dead server: the next server removes the
 * entries, then the file.
 *
 * With a keeper the file, and so its lock, lives as long as the server: each front goes on with it.
 */
#ifndef SP_CORE_JOURNAL_H
#define SP_CORE_JOURNAL_H

#include <stdbool.h>

#include "base/error.h"
#include "keeper/hold.h"

#define SP_JOURNAL_MAX (1U << 20) /* bytes */

struct sp_journal;

/* Cleans up after dead servers, too. `dir`: the runtime directory, made if it is missing. If dir is
 * NULL, or other users can write to it, nothing is noted; the latter logs a warning. hold: NULL
 * without a keeper. */
int sp_journal_new(const char *dir, struct sp_hold *hold, struct sp_journal **ret,
                   struct sp_err *e);
/* Entries that remain are left to the next server. With a keeper they are from earlier fronts, and
 * what they name is removed: the cells of all fronts have ended. */
void sp_journal_free(struct sp_journal *j);

/* What an entry's path is, as it stands before the path in the file. */
#define SP_JOURNAL_PLACEHOLDER ""
#define SP_JOURNAL_CGROUP      "cgroup:"

/* Call before the thing is made, and after it was removed. */
void sp_journal_add(struct sp_journal *j, const char *kind, const char *path);
void sp_journal_remove(struct sp_journal *j, const char *kind, const char *path);

/* Removes what an earlier front has noted and nothing uses any more. */
void sp_journal_clean_up(struct sp_journal *j,
                         bool (*is_used)(void *user, const char *kind, const char *path),
                         void *user);

/* The locked file; a process with a duplicate keeps the lock. -1: none. */
int sp_journal_fd(const struct sp_journal *j);

#endif
