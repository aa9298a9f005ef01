/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cell: the process that starts commands and stores their output.
 *
 * It is the parent of its commands; it owns their terminals, pipes and exit codes and writes their
 * rings. It has one thread and no JSON. When the front's end of the socket closes, the cell kills
 * all of its descendants and ends.
 */
#ifndef SP_CELL_CELL_H
#define SP_CELL_CELL_H

#include "base/error.h"

/* Runs a cell; `control` is its socket to the front. Returns when the front is gone. */
int sp_cell_run(int control, struct sp_err *e);

#endif
