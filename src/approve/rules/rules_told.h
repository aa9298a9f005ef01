/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules_told: what is wrong with the rules, told once. The same thing is told again only if its
 * file has changed, or after it was right for a while.
 */
#ifndef SP_APPROVE_RULES_RULES_TOLD_H
#define SP_APPROVE_RULES_RULES_TOLD_H

#include <stdbool.h>
#include <stdint.h>

#define SP_RULES_TOLD_MAX                                                  \
    64 /* things that are remembered; of more it is told how many they are \
        */

struct sp_rules_texts {
    char *items[SP_RULES_TOLD_MAX];
    uint32_t count, missing; /* missing: for which there was no room */
};

struct sp_rules_told {
    void (*warn)(void *user, const char *text); /* NULL: nobody wants to know */
    void *user;
    struct sp_rules_texts before, now; /* what was wrong at the last reading, and is in this one */
    struct sp_rules_texts touched;     /* files that have changed since the last */
};

void sp_rules_told_done(struct sp_rules_told *t);

/* FOLDER/NAME has changed, or, without a name, the file. */
void sp_rules_told_touch(struct sp_rules_told *t, const char *path, const char *name);

/* One reading: what is wrong in it, and its end, at which the news are told. */
void sp_rules_told_begin(struct sp_rules_told *t);
void sp_rules_told_add(void *told, const char *text);
void sp_rules_told_end(struct sp_rules_told *t);

/* Not about a file. */
void sp_rules_told_now(struct sp_rules_told *t, const char *text);

#endif
