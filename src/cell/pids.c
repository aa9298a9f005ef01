/* SPDX-License-Identifier: Apache-2.0 */
/* A hash table with linear probing, at most half full. */
#include "cell/pids.h"

#include <assert.h>
#include <stdlib.h>

#define FIRST_SIZE 64

static uint32_t home(const struct sp_pids *t, pid_t pid)
{
    return ((uint32_t)pid * 2654435761U) >> 7 & (t->size - 1);
}

/* The entry of the pid, or the free one where it belongs. */
static struct sp_pid *look(const struct sp_pids *t, pid_t pid)
{
    uint32_t i = home(t, pid);

    while (t->table[i].pid != 0 && t->table[i].pid != pid)
        i = (i + 1) & (t->size - 1);
    return &t->table[i];
}

bool sp_pids_reserve(struct sp_pids *t)
{
    const struct sp_pids old = *t;

    if (t->count < t->size / 2)
        return true;
    struct sp_pids new = {.count = t->count, .size = t->size == 0 ? FIRST_SIZE : t->size * 2};
    new.table = calloc(new.size, sizeof *new.table);
    if (new.table == NULL)
        return false;
    for (uint32_t i = 0; i < old.size; i++)
        if (old.table[i].pid != 0)
            *look(&new, old.table[i].pid) = old.table[i];
    free(old.table);
    *t = new;
    return true;
}

void sp_pids_put(struct sp_pids *t, pid_t pid, enum sp_pid_kind kind, uint32_t at)
{
    assert(pid > 0 && t->count < t->size);
    struct sp_pid *c = look(t, pid);
    if (c->pid == 0) {
        *c = (struct sp_pid){.pid = pid};
        t->count++;
    }
    c->kind = kind;
    c->at = at;
}

struct sp_pid *sp_pids_find(const struct sp_pids *t, pid_t pid)
{
    struct sp_pid *c = t->size == 0 || pid <= 0 ? NULL : look(t, pid);

    return c != NULL && c->pid != 0 ? c : NULL;
}

void sp_pids_remove(struct sp_pids *t, pid_t pid)
{
    struct sp_pid *c = sp_pids_find(t, pid);

    if (c == NULL)
        return;
    /* Later entries that had to pass this one move up, so that no gap hides them. */
    uint32_t gap = (uint32_t)(c - t->table);
    for (uint32_t i = (gap + 1) & (t->size - 1); t->table[i].pid != 0; i = (i + 1) & (t->size - 1))
        if (((i - home(t, t->table[i].pid)) & (t->size - 1)) >= ((i - gap) & (t->size - 1))) {
            t->table[gap] = t->table[i];
            gap = i;
        }
    t->table[gap] = (struct sp_pid){0};
    t->count--;
}
