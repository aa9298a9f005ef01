/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client: the queue of requests, the connection with its greeting, and its resumption.
 *
 *   IDLE --connect--> DIALING --> OPENING --link--> GREETING --initialize--> READY
 *                        ^                             |                       |
 *                        '---time--- RESTING <---------'------- lost ----------'
 *
 * LEAVING: we are closing the link; its close event continues. DEAD can follow any state.
 *
 * Requests wait in `queued` until the link takes them and in `sent` until they are answered. Those
 * refused without being sent wait in `refused` for the loop.
 */
#include "engine/remote/client.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/child.h"
#include "base/clock.h"
#include "base/redact.h"
#include "engine/remote/dial.h"
#include "os/fd.h"
#include "os/tree.h"
#include "server/net/frames.h"
#include "server/net/link_open.h"

#define CONNECT_MS       10000U
#define RESUME_MS        25000U
#define PING_MS          30000U
#define SILENCE_MS       60000U
#define FIRST_REST       100U /* ms between tries, doubled up to LONGEST_REST */
#define LONGEST_REST     1000U
#define FIRST_TRIES      4U       /* tries for a first session when connections are cut */
#define STEADY_MS        5000U    /* a connection that lived so long restarts the time to resume */
#define ATTACHED         (-32010) /* wire code: the session still has its old connection */
#define MAX_SESSION      1024     /* longest session id, in bytes */
#define PROGRAM_GRACE_MS 2000U    /* for our child to end after its stdin is closed */
#define PROGRAM_TERM_MS  500U     /* ... and after SIGTERM */
#define SERVERS_MISTAKE  (-1)     /* id of the server's answer to an unparsable message */

enum client_state { IDLE, DIALING, OPENING, GREETING, READY, LEAVING, RESTING, DEAD };

struct program {
    struct sp_loop *loop; /* NULL: never started */
    int in, out;          /* our ends of its stdout and stdin; non-blocking; -1: closed */
    struct sp_child child;
    int last_signal;
    struct sp_watch watch;
    struct sp_timer timer;
};

struct sp_client {
    struct sp_loop *loop;
    const struct sp_client_ops *ops;
    void *user;
    enum client_state state;

    char *where; /* URL without its query, or the program's name; for messages */
    struct sp_client_options options; /* with the defaults filled in */
    struct sp_target target;

    struct sp_link_host host;
    struct sp_link *link; /* the open one; NULL: none */
    struct sp_dial dial;
    struct program child;
    struct sp_timer timer; /* GREETING: limit or next try; RESTING: next try */
    struct sp_deferred begin;
    struct sp_deferred refusals; /* answers c->refused */
    struct sp_deferred sweep;
    struct sp_json json;

    char *session;     /* session id; NULL: none yet */
    uint64_t greeting; /* id of the pending initialize; 0: none */
    uint64_t greet_until_ms;
    uint64_t lost_ms;  /* when the connection was lost or first wanted; 0: never */
    uint64_t ready_ms; /* when it last became READY */
    unsigned tries;
    struct sp_err error;

    struct sp_list sent, queued, refused; /* struct sp_client_request */
    uint32_t count;
    size_t bytes; /* total of the kept request texts */
    uint64_t last_id;

    unsigned depth; /* nested callbacks; destroyed when 0 and is_freed */
    bool has_heard; /* a valid message arrived on this connection after initialize */
    bool is_paused, is_freed;
    char scratch[SP_INTAKE_SCRATCH + 1];
};

/*
 * ---- a server that is our child and speaks on its stdin and stdout; its stderr is ours ----
 *
 * It leads a process group of its own, so that terminal signals do not reach it. It is ended by
 * closing its stdin; after 2 s SIGTERM and then SIGKILL go to the group. Only this child is waited
 * for.
 */

static size_t length_of(const char *const *list)
{
    size_t n = 0;

    while (list != NULL && list[n] != NULL)
        n++;
    return n;
}

/* Our own variables with env laid over them; the strings are borrowed. NULL: out of memory. */
static char **make_env(const char *const *env)
{
    const size_t own = length_of((const char *const *)environ);
    const size_t more = length_of(env);
    char **all = calloc(own + more + 1, sizeof *all);
    size_t n = 0;

    if (all == NULL)
        return NULL;
    for (size_t i = 0; i < own; i++) {
        bool is_replaced = false;

        for (size_t k = 0; k < more && !is_replaced; k++) {
            const size_t name = strcspn(env[k], "=");

            is_replaced = strncmp(env[k], environ[i], name) == 0 && environ[i][name] == '=';
        }
        if (!is_replaced)
            all[n++] = environ[i];
    }
    for (size_t i = 0; i < more; i++)
        all[n++] = (char *)(uintptr_t)env[i];
    return all;
}

/* env: NAME=VALUE added to our own variables; may be NULL. *p is zeroed or ended. */
static int start_program(struct program *p, struct sp_loop *loop, const char *const *argv,
                         const char *const *env, struct sp_err *e)
{
    int ends[4] = {-1, -1, -1, -1}; /* its stdin, our end of that, our end of its stdout, that */
    struct sp_child child;
    int err = 0;

    if (pipe2(ends, O_CLOEXEC) < 0 || pipe2(ends + 2, O_CLOEXEC) < 0)
        err = errno;
    auto_close int its_in = ends[0];
    auto_close int out = sp_fd_lift(ends[1]);
    auto_close int in = sp_fd_lift(ends[2]);
    auto_close int its_out = ends[3];
    auto_free char **envp = make_env(env);
    if (err == 0 && envp == NULL)
        err = ENOMEM;
    if (err == 0)
        err = sp_child_start(&child, argv[0], argv, envp, (int[]){its_in, its_out, SP_CHILD_OURS});
    if (err != 0)
        return sp_fail(e, SP_E_SYSTEM, err, "run %s", argv[0]);
    *p = (struct program){.loop = loop, .in = TAKE_FD(in), .out = TAKE_FD(out), .child = child};
    if (child.pidfd >= 0)
        sp_own_add(child.pid);
    return 0;
}

static void close_program_ends(struct program *p)
{
    if (p->in >= 0)
        (void)close(TAKE_FD(p->in));
    if (p->out >= 0)
        (void)close(TAKE_FD(p->out));
}

static void signal_program(struct program *p, int number)
{
    p->last_signal = number;
    sp_child_signal(&p->child, number);
}

/* true: reaped. */
static bool reap_program(struct program *p, bool is_waiting)
{
    int status;

    if (!sp_child_reap(&p->child, is_waiting, &status))
        return false;
    sp_own_remove(p->child.pid);
    sp_loop_unwatch(p->loop, &p->watch);
    sp_loop_cancel(p->loop, &p->timer);
    return true;
}

static void on_program_late(struct sp_timer *t)
{
    struct program *p = SP_CONTAINER(t, struct program, timer);

    signal_program(p, p->last_signal == 0 ? SIGTERM : SIGKILL);
    if (p->last_signal == SIGTERM)
        (void)sp_loop_timer(p->loop, t, sp_loop_now(p->loop) + PROGRAM_TERM_MS, on_program_late);
}

static void on_program_exit(struct sp_watch *w, uint32_t events)
{
    (void)events;
    (void)reap_program(SP_CONTAINER(w, struct program, watch), false);
}

static bool ends_within(const struct program *p, unsigned ms)
{
    struct pollfd at = {.fd = p->child.pidfd, .events = POLLIN};
    const int64_t until = (int64_t)sp_clock_ms() + ms;

    for (int left = (int)ms; left >= 0; left = (int)(until - (int64_t)sp_clock_ms()) - 1)
        if (poll(&at, 1, left) > 0)
            return true;
    return false;
}

/* Closes our ends and blocks until the program has ended: up to 2 s, and 0.5 s more after SIGTERM.
 */
static void end_program_now(struct program *p)
{
    if (p->loop == NULL)
        return;
    close_program_ends(p);
    if (p->child.pidfd < 0)
        return;
    if (!ends_within(p, PROGRAM_GRACE_MS)) {
        signal_program(p, SIGTERM);
        if (!ends_within(p, PROGRAM_TERM_MS))
            signal_program(p, SIGKILL);
    }
    (void)reap_program(p, true); /* after SIGKILL this returns soon */
}

/* The same from the loop, without blocking. */
static void end_program(struct program *p)
{
    struct sp_err e;

    if (p->loop == NULL)
        return;
    close_program_ends(p);
    if (p->child.pidfd < 0 || p->watch.fn != NULL || reap_program(p, false))
        return;
    if (sp_loop_watch(p->loop, &p->watch, p->child.pidfd, EPOLLIN, on_program_exit, &e) < 0 ||
        !sp_loop_timer(p->loop, &p->timer, sp_loop_now(p->loop) + PROGRAM_GRACE_MS,
                       on_program_late))
        end_program_now(p);
}

/* ---- callbacks, which may free the client: it goes when the outermost returns ---- */

static void destroy_client(struct sp_client *c);

static void enter_client(struct sp_client *c)
{
    c->depth++;
}

static void on_client_sweep(struct sp_deferred *d)
{
    destroy_client(SP_CONTAINER(d, struct sp_client, sweep));
}

static void leave_client(struct sp_client *c)
{
    if (--c->depth == 0 && c->is_freed)
        sp_loop_defer(c->loop, &c->sweep, on_client_sweep);
}

/* ---- requests ---- */

/* false: no link, or out of memory. */
static bool send_text(struct sp_client *c, struct sp_str text)
{
    char *room = c->link == NULL ? NULL : sp_link_reserve(c->link, text.n);

    if (room == NULL)
        return false;
    memcpy(room, text.p, text.n);
    sp_link_commit(c->link, text.n);
    return true;
}

static struct sp_client_request *first_of(const struct sp_list *list)
{
    struct sp_list *first = sp_list_first(list);

    return first == NULL ? NULL : SP_CONTAINER(first, struct sp_client_request, link);
}

static void unlink_request(struct sp_client *c, struct sp_client_request *r)
{
    sp_list_remove(&r->link);
    c->bytes -= r->text.len;
    sp_buf_done(&r->text);
    r->client = NULL;
    c->count--;
}

static void answer_request(struct sp_client *c, struct sp_client_request *r,
                           const struct sp_client_reply *reply)
{
    unlink_request(c, r);
    enter_client(c);
    r->fn(r, reply);
    leave_client(c);
}

static void on_refusals(struct sp_deferred *d)
{
    struct sp_client *c = SP_CONTAINER(d, struct sp_client, refusals);
    struct sp_client_request *r;

    enter_client(c);
    while (!c->is_freed && (r = first_of(&c->refused)) != NULL) {
        struct sp_client_reply reply = {.fate = SP_CLIENT_REFUSED,
                                        .code = sp_code_wire(SP_E_LIMIT),
                                        .message = sp_str_of(r->refusal)};

        if (c->state == DEAD) {
            reply.fate = SP_CLIENT_LOST;
            reply.is_final = true;
            reply.message = sp_str_of(c->error.msg);
        }
        answer_request(c, r, &reply);
    }
    leave_client(c);
}

static void flush_requests(struct sp_client *c)
{
    struct sp_client_request *r;

    while (c->state == READY && !sp_link_is_full(c->link) && (r = first_of(&c->queued)) != NULL) {
        if (!send_text(c, sp_buf_str(&r->text)))
            return;
        sp_list_remove(&r->link);
        sp_list_append(&c->sent, &r->link);
        if (!r->is_repeatable) {
            c->bytes -= r->text.len;
            sp_buf_done(&r->text);
        }
    }
}

void sp_client_ask(struct sp_client *c, struct sp_client_request *r, const char *method,
                   struct sp_str params)
{
    r->id = ++c->last_id;
    r->client = c;
    r->text = (struct sp_buf){0};
    r->refusal = NULL;
    if (c->state == DEAD) {
        r->refusal = ""; /* on_refusals has the error */
    } else if (c->count >= SP_CLIENT_MAX_REQUESTS) {
        r->refusal = "too many requests wait for this server's answers";
    } else if (params.n > SP_CLIENT_MAX_BYTES || c->bytes + params.n > SP_CLIENT_MAX_BYTES) {
        r->refusal = "requests that wait for this server hold too much memory";
    } else if (!sp_buf_printf(&r->text, "{\"id\":%llu,\"method\":\"%s\",\"params\":",
                              (unsigned long long)r->id, method) ||
               !sp_buf_add_str(&r->text, params) || !sp_buf_add(&r->text, "}", 1)) {
        sp_buf_done(&r->text);
        r->refusal = "no memory for a request";
    }
    c->bytes += r->text.len;
    c->count++;
    if (r->refusal != NULL) {
        sp_list_append(&c->refused, &r->link);
        sp_loop_defer(c->loop, &c->refusals, on_refusals);
        return;
    }
    sp_list_append(&c->queued, &r->link);
    flush_requests(c);
    if (c->state == IDLE)
        sp_client_connect(c);
}

void sp_client_forget(struct sp_client_request *r)
{
    if (r->client != NULL)
        unlink_request(r->client, r);
}

static void lose_list(struct sp_client *c, struct sp_list *list, bool is_final)
{
    const struct sp_client_reply lost = {
        .fate = SP_CLIENT_LOST, .message = sp_str_of(c->error.msg), .is_final = is_final};
    struct sp_client_request *r;

    enter_client(c);
    while (!c->is_freed && (r = first_of(list)) != NULL)
        answer_request(c, r, &lost);
    leave_client(c);
}

/* Repeatable requests go in front of those never sent, in their old order. */
static void requeue_requests(struct sp_client *c)
{
    for (struct sp_list *i = c->sent.prev, *before; i != &c->sent; i = before) {
        before = i->prev;
        if (SP_CONTAINER(i, struct sp_client_request, link)->is_repeatable) {
            sp_list_remove(i);
            sp_list_prepend(&c->queued, i);
        }
    }
    lose_list(c, &c->sent, false);
}

/* ---- the end ---- */

static void stop_connecting(struct sp_client *c)
{
    sp_dial_stop(&c->dial);
    sp_loop_cancel(c->loop, &c->timer);
    sp_loop_undefer(c->loop, &c->begin);
}

/* With c->error, to which the server's name and the errno text are added. */
static void end_client(struct sp_client *c)
{
    const struct sp_err e = c->error;
    char text[480];

    if (c->state == DEAD)
        return;
    stop_connecting(c);
    (void)sp_error_text(&e, text, sizeof text);
    (void)sp_fail(&c->error, e.code == SP_E_NONE ? SP_E_FAILED : e.code, e.sys, "server %.120s: %s",
                  c->where, text);
    c->error.sys = 0; /* now part of the text */
    c->state = DEAD;
    if (c->link != NULL)
        sp_link_close(c->link, "the session is over");
    else if (c->host.total == 0)
        end_program(&c->child);
    enter_client(c);
    lose_list(c, &c->sent, true);
    lose_list(c, &c->queued, true);
    if (!c->is_freed && c->ops->dead != NULL)
        c->ops->dead(c->user, &c->error);
    leave_client(c);
}

static void abandon_link(struct sp_client *c, const char *why)
{
    if (c->state == DEAD || c->state == LEAVING || c->link == NULL)
        return;
    (void)sp_fail(&c->error, SP_E_FAILED, 0, "%s", why);
    sp_loop_cancel(c->loop, &c->timer);
    c->state = LEAVING;
    sp_link_close(c->link, why);
}

/* ---- trying again ---- */

static void on_rested(struct sp_timer *t);

/* When to give up: connecting first, or resuming the session. */
static uint64_t try_end(const struct sp_client *c)
{
    return c->lost_ms + (c->session == NULL ? c->options.connect_timeout_ms : c->options.resume_ms);
}

/* Time for this try. */
static uint64_t patience(const struct sp_client *c)
{
    const uint64_t now = sp_loop_now(c->loop);
    const uint64_t left = try_end(c) > now ? try_end(c) - now : 0;

    return left < c->options.connect_timeout_ms ? left : c->options.connect_timeout_ms;
}

static void give_up(struct sp_client *c)
{
    struct sp_err last = c->error;
    char text[400];

    (void)sp_error_text(&last, text, sizeof text);
    (void)sp_fail(&c->error, SP_E_FAILED, 0,
                  "the connection was lost and could not be resumed within %llu ms: %s",
                  (unsigned long long)c->options.resume_ms, text);
    end_client(c);
}

/* A connection attempt failed. was_cut: a connection existed and broke. A first connection that
 * cannot be made at all is not tried again, so that the caller learns of it at once. */
static void try_again(struct sp_client *c, bool was_cut)
{
    const uint64_t ms = c->tries > 3 ? LONGEST_REST : FIRST_REST << c->tries;
    const uint64_t due_ms = sp_loop_now(c->loop) + ms;
    const bool is_late = due_ms >= try_end(c);

    if (c->options.program != NULL ||
        (c->session == NULL && (!was_cut || is_late || c->tries >= FIRST_TRIES))) {
        end_client(c);
        return;
    }
    if (!is_late) {
        c->tries++;
        c->state = RESTING;
        if (sp_loop_timer(c->loop, &c->timer, due_ms, on_rested))
            return;
    }
    give_up(c);
}

/* ---- the greeting ---- */

static void greet_server(struct sp_client *c)
{
    auto_buf struct sp_buf b = {0};

    c->greeting = ++c->last_id;
    const bool ok =
        sp_buf_printf(&b, "{\"id\":%llu,\"method\":\"initialize\",\"params\":{\"clientName\":",
                      (unsigned long long)c->greeting) &&
        sp_json_add_str(&b, sp_str_of(c->options.client_name)) &&
        sp_buf_printf(&b, ",\"resumeSessionId\":") &&
        (c->session == NULL ? sp_buf_printf(&b, "null")
                            : sp_json_add_str(&b, sp_str_of(c->session))) &&
        (c->options.console == NULL || sp_buf_printf(&b, ",\"console\":%s", c->options.console)) &&
        (!c->options.wants_receipts ||
         sp_buf_printf(&b, ",\"capabilities\":{\"receipts\":true,\"denials\":true}")) &&
        sp_buf_printf(&b, "}}");
    if (!ok || !send_text(c, sp_buf_str(&b)))
        abandon_link(c, "no memory to greet the server");
}

static void on_greeting_late(struct sp_timer *t)
{
    abandon_link(SP_CONTAINER(t, struct sp_client, timer),
                 "the server did not answer initialize in time");
}

static void on_greet_again(struct sp_timer *t)
{
    struct sp_client *c = SP_CONTAINER(t, struct sp_client, timer);

    if (!sp_loop_timer(c->loop, t, c->greet_until_ms, on_greeting_late))
        abandon_link(c, "no memory");
    else
        greet_server(c);
}

/* The server has not noticed yet that the old connection is gone. */
static void retry_greeting(struct sp_client *c)
{
    const uint64_t now = sp_loop_now(c->loop);

    c->greet_until_ms = try_end(c);
    c->greeting = ++c->last_id; /* an id that matches no answer */
    if (now + FIRST_REST >= c->greet_until_ms) {
        (void)sp_fail(&c->error, SP_E_ATTACHED, 0,
                      "the session is still attached to another connection");
        give_up(c);
    } else if (!sp_loop_timer(c->loop, &c->timer, now + 2ULL * FIRST_REST, on_greet_again)) {
        abandon_link(c, "no memory");
    }
}

static bool keep_session(struct sp_client *c, struct sp_str id)
{
    if (c->session != NULL)
        return sp_str_eq(id, sp_str_of(c->session));
    if (id.n == 0 || id.n > MAX_SESSION || sp_str_has_nul(id))
        return false;
    c->session = sp_str_dup(id);
    return c->session != NULL;
}

static void hear_welcome(struct sp_client *c, const struct sp_client_reply *reply)
{
    const bool was_resumed = c->session != NULL;
    struct sp_str id = {0};
    struct sp_err e;

    c->greeting = 0;
    if (reply->fate != SP_CLIENT_RESULT && was_resumed && reply->code == ATTACHED) {
        retry_greeting(c);
        return;
    }
    if (reply->fate != SP_CLIENT_RESULT) {
        (void)sp_fail(&c->error, SP_E_FAILED, 0, "%s: " SP_STR_FMT,
                      was_resumed ? "the server has forgotten the session"
                                  : "the server refused the session",
                      SP_STR_ARG(reply->message));
        end_client(c);
        return;
    }
    if (sp_json_type(&c->json, reply->value) != SP_JSON_OBJECT ||
        sp_json_need_str(&c->json, reply->value, "sessionId", &id, &e) < 0 ||
        !keep_session(c, id)) {
        (void)sp_fail(&c->error, SP_E_FAILED, 0,
                      was_resumed ? "the server gave another session than the one it was asked for"
                                  : "the server's answer to initialize names no session");
        end_client(c);
        return;
    }
    if (!send_text(c, SP_STR("{\"method\":\"initialized\",\"params\":{}}"))) {
        abandon_link(c, "no memory to greet the server");
        return;
    }
    sp_loop_cancel(c->loop, &c->timer);
    c->state = READY;
    c->ready_ms = sp_loop_now(c->loop);
    c->has_heard = false;
    c->tries = 0;
    if (!was_resumed)
        c->lost_ms = 0;
    enter_client(c);
    c->ops->ready(c->user, &c->json, reply->value, was_resumed);
    if (c->state == READY) {
        sp_link_pause(c->link, c->is_paused);
        flush_requests(c);
    }
    leave_client(c);
}

/* ---- messages ---- */

static void hear_answer(struct sp_client *c, int64_t id, uint32_t result, uint32_t error)
{
    struct sp_client_reply reply = {.fate = SP_CLIENT_RESULT, .j = &c->json, .value = result};
    const uint32_t code =
        error == SP_JSON_NONE ? SP_JSON_NONE : sp_json_get(&c->json, error, "code");

    if (result == SP_JSON_NONE) {
        reply.fate = SP_CLIENT_REFUSED;
        reply.message = SP_STR("the server said no and not why");
        (void)sp_json_opt_str(&c->json, error, "message", &reply.message, NULL);
        if (code != SP_JSON_NONE)
            (void)sp_json_i64(&c->json, code, &reply.code);
        const uint32_t data =
            error == SP_JSON_NONE ? SP_JSON_NONE : sp_json_get(&c->json, error, "data");
        if (data != SP_JSON_NONE && sp_json_type(&c->json, data) == SP_JSON_OBJECT)
            (void)sp_json_def_bool(&c->json, data, "rejected", &reply.is_rejected, NULL);
    }
    if (id == SERVERS_MISTAKE && reply.fate == SP_CLIENT_REFUSED) {
        (void)sp_fail(&c->error, SP_E_FAILED, 0, "the server could not read a message: " SP_STR_FMT,
                      SP_STR_ARG(reply.message));
        end_client(c);
    } else if (id > 0 && (uint64_t)id == c->greeting) {
        hear_welcome(c, &reply);
    } else if (id > 0 && c->state == READY) {
        c->has_heard = true;
        sp_list_each(i, &c->sent) {
            struct sp_client_request *r = SP_CONTAINER(i, struct sp_client_request, link);

            if (r->id == (uint64_t)id) { /* otherwise it was dropped, or the id is invalid */
                answer_request(c, r, &reply);
                break;
            }
        }
    }
}

void sp_client_answer(struct sp_client *c, struct sp_str id, struct sp_str result)
{
    auto_buf struct sp_buf b = {0};

    if (c->state != READY)
        return;
    if (sp_link_is_full(c->link))
        abandon_link(c, "the server asks more than it reads answers");
    else
        (void)(sp_buf_add_str(&b, SP_STR("{\"id\":")) && sp_buf_add_str(&b, id) &&
               sp_buf_add_str(&b, SP_STR(",\"result\":")) && sp_buf_add_str(&b, result) &&
               sp_buf_add(&b, "}", 1) && send_text(c, sp_buf_str(&b))); /* as in hear_method */
}

/* A notification goes to the owner, and a request, too, which is refused if its method is not
 * known. */
static void hear_method(struct sp_client *c, uint32_t method, uint32_t id)
{
    const uint32_t params = sp_json_get(&c->json, 0, "params");
    auto_buf struct sp_buf b = {0};

    if (sp_json_type(&c->json, method) != SP_JSON_STRING) {
        abandon_link(c, "the server sent a message whose method is no text");
        return;
    }
    if (id == SP_JSON_NONE && sp_str_eq(sp_json_str(&c->json, method), SP_STR("server/ending"))) {
        (void)sp_fail(&c->error, SP_E_FAILED, 0, "%s", sp_link_going_away);
        end_client(c); /* its sessions end with it */
        return;
    }
    if (id == SP_JSON_NONE) {
        c->has_heard = true;
        c->ops->notified(c->user, sp_json_str(&c->json, method), &c->json, params);
        return;
    }
    if (c->state < GREETING || sp_link_is_full(c->link)) {
        abandon_link(c, "the server asks more than it reads answers");
        return;
    }
    if (c->state == READY && c->ops->asked != NULL &&
        c->ops->asked(c->user, sp_json_str(&c->json, method), sp_json_raw(&c->json, id), &c->json,
                      params))
        return;
    const struct sp_str raw = sp_json_raw(&c->json, method);
    struct sp_str name = {raw.p + 1, raw.n - 2};
    for (size_t i = 0; i < name.n; i++)
        if (name.p[i] < ' ' || name.p[i] == '"' || name.p[i] == '\\')
            name = SP_STR("?");
    (void)(sp_buf_printf(&b,
                         "{\"error\":{\"code\":-32601,\"message\":\"exec-server client does not "
                         "implement `%.*s` yet\"},\"id\":",
                         (int)(name.n > 64 ? 64 : name.n), name.p) &&
           sp_buf_add_str(&b, sp_json_raw(&c->json, id)) && sp_buf_add(&b, "}", 1) &&
           send_text(c, sp_buf_str(&b))); /* without memory the server gets no answer */
}

/* ---- the link ---- */

static void on_message(void *user, char *text, size_t len)
{
    struct sp_client *c = user;
    struct sp_json *j = &c->json;
    struct sp_err e;
    int64_t id = 0;

    if (c->is_freed || (c->state != GREETING && c->state != READY))
        return;
    if (sp_json_parse(j, text, len, &e) < 0 || sp_json_type(j, 0) != SP_JSON_OBJECT) {
        abandon_link(c, len > 7 && memcmp(text, "HTTP/1.", 7) == 0
                            ? "the server wants a token on this socket, too (--token-file)"
                            : "the server sent what is no message");
        return;
    }
    const uint32_t method = sp_json_get(j, 0, "method");
    const uint32_t id_token = sp_json_get(j, 0, "id");
    const uint32_t result = sp_json_get(j, 0, "result");
    const uint32_t error = sp_json_get(j, 0, "error");
    enter_client(c);
    if (method != SP_JSON_NONE)
        hear_method(c, method, id_token);
    else if (id_token == SP_JSON_NONE ||
             (result == SP_JSON_NONE &&
              (error == SP_JSON_NONE || sp_json_type(j, error) != SP_JSON_OBJECT)))
        abandon_link(c, "the server sent what is neither answer nor notification");
    else if (sp_json_i64(j, id_token, &id))
        hear_answer(c, id, result, error);
    sp_json_trim(j);
    leave_client(c);
}

static void on_not_text(void *user)
{
    struct sp_client *c = user;

    abandon_link(c, "the server sent what is no text");
}

static void on_drained(void *user)
{
    flush_requests(user);
}

static void on_closed(void *user, const char *why)
{
    struct sp_client *c = user;
    const bool was_ready = c->session != NULL && c->greeting == 0;
    const bool was_cut = c->state != LEAVING;

    c->link = NULL;
    if (c->is_freed || c->state == DEAD)
        return;
    if (was_cut)
        (void)sp_fail(&c->error, SP_E_FAILED, 0, "the connection ended: %s", why);
    sp_loop_cancel(c->loop, &c->timer);
    c->greeting = 0;
    if (was_cut && was_ready && why == sp_link_going_away) {
        (void)sp_fail(&c->error, SP_E_FAILED, 0, "%s", sp_link_going_away);
        end_client(c); /* its sessions end with it */
        return;
    }
    if (!was_ready) {
        try_again(c, was_cut);
        return;
    }

    const uint64_t now = sp_loop_now(c->loop);

    /* A server that drops us after each greeting, or sends invalid messages, gets no new time to
     * resume with each connection; one behind an unreliable network does. */
    if (c->lost_ms == 0 || (was_cut && c->has_heard) || now - c->ready_ms >= STEADY_MS)
        c->lost_ms = now;
    c->state = RESTING;
    enter_client(c);
    if (c->options.program == NULL) {
        requeue_requests(c);
        if (!c->is_freed && c->ops->interrupted != NULL)
            c->ops->interrupted(c->user, c->error.msg);
    }
    if (!c->is_freed)
        try_again(c, true);
    leave_client(c);
}

/* Deferred: the link cannot send from inside its opened callback. */
static void on_greet(struct sp_deferred *d)
{
    struct sp_client *c = SP_CONTAINER(d, struct sp_client, begin);

    if (c->state != OPENING || c->link == NULL)
        return;
    c->state = GREETING;
    c->greet_until_ms = sp_loop_now(c->loop) + patience(c);
    if (!sp_loop_timer(c->loop, &c->timer, c->greet_until_ms, on_greeting_late))
        abandon_link(c, "no memory");
    else
        greet_server(c);
}

static bool on_opened(void *user, struct sp_link *l)
{
    static const struct sp_link_ops ops = {
        .message = on_message, .not_text = on_not_text, .drained = on_drained, .closed = on_closed};
    struct sp_client *c = user;

    if (c->is_freed || c->state != OPENING)
        return false;
    c->link = l;
    c->greeting = UINT64_MAX; /* initialize is not sent yet */
    sp_link_serve(l, &ops, c);
    sp_loop_defer(c->loop, &c->begin, on_greet);
    return true;
}

static void on_failed(void *user, bool is_refusal, const char *why)
{
    struct sp_client *c = user;

    if (c->is_freed || c->state != OPENING)
        return;
    (void)sp_fail(&c->error, SP_E_FAILED, 0, "%s", why);
    try_again(c, !is_refusal);
}

/* The link is gone, so the program's descriptors are unused. */
static void on_gone(void *user)
{
    struct sp_client *c = user;

    if (c->state == DEAD && !c->is_freed)
        end_program(&c->child);
}

/* ---- connecting ---- */

static void on_dialed(struct sp_dial *d, int fd, const struct sp_err *e)
{
    struct sp_client *c = SP_CONTAINER(d, struct sp_client, dial);
    const struct sp_target *t = &c->target;
    const bool is_lines = t->is_unix && c->options.token == NULL; /* a token needs an HTTP header */
    struct sp_upgrade u = {.token = c->options.token};

    if (fd < 0) {
        c->error = *e;
        try_again(c, false);
        return;
    }
    c->state = OPENING;
    if (t->is_unix)
        (void)snprintf(u.host, sizeof u.host, "localhost");
    else
        (void)snprintf(u.host, sizeof u.host, "%s%s%s:%u", t->is_bracketed ? "[" : "", t->host,
                       t->is_bracketed ? "]" : "", t->port);
    (void)snprintf(u.path, sizeof u.path, "%s", t->path);
    c->host.handshake_ms = patience(c);
    if (sp_link_new_client(&c->host, fd, is_lines ? NULL : &u, c->where, &c->error) < 0)
        try_again(c, false);
}

static void connect_now(struct sp_client *c)
{
    enter_client(c);
    if (c->options.program != NULL) {
        c->state = OPENING;
        if (start_program(&c->child, c->loop, c->options.program, c->options.env, &c->error) < 0 ||
            sp_link_new_pair(&c->host, c->child.in, c->child.out, c->where, &c->error) < 0)
            end_client(c);
    } else {
        c->state = DIALING;
        c->dial = (struct sp_dial){.loop = c->loop, .target = &c->target, .done = on_dialed};
        sp_dial_begin(&c->dial, patience(c));
    }
    leave_client(c);
}

static void on_rested(struct sp_timer *t)
{
    connect_now(SP_CONTAINER(t, struct sp_client, timer));
}

static void on_begin(struct sp_deferred *d)
{
    struct sp_client *c = SP_CONTAINER(d, struct sp_client, begin);

    if (c->state != IDLE)
        return;
    c->lost_ms = sp_loop_now(c->loop);
    connect_now(c);
}

void sp_client_connect(struct sp_client *c)
{
    if (c->state == IDLE)
        sp_loop_defer(c->loop, &c->begin, on_begin);
}

void sp_client_pause(struct sp_client *c, bool is_paused)
{
    c->is_paused = is_paused;
    if (c->state == READY)
        sp_link_pause(c->link, is_paused);
}

/* ---- creation and end ---- */

/* Sent in a header without quoting. */
static bool is_token(const char *token)
{
    for (const char *p = token; *p != 0; p++)
        if (*p <= ' ' || *p >= 0x7F)
            return false;
    return token[0] != 0;
}

static void destroy_client(struct sp_client *c)
{
    stop_connecting(c);
    sp_loop_undefer(c->loop, &c->refusals);
    while (c->host.first != NULL)
        sp_link_end_now(c->host.first, "the client ends");
    end_program_now(&c->child);
    sp_json_done(&c->json);
    free(c->where);
    free(c->session);
    explicit_bzero(c->target.path, sizeof c->target.path);
    free(c);
}

int sp_client_new(struct sp_loop *loop, const struct sp_client_options *o,
                  const struct sp_client_ops *ops, void *user, struct sp_client **ret,
                  struct sp_err *e)
{
    struct sp_target target = {0};

    if ((o->url == NULL) == (o->program == NULL || o->program[0] == NULL))
        return sp_fail(e, SP_E_INVALID, 0, "a server is a URL or a program: one of them");
    if (o->token != NULL && !is_token(o->token))
        return sp_fail(e, SP_E_INVALID, 0, "the server's token has characters no token can have");
    if (o->token != NULL && o->url == NULL)
        return sp_fail(e, SP_E_INVALID, 0, "a program takes no token");
    const int r = o->url == NULL ? 0 : sp_target_parse(o->url, &target, e);
    if (r < 0)
        return r;
    struct sp_client *c = calloc(1, sizeof *c);
    if (c == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a client");
    c->loop = loop;
    c->ops = ops;
    c->user = user;
    c->target = target;
    c->options = *o;
    if (o->connect_timeout_ms == 0)
        c->options.connect_timeout_ms = CONNECT_MS;
    if (o->resume_ms == 0)
        c->options.resume_ms = RESUME_MS;
    if (o->client_name == NULL)
        c->options.client_name = "sallyport";
    sp_list_init(&c->sent);
    sp_list_init(&c->queued);
    sp_list_init(&c->refused);
    c->host = (struct sp_link_host){.loop = loop,
                                    .ping_every_ms = PING_MS,
                                    .silence_ms = SILENCE_MS,
                                    .handshake_ms = c->options.connect_timeout_ms,
                                    .scratch = c->scratch,
                                    .is_client = true,
                                    .user = c,
                                    .opened = on_opened,
                                    .failed = on_failed,
                                    .gone = on_gone};
    c->where = o->url != NULL ? sp_redact_url(o->url) : strdup(o->program[0]);
    if (c->where == NULL) {
        destroy_client(c);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a client");
    }
    *ret = c;
    return 0;
}

/* Waits for outstanding answers without the loop. */
static void settle_requests(struct sp_client *c, unsigned wait_ms)
{
    const int64_t until = (int64_t)sp_clock_ms() + wait_ms;

    if (c->depth != 0 || c->state != READY)
        return;
    sp_link_pause(c->link, false);
    for (int64_t left = wait_ms; left > 0 && c->state == READY && c->link != NULL;
         left = until - (int64_t)sp_clock_ms()) {
        flush_requests(c);
        if ((sp_list_is_empty(&c->sent) && sp_list_is_empty(&c->queued)) ||
            !sp_link_turn(c->link, (int)left))
            return;
    }
}

void sp_client_free(struct sp_client *c, unsigned wait_ms)
{
    struct sp_client_request *r;

    if (c != NULL && !c->is_freed && wait_ms != 0)
        settle_requests(c, wait_ms);
    if (c == NULL || c->is_freed)
        return;
    c->is_freed = true;
    flush_requests(c);
    while ((r = first_of(&c->sent)) != NULL || (r = first_of(&c->queued)) != NULL ||
           (r = first_of(&c->refused)) != NULL)
        unlink_request(c, r);
    stop_connecting(c);
    if (c->depth == 0)
        destroy_client(c);
}
