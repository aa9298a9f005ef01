/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP heads: any bytes in any pieces give one result; no verdict lets a browser or a wrong host
 * through; what is answered is a head of its own.
 */
#include "fuzz.h"
#include "server/net/listen.h"

struct outcome {
    enum sp_http_result result;
    struct sp_http_parser parser;
    struct sp_http_request request;
};

static struct outcome at_once(const char *bytes, size_t n)
{
    struct outcome o = {0};

    o.result = sp_http_parse(&o.parser, bytes, n, &o.request);
    return o;
}

/* The bytes move with every call, as a buffer that grows does. */
static struct outcome byte_wise(const char *bytes, size_t n)
{
    struct outcome o = {0};

    for (size_t i = 1; i <= n && o.result == SP_HTTP_MORE; i++) {
        char *copy = fuzz_copy(bytes, i);

        o.result = sp_http_parse(&o.parser, copy, i, &o.request);
        free(copy);
    }
    return o;
}

static void check_str(struct sp_str s, const char *bytes, size_t n)
{
    CHECK(s.p >= bytes && s.p + s.n <= bytes + n);
    CHECK(!sp_str_has_nul(s));
    CHECK(s.n == 0 || memchr(s.p, '\n', s.n) == NULL || s.p[s.n - 1] == '\n');
}

static void check_verdict(const struct sp_http_gate *g, const struct sp_http_request *r)
{
    auto_buf struct sp_buf out = {0};
    struct sp_http_answer a = {0};
    struct sp_str value = {NULL, 0};
    const enum sp_http_gate_verdict v = sp_http_gate_judge(g, r, 1700000000, &a);

    if (sp_http_header(r, "Origin", &value) != 0)
        CHECK(v == SP_HTTP_GATE_ANSWER && a.status == 403 && a.body.n == 0);
    if (v == SP_HTTP_GATE_UPGRADE) {
        CHECK(!r->is_1_0 && sp_str_eq(r->method, SP_STR("GET")));
        CHECK(g->is_unix || sp_http_header(r, "host", &value) == 1);
        CHECK(sp_http_has_word(r, "connection", "upgrade"));
        CHECK(sp_http_gate_write_switch(&out, r));
    } else if (v == SP_HTTP_GATE_ANSWER) {
        CHECK(a.status >= 200 && a.status < 600 && a.status != 101);
        CHECK(sp_http_write(&out, &a));
    } else {
        CHECK(g->has_metrics);
    }
    CHECK(out.len == 0 || memcmp(out.data, "HTTP/1.1 ", 9) == 0);
    CHECK(out.len == 0 || memmem(out.data, out.len, "\r\n\r\n", 4) != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const hosts[] = {"box.example", NULL};

    if (size == 0)
        return 0;
    char *bytes = fuzz_copy(data, size);
    const struct outcome whole = at_once(bytes, size);

    if (size <= 4096) {
        const struct outcome parts = byte_wise(bytes, size);

        CHECK(whole.result == parts.result);
        CHECK(memcmp(&whole.parser, &parts.parser, sizeof whole.parser) == 0);
        CHECK(whole.request.head_len == parts.request.head_len);
    }
    CHECK(whole.result != SP_HTTP_MORE || size <= SP_HTTP_MAX_HEAD);
    if (whole.result == SP_HTTP_DONE) {
        const struct sp_http_request *r = &whole.request;

        CHECK(r->head_len <= size && r->head_len <= SP_HTTP_MAX_HEAD);
        CHECK(memcmp(bytes + r->head_len - 4, "\r\n\r\n", 4) == 0);
        check_str(r->method, bytes, size);
        check_str(r->target, bytes, size);
        check_str(r->path, bytes, size);
        check_str(r->lines, bytes, size);
        check_verdict(&(struct sp_http_gate){.hosts = hosts, .has_metrics = true}, r);
        check_verdict(&(struct sp_http_gate){.is_unix = true}, r);
    }
    free(bytes);
    return 0;
}
