/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ere_priv: what an expression is read into, for base/ere*.c alone.
 *
 * A program is a row of steps. Targets are relative, so that what is to be repeated is copied. It
 * begins at its first step and has matched where it reaches SP_ERE_MATCH, its last.
 */
#ifndef SP_BASE_ERE_PRIV_H
#define SP_BASE_ERE_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/ere.h"

enum sp_ere_op {
    SP_ERE_BYTE,       /* this byte */
    SP_ERE_SET,        /* one of a set */
    SP_ERE_SPLIT,      /* the next step, and the one at `to` */
    SP_ERE_JUMP,       /* the one at `to` */
    SP_ERE_LINE_BEGIN, /* the next one, if a line begins here */
    SP_ERE_LINE_END,
    SP_ERE_WORD_EDGE,
    SP_ERE_MATCH,
};

struct sp_ere_step {
    uint8_t op;
    uint8_t byte;
    int16_t to; /* from this step; the number of a set */
};

struct sp_ere_set {
    uint64_t bits[4];
};

static inline void sp_ere_set_add(struct sp_ere_set *s, unsigned char c)
{
    s->bits[c / 64] |= UINT64_C(1) << c % 64;
}

static inline bool sp_ere_set_has(const struct sp_ere_set *s, unsigned char c)
{
    return (s->bits[c / 64] >> c % 64 & 1) != 0;
}

static inline bool sp_ere_is_word(unsigned char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
}

/* The expression, how far it is read, and what has come of it. */
struct sp_ere_reader {
    struct sp_str text;
    size_t at;
    struct sp_ere_step step[SP_ERE_PROGRAM_MAX];
    size_t steps;
    struct sp_ere_set set[SP_ERE_TEXT_MAX];
    size_t sets; /* every one takes a byte of the text at least */
};

/* What is parted by `|`: where the whole and its last branch begin, and the last of the jumps from
 * the ends of branches to the end of the whole. Each says how far the one before it is; 0: none. */
struct sp_ere_choice {
    uint16_t begin, branch, jump;
    uint16_t open; /* the byte of its `(` */
};

int sp_ere_read(struct sp_ere_reader *r, struct sp_err *e);

/* These are for the reader's parts. */
int sp_ere_add_step(struct sp_ere_reader *r, struct sp_ere_step step, struct sp_err *e);
int sp_ere_add_set(struct sp_ere_reader *r, const struct sp_ere_set *set, struct sp_err *e);
int sp_ere_add_bytes(struct sp_ere_reader *r, struct sp_str bytes, struct sp_err *e);
int sp_ere_next_branch(struct sp_ere_reader *r, struct sp_ere_choice *c, struct sp_err *e);
void sp_ere_end_choice(struct sp_ere_reader *r, const struct sp_ere_choice *c);
struct sp_str sp_ere_take_character(struct sp_ere_reader *r);

/* What `\` and a letter stand for: a class (\d) as a set, else one byte. */
struct sp_ere_escape {
    bool is_class;
    struct sp_ere_set set;
    unsigned char byte;
};
/* Reads what follows a `\`; word edges are not for it. */
int sp_ere_read_escape(struct sp_ere_reader *r, struct sp_ere_escape *ret, struct sp_err *e);
/* Reads what follows a `[`, and adds its steps. */
int sp_ere_read_bracket(struct sp_ere_reader *r, struct sp_err *e);

#endif
