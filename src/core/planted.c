/* SPDX-License-Identifier: Apache-2.0 */
#include "core/planted.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/log.h"
#include "core/placeholder.h"
#include "sandbox/canonical.h"

static uint32_t bit_of(const char *name)
{
    for (unsigned i = 0; i < SP_PROTECTED_COUNT; i++)
        if (strcmp(sp_protected_names[i], name) == 0)
            return 1U << i;
    return 0;
}

static struct sp_watched_root *add_root(struct sp_watched *w, const char *path, size_t n)
{
    for (size_t i = 0; i < w->count; i++)
        if (strlen(w->roots[i].path) == n && memcmp(w->roots[i].path, path, n) == 0)
            return &w->roots[i];
    struct sp_watched_root *roots = realloc(w->roots, (w->count + 1) * sizeof *roots);
    if (roots == NULL)
        return NULL;
    w->roots = roots;
    struct sp_watched_root r = {.path = strndup(path, n)};
    if (r.path == NULL)
        return NULL;
    r.fd = sp_open_strictly(AT_FDCWD, r.path, O_PATH | O_DIRECTORY);
    if (r.fd < 0) {
        free(r.path);
        return NULL;
    }
    roots[w->count] = r;
    return &roots[w->count++];
}

bool sp_watched_make(const struct sp_survey *s, struct sp_watched *ret)
{
    struct sp_watched w = {0};

    for (size_t i = 0; i < s->count; i++) {
        const char *slash = s->spots[i].is_watched ? strrchr(s->spots[i].path, '/') : NULL;

        if (slash == NULL)
            continue;
        const size_t n = slash == s->spots[i].path ? 1 : (size_t)(slash - s->spots[i].path);
        struct sp_watched_root *root = add_root(&w, s->spots[i].path, n);
        if (root == NULL) {
            sp_watched_done(&w);
            return false;
        }
        root->names |= bit_of(slash + 1);
    }
    *ret = w;
    return true;
}

void sp_watched_done(struct sp_watched *w)
{
    for (size_t i = 0; i < w->count; i++) {
        (void)close(w->roots[i].fd);
        free(w->roots[i].path);
    }
    free(w->roots);
    *w = (struct sp_watched){0};
}

/* A command may have made it: it belongs to this user, and is no placeholder. */
static bool is_suspect(const struct sp_watched_root *r, const char *name, struct stat *ret)
{
    char path[PATH_MAX];

    if (fstatat(r->fd, name, ret, AT_SYMLINK_NOFOLLOW) < 0 || ret->st_uid != geteuid())
        return false;
    return snprintf(path, sizeof path, "%s/%s", r->path, name) >= (int)sizeof path ||
           !sp_placeholder_is_at(path);
}

static void displace(const struct sp_watched_root *r, const char *name)
{
    struct stat seen;
    struct stat moved;
    unsigned random = 0;
    char other[64];

    if (!is_suspect(r, name, &seen) || getrandom(&random, sizeof random, 0) < 0)
        return;
    (void)snprintf(other, sizeof other, "%s.made-in-sandbox-%08x", name, random);
    if (renameat2(r->fd, name, r->fd, other, RENAME_NOREPLACE) < 0) {
        if (errno != ENOENT)
            sp_log(SP_LOG_ERROR,
                   "%s/%s was made while a command in a sandbox ran, and cannot be renamed: %s; do "
                   "not use it before you have looked at it",
                   r->path, name, strerror(errno));
        return;
    }
    /* Another user's file took the name between fstatat and renameat2: rename it back. */
    if (fstatat(r->fd, other, &moved, AT_SYMLINK_NOFOLLOW) == 0 &&
        (moved.st_dev != seen.st_dev || moved.st_ino != seen.st_ino) && moved.st_uid != geteuid() &&
        renameat2(r->fd, other, r->fd, name, RENAME_NOREPLACE) == 0)
        return;
    sp_log(SP_LOG_WARN,
           "%s/%s was made while a command in a sandbox could make it: it is %s/%s now; if it is "
           "yours, rename it back",
           r->path, name, r->path, other);
}

void sp_watched_displace(const struct sp_watched *w)
{
    for (size_t i = 0; i < w->count; i++)
        for (unsigned k = 0; k < SP_PROTECTED_COUNT; k++)
            if ((w->roots[i].names & 1U << k) != 0)
                displace(&w->roots[i], sp_protected_names[k]);
}
