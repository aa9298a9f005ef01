/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SOCKS5: the first bytes that decide, decide; more of them change nothing. A request that can be
 * served has a host without a NUL and a port.
 */
#include "base/auto.h"
#include "fuzz.h"
#include "proxy/socks.h"

struct outcome {
    ptrdiff_t taken;
    bool accepts;
    enum sp_socks_reply reply;
    struct sp_socks_request request;
};

static struct outcome read_greeting(const uint8_t *data, size_t n)
{
    auto_free char *copy = fuzz_copy(data, n);
    struct outcome o = {0};

    o.taken = sp_socks_read_greeting((struct sp_str){copy, n}, &o.accepts);
    return o;
}

static struct outcome read_request(const uint8_t *data, size_t n)
{
    auto_free char *copy = fuzz_copy(data, n);
    struct outcome o = {0};

    o.taken = sp_socks_read_request((struct sp_str){copy, n}, &o.request, &o.reply);
    return o;
}

static struct outcome check(struct outcome (*read)(const uint8_t *, size_t), const uint8_t *data,
                            size_t size)
{
    const struct outcome whole = read(data, size);
    struct outcome part = {0};

    CHECK(whole.taken <= (ptrdiff_t)size);
    for (size_t n = 0; n <= size && part.taken == 0; n++)
        part = read(data, n);
    CHECK(part.taken == whole.taken && part.accepts == whole.accepts && part.reply == whole.reply);
    CHECK(part.request.host_len == whole.request.host_len);
    CHECK(part.request.port == whole.request.port);
    CHECK(memcmp(part.request.host, whole.request.host, sizeof whole.request.host) == 0);
    return whole;
}

static void check_request(const uint8_t *data, size_t size)
{
    const struct outcome o = check(read_request, data, size);

    if (o.taken <= 0)
        return;
    CHECK(o.reply == SP_SOCKS_DONE || o.reply == SP_SOCKS_FAILED ||
          o.reply == SP_SOCKS_NO_COMMAND || o.reply == SP_SOCKS_NO_TYPE);
    CHECK(o.request.host_len <= SP_SOCKS_HOST_MAX);
    CHECK(strlen(o.request.host) == o.request.host_len);
    if (o.reply == SP_SOCKS_DONE)
        CHECK(data[1] == 1 && o.request.host_len != 0 && o.request.port != 0);
}

/* The request comes behind the greeting, and alone. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 1024)
        return 0;
    const struct outcome greeting = check(read_greeting, data, size);

    if (greeting.taken > 0)
        check_request(data + greeting.taken, size - (size_t)greeting.taken);
    check_request(data, size);
    return 0;
}
