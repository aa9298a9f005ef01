/* SPDX-License-Identifier: Apache-2.0 */
#include "core/session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/utf8.h"
#include "core/adopt.h"
#include "core/cell_record.h"
#include "core/ended.h"
#include "core/files.h"
#include "core/held.h"
#include "core/history.h"
#include "core/journal.h"
#include "core/ledger.h"
#include "core/records.h"
#include "keeper/hold.h"

/* Closed processes have a slot until the end of the turn. */
#define SPARE_SLOTS 16

/* How long a front waits for the cells that it takes over before clients may connect. */
#define ADOPT_WAIT_MS 100

#define GENERATION_SHIFT 40 /* of numbers; the rest counts in one front */

/* ---- open cells ---- */

static void on_drained(void *user)
{
    const struct sp_front *s = ((struct sp_open_cell *)user)->front;

    s->options.drained(s->options.user);
}

/* The cell is freed once its process has ended. */
static void end_open_cell(struct sp_open_cell *o)
{
    sp_loop_cancel(o->front->loop, &o->idle_timer);
    o->front->open_count--;
    sp_cell_kill(TAKE_PTR(o->cell));
}

static void on_cell_died(void *user)
{
    end_open_cell(user);
}

static void on_process_closed(void *user)
{
    struct sp_open_cell *o = user;

    o->used_ms = sp_loop_now(o->front->loop);
}

/* Not set while commands run: on_cell_idle sets it. */
static void on_idle_timer(struct sp_timer *t)
{
    struct sp_open_cell *o = SP_CONTAINER(t, struct sp_open_cell, idle_timer);
    struct sp_loop *loop = o->front->loop;
    const uint64_t now = sp_loop_now(loop);
    uint64_t due = o->used_ms + SP_OPEN_CELL_IDLE_MS;

    if (o->cell->busy > 0)
        return;
    if (!sp_cell_is_deserted(o->cell)) {
        o->used_ms = now;
        due = now + SP_OPEN_CELL_CHECK_MS;
    } else if (now >= due) {
        sp_log(SP_LOG_INFO, "cell %u (pid %d) is not needed any more",
               (unsigned)(o - o->front->open), (int)o->cell->self.pid);
        end_open_cell(o);
        return;
    }
    (void)sp_loop_timer(loop, t, due, on_idle_timer); /* out of memory: the cell stays */
}

static void on_cell_idle(void *user)
{
    struct sp_open_cell *o = user;
    struct sp_loop *loop = o->front->loop;

    if (o->cell != NULL && o != o->front->open && o->idle_timer.slot == 0)
        (void)sp_loop_timer(loop, &o->idle_timer, sp_loop_now(loop) + SP_OPEN_CELL_IDLE_MS,
                            on_idle_timer);
}

/* One that nothing runs in ends after a while, as after its last command. */
static void on_cell_adopted(void *user)
{
    struct sp_open_cell *o = user;

    if (o->cell->busy == 0)
        on_cell_idle(o);
}

static struct sp_cell_options cell_options(struct sp_open_cell *o)
{
    const struct sp_front_options *of = &o->front->options;
    const uint32_t slots = of->max_processes + of->max_processes / 4 + SPARE_SLOTS;

    return (struct sp_cell_options){
        .program = of->program,
        .slots = slots < SP_MAX_SLOTS ? slots : SP_MAX_SLOTS,
        .use_cgroups = of->use_cgroups,
        .journal = o->front->journal,
        .nofile_soft = of->nofile_soft,
        .nofile_hard = of->nofile_hard,
        .place = (uint32_t)(o - o->front->open),
        .user = o,
        .drained = on_drained,
        .died = on_cell_died,
        .adopted = on_cell_adopted,
        .closed = on_process_closed,
        .idle = on_cell_idle,
    };
}

static int make_open_cell(struct sp_open_cell *o, struct sp_err *e)
{
    const struct sp_cell_options options = cell_options(o);
    const int r = sp_cell_new(o->front->cells, &options, &o->cell, e);

    if (r < 0)
        return r;
    o->front->open_count++;
    o->front->cell_made_ms = o->used_ms = sp_loop_now(o->front->loop);
    return 0;
}

int sp_front_adopt_cell(struct sp_front *f, struct sp_cell_record *r, size_t fixed,
                        struct sp_cell_ends *ends, struct sp_err *e)
{
    struct sp_open_cell *o = r->place < SP_OPEN_CELLS_MAX ? &f->open[r->place] : NULL;

    if (o == NULL || o->cell != NULL)
        return sp_fail(e, SP_E_MALFORMED, 0, "its record is broken");
    const struct sp_cell_options options = cell_options(o);
    const int err = sp_cell_adopt(f->cells, &options, r, fixed, ends, &o->cell, e);
    if (err < 0)
        return err;
    f->open_count++;
    f->cell_made_ms = o->used_ms = sp_loop_now(f->loop);
    return 0;
}

/* The cell with the fewest unanswered starts, the lowest number winning: one command after another
 * uses cell 0. One that does not answer is the last choice. */
static struct sp_open_cell *choose_cell(struct sp_front *s, const struct sp_cell *full,
                                        struct sp_open_cell **ret_room)
{
    struct sp_open_cell *best = NULL;
    const uint32_t most = s->options.open_cells > 0 ? s->options.open_cells : 1;

    *ret_room = NULL;
    for (struct sp_open_cell *o = s->open; o < s->open + most; o++) {
        const struct sp_cell *c = o->cell;

        if (c == NULL && *ret_room == NULL)
            *ret_room = o;
        if (c != NULL && c != full && c->socket >= 0 && !c->is_stalled && !c->is_adopting &&
            (best == NULL || c->starting < best->cell->starting))
            best = o;
    }
    return best;
}

int sp_front_cell(struct sp_front *s, struct sp_session *session, const struct sp_cell *full,
                  struct sp_cell **ret, struct sp_err *e)
{
    const bool is_first = s->cell_made_ms == 0;
    const uint64_t now = sp_loop_now(s->loop);
    struct sp_open_cell *room;
    struct sp_open_cell *o = choose_cell(s, full, &room);
    const bool needs_first = room == s->open;
    const bool is_due = session != NULL && (o == NULL || o->cell->starting >= SP_OPEN_CELL_BUSY) &&
                        (full != NULL || now - s->cell_made_ms >= SP_OPEN_CELL_PAUSE_MS ||
                         (s->open->cell != NULL && s->open->cell->is_adopting));

    if (room != NULL && (needs_first || is_due)) {
        const int r = make_open_cell(room, e);

        if (r < 0 && (needs_first || o == NULL))
            return r;
        if (r == 0)
            sp_log(needs_first && !is_first ? SP_LOG_WARN : SP_LOG_INFO,
                   "a new cell (pid %d) runs commands from now on", (int)room->cell->self.pid);
        o = r == 0 ? room : o;
    }
    if (o == NULL && full != NULL)
        return sp_fail(e, SP_E_LIMIT, 0, "no other cell runs commands (--cells)");
    if (o == NULL || session == NULL)
        o = s->open; /* if it is lost or does not answer, sp_cell_start says so */
    if (session != NULL)
        session->cells |= 1U << (o - s->open);
    *ret = o->cell;
    return 0;
}

/* ---- the front ---- */

/* A limit of all commands of a session or the server counts for all of their processes, or not at
 * all. The host is looked at for limits that need a controller. */
static void warn_of_limits_without_effect(const struct sp_front *s,
                                          const struct sp_limit_levels *given)
{
    for (int level = 0; level < SP_LIMIT_LEVELS; level++)
        for (int i = 0; i < SP_LIMIT_COUNT; i++) {
            if (given->level[level].of[i] == 0 ||
                sp_limits_scope(0, (enum sp_limit)i) == sp_limit_kinds[i].own)
                continue;
            const enum sp_limit_scope scope =
                sp_limits_scope(sp_leaves_prepare(s->leaves, ~0U, false), (enum sp_limit)i);

            if (scope == SP_LIMIT_NOWHERE || (level != SP_LIMIT_COMMAND && scope != SP_LIMIT_TREE))
                sp_log(SP_LOG_WARN, "the limit %s:%s has no effect: this host cannot enforce it",
                       sp_limit_level_names[level], sp_limit_kinds[i].name);
        }
}

/* That of an earlier front, or a new one. */
static int take_history(struct sp_front *s, struct sp_err *e)
{
    const uint64_t key = SP_HOLD_KEY(SP_HOLD_HISTORY, 0);
    struct sp_hold *hold = s->options.hold;
    int fds[SP_HOLD_FDS];
    unsigned count = 0;

    if (sp_hold_take(hold, key, fds, &count, NULL)) {
        if (count == 1 && sp_history_open(fds[0], &s->history, e) == 0)
            return 0;
        for (unsigned i = 0; i < count; i++)
            (void)close(fds[i]);
        sp_log(SP_LOG_WARN, "the history of the last front is lost: %s", e->msg);
    }
    const int r = sp_history_new(s->options.history, &s->history, e);
    if (r < 0 || hold == NULL)
        return r;
    fds[0] = sp_history_fd(s->history);
    return sp_hold_keep(hold, key, fds, 1, "history", e);
}

/* Cells that an earlier front had, and that have died with it, have left their cgroups and
 * placeholders. */
static bool is_noted_thing_used(void *user, const char *kind, const char *path)
{
    const struct sp_front *s = user;
    bool is_used = strcmp(kind, SP_JOURNAL_PLACEHOLDER) == 0 &&
                   sp_placeholder_is_ours(&s->cell_pool->placeholders, path);

    sp_list_each(i, &s->cells->cells)
        is_used = is_used || strcmp(SP_CONTAINER(i, struct sp_cell, link)->cgroup_path, path) == 0;
    return is_used;
}

int sp_front_new(struct sp_loop *loop, const struct sp_front_options *o, struct sp_front **ret,
                 struct sp_err *e)
{
    struct sp_front *s = calloc(1, sizeof *s);

    if (s == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make the server");
    s->loop = loop;
    s->options = *o;
    sp_list_init(&s->sessions);
    sp_ended_init(s);
    for (unsigned i = 0; i < SP_OPEN_CELLS_MAX; i++)
        s->open[i].front = s;
    s->ledger = o->ledger;
    /* No number of an earlier front is used again. */
    if (o->hold != NULL)
        s->next_session = s->next_process = (sp_hold_generation(o->hold) - 1) << GENERATION_SHIFT;
    int r = sp_journal_new(o->runtime_dir, o->hold, &s->journal, e);
    if (r == 0 && o->history > 0)
        r = take_history(s, e);
    if (r == 0)
        r = sp_cells_new(loop, o->is_embedded, &s->cells, e);
    if (r == 0) {
        sp_cells_keep(s->cells, o->hold, o->ledger);
        s->cells->rings.evict = sp_ended_evict_rings;
        s->cells->rings.user = s;
    }
    const struct sp_cell_pool_options pool = {.cell = cell_options(&s->open[0]),
                                              .fixed = o->fixed,
                                              .is_exposed = o->is_exposed,
                                              .is_exposed_widely = o->is_exposed_widely,
                                              .forbids_host = o->forbids_host,
                                              .user = o->user,
                                              .publish = o->publish,
                                              .environ = environ};
    uint64_t *pids = &s->options.limits.level[SP_LIMIT_SESSION].of[SP_LIMIT_PIDS];
    if (*pids == 0)
        *pids = o->default_pids;
    const struct sp_leaves_options leaves = {.limits = s->options.limits,
                                             .is_off = o->has_no_leaves,
                                             .is_embedded = o->is_embedded,
                                             .ledger = o->ledger,
                                             .keeper = sp_hold_keeper(o->hold),
                                             .generation = sp_hold_generation(o->hold)};
    s->leaves = sp_leaves_new(loop, &leaves);
    if (r == 0 && s->leaves == NULL)
        r = sp_fail(e, SP_E_SYSTEM, ENOMEM, "make the server");
    if (r == 0 && o->output_memory != 0)
        s->cells->rings.budget = o->output_memory;
    if (r == 0)
        r = sp_cell_pool_new(loop, s->cells, &pool, &s->cell_pool, e);
    if (r == 0 && sp_hold_generation(o->hold) > 1)
        r = sp_adopt(s, e);
    if (r == 0 && sp_hold_generation(o->hold) > 1)
        sp_journal_clean_up(s->journal, is_noted_thing_used, s);
    if (r == 0)
        sp_cells_await_adopted(s->cells, ADOPT_WAIT_MS);
    if (r == 0 && !o->is_embedded && !o->is_cell_late && s->open[0].cell == NULL)
        r = make_open_cell(&s->open[0], e);
    if (r == 0)
        r = sp_files_new(s, &s->files, e);
    if (r < 0) {
        sp_front_free(s);
        return r;
    }
    warn_of_limits_without_effect(s, &o->limits);
    *ret = s;
    return 0;
}

/* ---- the record of a session ---- */

/* false: no room in the ledger. */
static bool write_record(struct sp_session *s)
{
    struct sp_ledger *l = s->front->ledger;
    struct sp_session_record *r;

    if (l == NULL || s->record != NULL)
        return true;
    r = sp_ledger_alloc(l, SP_LEDGER_SESSION, SP_SESSION_LOOSE, sizeof *r - SP_SESSION_LOOSE);
    if (r == NULL)
        return false;
    r->number = s->number;
    memcpy(r->id, s->id, sizeof s->id);
    memcpy(r->client_name, s->client_name, sizeof s->client_name);
    sp_ledger_commit(l, r);
    s->record = r;
    return true;
}

static void drop_record(struct sp_session *s)
{
    sp_ledger_free(s->front->ledger, s->record);
    s->record = NULL;
}

/* ---- making and ending ---- */

static struct sp_session **session_bucket(const struct sp_front *s, struct sp_str id)
{
    return &s->by_id[sp_hash(id).a & (s->session_buckets - 1)];
}

static void list_by_id(struct sp_front *s, struct sp_session *new)
{
    struct sp_session **b = session_bucket(s, sp_str_of(new->id));

    new->next_in_bucket = *b;
    *b = new;
}

/* Without memory for a larger table the lists get longer. false: there is none at all. */
static bool reserve_bucket(struct sp_front *s)
{
    const uint32_t count = s->session_buckets == 0 ? 64 : s->session_buckets * 2;

    if (s->session_count < s->session_buckets)
        return true;
    struct sp_session **table = calloc(count, sizeof(struct sp_session *));
    if (table == NULL)
        return s->by_id != NULL;
    free(s->by_id);
    s->by_id = table;
    s->session_buckets = count;
    sp_list_each(i, &s->sessions)
        list_by_id(s, SP_CONTAINER(i, struct sp_session, link));
    return true;
}

static void end_session(struct sp_session *s)
{
    struct sp_front *front = s->front;
    struct sp_list *i;

    sp_log(SP_LOG_INFO, "session %.8s ends with %u processes", s->id,
           s->proc_count + s->pasts.count);
    if (front->options.ended != NULL)
        front->options.ended(front->options.user, s);
    sp_held_done(s);
    sp_loop_cancel(front->loop, &s->expiry);
    s->is_overdue = false; /* the removal of its processes must not set the timer */
    while ((i = sp_list_first(&s->procs)) != NULL)
        sp_proc_free(SP_CONTAINER(i, struct sp_proc, link));
    sp_ended_drop_all(s);
    for (unsigned k = 0; k < SP_OPEN_CELLS_MAX; k++) {
        const struct sp_seat all = {.cell = front->open[k].cell, .number = s->number};

        if ((s->cells & 1U << k) != 0)
            (void)sp_cell_send(&all, SP_WIRE_END_SESSION, 0, 0, 0);
    }
    sp_cell_pool_end_session(front->cell_pool, s->number);
    sp_leaves_end_session(s->leaves);
    struct sp_session **at = session_bucket(front, sp_str_of(s->id));
    while (*at != s)
        at = &(*at)->next_in_bucket;
    *at = s->next_in_bucket;
    sp_list_remove(&s->link);
    front->session_count--;
    drop_record(s);
    free(s->buckets);
    free(s);
}

void sp_front_free(struct sp_front *s)
{
    struct sp_list *i;

    if (s == NULL)
        return;
    sp_history_free(TAKE_PTR(s->history)); /* nobody will read it */
    while ((i = sp_list_first(&s->sessions)) != NULL)
        end_session(SP_CONTAINER(i, struct sp_session, link));
    sp_ended_done(s);
    sp_files_free(s->files);
    sp_cell_pool_free(s->cell_pool);
    for (unsigned k = 0; k < SP_OPEN_CELLS_MAX; k++)
        sp_loop_cancel(s->loop, &s->open[k].idle_timer);
    sp_cells_free(s->cells);
    sp_leaves_free(s->leaves);
    sp_journal_free(s->journal);
    free(s->by_id);
    free(s);
}

/* With its id and number. */
static void list_session(struct sp_front *f, struct sp_session *s)
{
    s->front = f;
    sp_list_init(&s->procs);
    sp_list_init(&s->opened);
    sp_pasts_init(&s->pasts, &f->pasts);
    sp_list_append(&f->sessions, &s->link);
    list_by_id(f, s);
    f->session_count++;
}

int sp_session_new(struct sp_front *s, struct sp_session_client *c, struct sp_session **ret,
                   struct sp_err *e)
{
    struct sp_session *n = calloc(1, sizeof *n);

    if (n == NULL || !reserve_bucket(s) || !sp_uuid_make(n->id)) {
        free(n);
        return sp_fail(e, SP_E_SYSTEM, errno, "make a session");
    }
    n->number = ++s->next_session;
    n->client = c;
    list_session(s, n);
    *ret = n;
    return 0;
}

int sp_session_keep(struct sp_session *s, struct sp_err *e)
{
    return write_record(s)
               ? 0
               : sp_fail(e, SP_E_LIMIT, 0,
                         "the server has no room for another session: its processes' ids and "
                         "arguments, or what it remembers of ended ones, take too much memory");
}

int sp_session_restore(struct sp_front *f, struct sp_session_record *r, struct sp_session **ret,
                       struct sp_err *e)
{
    struct sp_session *n = calloc(1, sizeof *n);

    if (n == NULL || !reserve_bucket(f)) {
        free(n);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "take a session over");
    }
    memcpy(n->id, r->id, SP_SESSION_ID);
    memcpy(n->client_name, r->client_name,
           sp_utf8_valid_prefix(
               (struct sp_str){r->client_name, strnlen(r->client_name, SP_CLIENT_NAME)}));
    n->number = r->number;
    n->record = r;
    list_session(f, n);
    *ret = n;
    return 0;
}

/* ---- attach and detach ---- */

static void set_client(struct sp_session *s, struct sp_session_client *c)
{
    s->client = c;
    sp_list_each(i, &s->procs)
        sp_proc_set_owned(SP_CONTAINER(i, struct sp_proc, link), c != NULL);
    sp_list_each(i, &s->opened)
        sp_proc_set_owned(SP_CONTAINER(i, struct sp_proc, link), c != NULL);
    sp_held_attached(s);
}

struct sp_session *sp_front_find(const struct sp_front *s, struct sp_str id)
{
    struct sp_session *found = s->by_id == NULL ? NULL : *session_bucket(s, id);

    while (found != NULL && !sp_str_eq(sp_str_of(found->id), id))
        found = found->next_in_bucket;
    return found;
}

int sp_session_resume(struct sp_front *s, struct sp_str id, struct sp_session_client *c,
                      struct sp_session **ret, struct sp_err *e)
{
    struct sp_session *found = sp_front_find(s, id);

    if (found == NULL)
        return sp_fail(e, SP_E_STATE, 0, "unknown session id " SP_STR_FMT, SP_STR_ARG(id));
    if (found->client != NULL) {
        found->client->challenge(found->client);
        return sp_fail(e, SP_E_ATTACHED, 0, "session %s is already attached to another connection",
                       found->id);
    }
    sp_loop_cancel(s->loop, &found->expiry);
    found->is_overdue = false;
    sp_session_record_due(found, 0);
    set_client(found, c);
    sp_log(SP_LOG_INFO, "session %.8s resumed", found->id);
    *ret = found;
    return 0;
}

/* Named processes keep the session; the removal of the last one sets the timer again. */
static void on_expiry(struct sp_timer *t)
{
    struct sp_session *s = SP_CONTAINER(t, struct sp_session, expiry);

    s->is_overdue = s->named > 0;
    if (!s->is_overdue)
        end_session(s);
}

void sp_session_expire_at(struct sp_session *s, uint64_t due_ms)
{
    if (!sp_loop_timer(s->front->loop, &s->expiry, due_ms, on_expiry))
        sp_log(SP_LOG_WARN, "no memory for a timer: session %.8s is kept", s->id);
}

void sp_session_detach(struct sp_session *s, bool keep)
{
    struct sp_front *front = s->front;
    const uint64_t due = sp_loop_now(front->loop) + front->options.session_ttl_ms;

    set_client(s, NULL);
    if (!keep || !sp_loop_timer(front->loop, &s->expiry, due, on_expiry)) {
        end_session(s);
        return;
    }
    sp_session_record_due(s, due);
    sp_log(SP_LOG_INFO, "session %.8s detached, kept for %llu ms", s->id,
           (unsigned long long)front->options.session_ttl_ms);
}

/* ---- processes by id ---- */

static struct sp_proc **bucket(const struct sp_session *s, struct sp_str id)
{
    return &s->buckets[sp_hash(id).a & (s->bucket_count - 1)];
}

struct sp_proc *sp_session_find(const struct sp_session *s, struct sp_str id)
{
    struct sp_proc *p = s->bucket_count == 0 ? NULL : *bucket(s, id);

    while (p != NULL && !sp_str_eq(p->id, id))
        p = p->next_in_bucket;
    const struct sp_past *past = p == NULL ? sp_pasts_find(&s->pasts, id) : NULL;
    return past == NULL ? p : past->opened;
}

static void put_in_bucket(const struct sp_session *s, struct sp_proc *p)
{
    struct sp_proc **b = bucket(s, p->id);

    p->next_in_bucket = *b;
    *b = p;
}

bool sp_session_add(struct sp_session *s, struct sp_proc *p)
{
    if (s->proc_count >= s->bucket_count) {
        const uint32_t count = s->bucket_count == 0 ? 16 : s->bucket_count * 2;
        struct sp_proc **buckets = calloc(count, sizeof(struct sp_proc *));

        if (buckets == NULL && s->bucket_count == 0)
            return false;
        if (buckets != NULL) { /* else chains get longer */
            free(s->buckets);
            s->buckets = buckets;
            s->bucket_count = count;
            sp_list_each(i, &s->procs)
                put_in_bucket(s, SP_CONTAINER(i, struct sp_proc, link));
        }
    }
    put_in_bucket(s, p);
    sp_list_append(&s->procs, &p->link);
    s->proc_count++;
    s->named += p->name != NULL;
    s->front->proc_count++;
    return true;
}

void sp_session_remove(struct sp_session *s, struct sp_proc *p)
{
    struct sp_proc **at = bucket(s, p->id);

    while (*at != p)
        at = &(*at)->next_in_bucket;
    *at = p->next_in_bucket;
    sp_list_remove(&p->link);
    s->proc_count--;
    s->front->proc_count--;
    if (p->name != NULL)
        sp_session_drop_name(s);
}

void sp_session_drop_name(struct sp_session *s)
{
    s->named--;
    if (s->is_overdue && s->named == 0)
        /* Out of memory: the session stays until the server ends. */
        (void)sp_loop_timer(s->front->loop, &s->expiry, sp_loop_now(s->front->loop), on_expiry);
}
