/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net_fixture: a real listener and real clients on one loop, in one thread.
 *
 * `until` turns the loop, and lets every client send and receive a little in each turn, until a
 * condition holds. A condition that never comes true fails the test.
 */
#ifndef SP_TEST_NET_FIXTURE_H
#define SP_TEST_NET_FIXTURE_H

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/buf.h"
#include "os/loop.h"
#include "server/net/frames.h"
#include "server/net/link_priv.h"
#include "server/net/listen.h"
#include "test.h"

#define CLIENTS 4
#define MIB     ((size_t)1 << 20)

struct client {
    int fd;
    struct sp_buf in, out;
    bool has_ended;  /* the server closed, or broke off */
    bool is_reading; /* false: it does not read */
    size_t at;       /* of `in`: what the test has read */
};

static struct fixture {
    struct sp_loop *loop;
    struct sp_listener *listener;
    struct sp_listen_options o;
    struct client clients[CLIENTS];
    struct client *watched; /* the newest: whom the conditions below are about */
    struct sp_deferred pump;
    struct sp_timer tick;
    bool (*is_done)(void);
    uint64_t deadline_ms;
    bool is_late;

    struct sp_link *link; /* the newest */
    struct sp_buf heard;  /* every message and a '\n' */
    unsigned messages, not_texts, drains, closes, finishes;
    char why[128];
    bool echoes, refuses;
    bool keeps_quiet; /* count messages, keep none */
} fx;

/* ---- the layer above ---- */

static inline void say(struct sp_link *l, const void *text, size_t len)
{
    char *room = sp_link_reserve(l, len);

    assert_non_null(room);
    memcpy(room, text, len);
    sp_link_commit(l, len);
}

static inline void fx_message(void *user, char *text, size_t len)
{
    text[len] = 0; /* allowed: nothing that follows may suffer */
    fx.messages++;
    if (!fx.keeps_quiet) {
        assert_true(sp_buf_add(&fx.heard, text, len));
        assert_true(sp_buf_add(&fx.heard, "\n", 1));
    }
    if (fx.echoes)
        say(*(struct sp_link **)user, text, len);
    memset(text, '#', len + 1);
}

static inline void fx_not_text(void *user)
{
    (void)user;
    fx.not_texts++;
}

static inline void fx_drained(void *user)
{
    (void)user;
    fx.drains++;
}

static inline void fx_closed(void *user, const char *why)
{
    (void)user;
    fx.closes++;
    fx.link = NULL;
    (void)snprintf(fx.why, sizeof fx.why, "%s", why);
}

static const struct sp_link_ops fx_ops = {
    .message = fx_message, .not_text = fx_not_text, .drained = fx_drained, .closed = fx_closed};

static inline bool fx_opened(void *user, struct sp_link *l, const struct sp_link_ops **ret_ops,
                             void **ret_user)
{
    (void)user;
    if (fx.refuses)
        return false;
    fx.link = l;
    *ret_ops = &fx_ops;
    *ret_user = &fx.link;
    return true;
}

static inline void fx_metrics(void *user, struct sp_buf *out)
{
    (void)user;
    assert_true(sp_buf_add_str(out, SP_STR("sallyport_up 1\n")));
}

static inline void fx_finished(void *user)
{
    (void)user;
    fx.finishes++;
}

/* ---- turning the loop ---- */

static inline uint64_t test_now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* true: something moved. */
static inline bool client_pump(struct client *c)
{
    static char block[1 << 18];

    bool has_moved = false;

    if (c->fd < 0 || c->has_ended)
        return false;
    if (c->out.len != 0) {
        const ssize_t n =
            send(c->fd, c->out.data, c->out.len < sizeof block ? c->out.len : sizeof block,
                 MSG_DONTWAIT | MSG_NOSIGNAL);

        has_moved = n > 0;
        if (n > 0)
            sp_buf_drop(&c->out, (size_t)n);
        else if (errno != EAGAIN)
            sp_buf_done(
                &c->out); /* it does not listen any more; what it said is still to be read */
    }
    if (!c->is_reading)
        return has_moved;
    const ssize_t n = recv(c->fd, block, sizeof block, MSG_DONTWAIT);
    if (n > 0)
        assert_true(sp_buf_add(&c->in, block, (size_t)n));
    else if (n == 0 || errno != EAGAIN)
        c->has_ended = true;
    return has_moved || n > 0;
}

static inline void fx_pump(struct sp_deferred *d);

static inline void fx_tick(struct sp_timer *t)
{
    (void)t;
    sp_loop_defer(fx.loop, &fx.pump, fx_pump);
}

static inline void fx_pump(struct sp_deferred *d)
{
    bool has_moved = false;

    for (size_t i = 0; i < CLIENTS; i++)
        has_moved |= client_pump(&fx.clients[i]);
    fx.is_late = test_now_ms() > fx.deadline_ms;
    if (fx.is_late || fx.is_done())
        sp_loop_stop(fx.loop);
    else if (has_moved)
        sp_loop_again(fx.loop, d, fx_pump);
    else
        assert_true(sp_loop_timer(fx.loop, &fx.tick, sp_loop_now(fx.loop) + 1, fx_tick));
}

static inline bool comes_true(bool (*is_done)(void), uint64_t patience_ms)
{
    struct sp_err e;

    fx.is_done = is_done;
    fx.is_late = false;
    fx.deadline_ms = test_now_ms() + patience_ms;
    sp_loop_again(fx.loop, &fx.pump, fx_pump);
    assert_int_equal(sp_loop_run(fx.loop, &e), 0);
    return !fx.is_late;
}

static inline void until(bool (*is_done)(void))
{
    assert_true(comes_true(is_done, 20000));
}

static inline bool never(void)
{
    return false;
}

/* Lets time pass: for what must not happen. */
static inline void pass(uint64_t ms)
{
    (void)comes_true(never, ms);
}

static inline bool is_closed(void)
{
    return fx.closes != 0;
}

static inline bool has_ended(void)
{
    return fx.watched->has_ended;
}

static inline bool is_sent(void)
{
    return fx.watched->out.len == 0;
}

static inline bool is_linked(void)
{
    return fx.link != NULL && fx.link->phase == FRAMES;
}

static unsigned wanted_messages;

static inline bool has_messages(void)
{
    return fx.messages >= wanted_messages;
}

static inline void until_messages(unsigned n)
{
    wanted_messages = n;
    until(has_messages);
}

/* ---- clients ---- */

static inline struct client *connect_to(const struct sockaddr *a, socklen_t size)
{
    struct client *c = fx.clients;

    while (c->fd >= 0 && c < fx.clients + CLIENTS - 1)
        c++;
    assert_true(c->fd < 0); /* else CLIENTS is too small */
    c->fd = socket(a->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    c->is_reading = true;
    fx.watched = c;
    assert_true(c->fd >= 0);
    assert_int_equal(connect(c->fd, a, size), 0);
    return c;
}

static inline struct client *connect_client(void)
{
    const char *url = sp_listener_url(fx.listener);
    struct sp_listen_url u;
    struct sp_err e;

    assert_int_equal(sp_listen_parse(url, &u, &e), 0);
    return connect_to(&u.addr.any, u.kind == SP_LISTEN_UNIX ? sizeof u.addr.un : sizeof u.addr.in);
}

static inline char *filled(size_t n, char c)
{
    char *p = malloc(n);

    assert_non_null(p);
    memset(p, c, n);
    return p;
}

static inline void put(struct client *c, const void *bytes, size_t n)
{
    assert_true(sp_buf_add(&c->out, bytes, n));
}

static inline void put_text(struct client *c, const char *text)
{
    put(c, text, strlen(text));
}

/* One masked frame. first: opcode and flags, as on the wire. */
static inline void put_frame(struct client *c, uint8_t first, const void *payload, size_t n)
{
    static const uint8_t mask[4] = {0x11, 0x22, 0x93, 0xA4};
    char header[SP_WS_MAX_HEADER];
    const size_t size = sp_ws_write_header(header, SP_WS_TEXT, true, n, mask);

    header[0] = (char)first;
    put(c, header, size);
    char *room = sp_buf_room(&c->out, n + 1);
    assert_non_null(room);
    memcpy(room, payload, n);
    sp_ws_mask(room, n, mask, 0);
    c->out.len += n;
}

#define PUT_FRAME(c, first, literal) put_frame(c, first, literal, sizeof(literal) - 1)

#define UPGRADE                                                                \
    "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive, Upgrade\r\n" \
    "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"                      \
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
#define SWITCHED                                                                        \
    "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n" \
    "sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"

static inline bool has_switched(void)
{
    return fx.watched->in.len >= sizeof SWITCHED - 1;
}

static inline struct client *connect_websocket(void)
{
    struct client *c = connect_client();

    put_text(c, UPGRADE);
    until(has_switched);
    until(is_linked);
    assert_memory_equal(c->in.data, SWITCHED, sizeof SWITCHED - 1);
    c->at = sizeof SWITCHED - 1;
    return c;
}

/* The next frame the server sent: false if it is not there yet, whole. */
static inline bool next_frame(struct client *c, struct sp_ws_header *ret, const char **ret_payload)
{
    const char *why = "";

    if (c->in.data == NULL)
        return false;
    const enum sp_ws_result r =
        sp_ws_read_header(SP_WS_CLIENT, c->in.data + c->at, c->in.len - c->at, ret, &why);
    assert_int_not_equal(r, SP_WS_BAD);
    if (r == SP_WS_MORE || c->in.len - c->at < ret->size + ret->len)
        return false;
    *ret_payload = c->in.data + c->at + ret->size;
    return true;
}

static inline bool has_frame(void)
{
    struct sp_ws_header h;
    const char *payload;

    return next_frame(fx.watched, &h, &payload);
}

static inline struct sp_ws_header expect_any_frame(struct client *c, const char **ret_payload)
{
    struct sp_ws_header h = {0};

    until(has_frame);
    if (!next_frame(c, &h, ret_payload))
        fail();
    c->at += h.size + h.len;
    return h;
}

static inline struct sp_ws_header expect_frame(struct client *c, uint8_t opcode,
                                               const char **ret_payload)
{
    const struct sp_ws_header h = expect_any_frame(c, ret_payload);

    assert_int_equal(h.opcode, opcode);
    return h;
}

static inline void expect_text(struct client *c, const char *text)
{
    const char *p = "";
    const struct sp_ws_header h = expect_frame(c, SP_WS_TEXT, &p);

    assert_true(h.is_final);
    assert_int_equal(h.len, strlen(text));
    assert_memory_equal(p, text, h.len);
}

static inline void assert_heard(const char *want)
{
    assert_int_equal(fx.heard.len, strlen(want));
    assert_memory_equal(fx.heard.data, want, fx.heard.len);
}

/* ---- set up and tear down ---- */

static inline void listen_at(const char *url)
{
    struct sp_listen_url u;
    struct sp_err e = {0};

    assert_int_equal(sp_listen_parse(url, &u, &e), 0);
    if (sp_listener_new(fx.loop, &u, &fx.o, &fx.listener, &e) < 0)
        fail_msg("%s", e.msg);
}

static inline int set_up(void **state)
{
    struct sp_err e;

    (void)state;
    fx = (struct fixture){0};
    for (size_t i = 0; i < CLIENTS; i++)
        fx.clients[i].fd = -1;
    fx.o = (struct sp_listen_options){.has_metrics = true,
                                      .max_connections = 100,
                                      .ping_every_ms = 30000,
                                      .silence_ms = 60000,
                                      .handshake_ms = 10000,
                                      .opened = fx_opened,
                                      .metrics = fx_metrics,
                                      .finished = fx_finished};
    return sp_loop_new(&fx.loop, &e);
}

static inline int set_up_ws(void **state)
{
    if (set_up(state) != 0)
        return -1;
    listen_at("ws://127.0.0.1:0");
    return 0;
}

static inline int tear_down(void **state)
{
    (void)state;
    sp_listener_free(fx.listener);
    sp_loop_free(fx.loop);
    for (size_t i = 0; i < CLIENTS; i++) {
        sp_buf_done(&fx.clients[i].in);
        sp_buf_done(&fx.clients[i].out);
        if (fx.clients[i].fd >= 0)
            (void)close(fx.clients[i].fd);
    }
    sp_buf_done(&fx.heard);
    return 0;
}

#endif
