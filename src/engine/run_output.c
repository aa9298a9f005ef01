/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_output: the output of a run, captured and written as text.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/utf8.h"
#include "engine/run_priv.h"

/*
 * What a run keeps of its output, and what it tells whoever watches.
 */

#define DEFAULT_TOKENS 10000

static int64_t wall_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- what the events say ---- */

static void put_string(struct sp_buf *room, struct sp_str *s)
{
    const char *at = room->data + room->len;

    (void)sp_buf_add_str(room, *s); /* there is room */
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
    w->started_at_ms = wall_ms();
    w->quota = SP_DELTA_QUOTA;
    w->allowance =
        has_none ? (struct sp_allowance){SP_ALLOWANCE_TOKENS, DEFAULT_TOKENS} : ask->allowance;
    return w->event == NULL || copy_strings(w, ask);
}

static void tell(struct sp_run_watcher *w, struct sp_exec_event *e)
{
    if (w->event != NULL)
        w->event(w->user, e);
}

static void tell_delta(void *arg, struct sp_str frame)
{
    const struct sp_run_stream *s = arg;
    struct sp_exec_event e = s->watcher->form;

    e.type = SP_EVENT_DELTA;
    e.at_ms = wall_ms();
    e.stream = s->stream;
    e.chunk = frame;
    tell(s->watcher, &e);
}

void sp_run_tell_begin(struct sp_run_watcher *w)
{
    struct sp_exec_event e = w->form;

    if (!w->has_begin_and_end || w->has_begun)
        return;
    w->has_begun = true;
    e.type = SP_EVENT_BEGIN;
    e.at_ms = w->started_at_ms;
    tell(w, &e);
}

/* ---- the end ---- */

static struct sp_str text_of(const struct sp_buf *b)
{
    return (struct sp_str){b->data, b->len};
}

/* What the end says: stdout, stderr, both, and both made short. */
struct end_texts {
    struct sp_buf out, err, aggregated, formatted;
};

static bool undo_unless(bool is_done, struct sp_buf *out, size_t mark)
{
    if (!is_done)
        out->len = mark;
    return is_done;
}

/* Of a failure: what went wrong and, if the kernel said no, what it said. */
static bool add_run_error(struct sp_buf *out, const struct sp_run_result *r)
{
    const struct sp_err *e = r->error;

    if (e == NULL)
        return sp_buf_printf(out, "execution error: not known");
    /* A start that the kernel refused has its words and its number already. */
    if (e->sys == 0 || strstr(e->msg, "os error") != NULL)
        return sp_buf_printf(out, "execution error: %s", e->msg);
    return sp_buf_printf(out, "execution error: %s: %s (os error %d)", e->msg,
                         strerrordesc_np(e->sys), e->sys);
}

/* The output as text, with what has to be said about its end. */
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

static void end_texts_done(struct end_texts *t)
{
    sp_buf_done(&t->out);
    sp_buf_done(&t->err);
    sp_buf_done(&t->aggregated);
    sp_buf_done(&t->formatted);
}

static bool is_aborted_by_user(const struct sp_run_watcher *w, const struct sp_run_result *r)
{
    return w->form.source == SP_SOURCE_USER_SHELL && r->kind == SP_RUN_CANCELLED;
}

static bool write_abort(struct end_texts *t)
{
    const struct sp_str text = SP_STR("command aborted by user");

    return sp_buf_add_str(&t->err, text) && sp_buf_add_str(&t->aggregated, text) &&
           sp_buf_add_str(&t->formatted, text);
}

/* The message stands where the errors would. */
static bool write_failure(struct end_texts *t, const struct sp_run_result *r)
{
    return sp_utf8_add_lossy(&t->out, r->out) && add_run_error(&t->err, r) &&
           add_run_content(&t->aggregated, r);
}

static bool write_output(struct end_texts *t, const struct sp_run_result *r)
{
    return sp_utf8_add_lossy(&t->out, r->out) && sp_utf8_add_lossy(&t->err, r->err) &&
           sp_utf8_add_lossy(&t->aggregated, r->aggregated);
}

static bool write_formatted(struct end_texts *t, const struct sp_run_watcher *w,
                            const struct sp_run_result *r)
{
    auto_buf struct sp_buf content = {0};

    return add_run_content(&content, r) &&
           sp_truncate_format(&t->formatted, text_of(&content), w->allowance,
                              (struct sp_omission){0});
}

void sp_run_tell_end(struct sp_run_watcher *w, const struct sp_run_result *r)
{
    struct end_texts t __attribute__((cleanup(end_texts_done))) = {0};
    struct sp_exec_event e = w->form;

    if (w->event == NULL || !w->has_begin_and_end)
        return;
    sp_run_tell_begin(w); /* one that could not be started has an end too */
    e.type = SP_EVENT_END;
    e.at_ms = wall_ms();
    e.exit_code = r->exit_code;
    e.duration_ns = r->duration_ns;
    e.status = r->exit_code == 0 ? SP_STATUS_COMPLETED : SP_STATUS_FAILED;
    /* Without memory the texts are short, and the end is told all the same. */
    if (is_aborted_by_user(w, r)) {
        (void)write_abort(&t);
        e.exit_code = -1;
        e.duration_ns = 0;
    } else {
        (void)((r->kind == SP_RUN_FAILED ? write_failure(&t, r) : write_output(&t, r)) &&
               write_formatted(&t, w, r));
    }
    e.out = text_of(&t.out);
    e.err = text_of(&t.err);
    e.aggregated = text_of(&t.aggregated);
    e.formatted = text_of(&t.formatted);
    tell(w, &e);
}

/* ---- keeping ---- */

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

static bool join(struct sp_run_capture_state *c, struct sp_str *ret)
{
    size_t out = c->out.kept.len;
    size_t err = c->err.kept.len;

    if (c->cap - out < err)
        sp_run_share(out, err, c->cap, &out, &err);
    if (out == 0 || err == 0) {
        *ret = out != 0 ? text_of(&c->out.kept) : text_of(&c->err.kept);
        return true;
    }
    if (!sp_buf_add(&c->aggregated, c->out.kept.data, out) ||
        !sp_buf_add(&c->aggregated, c->err.kept.data, err))
        return false;
    *ret = text_of(&c->aggregated);
    return true;
}

bool sp_run_capture_fill(struct sp_run_capture_state *c, struct sp_run_result *ret)
{
    if (c->watcher.event != NULL) {
        sp_delta_finish(&c->out.delta);
        sp_delta_finish(&c->err.delta);
    }
    ret->out = text_of(&c->out.kept);
    ret->err = text_of(&c->err.kept);
    ret->out_total = c->out.total;
    ret->err_total = c->err.total;
    return join(c, &ret->aggregated);
}

/*
 * The result of a run in words: for a model, for older clients, for a conversation's record.
 */

static size_t less(size_t a, size_t b)
{
    return a < b ? a : b;
}

void sp_run_share(size_t out, size_t err, size_t cap, size_t *ret_out, size_t *ret_err)
{
    if (out <= cap && err <= cap - out) {
        *ret_out = out;
        *ret_err = err;
        return;
    }
    const size_t first = less(out, cap / 3);
    const size_t errors = less(err, cap - first);

    *ret_out = first + less(cap - first - errors, out - first);
    *ret_err = errors;
}

/* ---- parts ---- */

/* Rounded to a tenth, and no digit that says nothing: 0, 0.1, 12, 1.5. */
static bool add_seconds(struct sp_buf *out, uint64_t ns)
{
    const uint64_t tenths = ns / 100000000 + (ns % 100000000 >= 50000000);

    if (tenths % 10 == 0)
        return sp_buf_printf(out, "%" PRIu64, tenths / 10);
    return sp_buf_printf(out, "%" PRIu64 ".%" PRIu64, tenths / 10, tenths % 10);
}

/* Four digits behind the point, whatever our host's locale says of points. */
static bool add_exact_seconds(struct sp_buf *out, uint64_t ns)
{
    const uint64_t parts = ns / 100000 + (ns % 100000 >= 50000);

    return sp_buf_printf(out, "%" PRIu64 ".%04" PRIu64, parts / 10000, parts % 10000);
}

static bool add_lines_if_changed(struct sp_buf *out, struct sp_str whole, struct sp_str shown)
{
    const size_t lines = sp_truncate_lines(whole);

    return lines == sp_truncate_lines(shown) ||
           sp_buf_printf(out, "Total output lines: %zu\n", lines);
}

/* ---- the whole ---- */

bool sp_run_add_text(struct sp_buf *out, const struct sp_run_result *r, struct sp_allowance max)
{
    auto_buf struct sp_buf content = {0};
    auto_buf struct sp_buf shown = {0};
    const size_t mark = out->len;

    return undo_unless(add_run_content(&content, r) &&
                           sp_truncate_add(&shown, text_of(&content), max) &&
                           sp_buf_printf(out, "Exit code: %d\nWall time: ", r->exit_code) &&
                           add_seconds(out, r->duration_ns) && sp_buf_printf(out, " seconds\n") &&
                           add_lines_if_changed(out, text_of(&content), text_of(&shown)) &&
                           sp_buf_printf(out, "Output:\n") && sp_buf_add_str(out, text_of(&shown)),
                       out, mark);
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

static bool add_formatted(struct sp_buf *out, const struct sp_run_result *r,
                          struct sp_allowance max)
{
    auto_buf struct sp_buf content = {0};

    return add_run_content(&content, r) &&
           sp_truncate_format(out, text_of(&content), max, (struct sp_omission){0});
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
    return undo_unless(ok, out, mark);
}

bool sp_run_add_user_record(struct sp_buf *out, struct sp_str command,
                            const struct sp_run_result *r, struct sp_allowance max)
{
    const bool is_aborted = r->kind == SP_RUN_CANCELLED;
    const size_t mark = out->len;

    return undo_unless(sp_buf_printf(out, "<user_shell_command>\n<command>\n") &&
                           sp_utf8_add_lossy(out, command) &&
                           sp_buf_printf(out, "\n</command>\n<result>\nExit code: %d\nDuration: ",
                                         is_aborted ? -1 : r->exit_code) &&
                           add_exact_seconds(out, is_aborted ? 0 : r->duration_ns) &&
                           sp_buf_printf(out, " seconds\nOutput:\n") &&
                           (is_aborted ? sp_buf_printf(out, "command aborted by user")
                                       : add_formatted(out, r, max)) &&
                           sp_buf_printf(out, "\n</result>\n</user_shell_command>"),
                       out, mark);
}
