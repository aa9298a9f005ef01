/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

bool sp_terminal_is_ours(int fd)
{
    return isatty(fd) && tcgetpgrp(fd) == getpgrp();
}

void sp_terminal_size(uint16_t *ret_rows, uint16_t *ret_cols)
{
    struct winsize size;

    *ret_rows = *ret_cols = 0;
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO && *ret_rows == 0; fd++)
        if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_row != 0 && size.ws_col != 0) {
            *ret_rows = size.ws_row;
            *ret_cols = size.ws_col;
        }
}

void sp_terminal_make_raw(struct sp_terminal *t)
{
    struct termios raw;

    if (t->is_raw || !sp_terminal_is_ours(STDIN_FILENO))
        return;
    if (!t->is_known && tcgetattr(STDIN_FILENO, &t->before) < 0)
        return;
    t->is_known = true;
    raw = t->before;
    cfmakeraw(&raw);
    t->is_raw = tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
}

void sp_terminal_restore(struct sp_terminal *t)
{
    if (t->is_raw && sp_terminal_is_ours(STDIN_FILENO))
        (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &t->before); /* gone: nothing to restore */
    t->is_raw = false;
}
