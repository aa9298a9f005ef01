/* SPDX-License-Identifier: Apache-2.0 */
#include "base/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"

/* Adds what makes `from` the descriptor `number` of the child. *ret_copy: above 2, so that no
 * earlier action replaces it, even if this process has closed 0 to 2 and `from` is one of them. */
static int add_stdio(posix_spawn_file_actions_t *actions, int number, int from, int *ret_copy)
{
    if (from == SP_CHILD_OURS)
        return 0;
    if (from == SP_CHILD_NULL)
        return posix_spawn_file_actions_addopen(actions, number, "/dev/null", O_RDWR, 0);
    *ret_copy = fcntl(from, F_DUPFD_CLOEXEC, 3);
    return *ret_copy < 0 ? errno : posix_spawn_file_actions_adddup2(actions, *ret_copy, number);
}

int sp_child_start(struct sp_child *c, const char *file, const char *const *argv, char *const *envp,
                   const int stdio[3])
{
    int copies[3] = {-1, -1, -1};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none;
    sigset_t all;
    int err = posix_spawnattr_init(&attr);

    if (err != 0)
        return err;
    (void)sigemptyset(&none);
    (void)sigfillset(&all);
    (void)posix_spawnattr_setsigmask(&attr, &none);
    (void)posix_spawnattr_setsigdefault(&attr, &all);
    (void)posix_spawnattr_setpgroup(&attr, 0);
    (void)posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                              POSIX_SPAWN_SETPGROUP);
    err = posix_spawn_file_actions_init(&actions);
    if (err == 0) {
        for (int i = 0; err == 0 && i < 3; i++)
            err = add_stdio(&actions, i, stdio[i], &copies[i]);
        if (err == 0)
            err = posix_spawn_file_actions_addclosefrom_np(&actions, 3);
        if (err == 0)
            err =
                posix_spawnp(&c->pid, file, &actions, &attr, (char *const *)(uintptr_t)argv, envp);
        (void)posix_spawn_file_actions_destroy(&actions);
    }
    (void)posix_spawnattr_destroy(&attr);
    for (int i = 0; i < 3; i++)
        sp_auto_close(&copies[i]);
    if (err != 0)
        return err;
    c->pidfd = (int)syscall(SYS_pidfd_open, c->pid, 0);
    if (c->pidfd >= 0 || errno == ESRCH)
        return 0;
    err = errno; /* EMFILE: a child that cannot be watched must not stay */
    (void)kill(c->pid, SIGKILL);
    while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return err;
}

void sp_child_signal(const struct sp_child *c, int number)
{
    if (c->pidfd < 0)
        return;
    (void)kill(-c->pid, number);
    (void)syscall(SYS_pidfd_send_signal, c->pidfd, number, NULL, 0);
}

bool sp_child_reap(struct sp_child *c, bool is_waiting, int *ret_status)
{
    siginfo_t info = {0};
    int r;

    if (c->pidfd < 0)
        return true;
    do
        r = waitid(P_PIDFD, (id_t)c->pidfd, &info, WEXITED | (is_waiting ? 0 : WNOHANG));
    while (r < 0 && errno == EINTR);
    if (r == 0 && info.si_pid == 0)
        return false;
    *ret_status = r == 0 && info.si_code == CLD_EXITED ? info.si_status : -1;
    (void)close(TAKE_FD(c->pidfd));
    return true;
}
