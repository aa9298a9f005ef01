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
#define TRIES        5

struct placeholder {
    struct placeholder *next;
    unsigned users;
    int fd; /* with a shared lock; -1: not there yet */
    char path[];
};

struct sp_placeholders {
    struct placeholder *first;
    int dir;     /* -1: nothing is written down */
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

/* An empty directory as we make them, whoever made it. */
static bool is_placeholder(int fd)
{
    struct stat st;
    int entries = 0;

    if (fstat(fd, &st) < 0 || !S_ISDIR(st.st_mode) || (st.st_mode & 07777) != MODE)
        return false;
    const int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    if (d == NULL) {
        if (copy >= 0)
            (void)close(copy);
        return false;
    }
    while (entries < 3 && readdir(d) != NULL)
        entries++;
    (void)closedir(d);
    return entries == 2;
}

static int open_placeholder(const char *path)
{
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
}

/* Every user of a placeholder, of whatever server, holds a shared lock on it: who gets the whole
 * lock is the last. */
static void remove_if_unused(const char *path)
{
    auto_close int fd = open_placeholder(path);

    if (fd >= 0 && is_placeholder(fd) && flock(fd, LOCK_EX | LOCK_NB) == 0)
        (void)rmdir(path); /* not empty: it is not ours any more */
}

/* Each path in a journal, with its NUL. */
static void clean_up_after(int fd)
{
    auto_buf struct sp_buf text = {0};
    struct stat st;

    if (fstat(fd, &st) < 0 || st.st_size <= 0 || st.st_size > (off_t)JOURNAL_MAX)
        return;
    char *room = sp_buf_room(&text, (size_t)st.st_size + 1);
    const ssize_t n = room == NULL ? -1 : pread(fd, room, (size_t)st.st_size, 0);
    if (n <= 0)
        return;
    room[n] = 0;
    for (const char *at = room; at < room + n; at += strlen(at) + 1)
        if (at[0] == '/')
            remove_if_unused(at);
}

/* A journal that nobody has locked is a dead server's. */
static void clean_up_after_the_dead(const struct sp_placeholders *t)
{
    const int copy = openat(t->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    int seen = 0;

    if (d == NULL) {
        if (copy >= 0)
            (void)close(copy);
        return;
    }
    for (const struct dirent *i; seen < MAX_LEFTOVER && (i = readdir(d)) != NULL;) {
        if (strncmp(i->d_name, JOURNAL, sizeof JOURNAL - 1) != 0)
            continue;
        seen++;
        auto_close int fd = openat(t->dir, i->d_name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
            continue;
        clean_up_after(fd);
        (void)unlinkat(t->dir, i->d_name, 0);
    }
    (void)closedir(d);
}

static void write_journal(const struct sp_placeholders *t)
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
    clean_up_after_the_dead(t);
    if (getrandom(&random, sizeof random, 0) < 0)
        return false;
    (void)snprintf(t->name, sizeof t->name, JOURNAL "%d.%08x", (int)getpid(), random);
    t->journal = openat(t->dir, t->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    return t->journal >= 0 && flock(t->journal, LOCK_EX | LOCK_NB) == 0;
}

int sp_placeholders_new(const char *dir, struct sp_placeholders **ret, struct sp_error *e)
{
    struct sp_placeholders *t = calloc(1, sizeof *t);

    if (t == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make the table of placeholders");
    t->dir = t->journal = -1;
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
    if (t->dir >= 0)
        (void)close(t->dir);
    free(t);
}

/* ---- one placeholder ---- */

bool sp_placeholder_is_at(const char *path)
{
    auto_close int fd = open_placeholder(path);

    return fd >= 0 && is_placeholder(fd);
}

/* Makes or finds it, and holds on to it: the descriptor, or -1 with errno. EAGAIN: it vanished. */
static int hold(const char *path, struct stat *ret)
{
    struct stat now;

    if (mkdir(path, MODE) == 0)
        (void)chmod(path, MODE); /* whatever the umask says */
    else if (errno != EEXIST)
        return -1;
    auto_close int fd = open_placeholder(path);
    if (fd < 0)
        return -1;
    if (!is_placeholder(fd)) {
        errno = EEXIST;
        return -1;
    }
    /* Locked as a whole: its last user is about to remove it. */
    if (flock(fd, LOCK_SH | LOCK_NB) < 0 || fstat(fd, ret) < 0 || lstat(path, &now) < 0 ||
        now.st_dev != ret->st_dev || now.st_ino != ret->st_ino) {
        errno = EAGAIN;
        return -1;
    }
    return TAKE_FD(fd);
}

static int hold_firmly(const char *path, struct stat *ret, struct sp_error *e)
{
    int fd = -1;

    for (int i = 0; fd < 0 && i < TRIES && (i == 0 || errno == EAGAIN || errno == ENOENT); i++)
        fd = hold(path, ret);
    if (fd >= 0)
        return fd;
    if (errno == EEXIST || errno == ENOTDIR || errno == ELOOP || errno == EAGAIN)
        return sp_fail(e, SP_E_STATE, 0, "%s has appeared while the sandbox was made", path);
    return sp_fail(e, SP_E_INVALID, 0, "failed to prepare process sandbox: placeholder:%s: %s",
                   path, strerror(errno));
}

static struct placeholder *find(const struct sp_placeholders *t, const char *path)
{
    struct placeholder *p = t->first;

    while (p != NULL && strcmp(p->path, path) != 0)
        p = p->next;
    return p;
}

static struct placeholder *add(struct sp_placeholders *t, const char *path)
{
    struct placeholder *p = calloc(1, sizeof *p + strlen(path) + 1);

    if (p == NULL)
        return NULL;
    memcpy(p->path, path, strlen(path) + 1);
    p->fd = -1;
    p->next = t->first;
    t->first = p;
    write_journal(t); /* before it exists */
    return p;
}

int sp_placeholder_take(struct sp_placeholders *t, const char *path, uint64_t *ret_dev,
                        uint64_t *ret_ino, struct sp_error *e)
{
    struct placeholder *p = find(t, path);
    struct stat st;

    if (p == NULL)
        p = add(t, path);
    if (p == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a placeholder");
    p->users++;
    const int fd = hold_firmly(path, &st, e);
    if (fd < 0) {
        sp_placeholder_drop(t, path);
        return fd;
    }
    /* Somebody may have removed the one we held: then this is another. */
    if (p->fd >= 0)
        (void)close(p->fd);
    p->fd = fd;
    *ret_dev = st.st_dev;
    *ret_ino = st.st_ino;
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
    if (p->fd >= 0)
        (void)close(p->fd);
    remove_if_unused(p->path);
    *at = p->next;
    write_journal(t);
    free(p);
}
