/* SPDX-License-Identifier: Apache-2.0 */
#include "os/own.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "os/tree.h"

/* The library's callers may start programs in several threads. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pid_t *own;
static size_t count, cap;
static bool is_incomplete; /* out of memory once: which children are our own is not known */

static size_t find(pid_t pid)
{
    size_t i = 0;

    while (i < count && own[i] != pid)
        i++;
    return i;
}

void sp_own_add(pid_t pid)
{
    (void)pthread_mutex_lock(&lock);
    if (count == cap) {
        const size_t more = cap == 0 ? 16 : cap * 2;
        pid_t *p = realloc(own, more * sizeof *p);

        if (p != NULL) {
            own = p;
            cap = more;
        }
    }
    if (count < cap)
        own[count++] = pid;
    else
        is_incomplete = true;
    (void)pthread_mutex_unlock(&lock);
}

void sp_own_remove(pid_t pid)
{
    (void)pthread_mutex_lock(&lock);
    const size_t i = find(pid);
    if (i < count)
        own[i] = own[--count];
    if (count == 0) {
        free(own);
        own = NULL;
        cap = 0;
    }
    (void)pthread_mutex_unlock(&lock);
}

bool sp_own_has(pid_t pid)
{
    (void)pthread_mutex_lock(&lock);
    const bool has = is_incomplete || find(pid) < count;
    (void)pthread_mutex_unlock(&lock);
    return has;
}

/* "NSpid:\t4711\t1": a number for each pid namespace from ours down. */
static bool is_first_of_namespace(pid_t pid)
{
    char path[40];
    char text[4096];

    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n <= 0)
        return false;
    text[n] = 0;
    const char *line = strstr(text, "\nNSpid:");
    const char *end = line == NULL ? NULL : strchr(line + 1, '\n');
    return end != NULL && end - line > 2 && end[-1] == '1' && end[-2] == '\t';
}

static bool is_spared(const void *user, pid_t pid)
{
    const bool *may_be_unknown = user;

    return sp_own_has(pid) || (*may_be_unknown && is_first_of_namespace(pid));
}

size_t sp_own_kill_orphans(bool may_be_unknown, int budget_ms)
{
    pid_t few[256];
    pid_t *pids = few;
    auto_free pid_t *many = NULL;
    size_t left = 0;

    sp_tree_kill_below(getpid(), is_spared, &may_be_unknown, budget_ms);
    int n = sp_tree_children(getpid(), few, 256);
    if (n > 256) {
        many = calloc((size_t)n, sizeof *many);
        const int more = many == NULL ? 256 : sp_tree_children(getpid(), many, n);

        left = more > n ? (size_t)(more - n) : 0;
        n = more < n ? more : n;
        pids = many == NULL ? few : many;
    }
    for (int i = 0; i < n; i++) {
        siginfo_t info = {0};

        if (sp_own_has(pids[i]))
            continue;
        /* One that may be our own is its owner's to reap. One that is reaped here counts, too: it
         * may have died after the list was made, and its children are ours since then. */
        if (!is_spared(&may_be_unknown, pids[i]))
            (void)waitid(P_PID, (id_t)pids[i], &info, WEXITED | WNOHANG);
        left++;
    }
    return left;
}
