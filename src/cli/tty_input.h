/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tty_input: what a person types at a terminal that hostile programs have used before.
 *
 * A program can make a terminal type: it sends queries (DECRQM, a title report, a cursor report),
 * and the terminal's replies arrive as input, late, in bursts or byte by byte. Replies are escape
 * sequences, so the bytes of escape sequences never count. Plain bytes make a line; the caller
 * looks at the line once nothing has arrived for a while (SP_TTY_SILENCE_MS).
 */
#ifndef SP_CLI_TTY_INPUT_H
#define SP_CLI_TTY_INPUT_H

#include "base/str.h"

#define SP_TTY_SILENCE_MS 150 /* before a key and after it */
#define SP_TTY_LINE_MAX   16

enum sp_tty_sequence {
    SP_TTY_PLAIN,
    SP_TTY_ESCAPE,        /* behind ESC */
    SP_TTY_CONTROL,       /* behind ESC [ */
    SP_TTY_STRING,        /* behind ESC P, ], X, ^ or _: up to BEL or ESC \ */
    SP_TTY_STRING_ESCAPE, /* behind an ESC in there */
};

struct sp_tty_input {
    enum sp_tty_sequence state;
    unsigned skip;       /* bytes that belong to a sequence that has ended: a mouse report */
    bool is_first;       /* CONTROL: no parameter so far */
    bool is_device;      /* CONTROL: its first parameter byte is `?` */
    bool has_identity;   /* the terminal has said what it is (the reply to ESC [ c) */
    bool is_spoiled;     /* a sequence or junk came: nothing counts before the next silence */
    bool is_entered;     /* the line has ended by Enter */
    bool is_interrupted; /* Ctrl-C, which counts at any time */
    char line[SP_TTY_LINE_MAX];
    size_t len;
};

/* What was read, `since_ms` after the last bytes were. */
void sp_tty_input_take(struct sp_tty_input *in, struct sp_str bytes, uint64_t since_ms);
/* There has been silence: what is in the line counts, unless it was spoiled. The caller takes it,
 * or leaves it to grow. */
struct sp_str sp_tty_input_line(struct sp_tty_input *in);
void sp_tty_input_clear(struct sp_tty_input *in);

#endif
