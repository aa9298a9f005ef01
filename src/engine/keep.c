/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/keep.h"

#include <stdalign.h>
#include <stdlib.h>

struct sp_keep_block {
    struct sp_keep_block *next;
    alignas(max_align_t) char bytes[];
};

void sp_keep_done(struct sp_keep *k)
{
    while (k->blocks != NULL) {
        struct sp_keep_block *next = k->blocks->next;

        free(k->blocks);
        k->blocks = next;
    }
}

void *sp_keep_alloc(struct sp_keep *k, size_t n)
{
    struct sp_keep_block *b = calloc(1, sizeof *b + (n == 0 ? 1 : n));

    if (b == NULL)
        return NULL;
    b->next = k->blocks;
    k->blocks = b;
    return b->bytes;
}

bool sp_keep_str(struct sp_keep *k, struct sp_str s, struct sp_str *ret)
{
    if (s.p == NULL) {
        *ret = (struct sp_str){0};
        return true;
    }
    char *copy = sp_keep_alloc(k, s.n + 1);
    if (copy == NULL)
        return false;
    memcpy(copy, s.p, s.n);
    *ret = (struct sp_str){copy, s.n};
    return true;
}

bool sp_keep_text(struct sp_keep *k, const char *text, const char **ret)
{
    struct sp_str copy = {0};

    if (text != NULL && !sp_keep_str(k, sp_str_of(text), &copy))
        return false;
    *ret = copy.p;
    return true;
}

bool sp_keep_strs(struct sp_keep *k, const struct sp_str *items, uint32_t count,
                  const struct sp_str **ret)
{
    struct sp_str *copies = sp_keep_alloc(k, count * sizeof *copies);

    if (copies == NULL)
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (!sp_keep_str(k, items[i], &copies[i]))
            return false;
    *ret = copies;
    return true;
}

bool sp_keep_vars(struct sp_keep *k, struct sp_environ_vars vars, struct sp_environ_vars *ret)
{
    struct sp_environ_var *copies = sp_keep_alloc(k, vars.count * sizeof *copies);

    if (copies == NULL)
        return false;
    for (uint32_t i = 0; i < vars.count; i++)
        if (!sp_keep_str(k, vars.items[i].name, &copies[i].name) ||
            !sp_keep_str(k, vars.items[i].value, &copies[i].value))
            return false;
    *ret = (struct sp_environ_vars){copies, vars.count};
    return true;
}

static bool keep_own(struct sp_keep *k, char *const *own, char *const **ret)
{
    size_t count = 0;

    while (own[count] != NULL)
        count++;
    char **copies = sp_keep_alloc(k, (count + 1) * sizeof *copies);
    if (copies == NULL)
        return false;
    for (size_t i = 0; i < count; i++) {
        const size_t n = strlen(own[i]) + 1;

        copies[i] = sp_keep_alloc(k, n);
        if (copies[i] == NULL)
            return false;
        memcpy(copies[i], own[i], n);
    }
    *ret = copies;
    return true;
}

bool sp_keep_environ(struct sp_keep *k, const struct sp_environ_ask *ask,
                     struct sp_environ_ask *ret)
{
    struct sp_environ_ask copy = *ask;

    if ((ask->own != NULL && !keep_own(k, ask->own, &copy.own)) ||
        !sp_keep_strs(k, ask->policy.exclude, ask->policy.exclude_count, &copy.policy.exclude) ||
        !sp_keep_strs(k, ask->policy.include_only, ask->policy.include_only_count,
                      &copy.policy.include_only) ||
        !sp_keep_strs(k, ask->policy.keep, ask->policy.keep_count, &copy.policy.keep) ||
        !sp_keep_vars(k, ask->set, &copy.set) ||
        !sp_keep_strs(k, ask->never_seen, ask->never_seen_count, &copy.never_seen))
        return false;
    *ret = copy;
    return true;
}
