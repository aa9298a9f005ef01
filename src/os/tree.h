/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree: a process and everything below it.
 *
 * Works while the process is a subreaper: then nothing leaves its subtree while it lives.
 */
#ifndef SP_OS_TREE_H
#define SP_OS_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* -1: there is no such process (any more). */
pid_t sp_tree_parent(pid_t pid);

/* Fills `pids` with the children of `parent`; returns how many there are (more than `max`: the list
 * was cut), or -1 if the kernel does not tell. */
int sp_tree_children(pid_t parent, pid_t *pids, int max);

/* How many of them are not dead already. */
int sp_tree_living(pid_t parent);

/* SIGKILL to everything below `root` and, if asked for, `root` itself, which is stopped meanwhile.
 * The processes are dying when this returns: none of them can start another. */
void sp_tree_kill(pid_t root, bool with_root);

/* The same without the root and without those of its children (and what is below them) that are to
 * be spared. Ends when the time is up; then a process that was not met may be left. */
typedef bool sp_tree_spare(const void *user, pid_t child);
void sp_tree_kill_below(pid_t root, sp_tree_spare *is_spared, const void *user, int budget_ms);

#endif
