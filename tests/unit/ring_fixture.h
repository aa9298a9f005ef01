/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RING_FIXTURE_H
#define RING_FIXTURE_H

#include <unistd.h>

#include "base/auto.h"
#include "cell/ring.h"
#include "test.h"

/* Both sides of a segment in one process. */
struct rings {
    struct sp_segment *front, *cell;
};

static inline struct rings make_rings(void)
{
    struct rings r;
    struct sp_err e = {0};

    assert_int_equal(sp_segment_new(8, &r.front, &e), 0);
    assert_int_equal(sp_segment_take(&r.front->fd, true, &r.cell, &e), 0);
    assert_int_equal(r.front->fd, -1);
    return r;
}

static inline void drop_rings(struct rings *r)
{
    sp_segment_drop(TAKE_PTR(r->front));
    sp_segment_drop(TAKE_PTR(r->cell));
}

/* The log of process `number` in a place of it, which both sides know. */
static inline void begin_ring(const struct rings *s, uint32_t place, uint64_t number,
                              struct sp_ring *ret, struct sp_ring_view *ret_view)
{
    struct sp_err e = {0};

    sp_ring_begin(ret, s->cell, place, number);
    assert_int_equal(sp_ring_view_open(s->front, place, number, ret_view, &e), 0);
}

#endif
