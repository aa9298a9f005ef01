/* SPDX-License-Identifier: Apache-2.0 */
/*
 * marks: how much of a link's output its peer has read.
 *
 * A mark stands behind the output that was queued before it. On a WebSocket it is a ping with the
 * number of the mark, and the pong confirms that output: RFC 6455 obliges the peer to answer, and
 * lets it answer only the newest of several pings, so a pong confirms all earlier marks, too. A
 * peer that sends no pong for SP_MARKS_PONG_MS is believed to have read what its kernel has
 * acknowledged. Without frames, the kernel tells how many bytes the peer has not read yet.
 */
#ifndef SP_SERVER_NET_MARKS_H
#define SP_SERVER_NET_MARKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SP_MARKS_MAX     8    /* marks under way; the next one waits for one of them */
#define SP_MARKS_PONG_MS 2000 /* how long a pong may take */
#define SP_MARKS_BYTES   8    /* payload of the ping */

struct sp_marks {
    uint64_t made, confirmed; /* numbers of the newest marks; those between are under way */
    bool is_wanted;           /* number made + 1 was promised */
    bool has_ponged;          /* the peer has answered a mark */
    bool is_deaf;             /* it has left the first one unanswered: acknowledged is read */
    uint32_t pause_ms;        /* between two looks at the kernel's queue */
    uint64_t look_ms;         /* the next look; 0: none */
    struct {
        uint64_t offset; /* bytes of the link before the end of the mark */
        uint64_t made_ms;
    } of[SP_MARKS_MAX];
};

/* The number of the mark that will stand behind all output queued so far. */
static inline uint64_t sp_marks_next(const struct sp_marks *m)
{
    return m->made + 1;
}

static inline bool sp_marks_are_under_way(const struct sp_marks *m)
{
    return m->made != m->confirmed;
}

/* Whether the promised mark may be made now. */
static inline bool sp_marks_are_due(const struct sp_marks *m)
{
    return m->is_wanted && m->made - m->confirmed < SP_MARKS_MAX;
}

/* Makes the promised mark; `offset` counts the bytes of the link before its end. With `pings` the
 * link sends the payload, SP_MARKS_BYTES, as a ping. */
void sp_marks_make(struct sp_marks *m, bool pings, uint64_t offset, uint64_t now_ms,
                   uint8_t *ret_payload);

/* A pong. true: `confirmed` has grown. */
static inline bool sp_marks_pong(struct sp_marks *m, const char *payload, size_t n)
{
    uint64_t number = 0;

    if (n != SP_MARKS_BYTES)
        return false;
    for (unsigned i = 0; i < SP_MARKS_BYTES; i++)
        number = number << 8 | (uint8_t)payload[i];
    if (number > m->made || number <= m->confirmed)
        return false;
    m->has_ponged = true;
    m->is_deaf = false;
    m->confirmed = number;
    return true;
}

/* Made before all others under way. */
static inline uint64_t sp_marks_oldest_ms(const struct sp_marks *m)
{
    return m->of[(m->confirmed + 1) % SP_MARKS_MAX].made_ms;
}

/* Whether the kernel's queue tells something now, which sp_marks_look has to be told. */
static inline bool sp_marks_wants_look(const struct sp_marks *m, bool pings, uint64_t now_ms)
{
    if (m->look_ms != 0 && now_ms >= m->look_ms)
        return true;
    return sp_marks_are_under_way(m) &&
           (!pings || m->is_deaf || now_ms - sp_marks_oldest_ms(m) >= SP_MARKS_PONG_MS);
}
/* The peer, or its kernel, has taken `taken` bytes of the link. true: `confirmed` has grown. */
bool sp_marks_look(struct sp_marks *m, bool pings, uint64_t taken, uint64_t now_ms);

#endif
