/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grow: arrays that double. All growable arrays of the tree use it:
 *
 *     if (!SP_GROW(l->items, l->count, l->cap))
 *         return false;
 *     l->items[l->count++] = item;
 */
#ifndef SP_BASE_GROW_H
#define SP_BASE_GROW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/*
 * Makes room for the element with index `count` in an array of `cap` elements from malloc. `array`
 * and `cap` are lvalues, `cap` a uint32_t or a size_t. New elements are not initialised.
 * false: no memory, or more elements than `cap` can count; the array is as before.
 */
/* NOLINTBEGIN(bugprone-sizeof-expression): elements may be pointers */
#define SP_GROW(array, count, cap)   \
    _Generic(&(cap), uint32_t *      \
             : sp_grow_u32, size_t * \
             : sp_grow)(&(array), (count), &(cap), sizeof *(array))
/* NOLINTEND(bugprone-sizeof-expression) */

static inline bool sp_grow(void *array, size_t count, size_t *cap, size_t size)
{
    size_t more = *cap == 0 ? 8 : *cap;
    size_t bytes;
    void *p;

    if (count < *cap)
        return true;
    while (more <= count)
        if (__builtin_mul_overflow(more, 2, &more))
            return false;
    if (__builtin_mul_overflow(more, size, &bytes))
        return false;
    memcpy(&p, array, sizeof p); /* a pointer of any type */
    p = realloc(p, bytes);       /* not reallocarray: the tests replace realloc */
    if (p == NULL)
        return false;
    memcpy(array, &p, sizeof p);
    *cap = more;
    return true;
}

static inline bool sp_grow_u32(void *array, size_t count, uint32_t *cap, size_t size)
{
    size_t wide = *cap;

    if (count < *cap)
        return true;
    if (count > UINT32_MAX / 2 || !sp_grow(array, count, &wide, size))
        return false;
    *cap = (uint32_t)wide;
    return true;
}

#endif
