/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ere_priv: the program that an expression is compiled to, shared by ere_read.c and ere.c.
 *
 * A program is an array of steps. It begins at the first one and matches where it reaches the last
 * one, SP_ERE_MATCH. Targets are relative, so that steps can be copied for repetitions.
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
    SP_ERE_SPLIT,      /* continue at the next step and at step `to` */
    SP_ERE_JUMP,       /* the one at `to` */
    SP_ERE_LINE_BEGIN, /* the next step, if a line begins here */
    SP_ERE_LINE_END,
    SP_ERE_WORD_EDGE,
    SP_ERE_MATCH,
};

struct sp_ere_step {
    uint8_t op;
    uint8_t byte;
    int16_t to; /* relative to this step; SP_ERE_SET: index in set */
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

/* The expression, the offset up to which it is read, and the program so far. */
struct sp_ere_reader {
    struct sp_str text;
    size_t at;
    struct sp_ere_step step[SP_ERE_PROGRAM_MAX];
    size_t steps;
    struct sp_ere_set set[SP_ERE_TEXT_MAX];
    size_t sets; /* fits: each set takes at least one byte of the text */
    bool ignores_case;
};

/* Fills step and set from text. */
int sp_ere_read(struct sp_ere_reader *r, struct sp_err *e);

#endif
