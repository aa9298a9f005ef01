/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hold: a front's side of its keeper (keeper.h), which holds descriptors for the next front.
 *
 *   begin --HELD ..., GO--> take what an earlier front has left --> ready --> keep, drop --> ending
 *
 * A key names up to four descriptors. The keeper answers nothing: a message that was sent outlives
 * its sender, so a front only has to send them in order: keep before the thing is used, drop after
 * it is gone.
 *
 * NULL stands for "no keeper": all functions accept it, do nothing and find nothing.
 */
#ifndef SP_KEEPER_HOLD_H
#define SP_KEEPER_HOLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

enum sp_hold_kind {
    SP_HOLD_LISTENER = 1, /* number: place of --listen */
    SP_HOLD_LEDGER,
    SP_HOLD_SETTINGS,
    SP_HOLD_JOURNAL,
    SP_HOLD_HISTORY,
    SP_HOLD_CELL, /* number: of the cell */
    SP_HOLD_PUBLISHED,
    SP_HOLD_LOCAL_SOCKET,
    SP_HOLD_NAMES, /* number: of a cell with a managed network; the memory of its names */
};
#define SP_HOLD_KEY(kind, n) ((uint64_t)(kind) << 32 | (uint32_t)(n))
#define SP_HOLD_FDS          4
#define SP_HOLD_TEXT         32
#define SP_HOLD_KEYS         160

enum sp_hold_role {
    SP_HOLD_FIRST,
    SP_HOLD_HEIR,      /* takes over from a front that died */
    SP_HOLD_CANDIDATE, /* is tried before the present front is replaced */
};

/* A key that the keeper has. */
struct sp_hold_item {
    uint64_t key;
    unsigned count; /* of the descriptors that can be taken; 0: taken, or this front's own */
    int fds[SP_HOLD_FDS];
    char text[SP_HOLD_TEXT + 1];
};

struct sp_hold {
    int socket;
    uint64_t generation;
    enum sp_hold_role role;
    pid_t keeper;
    int last_status;
    unsigned count;
    struct sp_hold_item held[SP_HOLD_KEYS]; /* sorted by key */
};

/*
 * Says HELLO over the socket to the keeper, which is stdin (/dev/null takes its place), and
 * receives what earlier fronts have left. Once in a process. To be called after sp_spawn_reserve
 * and sp_spawn_fill_low, so that the descriptors have numbers above theirs, and once RLIMIT_NOFILE
 * has been raised.
 */
int sp_hold_begin(int socket, struct sp_hold **ret, struct sp_err *e);

static inline uint64_t sp_hold_generation(const struct sp_hold *h) /* 1, 2 ...; 0: no keeper */
{
    return h == NULL ? 0 : h->generation;
}

static inline enum sp_hold_role sp_hold_role(const struct sp_hold *h)
{
    return h == NULL ? SP_HOLD_FIRST : h->role;
}

/* The pid of the server; 0: no keeper. */
static inline pid_t sp_hold_keeper(const struct sp_hold *h)
{
    return h == NULL ? 0 : h->keeper;
}

/* Of the last front, as of waitpid; 0: none. */
static inline int sp_hold_last_status(const struct sp_hold *h)
{
    return h == NULL ? 0 : h->last_status;
}

/* To watch: end of file, the keeper is gone; -1: no keeper. */
static inline int sp_hold_fd(const struct sp_hold *h)
{
    return h == NULL ? -1 : h->socket;
}

/* What an earlier front has left under the key: the descriptors (close-on-exec) become the
 * caller's; fds and ret_count may not be NULL, text may. The keeper keeps its own. false: nothing,
 * or taken already. */
bool sp_hold_take(struct sp_hold *h, uint64_t key, int fds[SP_HOLD_FDS], unsigned *ret_count,
                  char text[SP_HOLD_TEXT + 1]);
/* The least key of the kind above `after` (0: the first) that can be taken. */
bool sp_hold_next(const struct sp_hold *h, enum sp_hold_kind kind, uint64_t after,
                  uint64_t *ret_key);

/* Gives the keeper duplicates of 1 to SP_HOLD_FDS descriptors, instead of those that the key had.
 * text: up to SP_HOLD_TEXT bytes for the next front; NULL: none. Fails also if there are too many
 * keys. Without a keeper it succeeds. */
int sp_hold_keep(struct sp_hold *h, uint64_t key, const int *fds, unsigned count, const char *text,
                 struct sp_err *e);
void sp_hold_drop(struct sp_hold *h, uint64_t key); /* a key that is unknown is fine */

/* This front serves. What an earlier front has left and was not taken is dropped. */
void sp_hold_ready(struct sp_hold *h);
/* The server ends, with this exit status, once this process has ended. */
void sp_hold_ending(struct sp_hold *h, int status);

#endif
