/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remote_calls: calls to a remote process. Each is one request to the server, or is answered
 * locally at the end of the turn.
 */
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base64.h"
#include "engine/remote/remote_priv.h"

/*
 * ---- process/inspect ----
 *
 * The server's answer is untrusted: names are cleaned here, too.
 */

static enum sp_doing doing_of(struct sp_str name)
{
    for (int d = SP_DOING_UNKNOWN; d < SP_DOING_MAX; d++)
        if (sp_str_eq(name, sp_str_of(sp_doing_name((enum sp_doing)d))))
            return (enum sp_doing)d;
    return SP_DOING_UNKNOWN; /* also "exited": process/exited reports that */
}

static bool write_look(struct sp_buf *b, const struct sp_remote_job *rj,
                       const struct sp_job_look *l)
{
    const uint32_t count = l->port_count < SP_INSPECT_PORTS ? l->port_count : SP_INSPECT_PORTS;
    bool ok = sp_remote_begin_params(b, rj);

    for (uint32_t i = 0; ok && i < count; i++)
        ok = sp_buf_printf(b, "%s%u", i == 0 ? ",\"ports\":[" : ",", l->ports[i]);
    return ok && sp_buf_printf(b, "%s}", count > 0 ? "]" : "");
}

static void copy_name(struct sp_str from, char *ret, size_t size)
{
    const size_t n = from.n < size - 1 ? from.n : size - 1;

    for (size_t i = 0; i < n; i++)
        ret[i] = from.p[i] >= ' ' && from.p[i] <= '~' ? from.p[i] : '?';
    ret[n] = 0;
}

static int take_holder(struct sp_json *j, uint32_t value, struct sp_inspection *ret,
                       struct sp_err *e)
{
    struct sp_str name = {0};
    uint64_t pid = 0;

    if (ret->holder_count == SP_INSPECT_HOLDERS)
        return 0;
    if (sp_json_type(j, value) != SP_JSON_OBJECT)
        return sp_json_wrong_type(j, value, "a holder", e);
    int r = sp_json_need_u64(j, value, "pid", INT32_MAX, &pid, e);
    if (r == 0)
        r = sp_json_need_str(j, value, "name", &name, e);
    if (r < 0)
        return r;
    struct sp_inspect_holder *h = &ret->holders[ret->holder_count];
    h->pid = (int)pid;
    copy_name(name, h->name, sizeof h->name);
    ret->holder_count++;
    return 0;
}

static int take_holders(struct sp_json *j, uint32_t value, struct sp_inspection *ret,
                        struct sp_err *e)
{
    uint32_t holders = SP_JSON_NONE;
    uint64_t count = 0;
    int r = sp_json_opt_array(j, value, "holders", &holders, e);

    if (r < 0 || holders == SP_JSON_NONE)
        return r;
    for (uint32_t h = sp_json_first(j, holders); r == 0 && h != SP_JSON_NONE;
         h = sp_json_next(j, holders, h))
        r = take_holder(j, h, ret, e);
    if (r == 0)
        r = sp_json_opt_u64(j, value, "holderCount", UINT32_MAX, &count, e);
    if (r == 0 && count > ret->holder_count)
        ret->holder_count = (uint32_t)count;
    return r;
}

static bool was_asked_for(const struct sp_job_look *l, uint64_t port)
{
    for (uint32_t i = 0; i < l->port_count && i < SP_INSPECT_PORTS; i++)
        if (l->ports[i] == port)
            return true;
    return false;
}

/* Fails if the answer is invalid. */
static int read_look(struct sp_job_look *l, struct sp_json *j, uint32_t value, struct sp_err *e)
{
    struct sp_inspection found = {0};
    struct sp_str state = {0};
    uint64_t port = 0;

    if (sp_json_type(j, value) != SP_JSON_OBJECT)
        return sp_json_wrong_type(j, value, "what a process does", e);
    int r = sp_json_need_str(j, value, "state", &state, e);
    if (r == 0)
        r = take_holders(j, value, &found, e);
    if (r == 0)
        r = sp_json_opt_u64(j, value, "listening", UINT16_MAX, &port, e);
    if (r < 0)
        return r;
    if (l->wants_doing) {
        l->found = found;
        l->found.doing = doing_of(state);
    }
    l->found.listening = was_asked_for(l, port) ? (uint16_t)port : 0;
    return 0;
}

/* ---- calls ---- */

#define ANSWER_MS \
    30000U /* for calls that a server answers at once; writes may wait for the command */

enum kind { WRITE, CLOSE_STDIN, INSPECT, OTHER };

struct sp_remote_call {
    struct sp_client_request request;
    struct sp_remote_job *job;
    struct sp_job_call *call;
    struct sp_remote_call *prev, *next;
    enum kind kind;
    size_t bytes;
    struct sp_timer timer; /* INSPECT, OTHER: limit for the answer */
};

static void free_call(struct sp_remote_call *c)
{
    struct sp_remote_job *rj = c->job;

    sp_client_forget(&c->request);
    sp_loop_cancel(rj->remote->backend.loop, &c->timer);
    if (c->prev != NULL)
        c->prev->next = c->next;
    else
        rj->calls = c->next;
    if (c->next != NULL)
        c->next->prev = c->prev;
    rj->call_count--;
    rj->input_bytes -= c->bytes;
    free(c);
}

static void finish_call(struct sp_remote_call *c)
{
    struct sp_remote *r = c->job->remote;
    struct sp_job_call *call = c->call;

    free_call(c);
    sp_remote_enter(r);
    call->fn(call);
    sp_remote_leave(r);
}

void sp_remote_drop_calls(struct sp_remote_job *rj)
{
    while (rj->calls != NULL)
        free_call(rj->calls);
}

void sp_remote_fail_calls(struct sp_remote_job *rj, const char *why)
{
    while (rj->calls != NULL && rj->job != NULL) {
        struct sp_remote_call *c = rj->calls;

        c->call->result = SP_JOB_LOST;
        (void)sp_fail(&c->call->error, SP_E_FAILED, 0, "%s", why);
        finish_call(c);
    }
}

void sp_remote_tell_answered(struct sp_remote_job *rj)
{
    sp_remote_enter(rj->remote);
    for (struct sp_list *i; rj->job != NULL && (i = sp_list_take_first(&rj->answered)) != NULL;) {
        struct sp_job_call *call = SP_CONTAINER(i, struct sp_job_call, link);

        call->fn(call);
    }
    sp_remote_leave(rj->remote);
}

SP_PRINTF(4, 5)
static void answer_now(struct sp_remote_job *rj, struct sp_job_call *call,
                       enum sp_job_result result, const char *fmt, ...)
{
    char text[200];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    call->result = result;
    if (result != SP_JOB_OK)
        (void)sp_fail(&call->error, SP_E_FAILED, 0, "%s", text);
    sp_list_append(&rj->answered, &call->link);
    sp_remote_at_turn_end(rj);
}

/* ---- answers ---- */

static enum sp_job_result status_result(struct sp_str status)
{
    if (sp_str_eq(status, SP_STR("accepted")))
        return SP_JOB_OK;
    if (sp_str_eq(status, SP_STR("stdinClosed")))
        return SP_JOB_NO_STDIN;
    if (sp_str_eq(status, SP_STR("unknownProcess")))
        return SP_JOB_GONE;
    if (sp_str_eq(status, SP_STR("starting")))
        return SP_JOB_NOT_YET;
    return SP_JOB_REFUSED;
}

static void take_status(struct sp_job_call *call, const struct sp_client_reply *reply)
{
    struct sp_str status = {0};

    if (sp_json_type(reply->j, reply->value) == SP_JSON_OBJECT)
        (void)sp_json_opt_str(reply->j, reply->value, "status", &status, NULL);
    call->result = status_result(status);
    if (call->result != SP_JOB_OK)
        (void)sp_fail(&call->error, SP_E_FAILED, 0, "the exec-server answered `" SP_STR_FMT "`",
                      SP_STR_ARG(status));
}

static void take_look(struct sp_job_call *call, const struct sp_client_reply *reply)
{
    struct sp_job_look *l = SP_CONTAINER(call, struct sp_job_look, call);

    call->result = SP_JOB_OK;
    if (read_look(l, reply->j, reply->value, &call->error) < 0) {
        call->result = SP_JOB_REFUSED;
        (void)sp_wrap(&call->error, "the exec-server's answer makes no sense");
    }
}

static void on_call_answer(struct sp_client_request *q, const struct sp_client_reply *reply)
{
    struct sp_remote_call *c = SP_CONTAINER(q, struct sp_remote_call, request);
    struct sp_job_call *call = c->call;

    switch (reply->fate) {
    case SP_CLIENT_RESULT:
        call->result = SP_JOB_OK;
        if (c->kind == INSPECT)
            take_look(call, reply);
        else if (c->kind != OTHER)
            take_status(call, reply);
        break;
    case SP_CLIENT_REFUSED:
        call->result = SP_JOB_REFUSED;
        (void)sp_fail(&call->error, SP_E_FAILED, 0, SP_STR_FMT, SP_STR_ARG(reply->message));
        break;
    case SP_CLIENT_LOST:
        call->result = reply->is_final ? SP_JOB_LOST : SP_JOB_REFUSED;
        (void)sp_fail(&call->error, SP_E_FAILED, 0,
                      reply->is_final ? SP_STR_FMT : "nobody knows whether it arrived: " SP_STR_FMT,
                      SP_STR_ARG(reply->message));
        break;
    }
    finish_call(c);
}

/* Whether the server executed it is unknown. */
static void on_call_late(struct sp_timer *t)
{
    struct sp_remote_call *c = SP_CONTAINER(t, struct sp_remote_call, timer);

    c->call->result = SP_JOB_REFUSED;
    (void)sp_fail(&c->call->error, SP_E_FAILED, 0, "the exec-server has not answered for %u s",
                  ANSWER_MS / 1000);
    finish_call(c);
}

/* ---- asking ---- */

/* NULL: too many calls or out of memory, and the call is answered. */
static struct sp_remote_call *new_call(struct sp_remote_job *rj, struct sp_job_call *call,
                                       enum kind kind)
{
    struct sp_remote_call *c = rj->call_count < SP_REMOTE_MAX_CALLS ? calloc(1, sizeof *c) : NULL;

    if (c == NULL) {
        answer_now(rj, call, rj->call_count < SP_REMOTE_MAX_CALLS ? SP_JOB_REFUSED : SP_JOB_FULL,
                   "too much is asked of this process at once");
        return NULL;
    }
    c->request.fn = on_call_answer;
    c->job = rj;
    c->call = call;
    c->kind = kind;
    c->next = rj->calls;
    if (rj->calls != NULL)
        rj->calls->prev = c;
    rj->calls = c;
    rj->call_count++;
    return c;
}

bool sp_remote_begin_params(struct sp_buf *b, const struct sp_remote_job *rj)
{
    return sp_buf_printf(b, "{\"processId\":") && sp_json_add_str(b, sp_str_of(rj->id));
}

static void send_call(struct sp_remote_call *c, const char *method, const struct sp_buf *params,
                      bool ok)
{
    struct sp_remote_job *rj = c->job;
    struct sp_job_call *call = c->call;
    struct sp_loop *loop = rj->remote->backend.loop;

    if (ok && (c->kind == OTHER || c->kind == INSPECT))
        ok = sp_loop_timer(loop, &c->timer, sp_loop_now(loop) + ANSWER_MS, on_call_late);
    if (ok) {
        sp_client_ask(rj->remote->client, &c->request, method, sp_buf_str(params));
        return;
    }
    free_call(c);
    answer_now(rj, call, SP_JOB_REFUSED, "no memory to ask the exec-server");
}

/* true: the call is answered, since the process is starting or has ended. */
static bool is_untimely(struct sp_remote_job *rj, struct sp_job_call *call)
{
    if (rj->state == SP_REMOTE_STARTING)
        answer_now(rj, call, SP_JOB_NOT_YET, "the process is still starting");
    else if (rj->state == SP_REMOTE_OVER || rj->mirror.is_exit_told)
        answer_now(rj, call, SP_JOB_GONE, "the process has exited");
    else
        return false;
    return true;
}

static void write_bytes(struct sp_remote_job *rj, struct sp_job_call *call, struct sp_str bytes)
{
    auto_buf struct sp_buf b = {0};
    struct sp_remote_call *c = new_call(rj, call, WRITE);

    if (c == NULL)
        return;
    c->bytes = bytes.n;
    rj->input_bytes += bytes.n;
    c->request.is_repeatable = true; /* writeId makes a repeated write harmless */
    bool ok =
        sp_remote_begin_params(&b, rj) && sp_buf_printf(&b, ",\"writeId\":\"%llu\",\"chunk\":\"",
                                                        (unsigned long long)++rj->last_write);
    char *room = ok ? sp_buf_room(&b, SP_BASE64_LEN(bytes.n) + 2) : NULL;
    ok = room != NULL;
    if (ok) {
        b.len += (size_t)(sp_base64_encode(room, bytes.p, bytes.n) - room);
        ok = sp_buf_add(&b, "\"}", 2);
    }
    send_call(c, "process/write", &b, ok);
}

void sp_remote_write(struct sp_job *j, struct sp_job_call *call, struct sp_str bytes)
{
    struct sp_remote_job *rj = j->impl;

    if (is_untimely(rj, call))
        return;
    if (bytes.n > SP_REMOTE_MAX_INPUT - rj->input_bytes)
        answer_now(rj, call, SP_JOB_FULL, "the process does not read what was written before");
    else
        write_bytes(rj, call, bytes);
}

/* Servers without process/closeStdin: a terminal takes ^D. */
void sp_remote_close_stdin(struct sp_job *j, struct sp_job_call *call)
{
    struct sp_remote_job *rj = j->impl;
    auto_buf struct sp_buf b = {0};

    if (is_untimely(rj, call))
        return;
    if (!rj->remote->facts.can_close_stdin) {
        if (rj->has_tty)
            write_bytes(rj, call, SP_STR("\x04"));
        else
            answer_now(rj, call, SP_JOB_REFUSED, "this exec-server cannot close stdin");
        return;
    }
    struct sp_remote_call *c = new_call(rj, call, CLOSE_STDIN);
    if (c == NULL)
        return;
    c->request.is_repeatable = true;
    send_call(c, "process/closeStdin", &b,
              sp_remote_begin_params(&b, rj) && sp_buf_add(&b, "}", 1));
}

static const char *signal_name(const struct sp_remote *r, int number)
{
    if (number == SIGINT)
        return "interrupt";
    return r->can_signal ? sigabbrev_np(number) : NULL;
}

void sp_remote_signal(struct sp_job *j, struct sp_job_call *call, int number)
{
    struct sp_remote_job *rj = j->impl;
    const char *name = signal_name(rj->remote, number);
    auto_buf struct sp_buf b = {0};

    if (rj->state == SP_REMOTE_STARTING) {
        answer_now(rj, call, SP_JOB_NOT_YET, "the process is still starting");
        return;
    }
    /* SIGKILL also reaches the rest of the group, if the server sends signals. */
    if (rj->state == SP_REMOTE_OVER ||
        (rj->mirror.is_exit_told && (number != SIGKILL || name == NULL))) {
        answer_now(rj, call, SP_JOB_OK, "it has exited");
        return;
    }
    if (name == NULL && number == SIGKILL) {
        sp_remote_terminate(j, call);
        return;
    }
    if (name == NULL) {
        answer_now(rj, call, SP_JOB_REFUSED, "this exec-server sends no signal but SIGINT");
        return;
    }
    struct sp_remote_call *c = new_call(rj, call, OTHER);
    if (c != NULL) /* not repeatable: a program may treat a second signal differently */
        send_call(c, "process/signal", &b,
                  sp_remote_begin_params(&b, rj) && sp_buf_printf(&b, ",\"signal\":\"%s\"}", name));
}

void sp_remote_resize(struct sp_job *j, struct sp_job_call *call, uint16_t rows, uint16_t cols)
{
    struct sp_remote_job *rj = j->impl;
    auto_buf struct sp_buf b = {0};

    if (is_untimely(rj, call))
        return;
    if (!rj->remote->can_resize) {
        answer_now(rj, call, SP_JOB_REFUSED, "this exec-server cannot resize terminals");
        return;
    }
    struct sp_remote_call *c = new_call(rj, call, OTHER);
    if (c == NULL)
        return;
    c->request.is_repeatable = true;
    send_call(c, "process/resize", &b,
              sp_remote_begin_params(&b, rj) &&
                  sp_buf_printf(&b, ",\"rows\":%u,\"cols\":%u}", rows, cols));
}

void sp_remote_terminate(struct sp_job *j, struct sp_job_call *call)
{
    struct sp_remote_job *rj = j->impl;
    auto_buf struct sp_buf b = {0};

    if (rj->state == SP_REMOTE_OVER) {
        answer_now(rj, call, SP_JOB_OK, "it is over");
        return;
    }
    struct sp_remote_call *c = new_call(rj, call, OTHER);
    if (c == NULL)
        return;
    c->request.is_repeatable = true;
    send_call(c, "process/terminate", &b, sp_remote_begin_params(&b, rj) && sp_buf_add(&b, "}", 1));
}

/* Also after the exit, while another process holds the output. */
bool sp_remote_look(struct sp_job *j, struct sp_job_look *l)
{
    struct sp_remote_job *rj = j->impl;
    auto_buf struct sp_buf b = {0};

    if (!rj->remote->can_inspect)
        return false;
    if (rj->state != SP_REMOTE_LIVE) {
        answer_now(rj, &l->call, rj->state == SP_REMOTE_OVER ? SP_JOB_GONE : SP_JOB_NOT_YET,
                   rj->state == SP_REMOTE_OVER ? "the process has ended"
                                               : "the process is still starting");
        return true;
    }
    struct sp_remote_call *c = new_call(rj, &l->call, INSPECT);
    if (c == NULL)
        return true;
    c->request.is_repeatable = true;
    send_call(c, "process/inspect", &b, write_look(&b, rj, l));
    return true;
}

/* ---- processes of released jobs ---- */

static void on_farewell(struct sp_client_request *q, const struct sp_client_reply *reply)
{
    struct sp_remote_farewell *f = SP_CONTAINER(q, struct sp_remote_farewell, request);

    (void)reply; /* the result changes nothing */
    sp_remote_end_farewell(f);
}

void sp_remote_end_farewell(struct sp_remote_farewell *f)
{
    sp_client_forget(&f->request);
    if (f->prev != NULL)
        f->prev->next = f->next;
    else
        f->remote->farewells = f->next;
    if (f->next != NULL)
        f->next->prev = f->prev;
    free(f);
}

void sp_remote_say_farewell(struct sp_remote_job *rj)
{
    struct sp_remote *r = rj->remote;
    auto_buf struct sp_buf b = {0};
    struct sp_remote_farewell *f = r->client == NULL ? NULL : calloc(1, sizeof *f);

    if (f == NULL || !sp_remote_begin_params(&b, rj) || !sp_buf_add(&b, "}", 1)) {
        free(f); /* out of memory: the process ends with the session */
        return;
    }
    f->request.fn = on_farewell;
    f->request.is_repeatable = true;
    f->remote = r;
    f->next = r->farewells;
    if (f->next != NULL)
        f->next->prev = f;
    r->farewells = f;
    sp_client_ask(r->client, &f->request, "process/terminate", sp_buf_str(&b));
}
