/* SPDX-License-Identifier: Apache-2.0 */
/*
 * patch_apply: write the files of a verified patch.
 *
 * Each file is written beside its place and renamed, so readers see the old or the new file, never
 * a half. Bytes that replace a file are synced before the rename; a new file is left to the kernel.
 * The one exception: where the directory is not writable (a policy that opens this one file), the
 * file is written in place.
 *
 * Directories are opened one component at a time from the root, each relative to the previous
 * descriptor with O_NOFOLLOW where links are refused. A link planted while we walk is refused by
 * the kernel.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "approve/patch/patch_priv.h"
#include "base/auto.h"
#include "base/io.h"

#define MAX_LINKS 40 /* in a chain, as in the kernel */
#define MAX_TRIES 16 /* random names for the temporary file */

/* ---- the directory of a file ---- */

struct walk {
    bool refuses_links; /* in any component, the last one included */
    bool makes_parents;
};
static bool is_link(int dir, const char *name)
{
    struct stat st;

    return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode);
}

/* The directory `name` below dir, or -errno. */
static int enter(int dir, const char *name, const struct walk *how)
{
    const int flags = O_PATH | O_DIRECTORY | O_CLOEXEC | (how->refuses_links ? O_NOFOLLOW : 0);
    int fd = openat(dir, name, flags);

    if (fd < 0 && errno == ENOENT && how->makes_parents) {
        if (mkdirat(dir, name, 0777) < 0 && errno != EEXIST)
            return -errno;
        fd = openat(dir, name, flags);
    }
    if (fd >= 0)
        return fd;
    const int err = errno;
    return how->refuses_links && err == ENOTDIR && is_link(dir, name) ? -ELOOP : -err;
}

/* Opens the directory that holds `path` (absolute, normal). 0 or -errno; ELOOP: a refused link. */
static int walk_to(const char *path, const struct walk *how, int *ret_dir, const char **ret_name)
{
    auto_close int dir = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    const char *at = path + 1;
    char name[NAME_MAX + 1];

    if (dir < 0)
        return -errno;
    for (const char *slash; (slash = strchr(at, '/')) != NULL; at = slash + 1) {
        const size_t n = (size_t)(slash - at);

        if (n > NAME_MAX)
            return -ENAMETOOLONG;
        memcpy(name, at, n);
        name[n] = 0;
        const int next = enter(dir, n == 0 ? "." : name, how); /* a link's target may have "//" */
        if (next < 0)
            return next;
        (void)close(dir);
        dir = next;
    }
    if (*at == 0)
        return -EISDIR;
    if (how->refuses_links && is_link(dir, at))
        return -ELOOP;
    *ret_name = at;
    *ret_dir = TAKE_FD(dir);
    return 0;
}

/* Where a chain of links at the end of `path` leads, to be freed; NULL with errno. A relative
 * target is relative to the directory of its link. */
static char *follow_links(const char *path)
{
    auto_free char *at = strdup(path);
    char target[PATH_MAX];

    for (int i = 0; at != NULL && i < MAX_LINKS; i++) {
        char *next = NULL;

        if (!is_link(AT_FDCWD, at))
            return TAKE_PTR(at);
        const ssize_t n = readlink(at, target, sizeof target);
        if (n < 0)
            return is_link(AT_FDCWD, at) ? NULL : TAKE_PTR(at);
        if ((size_t)n == sizeof target) {
            errno = ENAMETOOLONG;
            return NULL;
        }
        const int dir_len = target[0] == '/' ? 0 : (int)(strrchr(at, '/') - at) + 1;
        if (asprintf(&next, "%.*s%.*s", dir_len, at, (int)n, target) < 0)
            return NULL;
        free(at);
        at = next;
    }
    errno = at == NULL ? ENOMEM : ELOOP;
    return NULL;
}

/* A file by its open directory and its name there. */
struct spot {
    int dir;
    const char *name;
    char *followed; /* owns `name` if links were followed; else NULL */
};

static void spot_done(struct spot *s)
{
    if (s->dir >= 0)
        (void)close(s->dir);
    free(s->followed);
    *s = (struct spot){.dir = -1, .name = ""};
}
#define auto_spot __attribute__((cleanup(spot_done)))
#define NOWHERE               \
    {                         \
        .dir = -1, .name = "" \
    }

static int fail_file(struct sp_err *e, const char *what, const char *path, int err)
{
    if (err == ELOOP)
        return sp_fail(e, SP_E_FAILED, 0, "%s %s: a symbolic link is in the way", what, path);
    return sp_fail(e, SP_E_SYSTEM, err, "%s %s", what, path);
}

/* 0 or -errno. A link at the end is followed if links are allowed, so that the link itself
 * stays. */
static int open_spot(const char *path, const struct walk *how, bool follows, struct spot *ret)
{
    struct spot s = NOWHERE;

    if (follows && !how->refuses_links) {
        s.followed = follow_links(path);
        if (s.followed == NULL)
            return -errno;
    }
    const int r = walk_to(s.followed != NULL ? s.followed : path, how, &s.dir, &s.name);
    if (r < 0)
        spot_done(&s);
    else
        *ret = s;
    return r;
}

/* ---- is the file still what was verified? ---- */

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

/* ---- writing ---- */

/* Creates a temporary file in the directory, named *ret. Its descriptor, or -errno. */
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

/* Not atomic: for a file in a directory that is not writable. */
static int write_in_place(const struct spot *s, struct sp_str text)
{
    auto_close int fd = openat(s->dir, s->name, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    int r = -sp_write_all(fd, text.p, text.n);
    if (r == 0 && (ftruncate(fd, (off_t)text.n) < 0 || fdatasync(fd) < 0))
        r = -errno;
    return r;
}

/* Errors that can come from the directory alone: not writable, sticky, or the file is a mount
 * point. */
static bool is_about_directory(int err)
{
    return err == EACCES || err == EROFS || err == EPERM || err == EBUSY;
}

/* 0 or -errno. like: the owner and mode to keep; NULL: those of the file that is replaced, else a
 * new file's. */
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
    /* Owner and mode are kept, without setuid, as a write would drop it. Giving the file away fails
     * without privileges; the new file then belongs to us. */
    int r = 0;
    if (like != NULL) {
        if (fchown(fd, like->st_uid, like->st_gid) < 0) {
            /* see above */
        }
        if (fchmod(fd, like->st_mode & 0777) < 0)
            r = -errno;
    }
    if (r == 0)
        r = -sp_write_all(fd, text.p, text.n);
    if (r == 0 && replaces && fdatasync(fd) < 0)
        r = -errno;
    const bool is_filled = r == 0;
    if (is_filled && renameat(s->dir, beside, s->dir, s->name) < 0)
        r = -errno;
    if (r < 0)
        (void)unlinkat(s->dir, beside, 0); /* the first error is the one to report */
    return is_filled && replaces && is_about_directory(-r) ? write_in_place(s, text) : r;
}

static int write_to(const char *path, struct sp_str text, const struct stat *like,
                    bool refuses_links, struct sp_err *e)
{
    const struct walk how = {.refuses_links = refuses_links, .makes_parents = true};
    auto_spot struct spot s = NOWHERE;
    int r = open_spot(path, &how, true, &s);

    if (r < 0)
        return fail_file(e, "Failed to create parent directories for", path, -r);
    r = replace(&s, text, like);
    return r < 0 ? fail_file(e, "Failed to write file", path, -r) : 0;
}

/* ---- each kind ---- */

/* Removes the name itself, also if it is a link. */
static int remove_file(const char *path, const char *what, bool refuses_links, struct sp_err *e)
{
    const struct walk how = {.refuses_links = refuses_links};
    auto_spot struct spot s = NOWHERE;
    int r = open_spot(path, &how, false, &s);

    if (r == 0 && unlinkat(s.dir, s.name, 0) < 0)
        r = -errno;
    return r < 0 ? fail_file(e, what, path, -r) : 0;
}

static int apply_update(const struct sp_patch_change *c, bool refuses_links, struct sp_err *e)
{
    const struct walk how = {.refuses_links = refuses_links};
    auto_spot struct spot s = NOWHERE;
    struct stat like;
    int r = open_spot(c->full_path, &how, true, &s);

    if (r < 0)
        return fail_file(e, "Failed to write file", c->full_path, -r);

    /* The file must still have the text that the patch was verified against. */
    auto_close int fd =
        openat(s.dir, s.name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);

    if (fd < 0 || fstat(fd, &like) < 0)
        return fail_file(e, "Failed to write file", c->full_path, errno);
    if (!S_ISREG(like.st_mode))
        return fail_file(e, "Failed to write file", c->full_path, EINVAL);
    if (!holds(fd, c->before))
        return sp_fail(e, SP_E_FAILED, 0,
                       "Failed to write file %s: it has changed since the patch was verified",
                       c->full_path);
    if (c->full_target != NULL) { /* the target is complete before the source goes */
        r = write_to(c->full_target, c->after, &like, refuses_links, e);
        if (r < 0)
            return r;
        r = remove_file(c->full_path, "Failed to remove original", refuses_links, e);
        return r < 0 ? sp_wrap(e, "%s was written", c->full_target) : 0;
    }
    r = replace(&s, c->after, &like);
    return r < 0 ? fail_file(e, "Failed to write file", c->full_path, -r) : 0;
}

/* Fails if an existing component of any path is a symbolic link. */
static int check_links(const struct sp_patch_changes *c, struct sp_err *e)
{
    const struct walk how = {.refuses_links = true};

    for (uint32_t i = 0; i < c->count; i++) {
        const char *const paths[] = {c->items[i].full_path, c->items[i].full_target};

        for (size_t k = 0; k < sizeof paths / sizeof *paths; k++) {
            auto_close int dir = -1;
            const char *name;

            if (paths[k] != NULL && walk_to(paths[k], &how, &dir, &name) == -ELOOP)
                return fail_file(e,
                                 c->items[i].kind == SP_PATCH_DELETE ? "Failed to delete file"
                                                                     : "Failed to write file",
                                 paths[k], ELOOP);
        }
    }
    return 0;
}

int sp_patch_apply(const struct sp_patch_changes *c, bool refuses_links, bool only_checks,
                   uint32_t *ret_done, struct sp_err *e)
{
    /* Checked before anything is written, so that a patch with a link applies to no file; links
     * planted later are caught by walk_to. */
    int r = refuses_links ? check_links(c, e) : 0;

    *ret_done = 0;
    while (r == 0 && !only_checks && *ret_done < c->count) {
        const struct sp_patch_change *one = &c->items[*ret_done];

        switch (one->kind) {
        case SP_PATCH_ADD:
            r = write_to(one->full_path, one->after, NULL, refuses_links, e);
            break;
        case SP_PATCH_DELETE:
            r = remove_file(one->full_path, "Failed to delete file", refuses_links, e);
            break;
        case SP_PATCH_UPDATE:
            r = apply_update(one, refuses_links, e);
            break;
        }
        *ret_done += r == 0;
    }
    return r;
}
