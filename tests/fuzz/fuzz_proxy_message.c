/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between the front and a proxy: one that passes the check has texts within its bytes,
 * enums that have a word, and one direction. The first byte is the number of descriptors.
 */
#include "base/auto.h"
#include "fuzz.h"
#include "proxy/proxy_message.h"

static void check_text(const struct sp_proxy_head *m, size_t size, size_t most, size_t n)
{
    const struct sp_str text = sp_proxy_text(m, size);

    CHECK(text.n <= most && text.p + text.n == (const char *)m + n);
}

static void check_front(const struct sp_proxy_head *m, size_t n, int fd_count)
{
    CHECK(m->op >= SP_PROXY_HELLO && m->op <= SP_PROXY_RELAY);
    CHECK(fd_count == (m->op == SP_PROXY_HELLO || m->op == SP_PROXY_RELAY ? 2
                       : m->op <= SP_PROXY_LISTEN                         ? 1
                                                                          : 0));
    if (m->op == SP_PROXY_HELLO) {
        const struct sp_proxy_hello *h = (const void *)m;

        CHECK(sizeof *h + h->http_len + h->https_len + h->no_proxy_len == n);
        CHECK(h->port_count <= SP_PROXY_PORTS_MAX);
    } else if (m->op == SP_PROXY_LISTEN) {
        const struct sp_proxy_listen *l = (const void *)m;

        CHECK(n == sizeof *l && l->kind > 0 && l->kind < SP_PROXY_KIND_MAX && l->port != 0);
    } else if (m->op == SP_PROXY_VERDICT) {
        const struct sp_proxy_verdict *v = (const void *)m;

        check_text(m, sizeof *v, SP_PROXY_TEXT_MAX, n);
        CHECK(v->is_allowed <= 1 && *sp_network_reason_text(v->reason)->wire != 0 &&
              m->number != 0);
        CHECK(v->is_allowed == 0 || v->reason == SP_NETWORK_REASON_NONE);
    } else {
        check_text(m, sizeof *m, m->op == SP_PROXY_FORGET ? SP_PROXY_HOST_MAX : 0, n);
    }
}

static void check_proxy(const struct sp_proxy_head *m, size_t n)
{
    CHECK(m->op >= SP_PROXY_READY && m->op < SP_PROXY_OP_MAX);
    if (m->op == SP_PROXY_ASK) {
        const struct sp_proxy_ask *a = (const void *)m;

        CHECK(sizeof *a + a->host_len + a->method_len == n && m->number != 0 && a->port != 0);
        CHECK(a->host_len > 0 && a->host_len <= SP_PROXY_HOST_MAX);
        CHECK(a->method_len <= SP_PROXY_METHOD_MAX && a->via < SP_PROXY_VIA_MAX);
        CHECK(*sp_proxy_protocol_name(a->protocol) != 0);
    } else if (m->op == SP_PROXY_DONE) {
        const struct sp_proxy_done *d = (const void *)m;

        check_text(m, sizeof *d, SP_PROXY_HOST_MAX, n);
        CHECK(sizeof *d + d->host_len == n && (m->number != 0 || d->host_len != 0));
        CHECK(*sp_proxy_outcome_text(d->outcome) != 0 &&
              *sp_network_reason_text(d->reason)->wire != 0);
        CHECK(*sp_proxy_protocol_name(d->protocol) != 0);
    } else if (m->op == SP_PROXY_COUNTS) {
        CHECK(n == sizeof(struct sp_proxy_counts));
    } else {
        check_text(m, sizeof *m, SP_PROXY_TEXT_MAX, n);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    /* malloc aligns to 16 */
    auto_free char *bytes = fuzz_copy(data + 1, size - 1);
    const struct sp_proxy_head *m = (const void *)bytes;
    const size_t n = size - 1;
    const int fd_count = data[0] % 4;
    const bool is_front = sp_proxy_check(bytes, n, false, fd_count);
    const bool is_proxy = sp_proxy_check(bytes, n, true, fd_count);

    CHECK(!is_front || !is_proxy);
    if (!is_front && !is_proxy)
        return 0;
    CHECK(n >= sizeof *m && n <= SP_PROXY_MESSAGE_MAX && m->version == SP_PROXY_VERSION);
    if (is_front)
        check_front(m, n, fd_count);
    else
        check_proxy(m, n);
    return 0;
}
