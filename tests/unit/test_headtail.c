/* SPDX-License-Identifier: Apache-2.0 */
#include "base/headtail.h"
#include "memory_fixture.h"
#include "test.h"

static struct sp_headtail empty(size_t capacity)
{
    struct sp_headtail h;

    sp_headtail_init(&h, capacity);
    return h;
}

static void push(struct sp_headtail *h, const char *text)
{
    char *exact = test_copy(sp_str_of(text));

    assert_true(sp_headtail_push(h, (struct sp_str){exact, strlen(text)}));
    free(exact);
}

static void holds(const struct sp_headtail *h, const char *raw, uint64_t omitted)
{
    auto_buf struct sp_buf out = {0};

    assert_true(sp_headtail_add_raw(h, &out));
    assert_int_equal(out.len, strlen(raw));
    assert_memory_equal(out.data, raw, out.len);
    assert_int_equal(h->omitted, omitted);
    assert_int_equal(sp_headtail_retained(h), strlen(raw));
    assert_int_equal(sp_headtail_total(h), strlen(raw) + omitted);
}

static void is_marked(const struct sp_headtail *h, const char *want)
{
    auto_buf struct sp_buf out = {0};

    assert_true(sp_headtail_add_marked(h, &out));
    assert_int_equal(out.len, strlen(want));
    assert_memory_equal(out.data, want, out.len);
}

static void test_first_and_last_bytes_stay_and_the_rest_is_counted(void **state)
{
    auto_headtail struct sp_headtail h = empty(10);

    (void)state;
    holds(&h, "", 0);
    is_marked(&h, "");
    push(&h, "0123456789");
    holds(&h, "0123456789", 0);
    is_marked(&h, "0123456789");
    push(&h, "ab");
    holds(&h, "01234789ab", 2);
    is_marked(&h, "01234\n... 2 bytes omitted ...\n789ab");
}

static void test_the_smallest_capacities_count_what_they_cannot_keep(void **state)
{
    auto_headtail struct sp_headtail none = empty(0);
    auto_headtail struct sp_headtail one = empty(1);

    (void)state;
    push(&none, "abc");
    holds(&none, "", 3);
    is_marked(&none, "\n... 3 bytes omitted ...\n");
    push(&one, "abc");
    holds(&one, "c", 2);
    push(&one, "d");
    holds(&one, "d", 3);
    is_marked(&one, "\n... 3 bytes omitted ...\nd");
}

static void test_an_odd_capacity_gives_its_odd_byte_to_the_tail(void **state)
{
    auto_headtail struct sp_headtail h = empty(5);

    (void)state;
    push(&h, "0123456789");
    holds(&h, "01789", 5);
}

static void test_a_chunk_longer_than_the_tail_replaces_it(void **state)
{
    auto_headtail struct sp_headtail h = empty(10);

    (void)state;
    push(&h, "0123456789");
    push(&h, "ABCDEFGHIJK");
    holds(&h, "01234GHIJK", 11);
}

static void test_pieces_make_the_same_whole(void **state)
{
    auto_headtail struct sp_headtail h = empty(10);

    (void)state;
    push(&h, "01");
    push(&h, "234");
    push(&h, "567");
    push(&h, "89");
    holds(&h, "0123456789", 0);
    push(&h, "a");
    holds(&h, "012346789a", 1);
}

static void test_empty_pushes_change_nothing(void **state)
{
    auto_headtail struct sp_headtail h = empty(10);

    (void)state;
    assert_true(sp_headtail_push(&h, (struct sp_str){NULL, 0}));
    for (const char *c = "0123456789ab"; *c != 0; c++) {
        push(&h, "");
        push(&h, (const char[]){*c, 0});
    }
    holds(&h, "01234789ab", 2);
}

static void test_the_full_size_keeps_both_ends(void **state)
{
    auto_headtail struct sp_headtail h = empty(SP_HEADTAIL_CAPACITY);
    auto_buf struct sp_buf out = {0};
    char *many = malloc(SP_HEADTAIL_CAPACITY);

    (void)state;
    assert_non_null(many);
    memset(many, 'a', SP_HEADTAIL_CAPACITY);
    assert_true(sp_headtail_push(&h, (struct sp_str){many, SP_HEADTAIL_CAPACITY}));
    free(many);
    push(&h, "b");
    push(&h, "c");
    assert_int_equal(sp_headtail_retained(&h), SP_HEADTAIL_CAPACITY);
    assert_int_equal(h.omitted, 2);
    assert_true(sp_headtail_add_raw(&h, &out));
    assert_int_equal(out.data[0], 'a');
    assert_memory_equal(out.data + out.len - 3, "abc", 3);
}

static void test_a_little_output_costs_a_little_memory(void **state)
{
    auto_headtail struct sp_headtail h = empty(SP_HEADTAIL_CAPACITY);

    (void)state;
    assert_true(h.head.cap + h.tail_size == 0);
    push(&h, "hello\n");
    assert_true(h.head.cap + h.tail_size <= 256);
    for (int i = 0; i < 2000000; i++)
        assert_true(sp_headtail_push(&h, SP_STR("x")));
    assert_int_equal(h.head.cap + h.tail_size, SP_HEADTAIL_CAPACITY);
}

static void test_memory_never_passes_the_capacity(void **state)
{
    (void)state;
    for (size_t capacity = 0; capacity < 1200; capacity += 13) {
        auto_headtail struct sp_headtail h = empty(capacity);

        for (int i = 0; i < 1300; i++)
            assert_true(sp_headtail_push(&h, SP_STR("x")));
        assert_int_equal(h.head.cap + h.tail_size, capacity);
    }
}

static void test_a_drain_takes_the_count_and_resets_the_head(void **state)
{
    auto_headtail struct sp_headtail h = empty(10);

    (void)state;
    push(&h, "0123456789ab");
    auto_headtail struct sp_headtail taken = sp_headtail_drain(&h);
    holds(&taken, "01234789ab", 2);
    holds(&h, "", 0);
    push(&h, "xy");
    holds(&h, "xy", 0);
}

static void test_windows_merged_are_one_stream(void **state)
{
    static const char *const window[] = {"01234567", "89ABCDEF", "ghijklmnopq", "rs"};
    auto_headtail struct sp_headtail pending = empty(10);
    auto_headtail struct sp_headtail collector = empty(10);
    auto_headtail struct sp_headtail whole = empty(10);

    (void)state;
    for (size_t i = 0; i < sizeof window / sizeof window[0]; i++) {
        push(&pending, window[i]);
        push(&whole, window[i]);
        assert_true(sp_headtail_merge(&collector, &pending));
        holds(&pending, "", 0);
    }
    holds(&whole, "01234opqrs", 19);
    holds(&collector, "01234opqrs", 19);
}

static void test_what_was_omitted_before_the_merge_stays_counted(void **state)
{
    auto_headtail struct sp_headtail pending = empty(10);
    auto_headtail struct sp_headtail collector = empty(10);

    (void)state;
    push(&pending, "0123456789abcde");
    assert_true(sp_headtail_merge(&collector, &pending));
    holds(&collector, "01234abcde", 5);
    push(&pending, "fg");
    assert_true(sp_headtail_merge(&collector, &pending));
    holds(&collector, "01234cdefg", 7);
}

static void same(const struct sp_headtail *a, const struct sp_headtail *b)
{
    auto_buf struct sp_buf left = {0};
    auto_buf struct sp_buf right = {0};

    assert_true(sp_headtail_add_marked(a, &left));
    assert_true(sp_headtail_add_marked(b, &right));
    assert_int_equal(a->head.len, b->head.len);
    assert_int_equal(a->omitted, b->omitted);
    assert_int_equal(left.len, right.len);
    assert_memory_equal(left.data, right.data, left.len);
}

/* By the definition: the whole stream is known, and the ends are cut from it. */
static void same_as_slowly(const struct sp_headtail *h, const char *stream, size_t n)
{
    const size_t head = h->capacity / 2;
    const size_t tail = h->capacity - head;
    const size_t front = n < head ? n : head;
    const size_t back = n - front < tail ? n - front : tail;
    auto_buf struct sp_buf out = {0};

    assert_true(sp_headtail_add_raw(h, &out));
    assert_int_equal(h->head.len, front);
    assert_int_equal(out.len, front + back);
    assert_memory_equal(out.data, stream, front);
    assert_memory_equal(out.data + front, stream + n - back, back);
    assert_int_equal(h->omitted, n - front - back);
}

static void test_drains_and_merges_at_random_equal_one_buffer(void **state)
{
    uint64_t seed = 59;

    (void)state;
    for (int turn = 0; turn < 4000; turn++) {
        /* Small ones for the borders, a larger one for a ring that grows while it holds bytes. */
        const size_t capacity = turn % 8 == 0 ? test_random(&seed) % 2000 : test_random(&seed) % 13;
        const size_t longest = capacity > 12 ? 400 : 15;
        auto_headtail struct sp_headtail whole = empty(capacity);
        auto_headtail struct sp_headtail pending = empty(capacity);
        auto_headtail struct sp_headtail collector = empty(capacity);
        char stream[12 * 400];
        size_t n = 0;

        for (int piece = 0; piece < 12; piece++) {
            const size_t len = test_random(&seed) % longest;

            for (size_t i = 0; i < len; i++)
                stream[n + i] = (char)('!' + (n + i) % 90);
            assert_true(sp_headtail_push(&whole, (struct sp_str){stream + n, len}));
            assert_true(sp_headtail_push(&pending, (struct sp_str){stream + n, len}));
            n += len;
            same_as_slowly(&whole, stream, n);
            if (test_random(&seed) % 3 == 0) {
                auto_headtail struct sp_headtail taken = sp_headtail_drain(&pending);

                assert_true(sp_headtail_merge(&collector, &taken));
            }
        }
        assert_true(sp_headtail_merge(&collector, &pending));
        same(&collector, &whole);
    }
}

static void test_the_count_stops_at_its_largest_number(void **state)
{
    auto_headtail struct sp_headtail h = empty(2);
    auto_headtail struct sp_headtail later = empty(2);

    (void)state;
    push(&h, "ab");
    h.omitted = UINT64_MAX - 1;
    push(&h, "cde");
    assert_true(h.omitted == UINT64_MAX);
    push(&later, "abcd");
    assert_true(sp_headtail_merge(&h, &later));
    assert_true(h.omitted == UINT64_MAX);
    assert_true(sp_headtail_total(&h) == UINT64_MAX);
}

static void test_the_end_is_seen_and_taken_back_across_the_halves_but_not_the_gap(void **state)
{
    auto_headtail struct sp_headtail h = empty(6);
    char end[4] = {0};

    (void)state;
    assert_int_equal(sp_headtail_peek_end(&h, end, 3), 0);
    push(&h, "abcd");
    assert_int_equal(sp_headtail_peek_end(&h, end, 3), 3);
    assert_memory_equal(end, "bcd", 3);
    sp_headtail_drop_end(&h, 2);
    holds(&h, "ab", 0);
    push(&h, "cdefghi");
    holds(&h, "abcghi", 3);
    assert_int_equal(sp_headtail_peek_end(&h, end, 4), 3);
    assert_memory_equal(end, "ghi", 3);
    sp_headtail_drop_end(&h, 1);
    holds(&h, "abcgh", 3);
}

static void test_a_push_without_memory_takes_nothing(void **state)
{
    auto_headtail struct sp_headtail h = empty(1000);

    (void)state;
    for (long at = 1;; at++) {
        sp_headtail_done(&h);
        push(&h, "before");
        char many[600];
        memset(many, 'm', sizeof many);
        end_memory_at(at);
        const bool is_taken = sp_headtail_push(&h, (struct sp_str){many, sizeof many});
        if (!did_memory_end()) {
            assert_true(is_taken);
            assert_int_equal(sp_headtail_total(&h), 606);
            assert_int_equal(at, 3); /* the head, the tail, none */
            return;
        }
        assert_false(is_taken);
        holds(&h, "before", 0);
    }
}

static void test_a_merge_without_memory_leaves_both(void **state)
{
    auto_headtail struct sp_headtail h = empty(10);
    auto_headtail struct sp_headtail later = empty(10);

    (void)state;
    push(&h, "ab");
    push(&later, "0123456789abc");
    end_memory_at(1);
    assert_false(sp_headtail_merge(&h, &later));
    assert_true(did_memory_end());
    holds(&h, "ab", 0);
    holds(&later, "0123489abc", 3);
    assert_true(sp_headtail_merge(&h, &later));
    holds(&h, "ab01289abc", 5);
    holds(&later, "", 0);
}

static void test_a_view_without_room_leaves_the_buffer_as_it_was(void **state)
{
    auto_headtail struct sp_headtail h = empty(10);

    (void)state;
    push(&h, "0123456789ab");
    for (size_t max = 3; max < 3 + 37; max++) {
        auto_buf struct sp_buf out = {.max = max};

        assert_true(sp_buf_add(&out, "abc", 3));
        assert_int_equal(sp_headtail_add_raw(&h, &out), max >= 13);
        out.len = 3;
        assert_int_equal(sp_headtail_add_marked(&h, &out), max >= 3 + 35);
        assert_int_equal(out.len, max >= 3 + 35 ? 3 + 35 : 3);
    }
}

static void test_what_is_kept_can_be_looked_at_in_place(void **state)
{
    (void)state;
    for (size_t n = 0; n < 40; n++) {
        auto_headtail struct sp_headtail h = empty(10);

        for (size_t i = 0; i < n; i++)
            assert_true(sp_headtail_push(&h, (struct sp_str){&"0123456789abcdefghij"[i % 20], 1}));
        for (int is_trimmed = 0; is_trimmed < 2; is_trimmed++) {
            auto_buf struct sp_buf raw = {0};
            auto_buf struct sp_buf seen = {0};
            struct sp_str head;
            struct sp_str tail[2];

            assert_true(sp_headtail_add_raw(&h, &raw));
            sp_headtail_view(&h, &head, tail);
            assert_true(sp_buf_add_str(&seen, head) && sp_buf_add_str(&seen, tail[0]) &&
                        sp_buf_add_str(&seen, tail[1]));
            assert_int_equal(raw.len, seen.len);
            assert_true(raw.len == 0 || memcmp(raw.data, seen.data, raw.len) == 0);
            assert_int_equal(sp_headtail_total(&h), n);
            sp_headtail_trim(&h);
            assert_int_equal(h.head.cap, h.head.len);
            assert_true(h.tail_size == h.tail_len || h.tail_from != 0);
        }
    }
}

static void test_a_trim_without_memory_changes_nothing(void **state)
{
    auto_headtail struct sp_headtail h = empty(1000);
    auto_buf struct sp_buf raw = {0};

    (void)state;
    for (int i = 0; i < 60; i++)
        push(&h, "0123456789");
    for (long n = 1; n <= 2; n++) {
        end_memory_at(n);
        sp_headtail_trim(&h);
        (void)did_memory_end();
    }
    assert_true(sp_headtail_add_raw(&h, &raw));
    assert_int_equal(raw.len, 600);
    assert_memory_equal(raw.data + 590, "0123456789", 10);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_first_and_last_bytes_stay_and_the_rest_is_counted),
    cmocka_unit_test(test_the_smallest_capacities_count_what_they_cannot_keep),
    cmocka_unit_test(test_an_odd_capacity_gives_its_odd_byte_to_the_tail),
    cmocka_unit_test(test_a_chunk_longer_than_the_tail_replaces_it),
    cmocka_unit_test(test_pieces_make_the_same_whole),
    cmocka_unit_test(test_empty_pushes_change_nothing),
    cmocka_unit_test(test_the_full_size_keeps_both_ends),
    cmocka_unit_test(test_a_little_output_costs_a_little_memory),
    cmocka_unit_test(test_memory_never_passes_the_capacity),
    cmocka_unit_test(test_a_drain_takes_the_count_and_resets_the_head),
    cmocka_unit_test(test_windows_merged_are_one_stream),
    cmocka_unit_test(test_what_was_omitted_before_the_merge_stays_counted),
    cmocka_unit_test(test_drains_and_merges_at_random_equal_one_buffer),
    cmocka_unit_test(test_the_count_stops_at_its_largest_number),
    cmocka_unit_test(test_the_end_is_seen_and_taken_back_across_the_halves_but_not_the_gap),
    cmocka_unit_test(test_a_push_without_memory_takes_nothing),
    cmocka_unit_test(test_a_merge_without_memory_leaves_both),
    cmocka_unit_test(test_a_view_without_room_leaves_the_buffer_as_it_was),
    cmocka_unit_test(test_what_is_kept_can_be_looked_at_in_place),
    cmocka_unit_test(test_a_trim_without_memory_changes_nothing),
};

TEST_MAIN(tests)
