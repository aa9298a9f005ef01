/* SPDX-License-Identifier: Apache-2.0 */
#include "server/rpc/network_callback.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/grow.h"
#include "core/session.h"
#include "server/rpc/ask.h"
#include "server/rpc/conn.h"

#define DECISION_MAX 4096 /* about the bytes of a notification */

/* A host that the client allowed for the rest of the process. */
struct allowed {
    char host[SP_HOSTNAME_MAX + 1];
    uint16_t port;
    enum sp_proxy_protocol protocol;
};

struct sp_network_callback {
    struct sp_rpc *rpc;
    struct sp_proc *proc;
    struct sp_waiter on_freed;
    uint64_t timeout_ms; /* 0: the client is not asked */
    struct sp_list questions;
    struct allowed *allowed;
    size_t count, cap;
    const struct decision *telling; /* the decision behind the verdict that is being given */
};

/* One network/policyRequest, and the connections that wait for its answer. */
struct question {
    struct sp_list link;
    struct sp_network_callback *by;
    struct sp_ask ask;
    struct sp_timer timer;
    struct allowed about;
    struct sp_list waiting; /* struct waiting */
    bool is_ending;
};

/* ask->user */
struct waiting {
    struct sp_list link;
    struct question *question;
    struct sp_net_ask *ask;
};

/* What is told about a verdict, in the protocol's words. */
struct decision {
    const char *decision, *source;
    struct sp_str reason;
    bool is_override; /* the client has allowed what the lists do not */
};

/* NULL: the session is detached, or its connection is closing. */
static struct sp_conn *conn_of(const struct sp_proc *p)
{
    if (p->session->client == NULL)
        return NULL;
    struct sp_conn *conn = SP_CONTAINER(p->session->client, struct sp_conn, client);
    return conn->is_closing ? NULL : conn;
}

/* ---- network/policyDecision ---- */

static bool add_timestamp(struct sp_buf *out)
{
    const uint64_t now = sp_clock_unix_ms();
    const time_t seconds = (time_t)(now / 1000);
    struct tm at = {0};
    char text[32];

    (void)gmtime_r(&seconds, &at);
    return strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &at) != 0 &&
           sp_json_add_value(out, "timestamp", "\"%s.%03uZ\"", text, (unsigned)(now % 1000));
}

/* Mode `limited` judges the way, not the host. */
static bool is_mode_guard(enum sp_network_reason r)
{
    return r == SP_NETWORK_REASON_METHOD_NOT_ALLOWED || r == SP_NETWORK_REASON_MITM_REQUIRED;
}

/* For sp_net_ops. Best effort: output of processes and replies go first. */
static void tell_decision(struct sp_proc *p, const struct sp_net_ask *a,
                          const struct sp_net_verdict *v)
{
    const struct sp_network_callback *by = p->net.user;
    struct sp_conn *conn = conn_of(p);
    const bool is_guard = is_mode_guard(v->reason);
    const char *reason = v->is_allowed ? "allow" : sp_network_reason_text(v->reason)->wire;
    const struct decision usual = {.decision = v->is_allowed ? "allow" : "deny",
                                   .source = is_guard ? "mode_guard" : "baseline_policy",
                                   .reason = sp_str_of(reason)};
    const struct decision *d = by->telling != NULL ? by->telling : &usual;
    const char *protocol = sp_proxy_protocol_name((uint8_t)a->protocol);
    auto_buf struct sp_buf text = {0};

    if (conn == NULL ||
        sp_link_queued(conn->link) + (size_t)SP_NETWORK_CALLBACK_RESERVE * DECISION_MAX >
            SP_LINK_FULL)
        return;
    if (!sp_buf_add_str(&text, SP_STR("{\"method\":\"network/policyDecision\",\"params\":{"
                                      "\"processId\":")) ||
        !sp_buf_add_str(&text, p->label) || !add_timestamp(&text) ||
        !sp_json_add_member(&text, "scope", sp_str_of(is_guard ? "non_domain" : "domain")) ||
        !sp_json_add_member(&text, "decision", sp_str_of(d->decision)) ||
        !sp_json_add_member(&text, "source", sp_str_of(d->source)) ||
        !sp_json_add_member(&text, "reason", d->reason) ||
        !sp_json_add_member(&text, "protocol", sp_str_of(protocol)) ||
        !sp_json_add_member(&text, "host", sp_str_of(a->host.text)) ||
        !sp_json_add_value(&text, "port", "%u", a->port) ||
        (a->method[0] != 0 && !sp_json_add_member(&text, "method", sp_str_of(a->method))) ||
        !sp_json_add_member(&text, "client", sp_str_of(a->client)) ||
        !sp_json_add_value(&text, "policyOverride", "%s}}", d->is_override ? "true" : "false"))
        return;
    char *o = sp_link_reserve(conn->link, text.len);
    if (o != NULL) {
        memcpy(o, text.data, text.len);
        sp_link_commit(conn->link, text.len);
    }
}

/* Gives a verdict that comes from the client, or from its silence. */
static void answer_ask(struct sp_network_callback *by, struct sp_net_ask *a,
                       const struct sp_net_verdict *v, const struct decision *d)
{
    by->telling = d;
    sp_net_answer(a, v);
    by->telling = NULL;
}

/* ---- what the client has allowed ---- */

static bool is_same(const struct allowed *x, const struct allowed *y)
{
    return x->port == y->port && x->protocol == y->protocol && strcmp(x->host, y->host) == 0;
}

static struct allowed key_of(const struct sp_net_ask *a)
{
    struct allowed key = {.port = a->port, .protocol = a->protocol};

    memcpy(key.host, a->host.text, sizeof key.host);
    return key;
}

static bool is_remembered(const struct sp_network_callback *by, const struct allowed *key)
{
    for (size_t i = 0; i < by->count; i++)
        if (is_same(&by->allowed[i], key))
            return true;
    return false;
}

/* Without memory the client is asked again. */
static void remember(struct sp_network_callback *by, const struct allowed *key)
{
    if (by->count < SP_NETWORK_CALLBACK_ALLOWED && SP_GROW(by->allowed, by->count, by->cap))
        by->allowed[by->count++] = *key;
}

static bool knows_host(struct sp_proc *p, const struct sp_hostname *host)
{
    const struct sp_network_callback *by = p->net.user;

    for (size_t i = 0; i < by->count; i++)
        if (strcmp(by->allowed[i].host, host->text) == 0)
            return true;
    return false;
}

static void allow_ask(struct sp_network_callback *by, struct sp_net_ask *a)
{
    const struct sp_net_verdict v = {.is_allowed = true, .is_decided = true, .is_kept = true};
    const struct decision d = {.decision = "allow",
                               .source = "decider",
                               .reason = SP_STR("not_allowed"),
                               .is_override = true};

    answer_ask(by, a, &v, &d);
}

/* ---- network/policyRequest ---- */

static void free_question(struct question *q)
{
    sp_ask_withdraw(&q->ask);
    sp_loop_cancel(q->by->rpc->front->loop, &q->timer);
    sp_list_remove(&q->link);
    free(q);
}

/* Takes the first connection that waits; NULL: none. */
static struct sp_net_ask *take_waiting(struct question *q)
{
    struct sp_list *first = sp_list_take_first(&q->waiting);

    if (first == NULL)
        return NULL;
    struct waiting *w = SP_CONTAINER(first, struct waiting, link);
    struct sp_net_ask *a = w->ask;
    a->user = NULL;
    free(w);
    return a;
}

/* A reason that is one of the proxy's words gets its texts. */
static enum sp_network_reason reason_of(struct sp_str text)
{
    for (unsigned i = SP_NETWORK_REASON_DENIED; i < SP_NETWORK_REASON_MAX; i++)
        if (sp_str_eq(text, sp_str_of(sp_network_reason_text(i)->wire)))
            return (enum sp_network_reason)i;
    return SP_NETWORK_REASON_OTHER;
}

/* decision: `deny` or `ask`. reason: of the client, or one of the proxy's words. */
static void end_denied(struct question *q, const char *decision, struct sp_str reason)
{
    struct sp_network_callback *by = q->by;
    auto_buf struct sp_buf text = {.max = SP_PROXY_TEXT_MAX};
    struct sp_net_verdict v = {.reason = reason_of(reason), .is_decided = true};
    const struct decision d = {.decision = decision, .source = "decider", .reason = reason};
    struct sp_net_ask *a;

    q->is_ending = true;
    if (v.reason == SP_NETWORK_REASON_OTHER &&
        sp_buf_printf(&text, "Network access to \"%s\" was blocked: ", q->about.host) &&
        sp_buf_add_str(&text, reason))
        v.text = sp_buf_str(&text);
    while ((a = take_waiting(q)) != NULL)
        answer_ask(by, a, &v, &d);
    free_question(q);
}

static void deny_question(struct question *q)
{
    end_denied(q, "deny", SP_STR("not_allowed"));
}

static void on_timeout(struct sp_timer *t)
{
    deny_question(SP_CONTAINER(t, struct question, timer));
}

static bool is_sound_reason(struct sp_str reason)
{
    if (reason.n > SP_NETWORK_CALLBACK_REASON)
        return false;
    for (size_t i = 0; i < reason.n; i++)
        if ((unsigned char)reason.p[i] < 0x20 || reason.p[i] == 0x7f)
            return false;
    return true;
}

/* What the client says: `allow`, `deny` or `ask`; NULL: nothing that can be understood. */
static const char *read_answer(struct sp_json *j, struct sp_str *ret_reason)
{
    struct sp_err e = {0};
    uint32_t decision = SP_JSON_NONE;
    struct sp_str type = {0};

    if (sp_json_type(j, 0) != SP_JSON_OBJECT ||
        sp_json_need_object(j, 0, "decision", &decision, &e) < 0 ||
        sp_json_need_str(j, decision, "type", &type, &e) < 0)
        return NULL;
    if (sp_str_eq(type, SP_STR("allow")))
        return "allow";
    const bool is_ask = sp_str_eq(type, SP_STR("ask"));
    if ((!is_ask && !sp_str_eq(type, SP_STR("deny"))) ||
        sp_json_need_str(j, decision, "reason", ret_reason, &e) < 0)
        return NULL;
    if (!is_sound_reason(*ret_reason))
        *ret_reason = SP_STR("not_allowed");
    else if (ret_reason->n == 0)
        *ret_reason = SP_STR("policy_denied");
    return is_ask ? "ask" : "deny";
}

static void on_answered(struct sp_ask *ask, struct sp_str result)
{
    struct question *q = SP_CONTAINER(ask, struct question, ask);
    struct sp_json j __attribute__((cleanup(sp_json_done))) = {0};
    auto_free char *copy =
        result.p == NULL || result.n > SP_NETWORK_CALLBACK_ANSWER_MAX ? NULL : malloc(result.n + 1);
    struct sp_err e = {0};
    struct sp_str reason = {0};
    const char *decision = NULL;

    if (copy != NULL) {
        memcpy(copy, result.p, result.n);
        if (sp_json_parse(&j, copy, result.n, &e) == 0)
            decision = read_answer(&j, &reason);
    }
    if (decision == NULL) {
        deny_question(q);
    } else if (strcmp(decision, "allow") == 0) {
        struct sp_net_ask *a;

        q->is_ending = true;
        remember(q->by, &q->about);
        sp_managed_forget(q->by->proc, (struct sp_str){0}); /* the proxy asks again for this name */
        /* A verdict may end the proxy, and with it the connections that still wait. */
        while ((a = take_waiting(q)) != NULL)
            allow_ask(q->by, a);
        free_question(q);
    } else {
        end_denied(q, decision, reason);
    }
}

/* The time-out of the client, and some for the way. */
static bool set_timer(struct question *q)
{
    struct sp_loop *loop = q->by->rpc->front->loop;
    const uint64_t now = sp_loop_now(loop);
    const uint64_t most = (uint64_t)INT64_MAX / 2;
    const uint64_t ms = q->by->timeout_ms > most ? most : q->by->timeout_ms;

    return sp_loop_timer(loop, &q->timer, now + ms + SP_NETWORK_CALLBACK_GRACE_MS, on_timeout);
}

/* false: the client cannot be asked. */
static bool send_question(struct question *q)
{
    struct sp_conn *conn = conn_of(q->by->proc);
    auto_buf struct sp_buf params = {0};

    return conn != NULL && sp_buf_add_str(&params, SP_STR("{\"processId\":")) &&
           sp_buf_add_str(&params, q->by->proc->label) &&
           sp_buf_printf(&params, ",\"request\":{\"protocol\":\"%s\",\"host\":\"%s\",\"port\":%u}}",
                         sp_proxy_protocol_name((uint8_t)q->about.protocol), q->about.host,
                         q->about.port) &&
           set_timer(q) &&
           sp_ask_send(&q->ask, conn, "network/policyRequest", sp_buf_str(&params), on_answered);
}

static struct question *find_question(const struct sp_network_callback *by,
                                      const struct allowed *key)
{
    sp_list_each(i, &by->questions) {
        struct question *q = SP_CONTAINER(i, struct question, link);

        if (!q->is_ending && is_same(&q->about, key))
            return q;
    }
    return NULL;
}

static struct question *make_question(struct sp_network_callback *by, const struct allowed *key)
{
    struct question *q = calloc(1, sizeof *q);

    if (q == NULL)
        return NULL;
    q->by = by;
    q->about = *key;
    sp_list_init(&q->waiting);
    sp_list_append(&by->questions, &q->link);
    if (send_question(q))
        return q;
    free_question(q);
    return NULL;
}

/* ---- verdicts ---- */

/* For sp_net_ops. */
static void judge(struct sp_proc *p, struct sp_net_ask *a)
{
    struct sp_network_callback *by = p->net.user;
    const struct allowed key = key_of(a);
    struct sp_net_verdict v;

    sp_net_judge_by_lists(a, &v);
    if (a->standing == SP_STANDING_UNLISTED && by->timeout_ms != 0) {
        if (is_remembered(by, &key)) {
            allow_ask(by, a);
            return;
        }
        struct waiting *w = calloc(1, sizeof *w);

        if (w != NULL) {
            w->ask = a;
            w->question = find_question(by, &key);
            if (w->question == NULL)
                w->question = make_question(by, &key);
        }
        if (w != NULL && w->question != NULL) {
            sp_list_append(&w->question->waiting, &w->link);
            a->user = w;
            return;
        }
        free(w);
        v.is_kept = false;
    }
    sp_net_answer(a, &v);
}

/* For sp_net_ops. */
static void forget_ask(struct sp_proc *p, struct sp_net_ask *a)
{
    struct waiting *w = a->user;

    (void)p;
    if (w == NULL)
        return;
    struct question *q = w->question;
    a->user = NULL;
    sp_list_remove(&w->link);
    free(w);
    if (sp_list_is_empty(&q->waiting) && !q->is_ending)
        free_question(q);
}

const struct sp_net_ops sp_network_callback_ops = {
    .judge = judge, .gone = forget_ask, .knows = knows_host, .decided = tell_decision};

/* ---- beginning and end ---- */

struct sp_network_callback *sp_network_callback_new(struct sp_rpc *rpc, uint64_t timeout_ms)
{
    struct sp_network_callback *c = calloc(1, sizeof *c);

    if (c == NULL)
        return NULL;
    c->rpc = rpc;
    c->timeout_ms = timeout_ms;
    sp_list_init(&c->questions);
    return c;
}

void sp_network_callback_free(struct sp_network_callback *c)
{
    if (c == NULL)
        return;
    free(c->allowed);
    free(c);
}

static void on_process_freed(struct sp_waiter *w)
{
    struct sp_network_callback *c = SP_CONTAINER(w, struct sp_network_callback, on_freed);
    struct sp_proc *p = c->proc;

    sp_managed_leave(p); /* ends the questions */
    p->net.ops = NULL;
    p->net.user = NULL;
    sp_network_callback_free(c);
}

void sp_network_callback_bind(struct sp_network_callback *c, struct sp_proc *p)
{
    c->proc = p;
    c->on_freed.fn = on_process_freed;
    sp_waiters_add(&p->on_freed, &c->on_freed);
}

/* The session is being detached: its questions deny. */
static void on_closed(struct sp_conn *conn)
{
    struct sp_list *i = conn->asks.next;

    assert(conn->is_closing); /* the link takes no more messages */
    while (i != &conn->asks) {
        struct sp_ask *ask = SP_CONTAINER(i, struct sp_ask, link);

        if (ask->answered == on_answered) {
            deny_question(SP_CONTAINER(ask, struct question, ask));
            i = conn->asks.next; /* the denial may have ended more asks */
        } else
            i = i->next;
    }
}

static const struct sp_method methods[] = {{0}};

const struct sp_family sp_network_family = {.methods = methods, .closed = on_closed};
