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
    for (size_t i = 0; i < sizeof minimal_dirs / sizeof minimal_dirs[0]; i++) {
        const int r = is_dir(minimal_dirs[i]) ? add_fact(m, minimal_dirs[i], NULL, fact) : 0;

        if (r < 0)
            return r;
    }
    return 0;
}

static size_t root_count(const struct sp_policy *p)
{
    return p->root_count == 0 && p->cwd_is_root ? 1 : p->root_count;
}

/* NULL: the root is the cwd, which is not set. */
static const char *root_at(const struct sp_policy *p, size_t i)
{
    return p->root_count == 0 ? p->cwd : p->roots[i];
}

static int add_project(struct making *m, const char *subpath, struct sp_fact fact)
{
    for (size_t i = 0; i < root_count(m->policy); i++) {
        const char *root = root_at(m->policy, i);

        if (root == NULL)
            return needs_cwd(m->e);
        const int r =
            subpath == NULL ? add_fact(m, root, NULL, fact) : add_fact(m, subpath, root, fact);
        if (r < 0)
            return r;
    }
    return 0;
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

static int add_project_glob(struct making *m, const char *pattern)
{
    for (size_t i = 0; i < root_count(m->policy); i++) {
        const char *root = root_at(m->policy, i);
        const int r = root == NULL ? needs_cwd(m->e) : add_glob(m, pattern, root);

        if (r < 0)
            return r;
    }
    return 0;
}

static int resolve_glob(struct making *m, const char *pattern)
{
    const size_t n = sizeof PROJECT_PATTERN - 1;

    if (strncmp(pattern, PROJECT_PATTERN, n) == 0)
        return add_project_glob(m, pattern + n);
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

static void sort_globs(struct sp_resolved *r)
{
    size_t kept = 0;

    if (r->glob_count == 0)
        return;
    qsort(r->globs, r->glob_count, sizeof *r->globs, by_text);
    for (size_t i = 0; i < r->glob_count; i++)
        if (kept != 0 && strcmp(r->globs[kept - 1], r->globs[i]) == 0)
            free(r->globs[i]);
        else
            r->globs[kept++] = r->globs[i];
    r->glob_count = kept;
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
        return add_project(m, entry->text, fact);
    case SP_PLACE_TMPDIR:
        return tmpdir != NULL && *tmpdir == '/' ? add_fact(m, tmpdir, NULL, fact) : 0;
    case SP_PLACE_SLASH_TMP:
        return is_dir("/tmp") ? add_fact(m, "/tmp", NULL, fact) : 0;
    case SP_PLACE_UNKNOWN:
        return 0;
    }
    return 0;
}

static bool counts_more(const struct sp_fact *a, const struct sp_fact *b)
{
    /* Both are prefixes of one path, so the longer one has more components. */
    const size_t n = strlen(a->path);
    const size_t m = strlen(b->path);

    return n != m ? n > m : sp_access_rank(a->access) > sp_access_rank(b->access);
}

/* The fact that decides about `path`, or NULL. */
static const struct sp_fact *find_fact(const struct sp_resolved *r, const char *path,
                                       bool with_minimal)
{
    const struct sp_fact *best = NULL;

    for (size_t i = 0; i < r->count; i++) {
        const struct sp_fact *fact = &r->facts[i];

        if ((with_minimal || !fact->is_minimal) && sp_path_is_in(path, fact->path) &&
            (best == NULL || counts_more(fact, best)))
            best = fact;
    }
    return best;
}

/*
 * `minimal` only fills gaps. Where another entry makes the same place writable it would remove that
 * permission, and where one denies the place it would reopen it. A denied "/" counts as a gap.
 */
static bool is_needless(const struct sp_resolved *r, const struct sp_fact *minimal)
{
    const struct sp_fact *other = find_fact(r, minimal->path, false);

    if (other == NULL || other->access == SP_ACCESS_READ)
        return false;
    return other->access == SP_ACCESS_WRITE || other->path[1] != 0;
}

static void drop_needless_minimal(struct sp_resolved *r)
{
    size_t kept = 0;
    bool needless[sizeof minimal_dirs / sizeof minimal_dirs[0]] = {false};
    size_t seen = 0;

    /* Decide for all before the array changes. */
    for (size_t i = 0; i < r->count; i++)
        if (r->facts[i].is_minimal)
            needless[seen++] = is_needless(r, &r->facts[i]);
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
    sort_globs(&m.out);
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

/* The protected name directly below `root` that `path` contains, or NULL; path is below root. */
static const char *protected_name(const char *path, const char *root)
{
    const char *below = path + strlen(root);

    below += *below == '/'; /* the root "/" includes its slash */
    const size_t n = strcspn(below, "/");
    for (size_t i = 0; i < SP_PROTECTED_COUNT; i++)
        if (strlen(sp_protected_names[i]) == n && memcmp(below, sp_protected_names[i], n) == 0)
            return sp_protected_names[i];
    return NULL;
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
    if (is_writable && why != NULL && !r->is_full_write)
        name = protected_name(path, why->path);
    if (ret_why != NULL)
        *ret_why = why;
    if (ret_name != NULL)
        *ret_name = name;
    return is_writable && name == NULL;
}
