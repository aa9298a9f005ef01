/* SPDX-License-Identifier: Apache-2.0 */
#include "core/leaves.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/log.h"
#include "core/ledger.h"

#define MAX_KEEPING   64           /* leaves that keep their files open between two commands */
#define START_ROOM    (8ULL << 20) /* memory of the levels above for one more command */
#define FIRST_LOOK_MS 20   /* between two looks at leaves with strays; doubled each time ... */
#define LAST_LOOK_MS  1000 /* ... up to this */
#define LOOKS_AT_ONCE 64   /* lingering leaves looked at in one turn of the loop */
#define END_ROUNDS    200
#define END_ROUND_MS  5

struct sp_leaves {
    struct sp_loop *loop;
    struct sp_leaves_options options;
    bool has_looked; /* host is filled in */
    struct sp_limit_host host;
    unsigned prepared; /* controllers that the server's group has */
    struct sp_limit_group server;
    struct sp_list sessions;
    struct sp_list waiting;          /* sessions with lingering leaves, or that have ended */
    uint32_t ready, count;           /* leaves: ready ones, and all */
    struct sp_leaves_record *record; /* NULL: none */
    struct sp_timer look;
    uint64_t look_ms;
};

struct sp_leaf_session {
    struct sp_leaves *leaves;
    struct sp_list link, waits;
    struct sp_limit_group group;
    struct sp_list ready, used;
    struct sp_list lingering; /* the one that was looked at last is the last */
    uint32_t ready_count, lingering_count, last_number;
    bool has_ended;
};

/* What the ledger says of the server's group. */
struct sp_leaves_record {
    _Atomic uint64_t prepared, moved; /* bits, as in sp_leaves and sp_limit_group */
    _Atomic uint64_t enabled;
    /* fixed */
    char name[SP_CGROUP_NAME];
    uint32_t count, controllers, may_move, zero;
    struct {
        uint32_t is_v2, controllers;
        char own[400];
    } items[SP_HIERARCHIES];
};
#define LEAVES_LOOSE offsetof(struct sp_leaves_record, name)

static struct sp_leaf *leaf_of(struct sp_list *link)
{
    return SP_CONTAINER(link, struct sp_leaf, link);
}

/* ---- the server ---- */

struct sp_leaves *sp_leaves_new(struct sp_loop *loop, const struct sp_leaves_options *o)
{
    struct sp_leaves *l = calloc(1, sizeof *l);

    if (l == NULL)
        return NULL;
    l->loop = loop;
    l->options = *o;
    sp_list_init(&l->sessions);
    sp_list_init(&l->waiting);
    return l;
}

static enum sp_controller controller_of(enum sp_limit limit)
{
    return limit == SP_LIMIT_MEMORY ? SP_CONTROL_MEMORY
           : limit == SP_LIMIT_PIDS ? SP_CONTROL_PIDS
           : limit == SP_LIMIT_CPUS ? SP_CONTROL_CPU
                                    : SP_CONTROL_CPUACCT;
}

static uint64_t limit_of(const struct sp_leaves *l, int level, int limit)
{
    return l->options.limits.level[level].of[limit];
}

/* The controllers that the levels above commands need. */
static unsigned shared_controllers(const struct sp_leaves *l)
{
    unsigned r = 0;

    for (int level = SP_LIMIT_SESSION; level < SP_LIMIT_LEVELS; level++)
        for (int i = 0; i < SP_LIMIT_SHARED; i++)
            if (limit_of(l, level, i) != 0)
                r |= SP_CONTROL_BIT(controller_of((enum sp_limit)i));
    return r;
}

/* The limits of a level, by controller. */
static void list_limits(const struct sp_limit_set *set, uint64_t ret[SP_CONTROLLERS])
{
    memset(ret, 0, SP_CONTROLLERS * sizeof *ret);
    for (int i = 0; i < SP_LIMIT_SHARED; i++)
        ret[controller_of((enum sp_limit)i)] = set->of[i];
}

/* Before the group is made: a later front finds and removes it. */
static void write_record(struct sp_leaves *l)
{
    struct sp_ledger *ledger = l->options.ledger;
    struct sp_leaves_record *r;

    if (ledger == NULL)
        return;
    r = sp_ledger_alloc(ledger, SP_LEDGER_LEAVES, LEAVES_LOOSE, sizeof *r - LEAVES_LOOSE);
    if (r == NULL) {
        sp_log(SP_LOG_WARN, "no room in the ledger: limits do not outlive this process");
        return;
    }
    memcpy(r->name, l->server.name, sizeof r->name);
    r->count = l->host.count;
    r->controllers = l->host.controllers;
    r->may_move = l->host.may_move;
    for (unsigned h = 0; h < l->host.count; h++) {
        r->items[h].is_v2 = l->host.items[h].is_v2;
        r->items[h].controllers = l->host.items[h].controllers;
        memcpy(r->items[h].own, l->host.items[h].own, sizeof r->items[h].own);
    }
    sp_ledger_commit(ledger, r);
    l->record = r;
}

/* The group of an earlier front. false: it had none. */
static bool read_record(struct sp_leaves *l)
{
    static const uint64_t none[SP_CONTROLLERS];
    struct sp_leaves_record *r;
    uint64_t limits[SP_CONTROLLERS];
    size_t loose;
    size_t fixed;

    if (l->options.ledger == NULL)
        return false;
    r = sp_ledger_next(l->options.ledger, SP_LEDGER_LEAVES, NULL, &loose, &fixed);
    if (r == NULL || loose != LEAVES_LOOSE || fixed != sizeof *r - LEAVES_LOOSE ||
        r->count > SP_HIERARCHIES || memchr(r->name, 0, sizeof r->name) == NULL ||
        strchr(r->name, '/') != NULL)
        return false;
    l->host = (struct sp_limit_host){.count = r->count,
                                     .controllers = r->controllers,
                                     .may_move = r->may_move != 0,
                                     .root = l->options.keeper};
    for (unsigned h = 0; h < r->count; h++) {
        struct sp_hierarchy *to = &l->host.items[h];

        if (memchr(r->items[h].own, 0, sizeof to->own) == NULL)
            return false;
        to->is_v2 = r->items[h].is_v2 != 0;
        to->controllers = r->items[h].controllers;
        memcpy(to->own, r->items[h].own, sizeof to->own);
    }
    l->record = r;
    l->prepared = (unsigned)atomic_load(&r->prepared);
    sp_limit_group_init(&l->server, &l->host, NULL, r->name);
    list_limits(&l->options.limits.level[SP_LIMIT_SERVER], limits);
    sp_limit_group_reopen(&l->server, r->controllers, l->prepared == 0 ? none : limits);
    l->server.enabled = (unsigned)atomic_load(&r->enabled);
    l->server.moved = (unsigned)atomic_load(&r->moved);
    return true;
}

static void look_at_host(struct sp_leaves *l)
{
    const pid_t root = l->options.keeper != 0 ? l->options.keeper : getpid();
    char name[SP_CGROUP_NAME];

    l->has_looked = true;
    if (l->options.is_off || read_record(l) || !sp_cgroup_name_for(root, name))
        return;
    sp_limit_host_find(root, !l->options.is_embedded, &l->host);
    sp_limit_group_init(&l->server, &l->host, NULL, name);
    write_record(l);
}

static void note_server(struct sp_leaves *l)
{
    if (l->record == NULL)
        return;
    atomic_store(&l->record->moved, l->server.moved);
    atomic_store(&l->record->enabled, l->server.enabled);
    atomic_store(&l->record->prepared, l->prepared);
}

unsigned sp_leaves_prepare(struct sp_leaves *l, unsigned wanted, bool makes)
{
    uint64_t limits[SP_CONTROLLERS];

    wanted |= shared_controllers(l);
    list_limits(&l->options.limits.level[SP_LIMIT_SERVER], limits);
    if (!l->has_looked && wanted != 0)
        look_at_host(l);
    for (unsigned i = 0; makes && i < SP_CONTROLLERS; i++) {
        const unsigned bit = SP_CONTROL_BIT(i);

        if ((wanted & bit & l->host.controllers & ~l->prepared) == 0)
            continue;
        if (sp_limit_group_make(&l->server, bit, limits)) {
            l->prepared |= bit;
            note_server(l);
            continue;
        }
        sp_log(SP_LOG_WARN, "limits have no cgroups here: make %s: %s; see sallyport doctor",
               l->server.name, sp_errno_text(errno));
        l->host.controllers &= ~bit;
    }
    return wanted & l->host.controllers;
}

/* ---- removing ---- */

static void free_leaf(struct sp_leaf *leaf)
{
    leaf->session->leaves->count--;
    sp_list_remove(&leaf->link);
    free(leaf);
}

/* Neither the leaf nor, in version 2, a cgroup in it has a process. Each process of a command is in
 * all of its hierarchies. */
static bool is_empty(struct sp_leaf *leaf)
{
    struct sp_limit_group *g = &leaf->group;
    struct sp_group_counts now;
    char pid;

    if ((leaf->controllers & SP_CONTROL_BIT(SP_CONTROL_PIDS)) != 0) {
        sp_limit_group_read(g, leaf->controllers, SP_READ_PIDS, &now);
        return now.pids == 0;
    }
    for (unsigned h = 0; h < g->host->count; h++) {
        if (g->dirs[h] < 0)
            continue;
        if (g->host->items[h].is_v2) {
            if (!sp_cgroup_is_empty(g->dirs[h], NULL))
                return false;
            continue;
        }
        auto_close int fd = openat(g->dirs[h], "cgroup.procs", O_RDONLY | O_CLOEXEC);

        if (fd < 0 || read(fd, &pid, 1) != 0)
            return false;
    }
    return true;
}

/* Looks at most so many times at leaves of the session, and removes the empty ones. Returns how
 * many looks are left. *ret_removed: one was removed. */
static uint32_t remove_empty(struct sp_leaf_session *s, uint32_t looks, bool *ret_removed)
{
    struct sp_list *i;

    for (uint32_t n = s->lingering_count; n > 0 && looks > 0; n--, looks--) {
        if ((i = sp_list_take_first(&s->lingering)) == NULL)
            break;
        struct sp_leaf *leaf = leaf_of(i);

        if (!is_empty(leaf) || !sp_limit_group_remove(&leaf->group)) {
            sp_list_append(&s->lingering, &leaf->link);
            continue;
        }
        s->lingering_count--;
        free_leaf(leaf);
        *ret_removed = true;
    }
    return looks;
}

/* The session has no lingering leaves. true: it has ended, and it and its group are gone. */
static bool remove_session(struct sp_leaf_session *s)
{
    if (!s->has_ended || s->lingering_count > 0 || !sp_list_is_empty(&s->used) ||
        !sp_limit_group_remove(&s->group))
        return false;
    sp_list_remove(&s->waits);
    sp_list_remove(&s->link);
    free(s);
    return true;
}

/* One round; a session that was looked at goes to the end of the list. *ret_removed: a leaf or a
 * session was removed. */
static void look(struct sp_leaves *l, uint32_t looks, bool *ret_removed)
{
    struct sp_list *const last = sp_list_last(&l->waiting);

    bool is_last = last == NULL;
    struct sp_list *i;

    while (!is_last && looks > 0 && (i = sp_list_take_first(&l->waiting)) != NULL) {
        struct sp_leaf_session *s = SP_CONTAINER(i, struct sp_leaf_session, waits);

        is_last = i == last;
        looks = remove_empty(s, looks, ret_removed);
        if (remove_session(s)) {
            *ret_removed = true;
        } else if (s->has_ended || s->lingering_count > 0) {
            looks -= looks > 0;
            sp_list_append(&l->waiting, &s->waits);
        }
    }
}

static void on_look(struct sp_timer *t)
{
    struct sp_leaves *l = SP_CONTAINER(t, struct sp_leaves, look);
    bool is_any = false;

    look(l, LOOKS_AT_ONCE, &is_any);
    l->look_ms = is_any                          ? FIRST_LOOK_MS
                 : l->look_ms * 2 > LAST_LOOK_MS ? LAST_LOOK_MS
                                                 : l->look_ms * 2;
    if (!sp_list_is_empty(&l->waiting))
        (void)sp_loop_timer(l->loop, t, sp_loop_now(l->loop) + l->look_ms, on_look);
}

/* Processes are still ending in a leaf of the session: there is no event for that. */
static void look_soon(struct sp_leaf_session *s)
{
    struct sp_leaves *l = s->leaves;
    const uint64_t due = sp_loop_now(l->loop) + FIRST_LOOK_MS;

    if (!sp_list_is_linked(&s->waits))
        sp_list_prepend(&l->waiting, &s->waits);
    l->look_ms = FIRST_LOOK_MS;
    if (l->look.slot != 0 && l->look.due_ms <= due)
        return;
    sp_loop_cancel(l->loop, &l->look);
    (void)sp_loop_timer(l->loop, &l->look, due, on_look);
}

static void linger(struct sp_leaf *leaf)
{
    sp_list_prepend(&leaf->session->lingering, &leaf->link);
    leaf->session->lingering_count++;
    look_soon(leaf->session);
}

void sp_leaves_end_session(struct sp_leaf_session *s)
{
    struct sp_list *i;

    if (s == NULL)
        return;
    s->has_ended = true;
    while ((i = sp_list_take_first(&s->ready)) != NULL) {
        struct sp_leaf *leaf = leaf_of(i);

        s->ready_count--;
        s->leaves->ready--;
        if (sp_limit_group_remove(&leaf->group))
            free_leaf(leaf);
        else
            linger(leaf);
    }
    if (remove_session(s))
        return;
    sp_list_remove(&s->waits); /* to the beginning */
    look_soon(s);
}

void sp_leaves_free(struct sp_leaves *l)
{
    if (l == NULL)
        return;
    sp_loop_cancel(l->loop, &l->look);
    for (int round = 0; round < END_ROUNDS; round++) {
        bool is_any = false;

        look(l, UINT32_MAX, &is_any);
        if (sp_list_is_empty(&l->sessions) &&
            (l->prepared == 0 || sp_limit_group_remove(&l->server)))
            break;
        (void)poll(NULL, 0, END_ROUND_MS); /* a killed process leaves its cgroup a moment later */
    }
    sp_list_each_safe(i, &l->sessions) {
        struct sp_leaf_session *s = SP_CONTAINER(i, struct sp_leaf_session, link);

        sp_log(SP_LOG_WARN, "processes that do not end keep the cgroup %s/%s", l->server.name,
               s->group.name);
        sp_list_each_safe(k, &s->lingering)
            free_leaf(leaf_of(k));
        sp_list_each_safe(k, &s->used)
            free_leaf(leaf_of(k));
        free(s);
    }
    free(l);
}

/* ---- taking and giving ---- */

static struct sp_leaf_session *new_session(struct sp_leaves *l, uint64_t number)
{
    struct sp_leaf_session *s = calloc(1, sizeof *s);
    char name[SP_CGROUP_NAME];

    if (s == NULL)
        return NULL;
    (void)snprintf(name, sizeof name, "s%" PRIu64, number);
    s->leaves = l;
    sp_limit_group_init(&s->group, &l->host, &l->server, name);
    sp_list_init(&s->ready);
    sp_list_init(&s->used);
    sp_list_init(&s->lingering);
    sp_list_append(&l->sessions, &s->link);
    return s;
}

static struct sp_leaf *new_leaf(struct sp_leaf_session *s)
{
    struct sp_leaf *leaf = calloc(1, sizeof *leaf);
    char name[SP_CGROUP_NAME];

    if (leaf == NULL)
        return NULL;
    if (s->leaves->options.generation > 1)
        (void)snprintf(name, sizeof name, "c%u.%" PRIu64, ++s->last_number,
                       s->leaves->options.generation);
    else
        (void)snprintf(name, sizeof name, "c%u", ++s->last_number);
    leaf->session = s;
    s->leaves->count++;
    sp_limit_group_init(&leaf->group, &s->leaves->host, &s->group, name);
    leaf->group.keeps_files = s->leaves->count <= MAX_KEEPING;
    return leaf;
}

/* The limit of the command, but at most that of the levels above: version 1 refuses more
 * processors in a group than around it. */
static uint64_t least(const struct sp_leaves *l, const struct sp_limit_set *set,
                      enum sp_limit limit)
{
    uint64_t r = set->of[limit];

    for (int level = SP_LIMIT_SESSION; r != 0 && limit == SP_LIMIT_CPUS && level < SP_LIMIT_LEVELS;
         level++) {
        const uint64_t above = limit_of(l, level, limit);

        r = above != 0 && above < r ? above : r;
    }
    return r;
}

/* 0 or errno. */
static int set_leaf(struct sp_leaf *leaf, const struct sp_limit_set *set, unsigned controllers)
{
    const struct sp_leaves *l = leaf->session->leaves;
    struct sp_limit_set own = *set;
    uint64_t limits[SP_CONTROLLERS];

    own.of[SP_LIMIT_CPUS] = least(l, set, SP_LIMIT_CPUS);
    list_limits(&l->options.limits.level[SP_LIMIT_SESSION], limits);
    if (!sp_limit_group_make(&leaf->session->group, controllers, limits))
        return errno;
    note_server(leaf->session->leaves); /* `enabled` may have changed */
    list_limits(&own, limits);
    return sp_limit_group_make(&leaf->group, controllers, limits) ? 0 : errno;
}

/* The groups of a leaf by level; NULL: that level has no limit. */
static struct sp_limit_group *group_at(struct sp_leaf *leaf, int level)
{
    struct sp_leaves *l = leaf->session->leaves;
    bool has_limit = level == SP_LIMIT_COMMAND;

    for (int i = 0; i < SP_LIMIT_SHARED && !has_limit; i++)
        has_limit = limit_of(l, level, i) != 0;
    return !has_limit                  ? NULL
           : level == SP_LIMIT_COMMAND ? &leaf->group
           : level == SP_LIMIT_SESSION ? &leaf->session->group
                                       : &l->server;
}

/* is_start: the counts of a new leaf are 0, and the levels above need room for one more command. */
static void read_levels(struct sp_leaf *leaf, bool is_start,
                        struct sp_group_counts ret[SP_LIMIT_LEVELS])
{
    const unsigned above = leaf->controllers & ~SP_CONTROL_BIT(SP_CONTROL_CPUACCT);

    ret[SP_LIMIT_COMMAND] = (struct sp_group_counts){0};
    if (!is_start || leaf->is_used)
        sp_limit_group_read(&leaf->group, leaf->controllers,
                            SP_READ_COUNTS | (is_start ? SP_RESET_PEAK : 0U),
                            &ret[SP_LIMIT_COMMAND]);
    for (int level = SP_LIMIT_SESSION; level < SP_LIMIT_LEVELS; level++) {
        struct sp_limit_group *g = group_at(leaf, level);

        ret[level] = (struct sp_group_counts){0};
        if (g != NULL)
            sp_limit_group_read(g, above, SP_READ_COUNTS | (is_start ? SP_READ_HELD : 0U),
                                &ret[level]);
    }
}

/* The bytes that are free below the memory limits of the session and the server. */
static uint64_t room_of(const struct sp_leaf *leaf)
{
    uint64_t room = UINT64_MAX;

    for (int level = SP_LIMIT_SESSION; level < SP_LIMIT_LEVELS; level++) {
        const uint64_t most = limit_of(leaf->session->leaves, level, SP_LIMIT_MEMORY);
        const uint64_t held = leaf->before[level].held_memory;
        const uint64_t left = held < most ? most - held : 0;

        if (most != 0 && left < room)
            room = left;
    }
    return room;
}

int sp_leaf_take(struct sp_leaves *l, struct sp_leaf_session **s, uint64_t session,
                 const struct sp_limit_set *set, unsigned controllers, struct sp_leaf **ret,
                 struct sp_err *e)
{
    struct sp_leaf *leaf = NULL;
    int err = 0;

    if (*s == NULL)
        *s = new_session(l, session);
    if (*s == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make the cgroup of a session");
    struct sp_list *ready = sp_list_first(&(*s)->ready);
    if (ready != NULL) {
        leaf = leaf_of(ready);
        sp_list_remove(&leaf->link);
        (*s)->ready_count--;
        l->ready--;
        leaf->is_used = true;
        err = set_leaf(leaf, set, controllers);
        if (err != 0) { /* memory of an earlier command in it that cannot be reclaimed */
            linger(leaf);
            leaf = NULL;
        }
    }
    if (leaf == NULL) {
        leaf = new_leaf(*s);
        err = leaf == NULL ? ENOMEM : set_leaf(leaf, set, controllers);
    }
    if (err != 0) {
        if (leaf != NULL && !sp_limit_group_remove(&leaf->group))
            linger(leaf);
        else if (leaf != NULL)
            free_leaf(leaf);
        return sp_fail(e, SP_E_SYSTEM, err, "make the cgroup that holds the limits of a command");
    }
    sp_list_append(&(*s)->used, &leaf->link);
    leaf->controllers = controllers;
    read_levels(leaf, true, leaf->before);
    /* Until execve the child shares its memory with the cell: were the kernel to kill it for want
     * of memory, the cell would die with it. */
    if (room_of(leaf) < START_ROOM) {
        sp_leaf_give(leaf, false);
        return sp_fail(e, SP_E_LIMIT, 0,
                       "the commands of this session have used up its memory limit (--limit "
                       "session:memory or server:memory): end some of them first");
    }
    *ret = leaf;
    return 0;
}

/* ---- leaves of an earlier front ---- */

struct sp_leaf *sp_leaf_restore(struct sp_leaves *l, struct sp_leaf_session **s, uint64_t session,
                                const struct sp_limit_set *set, const struct sp_leaf_record *r)
{
    uint64_t limits[SP_CONTROLLERS];
    struct sp_leaf *leaf;

    if (!l->has_looked)
        look_at_host(l);
    if (memchr(r->name, 0, sizeof r->name) == NULL || strchr(r->name, '/') != NULL ||
        r->name[0] != 'c' || (*s == NULL && (*s = new_session(l, session)) == NULL))
        return NULL;
    if ((*s)->group.made == 0) {
        list_limits(&l->options.limits.level[SP_LIMIT_SESSION], limits);
        sp_limit_group_reopen(&(*s)->group, l->host.controllers, limits);
        (*s)->group.enabled = r->controllers;
    }
    leaf = calloc(1, sizeof *leaf);
    if (leaf == NULL)
        return NULL;
    leaf->session = *s;
    leaf->controllers = r->controllers & l->host.controllers;
    leaf->is_used = r->is_used != 0;
    memcpy(leaf->before, r->before, sizeof leaf->before);
    sp_limit_group_init(&leaf->group, &l->host, &(*s)->group, r->name);
    list_limits(set, limits);
    sp_limit_group_reopen(&leaf->group, leaf->controllers, limits);
    leaf->group.keeps_files = ++l->count <= MAX_KEEPING;
    sp_list_append(&(*s)->used, &leaf->link);
    return leaf;
}

static void subtract(struct sp_group_counts *from, const struct sp_group_counts *what)
{
    from->kills -= what->kills;
    from->memory_hits -= what->memory_hits;
    from->refusals -= what->refusals;
    from->cpu_us -= what->cpu_us;
    from->user_us -= what->user_us;
    from->system_us -= what->system_us;
}

uint64_t sp_leaf_cpu_us(struct sp_leaf *leaf)
{
    struct sp_group_counts now;

    sp_limit_group_read(&leaf->group, SP_CONTROL_BIT(SP_CONTROL_CPUACCT), SP_READ_CPU, &now);
    return now.cpu_us - leaf->before[SP_LIMIT_COMMAND].cpu_us;
}

void sp_leaf_read(struct sp_leaf *leaf, struct sp_group_counts ret[SP_LIMIT_LEVELS])
{
    read_levels(leaf, false, ret);
    for (int level = 0; level < SP_LIMIT_LEVELS; level++)
        subtract(&ret[level], &leaf->before[level]);
    /* A peak that has not risen may be an earlier command's. */
    if (leaf->is_used && !leaf->before[0].has_reset_peak &&
        ret[0].peak_memory <= leaf->before[0].peak_memory)
        ret[0].peak_memory = 0;
    if (leaf->is_used && ret[0].peak_pids <= leaf->before[0].peak_pids)
        ret[0].peak_pids = 0;
}

/* Opens cgroup.procs in the hierarchies of these controllers. Returns their number, or -1 with
 * errno.
 */
static int open_procs(const struct sp_limit_group *g, unsigned controllers, int ret[SP_HIERARCHIES])
{
    int count = 0;

    for (unsigned h = 0; h < g->host->count; h++) {
        if ((g->host->items[h].controllers & controllers) == 0)
            continue;
        ret[count] = openat(g->dirs[h], "cgroup.procs", O_WRONLY | O_CLOEXEC);
        if (ret[count] < 0) {
            const int err = errno;

            while (count > 0)
                (void)close(ret[--count]);
            errno = err;
            return -1;
        }
        count++;
    }
    return count;
}

/* The index of its hierarchy of version 2; -1: none. */
static int version2_of(const struct sp_limit_group *g)
{
    for (unsigned h = 0; h < g->host->count; h++)
        if (g->host->items[h].is_v2 && g->dirs[h] >= 0)
            return (int)h;
    return -1;
}

int sp_leaf_open(const struct sp_leaf *leaf, bool is_confined, int ret[SP_LEAF_FDS],
                 bool *ret_has_dir)
{
    const struct sp_limit_group *g = &leaf->group;
    const int v2 = is_confined ? -1 : version2_of(g);
    unsigned controllers = leaf->controllers;
    int first = 0;

    *ret_has_dir = v2 >= 0 && (controllers & g->host->items[v2].controllers) != 0;
    if (*ret_has_dir) {
        ret[first] = fcntl(g->dirs[v2], F_DUPFD_CLOEXEC, 7);
        if (ret[first] < 0)
            return -1;
        controllers &= ~g->host->items[v2].controllers;
        first++;
    }
    const int n = open_procs(g, controllers, ret + first);
    if (n < 0 && first > 0)
        (void)close(ret[0]);
    return n < 0 ? -1 : first + n;
}

void sp_leaf_give(struct sp_leaf *leaf, bool is_spent)
{
    struct sp_leaf_session *s = leaf->session;
    struct sp_leaves *l = s->leaves;
    const bool has_none = is_empty(leaf);

    sp_list_remove(&leaf->link);
    if (has_none && !is_spent && !s->has_ended && s->ready_count < SP_READY_LEAVES &&
        l->ready < SP_READY_LEAVES_ALL) {
        sp_list_prepend(&s->ready, &leaf->link);
        s->ready_count++;
        l->ready++;
        return;
    }
    if (has_none && sp_limit_group_remove(&leaf->group)) {
        free_leaf(leaf);
        return;
    }
    linger(leaf);
}
