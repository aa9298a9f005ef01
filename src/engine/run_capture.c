/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a run keeps of its output, and what it tells whoever watches.
 */
#include <stdlib.h>
#include <time.h>

#include "base/utf8.h"
#include "engine/run_priv.h"

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
    return sp_utf8_add_lossy(&t->out, r->out) && sp_run_add_error(&t->err, r) &&
           sp_run_add_content(&t->aggregated, r);
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

    return sp_run_add_content(&content, r) &&
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
