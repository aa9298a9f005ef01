/* SPDX-License-Identifier: Apache-2.0 */
/*
 * confine: the confined cells of a server, one for each session and policy.
 *
 * A cell is made for the first command of its kind and used again while everything that its policy
 * looked at on the disk is still the same. It ends when nothing has run in it for a while, at once
 * if placeholders stand somewhere for it; with its session; or when another one needs its place.
 */
#ifndef SP_CORE_CELL_POOL_H
#define SP_CORE_CELL_POOL_H

#include "core/cells.h"
#include "core/surveyor.h"
#include "sandbox/compile.h"

#define SP_MAX_CONFINED            80
#define SP_MAX_CONFINED_MORE       63  /* beyond the first of each session, of all sessions */
#define SP_MAX_POLICY_PLACEHOLDERS 256 /* of one policy */
#define SP_CELL_IDLE_MS            60000
#define SP_CELL_UNUSED_MS          2000 /* made, and its first start has failed */
/* With placeholders, which are in people's way, a cell ends with its last command. Not in a session
 * that has made so many starts, each so soon after the last command: there it would be made anew
 * for each, so it stays for that time; until the session has paused for long. */
#define SP_BURST_STARTS  10
#define SP_BURST_MS      50
#define SP_BURST_KEPT_MS 10000

struct sp_cell_pool;

struct sp_cell_pool_options {
    struct sp_cell_options cell;  /* without plan and callbacks */
    struct sp_fixed_places fixed; /* borrowed */
    bool is_exposed;              /* whoever has network can ask us for anything */
    void *user;
    void (*drained)(void *user);
};

int sp_cell_pool_new(struct sp_loop *loop, struct sp_cells *cells,
                     const struct sp_cell_pool_options *o, struct sp_cell_pool **ret,
                     struct sp_err *e);
/* Before the cells are freed. */
void sp_cell_pool_free(struct sp_cell_pool *w);

/* A cell for a command of this session under this policy: one that is there, or a new one, which is
 * built while the first start waits in its socket. Refused: the policy is wrong, cannot be enforced
 * on this host, or there are too many. */
int sp_cell_pool_get(struct sp_cell_pool *w, uint64_t session, const struct sp_policy *p,
                     struct sp_cell **ret, struct sp_err *e);

/*
 * The same without waiting for the disk, in two steps. A cell that is there and is known to be
 * right at once; *ret NULL: ask.
 */
int sp_cell_pool_find(struct sp_cell_pool *w, uint64_t session, const struct sp_policy *p,
                      struct sp_cell **ret, struct sp_err *e);
/* The policy is surveyed in a thread; done is called later, with a cell, or NULL and an error.
 * There is no deadline but the caller's. */
struct sp_cell_request {
    void (*done)(struct sp_cell_request *a, struct sp_cell *cell, struct sp_err *e);
    struct sp_cell_pool *pool;
    uint64_t session;
    int tries;
    struct sp_survey_ask survey;
};
int sp_cell_pool_request(struct sp_cell_pool *w, uint64_t session, const struct sp_policy *p,
                         struct sp_cell_request *a, struct sp_err *e);
void sp_cell_pool_cancel(struct sp_cell_request *a); /* nothing asked: fine */
void sp_cell_pool_end_session(struct sp_cell_pool *w, uint64_t session);

/* Makes the plan and no cell; the host's powers are probed when they are first needed. */
int sp_cell_pool_plan(struct sp_cell_pool *w, const struct sp_policy *p, struct sp_buf *ret,
                      struct sp_err *e);
int sp_cell_pool_features(struct sp_cell_pool *w, const struct sp_powers **ret, struct sp_err *e);

/* Whether a placeholder of ours stands there: nothing that anybody made. */
bool sp_cell_pool_has_placeholder(const struct sp_cell_pool *w, const char *path);

uint32_t sp_cell_pool_count(const struct sp_cell_pool *w);

#endif
