/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules_posts: where one must stand to see every change of the rules (approvals.md 5.1).
 *
 * For each folder PLACE/rules: the folder itself for its files, PLACE for the name `rules`, what
 * is above for the name of PLACE, and if that is missing, as far up as something is there. For a
 * file that was named: the file, and its folder.
 */
#ifndef SP_APPROVE_RULES_RULES_POSTS_H
#define SP_APPROVE_RULES_RULES_POSTS_H

#include "approve/rules/rules.h"
#include "os/notify.h"

struct sp_rules_post {
    int id;
    char *path;       /* of the folder or the file, as messages about it begin */
    char *name;       /* the entry that matters; NULL: all *.rules, or it is a file */
    bool was_there;   /* the entry, when the post was taken */
    bool is_for_file; /* the entry is a file of rules: it is of interest once it was written */
};

struct sp_rules_posts {
    struct sp_rules_post *items;
    uint32_t count, cap;
    bool is_cut; /* more would be needed than there may be */
};

/*
 * Takes all posts anew; those that are no longer needed are left. What is not there cannot be
 * watched, which is fine. 0, or minus an errno: the kernel has no room, and nothing can be relied
 * on.
 */
int sp_rules_posts_take(struct sp_rules_posts *p, int fd, const struct sp_rules_places *places);
void sp_rules_posts_done(struct sp_rules_posts *p);

/* The post, from `from` on, that this notice is for; UINT32_MAX: it is none of our business. The
 * placeholders of sandboxes are not: they come and go all the time, and have no rules. */
uint32_t sp_rules_posts_find(const struct sp_rules_posts *p, const struct sp_file_notice *n,
                             uint32_t from);

#endif
