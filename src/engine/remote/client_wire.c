/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client_wire: messages.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/auto.h"
#include "engine/remote/client_priv.h"

/*
 * Messages: the envelope, and the greeting that makes a connection a session's.
 */

#define ATTACHED        (-32010) /* the session still has its old connection */
#define MAX_SESSION     1024     /* bytes of a session's id */
#define SERVERS_MISTAKE (-1)     /* the id of an answer to what was no message */

/* false: no link that takes it */
static bool send_request(struct sp_client *c, struct sp_str text)
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
    if (!ok || !send_request(c, (struct sp_str){b.data, b.len}))
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

static void hear_welcome(struct sp_client *c, uint32_t result)
{
    const bool was_resumed = c->session != NULL;
    struct sp_str id = {0};
    struct sp_err e;

    if (sp_json_type(&c->json, result) != SP_JSON_OBJECT ||
        sp_json_need_str(&c->json, result, "sessionId", &id, &e) < 0 || !keep_session(c, id)) {
        (void)sp_fail(&c->error, SP_E_FAILED, 0,
                      was_resumed ? "the server gave another session than the one it was asked for"
                                  : "the server's answer to initialize names no session");
        sp_client_die(c);
        return;
    }
    if (!send_request(c, SP_STR("{\"method\":\"initialized\",\"params\":{}}"))) {
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
    c->ops->ready(c->user, &c->json, result, was_resumed);
    if (c->state == READY) {
        sp_link_pause(c->link, c->is_paused);
        sp_client_flush(c);
    }
    sp_client_leave(c);
}

static void hear_no_welcome(struct sp_client *c, const struct sp_client_reply *reply)
{
    if (c->session != NULL && reply->code == ATTACHED) {
        sp_client_retry_greeting(c);
        return;
    }
    (void)sp_fail(&c->error, SP_E_FAILED, 0, "%s: " SP_STR_FMT,
                  c->session != NULL ? "the server has forgotten the session"
                                     : "the server refused the session",
                  SP_STR_ARG(reply->message));
    sp_client_die(c);
}

static void hear_greeting(struct sp_client *c, const struct sp_client_reply *reply)
{
    c->greeting = 0;
    if (reply->fate == SP_CLIENT_RESULT)
        hear_welcome(c, reply->value);
    else
        hear_no_welcome(c, reply);
}

/* ---- the envelope ---- */

/* We do nothing that a server could ask for. */
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
           sp_buf_add_str(&b, raw) && sp_buf_add(&b, "}", 1) &&
           send_request(c, (struct sp_str){b.data, b.len}));
}

static void remove_from(struct sp_client_requests *list, struct sp_client_request *r)
{
    if (r->prev != NULL)
        r->prev->next = r->next;
    else
        list->first = r->next;
    if (r->next != NULL)
        r->next->prev = r->prev;
    else
        list->last = r->prev;
    r->prev = r->next = NULL;
}

static void drop_text(struct sp_client *c, struct sp_client_request *r)
{
    c->bytes -= r->text.len;
    sp_buf_done(&r->text);
}

static void unlink_request(struct sp_client *c, struct sp_client_requests *list,
                           struct sp_client_request *r)
{
    remove_from(list, r);
    drop_text(c, r);
    r->client = NULL;
    c->count--;
}

static void tell(struct sp_client *c, struct sp_client_requests *list, struct sp_client_request *r,
                 const struct sp_client_reply *reply)
{
    unlink_request(c, list, r);
    sp_client_enter(c);
    r->fn(r, reply);
    sp_client_leave(c);
}

static void complete_request(struct sp_client *c, uint64_t id, struct sp_client_reply *reply)
{
    struct sp_client_request *r = c->sent.first;

    while (r != NULL && r->id != id)
        r = r->next;
    if (r != NULL) /* else it was forgotten, or nobody's */
        tell(c, &c->sent, r, reply);
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
        hear_greeting(c, &reply);
    } else if (id > 0 && c->state == READY) {
        c->has_heard = true;
        complete_request(c, (uint64_t)id, &reply);
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

/*
 * Requests: in the order they were asked, those that wait to be sent, then those that wait for
 * their answer.
 */

static void append(struct sp_client_requests *list, struct sp_client_request *r)
{
    r->prev = list->last;
    r->next = NULL;
    if (list->last != NULL)
        list->last->next = r;
    else
        list->first = r;
    list->last = r;
}

static bool is_in(const struct sp_client_requests *list, const struct sp_client_request *r)
{
    for (const struct sp_client_request *i = list->first; i != NULL; i = i->next)
        if (i == r)
            return true;
    return false;
}

/* ---- asking ---- */

static void on_refusals(struct sp_deferred *d)
{
    struct sp_client *c = SP_CONTAINER(d, struct sp_client, refusals);

    sp_client_enter(c);
    while (c->refused.first != NULL && !c->is_freed) {
        struct sp_client_request *r = c->refused.first;
        struct sp_client_reply reply = {.fate = SP_CLIENT_REFUSED,
                                        .code = sp_code_wire(SP_E_LIMIT),
                                        .message = sp_str_of(r->refusal)};

        if (c->state == DEAD) {
            reply.fate = SP_CLIENT_LOST;
            reply.is_final = true;
            reply.message = sp_str_of(c->error.msg);
        }
        tell(c, &c->refused, r, &reply);
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
        append(&c->refused, r);
        sp_loop_defer(c->loop, &c->refusals, on_refusals);
        return;
    }
    append(&c->queued, r);
    sp_client_flush(c);
    if (c->state == IDLE)
        sp_client_connect(c);
}

void sp_client_forget(struct sp_client_request *r)
{
    struct sp_client *c = r->client;

    if (c == NULL)
        return;
    unlink_request(c,
                   r->refusal != NULL     ? &c->refused
                   : is_in(&c->queued, r) ? &c->queued
                                          : &c->sent,
                   r);
}

/* As many as the link takes. */
void sp_client_flush(struct sp_client *c)
{
    while (c->state == READY && c->queued.first != NULL && !sp_link_is_full(c->link)) {
        struct sp_client_request *r = c->queued.first;

        if (!send_request(c, (struct sp_str){r->text.data, r->text.len}))
            return;
        remove_from(&c->queued, r);
        append(&c->sent, r);
        if (!r->is_repeatable)
            drop_text(c, r);
    }
}

/* ---- answers ---- */

/* Those to be repeated go in front of those that were never sent, in their old order. */
void sp_client_requeue(struct sp_client *c)
{
    const struct sp_client_reply lost = {.fate = SP_CLIENT_LOST,
                                         .message = sp_str_of(c->error.msg)};
    struct sp_client_requests again = {0};
    struct sp_client_requests gone = {0};

    for (struct sp_client_request *r; (r = c->sent.first) != NULL;) {
        remove_from(&c->sent, r);
        append(r->is_repeatable ? &again : &gone, r);
    }
    for (struct sp_client_request *r; (r = c->queued.first) != NULL;) {
        remove_from(&c->queued, r);
        append(&again, r);
    }
    c->queued = again;
    c->sent = gone; /* where they can be forgotten from */
    sp_client_enter(c);
    while (c->sent.first != NULL && !c->is_freed)
        tell(c, &c->sent, c->sent.first, &lost);
    sp_client_leave(c);
}

void sp_client_lose_all(struct sp_client *c)
{
    const struct sp_client_reply lost = {
        .fate = SP_CLIENT_LOST, .message = sp_str_of(c->error.msg), .is_final = true};

    sp_client_enter(c);
    while (c->sent.first != NULL && !c->is_freed)
        tell(c, &c->sent, c->sent.first, &lost);
    while (c->queued.first != NULL && !c->is_freed)
        tell(c, &c->queued, c->queued.first, &lost);
    sp_client_leave(c);
}

void sp_client_forget_all(struct sp_client *c)
{
    while (c->sent.first != NULL)
        unlink_request(c, &c->sent, c->sent.first);
    while (c->queued.first != NULL)
        unlink_request(c, &c->queued, c->queued.first);
    while (c->refused.first != NULL)
        unlink_request(c, &c->refused, c->refused.first);
}

/* ---- the end ---- */

static int64_t clock_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void sp_client_settle(struct sp_client *c, unsigned timeout_ms)
{
    const int64_t until = clock_ms() + timeout_ms;

    if (c->depth != 0 || c->state != READY)
        return;
    sp_link_pause(c->link, false);
    for (int64_t left = timeout_ms; left > 0 && c->state == READY && c->link != NULL;
         left = until - clock_ms()) {
        sp_client_flush(c);
        if (c->sent.first == NULL && c->queued.first == NULL)
            return;
        if (!sp_link_is_live(c->link))
            return;
        sp_link_turn(c->link, (int)left);
    }
}
