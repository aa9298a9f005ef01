/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/canonical.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/grow.h"

/* ---- budget ---- */

#define LOOK_EVERY 64

/* Per thread: the surveyor has many, and the host program of the C library may use several. */
static _Thread_local uint64_t until_ms;
static _Thread_local unsigned calls;

void sp_budget_begin(unsigned ms)
{
    until_ms = sp_clock_ms() + ms;
    calls = 0;
}

bool sp_budget_is_spent(void)
{
    return until_ms != 0 && ++calls % LOOK_EVERY == 0 && sp_clock_ms() >= until_ms;
}

int sp_budget_refuse(struct sp_err *e)
{
    return sp_fail(e, SP_E_LIMIT, 0,
                   "the sandbox policy takes too long to be held against this disk: name fewer "
                   "places and narrower patterns");
}

/* ---- which inode ---- */

static struct timespec time_of(const struct statx_timestamp *t)
{
    return (struct timespec){.tv_sec = t->tv_sec, .tv_nsec = t->tv_nsec};
}

int sp_identity_get(int dir, const char *name, bool follows, struct sp_identity *ret)
{
    const int flags = (name[0] == 0 ? AT_EMPTY_PATH : 0) | (follows ? 0 : AT_SYMLINK_NOFOLLOW);
    struct statx x = {0};

    if (statx(dir, name, flags, STATX_BASIC_STATS | STATX_BTIME, &x) < 0)
        return errno;
    *ret = (struct sp_identity){
        .dev = makedev(x.stx_dev_major, x.stx_dev_minor),
        .ino = (ino_t)x.stx_ino,
        .mode = x.stx_mode,
        .size = (off_t)x.stx_size,
        .changed = time_of(&x.stx_ctime),
    };
    if ((x.stx_mask & STATX_BTIME) != 0)
        ret->born = time_of(&x.stx_btime);
    return 0;
}

int sp_open_strictly(int dir, const char *path, int flags)
{
    const struct open_how how = {
        .flags = (unsigned)flags | O_CLOEXEC | O_NOFOLLOW,
        .resolve = RESOLVE_NO_SYMLINKS,
    };
    return (int)syscall(SYS_openat2, dir, path, &how, sizeof how);
}

int sp_identity_get_strictly(const char *path, struct sp_identity *ret)
{
    auto_close int fd = sp_open_strictly(AT_FDCWD, path, O_PATH);

    return fd < 0 ? errno : sp_identity_get(fd, "", false, ret);
}

bool sp_identity_equal(const struct sp_identity *a, const struct sp_identity *b)
{
    return a->dev == b->dev && a->ino == b->ino && (a->mode & S_IFMT) == (b->mode & S_IFMT) &&
           sp_same_time(a->born, b->born);
}

/* ---- the walk ---- */

struct walk {
    struct sp_canonical *c;
    const char *asked;   /* the path of the caller, for error messages */
    char path[PATH_MAX]; /* of fd, without symlinks; "" is the root */
    size_t len;
    int fd;
    bool is_dir;      /* fd is a directory */
    char *rest;       /* owned; the rest of the path, after substitution of symlinks */
    const char *next; /* points into rest */
};

static void take_fd(struct walk *w, int fd, bool is_dir)
{
    sp_auto_close(&w->fd);
    w->fd = fd;
    w->is_dir = is_dir;
}

static int too_long(const struct walk *w, struct sp_err *e)
{
    return sp_fail(e, SP_E_INVALID, ENAMETOOLONG, "look at %.300s", w->asked);
}

static int cannot_look(const struct walk *w, int err, struct sp_err *e)
{
    return sp_fail(e, SP_E_SYSTEM, err, "look at %.300s", w->asked);
}

static int no_memory(struct sp_err *e)
{
    return sp_fail(e, SP_E_SYSTEM, ENOMEM, "look at a path");
}

static int go_to_root(struct walk *w, struct sp_err *e)
{
    const int fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return cannot_look(w, errno, e);
    take_fd(w, fd, true);
    w->len = 0;
    w->path[0] = 0;
    return 0;
}

static int append(struct walk *w, const char *name, struct sp_err *e)
{
    const size_t n = strlen(name);

    if (w->len + 1 + n >= sizeof w->path)
        return too_long(w, e);
    w->path[w->len] = '/';
    memcpy(w->path + w->len + 1, name, n + 1);
    w->len += 1 + n;
    return 0;
}

/* A magic symlink of /proc leads to an object; its text need not be the object's path. */
static bool is_magic(int dir, const char *name)
{
    const struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_MAGICLINKS};
    auto_close int fd = (int)syscall(SYS_openat2, dir, name, &how, sizeof how);

    if (fd >= 0 || errno != ELOOP)
        return false;
    auto_close int again = openat(dir, name, O_PATH | O_CLOEXEC);
    return again >= 0 || errno != ELOOP; /* ELOOP again: an ordinary cycle of symlinks */
}

static int follow(struct walk *w, const char *name, int link, const struct sp_identity *who,
                  struct sp_err *e)
{
    char target[PATH_MAX];
    char *rest = NULL;

    if (w->c->link_count == SP_MAX_LINKS)
        return sp_fail(e, SP_E_INVALID, ELOOP, "look at %.300s", w->asked);
    if (is_magic(w->fd, name))
        return sp_fail(e, SP_E_INVALID, 0, "look at %.300s: it leads through a process", w->asked);
    const ssize_t n = readlinkat(link, "", target, sizeof target);
    if (n < 0)
        return cannot_look(w, errno, e);
    if (n == sizeof target)
        return too_long(w, e);
    target[n] = 0;

    struct sp_canonical *c = w->c;
    if (!SP_GROW(c->links, c->link_count, c->link_cap))
        return no_memory(e);
    const size_t len = w->len;
    const int r = append(w, name, e);
    if (r < 0)
        return r;
    auto_free char *path = strdup(w->path);
    auto_free char *text = strdup(target);
    w->len = len; /* the walk goes on from the directory of the link */
    w->path[len] = 0;
    if (path == NULL || text == NULL)
        return no_memory(e);
    c->links[c->link_count++] =
        (struct sp_symlink){.path = TAKE_PTR(path), .target = TAKE_PTR(text), .who = *who};

    if (asprintf(&rest, "%s/%s", target, w->next) < 0)
        return no_memory(e);
    free(w->rest);
    w->rest = rest;
    w->next = rest;
    return target[0] == '/' ? go_to_root(w, e) : 0;
}

/* Ends the walk. name: the component that could not be opened; NULL: none. */
static int end_at(struct walk *w, enum sp_way way, const char *name, struct sp_err *e)
{
    struct sp_canonical *c = w->c;

    c->way = way;
    if (name != NULL) {
        c->parent = strdup(w->len == 0 ? "/" : w->path);
        const int r = append(w, name, e);
        if (r < 0)
            return r;
    }
    c->path = strdup(w->len == 0 ? "/" : w->path);
    if (c->path == NULL || (name != NULL && c->parent == NULL))
        return no_memory(e);
    const int err = sp_identity_get(w->fd, "", false, &c->who);
    return err != 0 ? cannot_look(w, err, e) : 0;
}

static int end_by(struct walk *w, int err, const char *name, struct sp_err *e)
{
    switch (err) {
    case ENOENT:
        return end_at(w, SP_WAY_MISSING, name, e);
    case ENAMETOOLONG:
        return end_at(w, SP_WAY_IMPOSSIBLE, NULL, e);
    case EACCES:
        return end_at(w, SP_WAY_BARRED, name, e);
    default:
        return cannot_look(w, err, e);
    }
}

/* A component that is not a directory: follows a symlink; any other file must be the last one. */
static int step_onto(struct walk *w, const char *name, bool *ret_is_over, struct sp_err *e)
{
    auto_close int fd = openat(w->fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    struct sp_identity who = {0};

    *ret_is_over = fd < 0;
    if (fd < 0)
        return end_by(w, errno, name, e);
    const int err = sp_identity_get(fd, "", false, &who);
    if (err != 0)
        return cannot_look(w, err, e);
    if (S_ISLNK(who.mode))
        return follow(w, name, fd, &who, e);
    take_fd(w, TAKE_FD(fd), S_ISDIR(who.mode));
    return append(w, name, e);
}

static int step(struct walk *w, const char *name, bool *ret_is_over, struct sp_err *e)
{
    *ret_is_over = false;
    if (!w->is_dir) {
        *ret_is_over = true;
        return end_at(w, SP_WAY_NO_DIR, NULL, e);
    }
    if (sp_budget_is_spent())
        return sp_budget_refuse(e);
    if (strcmp(name, ".") == 0)
        return 0;
    if (strcmp(name, "..") == 0) {
        /* By the path walked so far, not by "..": a directory that was moved has another parent. */
        const char *slash = strrchr(w->path, '/');

        if (slash == NULL)
            return 0;
        w->len = (size_t)(slash - w->path);
        w->path[w->len] = 0;
        if (w->len == 0)
            return go_to_root(w, e);
        const int parent = sp_open_strictly(AT_FDCWD, w->path, O_PATH | O_DIRECTORY);
        if (parent < 0)
            return cannot_look(w, errno, e);
        take_fd(w, parent, true);
        return 0;
    }
    /* O_DIRECTORY triggers automounts; O_PATH alone does not. */
    const int fd = openat(w->fd, name, O_PATH | O_NOFOLLOW | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        take_fd(w, fd, true);
        return append(w, name, e);
    }
    if (errno == ENOTDIR || errno == ELOOP)
        return step_onto(w, name, ret_is_over, e);
    *ret_is_over = true;
    return end_by(w, errno, name, e);
}

static int walk(struct walk *w, struct sp_err *e)
{
    int r = go_to_root(w, e);

    while (r == 0) {
        char name[NAME_MAX + 2]; /* one byte too many: the kernel reports ENAMETOOLONG */
        bool is_over = false;

        w->next += strspn(w->next, "/");
        if (*w->next == 0)
            return end_at(w, SP_WAY_FOUND, NULL, e);
        const size_t n = strcspn(w->next, "/");
        const size_t kept = n < sizeof name ? n : sizeof name - 1;
        memcpy(name, w->next, kept);
        name[kept] = 0;
        w->next += n;
        r = step(w, name, &is_over, e);
        if (is_over)
            return r;
    }
    return r;
}

int sp_canonical_find(const char *path, struct sp_canonical *ret, struct sp_err *e)
{
    struct sp_canonical c = {0};
    struct walk w = {.c = &c, .asked = path, .fd = -1};

    if (path[0] != '/')
        return sp_fail(e, SP_E_INVALID, 0, "path %.300s is not absolute", path);
    w.rest = strdup(path);
    w.next = w.rest;
    const int r = w.rest == NULL ? no_memory(e) : walk(&w, e);
    sp_auto_close(&w.fd);
    free(w.rest);
    if (r < 0)
        sp_canonical_done(&c);
    else
        *ret = c;
    return r;
}

void sp_canonical_done(struct sp_canonical *c)
{
    for (size_t i = 0; i < c->link_count; i++) {
        free(c->links[i].path);
        free(c->links[i].target);
    }
    free(c->links);
    free(c->path);
    free(c->parent);
    *c = (struct sp_canonical){0};
}
