/* SPDX-License-Identifier: Apache-2.0 */
/* look: what a tree of processes does. */
#include "os/inspect.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "os/inspect_priv.h"
#include "os/tree.h"

#define MAX_THREADS     64   /* of one process */
#define MAX_ALL_THREADS 1024 /* of one look */

const char *sp_doing_name(enum sp_doing d)
{
    static const char *const names[] = {
        "unknown",       "running",           "sleeping", "reading_terminal",
        "reading_stdin", "waiting_for_child", "stopped",
    };

    return (unsigned)d < SP_DOING_MAX ? names[d] : names[SP_DOING_UNKNOWN];
}

static int rank(enum sp_doing d)
{
    static const int ranks[SP_DOING_MAX] = {
        [SP_DOING_STOPPED] = 1,           [SP_DOING_SLEEPING] = 2,
        [SP_DOING_WAITING_FOR_CHILD] = 3, [SP_DOING_READING_STDIN] = 4,
        [SP_DOING_READING_TERMINAL] = 5,  [SP_DOING_RUNNING] = 6,
    };

    return ranks[d];
}

struct walk {
    const struct sp_look_at *at;
    pid_t foreground; /* the terminal's group; 0: there is none */
    pid_t queue[SP_LOOK_PROCESSES];
    uint32_t count;
    int threads; /* looked at so far */
};

/* What one process does, and whom it waits for (0: anybody). */
struct deed {
    enum sp_doing doing;
    pid_t child;
};

/* ---- one process ---- */

static enum sp_doing thread_doing(const struct walk *w, pid_t pid, pid_t tid,
                                  const struct sp_look_task *s, pid_t *ret_child)
{
    struct sp_look_task t = *s;

    *ret_child = 0;
    if (tid != pid && !sp_look_task(pid, tid, &t))
        return SP_DOING_UNKNOWN;
    switch (t.state) {
    case 'R':
        return SP_DOING_RUNNING;
    case 'T':
    case 't':
        return SP_DOING_STOPPED;
    case 'S':
    case 'D':
        return sp_look_call(w->at, pid, tid, t.terminal, ret_child);
    default: /* dead, or dying */
        return SP_DOING_UNKNOWN;
    }
}

/* The main thread says what a process does, unless another is busy or reads. */
static struct deed process_doing(struct walk *w, pid_t pid, const struct sp_look_task *s)
{
    struct deed deed = {0};
    char path[40];

    deed.doing = thread_doing(w, pid, pid, s, &deed.child);
    (void)snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    if (tasks == NULL)
        return deed;
    int threads = 0;
    for (const struct dirent *d; deed.doing != SP_DOING_RUNNING && threads < MAX_THREADS &&
                                 w->threads < MAX_ALL_THREADS && (d = readdir(tasks)) != NULL;) {
        const pid_t tid = (pid_t)strtol(d->d_name, NULL, 10);
        pid_t child = 0;

        if (tid <= 0)
            continue;
        threads++;
        w->threads++;
        if (tid == pid)
            continue;
        const enum sp_doing doing = thread_doing(w, pid, tid, s, &child);
        if (deed.doing == SP_DOING_UNKNOWN || rank(doing) >= rank(SP_DOING_READING_STDIN)) {
            if (rank(doing) > rank(deed.doing))
                deed = (struct deed){doing, child};
        }
    }
    (void)closedir(tasks);
    return deed;
}

/* ---- whom to look at ---- */

/* It may not read the terminal now, and whatever it does, the foreground does not. */
static bool is_background(const struct walk *w, const struct sp_look_task *s)
{
    return w->foreground > 0 && s->terminal == w->at->terminal && s->group != w->foreground;
}

static void add_children(struct walk *w, pid_t parent, pid_t only)
{
    pid_t children[SP_LOOK_PROCESSES];
    const pid_t one = only > 0 ? sp_look_child(parent, only) : 0;

    if (one > 0) {
        (void)sp_look_add(one, w->queue, &w->count, SP_LOOK_PROCESSES);
        return;
    }
    int n = sp_tree_children(parent, children, SP_LOOK_PROCESSES);
    n = n > SP_LOOK_PROCESSES ? SP_LOOK_PROCESSES : n;
    for (int i = 0; i < n; i++)
        (void)sp_look_add(children[i], w->queue, &w->count, SP_LOOK_PROCESSES);
}

static void add_group(struct walk *w)
{
    struct sp_look_task s;

    /* The group's first process, most often, however many others there are. */
    if (sp_look_task(w->foreground, 0, &s) && s.terminal == w->at->terminal)
        (void)sp_look_add(w->foreground, w->queue, &w->count, SP_LOOK_PROCESSES);
    for (uint32_t i = 0; i < w->at->member_count && i < SP_LOOK_PROCESSES; i++)
        if (sp_look_task(w->at->members[i], 0, &s) && !is_background(w, &s) &&
            s.group == w->foreground)
            (void)sp_look_add(w->at->members[i], w->queue, &w->count, SP_LOOK_PROCESSES);
}

static void begin(struct walk *w)
{
    struct sp_look_task leader;

    if (w->at->terminal >= 0 && sp_look_task(w->at->leader, 0, &leader) &&
        leader.terminal == w->at->terminal && leader.foreground > 0) {
        w->foreground = leader.foreground;
        add_group(w);
    }
    if (w->count == 0) { /* on pipes, or the terminal's foreground has just gone */
        w->foreground = 0;
        (void)sp_look_add(w->at->leader, w->queue, &w->count, SP_LOOK_PROCESSES);
    }
}

enum sp_doing sp_look_doing(const struct sp_look_at *at)
{
    struct walk w = {.at = at};
    enum sp_doing best = SP_DOING_UNKNOWN;
    bool is_anyone_waiting = false;

    if (at->leader <= 0)
        return best;
    begin(&w);
    for (uint32_t i = 0; i < w.count && best != SP_DOING_RUNNING; i++) {
        struct sp_look_task s;

        if (!sp_look_task(w.queue[i], 0, &s) || is_background(&w, &s))
            continue;
        const struct deed deed = process_doing(&w, w.queue[i], &s);
        if (deed.doing == SP_DOING_WAITING_FOR_CHILD)
            is_anyone_waiting = true; /* counts if no child says more */
        else if (rank(deed.doing) > rank(best))
            best = deed.doing;
        if (rank(deed.doing) < rank(SP_DOING_READING_STDIN))
            add_children(&w, w.queue[i], deed.child);
    }
    return best == SP_DOING_UNKNOWN && is_anyone_waiting ? SP_DOING_WAITING_FOR_CHILD : best;
}
