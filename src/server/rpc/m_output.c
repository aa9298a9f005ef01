/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the output ring of a process to the wire: notifications to the owner and to attached
 * connections (process/attach, process/detach), and pages for process/read.
 *
 * An attached connection has a view: its own position in the output ring, and the same
 * notifications as the owner gets, with a sessionId. A view that falls behind does not hold the
 * process back: records that the ring has overwritten meanwhile are reported as a gap.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/auto.h"
#include "base/base64.h"
#include "base/clock.h"
#include "base/log.h"
#include "core/held.h"
#include "core/observer.h"
#include "core/proc_receipt.h"
#include "server/rpc/conn.h"
#include "server/rpc/metrics.h"
#include "server/rpc/text.h"

#define PUSH_TURN   (192U << 10) /* what one process may send before the next one's turn */
#define RECORD_HEAD 32U          /* of a record in a ring, about */

enum push_result {
    PUSH_SENT,
    PUSH_TORN,    /* the ring overwrote the record during the copy: nothing was sent */
    PUSH_CLOSING, /* the link is closing: nothing was sent */
};

const struct sp_str sp_stream_names[SP_STREAM_MAX] = {[SP_STREAM_STDOUT] = {"stdout", 6},
                                                      [SP_STREAM_STDERR] = {"stderr", 6},
                                                      [SP_STREAM_PTY] = {"pty", 3}};

/* ---- notifications ---- */

/* Why the process ended, and the limits that it reached; for clients that ask. */
static bool add_end(struct sp_buf *out, const struct sp_conn *c, const struct sp_proc *p)
{
    const char *reason = sp_end_reason_name((enum sp_end_reason)p->state.exit.reason);
    const struct sp_limit_hits *hits = sp_proc_hits(p);

    if (!c->takes_receipts && !p->limits.is_asked)
        return true;
    return (reason == NULL || sp_buf_printf(out, ",\"reason\":\"%s\"", reason)) &&
           (hits->count == 0 ||
            (sp_buf_printf(out, ",\"limitsHit\":") && sp_limits_add_hits(out, hits))) &&
           (!hits->is_host_suspected ||
            sp_buf_printf(out, ",\"suspected\":\"host_out_of_memory\""));
}

/*
 * Sends a record as process/output, process/exited or process/closed, with the JSON members `more`
 * behind the process id. Output is encoded first and checked afterwards: if the cell has
 * overwritten the record meanwhile, the reserved frame is not committed.
 */
static enum push_result send_record(struct sp_conn *c, const struct sp_proc *p,
                                    const struct sp_record *r, struct sp_str more)
{
    const bool is_output = r->type == SP_RECORD_OUTPUT;
    auto_buf struct sp_buf more_facts = {0};
    if (r->type == SP_RECORD_CLOSED && c->takes_receipts && !sp_proc_add_receipt(&more_facts, p))
        more_facts.len = 0; /* no memory: the client does without it */
    if (r->type == SP_RECORD_EXITED && !add_end(&more_facts, c, p))
        more_facts.len = 0;
    char *const start =
        sp_link_reserve(c->link, 160 + p->label.n + more.n + more_facts.len +
                                     (is_output ? SP_BASE64_LEN((size_t)r->len) : 0));
    bool is_intact = true;
    struct sp_exit how;
    char *o = start;

    if (o == NULL)
        return PUSH_CLOSING;
    if (is_output)
        o = sp_put_literal(o, "{\"method\":\"process/output\",\"params\":{\"processId\":");
    else if (r->type == SP_RECORD_EXITED)
        o = sp_put_literal(o, "{\"method\":\"process/exited\",\"params\":{\"processId\":");
    else
        o = sp_put_literal(o, "{\"method\":\"process/closed\",\"params\":{\"processId\":");
    o = sp_put_str(o, p->label);
    o = sp_put_str(o, more);
    o = sp_put_u64(sp_put_literal(o, ",\"seq\":"), r->seq);
    if (is_output) {
        o = sp_put_str(sp_put_literal(o, ",\"stream\":\""), sp_stream_names[r->stream]);
        o = sp_base64_encode(sp_put_literal(o, "\",\"chunk\":\""), r->data, r->len);
        *o++ = '"';
        is_intact = sp_log_is_intact(&p->view, r);
    } else if (r->type == SP_RECORD_EXITED) {
        memcpy(&how, r->data, sizeof how);
        o = sp_put_i64(sp_put_literal(o, ",\"exitCode\":"), how.code);
        o = sp_put_bool(sp_put_literal(o, ",\"sandboxDenied\":"), p->was_denied);
    }
    o = sp_put_literal(sp_put_str(o, sp_buf_str(&more_facts)), "}}");
    sp_link_commit(c->link, is_intact ? (size_t)(o - start) : 0);
    return is_intact ? PUSH_SENT : PUSH_TORN;
}

/* process/denied for each new denial of a process that runs. Without memory for one it is left to
 * the receipt. */
static void push_denials(const struct sp_conn *c, struct sp_proc *p)
{
    struct sp_net_denial d;

    while (c->takes_denials && p->life == SP_PROC_RUNNING && !sp_link_is_full(c->link) &&
           sp_proc_denial(p, p->told_denials, &d)) {
        auto_buf struct sp_buf b = {0};
        const bool ok =
            sp_buf_printf(&b, "{\"method\":\"process/denied\",\"params\":{\"processId\":") &&
            sp_buf_add_str(&b, p->label) &&
            (d.host == NULL ||
             sp_buf_printf(&b, ",\"host\":\"%s\",\"port\":%u,\"reason\":\"%s\"", d.host, d.port,
                           sp_network_reason_text(d.reason)->wire)) &&
            sp_buf_printf(&b, "}}");
        char *room = ok ? sp_link_reserve(c->link, b.len) : NULL;

        p->told_denials++;
        if (room == NULL)
            continue;
        memcpy(room, b.data, b.len);
        sp_link_commit(c->link, b.len);
    }
}

/* Sends at most PUSH_TURN bytes of one process. true: it has more. */
static bool push_turn(struct sp_conn *c, struct sp_proc *p)
{
    struct sp_record r;
    size_t bytes = 0;
    int more = 0;

    push_denials(c, p);
    while (bytes < PUSH_TURN && !sp_link_is_full(c->link) &&
           (more = sp_proc_next(p, &p->sent, &r)) > 0) {
        bytes += r.len;
        p->unmarked += r.len + RECORD_HEAD;
        const enum push_result sent = send_record(c, p, &r, SP_STR(""));
        if (sent == PUSH_CLOSING)
            break;
        if (sent == PUSH_TORN) /* flow control protects unsent records: the cell misbehaved */
            sp_log(SP_LOG_ERROR, "process " SP_STR_FMT ": record %llu was lost", SP_STR_ARG(p->id),
                   (unsigned long long)r.seq);
    }
    if (c->rpc->front->options.hold != NULL) {
        sp_proc_sent(p);
        sp_confirm_sent(c, p);
    } else {
        sp_proc_served(p);
    }
    /* more: the last record was sent, there may be another. sent < tail: the link was full before
     * the first one. */
    return bytes >= PUSH_TURN || more > 0 || p->sent.seq < p->tail.seq;
}

/* ---- process/read ---- */

/* Sends the result of a read, unless the link is closing. */
static void reply_page(struct sp_conn *c, struct sp_str id, struct sp_proc *p,
                       const struct sp_page *page)
{
    auto_buf struct sp_buf receipt = {0};
    if (p->state.closed_seq != 0 && c->takes_receipts && !sp_proc_add_receipt(&receipt, p))
        receipt.len = 0; /* no memory: the client does without it */
    const size_t max =
        256 + (size_t)page->chunks * (64 + 4) + SP_BASE64_LEN((size_t)page->bytes) + receipt.len;
    char *const begin = sp_reply_begin(c, id, max);
    char *o = begin;

    if (o == NULL)
        return;
    o = sp_put_literal(o, "{\"chunks\":[");
    /* The cell keeps writing, so each chunk is checked after it was copied. */
    char *const first = o;
    struct sp_ring_cursor at = page->from;
    uint64_t bytes = 0;
    struct sp_record r;
    while (page->chunks > 0 && at.seq < page->last_seq && sp_log_next(&p->view, &at, &r) > 0) {
        if (r.type != SP_RECORD_OUTPUT || r.seq > page->last_seq)
            continue;
        bytes += r.len;
        if (bytes > page->bytes)
            break; /* the ring grew against the page: the cell misbehaves, room is for `bytes` */
        if (o != first)
            *o++ = ',';
        o = sp_put_u64(sp_put_literal(o, "{\"seq\":"), r.seq);
        o = sp_put_str(sp_put_literal(o, ",\"stream\":\""), sp_stream_names[r.stream]);
        o = sp_base64_encode(sp_put_literal(o, "\",\"chunk\":\""), r.data, r.len);
        o = sp_put_literal(o, "\"}");
        if (!sp_log_is_intact(&p->view, &r))
            o = first; /* overwritten during the copy, and so are all older records */
    }
    o = sp_put_u64(sp_put_literal(o, "],\"nextSeq\":"), page->next_seq);
    o = sp_put_bool(sp_put_literal(o, ",\"exited\":"), p->state.exit_seq != 0);
    o = sp_put_literal(o, ",\"exitCode\":");
    o = p->state.exit_seq != 0 ? sp_put_i64(o, p->state.exit.code) : sp_put_literal(o, "null");
    o = sp_put_bool(sp_put_literal(o, ",\"closed\":"), p->state.closed_seq != 0);
    o = sp_put_bool(sp_put_literal(o, ",\"failure\":null,\"sandboxDenied\":"), p->was_denied);
    o = sp_put_str(o, sp_buf_str(&receipt));
    *o++ = '}';
    sp_reply_end(c, id, begin, o);
    if (p->is_held && p->session == c->session)
        sp_confirm_page(c, p, page);
}

/* Whether a read with this page is answered now; else it waits. */
static bool is_answer(const struct sp_proc *p, const struct sp_page *page, uint64_t after_seq)
{
    return page->chunks > 0 || p->state.closed_seq != 0 ||
           (p->state.exit_seq != 0 && after_seq < page->next_seq - 1);
}

#define READ_FAILED "the output of the process cannot be read any more"

/* Answers a parked read or parks it again: on new records, or until the link has room. A waiter is
 * taken off its list before it is called. */
static void try_read(struct sp_waiter *w)
{
    struct sp_request *r = SP_CONTAINER(w, struct sp_request, waiter);
    struct sp_page page;

    if (sp_proc_page(r->proc, r->read.after_seq, r->read.max_bytes, &page) < 0) {
        sp_request_refuse(r, SP_E_FAILED, 0, READ_FAILED);
    } else if (!r->read.is_due && !is_answer(r->proc, &page, r->read.after_seq)) {
        sp_waiters_add(&r->proc->on_news, w);
    } else if (sp_link_is_full(r->conn->link)) {
        sp_waiters_add(&r->conn->on_drained, w); /* the output of a slow client stays in the ring */
    } else {
        reply_page(r->conn, r->id, r->proc, &page);
        sp_request_end(r, true);
    }
}

/* waitMs has passed: the read is answered with the page as it is, even if that is empty. */
static void on_read_deadline(struct sp_timer *t)
{
    struct sp_request *r = SP_CONTAINER(t, struct sp_request, timer);

    r->read.is_due = true;
    sp_waiters_remove(&r->waiter);
    try_read(&r->waiter);
}

static int process_read(struct sp_rpc_call *c, struct sp_err *e)
{
    const struct sp_params params = sp_rpc_call_params(c, e);
    struct sp_proc_target t = {0};
    uint64_t after_seq = 0;
    uint64_t max_bytes = UINT64_MAX;
    uint64_t wait_ms = 0;
    struct sp_proc *p = NULL;
    struct sp_page page;

    sp_proc_target_read(&params, &t);
    sp_params_opt_u64(&params, "afterSeq", UINT64_MAX, &after_seq);
    sp_params_opt_u64(&params, "maxBytes", UINT64_MAX, &max_bytes);
    sp_params_opt_u64(&params, "waitMs", UINT64_MAX, &wait_ms);
    if (!sp_params_ok(&params) || sp_proc_target_find(c, &t, &p, e) != 0)
        return sp_params_result(&params);
    if (p == NULL)
        return sp_proc_target_unknown(&t, e);
    if (sp_proc_page(p, after_seq, max_bytes, &page) < 0)
        return sp_fail(e, SP_E_FAILED, 0, READ_FAILED);
    if (p->session == c->conn->session && p->is_held)
        sp_held_asked(p, &page.after);
    else if (p->session == c->conn->session)
        sp_proc_confirm(p, page.after.seq, page.after.pos);
    if (wait_ms == 0 || is_answer(p, &page, after_seq)) {
        reply_page(c->conn, c->id, p, &page);
        sp_metrics_count(c->stats, c->started_us, SP_RPC_OUTCOME_OK);
        return 0;
    }

    struct sp_loop *loop = c->conn->rpc->front->loop;
    const uint64_t now = sp_loop_now(loop);
    if (c->conn->parked_reads >= SP_CONN_MAX_READS)
        return sp_fail(e, SP_E_LIMIT, 0, "at most %d reads may wait on one connection",
                       SP_CONN_MAX_READS);
    struct sp_request *r = sp_rpc_call_park(c, 0, e);
    if (r == NULL)
        return -(int)e->code;
    sp_request_hold(r, p);
    r->is_read = true;
    c->conn->parked_reads++;
    r->read.after_seq = after_seq;
    r->read.max_bytes = max_bytes;
    r->waiter.fn = try_read;
    /* A waitMs beyond the range of the clock means no deadline. */
    if (wait_ms < UINT64_MAX - now &&
        !sp_loop_timer(loop, &r->timer, now + wait_ms, on_read_deadline)) {
        on_read_deadline(&r->timer); /* no memory for the timer: answer too early */
        return 0;
    }
    sp_waiters_add(&p->on_news, &r->waiter);
    return 0;
}

/* ---- views ---- */

struct view {
    struct sp_observer observer;
    struct sp_conn *conn;
    struct sp_list link; /* in conn->views */
    struct sp_list news; /* in conn->view_news while there are records to send */
};

static struct view *view_of(struct sp_observer *o)
{
    return SP_CONTAINER(o, struct view, observer);
}

/* Also gives up the input, if the view had it. */
static void close_view(struct view *v)
{
    sp_observer_end(&v->observer);
    sp_list_remove(&v->news);
    sp_list_remove(&v->link);
    v->conn->view_count--;
    free(v);
}

static void close_views(struct sp_conn *c)
{
    while (!sp_list_is_empty(&c->views))
        close_view(SP_CONTAINER(sp_list_first(&c->views), struct view, link));
}

bool sp_process_view_may_type(const struct sp_conn *c, const struct sp_proc *p)
{
    return p->writer == NULL || view_of(p->writer)->conn == c;
}

/* Queues the view for its turn in sp_push_all. */
static void schedule_view(struct view *v)
{
    if (!sp_list_is_linked(&v->news))
        sp_list_append(&v->conn->view_news, &v->news);
}

/* One record, with the session and the gap before it. */
static enum push_result push_record(struct view *v, const struct sp_record *r,
                                    const struct sp_gap *gap)
{
    struct sp_observer *o = &v->observer;
    char bytes[40] = "";
    char missing[96] = "";
    char more[192];

    if (gap->has_bytes)
        (void)snprintf(bytes, sizeof bytes, ",\"bytes\":%" PRIu64, gap->bytes);
    if (gap->records != 0)
        (void)snprintf(missing, sizeof missing, ",\"gap\":{\"records\":%" PRIu64 "%s}",
                       gap->records, bytes);
    (void)snprintf(more, sizeof more, ",\"sessionId\":\"%s\"%s", o->proc->session->id, missing);
    const enum push_result sent = send_record(v->conn, o->proc, r, sp_str_of(more));
    if (sent == PUSH_SENT)
        sp_observer_told(o, r);
    return sent;
}

/* The view may be freed here: by its last record, or when the link closes. */
static void push_first_view(struct sp_conn *c)
{
    struct view *v = SP_CONTAINER(sp_list_take_first(&c->view_news), struct view, news);
    struct sp_record r;
    struct sp_gap gap;
    size_t bytes = 0;
    int more = 0;

    while (bytes < PUSH_TURN && !sp_link_is_full(c->link) &&
           (more = sp_observer_next(&v->observer, &r, &gap)) > 0) {
        bytes += r.len;
        if (push_record(v, &r, &gap) == PUSH_CLOSING)
            return;
        if (r.type == SP_RECORD_CLOSED) { /* always the last record */
            close_view(v);
            return;
        }
    }
    if (more > 0)
        schedule_view(v);
}

/* Own processes and views take turns, so that neither starves the other on a slow link. */
void sp_push_all(struct sp_conn *c)
{
    while (!c->is_closing && !sp_link_is_full(c->link)) {
        const bool has_own = !sp_list_is_empty(&c->news);

        if (!sp_list_is_empty(&c->view_news) && (c->is_views_turn || !has_own)) {
            c->is_views_turn = false;
            push_first_view(c);
        } else if (has_own) {
            struct sp_proc *p = SP_CONTAINER(sp_list_take_first(&c->news), struct sp_proc, in_news);

            c->is_views_turn = true;
            if (push_turn(c, p) && !sp_list_is_linked(&p->in_news))
                sp_list_append(&c->news, &p->in_news);
        } else {
            return;
        }
    }
}

/* ---- events of the observed process ---- */

static void on_news(struct sp_observer *o)
{
    schedule_view(view_of(o));
    sp_push_all(view_of(o)->conn);
}

/* Another connection took over the input. */
static void on_displaced(struct sp_observer *o)
{
    struct sp_conn *c = view_of(o)->conn;
    const struct sp_proc *p = o->proc;
    char *const start = sp_link_reserve(c->link, 128 + p->label.n + SP_SESSION_ID);
    char *out = start;

    if (out == NULL)
        return; /* the connection is closing */
    out = sp_put_literal(out, "{\"method\":\"process/inputLost\",\"params\":{\"processId\":");
    out = sp_put_str(out, p->label);
    out = sp_put_str(sp_put_literal(out, ",\"sessionId\":\""), sp_str_of(p->session->id));
    out = sp_put_literal(out, "\"}}");
    sp_link_commit(c->link, (size_t)(out - start));
}

/* The process is being forgotten: sends what the ring still has and the link takes, then exited and
 * closed without looking at the link's limit, since nothing comes after them. A client that lets
 * even these pile up does not read: its connection ends. */
static void on_ending(struct sp_observer *o)
{
    struct view *v = view_of(o);
    struct sp_conn *c = v->conn;
    const struct sp_proc *p = o->proc;
    const struct sp_record end[] = {
        {.seq = p->state.exit_seq,
         .type = SP_RECORD_EXITED,
         .len = sizeof p->state.exit,
         .data = (const uint8_t *)&p->state.exit},
        {.seq = p->state.closed_seq, .type = SP_RECORD_CLOSED},
    };
    enum push_result sent = PUSH_SENT;
    struct sp_record r;
    struct sp_gap gap;

    while (sent != PUSH_CLOSING && !c->is_closing && !sp_link_is_full(c->link) &&
           sp_observer_next(o, &r, &gap) > 0)
        sent = push_record(v, &r, &gap);
    if (sp_link_queued(c->link) > SP_CONN_MAX_QUEUED && !c->is_closing)
        sp_conn_hang_up(c, "client does not read: more than 4 MiB are queued");
    for (size_t i = 0; i < sizeof end / sizeof end[0] && !c->is_closing; i++) {
        gap = sp_observer_gap(o, end[i].seq, 0);
        gap.has_bytes = false; /* unknown: some of the lost output may follow the exit */
        if (end[i].seq > o->told_seq)
            (void)push_record(v, &end[i], &gap);
    }
    close_view(v);
}

static const struct sp_observer_ops observer_ops = {
    .news = on_news, .displaced = on_displaced, .ending = on_ending};

/* ---- process/attach, process/detach ---- */

static struct view *find_view(const struct sp_conn *c, const struct sp_proc *p)
{
    sp_list_each(i, &c->views) {
        struct view *v = SP_CONTAINER(i, struct view, link);

        if (v->observer.proc == p)
            return v;
    }
    return NULL;
}

/* NULL: *e says why. */
static struct view *open_view(struct sp_conn *c, struct sp_proc *p, uint64_t after_seq,
                              struct sp_err *e)
{
    struct view *v = NULL;

    if (find_view(c, p) != NULL)
        (void)sp_fail(e, SP_E_STATE, 0,
                      "this connection is attached to process " SP_STR_FMT " already",
                      SP_STR_ARG(p->id));
    else if (c->view_count >= SP_CONN_MAX_VIEWS)
        (void)sp_fail(e, SP_E_LIMIT, 0, "one connection may be attached to at most %d processes",
                      SP_CONN_MAX_VIEWS);
    else if ((v = calloc(1, sizeof *v)) == NULL)
        (void)sp_fail(e, SP_E_SYSTEM, ENOMEM, "attach to the process");
    if (v == NULL)
        return NULL;
    if (sp_observer_begin(&v->observer, &observer_ops, p, after_seq, e) < 0) {
        free(v);
        return NULL;
    }
    v->conn = c;
    sp_list_prepend(&c->views, &v->link);
    c->view_count++;
    return v;
}

/* Unlike other methods, these name the session first, and must name it. */
static struct sp_params read_attach_target(struct sp_rpc_call *c, struct sp_proc_target *ret,
                                           struct sp_err *e)
{
    const struct sp_params params = sp_rpc_call_params(c, e);

    sp_params_str(&params, "sessionId", &ret->session);
    sp_params_str(&params, "processId", &ret->id);
    return params;
}

static int process_attach(struct sp_rpc_call *c, struct sp_err *e)
{
    struct sp_proc_target t = {0};
    const struct sp_params params = read_attach_target(c, &t, e);
    uint64_t after_seq = UINT64_MAX; /* from now on */
    uint64_t age = INT64_MAX;        /* older output is left out */
    bool has_input = false;
    bool is_stealing = false;
    char code[16] = "null";
    auto_buf struct sp_buf b = {0};
    struct sp_proc *p = NULL;
    int r = 0;

    sp_params_opt_u64(&params, "afterSeq", UINT64_MAX - 1, &after_seq);
    sp_params_opt_u64(&params, "maxAgeMs", INT64_MAX, &age);
    sp_params_def_bool(&params, "input", &has_input);
    sp_params_def_bool(&params, "steal", &is_stealing);
    if (sp_params_ok(&params) && is_stealing && !has_input)
        (void)sp_fail(e, SP_E_INVALID, 0, "steal without input: there is nothing to take over");
    if (!sp_params_ok(&params) || sp_proc_target_find(c, &t, &p, e) != 0)
        return sp_params_result(&params);
    if (p == NULL)
        return sp_proc_target_unknown(&t, e);
    const int64_t since = (int64_t)sp_clock_unix_ms() - (int64_t)age;
    const uint64_t old = since > 0 ? sp_output_times_before(&p->times, since) : 0;
    struct view *v = open_view(c->conn, p, after_seq > old ? after_seq : old, e);
    if (v == NULL)
        return -(int)e->code;
    if (has_input)
        r = sp_observer_type(&v->observer, is_stealing, e);
    const bool has_exited = p->state.exit_seq != 0;
    if (has_exited)
        (void)snprintf(code, sizeof code, "%d", (int)p->state.exit.code);
    /* nextSeq is the first record that this view will get. */
    if (r == 0 &&
        (!sp_buf_printf(&b, "{\"sessionId\":\"%s\",\"processId\":", p->session->id) ||
         !sp_buf_add_str(&b, p->label) ||
         !sp_buf_printf(&b,
                        ",\"nextSeq\":%llu,\"input\":%s,\"tty\":%s,\"exited\":%s,\"exitCode\":%s,"
                        "\"closed\":%s}",
                        (unsigned long long)v->observer.told_seq + 1, has_input ? "true" : "false",
                        p->is_tty ? "true" : "false", has_exited ? "true" : "false", code,
                        p->state.closed_seq != 0 ? "true" : "false")))
        r = sp_fail(e, SP_E_SYSTEM, ENOMEM, "attach to the process");
    if (r < 0) {
        close_view(v);
        return r;
    }
    (void)sp_rpc_call_reply(c, sp_buf_str(&b));
    if (p->state.closed_seq != 0 && v->observer.told_seq >= p->state.closed_seq)
        close_view(v); /* there will be no further records */
    else
        on_news(&v->observer);
    return 0;
}

/* Succeeds also if the connection is not attached, or the process is gone. */
static int process_detach(struct sp_rpc_call *c, struct sp_err *e)
{
    struct sp_proc_target t = {0};
    const struct sp_params params = read_attach_target(c, &t, e);

    if (!sp_params_ok(&params) || sp_rpc_call_check(c, e) < 0)
        return sp_params_result(&params);
    const struct sp_session *s = sp_front_find(c->conn->rpc->front, t.session);
    const struct sp_proc *p = s == NULL ? NULL : sp_session_find(s, t.id);
    struct view *v = p == NULL ? NULL : find_view(c->conn, p);
    if (v != NULL)
        close_view(v);
    return sp_rpc_call_reply(c, SP_STR("{}"));
}

static const struct sp_method methods[] = {
    {"process/read", "exec", .fn = process_read},
    {"process/attach", "exec", .fn = process_attach},
    {"process/detach", "exec", .fn = process_detach},
    {0},
};

const struct sp_family sp_observe_family = {.methods = methods, .closed = close_views};
