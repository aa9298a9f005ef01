/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The paths that patterns match now, as denied spots of a survey. Patterns with the same prefix
 * share one walk.
 */
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
#include "sandbox/glob.h"
#include "sandbox/glob_walk.h"
#include "sandbox/survey_priv.h"

/* ==== the walk ==== */

/* Stack record of a pending directory; the path (relative to the root) precedes the record. */
struct waiting {
    size_t depth;
    size_t len; /* of the path */
};

struct walk {
    const struct sp_glob_walk *w;
    int root;
    size_t max_depth;
    struct sp_buf stack;
    struct waiting now;
    char below[PATH_MAX]; /* path of the current directory, relative to the root */
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
    (void)sp_buf_add(&k->stack, below, len); /* cannot fail: sp_buf_room has made room */
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

/* 1, 0, or a negative error code. */
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
    for (size_t i = 0; i < k->w->glob_count; i++) {
        struct sp_identity who;
        char path[PATH_MAX];

        if (!sp_glob_matches_below(&k->w->globs[i], below))
            continue;
        const int err = sp_identity_get(dir, d->d_name, false, &who);
        if (err == ENOENT)
            return 0;
        if (err != 0)
            return cannot_walk(k, d->d_name, err, e);
        const int r = full_path(k, d->d_name, path, e);
        return r < 0 ? r : k->w->found(k->w->user, path, &who, e);
    }
    if (k->now.depth + 1 >= k->max_depth)
        return 0;
    const int r = is_directory(k, dir, d, e);
    return r <= 0 ? r : push(k, below, (size_t)n, k->now.depth + 1, e);
}

/* ---- one directory ---- */

int sp_glob_walk(const struct sp_glob_walk *w, struct sp_err *e)
{
    auto_close int root = sp_open_strictly(AT_FDCWD, w->root, O_PATH | O_DIRECTORY);
    struct walk k = {.w = w, .root = root};

    if (root < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "expand a glob at %.300s", w->root);
    for (size_t i = 0; i < w->glob_count; i++)
        if (w->globs[i].max_depth > k.max_depth)
            k.max_depth = w->globs[i].max_depth;
    if (w->max_depth != 0 && w->max_depth < k.max_depth)
        k.max_depth = w->max_depth;
    k.stack.max = SP_MAX_GLOB_WAITING;
    int r = push(&k, "", 0, 0, e);
    while (r == 0 && pop(&k)) {
        const int fd =
            sp_open_strictly(root, k.now.len == 0 ? "." : k.below, O_RDONLY | O_DIRECTORY);
        DIR *dir = fd < 0 ? NULL : fdopendir(fd);
        const struct dirent *d;

        if (fd < 0 && errno == ENOENT)
            continue;
        if (dir == NULL) {
            r = cannot_walk(&k, "", errno, e);
            if (fd >= 0)
                (void)close(fd);
            break;
        }
        while (r == 0 && (errno = 0, d = readdir(dir)) != NULL)
            if (strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0)
                r = visit(&k, fd, d, e);
        if (r == 0 && errno != 0 && errno != ENOENT)
            r = cannot_walk(&k, "", errno, e);
        (void)closedir(dir);
    }
    sp_buf_done(&k.stack);
    return r;
}

/* ==== the survey ==== */

struct expanding {
    struct sp_making *m;
    struct sp_glob *globs;
    size_t count;
    size_t visited, matches;
    const char *root; /* prefix of the pattern, for error messages */
};

/* ---- matches ---- */

static int deny_match(struct sp_making *m, const char *path, const struct sp_identity *who)
{
    if (path[1] == 0) /* "/" is denied unless an entry opens it */
        return 0;
    return sp_making_add(m, path, who, SP_ACCESS_DENY, SP_WHY_GLOB, SP_NO_ENTRY);
}

/* Denies the target of a matching symlink, so a command gains nothing by changing the symlink. */
static int deny_target(struct sp_making *m, const char *path)
{
    auto_canonical struct sp_canonical at = {0};
    const int r = sp_canonical_find(path, &at, m->e);

    if (r < 0 && m->e->code == SP_E_INVALID && m->e->sys == ELOOP) /* a cycle leads nowhere */
        return 0;
    if (r < 0)
        return r;
    if (at.way == SP_WAY_BARRED && sp_spots_can_write(&m->spots, at.parent, strlen(at.parent)))
        return sp_fail(m->e, SP_E_SYSTEM, EACCES, "look at %.300s", path);
    return at.way == SP_WAY_FOUND ? deny_match(m, at.path, &at.who) : 0;
}

static int found(void *user, const char *path, const struct sp_identity *who, struct sp_err *e)
{
    struct expanding *x = user;

    if (x->matches++ == SP_MAX_GLOB_MATCHES)
        return sp_fail(e, SP_E_INVALID, 0,
                       "unreadable glob expansion for %.300s matched more than %d paths", x->root,
                       SP_MAX_GLOB_MATCHES);
    return S_ISLNK(who->mode) ? deny_target(x->m, path) : deny_match(x->m, path, who);
}

/* ---- walks ---- */

static int expand_walk(struct expanding *x, const struct sp_glob *globs, size_t count)
{
    struct sp_making *m = x->m;
    auto_canonical struct sp_canonical at = {0};
    int r = sp_canonical_find(globs->prefix, &at, m->e);

    if (r == 0)
        r = sp_making_check_links(m, globs->prefix, &at, SP_ACCESS_DENY);
    if (r == 0 && at.way == SP_WAY_BARRED)
        return sp_fail(m->e, SP_E_SYSTEM, EACCES, "expand a glob at %.300s", globs->prefix);
    if (r < 0 || at.way != SP_WAY_FOUND || !S_ISDIR(at.who.mode))
        return r;
    x->root = globs->prefix;
    const struct sp_glob_walk walk = {
        .root = at.path,
        .globs = globs,
        .glob_count = count,
        .max_depth = m->resolved->glob_depth,
        .visited = &x->visited,
        .max_visited = SP_MAX_GLOB_ENTRIES / count, /* each name is matched against each pattern */
        .found = found,
        .user = x,
    };
    return sp_glob_walk(&walk, m->e);
}

/* ---- patterns ---- */

static int read_patterns(struct expanding *x)
{
    const struct sp_resolved *r = x->m->resolved;

    x->globs = calloc(r->glob_count, sizeof *x->globs);
    if (x->globs == NULL)
        return sp_making_no_memory(x->m);
    for (; x->count < r->glob_count; x->count++) {
        struct sp_glob *g = &x->globs[x->count];
        const char *pattern = r->globs[x->count];
        const int err = sp_glob_read(pattern, g, x->m->e);

        if (err < 0)
            return err;
        if (!g->is_literal && g->prefix[1] == 0) {
            x->count++; /* include g in the cleanup */
            return sp_fail(x->m->e, SP_E_INVALID, 0,
                           "unreadable glob `%.240s` cannot be safely expanded; use a pattern "
                           "with a non-root directory prefix",
                           pattern);
        }
    }
    return 0;
}

static int by_prefix(const void *a, const void *b)
{
    const struct sp_glob *x = a;
    const struct sp_glob *y = b;

    if (x->is_literal != y->is_literal)
        return x->is_literal - y->is_literal;
    return strcmp(x->prefix, y->prefix);
}

int sp_making_expand(struct sp_making *m)
{
    struct expanding x = {.m = m};

    if (m->resolved->glob_count == 0)
        return 0;
    int r = read_patterns(&x);
    if (r == 0)
        qsort(x.globs, x.count, sizeof *x.globs, by_prefix);
    for (size_t i = 0; r == 0 && i < x.count;) {
        size_t n = 1;

        while (i + n < x.count && by_prefix(&x.globs[i], &x.globs[i + n]) == 0)
            n++;
        if (x.globs[i].is_literal) {
            auto_canonical struct sp_canonical at = {0};

            x.root = x.globs[i].prefix;
            r = sp_canonical_find(x.root, &at, m->e);
            if (r == 0)
                r = sp_making_check_links(m, x.root, &at, SP_ACCESS_DENY);
            if (r == 0 && at.way == SP_WAY_FOUND)
                r = found(&x, at.path, &at.who, m->e);
        } else {
            r = expand_walk(&x, &x.globs[i], n);
        }
        i += n;
    }
    for (size_t i = 0; i < x.count; i++)
        sp_glob_done(&x.globs[i]);
    free(x.globs);
    return r < 0 ? r : sp_spots_settle(&m->spots, m->policy, m->e);
}
