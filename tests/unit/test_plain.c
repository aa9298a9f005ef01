/* SPDX-License-Identifier: Apache-2.0 */
/* The source is included: verbs are no library. */
#include <locale.h>

#include "cli/escape_text.c" /* NOLINT: see above */
#include "test.h"

static void is_plain(struct sp_str text, const char *want)
{
    auto_buf struct sp_buf out = {0};
    char *exact = test_copy(text);

    assert_true(sp_plain_add(&out, (struct sp_str){exact, text.n}));
    assert_int_equal(out.len, strlen(want));
    if (out.len > 0)
        assert_memory_equal(out.data, want, out.len);
    free(exact);
}

static void is_word_for(const char *text, const char *want)
{
    auto_buf struct sp_buf out = {0};

    assert_true(sp_plain_add_word(&out, sp_str_of(text)));
    assert_int_equal(out.len, strlen(want));
    assert_memory_equal(out.data, want, out.len);
}

static void test_what_does_something_is_escaped(void **state)
{
    (void)state;
    is_plain(SP_STR(""), "");
    is_plain(SP_STR("plain text, caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"),
             "plain text, caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80");
    is_plain(SP_STR("a\nb\rc\td\x1b[2Je\0f\x7f"), "a\\nb\\rc\\td\\x1b[2Je\\x00f\\x7f");
    is_plain(SP_STR("\xc2\x9b"
                    "31m"),
             "\\x9b31m"); /* one character that begins a sequence */
    is_plain(SP_STR("\xe2\x80\xae\xe2\x81\xa6\xe2\x80\x8f\xd8\x9c\xef\xbb\xbf"),
             "\\u202e\\u2066\\u200f\\u061c\\ufeff");
    is_plain(SP_STR("\xc2\xa0\xe2\x80\x8b\xc2\xad"), "\xc2\xa0\\u200b\\xad");
}

static void test_bytes_that_are_not_text_are_shown(void **state)
{
    (void)state;
    is_plain(SP_STR("\xff\xfe"), "\\xff\\xfe");
    is_plain(SP_STR("\xc3"), "\\xc3");
    is_plain(SP_STR("\xe2\x82"), "\\xe2\\x82");
    is_plain(SP_STR("\xe2\x82x"), "\\xe2\\x82x");
    is_plain(SP_STR("\xc0\x80\xed\xa0\x80"), "\\xc0\\x80\\xed\\xa0\\x80");
    is_plain(SP_STR("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
}

static void test_words_are_quoted_where_they_must_be(void **state)
{
    (void)state;
    is_word_for("make", "make");
    is_word_for("--jobs=4", "--jobs=4");
    is_word_for("", "''");
    is_word_for("two words", "'two words'");
    is_word_for("it's", "'it'\\''s'");
    is_word_for("$HOME;x", "'$HOME;x'");
    is_word_for("a\nb", "'a\\nb'");
}

static void test_width_counts_columns(void **state)
{
    (void)state;
    assert_int_equal(sp_plain_width(SP_STR("")), 0);
    assert_int_equal(sp_plain_width(SP_STR("caf\xc3\xa9")), 4);
    assert_int_equal(sp_plain_width(SP_STR("\xf0\x9f\x98\x80")), 1); /* no UTF-8 locale yet */
    assert_non_null(setlocale(LC_CTYPE, "C.UTF-8"));
    assert_int_equal(sp_plain_width(SP_STR("caf\xc3\xa9")), 4);
    assert_int_equal(sp_plain_width(SP_STR("cafe\xcc\x81")), 4);
    assert_int_equal(sp_plain_width(SP_STR("\xf0\x9f\x98\x80")), 2);
    assert_int_equal(sp_plain_cut(SP_STR("a\xf0\x9f\x98\x80"), 2).n, 1);
    assert_int_equal(sp_plain_cut(SP_STR("a\xf0\x9f\x98\x80"), 3).n, 5);
    (void)setlocale(LC_CTYPE, "C");
}

static void add_piece(struct sp_buf *out, struct sp_str piece, bool is_end,
                      struct sp_plain_rest *rest)
{
    char *exact = test_copy(piece);

    assert_true(sp_plain_add_output(out, (struct sp_str){exact, piece.n}, is_end, rest));
    free(exact);
}

static void test_output_may_be_cut_anywhere(void **state)
{
    static const char want[] =
        "a\tb\n\\rc\\x1b[2J\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\\xc3x\\xff\n\n\\r"
        "\\xe2\\x82";
    const struct sp_str text =
        SP_STR("a\tb\r\n\rc\x1b[2J\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xc3x\xff\n\r\n\r\xe2\x82");

    (void)state;
    for (size_t i = 0; i <= text.n; i++)
        for (size_t j = i; j <= text.n; j++) {
            auto_buf struct sp_buf out = {0};
            struct sp_plain_rest rest = {0};

            add_piece(&out, (struct sp_str){text.p, i}, false, &rest);
            add_piece(&out, (struct sp_str){text.p + i, j - i}, false, &rest);
            add_piece(&out, (struct sp_str){text.p + j, text.n - j}, false, &rest);
            assert_true(rest.n <= 3);
            add_piece(&out, (struct sp_str){"", 0}, true, &rest);
            assert_int_equal(out.len, sizeof want - 1);
            assert_memory_equal(out.data, want, out.len);
        }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_what_does_something_is_escaped),
    cmocka_unit_test(test_bytes_that_are_not_text_are_shown),
    cmocka_unit_test(test_words_are_quoted_where_they_must_be),
    cmocka_unit_test(test_width_counts_columns),
    cmocka_unit_test(test_output_may_be_cut_anywhere),
};

TEST_MAIN(tests)
