/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch: what has to be watched to learn that a path appears, or that it changes.
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

#define TRIES 64 /* somebody makes and removes directories as fast as we look */

static bool is_there(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0;
}

static bool is_directory(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Cuts the last component off; the length of what is left, at least 1. */
static size_t cut(char *path)
{
    char *slash = strrchr(path, '/');

    slash[slash == path] = 0;
    return strlen(path);
}

static void answer(struct sp_file_answer *a, int low, size_t high)
{
    a->number = (uint64_t)(uint32_t)low | (uint64_t)high << 32;
}

static bool is_link(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
}

/* A directory far above that goes takes everything with it, and what comes in its place may have
 * the path that is meant; so may what a link on the way leads to when it is another. `dir`, which
 * is watched itself, is used up. */
static int watch_far_above(const struct sp_file_ask *ask, char *dir, struct sp_file_answer *a)
{
    struct sp_room room = {.answer = a};
    int r = 0;

    while (r == 0 && dir[1] != 0) {
        const bool has_link = is_link(dir);
        const uint32_t len = (uint32_t)cut(dir);
        const int id =
            sp_notify_add(ask->fd, dir, SP_NOTIFY_FOLDER | (has_link ? SP_NOTIFY_NAMES : 0U));
        const struct sp_file_above above = {.watch = id, .len = has_link ? len : 0};

        r = id < 0 ? id : sp_room_add(&room, &above, sizeof above);
    }
    return r < 0 ? r : sp_room_done(&room);
}

/* Watches the nearest directory above. 1: the next component has come meanwhile: look again. */
static int watch_above(const struct sp_file_ask *ask, struct sp_file_answer *a)
{
    auto_free char *dir = strdup(ask->path);
    auto_free char *next = NULL;

    if (dir == NULL)
        return -ENOMEM;
    for (size_t n = strlen(dir); n > 1 && dir[n - 1] == '/'; n--)
        dir[n - 1] = 0;
    size_t len;
    do {
        free(next);
        next = strdup(dir);
        len = cut(dir);
    } while (next != NULL && len > 1 && !is_directory(dir));
    if (next == NULL)
        return -ENOMEM;
    if (is_link(next)) /* to nothing yet: what it leads to may appear anywhere */
        return -ELOOP;
    const int id = sp_notify_add(ask->fd, dir, SP_NOTIFY_NAMES | SP_NOTIFY_FOLDER);
    if (id < 0)
        return id;
    answer(a, id, len);
    const int r = watch_far_above(ask, dir, a);
    return r < 0 ? r : is_directory(next);
}

int sp_watch_missing(const struct sp_file_ask *ask, struct sp_file_answer *a)
{
    int r = 1;

    for (int i = 0; r > 0 && i < TRIES; i++)
        r = is_there(ask->path) ? -EEXIST : watch_above(ask, a);
    if (r == 0 && is_there(ask->path))
        return -EEXIST;
    return r > 0 ? -EBUSY : r;
}

int sp_watch_present(const struct sp_file_ask *ask, struct sp_file_answer *a)
{
    auto_free char *dir = strdup(ask->path);

    if (dir == NULL)
        return -ENOMEM;
    const int self = sp_notify_add(ask->fd, ask->path, SP_NOTIFY_CONTENTS | SP_NOTIFY_OWN_LINKS);
    if (self < 0)
        return self;
    (void)cut(dir);
    const int id = sp_notify_add(ask->fd, dir, SP_NOTIFY_NAMES | SP_NOTIFY_FOLDER);
    if (id < 0)
        return id;
    answer(a, id, (size_t)self);
    const int r = watch_far_above(ask, dir, a);
    if (r < 0)
        return r;
    return is_there(ask->path) ? 0 : -ENOENT;
}
