/* SPDX-License-Identifier: Apache-2.0 */
#include "cell/cell_confine.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/auto.h"
#include "cell/wire.h"
#include "os/landlock.h"
#include "os/mount.h"
#include "os/namespace.h"
#include "os/privilege.h"
#include "os/seccomp.h"
#include "os/spawn.h"

/* ---- namespaces ---- */

static bool leave_namespaces(const struct sp_plan *plan, struct sp_built *report)
{
    const uid_t uid = geteuid();
    const gid_t gid = getegid();
    int r = sp_namespaces_unshare(plan->net == SP_NET_OWN);

    if (r < 0)
        return sp_built_fail(report, SP_BUILD_NAMESPACES, r, NULL);
    r = sp_namespaces_map_ids(uid, gid);
    return r == 0 || sp_built_fail(report, SP_BUILD_ID_MAP, r, NULL);
}

/* Only a child is inside of the new pid namespace: it returns and goes on as the cell. The parent
 * sends the child's pidfd to the front and exits. */
static bool fork_into_namespace(int control, struct sp_built *report)
{
    int pidfd;
    const pid_t pid = sp_namespaces_be_born(&pidfd);

    if (pid < 0)
        return sp_built_fail(report, SP_BUILD_NAMESPACES, pid, NULL);
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
    static const char *const devices[] = {"/dev/null",   "/dev/zero",    "/dev/full",
                                          "/dev/random", "/dev/urandom", "/dev/tty"};
    int r = 0;

    for (size_t i = 0; r == 0 && i < sizeof devices / sizeof devices[0]; i++)
        r = allow_if_present(ruleset, abi, devices[i], SP_LANDLOCK_DEVICE);
    if (is_thin) /* /dev/pts is the host's: a new terminal may be opened, existing ones may not */
        return r < 0 ? r : allow_if_present(ruleset, abi, "/dev/ptmx", SP_LANDLOCK_DEVICE);
    if (r == 0)
        r = allow_if_present(ruleset, abi, "/dev/pts", SP_LANDLOCK_WRITE);
    if (r == 0)
        r = allow_if_present(ruleset, abi, "/dev/shm", SP_LANDLOCK_WRITE);
    /* Covers mq_open(), too: message queues are files of this file system. */
    return r < 0 ? r : allow_if_present(ruleset, abi, "/dev/mqueue", SP_LANDLOCK_WRITE);
}

static int make_rules(const struct sp_plan *plan, int ruleset, const char **ret_where)
{
    const int abi = (int)plan->landlock;
    auto_close int root = open("/", O_PATH | O_CLOEXEC);
    int r = root < 0 ? -errno
                     : sp_landlock_allow(ruleset, abi, root,
                                         plan->view == SP_VIEW_OPEN ? SP_LANDLOCK_WRITE
                                                                    : SP_LANDLOCK_READ);

    if (r == 0)
        r = allow_devices(ruleset, abi, plan->tier == SP_TIER_THIN);
    for (uint32_t i = 0; r == 0 && i < plan->op_count; i++) {
        if (plan->ops[i].op != SP_OP_WRITE)
            continue;
        *ret_where = sp_plan_string(plan, plan->ops[i].path);
        auto_close int fd = sp_path_open(root, *ret_where);
        r = fd < 0 ? fd : sp_landlock_allow(ruleset, abi, fd, SP_LANDLOCK_WRITE);
    }
    return r;
}

static bool enter_landlock(const struct sp_plan *plan, struct sp_confined *ret,
                           struct sp_built *report)
{
    const char *where = NULL;

    if (plan->landlock == 0)
        return true;
    auto_close int ruleset = sp_landlock_new((int)plan->landlock);
    int r = ruleset < 0 ? ruleset : make_rules(plan, ruleset, &where);
    if (r == 0)
        r = sp_landlock_enter(ruleset);
    if (r < 0)
        return sp_built_fail(report, SP_BUILD_LANDLOCK, r, where);
    auto_close int root = open("/", O_PATH | O_CLOEXEC);
    ret->scope = sp_landlock_new_scope((int)plan->landlock, root);
    if (ret->scope < 0 && ret->scope != -ENOTSUP)
        return sp_built_fail(report, SP_BUILD_LANDLOCK, ret->scope, "scope");
    return true;
}

/* ---- the filter ---- */

static bool enter_filter(const struct sp_plan *plan, struct sp_confined *ret,
                         struct sp_built *report)
{
    static struct sp_filter filter;
    const struct sp_filter_options o = {
        .net = plan->net == SP_NET_OWN      ? SP_FILTER_LOOPBACK
               : plan->net == SP_NET_FILTER ? SP_FILTER_NONE
                                            : SP_FILTER_ENABLED,
        .denies_metadata = plan->tier == SP_TIER_THIN && plan->view != SP_VIEW_OPEN,
        .notifies = plan->notifies != 0,
    };

    sp_filter_make(&o, &filter);
    const int r = sp_filter_install(&filter, o.notifies, &ret->listener);
    return r == 0 || sp_built_fail(report, SP_BUILD_SECCOMP, r, NULL);
}

/* Checks the filter and the read-only root before any command starts. */
static bool self_test(const struct sp_plan *plan, struct sp_built *report)
{
    /* kcmp is refused without a notification: the listener is not served yet. */
    if (syscall(SYS_kcmp, getpid(), getpid(), 0L, 0L, 0L) != -1 || errno != EPERM)
        return sp_built_fail(report, SP_BUILD_SELF_TEST, EPROTO, "filter");
    if (plan->view == SP_VIEW_OPEN)
        return true;
    const int fd = open("/.sallyport-self-test", O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (fd >= 0) {
        (void)unlink("/.sallyport-self-test");
        (void)close(fd);
        return sp_built_fail(report, SP_BUILD_SELF_TEST, EPROTO, "read-only root");
    }
    return errno == EROFS || (errno == EACCES && plan->tier == SP_TIER_THIN) ||
           sp_built_fail(report, SP_BUILD_SELF_TEST, errno, "read-only root");
}

bool sp_confine(const struct sp_plan *plan, int control, struct sp_confined *ret,
                struct sp_built *report)
{
    int r;

    *ret = (struct sp_confined){.scope = -1, .listener = -1};
    if (plan->tier == SP_TIER_CELL) {
        if (!leave_namespaces(plan, report) || !fork_into_namespace(control, report) ||
            !sp_view_build(plan, report))
            return false;
        r = sp_spawn_renew_null(); /* commands inherit it, and could change the host's inode */
        if (r < 0)
            return sp_built_fail(report, SP_BUILD_DEV, r, "/dev/null");
        r = plan->net == SP_NET_OWN ? sp_namespaces_raise_loopback() : 0;
        if (r < 0)
            return sp_built_fail(report, SP_BUILD_LOOPBACK, r, NULL);
    }
    r = sp_privilege_no_core();
    if (r < 0)
        return sp_built_fail(report, SP_BUILD_LIMITS, r, NULL);
    r = sp_privilege_drop();
    if (r < 0)
        return sp_built_fail(report, SP_BUILD_CAPABILITIES, r, NULL);
    if (prctl(PR_SET_DUMPABLE, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        return sp_built_fail(report, SP_BUILD_CAPABILITIES, errno, NULL);
    return enter_landlock(plan, ret, report) && enter_filter(plan, ret, report) &&
           self_test(plan, report);
}
