/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Marks: the paths that a survey depends on, and whether they have changed. Pins: the directories
 * that must not be renamed.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/grow.h"
#include "sandbox/survey_priv.h"

/* ---- marks ---- */

int sp_making_mark(struct sp_making *m, const char *path, bool follows, bool is_exact,
                   const struct sp_identity *who)
{
    struct sp_survey *s = &m->out;

    if (!SP_GROW(s->marks, s->mark_count, s->mark_cap))
        return sp_making_no_memory(m);
    struct sp_mark mark = {.follows = follows, .is_missing = who == NULL};
    if (who != NULL) {
        mark.is_exact = is_exact;
        mark.mode = who->mode & S_IFMT;
        mark.dev = who->dev;
        mark.ino = who->ino;
        mark.size = who->size;
        mark.born = who->born;
        mark.changed = who->changed;
    }
    mark.path = strdup(path);
    if (mark.path == NULL)
        return sp_making_no_memory(m);
    s->marks[s->mark_count++] = mark;
    return 0;
}

/* A path without symlinks needs one mark; otherwise the path, each symlink and the result. */
int sp_making_mark_way(struct sp_making *m, const char *path, const struct sp_canonical *at)
{
    const struct sp_identity *who = at->way == SP_WAY_FOUND ? &at->who : NULL;
    int r = 0;

    if (at->link_count == 0)
        return sp_making_mark(m, who != NULL ? at->path : path, false, false, who);
    for (size_t i = 0; r == 0 && i < at->link_count; i++)
        r = sp_making_mark(m, at->links[i].path, false, true, &at->links[i].who);
    if (r == 0 && who != NULL)
        r = sp_making_mark(m, at->path, false, false, who);
    return r < 0 ? r : sp_making_mark(m, path, true, false, who);
}

static int by_place(const void *a, const void *b)
{
    const struct sp_mark *x = a;
    const struct sp_mark *y = b;
    const int order = strcmp(x->path, y->path);

    return order != 0 ? order : x->follows - y->follows;
}

/* Merges b into a, which has the same path. false: they saw different inodes or contents. */
static bool merge_marks(struct sp_mark *a, const struct sp_mark *b)
{
    const bool is_same_inode = a->is_missing == b->is_missing && a->mode == b->mode &&
                               a->dev == b->dev && a->ino == b->ino &&
                               sp_same_time(a->born, b->born);
    const bool is_same_text = a->size == b->size && sp_same_time(a->changed, b->changed);
    const bool is_same = is_same_inode && (!a->is_exact || !b->is_exact || is_same_text);

    if (!a->is_exact && b->is_exact) {
        a->is_exact = true;
        a->size = b->size;
        a->changed = b->changed;
    }
    return is_same;
}

int sp_making_sort_marks(struct sp_making *m)
{
    struct sp_survey *s = &m->out;
    size_t kept = 0;
    int r = 0;

    if (s->mark_count > 1)
        qsort(s->marks, s->mark_count, sizeof *s->marks, by_place);
    for (size_t i = 0; i < s->mark_count; i++) {
        if (kept == 0 || by_place(&s->marks[kept - 1], &s->marks[i]) != 0) {
            s->marks[kept++] = s->marks[i];
            continue;
        }
        if (!merge_marks(&s->marks[kept - 1], &s->marks[i]))
            r = sp_making_changed(m, s->marks[i].path);
        free(s->marks[i].path);
    }
    s->mark_count = kept;
    return r;
}

static bool is_unchanged(const struct sp_mark *mark)
{
    struct sp_identity now;
    const int err = mark->follows ? sp_identity_get(AT_FDCWD, mark->path, true, &now)
                                  : sp_identity_get_strictly(mark->path, &now);

    /* Only these errors mean "still missing"; any other (EIO, ENOMEM) counts as changed. */
    if (err != 0 || mark->is_missing)
        return mark->is_missing &&
               (err == ENOENT || err == ENOTDIR || err == EACCES || err == ENAMETOOLONG);
    return now.dev == mark->dev && now.ino == mark->ino && (now.mode & S_IFMT) == mark->mode &&
           sp_same_time(now.born, mark->born) &&
           (!mark->is_exact ||
            (now.size == mark->size && sp_same_time(now.changed, mark->changed)));
}

bool sp_survey_holds(const struct sp_survey *s)
{
    if (s->has_globs)
        return false;
    sp_budget_begin(SP_SURVEY_MS);
    for (size_t i = 0; i < s->mark_count; i++)
        if (sp_budget_is_spent() || !is_unchanged(&s->marks[i]))
            return false;
    return true;
}

/* ---- pins ---- */

static int add_pin(struct sp_making *m, const char *path, size_t n)
{
    struct sp_survey *s = &m->out;

    if (!SP_GROW(s->pins, s->pin_count, s->pin_cap))
        return sp_making_no_memory(m);
    char *copy = strndup(path, n);
    if (copy == NULL)
        return sp_making_no_memory(m);
    s->pins[s->pin_count++] = (struct sp_pin){.path = copy};
    return 0;
}

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

    if (!above->can_rename)
        return 0;
    for (size_t n = above->len + 1; n <= end; n++) {
        if (path[n] != '/' && n != end)
            continue;
        if (n <= done || n <= above->len || n <= 1)
            continue;
        if (sp_budget_is_spent() || p->m->out.pin_count >= SP_MAX_PINS)
            return sp_budget_refuse(p->m->e);
        const int r = add_pin(p->m, path, n);
        if (r < 0)
            return r;
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

static int pin_spot(struct pinning *p, const char *last)
{
    const struct level *top = &p->levels[p->depth - 1];
    int r = pin_between(p, top - 1, top->spot->path,
                        last == NULL ? 0 : common_way(last, top->spot->path));

    /* Also the directories that lead to the writable places around it. */
    for (size_t i = p->depth - 2; r == 0 && i > 0 && !p->levels[i].is_held; i--) {
        r = pin_between(p, &p->levels[i - 1], p->levels[i].spot->path, 0);
        p->levels[i].is_held = true;
    }
    return r;
}

static int pin_all(struct pinning *p)
{
    const struct sp_spots *spots = &p->m->spots;
    const char *last = NULL;
    int r = 0;

    p->levels[p->depth++] = (struct level){.can_rename = p->m->resolved->is_open};
    for (size_t i = 0; r == 0 && i < spots->settled; i++) {
        const struct sp_spot *s = &spots->items[i];
        const bool is_root = s->path[1] == 0;

        while (p->depth > 1 && !sp_path_is_in(s->path, p->levels[p->depth - 1].spot->path))
            p->depth--;
        p->levels[p->depth++] = (struct level){.spot = s,
                                               .len = is_root ? 0 : strlen(s->path),
                                               .can_rename = s->access == SP_ACCESS_WRITE};
        if (s->access == SP_ACCESS_WRITE || is_root)
            continue;
        r = pin_spot(p, last);
        last = s->path;
    }
    return r;
}

static int by_pin_path(const void *a, const void *b)
{
    return sp_path_order(((const struct sp_pin *)a)->path, ((const struct sp_pin *)b)->path);
}

static void sort_pins(struct sp_survey *s)
{
    size_t kept = 0;

    if (s->pin_count > 1)
        qsort(s->pins, s->pin_count, sizeof *s->pins, by_pin_path);
    for (size_t i = 0; i < s->pin_count; i++)
        if (kept != 0 && strcmp(s->pins[kept - 1].path, s->pins[i].path) == 0)
            free(s->pins[i].path);
        else
            s->pins[kept++] = s->pins[i];
    s->pin_count = kept;
}

static int identify_pin(struct sp_making *m, struct sp_pin *pin)
{
    struct sp_identity who;

    if (sp_identity_get_strictly(pin->path, &who) != 0 || !S_ISDIR(who.mode))
        return sp_making_changed(m, pin->path);
    pin->dev = who.dev;
    pin->ino = who.ino;
    pin->born = who.born;
    return sp_making_mark(m, pin->path, false, false, &who);
}

int sp_making_pin(struct sp_making *m)
{
    struct pinning p = {.m = m, .levels = calloc(m->spots.settled + 2, sizeof *p.levels)};
    int r = p.levels == NULL ? sp_making_no_memory(m) : pin_all(&p);

    free(p.levels);
    sort_pins(&m->out);
    for (size_t i = 0; r == 0 && i < m->out.pin_count; i++)
        r = identify_pin(m, &m->out.pins[i]);
    return r;
}
