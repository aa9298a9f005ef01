/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/remote/mirror.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "engine/remote/mirror_event.h"

void sp_mirror_init(struct sp_mirror *m, const struct sp_mirror_ops *ops, void *user)
{
    *m = (struct sp_mirror){.ops = ops, .user = user, .verdict = -1};
    m->waiting_end = &m->waiting;
}

static void free_list(struct sp_mirror_event *list)
{
    while (list != NULL) {
        struct sp_mirror_event *next = list->next;

        free(list);
        list = next;
    }
}

static void drop_all(struct sp_mirror *m)
{
    free_list(TAKE_PTR(m->waiting));
    free_list(TAKE_PTR(m->held));
    m->waiting_end = &m->waiting;
    m->waiting_bytes = m->held_bytes = 0;
    m->held_count = 0;
}

void sp_mirror_done(struct sp_mirror *m)
{
    m->is_over = true;
    if (!m->is_telling) /* else the teller does it: an event is in its hands */
        drop_all(m);
}

struct sp_mirror_event *sp_mirror_event_new(enum sp_mirror_kind kind, uint64_t seq,
                                            struct sp_str bytes, struct sp_err *e)
{
    struct sp_mirror_event *ev = malloc(sizeof *ev + bytes.n);

    if (ev == NULL) {
        (void)sp_fail(e, SP_E_SYSTEM, ENOMEM, "keep what the executor sent");
        return NULL;
    }
    *ev = (struct sp_mirror_event){.kind = kind, .seq = seq, .size = bytes.n, .denied = -1};
    if (bytes.n != 0)
        memcpy(ev->bytes, bytes.p, bytes.n);
    return ev;
}

/* Of memory: there may be no end of small ones, or of empty ones. */
static size_t cost_of(const struct sp_mirror_event *ev)
{
    return sizeof *ev + ev->size;
}

void sp_mirror_wait(struct sp_mirror *m, struct sp_mirror_event *ev)
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

struct sp_mirror_event *sp_mirror_take_held(struct sp_mirror *m)
{
    struct sp_mirror_event *ev = m->held;

    m->held = ev->next;
    m->held_count--;
    m->held_bytes -= ev->size;
    return ev;
}

/* What came early and is not early any more. */
void sp_mirror_catch_up(struct sp_mirror *m)
{
    while (m->held != NULL && m->held->seq <= m->known + 1) {
        struct sp_mirror_event *ev = sp_mirror_take_held(m);

        if (ev->seq <= m->known)
            free(ev);
        else
            sp_mirror_wait(m, ev);
    }
}

static bool has_room(const struct sp_mirror *m, const struct sp_mirror_event *ev)
{
    return m->held_count < SP_MIRROR_MAX_EVENTS && m->held_bytes + ev->size <= SP_MIRROR_MAX_BYTES;
}

/* Not kept: a read will bring it. */
static int drop(struct sp_mirror *m, struct sp_mirror_event *ev, struct sp_err *e)
{
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

static int hold(struct sp_mirror *m, struct sp_mirror_event *ev, struct sp_err *e)
{
    struct sp_mirror_event **at = &m->held;

    while (*at != NULL && (*at)->seq < ev->seq)
        at = &(*at)->next;
    if (*at != NULL && (*at)->seq == ev->seq) {
        free(ev);
        return 0;
    }
    if (!has_room(m, ev))
        return drop(m, ev, e);
    ev->next = *at;
    *at = ev;
    m->held_count++;
    m->held_bytes += ev->size;
    return 0;
}

/* Whether an event with this number is news; a negative code: it cannot be one. */
static int is_news(const struct sp_mirror *m, uint64_t seq, struct sp_err *e)
{
    if (seq == 0 || seq == UINT64_MAX)
        return sp_fail(e, SP_E_INVALID, 0, "an event with an impossible number");
    return !m->is_over && !m->has_close && seq > m->known;
}

static int add(struct sp_mirror *m, struct sp_mirror_event *ev, struct sp_err *e)
{
    if (ev == NULL)
        return -SP_E_SYSTEM;
    if (ev->seq != m->known + 1)
        return hold(m, ev, e);
    sp_mirror_wait(m, ev);
    sp_mirror_catch_up(m);
    return 0;
}

/* In order, and nothing waits: told from where it is, without a copy. */
static bool tell_at_once(struct sp_mirror *m, uint64_t seq, enum sp_stream stream,
                         struct sp_str bytes)
{
    if (seq != m->known + 1 || m->waiting != NULL || m->is_blocked || m->is_telling)
        return false;
    m->is_telling = true;
    const bool is_taken = m->ops->output(m->user, stream, bytes);
    m->is_telling = false;
    if (m->is_over) {
        drop_all(m);
        return true;
    }
    m->is_blocked = !is_taken;
    if (is_taken) {
        m->known = seq;
        sp_mirror_catch_up(m);
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
    struct sp_mirror_event *ev = sp_mirror_event_new(SP_MIRROR_OUTPUT, seq, bytes, e);
    if (ev != NULL)
        ev->stream = stream;
    return add(m, ev, e);
}

int sp_mirror_exited(struct sp_mirror *m, uint64_t seq, int code, int denied, struct sp_err *e)
{
    const int r = is_news(m, seq, e);

    if (r <= 0)
        return r;
    struct sp_mirror_event *ev = sp_mirror_event_new(SP_MIRROR_EXIT, seq, (struct sp_str){0}, e);
    if (ev != NULL) {
        ev->code = code;
        ev->denied = denied;
    }
    return add(m, ev, e);
}

int sp_mirror_closed(struct sp_mirror *m, uint64_t seq, struct sp_err *e)
{
    const int r = is_news(m, seq, e);

    return r <= 0 ? r : add(m, sp_mirror_event_new(SP_MIRROR_CLOSE, seq, (struct sp_str){0}, e), e);
}

/* ---- telling ---- */

/* Not at any price: others may go on writing, and what they write waits behind it. */
bool sp_mirror_waits_for_verdict(const struct sp_mirror *m)
{
    const struct sp_mirror_event *ev = m->waiting;

    return ev != NULL && ev->kind == SP_MIRROR_EXIT && ev->denied < 0 && !m->has_verdict &&
           m->waiting_bytes <= SP_MIRROR_MAX_BYTES;
}

bool sp_mirror_wants_read(const struct sp_mirror *m)
{
    return !m->is_over && (m->held != NULL || (m->dropped > m->known && !m->has_close) ||
                           sp_mirror_waits_for_verdict(m));
}

bool sp_mirror_is_complete(const struct sp_mirror *m)
{
    return m->has_close;
}

static void tell_exit(struct sp_mirror *m, int code, int denied)
{
    if (m->is_exit_told)
        return;
    m->is_exit_told = true;
    m->ops->exited(m->user, code, denied);
}

/* false: not now. */
static bool tell(struct sp_mirror *m, const struct sp_mirror_event *ev)
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
        tell_exit(m, -1, -1); /* unless it was told, as it should have been */
        if (m->is_over)
            break;
        m->is_over = true; /* before: the owner may be done with us */
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
    while (m->waiting != NULL && !m->is_over && !m->is_blocked && !sp_mirror_waits_for_verdict(m)) {
        struct sp_mirror_event *ev = m->waiting;

        if (!tell(m, ev)) {
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
        drop_all(m);
}

void sp_mirror_unblock(struct sp_mirror *m)
{
    m->is_blocked = false;
}

void sp_mirror_no_verdict(struct sp_mirror *m)
{
    m->has_verdict = true;
}
