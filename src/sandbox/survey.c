/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The disk is hostile and changes during the survey. Each place is recorded with the inode that was
 * seen; seeing two different inodes at one place is an error; each symlink that is followed is
 * recorded.
 */
#include "sandbox/survey.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/grow.h"
#include "sandbox/survey_priv.h"

#define MAX_ALIASES 1024

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

int sp_making_no_memory(struct sp_making *m)
{
    return sp_fail(m->e, SP_E_SYSTEM, ENOMEM, "survey a sandbox policy");
}

int sp_making_changed(struct sp_making *m, const char *path)
{
    return sp_fail(m->e, SP_E_STATE, 0, "%.300s changed while it was looked at", path);
}

static int add_spot(struct sp_making *m, const char *path, const struct sp_identity *who,
                    struct sp_spot spot)
{
    spot.dev = who->dev;
    spot.ino = who->ino;
    spot.born = who->born;
    return sp_spots_add(&m->spots, path, &spot) ? 0 : sp_making_no_memory(m);
}

int sp_making_add(struct sp_making *m, const char *path, const struct sp_identity *who,
                  enum sp_access access, enum sp_spot_why why, size_t entry)
{
    const enum sp_spot_kind kind = S_ISDIR(who->mode) ? SP_SPOT_DIR : SP_SPOT_FILE;

    return add_spot(m, path, who,
                    (struct sp_spot){.access = access, .kind = kind, .why = why, .entry = entry});
}

int sp_making_add_missing(struct sp_making *m, const char *path, const struct sp_identity *who,
                          enum sp_access access, enum sp_spot_why why, size_t entry)
{
    return add_spot(
        m, path, who,
        (struct sp_spot){.access = access, .kind = SP_SPOT_MISSING, .why = why, .entry = entry});
}

int sp_making_settle(struct sp_making *m)
{
    return sp_spots_settle(&m->spots, m->policy, m->e);
}

/* ---- symlinks ---- */

const struct sp_symlink *sp_making_writable_link(const struct sp_making *m,
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
    const struct sp_symlink *link = sp_making_writable_link(m, at);

    return link == NULL ? 0 : sp_making_refuse_link(m, path, link->path, access);
}

/*
 * A command with write access to a root could replace a symlink there, and the next survey would
 * open its target. So an entry that crosses such a symlink must not open anything that is not
 * writable without this entry.
 */
static int check_write_links(struct sp_making *m)
{
    auto_spots struct sp_spots sure = {0};
    int r = 0;

    for (size_t i = 0; i < m->view_count; i++) {
        const struct sp_located_entry *v = &m->views[i];
        const struct sp_spot spot = {.access = v->fact->access};

        if (v->at.way == SP_WAY_FOUND && sp_making_writable_link(m, &v->at) == NULL &&
            !sp_spots_add(&sure, v->at.path, &spot))
            return sp_making_no_memory(m);
    }
    r = sp_spots_settle(&sure, NULL, m->e);
    for (size_t i = 0; r == 0 && i < m->view_count; i++) {
        const struct sp_located_entry *v = &m->views[i];

        if (v->fact->access == SP_ACCESS_WRITE && v->at.way == SP_WAY_FOUND &&
            !sp_spots_can_write(&sure, v->at.path, strlen(v->at.path)))
            r = sp_making_check_links(m, v->fact->path, &v->at, SP_ACCESS_WRITE);
    }
    return r;
}

static int check_strict_links(struct sp_making *m)
{
    int r = 0;

    for (size_t i = 0; r == 0 && i < m->view_count; i++) {
        const struct sp_located_entry *v = &m->views[i];

        if (v->fact->access != SP_ACCESS_WRITE)
            r = sp_making_check_links(m, v->fact->path, &v->at, v->fact->access);
    }
    return r;
}

/* ---- facts ---- */

static int locate_facts(struct sp_making *m)
{
    const struct sp_resolved *resolved = m->resolved;

    if (resolved->is_open || resolved->count == 0)
        return 0;
    m->views = calloc(resolved->count, sizeof *m->views);
    if (m->views == NULL)
        return sp_making_no_memory(m);
    for (size_t i = 0; i < resolved->count; i++) {
        struct sp_located_entry *v = &m->views[i];
        int r = sp_canonical_find(resolved->facts[i].path, &v->at, m->e);

        if (r < 0)
            return r;
        v->fact = &resolved->facts[i];
        m->view_count++;
        r = sp_making_mark_way(m, v->fact->path, &v->at);
        if (r < 0)
            return r;
    }
    return 0;
}

/* A denied "/" is the default; it needs no spot. */
static void drop_denied_root(struct sp_spots *t)
{
    struct sp_spot *first = t->items;

    if (t->settled == 0 || first->path[1] != 0 || first->access != SP_ACCESS_DENY)
        return;
    free(first->path);
    t->settled--;
    t->count = t->settled;
    memmove(first, first + 1, t->count * sizeof *first);
}

static int add_found(struct sp_making *m, bool is_minimal)
{
    for (size_t i = 0; i < m->view_count; i++) {
        const struct sp_located_entry *v = &m->views[i];
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
    return sp_making_settle(m);
}

static int add_facts(struct sp_making *m)
{
    int r = add_found(m, false);

    if (r < 0)
        return r;
    drop_denied_root(&m->spots);
    r = add_found(m, true);
    return r < 0 ? r : check_write_links(m);
}

/* ---- missing paths ---- */

/* Marks the missing component and its parent, and adds the spot. */
static int add_first_missing(struct sp_making *m, const struct sp_canonical *at,
                             enum sp_access access, enum sp_spot_why why, size_t entry)
{
    int r = sp_making_mark(m, at->path, false, false, NULL);

    if (r == 0)
        r = sp_making_mark(m, at->parent, false, false, &at->who);
    return r < 0 ? r : sp_making_add_missing(m, at->path, &at->who, access, why, entry);
}

/* Matters only if a command could create the path. */
static int add_unfound(struct sp_making *m, const struct sp_located_entry *v)
{
    const struct sp_canonical *at = &v->at;
    const char *last = at->parent != NULL ? at->parent : at->path;

    if (v->fact->skips_missing || !sp_spots_can_write(&m->spots, last, strlen(last)))
        return 0;
    switch (at->way) {
    case SP_WAY_MISSING:
        return add_first_missing(m, at, v->fact->access, SP_WHY_ENTRY, v->fact->entry);
    case SP_WAY_NO_DIR:
        return sp_fail(m->e, SP_E_INVALID, 0,
                       "cannot enforce sandbox %s path %.150s because %.150s is not a directory",
                       v->fact->access == SP_ACCESS_DENY ? "deny-read" : "read-only", v->fact->path,
                       at->path);
    case SP_WAY_BARRED:
        return sp_fail(m->e, SP_E_SYSTEM, EACCES, "look at %.300s", v->fact->path);
    case SP_WAY_FOUND:
    case SP_WAY_IMPOSSIBLE:
        return 0;
    }
    return 0;
}

static int add_missing(struct sp_making *m)
{
    for (size_t i = 0; i < m->view_count; i++) {
        const struct sp_located_entry *v = &m->views[i];

        if (v->at.way == SP_WAY_FOUND || v->fact->access == SP_ACCESS_WRITE)
            continue;
        const int r = add_unfound(m, v);
        if (r < 0)
            return r;
    }
    return sp_making_settle(m);
}

/* ---- protected names without a placeholder ---- */

/* A shared temporary directory: a placeholder there would disturb other programs. */
static bool is_temporary_root(const struct sp_making *m, const char *root)
{
    if (strcmp(root, "/tmp") == 0 || strcmp(root, "/var/tmp") == 0)
        return true;
    for (size_t i = 0; i < m->view_count; i++) {
        const struct sp_located_entry *v = &m->views[i];

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
        const struct sp_located_entry *v = &m->views[i];

        if (v->at.way == SP_WAY_MISSING && !v->fact->skips_missing &&
            v->fact->access != SP_ACCESS_WRITE && strcmp(v->at.path, path) == 0)
            return true;
    }
    return false;
}

/* Names that make programs execute something when a person works in the directory. */
static bool deserves_placeholder(const char *name)
{
    static const char *const names[] = {".git", ".agents", ".codex"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
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
        s->is_watched =
            !deserves_placeholder(strrchr(s->path, '/') + 1) || is_temporary_root(m, root);
    }
    return 0;
}

/* ---- hidden paths ---- */

/* Hides the inode itself, so symlinks on the way may be writable. */
static int add_hidden_path(struct sp_making *m, const char *named)
{
    auto_free char *path = sp_path_normalise(named, NULL);
    auto_canonical struct sp_canonical at = {0};

    if (path == NULL)
        return errno == ENOMEM
                   ? sp_making_no_memory(m)
                   : sp_fail(m->e, SP_E_INVALID, 0, "hidden path %.300s is not absolute", named);
    int r = sp_canonical_find(path, &at, m->e);
    if (r == 0)
        r = sp_making_mark_way(m, path, &at);
    if (r < 0)
        return r;
    if (at.way == SP_WAY_BARRED && sp_spots_can_write(&m->spots, at.parent, strlen(at.parent)))
        return sp_fail(m->e, SP_E_SYSTEM, EACCES, "look at %.300s", path);
    if (at.way != SP_WAY_FOUND)
        return 0;
    if (at.path[1] == 0)
        return sp_fail(m->e, SP_E_INVALID, 0, "the root directory cannot be hidden");
    return sp_making_add(m, at.path, &at.who, SP_ACCESS_DENY, SP_WHY_HIDDEN, SP_NO_ENTRY);
}

static int add_hidden_paths(struct sp_making *m, const char *const *paths)
{
    for (; paths != NULL && *paths != NULL; paths++) {
        const int r = add_hidden_path(m, *paths);

        if (r < 0)
            return r;
    }
    const int r = sp_making_settle(m);
    if (r == 0)
        sp_spots_drop_below_hidden(&m->spots);
    return r;
}

/* ---- sallyport's own places ---- */

/* A command could replace the symlink, and a later sallyport would read another file. */
static int check_own_links(struct sp_making *m, const char *path, const struct sp_canonical *at)
{
    const struct sp_symlink *link = sp_making_writable_link(m, at);

    return link == NULL
               ? 0
               : sp_fail(m->e, SP_E_INVALID, 0,
                         "cannot protect %.200s: a command could replace the symlink %.200s on the "
                         "way to it; name it without that symlink",
                         path, link->path);
}

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
    if (r == 0)
        r = check_own_links(m, path, &at);
    if (r < 0)
        return r;
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
        r = sp_making_settle(m); /* later paths may lie inside of this spot */
    if (r == 0 && kind != OWN_DIR && at.way == SP_WAY_FOUND)
        sp_spots_close_below(&m->spots, at.path);
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
        const struct sp_located_entry *v = &m->views[i];

        if (v->fact->access == SP_ACCESS_DENY || v->at.way != SP_WAY_FOUND)
            continue;
        for (size_t k = 0; r == 0 && k < v->at.link_count; k++)
            r = add_alias(m, &v->at.links[k]);
    }
    return r;
}

/* ---- the whole ---- */

static int make(struct sp_making *m, const struct sp_fixed_places *fixed)
{
    int r = locate_facts(m);

    if (r == 0)
        r = add_facts(m);
    if (r == 0)
        r = sp_making_protect(m);
    if (r == 0)
        r = sp_making_expand(m);
    if (r == 0)
        r = add_missing(m);
    if (r == 0)
        r = set_watched(m);
    if (r == 0)
        r = check_strict_links(m); /* needs the writable spots */
    if (r == 0 && !m->resolved->is_open) {
        r = add_own_list(m, fixed->own_dirs, OWN_DIR);
        if (r == 0)
            r = add_own_list(m, fixed->read_only, OWN_READ_ONLY);
        if (r == 0)
            r = add_own_list(m, fixed->names, OWN_NAME);
    }
    if (r == 0)
        r = add_hidden_paths(m, fixed->hidden);
    if (r == 0)
        r = add_aliases(m);
    if (r == 0)
        r = sp_making_pin(m);
    return r < 0 ? r : sp_making_sort_marks(m);
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
    sp_budget_begin(SP_SURVEY_MS);
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
        sp_canonical_done(&m.views[i].at);
    free(m.views);
    sp_spots_done(&m.spots);
    sp_survey_done(&m.out);
    return err;
}

/* ---- comparing ---- */

static bool same_spot(const struct sp_spot *a, const struct sp_spot *b)
{
    return a->access == b->access && a->kind == b->kind && a->dev == b->dev && a->ino == b->ino &&
           sp_same_time(a->born, b->born) && strcmp(a->path, b->path) == 0;
}

static bool same_pin(const struct sp_pin *a, const struct sp_pin *b)
{
    return a->dev == b->dev && a->ino == b->ino && sp_same_time(a->born, b->born) &&
           strcmp(a->path, b->path) == 0;
}

bool sp_survey_equal(const struct sp_survey *a, const struct sp_survey *b)
{
    if (a->is_open != b->is_open || a->is_full_read != b->is_full_read || a->count != b->count ||
        a->pin_count != b->pin_count || a->alias_count != b->alias_count)
        return false;
    for (size_t i = 0; i < a->count; i++)
        if (!same_spot(&a->spots[i], &b->spots[i]))
            return false;
    for (size_t i = 0; i < a->pin_count; i++)
        if (!same_pin(&a->pins[i], &b->pins[i]))
            return false;
    for (size_t i = 0; i < a->alias_count; i++)
        if (strcmp(a->aliases[i].path, b->aliases[i].path) != 0 ||
            strcmp(a->aliases[i].target, b->aliases[i].target) != 0)
            return false;
    return true;
}
