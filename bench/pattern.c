/* SPDX-License-Identifier: Apache-2.0 */
#include "pattern.h"

#include <stdio.h>
#include <string.h>

#include "base/base64.h"

enum {
    LINES = 3276,
    PERIOD = LINES * BENCH_LINE,
    HEAD = 18, /* bytes compared at the front of a chunk; a multiple of 3 */
};

static char text[PERIOD + BENCH_BLOCK];

static void fill(void)
{
    uint32_t r = 1;

    for (size_t i = 0; i < LINES; i++) {
        char line[BENCH_LINE + 1];

        r = r * 1664525U + 1013904223U;
        (void)snprintf(line, sizeof line, "%08u %010u\n", (unsigned)i, (unsigned)(r % 1000000007U));
        memcpy(text + i * BENCH_LINE, line, BENCH_LINE);
    }
    memcpy(text + PERIOD, text, PERIOD);
    memcpy(text + 2L * PERIOD, text, sizeof text - 2UL * PERIOD);
}

const char *bench_pattern_at(uint64_t offset)
{
    if (text[0] == 0)
        fill();
    return text + offset % PERIOD;
}

bool bench_pattern_holds(uint64_t offset, struct sp_str base64, bool whole, size_t *ret_len)
{
    static char expect[SP_BASE64_LEN(BENCH_BLOCK)];

    if (base64.n < 4 || base64.n % 4 != 0)
        return false;

    const char *end = base64.p + base64.n;
    const size_t len = base64.n / 4 * 3 - (end[-1] == '=') - (end[-2] == '=');
    const size_t tail = len % 3 == 0 ? 3 : len % 3;

    *ret_len = len;
    for (size_t at = 0; whole && at < len; at += BENCH_BLOCK - 1) { /* a multiple of 3 */
        const size_t n = len - at < BENCH_BLOCK - 1 ? len - at : BENCH_BLOCK - 1;

        (void)sp_base64_encode(expect, bench_pattern_at(offset + at), n);
        if (memcmp(expect, base64.p + at / 3 * 4, SP_BASE64_LEN(n)) != 0)
            return false;
    }
    const size_t head = len < HEAD ? len : HEAD;

    (void)sp_base64_encode(expect, bench_pattern_at(offset), head);
    if (memcmp(expect, base64.p, SP_BASE64_LEN(head)) != 0)
        return false;
    (void)sp_base64_encode(expect, bench_pattern_at(offset + len - tail), tail);
    return memcmp(expect, end - 4, 4) == 0;
}
