/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http: requests to web servers for the front, which never waits for one: a process of its own
 * speaks HTTP (core/http_worker.h), started with the first request, ended after SP_WEB_IDLE_MS
 * without one. Should it die, its requests fail and the next one starts another. The same if it
 * hangs: with requests under way it is asked for a sign every SP_WEB_PING_MS, and killed if
 * SP_WEB_PINGS of them were in vain. It answers between two things it does, the longest of which is
 * to look up a name where libcurl has no thread for that: 30 s (three servers, 5 s each, twice) if
 * nobody answers.
 *
 * At most SP_WEB_WORKING_MAX requests are under way, SP_WEB_CLIENT_MAX for one client; what is
 * beyond waits, at most SP_WEB_WAITING_MAX, then sp_web_ask refuses (SP_E_LIMIT). Of each body
 * SP_WEB_WINDOW bytes come at most before sp_web_take is called for them.
 */
#ifndef SP_CORE_HTTP_CLIENT_H
#define SP_CORE_HTTP_CLIENT_H

#include "base/buf.h"
#include "base/str.h"
#include "core/http_message.h"
#include "os/loop.h"

#define SP_WEB_WORKING_MAX 256
#define SP_WEB_CLIENT_MAX  64
#define SP_WEB_WAITING_MAX 1024
#define SP_WEB_IDLE_MS     60000
#define SP_WEB_PING_MS     15000
#define SP_WEB_PINGS       4

struct sp_web;

struct sp_web_client { /* embedded in a connection, zero before use */
    uint32_t working;
};

struct sp_web_ask {
    struct sp_str method, url; /* a token; absolute, http or https */
    struct sp_str fields;      /* message.h; names in lower case */
    struct sp_str body;        /* n 0: none */
    uint64_t timeout_ms;       /* SP_WEB_NO_TIMEOUT: none */
    bool follows;              /* redirects */
};

struct sp_web_call;

/* It may be dropped in any of these. What it points to is borrowed for the call. */
struct sp_web_ops {
    void (*head)(struct sp_web_call *c, int status, struct sp_str fields);
    void (*body)(struct sp_web_call *c, struct sp_str bytes);
    /* The last that is heard of it. why: NULL if the response is whole. */
    void (*done)(struct sp_web_call *c, const char *why);
};

/* One request under way, embedded in whoever waits for it. */
struct sp_web_call {
    const struct sp_web_ops *ops;

    /* its own */
    struct sp_web *http; /* NULL: not asked, done or dropped */
    struct sp_web_client *client;
    struct sp_web_call *prev, *next;
    bool is_working, has_head;
    uint64_t due_ms; /* UINT64_MAX: never */
    struct sp_timer timer;
    struct sp_web_order order;
    int memory; /* what it is made of, until it is sent; -1 */
    struct sp_buf fields;
    uint32_t window, owed; /* what may come; what was taken and not yet told */
};

/* environ: ours; what matters of it, such as proxies, is given to the process. */
int sp_web_new(struct sp_loop *loop, const char *program, char *const *environ, struct sp_web **ret,
               struct sp_err *e);
void sp_web_free(struct sp_web *h); /* nobody waits any more; NULL is fine */

/* Asks; callbacks come later, never from within. Everything in the ask is borrowed for the call. */
int sp_web_ask(struct sp_web *h, struct sp_web_client *client, const struct sp_web_ask *ask,
               struct sp_web_call *call, struct sp_err *e);
void sp_web_take(struct sp_web_call *call, size_t bytes);
/* Nobody wants to know: the request is broken off. Not asked, or done: fine. */
void sp_web_drop(struct sp_web_call *call);

/* Whether it can work at all: it was built in, and a process that was tried found its library. */
bool sp_web_is_possible(const struct sp_web *h); /* NULL: none was tried */

#endif
