/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cgroup: a cgroup per command, which its processes cannot leave, so that all can be killed at
 * once.
 *
 * One directory below our own cgroup (version 2, also beside version 1), one leaf in it per
 * command. No controller is enabled: nothing is limited or accounted.
 */
#ifndef SP_OS_CGROUP_H
#define SP_OS_CGROUP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SP_CGROUP_NAME 48
#define SP_CGROUP_PATH 512

struct sp_cgroup {
    int dir; /* descriptor of the directory; -1: none */
    char path[SP_CGROUP_PATH];
};

/* A unique name for a directory: pid and random number, for pids repeat across namespaces. */
bool sp_cgroup_name(char ret[SP_CGROUP_NAME]);
/* The same for a process that outlives this one. */
bool sp_cgroup_name_for(pid_t pid, char ret[SP_CGROUP_NAME]);

/* Makes the directory and tries every step on a leaf. false: not possible on this host. */
bool sp_cgroup_new(const char *name, struct sp_cgroup *ret);
/* The path of the directory with this name, which need not exist. false: no cgroup2 here. */
bool sp_cgroup_path(const char *name, char ret[SP_CGROUP_PATH]);
/* Kills and removes what another process of ours has left behind. Ignored unless the path is on
 * cgroup2 and ends with a name of sp_cgroup_name. */
void sp_cgroup_remove(const char *path);
/* Kills the processes in it and removes it; waits up to a second for them to exit. */
void sp_cgroup_free(struct sp_cgroup *c);

/* Makes a leaf; its directory descriptor is for sp_spawn. -1 with errno: EEXIST if it exists. */
int sp_cgroup_make_leaf(struct sp_cgroup *c, uint32_t leaf);
/* Removes a leaf and the cgroups below it. A busy one is left to sp_cgroup_free. */
void sp_cgroup_remove_leaf(struct sp_cgroup *c, uint32_t leaf);

/* The processes in a leaf of the directory with this name, in our pid namespace. Returns how many
 * were put into `pids`; 0 also if the leaf cannot be read. */
uint32_t sp_cgroup_list(const char *name, uint32_t leaf, pid_t *pids, uint32_t max);

/* The directory of a leaf that exists; -1 with errno. */
int sp_cgroup_open_leaf(const struct sp_cgroup *c, uint32_t leaf);

/* *events keeps a descriptor from one call to the next; -1: none yet. NULL: none is kept. */
bool sp_cgroup_is_empty(int leaf_fd, int *events);
/* The leaf must not be used afterwards: newer kernels kill processes that enter it later, too. */
void sp_cgroup_kill(int leaf_fd);

#endif
