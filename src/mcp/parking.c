/* SPDX-License-Identifier: Apache-2.0 */
#include "mcp/parking.h"

#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "mcp/parking_priv.h"

static struct sp_loop *loop_of(const struct sp_mcp_parking *p)
{
    return p->caller->mcp->options.loop;
}

/* ---- nobody is told anything ---- */

static void ignore(void *user)
{
    (void)user;
}

static void ignore_result(void *user, const struct sp_mcp_result *result)
{
    (void)user; /* a held run keeps its own: this is not called */
    (void)result;
}

static const struct sp_mcp_run_ops nobody = {
    .done = ignore_result, .question = ignore, .withdrawn = ignore};

/* ---- the list: all stay equally long, so the oldest is the first to go ---- */

static void set_alarm(struct sp_mcp_parking *p);

static struct sp_mcp_run *take_out(struct sp_mcp_parking *p, struct sp_mcp_parked *at)
{
    struct sp_mcp_run *r = at->run;

    *(at->prev != NULL ? &at->prev->next : &p->oldest) = at->next;
    *(at->next != NULL ? &at->next->prev : &p->newest) = at->prev;
    p->count--;
    free(at);
    return r;
}

static void on_alarm(struct sp_timer *t)
{
    struct sp_mcp_parking *p = SP_CONTAINER(t, struct sp_mcp_parking, timer);

    while (p->oldest != NULL && p->oldest->expires_ms <= sp_loop_now(loop_of(p)))
        sp_mcp_run_cancel(take_out(p, p->oldest));
    set_alarm(p);
}

/* The alarm has been set before, when one was parked: it has its place already. */
static void set_alarm(struct sp_mcp_parking *p)
{
    if (p->oldest == NULL)
        sp_loop_cancel(loop_of(p), &p->timer);
    else
        (void)sp_loop_timer(loop_of(p), &p->timer, p->oldest->expires_ms, on_alarm);
}

static void append(struct sp_mcp_parking *p, struct sp_mcp_parked *new)
{
    new->prev = p->newest;
    *(new->prev != NULL ? &new->prev->next : &p->oldest) = new;
    p->newest = new;
    p->count++;
}

static struct sp_mcp_parking *parking_of(struct sp_mcp_caller *c)
{
    if (c->parking == NULL && (c->parking = calloc(1, sizeof *c->parking)) != NULL)
        c->parking->caller = c;
    return c->parking;
}

bool sp_mcp_park(struct sp_mcp_run *r, const struct sp_mcp_digest *d, bool wants_repeat,
                 uint64_t *ret_number)
{
    struct sp_mcp_parking *p = parking_of(r->caller);
    struct sp_mcp_parked *new = p == NULL ? NULL : calloc(1, sizeof *new);

    if (new == NULL || (p->timer.slot == 0 &&
                        !sp_loop_timer(loop_of(p), &p->timer,
                                       sp_loop_now(loop_of(p)) + SP_MCP_PARKED_MS, on_alarm))) {
        free(new);
        sp_mcp_run_cancel(r);
        return false;
    }
    if (p->count == SP_MCP_PARKED_MAX)
        sp_mcp_run_cancel(take_out(p, p->oldest));
    *new = (struct sp_mcp_parked){.run = r,
                                  .number = ++p->last_number,
                                  .expires_ms = sp_loop_now(loop_of(p)) + SP_MCP_PARKED_MS,
                                  .digest = *d,
                                  .wants_repeat = wants_repeat};
    append(p, new);
    set_alarm(p);
    r->ops = &nobody;
    r->user = NULL;
    sp_mcp_run_hold(r, true);
    *ret_number = new->number;
    return true;
}

/* ---- coming back ---- */

struct sp_mcp_parked *sp_mcp_parked_find(const struct sp_mcp_caller *c, uint64_t number)
{
    struct sp_mcp_parked *at = c->parking == NULL ? NULL : c->parking->oldest;

    while (at != NULL && at->number != number)
        at = at->next;
    return at;
}

struct sp_mcp_run *sp_mcp_parked(const struct sp_mcp_caller *c, uint64_t number)
{
    const struct sp_mcp_parked *at = sp_mcp_parked_find(c, number);

    return at == NULL ? NULL : at->run;
}

static struct sp_mcp_run *give_back(struct sp_mcp_caller *c, struct sp_mcp_parked *at)
{
    if (at == NULL)
        return NULL;
    struct sp_mcp_run *r = take_out(c->parking, at);
    set_alarm(c->parking);
    return r;
}

struct sp_mcp_run *sp_mcp_unpark(struct sp_mcp_caller *c, uint64_t number)
{
    return give_back(c, sp_mcp_parked_find(c, number));
}

struct sp_mcp_run *sp_mcp_unpark_same(struct sp_mcp_caller *c, const struct sp_mcp_digest *d)
{
    struct sp_mcp_parked *at = c->parking == NULL ? NULL : c->parking->oldest;

    while (at != NULL && !(at->wants_repeat && memcmp(&at->digest, d, sizeof *d) == 0))
        at = at->next;
    return give_back(c, at);
}

void sp_mcp_parking_free(struct sp_mcp_parking *p)
{
    if (p == NULL)
        return;
    while (p->oldest != NULL)
        sp_mcp_run_cancel(take_out(p, p->oldest));
    sp_loop_cancel(loop_of(p), &p->timer);
    p->caller->parking = NULL;
    free(p);
}
