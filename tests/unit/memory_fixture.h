/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory_fixture: memory that ends at the nth request. Link with --wrap=malloc, calloc, realloc.
 */
#ifndef SP_MEMORY_FIXTURE_H
#define SP_MEMORY_FIXTURE_H

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

void *__real_malloc(size_t n);
void *__real_calloc(size_t count, size_t n);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t count, size_t n);
void *__wrap_realloc(void *p, size_t n);

static long memory_left; /* 0: as much as there is */
static bool has_memory_ended;

static bool memory_ends(void)
{
    if (memory_left == 0 || --memory_left != 0)
        return false;
    has_memory_ended = true;
    errno = ENOMEM;
    return true;
}

void *__wrap_malloc(size_t n)
{
    return memory_ends() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t count, size_t n)
{
    return memory_ends() ? NULL : __real_calloc(count, n);
}

void *__wrap_realloc(void *p, size_t n)
{
    return memory_ends() ? NULL : __real_realloc(p, n);
}

static inline void end_memory_at(long n)
{
    has_memory_ended = false;
    memory_left = n;
}

/* Whether it did end since. From now on there is enough again. */
static inline bool did_memory_end(void)
{
    memory_left = 0;
    return has_memory_ended;
}

#endif
