/* SPDX-License-Identifier: Apache-2.0 */
#include "os/host_limits.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define RESERVED_PIDS    300 /* not given again after the first round, see kernel/pid.c */
#define FILES_OF_CELL    400 /* sockets, segments of rings, directories of cgroups */
#define FILES_OF_COMMAND 2
#define PIPE_BYTES       65536
#define PIPES_OF_COMMAND 2

static const struct {
    const char *name, *of, *path;
} kinds[SP_HOST_LIMIT_KINDS] = {
    [SP_HOST_LIMIT_TERMINALS] = {"kernel.pty.max", "terminals", "/proc/sys/kernel/pty/max"},
    [SP_HOST_LIMIT_PIDS] = {"kernel.pid_max", "processes and threads of all users",
                            "/proc/sys/kernel/pid_max"},
    [SP_HOST_LIMIT_FILES] = {"RLIMIT_NOFILE", "commands in each cell", NULL},
    [SP_HOST_LIMIT_PIPES] = {"fs.pipe-user-pages-soft",
                             "commands of a user other than root whose pipes have their full size",
                             "/proc/sys/fs/pipe-user-pages-soft"},
};

static bool read_number(const char *path, uint64_t *ret)
{
    unsigned long long n = 0;
    FILE *f = fopen(path, "re");
    const bool is_read = f != NULL && fscanf(f, "%llu", &n) == 1;

    if (f != NULL)
        (void)fclose(f);
    *ret = n;
    return is_read;
}

static uint64_t above(uint64_t value, uint64_t taken)
{
    return value > taken ? value - taken : 0;
}

struct sp_host_limit sp_host_limit_read(enum sp_host_limit_kind kind)
{
    struct sp_host_limit l = {.name = kinds[kind].name, .of = kinds[kind].of};
    struct rlimit files = {0};

    if (kind == SP_HOST_LIMIT_FILES) {
        l.is_known = getrlimit(RLIMIT_NOFILE, &files) == 0;
        l.is_endless = files.rlim_max == RLIM_INFINITY;
        l.value = files.rlim_max;
    } else {
        l.is_known = read_number(kinds[kind].path, &l.value);
    }
    switch (kind) {
    case SP_HOST_LIMIT_PIDS:
        l.allows = above(l.value, RESERVED_PIDS);
        break;
    case SP_HOST_LIMIT_FILES:
        l.allows = above(l.value, FILES_OF_CELL) / FILES_OF_COMMAND;
        break;
    case SP_HOST_LIMIT_PIPES:
        l.is_endless = l.value == 0;
        l.allows = l.value / (PIPES_OF_COMMAND * PIPE_BYTES / (uint64_t)sysconf(_SC_PAGESIZE));
        break;
    case SP_HOST_LIMIT_TERMINALS:
    case SP_HOST_LIMIT_KINDS:
        l.allows = l.value;
        break;
    }
    return l;
}
