/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ids: see ids.h.
 */
#include "engine/ids.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

static void put_bit(uint64_t *bits, uint32_t place, bool value)
{
    const uint64_t bit = UINT64_C(1) << (place % 64);

    bits[place / 64] = value ? bits[place / 64] | bit : bits[place / 64] & ~bit;
}

static uint32_t slot(const struct sp_ids *ids, uint32_t behind_first)
{
    return (ids->first + behind_first) & (ids->cap - 1);
}

/* Makes a slot for one more reserved id. */
static bool make_slot(struct sp_ids *ids)
{
    if (ids->is_deterministic || ids->queued + ids->reserved_count < ids->cap)
        return true;

    const uint32_t cap = ids->cap == 0 ? 64 : ids->cap * 2;
    struct sp_ids_rest *queue = calloc(cap, sizeof *queue);
    if (queue == NULL)
        return false;
    for (uint32_t i = 0; i < ids->queued; i++)
        queue[i] = ids->queue[slot(ids, i)];
    free(ids->queue);
    ids->queue = queue;
    ids->first = 0;
    ids->cap = cap;
    return true;
}

/* The place above all reserved ones; SP_IDS_RANGE or more: none. */
static uint32_t next_place(const struct sp_ids *ids)
{
    for (uint32_t w = SP_IDS_WORDS; w-- > 0;)
        if (ids->reserved[w] != 0)
            return w * 64 + 64 - (uint32_t)__builtin_clzll(ids->reserved[w]);
    return 0;
}

/* The free place with `skip` free ones below it, which must exist. */
static uint32_t free_place(const struct sp_ids *ids, uint32_t skip)
{
    for (uint32_t w = 0; w < SP_IDS_WORDS; w++) {
        uint64_t open = ~(ids->reserved[w] | ids->rests[w]);
        const uint32_t n = (uint32_t)__builtin_popcountll(open);

        if (skip >= n) {
            skip -= n;
            continue;
        }
        for (; skip != 0; skip--)
            open &= open - 1;
        return w * 64 + (uint32_t)__builtin_ctzll(open);
    }
    return SP_IDS_RANGE;
}

int sp_ids_allocate(struct sp_ids *ids, uint64_t now_ms, int *ret, struct sp_err *e)
{
    uint32_t place;

    while (ids->queued != 0 && ids->queue[ids->first].until_ms <= now_ms) { /* has rested enough */
        put_bit(ids->rests, ids->queue[ids->first].place, false);
        ids->first = slot(ids, 1);
        ids->queued--;
    }
    const uint32_t free_count = SP_IDS_RANGE - ids->reserved_count - ids->queued;
    if (free_count < SP_IDS_MIN_FREE)
        return sp_fail(e, SP_E_LIMIT, 0, "no free session id");
    if (ids->is_deterministic) {
        place = next_place(ids);
    } else {
        uint64_t random;

        /* One draw among the free places terminates, unlike drawing until one is free. The bias of
         * the remainder of 64 bits is negligible. */
        if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
            return sp_fail(e, SP_E_SYSTEM, errno, "draw a session id");
        place = free_place(ids, (uint32_t)(random % free_count));
    }
    if (place >= SP_IDS_RANGE)
        return sp_fail(e, SP_E_LIMIT, 0, "no free session id");
    if (!make_slot(ids))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "reserve a session id");
    put_bit(ids->reserved, place, true);
    ids->reserved_count++;
    *ret = SP_IDS_FIRST + (int)place;
    return 0;
}

void sp_ids_release(struct sp_ids *ids, int id, uint64_t now_ms)
{
    const uint32_t place = (uint32_t)id - SP_IDS_FIRST;

    if (!sp_ids_is_reserved(ids, id))
        return;
    put_bit(ids->reserved, place, false);
    ids->reserved_count--;
    if (ids->is_deterministic)
        return;
    ids->queue[slot(ids, ids->queued)] =
        (struct sp_ids_rest){.until_ms = now_ms + SP_IDS_REST_MS, .place = place};
    ids->queued++;
    put_bit(ids->rests, place, true);
}
