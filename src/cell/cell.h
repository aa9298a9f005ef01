/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cell: the process that starts commands and keeps what they say.
 *
 * It is the parent of its commands; it owns their terminals, pipes and exit codes and writes their
 * rings. One thread, no JSON, nothing but the C library. When the front's end of the socket closes,
 * the cell ends and takes every process below it along.
 */
#ifndef SP_CELL_CELL_H
#define SP_CELL_CELL_H

#include "base/error.h"

/* The whole life of a cell whose socket to the front is `control`. Returns when the front is gone.
 */
int sp_cell_run(int control, struct sp_err *e);

#endif
