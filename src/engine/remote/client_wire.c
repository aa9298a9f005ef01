/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client_wire: the messages of a client: initialize, incoming messages, and the queue of requests.
 *
 * Requests wait in `queued` until the link takes them and in `sent` until they are answered. Those
 * refused without being sent wait in `refused` for the loop.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/auto.h"
#include "base/clock.h"
#include "engine/remote/client_priv.h"

#define ATTACHED        (-32010) /* wire code: the session still has its old connection */
#define MAX_SESSION     1024     /* longest session id, in bytes */
#define SERVERS_MISTAKE (-1)     /* id of the server's answer to an unparsable message */

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

/* ---- the greeting ---- */

void sp_client_greet(struct sp_client *c)
{
    auto_buf struct sp_buf b = {0};

    c->greeting = ++c->last_id;
    const bool ok =
        sp_buf_printf(&b, "{\"id\":%llu,\"method\":\"initialize\",\"params\":{\"clientName\":",
                      (unsigned long long)c->greeting) &&
        sp_json_add_str(&b, sp_str_of(c->name)) && sp_buf_printf(&b, ",\"resumeSessionId\":") &&
        (c->session == NULL ? sp_buf_printf(&b, "null")
                            : sp_json_add_str(&b, sp_str_of(c->session))) &&
        sp_buf_printf(&b, "}}");
    if (!ok || !send_text(c, sp_buf_str(&b)))
        sp_client_abandon(c, "no memory to greet the server");
}

static bool keep_session(struct sp_client *c, struct sp_str id)
{
    if (c->session != NULL)
        return sp_str_eq(id, sp_str_of(c->session));
    if (id.n == 0 || id.n > MAX_SESSION || sp_str_has_nul(id))
        return false;
    c->session = strndup(id.p, id.n);
    return c->session != NULL;
}

static void hear_welcome(struct sp_client *c, const struct sp_client_reply *reply)
{
    const bool was_resumed = c->session != NULL;
    struct sp_str id = {0};
    struct sp_err e;

    c->greeting = 0;
    if (reply->fate != SP_CLIENT_RESULT && was_resumed && reply->code == ATTACHED) {
        sp_client_retry_greeting(c);
        return;
    }
    if (reply->fate != SP_CLIENT_RESULT) {
        (void)sp_fail(&c->error, SP_E_FAILED, 0, "%s: " SP_STR_FMT,
                      was_resumed ? "the server has forgotten the session"
                                  : "the server refused the session",
                      SP_STR_ARG(reply->message));
        sp_client_die(c);
        return;
    }
    if (sp_json_type(&c->json, reply->value) != SP_JSON_OBJECT ||
        sp_json_need_str(&c->json, reply->value, "sessionId", &id, &e) < 0 ||
        !keep_session(c, id)) {
        (void)sp_fail(&c->error, SP_E_FAILED, 0,
                      was_resumed ? "the server gave another session than the one it was asked for"
                                  : "the server's answer to initialize names no session");
        sp_client_die(c);
        return;
    }
    if (!send_text(c, SP_STR("{\"method\":\"initialized\",\"params\":{}}"))) {
        sp_client_abandon(c, "no memory to greet the server");
        return;
    }
    sp_loop_cancel(c->loop, &c->timer);
    c->state = READY;
    c->ready_ms = sp_loop_now(c->loop);
    c->has_heard = false;
    c->tries = 0;
    if (!was_resumed)
        c->lost_ms = 0;
    sp_client_enter(c);
    c->ops->ready(c->user, &c->json, reply->value, was_resumed);
    if (c->state == READY) {
        sp_link_pause(c->link, c->is_paused);
        sp_client_flush(c);
    }
    sp_client_leave(c);
}

/* ---- the envelope ---- */

/* This client implements no methods. */
static void refuse_request(struct sp_client *c, uint32_t id, struct sp_str method)
{
    auto_buf struct sp_buf b = {0};
    const struct sp_str raw = sp_json_raw(&c->json, id);

    if (c->state < GREETING || sp_link_is_full(c->link)) {
        sp_client_abandon(c, "the server asks more than it reads answers");
        return;
    }
    (void)(sp_buf_printf(&b,
                         "{\"error\":{\"code\":-32601,\"message\":\"exec-server client does not "
                         "implement ") &&
           sp_buf_printf(&b, "`%.*s` yet\"},\"id\":", (int)(method.n > 64 ? 64 : method.n),
                         method.p) &&
           sp_buf_add_str(&b, raw) && sp_buf_add(&b, "}", 1) && send_text(c, sp_buf_str(&b)));
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
    sp_client_enter(c);
    r->fn(r, reply);
    sp_client_leave(c);
}

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
    }
    if (id == SERVERS_MISTAKE && reply.fate == SP_CLIENT_REFUSED) {
        (void)sp_fail(&c->error, SP_E_FAILED, 0, "the server could not read a message: " SP_STR_FMT,
                      SP_STR_ARG(reply.message));
        sp_client_die(c);
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

static bool is_plain(struct sp_str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] < ' ' || s.p[i] == '"' || s.p[i] == '\\')
            return false;
    return true;
}

static void hear_method(struct sp_client *c, uint32_t method, uint32_t id)
{
    const uint32_t params = sp_json_get(&c->json, 0, "params");

    if (sp_json_type(&c->json, method) != SP_JSON_STRING) {
        sp_client_abandon(c, "the server sent a message whose method is no text");
        return;
    }
    if (id != SP_JSON_NONE) {
        const struct sp_str raw = sp_json_raw(&c->json, method);
        const struct sp_str name = {raw.p + 1, raw.n - 2};

        refuse_request(c, id, is_plain(name) ? name : SP_STR("?"));
        return;
    }
    c->has_heard = true;
    c->ops->notified(c->user, sp_json_str(&c->json, method), &c->json, params);
}

void sp_client_hear(struct sp_client *c, char *text, size_t len)
{
    struct sp_err e;
    int64_t id = 0;

    if (sp_json_parse(&c->json, text, len, &e) < 0 || sp_json_type(&c->json, 0) != SP_JSON_OBJECT) {
        sp_client_abandon(c, "the server sent what is no message");
        return;
    }
    const uint32_t method = sp_json_get(&c->json, 0, "method");
    const uint32_t id_token = sp_json_get(&c->json, 0, "id");
    const uint32_t result = sp_json_get(&c->json, 0, "result");
    const uint32_t error = sp_json_get(&c->json, 0, "error");
    if (method != SP_JSON_NONE) {
        hear_method(c, method, id_token);
    } else if (id_token == SP_JSON_NONE ||
               (result == SP_JSON_NONE &&
                (error == SP_JSON_NONE || sp_json_type(&c->json, error) != SP_JSON_OBJECT))) {
        sp_client_abandon(c, "the server sent what is neither answer nor notification");
    } else if (sp_json_i64(&c->json, id_token, &id)) {
        hear_answer(c, id, result, error);
    }
    sp_json_trim(&c->json);
}

/* ---- requests ---- */

static void on_refusals(struct sp_deferred *d)
{
    struct sp_client *c = SP_CONTAINER(d, struct sp_client, refusals);
    struct sp_client_request *r;

    sp_client_enter(c);
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
    sp_client_leave(c);
}

static const char *write_text(struct sp_client *c, struct sp_client_request *r, const char *method,
                              struct sp_str params)
{
    if (c->state == DEAD)
        return "";
    if (c->count >= SP_CLIENT_MAX_REQUESTS)
        return "too many requests wait for this server's answers";
    if (params.n > SP_CLIENT_MAX_BYTES || c->bytes + params.n > SP_CLIENT_MAX_BYTES)
        return "requests that wait for this server hold too much memory";
    if (!sp_buf_printf(&r->text, "{\"id\":%llu,\"method\":\"%s\",\"params\":",
                       (unsigned long long)r->id, method) ||
        !sp_buf_add_str(&r->text, params) || !sp_buf_add(&r->text, "}", 1)) {
        sp_buf_done(&r->text);
        return "no memory for a request";
    }
    return NULL;
}

void sp_client_ask(struct sp_client *c, struct sp_client_request *r, const char *method,
                   struct sp_str params)
{
    r->id = ++c->last_id;
    r->client = c;
    r->text = (struct sp_buf){0};
    r->refusal = write_text(c, r, method, params);
    c->bytes += r->text.len;
    c->count++;
    if (r->refusal != NULL) {
        sp_list_append(&c->refused, &r->link);
        sp_loop_defer(c->loop, &c->refusals, on_refusals);
        return;
    }
    sp_list_append(&c->queued, &r->link);
    sp_client_flush(c);
    if (c->state == IDLE)
        sp_client_connect(c);
}

void sp_client_forget(struct sp_client_request *r)
{
    if (r->client != NULL)
        unlink_request(r->client, r);
}

void sp_client_flush(struct sp_client *c)
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

/* ---- answers ---- */

static void lose_list(struct sp_client *c, struct sp_list *list, bool is_final)
{
    const struct sp_client_reply lost = {
        .fate = SP_CLIENT_LOST, .message = sp_str_of(c->error.msg), .is_final = is_final};
    struct sp_client_request *r;

    sp_client_enter(c);
    while (!c->is_freed && (r = first_of(list)) != NULL)
        answer_request(c, r, &lost);
    sp_client_leave(c);
}

/* Repeatable requests go in front of those never sent, in their old order. */
void sp_client_requeue(struct sp_client *c)
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

void sp_client_lose_all(struct sp_client *c)
{
    sp_client_enter(c);
    lose_list(c, &c->sent, true);
    lose_list(c, &c->queued, true);
    sp_client_leave(c);
}

void sp_client_forget_all(struct sp_client *c)
{
    struct sp_client_request *r;

    while ((r = first_of(&c->sent)) != NULL || (r = first_of(&c->queued)) != NULL ||
           (r = first_of(&c->refused)) != NULL)
        unlink_request(c, r);
}

/* ---- the end ---- */

void sp_client_settle(struct sp_client *c, unsigned timeout_ms)
{
    const int64_t until = (int64_t)sp_clock_ms() + timeout_ms;

    if (c->depth != 0 || c->state != READY)
        return;
    sp_link_pause(c->link, false);
    for (int64_t left = timeout_ms; left > 0 && c->state == READY && c->link != NULL;
         left = until - (int64_t)sp_clock_ms()) {
        sp_client_flush(c);
        if (sp_list_is_empty(&c->sent) && sp_list_is_empty(&c->queued))
            return;
        if (!sp_link_is_live(c->link))
            return;
        sp_link_turn(c->link, (int)left);
    }
}
