/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy_tree: a directory with all that is in it. Nothing in it is reached through a link, on either
 * side.
 *
 * A tree of any depth is copied with one descriptor a side: down by name, up by "..", which must be
 * the directory that we came from. The files of a directory are copied when it is entered, the
 * names of the directories in it are kept until their turn comes.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/buf.h"
#include "cell/file/file_priv.h"

#define HOLD      (O_PATH | O_DIRECTORY | O_CLOEXEC)
#define MAX_ABOVE 1000000 /* somebody moves directories as fast as we climb */

struct identity {
    dev_t dev;
    ino_t ino;
};

struct level {
    struct level *above;
    struct identity from_above, to_above;
    struct sp_buf names; /* of the directories in it, each with its NUL */
    size_t at;
};

struct tree {
    int from, to;         /* where we are */
    struct identity into; /* the root of the copy: not to be copied into itself */
    bool hides_placeholders;
    struct level *level;
    struct sp_file_answer *answer;
};

static bool is_it(const struct stat *st, const struct identity *i)
{
    return st->st_dev == i->dev && st->st_ino == i->ino;
}

static int identify(int fd, struct identity *ret)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return -errno;
    *ret = (struct identity){st.st_dev, st.st_ino};
    return 0;
}

/* ---- what is in a directory ---- */

static int copy_entry(struct tree *t, const char *name)
{
    struct stat st;

    if (fstatat(t->from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -errno;
    if (S_ISDIR(st.st_mode)) {
        if (is_it(&st, &t->into) ||
            (t->hides_placeholders && sp_look_is_placeholder(t->from, name, name)))
            return 0;
        return sp_buf_add(&t->level->names, name, strlen(name) + 1) ? 0 : -ENOMEM;
    }
    if (S_ISLNK(st.st_mode)) {
        const int r = sp_copy_link(t->from, name, t->to, name);

        return r == -EINVAL || r == -ENOENT ? 0 : r; /* another thing by now, or gone */
    }
    if (!S_ISREG(st.st_mode))
        return 0;
    auto_close int fd =
        openat(t->from, name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT || errno == ELOOP ? 0 : -errno;
    const int r = sp_copy_file(fd, t->to, name, false, t->answer);
    if (t->answer->refusal == SP_FILE_COPY_KIND) /* another thing by now */
        t->answer->refusal = SP_FILE_NOT_REFUSED;
    return r;
}

static int copy_entries(struct tree *t)
{
    const int fd = openat(t->from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *names = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *d;
    int r = 0;

    if (names == NULL) {
        r = -errno;
        if (fd >= 0)
            (void)close(fd);
        return r;
    }
    while (r == 0 && t->answer->refusal == SP_FILE_NOT_REFUSED &&
           (errno = 0, d = readdir(names)) != NULL)
        r = sp_is_dots(d->d_name) ? 0 : copy_entry(t, d->d_name);
    if (r == 0 && t->answer->refusal == SP_FILE_NOT_REFUSED)
        r = -errno;
    (void)closedir(names);
    return r;
}

/* ---- down and up ---- */

static int push(struct tree *t)
{
    struct level *l = calloc(1, sizeof *l);
    int r = l == NULL ? -ENOMEM : identify(t->from, &l->from_above);

    if (r == 0)
        r = identify(t->to, &l->to_above);
    if (r < 0) {
        free(l);
        return r;
    }
    l->above = t->level;
    t->level = l;
    return 0;
}

static void pop(struct tree *t)
{
    struct level *l = t->level;

    t->level = l->above;
    sp_buf_done(&l->names);
    free(l);
}

static void be_in(struct tree *t, int from, int to)
{
    (void)close(t->from);
    (void)close(t->to);
    t->from = from;
    t->to = to;
}

static int descend(struct tree *t, const char *name)
{
    auto_close int from = openat(t->from, name, HOLD | O_NOFOLLOW);

    if (from < 0) /* gone, or another thing by now */
        return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? 0 : -errno;
    if (mkdirat(t->to, name, 0777) < 0 && errno != EEXIST)
        return -errno;
    auto_close int to = openat(t->to, name, HOLD | O_NOFOLLOW);
    if (to < 0)
        return -errno;
    const int r = push(t);
    if (r < 0)
        return r;
    be_in(t, TAKE_FD(from), TAKE_FD(to));
    return copy_entries(t);
}

static int ascend(struct tree *t)
{
    auto_close int from = openat(t->from, "..", HOLD);
    auto_close int to = openat(t->to, "..", HOLD);
    struct stat a;
    struct stat b;

    if (from < 0 || to < 0 || fstat(from, &a) < 0 || fstat(to, &b) < 0)
        return -errno;
    if (!is_it(&a, &t->level->from_above) || !is_it(&b, &t->level->to_above))
        return -EBUSY; /* moved away meanwhile: what is above us now is not what was asked for */
    be_in(t, TAKE_FD(from), TAKE_FD(to));
    pop(t);
    return 0;
}

static int copy_levels(struct tree *t)
{
    int r = push(t); /* of the root nobody looks at what is above */

    if (r == 0)
        r = copy_entries(t);
    while (r == 0 && t->answer->refusal == SP_FILE_NOT_REFUSED) {
        struct level *l = t->level;

        if (l->at == l->names.len && l->above == NULL)
            break;
        if (l->at == l->names.len) {
            r = ascend(t);
            continue;
        }
        const char *name = l->names.data + l->at;
        l->at += strlen(name) + 1;
        r = descend(t, name);
    }
    while (t->level != NULL)
        pop(t);
    return r;
}

/* ---- the roots ---- */

/* Whether the directory, or one above it, is the root. */
static int is_below(int at, const struct identity *root, bool *ret)
{
    auto_close int dir = openat(at, ".", HOLD);

    for (int i = 0; dir >= 0 && i < MAX_ABOVE; i++) {
        struct stat here;
        struct stat above;

        if (fstat(dir, &here) < 0)
            return -errno;
        if (is_it(&here, root)) {
            *ret = true;
            return 0;
        }
        const int up = openat(dir, "..", HOLD);
        if (up < 0)
            return errno == EACCES ? 0 : -errno; /* nor could we come down there */
        (void)close(dir);
        dir = up;
        if (fstat(dir, &above) < 0)
            return -errno;
        if (above.st_dev == here.st_dev && above.st_ino == here.st_ino)
            return 0; /* the root of all */
    }
    return dir < 0 ? -errno : -EBUSY;
}

/* Whether `path`, or the nearest directory above it that is there, is in the tree below `root`. */
static int is_within(const char *path, const struct identity *root, bool *ret)
{
    auto_free char *at = strdup(path);
    auto_close int dir = -1;

    *ret = false;
    if (at == NULL)
        return -ENOMEM;
    while ((dir = open(at, HOLD)) < 0) {
        char *slash = strrchr(at, '/');

        if ((errno != ENOENT && errno != ENOTDIR) || slash == NULL || at[1] == 0)
            return 0; /* making it will say what is wrong */
        slash[slash == at] = 0;
    }
    return is_below(dir, root, ret);
}

/* With those above it. One that we have just made is no link; one that was there may be reached
 * through one. */
static int open_target(const char *path, struct sp_file_answer *a)
{
    const struct sp_file_ask make = {
        .op = SP_FILE_MAKE, .path = path, .follows = true, .is_recursive = true};
    const bool is_new = mkdir(path, 0777) == 0 || errno == ENOENT;
    const int r = is_new ? sp_make(&make, a) : errno == EEXIST ? 0 : -errno;

    if (r < 0)
        return r;
    const int fd = open(path, HOLD | (is_new ? O_NOFOLLOW : 0));
    if (fd < 0) /* a file in the way is told as mkdir tells it */
        return !is_new && errno == ENOTDIR ? -EEXIST : -errno;
    return fd;
}

int sp_copy_tree(const struct sp_file_ask *ask, struct sp_file_answer *a)
{
    struct tree t = {.answer = a, .hides_placeholders = ask->hides_placeholders, .to = -1};
    struct identity source = {0};
    bool is_inside = false;

    t.from = open(ask->path, HOLD | O_NOFOLLOW);
    int r = t.from < 0 ? -errno : identify(t.from, &source);
    if (r == 0)
        r = is_within(ask->other, &source, &is_inside);
    if (r == 0 && is_inside) {
        a->refusal = SP_FILE_COPY_INTO_ITSELF;
    } else if (r == 0) {
        t.to = open_target(ask->other, a);
        r = t.to < 0 ? t.to : identify(t.to, &t.into);
        if (r == 0)
            r = copy_levels(&t);
    }
    if (t.from >= 0)
        (void)close(t.from);
    if (t.to >= 0)
        (void)close(t.to);
    return r;
}
