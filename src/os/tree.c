/* SPDX-License-Identifier: Apache-2.0 */
#include "os/tree.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"

#define AT_ONCE 256

/* ---- who is whose child ---- */

static int parent_of(pid_t pid)
{
    char path[40];
    char text[512];

    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n <= 0)
        return -1;
    text[n] = 0;
    const char *after_name = strrchr(text, ')'); /* the name may hold anything, also a bracket */
    int parent = -1;
    if (after_name == NULL || sscanf(after_name, ") %*c %d", &parent) != 1)
        return -1;
    return parent;
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

        if (parent_of(pid) == parent) {
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

/* ---- stop all, then kill all ---- */

/*
 * Sends `sig` to every process below `root`, depth first, and says how many got it for the first
 * time. A process is told once per round; whoever is born between two rounds is met in the next.
 */
static int signal_below(pid_t root, int sig, int depth)
{
    pid_t few[AT_ONCE];
    pid_t *pids = few;
    pid_t *many = NULL;
    int n = sp_tree_children(root, few, AT_ONCE);
    int told = 0;

    if (n > AT_ONCE) {
        const int max = n + AT_ONCE;

        many = calloc((size_t)max, sizeof *many);
        if (many != NULL) {
            pids = many;
            n = sp_tree_children(root, many, max);
            n = n > max ? max : n;
        } else {
            n = AT_ONCE; /* the rest in a later round */
        }
    }
    for (int i = 0; i < n; i++) {
        if (kill(pids[i], sig) == 0)
            told++;
        if (depth < 10000)
            told += signal_below(pids[i], sig, depth + 1);
    }
    free(many);
    return told;
}

static char state_of(pid_t pid)
{
    char path[40];
    char text[512];

    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n <= 0)
        return 0;
    text[n] = 0;
    const char *after_name = strrchr(text, ')');
    return after_name != NULL && after_name[1] == ' ' ? after_name[2] : 0;
}

static int count_below(pid_t root, bool only_running)
{
    pid_t pids[AT_ONCE];
    int n = sp_tree_children(root, pids, AT_ONCE);
    int count = 0;

    n = n > AT_ONCE ? AT_ONCE : n;
    for (int i = 0; i < n; i++) {
        const char state = state_of(pids[i]);

        if (state != 0 && state != 'Z' && state != 'X' &&
            !(only_running && (state == 'T' || state == 't')))
            count++;
        count += count_below(pids[i], only_running);
    }
    return count;
}

void sp_tree_kill(pid_t root, bool with_root)
{
    if (with_root)
        (void)kill(root, SIGSTOP); /* a stopped parent starts nothing and stays the subreaper */
    /* Until a round meets nobody who could still fork: a fork bomb loses, for its halves stop. */
    for (int round = 0; round < 64; round++) {
        (void)signal_below(root, SIGSTOP, 0);
        if (count_below(root, true) == 0)
            break;
    }
    for (int round = 0; round < 64; round++) {
        (void)signal_below(root, SIGKILL, 0);
        if (count_below(root, false) == 0)
            break;
    }
    if (with_root)
        (void)kill(root, SIGKILL);
}
