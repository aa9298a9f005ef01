/* SPDX-License-Identifier: Apache-2.0 */
/*
 * namespace: new namespaces for a confined cell. All functions return 0 or minus errno.
 */
#ifndef SP_OS_NAMESPACE_H
#define SP_OS_NAMESPACE_H

#include <stdbool.h>
#include <sys/types.h>

/* Unshares user, mount, pid, ipc, uts, cgroup and, if asked for, network. Single-threaded callers
 * only. */
int sp_namespaces_unshare(bool with_network);
/* Right after sp_namespaces_unshare: maps our uid and gid to themselves. */
int sp_namespaces_map_ids(uid_t uid, gid_t gid);
/* Forks the first process of the new pid namespace, as a child of our parent (CLONE_PARENT).
 * Returns twice, as fork does: 0 in the child, its pid here. */
pid_t sp_namespaces_fork(int *ret_pidfd);
/* Brings up the loopback interface of our network namespace. */
int sp_namespaces_raise_loopback(void);

#endif
