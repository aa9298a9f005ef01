/* SPDX-License-Identifier: Apache-2.0 */
/* Reading /proc. A process may exit at any time, so anything unexpected counts as absent. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/io.h"
#include "os/inspect_priv.h"
#include "os/tree.h"

#define PTS_MAJOR  136
#define MAX_LEVELS 32 /* of pid namespaces: the kernel's own bound */

/* Unpacks tty_nr (new_encode_dev of the kernel). */
static int pts_number(unsigned device)
{
    const unsigned major = (device >> 8) & 0xfff;
    const unsigned minor = (device & 0xff) | ((device >> 12) & 0xfff00);

    return major == PTS_MAJOR ? (int)minor : -1;
}

bool sp_inspect_task(pid_t pid, pid_t tid, struct sp_inspect_task *ret)
{
    char path[64];
    char text[512];
    int parent = 0;
    int group = 0;
    int session = 0;
    int foreground = 0;
    int device = 0;

    if (tid == 0)
        (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    else
        (void)snprintf(path, sizeof path, "/proc/%d/task/%d/stat", (int)pid, (int)tid);
    if (sp_read_text(path, text, sizeof text) <= 0)
        return false;
    const char *after_name = strrchr(text, ')'); /* the process name may contain `)` too */
    char state = 0;
    if (after_name == NULL || sscanf(after_name, ") %c %d %d %d %d %d", &state, &parent, &group,
                                     &session, &device, &foreground) != 6)
        return false;
    *ret = (struct sp_inspect_task){.state = state,
                                    .parent = parent,
                                    .group = group,
                                    .session = session,
                                    .terminal = pts_number((unsigned)device),
                                    .foreground = foreground};
    return true;
}

/* ---- descriptors ---- */

bool sp_inspect_link(pid_t pid, int fd, char ret[SP_INSPECT_LINK])
{
    char path[64];

    (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, fd);
    const ssize_t n = readlink(path, ret, SP_INSPECT_LINK);
    if (n <= 0 || n == SP_INSPECT_LINK)
        return false;
    ret[n] = 0;
    return true;
}

uint64_t sp_inspect_inode(const char *link, const char *kind)
{
    const size_t n = strlen(kind);
    char *end = NULL;

    if (strncmp(link, kind, n) != 0 || strncmp(link + n, ":[", 2) != 0)
        return 0;
    errno = 0;
    const uint64_t inode = strtoull(link + n + 2, &end, 10);
    return errno == 0 && strcmp(end, "]") == 0 ? inode : 0;
}

/* Compares names only, so that no file system is asked: "/dev/pts/N", wherever devpts is mounted.
 */
bool sp_inspect_is_terminal(const struct sp_inspect_target *at, const char *link, int controlling)
{
    char name[32];

    if (at->terminal < 0)
        return false;
    if (strcmp(link, "/dev/tty") == 0)
        return controlling == at->terminal;
    (void)snprintf(name, sizeof name, "/pts/%d", at->terminal);
    const size_t n = strlen(name);
    const size_t len = strlen(link);
    return (len >= n && strcmp(link + len - n, name) == 0) || strcmp(link, name + 4) == 0;
}

/* ---- memory ---- */

/* Reading an absent page would wait for its disk, or for a program (FUSE, userfaultfd). */
static bool is_present(pid_t pid, uint64_t address, size_t size)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    const uint64_t first = address / page;
    const uint64_t last = (address + size - 1) / page;
    uint64_t entries[4];
    const uint64_t count = last - first + 1;
    char path[40];

    if (address > UINT64_MAX / 2 || count > sizeof entries / sizeof entries[0])
        return false;
    (void)snprintf(path, sizeof path, "/proc/%d/pagemap", (int)pid);
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    const size_t bytes = count * sizeof entries[0];
    if (fd < 0 || pread(fd, entries, bytes, (off_t)(first * sizeof entries[0])) != (ssize_t)bytes)
        return false;
    for (uint64_t i = 0; i < count; i++)
        if (entries[i] >> 63 == 0)
            return false;
    return true;
}

bool sp_inspect_memory(pid_t pid, uint64_t address, void *ret, size_t size)
{
    char path[40];

    if (size == 0 || !is_present(pid, address, size))
        return false;
    (void)snprintf(path, sizeof path, "/proc/%d/mem", (int)pid);
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd >= 0 && pread(fd, ret, size, (off_t)address) == (ssize_t)size;
}

/* ---- numbers and trees ---- */

#define ITS_OWN     "\nNSpid:" /* cannot be in the Name line: newlines are escaped there */
#define ITS_SESSION "\nNSsid:"

/* The numbers of a process in its pid namespaces, from ours inwards. Returns their count. */
static int read_numbers(pid_t pid, const char *which, pid_t ret[MAX_LEVELS])
{
    char path[40];
    char text[4096];
    int count = 0;

    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    if (sp_read_text(path, text, sizeof text) <= 0)
        return 0;
    char *at = strstr(text, which);
    if (at == NULL)
        return 0;
    at += strlen(which);
    while (count < MAX_LEVELS && *at == '\t') {
        char *end = NULL;
        const long n = strtol(at, &end, 10);

        if (end == at || n < 0 || n > INT32_MAX)
            break;
        ret[count++] = (pid_t)n;
        at = end;
    }
    return count;
}

static pid_t number_of(pid_t pid, const char *which, pid_t like)
{
    pid_t numbers[MAX_LEVELS];
    const int level = read_numbers(like, ITS_OWN, numbers);

    return level > 0 && read_numbers(pid, which, numbers) >= level ? numbers[level - 1] : 0;
}

pid_t sp_inspect_number(pid_t pid, pid_t like)
{
    return number_of(pid, ITS_OWN, like);
}

pid_t sp_inspect_session(pid_t pid, pid_t like)
{
    return number_of(pid, ITS_SESSION, like);
}

pid_t sp_inspect_child(pid_t parent, pid_t number)
{
    pid_t numbers[MAX_LEVELS];
    pid_t children[SP_INSPECT_PROCESSES * 8];
    const int max = (int)(sizeof children / sizeof children[0]);
    const int level = read_numbers(parent, ITS_OWN, numbers);

    if (level == 1) /* in our own pid namespace */
        return sp_tree_parent(number) == parent ? number : 0;
    int n = level == 0 ? 0 : sp_tree_children(parent, children, max);
    n = n > max ? max : n;
    for (int i = n - 1; i >= 0; i--) /* newest first */
        if (read_numbers(children[i], ITS_OWN, numbers) >= level && numbers[level - 1] == number)
            return children[i];
    return 0;
}

bool sp_inspect_add(pid_t pid, pid_t *pids, uint32_t *count, uint32_t max)
{
    for (uint32_t i = 0; i < *count; i++)
        if (pids[i] == pid)
            return false;
    if (*count >= max)
        return false;
    pids[(*count)++] = pid;
    return true;
}

static uint32_t add_children(pid_t parent, pid_t *pids, uint32_t count, uint32_t max)
{
    pid_t children[SP_INSPECT_PROCESSES];
    int n = sp_tree_children(parent, children, SP_INSPECT_PROCESSES);

    n = n > SP_INSPECT_PROCESSES ? SP_INSPECT_PROCESSES : n;
    for (int i = 0; i < n; i++)
        (void)sp_inspect_add(children[i], pids, &count, max);
    return count;
}

uint32_t sp_inspect_add_below(pid_t root, pid_t *pids, uint32_t count, uint32_t max)
{
    uint32_t at = count;

    count = add_children(root, pids, count, max);
    for (; at < count && count < max; at++)
        count = add_children(pids[at], pids, count, max);
    return count;
}
