/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking over a cell that an earlier front has made.
 *
 *   sp_cell_adopt: ADOPT BEGIN --> what the cell has sent before is dropped --> BEGIN, PORTS
 *     --> ADOPT index --> a segment with its processes: seats hear ops.found, others are forgotten
 *     ... --> the last one: other seats hear ops.missing, options.adopted
 *
 * The cell is told nothing of the death of its front: it handles messages that the earlier front
 * has sent, in order, and ADOPT after them. So a START that has left the earlier front is in the
 * inventory, and one that has not is missing.
 *
 * A cell may be under construction: it answers once it has confined itself. If it was not greeted,
 * it ends at ADOPT. What it says is checked as any message: a slot counts only if its number is
 * that of the seat, memory must be a sealed segment.
 */
#include <assert.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/log.h"
#include "core/cell_record.h"
#include "core/cells_priv.h"
#include "core/managed.h"
#include "os/fd.h"
#include "sandbox/plan.h"

#define SILENT_MS       5000 /* then the cell counts as stalled, until it answers */
#define ADOPTED_AT_ONCE 128
#define CUT_MS          100 /* our descriptor table is full: an INVENTORY is requested again */

/* ---- seats ---- */

static struct sp_seat *expected_seat(const struct sp_cell *c, const struct sp_wire_item *it)
{
    struct sp_seat *s = it->slot < c->options.slots ? c->seats[it->slot] : NULL;

    return s != NULL && s->number == it->number && s->is_expected ? s : NULL;
}

/* No record is left of the process. */
static void forget(struct sp_cell *c, const struct sp_wire_item *it)
{
    const struct sp_wire_call m = {.head = {SP_WIRE_VERSION, SP_WIRE_FORGET, it->slot, it->number}};

    (void)sp_cell_call(c, &m, NULL, 0);
    sp_bell_serve(&c->bell, it->slot, false, (struct sp_served){0});
}

static void tell_found(struct sp_seat *s, const struct sp_wire_item *it, int input, int log)
{
    struct sp_cell *c = s->cell;

    s->is_expected = false;
    s->is_starting = it->life == SP_WIRE_LIFE_STARTING;
    c->starting += s->is_starting;
    s->ops->found(s, it, sp_fd_lift(input), sp_fd_lift(log));
    /* Marks that came before its ring could be read were for nothing. */
    if (s->cell == c)
        s->ops->news(s);
}

/* ---- the conversation ---- */

static void ask(struct sp_cell *c, int32_t index)
{
    const struct sp_wire_call m = {.head = {.version = SP_WIRE_VERSION, .op = SP_WIRE_ADOPT},
                                   .token = sp_hold_generation(c->group->hold),
                                   .a = index};

    c->asked = index;
    (void)sp_cell_call(c, &m, NULL, 0); /* -EPIPE: the end of its socket is read next */
}

static void on_silent(struct sp_timer *t)
{
    struct sp_cell *c = SP_CONTAINER(t, struct sp_cell, on_silent);

    if (c->socket >= 0)
        sp_cell_set_stalled(c);
}

static void await_answer(struct sp_cell *c)
{
    (void)sp_loop_timer(c->loop, &c->on_silent, sp_loop_now(c->loop) + SILENT_MS, on_silent);
}

static void on_cut(struct sp_timer *t)
{
    struct sp_cell *c = SP_CONTAINER(t, struct sp_cell, on_silent);

    ask(c, c->asked);
    await_answer(c);
}

static void finish(struct sp_cell *c)
{
    sp_loop_cancel(c->loop, &c->on_silent);
    for (uint32_t i = 0; i < c->options.slots; i++)
        if (c->seats[i] != NULL && c->seats[i]->is_expected) {
            struct sp_seat *s = c->seats[i];

            s->ops->missing(s);
            assert(c->seats[i] == NULL);
        }
    c->is_adopting = false;
    c->is_ready = true;
    sp_bell_wake(&c->bell);
    if (c->options.adopted != NULL)
        c->options.adopted(c->options.user);
}

/* Its own pidfd, if the earlier front has died before it could keep the one of BORN. */
static void begin(struct sp_cell *c, const struct sp_wire_inventory *m)
{
    c->has_begun = true;
    if (c->self.pidfd < 0 && c->message.fd_count == 1) {
        sp_cell_child_take(&c->self, sp_fd_lift(c->message.fds[0]));
        c->message.fd_count = 0;
        sp_cell_record_born(c);
    }
    if (m->next == SP_INVENTORY_END)
        finish(c);
    else
        ask(c, m->next);
}

/* The items, if their number, the descriptors and the slots are those of the index; else NULL. */
static const struct sp_wire_item *read_items(const struct sp_wire_message *m)
{
    const struct sp_wire_inventory *h = (const void *)m->bytes;
    const struct sp_wire_item *items = (const void *)(h + 1);
    const uint32_t first = (uint32_t)h->index * SP_SEGMENT_RINGS;
    uint32_t least = first;
    int fds = 1; /* the segment */

    if (h->index < 0 || h->index >= (int32_t)(SP_MAX_SLOTS / SP_SEGMENT_RINGS) ||
        h->count > SP_SEGMENT_RINGS || m->len != sizeof *h + h->count * sizeof *items)
        return NULL;
    for (uint32_t i = 0; i < h->count; i++) {
        const struct sp_wire_item *it = &items[i];

        if (it->slot < least || it->slot - first >= SP_SEGMENT_RINGS || it->number == 0 ||
            it->life == 0 || it->life >= SP_WIRE_LIFE_MAX || it->flags >= SP_ITEM_MAX)
            return NULL;
        least = it->slot + 1;
        fds += ((it->flags & SP_ITEM_INPUT) != 0) + ((it->flags & SP_ITEM_LOG) != 0);
    }
    return m->is_cut || m->fd_count == fds ? items : NULL;
}

/* false: the segment is not valid. */
static bool take_items(struct sp_cell *c, const struct sp_wire_inventory *m,
                       const struct sp_wire_item *items)
{
    int *fds = c->message.fds;
    uint64_t used = 0;
    struct sp_err e = {0};
    int n = 1;

    for (uint32_t i = 0; i < m->count; i++)
        if (expected_seat(c, &items[i]) != NULL)
            used |= (uint64_t)1 << items[i].slot % SP_SEGMENT_RINGS;
    fds[0] = sp_fd_lift(fds[0]);
    if (sp_ring_slots_adopt(&c->slots, (uint32_t)m->index, &fds[0], used, &e) < 0) {
        sp_log(SP_LOG_ERROR, "the cell (pid %d) cannot be taken over: %s", (int)c->self.pid, e.msg);
        return false;
    }
    for (uint32_t i = 0; i < m->count; i++) {
        const struct sp_wire_item *it = &items[i];
        struct sp_seat *s = expected_seat(c, it);
        int *input = (it->flags & SP_ITEM_INPUT) != 0 ? &fds[n++] : NULL;
        int *log = (it->flags & SP_ITEM_LOG) != 0 ? &fds[n++] : NULL;

        if (s != NULL)
            tell_found(s, it, input != NULL ? TAKE_FD(*input) : -1,
                       log != NULL ? TAKE_FD(*log) : -1);
        else
            forget(c, it);
        if (s == NULL && (used >> it->slot % SP_SEGMENT_RINGS & 1) != 0)
            sp_ring_slots_give(&c->slots, it->slot); /* an earlier item has ended its session */
    }
    return true;
}

bool sp_cell_take_inventory(struct sp_cell *c)
{
    const struct sp_wire_inventory *m = (const void *)c->message.bytes;
    const struct sp_wire_item *items;

    if (!c->is_adopting)
        return false;
    if (m->generation != sp_hold_generation(c->group->hold))
        return true; /* for an earlier front */
    if (m->index == SP_INVENTORY_BEGIN && c->asked == SP_INVENTORY_BEGIN && !c->has_begun) {
        begin(c, m);
        return true;
    }
    if (c->asked < 0 || !c->has_begun ||
        (c->options.managed != NULL && !sp_managed_has_ports(c->options.managed)))
        return false;
    if (m->index == SP_INVENTORY_END) {
        finish(c);
        return true;
    }
    items = m->index < c->asked ? NULL : read_items(&c->message);
    if (items == NULL || (m->next != SP_INVENTORY_END && m->next <= m->index))
        return false;
    if (c->message.is_cut)
        return sp_loop_timer(c->loop, &c->on_silent, sp_loop_now(c->loop) + CUT_MS, on_cut);
    if (!take_items(c, m, items))
        return false;
    if (m->next == SP_INVENTORY_END) {
        finish(c);
    } else {
        ask(c, m->next);
        await_answer(c);
    }
    return true;
}

/* ---- the beginning ---- */

static void close_ends(struct sp_cell_ends *ends)
{
    for (unsigned i = 0; i < ends->count; i++)
        if (ends->fds[i] >= 0)
            (void)close(ends->fds[i]);
    ends->count = 0;
}

/* Whether what an earlier front has written can be a cell. */
static bool is_valid(const struct sp_cell_record *r, size_t fixed)
{
    return fixed >= sizeof *r && r->text_len == fixed - sizeof *r && r->key != 0 &&
           r->wire_version == SP_WIRE_VERSION && r->slots > 0 && r->slots <= SP_MAX_SLOTS &&
           r->tier <= SP_TIER_CELL && memchr(r->cgroup, 0, sizeof r->cgroup) != NULL &&
           memchr(r->cgroup_path, 0, sizeof r->cgroup_path) != NULL;
}

/* The descriptors belong to the cell afterwards. */
static int take_ends(struct sp_cell *c, struct sp_cell_ends *ends, struct sp_err *e)
{
    for (unsigned i = 0; i < ends->count; i++)
        ends->fds[i] = sp_fd_lift(ends->fds[i]);
    const int r = sp_bell_take_over(ends->fds[SP_KEPT_PAGE], c->options.slots,
                                    ends->fds[SP_KEPT_WAKE], &c->bell, e);
    if (r < 0)
        return r;
    c->bell.page_fd = TAKE_FD(ends->fds[SP_KEPT_PAGE]); /* may be kept again */
    (void)TAKE_FD(ends->fds[SP_KEPT_WAKE]);
    c->socket = TAKE_FD(ends->fds[SP_KEPT_SOCKET]);
    if (ends->count > SP_KEPT_PIDFD)
        sp_cell_child_take(strcmp(ends->text, SP_KEPT_MAKER) == 0 ? &c->maker : &c->self,
                           TAKE_FD(ends->fds[SP_KEPT_PIDFD]));
    return 0;
}

int sp_cell_adopt(struct sp_cells *g, const struct sp_cell_options *o, struct sp_cell_record *r,
                  size_t fixed, struct sp_cell_ends *ends, struct sp_cell **ret, struct sp_err *e)
{
    struct sp_cell_options of = *o;
    struct sp_cell *c = NULL;

    if (!is_valid(r, fixed) || ends->count < SP_KEPT_MIN) {
        close_ends(ends);
        return sp_fail(e, SP_E_MALFORMED, 0, "the record of a cell is not valid");
    }
    of.slots = r->slots;
    of.plan = NULL;
    of.locks = NULL;
    of.lock_count = 0;
    of.session = r->session;
    of.place = r->place;
    of.text = (struct sp_str){0};
    c = sp_cell_alloc(g, &of, r->tier, e);
    int failed = c == NULL ? -(int)SP_E_SYSTEM : take_ends(c, ends, e);
    close_ends(ends);
    if (c == NULL)
        return failed;
    c->is_adopting = true;
    c->is_ready = false;
    c->key = r->key;
    c->record = r;
    memcpy(c->cgroup, r->cgroup, sizeof c->cgroup);
    memcpy(c->cgroup_path, r->cgroup_path, sizeof c->cgroup_path);
    if (failed == 0)
        failed = sp_cell_listen(c, e);
    if (failed < 0) {
        c->options.gone = NULL;
        sp_cell_free(c); /* with its record */
        return failed;
    }
    ask(c, SP_INVENTORY_BEGIN);
    await_answer(c);
    *ret = c;
    return 0;
}

void sp_cells_await_adopted(struct sp_cells *g, int ms)
{
    const uint64_t until = sp_clock_ms() + (uint64_t)ms;
    uint64_t now;

    while ((now = sp_clock_ms()) < until) {
        struct pollfd fds[ADOPTED_AT_ONCE];
        struct sp_cell *cells[ADOPTED_AT_ONCE];
        nfds_t count = 0;

        sp_list_each(i, &g->cells) {
            struct sp_cell *c = SP_CONTAINER(i, struct sp_cell, link);

            if (!c->is_adopting || c->socket < 0 || count == ADOPTED_AT_ONCE)
                continue;
            cells[count] = c;
            fds[count++] = (struct pollfd){.fd = c->socket, .events = POLLIN};
        }
        if (count == 0)
            return;
        if (poll(fds, count, (int)(until - now)) <= 0)
            continue;
        for (nfds_t i = 0; i < count; i++)
            if (fds[i].revents != 0)
                sp_cell_receive(cells[i]);
    }
}
