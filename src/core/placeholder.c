/* SPDX-License-Identifier: Apache-2.0 */
#include "core/placeholder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "cell/file/file.h"
#include "core/journal.h"
#include "sandbox/canonical.h"

/* Only its owner can open it: a process that can open it can lock it. */
#define MODE         SP_PLACEHOLDER_MODE
#define LOCK_TRIES   50 /* LOCK_REST_NS apart: another server may be removing it */
#define LOCK_REST_NS 200000

struct sp_placeholder {
    struct sp_placeholder *next;
    int fd; /* locked (LOCK_SH); -1: not made yet */
    unsigned users;
    struct sp_identity who; /* identifies the directory */
    char path[];
};

/* ---- inspecting ---- */

/* An empty directory of ours, with the mode of a placeholder unless any will do. 1: yes; 0: no;
 * -1: errno. */
static int is_placeholder(int fd, bool any_mode)
{
    struct stat st;
    int entries = 0;

    if (fstat(fd, &st) < 0)
        return -1;
    if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() ||
        (!any_mode && (st.st_mode & SP_PLACEHOLDER_MASK) != MODE))
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

/* The parent directory, opened without following symlinks (commands that can write there may plant
 * one anywhere), and the name in it. */
struct where {
    int parent; /* -1: errno */
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

/* Whether the name still refers to the directory of the descriptor. */
static bool is_still(const struct where *w, int fd, struct stat *ret)
{
    struct stat now;

    return fstat(fd, ret) == 0 && fstatat(w->parent, w->name, &now, AT_SYMLINK_NOFOLLOW) == 0 &&
           now.st_dev == ret->st_dev && now.st_ino == ret->st_ino;
}

/* ---- removing ---- */

/* `fd`: the directory at *w. false: it could not be read, and may still be there. */
static bool remove_from(const struct where *w, int fd)
{
    struct stat st;
    const int is_one = is_placeholder(fd, false);

    /* A directory with files in it is the user's. A file system without flock has no other users.
     */
    if (is_one > 0 && (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) &&
        is_still(w, fd, &st))
        (void)unlinkat(w->parent, w->name, AT_REMOVEDIR);
    return is_one >= 0;
}

bool sp_placeholder_remove(const char *path)
{
    auto_where struct where w = find_where(path);
    auto_close int fd = open_placeholder(&w);

    if (fd < 0)
        return errno == ENOENT || errno == ENOTDIR || errno == ELOOP;
    return remove_from(&w, fd);
}

/* ---- the table ---- */

static void free_placeholder(struct sp_placeholder *p)
{
    if (p->fd >= 0)
        (void)close(p->fd);
    free(p);
}

void sp_placeholders_free(struct sp_placeholders *t)
{
    while (t->first != NULL) {
        struct sp_placeholder *p = t->first;

        p->users = 1;
        sp_placeholder_drop(t, p->path);
        if (t->first == p) { /* stays in the journal, for the next server */
            t->first = p->next;
            free_placeholder(p);
        }
    }
}

/* ---- one placeholder ---- */

bool sp_placeholder_is_at(const char *path)
{
    auto_where struct where w = find_where(path);
    auto_close int fd = open_placeholder(&w);

    return fd >= 0 && is_placeholder(fd, false) > 0;
}

/* Makes or opens it, and locks it: 0, or errno. EEXIST: another file has the name. EAGAIN: another
 * server is removing it. */
static int make_or_find(const struct where *w, struct sp_identity *ret, int *ret_fd)
{
    struct stat st;

    if (w->parent < 0)
        return errno;
    const bool is_new = mkdirat(w->parent, w->name, MODE) == 0;
    if (!is_new && errno != EEXIST)
        return errno;
    auto_close int fd = open_placeholder(w);
    if (fd < 0)
        return errno == ENOENT ? EAGAIN : errno == ENOTDIR || errno == ELOOP ? EEXIST : errno;
    /* The umask or a default ACL may have removed bits. If the name was replaced meanwhile, fd is
     * at worst another empty directory of this user. */
    if (is_new && is_placeholder(fd, true) > 0)
        (void)fchmod(fd, MODE);
    const int is_one = is_placeholder(fd, false);
    if (is_one < 0)
        return errno;
    if (is_one == 0)
        return EEXIST;
    if (flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK)
        return EAGAIN;
    if (!is_still(w, fd, &st))
        return EAGAIN;
    const int err = sp_identity_get(fd, "", false, ret);
    if (err == 0)
        *ret_fd = TAKE_FD(fd);
    return err;
}

static struct sp_placeholder *find_placeholder(const struct sp_placeholders *t, const char *path)
{
    struct sp_placeholder *p = t->first;

    while (p != NULL && strcmp(p->path, path) != 0)
        p = p->next;
    return p;
}

bool sp_placeholder_stands(const struct sp_placeholders *t, const char *path)
{
    const struct sp_placeholder *p = find_placeholder(t, path);
    auto_where struct where w = find_where(path);
    struct sp_identity now;

    return p != NULL && w.parent >= 0 && sp_identity_get(w.parent, w.name, false, &now) == 0 &&
           sp_identity_equal(&now, &p->who);
}

bool sp_placeholder_is_ours(const struct sp_placeholders *t, const char *path)
{
    return find_placeholder(t, path) != NULL;
}

static int refuse(const char *path, int err, struct sp_err *e)
{
    if (err == EEXIST || err == ELOOP || err == ENOTDIR || err == EAGAIN)
        return sp_fail(e, SP_E_STATE, 0, "%s has appeared while the sandbox was made", path);
    if (err == EMFILE || err == ENFILE || err == ENOMEM)
        return sp_fail(e, SP_E_SYSTEM, err, "make a placeholder at %s", path);
    return sp_fail(e, SP_E_INVALID, 0, "failed to prepare process sandbox: placeholder:%s: %s",
                   path, strerror(err));
}

int sp_placeholder_take(struct sp_placeholders *t, const char *path, struct sp_placeholder_at *ret,
                        struct sp_err *e)
{
    struct sp_placeholder *p = find_placeholder(t, path);
    struct stat st;
    int fd = -1;
    int err = 0;

    if (p == NULL && t->count >= SP_MAX_PLACEHOLDERS)
        return sp_fail(e, SP_E_LIMIT, 0, "sandboxes need more than %d placeholders at once",
                       SP_MAX_PLACEHOLDERS);
    if (p == NULL) {
        p = calloc(1, sizeof *p + strlen(path) + 1);
        if (p == NULL)
            return refuse(path, ENOMEM, e);
        p->fd = -1;
        memcpy(p->path, path, strlen(path) + 1);
        p->next = t->first;
        t->first = p;
        t->count++;
        sp_journal_add(t->journal, SP_JOURNAL_PLACEHOLDER, path); /* before the directory exists */
    }
    p->users++;
    /* One lock for all cells of this server, so that LOCK_EX succeeds for the last reference. */
    const bool is_held =
        p->fd >= 0 && sp_placeholder_stands(t, path) && is_placeholder(p->fd, false) > 0;
    for (int i = 0; !is_held && i < LOCK_TRIES && (i == 0 || err == EAGAIN); i++) {
        if (i > 0)
            (void)nanosleep(&(struct timespec){.tv_nsec = LOCK_REST_NS}, NULL);
        auto_where struct where w = find_where(path);

        err = make_or_find(&w, &p->who, &fd);
    }
    if (err == 0) {
        if (!is_held && p->fd >= 0) /* the directory was replaced */
            (void)close(p->fd);
        if (!is_held)
            p->fd = fd;
        *ret = (struct sp_placeholder_at){.dev = p->who.dev, .ino = p->who.ino, .fd = p->fd};
        return 0;
    }
    /* mkdir was refused. chmod helps a command only if this user owns the parent directory. */
    auto_where struct where w = find_where(path);
    const bool is_denied =
        (err == EACCES || err == EPERM) && w.parent >= 0 && fstat(w.parent, &st) == 0;
    const bool is_own = is_denied && st.st_uid == geteuid();
    sp_placeholder_drop(t, path);
    return err == EROFS || (is_denied && !is_own)                   ? SP_PLACEHOLDER_NEEDLESS
           : is_own && err == EACCES && (st.st_mode & S_IWUSR) == 0 ? SP_PLACEHOLDER_UNWRITABLE
                                                                    : refuse(path, err, e);
}

void sp_placeholder_drop(struct sp_placeholders *t, const char *path)
{
    struct sp_placeholder **at = &t->first;

    while (*at != NULL && strcmp((*at)->path, path) != 0)
        at = &(*at)->next;
    struct sp_placeholder *p = *at;
    if (p == NULL || p->users == 0 || --p->users > 0)
        return;
    /* By its own descriptor, if it has one: its parent directory may have been moved. If it could
     * not be opened, it stays in the journal, and the next server removes it. */
    auto_where struct where w = {.parent = -1, .name = strrchr(p->path, '/') + 1};
    if (p->fd >= 0)
        w.parent = openat(p->fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (w.parent >= 0 ? !remove_from(&w, p->fd) : !sp_placeholder_remove(p->path))
        return;
    *at = p->next;
    t->count--;
    sp_journal_remove(t->journal, SP_JOURNAL_PLACEHOLDER, p->path);
    free_placeholder(p);
}
