/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ids: see ids.h. Internally an id is its place in the range, from 0.
 */
#include "engine/ids.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#define WORDS ((SP_IDS_RANGE + 63) / 64)

struct resting {
    uint64_t until_ms;
    uint32_t place;
};

struct sp_ids {
    bool is_deterministic;
    uint32_t reserved_count;
    uint64_t reserved[WORDS]; /* one bit per place */
    uint64_t rests[WORDS];

    /* Resting ids, a ring with the oldest first. It has a slot for every reserved id, so that a
     * release needs no memory. */
    struct resting *queue;
    uint32_t first, queued, cap; /* cap is 0 or a power of two */
};

static void put_bit(uint64_t *bits, uint32_t place, bool value)
{
    const uint64_t bit = UINT64_C(1) << (place % 64);

    bits[place / 64] = value ? bits[place / 64] | bit : bits[place / 64] & ~bit;
}

struct sp_ids *sp_ids_new(bool is_deterministic)
{
    struct sp_ids *ids = calloc(1, sizeof *ids);

    if (ids != NULL)
        ids->is_deterministic = is_deterministic;
    return ids;
}

void sp_ids_free(struct sp_ids *ids)
{
    if (ids == NULL)
        return;
    free(ids->queue);
    free(ids);
}

/* ---- rest ---- */

static uint32_t slot(const struct sp_ids *ids, uint32_t behind_first)
{
    return (ids->first + behind_first) & (ids->cap - 1);
}

static void end_rests(struct sp_ids *ids, uint64_t now_ms)
{
    while (ids->queued != 0 && ids->queue[ids->first].until_ms <= now_ms) {
        put_bit(ids->rests, ids->queue[ids->first].place, false);
        ids->first = slot(ids, 1);
        ids->queued--;
    }
}

/* Makes a slot for one more reserved id. */
static bool make_slot(struct sp_ids *ids)
{
    if (ids->is_deterministic || ids->queued + ids->reserved_count < ids->cap)
        return true;

    const uint32_t cap = ids->cap == 0 ? 64 : ids->cap * 2;
    struct resting *queue = calloc(cap, sizeof *queue);
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

static void begin_rest(struct sp_ids *ids, uint32_t place, uint64_t now_ms)
{
    ids->queue[slot(ids, ids->queued)] =
        (struct resting){.until_ms = now_ms + SP_IDS_REST_MS, .place = place};
    ids->queued++;
    put_bit(ids->rests, place, true);
}

/* ---- choice ---- */

/* The place above all reserved ones; SP_IDS_RANGE or more: none. */
static uint32_t next_place(const struct sp_ids *ids)
{
    for (uint32_t w = WORDS; w-- > 0;)
        if (ids->reserved[w] != 0)
            return w * 64 + 64 - (uint32_t)__builtin_clzll(ids->reserved[w]);
    return 0;
}

/* The free place with `skip` free ones below it, which must exist. */
static uint32_t free_place(const struct sp_ids *ids, uint32_t skip)
{
    for (uint32_t w = 0; w < WORDS; w++) {
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

static int choose_place(const struct sp_ids *ids, uint32_t *ret, struct sp_err *e)
{
    const uint32_t free_count = SP_IDS_RANGE - ids->reserved_count - ids->queued;
    uint32_t place;

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
    *ret = place;
    return 0;
}

static int reserve_place(struct sp_ids *ids, uint32_t place, struct sp_err *e)
{
    if (!make_slot(ids))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "reserve a session id");
    put_bit(ids->reserved, place, true);
    ids->reserved_count++;
    return 0;
}

int sp_ids_allocate(struct sp_ids *ids, uint64_t now_ms, int *ret, struct sp_err *e)
{
    uint32_t place = 0;

    end_rests(ids, now_ms);
    int r = choose_place(ids, &place, e);
    if (r == 0)
        r = reserve_place(ids, place, e);
    if (r == 0)
        *ret = SP_IDS_FIRST + (int)place;
    return r;
}

int sp_ids_reserve(struct sp_ids *ids, int id, uint64_t now_ms, struct sp_err *e)
{
    const uint32_t place = (uint32_t)(id - SP_IDS_FIRST);

    if (id < SP_IDS_FIRST || id > SP_IDS_LAST)
        return sp_fail(e, SP_E_INVALID, 0, "session id %d is not between %d and %d", id,
                       SP_IDS_FIRST, SP_IDS_LAST);
    end_rests(ids, now_ms);
    if (sp_ids_is_reserved(ids, id))
        return sp_fail(e, SP_E_STATE, 0, "session id %d is in use", id);
    if ((ids->rests[place / 64] >> (place % 64) & 1) != 0)
        return sp_fail(e, SP_E_STATE, 0, "session id %d was in use a moment ago", id);
    return reserve_place(ids, place, e);
}

void sp_ids_release(struct sp_ids *ids, int id, uint64_t now_ms)
{
    if (!sp_ids_is_reserved(ids, id))
        return;
    const uint32_t place = (uint32_t)(id - SP_IDS_FIRST);
    put_bit(ids->reserved, place, false);
    ids->reserved_count--;
    if (!ids->is_deterministic)
        begin_rest(ids, place, now_ms);
}

void sp_ids_release_all(struct sp_ids *ids, uint64_t now_ms)
{
    for (int id = SP_IDS_FIRST; id <= SP_IDS_LAST; id++)
        sp_ids_release(ids, id, now_ms);
}

bool sp_ids_is_reserved(const struct sp_ids *ids, int id)
{
    const uint32_t place = (uint32_t)(id - SP_IDS_FIRST);

    return id >= SP_IDS_FIRST && id <= SP_IDS_LAST &&
           (ids->reserved[place / 64] >> (place % 64) & 1) != 0;
}

uint32_t sp_ids_count(const struct sp_ids *ids)
{
    return ids->reserved_count;
}

bool sp_uuid_make(char ret[SP_UUID_SIZE])
{
    uint8_t b[16];

    if (getrandom(b, sizeof b, 0) != (ssize_t)sizeof b)
        return false;
    b[6] = (uint8_t)((b[6] & 0x0F) | 0x40); /* version 4, random */
    b[8] = (uint8_t)((b[8] & 0x3F) | 0x80);
    (void)snprintf(ret, SP_UUID_SIZE,
                   "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
                   b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
                   b[14], b[15]);
    return true;
}
