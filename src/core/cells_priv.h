/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cells_priv: shared by cells.c and cell_adopt.c.
 */
#ifndef SP_CORE_CELLS_PRIV_H
#define SP_CORE_CELLS_PRIV_H

#include "core/cells.h"

/* A cell without socket, bell and process, listed in its group. `tier` as in enum sp_tier. */
struct sp_cell *sp_cell_alloc(struct sp_cells *g, const struct sp_cell_options *o, uint32_t tier,
                              struct sp_err *e);
/* Watches what the cell has of socket, bell and maker. */
int sp_cell_listen(struct sp_cell *c, struct sp_err *e);
/* Handles messages that have arrived. */
void sp_cell_receive(struct sp_cell *c);
/* Sends a struct sp_wire_call. 0, or minus errno; -EPIPE: the cell is dead. */
int sp_cell_call(struct sp_cell *c, const struct sp_wire_call *m, const int *fds, int fd_count);
/* It has taken nothing for some seconds: new starts, signals and resizes are refused. */
void sp_cell_set_stalled(struct sp_cell *c);

/* An INVENTORY of a cell that is taken over. false: it is not what a cell may say. */
bool sp_cell_take_inventory(struct sp_cell *c);

#endif
