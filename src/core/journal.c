/* SPDX-License-Identifier: Apache-2.0 */
#include "core/journal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/buf.h"
#include "base/log.h"
#include "core/placeholder.h"
#include "os/cgroup.h"

#define PREFIX       "placeholders." /* kept from versions that noted placeholders only */
#define MAX_LEFTOVER 65536           /* files of dead servers to clean up */
#define NAME_TRIES   8
#define KEY          SP_HOLD_KEY(SP_HOLD_JOURNAL, 0)

struct entry {
    struct entry *next;
    char text[];
};

struct sp_journal {
    struct entry *first;
    off_t written;
    struct sp_hold *hold; /* NULL: no keeper */
    int dir;              /* -1: nothing is noted */
    int fd;               /* locked until we end */
    char name[64];
};

/* ---- reading ---- */

/* Removes what an entry names. false: it is still there. */
static bool clean_up(const char *entry)
{
    const size_t cgroup = sizeof SP_JOURNAL_CGROUP - 1;
    const bool is_cgroup = strncmp(entry, SP_JOURNAL_CGROUP, cgroup) == 0;
    const char *path = is_cgroup ? entry + cgroup : entry;

    if (is_cgroup)
        sp_cgroup_remove(path);
    else if (path[0] == '/')
        (void)sp_placeholder_remove(path);
    return access(path, F_OK) < 0;
}

/* All of it, each entry with its NUL, and a further NUL behind them. false: empty, or unreadable.
 */
static bool read_entries(int journal, struct sp_buf *ret)
{
    struct stat st;

    if (fstat(journal, &st) < 0 || st.st_size <= 0 || st.st_size > (off_t)SP_JOURNAL_MAX)
        return false;
    char *room = sp_buf_room(ret, (size_t)st.st_size + 1);
    const ssize_t n = room == NULL ? -1 : pread(journal, room, (size_t)st.st_size, 0);
    if (n <= 0)
        return false;
    room[n] = 0;
    ret->len = (size_t)n;
    return true;
}

/* Removes what the entries of a journal name, each with its NUL. */
static void clean_up_after(int journal)
{
    auto_buf struct sp_buf text = {0};

    if (!read_entries(journal, &text))
        return;
    for (const char *at = text.data; at <= text.data + text.len; at += strlen(at) + 1)
        (void)clean_up(at);
}

/* The holder of a journal's lock is its server, or cleans up after it. */
static void clean_up_after_dead_servers(const struct sp_journal *j)
{
    const int copy = openat(j->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    int seen = 0;

    if (d == NULL && copy >= 0)
        (void)close(copy);
    for (const struct dirent *i; d != NULL && seen < MAX_LEFTOVER && (i = readdir(d)) != NULL;) {
        if (strncmp(i->d_name, PREFIX, sizeof PREFIX - 1) != 0)
            continue;
        auto_close int fd = openat(j->dir, i->d_name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        struct stat st;

        seen++;
        if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_nlink == 0 ||
            flock(fd, LOCK_EX | LOCK_NB) < 0)
            continue;
        clean_up_after(fd);
        (void)unlinkat(j->dir, i->d_name, 0);
    }
    if (d != NULL)
        (void)closedir(d);
}

/* ---- beginning and end ---- */

static void warn_of_write(void)
{
    sp_log(SP_LOG_WARN, "cannot write the journal: if this server is killed, placeholders and "
                        "cgroups of its commands are left behind");
}

/* NULL, or why nothing can be noted. */
static const char *open_dir(struct sp_journal *j, const char *dir)
{
    struct stat st;

    if (mkdir(dir, 0700) < 0 && errno != EEXIST)
        return strerror(errno);
    /* By name first: a directory of another user cannot be opened. */
    if (lstat(dir, &st) == 0 && st.st_uid != geteuid())
        return "it belongs to another user";
    j->dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (j->dir < 0 || fstat(j->dir, &st) < 0)
        return strerror(errno);
    if (st.st_uid != geteuid())
        return "it belongs to another user";
    if ((st.st_mode & 022) != 0)
        return "others may write to it";
    clean_up_after_dead_servers(j);
    /* Another server may remove the new file before it is locked (st_nlink 0): try another name. */
    for (int i = 0; i < NAME_TRIES; i++) {
        unsigned random = 0;

        if (getrandom(&random, sizeof random, 0) < 0)
            return strerror(errno);
        (void)snprintf(j->name, sizeof j->name, PREFIX "%d.%08x", (int)getpid(), random);
        j->fd = openat(j->dir, j->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (j->fd < 0 && errno != EEXIST)
            return strerror(errno);
        if (j->fd >= 0 && flock(j->fd, LOCK_EX | LOCK_NB) == 0 && fstat(j->fd, &st) == 0 &&
            st.st_nlink > 0)
            return NULL;
        if (j->fd >= 0)
            (void)close(j->fd);
        j->fd = -1;
    }
    return strerror(EAGAIN);
}

static void close_dir(struct sp_journal *j)
{
    if (j->fd >= 0)
        (void)close(j->fd);
    if (j->dir >= 0)
        (void)close(j->dir);
    j->fd = j->dir = -1;
}

static bool add_entry(struct sp_journal *j, const char *kind, const char *path)
{
    const size_t n = strlen(kind) + strlen(path) + 1;
    struct entry *i = malloc(sizeof *i + n);

    if (i == NULL)
        return false;
    (void)snprintf(i->text, n, "%s%s", kind, path);
    i->next = j->first;
    j->first = i;
    return true;
}

/* The journal of an earlier front. */
static bool take_over(struct sp_journal *j)
{
    auto_buf struct sp_buf text = {0};
    int fds[SP_HOLD_FDS];
    unsigned count = 0;

    _Static_assert(SP_HOLD_TEXT < sizeof j->name, "the name fits");
    if (!sp_hold_take(j->hold, KEY, fds, &count, j->name))
        return false;
    for (unsigned i = 2; i < count; i++)
        (void)close(fds[i]);
    j->fd = fds[0];
    j->dir = count > 1 ? fds[1] : -1;
    if (!read_entries(j->fd, &text))
        return true;
    j->written = (off_t)text.len;
    for (const char *at = text.data; at < text.data + text.len; at += strlen(at) + 1)
        if (!add_entry(j, "", at))
            warn_of_write();
    return true;
}

int sp_journal_new(const char *dir, struct sp_hold *hold, struct sp_journal **ret, struct sp_err *e)
{
    struct sp_journal *j = calloc(1, sizeof *j);

    if (j == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a journal");
    j->dir = j->fd = -1;
    j->hold = hold;
    *ret = j;
    if (take_over(j))
        return 0;
    const char *why = dir == NULL ? NULL : open_dir(j, dir);
    if (why != NULL) {
        sp_log(SP_LOG_WARN,
               "cannot use %s: %s; if this server is killed, placeholders and cgroups of its "
               "commands are left behind; set XDG_RUNTIME_DIR to a directory of your own",
               dir, why);
        close_dir(j);
    }
    const int r =
        j->fd < 0 ? 0 : sp_hold_keep(hold, KEY, (const int[]){j->fd, j->dir}, 2, j->name, e);
    if (r < 0)
        sp_journal_free(j);
    return r;
}

void sp_journal_free(struct sp_journal *j)
{
    if (j == NULL)
        return;
    bool is_clean = j->first == NULL || j->hold != NULL;
    for (const struct entry *i = j->hold == NULL ? NULL : j->first; i != NULL; i = i->next)
        is_clean = clean_up(i->text) && is_clean;
    if (j->fd >= 0 && is_clean)
        (void)unlinkat(j->dir, j->name, 0);
    while (j->first != NULL) {
        struct entry *i = j->first;

        j->first = i->next;
        free(i);
    }
    close_dir(j);
    free(j);
}

int sp_journal_fd(const struct sp_journal *j)
{
    return j == NULL ? -1 : j->fd;
}

/* ---- entries ---- */

void sp_journal_add(struct sp_journal *j, const char *kind, const char *path)
{
    const size_t n = strlen(kind) + strlen(path) + 1;

    if (j == NULL || j->fd < 0)
        return;
    for (const struct entry *i = j->first; i != NULL; i = i->next)
        if (strncmp(i->text, kind, strlen(kind)) == 0 && strcmp(i->text + strlen(kind), path) == 0)
            return; /* an earlier front has noted it */
    if (!add_entry(j, kind, path)) {
        warn_of_write();
        return;
    }
    /* Removed entries stay in the file until the file is rewritten. */
    if (j->written + (off_t)n > (off_t)SP_JOURNAL_MAX ||
        pwrite(j->fd, j->first->text, n, j->written) != (ssize_t)n)
        warn_of_write();
    else
        j->written += (off_t)n;
}

void sp_journal_remove(struct sp_journal *j, const char *kind, const char *path)
{
    auto_buf struct sp_buf text = {.max = SP_JOURNAL_MAX};
    const size_t n = strlen(kind);
    struct entry **at = j == NULL ? NULL : &j->first;
    bool ok = true;

    while (at != NULL && *at != NULL &&
           (strncmp((*at)->text, kind, n) != 0 || strcmp((*at)->text + n, path) != 0))
        at = &(*at)->next;
    if (at == NULL || *at == NULL)
        return;
    struct entry *gone = *at;
    *at = gone->next;
    free(gone);
    for (const struct entry *i = j->first; i != NULL; i = i->next)
        ok = ok && sp_buf_add(&text, i->text, strlen(i->text) + 1);
    if (!ok || (text.len > 0 && pwrite(j->fd, text.data, text.len, 0) != (ssize_t)text.len) ||
        ftruncate(j->fd, (off_t)text.len) < 0)
        warn_of_write();
    else
        j->written = (off_t)text.len;
}

void sp_journal_clean_up(struct sp_journal *j,
                         bool (*is_used)(void *user, const char *kind, const char *path),
                         void *user)
{
    const size_t cgroup = sizeof SP_JOURNAL_CGROUP - 1;
    struct entry *next;

    for (struct entry *i = j == NULL ? NULL : j->first; i != NULL; i = next) {
        const bool is_cgroup = strncmp(i->text, SP_JOURNAL_CGROUP, cgroup) == 0;
        const char *kind = is_cgroup ? SP_JOURNAL_CGROUP : SP_JOURNAL_PLACEHOLDER;
        const char *path = i->text + (is_cgroup ? cgroup : 0);

        next = i->next;
        if (!is_used(user, kind, path) && clean_up(i->text))
            sp_journal_remove(j, kind, path); /* frees *i */
    }
}
