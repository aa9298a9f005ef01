/* SPDX-License-Identifier: Apache-2.0 */
#include "os/tree.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"

#define AT_ONCE    256
#define MAX_ROUNDS 1000
#define MAX_PASSES 16

/* ---- who is whose child ---- */

/* false: there is no such process (any more). */
static bool read_stat(pid_t pid, char *ret_state, pid_t *ret_parent)
{
    char path[40];
    char text[512];

    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n <= 0)
        return false;
    text[n] = 0;
    const char *after_name = strrchr(text, ')'); /* the name may hold anything, also a bracket */
    return after_name != NULL && sscanf(after_name, ") %c %d", ret_state, ret_parent) == 2;
}

pid_t sp_tree_parent(pid_t pid)
{
    pid_t parent;
    char state;

    return read_stat(pid, &state, &parent) ? parent : -1;
}

/* For kernels without /proc/PID/task/TID/children. */
static int children_by_scan(pid_t parent, pid_t *pids, int max)
{
    DIR *proc = opendir("/proc");
    int n = 0;

    if (proc == NULL)
        return -1;
    for (const struct dirent *d; (d = readdir(proc)) != NULL;) {
        if (!isdigit((unsigned char)d->d_name[0]))
            continue;
        const pid_t pid = (pid_t)strtol(d->d_name, NULL, 10);

        if (sp_tree_parent(pid) == parent) {
            if (n < max)
                pids[n] = pid;
            n++;
        }
    }
    (void)closedir(proc);
    return n;
}

/* The list of one thread; a process with threads has one list for each. */
static int children_of_thread(int task_dir, const char *tid, pid_t *pids, int max, int n)
{
    char path[40];
    char text[4096];
    size_t kept = 0;

    (void)snprintf(path, sizeof path, "%s/children", tid);
    auto_close int fd = openat(task_dir, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? -1 : n;
    for (;;) {
        const ssize_t got = read(fd, text + kept, sizeof text - kept - 1);
        char *at = text;

        if (got <= 0)
            return n;
        text[kept + (size_t)got] = 0;
        for (char *blank; (blank = strchr(at, ' ')) != NULL; at = blank + 1) {
            if (n < max)
                pids[n] = (pid_t)strtol(at, NULL, 10);
            n++;
        }
        kept = strlen(at); /* a number cut in the middle */
        memmove(text, at, kept);
    }
}

int sp_tree_children(pid_t parent, pid_t *pids, int max)
{
    char path[40];
    int n = 0;

    (void)snprintf(path, sizeof path, "/proc/%d/task", (int)parent);
    DIR *tasks = opendir(path);
    if (tasks == NULL)
        return 0;
    for (const struct dirent *d; n >= 0 && (d = readdir(tasks)) != NULL;) {
        if (d->d_name[0] == '.')
            continue;
        const int more = children_of_thread(dirfd(tasks), d->d_name, pids, max, n);

        if (more < 0 && n == 0 && faccessat(dirfd(tasks), d->d_name, F_OK, 0) == 0)
            n = -1; /* the thread lives, its list does not exist */
        else if (more >= 0)
            n = more;
    }
    (void)closedir(tasks);
    return n < 0 ? children_by_scan(parent, pids, max) : n;
}

static bool is_living(pid_t pid)
{
    pid_t parent;
    char state;

    return read_stat(pid, &state, &parent) && state != 'Z' && state != 'X';
}

int sp_tree_living(pid_t parent)
{
    pid_t pids[AT_ONCE];
    const int n = sp_tree_children(parent, pids, AT_ONCE);
    int living = n;

    for (int i = 0; i < n && i < AT_ONCE; i++)
        living -= !is_living(pids[i]);
    return living;
}

/* ---- stop all, then kill all ---- */

struct pids {
    pid_t *pid;
    size_t count, cap;
};

static bool has_pid(const struct pids *l, pid_t pid)
{
    for (size_t i = l->count; i > 0; i--)
        if (l->pid[i - 1] == pid)
            return true;
    return false;
}

static bool add_pid(struct pids *l, pid_t pid)
{
    if (l->count == l->cap) {
        const size_t cap = l->cap == 0 ? 64 : l->cap * 2;
        pid_t *p = realloc(l->pid, cap * sizeof *p);

        if (p == NULL)
            return false;
        l->pid = p;
        l->cap = cap;
    }
    l->pid[l->count++] = pid;
    return true;
}

/* What is to be killed, and what is not. */
struct hunt {
    pid_t root;
    sp_tree_spare *is_spared; /* of the root's children; NULL: none is */
    const void *user;
    int64_t due_ns; /* INT64_MAX: none */
    struct pids met;
    struct pids living; /* of those, as far as is known */
    size_t asked;       /* so many of them were asked for their children before */
};

static int64_t clock_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static bool is_late(const struct hunt *h)
{
    return h->due_ns != INT64_MAX && clock_ns() >= h->due_ns;
}

/* Adds the children of `parent` that were not met before, and stops them. */
static void meet_children(struct hunt *h, pid_t parent)
{
    pid_t few[AT_ONCE];
    pid_t *pids = few;
    pid_t *many = NULL;
    int n = sp_tree_children(parent, few, AT_ONCE);

    if (n > AT_ONCE) {
        const int max = n + AT_ONCE;

        many = calloc((size_t)max, sizeof *many);
        if (many != NULL) {
            pids = many;
            n = sp_tree_children(parent, many, max);
            n = n > max ? max : n;
        } else {
            n = AT_ONCE; /* the rest in a later round */
        }
    }
    /* The newest first: one that forks and ends all the time is the last, behind its dead. */
    for (int i = n - 1; i >= 0; i--) {
        if (has_pid(&h->met, pids[i]) ||
            (parent == h->root && h->is_spared != NULL && h->is_spared(h->user, pids[i])))
            continue;
        /* One of another user (EPERM) may have children that are ours. */
        if (add_pid(&h->met, pids[i]) && (kill(pids[i], SIGSTOP) == 0 || errno == EPERM))
            (void)add_pid(&h->living, pids[i]);
    }
    free(many);
}

/* Everything below the root, however deep: what was met is the queue of what is to be inspected. */
static bool stop_new(struct hunt *h)
{
    const size_t before = h->met.count;
    size_t living = 0;

    meet_children(h, h->root);
    for (size_t i = 0; i < h->living.count && !is_late(h); i++) {
        const pid_t pid = h->living.pid[i];

        meet_children(h, pid);
        /* The dead have no children and get none: they are not asked again. */
        if (i >= h->asked || is_living(pid))
            h->living.pid[living++] = pid;
    }
    if (!is_late(h)) {
        h->living.count = living;
        h->asked = living;
    }
    return h->met.count != before;
}

/*
 * A process that was told to stop or to die starts no other: a fork that is under way is taken back
 * when a signal is pending. So the tree is complete when a round meets no new process. Passes are
 * repeated, for one of them may have been told to go on by another.
 */
static void kill_all(struct hunt *h)
{
    for (int pass = 0; pass < MAX_PASSES; pass++) {
        const size_t before = h->met.count;

        for (int round = 0; round < MAX_ROUNDS && stop_new(h) && !is_late(h); round++) {
        }
        for (size_t i = before; i < h->met.count; i++)
            (void)kill(h->met.pid[i], SIGKILL);
        if (h->met.count == before || is_late(h))
            break;
    }
    free(h->met.pid);
    free(h->living.pid);
}

void sp_tree_kill(pid_t root, bool with_root)
{
    struct hunt h = {.root = root, .due_ns = INT64_MAX};

    if (with_root)
        (void)kill(root, SIGSTOP); /* a stopped parent starts nothing and stays the subreaper */
    kill_all(&h);
    if (with_root)
        (void)kill(root, SIGKILL);
}

void sp_tree_kill_below(pid_t root, sp_tree_spare *is_spared, const void *user, int budget_ms)
{
    struct hunt h = {.root = root,
                     .is_spared = is_spared,
                     .user = user,
                     .due_ns = clock_ns() + (int64_t)budget_ms * 1000000};

    kill_all(&h);
}
