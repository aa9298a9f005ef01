/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Observing processes of any session: process/list, process/inspect, process/attach and detach.
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
#include "base/uri.h"
#include "core/observer.h"
#include "core/process_inspect.h"
#include "os/seccomp.h"
#include "sandbox/compile.h"
#include "server/rpc/conn.h"
#include "server/rpc/push.h"
#include "server/rpc/text.h"

/* ---- process/list ---- */

#define LISTED_BYTES    4096        /* of the arguments of one process */
#define LIST_MAX_BYTES  (32U << 20) /* of a list of all sessions, which `sallyport ps` reads too */
#define LIST_MAX_VALUES 200000      /* the same as JSON values */
#define VALUES_OF_ONE   32          /* JSON values of a process besides its arguments, at most */

/* What the sandbox refused: facts from the kernel first, the guess by the output last. */
static bool add_denials(struct sp_buf *b, const struct sp_proc *p)
{
    const struct sp_exit *how = &p->state.exit;
    const uint32_t calls =
        how->refusal_count < SP_EXIT_REFUSALS ? how->refusal_count : SP_EXIT_REFUSALS;
    const char *between = "";
    bool ok = true;

    for (uint32_t i = 0; ok && i < calls; i++, between = ",") {
        const char *name = sp_syscall_name(how->refusals[i].call);

        ok = sp_buf_printf(b, "%s{\"source\":\"seccomp\",\"call\":\"%s\",\"count\":%u}", between,
                           name != NULL ? name : "unknown", how->refusals[i].count);
    }
    if (ok && how->left_network > 0) {
        ok = sp_buf_printf(b, "%s{\"source\":\"network\",\"reason\":\"no_route\",\"count\":%u}",
                           between, how->left_network);
        between = ",";
    }
    if (ok && p->denial != NULL && p->denial->reason != NULL) {
        ok = sp_buf_printf(b, "%s{\"source\":\"heuristic\",\"reason\":\"%s\"", between,
                           p->denial->reason);
        if (p->denial->path[0] != 0)
            ok = ok && sp_buf_printf(b, ",\"path\":") &&
                 sp_json_add_str(b, sp_str_of(p->denial->path));
        ok = ok && sp_buf_printf(b, "}");
    }
    return ok;
}

/* Denials are complete only when the process has exited. */
static bool add_sandbox(struct sp_buf *b, const struct sp_proc *p)
{
    return sp_buf_printf(b, ",\"sandbox\":{\"tier\":\"%s\",\"denied\":%s,\"denials\":[",
                         sp_tier_name(p->tier), p->was_denied ? "true" : "false") &&
           (p->state.exit_seq == 0 || add_denials(b, p)) && sp_buf_printf(b, "]}");
}

/* One element of the list. A long argv is truncated after LISTED_BYTES. */
static bool add_process(struct sp_buf *b, const struct sp_proc *p, bool has_session)
{
    static const char *const states[] = {"starting", "running", "exited", "closed"};
    const char *at = p->strings.data;
    const char *const cwd = at;
    char code[16] = "null";

    if (p->state.exit_seq != 0)
        (void)snprintf(code, sizeof code, "%d", (int)p->state.exit.code);
    bool ok =
        sp_buf_printf(b, "{") &&
        (!has_session || sp_buf_printf(b, "\"sessionId\":\"%s\",", p->session->id)) &&
        sp_buf_printf(b, "\"processId\":") && sp_buf_add_str(b, p->label) &&
        sp_buf_printf(b,
                      ",\"pid\":%d,\"state\":\"%s\",\"tty\":%s,\"exitCode\":%s,\"nextSeq\":%llu,"
                      "\"startedAtMs\":%lld,\"argv\":[",
                      (int)p->pid, states[p->life], p->is_tty ? "true" : "false", code,
                      (unsigned long long)sp_proc_next_seq(p), (long long)p->started_ms);
    at += strlen(at) + 1; /* the cwd */
    at += strlen(at) + 1; /* the file */
    const size_t mark = b->len;
    for (uint32_t i = 0; ok && i < p->argc && b->len - mark < LISTED_BYTES; i++) {
        const struct sp_str arg = sp_str_of(at);
        const size_t n = arg.n < LISTED_BYTES ? arg.n : LISTED_BYTES;

        ok = (i == 0 || sp_buf_add(b, ",", 1)) && sp_json_add_str(b, (struct sp_str){at, n});
        at += arg.n + 1;
    }
    return ok && sp_buf_printf(b, "],\"cwd\":\"") && sp_uri_add(b, sp_str_of(cwd)) &&
           sp_buf_printf(b, "\"") && (!p->is_confined || add_sandbox(b, p)) &&
           sp_buf_printf(b, "}");
}

/* Bounds a list of all sessions. */
struct room {
    uint64_t values;  /* upper bound of those used so far */
    uint32_t omitted; /* processes left out */
};

/* Counts the process, or counts it as omitted: a list of all sessions must stay a message that the
 * JSON reader of our own commands accepts. */
static bool has_room(struct room *room, const struct sp_buf *b, const struct sp_proc *p)
{
    const uint64_t argc = p->argc < LISTED_BYTES / 3 ? p->argc : LISTED_BYTES / 3;

    if (b->len > LIST_MAX_BYTES || room->values + VALUES_OF_ONE + argc > LIST_MAX_VALUES) {
        room->omitted++;
        return false;
    }
    room->values += VALUES_OF_ONE + argc;
    return true;
}

/* room NULL: no bound, for the client's own session. */
static bool add_session(struct sp_buf *b, const struct sp_session *s, struct room *room)
{
    bool ok = true;

    for (const struct sp_proc *p = s->first; ok && p != NULL; p = p->next)
        if (room == NULL || has_room(room, b, p))
            ok = (b->data[b->len - 1] == '[' || sp_buf_add(b, ",", 1)) &&
                 add_process(b, p, room != NULL);
    return ok;
}

/* The oldest session first; closes the array. */
static bool add_sessions(struct sp_buf *b, const struct sp_server *server)
{
    const struct sp_session *s = server->first;
    struct room room = {0};
    bool ok = true;

    while (s != NULL && s->next != NULL)
        s = s->next;
    for (; ok && s != NULL; s = s->prev)
        ok = add_session(b, s, &room);
    ok = ok && sp_buf_add(b, "]", 1);
    return ok && (room.omitted == 0 || sp_buf_printf(b, ",\"omitted\":%u", room.omitted));
}

static int process_list(struct sp_rpc_call *c, struct sp_err *e)
{
    auto_buf struct sp_buf b = {0};
    bool wants_all = false;

    if (c->params != SP_JSON_NONE) {
        const struct sp_params params = sp_rpc_call_params(c, e);

        sp_params_def_bool(&params, "all", &wants_all);
    }
    if (e->code != SP_E_NONE || sp_rpc_call_check(c, e) < 0)
        return -(int)e->code;
    const bool ok =
        sp_buf_printf(&b, "{\"processes\":[") &&
        (wants_all ? add_sessions(&b, c->conn->rpc->server)
                   : add_session(&b, c->conn->session, NULL) && sp_buf_add(&b, "]", 1)) &&
        sp_buf_add(&b, "}", 1);
    if (!ok)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "list the processes");
    sp_rpc_call_reply(c, sp_buf_str(&b));
    return 0;
}

/* ---- process/inspect ---- */

struct ports {
    uint16_t items[SP_INSPECT_PORTS];
    uint32_t count;
};

static void read_ports(const struct sp_params *p, struct ports *ret)
{
    struct sp_json *j = p->json;
    uint32_t array = SP_JSON_NONE;

    if (!sp_params_ok(p) || sp_json_opt_array(j, p->object, "ports", &array, p->err) < 0 ||
        array == SP_JSON_NONE)
        return;
    for (uint32_t t = sp_json_first(j, array); sp_params_ok(p) && t != SP_JSON_NONE;
         t = sp_json_next(j, array, t)) {
        int64_t port = 0;

        if (!sp_json_i64(j, t, &port) || port < 1 || port > UINT16_MAX)
            (void)sp_fail(p->err, SP_E_INVALID, 0, "ports must be numbers between 1 and 65535");
        else if (ret->count == SP_INSPECT_PORTS)
            (void)sp_fail(p->err, SP_E_INVALID, 0, "at most %d ports may be asked for at once",
                          SP_INSPECT_PORTS);
        else
            ret->items[ret->count++] = (uint16_t)port;
    }
}

/* At most SP_INSPECT_HOLDERS holders are listed; holderCount has the number of all. */
static bool add_inspection(struct sp_buf *b, const struct sp_proc *p,
                           const struct sp_inspection *look)
{
    const uint32_t told =
        look->holder_count < SP_INSPECT_HOLDERS ? look->holder_count : SP_INSPECT_HOLDERS;
    bool ok = sp_buf_printf(b, "{\"state\":\"%s\",\"holders\":[",
                            p->state.exit_seq != 0 ? "exited" : sp_doing_name(look->doing));

    for (uint32_t i = 0; ok && i < told; i++)
        ok = sp_buf_printf(b, "%s{\"pid\":%d,\"name\":", i == 0 ? "" : ",", look->holders[i].pid) &&
             sp_json_add_str(b, sp_str_of(look->holders[i].name)) && sp_buf_printf(b, "}");
    ok = ok && sp_buf_printf(b, "]");
    if (ok && look->holder_count > told)
        ok = sp_buf_printf(b, ",\"holderCount\":%u", look->holder_count);
    if (ok && look->listening != 0)
        ok = sp_buf_printf(b, ",\"listening\":%u", look->listening);
    return ok && sp_buf_printf(b, "}");
}

/* What the kernel says the process is doing, which processes hold its output open after its exit,
 * and whether it listens on one of the ports. */
static int process_inspect(struct sp_rpc_call *c, struct sp_err *e)
{
    const struct sp_params params = sp_rpc_call_params(c, e);
    struct sp_proc_target t = {0};
    struct ports ports = {0};
    struct sp_proc *p = NULL;
    bool waits = false;
    auto_buf struct sp_buf b = {0};
    struct sp_inspection look;

    sp_proc_target_read(&params, &t);
    read_ports(&params, &ports);
    if (!sp_params_ok(&params) || sp_proc_target_find(c, &t, &p, &waits, e) < 0 || waits)
        return sp_params_result(&params);
    if (p == NULL)
        return sp_proc_target_unknown(&t, e);
    const struct sp_inspect_ask ask = {
        .wants_doing = true, .ports = ports.items, .port_count = ports.count};
    sp_proc_look(p, &ask, &look);
    if (!add_inspection(&b, p, &look))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "inspect the process");
    sp_rpc_call_reply(c, sp_buf_str(&b));
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

void sp_process_views_close(struct sp_conn *c)
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
static enum sp_push_result push_record(struct view *v, const struct sp_record *r,
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
    const enum sp_push_result sent = sp_push_record(v->conn, o->proc, r, sp_str_of(more));
    if (sent == SP_PUSH_SENT)
        sp_observer_told(o, r);
    return sent;
}

/* The view may be freed here: by its last record, or when the link closes. */
void sp_process_views_push_first(struct sp_conn *c)
{
    struct view *v = SP_CONTAINER(sp_list_take_first(&c->view_news), struct view, news);
    struct sp_record r;
    struct sp_gap gap;
    size_t bytes = 0;
    int more = 0;

    while (bytes < SP_PUSH_TURN && !sp_link_is_full(c->link) &&
           (more = sp_observer_next(&v->observer, &r, &gap)) > 0) {
        bytes += r.len;
        if (push_record(v, &r, &gap) == SP_PUSH_NO_ROOM)
            return;
        if (r.type == SP_RECORD_CLOSED) { /* always the last record */
            close_view(v);
            return;
        }
    }
    if (more > 0)
        schedule_view(v);
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
    out = sp_put_literal(out, ",\"sessionId\":\"");
    out = sp_put_str(out, sp_str_of(p->session->id));
    out = sp_put_literal(out, "\"}}");
    sp_link_commit(c->link, (size_t)(out - start));
}

/* Sends exited and closed without looking at the link's limit, since nothing comes after them. A
 * client that lets even these pile up does not read: its connection ends. */
static void push_end(struct view *v)
{
    const struct sp_observer *o = &v->observer;
    const struct sp_proc *p = o->proc;
    const struct sp_record records[] = {
        {.seq = p->state.exit_seq,
         .type = SP_RECORD_EXITED,
         .len = sizeof p->state.exit,
         .data = (const uint8_t *)&p->state.exit},
        {.seq = p->state.closed_seq, .type = SP_RECORD_CLOSED},
    };

    if (sp_link_queued(v->conn->link) > SP_CONN_MAX_QUEUED && !v->conn->is_closing) {
        v->conn->is_closing = true;
        sp_link_close(v->conn->link, "too slow to be told the end of what it is attached to");
    }
    for (size_t i = 0; i < sizeof records / sizeof records[0] && !v->conn->is_closing; i++) {
        struct sp_gap gap = sp_observer_gap(o, records[i].seq, 0);

        gap.has_bytes = false; /* unknown: some of the lost output may follow the exit */
        if (records[i].seq > o->told_seq && push_record(v, &records[i], &gap) == SP_PUSH_NO_ROOM)
            return;
    }
}

/* The process is being forgotten: sends what the ring still has and the link takes, then the end.
 */
static void on_ending(struct sp_observer *o)
{
    struct view *v = view_of(o);
    struct sp_conn *c = v->conn;
    struct sp_record r;
    struct sp_gap gap;

    while (!c->is_closing && !sp_link_is_full(c->link) && sp_observer_next(o, &r, &gap) > 0)
        if (push_record(v, &r, &gap) == SP_PUSH_NO_ROOM)
            break;
    push_end(v);
    close_view(v);
}

static const struct sp_observer_ops observer_ops = {
    .news = on_news, .displaced = on_displaced, .ending = on_ending};

/* ---- process/attach, process/detach ---- */

struct attach {
    struct sp_proc_target target;
    uint64_t after_seq; /* UINT64_MAX: from now on */
    bool has_input, is_stealing;
};

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

/* nextSeq is the first record that this view will get. */
static bool add_attached(struct sp_buf *b, const struct view *v, const struct attach *a)
{
    const struct sp_proc *p = v->observer.proc;
    const bool has_exited = p->state.exit_seq != 0;
    char code[16] = "null";

    if (has_exited)
        (void)snprintf(code, sizeof code, "%d", (int)p->state.exit.code);
    return sp_buf_printf(b, "{\"sessionId\":\"%s\",\"processId\":", p->session->id) &&
           sp_buf_add_str(b, p->label) &&
           sp_buf_printf(b,
                         ",\"nextSeq\":%llu,\"input\":%s,\"tty\":%s,\"exited\":%s,\"exitCode\":%s,"
                         "\"closed\":%s}",
                         (unsigned long long)v->observer.told_seq + 1,
                         a->has_input ? "true" : "false", p->is_tty ? "true" : "false",
                         has_exited ? "true" : "false", code,
                         p->state.closed_seq != 0 ? "true" : "false");
}

static int process_attach(struct sp_rpc_call *c, struct sp_err *e)
{
    struct attach a = {.after_seq = UINT64_MAX};
    const struct sp_params params = read_attach_target(c, &a.target, e);
    auto_buf struct sp_buf b = {0};
    struct sp_proc *p = NULL;
    bool waits = false;
    int r = 0;

    sp_params_opt_u64(&params, "afterSeq", UINT64_MAX - 1, &a.after_seq);
    sp_params_def_bool(&params, "input", &a.has_input);
    sp_params_def_bool(&params, "steal", &a.is_stealing);
    if (sp_params_ok(&params) && a.is_stealing && !a.has_input)
        (void)sp_fail(e, SP_E_INVALID, 0, "steal without input: there is nothing to take over");
    if (!sp_params_ok(&params) || sp_proc_target_find(c, &a.target, &p, &waits, e) < 0 || waits)
        return sp_params_result(&params);
    if (p == NULL)
        return sp_proc_target_unknown(&a.target, e);
    struct view *v = open_view(c->conn, p, a.after_seq, e);
    if (v == NULL)
        return -(int)e->code;
    if (a.has_input)
        r = sp_observer_type(&v->observer, a.is_stealing, e);
    if (r == 0 && !add_attached(&b, v, &a))
        r = sp_fail(e, SP_E_SYSTEM, ENOMEM, "attach to the process");
    if (r < 0) {
        close_view(v);
        return r;
    }
    sp_rpc_call_reply(c, sp_buf_str(&b));
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
    const struct sp_session *s = sp_server_find(c->conn->rpc->server, t.session);
    const struct sp_proc *p = s == NULL ? NULL : sp_session_find(s, t.id);
    struct view *v = p == NULL ? NULL : find_view(c->conn, p);
    if (v != NULL)
        close_view(v);
    sp_rpc_call_reply(c, SP_STR("{}"));
    return 0;
}

const struct sp_method sp_observe_methods[] = {
    {"process/list", "exec", .fn = process_list},
    {"process/inspect", "exec", .fn = process_inspect},
    {"process/attach", "exec", .fn = process_attach},
    {"process/detach", "exec", .fn = process_detach},
    {0},
};
