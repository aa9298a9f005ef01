/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remote_job: one process on the server.
 *
 * Its events and the answers to process/read go into the mirror, which reports them in order. If
 * the connection breaks during the start, a read after the resume finds out whether the process
 * exists; if not, the start is repeated under the same processId.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base64.h"
#include "engine/remote/remote_priv.h"

/* ---- JSON to mirror ---- */

static int read_stream(struct sp_json *j, uint32_t object, enum sp_stream *ret, struct sp_err *e)
{
    struct sp_str name = {0};
    const int r = sp_json_need_str(j, object, "stream", &name, e);

    if (r < 0)
        return r;
    if (sp_str_eq(name, SP_STR("stdout")))
        *ret = SP_STREAM_STDOUT;
    else if (sp_str_eq(name, SP_STR("stderr")))
        *ret = SP_STREAM_STDERR;
    else if (sp_str_eq(name, SP_STR("pty")))
        *ret = SP_STREAM_PTY;
    else
        return sp_fail(e, SP_E_INVALID, 0, "output of an unknown stream");
    return 0;
}

struct chunk {
    uint64_t seq;
    enum sp_stream stream;
    struct sp_str bytes;
};

/* Decodes in place, in the message. */
static int read_chunk(struct sp_json *j, uint32_t object, struct chunk *ret, struct sp_err *e)
{
    struct sp_str text = {0};
    size_t len = 0;
    int r = sp_json_need_u64(j, object, "seq", UINT64_MAX, &ret->seq, e);

    if (r == 0)
        r = read_stream(j, object, &ret->stream, e);
    if (r == 0)
        r = sp_json_need_str(j, object, "chunk", &text, e);
    if (r == 0)
        r = sp_base64_decode(text, (char *)(uintptr_t)text.p, &len, e);
    if (r == 0)
        ret->bytes = (struct sp_str){text.p, len};
    return r;
}

/* -1: absent, null, or no exit code. */
static int read_code(const struct sp_json *j, uint32_t token)
{
    int64_t code = -1;

    if (token == SP_JSON_NONE || !sp_json_i64(j, token, &code) || code < 0 || code > 255)
        return -1;
    return (int)code;
}

static int read_verdict(struct sp_json *j, uint32_t object)
{
    const uint32_t token = sp_json_get(j, object, "sandboxDenied");

    if (token == SP_JSON_NONE || sp_json_type(j, token) == SP_JSON_NULL)
        return -1;
    return sp_json_type(j, token) == SP_JSON_TRUE ? 1 : 0;
}

/* Applies one notification to the mirror. */
static int take_event(struct sp_remote_job *rj, struct sp_str method, struct sp_json *j,
                      uint32_t params, struct sp_err *e)
{
    struct chunk c = {0};
    int r;

    if (sp_str_eq(method, SP_STR("process/output"))) {
        r = read_chunk(j, params, &c, e);
        return r < 0 ? r : sp_mirror_output(&rj->mirror, c.seq, c.stream, c.bytes, e);
    }
    r = sp_json_need_u64(j, params, "seq", UINT64_MAX, &c.seq, e);
    if (r < 0)
        return r;
    if (sp_str_eq(method, SP_STR("process/exited")))
        return sp_mirror_exited(&rj->mirror, c.seq,
                                read_code(j, sp_json_get(j, params, "exitCode")),
                                read_verdict(j, params), e);
    if (sp_str_eq(method, SP_STR("process/closed")))
        return sp_mirror_closed(&rj->mirror, c.seq, e);
    return 0;
}

static int read_chunks(struct sp_remote_job *rj, struct sp_json *j, uint32_t value,
                       struct sp_mirror_answer *a, struct sp_err *e)
{
    uint32_t chunks;
    int r = sp_json_need_array(j, value, "chunks", &chunks, e);

    if (r < 0)
        return r;
    for (uint32_t t = sp_json_first(j, chunks); r == 0 && t != SP_JSON_NONE;
         t = sp_json_next(j, chunks, t)) {
        struct chunk c = {0};

        if (sp_json_type(j, t) != SP_JSON_OBJECT)
            return sp_json_wrong_type(j, t, "a chunk", e);
        r = read_chunk(j, t, &c, e);
        if (r == 0)
            r = sp_mirror_add_chunk(&rj->mirror, a, c.seq, c.stream, c.bytes, e);
    }
    return r;
}

/* Fails if the answer is invalid, or reports a failure. */
static int take_read_answer(struct sp_remote_job *rj, struct sp_json *j, uint32_t value,
                            struct sp_err *e)
{
    struct sp_mirror_answer a = {0};
    struct sp_str failure = {0};
    int r;

    if (sp_json_type(j, value) != SP_JSON_OBJECT)
        return sp_json_wrong_type(j, value, "the answer to a read", e);
    r = sp_json_need_u64(j, value, "nextSeq", UINT64_MAX, &a.next_seq, e);
    if (r == 0)
        r = sp_json_need_bool(j, value, "exited", &a.has_exited, e);
    if (r == 0)
        r = sp_json_need_bool(j, value, "closed", &a.has_closed, e);
    if (r == 0)
        r = sp_json_opt_str(j, value, "failure", &failure, e);
    if (r == 0)
        r = read_chunks(rj, j, value, &a, e);
    if (r < 0) {
        sp_mirror_drop_answer(&a);
        return r;
    }
    a.code = read_code(j, sp_json_get(j, value, "exitCode"));
    a.denied = a.has_exited ? read_verdict(j, value) : -1;
    r = sp_mirror_end_read(&rj->mirror, &a, e);
    if (r == 0 && failure.p != NULL)
        r = sp_fail(e, SP_E_FAILED, 0, SP_STR_FMT, SP_STR_ARG(failure));
    return r;
}

/* ---- the end of a process ---- */

#define INVALID_REQUEST (-32600) /* wire code: process unknown, starting, or existing */
#define LOOK_AGAIN_MS   100U
#define START_MS        60000U /* limit for the answer to process/start */
#define VERDICT_MS      5000U  /* how long an exit waits for its sandbox verdict */
#define MAX_STARTS      30U    /* limit of repeated starts */

static const struct sp_mirror_ops mirror_ops;

static void unlink_job(struct sp_remote_job *rj)
{
    if (rj->prev != NULL)
        rj->prev->next = rj->next;
    else
        rj->remote->jobs = rj->next;
    if (rj->next != NULL)
        rj->next->prev = rj->prev;
    rj->prev = rj->next = NULL;
}

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
    sp_remote_fail_calls(rj, e->msg);
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
        sp_remote_say_farewell(rj);
    if (rj->state == SP_REMOTE_STARTING) {
        refuse_job(rj, &e);
        return;
    }
    end_job(rj);
    sp_remote_enter(r);
    sp_remote_fail_calls(rj, e.msg);
    if (rj->job != NULL)
        rj->job->ops->failed(rj->job, e.msg);
    sp_remote_leave(r);
}

void sp_remote_died(struct sp_remote_job *rj, const struct sp_err *why)
{
    struct sp_err e = *why;

    e.code = SP_E_SYSTEM; /* the server did not refuse it */
    fail_job(rj, &e, false);
}

void sp_remote_job_free(struct sp_remote_job *rj)
{
    struct sp_remote *r = rj->remote;

    sp_loop_undefer(r->backend.loop, &rj->turn);
    if (rj->prev != NULL)
        rj->prev->next = rj->next;
    else
        r->graves = rj->next;
    if (rj->next != NULL)
        rj->next->prev = rj->prev;
    free(rj->id);
    free(rj);
}

/* The job's callbacks may be on the stack, so it is freed at the end of the turn. */
void sp_remote_release(struct sp_job *j)
{
    struct sp_remote_job *rj = j->impl;
    struct sp_remote *r = rj->remote;
    const bool is_unsent = rj->state == SP_REMOTE_STARTING && rj->start.text.len != 0;

    if (rj->state != SP_REMOTE_OVER && !rj->mirror.has_exit && !is_unsent)
        sp_remote_say_farewell(rj);
    rj->job = NULL;
    sp_list_init(&rj->answered);
    sp_remote_drop_calls(rj);
    end_job(rj);
    unlink_job(rj);
    rj->next = r->graves;
    if (r->graves != NULL)
        r->graves->prev = rj;
    r->graves = rj;
    sp_remote_at_turn_end(rj);
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
    if (sp_remote_begin_params(&b, rj) &&
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
        sp_mirror_no_verdict(&rj->mirror);
    sp_remote_enter(r);
    follow(rj);
    sp_remote_leave(r);
}

static void await_verdict(struct sp_remote_job *rj)
{
    struct sp_loop *loop = rj->remote->backend.loop;

    if (rj->timer.slot == 0 &&
        !sp_loop_timer(loop, &rj->timer, sp_loop_now(loop) + VERDICT_MS, on_verdict_late))
        sp_mirror_no_verdict(&rj->mirror);
}

/* Reports what arrived and reads what is missing. */
static void follow(struct sp_remote_job *rj)
{
    if (rj->state != SP_REMOTE_LIVE)
        return;
    sp_mirror_tell(&rj->mirror);
    note_full(rj);
    if (rj->state == SP_REMOTE_LIVE && sp_mirror_wants_read(&rj->mirror))
        ask_read(rj, on_read);
    if (rj->state == SP_REMOTE_LIVE && sp_mirror_waits_for_verdict(&rj->mirror))
        await_verdict(rj);
}

static void take_answer(struct sp_remote_job *rj, const struct sp_client_reply *reply)
{
    struct sp_err e;

    if (take_read_answer(rj, reply->j, reply->value, &e) < 0) {
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
            sp_mirror_no_verdict(&rj->mirror);
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
    sp_remote_tell_answered(rj);
    if (rj->is_unblocked) {
        rj->is_unblocked = false;
        sp_mirror_unblock(&rj->mirror);
    }
    if (rj->job != NULL)
        follow(rj);
    sp_remote_leave(r);
}

void sp_remote_at_turn_end(struct sp_remote_job *rj)
{
    sp_loop_defer(rj->remote->backend.loop, &rj->turn, on_turn);
}

void sp_remote_go_on(struct sp_job *j)
{
    struct sp_remote_job *rj = j->impl;

    rj->is_unblocked = true;
    sp_remote_at_turn_end(rj);
}

static struct sp_remote_job *find_job(const struct sp_remote *r, struct sp_str id)
{
    struct sp_remote_job *rj = r->jobs;

    while (rj != NULL && (rj->state == SP_REMOTE_OVER || !sp_str_eq(sp_str_of(rj->id), id)))
        rj = rj->next;
    return rj;
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
    struct sp_remote_job *rj = find_job(r, id);
    if (rj == NULL)
        return;
    if (take_event(rj, method, j, params, &e) < 0) {
        fail_job(rj, &e, true);
    } else if (rj->state == SP_REMOTE_STARTING) {
        if (rj->mirror.waiting_bytes > SP_REMOTE_MAX_EARLY) {
            (void)sp_fail(&e, SP_E_LIMIT, 0,
                          "the exec-server sends output of a process and no word of its start");
            fail_job(rj, &e, true);
        }
    } else if (rj->state == SP_REMOTE_LIVE) {
        sp_mirror_tell(&rj->mirror);
        note_full(rj);
        if (rj->state == SP_REMOTE_LIVE && sp_mirror_wants_read(&rj->mirror))
            sp_remote_at_turn_end(rj); /* missing events may arrive in this turn */
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

static void on_exited(void *user, int code, int denied)
{
    const struct sp_remote_job *rj = user;
    const struct sp_job_exit how = {.code = code, .denied = denied};

    rj->job->ops->exited(rj->job, &how);
}

static void on_closed(void *user)
{
    struct sp_remote_job *rj = user;

    end_job(rj);
    rj->job->ops->closed(rj->job);
}

static const struct sp_mirror_ops mirror_ops = {on_output, on_gap, on_exited, on_closed};

/* ---- starting ---- */

static void become_live(struct sp_remote_job *rj, enum sp_job_sandbox sandbox)
{
    rj->state = SP_REMOTE_LIVE;
    rj->is_start_lost = false;
    sp_loop_cancel(rj->remote->backend.loop, &rj->timer);
    sp_buf_done(&rj->launch);
    sp_mirror_unblock(&rj->mirror);
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
                  START_MS / 1000);
    fail_job(rj, &e, true);
}

static void await_start_answer(struct sp_remote_job *rj)
{
    struct sp_loop *loop = rj->remote->backend.loop;

    (void)sp_loop_timer(loop, &rj->timer, sp_loop_now(loop) + START_MS, on_start_late);
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
    const bool is_unclear = rj->start_tries != 0 && reply->code == INVALID_REQUEST;
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
    (void)sp_fail(&e, reply->code == sp_code_wire(SP_E_INVALID) ? SP_E_INVALID : SP_E_FAILED, 0,
                  SP_STR_FMT, SP_STR_ARG(reply->message));
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
        rj->is_start_lost = true; /* sp_remote_resumed checks */
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

void sp_remote_resumed(struct sp_remote_job *rj)
{
    if (rj->state == SP_REMOTE_STARTING && rj->is_start_lost) {
        rj->is_start_lost = false;
        await_start_answer(rj);
        ask_read(rj, on_check);
    } else if (rj->state == SP_REMOTE_LIVE && !sp_mirror_is_complete(&rj->mirror))
        ask_read(rj, on_read);
}

static int write_start(struct sp_remote_job *rj, const struct sp_start *l, struct sp_err *e)
{
    const struct sp_remote *r = rj->remote;
    const char *cwd = r->options.cwd != NULL ? r->options.cwd : r->cwd != NULL ? r->cwd : "/";

    if (l->label.n > 256 || sp_str_has_nul(l->label))
        return sp_fail(e, SP_E_INVALID, 0, "a process cannot have this name");
    rj->id = sp_remote_make_id(l->label);
    if (rj->id == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "name a process");
    return sp_remote_write_launch(&rj->launch, rj->id, l, cwd, e);
}

int sp_remote_start(struct sp_backend *b, struct sp_job *j, const struct sp_start *l,
                    struct sp_err *e)
{
    struct sp_remote *r = SP_CONTAINER(b, struct sp_remote, backend);
    int err;

    struct sp_remote_job *rj = calloc(1, sizeof *rj);
    if (rj == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "start a process");
    rj->remote = r;
    rj->job = j;
    rj->is_sandboxed = l->policy != NULL;
    rj->has_tty = l->is_tty;
    sp_list_init(&rj->answered);
    sp_mirror_init(&rj->mirror, &mirror_ops, rj);
    err = write_start(rj, l, e);
    if (err == 0)
        err = sp_remote_need_client(r, e);
    if (err < 0) {
        sp_buf_done(&rj->launch);
        free(rj->id);
        free(rj);
        return err;
    }
    rj->next = r->jobs;
    if (r->jobs != NULL)
        r->jobs->prev = rj;
    r->jobs = rj;
    j->impl = rj;
    ask_start(rj);
    return 0;
}
