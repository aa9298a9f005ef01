/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "mcp/mcp_message.h"
#include "test.h"

static char *text;
static struct sp_mcp_message m;

static enum sp_mcp_kind read_text(struct sp_str s)
{
    free(text);
    text = malloc(s.n + 1);
    assert_non_null(text);
    memcpy(text, s.p, s.n);
    sp_mcp_message_read(&m, text, s.n);
    return m.kind;
}

static enum sp_mcp_kind read_it(const char *s)
{
    return read_text(sp_str_of(s));
}

static int tear_down(void **state)
{
    (void)state;
    sp_mcp_message_done(&m);
    free(text);
    text = NULL;
    return 0;
}

static void is_str(struct sp_str s, const char *want)
{
    assert_int_equal(s.n, strlen(want));
    assert_memory_equal(s.p, want, s.n);
}

static void is_broken(const char *s, int code, const char *id)
{
    assert_int_equal(read_it(s), SP_MCP_BROKEN);
    assert_int_equal(m.code, code);
    assert_true(m.why.msg[0] != 0);
    if (id == NULL)
        assert_int_equal(m.id.n, 0);
    else
        is_str(m.id, id);
}

static void test_a_request_is_seen_with_all_that_both_eras_need(void **state)
{
    (void)state;
    assert_int_equal(
        read_it(
            "{\"jsonrpc\":\"2.0\",\"id\":\"\\u0061\",\"method\":\"tools/c\\u0061ll\",\"params\":"
            "{\"name\":\"ex\\u0065c\",\"arguments\":{ \"a\\u0062\" : 1 },\"_meta\":{"
            "\"progressToken\":7,\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\","
            "\"io.modelcontextprotocol/clientCapabilities\":{\"x\":{}}}}}"),
        SP_MCP_REQUEST);
    is_str(m.id, "\"\\u0061\"");
    is_str(m.method, "tools/call");
    is_str(m.name, "exec");
    is_str(m.arguments, "{ \"a\\u0062\" : 1 }");
    assert_true(m.is_modern);
    is_str(m.version, "2026-07-28");
    is_str(m.progress, "7");
    assert_int_not_equal(m.capabilities, SP_JSON_NONE);
}

static void test_what_is_not_there_is_none(void **state)
{
    (void)state;
    assert_int_equal(read_it("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}"), SP_MCP_REQUEST);
    assert_int_equal(m.params, SP_JSON_NONE);
    assert_int_equal(m.capabilities, SP_JSON_NONE);
    assert_int_equal(m.name.n + m.arguments.n + m.version.n + m.progress.n, 0);
    assert_false(m.is_modern);
    assert_int_equal(read_it("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":null}"),
                     SP_MCP_REQUEST);
    assert_int_equal(m.params, SP_JSON_NONE);
    assert_int_equal(read_it("{\"jsonrpc\":\"2.0\",\"method\":\"x\",\"params\":{\"_meta\":[]}}"),
                     SP_MCP_NOTIFICATION);
}

static void test_ids_are_strings_or_integers_and_short(void **state)
{
    static const char *const bad[] = {"null", "1.5", "1e3", "true", "{}", "[]"};
    char line[600];
    char id[300];

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        (void)snprintf(line, sizeof line, "{\"jsonrpc\":\"2.0\",\"id\":%s,\"method\":\"x\"}",
                       bad[i]);
        is_broken(line, -32600, NULL);
    }
    for (size_t n = 254; n <= 255; n++) {
        memset(id, 'i', n);
        id[n] = 0;
        (void)snprintf(line, sizeof line, "{\"jsonrpc\":\"2.0\",\"id\":\"%s\",\"method\":\"x\"}",
                       id);
        if (n == 254)
            assert_int_equal(read_it(line), SP_MCP_REQUEST);
        else
            is_broken(line, -32600, NULL);
    }
    assert_int_equal(read_it("{\"jsonrpc\":\"2.0\",\"id\":18446744073709551615,\"method\":\"x\"}"),
                     SP_MCP_REQUEST);
    is_str(m.id, "18446744073709551615");
}

static void test_what_is_wrong_is_said_with_the_id_if_there_is_one(void **state)
{
    (void)state;
    is_broken("", -32700, NULL);
    is_broken("{", -32700, NULL);
    is_broken("{\"a\":1,\"a\":1}", -32700, NULL);
    is_broken("7", -32600, NULL);
    is_broken("\"x\"", -32600, NULL);
    is_broken("[]", -32600, NULL);
    is_broken("{}", -32600, NULL);
    is_broken("{\"id\":3,\"method\":\"x\"}", -32600, "3");
    is_broken("{\"jsonrpc\":\"1.0\",\"id\":3,\"method\":\"x\"}", -32600, "3");
    is_broken("{\"jsonrpc\":2.0,\"id\":3,\"method\":\"x\"}", -32600, "3");
    is_broken("{\"jsonrpc\":\"2.0\",\"id\":3}", -32600, "3");
    is_broken("{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":7}", -32600, "3");
    is_broken("{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"x\",\"params\":[1]}", -32600, "3");
    is_broken("{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"x\",\"params\":\"y\"}", -32600, "3");
}

static void test_deep_json_is_a_parse_error(void **state)
{
    char deep[4096];

    (void)state;
    memset(deep, '[', sizeof deep);
    assert_int_equal(read_text((struct sp_str){deep, sizeof deep}), SP_MCP_BROKEN);
    assert_int_equal(m.code, -32700);
}

static void test_responses_are_told_by_what_they_have(void **state)
{
    (void)state;
    assert_int_equal(read_it("{\"jsonrpc\":\"2.0\",\"id\":\"e\",\"result\":{\"a\":1}}"),
                     SP_MCP_RESPONSE);
    is_str(m.id, "\"e\"");
    assert_int_not_equal(m.result, SP_JSON_NONE);
    assert_int_equal(m.error, SP_JSON_NONE);
    assert_int_equal(read_it("{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":1}}"),
                     SP_MCP_RESPONSE);
    assert_int_equal(m.id.n, 0);
    assert_int_not_equal(m.error, SP_JSON_NONE);
}

static void test_names_are_what_a_header_would_repeat(void **state)
{
    (void)state;
    assert_int_equal(read_it("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tasks/get\",\"params\":"
                             "{\"taskId\":\"t\",\"name\":\"n\"}}"),
                     SP_MCP_REQUEST);
    is_str(m.name, "t");
    assert_int_equal(read_it("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"resources/read\","
                             "\"params\":{\"uri\":\"u\"}}"),
                     SP_MCP_REQUEST);
    is_str(m.name, "u");
    assert_int_equal(read_it("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":"
                             "{\"name\":7}}"),
                     SP_MCP_REQUEST);
    assert_int_equal(m.name.n, 0);
}

static void test_a_version_that_is_no_string_is_modern_all_the_same(void **state)
{
    (void)state;
    assert_int_equal(
        read_it("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\",\"params\":{\"_meta\":{"
                "\"io.modelcontextprotocol/protocolVersion\":7,"
                "\"io.modelcontextprotocol/clientCapabilities\":[],\"progressToken\":1.5}}}"),
        SP_MCP_REQUEST);
    assert_true(m.is_modern);
    assert_null(m.version.p);
    assert_int_equal(m.capabilities, SP_JSON_NONE);
    assert_int_equal(m.progress.n, 0);
}

static void test_each_of_a_batch_is_picked_by_its_token(void **state)
{
    struct sp_mcp_message one = {0};

    (void)state;
    assert_int_equal(read_it("[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\"},7,"
                             "{\"jsonrpc\":\"2.0\",\"method\":\"b\"}]"),
                     SP_MCP_BATCH);
    uint32_t t = sp_json_first(&m.json, 0);
    sp_mcp_message_pick(&one, &m, t);
    assert_int_equal(one.kind, SP_MCP_REQUEST);
    is_str(one.method, "a");
    t = sp_json_next(&m.json, 0, t);
    sp_mcp_message_pick(&one, &m, t);
    assert_int_equal(one.kind, SP_MCP_BROKEN);
    assert_int_equal(one.code, -32600);
    t = sp_json_next(&m.json, 0, t);
    sp_mcp_message_pick(&one, &m, t);
    assert_int_equal(one.kind, SP_MCP_NOTIFICATION);
    is_str(one.method, "b");
    sp_mcp_message_done(&one); /* the tape is not its own */
    assert_int_equal(sp_json_type(&m.json, 0), SP_JSON_ARRAY);
}

#define message_test(name) cmocka_unit_test_teardown(name, tear_down)

static const struct CMUnitTest tests[] = {
    message_test(test_a_request_is_seen_with_all_that_both_eras_need),
    message_test(test_what_is_not_there_is_none),
    message_test(test_ids_are_strings_or_integers_and_short),
    message_test(test_what_is_wrong_is_said_with_the_id_if_there_is_one),
    message_test(test_deep_json_is_a_parse_error),
    message_test(test_responses_are_told_by_what_they_have),
    message_test(test_names_are_what_a_header_would_repeat),
    message_test(test_a_version_that_is_no_string_is_modern_all_the_same),
    message_test(test_each_of_a_batch_is_picked_by_its_token),
};

TEST_MAIN(tests)
