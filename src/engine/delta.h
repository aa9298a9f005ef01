/* SPDX-License-Identifier: Apache-2.0 */
/*
 * delta: the output of a process as frames for whoever watches it live.
 *
 * Frames have a largest size, a call has a largest number of them, and none ends within a
 * character: a character that is not yet whole waits for its rest, at most three bytes. What is
 * ill-formed is nobody's character and goes out as it is, in bulk. It keeps no output, knows no
 * clock, and allocates nothing.
 */
#ifndef SP_ENGINE_DELTA_H
#define SP_ENGINE_DELTA_H

#include <stddef.h>

#include "base/str.h"

#define SP_DELTA_FRAME_MAX 8192
#define SP_DELTA_FRAME_MIN 4 /* the longest character: less would never get past it */
#define SP_DELTA_QUOTA     10000
#define SP_DELTA_CARRY_MAX 3

/* The frame is borrowed for the call, and never empty. */
typedef void sp_delta_emit(void *arg, struct sp_str frame);

struct sp_delta {
    sp_delta_emit *emit;
    void *arg;
    unsigned *quota;  /* frames that may still be sent; the call's, shared by its streams */
    size_t frame_max; /* SP_DELTA_FRAME_MIN to SP_DELTA_FRAME_MAX */
    size_t carry_len;
    char carry[SP_DELTA_CARRY_MAX];
};

void sp_delta_init(struct sp_delta *d, unsigned *quota, sp_delta_emit *emit, void *arg);

void sp_delta_push(struct sp_delta *d, struct sp_str bytes);

/* The stream has ended: what waits for its rest is sent as it is. */
void sp_delta_finish(struct sp_delta *d);

/* Where the character begins that the end of s cuts, or s.n if it cuts none. */
size_t sp_delta_boundary(struct sp_str s);

#endif
