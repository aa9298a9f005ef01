/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop: descriptors, timers and end-of-turn work, in one thread, with epoll.
 *
 * A turn waits for events, calls their watches, then due timers, then deferred work. Watches,
 * timers and deferred work are members of the caller's structs, so using them allocates nothing
 * (except to grow the heap of timers). Callbacks must not block. To free an object from inside its
 * own callback, unwatch it and free it from deferred work.
 */
#ifndef SP_OS_LOOP_H
#define SP_OS_LOOP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "base/error.h"
#include "os/busy_poll.h"

struct sp_loop;

struct sp_watch {
    void (*fn)(struct sp_watch *w, uint32_t events); /* events: EPOLLIN, EPOLLOUT, EPOLLHUP ... */
    int fd;                                          /* borrowed; -1 after sp_loop_unwatch */
    uint32_t events;
};

struct sp_timer {
    void (*fn)(struct sp_timer *t);
    uint64_t due_ms;
    uint32_t slot; /* index in the heap + 1; 0: not armed */
};

struct sp_deferred {
    void (*fn)(struct sp_deferred *d);
    struct sp_deferred *next;
    bool is_queued;
};

int sp_loop_new(struct sp_loop **ret, struct sp_err *e);
void sp_loop_free(struct sp_loop *l);

/* Level-triggered unless events has EPOLLET. The struct must be zeroed or unwatched. */
int sp_loop_watch(struct sp_loop *l, struct sp_watch *w, int fd, uint32_t events,
                  void (*fn)(struct sp_watch *, uint32_t), struct sp_err *e);
void sp_loop_rewatch(struct sp_loop *l, struct sp_watch *w, uint32_t events);
/* No callback comes after it, not even for events of this turn. Not watched: nothing happens. */
void sp_loop_unwatch(struct sp_loop *l, struct sp_watch *w);

/* Arms or re-arms; fires once, when sp_loop_now has reached due_ms. false: no memory. */
bool sp_loop_timer(struct sp_loop *l, struct sp_timer *t, uint64_t due_ms,
                   void (*fn)(struct sp_timer *));
void sp_loop_cancel(struct sp_loop *l, struct sp_timer *t); /* not armed is fine */

/* Runs fn once, at the end of this turn; also if called from deferred work. Queued already: nothing
 * happens. */
void sp_loop_defer(struct sp_loop *l, struct sp_deferred *d, void (*fn)(struct sp_deferred *));
/* Runs fn once, in the next turn, before which the loop does not sleep: for long work that is done
 * in parts. */
void sp_loop_again(struct sp_loop *l, struct sp_deferred *d, void (*fn)(struct sp_deferred *));
void sp_loop_undefer(struct sp_loop *l,
                     struct sp_deferred *d); /* of sp_loop_defer or sp_loop_again */

/* The monotonic clock in ms, read once a turn. */
uint64_t sp_loop_now(const struct sp_loop *l);

/* For sources without a descriptor (cell/bell.h); each function may be NULL. */
struct sp_loop_hooks {
    bool (*before_sleep)(void *user);    /* right before the loop sleeps; true skips the sleep */
    uint64_t (*after_sleep)(void *user); /* when a wake-up was sent (sp_clock_us); 0: unknown */
    bool (*peek)(void *user);            /* polled by sp_loop_expect; true: there was work */
    void *user;
};

/* One set a loop; NULL removes it. false: the loop has another set. */
bool sp_loop_hook(struct sp_loop *l, const struct sp_loop_hooks *hooks);

/*
 * An answer is expected within `us`: the loop may poll for it before it sleeps, with sched_yield
 * between polls (os/busy_poll.h). Ends with the next event.
 */
void sp_loop_expect(struct sp_loop *l, uint32_t us);
/* The mode may be set, everything else is for reading. */
struct sp_busy_poll *sp_loop_busy_poll(struct sp_loop *l);

int sp_loop_run(struct sp_loop *l, struct sp_err *e); /* until sp_loop_stop */
void sp_loop_stop(struct sp_loop *l);

/*
 * Embedding in a program that has a loop of its own, instead of sp_loop_run: the descriptor is
 * readable when sp_loop_dispatch has something to do (an event, a timer, work of the next turn, a
 * mark on a bell). It belongs to the loop: only poll it.
 */
int sp_loop_fd(struct sp_loop *l, int *ret, struct sp_err *e);
/* Waits for up to timeout_ms (-1: no limit) and then runs a bounded number of turns. Returns early
 * for a signal. SP_E_STATE when called from a callback. */
int sp_loop_dispatch(struct sp_loop *l, int timeout_ms, struct sp_err *e);
bool sp_loop_is_inside(const struct sp_loop *l); /* in sp_loop_dispatch */
/* To be called outside of sp_loop_dispatch before arming timers, deferring work or making bells:
 * reads the clock and makes the descriptor readable. Inside it does nothing. */
void sp_loop_poke(struct sp_loop *l);

#endif
