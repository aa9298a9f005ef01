/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The filter in the kernel: a child under it tries what is refused, and what next to it is not.
 */
#include <linux/fs.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include "os/seccomp.h"
#include "os/seccomp_calls.h"
#include "seccomp_fixture.h"

/* In a child under the filter; what it checks is CHILD_CHECK's. */
static void confined(const struct sp_filter_options *o,
                     void (*act)(const struct sp_filter_options *))
{
    const pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        int listener = -2;

        enter(o, &listener);
        CHILD_CHECK(listener == -1);
        act(o);
        _exit(0);
    }
    assert_int_equal(reap(pid, DEADLINE_MS), 0);
}

static void confined_everywhere(void (*act)(const struct sp_filter_options *))
{
    for (unsigned n = 0; n < 6; n++)
        confined(&(struct sp_filter_options){.net = n % 3, .denies_metadata = n / 3 == 1}, act);
}

/* ---- refused whatever the arguments ---- */

static bool is_refused_here(const struct sp_syscall_rule *c, const struct sp_filter_options *o)
{
    return c->when == SP_WHEN_ALWAYS ||
           (c->when == SP_WHEN_NO_NETWORK && o->net == SP_FILTER_NONE) ||
           (c->when == SP_WHEN_NO_METADATA && o->denies_metadata);
}

/* With arguments that harm nobody if the filter lets them through, and that the kernel answers
 * with EFAULT, EBADF or EINVAL. */
static void try_all(const struct sp_filter_options *o)
{
    for (size_t i = 0; i < sp_syscall_rule_count; i++) {
        const struct sp_syscall_rule *c = &sp_syscall_rules[i];

        if (c->nr < 0 || c->test != SP_TEST_NONE)
            continue;
        const long result = syscall(c->nr, -1L, -1L, -1L, -1L, -1L, -1L);
        const int err = c->nr == SYS_msgget && result >= 0 ? EEXIST : error_of(result);
        if (c->nr == SYS_msgget && result >= 0) /* these arguments create a queue: remove it */
            CHILD_CHECK(msgctl((int)result, IPC_RMID, NULL) == 0);
        const bool is_right = is_refused_here(c, o) ? err == c->error : err != 0 && err != EPERM;
        if (!is_right)
            (void)dprintf(2, "net %d metadata %d: %s: %s\n", o->net, o->denies_metadata, c->name,
                          strerror(err));
        CHILD_CHECK(is_right);
    }
}

static void test_what_is_refused_is_refused_and_the_rest_is_not(void **state)
{
    (void)state;
    confined_everywhere(try_all);
}

/* ---- refused by argument ---- */

static void try_arguments(const struct sp_filter_options *o)
{
    int pipe_fds[2];
    const uint64_t above = 1ULL << 32;
    int waiting = 0;

    CHILD_CHECK(error_of(syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0)) == EPERM);
    CHILD_CHECK(error_of(syscall(SYS_clone, CLONE_NEWNS | SIGCHLD, 0, 0, 0, 0)) == EPERM);
    CHILD_CHECK(error_of(unshare(CLONE_NEWUSER)) == EPERM);
    CHILD_CHECK(error_of(unshare(CLONE_NEWNS | CLONE_FS)) == EPERM);
    CHILD_CHECK(error_of(unshare(0x80)) == EPERM);
    CHILD_CHECK(unshare(0) == 0);
    CHILD_CHECK(unshare(CLONE_FILES) == 0);
    CHILD_CHECK(unshare(CLONE_FS) == 0);

    CHILD_CHECK(error_of(syscall(SYS_personality, 0x0400000L)) == EPERM);
    CHILD_CHECK(syscall(SYS_personality, 0xffffffffL) == 0);
    CHILD_CHECK(syscall(SYS_personality, 0L) == 0);
    CHILD_CHECK(syscall(SYS_prlimit64, 0L, RLIMIT_CPU, NULL, NULL) == 0);
    struct rlimit core;
    CHILD_CHECK(getrlimit(RLIMIT_CORE, &core) == 0);
    const struct rlimit other = {.rlim_cur = core.rlim_cur != 0 ? 0 : 1, .rlim_max = core.rlim_max};
    struct rlimit now;
    CHILD_CHECK(setrlimit(RLIMIT_CORE, &other) == 0); /* it says so */
    CHILD_CHECK(syscall(SYS_setrlimit, RLIMIT_CORE, &other) == 0);
    CHILD_CHECK(error_of(prlimit(0, RLIMIT_CORE, &other, &now)) == EPERM);
    CHILD_CHECK(getrlimit(RLIMIT_CORE, &now) == 0 && now.rlim_cur == core.rlim_cur);
    CHILD_CHECK(error_of(syscall(SYS_prlimit64, (long)getppid(), RLIMIT_CPU, NULL, NULL)) == EPERM);
    CHILD_CHECK(error_of(syscall(SYS_prlimit64, (long)getpid(), RLIMIT_CPU, NULL, NULL)) == EPERM);

    CHILD_CHECK(pipe2(pipe_fds, O_CLOEXEC) == 0);
    CHILD_CHECK(error_of(syscall(SYS_ioctl, pipe_fds[0], TIOCSTI, "x")) == EPERM);
    CHILD_CHECK(error_of(syscall(SYS_ioctl, pipe_fds[0], above | TIOCSTI, "x")) == EPERM);
    CHILD_CHECK(error_of(syscall(SYS_ioctl, pipe_fds[0], above | TIOCLINUX, "x")) == EPERM);
    CHILD_CHECK(error_of(ioctl(pipe_fds[0], TIOCSCTTY, 0)) == ENOTTY);
    CHILD_CHECK(write(pipe_fds[1], "abc", 3) == 3);
    CHILD_CHECK(ioctl(pipe_fds[0], FIONREAD, &waiting) == 0 && waiting == 3);
    const int flags_err = error_of(ioctl(pipe_fds[0], FS_IOC_SETFLAGS, &waiting));
    CHILD_CHECK(o->denies_metadata ? flags_err == EPERM : flags_err != EPERM);
    (void)close(pipe_fds[0]);
    (void)close(pipe_fds[1]);
}

static void test_arguments_decide(void **state)
{
    (void)state;
    confined_everywhere(try_arguments);
}

static void try_sockets(const struct sp_filter_options *o)
{
    const bool is_none = o->net == SP_FILTER_NONE;
    const int inet = is_none ? EPERM : 0;
    const int inet6 = socket_error(AF_INET6, SOCK_STREAM, 0);
    int fds[2];

    CHILD_CHECK(socket_error(AF_INET, SOCK_STREAM, 0) == inet);
    CHILD_CHECK(socket_error(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0) == inet);
    CHILD_CHECK(is_none ? inet6 == EPERM : inet6 != EPERM); /* a host may have none */
    CHILD_CHECK(socket_error(AF_UNIX, SOCK_STREAM, 0) == (is_none ? 0 : EPERM));
    CHILD_CHECK(socket_error(AF_NETLINK, SOCK_RAW, 0) == (o->net != SP_FILTER_NONE ? 0 : EPERM));
    CHILD_CHECK(socket_error(AF_NETLINK, SOCK_RAW, 9) == EPERM);
    CHILD_CHECK(socket_error(AF_INET, SOCK_RAW, 1) == EPERM);
    CHILD_CHECK(socket_error(AF_INET, SOCK_RAW | SOCK_NONBLOCK, 1) == EPERM);
    CHILD_CHECK(socket_error(AF_INET6, SOCK_RAW, 58) == EPERM);
    CHILD_CHECK(socket_error(AF_INET, SOCK_PACKET, 0) == EPERM);
    CHILD_CHECK(socket_error(AF_PACKET, SOCK_DGRAM, 0) == EPERM);
    CHILD_CHECK(socket_error(AF_VSOCK, SOCK_STREAM, 0) == EPERM);
    CHILD_CHECK(socket_error(AF_ALG, SOCK_SEQPACKET, 0) == EPERM);
    if (is_none) /* which could send to anybody */
        CHILD_CHECK(socket_error(AF_UNIX, SOCK_DGRAM, 0) == EPERM);
    CHILD_CHECK(error_of(socketpair(AF_UNIX, SOCK_DGRAM, 0, fds)) == EPERM);
    CHILD_CHECK(error_of(socketpair(AF_UNIX, SOCK_RAW | SOCK_NONBLOCK, 0, fds)) == EPERM);
    CHILD_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) == 0);
    (void)close(fds[0]);
    (void)close(fds[1]);
    CHILD_CHECK(error_of(socketpair(AF_INET, SOCK_STREAM, 0, fds)) == EPERM);
    CHILD_CHECK(error_of(socketpair(30 /* TIPC */, SOCK_STREAM, 0, fds)) == EPERM);
}

static void test_sockets_are_those_of_the_network(void **state)
{
    (void)state;
    confined_everywhere(try_sockets);
}

/* ---- what goes on as ever ---- */

static void *add_one(void *arg)
{
    ++*(int *)arg;
    return arg;
}

static void try_processes(const struct sp_filter_options *o)
{
    pthread_t thread;
    int count = 0;
    int status = -1;
    char line[16] = "";
    char *argv[] = {(char[]){"true"}, NULL};
    pid_t pid = fork();

    (void)o;
    if (pid == 0)
        _exit(7);
    CHILD_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 7);
    CHILD_CHECK(pthread_create(&thread, NULL, add_one, &count) == 0);
    CHILD_CHECK(pthread_join(thread, NULL) == 0 && count == 1);
    CHILD_CHECK(posix_spawn(&pid, "/bin/true", NULL, NULL, argv, environ) == 0);
    CHILD_CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    FILE *f = popen("echo hello", "re");
    CHILD_CHECK(f != NULL && fgets(line, sizeof line, f) != NULL && strcmp(line, "hello\n") == 0);
    CHILD_CHECK(pclose(f) == 0);
}

static void test_processes_and_threads_start(void **state)
{
    (void)state;
    confined_everywhere(try_processes);
}

static void try_pair(const struct sp_filter_options *o)
{
    const bool is_none = o->net == SP_FILTER_NONE;
    struct sockaddr_un addr;
    socklen_t addr_len = sizeof addr;
    struct iovec iov = {(char[]){"abc"}, 3};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    char text[8];
    int fds[2];

    CHILD_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    if (is_none)
        CHILD_CHECK(error_of(send(fds[0], "abc", 3, 0)) == EPERM);
    else
        CHILD_CHECK(send(fds[0], "abc", 3, 0) == 3 && recv(fds[1], text, sizeof text, 0) == 3);
    CHILD_CHECK(sendmsg(fds[0], &msg, 0) == 3);
    CHILD_CHECK(recv(fds[1], text, sizeof text, 0) == 3);
    CHILD_CHECK(write(fds[0], "abc", 3) == 3);
    CHILD_CHECK(recvmsg(fds[1], &msg, 0) == 3);
    CHILD_CHECK(getsockname(fds[0], (struct sockaddr *)&addr, &addr_len) == 0);
    addr_len = sizeof addr;
    CHILD_CHECK(getpeername(fds[0], (struct sockaddr *)&addr, &addr_len) == 0);
    /* By this a shell knows that it was not started by a login over the network. */
    CHILD_CHECK(error_of(getpeername(2, (struct sockaddr *)&addr, &addr_len)) == ENOTSOCK);
    (void)close(fds[0]);
    (void)close(fds[1]);
}

static void test_a_socket_pair_works(void **state)
{
    const int err = dup(2);
    const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

    (void)state;
    assert_true(err >= 0 && null >= 0 && dup2(null, 2) == 2); /* the runner's may be a socket */
    confined_everywhere(try_pair);
    assert_int_equal(dup2(err, 2), 2);
    (void)close(err);
    (void)close(null);
}

/* ---- the other doors ---- */

#if defined(__x86_64__)
static long old_door(long nr, long a, long b)
{
    long r;

    __asm__ volatile("int $0x80"
                     : "=a"(r)
                     : "0"(nr), "b"(a), "c"(b), "d"(0L)
                     : "r8", "r9", "r10", "r11", "memory");
    return r;
}

static bool has_old_door(void)
{
    const pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0)
        _exit(old_door(20, 0, 0) == getpid() ? 0 : 1);
    return reap(pid, DEADLINE_MS) == 0;
}

static void try_old_door(const struct sp_filter_options *o)
{
    (void)o;
    CHILD_CHECK(old_door(20, 0, 0) == -ENOSYS);        /* getpid */
    CHILD_CHECK(old_door(359, AF_UNIX, 1) == -ENOSYS); /* socket */
    CHILD_CHECK(old_door(26, 0, 0) == -ENOSYS);        /* ptrace */
}

static void try_x32(const struct sp_filter_options *o)
{
    (void)o;
    CHILD_CHECK(error_of(syscall(0x40000000 + SYS_socket, AF_INET, SOCK_STREAM, 0)) == ENOSYS);
    CHILD_CHECK(error_of(syscall(0x40000000 + 521, 0, 0, 0, 0)) == ENOSYS); /* its ptrace */
    CHILD_CHECK(error_of(syscall(0x40000000 + SYS_getpid)) == ENOSYS);
}

static void test_32_bit_calls_answer_enosys_and_the_process_lives(void **state)
{
    (void)state;
    if (!has_old_door()) {
        print_message("# skipped: this kernel has no int 0x80\n");
        skip();
    }
    confined_everywhere(try_old_door);
}

static void test_x32_calls_answer_enosys_and_the_process_lives(void **state)
{
    (void)state;
    confined_everywhere(try_x32);
}
#endif

static void test_without_no_new_privs_an_ordinary_user_is_refused(void **state)
{
    static struct sp_filter f;
    int listener = 4711;

    (void)state;
    sp_filter_make(&(struct sp_filter_options){0}, &f);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (geteuid() == 0)
            CHILD_CHECK(setresuid(65534, 65534, 65534) == 0);
        CHILD_CHECK(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ||
                    (sp_filter_install(&f, false, &listener) == -EACCES && listener == 4711));
        _exit(0);
    }
    assert_int_equal(reap(pid, DEADLINE_MS), 0);
}

#define seccomp_test(f) cmocka_unit_test_setup_teardown(f, begin, end)

static const struct CMUnitTest tests[] = {
    seccomp_test(test_what_is_refused_is_refused_and_the_rest_is_not),
    seccomp_test(test_arguments_decide),
    seccomp_test(test_sockets_are_those_of_the_network),
    seccomp_test(test_processes_and_threads_start),
    seccomp_test(test_a_socket_pair_works),
#if defined(__x86_64__)
    seccomp_test(test_32_bit_calls_answer_enosys_and_the_process_lives),
    seccomp_test(test_x32_calls_answer_enosys_and_the_process_lives),
#endif
    seccomp_test(test_without_no_new_privs_an_ordinary_user_is_refused),
};

TEST_MAIN(tests)
