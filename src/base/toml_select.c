/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Paths in order are a tree that needs no building: those that agree on their first keys stand side
 * by side, and the one that ends there comes first. So many paths against many keys cost no more
 * than a search for each key.
 */
#include "base/toml_select.h"

#include <stdlib.h>

struct range {
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

/* The first of the range whose key at this depth is not below `key` (or, is_after, is above it). */
static uint32_t find_bound(struct range in, uint32_t depth, struct sp_str key, bool is_after)
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

static struct range narrow(struct range in, uint32_t depth, struct sp_str key)
{
    const uint32_t from = find_bound(in, depth, key, false);
    const uint32_t to = find_bound(in, depth, key, true);

    return (struct range){in.first + from, to - from};
}

/* All paths of the range go on below this table, at least to `depth`. */
static void prune(struct sp_toml_value *table, struct range in, uint32_t depth)
{
    struct sp_toml_value *kept = NULL;
    struct sp_toml_value *next;
    uint32_t count = 0;

    for (struct sp_toml_value *v = table->first; v != NULL; v = next) {
        const struct range below = narrow(in, depth, v->key);

        next = v->next;
        if (below.count == 0)
            continue;
        if (v->type == SP_TOML_TABLE && below.first->count > depth + 1)
            prune(v, below, depth + 1);
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
    prune(table, (struct range){paths, count}, 0);
    return table->count != 0;
}
