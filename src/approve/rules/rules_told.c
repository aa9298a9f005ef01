/* SPDX-License-Identifier: Apache-2.0 */
#include "approve/rules/rules_told.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- lists ---- */

static void clear(struct sp_rules_texts *l)
{
    while (l->count > 0)
        free(l->items[--l->count]);
    l->missing = 0;
}

/* Takes the text, which is from malloc or NULL. */
static void add(struct sp_rules_texts *l, char *text)
{
    if (text != NULL && l->count < SP_RULES_TOLD_MAX)
        l->items[l->count++] = text;
    else {
        l->missing++;
        free(text);
    }
}

static bool has(const struct sp_rules_texts *l, const char *text)
{
    for (uint32_t i = 0; i < l->count; i++)
        if (strcmp(l->items[i], text) == 0)
            return true;
    return false;
}

void sp_rules_told_done(struct sp_rules_told *t)
{
    clear(&t->before);
    clear(&t->now);
    clear(&t->touched);
}

/* ---- between two readings ---- */

void sp_rules_told_touch(struct sp_rules_told *t, const char *path, const char *name)
{
    char *text = NULL;

    if (asprintf(&text, name == NULL ? "%s" : "%s/%s", path, name) < 0)
        text = NULL;
    if (text != NULL && has(&t->touched, text))
        free(text);
    else
        add(&t->touched, text);
}

/* ---- a reading ---- */

void sp_rules_told_begin(struct sp_rules_told *t)
{
    clear(&t->now);
}

void sp_rules_told_add(void *told, const char *text)
{
    struct sp_rules_told *t = told;

    add(&t->now, strdup(text));
}

/* Whether it is about a file that has changed: its name is in the text, and no longer name is. */
static bool is_touched(const struct sp_rules_told *t, const char *text)
{
    for (uint32_t i = 0; i < t->touched.count; i++) {
        const char *path = t->touched.items[i];
        const char *found = strstr(text, path);

        if (found != NULL && found[strlen(path)] == ':')
            return true;
    }
    return false;
}

void sp_rules_told_now(struct sp_rules_told *t, const char *text)
{
    if (t->warn != NULL)
        t->warn(t->user, text);
}

void sp_rules_told_end(struct sp_rules_told *t)
{
    char more[80];

    for (uint32_t i = 0; i < t->now.count; i++)
        if (!has(&t->before, t->now.items[i]) || is_touched(t, t->now.items[i]))
            sp_rules_told_now(t, t->now.items[i]);
    if (t->now.missing != t->before.missing && t->now.missing > 0) {
        (void)snprintf(more, sizeof more, "rules: %u warnings more", t->now.missing);
        sp_rules_told_now(t, more);
    }
    clear(&t->before);
    clear(&t->touched);
    t->before = t->now;
    t->now = (struct sp_rules_texts){0};
}
