/* SPDX-License-Identifier: Apache-2.0 */
#include "os/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "os/fd.h"
#include "os/landlock.h"
#include "os/raw.h"

#define STDIO_COPY 3 /* 3, 4, 5 become 0, 1, 2 */
#define SCOPE_COPY 6
#define FIRST_FREE 7
#define LOW_END    64 /* the kernel copies at least this many when it unshares a table */

/* The address sanitizer poisons the gaps between the variables of a frame. A child that calls
 * execve never returns from its frames, so the poison would stay on the stack. */
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#define FORGET_FRAMES(stack) __asan_unpoison_memory_region((stack), SP_SPAWN_STACK)
#else
#define FORGET_FRAMES(stack) (void)(stack)
#endif

const char *sp_step_name(enum sp_step step)
{
    static const char *const names[SP_STEP_MAX] = {
#define X(name, text) [SP_STEP_##name] = (text),
        SP_STEPS(X)
#undef X
    };
    return (unsigned)step < SP_STEP_MAX ? names[step] : "unknown";
}

static int null_fd = -1;

int sp_spawn_reserve(struct sp_err *e)
{
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (null < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "open /dev/null");
    null_fd = fcntl(null, F_DUPFD_CLOEXEC, FIRST_FREE);
    (void)close(null); /* it may occupy a number below FIRST_FREE */
    if (null_fd < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "reserve descriptors");
    /* A server started without stdin, stdout or stderr must not get sockets on these numbers. */
    for (int fd = 0; fd < STDIO_COPY; fd++)
        if (fcntl(fd, F_GETFD) < 0 && dup2(null_fd, fd) < 0)
            return sp_fail(e, SP_E_SYSTEM, errno, "fill descriptor %d", fd);
    for (int fd = STDIO_COPY; fd < FIRST_FREE; fd++)
        if (dup3(null_fd, fd, O_CLOEXEC) < 0)
            return sp_fail(e, SP_E_SYSTEM, errno, "reserve descriptor %d", fd);
    return 0;
}

void sp_spawn_fill_low(void)
{
    struct rlimit limit;
    int fd;

    if (null_fd < 0 || getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur < (rlim_t)LOW_END * 4)
        return;
    do
        fd = fcntl(null_fd, F_DUPFD_CLOEXEC, FIRST_FREE);
    while (fd >= 0 && fd < LOW_END);
    if (fd >= 0)
        (void)close(fd);
}

int sp_spawn_renew_null(void)
{
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (null < 0)
        return -errno;
    int r = dup3(null, null_fd, O_CLOEXEC);
    for (int fd = STDIO_COPY; r >= 0 && fd < FIRST_FREE; fd++)
        r = dup3(null, fd, O_CLOEXEC);
    if (r >= 0)
        r = dup2(null, STDOUT_FILENO);
    const int err = errno;
    (void)close(null);
    return r < 0 ? -err : 0;
}

/*
 * ---- child: the parent's memory, a stack of its own; no malloc, no locks, no stdio until execve
 * ----
 *
 * The parent waits until the child is about to access a file system (is_at_disk). From then on the
 * parent may run, and errno is shared with it: the child uses sp_raw only.
 */

/* No address sanitizer here: its notes about frames, and its work before a call that does not
 * return, assume the stack of the parent. */
#define SP_CHILD __attribute__((no_sanitize("address")))

struct child {
    struct sp_spawn *s;
    pid_t parent;
    bool joins_cgroup; /* no CLONE_INTO_CGROUP: the child moves itself */
};

static SP_CHILD SP_NORETURN void die(struct sp_spawn *s, enum sp_step step, int err)
{
    s->failed_step = step;
    s->failed_errno = err;
    for (;;)
        (void)sp_raw(SYS_exit_group, 127, 0, 0, 0);
}

static SP_CHILD int raw_execve(const char *path, const struct sp_spawn *s)
{
    return (int)sp_raw(SYS_execve, (long)path, (long)s->argv, (long)s->envp, 0);
}

/* As execvp: ENOENT and ENOTDIR try the next directory, EACCES too but is reported at the end. */
static SP_CHILD int search_and_exec(const struct sp_spawn *s)
{
    const size_t file_len = strlen(s->file);
    const char *path = s->search_path != NULL ? s->search_path : "/bin:/usr/bin";
    char full[4096];
    int err = ENOENT;

    if (strchr(s->file, '/') != NULL)
        return -raw_execve(s->file, s);
    if (file_len == 0)
        return ENOENT;
    if (file_len > 255)
        return ENAMETOOLONG;
    for (;;) {
        const char *colon = strchrnul(path, ':');
        const size_t n = (size_t)(colon - path);

        if (n + 1 + file_len + 1 <= sizeof full) {
            memcpy(full, path, n);
            if (n != 0)
                full[n] = '/';
            memcpy(full + n + (n != 0), s->file, file_len + 1);
            const int r = raw_execve(full, s);

            if (r == -EACCES)
                err = EACCES;
            else if (r != -ENOENT && r != -ENOTDIR)
                return -r;
        }
        if (*colon == 0)
            return err;
        path = colon + 1;
    }
}

/* All steps that access a file system. */
static SP_CHILD SP_NORETURN void go_to_disk(struct sp_spawn *s)
{
    static const uint64_t none; /* an empty sigset of the kernel */

    s->step = SP_STEP_CWD;
    __atomic_store_n(&s->is_at_disk, true, __ATOMIC_RELEASE);
    if (s->cwd != NULL) {
        int r = (int)sp_raw(SYS_chdir, (long)s->cwd, 0, 0, 0);

        if (r == -ENOENT && s->other_cwd != NULL) {
            r = (int)sp_raw(SYS_chdir, (long)s->other_cwd, 0, 0, 0);
            if (r < 0)
                r = (int)sp_raw(SYS_chdir, (long)"/", 0, 0, 0);
        }
        if (r < 0)
            die(s, SP_STEP_CWD, -r);
    }
    s->step = SP_STEP_EXEC;
    if (!s->is_apart)
        (void)sp_raw(SYS_rt_sigprocmask, SIG_SETMASK, (long)&none, 0, sizeof none);
    /* The file must still be the one that was approved. There is no race with execve below: an
     * expected inode is only set for programs that no confined command can replace
     * (approve/program.h). The check catches other changes: a package upgrade, a mounted file
     * system. */
    if (s->ino != 0) {
        struct stat st = {0};
        const int r = (int)sp_raw(SYS_newfstatat, AT_FDCWD, (long)s->file, (long)&st, 0);

        if (r < 0)
            die(s, SP_STEP_PROGRAM, -r);
        if (st.st_dev != s->dev || st.st_ino != s->ino)
            die(s, SP_STEP_PROGRAM, ESTALE);
    }
    die(s, SP_STEP_EXEC, search_and_exec(s));
}

/* The descriptor table is still shared with the parent: close what is opened here. */
static SP_CHILD bool join_cgroup(int dir)
{
    const int fd = openat(dir, "cgroup.procs", O_WRONLY | O_CLOEXEC);

    if (fd < 0)
        return false;
    const bool ok = write(fd, "0", 1) == 1;
    const int err = errno;
    (void)close(fd);
    errno = err;
    return ok;
}

/* Without CLONE_FILES the table is a copy, so any number may be used. */
static SP_CHILD void take_stdio_apart(struct sp_spawn *s)
{
    int fds[3];

    for (int i = 0; i < 3; i++) {
        const int from = s->stdio[i] >= 0 ? s->stdio[i] : open("/dev/null", O_RDWR);

        fds[i] = from < 0 ? -1 : fcntl(from, F_DUPFD, STDIO_COPY);
        if (fds[i] < 0)
            die(s, SP_STEP_STDIO, errno);
    }
    for (int i = 0; i < 3; i++)
        if (dup2(fds[i], i) < 0)
            die(s, SP_STEP_STDIO, errno);
}

/* Signals stay blocked: a handler of the host program would run in the host's memory. */
static SP_CHILD int apart_main(void *arg)
{
    struct child *c = arg;
    struct sp_spawn *s = c->s;

    take_stdio_apart(s);
    if (setsid() < 0)
        die(s, SP_STEP_SESSION, errno);
    if (s->nofile != NULL && setrlimit(RLIMIT_NOFILE, s->nofile) < 0)
        die(s, SP_STEP_LIMITS, errno);
    if (close_range(STDIO_COPY, ~0U, 0) < 0)
        die(s, SP_STEP_FDS, errno);
    go_to_disk(s);
}

static SP_CHILD void join_groups(struct sp_spawn *s)
{
    for (unsigned i = 0; i < s->join_count; i++)
        if (write(s->joins[i], "0", 1) != 1)
            die(s, SP_STEP_LIMITS, errno);
}

static SP_CHILD void set_rlimits(struct sp_spawn *s)
{
    if (s->nofile != NULL && setrlimit(RLIMIT_NOFILE, s->nofile) < 0)
        die(s, SP_STEP_LIMITS, errno);
    for (unsigned i = 0; i < s->rlimit_count; i++)
        if (prlimit(0, (__rlimit_resource_t)s->rlimits[i].resource, &s->rlimits[i].limit, NULL) < 0)
            die(s, SP_STEP_LIMITS, errno);
}

static SP_CHILD int child_main(void *arg)
{
    struct child *c = arg;
    struct sp_spawn *s = c->s;

    if (s->stack != NULL)
        (void)sp_raw(SYS_set_tid_address, (long)&s->is_busy, 0, 0, 0);
    if (c->joins_cgroup && !join_cgroup(s->cgroup))
        die(s, SP_STEP_CLONE, errno);
    join_groups(s); /* while the table is the parent's */
    /* Unshare the table first: before that, a dup2 would change the parent's. */
    if (close_range(FIRST_FREE, ~0U, CLOSE_RANGE_UNSHARE) < 0)
        die(s, SP_STEP_FDS, errno);
    for (int fd = 0; fd < 3; fd++)
        if (dup2(STDIO_COPY + fd, fd) < 0)
            die(s, SP_STEP_STDIO, errno);
    if (setsid() < 0)
        die(s, SP_STEP_SESSION, errno);
    if (s->is_tty && ioctl(0, TIOCSCTTY, 0) < 0)
        die(s, SP_STEP_TERMINAL, errno);
    /* Check the parent after the call: if it died before, no signal comes. */
    if (s->dies_with_us && (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != c->parent))
        die(s, SP_STEP_PARENT, errno);
    if (s->is_subreaper)
        (void)prctl(PR_SET_CHILD_SUBREAPER, 1); /* refused only by kernels before 3.4 */
    set_rlimits(s);
    if (s->has_no_new_privs && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        die(s, SP_STEP_CONFINE, errno);
    if (s->scope > 0) {
        const int r = sp_landlock_enter(SCOPE_COPY);

        if (r < 0)
            die(s, SP_STEP_CONFINE, -r);
    }
    if (close_range(STDIO_COPY, ~0U, 0) < 0)
        die(s, SP_STEP_FDS, errno);
    go_to_disk(s);
}

/* ---- parent ---- */

/* clone or clone3: the child continues in fn(arg) on its own stack and never returns here. */
static long clone_call(long nr, long a1, long a2, long a3, int (*fn)(void *), void *arg)
{
#if defined(__x86_64__)
    long ret;
    register long r10 __asm__("r10") = 0;
    register long r8 __asm__("r8") = 0;
    register int (*r12)(void *) __asm__("r12") = fn;
    register void *r13 __asm__("r13") = arg;

    __asm__ volatile("syscall\n\t"
                     "testq %%rax, %%rax\n\t"
                     "jnz 1f\n\t"
                     "xorl %%ebp, %%ebp\n\t"
                     "movq %%r13, %%rdi\n\t"
                     "callq *%%r12\n\t"
                     "ud2\n"
                     "1:"
                     : "=a"(ret)
                     : "0"(nr), "D"(a1), "S"(a2), "d"(a3), "r"(r10), "r"(r8), "r"(r12), "r"(r13)
                     : "rcx", "r11", "memory");
    return ret;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = nr;
    register long x0 __asm__("x0") = a1;
    register long x1 __asm__("x1") = a2;
    register long x2 __asm__("x2") = a3;
    register long x3 __asm__("x3") = 0;
    register long x4 __asm__("x4") = 0;
    register int (*x19)(void *) __asm__("x19") = fn;
    register void *x20 __asm__("x20") = arg;

    __asm__ volatile("svc #0\n\t"
                     "cbnz x0, 1f\n\t"
                     "mov x29, xzr\n\t"
                     "mov x0, x20\n\t"
                     "blr x19\n\t"
                     "brk #1\n"
                     "1:"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x19), "r"(x20)
                     : "x30", "memory");
    return x0;
#else
#error "clone_call: this architecture is not known yet"
#endif
}

static bool has_no_clone3;

static long start_child(struct child *c, int *pidfd)
{
    static _Alignas(64) char own_stack[SP_SPAWN_STACK];
    const bool waits = c->s->stack == NULL;
    char *stack = waits ? own_stack : c->s->stack;
    const long flags = CLONE_VM | (waits ? CLONE_VFORK : 0) | CLONE_FILES |
                       (c->s->has_no_pidfd ? 0 : CLONE_PIDFD) |
                       (c->s->is_sibling ? CLONE_PARENT : 0);

    if (c->s->cgroup < 0 || has_no_clone3) {
        c->joins_cgroup = c->s->cgroup >= 0;
        return clone_call(SYS_clone, flags | SIGCHLD, (long)(stack + SP_SPAWN_STACK), (long)pidfd,
                          child_main, c);
    }
    struct clone_args args = {
        .flags = (unsigned long)flags | CLONE_INTO_CGROUP,
        .pidfd = c->s->has_no_pidfd ? 0 : (unsigned long)pidfd,
        .exit_signal = c->s->is_sibling ? 0 : SIGCHLD, /* CLONE_PARENT: as ours */
        .stack = (unsigned long)stack,
        .stack_size = SP_SPAWN_STACK,
        .cgroup = (unsigned long)c->s->cgroup,
    };
    const long pid = clone_call(SYS_clone3, (long)&args, sizeof args, 0, child_main, c);
    if (pid != -ENOSYS)
        return pid;
    has_no_clone3 = true; /* an old kernel, or a seccomp filter around us */
    return start_child(c, pidfd);
}

/* Reaps a child that failed before execve; a sibling is not ours to reap. */
static void reap_failed(struct sp_spawn *s)
{
    const bool by_pid = s->pidfd < 0;
    const id_t id = (id_t)(by_pid ? s->pid : s->pidfd);

    while (!s->is_reaped && waitid(by_pid ? P_PID : P_PIDFD, id, &(siginfo_t){0}, WEXITED) < 0 &&
           errno == EINTR) {
    }
    if (!by_pid)
        (void)close(s->pidfd);
    s->pidfd = -1;
    s->is_reaped = true;
}

/* A pidfd is readable as soon as the child is dead; so is its pid, while it is not reaped. */
static bool is_dead(const struct sp_spawn *s)
{
    struct pollfd p = {.fd = s->pidfd, .events = POLLIN};
    siginfo_t info = {0};

    if (s->pidfd >= 0)
        return poll(&p, 1, 0) > 0;
    return waitid(P_PID, (id_t)s->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
}

static int result_of(struct sp_spawn *s, long pid, int pidfd)
{
    s->pid = (pid_t)pid;
    s->pidfd = pid < 0 ? -1 : pidfd;
    if (pid < 0) {
        s->failed_step = SP_STEP_CLONE;
        s->failed_errno = (int)-pid;
    } else if (s->failed_step != SP_STEP_NONE) {
        reap_failed(s);
    } else {
        s->pidfd = sp_fd_lift(pidfd);
        return 0;
    }
    return -(int)SP_E_SYSTEM;
}

/*
 * 0: the child has called execve, or has failed. 1: it still waits for a file system. The kernel
 * clears is_busy and wakes the futex when the child releases our memory: what CLONE_VFORK waits
 * for, but with a timeout.
 */
static int wait_for_exec(struct sp_spawn *s)
{
    const struct timespec moment = {.tv_nsec = (long)s->patience_ms * 1000000};

    while (__atomic_load_n(&s->is_busy, __ATOMIC_ACQUIRE) != 0) {
        const long r = syscall(SYS_futex, &s->is_busy, FUTEX_WAIT, 1, &moment, NULL, 0);

        if (r == 0 || errno != ETIMEDOUT)
            continue;
        if (is_dead(s)) /* killed before set_tid_address */
            break;
        if (__atomic_load_n(&s->is_at_disk, __ATOMIC_ACQUIRE))
            return 1;
    }
    FORGET_FRAMES(s->stack);
    return 0;
}

char *sp_spawn_new_stack(void)
{
    char *stack = mmap(NULL, SP_SPAWN_STACK, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);

    return stack == MAP_FAILED ? NULL : stack;
}

void sp_spawn_free_stack(char *stack)
{
    if (stack == NULL)
        return;
    FORGET_FRAMES(stack);
    (void)munmap(stack, SP_SPAWN_STACK);
}

static int spawn_apart(struct sp_spawn *s)
{
    struct child c = {.s = s};
    sigset_t all;
    sigset_t old;
    int pidfd = -1;
    char *stack = sp_spawn_new_stack();

    if (stack == NULL)
        return result_of(s, -errno, -1);
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &old);
    const long pid = clone_call(SYS_clone, CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD,
                                (long)(stack + SP_SPAWN_STACK), (long)&pidfd, apart_main, &c);
    sigprocmask(SIG_SETMASK, &old, NULL);
    sp_spawn_free_stack(stack);
    return result_of(s, pid, pidfd);
}

static int spawn_reserved(struct sp_spawn *s)
{
    struct child c = {.s = s,
                      .parent = s->is_sibling    ? getppid()
                                : s->parent != 0 ? s->parent
                                                 : getpid()};
    sigset_t all;
    sigset_t old;
    int pidfd = -1;
    int r = 0;

    for (int i = 0; i < 3; i++)
        if (s->stdio[i] >= 0 && dup3(s->stdio[i], STDIO_COPY + i, O_CLOEXEC) < 0) {
            s->failed_step = SP_STEP_STDIO;
            s->failed_errno = errno;
        }
    if (s->scope > 0 && dup3(s->scope, SCOPE_COPY, O_CLOEXEC) < 0) {
        s->failed_step = SP_STEP_CONFINE;
        s->failed_errno = errno;
    }
    if (s->failed_step == SP_STEP_NONE) {
        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, &old);
        const long pid = start_child(&c, &pidfd);
        sigprocmask(SIG_SETMASK, &old, NULL);
        if (pid < 0) {
            s->failed_step = SP_STEP_CLONE;
            s->failed_errno = (int)-pid;
        }
        s->pid = (pid_t)pid;
        s->pidfd = pidfd;
        r = pid > 0 && s->stack != NULL ? wait_for_exec(s) : 0;
    }

    /* Put /dev/null back: an end of a pipe that stayed open here would keep readers from seeing
     * EOF. */
    for (int i = 0; i < 3; i++)
        if (s->stdio[i] >= 0)
            (void)dup3(null_fd, STDIO_COPY + i, O_CLOEXEC);
    if (r > 0 || s->failed_step == SP_STEP_NONE)
        return r;
    if (s->pid > 0)
        reap_failed(s);
    return -(int)SP_E_SYSTEM;
}

static void reset(struct sp_spawn *s)
{
    s->failed_step = s->step = SP_STEP_NONE;
    s->failed_errno = 0;
    s->pidfd = -1;
    s->is_at_disk = s->is_reaped = false;
    s->pid = 0;
    s->is_busy = 1;
}

int sp_spawn(struct sp_spawn *s)
{
    reset(s);
    s->stack = NULL;
    return s->is_apart && null_fd < 0 ? spawn_apart(s) : spawn_reserved(s);
}

int sp_spawn_begin(struct sp_spawn *s)
{
    reset(s);
    return spawn_reserved(s);
}

int sp_spawn_poll(struct sp_spawn *s)
{
    if (__atomic_load_n(&s->is_busy, __ATOMIC_ACQUIRE) != 0)
        return 1;
    FORGET_FRAMES(s->stack);
    if (s->failed_step == SP_STEP_NONE)
        return 0;
    reap_failed(s);
    return -(int)SP_E_SYSTEM;
}

int sp_spawn_explain(const char *name, bool is_alone, int err, char *ret, size_t size)
{
    if (err == ENOENT && is_alone && strpbrk(name, " \t\n|&;<>$*?()'\"`") != NULL)
        return snprintf(ret, size,
                        "%.1000s: no such program; no shell is involved: sh -c '%.1000s'", name,
                        name);
    if (err == ENOENT && strchr(name, '/') == NULL)
        return snprintf(ret, size, "%.4096s: command not found", name);
    return snprintf(ret, size, "%.4096s: %s", name, strerror(err));
}
