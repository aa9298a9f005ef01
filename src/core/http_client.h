/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http_client: requests to web servers. The front never waits for one: a worker process speaks HTTP
 * (core/http_worker.h). It starts with the first request and ends after SP_WEB_IDLE_MS without
 * one. If it dies, its requests fail, and the next request starts another. While requests are under
 * way it gets a ping every SP_WEB_PING_MS, and is killed if SP_WEB_PINGS of them are unanswered.
 * The worker answers between two steps; the longest step is a name lookup where libcurl has no
 * thread for it: 30 s (three servers, 5 s each, twice).
 *
 * At most SP_WEB_WORKING_MAX requests are under way, SP_WEB_CLIENT_MAX for one client. Further ones
 * wait, at most SP_WEB_WAITING_MAX, then sp_web_ask refuses (SP_E_LIMIT). At most SP_WEB_WINDOW
 * bytes of each body arrive before sp_web_take is called for them.
 */
#ifndef SP_CORE_HTTP_CLIENT_H
#define SP_CORE_HTTP_CLIENT_H

#include "base/buf.h"
#include "base/list.h"
#include "base/str.h"
#include "core/cell_child.h"
#include "core/http_message.h"
#include "core/outbox.h"
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
    struct sp_str fields;      /* as in http_message.h; names in lower case */
    struct sp_str body;        /* n 0: none */
    uint64_t timeout_ms;       /* SP_WEB_NO_TIMEOUT: none */
    bool follows;              /* redirects */
};

struct sp_web_call;

/* The call may be dropped in each of these. Strings are borrowed for the callback. */
struct sp_web_ops {
    void (*head)(struct sp_web_call *c, int status, struct sp_str fields);
    void (*body)(struct sp_web_call *c, struct sp_str bytes);
    /* The last callback. why: NULL if the response is complete. */
    void (*done)(struct sp_web_call *c, const char *why);
};

/* One pending request, embedded in its requester. */
struct sp_web_call {
    const struct sp_web_ops *ops;

    /* private */
    struct sp_web *http; /* NULL: not asked, done or dropped */
    struct sp_web_client *client;
    struct sp_list link;
    bool is_working, has_head;
    uint64_t due_ms; /* UINT64_MAX: never */
    struct sp_timer timer;
    struct sp_web_order order;
    int memory; /* the sealed request until it is sent; -1: none */
    struct sp_buf fields;
    uint32_t window, owed; /* bytes that may arrive; bytes taken but not yet reported */
};

/* ---- the state of the client, for its unit test ---- */

/* A worker process. */
struct sp_web_child {
    struct sp_web *http;
    struct sp_list link;
    struct sp_cell_child process;
    int socket; /* -1: the process is ending */
    struct sp_watch watch;
    struct sp_deferred end;
    struct sp_outbox outbox;
    struct sp_timer ping;
    uint32_t unanswered; /* pings since its last message */
};

struct sp_web {
    struct sp_loop *loop;
    const char *program;
    char *const *environ;
    struct sp_web_child *child; /* takes requests; NULL: none */
    struct sp_list children;    /* includes ending processes */
    struct sp_timer idle;
    struct sp_list working, waiting; /* struct sp_web_call */
    uint32_t working_count, waiting_count;
    uint64_t number;
    bool is_unable; /* the last worker could not load libcurl */
    uint32_t ping_ms;
    struct sp_deferred more;
    char *heard; /* room for one message */
};

/* ---- what callers use ---- */

/* environ: ours; the worker gets the variables that libcurl reads, such as proxies. */
int sp_web_new(struct sp_loop *loop, const char *program, char *const *environ, struct sp_web **ret,
               struct sp_err *e);
void sp_web_free(struct sp_web *h); /* no call may be pending; NULL is fine */

/* Callbacks come later, never from within. The ask is borrowed for this call. */
int sp_web_ask(struct sp_web *h, struct sp_web_client *client, const struct sp_web_ask *ask,
               struct sp_web_call *call, struct sp_err *e);
void sp_web_take(struct sp_web_call *call, size_t bytes);
/* Cancels the request; fine if it was not asked or is done. */
void sp_web_drop(struct sp_web_call *call);

/* Whether libcurl is built in, and the last worker could load it. */
bool sp_web_is_possible(const struct sp_web *h); /* NULL: none was tried */

#endif
