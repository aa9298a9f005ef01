/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP bodies: a head and what follows it, in any pieces, give one body and one rest. A body that
 * is found is what the announced lengths say, and writing it again in chunks finds it again.
 */
#include "base/buf.h"
#include "fuzz.h"
#include "server/net/http_body.h"

#define MAX 4096

struct outcome {
    enum sp_http_body_result result;
    struct sp_buf body;
    size_t left; /* bytes of the input that belong to the next */
};

/* Everything that `in` has, in pieces of at most `step` bytes, each in a block of its own. */
static struct outcome run(struct sp_http_body b, const char *bytes, size_t n, size_t step)
{
    struct outcome o = {.result = SP_HTTP_BODY_MORE, .left = n};

    for (size_t at = 0; at < n && o.result == SP_HTTP_BODY_MORE; at += step) {
        const size_t size = step < n - at ? step : n - at;
        char *copy = fuzz_copy(bytes + at, size);
        struct sp_str in = {copy, size};
        struct sp_str piece;

        do {
            const size_t before = in.n;

            o.result = sp_http_body_next(&b, &in, &piece);
            CHECK(in.n <= before && in.p + in.n == copy + size);
            CHECK(piece.p >= copy && piece.p + piece.n <= copy + size);
            CHECK((o.result == SP_HTTP_BODY_PIECE) == (piece.n != 0));
            CHECK(sp_buf_add_str(&o.body, piece));
        } while (o.result == SP_HTTP_BODY_PIECE);
        CHECK(o.result != SP_HTTP_BODY_MORE || in.n == 0);
        o.left = n - at - size + in.n;
        free(copy);
    }
    CHECK(o.body.len <= MAX);
    return o;
}

static void check_again(const struct sp_buf *body)
{
    static const char head[] = "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n";
    struct sp_http_parser p = {0};
    struct sp_http_request r;
    struct sp_http_body b;
    auto_buf struct sp_buf text = {0};

    CHECK(sp_http_parse(&p, head, sizeof head - 1, &r) == SP_HTTP_DONE);
    CHECK(sp_http_body_begin(&b, &r, MAX) == SP_HTTP_BODY_MORE);
    if (body->len != 0)
        CHECK(sp_buf_printf(&text, "%zx\r\n", body->len) &&
              sp_buf_add(&text, body->data, body->len) && sp_buf_add(&text, "\r\n", 2));
    CHECK(sp_buf_add(&text, "0\r\n\r\n", 5));
    struct outcome o = run(b, text.data, text.len, text.len);
    CHECK(o.result == SP_HTTP_BODY_DONE && o.left == 0 && o.body.len == body->len);
    CHECK(body->len == 0 || memcmp(o.body.data, body->data, body->len) == 0);
    sp_buf_done(&o.body);
}

static void check_body(struct sp_http_body b, const char *bytes, size_t n)
{
    struct outcome whole = run(b, bytes, n, n == 0 ? 1 : n);
    struct outcome parts = run(b, bytes, n, 1);

    CHECK(whole.result == parts.result);
    CHECK(whole.body.len == parts.body.len);
    CHECK(whole.body.len == 0 || memcmp(whole.body.data, parts.body.data, whole.body.len) == 0);
    if (whole.result == SP_HTTP_BODY_DONE) {
        CHECK(whole.left == parts.left);
        check_again(&whole.body);
    }
    sp_buf_done(&whole.body);
    sp_buf_done(&parts.body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sp_http_parser p = {0};
    struct sp_http_request r;
    struct sp_http_body b;
    struct sp_str value;
    char *bytes = fuzz_copy(data, size);

    if (size <= 65536 && sp_http_parse(&p, bytes, size, &r) == SP_HTTP_DONE) {
        const enum sp_http_body_result begun = sp_http_body_begin(&b, &r, MAX);
        const unsigned lengths = sp_http_header(&r, "content-length", &value);
        const unsigned codings = sp_http_header(&r, "transfer-encoding", &value);

        CHECK(begun != SP_HTTP_BODY_PIECE);
        if (lengths + codings > 1)
            CHECK(begun == SP_HTTP_BODY_BAD);
        if (lengths + codings == 0)
            CHECK(begun == SP_HTTP_BODY_DONE);
        check_body(b, bytes + r.head_len, size - r.head_len);
    }
    free(bytes);
    return 0;
}
