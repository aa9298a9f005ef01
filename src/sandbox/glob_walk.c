/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/glob_walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/buf.h"
#include "sandbox/budget.h"

/* A directory that waits: its depth and its path below the root, one record behind the other. */
struct waiting {
    size_t depth;
    size_t len; /* of the path, which comes before this */
};

struct walk {
    const struct sp_glob_walk *w;
    int root;
    size_t max_depth;
    struct sp_buf stack;
    struct waiting now;
    char below[PATH_MAX]; /* the directory that is read now */
};

static int full_path(const struct walk *k, const char *name, char path[PATH_MAX], struct sp_err *e)
{
    const bool is_top = k->w->root[1] == 0;
    const int n = snprintf(path, PATH_MAX, "%s%s%s%s%s", is_top ? "" : k->w->root,
                           k->now.len != 0 ? "/" : "", k->below, name[0] != 0 ? "/" : "", name);

    if (n < 0 || n >= PATH_MAX)
        return sp_fail(e, SP_E_INVALID, ENAMETOOLONG, "expand a glob below %.300s", k->w->root);
    return 0;
}

static int cannot_walk(const struct walk *k, const char *name, int err, struct sp_err *e)
{
    char path[PATH_MAX];
    const int r = full_path(k, name, path, e);

    return r < 0 ? r : sp_fail(e, SP_E_SYSTEM, err, "expand a glob at %.300s", path);
}

/* ---- the stack ---- */

static int push(struct walk *k, const char *below, size_t len, size_t depth, struct sp_err *e)
{
    const struct waiting record = {.depth = depth, .len = len};

    if (sp_buf_room(&k->stack, len + sizeof record) == NULL)
        return sp_fail(e, SP_E_LIMIT, 0, "expand a glob below %.300s: too many directories",
                       k->w->root);
    (void)sp_buf_add(&k->stack, below, len); /* there is room */
    (void)sp_buf_add(&k->stack, &record, sizeof record);
    return 0;
}

static bool pop(struct walk *k)
{
    if (k->stack.len == 0)
        return false;
    k->stack.len -= sizeof k->now;
    memcpy(&k->now, k->stack.data + k->stack.len, sizeof k->now);
    k->stack.len -= k->now.len;
    memcpy(k->below, k->stack.data + k->stack.len, k->now.len);
    k->below[k->now.len] = 0;
    return true;
}

/* ---- one name ---- */

static bool is_wanted(const struct walk *k, const char *below)
{
    for (size_t i = 0; i < k->w->glob_count; i++)
        if (sp_glob_matches_below(&k->w->globs[i], below))
            return true;
    return false;
}

static int visit_match(struct walk *k, int dir, const char *name, struct sp_err *e)
{
    struct sp_identity who;
    char path[PATH_MAX];
    const int err = sp_identity_get(dir, name, false, &who);

    if (err == ENOENT)
        return 0;
    if (err != 0)
        return cannot_walk(k, name, err, e);
    const int r = full_path(k, name, path, e);
    return r < 0 ? r : k->w->found(k->w->user, path, &who, e);
}

/* Asks the disk only where the directory does not say. 1, 0, or minus a code. */
static int is_directory(struct walk *k, int dir, const struct dirent *d, struct sp_err *e)
{
    struct sp_identity who;

    if (d->d_type != DT_UNKNOWN)
        return d->d_type == DT_DIR;
    const int err = sp_identity_get(dir, d->d_name, false, &who);
    if (err == ENOENT)
        return 0;
    return err != 0 ? cannot_walk(k, d->d_name, err, e) : S_ISDIR(who.mode);
}

static int visit(struct walk *k, int dir, const struct dirent *d, struct sp_err *e)
{
    char below[PATH_MAX];
    const int n =
        snprintf(below, sizeof below, "%s%s%s", k->below, k->now.len != 0 ? "/" : "", d->d_name);

    if (++*k->w->visited > k->w->max_visited)
        return sp_fail(e, SP_E_LIMIT, 0, "expand a glob below %.300s: more than %zu files",
                       k->w->root, k->w->max_visited);
    if (sp_budget_is_spent())
        return sp_budget_refuse(e);
    if (n < 0 || n >= (int)sizeof below)
        return cannot_walk(k, "", ENAMETOOLONG, e);
    if (is_wanted(k, below))
        return visit_match(k, dir, d->d_name, e);
    if (k->now.depth + 1 >= k->max_depth)
        return 0;
    const int r = is_directory(k, dir, d, e);
    return r <= 0 ? r : push(k, below, (size_t)n, k->now.depth + 1, e);
}

/* ---- one directory ---- */

static int read_names(struct walk *k, DIR *dir, struct sp_err *e)
{
    for (;;) {
        errno = 0;
        const struct dirent *d = readdir(dir);

        if (d == NULL)
            return errno == 0 || errno == ENOENT ? 0 : cannot_walk(k, "", errno, e);
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
            continue;
        const int r = visit(k, dirfd(dir), d, e);
        if (r < 0)
            return r;
    }
}

static int read_directory(struct walk *k, struct sp_err *e)
{
    const int fd =
        sp_open_strictly(k->root, k->now.len == 0 ? "." : k->below, O_RDONLY | O_DIRECTORY);

    if (fd < 0)
        return errno == ENOENT ? 0 : cannot_walk(k, "", errno, e);
    DIR *dir = fdopendir(fd);
    if (dir == NULL) {
        const int err = errno;

        (void)close(fd);
        return cannot_walk(k, "", err, e);
    }
    const int r = read_names(k, dir, e);
    (void)closedir(dir);
    return r;
}

static size_t useful_depth(const struct sp_glob_walk *w)
{
    size_t depth = 0;

    for (size_t i = 0; i < w->glob_count; i++)
        if (w->globs[i].max_depth > depth)
            depth = w->globs[i].max_depth;
    return w->max_depth != 0 && w->max_depth < depth ? w->max_depth : depth;
}

int sp_glob_walk(const struct sp_glob_walk *w, struct sp_err *e)
{
    auto_close int root = sp_open_strictly(AT_FDCWD, w->root, O_PATH | O_DIRECTORY);
    struct walk k = {.w = w, .root = root, .max_depth = useful_depth(w)};

    if (root < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "expand a glob at %.300s", w->root);
    k.stack.max = SP_MAX_GLOB_WAITING;
    int r = push(&k, "", 0, 0, e);
    while (r == 0 && pop(&k))
        r = read_directory(&k, e);
    sp_buf_done(&k.stack);
    return r;
}
