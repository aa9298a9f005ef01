/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ports: the sockets of a managed cell, on which the proxy outside serves its commands.
 *
 * A socket belongs to the network namespace it was made in. Pid 1 of the cell makes the sockets and
 * hands duplicates to the front (SP_WIRE_PORTS), which passes them on to the proxy in the host's
 * namespace. No command can bind ports below 1024, so that those of development servers stay
 * free; a port above, which `ports` of the policy lists, is taken before the first command runs.
 */
#ifndef SP_CELL_PORTS_H
#define SP_CELL_PORTS_H

#include "sandbox/plan.h"

/* Makes the sockets in the present network namespace. They stay open in this process. 0 or minus
 * errno. */
int sp_ports_open(const struct sp_plan *plan);
/* Sends them to the front, from number *at on, which counts what is sent. 0, or minus errno. A cell
 * without a managed network has none. */
int sp_ports_send(int control, bool can_wait, uint32_t *at);

/* A socket that connects to this port of the loopback of the present network namespace; the
 * connection may not be made yet. -1: errno. */
int sp_ports_connect(int family, int port);

#endif
