/* SPDX-License-Identifier: Apache-2.0 */
/*
 * delta: see delta.h.
 */
#include "engine/delta.h"

#include <assert.h>
#include <string.h>

#include "base/utf8.h"

void sp_delta_init(struct sp_delta *d, unsigned *quota, sp_delta_emit *emit, void *arg)
{
    *d = (struct sp_delta){
        .emit = emit, .arg = arg, .quota = quota, .frame_max = SP_DELTA_FRAME_MAX};
}

static size_t character_length(unsigned char lead)
{
    if (lead < 0xC2 || lead > 0xF4) /* ASCII, a continuation byte, or invalid in UTF-8 */
        return 1;
    return lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

/* Whether s, which does not begin with a continuation byte, is an incomplete character. */
static bool is_cut(struct sp_str s)
{
    const size_t whole = character_length((unsigned char)s.p[0]);

    if (s.n >= whole)
        return false;
    if (s.n == 1)
        return true;
    /* Only the second byte has special ranges, and it is present: any continuation bytes complete
     * it. */
    char text[4] = {(char)0x80, (char)0x80, (char)0x80, (char)0x80};
    memcpy(text, s.p, s.n);
    return sp_utf8_is_valid((struct sp_str){text, whole});
}

size_t sp_delta_boundary(struct sp_str s)
{
    for (size_t back = 1; back <= SP_DELTA_CARRY_MAX && back <= s.n; back++) {
        const struct sp_str end = {s.p + s.n - back, back};

        if (((unsigned char)end.p[0] & 0xC0) != 0x80)
            return is_cut(end) ? s.n - back : s.n;
    }
    return s.n;
}

static void send_frame(struct sp_delta *d, struct sp_str frame)
{
    if (frame.n == 0 || *d->quota == 0)
        return;
    --*d->quota;
    d->emit(d->arg, frame);
}

/* Sends the frame that begins with the carried bytes. Returns how many new bytes it took. */
static size_t send_carried(struct sp_delta *d, struct sp_str bytes)
{
    char frame[SP_DELTA_FRAME_MAX];
    const size_t old = d->carry_len;
    const size_t fresh = bytes.n < d->frame_max - old ? bytes.n : d->frame_max - old;

    memcpy(frame, d->carry, old);
    memcpy(frame + old, bytes.p, fresh);
    const size_t end = sp_delta_boundary((struct sp_str){frame, old + fresh});
    if (end == 0) { /* still incomplete: carry all of it */
        memcpy(d->carry, frame, old + fresh);
        d->carry_len = old + fresh;
        return fresh;
    }
    d->carry_len = 0;
    send_frame(d, (struct sp_str){frame, end});
    return end - old;
}

void sp_delta_push(struct sp_delta *d, struct sp_str bytes)
{
    assert(d->frame_max >= SP_DELTA_FRAME_MIN && d->frame_max <= SP_DELTA_FRAME_MAX);
    if (d->carry_len != 0 && bytes.n != 0) {
        const size_t taken = send_carried(d, bytes);

        bytes = (struct sp_str){bytes.p + taken, bytes.n - taken};
    }
    while (bytes.n != 0 && *d->quota != 0) {
        const size_t n = bytes.n < d->frame_max ? bytes.n : d->frame_max;
        const size_t end = sp_delta_boundary((struct sp_str){bytes.p, n});

        if (end == 0) { /* only an incomplete character is left */
            memcpy(d->carry, bytes.p, n);
            d->carry_len = n;
            return;
        }
        send_frame(d, (struct sp_str){bytes.p, end});
        bytes = (struct sp_str){bytes.p + end, bytes.n - end};
    }
}

void sp_delta_finish(struct sp_delta *d)
{
    const size_t n = d->carry_len;

    d->carry_len = 0;
    send_frame(d, (struct sp_str){d->carry, n});
}
