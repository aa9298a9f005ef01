/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http_child: the process that speaks HTTP, as its parent knows it. What it says is hostile.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/auto.h"
#include "base/log.h"
#include "cell/wire.h"
#include "core/http_client_priv.h"
#include "os/fd.h"
#include "os/spawn.h"

#define MESSAGES_A_TURN 32
#define HEARD_BYTES     (sizeof(struct sp_web_message) + SP_WEB_PIECE)
#define VARIABLES_MAX   24

/* What its library looks at; the rest of our environment is none of its business. */
static const char *const variables[] = {
    "http_proxy", "https_proxy", "HTTPS_PROXY",   "all_proxy",    "ALL_PROXY",    "no_proxy",
    "NO_PROXY",   "HTTP_PROXY",  "SSL_CERT_FILE", "SSL_CERT_DIR", "RES_OPTIONS",  "LOCALDOMAIN",
    "TZ",         "LANG",        "LC_ALL",        "ASAN_OPTIONS", "LSAN_OPTIONS", "UBSAN_OPTIONS",
};

/* ---- ends ---- */

static void free_child(struct sp_deferred *d)
{
    struct sp_web_child *c = SP_CONTAINER(d, struct sp_web_child, end);
    struct sp_web_child **at = &c->http->children;

    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
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

void sp_web_child_hang_up(struct sp_web_child *c, bool is_killed)
{
    struct sp_web *h = c->http;

    if (c->socket < 0)
        return;
    if (h->child == c)
        h->child = NULL;
    sp_loop_unwatch(h->loop, &c->watch);
    sp_loop_cancel(h->loop, &c->ping);
    sp_outbox_drop(&c->outbox);
    (void)shutdown(c->socket, SHUT_RDWR);
    (void)close(TAKE_FD(c->socket));
    if (is_killed)
        sp_cell_child_kill(&c->process);
    if (c->process.pidfd < 0)
        sp_loop_defer(h->loop, &c->end, free_child);
}

void sp_web_children_free(struct sp_web *h)
{
    while (h->children != NULL) {
        struct sp_web_child *c = h->children;

        sp_web_child_hang_up(c, true);
        sp_loop_unwatch(h->loop, &c->process.on_end);
        sp_cell_child_kill(&c->process);
        (void)sp_cell_child_reap(&c->process);
        sp_loop_undefer(h->loop, &c->end);
        free_child(&c->end);
    }
}

/* ---- talking ---- */

static void watch_for(struct sp_web_child *c)
{
    sp_loop_rewatch(c->http->loop, &c->watch,
                    EPOLLIN | (c->outbox.first != NULL ? (uint32_t)EPOLLOUT : 0U));
}

int sp_web_child_say(struct sp_web_child *c, const void *message, size_t n, int fd)
{
    if (c->outbox.first == NULL) {
        const int r = sp_wire_send(c->socket, false, message, n, NULL, 0, &fd, fd >= 0);

        if (r == 0 || r == -EPIPE || r == -ECONNRESET)
            return 0;
        if (r != -EAGAIN && !sp_wire_is_short(r))
            return r;
    }
    if (!sp_outbox_add(&c->outbox, message, n, NULL, 0, fd))
        return -ENOMEM;
    watch_for(c);
    return 0;
}

/* ---- signs of life ---- */

static void lose(struct sp_web_child *c, const char *why)
{
    struct sp_web *h = c->http;

    sp_web_child_hang_up(c, true);
    sp_web_on_lost(h, why);
}

static void on_ping(struct sp_timer *t)
{
    struct sp_web_child *c = SP_CONTAINER(t, struct sp_web_child, ping);
    const struct sp_web_message m = {.version = SP_WEB_VERSION, .op = SP_WEB_PING};

    if (c->http->working == NULL)
        return; /* the next request begins anew */
    /* Counted, not timed: if it was us who were stopped for long, its answers are still unread. */
    if (c->unanswered >= SP_WEB_PINGS || sp_web_child_say(c, &m, sizeof m, -1) < 0) {
        sp_log(SP_LOG_WARN, "the process for HTTP requests does not answer: it is ended");
        lose(c, "the process that did this request does not answer and was ended; try it again");
        return;
    }
    c->unanswered++;
    if (!sp_web_child_watch_over(c))
        lose(c, "no memory to watch over the process that did this request");
}

bool sp_web_child_watch_over(struct sp_web_child *c)
{
    struct sp_loop *loop = c->http->loop;

    return c->ping.slot != 0 ||
           sp_loop_timer(loop, &c->ping, sp_loop_now(loop) + c->http->ping_ms, on_ping);
}

/* ---- hearing ---- */

/* 1: a message is in http->heard; 0: nothing there; -1: it has ended, or talks nonsense. */
static int hear(const struct sp_web_child *c)
{
    struct iovec iov = {.iov_base = c->http->heard, .iov_len = HEARD_BYTES};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1}; /* descriptors are not taken */
    ssize_t n;

    do
        n = recvmsg(c->socket, &msg, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return errno == EAGAIN ? 0 : -1;
    return n > 0 && (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0 &&
                   sp_web_check(c->http->heard, (size_t)n, true, false)
               ? 1
               : -1;
}

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
        r = hear(c);
        if (r > 0)
            c->unanswered = 0;
        if (r > 0 && !sp_web_on_message(h, (const struct sp_web_message *)(void *)h->heard))
            r = -1;
    }
    if (r < 0 && c->socket >= 0)
        lose(c, "the process that did this request has ended; try it again");
}

/* ---- beginning ---- */

static char *find_variable(char *const *environ, const char *name)
{
    const size_t n = strlen(name);

    for (size_t i = 0; environ != NULL && environ[i] != NULL; i++)
        if (strncmp(environ[i], name, n) == 0 && environ[i][n] == '=')
            return environ[i];
    return NULL;
}

/* The library reads http_proxy in small letters only. */
static size_t choose_variables(const struct sp_web *h, char *renamed, size_t size, char **ret)
{
    size_t n = 0;

    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        char *v = find_variable(h->environ, variables[i]);

        if (v == NULL)
            continue;
        if (strcmp(variables[i], "HTTP_PROXY") == 0) {
            if (find_variable(h->environ, "http_proxy") != NULL || strlen(v) >= size)
                continue;
            (void)snprintf(renamed, size, "http_proxy%s", v + strlen("HTTP_PROXY"));
            v = renamed;
        }
        ret[n++] = v;
    }
    ret[n] = NULL;
    return n;
}

static int spawn(struct sp_web_child *c, struct sp_err *e)
{
    char *const argv[] = {(char *)(uintptr_t) "sallyport", (char *)(uintptr_t) "http", NULL};
    char *envp[VARIABLES_MAX];
    char renamed[4096];
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "make a socket for HTTP requests");
    c->socket = sp_fd_lift(pair[0]);
    auto_close int theirs = sp_fd_lift(pair[1]);
    (void)choose_variables(c->http, renamed, sizeof renamed, envp);
    struct sp_spawn s = {.stdio = {theirs, -1, fcntl(STDERR_FILENO, F_GETFD) < 0 ? -1 : 2},
                         .is_apart = true,
                         .cgroup = -1,
                         .file = c->http->program,
                         .argv = argv,
                         .envp = envp};
    if (sp_spawn(&s) < 0)
        return sp_fail(e, SP_E_SYSTEM, s.failed_errno, "start a process for HTTP requests: %s",
                       sp_step_name(s.failed_step));
    sp_cell_child_set(&c->process, s.pid, s.pidfd);
    return 0;
}

int sp_web_child_start(struct sp_web *h, struct sp_err *e)
{
    struct sp_web_child *c = calloc(1, sizeof *c);

    if (c == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a process for HTTP requests");
    *c = (struct sp_web_child){
        .http = h, .next = h->children, .process = {.pidfd = -1}, .socket = -1};
    h->children = c;
    int r = spawn(c, e);
    if (r == 0)
        r = sp_loop_watch(h->loop, &c->watch, c->socket, EPOLLIN, on_socket, e);
    if (r == 0)
        r = sp_loop_watch(h->loop, &c->process.on_end, c->process.pidfd, EPOLLIN, on_end, e);
    if (r == 0) {
        h->child = c;
        return 0;
    }
    if (c->process.pidfd >= 0) {
        sp_cell_child_kill(&c->process);
        (void)sp_cell_child_reap(&c->process);
    }
    sp_loop_unwatch(h->loop, &c->watch);
    if (c->socket >= 0)
        (void)close(c->socket);
    free_child(&c->end);
    return r;
}
