/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe: what this host lets a sandbox do, found out by making cells and ending them.
 */
#ifndef SP_CORE_PROBE_H
#define SP_CORE_PROBE_H

#include "sandbox/compile.h"

/* `program`: our own binary. Takes some milliseconds. */
int sp_powers_probe(const char *program, struct sp_powers *ret, struct sp_err *e);

#endif
