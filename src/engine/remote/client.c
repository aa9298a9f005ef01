/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client: the life of a client: connecting, greeting, losing and resuming the connection.
 */
#include "engine/remote/client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/redact.h"
#include "engine/remote/client_priv.h"

#define CONNECT_MS   10000U
#define RESUME_MS    25000U
#define PING_MS      30000U
#define SILENCE_MS   60000U
#define FIRST_REST   100U /* ms between tries, doubled up to LONGEST_REST */
#define LONGEST_REST 1000U
#define FIRST_TRIES  4U    /* tries for a first session when connections are cut */
#define STEADY_MS    5000U /* a connection that lived so long restarts the time to resume */

static void connect_now(struct sp_client *c);

/* ---- callbacks, which may free the client: it goes when the outermost returns ---- */

void sp_client_enter(struct sp_client *c)
{
    c->depth++;
}

static void destroy_client(struct sp_client *c);

static void on_client_sweep(struct sp_deferred *d)
{
    destroy_client(SP_CONTAINER(d, struct sp_client, sweep));
}

void sp_client_leave(struct sp_client *c)
{
    if (--c->depth == 0 && c->is_freed)
        sp_loop_defer(c->loop, &c->sweep, on_client_sweep);
}

/* ---- the end ---- */

/* Adds the server's name and the errno text. */
static void place_error(struct sp_client *c)
{
    struct sp_err e = c->error;
    char text[480];

    (void)sp_error_text(&e, text, sizeof text);
    (void)sp_fail(&c->error, e.code == SP_E_NONE ? SP_E_FAILED : e.code, e.sys,
                  "exec-server %.120s: %s", c->where, text);
    c->error.sys = 0; /* now part of the text */
}

static void stop_connecting(struct sp_client *c)
{
    sp_dial_stop(&c->dial);
    sp_loop_cancel(c->loop, &c->timer);
    sp_loop_undefer(c->loop, &c->begin);
}

void sp_client_die(struct sp_client *c)
{
    if (c->state == DEAD)
        return;
    stop_connecting(c);
    place_error(c);
    c->state = DEAD;
    if (c->link != NULL)
        sp_link_close(c->link, "the session is over");
    else if (c->host.total == 0)
        sp_remote_program_end(&c->child);
    sp_client_enter(c);
    sp_client_lose_all(c);
    if (!c->is_freed && c->ops->dead != NULL)
        c->ops->dead(c->user, &c->error);
    sp_client_leave(c);
}

/* ---- trying again ---- */

/* When to give up: connecting first, or resuming the session. */
static uint64_t try_end(const struct sp_client *c)
{
    return c->lost_ms + (c->session == NULL ? c->connect_ms : c->resume_ms);
}

/* Time for this try. */
static uint64_t patience(const struct sp_client *c)
{
    const uint64_t now = sp_loop_now(c->loop);
    const uint64_t left = try_end(c) > now ? try_end(c) - now : 0;

    return left < c->connect_ms ? left : c->connect_ms;
}

static void on_rested(struct sp_timer *t)
{
    connect_now(SP_CONTAINER(t, struct sp_client, timer));
}

static void give_up(struct sp_client *c)
{
    struct sp_err last = c->error;
    char text[400];

    (void)sp_error_text(&last, text, sizeof text);
    (void)sp_fail(&c->error, SP_E_FAILED, 0,
                  "the connection was lost and could not be resumed within %llu ms: %s",
                  (unsigned long long)c->resume_ms, text);
    sp_client_die(c);
}

/* false: out of memory. */
static bool schedule_retry(struct sp_client *c, uint64_t ms)
{
    c->tries++;
    c->state = RESTING;
    return sp_loop_timer(c->loop, &c->timer, sp_loop_now(c->loop) + ms, on_rested);
}

/* A connection attempt failed. was_cut: a connection existed and broke. A first connection that
 * cannot be made at all is not tried again, so that the caller learns of it at once. */
static void try_again(struct sp_client *c, bool was_cut)
{
    const uint64_t ms = c->tries > 3 ? LONGEST_REST : FIRST_REST << c->tries;
    const bool is_first = c->session == NULL;
    const bool is_late = sp_loop_now(c->loop) + ms >= try_end(c);

    if (c->program != NULL || (is_first && (!was_cut || is_late || c->tries >= FIRST_TRIES)))
        sp_client_die(c);
    else if (is_late || !schedule_retry(c, ms))
        give_up(c);
}

/* The connection of a session is lost. */
static void lose_connection(struct sp_client *c, bool was_cut)
{
    const uint64_t now = sp_loop_now(c->loop);

    /* A server that drops us after each greeting, or sends invalid messages, gets no new time to
     * resume with each connection; one behind an unreliable network does. */
    if (c->lost_ms == 0 || (was_cut && c->has_heard) || now - c->ready_ms >= STEADY_MS)
        c->lost_ms = now;
    c->state = RESTING;
    sp_client_enter(c);
    if (c->program == NULL) {
        sp_client_requeue(c);
        if (!c->is_freed && c->ops->interrupted != NULL)
            c->ops->interrupted(c->user, c->error.msg);
    }
    if (!c->is_freed)
        try_again(c, true);
    sp_client_leave(c);
}

void sp_client_abandon(struct sp_client *c, const char *why)
{
    if (c->state == DEAD || c->state == LEAVING || c->link == NULL)
        return;
    (void)sp_fail(&c->error, SP_E_FAILED, 0, "%s", why);
    sp_loop_cancel(c->loop, &c->timer);
    c->state = LEAVING;
    sp_link_close(c->link, why);
}

/* ---- the link ---- */

static void on_message(void *user, char *text, size_t len)
{
    struct sp_client *c = user;

    if (c->is_freed || (c->state != GREETING && c->state != READY))
        return;
    sp_client_enter(c);
    sp_client_hear(c, text, len);
    sp_client_leave(c);
}

static void on_not_text(void *user)
{
    struct sp_client *c = user;

    sp_client_abandon(c, "the server sent what is no text");
}

static void on_drained(void *user)
{
    sp_client_flush(user);
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
    if (was_ready)
        lose_connection(c, was_cut);
    else
        try_again(c, was_cut);
}

static void on_greeting_late(struct sp_timer *t)
{
    sp_client_abandon(SP_CONTAINER(t, struct sp_client, timer),
                      "the server did not answer initialize in time");
}

static void on_greet_again(struct sp_timer *t)
{
    struct sp_client *c = SP_CONTAINER(t, struct sp_client, timer);

    if (!sp_loop_timer(c->loop, t, c->greet_until_ms, on_greeting_late))
        sp_client_abandon(c, "no memory");
    else
        sp_client_greet(c);
}

/* The server has not noticed yet that the old connection is gone. */
void sp_client_retry_greeting(struct sp_client *c)
{
    const uint64_t now = sp_loop_now(c->loop);

    c->greet_until_ms = try_end(c);
    c->greeting = ++c->last_id; /* an id that matches no answer */
    if (now + FIRST_REST >= c->greet_until_ms) {
        (void)sp_fail(&c->error, SP_E_ATTACHED, 0,
                      "the session is still attached to another connection");
        give_up(c);
    } else if (!sp_loop_timer(c->loop, &c->timer, now + 2ULL * FIRST_REST, on_greet_again)) {
        sp_client_abandon(c, "no memory");
    }
}

static void start_greeting(struct sp_client *c)
{
    c->state = GREETING;
    c->greet_until_ms = sp_loop_now(c->loop) + patience(c);
    if (!sp_loop_timer(c->loop, &c->timer, c->greet_until_ms, on_greeting_late))
        sp_client_abandon(c, "no memory");
    else
        sp_client_greet(c);
}

/* Deferred: the link cannot send from inside its opened callback. */
static void on_greet(struct sp_deferred *d)
{
    struct sp_client *c = SP_CONTAINER(d, struct sp_client, begin);

    if (c->state == OPENING && c->link != NULL)
        start_greeting(c);
}

static bool on_opened(void *user, struct sp_link *l)
{
    static const struct sp_link_ops ops = {on_message, on_not_text, on_drained, on_closed};
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
        sp_remote_program_end(&c->child);
}

/* ---- connecting ---- */

static void fill_upgrade(const struct sp_client *c, struct sp_upgrade *u)
{
    const struct sp_target *t = &c->target;

    *u = (struct sp_upgrade){.token = c->token};
    if (t->is_unix)
        (void)snprintf(u->host, sizeof u->host, "localhost");
    else
        (void)snprintf(u->host, sizeof u->host, "%s%s%s:%u", t->is_bracketed ? "[" : "", t->host,
                       t->is_bracketed ? "]" : "", t->port);
    (void)snprintf(u->path, sizeof u->path, "%s", t->path);
}

static void on_dialed(struct sp_dial *d, int fd, const struct sp_err *e)
{
    struct sp_client *c = SP_CONTAINER(d, struct sp_client, dial);
    const bool is_lines = c->target.is_unix && c->token == NULL; /* a token needs an HTTP header */
    struct sp_upgrade u;

    if (fd < 0) {
        c->error = *e;
        try_again(c, false);
        return;
    }
    c->state = OPENING;
    fill_upgrade(c, &u);
    c->host.handshake_ms = patience(c);
    if (sp_link_new_client(&c->host, fd, is_lines ? NULL : &u, c->where, &c->error) < 0)
        try_again(c, false);
}

static void connect_now(struct sp_client *c)
{
    sp_client_enter(c);
    if (c->program != NULL) {
        c->state = OPENING;
        if (sp_remote_program_start(&c->child, c->loop, (const char *const *)c->program,
                                    (const char *const *)c->env, &c->error) < 0 ||
            sp_link_new_pair(&c->host, c->child.in, c->child.out, c->where, &c->error) < 0)
            sp_client_die(c);
    } else {
        c->state = DIALING;
        c->dial = (struct sp_dial){.loop = c->loop, .target = &c->target, .done = on_dialed};
        sp_dial_begin(&c->dial, patience(c));
    }
    sp_client_leave(c);
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

static void free_list(char **list)
{
    for (size_t i = 0; list != NULL && list[i] != NULL; i++)
        free(list[i]);
    free((void *)list);
}

static bool copy_list(const char *const *list, char ***ret)
{
    size_t n = 0;

    if (list == NULL)
        return true;
    while (list[n] != NULL)
        n++;
    *ret = calloc(n + 1, sizeof **ret);
    for (size_t i = 0; *ret != NULL && i < n; i++)
        if (((*ret)[i] = strdup(list[i])) == NULL)
            return false;
    return *ret != NULL;
}

static bool copy_text(const char *text, char **ret)
{
    *ret = text == NULL ? NULL : strdup(text);
    return text == NULL || *ret != NULL;
}

/* Sent in a header without quoting. */
static bool is_token(const char *token)
{
    for (const char *p = token; *p != 0; p++)
        if (*p <= ' ' || *p >= 0x7F)
            return false;
    return token[0] != 0;
}

static int check_options(const struct sp_client_options *o, struct sp_target *ret, struct sp_err *e)
{
    if ((o->url == NULL) == (o->program == NULL || o->program[0] == NULL))
        return sp_fail(e, SP_E_INVALID, 0, "a server is a URL or a program: one of them");
    if (o->token != NULL && !is_token(o->token))
        return sp_fail(e, SP_E_INVALID, 0, "the server's token has characters no token can have");
    if (o->token != NULL && o->url == NULL)
        return sp_fail(e, SP_E_INVALID, 0, "a program takes no token");
    return o->url == NULL ? 0 : sp_target_parse(o->url, ret, e);
}

static void destroy_client(struct sp_client *c)
{
    stop_connecting(c);
    sp_loop_undefer(c->loop, &c->refusals);
    while (c->host.first != NULL)
        sp_link_end_now(c->host.first, "the client ends");
    sp_remote_program_end_now(&c->child);
    sp_json_done(&c->json);
    free(c->where);
    free(c->session);
    free(c->name);
    if (c->token != NULL)
        explicit_bzero(c->token, strlen(c->token));
    free(c->token);
    explicit_bzero(c->target.path, sizeof c->target.path);
    free_list(c->program);
    free_list(c->env);
    free(c);
}

int sp_client_new(struct sp_loop *loop, const struct sp_client_options *o,
                  const struct sp_client_ops *ops, void *user, struct sp_client **ret,
                  struct sp_err *e)
{
    struct sp_target target = {0};
    const int r = check_options(o, &target, e);
    struct sp_client *c = r < 0 ? NULL : calloc(1, sizeof *c);

    if (r < 0)
        return r;
    if (c == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a client");
    c->loop = loop;
    c->ops = ops;
    c->user = user;
    c->target = target;
    sp_list_init(&c->sent);
    sp_list_init(&c->queued);
    sp_list_init(&c->refused);
    c->connect_ms = o->connect_timeout_ms == 0 ? CONNECT_MS : o->connect_timeout_ms;
    c->resume_ms = o->resume_ms == 0 ? RESUME_MS : o->resume_ms;
    c->host = (struct sp_link_host){.loop = loop,
                                    .ping_every_ms = PING_MS,
                                    .silence_ms = SILENCE_MS,
                                    .handshake_ms = c->connect_ms,
                                    .scratch = c->scratch,
                                    .is_client = true,
                                    .user = c,
                                    .opened = on_opened,
                                    .failed = on_failed,
                                    .gone = on_gone};
    c->where = o->url != NULL ? sp_redact_url(o->url) : strdup(o->program[0]);
    if (c->where == NULL ||
        !copy_text(o->client_name != NULL ? o->client_name : "sallyport", &c->name) ||
        !copy_text(o->token, &c->token) ||
        !copy_list(o->url != NULL ? NULL : o->program, &c->program) ||
        !copy_list(o->env, &c->env)) {
        destroy_client(c);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a client");
    }
    *ret = c;
    return 0;
}

void sp_client_free(struct sp_client *c)
{
    if (c == NULL || c->is_freed)
        return;
    c->is_freed = true;
    sp_client_flush(c);
    sp_client_forget_all(c);
    stop_connecting(c);
    if (c->depth == 0)
        destroy_client(c);
}
