/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cell_record.h"

#include <string.h>

#include "base/log.h"
#include "core/ledger.h"
#include "sandbox/plan.h"

/* Cells that an earlier front has made have their keys still. */
static bool is_taken(const struct sp_cells *g, uint32_t key)
{
    sp_list_each(i, &g->cells)
        if (SP_CONTAINER(i, const struct sp_cell, link)->key == key)
            return true;
    return key == 0;
}

/* Other generations begin elsewhere: an heir may make a cell before it has taken over all. */
static uint32_t choose_key(struct sp_cells *g)
{
    const uint32_t first = (uint32_t)sp_hold_generation(g->hold) << 16;
    uint32_t key;

    do
        key = first + ++g->last_key;
    while (is_taken(g, key));
    return key;
}

int sp_cell_record_begin(struct sp_cell *c, struct sp_err *e)
{
    const struct sp_str text = c->options.text;
    struct sp_cells *g = c->group;

    if (g->hold == NULL)
        return 0;
    struct sp_cell_record *r = sp_ledger_alloc(g->ledger, SP_LEDGER_CELL, 0, sizeof *r + text.n);
    if (r == NULL)
        return sp_fail(e, SP_E_LIMIT, 0, "the server remembers too much to make another cell");
    c->key = choose_key(g);
    r->session = c->options.session;
    r->key = c->key;
    r->wire_version = SP_WIRE_VERSION;
    r->slots = c->options.slots;
    r->tier = c->tier;
    r->place = c->options.place;
    r->text_len = (uint32_t)text.n;
    memcpy(r->cgroup, c->cgroup, sizeof r->cgroup);
    memcpy(r->cgroup_path, c->cgroup_path, sizeof r->cgroup_path);
    if (text.n > 0)
        memcpy(r->text, text.p, text.n);
    sp_ledger_commit(g->ledger, r);
    c->record = r;
    return 0;
}

int sp_cell_record_keep(struct sp_cell *c, int socket, int pidfd, bool is_maker, struct sp_err *e)
{
    const int fds[SP_HOLD_FDS] = {[SP_KEPT_SOCKET] = socket,
                                  [SP_KEPT_PAGE] = c->bell.page_fd,
                                  [SP_KEPT_WAKE] = c->bell.wake[SP_SIDE_FRONT],
                                  [SP_KEPT_PIDFD] = pidfd};

    return sp_hold_keep(c->group->hold, SP_HOLD_KEY(SP_HOLD_CELL, c->key), fds,
                        pidfd < 0 ? SP_KEPT_MIN : SP_HOLD_FDS, is_maker ? SP_KEPT_MAKER : NULL, e);
}

void sp_cell_record_born(struct sp_cell *c)
{
    struct sp_err e = {0};

    if (c->key != 0 && sp_cell_record_keep(c, c->socket, c->self.pidfd, false, &e) < 0)
        sp_log(SP_LOG_ERROR, "the cell (pid %d) is not kept: %s", (int)c->self.pid, e.msg);
}

void sp_cell_record_end(struct sp_cell *c)
{
    struct sp_cells *g = c->group;

    if (c->key == 0)
        return;
    sp_hold_drop(g->hold, SP_HOLD_KEY(SP_HOLD_CELL, c->key));
    sp_ledger_free(g->ledger, c->record);
    c->key = 0;
    c->record = NULL;
}
