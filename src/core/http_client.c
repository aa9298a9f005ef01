/* SPDX-License-Identifier: Apache-2.0 */
#include "core/http_client.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/auto.h"
#include "base/log.h"
#include "core/http_client_priv.h"
#include "core/http_curl.h"
#include "os/fd.h"

#define SEALS    (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL)
#define GRACE_MS 5000 /* the process keeps the time; should it not, we do */

int sp_web_new(struct sp_loop *loop, const char *program, char *const *environ, struct sp_web **ret,
               struct sp_err *e)
{
    struct sp_web *h = calloc(1, sizeof *h);
    char *heard = malloc(sizeof(struct sp_web_message) + SP_WEB_PIECE);

    if (h == NULL || heard == NULL) {
        free(h);
        free(heard);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "prepare HTTP requests");
    }
    *h = (struct sp_web){.loop = loop,
                         .program = program,
                         .environ = environ,
                         .ping_ms = SP_WEB_PING_MS,
                         .heard = heard};
    *ret = h;
    return 0;
}

void sp_web_free(struct sp_web *h)
{
    if (h == NULL)
        return;
    sp_web_children_free(h);
    sp_loop_cancel(h->loop, &h->idle);
    sp_loop_undefer(h->loop, &h->more);
    free(h->heard);
    free(h);
}

bool sp_web_is_possible(const struct sp_web *h)
{
    return sp_curl_is_built_in() && (h == NULL || !h->is_unable);
}

/* ---- the lists ---- */

static void link_call(struct sp_web *h, struct sp_web_call *c, bool is_working)
{
    c->is_working = is_working;
    c->prev = is_working ? NULL : h->last_waiting;
    c->next = is_working ? h->working : NULL;
    if (c->prev != NULL)
        c->prev->next = c;
    if (c->next != NULL)
        c->next->prev = c;
    if (is_working) {
        h->working = c;
        h->working_count++;
        c->client->working++;
        return;
    }
    if (h->waiting == NULL)
        h->waiting = c;
    h->last_waiting = c;
    h->waiting_count++;
}

static void unlink_call(struct sp_web_call *c)
{
    struct sp_web *h = c->http;

    if (c->prev != NULL)
        c->prev->next = c->next;
    else
        *(c->is_working ? &h->working : &h->waiting) = c->next;
    if (c->next != NULL)
        c->next->prev = c->prev;
    else if (!c->is_working)
        h->last_waiting = c->prev;
    if (c->is_working) {
        h->working_count--;
        c->client->working--;
    } else {
        h->waiting_count--;
    }
}

static void on_idle(struct sp_timer *t)
{
    struct sp_web *h = SP_CONTAINER(t, struct sp_web, idle);

    if (h->child != NULL)
        sp_web_child_hang_up(h->child, false);
}

static void start_more(struct sp_deferred *d);

/* Nothing refers to it any more. */
static void forget(struct sp_web_call *c)
{
    struct sp_web *h = c->http;

    unlink_call(c);
    sp_loop_cancel(h->loop, &c->timer);
    sp_buf_done(&c->fields);
    if (c->memory >= 0)
        (void)close(TAKE_FD(c->memory));
    c->http = NULL;
    if (h->waiting != NULL)
        sp_loop_defer(h->loop, &h->more, start_more);
    else if (h->working == NULL && h->child != NULL &&
             !sp_loop_timer(h->loop, &h->idle, sp_loop_now(h->loop) + SP_WEB_IDLE_MS, on_idle))
        sp_web_child_hang_up(h->child, false);
}

static void finish(struct sp_web_call *c, const char *why)
{
    forget(c);
    c->ops->done(c, why);
}

static void tell_child(const struct sp_web_call *c, enum sp_web_op op, uint64_t value)
{
    const struct sp_web_message m = {.version = SP_WEB_VERSION,
                                     .op = (uint16_t)op,
                                     .number = c->order.head.number,
                                     .value = value};

    struct sp_web_child *child = c->http->child;

    /* Half of what is said would be worse than nothing: what is under way fails. */
    if (c->is_working && child != NULL && sp_web_child_say(child, &m, sizeof m, -1) < 0)
        sp_cell_child_kill(&child->process);
}

void sp_web_drop(struct sp_web_call *call)
{
    if (call->http == NULL)
        return;
    tell_child(call, SP_WEB_DROP, 0);
    forget(call);
}

void sp_web_on_lost(struct sp_web *h, const char *why)
{
    const uint64_t last = h->number; /* what begins from within is another process's */

    for (;;) {
        struct sp_web_call *c = h->working;

        while (c != NULL && c->order.head.number > last)
            c = c->next;
        if (c == NULL)
            return;
        finish(c, why);
    }
}

/* ---- asking ---- */

static void on_time(struct sp_timer *t)
{
    struct sp_web_call *c = SP_CONTAINER(t, struct sp_web_call, timer);

    tell_child(c, SP_WEB_DROP, 0);
    finish(c, c->has_head ? "error decoding response body: the time for it has passed"
                          : "the time for it has passed");
}

static int arm(struct sp_web_call *c, uint64_t more_ms, struct sp_err *e)
{
    if (c->due_ms == UINT64_MAX ||
        sp_loop_timer(c->http->loop, &c->timer, c->due_ms + more_ms, on_time))
        return 0;
    return sp_fail(e, SP_E_SYSTEM, ENOMEM, "keep the time of a request");
}

/* It leaves the list of those that wait, or was in none. */
static int start(struct sp_web_call *c, struct sp_err *e)
{
    struct sp_web *h = c->http;
    const uint64_t now = sp_loop_now(h->loop);

    if (h->child == NULL && sp_web_child_start(h, e) < 0)
        return -(int)e->code;
    if (!sp_web_child_watch_over(h->child))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "watch over the process for HTTP requests");
    if (arm(c, GRACE_MS, e) < 0)
        return -(int)e->code;
    c->order.head.number = ++h->number;
    if (c->due_ms != UINT64_MAX)
        c->order.timeout_ms = c->due_ms > now ? c->due_ms - now : 1;
    const int r = sp_web_child_say(h->child, &c->order, sizeof c->order, c->memory);
    if (r < 0)
        return sp_fail(e, SP_E_FAILED, -r, "hand the request to the process that does it");
    sp_loop_cancel(h->loop, &h->idle);
    unlink_call(c);
    link_call(h, c, true);
    (void)close(TAKE_FD(c->memory));
    return 0;
}

static bool has_room(const struct sp_web_call *c)
{
    return c->http->working_count < SP_WEB_WORKING_MAX && c->client->working < SP_WEB_CLIENT_MAX;
}

static struct sp_web_call *find_startable(const struct sp_web *h)
{
    struct sp_web_call *c = h->waiting;

    while (c != NULL && !has_room(c))
        c = c->next;
    return c;
}

static void start_more(struct sp_deferred *d)
{
    struct sp_web *h = SP_CONTAINER(d, struct sp_web, more);
    struct sp_web_call *c;

    while ((c = find_startable(h)) != NULL) {
        struct sp_err e = {0};
        char why[640];

        if (start(c, &e) < 0)
            finish(c, sp_error_text(&e, why, sizeof why));
    }
}

/* What it is made of, in memory that nobody can change any more. */
static int keep(const struct sp_web_ask *ask, struct sp_web_call *c, struct sp_err *e)
{
    const struct sp_str parts[] = {ask->method, ask->url, ask->fields, ask->body};
    auto_close int fd = sp_fd_lift(memfd_create("sallyport-http", MFD_CLOEXEC | MFD_ALLOW_SEALING));

    if (fd < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "keep an HTTP request");
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        for (size_t at = 0; at < parts[i].n;) {
            const ssize_t n = write(fd, parts[i].p + at, parts[i].n - at);

            if (n < 0)
                return sp_fail(e, SP_E_SYSTEM, errno, "keep an HTTP request");
            at += (size_t)n;
        }
    if (fcntl(fd, F_ADD_SEALS, SEALS) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "keep an HTTP request");
    c->memory = TAKE_FD(fd);
    return 0;
}

static int check_sizes(const struct sp_web_ask *ask, struct sp_err *e)
{
    if (ask->method.n > SP_WEB_MAX_METHOD)
        return sp_fail(e, SP_E_LIMIT, 0, "the method is longer than %u bytes", SP_WEB_MAX_METHOD);
    if (ask->url.n > SP_WEB_MAX_URL)
        return sp_fail(e, SP_E_LIMIT, 0, "the URL is longer than %u bytes", SP_WEB_MAX_URL);
    if (ask->fields.n > SP_WEB_MAX_FIELDS)
        return sp_fail(e, SP_E_LIMIT, 0, "the headers are larger than %u bytes", SP_WEB_MAX_FIELDS);
    if (ask->body.n > SP_WEB_MAX_SENT)
        return sp_fail(e, SP_E_LIMIT, 0, "the body is larger than %u bytes", SP_WEB_MAX_SENT);
    return 0;
}

int sp_web_ask(struct sp_web *h, struct sp_web_client *client, const struct sp_web_ask *ask,
               struct sp_web_call *call, struct sp_err *e)
{
    const uint64_t now = sp_loop_now(h->loop);
    int r = check_sizes(ask, e);

    if (r == 0 && ask->timeout_ms == 0)
        r = sp_fail(e, SP_E_FAILED, 0, "the time for it has passed");
    if (r == 0 && h->waiting_count >= SP_WEB_WAITING_MAX)
        r = sp_fail(e, SP_E_LIMIT, 0, "%d requests wait already; wait for some answers",
                    SP_WEB_WAITING_MAX);
    if (r < 0)
        return r;
    *call = (struct sp_web_call){
        .ops = call->ops,
        .http = h,
        .client = client,
        .due_ms = ask->timeout_ms < UINT64_MAX / 2 ? now + ask->timeout_ms : UINT64_MAX,
        .order = {.head = {.version = SP_WEB_VERSION,
                           .op = SP_WEB_ASK,
                           .len = sizeof call->order - sizeof call->order.head,
                           .value = ask->follows ? SP_WEB_FOLLOWS : 0},
                  .timeout_ms = SP_WEB_NO_TIMEOUT,
                  .method_len = (uint32_t)ask->method.n,
                  .url_len = (uint32_t)ask->url.n,
                  .fields_len = (uint32_t)ask->fields.n,
                  .body_len = (uint32_t)ask->body.n},
        .memory = -1,
        .fields = {.max = SP_WEB_MAX_HEAD},
        .window = SP_WEB_WINDOW};
    link_call(h, call, false);
    r = keep(ask, call, e);
    if (r == 0)
        r = has_room(call) ? start(call, e) : arm(call, 0, e);
    if (r < 0)
        forget(call);
    return r;
}

void sp_web_take(struct sp_web_call *call, size_t bytes)
{
    if (call->http == NULL)
        return;
    call->owed += (uint32_t)bytes;
    if (call->owed < SP_WEB_WINDOW / 4)
        return;
    tell_child(call, SP_WEB_TAKE, call->owed);
    call->window += call->owed;
    call->owed = 0;
}

/* ---- hearing ---- */

static void on_done(struct sp_web_call *c, const struct sp_web_message *m)
{
    char why[SP_WEB_MAX_WHY + 1];
    const struct sp_str text = sp_web_bytes(m);

    (void)snprintf(why, sizeof why, "%.*s", (int)text.n, text.p);
    finish(c, m->value == 0 ? NULL : why);
}

static bool on_head(struct sp_web_call *c, uint64_t status)
{
    const struct sp_str fields = {c->fields.data, c->fields.len};

    if (c->has_head || !sp_web_fields_are_whole(fields))
        return false;
    auto_buf struct sp_buf taken = c->fields;
    c->fields = (struct sp_buf){0};
    c->has_head = true;
    c->ops->head(c, (int)status, (struct sp_str){taken.data, taken.len});
    return true;
}

static bool on_body(struct sp_web_call *c, struct sp_str bytes)
{
    if (!c->has_head || bytes.n > c->window)
        return false;
    c->window -= (uint32_t)bytes.n;
    c->ops->body(c, bytes);
    return true;
}

static void on_unable(struct sp_web *h, struct sp_str why)
{
    char text[SP_WEB_MAX_WHY + 64];

    (void)snprintf(text, sizeof text, "libcurl cannot be used: %.*s", (int)why.n, why.p);
    sp_log(SP_LOG_WARN, "no HTTP requests: %s", text);
    h->is_unable = true;
    sp_web_child_hang_up(h->child, true);
    sp_web_on_lost(h, text);
}

bool sp_web_on_message(struct sp_web *h, const struct sp_web_message *m)
{
    struct sp_web_call *c = h->working;

    if (m->op == SP_WEB_UNABLE) {
        on_unable(h, sp_web_bytes(m));
        return true;
    }
    if (m->op == SP_WEB_PONG)
        return true;
    while (c != NULL && c->order.head.number != m->number)
        c = c->next;
    if (c == NULL)
        return m->number <= h->number; /* nobody waits for it any more */
    switch (m->op) {
    case SP_WEB_FIELDS:
        return !c->has_head && sp_buf_add_str(&c->fields, sp_web_bytes(m));
    case SP_WEB_HEAD:
        return on_head(c, m->value);
    case SP_WEB_BODY:
        return on_body(c, sp_web_bytes(m));
    default:
        if (m->value == 0 && !c->has_head)
            return false;
        h->is_unable = false;
        on_done(c, m);
        return true;
    }
}
