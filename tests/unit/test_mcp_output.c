/* SPDX-License-Identifier: Apache-2.0 */
#include "base/utf8.h"
#include "mcp/output.h"
#include "memory_fixture.h"
#include "output_fixture.h"
#include "test.h"

/* ---- bytes ---- */

static void test_bytes(void **state)
{
    (void)state;
    gives(whole(""), ASK(LIMITED(10)), "", 0, 0);
    gives(whole("hello"), ASK(LIMITED(10)), "hello", 0, 5);
    gives(whole("hello"), ASK(LIMITED(0)), "hello", 0, 5);
    gives(whole("hello"), ASK(LIMITED(UINT64_MAX)), "hello", 0, 5);
    gives(whole("hello"), ASK(FROM(2), LIMITED(2)), "ll", 2, 4);
    gives(whole("hello"), ASK(FROM(5), LIMITED(2)), "", 5, 5);
    refuses(whole("hello"), ASK(FROM(6)), "from_byte 6 is behind the end: there are 5 bytes");
    refuses(whole("hello"), ASK(FROM(UINT64_MAX)),
            "from_byte 18446744073709551615 is behind the end: there are 5 bytes");
    refuses(whole("hello"), ASK(FROM(1), LINE(1)),
            "line stands alone: give it, or from_byte, or grep (with from_byte or not)");
}

static void test_characters_are_not_cut(void **state)
{
    const char *text = "a\xC3\xA9\xE2\x82\xAC.";

    (void)state;
    gives(whole(text), ASK(LIMITED(2)), "a", 0, 1);
    gives(whole(text), ASK(FROM(1), LIMITED(1)), "\xC3\xA9", 1, 3); /* one at least */
    gives(whole(text), ASK(FROM(1), LIMITED(4)), "\xC3\xA9", 1, 3);
    gives(whole(text), ASK(FROM(1), LIMITED(5)), "\xC3\xA9\xE2\x82\xAC", 1, 6);
    gives(whole(text), ASK(FROM(2), LIMITED(5)), "\xEF\xBF\xBD", 2, 3); /* from within one */
    gives(whole("\xE2\x82"), ASK(LIMITED(1)), "\xEF\xBF\xBD", 0, 2);
    gives(whole("\xE2\x82z"), ASK(LIMITED(3)), "\xEF\xBF\xBD", 0, 2);
    gives(whole("\xFF\xFFz"), ASK(LIMITED(6)), "\xEF\xBF\xBD\xEF\xBF\xBD", 0, 2);
}

static void test_a_character_that_may_become_whole_is_waited_for(void **state)
{
    struct sp_manager_view held = live("ab\xE2\x82");

    (void)state;
    gives(live("ab\xE2\x82"), ASK(LIMITED(10)), "ab", 0, 2);
    gives(live("ab\xE2\x82"), ASK(FROM(2), LIMITED(10)), "", 2, 2);
    gives(live("ab\xE2\x82\xAC"), ASK(FROM(2), LIMITED(10)), "\xE2\x82\xAC", 2, 5);
    gives(whole("ab\xE2\x82"), ASK(FROM(2), LIMITED(10)), "\xEF\xBF\xBD", 2, 4);
    gives(live("ab\xFF"), ASK(LIMITED(10)), "ab\xEF\xBF\xBD", 0, 3);
    held.has_exited = held.is_output_held = true;
    gives(held, ASK(LIMITED(10)), "ab", 0, 2);
}

static void test_the_gap(void **state)
{
    const struct sp_manager_view v = view(SP_STR("head\n"), 100, SP_STR("tail"));
    const struct sp_manager_view no_head = view(SP_STR(""), 3, SP_STR("ab"));
    const struct sp_manager_view no_tail = view(SP_STR("ab"), 3, SP_STR(""));

    (void)state;
    gives(v, ASK(LIMITED(1000)), "head\n", 0, 5);
    gives(v, ASK(FROM(4), LIMITED(1000)), "\n", 4, 5);
    gives(v, ASK(FROM(5), LIMITED(1000)), "... 100 bytes omitted ...\ntail", 105, 109);
    gives(v, ASK(FROM(104), LIMITED(28)), "... 100 bytes omitted ...\nta", 105, 107);
    gives(v, ASK(FROM(104), LIMITED(1)), "... 100 bytes omitted ...\nt", 105, 106);
    gives(v, ASK(FROM(105), LIMITED(2)), "ta", 105, 107);
    gives(v, ASK(FROM(109), LIMITED(2)), "", 109, 109);
    gives(no_head, ASK(LIMITED(9)), "ab", 3, 5);
    gives(no_head, ASK(FROM(0), LIMITED(99)), "... 3 bytes omitted ...\nab", 3, 5);
    gives(no_tail, ASK(FROM(2), LIMITED(99)), "... 3 bytes omitted ...\n", 5, 5);
    auto_output struct sp_mcp_output before = read_it(v, ASK(LIMITED(1000)));
    auto_output struct sp_mcp_output within = read_it(v, ASK(FROM(50), LIMITED(1000)));
    auto_output struct sp_mcp_output behind = read_it(no_head, ASK(LIMITED(1000)));
    assert_int_equal(before.omitted_bytes, 0);
    assert_int_equal(before.first_byte, 0);
    assert_int_equal(within.omitted_bytes, 100);
    assert_int_equal(behind.first_byte, 3);
    assert_false(before.has_matches);
    /* A character that lost its other half is none, on either side. */
    gives(view(SP_STR("a\xE2\x82"), 5, SP_STR("\xAC.")), ASK(LIMITED(9)), "a\xEF\xBF\xBD", 0, 3);
    gives(view(SP_STR("a\xE2\x82"), 5, SP_STR("\xAC.")), ASK(FROM(8), LIMITED(9)), "\xEF\xBF\xBD.",
          8, 10);
    gives(view(SP_STR("a\xE2"), 0, SP_STR("\x82\xAC.")), ASK(LIMITED(9)), "a\xE2\x82\xAC.", 0, 5);
}

/* ---- lines ---- */

static void test_lines(void **state)
{
    const struct sp_manager_view v = view(SP_STR("one\ntwo\nth"), 100, SP_STR("ree\nfour\n"));
    const struct sp_manager_view even = view(SP_STR("one\n"), 100, SP_STR("x\n"));

    (void)state;
    gives(whole("one\ntwo\n\nfour"), ASK(LINE(1), LIMITED(4)), "one\n", 0, 4);
    gives(whole("one\ntwo\n\nfour"), ASK(LINE(2), LIMITED(4)), "two\n", 4, 8);
    gives(whole("one\ntwo\n\nfour"), ASK(LINE(3), LIMITED(2)), "\nf", 8, 10);
    gives(whole("one\ntwo\n\nfour"), ASK(LINE(4), LIMITED(9)), "four", 9, 13);
    gives(whole(""), ASK(LINE(1), LIMITED(9)), "", 0, 0);
    refuses(whole("one\n"), ASK(LINE(2)), "line 2 is not there: there are 1");
    refuses(live("one\ntwo"), ASK(LINE(9)), "line 9 is not there yet: there are 2");
    refuses(whole("one"), ASK(LINE(0)), "line 0 is not there: the first is line 1");
    gives(v, ASK(LINE(3), LIMITED(9)), "th", 8, 10);
    refuses(v, ASK(LINE(4)),
            "line 4 cannot be told: bytes 10 to 109 are gone, and 3 lines begin before them. Use "
            "from_byte (what is kept goes on at 110), or grep");
    refuses(even, ASK(LINE(2)),
            "line 2 cannot be told: bytes 4 to 103 are gone, and 1 lines begin before them. Use "
            "from_byte (what is kept goes on at 104), or grep");
    refuses(view(SP_STR(""), 9, SP_STR("x")), ASK(LINE(1)),
            "line 1 cannot be told: bytes 0 to 8 are gone, and 0 lines begin before them. Use "
            "from_byte (what is kept goes on at 9), or grep");
}

/* ---- without escape sequences ---- */

#define T(s)             \
    {                    \
        s, sizeof(s) - 1 \
    }
static const struct plain_row {
    struct sp_str raw;
    const char *text;
} plain_rows[] = {
    {T(""), ""},
    {T("a\tb\nc"), "a\tb\nc"},
    {T("\x1B[1;31mred\x1B[0m"), "red"},
    {T("\x1B[?25l\x1B[2K\x1B[10;20Hx"), "x"},
    {T("\x1B[38:2::1:2:3mx\x1B[4 q"), "x"},
    {T("\x1B]0;title\x07x"), "x"},
    {T("\x1B]8;;http://a/\x1B\\link\x1B]8;;\x1B\\."), "link."},
    {T("\x1B]0;never ends\nx"), "\nx"},
    {T("\x1BPq#0;2\n~~\x1B\\x"), "x"},
    {T("\x1BPq\x07y\x18x"), "x"},
    {T("\x1B_apc\x1B\\\x1B^pm\x1B\\\x1BXsos\x1B\\x"), "x"},
    {T("\x1BOPx\x1BNyz"), "xz"},
    {T("\x1B(Bx\x1B#8y\x1B%Gz\x1B $!Aq"), "xyzq"},
    {T("\x1B"
       "7x\x1B"
       "8y\x1B=z\x1B>\x1BM\x1B"
       "c"),
     "xyz"},
    {T("a\x1B"), "a"},
    {T("a\x1B\nb"), "a\nb"},
    {T("a\x1B[31\nb"), "a\nb"},
    {T("\x1B\x1B[1mx"), "x"},
    {T("\x1B[3\x1B[1mx"), "x"},
    {T("\x1B[\xC3\xA9"), "\xC3\xA9"},
    {T("\x1BO\xC3\xA9"), "\xC3\xA9"},
    {T("\x1B]0;\xC3\xA9\x07x"), "x"},
    {T("a\0b\x07"
       "c\x08"
       "d\x7F"
       "e\x0B\x0C"
       "f\x0E\x0F"),
     "abcdef"},
    {T("one\r\ntwo\r\n"), "one\ntwo\n"},
    {T("10%\r20%\r100%\r\ndone"), "10%\n20%\n100%\ndone"},
    {T("a\r\r\nb\r\r\rc"), "a\nb\nc"},
    {T("a\r\x1B[K\nb"), "a\nb"},
    {T("a\r\x1B[Kb"), "a\nb"},
    {T("a\n\rb"), "a\n\nb"},
    {T("\xC2\x9B"
       "1mx"),
     "\xC2\x9B"
     "1mx"},
};

static void test_what_is_plain_in_any_pieces(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof plain_rows / sizeof plain_rows[0]; i++) {
        const struct sp_str raw = plain_rows[i].raw;

        for (size_t cut = 0; cut <= raw.n; cut++) {
            struct sp_mcp_plain p = {0};
            auto_buf struct sp_buf out = {0};
            auto_buf struct sp_buf bytes = {0};
            struct sp_mcp_plain q = {0};

            assert_true(sp_mcp_plain_add(&p, &out, (struct sp_str){raw.p, cut}));
            assert_true(sp_mcp_plain_add(&p, &out, (struct sp_str){raw.p + cut, raw.n - cut}));
            for (size_t at = 0; at < raw.n; at++)
                assert_true(sp_mcp_plain_add(&q, &bytes, (struct sp_str){raw.p + at, 1}));
            assert_int_equal(out.len, strlen(plain_rows[i].text));
            assert_int_equal(bytes.len, out.len);
            if (out.len != 0) {
                assert_memory_equal(out.data, plain_rows[i].text, out.len);
                assert_memory_equal(bytes.data, plain_rows[i].text, out.len);
            }
        }
    }
}

static void test_plain_text_ends_between_sequences(void **state)
{
    (void)state;
    gives(whole("a\x1B[1mb"), ASK(LIMITED(1), .is_plain = true), "a", 0, 5);
    gives(whole("a\x1B[1mb"), ASK(FROM(5), LIMITED(1), .is_plain = true), "b", 5, 6);
    gives(live("a\x1B[1"), ASK(LIMITED(9), .is_plain = true), "a", 0, 1);
    gives(whole("a\x1B[1"), ASK(LIMITED(9), .is_plain = true), "a", 0, 4);
    gives(live("a\r"), ASK(LIMITED(9), .is_plain = true), "a", 0, 1);
    gives(whole("a\r"), ASK(LIMITED(9), .is_plain = true), "a\n", 0, 2);
    gives(whole("\r\nx"), ASK(LIMITED(1), .is_plain = true), "\n", 0, 2);
    gives(whole("\rx"), ASK(LIMITED(1), .is_plain = true), "\n", 0, 1);
    gives(whole("\x1B[m\x1B[m"), ASK(LIMITED(1), .is_plain = true), "", 0, 6);
    gives(whole("\x1B]0;ti"), ASK(LIMITED(1), .is_plain = true), "", 0, 6);
}

/* ---- everything, once ---- */

static void fill(uint64_t *seed, struct sp_buf *out, size_t pieces)
{
    static const char *const piece[] = {
        "a",
        "b",
        "\n",
        "\r\n",
        "\r",
        "\xC3\xA9",
        "\xE2\x82\xAC",
        "\xFF",
        "\xE2\x82",
        "\xF0\x9F\x98\x80",
        "\x1B[1m",
        "\x1B]0;t\x07",
        "\x1B(B",
        "\x1B",
        "\t",
        "\x1BPx\x1B\\",
        "\x07",
        "\xF0\x9F",
        "\x1B[",
        "word",
        "\xC0\x80",
    };

    for (size_t i = 0; i < pieces; i++)
        assert_true(sp_buf_add_str(
            out, sp_str_of(piece[test_random(seed) % (sizeof piece / sizeof piece[0])])));
}

/* What a part comes to, all at once. */
static void add_decoded(struct sp_buf *out, struct sp_str raw, bool is_plain)
{
    auto_buf struct sp_buf text = {0};
    struct sp_mcp_plain p = {0};

    assert_true(sp_utf8_add_lossy(is_plain ? &text : out, raw));
    if (is_plain)
        assert_true(sp_mcp_plain_add(&p, out, (struct sp_str){text.data, text.len}));
}

static void reads_all(struct sp_manager_view v, bool is_plain, uint64_t limit, struct sp_buf *got)
{
    uint64_t at = 0;

    for (int reads = 0; at < v.total; reads++) {
        auto_output struct sp_mcp_output o =
            read_it(v, ASK(FROM(at), LIMITED(limit), .is_plain = is_plain));
        const bool is_over_gap = o.from_byte != at;

        assert_true(reads < 10000);
        assert_int_equal(o.omitted_bytes, is_over_gap ? v.omitted : 0);
        assert_true(o.next_byte > at);
        assert_true(is_over_gap || o.text.len <= limit || o.text.len <= 5);
        assert_true(sp_buf_add(got, o.text.data, o.text.len));
        at = o.next_byte;
    }
}

static void test_reading_on_reads_everything_once(void **state)
{
    uint64_t seed = 11;

    (void)state;
    for (int turn = 0; turn < 3000; turn++) {
        auto_buf struct sp_buf head = {0};
        auto_buf struct sp_buf tail = {0};
        auto_buf struct sp_buf want = {0};
        auto_buf struct sp_buf got = {0};
        const uint64_t omitted = test_random(&seed) % 2 == 0 ? 0 : 1000;
        const bool is_plain = test_random(&seed) % 2 != 0;
        const uint64_t limit = 1 + test_random(&seed) % 12;

        assert_true(sp_buf_add(&head, "", 0) && sp_buf_add(&tail, "", 0));
        fill(&seed, &head, test_random(&seed) % 20);
        fill(&seed, &tail, test_random(&seed) % 20);
        const struct sp_str a = {head.data, head.len};
        const struct sp_str b = {tail.data, tail.len};
        if (omitted != 0) {
            add_decoded(&want, a, is_plain);
            assert_true(sp_buf_printf(&want, "... 1000 bytes omitted ...\n"));
            add_decoded(&want, b, is_plain);
            reads_all(view(a, omitted, b), is_plain, limit, &got);
        } else {
            const struct sp_manager_view v = view(a, 0, b);

            reads_all(v, is_plain, limit, &got);
            assert_true(sp_buf_add_str(&head, b));
            add_decoded(&want, (struct sp_str){head.data, head.len}, is_plain);
        }
        assert_int_equal(got.len, want.len);
        if (want.len != 0)
            assert_memory_equal(got.data, want.data, want.len);
    }
}

/* One reads while it is written: as if it had been there from the start. */
static void test_reading_along_reads_everything_once(void **state)
{
    uint64_t seed = 12;

    (void)state;
    for (int turn = 0; turn < 2000; turn++) {
        auto_buf struct sp_buf all = {0};
        auto_buf struct sp_buf want = {0};
        auto_buf struct sp_buf got = {0};
        const bool is_plain = test_random(&seed) % 2 != 0;
        uint64_t at = 0;

        fill(&seed, &all, 1 + test_random(&seed) % 20);
        add_decoded(&want, (struct sp_str){all.data, all.len}, is_plain);
        for (size_t n = 0; n <= all.len; n++) {
            struct sp_manager_view v = view((struct sp_str){all.data, n}, 0, SP_STR(""));

            v.has_exited = n == all.len;
            auto_output struct sp_mcp_output o =
                read_it(v, ASK(FROM(at), LIMITED(1000), .is_plain = is_plain));
            assert_true(sp_buf_add(&got, o.text.data, o.text.len));
            at = o.next_byte;
        }
        assert_int_equal(at, all.len);
        assert_int_equal(got.len, want.len);
        if (want.len != 0)
            assert_memory_equal(got.data, want.data, want.len);
    }
}

static void test_without_memory_nothing_is_read(void **state)
{
    static const struct sp_mcp_output_request asks[] = {
        {.limit = 100},
        {.limit = 100, .is_plain = true},
        {.limit = 100, .has_from_byte = true, .from_byte = 7},
    };
    const struct sp_manager_view v =
        view(SP_STR("a\xFF\r\nb\x1B[m"), 9, SP_STR("behind the gap \xFF and more of it"));

    (void)state;
    for (size_t i = 0; i < sizeof asks / sizeof asks[0]; i++) {
        for (long at = 1;; at++) {
            struct sp_mcp_output o = {0};
            struct sp_err e = {0};

            end_memory_at(at);
            const int failed = sp_mcp_output_read(&v, &asks[i], &o, &e);
            if (!did_memory_end()) {
                assert_int_equal(failed, 0);
                assert_true(at >= 2);
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
    cmocka_unit_test(test_bytes),
    cmocka_unit_test(test_characters_are_not_cut),
    cmocka_unit_test(test_a_character_that_may_become_whole_is_waited_for),
    cmocka_unit_test(test_the_gap),
    cmocka_unit_test(test_lines),
    cmocka_unit_test(test_what_is_plain_in_any_pieces),
    cmocka_unit_test(test_plain_text_ends_between_sequences),
    cmocka_unit_test(test_reading_on_reads_everything_once),
    cmocka_unit_test(test_reading_along_reads_everything_once),
    cmocka_unit_test(test_without_memory_nothing_is_read),
};

TEST_MAIN(tests)
