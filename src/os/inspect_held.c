/* SPDX-License-Identifier: Apache-2.0 */
/* look: what descriptors a command's processes have, and which of them are its output. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "os/inspect_priv.h"

#define MAX_FDS     1024  /* of one process */
#define MAX_ALL_FDS 16384 /* of one look */

/* ---- descriptors ---- */

static bool has_fd(struct sp_look_search *s, pid_t pid)
{
    char path[40];
    char link[SP_LOOK_LINK];
    bool is_found = false;

    (void)snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *fds = opendir(path);
    if (fds == NULL)
        return false;
    const struct dirent *d;
    s->pid = pid;
    s->dir = dirfd(fds);
    for (int n = 0;
         !is_found && n < MAX_FDS && s->looked_at < MAX_ALL_FDS && (d = readdir(fds)) != NULL;
         n++) {
        const ssize_t len = readlinkat(s->dir, d->d_name, link, sizeof link);

        s->looked_at++;
        if (len <= 0 || len == (ssize_t)sizeof link)
            continue; /* "." and "..", or none that we look for */
        link[len] = 0;
        s->name = d->d_name;
        is_found = s->is_it(s, link);
    }
    (void)closedir(fds);
    return is_found;
}

void sp_look_search(struct sp_look_search *s)
{
    for (uint32_t i = 0; i < s->at->member_count && i < SP_LOOK_PROCESSES; i++)
        if (has_fd(s, s->at->members[i]))
            s->found(s, s->at->members[i]);
}

/* ---- who holds its output ---- */

struct holders {
    struct sp_look_search search;
    struct sp_look *look;
};

static bool can_write(const struct sp_look_search *s)
{
    struct stat st;

    /* The link's own mode says how the descriptor was opened. */
    return fstatat(s->dir, s->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && (st.st_mode & S_IWUSR) != 0;
}

static int terminal_of(pid_t pid)
{
    struct sp_look_task t;

    return sp_look_task(pid, 0, &t) ? t.terminal : -1;
}

static bool is_output(struct sp_look_search *s, const char *link)
{
    const struct sp_look_at *at = s->at;
    const uint64_t inode = sp_look_inode(link, "pipe");

    /* Of a terminal also one who only reads: that keeps it from ending. */
    if (sp_look_is_terminal(at, link, strcmp(link, "/dev/tty") == 0 ? terminal_of(s->pid) : -1))
        return true;
    return inode != 0 && (inode == at->outputs[0] || inode == at->outputs[1]) && can_write(s);
}

static void read_name(pid_t pid, char *ret, size_t size)
{
    char path[40];

    (void)snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
    ssize_t n = sp_look_read(path, ret, size);
    if (n > 0 && ret[n - 1] == '\n')
        ret[--n] = 0;
    if (n <= 0)
        (void)snprintf(ret, size, "?");
    for (char *c = ret; *c != 0; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
}

static void note_holder(struct sp_look_search *s, pid_t pid)
{
    struct sp_look *ret = SP_CONTAINER(s, struct holders, search)->look;

    if (ret->holder_count++ >= SP_LOOK_HOLDERS)
        return;
    struct sp_look_holder *h = &ret->holders[ret->holder_count - 1];
    h->pid = s->at->cell > 0 ? (int)sp_look_number(pid, s->at->cell) : (int)pid;
    read_name(pid, h->name, sizeof h->name);
}

void sp_look_holders(const struct sp_look_at *at, struct sp_look *ret)
{
    struct holders h = {.search = {.at = at, .is_it = is_output, .found = note_holder},
                        .look = ret};

    ret->holder_count = 0;
    sp_look_search(&h.search);
}
