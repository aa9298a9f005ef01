/* SPDX-License-Identifier: Apache-2.0 */
#include "server/net/frames.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/base64.h"
#include "base/sha.h"
#include "base/utf8.h"

/* ---- frames ---- */

#define FIN      0x80
#define RESERVED 0x70
#define MASKED   0x80

static enum sp_ws_result bad(const char **ret_why, const char *why)
{
    *ret_why = why;
    return SP_WS_BAD;
}

static uint64_t big_endian(const uint8_t *p, size_t n)
{
    uint64_t v = 0;

    for (size_t i = 0; i < n; i++)
        v = v << 8 | p[i];
    return v;
}

enum sp_ws_result sp_ws_read_header(enum sp_ws_role role, const void *bytes, size_t n,
                                    struct sp_ws_header *ret, const char **ret_why)
{
    const uint8_t *p = bytes;

    if (n < 2)
        return SP_WS_MORE;
    const uint8_t opcode = p[0] & 0x0F;
    const bool is_final = (p[0] & FIN) != 0;
    const bool is_masked = (p[1] & MASKED) != 0;
    const uint8_t len7 = p[1] & 0x7F;

    if ((p[0] & RESERVED) != 0)
        return bad(ret_why, "frame with reserved bits set");
    if ((opcode > SP_WS_BINARY && opcode < SP_WS_CLOSE) || opcode > SP_WS_PONG)
        return bad(ret_why, "frame with a reserved opcode");
    if (is_masked != (role == SP_WS_SERVER))
        return bad(ret_why, is_masked ? "masked frame from a server" : "frame without a mask");
    if (sp_ws_is_control(opcode) && !is_final)
        return bad(ret_why, "fragmented control frame");
    if (sp_ws_is_control(opcode) && len7 > SP_WS_MAX_CONTROL)
        return bad(ret_why, "control frame above 125 bytes");

    const size_t extended = len7 == 126 ? 2 : len7 == 127 ? 8 : 0;
    const size_t size = 2 + extended + (is_masked ? 4 : 0);
    if (n < size)
        return SP_WS_MORE;
    const uint64_t len = extended == 0 ? len7 : big_endian(p + 2, extended);
    if (len >> 63 != 0)
        return bad(ret_why, "frame length with its top bit set");
    if ((extended == 2 && len < 126) || (extended == 8 && len <= UINT16_MAX))
        return bad(ret_why, "frame length not in its shortest form");

    *ret = (struct sp_ws_header){
        .len = len, .size = (uint8_t)size, .opcode = opcode, .is_final = is_final};
    if (is_masked)
        memcpy(ret->mask, p + size - 4, 4);
    return SP_WS_OK;
}

void sp_ws_mask(void *bytes, size_t n, const uint8_t mask[4], size_t at)
{
    sp_ws_mask_to(bytes, bytes, n, mask, at);
}

void sp_ws_mask_to(void *to, const void *from, size_t n, const uint8_t mask[4], size_t at)
{
    const uint8_t *in = from;
    uint8_t *out = to;
    uint8_t turned[8];
    uint64_t word;

    for (size_t i = 0; i < sizeof turned; i++)
        turned[i] = mask[(at + i) & 3];
    memcpy(&word, turned, sizeof word);

    size_t i = 0;
    for (; i + 32 <= n; i += 32) { /* four words at a time: compilers vectorize this */
        uint64_t v[4];

        memcpy(v, in + i, sizeof v);
        for (size_t k = 0; k < 4; k++)
            v[k] ^= word;
        memcpy(out + i, v, sizeof v);
    }
    for (; i < n; i++)
        out[i] = in[i] ^ turned[i & 7];
}

size_t sp_ws_header_size(uint64_t len, bool is_masked)
{
    const size_t size = len < 126 ? 2 : len <= UINT16_MAX ? 4 : 10;

    return is_masked ? size + 4 : size;
}

size_t sp_ws_write_header(void *out, enum sp_ws_opcode opcode, bool is_final, uint64_t len,
                          const uint8_t *mask)
{
    uint8_t *p = out;
    const size_t bare = sp_ws_header_size(len, false);

    p[0] = (uint8_t)((is_final ? FIN : 0) | (unsigned)opcode);
    p[1] = bare == 2 ? (uint8_t)len : bare == 4 ? 126 : 127;
    for (size_t i = bare - 1; i >= 2; i--, len >>= 8)
        p[i] = (uint8_t)len;
    if (mask == NULL)
        return bare;
    p[1] |= MASKED;
    memcpy(p + bare, mask, 4);
    return bare + 4;
}

bool sp_ws_accept(struct sp_str key, char ret[SP_WS_ACCEPT_LEN])
{
    static const char guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    char text[128 + sizeof guid];
    uint8_t digest[20];

    if (key.n > 128)
        return false;
    memcpy(text, key.p, key.n);
    memcpy(text + key.n, guid, sizeof guid - 1);
    sp_sha1((struct sp_str){text, key.n + sizeof guid - 1}, digest);
    (void)sp_base64_encode(ret, digest, sizeof digest);
    return true;
}

/* ---- intake ---- */

#define SMALL   (16U << 10)  /* a rest up to this size moves to the scratch memory */
#define AT_ONCE (256U << 10) /* the most bytes of one receive */
#define SLACK   (4U << 10)   /* room for small frames after a large one */
#define LARGE   (1U << 20)   /* a larger buffer is not kept for a few bytes */

static void free_buffer(struct sp_intake *in)
{
    if (!in->is_borrowed)
        free(in->data);
    in->data = NULL;
    in->is_borrowed = false;
    in->whole = in->valid = in->start = in->end = in->cap = 0;
}

void sp_intake_done(struct sp_intake *in)
{
    free_buffer(in);
    in->used = 0;
    in->patch = NULL;
}

static void close_gap(struct sp_intake *in)
{
    memmove(in->data + in->whole, in->data + in->start, in->end - in->start);
    in->end -= in->start - in->whole;
    in->start = in->whole;
}

/* Copies both parts to `to`, without the gap between them, and uses it as the buffer. */
static void move_to(struct sp_intake *in, char *to, size_t cap, bool is_borrowed)
{
    const size_t left = in->end - in->start;

    if (in->data != NULL) {
        memcpy(to, in->data, in->whole);
        memcpy(to + in->whole, in->data + in->start, left);
    }
    if (!in->is_borrowed)
        free(in->data);
    in->data = to;
    in->cap = cap;
    in->start = in->whole;
    in->end = in->whole + left;
    in->is_borrowed = is_borrowed;
}

/* Grows an allocated buffer. For large buffers realloc moves pages, not bytes, and unused pages are
 * not backed by memory. */
static bool grow(struct sp_intake *in, size_t cap)
{
    close_gap(in);
    char *more = realloc(in->data, cap + 1);

    if (more == NULL)
        return false;
    in->data = more;
    in->cap = cap;
    return true;
}

/* The capacity for the next receive: what the message needs, but at most twice the received bytes.
 * Unchanged while there is enough room, because each change may copy all received bytes. */
static size_t wanted(const struct sp_intake *in)
{
    const size_t have = sp_intake_size(in);
    const size_t roomy = have + SP_INTAKE_SCRATCH / 4;
    const size_t bound = in->cap >= roomy + SLACK       ? roomy
                         : have < SP_INTAKE_SCRATCH / 2 ? SP_INTAKE_SCRATCH
                                                        : have * 2;
    size_t need = in->whole + in->need > have ? in->whole + in->need : have + 1;

    if (in->mode == SP_INTAKE_LINES) /* the length of a line is unknown */
        need = bound;
    else if (in->opcode != 0 && need < in->max_message) /* so is that of a fragmented message */
        need = bound < in->max_message ? bound : in->max_message;
    return (need < bound ? need : bound) + SLACK;
}

char *sp_intake_room(struct sp_intake *in, char *scratch, size_t *ret_n)
{
    const size_t have = sp_intake_size(in);

    if (in->data == NULL || (have <= SMALL && in->cap < SP_INTAKE_SCRATCH)) {
        move_to(in, scratch, SP_INTAKE_SCRATCH, true);
    } else {
        const size_t want = wanted(in);

        if (in->cap < want && !grow(in, want))
            return NULL;
        if (in->cap - in->end < want - have)
            close_gap(in);
    }
    *ret_n = in->cap - in->end < AT_ONCE ? in->cap - in->end : AT_ONCE;
    return in->data + in->end;
}

/* Removes the last event from the buffer. */
static void consume(struct sp_intake *in)
{
    if (in->patch != NULL)
        *in->patch = in->patched;
    in->patch = NULL;
    in->start += in->used;
    if (in->used != 0)
        in->searched = 0;
    in->used = 0;
    if (in->is_done) {
        in->whole = in->valid = 0;
        in->opcode = 0;
        in->is_last = in->is_done = false;
    }
}

bool sp_intake_settle(struct sp_intake *in)
{
    consume(in);
    const size_t have = sp_intake_size(in);

    if (have == 0) {
        if (in->is_borrowed)
            free_buffer(in);
        in->start = in->end = 0; /* an allocated buffer is kept until sp_intake_done */
    } else if (in->is_borrowed || (in->cap > LARGE && have + in->rest <= SMALL)) {
        char *own = malloc(have + 1);

        if (own == NULL)
            return false;
        move_to(in, own, have, false);
    }
    return true;
}

void sp_intake_finish(struct sp_intake *in)
{
    consume(in);
    if (in->mode == SP_INTAKE_LINES && in->start != in->end)
        in->data[in->end++] = '\n'; /* uses the extra byte */
}

/* ---- events ---- */

static enum sp_intake_what set_bad(struct sp_intake_event *ret, enum sp_ws_status status,
                                   const char *why)
{
    *ret = (struct sp_intake_event){.why = why, .status = status};
    return SP_INTAKE_BAD;
}

static enum sp_intake_what message(struct sp_intake *in, char *text, size_t len,
                                   struct sp_intake_event *ret)
{
    in->patch = text + len;
    in->patched = *in->patch;
    *ret = (struct sp_intake_event){.text = text, .len = len};
    return SP_INTAKE_MESSAGE;
}

static bool is_blank(struct sp_str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] != ' ' && (s.p[i] < '\t' || s.p[i] > '\r'))
            return false;
    return true;
}

static enum sp_intake_what next_line(struct sp_intake *in, bool may_deliver,
                                     struct sp_intake_event *ret)
{
    for (;; consume(in)) {
        char *line = in->data + in->start;
        const size_t left = in->end - in->start;
        const char *lf =
            left == in->searched ? NULL : memchr(line + in->searched, '\n', left - in->searched);
        size_t n = lf == NULL ? left : (size_t)(lf - line);

        in->searched = n;
        if (n != 0 && line[n - 1] == '\r')
            n--;
        if (n > in->max_message && !in->keeps_on)
            return set_bad(ret, SP_WS_TOO_BIG, "line above the size limit");
        in->is_skipping |= n > in->max_message;
        if (lf == NULL) {
            in->need = in->max_message + 2;
            in->used = in->is_skipping ? left : 0;
            return SP_INTAKE_MORE;
        }
        if (!may_deliver)
            return SP_INTAKE_HELD;
        in->used = in->searched + 1;
        if (!in->is_skipping && is_blank((struct sp_str){line, n}))
            continue;
        const bool is_text = !in->is_skipping && sp_utf8_is_valid((struct sp_str){line, n});
        if (!is_text && in->keeps_on) {
            in->is_skipping = false;
            *ret = (struct sp_intake_event){0};
            return SP_INTAKE_NOT_TEXT;
        }
        if (!is_text)
            return set_bad(ret, SP_WS_NOT_TEXT, "line that is not UTF-8");
        return message(in, line, n, ret);
    }
}

/* Empty, or a status that is allowed on the wire and a reason in UTF-8. */
static bool is_close(const char *text, size_t len)
{
    if (len < 2)
        return len == 0;
    const unsigned status = (unsigned)(uint8_t)text[0] << 8 | (uint8_t)text[1];
    const bool is_known = (status >= 1000 && status <= 1003) ||
                          (status >= 1007 && status <= 1014) || (status >= 3000 && status <= 4999);

    return is_known && sp_utf8_is_valid((struct sp_str){text + 2, len - 2});
}

/* Whether the header is valid after the earlier frames. */
static bool fits(const struct sp_intake *in, const struct sp_ws_header *h,
                 struct sp_intake_event *ret)
{
    if (sp_ws_is_control(h->opcode))
        return true;
    if (h->opcode == SP_WS_CONTINUATION && in->opcode == 0)
        (void)set_bad(ret, SP_WS_PROTOCOL_ERROR, "continuation of nothing");
    else if (h->opcode != SP_WS_CONTINUATION && in->opcode != 0)
        (void)set_bad(ret, SP_WS_PROTOCOL_ERROR, "new message inside a fragmented one");
    else if (h->len > in->max_frame)
        (void)set_bad(ret, SP_WS_TOO_BIG, "frame above the size limit");
    else if (h->len > in->max_message - in->whole)
        (void)set_bad(ret, SP_WS_TOO_BIG, "message above the size limit");
    else
        return true;
    return false;
}

static enum sp_intake_what whole_message(struct sp_intake *in, uint8_t opcode, bool is_valid,
                                         struct sp_str text, struct sp_intake_event *ret)
{
    if (is_valid)
        return message(in, (char *)(uintptr_t)text.p, text.n, ret);
    if (opcode == SP_WS_TEXT)
        return set_bad(ret, SP_WS_NOT_TEXT, "text message that is not UTF-8");
    *ret = (struct sp_intake_event){0};
    return SP_INTAKE_NOT_TEXT;
}

/* Moves the received payload of a frame to `whole`. An unfinished UTF-8 character is checked again
 * with the next bytes; invalid text is refused at the end of the message. */
static void take_payload(struct sp_intake *in)
{
    const size_t left = in->end - in->start;
    const size_t n = left < in->rest ? left : (size_t)in->rest;
    char *to = in->data + in->whole;
    const char *from = in->data + in->start;

    if (in->role == SP_WS_SERVER)
        sp_ws_mask_to(to, from, n, in->mask, in->taken);
    else if (to != from)
        memmove(to, from, n);
    in->whole += n;
    in->start += n;
    in->taken += n;
    in->rest -= n;
    if (in->start == in->end)
        in->start = in->end = in->whole; /* the next bytes are received at their final place */
    in->valid += sp_utf8_valid_prefix((struct sp_str){in->data + in->valid, in->whole - in->valid});
}

/* A complete control frame or unfragmented message is delivered in place. */
static enum sp_intake_what lone_frame(struct sp_intake *in, const struct sp_ws_header *h,
                                      struct sp_intake_event *ret)
{
    char *payload = in->data + in->start + h->size;
    const struct sp_str text = {payload, (size_t)h->len};

    if (in->role == SP_WS_SERVER)
        sp_ws_mask(payload, text.n, h->mask, 0);
    in->used = in->need;
    if (!sp_ws_is_control(h->opcode))
        return whole_message(in, h->opcode, sp_utf8_is_valid(text), text, ret);
    *ret = (struct sp_intake_event){.text = payload, .len = text.n};
    if (h->opcode == SP_WS_PING)
        return SP_INTAKE_PING;
    if (h->opcode == SP_WS_PONG)
        return SP_INTAKE_PONG;
    return is_close(payload, text.n) ? SP_INTAKE_CLOSE
                                     : set_bad(ret, SP_WS_PROTOCOL_ERROR, "malformed close frame");
}

static enum sp_intake_what next_frame(struct sp_intake *in, bool may_deliver,
                                      struct sp_intake_event *ret)
{
    if (in->rest != 0)
        take_payload(in);
    for (;;) {
        const size_t left = in->end - in->start;
        struct sp_ws_header h;
        const char *why;

        if (in->rest != 0 ||
            in->is_last) { /* `whole` is delivered when its last frame is complete */
            in->need = (size_t)in->rest;
            if (in->rest != 0)
                return SP_INTAKE_MORE;
            if (!may_deliver)
                return SP_INTAKE_HELD;
            in->is_done = true;
            return whole_message(in, in->opcode, in->valid == in->whole,
                                 (struct sp_str){in->data, in->whole}, ret);
        }
        in->need = SP_WS_MAX_HEADER;
        switch (
            sp_ws_read_header((enum sp_ws_role)in->role, in->data + in->start, left, &h, &why)) {
        case SP_WS_MORE:
            return SP_INTAKE_MORE;
        case SP_WS_BAD:
            return set_bad(ret, SP_WS_PROTOCOL_ERROR, why);
        case SP_WS_OK:
            break;
        }
        if (!fits(in, &h, ret))
            return SP_INTAKE_BAD;
        in->need = h.size + (size_t)h.len;
        const bool is_there = left >= in->need;
        const bool is_lone = sp_ws_is_control(h.opcode) || (h.is_final && in->opcode == 0);
        if (is_there && h.is_final && !sp_ws_is_control(h.opcode) && !may_deliver)
            return SP_INTAKE_HELD;
        if (is_lone && is_there)
            return lone_frame(in, &h, ret);
        if (is_lone && in->need <= SMALL)
            return SP_INTAKE_MORE;
        in->start += h.size;
        in->rest = h.len;
        in->taken = 0;
        memcpy(in->mask, h.mask, sizeof in->mask);
        in->is_last = h.is_final;
        if (in->opcode == 0)
            in->opcode = h.opcode;
        take_payload(in);
    }
}

enum sp_intake_what sp_intake_next(struct sp_intake *in, bool may_deliver,
                                   struct sp_intake_event *ret)
{
    consume(in);
    if (in->data == NULL || in->mode == SP_INTAKE_RAW)
        return SP_INTAKE_MORE;
    return in->mode == SP_INTAKE_LINES ? next_line(in, may_deliver, ret)
                                       : next_frame(in, may_deliver, ret);
}

/* ---- outq ---- */

#define OUT_FIRST 4096U
#define OUT_SMALL (64U << 10)  /* up to here a buffer grows with its contents */
#define OUT_BUSY  (512U << 10) /* the next size: fits the queue of a busy link */
/* An empty buffer up to this size is kept: fits a file of 1 MiB in base64. */
#define OUT_KEEP (4U << 20)

void sp_outq_done(struct sp_outq *q)
{
    free(q->data);
    *q = (struct sp_outq){.fragment = q->fragment, .is_masked = q->is_masked};
}

/*
 * Makes room for n bytes at the end. Bytes are moved to the front only when at least half as many
 * were sent before them, and a new buffer is a quarter larger than needed: each byte is moved a
 * bounded number of times.
 */
static bool outq_ensure(struct sp_outq *q, size_t n)
{
    const size_t size = sp_outq_size(q);

    if (n <= q->cap - q->end)
        return true;
    if (n > SIZE_MAX / 4 || size > SIZE_MAX / 4)
        return false;
    if (q->start >= size / 2 && n <= q->cap - size) {
        memmove(q->data, q->data + q->start, size);
    } else {
        const size_t need = size + n + (size + n) / 4;
        const size_t cap = need <= OUT_FIRST                     ? OUT_FIRST
                           : need > OUT_SMALL && need < OUT_BUSY ? OUT_BUSY
                                                                 : need;
        char *data = malloc(cap);

        if (data == NULL)
            return false;
        if (size != 0)
            memcpy(data, q->data + q->start, size);
        free(q->data);
        q->data = data;
        q->cap = cap;
    }
    q->start = 0;
    q->end = size;
    return true;
}

/* Room before the text, for the header of the first frame. */
static size_t head_room(const struct sp_outq *q, size_t max)
{
    if (q->fragment == 0)
        return 0;
    return sp_ws_header_size(max < q->fragment ? max : q->fragment, q->is_masked);
}

char *sp_outq_reserve(struct sp_outq *q, size_t max)
{
    assert(q->reserved == 0);
    if (max > SIZE_MAX / 8)
        return NULL;
    q->head_room = head_room(q, max);
    /* After the text: the end of the line, and the headers of further frames. */
    const size_t tail = q->fragment == 0 ? 0 : max / q->fragment * SP_WS_MAX_HEADER;
    if (!outq_ensure(q, q->head_room + max + tail + 1))
        return NULL;
    q->reserved = max + 1;
    return q->data + q->end + q->head_room;
}

/* Writes the header before n payload bytes that are in place, and masks them; returns the end. */
static char *finish_frame(const struct sp_outq *q, char *frame, enum sp_ws_opcode opcode,
                          bool is_final, size_t n)
{
    uint8_t mask[4] = {0};

    if (q->is_masked)
        (void)!getrandom(mask, sizeof mask, 0); /* so few bytes never fail */
    const size_t header =
        sp_ws_write_header(frame, opcode, is_final, n, q->is_masked ? mask : NULL);
    if (q->is_masked)
        sp_ws_mask(frame + header, n, mask, 0);
    return frame + header + n;
}

void sp_outq_commit(struct sp_outq *q, size_t len, bool is_first, bool is_last)
{
    assert(len == 0 || len < q->reserved);
    q->reserved = 0;
    if (len == 0)
        return;
    if (q->fragment == 0) {
        q->end += len;
        if (is_last)
            q->data[q->end++] = '\n';
        return;
    }
    if (len > q->fragment) {
        const size_t header = sp_ws_header_size(q->fragment, q->is_masked);
        const size_t last = (len - 1) / q->fragment;
        char *first = q->data + q->end;

        assert(is_first && is_last);
        /* Several frames. The first is in its place; those behind it move to the right, the last
         * one first, by the headers before them: all but the last have a header of the same size.
         */
        for (size_t i = last; i > 0; i--) {
            const size_t n = i == last ? len - last * q->fragment : q->fragment;
            char *at = first + i * (header + q->fragment);

            memmove(at + sp_ws_header_size(n, q->is_masked), first + header + i * q->fragment, n);
            at = finish_frame(q, at, SP_WS_CONTINUATION, i == last, n);
            if (i == last)
                q->end = (size_t)(at - q->data);
        }
        (void)finish_frame(q, first, SP_WS_TEXT, false, q->fragment);
        return;
    }
    char *frame = q->data + q->end;
    char *to = frame + sp_ws_header_size(len, q->is_masked);
    if (to != frame + q->head_room) /* the text is so short that its header is: it moves left */
        memmove(to, frame + q->head_room, len);
    frame = finish_frame(q, frame, is_first ? SP_WS_TEXT : SP_WS_CONTINUATION, is_last, len);
    q->end = (size_t)(frame - q->data);
}

bool sp_outq_control(struct sp_outq *q, enum sp_ws_opcode opcode, const void *bytes, size_t n)
{
    assert(q->reserved == 0 && n <= SP_WS_MAX_CONTROL);
    const size_t header = sp_ws_header_size(n, q->is_masked);

    if (!outq_ensure(q, header + n))
        return false;
    char *frame = q->data + q->end;
    if (n != 0)
        memcpy(frame + header, bytes, n);
    q->end = (size_t)(finish_frame(q, frame, opcode, true, n) - q->data);
    return true;
}

bool sp_outq_raw(struct sp_outq *q, const void *bytes, size_t n)
{
    if (!outq_ensure(q, n))
        return false;
    if (n != 0)
        memcpy(q->data + q->end, bytes, n);
    q->end += n;
    return true;
}

void sp_outq_sent(struct sp_outq *q, size_t n)
{
    q->start += n;
    if (q->start != q->end)
        return;
    q->start = q->end = 0;
    if (q->cap > OUT_KEEP)
        sp_outq_done(q);
}
