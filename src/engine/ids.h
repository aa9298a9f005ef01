/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ids: the small numbers by which a model names its processes.
 *
 * An id is reserved from its allocation until its release, whether or not a process is stored under
 * it. Afterwards it rests for a minute, so that a late write to the old process cannot reach
 * another one. The caller passes the time of any monotonic clock in milliseconds.
 */
#ifndef SP_ENGINE_IDS_H
#define SP_ENGINE_IDS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/error.h"

#define SP_IDS_FIRST    1000
#define SP_IDS_LAST     99999
#define SP_IDS_RANGE    (SP_IDS_LAST - SP_IDS_FIRST + 1)
#define SP_IDS_MIN_FREE (SP_IDS_RANGE / 100) /* with fewer free ids, none is allocated */
#define SP_IDS_REST_MS  60000

#define SP_IDS_WORDS ((SP_IDS_RANGE + 63) / 64)

/* Zeroed: no id is reserved. In it an id is its place in the range, from 0. */
struct sp_ids {
    bool is_deterministic; /* ids start at 1000, each is one above the highest reserved one, and
                              none rests; otherwise they are random */
    uint32_t reserved_count;
    uint64_t reserved[SP_IDS_WORDS]; /* one bit per place */
    uint64_t rests[SP_IDS_WORDS];

    /* Resting ids, a ring with the oldest first. It has a slot for every reserved id, so that a
     * release needs no memory. */
    struct sp_ids_rest {
        uint64_t until_ms;
        uint32_t place;
    } * queue;
    uint32_t first, queued, cap; /* cap is 0 or a power of two */
};

static inline void sp_ids_done(struct sp_ids *ids)
{
    free(ids->queue);
}

/* Allocates an id. SP_E_LIMIT: `no free session id`; SP_E_SYSTEM. */
int sp_ids_allocate(struct sp_ids *ids, uint64_t now_ms, int *ret, struct sp_err *e);

/* Never fails; an id that is not reserved is ignored. */
void sp_ids_release(struct sp_ids *ids, int id, uint64_t now_ms);

static inline bool sp_ids_is_reserved(const struct sp_ids *ids, int id)
{
    const uint32_t place = (uint32_t)id - SP_IDS_FIRST;

    return id >= SP_IDS_FIRST && id <= SP_IDS_LAST &&
           (ids->reserved[place / 64] >> (place % 64) & 1) != 0;
}

#endif
