/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "os/fd.h"
#include "test.h"

static int pair[2];

static int make_pair(void **state)
{
    (void)state;
    return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair);
}

static int close_pair(void **state)
{
    (void)state;
    return close(pair[0]) | close(pair[1]);
}

static void send_fds(int count)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(8 * sizeof(int))];
    } control = {0};
    char text[] = "text";
    struct iovec iov = {text, 4};
    struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};

    if (count > 0) {
        h.msg_control = control.bytes;
        h.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&h);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
        for (int i = 0; i < count; i++)
            memcpy(CMSG_DATA(c) + (size_t)i * sizeof(int), &pair[1], sizeof(int));
    }
    assert_int_equal(sendmsg(pair[0], &h, MSG_NOSIGNAL), 4);
}

static void test_as_many_descriptors_as_there_is_room_for(void **state)
{
    const int next = dup(pair[0]); /* the lowest free number: nothing must stay open there */

    (void)state;
    assert_int_equal(close(next), 0);
    for (int max = 0; max <= SP_FD_RECV_MAX; max++)
        for (int sent = 0; sent <= 8; sent++) {
            char text[8];
            struct iovec iov = {text, sizeof text};
            struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};
            int fds[SP_FD_RECV_MAX];
            int count = -1;

            send_fds(sent);
            assert_int_equal(sp_fd_recv(pair[1], &h, 0, fds, max, &count), 4);
            assert_memory_equal(text, "text", 4);
            assert_int_equal(count, sent < max ? sent : max);
            assert_int_equal((h.msg_flags & MSG_CTRUNC) != 0, sent > max);
            for (int i = 0; i < count; i++) {
                assert_int_equal(fcntl(fds[i], F_GETFD), FD_CLOEXEC);
                assert_int_equal(close(fds[i]), 0);
            }
            assert_int_equal(dup(pair[0]), next);
            assert_int_equal(close(next), 0);
        }
}

static void test_an_error_brings_no_descriptor(void **state)
{
    char text[8];
    struct iovec iov = {text, sizeof text};
    struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};
    int fd = -1;
    int count = -1;

    (void)state;
    assert_int_equal(sp_fd_recv(pair[1], &h, MSG_DONTWAIT, &fd, 1, &count), -1);
    assert_int_equal(errno, EAGAIN);
    assert_int_equal(count, 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(test_as_many_descriptors_as_there_is_room_for, make_pair,
                                    close_pair),
    cmocka_unit_test_setup_teardown(test_an_error_brings_no_descriptor, make_pair, close_pair),
};

TEST_MAIN(tests)
