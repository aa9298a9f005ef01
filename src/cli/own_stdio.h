/* SPDX-License-Identifier: Apache-2.0 */
/*
 * own_stdio: the descriptors 0, 1 and 2 that we were started with, used without ever blocking, and
 * the terminal behind them.
 *
 * The file status flags of these descriptors are shared with our parent, so O_NONBLOCK must not be
 * set on them: a pipe or a terminal is opened once more through /proc. Where that fails, poll()
 * precedes every call, and a write is no longer than PIPE_BUF, which a pipe that is ready takes.
 */
#ifndef SP_CLI_OWN_STDIO_H
#define SP_CLI_OWN_STDIO_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <termios.h>

#include "os/loop.h"

/* Opens /dev/null for each of 0, 1 and 2 that is closed, so that no other file gets the number. */
void sp_port_fill_gaps(void);

/* ---- one descriptor ---- */

struct sp_port {
    int fd; /* -1: closed */
    bool is_ours, is_socket, polls_first;
    bool is_always_ready; /* a regular file or a device, which epoll does not take */
};

/* `fd` is 0, 1 or 2. */
void sp_port_open(struct sp_port *p, int fd, bool is_input);
void sp_port_close(struct sp_port *p);

/* Bytes, 0 at the end of the input, or minus errno: -EAGAIN: not now. */
ssize_t sp_port_read(const struct sp_port *p, void *room, size_t n);
ssize_t sp_port_write(const struct sp_port *p, const void *bytes, size_t n);

/* ---- the terminal ---- */

struct sp_terminal {
    bool is_raw;
    bool is_changed; /* raw, or with another key that ends a line */
    bool is_known;   /* `before` is filled */
    struct termios before;
};

/* Whether `fd` is a terminal and we are in its foreground process group. */
bool sp_terminal_is_ours(int fd);
/* The size of the first terminal among stdin, stdout and stderr; 0 and 0 without a terminal. */
void sp_terminal_size(uint16_t *ret_rows, uint16_t *ret_cols);

/* For a command with a terminal of its own, which interprets the keys. No effect unless stdin is a
 * terminal and we are in its foreground process group. */
void sp_terminal_make_raw(struct sp_terminal *t);
/* For a command on pipes: the terminal still edits lines, but the key ends one as Enter does, so
 * that it is read at once. */
void sp_terminal_end_lines_at(struct sp_terminal *t, int key);
void sp_terminal_restore(struct sp_terminal *t);

/* ---- stdin, read chunk by chunk ---- */

struct sp_stdin {
    struct sp_loop *loop;
    struct sp_port port;
    char *chunk; /* the caller's, and its size */
    size_t size;
    struct sp_terminal *raw; /* made raw again when we return to the foreground; NULL: not */
    /* n bytes are in the chunk; n <= 0: the end. Reading goes on with sp_stdin_want. */
    void (*fn)(struct sp_stdin *in, ssize_t n);
    struct sp_watch watch;
    struct sp_deferred again; /* for a file, which is always ready */
    struct sp_timer retry;    /* while we are a background job: read() would stop us */
};

/* The members `chunk`, `size`, `raw` and `fn` are set before. */
void sp_stdin_open(struct sp_stdin *in, struct sp_loop *loop);
void sp_stdin_want(struct sp_stdin *in);  /* fn is called with the next chunk */
void sp_stdin_stop(struct sp_stdin *in);  /* fn is not called until sp_stdin_want */
void sp_stdin_close(struct sp_stdin *in); /* closed or never opened is fine, if port.fd is -1 */

#endif
