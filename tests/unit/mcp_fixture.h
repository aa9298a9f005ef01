/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mcp_fixture: a peer of the protocol over stand-ins. What goes out is written down.
 */
#ifndef SP_MCP_FIXTURE_H
#define SP_MCP_FIXTURE_H

#include "mcp/peer.h"
#include "mcp/task.h"
#include "mcp_stand_ins.h"

/* ---- what goes out ---- */

#define SENT_MAX 4096
struct sent {
    char *text;
    unsigned status;
    const struct sp_mcp_out *out;
};
static struct sent sent[SENT_MAX];
static uint32_t sent_count, sent_seen;
static bool is_out_full;
static unsigned cancelled_count;
static struct sp_mcp_peer *peer;
static struct sp_mcp_peer *gone_on_send; /* whoever sends finds that nobody reads */

static inline void on_send(struct sp_mcp_out *o, struct sp_str message, unsigned status)
{
    char *copy = reallocarray(NULL, message.n + 1, 1); /* not one of those that are made to fail */

    assert_non_null(copy);
    memcpy(copy, message.p, message.n);
    copy[message.n] = 0;
    assert_true(sent_count < SENT_MAX);
    assert_null(memchr(message.p, '\n', message.n));
    sent[sent_count++] = (struct sent){copy, status, o};
    if (gone_on_send != NULL)
        sp_mcp_peer_out_gone(gone_on_send, o);
}

static inline bool on_is_full(struct sp_mcp_out *o)
{
    (void)o;
    return is_out_full;
}

static inline void on_cancelled(struct sp_mcp_out *o)
{
    (void)o;
    cancelled_count++;
}

static struct sp_mcp_out out = {.send = on_send, .is_full = on_is_full, .cancelled = on_cancelled};
static inline bool say_to(struct sp_mcp_peer *p, struct sp_mcp_out *o,
                          const struct sp_mcp_headers *h, const char *text)
{
    struct sp_mcp_message m = {0};
    const size_t n = strlen(text);
    char *copy = strdup(text);

    assert_non_null(copy);
    sp_mcp_message_read(&m, copy, n);
    const bool is_answered = sp_mcp_take(p, o, h, &m);
    sp_mcp_message_done(&m);
    memset(copy, 'x', n); /* nobody may look at it any more */
    free(copy);
    turn();
    return is_answered;
}

static inline bool say(const char *text)
{
    return say_to(peer, &out, NULL, text);
}

/* The next message that went out; NULL: there is none. */
static inline const struct sent *next_sent(void)
{
    return sent_seen < sent_count ? &sent[sent_seen++] : NULL;
}

/* The same, where there must be one. */
static inline const struct sent *need_sent(void)
{
    assert_true(sent_seen < sent_count);
    return &sent[sent_seen++];
}

static inline void hears(unsigned status, const char *text)
{
    const struct sent *s = need_sent();

    assert_string_equal(s->text, text);
    assert_int_equal(s->status, status);
}

/* All of these parts are in the next message; NULL at the end. */
static inline const char *hears_of(unsigned status, ...)
{
    const struct sent *s = need_sent();
    va_list ap;
    const char *part;

    va_start(ap, status);
    while ((part = va_arg(ap, const char *)) != NULL)
        if (strstr(s->text, part) == NULL)
            fail_msg("%s is not in %s", part, s->text);
    va_end(ap);
    assert_int_equal(s->status, status);
    return s->text;
}

static inline void hears_nothing(void)
{
    const struct sent *s = next_sent();

    if (s != NULL)
        fail_msg("nobody asked for %s", s->text);
}

/* ---- messages ---- */

#define INFO                                \
    "\"_meta\":{\"io.modelcontextprotocol/" \
    "serverInfo\":{\"name\":\"sallyport\",\"version\":\"" SP_VERSION "\"}}"
#define META(capabilities)                                                   \
    "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\"," \
    "\"io.modelcontextprotocol/clientCapabilities\":{" capabilities "}}"
#define TOKEN_META(capabilities)                                                      \
    "\"_meta\":{\"progressToken\":\"t\",\"io.modelcontextprotocol/protocolVersion\":" \
    "\"2026-07-28\",\"io.modelcontextprotocol/clientCapabilities\":{" capabilities "}}"
#define FORMS "\"elicitation\":{}"
#define TASKS "\"extensions\":{\"io.modelcontextprotocol/tasks\":{}}"
#define REQUEST(id, method, params) \
    "{\"jsonrpc\":\"2.0\",\"id\":" id ",\"method\":\"" method "\",\"params\":{" params "}}"
#define NOTICE(method, params) \
    "{\"jsonrpc\":\"2.0\",\"method\":\"" method "\",\"params\":{" params "}}"
#define EXEC                          "\"name\":\"exec_command\",\"arguments\":{\"cmd\":\"a\"}"
#define EXEC_TO_END                   "\"name\":\"exec_command\",\"arguments\":{\"until\":{\"exit\":true}}"
#define CALL(id, capabilities)        REQUEST(id, "tools/call", EXEC "," META(capabilities))
#define CALL_TO_END(id, capabilities) REQUEST(id, "tools/call", EXEC_TO_END "," META(capabilities))
#define LEGACY_CALL(id)               REQUEST(id, "tools/call", EXEC)
#define CANCEL(id)                    NOTICE("notifications/cancelled", "\"requestId\":" id)
#define PENDING                       "approval is still pending; repeat the same call"

static inline void initialize(const char *version, const char *capabilities)
{
    char text[256];

    (void)snprintf(
        text, sizeof text,
        REQUEST("\"init\"", "initialize", "\"protocolVersion\":\"%s\",\"capabilities\":{%s}"),
        version, capabilities);
    assert_true(say(text));
    assert_non_null(next_sent());
    assert_false(say(NOTICE("notifications/initialized", "")));
}

/* ---- a test's beginning and end ---- */

static inline int set_up(void **state)
{
    static char stdio[] = "stdio";
    static char uid[] = "uid 1000";

    (void)state;
    now_ms = 1000;
    last_line = "compiling";
    manager_options = (struct sp_manager_options){.exited_ttl_ms = 600000};
    server = (struct sp_mcp){
        .options = {.manager = &manager_options, .instructions = "be \"kind\""}, .key = "secret"};
    caller = (struct sp_mcp_caller){.mcp = &server, .number = 1, .identity = stdio};
    other_caller = (struct sp_mcp_caller){.mcp = &server, .number = 2, .identity = uid};
    sp_list_init(&caller.peers);
    sp_list_init(&other_caller.peers);
    has_approver = is_run_limit = is_out_full = has_no_timers = false;
    cancelled_count = 0;
    terminated = 0;
    gone_on_send = NULL;
    next_question = 0;
    peer = sp_mcp_peer_new(&server, &caller, NULL);
    assert_non_null(peer);
    return 0;
}

static inline int tear_down(void **state)
{
    (void)state;
    sp_mcp_peer_free(peer);
    peer = NULL;
    sp_mcp_parking_free(caller.parking);
    sp_mcp_parking_free(other_caller.parking);
    sp_mcp_tasks_free(caller.tasks);
    sp_mcp_tasks_free(other_caller.tasks);
    assert_int_equal(timer_count, 0); /* nothing is left to wait for */
    while (run_count != 0)
        free(runs[--run_count]);
    while (sent_count != 0)
        free(sent[--sent_count].text);
    sent_seen = 0;
    return 0;
}

#define peer_test(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

#endif
