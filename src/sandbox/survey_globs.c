/* SPDX-License-Identifier: Apache-2.0 */
/* What patterns match, as denied places. Patterns that begin in one directory share one walk. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "sandbox/glob.h"
#include "sandbox/glob_walk.h"
#include "sandbox/survey_priv.h"

struct expanding {
    struct sp_making *m;
    struct sp_glob *globs;
    size_t count;
    size_t visited, matches;
    const char *root; /* as the pattern has it */
};

static void expanding_done(struct expanding *x)
{
    for (size_t i = 0; i < x->count; i++)
        sp_glob_done(&x->globs[i]);
    free(x->globs);
}

/* ---- matches ---- */

static int deny(struct sp_making *m, const char *path, const struct sp_identity *who)
{
    if (path[1] == 0) /* the root is denied already where nothing opens it */
        return 0;
    return sp_making_add(m, path, who, SP_ACCESS_DENY, SP_WHY_GLOB, SP_NO_ENTRY);
}

/* Where a symlink leads is denied, so it does not matter if the link is pointed elsewhere. */
static int deny_target(struct sp_making *m, const char *path)
{
    auto_canonical struct sp_canonical at = {0};
    const int r = sp_canonical_find(path, &at, m->e);

    if (r < 0 && m->e->code == SP_E_INVALID && m->e->sys == ELOOP) /* nobody gets anywhere by it */
        return 0;
    if (r < 0)
        return r;
    if (at.way == SP_WAY_BARRED && sp_spots_can_write(&m->spots, at.parent, strlen(at.parent)))
        return sp_fail(m->e, SP_E_SYSTEM, EACCES, "look at %.300s", path);
    return at.way == SP_WAY_FOUND ? deny(m, at.path, &at.who) : 0;
}

static int found(void *user, const char *path, const struct sp_identity *who, struct sp_err *e)
{
    struct expanding *x = user;

    if (x->matches++ == SP_MAX_GLOB_MATCHES)
        return sp_fail(e, SP_E_INVALID, 0,
                       "unreadable glob expansion for %.300s matched more than %d paths", x->root,
                       SP_MAX_GLOB_MATCHES);
    return S_ISLNK(who->mode) ? deny_target(x->m, path) : deny(x->m, path, who);
}

/* ---- walks ---- */

/* A pattern without wildcards. */
static int expand_literal(struct expanding *x, const struct sp_glob *g)
{
    auto_canonical struct sp_canonical at = {0};
    int r = sp_canonical_find(g->prefix, &at, x->m->e);

    x->root = g->prefix;
    if (r == 0)
        r = sp_making_check_links(x->m, g->prefix, &at, SP_ACCESS_DENY);
    return r < 0 || at.way != SP_WAY_FOUND ? r : found(x, at.path, &at.who, x->m->e);
}

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
        .max_visited = SP_MAX_GLOB_ENTRIES / count, /* whoever asks waits for it, and others */
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
            x->count++; /* it is freed with the others */
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

static int expand(struct expanding *x)
{
    int r = 0;

    for (size_t i = 0; r == 0 && i < x->count;) {
        size_t n = 1;

        while (i + n < x->count && by_prefix(&x->globs[i], &x->globs[i + n]) == 0)
            n++;
        r = x->globs[i].is_literal ? expand_literal(x, &x->globs[i])
                                   : expand_walk(x, &x->globs[i], n);
        i += n;
    }
    return r;
}

int sp_making_expand(struct sp_making *m)
{
    struct expanding x = {.m = m};

    if (m->resolved->glob_count == 0)
        return 0;
    int r = read_patterns(&x);
    if (r == 0) {
        qsort(x.globs, x.count, sizeof *x.globs, by_prefix);
        r = expand(&x);
    }
    expanding_done(&x);
    return r < 0 ? r : sp_making_settle(m);
}
