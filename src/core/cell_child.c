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
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "cell/bell.h"
#include "cell/cell.h"
#include "os/fd.h"
#include "os/own.h"
#include "os/spawn.h"
#include "sandbox/plan.h"

#define ANSWER_MS 5000 /* a trial's */

/* Bytes in sealed memory: what the cell reads is what we wrote. */
int sp_cell_seal(const char *name, const struct sp_buf *bytes)
{
    auto_close int fd = sp_fd_lift(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    size_t at = 0;

    if (fd < 0)
        return -1;
    while (at < bytes->len) {
        const ssize_t n = write(fd, bytes->data + at, bytes->len - at);

        if (n < 0)
            return -1;
        at += (size_t)n;
    }
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) < 0)
        return -1;
    return TAKE_FD(fd);
}

/* Runs ourselves as a cell at the other end of a new socket. */
int sp_cell_spawn(const char *program, int *ret_socket, struct sp_cell_child *ret, struct sp_err *e)
{
    auto_close int ours = -1;
    auto_close int theirs = -1;
    char *const argv[] = {(char *)(uintptr_t) "sallyport", (char *)(uintptr_t) "cell", NULL};
    char *const envp[] = {NULL};
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "make the cell's socket");
    ours = sp_fd_lift(pair[0]);
    theirs = sp_fd_lift(pair[1]);
    /* We may be a guest whose host has no stderr; and no number of its table is ours. */
    struct sp_spawn s = {.stdio = {theirs, -1, fcntl(STDERR_FILENO, F_GETFD) < 0 ? -1 : 2},
                         .is_apart = true,
                         .cgroup = -1,
                         .file = program,
                         .argv = argv,
                         .envp = envp};
    if (sp_spawn(&s) < 0)
        return sp_fail(e, SP_E_SYSTEM, s.failed_errno, "start the cell: %s",
                       sp_step_name(s.failed_step));
    sp_cell_child_set(ret, s.pid, s.pidfd);
    *ret_socket = TAKE_FD(ours);
    return 0;
}

void sp_cell_child_set(struct sp_cell_child *child, pid_t pid, int pidfd)
{
    child->pid = pid;
    child->pidfd = pidfd;
    sp_own_add(pid);
}

void sp_cell_child_kill(const struct sp_cell_child *child)
{
    if (child->pidfd >= 0)
        (void)syscall(SYS_pidfd_send_signal, child->pidfd, SIGKILL, NULL, 0);
}

/* A signal that our host handles is no reason to stop waiting. */
static bool await(int fd, int ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    struct timespec begin;
    struct timespec now;
    int left = ms;
    int r;

    clock_gettime(CLOCK_MONOTONIC, &begin);
    while ((r = poll(&p, 1, left)) < 0 && errno == EINTR && left > 0) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        const int64_t passed =
            (now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000;
        left = passed >= ms ? 0 : ms - (int)passed;
    }
    return r > 0;
}

bool sp_cell_child_await(const struct sp_cell_child *child, int ms)
{
    return await(child->pidfd, ms);
}

bool sp_cell_child_reap(struct sp_cell_child *child)
{
    siginfo_t info = {0};
    int r;

    if (child->pidfd < 0)
        return true;
    do
        r = waitid(P_PIDFD, (id_t)child->pidfd, &info, WEXITED);
    while (r < 0 && errno == EINTR);
    (void)close(child->pidfd);
    child->pidfd = -1;
    sp_own_remove(child->pid);
    /* ECHILD: our host ignores SIGCHLD, or reaps whatever it finds. */
    return r < 0 || (info.si_code == CLD_EXITED && info.si_status == 0);
}

/* The maker has ended: whom it made, it has told. */
void sp_cell_hear_of_birth(int socket, struct sp_wire_message *m, struct sp_cell_child *ret)
{
    while (socket >= 0 && ret->pidfd < 0 && sp_wire_recv(socket, false, m, NULL) > 0) {
        const struct sp_wire_born *born = (const void *)m->bytes;

        if (born->head.op == SP_WIRE_BORN && m->fd_count == 1) {
            sp_cell_child_set(ret, born->pid, sp_fd_lift(m->fds[0]));
            m->fd_count = 0;
        }
        sp_wire_close_fds(m);
    }
}

bool sp_cell_is_passing(int err)
{
    return err == EAGAIN || err == ENOMEM || err == ENOBUFS || err == EMFILE || err == ENFILE;
}

void sp_cell_explain(uint32_t step, int err, const char *where, struct sp_err *ret)
{
    /* Somebody moved what the plan names while it was carried out: another plan may do. */
    const bool has_changed = step == SP_BUILD_CHANGED ||
                             (where[0] != 0 && (err == ENOENT || err == ENOTDIR || err == ELOOP));

    const bool is_passing = sp_cell_is_passing(err);

    (void)sp_fail(ret,
                  has_changed  ? SP_E_STATE
                  : is_passing ? SP_E_FAILED
                               : SP_E_INVALID,
                  0, "failed to prepare process sandbox: %s%s%s: %s%s", sp_build_step_name(step),
                  where[0] != 0 ? ":" : "", where, strerror(err), is_passing ? "; try again" : "");
}

/* ---- a trial ---- */

/* Hears the maker and the cell out; false: neither said anything in time. */
static bool await_ready(int socket, struct sp_wire_message *m, struct sp_cell_child *ret_cell,
                        struct sp_wire_ready *ret)
{
    while (await(socket, ANSWER_MS) && sp_wire_recv(socket, false, m, NULL) > 0) {
        const struct sp_wire_head *h = (const void *)m->bytes;

        if (h->op == SP_WIRE_BORN && m->fd_count == 1) {
            sp_cell_child_set(ret_cell, ((const struct sp_wire_born *)h)->pid, m->fds[0]);
            m->fd_count = 0;
        }
        if (h->op == SP_WIRE_READY) {
            *ret = *(const struct sp_wire_ready *)h;
            ret->where[sizeof ret->where - 1] = 0;
            return true;
        }
        sp_wire_close_fds(m);
    }
    return false;
}

static void end_trial(int socket, struct sp_wire_message *m, bool is_forked_one,
                      struct sp_cell_child *maker, struct sp_cell_child *cell)
{
    if (!is_forked_one || (maker->pidfd >= 0 && !await(maker->pidfd, ANSWER_MS)))
        sp_cell_child_kill(maker);
    (void)sp_cell_child_reap(maker);
    sp_cell_hear_of_birth(socket, m, cell);
    sp_cell_child_kill(cell);
    (void)sp_cell_child_reap(cell);
}

static int send_trial(int socket, int plan, struct sp_err *e)
{
    struct sp_bell bell;
    struct sp_wire_hello hello = {.head = {.version = SP_WIRE_VERSION, .op = SP_WIRE_HELLO},
                                  .slots = 1};
    int r = sp_bell_new(1, &bell, e);

    if (r < 0)
        return r;
    const int fds[3] = {bell.page_fd, bell.wake[SP_SIDE_CELL], plan};
    r = sp_wire_send(socket, true, &hello, sizeof hello, NULL, 0, fds, 3);
    sp_bell_free(&bell);
    return r < 0 ? sp_fail(e, SP_E_SYSTEM, -r, "greet the cell") : 0;
}

int sp_cell_try(const char *program, const struct sp_buf *plan, uint32_t *ret_step, int *ret_err,
                struct sp_err *e)
{
    auto_close int memory = sp_cell_seal("sallyport-plan", plan);
    auto_close int socket = -1;
    auto_free struct sp_wire_message *m = malloc(sizeof *m);
    struct sp_cell_child maker = {.pidfd = -1};
    struct sp_cell_child cell = {.pidfd = -1};
    struct sp_wire_ready ready = {.step = SP_BUILD_PLAN, .err = ETIMEDOUT};

    if (memory < 0 || m == NULL) {
        *ret_err = errno;
        return sp_fail(e, SP_E_SYSTEM, errno, "hand over the plan");
    }
    int r = sp_cell_spawn(program, &socket, &maker, e);
    if (r == 0)
        r = send_trial(socket, memory, e);
    const bool has_answer = r == 0 && await_ready(socket, m, &cell, &ready);
    const struct sp_plan *p = (const void *)plan->data;
    end_trial(socket, m, p->tier == SP_TIER_CELL, &maker, &cell);
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

int sp_cell_child_run(int fd, struct sp_err *e)
{
    return sp_cell_run(fd, e);
}
