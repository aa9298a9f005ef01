/* SPDX-License-Identifier: Apache-2.0 */
/*
 * patch: the files are written (approvals.md 14.3).
 *
 * Each is written beside its place and renamed, so that it is the old or the new one at any moment.
 * The bytes that replace a file are on the disk before they do; a new file is left to the kernel.
 * The one exception: a file whose directory may not be written (a policy that opens this file
 * alone) is written in place.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "approve/patch/patch_priv.h"
#include "base/auto.h"

#define MAX_TRIES 16 /* names that somebody else has already */

/* A file's place: its directory, held, and its name there. */
struct spot {
    int dir;
    const char *name;
    char *followed; /* where links led; NULL: it was none */
};

static void leave(struct spot *s)
{
    if (s->dir >= 0)
        (void)close(s->dir);
    free(s->followed);
    *s = (struct spot){.dir = -1, .name = ""};
}
#define auto_spot __attribute__((cleanup(leave)))
#define NOWHERE               \
    {                         \
        .dir = -1, .name = "" \
    }

static int failed(struct sp_err *e, const char *what, const char *path, int err)
{
    if (err == ELOOP)
        return sp_fail(e, SP_E_FAILED, 0, "%s %s: a symbolic link is in the way", what, path);
    return sp_fail(e, SP_E_SYSTEM, err, "%s %s", what, path);
}

/* 0 or -errno. Links at the end are followed if that is allowed, so that they stay. */
static int reach(const char *path, const struct sp_patch_walk *how, bool follows, struct spot *ret)
{
    struct spot s = NOWHERE;

    if (follows && !how->refuses_links) {
        s.followed = sp_patch_follow(path);
        if (s.followed == NULL)
            return -errno;
    }
    const int r = sp_patch_walk(s.followed != NULL ? s.followed : path, how, &s.dir, &s.name);
    if (r < 0)
        leave(&s);
    else
        *ret = s;
    return r;
}

/* ---- is it still what was read? ---- */

static int open_regular(const struct spot *s, struct stat *ret)
{
    auto_close int fd =
        openat(s->dir, s->name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);

    if (fd < 0 || fstat(fd, ret) < 0)
        return -errno;
    return S_ISREG(ret->st_mode) ? TAKE_FD(fd) : -EINVAL;
}

static bool holds(int fd, struct sp_str want)
{
    char piece[16384];

    for (;;) {
        const ssize_t n = read(fd, piece, sizeof piece);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n == 0 && want.n == 0;
        if ((size_t)n > want.n || memcmp(piece, want.p, (size_t)n) != 0)
            return false;
        want.p += n;
        want.n -= (size_t)n;
    }
}

static int check_source(const struct spot *s, const struct sp_patch_change *c, struct stat *ret,
                        struct sp_err *e)
{
    auto_close int fd = open_regular(s, ret);

    if (fd < 0)
        return failed(e, "Failed to write file", c->full_path, -fd);
    if (!holds(fd, c->before))
        return sp_fail(e, SP_E_FAILED, 0,
                       "Failed to write file %s: it has changed since the patch was verified",
                       c->full_path);
    return 0;
}

/* ---- writing ---- */

static int write_all(int fd, struct sp_str text)
{
    while (text.n > 0) {
        const ssize_t n = write(fd, text.p, text.n);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        text.p += n;
        text.n -= (size_t)n;
    }
    return 0;
}

/* A new file in the directory; its name in *ret. */
static int make_beside(int dir, mode_t mode, char ret[40])
{
    for (int i = 0; i < MAX_TRIES; i++) {
        unsigned long long number = 0;

        if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
            return -errno;
        (void)snprintf(ret, 40, ".sallyport-patch-%016llx", number);
        const int fd = openat(dir, ret, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
        if (fd >= 0 || errno != EEXIST)
            return fd >= 0 ? fd : -errno;
    }
    return -EEXIST;
}

/* Not in one step: for a file that is all that may be written there. */
static int write_in_place(const struct spot *s, struct sp_str text)
{
    auto_close int fd = openat(s->dir, s->name, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    int r = write_all(fd, text);
    if (r == 0 && (ftruncate(fd, (off_t)text.n) < 0 || fdatasync(fd) < 0))
        r = -errno;
    return r;
}

/* Whose it is and who may do what with it stay; what a write takes away (setuid) goes. */
static int take_after(int fd, const struct stat *like)
{
    if (fchown(fd, like->st_uid, like->st_gid) < 0) {
        /* Not ours to give away: it belongs to whoever patches, as any file that he makes. */
    }
    if (fchmod(fd, like->st_mode & 0777) < 0)
        return -errno;
    return 0;
}

static int fill(int fd, struct sp_str text, const struct stat *like, bool replaces)
{
    int r = like != NULL ? take_after(fd, like) : 0;

    if (r == 0)
        r = write_all(fd, text);
    if (r == 0 && replaces && fdatasync(fd) < 0)
        r = -errno;
    return r;
}

/* Whether it may be the directory alone that is in the way: it is closed, somebody else's files in
 * it stay (a sticky one), or the file is a mount of its own. */
static bool is_about_directory(int err)
{
    return err == EACCES || err == EROFS || err == EPERM || err == EBUSY;
}

/* 0 or -errno. like: whose mode it gets; NULL: a new file's. */
static int replace(const struct spot *s, struct sp_str text, const struct stat *like)
{
    struct stat there;
    const bool replaces = fstatat(s->dir, s->name, &there, AT_SYMLINK_NOFOLLOW) == 0;
    char beside[40];

    if (replaces && !S_ISREG(there.st_mode))
        return S_ISDIR(there.st_mode) ? -EISDIR : S_ISLNK(there.st_mode) ? -ELOOP : -EINVAL;
    if (replaces && like == NULL)
        like = &there;
    auto_close int fd = make_beside(s->dir, like != NULL ? 0600 : 0666, beside);
    if (fd < 0)
        return replaces && is_about_directory(-fd) ? write_in_place(s, text) : fd;
    int r = fill(fd, text, like, replaces);
    const bool is_filled = r == 0;
    if (is_filled && renameat(s->dir, beside, s->dir, s->name) < 0)
        r = -errno;
    if (r < 0)
        (void)unlinkat(s->dir, beside, 0); /* the story is why it failed */
    return is_filled && replaces && is_about_directory(-r) ? write_in_place(s, text) : r;
}

static int write_to(const char *path, struct sp_str text, const struct stat *like,
                    bool refuses_links, struct sp_err *e)
{
    const struct sp_patch_walk how = {.refuses_links = refuses_links, .makes_parents = true};
    auto_spot struct spot s = NOWHERE;
    int r = reach(path, &how, true, &s);

    if (r < 0)
        return failed(e, "Failed to create parent directories for", path, -r);
    r = replace(&s, text, like);
    return r < 0 ? failed(e, "Failed to write file", path, -r) : 0;
}

/* ---- each kind ---- */

static int remove_at(const struct spot *s, const char *what, const char *path, struct sp_err *e)
{
    return unlinkat(s->dir, s->name, 0) < 0 ? failed(e, what, path, errno) : 0;
}

static int apply_delete(const struct sp_patch_change *c, bool refuses_links, struct sp_err *e)
{
    const struct sp_patch_walk how = {.refuses_links = refuses_links};
    auto_spot struct spot s = NOWHERE;
    const int r = reach(c->full_path, &how, false, &s);

    return r < 0 ? failed(e, "Failed to delete file", c->full_path, -r)
                 : remove_at(&s, "Failed to delete file", c->full_path, e);
}

static int apply_move(const struct sp_patch_change *c, const struct stat *like, bool refuses_links,
                      struct sp_err *e)
{
    const struct sp_patch_walk how = {.refuses_links = refuses_links};
    auto_spot struct spot source = NOWHERE;
    int r = write_to(c->full_target, c->after, like, refuses_links, e);

    if (r < 0)
        return r;
    r = reach(c->full_path, &how, false, &source);
    r = r < 0 ? failed(e, "Failed to remove original", c->full_path, -r)
              : remove_at(&source, "Failed to remove original", c->full_path, e);
    return r < 0 ? sp_wrap(e, "%s was written", c->full_target) : 0;
}

static int apply_update(const struct sp_patch_change *c, bool refuses_links, struct sp_err *e)
{
    const struct sp_patch_walk how = {.refuses_links = refuses_links};
    auto_spot struct spot s = NOWHERE;
    struct stat like;
    int r = reach(c->full_path, &how, true, &s);

    if (r < 0)
        return failed(e, "Failed to write file", c->full_path, -r);
    r = check_source(&s, c, &like, e);
    if (r < 0)
        return r;
    if (c->full_target != NULL)
        return apply_move(c, &like, refuses_links, e);
    r = replace(&s, c->after, &like);
    return r < 0 ? failed(e, "Failed to write file", c->full_path, -r) : 0;
}

static int apply_one(const struct sp_patch_change *c, bool refuses_links, struct sp_err *e)
{
    switch (c->kind) {
    case SP_PATCH_ADD:
        return write_to(c->full_path, c->after, NULL, refuses_links, e);
    case SP_PATCH_DELETE:
        return apply_delete(c, refuses_links, e);
    case SP_PATCH_UPDATE:
        return apply_update(c, refuses_links, e);
    }
    return sp_fail(e, SP_E_INVALID, 0, "an unknown kind of change");
}

static int check_path(const char *path, const char *what, struct sp_err *e)
{
    const struct sp_patch_walk how = {.refuses_links = true};
    auto_close int dir = -1;
    const char *name;

    return path != NULL && sp_patch_walk(path, &how, &dir, &name) == -ELOOP
               ? failed(e, what, path, ELOOP)
               : 0;
}

int sp_patch_check_links(const struct sp_patch_changes *c, struct sp_err *e)
{
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < c->count; i++) {
        const char *what =
            c->items[i].kind == SP_PATCH_DELETE ? "Failed to delete file" : "Failed to write file";

        r = check_path(c->items[i].full_path, what, e);
        if (r == 0)
            r = check_path(c->items[i].full_target, what, e);
    }
    return r;
}

int sp_patch_apply(const struct sp_patch_changes *c, bool refuses_links, uint32_t *ret_done,
                   struct sp_err *e)
{
    /* For a whole patch that cannot go through, before anything is written; what is put in the way
     * later is met by the walk. */
    int r = refuses_links ? sp_patch_check_links(c, e) : 0;

    *ret_done = 0;
    while (r == 0 && *ret_done < c->count) {
        r = apply_one(&c->items[*ret_done], refuses_links, e);
        *ret_done += r == 0;
    }
    return r;
}
