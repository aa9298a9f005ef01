/* SPDX-License-Identifier: Apache-2.0 */
/*
 * publish: ports of the host's loopback that lead to servers inside of confined cells.
 *
 *   client --> 127.0.0.1:HOST: the front accepts --CONNECT--> pid 1 of the cell: a socket in its
 *   network namespace, connecting to 127.0.0.1:CELL, then [::1]:CELL --SOCKET--> the front checks
 *   it, waits until it is connected --RELAY: both sockets--> a proxy of the cell copies
 *
 * The front passes descriptors on and reads no byte of them. A connection goes to the newest cell
 * in which a server accepts it. If there is none within SP_PUBLISHED_CONNECT_MS, it is reset.
 */
#ifndef SP_CORE_PUBLISH_H
#define SP_CORE_PUBLISH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "cell/wire.h"
#include "os/loop.h"

#define SP_PUBLISHED_MAX         16   /* ports */
#define SP_PUBLISHED_CONNECTIONS 256  /* of one port; further ones wait to be accepted */
#define SP_PUBLISHED_CONNECT_MS  2000 /* until a server in a cell has accepted */
/* After so many ends of its proxy within SP_PUBLISHED_DEATHS_MS a cell gets no connections for as
 * long. */
#define SP_PUBLISHED_DEATHS    5
#define SP_PUBLISHED_DEATHS_MS 60000

struct sp_cell;
struct sp_publish;
struct sp_published_cell;

struct sp_published {
    uint16_t host, cell;
};

struct sp_publish_options {
    struct sp_loop *loop;
    const char *program; /* this and environ as for sp_managed_hub_new; both are borrowed */
    char *const *environ;
};

/* Listens on 127.0.0.1:port->host. *p is made for the first port; NULL before. */
int sp_publish_add(struct sp_publish **p, const struct sp_publish_options *o,
                   const struct sp_published *port, struct sp_err *e);
/* The port number i; NULL: there are fewer. */
const struct sp_published *sp_publish_port(const struct sp_publish *p, uint32_t i);
/* Listens no more; connections go on. */
void sp_publish_stop(struct sp_publish *p);
void sp_publish_free(struct sp_publish *p); /* after its cells; NULL is fine */

/* A cell with a network namespace of its own joins, before it is made: connections may go to it
 * from sp_published_cell_begin on. */
int sp_published_cell_new(struct sp_publish *p, struct sp_published_cell **ret, struct sp_err *e);
void sp_published_cell_begin(struct sp_published_cell *c, struct sp_cell *cell);
/* Resets the connections of the cell; NULL is fine. */
void sp_published_cell_free(struct sp_published_cell *c);

/* The answer of the cell to a CONNECT; takes the descriptor (-1: none, or it was lost). false: it
 * is not what was asked for, and the cell must be ended. */
bool sp_published_take(struct sp_published_cell *c, const struct sp_wire_done *m, int fd,
                       bool is_lost);

#endif
