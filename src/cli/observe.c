/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/observe.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/auto.h"
#include "cli/escape_text.h"
#include "cli/port.h"

#define RESUME_MS 5000 /* a person waits: not for long */

struct sp_observe {
    struct sp_observe_server server;
    struct sp_loop *loop;
    struct sp_client *client;
    const struct sp_observe_ops *ops; /* NULL: nobody listens */
    void *user;
    bool is_ready, can_observe;
    struct sp_err death; /* code NONE: alive */
};

/* ---- what the client tells ---- */

static bool has_capability(struct sp_json *j, uint32_t result)
{
    uint32_t at = result;

    for (const char *const *key = (const char *const[]){"environmentInfo", "capabilities", NULL};
         *key != NULL; key++) {
        at = sp_json_type(j, at) == SP_JSON_OBJECT ? sp_json_get(j, at, *key) : SP_JSON_NONE;
        if (at == SP_JSON_NONE)
            return false;
    }
    at = sp_json_type(j, at) == SP_JSON_OBJECT ? sp_json_get(j, at, "observe") : SP_JSON_NONE;
    return at != SP_JSON_NONE && sp_json_type(j, at) == SP_JSON_TRUE;
}

static void on_ready(void *user, struct sp_json *j, uint32_t value, bool was_resumed)
{
    struct sp_observe *o = user;

    (void)was_resumed; /* what we are attached to ended with the connection in either case */
    if (o->is_ready) {
        if (o->ops != NULL && o->ops->back != NULL)
            o->ops->back(o->user);
        return;
    }
    o->is_ready = true;
    o->can_observe = has_capability(j, value);
    sp_loop_stop(o->loop);
}

static void on_notified(void *user, struct sp_str method, struct sp_json *j, uint32_t params)
{
    struct sp_observe *o = user;

    if (o->ops != NULL && o->ops->notified != NULL)
        o->ops->notified(o->user, method, j, params);
}

static void on_interrupted(void *user, const char *why)
{
    struct sp_observe *o = user;

    if (o->ops != NULL && o->ops->interrupted != NULL)
        o->ops->interrupted(o->user, why);
}

static void on_dead(void *user, const struct sp_err *why)
{
    struct sp_observe *o = user;

    o->death = *why;
    if (o->death.code == SP_E_NONE)
        o->death.code = SP_E_FAILED;
    if (o->ops != NULL && o->ops->dead != NULL)
        o->ops->dead(o->user);
    sp_loop_stop(o->loop);
}

static const struct sp_client_ops client_ops = {
    .ready = on_ready, .notified = on_notified, .interrupted = on_interrupted, .dead = on_dead};

/* ---- beginning and end ---- */

static int begin(struct sp_observe *o, const struct sp_observe_flags *f, struct sp_err *e)
{
    int r = sp_observe_find(f, &o->server, e);

    if (r == 0)
        r = sp_loop_new(&o->loop, e);
    if (r < 0)
        return r;
    const struct sp_client_options options = {
        .url = o->server.url,
        .token = o->server.token,
        .connect_timeout_ms = o->server.connect_timeout_ms,
        .resume_ms = RESUME_MS,
        .client_name = "sallyport",
    };
    r = sp_client_new(o->loop, &options, &client_ops, o, &o->client, e);
    if (r < 0)
        return r;
    sp_client_connect(o->client);
    r = sp_loop_run(o->loop, e);
    if (r < 0)
        return r;
    if (o->death.code != SP_E_NONE) {
        *e = o->death;
        return -(int)e->code;
    }
    return o->can_observe ? 0
                          : sp_fail(e, SP_E_FAILED, 0,
                                    "the server at %s does not let its processes be observed",
                                    o->server.shown);
}

int sp_observe_open(const struct sp_observe_flags *f, struct sp_observe **ret)
{
    struct sp_err e = {0};
    struct sp_observe *o = calloc(1, sizeof *o);

    if (o == NULL) {
        (void)sp_fail(&e, SP_E_SYSTEM, ENOMEM, "look at a server");
        return sp_cli_complain(&e);
    }
    sp_port_fill_gaps();
    (void)signal(SIGCHLD, SIG_DFL);
    if (begin(o, f, &e) == 0) {
        *ret = o;
        return SP_EXIT_OK;
    }
    const int status = sp_observe_complain(o, &e);
    sp_observe_free(o);
    return status;
}

void sp_observe_free(struct sp_observe *o)
{
    if (o == NULL)
        return;
    o->ops = NULL;
    sp_client_free(o->client);
    sp_loop_free(o->loop);
    sp_observe_server_done(&o->server);
    free(o);
}

struct sp_loop *sp_observe_loop(struct sp_observe *o)
{
    return o->loop;
}

struct sp_client *sp_observe_client(struct sp_observe *o)
{
    return o->client;
}

const char *sp_observe_url(const struct sp_observe *o)
{
    return o->server.shown;
}

void sp_observe_set_ops(struct sp_observe *o, const struct sp_observe_ops *ops, void *user)
{
    o->ops = ops;
    o->user = user;
}

const struct sp_err *sp_observe_death(const struct sp_observe *o)
{
    return o->death.code != SP_E_NONE ? &o->death : NULL;
}

/* ---- asking ---- */

struct question {
    struct sp_client_request request;
    struct sp_observe *observe;
    void (*fn)(void *user, struct sp_json *j, uint32_t result);
    void *user;
    struct sp_err *error;
    int result;
    bool is_answered;
};

/* The server's words, which may be anything. */
static int refuse(enum sp_code code, const struct sp_client_reply *reply, struct sp_err *e)
{
    auto_buf struct sp_buf text = {0};

    (void)sp_plain_add(&text, reply->message); /* no memory: less is said */
    return sp_fail(e, code, 0, SP_STR_FMT, (int)text.len, text.data != NULL ? text.data : "");
}

static void on_answer(struct sp_client_request *r, const struct sp_client_reply *reply)
{
    struct question *q = SP_CONTAINER(r, struct question, request);

    q->is_answered = true;
    switch (reply->fate) {
    case SP_CLIENT_RESULT:
        q->result = 0;
        if (q->fn != NULL)
            q->fn(q->user, reply->j, reply->value);
        break;
    case SP_CLIENT_REFUSED:
        q->result = refuse(reply->code == sp_code_wire(SP_E_ATTACHED) ? SP_E_ATTACHED : SP_E_FAILED,
                           reply, q->error);
        break;
    case SP_CLIENT_LOST:
        q->result = refuse(SP_E_FAILED, reply, q->error);
        break;
    }
    sp_loop_stop(q->observe->loop);
}

int sp_observe_ask(struct sp_observe *o, const char *method, struct sp_str params,
                   void (*fn)(void *user, struct sp_json *j, uint32_t result), void *user,
                   struct sp_err *e)
{
    struct sp_err unheard = {0};
    struct question q = {
        .request = {.fn = on_answer, .is_repeatable = true},
        .observe = o,
        .fn = fn,
        .user = user,
        .error = e != NULL ? e : &unheard,
    };
    int r = 0;

    sp_client_ask(o->client, &q.request, method, params);
    while (r == 0 && !q.is_answered && o->death.code == SP_E_NONE)
        r = sp_loop_run(o->loop, q.error);
    if (q.is_answered)
        return q.result;
    sp_client_forget(&q.request);
    if (r == 0) {
        *q.error = o->death;
        r = -(int)o->death.code;
    }
    return r;
}

int sp_observe_complain(const struct sp_observe *o, const struct sp_err *e)
{
    (void)sp_cli_complain(e);
    return o->death.code != SP_E_NONE ? SP_EXIT_UNREACHABLE : SP_EXIT_FAILED;
}
