/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cell_pool.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/json.h"
#include "base/log.h"
#include "core/cell_child.h"
#include "core/cell_record.h"
#include "sandbox/canonical.h"
#include "sandbox/network_json.h"

#define FAILED_PROBE_MS 5000 /* until a host that refused cells is probed again */
#define TRIES           8    /* the disk may change between the survey and the making of a cell */

/* Background processes that commands have left keep a cell alive: pauses between two checks. */
#define FIRST_CHECK_MS    10  /* doubled each time ... */
#define LAST_CHECK_MS     500 /* ... up to this */
#define SETTLING_CHECK_MS 10  /* while the network of a cell settles */

struct watched_root {
    int fd; /* of the directory, which may be moved */
    char *path;
    uint32_t names; /* bits, indexes of sp_protected_names */
};

struct watched {
    struct watched_root *roots;
    size_t count;
};

/*
 * A cell of the pool, with the session, policy and survey it was made for.
 *
 *   in use --idle--> waits for idle_timer --deserted--> ending: killed --gone--> freed
 *     |                                                    ^
 *     '--the disk has changed: stale, takes no starts------'
 */
struct pool_cell {
    struct sp_cell_pool *pool;
    struct sp_list link;
    uint64_t session;
    struct sp_cell *cell;
    bool is_stale;      /* takes no more starts */
    bool is_ending;     /* the cell is killed; is_stale is set, too */
    bool is_adopted;    /* made by an earlier front: its placeholders are locked until it is dead */
    uint64_t names_key; /* of the keeper, for the names of its network; 0: none */
    struct sp_profile network;           /* of the policy: only its network is kept */
    struct sp_managed *managed;          /* NULL: none, or the cell is ending */
    struct sp_published_cell *published; /* the same */
    struct sp_buf key;                   /* of the policy, see make_key */
    struct sp_survey survey;
    bool is_remote;      /* a mark lies on a file system that may not answer ... */
    uint64_t generation; /* ... by the mount table of this generation + 1; 0: not known yet */
    char **placeholders; /* paths; each is a reference in pool->placeholders */
    int *locks;          /* their descriptors, borrowed from that table for build_cell */
    size_t placeholder_count;
    struct watched watched;
    /* Set anew by each use, and by on_idle. A command in the cell does not cancel it: it looks when
     * it fires. */
    struct sp_timer idle_timer;
    struct sp_timer watch_timer;
    uint64_t check_ms; /* until the next check for background processes */
};

static struct pool_cell *cell_of(struct sp_list *link)
{
    return SP_CONTAINER(link, struct pool_cell, link);
}

/* ---- the key of a policy: two policies with equal keys share a cell ---- */

static bool add_text(struct sp_buf *key, const char *text)
{
    return text == NULL ? sp_buf_add(key, "\1", 1) : sp_buf_add(key, text, strlen(text) + 1);
}

static bool has_entry(const struct sp_profile *f, enum sp_place place)
{
    for (size_t i = 0; i < f->count; i++)
        if (f->entries[i].place == place)
            return true;
    return false;
}

/* Directories are part of the key only where an entry refers to them, so that commands in different
 * directories share a cell. */
static int make_key(const struct sp_policy *p, struct sp_buf *key, struct sp_err *e)
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
    if (sp_profile_managed(f) != NULL)
        ok = ok && sp_network_policy_add_key(sp_profile_managed(f), key);
    return ok ? 0 : sp_fail(e, SP_E_SYSTEM, ENOMEM, "compare sandbox policies");
}

/*
 * ---- planted files ----
 *
 * Protected names that have no placeholder are watched for files that appear while a command in a
 * sandbox could have made them. Commands in a sandbox have the user's own uid, so it cannot be
 * known who made a file, and nothing is deleted. A file of this user is renamed in its directory,
 * atomically and without reading it, so that no program uses it under its name; the log tells the
 * new name.
 */

static struct watched_root *add_root(struct watched *w, const char *path, size_t n)
{
    for (size_t i = 0; i < w->count; i++)
        if (strlen(w->roots[i].path) == n && memcmp(w->roots[i].path, path, n) == 0)
            return &w->roots[i];
    struct watched_root *roots = realloc(w->roots, (w->count + 1) * sizeof *roots);
    if (roots == NULL)
        return NULL;
    w->roots = roots;
    struct watched_root r = {.path = strndup(path, n)};
    if (r.path == NULL)
        return NULL;
    r.fd = sp_open_strictly(AT_FDCWD, r.path, O_PATH | O_DIRECTORY);
    if (r.fd < 0) {
        free(r.path);
        return NULL;
    }
    roots[w->count] = r;
    return &roots[w->count++];
}

static void watched_done(struct watched *w)
{
    for (size_t i = 0; i < w->count; i++) {
        (void)close(w->roots[i].fd);
        free(w->roots[i].path);
    }
    free(w->roots);
    *w = (struct watched){0};
}

/* Takes the names that the survey found missing and that get no placeholder. false: out of memory
 * or descriptors. */
static bool watch_names(const struct sp_survey *s, struct watched *ret)
{
    struct watched w = {0};

    for (size_t i = 0; i < s->count; i++) {
        const char *slash = s->spots[i].is_watched ? strrchr(s->spots[i].path, '/') : NULL;

        if (slash == NULL)
            continue;
        const size_t n = slash == s->spots[i].path ? 1 : (size_t)(slash - s->spots[i].path);
        struct watched_root *root = add_root(&w, s->spots[i].path, n);
        if (root == NULL) {
            watched_done(&w);
            return false;
        }
        for (unsigned k = 0; k < SP_PROTECTED_COUNT; k++)
            if (strcmp(sp_protected_names[k], slash + 1) == 0)
                root->names |= 1U << k;
    }
    *ret = w;
    return true;
}

/* A command that has taken the write permission of its directory away again does not prevent it. */
static int rename_in(int dir, const char *name, const char *other)
{
    char path[48];
    struct stat st;

    if (renameat2(dir, name, dir, other, RENAME_NOREPLACE) == 0)
        return 0;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", dir);
    if (errno != EACCES || fstat(dir, &st) < 0 || (st.st_mode & S_IRWXU) == S_IRWXU ||
        chmod(path, (st.st_mode & 07777) | S_IRWXU) < 0)
        return -1;
    const int r = renameat2(dir, name, dir, other, RENAME_NOREPLACE);
    const int err = errno;
    (void)chmod(path, st.st_mode & 07777);
    errno = err;
    return r;
}

static void displace(const struct watched_root *r, const char *name)
{
    struct stat seen;
    struct stat moved;
    unsigned random = 0;
    char other[64];
    char path[PATH_MAX];

    /* A command may have made it: it belongs to this user, and is no placeholder. */
    if (fstatat(r->fd, name, &seen, AT_SYMLINK_NOFOLLOW) < 0 || seen.st_uid != geteuid() ||
        (snprintf(path, sizeof path, "%s/%s", r->path, name) < (int)sizeof path &&
         sp_placeholder_is_at(path)) ||
        getrandom(&random, sizeof random, 0) < 0)
        return;
    (void)snprintf(other, sizeof other, "%s.made-in-sandbox-%08x", name, random);
    if (rename_in(r->fd, name, other) < 0) {
        if (errno != ENOENT)
            sp_log(SP_LOG_ERROR,
                   "%s/%s was made while a command in a sandbox ran, and cannot be renamed: %s; do "
                   "not use it before you have looked at it",
                   r->path, name, strerror(errno));
        return;
    }
    /* Another user's file took the name between fstatat and renameat2: rename it back. */
    if (fstatat(r->fd, other, &moved, AT_SYMLINK_NOFOLLOW) == 0 &&
        (moved.st_dev != seen.st_dev || moved.st_ino != seen.st_ino) && moved.st_uid != geteuid() &&
        renameat2(r->fd, other, r->fd, name, RENAME_NOREPLACE) == 0)
        return;
    sp_log(SP_LOG_WARN,
           "%s/%s was made while a command in a sandbox could make it: it is %s/%s now; if it is "
           "yours, rename it back",
           r->path, name, r->path, other);
}

/* Renames files that have appeared. */
static void displace_planted(const struct watched *w)
{
    for (size_t i = 0; i < w->count; i++)
        for (unsigned k = 0; k < SP_PROTECTED_COUNT; k++)
            if ((w->roots[i].names & 1U << k) != 0)
                displace(&w->roots[i], sp_protected_names[k]);
}

/* ---- ends ---- */

static void drop_placeholders(struct pool_cell *c)
{
    for (size_t i = 0; i < c->placeholder_count; i++) {
        sp_placeholder_drop(&c->pool->placeholders, c->placeholders[i]);
        free(c->placeholders[i]);
    }
    c->placeholder_count = 0;
}

/* options.gone */
static void free_pool_cell(void *user)
{
    struct pool_cell *c = user;

    sp_list_remove(&c->link);
    sp_loop_cancel(c->pool->loop, &c->idle_timer);
    sp_loop_cancel(c->pool->loop, &c->watch_timer);
    drop_placeholders(c);
    if (c->names_key != 0)
        sp_hold_drop(c->pool->cells->hold, c->names_key);
    free(c->placeholders);
    free(c->locks);
    displace_planted(&c->watched); /* a last time: all processes of the cell are dead */
    watched_done(&c->watched);
    sp_survey_done(&c->survey);
    sp_buf_done(&c->key);
    sp_managed_free(c->managed);
    sp_published_cell_free(c->published);
    sp_profile_done(&c->network);
    free(c);
}

/* options.died */
static void end_pool_cell(void *user)
{
    struct pool_cell *c = user;

    if (!c->is_ending)
        c->pool->count--;
    c->is_stale = c->is_ending = true;
    sp_loop_cancel(c->pool->loop, &c->idle_timer);
    sp_managed_free(c->managed); /* its sockets keep the network namespace alive */
    c->managed = NULL;
    sp_published_cell_free(c->published); /* the same */
    c->published = NULL;
    sp_cell_kill(c->cell);
}

static void on_drained(void *user)
{
    const struct sp_cell_options *o = &((struct pool_cell *)user)->pool->options.cell;

    o->drained(o->user);
}

/* A session without an entry takes over the entry that was quiet for longest. */
static struct sp_cell_burst *burst_of(struct sp_cell_pool *pool, uint64_t session)
{
    struct sp_cell_burst *oldest = &pool->bursts[0];

    for (size_t i = 0; i < SP_CELL_BURSTS; i++) {
        if (pool->bursts[i].session == session)
            return &pool->bursts[i];
        if (pool->bursts[i].last_ms < oldest->last_ms)
            oldest = &pool->bursts[i];
    }
    *oldest = (struct sp_cell_burst){.session = session};
    return oldest;
}

static void on_process_closed(void *user)
{
    struct pool_cell *c = user;

    burst_of(c->pool, c->session)->last_ms = sp_loop_now(c->pool->loop);
    displace_planted(&c->watched);
}

/* Runs while commands or what they have left may make protected names. */
static void on_watch_timer(struct sp_timer *t)
{
    struct pool_cell *c = SP_CONTAINER(t, struct pool_cell, watch_timer);

    displace_planted(&c->watched);
    if (c->cell->busy > 0 || !sp_cell_is_deserted(c->cell))
        (void)sp_loop_timer(c->pool->loop, t, sp_loop_now(c->pool->loop) + SP_PLANTED_CHECK_MS,
                            on_watch_timer);
}

static void on_idle_timer(struct sp_timer *t);

static void end_in(struct pool_cell *c, uint64_t ms)
{
    (void)sp_loop_timer(c->pool->loop, &c->idle_timer, sp_loop_now(c->pool->loop) + ms,
                        on_idle_timer);
}

/* The last command has closed, or the last file worker has left; processes that a command has left
 * may still run. */
static void on_idle(void *user)
{
    struct pool_cell *c = user;

    if (c->is_ending)
        return;
    c->check_ms = FIRST_CHECK_MS;
    if (c->is_stale)
        end_in(c, 0);
    else if (c->placeholder_count == 0)
        end_in(c, SP_CELL_IDLE_MS);
    else if (burst_of(c->pool, c->session)->count >= SP_BURST_STARTS)
        end_in(c, SP_BURST_MS);
    else if (sp_cell_is_deserted(c->cell)) {
        /* Remove the placeholders now, before clients hear that the command has closed. The cell is
         * killed later: this is called from within the end of the command. */
        c->is_stale = true;
        drop_placeholders(c);
        end_in(c, 0);
    } else {
        end_in(c, c->check_ms);
    }
}

static void on_idle_timer(struct sp_timer *t)
{
    struct pool_cell *c = SP_CONTAINER(t, struct pool_cell, idle_timer);

    if (sp_cell_is_deserted(c->cell)) {
        if (!c->is_adopted)
            drop_placeholders(c);
        /* The proxy, which ends with the cell, has yet to report what the last command reached. */
        if (c->managed != NULL && sp_managed_is_settling(c->managed))
            end_in(c, SETTLING_CHECK_MS);
        else
            end_pool_cell(c);
        return;
    }
    if (c->cell->busy > 0)
        return; /* on_idle is called again */
    end_in(c, c->check_ms);
    c->check_ms = c->check_ms * 2 > LAST_CHECK_MS ? LAST_CHECK_MS : c->check_ms * 2;
}

/* ---- making a cell ---- */

int sp_cell_pool_features(struct sp_cell_pool *pool, const struct sp_host_features **ret,
                          struct sp_err *e)
{
    if (!pool->has_features || sp_loop_now(pool->loop) >= pool->features_until_ms) {
        const int r = sp_host_features_probe(pool->options.cell.program, &pool->host_features, e);

        if (r < 0)
            return r;
        /* A failure may be temporary. */
        pool->features_until_ms = pool->host_features.has_full_tier
                                      ? UINT64_MAX
                                      : sp_loop_now(pool->loop) + FAILED_PROBE_MS;
        pool->has_features = true;
        if (pool->host_features.failed_step != SP_BUILD_NONE)
            sp_log(SP_LOG_WARN, "sandboxes are limited here: %s: %s; %s",
                   sp_build_step_name(pool->host_features.failed_step),
                   strerror(pool->host_features.failed_errno),
                   sp_host_features_remedy(pool->host_features.failed_step,
                                           pool->host_features.failed_errno));
    }
    *ret = &pool->host_features;
    return 0;
}

bool sp_cell_pool_has_networks(struct sp_cell_pool *pool)
{
    const struct sp_host_features *f = &pool->host_features;

    /* A probe that failed is not repeated here: the answer is told to every client that connects.
     */
    return (pool->has_features || sp_cell_pool_features(pool, &f, NULL) == 0) && f->has_full_tier &&
           f->has_own_network;
}

int sp_cell_pool_plan(struct sp_cell_pool *pool, const struct sp_policy *p, struct sp_buf *ret,
                      struct sp_err *e)
{
    struct sp_survey survey = {0};
    const struct sp_host_features *host_features;
    int r = sp_cell_pool_features(pool, &host_features, e);

    if (r == 0)
        r = sp_survey_policy(p, &pool->options.fixed, &survey, e);
    if (r == 0)
        r = sp_plan_compile(&survey, &p->profile, host_features, ret, e);
    sp_survey_done(&survey);
    return r;
}

/* A protected name in a directory without write permission needs no placeholder, but a command may
 * change the permission: it is watched. false: it is another name. */
static bool watch_name(struct sp_survey *s, const char *path)
{
    for (unsigned k = 0; k < SP_PROTECTED_COUNT; k++)
        for (size_t i = 0;
             sp_str_eq(sp_base_name(sp_str_of(path)), sp_str_of(sp_protected_names[k])) &&
             i < s->count;
             i++)
            if (strcmp(s->spots[i].path, path) == 0) {
                s->spots[i].is_watched = true;
                return true;
            }
    return false;
}

/* Makes the directories at the missing names of the plan, and notes their inodes there. */
static int take_placeholders(struct pool_cell *c, struct sp_buf *plan, struct sp_err *e)
{
    struct sp_plan *p = (void *)plan->data;
    uint32_t wanted = 0;

    for (uint32_t i = 0; i < p->op_count; i++)
        wanted += p->ops[i].op == SP_OP_EMPTY && p->ops[i].ino == 0;
    if (wanted > SP_MAX_POLICY_PLACEHOLDERS)
        return sp_fail(e, SP_E_INVALID, 0,
                       "the sandbox policy has too many writable roots: %u protected names are "
                       "missing in them, at most %d can be held",
                       wanted, SP_MAX_POLICY_PLACEHOLDERS);
    c->placeholders = calloc(wanted + 1, sizeof(char *));
    c->locks = calloc(wanted + 1, sizeof *c->locks);
    if (c->placeholders == NULL || c->locks == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make placeholders");
    for (uint32_t i = 0; i < p->op_count; i++) {
        struct sp_place_op *op = &p->ops[i];
        const char *path = sp_plan_string(p, op->path);
        struct sp_placeholder_at at = {0};
        struct sp_identity who;

        if (op->op != SP_OP_EMPTY || op->ino != 0)
            continue;
        const int r = sp_placeholder_take(&c->pool->placeholders, path, &at, e);
        if (r < 0)
            return r;
        if (r == SP_PLACEHOLDER_UNWRITABLE && !watch_name(&c->survey, path))
            return sp_fail(e, SP_E_INVALID, 0,
                           "failed to prepare process sandbox: placeholder:%s: Permission denied",
                           path);
        if (r != SP_PLACEHOLDER_TAKEN) {
            op->op = SP_OP_NOTHING;
            continue;
        }
        op->dev = at.dev;
        op->ino = at.ino;
        c->locks[c->placeholder_count] = at.fd;
        c->placeholders[c->placeholder_count] = strdup(path);
        if (c->placeholders[c->placeholder_count] == NULL) {
            sp_placeholder_drop(&c->pool->placeholders, path);
            return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a placeholder");
        }
        c->placeholder_count++;
        /* The survey saw nothing here: from now on it holds only while the placeholder stays. */
        for (size_t k = 0; k < c->survey.mark_count; k++) {
            struct sp_mark *m = &c->survey.marks[k];

            if (strcmp(m->path, path) == 0 && sp_identity_get_strictly(path, &who) == 0) {
                m->is_missing = m->is_exact = false;
                m->who = who;
            }
        }
    }
    return 0;
}

static int start_network(struct pool_cell *c, int names, struct sp_err *e)
{
    struct sp_cell_pool *pool = c->pool;
    const struct sp_network_policy *managed = sp_profile_managed(&c->network);
    int r = 0;

    if (managed != NULL && pool->networks == NULL) {
        r = sp_managed_hub_new(pool->loop, pool->options.cell.program, pool->options.environ,
                               &pool->networks, e);
        if (r == 0)
            sp_managed_hub_set_rules(pool->networks, pool->options.forbids_host,
                                     pool->options.user);
        for (uint32_t i = 0; r == 0 && i < pool->own_port_count; i++)
            sp_managed_hub_add_port(pool->networks, pool->own_ports[i]);
    }
    return r < 0 || managed == NULL
               ? r
               : sp_managed_new(pool->networks, managed, names, &c->managed, e);
}

/* With the host's network a command listens on the host itself. */
static int publish_ports(struct pool_cell *c, const struct sp_plan *plan, struct sp_err *e)
{
    struct sp_publish *publish = c->pool->options.publish;

    if (publish == NULL || sp_publish_port(publish, 0) == NULL || c->network.has_network)
        return 0;
    if (plan->net != SP_NET_OWN && plan->net != SP_NET_MANAGED)
        return sp_fail(e, SP_E_INVALID, 0,
                       "ports cannot be published on this host: its sandboxes have no network of "
                       "their own");
    return sp_published_cell_new(publish, &c->published, e);
}

static void set_cell_options(struct pool_cell *c, struct sp_cell_options *o)
{
    o->session = c->session;
    o->managed = c->managed;
    o->published = c->published;
    /* No leaves: its view has no cgroup file system that could be written. Terminate walks the
     * tree, and the end of the cell kills its pid namespace. */
    o->use_cgroups = false;
    o->user = c;
    o->died = end_pool_cell;
    o->closed = on_process_closed;
    o->idle = on_idle;
    o->gone = free_pool_cell;
    o->drained = on_drained;
}

/* What a front needs that takes the cell over: "N" if commands have the host's network, then the
 * policy of a managed one, then the paths of the placeholders, each with its NUL. */
static bool add_text_for_heirs(const struct pool_cell *c, struct sp_buf *out)
{
    const struct sp_network_policy *managed = sp_profile_managed(&c->network);
    bool ok = sp_buf_add_str(out, sp_str_of(c->network.has_network ? "N" : "")) &&
              sp_buf_add(out, "", 1) &&
              (managed == NULL || sp_network_policy_write(managed, out)) && sp_buf_add(out, "", 1);

    for (size_t i = 0; ok && i < c->placeholder_count; i++)
        ok = sp_buf_add(out, c->placeholders[i], strlen(c->placeholders[i]) + 1);
    return ok;
}

/* Before the first start, so that addresses which commands have been given stay those of their
 * names. */
static int keep_names(struct pool_cell *c, struct sp_err *e)
{
    struct sp_hold *hold = c->pool->cells->hold;

    if (hold == NULL || c->managed == NULL)
        return 0;
    const int names = sp_managed_names(c->managed);
    c->names_key = SP_HOLD_KEY(SP_HOLD_NAMES, c->cell->key);
    return sp_hold_keep(hold, c->names_key, &names, 1, NULL, e);
}

static int build_cell(struct pool_cell *c, struct sp_err *e)
{
    auto_buf struct sp_buf plan = {0};
    auto_buf struct sp_buf text = {0};
    struct sp_cell_options o = c->pool->options.cell;
    const struct sp_host_features *host_features;
    int r = sp_cell_pool_features(c->pool, &host_features, e);

    if (r == 0)
        r = sp_plan_compile(&c->survey, &c->network, host_features, &plan, e);
    if (r == 0)
        r = take_placeholders(c, &plan, e);
    if (r < 0)
        return r;
    if (!watch_names(&c->survey, &c->watched))
        return sp_fail(e, SP_E_SYSTEM, errno, "watch for protected names");
    r = start_network(c, -1, e);
    if (r == 0)
        r = publish_ports(c, (const struct sp_plan *)(const void *)plan.data, e);
    if (r < 0)
        return r;
    set_cell_options(c, &o);
    o.plan = &plan;
    o.locks = c->locks;
    o.lock_count = c->placeholder_count;
    if (!add_text_for_heirs(c, &text))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a sandbox");
    o.text = sp_buf_str(&text);
    r = sp_cell_new(c->pool->cells, &o, &c->cell, e);
    if (r == 0)
        r = keep_names(c, e);
    if (r == 0 && c->published != NULL)
        sp_published_cell_begin(c->published, c->cell);
    return r;
}

static uint32_t cells_of(const struct sp_cell_pool *pool, uint64_t session)
{
    uint32_t n = 0;

    sp_list_each(i, &pool->in_use)
        n += !cell_of(i)->is_ending && cell_of(i)->session == session;
    return n;
}

/* Each session may have one cell; the cells beyond that are shared first come, first served. */
static int make_room(struct sp_cell_pool *pool, uint64_t session, struct sp_err *e)
{
    const uint32_t own = cells_of(pool, session);
    uint32_t more = 0; /* beyond the first of each session */

    sp_list_each(i, &pool->in_use) {
        bool is_first = !cell_of(i)->is_ending;

        for (struct sp_list *k = pool->in_use.next; is_first && k != i; k = k->next)
            is_first = cell_of(k)->is_ending || cell_of(k)->session != cell_of(i)->session;
        more += !cell_of(i)->is_ending && !is_first;
    }
    if (pool->count < SP_MAX_CONFINED && (own == 0 || more < SP_MAX_CONFINED_MORE))
        return 0;
    /* The least recently used deserted cell of the session that has most cells, but a session's
     * only cell just for a session that has none. */
    struct pool_cell *spare = NULL;
    uint32_t most = own == 0 ? 1 : 2;
    sp_list_each(i, &pool->in_use) {
        struct pool_cell *c = cell_of(i);
        const uint32_t n = c->is_ending ? 0 : cells_of(pool, c->session);

        if (n >= most && sp_cell_is_deserted(c->cell)) {
            spare = c;
            most = n;
        }
    }
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

static struct pool_cell *find_pool_cell(struct sp_cell_pool *pool, uint64_t session,
                                        const struct sp_buf *key)
{
    sp_list_each(i, &pool->in_use) {
        struct pool_cell *c = cell_of(i);

        if (!c->is_stale && c->session == session && c->key.len == key->len &&
            memcmp(c->key.data, key->data, key->len) == 0)
            return c;
    }
    return NULL;
}

/* Whether checking the marks of its survey may block for ever. */
static bool is_remote(struct pool_cell *c)
{
    const struct sp_remote_mounts *m = &c->pool->mounts;

    if (c->generation != m->generation + 1) {
        c->generation = m->generation + 1;
        c->is_remote = false;
        for (size_t i = 0; !c->is_remote && i < c->survey.mark_count; i++)
            c->is_remote = sp_remote_mounts_have(m, c->survey.marks[i].path);
    }
    return c->is_remote;
}

/* Returns the existing cell if the new survey is equal to its own, or makes a new cell. */
static int use_survey(struct sp_cell_pool *pool, uint64_t session, const struct sp_policy *p,
                      struct sp_buf *key, struct sp_survey *survey, struct pool_cell **ret,
                      struct sp_err *e)
{
    struct pool_cell *c = find_pool_cell(pool, session, key);
    bool is_same = false;

    /* Marks tell nothing about globs, and may block on a remote mount: there the new survey is
     * compared, and the placeholders, which a survey counts as missing, are looked at. */
    if (c != NULL && (c->survey.has_globs || is_remote(c))) {
        is_same = sp_survey_equal(&c->survey, survey);
        for (size_t i = 0; is_same && i < c->placeholder_count; i++)
            is_same = sp_placeholder_stands(&pool->placeholders, c->placeholders[i]);
    } else if (c != NULL)
        is_same = sp_survey_holds(&c->survey);
    if (is_same) {
        *ret = c;
        return 0;
    }
    if (c != NULL) { /* takes no more starts, and ends with its last command */
        c->is_stale = true;
        if (c->cell->busy == 0)
            on_idle(c);
    }
    int r = make_room(pool, session, e);
    if (r < 0)
        return r;
    c = calloc(1, sizeof *c);
    if (c == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a sandbox");
    c->pool = pool;
    c->session = session;
    c->network.has_network = p->profile.has_network;
    if (sp_profile_managed(&p->profile) != NULL &&
        (c->network.managed = sp_network_policy_copy(p->profile.managed)) == NULL) {
        free(c);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a sandbox");
    }
    c->check_ms = FIRST_CHECK_MS;
    c->key = *key;
    c->survey = *survey;
    *key = (struct sp_buf){0};
    *survey = (struct sp_survey){0};
    r = build_cell(c, e);
    if (r < 0) {
        free_pool_cell(c);
        return r;
    }
    sp_list_prepend(&pool->in_use, &c->link);
    pool->count++;
    *ret = c;
    return 0;
}

static int check_exposed(const struct sp_cell_pool *pool, const struct sp_policy *p,
                         struct sp_err *e)
{
    /* A managed network refuses our ports on this machine, but a router may map a public address
     * back to us. */
    const bool is_managed = sp_profile_managed(&p->profile) != NULL;

    if (pool->options.is_exposed &&
        (p->profile.has_network || (is_managed && pool->options.is_exposed_widely)))
        return sp_fail(
            e, SP_E_INVALID, 0,
            "sandbox intent cannot be enforced on this executor: with network the command "
            "could ask this server for anything; start the server without --no-auth, let it "
            "listen on a unix socket, or accept that (--expose-to-sandboxes)");
    return 0;
}

static struct sp_cell *use_pool_cell(struct pool_cell *c)
{
    struct sp_cell_pool *pool = c->pool;
    struct sp_cell_burst *b = burst_of(pool, c->session);
    const uint64_t now = sp_loop_now(pool->loop);
    const uint64_t pause = now - b->last_ms;

    /* A file operation counts as a start. */
    if (pause >= SP_BURST_KEPT_MS || (pause >= SP_BURST_MS && b->count < SP_BURST_STARTS))
        b->count = 0;
    b->last_ms = now;
    b->count += b->count < SP_BURST_STARTS;
    if (c->watched.count > 0 && c->watch_timer.slot == 0)
        (void)sp_loop_timer(pool->loop, &c->watch_timer, now + SP_PLANTED_CHECK_MS, on_watch_timer);
    sp_list_remove(&c->link);
    sp_list_prepend(&pool->in_use, &c->link);
    end_in(c, SP_CELL_UNUSED_MS); /* in case the start fails, or the worker only rests again */
    return c->cell;
}

/* The disk changed during each of TRIES attempts. */
static int give_up(struct sp_err *e)
{
    e->code = SP_E_INVALID;
    return sp_wrap(e, "failed to prepare process sandbox: the disk changed %d times", TRIES);
}

int sp_cell_pool_get(struct sp_cell_pool *pool, uint64_t session, const struct sp_policy *p,
                     struct sp_cell **ret, struct sp_err *e)
{
    int r = check_exposed(pool, p, e);

    if (r < 0)
        return r;
    r = -(int)SP_E_STATE;
    for (int i = 0; r == -(int)SP_E_STATE && i < TRIES; i++) {
        auto_buf struct sp_buf key = {0};
        struct sp_survey survey __attribute__((cleanup(sp_survey_done))) = {0};

        r = make_key(p, &key, e);
        if (r < 0)
            return r;
        struct pool_cell *c = find_pool_cell(pool, session, &key);
        if (c == NULL || !sp_survey_holds(&c->survey)) {
            r = sp_survey_and_prepare(p, &pool->options.fixed, &survey, e);
            if (r == 0)
                r = use_survey(pool, session, p, &key, &survey, &c, e);
        }
        if (r == 0)
            *ret = use_pool_cell(c);
    }
    return r == -(int)SP_E_STATE ? give_up(e) : r;
}

/* ---- cells of an earlier front ---- */

/* The next of the strings, each with its NUL. false: there is none. */
static bool next_text(struct sp_str *rest, struct sp_str *ret)
{
    const char *end = rest->n == 0 ? NULL : memchr(rest->p, 0, rest->n);

    if (end == NULL)
        return false;
    *ret = (struct sp_str){rest->p, (size_t)(end - rest->p)};
    rest->n -= ret->n + 1;
    rest->p = end + 1;
    return true;
}

static int read_network(struct sp_str text, struct sp_network_policy **ret, struct sp_err *e)
{
    auto_free char *copy = sp_str_dup(text);
    struct sp_json j = {0};

    if (copy == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "take a sandbox over");
    int r = sp_json_parse(&j, copy, text.n, e);
    if (r == 0)
        r = sp_json_type(&j, 0) == SP_JSON_OBJECT
                ? sp_network_policy_read(&j, 0, ret, e)
                : sp_fail(e, SP_E_MALFORMED, 0, "the record of a sandbox is not valid");
    sp_json_done(&j);
    return r;
}

/* What is not a placeholder any more needs no reference. */
static int take_over_placeholders(struct pool_cell *c, struct sp_str paths, struct sp_err *e)
{
    struct sp_str path;
    size_t count = 0;

    for (struct sp_str rest = paths; next_text(&rest, &path);)
        count++;
    if (count > SP_MAX_POLICY_PLACEHOLDERS)
        return sp_fail(e, SP_E_MALFORMED, 0, "the record of a sandbox is not valid");
    c->placeholders = calloc(count + 1, sizeof(char *));
    if (c->placeholders == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "take a sandbox over");
    while (next_text(&paths, &path)) {
        struct sp_placeholder_at at = {0};

        if (path.n == 0 || path.p[0] != '/' || !sp_placeholder_is_at(path.p) ||
            sp_placeholder_take(&c->pool->placeholders, path.p, &at, NULL) != SP_PLACEHOLDER_TAKEN)
            continue;
        c->placeholders[c->placeholder_count] = strdup(path.p);
        if (c->placeholders[c->placeholder_count] == NULL) {
            sp_placeholder_drop(&c->pool->placeholders, path.p);
            return sp_fail(e, SP_E_SYSTEM, ENOMEM, "take a sandbox over");
        }
        c->placeholder_count++;
    }
    return 0;
}

static int read_text_of_earlier(struct pool_cell *c, const struct sp_cell_record *r, size_t fixed,
                                struct sp_err *e)
{
    struct sp_str rest = {r->text, fixed < sizeof *r ? 0 : fixed - sizeof *r};
    struct sp_str network;
    struct sp_str managed;

    if (!next_text(&rest, &network) || !next_text(&rest, &managed))
        return sp_fail(e, SP_E_MALFORMED, 0, "the record of a sandbox is not valid");
    c->network.has_network = network.n > 0;
    const int failed = managed.n == 0 ? 0 : read_network(managed, &c->network.managed, e);
    return failed < 0 ? failed : take_over_placeholders(c, rest, e);
}

/* The proxy of a managed network is started anew; the cell sends its ports again. */
static int start_network_again(struct pool_cell *c, uint32_t key, struct sp_err *e)
{
    struct sp_hold *hold = c->pool->cells->hold;
    int fds[SP_HOLD_FDS] = {-1, -1, -1, -1};
    unsigned count = 0;

    if (c->network.managed != NULL) {
        c->names_key = SP_HOLD_KEY(SP_HOLD_NAMES, key);
        (void)sp_hold_take(hold, c->names_key, fds, &count, NULL);
    }
    for (unsigned i = 1; i < count; i++)
        (void)close(fds[i]);
    int r = start_network(c, count > 0 ? fds[0] : -1, e);
    if (r == 0 && c->network.managed != NULL && count == 0) {
        const int names = sp_managed_names(c->managed);

        r = sp_hold_keep(hold, c->names_key, &names, 1, NULL, e);
    }
    if (r == 0 && !c->network.has_network && c->pool->options.publish != NULL &&
        sp_publish_port(c->pool->options.publish, 0) != NULL)
        r = sp_published_cell_new(c->pool->options.publish, &c->published, e);
    return r;
}

static void on_adopted(void *user)
{
    struct pool_cell *c = user;

    if (c->published != NULL)
        sp_published_cell_begin(c->published, c->cell);
    if (c->cell->busy == 0)
        on_idle(c);
}

int sp_cell_pool_adopt(struct sp_cell_pool *pool, struct sp_cell_record *record, size_t fixed,
                       struct sp_cell_ends *ends, struct sp_err *e)
{
    struct sp_cell_options o = pool->options.cell;
    struct pool_cell *c = calloc(1, sizeof *c);
    int r = c == NULL ? sp_fail(e, SP_E_SYSTEM, ENOMEM, "take a sandbox over") : 0;

    if (r == 0) {
        c->pool = pool;
        c->session = record->session;
        c->check_ms = FIRST_CHECK_MS;
        /* Its survey was the earlier front's: nothing proves that it holds still. */
        c->is_stale = c->is_adopted = true;
        r = read_text_of_earlier(c, record, fixed, e);
    }
    if (r == 0)
        r = start_network_again(c, record->key, e);
    if (r == 0) {
        set_cell_options(c, &o);
        o.adopted = on_adopted;
        r = sp_cell_adopt(pool->cells, &o, record, fixed, ends, &c->cell, e);
    } else {
        for (unsigned i = 0; i < ends->count; i++)
            (void)close(ends->fds[i]);
    }
    if (r < 0) {
        if (c != NULL)
            free_pool_cell(c);
        return r;
    }
    sp_list_prepend(&pool->in_use, &c->link);
    pool->count++;
    return 0;
}

/* ---- without waiting for the disk ---- */

static void on_surveyed(struct sp_survey_request *s, const struct sp_policy *policy,
                        struct sp_survey *survey, int r, struct sp_err *e)
{
    struct sp_cell_request *a = SP_CONTAINER(s, struct sp_cell_request, survey);
    auto_buf struct sp_buf key = {0};
    struct pool_cell *c = NULL;

    if (r == 0)
        r = make_key(policy, &key, e);
    if (r == 0)
        r = use_survey(a->pool, a->session, policy, &key, survey, &c, e);
    if (r == -(int)SP_E_STATE && ++a->tries < TRIES) {
        r = sp_surveyor_ask(a->pool->surveyor, a->session, policy, &a->survey, e);
        if (r == 0)
            return;
    } else if (r == -(int)SP_E_STATE) {
        (void)give_up(e);
    }
    a->done(a, c != NULL ? use_pool_cell(c) : NULL, e);
}

int sp_cell_pool_find(struct sp_cell_pool *pool, uint64_t session, const struct sp_policy *p,
                      struct sp_cell **ret, struct sp_err *e)
{
    auto_buf struct sp_buf key = {0};
    int r = check_exposed(pool, p, e);

    *ret = NULL;
    if (r == 0)
        r = make_key(p, &key, e);
    if (r < 0)
        return r;
    struct pool_cell *c = find_pool_cell(pool, session, &key);
    if (c == NULL || c->survey.has_globs)
        return 0;
    sp_remote_mounts_refresh(&pool->mounts);
    if (!is_remote(c) && sp_survey_holds(&c->survey))
        *ret = use_pool_cell(c);
    return 0;
}

int sp_cell_pool_request(struct sp_cell_pool *pool, uint64_t session, const struct sp_policy *p,
                         struct sp_cell_request *a, struct sp_err *e)
{
    a->pool = pool;
    a->session = session;
    a->tries = 0;
    a->survey.done = on_surveyed;
    return sp_surveyor_ask(pool->surveyor, session, p, &a->survey, e);
}

/* ---- beginning and end ---- */

int sp_cell_pool_new(struct sp_loop *loop, struct sp_cells *cells,
                     const struct sp_cell_pool_options *o, struct sp_cell_pool **ret,
                     struct sp_err *e)
{
    struct sp_cell_pool *pool = calloc(1, sizeof *pool);

    if (pool == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make the table of sandboxes");
    pool->loop = loop;
    pool->cells = cells;
    pool->options = *o;
    sp_list_init(&pool->in_use);
    sp_remote_mounts_open(&pool->mounts);
    pool->placeholders.journal = o->cell.journal;
    const int r = sp_surveyor_new(loop, &o->fixed, &pool->surveyor, e);
    if (r < 0) {
        sp_cell_pool_free(pool);
        return r;
    }
    *ret = pool;
    return 0;
}

void sp_cell_pool_end_session(struct sp_cell_pool *pool, uint64_t session)
{
    sp_list_each_safe(i, &pool->in_use)
        if (cell_of(i)->session == session)
            end_pool_cell(cell_of(i));
}

void sp_cell_pool_free(struct sp_cell_pool *pool)
{
    if (pool == NULL)
        return;
    for (struct sp_list *i; (i = sp_list_first(&pool->in_use)) != NULL;)
        sp_cell_free(cell_of(i)->cell); /* frees the pool_cell */
    sp_managed_hub_free(pool->networks);
    sp_surveyor_free(pool->surveyor);
    sp_placeholders_free(&pool->placeholders);
    sp_remote_mounts_close(&pool->mounts);
    free(pool);
}

void sp_cell_pool_add_own_port(struct sp_cell_pool *pool, uint16_t port)
{
    if (pool->own_port_count < SP_PROXY_PORTS_MAX)
        pool->own_ports[pool->own_port_count++] = port;
}
