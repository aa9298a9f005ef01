/* SPDX-License-Identifier: Apache-2.0 */
/*
 * port: one of the descriptors that we were started with, used without ever standing still.
 *
 * They are shared with whoever started us, so their flags are not ours to change: a pipe or a
 * terminal is opened once more, for us alone. Where that is refused, we ask before every call and
 * write no more at once than a pipe that has room takes.
 */
#ifndef SP_CLI_PORT_H
#define SP_CLI_PORT_H

#include <stdbool.h>
#include <sys/types.h>

#include "os/loop.h"

struct sp_port {
    int fd; /* -1: closed */
    bool is_ours, is_socket, asks_first;
    bool is_always_ready; /* a file: the loop cannot watch it, and need not */
};

/* `fd` is 0, 1 or 2. */
void sp_port_open(struct sp_port *p, int fd, bool is_input);
/* Nothing reads or writes it any more: the other end of a pipe is told. */
void sp_port_close(struct sp_port *p);

/* Bytes, 0 at the end, or minus errno; -EAGAIN: not now. */
ssize_t sp_port_read(const struct sp_port *p, void *room, size_t n);
ssize_t sp_port_write(const struct sp_port *p, const void *bytes, size_t n);

/* Whatever of 0, 1 and 2 is closed becomes /dev/null, so that nothing else takes its number. */
void sp_port_fill_gaps(void);

#endif
