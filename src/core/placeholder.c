/* SPDX-License-Identifier: Apache-2.0 */
#include "core/placeholder.h"

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

#define MODE         0555
#define JOURNAL      "placeholders."
#define JOURNAL_MAX  (1U << 20)
#define MAX_LEFTOVER 65536 /* files of dead servers that are looked at */

struct placeholder {
    struct placeholder *next;
    unsigned users;
    uint64_t dev, ino;
    char path[];
};

struct sp_placeholders {
    struct placeholder *first;
    int dir;     /* -1: nothing is written down */
    int lock;    /* held while files of several servers are looked at */
    int journal; /* ours, locked for as long as we live */
    char name[64];
};

void sp_runtime_dir(char *ret, unsigned long size)
{
    const char *xdg = getenv("XDG_RUNTIME_DIR");

    if (geteuid() == 0)
        (void)snprintf(ret, size, "/run/sallyport");
    else if (xdg != NULL && xdg[0] == '/')
        (void)snprintf(ret, size, "%s/sallyport", xdg);
    else
        (void)snprintf(ret, size, "/tmp/sallyport-%u", (unsigned)geteuid());
}

/* ---- what is written down ---- */

static bool is_ours_alone(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && st.st_uid == geteuid() && (st.st_mode & 022) == 0;
}

/* An empty directory as we make them. */
static bool is_placeholder(const struct stat *st)
{
    return S_ISDIR(st->st_mode) && (st->st_mode & 07777) == MODE && st->st_uid == geteuid();
}

static void remove_placeholder(const char *path)
{
    struct stat st;

    if (lstat(path, &st) == 0 && is_placeholder(&st))
        (void)rmdir(path); /* not empty: it is not ours any more */
}

/* The paths in a journal, each with its NUL; false: none to be had. */
static bool read_journal(int fd, struct sp_buf *ret)
{
    struct stat st;

    if (fstat(fd, &st) < 0 || st.st_size <= 0 || st.st_size > (off_t)JOURNAL_MAX)
        return false;
    char *room = sp_buf_room(ret, (size_t)st.st_size + 1);
    const ssize_t n = room == NULL ? -1 : pread(fd, room, (size_t)st.st_size, 0);
    if (n <= 0)
        return false;
    room[n] = 0;
    ret->len = (size_t)n + 1;
    return true;
}

static bool lists(int fd, const char *path)
{
    auto_buf struct sp_buf text = {0};

    if (!read_journal(fd, &text))
        return false;
    for (const char *at = text.data; at < text.data + text.len; at += strlen(at) + 1)
        if (strcmp(at, path) == 0)
            return true;
    return false;
}

static void clean_up_after(int fd)
{
    auto_buf struct sp_buf text = {0};

    if (!read_journal(fd, &text))
        return;
    for (const char *at = text.data; at < text.data + text.len; at += strlen(at) + 1)
        if (at[0] == '/')
            remove_placeholder(at);
}

/* Calls fn for each other server's file; fn true: stop. Files of the dead are dealt with. */
static bool for_each_other(struct sp_placeholders *t, bool (*fn)(int fd, const char *path),
                           const char *path)
{
    auto_close int copy = openat(t->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    bool has_found = false;
    int seen = 0;

    if (d == NULL)
        return false;
    copy = -1; /* the stream's now */
    for (const struct dirent *i; !has_found && seen < MAX_LEFTOVER && (i = readdir(d)) != NULL;) {
        if (strncmp(i->d_name, JOURNAL, sizeof JOURNAL - 1) != 0 || strcmp(i->d_name, t->name) == 0)
            continue;
        seen++;
        auto_close int fd = openat(t->dir, i->d_name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd < 0)
            continue;
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
            clean_up_after(fd);
            (void)unlinkat(t->dir, i->d_name, 0);
        } else if (fn != NULL) {
            has_found = fn(fd, path);
        }
    }
    (void)closedir(d);
    return has_found;
}

static void write_journal(struct sp_placeholders *t)
{
    auto_buf struct sp_buf text = {.max = JOURNAL_MAX};
    bool ok = true;

    if (t->journal < 0)
        return;
    for (const struct placeholder *p = t->first; p != NULL; p = p->next)
        ok = ok && sp_buf_add(&text, p->path, strlen(p->path) + 1);
    if (!ok || (text.len > 0 && pwrite(t->journal, text.data, text.len, 0) != (ssize_t)text.len) ||
        ftruncate(t->journal, (off_t)text.len) < 0)
        sp_log(SP_LOG_WARN, "cannot write down placeholders: a crash would leave them behind");
}

/* ---- beginning and end ---- */

static bool open_dir(struct sp_placeholders *t, const char *dir)
{
    unsigned random = 0;

    if (mkdir(dir, 0700) < 0 && errno != EEXIST)
        return false;
    t->dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (t->dir < 0 || !is_ours_alone(t->dir))
        return false;
    t->lock = openat(t->dir, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (t->lock < 0 || getrandom(&random, sizeof random, 0) < 0)
        return false;
    (void)flock(t->lock, LOCK_EX);
    (void)for_each_other(t, NULL, NULL);
    (void)snprintf(t->name, sizeof t->name, JOURNAL "%d.%08x", (int)getpid(), random);
    t->journal = openat(t->dir, t->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    const bool ok = t->journal >= 0 && flock(t->journal, LOCK_EX | LOCK_NB) == 0;
    (void)flock(t->lock, LOCK_UN);
    return ok;
}

int sp_placeholders_new(const char *dir, struct sp_placeholders **ret, struct sp_error *e)
{
    struct sp_placeholders *t = calloc(1, sizeof *t);

    if (t == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make the table of placeholders");
    t->dir = t->lock = t->journal = -1;
    if (dir != NULL && !open_dir(t, dir))
        sp_log(SP_LOG_WARN, "cannot use %s: a crash would leave placeholders behind", dir);
    *ret = t;
    return 0;
}

void sp_placeholders_free(struct sp_placeholders *t)
{
    if (t == NULL)
        return;
    while (t->first != NULL) {
        t->first->users = 1;
        sp_placeholder_drop(t, t->first->path);
    }
    if (t->journal >= 0)
        (void)unlinkat(t->dir, t->name, 0);
    if (t->journal >= 0)
        (void)close(t->journal);
    if (t->lock >= 0)
        (void)close(t->lock);
    if (t->dir >= 0)
        (void)close(t->dir);
    free(t);
}

/* ---- one placeholder ---- */

bool sp_placeholder_is_at(const char *path)
{
    struct stat st;

    if (lstat(path, &st) < 0 || !is_placeholder(&st))
        return false;
    DIR *d = opendir(path);
    int entries = 0;
    while (d != NULL && entries < 3 && readdir(d) != NULL)
        entries++;
    if (d != NULL)
        (void)closedir(d);
    return entries == 2;
}

static int make(const char *path, struct stat *st, struct sp_error *e)
{
    if (mkdir(path, MODE) == 0)
        (void)chmod(path, MODE); /* whatever the umask says */
    else if (errno != EEXIST)
        return sp_fail(e, SP_E_INVALID, 0, "failed to prepare process sandbox: placeholder:%s: %s",
                       path, strerror(errno));
    if (lstat(path, st) < 0 || !is_placeholder(st))
        return sp_fail(e, SP_E_STATE, 0, "%s has appeared while the sandbox was made", path);
    return 0;
}

int sp_placeholder_take(struct sp_placeholders *t, const char *path, uint64_t *ret_dev,
                        uint64_t *ret_ino, struct sp_error *e)
{
    struct placeholder *p = t->first;
    struct stat st;

    while (p != NULL && strcmp(p->path, path) != 0)
        p = p->next;
    if (p == NULL) {
        p = calloc(1, sizeof *p + strlen(path) + 1);
        if (p == NULL)
            return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a placeholder");
        memcpy(p->path, path, strlen(path) + 1);
        p->next = t->first;
        t->first = p;
    }
    if (t->lock >= 0)
        (void)flock(t->lock, LOCK_EX);
    if (p->users == 0)
        write_journal(t); /* before it exists */
    p->users++;
    const int r = make(path, &st, e);
    if (t->lock >= 0)
        (void)flock(t->lock, LOCK_UN);
    if (r < 0) {
        sp_placeholder_drop(t, path);
        return r;
    }
    *ret_dev = p->dev = st.st_dev;
    *ret_ino = p->ino = st.st_ino;
    return 0;
}

void sp_placeholder_drop(struct sp_placeholders *t, const char *path)
{
    struct placeholder **at = &t->first;

    while (*at != NULL && strcmp((*at)->path, path) != 0)
        at = &(*at)->next;
    struct placeholder *p = *at;
    if (p == NULL || --p->users > 0)
        return;
    if (t->lock >= 0)
        (void)flock(t->lock, LOCK_EX);
    /* Another server may stand on it as well: the last one removes it. */
    if (t->dir < 0 || !for_each_other(t, lists, p->path))
        remove_placeholder(p->path);
    *at = p->next;
    write_journal(t);
    if (t->lock >= 0)
        (void)flock(t->lock, LOCK_UN);
    free(p);
}
