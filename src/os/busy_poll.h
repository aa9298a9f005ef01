/* SPDX-License-Identifier: Apache-2.0 */
/*
 * busy_poll: when an event loop polls for an expected event instead of sleeping.
 *
 * Waking an idle processor may take longer than the event, but polling costs processor time, and
 * on a busy machine it delays the process that would cause the event. AUTO polls briefly, and only
 * while all of these hold:
 *
 *   - a wake-up takes long here (measured, smoothed);
 *   - sched_yield returns at once: no other process waits for this processor. After a slow one
 *     there is a pause, which doubles when the first polls after it meet a slow one again;
 *   - polling took less than a twentieth of the last second, in processor time.
 */
#ifndef SP_OS_BUSY_POLL_H
#define SP_OS_BUSY_POLL_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define SP_BUSY_POLL_WAKE_US      40   /* AUTO: a cheaper wake-up is no reason to poll */
#define SP_BUSY_POLL_MOST_US      100  /* AUTO: polling for one event */
#define SP_BUSY_POLL_YIELD_US     10   /* a slower sched_yield ran another process */
#define SP_BUSY_POLL_MAX_WAKE_US  1000 /* of one measurement; more is the load of the machine */
#define SP_BUSY_POLL_PAUSE_US     100000
#define SP_BUSY_POLL_MAX_PAUSE_US 3200000
#define SP_BUSY_POLL_SHARE_US     50000 /* AUTO: polling within a second */
#define SP_BUSY_POLL_SLOTS        10    /* of a second, in which polling is counted */

enum sp_busy_poll_mode { SP_BUSY_POLL_AUTO, SP_BUSY_POLL_OFF, SP_BUSY_POLL_ON };

struct sp_busy_poll {
    enum sp_busy_poll_mode mode;
    uint64_t total_us;     /* processor time spent polling */
    uint64_t until_us;     /* when to give up polling; 0: nothing is expected */
    uint32_t wake_eighths; /* cost of a wake-up, in eighths of a microsecond */
    uint64_t paused_until_us;
    uint32_t pause_us; /* the last pause; 0: none yet */
    uint64_t slot;     /* of the time; spent_us[slot % SLOTS] is the current one */
    uint32_t spent_us[SP_BUSY_POLL_SLOTS];
};

/* "auto", "off" or "on"; NULL: auto. */
static inline enum sp_busy_poll_mode sp_busy_poll_mode_of(const char *word)
{
    return word == NULL               ? SP_BUSY_POLL_AUTO
           : strcmp(word, "off") == 0 ? SP_BUSY_POLL_OFF
           : strcmp(word, "on") == 0  ? SP_BUSY_POLL_ON
                                      : SP_BUSY_POLL_AUTO;
}

/* A wake-up was sent and has arrived so much later. */
static inline void sp_busy_poll_note_wake(struct sp_busy_poll *p, uint64_t us)
{
    if (us <= SP_BUSY_POLL_MAX_WAKE_US)
        p->wake_eighths += (uint32_t)us - p->wake_eighths / 8;
}

/* Drops what was spent more than a second ago. */
static inline void sp_busy_poll_forget(struct sp_busy_poll *p, uint64_t now_us)
{
    const uint64_t slot = now_us / (1000000 / SP_BUSY_POLL_SLOTS);

    for (int i = 0; i < SP_BUSY_POLL_SLOTS && p->slot < slot; i++)
        p->spent_us[++p->slot % SP_BUSY_POLL_SLOTS] = 0;
    p->slot = slot;
}

/* For how long AUTO may poll now; 0: not at all. */
static inline uint32_t sp_busy_poll_allowed(struct sp_busy_poll *p, uint64_t now_us)
{
    const uint32_t twice_wake_us = p->wake_eighths / 4;
    uint32_t spent_us = 0;

    if (twice_wake_us <= 2 * SP_BUSY_POLL_WAKE_US || now_us < p->paused_until_us)
        return 0;
    sp_busy_poll_forget(p, now_us);
    for (int i = 0; i < SP_BUSY_POLL_SLOTS; i++)
        spent_us += p->spent_us[i];
    if (spent_us >= SP_BUSY_POLL_SHARE_US)
        return 0;
    return twice_wake_us < SP_BUSY_POLL_MOST_US ? twice_wake_us : SP_BUSY_POLL_MOST_US;
}

/* Between two polls sched_yield took so long, and has returned now. false: stop polling. */
static inline bool sp_busy_poll_may_go_on(struct sp_busy_poll *p, uint64_t now_us,
                                          uint64_t yield_us)
{
    if (p->mode == SP_BUSY_POLL_ON || yield_us <= SP_BUSY_POLL_YIELD_US)
        return true;
    /* Is the machine still busy, or busy again? */
    if (p->pause_us == 0 || now_us - p->paused_until_us > p->pause_us)
        p->pause_us = SP_BUSY_POLL_PAUSE_US;
    else if (p->pause_us < SP_BUSY_POLL_MAX_PAUSE_US)
        p->pause_us *= 2;
    p->paused_until_us = now_us + p->pause_us;
    return false;
}

static inline void sp_busy_poll_spent(struct sp_busy_poll *p, uint64_t now_us, uint64_t us)
{
    sp_busy_poll_forget(p, now_us);
    p->spent_us[p->slot % SP_BUSY_POLL_SLOTS] += (uint32_t)us;
    p->total_us += us;
}

#endif
