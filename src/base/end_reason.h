/* SPDX-License-Identifier: Apache-2.0 */
/* end_reason: why a command ended, as receipts and limits tell it. */
#ifndef SP_BASE_END_REASON_H
#define SP_BASE_END_REASON_H

/* Why a command ended. The first ones are what its executor knows; TIMEOUT, PRUNED and IDLE are
 * reasons of the engine, for which the executor says TERMINATED. */
enum sp_end_reason {
    SP_END_NONE, /* it runs */
    SP_END_EXIT,
    SP_END_SIGNAL,
    SP_END_TERMINATED, /* its owner asked for the end of the tree */
    SP_END_SESSION,    /* it ended with its session */
    SP_END_MEMORY_LIMIT,
    SP_END_CPU_LIMIT,
    SP_END_WALL_LIMIT,
    SP_END_OUTPUT_LIMIT,
    SP_END_LOST,    /* the connection or the cell is gone */
    SP_END_TIMEOUT, /* its timeout_ms passed */
    SP_END_PRUNED,  /* made room for another process */
    SP_END_IDLE,    /* unused for idle_ttl_ms */
    SP_END_REASONS
};

const char *sp_end_reason_name(enum sp_end_reason r); /* NULL: it runs, or no reason */

static inline bool sp_end_is_limit(enum sp_end_reason r)
{
    return r >= SP_END_MEMORY_LIMIT && r <= SP_END_OUTPUT_LIMIT;
}

#endif
