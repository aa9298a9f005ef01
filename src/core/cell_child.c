/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cell_child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/io.h"
#include "cell/cell.h"
#include "os/fd.h"
#include "os/spawn.h"
#include "os/tree.h"
#include "sandbox/plan.h"

int sp_cell_seal(const char *name, const struct sp_buf *bytes)
{
    auto_close int fd = sp_fd_lift(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));

    if (fd < 0)
        return -1;
    const int err = sp_write_all(fd, bytes->data, bytes->len);
    if (err != 0) {
        errno = err;
        return -1;
    }
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) < 0)
        return -1;
    return TAKE_FD(fd);
}

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
    /* A host program may have closed its stderr; descriptor 2 must not be another file then. */
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

bool sp_cell_child_await(const struct sp_cell_child *child, int ms)
{
    return sp_await_readable(child->pidfd, ms);
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
    /* ECHILD: the host program ignores SIGCHLD, or reaps all children. */
    return r < 0 || (info.si_code == CLD_EXITED && info.si_status == 0);
}

void sp_cell_read_birth(int socket, struct sp_wire_message *m, struct sp_cell_child *ret)
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
    /* A path of the plan changed while the cell built the sandbox: a new plan may succeed. */
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

int sp_cell_child_run(int fd, struct sp_err *e)
{
    return sp_cell_run(fd, e);
}
