/* SPDX-License-Identifier: Apache-2.0 */
/*
 * screen_modes: which modes of the terminal a program has switched on: the alternate screen, a
 * hidden cursor, mouse reports, bracketed paste. A person who attaches gets them, and one who
 * detaches gets the terminal back as it was.
 */
#ifndef SP_CLI_SCREEN_MODES_H
#define SP_CLI_SCREEN_MODES_H

#include <stdint.h>

#include "base/buf.h"

#define SP_SCREEN_NUMBERS 16 /* of one sequence that count */

/* Zero at first. */
struct sp_screen_modes {
    uint32_t on; /* bits by the table in screen_modes.c */
    /* The sequence being read: */
    char first; /* 0: none; ESC; '[' */
    char mark;  /* '?', or another byte that makes it a sequence of no interest */
    uint16_t numbers[SP_SCREEN_NUMBERS];
    unsigned count;
};

/* Output of the program; a sequence may be split. */
void sp_screen_feed(struct sp_screen_modes *m, struct sp_str bytes);
/* The program draws on the alternate screen: a line of ours would spoil it. */
bool sp_screen_is_alternate(const struct sp_screen_modes *m);
/* Appends what switches these modes on, or off again, for a terminal that has none of them. */
bool sp_screen_add(struct sp_buf *out, const struct sp_screen_modes *m, bool enters);

#endif
