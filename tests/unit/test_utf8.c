/* SPDX-License-Identifier: Apache-2.0 */
#include "base/utf8.h"
#include "test.h"

/* On the heap and exact, at every alignment to the word-wise loops: `before` ASCII bytes first. */
static size_t prefix_after(size_t before, struct sp_str s)
{
    char *text = malloc(before + s.n + 1);

    assert_non_null(text);
    memset(text, 'x', before);
    memcpy(text + before, s.p, s.n);
    char *exact = test_copy((struct sp_str){text, before + s.n});
    const struct sp_str all = {exact, before + s.n};
    const size_t n = sp_utf8_valid_prefix(all);
    assert_int_equal(sp_utf8_is_valid(all), n == all.n);
    free(text);
    free(exact);
    return n;
}

static void test_the_borders_of_the_well_formed_are_exact(void **state)
{
    static const struct {
        struct sp_str text;
        size_t valid;
    } row[] = {
        {SP_STR(""), 0},
        {SP_STR("\0"), 1},
        {SP_STR("\x7F"), 1},
        {SP_STR("\x80"), 0},
        {SP_STR("\xBF"), 0},
        {SP_STR("\xC0\x80"), 0}, /* overlong NUL */
        {SP_STR("\xC1\xBF"), 0},
        {SP_STR("\xC2\x80"), 2},
        {SP_STR("\xDF\xBF"), 2},
        {SP_STR("\xC2"), 0},
        {SP_STR("\xC2\x7F"), 0},
        {SP_STR("\xC2\xC0"), 0},
        {SP_STR("\xE0\x9F\xBF"), 0},
        {SP_STR("\xE0\xA0\x80"), 3},
        {SP_STR("\xED\x9F\xBF"), 3},
        {SP_STR("\xED\xA0\x80"), 0}, /* U+D800 */
        {SP_STR("\xED\xBF\xBF"), 0}, /* U+DFFF */
        {SP_STR("\xEE\x80\x80"), 3},
        {SP_STR("\xEF\xBF\xBF"), 3},
        {SP_STR("\xEF\xBB\xBF"), 3}, /* a byte order mark is a character */
        {SP_STR("\xE2\x82"), 0},
        {SP_STR("\xE2\x82\x28"), 0},
        {SP_STR("\xE2\x28\xA1"), 0},
        {SP_STR("\xF0\x8F\xBF\xBF"), 0},
        {SP_STR("\xF0\x90\x80\x80"), 4},
        {SP_STR("\xF4\x8F\xBF\xBF"), 4}, /* U+10FFFF */
        {SP_STR("\xF4\x90\x80\x80"), 0},
        {SP_STR("\xF5\x80\x80\x80"), 0},
        {SP_STR("\xFE"), 0},
        {SP_STR("\xFF"), 0},
        {SP_STR("\xF0\x9F\x98"), 0},
        {SP_STR("\xF0\x9F\x98\x80\xFF"), 4},
        {SP_STR("a\xC3\xA9z\xE2\x82\xAC"), 7},
    };

    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++)
        for (size_t before = 0; before < 70; before++)
            assert_int_equal(prefix_after(before, row[i].text), before + row[i].valid);
}

/* By the definition: decode, then ask whether the number is one and its form the shortest. */
static bool is_valid_slowly(const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n;) {
        const unsigned ones = p[i] < 0x80 ? 0 : (unsigned)__builtin_clz(~((unsigned)p[i] << 24));
        const size_t len = ones == 0 ? 1 : ones;
        uint32_t c = ones == 0 ? p[i] : p[i] & (0x7FU >> ones);

        if (ones == 1 || ones > 4 || n - i < len)
            return false;
        for (size_t k = 1; k < len; k++) {
            if ((p[i + k] & 0xC0) != 0x80)
                return false;
            c = c << 6 | (p[i + k] & 0x3F);
        }
        const size_t shortest = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
        if (shortest != len || (c >= 0xD800 && c <= 0xDFFF) || c > 0x10FFFF)
            return false;
        i += len;
    }
    return true;
}

static void test_all_sequences_of_three_bytes_are_judged_as_defined(void **state)
{
    (void)state;
    for (unsigned v = 0; v < 1U << 24; v += v < 0xE00000 || v >= 0xF50000 ? 37 : 1) {
        const unsigned char p[3] = {(unsigned char)(v >> 16), (unsigned char)(v >> 8),
                                    (unsigned char)v};

        if (sp_utf8_is_valid((struct sp_str){(const char *)p, 3}) != is_valid_slowly(p, 3))
            fail_msg("%02x %02x %02x", p[0], p[1], p[2]);
    }
}

static void test_every_scalar_value_is_valid_and_no_surrogate_is(void **state)
{
    (void)state;
    for (uint32_t c = 0x800; c <= 0x10FFFF; c++) {
        char p[4];
        size_t n = 0;

        if (c < 0x10000) {
            p[n++] = (char)(0xE0 | c >> 12);
        } else {
            p[n++] = (char)(0xF0 | c >> 18);
            p[n++] = (char)(0x80 | (c >> 12 & 0x3F));
        }
        p[n++] = (char)(0x80 | (c >> 6 & 0x3F));
        p[n++] = (char)(0x80 | (c & 0x3F));
        if (sp_utf8_is_valid((struct sp_str){p, n}) != (c < 0xD800 || c > 0xDFFF))
            fail_msg("U+%04X", c);
    }
}

#define FFFD "\xEF\xBF\xBD"

static void becomes(struct sp_str in, struct sp_str want)
{
    auto_buf struct sp_buf out = {0};

    assert_true(sp_buf_add(&out, "<", 1));
    assert_true(sp_utf8_add_lossy(&out, in));
    assert_int_equal(out.len, want.n + 1);
    assert_memory_equal(out.data + 1, want.p, want.n);
}

static void test_each_maximal_ill_formed_part_becomes_one_replacement(void **state)
{
    (void)state;
    becomes(SP_STR(""), SP_STR(""));
    becomes(SP_STR("plain"), SP_STR("plain"));
    becomes(SP_STR("\xC3\xA9"), SP_STR("\xC3\xA9"));
    becomes(SP_STR("a\xFFz"), SP_STR("a" FFFD "z"));
    becomes(SP_STR("\xFF\xFE"), SP_STR(FFFD FFFD));
    becomes(SP_STR("\xE2\x82"), SP_STR(FFFD));
    becomes(SP_STR("\xE2\x82z"), SP_STR(FFFD "z"));
    becomes(SP_STR("\xF0\x9F\x98"), SP_STR(FFFD));
    becomes(SP_STR("\xED\xA0\x80"), SP_STR(FFFD FFFD FFFD)); /* nothing begins with ED A0 */
    becomes(SP_STR("\xC0\x80"), SP_STR(FFFD FFFD));
    becomes(SP_STR("\xE2\x82\xE2\x82\xAC"), SP_STR(FFFD "\xE2\x82\xAC"));
    /* The example of the Unicode standard, table 3-11. */
    becomes(SP_STR("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"),
            SP_STR(FFFD FFFD FFFD FFFD FFFD "A" FFFD FFFD "B"));
    /* Table 3-10. */
    becomes(SP_STR("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), SP_STR(FFFD FFFD FFFD FFFD "A"));
}

static void test_no_room_leaves_the_buffer_as_it_was(void **state)
{
    auto_buf struct sp_buf out = {.max = 5};

    (void)state;
    assert_true(sp_buf_add(&out, "ab", 2));
    assert_false(sp_utf8_add_lossy(&out, SP_STR("x\xFFy")));
    assert_int_equal(out.len, 2);
    assert_true(sp_utf8_add_lossy(&out, SP_STR("\xFF")));
    assert_bytes(out.data, out.len, "ab" FFFD);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_the_borders_of_the_well_formed_are_exact),
    cmocka_unit_test(test_all_sequences_of_three_bytes_are_judged_as_defined),
    cmocka_unit_test(test_every_scalar_value_is_valid_and_no_surrogate_is),
    cmocka_unit_test(test_each_maximal_ill_formed_part_becomes_one_replacement),
    cmocka_unit_test(test_no_room_leaves_the_buffer_as_it_was),
};

TEST_MAIN(tests)
