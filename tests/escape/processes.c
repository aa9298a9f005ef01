/* SPDX-License-Identifier: Apache-2.0 */
/*
 * processes: namespaces of one's own, other processes, and a program from memory.
 */
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "escape.h"
#include "tries.h"

/* ---- namespaces ---- */

int try_unshare(const struct row *r)
{
    return answer(syscall(SYS_unshare, r->n));
}

int try_unshare_mounts(const struct row *r)
{
    (void)syscall(SYS_unshare, CLONE_NEWUSER);
    return answer(syscall(SYS_unshare, r->n));
}

/* A clone call that gave a child: it ends at once. */
static int answer_clone(long child)
{
    if (child == 0)
        _exit(0);
    if (child > 0)
        (void)waitpid((pid_t)child, NULL, 0);
    return answer(child);
}

int try_clone3(const struct row *r)
{
    struct clone_args args = {.flags = (unsigned long)r->n, .exit_signal = SIGCHLD};

    return answer_clone(syscall(SYS_clone3, &args, sizeof args));
}

int try_clone(const struct row *r)
{
    return answer_clone(syscall(SYS_clone, r->n | SIGCHLD, 0L, 0L, 0L, 0L));
}

static void *nothing(void *arg)
{
    return arg;
}

int try_thread(const struct row *r)
{
    pthread_t t;
    const int said = pthread_create(&t, NULL, nothing, NULL);

    (void)r;
    if (said == 0)
        (void)pthread_join(t, NULL);
    return said;
}

/* Of pid 1; where that cannot be opened, of ourselves: the call is judged all the same. */
int try_setns(const struct row *r)
{
    int fd = open(where(r->a), O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        fd = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    return answer(syscall(SYS_setns, fd, 0));
}

/* Our own filter says "ask", and we say "go on": the sandbox's filter has to be the stronger. */
static int ask_filter(int call)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof code / sizeof code[0], .filter = code};

    (void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
                        &program);
}

static void let_pass(int listener)
{
    struct pollfd in = {.fd = listener, .events = POLLIN};
    struct seccomp_notif note = {0};
    struct seccomp_notif_resp reply = {.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};

    if (poll(&in, 1, 2000) != 1 || ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &note) < 0)
        return;
    reply.id = note.id;
    (void)ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &reply);
}

int try_own_listener(const struct row *r)
{
    const int listener = ask_filter(SYS_unshare);
    int status = 0;
    const pid_t child = fork();

    if (child == 0)
        _exit(answer(syscall(SYS_unshare, r->n)));
    if (listener >= 0)
        let_pass(listener);
    if (waitpid(child, &status, 0) < 0)
        return errno;
    return WEXITSTATUS(status);
}

/* ---- other processes ---- */

int try_ptrace_child(const struct row *r)
{
    const pid_t child = start_child();
    const int said = answer(ptrace((enum __ptrace_request)r->n, child, NULL, NULL));

    end_child(child);
    return said;
}

int try_traceme(const struct row *r)
{
    (void)r;
    return answer(ptrace(PTRACE_TRACEME, 0, NULL, NULL));
}

int try_vm_read(const struct row *r)
{
    static int secret = 42;
    int copy = 0;
    const struct iovec to = {.iov_base = &copy, .iov_len = sizeof copy};
    const struct iovec from = {.iov_base = &secret, .iov_len = sizeof secret};
    const pid_t child = start_child();
    const long n = r->n != 0 ? process_vm_writev(child, &to, 1, &from, 1, 0)
                             : process_vm_readv(child, &to, 1, &from, 1, 0);
    const int said = answer(n);

    end_child(child);
    return said;
}

static pid_t number(const char *word)
{
    return (pid_t)need_number(word);
}

/* A file of the process that the command line calls a. */
int try_proc_file(const struct row *r)
{
    char path[64];
    char byte;

    (void)snprintf(path, sizeof path, "/proc/%d/%s", (int)number(r->a), r->b);
    const int fd = open(path, (int)r->n | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return errno;
    if (strcmp(r->b, "environ") != 0)
        return answer_fd(fd);
    const ssize_t n = read(fd, &byte, 1); /* its door is the first read */
    return n == 0 ? ENODATA : answer(n);
}

int try_proc_list(const struct row *r)
{
    char path[64];
    char entries[1024];

    (void)snprintf(path, sizeof path, "/proc/%d/%s", (int)number(r->a), r->b);
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    long n;
    do
        n = syscall(SYS_getdents64, fd, entries, sizeof entries);
    while (n > 0);
    return answer(n);
}

int try_kill(const struct row *r)
{
    return answer(kill(number(r->a), (int)r->n));
}

int try_kill_all(const struct row *r)
{
    return answer(kill(-1, (int)r->n));
}

int try_kill_child(const struct row *r)
{
    const pid_t child = start_child();
    const int said = answer(kill(child, (int)r->n));

    end_child(child);
    return said;
}

int try_pidfd_open(const struct row *r)
{
    return answer_fd(syscall(SYS_pidfd_open, number(r->a), 0));
}

int try_pidfd_getfd(const struct row *r)
{
    const pid_t child = start_child();
    const int pidfd = (int)syscall(SYS_pidfd_open, child, 0);
    const int said = answer_fd(syscall(SYS_pidfd_getfd, pidfd, 0, 0));

    (void)r;
    end_child(child);
    return said;
}

int try_ptrace(const struct row *r)
{
    const pid_t pid = number(r->a);
    const int said = answer(ptrace((enum __ptrace_request)r->n, pid, NULL, NULL));

    if (said == 0)
        (void)ptrace(PTRACE_DETACH, pid, NULL, NULL);
    return said;
}

int try_vm_read_of(const struct row *r)
{
    int copy = 0;
    const struct iovec to = {.iov_base = &copy, .iov_len = sizeof copy};
    const struct iovec from = {.iov_base = (void *)0x400000, .iov_len = sizeof copy};

    return answer(process_vm_readv(number(r->a), &to, 1, &from, 1, 0));
}

int try_limit_of(const struct row *r)
{
    struct rlimit limit;

    return answer(prlimit(number(r->a), RLIMIT_NOFILE, NULL, &limit));
}

/* Sets the limits that it has: with others it would be a way to end it. */
int try_set_limit_of(const struct row *r)
{
    struct rlimit limit;

    if (prlimit(number(r->a), RLIMIT_CPU, NULL, &limit) < 0)
        return errno;
    return answer(prlimit(number(r->a), RLIMIT_CPU, &limit, NULL));
}

/* Lets the kernel send the signal, when a pipe of ours gets a byte. ok: it has gone. */
int try_sigio(const struct row *r)
{
    const pid_t victim = number(r->a);
    char path[64];
    int fds[2];

    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)victim);
    if (pipe2(fds, O_CLOEXEC) < 0 || fcntl(fds[0], F_SETOWN, victim) < 0 ||
        fcntl(fds[0], F_SETSIG, SIGKILL) < 0 || fcntl(fds[0], F_SETFL, O_ASYNC | O_NONBLOCK) < 0 ||
        write(fds[1], "x", 1) != 1)
        return errno;
    (void)usleep(100000);
    return access(path, F_OK) < 0 ? 0 : EPERM;
}

/* ---- a program without a file ---- */

static int copy_of_self(void)
{
    struct stat st;
    const int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    const int fd = memfd_create("escape", MFD_CLOEXEC);

    if (self < 0 || fd < 0 || fstat(self, &st) < 0)
        return -1;
    while (st.st_size > 0) {
        const ssize_t n = sendfile(fd, self, NULL, (size_t)st.st_size);

        if (n <= 0)
            return -1;
        st.st_size -= n;
    }
    return fd;
}

int try_memfd(const struct row *r)
{
    (void)r;
    return answer_fd(memfd_create("escape", MFD_CLOEXEC));
}

int try_memfd_exec(const struct row *r)
{
    const char *const words[] = {"euid", NULL};
    const int fd = copy_of_self();

    (void)r;
    return fd < 0 ? errno : again(NULL, fd, words);
}

/* Repeats the attempt that is called a. */
int try_memfd_again(const struct row *r)
{
    const char *const words[] = {"again", r->a, NULL};
    const int fd = copy_of_self();

    return fd < 0 ? errno : again(NULL, fd, words);
}

/* ---- rules in rules ---- */

static int restrict_once(void)
{
    struct landlock_ruleset_attr attr = {.handled_access_fs = LANDLOCK_ACCESS_FS_MAKE_SOCK};
    const int rules = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof attr, 0);

    if (rules < 0)
        return errno;
    const int said = answer(syscall(SYS_landlock_restrict_self, rules, 0));
    (void)close(rules);
    return said;
}

/* One domain in another until the kernel has enough. */
static int nest(void)
{
    int said = 0;

    (void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    for (int i = 0; i < 17 && said == 0; i++)
        said = restrict_once();
    if (said == ENOSYS || said == EOPNOTSUPP)
        skip("the kernel has no Landlock");
    return said;
}

int try_nest(const struct row *r)
{
    (void)r;
    return nest();
}

/* The attempt that is called a, in the innermost domain. */
int try_nested_again(const struct row *r)
{
    const char *const words[] = {"again", r->a, NULL};

    (void)nest();
    return again("/proc/self/exe", -1, words);
}
