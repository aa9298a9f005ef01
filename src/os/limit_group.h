/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limit_group: cgroups that limit memory, processes and processors, by version 2, by version 1, or
 * by both at once (hybrid).
 *
 * A *hierarchy* is one mounted tree of cgroups. Version 2 has all of its controllers in one
 * hierarchy, version 1 has about one hierarchy for each controller. A *group* is a directory of the
 * same relative name in each hierarchy that it needs, below the cgroup of this process:
 *
 *   OWN/sallyport-PID-RANDOM/front/     version 2: this process and its cells, if OWN must be empty
 *                            s7/c12/    a group in a group in a group
 *
 * In version 2 a cgroup with processes cannot give controllers to the cgroups in it, so the first
 * group moves the processes in OWN to front/. They move only if all are this process and its
 * descendants.
 */
#ifndef SP_OS_LIMIT_GROUP_H
#define SP_OS_LIMIT_GROUP_H

#include <stdbool.h>
#include <stdint.h>

#include "os/cgroup.h"

enum sp_controller {
    SP_CONTROL_MEMORY,
    SP_CONTROL_PIDS,
    SP_CONTROL_CPU,     /* the share of the processors */
    SP_CONTROL_CPUACCT, /* counts CPU time; every cgroup of version 2 does that */
    SP_CONTROLLERS
};
#define SP_CONTROL_BIT(c) (1U << (c))

#define SP_HIERARCHIES 4

struct sp_hierarchy {
    bool is_v2;
    unsigned controllers; /* bits: those that groups in it have */
    char own[400];        /* the directory of our own cgroup */
};

/* What the cgroups of this process offer. */
struct sp_limit_host {
    unsigned count;
    struct sp_hierarchy items[SP_HIERARCHIES];
    unsigned controllers; /* bits: those that groups can have */
    bool may_move;        /* processes of ours may be moved to front/ */
    pid_t root;           /* ours are this process and its descendants */
    /* How to get a controller that is missing; NULL: it is there. */
    const char *remedies[SP_CONTROLLERS];
};

/* may_move: `root`, this process or the one that starts it again, belongs to no host program. Also
 * removes the directories of servers that
 * are gone, as far as no process is in them. */
void sp_limit_host_find(pid_t root, bool may_move, struct sp_limit_host *ret);
/* The same from the texts of /proc/self/mountinfo and /proc/self/cgroup. */
void sp_limit_host_read(const char *mountinfo, const char *cgroup, pid_t root, bool may_move,
                        struct sp_limit_host *ret);

/* Files that are read for each command. */
enum sp_group_file {
    SP_GROUP_KILLS,
    SP_GROUP_PEAK_MEMORY,
    SP_GROUP_REFUSALS,
    SP_GROUP_PEAK_PIDS,
    SP_GROUP_PIDS,
    SP_GROUP_FILES
};

struct sp_limit_group {
    struct sp_limit_host *host;
    struct sp_limit_group *parent; /* NULL: our own cgroup */
    char name[SP_CGROUP_NAME];
    unsigned made;                   /* bits: hierarchies in which it exists */
    unsigned ready;                  /* bits: controllers that it has */
    unsigned enabled;                /* bits: controllers that groups in it have (version 2) */
    unsigned moved;                  /* bits: hierarchies in which front/ was made */
    int dirs[SP_HIERARCHIES];        /* -1: not open */
    uint64_t limits[SP_CONTROLLERS]; /* 0: unlimited */
    bool keeps_files;                /* `files` stay open between two reads */
    int files[SP_GROUP_FILES];       /* -1: not open */
};

void sp_limit_group_init(struct sp_limit_group *g, struct sp_limit_host *host,
                         struct sp_limit_group *parent, const char *name);
/* Makes its directories in the hierarchies of these controllers, as far as they are missing, and
 * sets its limits: memory in bytes, pids, processors in thousandths; 0: no limit. limits NULL: none
 * is set. Its parent has these controllers. false: errno. */
bool sp_limit_group_make(struct sp_limit_group *g, unsigned controllers,
                         const uint64_t limits[SP_CONTROLLERS]);
/* A group that an earlier process has made, with these controllers: opens its directories, as far
 * as they are there. */
void sp_limit_group_reopen(struct sp_limit_group *g, unsigned controllers,
                           const uint64_t limits[SP_CONTROLLERS]);
/* Removes the directories. false: a process or a group is in it (EBUSY); call again later. */
bool sp_limit_group_remove(struct sp_limit_group *g);
struct sp_group_counts {
    uint64_t kills;       /* processes in it that the kernel killed for want of memory */
    uint64_t memory_hits; /* times that memory met its own limit; 0 without kills */
    uint64_t refusals;    /* forks refused, in version 2 from 6.11 on by its own limit alone */
    uint64_t cpu_us;
    uint64_t user_us, system_us;
    uint64_t peak_memory, peak_pids; /* since it was made, or memory since it was reset; 0: the
                                        kernel does not tell */
    bool has_reset_peak;             /* that of memory */
    uint64_t held_memory;            /* what no reclaim frees */
    uint64_t pids;
};
enum sp_group_read {
    SP_READ_COUNTS = 1,
    SP_READ_HELD = 2,  /* held_memory, of a group with a limit of memory */
    SP_READ_PIDS = 4,  /* pids */
    SP_RESET_PEAK = 8, /* before it is read */
    SP_READ_CPU = 16,  /* cpu_us alone */
};
/* What was not asked for, and counts of other controllers, are 0. `what`: enum sp_group_read. */
void sp_limit_group_read(struct sp_limit_group *g, unsigned controllers, unsigned what,
                         struct sp_group_counts *ret);

#endif
