/* SPDX-License-Identifier: Apache-2.0 */
/*
 * directory: makes directories, with their parents if asked, and removes a path or a whole tree. A
 * symlink is removed itself.
 *
 * A tree of any depth is removed with two descriptors: down by name without following symlinks, up
 * by "..", which must be the directory that we came from. What is above need not be readable.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "cell/file/file_priv.h"

#define MODE         0777
#define HOLD         (O_PATH | O_DIRECTORY | O_CLOEXEC)
#define MAX_REFILLED 1000 /* gives up if a process keeps refilling the tree */

/* ---- making ---- */

/* Turns the placeholder at `path` into an ordinary directory. With its new mode it no longer is a
 * placeholder, so the front does not remove it. */
static bool adopt_placeholder(int dir, const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash == NULL ? path : slash + 1;

    if (name[0] != '.')
        return false;
    auto_close int fd = openat(dir, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || !sp_file_is_placeholder(fd, ".", name))
        return false;
    const mode_t mask = umask(0);
    (void)umask(mask);
    return fchmod(fd, MODE & ~mask) == 0;
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

/* Goes up from the last component to one that can be made, then down again: ancestors that exist
 * are never touched. */
static int make_with_parents(char *path)
{
    size_t len = strlen(path);
    const size_t whole = len;
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

static int make_through_links(const struct sp_file_ask *ask)
{
    auto_free char *path = strdup(ask->path);

    if (path == NULL)
        return -ENOMEM;
    if (ask->hides_placeholders && adopt_placeholder(AT_FDCWD, path))
        return 0;
    if (!ask->is_recursive)
        return mkdir(path, MODE) < 0 ? -errno : 0;
    if (ask->hides_placeholders) /* among the ancestors at most one is: a placeholder is empty */
        for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
            *slash = 0;
            (void)adopt_placeholder(AT_FDCWD, path);
            *slash = '/';
        }
    return make_with_parents(path);
}

static int make_parents_without_links(const struct sp_file_ask *ask)
{
    auto_free char *path = strdup(ask->path);
    auto_close int dir = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    char *rest = NULL;

    if (path == NULL || dir < 0)
        return path == NULL ? -ENOMEM : -errno;
    for (char *name = strtok_r(path, "/", &rest); name != NULL; name = strtok_r(NULL, "/", &rest)) {
        if (mkdirat(dir, name, MODE) < 0 && errno != EEXIST)
            return -errno;
        if (ask->hides_placeholders)
            (void)adopt_placeholder(dir, name);
        const int next = openat(dir, name, HOLD | O_NOFOLLOW);
        if (next < 0)
            return -errno;
        (void)close(dir);
        dir = next;
    }
    return 0;
}

int sp_file_op_make(const struct sp_file_ask *ask, struct sp_file_answer *a)
{
    auto_close int dir = -1;
    const char *name;

    (void)a;
    if (ask->follows)
        return make_through_links(ask);
    if (ask->is_recursive)
        return make_parents_without_links(ask);
    const int r = sp_file_open_parent(AT_FDCWD, ask->path, &dir, &name);
    if (r < 0)
        return r;
    if (ask->hides_placeholders && adopt_placeholder(dir, name))
        return 0;
    return mkdirat(dir, name[0] == 0 ? "." : name, MODE) < 0 ? -errno : 0;
}

/* ---- removing ---- */

struct level {
    struct level *above;
    dev_t dev; /* dev, ino: the directory that holds this one */
    ino_t ino;
    char name[];
};

struct tree {
    int dir; /* being emptied */
    struct level *level;
    unsigned refilled; /* directories that had entries again when they were to be removed */
};

static int enter_level(struct tree *t, const char *name)
{
    struct stat st;

    if (fstat(t->dir, &st) < 0)
        return -errno;
    const int dir = openat(t->dir, name, HOLD | O_NOFOLLOW);
    if (dir < 0)
        return -errno;
    struct level *l = malloc(sizeof *l + strlen(name) + 1);
    if (l == NULL) {
        (void)close(dir);
        return -ENOMEM;
    }
    *l = (struct level){.above = t->level, .dev = st.st_dev, .ino = st.st_ino};
    memcpy(l->name, name, strlen(name) + 1);
    t->level = l;
    (void)close(t->dir);
    t->dir = dir;
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
static int empty_level(struct tree *t)
{
    DIR *names = sp_file_read_dir(t->dir, ".");
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
static int remove_level(struct tree *t)
{
    struct level *l = t->level;
    struct stat st;
    const int above = openat(t->dir, "..", HOLD);

    if (above < 0)
        return -errno;
    if (fstat(above, &st) < 0 || st.st_dev != l->dev || st.st_ino != l->ino) {
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
    struct tree t = {.dir = openat(parent, ".", HOLD)};
    int r = t.dir < 0 ? -errno : enter_level(&t, name);

    while (r >= 0 && t.level != NULL) {
        r = empty_level(&t);
        if (r == 1)
            r = remove_level(&t);
    }
    while (t.level != NULL) {
        struct level *l = t.level;

        t.level = l->above;
        free(l);
    }
    if (t.dir >= 0)
        (void)close(t.dir);
    return r < 0 ? r : 0;
}

/* Opens the parent of ask->path; *ret_name is the last component. */
static int open_parent_through_links(const struct sp_file_ask *ask, int *ret_dir, char **ret_name)
{
    auto_free char *path = strdup(ask->path);

    if (path == NULL)
        return -ENOMEM;
    for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--)
        path[n - 1] = 0;
    char *slash = strrchr(path, '/');
    if (slash == NULL || slash[1] == 0)
        return -EBUSY; /* "/" */
    if (sp_is_dots(slash + 1))
        return -EINVAL; /* "." cannot be unlinked: its directory would only be emptied */
    *ret_name = strdup(slash + 1);
    if (*ret_name == NULL)
        return -ENOMEM;
    slash[slash == path] = 0;
    *ret_dir = open(path, HOLD);
    return *ret_dir < 0 ? -errno : 0;
}

static int remove_at(const struct sp_file_ask *ask, int dir, const char *name)
{
    struct stat st;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    if (!S_ISDIR(st.st_mode))
        return unlinkat(dir, name, 0) < 0 ? -errno : 0;
    if (unlinkat(dir, name, AT_REMOVEDIR) == 0)
        return 0;
    return ask->is_recursive && (errno == ENOTEMPTY || errno == EEXIST) ? remove_tree(dir, name)
                                                                        : -errno;
}

static int remove_without_links(const struct sp_file_ask *ask, struct sp_file_answer *a)
{
    auto_close int dir = -1;
    struct stat st;
    const char *name;
    const int r = sp_file_open_parent(AT_FDCWD, ask->path, &dir, &name);

    if (r < 0)
        return r;
    if (name[0] == 0)
        return -EBUSY;
    if (sp_is_dots(name))
        return -EINVAL;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    if (S_ISLNK(st.st_mode)) {
        a->refusal = SP_FILE_HAS_LINK;
        return 0;
    }
    return remove_at(ask, dir, name);
}

int sp_file_op_remove(const struct sp_file_ask *ask, struct sp_file_answer *a)
{
    auto_close int dir = -1;
    auto_free char *name = NULL;
    int r;

    if (!ask->follows && ask->is_recursive) {
        a->refusal = SP_FILE_TREE_WITHOUT_LINKS;
        return 0;
    }
    if (!ask->follows) {
        r = remove_without_links(ask, a);
    } else {
        r = open_parent_through_links(ask, &dir, &name);
        if (r == 0)
            r = remove_at(ask, dir, name);
    }
    return r == -ENOENT && ask->is_forced ? 0 : r;
}
