/* SPDX-License-Identifier: Apache-2.0 */
/*
 * call: tools/call, from its params to its answer.
 *
 *   begin --> waiting --done----------------> answered with the result
 *               |  ^  '--started, for a task-> answered with the task
 *               |  '-- progress               (every 15 s, with a token)
 *               |--50 s without a token: what there is, now; with an open question, or if nothing
 *               |  comes: "repeat the same call", and the run is parked
 *               '--question: call_ask.c
 *
 * Whoever takes the run out of the call answers it, and frees it: there is no answered call.
 */
#include "mcp/mcp_call.h"

#include <inttypes.h>

#include "base/auto.h"
#include "mcp/elicit.h"
#include "mcp/mcp_host.h"
#include "mcp/tool.h"

#define HURRY_MS 2000 /* for an answer, once it is asked for at once */
#define SLACK_MS 500  /* for it to get there */
#define WAIT_MS  (SP_MCP_PATIENCE_MS - HURRY_MS - SLACK_MS)

static const struct sp_mcp_run_ops run_ops;

/* ---- the end ---- */

static void close_call(struct sp_mcp_call *c)
{
    sp_loop_cancel(sp_mcp_peer_loop(c->request.peer), &c->timer);
    sp_mcp_call_forget_asked(c);
    sp_mcp_request_close(&c->request);
}

/* Whom the answer is for, once the call is gone. */
struct addressee {
    struct sp_mcp_to to;
    char id[SP_MCP_ID_MAX];
};

static void close_and_keep(struct sp_mcp_call *c, struct addressee *ret)
{
    ret->to = sp_mcp_request_to(&c->request);
    memcpy(ret->id, c->request.id, c->request.id_len);
    ret->to.id.p = ret->id;
    close_call(c);
}

void sp_mcp_call_answer(struct sp_mcp_call *c, const char *type, struct sp_str members)
{
    struct addressee a;

    close_and_keep(c, &a);
    sp_mcp_say_result(&a.to, type, members);
}

void sp_mcp_call_fail(struct sp_mcp_call *c, const char *why)
{
    struct addressee a;

    close_and_keep(c, &a);
    sp_mcp_say_failed(&a.to, "%s", why);
}

void sp_mcp_call_out_of_memory(struct sp_mcp_call *c)
{
    struct addressee a;

    close_and_keep(c, &a);
    sp_mcp_say_no_memory(&a.to);
}

static void drop(struct sp_mcp_request *r)
{
    struct sp_mcp_call *c = (struct sp_mcp_call *)r;

    if (c->run != NULL)
        sp_mcp_run_cancel(c->run);
    close_call(c);
}

static void cancel(struct sp_mcp_request *r)
{
    struct sp_mcp_call *c = (struct sp_mcp_call *)r;

    if (c->run != NULL)
        sp_mcp_run_abandon(c->run);
    close_call(c);
}

/* ---- time ---- */

static struct sp_mcp_call *call_of_timer(struct sp_timer *t)
{
    return SP_CONTAINER(t, struct sp_mcp_call, timer);
}

/* It was hurried, and still there is nothing: a hook or a reviewer is being asked, or whoever runs
 * it does not answer. The result is for whoever repeats the call. */
static void on_too_late(struct sp_timer *t)
{
    sp_mcp_call_give_up(call_of_timer(t));
}

static void on_impatient(struct sp_timer *t)
{
    struct sp_mcp_call *c = call_of_timer(t);
    struct sp_loop *l = sp_mcp_peer_loop(c->request.peer);

    c->is_overdue = true;
    if (sp_mcp_run_question(c->run) != NULL ||
        !sp_loop_timer(l, t, sp_loop_now(l) + HURRY_MS, on_too_late))
        sp_mcp_call_give_up(c);
    else
        sp_mcp_run_answer_now(c->run);
}

/* So that it is answered within SP_MCP_PATIENCE_MS, whatever comes of the hurry. */
static bool be_patient(struct sp_mcp_call *c)
{
    struct sp_loop *l = sp_mcp_peer_loop(c->request.peer);

    return sp_loop_timer(l, &c->timer, sp_loop_now(l) + WAIT_MS, on_impatient);
}

/* Nobody hears how it goes, so nobody waits longer than any other. */
static void unheard(struct sp_mcp_request *r)
{
    struct sp_mcp_call *c = (struct sp_mcp_call *)r;

    if (c->token_len == 0 || c->is_overdue)
        return;
    c->token_len = 0;
    (void)be_patient(c); /* its timer is armed: that needs no memory */
}

static bool add_progress(struct sp_buf *b, const struct sp_mcp_call *c)
{
    auto_buf struct sp_buf state = {0};

    if (!(sp_buf_add_str(b, SP_STR("{\"progressToken\":")) &&
          sp_buf_add(b, c->token, c->token_len) &&
          sp_buf_printf(b, ",\"progress\":%" PRIu64, c->progress)))
        return false;
    if (c->request.revision->has_annotations && sp_mcp_run_describe(c->run, &state) &&
        state.len != 0 &&
        !(sp_buf_add_str(b, SP_STR(",\"message\":")) &&
          sp_json_add_str(b, (struct sp_str){state.data, state.len})))
        return false;
    return sp_buf_add(b, "}", 1);
}

/* The last thing that is done: whoever sends may find that nobody reads any more. */
static void say_progress(struct sp_mcp_call *c)
{
    auto_buf struct sp_buf b = {0};
    struct sp_mcp_out *out = c->request.out;

    if (out == NULL || (out->is_full != NULL && out->is_full(out)))
        return;
    c->progress++;
    if (add_progress(&b, c))
        (void)sp_mcp_say_notice(out, "notifications/progress", (struct sp_str){b.data, b.len});
}

static void on_progress(struct sp_timer *t)
{
    struct sp_mcp_call *c = call_of_timer(t);
    struct sp_loop *l = sp_mcp_peer_loop(c->request.peer);

    if (!sp_loop_timer(l, t, sp_loop_now(l) + SP_MCP_PROGRESS_MS, on_progress)) {
        on_impatient(t); /* without a clock it is better answered */
        return;
    }
    say_progress(c);
}

/* Something has happened that is worth a message: the loop sends it. */
static void hasten_progress(struct sp_mcp_call *c)
{
    struct sp_loop *l = sp_mcp_peer_loop(c->request.peer);

    if (c->token_len != 0 && !c->is_overdue)
        (void)sp_loop_timer(l, &c->timer, sp_loop_now(l), on_progress); /* it is armed already */
}

/* ---- what the run tells ---- */

static void on_done(void *user, const struct sp_mcp_result *r)
{
    struct sp_mcp_call *c = user;
    auto_buf struct sp_buf b = {0};

    c->run = NULL;
    if (sp_mcp_add_result(&b, c->request.revision, r))
        sp_mcp_call_answer(c, "complete", (struct sp_str){b.data, b.len});
    else
        sp_mcp_call_out_of_memory(c);
}

static void on_question(void *user)
{
    hasten_progress(user); /* the call may be answered by what follows */
    sp_mcp_call_ask(user);
}

static void on_withdrawn(void *user)
{
    sp_mcp_call_withdraw(user);
}

static void on_started(void *user, int session_id)
{
    struct sp_mcp_call *c = user;

    if (c->wants_task && !c->is_overdue && sp_mcp_task_adopt(c, session_id))
        return; /* no: it is answered as any other */
    hasten_progress(c);
}

static const struct sp_mcp_run_ops run_ops = {
    .done = on_done, .question = on_question, .withdrawn = on_withdrawn, .started = on_started};

/* ---- the beginning ---- */

/* What the params say beside the name and the arguments. */
struct retry {
    struct sp_str state; /* p NULL: it is none */
    uint32_t responses;
};

static const char *check(const struct sp_mcp_turn *t, struct retry *ret)
{
    struct sp_json *j = &t->message->json;
    const uint32_t params = t->message->params;
    struct sp_err e = {0};
    uint32_t arguments = SP_JSON_NONE;
    struct sp_str name = {0};

    if (params == SP_JSON_NONE || sp_json_need_str(j, params, "name", &name, &e) < 0)
        return "tools/call needs the name of a tool, a string";
    if (sp_json_opt_object(j, params, "arguments", &arguments, &e) < 0)
        return "arguments is not an object";
    if (arguments == SP_JSON_NONE)
        t->message->arguments = (struct sp_str){0};
    if (!t->to.revision->is_modern)
        return NULL;
    if (sp_json_opt_str(j, params, "requestState", &ret->state, &e) < 0)
        return "requestState is not a string";
    if (sp_json_opt_object(j, params, "inputResponses", &ret->responses, &e) < 0)
        return "inputResponses is not an object";
    return NULL;
}

static void take_abilities(struct sp_mcp_call *c, const struct sp_mcp_turn *t)
{
    struct sp_mcp_message *m = t->message;
    const struct sp_mcp_peer *p = t->peer;

    if (t->to.revision->is_modern) {
        c->elicits = sp_mcp_can_elicit(&m->json, m->capabilities);
        c->wants_task = sp_mcp_can_task(&m->json, m->capabilities) &&
                        sp_mcp_run_is_to_completion(m->name, m->arguments) &&
                        sp_mcp_task_has_room(p->caller);
    } else {
        c->elicits = p->elicits && p->is_initialized;
    }
    c->token_len = (uint32_t)m->progress.n;
    if (m->progress.n != 0)
        memcpy(c->token, m->progress.p, m->progress.n);
}

/* The clock runs before anything else does, so that nothing can be left to wait for ever. */
static bool start_clock(struct sp_mcp_call *c)
{
    struct sp_loop *l = sp_mcp_peer_loop(c->request.peer);

    if (c->token_len == 0)
        return be_patient(c);
    return sp_loop_timer(l, &c->timer, sp_loop_now(l) + SP_MCP_PROGRESS_MS, on_progress);
}

static void attach(struct sp_mcp_call *c, struct sp_mcp_run *r)
{
    c->run = r;
    c->wants_task = c->wants_task && r->waits_for_end;
    sp_mcp_run_attach(r, &run_ops, c);
}

static void decide(struct sp_mcp_call *c, struct sp_json *j, uint32_t answer)
{
    const struct sp_approval_question *q = sp_mcp_run_question(c->run);
    struct sp_decision d = {0};

    if (q != NULL && answer != SP_JSON_NONE && sp_mcp_run_asks_host(c->run) &&
        sp_mcp_elicit_read(j, answer, q, sp_mcp_run_is_too_quick(c->run), &d))
        sp_mcp_run_decide(c->run, &d);
    /* Else the question is told again, and asked again. */
}

/* A call that comes back with what was asked of the person. */
static bool resume(struct sp_mcp_call *c, const struct sp_mcp_turn *t, const struct retry *retry)
{
    struct sp_mcp_caller *caller = t->peer->caller;
    struct sp_json *j = &t->message->json;
    struct sp_err e = {0};
    uint64_t number = 0;

    if (sp_mcp_ticket_read(retry->state, caller, &c->digest, &number, &e) < 0) {
        struct sp_mcp_to to = sp_mcp_request_to(&c->request);

        to.id = t->to.id; /* of the message, which outlives the call */
        close_call(c);
        if (e.code == SP_E_MALFORMED)
            sp_mcp_say_error(&to, SP_MCP_OK_STATUS, SP_MCP_INVALID_PARAMS, (struct sp_str){0},
                             "requestState: %s; repeat the call without it", e.msg);
        else
            sp_mcp_say_failed(&to, "requestState: %s; repeat the call without requestState", e.msg);
        return false;
    }
    struct sp_mcp_run *r = sp_mcp_unpark(caller, number);
    if (r == NULL) {
        sp_mcp_call_fail(c, "requestState was used before, or its question is gone; repeat the "
                            "call without requestState");
        return false;
    }
    attach(c, r);
    decide(c, j, sp_mcp_input_response(j, retry->responses, number));
    return true;
}

static void refuse_start(struct sp_mcp_call *c, const struct sp_mcp_turn *t, const struct sp_err *e)
{
    close_call(c);
    if (e->code == SP_E_NO_METHOD)
        sp_mcp_say_error(&t->to, SP_MCP_OK_STATUS, SP_MCP_INVALID_PARAMS, (struct sp_str){0}, "%s",
                         e->msg);
    else if (e->code == SP_E_LIMIT)
        sp_mcp_say_failed(&t->to, "%s", e->msg);
    else
        sp_mcp_say_error(&t->to, SP_MCP_OK_STATUS, SP_MCP_INTERNAL, (struct sp_str){0}, "%s",
                         e->msg);
}

static bool repeats_output(const struct sp_mcp_turn *t)
{
    const struct sp_mcp_options *o = sp_mcp_options(t->peer->mcp);

    return t->to.revision->is_modern
               ? sp_mcp_host_repeats_output(o->structured_output, t->message->client)
               : t->peer->repeats_output;
}

static bool start(struct sp_mcp_call *c, const struct sp_mcp_turn *t)
{
    struct sp_mcp_run *parked = sp_mcp_unpark_same(t->peer->caller, &c->digest);
    const struct sp_mcp_run_ask ask = {.tool = t->message->name,
                                       .arguments = t->message->arguments,
                                       .waits_for_end = c->wants_task,
                                       .repeats_output = repeats_output(t),
                                       .cannot_ask_host = !c->elicits};
    struct sp_err e = {0};

    if (parked != NULL) {
        attach(c, parked);
        return true;
    }
    if (sp_mcp_run_start(t->peer->caller, &ask, &run_ops, c, &c->run, &e) == 0)
        return true;
    refuse_start(c, t, &e);
    return false;
}

static void begin(const struct sp_mcp_turn *t, const struct retry *retry)
{
    struct sp_err e = {0};
    struct sp_mcp_call *c = sp_mcp_request_open(t, sizeof *c, drop);

    if (c == NULL)
        return;
    c->request.unheard = unheard;
    c->request.cancel = cancel;
    take_abilities(c, t);
    if (sp_mcp_digest_of(t->message->name, t->message->arguments, &c->digest, &e) < 0) {
        refuse_start(c, t, &e);
        return;
    }
    if (!start_clock(c)) {
        sp_mcp_call_out_of_memory(c);
        return;
    }
    const bool runs = retry->state.p != NULL ? resume(c, t, retry) : start(c, t);
    if (runs && c->token_len != 0)
        say_progress(c);
}

void sp_mcp_call(const struct sp_mcp_turn *t)
{
    struct retry retry = {.responses = SP_JSON_NONE};
    const char *wrong = check(t, &retry);

    if (wrong != NULL)
        sp_mcp_say_error(&t->to, SP_MCP_OK_STATUS, SP_MCP_INVALID_PARAMS, (struct sp_str){0}, "%s",
                         wrong);
    else if (sp_mcp_tool_find(t->peer->mcp, t->message->name) == NULL)
        sp_mcp_say_error(&t->to, SP_MCP_OK_STATUS, SP_MCP_INVALID_PARAMS, (struct sp_str){0},
                         "Unknown tool: " SP_STR_FMT, SP_STR_ARG(t->message->name));
    else
        begin(t, &retry);
}
