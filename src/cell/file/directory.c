/* SPDX-License-Identifier: Apache-2.0 */
/*
 * directory: makes directories, with their parents if asked; removes a path or a whole tree; copies
 * a file, a symlink, or a directory with everything below it. A symlink is removed itself. A file
 * is never copied onto itself, under any of its names.
 *
 * A tree of any depth is removed or copied with one descriptor a side: down by name without
 * following symlinks, up by "..", which must be the directory that we came from. What is above need
 * not be readable. When a directory is copied, its files are copied at once, and the names of its
 * subdirectories are kept until their turn comes.
 */
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/auto.h"
#include "base/buf.h"
#include "base/io.h"
#include "cell/file/file_priv.h"

#define MODE         0777
#define HOLD         (O_PATH | O_DIRECTORY | O_CLOEXEC)
#define SOURCE       (O_RDONLY | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW | O_CLOEXEC)
#define MAX_REFILLED 1000    /* gives up if a process keeps refilling the tree */
#define MAX_ABOVE    1000000 /* gives up if a process keeps moving directories while we climb */
#define BUFFER       (128U << 10)
#define PIECE        (16U << 20)

/* ---- making ---- */

/* Turns the placeholder at `path` into an ordinary directory. With its new mode it no longer is a
 * placeholder, so the front does not remove it. */
static bool adopt_placeholder(int dir, const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash == NULL ? path : slash + 1;
    struct stat st;

    if (name[0] != '.')
        return false;
    auto_close int fd = openat(dir, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || !sp_file_is_placeholder(fd, ".", name) || fstat(fd, &st) < 0)
        return false;
    const mode_t mask = umask(0);
    (void)umask(mask);
    return fchmod(fd, (MODE & ~mask) | (st.st_mode & S_ISGID)) == 0;
}

/* An existing directory counts as made. */
static int make_one(const char *path)
{
    struct stat st;

    if (mkdir(path, MODE) == 0)
        return 0;
    const int err = errno;
    return err == EEXIST && stat(path, &st) == 0 && S_ISDIR(st.st_mode) ? 0 : -err;
}

static int make_through_links(const struct sp_file_request *request)
{
    auto_free char *path = strdup(request->path);

    if (path == NULL)
        return -ENOMEM;
    if (request->hides_placeholders && adopt_placeholder(AT_FDCWD, path))
        return 0;
    if (!request->is_recursive)
        return mkdir(path, MODE) < 0 ? -errno : 0;
    if (request
            ->hides_placeholders) /* among the ancestors at most one is: a placeholder is empty */
        for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
            *slash = 0;
            (void)adopt_placeholder(AT_FDCWD, path);
            *slash = '/';
        }
    /* Goes up from the last component to one that can be made, then down again: ancestors that
     * exist are never touched. */
    const size_t whole = strlen(path);
    size_t len = whole;
    int r;
    while ((r = make_one(path)) == -ENOENT) {
        while (len > 1 && path[len - 1] == '/')
            path[--len] = 0;
        char *slash = strrchr(path, '/');
        if (slash == NULL || slash == path)
            break;
        *slash = 0;
        len = (size_t)(slash - path);
    }
    while (r == 0 && len < whole) {
        path[len] = '/';
        len = strlen(path);
        r = make_one(path);
    }
    return r;
}

int sp_file_op_make(const struct sp_file_request *request, struct sp_file_answer *a)
{
    auto_close int dir = -1;
    const char *last;

    (void)a;
    if (request->follows)
        return make_through_links(request);
    if (!request->is_recursive) {
        const int r = sp_file_open_parent(AT_FDCWD, request->path, &dir, &last);

        if (r < 0)
            return r;
        if (request->hides_placeholders && adopt_placeholder(dir, last))
            return 0;
        return mkdirat(dir, last[0] == 0 ? "." : last, MODE) < 0 ? -errno : 0;
    }

    auto_free char *path = strdup(request->path);
    char *rest = NULL;
    dir = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (path == NULL || dir < 0)
        return path == NULL ? -ENOMEM : -errno;
    for (char *name = strtok_r(path, "/", &rest); name != NULL; name = strtok_r(NULL, "/", &rest)) {
        if (mkdirat(dir, name, MODE) < 0 && errno != EEXIST)
            return -errno;
        if (request->hides_placeholders)
            (void)adopt_placeholder(dir, name);
        const int next = openat(dir, name, HOLD | O_NOFOLLOW);
        if (next < 0)
            return -errno;
        (void)close(dir);
        dir = next;
    }
    return 0;
}

/* ---- removing ---- */

struct identity {
    dev_t dev;
    ino_t ino;
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

struct doomed_level {
    struct doomed_level *above;
    struct identity parent; /* the directory that holds this one */
    char name[];
};

struct doomed_tree {
    int dir; /* being emptied */
    struct doomed_level *level;
    unsigned refilled; /* directories that had entries again when they were to be removed */
};

static int enter_level(struct doomed_tree *t, const char *name)
{
    struct identity parent;
    const int r = identify(t->dir, &parent);

    if (r < 0)
        return r;
    auto_close int dir = openat(t->dir, name, HOLD | O_NOFOLLOW);
    if (dir < 0)
        return -errno;
    struct doomed_level *l = malloc(sizeof *l + strlen(name) + 1);
    if (l == NULL)
        return -ENOMEM;
    *l = (struct doomed_level){.above = t->level, .parent = parent};
    memcpy(l->name, name, strlen(name) + 1);
    t->level = l;
    (void)close(t->dir);
    t->dir = TAKE_FD(dir);
    return 0;
}

/* 1: removed; 0: a directory that is not empty. */
static int remove_one(int dir, const char *name)
{
    if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
        return 1;
    if (errno != EISDIR && errno != EPERM)
        return -errno;
    const int err = errno; /* EPERM may also be a file that must not be removed */
    if (unlinkat(dir, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return 1;
    if (errno == ENOTEMPTY || errno == EEXIST)
        return 0;
    return errno == ENOTDIR ? -err : -errno;
}

/* Removes the entries of t->dir. 1: it is empty; 0: t->dir is now a subdirectory to be emptied. */
static int empty_level(struct doomed_tree *t)
{
    DIR *names = sp_file_read_dir(t->dir, ".", O_NOFOLLOW);
    const struct dirent *d;
    int r = 1;

    if (names == NULL)
        return -errno;
    while (r == 1 && (errno = 0, d = readdir(names)) != NULL) {
        if (sp_is_dots(d->d_name))
            continue;
        r = remove_one(t->dir, d->d_name);
        if (r == 0) {
            r = enter_level(t, d->d_name);
            /* replaced since unlinkat: leave the name to the next pass */
            r = r == -ENOENT || r == -ENOTDIR || r == -ELOOP ? 1 : r;
            if (r == 0)
                break;
        }
    }
    if (r == 1 && errno != 0)
        r = -errno;
    (void)closedir(names);
    return r;
}

/* Goes up and removes the directory that has just been emptied. 1: gone; 0: it was refilled, and
 * t->dir is that directory again. */
static int remove_level(struct doomed_tree *t)
{
    struct doomed_level *l = t->level;
    struct stat st;
    const int above = openat(t->dir, "..", HOLD);

    if (above < 0)
        return -errno;
    if (fstat(above, &st) < 0 || !is_it(&st, &l->parent)) {
        (void)close(above);
        return -EBUSY; /* moved meanwhile: its new parent must not be touched */
    }
    (void)close(t->dir);
    t->dir = above;
    t->level = l->above;
    int r = remove_one(t->dir, l->name);
    if (r == 0)
        r = ++t->refilled > MAX_REFILLED ? -ENOTEMPTY : enter_level(t, l->name);
    free(l);
    return r;
}

static int remove_tree(int parent, const char *name)
{
    struct doomed_tree t = {.dir = openat(parent, ".", HOLD)};
    int r = t.dir < 0 ? -errno : enter_level(&t, name);

    while (r >= 0 && t.level != NULL) {
        r = empty_level(&t);
        if (r == 1)
            r = remove_level(&t);
    }
    while (t.level != NULL) {
        struct doomed_level *l = t.level;

        t.level = l->above;
        free(l);
    }
    if (t.dir >= 0)
        (void)close(t.dir);
    return r < 0 ? r : 0;
}

/* Cuts `path` into its parent, which is opened, and its last component. For "/" and names that are
 * dots, which sp_file_op_remove refuses, the parent is not opened. */
static int open_parent_through_links(char *path, int *ret_dir, const char **ret_name)
{
    for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--)
        path[n - 1] = 0;
    char *slash = strrchr(path, '/');
    *ret_name = slash + 1;
    if (slash[1] == 0 || sp_is_dots(slash + 1))
        return 0;
    *slash = 0;
    *ret_dir = open(slash == path ? "/" : path, HOLD);
    return *ret_dir < 0 ? -errno : 0;
}

static int remove_at(const struct sp_file_request *request, int dir, const char *name,
                     struct sp_file_answer *a)
{
    struct stat st;

    if (name[0] == 0)
        return -EBUSY; /* "/" */
    if (sp_is_dots(name))
        return -EINVAL; /* "." cannot be unlinked: its directory would only be emptied */
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    if (S_ISLNK(st.st_mode) && !request->follows) {
        a->refusal = SP_FILE_HAS_LINK;
        return 0;
    }
    if (unlinkat(dir, name, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0) == 0)
        return 0;
    return S_ISDIR(st.st_mode) && request->is_recursive && (errno == ENOTEMPTY || errno == EEXIST)
               ? remove_tree(dir, name)
               : -errno;
}

int sp_file_op_remove(const struct sp_file_request *request, struct sp_file_answer *a)
{
    auto_free char *path = strdup(request->path);
    auto_close int dir = -1;
    const char *name;

    if (path == NULL)
        return -ENOMEM;
    if (!request->follows && request->is_recursive) {
        a->refusal = SP_FILE_TREE_WITHOUT_LINKS;
        return 0;
    }
    int r = request->follows ? open_parent_through_links(path, &dir, &name)
                             : sp_file_open_parent(AT_FDCWD, path, &dir, &name);
    if (r == 0)
        r = remove_at(request, dir, name, a);
    return r == -ENOENT && request->is_forced ? 0 : r;
}

/* ---- copying data ---- */

static void count_copied(struct sp_file_answer *a, ssize_t n)
{
    a->copied += (uint64_t)n;
    if (a->copied_some != NULL)
        a->copied_some(a, a->copied);
}

/* At most `max` bytes between the current offsets. */
static int copy_bytes(int from, int to, uint64_t max, struct sp_file_answer *a)
{
    static char buffer[BUFFER]; /* one operation at a time */
    bool has_some = false;
    ssize_t n = 0;
    int r = 0;

    while (max > 0 &&
           (n = copy_file_range(from, NULL, to, NULL, max < PIECE ? (size_t)max : PIECE, 0)) > 0) {
        max -= (uint64_t)n;
        has_some = true;
        count_copied(a, n);
    }
    if (max == 0 || (n == 0 && has_some))
        return 0;
    /* Other errors come from file systems, old kernels and filters without the call: go on from the
     * current offsets with a buffer. Files of /proc return 0 at once although they have data. */
    if (n < 0 && (errno == ENOSPC || errno == EIO || errno == EDQUOT || errno == EFBIG))
        return -errno;
    while (r == 0 && max > 0) {
        n = read(from, buffer, max < BUFFER ? (size_t)max : BUFFER);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : 0;
        r = -sp_write_all(to, buffer, (size_t)n);
        max -= (uint64_t)n;
        count_copied(a, n);
    }
    return r;
}

/* Copies the data between holes. `to` is empty, so holes become holes there as well. */
static int copy_sparse(int from, int to, struct sp_file_answer *a)
{
    off_t data = 0;
    off_t hole = 0;
    int r = 0;

    while (r == 0 && (data = lseek(from, hole, SEEK_DATA)) >= 0) {
        hole = lseek(from, data, SEEK_HOLE);
        if (hole < 0 || lseek(from, data, SEEK_SET) < 0 || lseek(to, data, SEEK_SET) < 0)
            return -errno;
        if (hole == data) /* truncated meanwhile */
            break;
        r = copy_bytes(from, to, (uint64_t)(hole - data), a);
    }
    if (r == 0 && data < 0 && errno != ENXIO)
        return -errno;
    const off_t end = lseek(from, 0, SEEK_END);
    return r < 0 ? r : end < 0 || ftruncate(to, end) < 0 ? -errno : 0;
}

/* ---- copying one file or symlink ---- */

/*
 * follows: to_name is a path that may end in a symlink; otherwise it is a name in to_dir. The
 * target is truncated only when fstat has shown another inode, and gets the source's mode before it
 * gets any data.
 */
static int copy_file(int from, int to_dir, const char *to_name, bool follows,
                     struct sp_file_answer *a)
{
    const int flags = O_WRONLY | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    struct stat source;
    struct stat target;
    auto_close int to = -1;

    if (fstat(from, &source) < 0)
        return -errno;
    if (!S_ISREG(source.st_mode)) {
        a->refusal = SP_FILE_COPY_KIND;
        return 0;
    }
    const mode_t mode = source.st_mode & 0777;
    if (follows) {
        to = sp_file_open_to_write(to_name, flags, mode);
        if (to < 0)
            return TAKE_FD(to);
    } else {
        to = openat(to_dir, to_name, flags | O_NOFOLLOW, mode);
        if (to < 0)
            return -errno;
    }
    if (fstat(to, &target) < 0)
        return -errno;
    if (source.st_dev == target.st_dev && source.st_ino == target.st_ino) {
        a->refusal = SP_FILE_COPY_ONTO_ITSELF;
        return 0;
    }
    /* The holes of the source would select the addresses to write. */
    if (sp_file_is_process_memory(to)) {
        a->refusal = SP_FILE_COPY_KIND;
        return 0;
    }
    if (!S_ISREG(target.st_mode))
        return copy_bytes(from, to, UINT64_MAX, a);
    if (((target.st_mode & 0777) != mode && fchmod(to, mode) < 0) ||
        (target.st_size != 0 && ftruncate(to, 0) < 0))
        return -errno;
    const bool has_holes = (uint64_t)source.st_blocks * 512 < (uint64_t)source.st_size;
    const int r = has_holes ? copy_sparse(from, to, a) : copy_bytes(from, to, UINT64_MAX, a);
    const int closed = sp_file_close(TAKE_FD(to));
    return r < 0 ? r : closed;
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

/* ---- copying trees ---- */

struct copied_level {
    struct copied_level *above;
    struct identity from_above, to_above;
    struct sp_buf names; /* of the subdirectories, each with its NUL */
    size_t at;           /* offset in names of the next one */
};

struct copied_tree {
    int from, to;         /* the directories that are being copied */
    struct identity into; /* the root of the copy, which is not copied into itself */
    bool hides_placeholders;
    struct copied_level *level;
    struct sp_file_answer *answer;
};

static int copy_entry(struct copied_tree *t, const char *name)
{
    struct stat st;

    if (fstatat(t->from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -errno;
    if (S_ISDIR(st.st_mode)) {
        if (is_it(&st, &t->into) ||
            (t->hides_placeholders && sp_file_is_placeholder(t->from, name, name)))
            return 0;
        return sp_buf_add(&t->level->names, name, strlen(name) + 1) ? 0 : -ENOMEM;
    }
    if (S_ISLNK(st.st_mode)) {
        const int r = copy_link(t->from, name, t->to, name);

        return r == -EINVAL || r == -ENOENT ? 0 : r; /* replaced or removed since fstatat */
    }
    if (!S_ISREG(st.st_mode))
        return 0;
    auto_close int fd = openat(t->from, name, SOURCE);
    if (fd < 0)
        return errno == ENOENT || errno == ELOOP ? 0 : -errno;
    const int r = copy_file(fd, t->to, name, false, t->answer);
    if (t->answer->refusal == SP_FILE_COPY_KIND) /* replaced since fstatat */
        t->answer->refusal = SP_FILE_NOT_REFUSED;
    return r;
}

static int copy_entries(struct copied_tree *t)
{
    DIR *names = sp_file_read_dir(t->from, ".", O_NOFOLLOW);
    const struct dirent *d;
    int r = 0;

    if (names == NULL)
        return -errno;
    while (r == 0 && t->answer->refusal == SP_FILE_NOT_REFUSED &&
           (errno = 0, d = readdir(names)) != NULL)
        r = sp_is_dots(d->d_name) ? 0 : copy_entry(t, d->d_name);
    if (r == 0 && t->answer->refusal == SP_FILE_NOT_REFUSED)
        r = -errno;
    (void)closedir(names);
    return r;
}

static int push_level(struct copied_tree *t)
{
    struct copied_level *l = calloc(1, sizeof *l);
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

static void pop_level(struct copied_tree *t)
{
    struct copied_level *l = t->level;

    t->level = l->above;
    sp_buf_done(&l->names);
    free(l);
}

static void change_to(struct copied_tree *t, int from, int to)
{
    (void)close(t->from);
    (void)close(t->to);
    t->from = from;
    t->to = to;
}

static int copy_down(struct copied_tree *t, const char *name)
{
    auto_close int from = openat(t->from, name, HOLD | O_NOFOLLOW);

    if (from < 0) /* removed, or replaced by something else */
        return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? 0 : -errno;
    if (mkdirat(t->to, name, MODE) < 0 && errno != EEXIST)
        return -errno;
    auto_close int to = openat(t->to, name, HOLD | O_NOFOLLOW);
    if (to < 0)
        return -errno;
    const int r = push_level(t);
    if (r < 0)
        return r;
    change_to(t, TAKE_FD(from), TAKE_FD(to));
    return copy_entries(t);
}

static int climb(struct copied_tree *t)
{
    auto_close int from = openat(t->from, "..", HOLD);
    auto_close int to = openat(t->to, "..", HOLD);
    struct stat a;
    struct stat b;

    if (from < 0 || to < 0 || fstat(from, &a) < 0 || fstat(to, &b) < 0)
        return -errno;
    /* The directory was moved meanwhile: its new parent is outside of the tree to be copied. */
    if (!is_it(&a, &t->level->from_above) || !is_it(&b, &t->level->to_above))
        return -EBUSY;
    change_to(t, TAKE_FD(from), TAKE_FD(to));
    pop_level(t);
    return 0;
}

/* Sets *ret if `path`, or its nearest existing ancestor, is `root` or lies below it. */
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
            return 0; /* creating the target reports the error */
        slash[slash == at] = 0;
    }
    for (int i = 0; i < MAX_ABOVE; i++) {
        struct stat here;
        struct stat above;

        if (fstat(dir, &here) < 0)
            return -errno;
        if (is_it(&here, root)) {
            *ret = true;
            return 0;
        }
        const int up = openat(dir, "..", HOLD);
        if (up < 0) /* EACCES: not searchable, so the copy cannot descend through it either */
            return errno == EACCES ? 0 : -errno;
        (void)close(dir);
        dir = up;
        if (fstat(dir, &above) < 0)
            return -errno;
        if (above.st_dev == here.st_dev && above.st_ino == here.st_ino)
            return 0; /* "/" is its own parent */
    }
    return -EBUSY;
}

/* Opens the directory to copy into; makes it, and its parents, if it is missing. O_NOFOLLOW guards
 * a directory that was just made; one that existed may be named through a symlink. */
static int open_target(const char *path)
{
    const struct sp_file_request make = {.path = path, .is_recursive = true};
    const bool is_new = mkdir(path, MODE) == 0 || errno == ENOENT;
    const int r = is_new ? make_through_links(&make) : errno == EEXIST ? 0 : -errno;

    if (r < 0)
        return r;
    const int fd = open(path, HOLD | (is_new ? O_NOFOLLOW : 0));
    if (fd < 0) /* a file in the way: report EEXIST, as mkdir does */
        return !is_new && errno == ENOTDIR ? -EEXIST : -errno;
    return fd;
}

static int copy_tree(const struct sp_file_request *request, struct sp_file_answer *a)
{
    struct copied_tree t = {
        .answer = a, .hides_placeholders = request->hides_placeholders, .to = -1};
    struct identity source = {0};
    bool is_inside = false;

    t.from = open(request->path, HOLD | O_NOFOLLOW);
    int r = t.from < 0 ? -errno : identify(t.from, &source);
    if (r == 0)
        r = is_within(request->other, &source, &is_inside);
    if (r == 0 && is_inside) {
        a->refusal = SP_FILE_COPY_INTO_ITSELF;
    } else if (r == 0) {
        t.to = open_target(request->other);
        r = t.to < 0 ? t.to : identify(t.to, &t.into);
        if (r == 0)
            r = push_level(&t); /* the identities of the first level are never compared */
        if (r == 0)
            r = copy_entries(&t);
    }
    while (r == 0 && t.level != NULL && a->refusal == SP_FILE_NOT_REFUSED) {
        struct copied_level *l = t.level;

        if (l->at < l->names.len) {
            const char *name = l->names.data + l->at;

            l->at += strlen(name) + 1;
            r = copy_down(&t, name);
        } else if (l->above != NULL) {
            r = climb(&t);
        } else {
            pop_level(&t);
        }
    }
    while (t.level != NULL)
        pop_level(&t);
    if (t.from >= 0)
        (void)close(t.from);
    if (t.to >= 0)
        (void)close(t.to);
    return r;
}

int sp_file_op_copy(const struct sp_file_request *request, struct sp_file_answer *a)
{
    struct stat st;

    if (lstat(request->path, &st) < 0)
        return -errno;
    if (S_ISLNK(st.st_mode))
        return copy_link(AT_FDCWD, request->path, AT_FDCWD, request->other);
    if (S_ISDIR(st.st_mode)) {
        if (request->is_recursive)
            return copy_tree(request, a);
        a->refusal = SP_FILE_COPY_TREE;
        return 0;
    }
    if (!S_ISREG(st.st_mode)) {
        a->refusal = SP_FILE_COPY_KIND;
        return 0;
    }
    auto_close int from = open(request->path, SOURCE);
    return from < 0 ? -errno : copy_file(from, AT_FDCWD, request->other, true, a);
}
