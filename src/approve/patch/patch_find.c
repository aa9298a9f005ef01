/* SPDX-License-Identifier: Apache-2.0 */
/*
 * patch: where a run of lines is in a file.
 *
 * Lines are compared by keyed hashes of what is left of them at a level, which are made once a
 * file. A pattern with a line that the rest of the file does not have costs nothing but its own
 * hashes; else Knuth, Morris and Pratt's search looks at each line of the rest once.
 */
#include <errno.h>
#include <stdlib.h>

#include "approve/patch/patch_priv.h"
#include "base/auto.h"
#include "base/hash.h"

void sp_patch_lines_done(struct sp_patch_lines *l)
{
    for (int i = 0; i < SP_PATCH_LEVELS; i++) {
        free(l->levels[i].keys);
        free(l->levels[i].last);
        l->levels[i] = (struct sp_patch_level){0};
    }
    sp_buf_done(&l->scratch);
}

static bool is_same(struct sp_hash a, struct sp_hash b)
{
    return a.a == b.a && a.b == b.b;
}

static bool make_key(struct sp_patch_lines *l, int level, struct sp_str line, struct sp_hash *ret)
{
    if (level == 1)
        line = sp_patch_trim_end(line);
    if (level >= 2)
        line = sp_patch_trim(line);
    if (level == 3) {
        l->scratch.len = 0;
        if (!sp_patch_add_folded(&l->scratch, line))
            return false;
        line = (struct sp_str){l->scratch.data, l->scratch.len};
    }
    *ret = sp_hash(line.n == 0 ? SP_STR("") : line);
    return true;
}

static uint32_t *slot_of(const struct sp_patch_level *v, struct sp_hash key)
{
    uint32_t at = (uint32_t)key.a & v->mask;

    while (v->last[at] != 0 && !is_same(v->keys[v->last[at] - 1], key))
        at = (at + 1) & v->mask;
    return &v->last[at];
}

static bool make_level(struct sp_patch_lines *l, int level)
{
    struct sp_patch_level *v = &l->levels[level];
    uint32_t size = 16;

    if (v->keys != NULL)
        return true;
    while (size < 2 * l->count) /* at most 8 Mi lines */
        size *= 2;
    auto_free struct sp_hash *keys = calloc((size_t)l->count + 1, sizeof *keys);
    auto_free uint32_t *last = calloc(size, sizeof *last);
    if (keys == NULL || last == NULL)
        return false;
    for (uint32_t i = 0; i < l->count; i++)
        if (!make_key(l, level, l->items[i], &keys[i]))
            return false;
    *v = (struct sp_patch_level){TAKE_PTR(keys), TAKE_PTR(last), size - 1};
    for (uint32_t i = 0; i < l->count; i++)
        *slot_of(v, v->keys[i]) = i + 1;
    return true;
}

/* One search. */
struct pattern {
    struct sp_hash *keys;
    uint32_t *borders; /* of each prefix: its longest proper prefix that is its end as well */
    uint32_t count;
};

/* Whether each of its lines is in the file late enough. */
static bool may_be_there(const struct sp_patch_level *v, const struct pattern *p, uint32_t from)
{
    for (uint32_t i = 0; i < p->count; i++)
        if (*slot_of(v, p->keys[i]) < from + i + 1)
            return false;
    return true;
}

static void make_borders(struct pattern *p)
{
    uint32_t have = 0;

    p->borders[0] = 0;
    for (uint32_t i = 1; i < p->count; i++) {
        while (have > 0 && !is_same(p->keys[i], p->keys[have]))
            have = p->borders[have - 1];
        have += is_same(p->keys[i], p->keys[have]);
        p->borders[i] = have;
    }
}

static bool spend(struct sp_patch_lines *l, uint64_t steps)
{
    if (*l->steps < steps)
        return false;
    *l->steps -= steps;
    return true;
}

/* false: that was too much. */
static bool search(struct sp_patch_lines *l, const struct sp_patch_level *v, struct pattern *p,
                   uint32_t from, uint32_t *ret)
{
    uint32_t have = 0;
    uint32_t i = from;

    make_borders(p);
    for (; i < l->count && have < p->count; i++) {
        while (have > 0 && !is_same(v->keys[i], p->keys[have]))
            have = p->borders[have - 1];
        have += is_same(v->keys[i], p->keys[have]);
    }
    if (have == p->count)
        *ret = i - p->count;
    return spend(l, (uint64_t)(i - from) + p->count);
}

static int no_memory(struct sp_err *e)
{
    return sp_fail(e, SP_E_SYSTEM, ENOMEM, "compare lines");
}

static int find_at_level(struct sp_patch_lines *l, int level, const struct sp_str *lines,
                         struct pattern *p, uint32_t from, uint32_t *ret, struct sp_err *e)
{
    const struct sp_patch_level *v = &l->levels[level];

    if (!make_level(l, level))
        return no_memory(e);
    for (uint32_t i = 0; i < p->count; i++)
        if (!make_key(l, level, lines[i], &p->keys[i]))
            return no_memory(e);
    if (!may_be_there(v, p, from))
        return 0;
    if (!search(l, v, p, from, ret))
        return sp_fail(e, SP_E_LIMIT, 0,
                       "the patch is too repetitive: make its chunks larger and fewer");
    return 0;
}

int sp_patch_find(struct sp_patch_lines *l, const struct sp_str *pattern, uint32_t count,
                  uint32_t start, bool is_at_end, uint32_t *ret, struct sp_err *e)
{
    *ret = count == 0 ? start : SP_PATCH_NOT_FOUND;
    if (count == 0 || count > l->count || start > l->count - count)
        return 0;

    const uint32_t from = is_at_end ? l->count - count : start;
    auto_free struct sp_hash *keys = calloc(count, sizeof *keys);
    auto_free uint32_t *borders = calloc(count, sizeof *borders);
    struct pattern p = {keys, borders, count};
    int r = keys == NULL || borders == NULL ? no_memory(e) : 0;

    for (int level = 0; r == 0 && *ret == SP_PATCH_NOT_FOUND && level < SP_PATCH_LEVELS; level++)
        r = find_at_level(l, level, pattern, &p, from, ret, e);
    return r;
}
