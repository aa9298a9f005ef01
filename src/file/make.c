/* SPDX-License-Identifier: Apache-2.0 */
/*
 * make: directories, with those above them if that is asked for.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/auto.h"
#include "file/file_priv.h"

#define MODE 0777

static bool is_directory(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* 0: it is there now. */
static int make_one(const char *path)
{
    if (mkdir(path, MODE) == 0)
        return 0;
    const int err = errno;
    return err == EEXIST && is_directory(path) ? 0 : -err;
}

/* From the end upwards to what is there, then down again: what is above that is never touched. */
static int make_all(char *path)
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
    if (ask->is_recursive)
        return make_all(path);
    return mkdir(path, MODE) < 0 ? -errno : 0;
}

/* The next component, made if need be; *dir is then that. */
static int make_below(int *dir, const char *name)
{
    if (mkdirat(*dir, name, MODE) < 0 && errno != EEXIST)
        return -errno;
    const int next = openat(*dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (next < 0)
        return -errno;
    (void)close(*dir);
    *dir = next;
    return 0;
}

static int make_all_without_links(const char *whole)
{
    auto_free char *path = strdup(whole);
    auto_close int dir = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    char *rest = NULL;
    int r = 0;

    if (path == NULL || dir < 0)
        return path == NULL ? -ENOMEM : -errno;
    for (char *name = strtok_r(path, "/", &rest); name != NULL && r == 0;
         name = strtok_r(NULL, "/", &rest))
        r = make_below(&dir, name);
    return r;
}

static int make_without_links(const struct sp_file_ask *ask)
{
    auto_close int dir = -1;
    const char *name;

    if (ask->is_recursive)
        return make_all_without_links(ask->path);
    const int r = sp_place_parent(AT_FDCWD, ask->path, &dir, &name);
    if (r < 0)
        return r;
    return mkdirat(dir, name[0] == 0 ? "." : name, MODE) < 0 ? -errno : 0;
}

int sp_make(const struct sp_file_ask *ask, struct sp_file_answer *a)
{
    (void)a;
    return ask->follows ? make_through_links(ask) : make_without_links(ask);
}
