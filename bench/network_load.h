/* SPDX-License-Identifier: Apache-2.0 */
/*
 * network_load: both ends of the connections that cases_network.c measures, as helpers.
 *
 *   network-server             echoes; a connection whose first byte is 'S' and a count of 8 bytes
 *                              behind it gets so many bytes instead. Prints its port
 *   network WAY PORT BYTES     WAY: direct (PORT of loopback), name (port 22 of bench.test),
 * connect (CONNECT to it at port 808), variable (CONNECT to PORT of loopback by the proxy that
 * HTTP_PROXY names). Prints "NAME VALUE" lines; after a line "mark NAME" it waits for a line, so
 * that the other side can look at processes
 */
#ifndef BENCH_NETWORK_LOAD_H
#define BENCH_NETWORK_LOAD_H

enum { BENCH_NET_FIRST = 40, BENCH_NET_MANY = 1000 }; /* hosts; connections at once */

int bench_network_server(void);
int bench_network_client(int argc, char **argv);

#endif
