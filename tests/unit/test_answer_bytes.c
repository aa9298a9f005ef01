/* SPDX-License-Identifier: Apache-2.0 */
/* How collected bytes become an answer's text; test_answer.c has what is said around it. */
#include "engine/answer.c" /* NOLINT: only the source has these functions */
#include "memory_fixture.h"
#include "test.h"

#define FFFD "\xEF\xBF\xBD"

static void is(const struct sp_buf *out, struct sp_str want)
{
    if (!sp_str_eq((struct sp_str){out->data, out->len}, want))
        fail_msg("got <%.*s>, want <%.*s>", (int)out->len, out->data, (int)want.n, want.p);
}

static void decodes(struct sp_str bytes, struct sp_str want)
{
    auto_headtail struct sp_headtail h = {0};
    auto_buf struct sp_buf out = {0};

    sp_headtail_init(&h, SP_HEADTAIL_CAPACITY);
    assert_true(sp_headtail_push(&h, bytes));
    assert_true(sp_answer_decode(&out, &h));
    is(&out, want);
}

static void test_bytes_become_text_and_the_ill_formed_one_sign_each(void **state)
{
    (void)state;
    decodes(SP_STR("\xC3\xA9\xFF x"), SP_STR("\xC3\xA9" FFFD " x"));
    decodes(SP_STR("a\0b"), SP_STR("a\0b"));
    decodes(SP_STR("a\r\n\x1B[1m"), SP_STR("a\r\n\x1B[1m"));
    decodes(SP_STR("HELLO-UEXEC\xC3\xA9\xC3"), SP_STR("HELLO-UEXEC\xC3\xA9" FFFD));
    decodes(SP_STR("\xF0\x9F\x98z\xE0\x80"), SP_STR(FFFD "z" FFFD FFFD));
}

static void test_a_character_that_fell_into_the_gap_is_torn_on_both_sides(void **state)
{
    auto_headtail struct sp_headtail h = {0};
    auto_buf struct sp_buf out = {0};

    (void)state;
    sp_headtail_init(&h, 4);
    assert_true(sp_headtail_push(&h, SP_STR("a\xE2\x82\xAC-\xE2\x82\xAC")));
    assert_true(sp_answer_decode(&out, &h));
    is(&out, SP_STR("a" FFFD "\n... 4 bytes omitted ...\n" FFFD FFFD));
}

/* Collected `first`, then held back: what this answer keeps, and what the next one gets. */
static void holds_back(size_t capacity, struct sp_str first, struct sp_str kept, struct sp_str held)
{
    auto_headtail struct sp_headtail collected = {0};
    auto_headtail struct sp_headtail pending = {0};
    auto_buf struct sp_buf now = {0};
    auto_buf struct sp_buf later = {0};

    sp_headtail_init(&collected, capacity);
    sp_headtail_init(&pending, capacity);
    assert_true(sp_headtail_push(&collected, first));
    hold_back(&collected, &pending);
    assert_true(sp_headtail_add_raw(&collected, &now) && sp_headtail_add_raw(&pending, &later));
    is(&now, kept);
    is(&later, held);
    assert_int_equal(pending.omitted, 0);
    assert_int_equal(sp_headtail_total(&collected) + sp_headtail_total(&pending), first.n);
}

static void test_half_a_character_waits_for_the_next_answer(void **state)
{
    (void)state;
    holds_back(100, SP_STR("caf\xC3"), SP_STR("caf"), SP_STR("\xC3"));
    holds_back(100, SP_STR("\xF0\x9F\x98"), SP_STR(""), SP_STR("\xF0\x9F\x98"));
    holds_back(100, SP_STR("caf\xC3\xA9"), SP_STR("caf\xC3\xA9"), SP_STR(""));
    holds_back(100, SP_STR("\xFF"), SP_STR("\xFF"), SP_STR(""));
    holds_back(100, SP_STR(""), SP_STR(""), SP_STR(""));
    holds_back(6, SP_STR("ab\xF0\x9F\x98"), SP_STR("ab"), SP_STR("\xF0\x9F\x98"));
    holds_back(8, SP_STR("0123456789\xE2\x82"), SP_STR("012389"), SP_STR("\xE2\x82"));
    /* Its beginning is gone, so it is none. */
    holds_back(2, SP_STR("x\xE2\x82"), SP_STR("x\x82"), SP_STR(""));
    holds_back(1, SP_STR("\xE2"), SP_STR(""), SP_STR("\xE2"));
    holds_back(0, SP_STR("\xE2"), SP_STR(""), SP_STR(""));
}

static void test_half_a_character_stays_if_memory_is_gone(void **state)
{
    auto_headtail struct sp_headtail collected = {0};
    auto_headtail struct sp_headtail pending = {0};

    (void)state;
    sp_headtail_init(&collected, 100);
    sp_headtail_init(&pending, 100);
    assert_true(sp_headtail_push(&collected, SP_STR("caf\xC3")));
    end_memory_at(1);
    hold_back(&collected, &pending);
    assert_true(did_memory_end());
    assert_int_equal(sp_headtail_total(&collected), 4);
    assert_int_equal(sp_headtail_total(&pending), 0);
}

/* The answers of a live process, one after the other, are its output. */
static void test_answers_in_a_row_are_the_whole_text(void **state)
{
    static const char *const piece[] = {"a", "\n", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"};
    uint64_t seed = 56;

    (void)state;
    for (int turn = 0; turn < 500; turn++) {
        auto_headtail struct sp_headtail pending = {0};
        auto_buf struct sp_buf stream = {0};
        auto_buf struct sp_buf said = {0};

        assert_true(sp_buf_add(&stream, "x", 1));
        for (uint32_t n = test_random(&seed) % 60; n != 0; n--)
            assert_true(sp_buf_add_str(&stream, sp_str_of(piece[test_random(&seed) % 5])));
        sp_headtail_init(&pending, 1000);
        for (size_t at = 0; at < stream.len;) {
            auto_headtail struct sp_headtail collected = {0};
            const size_t n = 1 + test_random(&seed) % (stream.len - at);

            sp_headtail_init(&collected, 1000);
            assert_true(sp_headtail_push(&pending, (struct sp_str){stream.data + at, n}));
            assert_true(sp_headtail_merge(&collected, &pending));
            hold_back(&collected, &pending);
            assert_true(sp_answer_decode(&said, &collected));
            at += n;
        }
        assert_int_equal(sp_headtail_total(&pending), 0);
        is(&said, (struct sp_str){stream.data, stream.len});
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_bytes_become_text_and_the_ill_formed_one_sign_each),
    cmocka_unit_test(test_a_character_that_fell_into_the_gap_is_torn_on_both_sides),
    cmocka_unit_test(test_half_a_character_waits_for_the_next_answer),
    cmocka_unit_test(test_half_a_character_stays_if_memory_is_gone),
    cmocka_unit_test(test_answers_in_a_row_are_the_whole_text),
};

TEST_MAIN(tests)
