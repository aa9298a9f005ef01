/* SPDX-License-Identifier: Apache-2.0 */
/*
 * strikes: which request a front was handling when it crashed, and what is held back then.
 *
 * The flight record in the ledger's header names the session, the peer and the method of the
 * request that the front is handling. If the front dies of a crash meanwhile, the next one counts a
 * strike against the session; against the peer's address if there was no session yet, unless that
 * is local. SP_STRIKES_MAX within SP_STRIKES_WITHIN_MS hold the session or address back: its
 * requests are refused for a time that doubles each time. Its commands run on.
 */
#ifndef SP_CORE_STRIKES_H
#define SP_CORE_STRIKES_H

#include <string.h>

#include "base/str.h"
#include "core/ledger.h"

#define SP_STRIKES_MAX       3
#define SP_STRIKES_WITHIN_MS 60000
#define SP_STRIKES_HOLD_MS   60000 /* the first time */
#define SP_STRIKES_LONGEST                                                  \
    600000 /* the longest time, in ms; after so long without a strike it is \
              short again */

/* Zero: no ledger, nothing is noted. */
struct sp_strikes {
    struct sp_ledger_header *header; /* borrowed */
    bool is_any;                     /* a session or an address has strikes */
};

/* Whether a front with this wait status died by its own fault; by SIGALRM: it was not ready in time
 * (keeper/keeper.h). */
bool sp_is_crash(int status);

/* An heir's, with the wait status of the front before it; the first front's is 0. Logs the request
 * of a crash. */
void sp_strikes_begin(struct sp_strikes *s, struct sp_ledger *ledger, int last_status,
                      uint64_t now_ms);

static inline void sp_flight_copy(char ret[SP_LEDGER_FLIGHTS], struct sp_str text)
{
    const size_t n = text.n < SP_LEDGER_FLIGHTS ? text.n : SP_LEDGER_FLIGHTS;

    memcpy(ret, text.p, n);
    if (n < SP_LEDGER_FLIGHTS)
        ret[n] = 0;
}

/* A message of this peer is being handled; session: a number, 0: none yet. */
static inline void sp_flight_begin(const struct sp_strikes *s, uint64_t session, const char *peer)
{
    struct sp_ledger_flight *f = s->header == NULL ? NULL : &s->header->flight;

    if (f == NULL)
        return;
    f->session = session;
    f->method[0] = 0;
    sp_flight_copy(f->peer, sp_str_of(peer));
    atomic_store_explicit(&f->is_set, 1, memory_order_release);
}

/* Once it is known. */
static inline void sp_flight_method(const struct sp_strikes *s, struct sp_str method)
{
    if (s->header != NULL)
        sp_flight_copy(s->header->flight.method, method);
}

static inline void sp_flight_end(const struct sp_strikes *s)
{
    if (s->header != NULL)
        atomic_store_explicit(&s->header->flight.is_set, 0, memory_order_release);
}

/* SP_E_LIMIT: the session, or without one the peer, is held back. */
int sp_strikes_check(const struct sp_strikes *s, uint64_t session, const char *peer,
                     struct sp_err *e);
/* How many are held back. */
static inline unsigned sp_strikes_held(const struct sp_strikes *s, uint64_t now_ms)
{
    unsigned n = 0;

    for (unsigned i = 0; s->is_any && i < SP_LEDGER_STRIKES; i++)
        n += s->header->strikes[i].held_until_ms > now_ms;
    return n;
}

#endif
