/* SPDX-License-Identifier: Apache-2.0 */
#include "server/rpc/watch_ids.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "os/notify.h"

struct sp_watch_id {
    int id;
    uint32_t users;
};

/* Where an id is, or belongs. */
static size_t place_of(const struct sp_watch_ids *ids, int id)
{
    size_t low = 0;
    size_t high = ids->count;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;

        if (ids->known[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct sp_watch_id *find(const struct sp_watch_ids *ids, int id)
{
    const size_t at = place_of(ids, id);

    return at < ids->count && ids->known[at].id == id ? &ids->known[at] : NULL;
}

static bool make_room(struct sp_watch_ids *ids)
{
    const size_t cap = ids->cap == 0 ? 64 : ids->cap * 2;

    if (ids->count < ids->cap)
        return true;
    struct sp_watch_id *known = realloc(ids->known, cap * sizeof *known);
    if (known == NULL)
        return false;
    ids->known = known;
    ids->cap = cap;
    return true;
}

bool sp_watch_ids_use(struct sp_watch_ids *ids, int id)
{
    struct sp_watch_id *old = find(ids, id);

    if (old != NULL) {
        old->users++;
        return true;
    }
    if (!make_room(ids))
        return false;
    const size_t at = place_of(ids, id);
    memmove(&ids->known[at + 1], &ids->known[at], (ids->count - at) * sizeof ids->known[0]);
    ids->known[at] = (struct sp_watch_id){.id = id, .users = 1};
    ids->count++;
    return true;
}

void sp_watch_ids_leave(struct sp_watch_ids *ids, int id)
{
    struct sp_watch_id *old = find(ids, id);

    if (old != NULL && --old->users == 0)
        ids->has_unused = true;
}

void sp_watch_ids_sweep(struct sp_watch_ids *ids)
{
    size_t kept = 0;

    if (!ids->has_unused)
        return;
    for (size_t i = 0; i < ids->count; i++)
        if (ids->known[i].users > 0)
            ids->known[kept++] = ids->known[i];
        else
            sp_notify_remove(ids->fd, ids->known[i].id);
    ids->count = kept;
    ids->has_unused = false;
}

void sp_watch_ids_check(struct sp_watch_ids *ids, int id)
{
    if (find(ids, id) == NULL)
        sp_notify_remove(ids->fd, id);
}

void sp_watch_ids_done(struct sp_watch_ids *ids)
{
    free(ids->known);
    ids->known = NULL;
    ids->count = ids->cap = 0;
}
