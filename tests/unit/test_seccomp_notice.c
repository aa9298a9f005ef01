/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tells, told: the listener's side and the child's.
 */
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>

#include "seccomp_fixture.h"

static void send_fd(int channel, int fd)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {.room = {0}};
    struct iovec iov = {(char[]){"f"}, 1};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = &control,
                         .msg_controllen = sizeof control};

    control.head.cmsg_level = SOL_SOCKET;
    control.head.cmsg_type = SCM_RIGHTS;
    control.head.cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
    CHILD_CHECK(sendmsg(channel, &msg, 0) == 1);
}

static int receive_fd(int channel)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    char byte;
    struct iovec iov = {&byte, 1};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = &control,
                         .msg_controllen = sizeof control};
    int fd = -1;

    assert_true(wait_fd(channel, POLLIN, DEADLINE_MS));
    assert_int_equal(recvmsg(channel, &msg, MSG_CMSG_CLOEXEC), 1);
    assert_true(msg.msg_controllen >= CMSG_LEN(sizeof(int)));
    memcpy(&fd, CMSG_DATA(&control.head), sizeof fd);
    return fd;
}

struct watched {
    pid_t pid;
    int channel, listener;
};

/* A child under a filter that notifies; the listener comes to us before it acts. */
static struct watched watch(void (*act)(int channel))
{
    struct watched w;
    int fds[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    w.pid = fork();
    assert_true(w.pid >= 0);
    if (w.pid == 0) {
        int listener = -1;

        (void)close(fds[0]);
        enter(&(struct sp_filter_options){.net = SP_FILTER_NONE, .notifies = true}, &listener);
        CHILD_CHECK(fcntl(listener, F_GETFD) == FD_CLOEXEC);
        send_fd(fds[1], listener);
        (void)close(listener);
        act(fds[1]);
        _exit(0);
    }
    (void)close(fds[1]);
    w.channel = fds[0];
    w.listener = receive_fd(fds[0]);
    return w;
}

static void unwatch(struct watched *w)
{
    (void)close(w->listener);
    (void)close(w->channel);
}

static struct sp_notice next_notice(const struct watched *w)
{
    struct sp_notice n = {0};

    assert_true(wait_fd(w->listener, POLLIN, DEADLINE_MS));
    assert_int_equal(sp_notice_take(w->listener, &n), 1);
    assert_int_equal(n.pid, w->pid);
    return n;
}

static void tell_and_be_silent(int channel)
{
    (void)channel;
    CHILD_CHECK(error_of(ptrace(PTRACE_ATTACH, 4711, NULL, NULL)) == EPERM);
    CHILD_CHECK(error_of(syscall(SYS_keyctl, 0, 0, 0, 0, 0)) == EPERM); /* nobody hears of these */
    CHILD_CHECK(error_of(syscall(SYS_clone3, NULL, 0)) == ENOSYS);
    CHILD_CHECK(error_of(syscall(SYS_io_uring_setup, 1, NULL)) == ENOSYS);
    CHILD_CHECK(socket_error(AF_NETLINK, SOCK_RAW, 0) == EPERM);
    CHILD_CHECK(error_of(syscall(SYS_personality, 8L)) == EPERM);
    CHILD_CHECK(error_of(connect(-1, NULL, 0)) == EPERM);
    CHILD_CHECK(socket_error(AF_INET, SOCK_STREAM, 0) == EPERM);
    CHILD_CHECK(error_of(unshare(CLONE_NEWUSER)) == EPERM);
    CHILD_CHECK(error_of(syscall(SYS_ioctl, 0, TIOCSTI, "x")) == EPERM);
}

static void test_the_listener_hears_what_tells_and_answers(void **state)
{
    struct watched w = watch(tell_and_be_silent);
    struct sp_notice n = next_notice(&w);

    (void)state;
    assert_int_equal(n.call, SYS_ptrace);
    assert_int_equal(n.args[0], PTRACE_ATTACH);
    assert_int_equal(n.args[1], 4711);
    assert_int_equal(sp_notice_take(w.listener, &n), 0); /* one call, one notice; and no waiting */
    sp_notice_answer(w.listener, &n, false);
    n = next_notice(&w);
    assert_int_equal(n.call, SYS_socket);
    assert_int_equal(n.args[0], AF_INET);
    sp_notice_answer(w.listener, &n, false);
    n = next_notice(&w);
    assert_int_equal(n.call, SYS_unshare);
    sp_notice_answer(w.listener, &n, false);
    n = next_notice(&w);
    assert_int_equal(n.call, SYS_ioctl);
    assert_int_equal(n.args[1], TIOCSTI);
    sp_notice_answer(w.listener, &n, false);
    sp_notice_answer(w.listener, &n, false); /* a second answer hurts nobody */
    assert_int_equal(reap(w.pid, DEADLINE_MS), 0);
    assert_int_equal(sp_notice_take(w.listener, &n), -ENOTCONN);
    unwatch(&w);
    assert_int_equal(sp_notice_take(w.listener, &n), -EBADF);
}

static void tell(int channel)
{
    (void)channel;
    CHILD_CHECK(error_of(ptrace(PTRACE_TRACEME, 0, NULL, NULL)) == EPERM);
}

static void test_a_notice_whose_sender_died_does_not_block(void **state)
{
    struct watched w = watch(tell);
    struct sp_notice n = {0};

    (void)state;
    assert_true(wait_fd(w.listener, POLLIN, DEADLINE_MS));
    assert_int_equal(kill(w.pid, SIGKILL), 0);
    assert_int_equal(reap(w.pid, DEADLINE_MS), 128 + SIGKILL);
    assert_true(sp_notice_take(w.listener, &n) <= 0);
    unwatch(&w);

    w = watch(tell); /* or dies between the question and the answer */
    n = next_notice(&w);
    assert_int_equal(kill(w.pid, SIGKILL), 0);
    assert_int_equal(reap(w.pid, DEADLINE_MS), 128 + SIGKILL);
    sp_notice_answer(w.listener, &n, false);
    unwatch(&w);
}

/* Of filters that notify the latest does: with a listener of its own a command could let its own
 * calls continue once ours is closed. */
static void try_own_listener(int channel)
{
    const struct sock_filter code[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const struct sock_fprog program = {1, (struct sock_filter *)(uintptr_t)code};
    char byte;

    CHILD_CHECK(read(channel, &byte, 1) == 1); /* the listener is closed */
    CHILD_CHECK(error_of(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                                 SECCOMP_FILTER_FLAG_NEW_LISTENER, &program)) == EPERM);
    CHILD_CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0);
    CHILD_CHECK(ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0); /* nobody answers: ENOSYS */
}

static void test_nobody_installs_a_listener_over_ours(void **state)
{
    struct watched w = watch(try_own_listener);

    (void)state;
    (void)close(w.listener);
    w.listener = -1;
    assert_int_equal(write(w.channel, "x", 1), 1);
    assert_int_equal(reap(w.pid, DEADLINE_MS), 0);
    unwatch(&w);
}

#define notice_test(f) cmocka_unit_test_setup_teardown(f, begin, end)

static const struct CMUnitTest tests[] = {
    notice_test(test_the_listener_hears_what_tells_and_answers),
    notice_test(test_a_notice_whose_sender_died_does_not_block),
    notice_test(test_nobody_installs_a_listener_over_ours),
};

TEST_MAIN(tests)
