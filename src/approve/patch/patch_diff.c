/* SPDX-License-Identifier: Apache-2.0 */
/*
 * patch_diff: what a person is shown: the summary of a patch, and a change as a unified diff with
 * one line of context.
 *
 * Equal lines at both ends are set aside. Between them Myers' algorithm finds the fewest changed
 * lines, as long as there are at most MAX_CHANGES of them. Beyond that the whole middle is shown as
 * replaced, which is correct but longer. Time: lines x MAX_CHANGES at most.
 */
#include <stdlib.h>

#include "approve/patch/patch_priv.h"
#include "base/auto.h"
#include "base/hash.h"

#define CONTEXT     1
#define MAX_CHANGES 512

/* ---- summary ---- */

static bool add_group(struct sp_buf *out, const struct sp_patch_changes *c, enum sp_patch_kind kind,
                      const char *letter)
{
    bool ok = true;

    for (uint32_t i = 0; ok && i < c->count; i++) {
        const struct sp_patch_change *item = &c->items[i];

        if (item->kind == kind)
            ok = sp_buf_printf(out, "%s ", letter) &&
                 sp_buf_add_str(out, item->move_to.p != NULL ? item->move_to : item->path) &&
                 sp_buf_add(out, "\n", 1);
    }
    return ok;
}

bool sp_patch_add_summary(struct sp_buf *out, const struct sp_patch_changes *c)
{
    if (c->count == 0)
        return sp_buf_printf(out, "No files were modified.\n");
    return sp_buf_printf(out, "Success. Updated the following files:\n") &&
           add_group(out, c, SP_PATCH_ADD, "A") && add_group(out, c, SP_PATCH_UPDATE, "M") &&
           add_group(out, c, SP_PATCH_DELETE, "D");
}

/* ---- two texts as lines ---- */

struct side {
    struct sp_str *lines; /* with their LF */
    struct sp_hash *keys;
    bool *is_changed;
    uint32_t count;
};

struct diff {
    struct side old, new;
    uint32_t front, back; /* equal lines at both ends */
};

static void side_done(struct side *s)
{
    free(s->lines);
    free(s->keys);
    free(s->is_changed);
}

static bool side_init(struct side *s, struct sp_str text)
{
    struct sp_str rest = text;
    struct sp_str line;
    size_t count = 0;

    while (sp_patch_next_line(&rest, &line))
        count++;
    s->lines = calloc(count + 1, sizeof *s->lines);
    s->keys = calloc(count + 1, sizeof *s->keys);
    s->is_changed = calloc(count + 1, sizeof *s->is_changed);
    if (s->lines == NULL || s->keys == NULL || s->is_changed == NULL)
        return false;
    for (rest = text; sp_patch_next_line(&rest, &line); s->count++) {
        if (line.p + line.n < text.p + text.n)
            line.n++;
        s->lines[s->count] = line;
        s->keys[s->count] = sp_hash(line);
    }
    return true;
}

static bool is_equal(const struct diff *d, uint32_t i, uint32_t j)
{
    return d->old.keys[i].a == d->new.keys[j].a && d->old.keys[i].b == d->new.keys[j].b;
}

static void mark_all(struct diff *d)
{
    for (uint32_t i = d->front; i < d->old.count - d->back; i++)
        d->old.is_changed[i] = true;
    for (uint32_t j = d->front; j < d->new.count - d->back; j++)
        d->new.is_changed[j] = true;
}

/* ---- the fewest changes ---- */

/* The furthest old line that each diagonal reaches, for each number of changes. Row c has 2c + 1
 * entries and begins at c * c. */
struct trace {
    int64_t *reach;
    int64_t olds, news; /* lines of the middle */
};

static int64_t *row(const struct trace *t, int64_t changes)
{
    return t->reach + changes * changes + changes; /* index by diagonal, from -changes */
}

/* Where diagonal k continues with one change more. *ret_is_added: the change is an added line. */
static int64_t enter(const struct trace *t, int64_t changes, int64_t k, bool *ret_is_added)
{
    const int64_t *before = row(t, changes - 1);
    const bool is_added = k == -changes || (k != changes && before[k - 1] < before[k + 1]);

    *ret_is_added = is_added;
    return is_added ? before[k + 1] : before[k - 1] + 1;
}

static int64_t slide(const struct diff *d, const struct trace *t, int64_t x, int64_t k)
{
    while (x < t->olds && x - k < t->news && x - k >= 0 && x >= 0 &&
           is_equal(d, d->front + (uint32_t)x, d->front + (uint32_t)(x - k)))
        x++;
    return x;
}

/* The number of changes, or -1: more than MAX_CHANGES. */
static int64_t search(const struct diff *d, const struct trace *t)
{
    for (int64_t changes = 0; changes <= MAX_CHANGES; changes++) {
        for (int64_t k = -changes; k <= changes; k += 2) {
            bool is_added;
            const int64_t x = slide(d, t, changes == 0 ? 0 : enter(t, changes, k, &is_added), k);

            row(t, changes)[k] = x;
            if (x >= t->olds && x - k >= t->news)
                return changes;
        }
    }
    return -1;
}

static bool compare(struct diff *d)
{
    const uint32_t least = d->old.count < d->new.count ? d->old.count : d->new.count;

    while (d->front < least && is_equal(d, d->front, d->front))
        d->front++;
    while (d->back < least - d->front &&
           is_equal(d, d->old.count - 1 - d->back, d->new.count - 1 - d->back))
        d->back++;

    struct trace t = {.olds = d->old.count - d->front - d->back,
                      .news = d->new.count - d->front - d->back};
    if (t.olds == 0 || t.news == 0) {
        mark_all(d);
        return true;
    }
    t.reach = calloc((size_t)(MAX_CHANGES + 1) * (MAX_CHANGES + 1), sizeof *t.reach);
    if (t.reach == NULL)
        return false;
    int64_t changes = search(d, &t);
    if (changes < 0)
        mark_all(d);
    /* Walk the shortest path back from its end, and mark the change of each step. */
    for (int64_t k = t.olds - t.news; changes > 0; changes--) {
        bool is_added;
        const int64_t x = enter(&t, changes, k, &is_added);

        if (is_added)
            d->new.is_changed[d->front + (uint32_t)(x - k - 1)] = true;
        else
            d->old.is_changed[d->front + (uint32_t)(x - 1)] = true;
        k += is_added ? 1 : -1;
    }
    free(t.reach);
    return true;
}

/* ---- the unified format ---- */

/* Lines that are shown together: [old, old_end) and [new, new_end). */
struct block {
    uint32_t old, old_end, new, new_end;
};

/* Advances both to the next changed line; false: there is none. */
static bool next_change(const struct diff *d, uint32_t *i, uint32_t *j)
{
    while (*i < d->old.count && *j < d->new.count && !d->old.is_changed[*i] &&
           !d->new.is_changed[*j]) {
        ++*i;
        ++*j;
    }
    return *i < d->old.count || *j < d->new.count;
}

/* The block that begins at the changed line at *i, *j; advances both behind its changes. */
static struct block take_block(const struct diff *d, uint32_t *i, uint32_t *j)
{
    const uint32_t before = *i < CONTEXT ? *i : CONTEXT;
    struct block b = {.old = *i - before, .new = *j - before};

    for (;;) {
        while (*i < d->old.count && d->old.is_changed[*i])
            ++*i;
        while (*j < d->new.count && d->new.is_changed[*j])
            ++*j;
        uint32_t next_i = *i;
        uint32_t next_j = *j;

        if (!next_change(d, &next_i, &next_j) || next_i - *i > 2 * CONTEXT)
            break;
        *i = next_i;
        *j = next_j;
    }
    const uint32_t after = d->old.count - *i < CONTEXT ? d->old.count - *i : CONTEXT;
    b.old_end = *i + after;
    b.new_end = *j + after;
    return b;
}

static bool add_range(struct sp_buf *out, char sign, uint32_t from, uint32_t to)
{
    if (to - from == 1)
        return sp_buf_printf(out, "%c%u", sign, from + 1);
    return sp_buf_printf(out, "%c%u,%u", sign, to == from ? from : from + 1, to - from);
}

static bool add_line(struct sp_buf *out, char sign, struct sp_str line)
{
    return sp_buf_add(out, &sign, 1) && sp_buf_add_str(out, line) &&
           (line.p[line.n - 1] == '\n' || sp_buf_printf(out, "\n\\ No newline at end of file\n"));
}

static bool add_block(struct sp_buf *out, const struct diff *d, const struct block *b)
{
    bool ok = sp_buf_printf(out, "@@ ") && add_range(out, '-', b->old, b->old_end) &&
              sp_buf_printf(out, " ") && add_range(out, '+', b->new, b->new_end) &&
              sp_buf_printf(out, " @@\n");

    for (uint32_t i = b->old, j = b->new; ok && (i < b->old_end || j < b->new_end);) {
        if (i < b->old_end && d->old.is_changed[i])
            ok = add_line(out, '-', d->old.lines[i++]);
        else if (j < b->new_end && d->new.is_changed[j])
            ok = add_line(out, '+', d->new.lines[j++]);
        else {
            ok = add_line(out, ' ', d->old.lines[i++]);
            j++;
        }
    }
    return ok;
}

bool sp_patch_add_diff(struct sp_buf *out, const struct sp_patch_change *c)
{
    struct diff d = {0};

    if (c->diff.p != NULL)
        return sp_buf_add_str(out, c->diff);
    bool ok = side_init(&d.old, c->before) && side_init(&d.new, c->after) && compare(&d);
    for (uint32_t i = 0, j = 0; ok && next_change(&d, &i, &j);) {
        const struct block b = take_block(&d, &i, &j);

        ok = add_block(out, &d, &b);
    }
    side_done(&d.old);
    side_done(&d.new);
    return ok;
}
