/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers to reads. They have the chunks, but not the numbers of exit and close: those are what is
 * missing. What else is missing was forgotten by the executor, the oldest first.
 */
#include <stdlib.h>

#include "engine/remote/mirror_event.h"

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
    while (a->first != NULL) {
        struct sp_mirror_event *next = a->first->next;

        free(a->first);
        a->first = next;
    }
    a->end = NULL;
}

int sp_mirror_add_chunk(const struct sp_mirror *m, struct sp_mirror_answer *a, uint64_t seq,
                        enum sp_stream stream, struct sp_str bytes, struct sp_err *e)
{
    if (seq <= a->last || seq >= a->next_seq)
        return sp_fail(e, SP_E_INVALID, 0, "the answer to a read has its chunks out of order");
    a->last = seq;
    a->has_chunks = true;
    if (seq <= m->known)
        return 0;
    struct sp_mirror_event *ev = sp_mirror_event_new(SP_MIRROR_OUTPUT, seq, bytes, e);
    if (ev == NULL)
        return -SP_E_SYSTEM;
    ev->stream = stream;
    if (a->end == NULL)
        a->end = &a->first;
    *a->end = ev;
    a->end = &ev->next;
    return 0;
}

/* The next by number of the answer's chunks and what is held, up to `last`; NULL: none. */
static struct sp_mirror_event *next_of(struct sp_mirror *m, struct sp_mirror_answer *a,
                                       uint64_t last)
{
    const bool has_held = m->held != NULL && m->held->seq <= last;
    struct sp_mirror_event *ev = a->first;

    if (ev == NULL || (has_held && m->held->seq < ev->seq))
        return has_held ? sp_mirror_take_held(m) : NULL;
    a->first = ev->next;
    return ev;
}

/* With a bound, what is said of the end is of now, and there may be more to read before it. */
static bool is_last_page(const struct sp_mirror_answer *a)
{
    return !a->is_bounded || !a->has_chunks;
}

/* Both lists as one, each number once, the close's own at the end. */
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
    if (!is_last_page(a) || !a->has_closed || m->has_close || last <= before)
        return 0;
    *end = sp_mirror_event_new(SP_MIRROR_CLOSE, last, (struct sp_str){0}, e);
    return *end == NULL ? -SP_E_SYSTEM : 0;
}

/* Runs of missing numbers: how many, up to `last`. */
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
    uint32_t runs;   /* still to come */
    bool lacks_exit; /* it exited, and no event said so: it is in the last run */
    struct sp_err *e;
};

static int wait_new(struct filling *f, enum sp_mirror_kind kind, uint64_t seq)
{
    struct sp_mirror_event *ev = sp_mirror_event_new(kind, seq, (struct sp_str){0}, f->e);

    if (ev == NULL)
        return -SP_E_SYSTEM;
    ev->code = f->a->code;
    ev->denied = f->a->denied;
    sp_mirror_wait(f->m, ev);
    return 0;
}

/* Everything from known + 1 to `to` is missing. */
static int fill(struct filling *f, uint64_t to)
{
    const bool is_exit_here = f->lacks_exit && --f->runs == 0;
    const uint64_t lost = to - f->m->known - (is_exit_here ? 1 : 0);
    int r = 0;

    if (lost != 0)
        r = wait_new(f, SP_MIRROR_GAP, to);
    if (r == 0 && is_exit_here) {
        f->lacks_exit = false;
        r = wait_new(f, SP_MIRROR_EXIT, to);
    }
    return r;
}

static int take_in(struct filling *f, struct sp_mirror_event **list, uint64_t last)
{
    int r = 0;

    while (r == 0 && *list != NULL) {
        struct sp_mirror_event *ev = *list;

        if (ev->seq != f->m->known + 1)
            r = fill(f, ev->seq - 1);
        if (r == 0) {
            *list = ev->next;
            sp_mirror_wait(f->m, ev);
        }
    }
    if (r == 0 && f->m->known < last)
        r = fill(f, last);
    return r;
}

/* What the answer says of the end, if no number was left for it. */
static int settle_end(struct filling *f)
{
    struct sp_mirror *m = f->m;
    int r = 0;

    if (!is_last_page(f->a) || m->held != NULL || m->dropped > m->known)
        return 0;
    if (!m->has_exit && (f->a->has_exited || f->a->has_closed))
        r = wait_new(f, SP_MIRROR_EXIT, m->known);
    if (r == 0 && f->a->has_closed && !m->has_close)
        r = wait_new(f, SP_MIRROR_CLOSE, m->known);
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
            r = take_in(&f, &list.first, last);
        if (r == 0)
            sp_mirror_catch_up(m);
        if (r == 0)
            r = settle_end(&f);
        if (r == 0 && m->known < m->gap_end && !a->is_bounded)
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
