/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `sallyport doctor`: tries each layer that a sandbox is made of, alone where that is possible, and
 * compiles a plan for each mode to see whether this host can enforce it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/runtime_dir.h"
#include "cli/cli.h"
#include "cli/doctor_network.h"
#include "cli/escape_text.h"
#include "cli/own_stdio.h"
#include "cli/signals.h"
#include "core/cell_child.h"
#include "core/journal.h"
#include "core/proc_limits.h"
#include "os/cgroup.h"
#include "os/host_limits.h"
#include "os/landlock.h"
#include "os/limit_group.h"
#include "os/mount.h"
#include "os/spawn.h"
#include "sandbox/compile.h"
#include "sandbox/hidden_paths.h"

#define NEWEST_LANDLOCK 9 /* the newest ABI level that we use or know of */

static const char program[] = "/proc/self/exe";

struct doctor_options {
    bool is_json;
};

static const struct sp_option options[] = {
    SP_OPT_FLAG(struct doctor_options, is_json, "json", "print one JSON object instead of text"),
    SP_OPT_END,
};

enum layer_name {
    LAYER_NAMESPACES,
    LAYER_ID_MAPS,
    LAYER_MOUNTS,
    LAYER_PROC,
    LAYER_NETWORK,
    LAYER_MANAGED_NETWORK,
    LAYER_PRIVILEGES,
    LAYER_LANDLOCK,
    LAYER_SECCOMP,
    LAYER_NOTICES,
    LAYER_CGROUPS,
    LAYER_LIMIT_MEMORY, /* in the order of enum sp_controller */
    LAYER_LIMIT_PIDS,
    LAYER_LIMIT_CPUS,
    LAYER_LIMIT_CPU,
    LAYER_OPENAT2,
    LAYER_MOUNT_API,
    LAYER_MAX
};

/* `word` is the name in `doctor --json`. */
static const struct {
    const char *word, *is, *without;
} layers[] = {
    [LAYER_NAMESPACES] = {"namespaces", "user, mount, pid, ipc, uts and cgroup namespaces",
                          "no view of the files, no processes of its own"},
    [LAYER_ID_MAPS] = {"id_maps", "a user namespace in which we stay who we are",
                       "nothing can be mounted there"},
    [LAYER_MOUNTS] = {"mounts", "a view of the files of its own",
                      "no place can be treated differently"},
    [LAYER_PROC] = {"proc", "a /proc that shows its own processes only",
                    "programs miss their /proc"},
    [LAYER_NETWORK] = {"network_namespace", "a network with nothing but loopback",
                       "without the network there is no loopback either: sockets are refused"},
    [LAYER_MANAGED_NETWORK] = {"managed_network", "a network with the hosts that are allowed",
                               "commands have the host's whole network or none"},
    [LAYER_PRIVILEGES] = {"privileges", "giving up every capability",
                          "uid 0 keeps what it could do"},
    [LAYER_LANDLOCK] = {"landlock", "the kernel's own rules on files",
                        "mounts alone protect files, and commands can signal their neighbours"},
    [LAYER_SECCOMP] = {"seccomp", "a filter of system calls", "nothing can be enforced"},
    [LAYER_NOTICES] = {"notifications", "a notification of every refused call",
                       "denials are guessed from what a command prints"},
    [LAYER_CGROUPS] = {"cgroups", "a cgroup for each open command",
                       "a command's processes are found by parentage, which takes longer"},
    [LAYER_LIMIT_MEMORY] = {"limit_memory", "a limit of memory for all processes of a command",
                            "each process alone has a limit of its data, if any"},
    [LAYER_LIMIT_PIDS] = {"limit_pids", "a limit of processes",
                          "a fork bomb has the limits of this user alone"},
    [LAYER_LIMIT_CPUS] = {"limit_cpus", "a share of the processors", "commands have all of them"},
    [LAYER_LIMIT_CPU] = {"limit_cpu", "a limit of CPU time for all processes of a command",
                         "each process alone has one"},
    [LAYER_OPENAT2] = {"openat2", "opening paths without following symlinks",
                       "no view of the files can be made"},
    [LAYER_MOUNT_API] = {"mount_api", "open_tree, move_mount, mount_setattr",
                         "no view of the files can be made"},
};

/* What each Landlock ABI level added, and thus what a host below it lacks. */
static const char *const landlock_levels[NEWEST_LANDLOCK + 1] = {
    [1] = "rules protect files, too, not mounts alone; without them FIFOs anywhere are writable",
    [2] = "files can be moved between directories that may be written",
    [3] = "truncating a file counts as writing it; read-only works without namespaces",
    [4] = "rules on TCP ports (not used: the network is closed by other means)",
    [5] = "ioctl on devices is refused",
    [6] = "commands cannot signal one another, nor use abstract sockets of the host",
    [7] = "refusals can be written to the audit log (not used)",
    [8] = "rules for all threads at once (not used)",
    [9] = "sockets in the file system cannot be connected to",
};

enum layer_state { LAYER_UNTESTED, LAYER_OK, LAYER_MISSING };

struct layer {
    enum layer_state state;
    int err;            /* MISSING: errno of the failed step, or 0 */
    const char *remedy; /* MISSING: how to get it; NULL: unknown */
};

/* Whether this host can enforce a mode. */
struct verdict {
    enum sp_mode mode;
    bool is_enforced;
    char why_not[400];
};

struct findings {
    struct utsname host;
    struct sp_host_features host_features;
    enum sp_tier tier;
    int landlock; /* ABI level of the kernel */
    struct layer layers[LAYER_MAX];
    char managed_failure[400]; /* remedy of its layer */
    struct sp_doctor_upstream upstream;
    struct verdict verdicts[4];
};

/* ---- trying the layers ---- */

/* How far the making of a cell came. */
struct trial {
    uint32_t step; /* the step that failed; SP_BUILD_NONE: none did */
    int err;
};

/* Makes a cell by a plan that has a header and nothing else. */
static struct trial try_plan(const struct sp_plan *like)
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

static void set_missing(struct layer *l, uint32_t step, int err)
{
    *l = (struct layer){LAYER_MISSING, err, sp_host_features_remedy(step, err)};
}

/* The layers of a view depend on one another, so one cell tries them all: those before the failed
 * step work, those behind it are unknown. */
static void try_view(struct layer *ret)
{
    static const enum layer_name order[] = {LAYER_NAMESPACES, LAYER_ID_MAPS, LAYER_MOUNTS,
                                            LAYER_PROC, LAYER_PRIVILEGES};
    static const enum layer_name layer_of[] = {
        [SP_BUILD_NONE] = LAYER_MAX, /* no layer of a view */
        [SP_BUILD_PLAN] = LAYER_NAMESPACES,
        [SP_BUILD_NAMESPACES] = LAYER_NAMESPACES,
        [SP_BUILD_ID_MAP] = LAYER_ID_MAPS,
        [SP_BUILD_MOUNT_PRIVATE] = LAYER_MOUNTS,
        [SP_BUILD_ROOT_READONLY] = LAYER_MOUNTS,
        [SP_BUILD_NEW_ROOT] = LAYER_MOUNTS,
        [SP_BUILD_DEV] = LAYER_MOUNTS,
        [SP_BUILD_ROOT] = LAYER_MOUNTS,
        [SP_BUILD_CARVEOUT] = LAYER_MOUNTS,
        [SP_BUILD_DENY] = LAYER_MOUNTS,
        [SP_BUILD_PLACEHOLDER] = LAYER_MOUNTS,
        [SP_BUILD_CHANGED] = LAYER_MOUNTS,
        [SP_BUILD_PROC] = LAYER_PROC,
        [SP_BUILD_LOOPBACK] = LAYER_NETWORK,
        [SP_BUILD_LIMITS] = LAYER_PRIVILEGES,
        [SP_BUILD_CAPABILITIES] = LAYER_PRIVILEGES,
        [SP_BUILD_LANDLOCK] = LAYER_MAX,
        [SP_BUILD_SECCOMP] = LAYER_MAX,
        [SP_BUILD_SELF_TEST] = LAYER_MAX,
        [SP_BUILD_MAX] = LAYER_MAX,
    };
    struct sp_plan plan = {.tier = SP_TIER_CELL, .view = SP_VIEW_READ, .net = SP_NET_FILTER};
    struct trial t = try_plan(&plan);
    const enum layer_name failed = layer_of[t.step < SP_BUILD_MAX ? t.step : SP_BUILD_MAX];

    for (size_t i = 0; i < sizeof order / sizeof order[0] && order[i] != failed; i++)
        ret[order[i]].state = LAYER_OK;
    if (failed != LAYER_MAX && failed != LAYER_NETWORK)
        set_missing(&ret[failed], t.step, t.err);
    if (t.step != SP_BUILD_NONE)
        return; /* a network namespace needs all of these */
    plan.net = SP_NET_OWN;
    t = try_plan(&plan);
    if (t.step == SP_BUILD_NONE)
        ret[LAYER_NETWORK].state = LAYER_OK;
    else
        set_missing(&ret[LAYER_NETWORK], t.step, t.err);
}

/* Tries it as a whole, with a command in it. Needs all layers of a view and a network. */
static void try_managed(struct findings *f)
{
    struct sp_err e = {0};
    char why[300];

    if (f->tier != SP_TIER_CELL || f->layers[LAYER_NETWORK].state != LAYER_OK)
        return;
    if (f->layers[LAYER_LANDLOCK].state == LAYER_MISSING) { /* the proxy locks itself in with it */
        f->layers[LAYER_MANAGED_NETWORK] = f->layers[LAYER_LANDLOCK];
        return;
    }
    if (sp_doctor_try_network(&e) == 0) {
        f->layers[LAYER_MANAGED_NETWORK].state = LAYER_OK;
        return;
    }
    (void)snprintf(f->managed_failure, sizeof f->managed_failure,
                   "see what fails there, then try `sallyport sandbox --network managed -v -- "
                   "true`: %s",
                   sp_error_text(&e, why, sizeof why));
    f->layers[LAYER_MANAGED_NETWORK] = (struct layer){LAYER_MISSING, e.sys, f->managed_failure};
}

/* A failure of another step leaves the layer untested. */
static void try_filter(const struct sp_plan *plan, uint32_t step, struct layer *ret)
{
    const struct trial t = try_plan(plan);

    if (t.step == SP_BUILD_NONE)
        ret->state = LAYER_OK;
    else if (t.step == step)
        set_missing(ret, step, t.err);
}

/* Each filter is tried in a bare cell without namespaces, so that one failure hides no other. */
static void try_filters(struct layer *ret)
{
    struct sp_plan plan = {.tier = SP_TIER_THIN, .view = SP_VIEW_OPEN, .net = SP_NET_HOST};

    try_filter(&plan, SP_BUILD_SECCOMP, &ret[LAYER_SECCOMP]);
    plan.notifies = 1;
    try_filter(&plan, SP_BUILD_SECCOMP, &ret[LAYER_NOTICES]);
    plan.notifies = 0;
    plan.landlock = (uint32_t)sp_landlock_abi();
    if (plan.landlock == 0)
        set_missing(&ret[LAYER_LANDLOCK], SP_BUILD_LANDLOCK, 0);
    else
        try_filter(&plan, SP_BUILD_LANDLOCK, &ret[LAYER_LANDLOCK]);
}

static void judge_call(int r, struct layer *ret)
{
    if (r == -ENOSYS)
        *ret = (struct layer){LAYER_MISSING, ENOSYS,
                              "use a newer kernel, or a container that passes the call"};
    else
        ret->state = LAYER_OK; /* any other error means that the kernel has the call */
}

/* Makes a group with each controller. A server makes its own in the same place. */
static void try_limits(struct layer *ret)
{
    struct sp_limit_host host;
    struct sp_limit_group server;
    struct sp_limit_group leaf;
    char name[SP_CGROUP_NAME];

    sp_limit_host_find(getpid(), true, &host);
    for (unsigned i = 0; i < SP_CONTROLLERS; i++) {
        if (host.remedies[i] != NULL || !sp_cgroup_name(name)) {
            ret[i] = (struct layer){LAYER_MISSING, 0, host.remedies[i]};
            continue;
        }
        sp_limit_group_init(&server, &host, NULL, name);
        sp_limit_group_init(&leaf, &host, &server, "c1");
        errno = 0;
        if (sp_limit_group_make(&server, SP_CONTROL_BIT(i), NULL) &&
            sp_limit_group_make(&leaf, SP_CONTROL_BIT(i), NULL))
            ret[i].state = LAYER_OK;
        else
            ret[i] = (struct layer){LAYER_MISSING, errno,
                                    "let this user make cgroups in its own: run the server as a "
                                    "systemd service with Delegate=yes"};
        (void)sp_limit_group_remove(&leaf);
        (void)sp_limit_group_remove(&server);
    }
}

/* Compiles a plan for a workspace at /usr, without making a cell. */
static void try_mode(const struct sp_host_features *host_features,
                     const struct sp_fixed_places *fixed, struct verdict *v)
{
    const struct sp_legacy legacy = {.mode = v->mode};
    struct sp_policy policy __attribute__((cleanup(sp_policy_done))) = {0};
    struct sp_resolved resolved __attribute__((cleanup(sp_resolved_done))) = {0};
    struct sp_survey survey __attribute__((cleanup(sp_survey_done))) = {0};
    auto_buf struct sp_buf plan = {0};
    struct sp_err e = {0};

    v->is_enforced = v->mode == SP_MODE_FULL_ACCESS ||
                     (sp_profile_from_legacy(&legacy, &policy.profile, &e) == 0 &&
                      (sp_policy_add_root(&policy, SP_STR("/usr")) ||
                       sp_fail(&e, SP_E_SYSTEM, ENOMEM, "make a policy") == 0) &&
                      sp_resolve(&policy, &resolved, &e) == 0 &&
                      sp_survey_make(&policy, &resolved, fixed, &survey, &e) == 0 &&
                      sp_plan_compile(&survey, &policy.profile, host_features, &plan, &e) == 0);
    if (!v->is_enforced)
        memcpy(v->why_not, e.msg, sizeof v->why_not);
}

static int examine_host(struct findings *f, struct sp_err *e)
{
    static const enum sp_mode modes[] = {SP_MODE_READ_ONLY, SP_MODE_WORKSPACE_WRITE,
                                         SP_MODE_EXTERNAL, SP_MODE_FULL_ACCESS};
    struct sp_hidden_paths hidden_paths = {0};
    struct sp_cgroup cgroup = {.dir = -1};
    char name[SP_CGROUP_NAME];
    char runtime_dir[512];

    sp_port_fill_gaps();
    int r = sp_spawn_reserve(e);
    if (r == 0)
        r = sp_host_features_probe(program, &f->host_features, e);
    if (r < 0)
        return r;
    (void)uname(&f->host);
    f->landlock = sp_landlock_abi();
    f->tier = f->host_features.has_full_tier ? SP_TIER_CELL
              : f->host_features.has_filter  ? SP_TIER_THIN
                                             : SP_TIER_NONE;
    try_view(f->layers);
    try_filters(f->layers);
    try_managed(f);
    sp_doctor_find_upstream(&f->upstream);
    if (sp_cgroup_name(name) && sp_cgroup_new(name, &cgroup))
        f->layers[LAYER_CGROUPS].state = LAYER_OK;
    else
        f->layers[LAYER_CGROUPS] =
            (struct layer){LAYER_MISSING, 0,
                           "mount cgroup version 2, and let this user make directories in "
                           "the cgroup it is in (systemd: Delegate=yes)"};
    sp_cgroup_free(&cgroup);
    try_limits(&f->layers[LAYER_LIMIT_MEMORY]);
    auto_close int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    auto_close int again = sp_path_open(root, "/");
    auto_close int tree = sp_mount_clone(root, false);
    const int set = sp_mount_set(-1, false, SP_MOUNT_READ_ONLY);
    judge_call(again, &f->layers[LAYER_OPENAT2]);
    judge_call(tree == -ENOSYS ? tree : set, &f->layers[LAYER_MOUNT_API]);
    sp_runtime_dir(runtime_dir, sizeof runtime_dir);
    /* out of memory: fewer paths than a server hides */
    (void)sp_hidden_paths_find(runtime_dir, &hidden_paths);
    const struct sp_fixed_places fixed = sp_hidden_paths_places(&hidden_paths);
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        f->verdicts[i].mode = modes[i];
        try_mode(&f->host_features, &fixed, &f->verdicts[i]);
    }
    sp_hidden_paths_done(&hidden_paths);
    return 0;
}

/* ---- as text ---- */

#define GREEN "\033[32m"
#define RED   "\033[31m"

/* A word of 9 columns, coloured at a terminal. */
static void print_state(const char *word, bool is_good)
{
    const bool has_color = sp_plain_has_color(STDOUT_FILENO);

    (void)printf("  %s%-9s%s ", has_color ? (is_good ? GREEN : RED) : "", word,
                 has_color ? "\033[0m" : "");
}

static void print_note(const char *before, const char *text)
{
    (void)printf("            %s", before);
    sp_help_print_wrapped(stdout, text, 12 + strlen(before), 12);
}

static const char *const state_names[] = {
    [LAYER_UNTESTED] = "untested", [LAYER_OK] = "ok", [LAYER_MISSING] = "missing"};

/* Variables may hold anything: control characters are shown as escapes. */
static void print_plain(const char *before, const char *text)
{
    auto_buf struct sp_buf out = {0};

    if (text[0] != 0 && sp_plain_add(&out, sp_str_of(text)))
        (void)printf("%s%.*s\n", before, (int)out.len, out.data);
}

static void print_upstream(const struct sp_doctor_upstream *u)
{
    (void)printf("\nupstream proxies of managed networks: %s\n",
                 u->http[0] == 0 && u->https[0] == 0 ? "none" : "");
    print_plain("  http      ", u->http);
    print_plain("  https     ", u->https);
    print_plain("  not for   ", u->no_proxy);
    if (u->is_unusable)
        (void)printf("  unused    a variable names a proxy that is not http://: hosts are reached "
                     "without it\n");
}

static void print_capacity(void)
{
    (void)printf("\nhow many commands can run at once:\n");
    for (int i = 0; i < SP_HOST_LIMIT_KINDS; i++) {
        const struct sp_host_limit l = sp_host_limit_read((enum sp_host_limit_kind)i);
        char value[32] = "unknown";

        if (l.is_endless)
            (void)snprintf(value, sizeof value, "no limit");
        else if (l.is_known)
            (void)snprintf(value, sizeof value, "%llu", (unsigned long long)l.allows);
        (void)printf("  %-9s %s", value, l.of);
        if (l.is_known && !l.is_endless)
            (void)printf(" (%s = %llu)\n", l.name, (unsigned long long)l.value);
        else
            (void)printf(" (%s)\n", l.name);
    }
}

static enum sp_limit_scope scope_of(const struct findings *f, int limit)
{
    unsigned controllers = 0;

    for (unsigned i = 0; i < SP_CONTROLLERS; i++)
        if (f->layers[LAYER_LIMIT_MEMORY + i].state == LAYER_OK)
            controllers |= SP_CONTROL_BIT(i);
    return sp_limits_scope(controllers, (enum sp_limit)limit);
}

static void print_limits(const struct findings *f)
{
    static const char *const words[] = {
        [SP_LIMIT_NOWHERE] = "missing", [SP_LIMIT_PER_PROCESS] = "ok", [SP_LIMIT_TREE] = "ok"};
    static const char *const means[] = {[SP_LIMIT_NOWHERE] = "not enforced",
                                        [SP_LIMIT_PER_PROCESS] = "for each process alone",
                                        [SP_LIMIT_TREE] = "for all processes together"};

    (void)printf("\nlimits of commands (--limit):\n");
    for (int i = 0; i < SP_LIMIT_COUNT; i++) {
        const enum sp_limit_scope scope = scope_of(f, i);

        print_state(words[scope], scope != SP_LIMIT_NOWHERE);
        (void)printf("%-18s %s%s\n", sp_limit_kinds[i].name, means[scope],
                     i == SP_LIMIT_MEMORY && scope == SP_LIMIT_PER_PROCESS ? ", below 1G as 1G"
                                                                           : "");
    }
}

static void print_text(const struct findings *f)
{
    static const char *const means[] = {
        [SP_TIER_CELL] = "full confinement: every policy can be enforced",
        [SP_TIER_THIN] =
            "thin confinement: policies that treat some places differently are refused",
        [SP_TIER_NONE] = "no confinement: every policy that restricts anything is refused",
    };

    (void)printf("sallyport %s on %s %s, %s, uid %u\n%s\n\nlayers:\n", SP_VERSION, f->host.sysname,
                 f->host.release, f->host.machine, (unsigned)geteuid(), means[f->tier]);
    for (int i = 0; i < LAYER_MAX; i++) {
        const struct layer *l = &f->layers[i];

        print_state(state_names[l->state], l->state == LAYER_OK);
        (void)printf("%-18s %s%s%s\n", layers[i].word, layers[i].is, l->err != 0 ? ": " : "",
                     l->err != 0 ? strerror(l->err) : "");
        if (l->state == LAYER_MISSING)
            print_note("without it:", layers[i].without);
        if (l->remedy != NULL)
            print_note("remedy:", l->remedy);
    }
    (void)printf("\nlandlock: level %d of %d known\n", f->landlock, NEWEST_LANDLOCK);
    for (int i = f->landlock + 1; i <= NEWEST_LANDLOCK; i++)
        (void)printf("  missing   level %d            %s\n", i, landlock_levels[i]);
    print_upstream(&f->upstream);
    print_limits(f);
    print_capacity();
    (void)printf("\npolicies:\n");
    for (size_t i = 0; i < sizeof f->verdicts / sizeof f->verdicts[0]; i++) {
        const struct verdict *v = &f->verdicts[i];

        print_state(v->is_enforced ? "ok" : "refused", v->is_enforced);
        (void)printf("%s%s%s\n", sp_mode_name(v->mode), v->is_enforced ? "" : ": ", v->why_not);
    }
}

/* ---- as JSON ---- */

/* before: what stands in front of the key: "{" or ",". An empty value is null. */
static void print_member(const char *before, const char *key, const char *value)
{
    auto_buf struct sp_buf text = {0};
    const bool is_null =
        value == NULL || value[0] == 0 || !sp_json_add_str(&text, sp_str_of(value));

    (void)printf("%s\"%s\":%.*s", before, key, is_null ? 4 : (int)text.len,
                 is_null ? "null" : text.data);
}

/* Values that are unknown, or endless, are null. */
static void print_json_capacity(void)
{
    for (int i = 0; i < SP_HOST_LIMIT_KINDS; i++) {
        const struct sp_host_limit l = sp_host_limit_read((enum sp_host_limit_kind)i);

        print_member(i == 0 ? ",\"capacity\":[{" : ",{", "name", l.name);
        print_member(",", "of", l.of);
        if (l.is_known && !l.is_endless)
            (void)printf(",\"value\":%llu,\"allows\":%llu}", (unsigned long long)l.value,
                         (unsigned long long)l.allows);
        else
            (void)printf(",\"value\":null,\"allows\":null}");
    }
    (void)putchar(']');
}

static void print_json_limits(const struct findings *f)
{
    for (int i = 0; i < SP_LIMIT_COUNT; i++)
        print_member(i == 0 ? ",\"limits\":{" : ",", sp_limit_kinds[i].name,
                     sp_limit_scope_names[scope_of(f, i)]);
    (void)putchar('}');
}

static void print_json(const struct findings *f)
{
    print_member("{", "version", SP_VERSION);
    print_member(",", "kernel", f->host.release);
    print_member(",", "machine", f->host.machine);
    (void)printf(",\"uid\":%u", (unsigned)geteuid());
    print_member(",", "tier", sp_tier_name(f->tier));
    for (int i = 0; i < LAYER_MAX; i++) {
        const struct layer *l = &f->layers[i];

        print_member(i == 0 ? ",\"layers\":[{" : "},{", "name", layers[i].word);
        print_member(",", "state", state_names[l->state]);
        print_member(",", "errno", l->err == 0 ? NULL : strerrorname_np(l->err));
        print_member(",", "is", layers[i].is);
        print_member(",", "without", layers[i].without);
        print_member(",", "remedy", l->remedy);
    }
    (void)printf("}],\"landlock\":{\"level\":%d,\"newest\":%d,\"missing\":[", f->landlock,
                 NEWEST_LANDLOCK);
    for (int i = f->landlock + 1; i <= NEWEST_LANDLOCK; i++) {
        (void)printf("%s{\"level\":%d", i == f->landlock + 1 ? "" : ",", i);
        print_member(",", "means", landlock_levels[i]);
        (void)putchar('}');
    }
    (void)printf("]}");
    print_json_capacity();
    print_json_limits(f);
    print_member(",\"upstream\":{", "http", f->upstream.http);
    print_member(",", "https", f->upstream.https);
    print_member(",", "no_proxy", f->upstream.no_proxy);
    (void)printf(",\"unusable\":%s},\"policies\":[", f->upstream.is_unusable ? "true" : "false");
    for (size_t i = 0; i < sizeof f->verdicts / sizeof f->verdicts[0]; i++) {
        const struct verdict *v = &f->verdicts[i];

        print_member(i == 0 ? "{" : ",{", "mode", sp_mode_name(v->mode));
        (void)printf(",\"enforced\":%s", v->is_enforced ? "true" : "false");
        print_member(",", "why_not", v->why_not);
        (void)putchar('}');
    }
    (void)puts("]}");
}

/* ---- the command ---- */

static int run_doctor(void *values, char **operands)
{
    const struct doctor_options *o = values;
    auto_free struct findings *f = calloc(1, sizeof *f);
    struct sp_err e = {0};

    (void)operands;
    (void)sp_log_set_level("error");
    if (f == NULL)
        return SP_EXIT_FAILED;
    sp_tell_if_slow("trying each layer of a sandbox, and a network");
    const int r = examine_host(f, &e);
    sp_tell_if_slow(NULL);
    if (r < 0)
        return sp_cli_complain(&e);
    if (o->is_json)
        print_json(f);
    else
        print_text(f);
    if (sp_cli_print(SP_STR(""), &e) < 0)
        return sp_cli_complain(&e);
    return f->tier == SP_TIER_CELL ? SP_EXIT_OK : SP_EXIT_FAILED;
}

const struct sp_cli_command sp_command_doctor = {
    .name = "doctor",
    .summary = "say which sandbox layers this host has, and how to get the rest",
    .usage =
        "sallyport doctor [--json]\n"
        "\n"
        "Tries each layer that a sandbox is made of, and says how far this host can "
        "confine commands, which policies it cannot enforce, and how to get what is missing.\n",
    .notes = "Exit status: 0 if every policy can be enforced (full confinement), 1 if not, 2 for "
             "a wrong command line.\n",
    .options = options,
    .values_size = sizeof(struct doctor_options),
    .run = run_doctor,
};
