/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cell_child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "cell/cell.h"
#include "os/fd.h"
#include "os/landlock.h"
#include "os/spawn.h"
#include "os/tree.h"
#include "sandbox/plan.h"

#define ANSWER_MS 5000
#define REAP_MS   2000 /* for the end of a child that was killed, or has ended */

int sp_seal(const char *name, const struct sp_str *parts, size_t count)
{
    auto_close int fd = sp_fd_lift(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));

    if (fd < 0)
        return -1;
    for (size_t i = 0; i < count; i++)
        if ((errno = sp_write_all(fd, parts[i].p, parts[i].n)) != 0)
            return -1;
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) < 0)
        return -1;
    return TAKE_FD(fd);
}

/* Notes a started process as ours (os/tree.h) until it is reaped. */
static void set_child(struct sp_cell_child *child, pid_t pid, int pidfd)
{
    child->pid = pid;
    child->pidfd = pidfd;
    sp_own_add(pid);
}

static int no_hook(void *user, int socket, int pidfd, struct sp_err *e)
{
    (void)user;
    (void)socket;
    (void)pidfd;
    (void)e;
    return 0;
}

/* s: everything but stdio and what is told to the program by argv. */
static int spawn(struct sp_spawn *s, const char *verb, const char *what,
                 const struct sp_cell_launch_hook *hook, int *ret_socket, struct sp_cell_child *ret,
                 struct sp_err *e)
{
    char *const argv[] = {(char *)(uintptr_t) "sallyport", (char *)(uintptr_t)verb, NULL};
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "make a socket for %s", what);
    auto_close int ours = sp_fd_lift(pair[0]);
    auto_close int theirs = sp_fd_lift(pair[1]);
    /* A host program may have closed its stderr; descriptor 2 must not be another file then. */
    s->stdio[0] = theirs;
    s->stdio[1] = -1;
    s->stdio[2] = fcntl(STDERR_FILENO, F_GETFD) < 0 ? -1 : 2;
    s->is_apart = true;
    s->cgroup = -1;
    s->argv = argv;
    int r = hook->made(hook->user, ours, -1, e);
    if (r < 0)
        return r;
    if (sp_spawn(s) < 0)
        return sp_fail(e, SP_E_SYSTEM, s->failed_errno, "start %s: %s", what,
                       sp_step_name(s->failed_step));
    set_child(ret, s->pid, s->pidfd);
    r = hook->made(hook->user, ours, s->pidfd, e);
    *ret_socket = TAKE_FD(ours);
    return r;
}

int sp_cell_child_spawn(const char *program, const char *verb, char *const *envp, const char *what,
                        int *ret_socket, struct sp_cell_child *ret, struct sp_err *e)
{
    const struct sp_cell_launch_hook none = {.made = no_hook};
    struct sp_spawn s = {.dies_with_us = true, .file = program, .envp = envp};

    return spawn(&s, verb, what, &none, ret_socket, ret, e);
}

int sp_cell_launch(const char *program, struct sp_wire_hello *hello, const struct sp_bell *bell,
                   const struct sp_buf *plan, const struct sp_cell_launch_hook *hook,
                   int *ret_socket, struct sp_cell_child *ret, struct sp_err *e)
{
    char *const envp[] = {NULL};
    const struct sp_cell_launch_hook none = {.made = no_hook};
    struct sp_spawn s = {.is_sibling = hook != NULL, .file = program, .envp = envp};
    auto_close int memory = -1;

    if (plan != NULL) {
        const struct sp_str bytes = sp_buf_str(plan);

        memory = sp_seal("sallyport-plan", &bytes, 1);
        if (memory < 0)
            return sp_fail(e, SP_E_SYSTEM, errno, "hand over the plan");
    }
    int r = spawn(&s, "cell", "the cell", hook != NULL ? hook : &none, ret_socket, ret, e);
    if (r < 0)
        return r;
    hello->head = (struct sp_wire_head){.version = SP_WIRE_VERSION, .op = SP_WIRE_HELLO};
    const int fds[3] = {bell->page_fd, bell->wake[SP_SIDE_CELL], memory};
    r = sp_wire_send(*ret_socket, true, hello, sizeof *hello, NULL, 0, fds, plan != NULL ? 3 : 2);
    return r < 0 ? sp_fail(e, SP_E_SYSTEM, -r, "greet the cell") : 0;
}

void sp_cell_child_take(struct sp_cell_child *child, int pidfd)
{
    char text[512];

    /* "Pid:\t4711", -1 once the process is reaped, or 0 if our pid namespace has none for it. */
    const bool is_read = sp_read_text(text, sizeof text, "/proc/self/fdinfo/%d", pidfd) > 0;
    const char *line = is_read ? strstr(text, "Pid:") : NULL;
    const long pid = line == NULL ? 0 : strtol(line + sizeof "Pid:" - 1, NULL, 10);

    set_child(child, pid > 0 ? (pid_t)pid : 0, pidfd);
}

void sp_cell_child_kill(const struct sp_cell_child *child)
{
    if (child->pidfd >= 0)
        (void)syscall(SYS_pidfd_send_signal, child->pidfd, SIGKILL, NULL, 0);
}

bool sp_await_readable(int fd, int ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    const uint64_t until = sp_clock_ms() + (uint64_t)ms;
    int left = ms;
    int r;

    while ((r = poll(&p, 1, left)) < 0 && errno == EINTR && left > 0) {
        const uint64_t now = sp_clock_ms();

        left = now >= until ? 0 : (int)(until - now);
    }
    return r > 0;
}

bool sp_cell_child_reap(struct sp_cell_child *child)
{
    siginfo_t info = {0};

    if (child->pidfd < 0)
        return true;
    /* A pidfd may be readable a moment before its process can be reaped: then waiting is short. */
    const bool has_ended = sp_await_readable(child->pidfd, REAP_MS);
    const int r = waitid(P_PIDFD, (id_t)child->pidfd, &info, WEXITED | (has_ended ? 0 : WNOHANG));
    if (r == 0 && info.si_pid == 0)
        sp_log(SP_LOG_ERROR,
               "process %d does not end: it, or a process of its pid namespace, waits for a disk",
               (int)child->pid);
    (void)close(child->pidfd);
    child->pidfd = -1;
    sp_own_remove(child->pid);
    /* ECHILD: it is the keeper's child, or the host program ignores SIGCHLD or reaps all children.
     */
    return r < 0 || (info.si_code == CLD_EXITED && info.si_status == 0);
}

bool sp_cell_take_birth(struct sp_wire_message *m, struct sp_cell_child *ret)
{
    const struct sp_wire_born *born = (const void *)m->bytes;

    if (born->head.op != SP_WIRE_BORN || m->fd_count != 1)
        return false;
    set_child(ret, born->pid, sp_fd_lift(m->fds[0]));
    m->fd_count = 0;
    return true;
}

void sp_cell_read_birth(int socket, struct sp_wire_message *m, struct sp_cell_child *ret)
{
    while (socket >= 0 && ret->pidfd < 0 && sp_wire_recv(socket, false, m, NULL) > 0)
        if (!sp_cell_take_birth(m, ret))
            sp_wire_close_fds(m);
}

/* Resources are short (EMFILE, ENOMEM ...): the same may succeed a moment later. */
static bool is_passing(int err)
{
    return err == EAGAIN || err == ENOMEM || err == ENOBUFS || err == EMFILE || err == ENFILE;
}

void sp_cell_explain(uint32_t step, int err, const char *where, struct sp_err *ret)
{
    /* A path of the plan changed while the cell built the sandbox: a new plan may succeed. */
    const bool has_changed = step == SP_BUILD_CHANGED ||
                             (where[0] != 0 && (err == ENOENT || err == ENOTDIR || err == ELOOP));
    const bool may_pass = is_passing(err);

    (void)sp_fail(ret,
                  has_changed ? SP_E_STATE
                  : may_pass  ? SP_E_FAILED
                              : SP_E_INVALID,
                  0, "failed to prepare process sandbox: %s%s%s: %s%s", sp_build_step_name(step),
                  where[0] != 0 ? ":" : "", where, strerror(err), may_pass ? "; try again" : "");
}

int sp_cell_child_run(int fd, struct sp_err *e)
{
    return sp_cell_run(fd, e);
}

/* ---- one cell, made and ended ---- */

/* Reads BORN (of a maker) and READY. false: no READY within ANSWER_MS, or the socket has ended. */
static bool await_ready(int socket, struct sp_wire_message *m, struct sp_cell_child *ret_cell,
                        struct sp_wire_ready *ret)
{
    while (sp_await_readable(socket, ANSWER_MS) && sp_wire_recv(socket, false, m, NULL) > 0) {
        const struct sp_wire_ready *ready = (const void *)m->bytes;

        if (ready->head.op == SP_WIRE_READY) {
            *ret = *ready;
            ret->where[sizeof ret->where - 1] = 0;
            return true;
        }
        if (ret_cell->pidfd >= 0 || !sp_cell_take_birth(m, ret_cell))
            sp_wire_close_fds(m);
    }
    return false;
}

int sp_cell_try(const char *program, const struct sp_buf *plan, uint32_t *ret_step, int *ret_err,
                struct sp_err *e)
{
    auto_close int socket = -1;
    auto_free struct sp_wire_message *m = malloc(sizeof *m);
    struct sp_cell_child first = {.pidfd = -1}; /* the maker of a forked cell, or the cell */
    struct sp_cell_child forked = {.pidfd = -1};
    struct sp_wire_hello hello = {.slots = 1};
    struct sp_wire_ready ready = {.step = SP_BUILD_PLAN, .err = ETIMEDOUT};
    struct sp_bell bell;
    const bool is_forked = ((const struct sp_plan *)(const void *)plan->data)->tier == SP_TIER_CELL;

    int r = m == NULL ? sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a cell") : sp_bell_new(1, &bell, e);
    if (r == 0) {
        r = sp_cell_launch(program, &hello, &bell, plan, NULL, &socket, &first, e);
        sp_bell_free(&bell);
    }
    const bool has_answer = r == 0 && await_ready(socket, m, &forked, &ready);

    /* A maker exits by itself after BORN; only then it is certain whether there is a cell. */
    if (!is_forked || (first.pidfd >= 0 && !sp_await_readable(first.pidfd, ANSWER_MS)))
        sp_cell_child_kill(&first);
    (void)sp_cell_child_reap(&first);
    sp_cell_read_birth(socket, m, &forked);
    sp_cell_child_kill(&forked);
    (void)sp_cell_child_reap(&forked);

    *ret_step = ready.step;
    *ret_err = r < 0 && e->sys != 0 ? e->sys : ready.err;
    if (r == 0 && !has_answer)
        r = sp_fail(e, SP_E_FAILED, 0, "failed to prepare process sandbox: cell died");
    if (r == 0 && ready.step != SP_BUILD_NONE) {
        sp_cell_explain(ready.step, ready.err, ready.where, e);
        r = -(int)SP_E_INVALID;
    }
    return r;
}

/* ---- what the host allows ---- */

struct probe {
    const char *program;
    struct sp_plan plan;
    uint32_t step; /* that failed */
    int err;
};

static bool try_plan(struct probe *t)
{
    auto_buf struct sp_buf plan = {0};
    struct sp_err e = {0};

    t->plan.version = SP_PLAN_VERSION;
    t->plan.bytes = t->plan.strings = sizeof t->plan;
    t->plan.view =
        t->plan.tier == SP_TIER_THIN && t->plan.landlock == 0 ? SP_VIEW_OPEN : SP_VIEW_READ;
    t->step = SP_BUILD_PLAN;
    t->err = ENOMEM;
    if (!sp_buf_add(&plan, &t->plan, sizeof t->plan))
        return false;
    const bool ok = sp_cell_try(t->program, &plan, &t->step, &t->err, &e) == 0;
    if (!ok)
        sp_log(SP_LOG_INFO, "trial of tier %s: %s", sp_tier_name(t->plan.tier), e.msg);
    return ok;
}

/* 1: a cell can be made, perhaps without optional features, which are cleared in t->plan then.
 * 0: it cannot. Negative: resources are short, so the host's limits are still unknown. */
static int probe_tier(struct probe *t, struct sp_err *e)
{
    bool ok = try_plan(t);

    if (!ok && t->step == SP_BUILD_LANDLOCK && t->plan.tier == SP_TIER_CELL &&
        (t->err == ENOSYS || t->err == EOPNOTSUPP)) {
        t->plan.landlock = 0;
        ok = try_plan(t);
    }
    if (!ok && t->step == SP_BUILD_SECCOMP) {
        t->plan.notifies = 0;
        ok = try_plan(t);
    }
    if (!ok && is_passing(t->err))
        return sp_fail(e, SP_E_FAILED, t->err, "failed to prepare process sandbox; try again");
    return ok;
}

int sp_host_features_probe(const char *program, struct sp_host_features *ret, struct sp_err *e)
{
    const uint32_t landlock = (uint32_t)sp_landlock_abi();
    struct probe t = {
        .program = program,
        .plan = {.tier = SP_TIER_CELL, .net = SP_NET_OWN, .landlock = landlock, .notifies = 1}};

    *ret = (struct sp_host_features){.landlock = (int)landlock};
    int r = probe_tier(&t, e);
    ret->has_own_network = ret->has_full_tier = r > 0;
    if (r == 0 && (t.step == SP_BUILD_NAMESPACES || t.step == SP_BUILD_LOOPBACK)) {
        t.plan.net = SP_NET_FILTER; /* the host may refuse the network namespace alone */
        r = probe_tier(&t, e);
        ret->has_full_tier = r > 0;
    }
    if (r > 0) {
        ret->has_filter = true;
        ret->landlock = (int)t.plan.landlock;
    } else if (r == 0) {
        ret->failed_step = t.step;
        ret->failed_errno = t.err;
        t.plan = (struct sp_plan){
            .tier = SP_TIER_THIN, .net = SP_NET_FILTER, .landlock = landlock, .notifies = 1};
        r = probe_tier(&t, e);
        ret->has_filter = r > 0;
        if (r == 0 && t.step != SP_BUILD_SECCOMP) { /* the filter works, Landlock does not */
            ret->has_filter = true;
            ret->landlock = 0;
        }
    }
    ret->has_notices = t.plan.notifies != 0;
    return r < 0 ? r : 0;
}

/* ---- helper processes ---- */

int sp_helper_spawn(const char *program, char *const *environ, const char *verb,
                    struct sp_helper *ret, struct sp_err *e)
{
    static const char *const kept[] = {"SALLYPORT_TEST_HOSTS=", "RES_OPTIONS=",   "LOCALDOMAIN=",
                                       "ASAN_OPTIONS=",         "UBSAN_OPTIONS=", "LSAN_OPTIONS="};
    char *envp[sizeof kept / sizeof kept[0] + 1] = {0};
    size_t count = 0;

    for (size_t i = 0; environ != NULL && environ[i] != NULL; i++)
        for (size_t k = 0; k < sizeof kept / sizeof kept[0]; k++)
            if (strncmp(environ[i], kept[k], strlen(kept[k])) == 0 &&
                count < sizeof kept / sizeof kept[0])
                envp[count++] = environ[i];
    return sp_cell_child_spawn(program, verb, envp, "a process for the network of a sandbox",
                               &ret->socket, &ret->process, e);
}

void sp_helper_end(struct sp_loop *loop, struct sp_helper *h)
{
    sp_loop_unwatch(loop, &h->watch);
    sp_loop_unwatch(loop, &h->process.on_end);
    sp_outbox_free(&h->outbox);
    if (h->socket >= 0)
        (void)close(TAKE_FD(h->socket));
    if (h->process.pidfd >= 0) {
        sp_cell_child_kill(&h->process);
        (void)sp_cell_child_reap(&h->process);
    }
}
