/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/utf8.h"
#include "engine/answer.c" /* NOLINT: only the source has these functions */
#include "test.h"

#define DOTS "\xE2\x80\xA6"

#define WARNING(count) "Warning: truncated output (original token count: " #count ")\n"
#define LINES(count)   "Total output lines: " #count "\n\n"

static const struct limits USUAL = {.configured = {SP_ALLOWANCE_TOKENS, 10000}};

static struct limits asked(uint64_t max_tokens)
{
    struct limits l = USUAL;

    l.has_max_tokens = true;
    l.max_tokens = max_tokens;
    return l;
}

static struct sp_exec_answer exited(int code)
{
    return (struct sp_exec_answer){.chunk_id = SP_STR("7dd315"),
                                   .wall_ns = 92000000,
                                   .fate = SP_ANSWER_EXITED,
                                   .exit_code = code};
}

static void is(const struct sp_buf *out, struct sp_str want)
{
    if (!sp_str_eq((struct sp_str){out->data, out->len}, want))
        fail_msg("got <%.*s>, want <%.*s>", (int)out->len, out->data, (int)want.n, want.p);
}

/* What a call says that collected these bytes: the way from bytes to the answer. */
static void say(struct sp_buf *out, struct sp_exec_answer a, const struct sp_headtail *collected,
                const struct limits *limits)
{
    auto_buf struct sp_buf text = {0};

    assert_true(sp_answer_decode(&text, collected));
    set_output(&a, collected, (struct sp_str){text.data, text.len});
    assert_true(add_text(out, &a, limits));
    assert_true(sp_utf8_is_valid((struct sp_str){out->data, out->len}));
}

static void says(struct sp_str collected, struct limits limits, const char *want)
{
    auto_headtail struct sp_headtail h = {0};
    auto_buf struct sp_buf out = {0};

    sp_headtail_init(&h, SP_HEADTAIL_CAPACITY);
    assert_true(sp_headtail_push(&h, collected));
    say(&out, exited(3), &h, &limits);
    is(&out, sp_str_of(want));
}

/* The part after the header. */
static struct sp_str body_of(const struct sp_buf *text)
{
    static const char last[] = "Output:\n";
    const char *at = memmem(text->data, text->len, last, sizeof last - 1);

    assert_non_null(at);
    at += sizeof last - 1;
    return (struct sp_str){at, text->len - (size_t)(at - text->data)};
}

static size_t count_of(struct sp_str text, const char *what)
{
    size_t count = 0;

    for (const char *at; (at = memmem(text.p, text.n, what, strlen(what))) != NULL; count++) {
        const size_t past = (size_t)(at - text.p) + 1;

        text = (struct sp_str){text.p + past, text.n - past};
    }
    return count;
}

static bool begins(struct sp_str text, const char *with)
{
    return text.n >= strlen(with) && memcmp(text.p, with, strlen(with)) == 0;
}

static bool ends(struct sp_str text, const char *with)
{
    const size_t n = strlen(with);

    return text.n >= n && memcmp(text.p + text.n - n, with, n) == 0;
}

#define HEADER(count)                               \
    "Chunk ID: 7dd315\nWall time: 0.0920 seconds\n" \
    "Process exited with code 3\nOriginal token count: " #count "\nOutput:\n"

static void test_an_ended_process_is_told_line_by_line(void **state)
{
    (void)state;
    says(SP_STR("hello\n"), USUAL, HEADER(2) "hello\n");
    says(SP_STR("hello"), USUAL, HEADER(2) "hello");
    says(SP_STR(""), USUAL, HEADER(0));
}

static void test_a_live_process_has_its_session_instead_of_a_code(void **state)
{
    auto_buf struct sp_buf out = {0};
    const struct sp_exec_answer a = {.chunk_id = SP_STR("00000f"),
                                     .wall_ns = 300000000,
                                     .fate = SP_ANSWER_RUNNING,
                                     .session_id = 1000,
                                     .has_token_count = true};

    (void)state;
    assert_true(add_text(&out, &a, &USUAL));
    is(&out, SP_STR("Chunk ID: 00000f\nWall time: 0.3000 seconds\n"
                    "Process running with session ID 1000\nOriginal token count: 0\nOutput:\n"));
}

static void test_a_command_taken_over_has_neither_id_nor_code_nor_count(void **state)
{
    auto_buf struct sp_buf out = {0};
    const struct sp_exec_answer a = {.output = SP_STR("Done.\n")};

    (void)state;
    assert_true(add_text(&out, &a, &USUAL));
    is(&out, SP_STR("Wall time: 0.0000 seconds\nOutput:\nDone.\n"));
}

static void test_an_unknown_code_is_minus_one(void **state)
{
    auto_buf struct sp_buf out = {0};
    const struct sp_exec_answer a = {.fate = SP_ANSWER_EXITED, .exit_code = -1};

    (void)state;
    assert_true(add_text(&out, &a, &USUAL));
    is(&out, SP_STR("Wall time: 0.0000 seconds\nProcess exited with code -1\nOutput:\n"));
}

static void test_wall_time_has_four_decimals(void **state)
{
    static const struct {
        uint64_t ns;
        const char *text;
    } row[] = {
        {0, "0.0000"},
        {49999, "0.0000"},
        {50000, "0.0001"},
        {1250000000, "1.2500"},
        {1000100000, "1.0001"},
        {999999999, "1.0000"},
        {3600000000000, "3600.0000"},
        {UINT64_MAX, "18446744073.7096"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        auto_buf struct sp_buf out = {0};
        const struct sp_exec_answer a = {.wall_ns = row[i].ns};
        char want[80];

        (void)snprintf(want, sizeof want, "Wall time: %s seconds\nOutput:\n", row[i].text);
        assert_true(add_text(&out, &a, &USUAL));
        is(&out, sp_str_of(want));
    }
}

static void test_a_request_for_fewer_tokens_is_kept(void **state)
{
    static const char words[] =
        "token one token two token three token four token five token six token seven";

    (void)state;
    says(SP_STR(words), asked(6),
         HEADER(19) WARNING(19) LINES(1) "token one to" DOTS "13 tokens truncated" DOTS
                                         " token seven");
    says(SP_STR("abcdef"), asked(0), HEADER(2) WARNING(2) LINES(1) DOTS "2 tokens truncated" DOTS);
    says(SP_STR("a\nb\nc"), asked(1),
         HEADER(2) WARNING(2) LINES(3) "a\n" DOTS "1 tokens truncated" DOTS "\nc");
}

static void number_lines(struct sp_headtail *h, int count, int width)
{
    char line[64];

    for (int i = 1; i <= count; i++) {
        const int n = snprintf(line, sizeof line, "%0*d\n", width, i);

        assert_true(sp_headtail_push(h, (struct sp_str){line, (size_t)n}));
    }
}

static void test_the_whole_answer_keeps_within_the_configured_bound(void **state)
{
    static const struct sp_allowance max[] = {{SP_ALLOWANCE_BYTES, 200}, {SP_ALLOWANCE_TOKENS, 50}};
    static const char *const marker[] = {"chars truncated", "tokens truncated"};
    auto_headtail struct sp_headtail h = {0};

    (void)state;
    sp_headtail_init(&h, SP_HEADTAIL_CAPACITY);
    number_lines(&h, 150, 0);
    for (int i = 0; i < 2; i++) {
        auto_buf struct sp_buf out = {0};
        struct sp_exec_answer a = exited(0);

        a.wall_ns = 1250000000;
        say(&out, a, &h, &(struct limits){.configured = max[i]});
        const struct sp_str body = body_of(&out);
        assert_true(out.len <= 240);
        assert_int_equal(count_of(body, marker[i]), 1);
        assert_int_equal(count_of(body, "truncated" DOTS), 1);
        assert_true(begins(body, WARNING(123) LINES(150) "1\n2\n3\n"));
        assert_true(ends(body, "149\n150\n"));
        if (i == 0)
            assert_true(
                sp_str_eq(body, SP_STR(WARNING(123) LINES(150) "1\n2\n3\n4\n5\n6\n7\n8\n" DOTS
                                                               "460 chars truncated" DOTS
                                                               "147\n148\n149\n150\n")));
    }
}

static void test_a_request_does_not_raise_the_configured_bound(void **state)
{
    auto_headtail struct sp_headtail h = {0};
    auto_buf struct sp_buf out = {0};
    struct limits limits = asked(70000);

    (void)state;
    limits.configured.limit = 50;
    sp_headtail_init(&h, SP_HEADTAIL_CAPACITY);
    number_lines(&h, 999, 35);
    say(&out, exited(0), &h, &limits);
    const struct sp_str body = body_of(&out);
    assert_true(out.len <= 240);
    assert_true(begins(body, WARNING(8991) LINES(999)));
    assert_int_equal(count_of(body, "tokens truncated"), 1);
}

/* HEAD, 100000 lines, TAIL: more than the buffer keeps. */
static void fill_beyond(struct sp_headtail *h)
{
    sp_headtail_init(h, SP_HEADTAIL_CAPACITY);
    assert_true(sp_headtail_push(h, SP_STR("HEAD\n")));
    for (int i = 0; i < 100000; i++)
        assert_true(sp_headtail_push(h, SP_STR("token token \n")));
    assert_true(sp_headtail_push(h, SP_STR("TAIL\n")));
}

static void test_omitted_bytes_are_told_and_counted(void **state)
{
    auto_headtail struct sp_headtail h = {0};
    auto_buf struct sp_buf out = {0};
    const struct limits limits = asked(100);

    (void)state;
    fill_beyond(&h);
    say(&out, exited(0), &h, &limits);
    const struct sp_str body = body_of(&out);
    assert_int_equal(count_of((struct sp_str){out.data, out.len}, "token count: 325003"), 2);
    assert_true(begins(body, WARNING(325003) "... 251434 bytes omitted ...\n\nHEAD\n"));
    assert_int_equal(count_of(body, DOTS "262052 tokens truncated" DOTS), 1);
    assert_int_equal(count_of(body, "bytes omitted"), 1);
    assert_true(ends(body, "TAIL\n"));
}

static void test_a_flood_is_counted_to_its_last_byte(void **state)
{
    auto_headtail struct sp_headtail h = {0};
    auto_buf struct sp_buf out = {0};

    (void)state;
    sp_headtail_init(&h, SP_HEADTAIL_CAPACITY);
    for (int i = 0; i < 3000000 / 8; i++)
        assert_true(sp_headtail_push(&h, SP_STR("y\ny\ny\ny\n")));
    say(&out, exited(0), &h, &USUAL);
    const struct sp_str text = {out.data, out.len};
    assert_int_equal(count_of(text, "Original token count: 750000\n"), 1);
    assert_int_equal(count_of(text, "... 1951424 bytes omitted ..."), 1);
    assert_true(out.len <= 48000);
}

static void test_what_was_omitted_before_the_call_looked_is_in_its_answer(void **state)
{
    auto_headtail struct sp_headtail pending = {0};
    auto_headtail struct sp_headtail collected = {0};
    auto_buf struct sp_buf out = {0};

    (void)state;
    sp_headtail_init(&pending, 10);
    sp_headtail_init(&collected, 10);
    assert_true(sp_headtail_push(&pending, SP_STR("0123456789abcdefghijkl")));
    assert_true(sp_headtail_merge(&collected, &pending));
    assert_true(sp_headtail_push(&pending, SP_STR("m")));
    assert_true(sp_headtail_merge(&collected, &pending));
    say(&out, exited(3), &collected, &USUAL);
    is(&out, SP_STR(HEADER(6) "01234\n... 13 bytes omitted ...\nijklm"));
}

static struct sp_exec_answer gapped(struct sp_buf *text)
{
    char run[100];

    memset(run, 'a', sizeof run);
    assert_true(sp_buf_printf(text, "HEAD-%.100s\n... 123456 bytes omitted ...\nTAIL-", run));
    memset(run, 'z', sizeof run);
    assert_true(sp_buf_add(text, run, sizeof run));

    struct sp_exec_answer a = exited(0);
    a.has_token_count = true;
    a.token_count = 42000;
    a.omitted = 123456;
    a.output = (struct sp_str){text->data, text->len};
    return a;
}

static void test_a_marker_that_truncation_removes_is_said_in_front(void **state)
{
    auto_buf struct sp_buf text = {0};
    auto_buf struct sp_buf out = {0};
    const struct sp_exec_answer a = gapped(&text);
    const struct limits limits = asked(4);

    (void)state;
    assert_true(add_text(&out, &a, &limits));
    const struct sp_str said = {out.data, out.len};
    assert_int_equal(count_of(said, "Original token count: 42000\n"), 1);
    assert_int_equal(count_of(said, WARNING(42000)), 1);
    assert_int_equal(count_of(said, "... 123456 bytes omitted ..."), 1);
}

static void test_the_structured_output_is_whole_unless_a_number_was_asked_for(void **state)
{
    auto_buf struct sp_buf text = {0};
    auto_buf struct sp_buf out = {0};
    auto_headtail struct sp_headtail h = {0};
    struct sp_exec_answer a = exited(0);

    (void)state;
    sp_headtail_init(&h, SP_HEADTAIL_CAPACITY);
    number_lines(&h, 10000, 9);
    assert_true(sp_answer_decode(&text, &h));
    set_output(&a, &h, (struct sp_str){text.data, text.len});
    assert_true(a.has_token_count);
    assert_int_equal(a.token_count, 25000);
    assert_true(sp_answer_add_output(&out, &a, false, 0));
    is(&out, a.output);
    out.len = 0;
    assert_true(sp_answer_add_output(&out, &a, true, 6));
    is(&out, SP_STR(WARNING(25000) LINES(10000) "000000001\n00" DOTS "24994 tokens truncated" DOTS
                                                "9\n000010000\n"));
    out.len = 0;
    assert_true(sp_answer_add_output(&out, &a, true, 70000)); /* whatever is configured */
    is(&out, a.output);
}

static void test_without_memory_nothing_is_said(void **state)
{
    auto_buf struct sp_buf text = {0};
    const struct sp_exec_answer a = gapped(&text);
    const struct limits limits = asked(4);

    (void)state;
    for (size_t max = 1; max < 400; max++) {
        auto_buf struct sp_buf out = {.max = max};

        assert_true(sp_buf_add(&out, "<", 1));
        if (!add_text(&out, &a, &limits))
            assert_int_equal(out.len, 1);
        out.len = 1;
        if (!sp_answer_add_output(&out, &a, false, 0))
            assert_int_equal(out.len, 1);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_an_ended_process_is_told_line_by_line),
    cmocka_unit_test(test_a_live_process_has_its_session_instead_of_a_code),
    cmocka_unit_test(test_a_command_taken_over_has_neither_id_nor_code_nor_count),
    cmocka_unit_test(test_an_unknown_code_is_minus_one),
    cmocka_unit_test(test_wall_time_has_four_decimals),
    cmocka_unit_test(test_a_request_for_fewer_tokens_is_kept),
    cmocka_unit_test(test_the_whole_answer_keeps_within_the_configured_bound),
    cmocka_unit_test(test_a_request_does_not_raise_the_configured_bound),
    cmocka_unit_test(test_omitted_bytes_are_told_and_counted),
    cmocka_unit_test(test_a_flood_is_counted_to_its_last_byte),
    cmocka_unit_test(test_what_was_omitted_before_the_call_looked_is_in_its_answer),
    cmocka_unit_test(test_a_marker_that_truncation_removes_is_said_in_front),
    cmocka_unit_test(test_the_structured_output_is_whole_unless_a_number_was_asked_for),
    cmocka_unit_test(test_without_memory_nothing_is_said),
};

TEST_MAIN(tests)
