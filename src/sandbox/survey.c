/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The disk is hostile and changes during the survey. Each place is recorded with the inode that was
 * seen; seeing two different inodes at one place is an error; each symlink that is followed is
 * recorded.
 */
#include "sandbox/survey.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/grow.h"
#include "sandbox/survey_priv.h"

#define MAX_ALIASES 1024
#define auto_spots  __attribute__((cleanup(sp_spots_done)))

void sp_survey_done(struct sp_survey *s)
{
    for (size_t i = 0; i < s->count; i++)
        free(s->spots[i].path);
    free(s->spots);
    for (size_t i = 0; i < s->alias_count; i++) {
        free(s->aliases[i].path);
        free(s->aliases[i].target);
    }
    free(s->aliases);
    for (size_t i = 0; i < s->pin_count; i++)
        free(s->pins[i].path);
    free(s->pins);
    for (size_t i = 0; i < s->mark_count; i++)
        free(s->marks[i].path);
    free(s->marks);
    *s = (struct sp_survey){0};
}

/* ---- spots ---- */

/* Removes the writable spots at or below the path: the spot around it decides. */
static void close_below(struct sp_spots *t, const char *path)
{
    size_t kept = 0;

    for (size_t i = 0; i < t->settled; i++) {
        struct sp_spot *s = &t->items[i];

        if (s->access == SP_ACCESS_WRITE && sp_path_is_in(s->path, path))
            free(s->path);
        else
            t->items[kept++] = *s;
    }
    t->count = kept;
    t->settled = kept;
}

/* Removes all spots below hidden ones. */
static void drop_below_hidden(struct sp_spots *t)
{
    const char *hidden = NULL;
    size_t kept = 0;

    for (size_t i = 0; i < t->settled; i++) {
        struct sp_spot *s = &t->items[i];

        if (hidden != NULL && sp_path_is_in(s->path, hidden)) {
            free(s->path);
            continue;
        }
        hidden = s->why == SP_WHY_HIDDEN ? s->path : NULL;
        t->items[kept++] = *s;
    }
    t->count = kept;
    t->settled = kept;
}

/* ---- marks ---- */

static int by_place(const void *a, const void *b)
{
    const struct sp_mark *x = a;
    const struct sp_mark *y = b;
    const int order = strcmp(x->path, y->path);

    return order != 0 ? order : x->follows - y->follows;
}

static bool has_same_text(const struct sp_identity *a, const struct sp_identity *b)
{
    return a->size == b->size && sp_same_time(a->changed, b->changed);
}

static int sort_marks(struct sp_making *m)
{
    struct sp_survey *s = &m->out;
    size_t kept = 0;
    int r = 0;

    if (s->mark_count > 1)
        qsort(s->marks, s->mark_count, sizeof *s->marks, by_place);
    for (size_t i = 0; i < s->mark_count; i++) {
        struct sp_mark *last = kept == 0 ? NULL : &s->marks[kept - 1];
        const struct sp_mark *mark = &s->marks[i];

        if (last == NULL || by_place(last, mark) != 0) {
            s->marks[kept++] = *mark;
            continue;
        }
        /* Two marks of one path must have seen the same; the exact one stays. */
        if (last->is_missing != mark->is_missing || !sp_identity_equal(&last->who, &mark->who) ||
            (last->is_exact && mark->is_exact && !has_same_text(&last->who, &mark->who)))
            r = sp_making_changed(m, mark->path);
        if (!last->is_exact && mark->is_exact) {
            last->is_exact = true;
            last->who = mark->who;
        }
        free(mark->path);
    }
    s->mark_count = kept;
    return r;
}

/* ---- symlinks ---- */

/* The first symlink on the way that a command could replace, or NULL. */
static const struct sp_symlink *writable_link(const struct sp_making *m,
                                              const struct sp_canonical *at)
{
    for (size_t i = 0; i < at->link_count; i++) {
        const char *link = at->links[i].path;

        if (sp_spots_can_write(&m->spots, link, sp_path_parent(link)))
            return &at->links[i];
    }
    return NULL;
}

int sp_making_refuse_link(struct sp_making *m, const char *path, const char *link,
                          enum sp_access access)
{
    static const char *const what[] = {[SP_ACCESS_DENY] = "deny-read path",
                                       [SP_ACCESS_READ] = "read-only path",
                                       [SP_ACCESS_WRITE] = "writable root"};

    return sp_fail(m->e, SP_E_INVALID, 0,
                   "cannot enforce sandbox %s %s because it crosses writable symlink %s",
                   what[access], path, link);
}

int sp_making_check_links(struct sp_making *m, const char *path, const struct sp_canonical *at,
                          enum sp_access access)
{
    const struct sp_symlink *link = writable_link(m, at);

    return link == NULL ? 0 : sp_making_refuse_link(m, path, link->path, access);
}

/* ---- facts ---- */

static int locate_facts(struct sp_making *m)
{
    const struct sp_resolved *resolved = m->resolved;

    if (resolved->is_open || resolved->count == 0)
        return 0;
    m->located = calloc(resolved->count, sizeof *m->located);
    if (m->located == NULL)
        return sp_making_no_memory(m);
    for (size_t i = 0; i < resolved->count; i++) {
        struct sp_located_entry *v = &m->located[i];
        int r;

        v->fact = &resolved->facts[i];
        if ((r = sp_canonical_find(v->fact->path, &v->at, m->e)) < 0)
            return r;
        m->view_count++;
        if ((r = sp_making_mark_way(m, v->fact->path, &v->at)) < 0)
            return r;
    }
    return 0;
}

static int add_found(struct sp_making *m, bool is_minimal)
{
    for (size_t i = 0; i < m->view_count; i++) {
        const struct sp_located_entry *v = &m->located[i];
        const struct sp_canonical *at = &v->at;

        if (v->fact->is_minimal != is_minimal || at->way != SP_WAY_FOUND)
            continue;
        /* `minimal` only fills gaps: it does not change a place that an entry names. */
        if (is_minimal && sp_spots_over(&m->spots, at->path, strlen(at->path)) != NULL)
            continue;
        const int r =
            sp_making_add(m, at->path, &at->who, v->fact->access, SP_WHY_ENTRY, v->fact->entry);
        if (r < 0)
            return r;
    }
    return sp_spots_settle(&m->spots, m->policy, m->e);
}

static int add_facts(struct sp_making *m)
{
    struct sp_spots *t = &m->spots;
    int r;

    if ((r = add_found(m, false)) < 0)
        return r;
    if (t->settled != 0 && t->items[0].path[1] == 0 && t->items[0].access == SP_ACCESS_DENY) {
        free(t->items[0].path); /* a denied "/" is the default; it needs no spot */
        t->count = --t->settled;
        memmove(t->items, t->items + 1, t->count * sizeof *t->items);
    }
    if ((r = add_found(m, true)) < 0)
        return r;

    /* A command with write access to a root could replace a symlink there, and the next survey
     * would open its target. So an entry that crosses such a symlink must not open anything that is
     * not writable without this entry. */
    auto_spots struct sp_spots sure = {0};
    for (size_t i = 0; i < m->view_count; i++) {
        const struct sp_located_entry *v = &m->located[i];
        const struct sp_spot spot = {.access = v->fact->access};

        if (v->at.way == SP_WAY_FOUND && writable_link(m, &v->at) == NULL &&
            !sp_spots_add(&sure, v->at.path, &spot))
            return sp_making_no_memory(m);
    }
    r = sp_spots_settle(&sure, NULL, m->e);
    for (size_t i = 0; r == 0 && i < m->view_count; i++) {
        const struct sp_located_entry *v = &m->located[i];

        if (v->fact->access == SP_ACCESS_WRITE && v->at.way == SP_WAY_FOUND &&
            !sp_spots_can_write(&sure, v->at.path, strlen(v->at.path)))
            r = sp_making_check_links(m, v->fact->path, &v->at, SP_ACCESS_WRITE);
    }
    return r;
}

/* ---- missing paths ---- */

/* Marks the missing component and its parent, and adds the spot. */
static int add_first_missing(struct sp_making *m, const struct sp_canonical *at,
                             enum sp_access access, enum sp_spot_why why, size_t entry)
{
    int r;

    if ((r = sp_making_mark(m, at->path, false, false, NULL)) < 0 ||
        (r = sp_making_mark(m, at->parent, false, false, &at->who)) < 0)
        return r;
    return sp_making_add_missing(m, at->path, &at->who, access, why, entry);
}

/* A missing path matters only if a command could create it. */
static int add_missing(struct sp_making *m)
{
    for (size_t i = 0; i < m->view_count; i++) {
        const struct sp_fact *fact = m->located[i].fact;
        const struct sp_canonical *at = &m->located[i].at;
        const char *last = at->parent != NULL ? at->parent : at->path;
        int r = 0;

        if (at->way == SP_WAY_FOUND || fact->access == SP_ACCESS_WRITE || fact->skips_missing ||
            !sp_spots_can_write(&m->spots, last, strlen(last)))
            continue;
        if (at->way == SP_WAY_MISSING)
            r = add_first_missing(m, at, fact->access, SP_WHY_ENTRY, fact->entry);
        else if (at->way == SP_WAY_NO_DIR)
            r = sp_fail(m->e, SP_E_INVALID, 0,
                        "cannot enforce sandbox %s path %.150s because %.150s is not a directory",
                        fact->access == SP_ACCESS_DENY ? "deny-read" : "read-only", fact->path,
                        at->path);
        else if (at->way == SP_WAY_BARRED)
            r = sp_fail(m->e, SP_E_SYSTEM, EACCES, "look at %.300s", fact->path);
        if (r < 0)
            return r;
    }
    return sp_spots_settle(&m->spots, m->policy, m->e);
}

/* ---- protected names without a placeholder ---- */

/* A shared temporary directory: a placeholder there would disturb other programs. */
static bool is_temporary_root(const struct sp_making *m, const char *root)
{
    if (strcmp(root, "/tmp") == 0 || strcmp(root, "/var/tmp") == 0)
        return true;
    for (size_t i = 0; i < m->view_count; i++) {
        const struct sp_located_entry *v = &m->located[i];

        if (v->at.way == SP_WAY_FOUND && sp_entry_is_temporary(m->policy, v->fact->entry) &&
            strcmp(v->at.path, root) == 0)
            return true;
    }
    return false;
}

/* An entry of the client (not a generated default) wants the path to stay missing. */
static bool is_asked_for(const struct sp_making *m, const char *path)
{
    for (size_t i = 0; i < m->view_count; i++) {
        const struct sp_located_entry *v = &m->located[i];

        if (v->at.way == SP_WAY_MISSING && !v->fact->skips_missing &&
            v->fact->access != SP_ACCESS_WRITE && strcmp(v->at.path, path) == 0)
            return true;
    }
    return false;
}

static int set_watched(struct sp_making *m)
{
    for (size_t i = 0; i < m->spots.count; i++) {
        struct sp_spot *s = &m->spots.items[i];

        if (s->kind != SP_SPOT_MISSING || s->why != SP_WHY_PROTECTED || is_asked_for(m, s->path))
            continue;
        const size_t n = sp_path_parent(s->path);
        auto_free char *root = strndup(s->path, n == 0 ? 1 : n);
        if (root == NULL)
            return sp_making_no_memory(m);
        /* A placeholder for the names that make programs execute something when a person works in
         * the directory. */
        const char *name = strrchr(s->path, '/') + 1;
        const bool is_executed = strcmp(name, ".git") == 0 || strcmp(name, ".agents") == 0 ||
                                 strcmp(name, ".codex") == 0;
        s->is_watched = !is_executed || is_temporary_root(m, root);
    }
    return 0;
}

/* ---- hidden paths ---- */

static int add_hidden_paths(struct sp_making *m, const char *const *paths)
{
    int r;

    for (; paths != NULL && *paths != NULL; paths++) {
        auto_free char *path = sp_path_normalise(*paths, NULL);
        auto_canonical struct sp_canonical at = {0};

        if (path == NULL && errno == ENOMEM)
            return sp_making_no_memory(m);
        if (path == NULL)
            return sp_fail(m->e, SP_E_INVALID, 0, "hidden path %.300s is not absolute", *paths);
        if ((r = sp_canonical_find(path, &at, m->e)) < 0 ||
            (r = sp_making_mark_way(m, path, &at)) < 0)
            return r;
        if (at.way == SP_WAY_BARRED && sp_spots_can_write(&m->spots, at.parent, strlen(at.parent)))
            return sp_fail(m->e, SP_E_SYSTEM, EACCES, "look at %.300s", path);
        if (at.way != SP_WAY_FOUND)
            continue;
        if (at.path[1] == 0)
            return sp_fail(m->e, SP_E_INVALID, 0, "the root directory cannot be hidden");
        /* Hides the inode itself, so symlinks on the way may be writable. */
        r = sp_making_add(m, at.path, &at.who, SP_ACCESS_DENY, SP_WHY_HIDDEN, SP_NO_ENTRY);
        if (r < 0)
            return r;
    }
    r = sp_spots_settle(&m->spots, m->policy, m->e);
    if (r == 0)
        drop_below_hidden(&m->spots);
    return r;
}

/* ---- sallyport's own places ---- */

enum own_kind { OWN_DIR, OWN_READ_ONLY, OWN_NAME };

/* at->way is not FOUND. */
static int add_own_unfound(struct sp_making *m, const char *path, const struct sp_canonical *at,
                           enum own_kind kind)
{
    if (at->way == SP_WAY_IMPOSSIBLE)
        return 0;
    if (at->way == SP_WAY_NO_DIR)
        return sp_fail(m->e, SP_E_INVALID, 0,
                       "cannot protect %.200s because %.200s is not a directory", path, at->path);
    if (at->way == SP_WAY_BARRED)
        return sp_fail(m->e, SP_E_SYSTEM, EACCES, "look at %.300s", path);
    if (kind == OWN_READ_ONLY)
        return 0;
    return add_first_missing(m, at, SP_ACCESS_READ, kind == OWN_DIR ? SP_WHY_OWN : SP_WHY_PROTECTED,
                             SP_NO_ENTRY);
}

static int add_own(struct sp_making *m, const char *named, enum own_kind kind)
{
    auto_free char *path = sp_path_normalise(named, NULL);
    auto_canonical struct sp_canonical at = {0};

    if (path == NULL)
        return errno == ENOMEM
                   ? sp_making_no_memory(m)
                   : sp_fail(m->e, SP_E_INVALID, 0, "%.300s is not an absolute path", named);
    int r = sp_canonical_find(path, &at, m->e);
    if (r < 0)
        return r;
    /* A command could replace the symlink, and a later sallyport would read another file. */
    const struct sp_symlink *link = writable_link(m, &at);
    if (link != NULL)
        return sp_fail(m->e, SP_E_INVALID, 0,
                       "cannot protect %.200s: a command could replace the symlink %.200s on the "
                       "way to it; name it without that symlink",
                       path, link->path);
    /* A place that commands cannot write gets no mark: only the user can make it reachable, so it
     * need not be checked before each command. */
    const char *last = at.parent != NULL ? at.parent : at.path;
    const bool is_in_reach = sp_spots_can_write(&m->spots, last, strlen(last));
    if (is_in_reach)
        r = sp_making_mark_way(m, path, &at);
    if (r == 0 && is_in_reach)
        r = at.way == SP_WAY_FOUND
                ? sp_making_add(m, at.path, &at.who, SP_ACCESS_READ, SP_WHY_OWN, SP_NO_ENTRY)
                : add_own_unfound(m, path, &at, kind);
    if (r == 0)
        r = sp_spots_settle(&m->spots, m->policy,
                            m->e); /* later paths may lie inside of this spot */
    if (r == 0 && kind != OWN_DIR && at.way == SP_WAY_FOUND)
        close_below(&m->spots, at.path);
    return r;
}

static int add_own_list(struct sp_making *m, const char *const *paths, enum own_kind kind)
{
    int r = 0;

    for (; r == 0 && paths != NULL && *paths != NULL; paths++)
        r = add_own(m, *paths, kind);
    return r;
}

/* ---- aliases ---- */

static int add_alias(struct sp_making *m, const struct sp_symlink *link)
{
    struct sp_survey *s = &m->out;
    const struct sp_spot *over = sp_spots_over(&m->spots, link->path, sp_path_parent(link->path));

    if (over != NULL && over->access != SP_ACCESS_DENY)
        return 0;
    for (size_t i = 0; i < s->alias_count; i++)
        if (strcmp(s->aliases[i].path, link->path) == 0)
            return 0;
    if (s->alias_count == MAX_ALIASES)
        return sp_fail(m->e, SP_E_LIMIT, 0, "more than %d symlinks lead to readable places",
                       MAX_ALIASES);
    if (!SP_GROW(s->aliases, s->alias_count, s->alias_cap))
        return sp_making_no_memory(m);
    auto_free char *path = strdup(link->path);
    auto_free char *target = strdup(link->target);
    if (path == NULL || target == NULL)
        return sp_making_no_memory(m);
    s->aliases[s->alias_count++] =
        (struct sp_alias){.path = TAKE_PTR(path), .target = TAKE_PTR(target)};
    return 0;
}

static int add_aliases(struct sp_making *m)
{
    int r = 0;

    if (m->resolved->is_full_read)
        return 0;
    for (size_t i = 0; i < m->view_count; i++) {
        const struct sp_located_entry *v = &m->located[i];

        if (v->fact->access == SP_ACCESS_DENY || v->at.way != SP_WAY_FOUND)
            continue;
        for (size_t k = 0; r == 0 && k < v->at.link_count; k++)
            r = add_alias(m, &v->at.links[k]);
    }
    return r;
}

/* ---- pins ---- */

/* The stack of spots above the current one, outermost first. */
struct level {
    const struct sp_spot *spot; /* NULL: "/" */
    size_t len;                 /* of its path, 0 for / */
    bool can_rename;            /* commands can rename directories between it and the next spot */
    bool is_held;               /* the directories that lead to it are pinned */
};

struct pinning {
    struct sp_making *m;
    struct level *levels;
    size_t depth;
};

/* Pins the directories between the spot above and `path`; those within the first `done` bytes of
 * the path are pinned already. */
static int pin_between(struct pinning *p, const struct level *above, const char *path, size_t done)
{
    const size_t end = sp_path_parent(path);
    struct sp_survey *s = &p->m->out;

    if (!above->can_rename)
        return 0;
    for (size_t n = above->len + 1; n <= end; n++) {
        if ((path[n] != '/' && n != end) || n <= done || n <= 1)
            continue;
        if (sp_budget_is_spent() || s->pin_count >= SP_MAX_PINS)
            return sp_budget_refuse(p->m->e);
        if (!SP_GROW(s->pins, s->pin_count, s->pin_cap))
            return sp_making_no_memory(p->m);
        char *copy = strndup(path, n);
        if (copy == NULL)
            return sp_making_no_memory(p->m);
        s->pins[s->pin_count++] = (struct sp_pin){.path = copy};
    }
    return 0;
}

/* The length of the common leading directories of two paths. */
static size_t common_way(const char *a, const char *b)
{
    size_t n = 0;
    size_t last = 0;

    for (; a[n] != 0 && a[n] == b[n]; n++)
        if (a[n] == '/')
            last = n;
    return last;
}

static int by_pin_path(const void *a, const void *b)
{
    return sp_path_order(((const struct sp_pin *)a)->path, ((const struct sp_pin *)b)->path);
}

/* Pins the directories that must not be renamed; the spots are final. */
static int pin(struct sp_making *m)
{
    struct pinning p = {.m = m, .levels = calloc(m->spots.settled + 2, sizeof *p.levels)};
    struct sp_survey *s = &m->out;
    const struct sp_spots *spots = &m->spots;
    const char *last = NULL;
    size_t kept = 0;
    int r = 0;

    if (p.levels == NULL)
        return sp_making_no_memory(m);
    p.levels[p.depth++] = (struct level){.can_rename = m->resolved->is_open};
    for (size_t i = 0; r == 0 && i < spots->settled; i++) {
        const struct sp_spot *at = &spots->items[i];
        const bool is_root = at->path[1] == 0;

        while (p.depth > 1 && !sp_path_is_in(at->path, p.levels[p.depth - 1].spot->path))
            p.depth--;
        p.levels[p.depth++] = (struct level){.spot = at,
                                             .len = is_root ? 0 : strlen(at->path),
                                             .can_rename = at->access == SP_ACCESS_WRITE};
        if (at->access == SP_ACCESS_WRITE || is_root)
            continue;
        r = pin_between(&p, &p.levels[p.depth - 2], at->path,
                        last == NULL ? 0 : common_way(last, at->path));
        /* Also the directories that lead to the writable places around it. */
        for (size_t k = p.depth - 2; r == 0 && k > 0 && !p.levels[k].is_held; k--) {
            r = pin_between(&p, &p.levels[k - 1], p.levels[k].spot->path, 0);
            p.levels[k].is_held = true;
        }
        last = at->path;
    }
    free(p.levels);
    if (s->pin_count > 1)
        qsort(s->pins, s->pin_count, sizeof *s->pins, by_pin_path);
    for (size_t i = 0; i < s->pin_count; i++)
        if (kept != 0 && strcmp(s->pins[kept - 1].path, s->pins[i].path) == 0)
            free(s->pins[i].path);
        else
            s->pins[kept++] = s->pins[i];
    s->pin_count = kept;
    for (size_t i = 0; r == 0 && i < s->pin_count; i++) {
        struct sp_pin *at = &s->pins[i];

        if (sp_identity_get_strictly(at->path, &at->who) != 0 || !S_ISDIR(at->who.mode))
            return sp_making_changed(m, at->path);
        r = sp_making_mark(m, at->path, false, false, &at->who);
    }
    return r;
}

/* ---- the whole ---- */

static int make(struct sp_making *m, const struct sp_fixed_places *fixed)
{
    int r;

    if ((r = locate_facts(m)) < 0 || (r = add_facts(m)) < 0 || (r = sp_making_protect(m)) < 0 ||
        (r = sp_making_expand(m)) < 0 || (r = add_missing(m)) < 0 || (r = set_watched(m)) < 0)
        return r;
    for (size_t i = 0; i < m->view_count; i++) { /* needs the writable spots */
        const struct sp_located_entry *v = &m->located[i];

        if (v->fact->access != SP_ACCESS_WRITE &&
            (r = sp_making_check_links(m, v->fact->path, &v->at, v->fact->access)) < 0)
            return r;
    }
    if (!m->resolved->is_open && ((r = add_own_list(m, fixed->own_dirs, OWN_DIR)) < 0 ||
                                  (r = add_own_list(m, fixed->read_only, OWN_READ_ONLY)) < 0 ||
                                  (r = add_own_list(m, fixed->names, OWN_NAME)) < 0))
        return r;
    if ((r = add_hidden_paths(m, fixed->hidden)) < 0 || (r = add_aliases(m)) < 0 ||
        (r = pin(m)) < 0)
        return r;
    return sort_marks(m);
}

int sp_survey_make(const struct sp_policy *p, const struct sp_resolved *r,
                   const struct sp_fixed_places *fixed, struct sp_survey *ret, struct sp_err *e)
{
    static const struct sp_fixed_places none = {0};
    struct sp_err discarded = {0};
    struct sp_making m = {.policy = p, .resolved = r, .e = e != NULL ? e : &discarded};

    m.out.is_open = r->is_open;
    m.out.is_full_read = r->is_full_read;
    m.out.has_globs = r->glob_count != 0;
    sp_budget_begin(SP_DISK_BUDGET_MS);
    const int err = make(&m, fixed != NULL ? fixed : &none);
    if (err == 0) {
        m.out.spots = TAKE_PTR(m.spots.items);
        m.out.count = m.spots.count;
        m.out.cap = m.spots.cap;
        m.spots = (struct sp_spots){0};
        *ret = m.out;
        m.out = (struct sp_survey){0};
    }
    for (size_t i = 0; i < m.view_count; i++)
        sp_canonical_done(&m.located[i].at);
    free(m.located);
    sp_spots_done(&m.spots);
    sp_survey_done(&m.out);
    return err;
}

/* ---- later ---- */

static bool is_unchanged(const struct sp_mark *mark)
{
    struct sp_identity now;
    const int err = mark->follows ? sp_identity_get(AT_FDCWD, mark->path, true, &now)
                                  : sp_identity_get_strictly(mark->path, &now);

    /* Only these errors mean "still missing"; any other (EIO, ENOMEM) counts as changed. */
    if (err != 0 || mark->is_missing)
        return mark->is_missing &&
               (err == ENOENT || err == ENOTDIR || err == EACCES || err == ENAMETOOLONG);
    return sp_identity_equal(&now, &mark->who) &&
           (!mark->is_exact || has_same_text(&now, &mark->who));
}

bool sp_survey_holds(const struct sp_survey *s)
{
    if (s->has_globs)
        return false;
    sp_budget_begin(SP_DISK_BUDGET_MS);
    for (size_t i = 0; i < s->mark_count; i++)
        if (sp_budget_is_spent() || !is_unchanged(&s->marks[i]))
            return false;
    return true;
}

bool sp_survey_equal(const struct sp_survey *a, const struct sp_survey *b)
{
    if (a->is_open != b->is_open || a->is_full_read != b->is_full_read || a->count != b->count ||
        a->pin_count != b->pin_count || a->alias_count != b->alias_count)
        return false;
    for (size_t i = 0; i < a->count; i++) {
        const struct sp_spot *x = &a->spots[i];
        const struct sp_spot *y = &b->spots[i];

        if (x->access != y->access || x->kind != y->kind || !sp_identity_equal(&x->who, &y->who) ||
            strcmp(x->path, y->path) != 0)
            return false;
    }
    for (size_t i = 0; i < a->pin_count; i++)
        if (!sp_identity_equal(&a->pins[i].who, &b->pins[i].who) ||
            strcmp(a->pins[i].path, b->pins[i].path) != 0)
            return false;
    for (size_t i = 0; i < a->alias_count; i++)
        if (strcmp(a->aliases[i].path, b->aliases[i].path) != 0 ||
            strcmp(a->aliases[i].target, b->aliases[i].target) != 0)
            return false;
    return true;
}
