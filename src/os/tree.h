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

/* Fills `pids` with the children of `parent`; returns how many there are (more than `max`: the list
 * was cut), or -1 if the kernel does not tell. */
/* -1: there is no such process (any more). */
pid_t sp_tree_parent(pid_t pid);

int sp_tree_children(pid_t parent, pid_t *pids, int max);

/* SIGKILL to everything below `root` and, if asked for, `root` itself, which is stopped meanwhile.
 * The processes are dying when this returns: none of them can start another. */
void sp_tree_kill(pid_t root, bool with_root);

#endif
