/* SPDX-License-Identifier: Apache-2.0 */
#include "core/adopt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/grow.h"
#include "base/hash.h"
#include "base/log.h"
#include "core/cell_record.h"
#include "core/ended.h"
#include "core/held.h"
#include "core/ledger.h"
#include "core/records.h"
#include "core/strikes.h"
#include "keeper/hold.h"
#include "sandbox/plan.h"

/* ---- records of one kind ---- */

/* Calls take for each, which may free it; that one is named in the header meanwhile, in case it
 * crashes this front. */
struct sessions;
struct taking {
    struct sp_front *front;
    struct sessions *sessions;
    struct sp_err *error;
    int r; /* of the first failure that is not the record's */
};

/* false: the record is broken, and is freed. */
typedef bool take_fn(struct taking *t, void *record, size_t loose, size_t fixed);

static void take_all(struct taking *t, enum sp_ledger_kind kind, take_fn *take)
{
    struct sp_ledger *l = t->front->ledger;
    struct sp_ledger_header *h = sp_ledger_header(l);
    size_t loose;
    size_t fixed;
    size_t next_loose;
    size_t next_fixed;
    void *next;

    for (void *r = sp_ledger_next(l, kind, NULL, &loose, &fixed); r != NULL && t->r == 0;
         r = next, loose = next_loose, fixed = next_fixed) {
        next = sp_ledger_next(l, kind, r, &next_loose, &next_fixed);
        atomic_store(&h->adopting, sp_ledger_name(l, r));
        if (!take(t, r, loose, fixed)) {
            sp_ledger_free(l, r);
            t->front->adopted.broken++;
        }
    }
    atomic_store(&h->adopting, 0);
}

/* ---- sessions ---- */

/* By number, ascending. */
struct sessions {
    struct sp_session **all;
    size_t count, cap;
};

static bool is_session_id(const char *id)
{
    for (int i = 0; i < SP_SESSION_ID; i++)
        if (strchr("0123456789abcdef-", id[i]) == NULL || id[i] == 0)
            return false;
    return id[SP_SESSION_ID] == 0;
}

static int by_number(const void *a, const void *b)
{
    const uint64_t left = (*(struct sp_session *const *)a)->number;
    const uint64_t right = (*(struct sp_session *const *)b)->number;

    return left < right ? -1 : left > right;
}

static struct sp_session *find_session(const struct sessions *s, uint64_t number)
{
    size_t from = 0;
    size_t to = s->count;

    while (from < to) {
        const size_t middle = (from + to) / 2;

        if (s->all[middle]->number < number)
            from = middle + 1;
        else
            to = middle;
    }
    return from < s->count && s->all[from]->number == number ? s->all[from] : NULL;
}

/* A session that was attached gets its whole time from now on: its client is on its way. */
static void set_expiry(struct sp_front *f, struct sp_session *s)
{
    const uint64_t now = sp_loop_now(f->loop);
    const uint64_t due = atomic_load(&s->record->due_ms);
    const uint64_t ttl = f->options.session_ttl_ms;

    if (due == 0)
        sp_session_hold(s);
    else if (due <= now + ttl || ttl == 0)
        sp_session_expire_at(s, due < now + SP_ADOPT_LEAST_MS ? now + SP_ADOPT_LEAST_MS : due);
    if (due == 0 || (due > now + ttl && ttl != 0)) {
        sp_session_expire_at(s, now + ttl);
        sp_session_record_due(s, due == 0 ? 0 : now + ttl);
    }
}

static bool take_session(struct taking *t, void *record, size_t loose, size_t fixed)
{
    struct sp_session_record *r = record;
    struct sessions *all = t->sessions;
    struct sp_session *s;

    if (loose != SP_SESSION_LOOSE || fixed != sizeof *r - SP_SESSION_LOOSE || r->number == 0 ||
        !is_session_id(r->id) || sp_front_find(t->front, sp_str_of(r->id)) != NULL)
        return false;
    if (!SP_GROW(all->all, all->count + 1, all->cap))
        t->r = sp_fail(t->error, SP_E_SYSTEM, ENOMEM, "take sessions over");
    else if ((t->r = sp_session_restore(t->front, r, &s, t->error)) == 0) {
        set_expiry(t->front, s);
        all->all[all->count++] = s;
        t->front->adopted.sessions++;
    }
    return true;
}

/* ---- processes ---- */

static struct sp_cell *find_cell(const struct sp_front *f, uint32_t key)
{
    sp_list_each(i, &f->cells->cells) {
        struct sp_cell *c = SP_CONTAINER(i, struct sp_cell, link);

        if (c->key == key)
            return c;
    }
    return NULL;
}

/* A record of a process that has one as ended, too, was left behind by the step from one to the
 * other; its cell gets FORGET, since no seat is taken. */
static bool take_process(struct taking *t, void *record, size_t loose, size_t fixed)
{
    struct sp_proc_record *r = record;
    struct sp_session *s;
    struct sp_cell *cell;
    struct sp_proc *p;
    struct sp_err e = {0};

    if (loose != SP_PROC_LOOSE || fixed < sizeof *r - SP_PROC_LOOSE)
        return false;
    s = find_session(t->sessions, r->session);
    cell = find_cell(t->front, r->cell);
    if (s == NULL || cell == NULL)
        return false;
    if (sp_proc_restore(s, r, fixed, &p, &e) < 0) {
        sp_log(SP_LOG_ERROR, "a process of session %.8s is not taken over: %s", s->id, e.msg);
        return false;
    }
    t->front->adopted.processes++;
    if (!sp_cell_seat(cell, &p->seat, r->slot, r->seat_number)) {
        sp_log(SP_LOG_ERROR, "process " SP_STR_FMT " has no place in its cell", SP_STR_ARG(p->id));
        sp_proc_free(p); /* frees the record, too */
    }
    return true;
}

/* ---- cells ---- */

/* A front that died before it gave the cell's socket to the keeper took the cell along, and had not
 * sent it a start. */
static bool take_cell(struct taking *t, void *record, size_t loose, size_t fixed)
{
    struct sp_front *f = t->front;
    struct sp_cell_record *r = record;
    struct sp_cell_ends ends = {0};
    struct sp_err e = {0};
    int taken = -1;

    if (loose != 0 || fixed < sizeof *r) /* sp_cell_adopt checks the rest */
        return false;
    const uint64_t key = SP_HOLD_KEY(SP_HOLD_CELL, r->key);
    if (find_cell(f, r->key) == NULL &&
        sp_hold_take(f->options.hold, key, ends.fds, &ends.count, ends.text))
        taken = r->tier == SP_TIER_NONE ? sp_front_adopt_cell(f, r, fixed, &ends, &e)
                                        : sp_cell_pool_adopt(f->cell_pool, r, fixed, &ends, &e);
    if (taken == 0) {
        f->adopted.cells++;
        return true;
    }
    if (e.code != SP_E_NONE)
        sp_log(SP_LOG_ERROR, "cell %u is not taken over: %s", r->key, e.msg);
    sp_hold_drop(f->options.hold, key);
    return false;
}

/* Their records were freed, and the messages to the keeper not sent. */
static void drop_cells(const struct sp_front *f)
{
    uint64_t key = SP_HOLD_KEY(SP_HOLD_CELL, 0);

    while (sp_hold_next(f->options.hold, SP_HOLD_CELL, key, &key))
        if (find_cell(f, (uint32_t)key) == NULL)
            sp_hold_drop(f->options.hold, key);
}

int sp_adopt(struct sp_front *f, struct sp_err *e)
{
    struct sessions sessions = {0};
    struct taking t = {.front = f, .sessions = &sessions, .error = e};

    take_all(&t, SP_LEDGER_SESSION, take_session);
    if (sessions.count > 0)
        qsort(sessions.all, sessions.count, sizeof(struct sp_session *), by_number);
    if (t.r == 0) {
        take_all(&t, SP_LEDGER_CELL, take_cell);
        drop_cells(f);
        f->adopted.broken += sp_ended_adopt_all(f);
        f->adopted.ended = f->pasts.count;
        take_all(&t, SP_LEDGER_PROC, take_process);
        f->adopted.broken += sp_ledger_removed(f->ledger);
    }
    free(sessions.all);
    return t.r;
}

/* ---- the ledger ---- */

/* A front that crashed while it read a record would not be the last one: that record is removed,
 * which ends its process. A front that was killed did not crash. */
static void drop_poisoned(struct sp_ledger *l, int last_status)
{
    struct sp_ledger_header *h = sp_ledger_header(l);
    const uint64_t name = atomic_exchange(&h->adopting, 0);
    size_t loose;
    size_t fixed;

    if (name == 0 || !sp_is_crash(last_status))
        return;
    for (enum sp_ledger_kind kind = SP_LEDGER_SESSION; kind < SP_LEDGER_KINDS; kind++)
        for (void *r = NULL; (r = sp_ledger_next(l, kind, r, &loose, &fixed)) != NULL;) {
            if (sp_ledger_name(l, r) != name)
                continue;
            sp_log(SP_LOG_ERROR,
                   "the last front crashed while it took over a record of kind %d: it is dropped",
                   (int)kind);
            sp_ledger_free(l, r);
            return;
        }
}

int sp_adopt_ledger(struct sp_hold *hold, struct sp_ledger **ret, struct sp_err *e)
{
    const uint64_t key = SP_HOLD_KEY(SP_HOLD_LEDGER, 0);
    int fds[SP_HOLD_FDS] = {-1, -1, -1, -1};
    unsigned count = 0;
    int r;

    if (sp_hold_take(hold, key, fds, &count, NULL)) {
        r = count == 1 ? sp_ledger_open(fds[0], ret, e)
                       : sp_fail(e, SP_E_MALFORMED, 0, "the keeper has no ledger");
        for (unsigned i = 0; r < 0 && i < count; i++)
            (void)close(fds[i]);
    } else {
        r = sp_ledger_new(ret, e);
        fds[0] = r == 0 ? sp_ledger_fd(*ret) : -1;
        if (r == 0)
            r = sp_hold_keep(hold, key, fds, 1, "ledger", e);
    }
    if (r == 0) {
        struct sp_ledger_header *h = sp_ledger_header(*ret);

        sp_hash_set_key(h->hash_key);
        drop_poisoned(*ret, sp_hold_last_status(hold));
        atomic_store(&h->generation, sp_hold_generation(hold));
    }
    return r;
}
