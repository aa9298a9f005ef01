/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reader against the definition, and the repair: it is valid, it is the identity on what is
 * valid, and twice is once.
 */
#include "base/auto.h"
#include "base/utf8.h"
#include "fuzz.h"

/* The character at p by the definition: its length, or 0. */
static size_t character(const uint8_t *p, size_t n)
{
    const size_t len = p[0] < 0x80   ? 1
                       : p[0] < 0xC0 ? 0
                       : p[0] < 0xE0 ? 2
                       : p[0] < 0xF0 ? 3
                       : p[0] < 0xF8 ? 4
                                     : 0;
    uint32_t c = len == 1 ? p[0] : p[0] & (0x7FU >> len);

    if (len == 0 || len > n)
        return 0;
    for (size_t i = 1; i < len; i++) {
        if ((p[i] & 0xC0) != 0x80)
            return 0;
        c = c << 6 | (p[i] & 0x3F);
    }
    const size_t shortest = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    return shortest == len && c <= 0x10FFFF && (c < 0xD800 || c > 0xDFFF) ? len : 0;
}

/* Whether n bytes begin a character and do not end it: some way to go on makes one. */
static bool begins(const uint8_t *p, size_t n)
{
    for (unsigned more = 0x80; more <= 0xBF; more += 0x3F) {
        uint8_t whole[8];

        memset(whole, (int)more, sizeof whole);
        memcpy(whole, p, n);
        if (character(whole, sizeof whole) > n)
            return true;
    }
    return false;
}

/* The repair by its definition (Unicode 3.9, U+FFFD substitution of maximal subparts). */
static void repair(struct sp_buf *out, const uint8_t *p, size_t n)
{
    while (n != 0) {
        const size_t len = character(p, n);
        size_t skip = len != 0 ? len : 1;

        if (len == 0)
            while (skip < n && skip < 4 && begins(p, skip + 1))
                skip++;
        CHECK(sp_buf_add(out, len != 0 ? (const void *)p : "\xEF\xBF\xBD", len != 0 ? len : 3));
        p += skip;
        n -= skip;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_free char *copy = fuzz_copy(data, size);
    const struct sp_str s = {copy, size};
    auto_buf struct sp_buf out = {0};
    auto_buf struct sp_buf want = {0};
    auto_buf struct sp_buf twice = {0};
    size_t prefix = 0;

    for (size_t n; prefix < size && (n = character(data + prefix, size - prefix)) != 0;)
        prefix += n;
    CHECK(sp_utf8_valid_prefix(s) == prefix);
    CHECK(sp_utf8_is_valid(s) == (prefix == size));

    CHECK(sp_utf8_add_lossy(&out, s));
    repair(&want, data, size);
    CHECK(out.len == want.len && (out.len == 0 || memcmp(out.data, want.data, out.len) == 0));

    const struct sp_str repaired = {out.data, out.len};
    CHECK(sp_utf8_is_valid(repaired) && sp_utf8_add_lossy(&twice, repaired));
    CHECK(twice.len == out.len && (out.len == 0 || memcmp(twice.data, out.data, out.len) == 0));
    return 0;
}
