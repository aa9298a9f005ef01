/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whatever a client of MCP may send, a line a message, into one peer with a server behind it that
 * runs nothing: every request is answered once at most, every answer is JSON without a line feed,
 * and a line that is no notification and no response is answered or open. A line that begins with
 * `!` does something else: `!g` nobody reads any more, `!f` farewell, `!n` another peer, `!h` the
 * next ones come with headers, `!t` the loop turns.
 */
#include "engine/manager.h"
#include "fuzz.h"
#include "mcp/mcp.h"
#include "mcp/peer.h"

struct world {
    struct sp_loop *loop;
    struct sp_mcp *mcp;
    struct sp_mcp_caller *caller;
    struct sp_mcp_peer *peer;
    struct sp_mcp_out out;
    bool has_headers;
    unsigned requests, answers;
};

static void on_send(struct sp_mcp_out *o, struct sp_str message, unsigned status)
{
    struct world *w = (struct world *)(void *)((char *)o - offsetof(struct world, out));
    struct sp_json j = {0};
    struct sp_err e = {0};
    char *copy = fuzz_copy(message.p, message.n);

    CHECK(message.n != 0 && memchr(message.p, '\n', message.n) == NULL);
    char *text = realloc(copy, message.n + 1);
    CHECK(text != NULL);
    CHECK(sp_json_parse(&j, text, message.n, &e) == 0);
    CHECK(sp_json_type(&j, 0) == SP_JSON_OBJECT || sp_json_type(&j, 0) == SP_JSON_ARRAY);
    CHECK(status == 0 || status == 200 || status == 400 || status == 404);
    w->answers += status != 0;
    CHECK(w->answers <= w->requests);
    sp_json_done(&j);
    free(text);
}

static bool is_never_full(struct sp_mcp_out *o)
{
    (void)o;
    return false;
}

static void take_line(struct world *w, const char *line, size_t n)
{
    const struct sp_mcp_headers headers = {.version = SP_STR("2026-07-28"),
                                           .method = SP_STR("tools/list")};
    struct sp_mcp_message m = {0};
    char *text = fuzz_copy(line, n);
    char *room = realloc(text, n + 1); /* text[n] may be written */
    const unsigned before = w->answers;

    CHECK(room != NULL);
    sp_mcp_message_read(&m, room, n);
    const bool is_quiet = m.kind == SP_MCP_NOTIFICATION || m.kind == SP_MCP_RESPONSE;
    w->requests++;
    const bool is_answered = sp_mcp_take(w->peer, &w->out, w->has_headers ? &headers : NULL, &m);
    if (!is_answered) {
        w->requests--;
        CHECK(w->answers == before);
    }
    CHECK(is_answered || is_quiet || m.kind == SP_MCP_BATCH);
    sp_mcp_message_done(&m);
    free(room);
}

static void do_order(struct world *w, char order)
{
    struct sp_err e = {0};

    if (order == 'g')
        sp_mcp_peer_out_gone(w->peer, &w->out);
    else if (order == 'f')
        sp_mcp_peer_close_subscriptions(w->peer);
    else if (order == 'h')
        w->has_headers = !w->has_headers;
    else if (order == 't')
        (void)sp_loop_dispatch(w->loop, 0, &e);
    if (order != 'n')
        return;
    sp_mcp_peer_free(w->peer);
    w->peer = sp_mcp_peer_new(w->mcp, w->caller, NULL);
    CHECK(w->peer != NULL);
}

static void begin(struct world *w)
{
    static const struct sp_manager_options manager = {.exited_ttl_ms = 1000};
    struct sp_manager_options with_loop = manager;
    struct sp_err e = {0};

    w->out.send = on_send;
    w->out.is_full = is_never_full;
    CHECK(sp_loop_new(&w->loop, &e) == 0);
    with_loop.loop = w->loop;
    const struct sp_mcp_options o = {
        .loop = w->loop, .manager = &with_loop, .instructions = "none"};
    CHECK(sp_mcp_new(&o, &w->mcp, &e) == 0);
    CHECK(sp_mcp_caller_hold(w->mcp, SP_STR("stdio"), &w->caller, &e) == 0);
    w->peer = sp_mcp_peer_new(w->mcp, w->caller, NULL);
    CHECK(w->peer != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct world w = {0};
    const char *at = (const char *)data;
    const char *end = at + size;

    begin(&w);
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        const size_t n = stop != NULL ? (size_t)(stop - at) : (size_t)(end - at);

        if (n >= 2 && at[0] == '!')
            do_order(&w, at[1]);
        else if (n != 0)
            take_line(&w, at, n);
        at += n + (stop != NULL);
    }
    sp_mcp_peer_free(w.peer);
    sp_mcp_caller_release(w.caller);
    sp_mcp_free(w.mcp);
    sp_loop_free(w.loop);
    return 0;
}
