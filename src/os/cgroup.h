/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cgroup: a place that no process leaves, so that all of a command can be ended at once.
 *
 * One directory of ours below the cgroup (version 2, also beside version 1) that we are in, one
 * leaf in it per command. Nothing is limited or counted.
 */
#ifndef SP_OS_CGROUP_H
#define SP_OS_CGROUP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct sp_cgroup {
    int dir; /* of our directory; -1: there is none */
    char path[512];
};

#define SP_CGROUP_NAME 48

/* A name for a directory that nobody else will think of: pids repeat, across namespaces too. */
bool sp_cgroup_name(char ret[SP_CGROUP_NAME]);

/* Makes the directory and tries every step on a leaf. false: this host does not let us. */
bool sp_cgroup_new(const char *name, struct sp_cgroup *ret);
/* Where the directory with this name is, or would be. false: there are no cgroups to be had. */
bool sp_cgroup_path(const char *name, char *ret, size_t size);
/* Ends and removes what another process of ours made and could not remove itself. */
void sp_cgroup_clean_up(const char *name);
/* The same by its path; nothing that does not lie in a cgroup file system or is not named as ours.
 */
void sp_cgroup_remove(const char *path);
/* Ends whoever is left, then removes the directory; waits up to a second for them to be gone. */
void sp_cgroup_free(struct sp_cgroup *c);

/* A new leaf's directory descriptor for sp_spawn; -1: no (errno, EEXIST if there is one). */
int sp_cgroup_make_leaf(struct sp_cgroup *c, uint32_t leaf);
/* With whatever a command has made in it. One that cannot be removed goes with the directory. */
void sp_cgroup_remove_leaf(struct sp_cgroup *c, uint32_t leaf);

/* Who is in a leaf of the directory with this name, as we number them; returns how many were put
 * into `pids`, 0 also if it cannot be told. */
uint32_t sp_cgroup_list(const char *name, uint32_t leaf, pid_t *pids, uint32_t max);

bool sp_cgroup_is_empty(int leaf_fd);
/* After this the leaf is of no use: newer kernels kill whoever is born into it later, too. */
void sp_cgroup_kill(int leaf_fd);

#endif
