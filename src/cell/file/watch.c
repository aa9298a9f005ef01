/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch: adds the inotify watches that tell when a path appears or changes.
 *
 * A path also changes when one of its ancestors is moved or removed, or when a symlink among them
 * is pointed elsewhere. So each ancestor is watched, too.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "cell/file/file_priv.h"
#include "os/notify.h"

#define TRIES 64 /* gives up if a process keeps making and removing ancestors */

static bool exists(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0;
}

static bool is_directory(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool is_link(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
}

/* Cuts the last component off; returns the length of the rest, at least 1. */
static size_t cut_last(char *path)
{
    char *slash = strrchr(path, '/');

    slash[slash == path] = 0;
    return strlen(path);
}

/* The two halves of SP_FILE_WATCH_*'s number. */
static uint64_t pack(int low, size_t high)
{
    return (uint64_t)(uint32_t)low | (uint64_t)high << 32;
}

/* Watches each ancestor of `dir`, which is watched already. Cuts `dir` down to "/". */
static int watch_ancestors(const struct sp_file_ask *ask, char *dir, struct sp_file_answer *a)
{
    struct sp_file_out out = {.answer = a};
    int r = 0;

    while (r == 0 && dir[1] != 0) {
        const bool has_link = is_link(dir);
        const uint32_t len = (uint32_t)cut_last(dir);
        const int id =
            sp_notify_add(ask->fd, dir, SP_NOTIFY_FOLDER | (has_link ? SP_NOTIFY_NAMES : 0U));
        const struct sp_file_above above = {.watch = id, .len = has_link ? len : 0};

        r = id < 0 ? id : sp_file_out_add(&out, &above, sizeof above);
    }
    return r < 0 ? r : sp_file_out_done(&out);
}

/* Watches the nearest existing directory above the path. 1: the next component has appeared
 * meanwhile, so the caller tries again. */
static int watch_above(const struct sp_file_ask *ask, struct sp_file_answer *a)
{
    auto_free char *dir = strdup(ask->path);
    auto_free char *next = NULL;
    size_t len;

    if (dir == NULL)
        return -ENOMEM;
    for (size_t n = strlen(dir); n > 1 && dir[n - 1] == '/'; n--)
        dir[n - 1] = 0;
    do {
        free(next);
        next = strdup(dir);
        len = cut_last(dir);
    } while (next != NULL && len > 1 && !is_directory(dir));
    if (next == NULL)
        return -ENOMEM;
    if (is_link(next)) /* dangling: its target may appear anywhere */
        return -ELOOP;
    const int id = sp_notify_add(ask->fd, dir, SP_NOTIFY_NAMES | SP_NOTIFY_FOLDER);
    if (id < 0)
        return id;
    a->number = pack(id, len);
    const int r = watch_ancestors(ask, dir, a);
    return r < 0 ? r : is_directory(next);
}

int sp_file_op_watch_missing(const struct sp_file_ask *ask, struct sp_file_answer *a)
{
    int r = 1;

    for (int i = 0; r > 0 && i < TRIES; i++)
        r = exists(ask->path) ? -EEXIST : watch_above(ask, a);
    if (r == 0 && exists(ask->path)) /* created before the watches were in place */
        return -EEXIST;
    return r > 0 ? -EBUSY : r;
}

int sp_file_op_watch_present(const struct sp_file_ask *ask, struct sp_file_answer *a)
{
    auto_free char *dir = strdup(ask->path);

    if (dir == NULL)
        return -ENOMEM;
    const int self = sp_notify_add(ask->fd, ask->path, SP_NOTIFY_CONTENTS | SP_NOTIFY_OWN_LINKS);
    if (self < 0)
        return self;
    (void)cut_last(dir);
    const int id = sp_notify_add(ask->fd, dir, SP_NOTIFY_NAMES | SP_NOTIFY_FOLDER);
    if (id < 0)
        return id;
    a->number = pack(id, (size_t)self);
    const int r = watch_ancestors(ask, dir, a);
    if (r < 0)
        return r;
    return exists(ask->path) ? 0 : -ENOENT;
}
