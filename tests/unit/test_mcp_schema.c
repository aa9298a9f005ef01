/* SPDX-License-Identifier: Apache-2.0 */
/* tools/list: the same order each time, the arguments of the engine, and plain schemas. */
#include "mcp/tools.h"
#include "mcp_tools_fixture.h"

static const char *const names[] = {"exec_command",   "write_stdin",    "read_output",
                                    "list_sessions",  "signal_session", "resize_session",
                                    "explain_denial", "apply_patch"};
#define COUNT (sizeof names / sizeof names[0])

static char *list_with(struct sp_mcp_tool_words words)
{
    struct sp_buf b = {0};

    assert_true(sp_mcp_tools_add_list(&b, mcp, words) && sp_buf_add(&b, "", 1));
    return b.data;
}

static uint32_t member(struct sp_json *j, uint32_t object, const char *name)
{
    const uint32_t t = sp_json_get(j, object, name);

    if (t == SP_JSON_NONE)
        fail_msg("no member %s", name);
    return t;
}

static void assert_text(struct sp_json *j, uint32_t token, const char *want)
{
    const struct sp_str got = sp_json_str(j, token);

    assert_true(sp_str_eq(got, sp_str_of(want)));
}

static void test_all_tools_are_there_in_their_order(void **state)
{
    auto_free char *text = list_with((struct sp_mcp_tool_words){true, true});
    struct sp_json j = {0};
    size_t n = 0;

    (void)state;
    assert_string_equal(text, listed);
    parse(&j, text);
    for (uint32_t t = sp_json_first(&j, 0); t != SP_JSON_NONE; t = sp_json_next(&j, 0, t), n++) {
        const uint32_t input = member(&j, t, "inputSchema");

        assert_true(n < COUNT);
        assert_text(&j, member(&j, t, "name"), names[n]);
        assert_non_null(sp_mcp_tool_find(mcp, sp_str_of(names[n])));
        assert_text(&j, member(&j, input, "type"), "object");
        assert_int_equal(sp_json_type(&j, member(&j, input, "additionalProperties")),
                         SP_JSON_FALSE);
        assert_int_equal(sp_json_type(&j, member(&j, member(&j, t, "annotations"), "title")),
                         SP_JSON_STRING);
    }
    assert_int_equal(n, COUNT);
    sp_json_done(&j);
}

/* Hosts refuse schemas that are more than an object; and a model is told what each argument is. */
static void check_plain(struct sp_json *j, uint32_t schema, bool is_argument)
{
    static const char *const refused[] = {"anyOf", "oneOf", "allOf", "not", "$ref", "if", "const"};
    const uint32_t properties = sp_json_get(j, schema, "properties");
    const uint32_t items = sp_json_get(j, schema, "items");

    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        assert_int_equal(sp_json_get(j, schema, refused[i]), SP_JSON_NONE);
    assert_int_equal(sp_json_type(j, member(j, schema, "type")), SP_JSON_STRING);
    if (is_argument)
        assert_true(sp_json_str(j, member(j, schema, "description")).n > 5);
    if (items != SP_JSON_NONE)
        check_plain(j, items, false);
    for (uint32_t k = properties == SP_JSON_NONE ? SP_JSON_NONE : sp_json_first(j, properties);
         k != SP_JSON_NONE; k = sp_json_next(j, properties, k))
        check_plain(j, k + 1, is_argument);
}

static void test_schemas_are_plain_objects(void **state)
{
    auto_free char *text = list_with((struct sp_mcp_tool_words){true, true});
    struct sp_json j = {0};

    (void)state;
    parse(&j, text);
    for (uint32_t t = sp_json_first(&j, 0); t != SP_JSON_NONE; t = sp_json_next(&j, 0, t)) {
        const uint32_t input = member(&j, t, "inputSchema");
        const uint32_t output = sp_json_get(&j, t, "outputSchema");
        const uint32_t properties = member(&j, input, "properties");

        for (uint32_t k = sp_json_first(&j, properties); k != SP_JSON_NONE;
             k = sp_json_next(&j, properties, k))
            check_plain(&j, k + 1, true);
        if (output != SP_JSON_NONE)
            check_plain(&j, output, false);
    }
    sp_json_done(&j);
}

/* The words are others, the names are the same: what a model knows of one it can use with the
 * other. */
static void test_shared_arguments_have_the_names_of_the_engines(void **state)
{
    auto_free char *text = list_with((struct sp_mcp_tool_words){true, true});
    auto_buf struct sp_buf own = {0};
    struct sp_json mine = {0};
    struct sp_json theirs = {0};

    (void)state;
    assert_true(sp_tools_add_schemas(&own, &mcp_options.tools) && sp_buf_add(&own, "", 1));
    parse(&mine, text);
    parse(&theirs, own.data);
    for (uint32_t t = sp_json_first(&theirs, 0); t != SP_JSON_NONE;
         t = sp_json_next(&theirs, 0, t)) {
        auto_free char *name = strndup(sp_json_str(&theirs, member(&theirs, t, "name")).p,
                                       sp_json_str(&theirs, member(&theirs, t, "name")).n);
        const uint32_t tool = find_listed(&mine, name);
        const uint32_t there = member(&theirs, member(&theirs, t, "parameters"), "properties");
        const uint32_t here = member(&mine, member(&mine, tool, "inputSchema"), "properties");

        for (uint32_t k = sp_json_first(&theirs, there); k != SP_JSON_NONE;
             k = sp_json_next(&theirs, there, k))
            assert_int_not_equal(find_member(&mine, here, sp_json_str(&theirs, k)), SP_JSON_NONE);
    }
    sp_json_done(&mine);
    sp_json_done(&theirs);
}

static bool has_argument(const char *tool, const char *name)
{
    auto_free char *text = list_with((struct sp_mcp_tool_words){true, true});
    struct sp_json j = {0};

    parse(&j, text);
    const uint32_t t = member(&j, member(&j, find_listed(&j, tool), "inputSchema"), "properties");
    const bool has = find_member(&j, t, sp_str_of(name)) != SP_JSON_NONE;
    sp_json_done(&j);
    return has;
}

static void test_options_decide_what_is_offered(void **state)
{
    (void)state;
    assert_true(has_argument("exec_command", "login"));
    assert_true(has_argument("exec_command", "shell"));
    assert_false(has_argument("exec_command", "additional_permissions"));
    assert_false(has_argument("exec_command", "environment_id"));
    assert_false(has_argument("write_stdin", "no_timeout"));
    end_server();
    mcp_options.tools = (struct sp_tools_options){.has_fixed_shell = true,
                                                  .has_several_environments = true,
                                                  .has_additional_permissions = true,
                                                  .has_no_timeout = true};
    make_server();
    assert_false(has_argument("exec_command", "login"));
    assert_false(has_argument("exec_command", "shell"));
    assert_true(has_argument("exec_command", "additional_permissions"));
    assert_false(has_argument("exec_command", "environment_id"));
    assert_true(has_argument("write_stdin", "no_timeout"));
}

static void test_old_revisions_hear_of_less(void **state)
{
    auto_free char *oldest = list_with((struct sp_mcp_tool_words){false, false});
    auto_free char *older = list_with((struct sp_mcp_tool_words){true, false});
    struct sp_json j = {0};

    (void)state;
    assert_hasnt(oldest, "annotations");
    assert_hasnt(oldest, "outputSchema");
    assert_has(older, "\"annotations\":{\"title\":\"Run a command\",\"readOnlyHint\":false,"
                      "\"destructiveHint\":true,\"idempotentHint\":false,\"openWorldHint\":true}");
    assert_hasnt(older, "outputSchema");
    assert_has(oldest, "\"required\":[\"session_id\",\"rows\",\"cols\"]");
    parse(&j, oldest);
    assert_int_equal(
        sp_json_get(&j, member(&j, find_listed(&j, "exec_command"), "inputSchema"), "required"),
        SP_JSON_NONE);
    sp_json_done(&j);
}

static void test_no_room_adds_nothing(void **state)
{
    struct sp_buf b = {.max = 3000};

    (void)state;
    assert_true(sp_buf_add(&b, "x", 1));
    assert_false(sp_mcp_tools_add_list(&b, mcp, (struct sp_mcp_tool_words){true, true}));
    assert_int_equal(b.len, 1);
    sp_buf_done(&b);
}

static const struct CMUnitTest tests[] = {
    tools_test(test_all_tools_are_there_in_their_order),
    tools_test(test_schemas_are_plain_objects),
    tools_test(test_shared_arguments_have_the_names_of_the_engines),
    tools_test(test_options_decide_what_is_offered),
    tools_test(test_old_revisions_hear_of_less),
    tools_test(test_no_room_adds_nothing),
};

TEST_MAIN(tests)
