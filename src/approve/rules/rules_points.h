/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules_points: the inotify watches that notice every change of the rules.
 *
 * For each directory PLACE/rules: the directory itself for its files, PLACE for the name `rules`,
 * and the parent of PLACE for its name; if that is missing, the nearest ancestor that exists. For a
 * file that was named: the file, and its directory.
 */
#ifndef SP_APPROVE_RULES_RULES_POINTS_H
#define SP_APPROVE_RULES_RULES_POINTS_H

#include "approve/rules/rules.h"
#include "os/notify.h"

struct sp_rules_point {
    int id;
    char *path;       /* the watched directory or file */
    char *name;       /* the entry that matters; NULL: all *.rules, or path is a file */
    bool was_there;   /* the entry existed when the watch was set */
    bool is_for_file; /* the entry is a rule file, which is read once it is written */
};

struct sp_rules_points {
    struct sp_rules_point *items;
    uint32_t count, cap;
    bool is_cut; /* SP_RULES_WATCH_MAX was reached */
};

/* Sets all watches again and removes those that are no longer needed. Missing paths are no error.
 * 0, or -errno: the kernel or memory is exhausted, and changes may be missed. */
int sp_rules_points_renew(struct sp_rules_points *p, int fd, const struct sp_rules_places *places);
void sp_rules_points_done(struct sp_rules_points *p);

/* The index of the next point, from `from` on, that this notice concerns; UINT32_MAX: none. The
 * placeholders of sandboxes, which come and go all the time, are ignored. */
uint32_t sp_rules_points_find(const struct sp_rules_points *p, const struct sp_file_notice *n,
                              uint32_t from);

#endif
