/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/resolve.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/auto.h"
#include "base/grow.h"
#include "sandbox/profile_priv.h"

/* Facts are entries times roots: the product needs a limit of its own. */
#define MAX_FACTS 65536

#define PROJECT_PATTERN "codex-project-roots://"
#define WILD            "*?[]{}\\"

const char *const sp_protected_names[] = {".git", ".agents", ".codex", ".aws", ".sallyport"};
_Static_assert(sizeof sp_protected_names / sizeof sp_protected_names[0] == SP_PROTECTED_COUNT,
               "SP_PROTECTED_COUNT is wrong");

static const char *const minimal_dirs[] = {
    "/bin", "/sbin", "/usr", "/etc", "/lib", "/lib64", "/nix/store", "/run/current-system/sw"};

/* ---- facts ---- */

struct making {
    const struct sp_policy *policy;
    struct sp_resolved out;
    size_t fact_cap, glob_cap;
    bool has_minimal; /* a second `minimal` is redundant */
    struct sp_err *e;
};

static int no_memory(struct sp_err *e)
{
    return sp_fail(e, SP_E_SYSTEM, ENOMEM, "resolve a sandbox policy");
}

static int too_many(struct sp_err *e)
{
    return sp_fail(e, SP_E_LIMIT, 0, "a sandbox policy names more than %d paths", MAX_FACTS);
}

static int needs_cwd(struct sp_err *e)
{
    return sp_fail(e, SP_E_INVALID, 0,
                   "file system sandbox context with dynamic permissions requires cwd");
}

/* Adds `text`, relative to `base` (NULL: text is absolute). */
static int add_fact(struct making *m, const char *text, const char *base, struct sp_fact fact)
{
    struct sp_resolved *r = &m->out;

    if (r->count == MAX_FACTS)
        return too_many(m->e);
    if (!SP_GROW(r->facts, r->count, m->fact_cap))
        return no_memory(m->e);
    fact.path = sp_path_normalise(text, base);
    if (fact.path == NULL && errno == EINVAL) {
        const char *wrong = base == NULL ? text : base;

        return sp_fail(m->e, SP_E_INVALID, 0, "filesystem path `%.*s%s` is not absolute",
                       SP_SHOWN(wrong));
    }
    if (fact.path == NULL)
        return no_memory(m->e);
    r->facts[r->count++] = fact;
    return 0;
}

static bool is_dir(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static int add_minimal(struct making *m, struct sp_fact fact)
{
    if (m->has_minimal || fact.access == SP_ACCESS_DENY)
        return 0;
    m->has_minimal = true;
    fact.access = SP_ACCESS_READ;
    fact.is_minimal = true;
    int r = 0;
    for (size_t i = 0; r == 0 && i < sizeof minimal_dirs / sizeof minimal_dirs[0]; i++)
        if (is_dir(minimal_dirs[i]))
            r = add_fact(m, minimal_dirs[i], NULL, fact);
    return r;
}

/* ---- patterns ---- */

/* A pattern that matches only this directory. NULL with errno. */
static char *quote_dir(const char *dir)
{
    auto_free char *path = sp_path_normalise(dir, NULL);

    if (path == NULL)
        return NULL;
    char *quoted = malloc(2 * strlen(path) + 1);
    if (quoted == NULL)
        return NULL;
    char *out = quoted;
    for (const char *p = path; *p != 0; p++) {
        if (strchr(WILD, *p) != NULL)
            *out++ = '\\';
        *out++ = *p;
    }
    *out = 0;
    return quoted;
}

/* `..` after a wildcard: lexical normalisation would remove the wildcard, and the pattern would
 * deny less. */
static bool climbs_from_wild(const char *pattern)
{
    bool is_wild = false;

    while (*pattern != 0) {
        const size_t n = strcspn(pattern, "/");

        if (n == 2 && pattern[0] == '.' && pattern[1] == '.' && is_wild)
            return true;
        is_wild |= strcspn(pattern, WILD) < n;
        pattern += n;
        pattern += strspn(pattern, "/");
    }
    return false;
}

/* Adds `pattern`, relative to the directory `base` (NULL: pattern is absolute). */
static int add_glob(struct making *m, const char *pattern, const char *base)
{
    struct sp_resolved *r = &m->out;

    if (climbs_from_wild(pattern))
        return sp_fail(m->e, SP_E_INVALID, 0, "glob pattern `%.*s%s` has `..` behind a wildcard",
                       SP_SHOWN(pattern));
    if (r->glob_count == MAX_FACTS)
        return too_many(m->e);
    if (!SP_GROW(r->globs, r->glob_count, m->glob_cap))
        return no_memory(m->e);
    auto_free char *quoted = base == NULL ? NULL : quote_dir(base);
    char *glob = base != NULL && quoted == NULL ? NULL : sp_path_normalise(pattern, quoted);
    if (glob == NULL && errno == EINVAL)
        return sp_fail(m->e, SP_E_INVALID, 0, "glob pattern `%.*s%s` has no absolute directory",
                       SP_SHOWN(pattern));
    if (glob == NULL)
        return no_memory(m->e);
    r->globs[r->glob_count++] = glob;
    return 0;
}

/* For each workspace root: adds the pattern or, if that is NULL, the fact. */
static int add_project(struct making *m, const char *pattern, const char *subpath,
                       struct sp_fact fact)
{
    const struct sp_policy *p = m->policy;
    const size_t count = p->root_count == 0 && p->cwd_is_root ? 1 : p->root_count;
    int r = 0;

    for (size_t i = 0; r == 0 && i < count; i++) {
        const char *root = p->root_count == 0 ? p->cwd : p->roots[i];

        if (root == NULL)
            return needs_cwd(m->e);
        if (pattern != NULL)
            r = add_glob(m, pattern, root);
        else
            r = subpath == NULL ? add_fact(m, root, NULL, fact) : add_fact(m, subpath, root, fact);
    }
    return r;
}

static int resolve_glob(struct making *m, const char *pattern)
{
    const size_t n = sizeof PROJECT_PATTERN - 1;

    if (strncmp(pattern, PROJECT_PATTERN, n) == 0)
        return add_project(m, pattern + n, NULL, (struct sp_fact){0});
    if (pattern[0] == '~' && (pattern[1] == '/' || pattern[1] == 0)) {
        const char *below = pattern + 1 + strspn(pattern + 1, "/");

        if (m->policy->home == NULL)
            return sp_fail(m->e, SP_E_INVALID, 0, "glob pattern `~/%.*s%s` needs a home directory",
                           SP_SHOWN(below));
        return add_glob(m, *below == 0 ? "." : below, m->policy->home);
    }
    if (pattern[0] == '/')
        return add_glob(m, pattern, NULL);
    return m->policy->cwd == NULL ? needs_cwd(m->e) : add_glob(m, pattern, m->policy->cwd);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* ---- the whole ---- */

static int resolve_entry(struct making *m, size_t index)
{
    const struct sp_entry *entry = &m->policy->profile.entries[index];
    const char *tmpdir = m->policy->tmpdir;
    const struct sp_fact fact = {
        .access = entry->access, .skips_missing = entry->skips_missing, .entry = index};

    switch (entry->place) {
    case SP_PLACE_PATH:
        return add_fact(m, entry->text, NULL, fact);
    case SP_PLACE_GLOB:
        return resolve_glob(m, entry->text);
    case SP_PLACE_ROOT:
        return add_fact(m, "/", NULL, fact);
    case SP_PLACE_MINIMAL:
        return add_minimal(m, fact);
    case SP_PLACE_PROJECT:
        return add_project(m, NULL, entry->text, fact);
    case SP_PLACE_TMPDIR:
        return tmpdir != NULL && *tmpdir == '/' ? add_fact(m, tmpdir, NULL, fact) : 0;
    case SP_PLACE_SLASH_TMP:
        return is_dir("/tmp") ? add_fact(m, "/tmp", NULL, fact) : 0;
    case SP_PLACE_UNKNOWN:
        return 0;
    }
    return 0;
}

/* The fact that decides about `path`, or NULL. */
static const struct sp_fact *find_fact(const struct sp_resolved *r, const char *path,
                                       bool with_minimal)
{
    const struct sp_fact *best = NULL;
    size_t best_len = 0;

    for (size_t i = 0; i < r->count; i++) {
        const struct sp_fact *fact = &r->facts[i];

        if ((!with_minimal && fact->is_minimal) || !sp_path_is_in(path, fact->path))
            continue;
        /* Both are prefixes of one path, so the longer one has more components. */
        const size_t n = strlen(fact->path);
        if (best == NULL || n > best_len ||
            (n == best_len && sp_access_rank(fact->access) > sp_access_rank(best->access))) {
            best = fact;
            best_len = n;
        }
    }
    return best;
}

/*
 * `minimal` only fills gaps. Where another entry makes the same place writable it would remove that
 * permission, and where one denies the place it would reopen it. A denied "/" counts as a gap.
 */
static void drop_needless_minimal(struct sp_resolved *r)
{
    size_t kept = 0;
    bool needless[sizeof minimal_dirs / sizeof minimal_dirs[0]] = {false};
    size_t seen = 0;

    /* Decide for all before the array changes. */
    for (size_t i = 0; i < r->count; i++) {
        const struct sp_fact *other =
            r->facts[i].is_minimal ? find_fact(r, r->facts[i].path, false) : NULL;

        if (r->facts[i].is_minimal)
            needless[seen++] =
                other != NULL && (other->access == SP_ACCESS_WRITE ||
                                  (other->access == SP_ACCESS_DENY && other->path[1] != 0));
    }
    if (seen == 0)
        return;
    seen = 0;
    for (size_t i = 0; i < r->count; i++)
        if (r->facts[i].is_minimal && needless[seen++])
            free(r->facts[i].path);
        else
            r->facts[kept++] = r->facts[i];
    r->count = kept;
}

void sp_resolved_done(struct sp_resolved *r)
{
    for (size_t i = 0; i < r->count; i++)
        free(r->facts[i].path);
    free(r->facts);
    for (size_t i = 0; i < r->glob_count; i++)
        free(r->globs[i]);
    free(r->globs);
    *r = (struct sp_resolved){0};
}

int sp_resolve(const struct sp_policy *p, struct sp_resolved *ret, struct sp_err *e)
{
    struct making m = {.policy = p, .e = e};
    struct sp_reach reach;

    if (!sp_profile_reach(&p->profile, &reach))
        return no_memory(e);
    for (size_t i = 0; !reach.is_open && i < p->profile.count; i++) {
        const int r = resolve_entry(&m, i);

        if (r < 0) {
            sp_resolved_done(&m.out);
            return r;
        }
    }
    drop_needless_minimal(&m.out);
    if (m.out.glob_count > 1)
        qsort(m.out.globs, m.out.glob_count, sizeof *m.out.globs, by_text);
    size_t kept = 0;
    for (size_t i = 0; i < m.out.glob_count; i++)
        if (kept != 0 && strcmp(m.out.globs[kept - 1], m.out.globs[i]) == 0)
            free(m.out.globs[i]);
        else
            m.out.globs[kept++] = m.out.globs[i];
    m.out.glob_count = kept;

    m.out.is_open = reach.is_open;
    m.out.is_full_read = reach.is_full_read;
    m.out.is_full_write = reach.is_full_write;
    m.out.wants_minimal = reach.wants_minimal;
    m.out.has_denied_reads = reach.has_denied_reads;
    m.out.glob_depth = p->profile.glob_depth;
    *ret = m.out;
    return 0;
}

/* ---- questions ---- */

enum sp_access sp_resolved_access(const struct sp_resolved *r, const char *path,
                                  const struct sp_fact **ret_why)
{
    const struct sp_fact *why = r->is_open || *path != '/' ? NULL : find_fact(r, path, true);

    if (ret_why != NULL)
        *ret_why = why;
    if (r->is_open)
        return SP_ACCESS_WRITE;
    return why == NULL ? SP_ACCESS_DENY : why->access;
}

bool sp_resolved_can_write(const struct sp_resolved *r, const char *path,
                           const struct sp_fact **ret_why, const char **ret_name)
{
    const struct sp_fact *why = NULL;
    const char *name = NULL;
    const bool is_writable = sp_resolved_access(r, path, &why) == SP_ACCESS_WRITE;

    /*
     * The deciding fact is the innermost writable root. A protected name of an outer root lies at
     * or above this root, so this fact is the entry that reopens it. Only the names directly below
     * this root are left to check.
     */
    if (is_writable && why != NULL && !r->is_full_write) {
        const char *below = path + strlen(why->path);

        below += *below == '/'; /* the root "/" includes its slash */
        const struct sp_str first = {below, strcspn(below, "/")};
        for (size_t i = 0; name == NULL && i < SP_PROTECTED_COUNT; i++)
            if (sp_str_eq(first, sp_str_of(sp_protected_names[i])))
                name = sp_protected_names[i];
    }
    if (ret_why != NULL)
        *ret_why = why;
    if (ret_name != NULL)
        *ret_name = name;
    return is_writable && name == NULL;
}
