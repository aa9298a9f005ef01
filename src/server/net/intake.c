/* SPDX-License-Identifier: Apache-2.0 */
#include "server/net/intake.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

#define SMALL \
    (16U << 10) /* a rest up to this size moves to the scratch memory for the next receive */
#define AT_ONCE (256U << 10) /* the most bytes of one receive */
#define SLACK   (4U << 10)   /* room for small frames after a large one */
#define LARGE   (1U << 20)   /* a larger buffer is not kept for a few bytes */

void sp_intake_init(struct sp_intake *in, enum sp_ws_role role, size_t max_frame,
                    size_t max_message)
{
    *in = (struct sp_intake){
        .role = (uint8_t)role, .max_frame = max_frame, .max_message = max_message};
}

void sp_intake_release(struct sp_intake *in)
{
    if (!in->is_borrowed)
        free(in->data);
    in->data = NULL;
    in->is_borrowed = false;
    in->whole = in->valid = in->start = in->end = in->cap = 0;
}

void sp_intake_done(struct sp_intake *in)
{
    sp_intake_release(in);
    in->used = 0;
    in->patch = NULL;
}

/* ---- the buffer ---- */

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
            sp_intake_release(in);
        in->start = in->end = 0; /* an allocated buffer is kept until sp_intake_release */
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

static enum sp_intake_what control(uint8_t opcode, char *text, size_t len,
                                   struct sp_intake_event *ret)
{
    *ret = (struct sp_intake_event){.text = text, .len = len};
    if (opcode == SP_WS_PING)
        return SP_INTAKE_PING;
    if (opcode == SP_WS_PONG)
        return SP_INTAKE_PONG;
    if (!is_close(text, len))
        return set_bad(ret, SP_WS_PROTOCOL_ERROR, "malformed close frame");
    return SP_INTAKE_CLOSE;
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

static void begin_payload(struct sp_intake *in, const struct sp_ws_header *h)
{
    in->start += h->size;
    in->rest = h->len;
    in->taken = 0;
    memcpy(in->mask, h->mask, sizeof in->mask);
    in->is_last = h->is_final;
    if (in->opcode == 0)
        in->opcode = h->opcode;
    take_payload(in);
}

/* Delivers the message in `whole` once its last frame is complete. */
static enum sp_intake_what deliver_whole(struct sp_intake *in, bool may_deliver,
                                         struct sp_intake_event *ret)
{
    in->need = (size_t)in->rest;
    if (in->rest != 0)
        return SP_INTAKE_MORE;
    if (!may_deliver)
        return SP_INTAKE_HELD;
    in->is_done = true;
    return whole_message(in, in->opcode, in->valid == in->whole,
                         (struct sp_str){in->data, in->whole}, ret);
}

/* A complete control frame or unfragmented message is delivered in place. */
static enum sp_intake_what lone_frame(struct sp_intake *in, const struct sp_ws_header *h,
                                      struct sp_intake_event *ret)
{
    const bool is_control = sp_ws_is_control(h->opcode);
    char *payload = in->data + in->start + h->size;
    const struct sp_str text = {payload, (size_t)h->len};

    if (in->role == SP_WS_SERVER)
        sp_ws_mask(payload, text.n, h->mask, 0);
    in->used = in->need;
    return is_control ? control(h->opcode, payload, text.n, ret)
                      : whole_message(in, h->opcode, sp_utf8_is_valid(text), text, ret);
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

        if (in->rest != 0 || in->is_last)
            return deliver_whole(in, may_deliver, ret);
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
        begin_payload(in, &h);
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
