/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ClientHello: the result is the same in one piece and byte by byte, and in other records; a name
 * that is found is in the bytes.
 */
#include "base/auto.h"
#include "base/buf.h"
#include "fuzz.h"
#include "proxy/hello.h"

struct outcome {
    enum sp_hello result;
    char name[256];
    size_t len;
};

static struct outcome read_part(const void *data, size_t n)
{
    auto_free char *copy = fuzz_copy(data, n);
    struct outcome o = {0};

    o.result = sp_hello_read((struct sp_str){copy, n}, o.name, &o.len);
    return o;
}

static void check_equal(const struct outcome *a, const struct outcome *b)
{
    CHECK(a->result == b->result && a->len == b->len && memcmp(a->name, b->name, a->len) == 0);
}

/* The contents of the first record in two records give the same hello. */
static void check_split(const uint8_t *data, const struct outcome *whole)
{
    const size_t n = (size_t)data[3] << 8 | data[4];
    const size_t first = 1 + data[4] % (n - 1);
    auto_buf struct sp_buf out = {0};
    const uint8_t heads[2][5] = {
        {22, 3, 1, (uint8_t)(first >> 8), (uint8_t)first},
        {22, 3, 1, (uint8_t)((n - first) >> 8), (uint8_t)(n - first)},
    };

    CHECK(sp_buf_add(&out, heads[0], 5) && sp_buf_add(&out, data + 5, first));
    CHECK(sp_buf_add(&out, heads[1], 5) && sp_buf_add(&out, data + 5 + first, n - first));
    const struct outcome split = read_part(out.data, out.len);
    check_equal(&split, whole);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct outcome whole = read_part(data, size);
    struct outcome part = {0};

    if (size <= 1024) {
        for (size_t n = 0; n <= size && part.result == SP_HELLO_PARTIAL; n++)
            part = read_part(data, n);
        check_equal(&part, &whole);
    }
    CHECK(whole.result != SP_HELLO_PARTIAL || size <= SP_HELLO_MAX);
    if (whole.result == SP_HELLO_NAMED) {
        CHECK(whole.len > 0 && whole.len <= 255 && strlen(whole.name) == whole.len);
        CHECK(size >= 5 && data[0] == 22 && data[1] == 3);
    } else {
        CHECK(whole.len == 0 || whole.result == SP_HELLO_BROKEN);
    }
    const size_t record = size < 5 ? 0 : (size_t)data[3] << 8 | data[4];
    if ((whole.result == SP_HELLO_NAMED || whole.result == SP_HELLO_NO_NAME) && record > 1 &&
        size == 5 + record && size + 5 <= SP_HELLO_MAX)
        check_split(data, &whole);
    return 0;
}
