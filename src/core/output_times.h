/* SPDX-License-Identifier: Apache-2.0 */
/*
 * output_times: when the records of a log arrived, to about a second.
 *
 * A mark says: all records up to `seq` had arrived by `at_ms`. When there are too many marks, every
 * second one of the older half is dropped, so that recent times stay exact and memory bounded. A
 * record whose mark was dropped counts as arriving with the next mark: never too early.
 */
#ifndef SP_CORE_OUTPUT_TIMES_H
#define SP_CORE_OUTPUT_TIMES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define SP_OUTPUT_MARKS   64
#define SP_OUTPUT_MARK_MS 1000 /* records of this time share a mark */

struct sp_output_mark {
    uint64_t seq;
    int64_t at_ms; /* since 1970 */
};

/* {0} has no mark. */
struct sp_output_times {
    struct sp_output_mark last; /* at_ms 0: none */
    int64_t last_began_ms;
    struct sp_output_mark *older; /* SP_OUTPUT_MARKS; NULL: none yet */
    uint32_t older_count;
};

static inline void sp_output_times_done(struct sp_output_times *t)
{
    free(t->older);
    *t = (struct sp_output_times){0};
}

/* Drops every second mark of the older half. */
static inline void sp_output_times_thin_out(struct sp_output_times *t)
{
    const uint32_t half = t->older_count / 2;
    uint32_t kept = 0;

    for (uint32_t i = 1; i < half; i += 2)
        t->older[kept++] = t->older[i];
    memmove(&t->older[kept], &t->older[half], (t->older_count - half) * sizeof t->older[0]);
    t->older_count -= half - kept;
}

static inline void sp_output_times_keep_last(struct sp_output_times *t)
{
    if (t->older == NULL)
        t->older = malloc(SP_OUTPUT_MARKS * sizeof *t->older);
    if (t->older == NULL)
        return;
    if (t->older_count == SP_OUTPUT_MARKS)
        sp_output_times_thin_out(t);
    t->older[t->older_count++] = t->last;
}

/* Records up to seq have arrived now. Out of memory: older records count as new. */
static inline void sp_output_times_note(struct sp_output_times *t, uint64_t seq, int64_t now_ms)
{
    const bool is_first = t->last.at_ms == 0;

    if (is_first || now_ms - t->last_began_ms >= SP_OUTPUT_MARK_MS || now_ms < t->last_began_ms) {
        if (!is_first)
            sp_output_times_keep_last(t);
        t->last_began_ms = now_ms;
    }
    t->last = (struct sp_output_mark){.seq = seq, .at_ms = now_ms};
}

/* When the record had arrived. */
static inline int64_t sp_output_times_of(const struct sp_output_times *t, uint64_t seq)
{
    uint32_t low = 0;
    uint32_t high = t->older_count;

    while (low < high) { /* the first mark that has the record */
        const uint32_t middle = low + (high - low) / 2;

        if (t->older[middle].seq < seq)
            low = middle + 1;
        else
            high = middle;
    }
    return low < t->older_count ? t->older[low].at_ms : t->last.at_ms;
}

/* The last record that had arrived before that time, as far as is known; 0: none. */
static inline uint64_t sp_output_times_before(const struct sp_output_times *t, int64_t ms)
{
    uint64_t seq = t->last.at_ms < ms ? t->last.seq : 0;

    for (uint32_t i = 0; seq == 0 && i < t->older_count; i++)
        if (t->older[t->older_count - 1 - i].at_ms < ms)
            seq = t->older[t->older_count - 1 - i].seq;
    return seq;
}

#endif
