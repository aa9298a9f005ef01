/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test: what every unit test starts with. cmocka wants its own headers in this order.
 */
#ifndef SP_TEST_H
#define SP_TEST_H

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
/* clang-format on */

#include "base/error.h"
#include "base/str.h"

/* One group an executable: Meson wants one plan in the TAP. */
#define TEST_MAIN(tests)                                  \
    int main(void)                                        \
    {                                                     \
        cmocka_set_message_output(CM_OUTPUT_TAP);         \
        return cmocka_run_group_tests(tests, NULL, NULL); \
    }

/* A literal with NULs in it, and the same as bytes on the heap, where the sanitizer sees its end.
 */
#define assert_bytes(text, len, literal)                         \
    do {                                                         \
        assert_int_equal(len, sizeof(literal) - 1);              \
        assert_memory_equal(text, literal, sizeof(literal) - 1); \
    } while (0)

static inline char *test_copy(struct sp_str s)
{
    char *copy = malloc(s.n == 0 ? 1 : s.n);

    assert_non_null(copy);
    if (s.n != 0)
        memcpy(copy, s.p, s.n);
    return copy;
}

/* The same numbers on every run: a failure can be repeated. */
static inline uint32_t test_random(uint64_t *state)
{
    *state = *state * 6364136223846793005U + 1442695040888963407U;
    return (uint32_t)(*state >> 33);
}

#endif
