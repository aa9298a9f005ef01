/* SPDX-License-Identifier: Apache-2.0 */
/* The tree of a parsed text: messages about its values, lookup, merging, selection. */
#include "base/toml.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/toml_priv.h"
#include "base/utf8.h"

/* ---- messages ---- */

static int refuse(const struct sp_toml *doc, size_t at, struct sp_err *e, const char *fmt,
                  va_list args)
{
    char story[sizeof e->msg];
    uint32_t line = 1;
    uint32_t column = 1; /* in characters, not bytes */

    (void)vsnprintf(story, sizeof story, fmt, args);
    /* Names are cut to fit; half a character becomes question marks. */
    for (size_t n; story[n = sp_utf8_valid_prefix(sp_str_of(story))] != 0;)
        story[n] = '?';
    if (doc->has_no_places)
        return sp_fail(e, SP_E_INVALID, 0, "%s: %s", doc->name, story);
    for (size_t i = 0; i < at && i < doc->text.n; i++) {
        if (doc->text.p[i] == '\n') {
            line++;
            column = 1;
        } else if (((unsigned char)doc->text.p[i] & 0xC0) != 0x80) {
            column++;
        }
    }
    return sp_fail(e, SP_E_INVALID, 0, "%s: line %u, column %u: %s", doc->name, line, column,
                   story);
}

bool sp_toml_fail(struct sp_toml_reader *r, const char *at, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    (void)refuse(r->doc, (size_t)(at - r->doc->text.p), r->e, fmt, args);
    va_end(args);
    return false;
}

bool sp_toml_no_memory(struct sp_toml_reader *r)
{
    (void)sp_fail(r->e, SP_E_SYSTEM, ENOMEM, "read %s", r->doc->name);
    return false;
}

int sp_toml_refuse(const struct sp_toml_value *v, struct sp_err *e, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    const int r = refuse(v->doc, v->at, e, fmt, args);
    va_end(args);
    return r;
}

int sp_toml_refuse_key(const struct sp_toml_value *v, struct sp_err *e, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    const int r = refuse(v->doc, v->key_at, e, fmt, args);
    va_end(args);
    return r;
}

const char *sp_toml_type_name(enum sp_toml_type type)
{
    static const char *const names[] = {
        [SP_TOML_STRING] = "a string",
        [SP_TOML_INTEGER] = "an integer",
        [SP_TOML_FLOAT] = "a float",
        [SP_TOML_BOOLEAN] = "a boolean",
        [SP_TOML_OFFSET_DATE_TIME] = "a date and time",
        [SP_TOML_LOCAL_DATE_TIME] = "a date and time",
        [SP_TOML_LOCAL_DATE] = "a date",
        [SP_TOML_LOCAL_TIME] = "a time",
        [SP_TOML_ARRAY] = "an array",
        [SP_TOML_TABLE] = "a table",
    };

    return names[type];
}

/* ---- the tree ---- */

void sp_toml_append(struct sp_toml_value *parent, struct sp_toml_value *v)
{
    v->next = NULL;
    if (parent->last == NULL)
        parent->first = v;
    else
        parent->last->next = v;
    parent->last = v;
    parent->count++;
}

struct sp_toml_value *sp_toml_get(const struct sp_toml_value *table, struct sp_str key)
{
    for (struct sp_toml_value *v = table->first; v != NULL; v = v->next)
        if (sp_str_eq(v->key, key))
            return v;
    return NULL;
}

void sp_toml_merge(struct sp_toml_value *table, struct sp_toml_value *over)
{
    struct sp_toml_value *next;

    for (struct sp_toml_value *v = over->first; v != NULL; v = next) {
        struct sp_toml_value *old = sp_toml_get(table, v->key);

        next = v->next;
        if (old == NULL) {
            sp_toml_append(table, v);
        } else if (old->type == SP_TOML_TABLE && v->type == SP_TOML_TABLE) {
            sp_toml_merge(old, v);
        } else { /* takes the place of old */
            struct sp_toml_value **link = &table->first;

            while (*link != old)
                link = &(*link)->next;
            v->next = old->next;
            *link = v;
            if (table->last == old)
                table->last = v;
        }
    }
    over->first = over->last = NULL;
    over->count = 0;
}

/* ---- selecting by paths ---- */

/*
 * Sorted paths are a tree that needs no building: paths with the same first keys are neighbours,
 * and the one that ends there comes first. Each key of the document costs one binary search.
 */
struct path_range {
    const struct sp_toml_path *first;
    uint32_t count;
};

static int compare_keys(struct sp_str a, struct sp_str b)
{
    const size_t n = a.n < b.n ? a.n : b.n;
    const int r = n == 0 ? 0 : memcmp(a.p, b.p, n);

    return r != 0 ? r : (a.n > b.n) - (a.n < b.n);
}

static int compare_paths(const void *left, const void *right)
{
    const struct sp_toml_path *a = left;
    const struct sp_toml_path *b = right;

    for (uint32_t i = 0; i < a->count && i < b->count; i++) {
        const int r = compare_keys(a->keys[i], b->keys[i]);

        if (r != 0)
            return r;
    }
    return (a->count > b->count) - (a->count < b->count);
}

void sp_toml_sort_paths(struct sp_toml_path *paths, uint32_t count)
{
    if (count > 1)
        qsort(paths, count, sizeof *paths, compare_paths);
}

/* Index of the first path with a key >= `key` at this depth (is_after: > `key`). */
static uint32_t find_bound(struct path_range in, uint32_t depth, struct sp_str key, bool is_after)
{
    uint32_t low = 0;
    uint32_t high = in.count;

    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const int r = compare_keys(in.first[middle].keys[depth], key);

        if (r < 0 || (is_after && r == 0))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* All paths of the range have a key at `depth`: they lead below this table. */
static void prune_table(struct sp_toml_value *table, struct path_range in, uint32_t depth)
{
    struct sp_toml_value *kept = NULL;
    struct sp_toml_value *next;
    uint32_t count = 0;

    for (struct sp_toml_value *v = table->first; v != NULL; v = next) {
        const uint32_t from = find_bound(in, depth, v->key, false);
        const struct path_range below = {in.first + from,
                                         find_bound(in, depth, v->key, true) - from};

        next = v->next;
        if (below.count == 0)
            continue;
        if (v->type == SP_TOML_TABLE && below.first->count > depth + 1)
            prune_table(v, below, depth + 1);
        if (kept == NULL)
            table->first = v;
        else
            kept->next = v;
        kept = v;
        count++;
    }
    if (kept == NULL)
        table->first = NULL;
    else
        kept->next = NULL;
    table->last = kept;
    table->count = count;
}

bool sp_toml_select(struct sp_toml_value *table, const struct sp_toml_path *paths, uint32_t count)
{
    prune_table(table, (struct path_range){paths, count}, 0);
    return table->count != 0;
}

void sp_toml_done(struct sp_toml *t)
{
    sp_arena_done(&t->arena);
    *t = (struct sp_toml){0};
}
