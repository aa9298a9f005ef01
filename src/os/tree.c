/* SPDX-License-Identifier: Apache-2.0 */
#include "os/tree.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/grow.h"
#include "base/io.h"

#define AT_ONCE    256 /* pids that are listed without allocating */
#define MAX_ROUNDS 1000
#define MAX_PASSES 16

/* ---- children ---- */

/* false: no such process. */
static bool read_stat(pid_t pid, char *ret_state, pid_t *ret_parent)
{
    char text[512];

    if (sp_read_text(text, sizeof text, "/proc/%d/stat", (int)pid) <= 0)
        return false;
    const char *after_name = strrchr(text, ')'); /* the process name may contain `)` too */
    return after_name != NULL && sscanf(after_name, ") %c %d", ret_state, ret_parent) == 2;
}

pid_t sp_tree_parent(pid_t pid)
{
    pid_t parent;
    char state;

    return read_stat(pid, &state, &parent) ? parent : -1;
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
        kept = strlen(at); /* a number that the buffer cut */
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
            n = -1; /* the thread exists, but not its list: an old kernel */
        else if (more >= 0)
            n = more;
    }
    (void)closedir(tasks);
    if (n >= 0)
        return n;

    /* A kernel without /proc/PID/task/TID/children. */
    DIR *proc = opendir("/proc");
    if (proc == NULL)
        return -1;
    n = 0;
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

static bool add_pid(struct pids *l, pid_t pid)
{
    if (!SP_GROW(l->pid, l->count, l->cap))
        return false;
    l->pid[l->count++] = pid;
    return true;
}

/* The processes below root that are to be killed. */
struct hunt {
    pid_t root;
    /* Children of the root to leave alone, with everything below them; NULL: none. */
    bool (*is_spared)(const void *user, pid_t child);
    const void *user;
    uint64_t due_ns; /* UINT64_MAX: no time limit */
    struct pids met;
    struct pids living; /* of met, those that were alive when last seen */
    size_t asked;       /* children of the first `asked` processes in living were listed before */
};

static bool is_late(const struct hunt *h)
{
    return h->due_ns != UINT64_MAX && sp_clock_ns() >= h->due_ns;
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
    /* Newest first: in a chain of processes that fork and exit, the living one is the last. */
    for (int i = n - 1; i >= 0; i--) {
        size_t k = h->met.count;

        while (k > 0 && h->met.pid[k - 1] != pids[i])
            k--;
        if (k > 0 || (parent == h->root && h->is_spared != NULL && h->is_spared(h->user, pids[i])))
            continue;
        /* A process of another user (EPERM) may have children that we may kill. */
        if (add_pid(&h->met, pids[i]) && (kill(pids[i], SIGSTOP) == 0 || errno == EPERM))
            (void)add_pid(&h->living, pids[i]);
    }
    free(many);
}

/*
 * A process with a pending SIGSTOP or SIGKILL starts no other: the kernel aborts a fork that is
 * under way. So the tree is complete when a round over everything below the root meets no new
 * process; h->living is the queue of a round. Passes are repeated because a process may have sent
 * SIGCONT to another one.
 */
static void kill_all(struct hunt *h)
{
    for (int pass = 0; pass < MAX_PASSES; pass++) {
        const size_t before = h->met.count;
        bool has_new = true;

        for (int round = 0; round < MAX_ROUNDS && has_new; round++) {
            const size_t met = h->met.count;
            size_t living = 0;

            meet_children(h, h->root);
            for (size_t i = 0; i < h->living.count && !is_late(h); i++) {
                const pid_t pid = h->living.pid[i];

                meet_children(h, pid);
                /* A dead process has no children and gets none: not listed again. */
                if (i >= h->asked || is_living(pid))
                    h->living.pid[living++] = pid;
            }
            if (!is_late(h))
                h->living.count = h->asked = living;
            has_new = h->met.count != met && !is_late(h);
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
    struct hunt h = {.root = root, .due_ns = UINT64_MAX};

    if (with_root)
        (void)kill(root, SIGSTOP); /* while stopped it starts nothing and is still the subreaper */
    kill_all(&h);
    if (with_root)
        (void)kill(root, SIGKILL);
}

/* ---- our own children ---- */

/* Users of the library may start programs in several threads. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pid_t *own;
static size_t own_count, own_cap;
static bool is_incomplete; /* a child could not be noted: treat every process as our own */

static size_t find_own(pid_t pid)
{
    size_t i = 0;

    while (i < own_count && own[i] != pid)
        i++;
    return i;
}

void sp_own_add(pid_t pid)
{
    (void)pthread_mutex_lock(&lock);
    if (SP_GROW(own, own_count, own_cap))
        own[own_count++] = pid;
    else
        is_incomplete = true;
    (void)pthread_mutex_unlock(&lock);
}

void sp_own_remove(pid_t pid)
{
    (void)pthread_mutex_lock(&lock);
    const size_t i = find_own(pid);
    if (i < own_count)
        own[i] = own[--own_count];
    if (own_count == 0) {
        free(own);
        own = NULL;
        own_cap = 0;
    }
    (void)pthread_mutex_unlock(&lock);
}

bool sp_own_has(pid_t pid)
{
    (void)pthread_mutex_lock(&lock);
    const bool has = is_incomplete || find_own(pid) < own_count;
    (void)pthread_mutex_unlock(&lock);
    return has;
}

/* Whether it is pid 1 of another pid namespace: "NSpid:\t4711\t1" lists its pids, ours first. */
static bool is_first_of_namespace(pid_t pid)
{
    char text[4096];

    if (sp_read_text(text, sizeof text, "/proc/%d/status", (int)pid) <= 0)
        return false;
    const char *line = strstr(text, "\nNSpid:");
    const char *end = line == NULL ? NULL : strchr(line + 1, '\n');
    return end != NULL && end - line > 2 && end[-1] == '1' && end[-2] == '\t';
}

static bool is_own_or_unknown(const void *user, pid_t pid)
{
    const bool *may_be_unknown = user;

    return pid == getpid() || sp_own_has(pid) || (*may_be_unknown && is_first_of_namespace(pid));
}

size_t sp_own_kill_orphans(pid_t parent, bool may_be_unknown, int budget_ms)
{
    struct hunt h = {.root = parent,
                     .is_spared = is_own_or_unknown,
                     .user = &may_be_unknown,
                     .due_ns = sp_clock_ns() + (uint64_t)budget_ms * 1000000};
    pid_t few[AT_ONCE];
    pid_t *pids = few;
    auto_free pid_t *many = NULL;
    size_t left = 0;

    kill_all(&h);
    int n = sp_tree_children(parent, few, AT_ONCE);
    if (n > AT_ONCE) {
        many = calloc((size_t)n, sizeof *many);
        const int more = many == NULL ? AT_ONCE : sp_tree_children(parent, many, n);

        left = more > n ? (size_t)(more - n) : 0;
        n = more < n ? more : n;
        pids = many == NULL ? few : many;
    }
    for (int i = 0; i < n; i++) {
        siginfo_t info = {0};

        if (pids[i] == getpid() || sp_own_has(pids[i]))
            continue;
        /* The caller that started a process reaps it. An orphan that is reaped here counts as well:
         * it may have died after the list was made, and its children are ours since then. */
        if (!is_own_or_unknown(&may_be_unknown, pids[i]))
            (void)waitid(P_PID, (id_t)pids[i], &info, WEXITED | WNOHANG);
        left++;
    }
    return left;
}
