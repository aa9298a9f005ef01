/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mcp_call: tools/call, from its params to its answer, with its questions.
 *
 *   start --> waiting --done----------------> answered with the result
 *               |  ^  '--started, for a task-> answered with the task
 *               |  '-- progress               (every 15 s, with a token)
 *               |--50 s without a token: what there is; with an open question, or if nothing comes:
 *               |  "repeat the same call", and the run is parked
 *               '--question (see below)
 *
 * The code that takes the run out of the call answers and frees the call: an answered call does not
 * exist.
 *
 * A parked run waits for a person's answer after its call had to end. It is held: it starts nothing
 * until a call comes back for it, once, within ten minutes; then it is cancelled. A call comes back
 * with a ticket (requestState), or as the same call again.
 *
 * Questions. Modern client with forms: the run is parked and the call answered with
 * `input_required`; the client repeats the call with the answer. Legacy client with forms: it is
 * sent a request, and its response decides; if the call cannot wait that long, the response finds
 * the parked run. A host without forms, or one that gives no answer: the next approver
 * (approve/approvers.h).
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/auto.h"
#include "base/base64.h"
#include "base/sha.h"
#include "mcp/elicit.h"
#include "mcp/peer_priv.h"
#include "mcp/tool.h"

#define HURRY_MS 2000 /* for an answer after sp_mcp_run_answer_now */
#define SLACK_MS 500  /* for the answer to arrive */
#define WAIT_MS  (SP_MCP_PATIENCE_MS - HURRY_MS - SLACK_MS)
#define PENDING  "approval is still pending; repeat the same call"
#define AT_WORK  "there is no answer yet; repeat the same call"

/* An open tools/call. */
struct call {
    struct sp_mcp_request request; /* first */
    struct sp_mcp_run *run;
    struct sp_mcp_digest digest;
    bool elicits;         /* the client shows forms */
    bool wants_task;      /* may be answered with a task */
    bool is_overdue;      /* has to be answered soon */
    bool has_elicitation; /* the client has an elicitation of ours (legacy) */
    struct sp_timer timer;
    uint64_t progress;
    uint32_t token_len; /* 0: no progress messages */
    char token[SP_MCP_ID_MAX];
};

/* An elicitation that a legacy client has not answered. */
struct elicitation {
    struct sp_list link; /* first, for peer.c: in peer->elicitations, newest first */
    uint64_t number;     /* of the request */
    uint64_t question;   /* that it asks; questions are never numbered twice */
    struct call *call;   /* NULL: the call gave up waiting ... */
    uint64_t parked;     /* ... and its run is parked here */
};

static void withdraw_elicitation(void *user);
static void forget_elicitation(struct sp_mcp_peer *p, struct elicitation *a);

static struct sp_loop *loop_of(const struct call *c)
{
    return c->request.peer->caller->loop;
}

static struct elicitation *elicitation_of(struct sp_list *link)
{
    return SP_CONTAINER(link, struct elicitation, link);
}

/* NULL: the client has no elicitation of this call. */
static struct elicitation *elicitation_of_call(const struct call *c)
{
    if (!c->has_elicitation)
        return NULL;
    sp_list_each(i, &c->request.peer->elicitations) {
        if (elicitation_of(i)->call == c)
            return elicitation_of(i);
    }
    return NULL;
}

/* ---- parked runs: all stay equally long, so the oldest expires first ---- */

struct parked {
    struct sp_list link;
    struct sp_mcp_run *run;
    uint64_t number, expires_ms;
    struct sp_mcp_digest digest;
    bool wants_repeat; /* any call with the same digest takes it; else only its ticket does */
};

struct sp_mcp_parking {
    struct sp_mcp_caller *caller;
    struct sp_list list; /* oldest first */
    uint32_t count;
    uint64_t last_number;
    struct sp_timer timer;
};

static struct parked *parked_of(struct sp_list *link)
{
    return SP_CONTAINER(link, struct parked, link);
}

static struct sp_mcp_run *take_out(struct sp_mcp_parking *p, struct parked *at)
{
    struct sp_mcp_run *r = at->run;

    sp_list_remove(&at->link);
    p->count--;
    free(at);
    return r;
}

static void expire_parked(struct sp_timer *t);

/* Not out of memory: park_run has armed the timer, so its slot exists. */
static void arm_expiry(struct sp_mcp_parking *p)
{
    if (sp_list_is_empty(&p->list))
        sp_loop_cancel(p->caller->loop, &p->timer);
    else
        (void)sp_loop_timer(p->caller->loop, &p->timer, parked_of(p->list.next)->expires_ms,
                            expire_parked);
}

static void expire_parked(struct sp_timer *t)
{
    struct sp_mcp_parking *p = SP_CONTAINER(t, struct sp_mcp_parking, timer);

    while (!sp_list_is_empty(&p->list) &&
           parked_of(p->list.next)->expires_ms <= sp_loop_now(p->caller->loop))
        sp_mcp_run_cancel(take_out(p, parked_of(p->list.next)));
    arm_expiry(p);
}

/* The parking owns the run now; its number is never used again. NULL: out of memory; the run is
 * cancelled. */
static struct parked *park_run(struct sp_mcp_run *r, const struct sp_mcp_digest *d,
                               bool wants_repeat)
{
    struct sp_mcp_caller *c = r->caller;
    const uint64_t expires_ms = sp_loop_now(c->loop) + SP_MCP_PARKED_MS;

    if (c->parking == NULL && (c->parking = calloc(1, sizeof *c->parking)) != NULL) {
        c->parking->caller = c;
        sp_list_init(&c->parking->list);
    }
    struct sp_mcp_parking *p = c->parking;
    struct parked *new = p == NULL ? NULL : calloc(1, sizeof *new);
    if (new == NULL || (p->timer.slot == 0 &&
                        !sp_loop_timer(p->caller->loop, &p->timer, expires_ms, expire_parked))) {
        free(new);
        sp_mcp_run_cancel(r);
        return NULL;
    }
    if (p->count == SP_MCP_PARKED_MAX)
        sp_mcp_run_cancel(take_out(p, parked_of(p->list.next)));
    *new = (struct parked){.run = r,
                           .number = ++p->last_number,
                           .expires_ms = expires_ms,
                           .digest = *d,
                           .wants_repeat = wants_repeat};
    sp_list_append(&p->list, &new->link);
    p->count++;
    arm_expiry(p);
    sp_mcp_run_attach(r, NULL, NULL);
    return new;
}

static struct parked *find_parked(const struct sp_mcp_caller *c, uint64_t number)
{
    if (c->parking == NULL)
        return NULL;
    sp_list_each(i, &c->parking->list) {
        if (parked_of(i)->number == number)
            return parked_of(i);
    }
    return NULL;
}

/* The oldest run that a repetition of its call may take; NULL: none. */
static struct parked *find_same(const struct sp_mcp_caller *c, const struct sp_mcp_digest *d)
{
    if (c->parking == NULL)
        return NULL;
    sp_list_each(i, &c->parking->list) {
        struct parked *at = parked_of(i);

        if (at->wants_repeat && memcmp(&at->digest, d, sizeof *d) == 0)
            return at;
    }
    return NULL;
}

/* sp_mcp_run_attach ends the hold. */
static struct sp_mcp_run *unpark_run(struct sp_mcp_caller *c, struct parked *at)
{
    struct sp_mcp_run *r = take_out(c->parking, at);

    arm_expiry(c->parking);
    return r;
}

void sp_mcp_parking_free(struct sp_mcp_parking *p)
{
    if (p == NULL)
        return;
    sp_list_each_safe(i, &p->list)
        sp_mcp_run_cancel(take_out(p, parked_of(i)));
    sp_loop_cancel(p->caller->loop, &p->timer);
    p->caller->parking = NULL;
    free(p);
}

/* ---- tickets: what leads a client back to a parked run ----
 *
 * `v1.<ticket>.<mac>`, both base64url without padding. Only the process that wrote a ticket reads
 * it, so the order of its bytes does not matter. It is not secret; the MAC (HMAC-SHA-256 with a key
 * of this process) proves that this server wrote it.
 */

struct ticket {
    uint64_t number, expires_ms; /* of the parked run */
    uint64_t caller;             /* its number */
    uint64_t asked;              /* which of the run's questions */
    struct sp_mcp_digest digest;
};
static_assert(sizeof(struct ticket) == 64, "a ticket has no gaps");

#define TICKET_PREFIX "v1."
#define TICKET_CHARS  86 /* in base64url */
#define MAC_BYTES     32
#define MAC_CHARS     43

static void sign_ticket(const struct sp_mcp_caller *c, const struct ticket *t,
                        uint8_t mac[MAC_BYTES])
{
    sp_hmac_sha256((struct sp_str){(const char *)c->mcp->key, sizeof c->mcp->key},
                   (struct sp_str){(const char *)t, sizeof *t}, mac);
}

static bool add_base64url(struct sp_buf *out, const void *bytes, size_t n)
{
    char *at = sp_buf_room(out, SP_BASE64_LEN(n));

    if (at == NULL)
        return false;
    const char *end = sp_base64_encode(at, bytes, n);
    for (; at != end && *at != '='; at++) {
        *at = (char)(*at == '+' ? '-' : *at == '/' ? '_' : *at);
        out->len++;
    }
    return true;
}

/* Decodes n bytes of at most a ticket. Refuses every other spelling of the same bytes. */
static bool read_base64url(struct sp_str text, void *bytes, size_t n)
{
    char room[TICKET_CHARS + 2];
    size_t len = 0;
    size_t got = 0;

    for (; len < text.n; len++) {
        const char in = text.p[len];

        if (in == '+' || in == '/' || in == '=')
            return false;
        room[len] = (char)(in == '-' ? '+' : in == '_' ? '/' : in);
    }
    while (len % 4 != 0)
        room[len++] = '=';
    if (sp_base64_decode((struct sp_str){room, len}, room, &got, NULL) < 0 || got != n)
        return false;
    memcpy(bytes, room, n);
    return true;
}

static bool add_ticket(struct sp_buf *out, const struct sp_mcp_caller *c, const struct parked *at)
{
    const struct ticket t = {.number = at->number,
                             .expires_ms = at->expires_ms,
                             .caller = c->number,
                             .asked = at->run->asked,
                             .digest = at->digest};
    uint8_t mac[MAC_BYTES];

    sign_ticket(c, &t, mac);
    return sp_buf_add_str(out, SP_STR(TICKET_PREFIX)) && add_base64url(out, &t, sizeof t) &&
           sp_buf_add(out, ".", 1) && add_base64url(out, mac, sizeof mac);
}

/* SP_E_MALFORMED: not signed by this server. SP_E_INVALID: another caller's, expired, or of another
 * call. A ticket can be read again; its run can be taken only once. */
static int read_ticket(struct sp_str state, const struct sp_mcp_caller *c,
                       const struct sp_mcp_digest *d, uint64_t *ret_number, struct sp_err *e)
{
    const size_t prefix = sizeof TICKET_PREFIX - 1;
    const size_t dot = prefix + TICKET_CHARS;
    struct ticket t = {0};
    uint8_t mac[MAC_BYTES] = {0};
    uint8_t right[MAC_BYTES];

    const bool is_ticket =
        state.n == dot + 1 + MAC_CHARS && memcmp(state.p, TICKET_PREFIX, prefix) == 0 &&
        state.p[dot] == '.' &&
        read_base64url((struct sp_str){state.p + prefix, TICKET_CHARS}, &t, sizeof t) &&
        read_base64url((struct sp_str){state.p + dot + 1, MAC_CHARS}, mac, sizeof mac);
    sign_ticket(c, &t, right);
    if (!is_ticket || !sp_same_secret((struct sp_str){(const char *)right, sizeof right},
                                      (struct sp_str){(const char *)mac, sizeof mac}))
        return sp_fail(e, SP_E_MALFORMED, 0,
                       "it was not made by this server, or was changed since");
    if (t.caller != c->number)
        return sp_fail(e, SP_E_INVALID, 0, "it belongs to another caller");
    if (t.expires_ms <= sp_loop_now(c->loop))
        return sp_fail(e, SP_E_INVALID, 0, "it has expired");
    if (memcmp(&t.digest, d, sizeof *d) != 0)
        return sp_fail(e, SP_E_INVALID, 0,
                       "it belongs to a call of another tool, or with other arguments");
    const struct parked *at = find_parked(c, t.number);
    if (at != NULL && at->run->asked != t.asked)
        return sp_fail(e, SP_E_INVALID, 0, "its question is not asked any more");
    *ret_number = t.number;
    return 0;
}

/* ---- the end of a call ---- */

/* A tool result with isError and this text. */
SP_PRINTF(2, 3) static void say_failed(const struct sp_mcp_to *to, const char *fmt, ...)
{
    auto_buf struct sp_buf b = {0};
    char text[512];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    const struct sp_mcp_result r = {.is_error = true, .text = sp_str_of(text)};
    if (sp_mcp_add_result(&b, to->revision, &r))
        sp_mcp_say_result(to, "complete", sp_buf_str(&b));
    else
        sp_mcp_say_no_memory(to);
}

static void close_call(struct call *c)
{
    struct elicitation *a = elicitation_of_call(c);

    sp_loop_cancel(loop_of(c), &c->timer);
    if (a != NULL)
        forget_elicitation(c->request.peer, a);
    sp_mcp_request_close(&c->request);
}

/* Answers and frees the call. Its run must have been taken out. */
static void answer_call(struct call *c, const char *type, struct sp_str members)
{
    char id[SP_MCP_ID_MAX];
    const struct sp_mcp_to to = sp_mcp_request_to(&c->request, id);

    close_call(c);
    sp_mcp_say_result(&to, type, members);
}

/* why NULL: out of memory. */
static void fail_call(struct call *c, const char *why)
{
    char id[SP_MCP_ID_MAX];
    const struct sp_mcp_to to = sp_mcp_request_to(&c->request, id);

    close_call(c);
    if (why == NULL)
        sp_mcp_say_no_memory(&to);
    else
        say_failed(&to, "%s", why);
}

static void drop_call(struct sp_mcp_request *r)
{
    struct call *c = (struct call *)r;

    if (c->run != NULL)
        sp_mcp_run_cancel(c->run);
    close_call(c);
}

/* The client gave the call up: the process that it started is terminated, unless an answer or a key
 * has named it, or the options keep it. */
static void cancel_call(struct sp_mcp_request *r)
{
    const struct sp_mcp_run *run = ((struct call *)r)->run;
    struct sp_mcp_caller *caller = r->peer->caller;
    const bool ends_process =
        run != NULL && run->owns_process && !caller->mcp->options.keeps_cancelled;
    const int session_id = ends_process ? run->session_id : 0;

    drop_call(r);
    if (session_id != 0)
        sp_manager_terminate(caller->manager, session_id, NULL, NULL);
}

/* Parks the run, with its question if it has one, for a repetition of the call. */
static void give_up(struct call *c)
{
    struct elicitation *a = elicitation_of_call(c);
    struct sp_mcp_run *r = TAKE_PTR(c->run);
    /* Without a process, an approver is being asked: a person, a hook, a reviewer. */
    const bool is_pending = r->session_id == 0 || sp_mcp_run_question(r) != NULL;
    const struct parked *parked = park_run(r, &c->digest, true);

    if (parked == NULL) {
        fail_call(c, NULL);
        return;
    }
    if (a != NULL) {
        a->call = NULL;
        a->parked = parked->number;
        c->has_elicitation = false;
    }
    fail_call(c, is_pending ? PENDING : AT_WORK);
}

/* ---- deadlines and progress ---- */

/* Nothing came after the hurry: a hook or a reviewer is being asked, or the executor is silent. */
static void on_too_late(struct sp_timer *t)
{
    give_up(SP_CONTAINER(t, struct call, timer));
}

static void on_impatient(struct sp_timer *t)
{
    struct call *c = SP_CONTAINER(t, struct call, timer);
    struct sp_loop *l = loop_of(c);

    c->is_overdue = true;
    if (sp_mcp_run_question(c->run) != NULL ||
        !sp_loop_timer(l, t, sp_loop_now(l) + HURRY_MS, on_too_late))
        give_up(c);
    else
        sp_mcp_run_answer_now(c->run);
}

/* The call is answered within SP_MCP_PATIENCE_MS. */
static bool set_deadline(struct call *c)
{
    return sp_loop_timer(loop_of(c), &c->timer, sp_loop_now(loop_of(c)) + WAIT_MS, on_impatient);
}

/* Legacy: the client's connection is gone. Without progress messages the usual deadline applies. */
static void on_unheard(struct sp_mcp_request *r)
{
    struct call *c = (struct call *)r;

    if (c->token_len == 0 || c->is_overdue)
        return;
    c->token_len = 0;
    (void)set_deadline(c); /* the timer is armed already, so this needs no memory */
}

/* Sending may find that the client is gone and free the call: do nothing with it afterwards. */
static void say_progress(struct call *c)
{
    auto_buf struct sp_buf state = {0};
    auto_buf struct sp_buf b = {0};
    struct sp_mcp_out *out = c->request.out;

    if (out == NULL || out->is_full(out))
        return;
    c->progress++;
    if (c->request.revision->has_annotations)
        (void)sp_mcp_run_describe(c->run, &state); /* else without a message */
    if (sp_buf_printf(&b, "{\"progressToken\":%.*s,\"progress\":%" PRIu64, (int)c->token_len,
                      c->token, c->progress) &&
        (state.len == 0 || sp_json_add_member(&b, "message", sp_buf_str(&state))) &&
        sp_buf_add(&b, "}", 1))
        (void)sp_mcp_say_notice(out, "notifications/progress", sp_buf_str(&b));
}

static void on_progress(struct sp_timer *t)
{
    struct call *c = SP_CONTAINER(t, struct call, timer);
    struct sp_loop *l = loop_of(c);

    if (sp_loop_timer(l, t, sp_loop_now(l) + SP_MCP_PROGRESS_MS, on_progress))
        say_progress(c);
    else
        on_impatient(t); /* out of memory for the timer: answer rather than wait forever */
}

/* Lets the loop send a progress message now, because the state has changed. */
static void hasten_progress(struct call *c)
{
    if (c->token_len != 0 && !c->is_overdue) /* the timer is armed: this needs no memory */
        (void)sp_loop_timer(loop_of(c), &c->timer, sp_loop_now(loop_of(c)), on_progress);
}

/* ---- modern questions: the answer to the call asks ---- */

static void ask_by_result(struct call *c, const struct sp_approval_question *q)
{
    auto_buf struct sp_buf b = {0};
    struct sp_mcp_run *r = TAKE_PTR(c->run);

    sp_mcp_run_note_shown(r);
    /* A parked run keeps its question open: q stays valid. */
    const struct parked *parked = park_run(r, &c->digest, false);
    if (parked != NULL && sp_buf_add_str(&b, SP_STR("\"inputRequests\":")) &&
        sp_mcp_elicit_add_input(&b, q, parked->number) &&
        sp_buf_add_str(&b, SP_STR(",\"requestState\":\"")) && add_ticket(&b, r->caller, parked) &&
        sp_buf_add(&b, "\"", 1))
        answer_call(c, "input_required", sp_buf_str(&b));
    else
        fail_call(c, NULL);
}

/* ---- legacy questions: a request to the client ---- */

static void forget_elicitation(struct sp_mcp_peer *p, struct elicitation *a)
{
    sp_list_remove(&a->link);
    p->elicitation_count--;
    if (a->call != NULL)
        a->call->has_elicitation = false;
    free(a);
}

static struct elicitation *add_elicitation(struct call *c, uint64_t question)
{
    struct sp_mcp_peer *p = c->request.peer;
    struct elicitation *a = calloc(1, sizeof *a);
    struct elicitation *oldest = NULL;

    if (a == NULL)
        return NULL;
    if (p->elicitation_count >= SP_MCP_ELICITATIONS_MAX) {
        sp_list_each(i, &p->elicitations) {
            if (elicitation_of(i)->call == NULL)
                oldest = elicitation_of(i);
        }
        /* One is without a call: at most SP_MCP_OPEN_MAX calls are open, this one included. */
        assert(oldest != NULL);
        forget_elicitation(p, oldest);
    }
    *a = (struct elicitation){.number = ++p->last_elicitation, .question = question, .call = c};
    sp_list_prepend(&p->elicitations, &a->link);
    p->elicitation_count++;
    c->has_elicitation = true;
    return a;
}

/* false: the client cannot be asked. */
static bool ask_by_request(struct call *c, const struct sp_approval_question *q)
{
    auto_buf struct sp_buf b = {0};
    struct sp_mcp_peer *p = c->request.peer;
    struct elicitation *a;

    sp_list_each(i, &p->elicitations) {
        if (elicitation_of(i)->question != q->id)
            continue;
        elicitation_of(i)->call = c; /* of a call that gave up: the response is for this call now */
        c->has_elicitation = true;
        return true;
    }
    withdraw_elicitation(c); /* an earlier question of this call */
    if (c->request.out == NULL || (a = add_elicitation(c, q->id)) == NULL)
        return false;
    if (!sp_buf_printf(&b,
                       "{\"jsonrpc\":\"2.0\",\"id\":\"elicit-%" PRIu64 "\","
                       "\"method\":\"elicitation/create\",\"params\":",
                       a->number) ||
        !sp_mcp_elicit_add(&b, q, c->request.revision->has_elicitation_mode) ||
        !sp_buf_add(&b, "}", 1)) {
        forget_elicitation(p, a);
        return false;
    }
    sp_mcp_run_note_shown(c->run);
    /* If the client turns out to be gone, this legacy call only loses its `out`. */
    c->request.out->send(c->request.out, sp_buf_str(&b), 0);
    return true;
}

void sp_mcp_take_response(struct sp_mcp_peer *p, struct sp_mcp_message *m)
{
    struct elicitation *a = NULL;
    struct sp_decision d = {0};
    char id[40];

    sp_list_each(i, &p->elicitations) {
        (void)snprintf(id, sizeof id, "\"elicit-%" PRIu64 "\"", elicitation_of(i)->number);
        if (sp_str_eq(m->id, sp_str_of(id)))
            a = elicitation_of(i);
    }
    if (a == NULL)
        return;
    const struct parked *parked = a->call == NULL ? find_parked(p->caller, a->parked) : NULL;
    struct sp_mcp_run *r = a->call != NULL ? a->call->run : parked != NULL ? parked->run : NULL;
    const uint64_t question = a->question;
    forget_elicitation(p, a);
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

/* Tells the client to close the form, if it has one. */
static void withdraw_elicitation(void *user)
{
    struct call *c = user;
    struct elicitation *a = elicitation_of_call(c);
    char params[64];

    if (a == NULL)
        return;
    (void)snprintf(params, sizeof params, "{\"requestId\":\"elicit-%" PRIu64 "\"}", a->number);
    forget_elicitation(c->request.peer, a);
    (void)sp_mcp_say_notice(c->request.out, "notifications/cancelled", sp_str_of(params));
}

/* ---- callbacks of the run ---- */

static void on_done(void *user, const struct sp_mcp_result *r)
{
    struct call *c = user;
    auto_buf struct sp_buf b = {0};

    c->run = NULL;
    if (sp_mcp_add_result(&b, c->request.revision, r))
        answer_call(c, "complete", sp_buf_str(&b));
    else
        fail_call(c, NULL);
}

static void on_question(void *user)
{
    struct call *c = user;
    const struct sp_approval_question *q = sp_mcp_run_question(c->run);

    hasten_progress(c);
    if (q == NULL)
        return;
    const bool asks_host = sp_mcp_run_asks_host(c->run);
    if (asks_host && c->elicits && c->request.revision->is_modern) {
        ask_by_result(c, q);
        return;
    }
    if (asks_host && !(c->elicits && ask_by_request(c, q)))
        sp_mcp_run_ask_next(c->run, SP_NO_APPROVER);
    if (c->is_overdue && sp_mcp_run_question(c->run) != NULL)
        give_up(c);
}

static void on_started(void *user, int session_id)
{
    struct call *c = user;
    auto_buf struct sp_buf task = {0};

    if (!c->wants_task || c->is_overdue ||
        !sp_mcp_task_adopt(c->run, session_id, c->elicits, &task)) {
        hasten_progress(c);
        return;
    }
    c->run = NULL;
    answer_call(c, "task", sp_buf_str(&task));
}

static const struct sp_mcp_run_ops run_ops = {.done = on_done,
                                              .question = on_question,
                                              .withdrawn = withdraw_elicitation,
                                              .started = on_started};

/* ---- the start ---- */

/* What the params say beside the name and the arguments. */
struct retry {
    struct sp_str state; /* requestState; p NULL: this is not a retry */
    uint32_t responses;
};

/* NULL, or what is wrong with the params. */
static const char *check_params(const struct sp_mcp_incoming *t, struct retry *ret)
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

/* Whether exec_command runs to completion: `until` is exactly {"exit":true}, no yield_time_ms. */
static bool is_to_completion(struct sp_str tool, struct sp_json *j)
{
    if (!sp_str_eq(tool, SP_STR("exec_command")) || sp_json_type(j, 0) != SP_JSON_OBJECT)
        return false;
    const uint32_t yield = sp_json_get(j, 0, "yield_time_ms");
    const uint32_t until = sp_json_get(j, 0, "until");
    if ((yield != SP_JSON_NONE && sp_json_type(j, yield) != SP_JSON_NULL) ||
        until == SP_JSON_NONE || sp_json_type(j, until) != SP_JSON_OBJECT ||
        j->tokens[until].children != 1)
        return false;
    const uint32_t exit = sp_json_get(j, until, "exit");
    return exit != SP_JSON_NONE && sp_json_type(j, exit) == SP_JSON_TRUE;
}

static void attach_run(struct call *c, struct sp_mcp_run *r)
{
    c->run = r;
    c->wants_task = c->wants_task && r->waits_for_end;
    sp_mcp_run_attach(r, &run_ops, c);
}

/* A repeated call with requestState and the person's answer. false: the call has been answered. */
static bool resume_call(struct call *c, const struct sp_mcp_incoming *t, const struct retry *retry)
{
    struct sp_mcp_caller *caller = t->peer->caller;
    struct sp_json *j = &t->message->json;
    struct sp_decision d = {0};
    struct sp_err e = {0};
    uint64_t number = 0;

    if (read_ticket(retry->state, caller, &c->digest, &number, &e) < 0) {
        close_call(c);
        if (e.code == SP_E_MALFORMED)
            sp_mcp_say_invalid(&t->to, "requestState: %s; repeat the call without it", e.msg);
        else
            say_failed(&t->to, "requestState: %s; repeat the call without requestState", e.msg);
        return false;
    }
    struct parked *parked = find_parked(caller, number);
    if (parked == NULL) {
        fail_call(c, "requestState was used before, or its question is gone; repeat the call "
                     "without requestState");
        return false;
    }
    struct sp_mcp_run *r = unpark_run(caller, parked);
    attach_run(c, r);
    const struct sp_approval_question *q = sp_mcp_run_question(r);
    const uint32_t answer = sp_mcp_elicit_find_input(j, retry->responses, number);
    /* Without a valid answer the question is reported again, and asked again. */
    if (q != NULL && answer != SP_JSON_NONE && sp_mcp_run_asks_host(r) &&
        sp_mcp_elicit_read(j, answer, q, sp_mcp_run_is_too_quick(r), &d))
        sp_mcp_run_decide(r, &d);
    return true;
}

static void refuse_start(struct call *c, const struct sp_mcp_incoming *t, const struct sp_err *e)
{
    close_call(c);
    if (e->code == SP_E_NO_METHOD)
        sp_mcp_say_invalid(&t->to, "%s", e->msg);
    else if (e->code == SP_E_LIMIT)
        say_failed(&t->to, "%s", e->msg);
    else
        sp_mcp_say_error(&t->to, SP_MCP_OK_STATUS, SP_MCP_INTERNAL, "%s", e->msg);
}

/* false: the call has been answered. */
static bool start_call(struct call *c, const struct sp_mcp_incoming *t, struct sp_arguments *parsed)
{
    const bool repeats_output =
        t->to.revision->is_modern
            ? sp_mcp_host_repeats_output(sp_mcp_options(t->peer->mcp)->structured_output,
                                         t->message->client)
            : t->peer->repeats_output;
    const struct sp_mcp_run_request request = {.tool = t->message->name,
                                               .arguments = parsed,
                                               .waits_for_end = c->wants_task,
                                               .repeats_output = repeats_output,
                                               .cannot_ask_host = !c->elicits};
    struct parked *parked = find_same(t->peer->caller, &c->digest);
    struct sp_err e = {0};

    if (t->to.revision->is_modern)
        sp_mcp_caller_set_client_name(t->peer->caller, t->message->client);
    if (parked != NULL) {
        attach_run(c, unpark_run(t->peer->caller, parked));
        return true;
    }
    if (sp_mcp_run_start(t->peer->caller, &request, &run_ops, c, &c->run, &e) == 0)
        return true;
    refuse_start(c, t, &e);
    return false;
}

static void begin_call(const struct sp_mcp_incoming *t, const struct retry *retry)
{
    auto_arguments struct sp_arguments parsed = {0};
    struct sp_mcp_message *m = t->message;
    struct sp_err e = {0};
    struct call *c = sp_mcp_request_open(t, sizeof *c, drop_call);

    if (c == NULL)
        return;
    c->request.unheard = on_unheard;
    c->request.cancel = cancel_call;
    c->token_len = (uint32_t)m->progress.n;
    if (m->progress.n != 0)
        memcpy(c->token, m->progress.p, m->progress.n);
    /* The message is gone when the run still needs its arguments: parse a copy, once. */
    int r = sp_arguments_parse(&parsed, m->arguments.n == 0 ? SP_STR("{}") : m->arguments, &e);
    if (r == 0 && !sp_arguments_digest(&parsed, m->name, &c->digest))
        r = sp_fail(&e, SP_E_SYSTEM, ENOMEM, "compute the digest of a call");
    if (r < 0) {
        refuse_start(c, t, &e);
        return;
    }
    c->elicits = t->peer->elicits && t->peer->is_initialized;
    if (t->to.revision->is_modern) {
        c->elicits = sp_mcp_can_elicit(&m->json, m->capabilities);
        c->wants_task = sp_mcp_can_task(&m->json, m->capabilities) &&
                        is_to_completion(m->name, &parsed.json) &&
                        sp_mcp_task_has_room(t->peer->caller);
    }
    /* The timer is armed before anything starts, so that no call can wait forever. */
    struct sp_loop *l = loop_of(c);
    if (!(c->token_len == 0
              ? set_deadline(c)
              : sp_loop_timer(l, &c->timer, sp_loop_now(l) + SP_MCP_PROGRESS_MS, on_progress))) {
        fail_call(c, NULL);
        return;
    }
    const bool is_running =
        retry->state.p != NULL ? resume_call(c, t, retry) : start_call(c, t, &parsed);
    if (is_running && c->token_len != 0)
        say_progress(c);
}

void sp_mcp_call(const struct sp_mcp_incoming *t)
{
    struct retry retry = {.responses = SP_JSON_NONE};
    const char *wrong = check_params(t, &retry);

    if (wrong != NULL)
        sp_mcp_say_invalid(&t->to, "%s", wrong);
    else if (sp_mcp_tool_find(t->peer->mcp, t->message->name) == NULL)
        sp_mcp_say_invalid(&t->to, "Unknown tool: " SP_STR_FMT, SP_STR_ARG(t->message->name));
    else
        begin_call(t, &retry);
}
