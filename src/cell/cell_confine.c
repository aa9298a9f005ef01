/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first half builds the view: the file system that the cell and its commands see. The places of
 * the plan are cloned from the host's tree while it is unchanged, then the ground becomes read-only
 * (or a new empty root), and the clones are attached on top in the plan's order. At the end each
 * place is looked up by path and compared with the inode that the front saw.
 */
#include "cell/cell_confine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/io.h"
#include "base/str.h"
#include "cell/ports.h"
#include "cell/wire.h"
#include "os/landlock.h"
#include "os/mount.h"
#include "os/namespace.h"
#include "os/privilege.h"
#include "os/seccomp.h"
#include "os/spawn.h"

#define QUIET   (SP_MOUNT_NO_SUID | SP_MOUNT_NO_DEV)
#define BARREN  (QUIET | SP_MOUNT_NO_EXEC)
#define SHM_MAX "256m"

/* Mount points for the tmpfs with empty files and directories ("workshop") and for a new root while
 * the view is built: every system has these two directories, and both are replaced at the end. */
#define WORKSHOP_AT "/proc"
#define NEW_ROOT_AT "/dev"

static const char *const devices[] = {"/dev/null",   "/dev/zero",    "/dev/full",
                                      "/dev/random", "/dev/urandom", "/dev/tty"};
#define DEVICES (sizeof devices / sizeof devices[0])

/* Forks the first process of the new pid namespace, as a child of our parent (CLONE_PARENT).
 * Returns twice, as fork does: 0 in the child, its pid here. */
static pid_t namespaces_fork(int *ret_pidfd)
{
    *ret_pidfd = -1;
#if defined(__x86_64__) || defined(__aarch64__)
    const long pid = syscall(SYS_clone, (long)(CLONE_PARENT | CLONE_PIDFD), 0L, ret_pidfd, 0L, 0L);
#else
#error "the order of clone's arguments is not known here"
#endif

    return pid < 0 ? -errno : (pid_t)pid;
}

/* Unshares user, mount, pid, ipc, uts, cgroup and, if asked for, network. Single-threaded callers
 * only. */
static int namespaces_unshare(bool with_network)
{
    const int all = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS |
                    CLONE_NEWCGROUP | (with_network ? CLONE_NEWNET : 0);

    return unshare(all) < 0 ? -errno : 0;
}

/* Returns false. */
static bool report_failure(struct sp_built *b, enum sp_build_step step, int err, const char *where)
{
    *b = (struct sp_built){.step = step, .err = err < 0 ? -err : err, .where = where};
    return false;
}

/* ==== the view ==== */

struct view {
    const struct sp_plan *plan;
    struct sp_built *report;
    int host;             /* "/" of the host */
    int root;             /* "/" of the view; equals host unless the view is SP_VIEW_NEW */
    int shop;             /* the workshop: empty/ (0555), closed/ (000), file (000), texts */
    int devices[DEVICES]; /* clones, made before everything becomes nodev */
    int dev;              /* our own /dev, writable until freeze() */
    FILE *mounts;         /* /proc/self/mountinfo */
    int *trees;           /* by op: the clone to attach; -1: made in put_place */
};

static bool fail(struct view *v, enum sp_build_step step, int err, const char *where)
{
    return report_failure(v->report, step, err, where);
}

static void drop(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}

/* A mount of an empty, read-only file or directory. */
static int from_workshop(const struct view *v, const char *name)
{
    auto_close int fd = openat(v->shop, name, O_PATH | O_CLOEXEC | O_NOFOLLOW);

    return fd < 0 ? -errno : sp_mount_clone(fd, false);
}

/* ---- targets ---- */

/* Makes the path, with its parents, in a tmpfs of the view. */
static int make_target(const struct view *v, const char *path, bool is_dir)
{
    char part[4096];
    const size_t len = strlen(path);

    if (len >= sizeof part)
        return -ENAMETOOLONG;
    for (size_t i = 1; i <= len; i++) {
        if (path[i] != '/' && path[i] != 0)
            continue;
        memcpy(part, path, i);
        part[i] = 0;
        auto_close int there = sp_path_open(v->root, part);
        if (there >= 0)
            continue;
        char *slash = strrchr(part, '/');
        *slash = 0;
        auto_close int parent = sp_path_open(v->root, part);
        if (parent < 0)
            return parent;
        if (i < len || is_dir) {
            if (mkdirat(parent, slash + 1, 0755) < 0)
                return -errno;
        } else {
            auto_close int file = openat(parent, slash + 1, O_CREAT | O_EXCL | O_CLOEXEC, 0444);

            if (file < 0)
                return -errno;
        }
    }
    return sp_path_open(v->root, path);
}

/* Opens a mount point; makes it if it is missing. */
static int open_target(const struct view *v, const char *path, bool is_dir)
{
    const int fd = sp_path_open(v->root, path);

    return fd == -ENOENT ? make_target(v, path, is_dir) : fd;
}

static bool put(struct view *v, int tree, const char *path, bool is_dir, enum sp_build_step step)
{
    auto_close int target = open_target(v, path, is_dir);
    const int r = target < 0 ? target : sp_mount_attach(tree, target);

    return r == 0 || fail(v, step, r, path);
}

/* ---- kernel file systems ---- */

/* Files of these file systems check only the uid, which may be 0, and no capability: they become
 * read-only wherever the host has them mounted. */
static bool is_kernel_fs(const char *type)
{
    static const char *const types[] = {
        "proc", "sysfs",    "cgroup", "cgroup2", "debugfs", "tracefs",    "configfs",
        "bpf",  "efivarfs", "pstore", "nfsd",    "fusectl", "securityfs", "binfmt_misc"};

    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(types[i], type) == 0)
            return true;
    return false;
}

static bool for_each_kernel_mount(struct view *v, bool (*fn)(struct view *, const char *, bool))
{
    char *line = NULL;
    size_t cap = 0;
    bool ok = true;

    rewind(v->mounts);
    while (ok && getline(&line, &cap, v->mounts) > 0) {
        const char *path;
        const char *type;

        if (sp_mount_line(line, &path, &type) && is_kernel_fs(type))
            ok = fn(v, path, strcmp(type, "proc") == 0);
    }
    if (ferror(v->mounts) != 0)
        ok = fail(v, SP_BUILD_MOUNT_PRIVATE, EIO, "mountinfo");
    free(line);
    return ok;
}

static bool write_protect(struct view *v, const char *path, bool is_proc)
{
    auto_close int fd = sp_path_open(v->host, path);

    (void)is_proc;
    if (fd == -ENOENT || fd == -EACCES || fd == -ENOTDIR)
        return true; /* not reachable by this path, so commands cannot reach it either */
    const int r = fd < 0 ? fd : sp_mount_set(fd, false, SP_MOUNT_READ_ONLY);
    return r == 0 || r == -EINVAL || /* hidden below another mount: fd is not a mount's root */
           fail(v, SP_BUILD_ROOT_READONLY, r, NULL);
}

/* Hides further procfs mounts of the host, in a chroot perhaps: they show the host's processes. */
static bool hide_other_proc(struct view *v, const char *path, bool is_proc)
{
    const size_t above = v->plan->view == SP_VIEW_NEW ? sizeof NEW_ROOT_AT - 1 : 0;
    struct statfs fs;

    if (!is_proc || strcmp(path, "/proc") == 0 || strncmp(path, NEW_ROOT_AT, above) != 0 ||
        path[above] != '/')
        return true;
    auto_close int fd = sp_path_open(v->root, path + above);
    if (fd < 0 || fstatfs(fd, &fs) < 0 || fs.f_type != PROC_SUPER_MAGIC)
        return true;
    struct stat st;
    if (fstat(fd, &st) < 0)
        return fail(v, SP_BUILD_PROC, errno, NULL);
    auto_close int closed = from_workshop(v, S_ISDIR(st.st_mode) ? "closed" : "file");
    const int r = closed < 0 ? closed : sp_mount_attach(closed, fd);
    return r == 0 || fail(v, SP_BUILD_PROC, r, NULL);
}

/* ---- clones of the host's places ---- */

static enum sp_build_step step_of(const struct sp_place_op *o)
{
    if (o->op == SP_OP_WRITE)
        return SP_BUILD_ROOT;
    if (o->op == SP_OP_EMPTY)
        return o->mode == 0 || o->is_reopened ? SP_BUILD_DENY : SP_BUILD_PLACEHOLDER;
    return SP_BUILD_CARVEOUT;
}

/* Clones each place, if it still is the inode of the plan, and sets its mount flags. Before
 * lay_ground: later the host's tree is read-only or hidden. */
static bool clone_places(struct view *v)
{
    for (uint32_t i = 0; i < v->plan->op_count; i++) {
        const struct sp_place_op *o = &v->plan->ops[i];
        const char *path = sp_plan_string(v->plan, o->path);
        /* A policy that names a place in /dev wants its devices. */
        const unsigned no_dev = strncmp(path, "/dev/", 5) == 0 ? 0 : SP_MOUNT_NO_DEV;
        const unsigned read_only = o->op == SP_OP_READ ? SP_MOUNT_READ_ONLY : 0U;

        if (o->op != SP_OP_WRITE && o->op != SP_OP_READ)
            continue;
        auto_close int fd = sp_path_open(v->host, path);
        if (fd < 0)
            return fail(v, step_of(o), fd, path);
        if (!sp_path_is(fd, o->dev, o->ino))
            return fail(v, SP_BUILD_CHANGED, ESTALE, path);
        v->trees[i] = sp_mount_clone(fd, true);
        const int r = v->trees[i] < 0
                          ? v->trees[i]
                          : sp_mount_set(v->trees[i], true, SP_MOUNT_NO_SUID | no_dev | read_only);
        if (r < 0)
            return fail(v, step_of(o), r, path);
    }
    return true;
}

static bool clone_devices(struct view *v)
{
    for (size_t i = 0; i < DEVICES; i++) {
        auto_close int fd = sp_path_open(v->host, devices[i]);

        if (fd == -ENOENT)
            continue; /* some containers lack devices */
        v->devices[i] = fd < 0 ? fd : sp_mount_clone(fd, false);
        const int r = v->devices[i] < 0
                          ? v->devices[i]
                          : sp_mount_set(v->devices[i], false,
                                         SP_MOUNT_NO_SUID | SP_MOUNT_NO_EXEC | SP_MOUNT_READ_ONLY);
        if (r < 0)
            return fail(v, SP_BUILD_DEV, r, NULL);
    }
    return true;
}

/* ---- the ground ---- */

/* The name of an op's text in the workshop. */
static const char *text_name(uint32_t i, char name[16])
{
    (void)snprintf(name, 16, "text%u", i);
    return name;
}

static bool write_text(const struct view *v, uint32_t i)
{
    const char *text = sp_plan_string(v->plan, v->plan->ops[i].target);
    char name[16];
    auto_close int fd =
        openat(v->shop, text_name(i, name), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0444);

    return fd >= 0 && fchmod(fd, 0444) == 0 && sp_write_all(fd, text, strlen(text)) == 0;
}

static bool open_workshop(struct view *v)
{
    static const char *const options[] = {"mode", "0700", "size", "64k", NULL};
    auto_close int target = sp_path_open(v->host, WORKSHOP_AT);
    int r;

    v->shop = sp_mount_new("tmpfs", options, BARREN);
    r = v->shop < 0 ? v->shop : target < 0 ? target : sp_mount_attach(v->shop, target);
    if (r < 0)
        return fail(v, SP_BUILD_DENY, r, NULL);
    for (uint32_t i = 0; i < v->plan->op_count; i++)
        if (v->plan->ops[i].op == SP_OP_TEXT && !write_text(v, i))
            return fail(v, SP_BUILD_CARVEOUT, errno, sp_plan_string(v->plan, v->plan->ops[i].path));
    auto_close int file = openat(v->shop, "file", O_CREAT | O_EXCL | O_CLOEXEC, 0);
    if (file < 0 || fchmod(file, 0) < 0 || mkdirat(v->shop, "empty", 0555) < 0 ||
        fchmodat(v->shop, "empty", 0555, 0) < 0 || mkdirat(v->shop, "closed", 0) < 0 ||
        sp_mount_set(v->shop, false, SP_MOUNT_READ_ONLY) < 0)
        return fail(v, SP_BUILD_DENY, errno, NULL);
    return true;
}

static bool lay_ground(struct view *v)
{
    static const char *const options[] = {"mode", "0755", "size", "1m", NULL};
    const unsigned all = v->plan->view == SP_VIEW_READ ? QUIET | SP_MOUNT_READ_ONLY : QUIET;
    int r;

    if (v->plan->view == SP_VIEW_NEW) {
        auto_close int tree = sp_mount_new("tmpfs", options, QUIET);
        auto_close int target = sp_path_open(v->host, NEW_ROOT_AT);
        r = tree < 0 ? tree : target < 0 ? target : sp_mount_attach(tree, target);
        v->root = r < 0 ? -1 : TAKE_FD(tree);
        return r == 0 || fail(v, SP_BUILD_NEW_ROOT, r, NULL);
    }
    v->root = v->host;
    r = sp_mount_set(v->host, true, all);
    if (r < 0)
        return fail(v, SP_BUILD_ROOT_READONLY, r, NULL);
    return true;
}

/* ---- /dev and /proc ---- */

static bool put_in_dev(struct view *v, const char *type, const char *const *options,
                       const char *path)
{
    auto_close int tree = sp_mount_new(
        type, options, SP_MOUNT_NO_SUID | SP_MOUNT_NO_EXEC | (*type == 't' ? SP_MOUNT_NO_DEV : 0U));

    if (tree < 0)
        return fail(v, SP_BUILD_DEV, tree, path);
    return put(v, tree, path, true, SP_BUILD_DEV);
}

static bool build_dev(struct view *v)
{
    static const char *const options[] = {"mode", "0755", "size", "64k", NULL};
    static const char *const pts[] = {"ptmxmode", "0666", "mode", "0620", NULL};
    static const char *const shm[] = {"mode", "1777", "size", SHM_MAX, NULL};
    static const char *const links[][2] = {{"pts/ptmx", "ptmx"},
                                           {"/proc/self/fd", "fd"},
                                           {"/proc/self/fd/0", "stdin"},
                                           {"/proc/self/fd/1", "stdout"},
                                           {"/proc/self/fd/2", "stderr"}};

    v->dev = sp_mount_new("tmpfs", options, BARREN);
    if (v->dev < 0)
        return fail(v, SP_BUILD_DEV, v->dev, NULL);
    if (!put(v, v->dev, "/dev", true, SP_BUILD_DEV))
        return false;
    for (size_t i = 0; i < DEVICES; i++)
        if (v->devices[i] >= 0 && !put(v, v->devices[i], devices[i], false, SP_BUILD_DEV))
            return false;
    for (size_t i = 0; i < sizeof links / sizeof links[0]; i++)
        if (symlinkat(links[i][0], v->dev, links[i][1]) < 0)
            return fail(v, SP_BUILD_DEV, errno, NULL);
    return put_in_dev(v, "devpts", pts, "/dev/pts") && put_in_dev(v, "tmpfs", shm, "/dev/shm") &&
           put_in_dev(v, "mqueue", NULL, "/dev/mqueue");
}

/* Read-only as a whole: files of /proc check the uid, not capabilities. */
static bool build_proc(struct view *v)
{
    static const char *const hidden[] = {"/proc/kcore", "/proc/keys", "/proc/sysrq-trigger",
                                         "/proc/timer_list"};
    int masks[sizeof hidden / sizeof hidden[0]];
    bool ok = true;

    for (size_t i = 0; i < sizeof hidden / sizeof hidden[0]; i++)
        masks[i] = from_workshop(v, "file");
    auto_close int tree = sp_mount_new("proc", NULL, BARREN | SP_MOUNT_READ_ONLY);
    if (tree < 0)
        ok = fail(v, SP_BUILD_PROC, tree, NULL);
    if (ok && v->plan->view != SP_VIEW_NEW)
        (void)sp_mount_detach(WORKSHOP_AT);
    ok = ok && put(v, tree, "/proc", true, SP_BUILD_PROC);
    for (size_t i = 0; i < sizeof hidden / sizeof hidden[0]; i++) {
        auto_close int target = ok ? sp_path_open(v->root, hidden[i]) : -1;

        if (target >= 0 && masks[i] < 0)
            ok = fail(v, SP_BUILD_PROC, masks[i], hidden[i]);
        else if (target >= 0 && sp_mount_attach(masks[i], target) < 0)
            ok = fail(v, SP_BUILD_PROC, errno, hidden[i]);
        drop(&masks[i]);
    }
    return ok;
}

/* ---- the places ---- */

static bool put_place(struct view *v, uint32_t i)
{
    static const char *const options[] = {"mode", "0755", "size", "1m", NULL};
    const struct sp_place_op *o = &v->plan->ops[i];
    const char *path = sp_plan_string(v->plan, o->path);
    auto_close int target =
        o->is_made ? open_target(v, path, o->is_dir) : sp_path_open(v->root, path);

    if (target < 0)
        return fail(v, step_of(o), target, path);
    /* These lie inside of a place of the host, in a new root as well (plan.c drafts none where all
     * is denied). The target of READ and WRITE may be ours; clone_places has compared those. */
    if ((o->op == SP_OP_PIN || o->op == SP_OP_EMPTY) && !sp_path_is(target, o->dev, o->ino))
        return fail(v, SP_BUILD_CHANGED, ESTALE, path);
    if (o->op == SP_OP_PIN)
        v->trees[i] = sp_mount_clone(target, true);
    else if (o->op == SP_OP_EMPTY && o->is_dir && o->is_reopened)
        v->trees[i] = sp_mount_new("tmpfs", options, BARREN);
    else if (o->op == SP_OP_EMPTY)
        v->trees[i] = from_workshop(v, !o->is_dir ? "file" : o->mode == 0 ? "closed" : "empty");
    const int r = v->trees[i] < 0 ? v->trees[i] : sp_mount_attach(v->trees[i], target);
    if (r < 0)
        return fail(v, step_of(o), r, path);
    if (o->op != SP_OP_EMPTY || !o->is_reopened)
        drop(&v->trees[i]);
    return true;
}

static bool put_alias(struct view *v, const struct sp_place_op *o)
{
    char parent[4096];
    const char *path = sp_plan_string(v->plan, o->path);
    const char *slash = strrchr(path, '/');
    const size_t len = (size_t)(slash - path);

    if (len >= sizeof parent)
        return fail(v, SP_BUILD_NEW_ROOT, ENAMETOOLONG, path);
    memcpy(parent, path, len);
    parent[len] = 0;
    auto_close int dir = len == 0 ? sp_path_open(v->root, "/") : open_target(v, parent, true);
    if (dir < 0)
        return fail(v, SP_BUILD_NEW_ROOT, dir, path);
    /* EEXIST, EROFS: the symlink lies in a readable directory, which shows it already. */
    if (symlinkat(sp_plan_string(v->plan, o->target), dir, slash + 1) < 0 && errno != EEXIST &&
        errno != EROFS)
        return fail(v, SP_BUILD_NEW_ROOT, errno, path);
    return true;
}

/* Over the path itself, also if it is a symlink, perhaps to nothing: resolv.conf often leads to
 * /run. */
static bool put_text(struct view *v, uint32_t i)
{
    const char *path = sp_plan_string(v->plan, v->plan->ops[i].path);
    const char *slash = strrchr(path, '/');
    char parent[64];
    char name[16];

    (void)snprintf(parent, sizeof parent, "%.*s", (int)(slash - path), path);
    auto_close int dir = sp_path_open(v->root, parent);
    auto_close int target = dir < 0 ? dir : openat(dir, slash + 1, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (dir == -ENOENT || (dir >= 0 && target < 0 && errno == ENOENT))
        return true; /* programs do without the file */
    auto_close int tree = from_workshop(v, text_name(i, name));
    const int r = dir < 0      ? dir
                  : target < 0 ? -errno
                  : tree < 0   ? tree
                               : sp_mount_attach(tree, target);
    return r == 0 || fail(v, SP_BUILD_CARVEOUT, r, path);
}

/* In the plan's order: a place follows the directories around it. */
static bool put_places(struct view *v)
{
    bool ok = true;

    for (uint32_t i = 0; ok && i < v->plan->op_count; i++) {
        const struct sp_place_op *o = &v->plan->ops[i];

        if (o->op != SP_OP_NOTHING)
            ok = o->op == SP_OP_ALIAS  ? put_alias(v, o)
                 : o->op == SP_OP_TEXT ? put_text(v, i)
                                       : put_place(v, i);
    }
    return ok;
}

/* Makes /dev, reopened empty directories and a new root read-only: all mount points exist now. */
static bool freeze(struct view *v)
{
    int r = sp_mount_set(v->dev, false, SP_MOUNT_READ_ONLY);

    for (uint32_t i = 0; r == 0 && i < v->plan->op_count; i++) {
        if (v->trees[i] < 0)
            continue;
        if (fchmodat(v->trees[i], ".", v->plan->ops[i].mode == 0 ? 0111 : v->plan->ops[i].mode, 0) <
            0)
            r = -errno;
        else
            r = sp_mount_set(v->trees[i], false, SP_MOUNT_READ_ONLY);
    }
    if (r == 0 && v->plan->view == SP_VIEW_NEW)
        r = sp_mount_set(v->root, false, SP_MOUNT_READ_ONLY);
    return r == 0 || fail(v, SP_BUILD_DENY, r, NULL);
}

/* Each place, by the path that commands will use, is the inode that the front saw. */
static bool verify(struct view *v)
{
    auto_close int root = open("/", O_PATH | O_CLOEXEC);

    for (uint32_t i = 0; i < v->plan->op_count; i++) {
        const struct sp_place_op *o = &v->plan->ops[i];
        const char *path = sp_plan_string(v->plan, o->path);

        if (o->op == SP_OP_ALIAS || o->op == SP_OP_EMPTY || o->op == SP_OP_TEXT ||
            o->op == SP_OP_NOTHING)
            continue;
        auto_close int fd = sp_path_open(root, path);
        if (fd < 0 || !sp_path_is(fd, o->dev, o->ino))
            return fail(v, SP_BUILD_CHANGED, fd < 0 ? fd : ESTALE, path);
    }
    return true;
}

static bool enter_view(struct view *v)
{
    const int r = v->plan->view == SP_VIEW_NEW ? sp_mount_pivot(v->root)
                  : chdir("/") < 0             ? -errno
                                               : 0;

    return r == 0 || fail(v, SP_BUILD_NEW_ROOT, r, NULL);
}

/* Needs a mount namespace of its own and all capabilities over it. Afterwards the working directory
 * is the root of the view. */
static bool build_view(const struct sp_plan *plan, struct sp_built *ret)
{
    struct view v = {.plan = plan, .report = ret, .host = -1, .root = -1, .shop = -1, .dev = -1};
    int r = sp_mount_make_private();

    if (r < 0)
        return report_failure(ret, SP_BUILD_MOUNT_PRIVATE, r, NULL);
    v.trees = malloc((plan->op_count + 1) * sizeof *v.trees);
    v.host = open("/", O_PATH | O_CLOEXEC);
    v.mounts = fopen("/proc/self/mountinfo", "re");
    if (v.trees == NULL || v.host < 0 || v.mounts == NULL)
        return report_failure(ret, SP_BUILD_MOUNT_PRIVATE, errno, "mountinfo");
    for (uint32_t i = 0; i < plan->op_count; i++)
        v.trees[i] = -1;
    for (size_t i = 0; i < DEVICES; i++)
        v.devices[i] = -1;
    const bool ok = for_each_kernel_mount(&v, write_protect) && clone_devices(&v) &&
                    clone_places(&v) && open_workshop(&v) && lay_ground(&v) && build_dev(&v) &&
                    put_places(&v) && for_each_kernel_mount(&v, hide_other_proc) &&
                    build_proc(&v) && freeze(&v) && enter_view(&v) && verify(&v);
    for (uint32_t i = 0; i < plan->op_count; i++)
        drop(&v.trees[i]);
    for (size_t i = 0; i < DEVICES; i++)
        drop(&v.devices[i]);
    if (v.root != v.host)
        drop(&v.root);
    drop(&v.host);
    drop(&v.shop);
    (void)fclose(v.mounts);
    drop(&v.dev);
    free(v.trees);
    return ok;
}

/* ==== confinement ==== */

static bool has_own_network(const struct sp_plan *plan)
{
    return plan->net == SP_NET_OWN || plan->net == SP_NET_MANAGED;
}

/* Only a child is inside of the new pid namespace: it returns and goes on as the cell. The parent
 * sends the child's pidfd to the front and exits. */
static bool fork_into_namespace(int control, struct sp_built *report)
{
    int pidfd;
    const pid_t pid = namespaces_fork(&pidfd);

    if (pid < 0)
        return report_failure(report, SP_BUILD_NAMESPACES, pid, NULL);
    if (pid == 0)
        return true;
    struct sp_wire_born m = {.head = {.version = SP_WIRE_VERSION, .op = SP_WIRE_BORN},
                             .pid = (int32_t)pid};
    if (sp_wire_send(control, true, &m, sizeof m, NULL, 0, &pidfd, 1) < 0)
        (void)kill(pid, SIGKILL); /* the front is gone */
    _exit(0);
}

/* ---- Landlock ---- */

/* Not every host has every device. */
static int allow_if_present(int ruleset, int abi, const char *path, enum sp_landlock_rights rights)
{
    auto_close int fd = open(path, O_PATH | O_CLOEXEC);

    return fd < 0 ? 0 : sp_landlock_allow(ruleset, abi, fd, rights);
}

static int allow_devices(int ruleset, int abi, bool is_thin)
{
    static const char *const folders[] = {"/dev/pts", "/dev/shm", "/dev/mqueue"};
    int r = 0;

    for (size_t i = 0; r == 0 && i < DEVICES; i++)
        r = allow_if_present(ruleset, abi, devices[i], SP_LANDLOCK_DEVICE);
    if (is_thin) /* /dev/pts is the host's: a new terminal may be opened, existing ones may not */
        return r < 0 ? r : allow_if_present(ruleset, abi, "/dev/ptmx", SP_LANDLOCK_DEVICE);
    /* /dev/mqueue covers mq_open(), too: message queues are files of this file system. */
    for (size_t i = 0; r == 0 && i < sizeof folders / sizeof folders[0]; i++)
        r = allow_if_present(ruleset, abi, folders[i], SP_LANDLOCK_WRITE);
    return r;
}

static bool enter_landlock(const struct sp_plan *plan, struct sp_confined *ret,
                           struct sp_built *report)
{
    const char *where = NULL;

    if (plan->landlock == 0)
        return true;
    const int abi = (int)plan->landlock;
    auto_close int ruleset = sp_landlock_new(abi);
    auto_close int root = open("/", O_PATH | O_CLOEXEC);
    int r = ruleset < 0 ? ruleset : root < 0 ? -errno : 0;
    if (r == 0)
        r = sp_landlock_allow(ruleset, abi, root,
                              plan->view == SP_VIEW_OPEN ? SP_LANDLOCK_WRITE : SP_LANDLOCK_READ);
    if (r == 0)
        r = allow_devices(ruleset, abi, plan->tier == SP_TIER_THIN);
    for (uint32_t i = 0; r == 0 && i < plan->op_count; i++) {
        if (plan->ops[i].op != SP_OP_WRITE)
            continue;
        where = sp_plan_string(plan, plan->ops[i].path);
        auto_close int fd = sp_path_open(root, where);
        r = fd < 0 ? fd : sp_landlock_allow(ruleset, abi, fd, SP_LANDLOCK_WRITE);
    }
    if (r == 0)
        r = sp_landlock_enter(ruleset);
    if (r < 0)
        return report_failure(report, SP_BUILD_LANDLOCK, r, where);
    ret->scope = sp_landlock_new_scope(abi, root);
    if (ret->scope < 0 && ret->scope != -ENOTSUP)
        return report_failure(report, SP_BUILD_LANDLOCK, ret->scope, "scope");
    return true;
}

/* ---- the filter ---- */

static bool enter_filter(const struct sp_plan *plan, struct sp_confined *ret,
                         struct sp_built *report)
{
    static struct sp_filter filter;
    const struct sp_filter_options o = {
        .net = has_own_network(plan)        ? SP_FILTER_LOOPBACK
               : plan->net == SP_NET_FILTER ? SP_FILTER_NONE
                                            : SP_FILTER_ENABLED,
        .denies_metadata = plan->tier == SP_TIER_THIN && plan->view != SP_VIEW_OPEN,
        .notifies = plan->notifies != 0,
    };

    sp_filter_make(&o, &filter);
    const int r = sp_filter_install(&filter, o.notifies, &ret->listener);
    return r == 0 || report_failure(report, SP_BUILD_SECCOMP, r, NULL);
}

/* Checks the filter and the read-only root before any command starts. */
static bool self_test(const struct sp_plan *plan, struct sp_built *report)
{
    /* kcmp is refused without a notification: the listener is not served yet. */
    if (syscall(SYS_kcmp, getpid(), getpid(), 0L, 0L, 0L) != -1 || errno != EPERM)
        return report_failure(report, SP_BUILD_SELF_TEST, EPROTO, "filter");
    if (plan->view == SP_VIEW_OPEN)
        return true;
    const int fd = open("/.sallyport-self-test", O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (fd >= 0) {
        (void)unlink("/.sallyport-self-test");
        (void)close(fd);
        return report_failure(report, SP_BUILD_SELF_TEST, EPROTO, "read-only root");
    }
    return errno == EROFS || (errno == EACCES && plan->tier == SP_TIER_THIN) ||
           report_failure(report, SP_BUILD_SELF_TEST, errno, "read-only root");
}

/* Before the view is built: its /proc is read-only. */
static bool open_network(const struct sp_plan *plan, int control, struct sp_built *report)
{
    int r = has_own_network(plan) ? sp_namespaces_raise_loopback() : 0;

    if (r < 0)
        return report_failure(report, SP_BUILD_LOOPBACK, r, NULL);
    r = plan->net == SP_NET_MANAGED ? sp_ports_open(plan) : 0;
    if (r == 0)
        r = sp_ports_send(control, true, &(uint32_t){0});
    return r == 0 || report_failure(report, SP_BUILD_PORTS, r, NULL);
}

static bool confine(const struct sp_plan *plan, int control, struct sp_confined *ret,
                    struct sp_built *report)
{
    int r;

    if (plan->tier == SP_TIER_CELL) {
        const uid_t uid = geteuid();
        const gid_t gid = getegid();

        r = namespaces_unshare(has_own_network(plan));
        if (r < 0)
            return report_failure(report, SP_BUILD_NAMESPACES, r, NULL);
        r = sp_namespaces_map_ids(uid, gid);
        if (r < 0)
            return report_failure(report, SP_BUILD_ID_MAP, r, NULL);
        if (!fork_into_namespace(control, report) || !open_network(plan, control, report) ||
            !build_view(plan, report))
            return false;
        r = sp_spawn_renew_null(); /* commands inherit it, and could change the host's inode */
        if (r < 0)
            return report_failure(report, SP_BUILD_DEV, r, "/dev/null");
    }
    ret->pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0); /* the filter may refuse it */
    if ((r = sp_privilege_no_core()) < 0)
        return report_failure(report, SP_BUILD_LIMITS, r, NULL);
    if ((r = sp_privilege_drop()) < 0)
        return report_failure(report, SP_BUILD_CAPABILITIES, r, NULL);
    if (prctl(PR_SET_DUMPABLE, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        return report_failure(report, SP_BUILD_CAPABILITIES, errno, NULL);
    return enter_landlock(plan, ret, report) && enter_filter(plan, ret, report) &&
           self_test(plan, report);
}

bool sp_confine(int plan_fd, int control, struct sp_confined *ret, struct sp_built *report)
{
    const int want = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
    const int seals = fcntl(plan_fd, F_GET_SEALS);
    const struct sp_plan *plan = NULL;
    void *map = MAP_FAILED;
    struct stat st;

    *ret = (struct sp_confined){.scope = -1, .listener = -1, .pidfd = -1};
    *report = (struct sp_built){0};
    if (seals >= 0 && (seals & want) == want && fstat(plan_fd, &st) == 0 && st.st_size > 0 &&
        st.st_size <= (off_t)SP_PLAN_MAX)
        map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, plan_fd, 0);
    if (map != MAP_FAILED)
        plan = sp_plan_check(map, (size_t)st.st_size);
    if (plan == NULL)
        return report_failure(report, SP_BUILD_PLAN, EINVAL, NULL);
    if (!confine(plan, control, ret, report))
        return false; /* the plan stays mapped: report->where points into it */
    ret->has_new_root = plan->view == SP_VIEW_NEW;
    ret->has_own_network = has_own_network(plan);
    (void)munmap(map, (size_t)st.st_size);
    return true;
}
