/* SPDX-License-Identifier: Apache-2.0 */
#include "cell/strays.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/grow.h"
#include "base/log.h"
#include "os/tree.h"

#define MAX_READY      32
#define MAX_DIRS       256 /* open directories of leaves, */
#define MAX_EVENTS     64  /* and their cgroup.events: with more leaves both are opened each time */
#define ROUNDS_AT_ONCE 16  /* kill rounds before other events are served */
#define REAPED_AT_ONCE 256
#define LOOKS_AT_ONCE  128 /* leaves of strays looked at in one sweep */
#define ENDING_MS      10000
#define FEW_COMMANDS   64 /* with fewer than this, each exit searches our children at once */

/* The list first_free has FREE leaves (empty, with a directory) and NONE ones (no directory). */
enum leaf_use { LEAF_NONE, LEAF_FREE, LEAF_TAKEN, LEAF_STRAYS };

struct leaf {
    int fd;          /* of the directory; -1: NONE, or closed */
    int events;      /* its cgroup.events, if that was read before; -1: not open */
    uint32_t number; /* in the directory's name; never reused. 0: the front's, which fd is of */
    enum leaf_use use;
    bool was_killed;  /* not reused, but removed once it is empty: kernels with kill_seq would kill
                         every later child at birth */
    uint64_t session; /* owner of the strays in it */
    uint32_t next,
        prev; /* in the list first_free (next only) or first_stray; SP_NO_LEAF: the end */
};

struct stray {
    pid_t pid;
    uint64_t session;
    uint64_t or_session; /* the other possible owner; SP_NO_SESSION: the owner is known */
};

struct death {
    pid_t pid;
    uint64_t session;
};

/* Sessions that a new stray may belong to; with more candidates it belongs to the server. */
#define MAX_EXITED 2
#define MAX_DEATHS 64

struct sp_strays {
    struct sp_cell_state *cell;
    struct leaf *leaves;
    uint32_t leaf_count, leaf_cap, first_free, first_stray, last_number;
    uint32_t next_stray; /* the next sweep begins here; SP_NO_LEAF: with the first one */
    uint32_t open_dirs, open_events;
    uint32_t ready_leaves; /* FREE ones: a few, for the next commands */

    /* Without cgroups: */
    struct stray *list;
    size_t count, cap;
    uint64_t exited[MAX_EXITED]; /* sessions of processes that died since the last learn_adopted */
    uint32_t exited_count;       /* more than MAX_EXITED: there were further sessions */
    struct death deaths[MAX_DEATHS]; /* the first of them */
    uint32_t death_count;
    uint64_t *ending; /* ended sessions with strays to kill */
    size_t ending_count, ending_cap;
    uint64_t ending_until_ms;
};

struct sp_strays *sp_strays_new(struct sp_cell_state *cell)
{
    struct sp_strays *s = calloc(1, sizeof *s);

    if (s != NULL)
        *s = (struct sp_strays){.cell = cell,
                                .first_free = SP_NO_LEAF,
                                .first_stray = SP_NO_LEAF,
                                .next_stray = SP_NO_LEAF};
    return s;
}

static void close_dir(struct sp_strays *s, struct leaf *l)
{
    if (l->fd >= 0 && close(l->fd) == 0)
        s->open_dirs--;
    l->fd = -1;
}

static void close_events(struct sp_strays *s, struct leaf *l)
{
    if (l->events >= 0 && close(l->events) == 0)
        s->open_events--;
    l->events = -1;
}

void sp_strays_free(struct sp_strays *s)
{
    if (s == NULL)
        return;
    for (uint32_t i = 0; i < s->leaf_count; i++) {
        close_dir(s, &s->leaves[i]);
        close_events(s, &s->leaves[i]);
    }
    free(s->leaves);
    free(s->list);
    free(s->ending);
    free(s);
}

/* ---- leaves ---- */

static void list_leaf(struct sp_strays *s, uint32_t i)
{
    s->leaves[i].next = s->first_free;
    s->first_free = i;
}

static void list_stray(struct sp_strays *s, uint32_t i)
{
    struct leaf *l = &s->leaves[i];

    l->use = LEAF_STRAYS;
    l->prev = SP_NO_LEAF;
    l->next = s->first_stray;
    if (l->next != SP_NO_LEAF)
        s->leaves[l->next].prev = i;
    s->first_stray = i;
}

static void unlist_stray(struct sp_strays *s, uint32_t i)
{
    const struct leaf *l = &s->leaves[i];

    *(l->prev != SP_NO_LEAF ? &s->leaves[l->prev].next : &s->first_stray) = l->next;
    if (l->next != SP_NO_LEAF)
        s->leaves[l->next].prev = l->prev;
    if (s->next_stray == i)
        s->next_stray = l->next;
}

/* Its directory; *ret_opened is to be closed, if it is not -1. */
static int dir_of(const struct sp_strays *s, const struct leaf *l, int *ret_opened)
{
    *ret_opened = l->fd < 0 ? sp_cgroup_open_leaf(&s->cell->cgroup, l->number) : -1;
    return l->fd < 0 ? *ret_opened : l->fd;
}

static bool is_empty(struct sp_strays *s, struct leaf *l)
{
    auto_close int opened = -1;
    const bool had_events = l->events >= 0;
    const bool keeps_events = had_events || s->open_events < MAX_EVENTS;
    const int dir = had_events ? l->fd : dir_of(s, l, &opened);
    const bool r = sp_cgroup_is_empty(dir, keeps_events ? &l->events : NULL);

    if (!had_events && l->events >= 0)
        s->open_events++;
    return r;
}

/* The leaf is empty and unused: keeps it for the next command or removes it. */
static void free_leaf(struct sp_strays *s, uint32_t i)
{
    struct leaf *l = &s->leaves[i];

    if (l->number != 0 && l->fd < 0 &&
        (l->fd = sp_cgroup_open_leaf(&s->cell->cgroup, l->number)) >= 0)
        s->open_dirs++;
    if (l->number == 0 || l->was_killed || l->fd < 0 || s->ready_leaves == MAX_READY) {
        close_dir(s, l);
        close_events(s, l);
        if (l->number != 0)
            sp_cgroup_remove_leaf(&s->cell->cgroup, l->number);
        *l = (struct leaf){.fd = -1, .events = -1, .use = LEAF_NONE};
    } else {
        l->use = LEAF_FREE;
        s->ready_leaves++;
    }
    list_leaf(s, i);
}

/* The entry of a new leaf, at the head of first_free. false: no memory. */
static bool add_leaf(struct sp_strays *s)
{
    if (!SP_GROW(s->leaves, s->leaf_count, s->leaf_cap))
        return false;
    s->leaves[s->leaf_count] = (struct leaf){.fd = -1, .events = -1, .use = LEAF_NONE};
    list_leaf(s, s->leaf_count++);
    return true;
}

/* Without cgroup.kill (before Linux 5.14) the command is only born there, and found by parentage.
 */
static bool take_lent(struct sp_strays *s, struct sp_command *c, int lent)
{
    if (faccessat(lent, "cgroup.kill", W_OK, 0) < 0) {
        c->leaf_fd = c->lent_leaf = lent;
        return true;
    }
    if ((s->first_free == SP_NO_LEAF || s->leaves[s->first_free].use != LEAF_NONE) &&
        !add_leaf(s)) {
        (void)close(lent);
        return false;
    }
    struct leaf *l = &s->leaves[s->first_free];
    c->leaf_index = s->first_free;
    s->first_free = l->next;
    l->use = LEAF_TAKEN;
    l->fd = c->leaf_fd = c->lent_leaf = lent;
    s->open_dirs++;
    return true;
}

bool sp_strays_take_leaf(struct sp_strays *s, struct sp_command *c, int lent)
{
    c->leaf_fd = c->lent_leaf = -1;
    c->leaf_index = SP_NO_LEAF;
    c->leaf_number = 0;
    if (lent >= 0)
        return take_lent(s, c, lent);
    if (s->cell->cgroup.dir < 0)
        return true;
    if (s->first_free == SP_NO_LEAF && !add_leaf(s))
        return false;
    struct leaf *l = &s->leaves[s->first_free];
    if (l->use == LEAF_NONE) {
        l->number = ++s->last_number;
        l->fd = sp_cgroup_make_leaf(&s->cell->cgroup, l->number);
        if (l->fd < 0)
            return false;
        s->open_dirs++;
    } else {
        s->ready_leaves--;
    }
    c->leaf_index = s->first_free;
    c->leaf_number = l->number;
    s->first_free = l->next;
    l->use = LEAF_TAKEN;
    c->leaf_fd = l->fd;
    return true;
}

void sp_strays_note_started(struct sp_strays *s, struct sp_command *c)
{
    if (c->lent_leaf >= 0 && c->leaf_index == SP_NO_LEAF) {
        (void)close(c->lent_leaf);
        c->lent_leaf = -1;
    } else if (c->leaf_fd >= 0 && c->lent_leaf < 0 && s->open_dirs > MAX_DIRS) {
        close_dir(s, &s->leaves[c->leaf_index]);
    }
    c->leaf_fd = -1;
}

/* Frees the leaves of strays that have all exited. A killed leaf that is not empty yet is looked at
 * again. */
static void free_emptied(struct sp_strays *s)
{
    uint32_t i = s->next_stray != SP_NO_LEAF ? s->next_stray : s->first_stray;

    for (uint32_t n = 0, next; n < LOOKS_AT_ONCE && i != SP_NO_LEAF; n++, i = next) {
        struct leaf *l = &s->leaves[i];

        next = l->next;
        if (is_empty(s, l)) {
            unlist_stray(s, i);
            free_leaf(s, i);
        } else if (l->was_killed) {
            s->cell->is_sweep_due = true;
        }
    }
    s->next_stray = i;
    if (i != SP_NO_LEAF)
        s->cell->is_sweep_due = true;
}

void sp_strays_leave_leaf(struct sp_strays *s, struct sp_command *c, bool is_forgotten,
                          bool is_spent)
{
    if (c->leaf_index == SP_NO_LEAF)
        return;
    struct leaf *l = &s->leaves[c->leaf_index];
    l->was_killed = l->was_killed || is_spent;
    if (is_empty(s, l)) {
        free_leaf(s, c->leaf_index);
    } else if (is_forgotten) {
        l->session = c->session;
        list_stray(s, c->leaf_index);
        s->cell->is_sweep_due = s->cell->is_sweep_due || l->was_killed;
    } else {
        return; /* called again when the command is forgotten */
    }
    c->leaf_index = SP_NO_LEAF;
    c->lent_leaf = -1;
    c->leaf_number = 0;
}

/* ---- adopted children ---- */

/* false: no memory. */
static bool add_stray(struct sp_strays *s, const struct stray *new)
{
    struct sp_pids *pids = &s->cell->pids;

    if (!sp_pids_reserve(pids) || !SP_GROW(s->list, s->count, s->cap))
        return false;
    sp_pids_put(pids, new->pid, SP_PID_STRAY, (uint32_t)s->count);
    s->list[s->count++] = *new;
    return true;
}

static void remove_stray(struct sp_strays *s, uint32_t i)
{
    sp_pids_remove(&s->cell->pids, s->list[i].pid);
    s->list[i] = s->list[--s->count];
    if (i < s->count)
        sp_pids_find(&s->cell->pids, s->list[i].pid)->at = i;
}

void sp_strays_note_child(struct sp_strays *s, pid_t pid, uint64_t session)
{
    struct sp_pids *pids = &s->cell->pids;

    if (session == SP_NO_SESSION && sp_pids_reserve(pids))
        sp_pids_put(pids, pid, SP_PID_OTHER, 0);
    else if (session != SP_NO_SESSION && s->cell->cgroup.dir < 0)
        (void)add_stray(s, &(struct stray){.pid = pid, .session = session});
}

/* The session of the dead process whose session id (of the kernel) the child has. */
static bool knows_leader(const struct sp_strays *s, pid_t pid, uint64_t *ret_session)
{
    const pid_t leader = s->death_count > 0 ? getsid(pid) : -1;

    for (uint32_t i = 0; leader > 0 && i < s->death_count; i++)
        if (s->deaths[i].pid == leader) {
            *ret_session = s->deaths[i].session;
            return true;
        }
    return false;
}

static void learn_adopted(struct sp_strays *s)
{
    pid_t few[512];
    pid_t *pids = few;
    int n = sp_tree_children(s->cell->pid, few, 512);

    if (n > 512) {
        const int max = n + 64;

        pids = calloc((size_t)max, sizeof *pids);
        if (pids == NULL)
            return;
        n = sp_tree_children(s->cell->pid, pids, max);
        n = n > max ? max : n;
    }
    for (int i = 0; i < n; i++) {
        struct stray new = {.pid = pids[i]};

        if (sp_pids_find(&s->cell->pids, new.pid) != NULL)
            continue;
        if (s->exited_count == 1) {
            new.session = s->exited[0];
        } else if (!knows_leader(s, new.pid, &new.session) && s->exited_count <= MAX_EXITED) {
            new.session = s->exited[0];
            new.or_session = s->exited[1];
        }
        (void)add_stray(s, &new); /* without memory it is killed when the cell ends */
    }
    if (pids != few)
        free(pids);
    s->exited_count = s->death_count = 0;
}

/* Children of a dead process become ours; they belong to its session. */
static void note_death(struct sp_strays *s, uint64_t session, pid_t pid)
{
    uint32_t i = session == SP_NO_SESSION ? MAX_EXITED : 0; /* unknown session: as if too many */

    while (i < s->exited_count && i < MAX_EXITED && s->exited[i] != session)
        i++;
    if (i < MAX_EXITED)
        s->exited[i] = session;
    if (i >= s->exited_count)
        s->exited_count = i + 1;
    if (s->death_count < MAX_DEATHS)
        s->deaths[s->death_count++] = (struct death){.pid = pid, .session = session};
}

static void note_command(struct sp_strays *s, struct sp_command *c, const siginfo_t *info,
                         const struct rusage *use)
{
    sp_pids_remove(&s->cell->pids, info->si_pid);
    sp_command_exited(s->cell, c, info, use);
    if (s->cell->cgroup.dir < 0)
        note_death(s, c->session, info->si_pid);
    if (c->life == SP_LIFE_CLOSED)
        sp_strays_leave_leaf(s, c, false, c->is_terminated);
}

static void note_reaped(struct sp_strays *s, const siginfo_t *info, const struct rusage *use)
{
    const struct sp_pid *child = sp_pids_find(&s->cell->pids, info->si_pid);

    if (child != NULL && child->kind == SP_PID_COMMAND) {
        note_command(s, &s->cell->commands[child->at], info, use);
        return;
    }
    if (child != NULL && child->start != NULL)
        child->start->child = 0;
    if (child != NULL && child->kind == SP_PID_STRAY) {
        const struct stray *stray = &s->list[child->at];

        note_death(s, stray->session, stray->pid);
        if (stray->or_session != SP_NO_SESSION)
            note_death(s, stray->or_session, stray->pid);
        remove_stray(s, child->at);
    } else if (child != NULL) {
        sp_pids_remove(&s->cell->pids, info->si_pid);
    }
}

void sp_strays_reap(struct sp_strays *s)
{
    bool has_children = true;

    s->cell->has_dead = true;
    for (int i = 0; s->cell->has_dead && i < REAPED_AT_ONCE; i++) {
        siginfo_t info = {0};
        struct rusage use = {0};

        /* The C library's waitid() lacks the rusage argument. */
        const long r = syscall(SYS_waitid, P_ALL, 0, &info, WEXITED | WNOHANG, &use);

        s->cell->has_dead = r == 0 && info.si_pid != 0;
        has_children = r == 0 || errno != ECHILD;
        if (s->cell->has_dead)
            note_reaped(s, &info, &use);
    }
    if (s->first_stray != SP_NO_LEAF)
        s->cell->is_sweep_due = true; /* a leaf of strays may be empty */
    if (s->exited_count == 0)
        return;
    /* Searching now leaves less doubt about the owner; with many commands the sweep does it. What
     * the dead have left became ours before they could be reaped. */
    if (!has_children)
        s->exited_count = s->death_count = 0;
    else if (s->cell->running < FEW_COMMANDS)
        learn_adopted(s);
    else
        s->cell->is_sweep_due = true;
}

static bool is_ending(const struct sp_strays *s, uint64_t session)
{
    for (size_t i = 0; i < s->ending_count; i++)
        if (s->ending[i] == session)
            return true;
    return false;
}

/*
 * A stray that keeps forking and exiting has a new pid all the time, so one round does not catch
 * it. When a round finds nothing, all are dead: a dead process's children become ours before it can
 * be reaped.
 */
static void end_sessions(struct sp_strays *s)
{
    for (int round = 0; round < ROUNDS_AT_ONCE && s->ending_count > 0; round++) {
        sp_strays_reap(s);
        if (s->exited_count > 0)
            learn_adopted(s);
        bool has_found = false;
        for (size_t i = 0; i < s->count; i++) {
            struct stray *stray = &s->list[i];

            /* If one of two possible sessions has ended, the stray belongs to the other one. */
            if (stray->or_session != SP_NO_SESSION && is_ending(s, stray->session)) {
                stray->session = stray->or_session;
                stray->or_session = SP_NO_SESSION;
            } else if (stray->or_session != SP_NO_SESSION && is_ending(s, stray->or_session)) {
                stray->or_session = SP_NO_SESSION;
            }
            if (!is_ending(s, stray->session) || stray->or_session != SP_NO_SESSION)
                continue;
            has_found = true;
            sp_cell_free_spare(s->cell);
            sp_tree_kill(stray->pid, true);
            sp_cell_take_spare(s->cell);
        }
        if (!has_found)
            s->ending_count = 0;
    }
    if (s->ending_count > 0 && s->cell->now_ms >= s->ending_until_ms) {
        sp_log(SP_LOG_ERROR, "processes that commands of an ended session left do not end: they "
                             "do not die of SIGKILL or belong to another user");
        s->ending_count = 0;
    }
    s->cell->is_sweep_due = s->ending_count > 0;
}

void sp_strays_sweep(struct sp_strays *s)
{
    if (s->exited_count > 0)
        learn_adopted(s);
    end_sessions(s);
    free_emptied(s);
}

void sp_strays_end_session(struct sp_strays *s, uint64_t session)
{
    sp_cell_free_spare(s->cell);
    for (uint32_t i = s->first_stray; i != SP_NO_LEAF; i = s->leaves[i].next) {
        struct leaf *l = &s->leaves[i];
        auto_close int opened = -1;

        if (l->session != session)
            continue;
        sp_cgroup_kill(dir_of(s, l, &opened));
        l->was_killed = true;
    }
    sp_cell_take_spare(s->cell); /* dying takes a moment: sweeps free the leaves */
    if (s->cell->cgroup.dir >= 0)
        return;
    if (SP_GROW(s->ending, s->ending_count, s->ending_cap)) {
        s->ending[s->ending_count++] = session;
        s->ending_until_ms = s->cell->now_ms + ENDING_MS;
    }                /* else its strays are killed when the cell ends */
    end_sessions(s); /* sweeps continue */
}
