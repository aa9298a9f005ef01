/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP/1: a head in any pieces is the same head; a head that is written reads back equal, and has
 * no bare CR or LF and no control character; a body in any pieces is the same body, and a chunked
 * body that is written passes a second time without a change.
 *
 * Input: a byte of choices, then a head and the body behind it.
 */
#include "base/auto.h"
#include "base/buf.h"
#include "fuzz.h"
#include "proxy/http1.h"

enum { IS_RESPONSE = 1, IS_HEAD = 2, CLOSES = 4, IS_ABSOLUTE = 8, HAS_EXTRA = 16 };

static struct sp_http1_head first, second;

static bool read_head(struct sp_str head, unsigned choices, struct sp_http1_head *ret)
{
    struct sp_http1_refusal why = {0};
    const struct sp_str method = (choices & IS_HEAD) != 0 ? SP_STR("HEAD") : SP_STR("GET");
    const bool is_read = (choices & IS_RESPONSE) != 0
                             ? sp_http1_read_response(head, method, ret, &why)
                             : sp_http1_read_request(head, ret, &why);

    CHECK(is_read == (why.status == 0) && is_read == (why.text == NULL));
    return is_read;
}

/* ---- heads ---- */

static size_t head_length(struct sp_str bytes)
{
    size_t scanned = 0;
    size_t part_scanned = 0;
    size_t part = 0;
    const size_t whole = sp_http1_head_length(bytes, &scanned);

    for (size_t n = 1; n <= bytes.n && part == 0; n++)
        part = sp_http1_head_length((struct sp_str){bytes.p, n}, &part_scanned);
    CHECK(part == whole);
    return whole;
}

/* Lines end in CR LF, and no other control character is in them but the tab. */
static void check_clean(struct sp_str head)
{
    CHECK(head.n >= 4 && memcmp(head.p + head.n - 4, "\r\n\r\n", 4) == 0);
    for (size_t i = 0; i < head.n; i++) {
        const unsigned char c = (unsigned char)head.p[i];

        CHECK(c >= 0x20 || c == '\t' || c == '\r' || c == '\n');
        CHECK(c != 0x7f);
        CHECK(c != '\r' || (i + 1 < head.n && head.p[i + 1] == '\n'));
        CHECK(c != '\n' || (i > 0 && head.p[i - 1] == '\r'));
    }
    CHECK(memmem(head.p, head.n - 1, "\r\n\r\n", 4) == NULL);
}

static bool is_rewritten(struct sp_str name, bool is_request)
{
    static const char *const names[] = {"Connection", "Keep-Alive",     "TE",
                                        "Upgrade",    "Content-Length", "Transfer-Encoding"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (sp_str_eq_nocase(name, sp_str_of(names[i])))
            return true;
    return (is_request && sp_str_eq_nocase(name, SP_STR("Host"))) ||
           (name.n >= 6 && sp_str_eq_nocase((struct sp_str){name.p, 6}, SP_STR("Proxy-")));
}

static size_t count(const struct sp_http1_head *h, const char *name)
{
    size_t n = 0;

    for (size_t i = 0; i < h->field_count; i++)
        n += sp_str_eq_nocase(h->fields[i].name, sp_str_of(name));
    return n;
}

/* The fields that pass are fields of the first head, in their order. */
static void check_fields(const struct sp_http1_head *a, const struct sp_http1_head *b,
                         bool is_request)
{
    size_t at = 0;

    for (size_t i = 0; i < b->field_count; i++) {
        const struct sp_http1_field *f = &b->fields[i];

        if (is_rewritten(f->name, is_request) || sp_str_eq(f->name, SP_STR("X-Extra")))
            continue;
        while (at < a->field_count && !(sp_str_eq(a->fields[at].name, f->name) &&
                                        sp_str_eq(a->fields[at].value, f->value)))
            at++;
        CHECK(at < a->field_count);
        at++;
    }
    CHECK(count(b, "Host") <= 1 || !is_request);
    CHECK(count(b, "Content-Length") + count(b, "Transfer-Encoding") <= 1);
    CHECK(count(b, "Connection") <= 1 && count(b, "Keep-Alive") == 0 && count(b, "TE") == 0);
    CHECK(count(b, "Proxy-Authorization") == 0 && count(b, "Proxy-Connection") == 0);
    CHECK(b->is_upgrade || count(b, "Upgrade") == 0);
}

static void check_equal(const struct sp_http1_head *a, const struct sp_http1_head *b,
                        unsigned choices)
{
    const bool is_request = (choices & IS_RESPONSE) == 0;

    CHECK(sp_str_eq(a->method, b->method) && sp_str_eq(a->host, b->host) && a->port == b->port);
    CHECK(a->status == b->status && sp_str_eq(a->reason, b->reason) && a->minor == b->minor);
    if (is_request && a->path.p[0] == '?')
        CHECK(b->path.n == a->path.n + 1 && b->path.p[0] == '/' &&
              memcmp(b->path.p + 1, a->path.p, a->path.n) == 0);
    else
        CHECK(sp_str_eq(a->path, b->path));
    /* A response without a body loses the fields that promise one. */
    CHECK(a->body == b->body && (a->length == b->length || a->status == 204));
    CHECK(a->is_upgrade == b->is_upgrade && a->expects_continue == b->expects_continue);
    if ((choices & CLOSES) != 0 && !a->is_upgrade)
        CHECK(!b->keeps_alive);
    check_fields(a, b, is_request);
}

static bool is_named(const struct sp_http1_head *h, const char *name)
{
    for (size_t i = 0; i < h->field_count; i++) {
        struct sp_str list = h->fields[i].value;

        if (!sp_str_eq_nocase(h->fields[i].name, SP_STR("Connection")))
            continue;
        while (list.n != 0)
            if (sp_str_eq_nocase(sp_str_trim(sp_str_cut(&list, ',')), sp_str_of(name)))
                return true;
    }
    return false;
}

static void check_written(const struct sp_http1_head *h, unsigned choices)
{
    const struct sp_str extra = (choices & HAS_EXTRA) != 0 ? SP_STR("X-Extra: 1\r\n") : SP_STR("");
    const bool closes = (choices & CLOSES) != 0;
    const bool is_absolute = (choices & IS_ABSOLUTE) != 0 && h->host.n != 0;
    auto_buf struct sp_buf out = {0};
    size_t scanned = 0;

    if ((choices & IS_RESPONSE) == 0 && h->form == SP_HTTP1_AUTHORITY)
        return; /* a CONNECT is answered, not written */
    if ((choices & IS_RESPONSE) != 0)
        CHECK(sp_http1_write_response(&out, h, closes));
    else
        CHECK(sp_http1_write_request(&out, h, is_absolute, extra, closes));
    check_clean(sp_buf_str(&out));
    if (out.len > SP_HTTP1_HEAD_MAX || h->field_count > SP_HTTP1_FIELDS_MAX - 4)
        return; /* what is added may be too much for a second reader */
    CHECK(sp_http1_head_length(sp_buf_str(&out), &scanned) == out.len);
    auto_free char *copy = fuzz_copy(out.data, out.len);
    CHECK(read_head((struct sp_str){copy, out.len}, choices, &second));
    struct sp_http1_head *wanted = &first;
    if (is_named(h, "Expect"))
        wanted->expects_continue = false; /* Connection may name it */
    check_equal(wanted, &second, choices);
}

/* ---- bodies ---- */

struct moved {
    ptrdiff_t taken; /* or the error */
    uint64_t payload;
    bool is_over;
};

static struct moved move_body(const struct sp_http1_head *h, struct sp_str in, size_t step,
                              struct sp_buf *out)
{
    struct moved m = {0};
    struct sp_http1_body b;
    size_t at = 0;
    size_t seen = 0;

    sp_http1_body_begin(&b, h);
    while (seen < in.n && !b.is_over) {
        seen = step < in.n - seen ? seen + step : in.n;
        m.taken = sp_http1_body_move(&b, (struct sp_str){in.p + at, seen - at}, out, &m.payload);
        if (m.taken < 0)
            return m;
        CHECK((size_t)m.taken <= seen - at);
        at += (size_t)m.taken;
        CHECK(b.is_over || seen - at <= SP_HTTP1_LINE_MAX);
    }
    m.taken = (ptrdiff_t)at;
    m.is_over = b.is_over;
    return m;
}

static void check_body(const struct sp_http1_head *h, struct sp_str in)
{
    auto_free char *copy = fuzz_copy(in.p, in.n);
    auto_buf struct sp_buf whole = {0};
    auto_buf struct sp_buf parts = {0};
    auto_buf struct sp_buf again = {0};
    const struct moved a = move_body(h, (struct sp_str){copy, in.n}, in.n, &whole);
    const struct moved b = move_body(h, in, in.n > 4096 ? 4096 : 1, &parts);

    CHECK(a.taken != -2 && a.taken == b.taken && a.is_over == b.is_over && a.payload == b.payload);
    CHECK(sp_str_eq(sp_buf_str(&whole), sp_buf_str(&parts)));
    CHECK(whole.len <= in.n || h->body == SP_HTTP1_CHUNKED);
    if (a.taken < 0)
        return;
    const struct moved c = move_body(h, sp_buf_str(&whole), whole.len, &again);
    CHECK(c.is_over == a.is_over && c.payload == a.payload);
    CHECK(c.taken == (ptrdiff_t)whole.len && sp_str_eq(sp_buf_str(&whole), sp_buf_str(&again)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    const unsigned choices = data[0];
    auto_free char *bytes = fuzz_copy(data + 1, size - 1);
    const struct sp_str all = {bytes, size - 1};
    const size_t n = head_length(all);

    CHECK(n <= all.n && n <= SP_HTTP1_HEAD_MAX + 1);
    if (n == 0)
        return 0;
    auto_free char *head = fuzz_copy(bytes, n);
    if (!read_head((struct sp_str){head, n}, choices, &first))
        return 0;
    check_body(&first, (struct sp_str){bytes + n, all.n - n});
    check_written(&first, choices);
    return 0;
}
