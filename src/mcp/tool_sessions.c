/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tool_sessions: the tools about sessions that exist: read_output, list_sessions, signal_session,
 * resize_session.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/auto.h"
#include "base/utf8.h"
#include "mcp/output.h"
#include "mcp/tool.h"

/* ---- read_output: kept output, also after the end of the session ---- */

struct reading {
    struct sp_mcp_output found;
    bool has_exited, is_held;
    int exit_code;
};

static void free_reading(struct sp_mcp_run *r)
{
    struct reading *x = r->data;

    sp_mcp_output_done(&x->found);
    free(x);
}

static void tell_read(struct sp_mcp_run *r, const struct sp_inspection *found)
{
    const struct reading *x = r->data;
    const struct sp_mcp_output *o = &x->found;
    const char *state = sp_mcp_state_name(x->has_exited, x->is_held, found);
    auto_buf struct sp_buf text = {0};
    auto_buf struct sp_buf json = {0};

    const bool ok =
        sp_buf_printf(&text, "Bytes: %" PRIu64 "-%" PRIu64 " of %" PRIu64 "\n", o->from_byte,
                      o->next_byte, o->end_byte) &&
        (o->omitted_bytes == 0 ||
         sp_buf_printf(&text, "Omitted: %" PRIu64 " bytes that are no longer kept\n",
                       o->omitted_bytes)) &&
        (!o->has_matches || sp_buf_printf(&text, "Matches: %" PRIu64 "\n", o->matches)) &&
        (!x->has_exited || sp_buf_printf(&text, "Process exited with code %d\n", x->exit_code)) &&
        sp_buf_printf(&text, "State: %s\nOutput:\n", state) &&
        sp_buf_add_str(&text, sp_buf_str(&o->text)) &&
        sp_buf_printf(&json, "{\"state\":\"%s\"", state) &&
        (!x->has_exited || sp_json_add_value(&json, "exit_code", "%d", x->exit_code)) &&
        sp_json_add_value(&json, "from_byte", "%" PRIu64, o->from_byte) &&
        sp_json_add_value(&json, "next_byte", "%" PRIu64, o->next_byte) &&
        sp_json_add_value(&json, "first_byte", "%" PRIu64, o->first_byte) &&
        sp_json_add_value(&json, "end_byte", "%" PRIu64, o->end_byte) &&
        sp_json_add_value(&json, "omitted_bytes", "%" PRIu64, o->omitted_bytes) &&
        (!o->has_matches || sp_json_add_value(&json, "matches", "%" PRIu64, o->matches)) &&
        sp_mcp_run_add_output(&json, r, sp_buf_str(&o->text)) && sp_buf_add(&json, "}", 1);

    sp_mcp_tool_done(r, ok, &text, &json);
}

static void tell_read_now(struct sp_deferred *d)
{
    tell_read(SP_CONTAINER(d, struct sp_mcp_run, deferred), NULL);
}

static int read_read_arguments(struct sp_mcp_run *r, int *ret_id,
                               struct sp_mcp_output_request *request, struct sp_err *e)
{
    struct sp_str view = {0};
    const struct sp_slot slots[] = {
        SP_SLOT(I32, "session_id", .to = ret_id, .is_needed = true),
        SP_SLOT(U64, "from_byte", .to = &request->from_byte, .has = &request->has_from_byte),
        SP_SLOT(U64, "line", .to = &request->line, .has = &request->has_line),
        SP_SLOT(STRING, "grep", .to = &request->grep, .has = &request->has_grep),
        SP_SLOT(U64, "context", .to = &request->context),
        SP_SLOT(U64, "limit", .to = &request->limit),
        SP_SLOT(STRING, "view", .to = &view),
    };
    const int result = sp_slots_read(&r->arguments, SP_SLOTS(slots), e);

    if (result < 0)
        return result;
    if (request->has_line + request->has_grep > 1 || (request->has_line && request->has_from_byte))
        return sp_fail(
            e, SP_E_INVALID, 0,
            "give one of `from_byte`, `line` and `grep` (and from_byte beside grep to go "
            "on with a search)");
    if (request->limit == 0 || request->limit > SP_MCP_OUTPUT_LIMIT_MAX)
        return sp_fail(e, SP_E_INVALID, 0, "`limit` is a number from 1 to %d",
                       SP_MCP_OUTPUT_LIMIT_MAX);
    if (request->context > SP_MCP_OUTPUT_CONTEXT_MAX)
        return sp_fail(e, SP_E_INVALID, 0, "`context` is at most %d lines",
                       SP_MCP_OUTPUT_CONTEXT_MAX);
    request->is_plain = sp_str_eq(view, SP_STR("plain"));
    if (view.p != NULL && !request->is_plain && !sp_str_eq(view, SP_STR("raw")))
        return sp_fail(e, SP_E_INVALID, 0, "`view` is `raw` or `plain`");
    return 0;
}

static int start_read_output(struct sp_mcp_run *r, struct sp_err *e)
{
    struct sp_mcp_output_request request = {.context = SP_MCP_OUTPUT_CONTEXT,
                                            .limit = SP_MCP_OUTPUT_LIMIT};
    struct sp_manager_view v;
    int id = 0;

    if (read_read_arguments(r, &id, &request, e) < 0)
        return sp_mcp_tool_refuse_error(r, SP_MCP_BAD_ARGUMENTS, e);
    if (!sp_manager_view(r->caller->manager, id, &v))
        return sp_mcp_tool_refuse(
            r, e, "read_output failed: Unknown process id %d. " SP_MCP_UNKNOWN_HINT, id);
    struct reading *x = calloc(1, sizeof *x);
    if (x == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read output");
    r->data = x;
    r->free_data = free_reading;
    if (sp_mcp_output_read(&v, &request, &x->found, e) < 0)
        return sp_mcp_tool_refuse_error(r, "read_output failed: ", e);
    x->has_exited = v.has_exited;
    x->is_held = v.is_output_held;
    x->exit_code = v.exit_code;
    r->session_id = v.process_id;
    r->omits_end = !v.has_exited;
    if (!sp_mcp_tool_inspect(r, !v.has_exited || v.is_output_held ? id : 0, tell_read))
        sp_loop_defer(r->caller->loop, &r->deferred, tell_read_now);
    return 0;
}

static const struct sp_tool_parameter read_parameters[] = {
    SP_MCP_SESSION_ID,
    SP_PARAMETER("from_byte", "integer", "Read from this byte of the session's output."),
    SP_PARAMETER("line", "integer", "Read from this line; the first is 1."),
    SP_PARAMETER("grep", "string",
                 "Only lines that match this extended regular expression, with their numbers."),
    SP_PARAMETER("context", "integer", "With grep: lines around each match. Default 2."),
    SP_PARAMETER("limit", "integer", "Most bytes to return. Default 16384."),
    {"view", "string", "`plain`: without escape sequences. Default `raw`.",
     "\"enum\":[\"raw\",\"plain\"]", SP_TOOL_ALWAYS},
    {0},
};

const struct sp_mcp_tool sp_mcp_tool_read = {
    .name = "read_output",
    .start = start_read_output,
    .title = "Read a session's output again",
    .description = "Reads a session's output again, by byte, by line or by search: what an answer "
                   "left out, also after the end of the process.",
    .parameters = read_parameters,
    .required = "\"session_id\"",
    .is_read_only = true,
    .is_idempotent = true,
    .result = "state:string exit_code:integer from_byte:integer next_byte:integer "
              "first_byte:integer end_byte:integer omitted_bytes:integer matches:integer "
              "output:string note:string",
};

/* ---- list_sessions ---- */

struct list;

struct session {
    struct list *list;
    int id, exit_code;
    struct sp_str command, cwd;
    struct sp_str environment; /* n 0: not shown, there is only one */
    bool is_tty, has_exited, is_held;
    bool is_news; /* it ended since the last list, and no call has reported that */
    int64_t started_at_ms;
    struct sp_mcp_inspection *inspection; /* NULL: none, or answered */
    const char *state;
};

/* All processes are inspected at once; the list is sent when the last one is known. */
struct list {
    struct sp_mcp_run *run;
    struct session *sessions;
    uint32_t count, room;
    uint32_t awaited; /* inspections under way */
    bool is_out_of_memory;
    struct sp_arena keep;
};

static void free_list(struct sp_mcp_run *r)
{
    struct list *l = r->data;

    for (uint32_t i = 0; i < l->count; i++)
        sp_mcp_inspection_forget(l->sessions[i].inspection);
    sp_arena_done(&l->keep);
    free(l);
}

static void tell_list(struct sp_deferred *d)
{
    struct sp_mcp_run *r = SP_CONTAINER(d, struct sp_mcp_run, deferred);
    const struct list *l = r->data;
    auto_buf struct sp_buf text = {0};
    auto_buf struct sp_buf json = {0};
    bool ok = !l->is_out_of_memory && sp_buf_add_str(&json, SP_STR("{\"sessions\":["));

    for (uint32_t i = 0; ok && i < l->count; i++) {
        const struct session *s = &l->sessions[i];

        ok = sp_buf_printf(&text, "%d %s", s->id, s->state) &&
             (!s->has_exited || sp_buf_printf(&text, " (code %d)", s->exit_code)) &&
             (s->environment.n == 0 ||
              sp_buf_printf(&text, " in " SP_STR_FMT, SP_STR_ARG(s->environment))) &&
             sp_buf_printf(&text, "%s: ", s->is_tty ? " tty" : "") &&
             sp_question_add_visible(&text, s->command, false) &&
             (!s->is_news || sp_buf_add_str(&text, SP_STR(" [ended since the last list]"))) &&
             sp_buf_add(&text, "\n", 1) &&
             sp_buf_printf(&json, "%s{\"session_id\":%d", i == 0 ? "" : ",", s->id) &&
             sp_json_add_member(&json, "command", s->command) &&
             sp_json_add_member(&json, "cwd", s->cwd) &&
             (s->environment.n == 0 ||
              sp_json_add_member(&json, "environment_id", s->environment)) &&
             sp_json_add_value(&json, "tty", "%s", s->is_tty ? "true" : "false") &&
             sp_json_add_value(&json, "state", "\"%s\"", s->state) &&
             (!s->has_exited || sp_json_add_value(&json, "exit_code", "%d", s->exit_code)) &&
             (!s->is_news || sp_json_add_value(&json, "ended_since_last_list", "true")) &&
             sp_json_add_value(&json, "started_at_ms", "%" PRId64 "}", s->started_at_ms);
    }
    if (ok && l->count == 0)
        ok = sp_buf_add_str(&text, SP_STR("There are no sessions.\n"));
    sp_mcp_tool_done(r, ok && sp_buf_add_str(&json, SP_STR("]}")), &text, &json);
}

static void on_listed_inspected(void *user, const struct sp_inspection *found)
{
    struct session *s = user;
    struct list *l = s->list;

    s->inspection = NULL;
    s->state = sp_mcp_state_name(s->has_exited, s->is_held, found);
    if (--l->awaited == 0)
        sp_loop_defer(l->run->caller->loop, &l->run->deferred, tell_list);
}

static void count_session(void *user, const struct sp_manager_view *v)
{
    (void)v;
    (*(uint32_t *)user)++;
}

static void take_session(void *user, const struct sp_manager_view *v)
{
    struct list *l = user;

    struct sp_mcp_caller *c = l->run->caller;
    bool is_news = false; /* it ended since the last list while no call waited for it */

    if (l->count == l->room)
        return;
    for (uint32_t i = 0; i < c->ended_count && !is_news; i++)
        if (c->ended[i].session_id == v->process_id) { /* news is told once */
            is_news = true;
            c->ended_count--;
            memmove(&c->ended[i], &c->ended[i + 1], (c->ended_count - i) * sizeof c->ended[0]);
        }
    struct session *s = &l->sessions[l->count];
    *s = (struct session){.list = l,
                          .id = v->process_id,
                          .exit_code = v->exit_code,
                          .is_tty = v->is_tty,
                          .has_exited = v->has_exited,
                          .is_held = v->is_output_held,
                          .is_news = is_news && !v->is_end_told,
                          .started_at_ms = v->started_at_ms,
                          .state = sp_mcp_state_name(v->has_exited, v->is_output_held, NULL)};
    if (sp_arena_str(&l->keep, v->command, &s->command) &&
        sp_arena_str(&l->keep, v->cwd, &s->cwd) &&
        (sp_mcp_run_options(l->run)->manager->environment_count < 2 ||
         sp_arena_str(&l->keep, sp_str_of(v->environment), &s->environment)))
        l->count++;
    else
        l->is_out_of_memory = true;
}

/* Oldest first; ids are random. */
static int by_start(const void *a, const void *b)
{
    const struct session *x = a;
    const struct session *y = b;

    if (x->started_at_ms != y->started_at_ms)
        return x->started_at_ms < y->started_at_ms ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static int start_list_sessions(struct sp_mcp_run *r, struct sp_err *e)
{
    uint32_t count = 0;

    if (sp_slots_read(&r->arguments, (struct sp_slots){0}, e) < 0)
        return sp_mcp_tool_refuse_error(r, SP_MCP_BAD_ARGUMENTS, e);
    sp_manager_each(r->caller->manager, count_session, &count);
    struct list *l = calloc(1, sizeof *l);
    if (l == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "list sessions");
    l->run = r;
    r->data = l;
    r->free_data = free_list;
    l->sessions = sp_arena_new(&l->keep, count * sizeof *l->sessions);
    if (l->sessions == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "list sessions");
    l->room = count;
    sp_manager_each(r->caller->manager, take_session, l);
    if (l->count > 1)
        qsort(l->sessions, l->count, sizeof *l->sessions, by_start);
    for (uint32_t i = 0; i < l->count; i++) {
        struct session *s = &l->sessions[i];

        if (!s->has_exited || s->is_held)
            s->inspection =
                sp_mcp_inspect(r->caller, s->id, SP_MCP_INSPECT_MS, on_listed_inspected, s);
        l->awaited += s->inspection != NULL;
    }
    if (l->awaited == 0)
        sp_loop_defer(r->caller->loop, &r->deferred, tell_list);
    return 0;
}

const struct sp_mcp_tool sp_mcp_tool_list = {
    .name = "list_sessions",
    .start = start_list_sessions,
    .title = "List sessions",
    .description = "Lists the sessions that run and those that have ended and can still be read, "
                   "oldest first, and marks those that ended since the last list.",
    .is_read_only = true,
    .is_idempotent = true,
    .result = "sessions:array note:string",
};

/* ---- signal_session ----
 *
 * Sends one signal or, without a name, TERM and after two seconds KILL to the whole tree. Answers
 * when the process is gone, or after a while with what it is doing instead.
 */

#define TICK_MS   20   /* between two checks whether it is gone */
#define GRACE_MS  2000 /* between TERM and the end of the tree */
#define KILL_MS   2500 /* wait for a process that is killed in the end */
#define SIGNAL_MS 500  /* wait after another signal, which may end it */
#define STOP_MS   50   /* wait for a stop or a continuation to take effect */

struct signalling {
    struct sp_mcp_run *run;
    int id;
    bool kills; /* in the end */
    bool has_killed;
    uint64_t kill_ms, until_ms;
    struct sp_timer tick;
};

static void free_signalling(struct sp_mcp_run *r)
{
    struct signalling *x = r->data;

    sp_loop_cancel(r->caller->loop, &x->tick);
    free(x);
}

static void tell_signalled(struct sp_mcp_run *r, const struct sp_inspection *found)
{
    const struct signalling *x = r->data;
    auto_buf struct sp_buf text = {0};
    auto_buf struct sp_buf json = {0};
    struct sp_manager_view v = {0};
    /* A session that is forgotten meanwhile has ended; no more is known about it. */
    const bool is_known = sp_manager_view(r->caller->manager, x->id, &v);
    const char *state =
        is_known ? sp_mcp_state_name(v.has_exited, v.is_output_held, found) : "exited";
    const char *reason = sp_end_reason_name(v.end_reason);
    char room[16];
    bool ok = sp_buf_printf(&text, "State: %s\n", state) &&
              sp_buf_printf(&json, "{\"state\":\"%s\"", state);

    if (is_known && v.has_exited)
        ok = ok && sp_buf_printf(&text, "Process exited with code %d\n", v.exit_code) &&
             sp_json_add_value(&json, "exit_code", "%d", v.exit_code) &&
             (v.signal <= 0 ||
              sp_json_add_value(&json, "signal", "\"%s\"", sp_mcp_signal_name(v.signal, room))) &&
             (reason == NULL || sp_json_add_value(&json, "end_reason", "\"%s\"", reason)) &&
             (v.receipt == NULL || (sp_json_add_key(&json, "receipt") &&
                                    sp_receipt_add(&json, v.receipt, SP_RECEIPT_SNAKE)));
    sp_mcp_tool_done(r, ok && sp_buf_add(&json, "}", 1), &text, &json);
}

static void finish_signalling(struct sp_mcp_run *r)
{
    const int id = ((const struct signalling *)r->data)->id;
    struct sp_manager_view v;
    const bool is_inspectable =
        sp_manager_view(r->caller->manager, id, &v) && (!v.has_exited || v.is_output_held);

    if (!sp_mcp_tool_inspect(r, is_inspectable ? id : 0, tell_signalled))
        tell_signalled(r, NULL);
}

static void finish_soon(struct sp_deferred *d)
{
    finish_signalling(SP_CONTAINER(d, struct sp_mcp_run, deferred));
}

static void on_tick(struct sp_timer *t)
{
    struct signalling *x = SP_CONTAINER(t, struct signalling, tick);
    struct sp_manager *m = x->run->caller->manager;
    const uint64_t now = sp_loop_now(x->run->caller->loop);
    struct sp_manager_view v;

    if (!sp_manager_view(m, x->id, &v) || v.has_exited || now >= x->until_ms) {
        finish_signalling(x->run);
        return;
    }
    if (x->kills && !x->has_killed && now >= x->kill_ms) {
        x->has_killed = true;
        sp_manager_terminate(m, x->id, NULL, NULL);
    }
    if (!sp_loop_timer(x->run->caller->loop, &x->tick, now + TICK_MS, on_tick))
        finish_signalling(x->run);
}

/* TERM, SIGTERM, term. 0: no such signal. */
static int read_signal(struct sp_str name)
{
    if (name.n > 3 && sp_str_eq_nocase((struct sp_str){name.p, 3}, SP_STR("SIG")))
        name = (struct sp_str){name.p + 3, name.n - 3};
    for (int i = 1; i < SIGRTMIN; i++) {
        const char *known = sigabbrev_np(i);

        if (known != NULL && sp_str_eq_nocase(name, sp_str_of(known)))
            return i;
    }
    return 0;
}

static int start_signal_session(struct sp_mcp_run *r, struct sp_err *e)
{
    struct sp_manager *m = r->caller->manager;
    struct sp_str name = {0};
    int id = 0;
    const struct sp_slot slots[] = {
        SP_SLOT(I32, "session_id", .to = &id, .is_needed = true),
        SP_SLOT(STRING, "signal", .to = &name),
    };
    struct sp_manager_view v;

    if (sp_slots_read(&r->arguments, SP_SLOTS(slots), e) < 0)
        return sp_mcp_tool_refuse_error(r, SP_MCP_BAD_ARGUMENTS, e);
    const int number = name.p == NULL ? SIGTERM : read_signal(name);
    if (number == 0)
        return sp_mcp_tool_refuse(
            r, e,
            "signal_session failed: there is no signal `%.*s`; names are TERM, "
            "INT, HUP, KILL, USR1 and so on",
            (int)(name.n > 40 ? 40 : name.n), name.p);
    if (!sp_manager_view(m, id, &v))
        return sp_mcp_tool_refuse(
            r, e, "signal_session failed: Unknown process id %d. " SP_MCP_UNKNOWN_HINT, id);
    struct signalling *x = calloc(1, sizeof *x);
    if (x == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "send a signal");
    *x = (struct signalling){.run = r, .id = id, .kills = name.p == NULL || number == SIGKILL};
    r->data = x;
    r->free_data = free_signalling;
    r->session_id = id;
    if (v.has_exited) {
        sp_loop_defer(r->caller->loop, &r->deferred, finish_soon);
        return 0;
    }
    const uint64_t now = sp_loop_now(r->caller->loop);
    x->kill_ms = now + GRACE_MS;
    x->until_ms = now + (x->kills ? KILL_MS : SIGNAL_MS);
    if (number == SIGSTOP || number == SIGTSTP || number == SIGCONT || number == SIGWINCH)
        x->until_ms = now + STOP_MS;
    if (!sp_loop_timer(r->caller->loop, &x->tick, now + TICK_MS, on_tick))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "send a signal");
    if (number == SIGKILL) {
        x->has_killed = true;
        sp_manager_terminate(m, id, NULL, NULL);
    } else {
        sp_manager_signal(m, id, number, NULL, NULL);
        if (x->kills) /* a stopped process handles TERM only after CONT */
            sp_manager_signal(m, id, SIGCONT, NULL, NULL);
    }
    return 0;
}

static const struct sp_tool_parameter signal_parameters[] = {
    SP_MCP_SESSION_ID,
    SP_PARAMETER("signal", "string",
                 "For example INT. Default: TERM, and after 2 seconds KILL for the process and its "
                 "children."),
    {0},
};

const struct sp_mcp_tool sp_mcp_tool_signal = {
    .name = "signal_session",
    .start = start_signal_session,
    .title = "Send a signal to a session",
    .description = "Ends a session's process, or sends it a signal, and says what became of it.",
    .parameters = signal_parameters,
    .required = "\"session_id\"",
    .is_destructive = true,
    .is_idempotent = true,
    .result = "state:string exit_code:integer signal:string end_reason:string receipt:object "
              "note:string",
};

/* ---- resize_session ---- */

#define RESIZE_MS 2000 /* after that the result is unknown, which is reported as a failure */

/* Lives until the run is gone and the manager has answered. */
struct resizing {
    struct sp_mcp_run *run; /* NULL: gone */
    int id;
    uint16_t rows, cols;
    bool is_awaited, was_done;
    struct sp_timer deadline;
};

static void free_resizing(struct sp_mcp_run *r)
{
    struct resizing *x = r->data;

    sp_loop_cancel(r->caller->loop, &x->deadline);
    x->run = NULL;
    if (!x->is_awaited)
        free(x);
}

static void tell_resized(struct sp_mcp_run *r)
{
    const struct resizing *x = r->data;
    auto_buf struct sp_buf text = {0};

    if (!x->was_done) {
        sp_mcp_run_fail(r,
                        "resize_session failed: the terminal of session %d could not be resized; "
                        "it may just have ended (list_sessions)",
                        x->id);
    } else if (!sp_buf_printf(&text, "The terminal of session %d has %u rows and %u columns.",
                              x->id, x->rows, x->cols)) {
        sp_mcp_tool_no_memory(r);
    } else {
        const struct sp_mcp_result result = {.text = sp_buf_str(&text)};

        sp_mcp_run_done(r, &result);
    }
}

static void on_resize_deadline(struct sp_timer *t)
{
    tell_resized(SP_CONTAINER(t, struct resizing, deadline)->run);
}

static void tell_resized_now(struct sp_deferred *d)
{
    tell_resized(SP_CONTAINER(d, struct sp_mcp_run, deferred));
}

/* Out of memory, the manager calls this from within sp_manager_resize: report it from the loop. */
static void on_resized(void *user, bool was_done)
{
    struct resizing *x = user;

    x->is_awaited = false;
    x->was_done = was_done;
    if (x->run == NULL)
        free(x);
    else
        sp_loop_defer(x->run->caller->loop, &x->run->deferred, tell_resized_now);
}

static int start_resize_session(struct sp_mcp_run *r, struct sp_err *e)
{
    struct resizing asked = {.run = r};
    const struct sp_slot slots[] = {
        SP_SLOT(I32, "session_id", .to = &asked.id, .is_needed = true),
        SP_SLOT(U16, "rows", .to = &asked.rows, .is_needed = true),
        SP_SLOT(U16, "cols", .to = &asked.cols, .is_needed = true),
    };
    struct sp_manager_view v;
    char why[160] = "";

    if (sp_slots_read(&r->arguments, SP_SLOTS(slots), e) < 0)
        return sp_mcp_tool_refuse_error(r, SP_MCP_BAD_ARGUMENTS, e);
    if (!sp_manager_view(r->caller->manager, asked.id, &v))
        (void)snprintf(why, sizeof why, "Unknown process id %d", asked.id);
    else if (!v.is_tty)
        (void)snprintf(why, sizeof why, "session %d has no terminal; start it with tty=true",
                       asked.id);
    else if (v.has_exited)
        (void)snprintf(why, sizeof why, "session %d has ended", asked.id);
    if (why[0] != 0)
        return sp_mcp_tool_refuse(r, e, "resize_session failed: %s. " SP_MCP_UNKNOWN_HINT, why);
    struct resizing *x = malloc(sizeof *x);
    if (x == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "resize a terminal");
    *x = asked;
    r->data = x;
    r->free_data = free_resizing;
    r->session_id = x->id;
    r->omits_end = true;
    if (!sp_loop_timer(r->caller->loop, &x->deadline, sp_loop_now(r->caller->loop) + RESIZE_MS,
                       on_resize_deadline))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "resize a terminal");
    x->is_awaited = true;
    sp_manager_resize(r->caller->manager, x->id, x->rows, x->cols, on_resized, x);
    return 0;
}

static const struct sp_tool_parameter resize_parameters[] = {
    SP_MCP_SESSION_ID,
    SP_PARAMETER("rows", "integer", "Height in lines."),
    SP_PARAMETER("cols", "integer", "Width in columns."),
    {0},
};

const struct sp_mcp_tool sp_mcp_tool_resize = {
    .name = "resize_session",
    .start = start_resize_session,
    .title = "Resize a session's terminal",
    .description = "Changes the size of a session's terminal.",
    .parameters = resize_parameters,
    .required = "\"session_id\",\"rows\",\"cols\"",
    .is_idempotent = true,
};
