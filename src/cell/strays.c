/* SPDX-License-Identifier: Apache-2.0 */
#include "cell/strays.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "os/tree.h"

#define MAX_READY      32
#define NO_SESSION     0  /* sessions count from 1 */
#define ROUNDS_AT_ONCE 16 /* of the end of a session, before others have their turn */
#define ENDING_MS      10000
#define LOOK_AT_ONCE   64 /* with fewer commands than this, one exit is one look at our children */

/* FREE and NONE leaves are listed: a FREE one is empty and ready, a NONE one has yet to be made. */
enum leaf_use { LEAF_NONE, LEAF_FREE, LEAF_TAKEN, LEAF_STRAYS };

struct leaf {
    int fd;          /* -1: NONE */
    uint32_t number; /* in the directory's name; none is used twice */
    enum leaf_use use;
    bool was_killed;  /* of no more use: removed once it is empty */
    uint64_t session; /* of the strays in it */
    uint32_t next_free;
};

struct stray {
    pid_t pid;
    uint64_t session;
    uint64_t or_session; /* which of the two is not known; NO_SESSION: it is */
    bool is_own;         /* no stray: we made it, and it leaves nothing */
};

/* Sessions that a new stray may belong to; of more, it belongs to the server. */
#define MAX_EXITED 2

struct sp_strays {
    struct sp_yard *yard;
    struct sp_command *commands;
    uint32_t slots;

    struct leaf *leaves;
    uint32_t leaf_count, leaf_cap, first_free, stray_leaves, last_number;
    bool has_dying;        /* a killed leaf that was not empty yet */
    uint32_t ready_leaves; /* FREE ones: a few, for the next commands */

    /* Without cgroups: */
    struct stray *list;
    size_t count, cap;
    uint64_t exited[MAX_EXITED]; /* sessions of those that died since the last look */
    uint32_t exited_count;       /* more than MAX_EXITED: there were others */
    uint64_t last_session;       /* of the latest of them, ... */
    pid_t last_pid;              /* ... which was this */
    uint64_t *ending;            /* sessions whose strays are to be killed */
    size_t ending_count, ending_cap;
    uint64_t ending_until_ms;
};

struct sp_strays *sp_strays_new(struct sp_yard *y, struct sp_command *commands, uint32_t slots)
{
    struct sp_strays *s = calloc(1, sizeof *s);

    if (s != NULL)
        *s = (struct sp_strays){
            .yard = y, .commands = commands, .slots = slots, .first_free = SP_NO_LEAF};
    return s;
}

void sp_strays_free(struct sp_strays *s)
{
    if (s == NULL)
        return;
    for (uint32_t i = 0; i < s->leaf_count; i++)
        if (s->leaves[i].fd >= 0)
            (void)close(s->leaves[i].fd);
    free(s->leaves);
    free(s->list);
    free(s->ending);
    free(s);
}

/* ---- leaves ---- */

static void list_leaf(struct sp_strays *s, uint32_t i)
{
    s->leaves[i].next_free = s->first_free;
    s->first_free = i;
}

static bool add_leaf(struct sp_strays *s)
{
    if (s->leaf_count == s->leaf_cap) {
        const uint32_t cap = s->leaf_cap == 0 ? 32 : s->leaf_cap * 2;
        struct leaf *leaves = realloc(s->leaves, cap * sizeof *leaves);

        if (leaves == NULL)
            return false;
        s->leaves = leaves;
        s->leaf_cap = cap;
    }
    s->leaves[s->leaf_count] = (struct leaf){.fd = -1, .use = LEAF_NONE};
    list_leaf(s, s->leaf_count++);
    return true;
}

/* An empty leaf that nobody uses any more. */
static void free_leaf(struct sp_strays *s, uint32_t i)
{
    struct leaf *l = &s->leaves[i];

    l->use = LEAF_FREE;
    if (l->was_killed || s->ready_leaves == MAX_READY) {
        (void)close(l->fd);
        sp_cgroup_remove_leaf(&s->yard->cgroup, l->number);
        *l = (struct leaf){.fd = -1, .use = LEAF_NONE};
    } else {
        s->ready_leaves++;
    }
    list_leaf(s, i);
}

static void kill_leaf(struct leaf *l)
{
    sp_cgroup_kill(l->fd);
    l->was_killed = true;
}

bool sp_strays_take_leaf(struct sp_strays *s, struct sp_command *c)
{
    c->leaf_fd = -1;
    c->leaf = SP_NO_LEAF;
    c->leaf_number = 0;
    if (s->yard->cgroup.dir < 0)
        return true;
    if (s->first_free == SP_NO_LEAF && !add_leaf(s))
        return false;
    struct leaf *l = &s->leaves[s->first_free];
    if (l->use == LEAF_NONE) {
        l->number = ++s->last_number;
        l->fd = sp_cgroup_make_leaf(&s->yard->cgroup, l->number);
        if (l->fd < 0)
            return false;
    } else {
        s->ready_leaves--;
    }
    c->leaf = s->first_free;
    c->leaf_number = l->number;
    s->first_free = l->next_free;
    l->use = LEAF_TAKEN;
    c->leaf_fd = l->fd;
    return true;
}

/* Leaves that became empty since somebody left them. */
static void free_emptied(struct sp_strays *s)
{
    s->has_dying = false;
    for (uint32_t i = 0; i < s->leaf_count && s->stray_leaves > 0; i++) {
        if (s->leaves[i].use != LEAF_STRAYS)
            continue;
        if (sp_cgroup_is_empty(s->leaves[i].fd)) {
            free_leaf(s, i);
            s->stray_leaves--;
        } else if (s->leaves[i].was_killed) {
            s->has_dying = true;
        }
    }
}

bool sp_strays_has_dying(const struct sp_strays *s)
{
    return s->has_dying || s->ending_count > 0;
}

void sp_strays_leave_leaf(struct sp_strays *s, struct sp_command *c, bool is_forgotten)
{
    if (c->leaf == SP_NO_LEAF)
        return;
    s->leaves[c->leaf].was_killed = s->leaves[c->leaf].was_killed || c->is_terminated;
    if (sp_cgroup_is_empty(c->leaf_fd)) {
        free_leaf(s, c->leaf);
    } else if (is_forgotten) {
        s->leaves[c->leaf].use = LEAF_STRAYS;
        s->leaves[c->leaf].session = c->session;
        s->stray_leaves++;
        s->has_dying = s->has_dying || s->leaves[c->leaf].was_killed;
    } else {
        return; /* asked again when it is forgotten */
    }
    c->leaf = SP_NO_LEAF;
    c->leaf_fd = -1;
}

/* ---- adopted children ---- */

static struct sp_command *command_of(struct sp_strays *s, pid_t pid)
{
    for (uint32_t i = 0; i < s->slots; i++)
        if (s->commands[i].life == SP_LIFE_RUNNING && s->commands[i].pid == pid)
            return &s->commands[i];
    return NULL;
}

static bool is_known(const struct sp_strays *s, pid_t pid)
{
    for (size_t i = 0; i < s->count; i++)
        if (s->list[i].pid == pid)
            return true;
    return false;
}

static bool has_room(struct sp_strays *s)
{
    if (s->count == s->cap) {
        const size_t cap = s->cap == 0 ? 64 : s->cap * 2;
        struct stray *list = realloc(s->list, cap * sizeof *list);

        if (list == NULL)
            return false;
        s->list = list;
        s->cap = cap;
    }
    return true;
}

void sp_strays_note_own(struct sp_strays *s, pid_t pid)
{
    if (s->yard->cgroup.dir < 0 && has_room(s)) /* else it may be taken for a stray */
        s->list[s->count++] = (struct stray){.pid = pid, .session = NO_SESSION, .is_own = true};
}

static void adopt(struct sp_strays *s, pid_t pid)
{
    struct stray new = {.pid = pid};

    if (!has_room(s))
        return; /* ends with the cell at the latest */
    /* After several deaths its kernel session tells, if it has not made itself one of its own. */
    if (s->exited_count > 1 && getsid(pid) == s->last_pid) {
        new.session = s->last_session;
    } else if (s->exited_count <= MAX_EXITED) {
        new.session = s->exited[0];
        new.or_session = s->exited_count > 1 ? s->exited[1] : NO_SESSION;
    }
    s->list[s->count++] = new;
}

static void learn_adopted(struct sp_strays *s)
{
    pid_t few[512];
    pid_t *pids = few;
    int n = sp_tree_children(getpid(), few, 512);

    if (n > 512) {
        const int max = n + 64;

        pids = calloc((size_t)max, sizeof *pids);
        if (pids == NULL)
            return;
        n = sp_tree_children(getpid(), pids, max);
        n = n > max ? max : n;
    }
    for (int i = 0; i < n; i++)
        if (command_of(s, pids[i]) == NULL && !is_known(s, pids[i]))
            adopt(s, pids[i]);
    if (pids != few)
        free(pids);
    s->exited_count = 0;
}

/* A process that dies leaves its children to us: they belong where it belonged. */
static void note_death(struct sp_strays *s, uint64_t session, pid_t pid)
{
    uint32_t i = session == NO_SESSION ? MAX_EXITED : 0; /* it may have been of any */

    while (i < s->exited_count && i < MAX_EXITED && s->exited[i] != session)
        i++;
    if (i < MAX_EXITED)
        s->exited[i] = session;
    if (i >= s->exited_count)
        s->exited_count = i + 1;
    s->last_session = session;
    s->last_pid = pid;
}

static void note_stray_death(struct sp_strays *s, pid_t pid)
{
    for (size_t i = 0; i < s->count; i++)
        if (s->list[i].pid == pid) {
            if (!s->list[i].is_own)
                note_death(s, s->list[i].session, pid);
            if (!s->list[i].is_own && s->list[i].or_session != NO_SESSION)
                note_death(s, s->list[i].or_session, pid);
            s->list[i] = s->list[--s->count];
            return;
        }
}

void sp_strays_note_reaped(struct sp_strays *s, pid_t pid)
{
    note_stray_death(s, pid);
}

void sp_strays_note_forgotten(struct sp_strays *s, const struct sp_command *c)
{
    if (s->yard->cgroup.dir < 0 && has_room(s))
        s->list[s->count++] = (struct stray){.pid = c->pid, .session = c->session};
}

void sp_strays_note_exit(struct sp_strays *s, const struct sp_command *c)
{
    if (s->yard->cgroup.dir >= 0)
        return;
    /* A stray may have died a moment before, and what it left must not be taken for c's. */
    for (size_t i = 0; i < s->count && s->yard->running < LOOK_AT_ONCE; i++) {
        siginfo_t info = {0};
        const pid_t pid = s->list[i].pid;

        if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG) == 0 && info.si_pid != 0) {
            note_stray_death(s, pid);
            i--;
        }
    }
    note_death(s, c->session, c->pid);
    /* At once while that is cheap, so that there is no doubt whose they are; else by the sweep. */
    if (s->yard->running < LOOK_AT_ONCE)
        learn_adopted(s);
}

static void reap_dead(struct sp_strays *s)
{
    for (;;) {
        siginfo_t info = {0};

        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == 0)
            return;
        struct sp_command *c = command_of(s, info.si_pid);
        if (c != NULL) {
            /* One of our own, seen before its descriptor told. */
            sp_command_exited(s->yard, c);
            if (c->life == SP_LIFE_RUNNING)
                return;
            sp_strays_note_exit(s, c);
            continue;
        }
        if (waitid(P_PID, (id_t)info.si_pid, &info, WEXITED | WNOHANG) < 0)
            return;
        note_stray_death(s, info.si_pid);
    }
}

static bool is_ending(const struct sp_strays *s, uint64_t session)
{
    for (size_t i = 0; i < s->ending_count; i++)
        if (s->ending[i] == session)
            return true;
    return false;
}

/* Of a session that ends and another: it is the other's from now on. */
static void narrow(struct sp_strays *s, struct stray *stray)
{
    if (stray->or_session == NO_SESSION)
        return;
    if (is_ending(s, stray->session))
        stray->session = stray->or_session;
    else if (!is_ending(s, stray->or_session))
        return;
    stray->or_session = NO_SESSION;
}

/* One round: kills what is known of the sessions that end. false: there was nothing. */
static bool kill_known(struct sp_strays *s)
{
    bool has_found = false;

    for (size_t i = 0; i < s->count; i++) {
        if (s->list[i].is_own)
            continue;
        narrow(s, &s->list[i]);
        if (!is_ending(s, s->list[i].session) || s->list[i].or_session != NO_SESSION)
            continue;
        has_found = true;
        sp_yard_free_spare(s->yard);
        sp_tree_kill(s->list[i].pid, true);
        sp_yard_take_spare(s->yard);
    }
    return has_found;
}

/*
 * A stray that goes on forking and ends is another process in the next moment, so one look does not
 * catch it. When a round finds nothing, all are dead and reaped: the children of a dead process are
 * ours before it can be reaped.
 */
static void end_sessions(struct sp_strays *s)
{
    for (int round = 0; round < ROUNDS_AT_ONCE && s->ending_count > 0; round++) {
        reap_dead(s);
        if (s->exited_count > 0)
            learn_adopted(s);
        if (!kill_known(s))
            s->ending_count = 0;
    }
    if (s->ending_count > 0 && s->yard->now_ms >= s->ending_until_ms) {
        sp_log(SP_LOG_ERROR, "processes that commands of an ended session left do not end: they "
                             "do not die of SIGKILL or belong to another user");
        s->ending_count = 0;
    }
}

void sp_strays_sweep(struct sp_strays *s)
{
    reap_dead(s);
    if (s->yard->cgroup.dir < 0 && s->exited_count > 0)
        learn_adopted(s);
    end_sessions(s);
    free_emptied(s);
}

static void add_ending(struct sp_strays *s, uint64_t session)
{
    if (s->ending_count == s->ending_cap) {
        const size_t cap = s->ending_cap == 0 ? 8 : s->ending_cap * 2;
        uint64_t *ending = realloc(s->ending, cap * sizeof *ending);

        if (ending == NULL)
            return; /* its strays end with the cell */
        s->ending = ending;
        s->ending_cap = cap;
    }
    s->ending[s->ending_count++] = session;
    s->ending_until_ms = s->yard->now_ms + ENDING_MS;
}

void sp_strays_end_session(struct sp_strays *s, uint64_t session)
{
    sp_yard_free_spare(s->yard);
    for (uint32_t i = 0; i < s->leaf_count; i++)
        if (s->leaves[i].use == LEAF_STRAYS && s->leaves[i].session == session)
            kill_leaf(&s->leaves[i]);
    sp_yard_take_spare(s->yard);
    free_emptied(s); /* the killed take a moment: a sweep finds the rest */
    if (s->yard->cgroup.dir >= 0)
        return;
    add_ending(s, session);
    end_sessions(s); /* a sweep goes on where this ends */
}
