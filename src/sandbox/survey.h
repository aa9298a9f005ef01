/* SPDX-License-Identifier: Apache-2.0 */
/*
 * survey: a resolved policy held against the disk as it is now.
 *
 * Every place that the policy treats differently from what is around it, with symlinks resolved,
 * protected names and the directories that they name found, patterns expanded, and the inode that
 * was seen. The plan is made from this, and a cell is used again only while it still holds.
 */
#ifndef SP_SANDBOX_SURVEY_H
#define SP_SANDBOX_SURVEY_H

#include <sys/types.h>
#include <time.h>

#include "sandbox/resolve.h"

#define SP_MAX_GLOB_MATCHES 8192
#define SP_MAX_PINS         16384

enum sp_spot_kind {
    SP_SPOT_MISSING,
    SP_SPOT_DIR,
    SP_SPOT_FILE
}; /* FILE: whatever is no directory */
enum sp_spot_why {
    SP_WHY_ENTRY,
    SP_WHY_PROTECTED,
    SP_WHY_GITDIR,
    SP_WHY_GLOB,
    SP_WHY_OWN, /* rules, configuration, credentials and programs of sallyport itself */
    SP_WHY_COVER,
};

struct sp_spot {
    char *path; /* no symlink in it; of a MISSING one: the first component that is not there */
    enum sp_access access;
    enum sp_spot_kind kind;
    enum sp_spot_why why;
    dev_t dev; /* of what is there; of a MISSING one's parent */
    ino_t ino;
    struct timespec born; /* with dev and ino: numbers are given again; zero where it is not kept */
    size_t entry;         /* of the profile, or SP_NO_ENTRY; PROTECTED, GITDIR: the root's */
    bool is_watched;      /* MISSING, PROTECTED: no placeholder, but what appears is renamed */
};

/* A directory, no spot itself, that lies in a writable place and leads to a spot which may not be
 * written. Whoever renames it has the spot's path for himself: it has to be a mount point, too. */
struct sp_pin {
    char *path; /* no symlink in it */
    dev_t dev;
    ino_t ino;
    struct timespec born;
};

/* A symlink on the way to a readable place, to be made again where the view is built anew. */
struct sp_alias {
    char *path;   /* of the symlink; its parent has no symlink in it */
    char *target; /* as it reads */
};

/* Something that was looked at; if it looks different the survey does not hold any more. */
struct sp_mark {
    char *path;
    bool follows; /* symlinks, to the end; else: there is none on the way, unless it is one */
    bool is_missing;
    bool is_exact; /* what it says counts, too: size and changed */
    mode_t mode;
    dev_t dev;
    ino_t ino;
    off_t size;
    struct timespec born, changed;
};

struct sp_survey {
    bool is_open, is_full_read; /* as resolved; full read: the root is READ or WRITE */
    bool has_globs;             /* then it has to be made anew each time: it never holds */
    struct sp_spot *spots;      /* sorted by path, each path once: the strictest reason decides */
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
 * Absolute paths that no policy opens; each list has NULL at its end, or is NULL.
 *
 * What decides about commands must not be written by one: a rule or a configuration that a confined
 * command left behind would let the next command run without a sandbox. A policy that restricts no
 * files at all (is_open) is not changed by `own_dirs` and `read_only`.
 */
struct sp_fixed_places {
    /* No command may reach them, nor anything below; missing ones are skipped. Also when everything
     * is open. */
    const char *const *hidden;
    /* Directories of ours: read-only, except for entries of the policy below them. One that is
     * missing where a command could make it is a MISSING spot with SP_WHY_OWN: the caller makes it,
     * for good. */
    const char *const *own_dirs;
    /* Files and directories: read-only with all that is below them; missing ones are skipped. */
    const char *const *read_only;
    /* The same, but one that is missing where a command could make it is held as a protected name
     * is. */
    const char *const *names;
};

/* fixed may be NULL. */
int sp_survey_make(const struct sp_policy *p, const struct sp_resolved *r,
                   const struct sp_fixed_places *fixed, struct sp_survey *ret, struct sp_err *e);

/* Whether everything still looks as it did. */
bool sp_survey_holds(const struct sp_survey *s);
/* Whether two are the same in all that a cell depends on. */
bool sp_survey_equal(const struct sp_survey *a, const struct sp_survey *b);

#endif
