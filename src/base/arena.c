/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"

#include <stdalign.h>
#include <stdlib.h>

#define BLOCK_BYTES 8192

struct sp_arena_block {
    struct sp_arena_block *older;
    size_t used, size;
    alignas(max_align_t) char bytes[];
};

/* Larger things get a block of their own size. */
static struct sp_arena_block *add_block(struct sp_arena *a, size_t n)
{
    const size_t size = n > BLOCK_BYTES ? n : BLOCK_BYTES;
    struct sp_arena_block *b = n > SIZE_MAX - sizeof *b ? NULL : calloc(1, sizeof *b + size);

    if (b == NULL)
        return NULL;
    b->size = size;
    b->older = a->newest;
    a->newest = b;
    return b;
}

void *sp_arena_new(struct sp_arena *a, size_t n)
{
    const size_t unit = alignof(max_align_t);
    struct sp_arena_block *b = a->newest;

    if (n > SIZE_MAX - unit)
        return NULL;
    n = (n + unit - 1) / unit * unit;
    if (b == NULL || n > b->size - b->used)
        b = add_block(a, n);
    if (b == NULL)
        return NULL;
    void *p = b->bytes + b->used;
    b->used += n;
    return p;
}

char *sp_arena_copy(struct sp_arena *a, struct sp_str s)
{
    char *copy = s.n == SIZE_MAX ? NULL : sp_arena_new(a, s.n + 1);

    if (copy != NULL && s.n != 0)
        memcpy(copy, s.p, s.n);
    return copy;
}

void sp_arena_done(struct sp_arena *a)
{
    while (a->newest != NULL) {
        struct sp_arena_block *older = a->newest->older;

        free(a->newest);
        a->newest = older;
    }
}
