/* SPDX-License-Identifier: Apache-2.0 */
#include "cell/inventory.h"

#include <errno.h>

#include "cell/ports.h"
#include "cell/wire.h"

struct message {
    struct sp_wire_inventory head;
    struct sp_wire_item items[SP_SEGMENT_RINGS];
};

/* The first segment from this index on; END: none. */
static int32_t find_segment(const struct sp_cell_state *cell, uint32_t index)
{
    const uint32_t count = (cell->slots + SP_SEGMENT_RINGS - 1) / SP_SEGMENT_RINGS;

    while (index < count && cell->rings[index].segment == NULL)
        index++;
    return index < count ? (int32_t)index : SP_INVENTORY_END;
}

static struct sp_wire_item describe(const struct sp_command *c)
{
    static const enum sp_wire_life lives[] = {
        [SP_LIFE_RUNNING] = SP_WIRE_LIFE_RUNNING,
        [SP_LIFE_EXITING] = SP_WIRE_LIFE_RUNNING,
        [SP_LIFE_EXITED] = SP_WIRE_LIFE_EXITED,
        [SP_LIFE_CLOSED] = SP_WIRE_LIFE_CLOSED,
    };
    const int input = c->is_tty ? c->stream[0] : c->input;
    const bool is_starting = c->pending != NULL;
    struct sp_wire_item it = {
        .number = c->number,
        .session = c->session,
        .slot = c->slot,
        .life = is_starting ? SP_WIRE_LIFE_STARTING : lives[c->life],
        .flags = (c->is_tty ? SP_ITEM_TTY : 0U) | (c->log >= 0 ? SP_ITEM_LOG : 0U) |
                 (!is_starting && input >= 0 ? SP_ITEM_INPUT : 0U),
        .pid = c->pid,
        .leaf_number = c->leaf_number,
        .terminal = -1,
        .end = c->ring.end,
        .seq = c->ring.seq - 1,
        .bytes = c->ring.bytes,
    };

    if (!is_starting)
        sp_command_streams(c, &it.terminal, it.outputs);
    return it;
}

/* Fills the message about a segment. Returns its length. */
static size_t fill(const struct sp_inventory *v, const struct sp_cell_state *cell,
                   struct message *m, int fds[SP_WIRE_ITEM_FDS], int *ret_count)
{
    const uint32_t first = (uint32_t)v->index * SP_SEGMENT_RINGS;
    int n = 0;

    fds[n++] = cell->rings[v->index].segment->fd;
    for (uint32_t i = first; i < first + SP_SEGMENT_RINGS && i < cell->slot_end; i++) {
        const struct sp_command *c = &cell->commands[i];

        if (c->life == SP_LIFE_NONE)
            continue;
        struct sp_wire_item *it = &m->items[m->head.count++];
        *it = describe(c);
        if ((it->flags & SP_ITEM_INPUT) != 0)
            fds[n++] = c->is_tty ? c->stream[0] : c->input;
        if ((it->flags & SP_ITEM_LOG) != 0)
            fds[n++] = c->log;
    }
    *ret_count = n;
    return sizeof m->head + m->head.count * sizeof m->items[0];
}

/* 0, or minus errno: later. Any other failure means that the front and the keeper are gone. */
static int send_one(struct sp_inventory *v, int socket, const struct message *m, size_t len,
                    const int *fds, int count)
{
    const int r = sp_wire_send(socket, false, m, len, NULL, 0, fds, count);

    v->is_short = sp_wire_is_short(r) || r == -ETOOMANYREFS;
    return r == -EAGAIN || v->is_short ? r : 0;
}

bool sp_inventory_send(struct sp_inventory *v, const struct sp_cell_state *cell, int socket)
{
    struct message m = {.head = {.head = {.version = SP_WIRE_VERSION, .op = SP_WIRE_INVENTORY},
                                 .generation = v->generation}};
    int fds[SP_WIRE_ITEM_FDS];
    int count = 0;
    size_t len = sizeof m.head;

    if (!v->is_due)
        return true;
    if (v->index < 0) {
        m.head.index = SP_INVENTORY_BEGIN;
        m.head.next = find_segment(cell, 0);
        fds[0] = v->pidfd;
        count = v->pidfd >= 0;
        if (!v->has_begun && send_one(v, socket, &m, len, fds, count) != 0)
            return false;
        v->has_begun = true;
        const int r = sp_ports_send(socket, false, &v->ports);
        v->is_short = r < 0 && r != -EAGAIN;
        v->is_due = r == -EAGAIN || sp_wire_is_short(r) || r == -ETOOMANYREFS;
        return !v->is_due;
    }
    v->index = find_segment(cell, (uint32_t)v->index);
    m.head.index = v->index;
    m.head.next = v->index < 0 ? v->index : find_segment(cell, (uint32_t)v->index + 1);
    if (v->index >= 0)
        len = fill(v, cell, &m, fds, &count);
    v->is_due = send_one(v, socket, &m, len, fds, count) != 0;
    return !v->is_due;
}
