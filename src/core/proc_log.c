/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proc_log: reading a process's log.
 *
 * The cell writes the log into a ring that the front maps (cell/ring.h). p->tail is the end of what
 * the front has parsed, p->state what it knows from that. When the cell is gone or has broken the
 * format, the log ends with records that are made up here: EXITED with code -1, and CLOSED.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "core/proc.h"
#include "core/session.h"

void sp_proc_make_up_end(struct sp_proc *p)
{
    if (p->is_lost)
        return;
    p->is_lost = true;
    p->last_real_seq = p->tail.seq;
    if (p->state.exit_seq == 0) {
        p->state.exit = (struct sp_exit){.code = -1};
        p->state.exit_seq = ++p->tail.seq;
    }
    if (p->state.closed_seq == 0)
        p->state.closed_seq = ++p->tail.seq;
}

static void fail_ring(struct sp_proc *p)
{
    sp_log(SP_LOG_ERROR, "process " SP_STR_FMT ": its output ring is broken", SP_STR_ARG(p->id));
    sp_cell_terminate(&p->seat);
    sp_proc_make_up_end(p);
}

/* Called once, when the exit is first seen: output before the EXITED record counts, later output
 * does not. */
static void judge_denial(struct sp_proc *p)
{
    const struct sp_exit *how = &p->state.exit;
    struct sp_denial_facts d = {0};
    struct sp_ring_cursor c = {0};
    struct sp_denial words;
    struct sp_record r;

    if (!p->is_confined || how->code == 0)
        return;
    sp_denial_init(&words);
    while (c.seq < p->state.exit_seq && sp_ring_next(&p->view, &c, &r) > 0)
        if (r.type == SP_RECORD_OUTPUT && r.seq < p->state.exit_seq)
            sp_denial_feed(&words, r.stream, r.data, r.len);
    d.has_evidence = how->refusal_count > 0 || how->left_network > 0 || how->signal == SIGSYS;
    d.has_words = sp_denial_is_likely(true, how->code, &words);
    d.reason = d.has_words ? sp_denial_reason(&words, how->code) : NULL;
    memcpy(d.path, words.path, sizeof d.path);
    p->was_denied = d.has_evidence || d.has_words;
    p->denial = p->was_denied ? malloc(sizeof d) : NULL;
    if (p->denial != NULL) /* out of memory: report the denial without details */
        *p->denial = d;
}

void sp_proc_refresh(struct sp_proc *p)
{
    if (p->is_lost || p->view.head == NULL)
        return;

    const bool had_exited = p->state.exit_seq != 0;
    const uint64_t bytes = p->tail.bytes;
    const uint64_t dropped = p->state.dropped_bytes;
    struct sp_front_stats *stats = &p->session->front->stats;
    if (sp_ring_catch_up(&p->view, &p->tail, &p->state) < 0) {
        fail_ring(p);
        return;
    }
    if (!had_exited && p->state.exit_seq != 0)
        judge_denial(p);
    stats->output_bytes += p->tail.bytes - bytes;
    stats->dropped_bytes += p->state.dropped_bytes - dropped;
}

/* ---- pages ---- */

int sp_proc_page(struct sp_proc *p, uint64_t after_seq, uint64_t max_bytes, struct sp_page *ret)
{
    struct sp_ring_cursor c = {0};

    sp_proc_refresh(p);
    /* Reads are mostly sequential: start at the last page instead of at the oldest record. */
    if (p->page_end.seq <= after_seq)
        c = p->page_end;
    else if (p->page_start.seq <= after_seq)
        c = p->page_start;
    struct sp_ring_cursor before = c;
    struct sp_page page = {.from = c};
    struct sp_record r;
    int more = 0;

    while (after_seq < p->tail.seq && c.seq < p->tail.seq &&
           (more = sp_ring_next(&p->view, &c, &r)) > 0) {
        const bool is_chunk = r.type == SP_RECORD_OUTPUT && r.seq > after_seq;

        if (is_chunk && page.chunks > 0 && page.bytes + r.len > max_bytes)
            break;
        if (is_chunk) {
            if (page.chunks == 0)
                page.from = before;
            page.chunks++;
            page.bytes += r.len;
            page.last_seq = r.seq;
        }
        before = c;
        if (page.chunks > 0 && page.bytes >= max_bytes)
            break;
    }
    if (more < 0)
        return more;
    p->page_start = page.from;
    p->page_end = before;
    page.next_seq =
        max_bytes != UINT64_MAX && page.chunks > 0 ? page.last_seq + 1 : sp_proc_next_seq(p);
    *ret = page;
    return 0;
}

/* ---- records ---- */

static int next_made_up(const struct sp_proc *p, struct sp_ring_cursor *at, struct sp_record *ret)
{
    if (!p->is_lost || at->seq >= p->tail.seq)
        return 0;
    if (at->seq < p->last_real_seq)
        at->seq = p->last_real_seq; /* real records that cannot be read any more are skipped */
    const bool is_exit = at->seq + 1 == p->state.exit_seq;
    *ret = (struct sp_record){
        .seq = ++at->seq,
        .bytes_before = p->tail.bytes,
        .type = is_exit ? SP_RECORD_EXITED : SP_RECORD_CLOSED,
        .len = is_exit ? sizeof p->state.exit : 0,
        .data = (const uint8_t *)&p->state.exit,
    };
    return 1;
}

int sp_proc_next_at(struct sp_proc *p, struct sp_ring_cursor *at, struct sp_record *ret)
{
    if (p->view.head != NULL && (!p->is_lost || at->seq < p->last_real_seq)) {
        const int r = sp_ring_next(&p->view, at, ret);

        if (r > 0 && ret->type == SP_RECORD_EXITED && p->state.exit_seq == 0)
            sp_proc_refresh(p); /* written after the last refresh: was_denied must be known first */
        if (r > 0)
            return 1;
        if (r < 0 && !p->is_lost)
            fail_ring(p);
    }
    return next_made_up(p, at, ret);
}

int sp_proc_next(struct sp_proc *p, struct sp_record *ret)
{
    return sp_proc_next_at(p, &p->sent, ret);
}

/* ---- what the attached client was sent ---- */

/* The cell pauses a process that is too far ahead of its client, and is woken here. */
void sp_proc_tell_served(struct sp_proc *p, bool is_attached)
{
    sp_cell_serve(&p->seat, is_attached, p->sent.pos);
    const bool may_go_on = !is_attached || p->sent.pos >= p->tail.pos ||
                           p->tail.pos - p->sent.pos <= SP_RING_LOW_WATER;
    if (may_go_on && p->view.head != NULL && sp_ring_is_paused(&p->view))
        sp_cell_wake(&p->seat);
}

void sp_proc_served(struct sp_proc *p)
{
    sp_proc_tell_served(p, true);
}

void sp_proc_set_attached(struct sp_proc *p, bool is_attached)
{
    if (is_attached) {
        sp_proc_refresh(p);
        p->sent = p->tail;
    }
    sp_proc_tell_served(p, is_attached);
}
