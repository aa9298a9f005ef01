/* SPDX-License-Identifier: Apache-2.0 */
#include "memory_fixture.h"
#include "output_fixture.h"
#include "test.h"

static void greps(struct sp_manager_view v, struct sp_mcp_output_request ask, const char *text,
                  uint64_t matches, uint64_t next)
{
    auto_output struct sp_mcp_output o = read_it(v, ask);

    says(&o, text);
    assert_true(o.has_matches);
    assert_int_equal(o.matches, matches);
    assert_int_equal(o.next_byte, next);
}

#define LINES "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\n"

static void test_matches_with_lines_around_them(void **state)
{
    (void)state;
    greps(whole(LINES), ASK(GREP("three"), LIMITED(999)), "3:three\n", 1, 49);
    greps(whole(LINES), ASK(GREP("e$"), LIMITED(999)),
          "1:one\n--\n3:three\n--\n5:five\n--\n9:nine\n", 4, 49);
    greps(whole(LINES), ASK(GREP("four"), LIMITED(999), .context = 2),
          "2-two\n3-three\n4:four\n5-five\n6-six\n", 1, 49);
    greps(whole(LINES), ASK(GREP("one|ten"), LIMITED(999), .context = 2),
          "1:one\n2-two\n3-three\n--\n8-eight\n9-nine\n10:ten\n", 2, 49);
    greps(whole(LINES), ASK(GREP("two|five"), LIMITED(999), .context = 1),
          "1-one\n2:two\n3-three\n4-four\n5:five\n6-six\n", 2, 49);
    greps(whole(LINES), ASK(GREP("two|three"), LIMITED(999), .context = 1),
          "1-one\n2:two\n3:three\n4-four\n", 2, 49);
    greps(whole(LINES), ASK(GREP("six"), LIMITED(999), .context = UINT64_MAX),
          "1-one\n2-two\n3-three\n4-four\n5-five\n6:six\n7-seven\n8-eight\n9-nine\n10-ten\n", 1,
          49);
    greps(whole(LINES), ASK(GREP("zero"), LIMITED(999)), "", 0, 49);
    greps(whole(""), ASK(GREP(""), LIMITED(999)), "", 0, 0);
    greps(whole("\n\nx"), ASK(GREP("^$"), LIMITED(999)), "1:\n2:\n", 2, 3);
    refuses(whole("x"), ASK(GREP("(")), "grep: `(` at byte 0 is never closed");
    refuses(whole("x"), ASK(GREP("x"), LINE(1)),
            "line stands alone: give it, or from_byte, or grep (with from_byte or not)");
    refuses(whole("x"), ASK(GREP("x"), FROM(2)),
            "from_byte 2 is behind the end: there are 1 bytes");
}

static void test_a_line_is_without_its_end(void **state)
{
    (void)state;
    greps(whole("ab\r\nb\r\n"), ASK(GREP("^b$"), LIMITED(99)), "2:b\n", 1, 7);
    greps(whole("ab\r"), ASK(GREP("b$"), LIMITED(99)), "1:ab\n", 1, 3);
    greps(whole("a\xFF\n"), ASK(GREP("^a.$"), LIMITED(99)), "1:a\xEF\xBF\xBD\n", 1, 3);
    greps(whole("a\nb"), ASK(GREP("a\\nb|b\\n"), LIMITED(99)), "", 0, 3);
}

static void test_matches_without_escape_sequences(void **state)
{
    const char *text = "\x1B[31merror\x1B[0m: x\r\n\x1BPpic\nture\x1B\\fine\n10%\r20%\r30%\n";

    (void)state;
    greps(whole(text), ASK(GREP("^error: x$"), LIMITED(99)), "", 0, strlen(text));
    greps(whole(text), ASK(GREP("^error: x$"), LIMITED(99), .is_plain = true), "1:error: x\n", 1,
          strlen(text));
    greps(whole(text), ASK(GREP("fine"), LIMITED(99), .is_plain = true, .context = 1),
          "2-\n3:fine\n4-10%\n4-20%\n4-30%\n", 1, strlen(text));
    greps(whole(text), ASK(GREP("^20%$"), LIMITED(99), .is_plain = true), "4:10%\n4:20%\n4:30%\n",
          1, strlen(text));
}

static void test_the_gap_parts_lines(void **state)
{
    const struct sp_manager_view v = view(SP_STR("aa\nab\nb"), 100, SP_STR("b\nba\nc\naa\n"));
    const struct sp_manager_view no_head = view(SP_STR(""), 100, SP_STR("b\nba\n"));

    (void)state;
    greps(v, ASK(GREP("bb"), LIMITED(99)), "", 0, 117);
    greps(v, ASK(GREP("^b$"), LIMITED(99), .context = 1),
          "2-ab\n3:b\n... 100 bytes omitted ...\n+1:b\n+2-ba\n", 2, 117);
    greps(v, ASK(GREP("aa"), LIMITED(99)), "1:aa\n... 100 bytes omitted ...\n+4:aa\n", 2, 117);
    greps(v, ASK(GREP("aa"), FROM(3), LIMITED(99)), "+4:aa\n", 2, 117);
    greps(v, ASK(GREP("aa"), FROM(50), LIMITED(99)), "+4:aa\n", 2, 117);
    greps(no_head, ASK(GREP("ba"), LIMITED(99), .context = 1), "+1-b\n+2:ba\n", 1, 105);
    auto_output struct sp_mcp_output all = read_it(v, ASK(GREP("aa"), LIMITED(99)));
    auto_output struct sp_mcp_output few = read_it(v, ASK(GREP("a"), LIMITED(5)));
    auto_output struct sp_mcp_output within = read_it(v, ASK(GREP("aa"), FROM(50), LIMITED(99)));
    auto_output struct sp_mcp_output behind = read_it(v, ASK(GREP("aa"), FROM(107), LIMITED(99)));
    assert_int_equal(all.omitted_bytes, 100);
    assert_int_equal(few.omitted_bytes, 0);
    assert_int_equal(within.omitted_bytes, 100);
    assert_int_equal(within.from_byte, 107);
    assert_int_equal(behind.omitted_bytes, 0);
}

static void test_a_search_that_is_cut_goes_on(void **state)
{
    (void)state;
    greps(whole(LINES), ASK(GREP("o"), LIMITED(12), .context = 0), "1:one\n2:two\n", 3, 14);
    greps(whole(LINES), ASK(GREP("o"), FROM(14), LIMITED(12)), "4:four\n", 3, 49);
    /* The lines before a match are left for the next one with it. */
    greps(whole(LINES), ASK(GREP("one|six"), LIMITED(20), .context = 1), "1:one\n2-two\n", 2, 19);
    greps(whole(LINES), ASK(GREP("one|six"), FROM(19), LIMITED(99), .context = 1),
          "5-five\n6:six\n7-seven\n", 2, 49);
    /* From within a line it is looked at as a whole. */
    greps(whole(LINES), ASK(GREP("three"), FROM(10), LIMITED(99)), "3:three\n", 1, 49);
}

static void test_a_line_that_is_not_whole_is_looked_at_again(void **state)
{
    (void)state;
    greps(live("a\nrea"), ASK(GREP("ready"), LIMITED(99)), "", 0, 2);
    greps(live("a\nready"), ASK(GREP("ready"), FROM(2), LIMITED(99)), "2:ready\n", 1, 7);
    greps(live("a\nready now"), ASK(GREP("now"), FROM(7), LIMITED(99)), "2:ready now\n", 1, 11);
    greps(live("a\nrea"), ASK(GREP("ready"), FROM(4), LIMITED(99)), "", 0, 4);
    greps(live("a\n"), ASK(GREP("ready"), LIMITED(99)), "", 0, 2);
}

static void test_long_lines_are_cut(void **state)
{
    enum { LONG = 70000 };
    char *text = malloc(LONG + 1);

    (void)state;
    assert_non_null(text);
    memset(text, 'x', LONG);
    memcpy(text, "\xC3\xA9", 2);
    text[LONG - 1] = 'y';
    text[LONG] = 0;
    auto_output struct sp_mcp_output o = read_it(whole(text), ASK(GREP("y$"), LIMITED(100000)));
    assert_int_equal(o.matches, 1);
    assert_int_equal(o.text.len, 2 + 65536 + strlen(" [... 4464 more bytes]\n"));
    greps(whole(text), ASK(GREP("y$"), LIMITED(74)), "1:\xC3\xA9xxxxxxxx [... 69990 more bytes]\n",
          1, LONG);
    greps(whole(text), ASK(GREP("y$"), LIMITED(1)), "1:\xC3\xA9 [... 69998 more bytes]\n", 1, LONG);
    free(text);
}

/* With any limit, reading on gives every match once. */
static void test_every_match_is_given_once(void **state)
{
    uint64_t seed = 5;

    (void)state;
    for (int turn = 0; turn < 1000; turn++) {
        auto_buf struct sp_buf text = {0};
        auto_buf struct sp_buf want = {0};
        auto_buf struct sp_buf got = {0};
        const size_t lines = test_random(&seed) % 30;
        const uint64_t limit = 7 + test_random(&seed) % 40; /* a line fits */
        const uint64_t context = test_random(&seed) % 3;

        for (size_t i = 0; i < lines; i++) {
            const bool is_match = test_random(&seed) % 3 == 0;

            assert_true(sp_buf_printf(&text, "%s%zu\n", is_match ? "m" : "n", i + 1));
            assert_true(!is_match || sp_buf_printf(&want, "%zu:m%zu\n", i + 1, i + 1));
        }
        assert_true(sp_buf_add(&text, "", 1) && sp_buf_add(&got, "", 0));
        const struct sp_manager_view v = whole(text.data);
        for (uint64_t at = 0; at < v.total;) {
            auto_output struct sp_mcp_output o =
                read_it(v, ASK(GREP("m"), FROM(at), LIMITED(limit), .context = context));

            assert_true(o.next_byte > at);
            assert_true(o.text.len <= limit);
            for (const char *p = o.text.data, *end = p + o.text.len; p < end;) {
                const char *next = (const char *)memchr(p, '\n', (size_t)(end - p)) + 1;

                if (memchr(p, ':', (size_t)(next - p)) != NULL)
                    assert_true(sp_buf_add(&got, p, (size_t)(next - p)));
                p = next;
            }
            at = o.next_byte;
        }
        assert_int_equal(got.len, want.len);
        if (want.len != 0)
            assert_memory_equal(got.data, want.data, want.len);
    }
}

static void test_a_search_that_takes_too_long_ends(void **state)
{
    enum { SIZE = 1000000 };
    const struct sp_mcp_output_request ask =
        ASK(GREP("[a-m]((|a)*[^Q]|\\n){0,150}Q$"), LIMITED(99));
    char *text = malloc(SIZE);
    uint64_t seed = 1;
    struct sp_mcp_output o = {0};
    struct sp_err e = {0};

    (void)state;
    assert_non_null(text);
    for (size_t i = 0; i < SIZE; i++)
        text[i] = (char)('a' + test_random(&seed) % 26);
    const struct sp_manager_view v = view((struct sp_str){text, SIZE}, 0, SP_STR(""));
    if (sp_mcp_output_read(&v, &ask, &o, &e) < 0) /* else it was fast */
        assert_string_equal(e.msg,
                            "grep: the search takes too long; a simpler expression does not: "
                            "fewer and smaller repetitions {m,n}");
    sp_mcp_output_done(&o);
    free(text);
}

static void test_without_memory_nothing_is_found(void **state)
{
    const struct sp_manager_view v =
        view(SP_STR("aa\nab\n\x1B[mb\xFF"), 100, SP_STR("b\nba\nc\naa\n"));

    (void)state;
    for (int is_plain = 0; is_plain < 2; is_plain++) {
        const struct sp_mcp_output_request ask =
            ASK(GREP("b"), LIMITED(99), .context = 1, .is_plain = is_plain != 0);

        for (long at = 1;; at++) {
            struct sp_mcp_output o = {0};
            struct sp_err e = {0};

            end_memory_at(at);
            const int failed = sp_mcp_output_read(&v, &ask, &o, &e);
            if (!did_memory_end()) {
                assert_int_equal(failed, 0);
                assert_true(at > 10);
                sp_mcp_output_done(&o);
                break;
            }
            assert_int_equal(failed, -SP_E_SYSTEM);
            assert_int_equal(e.sys, ENOMEM);
            assert_null(o.text.data);
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_matches_with_lines_around_them),
    cmocka_unit_test(test_a_line_is_without_its_end),
    cmocka_unit_test(test_matches_without_escape_sequences),
    cmocka_unit_test(test_the_gap_parts_lines),
    cmocka_unit_test(test_a_search_that_is_cut_goes_on),
    cmocka_unit_test(test_a_line_that_is_not_whole_is_looked_at_again),
    cmocka_unit_test(test_long_lines_are_cut),
    cmocka_unit_test(test_every_match_is_given_once),
    cmocka_unit_test(test_a_search_that_takes_too_long_ends),
    cmocka_unit_test(test_without_memory_nothing_is_found),
};

TEST_MAIN(tests)
