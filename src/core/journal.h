/* SPDX-License-Identifier: Apache-2.0 */
/*
 * journal: what a server has made outside of itself, so that the next one can remove it if this one
 * is killed: placeholders and cgroup directories.
 *
 * One file for each server in the runtime directory, locked (flock) for as long as the server or
 * its open cell lives. A file that nobody has locked is a dead server's: the next server removes
 * what it lists, and the file.
 */
#ifndef SP_CORE_JOURNAL_H
#define SP_CORE_JOURNAL_H

#include <stdbool.h>

#include "base/error.h"

#define SP_JOURNAL_MAX (1U << 20) /* bytes */

struct sp_journal;

/* Cleans up after dead servers, too. `dir`: the runtime directory, made if it is missing; NULL, or
 * one that is not ours alone: nothing is written down, with a warning that says why. */
int sp_journal_new(const char *dir, struct sp_journal **ret, struct sp_err *e);
/* What is still noted is left to the next server. */
void sp_journal_free(struct sp_journal *j);

/* Before the thing exists: the path of a placeholder. */
void sp_journal_add(struct sp_journal *j, const char *path);
/* When it is gone. */
void sp_journal_remove(struct sp_journal *j, const char *path);
/* The same for a cgroup directory (os/cgroup.h). */
void sp_journal_add_cgroup(struct sp_journal *j, const char *path);
void sp_journal_remove_cgroup(struct sp_journal *j, const char *path);

/* A process that has a duplicate keeps the lock; -1: there is none. */
int sp_journal_fd(const struct sp_journal *j);

#endif
