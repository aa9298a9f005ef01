/* SPDX-License-Identifier: Apache-2.0 */
#include "memory.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "spawn.h"

struct entry {
    pid_t pid;
    pid_t parent;
    bool is_in;
};

static pid_t parent_of(pid_t pid)
{
    char path[64];
    char line[512];
    pid_t parent = -1;

    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return -1;

    const size_t n = fread(line, 1, sizeof line - 1, f);
    line[n] = 0;
    (void)fclose(f);

    /* "pid (name) state parent": a name may hold anything, also brackets. */
    const char *after = strrchr(line, ')');
    if (after != NULL && strlen(after) > 4)
        parent = (pid_t)strtol(after + 4, NULL, 10);
    return parent;
}

/* All processes of the machine; the caller frees. */
static struct entry *list(size_t *ret_n)
{
    struct entry *v = NULL;
    size_t n = 0;
    size_t cap = 0;
    DIR *d = opendir("/proc");

    for (struct dirent *it; d != NULL && (it = readdir(d)) != NULL;) {
        char *end;
        const long pid = strtol(it->d_name, &end, 10);

        if (pid <= 0 || *end != 0)
            continue;
        if (n == cap) {
            struct entry *more = realloc(v, (cap + 1024) * sizeof *v);

            if (more == NULL)
                break;
            v = more;
            cap += 1024;
        }
        v[n++] = (struct entry){.pid = (pid_t)pid, .parent = parent_of((pid_t)pid)};
    }
    if (d != NULL)
        (void)closedir(d);
    *ret_n = n;
    return v;
}

static bool file_of(pid_t pid, struct stat *ret)
{
    char path[64];

    (void)snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
    return stat(path, ret) == 0;
}

static bool same_file(pid_t pid, const struct stat *own)
{
    struct stat s;

    return file_of(pid, &s) && s.st_dev == own->st_dev && s.st_ino == own->st_ino;
}

/* Of all its threads, to the nanosecond. */
static double cpu_of(pid_t pid)
{
    char path[300];
    double ns;
    double sum = 0;

    (void)snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *d = opendir(path);
    for (const struct dirent *t; d != NULL && (t = readdir(d)) != NULL;) {
        (void)snprintf(path, sizeof path, "/proc/%d/task/%s/schedstat", (int)pid, t->d_name);
        FILE *f = fopen(path, "re");

        if (f != NULL && fscanf(f, "%lf", &ns) == 1)
            sum += ns;
        if (f != NULL)
            (void)fclose(f);
    }
    if (d != NULL)
        (void)closedir(d);
    return sum / 1e9;
}

static bool add(pid_t pid, struct bench_memory *m)
{
    char path[64];
    char line[256];
    double kb;

    (void)snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)pid);
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return false;
    while (fgets(line, sizeof line, f) != NULL)
        if (sscanf(line, "Pss: %lf", &kb) == 1)
            m->pss_bytes += kb * 1024;
        else if (sscanf(line, "Private_Clean: %lf", &kb) == 1 ||
                 sscanf(line, "Private_Dirty: %lf", &kb) == 1)
            m->private_bytes += kb * 1024;
    (void)fclose(f);
    m->cpu_seconds += cpu_of(pid);
    m->processes++;
    return true;
}

int bench_memory_of(pid_t server, struct bench_memory *ret, struct sp_err *e)
{
    struct bench_memory m = {0};
    struct stat own;
    size_t n;
    auto_free struct entry *v = list(&n);

    if (v == NULL || !file_of(server, &own))
        return sp_fail(e, SP_E_SYSTEM, errno, "look at process %d", (int)server);
    for (bool more = true; more;) { /* until no new descendant is found */
        more = false;
        for (size_t i = 0; i < n; i++) {
            bool in = v[i].pid == server;

            for (size_t k = 0; k < n && !in && !v[i].is_in; k++)
                in = v[k].is_in && v[k].pid == v[i].parent;
            /* A part of the server that left its parent was adopted by us. */
            if (!in && !v[i].is_in && v[i].parent == getpid())
                in = !bench_kid_is_enlisted(v[i].pid) && same_file(v[i].pid, &own);
            if (in && !v[i].is_in)
                v[i].is_in = more = true;
        }
    }
    for (size_t i = 0; i < n; i++)
        if (v[i].is_in && same_file(v[i].pid, &own))
            (void)add(v[i].pid, &m); /* gone meanwhile: uses nothing */
    m.first_seconds = cpu_of(server);
    if (m.processes == 0)
        return sp_fail(e, SP_E_SYSTEM, EACCES, "read the memory use of process %d", (int)server);
    *ret = m;
    return 0;
}

int bench_memory_strays(pid_t *ret, int max)
{
    size_t n;
    int found = 0;
    auto_free struct entry *v = list(&n);

    for (size_t i = 0; v != NULL && i < n && found < max; i++)
        if (v[i].parent == getpid() && !bench_kid_is_enlisted(v[i].pid))
            ret[found++] = v[i].pid;
    return found;
}
