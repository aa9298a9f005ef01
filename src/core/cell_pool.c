/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cell_pool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/log.h"
#include "core/placeholder.h"
#include "core/planted.h"
#include "core/probe.h"
#include "os/remote_mounts.h"
#include "sandbox/canonical.h"
#include "sandbox/spots.h"

#define FAILED_PROBE_MS 5000 /* a host that refused cells is asked again */
#define TRIES           8    /* the disk may change between the look and the making */
#define BURSTS          16   /* sessions whose starts are counted */
#define FIRST_LOOK_MS   10   /* for the end of what commands have left; then twice as long, ... */
#define LAST_LOOK_MS    500  /* ... up to this */

/* A cell with what it stands for. */
struct pool_cell {
    struct sp_cell_pool *all;
    struct pool_cell *prev, *next; /* the latest used first */
    uint64_t session;
    struct sp_cell *cell;
    bool is_stale;  /* no more starts: the disk has changed, or it is ending */
    bool is_ending; /* its cell is killed */
    bool has_network;
    struct sp_buf key; /* the policy as it was asked for */
    struct sp_survey survey;
    bool is_remote;      /* a mark lies on a file system that may not answer ... */
    uint64_t generation; /* ... as the table of mounts was then; 0: not known yet */
    char **placeholders;
    int *locks; /* a descriptor of each, which is the table's */
    size_t placeholder_count;
    struct sp_watched watched;
    struct sp_timer idle, look;
    uint64_t pause_ms; /* between looks for the end of what commands have left */
};

/* Starts of a session that follow each other closely. */
struct burst {
    uint64_t session;
    uint64_t last_ms; /* the last start, or the last end of a command */
    uint32_t count;
};

struct sp_cell_pool {
    struct sp_loop *loop;
    struct sp_cells *cells;
    struct sp_cell_pool_options options;
    struct pool_cell *first;
    uint32_t count; /* of those that are not ending */
    struct burst bursts[BURSTS];
    bool has_powers;
    uint64_t powers_until_ms;
    struct sp_powers powers;
    struct sp_placeholders *placeholders;
    struct sp_surveyor *surveyor;
    struct sp_remote_mounts mounts;
};

/* ---- what makes two policies the same ---- */

static bool add_text(struct sp_buf *key, const char *text)
{
    return text == NULL ? sp_buf_add(key, "\1", 1) : sp_buf_add(key, text, strlen(text) + 1);
}

/* Commands in different directories share a cell if their policy does not depend on that. */
static bool has_entry(const struct sp_profile *f, enum sp_place place)
{
    for (size_t i = 0; i < f->count; i++)
        if (f->entries[i].place == place)
            return true;
    return false;
}

static bool make_key(const struct sp_policy *p, struct sp_buf *key)
{
    const struct sp_profile *f = &p->profile;
    const bool has_globs = has_entry(f, SP_PLACE_GLOB);
    bool ok = sp_buf_printf(key, "%d %d %d %u %d;", f->kind, f->is_unrestricted, f->has_network,
                            f->glob_depth, p->cwd_is_root) &&
              add_text(key, has_globs || p->cwd_is_root ? p->cwd : NULL) &&
              add_text(key, has_entry(f, SP_PLACE_TMPDIR) ? p->tmpdir : NULL) &&
              add_text(key, has_globs ? p->home : NULL);

    for (size_t i = 0; ok && i < p->root_count; i++)
        ok = add_text(key, p->roots[i]);
    for (size_t i = 0; ok && i < f->count; i++)
        ok = sp_buf_printf(key, ";%d %d %d", f->entries[i].place, f->entries[i].access,
                           f->entries[i].skips_missing) &&
             add_text(key, f->entries[i].text) && add_text(key, f->entries[i].subpath);
    return ok;
}

static bool has_key(const struct pool_cell *w, uint64_t session, const struct sp_buf *key)
{
    return !w->is_stale && w->session == session && w->key.len == key->len &&
           memcmp(w->key.data, key->data, key->len) == 0;
}

/* ---- ends ---- */

static void unlink_pool_cell(struct pool_cell *w)
{
    if (w->prev != NULL)
        w->prev->next = w->next;
    else
        w->all->first = w->next;
    if (w->next != NULL)
        w->next->prev = w->prev;
    w->prev = w->next = NULL;
}

static void link_first(struct pool_cell *w)
{
    w->next = w->all->first;
    if (w->next != NULL)
        w->next->prev = w;
    w->all->first = w;
}

static void drop_placeholders(struct pool_cell *w)
{
    for (size_t i = 0; i < w->placeholder_count; i++) {
        sp_placeholder_drop(w->all->placeholders, w->placeholders[i]);
        free(w->placeholders[i]);
    }
    w->placeholder_count = 0;
}

static void free_pool_cell(struct pool_cell *w)
{
    sp_loop_cancel(w->all->loop, &w->idle);
    sp_loop_cancel(w->all->loop, &w->look);
    drop_placeholders(w);
    free(w->placeholders);
    free(w->locks);
    sp_watched_look(&w->watched); /* the last of its processes is gone */
    sp_watched_done(&w->watched);
    sp_survey_done(&w->survey);
    sp_buf_done(&w->key);
    free(w);
}

/* Its last process is dead: nobody relies on the placeholders any more. */
static void on_gone(void *user)
{
    struct pool_cell *w = user;

    unlink_pool_cell(w);
    free_pool_cell(w);
}

static void end_pool_cell(struct pool_cell *w)
{
    if (!w->is_ending)
        w->all->count--;
    w->is_stale = w->is_ending = true;
    sp_loop_cancel(w->all->loop, &w->idle);
    sp_cell_kill(w->cell);
}

static void on_died(void *user)
{
    end_pool_cell(user);
}

static void on_drained(void *user)
{
    const struct sp_cell_pool_options *o = &((struct pool_cell *)user)->all->options;

    o->drained(o->user);
}

/* Of a session that has none, the one that was quiet for longest. */
static struct burst *burst_of(struct sp_cell_pool *all, uint64_t session)
{
    struct burst *oldest = &all->bursts[0];

    for (size_t i = 0; i < BURSTS; i++) {
        if (all->bursts[i].session == session)
            return &all->bursts[i];
        if (all->bursts[i].last_ms < oldest->last_ms)
            oldest = &all->bursts[i];
    }
    *oldest = (struct burst){.session = session};
    return oldest;
}

static void on_rested(void *user)
{
    struct pool_cell *w = user;

    burst_of(w->all, w->session)->last_ms = sp_loop_now(w->all->loop);
    sp_watched_look(&w->watched);
}

/* While commands run. */
static void on_look(struct sp_timer *t)
{
    struct pool_cell *w = SP_CONTAINER(t, struct pool_cell, look);

    sp_watched_look(&w->watched);
    if (sp_cell_is_busy(w->cell) || !sp_cell_is_deserted(w->cell))
        (void)sp_loop_timer(w->all->loop, t, sp_loop_now(w->all->loop) + SP_PLANTED_LOOK_MS,
                            on_look);
}

static void on_idle_timer(struct sp_timer *t);

static void end_in(struct pool_cell *w, uint64_t ms)
{
    (void)sp_loop_timer(w->all->loop, &w->idle, sp_loop_now(w->all->loop) + ms, on_idle_timer);
}

/* No process is in the cell but its own, and no start comes any more: placeholders protect nothing.
 * They are gone before anybody hears that the last command has closed. */
static void retire(struct pool_cell *w)
{
    w->is_stale = true;
    drop_placeholders(w);
    end_in(w, 0); /* not in the middle of what the command's end means to others */
}

/* Nothing asked for runs in it. What a command has left may: then it stays, and is asked again. */
static void on_idle(void *user)
{
    struct pool_cell *w = user;

    if (w->is_ending)
        return;
    w->pause_ms = FIRST_LOOK_MS;
    if (w->is_stale)
        end_in(w, 0);
    else if (w->placeholder_count == 0)
        end_in(w, SP_CELL_IDLE_MS);
    else if (burst_of(w->all, w->session)->count >= SP_BURST_STARTS)
        end_in(w, SP_BURST_MS);
    else if (sp_cell_is_deserted(w->cell))
        retire(w);
    else
        end_in(w, w->pause_ms);
}

static void on_idle_timer(struct sp_timer *t)
{
    struct pool_cell *w = SP_CONTAINER(t, struct pool_cell, idle);

    if (sp_cell_is_deserted(w->cell)) {
        drop_placeholders(w);
        end_pool_cell(w);
        return;
    }
    if (sp_cell_is_busy(w->cell))
        return; /* on_idle comes again */
    end_in(w, w->pause_ms);
    w->pause_ms = w->pause_ms * 2 > LAST_LOOK_MS ? LAST_LOOK_MS : w->pause_ms * 2;
}

/* ---- making ---- */

int sp_cell_pool_features(struct sp_cell_pool *w, const struct sp_powers **ret, struct sp_err *e)
{
    if (!w->has_powers || sp_loop_now(w->loop) >= w->powers_until_ms) {
        const int r = sp_powers_probe(w->options.cell.program, &w->powers, e);

        if (r < 0)
            return r;
        /* What failed may have failed for a moment. */
        w->powers_until_ms =
            w->powers.has_cells ? UINT64_MAX : sp_loop_now(w->loop) + FAILED_PROBE_MS;
        w->has_powers = true;
        if (w->powers.failed_step != SP_BUILD_NONE)
            sp_log(SP_LOG_WARN, "sandboxes are limited here: %s: %s; %s",
                   sp_build_step_name(w->powers.failed_step), strerror(w->powers.failed_errno),
                   sp_powers_remedy(w->powers.failed_step, w->powers.failed_errno));
    }
    *ret = &w->powers;
    return 0;
}

/* A placeholder is nothing that is there. */
static void overlook_placeholders(struct sp_survey *s)
{
    for (size_t i = 0; i < s->count; i++) {
        struct sp_spot *spot = &s->spots[i];

        if (spot->kind == SP_SPOT_DIR && spot->access != SP_ACCESS_WRITE &&
            sp_placeholder_is_at(spot->path))
            spot->kind = SP_SPOT_MISSING;
        if (spot->kind != SP_SPOT_MISSING)
            continue;
        spot->dev = 0;
        spot->ino = 0;
        spot->born = (struct timespec){0};
    }
}

/* ... but once it stands there it has to stay. */
static void mark_placeholder(struct sp_survey *s, const char *path)
{
    struct sp_identity who;

    for (size_t i = 0; i < s->mark_count; i++) {
        struct sp_mark *m = &s->marks[i];

        if (strcmp(m->path, path) != 0 || sp_identity_get_strictly(path, &who) != 0)
            continue;
        m->is_missing = m->is_exact = false;
        m->mode = who.mode & S_IFMT;
        m->dev = who.dev;
        m->ino = who.ino;
        m->born = who.born;
    }
}

static int make_survey(const struct sp_policy *p, const struct sp_fixed_places *fixed,
                       struct sp_survey *ret, struct sp_err *e)
{
    struct sp_resolved resolved = {0};
    int r = sp_resolve(p, &resolved, e);

    if (r == 0)
        r = sp_survey_make(p, &resolved, fixed, ret, e);
    sp_resolved_done(&resolved);
    if (r == 0)
        overlook_placeholders(ret);
    return r;
}

#define MAX_MADE 64 /* components of a path */

static bool is_in_list(const char *const *list, const char *path)
{
    for (; list != NULL && *list != NULL; list++)
        if (strcmp(*list, path) == 0)
            return true;
    return false;
}

/* Not a runtime directory, which nothing else looks into. */
static bool has_rules(const struct sp_fixed_places *fixed, const char *path)
{
    return is_in_list(fixed->own_dirs, path) && !is_in_list(fixed->hidden, path);
}

/* One directory on the way to one of ours, or that itself, for good. 1: neither we nor a command of
 * ours can make it. */
static int make_own_dir(const struct sp_fixed_places *fixed, const char *path, struct sp_err *e)
{
    auto_free char *parent = strndup(path, sp_path_parent(path));
    struct stat st;

    if (mkdir(path, 0700) < 0 && errno != EEXIST) {
        const int err = errno;

        if ((err == EACCES || err == EROFS || err == EPERM) && parent != NULL &&
            stat(parent, &st) == 0 && (st.st_uid != geteuid() || err == EROFS))
            return 1;
        return sp_fail(e, SP_E_SYSTEM, err,
                       "make %.200s, so that no command makes it (SALLYPORT_HOME can name another "
                       "directory)",
                       path);
    }
    auto_close int dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0 ||
        (fstat(dir, &st) == 0 && (st.st_mode & S_IRWXU) != S_IRWXU && fchmod(dir, 0700) < 0))
        return sp_fail(e, SP_E_SYSTEM, errno, "make %.200s a directory of ours", path);
    if (has_rules(fixed, path))
        (void)mkdirat(dir, "rules", 0700); /* an empty one may be taken for a placeholder */
    return 0;
}

/* The next one that is missing where a command could make it. 1: one was made. */
static int make_own_dirs(const struct sp_fixed_places *fixed, const struct sp_survey *s,
                         struct sp_err *e)
{
    for (size_t i = 0; i < s->count; i++) {
        const struct sp_spot *spot = &s->spots[i];
        const bool is_missing = spot->kind == SP_SPOT_MISSING && spot->why == SP_WHY_OWN;
        const int r = is_missing ? make_own_dir(fixed, spot->path, e) : 1;

        if (r != 1)
            return r < 0 ? r : 1;
    }
    return 0;
}

/* In any thread. */
static int make_survey_and_dirs(const struct sp_policy *p, const struct sp_fixed_places *fixed,
                                struct sp_survey *ret, struct sp_err *e)
{
    int r = 1;

    for (int i = 0; r == 1 && i < MAX_MADE; i++) {
        sp_survey_done(ret);
        r = make_survey(p, fixed, ret, e);
        if (r == 0)
            r = make_own_dirs(fixed, ret, e);
    }
    return r < 0 ? r : 0;
}

int sp_cell_pool_plan(struct sp_cell_pool *w, const struct sp_policy *p, struct sp_buf *ret,
                      struct sp_err *e)
{
    struct sp_survey survey = {0};
    const struct sp_powers *powers;
    int r = sp_cell_pool_features(w, &powers, e);

    if (r == 0)
        r = make_survey(p, &w->options.fixed, &survey, e);
    if (r == 0)
        r = sp_plan_compile(&survey, p->profile.has_network, powers, ret, e);
    sp_survey_done(&survey);
    return r;
}

static int take_placeholder(struct pool_cell *w, const char *path, struct sp_place_op *op,
                            struct sp_err *e)
{
    struct sp_placeholder_at at = {0};
    const int r = sp_placeholder_take(w->all->placeholders, path, &at, e);

    if (r > 0)
        op->op = SP_OP_NOTHING;
    if (r != 0)
        return r < 0 ? r : 0;
    op->dev = at.dev;
    op->ino = at.ino;
    w->locks[w->placeholder_count] = at.fd;
    w->placeholders[w->placeholder_count] = strdup(path);
    if (w->placeholders[w->placeholder_count] == NULL) {
        sp_placeholder_drop(w->all->placeholders, path);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a placeholder");
    }
    w->placeholder_count++;
    mark_placeholder(&w->survey, path);
    return 0;
}

static int take_placeholders(struct pool_cell *w, struct sp_buf *plan, struct sp_err *e)
{
    struct sp_plan *p = (void *)plan->data;
    uint32_t wanted = 0;
    int r = 0;

    for (uint32_t i = 0; i < p->op_count; i++)
        wanted += p->ops[i].op == SP_OP_EMPTY && p->ops[i].ino == 0;
    if (wanted > SP_MAX_POLICY_PLACEHOLDERS)
        return sp_fail(e, SP_E_INVALID, 0,
                       "the sandbox policy has too many writable roots: %u protected names are "
                       "missing in them, at most %d can be held",
                       wanted, SP_MAX_POLICY_PLACEHOLDERS);

    w->placeholders = calloc(p->op_count + 1, sizeof(char *));
    w->locks = calloc(p->op_count + 1, sizeof *w->locks);
    if (w->placeholders == NULL || w->locks == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make placeholders");
    for (uint32_t i = 0; r == 0 && i < p->op_count; i++)
        if (p->ops[i].op == SP_OP_EMPTY && p->ops[i].ino == 0)
            r = take_placeholder(w, sp_plan_string(p, p->ops[i].path), &p->ops[i], e);
    return r;
}

static int build(struct pool_cell *w, struct sp_err *e)
{
    auto_buf struct sp_buf plan = {0};
    struct sp_cell_options o = w->all->options.cell;
    const struct sp_powers *powers;
    int r = sp_cell_pool_features(w->all, &powers, e);

    if (r == 0)
        r = sp_plan_compile(&w->survey, w->has_network, powers, &plan, e);
    if (r == 0)
        r = take_placeholders(w, &plan, e);
    if (r < 0)
        return r;
    if (!sp_watched_make(&w->survey, &w->watched))
        return sp_fail(e, SP_E_SYSTEM, errno, "watch for protected names");
    o.plan = &plan;
    o.use_cgroups = false;
    o.user = w;
    o.died = on_died;
    o.rested = on_rested;
    o.idle = on_idle;
    o.gone = on_gone;
    o.drained = on_drained;
    r = sp_cell_new(w->all->cells, &o, &w->cell, e);
    for (size_t i = 0; r == 0 && i < w->placeholder_count; i++)
        sp_cell_hold(w->cell, w->locks[i]);
    return r;
}

/* Cells of a session that are not ending. */
static uint32_t cells_of(const struct sp_cell_pool *w, uint64_t session)
{
    uint32_t n = 0;

    for (const struct pool_cell *i = w->first; i != NULL; i = i->next)
        n += !i->is_ending && i->session == session;
    return n;
}

/* Of the session that has most of them, the least recently used cell in which nothing runs; one
 * that is its session's only one only for a session that has none. */
static struct pool_cell *find_spare(const struct sp_cell_pool *w, bool may_be_only)
{
    struct pool_cell *best = NULL;
    uint32_t most = may_be_only ? 1 : 2;

    for (struct pool_cell *i = w->first; i != NULL; i = i->next) {
        const uint32_t n = i->is_ending ? 0 : cells_of(w, i->session);

        if (n >= most && sp_cell_is_deserted(i->cell)) {
            best = i;
            most = n;
        }
    }
    return best;
}

/* Each session has one cell for itself; what there is beyond goes to whoever comes first. */
static int make_room(struct sp_cell_pool *w, uint64_t session, struct sp_err *e)
{
    const uint32_t own = cells_of(w, session);
    uint32_t more = 0; /* beyond the first of each session */

    for (const struct pool_cell *i = w->first; i != NULL; i = i->next) {
        bool is_first = !i->is_ending;

        for (const struct pool_cell *k = w->first; is_first && k != i; k = k->next)
            is_first = k->is_ending || k->session != i->session;
        more += !i->is_ending && !is_first;
    }
    if (w->count < SP_MAX_CONFINED && (own == 0 || more < SP_MAX_CONFINED_MORE))
        return 0;
    struct pool_cell *spare = find_spare(w, own == 0);
    if (spare == NULL && own == 0)
        return sp_fail(e, SP_E_LIMIT, 0,
                       "at most %d sandboxes with different policies may be busy at once",
                       SP_MAX_CONFINED);
    if (spare == NULL)
        return sp_fail(e, SP_E_LIMIT, 0,
                       "at most %d sandboxes with different policies may be busy at once beyond "
                       "the first of each session",
                       SP_MAX_CONFINED_MORE);
    end_pool_cell(spare);
    return 0;
}

static int make_pool_cell(struct sp_cell_pool *all, uint64_t session, const struct sp_policy *p,
                          struct sp_buf *key, struct sp_survey *survey, struct pool_cell **ret,
                          struct sp_err *e)
{
    int r = make_room(all, session, e);
    struct pool_cell *w = r < 0 ? NULL : calloc(1, sizeof *w);

    if (r < 0)
        return r;
    if (w == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a sandbox");
    w->all = all;
    w->session = session;
    w->has_network = p->profile.has_network;
    w->key = *key;
    w->survey = *survey;
    *key = (struct sp_buf){0};
    *survey = (struct sp_survey){0};
    r = build(w, e);
    if (r < 0) {
        free_pool_cell(w);
        return r;
    }
    link_first(w);
    all->count++;
    end_in(w, SP_CELL_UNUSED_MS); /* in case that the first start fails */
    *ret = w;
    return 0;
}

/* Nobody has removed one: what lies over it would be gone, too. */
static bool has_placeholders(const struct pool_cell *w)
{
    for (size_t i = 0; i < w->placeholder_count; i++)
        if (!sp_placeholder_stands(w->all->placeholders, w->placeholders[i]))
            return false;
    return true;
}

/* A stale one takes no more starts and ends with its last command. */
static void set_stale(struct pool_cell *w)
{
    w->is_stale = true;
    if (!sp_cell_is_busy(w->cell))
        on_idle(w);
}

static struct pool_cell *find_pool_cell(struct sp_cell_pool *all, uint64_t session,
                                        const struct sp_buf *key)
{
    struct pool_cell *w = all->first;

    while (w != NULL && !has_key(w, session, key))
        w = w->next;
    return w;
}

/* Whether to look at its marks may take for ever. */
static bool is_remote(struct pool_cell *w)
{
    const struct sp_remote_mounts *m = &w->all->mounts;

    if (w->generation != m->generation + 1) {
        w->generation = m->generation + 1;
        w->is_remote = false;
        for (size_t i = 0; !w->is_remote && i < w->survey.mark_count; i++)
            w->is_remote = sp_remote_mounts_have(m, w->survey.marks[i].path);
    }
    return w->is_remote;
}

/* A cell for what was surveyed: the one there is if it is still right, or a new one. */
static int use_survey(struct sp_cell_pool *all, uint64_t session, const struct sp_policy *p,
                      struct sp_buf *key, struct sp_survey *survey, struct pool_cell **ret,
                      struct sp_err *e)
{
    struct pool_cell *w = find_pool_cell(all, session, key);

    if (w != NULL && (w->survey.has_globs || is_remote(w))
            ? sp_survey_equal(&w->survey, survey) && has_placeholders(w)
            : w != NULL && sp_survey_holds(&w->survey)) {
        *ret = w;
        return 0;
    }
    if (w != NULL)
        set_stale(w);
    return make_pool_cell(all, session, p, key, survey, ret, e);
}

static int find_or_make(struct sp_cell_pool *all, uint64_t session, const struct sp_policy *p,
                        struct pool_cell **ret, struct sp_err *e)
{
    auto_buf struct sp_buf key = {0};
    struct sp_survey survey __attribute__((cleanup(sp_survey_done))) = {0};

    if (!make_key(p, &key))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "compare sandbox policies");
    struct pool_cell *w = find_pool_cell(all, session, &key);
    if (w != NULL && sp_survey_holds(&w->survey)) {
        *ret = w;
        return 0;
    }
    const int r = make_survey_and_dirs(p, &all->options.fixed, &survey, e);
    return r < 0 ? r : use_survey(all, session, p, &key, &survey, ret, e);
}

static int check_exposed(const struct sp_cell_pool *all, const struct sp_policy *p,
                         struct sp_err *e)
{
    if (p->profile.has_network && all->options.is_exposed)
        return sp_fail(
            e, SP_E_INVALID, 0,
            "sandbox intent cannot be enforced on this executor: with network the command "
            "could ask this server for anything; start the server without --no-auth, let it "
            "listen on a unix socket, or accept that (--expose-to-sandboxes)");
    return 0;
}

static void note_start(struct sp_cell_pool *all, uint64_t session)
{
    struct burst *b = burst_of(all, session);
    const uint64_t now = sp_loop_now(all->loop);
    const uint64_t pause = now - b->last_ms;

    if (pause >= SP_BURST_KEPT_MS || (pause >= SP_BURST_MS && b->count < SP_BURST_STARTS))
        b->count = 0;
    b->last_ms = now;
    b->count += b->count < SP_BURST_STARTS;
}

static struct sp_cell *use(struct pool_cell *w)
{
    struct sp_cell_pool *all = w->all;

    note_start(all, w->session);
    if (w->watched.count > 0 && w->look.slot == 0)
        (void)sp_loop_timer(all->loop, &w->look, sp_loop_now(all->loop) + SP_PLANTED_LOOK_MS,
                            on_look);
    unlink_pool_cell(w);
    link_first(w);
    return w->cell;
}

/* The disk changed again and again. */
static int give_up(struct sp_err *e)
{
    e->code = SP_E_INVALID;
    return sp_wrap(e, "failed to prepare process sandbox: changed");
}

int sp_cell_pool_get(struct sp_cell_pool *all, uint64_t session, const struct sp_policy *p,
                     struct sp_cell **ret, struct sp_err *e)
{
    struct pool_cell *w = NULL;
    int r = check_exposed(all, p, e);

    if (r < 0)
        return r;
    r = -(int)SP_E_STATE;
    for (int i = 0; r == -(int)SP_E_STATE && i < TRIES; i++)
        r = find_or_make(all, session, p, &w, e);
    if (r == -(int)SP_E_STATE)
        return give_up(e);
    if (r < 0 || w == NULL)
        return r;
    *ret = use(w);
    return 0;
}

/* ---- without waiting for the disk ---- */

static void on_surveyed(struct sp_survey_ask *s, const struct sp_policy *policy,
                        struct sp_survey *survey, int r, struct sp_err *e)
{
    struct sp_cell_request *a = SP_CONTAINER(s, struct sp_cell_request, survey);
    auto_buf struct sp_buf key = {0};
    struct pool_cell *w = NULL;

    if (r == 0 && !make_key(policy, &key))
        r = sp_fail(e, SP_E_SYSTEM, ENOMEM, "compare sandbox policies");
    if (r == 0)
        r = use_survey(a->pool, a->session, policy, &key, survey, &w, e);
    if (r == -(int)SP_E_STATE && ++a->tries < TRIES) {
        r = sp_surveyor_ask(a->pool->surveyor, a->session, policy, &a->survey, e);
        if (r == 0)
            return;
    } else if (r == -(int)SP_E_STATE) {
        (void)give_up(e);
    }
    a->done(a, w != NULL ? use(w) : NULL, e);
}

int sp_cell_pool_find(struct sp_cell_pool *all, uint64_t session, const struct sp_policy *p,
                      struct sp_cell **ret, struct sp_err *e)
{
    auto_buf struct sp_buf key = {0};
    const int r = check_exposed(all, p, e);

    *ret = NULL;
    if (r < 0)
        return r;
    if (!make_key(p, &key))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "compare sandbox policies");
    struct pool_cell *w = find_pool_cell(all, session, &key);
    if (w == NULL || w->survey.has_globs)
        return 0;
    sp_remote_mounts_refresh(&all->mounts);
    if (!is_remote(w) && sp_survey_holds(&w->survey))
        *ret = use(w);
    return 0;
}

int sp_cell_pool_request(struct sp_cell_pool *all, uint64_t session, const struct sp_policy *p,
                         struct sp_cell_request *a, struct sp_err *e)
{
    a->pool = all;
    a->session = session;
    a->tries = 0;
    a->survey.done = on_surveyed;
    return sp_surveyor_ask(all->surveyor, session, p, &a->survey, e);
}

void sp_cell_pool_cancel(struct sp_cell_request *a)
{
    sp_surveyor_cancel(&a->survey);
}

/* ---- beginning and end ---- */

int sp_cell_pool_new(struct sp_loop *loop, struct sp_cells *cells,
                     const struct sp_cell_pool_options *o, struct sp_cell_pool **ret,
                     struct sp_err *e)
{
    struct sp_cell_pool *w = calloc(1, sizeof *w);

    if (w == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make the table of sandboxes");
    w->loop = loop;
    w->cells = cells;
    w->options = *o;
    sp_remote_mounts_open(&w->mounts);
    int r = sp_placeholders_new(o->cell.journal, &w->placeholders, e);
    if (r == 0)
        r = sp_surveyor_new(loop, make_survey_and_dirs, &o->fixed, &w->surveyor, e);
    if (r < 0) {
        sp_cell_pool_free(w);
        return r;
    }
    *ret = w;
    return 0;
}

void sp_cell_pool_end_session(struct sp_cell_pool *all, uint64_t session)
{
    struct pool_cell *next;

    for (struct pool_cell *w = all->first; w != NULL; w = next) {
        next = w->next;
        if (w->session == session)
            end_pool_cell(w);
    }
}

void sp_cell_pool_free(struct sp_cell_pool *all)
{
    if (all == NULL)
        return;
    while (all->first != NULL)
        sp_cell_free(all->first->cell); /* on_gone frees the pool_cell */
    sp_surveyor_free(all->surveyor);
    sp_placeholders_free(all->placeholders);
    sp_remote_mounts_close(&all->mounts);
    free(all);
}

bool sp_cell_pool_has_placeholder(const struct sp_cell_pool *w, const char *path)
{
    return sp_placeholder_is_ours(w->placeholders, path);
}

uint32_t sp_cell_pool_count(const struct sp_cell_pool *w)
{
    return w->count;
}
