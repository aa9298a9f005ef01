/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remote_job: one process on the server: its start, its events, the calls of its owner.
 *
 * Its events and the answers to process/read go into the mirror, which reports them in order. If
 * the connection breaks during the start, a read after the resume finds out whether the process
 * exists; if not, the start is repeated under the same processId.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base64.h"
#include "engine/ids.h"
#include "engine/remote/remote_priv.h"
#include "sandbox/profile.h"

#define MAX_EARLY       (16U << 20) /* output before the answer to process/start */
#define MAX_INPUT       (1U << 20)  /* unanswered input of one process */
#define MAX_CALLS       1024        /* unanswered calls of one process */
#define INVALID_REQUEST (-32600)    /* wire code: process unknown, starting, or existing */
#define LOOK_AGAIN_MS   100U
#define START_MS        60000U   /* limit for the answer to process/start */
#define JUDGED_MS       1200000U /* the same, where a person may be asked: longer than a question */
#define VERDICT_MS      5000U    /* how long an exit waits for its sandbox verdict */
#define MAX_STARTS      30U      /* limit of repeated starts */
/* For calls that a server answers at once; writes may wait for the command. */
#define ANSWER_MS 30000U

enum kind { WRITE, CLOSE_STDIN, INSPECT, SIGNAL, OTHER };

struct call {
    struct sp_client_request request;
    struct sp_remote_job *job;
    struct sp_job_call *call;
    struct sp_list link; /* job->calls */
    enum kind kind;
    size_t bytes;
    struct sp_timer timer; /* limit for the answer; not of WRITE and CLOSE_STDIN */
};

static const struct sp_mirror_ops mirror_ops;

/*
 * ---- calls in flight ----
 *
 * A call is one request to the server, or is answered locally at the end of the turn.
 */

static bool begin_params(struct sp_buf *b, const struct sp_remote_job *rj)
{
    return sp_buf_printf(b, "{\"processId\":") && sp_json_add_str(b, sp_str_of(rj->id));
}

static void on_turn(struct sp_deferred *d);

static void at_turn_end(struct sp_remote_job *rj)
{
    sp_loop_defer(rj->remote->backend.loop, &rj->turn, on_turn);
}

static void free_call(struct call *c)
{
    struct sp_remote_job *rj = c->job;

    sp_client_forget(&c->request);
    sp_loop_cancel(rj->remote->backend.loop, &c->timer);
    sp_list_remove(&c->link);
    rj->call_count--;
    rj->input_bytes -= c->bytes;
    free(c);
}

static void finish_call(struct call *c)
{
    struct sp_remote *r = c->job->remote;
    struct sp_job_call *call = c->call;

    free_call(c);
    sp_remote_enter(r);
    call->fn(call);
    sp_remote_leave(r);
}

/* All calls left. */
static void fail_calls(struct sp_remote_job *rj, const char *why)
{
    for (struct sp_list *i; rj->job != NULL && (i = sp_list_first(&rj->calls)) != NULL;) {
        struct call *c = SP_CONTAINER(i, struct call, link);

        c->call->result = SP_JOB_LOST;
        (void)sp_fail(&c->call->error, SP_E_FAILED, 0, "%s", why);
        finish_call(c);
    }
}

static void answer_now(struct sp_remote_job *rj, struct sp_job_call *call,
                       enum sp_job_result result, const char *why)
{
    call->result = result;
    if (result != SP_JOB_OK)
        (void)sp_fail(&call->error, SP_E_FAILED, 0, "%s", why);
    sp_list_append(&rj->answered, &call->link);
    at_turn_end(rj);
}

/* ---- processes of released jobs, which the server is told to terminate ---- */

static void on_farewell(struct sp_client_request *q, const struct sp_client_reply *reply)
{
    struct sp_remote_farewell *f = SP_CONTAINER(q, struct sp_remote_farewell, request);

    (void)reply; /* the result changes nothing */
    sp_list_remove(&f->link);
    free(f);
}

static void say_farewell(struct sp_remote_job *rj)
{
    struct sp_remote *r = rj->remote;
    auto_buf struct sp_buf b = {0};
    struct sp_remote_farewell *f = r->client == NULL ? NULL : calloc(1, sizeof *f);

    if (f == NULL || !begin_params(&b, rj) || !sp_buf_add(&b, "}", 1)) {
        free(f); /* out of memory: the process ends with the session */
        return;
    }
    f->request.fn = on_farewell;
    f->request.is_repeatable = true;
    sp_list_prepend(&r->farewells, &f->link);
    sp_client_ask(r->client, &f->request, "process/terminate", sp_buf_str(&b));
}

/* ---- the end of a process ---- */

/* One process that is behind pauses the connection of all. */
static void note_full(struct sp_remote_job *rj)
{
    struct sp_remote *r = rj->remote;
    const bool is_full = rj->state == SP_REMOTE_LIVE && sp_mirror_is_full(&rj->mirror);

    if (is_full == rj->is_full)
        return;
    rj->is_full = is_full;
    r->full += is_full ? 1 : -1U;
    if (r->client != NULL)
        sp_client_pause(r->client, r->full != 0);
}

static void end_job(struct sp_remote_job *rj)
{
    rj->state = SP_REMOTE_OVER;
    rj->network = NULL;
    sp_remote_drop_questions(rj);
    sp_client_forget(&rj->start);
    sp_client_forget(&rj->read);
    sp_loop_cancel(rj->remote->backend.loop, &rj->timer);
    sp_buf_done(&rj->launch);
    sp_mirror_done(&rj->mirror);
    note_full(rj);
}

static void refuse_job(struct sp_remote_job *rj, const struct sp_err *e)
{
    struct sp_remote *r = rj->remote;

    end_job(rj);
    sp_remote_enter(r);
    fail_calls(rj, e->msg);
    if (rj->job != NULL)
        rj->job->ops->refused(rj->job, e);
    sp_remote_leave(r);
}

/* is_there: the process may exist on the server, where it is terminated. */
static void fail_job(struct sp_remote_job *rj, const struct sp_err *why, bool is_there)
{
    struct sp_remote *r = rj->remote;
    const struct sp_err e = *why;

    if (rj->state == SP_REMOTE_OVER)
        return;
    if (is_there && !rj->mirror.is_exit_told)
        say_farewell(rj);
    if (rj->state == SP_REMOTE_STARTING) {
        refuse_job(rj, &e);
        return;
    }
    end_job(rj);
    sp_remote_enter(r);
    fail_calls(rj, e.msg);
    if (rj->job != NULL)
        rj->job->ops->failed(rj->job, e.msg);
    sp_remote_leave(r);
}

void sp_remote_job_free(struct sp_remote_job *rj)
{
    sp_loop_undefer(rj->remote->backend.loop, &rj->turn);
    sp_list_remove(&rj->link);
    free(rj->id);
    free(rj);
}

/* The job's callbacks may be on the stack, so it is freed at the end of the turn. */
static void release_job(struct sp_job *j)
{
    struct sp_remote_job *rj = j->impl;
    const bool is_unsent = rj->state == SP_REMOTE_STARTING && rj->start.text.len != 0;

    const bool is_kept = rj->is_named && rj->state == SP_REMOTE_LIVE;

    if (rj->state != SP_REMOTE_OVER && !rj->mirror.has_exit && !is_unsent && !is_kept)
        say_farewell(rj);
    rj->job = NULL;
    sp_list_init(&rj->answered);
    for (struct sp_list *i; (i = sp_list_first(&rj->calls)) != NULL;)
        free_call(SP_CONTAINER(i, struct call, link));
    end_job(rj);
    sp_list_remove(&rj->link);
    sp_list_prepend(&rj->remote->graves, &rj->link);
    at_turn_end(rj);
}

/* ---- following ---- */

static void ask_read(struct sp_remote_job *rj,
                     void (*fn)(struct sp_client_request *, const struct sp_client_reply *))
{
    auto_buf struct sp_buf b = {0};
    struct sp_err e;

    if (rj->read.client != NULL)
        return;
    rj->read.fn = fn;
    if (begin_params(&b, rj) &&
        sp_buf_printf(&b, ",\"afterSeq\":%llu,\"maxBytes\":null,\"waitMs\":0}",
                      (unsigned long long)sp_mirror_begin_read(&rj->mirror))) {
        sp_client_ask(rj->remote->client, &rj->read, "process/read", sp_buf_str(&b));
    } else {
        (void)sp_fail(&e, SP_E_SYSTEM, ENOMEM, "no memory to ask the exec-server");
        fail_job(rj, &e, true);
    }
}

static void on_read(struct sp_client_request *q, const struct sp_client_reply *reply);

static void follow(struct sp_remote_job *rj);

/* The server does not answer reads: report the exit without a verdict. Without a connection no read
 * was sent, so the wait goes on. */
static void on_verdict_late(struct sp_timer *t)
{
    struct sp_remote_job *rj = SP_CONTAINER(t, struct sp_remote_job, timer);
    struct sp_remote *r = rj->remote;

    if (rj->read.client != NULL)
        rj->mirror.has_verdict = true;
    sp_remote_enter(r);
    follow(rj);
    sp_remote_leave(r);
}

/* Reports what arrived and reads what is missing. */
static void follow(struct sp_remote_job *rj)
{
    struct sp_loop *loop = rj->remote->backend.loop;

    if (rj->state != SP_REMOTE_LIVE)
        return;
    sp_mirror_tell(&rj->mirror);
    note_full(rj);
    if (rj->state == SP_REMOTE_LIVE && sp_mirror_needs(&rj->mirror) != SP_MIRROR_NOTHING)
        ask_read(rj, on_read);
    if (rj->state == SP_REMOTE_LIVE && sp_mirror_needs(&rj->mirror) == SP_MIRROR_VERDICT &&
        rj->timer.slot == 0 &&
        !sp_loop_timer(loop, &rj->timer, sp_loop_now(loop) + VERDICT_MS, on_verdict_late))
        rj->mirror.has_verdict = true;
}

static void take_answer(struct sp_remote_job *rj, const struct sp_client_reply *reply)
{
    struct sp_err e;

    if (sp_mirror_take_answer(&rj->mirror, reply->j, reply->value, &e) < 0) {
        sp_mirror_tell(&rj->mirror);
        fail_job(rj, &e, true);
    } else {
        follow(rj);
    }
}

static void on_read(struct sp_client_request *q, const struct sp_client_reply *reply)
{
    struct sp_remote_job *rj = SP_CONTAINER(q, struct sp_remote_job, read);
    struct sp_remote *r = rj->remote;
    struct sp_err e;

    sp_remote_enter(r);
    switch (reply->fate) {
    case SP_CLIENT_RESULT:
        take_answer(rj, reply);
        break;
    case SP_CLIENT_REFUSED:
        if (rj->mirror.held == NULL && rj->mirror.has_exit) {
            rj->mirror.has_verdict = true;
            follow(rj);
            break;
        }
        (void)sp_fail(&e, SP_E_FAILED, 0, "the exec-server lost the process: " SP_STR_FMT,
                      SP_STR_ARG(reply->message));
        fail_job(rj, &e, true); /* the process may still exist */
        break;
    case SP_CLIENT_LOST: /* repeated after the resume, or the client is dead */
        break;
    }
    sp_remote_leave(r);
}

static void on_turn(struct sp_deferred *d)
{
    struct sp_remote_job *rj = SP_CONTAINER(d, struct sp_remote_job, turn);
    struct sp_remote *r = rj->remote;

    if (rj->job == NULL) {
        sp_remote_job_free(rj);
        return;
    }
    sp_remote_enter(r);
    for (struct sp_list *i; rj->job != NULL && (i = sp_list_take_first(&rj->answered)) != NULL;) {
        struct sp_job_call *call = SP_CONTAINER(i, struct sp_job_call, link);

        call->fn(call);
    }
    if (rj->is_unblocked) {
        rj->is_unblocked = false;
        rj->mirror.is_blocked = false;
    }
    if (rj->job != NULL)
        follow(rj);
    sp_remote_leave(r);
}

static void go_on(struct sp_job *j)
{
    struct sp_remote_job *rj = j->impl;

    rj->is_unblocked = true;
    at_turn_end(rj);
}

struct sp_remote_job *sp_remote_find_job(const struct sp_remote *r, struct sp_str id)
{
    sp_list_each(i, &r->jobs) {
        struct sp_remote_job *rj = SP_CONTAINER(i, struct sp_remote_job, link);

        if (rj->state != SP_REMOTE_OVER && sp_str_eq(sp_str_of(rj->id), id))
            return rj;
    }
    return NULL;
}

/* Limits that were reached, from process/exited. An exit that only a read tells has none. */
static void take_limits(struct sp_remote_job *rj, struct sp_json *j, uint32_t params)
{
    uint32_t hits = SP_JSON_NONE;

    (void)sp_json_opt_array(j, params, "limitsHit", &hits, NULL);
    sp_limits_read_hits(j, hits, sp_receipt_read_reason(j, params), &rj->limits);
}

/* process/denied. Servers are hostile: the host must be a name or an address. */
static void tell_denied(const struct sp_remote_job *rj, struct sp_json *j, uint32_t params)
{
    struct sp_str host = {0};
    struct sp_str reason = {0};
    struct sp_hostname name = {0};
    uint64_t port = 0;
    struct sp_err e;

    if (rj->state != SP_REMOTE_LIVE || rj->job == NULL || rj->job->ops->denied == NULL)
        return;
    if (sp_json_get(j, params, "host") == SP_JSON_NONE) {
        rj->job->ops->denied(rj->job, &(struct sp_net_denial){0});
        return;
    }
    if (sp_json_need_str(j, params, "host", &host, &e) < 0 ||
        sp_json_need_u64(j, params, "port", UINT16_MAX, &port, &e) < 0 ||
        sp_json_need_str(j, params, "reason", &reason, &e) < 0 ||
        sp_hostname_read(host, &name) != NULL)
        return;
    struct sp_net_denial d = {
        .host = name.text, .port = (uint16_t)port, .reason = SP_NETWORK_REASON_OTHER};
    for (unsigned i = SP_NETWORK_REASON_NONE + 1; i < SP_NETWORK_REASON_MAX; i++)
        if (sp_str_eq(reason, sp_str_of(sp_network_reason_text(i)->wire)))
            d.reason = (enum sp_network_reason)i;
    d.rule = sp_managed_rule(d.reason);
    rj->job->ops->denied(rj->job, &d);
}

void sp_remote_notified(struct sp_remote *r, struct sp_str method, struct sp_json *j,
                        uint32_t params)
{
    struct sp_str id = {0};
    struct sp_err e;

    if (method.n < 8 || memcmp(method.p, "process/", 8) != 0 || params == SP_JSON_NONE ||
        sp_json_type(j, params) != SP_JSON_OBJECT ||
        sp_json_need_str(j, params, "processId", &id, &e) < 0)
        return;
    struct sp_remote_job *rj = sp_remote_find_job(r, id);
    if (rj == NULL)
        return;
    if (sp_str_eq(method, SP_STR("process/denied"))) {
        tell_denied(rj, j, params);
        return;
    }
    if (sp_str_eq(method, SP_STR("process/exited")))
        take_limits(rj, j, params);
    if (sp_mirror_take_event(&rj->mirror, method, j, params, &e) < 0) {
        fail_job(rj, &e, true);
    } else if (rj->state == SP_REMOTE_STARTING) {
        if (rj->mirror.waiting_bytes > MAX_EARLY) {
            (void)sp_fail(&e, SP_E_LIMIT, 0,
                          "the exec-server sends output of a process and no word of its start");
            fail_job(rj, &e, true);
        }
    } else if (rj->state == SP_REMOTE_LIVE) {
        sp_mirror_tell(&rj->mirror);
        note_full(rj);
        if (rj->state == SP_REMOTE_LIVE && sp_mirror_needs(&rj->mirror) != SP_MIRROR_NOTHING)
            at_turn_end(rj); /* missing events may arrive in this turn */
    }
}

/* ---- reports of the mirror ---- */

static bool on_output(void *user, enum sp_stream stream, struct sp_str bytes)
{
    const struct sp_remote_job *rj = user;

    return rj->state == SP_REMOTE_LIVE && rj->job->ops->output(rj->job, stream, bytes);
}

static void on_gap(void *user)
{
    const struct sp_remote_job *rj = user;

    rj->job->ops->gap(rj->job, 0);
}

static void tell_receipt(const struct sp_remote_job *rj)
{
    if (rj->mirror.receipt.is_known && rj->job->ops->receipt != NULL)
        rj->job->ops->receipt(rj->job, &rj->mirror.receipt.is);
}

/* An exit code of 128 + n is a signal or an exit status: the reason says which. 0: none, or not
 * told. */
static int signal_of(const struct sp_mirror *m, int code)
{
    const enum sp_end_reason why = m->receipt.is_known ? m->receipt.is.reason : SP_END_NONE;
    const bool is_signal = why == SP_END_SIGNAL || why == SP_END_TERMINATED ||
                           why == SP_END_MEMORY_LIMIT || why == SP_END_CPU_LIMIT ||
                           why == SP_END_WALL_LIMIT || why == SP_END_OUTPUT_LIMIT;

    return is_signal && code > 128 && code < 128 + NSIG ? code - 128 : 0;
}

static void on_exited(void *user, int code, int denied)
{
    const struct sp_remote_job *rj = user;
    const struct sp_job_exit how = {.code = code,
                                    .signal = signal_of(&rj->mirror, code),
                                    .denied = denied,
                                    .limits = rj->limits};

    tell_receipt(rj);
    rj->job->ops->exited(rj->job, &how);
}

static void on_closed(void *user)
{
    struct sp_remote_job *rj = user;

    tell_receipt(rj);
    end_job(rj);
    rj->job->ops->closed(rj->job);
}

static const struct sp_mirror_ops mirror_ops = {on_output, on_gap, on_exited, on_closed};

/* ---- starting ---- */

static void become_live(struct sp_remote_job *rj, enum sp_job_sandbox sandbox)
{
    rj->state = SP_REMOTE_LIVE;
    rj->remote->has_kept |= rj->is_named;
    rj->is_start_lost = false;
    sp_loop_cancel(rj->remote->backend.loop, &rj->timer);
    sp_buf_done(&rj->launch);
    rj->mirror.is_blocked = false;
    rj->job->ops->started(rj->job, sandbox);
}

static enum sp_job_sandbox read_sandbox(const struct sp_client_reply *reply)
{
    struct sp_str type = {0};

    if (sp_json_type(reply->j, reply->value) == SP_JSON_OBJECT)
        (void)sp_json_opt_str(reply->j, reply->value, "sandboxType", &type, NULL);
    return sp_str_eq(type, SP_STR("none"))           ? SP_JOB_SANDBOX_NONE
           : sp_str_eq(type, SP_STR("linuxSeccomp")) ? SP_JOB_SANDBOX_LINUX
                                                     : SP_JOB_SANDBOX_UNKNOWN;
}

static void await_start_answer(struct sp_remote_job *rj);

static void ask_start(struct sp_remote_job *rj);

static void on_check(struct sp_client_request *q, const struct sp_client_reply *reply);

static void on_start_late(struct sp_timer *t)
{
    struct sp_remote_job *rj = SP_CONTAINER(t, struct sp_remote_job, timer);
    struct sp_err e;

    if (rj->start.text.len != 0 ||
        rj->is_start_lost) { /* no connection: resuming has a limit of its own */
        await_start_answer(rj);
        return;
    }
    (void)sp_fail(&e, SP_E_SYSTEM, 0, "the exec-server has not answered the start for %u s",
                  (rj->remote->facts.judges ? JUDGED_MS : START_MS) / 1000);
    fail_job(rj, &e, true);
}

static void await_start_answer(struct sp_remote_job *rj)
{
    struct sp_loop *loop = rj->remote->backend.loop;

    const unsigned limit_ms = rj->remote->facts.judges ? JUDGED_MS : START_MS;

    (void)sp_loop_timer(loop, &rj->timer, sp_loop_now(loop) + limit_ms, on_start_late);
}

static void on_look_again(struct sp_timer *t)
{
    struct sp_remote_job *rj = SP_CONTAINER(t, struct sp_remote_job, timer);

    await_start_answer(rj);
    ask_read(rj, on_check);
}

/* A repeated start is refused if the first one was, or is being, executed. */
static void start_refused(struct sp_remote_job *rj, const struct sp_client_reply *reply)
{
    struct sp_loop *loop = rj->remote->backend.loop;
    const bool is_unclear =
        rj->start_tries != 0 && reply->code == INVALID_REQUEST && !reply->is_rejected;
    struct sp_err e;

    if (is_unclear && rj->start_tries < MAX_STARTS &&
        sp_loop_timer(loop, &rj->timer, sp_loop_now(loop) + LOOK_AGAIN_MS, on_look_again))
        return;
    if (is_unclear) { /* a new id might run the command twice */
        (void)sp_fail(&e, SP_E_FAILED, 0,
                      "the connection was lost while the process was starting, and the exec-server "
                      "does not tell what became of it: " SP_STR_FMT,
                      SP_STR_ARG(reply->message));
        fail_job(rj, &e, true);
        return;
    }
    (void)sp_fail(&e,
                  reply->is_rejected                          ? SP_E_STATE
                  : reply->code == sp_code_wire(SP_E_INVALID) ? SP_E_INVALID
                                                              : SP_E_FAILED,
                  0, SP_STR_FMT, SP_STR_ARG(reply->message));
    refuse_job(rj, &e);
}

static void on_start(struct sp_client_request *q, const struct sp_client_reply *reply)
{
    struct sp_remote_job *rj = SP_CONTAINER(q, struct sp_remote_job, start);
    struct sp_remote *r = rj->remote;

    sp_remote_enter(r);
    switch (reply->fate) {
    case SP_CLIENT_RESULT:
        become_live(rj, read_sandbox(reply));
        if (rj->job != NULL)
            follow(rj);
        break;
    case SP_CLIENT_REFUSED:
        start_refused(rj, reply);
        break;
    case SP_CLIENT_LOST:
        rj->is_start_lost = true; /* sp_remote_tell checks */
        break;
    }
    sp_remote_leave(r);
}

/* A process that can be read has started; only the answer was lost. */
static void on_check(struct sp_client_request *q, const struct sp_client_reply *reply)
{
    struct sp_remote_job *rj = SP_CONTAINER(q, struct sp_remote_job, read);
    struct sp_remote *r = rj->remote;

    sp_remote_enter(r);
    switch (reply->fate) {
    case SP_CLIENT_RESULT:
        become_live(rj, rj->is_sandboxed ? SP_JOB_SANDBOX_UNKNOWN : SP_JOB_SANDBOX_NONE);
        if (rj->job != NULL)
            take_answer(rj, reply);
        break;
    case SP_CLIENT_REFUSED:
        rj->start_tries++;
        ask_start(rj);
        break;
    case SP_CLIENT_LOST:
        rj->is_start_lost = true;
        break;
    }
    sp_remote_leave(r);
}

static void ask_start(struct sp_remote_job *rj)
{
    rj->is_start_lost = false;
    await_start_answer(rj);
    rj->start.fn = on_start;
    sp_client_ask(rj->remote->client, &rj->start, "process/start", sp_buf_str(&rj->launch));
}

void sp_remote_tell(struct sp_remote_job *rj, const struct sp_err *why)
{
    if (why != NULL) {
        struct sp_err e = *why;

        e.code = SP_E_SYSTEM; /* the server did not refuse it */
        fail_job(rj, &e, false);
    } else if (rj->state == SP_REMOTE_STARTING && rj->is_start_lost) {
        rj->is_start_lost = false;
        await_start_answer(rj);
        ask_read(rj, on_check);
    } else if (rj->state == SP_REMOTE_LIVE && !rj->mirror.has_close) {
        ask_read(rj, on_read);
    }
}

/* Those of the start, below those of --limit, which the server enforces as well as it can. */
static int choose_limits(const struct sp_remote *r, struct sp_limit_ask *l, struct sp_err *e)
{
    const struct sp_limit_set asked = l->set;

    if (sp_limits_lower(&asked, &r->options.limits, &l->set, e) < 0)
        return -(int)e->code;
    for (int i = 0; i < SP_LIMIT_COUNT && !l->is_given; i++)
        if (l->set.of[i] != 0)
            l->is_given = l->is_best = true;
    if (l->is_given && r->has_facts && !r->facts.can_limit)
        return sp_fail(e, SP_E_INVALID, 0,
                       "the server cannot limit commands (its capability processLimits is not "
                       "set): leave the limits out, or run the command here (--on local)");
    return 0;
}

static int start_process(struct sp_backend *b, struct sp_job *j, const struct sp_start *l,
                         struct sp_err *e)
{
    struct sp_remote *r = SP_CONTAINER(b, struct sp_remote, backend);
    const char *cwd = r->options.cwd != NULL ? r->options.cwd : r->cwd != NULL ? r->cwd : "/";
    struct sp_remote_job *rj = calloc(1, sizeof *rj);
    char uuid[SP_UUID_SIZE];
    int err = 0;

    if (rj == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "start a process");
    rj->remote = r;
    rj->job = j;
    rj->is_sandboxed = l->policy != NULL;
    rj->has_tty = l->is_tty;
    rj->network = l->network;
    sp_list_init(&rj->questions);
    rj->is_named = l->name.n != 0;
    sp_list_init(&rj->answered);
    sp_list_init(&rj->calls);
    sp_mirror_init(&rj->mirror, &mirror_ops, rj);
    /* LABEL-UUID: a server keeps an ended process under its name for a while. */
    if (l->label.n > 256 || sp_str_has_nul(l->label)) {
        err = sp_fail(e, SP_E_INVALID, 0, "a process cannot have this name");
    } else if (l->id.n != 0) {
        rj->id = sp_str_dup(l->id);
    } else if (!sp_uuid_make(uuid) ||
               asprintf(&rj->id, SP_STR_FMT "-%s", SP_STR_ARG(l->label), uuid) < 0) {
        rj->id = NULL;
    }
    if (err == 0 && rj->id == NULL)
        err = sp_fail(e, SP_E_SYSTEM, ENOMEM, "name a process");
    if (err == 0 && l->policy != NULL && sp_profile_managed(&l->policy->profile) != NULL &&
        !r->can_proxy)
        err = sp_fail(e, SP_E_INVALID, 0,
                      "the server cannot run commands with a managed network (its capability "
                      "networkProxyLaunch is not set): give --network none, or run the command "
                      "here (--on local)");
    struct sp_start start = *l;
    if (err == 0)
        err = choose_limits(r, &start.limits, e);
    if (err == 0)
        err = sp_remote_write_launch(&rj->launch, rj->id, &start, cwd, e);
    if (err == 0)
        err = sp_remote_need_client(r, e);
    if (err < 0) {
        sp_buf_done(&rj->launch);
        free(rj->id);
        free(rj);
        return err;
    }
    sp_list_prepend(&r->jobs, &rj->link);
    j->impl = rj;
    ask_start(rj);
    return 0;
}

/*
 * ---- process/inspect ----
 *
 * The server's answer is untrusted: names are cleaned here, too.
 */

static int take_holders(struct sp_json *j, uint32_t value, struct sp_inspection *ret,
                        struct sp_err *e)
{
    uint32_t holders = SP_JSON_NONE;
    uint64_t count = 0;
    int r = sp_json_opt_array(j, value, "holders", &holders, e);

    if (r < 0 || holders == SP_JSON_NONE)
        return r;
    for (uint32_t h = sp_json_first(j, holders); r == 0 && h != SP_JSON_NONE;
         h = sp_json_next(j, holders, h)) {
        struct sp_inspect_holder *to = &ret->holders[ret->holder_count];
        struct sp_str name = {0};
        uint64_t pid = 0;

        if (ret->holder_count == SP_INSPECT_HOLDERS)
            break;
        if (sp_json_type(j, h) != SP_JSON_OBJECT)
            return sp_json_wrong_type(j, h, "a holder", e);
        r = sp_json_need_u64(j, h, "pid", INT32_MAX, &pid, e);
        if (r == 0)
            r = sp_json_need_str(j, h, "name", &name, e);
        if (r < 0)
            return r;
        to->pid = (int)pid;
        const size_t n = name.n < sizeof to->name - 1 ? name.n : sizeof to->name - 1;
        for (size_t i = 0; i < n; i++)
            to->name[i] = name.p[i] >= ' ' && name.p[i] <= '~' ? name.p[i] : '?';
        to->name[n] = 0;
        ret->holder_count++;
    }
    if (r == 0)
        r = sp_json_opt_u64(j, value, "holderCount", UINT32_MAX, &count, e);
    if (r == 0 && count > ret->holder_count)
        ret->holder_count = (uint32_t)count;
    return r;
}

/* Fails if the answer is invalid. A state that is not known, such as "exited", stays UNKNOWN, and a
 * port that was not asked for does not count. */
static int read_inspection(struct sp_job_inspection *l, struct sp_json *j, uint32_t value,
                           struct sp_err *e)
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
        l->found.doing = SP_DOING_UNKNOWN;
        for (int i = SP_DOING_UNKNOWN; i < SP_DOING_MAX; i++)
            if (sp_str_eq(state, sp_str_of(sp_doing_name((enum sp_doing)i))))
                l->found.doing = (enum sp_doing)i;
    }
    l->found.listening = 0;
    for (uint32_t i = 0; i < l->port_count && i < SP_INSPECT_PORTS; i++)
        if (l->ports[i] == port)
            l->found.listening = (uint16_t)port;
    return 0;
}

/* ---- answers to calls ---- */

static void take_status(struct sp_job_call *call, const struct sp_client_reply *reply)
{
    static const struct {
        const char *status;
        enum sp_job_result result;
    } known[] = {{"accepted", SP_JOB_OK},
                 {"stdinClosed", SP_JOB_NO_STDIN},
                 {"unknownProcess", SP_JOB_GONE},
                 {"starting", SP_JOB_NOT_YET}};
    struct sp_str status = {0};

    if (sp_json_type(reply->j, reply->value) == SP_JSON_OBJECT)
        (void)sp_json_opt_str(reply->j, reply->value, "status", &status, NULL);
    call->result = SP_JOB_REFUSED;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (sp_str_eq(status, sp_str_of(known[i].status)))
            call->result = known[i].result;
    if (call->result != SP_JOB_OK)
        (void)sp_fail(&call->error, SP_E_FAILED, 0, "the exec-server answered `" SP_STR_FMT "`",
                      SP_STR_ARG(status));
}

static void on_call_answer(struct sp_client_request *q, const struct sp_client_reply *reply)
{
    struct call *c = SP_CONTAINER(q, struct call, request);
    struct sp_job_call *call = c->call;

    switch (reply->fate) {
    case SP_CLIENT_RESULT:
        call->result = SP_JOB_OK;
        if (c->kind == INSPECT &&
            read_inspection(SP_CONTAINER(call, struct sp_job_inspection, call), reply->j,
                            reply->value, &call->error) < 0) {
            call->result = SP_JOB_REFUSED;
            (void)sp_wrap(&call->error, "the exec-server's answer makes no sense");
        } else if (c->kind == WRITE || c->kind == CLOSE_STDIN) {
            take_status(call, reply);
        }
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
    struct call *c = SP_CONTAINER(t, struct call, timer);

    c->call->result = SP_JOB_REFUSED;
    (void)sp_fail(&c->call->error, SP_E_FAILED, 0, "the exec-server has not answered for %u s",
                  ANSWER_MS / 1000);
    finish_call(c);
}

/* ---- calls ---- */

/*
 * Sends a request whose params are in *b, up to their closing brace; ok is false if they found no
 * memory. The call is answered in any case. bytes: input that counts until the answer. A signal is
 * not repeated after a lost connection: a program may treat a second one differently.
 */
static void ask_server(struct sp_remote_job *rj, struct sp_job_call *call, enum kind kind,
                       const char *method, struct sp_buf *b, bool ok, size_t bytes)
{
    struct sp_loop *loop = rj->remote->backend.loop;
    struct call *c = rj->call_count < MAX_CALLS ? calloc(1, sizeof *c) : NULL;

    if (c == NULL) {
        answer_now(rj, call, rj->call_count < MAX_CALLS ? SP_JOB_REFUSED : SP_JOB_FULL,
                   "too much is asked of this process at once");
        return;
    }
    *c = (struct call){.job = rj, .call = call, .kind = kind, .bytes = bytes};
    c->request.fn = on_call_answer;
    c->request.is_repeatable = kind != SIGNAL;
    sp_list_prepend(&rj->calls, &c->link);
    rj->call_count++;
    rj->input_bytes += bytes;
    ok = ok && sp_buf_add(b, "}", 1);
    if (ok && kind != WRITE && kind != CLOSE_STDIN)
        ok = sp_loop_timer(loop, &c->timer, sp_loop_now(loop) + ANSWER_MS, on_call_late);
    if (ok) {
        sp_client_ask(rj->remote->client, &c->request, method, sp_buf_str(b));
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
    const bool ok = begin_params(&b, rj) && /* writeId makes a repeated write harmless */
                    sp_buf_printf(&b, ",\"writeId\":\"%llu\",\"chunk\":\"",
                                  (unsigned long long)++rj->last_write);
    char *room = ok ? sp_buf_room(&b, SP_BASE64_LEN(bytes.n) + 2) : NULL;

    if (room != NULL)
        b.len += (size_t)(sp_base64_encode(room, bytes.p, bytes.n) - room);
    ask_server(rj, call, WRITE, "process/write", &b, room != NULL && sp_buf_add(&b, "\"", 1),
               bytes.n);
}

static void write_stdin(struct sp_job *j, struct sp_job_call *call, struct sp_str bytes)
{
    struct sp_remote_job *rj = j->impl;

    if (is_untimely(rj, call))
        return;
    if (bytes.n > MAX_INPUT - rj->input_bytes)
        answer_now(rj, call, SP_JOB_FULL, "the process does not read what was written before");
    else
        write_bytes(rj, call, bytes);
}

/* Servers without process/closeStdin: a terminal takes ^D. */
static void close_stdin(struct sp_job *j, struct sp_job_call *call)
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
    ask_server(rj, call, CLOSE_STDIN, "process/closeStdin", &b, begin_params(&b, rj), 0);
}

static void terminate_process(struct sp_job *j, struct sp_job_call *call)
{
    struct sp_remote_job *rj = j->impl;
    auto_buf struct sp_buf b = {0};

    if (rj->state == SP_REMOTE_OVER)
        answer_now(rj, call, SP_JOB_OK, "it is over");
    else
        ask_server(rj, call, OTHER, "process/terminate", &b, begin_params(&b, rj), 0);
}

static void send_signal(struct sp_job *j, struct sp_job_call *call, int number)
{
    struct sp_remote_job *rj = j->impl;
    const char *name = number == SIGINT         ? "interrupt"
                       : rj->remote->can_signal ? sigabbrev_np(number)
                                                : NULL;
    auto_buf struct sp_buf b = {0};

    if (rj->state == SP_REMOTE_STARTING)
        answer_now(rj, call, SP_JOB_NOT_YET, "the process is still starting");
    /* SIGKILL also reaches the rest of the group, if the server sends signals. */
    else if (rj->state == SP_REMOTE_OVER ||
             (rj->mirror.is_exit_told && (number != SIGKILL || name == NULL)))
        answer_now(rj, call, SP_JOB_OK, "it has exited");
    else if (name == NULL && number == SIGKILL)
        terminate_process(j, call);
    else if (name == NULL)
        answer_now(rj, call, SP_JOB_REFUSED, "this exec-server sends no signal but SIGINT");
    else
        ask_server(rj, call, SIGNAL, "process/signal", &b,
                   begin_params(&b, rj) && sp_buf_printf(&b, ",\"signal\":\"%s\"", name), 0);
}

static void resize_terminal(struct sp_job *j, struct sp_job_call *call, uint16_t rows,
                            uint16_t cols)
{
    struct sp_remote_job *rj = j->impl;
    auto_buf struct sp_buf b = {0};

    if (is_untimely(rj, call))
        return;
    if (!rj->remote->can_resize)
        answer_now(rj, call, SP_JOB_REFUSED, "this exec-server cannot resize terminals");
    else
        ask_server(
            rj, call, OTHER, "process/resize", &b,
            begin_params(&b, rj) && sp_buf_printf(&b, ",\"rows\":%u,\"cols\":%u", rows, cols), 0);
}

/* Also after the exit, while another process holds the output. */
static bool inspect_process(struct sp_job *j, struct sp_job_inspection *l)
{
    struct sp_remote_job *rj = j->impl;
    const uint32_t count = l->port_count < SP_INSPECT_PORTS ? l->port_count : SP_INSPECT_PORTS;
    auto_buf struct sp_buf b = {0};

    if (!rj->remote->can_inspect)
        return false;
    if (rj->state == SP_REMOTE_STARTING) {
        answer_now(rj, &l->call, SP_JOB_NOT_YET, "the process is still starting");
    } else if (rj->state == SP_REMOTE_OVER) {
        answer_now(rj, &l->call, SP_JOB_GONE, "the process has ended");
    } else {
        bool ok = begin_params(&b, rj);

        for (uint32_t i = 0; ok && i < count; i++)
            ok = sp_buf_printf(&b, "%s%u", i == 0 ? ",\"ports\":[" : ",", l->ports[i]);
        ok = ok && (count == 0 || sp_buf_add(&b, "]", 1));
        ask_server(rj, &l->call, INSPECT, "process/inspect", &b, ok, 0);
    }
    return true;
}

const struct sp_backend_job_ops sp_remote_job_ops = {
    .start = start_process,
    .write = write_stdin,
    .close_stdin = close_stdin,
    .signal = send_signal,
    .resize = resize_terminal,
    .terminate = terminate_process,
    .inspect = inspect_process,
    .go_on = go_on,
    .release = release_job,
};
