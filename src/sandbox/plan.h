/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan: how a cell confines itself before its first command, as one flat piece of memory.
 *
 * The front makes it from a policy and from what the kernel offers, and hands it over sealed. The
 * cell decides nothing: it does what stands here, in order, and ends if any of it cannot be done.
 * Places are named by path and by the inode that the front saw: another inode is a refusal.
 */
#ifndef SP_SANDBOX_PLAN_H
#define SP_SANDBOX_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SP_PLAN_VERSION 1
#define SP_PLAN_MAX     (8U << 20) /* bytes */

enum sp_tier {
    SP_TIER_NONE, /* no confinement */
    SP_TIER_THIN, /* Landlock and the filter, in the host's view */
    SP_TIER_CELL, /* namespaces and a view of its own, Landlock and the filter */
};

enum sp_plan_view {
    SP_VIEW_READ, /* the host's tree, read-only */
    SP_VIEW_OPEN, /* the host's tree as it is */
    SP_VIEW_NEW,  /* an empty root: only what the places name is there */
};

enum sp_plan_net {
    SP_NET_OWN,    /* a network namespace with nothing but loopback */
    SP_NET_FILTER, /* the host's, and a filter that lets nobody use it */
    SP_NET_HOST,   /* the host's */
};

enum sp_op {
    SP_OP_WRITE = 1, /* the place itself, writable */
    SP_OP_READ,      /* the place itself, read-only */
    SP_OP_PIN,       /* as it is, but a mount: it can be neither renamed nor removed */
    SP_OP_EMPTY,     /* an empty directory or file in its place, with the mode given */
    SP_OP_ALIAS,     /* NEW view: a symlink */
    SP_OP_NOTHING,   /* it was found not to be needed */
    SP_OP_MAX
};

struct sp_place_op {
    uint8_t op;
    uint8_t is_made; /* READ, WRITE: nothing is there to mount over, it lies in a tree of ours */
    uint8_t is_dir;
    uint8_t is_reopened; /* EMPTY: something below it is mounted again */
    uint32_t mode;       /* EMPTY */
    uint64_t dev, ino;   /* what the front saw there; EMPTY with ino 0: made by the front */
    uint32_t path;       /* where its string starts */
    uint32_t target;     /* ALIAS: what it points to */
};

struct sp_plan {
    uint32_t version, bytes; /* of all */
    uint32_t tier, view, net;
    uint32_t landlock; /* the kernel's level; 0: do without */
    uint32_t notifies; /* refused calls are told, not only refused */
    uint32_t op_count;
    uint32_t strings; /* where the strings start; NUL-terminated, offsets count from here */
    uint32_t zero;
    struct sp_place_op ops[];
};

/* NULL if the memory is no plan: sizes, counts, offsets and terminators are checked. */
const struct sp_plan *sp_plan_check(const void *memory, size_t bytes);

static inline const char *sp_plan_string(const struct sp_plan *p, uint32_t offset)
{
    return (const char *)p + p->strings + offset;
}

/* The steps of a cell's making, as they are named when one fails. */
#define SP_BUILD_STEPS(X)                            \
    X(NONE, "none")                                  \
    X(PLAN, "plan")                                  \
    X(NAMESPACES, "namespaces")                      \
    X(ID_MAP, "id_map")                              \
    X(MOUNT_PRIVATE, "mount_private")                \
    X(ROOT_READONLY, "root_readonly")                \
    X(NEW_ROOT, "new_root")                          \
    X(DEV, "dev")                                    \
    X(PROC, "proc")                                  \
    X(RUN, "run")                                    \
    X(ROOT, "root")                                  \
    X(CARVEOUT, "carveout")                          \
    X(DENY, "deny")                                  \
    X(PLACEHOLDER, "placeholder")                    \
    X(CHANGED, "changed while the sandbox was made") \
    X(LOOPBACK, "loopback")                          \
    X(LIMITS, "limits")                              \
    X(CAPABILITIES, "capabilities")                  \
    X(LANDLOCK, "landlock")                          \
    X(SECCOMP, "seccomp")                            \
    X(SELF_TEST, "self_test")

enum sp_build_step {
#define X(name, text) SP_BUILD_##name,
    SP_BUILD_STEPS(X)
#undef X
        SP_BUILD_MAX
};
const char *sp_build_step_name(uint32_t step);

#endif
