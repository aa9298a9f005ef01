/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages: the envelope, and the greeting that makes a connection a session's.
 */
#include <stdlib.h>

#include "base/auto.h"
#include "engine/remote/client_priv.h"

#define ATTACHED        (-32010) /* the session still has its old connection */
#define MAX_SESSION     1024     /* bytes of a session's id */
#define SERVERS_MISTAKE (-1)     /* the id of an answer to what was no message */

bool sp_client_send(struct sp_client *c, struct sp_str text)
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
    if (!ok || !sp_client_send(c, (struct sp_str){b.data, b.len}))
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
    if (!sp_client_send(c, SP_STR("{\"method\":\"initialized\",\"params\":{}}"))) {
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
           sp_client_send(c, (struct sp_str){b.data, b.len}));
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
        sp_client_answer(c, (uint64_t)id, &reply);
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
