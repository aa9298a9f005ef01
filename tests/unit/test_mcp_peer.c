/* SPDX-License-Identifier: Apache-2.0 */
/* Methods, errors and headers of both eras; which era a message is of; batches. */
#include "mcp_fixture.h"

#define DISCOVERED(id)                                                                             \
    "{\"jsonrpc\":\"2.0\",\"id\":" id                                                              \
    ",\"result\":{\"resultType\":\"complete\",\"supportedVersions\":[\"2026-07-28\","              \
    "\"2025-11-25\",\"2025-06-18\",\"2025-03-26\",\"2024-11-05\"],\"capabilities\":{\"tools\":{}," \
    "\"logging\":{},"                                                                              \
    "\"extensions\":{\"io.modelcontextprotocol/tasks\":{}}},\"instructions\":\"be \\\"kind\\\"\"," \
    "\"ttlMs\":3600000,\"cacheScope\":\"private\"," INFO "}}"
#define DONE_MODERN(id, text)                                                                   \
    "{\"jsonrpc\":\"2.0\",\"id\":" id                                                           \
    ",\"result\":{\"resultType\":\"complete\",\"content\":[{\"type\":\"text\",\"text\":\"" text \
    "\"}],\"structuredContent\":{\"n\":1},\"isError\":false," INFO "}}"
#define DONE_LEGACY(id, text)                                       \
    "{\"jsonrpc\":\"2.0\",\"id\":" id                               \
    ",\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"" text \
    "\"}],\"structuredContent\":{\"n\":1},\"isError\":false}}"
#define DONE_OLD(id, text)            \
    "{\"jsonrpc\":\"2.0\",\"id\":" id \
    ",\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"" text "\"}],\"isError\":false}}"
#define WELCOME(version)                                                                        \
    "{\"jsonrpc\":\"2.0\",\"id\":\"i\",\"result\":{\"protocolVersion\":\"" version              \
    "\",\"capabilities\":{\"tools\":{},\"logging\":{}},\"serverInfo\":{\"name\":\"sallyport\"," \
    "\"version\":"                                                                              \
    "\"" SP_VERSION "\"},\"instructions\":\"be \\\"kind\\\"\"}}"
#define INITIALIZE(version)                                            \
    REQUEST("\"i\"", "initialize",                                     \
            "\"protocolVersion\":\"" version "\",\"capabilities\":{}," \
            "\"clientInfo\":{\"name\":\"c\",\"version\":\"1\"}")

/* ---- modern ---- */

static void test_discover_says_what_there_is(void **state)
{
    (void)state;
    assert_true(say(REQUEST("\"d1\"", "server/discover", META(""))));
    hears(200, DISCOVERED("\"d1\""));
    server.options.instructions = NULL;
    assert_true(say(REQUEST("2", "server/discover", META(""))));
    assert_null(strstr(hears_of(200, "\"id\":2,", NULL), "instructions"));
}

static void test_modern_list_has_one_page(void **state)
{
    (void)state;
    assert_true(say(REQUEST("1", "tools/list", META(""))));
    hears(200, "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"resultType\":\"complete\",\"tools\":"
               "[1,1],\"ttlMs\":3600000,\"cacheScope\":\"private\"," INFO "}}");
    assert_true(say(REQUEST("2", "tools/list", "\"cursor\":\"x\"," META(""))));
    hears_of(200, "\"id\":2,", "\"code\":-32602", "cursor", NULL);
    assert_true(say(REQUEST("3", "tools/list", "\"cursor\":null," META(""))));
    hears_of(200, "\"id\":3,\"result\"", NULL);
}

static void test_what_the_modern_era_has_not_is_unknown(void **state)
{
    static const char *const gone[] = {
        "ping", "logging/setLevel", "initialize", "resources/subscribe", "prompts/list", "x"};
    char text[400];

    (void)state;
    initialize("2025-11-25", "");
    for (size_t i = 0; i < sizeof gone / sizeof gone[0]; i++) {
        (void)snprintf(text, sizeof text, REQUEST("1", "%s", META("")), gone[i]);
        assert_true(say(text));
        hears_of(404, "\"id\":1,\"error\":{\"code\":-32601", gone[i], NULL);
    }
}

static void test_every_modern_request_needs_its_metadata(void **state)
{
    (void)state;
    assert_true(say(REQUEST("1", "tools/list", "")));
    hears_of(400, "\"code\":-32602", "protocolVersion", NULL);
    assert_true(say(REQUEST("2", "tools/list",
                            "\"_meta\":{\"io.modelcontextprotocol/clientCapabilities\":{}}")));
    hears_of(400, "\"code\":-32602", "protocolVersion", NULL);
    assert_true(
        say(REQUEST("3", "tools/list",
                    "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\"}")));
    hears_of(400, "\"code\":-32602", "clientCapabilities", NULL);
    assert_true(say(REQUEST("4", "tools/list",
                            "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\","
                            "\"io.modelcontextprotocol/clientCapabilities\":7}")));
    hears_of(400, "\"code\":-32602", "clientCapabilities", NULL);
    assert_true(say(REQUEST("5", "tools/list",
                            "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":7,"
                            "\"io.modelcontextprotocol/clientCapabilities\":{}}")));
    hears_of(400, "\"code\":-32602", "protocolVersion", NULL);
}

static void test_a_version_that_we_do_not_speak_is_answered_with_ours(void **state)
{
    (void)state;
    assert_true(say(REQUEST("1", "server/discover",
                            "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2099-\\\"\","
                            "\"io.modelcontextprotocol/clientCapabilities\":{}}")));
    hears(400, "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32022,\"message\":\"unsupported "
               "protocol version\",\"data\":{\"supported\":[\"2026-07-28\",\"2025-11-25\","
               "\"2025-06-18\",\"2025-03-26\",\"2024-11-05\"],\"requested\":\"2099-\\\"\"}}}");
}

static void test_what_is_no_message_is_answered_without_an_id(void **state)
{
    (void)state;
    assert_true(say("{"));
    hears_of(400, "\"id\":null", "\"code\":-32700", NULL);
    assert_true(say("{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}"));
    hears_of(400, "\"id\":null", "\"code\":-32600", NULL);
    assert_true(say("[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]"));
    hears_of(400, "\"id\":null", "\"code\":-32600", "batch", NULL);
    assert_true(say("{\"id\":9,\"method\":\"ping\"}"));
    hears_of(400, "\"id\":9", "\"code\":-32600", NULL);
}

static void test_params_of_a_call_are_looked_at(void **state)
{
    (void)state;
    assert_true(say(REQUEST("1", "tools/call", META(""))));
    hears_of(200, "\"code\":-32602", "name", NULL);
    assert_true(say(REQUEST("1", "tools/call", "\"name\":7," META(""))));
    hears_of(200, "\"code\":-32602", "name", NULL);
    assert_true(say(REQUEST("1", "tools/call", "\"name\":\"nope\"," META(""))));
    hears_of(200, "\"code\":-32602", "Unknown tool: nope", NULL);
    assert_true(
        say(REQUEST("1", "tools/call", "\"name\":\"exec_command\",\"arguments\":[]," META(""))));
    hears_of(200, "\"code\":-32602", "arguments", NULL);
    assert_true(
        say(REQUEST("1", "tools/call", "\"name\":\"exec_command\",\"requestState\":7," META(""))));
    hears_of(200, "\"code\":-32602", "requestState", NULL);
    assert_true(say(
        REQUEST("1", "tools/call", "\"name\":\"exec_command\",\"inputResponses\":7," META(""))));
    hears_of(200, "\"code\":-32602", "inputResponses", NULL);
    assert_int_equal(run_count, 0);
    assert_true(
        say(REQUEST("1", "tools/call", "\"name\":\"exec_command\",\"arguments\":null," META(""))));
    assert_string_equal(newest_run()->arguments, "{}");
    hears_nothing();
}

/* ---- headers ---- */

static void answers_with_headers(const char *version, const char *method, const char *name,
                                 const char *text, unsigned status, const char *part)
{
    const struct sp_mcp_headers h = {
        .version = version != NULL ? sp_str_of(version) : (struct sp_str){0},
        .method = method != NULL ? sp_str_of(method) : (struct sp_str){0},
        .name = name != NULL ? sp_str_of(name) : (struct sp_str){0}};

    assert_true(say_to(peer, &out, &h, text));
    hears_of(status, part, NULL);
}

static void test_headers_repeat_the_body(void **state)
{
    static const char list[] = REQUEST("1", "tools/list", META(""));
    static const char call[] = REQUEST("1", "tools/call", "\"name\":\"x\"," META(""));
    static const char get[] = REQUEST("1", "tasks/get", "\"taskId\":\"t\"," META(TASKS));

    (void)state;
    answers_with_headers("2026-07-28", "tools/list", NULL, list, 200, "\"result\"");
    answers_with_headers("2026-07-28", "tools/list", "whatever", list, 200, "\"result\"");
    answers_with_headers(NULL, "tools/list", NULL, list, 400, "-32020");
    answers_with_headers("2025-11-25", "tools/list", NULL, list, 400, "-32020");
    answers_with_headers("2026-07-28", NULL, NULL, list, 400, "-32020");
    answers_with_headers("2026-07-28", "tools/call", NULL, list, 400, "-32020");
    answers_with_headers("2026-07-28", "Tools/list", NULL, list, 400, "-32020");
    answers_with_headers("2026-07-28", "tools/call", "x", call, 200, "-32602");
    answers_with_headers("2026-07-28", "tools/call", NULL, call, 400, "-32020");
    answers_with_headers("2026-07-28", "tools/call", "y", call, 400, "-32020");
    answers_with_headers("2026-07-28", "tasks/get", "t", get, 200, "-32602");
    answers_with_headers("2026-07-28", "tasks/get", "u", get, 400, "-32020");
    answers_with_headers("2026-07-28", "nope", NULL, REQUEST("1", "nope", META("")), 404, "-32601");
    answers_with_headers("2099-01-01", "server/discover", NULL,
                         REQUEST("1", "server/discover",
                                 "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":"
                                 "\"2099-01-01\"}"),
                         400, "-32022");
    answers_with_headers("2026-07-28", "tools/list", NULL, REQUEST("1", "tools/list", ""), 400,
                         "-32602");

    const struct sp_mcp_headers broken = {
        .version = SP_STR("2026-07-28"), .method = SP_STR("tools/call"), .is_name_broken = true};
    assert_true(say_to(peer, &out, &broken, call));
    hears_of(400, "-32020", NULL);
}

static void test_a_legacy_header_may_be_missing_but_not_unknown(void **state)
{
    static const char list[] = REQUEST("1", "tools/list", "");
    const struct sp_mcp_headers unknown = {.version = SP_STR("2025-01-01")};

    (void)state;
    answers_with_headers("2025-01-01", NULL, NULL, INITIALIZE("2025-06-18"), 200, "2025-06-18");
    answers_with_headers(NULL, NULL, NULL, list, 200, "\"tools\"");
    answers_with_headers("2025-06-18", NULL, NULL, list, 200, "\"tools\"");
    answers_with_headers("2025-01-01", NULL, NULL, list, 400, "-32600");
    answers_with_headers("2026-07-28", NULL, NULL, list, 400, "-32602");
    assert_true(say_to(peer, &out, &unknown, NOTICE("notifications/initialized", "")));
    hears_of(400, "\"id\":null", "-32600", NULL);
}

/* ---- legacy ---- */

static void test_initialize_gives_a_known_version_back_or_our_newest(void **state)
{
    (void)state;
    assert_null(sp_mcp_peer_version(peer));
    assert_true(say(INITIALIZE("2024-11-05")));
    hears(200, WELCOME("2024-11-05"));
    assert_string_equal(sp_mcp_peer_version(peer), "2024-11-05");
    assert_true(say(INITIALIZE("2025-03-26")));
    hears(200, WELCOME("2025-03-26"));
    assert_true(say(INITIALIZE("2025-06-18")));
    hears(200, WELCOME("2025-06-18"));
    assert_true(say(INITIALIZE("2025-11-25")));
    hears(200, WELCOME("2025-11-25"));
    assert_true(say(INITIALIZE("2026-07-28"))); /* which has no initialize */
    hears(200, WELCOME("2025-11-25"));
    assert_true(say(INITIALIZE("1999-01-01")));
    hears(200, WELCOME("2025-11-25"));
    assert_string_equal(sp_mcp_peer_version(peer), "2025-11-25");
}

static void test_initialize_needs_a_version(void **state)
{
    (void)state;
    assert_true(say("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\"}"));
    hears_of(400, "-32602", NULL);
    assert_true(say(REQUEST("1", "initialize", "\"protocolVersion\":7")));
    hears_of(400, "-32602", NULL);
    assert_true(
        say(REQUEST("1", "initialize", "\"protocolVersion\":\"2025-06-18\",\"capabilities\":7")));
    hears_of(400, "-32602", NULL);
    assert_null(sp_mcp_peer_version(peer));
}

static void test_before_initialize_only_ping_is_answered(void **state)
{
    (void)state;
    assert_true(say("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}"));
    hears(200, "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}");
    assert_true(say(REQUEST("2", "tools/list", "")));
    hears_of(400, "-32602", NULL);
    assert_true(say(LEGACY_CALL("3")));
    hears_of(400, "-32602", NULL);
    assert_true(say(REQUEST("4", "nope", "")));
    hears_of(400, "-32602", NULL);
    assert_int_equal(run_count, 0);
}

static void test_legacy_lists_have_the_words_of_their_version(void **state)
{
    (void)state;
    initialize("2024-11-05", "");
    assert_true(say(REQUEST("1", "tools/list", "")));
    hears(200, "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"tools\":[0,0]}}");
    initialize("2025-03-26", "");
    assert_true(say(REQUEST("1", "tools/list", "")));
    hears(200, "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"tools\":[1,0]}}");
    initialize("2025-06-18", "");
    assert_true(say(REQUEST("1", "tools/list", "")));
    hears(200, "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"tools\":[1,1]}}");
    assert_true(say(REQUEST("2", "tools/list", "\"cursor\":\"1\"")));
    hears_of(200, "-32602", NULL);
    assert_true(say(REQUEST("3", "resources/list", "")));
    hears_of(200, "-32601", "resources/list", NULL);
    assert_true(say(REQUEST("4", "server/discover", "")));
    hears_of(200, "-32601", NULL);
}

static void test_results_are_in_the_envelope_of_their_version(void **state)
{
    (void)state;
    initialize("2024-11-05", "");
    assert_true(say(LEGACY_CALL("1")));
    finish(newest_run(), "a", false);
    hears(200, DONE_OLD("1", "a"));
    initialize("2025-03-26", "");
    assert_true(say(LEGACY_CALL("1")));
    finish(newest_run(), "b", false);
    hears(200, DONE_OLD("1", "b"));
    initialize("2025-06-18", "");
    assert_true(say(LEGACY_CALL("\"x\"")));
    finish(newest_run(), "c", false);
    hears(200, DONE_LEGACY("\"x\"", "c"));
    assert_true(say(CALL("1", "")));
    finish(newest_run(), "d", false);
    hears(200, DONE_MODERN("1", "d"));
    hears_nothing();
}

static void test_a_second_text_block_comes_after_the_first(void **state)
{
    const struct sp_mcp_result r = {
        .is_error = true, .text = SP_STR("one\n\"\x01"), .note = SP_STR("two")};

    (void)state;
    assert_true(say(CALL("1", "")));
    newest_run()->is_gone = true;
    newest_run()->run.ops->done(newest_run()->run.user, &r);
    hears_of(200,
             "\"content\":[{\"type\":\"text\",\"text\":\"one\\n\\\"\\u0001\"},"
             "{\"type\":\"text\",\"text\":\"two\"}],\"isError\":true,",
             NULL);
}

static void test_eras_mix_on_one_peer(void **state)
{
    (void)state;
    assert_true(say(REQUEST("1", "server/discover", META(""))));
    hears(200, DISCOVERED("1"));
    assert_true(say(INITIALIZE("2025-06-18")));
    hears(200, WELCOME("2025-06-18"));
    assert_false(say(NOTICE("notifications/initialized", "")));
    assert_true(say(CALL("1", "")));
    struct fake_run *modern = newest_run();
    assert_true(say(LEGACY_CALL("2")));
    finish(newest_run(), "old", false);
    hears(200, DONE_LEGACY("2", "old"));
    finish(modern, "new", false);
    hears(200, DONE_MODERN("1", "new"));
    assert_true(say(REQUEST("3", "ping", META(""))));
    hears_of(404, "-32601", NULL);
    assert_true(say(REQUEST("4", "ping", "")));
    hears(200, "{\"jsonrpc\":\"2.0\",\"id\":4,\"result\":{}}");
    hears_nothing();
}

static void test_notifications_and_stray_responses_are_never_answered(void **state)
{
    (void)state;
    assert_false(say(NOTICE("notifications/initialized", "")));
    assert_false(say(NOTICE("notifications/whatever", "")));
    assert_false(say(NOTICE("notifications/cancelled", "")));
    assert_false(say(CANCEL("7")));
    assert_false(say(CANCEL("{}")));
    assert_false(say(NOTICE("tools/list", META(""))));
    assert_false(say("{\"jsonrpc\":\"2.0\",\"id\":\"elicit-1\",\"result\":{\"action\":"
                     "\"accept\",\"content\":{\"decision\":\"once\"}}}"));
    assert_false(say("{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{}}"));
    hears_nothing();
}

/* ---- batches ---- */

#define PING(id) "{\"jsonrpc\":\"2.0\",\"id\":" id ",\"method\":\"ping\"}"
#define PONG(id) "{\"jsonrpc\":\"2.0\",\"id\":" id ",\"result\":{}}"

static void test_only_one_version_has_batches(void **state)
{
    static const char *const without[] = {"2024-11-05", "2025-06-18", "2025-11-25"};

    (void)state;
    for (size_t i = 0; i < sizeof without / sizeof without[0]; i++) {
        initialize(without[i], "");
        assert_true(say("[" PING("1") "]"));
        hears_of(400, "\"id\":null", "-32600", NULL);
    }
    initialize("2025-03-26", "");
    assert_true(say("[" PING("1") "," PING("\"2\"") "]"));
    hears(200, "[" PONG("1") "," PONG("\"2\"") "]");
}

static void test_a_batch_is_answered_once_all_of_it_is(void **state)
{
    (void)state;
    initialize("2025-03-26", "");
    assert_true(say("[" LEGACY_CALL("1") "," PING("2") "," NOTICE("notifications/x", "") ",7]"));
    hears_nothing();
    finish(newest_run(), "late", false);
    hears_of(200, "[" PONG("2") ",{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32600",
             "," DONE_OLD("1", "late") "]", NULL);
    hears_nothing();
}

static void test_what_needs_no_answer_gets_none(void **state)
{
    (void)state;
    initialize("2025-03-26", "");
    assert_false(say("[" NOTICE("notifications/x", "") "," CANCEL("4") "]"));
    hears_nothing();
}

static void test_some_messages_have_no_place_in_a_batch(void **state)
{
    (void)state;
    initialize("2025-03-26", "");
    assert_true(say("[" INITIALIZE("2025-06-18") "," REQUEST("2", "tools/list", META("")) "]"));
    hears_of(200, "[{\"jsonrpc\":\"2.0\",\"id\":\"i\",\"error\":{\"code\":-32600",
             ",{\"jsonrpc\":\"2.0\",\"id\":2,\"error\":{\"code\":-32600", NULL);
    assert_string_equal(sp_mcp_peer_version(peer), "2025-03-26");
}

static void test_a_batch_has_a_bound(void **state)
{
    auto_buf struct sp_buf b = {0};

    (void)state;
    initialize("2025-03-26", "");
    for (int i = 0; i < 257; i++)
        assert_true(sp_buf_printf(&b, "%s" PING("%d"), i == 0 ? "[" : ",", i));
    assert_true(sp_buf_add(&b, "]", 2));
    assert_true(say(b.data));
    hears_of(400, "-32600", "256", NULL);
}

static void test_a_cancelled_part_of_a_batch_is_left_out(void **state)
{
    (void)state;
    initialize("2025-03-26", "");
    assert_true(say("[" LEGACY_CALL("1") "," LEGACY_CALL("2") "]"));
    assert_false(say(CANCEL("1")));
    assert_true(runs[0]->is_cancelled);
    hears_nothing();
    finish(runs[1], "b", false);
    hears(200, "[" DONE_OLD("2", "b") "]");
    assert_int_equal(cancelled_count, 0);
    assert_true(say("[" LEGACY_CALL("1") "]"));
    assert_false(say(CANCEL("1")));
    assert_int_equal(cancelled_count, 1);
    assert_false(say("[" LEGACY_CALL("1") "," CANCEL("1") "]"));
    hears_nothing();
}

static void test_a_batch_nobody_reads_goes_on_unheard(void **state)
{
    (void)state;
    initialize("2025-03-26", "");
    assert_true(say("[" LEGACY_CALL("1") "," LEGACY_CALL("2") "]"));
    sp_mcp_peer_out_gone(peer, &out);
    finish(runs[0], "a", false);
    assert_false(runs[1]->is_cancelled);
    finish(runs[1], "b", false);
    hears_nothing();
    assert_true(say("[" LEGACY_CALL("1") "]")); /* and one that is open at the end */
}

static const struct CMUnitTest tests[] = {
    peer_test(test_discover_says_what_there_is),
    peer_test(test_modern_list_has_one_page),
    peer_test(test_what_the_modern_era_has_not_is_unknown),
    peer_test(test_every_modern_request_needs_its_metadata),
    peer_test(test_a_version_that_we_do_not_speak_is_answered_with_ours),
    peer_test(test_what_is_no_message_is_answered_without_an_id),
    peer_test(test_params_of_a_call_are_looked_at),
    peer_test(test_headers_repeat_the_body),
    peer_test(test_a_legacy_header_may_be_missing_but_not_unknown),
    peer_test(test_initialize_gives_a_known_version_back_or_our_newest),
    peer_test(test_initialize_needs_a_version),
    peer_test(test_before_initialize_only_ping_is_answered),
    peer_test(test_legacy_lists_have_the_words_of_their_version),
    peer_test(test_results_are_in_the_envelope_of_their_version),
    peer_test(test_a_second_text_block_comes_after_the_first),
    peer_test(test_eras_mix_on_one_peer),
    peer_test(test_notifications_and_stray_responses_are_never_answered),
    peer_test(test_only_one_version_has_batches),
    peer_test(test_a_batch_is_answered_once_all_of_it_is),
    peer_test(test_what_needs_no_answer_gets_none),
    peer_test(test_some_messages_have_no_place_in_a_batch),
    peer_test(test_a_batch_has_a_bound),
    peer_test(test_a_cancelled_part_of_a_batch_is_left_out),
    peer_test(test_a_batch_nobody_reads_goes_on_unheard),
};

TEST_MAIN(tests)
