/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proxy_fixture: a way between client and server that ends where a test wants it to.
 */
#ifndef SP_PROXY_FIXTURE_H
#define SP_PROXY_FIXTURE_H

#include "remote_fixture.h"

#define WAYS 16

struct way {
    struct sp_watch from_client, from_server;
    int client, server; /* -1: closed */
};

static struct proxy {
    int listener;
    struct sp_watch watch;
    struct way ways[WAYS];
    struct sockaddr_in target;
    char url[128];
    unsigned accepted, cuts;
    size_t up, down;         /* bytes so far, over all ways */
    size_t cut_up, cut_down; /* cut once so many have passed; 0: never */
    bool is_shut;            /* who comes is sent away at once */
    bool keeps_server;       /* a cut leaves the server's end open: it does not notice */
} px;

static inline void close_fd(struct sp_watch *w, int *fd)
{
    sp_loop_unwatch(fx.loop, w);
    if (*fd >= 0)
        (void)close(TAKE_FD(*fd));
}

static inline void cut_way(struct way *w, bool keeps_server)
{
    close_fd(&w->from_client, &w->client);
    if (!keeps_server)
        close_fd(&w->from_server, &w->server);
    else
        sp_loop_unwatch(fx.loop, &w->from_server);
}

static inline void cut(void)
{
    px.cuts++;
    for (int i = 0; i < WAYS; i++)
        cut_way(&px.ways[i], px.keeps_server);
}

static inline void send_all(int fd, const char *bytes, size_t n)
{
    while (n != 0) {
        const ssize_t k = send(fd, bytes, n, MSG_NOSIGNAL); /* blocking: both ends are quick */

        if (k <= 0)
            return;
        bytes += k;
        n -= (size_t)k;
    }
}

/* Up to the cut, if it falls into these bytes. */
static inline void carry(struct way *w, bool is_up)
{
    static char block[65536];
    size_t *const sum = is_up ? &px.up : &px.down;
    size_t *const limit = is_up ? &px.cut_up : &px.cut_down;
    const ssize_t n = recv(is_up ? w->client : w->server, block, sizeof block, MSG_DONTWAIT);

    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0) {
        cut_way(w, false);
        return;
    }
    const bool is_cut = *limit != 0 && *sum + (size_t)n >= *limit;
    const size_t part = is_cut ? *limit - *sum : (size_t)n;
    send_all(is_up ? w->server : w->client, block, part);
    *sum += part;
    if (is_cut) {
        *limit = 0;
        cut();
    }
}

static inline void px_from_client(struct sp_watch *watch, uint32_t events)
{
    (void)events;
    carry(SP_CONTAINER(watch, struct way, from_client), true);
}

static inline void px_from_server(struct sp_watch *watch, uint32_t events)
{
    (void)events;
    carry(SP_CONTAINER(watch, struct way, from_server), false);
}

static inline void px_accept(struct sp_watch *watch, uint32_t events)
{
    const int fd = accept4(px.listener, NULL, NULL, SOCK_CLOEXEC);
    struct way *w = px.ways;
    struct sp_err e;

    (void)watch;
    (void)events;
    assert_true(fd >= 0);
    if (px.is_shut) {
        (void)close(fd);
        return;
    }
    px.accepted++;
    while (w->client >= 0 || w->server >= 0) {
        w++;
        assert_true(w < px.ways + WAYS);
    }
    w->client = fd;
    w->server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(w->server, (struct sockaddr *)&px.target, sizeof px.target) < 0) {
        cut_way(w, false);
        return;
    }
    assert_int_equal(
        sp_loop_watch(fx.loop, &w->from_client, w->client, EPOLLIN, px_from_client, &e), 0);
    assert_int_equal(
        sp_loop_watch(fx.loop, &w->from_server, w->server, EPOLLIN, px_from_server, &e), 0);
}

static inline void aim_proxy(const char *url)
{
    unsigned port = 0;

    assert_int_equal(sscanf(url, "ws://127.0.0.1:%u", &port), 1);
    px.target = (struct sockaddr_in){.sin_family = AF_INET,
                                     .sin_port = htons((uint16_t)port),
                                     .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static inline void open_proxy(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof a;
    struct sp_err e;

    px = (struct proxy){0};
    for (int i = 0; i < WAYS; i++)
        px.ways[i].client = px.ways[i].server = -1;
    aim_proxy(fx.url);
    px.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(px.listener, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(px.listener, 16), 0);
    assert_int_equal(getsockname(px.listener, (struct sockaddr *)&a, &size), 0);
    const char *query = strstr(fx.url, "/?"); /* the token */
    (void)snprintf(px.url, sizeof px.url, "ws://127.0.0.1:%u%s", ntohs(a.sin_port),
                   query == NULL ? "" : query);
    assert_int_equal(sp_loop_watch(fx.loop, &px.watch, px.listener, EPOLLIN, px_accept, &e), 0);
}

static inline void close_proxy(void)
{
    px.keeps_server = false;
    cut();
    close_fd(&px.watch, &px.listener);
}

static inline int px_setup(void **state)
{
    (void)fx_setup_bare(state);
    start_server("ws://127.0.0.1:0");
    open_proxy();
    connect_backend(px.url);
    return 0;
}

static inline int px_teardown(void **state)
{
    sp_backend_free(TAKE_PTR(fx.backend));
    close_proxy();
    return fx_teardown(state);
}

#endif
