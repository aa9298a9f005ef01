/* SPDX-License-Identifier: Apache-2.0 */
/* What is published: the schemas and the events (6.1). */
#include "base/auto.h"
#include "base/json.h"
#include "mcp/tools.h"
#include "test.h"

/* ---- schemas ---- */

struct schemas {
    struct sp_buf text;
    struct sp_json j;
};

static void done(struct schemas *s)
{
    sp_json_done(&s->j);
    sp_buf_done(&s->text);
}

#define auto_schemas __attribute__((cleanup(done)))

static void publish(struct schemas *s, const struct sp_tools_options *o)
{
    struct sp_err e = {0};

    assert_true(sp_tools_add_schemas(&s->text, o));
    assert_int_equal(sp_json_parse(&s->j, s->text.data, s->text.len, &e), 0);
}

static uint32_t tool(struct schemas *s, const char *name)
{
    for (uint32_t t = sp_json_first(&s->j, 0); t != SP_JSON_NONE; t = sp_json_next(&s->j, 0, t))
        if (sp_str_eq(sp_json_str(&s->j, sp_json_get(&s->j, t, "name")), sp_str_of(name)))
            return t;
    return SP_JSON_NONE;
}

static uint32_t get(struct schemas *s, uint32_t object, const char *key)
{
    const uint32_t t = sp_json_get(&s->j, object, key);

    if (t == SP_JSON_NONE)
        fail_msg("there is no %s", key);
    return t;
}

static uint32_t parameter(struct schemas *s, const char *of, const char *name)
{
    return sp_json_get(&s->j, get(s, get(s, tool(s, of), "parameters"), "properties"), name);
}

static void assert_text(struct schemas *s, uint32_t object, const char *key, const char *want)
{
    const struct sp_str got = sp_json_str(&s->j, get(s, object, key));

    assert_int_equal(got.n, strlen(want));
    assert_memory_equal(got.p, want, got.n);
}

static void assert_raw(struct schemas *s, uint32_t object, const char *key, const char *want)
{
    const struct sp_str got = sp_json_raw(&s->j, get(s, object, key));

    assert_int_equal(got.n, strlen(want));
    assert_memory_equal(got.p, want, got.n);
}

static void test_the_tools_say_what_they_are(void **state)
{
    static const struct {
        const char *name, *description, *required;
    } c[] = {
        {"exec_command",
         "Runs a command in a PTY, returning output or a session ID for ongoing interaction.",
         "[\"cmd\"]"},
        {"write_stdin",
         "Writes characters to an existing unified exec session and returns recent output.",
         "[\"session_id\"]"},
        {"unified_exec",
         "Runs a command in a PTY. Provide a session_id to reuse an existing interactive session.",
         "[\"input\"]"},
    };
    auto_schemas struct schemas s = {0};

    (void)state;
    publish(&s, &(struct sp_tools_options){.has_unified_exec = true});
    assert_int_equal(s.j.tokens[0].children, 3);
    for (size_t i = 0; i < 3; i++) {
        const uint32_t t = tool(&s, c[i].name);

        assert_true(t != SP_JSON_NONE);
        assert_text(&s, t, "description", c[i].description);
        assert_raw(&s, t, "strict", "false");
        const uint32_t p = get(&s, t, "parameters");
        assert_text(&s, p, "type", "object");
        assert_raw(&s, p, "required", c[i].required);
        assert_raw(&s, p, "additionalProperties", "false");
    }
}

struct published {
    const char *tool, *name, *type, *description;
};

static void check_parameters(const struct sp_tools_options *o, const struct published *c, size_t n)
{
    auto_schemas struct schemas s = {0};

    publish(&s, o);
    for (size_t i = 0; i < n; i++) {
        const uint32_t p = parameter(&s, c[i].tool, c[i].name);

        if (p == SP_JSON_NONE)
            fail_msg("%s is not published", c[i].name);
        assert_text(&s, p, "type", c[i].type);
        assert_text(&s, p, "description", c[i].description);
    }
}

#define CHECK_PARAMETERS(o, c) check_parameters(&(o), c, sizeof(c) / sizeof(c)[0])

static const struct sp_tools_options everything = {
    .has_login = true,
    .has_several_environments = true,
    .has_additional_permissions = true,
    .has_no_timeout = true,
};

static void test_every_parameter_has_its_words(void **state)
{
    static const struct published c[] = {
        {"exec_command", "cmd", "string", "Shell command to execute."},
        {"exec_command", "workdir", "string",
         "Working directory for the command. Defaults to the turn cwd."},
        {"exec_command", "tty", "boolean",
         "True allocates a PTY for the command; false or omitted uses plain pipes."},
        {"exec_command", "yield_time_ms", "number",
         "Wait before yielding output. Defaults to 10000 ms; effective range is 250-30000 ms."},
        {"exec_command", "max_output_tokens", "number",
         "Output token budget. Defaults to 10000 tokens; larger requests may be capped by policy."},
        {"exec_command", "shell", "string",
         "Shell binary to launch. Defaults to the user's default shell."},
        {"exec_command", "login", "boolean",
         "True runs the shell with -l/-i semantics; false disables them. Defaults to true."},
        {"exec_command", "environment_id", "string",
         "Environment id from <environment_context>. Omit to use the primary environment."},
        {"exec_command", "sandbox_permissions", "string",
         "Per-command sandbox override. Defaults to `use_default`; use "
         "`with_additional_permissions` with `additional_permissions`, or `require_escalated` for "
         "unsandboxed execution."},
        {"exec_command", "additional_permissions", "object",
         "Sandboxed filesystem or network access for this command; only with "
         "`sandbox_permissions: \"with_additional_permissions\"`."},
        {"exec_command", "justification", "string",
         "User-facing approval question for `require_escalated`; omit otherwise."},
        {"exec_command", "prefix_rule", "array",
         "Reusable approval prefix for `cmd`, only with `sandbox_permissions: "
         "\"require_escalated\"`; for example [\"git\", \"pull\"]."},
        {"write_stdin", "session_id", "number", "Identifier of the running unified exec session."},
        {"write_stdin", "chars", "string",
         "Bytes to write to stdin. Defaults to empty, which polls without writing."},
        {"write_stdin", "yield_time_ms", "number",
         "Wait before yielding output. Non-empty writes default to 250 ms and cap at 30000 ms; "
         "empty polls wait 5000-300000 ms by default."},
        {"write_stdin", "max_output_tokens", "number",
         "Output token budget. Defaults to 10000 tokens; larger requests may be capped by policy."},
        {"write_stdin", "no_timeout", "boolean",
         "If set to true, nothing will be returned before the end of the process. This can only be "
         "used with empty `chars` and empty `yield_time_ms`. This must be used to wait for very "
         "long running processes/tests or to schedule a wait."},
    };

    (void)state;
    CHECK_PARAMETERS(everything, c);
}

static void test_what_is_off_is_not_published(void **state)
{
    static const char *const exec[] = {"shell", "login", "environment_id",
                                       "additional_permissions"};
    auto_schemas struct schemas s = {0};

    (void)state;
    publish(&s, &(struct sp_tools_options){.has_fixed_shell = true});
    assert_int_equal(s.j.tokens[0].children, 2);
    for (size_t i = 0; i < sizeof exec / sizeof exec[0]; i++)
        assert_int_equal(parameter(&s, "exec_command", exec[i]), SP_JSON_NONE);
    assert_int_equal(parameter(&s, "write_stdin", "no_timeout"), SP_JSON_NONE);
}

static void test_the_permissions_that_can_be_asked_for(void **state)
{
    auto_schemas struct schemas few = {0};
    auto_schemas struct schemas all = {0};

    (void)state;
    publish(&few, &(struct sp_tools_options){0});
    const uint32_t p = parameter(&few, "exec_command", "sandbox_permissions");
    assert_raw(&few, p, "enum", "[\"use_default\",\"require_escalated\"]");
    assert_text(&few, p, "description",
                "Per-command sandbox override. Defaults to `use_default`; use "
                "`require_escalated` for unsandboxed execution.");

    publish(&all, &everything);
    const uint32_t q = parameter(&all, "exec_command", "sandbox_permissions");
    assert_raw(&all, q, "enum",
               "[\"use_default\",\"with_additional_permissions\",\"require_escalated\"]");
    const uint32_t more = parameter(&all, "exec_command", "additional_permissions");
    assert_raw(&all, more, "additionalProperties", "false");
    const uint32_t members = get(&all, more, "properties");
    const uint32_t network = get(&all, members, "network");
    assert_text(&all, network, "description", "Network access request.");
    assert_raw(&all, network, "additionalProperties", "false");
    assert_text(&all, get(&all, get(&all, network, "properties"), "enabled"), "description",
                "True requests network access; false or omitted requests none.");
    const uint32_t disk = get(&all, members, "file_system");
    assert_text(&all, disk, "description", "Filesystem access request.");
    assert_raw(&all, disk, "additionalProperties", "false");
    assert_text(&all, get(&all, get(&all, disk, "properties"), "read"), "description",
                "Absolute paths to grant read access; omit when none are needed.");
    assert_text(&all, get(&all, get(&all, disk, "properties"), "write"), "description",
                "Absolute paths to grant write access; omit when none are needed.");
}

static void test_the_answer_has_a_schema_too(void **state)
{
    static const char *const members[] = {"chunk_id",   "wall_time_seconds",    "exit_code",
                                          "session_id", "original_token_count", "output"};
    auto_schemas struct schemas s = {0};

    (void)state;
    publish(&s, &(struct sp_tools_options){0});
    const uint32_t out = get(&s, tool(&s, "write_stdin"), "output_schema");
    assert_raw(&s, out, "required", "[\"wall_time_seconds\",\"output\"]");
    assert_raw(&s, out, "additionalProperties", "false");
    for (size_t i = 0; i < 6; i++)
        (void)get(&s, get(&s, out, "properties"), members[i]);
}

static void test_schemas_need_their_room(void **state)
{
    auto_buf struct sp_buf whole = {0};

    (void)state;
    assert_true(sp_tools_add_schemas(&whole, &everything));
    for (size_t max = 1; max < whole.len; max += 97) {
        auto_buf struct sp_buf out = {.max = max};

        assert_false(sp_tools_add_schemas(&out, &everything));
        assert_int_equal(out.len, 0);
    }
}

/* ---- events ---- */

static void assert_event(const struct sp_exec_event *e, const char *want)
{
    auto_buf struct sp_buf out = {0};

    assert_true(sp_tools_add_event(&out, e));
    assert_int_equal(out.len, strlen(want));
    assert_memory_equal(out.data, want, out.len);
    for (size_t max = 1; max < out.len; max += 7) {
        auto_buf struct sp_buf small = {.max = max};

        assert_false(sp_tools_add_event(&small, e));
        assert_int_equal(small.len, 0);
    }
}

static const struct sp_str argv[] = {SP_STR("/bin/bash"), SP_STR("-c"), SP_STR("echo \"x\"")};

static void test_a_beginning(void **state)
{
    (void)state;
    assert_event(&(struct sp_exec_event){.type = SP_EVENT_BEGIN,
                                         .call_id = SP_STR("c1"),
                                         .process_id = 1000,
                                         .turn_id = SP_STR("t1"),
                                         .at_ms = 1700000000123,
                                         .argv = argv,
                                         .argc = 3,
                                         .cwd = SP_STR("/site"),
                                         .source = SP_SOURCE_UNIFIED_EXEC_STARTUP},
                 "{\"type\":\"exec_command_begin\",\"call_id\":\"c1\",\"process_id\":\"1000\","
                 "\"turn_id\":\"t1\",\"started_at_ms\":1700000000123,"
                 "\"command\":[\"/bin/bash\",\"-c\",\"echo \\\"x\\\"\"],\"cwd\":\"/site\","
                 "\"parsed_cmd\":[],\"source\":\"unified_exec_startup\"}");
}

static void test_deltas_carry_bytes(void **state)
{
    struct sp_exec_event e = {.type = SP_EVENT_DELTA,
                              .call_id = SP_STR("c1"),
                              .stream = SP_STREAM_STDOUT,
                              .chunk = SP_STR("\xC3\0x")};

    (void)state;
    assert_event(&e, "{\"type\":\"exec_command_output_delta\",\"call_id\":\"c1\","
                     "\"stream\":\"stdout\",\"chunk\":\"wwB4\"}");
    e.stream = SP_STREAM_STDERR;
    assert_event(&e, "{\"type\":\"exec_command_output_delta\",\"call_id\":\"c1\","
                     "\"stream\":\"stderr\",\"chunk\":\"wwB4\"}");
    e.stream = SP_STREAM_PTY; /* a terminal has one stream */
    assert_event(&e, "{\"type\":\"exec_command_output_delta\",\"call_id\":\"c1\","
                     "\"stream\":\"stdout\",\"chunk\":\"wwB4\"}");
}

static void test_an_interaction_and_a_warning(void **state)
{
    (void)state;
    assert_event(&(struct sp_exec_event){.type = SP_EVENT_INTERACTION,
                                         .call_id = SP_STR("c1"),
                                         .process_id = 1000,
                                         .input = SP_STR("\x03")},
                 "{\"type\":\"terminal_interaction\",\"call_id\":\"c1\",\"process_id\":\"1000\","
                 "\"stdin\":\"\\u0003\"}");
    assert_event(&(struct sp_exec_event){.type = SP_EVENT_WARNING,
                                         .call_id = SP_STR("c1"),
                                         .message = SP_STR("many")},
                 "{\"type\":\"warning\",\"call_id\":\"c1\",\"message\":\"many\"}");
}

static void test_an_end(void **state)
{
    (void)state;
    assert_event(&(struct sp_exec_event){.type = SP_EVENT_END,
                                         .call_id = SP_STR("c1"),
                                         .process_id = 1000,
                                         .turn_id = SP_STR("t1"),
                                         .at_ms = 7,
                                         .argv = argv,
                                         .argc = 1,
                                         .cwd = SP_STR("/"),
                                         .source = SP_SOURCE_USER_SHELL,
                                         .out = SP_STR("o"),
                                         .err = SP_STR("e"),
                                         .aggregated = SP_STR("oe"),
                                         .formatted = SP_STR("f"),
                                         .exit_code = -1,
                                         .duration_ns = 1000000001,
                                         .status = SP_STATUS_FAILED},
                 "{\"type\":\"exec_command_end\",\"call_id\":\"c1\",\"process_id\":\"1000\","
                 "\"turn_id\":\"t1\",\"completed_at_ms\":7,\"command\":[\"/bin/bash\"],"
                 "\"cwd\":\"/\",\"parsed_cmd\":[],\"source\":\"user_shell\",\"stdout\":\"o\","
                 "\"stderr\":\"e\",\"aggregated_output\":\"oe\",\"exit_code\":-1,"
                 "\"duration\":{\"secs\":1,\"nanos\":1},\"formatted_output\":\"f\","
                 "\"status\":\"failed\"}");
}

static void test_a_run_without_a_session_has_no_process_id(void **state)
{
    auto_buf struct sp_buf out = {0};

    (void)state;
    assert_true(sp_tools_add_event(
        &out, &(struct sp_exec_event){.type = SP_EVENT_BEGIN, .call_id = SP_STR("c1")}));
    assert_null(memmem(out.data, out.len, "process_id", 10));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_the_tools_say_what_they_are),
    cmocka_unit_test(test_every_parameter_has_its_words),
    cmocka_unit_test(test_what_is_off_is_not_published),
    cmocka_unit_test(test_the_permissions_that_can_be_asked_for),
    cmocka_unit_test(test_the_answer_has_a_schema_too),
    cmocka_unit_test(test_schemas_need_their_room),
    cmocka_unit_test(test_a_beginning),
    cmocka_unit_test(test_deltas_carry_bytes),
    cmocka_unit_test(test_an_interaction_and_a_warning),
    cmocka_unit_test(test_an_end),
    cmocka_unit_test(test_a_run_without_a_session_has_no_process_id),
};

TEST_MAIN(tests)
