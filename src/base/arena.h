/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arena: many small things that live and die together. An all-zero arena is an empty one.
 */
#ifndef SP_BASE_ARENA_H
#define SP_BASE_ARENA_H

#include <stddef.h>

#include "base/str.h"

struct sp_arena_block;

struct sp_arena {
    struct sp_arena_block *newest;
};

/* n bytes of zeros, aligned for anything; NULL: no memory. */
void *sp_arena_new(struct sp_arena *a, size_t n);
/* s, with a NUL behind it. */
char *sp_arena_copy(struct sp_arena *a, struct sp_str s);
void sp_arena_done(struct sp_arena *a);

#endif
