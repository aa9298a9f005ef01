/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan: how a cell confines itself before its first command, as one flat block of memory.
 *
 * The front compiles it from a policy and the features of the kernel, and sends it sealed. The cell
 * decides nothing: it carries out the plan in order, and exits if a step fails. Places are named by
 * path and by the inode that the front saw; a different inode is an error. (Without birth times,
 * which surveys compare: a cell is built within milliseconds.)
 */
#ifndef SP_SANDBOX_PLAN_H
#define SP_SANDBOX_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SP_PLAN_VERSION 2
#define SP_PLAN_MAX     (8U << 20) /* bytes */
#define SP_PLAN_PORTS   16         /* reached by name, in a managed network */
#define SP_PLAN_TEXT    8192       /* bytes of one text */

enum sp_tier {
    SP_TIER_NONE, /* no confinement */
    SP_TIER_THIN, /* Landlock and the seccomp filter, in the host's view */
    SP_TIER_CELL, /* namespaces with their own view, Landlock and the seccomp filter */
};

enum sp_plan_view {
    SP_VIEW_READ, /* the host's tree, read-only */
    SP_VIEW_OPEN, /* the host's tree as it is */
    SP_VIEW_NEW,  /* an empty root with only the places of the plan */
};

enum sp_plan_net {
    SP_NET_OWN,     /* a network namespace with only loopback */
    SP_NET_MANAGED, /* the same, and on loopback the sockets of a proxy (cell/ports.h) */
    SP_NET_FILTER,  /* the host's, but the seccomp filter refuses sockets */
    SP_NET_HOST,    /* the host's */
};

enum sp_op {
    SP_OP_WRITE = 1, /* the place itself, writable */
    SP_OP_READ,      /* the place itself, read-only */
    SP_OP_PIN,       /* unchanged, but a mount point: cannot be renamed or removed */
    SP_OP_EMPTY,     /* an empty directory or file instead, with `mode` */
    SP_OP_ALIAS,     /* NEW view: a symlink */
    SP_OP_TEXT,      /* a read-only file with the text `target` instead, if the path exists */
    SP_OP_NOTHING,   /* dropped by the front after compilation */
    SP_OP_MAX
};

struct sp_place_op {
    uint8_t op;
    uint8_t is_made; /* READ, WRITE: the mount point is in a tmpfs of the view and must be made */
    uint8_t is_dir;
    uint8_t is_reopened; /* EMPTY: a place below it is mounted again */
    uint32_t mode;       /* EMPTY */
    /* ino 0 only in EMPTY, until the front has made the placeholder (cell_pool.c); the cell refuses
     * it as an inode that changed. */
    uint64_t dev, ino; /* the inode that the front saw */
    uint32_t path;     /* offset of a string */
    uint32_t target;   /* ALIAS, TEXT: offset of the symlink's or the file's text */
};

struct sp_plan {
    uint32_t version, bytes; /* bytes: of the whole plan */
    uint32_t tier, view, net;
    uint32_t landlock; /* ABI level; 0: none */
    uint32_t notifies; /* the filter notifies the cell of refused calls */
    uint32_t op_count;
    uint32_t strings; /* offset of the NUL-terminated strings; string offsets count from here */
    uint32_t port_count;
    uint16_t ports[SP_PLAN_PORTS]; /* MANAGED: reached by name */
    struct sp_place_op ops[];
};

/* Checks sizes, counts, offsets and terminators; NULL: not a valid plan. */
const struct sp_plan *sp_plan_check(const void *memory, size_t bytes);

static inline const char *sp_plan_string(const struct sp_plan *p, uint32_t offset)
{
    return (const char *)p + p->strings + offset;
}

/* The steps of building a cell, with their names in error messages. */
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
    X(ROOT, "root")                                  \
    X(CARVEOUT, "carveout")                          \
    X(DENY, "deny")                                  \
    X(PLACEHOLDER, "placeholder")                    \
    X(CHANGED, "changed while the sandbox was made") \
    X(LOOPBACK, "loopback")                          \
    X(PORTS, "ports")                                \
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
