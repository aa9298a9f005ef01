/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mirror: see mirror.h. An event is held while a number before it is missing, then waits until the
 * owner accepts it.
 */
#include "engine/remote/mirror.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/base64.h"

enum sp_mirror_kind { SP_MIRROR_OUTPUT, SP_MIRROR_GAP, SP_MIRROR_EXIT, SP_MIRROR_CLOSE };

struct sp_mirror_event {
    struct sp_mirror_event *next;
    uint64_t seq; /* gap: last missing number, or 0 */
    enum sp_mirror_kind kind;
    enum sp_stream stream;
    int code, denied;
    size_t size;
    char bytes[];
};

static void free_list(struct sp_mirror_event *list)
{
    while (list != NULL) {
        struct sp_mirror_event *next = list->next;

        free(list);
        list = next;
    }
}

static void free_events(struct sp_mirror *m)
{
    sp_receipt_drop(&m->receipt);
    free_list(TAKE_PTR(m->waiting));
    free_list(TAKE_PTR(m->held));
    m->waiting_end = &m->waiting;
    m->waiting_bytes = m->held_bytes = 0;
    m->held_count = 0;
}

void sp_mirror_done(struct sp_mirror *m)
{
    m->is_over = true;
    if (!m->is_telling) /* otherwise sp_mirror_tell frees them: it is using one */
        free_events(m);
}

/* A copy of `like`, which has all but the bytes. */
static struct sp_mirror_event *new_event(const struct sp_mirror_event *like, struct sp_str bytes,
                                         struct sp_err *e)
{
    struct sp_mirror_event *ev = malloc(sizeof *ev + bytes.n);

    if (ev == NULL) {
        (void)sp_fail(e, SP_E_SYSTEM, ENOMEM, "keep what the executor sent");
        return NULL;
    }
    *ev = *like;
    ev->size = bytes.n;
    if (bytes.n != 0)
        memcpy(ev->bytes, bytes.p, bytes.n);
    return ev;
}

/* Memory, so that endless small or empty chunks count, too. */
static size_t cost_of(const struct sp_mirror_event *ev)
{
    return sizeof *ev + ev->size;
}

/* Appends to the waiting events; its number is known now. */
static void queue_event(struct sp_mirror *m, struct sp_mirror_event *ev)
{
    ev->next = NULL;
    *m->waiting_end = ev;
    m->waiting_end = &ev->next;
    m->waiting_bytes += cost_of(ev);
    m->has_exit = m->has_exit || ev->kind == SP_MIRROR_EXIT;
    m->has_close = m->has_close || ev->kind == SP_MIRROR_CLOSE;
    if (ev->seq > m->known)
        m->known = ev->seq;
}

static struct sp_mirror_event *take_held(struct sp_mirror *m)
{
    struct sp_mirror_event *ev = m->held;

    m->held = ev->next;
    m->held_count--;
    m->held_bytes -= ev->size;
    return ev;
}

/* Moves held events that are not early any more. */
static void catch_up(struct sp_mirror *m)
{
    while (m->held != NULL && m->held->seq <= m->known + 1) {
        struct sp_mirror_event *ev = take_held(m);

        if (ev->seq <= m->known)
            free(ev);
        else
            queue_event(m, ev);
    }
}

/* Whether the number is new; negative: invalid. */
static int is_news(const struct sp_mirror *m, uint64_t seq, struct sp_err *e)
{
    if (seq == 0 || seq == UINT64_MAX)
        return sp_fail(e, SP_E_INVALID, 0, "an event with an impossible number");
    return !m->is_over && !m->has_close && seq > m->known;
}

static int add_event(struct sp_mirror *m, const struct sp_mirror_event *like, struct sp_str bytes,
                     struct sp_err *e)
{
    struct sp_mirror_event *ev = new_event(like, bytes, e);

    if (ev == NULL)
        return -SP_E_SYSTEM;
    if (ev->seq == m->known + 1) {
        queue_event(m, ev);
        catch_up(m);
        return 0;
    }

    /* Out of order: held until the events before it have come. */
    struct sp_mirror_event **at = &m->held;

    while (*at != NULL && (*at)->seq < ev->seq)
        at = &(*at)->next;
    if (*at != NULL && (*at)->seq == ev->seq) {
        free(ev);
        return 0;
    }
    if (m->held_count >= SP_MIRROR_MAX_EVENTS || m->held_bytes + ev->size > SP_MIRROR_MAX_BYTES) {
        /* Not kept: a read will fetch it. */
        if (ev->seq > m->dropped)
            m->dropped = ev->seq;
        free(ev);
        if (++m->drops <= SP_MIRROR_MAX_DROPS)
            return 0;
        return sp_fail(
            e, SP_E_LIMIT, 0,
            "process event reorder buffer exceeds %d events or %u bytes, and what is missing "
            "does not come",
            SP_MIRROR_MAX_EVENTS, SP_MIRROR_MAX_BYTES);
    }
    ev->next = *at;
    *at = ev;
    m->held_count++;
    m->held_bytes += ev->size;
    return 0;
}

/* In order and nothing waits: reported without a copy. */
static bool tell_at_once(struct sp_mirror *m, uint64_t seq, enum sp_stream stream,
                         struct sp_str bytes)
{
    if (seq != m->known + 1 || m->waiting != NULL || m->is_blocked || m->is_telling)
        return false;
    m->is_telling = true;
    const bool is_taken = m->ops->output(m->user, stream, bytes);
    m->is_telling = false;
    if (m->is_over) {
        free_events(m);
        return true;
    }
    m->is_blocked = !is_taken;
    if (is_taken) {
        m->known = seq;
        catch_up(m);
    }
    return is_taken;
}

int sp_mirror_output(struct sp_mirror *m, uint64_t seq, enum sp_stream stream, struct sp_str bytes,
                     struct sp_err *e)
{
    const int r = is_news(m, seq, e);

    if (r <= 0)
        return r;
    if (bytes.n != 0 && tell_at_once(m, seq, stream, bytes))
        return 0;
    return add_event(
        m, &(struct sp_mirror_event){.kind = SP_MIRROR_OUTPUT, .seq = seq, .stream = stream}, bytes,
        e);
}

int sp_mirror_exited(struct sp_mirror *m, uint64_t seq, int code, int denied, struct sp_err *e)
{
    const struct sp_mirror_event ev = {
        .kind = SP_MIRROR_EXIT, .seq = seq, .code = code, .denied = denied};
    const int r = is_news(m, seq, e);

    return r <= 0 ? r : add_event(m, &ev, (struct sp_str){0}, e);
}

int sp_mirror_closed(struct sp_mirror *m, uint64_t seq, struct sp_err *e)
{
    const struct sp_mirror_event ev = {.kind = SP_MIRROR_CLOSE, .seq = seq};
    const int r = is_news(m, seq, e);

    return r <= 0 ? r : add_event(m, &ev, (struct sp_str){0}, e);
}

/* ---- reports ---- */

/* Bounded: background processes may keep writing, and their output waits behind the exit. */
static bool waits_for_verdict(const struct sp_mirror *m)
{
    const struct sp_mirror_event *ev = m->waiting;

    return ev != NULL && ev->kind == SP_MIRROR_EXIT && ev->denied < 0 && !m->has_verdict &&
           m->waiting_bytes <= SP_MIRROR_MAX_BYTES;
}

enum sp_mirror_need sp_mirror_needs(const struct sp_mirror *m)
{
    if (m->is_over)
        return SP_MIRROR_NOTHING;
    if (waits_for_verdict(m))
        return SP_MIRROR_VERDICT;
    return m->held != NULL || (m->dropped > m->known && !m->has_close) ? SP_MIRROR_READ
                                                                       : SP_MIRROR_NOTHING;
}

static void tell_exit(struct sp_mirror *m, int code, int denied)
{
    if (m->is_exit_told)
        return;
    m->is_exit_told = true;
    m->ops->exited(m->user, code, denied);
}

/* false: not accepted. */
static bool tell_event(struct sp_mirror *m, const struct sp_mirror_event *ev)
{
    switch (ev->kind) {
    case SP_MIRROR_OUTPUT:
        return ev->size == 0 ||
               m->ops->output(m->user, ev->stream, (struct sp_str){ev->bytes, ev->size});
    case SP_MIRROR_GAP:
        m->ops->gap(m->user);
        break;
    case SP_MIRROR_EXIT:
        tell_exit(m, ev->code, ev->denied >= 0 ? ev->denied : m->verdict);
        break;
    case SP_MIRROR_CLOSE:
        tell_exit(m, -1, -1); /* if no exit event came */
        if (m->is_over)
            break;
        m->is_over = true; /* before the call: the owner may call sp_mirror_done */
        m->ops->closed(m->user);
        break;
    }
    return true;
}

void sp_mirror_tell(struct sp_mirror *m)
{
    if (m->is_telling)
        return;
    m->is_telling = true;
    while (m->waiting != NULL && !m->is_over && !m->is_blocked && !waits_for_verdict(m)) {
        struct sp_mirror_event *ev = m->waiting;

        if (!tell_event(m, ev)) {
            m->is_blocked = true;
            break;
        }
        m->waiting = ev->next;
        if (m->waiting == NULL)
            m->waiting_end = &m->waiting;
        m->waiting_bytes -= cost_of(ev);
        free(ev);
    }
    m->is_telling = false;
    if (m->is_over)
        free_events(m);
}

/*
 * ---- reads ----
 *
 * An answer has the chunks, but not the numbers of exit and close: these are among the missing
 * ones. Every other missing number was dropped by the executor, oldest first.
 */

uint64_t sp_mirror_begin_read(struct sp_mirror *m)
{
    m->gap_end = m->dropped;
    m->drops = 0;
    for (const struct sp_mirror_event *ev = m->held; ev != NULL; ev = ev->next)
        if (ev->seq > m->gap_end)
            m->gap_end = ev->seq;
    return m->known;
}

void sp_mirror_drop_answer(struct sp_mirror_answer *a)
{
    free_list(TAKE_PTR(a->first));
    a->end = NULL;
}

int sp_mirror_add_chunk(const struct sp_mirror *m, struct sp_mirror_answer *a, uint64_t seq,
                        enum sp_stream stream, struct sp_str bytes, struct sp_err *e)
{
    if (seq <= a->last || seq >= a->next_seq)
        return sp_fail(e, SP_E_INVALID, 0, "the answer to a read has its chunks out of order");
    a->last = seq;
    if (seq <= m->known)
        return 0;
    struct sp_mirror_event *ev =
        new_event(&(struct sp_mirror_event){.kind = SP_MIRROR_OUTPUT, .seq = seq, .stream = stream},
                  bytes, e);
    if (ev == NULL)
        return -SP_E_SYSTEM;
    if (a->end == NULL)
        a->end = &a->first;
    *a->end = ev;
    a->end = &ev->next;
    return 0;
}

/* Removes the lowest number up to `last` from the answer's chunks and the held events. */
static struct sp_mirror_event *next_of(struct sp_mirror *m, struct sp_mirror_answer *a,
                                       uint64_t last)
{
    const bool has_held = m->held != NULL && m->held->seq <= last;
    struct sp_mirror_event *ev = a->first;

    if (ev == NULL || (has_held && m->held->seq < ev->seq))
        return has_held ? take_held(m) : NULL;
    a->first = ev->next;
    return ev;
}

/* Merges both lists, each number once, with the close at the end. */
static int merge(struct sp_mirror *m, struct sp_mirror_answer *a, uint64_t last,
                 struct sp_mirror_event **ret, struct sp_err *e)
{
    struct sp_mirror_event **end = ret;
    uint64_t before = m->known;

    *ret = NULL;
    for (struct sp_mirror_event *ev; (ev = next_of(m, a, last)) != NULL;) {
        if (ev->seq <= before) {
            free(ev);
            continue;
        }
        before = ev->seq;
        ev->next = NULL;
        *end = ev;
        end = &ev->next;
    }
    if (!a->has_closed || m->has_close || last <= before)
        return 0;
    *end = new_event(&(struct sp_mirror_event){.kind = SP_MIRROR_CLOSE, .seq = last},
                     (struct sp_str){0}, e);
    return *end == NULL ? -SP_E_SYSTEM : 0;
}

/* Number of runs of missing numbers up to `last`. */
static uint32_t count_runs(const struct sp_mirror_event *list, uint64_t known, uint64_t last)
{
    uint32_t runs = 0;

    for (; list != NULL; list = list->next) {
        runs += list->seq != known + 1;
        known = list->seq;
    }
    return runs + (known < last);
}

static bool has_kind(const struct sp_mirror_event *list, enum sp_mirror_kind kind)
{
    while (list != NULL && list->kind != kind)
        list = list->next;
    return list != NULL;
}

struct filling {
    struct sp_mirror *m;
    const struct sp_mirror_answer *a;
    uint32_t runs;   /* runs not filled yet */
    bool lacks_exit; /* exited without an exit event: the exit is in the last run */
    struct sp_err *e;
};

static int queue_new(struct filling *f, enum sp_mirror_kind kind, uint64_t seq)
{
    const struct sp_mirror_event like = {
        .kind = kind, .seq = seq, .code = f->a->code, .denied = f->a->denied};
    struct sp_mirror_event *ev = new_event(&like, (struct sp_str){0}, f->e);

    if (ev == NULL)
        return -SP_E_SYSTEM;
    queue_event(f->m, ev);
    return 0;
}

/* Numbers known + 1 to `to` are missing. */
static int fill_run(struct filling *f, uint64_t to)
{
    const bool is_exit_here = f->lacks_exit && --f->runs == 0;
    const uint64_t lost = to - f->m->known - (is_exit_here ? 1 : 0);
    int r = 0;

    if (lost != 0)
        r = queue_new(f, SP_MIRROR_GAP, to);
    if (r == 0 && is_exit_here) {
        f->lacks_exit = false;
        r = queue_new(f, SP_MIRROR_EXIT, to);
    }
    return r;
}

static int take_list(struct filling *f, struct sp_mirror_event **list, uint64_t last)
{
    int r = 0;

    while (r == 0 && *list != NULL) {
        struct sp_mirror_event *ev = *list;

        if (ev->seq != f->m->known + 1)
            r = fill_run(f, ev->seq - 1);
        if (r == 0) {
            *list = ev->next;
            queue_event(f->m, ev);
        }
    }
    if (r == 0 && f->m->known < last)
        r = fill_run(f, last);
    return r;
}

/* Adds exit and close from the answer, if no missing number was left for them. */
static int settle_end(struct filling *f)
{
    struct sp_mirror *m = f->m;
    int r = 0;

    if (m->held != NULL || m->dropped > m->known)
        return 0;
    if (!m->has_exit && (f->a->has_exited || f->a->has_closed))
        r = queue_new(f, SP_MIRROR_EXIT, m->known);
    if (r == 0 && f->a->has_closed && !m->has_close)
        r = queue_new(f, SP_MIRROR_CLOSE, m->known);
    return r;
}

int sp_mirror_end_read(struct sp_mirror *m, struct sp_mirror_answer *a, struct sp_err *e)
{
    const uint64_t last = a->next_seq == 0 ? 0 : a->next_seq - 1;
    struct sp_mirror_answer list = {0};
    int r = 0;

    if (!m->is_over && !m->has_close) {
        struct filling f = {.m = m, .a = a, .e = e};

        r = merge(m, a, last, &list.first, e);
        f.lacks_exit = a->has_exited && !m->has_exit && !has_kind(list.first, SP_MIRROR_EXIT) &&
                       !has_kind(m->held, SP_MIRROR_EXIT);
        f.runs = count_runs(list.first, m->known, last);
        if (r == 0)
            r = take_list(&f, &list.first, last);
        if (r == 0)
            catch_up(m);
        if (r == 0)
            r = settle_end(&f);
        if (r == 0 && m->known < m->gap_end)
            r = sp_fail(e, SP_E_INVALID, 0, "the executor cannot tell what came before event %llu",
                        (unsigned long long)m->gap_end);
    }
    if (a->denied >= 0)
        m->verdict = a->denied;
    m->has_verdict = m->has_verdict || m->has_exit;
    sp_mirror_drop_answer(&list);
    sp_mirror_drop_answer(a);
    return r;
}

/* ---- from JSON ---- */

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
    struct sp_str stream = {0};
    int r = sp_json_need_u64(j, object, "seq", UINT64_MAX, &ret->seq, e);

    if (r == 0)
        r = sp_json_need_str(j, object, "stream", &stream, e);
    if (r == 0 && sp_str_eq(stream, SP_STR("stdout")))
        ret->stream = SP_STREAM_STDOUT;
    else if (r == 0 && sp_str_eq(stream, SP_STR("stderr")))
        ret->stream = SP_STREAM_STDERR;
    else if (r == 0 && sp_str_eq(stream, SP_STR("pty")))
        ret->stream = SP_STREAM_PTY;
    else if (r == 0)
        r = sp_fail(e, SP_E_INVALID, 0, "output of an unknown stream");
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

/* Of process/exited the reason, of others the receipt. Nothing if the executor has none. */
static void take_receipt(struct sp_mirror *m, struct sp_json *j, uint32_t object, bool is_reason)
{
    const uint32_t receipt = sp_json_get(j, object, "receipt");
    struct sp_command_receipt r = {0};

    if (m->is_over)
        return;
    if (is_reason)
        r.reason = sp_receipt_read_reason(j, object);
    else if (receipt != SP_JSON_NONE && sp_json_type(j, receipt) == SP_JSON_OBJECT)
        sp_receipt_read(j, receipt, &r);
    if (r.reason != SP_END_NONE)
        sp_receipt_keep(&m->receipt, &r);
}

int sp_mirror_take_event(struct sp_mirror *m, struct sp_str method, struct sp_json *j,
                         uint32_t params, struct sp_err *e)
{
    struct chunk c = {0};
    int r;

    if (sp_str_eq(method, SP_STR("process/output"))) {
        r = read_chunk(j, params, &c, e);
        return r < 0 ? r : sp_mirror_output(m, c.seq, c.stream, c.bytes, e);
    }
    r = sp_json_need_u64(j, params, "seq", UINT64_MAX, &c.seq, e);
    if (r < 0)
        return r;
    const bool is_exit = sp_str_eq(method, SP_STR("process/exited"));
    take_receipt(m, j, params, is_exit);
    if (is_exit)
        return sp_mirror_exited(m, c.seq, read_code(j, sp_json_get(j, params, "exitCode")),
                                read_verdict(j, params), e);
    if (sp_str_eq(method, SP_STR("process/closed")))
        return sp_mirror_closed(m, c.seq, e);
    return 0;
}

int sp_mirror_take_answer(struct sp_mirror *m, struct sp_json *j, uint32_t value, struct sp_err *e)
{
    struct sp_mirror_answer a = {0};
    struct sp_str failure = {0};
    uint32_t chunks = SP_JSON_NONE;
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
        r = sp_json_need_array(j, value, "chunks", &chunks, e);
    for (uint32_t t = r < 0 ? SP_JSON_NONE : sp_json_first(j, chunks); r == 0 && t != SP_JSON_NONE;
         t = sp_json_next(j, chunks, t)) {
        struct chunk c = {0};

        r = sp_json_type(j, t) == SP_JSON_OBJECT ? read_chunk(j, t, &c, e)
                                                 : sp_json_wrong_type(j, t, "a chunk", e);
        if (r == 0)
            r = sp_mirror_add_chunk(m, &a, c.seq, c.stream, c.bytes, e);
    }
    if (r < 0) {
        sp_mirror_drop_answer(&a);
        return r;
    }
    a.code = read_code(j, sp_json_get(j, value, "exitCode"));
    a.denied = a.has_exited ? read_verdict(j, value) : -1;
    take_receipt(m, j, value, false);
    r = sp_mirror_end_read(m, &a, e);
    if (r == 0 && failure.p != NULL)
        r = sp_fail(e, SP_E_FAILED, 0, SP_STR_FMT, SP_STR_ARG(failure));
    return r;
}
