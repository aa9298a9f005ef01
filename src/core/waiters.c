/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>

#include "core/proc.h"

/* `next` NULL: at the end. */
static void insert_before(struct sp_waiters *l, struct sp_waiter *next, struct sp_waiter *w)
{
    w->list = l;
    w->next = next;
    w->prev = next != NULL ? next->prev : l->last;
    *(w->prev != NULL ? &w->prev->next : &l->first) = w;
    *(next != NULL ? &next->prev : &l->last) = w;
    l->count++;
}

void sp_waiters_add(struct sp_waiters *l, struct sp_waiter *w)
{
    insert_before(l, NULL, w);
}

void sp_waiters_add_first(struct sp_waiters *l, struct sp_waiter *w)
{
    insert_before(l, l->first, w);
}

void sp_waiters_remove(struct sp_waiter *w)
{
    struct sp_waiters *l = w->list;

    if (l == NULL)
        return;
    *(w->prev != NULL ? &w->prev->next : &l->first) = w->next;
    *(w->next != NULL ? &w->next->prev : &l->last) = w->prev;
    l->count--;
    w->list = NULL;
}

void sp_waiters_wake(struct sp_waiters *l)
{
    for (unsigned n = l->count; n > 0 && l->first != NULL; n--) {
        struct sp_waiter *w = l->first;

        sp_waiters_remove(w);
        w->fn(w);
    }
}

void sp_waiters_wake_in_turn(struct sp_waiters *l)
{
    while (l->first != NULL) {
        struct sp_waiter *w = l->first;

        sp_waiters_remove(w);
        w->fn(w);
        if (l->first == w)
            return;
    }
}
