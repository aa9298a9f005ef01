/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arena: many small allocations that are freed together. A zeroed arena is an empty one.
 */
#ifndef SP_BASE_ARENA_H
#define SP_BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

struct sp_arena_block;

struct sp_arena {
    struct sp_arena_block *newest;
};

/* Zeroed, aligned for any type, valid until sp_arena_done. NULL: no memory. */
void *sp_arena_new(struct sp_arena *a, size_t n);
/* A copy of s with a NUL behind it. NULL: no memory. */
char *sp_arena_copy(struct sp_arena *a, struct sp_str s);
void sp_arena_done(struct sp_arena *a);

/* The same copies for strings that may be absent: a NULL p or text stays NULL. All return false if
 * there is no memory; *ret is untouched then. */
bool sp_arena_str(struct sp_arena *a, struct sp_str s, struct sp_str *ret);
bool sp_arena_text(struct sp_arena *a, const char *text, const char **ret);
bool sp_arena_strs(struct sp_arena *a, const struct sp_str *items, uint32_t count,
                   const struct sp_str **ret);
bool sp_arena_list(struct sp_arena *a, const char *const *list, const char *const **ret);

#endif
