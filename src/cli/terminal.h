/* SPDX-License-Identifier: Apache-2.0 */
/*
 * terminal: the one that we were started on. While a command has a terminal of its own, ours only
 * carries bytes: every key is the command's to understand.
 */
#ifndef SP_CLI_TERMINAL_H
#define SP_CLI_TERMINAL_H

#include <stdbool.h>
#include <stdint.h>
#include <termios.h>

struct sp_terminal {
    bool is_raw;
    bool is_known; /* `before` is filled */
    struct termios before;
};

/* Whether `fd` is a terminal that listens to us now: we are no background job there. */
bool sp_terminal_is_ours(int fd);
/* Of stdin, stdout or stderr, whichever is a terminal; 0 and 0: none is. */
void sp_terminal_size(uint16_t *ret_rows, uint16_t *ret_cols);

/* Stdin's, if it is one and ours now. Until sp_terminal_restore. */
void sp_terminal_make_raw(struct sp_terminal *t);
void sp_terminal_restore(struct sp_terminal *t);

#endif
