/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree: a process and its descendants.
 *
 * The process must be a subreaper: then no descendant leaves its subtree while it lives.
 */
#ifndef SP_OS_TREE_H
#define SP_OS_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* -1: no such process. */
pid_t sp_tree_parent(pid_t pid);

/* Fills `pids` with the children of `parent`. Returns how many there are, which may be more than
 * `max`; -1 if /proc cannot be read. */
int sp_tree_children(pid_t parent, pid_t *pids, int max);

/* How many children are not zombies. */
int sp_tree_living(pid_t parent);

/* Sends SIGKILL to all descendants of `root` and, with_root, to `root` itself, which is stopped
 * meanwhile. When this returns none of them can start another process. */
void sp_tree_kill(pid_t root, bool with_root);

/*
 * ---- our own children ----
 *
 * A subreaper has two kinds of children: processes that it started, and orphans that the kernel
 * gave to it. The kernel does not tell them apart, so each process that we start is noted with
 * sp_own_add and removed when it is reaped. Thread-safe.
 */

void sp_own_add(pid_t pid);
void sp_own_remove(pid_t pid); /* not noted: nothing happens */
bool sp_own_has(pid_t pid);

/*
 * Sends SIGKILL to every orphan that was given to `parent` and to everything below it. The parent
 * is this process, which reaps the dead ones, or the keeper that started it, which reaps its own.
 * `may_be_unknown`: a child that is not noted yet may be our own if it is pid 1 of a pid
 * namespace; such processes are left alone this time. Returns how many orphans were found: call
 * again until there is none. Takes about `budget_ms` at most.
 */
size_t sp_own_kill_orphans(pid_t parent, bool may_be_unknown, int budget_ms);

#endif
