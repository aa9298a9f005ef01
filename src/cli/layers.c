/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/layers.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>

#include "base/auto.h"
#include "core/cell_child.h"
#include "os/cgroup.h"
#include "os/landlock.h"
#include "os/mount.h"
#include "sandbox/compile.h"

static const struct {
    const char *word, *is, *without;
} layers[] = {
#define X(name, word, is, without) [SP_LAYER_##name] = {word, is, without},
    SP_LAYERS(X)
#undef X
};

const char *sp_layer_word(enum sp_layer_name n)
{
    return layers[n].word;
}

const char *sp_layer_is(enum sp_layer_name n)
{
    return layers[n].is;
}

const char *sp_layer_without(enum sp_layer_name n)
{
    return layers[n].without;
}

const char *sp_landlock_level_means(int level)
{
    static const char *const means[SP_LANDLOCK_NEWEST + 1] = {
        [1] =
            "rules protect files, too, not mounts alone; without them FIFOs anywhere are writable",
        [2] = "files can be moved between directories that may be written",
        [3] = "truncating a file counts as writing it; read-only works without namespaces",
        [4] = "rules on TCP ports (not used: the network is closed by other means)",
        [5] = "ioctl on devices is refused",
        [6] = "commands cannot signal one another, nor use abstract sockets of the host",
        [7] = "refusals can be written to the audit log (not used)",
        [8] = "rules for all threads at once (not used)",
        [9] = "sockets in the file system cannot be connected to",
    };

    return level >= 1 && level <= SP_LANDLOCK_NEWEST ? means[level] : "";
}

/* ---- trials ---- */

struct trial {
    uint32_t step; /* of its failure; NONE: it went well */
    int err;
};

static struct trial try_plan(const char *program, const struct sp_plan *like)
{
    struct sp_plan plan = *like;
    auto_buf struct sp_buf bytes = {0};
    struct trial t = {SP_BUILD_PLAN, ENOMEM};
    struct sp_err e = {0};

    plan.version = SP_PLAN_VERSION;
    plan.bytes = plan.strings = sizeof plan;
    if (!sp_buf_add(&bytes, &plan, sizeof plan))
        return t;
    t = (struct trial){0};
    if (sp_cell_try(program, &bytes, &t.step, &t.err, &e) < 0 && t.step == SP_BUILD_NONE)
        t = (struct trial){SP_BUILD_PLAN, e.sys};
    return t;
}

static void set_missing(struct sp_layer *l, uint32_t step, int err)
{
    *l = (struct sp_layer){SP_LAYER_MISSING, err, sp_powers_remedy(step, err)};
}

/* The layer that a step of a cell's making belongs to; MAX: none of these. */
static enum sp_layer_name layer_of(uint32_t step)
{
    switch ((enum sp_build_step)step) {
    case SP_BUILD_PLAN:
    case SP_BUILD_NAMESPACES:
        return SP_LAYER_NAMESPACES;
    case SP_BUILD_ID_MAP:
        return SP_LAYER_ID_MAPS;
    case SP_BUILD_MOUNT_PRIVATE:
    case SP_BUILD_ROOT_READONLY:
    case SP_BUILD_NEW_ROOT:
    case SP_BUILD_DEV:
    case SP_BUILD_RUN:
    case SP_BUILD_ROOT:
    case SP_BUILD_CARVEOUT:
    case SP_BUILD_DENY:
    case SP_BUILD_PLACEHOLDER:
    case SP_BUILD_CHANGED:
        return SP_LAYER_MOUNTS;
    case SP_BUILD_PROC:
        return SP_LAYER_PROC;
    case SP_BUILD_LOOPBACK:
        return SP_LAYER_NETWORK;
    case SP_BUILD_LIMITS:
    case SP_BUILD_CAPABILITIES:
        return SP_LAYER_PRIVILEGES;
    case SP_BUILD_NONE:
    case SP_BUILD_LANDLOCK:
    case SP_BUILD_SECCOMP:
    case SP_BUILD_SELF_TEST:
    case SP_BUILD_MAX:
        break;
    }
    return SP_LAYER_MAX;
}

/* The layers of a view, in the order of its making: what comes before a failure is there. */
static void judge_view(struct trial t, struct sp_layer *ret)
{
    static const enum sp_layer_name order[] = {SP_LAYER_NAMESPACES, SP_LAYER_ID_MAPS,
                                               SP_LAYER_MOUNTS, SP_LAYER_PROC, SP_LAYER_PRIVILEGES};
    const enum sp_layer_name failed = layer_of(t.step);

    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
        if (order[i] == failed) {
            set_missing(&ret[failed], t.step, t.err);
            return;
        }
        ret[order[i]].state = SP_LAYER_OK;
    }
}

static void judge_one(struct trial t, uint32_t step, struct sp_layer *ret)
{
    if (t.step == SP_BUILD_NONE)
        ret->state = SP_LAYER_OK;
    else if (t.step == step)
        set_missing(ret, step, t.err);
}

static void try_view(const char *program, struct sp_layer *ret)
{
    struct sp_plan plan = {.tier = SP_TIER_CELL, .view = SP_VIEW_READ, .net = SP_NET_FILTER};
    struct trial t = try_plan(program, &plan);

    judge_view(t, ret);
    if (t.step != SP_BUILD_NONE)
        return; /* a network of its own is not to be had without the rest */
    plan.net = SP_NET_OWN;
    t = try_plan(program, &plan);
    judge_one(t, t.step, &ret[SP_LAYER_NETWORK]);
}

static void try_filters(const char *program, struct sp_layer *ret)
{
    const struct sp_plan bare = {.tier = SP_TIER_THIN, .view = SP_VIEW_OPEN, .net = SP_NET_HOST};
    struct sp_plan plan = bare;

    judge_one(try_plan(program, &plan), SP_BUILD_SECCOMP, &ret[SP_LAYER_SECCOMP]);
    plan.notifies = 1;
    judge_one(try_plan(program, &plan), SP_BUILD_SECCOMP, &ret[SP_LAYER_NOTICES]);
    plan = bare;
    plan.landlock = (uint32_t)sp_landlock_abi();
    if (plan.landlock == 0)
        set_missing(&ret[SP_LAYER_LANDLOCK], SP_BUILD_LANDLOCK, 0);
    else
        judge_one(try_plan(program, &plan), SP_BUILD_LANDLOCK, &ret[SP_LAYER_LANDLOCK]);
}

/* ---- calls ---- */

static void try_cgroups(struct sp_layer *ret)
{
    struct sp_cgroup c = {.dir = -1};
    char name[SP_CGROUP_NAME];

    if (sp_cgroup_name(name) && sp_cgroup_new(name, &c))
        ret->state = SP_LAYER_OK;
    else
        *ret = (struct sp_layer){SP_LAYER_MISSING, 0,
                                 "mount cgroup version 2, and let this user make directories in "
                                 "the cgroup it is in (systemd: Delegate=yes)"};
    sp_cgroup_free(&c);
}

static void judge_call(int r, struct sp_layer *ret)
{
    if (r == -ENOSYS)
        *ret = (struct sp_layer){SP_LAYER_MISSING, ENOSYS,
                                 "use a newer kernel, or a container that passes the call"};
    else
        ret->state = SP_LAYER_OK; /* a refusal tells that it is there */
}

static void try_calls(struct sp_layer *ret)
{
    auto_close int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    auto_close int again = sp_path_open(root, "/");
    auto_close int tree = sp_mount_clone(root, false);
    const int set = sp_mount_set(-1, false, SP_MOUNT_READ_ONLY);

    judge_call(again, &ret[SP_LAYER_OPENAT2]);
    judge_call(tree == -ENOSYS ? tree : set, &ret[SP_LAYER_MOUNT_API]);
}

void sp_layers_try(const char *program, struct sp_layer *ret)
{
    for (int i = 0; i < SP_LAYER_MAX; i++)
        ret[i] = (struct sp_layer){0};
    try_view(program, ret);
    try_filters(program, ret);
    try_cgroups(&ret[SP_LAYER_CGROUPS]);
    try_calls(ret);
}
