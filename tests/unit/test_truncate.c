/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/truncate.h"
#include "test.h"

#define DOTS  "\xE2\x80\xA6"
#define SMILE "\xF0\x9F\x98\x80"

static struct sp_allowance bytes(uint64_t limit)
{
    return (struct sp_allowance){SP_ALLOWANCE_BYTES, limit};
}

static struct sp_allowance tokens(uint64_t limit)
{
    return (struct sp_allowance){SP_ALLOWANCE_TOKENS, limit};
}

static const struct sp_omission NOTHING;

static void is(const struct sp_buf *out, const char *want)
{
    if (out->len != strlen(want) || memcmp(out->data, want, out->len) != 0)
        fail_msg("got <%.*s>, want <%s>", (int)out->len, out->data, want);
}

static void truncates(const char *text, struct sp_allowance max, const char *want)
{
    auto_buf struct sp_buf out = {0};

    assert_true(sp_truncate_add(&out, sp_str_of(text), max));
    is(&out, want);
}

static void formats(const char *text, struct sp_allowance max, const char *want)
{
    auto_buf struct sp_buf out = {0};

    assert_true(sp_truncate_format(&out, sp_str_of(text), max, NOTHING));
    is(&out, want);
}

static void formats_gapped(const char *text, struct sp_allowance max, const char *want)
{
    const struct sp_omission gone = {.bytes = 77, .token_count = 42000};
    auto_buf struct sp_buf out = {0};

    assert_true(sp_truncate_format(&out, sp_str_of(text), max, gone));
    is(&out, want);
}

static void test_a_token_is_four_bytes_rounded_up(void **state)
{
    (void)state;
    assert_int_equal(sp_allowance_tokens_of(0), 0);
    assert_int_equal(sp_allowance_tokens_of(1), 1);
    assert_int_equal(sp_allowance_tokens_of(4), 1);
    assert_int_equal(sp_allowance_tokens_of(5), 2);
    assert_true(sp_allowance_tokens_of(UINT64_MAX) == UINT64_MAX / 4 + 1);
    assert_int_equal(sp_allowance_bytes(tokens(10)), 40);
    assert_int_equal(sp_allowance_bytes(bytes(10)), 10);
    assert_true(sp_allowance_bytes(tokens(UINT64_MAX)) == UINT64_MAX);
}

static void test_an_allowance_is_scaled_in_its_own_unit_and_rounded_up(void **state)
{
    (void)state;
    assert_int_equal(sp_allowance_scale(bytes(200), 6, 5).limit, 240);
    assert_int_equal(sp_allowance_scale(tokens(50), 6, 5).limit, 60);
    assert_int_equal(sp_allowance_scale(tokens(50), 6, 5).unit, SP_ALLOWANCE_TOKENS);
    assert_int_equal(sp_allowance_scale(tokens(1), 6, 5).limit, 2);
    assert_int_equal(sp_allowance_scale(tokens(13), 6, 5).limit, 16);
    assert_int_equal(sp_allowance_scale(bytes(0), 6, 5).limit, 0);
    assert_true(sp_allowance_scale(bytes(UINT64_MAX), 6, 5).limit == UINT64_MAX);
}

static void test_a_request_counts_only_if_it_is_smaller(void **state)
{
    (void)state;
    assert_int_equal(sp_allowance_effective(tokens(49), bytes(200)).unit, SP_ALLOWANCE_TOKENS);
    assert_int_equal(sp_allowance_effective(tokens(50), bytes(200)).unit, SP_ALLOWANCE_BYTES);
    assert_int_equal(sp_allowance_effective(tokens(70000), tokens(50)).limit, 50);
    assert_int_equal(sp_allowance_effective(tokens(UINT64_MAX), bytes(9)).limit, 9);
    assert_int_equal(sp_allowance_effective(tokens(0), tokens(50)).limit, 0);
}

static void splits(const char *text, uint64_t left, uint64_t right, size_t prefix, size_t suffix,
                   size_t removed)
{
    char *exact = test_copy(sp_str_of(text));
    const struct sp_split s = sp_truncate_split((struct sp_str){exact, strlen(text)}, left, right);

    assert_int_equal(s.prefix_end, prefix);
    assert_int_equal(strlen(text) - s.suffix_start, suffix);
    assert_int_equal(s.removed, removed);
    free(exact);
}

static void test_both_ends_stay_in_whole_characters(void **state)
{
    (void)state;
    splits("hello world", 5, 5, 5, 5, 1);
    splits("abcdef", 4, 4, 4, 2, 0);
    splits("abcdef", 9, 9, 6, 0, 0);
    splits("abcdef", 0, 9, 0, 6, 0);
    splits("", 1, 1, 0, 0, 0);
    splits(SMILE SMILE SMILE SMILE SMILE, 1, 1, 0, 0, 5);
    splits(SMILE SMILE SMILE SMILE SMILE, 7, 7, 4, 4, 3);
    splits(SMILE SMILE SMILE SMILE SMILE, 8, 8, 8, 8, 1);
    splits(SMILE SMILE SMILE SMILE SMILE, 10, 10, 8, 8, 1);
    splits(SMILE SMILE SMILE SMILE SMILE, 12, 10, 12, 8, 0);
}

static void test_lines_are_counted_with_an_unfinished_last(void **state)
{
    (void)state;
    assert_int_equal(sp_truncate_lines(SP_STR("")), 0);
    assert_int_equal(sp_truncate_lines(SP_STR("\n")), 1);
    assert_int_equal(sp_truncate_lines(SP_STR("a")), 1);
    assert_int_equal(sp_truncate_lines(SP_STR("a\n")), 1);
    assert_int_equal(sp_truncate_lines(SP_STR("a\nb")), 2);
    assert_int_equal(sp_truncate_lines(SP_STR("\n\n\r\n")), 3);
}

static void test_the_middle_gives_way_to_a_marker(void **state)
{
    static const char smiles[] =
        SMILE SMILE SMILE SMILE SMILE SMILE SMILE SMILE SMILE SMILE "\nsecond line with text\n";

    (void)state;
    truncates("", tokens(0), "");
    truncates("", bytes(0), "");
    truncates("abc", bytes(3), "abc");
    truncates("abcd", tokens(1), "abcd");
    truncates("abcdef", tokens(0), DOTS "2 tokens truncated" DOTS);
    truncates("abc", bytes(0), DOTS "3 chars truncated" DOTS);
    truncates(SMILE SMILE, bytes(0), DOTS "2 chars truncated" DOTS);
    truncates(smiles, bytes(20), SMILE SMILE DOTS "21 chars truncated" DOTS "with text\n");
    truncates(smiles, tokens(8),
              SMILE SMILE SMILE SMILE DOTS "8 tokens truncated" DOTS " line with text\n");
}

#define WARNING(count) "Warning: truncated output (original token count: " #count ")\n"
#define LINES(count)   "Total output lines: " #count "\n\n"

static void test_a_shortened_text_says_what_it_was(void **state)
{
    static const char longer[] = "this is an example of a long output that should be truncated";
    static const char two_lines[] =
        "this is an example of a long output that should be truncated\nalso some other line";

    (void)state;
    formats("example output", bytes(1), WARNING(4) LINES(1) DOTS "13 chars truncated" DOTS "t");
    formats("example output", tokens(1),
            WARNING(4) LINES(1) "ex" DOTS "3 tokens truncated" DOTS "ut");
    formats("example output", tokens(10), "example output");
    formats("example output", bytes(20), "example output");
    formats("example output", bytes(14), "example output");
    formats("", bytes(0), "");
    formats(longer, tokens(5),
            WARNING(15) LINES(1) "this is an" DOTS "10 tokens truncated" DOTS " truncated");
    formats(longer, bytes(30),
            WARNING(15) LINES(1) "this is an exam" DOTS "30 chars truncated" DOTS
                                 "ld be truncated");
    formats(two_lines, tokens(10),
            WARNING(21) LINES(2) "this is an example o" DOTS "11 tokens truncated" DOTS
                                 "also some other line");
    formats(two_lines, bytes(30),
            WARNING(21) LINES(2) "this is an exam" DOTS "51 chars truncated" DOTS
                                 "some other line");
}

#define GAP "... 77 bytes omitted ..."

static void test_an_earlier_omission_is_told_once(void **state)
{
    (void)state;
    formats_gapped("ab\n" GAP "\nyz", bytes(100), "ab\n" GAP "\nyz");
    formats_gapped("abyz", bytes(100), GAP "\nabyz");
    formats_gapped("", bytes(0), GAP "\n");
    /* Cut away, it goes in front; kept at either end, it stays there. */
    formats_gapped("abcdefgh\n" GAP "\nstuvwxyz", bytes(4),
                   WARNING(42000) GAP "\n\nab" DOTS "38 chars truncated" DOTS "yz");
    formats_gapped("a\n" GAP "\n0123456789012345678901234567890123456789", bytes(60),
                   WARNING(42000) "\na\n" GAP "\n012" DOTS "7 chars truncated" DOTS
                                  "012345678901234567890123456789");
    formats_gapped("0123456789012345678901234567890123456789\n" GAP "\nz", bytes(60),
                   WARNING(42000) "\n012345678901234567890123456789" DOTS "7 chars truncated" DOTS
                                  "789\n" GAP "\nz");
    /* Another number is another marker. */
    formats_gapped("... 7 bytes omitted ...", bytes(100), GAP "\n... 7 bytes omitted ...");
}

static void test_a_text_is_made_to_fit_with_its_warning(void **state)
{
    char text[1001];

    (void)state;
    memset(text, 'x', 1000);
    text[1000] = 0;
    for (uint64_t allowed = 0; allowed < 1200; allowed += 7)
        for (int unit = 0; unit < 2; unit++) {
            auto_buf struct sp_buf out = {0};
            const struct sp_allowance max = unit == 0 ? bytes(900) : tokens(225);

            assert_true(sp_buf_add(&out, "<", 1));
            assert_true(sp_truncate_fit(&out, sp_str_of(text), max, NOTHING, allowed));
            /* The shortest there is: the warning, the count of lines, the marker. */
            const char *shortest = unit == 0
                                       ? WARNING(250) LINES(1) DOTS "1000 chars truncated" DOTS
                                       : WARNING(250) LINES(1) DOTS "250 tokens truncated" DOTS;
            if (out.len - 1 > allowed)
                assert_int_equal(out.len - 1, strlen(shortest));
            if (allowed >= 1000)
                assert_true(out.len - 1 > 900);
        }
}

static void test_what_fits_is_left_alone(void **state)
{
    auto_buf struct sp_buf out = {0};

    (void)state;
    assert_true(sp_truncate_fit(&out, SP_STR("abc"), bytes(3), NOTHING, 3));
    is(&out, "abc");
}

/* By the definition: character by character. */
static void truncate_slowly(struct sp_buf *out, struct sp_str text, struct sp_allowance max)
{
    const uint64_t whole = sp_allowance_bytes(max);
    auto_buf struct sp_buf suffix = {0};
    char marker[64];
    size_t removed = 0;
    bool is_prefix = true;

    if (text.n <= whole) {
        assert_true(sp_buf_add_str(out, text));
        return;
    }
    for (size_t at = 0, len = 0; at < text.n; at += len) {
        for (len = 1; at + len < text.n && (text.p[at + len] & 0xC0) == 0x80;)
            len++;
        is_prefix = is_prefix && at + len <= whole / 2;
        if (is_prefix)
            assert_true(sp_buf_add(out, text.p + at, len));
        else if (at >= text.n - (whole - whole / 2))
            assert_true(sp_buf_add(&suffix, text.p + at, len));
        else
            removed++;
    }
    if (max.unit == SP_ALLOWANCE_TOKENS)
        (void)snprintf(marker, sizeof marker, DOTS "%zu tokens truncated" DOTS,
                       (text.n - (size_t)whole + 3) / 4);
    else
        (void)snprintf(marker, sizeof marker, DOTS "%zu chars truncated" DOTS, removed);
    assert_true(sp_buf_add_str(out, sp_str_of(marker)));
    assert_true(sp_buf_add(out, suffix.data, suffix.len));
}

static void test_random_texts_are_truncated_as_defined(void **state)
{
    static const char *const piece[] = {"a", "z", "\n", "\xC3\xA9", "\xE2\x82\xAC", SMILE};
    uint64_t seed = 54;

    (void)state;
    for (int turn = 0; turn < 20000; turn++) {
        auto_buf struct sp_buf text = {0};
        auto_buf struct sp_buf fast = {0};
        auto_buf struct sp_buf slow = {0};

        assert_true(sp_buf_add(&text, "x", 1));
        for (uint32_t n = test_random(&seed) % 30; n != 0; n--)
            assert_true(sp_buf_add_str(&text, sp_str_of(piece[test_random(&seed) % 6])));
        const struct sp_allowance max =
            turn % 2 == 0 ? bytes(test_random(&seed) % 80) : tokens(test_random(&seed) % 20);
        const struct sp_str s = {text.data, text.len};
        assert_true(sp_truncate_add(&fast, s, max));
        truncate_slowly(&slow, s, max);
        assert_int_equal(fast.len, slow.len);
        assert_memory_equal(fast.data, slow.data, fast.len);
    }
}

static void test_no_room_leaves_the_buffer_as_it_was(void **state)
{
    const struct sp_omission gone = {.bytes = 77, .token_count = 42000};

    (void)state;
    for (size_t max = 1; max < 100; max++) {
        auto_buf struct sp_buf out = {.max = max};

        assert_true(sp_buf_add(&out, "<", 1));
        if (!sp_truncate_add(&out, SP_STR("0123456789"), tokens(1)))
            assert_int_equal(out.len, 1);
        out.len = 1;
        if (!sp_truncate_format(&out, SP_STR("0123456789"), bytes(4), gone))
            assert_int_equal(out.len, 1);
        out.len = 1;
        assert_false(sp_truncate_fit(&out, SP_STR("0123456789"), bytes(4), NOTHING, 200));
        assert_int_equal(out.len, 1);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_a_token_is_four_bytes_rounded_up),
    cmocka_unit_test(test_an_allowance_is_scaled_in_its_own_unit_and_rounded_up),
    cmocka_unit_test(test_a_request_counts_only_if_it_is_smaller),
    cmocka_unit_test(test_both_ends_stay_in_whole_characters),
    cmocka_unit_test(test_lines_are_counted_with_an_unfinished_last),
    cmocka_unit_test(test_the_middle_gives_way_to_a_marker),
    cmocka_unit_test(test_a_shortened_text_says_what_it_was),
    cmocka_unit_test(test_an_earlier_omission_is_told_once),
    cmocka_unit_test(test_a_text_is_made_to_fit_with_its_warning),
    cmocka_unit_test(test_what_fits_is_left_alone),
    cmocka_unit_test(test_random_texts_are_truncated_as_defined),
    cmocka_unit_test(test_no_room_leaves_the_buffer_as_it_was),
};

TEST_MAIN(tests)
