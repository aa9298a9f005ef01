/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>

#include "core/proc.h"

void sp_waiters_add(struct sp_waiters *l, struct sp_waiter *w)
{
    w->list = l;
    w->next = NULL;
    w->prev = l->last;
    if (l->last != NULL)
        l->last->next = w;
    else
        l->first = w;
    l->last = w;
    l->count++;
}

void sp_waiters_add_first(struct sp_waiters *l, struct sp_waiter *w)
{
    w->list = l;
    w->prev = NULL;
    w->next = l->first;
    if (l->first != NULL)
        l->first->prev = w;
    else
        l->last = w;
    l->first = w;
    l->count++;
}

void sp_waiters_remove(struct sp_waiter *w)
{
    struct sp_waiters *l = w->list;

    if (l == NULL)
        return;
    if (w->prev != NULL)
        w->prev->next = w->next;
    else
        l->first = w->next;
    if (w->next != NULL)
        w->next->prev = w->prev;
    else
        l->last = w->prev;
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
