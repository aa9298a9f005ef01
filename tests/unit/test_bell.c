/* SPDX-License-Identifier: Apache-2.0 */
#include <sched.h>
#include <sys/mman.h>

#include "bell_fixture.h"
#include "cell/bell.h"
#include "process_fixture.h"

static struct sp_bell front, cell;

static void begin(uint32_t slots)
{
    struct sp_err e = {0};

    assert_int_equal(sp_bell_new(slots, &front, &e), 0);
    assert_int_equal(front.side, SP_SIDE_FRONT);
    assert_int_equal(
        sp_bell_join(front.page_fd, slots, -1, dup(front.wake[SP_SIDE_CELL]), &cell, &e), 0);
    assert_int_equal(cell.side, SP_SIDE_CELL);
}

static void end(void)
{
    sp_bell_free(&cell);
    sp_bell_free(&front);
    sp_bell_free(&front); /* none is fine */
}

struct heard {
    uint32_t slots[64];
    unsigned count;
};

static void hear(void *user, uint32_t slot)
{
    struct heard *h = user;

    if (h->count < 64)
        h->slots[h->count] = slot;
    h->count++;
}

static struct heard answer(struct sp_bell *b)
{
    struct heard h = {0};

    const bool found = sp_bell_answer(b, hear, &h);

    assert_int_equal(found, h.count != 0);
    return h;
}

static void test_a_mark_is_heard_once_by_the_other_side_alone(void **state)
{
    (void)state;
    begin(100);
    assert_int_equal(answer(&cell).count, 0);
    ring_bell(&front, 7);
    ring_bell(&front, 7);
    assert_int_equal(answer(&front).count, 0);
    struct heard h = answer(&cell);
    assert_int_equal(h.count, 1);
    assert_int_equal(h.slots[0], 7);
    assert_int_equal(answer(&cell).count, 0);
    ring_bell(&cell, 99);
    assert_int_equal(answer(&cell).count, 0);
    h = answer(&front);
    assert_int_equal(h.count, 1);
    assert_int_equal(h.slots[0], 99);
    end();
}

static void test_slots_at_the_borders_of_words_are_apart(void **state)
{
    static const uint32_t borders[] = {0,   1,   62,   63,   64,   65,   127,  128,  511,
                                       512, 513, 1023, 1024, 4095, 4096, 4097, 9998, 9999};
    const unsigned n = sizeof borders / sizeof borders[0];

    (void)state;
    begin(10000);
    for (unsigned i = 0; i < n; i++) {
        ring_bell(&cell, borders[i]);
        const struct heard h = answer(&front);
        assert_int_equal(h.count, 1);
        assert_int_equal(h.slots[0], borders[i]);
    }
    for (unsigned i = n; i-- > 0;)
        ring_bell(&cell, borders[i]);
    const struct heard h = answer(&front);
    assert_int_equal(h.count, n);
    for (unsigned i = 0; i < n; i++)
        assert_int_equal(h.slots[i], borders[i]);
    assert_int_equal(answer(&cell).count, 0);
    end();
}

static void test_every_count_of_slots_has_its_last_one(void **state)
{
    (void)state;
    for (uint32_t slots = 1; slots <= 1100; slots += slots < 600 ? 37 : 173) {
        begin(slots);
        ring_bell(&front, slots - 1);
        sp_bell_serve(&front, slots - 1, true, (struct sp_served){77, 55});
        const struct heard h = answer(&cell);
        struct sp_served served = {0};

        assert_int_equal(h.count, 1);
        assert_int_equal(h.slots[0], slots - 1);
        assert_true(sp_bell_served(&cell, slots - 1, &served));
        assert_int_equal(served.sent, 77);
        assert_int_equal(served.confirmed, 55);
        assert_int_equal(answer(&front).count, 0);
        end();
    }
}

/* A mark outside of the slots, in the padding of the bitmap, belongs to nobody. */
static void test_a_mark_for_no_slot_calls_nobody(void **state)
{
    (void)state;
    begin(10);
    ring_bell(&cell, 40);
    assert_true(sp_bell_answer(&front, hear, &(struct heard){0}));
    ring_bell(&cell, 40);
    struct heard h = {0};
    (void)sp_bell_answer(&front, hear, &h);
    assert_int_equal(h.count, 0);
    assert_true(sp_bell_may_sleep(&front));
    sp_bell_awake(&front);
    end();
}

static void test_only_a_sleeper_is_woken(void **state)
{
    (void)state;
    begin(4);
    ring_bell(&front, 1);
    assert_false(wait_fd(cell.wake[SP_SIDE_CELL], POLLIN, 0));
    assert_false(sp_bell_may_sleep(&cell)); /* a mark is there */
    (void)answer(&cell);
    assert_true(sp_bell_may_sleep(&cell));
    ring_bell(&front, 1);
    assert_true(wait_fd(cell.wake[SP_SIDE_CELL], POLLIN, 0));
    sp_bell_drain(&cell);
    assert_false(wait_fd(cell.wake[SP_SIDE_CELL], POLLIN, 0));
    sp_bell_drain(&cell); /* nothing there is fine */
    /* Woken once: until it sleeps again nobody writes. */
    ring_bell(&front, 2);
    assert_false(wait_fd(cell.wake[SP_SIDE_CELL], POLLIN, 0));
    sp_bell_awake(&cell);
    assert_int_equal(answer(&cell).count, 2);
    end();
}

static void test_marks_wake_only_when_they_are_told_to(void **state)
{
    (void)state;
    begin(4);
    assert_true(sp_bell_may_sleep(&front));
    sp_bell_wake(&cell); /* nothing was marked */
    assert_false(wait_fd(front.wake[SP_SIDE_FRONT], POLLIN, 0));
    sp_bell_mark(&cell, 1);
    sp_bell_mark(&cell, 2);
    assert_false(wait_fd(front.wake[SP_SIDE_FRONT], POLLIN, 0));
    sp_bell_wake(&cell);
    assert_true(wait_fd(front.wake[SP_SIDE_FRONT], POLLIN, 0));
    sp_bell_drain(&front);
    sp_bell_awake(&front);
    assert_int_equal(answer(&front).count, 2);
    assert_true(sp_bell_may_sleep(&front));
    sp_bell_wake(&cell); /* woken for these already */
    assert_false(wait_fd(front.wake[SP_SIDE_FRONT], POLLIN, 0));
    end();
}

/* The other side has ended: to wake it is no error and no signal. */
static void test_nobody_is_woken_without_harm(void **state)
{
    (void)state;
    begin(4);
    assert_true(sp_bell_may_sleep(&cell));
    (void)close(front.wake[SP_SIDE_CELL]);
    front.wake[SP_SIDE_CELL] = -1;
    (void)close(cell.wake[SP_SIDE_CELL]);
    cell.wake[SP_SIDE_CELL] = -1;
    ring_bell(&front, 1);
    assert_true(wait_fd(front.wake[SP_SIDE_FRONT], POLLIN, DEADLINE_MS)); /* it reads as ended */
    sp_bell_drain(&front);
    end();
}

static void test_the_served_word_needs_an_attached_client(void **state)
{
    struct sp_served served;

    (void)state;
    begin(3);
    assert_false(sp_bell_served(&cell, 2, &served));
    sp_bell_serve(&front, 2, true, (struct sp_served){(uint64_t)1 << 40, 7});
    assert_true(sp_bell_served(&cell, 2, &served));
    assert_int_equal(served.sent, (uint64_t)1 << 40);
    assert_int_equal(served.confirmed, 7);
    assert_false(sp_bell_served(&cell, 1, &served));
    sp_bell_serve(&front, 2, false, (struct sp_served){5, 4});
    assert_false(sp_bell_served(&cell, 2, &served));
    sp_bell_serve(&front, 2, true, (struct sp_served){6, 5});
    assert_true(sp_bell_served(&cell, 2, &served));
    assert_int_equal(served.sent, 6);
    assert_int_equal(served.confirmed, 5);
    end();
}

static void test_a_page_of_another_size_is_refused(void **state)
{
    const int before = open_fds();
    struct sp_bell joined = {.page_fd = -1, .wake = {-1, -1}};
    struct sp_err e = {0};
    int fd[2];

    (void)state;
    begin(100);
    assert_int_equal(sp_bell_join(front.page_fd, 100000, 0, 1, &joined, &e), -SP_E_MALFORMED);
    assert_string_not_equal(e.msg, "");
    assert_int_equal(sp_bell_join(front.page_fd, 1, 0, 1, &joined, &e), -SP_E_MALFORMED);
    assert_int_equal(pipe2(fd, O_CLOEXEC), 0);
    assert_int_equal(sp_bell_join(fd[0], 100, 0, 1, &joined, &e), -SP_E_MALFORMED);
    assert_int_equal(sp_bell_join(-1, 100, 0, 1, &joined, &e), -SP_E_MALFORMED);
    assert_null(joined.page);
    (void)close(fd[0]);
    (void)close(fd[1]);
    end();
    assert_int_equal(open_fds(), before);
}

/* ---- two processes ---- */

#define ROUNDS 20000

static bool wait_for_mark(struct sp_bell *b, struct heard *h)
{
    h->count = 0;
    while (!sp_bell_answer(b, hear, h)) {
        if (!sp_bell_may_sleep(b))
            continue;
        if (!wait_fd(b->wake[b->side], POLLIN, DEADLINE_MS))
            return false;
        sp_bell_drain(b);
        sp_bell_awake(b);
    }
    return true;
}

static void test_no_wake_up_is_lost_in_twenty_thousand(void **state)
{
    (void)state;
    begin(1000);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct heard h;

        for (uint32_t i = 0; i < ROUNDS; i++) {
            CHILD_CHECK(wait_for_mark(&cell, &h));
            CHILD_CHECK(h.count == 1 && h.slots[0] == i % 1000);
            ring_bell(&cell, (i * 7) % 1000);
        }
        _exit(0);
    }
    for (uint32_t i = 0; i < ROUNDS; i++) {
        struct heard h;

        ring_bell(&front, i % 1000);
        if (!wait_for_mark(&front, &h))
            fail_msg("round %u: the wake-up was lost", i);
        assert_int_equal(h.count, 1);
        assert_int_equal(h.slots[0], (i * 7) % 1000);
    }
    assert_int_equal(reap(pid, DEADLINE_MS), 0);
    end();
}

/* One side rings as it likes, the other sleeps whenever it may: every slot's last word arrives. */
static void test_what_was_stored_before_the_ring_is_seen_after_it(void **state)
{
    void *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    _Atomic uint32_t *words = map;
    uint32_t seen[8] = {0};
    bool is_done = false;

    (void)state;
    assert_true(map != MAP_FAILED);
    begin(8);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        for (uint32_t i = 1; i <= ROUNDS; i++) {
            words[i % 8] = i;
            ring_bell(&cell, i % 8);
            if (i % 97 == 0)
                (void)sched_yield();
        }
        _exit(0);
    }
    while (!is_done) {
        struct heard h;

        if (!wait_for_mark(&front, &h))
            fail_msg("%s", "the last word was lost");
        for (unsigned i = 0; i < h.count; i++) {
            const uint32_t now = words[h.slots[i]];

            assert_true(now >= seen[h.slots[i]]);
            seen[h.slots[i]] = now;
        }
        is_done = true;
        for (uint32_t i = ROUNDS - 7; i <= ROUNDS; i++)
            is_done = is_done && seen[i % 8] == i;
    }
    assert_int_equal(reap(pid, DEADLINE_MS), 0);
    (void)munmap(map, 4096);
    end();
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_a_mark_is_heard_once_by_the_other_side_alone),
    cmocka_unit_test(test_slots_at_the_borders_of_words_are_apart),
    cmocka_unit_test(test_every_count_of_slots_has_its_last_one),
    cmocka_unit_test(test_a_mark_for_no_slot_calls_nobody),
    cmocka_unit_test(test_only_a_sleeper_is_woken),
    cmocka_unit_test(test_marks_wake_only_when_they_are_told_to),
    cmocka_unit_test(test_nobody_is_woken_without_harm),
    cmocka_unit_test(test_the_served_word_needs_an_attached_client),
    cmocka_unit_test(test_a_page_of_another_size_is_refused),
    cmocka_unit_test(test_no_wake_up_is_lost_in_twenty_thousand),
    cmocka_unit_test(test_what_was_stored_before_the_ring_is_seen_after_it),
};

TEST_MAIN(tests)
