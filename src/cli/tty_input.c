/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/tty_input.h"

#define ESC       0x1b
#define BEL       0x07
#define INTERRUPT 3

#define MOUSE_BYTES 3 /* behind ESC [ M: button, column and row, which may be any bytes */

static void begin_control(struct sp_tty_input *in)
{
    in->state = SP_TTY_CONTROL;
    in->is_first = true;
    in->is_device = false;
}

static void take_escape(struct sp_tty_input *in, unsigned char c)
{
    if (c == '[') {
        begin_control(in);
    } else if (c == 'P' || c == ']' || c == 'X' || c == '^' || c == '_') {
        in->state = SP_TTY_STRING;
    } else if (c == 'O') { /* a function key: one byte follows */
        in->state = SP_TTY_PLAIN;
        in->skip = 1;
    } else if (c != ESC && (c < 0x20 || c > 0x2f)) { /* those in between are not the last */
        in->state = SP_TTY_PLAIN;
    }
}

static void take_control(struct sp_tty_input *in, unsigned char c)
{
    if (c == ESC) {
        in->state = SP_TTY_ESCAPE;
        return;
    }
    if (c >= 0x40 && c <= 0x7e) {
        in->state = SP_TTY_PLAIN;
        in->skip = c == 'M' && in->is_first ? MOUSE_BYTES : 0;
        in->has_identity |= c == 'c' && in->is_device;
        return;
    }
    in->is_device = in->is_first ? c == '?' : in->is_device;
    in->is_first = false;
}

static void take_string(struct sp_tty_input *in, unsigned char c)
{
    if (c == BEL || c == 0x9c || (in->state == SP_TTY_STRING_ESCAPE && c == '\\'))
        in->state = SP_TTY_PLAIN;
    else
        in->state = c == ESC ? SP_TTY_STRING_ESCAPE : SP_TTY_STRING;
}

/* Whether the byte is none of a sequence. */
static bool is_plain(struct sp_tty_input *in, unsigned char c)
{
    if (in->skip != 0) {
        in->skip--;
        return false;
    }
    switch (in->state) {
    case SP_TTY_ESCAPE:
        take_escape(in, c);
        return false;
    case SP_TTY_CONTROL:
        take_control(in, c);
        return false;
    case SP_TTY_STRING:
    case SP_TTY_STRING_ESCAPE:
        take_string(in, c);
        return false;
    case SP_TTY_PLAIN:
        break;
    }
    if (c == 0x9b) /* the same introducers in one byte: a program can ask for these too */
        begin_control(in);
    else if (c == 0x90 || c == 0x98 || (c >= 0x9d && c <= 0x9f))
        in->state = SP_TTY_STRING;
    else if (c == ESC)
        in->state = SP_TTY_ESCAPE;
    else
        return true;
    return false;
}

static void take_plain(struct sp_tty_input *in, unsigned char c)
{
    if (c == 0x7f || c == '\b')
        in->len -= in->len > 0;
    else if ((c == '\r' || c == '\n') && in->len > 0 && !in->is_entered)
        in->is_entered = true;
    else if (c >= 'a' && c <= 'z' && in->len < SP_TTY_LINE_MAX && !in->is_entered)
        in->line[in->len++] = (char)c;
    else
        in->is_spoiled = true;
}

void sp_tty_input_take(struct sp_tty_input *in, struct sp_str bytes, uint64_t since_ms)
{
    if (in->len == 0 && since_ms < SP_TTY_SILENCE_MS)
        in->is_spoiled = true;
    for (size_t i = 0; i < bytes.n; i++) {
        const unsigned char c = (unsigned char)bytes.p[i];

        in->is_interrupted |= c == INTERRUPT;
        if (is_plain(in, c))
            take_plain(in, c);
        else
            in->is_spoiled = true;
    }
}

struct sp_str sp_tty_input_line(struct sp_tty_input *in)
{
    if (in->is_spoiled)
        sp_tty_input_clear(in);
    return (struct sp_str){in->line, in->len};
}

void sp_tty_input_clear(struct sp_tty_input *in)
{
    in->is_spoiled = in->is_entered = false;
    in->len = 0;
}
