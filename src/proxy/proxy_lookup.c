/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proxy_lookup: the resolver's answers, kept for a while. Names that are looked up already are not
 * asked twice; at most as many as the resolver takes are under way, the others wait here.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "proxy/proxy_priv.h"

#define KEPT_MAX 512U
#define SENT_MAX (SP_RESOLVER_WORKING + SP_RESOLVER_WAITING)
#define TRY_MS   2000
#define ALL_MS   5000
#define FOUND_MS 30000
#define NONE_MS  5000
#define ANSWERS  64 /* in a turn */

struct sp_proxy_lookup {
    struct sp_list link, age, queue;
    struct sp_list waiting; /* struct sp_proxy_lookup_wait */
    struct sp_proxy *p;
    struct sp_hash key;
    char host[SP_PROXY_HOST_MAX + 1];
    uint16_t port;
    bool is_sent, is_known;
    bool is_pinned; /* its answer is being used */
    uint64_t number, began_us, give_up_ms, expires_ms;
    struct sp_timer timer;
    struct sp_resolver_answer answer;
};

void sp_proxy_lookup_init(struct sp_proxy *p)
{
    p->resolver = -1;
    sp_list_init(&p->lookups_by_age);
    sp_list_init(&p->lookups_queued);
    for (uint32_t i = 0; i < SP_PROXY_BUCKETS; i++)
        sp_list_init(&p->lookups[i]);
}

/* The port is 0 but for the table of tests, so that DNS and dials share answers. */
static struct sp_hash key_of(const char *host, uint16_t port)
{
    const struct sp_str name = sp_str_of(host);
    char text[SP_PROXY_HOST_MAX + 3];

    memcpy(text, &port, sizeof port);
    memcpy(text + sizeof port, name.p, name.n);
    return sp_hash((struct sp_str){text, sizeof port + name.n});
}

static void forget(struct sp_proxy_lookup *l)
{
    sp_loop_cancel(l->p->loop, &l->timer);
    sp_list_remove(&l->link);
    sp_list_remove(&l->age);
    sp_list_remove(&l->queue);
    l->p->lookup_count--;
    free(l);
}

static struct sp_proxy_lookup *find(struct sp_proxy *p, struct sp_hash key)
{
    sp_list_each(i, &p->lookups[key.a % SP_PROXY_BUCKETS]) {
        struct sp_proxy_lookup *l = SP_CONTAINER(i, struct sp_proxy_lookup, link);

        if (l->key.a == key.a && l->key.b == key.b)
            return l;
    }
    return NULL;
}

static void send_queued(struct sp_proxy *p);

/* Answers those who wait; they may begin other lookups. A status that is not known is not kept. */
static void finish(struct sp_proxy_lookup *l)
{
    struct sp_proxy *p = l->p;
    const uint64_t keep_ms = l->answer.status == SP_RESOLVER_FOUND ? FOUND_MS : NONE_MS;
    struct sp_list *first;

    sp_loop_cancel(p->loop, &l->timer);
    if (l->is_sent)
        p->lookups_sent--;
    l->is_sent = false;
    l->is_known = true;
    l->expires_ms = sp_loop_now(p->loop) + keep_ms;
    sp_list_remove(&l->queue);
    p->counts.resolves++;
    p->counts.resolve_us += sp_clock_us() - l->began_us;
    sp_proxy_count_changed(p);
    l->is_pinned = true;
    while ((first = sp_list_take_first(&l->waiting)) != NULL) {
        struct sp_proxy_lookup_wait *w = SP_CONTAINER(first, struct sp_proxy_lookup_wait, link);

        w->fn(w, &l->answer);
    }
    l->is_pinned = false;
    if (l->answer.status == SP_RESOLVER_FAILED)
        forget(l);
    send_queued(p);
}

static void fail(struct sp_proxy_lookup *l)
{
    l->answer = (struct sp_resolver_answer){.status = SP_RESOLVER_FAILED};
    finish(l);
}

static bool send_ask(struct sp_proxy_lookup *l)
{
    struct sp_resolver_ask ask = {.number = ++l->p->last_lookup, .port = l->port};

    memcpy(ask.host, l->host, strlen(l->host) + 1);
    l->number = ask.number;
    return sp_proxy_send(l->p->resolver, &ask, sizeof ask) == (ssize_t)sizeof ask;
}

/* A try is over: ask again, until all the time is over. */
static void on_time(struct sp_timer *t)
{
    struct sp_proxy_lookup *l = SP_CONTAINER(t, struct sp_proxy_lookup, timer);
    const uint64_t now = sp_loop_now(l->p->loop);

    if (now >= l->give_up_ms || (l->is_sent && !send_ask(l))) {
        fail(l);
        return;
    }
    const uint64_t next = now + TRY_MS < l->give_up_ms ? now + TRY_MS : l->give_up_ms;
    if (!sp_loop_timer(l->p->loop, &l->timer, next, on_time))
        fail(l);
    else
        send_queued(l->p);
}

static void send_queued(struct sp_proxy *p)
{
    while (p->resolver >= 0 && p->lookups_sent < SENT_MAX) {
        struct sp_list *first = sp_list_take_first(&p->lookups_queued);

        if (first == NULL)
            return;
        struct sp_proxy_lookup *l = SP_CONTAINER(first, struct sp_proxy_lookup, queue);
        if (!send_ask(l)) { /* its socket is full or gone: the timer tries again */
            sp_list_prepend(&p->lookups_queued, &l->queue);
            return;
        }
        l->is_sent = true;
        p->lookups_sent++;
    }
}

static struct sp_proxy_lookup *begin(struct sp_proxy *p, struct sp_hash key, const char *host,
                                     uint16_t port)
{
    sp_list_each_safe(i, &p->lookups_by_age) {
        struct sp_proxy_lookup *old = SP_CONTAINER(i, struct sp_proxy_lookup, age);

        if (p->lookup_count < KEPT_MAX)
            break;
        if (old->is_known && !old->is_pinned)
            forget(old);
    }
    struct sp_proxy_lookup *l =
        p->lookup_count >= KEPT_MAX || p->resolver < 0 ? NULL : calloc(1, sizeof *l);
    if (l == NULL)
        return NULL;
    *l = (struct sp_proxy_lookup){.p = p, .key = key, .port = port, .began_us = sp_clock_us()};
    memcpy(l->host, host, strlen(host) + 1);
    sp_list_init(&l->waiting);
    sp_list_append(&p->lookups[key.a % SP_PROXY_BUCKETS], &l->link);
    sp_list_append(&p->lookups_by_age, &l->age);
    sp_list_append(&p->lookups_queued, &l->queue);
    p->lookup_count++;
    const uint64_t now = sp_loop_now(p->loop);
    l->give_up_ms = now + ALL_MS;
    if (sp_loop_timer(p->loop, &l->timer, now + TRY_MS, on_time))
        return l;
    forget(l);
    return NULL;
}

void sp_proxy_lookup(struct sp_proxy *p, const char *host, uint16_t port,
                     struct sp_proxy_lookup_wait *w)
{
    static const struct sp_resolver_answer failed = {.status = SP_RESOLVER_FAILED};
    const struct sp_hash key = key_of(host, port);
    struct sp_proxy_lookup *l = find(p, key);

    if (l != NULL && l->is_known && l->expires_ms > sp_loop_now(p->loop)) {
        const struct sp_resolver_answer answer = l->answer;

        w->fn(w, &answer);
        return;
    }
    if (l != NULL && l->is_known) {
        forget(l);
        l = NULL;
    }
    if (l == NULL)
        l = begin(p, key, host, port);
    if (l == NULL) {
        w->fn(w, &failed);
        return;
    }
    sp_list_append(&l->waiting, &w->link);
    send_queued(p);
}

void sp_proxy_lookup_cancel(struct sp_proxy_lookup_wait *w)
{
    sp_list_remove(&w->link);
}

/* ---- the resolver's socket ---- */

static void take_answer(struct sp_proxy *p, const struct sp_resolver_answer *a)
{
    sp_list_each_safe(i, &p->lookups_by_age) {
        struct sp_proxy_lookup *l = SP_CONTAINER(i, struct sp_proxy_lookup, age);

        if (!l->is_sent || l->number != a->number)
            continue;
        l->answer = *a;
        if (a->status == SP_RESOLVER_FOUND && a->count == 0)
            l->answer.status = SP_RESOLVER_NONE;
        finish(l);
        return;
    }
}

static void on_resolver(struct sp_watch *w, uint32_t events)
{
    struct sp_proxy *p = SP_CONTAINER(w, struct sp_proxy, on_resolver);

    (void)events;
    for (int i = 0; i < ANSWERS; i++) {
        struct sp_resolver_answer a;
        const ssize_t n = read(p->resolver, &a, sizeof a);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n != (ssize_t)sizeof a || a.status >= SP_RESOLVER_STATUS_MAX ||
            a.count > SP_RESOLVER_ADDRESSES) {
            sp_proxy_lookup_socket(p, -1);
            return;
        }
        take_answer(p, &a);
    }
}

static void fail_all(struct sp_proxy *p)
{
    for (bool has_more = true; has_more;) {
        has_more = false;
        sp_list_each(i, &p->lookups_by_age) {
            struct sp_proxy_lookup *l = SP_CONTAINER(i, struct sp_proxy_lookup, age);

            if (!l->is_known) {
                fail(l);
                has_more = true;
                break;
            }
        }
    }
}

/* The names that the old resolver was asked for fail with it; clients try again. */
void sp_proxy_lookup_socket(struct sp_proxy *p, int fd)
{
    sp_loop_unwatch(p->loop, &p->on_resolver);
    if (p->resolver >= 0)
        (void)close(p->resolver);
    p->resolver = -1;
    fail_all(p);
    const int flags = fd < 0 ? 0 : fcntl(fd, F_GETFL);
    if (fd >= 0 && (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
                    sp_loop_watch(p->loop, &p->on_resolver, fd, EPOLLIN, on_resolver, NULL) < 0))
        (void)close(fd);
    else
        p->resolver = fd;
}
