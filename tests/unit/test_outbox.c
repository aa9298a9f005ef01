/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/resource.h>
#include <sys/socket.h>

#include "cell/wire.h"
#include "core/outbox.h"
#include "memory_fixture.h"
#include "process_fixture.h"

static struct sp_outbox box;
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

static int begin(void **state)
{
    int pair[2];

    (void)state;
    fds_before = open_fds();
    box = (struct sp_outbox){0};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -1;
    near_end = pair[0];
    far_end = pair[1];
    return 0;
}

static int end(void **state)
{
    (void)state;
    sp_outbox_free(&box);
    assert_null(box.first);
    assert_int_equal(box.bytes, 0);
    (void)close(near_end);
    if (far_end >= 0)
        (void)close(far_end);
    return open_fds() == fds_before ? 0 : -1;
}

static struct sp_wire_call a_call(uint64_t number)
{
    return (struct sp_wire_call){
        .head = {.version = SP_WIRE_VERSION, .op = SP_WIRE_SIGNAL, .number = number}};
}

static bool add(uint64_t number, size_t tail_len, int fd)
{
    static char tail[60000];
    const struct sp_wire_call m = a_call(number);

    memset(tail, (int)number, sizeof tail);
    return sp_outbox_add(&box, &m, sizeof m, tail, tail_len, &fd, fd >= 0);
}

static void test_all_of_it_comes_in_order(void **state)
{
    uint64_t heard = 0;
    bool has_drained = false;

    (void)state;
    for (uint64_t i = 1; i <= 40; i++)
        assert_true(add(i, (size_t)(i * 1000), i % 3 == 0 ? near_end : -1));
    assert_true(box.bytes <= SP_OUTBOX_FULL);
    while (heard < 40) {
        has_drained = sp_outbox_send(&box, near_end) || has_drained;
        while (sp_wire_recv(far_end, false, &message, &error) == 1) {
            const struct sp_wire_call *m = (const void *)message.bytes;

            heard++;
            assert_int_equal(m->head.number, heard);
            assert_int_equal(message.len, sizeof *m + heard * 1000);
            assert_int_equal(message.bytes[message.len - 1], (char)heard);
            assert_int_equal(message.fd_count, heard % 3 == 0 ? 1 : 0);
            sp_wire_close_fds(&message);
        }
    }
    assert_false(has_drained); /* it was never full */
    assert_int_equal(box.bytes, 0);
}

static void test_it_tells_once_that_it_is_not_full_any_more(void **state)
{
    uint64_t n = 0;
    int told = 0;

    (void)state;
    while (box.bytes <= SP_OUTBOX_FULL)
        assert_true(add(++n, 50000, -1));
    assert_true(box.bytes > 1U << 20);
    while (box.first != NULL) {
        const size_t before = box.bytes;

        if (sp_outbox_send(&box, near_end)) {
            told++;
            assert_true(box.bytes < 1U << 19);
        }
        if (before > 1U << 19 && box.bytes >= 1U << 19)
            assert_int_equal(told, 0);
        while (sp_wire_recv(far_end, false, &message, &error) == 1)
            n--;
    }
    while (sp_wire_recv(far_end, false, &message, &error) == 1)
        n--;
    assert_int_equal(n, 0);
    assert_int_equal(told, 1);
}

static void test_nobody_is_there_any_more(void **state)
{
    (void)state;
    assert_true(add(1, 10, near_end));
    assert_true(add(2, 10, near_end));
    (void)close(far_end);
    far_end = -1;
    assert_false(sp_outbox_send(&box, near_end));
    assert_null(box.first);
    assert_int_equal(open_fds(), fds_before + 1);
}

/* Neither half a message nor one without its descriptor. */
static void test_no_memory_and_no_room(void **state)
{
    struct rlimit before;

    (void)state;
    end_memory_at(1);
    assert_false(add(1, 10, near_end));
    assert_true(did_memory_end());
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    const struct rlimit low = {.rlim_cur = 5, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    const bool was_added = add(1, 10, near_end);
    const bool was_added_without = add(2, 10, -1);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_false(was_added);
    assert_true(was_added_without);
    assert_int_equal(box.bytes, sizeof(struct sp_wire_call) + 10);
    sp_outbox_free(&box);
    sp_outbox_free(&box);
}

/* The kernel has none for a message: it stays first. malloc has none: the reserve has. */
static void test_memory_comes_back(void **state)
{
    (void)state;
    assert_true(sp_outbox_reserve(&box));
    for (uint64_t i = 1; i <= SP_OUTBOX_RESERVE; i++) {
        end_memory_at(1);
        assert_true(add(i, 0, -1));
        assert_true(did_memory_end());
    }
    end_memory_at(1);
    assert_false(add(99, 0, -1));
    assert_true(did_memory_end());
    short_sends = 1;
    assert_false(sp_outbox_send(&box, near_end));
    assert_true(box.is_short);
    assert_int_equal(box.bytes, SP_OUTBOX_RESERVE * sizeof(struct sp_wire_call));
    for (uint64_t heard = 0; heard < SP_OUTBOX_RESERVE;) {
        (void)sp_outbox_send(&box, near_end);
        assert_false(box.is_short);
        while (sp_wire_recv(far_end, false, &message, &error) == 1)
            assert_int_equal(((const struct sp_wire_head *)(void *)message.bytes)->number, ++heard);
    }
    assert_null(box.first);
    end_memory_at(1);
    assert_true(add(1, 0, -1)); /* what was taken is there again */
    assert_true(did_memory_end());
    sp_outbox_free(&box);
    assert_null(box.reserve);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_all_of_it_comes_in_order, begin, end),
        cmocka_unit_test_setup_teardown(test_it_tells_once_that_it_is_not_full_any_more, begin,
                                        end),
        cmocka_unit_test_setup_teardown(test_nobody_is_there_any_more, begin, end),
        cmocka_unit_test_setup_teardown(test_no_memory_and_no_room, begin, end),
        cmocka_unit_test_setup_teardown(test_memory_comes_back, begin, end),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
