/* SPDX-License-Identifier: Apache-2.0 */
#include "core/placeholder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/buf.h"
#include "base/log.h"
#include "sandbox/canonical.h"

#define MODE         0555
#define JOURNAL      "placeholders."
#define JOURNAL_MAX  (1U << 20)
#define LOCK_TRIES   5000 /* LOCK_REST_NS apart: often, for it is free for moments only */
#define LOCK_REST_NS 200000
#define MAX_LEFTOVER 65536 /* files of dead servers that are looked at */

/* The directory of some placeholders: they are removed from it, wherever it has been moved. */
struct parent {
    int fd;
    unsigned users;
};

struct placeholder {
    struct placeholder *next;
    struct parent *parent; /* NULL: not made yet */
    unsigned users;
    struct sp_identity who; /* of the one that was taken */
    char path[];
};

struct sp_placeholders {
    struct placeholder *first;
    unsigned count;
    off_t written; /* of the journal */
    int dir;       /* -1: nothing is written down */
    int lock;      /* held while placeholders of several servers come and go */
    int journal;   /* ours, locked for as long as we live */
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

/* 1: yes; 0: no; -1: it cannot be looked at, errno. */
static int is_empty_and_ours(int fd)
{
    struct stat st;
    int entries = 0;

    if (fstat(fd, &st) < 0)
        return -1;
    if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid())
        return 0;
    const int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    if (d == NULL) {
        if (copy >= 0)
            (void)close(copy);
        return -1;
    }
    while (entries < 3 && readdir(d) != NULL)
        entries++;
    (void)closedir(d);
    return entries == 2;
}

/* The same, of one as we make them. */
static int is_placeholder(int fd)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return -1;
    if (!S_ISDIR(st.st_mode) || (st.st_mode & 05777) != MODE)
        return 0;
    return is_empty_and_ours(fd);
}

/* Where it is: the directory, without any symlink on the way (commands that can write there may put
 * one anywhere), and the name in it. */
struct where {
    int parent; /* -1: not to be reached; errno */
    const char *name;
};

static void close_where(const struct where *w)
{
    if (w->parent >= 0)
        (void)close(w->parent);
}

#define auto_where __attribute__((cleanup(close_where)))

static struct where find_where(const char *path)
{
    const char *slash = strrchr(path, '/');
    char dir[4096];
    const size_t n = slash == NULL || slash == path ? 1 : (size_t)(slash - path);

    if (slash == NULL || slash[1] == 0 || n >= sizeof dir) {
        errno = EINVAL;
        return (struct where){.parent = -1, .name = ""};
    }
    memcpy(dir, path, n);
    dir[n] = 0;
    return (struct where){.parent = sp_open_strictly(AT_FDCWD, dir, O_PATH | O_DIRECTORY),
                          .name = slash + 1};
}

static int open_placeholder(const struct where *w)
{
    return w->parent < 0 ? -1
                         : openat(w->parent, w->name,
                                  O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
}

/* Whether the name still means the descriptor. */
static bool is_still(const struct where *w, int fd, struct stat *ret)
{
    struct stat now;

    return fstat(fd, ret) == 0 && fstatat(w->parent, w->name, &now, AT_SYMLINK_NOFOLLOW) == 0 &&
           now.st_dev == ret->st_dev && now.st_ino == ret->st_ino;
}

/* false: it may still be there, and could not be looked at. */
static bool remove_from(const struct where *w)
{
    auto_close int fd = open_placeholder(w);
    struct stat st;

    if (fd < 0)
        return errno == ENOENT || errno == ENOTDIR || errno == ELOOP;
    const int is_one = is_placeholder(fd);
    if (is_one > 0 && is_still(w, fd, &st))
        (void)unlinkat(w->parent, w->name, AT_REMOVEDIR); /* not empty: it is not ours any more */
    return is_one >= 0;
}

static bool remove_placeholder(const char *path)
{
    auto_where struct where w = find_where(path);

    return remove_from(&w);
}

/* The paths of a journal, each with its NUL; false: none to be had. */
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

/* Opens the next journal of another server; -1: there is none. */
static int next_journal(const struct sp_placeholders *t, DIR *d, char name[NAME_MAX + 1])
{
    for (const struct dirent *i; (i = readdir(d)) != NULL;) {
        if (strncmp(i->d_name, JOURNAL, sizeof JOURNAL - 1) != 0 || strcmp(i->d_name, t->name) == 0)
            continue;
        const int fd = openat(t->dir, i->d_name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd < 0)
            continue;
        (void)snprintf(name, NAME_MAX + 1, "%s", i->d_name);
        return fd;
    }
    return -1;
}

static DIR *list_journals(const struct sp_placeholders *t)
{
    const int copy = t->dir < 0 ? -1 : openat(t->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = copy < 0 ? NULL : fdopendir(copy);

    if (d == NULL && copy >= 0)
        (void)close(copy);
    return d;
}

/* A journal that nobody has locked is a dead server's. */
static bool is_dead(int journal)
{
    return flock(journal, LOCK_EX | LOCK_NB) == 0;
}

/* `dead` (NULL: none) is locked, but by us: we clean up after it. */
static bool is_used_by_another(const struct sp_placeholders *t, const char *path, const char *dead)
{
    char name[NAME_MAX + 1];
    DIR *d = list_journals(t);
    bool is_used = false;

    for (int fd; d != NULL && !is_used && (fd = next_journal(t, d, name)) >= 0;) {
        is_used = (dead == NULL || strcmp(name, dead) != 0) && !is_dead(fd) && lists(fd, path);
        (void)close(fd);
    }
    if (d != NULL)
        (void)closedir(d);
    return is_used;
}

static struct placeholder *find(const struct sp_placeholders *t, const char *path);

static void clean_up_after(const struct sp_placeholders *t, int journal, const char *name)
{
    auto_buf struct sp_buf text = {0};

    if (!read_journal(journal, &text))
        return;
    for (const char *at = text.data; at < text.data + text.len; at += strlen(at) + 1)
        if (at[0] == '/' && find(t, at) == NULL && !is_used_by_another(t, at, name))
            (void)remove_placeholder(at);
}

static void clean_up_after_the_dead(const struct sp_placeholders *t)
{
    char name[NAME_MAX + 1];
    DIR *d = list_journals(t);

    for (int fd, seen = 0; d != NULL && seen < MAX_LEFTOVER && (fd = next_journal(t, d, name)) >= 0;
         seen++) {
        if (is_dead(fd)) {
            clean_up_after(t, fd, name);
            (void)unlinkat(t->dir, name, 0);
        }
        (void)close(fd);
    }
    if (d != NULL)
        (void)closedir(d);
}

/* Not for long, and not twice: whoever has it may have been stopped, and others wait for us. */
static void take_lock(struct sp_placeholders *t)
{
    const struct timespec wait = {.tv_nsec = LOCK_REST_NS};

    for (int i = 0; t->lock >= 0 && flock(t->lock, LOCK_EX | LOCK_NB) < 0; i++) {
        if (i < LOCK_TRIES) {
            (void)nanosleep(&wait, NULL);
            continue;
        }
        sp_log(SP_LOG_WARN, "another process keeps the lock on this user's placeholders: we go on "
                            "without it");
        (void)close(t->lock);
        t->lock = -1;
    }
}

static void leave_lock(const struct sp_placeholders *t)
{
    if (t->lock >= 0)
        (void)flock(t->lock, LOCK_UN);
}

static void warn_of_journal(void)
{
    sp_log(SP_LOG_WARN, "cannot write down placeholders: a crash would leave them behind");
}

/* A line more; those that are gone stay until it is written anew. */
static void append_journal(struct sp_placeholders *t, const char *path)
{
    const size_t n = strlen(path) + 1;

    if (t->journal < 0)
        return;
    if (t->written + (off_t)n > (off_t)JOURNAL_MAX ||
        pwrite(t->journal, path, n, t->written) != (ssize_t)n)
        warn_of_journal();
    else
        t->written += (off_t)n;
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
        warn_of_journal();
    else
        t->written = (off_t)text.len;
}

static void let_go(struct placeholder *p);

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
    take_lock(t);
    clean_up_after_the_dead(t);
    (void)snprintf(t->name, sizeof t->name, JOURNAL "%d.%08x", (int)getpid(), random);
    t->journal = openat(t->dir, t->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    const bool ok = t->journal >= 0 && flock(t->journal, LOCK_EX | LOCK_NB) == 0;
    leave_lock(t);
    return ok;
}

/* What is not ours alone is not used at all. */
static void close_dir(struct sp_placeholders *t)
{
    int *const fds[] = {&t->journal, &t->lock, &t->dir};

    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        if (*fds[i] >= 0)
            (void)close(*fds[i]);
        *fds[i] = -1;
    }
}

int sp_placeholders_new(const char *dir, struct sp_placeholders **ret, struct sp_error *e)
{
    struct sp_placeholders *t = calloc(1, sizeof *t);

    if (t == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make the table of placeholders");
    t->dir = t->lock = t->journal = -1;
    if (dir != NULL && !open_dir(t, dir)) {
        close_dir(t);
        sp_log(SP_LOG_WARN, "cannot use %s: a crash would leave placeholders behind", dir);
    }
    *ret = t;
    return 0;
}

void sp_placeholders_free(struct sp_placeholders *t)
{
    bool has_left = false;

    if (t == NULL)
        return;
    while (t->first != NULL) {
        struct placeholder *p = t->first;

        p->users = 1;
        sp_placeholder_drop(t, p->path);
        if (t->first == p) { /* for the next server */
            t->first = p->next;
            has_left = true;
            let_go(p);
            free(p);
        }
    }
    if (t->journal >= 0 && !has_left)
        (void)unlinkat(t->dir, t->name, 0);
    close_dir(t);
    free(t);
}

/* ---- one placeholder ---- */

bool sp_placeholder_is_at(const char *path)
{
    auto_where struct where w = find_where(path);
    auto_close int fd = open_placeholder(&w);

    return fd >= 0 && is_placeholder(fd) > 0;
}

/* The umask may take bits from its mode; it is the whole program's, so it stays as it is. */
static int make(const struct where *w, bool *ret_is_new)
{
    const int r = mkdirat(w->parent, w->name, MODE);

    *ret_is_new = r == 0;
    return r < 0 && errno != EEXIST ? -1 : 0;
}

/* Makes or finds it: 0, or errno. EEXIST: something else is there. */
static int make_or_find(const struct where *w, struct sp_identity *ret)
{
    bool is_new = false;
    struct stat st;

    if (w->parent < 0 || make(w, &is_new) < 0)
        return errno;
    auto_close int fd = open_placeholder(w);
    if (fd < 0)
        return errno == ENOTDIR || errno == ELOOP || errno == ENOENT ? EEXIST : errno;
    /* The umask or an access list may have taken bits from it. It is what we made, or at worst
     * an empty directory of ours. */
    if (is_new && is_empty_and_ours(fd) > 0)
        (void)fchmod(fd, MODE);
    const int is_one = is_placeholder(fd);
    if (is_one < 0)
        return errno;
    if (is_one == 0 || !is_still(w, fd, &st))
        return EEXIST;
    return sp_identity_get(fd, "", false, ret);
}

static void let_go(struct placeholder *p)
{
    struct parent *d = p->parent;

    p->parent = NULL;
    if (d == NULL || --d->users > 0)
        return;
    (void)close(d->fd);
    free(d);
}

static bool is_same_dir(int a, int b)
{
    struct stat x;
    struct stat y;

    return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* One descriptor for all names of a directory. */
static bool hold_parent(const struct sp_placeholders *t, struct placeholder *p, struct where *w)
{
    struct parent *d = NULL;

    if (p->parent != NULL && is_same_dir(p->parent->fd, w->parent))
        return true;
    let_go(p); /* another directory is there by now: the old one has lost its place */
    for (const struct placeholder *i = t->first; d == NULL && i != NULL; i = i->next)
        if (i->parent != NULL && is_same_dir(i->parent->fd, w->parent))
            d = i->parent;
    if (d == NULL) {
        d = calloc(1, sizeof *d);
        if (d == NULL)
            return false;
        d->fd = TAKE_FD(w->parent);
        w->parent = d->fd;
    }
    d->users++;
    p->parent = d;
    return true;
}

/* We may not make it, and cannot give ourselves the right. */
static bool is_out_of_reach(const char *path, int err)
{
    auto_where struct where w = find_where(path);
    struct stat st;

    if (err == EROFS)
        return true;
    return (err == EACCES || err == EPERM) && w.parent >= 0 && fstat(w.parent, &st) == 0 &&
           st.st_uid != geteuid();
}

static struct placeholder *find(const struct sp_placeholders *t, const char *path)
{
    struct placeholder *p = t->first;

    while (p != NULL && strcmp(p->path, path) != 0)
        p = p->next;
    return p;
}

bool sp_placeholder_stands(const struct sp_placeholders *t, const char *path)
{
    const struct placeholder *p = find(t, path);
    auto_where struct where w = find_where(path);
    struct sp_identity now;

    return p != NULL && w.parent >= 0 && sp_identity_get(w.parent, w.name, false, &now) == 0 &&
           sp_identity_equal(&now, &p->who);
}

bool sp_placeholder_is_ours(const struct sp_placeholders *t, const char *path)
{
    return find(t, path) != NULL;
}

static struct placeholder *add(struct sp_placeholders *t, const char *path)
{
    struct placeholder *p = calloc(1, sizeof *p + strlen(path) + 1);

    if (p == NULL)
        return NULL;
    memcpy(p->path, path, strlen(path) + 1);
    p->next = t->first;
    t->first = p;
    t->count++;
    append_journal(t, path); /* before it exists */
    return p;
}

static int refuse(const char *path, int err, struct sp_error *e)
{
    if (err == EEXIST || err == ELOOP || err == ENOTDIR)
        return sp_fail(e, SP_E_STATE, 0, "%s has appeared while the sandbox was made", path);
    if (err == EMFILE || err == ENFILE || err == ENOMEM)
        return sp_fail(e, SP_E_SYSTEM, err, "make a placeholder at %s", path);
    return sp_fail(e, SP_E_INVALID, 0, "failed to prepare process sandbox: placeholder:%s: %s",
                   path, strerror(err));
}

int sp_placeholder_take(struct sp_placeholders *t, const char *path, uint64_t *ret_dev,
                        uint64_t *ret_ino, struct sp_error *e)
{
    struct placeholder *p = find(t, path);

    if (p == NULL && t->count >= SP_MAX_PLACEHOLDERS)
        return sp_fail(e, SP_E_LIMIT, 0, "sandboxes need more than %d placeholders at once",
                       SP_MAX_PLACEHOLDERS);
    take_lock(t);
    if (p == NULL)
        p = add(t, path);
    auto_where struct where w = find_where(path);
    int err = p == NULL ? ENOMEM : make_or_find(&w, &p->who);
    if (err == 0 && !hold_parent(t, p, &w))
        err = ENOMEM;
    if (err == 0 && p->parent->fd == w.parent)
        w.parent = -1; /* the placeholder's now */
    leave_lock(t);
    if (p != NULL)
        p->users++;
    if (err == 0) {
        *ret_dev = p->who.dev;
        *ret_ino = p->who.ino;
        return 0;
    }
    const bool is_needed = !is_out_of_reach(path, err);
    if (p != NULL)
        sp_placeholder_drop(t, path);
    return is_needed ? refuse(path, err, e) : 1;
}

void sp_placeholder_drop(struct sp_placeholders *t, const char *path)
{
    struct placeholder **at = &t->first;

    while (*at != NULL && strcmp((*at)->path, path) != 0)
        at = &(*at)->next;
    struct placeholder *p = *at;
    if (p == NULL || p->users == 0 || --p->users > 0)
        return;
    take_lock(t);
    /* One that cannot be looked at now stays in the list: it is removed with another, or by the
     * next server. */
    const struct where w = {.parent = p->parent == NULL ? -1 : p->parent->fd,
                            .name = strrchr(p->path, '/') + 1};
    if (is_used_by_another(t, p->path, NULL) ||
        (w.parent >= 0 ? remove_from(&w) : remove_placeholder(p->path))) {
        *at = p->next;
        t->count--;
        let_go(p);
        write_journal(t);
        free(p);
    }
    leave_lock(t);
}
