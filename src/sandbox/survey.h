/* SPDX-License-Identifier: Apache-2.0 */
/*
 * survey: a resolved policy applied to the disk as it is now.
 *
 * A survey lists each place that the policy treats differently from its surroundings, with the
 * inode that was seen: symlinks are resolved, protected names and the directories that they name
 * are found, patterns are expanded. The plan is compiled from it, and a cell is reused only while
 * the survey still holds.
 */
#ifndef SP_SANDBOX_SURVEY_H
#define SP_SANDBOX_SURVEY_H

#include "sandbox/canonical.h"
#include "sandbox/resolve.h"

#define SP_MAX_GLOB_MATCHES 8192
#define SP_MAX_PINS         16384

enum sp_spot_kind {
    SP_SPOT_MISSING,
    SP_SPOT_DIR,
    SP_SPOT_FILE
}; /* FILE: anything but a directory */
enum sp_spot_why {
    SP_WHY_ENTRY,
    SP_WHY_PROTECTED,
    SP_WHY_GITDIR,
    SP_WHY_GLOB,
    SP_WHY_OWN,    /* rules, configuration, credentials and programs of sallyport itself */
    SP_WHY_HIDDEN, /* sp_fixed_places.hidden, and /run with what plan.c opens in it */
};

struct sp_spot {
    char *path; /* without symlinks; MISSING: up to the first component that does not exist */
    enum sp_access access;
    enum sp_spot_kind kind;
    enum sp_spot_why why;
    struct sp_identity
        who;         /* the inode at path; MISSING: of its parent, 0 after sp_survey_policy */
    size_t entry;    /* index in the profile, or SP_NO_ENTRY; PROTECTED, GITDIR: of the root */
    bool is_watched; /* MISSING, PROTECTED: no placeholder; the front renames what appears */
};

/* A directory in a writable place on the way to a spot that is not writable. A command that renamed
 * it could put something else at the spot's path, so it becomes a mount point, too. */
struct sp_pin {
    char *path; /* no symlink in it */
    struct sp_identity who;
};

/* A symlink on the way to a readable place; a view that starts empty creates it again. */
struct sp_alias {
    char *path;   /* of the symlink; its parent has no symlink in it */
    char *target; /* the text of the symlink */
};

/* A path that the survey depends on; it holds while each mark still finds the same inode. */
struct sp_mark {
    char *path;
    bool follows; /* resolve symlinks; else: no symlink on the way, only the last may be one */
    bool is_missing;
    bool is_exact; /* size and change time must be the same, too */
    struct sp_identity who;
};

struct sp_survey {
    bool is_open, is_full_read; /* as resolved; full read: the root is READ or WRITE */
    bool has_globs;             /* never holds: new files may match at any time */
    struct sp_spot *spots;      /* sorted by path, each path once */
    size_t count, cap;
    struct sp_alias *aliases;
    size_t alias_count, alias_cap;
    struct sp_pin *pins; /* sorted by path, each once */
    size_t pin_count, pin_cap;
    struct sp_mark *marks;
    size_t mark_count, mark_cap;
};
void sp_survey_done(struct sp_survey *s);

/*
 * Absolute paths that no policy opens; each list is NULL-terminated, or NULL.
 *
 * Files that decide about commands must not be written by a command: a rule or a configuration that
 * a confined command left behind would let the next command run without a sandbox. `own_dirs`,
 * `read_only` and `names` have no effect on a policy that does not restrict files (is_open).
 */
struct sp_fixed_places {
    /* Not accessible, with everything below, to any confined cell. Missing ones are skipped. */
    const char *const *hidden;
    /* Directories of sallyport: read-only, except for entries of the policy below them. If one is
     * missing where a command could create it, it is a MISSING spot with SP_WHY_OWN, and the caller
     * creates it permanently. */
    const char *const *own_dirs;
    /* Files and directories: read-only with everything below. Missing ones are skipped. */
    const char *const *read_only;
    /* As read_only, but a missing one that a command could create is treated as a protected name.
     */
    const char *const *names;
};

/* fixed may be NULL. */
int sp_survey_make(const struct sp_policy *p, const struct sp_resolved *r,
                   const struct sp_fixed_places *fixed, struct sp_survey *ret, struct sp_err *e);

/* Compares by components: the paths below a directory follow it directly. */
int sp_path_order(const char *a, const char *b);
/* The length of the parent's path: 1 for "/a", 0 for "/". */
size_t sp_path_parent(const char *path);

/* Whether all marks still find the same inodes. */
bool sp_survey_holds(const struct sp_survey *s);
/* Whether both lead to the same plan: equal spots, pins and aliases. */
bool sp_survey_equal(const struct sp_survey *a, const struct sp_survey *b);

#endif
