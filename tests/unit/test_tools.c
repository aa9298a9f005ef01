/* SPDX-License-Identifier: Apache-2.0 */
/* What a model's JSON becomes, and the error text if it is wrong. */
#include <stdio.h>

#include "base/auto.h"
#include "mcp/arguments.h"
#include "test.h"

static const struct sp_tools_options plain = {.has_login = true};
static const struct sp_tools_options patient = {.has_no_timeout = true};

/* Beside the arguments, on the heap: the sanitizer sees the first byte too many. */
struct read {
    struct sp_arguments a;
    struct sp_exec_request exec;
    struct sp_write_request write;
    struct sp_compat_request compat;
    struct sp_err e;
    char *text;
};

static void done(struct read *r)
{
    sp_arguments_done(&r->a);
    free(r->text);
}

#define auto_read __attribute__((cleanup(done)))

static int parse(struct read *r, const char *text)
{
    r->text = test_copy(sp_str_of(text));
    return sp_arguments_parse(&r->a, (struct sp_str){r->text, strlen(text)}, &r->e);
}

static int read_exec(struct read *r, const char *text, const struct sp_tools_options *o)
{
    const int result = parse(r, text);

    return result < 0 ? result : sp_arguments_exec(&r->a, o, SP_SLOTS_CODEX, &r->exec, &r->e);
}

static int read_write(struct read *r, const char *text, const struct sp_tools_options *o)
{
    const int result = parse(r, text);

    return result < 0 ? result : sp_arguments_write(&r->a, o, SP_SLOTS_CODEX, &r->write, &r->e);
}

static int read_compat(struct read *r, const char *text)
{
    const int result = parse(r, text);

    return result < 0 ? result : sp_arguments_compat(&r->a, &r->compat, &r->e);
}

static void assert_str(struct sp_str s, const char *want)
{
    assert_int_equal(s.n, strlen(want));
    if (s.n != 0)
        assert_memory_equal(s.p, want, s.n);
}

struct refusal {
    const char *text, *why;
};

static void refuse_exec(const struct refusal *c, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        auto_read struct read r = {0};

        assert_true(read_exec(&r, c[i].text, &plain) < 0);
        assert_string_equal(r.e.msg, c[i].why);
    }
}

#define REFUSE_EXEC(cases) refuse_exec(cases, sizeof(cases) / sizeof(cases)[0])

static void test_the_five_documented_refusals_have_their_places(void **state)
{
    static const struct refusal exec[] = {
        {"{}", "missing field `cmd` at line 1 column 2"},
        {"{\"cmd\": \"true\", \"yield_time_ms\": -5}",
         "invalid value: integer `-5`, expected u64 at line 1 column 35"},
        {"{\"cmd\": \"echo hi\", \"sandbox_permissions\": \"bogus\"}",
         "unknown variant `bogus`, expected one of `use_default`, `require_escalated`, "
         "`with_additional_permissions` at line 1 column 49"},
    };
    static const struct refusal write[] = {
        {"{\"chars\": \"x\"}", "missing field `session_id` at line 1 column 14"},
        {"{\"session_id\": \"1000\"}",
         "invalid type: string \"1000\", expected i32 at line 1 column 21"},
    };

    (void)state;
    REFUSE_EXEC(exec);
    for (size_t i = 0; i < 2; i++) {
        auto_read struct read r = {0};

        assert_true(read_write(&r, write[i].text, &plain) < 0);
        assert_string_equal(r.e.msg, write[i].why);
    }
}

static void test_every_wrong_value_says_what_it_is(void **state)
{
    static const struct refusal c[] = {
        {"{\"cmd\":7}", "invalid type: integer `7`, expected a string at line 1 column 8"},
        {"{\"cmd\":7.5}",
         "invalid type: floating point `7.5`, expected a string at line 1 column 10"},
        {"{\"cmd\":null}", "invalid type: null, expected a string at line 1 column 11"},
        {"{\"cmd\":[\"ls\"]}", "invalid type: sequence, expected a string at line 1 column 7"},
        {"{\"cmd\":{}}", "invalid type: map, expected a string at line 1 column 7"},
        {"{\"cmd\":true}", "invalid type: boolean `true`, expected a string at line 1 column 11"},
        {"{\"cmd\":\"x\",\"tty\":\"yes\"}",
         "invalid type: string \"yes\", expected a boolean at line 1 column 22"},
        {"{\"cmd\":\"x\",\"tty\":1}",
         "invalid type: integer `1`, expected a boolean at line 1 column 18"},
        {"{\"cmd\":\"x\",\"yield_time_ms\":\"1000\"}",
         "invalid type: string \"1000\", expected u64 at line 1 column 33"},
        {"{\"cmd\":\"x\",\"yield_time_ms\":1000.5}",
         "invalid type: floating point `1000.5`, expected u64 at line 1 column 33"},
        {"{\"cmd\":\"x\",\"yield_time_ms\":-1000.0}",
         "invalid value: integer `-1000.0`, expected u64 at line 1 column 34"},
        {"{\"cmd\":\"x\",\"yield_time_ms\":18446744073709551616}",
         "invalid value: integer `18446744073709551616`, expected u64 at line 1 column 47"},
        {"{\"cmd\":\"x\",\"max_output_tokens\":-1}",
         "invalid value: integer `-1`, expected usize at line 1 column 33"},
        {"{\"cmd\":\"x\",\"prefix_rule\":\"git\"}",
         "invalid type: string \"git\", expected a sequence at line 1 column 30"},
        {"{\"cmd\":\"x\",\"prefix_rule\":[\"git\",3]}",
         "invalid type: integer `3`, expected a string at line 1 column 33"},
        {"{\"cmd\":\"x\",\"additional_permissions\":[]}",
         "invalid type: sequence, expected a map at line 1 column 36"},
        {"[]", "invalid type: sequence, expected a map at line 1 column 0"},
        {"\"x\"", "invalid type: string \"x\", expected a map at line 1 column 3"},
    };

    (void)state;
    REFUSE_EXEC(c);
}

static void test_places_are_those_of_the_text_as_it_came(void **state)
{
    static const struct refusal c[] = {
        /* Escapes become shorter when they are read, and one becomes a line break. */
        {"{\"cmd\":\"a\\nb\\u0041\",\"tty\":3}",
         "invalid type: integer `3`, expected a boolean at line 1 column 27"},
        {"{\"cmd\":\"x\",\n  \"tty\": 3}",
         "invalid type: integer `3`, expected a boolean at line 2 column 10"},
        {"{\n\n}", "missing field `cmd` at line 3 column 1"},
        {"{\"cmd\":\"x\",\"tty\":\"a\\\"b\"}",
         "invalid type: string \"a\"b\", expected a boolean at line 1 column 23"},
    };

    (void)state;
    REFUSE_EXEC(c);
}

static void test_the_first_wrong_member_is_told_before_what_is_missing(void **state)
{
    static const struct refusal c[] = {
        {"{\"tty\":3,\"yield_time_ms\":\"x\"}",
         "invalid type: integer `3`, expected a boolean at line 1 column 8"},
        {"{\"yield_time_ms\":\"x\",\"tty\":3}",
         "invalid type: string \"x\", expected u64 at line 1 column 20"},
    };

    (void)state;
    REFUSE_EXEC(c);
}

static void test_what_is_no_json_is_refused_with_a_place(void **state)
{
    static const char *const c[] = {"", "{", "{\"cmd\":\"x\"", "{\"cmd\":\"x\"} x", "nonsense"};

    (void)state;
    for (size_t i = 0; i < sizeof c / sizeof c[0]; i++) {
        auto_read struct read r = {0};

        assert_int_equal(read_exec(&r, c[i], &plain), -SP_E_MALFORMED);
        assert_non_null(strstr(r.e.msg, " at line 1 column "));
    }
}

static void test_all_members_of_exec_command_arrive(void **state)
{
    auto_read struct read r = {0};

    (void)state;
    assert_int_equal(
        read_exec(&r,
                  "{\"cmd\":\"echo \\u00e9\\n\",\"workdir\":\"sub\",\"tty\":true,"
                  "\"yield_time_ms\":31415,\"max_output_tokens\":6,\"shell\":\"/bin/zsh\","
                  "\"login\":false,\"environment_id\":\"far\","
                  "\"sandbox_permissions\":\"with_additional_permissions\","
                  "\"additional_permissions\":{\"network\":{\"enabled\":true},"
                  "\"file_system\":{\"read\":[\"/a\"],\"write\":[\"/b\"]}},"
                  "\"justification\":\"May I?\",\"prefix_rule\":[\"git\",\"pull\"]}",
                  &plain),
        0);
    assert_str(r.exec.cmd, "echo \xC3\xA9\n");
    assert_str(r.exec.workdir, "sub");
    assert_true(r.exec.is_tty);
    assert_true(r.exec.yield.has_yield_time);
    assert_int_equal(r.exec.yield.yield_time_ms, 31415);
    assert_true(r.exec.has_max_tokens);
    assert_int_equal(r.exec.max_tokens, 6);
    assert_str(r.exec.shell, "/bin/zsh");
    assert_true(r.exec.has_login);
    assert_false(r.exec.login);
    assert_str(r.exec.environment_id, "far");
    assert_true(r.exec.has_permissions);
    assert_int_equal(r.exec.permissions, SP_PERMISSIONS_ADDITIONAL);
    assert_non_null(r.exec.additional);
    assert_true(r.exec.additional->extra.has_network);
    assert_int_equal(r.exec.additional->extra.count, 2);
    assert_str(r.exec.justification, "May I?");
    assert_int_equal(r.exec.prefix_rule_count, 2);
    assert_str(r.exec.prefix_rule[1], "pull");
    assert_int_equal(r.exec.argc, 0);
}

static void test_what_is_absent_or_null_is_not_there(void **state)
{
    static const char *const c[] = {
        "{\"cmd\":\"\"}",
        "{\"cmd\":\"\",\"workdir\":null,\"tty\":null,\"yield_time_ms\":null,\"shell\":null,"
        "\"max_output_tokens\":null,\"login\":null,\"environment_id\":null,"
        "\"sandbox_permissions\":null,\"additional_permissions\":null,\"justification\":null,"
        "\"prefix_rule\":null}",
    };

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        auto_read struct read r = {0};

        assert_int_equal(read_exec(&r, c[i], &plain), 0);
        assert_non_null(r.exec.cmd.p);
        assert_int_equal(r.exec.cmd.n, 0);
        assert_false(r.exec.is_tty || r.exec.yield.has_yield_time || r.exec.has_max_tokens ||
                     r.exec.has_login || r.exec.has_permissions);
        assert_null(r.exec.shell.p);
        assert_null(r.exec.environment_id.p);
        assert_null(r.exec.justification.p);
        assert_null(r.exec.additional);
        assert_int_equal(r.exec.prefix_rule_count, 0);
    }
}

static void test_members_that_nobody_knows_are_ignored(void **state)
{
    auto_read struct read r = {0};

    (void)state;
    assert_int_equal(read_exec(&r, "{\"bogus\":1,\"cmd\":\"x\",\"more\":{\"cmd\":2}}", &plain), 0);
    assert_str(r.exec.cmd, "x");
}

static void test_a_whole_number_may_be_written_with_a_fraction(void **state)
{
    static const char *const c[] = {"1000", "1000.0", "1e3", "1.0E+3", "10000e-1"};

    (void)state;
    for (size_t i = 0; i < sizeof c / sizeof c[0]; i++) {
        auto_read struct read r = {0};
        char text[80];

        (void)snprintf(text, sizeof text, "{\"cmd\":\"x\",\"yield_time_ms\":%s}", c[i]);
        assert_int_equal(read_exec(&r, text, &plain), 0);
        assert_int_equal(r.exec.yield.yield_time_ms, 1000);
    }
}

static void test_a_fixed_shell_cannot_be_chosen(void **state)
{
    const struct sp_tools_options o = {.has_fixed_shell = true};
    auto_read struct read r = {0};

    (void)state;
    assert_int_equal(read_exec(&r, "{\"cmd\":\"x\",\"shell\":\"zsh\"}", &o), 0);
    assert_null(r.exec.shell.p);
}

static void test_all_members_of_write_stdin_arrive(void **state)
{
    auto_read struct read r = {0};

    (void)state;
    assert_int_equal(read_write(&r,
                                "{\"session_id\":1000.0,\"chars\":\"\\u0003\\u0000\","
                                "\"yield_time_ms\":5,\"max_output_tokens\":0,\"no_timeout\":true}",
                                &patient),
                     0);
    assert_int_equal(r.write.session_id, 1000);
    assert_bytes(r.write.chars.p, r.write.chars.n, "\x03\0");
    assert_int_equal(r.write.yield.yield_time_ms, 5);
    assert_true(r.write.has_max_tokens);
    assert_int_equal(r.write.max_tokens, 0);
    assert_true(r.write.no_timeout);
}

static void test_no_timeout_is_no_member_while_its_feature_is_off(void **state)
{
    auto_read struct read r = {0};

    (void)state;
    assert_int_equal(read_write(&r, "{\"session_id\":1,\"no_timeout\":\"what\"}", &plain), 0);
    assert_false(r.write.no_timeout);
}

static void test_session_ids_have_32_bits(void **state)
{
    static const struct {
        const char *text;
        int64_t want; /* INT64_MAX: refused */
    } c[] = {
        {"2147483647", 2147483647},    {"-2147483648", -2147483648}, {"-0", 0},
        {"2147483648", INT64_MAX},     {"-2147483649", INT64_MAX},   {"1e10", INT64_MAX},
        {"99999999999999", INT64_MAX}, {"1000.25", INT64_MAX},       {"null", INT64_MAX},
    };

    (void)state;
    for (size_t i = 0; i < sizeof c / sizeof c[0]; i++) {
        auto_read struct read r = {0};
        char text[80];

        (void)snprintf(text, sizeof text, "{\"session_id\":%s}", c[i].text);
        const int result = read_write(&r, text, &plain);
        assert_int_equal(result, c[i].want == INT64_MAX ? -SP_E_INVALID : 0);
        if (result == 0)
            assert_int_equal(r.write.session_id, c[i].want);
        else
            assert_non_null(strstr(r.e.msg, "expected i32 at line 1 column "));
    }
}

static void test_the_old_tool_takes_a_list(void **state)
{
    auto_read struct read r = {0};
    auto_read struct read bad = {0};

    (void)state;
    assert_int_equal(
        read_compat(&r, "{\"input\":[\"a\",\"\"],\"session_id\":\"12\",\"timeout_ms\":2500}"), 0);
    assert_int_equal(r.compat.input_count, 2);
    assert_str(r.compat.input[0], "a");
    assert_str(r.compat.session_id, "12");
    assert_int_equal(r.compat.timeout.yield_time_ms, 2500);
    assert_int_equal(read_compat(&bad, "{\"session_id\":\"1\"}"), -SP_E_INVALID);
    assert_string_equal(bad.e.msg, "missing field `input` at line 1 column 18");
}

static void test_numbers_are_exact(void **state)
{
    static const struct {
        const char *text;
        enum sp_number_kind kind;
        bool is_negative;
        uint64_t magnitude;
    } c[] = {
        {"0", SP_NUMBER_WHOLE, false, 0},
        {"-0", SP_NUMBER_WHOLE, true, 0},
        {"0.0e999999999999", SP_NUMBER_WHOLE, false, 0},
        {"-0.000", SP_NUMBER_WHOLE, true, 0},
        {"18446744073709551615", SP_NUMBER_WHOLE, false, UINT64_MAX},
        {"18446744073709551615.0", SP_NUMBER_WHOLE, false, UINT64_MAX},
        {"1.8446744073709551615e19", SP_NUMBER_WHOLE, false, UINT64_MAX},
        {"18446744073709551616", SP_NUMBER_TOO_BIG, false, 0},
        {"1e20", SP_NUMBER_TOO_BIG, false, 0},
        {"1e999999999999999999999", SP_NUMBER_TOO_BIG, false, 0},
        {"1e-999999999999999999999", SP_NUMBER_FRACTION, false, 0},
        {"0.05e2", SP_NUMBER_WHOLE, false, 5},
        {"1200e-2", SP_NUMBER_WHOLE, false, 12},
        {"1200e-3", SP_NUMBER_FRACTION, false, 0},
        {"1.5", SP_NUMBER_FRACTION, false, 0},
        {"-1.5e1", SP_NUMBER_WHOLE, true, 15},
        {"100.001", SP_NUMBER_FRACTION, false, 0},
        {"100.100e1", SP_NUMBER_WHOLE, false, 1001},
    };

    (void)state;
    for (size_t i = 0; i < sizeof c / sizeof c[0]; i++) {
        struct sp_number v = {0};

        assert_int_equal(sp_number_read(sp_str_of(c[i].text), &v), c[i].kind);
        if (c[i].kind == SP_NUMBER_WHOLE) {
            assert_int_equal(v.is_negative, c[i].is_negative);
            assert_true(v.magnitude == c[i].magnitude);
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_the_five_documented_refusals_have_their_places),
    cmocka_unit_test(test_every_wrong_value_says_what_it_is),
    cmocka_unit_test(test_places_are_those_of_the_text_as_it_came),
    cmocka_unit_test(test_the_first_wrong_member_is_told_before_what_is_missing),
    cmocka_unit_test(test_what_is_no_json_is_refused_with_a_place),
    cmocka_unit_test(test_all_members_of_exec_command_arrive),
    cmocka_unit_test(test_what_is_absent_or_null_is_not_there),
    cmocka_unit_test(test_members_that_nobody_knows_are_ignored),
    cmocka_unit_test(test_a_whole_number_may_be_written_with_a_fraction),
    cmocka_unit_test(test_a_fixed_shell_cannot_be_chosen),
    cmocka_unit_test(test_all_members_of_write_stdin_arrive),
    cmocka_unit_test(test_no_timeout_is_no_member_while_its_feature_is_off),
    cmocka_unit_test(test_session_ids_have_32_bits),
    cmocka_unit_test(test_the_old_tool_takes_a_list),
    cmocka_unit_test(test_numbers_are_exact),
};

TEST_MAIN(tests)
