/* SPDX-License-Identifier: Apache-2.0 */
/*
 * helper: this program in the part of a command, or of the raw limit's server.
 *
 *   echo           repeats what it reads; on a terminal in raw mode. Says "R" when it is ready
 *   flood BYTES    writes so much of the pattern in blocks of 64 KiB
 *   lines COUNT    writes so many lines of the pattern, one write(2) each
 *   print COUNT    writes so many lines of the pattern as stdio does, 4 KiB at a time
 *   respond        an exec-server that can do one thing only: start a command and pass its output
 *                  on (pipe, base64, WebSocket, TCP), one after the other, for this program's
 *                  client
 *   files          one that reads, writes and looks at files, and nothing else
 *   network, network-server: see network_load.h
 *   relay          passes bytes from a TCP connection through an echo child and back
 *   relay2, relay2_tty  the same with a second process that reads what the child writes, as a cell
 *                  does, and passes it to the first; on pipes, or on a terminal
 *
 * They end when their input or output ends, at the latest after some minutes.
 */
#ifndef BENCH_HELPER_H
#define BENCH_HELPER_H

#include <stdbool.h>

int bench_helper_main(int argc, char **argv);

int bench_respond(void);
int bench_respond_files(void);
int bench_relay(bool is_tty, bool is_double);

#endif
