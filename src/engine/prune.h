/* SPDX-License-Identifier: Apache-2.0 */
/* prune: which process is evicted when too many are stored. A decision over facts; it removes
 * nothing. */
#ifndef SP_ENGINE_PRUNE_H
#define SP_ENGINE_PRUNE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SP_PRUNE_LIMIT     64 /* stored entries from which the next store prunes first */
#define SP_PRUNE_PROTECTED 8  /* the most recently used entries are never chosen */
#define SP_PRUNE_NONE      SIZE_MAX

struct sp_prune_entry {
    int id;
    uint64_t last_used; /* any monotonic clock */
    bool has_exited;
    bool is_busy; /* a call is in progress, or its end event is pending */
};

/* Whether storing one more than `count` entries needs a victim. */
static inline bool sp_prune_is_due(size_t count)
{
    return count >= SP_PRUNE_LIMIT;
}

/* Index of the victim, or SP_PRUNE_NONE: store without pruning. The entries may be in any order;
 * for equal times the lower id counts as older. */
size_t sp_prune_choose(const struct sp_prune_entry *entries, size_t count);

#define SP_PRUNE_NOTICE_SIZE 256

/* The warning when `open` processes are stored; notify_at 0: never. false: none, and ret is
 * unchanged. */
bool sp_prune_notice(uint32_t notify_at, uint32_t open, char ret[SP_PRUNE_NOTICE_SIZE]);

#endif
