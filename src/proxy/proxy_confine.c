/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/proxy_confine.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "os/landlock.h"
#include "os/privilege.h"
#include "os/seccomp_rules.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define MEMORY_MAX   (256UL << 20) /* of the proxy's address space */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define IS_SANITIZED 1
#endif
#endif

/* ---- the proxy's calls ---- */

/* clang-format off */
#define ALLOWED(name)   {.nr = SYS_##name, .verdict = SP_CALL_ALLOW}
#define REFUSED(name)   {.nr = SYS_##name, .verdict = SP_CALL_REFUSE}
#define FORBIDDEN(name) {.nr = SYS_##name, .verdict = SP_CALL_KILL}
#define EQUALS(n, k)    {.arg = (n), .value = (k)}
#define MASKED(n, m, k) {.arg = (n), .mask = (m), .value = (k)}
#define WITH(name, v, test) {.nr = SYS_##name, .verdict = (v), .test_count = 1, .tests = {test}}
#define SOCKETS(family, type, protocol)                                      \
    {.nr = SYS_socket, .verdict = SP_CALL_ALLOW, .test_count = 3,            \
     .tests = {EQUALS(0, family), MASKED(1, 0xf, type), EQUALS(2, protocol)}}
/* clang-format on */

/* Frequent ones first. */
static const struct sp_call_rule proxy_calls[] = {
#ifdef SYS_epoll_wait
    ALLOWED(epoll_wait),
#endif
    ALLOWED(epoll_pwait),
    ALLOWED(splice),
    ALLOWED(recvfrom),
    ALLOWED(sendto),
    ALLOWED(recvmsg),
    ALLOWED(sendmsg),
    ALLOWED(read),
    ALLOWED(write),
    ALLOWED(readv),
    ALLOWED(writev),
    ALLOWED(epoll_ctl),
    ALLOWED(accept4),
    ALLOWED(connect),
    ALLOWED(close),
    ALLOWED(shutdown),
    ALLOWED(getsockname),
    ALLOWED(getpeername),
    ALLOWED(getsockopt),
    ALLOWED(setsockopt),
    ALLOWED(pipe2),
    SOCKETS(AF_INET, SOCK_STREAM, 0),
    SOCKETS(AF_INET, SOCK_STREAM, IPPROTO_TCP),
    SOCKETS(AF_INET, SOCK_DGRAM, 0),
    SOCKETS(AF_INET, SOCK_DGRAM, IPPROTO_UDP),
    SOCKETS(AF_INET6, SOCK_STREAM, 0),
    SOCKETS(AF_INET6, SOCK_STREAM, IPPROTO_TCP),
    SOCKETS(AF_INET6, SOCK_DGRAM, 0),
    SOCKETS(AF_INET6, SOCK_DGRAM, IPPROTO_UDP),
    /* F_SETOWN and F_SETSIG would send signals to other processes. */
    WITH(fcntl, SP_CALL_ALLOW, EQUALS(1, F_GETFL)),
    WITH(fcntl, SP_CALL_ALLOW, EQUALS(1, F_SETFL)),
    WITH(fcntl, SP_CALL_ALLOW, EQUALS(1, F_GETFD)),
    WITH(fcntl, SP_CALL_ALLOW, EQUALS(1, F_SETFD)),
    WITH(fcntl, SP_CALL_ALLOW, EQUALS(1, F_DUPFD_CLOEXEC)),
    WITH(fcntl, SP_CALL_ALLOW, EQUALS(1, F_SETPIPE_SZ)),
    WITH(fcntl, SP_CALL_ALLOW, EQUALS(1, F_GETPIPE_SZ)),
    WITH(fcntl, SP_CALL_ALLOW, EQUALS(1, F_GET_SEALS)),
    WITH(fcntl, SP_CALL_ALLOW, EQUALS(1, F_ADD_SEALS)),
    WITH(mmap, SP_CALL_ALLOW, MASKED(2, PROT_EXEC, 0)),
    WITH(mprotect, SP_CALL_ALLOW, MASKED(2, PROT_EXEC, 0)),
    ALLOWED(munmap),
    ALLOWED(mremap),
    ALLOWED(madvise),
    ALLOWED(brk),
    ALLOWED(pread64), /* the memory of names */
    ALLOWED(epoll_create1),
    ALLOWED(clock_gettime),
    ALLOWED(getrandom),
    ALLOWED(futex),
    ALLOWED(sched_yield),
    ALLOWED(restart_syscall),
    ALLOWED(rt_sigreturn),
    ALLOWED(exit),
    ALLOWED(exit_group),
    /* abort(): a failed assertion shows as SIGABRT instead of SIGSYS. */
    ALLOWED(rt_sigprocmask),
    ALLOWED(getpid),
    ALLOWED(gettid),
};

#ifdef IS_SANITIZED
/* A sanitizer needs a few more calls, and others while it prints a report. The latter fail, so that
 * the report says less, but comes. */
static const struct sp_call_rule sanitizer_calls[] = {
    ALLOWED(sigaltstack), ALLOWED(rt_sigaction), ALLOWED(sched_getaffinity),
    REFUSED(prctl),       REFUSED(prlimit64),    REFUSED(openat),
    REFUSED(readlinkat),  REFUSED(newfstatat),   REFUSED(clone),
#ifdef SYS_open
    REFUSED(open),        REFUSED(readlink),     REFUSED(stat),
    REFUSED(fork),
#endif
};
#endif

static void add_own_signals(struct sp_filter *f)
{
    const struct sp_call_rule rule = WITH(tgkill, SP_CALL_ALLOW, EQUALS(0, (uint32_t)getpid()));

    sp_filter_add_rules(f, &rule, 1);
}

static void make_proxy_filter(struct sp_filter *ret)
{
    ret->count = 0;
    sp_filter_add_rules(ret, proxy_calls, COUNT(proxy_calls));
#ifdef IS_SANITIZED
    sp_filter_add_rules(ret, sanitizer_calls, COUNT(sanitizer_calls));
#endif
    add_own_signals(ret);
    sp_filter_end_rules(ret, SP_CALL_KILL);
}

/* ---- the resolver's calls ---- */

/*
 * Modules of the C library may make any harmless call, so this is a list of what is refused, on top
 * of the filter of commands with network access: that one has no namespaces, mounts, ptrace, keys,
 * io_uring and so on, and no AF_UNIX sockets. Modules that ask a daemon over such a socket (nscd,
 * systemd-resolved, sssd) count as unavailable, and the DNS server of resolv.conf is asked instead;
 * with these sockets the resolver could talk to every daemon of its user.
 *
 * clone3 has its flags in memory, which a filter cannot read: without it the C library uses clone.
 */
static const struct sp_call_rule resolver_calls[] = {
    FORBIDDEN(execve),
    FORBIDDEN(execveat),
    WITH(clone, SP_CALL_ALLOW, MASKED(0, CLONE_THREAD, CLONE_THREAD)),
    REFUSED(clone),
    {.nr = SYS_clone3, .verdict = SP_CALL_MISSING},
#ifdef SYS_fork
    REFUSED(fork),
    REFUSED(vfork),
#endif
    REFUSED(kill),
    REFUSED(tkill),
    REFUSED(rt_sigqueueinfo),
    REFUSED(rt_tgsigqueueinfo),
    REFUSED(pidfd_open),
    REFUSED(pidfd_send_signal),
    WITH(fcntl, SP_CALL_REFUSE, EQUALS(1, F_SETOWN)),
    WITH(fcntl, SP_CALL_REFUSE, EQUALS(1, F_SETOWN_EX)),
    WITH(fcntl, SP_CALL_REFUSE, EQUALS(1, F_SETSIG)),
    WITH(ioctl, SP_CALL_REFUSE, EQUALS(1, 0x8901)), /* FIOSETOWN */
    WITH(ioctl, SP_CALL_REFUSE, EQUALS(1, 0x8902)), /* SIOCSPGRP */
    REFUSED(ptrace),
    REFUSED(listen),
    REFUSED(accept),
    REFUSED(accept4),
    REFUSED(setpriority),
    REFUSED(ioprio_set),
    REFUSED(sched_setaffinity),
    REFUSED(sched_setattr),
    REFUSED(sched_setparam),
    REFUSED(sched_setscheduler),
    REFUSED(memfd_create),
};

static void make_resolver_filters(struct sp_filter *ret)
{
    static const struct sp_filter_options as_commands = {.net = SP_FILTER_ENABLED};

    sp_filter_make(&as_commands, &ret[0]);
    ret[1].count = 0;
    sp_filter_add_rules(&ret[1], resolver_calls, COUNT(resolver_calls));
    add_own_signals(&ret[1]);
    sp_filter_add_rules(&ret[1], &(struct sp_call_rule)REFUSED(tgkill), 1);
    sp_filter_end_rules(&ret[1], SP_CALL_ALLOW);
}

/* ---- entering ---- */

static int install(const struct sp_filter *filters, size_t count)
{
    int r = 0;
    int no_listener;

    for (size_t i = 0; r == 0 && i < count; i++)
        r = sp_filter_install(&filters[i], false, &no_listener);
    return r;
}

static void open_unix_socket(void)
{
    (void)socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

static void execute(void)
{
    char *const no_words[] = {NULL};

    (void)execve("/nonexistent", no_words, no_words);
}

/* A child enters the filters and must die of the call that is tried. */
static int self_test(const struct sp_filter *filters, size_t count, void (*act)(void),
                     struct sp_err *e)
{
    const pid_t pid = fork();
    int status = 0;
    pid_t r;

    if (pid < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "fork a child that tests the seccomp filter");
    if (pid == 0) {
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && install(filters, count) == 0)
            act();
        _exit(1);
    }
    do
        r = waitpid(pid, &status, 0);
    while (r < 0 && errno == EINTR);
    if (r != pid || !WIFSIGNALED(status) || WTERMSIG(status) != SIGSYS)
        return sp_fail(
            e, SP_E_STATE, 0,
            "the seccomp filter does not hold: a child that broke it had the wait status "
            "%#x",
            (unsigned)status);
    return 0;
}

static int enter_landlock(const char *const *readable, size_t count, struct sp_err *e)
{
    const int abi = sp_landlock_abi();
    auto_close int ruleset = sp_landlock_new(abi);
    int r = ruleset < 0 ? ruleset : 0;

    for (size_t i = 0; r == 0 && i < count; i++) {
        auto_close int fd = open(readable[i], O_PATH | O_CLOEXEC);

        if (fd >= 0) /* hosts differ: what is missing needs no rule */
            r = sp_landlock_allow(ruleset, abi, fd, SP_LANDLOCK_READ);
    }
    if (r == 0)
        r = sp_landlock_enter(ruleset);
    if (r == -ENOTSUP)
        return sp_fail(e, SP_E_STATE, 0,
                       "this kernel has no Landlock: Linux 5.13 has it, with `landlock` in lsm=");
    return r < 0 ? sp_fail(e, SP_E_SYSTEM, -r, "enter Landlock") : 0;
}

/* Before the self-test: its child leaves no core file either. */
static int give_up_rights(struct sp_err *e)
{
    int r = prctl(PR_SET_DUMPABLE, 0) < 0 ? -errno : 0;

    if (r == 0)
        r = sp_privilege_no_core();
    if (r == 0)
        r = sp_privilege_drop();
    return r < 0 ? sp_fail(e, SP_E_SYSTEM, -r, "drop privileges") : 0;
}

int sp_proxy_confine(struct sp_err *e)
{
    static struct sp_filter filter;

    make_proxy_filter(&filter);
    int r = give_up_rights(e);
    if (r == 0)
        r = self_test(&filter, 1, open_unix_socket, e);
#ifndef IS_SANITIZED /* a sanitizer's shadow memory is larger */
    if (r == 0 && setrlimit(RLIMIT_AS, &(struct rlimit){MEMORY_MAX, MEMORY_MAX}) < 0)
        r = sp_fail(e, SP_E_SYSTEM, errno, "limit the memory");
#endif
    /* The filter has no call that takes a path; Landlock is the second wall, where there is one. */
    if (r == 0 && sp_landlock_abi() > 0)
        r = enter_landlock(NULL, 0, e);
    if (r < 0)
        return r;
    r = install(&filter, 1);
    return r < 0 ? sp_fail(e, SP_E_SYSTEM, -r, "enter the seccomp filter") : 0;
}

int sp_resolver_confine(struct sp_err *e)
{
    /* resolv.conf by itself: it may be a symlink to any place. */
    static const char *const readable[] = {
        "/etc", "/usr", "/lib", "/lib64", "/run", "/var/lib/sss", "/etc/resolv.conf",
    };
    static struct sp_filter filters[2];

    make_resolver_filters(filters);
    int r = give_up_rights(e);
    if (r == 0)
        r = self_test(filters, COUNT(filters), execute, e);
    if (r == 0)
        r = enter_landlock(readable, COUNT(readable), e);
    if (r < 0)
        return r;
    r = install(filters, COUNT(filters));
    return r < 0 ? sp_fail(e, SP_E_SYSTEM, -r, "enter the seccomp filter") : 0;
}
