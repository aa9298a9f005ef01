/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules_part: what the parser, the sets and the matching share: a part, the lists of parts, the
 * table from texts to numbers, host executables, and the normal form of paths.
 */
#include <assert.h>
#include <stdlib.h>

#include "approve/rules/rules_priv.h"
#include "base/grow.h"
#include "base/hash.h"

#define FIRST_CAP 16

/* ---- parts ---- */

struct sp_rules_part *sp_rules_part_new(const char *name)
{
    struct sp_rules_part *p = calloc(1, sizeof *p);

    if (p == NULL)
        return NULL;
    p->refs = 1;
    p->name = strdup(name);
    if (p->name == NULL) {
        free(p);
        return NULL;
    }
    return p;
}

void sp_rules_part_unref(struct sp_rules_part *p)
{
    if (p == NULL)
        return;
    assert(p->refs > 0);
    if (--p->refs > 0)
        return;
    sp_arena_done(&p->arena);
    free(p->name);
    free(p->file);
    free(p->rules);
    free(p->hosts);
    free(p->network);
    free(p->entries);
    free(p);
}

bool sp_rules_parts_add(struct sp_rules_parts *l, struct sp_rules_part *p)
{
    if (!SP_GROW(l->items, l->count, l->cap))
        return false;
    p->refs++;
    l->items[l->count++] = p;
    return true;
}

void sp_rules_parts_done(struct sp_rules_parts *l)
{
    for (uint32_t i = 0; i < l->count; i++)
        sp_rules_part_unref(l->items[i]);
    free(l->items);
    *l = (struct sp_rules_parts){0};
}

bool sp_rules_element_has(const struct sp_words *x, struct sp_str word)
{
    for (uint32_t i = 0; i < x->count; i++)
        if (sp_str_eq(x->items[i], word))
            return true;
    return false;
}

/* ---- paths ---- */

struct sp_str sp_rules_normal_path(struct sp_str s, char *out, bool *ret_climbs)
{
    size_t n = 0;

    *ret_climbs = false;
    for (size_t i = 0; i < s.n;) {
        while (i < s.n && s.p[i] == '/')
            i++;
        const char *end = i < s.n ? memchr(s.p + i, '/', s.n - i) : NULL;
        const struct sp_str part = {s.p + i, end == NULL ? s.n - i : (size_t)(end - s.p) - i};

        i += part.n;
        if (part.n == 0 || sp_str_eq(part, SP_STR(".")))
            continue;
        if (sp_str_eq(part, SP_STR(".."))) {
            *ret_climbs = true;
            while (n > 0 && out[--n] != '/')
                ;
            continue;
        }
        out[n++] = '/';
        memcpy(out + n, part.p, part.n);
        n += part.n;
    }
    if (n == 0)
        out[n++] = '/';
    return (struct sp_str){out, n};
}

/* ---- the table: open addressing, at most three quarters full ---- */

/* The slot of the key, or the free slot where it belongs. cap is a power of two. */
static struct sp_rules_slot *slot_of(struct sp_rules_slot *slots, uint32_t cap, struct sp_str key)
{
    uint32_t i = (uint32_t)sp_hash(key).a & (cap - 1);

    while (slots[i].key.p != NULL && !sp_str_eq(slots[i].key, key))
        i = (i + 1) & (cap - 1);
    return &slots[i];
}

uint32_t sp_rules_find(const struct sp_rules_table *t, struct sp_str key)
{
    if (t->count == 0)
        return SP_RULES_NONE;
    const struct sp_rules_slot *s = slot_of(t->slots, t->cap, key);
    return s->key.p == NULL ? SP_RULES_NONE : s->value;
}

static bool grow_table(struct sp_rules_table *t)
{
    const uint32_t cap = t->cap == 0 ? FIRST_CAP : t->cap * 2;
    struct sp_rules_slot *slots = calloc(cap, sizeof *slots);

    if (slots == NULL)
        return false;
    for (uint32_t i = 0; i < t->cap; i++)
        if (t->slots[i].key.p != NULL)
            *slot_of(slots, cap, t->slots[i].key) = t->slots[i];
    free(t->slots);
    t->slots = slots;
    t->cap = cap;
    return true;
}

uint32_t *sp_rules_put(struct sp_rules_table *t, struct sp_str key, uint32_t value)
{
    if (key.p == NULL)
        key.p = "";
    if (t->count + 1 > t->cap / 4 * 3 && !grow_table(t))
        return NULL;
    struct sp_rules_slot *s = slot_of(t->slots, t->cap, key);
    if (s->key.p == NULL) {
        *s = (struct sp_rules_slot){key, value};
        t->count++;
    }
    return &s->value;
}

void sp_rules_table_done(struct sp_rules_table *t)
{
    free(t->slots);
    *t = (struct sp_rules_table){0};
}

/* ---- host executables ---- */

bool sp_rules_hosts_add(struct sp_rules_hosts *h, const struct sp_rules_part *p)
{
    for (uint32_t i = 0; i < p->host_count; i++) {
        const uint32_t *number = sp_rules_put(&h->table, p->hosts[i].name, h->table.count);

        if (number == NULL || (*number >= h->cap && !SP_GROW(h->items, *number, h->cap)))
            return false;
        h->items[*number] = &p->hosts[i];
    }
    return true;
}

void sp_rules_hosts_done(struct sp_rules_hosts *h)
{
    sp_rules_table_done(&h->table);
    free(h->items);
    *h = (struct sp_rules_hosts){0};
}

bool sp_rules_hosts_allow(const struct sp_rules_hosts *h, struct sp_str path)
{
    const uint32_t number = sp_rules_find(&h->table, sp_base_name(path));

    if (number == SP_RULES_NONE)
        return true;
    const struct sp_host_executable *one = h->items[number];
    for (uint32_t i = 0; i < one->count; i++)
        if (sp_str_eq(one->paths[i], path))
            return true;
    return false;
}
