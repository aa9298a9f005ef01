/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pty: pseudo-terminals.
 */
#ifndef SP_OS_PTY_H
#define SP_OS_PTY_H

#include <errno.h>
#include <stdint.h>
#include <sys/ioctl.h>

#include "base/error.h"

struct sp_pty {
    int master; /* non-blocking */
    int slave;
};

/* A terminal of this size in the kernel's default modes. The caller owns both ends. */
int sp_pty_open(uint16_t rows, uint16_t cols, struct sp_pty *ret, struct sp_err *e);

/* 0 or an errno. */
static inline int sp_pty_resize(int master, uint16_t rows, uint16_t cols)
{
    const struct winsize size = {.ws_row = rows, .ws_col = cols};

    return ioctl(master, TIOCSWINSZ, &size) < 0 ? errno : 0;
}

#endif
