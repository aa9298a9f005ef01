/* SPDX-License-Identifier: Apache-2.0 */
/*
 * list: doubly linked lists; the links are members of the items.
 *
 * The head and every link are struct sp_list; an empty list points to itself. A link that is in no
 * list points to itself, too, after sp_list_init or sp_list_remove, so removing twice is harmless.
 * A zeroed link is in no list either: sp_list_remove and sp_list_is_linked accept it.
 *
 *   struct job { struct sp_list link; ... };
 *   struct sp_list jobs = SP_LIST_EMPTY(jobs);
 *
 *   sp_list_append(&jobs, &j->link);
 *   sp_list_each(i, &jobs) { struct job *j = SP_CONTAINER(i, struct job, link); ... }
 */
#ifndef SP_BASE_LIST_H
#define SP_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

#include "base/auto.h"

struct sp_list {
    struct sp_list *next, *prev;
};

#define SP_LIST_EMPTY(head) \
    {                       \
        &(head), &(head)    \
    }

static inline void sp_list_init(struct sp_list *l)
{
    l->next = l->prev = l;
}

static inline bool sp_list_is_empty(const struct sp_list *head)
{
    return head->next == head || head->next == NULL;
}

static inline bool sp_list_is_linked(const struct sp_list *link)
{
    return link->next != NULL && link->next != link;
}

/* The link must be in no list. */
static inline void sp_list_insert_before(struct sp_list *at, struct sp_list *link)
{
    link->prev = at->prev;
    link->next = at;
    at->prev->next = link;
    at->prev = link;
}

static inline void sp_list_prepend(struct sp_list *head, struct sp_list *link)
{
    sp_list_insert_before(head->next, link);
}

static inline void sp_list_append(struct sp_list *head, struct sp_list *link)
{
    sp_list_insert_before(head, link);
}

static inline void sp_list_remove(struct sp_list *link)
{
    if (link->next == NULL)
        return;
    link->prev->next = link->next;
    link->next->prev = link->prev;
    sp_list_init(link);
}

/* NULL: the list is empty. */
static inline struct sp_list *sp_list_first(const struct sp_list *head)
{
    return sp_list_is_empty(head) ? NULL : head->next;
}

static inline struct sp_list *sp_list_last(const struct sp_list *head)
{
    return sp_list_is_empty(head) ? NULL : head->prev;
}

/* Removes and returns the first link; NULL: the list is empty. */
static inline struct sp_list *sp_list_take_first(struct sp_list *head)
{
    struct sp_list *first = sp_list_first(head);

    if (first != NULL)
        sp_list_remove(first);
    return first;
}

/* The macros name a variable, which cannot stand in parentheses. */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* The body must not remove links. */
#define sp_list_each(i, head) for (struct sp_list *i = (head)->next; i != (head); i = i->next)

/* The body may remove the current link, and free its item. */
#define sp_list_each_safe(i, head)                                           \
    for (struct sp_list *i = (head)->next, *i##_next = i->next; i != (head); \
         i = i##_next, i##_next = i->next)

/* NOLINTEND(bugprone-macro-parentheses) */

#endif
