/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe: finds out which sandbox features this host allows, by making cells and ending them.
 */
#ifndef SP_CORE_PROBE_H
#define SP_CORE_PROBE_H

#include "sandbox/compile.h"

/* `program`: our own binary. Takes some milliseconds. */
int sp_host_features_probe(const char *program, struct sp_host_features *ret, struct sp_err *e);

/* Makes a cell with this plan and ends it at once: 0 if it could be made, or -SP_E_...; *ret_step
 * (enum sp_build_step) and *ret_err (an errno) say which step failed. Waits some seconds at most.
 */
int sp_cell_try(const char *program, const struct sp_buf *plan, uint32_t *ret_step, int *ret_err,
                struct sp_err *e);

#endif
