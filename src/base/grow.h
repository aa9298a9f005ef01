/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grow: arrays that double.
 */
#ifndef SP_BASE_GROW_H
#define SP_BASE_GROW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/*
 * Makes room for the element with index `count` in an array of `cap` elements from malloc; both
 * array and cap are lvalues, cap a uint32_t. false: no memory, and the array is as before.
 */
/* NOLINTNEXTLINE(bugprone-sizeof-expression): elements may be pointers */
#define SP_GROW(array, count, cap) sp_grow(&(array), (count), &(cap), sizeof *(array))

static inline bool sp_grow(void *array, uint32_t count, uint32_t *cap, size_t size)
{
    const uint32_t more = *cap == 0 ? 8 : *cap * 2;
    void *p;

    if (count < *cap)
        return true;
    memcpy(&p, array, sizeof p); /* a pointer of any type */
    p = more <= *cap ? NULL : reallocarray(p, more, size);
    if (p == NULL)
        return false;
    memcpy(array, &p, sizeof p);
    *cap = more;
    return true;
}

#endif
