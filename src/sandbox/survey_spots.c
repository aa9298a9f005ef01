/* SPDX-License-Identifier: Apache-2.0 */
/* The parts that a survey is made from: the table of spots, and marks. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "sandbox/survey_priv.h"

/* ---- the order of paths ---- */

/* The end sorts before a slash, and a slash before all other bytes. */
static int weight(char c)
{
    return c == 0 ? 0 : c == '/' ? 1 : 1 + (unsigned char)c;
}

int sp_path_order(const char *a, const char *b)
{
    while (*a != 0 && *a == *b) {
        a++;
        b++;
    }
    return weight(*a) - weight(*b);
}

/* sp_path_order for the first n bytes of `part`. */
static int order_of_part(const char *part, size_t n, const char *path)
{
    for (size_t i = 0; i < n; i++)
        if (part[i] != path[i])
            return weight(part[i]) - weight(path[i]);
    return path[n] == 0 ? 0 : -1;
}

size_t sp_path_parent(const char *path)
{
    const char *slash = strrchr(path, '/');

    if (slash == NULL || path[1] == 0)
        return 0;
    return slash == path ? 1 : (size_t)(slash - path);
}

/* ---- the table of spots ---- */

void sp_spots_done(struct sp_spots *t)
{
    for (size_t i = 0; i < t->count; i++)
        free(t->items[i].path);
    free(t->items);
    *t = (struct sp_spots){0};
}

bool sp_spots_add(struct sp_spots *t, const char *path, const struct sp_spot *like)
{
    if (!SP_GROW(t->items, t->count, t->cap))
        return false;
    struct sp_spot spot = *like;
    spot.path = strdup(path);
    if (spot.path == NULL)
        return false;
    t->items[t->count++] = spot;
    return true;
}

static int access_rank(const struct sp_spot *s)
{
    static const int ranks[] = {[SP_ACCESS_DENY] = 3, [SP_ACCESS_WRITE] = 1, [SP_ACCESS_READ] = 0};

    if (s->why == SP_WHY_HIDDEN)
        return 4;
    return s->why == SP_WHY_OWN && s->access == SP_ACCESS_READ ? 2 : ranks[s->access];
}

bool sp_entry_is_temporary(const struct sp_policy *p, size_t entry)
{
    if (p == NULL || entry >= p->profile.count)
        return false;
    const enum sp_place place = p->profile.entries[entry].place;
    return place == SP_PLACE_TMPDIR || place == SP_PLACE_SLASH_TMP;
}

static bool decides_over(const struct sp_spot *a, const struct sp_spot *b,
                         const struct sp_policy *p)
{
    if (access_rank(a) != access_rank(b))
        return access_rank(a) > access_rank(b);
    if (a->why != b->why)
        return a->why > b->why;
    if (sp_entry_is_temporary(p, a->entry) != sp_entry_is_temporary(p, b->entry))
        return sp_entry_is_temporary(p, b->entry);
    return a->entry < b->entry;
}

static int by_path(const void *a, const void *b)
{
    return sp_path_order(((const struct sp_spot *)a)->path, ((const struct sp_spot *)b)->path);
}

int sp_spots_settle(struct sp_spots *t, const struct sp_policy *p, struct sp_err *e)
{
    size_t kept = 0;
    int r = 0;

    if (t->count > 1)
        qsort(t->items, t->count, sizeof *t->items, by_path);
    for (size_t i = 0; i < t->count; i++) {
        struct sp_spot *s = &t->items[i];
        struct sp_spot *last = kept == 0 ? NULL : &t->items[kept - 1];

        if (last == NULL || strcmp(last->path, s->path) != 0) {
            t->items[kept++] = *s;
            continue;
        }
        if (last->kind != s->kind || !sp_identity_equal(&last->who, &s->who))
            r = sp_fail(e, SP_E_STATE, 0, "%.300s changed while it was looked at", s->path);
        const bool is_watched = last->is_watched && s->is_watched;
        if (decides_over(s, last, p)) {
            free(last->path);
            *last = *s;
        } else {
            free(s->path);
        }
        last->is_watched = is_watched;
    }
    t->count = kept;
    t->settled = kept;
    return r;
}

static const struct sp_spot *find_spot(const struct sp_spots *t, const char *path, size_t n)
{
    size_t low = 0;
    size_t high = t->settled;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const int order = order_of_part(path, n, t->items[middle].path);

        if (order == 0)
            return &t->items[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

const struct sp_spot *sp_spots_over(const struct sp_spots *t, const char *path, size_t n)
{
    for (; n > 1; n--) {
        const struct sp_spot *s = find_spot(t, path, n);

        if (s != NULL)
            return s;
        while (path[n - 1] != '/')
            n--;
    }
    return find_spot(t, "/", 1);
}

bool sp_spots_can_write(const struct sp_spots *t, const char *path, size_t n)
{
    const struct sp_spot *s = sp_spots_over(t, path, n);

    return s != NULL && s->access == SP_ACCESS_WRITE;
}

/* ---- adding spots ---- */

int sp_making_no_memory(struct sp_making *m)
{
    return sp_fail(m->e, SP_E_SYSTEM, ENOMEM, "survey a sandbox policy");
}

int sp_making_changed(struct sp_making *m, const char *path)
{
    return sp_fail(m->e, SP_E_STATE, 0, "%.300s changed while it was looked at", path);
}

int sp_making_add(struct sp_making *m, const char *path, const struct sp_identity *who,
                  enum sp_access access, enum sp_spot_why why, size_t entry)
{
    const struct sp_spot spot = {.access = access,
                                 .kind = S_ISDIR(who->mode) ? SP_SPOT_DIR : SP_SPOT_FILE,
                                 .why = why,
                                 .who = *who,
                                 .entry = entry};

    return sp_spots_add(&m->spots, path, &spot) ? 0 : sp_making_no_memory(m);
}

int sp_making_add_missing(struct sp_making *m, const char *path, const struct sp_identity *who,
                          enum sp_access access, enum sp_spot_why why, size_t entry)
{
    const struct sp_spot spot = {
        .access = access, .kind = SP_SPOT_MISSING, .why = why, .who = *who, .entry = entry};

    return sp_spots_add(&m->spots, path, &spot) ? 0 : sp_making_no_memory(m);
}

/* ---- marks ---- */

int sp_making_mark(struct sp_making *m, const char *path, bool follows, bool is_exact,
                   const struct sp_identity *who)
{
    struct sp_survey *s = &m->out;

    assert(path != NULL);
    if (!SP_GROW(s->marks, s->mark_count, s->mark_cap))
        return sp_making_no_memory(m);
    struct sp_mark mark = {.path = strdup(path), .follows = follows, .is_missing = who == NULL};
    if (who != NULL) {
        mark.is_exact = is_exact;
        mark.who = *who;
    }
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
