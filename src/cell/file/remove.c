/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remove: one thing, or a directory with all that is in it. A link is removed itself.
 *
 * A tree of any depth is removed with two descriptors: down by name without following links, up by
 * "..", which must be the directory that we came from. What is above it need not be readable.
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

#define HOLD         (O_PATH | O_DIRECTORY | O_CLOEXEC)
#define MAX_REFILLED 1000 /* somebody puts things back as fast as we take them away */

struct level {
    struct level *above;
    dev_t dev;
    ino_t ino; /* of the directory that this one is in */
    char name[];
};

struct tree {
    int dir; /* being emptied */
    struct level *level;
    unsigned refilled;
};

static int descend(struct tree *t, const char *name)
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

/* Back into the directory above. */
static int ascend(struct tree *t)
{
    struct stat st;
    const int dir = openat(t->dir, "..", HOLD);

    if (dir < 0)
        return -errno;
    if (fstat(dir, &st) < 0 || st.st_dev != t->level->dev || st.st_ino != t->level->ino) {
        (void)close(dir);
        return -EBUSY; /* moved away meanwhile: what is above us now is not ours to touch */
    }
    (void)close(t->dir);
    t->dir = dir;
    return 0;
}

/* 1: removed; 0: a directory with something in it. */
static int remove_one(int dir, const char *name)
{
    if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
        return 1;
    if (errno != EISDIR && errno != EPERM)
        return -errno;
    const int err = errno; /* of a file that may not be removed: EPERM, too */
    if (unlinkat(dir, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return 1;
    if (errno == ENOTEMPTY || errno == EEXIST)
        return 0;
    return errno == ENOTDIR ? -err : -errno;
}

/* Removes what is directly in t->dir; 1: it is empty; 0: we are one level further down now. */
static int empty(struct tree *t)
{
    const int copy = openat(t->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *names = copy < 0 ? NULL : fdopendir(copy);
    const struct dirent *d;
    int r = 1;

    if (names == NULL) {
        r = -errno;
        if (copy >= 0)
            (void)close(copy);
        return r;
    }
    while (r == 1 && (errno = 0, d = readdir(names)) != NULL) {
        if (sp_is_dots(d->d_name))
            continue;
        r = remove_one(t->dir, d->d_name);
        if (r == 0) {
            r = descend(t, d->d_name);
            r = r == -ENOENT || r == -ENOTDIR || r == -ELOOP ? 1 : r; /* another thing by now */
            if (r == 0)
                break;
        }
    }
    if (r == 1 && errno != 0)
        r = -errno;
    (void)closedir(names);
    return r;
}

/* The directory that has just been emptied, from above. 1: gone. */
static int remove_level(struct tree *t)
{
    struct level *l = t->level;
    int r = ascend(t);

    if (r < 0)
        return r;
    t->level = l->above;
    r = remove_one(t->dir, l->name);
    if (r == 0)
        r = ++t->refilled > MAX_REFILLED ? -ENOTEMPTY : descend(t, l->name);
    free(l);
    return r;
}

static int remove_all(int parent, const char *name)
{
    struct tree t = {.dir = openat(parent, ".", HOLD)};
    int r = t.dir < 0 ? -errno : descend(&t, name);

    while (r >= 0 && t.level != NULL) {
        r = empty(&t);
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

/* Where it is: the directory and its name there. */
static int find(const struct sp_file_ask *ask, int *ret_dir, char **ret_name)
{
    auto_free char *path = strdup(ask->path);

    if (path == NULL)
        return -ENOMEM;
    for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--)
        path[n - 1] = 0;
    char *slash = strrchr(path, '/');
    if (slash == NULL || slash[1] == 0)
        return -EBUSY; /* the root */
    if (sp_is_dots(slash + 1))
        return -EINVAL; /* no name of anything: what is meant would be emptied from within */
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
    return ask->is_recursive && (errno == ENOTEMPTY || errno == EEXIST) ? remove_all(dir, name)
                                                                        : -errno;
}

static int remove_without_links(const struct sp_file_ask *ask, struct sp_file_answer *a)
{
    auto_close int dir = -1;
    struct stat st;
    const char *name;
    const int r = sp_place_parent(AT_FDCWD, ask->path, &dir, &name);

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

int sp_remove(const struct sp_file_ask *ask, struct sp_file_answer *a)
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
        r = find(ask, &dir, &name);
        if (r == 0)
            r = remove_at(ask, dir, name);
    }
    return r == -ENOENT && ask->is_forced ? 0 : r;
}
