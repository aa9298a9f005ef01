/* SPDX-License-Identifier: Apache-2.0 */
/* The sending half of http1: heads that are written anew, and bodies that pass. */
#include <inttypes.h>

#include "proxy/http1.h"
#include "proxy/http1_priv.h"

/* ---- fields that end here ---- */

static bool is_one_of(struct sp_str name, const char *const *names)
{
    for (; *names != NULL; names++)
        if (sp_str_eq_nocase(name, sp_str_of(*names)))
            return true;
    return false;
}

/* About one connection, or written from the struct instead. */
static bool is_hop_by_hop(struct sp_str name)
{
    static const char *const names[] = {"Connection",     "Keep-Alive",        "TE", "Upgrade",
                                        "Content-Length", "Transfer-Encoding", NULL};
    const struct sp_str proxy = SP_STR("Proxy-");

    return (name.n >= proxy.n && sp_str_eq_nocase((struct sp_str){name.p, proxy.n}, proxy)) ||
           is_one_of(name, names);
}

/* The fields that Connection names; the reader bounds their number. */
struct options {
    struct sp_str names[SP_HTTP1_OPTIONS_MAX];
    size_t count;
};

static void find_options(const struct sp_http1_head *h, struct options *ret)
{
    ret->count = 0;
    for (size_t i = 0; i < h->field_count; i++) {
        struct sp_str list = h->fields[i].value;

        if (!sp_str_eq_nocase(h->fields[i].name, SP_STR("Connection")))
            continue;
        while (list.n != 0 && ret->count < SP_HTTP1_OPTIONS_MAX) {
            const struct sp_str option = sp_str_trim(sp_str_cut(&list, ','));

            if (option.n != 0)
                ret->names[ret->count++] = option;
        }
    }
}

static bool is_named(const struct options *o, struct sp_str name)
{
    for (size_t i = 0; i < o->count; i++)
        if (sp_str_eq_nocase(o->names[i], name))
            return true;
    return false;
}

/* ---- heads ---- */

static bool add_field(struct sp_buf *out, struct sp_str name, struct sp_str value)
{
    return sp_buf_add_str(out, name) && sp_buf_add(out, ": ", 2) && sp_buf_add_str(out, value) &&
           sp_buf_add(out, "\r\n", 2);
}

static bool add_end_to_end(struct sp_buf *out, const struct sp_http1_head *h)
{
    const bool is_request = h->status == 0;
    struct options options;

    find_options(h, &options);
    for (size_t i = 0; i < h->field_count; i++) {
        const struct sp_http1_field *f = &h->fields[i];

        if (is_request && sp_str_eq_nocase(f->name, SP_STR("Host")))
            continue;
        if (!(h->is_upgrade && sp_str_eq_nocase(f->name, SP_STR("Upgrade"))) &&
            (is_hop_by_hop(f->name) || is_named(&options, f->name)))
            continue;
        if (!add_field(out, f->name, f->value))
            return false;
    }
    return true;
}

/* A response to HEAD, or 304, has the fields of a body that does not follow. */
static bool add_absent_framing(struct sp_buf *out, const struct sp_http1_head *h)
{
    if (h->status < 200 || h->status == 204)
        return true;
    for (size_t i = 0; i < h->field_count; i++)
        if (sp_str_eq_nocase(h->fields[i].name, SP_STR("Content-Length")) ||
            sp_str_eq_nocase(h->fields[i].name, SP_STR("Transfer-Encoding")))
            return add_field(out, h->fields[i].name, h->fields[i].value);
    return true;
}

static bool add_framing(struct sp_buf *out, const struct sp_http1_head *h)
{
    switch (h->body) {
    case SP_HTTP1_LENGTH:
        return sp_buf_printf(out, "Content-Length: %" PRIu64 "\r\n", h->length);
    case SP_HTTP1_CHUNKED:
        return sp_buf_add_str(out, SP_STR("Transfer-Encoding: chunked\r\n"));
    case SP_HTTP1_NO_BODY:
        return add_absent_framing(out, h);
    case SP_HTTP1_UNTIL_CLOSE:
        break;
    }
    return true;
}

static bool add_connection(struct sp_buf *out, const struct sp_http1_head *h, bool closes)
{
    if (h->is_upgrade) /* together with close, servers differ about what is meant */
        return sp_buf_add_str(out, SP_STR("Connection: upgrade\r\n"));
    if (closes)
        return sp_buf_add_str(out, SP_STR("Connection: close\r\n"));
    if (h->minor == 0 && h->keeps_alive)
        return sp_buf_add_str(out, SP_STR("Connection: keep-alive\r\n"));
    return true;
}

static bool add_authority(struct sp_buf *out, const struct sp_http1_head *h)
{
    const bool is_v6 = h->host.n != 0 && memchr(h->host.p, ':', h->host.n) != NULL;

    return sp_buf_add(out, "[", is_v6) && sp_buf_add_str(out, h->host) &&
           sp_buf_add(out, "]", is_v6) && (h->port == 80 || sp_buf_printf(out, ":%u", h->port));
}

static bool add_target(struct sp_buf *out, const struct sp_http1_head *h, bool is_absolute)
{
    if (is_absolute) {
        if (!sp_buf_add_str(out, SP_STR("http://")) || !add_authority(out, h))
            return false;
        if (sp_str_eq(h->path, SP_STR("*")))
            return true; /* the last proxy makes it an asterisk again */
    }
    return sp_buf_add(out, "/", h->path.p[0] == '?') && sp_buf_add_str(out, h->path);
}

/* Removes a head that did not fit. */
static bool end_head(struct sp_buf *out, size_t start, bool is_whole)
{
    if (is_whole && sp_buf_add(out, "\r\n", 2))
        return true;
    out->len = start;
    return false;
}

bool sp_http1_write_request(struct sp_buf *out, const struct sp_http1_head *h, bool is_absolute,
                            struct sp_str extra, bool closes)
{
    const size_t start = out->len;
    bool is_whole = sp_buf_add_str(out, h->method) && sp_buf_add(out, " ", 1) &&
                    add_target(out, h, is_absolute) &&
                    sp_buf_printf(out, " HTTP/1.%d\r\n", h->minor);

    if (is_whole && h->host.n != 0)
        is_whole = sp_buf_add_str(out, SP_STR("Host: ")) && add_authority(out, h) &&
                   sp_buf_add(out, "\r\n", 2);
    is_whole = is_whole && add_end_to_end(out, h) && add_framing(out, h) &&
               add_connection(out, h, closes) && sp_buf_add_str(out, extra);
    return end_head(out, start, is_whole);
}

bool sp_http1_write_response(struct sp_buf *out, const struct sp_http1_head *h, bool closes)
{
    const size_t start = out->len;
    const bool is_whole = sp_buf_printf(out, "HTTP/1.%d %03d ", h->minor, h->status) &&
                          sp_buf_add_str(out, h->reason) && sp_buf_add(out, "\r\n", 2) &&
                          add_end_to_end(out, h) && add_framing(out, h) &&
                          add_connection(out, h, closes);

    return end_head(out, start, is_whole);
}

/* ---- bodies ---- */

/* SIZE --> (0) TRAILER
 *   |  ^
 *   v  '---------.
 *  DATA --> DATA_END */
enum state { SIZE, DATA, DATA_END, TRAILER };

enum { MALFORMED = -1, NO_MEMORY = -2 };

void sp_http1_body_begin(struct sp_http1_body *b, const struct sp_http1_head *h)
{
    *b = (struct sp_http1_body){.kind = h->body, .state = SIZE};
    if (h->body == SP_HTTP1_LENGTH)
        b->left = h->length;
    b->is_over = h->body == SP_HTTP1_NO_BODY || (h->body == SP_HTTP1_LENGTH && h->length == 0);
}

/* Reads one line with its CR LF. Bytes it takes; 0: not complete. */
static ptrdiff_t read_line(struct sp_http1_body *b, struct sp_str in, struct sp_str *ret)
{
    for (size_t i = b->line; i < in.n; i++) {
        if (i == SP_HTTP1_LINE_MAX || sp_http1_is_stray(in, i))
            return MALFORMED;
        if (in.p[i] == '\n') {
            *ret = (struct sp_str){in.p, i - 1};
            b->line = 0;
            return (ptrdiff_t)i + 1;
        }
    }
    b->line = (uint32_t)in.n; /* at most SP_HTTP1_LINE_MAX */
    return 0;
}

/* HEX or HEX;EXTENSION. */
static bool read_size(struct sp_str line, uint64_t *ret)
{
    const struct sp_str digits = sp_str_cut(&line, ';');

    *ret = 0;
    for (size_t i = 0; i < digits.n; i++) {
        const int digit = sp_hex_digit(digits.p[i]);

        if (digit < 0 || i == 16)
            return false;
        *ret = *ret << 4 | (unsigned)digit;
    }
    return digits.n != 0 && *ret <= INT64_MAX;
}

static int take_size(struct sp_http1_body *b, struct sp_str line, struct sp_buf *out)
{
    uint64_t size = 0;

    if (!read_size(line, &size))
        return MALFORMED;
    if (!sp_buf_printf(out, "%" PRIx64 "\r\n", size))
        return NO_MEMORY;
    b->left = size;
    b->state = size == 0 ? TRAILER : DATA;
    return 0;
}

/* Fields that mean something in a head alone. A reader that merges trailers into the head must not
 * find them. */
static bool is_for_heads(struct sp_str name)
{
    static const char *const names[] = {"Host",
                                        "Trailer",
                                        "Expect",
                                        "Max-Forwards",
                                        "Content-Type",
                                        "Content-Range",
                                        "Content-Encoding",
                                        "Authorization",
                                        "Cookie",
                                        "Set-Cookie",
                                        "Location",
                                        "Range",
                                        NULL};

    return is_hop_by_hop(name) || is_one_of(name, names);
}

static int take_trailer(struct sp_http1_body *b, struct sp_str line, struct sp_buf *out)
{
    struct sp_http1_field f;

    if (line.n == 0) {
        b->is_over = true;
        return sp_buf_add(out, "\r\n", 2) ? 0 : NO_MEMORY;
    }
    b->trailers += (uint32_t)line.n + 2;
    if (b->trailers > SP_HTTP1_HEAD_MAX || sp_http1_read_field(line, &f) != NULL)
        return MALFORMED;
    return is_for_heads(f.name) || add_field(out, f.name, f.value) ? 0 : NO_MEMORY;
}

static ptrdiff_t move_line(struct sp_http1_body *b, struct sp_str in, struct sp_buf *out)
{
    struct sp_str line = {NULL, 0};
    int wrong = 0;

    if (b->state == DATA_END && in.p[0] != '\r')
        return MALFORMED; /* without waiting for the end of the line */
    const ptrdiff_t n = read_line(b, in, &line);
    if (n <= 0)
        return n;
    if (b->state == SIZE) {
        wrong = take_size(b, line, out);
    } else if (b->state == TRAILER) {
        wrong = take_trailer(b, line, out);
    } else {
        wrong = line.n != 0 ? MALFORMED : sp_buf_add(out, "\r\n", 2) ? 0 : NO_MEMORY;
        b->state = SIZE;
    }
    return wrong < 0 ? wrong : n;
}

static ptrdiff_t move_payload(struct sp_http1_body *b, struct sp_str in, struct sp_buf *out)
{
    const bool is_endless = b->kind == SP_HTTP1_UNTIL_CLOSE;
    const size_t n = !is_endless && b->left < in.n ? (size_t)b->left : in.n;

    if (!sp_buf_add(out, in.p, n))
        return NO_MEMORY;
    b->left -= is_endless ? 0 : n;
    if (!is_endless && b->left == 0) {
        b->is_over = b->kind == SP_HTTP1_LENGTH;
        b->state = DATA_END;
    }
    return (ptrdiff_t)n;
}

ptrdiff_t sp_http1_body_move(struct sp_http1_body *b, struct sp_str in, struct sp_buf *out,
                             uint64_t *ret_payload)
{
    size_t taken = 0;

    while (!b->is_over && taken < in.n) {
        const struct sp_str rest = {in.p + taken, in.n - taken};
        const bool is_payload = b->kind != SP_HTTP1_CHUNKED || b->state == DATA;
        const ptrdiff_t n = is_payload ? move_payload(b, rest, out) : move_line(b, rest, out);

        if (n < 0)
            return n;
        if (n == 0)
            break;
        if (is_payload)
            *ret_payload += (uint64_t)n;
        taken += (size_t)n;
    }
    return (ptrdiff_t)taken;
}
