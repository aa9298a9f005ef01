/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy: a file, a link or a tree. What is in a tree is reached without following links, on both
 * sides; a file is never copied onto itself, whatever its names.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "file/file_priv.h"

#define BUFFER (128U << 10)
#define PIECE  (1U << 30)

/* ---- one file ---- */

/* With a buffer: where the kernel does not copy by itself. */
static int pour_by_hand(int from, int to)
{
    auto_free char *buffer = malloc(BUFFER);

    if (buffer == NULL)
        return -ENOMEM;
    for (;;) {
        const ssize_t n = read(from, buffer, BUFFER);

        if (n == 0)
            return 0;
        if (n < 0 && errno != EINTR)
            return -errno;
        for (ssize_t at = 0; at < n;) {
            const ssize_t done = write(to, buffer + at, (size_t)(n - at));

            if (done < 0 && errno != EINTR)
                return -errno;
            at += done > 0 ? done : 0;
        }
    }
}

static int pour(int from, int to)
{
    ssize_t n;

    while ((n = copy_file_range(from, NULL, to, NULL, PIECE, 0)) > 0)
        continue;
    /* Other file systems, old kernels and filters: what was copied so far stays. A file of /proc
     * says 0 at once, although there is something in it. */
    if (n < 0 && (errno == ENOSPC || errno == EIO || errno == EDQUOT || errno == EFBIG))
        return -errno;
    return pour_by_hand(from, to);
}

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* The target is emptied only when it is known to be another file. */
static int copy_file(int from, int to_dir, const char *to_name, int to_flags,
                     struct sp_file_answer *a)
{
    struct stat source;
    struct stat target;

    if (fstat(from, &source) < 0)
        return -errno;
    if (!S_ISREG(source.st_mode)) {
        a->refusal = SP_FILE_COPY_KIND;
        return 0;
    }
    auto_close int to =
        openat(to_dir, to_name, O_WRONLY | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | to_flags,
               source.st_mode & 0777);
    if (to < 0 || fstat(to, &target) < 0)
        return -errno;
    if (is_same(&source, &target)) {
        a->refusal = SP_FILE_COPY_ONTO_ITSELF;
        return 0;
    }
    if (S_ISREG(target.st_mode) && target.st_size != 0 && ftruncate(to, 0) < 0)
        return -errno;
    const int r = pour(from, to);
    if (r == 0 && S_ISREG(target.st_mode) && fchmod(to, source.st_mode & 0777) < 0)
        return -errno;
    return r;
}

static int copy_link(int from_dir, const char *from_name, int to_dir, const char *to_name)
{
    char target[PATH_MAX];
    const ssize_t n = readlinkat(from_dir, from_name, target, sizeof target);

    if (n < 0)
        return -errno;
    if ((size_t)n == sizeof target)
        return -ENAMETOOLONG;
    target[n] = 0;
    return symlinkat(target, to_dir, to_name) < 0 ? -errno : 0;
}

/* ---- a tree ---- */

struct pending {
    struct pending *next;
    char path[]; /* below both roots */
};

struct tree {
    int from, to;     /* the two roots */
    struct stat into; /* the root of the copy: not to be copied into itself */
    struct pending *first, *last;
    struct sp_file_answer *answer;
};

static bool enqueue(struct tree *t, const char *path, const char *name)
{
    const size_t n = strlen(path);
    struct pending *p = malloc(sizeof *p + n + strlen(name) + 2);

    if (p == NULL)
        return false;
    p->next = NULL;
    char *end = stpcpy(p->path, path);
    if (n != 0)
        *end++ = '/';
    (void)stpcpy(end, name);
    *(t->first == NULL ? &t->first : &t->last->next) = p;
    t->last = p;
    return true;
}

static int copy_directory(struct tree *t, int from, int to, const char *path, const char *name)
{
    struct stat st;

    if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    if (is_same(&st, &t->into))
        return 0;
    if (mkdirat(to, name, 0777) < 0 && errno != EEXIST)
        return -errno;
    return enqueue(t, path, name) ? 0 : -ENOMEM;
}

static int copy_entry(struct tree *t, int from, int to, const char *path, const char *name)
{
    struct stat st;

    if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -errno;
    if (S_ISDIR(st.st_mode))
        return copy_directory(t, from, to, path, name);
    if (S_ISLNK(st.st_mode))
        return copy_link(from, name, to, name);
    if (!S_ISREG(st.st_mode))
        return 0;
    auto_close int fd = openat(from, name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : -errno;
    const int r = copy_file(fd, to, name, O_NOFOLLOW, t->answer);
    if (t->answer->refusal == SP_FILE_COPY_KIND) /* another thing by now */
        t->answer->refusal = SP_FILE_NOT_REFUSED;
    return r;
}

static int copy_names(struct tree *t, DIR *names, int to, const char *path)
{
    const struct dirent *d;

    while ((errno = 0, d = readdir(names)) != NULL) {
        const int r = sp_is_dots(d->d_name) ? 0 : copy_entry(t, dirfd(names), to, path, d->d_name);

        if (r < 0 || t->answer->refusal != SP_FILE_NOT_REFUSED)
            return r;
    }
    return -errno;
}

static int copy_level(struct tree *t, const char *path)
{
    auto_close int to = sp_place_open_dir(t->to, path);
    auto_close int from = sp_place_open_dir(t->from, path);

    if (from < 0 || to < 0)
        return from < 0 ? from : to;
    DIR *names = fdopendir(from);
    if (names == NULL)
        return -errno;
    from = -1;
    const int r = copy_names(t, names, to, path);
    (void)closedir(names);
    return r;
}

static int copy_levels(struct tree *t)
{
    int r = enqueue(t, "", "") ? 0 : -ENOMEM;

    while (t->first != NULL) {
        struct pending *p = t->first;

        if (r == 0 && t->answer->refusal == SP_FILE_NOT_REFUSED)
            r = copy_level(t, p->path);
        t->first = p->next;
        free(p);
    }
    return r;
}

/* Whether `path`, or the nearest directory above it that is there, is in the tree below `root`. */
static int is_within(const char *path, const struct stat *root, bool *ret)
{
    auto_free char *at = strdup(path);
    struct stat st;

    *ret = false;
    if (at == NULL)
        return -ENOMEM;
    while (stat(at, &st) < 0) {
        char *slash = strrchr(at, '/');

        if ((errno != ENOENT && errno != ENOTDIR) || slash == NULL)
            return 0; /* making it will say what is wrong */
        slash[slash == at] = 0;
        if (slash == at && stat(at, &st) < 0)
            return -errno;
    }
    auto_close int dir = open(at, O_PATH | O_CLOEXEC);
    for (int i = 0; dir >= 0 && i < PATH_MAX; i++) {
        struct stat here;

        if (fstat(dir, &here) < 0)
            return -errno;
        if (is_same(&here, root)) {
            *ret = true;
            return 0;
        }
        const int up = openat(dir, "..", O_PATH | O_CLOEXEC);
        if (up < 0 || fstat(up, &st) < 0 || is_same(&st, &here)) {
            if (up >= 0)
                (void)close(up);
            return 0; /* the root, or no directory */
        }
        (void)close(dir);
        dir = up;
    }
    return 0;
}

static int copy_tree(const struct sp_file_ask *ask, struct sp_file_answer *a)
{
    struct tree t = {.answer = a};
    struct stat source;
    bool is_inside;
    auto_close int from = open(ask->path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (from < 0 || fstat(from, &source) < 0)
        return -errno;
    const int r = is_within(ask->other, &source, &is_inside);
    if (r < 0)
        return r;
    if (is_inside) {
        a->refusal = SP_FILE_COPY_INTO_ITSELF;
        return 0;
    }
    if (mkdir(ask->other, 0777) < 0 && errno != EEXIST)
        return -errno;
    auto_close int to = open(ask->other, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (to < 0 || fstat(to, &t.into) < 0)
        return -errno;
    t.from = from;
    t.to = to;
    return copy_levels(&t);
}

int sp_copy(const struct sp_file_ask *ask, struct sp_file_answer *a)
{
    struct stat st;

    if (lstat(ask->path, &st) < 0)
        return -errno;
    if (S_ISLNK(st.st_mode))
        return copy_link(AT_FDCWD, ask->path, AT_FDCWD, ask->other);
    if (S_ISDIR(st.st_mode)) {
        if (ask->is_recursive)
            return copy_tree(ask, a);
        a->refusal = SP_FILE_COPY_TREE;
        return 0;
    }
    if (!S_ISREG(st.st_mode)) {
        a->refusal = SP_FILE_COPY_KIND;
        return 0;
    }
    auto_close int from = open(ask->path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    return from < 0 ? -errno : copy_file(from, AT_FDCWD, ask->other, 0, a);
}
