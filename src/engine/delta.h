/* SPDX-License-Identifier: Apache-2.0 */
/*
 * delta: the output of a process as frames for live viewers.
 *
 * Frames have a maximum size, a call has a maximum number of them, and no frame ends inside a UTF-8
 * character: up to three bytes of an incomplete one are carried over. Ill-formed bytes are passed
 * on unchanged. No memory is allocated.
 */
#ifndef SP_ENGINE_DELTA_H
#define SP_ENGINE_DELTA_H

#include <stddef.h>

#include "base/str.h"

#define SP_DELTA_FRAME_MAX 8192
#define SP_DELTA_FRAME_MIN 4 /* the longest character; a smaller frame could never hold it */
#define SP_DELTA_QUOTA     10000
#define SP_DELTA_CARRY_MAX 3

/* The frame is valid during the call, and never empty. */
typedef void sp_delta_emit(void *arg, struct sp_str frame);

struct sp_delta {
    sp_delta_emit *emit;
    void *arg;
    unsigned *quota;  /* frames that may still be sent; shared by the streams of a call */
    size_t frame_max; /* SP_DELTA_FRAME_MIN to SP_DELTA_FRAME_MAX */
    size_t carry_len;
    char carry[SP_DELTA_CARRY_MAX];
};

void sp_delta_init(struct sp_delta *d, unsigned *quota, sp_delta_emit *emit, void *arg);

void sp_delta_push(struct sp_delta *d, struct sp_str bytes);

/* The stream has ended: sends the carried bytes as they are. */
void sp_delta_finish(struct sp_delta *d);

/* Start of the character that the end of s cuts; s.n if it cuts none. */
size_t sp_delta_boundary(struct sp_str s);

#endif
