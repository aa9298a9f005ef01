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
#include "cell/file/file_priv.h"

#define MODE 0777

static bool is_directory(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static const char *last_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash == NULL ? path : slash + 1;
}

/* What stands in for this name while somebody is kept from it becomes a directory of its own: with
 * another mode it is none of those any more, and nobody takes it away. */
static bool adopt(int dir, const char *path)
{
    const char *name = last_of(path);

    if (name[0] != '.')
        return false;
    auto_close int fd = openat(dir, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || !sp_look_is_placeholder(fd, ".", name))
        return false;
    const mode_t mask = umask(0);
    (void)umask(mask);
    return fchmod(fd, MODE & ~mask) == 0;
}

/* The same of those above: they are empty, so there is at most one. */
static void adopt_above(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        (void)adopt(AT_FDCWD, path);
        *slash = '/';
    }
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
    if (ask->hides_placeholders && adopt(AT_FDCWD, path))
        return 0;
    if (ask->hides_placeholders && ask->is_recursive)
        adopt_above(path);
    if (ask->is_recursive)
        return make_all(path);
    return mkdir(path, MODE) < 0 ? -errno : 0;
}

/* The next component, made if need be; *dir is then that. */
static int make_below(int *dir, const char *name, bool adopts)
{
    if (mkdirat(*dir, name, MODE) < 0 && errno != EEXIST)
        return -errno;
    if (adopts)
        (void)adopt(*dir, name);
    const int next = openat(*dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (next < 0)
        return -errno;
    (void)close(*dir);
    *dir = next;
    return 0;
}

static int make_all_without_links(const struct sp_file_ask *ask)
{
    auto_free char *path = strdup(ask->path);
    auto_close int dir = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    char *rest = NULL;
    int r = 0;

    if (path == NULL || dir < 0)
        return path == NULL ? -ENOMEM : -errno;
    for (char *name = strtok_r(path, "/", &rest); name != NULL && r == 0;
         name = strtok_r(NULL, "/", &rest))
        r = make_below(&dir, name, ask->hides_placeholders);
    return r;
}

static int make_without_links(const struct sp_file_ask *ask)
{
    auto_close int dir = -1;
    const char *name;

    if (ask->is_recursive)
        return make_all_without_links(ask);
    const int r = sp_place_parent(AT_FDCWD, ask->path, &dir, &name);
    if (r < 0)
        return r;
    if (ask->hides_placeholders && adopt(dir, name))
        return 0;
    return mkdirat(dir, name[0] == 0 ? "." : name, MODE) < 0 ? -errno : 0;
}

int sp_make(const struct sp_file_ask *ask, struct sp_file_answer *a)
{
    (void)a;
    return ask->follows ? make_through_links(ask) : make_without_links(ask);
}
