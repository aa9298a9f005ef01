/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cell: the process that starts commands and stores their output.
 *
 * It is the parent of its commands; it owns their terminals, pipes and exit codes and writes their
 * rings. It has one thread and no JSON. When the front's end of the socket closes, the cell kills
 * all of its descendants and ends.
 *
 * A kept cell (SP_HELLO_KEPT) outlives its front: a keeper holds the socket open, the cell is not
 * told that the front has died, and a new front asks for an inventory (cell/inventory.h).
 */
#ifndef SP_CELL_CELL_H
#define SP_CELL_CELL_H

#include "base/error.h"

/* Runs a cell; `control` is its socket to the front. Returns when the front, and a
 * keeper, are gone. */
int sp_cell_run(int control, struct sp_err *e);

#endif
