/* SPDX-License-Identifier: Apache-2.0 */
/* exec_command, write_stdin and read_output over real processes. */
#include "manager_state.h"
#include "mcp_tools_fixture.h"

static void test_a_command_answers_in_text_and_structure(void **state)
{
    auto_called struct called c = {0};

    (void)state;
    call(&c, "exec_command", "{\"cmd\":\"echo hello; exit 3\",\"login\":false}");
    assert_false(c.is_error);
    assert_memory_equal(c.text, "Process exited with code 3\nWall time: ", 38);
    assert_has(c.text, " seconds\nOutput:\nhello\n");
    assert_hasnt(c.text, "State:");
    assert_hasnt(c.text, "Woken by:");
    assert_has(c.json, "\"exit_code\":3,");
    assert_has(c.json, "\"output\":\"hello\\n\"");
    assert_has(c.json, "{\"state\":\"exited\",\"exit_code\":3,");
    assert_has(c.json, "\"from_byte\":0,\"next_byte\":6,\"omitted_bytes\":0");
    assert_has(c.json, "\"end_reason\":\"exit\"");
    assert_has(c.json, "\"denials\":[]");
    assert_hasnt(c.json, "woken_by");
    assert_hasnt(c.json, "holders");
}

static void test_argv_needs_no_shell(void **state)
{
    auto_called struct called c = {0};

    (void)state;
    call(&c, "exec_command", "{\"argv\":[\"printf\",\"<%s>\",\"a b\",\"$HOME\"]}");
    assert_has(c.json, "\"output\":\"<a b><$HOME>\"");
    call(&c, "exec_command",
         "{\"argv\":[\"sh\",\"-c\",\"echo $ONE-$TWO\"],\"env\":{\"ONE\":\"1\",\"TWO\":\"2 3\"},"
         "\"prefix_rule\":[\"x\"]}");
    assert_has(c.json, "\"output\":\"1-2 3\\n\"");
}

static void test_wrong_arguments_are_results(void **state)
{
    static const struct {
        const char *tool, *arguments, *why;
    } cases[] = {
        {"exec_command", "{}", "failed to parse function arguments: give `cmd` (a script"},
        {"exec_command", "{\"cmd\":\"a\",\"argv\":[\"a\"]}", "`cmd` or `argv`, not both"},
        {"exec_command", "{\"argv\":[]}", "at least one element"},
        {"exec_command", "{\"argv\":[1]}", "invalid type: integer `1`, expected a string"},
        {"exec_command", "{\"cmd\":\"a\",\"env\":[]}", "`env` is an object"},
        {"exec_command", "{\"cmd\":\"a\",\"env\":{\"a=b\":\"\"}}", "`a=b`: want NAME: \"VALUE\""},
        {"exec_command", "{\"cmd\":\"a\",\"env\":{\"a\":1}}", "`a`: want NAME: \"VALUE\""},
        {"exec_command", "{\"cmd\":\"a\",\"rows\":0}",
         "`rows`: invalid value: integer `0`, expected 1 to 65535"},
        {"exec_command", "{\"cmd\":\"a\",\"cols\":70000}", "expected 1 to 65535"},
        {"exec_command", "{\"cmd\":\"a\",\"timeout_ms\":-1}",
         "`timeout_ms`: invalid value: integer `-1`, expected a whole number"},
        {"exec_command", "{\"cmd\":\"a\",\"key\":\"\"}", "`key` has 1 to 256 bytes"},
        {"exec_command", "{\"cmd\":\"a\",\"until\":3}", "`until` is an object"},
        {"exec_command", "{\"cmd\":\"a\",\"until\":{}}", "has one or more of"},
        {"exec_command", "{\"cmd\":\"a\",\"until\":{\"exit\":false}}", "`exit` is true"},
        {"exec_command", "{\"cmd\":\"a\",\"until\":{\"port\":0}}", "from 1 to 65535"},
        {"exec_command", "{\"cmd\":\"a\",\"until\":{\"quiet_ms\":\"1\"}}",
         "`quiet_ms` is a number"},
        {"exec_command", "{\"cmd\":\"a\",\"until\":{\"pattern\":\"(\"}}", "`pattern`"},
        {"exec_command", "{\"cmd\":\"a\",\"until\":[{\"exit\":true},7]}", "is an object"},
        {"exec_command", "{\"cmd\":1}", "invalid type: integer `1`, expected a string"},
        {"exec_command", "{\"cmd\":\"a\",\"justification\":\"x\"}", "`justification` requires"},
        {"exec_command", "{\"cmd\":\"a\",\"workdir\":\"/site/none\"}",
         "exec_command failed: Failed to create unified exec process"},
        {"write_stdin", "{}", "missing field `session_id`"},
        {"write_stdin", "{\"session_id\":\"1\"}",
         "`session_id`: invalid type: string \"1\", expected a whole number"},
        {"write_stdin", "{\"session_id\":7}", "write_stdin failed: Unknown process id 7"},
        {"write_stdin", "{\"session_id\":7,\"keys\":[\"Return\"]}", "unknown key `Return`"},
        {"write_stdin", "{\"session_id\":7,\"keys\":[1]}", "`keys` is a list"},
        {"write_stdin", "{\"session_id\":7,\"keys\":true}", "`keys` is a list"},
        {"write_stdin", "{\"session_id\":7,\"chars\":\"a\",\"write_id\":\"\"}", "`write_id` has 1"},
        {"read_output", "{}", "missing field `session_id`"},
        {"read_output", "{\"session_id\":7}", "Unknown process id 7"},
        {"read_output", "{\"session_id\":7,\"line\":1,\"grep\":\"a\"}", "give one of"},
        {"read_output", "{\"session_id\":7,\"line\":1,\"from_byte\":2}", "give one of"},
        {"read_output", "{\"session_id\":7,\"limit\":0}", "`limit` is a number from 1"},
        {"read_output", "{\"session_id\":7,\"context\":101}", "`context` is at most 100"},
        {"read_output", "{\"session_id\":7,\"view\":\"screen\"}", "`view` is `raw` or `plain`"},
        {"signal_session", "{\"session_id\":7}", "Unknown process id 7"},
        {"signal_session", "{\"session_id\":7,\"signal\":\"FOO\"}", "there is no signal `FOO`"},
        {"resize_session", "{\"session_id\":7,\"rows\":5}", "missing field `cols`"},
        {"resize_session", "{\"session_id\":7,\"rows\":5,\"cols\":5}", "Unknown process id 7"},
        {"explain_denial", "{}", "give one of `session_id`, `path` and `host`"},
        {"explain_denial", "{\"path\":\"/\",\"host\":\"x\"}", "give one of"},
        {"explain_denial", "{\"session_id\":7}", "Unknown process id 7"},
        {"list_sessions", "[]", "failed to parse function arguments"},
        {"apply_patch", "{}", "missing field `input`"},
        {"apply_patch", "{\"input\":\"nonsense\"}", "apply_patch verification failed: "},
    };
    auto_called struct called c = {0};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_fails(&c, cases[i].tool, cases[i].arguments, cases[i].why);
    assert_int_equal(sp_manager_reserved(caller->manager), 0);
}

static void test_there_are_no_other_tools(void **state)
{
    struct sp_err e = {0};
    struct called c = {0};

    (void)state;
    assert_int_equal(try_call(&c, "unified_exec", "{}", &e), -SP_E_NO_METHOD);
    assert_int_equal(try_call(&c, "", "{}", &e), -SP_E_NO_METHOD);
}

static void test_a_terminal_says_that_it_is_waited_for_and_takes_keys(void **state)
{
    auto_called struct called c = {0};

    (void)state;
    call(&c, "exec_command",
         "{\"argv\":[\"sh\",\"-c\",\"stty size; stty -echo; echo ready; cat -v\"],\"tty\":true,"
         "\"rows\":33,\"cols\":99,\"until\":{\"pattern\":\"rea.y\"},\"yield_time_ms\":20000}");
    assert_false(c.is_error);
    assert_has(c.text, "Process running with session ID 1000\n");
    assert_has(c.text, "\nWoken by: pattern \"rea.y\"\nOutput:\n33 99\r\n");
    assert_has(c.json, "\"woken_by\":{\"pattern\":\"rea.y\"}");
    assert_has(c.json, "\"session_id\":1000,");
    call(&c, "write_stdin",
         "{\"session_id\":1000,\"chars\":\"a\",\"keys\":[\"Up\",\"F1\",\"F12\","
         "\"Escape\",\"Enter\"],\"until\":{\"pattern\":\"O.*~\"},"
         "\"yield_time_ms\":20000}");
    assert_has(c.json, "a^[[A^[OP^[[24~^[");
    run_for(100);
    call(&c, "write_stdin", "{\"session_id\":1000}");
    assert_has(c.text, "\nState: reading_terminal\nOutput:\n");
    assert_has(c.json, "\"state\":\"reading_terminal\"");
    assert_hasnt(c.text, "Woken by");
    call(&c, "write_stdin",
         "{\"session_id\":1000,\"keys\":\"C-v C-a Enter\",\"eof\":true,\"until\":[{\"port\":1},"
         "{\"exit\":true}],\"yield_time_ms\":20000}");
    assert_has(c.text, "\nWoken by: exit\n");
    assert_has(c.json, "^A");
    assert_has(c.json, "\"woken_by\":{\"exit\":true}");
    assert_has(c.json, "\"state\":\"exited\"");
    assert_has(c.json, "\"exit_code\":0");
    call(&c, "write_stdin", "{\"session_id\":1000}");
    assert_true(c.is_error);
    assert_string_equal(
        c.text, "write_stdin failed: Unknown process id 1000; read_output still has its output");
    call(&c, "write_stdin", "{\"session_id\":4711}");
    assert_string_equal(c.text, "write_stdin failed: Unknown process id 4711");
    assert_has(c.note, "list_sessions names those that there are");
    call(&c, "read_output", "{\"session_id\":1000,\"grep\":\"^ready\",\"context\":0}");
    assert_has(c.json, "{\"state\":\"exited\",\"exit_code\":0,");
}

static void test_keys_are_a_terminals(void **state)
{
    auto_called struct called c = {0};

    (void)state;
    call(&c, "exec_command", "{\"argv\":[\"sleep\",\"300\"],\"yield_time_ms\":250}");
    assert_has(c.text, "\nState: sleeping\n");
    assert_fails(&c, "write_stdin", "{\"session_id\":1000,\"keys\":[\"C-c\"]}",
                 "write_stdin failed: `keys` and `eof` need a terminal");
    assert_fails(&c, "write_stdin", "{\"session_id\":1000,\"eof\":true}", "need a terminal");
    assert_fails(&c, "write_stdin", "{\"session_id\":1000,\"chars\":\"x\"}",
                 "write_stdin failed: stdin is closed for this session");
    call(&c, "write_stdin", "{\"session_id\":1000,\"chars\":\"\\u0003\",\"yield_time_ms\":20000}");
    assert_has(c.json, "\"signal\":\"SIGINT\",\"end_reason\":\"signal\"");
    assert_has(c.json, "\"exit_code\":130");
}

static void test_every_condition_wakes(void **state)
{
    auto_called struct called c = {0};

    (void)state;
    call(&c, "exec_command",
         "{\"argv\":[\"sh\",\"-c\",\"echo x; sleep 300\"],\"yield_time_ms\":20000,"
         "\"until\":[{\"pattern\":\"never\"},{\"quiet_ms\":300}]}");
    assert_has(c.text, "\nWoken by: quiet_ms 300\n");
    assert_has(c.json, "\"woken_by\":{\"quiet_ms\":300}");
    call(&c, "exec_command",
         "{\"argv\":[\"sleep\",\"300\"],\"yield_time_ms\":250,\"until\":{\"pattern\":\"\\n\"}}");
    assert_has(c.text, "\nWoken by: deadline\n");
    assert_has(c.json, "\"woken_by\":{\"deadline\":true}");
    call(&c, "exec_command", "{\"argv\":[\"true\"],\"until\":{\"exit\":true}}");
    assert_has(c.text, "\nWoken by: exit\n");
    call(&c, "exec_command", "{\"argv\":[\"sleep\",\"300\"],\"timeout_ms\":300}");
    assert_has(c.json, "\"signal\":\"SIGKILL\",\"end_reason\":\"timeout\"");
}

static void test_who_holds_output_open_is_named(void **state)
{
    auto_called struct called c = {0};

    (void)state;
    /* A child that has yet to call execve is named after the shell. */
    call(&c, "exec_command",
         "{\"argv\":[\"sh\",\"-c\",\"sleep 3 & "
         "while read n </proc/$!/comm && [ $n != sleep ]; do :; done; echo gone\"]}");
    assert_has(c.json, "\"exit_code\":0");
    assert_has(c.text, "\nState: output_held\n");
    assert_has(c.json, "\"state\":\"output_held\"");
    assert_has(c.json, "\"name\":\"sleep\"}]");
}

static void test_output_is_read_again(void **state)
{
    auto_called struct called c = {0};

    (void)state;
    call(&c, "exec_command",
         "{\"cmd\":\"printf 'one\\\\n\\\\033[1mtwo\\\\033[0m\\\\nthree\\\\n'; sleep 300\","
         "\"login\":false,\"yield_time_ms\":1000}");
    call(&c, "read_output", "{\"session_id\":1000}");
    assert_has(c.text, "Bytes: 0-22 of 22\nState: ");
    assert_has(c.text, "\nOutput:\none\n\033[1mtwo\033[0m\nthree\n");
    assert_has(c.json, "\"from_byte\":0,\"next_byte\":22,\"first_byte\":0,\"end_byte\":22,"
                       "\"omitted_bytes\":0");
    assert_hasnt(c.json, "exit_code");
    call(&c, "read_output", "{\"session_id\":1000,\"line\":2,\"view\":\"plain\"}");
    assert_has(c.json, "\"output\":\"two\\nthree\\n\"");
    call(&c, "read_output", "{\"session_id\":1000,\"from_byte\":4,\"limit\":3}");
    assert_has(c.json, "\"from_byte\":4,\"next_byte\":7,");
    call(&c, "read_output", "{\"session_id\":1000,\"line\":99}");
    assert_true(c.is_error);
    assert_has(c.text, "read_output failed: ");
    call(&c, "read_output", "{\"session_id\":1000,\"grep\":\"(\"}");
    assert_true(c.is_error);
}

static const struct CMUnitTest tests[] = {
    tools_test(test_a_command_answers_in_text_and_structure),
    tools_test(test_argv_needs_no_shell),
    tools_test(test_wrong_arguments_are_results),
    tools_test(test_there_are_no_other_tools),
    tools_test(test_a_terminal_says_that_it_is_waited_for_and_takes_keys),
    tools_test(test_keys_are_a_terminals),
    tools_test(test_every_condition_wakes),
    tools_test(test_who_holds_output_open_is_named),
    tools_test(test_output_is_read_again),
};

TEST_MAIN(tests)
