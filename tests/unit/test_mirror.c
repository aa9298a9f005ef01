/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of what an executor says of a process, without an executor.
 */
#include <stdio.h>

#include "base/buf.h"
#include "engine/remote/mirror.h"
#include "test.h"

/* What was told, in a few characters: the bytes of output, "-" a gap, "x17" the exit (and its
 * verdict), "." the close. */
static struct owner {
    struct sp_mirror m;
    struct sp_buf told;
    unsigned room; /* outputs it takes before it refuses */
    bool ends_at_output;
} o;

static bool on_output(void *user, enum sp_stream stream, struct sp_str bytes)
{
    (void)user;
    (void)stream;
    if (o.room == 0)
        return false;
    o.room--;
    assert_true(bytes.n != 0);
    assert_true(sp_buf_add_str(&o.told, bytes));
    if (o.ends_at_output)
        sp_mirror_done(&o.m);
    return true;
}

static void on_gap(void *user)
{
    (void)user;
    assert_true(sp_buf_add(&o.told, "-", 1));
}

static void on_exited(void *user, int code, int denied)
{
    (void)user;
    assert_true(sp_buf_printf(&o.told, "x%d%s", code, denied < 0 ? "?" : denied > 0 ? "!" : ""));
}

static void on_closed(void *user)
{
    (void)user;
    assert_true(sp_buf_add(&o.told, ".", 1));
}

static int setup(void **state)
{
    static const struct sp_mirror_ops ops = {on_output, on_gap, on_exited, on_closed};

    (void)state;
    o = (struct owner){.room = UINT32_MAX};
    sp_mirror_init(&o.m, &ops, NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sp_mirror_done(&o.m);
    sp_buf_done(&o.told);
    return 0;
}

static void output(uint64_t seq, const char *text)
{
    struct sp_err e;

    assert_int_equal(sp_mirror_output(&o.m, seq, SP_STREAM_STDOUT, sp_str_of(text), &e), 0);
    sp_mirror_tell(&o.m);
}

static void exited(uint64_t seq, int code, int denied)
{
    struct sp_err e;

    assert_int_equal(sp_mirror_exited(&o.m, seq, code, denied, &e), 0);
    sp_mirror_tell(&o.m);
}

static void closed(uint64_t seq)
{
    struct sp_err e;

    assert_int_equal(sp_mirror_closed(&o.m, seq, &e), 0);
    sp_mirror_tell(&o.m);
}

/* An answer; chunks: pairs of a number and a letter, "1a2b". */
static int answer(struct sp_mirror_answer a, const char *chunks)
{
    struct sp_err e;

    for (; *chunks != 0; chunks += 2)
        if (sp_mirror_add_chunk(&o.m, &a, (uint64_t)(chunks[0] - '0'), SP_STREAM_STDOUT,
                                (struct sp_str){chunks + 1, 1}, &e) < 0) {
            sp_mirror_drop_answer(&a);
            return -1;
        }
    const int r = sp_mirror_end_read(&o.m, &a, &e);
    sp_mirror_tell(&o.m);
    return r;
}

static void assert_told(const char *text)
{
    assert_int_equal(o.told.len, strlen(text));
    assert_memory_equal(o.told.len == 0 ? "" : o.told.data, text, o.told.len);
}

#define ANSWER(...) ((struct sp_mirror_answer){__VA_ARGS__})

/* ---- events ---- */

static void events_are_put_in_order(void **state)
{
    (void)state;
    output(1, "a");
    output(3, "c");
    assert_told("a");
    assert_int_not_equal(sp_mirror_needs(&o.m), SP_MIRROR_NOTHING);
    output(2, "b");
    output(2, "b");
    output(1, "a");
    output(3, "c");
    assert_told("abc");
    assert_int_equal(sp_mirror_needs(&o.m), SP_MIRROR_NOTHING);
}

static void a_missing_first_number_is_read_once(void **state)
{
    auto_buf struct sp_buf want = {0};

    (void)state;
    for (uint64_t i = 2; i <= 257; i++)
        output(i, "x");
    assert_told("");
    assert_int_equal(sp_mirror_begin_read(&o.m), 0);
    struct sp_mirror_answer a =
        ANSWER(.next_seq = 1026, .has_exited = true, .code = 0, .denied = 0);
    struct sp_err e;
    for (uint64_t i = 1; i <= 1024; i++) {
        assert_int_equal(sp_mirror_add_chunk(&o.m, &a, i, SP_STREAM_STDOUT, SP_STR("x"), &e), 0);
        assert_true(sp_buf_add(&want, "x", 1));
    }
    assert_int_equal(sp_mirror_end_read(&o.m, &a, &e), 0);
    sp_mirror_tell(&o.m);
    for (uint64_t i = 258; i <= 1024; i++)
        output(i, "x"); /* late, and known */
    exited(1025, 0, 0);
    assert_true(sp_buf_printf(&want, "x0") && sp_buf_add(&want, "", 1));
    assert_told(want.data);
    assert_int_equal(sp_mirror_needs(&o.m), SP_MIRROR_NOTHING);
}

static void late_output_comes_between_exit_and_close(void **state)
{
    (void)state;
    exited(1, 4, 0);
    assert_told("x4");
    output(2, "late");
    closed(3);
    output(4, "never");
    assert_told("x4late.");
}

/* The case of a burst behind a missing number: what is not held is read with the rest. */
static void what_comes_too_early_is_dropped_and_read(void **state)
{
    struct sp_err e;

    (void)state;
    for (uint64_t i = 2; i <= 1024; i++)
        output(i, "x");
    exited(1025, 0, 0);
    assert_int_equal(o.m.held_count, SP_MIRROR_MAX_EVENTS);
    assert_int_equal(sp_mirror_begin_read(&o.m), 0);
    struct sp_mirror_answer a = ANSWER(.next_seq = 1026, .has_exited = true, .code = 0);
    for (uint64_t i = 1; i <= 1024; i++)
        assert_int_equal(sp_mirror_add_chunk(&o.m, &a, i, SP_STREAM_STDOUT, SP_STR("x"), &e), 0);
    assert_int_equal(sp_mirror_end_read(&o.m, &a, &e), 0);
    sp_mirror_tell(&o.m);
    assert_int_equal(o.told.len, 1024 + 2);
    assert_memory_equal(o.told.data + 1023, "xx0", 3);
    assert_int_equal(sp_mirror_needs(&o.m), SP_MIRROR_NOTHING);
}

static void a_drop_is_read_even_if_the_gap_closes(void **state)
{
    (void)state;
    for (uint64_t i = 2; i <= 258; i++)
        output(i, "x");
    output(1, "x");
    assert_int_equal(o.told.len, 257);
    assert_int_not_equal(sp_mirror_needs(&o.m), SP_MIRROR_NOTHING);
    assert_int_equal(sp_mirror_begin_read(&o.m), 257);
    struct sp_mirror_answer a = ANSWER(.next_seq = 259);
    struct sp_err e;
    assert_int_equal(sp_mirror_add_chunk(&o.m, &a, 258, SP_STREAM_STDOUT, SP_STR("y"), &e), 0);
    assert_int_equal(sp_mirror_end_read(&o.m, &a, &e), 0);
    sp_mirror_tell(&o.m);
    assert_int_equal(o.told.data[257], 'y');
    assert_int_equal(sp_mirror_needs(&o.m), SP_MIRROR_NOTHING);
}

static void drops_without_end_are_an_error(void **state)
{
    struct sp_err e;
    int r = 0;

    (void)state;
    uint64_t seq = 2;
    for (; r == 0 && seq < 100000; seq++)
        r = sp_mirror_output(&o.m, seq, SP_STREAM_PTY, SP_STR("x"), &e);
    assert_int_equal(r, -SP_E_LIMIT);
    assert_int_equal(seq, 2 + SP_MIRROR_MAX_EVENTS + SP_MIRROR_MAX_DROPS + 1);
    assert_non_null(strstr(e.msg, "reorder buffer exceeds 256 events"));
}

static void early_bytes_are_bounded(void **state)
{
    static char block[(1 << 20) + 1];
    struct sp_err e;

    (void)state;
    memset(block, 'x', sizeof block);
    assert_int_equal(
        sp_mirror_output(&o.m, 2, SP_STREAM_STDOUT, (struct sp_str){block, sizeof block - 1}, &e),
        0);
    output(3, "y");
    assert_int_equal(o.m.held_bytes, sizeof block - 1);
    /* In order nothing is early, however large it is. */
    assert_int_equal(
        sp_mirror_output(&o.m, 1, SP_STREAM_STDOUT, (struct sp_str){block, sizeof block}, &e), 0);
    sp_mirror_tell(&o.m);
    assert_int_equal(o.told.len, 2 * sizeof block - 1);
    assert_int_not_equal(sp_mirror_needs(&o.m), SP_MIRROR_NOTHING); /* 3 */
}

static void impossible_numbers_are_refused(void **state)
{
    struct sp_err e;

    (void)state;
    assert_true(sp_mirror_output(&o.m, 0, SP_STREAM_STDOUT, SP_STR("x"), &e) < 0);
    assert_true(sp_mirror_closed(&o.m, UINT64_MAX, &e) < 0);
}

static void a_close_without_an_exit_has_one(void **state)
{
    (void)state;
    closed(1);
    assert_told("x-1?.");
}

static void a_second_exit_is_not_told(void **state)
{
    (void)state;
    exited(1, 1, 0);
    exited(2, 2, 0);
    closed(3);
    assert_told("x1.");
}

/* ---- verdicts ---- */

static void an_exit_without_a_verdict_waits_for_one(void **state)
{
    (void)state;
    output(1, "a");
    exited(2, 1, -1);
    assert_told("a");
    assert_int_not_equal(sp_mirror_needs(&o.m), SP_MIRROR_NOTHING);
    closed(3);
    assert_int_equal(sp_mirror_begin_read(&o.m), 3);
    assert_int_equal(answer(ANSWER(.next_seq = 4, .has_exited = true, .has_closed = true, .code = 1,
                                   .denied = 1),
                            ""),
                     0);
    assert_told("ax1!.");
}

static void a_read_that_knows_none_is_enough(void **state)
{
    (void)state;
    exited(1, 1, -1);
    (void)sp_mirror_begin_read(&o.m);
    assert_int_equal(answer(ANSWER(.next_seq = 2, .has_exited = true, .code = 1, .denied = -1), ""),
                     0);
    assert_told("x1?");
}

static void a_refused_read_is_enough(void **state)
{
    (void)state;
    exited(1, 1, -1);
    o.m.has_verdict = true;
    sp_mirror_tell(&o.m);
    assert_told("x1?");
}

/* ---- reads ---- */

static void an_end_that_was_missed_is_in_the_answer(void **state)
{
    (void)state;
    output(1, "a");
    output(2, "b");
    assert_int_equal(answer(ANSWER(.next_seq = 5, .has_exited = true, .has_closed = true, .code = 9,
                                   .denied = 0),
                            ""),
                     0);
    assert_told("abx9.");
    assert_int_equal(sp_mirror_needs(&o.m), SP_MIRROR_NOTHING);
}

static void the_exit_is_the_number_that_no_chunk_has(void **state)
{
    (void)state;
    output(1, "a");
    assert_int_equal(answer(ANSWER(.next_seq = 6, .has_exited = true, .has_closed = true, .code = 3,
                                   .denied = 0),
                            "2b4c"),
                     0);
    assert_told("abx3c.");
}

static void forgotten_output_is_a_gap(void **state)
{
    (void)state;
    output(1, "a");
    output(9, "i");
    assert_int_equal(sp_mirror_begin_read(&o.m), 1);
    assert_int_equal(answer(ANSWER(.next_seq = 10), "6f7g8h9i"), 0);
    assert_told("a-fghi");
    output(10, "j"); /* ten has no letter above, which is why it comes by itself */
    assert_told("a-fghij");
}

static void a_gap_and_the_exit_in_one_answer(void **state)
{
    (void)state;
    output(1, "a");
    /* 2 to 4 are forgotten, 5 and 6 are chunks, 7 is the exit, 8 a late chunk, 9 the close. */
    assert_int_equal(answer(ANSWER(.next_seq = 10, .has_exited = true, .has_closed = true,
                                   .code = 0, .denied = 0),
                            "5e6f8h"),
                     0);
    assert_told("a-efx0h.");
}

static void an_exit_within_what_was_forgotten(void **state)
{
    (void)state;
    assert_int_equal(
        answer(ANSWER(.next_seq = 8, .has_exited = true, .code = 2, .denied = 0), "6f7g"), 0);
    assert_told("-x2fg");
}

static void nothing_new_is_nothing(void **state)
{
    (void)state;
    output(1, "a");
    assert_int_equal(answer(ANSWER(.next_seq = 2), "1a"), 0);
    assert_int_equal(answer(ANSWER(.next_seq = 0), ""), 0);
    assert_told("a");
}

static void held_events_are_merged_with_the_answer(void **state)
{
    (void)state;
    output(3, "c");
    exited(5, 0, 0);
    closed(6);
    assert_int_equal(sp_mirror_begin_read(&o.m), 0);
    assert_int_equal(answer(ANSWER(.next_seq = 7, .has_exited = true, .has_closed = true, .code = 0,
                                   .denied = 0),
                            "1a2b3c4d"),
                     0);
    assert_told("abcdx0.");
}

static void an_answer_older_than_what_is_held_asks_again(void **state)
{
    (void)state;
    output(2, "b");
    assert_int_equal(sp_mirror_begin_read(&o.m), 0);
    output(5, "e"); /* after the question */
    assert_int_equal(answer(ANSWER(.next_seq = 4), "1a2b3c"), 0);
    assert_told("abc");
    assert_int_not_equal(sp_mirror_needs(&o.m), SP_MIRROR_NOTHING);
    assert_int_equal(sp_mirror_begin_read(&o.m), 3);
    assert_int_equal(answer(ANSWER(.next_seq = 6), "4d5e"), 0);
    assert_told("abcde");
}

static void a_hole_that_stays_is_an_error(void **state)
{
    (void)state;
    output(5, "e");
    (void)sp_mirror_begin_read(&o.m);
    assert_true(answer(ANSWER(.next_seq = 3), "1a2b") < 0);
}

static void chunks_out_of_order_are_an_error(void **state)
{
    (void)state;
    assert_true(answer(ANSWER(.next_seq = 9), "2b1a") < 0);
    assert_true(answer(ANSWER(.next_seq = 2), "2b") < 0);
}

static void a_number_near_the_end_of_all_is_no_loop(void **state)
{
    (void)state;
    assert_int_equal(answer(ANSWER(.next_seq = UINT64_MAX), "1a"), 0);
    assert_told("a-");
}

/* ---- an owner that refuses, or ends ---- */

static void refused_output_comes_again(void **state)
{
    (void)state;
    o.room = 1;
    output(1, "a");
    output(2, "b");
    output(3, "c");
    exited(4, 0, 0);
    closed(5);
    assert_told("a");
    o.room = 1;
    sp_mirror_tell(&o.m);
    assert_told("a"); /* not before it is asked to go on */
    o.m.is_blocked = false;
    sp_mirror_tell(&o.m);
    assert_told("ab");
    o.room = 9;
    o.m.is_blocked = false;
    sp_mirror_tell(&o.m);
    assert_told("abcx0.");
}

static void what_waits_is_counted(void **state)
{
    static char block[SP_MIRROR_HIGH];
    struct sp_err e;

    (void)state;
    memset(block, 'x', sizeof block);
    o.room = 0;
    assert_int_equal(
        sp_mirror_output(&o.m, 1, SP_STREAM_STDOUT, (struct sp_str){block, sizeof block / 2}, &e),
        0);
    assert_false(sp_mirror_is_full(&o.m));
    assert_int_equal(
        sp_mirror_output(&o.m, 2, SP_STREAM_STDOUT, (struct sp_str){block, sizeof block / 2}, &e),
        0);
    assert_true(sp_mirror_is_full(&o.m));
    o.room = 2;
    o.m.is_blocked = false;
    sp_mirror_tell(&o.m);
    assert_false(sp_mirror_is_full(&o.m));
}

static void what_is_empty_is_counted_too(void **state)
{
    (void)state;
    o.room = 0;
    output(1, "x");
    for (uint64_t seq = 2; seq < SP_MIRROR_HIGH / sizeof(uint64_t); seq++)
        output(seq, "");
    assert_true(sp_mirror_is_full(&o.m));
    o.room = 1;
    o.m.is_blocked = false;
    sp_mirror_tell(&o.m);
    assert_int_equal(o.m.waiting_bytes, 0);
}

/* The verdict comes by the connection that would not be read if this were too much. */
static void what_waits_for_a_verdict_is_not_too_much(void **state)
{
    static char block[SP_MIRROR_HIGH];
    struct sp_err e;

    (void)state;
    memset(block, 'x', sizeof block);
    exited(1, 0, -1);
    for (uint64_t seq = 2; seq < 5; seq++) {
        assert_int_equal(
            sp_mirror_output(&o.m, seq, SP_STREAM_STDOUT, (struct sp_str){block, sizeof block}, &e),
            0);
        sp_mirror_tell(&o.m);
        assert_true(sp_mirror_needs(&o.m) == SP_MIRROR_VERDICT);
        assert_false(sp_mirror_is_full(&o.m));
    }
    assert_int_equal(o.told.len, 0);
    /* There is an end to that. */
    assert_int_equal(
        sp_mirror_output(&o.m, 5, SP_STREAM_STDOUT, (struct sp_str){block, sizeof block}, &e), 0);
    sp_mirror_tell(&o.m);
    assert_memory_equal(o.told.data, "x0?x", 4);
    assert_int_equal(o.told.len, 3 + 4 * sizeof block);
}

static void an_owner_may_end_it_in_a_callback(void **state)
{
    (void)state;
    o.ends_at_output = true;
    output(2, "b");
    output(1, "a");
    output(3, "c");
    assert_told("a");
}

static void an_owner_may_end_it_among_what_waits(void **state)
{
    (void)state;
    o.room = 0;
    output(1, "a");
    output(2, "b");
    o.room = 2;
    o.ends_at_output = true;
    o.m.is_blocked = false;
    sp_mirror_tell(&o.m);
    assert_told("a");
}

/* ---- by chance ---- */

/* Every order of arrival, with repeats, drops and reads in between, tells the same story. */
static void any_order_tells_the_same(void **state)
{
    enum { CHUNKS = 60 };
    uint64_t random = 7;

    for (int round = 0; round < 300; round++) {
        unsigned char is_lost[CHUNKS + 1] = {0};
        uint64_t order[CHUNKS];

        (void)setup(state);
        for (uint64_t i = 0; i < CHUNKS; i++) {
            const uint64_t k = test_random(&random) % (i + 1);

            order[i] = order[k];
            order[k] = i + 1;
            is_lost[i + 1] = test_random(&random) % 4 == 0;
        }
        for (int i = 0; i < CHUNKS; i++) {
            const char text[2] = {(char)('A' + order[i] % 26), 0};

            if (!is_lost[order[i]])
                output(order[i], text);
        }
        struct sp_mirror_answer a = ANSWER(.next_seq = CHUNKS + 3, .has_exited = true,
                                           .has_closed = true, .code = 0, .denied = 0);
        const uint64_t after = sp_mirror_begin_read(&o.m);
        struct sp_err e;
        for (uint64_t i = after + 1; i <= CHUNKS; i++) {
            const char c = (char)('A' + i % 26);

            assert_int_equal(
                sp_mirror_add_chunk(&o.m, &a, i, SP_STREAM_STDOUT, (struct sp_str){&c, 1}, &e), 0);
        }
        assert_int_equal(sp_mirror_end_read(&o.m, &a, &e), 0);
        sp_mirror_tell(&o.m);
        assert_int_equal(o.told.len, CHUNKS + 3);
        for (uint64_t i = 0; i < CHUNKS; i++)
            assert_int_equal(o.told.data[i], 'A' + (i + 1) % 26);
        (void)teardown(state);
    }
    (void)setup(state);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

static const struct CMUnitTest tests[] = {
    CASE(events_are_put_in_order),
    CASE(a_missing_first_number_is_read_once),
    CASE(late_output_comes_between_exit_and_close),
    CASE(what_comes_too_early_is_dropped_and_read),
    CASE(a_drop_is_read_even_if_the_gap_closes),
    CASE(drops_without_end_are_an_error),
    CASE(early_bytes_are_bounded),
    CASE(impossible_numbers_are_refused),
    CASE(a_close_without_an_exit_has_one),
    CASE(a_second_exit_is_not_told),
    CASE(an_exit_without_a_verdict_waits_for_one),
    CASE(a_read_that_knows_none_is_enough),
    CASE(a_refused_read_is_enough),
    CASE(an_end_that_was_missed_is_in_the_answer),
    CASE(the_exit_is_the_number_that_no_chunk_has),
    CASE(forgotten_output_is_a_gap),
    CASE(a_gap_and_the_exit_in_one_answer),
    CASE(an_exit_within_what_was_forgotten),
    CASE(nothing_new_is_nothing),
    CASE(held_events_are_merged_with_the_answer),
    CASE(an_answer_older_than_what_is_held_asks_again),
    CASE(a_hole_that_stays_is_an_error),
    CASE(chunks_out_of_order_are_an_error),
    CASE(a_number_near_the_end_of_all_is_no_loop),
    CASE(refused_output_comes_again),
    CASE(what_waits_is_counted),
    CASE(what_is_empty_is_counted_too),
    CASE(what_waits_for_a_verdict_is_not_too_much),
    CASE(an_owner_may_end_it_in_a_callback),
    CASE(an_owner_may_end_it_among_what_waits),
    CASE(any_order_tells_the_same),
};

TEST_MAIN(tests)
