/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mirror_event: the mirror from inside, for mirror.c and mirror_read.c.
 */
#ifndef SP_ENGINE_REMOTE_MIRROR_EVENT_H
#define SP_ENGINE_REMOTE_MIRROR_EVENT_H

#include "engine/remote/mirror.h"

enum sp_mirror_kind { SP_MIRROR_OUTPUT, SP_MIRROR_GAP, SP_MIRROR_EXIT, SP_MIRROR_CLOSE };

struct sp_mirror_event {
    struct sp_mirror_event *next;
    uint64_t seq; /* a gap: of what comes after it, or 0 */
    enum sp_mirror_kind kind;
    enum sp_stream stream;
    int code, denied;
    size_t size;
    char bytes[];
};

struct sp_mirror_event *sp_mirror_event_new(enum sp_mirror_kind kind, uint64_t seq,
                                            struct sp_str bytes, struct sp_err *e);
/* To the end of those that wait; its number is known now. */
void sp_mirror_wait(struct sp_mirror *m, struct sp_mirror_event *ev);
struct sp_mirror_event *sp_mirror_take_held(struct sp_mirror *m);
void sp_mirror_catch_up(struct sp_mirror *m);

#endif
