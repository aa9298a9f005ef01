/* SPDX-License-Identifier: Apache-2.0 */
/* A table from texts to numbers: open addressing, at most three quarters full. */
#include <stdlib.h>

#include "approve/rules/rules_priv.h"
#include "base/hash.h"

#define FIRST_CAP 16

/* The slot of the key, or the free one where it would be. cap is a power of two. */
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

static bool grow(struct sp_rules_table *t)
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
    if (t->count + 1 > t->cap / 4 * 3 && !grow(t))
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
