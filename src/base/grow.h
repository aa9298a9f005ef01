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
#define SP_GROW(array, count, cap) sp_grow(&(array), (count), &(cap), sizeof(cap), sizeof *(array))
/* NOLINTEND(bugprone-sizeof-expression) */

static inline bool sp_grow(void *array, size_t count, void *cap, size_t cap_size, size_t size)
{
    const bool is_u32 = cap_size == sizeof(uint32_t);
    const size_t old = is_u32 ? *(uint32_t *)cap : *(size_t *)cap;
    size_t more = old == 0 ? 8 : old;
    size_t bytes;
    void *old_items;
    void *items;

    if (count < old)
        return true;
    while (more <= count)
        if (__builtin_mul_overflow(more, 2, &more))
            return false;
    if ((is_u32 && more > UINT32_MAX) || __builtin_mul_overflow(more, size, &bytes))
        return false;
    memcpy(&old_items, array, sizeof old_items); /* a pointer of any type */
    items = realloc(old_items, bytes);           /* not reallocarray: the tests replace realloc */
    if (items == NULL)
        return false;
    memcpy(array, &items, sizeof items);
    if (is_u32)
        *(uint32_t *)cap = (uint32_t)more;
    else
        *(size_t *)cap = more;
    return true;
}

#endif
