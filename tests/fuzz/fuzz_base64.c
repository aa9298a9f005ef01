/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The input is taken as bytes to encode, and as a text to decode: what was encoded comes back, and
 * a text is accepted exactly if encoding what it means gives it again.
 */
#include "base/auto.h"
#include "base/base64.h"
#include "fuzz.h"

static void check_bytes(const uint8_t *data, size_t size)
{
    const size_t len = SP_BASE64_LEN(size);
    auto_free char *text = malloc(len + 1);
    auto_free char *out = malloc(len / 4 * 3 + 1);
    struct sp_err e;
    size_t n = 0;

    CHECK(text != NULL && out != NULL);
    text[len] = '#';
    out[len / 4 * 3] = '#';
    CHECK(sp_base64_encode(text, data, size) == text + len);
    CHECK(text[len] == '#');
    CHECK(sp_base64_decode((struct sp_str){text, len}, out, &n, &e) == 0);
    CHECK(n == size && (size == 0 || memcmp(out, data, size) == 0));
    CHECK(out[len / 4 * 3] == '#');
}

static void check_text(const uint8_t *data, size_t size)
{
    auto_free char *text = fuzz_copy(data, size);
    auto_free char *apart = malloc(size / 4 * 3 + 1);
    auto_free char *again = malloc(SP_BASE64_LEN(size) + 4);
    struct sp_err e = {0};
    struct sp_err f = {0};
    size_t n = 0;
    size_t m = 0;

    CHECK(apart != NULL && again != NULL);
    apart[size / 4 * 3] = '#';
    const int r = sp_base64_decode((struct sp_str){text, size}, apart, &n, &e);
    CHECK(apart[size / 4 * 3] == '#');
    CHECK(size == 0 || memcmp(text, data, size) == 0);
    CHECK(sp_base64_decode((struct sp_str){text, size}, text, &m, &f) == r);
    if (r < 0) {
        CHECK(r == -SP_E_INVALID && strcmp(e.msg, f.msg) == 0 && e.msg[0] != 0);
        return;
    }
    CHECK(n == m && memcmp(text, apart, n) == 0);
    CHECK(sp_base64_encode(again, apart, n) == again + size);
    CHECK(size == 0 || memcmp(again, data, size) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_bytes(data, size);
    check_text(data, size);
    return 0;
}
