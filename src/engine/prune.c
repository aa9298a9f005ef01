/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prune: see prune.h.
 */
#include "engine/prune.h"

#include <stdio.h>

static bool is_older(const struct sp_prune_entry *a, const struct sp_prune_entry *b)
{
    return a->last_used != b->last_used ? a->last_used < b->last_used : a->id < b->id;
}

static bool is_protected(const struct sp_prune_entry *entries, size_t count, size_t which)
{
    size_t newer = 0;

    for (size_t i = 0; i < count && newer < SP_PRUNE_PROTECTED; i++)
        newer += is_older(&entries[which], &entries[i]);
    return newer < SP_PRUNE_PROTECTED;
}

static size_t older_of(const struct sp_prune_entry *entries, size_t best, size_t i)
{
    return best == SP_PRUNE_NONE || is_older(&entries[i], &entries[best]) ? i : best;
}

size_t sp_prune_choose(const struct sp_prune_entry *entries, size_t count)
{
    size_t exited = SP_PRUNE_NONE;
    size_t live = SP_PRUNE_NONE;
    bool is_exited_one_busy = false;

    for (size_t i = 0; i < count; i++) {
        const struct sp_prune_entry *p = &entries[i];

        if (is_protected(entries, count, i))
            continue;
        if (p->has_exited && p->is_busy)
            is_exited_one_busy = true;
        else if (p->has_exited)
            exited = older_of(entries, exited, i);
        else if (!p->is_busy)
            live = older_of(entries, live, i);
    }
    if (exited != SP_PRUNE_NONE)
        return exited;
    /* The busy exited process goes by itself soon: do not kill a running one for its place. */
    return is_exited_one_busy ? SP_PRUNE_NONE : live;
}

bool sp_prune_notice(uint32_t notify_at, uint32_t open, char ret[SP_PRUNE_NOTICE_SIZE])
{
    if (notify_at == 0 || open < notify_at)
        return false;
    (void)snprintf(ret, SP_PRUNE_NOTICE_SIZE,
                   "The maximum number of unified exec processes you can keep open is %u and you "
                   "currently have %u processes open. Reuse older processes or close them to "
                   "prevent automatic pruning of old processes",
                   (unsigned)notify_at, (unsigned)open);
    return true;
}
