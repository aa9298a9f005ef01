/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "base/utf8.h"
#include "process_fixture.h"

static char line[16384];

/* What one call writes to stderr. */
#define LOGGED(...) (begin_capture(), sp_log(__VA_ARGS__), end_capture())

static int saved_stderr, capture[2];

static void begin_capture(void)
{
    saved_stderr = fcntl(2, F_DUPFD_CLOEXEC, 10);
    assert_int_equal(pipe2(capture, O_CLOEXEC), 0);
    assert_int_equal(dup2(capture[1], 2), 2);
    (void)close(capture[1]);
}

static const char *end_capture(void)
{
    assert_int_equal(dup2(saved_stderr, 2), 2); /* the pipe's last writer goes */
    (void)close(saved_stderr);
    assert_true(read_to_end(capture[0], line, sizeof line, NULL, DEADLINE_MS));
    (void)close(capture[0]);
    return line;
}

static int plain(void **state)
{
    (void)state;
    sp_log_set_json(false);
    return sp_log_set_level("info") ? 0 : -1;
}

static int json(void **state)
{
    sp_log_set_json(true);
    return sp_log_set_level("info") && state != NULL ? 0 : -1;
}

static void test_a_level_says_what_is_told(void **state)
{
    (void)state;
    assert_false(sp_log_set_level("loud"));
    assert_false(sp_log_set_level(""));
    assert_false(sp_log_set_level("ERROR"));
    assert_true(sp_log_set_level("warn"));
    assert_string_equal(LOGGED(SP_LOG_INFO, "x"), "");
    assert_non_null(strstr(LOGGED(SP_LOG_WARN, "x"), " warn  x\n"));
    assert_true(sp_log_set_level("error"));
    assert_string_equal(LOGGED(SP_LOG_WARN, "x"), "");
    assert_non_null(strstr(LOGGED(SP_LOG_ERROR, "x"), " error x\n"));
    assert_true(sp_log_set_level("debug"));
    assert_non_null(strstr(LOGGED(SP_LOG_DEBUG, "%d %s", 7, "y"), " debug 7 y\n"));
}

static void test_a_line_begins_with_the_time(void **state)
{
    (void)state;
    (void)LOGGED(SP_LOG_ERROR, "x");
    assert_int_equal(strlen("2026-01-02T03:04:05.678Z"), strcspn(line, " "));
    for (size_t i = 0; i < 24; i++) {
        const char want = "dddd-dd-ddTdd:dd:dd.dddZ"[i];

        assert_true(want == 'd' ? line[i] >= '0' && line[i] <= '9' : line[i] == want);
    }
}

static void test_control_characters_forge_no_line(void **state)
{
    char text[64];
    size_t n = 0;

    (void)state;
    for (int c = 1; c < 32; c++)
        text[n++] = (char)c;
    text[n++] = 0x7F;
    text[n] = 0;
    (void)LOGGED(SP_LOG_ERROR, "<%s>", text);
    assert_non_null(strstr(line, "<\\u0001\\u0002"));
    assert_non_null(strstr(line, "\\u000a"));
    assert_non_null(strstr(line, "\\u001b"));
    assert_non_null(strstr(line, "\\u007f>"));
    for (const char *p = line; p[1] != 0; p++)
        assert_true((unsigned char)*p >= 0x20 && *p != 0x7F);
}

/* The line as a program reads it. */
static void is_json(const char *want_message)
{
    const size_t len = strlen(line);
    const char *const start = strstr(line, "\"message\":\"");

    assert_true(len > 2 && line[len - 1] == '\n' && line[len - 2] == '}' && line[0] == '{');
    assert_ptr_equal(strchr(line, '\n'), line + len - 1); /* one line */
    assert_true(sp_utf8_is_valid(sp_str_of(line)));
    assert_non_null(start);
    /* No bare quote or control inside of the message, every escape a known one. */
    size_t out = 0;
    static char message[16384];
    const char *p = start + 11;
    for (; *p != '"'; p++) {
        assert_true((unsigned char)*p >= 0x20);
        if (*p != '\\') {
            message[out++] = *p;
        } else if (*++p == 'u') {
            char hex[5] = {p[1], p[2], p[3], p[4], 0};
            char *end;

            message[out++] = (char)strtol(hex, &end, 16);
            assert_ptr_equal(end, hex + 4);
            p += 4;
        } else {
            assert_true(*p == '"' || *p == '\\');
            message[out++] = *p;
        }
    }
    message[out] = 0;
    assert_string_equal(p, "\"}\n");
    if (want_message != NULL)
        assert_string_equal(message, want_message);
}

static void test_json_says_the_message_as_it_was(void **state)
{
    (void)state;
    (void)LOGGED(SP_LOG_WARN, "%s", "plain");
    is_json("plain");
    assert_non_null(strstr(line, "\"level\":\"warn\""));
    assert_memory_equal(line, "{\"time\":\"2", 10);
    (void)LOGGED(SP_LOG_WARN, "%s", "a \"quote\", a \\ and\n\ttwo \x1b[31mlines\x7f");
    is_json("a \"quote\", a \\ and\n\ttwo \x1b[31mlines\x7f");
    (void)LOGGED(SP_LOG_WARN, "%s", "\"}\n{\"level\":\"forged\"");
    is_json("\"}\n{\"level\":\"forged\"");
    (void)LOGGED(SP_LOG_WARN, "%s", "gr\xC3\xBC\xC3\x9F");
    is_json("gr\xC3\xBC\xC3\x9F");
}

static void test_a_long_message_is_cut_and_the_line_stays_whole(void **state)
{
    static const char *const units[] = {"x", "\"", "\\", "\n", "\x01", "x\n", "\\\"\x7f"};
    static char text[20000];

    (void)state;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        text[0] = 0;
        for (size_t n = 0; n + 8 < 12000; n += strlen(units[i]))
            strcpy(text + n, units[i]);
        (void)LOGGED(SP_LOG_WARN, "%s", text);
        is_json(NULL);
        assert_true(strlen(line) > 900 && strlen(line) < 2300);
    }
}

static void test_a_cut_message_is_still_utf8(void **state)
{
    static char text[6000];

    (void)state;
    for (int shift = 0; shift < 4; shift++) {
        memset(text, 'x', (size_t)shift);
        for (size_t n = (size_t)shift; n + 4 < sizeof text; n += 4)
            strcpy(text + n, "\xF0\x9F\x98\x80");
        (void)LOGGED(SP_LOG_WARN, "%s", text);
        is_json(NULL);
        /* The same where escapes make it longer than the line. */
        memset(text, 1, 340);
        (void)LOGGED(SP_LOG_WARN, "%s", text);
        is_json(NULL);
    }
}

static void test_json_is_utf8_whatever_was_logged(void **state)
{
    (void)state;
    (void)LOGGED(SP_LOG_WARN, "%s", "a path: \xFF\xFE/\xC3");
    is_json(NULL);
}

#define log_test(f, how) cmocka_unit_test_setup(f, how)

static const struct CMUnitTest tests[] = {
    log_test(test_a_level_says_what_is_told, plain),
    log_test(test_a_line_begins_with_the_time, plain),
    log_test(test_control_characters_forge_no_line, plain),
    log_test(test_control_characters_forge_no_line, json),
    log_test(test_json_says_the_message_as_it_was, json),
    log_test(test_a_long_message_is_cut_and_the_line_stays_whole, json),
    log_test(test_a_cut_message_is_still_utf8, json),
    log_test(test_json_is_utf8_whatever_was_logged, json),
};

TEST_MAIN(tests)
