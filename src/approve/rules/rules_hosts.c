/* SPDX-License-Identifier: Apache-2.0 */
/* Which paths stand for a program's bare name (5.4, step 2). */
#include <stdlib.h>

#include "approve/rules/rules_priv.h"

static bool add_host(struct sp_rules_hosts *h, const struct sp_host_executable *one)
{
    uint32_t *number = sp_rules_put(&h->table, one->name, h->table.count);
    void *array = NULL;

    if (number == NULL)
        return false;
    if (*number >= h->cap) {
        if (sp_rules_grow(h->items, *number, &h->cap, sizeof(struct sp_host_executable *),
                          &array) == NULL)
            return false;
        h->items = array;
    }
    h->items[*number] = one;
    return true;
}

bool sp_rules_hosts_add(struct sp_rules_hosts *h, const struct sp_rules_part *p)
{
    for (uint32_t i = 0; i < p->host_count; i++)
        if (!add_host(h, &p->hosts[i]))
            return false;
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
    const uint32_t number = sp_rules_find(&h->table, sp_rules_base_name(path));

    if (number == SP_RULES_NONE)
        return true;
    const struct sp_host_executable *one = h->items[number];
    for (uint32_t i = 0; i < one->count; i++)
        if (sp_str_eq(one->paths[i], path))
            return true;
    return false;
}
