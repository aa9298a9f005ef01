/* SPDX-License-Identifier: Apache-2.0 */
/*
 * namespace: leaving the host's, for good. All functions return 0 or minus errno.
 */
#ifndef SP_OS_NAMESPACE_H
#define SP_OS_NAMESPACE_H

#include <stdbool.h>
#include <sys/types.h>

/* User, mount, pid, ipc, uts, cgroup and, if asked for, network: all at once. One thread. */
int sp_namespaces_leave(bool with_network);
/* Right after it: we stay who we are, our own numbers mapped onto themselves. */
int sp_namespaces_map_ids(uid_t uid, gid_t gid);
/* A copy of ourselves is the first process of the new pid namespace, and a child of our parent, not
 * ours. Returns twice, as fork does: 0 in the child, its number (as we see it) here. */
pid_t sp_namespaces_be_born(int *ret_pidfd);
/* The network namespace we are in gets its loopback. */
int sp_namespaces_raise_loopback(void);

#endif
