/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Additional permissions of one command: normalised when requested, intersected with what was
 * granted, and added to the profile.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/auto.h"
#include "sandbox/glob.h"
#include "sandbox/profile_priv.h"
#include "sandbox/resolve.h"

#define auto_resolved __attribute__((cleanup(sp_resolved_done)))

static int no_memory(struct sp_err *e)
{
    return sp_fail(e, SP_E_SYSTEM, ENOMEM, "work out additional permissions");
}

void sp_grant_done(struct sp_grant *g)
{
    sp_profile_done(&g->extra);
}

static bool has_globs(const struct sp_profile *p)
{
    for (size_t i = 0; i < p->count; i++)
        if (p->entries[i].place == SP_PLACE_GLOB)
            return true;
    return false;
}

/* A depth counts only if its side has patterns; 0 means unlimited. */
static uint32_t merge_depths(bool a_has_globs, uint32_t a, bool b_has_globs, uint32_t b)
{
    if (!a_has_globs || !b_has_globs)
        return a_has_globs ? a : b_has_globs ? b : 0;
    if (a == 0 || b == 0)
        return 0;
    return a > b ? a : b;
}

/* ---- normalise ---- */

/*
 * realpath() of the parent directory, plus the last name, which is not resolved: the entry may mean
 * the symlink itself. A copy if the path does not exist. NULL: no memory
 */
static char *real_place(const char *path)
{
    struct stat st;
    auto_free char *dir = sp_path_normalise(path, NULL);

    if (dir == NULL)
        return NULL;
    char *name = strrchr(dir, '/') + 1;
    if (*name == 0 || lstat(dir, &st) < 0)
        return sp_path_normalise(path, NULL);
    name[-1] = 0;
    auto_free char *real = realpath(*dir == 0 ? "/" : dir, NULL);
    if (real == NULL && errno == ENOMEM)
        return NULL;
    return real == NULL ? sp_path_normalise(path, NULL) : sp_path_normalise(name, real);
}

int sp_grant_normalise(struct sp_grant *g, struct sp_err *e)
{
    auto_profile struct sp_profile p = {0};

    for (size_t i = 0; i < g->extra.count; i++)
        if (g->extra.entries[i].place == SP_PLACE_GLOB &&
            g->extra.entries[i].access != SP_ACCESS_DENY)
            return sp_fail(e, SP_E_INVALID, 0,
                           "glob file system permissions only support deny-read entries");
    if (!sp_profile_copy(&g->extra, &p))
        return no_memory(e);
    for (size_t i = 0; i < p.count; i++) {
        if (p.entries[i].place != SP_PLACE_PATH)
            continue;
        char *place = real_place(p.entries[i].text);
        if (place == NULL)
            return no_memory(e);
        free(p.entries[i].text);
        p.entries[i].text = place;
    }
    if (!sp_profile_drop_repeats(&p))
        return no_memory(e);
    if (p.count == 0)
        p.glob_depth = 0;
    sp_profile_done(&g->extra);
    g->extra = p;
    p = (struct sp_profile){0};
    return 0;
}

/* ---- add ---- */

/* Adds the entries and the network permission of *more to *to. */
static int unite(struct sp_profile *to, const struct sp_profile *more, struct sp_err *e)
{
    to->glob_depth = merge_depths(has_globs(to), to->glob_depth, has_globs(more), more->glob_depth);
    to->has_network |= more->has_network;
    for (size_t i = 0; i < more->count; i++)
        if (!sp_profile_append(to, &more->entries[i]))
            return no_memory(e);
    return sp_profile_drop_repeats(to) ? 0 : no_memory(e);
}

int sp_profile_widen(const struct sp_profile *p, const struct sp_grant *g, struct sp_profile *ret,
                     struct sp_err *e)
{
    auto_profile struct sp_profile wide = {0};
    int r = 0;

    if (!sp_profile_copy(p, &wide))
        return no_memory(e);
    if (p->kind != SP_PROFILE_MANAGED || p->is_unrestricted)
        wide.has_network |= g->extra.has_network;
    else if (g->extra.count != 0 || g->extra.has_network)
        r = unite(&wide, &g->extra, e);
    if (r < 0)
        return r;
    *ret = wide;
    wide = (struct sp_profile){0};
    return 0;
}

int sp_grant_merge(const struct sp_grant *a, const struct sp_grant *b, struct sp_grant *ret,
                   struct sp_err *e)
{
    auto_profile struct sp_profile both = {0};

    if (!sp_profile_copy(&a->extra, &both))
        return no_memory(e);
    const int r = unite(&both, &b->extra, e);
    if (r < 0)
        return r;
    ret->extra = both;
    both = (struct sp_profile){0};
    return 0;
}

/* ---- intersect ---- */

/* Resolves these entries with the roots, cwd and tmpdir of *context. */
static int resolve(const struct sp_policy *context, const struct sp_entry *entries, size_t count,
                   struct sp_resolved *ret, struct sp_err *e)
{
    struct sp_policy p = *context;

    /* sp_resolve changes no entry. */
    p.profile = (struct sp_profile){
        .entries = (struct sp_entry *)(uintptr_t)entries, .count = count, .cap = count};
    return sp_resolve(&p, ret, e);
}

/* The requested permissions, as entries and resolved to paths. */
struct request {
    const struct sp_policy *context;
    const struct sp_profile *words;
    struct sp_resolved paths;
    struct sp_glob *globs; /* paths.globs, parsed */
};

static int read_request(struct request *q, struct sp_err *e)
{
    int r = resolve(q->context, q->words->entries, q->words->count, &q->paths, e);

    if (r < 0)
        return r;
    q->globs = calloc(q->paths.glob_count + 1, sizeof *q->globs);
    if (q->globs == NULL)
        return no_memory(e);
    for (size_t i = 0; r == 0 && i < q->paths.glob_count; i++)
        r = sp_glob_read(q->paths.globs[i], &q->globs[i], e);
    return r;
}

static bool any_matches(const struct request *q, const char *path)
{
    for (size_t i = 0; i < q->paths.glob_count; i++)
        if (sp_glob_matches_path(&q->globs[i], path))
            return true;
    return false;
}

/* Whether the request asks for this access to the path. */
static int request_covers(const struct request *q, const char *path, enum sp_access granted,
                          bool *ret, struct sp_err *e)
{
    auto_free char *part = sp_path_normalise(path, NULL);
    bool is_denied = any_matches(q, "/");

    if (part == NULL)
        return no_memory(e);
    /* A pattern of the request matches the path or a directory above it. */
    for (size_t n = strlen(part); !is_denied && n > 1; n = (size_t)(strrchr(part, '/') - part)) {
        part[n] = 0;
        is_denied = any_matches(q, part);
    }
    /* A denied place of the request denies everything below it, even places that the request
     * reopens: a grant below it was not made because of this request. "/" is left out; paths that
     * no entry names are denied anyway. */
    for (size_t i = 0; !is_denied && i < q->paths.count; i++) {
        const struct sp_fact *fact = &q->paths.facts[i];

        is_denied =
            fact->access == SP_ACCESS_DENY && fact->path[1] != 0 && sp_path_is_in(path, fact->path);
    }
    if (is_denied)
        *ret = false;
    else if (granted == SP_ACCESS_WRITE)
        /* Not sp_resolved_access: a grant of a protected name lifts its protection, so the request
         * must name it. */
        *ret = sp_resolved_can_write(&q->paths, path, NULL, NULL);
    else
        *ret = sp_resolved_access(&q->paths, path, NULL) != SP_ACCESS_DENY;
    return 0;
}

/* For an entry that resolves to no path: whether the request has the same entry. */
static bool names_it(const struct sp_profile *asked, const struct sp_entry *granted)
{
    bool is_named = false;

    for (size_t i = 0; i < asked->count; i++) {
        const struct sp_entry *entry = &asked->entries[i];

        if (!sp_entry_names_same(entry, granted))
            continue;
        if (entry->access == SP_ACCESS_DENY)
            return false;
        is_named |= entry->access == SP_ACCESS_WRITE || granted->access == SP_ACCESS_READ;
    }
    return is_named;
}

/* A copy of the entry that names `path` instead. */
static bool append_path(struct sp_profile *to, const struct sp_entry *entry, enum sp_place place,
                        char *path)
{
    struct sp_entry literal = *entry;

    literal.place = place;
    literal.text = path;
    literal.subpath = NULL;
    return sp_profile_append(to, &literal);
}

/* An entry for several paths is accepted path by path. */
static int accept_paths(const struct request *q, const struct sp_entry *granted,
                        const struct sp_resolved *one, struct sp_profile *to, struct sp_err *e)
{
    for (size_t i = 0; i < one->count; i++) {
        bool is_covered = false;
        const int r = request_covers(q, one->facts[i].path, granted->access, &is_covered, e);

        if (r < 0)
            return r;
        if (is_covered && !append_path(to, granted, SP_PLACE_PATH, one->facts[i].path))
            return no_memory(e);
    }
    return 0;
}

static int accept_whole(const struct request *q, const struct sp_entry *granted,
                        const struct sp_resolved *one, struct sp_profile *to, struct sp_err *e)
{
    bool is_covered = one->count != 0 || names_it(q->words, granted);

    for (size_t i = 0; is_covered && i < one->count; i++) {
        const int r = request_covers(q, one->facts[i].path, granted->access, &is_covered, e);

        if (r < 0)
            return r;
    }
    return !is_covered || sp_profile_append(to, granted) ? 0 : no_memory(e);
}

/* Adds the part of a granted entry that the request covers; workspace roots become paths. */
static int accept_entry(const struct request *q, const struct sp_entry *granted,
                        struct sp_profile *to, struct sp_err *e)
{
    auto_resolved struct sp_resolved one = {0};

    if (granted->access == SP_ACCESS_DENY || granted->place == SP_PLACE_GLOB)
        return 0;
    const int r = resolve(q->context, granted, 1, &one, e);
    if (r < 0)
        return r;
    return granted->place == SP_PLACE_PROJECT ? accept_paths(q, granted, &one, to, e)
                                              : accept_whole(q, granted, &one, to, e);
}

static bool overlaps(const struct sp_resolved *accepted, const char *path)
{
    for (size_t i = 0; i < accepted->count; i++)
        if (sp_path_is_in(accepted->facts[i].path, path) ||
            sp_path_is_in(path, accepted->facts[i].path))
            return true;
    return false;
}

/* Adds the part of a deny entry that overlaps an accepted path. */
static int retain_deny(const struct sp_policy *context, const struct sp_entry *deny,
                       const struct sp_resolved *accepted, struct sp_profile *to, struct sp_err *e)
{
    auto_resolved struct sp_resolved one = {0};
    const int r = resolve(context, deny, 1, &one, e);

    if (r < 0)
        return r;
    for (size_t i = 0; i < one.count; i++) {
        if (!overlaps(accepted, one.facts[i].path))
            continue;
        if (deny->place != SP_PLACE_PROJECT)
            return sp_profile_append(to, deny) ? 0 : no_memory(e);
        if (!append_path(to, deny, SP_PLACE_PATH, one.facts[i].path))
            return no_memory(e);
    }
    for (size_t i = 0; i < one.glob_count; i++) {
        auto_glob struct sp_glob g = {0};
        const int bad = sp_glob_read(one.globs[i], &g, e);

        if (bad < 0)
            return bad;
        if (overlaps(accepted, g.prefix) && !append_path(to, deny, SP_PLACE_GLOB, one.globs[i]))
            return no_memory(e);
    }
    return 0;
}

static int retain_denies(const struct sp_policy *context, const struct sp_profile *from,
                         const struct sp_resolved *accepted, struct sp_profile *to,
                         struct sp_err *e)
{
    int r = 0;

    for (size_t i = 0; r == 0 && i < from->count; i++)
        if (from->entries[i].access == SP_ACCESS_DENY)
            r = retain_deny(context, &from->entries[i], accepted, to, e);
    to->glob_depth = from->glob_depth;
    return r;
}

/* Adds the deny entries of both sides that overlap the accepted entries. */
static int constrain(const struct sp_policy *context, const struct sp_profile *asked,
                     const struct sp_profile *granted, struct sp_profile *accepted,
                     struct sp_err *e)
{
    auto_profile struct sp_profile ours = {0};
    auto_profile struct sp_profile theirs = {0};
    auto_resolved struct sp_resolved paths = {0};
    int r;

    if ((r = resolve(context, accepted->entries, accepted->count, &paths, e)) < 0 ||
        (r = retain_denies(context, asked, &paths, &ours, e)) < 0 ||
        (r = retain_denies(context, granted, &paths, &theirs, e)) < 0 ||
        (r = unite(accepted, &ours, e)) < 0)
        return r;
    return unite(accepted, &theirs, e);
}

int sp_grant_intersect(const struct sp_grant *asked, const struct sp_grant *granted,
                       const struct sp_policy *context, struct sp_grant *ret, struct sp_err *e)
{
    auto_profile struct sp_profile accepted = {0};
    struct request q = {.context = context, .words = &asked->extra};
    int r = read_request(&q, e);

    for (size_t i = 0; r == 0 && i < granted->extra.count; i++)
        r = accept_entry(&q, &granted->extra.entries[i], &accepted, e);
    for (size_t i = 0; q.globs != NULL && i < q.paths.glob_count; i++)
        sp_glob_done(&q.globs[i]);
    free(q.globs);
    sp_resolved_done(&q.paths);
    if (r == 0)
        r = constrain(context, &asked->extra, &granted->extra, &accepted, e);
    if (r < 0)
        return r;
    accepted.has_network = asked->extra.has_network && granted->extra.has_network;
    ret->extra = accepted;
    accepted = (struct sp_profile){0};
    return 0;
}
