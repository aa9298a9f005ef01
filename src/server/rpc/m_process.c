/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The methods about existing processes, but read, attach and detach (m_output.c). A `sessionId`
 * selects a process of another session.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/auto.h"
#include "base/base64.h"
#include "base/grow.h"
#include "base/uri.h"
#include "core/ended.h"
#include "core/observer.h"
#include "core/proc_receipt.h"
#include "os/inspect.h"
#include "server/rpc/conn.h"

/* ---- which process ---- */

/* For methods without further parameters. */
static int read_and_find(struct sp_rpc_call *c, struct sp_proc **ret, struct sp_err *e)
{
    const struct sp_params params = sp_rpc_call_params(c, e);
    struct sp_proc_target t = {0};

    sp_proc_target_read(&params, &t);
    return sp_params_ok(&params) ? sp_proc_target_find(c, &t, ret, e) : sp_params_result(&params);
}

/* Processes belong to sessions; the connection of the session is their owner. */
static bool is_owner(const struct sp_rpc_call *c, const struct sp_proc *p)
{
    return p->session == c->conn->session;
}

/* The owner may always write; of the other connections, only the one that has the input. */
static int check_writer(const struct sp_rpc_call *c, const struct sp_proc *p, struct sp_err *e)
{
    if (is_owner(c, p) || sp_process_view_may_type(c->conn, p))
        return 0;
    return sp_fail(e, SP_E_ATTACHED, 0,
                   "another connection types into process " SP_STR_FMT
                   "; attach with steal to take over",
                   SP_STR_ARG(p->id));
}

/* ---- write ---- */

static const struct sp_str accepted = {"{\"status\":\"accepted\"}", 21};
static const struct sp_str stdin_closed = {"{\"status\":\"stdinClosed\"}", 24};
static const struct sp_str unknown_process = {"{\"status\":\"unknownProcess\"}", 27};

#define WRITE_FAILED "failed to write to process stdin"

/* Parked writes are woken in turn and so keep their order: one that still finds the queue full goes
 * back to the front, and no later one is woken. */
static void try_write(struct sp_waiter *w)
{
    struct sp_request *r = SP_CONTAINER(w, struct sp_request, waiter);

    switch (sp_proc_write(r->proc, r->write.id, r->write.bytes)) {
    case SP_INPUT_ACCEPTED:
        sp_request_reply(r, accepted);
        break;
    case SP_INPUT_CLOSED:
        sp_request_reply(r, stdin_closed);
        break;
    case SP_INPUT_FULL:
        sp_waiters_add_first(&r->proc->on_room, w);
        break;
    case SP_INPUT_FAILED:
        sp_request_refuse(r, SP_E_FAILED, 0, WRITE_FAILED);
        break;
    }
}

/* The decoded bytes are copied: the message that they are in is reused. */
static int park_write(struct sp_rpc_call *c, struct sp_proc *p, struct sp_str id,
                      struct sp_str bytes, struct sp_err *e)
{
    if (c->conn->parked_writes >= SP_CONN_MAX_WRITES)
        return sp_fail(
            e, SP_E_LIMIT, 0,
            "at most %d writes may wait on one connection for a process to read its stdin",
            SP_CONN_MAX_WRITES);
    struct sp_request *r = sp_rpc_call_park(c, id.n + bytes.n, e);
    if (r == NULL)
        return -(int)e->code;
    char *own = sp_request_extra(r);
    if (id.n > 0)
        memcpy(own, id.p, id.n);
    if (bytes.n > 0)
        memcpy(own + id.n, bytes.p, bytes.n);
    sp_request_hold(r, p);
    r->is_write = true;
    c->conn->parked_writes++;
    r->write.id = (struct sp_str){own, id.n};
    r->write.bytes = (struct sp_str){own + id.n, bytes.n};
    r->waiter.fn = try_write;
    sp_waiters_add(&p->on_room, &r->waiter);
    return 0;
}

static int process_write(struct sp_rpc_call *c, struct sp_err *e)
{
    const struct sp_params params = sp_rpc_call_params(c, e);
    struct sp_proc_target t = {0};
    struct sp_str chunk = {0};
    struct sp_str write_id = {0};
    struct sp_proc *p = NULL;
    size_t len = 0;

    sp_proc_target_read(&params, &t);
    sp_params_str(&params, "chunk", &chunk);
    if (sp_params_ok(&params)) /* in place: the message is ours to write in */
        (void)sp_base64_decode(chunk, (char *)(uintptr_t)chunk.p, &len, e);
    sp_params_str(&params, "writeId", &write_id);
    int r = sp_params_result(&params);
    if (r == 0)
        r = sp_rpc_call_check(c, e);
    if (r == 0 && write_id.n == 0)
        r = sp_fail(e, SP_E_INVALID, 0, "writeId must not be empty");
    if (r == 0)
        r = sp_proc_target_find(c, &t, &p, e);
    if (r == 0 && p != NULL)
        r = check_writer(c, p, e);
    if (r != 0)
        return r;
    if (p == NULL)
        return sp_rpc_call_reply(c, unknown_process);
    /* A new write queues behind parked ones and is refused behind a closeStdin; a repeated write
     * id gets the answer of its first write at once. */
    const struct sp_str bytes = {chunk.p, len};
    const bool is_repeat = sp_input_knows(&p->input, write_id);
    enum sp_input_result result = SP_INPUT_FULL;
    if (p->is_input_ending && !is_repeat)
        result = SP_INPUT_CLOSED;
    else if (p->on_room.count == 0 || is_repeat)
        result = sp_proc_write(p, write_id, bytes);
    switch (result) {
    case SP_INPUT_FULL:
        return park_write(c, p, write_id, bytes, e);
    case SP_INPUT_FAILED:
        return sp_fail(e, SP_E_FAILED, 0, WRITE_FAILED);
    case SP_INPUT_ACCEPTED:
    case SP_INPUT_CLOSED:
        break;
    }
    return sp_rpc_call_reply(c, result == SP_INPUT_ACCEPTED ? accepted : stdin_closed);
}

/* All writes that were parked before are queued. */
static void close_in_turn(struct sp_waiter *w)
{
    struct sp_request *r = SP_CONTAINER(w, struct sp_request, waiter);

    sp_request_reply(r, sp_input_close(&r->proc->input) == SP_INPUT_ACCEPTED ? accepted
                                                                             : stdin_closed);
}

/* Takes effect after all writes that were accepted or parked before it. */
static int process_close_stdin(struct sp_rpc_call *c, struct sp_err *e)
{
    struct sp_proc *p = NULL;
    int r = read_and_find(c, &p, e);

    if (r == 0 && p != NULL)
        r = check_writer(c, p, e);
    if (r != 0)
        return r;
    if (p == NULL)
        return sp_rpc_call_reply(c, unknown_process);
    if (p->on_room.count > 0) {
        struct sp_request *w = sp_rpc_call_park(c, 0, e);

        if (w == NULL)
            return -(int)e->code;
        p->is_input_ending = w->is_stdin_end = true;
        sp_request_hold(w, p);
        w->waiter.fn = close_in_turn;
        sp_waiters_add(&p->on_room, &w->waiter);
        return 0;
    }
    return sp_rpc_call_reply(c, sp_input_close(&p->input) == SP_INPUT_ACCEPTED ? accepted
                                                                               : stdin_closed);
}

/* ---- signal, resize ---- */

static const struct {
    const char *name;
    int number;
} signals[] = {
    {"INT", SIGINT},       {"HUP", SIGHUP},   {"QUIT", SIGQUIT},   {"ILL", SIGILL},
    {"TRAP", SIGTRAP},     {"ABRT", SIGABRT}, {"BUS", SIGBUS},     {"FPE", SIGFPE},
    {"KILL", SIGKILL},     {"USR1", SIGUSR1}, {"SEGV", SIGSEGV},   {"USR2", SIGUSR2},
    {"PIPE", SIGPIPE},     {"ALRM", SIGALRM}, {"TERM", SIGTERM},   {"CHLD", SIGCHLD},
    {"CONT", SIGCONT},     {"STOP", SIGSTOP}, {"TSTP", SIGTSTP},   {"TTIN", SIGTTIN},
    {"TTOU", SIGTTOU},     {"URG", SIGURG},   {"XCPU", SIGXCPU},   {"XFSZ", SIGXFSZ},
    {"VTALRM", SIGVTALRM}, {"PROF", SIGPROF}, {"WINCH", SIGWINCH}, {"IO", SIGIO},
    {"PWR", SIGPWR},       {"SYS", SIGSYS},
};

static void on_cell_answer(struct sp_waiter *w)
{
    struct sp_request *r = SP_CONTAINER(w, struct sp_request, cell_call.call.waiter);

    if (r->cell_call.call.err == 0)
        sp_request_reply(r, SP_STR("{}"));
    else
        sp_request_refuse(r, SP_E_FAILED, r->cell_call.call.err, "failed to %s process",
                          r->cell_call.is_signal ? "signal" : "resize");
}

/* Parks a request until the cell has answered; its own waiter is not used. */
static struct sp_request *park_cell_call(struct sp_rpc_call *c, struct sp_proc *p, bool is_signal,
                                         struct sp_err *e)
{
    struct sp_request *r = sp_rpc_call_park(c, 0, e);

    if (r != NULL) {
        sp_request_hold(r, p);
        r->is_cell_call = true;
        r->cell_call.is_signal = is_signal;
        r->cell_call.call.waiter = (struct sp_waiter){.fn = on_cell_answer};
    }
    return r;
}

/* For the program that waits for the command: it says who ended it. */
static void note_who(const struct sp_rpc_call *c, struct sp_proc *p)
{
    if (c->conn->door == SP_DOOR_OVERSEER)
        (void)sp_link_peer_process(c->conn->link, &p->ended_by, &p->ended_by_uid);
}

static int process_signal(struct sp_rpc_call *c, struct sp_err *e)
{
    const struct sp_params params = sp_rpc_call_params(c, e);
    struct sp_proc_target t = {0};
    struct sp_str name = {0};
    struct sp_proc *p = NULL;
    int number = 0;

    sp_proc_target_read(&params, &t);
    sp_params_str(&params, "signal", &name);
    /* `interrupt` is the only name that Codex sends; names of signals, with or without SIG, are an
     * addition. */
    const bool has_prefix =
        name.n > 3 && sp_str_eq_nocase((struct sp_str){name.p, 3}, SP_STR("SIG"));
    const struct sp_str bare = has_prefix ? (struct sp_str){name.p + 3, name.n - 3} : name;
    if (sp_str_eq(name, SP_STR("interrupt")))
        number = SIGINT;
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        if (sp_str_eq_nocase(bare, sp_str_of(signals[i].name)))
            number = signals[i].number;
    if (sp_params_ok(&params) && number == 0)
        (void)sp_fail(e, SP_E_INVALID, 0,
                      "unknown variant `" SP_STR_FMT "`, expected `interrupt` or a signal's name",
                      SP_STR_ARG(name));
    if (!sp_params_ok(&params) || sp_proc_target_find(c, &t, &p, e) != 0)
        return sp_params_result(&params);
    /* SIGKILL also reaches what an exited command left behind in its process group. */
    if (p == NULL ||
        !(p->life == SP_PROC_RUNNING || (p->life == SP_PROC_EXITED && number == SIGKILL)))
        return sp_rpc_call_reply(c, SP_STR("{}"));
    struct sp_request *w = park_cell_call(c, p, true, e);
    if (w == NULL)
        return -(int)e->code;
    note_who(c, p);
    sp_proc_signal(p, &w->cell_call.call, number);
    return 0;
}

static int process_resize(struct sp_rpc_call *c, struct sp_err *e)
{
    const struct sp_params params = sp_rpc_call_params(c, e);
    struct sp_proc_target t = {0};
    uint64_t rows = 0;
    uint64_t cols = 0;
    struct sp_proc *p = NULL;

    sp_proc_target_read(&params, &t);
    sp_params_u64(&params, "rows", UINT16_MAX, &rows);
    sp_params_u64(&params, "cols", UINT16_MAX, &cols);
    if (sp_params_ok(&params) && (rows == 0 || cols == 0))
        (void)sp_fail(e, SP_E_INVALID, 0, "rows and cols must be between 1 and 65535");
    if (!sp_params_ok(&params) || sp_proc_target_find(c, &t, &p, e) != 0)
        return sp_params_result(&params);
    if (p == NULL)
        return sp_proc_target_unknown(&t, e);
    if (!p->is_tty)
        return sp_fail(e, SP_E_STATE, 0, "process " SP_STR_FMT " has no terminal",
                       SP_STR_ARG(t.id));
    if (check_writer(c, p, e) < 0)
        return -(int)e->code;
    /* The owner's size is only remembered while another connection types with its own size. */
    const bool is_effective =
        sp_observers_resize(p, is_owner(c, p), (uint16_t)rows, (uint16_t)cols);
    if (!is_effective || p->life != SP_PROC_RUNNING)
        return sp_rpc_call_reply(c, SP_STR("{}"));
    struct sp_request *w = park_cell_call(c, p, false, e);
    if (w == NULL)
        return -(int)e->code;
    sp_proc_resize(p, &w->cell_call.call, (uint16_t)rows, (uint16_t)cols);
    return 0;
}

/* ---- terminate ---- */

/* Answers at once; the exit is reported by process/exited. */
static int process_terminate(struct sp_rpc_call *c, struct sp_err *e)
{
    struct sp_proc *p = NULL;
    const int r = read_and_find(c, &p, e);

    if (r != 0)
        return r;
    if (p != NULL)
        note_who(c, p);
    return sp_rpc_call_reply(c, p != NULL && sp_proc_terminate(p) ? SP_STR("{\"running\":true}")
                                                                  : SP_STR("{\"running\":false}"));
}

/* ---- process/list ---- */

#define LISTED_BYTES      4096        /* of the arguments of one process */
#define LISTED_LEAST      160         /* of a process, besides its texts */
#define LIST_MAX_BYTES    (32U << 20) /* of a list */
#define LIST_MAX_VALUES   200000 /* JSON values of a list of all sessions, for `sallyport ps` */
#define VALUES_OF_ONE     35     /* JSON values of a process besides its arguments, at most */
#define VALUES_OF_RECEIPT 44

static bool add_sandbox(struct sp_buf *b, const struct sp_proc *p)
{
    const struct sp_sandbox_facts f = sp_proc_sandbox_facts(p);

    return sp_sandbox_add_member(b, &f);
}

/* One element of the list. A long argv is truncated after LISTED_BYTES. */
static bool add_process(struct sp_buf *b, const struct sp_proc *p, bool has_session,
                        bool has_receipt)
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
        (p->name == NULL || sp_buf_printf(b, ",\"name\":\"%s\"", p->name)) &&
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
           (!has_receipt || p->state.exit_seq == 0 || sp_proc_add_receipt(b, p)) &&
           (!p->is_output_evicted || sp_buf_printf(b, ",\"outputEvicted\":true")) &&
           sp_buf_printf(b, "}");
}

/* One line of the list: a process, or the record of an ended one. */
struct listed {
    struct sp_session *session;
    struct sp_proc *proc; /* NULL: `past` */
    struct sp_past *past;
    uint64_t number; /* of its start */
};

/* What a list has, in the order of the starts, session by session. */
struct list {
    struct listed *items;
    uint32_t count, cap;
    uint32_t omitted; /* processes left out */
};

static bool note_listed(struct list *l, struct sp_session *s, struct sp_proc *p,
                        struct sp_past *past)
{
    if (!SP_GROW(l->items, l->count, l->cap))
        return false;
    l->items[l->count++] = (struct listed){
        .session = s, .proc = p, .past = past, .number = p != NULL ? p->number : past->number};
    return true;
}

static bool note_session(struct list *l, struct sp_session *s)
{
    bool ok = true;

    for (struct sp_list *i = s->procs.next; ok && i != &s->procs; i = i->next)
        ok = note_listed(l, s, SP_CONTAINER(i, struct sp_proc, link), NULL);
    for (struct sp_list *i = s->opened.next; ok && i != &s->opened; i = i->next)
        ok = note_listed(l, s, SP_CONTAINER(i, struct sp_proc, link), NULL);
    for (struct sp_list *i = s->pasts.list.next; ok && i != &s->pasts.list; i = i->next) {
        struct sp_past *past = SP_CONTAINER(i, struct sp_past, link);

        ok = past->opened != NULL || note_listed(l, s, NULL, past);
    }
    return ok;
}

static int by_need(const void *left, const void *right)
{
    const struct listed *a = left;
    const struct listed *b = right;
    const bool is_over_a = a->proc == NULL || a->proc->life == SP_PROC_CLOSED;
    const bool is_over_b = b->proc == NULL || b->proc->life == SP_PROC_CLOSED;

    if (is_over_a != is_over_b)
        return is_over_a ? 1 : -1;
    return (a->number < b->number) - (a->number > b->number);
}

static int by_start(const void *left, const void *right)
{
    const struct listed *a = left;
    const struct listed *b = right;

    if (a->session != b->session)
        return a->session->number < b->session->number ? -1 : 1;
    return (a->number > b->number) - (a->number < b->number);
}

/* A list must stay a message that its reader accepts, so there are bounds for it: live processes
 * come first, then those that have started last; the others are counted as omitted. `values` 0: no
 * bound for JSON values. */
static void fit_list(struct list *l, uint64_t values_of_one, uint64_t max_values)
{
    uint64_t values = 0;
    uint64_t bytes = 0;
    uint32_t n = 0;

    qsort(l->items, l->count, sizeof *l->items, by_need);
    for (; n < l->count; n++) {
        const struct listed *i = &l->items[n];
        const uint32_t argc = i->proc != NULL ? i->proc->argc : i->past->argc;

        values += values_of_one + (argc < LISTED_BYTES / 3 ? argc : LISTED_BYTES / 3);
        bytes += LISTED_LEAST +
                 (i->proc != NULL ? i->proc->id.n + i->proc->strings.len : i->past->output_at);
        if ((max_values != 0 && values > max_values) || bytes > LIST_MAX_BYTES)
            break;
    }
    l->omitted = l->count - n;
    l->count = n;
    qsort(l->items, l->count, sizeof *l->items, by_start);
}

/* The bytes are counted again: escapes make a text longer. */
static bool add_list(struct sp_buf *b, struct list *l, bool wants_all, bool has_receipts)
{
    bool ok = true;

    for (uint32_t n = 0; ok && n < l->count; n++) {
        const struct listed *i = &l->items[n];

        if (b->len > LIST_MAX_BYTES) {
            l->omitted++;
            continue;
        }
        struct sp_proc *p = i->proc != NULL ? i->proc : sp_ended_open(i->session, i->past);
        ok = p != NULL && (n == 0 || sp_buf_add(b, ",", 1)) &&
             add_process(b, p, wants_all, has_receipts);
        if (p != NULL && i->proc == NULL)
            sp_ended_shut(p);
    }
    return ok;
}

static int process_list(struct sp_rpc_call *c, struct sp_err *e)
{
    auto_buf struct sp_buf b = {0};
    struct list l = {0};
    const bool has_receipts = c->conn->takes_receipts;
    bool wants_all = false;
    bool ok = true;

    if (c->params != SP_JSON_NONE) {
        const struct sp_params params = sp_rpc_call_params(c, e);

        sp_params_def_bool(&params, "all", &wants_all);
    }
    if (e->code != SP_E_NONE || sp_rpc_call_check(c, e) < 0)
        return -(int)e->code;
    if (wants_all) {
        sp_list_each(i, &c->conn->rpc->front->sessions)
            ok = ok && note_session(&l, SP_CONTAINER(i, struct sp_session, link));
    } else {
        ok = note_session(&l, c->conn->session);
    }
    if (ok && l.count > 0)
        fit_list(&l, VALUES_OF_ONE + (has_receipts ? VALUES_OF_RECEIPT : 0),
                 wants_all ? LIST_MAX_VALUES : 0);
    ok = ok && sp_buf_printf(&b, "{\"processes\":[") && add_list(&b, &l, wants_all, has_receipts) &&
         sp_buf_add(&b, "]", 1) &&
         (l.omitted == 0 || sp_buf_printf(&b, ",\"omitted\":%u", l.omitted)) &&
         sp_buf_add(&b, "}", 1);
    free(l.items);
    if (!ok)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "list the processes");
    return sp_rpc_call_reply(c, sp_buf_str(&b));
}

/* ---- process/inspect ---- */

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
    if (ok && p->name != NULL)
        ok = sp_buf_printf(b, ",\"name\":\"%s\"", p->name);
    return ok && sp_buf_printf(b, "}");
}

/* What the kernel says the process is doing, which processes hold its output open after its exit,
 * and whether it listens on one of the ports. */
static int process_inspect(struct sp_rpc_call *c, struct sp_err *e)
{
    const struct sp_params params = sp_rpc_call_params(c, e);
    struct sp_proc_target t = {0};
    uint16_t ports[SP_INSPECT_PORTS];
    uint32_t port_count = 0;
    uint32_t array = SP_JSON_NONE;
    struct sp_proc *p = NULL;
    auto_buf struct sp_buf b = {0};
    struct sp_inspection look;

    sp_proc_target_read(&params, &t);
    if (sp_params_ok(&params))
        (void)sp_json_opt_array(params.json, params.object, "ports", &array, e);
    sp_params_each(&params, array, i) {
        int64_t port = 0;

        if (!sp_json_i64(params.json, i, &port) || port < 1 || port > UINT16_MAX)
            (void)sp_fail(e, SP_E_INVALID, 0, "ports must be numbers between 1 and 65535");
        else if (port_count == SP_INSPECT_PORTS)
            (void)sp_fail(e, SP_E_INVALID, 0, "at most %d ports may be asked for at once",
                          SP_INSPECT_PORTS);
        else
            ports[port_count++] = (uint16_t)port;
    }
    if (!sp_params_ok(&params) || sp_proc_target_find(c, &t, &p, e) != 0)
        return sp_params_result(&params);
    if (p == NULL)
        return sp_proc_target_unknown(&t, e);
    const struct sp_inspect_request ask = {
        .wants_doing = true, .ports = ports, .port_count = port_count};
    sp_proc_inspect(p, &ask, &look);
    if (!add_inspection(&b, p, &look))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "inspect the process");
    return sp_rpc_call_reply(c, sp_buf_str(&b));
}

static const struct sp_method methods[] = {
    {"process/write", "exec", .fn = process_write, .gated = SP_GATED_STARTING},
    {"process/signal", "exec", .fn = process_signal, .gated = SP_GATED_NOTHING},
    {"process/terminate", "exec", .fn = process_terminate, .gated = SP_GATED_CANCEL},
    {"process/resize", "exec", .fn = process_resize},
    {"process/closeStdin", "exec", .fn = process_close_stdin, .gated = SP_GATED_STARTING},
    {"process/list", "exec", .fn = process_list},
    {"process/inspect", "exec", .fn = process_inspect},
    {0},
};

const struct sp_family sp_process_family = {.methods = methods};
