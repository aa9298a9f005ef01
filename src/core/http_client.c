/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http_client: the front's side of HTTP requests: the worker process (struct sp_web_child), and the
 * calls that wait for it or that it works on. Messages of the worker are checked as hostile: it
 * parses what web servers send.
 */
#include "core/http_client.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/auto.h"
#include "base/log.h"
#include "cell/wire.h"

#define GRACE_MS        5000 /* the worker enforces timeouts; the front does so this much later */
#define MESSAGES_A_TURN 32
#define HEARD_BYTES     (sizeof(struct sp_web_message) + SP_WEB_PIECE)
#define VARIABLES_MAX   24

/* Variables that libcurl and the sanitizers read; the worker gets no others. */
static const char *const variables[] = {
    "http_proxy", "https_proxy", "HTTPS_PROXY",   "all_proxy",    "ALL_PROXY",    "no_proxy",
    "NO_PROXY",   "HTTP_PROXY",  "SSL_CERT_FILE", "SSL_CERT_DIR", "RES_OPTIONS",  "LOCALDOMAIN",
    "TZ",         "LANG",        "LC_ALL",        "ASAN_OPTIONS", "LSAN_OPTIONS", "UBSAN_OPTIONS",
};

static bool start_pings(struct sp_web_child *c);
static void lose_calls(struct sp_web *h, const char *why);
static bool on_message(struct sp_web *h, const struct sp_web_message *m);

/* ---- the end of a worker process ---- */

static void free_child(struct sp_deferred *d)
{
    struct sp_web_child *c = SP_CONTAINER(d, struct sp_web_child, end);

    sp_list_remove(&c->link);
    free(c);
}

static void on_end(struct sp_watch *w, uint32_t events)
{
    struct sp_cell_child *p = SP_CONTAINER(w, struct sp_cell_child, on_end);
    struct sp_web_child *c = SP_CONTAINER(p, struct sp_web_child, process);

    (void)events;
    sp_loop_unwatch(c->http->loop, &c->process.on_end);
    (void)sp_cell_child_reap(&c->process);
    if (c->socket < 0)
        sp_loop_defer(c->http->loop, &c->end, free_child);
}

static void hang_up(struct sp_web_child *c, bool is_killed)
{
    struct sp_web *h = c->http;

    if (c->socket < 0)
        return;
    if (h->child == c)
        h->child = NULL;
    sp_loop_unwatch(h->loop, &c->watch);
    sp_loop_cancel(h->loop, &c->ping);
    sp_outbox_free(&c->outbox);
    (void)shutdown(c->socket, SHUT_RDWR);
    (void)close(TAKE_FD(c->socket));
    if (is_killed)
        sp_cell_child_kill(&c->process);
    if (c->process.pidfd < 0)
        sp_loop_defer(h->loop, &c->end, free_child);
}

/* ---- messages to it ---- */

static void watch_for(struct sp_web_child *c)
{
    sp_loop_rewatch(c->http->loop, &c->watch,
                    EPOLLIN | (c->outbox.first != NULL ? (uint32_t)EPOLLOUT : 0U));
}

static int send_to(struct sp_web_child *c, const void *message, size_t n, int fd)
{
    if (c->outbox.first == NULL) {
        const int r = sp_wire_send(c->socket, false, message, n, NULL, 0, &fd, fd >= 0);

        if (r == 0 || r == -EPIPE || r == -ECONNRESET)
            return 0;
        if (r != -EAGAIN && !sp_wire_is_short(r))
            return r;
    }
    if (!sp_outbox_add(&c->outbox, message, n, NULL, 0, &fd, fd >= 0))
        return -ENOMEM;
    watch_for(c);
    return 0;
}

/* ---- pings ---- */

static void lose(struct sp_web_child *c, const char *why)
{
    struct sp_web *h = c->http;

    hang_up(c, true);
    lose_calls(h, why);
}

static void on_ping(struct sp_timer *t)
{
    struct sp_web_child *c = SP_CONTAINER(t, struct sp_web_child, ping);
    const struct sp_web_message m = {.version = SP_WEB_VERSION, .op = SP_WEB_PING};

    if (c->http->working_count == 0)
        return; /* the next call starts the pings again */
    /* Pings are counted, not timed: if the front was stopped, answers may be unread. */
    if (c->unanswered >= SP_WEB_PINGS || send_to(c, &m, sizeof m, -1) < 0) {
        sp_log(SP_LOG_WARN, "the process for HTTP requests does not answer: it is ended");
        lose(c, "the process that did this request does not answer and was ended; try it again");
        return;
    }
    c->unanswered++;
    if (!start_pings(c))
        lose(c, "no memory to watch over the process that did this request");
}

static bool start_pings(struct sp_web_child *c)
{
    struct sp_loop *loop = c->http->loop;

    return c->ping.slot != 0 ||
           sp_loop_timer(loop, &c->ping, sp_loop_now(loop) + c->http->ping_ms, on_ping);
}

/* ---- messages from it ---- */

static void on_socket(struct sp_watch *w, uint32_t events)
{
    struct sp_web_child *c = SP_CONTAINER(w, struct sp_web_child, watch);
    struct sp_web *h = c->http;
    int r = 1;

    (void)events;
    if (c->outbox.first != NULL) {
        (void)sp_outbox_send(&c->outbox, c->socket);
        watch_for(c);
    }
    if (c->outbox.err != 0) {
        lose(c, "requests could not be handed to the process that does them; try it again");
        return;
    }
    for (int i = 0; i < MESSAGES_A_TURN && r > 0 && c->socket >= 0; i++) {
        struct iovec iov = {.iov_base = h->heard, .iov_len = HEARD_BYTES};
        struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1}; /* no room for descriptors */
        ssize_t n;

        do
            n = recvmsg(c->socket, &msg, MSG_DONTWAIT);
        while (n < 0 && errno == EINTR);
        if (n < 0 && errno == EAGAIN)
            return;
        const bool is_sound = n > 0 && (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0 &&
                              sp_web_check(h->heard, (size_t)n, true, false);
        if (is_sound)
            c->unanswered = 0;
        if (!is_sound || !on_message(h, (const struct sp_web_message *)(void *)h->heard))
            r = -1;
    }
    if (r < 0 && c->socket >= 0)
        lose(c, "the process that did this request has ended; try it again");
}

/* ---- a new worker process ---- */

static char *find_variable(char *const *environ, const char *name)
{
    const size_t n = strlen(name);

    for (size_t i = 0; environ != NULL && environ[i] != NULL; i++)
        if (strncmp(environ[i], name, n) == 0 && environ[i][n] == '=')
            return environ[i];
    return NULL;
}

static int start_child(struct sp_web *h, struct sp_err *e)
{
    struct sp_web_child *c = calloc(1, sizeof *c);
    char *envp[VARIABLES_MAX];
    char renamed[4096];

    if (c == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a process for HTTP requests");
    *c = (struct sp_web_child){.http = h, .process = {.pidfd = -1}, .socket = -1};
    sp_list_prepend(&h->children, &c->link);
    size_t n = 0;
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        char *v = find_variable(h->environ, variables[i]);

        if (v == NULL)
            continue;
        /* HTTP_PROXY is renamed: libcurl reads http_proxy in lower case only. */
        if (strcmp(variables[i], "HTTP_PROXY") == 0) {
            if (find_variable(h->environ, "http_proxy") != NULL || strlen(v) >= sizeof renamed)
                continue;
            (void)snprintf(renamed, sizeof renamed, "http_proxy%s", v + strlen("HTTP_PROXY"));
            v = renamed;
        }
        envp[n++] = v;
    }
    envp[n] = NULL;
    int r = sp_cell_child_spawn(h->program, "http", envp, "a process for HTTP requests", &c->socket,
                                &c->process, e);
    if (r == 0)
        r = sp_loop_watch(h->loop, &c->watch, c->socket, EPOLLIN, on_socket, e);
    if (r == 0)
        r = sp_loop_watch(h->loop, &c->process.on_end, c->process.pidfd, EPOLLIN, on_end, e);
    if (r == 0) {
        h->child = c;
        return 0;
    }
    sp_cell_child_kill(&c->process);
    (void)sp_cell_child_reap(&c->process);
    sp_loop_unwatch(h->loop, &c->watch);
    if (c->socket >= 0)
        (void)close(c->socket);
    free_child(&c->end);
    return r;
}

/* ---- calls ---- */

static struct sp_web_call *call_of(struct sp_list *link)
{
    return SP_CONTAINER(link, struct sp_web_call, link);
}

static void link_call(struct sp_web *h, struct sp_web_call *c, bool is_working)
{
    c->is_working = is_working;
    if (is_working) {
        sp_list_prepend(&h->working, &c->link);
        h->working_count++;
        c->client->working++;
    } else {
        sp_list_append(&h->waiting, &c->link);
        h->waiting_count++;
    }
}

static void unlink_call(struct sp_web_call *c)
{
    sp_list_remove(&c->link);
    if (c->is_working) {
        c->http->working_count--;
        c->client->working--;
    } else {
        c->http->waiting_count--;
    }
}

static void on_idle(struct sp_timer *t)
{
    struct sp_web *h = SP_CONTAINER(t, struct sp_web, idle);

    if (h->child != NULL)
        hang_up(h->child, false);
}

static void start_more(struct sp_deferred *d);

static void forget_call(struct sp_web_call *c)
{
    struct sp_web *h = c->http;

    unlink_call(c);
    sp_loop_cancel(h->loop, &c->timer);
    sp_buf_done(&c->fields);
    if (c->memory >= 0)
        (void)close(TAKE_FD(c->memory));
    c->http = NULL;
    if (!sp_list_is_empty(&h->waiting))
        sp_loop_defer(h->loop, &h->more, start_more);
    else if (h->working_count == 0 && h->child != NULL &&
             !sp_loop_timer(h->loop, &h->idle, sp_loop_now(h->loop) + SP_WEB_IDLE_MS, on_idle))
        hang_up(h->child, false);
}

static void finish_call(struct sp_web_call *c, const char *why)
{
    forget_call(c);
    c->ops->done(c, why);
}

static void tell_child(const struct sp_web_call *c, enum sp_web_op op, uint64_t value)
{
    const struct sp_web_message m = {.version = SP_WEB_VERSION,
                                     .op = (uint16_t)op,
                                     .number = c->order.head.number,
                                     .value = value};

    struct sp_web_child *child = c->http->child;

    /* A lost TAKE or DROP would leave the worker in a wrong state: end it, its calls fail. */
    if (c->is_working && child != NULL && send_to(child, &m, sizeof m, -1) < 0)
        sp_cell_child_kill(&child->process);
}

void sp_web_drop(struct sp_web_call *call)
{
    if (call->http == NULL)
        return;
    tell_child(call, SP_WEB_DROP, 0);
    forget_call(call);
}

static void lose_calls(struct sp_web *h, const char *why)
{
    const uint64_t last = h->number; /* calls begun in a callback belong to the next process */

    for (;;) {
        struct sp_web_call *c = NULL;

        sp_list_each(i, &h->working)
            if (call_of(i)->order.head.number <= last) {
                c = call_of(i);
                break;
            }
        if (c == NULL)
            return;
        finish_call(c, why);
    }
}

/* ---- starting calls ---- */

static void on_time(struct sp_timer *t)
{
    struct sp_web_call *c = SP_CONTAINER(t, struct sp_web_call, timer);

    tell_child(c, SP_WEB_DROP, 0);
    finish_call(c, c->has_head ? "error decoding response body: the time for it has passed"
                               : "the time for it has passed");
}

static int arm_timer(struct sp_web_call *c, uint64_t more_ms, struct sp_err *e)
{
    if (c->due_ms == UINT64_MAX ||
        sp_loop_timer(c->http->loop, &c->timer, c->due_ms + more_ms, on_time))
        return 0;
    return sp_fail(e, SP_E_SYSTEM, ENOMEM, "keep the time of a request");
}

/* Sends the order; the call moves from the waiting list to the working one. */
static int start_call(struct sp_web_call *c, struct sp_err *e)
{
    struct sp_web *h = c->http;
    const uint64_t now = sp_loop_now(h->loop);

    if (h->child == NULL && start_child(h, e) < 0)
        return -(int)e->code;
    assert(h->child != NULL);
    if (!start_pings(h->child))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "watch over the process for HTTP requests");
    if (arm_timer(c, GRACE_MS, e) < 0)
        return -(int)e->code;
    c->order.head.number = ++h->number;
    if (c->due_ms != UINT64_MAX)
        c->order.timeout_ms = c->due_ms > now ? c->due_ms - now : 1;
    const int r = send_to(h->child, &c->order, sizeof c->order, c->memory);
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

static void start_more(struct sp_deferred *d)
{
    struct sp_web *h = SP_CONTAINER(d, struct sp_web, more);
    struct sp_list *i = h->waiting.next;

    while (i != &h->waiting) {
        struct sp_web_call *c = call_of(i);
        struct sp_err e = {0};
        char why[640];

        i = i->next;
        if (!has_room(c))
            continue;
        if (start_call(c, &e) < 0)
            finish_call(c, sp_error_text(&e, why, sizeof why));
        i = h->waiting.next; /* a callback may have changed the list */
    }
}

int sp_web_ask(struct sp_web *h, struct sp_web_client *client, const struct sp_web_ask *ask,
               struct sp_web_call *call, struct sp_err *e)
{
    const struct sp_str parts[] = {ask->method, ask->url, ask->fields, ask->body};
    static const struct {
        uint32_t most;
        const char *what;
    } limits[] = {{SP_WEB_MAX_METHOD, "the method is longer"},
                  {SP_WEB_MAX_URL, "the URL is longer"},
                  {SP_WEB_MAX_FIELDS, "the headers are larger"},
                  {SP_WEB_MAX_SENT, "the body is larger"}};
    const uint64_t now = sp_loop_now(h->loop);
    int r = 0;

    for (size_t i = 0; r == 0 && i < sizeof parts / sizeof parts[0]; i++)
        if (parts[i].n > limits[i].most)
            r = sp_fail(e, SP_E_LIMIT, 0, "%s than %u bytes", limits[i].what, limits[i].most);
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
        .fields = {.max = SP_WEB_MAX_HEAD},
        .window = SP_WEB_WINDOW};
    link_call(h, call, false);
    call->memory = sp_seal("sallyport-http", parts, sizeof parts / sizeof parts[0]);
    if (call->memory < 0)
        r = sp_fail(e, SP_E_SYSTEM, errno, "keep an HTTP request");
    else
        r = has_room(call) ? start_call(call, e) : arm_timer(call, 0, e);
    if (r < 0)
        forget_call(call);
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

/* ---- answers ---- */

/* false: the worker has broken the rules. */
static bool on_message(struct sp_web *h, const struct sp_web_message *m)
{
    const struct sp_str bytes = {(const char *)(m + 1), m->len};
    char why[SP_WEB_MAX_WHY + 64];
    struct sp_web_call *c = NULL;

    if (m->op == SP_WEB_UNABLE) {
        (void)snprintf(why, sizeof why, "libcurl cannot be used: %.*s", (int)bytes.n, bytes.p);
        sp_log(SP_LOG_WARN, "no HTTP requests: %s", why);
        h->is_unable = true;
        hang_up(h->child, true);
        lose_calls(h, why);
        return true;
    }
    if (m->op == SP_WEB_PONG)
        return true;
    sp_list_each(i, &h->working)
        if (call_of(i)->order.head.number == m->number) {
            c = call_of(i);
            break;
        }
    if (c == NULL)
        return m->number <= h->number; /* a call that was dropped */
    switch (m->op) {
    case SP_WEB_FIELDS:
        return !c->has_head && sp_buf_add_str(&c->fields, bytes);
    case SP_WEB_HEAD: {
        const struct sp_str fields = sp_buf_str(&c->fields);

        if (c->has_head || !sp_web_fields_are_whole(fields))
            return false;
        auto_buf struct sp_buf taken = c->fields; /* ops.head may free the call */
        c->fields = (struct sp_buf){0};
        c->has_head = true;
        c->ops->head(c, (int)m->value, fields);
        return true;
    }
    case SP_WEB_BODY:
        if (!c->has_head || bytes.n > c->window)
            return false;
        c->window -= (uint32_t)bytes.n;
        c->ops->body(c, bytes);
        return true;
    default:
        if (m->value == 0 && !c->has_head)
            return false;
        h->is_unable = false;
        (void)snprintf(why, sizeof why, "%.*s", (int)bytes.n, bytes.p);
        finish_call(c, m->value == 0 ? NULL : why);
        return true;
    }
}

/* ---- the client ---- */

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
    sp_list_init(&h->children);
    sp_list_init(&h->working);
    sp_list_init(&h->waiting);
    *ret = h;
    return 0;
}

void sp_web_free(struct sp_web *h)
{
    if (h == NULL)
        return;
    for (struct sp_list *i; (i = sp_list_first(&h->children)) != NULL;) {
        struct sp_web_child *c = SP_CONTAINER(i, struct sp_web_child, link);

        hang_up(c, true);
        sp_loop_unwatch(h->loop, &c->process.on_end);
        sp_cell_child_kill(&c->process);
        (void)sp_cell_child_reap(&c->process);
        sp_loop_undefer(h->loop, &c->end);
        free_child(&c->end);
    }
    sp_loop_cancel(h->loop, &h->idle);
    sp_loop_undefer(h->loop, &h->more);
    free(h->heard);
    free(h);
}

bool sp_web_is_possible(const struct sp_web *h)
{
#ifdef SP_HAVE_CURL
    return h == NULL || !h->is_unable;
#else
    (void)h;
    return false;
#endif
}
