/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz: what every fuzzer starts with. CHECK ends the process: for a fuzzer that is the finding.
 */
#ifndef SP_FUZZ_H
#define SP_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(property)                                                                  \
    do {                                                                                 \
        if (!(property)) {                                                               \
            (void)fprintf(stderr, "%s:%d: broken: %s\n", __FILE__, __LINE__, #property); \
            abort();                                                                     \
        }                                                                                \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A block of exactly n bytes: the sanitizer sees the first one too many. */
static inline char *fuzz_copy(const void *bytes, size_t n)
{
    char *copy = malloc(n == 0 ? 1 : n);

    CHECK(copy != NULL);
    if (n != 0)
        memcpy(copy, bytes, n);
    return copy;
}

#endif
