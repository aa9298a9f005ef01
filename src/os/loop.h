/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop: descriptors, timers and end-of-turn work, in one thread. It alone sees epoll.
 *
 * Watches, timers and deferred work are embedded in the caller's structs, so nothing is allocated
 * on the way. A callback does its piece and returns; it never blocks. To free an object from inside
 * its own callback, unwatch it and free it from deferred work.
 */
#ifndef SP_OS_LOOP_H
#define SP_OS_LOOP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "base/error.h"

struct sp_loop;

struct sp_watch {
    void (*fn)(struct sp_watch *w, uint32_t events); /* events: EPOLLIN, EPOLLOUT, EPOLLHUP ... */
    int fd;                                          /* borrowed; -1 while not watched */
    uint32_t events;
};

struct sp_timer {
    void (*fn)(struct sp_timer *t);
    uint64_t due_ms;
    uint32_t slot; /* place in the heap + 1; 0: not armed */
};

struct sp_deferred {
    void (*fn)(struct sp_deferred *d);
    struct sp_deferred *next;
    bool is_queued;
};

int sp_loop_new(struct sp_loop **ret, struct sp_err *e);
void sp_loop_free(struct sp_loop *l);

/* Level-triggered unless events has EPOLLET. The struct must be zero or unwatched before. */
int sp_loop_watch(struct sp_loop *l, struct sp_watch *w, int fd, uint32_t events,
                  void (*fn)(struct sp_watch *, uint32_t), struct sp_err *e);
void sp_loop_rewatch(struct sp_loop *l, struct sp_watch *w, uint32_t events);
void sp_loop_unwatch(struct sp_loop *l,
                     struct sp_watch *w); /* no callback after; not-watched is fine */

/* Arms or re-arms; fires once, at due_ms of sp_loop_now or later. false: no memory. */
bool sp_loop_timer(struct sp_loop *l, struct sp_timer *t, uint64_t due_ms,
                   void (*fn)(struct sp_timer *));
void sp_loop_cancel(struct sp_loop *l, struct sp_timer *t); /* not armed is fine */

/* Runs fn once, at the end of this turn. Queued already: nothing happens. */
void sp_loop_defer(struct sp_loop *l, struct sp_deferred *d, void (*fn)(struct sp_deferred *));
/* Runs fn once, in the next turn, before which the loop does not sleep: for work that is done in
 * parts. (Work deferred by deferred work still runs in the same turn.) */
void sp_loop_again(struct sp_loop *l, struct sp_deferred *d, void (*fn)(struct sp_deferred *));
void sp_loop_undefer(struct sp_loop *l, struct sp_deferred *d); /* either kind */

/* The monotonic clock in ms, read once a turn. */
uint64_t sp_loop_now(const struct sp_loop *l);

/* Asked right before the loop sleeps: return true to skip the sleep (there is work), see bell.h.
 * There is room for one; NULL takes it away. */
bool sp_loop_has_sleeper(const struct sp_loop *l);
void sp_loop_before_sleep(struct sp_loop *l, bool (*fn)(void *user), void (*after)(void *user),
                          void *user);

/*
 * An answer is about to come: for so long, look instead of sleeping, and let others run between two
 * looks. Rousing a sleeping processor often takes longer than what is waited for. Ends with the
 * next event. `peek` looks at what has no descriptor: true if there was work.
 */
void sp_loop_expect(struct sp_loop *l, uint32_t us);
void sp_loop_peek(struct sp_loop *l, bool (*peek)(void *user), void *user);

int sp_loop_run(struct sp_loop *l, struct sp_err *e); /* until sp_loop_stop */
void sp_loop_stop(struct sp_loop *l);

/*
 * A guest in a program that has a loop of its own, instead of sp_loop_run: the descriptor is
 * readable when there is something to do, be it an event, a timer, work of the next turn or a mark
 * on a bell, and sp_loop_dispatch does it. It is the loop's; poll it, do nothing else with it.
 */
int sp_loop_fd(struct sp_loop *l, int *ret, struct sp_err *e);
/* Waits for something to do, at most so long (-1: as long as it takes), and does it: some turns at
 * the most. Returns early for a signal. Not from a callback: SP_E_STATE. */
int sp_loop_dispatch(struct sp_loop *l, int timeout_ms, struct sp_err *e);
bool sp_loop_is_inside(const struct sp_loop *l); /* of sp_loop_dispatch */
/* Somebody outside of sp_loop_dispatch is about to arm timers, defer work or make bells: reads the
 * clock and makes the descriptor readable. Inside nothing happens. */
void sp_loop_poke(struct sp_loop *l);

#endif
