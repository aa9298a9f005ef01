/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/profile.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/auto.h"
#include "base/grow.h"
#include "sandbox/glob.h"
#include "sandbox/profile_priv.h"
#include "sandbox/resolve.h"

#define SHOWN_BYTES 200

#define auto_resolved __attribute__((cleanup(sp_resolved_done)))

static int no_memory(struct sp_err *e)
{
    return sp_fail(e, SP_E_SYSTEM, ENOMEM, "keep a sandbox profile");
}

int sp_shown_bytes(const char *text)
{
    int n = 0;

    while (n < SHOWN_BYTES && text[n] != 0)
        n++;
    for (int back = 0; back < 3 && ((unsigned char)text[n] & 0xC0) == 0x80; back++)
        n--; /* back to the start of a character */
    return n;
}

/* ---- entries ---- */

static void entry_done(struct sp_entry *entry)
{
    free(entry->text);
    free(entry->subpath);
}

/* NULL is copied as NULL. false: no memory */
static bool copy_text(const char *text, char **ret)
{
    if (text == NULL)
        return true;
    *ret = sp_str_dup(sp_str_of(text));
    return *ret != NULL;
}

static int compare_text(const char *a, const char *b)
{
    if (a == NULL || b == NULL)
        return (a != NULL) - (b != NULL);
    return strcmp(a, b);
}

static bool names_same(const struct sp_entry *a, const struct sp_entry *b)
{
    return a->place == b->place && compare_text(a->text, b->text) == 0 &&
           compare_text(a->subpath, b->subpath) == 0;
}

static int compare_entries(const struct sp_entry *a, const struct sp_entry *b)
{
    if (a->place != b->place)
        return a->place < b->place ? -1 : 1;
    if (a->access != b->access)
        return a->access < b->access ? -1 : 1;
    if (a->skips_missing != b->skips_missing)
        return b->skips_missing ? -1 : 1;
    const int c = compare_text(a->text, b->text);
    return c != 0 ? c : compare_text(a->subpath, b->subpath);
}

/* On success the profile owns the entry. */
static bool push_entry(struct sp_profile *p, const struct sp_entry *entry)
{
    if (!SP_GROW(p->entries, p->count, p->cap))
        return false;
    p->entries[p->count++] = *entry;
    return true;
}

static bool append_entry(struct sp_profile *p, const struct sp_entry *entry)
{
    struct sp_entry copy = *entry;

    copy.text = copy.subpath = NULL;
    if (copy_text(entry->text, &copy.text) && copy_text(entry->subpath, &copy.subpath) &&
        push_entry(p, &copy))
        return true;
    entry_done(&copy);
    return false;
}

/* A relative path without `.` and `..`; slashes may repeat and end it. */
static bool is_descendant(const char *text)
{
    if (*text == 0 || *text == '/')
        return false;
    while (*text != 0) {
        const size_t n = strcspn(text, "/");

        if ((n == 1 && text[0] == '.') || (n == 2 && text[0] == '.' && text[1] == '.'))
            return false;
        text += n;
        text += strspn(text, "/");
    }
    return true;
}

static int check_entry(const struct sp_entry *entry, struct sp_err *e)
{
    const char *text = entry->text;

    if (entry->place == SP_PLACE_GLOB && entry->access != SP_ACCESS_DENY)
        return sp_fail(e, SP_E_INVALID, 0,
                       "glob file system permissions only support deny-read entries");
    if (entry->place == SP_PLACE_GLOB && (text == NULL || *text == 0))
        return sp_fail(e, SP_E_INVALID, 0, "a glob pattern is empty");
    if (entry->place == SP_PLACE_PATH && text == NULL)
        return sp_fail(e, SP_E_INVALID, 0, "a filesystem path is missing");
    if (entry->place == SP_PLACE_PATH && *text != '/')
        return sp_fail(e, SP_E_INVALID, 0, "filesystem path `%.*s%s` is not absolute",
                       SP_SHOWN(text));
    if (entry->place == SP_PLACE_PROJECT && text != NULL && !is_descendant(text))
        return sp_fail(e, SP_E_INVALID, 0,
                       "filesystem subpath `%.*s%s` must be a descendant path without `.` or `..` "
                       "components",
                       SP_SHOWN(text));
    return 0;
}

int sp_profile_add(struct sp_profile *p, enum sp_place place, enum sp_access access,
                   bool skips_missing, struct sp_str text, struct sp_str subpath, struct sp_err *e)
{
    struct sp_entry entry = {.place = place, .access = access, .skips_missing = skips_missing};
    const bool has_text = place == SP_PLACE_PATH || place == SP_PLACE_GLOB ||
                          place == SP_PLACE_PROJECT || place == SP_PLACE_UNKNOWN;
    const bool keeps_text = has_text && text.p != NULL;
    const bool keeps_subpath = place == SP_PLACE_UNKNOWN && subpath.p != NULL;

    if ((keeps_text && sp_str_has_nul(text)) || (keeps_subpath && sp_str_has_nul(subpath)))
        return sp_fail(e, SP_E_INVALID, 0, "a filesystem path has a NUL byte in it");
    auto_free char *own_text = keeps_text ? sp_str_dup(text) : NULL;
    auto_free char *own_subpath = keeps_subpath ? sp_str_dup(subpath) : NULL;
    if ((keeps_text && own_text == NULL) || (keeps_subpath && own_subpath == NULL))
        return no_memory(e);
    entry.text = own_text;
    const int r = check_entry(&entry, e);
    if (r < 0)
        return r;
    /* Paths are kept normalised, so that entries can be compared. */
    if (own_text != NULL && (place == SP_PLACE_PATH || place == SP_PLACE_PROJECT)) {
        char *path = sp_path_normalise(own_text, "/");

        if (path == NULL)
            return no_memory(e);
        if (place == SP_PLACE_PROJECT) /* relative again */
            memmove(path, path + 1, strlen(path));
        free(own_text);
        own_text = path;
    }
    entry.text = TAKE_PTR(own_text);
    entry.subpath = TAKE_PTR(own_subpath);
    if (!push_entry(p, &entry)) {
        entry_done(&entry);
        return no_memory(e);
    }
    return 0;
}

/* ---- profiles ---- */

void sp_profile_done(struct sp_profile *p)
{
    for (size_t i = 0; i < p->count; i++)
        entry_done(&p->entries[i]);
    free(p->entries);
    sp_network_policy_free(p->managed);
    *p = (struct sp_profile){0};
}

bool sp_profile_copy(const struct sp_profile *p, struct sp_profile *ret)
{
    struct sp_profile copy = *p;

    copy.entries = NULL;
    copy.count = copy.cap = 0;
    copy.managed = p->managed == NULL ? NULL : sp_network_policy_copy(p->managed);
    bool ok = (copy.managed != NULL) == (p->managed != NULL);
    for (size_t i = 0; ok && i < p->count; i++)
        ok = append_entry(&copy, &p->entries[i]);
    if (!ok) {
        sp_profile_done(&copy);
        return false;
    }
    *ret = copy;
    return true;
}

bool sp_profile_equal(const struct sp_profile *a, const struct sp_profile *b)
{
    if (a->kind != b->kind)
        return false;
    if (a->kind == SP_PROFILE_DISABLED)
        return true;
    if (a->has_network != b->has_network ||
        !sp_network_policy_equal(sp_profile_managed(a), sp_profile_managed(b)))
        return false;
    if (a->kind == SP_PROFILE_EXTERNAL)
        return true;
    if (a->is_unrestricted != b->is_unrestricted || a->glob_depth != b->glob_depth ||
        a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++)
        if (compare_entries(&a->entries[i], &b->entries[i]) != 0)
            return false;
    return true;
}

/* By content; equal entries by their position in the array. */
static int by_content(const void *a, const void *b)
{
    const struct sp_entry *x = *(struct sp_entry *const *)a;
    const struct sp_entry *y = *(struct sp_entry *const *)b;
    const int c = compare_entries(x, y);

    return c != 0 ? c : (x > y) - (x < y);
}

static bool drop_repeats(struct sp_profile *p)
{
    if (p->count < 2)
        return true;
    auto_free struct sp_entry **sorted = malloc(p->count * sizeof(struct sp_entry *));
    auto_free bool *is_repeat = calloc(p->count, sizeof *is_repeat);
    if (sorted == NULL || is_repeat == NULL)
        return false;
    for (size_t i = 0; i < p->count; i++)
        sorted[i] = &p->entries[i];
    qsort(sorted, p->count, sizeof(struct sp_entry *), by_content);
    for (size_t i = 1; i < p->count; i++)
        if (compare_entries(sorted[i - 1], sorted[i]) == 0)
            is_repeat[sorted[i] - p->entries] = true;

    size_t kept = 0;
    for (size_t i = 0; i < p->count; i++)
        if (is_repeat[i])
            entry_done(&p->entries[i]);
        else
            p->entries[kept++] = p->entries[i];
    p->count = kept;
    return true;
}

/* ---- access to the whole disk ---- */

int sp_access_rank(enum sp_access a)
{
    static const int rank[] = {
        [SP_ACCESS_READ] = 0,
        [SP_ACCESS_WRITE] = 1,
        [SP_ACCESS_DENY] = 2,
    };
    return rank[a];
}

/* The fixed path of a keyword, else the entry's text. */
static const char *target_text(const struct sp_entry *entry)
{
    if (entry->place == SP_PLACE_ROOT)
        return "/";
    return entry->place == SP_PLACE_SLASH_TMP ? "/tmp" : entry->text;
}

static int compare_targets(const struct sp_entry *a, const struct sp_entry *b)
{
    const bool is_a_path = a->place != SP_PLACE_PROJECT && a->place != SP_PLACE_TMPDIR;
    const bool is_b_path = b->place != SP_PLACE_PROJECT && b->place != SP_PLACE_TMPDIR;

    if (is_a_path != is_b_path)
        return is_a_path ? -1 : 1;
    if (!is_a_path && a->place != b->place)
        return a->place < b->place ? -1 : 1;
    return compare_text(target_text(a), target_text(b));
}

/* By target; for one target the deciding entry comes first. */
static int by_target(const void *a, const void *b)
{
    const struct sp_entry *x = *(const struct sp_entry *const *)a;
    const struct sp_entry *y = *(const struct sp_entry *const *)b;
    const int c = compare_targets(x, y);

    return c != 0 ? c : sp_access_rank(y->access) - sp_access_rank(x->access);
}

/*
 * Whether an entry narrows a writable `root`: any pattern does, and any other entry without write
 * access, unless a deciding entry with write access has the same target. false: no memory.
 */
static bool find_narrowing(const struct sp_profile *p, bool *ret)
{
    auto_free const struct sp_entry **sorted = malloc((p->count + 1) * sizeof(struct sp_entry *));
    size_t n = 0;
    bool is_narrowed = false;

    if (sorted == NULL)
        return false;
    for (size_t i = 0; i < p->count; i++) {
        const struct sp_entry *entry = &p->entries[i];

        if (entry->place == SP_PLACE_GLOB)
            is_narrowed = true;
        else if (entry->place != SP_PLACE_MINIMAL && entry->place != SP_PLACE_UNKNOWN)
            sorted[n++] = entry;
    }
    qsort(sorted, n, sizeof(struct sp_entry *), by_target);
    for (size_t i = 0; i < n; i++)
        if (sorted[i]->access != SP_ACCESS_WRITE &&
            (i == 0 || compare_targets(sorted[i - 1], sorted[i]) != 0))
            is_narrowed = true;
    *ret = is_narrowed;
    return true;
}

bool sp_profile_reach(const struct sp_profile *p, struct sp_reach *ret)
{
    bool reads_root = false;
    bool writes_root = false;
    bool reads_minimal = false;
    bool denies = false;
    bool is_narrowed = true;

    if (p->kind != SP_PROFILE_MANAGED || p->is_unrestricted) {
        *ret = (struct sp_reach){.is_open = true, .is_full_read = true, .is_full_write = true};
        return true;
    }
    for (size_t i = 0; i < p->count; i++) {
        const struct sp_entry *entry = &p->entries[i];

        denies |= entry->access == SP_ACCESS_DENY;
        reads_root |= entry->place == SP_PLACE_ROOT && entry->access != SP_ACCESS_DENY;
        writes_root |= entry->place == SP_PLACE_ROOT && entry->access == SP_ACCESS_WRITE;
        reads_minimal |= entry->place == SP_PLACE_MINIMAL && entry->access != SP_ACCESS_DENY;
    }
    if (writes_root && !find_narrowing(p, &is_narrowed))
        return false;
    *ret = (struct sp_reach){
        .is_full_read = reads_root && !denies,
        .is_full_write = writes_root && !is_narrowed,
        .wants_minimal = reads_minimal && !(reads_root && !denies),
        .has_denied_reads = denies,
    };
    return true;
}

bool sp_profile_needs_sandbox(const struct sp_profile *p)
{
    struct sp_reach reach;

    if (p->kind != SP_PROFILE_MANAGED)
        return false;
    if (!p->has_network)
        return true;
    /* Out of memory: confine. */
    return !sp_profile_reach(p, &reach) || !reach.is_full_write;
}

/* ---- the four legacy modes ---- */

static const char *const mode_names[] = {
    [SP_MODE_FULL_ACCESS] = "danger-full-access",
    [SP_MODE_READ_ONLY] = "read-only",
    [SP_MODE_WORKSPACE_WRITE] = "workspace-write",
    [SP_MODE_EXTERNAL] = "external-sandbox",
};

void sp_legacy_done(struct sp_legacy *l)
{
    for (size_t i = 0; i < l->root_count; i++)
        free(l->roots[i]);
    free(l->roots);
    *l = (struct sp_legacy){0};
}

bool sp_mode_read(struct sp_str name, enum sp_mode *ret)
{
    for (size_t i = 0; i < sizeof mode_names / sizeof mode_names[0]; i++)
        if (sp_str_eq(name, sp_str_of(mode_names[i]))) {
            *ret = (enum sp_mode)i;
            return true;
        }
    return false;
}

const char *sp_mode_name(enum sp_mode m)
{
    return mode_names[m];
}

static int add_keyword(struct sp_profile *p, enum sp_place place, enum sp_access access,
                       struct sp_err *e)
{
    return sp_profile_add(p, place, access, false, (struct sp_str){0}, (struct sp_str){0}, e);
}

/* A generated default: without effect while the path is missing. */
static int add_read_only(struct sp_profile *p, enum sp_place place, const char *text,
                         struct sp_err *e)
{
    return sp_profile_add(p, place, SP_ACCESS_READ, true, sp_str_of(text), (struct sp_str){0}, e);
}

static int add_workspace(const struct sp_legacy *l, struct sp_profile *p, struct sp_err *e)
{
    int r;

    if ((r = add_keyword(p, SP_PLACE_ROOT, SP_ACCESS_READ, e)) < 0 ||
        (r = add_keyword(p, SP_PLACE_PROJECT, SP_ACCESS_WRITE, e)) < 0 ||
        (!l->excludes_slash_tmp &&
         (r = add_keyword(p, SP_PLACE_SLASH_TMP, SP_ACCESS_WRITE, e)) < 0) ||
        (!l->excludes_tmpdir && (r = add_keyword(p, SP_PLACE_TMPDIR, SP_ACCESS_WRITE, e)) < 0))
        return r;
    for (size_t i = 0; r == 0 && i < l->root_count; i++)
        r = sp_profile_add(p, SP_PLACE_PATH, SP_ACCESS_WRITE, false, sp_str_of(l->roots[i]),
                           (struct sp_str){0}, e);
    for (size_t i = 0; r == 0 && i < SP_PROTECTED_COUNT; i++)
        r = add_read_only(p, SP_PLACE_PROJECT, sp_protected_names[i], e);
    /* The protected names that exist below a root of the client. */
    for (size_t i = 0; i < l->root_count; i++)
        for (size_t k = 0; r == 0 && k < SP_PROTECTED_COUNT; k++) {
            const char *name = sp_protected_names[k];
            auto_free char *path = sp_path_normalise(name, l->roots[i]);
            struct stat st;

            if (path == NULL)
                return no_memory(e);
            if (stat(path, &st) == 0 &&
                (S_ISDIR(st.st_mode) || (S_ISREG(st.st_mode) && strcmp(name, ".git") == 0)))
                r = add_read_only(p, SP_PLACE_PATH, path, e);
        }
    return r;
}

int sp_profile_from_legacy(const struct sp_legacy *l, struct sp_profile *ret, struct sp_err *e)
{
    auto_profile struct sp_profile p = {.has_network = l->has_network};
    int r = 0;

    if (l->mode == SP_MODE_FULL_ACCESS) {
        p.kind = SP_PROFILE_DISABLED;
        p.has_network = true;
    } else if (l->mode == SP_MODE_EXTERNAL) {
        p.kind = SP_PROFILE_EXTERNAL;
    } else {
        r = l->mode == SP_MODE_READ_ONLY ? add_keyword(&p, SP_PLACE_ROOT, SP_ACCESS_READ, e)
                                         : add_workspace(l, &p, e);
    }
    if (r < 0)
        return r;
    *ret = TAKE_STRUCT(p);
    return 0;
}

/* ---- policies ---- */

void sp_policy_done(struct sp_policy *p)
{
    sp_profile_done(&p->profile);
    for (size_t i = 0; i < p->root_count; i++)
        free(p->roots[i]);
    free(p->roots);
    free(p->cwd);
    free(p->tmpdir);
    free(p->home);
    *p = (struct sp_policy){0};
}

bool sp_policy_add_root(struct sp_policy *p, struct sp_str root)
{
    auto_free char *copy = sp_str_dup(root);

    if (copy == NULL || !SP_GROW(p->roots, p->root_count, p->root_cap))
        return false;
    p->roots[p->root_count++] = TAKE_PTR(copy);
    return true;
}

bool sp_policy_copy(const struct sp_policy *p, struct sp_policy *ret)
{
    struct sp_policy copy = {.cwd_is_root = p->cwd_is_root};
    bool ok = sp_profile_copy(&p->profile, &copy.profile) && copy_text(p->cwd, &copy.cwd) &&
              copy_text(p->tmpdir, &copy.tmpdir) && copy_text(p->home, &copy.home);

    for (size_t i = 0; ok && i < p->root_count; i++)
        ok = sp_policy_add_root(&copy, sp_str_of(p->roots[i]));
    if (!ok)
        sp_policy_done(&copy);
    *ret = copy;
    return ok;
}

/* ==== additional permissions of one command ====
 *
 * They are normalised when requested, intersected with what was granted, and added to the profile.
 */

static int no_memory_for_grant(struct sp_err *e)
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
        return no_memory_for_grant(e);
    for (size_t i = 0; i < p.count; i++) {
        if (p.entries[i].place != SP_PLACE_PATH)
            continue;
        char *place = real_place(p.entries[i].text);
        if (place == NULL)
            return no_memory_for_grant(e);
        free(p.entries[i].text);
        p.entries[i].text = place;
    }
    if (!drop_repeats(&p))
        return no_memory_for_grant(e);
    if (p.count == 0)
        p.glob_depth = 0;
    sp_profile_done(&g->extra);
    g->extra = TAKE_STRUCT(p);
    return 0;
}

/* ---- add ---- */

/* Adds the entries and the network permission of *more to *to. */
static int unite(struct sp_profile *to, const struct sp_profile *more, struct sp_err *e)
{
    to->glob_depth = merge_depths(has_globs(to), to->glob_depth, has_globs(more), more->glob_depth);
    to->has_network |= more->has_network;
    for (size_t i = 0; i < more->count; i++)
        if (!append_entry(to, &more->entries[i]))
            return no_memory_for_grant(e);
    return drop_repeats(to) ? 0 : no_memory_for_grant(e);
}

int sp_profile_widen(const struct sp_profile *p, const struct sp_grant *g, struct sp_profile *ret,
                     struct sp_err *e)
{
    auto_profile struct sp_profile wide = {0};
    int r = 0;

    if (!sp_profile_copy(p, &wide))
        return no_memory_for_grant(e);
    if (p->kind != SP_PROFILE_MANAGED || p->is_unrestricted)
        wide.has_network |= g->extra.has_network;
    else if (g->extra.count != 0 || g->extra.has_network)
        r = unite(&wide, &g->extra, e);
    if (r < 0)
        return r;
    *ret = TAKE_STRUCT(wide);
    return 0;
}

int sp_grant_merge(const struct sp_grant *a, const struct sp_grant *b, struct sp_grant *ret,
                   struct sp_err *e)
{
    auto_profile struct sp_profile both = {0};

    if (!sp_profile_copy(&a->extra, &both))
        return no_memory_for_grant(e);
    const int r = unite(&both, &b->extra, e);
    if (r < 0)
        return r;
    ret->extra = TAKE_STRUCT(both);
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
        return no_memory_for_grant(e);
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

        if (!names_same(entry, granted))
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
    return append_entry(to, &literal);
}

/* Adds the part of a granted entry that the request covers. An entry for the workspace roots is
 * accepted path by path, any other as a whole. */
static int accept_entry(const struct request *q, const struct sp_entry *granted,
                        struct sp_profile *to, struct sp_err *e)
{
    const bool is_split = granted->place == SP_PLACE_PROJECT;
    auto_resolved struct sp_resolved one = {0};

    if (granted->access == SP_ACCESS_DENY || granted->place == SP_PLACE_GLOB)
        return 0;
    int r = resolve(q->context, granted, 1, &one, e);
    bool is_covered = one.count != 0 || names_it(q->words, granted);
    for (size_t i = 0; r == 0 && (is_split || is_covered) && i < one.count; i++) {
        r = request_covers(q, one.facts[i].path, granted->access, &is_covered, e);
        if (r == 0 && is_split && is_covered &&
            !append_path(to, granted, SP_PLACE_PATH, one.facts[i].path))
            return no_memory_for_grant(e);
    }
    if (r == 0 && !is_split && is_covered && !append_entry(to, granted))
        return no_memory_for_grant(e);
    return r;
}

static bool overlaps(const struct sp_resolved *accepted, const char *path)
{
    for (size_t i = 0; i < accepted->count; i++)
        if (sp_path_is_in(accepted->facts[i].path, path) ||
            sp_path_is_in(path, accepted->facts[i].path))
            return true;
    return false;
}

/* Adds the parts of the deny entries that overlap an accepted path. */
static int retain_denies(const struct sp_policy *context, const struct sp_profile *from,
                         const struct sp_resolved *accepted, struct sp_profile *to,
                         struct sp_err *e)
{
    int r = 0;

    for (size_t n = 0; n < from->count; n++) {
        const struct sp_entry *deny = &from->entries[n];
        auto_resolved struct sp_resolved one = {0};
        bool is_kept = false;

        if (deny->access != SP_ACCESS_DENY)
            continue;
        if ((r = resolve(context, deny, 1, &one, e)) < 0)
            return r;
        for (size_t i = 0; !is_kept && i < one.count; i++) {
            if (!overlaps(accepted, one.facts[i].path))
                continue;
            is_kept = deny->place != SP_PLACE_PROJECT;
            if (is_kept ? !append_entry(to, deny)
                        : !append_path(to, deny, SP_PLACE_PATH, one.facts[i].path))
                return no_memory_for_grant(e);
        }
        for (size_t i = 0; !is_kept && i < one.glob_count; i++) {
            auto_glob struct sp_glob g = {0};

            if ((r = sp_glob_read(one.globs[i], &g, e)) < 0)
                return r;
            if (overlaps(accepted, g.prefix) && !append_path(to, deny, SP_PLACE_GLOB, one.globs[i]))
                return no_memory_for_grant(e);
        }
    }
    to->glob_depth = from->glob_depth;
    return 0;
}

int sp_grant_intersect(const struct sp_grant *asked, const struct sp_grant *granted,
                       const struct sp_policy *context, struct sp_grant *ret, struct sp_err *e)
{
    auto_profile struct sp_profile accepted = {0};
    struct request q = {.context = context, .words = &asked->extra};
    int r = resolve(context, asked->extra.entries, asked->extra.count, &q.paths, e);

    if (r == 0 && (q.globs = calloc(q.paths.glob_count + 1, sizeof *q.globs)) == NULL)
        r = no_memory_for_grant(e);
    for (size_t i = 0; r == 0 && i < q.paths.glob_count; i++)
        r = sp_glob_read(q.paths.globs[i], &q.globs[i], e);
    for (size_t i = 0; r == 0 && i < granted->extra.count; i++)
        r = accept_entry(&q, &granted->extra.entries[i], &accepted, e);
    for (size_t i = 0; q.globs != NULL && i < q.paths.glob_count; i++)
        sp_glob_done(&q.globs[i]);
    free(q.globs);
    sp_resolved_done(&q.paths);
    if (r < 0)
        return r;

    /* The deny entries of both sides that overlap the accepted entries. */
    auto_profile struct sp_profile ours = {0};
    auto_profile struct sp_profile theirs = {0};
    auto_resolved struct sp_resolved paths = {0};
    if ((r = resolve(context, accepted.entries, accepted.count, &paths, e)) < 0 ||
        (r = retain_denies(context, &asked->extra, &paths, &ours, e)) < 0 ||
        (r = retain_denies(context, &granted->extra, &paths, &theirs, e)) < 0 ||
        (r = unite(&accepted, &ours, e)) < 0 || (r = unite(&accepted, &theirs, e)) < 0)
        return r;
    accepted.has_network = asked->extra.has_network && granted->extra.has_network;
    ret->extra = TAKE_STRUCT(accepted);
    return 0;
}
