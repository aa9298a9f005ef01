/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/resource.h>
#include <sys/socket.h>

#include "cell/wire.h"
#include "process_fixture.h"

static int near_end, far_end;
static int fds_before;
static struct sp_wire_message message;
static struct sp_err error;

static int short_sends; /* so many answer ENOMEM */

ssize_t __real_sendmsg(int socket, const struct msghdr *h, int flags);
ssize_t __wrap_sendmsg(int socket, const struct msghdr *h, int flags);
ssize_t __wrap_sendmsg(int socket, const struct msghdr *h, int flags)
{
    if (short_sends == 0)
        return __real_sendmsg(socket, h, flags);
    short_sends--;
    errno = ENOMEM;
    return -1;
}

static int make_pair(void **state)
{
    int pair[2];

    (void)state;
    fds_before = open_fds();
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -1;
    near_end = pair[0];
    far_end = pair[1];
    memset(&message, 0x55, sizeof message);
    error = (struct sp_err){0};
    return 0;
}

static int close_pair(void **state)
{
    (void)state;
    (void)close(near_end);
    if (far_end >= 0)
        (void)close(far_end);
    return open_fds() == fds_before ? 0 : -1; /* every test gives back what it was sent */
}

/* A datagram as any peer may send it: bytes, and the same descriptor some times over. */
static void send_raw(const void *bytes, size_t len, int fd_count)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(250 * sizeof(int))];
    } control = {0};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = len};
    struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};

    if (fd_count > 0) {
        h.msg_control = control.bytes;
        h.msg_controllen = CMSG_SPACE((size_t)fd_count * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&h);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN((size_t)fd_count * sizeof(int));
        for (int i = 0; i < fd_count; i++)
            memcpy(CMSG_DATA(c) + (size_t)i * sizeof(int), &far_end, sizeof(int));
    }
    assert_int_equal(sendmsg(far_end, &h, MSG_NOSIGNAL), (ssize_t)len);
}

static int receive(void)
{
    return sp_wire_recv(near_end, false, &message, &error);
}

static struct sp_wire_call a_call(uint16_t version, uint16_t op)
{
    return (struct sp_wire_call){.head = {.version = version, .op = op, .slot = 3, .number = 4},
                                 .a = 5};
}

static void test_a_message_arrives_as_it_was_sent(void **state)
{
    const struct sp_wire_call call = a_call(SP_WIRE_VERSION, SP_WIRE_SIGNAL);

    (void)state;
    assert_int_equal(receive(), 0); /* nothing there now */
    assert_int_equal(sp_wire_send(far_end, false, &call, sizeof call, "tail", 4, NULL, 0), 0);
    assert_int_equal(receive(), 1);
    assert_int_equal(message.len, sizeof call + 4);
    assert_memory_equal(message.bytes, &call, sizeof call);
    assert_memory_equal(message.bytes + sizeof call, "tail", 4);
    assert_int_equal(message.fd_count, 0);
    assert_false(message.is_cut);
    assert_int_equal(receive(), 0);
}

static void test_descriptors_arrive_closed_on_exec(void **state)
{
    const struct sp_wire_call call = a_call(SP_WIRE_VERSION, SP_WIRE_DONE);
    const int sent[SP_WIRE_FDS] = {far_end, near_end, far_end, near_end};

    (void)state;
    for (int n = 0; n <= SP_WIRE_FDS; n++) {
        assert_int_equal(sp_wire_send(far_end, true, &call, sizeof call, NULL, 0, sent, n), 0);
        assert_int_equal(sp_wire_recv(near_end, true, &message, &error), 1);
        assert_int_equal(message.fd_count, n);
        assert_false(message.is_cut);
        for (int i = 0; i < n; i++)
            assert_int_equal(fcntl(message.fds[i], F_GETFD), FD_CLOEXEC);
        sp_wire_close_fds(&message);
        assert_int_equal(message.fd_count, 0);
        sp_wire_close_fds(&message); /* none is fine */
    }
}

static void test_every_op_has_a_least_size(void **state)
{
    static const struct {
        uint16_t op;
        size_t least;
    } ops[] = {
        {SP_WIRE_HELLO, sizeof(struct sp_wire_hello)},
        {SP_WIRE_START, sizeof(struct sp_wire_start)},
        {SP_WIRE_SIGNAL, sizeof(struct sp_wire_call)},
        {SP_WIRE_RESIZE, sizeof(struct sp_wire_call)},
        {SP_WIRE_TERMINATE, sizeof(struct sp_wire_call)},
        {SP_WIRE_FORGET, sizeof(struct sp_wire_call)},
        {SP_WIRE_END_SESSION, sizeof(struct sp_wire_call)},
        {SP_WIRE_FILES, sizeof(struct sp_wire_call)},
        {SP_WIRE_HOLD, sizeof(struct sp_wire_call)},
        {SP_WIRE_CONNECT, sizeof(struct sp_wire_call)},
        {SP_WIRE_SEGMENT, sizeof(struct sp_wire_call)},
        {SP_WIRE_PUNCH, sizeof(struct sp_wire_call)},
        {SP_WIRE_ADOPT, sizeof(struct sp_wire_call)},
        {SP_WIRE_INPUT, sizeof(struct sp_wire_call)},
        {SP_WIRE_CLOSE_INPUT, sizeof(struct sp_wire_call)},
        {SP_WIRE_STARTED, sizeof(struct sp_wire_started)},
        {SP_WIRE_DONE, sizeof(struct sp_wire_done)},
        {SP_WIRE_DENIED, sizeof(struct sp_wire_call)},
        {SP_WIRE_BORN, sizeof(struct sp_wire_born)},
        {SP_WIRE_PORTS, sizeof(struct sp_wire_ports)},
        {SP_WIRE_SOCKET, sizeof(struct sp_wire_done)},
        {SP_WIRE_READY, sizeof(struct sp_wire_ready)},
        {SP_WIRE_INVENTORY, sizeof(struct sp_wire_inventory)},
    };
    union {
        struct sp_wire_head head;
        char bytes[512];
    } m = {0};

    (void)state;
    assert_int_equal(sizeof ops / sizeof ops[0], SP_WIRE_OP_MAX - 1);
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        m.head = (struct sp_wire_head){.version = SP_WIRE_VERSION, .op = ops[i].op};
        for (size_t len = 1; len < ops[i].least; len++) {
            send_raw(&m, len, len % 3 == 0);
            assert_int_equal(receive(), -SP_E_MALFORMED);
            assert_int_equal(message.fd_count, 0);
        }
        for (size_t len = ops[i].least; len < ops[i].least + 9; len++) {
            send_raw(&m, len, 0);
            assert_int_equal(receive(), 1);
            assert_int_equal(message.len, len);
        }
    }
}

static void test_foreign_versions_and_ops_are_refused(void **state)
{
    static const uint16_t versions[] = {0,    SP_WIRE_VERSION - 1, SP_WIRE_VERSION + 1, 255, 256,
                                        65535};
    static const uint16_t ops[] = {0, SP_WIRE_OP_MAX, SP_WIRE_OP_MAX + 1, 256, 257, 65535};

    (void)state;
    for (size_t i = 0; i < sizeof versions / sizeof versions[0]; i++) {
        const struct sp_wire_call call = a_call(versions[i], SP_WIRE_SIGNAL);

        send_raw(&call, sizeof call, 2);
        assert_int_equal(receive(), -SP_E_MALFORMED);
    }
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        const struct sp_wire_call call = a_call(SP_WIRE_VERSION, ops[i]);

        send_raw(&call, sizeof call, 1);
        assert_int_equal(receive(), -SP_E_MALFORMED);
        assert_string_not_equal(error.msg, "");
    }
}

static void test_the_largest_datagram_fits_and_a_larger_one_is_refused(void **state)
{
    static union {
        struct sp_wire_head head;
        char bytes[SP_WIRE_MAX + 100];
    } m = {.head = {.version = SP_WIRE_VERSION, .op = SP_WIRE_START}};

    (void)state;
    send_raw(&m, SP_WIRE_MAX, 0);
    assert_int_equal(receive(), 1);
    assert_int_equal(message.len, SP_WIRE_MAX);
    send_raw(&m, SP_WIRE_MAX + 1, 1);
    assert_int_equal(receive(), -SP_E_MALFORMED);
    send_raw(&m, SP_WIRE_MAX + 100, 1);
    assert_int_equal(receive(), -SP_E_MALFORMED);
}

static void test_descriptors_beyond_the_most_are_closed_and_told(void **state)
{
    static const int counts[] = {SP_WIRE_FDS + 1, SP_WIRE_FDS + 2, 64, 250};
    const struct sp_wire_call call = a_call(SP_WIRE_VERSION, SP_WIRE_SIGNAL);
    const int before = open_fds();

    (void)state;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        send_raw(&call, sizeof call, counts[i]);
        assert_int_equal(receive(), 1);
        assert_int_equal(message.fd_count, SP_WIRE_FDS);
        assert_true(message.is_cut);
        assert_int_equal(open_fds(), before + SP_WIRE_FDS);
        sp_wire_close_fds(&message);
        assert_int_equal(open_fds(), before);
    }
}

static void test_a_refused_message_keeps_no_descriptor(void **state)
{
    const struct sp_wire_call call = a_call(9, 9);
    const int before = open_fds();

    (void)state;
    for (int n = 1; n < 12; n++) {
        send_raw(&call, sizeof call, n);
        assert_int_equal(receive(), -SP_E_MALFORMED);
        assert_int_equal(open_fds(), before);
        send_raw(&call, 3, n);
        assert_int_equal(receive(), -SP_E_MALFORMED);
        assert_int_equal(open_fds(), before);
    }
}

static void test_an_empty_message_keeps_no_descriptor(void **state)
{
    const int before = open_fds();

    (void)state;
    send_raw("", 0, 3);
    assert_true(receive() < 0);
    assert_int_equal(open_fds(), before);
}

/* A full table of descriptors: the message arrives, what it carried does not, and that is told. */
static void test_descriptors_without_a_place_are_told(void **state)
{
    const struct sp_wire_started started = {
        .head = {.version = SP_WIRE_VERSION, .op = SP_WIRE_STARTED}};
    const int before = open_fds();
    struct rlimit was;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    const int next = dup(far_end);
    (void)close(next);
    send_raw(&started, sizeof started, 3);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &(struct rlimit){(rlim_t)next + 1, was.rlim_max}), 0);
    const int r = receive();
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    assert_int_equal(r, 1);
    assert_true(message.is_cut);
    assert_true(message.fd_count <= 1);
    sp_wire_close_fds(&message);
    assert_int_equal(open_fds(), before);
}

static void test_the_end_of_the_other_side_is_no_system_error(void **state)
{
    (void)state;
    (void)close(far_end);
    far_end = -1;
    assert_int_equal(receive(), -SP_E_STATE);
    assert_int_equal(error.sys, 0);
    const struct sp_wire_call call = a_call(SP_WIRE_VERSION, SP_WIRE_SIGNAL);
    assert_int_equal(sp_wire_send(near_end, false, &call, sizeof call, NULL, 0, NULL, 0), -EPIPE);
}

static void test_a_full_socket_says_so(void **state)
{
    const struct sp_wire_call call = a_call(SP_WIRE_VERSION, SP_WIRE_SIGNAL);
    static char tail[8192];
    int sent = 0;
    int r;

    (void)state;
    while ((r = sp_wire_send(far_end, false, &call, sizeof call, tail, sizeof tail, NULL, 0)) == 0)
        assert_true(++sent < 10000);
    assert_int_equal(r, -EAGAIN);
    for (int i = 0; i < sent; i++)
        assert_int_equal(receive(), 1);
    assert_int_equal(receive(), 0);
}

/* ---- the strings of a START ---- */

static bool reads(uint32_t argc, uint32_t envc, struct sp_str text)
{
    const struct sp_wire_start s = {.argc = argc, .envc = envc, .string_bytes = (uint32_t)text.n};
    const size_t room = (size_t)argc + envc + 2;
    struct sp_wire_strings found;
    char *copy = test_copy(text); /* where the sanitizer sees the first byte too many */
    char **pointers = calloc(room, sizeof *pointers);

    assert_non_null(pointers);
    const bool ok = sp_wire_read_strings(&s, copy, text.n, pointers, &found);
    if (ok) {
        assert_ptr_equal(found.cwd, copy);
        assert_ptr_equal(found.file, copy + strlen(copy) + 1);
        assert_null(found.argv[argc]);
        assert_null(found.envp[envc]);
        for (uint32_t i = 0; i < argc; i++)
            assert_true(found.argv[i] > found.file && found.argv[i] < copy + text.n);
        for (uint32_t i = 0; i < envc; i++)
            assert_true(found.envp[i] > found.argv[argc - 1] && found.envp[i] < copy + text.n);
    }
    free((void *)pointers);
    free(copy);
    return ok;
}

static void test_strings_are_laid_out_in_their_order(void **state)
{
    static char text[] = "/cwd\0file\0a0\0\0a2\0A=1\0=";
    const struct sp_wire_start s = {.argc = 3, .envc = 2};
    struct sp_wire_strings found;
    char *pointers[7];

    (void)state;
    assert_true(sp_wire_read_strings(&s, text, sizeof text, pointers, &found));
    assert_string_equal(found.cwd, "/cwd");
    assert_string_equal(found.file, "file");
    assert_string_equal(found.argv[0], "a0");
    assert_string_equal(found.argv[1], "");
    assert_string_equal(found.argv[2], "a2");
    assert_null(found.argv[3]);
    assert_string_equal(found.envp[0], "A=1");
    assert_string_equal(found.envp[1], "=");
    assert_null(found.envp[2]);
}

static void test_bad_counts_of_strings_are_refused(void **state)
{
    (void)state;
    assert_true(reads(1, 0, SP_STR("c\0f\0a\0")));
    assert_true(reads(1, 1, SP_STR("c\0f\0a\0e\0")));
    assert_true(reads(1, 0, SP_STR("\0\0\0")));
    assert_false(reads(0, 0, SP_STR("c\0f\0"))); /* no argv[0] */
    assert_false(reads(0, 1, SP_STR("c\0f\0e\0")));
    assert_false(reads(1, 0, SP_STR("")));        /* nothing at all */
    assert_false(reads(1, 0, SP_STR("c\0f\0a"))); /* does not end */
    assert_false(reads(1, 0, SP_STR("c\0f\0")));  /* too few */
    assert_false(reads(2, 0, SP_STR("c\0f\0a\0")));
    assert_false(reads(1, 1, SP_STR("c\0f\0a\0")));
    assert_false(reads(1, 0, SP_STR("c\0f\0a\0b\0"))); /* too many */
    assert_false(reads(1, 0, SP_STR("c\0f\0a\0\0")));
    assert_false(reads(1, 1, SP_STR("c\0f\0a\0e\0\0")));
    assert_false(reads(1, 0, SP_STR("xxxxxx")));
    assert_false(reads(1, 0, SP_STR("xxxxx\0")));
}

static void test_counts_that_overflow_are_refused(void **state)
{
    static const uint32_t counts[][2] = {{UINT32_MAX, 0},
                                         {1, UINT32_MAX},
                                         {UINT32_MAX, UINT32_MAX},
                                         {UINT32_MAX - 1, 3},
                                         {0x80000000U, 0x80000000U}};
    char text[] = "c\0f\0a";
    struct sp_wire_strings found;
    char *pointers[3];

    (void)state;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        const struct sp_wire_start s = {.argc = counts[i][0], .envc = counts[i][1]};

        assert_false(sp_wire_read_strings(&s, text, sizeof text, pointers, &found));
    }
}

static void test_memory_is_waited_for_by_who_can_wait(void **state)
{
    const struct sp_wire_done m = {.head = {.version = SP_WIRE_VERSION, .op = SP_WIRE_DONE},
                                   .token = 7};

    (void)state;
    short_sends = 1;
    assert_int_equal(sp_wire_send(near_end, false, &m, sizeof m, NULL, 0, NULL, 0), -ENOMEM);
    assert_true(sp_wire_is_short(-ENOMEM));
    short_sends = 3;
    assert_int_equal(sp_wire_send(near_end, true, &m, sizeof m, NULL, 0, NULL, 0), 0);
    assert_int_equal(short_sends, 0);
    assert_int_equal(sp_wire_recv(far_end, false, &message, &error), 1);
    assert_int_equal(((const struct sp_wire_done *)(const void *)message.bytes)->token, 7);
}

static void test_more_strings_than_the_most_are_refused(void **state)
{
    const size_t size = SP_WIRE_STRINGS + 1U;
    char *text = malloc(size);
    const struct sp_wire_start s = {.argc = 1};
    struct sp_wire_strings found;
    char *pointers[3];

    (void)state;
    assert_non_null(text);
    memset(text, 'x', size);
    text[1] = text[3] = text[size - 2] = text[size - 1] = 0;
    assert_true(sp_wire_read_strings(&s, text, size - 1, pointers, &found));
    assert_int_equal(strlen(found.argv[0]), size - 6);
    text[size - 2] = 'x';
    assert_false(sp_wire_read_strings(&s, text, size, pointers, &found));
    free(text);
}

#define wire_test(f) cmocka_unit_test_setup_teardown(f, make_pair, close_pair)

static const struct CMUnitTest tests[] = {
    wire_test(test_a_message_arrives_as_it_was_sent),
    wire_test(test_descriptors_arrive_closed_on_exec),
    wire_test(test_every_op_has_a_least_size),
    wire_test(test_foreign_versions_and_ops_are_refused),
    wire_test(test_the_largest_datagram_fits_and_a_larger_one_is_refused),
    wire_test(test_descriptors_beyond_the_most_are_closed_and_told),
    wire_test(test_a_refused_message_keeps_no_descriptor),
    wire_test(test_an_empty_message_keeps_no_descriptor),
    wire_test(test_descriptors_without_a_place_are_told),
    wire_test(test_the_end_of_the_other_side_is_no_system_error),
    wire_test(test_a_full_socket_says_so),
    wire_test(test_memory_is_waited_for_by_who_can_wait),
    cmocka_unit_test(test_strings_are_laid_out_in_their_order),
    cmocka_unit_test(test_bad_counts_of_strings_are_refused),
    cmocka_unit_test(test_counts_that_overflow_are_refused),
    cmocka_unit_test(test_more_strings_than_the_most_are_refused),
};

TEST_MAIN(tests)
