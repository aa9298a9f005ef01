/* SPDX-License-Identifier: Apache-2.0 */
#include "os/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/io.h"

#define MAX_DEPTH 32
#define OUR_NAMES "sallyport-"

/* The mount point of cgroup2. A line of mounts is "source path type ...". */
static bool find_mount(char *ret, size_t size)
{
    char text[16384];
    char *rest = text;

    if (sp_read_text(text, sizeof text, "/proc/self/mounts") <= 0)
        return false;
    for (const char *line; (line = strsep(&rest, "\n")) != NULL;) {
        char path[256];
        char type[32];

        if (sscanf(line, "%*255s %255s %31s", path, type) == 2 && strcmp(type, "cgroup2") == 0)
            return snprintf(ret, size, "%s", path) < (int)size;
    }
    return false;
}

/* The cgroup of this process: the line "0::/path". */
static bool find_own(char *ret, size_t size)
{
    char text[8192];

    if (sp_read_text(text, sizeof text, "/proc/self/cgroup") <= 0)
        return false;
    const char *line = strncmp(text, "0::", 3) == 0 ? text : strstr(text, "\n0::");
    if (line == NULL || (line = strchr(line, '/')) == NULL)
        return false;
    const size_t n = strcspn(line, "\n");
    return snprintf(ret, size, "%.*s", (int)n, line) < (int)size;
}

static void leaf_name(char name[16], uint32_t leaf)
{
    (void)snprintf(name, 16, "c%u", leaf);
}

static bool try_leaf(struct sp_cgroup *c)
{
    auto_close int leaf = sp_cgroup_make_leaf(c, 0);
    const bool works = leaf >= 0 && faccessat(leaf, "cgroup.kill", W_OK, 0) == 0 &&
                       faccessat(leaf, "cgroup.procs", W_OK, 0) == 0 &&
                       sp_cgroup_is_empty(leaf, NULL);

    sp_cgroup_remove_leaf(c, 0);
    return works;
}

bool sp_cgroup_name(char ret[SP_CGROUP_NAME])
{
    return sp_cgroup_name_for(getpid(), ret);
}

bool sp_cgroup_name_for(pid_t pid, char ret[SP_CGROUP_NAME])
{
    uint64_t random;

    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
        return false;
    return snprintf(ret, SP_CGROUP_NAME, OUR_NAMES "%d-%016llx", (int)pid,
                    (unsigned long long)random) < SP_CGROUP_NAME;
}

bool sp_cgroup_path(const char *name, char ret[SP_CGROUP_PATH])
{
    char mount[256];
    char own[200];

    return name[0] != 0 && strchr(name, '/') == NULL && find_mount(mount, sizeof mount) &&
           find_own(own, sizeof own) &&
           snprintf(ret, SP_CGROUP_PATH, "%s%s/%s", mount, strcmp(own, "/") == 0 ? "" : own, name) <
               SP_CGROUP_PATH;
}

void sp_cgroup_remove(const char *path)
{
    const char *slash = strrchr(path, '/');
    struct sp_cgroup c = {.dir = -1};
    struct statfs fs;

    if (slash == NULL || strncmp(slash + 1, OUR_NAMES, sizeof OUR_NAMES - 1) != 0 ||
        snprintf(c.path, sizeof c.path, "%s", path) >= (int)sizeof c.path)
        return;
    c.dir = open(c.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (c.dir < 0)
        return;
    if (fstatfs(c.dir, &fs) == 0 && fs.f_type == CGROUP2_SUPER_MAGIC)
        sp_cgroup_free(&c);
    else
        (void)close(c.dir);
}

bool sp_cgroup_new(const char *name, struct sp_cgroup *ret)
{
    struct sp_cgroup c = {.dir = -1};

    /* EEXIST: another process has taken the name. */
    if (!sp_cgroup_path(name, c.path) || mkdir(c.path, 0755) < 0)
        return false;
    c.dir = open(c.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (c.dir < 0 || !try_leaf(&c)) {
        sp_cgroup_free(&c);
        return false;
    }
    *ret = c;
    return true;
}

/* Removes the cgroups below dir/name, which a command may have made; not that one itself. */
static void remove_below(int dir, const char *name, int depth)
{
    const int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);

    if (d == NULL) {
        if (fd >= 0)
            (void)close(fd);
        return;
    }
    for (const struct dirent *entry; (entry = readdir(d)) != NULL;)
        if (entry->d_type == DT_DIR && entry->d_name[0] != '.' && depth < MAX_DEPTH) {
            remove_below(dirfd(d), entry->d_name, depth + 1);
            (void)unlinkat(dirfd(d), entry->d_name, AT_REMOVEDIR); /* EBUSY: the caller retries */
        }
    (void)closedir(d);
}

void sp_cgroup_free(struct sp_cgroup *c)
{
    if (c->dir >= 0) {
        sp_cgroup_kill(c->dir);
        for (int round = 0; round < 200; round++) {
            remove_below(c->dir, ".", 0);
            if (rmdir(c->path) == 0 || errno != EBUSY)
                break;
            (void)poll(NULL, 0,
                       5); /* EBUSY: processes are still exiting, and there is no event for it */
        }
        (void)close(c->dir);
    } else if (c->path[0] != 0) {
        (void)rmdir(c->path);
    }
    *c = (struct sp_cgroup){.dir = -1};
}

int sp_cgroup_make_leaf(struct sp_cgroup *c, uint32_t leaf)
{
    char name[16];

    leaf_name(name, leaf);
    return mkdirat(c->dir, name, 0755) < 0 ? -1 : sp_cgroup_open_leaf(c, leaf);
}

int sp_cgroup_open_leaf(const struct sp_cgroup *c, uint32_t leaf)
{
    char name[16];

    leaf_name(name, leaf);
    return openat(c->dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

void sp_cgroup_remove_leaf(struct sp_cgroup *c, uint32_t leaf)
{
    char name[16];

    leaf_name(name, leaf);
    remove_below(c->dir, name, 0);
    (void)unlinkat(c->dir, name, AT_REMOVEDIR); /* EBUSY: left to sp_cgroup_free */
}

uint32_t sp_cgroup_list(const char *name, uint32_t leaf, pid_t *pids, uint32_t max)
{
    char dir[SP_CGROUP_PATH];
    char own[16];
    char text[8192];
    uint32_t count = 0;

    leaf_name(own, leaf);
    if (!sp_cgroup_path(name, dir) ||
        sp_read_text(text, sizeof text, "%s/%s/cgroup.procs", dir, own) <= 0)
        return 0;
    char *at = text;
    for (char *end; count < max && (end = strchr(at, '\n')) != NULL; at = end + 1) {
        const long pid = strtol(at, NULL, 10);

        if (pid > 0) /* 0: outside of our pid namespace */
            pids[count++] = (pid_t)pid;
    }
    return count;
}

bool sp_cgroup_is_empty(int leaf_fd, int *events)
{
    char text[128];
    auto_close int opened = -1;
    int *fd = events != NULL ? events : &opened;

    if (*fd < 0)
        *fd = openat(leaf_fd, "cgroup.events", O_RDONLY | O_CLOEXEC);
    const ssize_t n = *fd < 0 ? -1 : pread(*fd, text, sizeof text - 1, 0);
    if (n <= 0)
        return false;
    text[n] = 0;
    return strstr(text, "populated 0") != NULL;
}

void sp_cgroup_kill(int leaf_fd)
{
    auto_close int fd = openat(leaf_fd, "cgroup.kill", O_WRONLY | O_CLOEXEC);

    if (fd >= 0)
        (void)!write(fd, "1", 1); /* sp_cgroup_new has checked that it works */
}
