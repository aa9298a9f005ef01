/* SPDX-License-Identifier: Apache-2.0 */
/*
 * array: arrays that grow by doubling.
 */
#ifndef SP_BASE_ARRAY_H
#define SP_BASE_ARRAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

/* Makes room for one item more than `count`. array: the address of the pointer to the first item;
 * size: of an item. false: no memory, nothing has changed. */
static inline bool sp_array_reserve(void *array, size_t count, size_t *cap, size_t size)
{
    void **items = array;

    if (count < *cap)
        return true;
    const size_t more = *cap == 0 ? 8 : *cap * 2;
    void *grown = realloc(*items, more * size);
    if (grown == NULL)
        return false;
    *items = grown;
    *cap = more;
    return true;
}

#endif
