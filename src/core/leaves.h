/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaves: the cgroups that hold the limits of a server, of its sessions and of its commands: a
 * group for each session in the group of the server, and in that a leaf for each command that has a
 * limit at any level (os/limit_group.h).
 *
 *   take --> a command runs --give--> empty: ready for the next command, or removed
 *                                  '-> has strays: lingers until they have ended
 *
 * A session's group is removed with its last leaf, after the session has ended.
 */
#ifndef SP_CORE_LEAVES_H
#define SP_CORE_LEAVES_H

#include "base/limits.h"
#include "base/list.h"
#include "os/limit_group.h"
#include "os/loop.h"

#define SP_READY_LEAVES     4  /* of one session, */
#define SP_READY_LEAVES_ALL 32 /* and of all */

struct sp_leaves;
struct sp_leaf_session;
struct sp_ledger;

struct sp_leaves_options {
    struct sp_limit_levels limits;
    bool is_off;      /* no cgroups are made */
    bool is_embedded; /* this process is a host program's, and is not moved */
    /* With a keeper: what a later front needs goes to the ledger; NULL: none. */
    struct sp_ledger *ledger;
    pid_t keeper;        /* whose processes all are; 0: ours are this process and its descendants */
    uint64_t generation; /* tells leaves of this front from those of earlier ones */
};

/* NULL: no memory. Looks at the host only when a limit is first asked for. */
struct sp_leaves *sp_leaves_new(struct sp_loop *loop, const struct sp_leaves_options *o);
/* After all cells have ended. */
void sp_leaves_free(struct sp_leaves *l);

/* The controllers that limits can use here, among `wanted` and those of the limits of sessions and
 * the server. makes: the server's group is made with them; else it is not tried. */
unsigned sp_leaves_prepare(struct sp_leaves *l, unsigned wanted, bool makes);

struct sp_leaf {
    struct sp_list link;
    struct sp_leaf_session *session;
    struct sp_limit_group group;
    unsigned controllers; /* that its command entered */
    bool is_used;         /* by an earlier command */
    /* When the command started: of the leaf, and above it, by enum sp_limit_level. */
    struct sp_group_counts before[SP_LIMIT_LEVELS];
};

/* What a process's record (core/records.h) says of its leaf. */
struct sp_leaf_record {
    char name[SP_CGROUP_NAME];
    uint32_t controllers, is_used;
    struct sp_group_counts before[SP_LIMIT_LEVELS];
};
static inline void sp_leaf_write_record(const struct sp_leaf *leaf, struct sp_leaf_record *ret)
{
    memset(ret, 0, sizeof *ret);
    memcpy(ret->name, leaf->group.name, sizeof ret->name);
    ret->controllers = leaf->controllers;
    ret->is_used = leaf->is_used;
    memcpy(ret->before, leaf->before, sizeof ret->before);
}
/* Takes over the leaf of an earlier front. NULL: the record is broken, or no memory. */
struct sp_leaf *sp_leaf_restore(struct sp_leaves *l, struct sp_leaf_session **s, uint64_t session,
                                const struct sp_limit_set *set, const struct sp_leaf_record *r);

/* A leaf with the command's limits in a session (*s NULL: its group is made, too). `controllers`
 * are of sp_leaves_prepare. */
int sp_leaf_take(struct sp_leaves *l, struct sp_leaf_session **s, uint64_t session,
                 const struct sp_limit_set *set, unsigned controllers, struct sp_leaf **ret,
                 struct sp_err *e);
/* What a START carries so that its child enters the leaf. *ret_has_dir: the first is the leaf's
 * directory in version 2, for an open cell; the others are files that the child writes to. Returns
 * the number, or -1 with errno; the caller closes them. */
#define SP_LEAF_FDS (SP_HIERARCHIES + 1)
int sp_leaf_open(const struct sp_leaf *leaf, bool is_confined, int ret[SP_LEAF_FDS],
                 bool *ret_has_dir);
/* CPU time of the command's whole tree so far. */
uint64_t sp_leaf_cpu_us(struct sp_leaf *leaf);
/* Counts since the command started, by level; peaks are 0 if the kernel cannot tell them apart from
 * those of earlier commands. */
void sp_leaf_read(struct sp_leaf *leaf, struct sp_group_counts ret[SP_LIMIT_LEVELS]);
/* The command is over. is_spent: the leaf was killed, and gets no other command. */
void sp_leaf_give(struct sp_leaf *leaf, bool is_spent);
void sp_leaves_end_session(struct sp_leaf_session *s);

#endif
