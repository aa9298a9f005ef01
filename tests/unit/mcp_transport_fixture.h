/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mcp_transport_fixture: the protocol behind a transport, played by a puppet: what a message gets
 * is said by its method, and everything that the transport does to it is written down.
 *
 *   now, now404 ...   answered at once, with this status (none: 200)
 *   later             open until the test answers
 *   talk              says something first, then as `later`
 *   initialize        agrees on a version; with the id 99 it fails
 */
#ifndef SP_TEST_MCP_TRANSPORT_FIXTURE_H
#define SP_TEST_MCP_TRANSPORT_FIXTURE_H

#include "mcp/peer.h"
#include "net_fixture.h"

struct sp_mcp_peer {
    struct sp_mcp_caller *caller;
    struct sp_mcp_out *open; /* the newest request's */
    const char *version;
    bool is_subscribed;
};

static struct {
    struct sp_mcp_options options;
    struct sp_buf log;
    unsigned held, peers, takes, gone, closed_subscriptions;
    struct sp_mcp_peer *newest; /* who was asked last */
    struct sp_mcp_out *out;     /* of the last that is open */
    bool has_no_callers, has_no_peers, keeps_no_log;
    struct sp_mcp_caller_watch *watch; /* who entered last */
    char callers[8][32];
} mcp;

static inline struct sp_mcp *the_mcp(void)
{
    return (struct sp_mcp *)(void *)&mcp;
}

const struct sp_mcp_options *__wrap_sp_mcp_options(const struct sp_mcp *m);
int __wrap_sp_mcp_caller_hold(struct sp_mcp *m, struct sp_str identity, struct sp_mcp_caller **ret,
                              struct sp_err *e);
void __wrap_sp_mcp_caller_release(struct sp_mcp_caller *c);
struct sp_mcp_peer *__wrap_sp_mcp_peer_new(struct sp_mcp *m, struct sp_mcp_caller *c,
                                           struct sp_mcp_out *out);
void __wrap_sp_mcp_peer_free(struct sp_mcp_peer *p);
void __wrap_sp_mcp_peer_move(struct sp_mcp_peer *p, struct sp_mcp_caller *c);
void __wrap_sp_mcp_caller_watch(struct sp_mcp_caller_watch *g, struct sp_mcp_caller *c);
bool __wrap_sp_mcp_take(struct sp_mcp_peer *p, struct sp_mcp_out *out,
                        const struct sp_mcp_headers *headers, struct sp_mcp_message *m);
void __wrap_sp_mcp_peer_out_gone(struct sp_mcp_peer *p, struct sp_mcp_out *out);
void __wrap_sp_mcp_peer_close_subscriptions(struct sp_mcp_peer *p);
const char *__wrap_sp_mcp_peer_version(const struct sp_mcp_peer *p);

const struct sp_mcp_options *__wrap_sp_mcp_options(const struct sp_mcp *m)
{
    assert_ptr_equal(m, the_mcp());
    mcp.options.loop = fx.loop;
    return &mcp.options;
}

/* A caller is its identity. */
int __wrap_sp_mcp_caller_hold(struct sp_mcp *m, struct sp_str identity, struct sp_mcp_caller **ret,
                              struct sp_err *e)
{
    size_t i = 0;

    assert_ptr_equal(m, the_mcp());
    if (mcp.has_no_callers)
        return sp_fail(e, SP_E_LIMIT, 0, "there are too many callers");
    while (mcp.callers[i][0] != 0 && !sp_str_eq(identity, sp_str_of(mcp.callers[i])))
        i++;
    (void)snprintf(mcp.callers[i], sizeof mcp.callers[i], SP_STR_FMT, SP_STR_ARG(identity));
    *ret = (struct sp_mcp_caller *)(void *)mcp.callers[i];
    mcp.held++;
    return 0;
}

void __wrap_sp_mcp_caller_release(struct sp_mcp_caller *c)
{
    assert_non_null(c);
    assert_true(mcp.held-- != 0);
}

void __wrap_sp_mcp_caller_watch(struct sp_mcp_caller_watch *g, struct sp_mcp_caller *c)
{
    assert_true(c == NULL || g->caller == NULL);
    g->caller = c;
    if (c != NULL)
        mcp.watch = g;
    else if (mcp.watch == g)
        mcp.watch = NULL;
}

void __wrap_sp_mcp_peer_move(struct sp_mcp_peer *p, struct sp_mcp_caller *c)
{
    p->caller = c;
}

struct sp_mcp_peer *__wrap_sp_mcp_peer_new(struct sp_mcp *m, struct sp_mcp_caller *c,
                                           struct sp_mcp_out *out)
{
    struct sp_mcp_peer *p = mcp.has_no_peers ? NULL : calloc(1, sizeof *p);

    (void)out;
    assert_ptr_equal(m, the_mcp());
    if (p == NULL)
        return NULL;
    p->caller = c;
    mcp.peers++;
    return p;
}

void __wrap_sp_mcp_peer_free(struct sp_mcp_peer *p)
{
    if (p == NULL)
        return;
    mcp.peers--;
    if (mcp.newest == p)
        mcp.newest = NULL;
    free(p);
}

const char *__wrap_sp_mcp_peer_version(const struct sp_mcp_peer *p)
{
    return p->version;
}

static inline void answer_with(struct sp_mcp_out *out, unsigned status, const char *text)
{
    out->send(out, sp_str_of(text), status);
}

static inline bool puppet_request(struct sp_mcp_peer *p, struct sp_mcp_out *out,
                                  const struct sp_mcp_message *m)
{
    char method[64];
    char text[128];
    unsigned status = 200;

    (void)snprintf(method, sizeof method, SP_STR_FMT, SP_STR_ARG(m->method));
    (void)snprintf(text, sizeof text, "{\"id\":" SP_STR_FMT ",\"result\":{}}", SP_STR_ARG(m->id));
    if (strcmp(method, "initialize") == 0) {
        if (sp_str_eq(m->id, SP_STR("99")))
            status = 400;
        else
            p->version = SP_MCP_LEGACY_NEWEST;
    } else if (sscanf(method, "now%u", &status) != 1 && strcmp(method, "now") != 0) {
        mcp.out = p->open = out;
        p->is_subscribed = strcmp(method, "listen") == 0;
        if (strcmp(method, "talk") == 0)
            answer_with(out, 0, "{\"method\":\"progress\"}");
        return true;
    }
    answer_with(out, status, text);
    return true;
}

bool __wrap_sp_mcp_take(struct sp_mcp_peer *p, struct sp_mcp_out *out,
                        const struct sp_mcp_headers *headers, struct sp_mcp_message *m)
{
    const struct sp_mcp_headers none = {0};
    const struct sp_mcp_headers *h = headers != NULL ? headers : &none;

    assert_true(
        mcp.keeps_no_log ||
        sp_buf_printf(&mcp.log,
                      "%s " SP_STR_FMT " [" SP_STR_FMT "|" SP_STR_FMT "|" SP_STR_FMT "%s]\n",
                      (const char *)p->caller, SP_STR_ARG(m->method), SP_STR_ARG(h->version),
                      SP_STR_ARG(h->method), SP_STR_ARG(h->name), h->is_name_broken ? "!" : ""));
    mcp.takes++;
    mcp.newest = p;
    switch (m->kind) {
    case SP_MCP_NOTIFICATION:
    case SP_MCP_RESPONSE:
        return false;
    case SP_MCP_BROKEN:
    case SP_MCP_BATCH:
        answer_with(out, 400, "{\"error\":\"broken\"}");
        return true;
    case SP_MCP_REQUEST:
        break;
    }
    return puppet_request(p, out, m);
}

void __wrap_sp_mcp_peer_out_gone(struct sp_mcp_peer *p, struct sp_mcp_out *out)
{
    if (p->open == out)
        p->open = NULL;
    mcp.gone++;
    if (mcp.out == out)
        mcp.out = NULL;
}

void __wrap_sp_mcp_peer_close_subscriptions(struct sp_mcp_peer *p)
{
    struct sp_mcp_out *out = p->open;

    mcp.closed_subscriptions++;
    if (!p->is_subscribed || out == NULL)
        return;
    p->open = NULL;
    answer_with(out, 200, "{\"farewell\":true}");
}

static inline void assert_log(const char *want)
{
    const size_t n = strlen(want);

    if (mcp.log.len != n || (n != 0 && memcmp(mcp.log.data, want, n) != 0))
        fail_msg("said:\n%.*swanted:\n%s", (int)mcp.log.len, mcp.log.data, want);
    mcp.log.len = 0;
}

static inline bool is_open(void)
{
    return mcp.out != NULL;
}

static inline bool is_left(void)
{
    return mcp.gone != 0;
}

static inline void finish_open(unsigned status, const char *text)
{
    struct sp_mcp_out *out = mcp.out;

    assert_non_null(out);
    mcp.out = NULL;
    mcp.newest->open = NULL;
    answer_with(out, status, text);
}

static inline int mcp_set_up(void **state)
{
    memset(&mcp, 0, sizeof mcp);
    return set_up(state);
}

/* Nothing is left behind. */
static inline int mcp_tear_down(void **state)
{
    const bool is_clean = mcp.held == 0 && mcp.peers == 0;

    sp_buf_done(&mcp.log);
    return tear_down(state) == 0 && is_clean ? 0 : -1;
}

#endif
