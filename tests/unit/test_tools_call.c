/* SPDX-License-Identifier: Apache-2.0 */
/* From a tool's name and JSON to the manager and back, with a
 * manager that only writes down what it is asked. */
#include <stdio.h>

#include "base/auto.h"
#include "base/json.h"
#include "mcp/tools.h"
#include "memory_fixture.h"
#include "test.h"

/* ---- the manager ---- */

enum asked { ASKED_NOTHING, ASKED_EXEC, ASKED_WRITE, ASKED_REFUSE, ASKED_PERMISSIONS };

static struct {
    enum asked what;
    char words[256]; /* argv, chars or the refusal's text */
    char call_id[16], turn_id[16];
    int session_id;
    bool is_tty, is_compat;
    struct sp_yield_request yield;
    sp_reply_fn *fn;
    void *user;
} last;

static int note(enum asked what, struct sp_str call_id, sp_reply_fn *fn, void *user,
                uint64_t *ret_call)
{
    last.what = what;
    (void)snprintf(last.call_id, sizeof last.call_id, SP_STR_FMT, SP_STR_ARG(call_id));
    last.fn = fn;
    last.user = user;
    *ret_call = 7;
    return 0;
}

int sp_manager_exec(struct sp_manager *m, const struct sp_exec_request *ask, sp_reply_fn *fn,
                    void *user, uint64_t *ret_call, struct sp_err *e)
{
    size_t n = 0;

    (void)m;
    (void)e;
    if (ask->cmd.p != NULL && ask->cmd.n == 4 && memcmp(ask->cmd.p, "FAIL", 4) == 0)
        return sp_fail(e, SP_E_SYSTEM, 12, "no memory");
    for (uint32_t i = 0; i < ask->argc; i++)
        n += (size_t)snprintf(last.words + n, sizeof last.words - n, "[" SP_STR_FMT "]",
                              SP_STR_ARG(ask->argv[i]));
    if (ask->argc == 0)
        (void)snprintf(last.words, sizeof last.words, SP_STR_FMT, SP_STR_ARG(ask->cmd));
    (void)snprintf(last.turn_id, sizeof last.turn_id, SP_STR_FMT, SP_STR_ARG(ask->turn_id));
    last.is_tty = ask->is_tty;
    last.is_compat = ask->is_compat;
    last.yield = ask->yield;
    return note(ASKED_EXEC, ask->call_id, fn, user, ret_call);
}

int sp_manager_request_permissions(struct sp_manager *m, const struct sp_permissions_request *ask,
                                   sp_reply_fn *fn, void *user, uint64_t *ret_call,
                                   struct sp_err *e)
{
    (void)m;
    (void)e;
    (void)snprintf(last.words, sizeof last.words, SP_STR_FMT "|" SP_STR_FMT "|%zu|%d",
                   SP_STR_ARG(ask->reason), SP_STR_ARG(ask->environment_id),
                   ask->permissions->extra.count, ask->permissions->extra.has_network);
    (void)snprintf(last.turn_id, sizeof last.turn_id, SP_STR_FMT, SP_STR_ARG(ask->turn_id));
    return note(ASKED_PERMISSIONS, ask->call_id, fn, user, ret_call);
}

int sp_manager_write(struct sp_manager *m, const struct sp_write_request *ask, sp_reply_fn *fn,
                     void *user, uint64_t *ret_call, struct sp_err *e)
{
    (void)m;
    (void)e;
    (void)snprintf(last.words, sizeof last.words, SP_STR_FMT, SP_STR_ARG(ask->chars));
    last.session_id = ask->session_id;
    last.is_compat = ask->is_compat;
    last.yield = ask->yield;
    return note(ASKED_WRITE, ask->call_id, fn, user, ret_call);
}

int sp_manager_refuse(struct sp_manager *m, struct sp_str text, sp_reply_fn *fn, void *user,
                      uint64_t *ret_call, struct sp_err *e)
{
    (void)m;
    (void)e;
    (void)snprintf(last.words, sizeof last.words, SP_STR_FMT, SP_STR_ARG(text));
    return note(ASKED_REFUSE, SP_STR(""), fn, user, ret_call);
}

/* ---- the caller ---- */

static struct {
    int count;
    bool has_failed, has_from;
    char text[1024], structured[1024];
} told;

static void on_tool_reply(void *user, const struct sp_tool_reply *r)
{
    assert_ptr_equal(user, &told);
    told.count++;
    told.has_failed = r->has_failed;
    told.has_from = r->from != NULL;
    (void)snprintf(told.text, sizeof told.text, SP_STR_FMT, SP_STR_ARG(r->text));
    (void)snprintf(told.structured, sizeof told.structured, SP_STR_FMT, SP_STR_ARG(r->structured));
}

static int call(const char *tool, const char *arguments, struct sp_err *e)
{
    static const struct sp_tools_options all = {.has_login = true, .has_unified_exec = true};
    uint64_t number = 0;

    memset(&last, 0, sizeof last);
    memset(&told, 0, sizeof told);
    return sp_tools_call(NULL, &all, sp_str_of(tool), SP_STR("c1"), SP_STR("t1"),
                         sp_str_of(arguments), on_tool_reply, &told, &number, e);
}

static void reply(const struct sp_reply *r)
{
    last.fn(last.user, r);
    assert_int_equal(told.count, 1);
}

static void reply_refused(void)
{
    char text[sizeof last.words];

    memcpy(text, last.words, sizeof text);
    reply(&(struct sp_reply){
        .fault = SP_FAULT_ARGUMENTS, .text = sp_str_of(text), .error = sp_str_of(text)});
}

static const struct sp_reply exited = {
    .text = SP_STR("Chunk ID: 7dd315\nWall time: 0.0920 seconds\nProcess exited with code 3\n"
                   "Original token count: 2\nOutput:\nhello\n"),
    .answer = {.chunk_id = SP_STR("7dd315"),
               .wall_ns = 92000001,
               .fate = SP_ANSWER_EXITED,
               .exit_code = 3,
               .has_token_count = true,
               .token_count = 2,
               .output = SP_STR("hello\n")},
};

static const struct sp_reply running = {
    .text = SP_STR("Wall time: 1.5000 seconds\nProcess running with session ID 1000\n"
                   "Original token count: 0\nOutput:\n$ Output:\n"),
    .answer = {.wall_ns = 1500000000,
               .fate = SP_ANSWER_RUNNING,
               .session_id = 1000,
               .has_token_count = true,
               .output = SP_STR("$ Output:\n")},
};

/* ---- the two tools ---- */

static void test_a_tool_that_is_not_there_is_no_call(void **state)
{
    const struct sp_tools_options no_old_one = {0};
    struct sp_err e = {0};
    uint64_t number = 0;

    (void)state;
    assert_int_equal(call("apply_patch", "{}", &e), -SP_E_NO_METHOD);
    assert_int_equal(sp_tools_call(NULL, &no_old_one, SP_STR("unified_exec"), SP_STR("c"),
                                   SP_STR("t"), SP_STR("{\"input\":[]}"), on_tool_reply, &told,
                                   &number, &e),
                     -SP_E_NO_METHOD);
    assert_int_equal(last.what, ASKED_NOTHING);
}

static void test_a_call_that_cannot_begin_tells_nothing_later(void **state)
{
    struct sp_err e = {0};

    (void)state;
    assert_int_equal(call("exec_command", "{\"cmd\":\"FAIL\"}", &e), -SP_E_SYSTEM);
    assert_int_equal(told.count, 0);
}

static void test_an_exit_is_told_as_text_and_by_member(void **state)
{
    struct sp_err e = {0};

    (void)state;
    assert_int_equal(call("exec_command", "{\"cmd\":\"echo hello; exit 3\"}", &e), 0);
    assert_int_equal(last.what, ASKED_EXEC);
    assert_string_equal(last.words, "echo hello; exit 3");
    assert_string_equal(last.call_id, "c1");
    assert_string_equal(last.turn_id, "t1");
    reply(&exited);
    assert_false(told.has_failed);
    assert_true(told.has_from);
    assert_memory_equal(told.text, exited.text.p, exited.text.n);
    assert_string_equal(
        told.structured,
        "{\"chunk_id\":\"7dd315\",\"wall_time_seconds\":0.092000001,\"exit_code\":3,"
        "\"original_token_count\":2,\"output\":\"hello\\n\"}");
}

static void test_a_live_process_has_a_session_and_no_exit(void **state)
{
    struct sp_err e = {0};

    (void)state;
    assert_int_equal(call("write_stdin", "{\"session_id\":1000,\"chars\":\"x\"}", &e), 0);
    assert_int_equal(last.what, ASKED_WRITE);
    assert_int_equal(last.session_id, 1000);
    assert_string_equal(last.words, "x");
    reply(&running);
    assert_string_equal(told.structured, "{\"wall_time_seconds\":1.500000000,\"session_id\":1000,"
                                         "\"original_token_count\":0,\"output\":\"$ Output:\\n\"}");
}

static void test_the_structured_output_keeps_to_the_tokens_that_were_asked_for(void **state)
{
    struct sp_err e = {0};
    struct sp_reply r = exited;

    (void)state;
    r.answer.output = SP_STR("example output");
    r.has_max_tokens = true;
    r.max_tokens = 1;
    assert_int_equal(call("exec_command", "{\"cmd\":\"x\",\"max_output_tokens\":1}", &e), 0);
    reply(&r);
    assert_non_null(strstr(told.structured, "Total output lines: 1\\n\\nex\xE2\x80\xA6"
                                            "3 tokens truncated\xE2\x80\xA6ut\"}"));
}

static void test_a_fault_is_a_failure_without_members(void **state)
{
    struct sp_err e = {0};

    (void)state;
    assert_int_equal(call("write_stdin", "{\"session_id\":8}", &e), 0);
    reply(&(struct sp_reply){.fault = SP_FAULT_UNKNOWN,
                             .text = SP_STR("write_stdin failed: Unknown process id 8"),
                             .error = SP_STR("Unknown process id 8")});
    assert_true(told.has_failed);
    assert_string_equal(told.text, "write_stdin failed: Unknown process id 8");
    assert_string_equal(told.structured, "");
}

static void test_arguments_that_cannot_be_read_start_nothing(void **state)
{
    struct sp_err e = {0};

    (void)state;
    assert_int_equal(call("exec_command", "{}", &e), 0);
    assert_int_equal(last.what, ASKED_REFUSE);
    assert_string_equal(last.words, "failed to parse function arguments: missing field `cmd` at "
                                    "line 1 column 2");
    reply_refused();
    assert_true(told.has_failed);
    assert_false(told.has_from);
    assert_int_equal(call("write_stdin", "{\"session_id\":\"1000\"}", &e), 0);
    assert_string_equal(last.words,
                        "failed to parse function arguments: invalid type: string \"1000\", "
                        "expected i32 at line 1 column 20");
    reply_refused();
}

/* ---- more permissions ---- */

static void test_permissions_are_asked_for_and_their_answer_is_json(void **state)
{
    static const char granted[] = "{\"permissions\":{},\"scope\":\"turn\"}";
    static const struct sp_tools_options on = {.has_additional_permissions = true};
    static const char wanted[] = "{\"reason\":\"why\",\"environment_id\":\"e\",\"permissions\":{"
                                 "\"network\":{\"enabled\":true},"
                                 "\"file_system\":{\"read\":[\"/site/r\"]}}}";
    struct sp_err e = {0};
    uint64_t number = 0;

    (void)state;
    assert_int_equal(call("request_permissions", wanted, &e), -SP_E_NO_METHOD);
    assert_int_equal(sp_tools_call(NULL, &on, SP_STR("request_permissions"), SP_STR("c1"),
                                   SP_STR("t1"), sp_str_of(wanted), on_tool_reply, &told, &number,
                                   &e),
                     0);
    assert_int_equal(last.what, ASKED_PERMISSIONS);
    assert_string_equal(last.words, "why|e|1|1");
    assert_string_equal(last.turn_id, "t1");
    reply(&(struct sp_reply){.text = sp_str_of(granted)});
    assert_false(told.has_failed);
    assert_string_equal(told.text, granted);
    assert_string_equal(told.structured, granted);
}

/* ---- the old tool ---- */

static void test_the_old_tool_starts_programs_on_a_terminal(void **state)
{
    struct sp_err e = {0};

    (void)state;
    assert_int_equal(call("unified_exec", "{\"input\":[\"bash\",\"-i\"],\"timeout_ms\":2500}", &e),
                     0);
    assert_int_equal(last.what, ASKED_EXEC);
    assert_string_equal(last.words, "[bash][-i]");
    assert_true(last.is_tty && last.is_compat && last.yield.has_yield_time);
    assert_int_equal(last.yield.yield_time_ms, 2500);
    reply(&running);
    assert_string_equal(told.text, "{\"session_id\":\"1000\",\"output\":\"$ Output:\\n\"}");
    assert_string_equal(told.structured, told.text);
}

static void test_what_is_typed_is_joined_with_spaces_where_there_are_none(void **state)
{
    static const struct {
        const char *input, *want;
    } c[] = {
        {"\"export\",\"V=codex\\n\"", "export V=codex\n"},
        {"\"a \",\"b\"", "a b"},
        {"\"a\",\" b\"", "a b"},
        {"\"a\",\"\",\"b\"", "a b"},
        {"\"a\\t\",\"\",\"b\"", "a\tb"},
        {"\"\",\"a\"", "a"},
        {"", ""},
    };
    struct sp_err e = {0};

    (void)state;
    for (size_t i = 0; i < sizeof c / sizeof c[0]; i++) {
        char text[120];

        (void)snprintf(text, sizeof text, "{\"input\":[%s],\"session_id\":\"1000\"}", c[i].input);
        assert_int_equal(call("unified_exec", text, &e), 0);
        assert_int_equal(last.what, ASKED_WRITE);
        assert_int_equal(last.session_id, 1000);
        assert_true(last.is_compat);
        assert_string_equal(last.words, c[i].want);
        reply(&exited);
        assert_string_equal(told.text, "{\"session_id\":null,\"output\":\"hello\\n\"}");
    }
}

static void test_a_timeout_that_was_cut_is_told(void **state)
{
    struct sp_err e = {0};

    (void)state;
    assert_int_equal(call("unified_exec", "{\"input\":[\"x\"],\"timeout_ms\":120000}", &e), 0);
    reply(&exited);
    assert_string_equal(told.text,
                        "{\"session_id\":null,\"output\":\"Warning: requested timeout 120000ms "
                        "exceeds maximum of 60000ms; clamping to 60000ms.\\nhello\\n\"}");
    assert_int_equal(call("unified_exec", "{\"input\":[\"x\"],\"timeout_ms\":60000}", &e), 0);
    reply(&exited);
    assert_null(strstr(told.text, "Warning"));
}

static void test_the_old_tool_refuses_in_its_own_words(void **state)
{
    static const struct {
        const char *arguments, *why;
    } c[] = {
        {"{\"input\":[]}", "unified exec failed: missing command line for unified exec request"},
        {"{\"input\":[],\"session_id\":\"x1\"}",
         "invalid session_id: x1 due to error invalid digit found in string"},
        {"{\"input\":[],\"session_id\":\"\"}",
         "invalid session_id:  due to error cannot parse integer from empty string"},
        {"{\"input\":[],\"session_id\":\"2147483648\"}",
         "invalid session_id: 2147483648 due to error number too large to fit in target type"},
        {"{\"input\":\"x\"}", "failed to parse function arguments: invalid type: string \"x\", "
                              "expected a sequence at line 1 column 12"},
    };
    struct sp_err e = {0};

    (void)state;
    for (size_t i = 0; i < sizeof c / sizeof c[0]; i++) {
        assert_int_equal(call("unified_exec", c[i].arguments, &e), 0);
        assert_int_equal(last.what, ASKED_REFUSE);
        assert_string_equal(last.words, c[i].why);
        reply_refused();
        assert_true(told.has_failed);
        assert_string_equal(told.text, c[i].why);
    }
}

static void test_the_old_tool_fails_in_its_own_words(void **state)
{
    static const struct {
        enum sp_fault fault;
        const char *error, *want;
    } c[] = {
        {SP_FAULT_UNKNOWN, "Unknown process id 12", "unified exec failed: Unknown session id 12"},
        {SP_FAULT_WRITE, "failed to write to stdin",
         "unified exec failed: failed to write to stdin"},
        {SP_FAULT_CREATE,
         "Failed to create unified exec process: No such file or directory (os error 2)",
         "unified exec failed: Failed to create unified exec session: No such file or directory "
         "(os error 2)"},
        {SP_FAULT_FAILED, "Unified exec process failed: gone",
         "unified exec failed: Unified exec process failed: gone"},
    };
    struct sp_err e = {0};

    (void)state;
    for (size_t i = 0; i < sizeof c / sizeof c[0]; i++) {
        assert_int_equal(call("unified_exec", "{\"input\":[],\"session_id\":\"12\"}", &e), 0);
        reply(&(struct sp_reply){.fault = c[i].fault,
                                 .text = SP_STR("write_stdin failed: x"),
                                 .error = sp_str_of(c[i].error)});
        assert_true(told.has_failed);
        assert_string_equal(told.text, c[i].want);
    }
}

static void test_the_old_tool_tells_of_a_denial(void **state)
{
    struct sp_err e = {0};
    struct sp_reply r = exited;

    (void)state;
    r.was_denied = true;
    assert_int_equal(call("unified_exec", "{\"input\":[\"x\"]}", &e), 0);
    reply(&r);
    assert_true(told.has_failed);
    assert_string_equal(told.text, "unified exec failed: Command denied by sandbox: hello\n");
    r.answer.output = (struct sp_str){0};
    assert_int_equal(call("unified_exec", "{\"input\":[\"x\"]}", &e), 0);
    reply(&r);
    assert_string_equal(told.text, "unified exec failed: Command denied by sandbox: exit code 3");
}

/* ---- without memory ---- */

/* Begins and ends a call whose nth request for memory fails. false: there were not so many. */
static bool survives(const char *tool, const char *arguments, long n)
{
    struct sp_err e = {0};

    end_memory_at(n);
    const int r = call(tool, arguments, &e);
    if (r == 0)
        reply(&exited);
    const bool has_ended = did_memory_end();
    if (r < 0) {
        assert_int_equal(r, -SP_E_SYSTEM);
        assert_int_equal(told.count, 0);
    } else if (has_ended) {
        assert_true(told.has_failed);
        assert_string_equal(told.text, "no memory for the answer");
    }
    return has_ended;
}

static void test_a_call_survives_the_end_of_memory_anywhere(void **state)
{
    static const struct {
        const char *tool, *arguments;
    } c[] = {
        {"exec_command",
         "{\"cmd\":\"x\",\"prefix_rule\":[\"a\"],\"additional_permissions\":{\"file_system\":"
         "{\"read\":[\"/a\",\"/b\"]}}}"},
        {"exec_command", "{\"cmd\":3}"},
        {"write_stdin", "{\"session_id\":1,\"chars\":\"x\"}"},
        {"unified_exec", "{\"input\":[\"x\"],\"timeout_ms\":120000}"},
        {"unified_exec", "{\"input\":[\"x\",\"y\"],\"session_id\":\"1000\"}"},
        {"unified_exec", "{\"input\":[]}"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof c / sizeof c[0]; i++) {
        long n = 1;

        while (survives(c[i].tool, c[i].arguments, n))
            n++;
        assert_true(n > 2);
        assert_int_equal(told.count, 1);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_a_tool_that_is_not_there_is_no_call),
    cmocka_unit_test(test_a_call_that_cannot_begin_tells_nothing_later),
    cmocka_unit_test(test_an_exit_is_told_as_text_and_by_member),
    cmocka_unit_test(test_a_live_process_has_a_session_and_no_exit),
    cmocka_unit_test(test_the_structured_output_keeps_to_the_tokens_that_were_asked_for),
    cmocka_unit_test(test_a_fault_is_a_failure_without_members),
    cmocka_unit_test(test_arguments_that_cannot_be_read_start_nothing),
    cmocka_unit_test(test_permissions_are_asked_for_and_their_answer_is_json),
    cmocka_unit_test(test_the_old_tool_starts_programs_on_a_terminal),
    cmocka_unit_test(test_what_is_typed_is_joined_with_spaces_where_there_are_none),
    cmocka_unit_test(test_a_timeout_that_was_cut_is_told),
    cmocka_unit_test(test_the_old_tool_refuses_in_its_own_words),
    cmocka_unit_test(test_the_old_tool_fails_in_its_own_words),
    cmocka_unit_test(test_the_old_tool_tells_of_a_denial),
    cmocka_unit_test(test_a_call_survives_the_end_of_memory_anywhere),
};

TEST_MAIN(tests)
