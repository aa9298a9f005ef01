/* SPDX-License-Identifier: Apache-2.0 */
#include "core/strikes.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"

#define ADDRESS_BIT ((uint64_t)1 << 63) /* a session's number has it not */

bool sp_is_crash(int status)
{
    static const int crashes[] = {SIGSEGV, SIGBUS,  SIGILL, SIGFPE,
                                  SIGABRT, SIGTRAP, SIGSYS, SIGALRM};

    for (unsigned i = 0; WIFSIGNALED(status) && i < sizeof crashes / sizeof crashes[0]; i++)
        if (WTERMSIG(status) == crashes[i])
            return true;
    return false;
}

/* "127.0.0.1:34346", "[::1]:34346", "unix", "stdio". 0: local, or unknown. */
static uint64_t number_of(struct sp_str peer)
{
    const char *colon = memrchr(peer.p, ':', peer.n);
    const struct sp_str host = {peer.p, colon == NULL ? 0 : (size_t)(colon - peer.p)};

    if (host.n == 0 || sp_str_eq(host, SP_STR("[::1]")) ||
        (host.n > 4 && memcmp(host.p, "127.", 4) == 0) ||
        (host.n > 12 && memcmp(host.p, "[::ffff:127.", 12) == 0))
        return 0;
    return sp_hash(host).a | ADDRESS_BIT;
}

static uint64_t last_ms(const struct sp_ledger_strike *i)
{
    uint64_t last = 0;

    for (unsigned k = 0; k < SP_STRIKES_MAX; k++)
        last = i->at_ms[k] > last ? i->at_ms[k] : last;
    return last;
}

/* Its entry, or the one that may be forgotten first. */
static struct sp_ledger_strike *find_strike(struct sp_ledger_header *h, uint64_t who)
{
    struct sp_ledger_strike *oldest = &h->strikes[0];

    for (unsigned i = 0; i < SP_LEDGER_STRIKES; i++) {
        struct sp_ledger_strike *each = &h->strikes[i];

        if (each->who == who)
            return each;
        if (each->who == 0 || (oldest->who != 0 && last_ms(each) < last_ms(oldest)))
            oldest = oldest->who == 0 ? oldest : each;
    }
    *oldest = (struct sp_ledger_strike){.who = who};
    return oldest;
}

static void add_strike(struct sp_ledger_header *h, uint64_t who, uint64_t now_ms)
{
    struct sp_ledger_strike *i = find_strike(h, who);

    if (now_ms - last_ms(i) > SP_STRIKES_LONGEST)
        i->held_for_ms = 0;
    memmove(i->at_ms + 1, i->at_ms, (SP_STRIKES_MAX - 1) * sizeof i->at_ms[0]);
    i->at_ms[0] = now_ms;
    if (i->at_ms[SP_STRIKES_MAX - 1] == 0 ||
        now_ms - i->at_ms[SP_STRIKES_MAX - 1] > SP_STRIKES_WITHIN_MS)
        return;
    i->held_for_ms = i->held_for_ms == 0                        ? SP_STRIKES_HOLD_MS
                     : i->held_for_ms >= SP_STRIKES_LONGEST / 2 ? SP_STRIKES_LONGEST
                                                                : i->held_for_ms * 2;
    i->held_until_ms = now_ms + i->held_for_ms;
    memset(i->at_ms + 1, 0, (SP_STRIKES_MAX - 1) * sizeof i->at_ms[0]);
}

/* What an earlier front has written is not believed: times are those of this clock. */
static void check_all(struct sp_strikes *s, uint64_t now_ms)
{
    for (unsigned i = 0; i < SP_LEDGER_STRIKES; i++) {
        struct sp_ledger_strike *each = &s->header->strikes[i];

        if (last_ms(each) > now_ms || each->held_until_ms > now_ms + SP_STRIKES_LONGEST ||
            each->held_for_ms > SP_STRIKES_LONGEST)
            *each = (struct sp_ledger_strike){0};
        s->is_any = s->is_any || each->who != 0;
    }
}

void sp_strikes_begin(struct sp_strikes *s, struct sp_ledger *ledger, int last_status,
                      uint64_t now_ms)
{
    *s = (struct sp_strikes){.header = ledger == NULL ? NULL : sp_ledger_header(ledger)};
    if (s->header == NULL)
        return;
    struct sp_ledger_flight *f = &s->header->flight;
    const bool is_set = atomic_load_explicit(&f->is_set, memory_order_acquire) != 0;
    const struct sp_str peer = {f->peer, strnlen(f->peer, SP_LEDGER_FLIGHTS)};
    const struct sp_str method = {f->method, strnlen(f->method, SP_LEDGER_FLIGHTS)};

    if (is_set && sp_is_crash(last_status)) {
        const uint64_t who = f->session != 0 ? f->session & ~ADDRESS_BIT : number_of(peer);

        sp_log(SP_LOG_WARN,
               "the last front crashed (signal %d) in a request of " SP_STR_FMT
               ", session %llu: " SP_STR_FMT,
               WTERMSIG(last_status), SP_STR_ARG(peer), (unsigned long long)f->session,
               SP_STR_ARG(method));
        if (who != 0)
            add_strike(s->header, who, now_ms);
    }
    sp_flight_end(s);
    check_all(s, now_ms);
}

int sp_strikes_check(const struct sp_strikes *s, uint64_t session, const char *peer,
                     struct sp_err *e)
{
    if (!s->is_any)
        return 0;
    const uint64_t now_ms = sp_clock_ms();
    const uint64_t who = session != 0 ? session : number_of(sp_str_of(peer));
    for (unsigned i = 0; i < SP_LEDGER_STRIKES; i++) {
        const struct sp_ledger_strike *each = &s->header->strikes[i];

        if (who != 0 && each->who == who && each->held_until_ms > now_ms)
            return sp_fail(e, SP_E_LIMIT, 0,
                           "this %s ended the server %d times; it is held back for %llu s",
                           session != 0 ? "session" : "address", SP_STRIKES_MAX,
                           (unsigned long long)(each->held_until_ms - now_ms + 999) / 1000);
    }
    return 0;
}
