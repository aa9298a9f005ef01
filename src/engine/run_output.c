/* SPDX-License-Identifier: Apache-2.0 */
/* run_output: the captured output of a run, its events, and the texts made of its result. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "engine/run_priv.h"

#define DEFAULT_TOKENS 10000

/* ---- events ---- */

static void put_string(struct sp_buf *room, struct sp_str *s)
{
    const char *at = room->data + room->len;

    (void)sp_buf_add_str(room, *s); /* copy_strings made room */
    s->p = at;
}

static bool copy_strings(struct sp_run_watcher *w, const struct sp_run_ask *ask)
{
    const struct sp_launch *l = &ask->launch;
    size_t size = 1 + ask->call_id.n + ask->turn_id.n + l->cwd.n;

    for (uint32_t i = 0; i < l->argc; i++)
        size += l->argv[i].n;
    w->argv = calloc((size_t)l->argc + 1, sizeof *w->argv);
    if (w->argv == NULL || sp_buf_room(&w->strings, size) == NULL)
        return false;
    for (uint32_t i = 0; i < l->argc; i++) {
        w->argv[i] = l->argv[i];
        put_string(&w->strings, &w->argv[i]);
    }
    w->form = (struct sp_exec_event){
        .call_id = ask->call_id,
        .turn_id = ask->turn_id,
        .argv = w->argv,
        .argc = l->argc,
        .cwd = l->cwd,
        .source = ask->source,
    };
    put_string(&w->strings, &w->form.call_id);
    put_string(&w->strings, &w->form.turn_id);
    put_string(&w->strings, &w->form.cwd);
    return true;
}

static bool init_watcher(struct sp_run_watcher *w, const struct sp_run_ask *ask, void *user)
{
    const bool has_none = ask->allowance.unit == SP_ALLOWANCE_BYTES && ask->allowance.limit == 0;

    w->event = ask->event;
    w->user = user;
    w->has_begin_and_end = ask->has_begin_and_end;
    w->started_at_ms = (int64_t)sp_clock_unix_ms();
    w->quota = SP_DELTA_QUOTA;
    w->allowance =
        has_none ? (struct sp_allowance){SP_ALLOWANCE_TOKENS, DEFAULT_TOKENS} : ask->allowance;
    return w->event == NULL || copy_strings(w, ask);
}

static void send_event(struct sp_run_watcher *w, struct sp_exec_event *e)
{
    if (w->event != NULL)
        w->event(w->user, e);
}

static void tell_delta(void *arg, struct sp_str frame)
{
    const struct sp_run_stream *s = arg;
    struct sp_exec_event e = s->watcher->form;

    e.type = SP_EVENT_DELTA;
    e.at_ms = (int64_t)sp_clock_unix_ms();
    e.stream = s->stream;
    e.chunk = frame;
    send_event(s->watcher, &e);
}

void sp_run_tell_begin(struct sp_run_watcher *w)
{
    struct sp_exec_event e = w->form;

    if (!w->has_begin_and_end || w->has_begun)
        return;
    w->has_begun = true;
    e.type = SP_EVENT_BEGIN;
    e.at_ms = w->started_at_ms;
    send_event(w, &e);
}

/* The error of a failed or rejected run, with the errno text unless the message has it already. */
static bool add_run_error(struct sp_buf *out, const struct sp_run_result *r)
{
    const struct sp_err *e = r->error;

    if (e == NULL)
        return sp_buf_printf(out, "execution error: not known");
    if (e->sys == 0 || strstr(e->msg, "os error") != NULL)
        return sp_buf_printf(out, "execution error: %s", e->msg);
    return sp_buf_printf(out, "execution error: %s: %s (os error %d)", e->msg,
                         strerrordesc_np(e->sys), e->sys);
}

/* The output as text, with the timeout or the error. */
static bool add_run_content(struct sp_buf *out, const struct sp_run_result *r)
{
    if (r->kind == SP_RUN_TIMED_OUT &&
        !sp_buf_printf(out, "command timed out after %" PRIu64 " milliseconds\n", r->timeout_ms))
        return false;
    if (!sp_utf8_add_lossy(out, r->aggregated))
        return false;
    if (r->kind != SP_RUN_FAILED && r->kind != SP_RUN_REJECTED)
        return true;
    return (r->aggregated.n == 0 || sp_buf_add(out, "\n", 1)) && add_run_error(out, r);
}

static bool add_formatted(struct sp_buf *out, const struct sp_run_result *r,
                          struct sp_allowance max)
{
    auto_buf struct sp_buf content = {0};

    return add_run_content(&content, r) &&
           sp_truncate_format(out, sp_buf_str(&content), max, (struct sp_omission){0});
}

/* Out of memory: the texts stay incomplete, and the event is sent all the same. */
void sp_run_tell_end(struct sp_run_watcher *w, const struct sp_run_result *r)
{
    auto_buf struct sp_buf out = {0};
    auto_buf struct sp_buf err = {0};
    auto_buf struct sp_buf aggregated = {0};
    auto_buf struct sp_buf formatted = {0};
    struct sp_exec_event e = w->form;

    if (w->event == NULL || !w->has_begin_and_end)
        return;
    sp_run_tell_begin(w); /* a command that could not be started has both events, too */
    e.type = SP_EVENT_END;
    e.at_ms = (int64_t)sp_clock_unix_ms();
    e.exit_code = r->exit_code;
    e.duration_ns = r->duration_ns;
    e.status = r->exit_code == 0 ? SP_STATUS_COMPLETED : SP_STATUS_FAILED;
    if (w->form.source == SP_SOURCE_USER_SHELL && r->kind == SP_RUN_CANCELLED) {
        e.exit_code = -1;
        e.duration_ns = 0;
        e.err = e.aggregated = e.formatted = SP_STR("command aborted by user");
    } else {
        /* The error of a failed run takes the place of its stderr. */
        const bool ok =
            sp_utf8_add_lossy(&out, r->out) &&
            (r->kind == SP_RUN_FAILED ? add_run_error(&err, r) && add_run_content(&aggregated, r)
                                      : sp_utf8_add_lossy(&err, r->err) &&
                                            sp_utf8_add_lossy(&aggregated, r->aggregated));
        (void)(ok && add_formatted(&formatted, r, w->allowance));
        e.err = sp_buf_str(&err);
        e.aggregated = sp_buf_str(&aggregated);
        e.formatted = sp_buf_str(&formatted);
    }
    e.out = sp_buf_str(&out);
    send_event(w, &e);
}

/* ---- capture ---- */

static void init_stream(struct sp_run_stream *s, struct sp_run_watcher *w, enum sp_stream stream)
{
    s->watcher = w;
    s->stream = stream;
    sp_delta_init(&s->delta, &w->quota, tell_delta, s);
}

bool sp_run_capture_init(struct sp_run_capture_state *c, const struct sp_run_ask *ask, void *user)
{
    c->cap = ask->cap != 0 ? ask->cap : ask->capture == SP_RUN_FULL_BUFFER ? SIZE_MAX : SP_RUN_CAP;
    init_stream(&c->out, &c->watcher, SP_STREAM_STDOUT);
    init_stream(&c->err, &c->watcher, SP_STREAM_STDERR);
    return init_watcher(&c->watcher, ask, user);
}

void sp_run_capture_done(struct sp_run_capture_state *c)
{
    sp_buf_done(&c->out.kept);
    sp_buf_done(&c->err.kept);
    sp_buf_done(&c->aggregated);
    sp_buf_done(&c->watcher.strings);
    free(c->watcher.argv);
}

bool sp_run_capture_take(struct sp_run_capture_state *c, enum sp_stream stream, struct sp_str bytes)
{
    struct sp_run_stream *s = stream == SP_STREAM_STDERR ? &c->err : &c->out;
    const size_t room = c->cap - s->kept.len;

    s->total += bytes.n;
    if (!sp_buf_add(&s->kept, bytes.p, bytes.n < room ? bytes.n : room))
        return false;
    if (c->watcher.event != NULL)
        sp_delta_push(&s->delta, bytes);
    return true;
}

static bool join_streams(struct sp_run_capture_state *c, struct sp_str *ret)
{
    size_t out = c->out.kept.len;
    size_t err = c->err.kept.len;

    if (c->cap - out < err)
        sp_run_share(out, err, c->cap, &out, &err);
    if (out == 0 || err == 0) {
        *ret = out != 0 ? sp_buf_str(&c->out.kept) : sp_buf_str(&c->err.kept);
        return true;
    }
    if (!sp_buf_add(&c->aggregated, c->out.kept.data, out) ||
        !sp_buf_add(&c->aggregated, c->err.kept.data, err))
        return false;
    *ret = sp_buf_str(&c->aggregated);
    return true;
}

bool sp_run_capture_fill(struct sp_run_capture_state *c, struct sp_run_result *ret)
{
    if (c->watcher.event != NULL) {
        sp_delta_finish(&c->out.delta);
        sp_delta_finish(&c->err.delta);
    }
    ret->out = sp_buf_str(&c->out.kept);
    ret->err = sp_buf_str(&c->err.kept);
    ret->out_total = c->out.total;
    ret->err_total = c->err.total;
    return join_streams(c, &ret->aggregated);
}

/* ---- texts of a result ---- */

void sp_run_share(size_t out, size_t err, size_t cap, size_t *ret_out, size_t *ret_err)
{
    if (out > cap || err > cap - out) {
        const size_t first = out < cap / 3 ? out : cap / 3;

        err = err < cap - first ? err : cap - first;
        out = out < cap - err ? out : cap - err;
    }
    *ret_out = out;
    *ret_err = err;
}

/* Rounded to a tenth, without trailing zeros: 0, 0.1, 12, 1.5. */
static bool add_seconds(struct sp_buf *out, uint64_t ns)
{
    const uint64_t tenths = ns / 100000000 + (ns % 100000000 >= 50000000);

    if (tenths % 10 == 0)
        return sp_buf_printf(out, "%" PRIu64, tenths / 10);
    return sp_buf_printf(out, "%" PRIu64 ".%" PRIu64, tenths / 10, tenths % 10);
}

/* Four decimals. Not %f: the decimal point must not depend on the locale. */
static bool add_exact_seconds(struct sp_buf *out, uint64_t ns)
{
    const uint64_t parts = ns / 100000 + (ns % 100000 >= 50000);

    return sp_buf_printf(out, "%" PRIu64 ".%04" PRIu64, parts / 10000, parts % 10000);
}

bool sp_run_add_text(struct sp_buf *out, const struct sp_run_result *r, struct sp_allowance max)
{
    auto_buf struct sp_buf content = {0};
    auto_buf struct sp_buf shown = {0};
    const size_t mark = out->len;

    if (!add_run_content(&content, r) || !sp_truncate_add(&shown, sp_buf_str(&content), max))
        return false;
    const size_t lines = sp_truncate_lines(sp_buf_str(&content));
    const bool is_cut = lines != sp_truncate_lines(sp_buf_str(&shown));
    if (sp_buf_printf(out, "Exit code: %d\nWall time: ", r->exit_code) &&
        add_seconds(out, r->duration_ns) && sp_buf_printf(out, " seconds\n") &&
        (!is_cut || sp_buf_printf(out, "Total output lines: %zu\n", lines)) &&
        sp_buf_printf(out, "Output:\n") && sp_buf_add_str(out, sp_buf_str(&shown)))
        return true;
    out->len = mark;
    return false;
}

static bool is_blank(struct sp_str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (strchr(" \t\n\v\f\r", s.p[i]) == NULL || s.p[i] == 0)
            return false;
    return true;
}

static bool add_denied(struct sp_buf *out, const struct sp_run_result *r)
{
    if (!is_blank(r->aggregated))
        return sp_utf8_add_lossy(out, r->aggregated);
    if (is_blank(r->out) && is_blank(r->err))
        return sp_buf_printf(out, "command failed inside sandbox with exit code %d", r->exit_code);
    if (is_blank(r->out) || is_blank(r->err))
        return sp_utf8_add_lossy(out, is_blank(r->out) ? r->err : r->out);
    return sp_utf8_add_lossy(out, r->err) && sp_buf_add(out, "\n", 1) &&
           sp_utf8_add_lossy(out, r->out);
}

bool sp_run_add_message(struct sp_buf *out, const struct sp_run_result *r)
{
    const struct sp_allowance max = {SP_ALLOWANCE_TOKENS, DEFAULT_TOKENS};
    const size_t mark = out->len;
    bool ok;

    if (r->class == SP_RUN_DENIED)
        ok = add_denied(out, r);
    else if (r->class == SP_RUN_TIMEOUT)
        ok = sp_buf_printf(out, "error: command timed out after %" PRIu64 " ms", r->timeout_ms);
    else
        ok = add_formatted(out, r, max);
    if (!ok)
        out->len = mark;
    return ok;
}

bool sp_run_add_user_record(struct sp_buf *out, struct sp_str command,
                            const struct sp_run_result *r, struct sp_allowance max)
{
    const bool is_aborted = r->kind == SP_RUN_CANCELLED;
    const size_t mark = out->len;

    if (sp_buf_printf(out, "<user_shell_command>\n<command>\n") &&
        sp_utf8_add_lossy(out, command) &&
        sp_buf_printf(out, "\n</command>\n<result>\nExit code: %d\nDuration: ",
                      is_aborted ? -1 : r->exit_code) &&
        add_exact_seconds(out, is_aborted ? 0 : r->duration_ns) &&
        sp_buf_printf(out, " seconds\nOutput:\n") &&
        (is_aborted ? sp_buf_printf(out, "command aborted by user") : add_formatted(out, r, max)) &&
        sp_buf_printf(out, "\n</result>\n</user_shell_command>"))
        return true;
    out->len = mark;
    return false;
}
