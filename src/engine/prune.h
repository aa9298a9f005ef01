/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prune: which process makes room when too many are kept (unified-exec.md 4.6).
 *
 * A judgement over facts; it removes nothing.
 */
#ifndef SP_ENGINE_PRUNE_H
#define SP_ENGINE_PRUNE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SP_PRUNE_LIMIT     64 /* stored entries; with as many, the next store prunes first */
#define SP_PRUNE_PROTECTED 8  /* of the most recently used */
#define SP_PRUNE_NONE      SIZE_MAX

struct sp_prune_entry {
    int id;
    uint64_t last_used; /* of any clock that only goes forward */
    bool has_exited;
    bool is_busy; /* an interaction is in progress, or its end is being published */
};

/* Whether a store into `count` entries has to look for a victim. */
static inline bool sp_prune_is_due(size_t count)
{
    return count >= SP_PRUNE_LIMIT;
}

/*
 * The index of the victim, or SP_PRUNE_NONE: then store anyway. The entries may come in any order;
 * of those used at one instant the lower id counts as the older.
 */
size_t sp_prune_choose(const struct sp_prune_entry *entries, size_t count);

#define SP_PRUNE_NOTICE_SIZE 256

/*
 * The warning that is due when `open` processes are kept after a store; notify_at 0: never.
 * false: none, and ret untouched.
 */
bool sp_prune_notice(uint32_t notify_at, uint32_t open, char ret[SP_PRUNE_NOTICE_SIZE]);

#endif
