/* SPDX-License-Identifier: Apache-2.0 */
#include "os/limit_group.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/buf.h"
#include "base/io.h"
#include "os/tree.h"

#define FRONT         "front"
#define MAX_TEXT      (1U << 20) /* of mountinfo */
#define MAX_ABOVE     64
#define MOVE_ROUNDS   20
#define CPU_PERIOD_US 100000
#define PATH_ROOM     600

static const char *const controller_names[SP_CONTROLLERS] = {"memory", "pids", "cpu", "cpuacct"};

/* ---- files of a cgroup ---- */

/* Reads dir/name into text. false: there is no such file. */
static bool read_at(int dir, const char *name, char *text, size_t size)
{
    auto_close int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);

    text[n < 0 ? 0 : n] = 0;
    return n >= 0;
}

static bool write_at(int dir, const char *name, const char *text)
{
    auto_close int fd = openat(dir, name, O_WRONLY | O_CLOEXEC);
    const size_t n = strlen(text);

    return fd >= 0 && write(fd, text, n) == (ssize_t)n;
}

/* The number behind the key at the beginning of a line; without a key the whole text. */
static uint64_t number_of(const char *text, const char *key)
{
    const size_t n = key == NULL ? 0 : strlen(key);

    for (const char *at = text; at != NULL && n != 0; at = strchr(at, '\n')) {
        at += *at == '\n';
        if (strncmp(at, key, n) == 0 && at[n] == ' ')
            return strtoull(at + n + 1, NULL, 10);
    }
    return n == 0 ? strtoull(text, NULL, 10) : 0;
}

static uint64_t read_number(int dir, const char *name, const char *key)
{
    char text[8192];

    return read_at(dir, name, text, sizeof text) ? number_of(text, key) : 0;
}

/* Whether a list of words, with any of these separators, has the word. */
static bool has_word(const char *list, const char *separators, const char *word)
{
    const size_t n = strlen(word);

    for (const char *at = list; *at != 0; at += strspn(at, separators)) {
        const size_t len = strcspn(at, separators);

        if (len == n && strncmp(at, word, n) == 0)
            return true;
        at += len;
    }
    return false;
}

/* ---- what the host offers ---- */

static unsigned controllers_in(const char *list, const char *separators)
{
    unsigned r = 0;

    for (unsigned i = 0; i < SP_CONTROLLERS; i++)
        if (has_word(list, separators, controller_names[i]))
            r |= SP_CONTROL_BIT(i);
    return r;
}

/* Our cgroup in the hierarchy of these controllers (version 2: none), from a line "N:LIST:PATH". */
static bool find_own(const char *text, const char *controller, char *ret, size_t size)
{
    for (const char *at = text; at != NULL && *at != 0;) {
        const char *end = strchrnul(at, '\n');
        const char *list = memchr(at, ':', (size_t)(end - at));
        const char *path = list == NULL ? NULL : memchr(list + 1, ':', (size_t)(end - list - 1));
        char names[128];

        if (path != NULL && path - list - 1 < (long)sizeof names) {
            (void)snprintf(names, sizeof names, "%.*s", (int)(path - list - 1), list + 1);
            if (controller == NULL ? names[0] == 0 : has_word(names, ",", controller))
                return snprintf(ret, size, "%.*s", (int)(end - path - 1), path + 1) < (int)size &&
                       strstr(ret, "/..") == NULL;
        }
        at = *end == 0 ? NULL : end + 1;
    }
    return false;
}

struct mount {
    char root[256], point[256], type[16], options[256];
};

/* "ID PARENT DEV ROOT POINT OPTIONS [TAGS] - TYPE SOURCE OPTIONS" */
static bool read_mount(const char *line, size_t n, struct mount *ret)
{
    char text[2048];
    const char *rest;

    if (n >= sizeof text)
        return false;
    memcpy(text, line, n);
    text[n] = 0;
    return sscanf(text, "%*s %*s %*s %255s %255s", ret->root, ret->point) == 2 &&
           (rest = strstr(text, " - ")) != NULL &&
           sscanf(rest, " - %15s %*s %255s", ret->type, ret->options) == 2 &&
           strchr(ret->point, '\\') == NULL;
}

/* The directory of cgroup `own`; the root of a mount is a cgroup, too. */
static bool place_own(const struct mount *m, const char *own, char *ret, size_t size)
{
    const size_t root = strcmp(m->root, "/") == 0 ? 0 : strlen(m->root);
    const bool is_below = strncmp(own, m->root, root) == 0 && (own[root] == '/' || own[root] == 0);
    const char *rest = is_below ? own + root : ""; /* a container: the mount shows our own cgroup */

    return snprintf(ret, size, "%s%s", m->point, strcmp(rest, "/") == 0 ? "" : rest) < (int)size;
}

static bool is_ours(const struct sp_limit_host *host, pid_t pid)
{
    for (int i = 0; i < MAX_ABOVE && pid > 1 && pid != host->root; i++)
        pid = sp_tree_parent(pid);
    return pid == host->root;
}

/* The root of version 2 may have processes and give controllers to groups, too. */
static bool is_root(int dir)
{
    return faccessat(dir, "cgroup.events", F_OK, 0) < 0;
}

enum occupied { EMPTY, OURS, OTHERS };

static enum occupied who_is_in(const struct sp_limit_host *host, int dir)
{
    auto_close int fd = openat(dir, "cgroup.procs", O_RDONLY | O_CLOEXEC);
    auto_buf struct sp_buf text = {0};
    enum occupied r = EMPTY;

    if (fd < 0 || sp_read_all(fd, MAX_TEXT, &text) < 0 || !sp_buf_add(&text, "", 1))
        return OTHERS;
    char *at = text.data;
    for (char *end; (end = strchr(at, '\n')) != NULL; at = end + 1) {
        if (!is_ours(host, (pid_t)strtol(at, NULL, 10))) /* 0: of another pid namespace */
            return OTHERS;
        r = OURS;
    }
    return r;
}

/* The controllers that cgroups below `own` have, or can have when our processes have moved. */
static unsigned controllers_below(struct sp_limit_host *host, const struct sp_hierarchy *h)
{
    auto_close int dir = open(h->own, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char offered[256];

    if (dir < 0 || !read_at(dir, "cgroup.controllers", offered, sizeof offered))
        return 0;
    const unsigned all = controllers_in(offered, " \n");
    const enum occupied who = is_root(dir) ? EMPTY : who_is_in(host, dir);
    if (who == EMPTY || (who == OURS && host->may_move))
        return all;
    for (unsigned i = 0; i < SP_CONTROLLERS; i++)
        if ((all & SP_CONTROL_BIT(i)) != 0 ||
            (i == SP_CONTROL_CPUACCT && all != 0 && (host->controllers & SP_CONTROL_BIT(i)) == 0))
            host->remedies[i] =
                "other processes are in the cgroup of this one, so it gives no controllers to "
                "cgroups of its own: run the server as a systemd service with Delegate=yes "
                "(DelegateSubgroup= from systemd 254 on), or by `systemd-run --user --scope -p "
                "Delegate=yes sallyport ...`";
    return 0;
}

static void take_hierarchy(struct sp_limit_host *host, struct sp_hierarchy *h, unsigned offered)
{
    static const char not_writable[] =
        "this user may not make directories in its cgroup: run the server as root, or as a "
        "systemd service with Delegate=yes";
    unsigned wanted = offered & ~host->controllers;

    for (unsigned i = 0; i < SP_CONTROLLERS; i++)
        if ((wanted & SP_CONTROL_BIT(i)) != 0)
            host->remedies[i] = not_writable;
    if (wanted == 0 || host->count == SP_HIERARCHIES ||
        faccessat(AT_FDCWD, h->own, W_OK | X_OK, AT_EACCESS) < 0)
        return;
    if (h->is_v2)
        wanted &= controllers_below(host, h);
    if (wanted == 0)
        return;
    h->controllers = wanted;
    if (h->is_v2)
        h->controllers |= SP_CONTROL_BIT(SP_CONTROL_CPUACCT) & ~host->controllers;
    for (unsigned i = 0; i < SP_CONTROLLERS; i++)
        if ((h->controllers & SP_CONTROL_BIT(i)) != 0)
            host->remedies[i] = NULL;
    host->controllers |= h->controllers;
    host->items[host->count++] = *h;
}

void sp_limit_host_read(const char *mountinfo, const char *cgroup, pid_t root, bool may_move,
                        struct sp_limit_host *ret)
{
    *ret = (struct sp_limit_host){.may_move = may_move, .root = root};
    for (int i = 0; i < SP_CONTROLLERS; i++)
        ret->remedies[i] = "no cgroup file system with this controller is mounted";
    /* A controller is in version 1 or in version 2, never in both. Version 1 first: version 2
     * counts CPU time, too, but a process can be in one cgroup of it only. */
    for (int version = 1; version <= 2; version++)
        for (const char *at = mountinfo; *at != 0;) {
            const char *end = strchrnul(at, '\n');
            struct sp_hierarchy h = {.is_v2 = version == 2};
            struct mount m;
            char own[256];
            char text[256] = "";

            if (read_mount(at, (size_t)(end - at), &m) &&
                strcmp(m.type, h.is_v2 ? "cgroup2" : "cgroup") == 0) {
                unsigned offered = h.is_v2 ? 0 : controllers_in(m.options, ",");
                const char *by = NULL;

                for (unsigned i = 0; i < SP_CONTROLLERS && !h.is_v2; i++)
                    by = (offered & SP_CONTROL_BIT(i)) != 0 ? controller_names[i] : by;
                if ((h.is_v2 || by != NULL) && find_own(cgroup, by, own, sizeof own) &&
                    place_own(&m, own, h.own, sizeof h.own)) {
                    auto_close int dir = open(h.own, O_PATH | O_DIRECTORY | O_CLOEXEC);

                    if (h.is_v2 && dir >= 0 &&
                        read_at(dir, "cgroup.controllers", text, sizeof text))
                        offered = controllers_in(text, " \n");
                    take_hierarchy(ret, &h, offered);
                }
            }
            at = *end == 0 ? end : end + 1;
        }
}

/* Removes the cgroups in a directory, which a command may have made, as far as they are empty. */
static void remove_below(int dir, int depth)
{
    const int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);

    if (d == NULL) {
        if (fd >= 0)
            (void)close(fd);
        return;
    }
    for (const struct dirent *entry; (entry = readdir(d)) != NULL;)
        if (entry->d_type == DT_DIR && entry->d_name[0] != '.') {
            auto_close int below =
                openat(dirfd(d), entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

            if (below >= 0 && depth > 0)
                remove_below(below, depth - 1);
            (void)unlinkat(dirfd(d), entry->d_name, AT_REMOVEDIR); /* EBUSY: the caller retries */
        }
    (void)closedir(d);
}

/* ---- servers that are gone ---- */

static bool is_left(int dir, const char *name)
{
    long pid = 0;
    char rest[24];

    return sscanf(name, "sallyport-%ld-%16[0-9a-f]", &pid, rest) == 2 && strlen(rest) == 16 &&
           pid > 0 && kill((pid_t)pid, 0) < 0 && errno == ESRCH &&
           flock(dir, LOCK_EX | LOCK_NB) == 0;
}

/* Removes what servers that are gone have left in our own cgroup and that has no processes. */
static void remove_left(const struct sp_limit_host *host)
{
    for (unsigned h = 0; h < host->count; h++) {
        DIR *d = opendir(host->items[h].own);

        for (const struct dirent *entry; d != NULL && (entry = readdir(d)) != NULL;) {
            auto_close int dir = entry->d_type != DT_DIR || entry->d_name[0] == '.'
                                     ? -1
                                     : openat(dirfd(d), entry->d_name,
                                              O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

            if (dir < 0 || !is_left(dir, entry->d_name))
                continue;
            remove_below(dir, 2);
            (void)unlinkat(dirfd(d), entry->d_name, AT_REMOVEDIR); /* EBUSY: not empty */
        }
        if (d != NULL)
            (void)closedir(d);
    }
}

/* ---- the host ---- */

void sp_limit_host_find(pid_t root, bool may_move, struct sp_limit_host *ret)
{
    auto_buf struct sp_buf mounts = {0};
    char cgroup[8192];

    if (sp_read_file("/proc/self/mountinfo", MAX_TEXT, &mounts) < 0 ||
        !sp_buf_add(&mounts, "", 1) ||
        sp_read_text(cgroup, sizeof cgroup, "/proc/self/cgroup") <= 0)
        sp_limit_host_read("", "", root, may_move, ret);
    else
        sp_limit_host_read(mounts.data, cgroup, root, may_move, ret);
    remove_left(ret);
}

/* ---- groups ---- */

void sp_limit_group_init(struct sp_limit_group *g, struct sp_limit_host *host,
                         struct sp_limit_group *parent, const char *name)
{
    *g = (struct sp_limit_group){.host = host, .parent = parent};
    (void)snprintf(g->name, sizeof g->name, "%s", name);
    for (int h = 0; h < SP_HIERARCHIES; h++)
        g->dirs[h] = -1;
    for (int i = 0; i < SP_GROUP_FILES; i++)
        g->files[i] = -1;
}

/* Fills `path` with the group's directory in the hierarchy. */
static void path_of(const struct sp_limit_group *g, unsigned h, char path[PATH_ROOM])
{
    char names[200] = "";
    char longer[200];

    for (; g->parent != NULL; g = g->parent) {
        const int n = snprintf(longer, sizeof longer, "/%s%s", g->name, names);

        assert(n < (int)sizeof longer); /* server, session, command */
        memcpy(names, longer, sizeof names);
    }
    (void)snprintf(path, PATH_ROOM, "%s/%s%s", g->host->items[h].own, g->name, names);
}

/* Writes the pids in from/cgroup.procs to `to`. false: one of them did not move. */
static bool move_all(int from, int to)
{
    auto_close int fd = openat(from, "cgroup.procs", O_RDONLY | O_CLOEXEC);
    auto_buf struct sp_buf text = {0};
    bool ok = fd >= 0 && sp_read_all(fd, MAX_TEXT, &text) == 0 && sp_buf_add(&text, "", 1);
    char *at = text.data;

    for (char *end; ok && (end = strchr(at, '\n')) != NULL; at = end + 1) {
        *end = 0;
        ok = write_at(to, "cgroup.procs", at) || errno == ESRCH;
    }
    return ok;
}

/* Empties OWN: all processes in it were found to be ours. */
static bool move_to_front(struct sp_limit_group *g, unsigned h, int own)
{
    auto_close int front = -1;

    if (mkdirat(g->dirs[h], FRONT, 0755) < 0 && errno != EEXIST)
        return false;
    front = openat(g->dirs[h], FRONT, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; front >= 0 && i < MOVE_ROUNDS; i++) {
        const enum occupied who = who_is_in(g->host, own);

        if (who == EMPTY) {
            g->moved |= 1U << h;
            return true;
        }
        if (who == OTHERS || !g->host->may_move || !move_all(own, front))
            break;
    }
    if (front >= 0)
        (void)move_all(front, own);
    (void)unlinkat(g->dirs[h], FRONT, AT_REMOVEDIR);
    errno = EBUSY;
    return false;
}

/* "+memory +pids" into the file of `dir`. */
static bool write_controllers(int dir, unsigned controllers, char sign)
{
    char text[64];
    size_t n = 0;

    for (unsigned i = 0; i < SP_CONTROL_CPUACCT; i++)
        if ((controllers & SP_CONTROL_BIT(i)) != 0)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%c%s", n == 0 ? "" : " ", sign,
                                  controller_names[i]);
    return n == 0 || write_at(dir, "cgroup.subtree_control", text);
}

/* Gives the groups in g these controllers, in its hierarchy of version 2. */
static bool enable(struct sp_limit_group *g, unsigned h, unsigned controllers)
{
    unsigned missing = controllers & g->host->items[h].controllers & ~g->enabled;

    if (missing == 0)
        return true;
    if (!write_controllers(g->dirs[h], missing, '+'))
        return false;
    g->enabled |= missing;
    return true;
}

/* Gives groups in OWN these controllers. OWN is emptied first: with processes in it the kernel
 * refuses memory, and makes groups with the others threaded ones. */
static bool enable_own(struct sp_limit_group *g, unsigned h, unsigned controllers)
{
    auto_close int own = open(g->host->items[h].own, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char text[256];

    if (own < 0 ||
        (!is_root(own) && who_is_in(g->host, own) != EMPTY && !move_to_front(g, h, own)) ||
        !read_at(own, "cgroup.subtree_control", text, sizeof text))
        return false;
    return write_controllers(
        own, controllers & g->host->items[h].controllers & ~controllers_in(text, " \n"), '+');
}

static bool make_in(struct sp_limit_group *g, unsigned h, unsigned controllers)
{
    const bool is_v2 = g->host->items[h].is_v2;
    char path[PATH_ROOM];

    if (is_v2 && g->parent != NULL && !enable(g->parent, h, controllers))
        return false;
    if ((g->made & 1U << h) == 0) {
        path_of(g, h, path);
        if (mkdir(path, 0755) < 0)
            return false;
        g->made |= 1U << h;
        g->dirs[h] = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    if (g->dirs[h] < 0)
        return false;
    if (g->parent != NULL)
        return true;
    (void)flock(g->dirs[h], LOCK_EX | LOCK_NB); /* sp_limit_host_clean leaves it alone */
    return !is_v2 || enable_own(g, h, controllers);
}

/* The hierarchy of a controller. */
static int hierarchy_of(const struct sp_limit_group *g, enum sp_controller which)
{
    for (unsigned h = 0; h < g->host->count; h++)
        if ((g->host->items[h].controllers & SP_CONTROL_BIT(which)) != 0 && g->dirs[h] >= 0)
            return (int)h;
    return -1;
}

static bool set_memory(int dir, bool is_v2, const char *text)
{
    if (is_v2) {
        const bool has_swap = faccessat(dir, "memory.swap.max", F_OK, 0) == 0;

        return write_at(dir, "memory.max", text) &&
               (!has_swap || write_at(dir, "memory.swap.max", text[0] == 'm' ? "max" : "0"));
    }
    /* Memory with swap may never be limited to less than memory alone: whether the first or the
     * second comes first depends on the direction. */
    const bool has_swap = faccessat(dir, "memory.memsw.limit_in_bytes", F_OK, 0) == 0;
    if (has_swap && write_at(dir, "memory.memsw.limit_in_bytes", text))
        return write_at(dir, "memory.limit_in_bytes", text);
    return write_at(dir, "memory.limit_in_bytes", text) &&
           (!has_swap || write_at(dir, "memory.memsw.limit_in_bytes", text));
}

static bool set_cpu(int dir, bool is_v2, uint64_t thousandths)
{
    char text[64];
    const uint64_t quota = thousandths * (CPU_PERIOD_US / 1000);

    if (is_v2) {
        (void)snprintf(text, sizeof text, thousandths == 0 ? "max" : "%" PRIu64 " %d", quota,
                       CPU_PERIOD_US);
        return write_at(dir, "cpu.max", text);
    }
    (void)snprintf(text, sizeof text, "%d", CPU_PERIOD_US);
    if (thousandths != 0 && !write_at(dir, "cpu.cfs_period_us", text))
        return false;
    (void)snprintf(text, sizeof text, "%" PRId64, thousandths == 0 ? -1 : (int64_t)quota);
    return write_at(dir, "cpu.cfs_quota_us", text);
}

static bool set_limit(struct sp_limit_group *g, enum sp_controller which, uint64_t value)
{
    const int h = hierarchy_of(g, which);
    char text[32];
    bool ok = true;

    if (g->limits[which] == value)
        return true;
    if (h < 0) {
        errno = ENOENT;
        return false;
    }
    const bool is_v2 = g->host->items[h].is_v2;
    (void)snprintf(text, sizeof text, "%" PRIu64, value);
    if (value == 0)
        (void)snprintf(text, sizeof text, "%s",
                       which == SP_CONTROL_MEMORY && !is_v2 ? "-1" : "max");
    if (which == SP_CONTROL_MEMORY)
        ok = set_memory(g->dirs[h], is_v2, text);
    else if (which == SP_CONTROL_PIDS)
        ok = write_at(g->dirs[h], "pids.max", text);
    else if (which == SP_CONTROL_CPU)
        ok = set_cpu(g->dirs[h], is_v2, value);
    if (ok)
        g->limits[which] = value;
    return ok;
}

bool sp_limit_group_make(struct sp_limit_group *g, unsigned controllers,
                         const uint64_t limits[SP_CONTROLLERS])
{
    const unsigned missing = controllers & ~g->ready;

    for (unsigned h = 0; h < g->host->count; h++)
        if ((g->host->items[h].controllers & missing) != 0 && !make_in(g, h, missing))
            return false;
    g->ready |= controllers;
    for (unsigned i = 0; limits != NULL && i < SP_CONTROLLERS; i++)
        if ((controllers & SP_CONTROL_BIT(i)) != 0 &&
            !set_limit(g, (enum sp_controller)i, limits[i]))
            return false;
    return true;
}

void sp_limit_group_reopen(struct sp_limit_group *g, unsigned controllers,
                           const uint64_t limits[SP_CONTROLLERS])
{
    char path[PATH_ROOM];

    for (unsigned h = 0; h < g->host->count; h++) {
        if ((g->host->items[h].controllers & controllers) == 0)
            continue;
        path_of(g, h, path);
        g->dirs[h] = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (g->dirs[h] < 0)
            continue;
        g->made |= 1U << h;
        g->ready |= controllers & g->host->items[h].controllers;
        if (g->parent == NULL)
            (void)flock(g->dirs[h], LOCK_EX | LOCK_NB);
    }
    memcpy(g->limits, limits, sizeof g->limits);
}

/* Moves our processes back to OWN, so that front/ can be removed. */
static void leave_front(struct sp_limit_group *g, unsigned h)
{
    auto_close int own = open(g->host->items[h].own, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    auto_close int front = openat(g->dirs[h], FRONT, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    (void)write_controllers(g->dirs[h], g->enabled, '-');
    (void)write_controllers(own, g->host->items[h].controllers, '-');
    (void)move_all(front, own); /* not possible: the next server removes what is left */
    if (unlinkat(g->dirs[h], FRONT, AT_REMOVEDIR) == 0)
        g->moved &= ~(1U << h);
}

static void close_files(struct sp_limit_group *g)
{
    for (int i = 0; i < SP_GROUP_FILES; i++) {
        if (g->files[i] >= 0)
            (void)close(g->files[i]);
        g->files[i] = -1;
    }
}

bool sp_limit_group_remove(struct sp_limit_group *g)
{
    char path[PATH_ROOM];

    close_files(g);
    for (unsigned h = 0; h < g->host->count; h++) {
        if ((g->made & 1U << h) == 0)
            continue;
        path_of(g, h, path);
        if ((g->moved & 1U << h) != 0)
            leave_front(g, h);
        if (rmdir(path) < 0 && errno == EBUSY && g->dirs[h] >= 0) {
            remove_below(g->dirs[h], MAX_ABOVE / 2);
            if (rmdir(path) < 0 && errno == EBUSY)
                continue;
        }
        g->made &= ~(1U << h);
        if (g->dirs[h] >= 0)
            (void)close(g->dirs[h]);
        g->dirs[h] = -1;
    }
    return g->made == 0;
}

/* ---- what happened in it ---- */

/* Files in the cache and caches of the kernel are freed when a limit is met. */
static uint64_t read_held(int dir, bool is_v2, uint64_t limit)
{
    char text[8192];
    const uint64_t used =
        read_number(dir, is_v2 ? "memory.current" : "memory.usage_in_bytes", NULL);

    if (used < limit / 2 || !read_at(dir, "memory.stat", text, sizeof text))
        return used;
    const uint64_t files = number_of(text, is_v2 ? "inactive_file" : "total_inactive_file") +
                           number_of(text, is_v2 ? "active_file" : "total_active_file") +
                           number_of(text, "slab_reclaimable");
    return used > files ? used - files : 0;
}

/* As read_number, of a file that may stay open. */
static uint64_t read_often(struct sp_limit_group *g, enum sp_group_file file, int dir,
                           const char *name, const char *key)
{
    char text[1024];
    int *fd = &g->files[file];

    if (!g->keeps_files)
        return read_number(dir, name, key);
    if (*fd < 0)
        *fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
    const ssize_t n = *fd < 0 ? -1 : pread(*fd, text, sizeof text - 1, 0);
    text[n < 0 ? 0 : n] = 0;
    return number_of(text, key);
}

static void read_memory(struct sp_limit_group *g, int dir, bool is_v2, bool resets_peak,
                        struct sp_group_counts *ret)
{
    char text[1024];

    ret->kills = read_often(g, SP_GROUP_KILLS, dir, is_v2 ? "memory.events" : "memory.oom_control",
                            "oom_kill");
    /* Version 2 resets it for one open file only (from 6.12 on), and not by its name. */
    ret->has_reset_peak = resets_peak && !is_v2 && write_at(dir, "memory.max_usage_in_bytes", "0");
    ret->peak_memory = read_often(g, SP_GROUP_PEAK_MEMORY, dir,
                                  is_v2 ? "memory.peak" : "memory.max_usage_in_bytes", NULL);
    if (ret->kills == 0)
        return;
    /* Its own limit alone: not those of groups below or above. In version 1 memory with swap is
     * charged first, and has the same limit. */
    if (!is_v2)
        ret->memory_hits = read_number(dir, "memory.failcnt", NULL) +
                           read_number(dir, "memory.memsw.failcnt", NULL);
    else if (read_at(dir, "memory.events.local", text, sizeof text))
        ret->memory_hits = number_of(text, "oom");
}

static void read_cpu(int dir, bool is_v2, bool has_parts, struct sp_group_counts *ret)
{
    char text[1024];

    if (is_v2) {
        if (!read_at(dir, "cpu.stat", text, sizeof text))
            return;
        ret->cpu_us = number_of(text, "usage_usec");
        ret->user_us = number_of(text, "user_usec");
        ret->system_us = number_of(text, "system_usec");
        return;
    }
    ret->cpu_us = read_number(dir, "cpuacct.usage", NULL) / 1000;
    if (!has_parts)
        return;
    ret->user_us = read_number(dir, "cpuacct.usage_user", NULL) / 1000;
    ret->system_us = read_number(dir, "cpuacct.usage_sys", NULL) / 1000;
}

void sp_limit_group_read(struct sp_limit_group *g, unsigned controllers, unsigned what,
                         struct sp_group_counts *ret)
{
    *ret = (struct sp_group_counts){0};
    for (unsigned i = 0; i < SP_CONTROLLERS; i++) {
        const int h = (controllers & SP_CONTROL_BIT(i)) != 0 ? hierarchy_of(g, i) : -1;

        if (h < 0)
            continue;
        const int dir = g->dirs[h];
        const bool is_v2 = g->host->items[h].is_v2;
        const bool has_counts = (what & SP_READ_COUNTS) != 0;
        if (i == SP_CONTROL_MEMORY && has_counts)
            read_memory(g, dir, is_v2, (what & SP_RESET_PEAK) != 0, ret);
        if (i == SP_CONTROL_MEMORY && (what & SP_READ_HELD) != 0 && g->limits[i] != 0)
            ret->held_memory = read_held(dir, is_v2, g->limits[i]);
        if (i == SP_CONTROL_PIDS && has_counts) {
            ret->refusals = read_often(g, SP_GROUP_REFUSALS, dir, "pids.events", "max");
            ret->peak_pids = read_often(g, SP_GROUP_PEAK_PIDS, dir, "pids.peak", NULL);
        }
        if (i == SP_CONTROL_PIDS && (what & SP_READ_PIDS) != 0)
            ret->pids = read_often(g, SP_GROUP_PIDS, dir, "pids.current", NULL);
        if (i == SP_CONTROL_CPUACCT && (has_counts || (what & SP_READ_CPU) != 0))
            read_cpu(dir, is_v2, has_counts, ret);
    }
}
