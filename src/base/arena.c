/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"

#include <stdalign.h>
#include <stdlib.h>

/* An arena often holds a few strings only: blocks double from the first size to the largest. */
#define FIRST_BLOCK   512
#define LARGEST_BLOCK 8192

struct sp_arena_block {
    struct sp_arena_block *older;
    size_t used, size;
    alignas(max_align_t) char bytes[];
};

void *sp_arena_new(struct sp_arena *a, size_t n)
{
    const size_t unit = alignof(max_align_t);
    struct sp_arena_block *b = a->newest;

    if (n > SIZE_MAX - unit)
        return NULL;
    n = (n + unit - 1) / unit * unit;
    if (b == NULL || n > b->size - b->used) {
        size_t size = b == NULL ? FIRST_BLOCK : 2 * b->size;

        if (size > LARGEST_BLOCK)
            size = LARGEST_BLOCK;
        if (size < n)
            size = n;
        b = n > SIZE_MAX - sizeof *b ? NULL : calloc(1, sizeof *b + size);
        if (b == NULL)
            return NULL;
        b->size = size;
        b->older = a->newest;
        a->newest = b;
    }
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

bool sp_arena_str(struct sp_arena *a, struct sp_str s, struct sp_str *ret)
{
    char *copy = s.p == NULL ? NULL : sp_arena_copy(a, s);

    if (s.p != NULL && copy == NULL)
        return false;
    *ret = (struct sp_str){copy, copy == NULL ? 0 : s.n};
    return true;
}

bool sp_arena_text(struct sp_arena *a, const char *text, const char **ret)
{
    struct sp_str copy = {0};

    if (text != NULL && !sp_arena_str(a, sp_str_of(text), &copy))
        return false;
    *ret = copy.p;
    return true;
}

bool sp_arena_strs(struct sp_arena *a, const struct sp_str *items, uint32_t count,
                   const struct sp_str **ret)
{
    struct sp_str *copies = sp_arena_new(a, count * sizeof *copies);

    if (copies == NULL)
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (!sp_arena_str(a, items[i], &copies[i]))
            return false;
    *ret = copies;
    return true;
}

bool sp_arena_list(struct sp_arena *a, const char *const *list, const char *const **ret)
{
    size_t n = 0;

    while (list != NULL && list[n] != NULL)
        n++;
    const char **copy = list == NULL ? NULL : sp_arena_new(a, (n + 1) * sizeof *copy);
    if (copy == NULL && list != NULL)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!sp_arena_text(a, list[i], &copy[i]))
            return false;
    *ret = copy;
    return true;
}
