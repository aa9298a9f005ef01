/* SPDX-License-Identifier: Apache-2.0 */
/*
 * call_ask: the questions of a call, and who is asked.
 *
 * Modern with forms: the run is parked and the call ends with `input_required`; the client comes
 * back for it. Legacy with forms: the client is sent a request, and its response decides; if the
 * call cannot wait so long, the response finds the run where it is parked. A host without forms, or
 * one that gives no answer: the next approver (approve/approvers.h).
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/auto.h"
#include "mcp/elicit.h"
#include "mcp/mcp_call.h"

#define PENDING "approval is still pending; repeat the same call"
#define AT_WORK "there is no answer yet; repeat the same call"

/* A request of ours that the client has not answered. */
struct sp_mcp_asked {
    struct sp_mcp_asked *next;
    uint64_t number;          /* of the request */
    uint64_t question;        /* what it asks; no other has this number */
    struct sp_mcp_call *call; /* NULL: it gave up waiting, and ... */
    uint64_t parked;          /* ... here is the run */
};

/* ---- modern: ask by the result ---- */

bool sp_mcp_add_input_request(struct sp_buf *b, const struct sp_approval_question *q,
                              uint64_t number)
{
    return sp_buf_printf(b,
                         "{\"approve_%" PRIu64 "\":{\"method\":\"elicitation/create\","
                         "\"params\":",
                         number) &&
           sp_mcp_elicit_add(b, q, true) && sp_buf_add_str(b, SP_STR("}}"));
}

uint32_t sp_mcp_input_response(struct sp_json *j, uint32_t responses, uint64_t number)
{
    char key[32];

    if (responses == SP_JSON_NONE)
        return SP_JSON_NONE;
    (void)snprintf(key, sizeof key, "approve_%" PRIu64, number);
    return sp_json_get(j, responses, key);
}

static bool add_interim(struct sp_buf *b, const struct sp_mcp_call *c,
                        const struct sp_approval_question *q, uint64_t number)
{
    return sp_buf_add_str(b, SP_STR("\"inputRequests\":")) &&
           sp_mcp_add_input_request(b, q, number) &&
           sp_buf_add_str(b, SP_STR(",\"requestState\":\"")) &&
           sp_mcp_ticket_add(b, c->request.peer->caller, number, &c->digest) &&
           sp_buf_add(b, "\"", 1);
}

static void ask_by_result(struct sp_mcp_call *c, const struct sp_approval_question *q)
{
    auto_buf struct sp_buf b = {0};
    struct sp_mcp_run *r = TAKE_PTR(c->run);
    uint64_t number = 0;

    sp_mcp_run_is_shown(r);
    /* A run that is parked has its question still. */
    if (sp_mcp_park(r, &c->digest, false, &number) && add_interim(&b, c, q, number))
        sp_mcp_call_answer(c, "input_required", (struct sp_str){b.data, b.len});
    else
        sp_mcp_call_out_of_memory(c);
}

/* ---- legacy: ask by a request ---- */

static void forget(struct sp_mcp_peer *p, struct sp_mcp_asked *a)
{
    struct sp_mcp_asked **at = &p->asked;

    while (*at != a)
        at = &(*at)->next;
    *at = a->next;
    p->asked_count--;
    if (a->call != NULL)
        a->call->is_asked = false;
    free(a);
}

/* Of those that no call waits for any more. There is one: fewer calls are open than are asked. */
static void forget_oldest(struct sp_mcp_peer *p)
{
    struct sp_mcp_asked *oldest = NULL;

    for (struct sp_mcp_asked *a = p->asked; a != NULL; a = a->next)
        if (a->call == NULL)
            oldest = a;
    if (oldest != NULL)
        forget(p, oldest);
}

void sp_mcp_asked_free(struct sp_mcp_peer *p)
{
    while (p->asked != NULL)
        forget(p, p->asked);
}

static struct sp_mcp_asked *asked_by(const struct sp_mcp_call *c)
{
    struct sp_mcp_asked *a = c->request.peer->asked;

    while (a != NULL && a->call != c)
        a = a->next;
    return a;
}

static struct sp_mcp_asked *asked_about(const struct sp_mcp_peer *p, uint64_t question)
{
    struct sp_mcp_asked *a = p->asked;

    while (a != NULL && a->question != question)
        a = a->next;
    return a;
}

void sp_mcp_call_forget_asked(struct sp_mcp_call *c)
{
    struct sp_mcp_asked *a = c->is_asked ? asked_by(c) : NULL;

    if (a != NULL)
        forget(c->request.peer, a);
}

static struct sp_mcp_asked *remember(struct sp_mcp_call *c, uint64_t question)
{
    struct sp_mcp_peer *p = c->request.peer;
    struct sp_mcp_asked *a = calloc(1, sizeof *a);

    if (a == NULL)
        return NULL;
    if (p->asked_count >= SP_MCP_ASKED_MAX)
        forget_oldest(p);
    *a = (struct sp_mcp_asked){
        .next = p->asked, .number = ++p->next_asked, .question = question, .call = c};
    p->asked = a;
    p->asked_count++;
    c->is_asked = true;
    return a;
}

static bool add_request(struct sp_buf *b, const struct sp_approval_question *q, uint64_t number,
                        const struct sp_mcp_revision *v)
{
    return sp_buf_printf(b,
                         "{\"jsonrpc\":\"2.0\",\"id\":\"elicit-%" PRIu64 "\","
                         "\"method\":\"elicitation/create\",\"params\":",
                         number) &&
           sp_mcp_elicit_add(b, q, v->has_elicitation_mode) && sp_buf_add(b, "}", 1);
}

/* false: it cannot be asked. Whoever sends may find that nobody reads any more: nothing but the
 * call's `out` changes by that. */
static bool ask_by_request(struct sp_mcp_call *c, const struct sp_approval_question *q)
{
    auto_buf struct sp_buf b = {0};
    struct sp_mcp_asked *a = asked_about(c->request.peer, q->id);

    if (a != NULL) { /* by a call that gave up: its answer is for this one now */
        a->call = c;
        c->is_asked = true;
        return true;
    }
    sp_mcp_call_withdraw(c); /* an older one, if it was left */
    if (c->request.out == NULL || (a = remember(c, q->id)) == NULL)
        return false;
    if (!add_request(&b, q, a->number, c->request.revision)) {
        forget(c->request.peer, a);
        return false;
    }
    sp_mcp_run_is_shown(c->run);
    c->request.out->send(c->request.out, (struct sp_str){b.data, b.len}, 0);
    return true;
}

static struct sp_mcp_asked *asked_with_id(const struct sp_mcp_peer *p, struct sp_str id)
{
    struct sp_mcp_asked *a = p->asked;
    char text[40];

    for (; a != NULL; a = a->next) {
        (void)snprintf(text, sizeof text, "\"elicit-%" PRIu64 "\"", a->number);
        if (sp_str_eq(id, sp_str_of(text)))
            break;
    }
    return a;
}

void sp_mcp_take_response(struct sp_mcp_peer *p, struct sp_mcp_message *m)
{
    struct sp_mcp_asked *a = asked_with_id(p, m->id);
    struct sp_decision d = {0};

    if (a == NULL)
        return;
    struct sp_mcp_run *r = a->call != NULL ? a->call->run : sp_mcp_parked(p->caller, a->parked);
    const uint64_t question = a->question;
    forget(p, a);
    const struct sp_approval_question *q = r != NULL ? sp_mcp_run_question(r) : NULL;
    if (q == NULL || q->id != question)
        return;
    if (m->result != SP_JSON_NONE &&
        sp_mcp_elicit_read(&m->json, m->result, q, sp_mcp_run_is_too_quick(r), &d))
        sp_mcp_run_decide(r, &d);
    else
        sp_mcp_run_ask_next(r, "it answered with an error, or with something else than the form "
                               "asks for");
}

/* The client need not show the form any longer. */
static void say_withdrawn(const struct sp_mcp_call *c, uint64_t number)
{
    char params[64];

    (void)snprintf(params, sizeof params, "{\"requestId\":\"elicit-%" PRIu64 "\"}", number);
    (void)sp_mcp_say_notice(c->request.out, "notifications/cancelled", sp_str_of(params));
}

void sp_mcp_call_withdraw(struct sp_mcp_call *c)
{
    struct sp_mcp_asked *a = c->is_asked ? asked_by(c) : NULL;

    if (a == NULL)
        return;
    const uint64_t number = a->number;
    forget(c->request.peer, a);
    say_withdrawn(c, number);
}

/* ---- which of them ---- */

void sp_mcp_call_give_up(struct sp_mcp_call *c)
{
    struct sp_mcp_asked *a = c->is_asked ? asked_by(c) : NULL;
    struct sp_mcp_run *r = TAKE_PTR(c->run);
    /* Before there is a process, somebody is being asked: a person, a hook, a reviewer. */
    const bool is_asked = r->session_id == 0 || sp_mcp_run_question(r) != NULL;
    uint64_t number = 0;

    if (!sp_mcp_park(r, &c->digest, true, &number)) {
        sp_mcp_call_out_of_memory(c);
        return;
    }
    if (a != NULL) {
        a->call = NULL;
        a->parked = number;
        c->is_asked = false;
    }
    sp_mcp_call_fail(c, is_asked ? PENDING : AT_WORK);
}

void sp_mcp_call_ask(struct sp_mcp_call *c)
{
    const struct sp_approval_question *q = sp_mcp_run_question(c->run);

    if (q == NULL)
        return;
    const bool asks_host = sp_mcp_run_asks_host(c->run);
    if (asks_host && c->elicits && c->request.revision->is_modern) {
        ask_by_result(c, q);
        return;
    }
    if (asks_host && !(c->elicits && ask_by_request(c, q)))
        sp_mcp_run_ask_next(c->run, SP_NOBODY_ANSWERS);
    if (c->is_overdue && sp_mcp_run_question(c->run) != NULL)
        sp_mcp_call_give_up(c);
}
