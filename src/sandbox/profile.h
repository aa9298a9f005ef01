/* SPDX-License-Identifier: Apache-2.0 */
/*
 * profile: what a command may read and change, as a client says it.
 *
 * Data, and what can be said of it without a disk; sp_profile_from_legacy and sp_grant_normalise
 * alone look whether a path exists. Entries name places by path, by pattern or by a word
 * ("the project's roots"); resolve.h makes paths of them.
 */
#ifndef SP_SANDBOX_PROFILE_H
#define SP_SANDBOX_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

enum sp_access { SP_ACCESS_DENY, SP_ACCESS_READ, SP_ACCESS_WRITE };

/* What an entry names. */
enum sp_place {
    SP_PLACE_PATH,    /* text: an absolute path */
    SP_PLACE_GLOB,    /* text: a pattern; access is DENY */
    SP_PLACE_ROOT,    /* / */
    SP_PLACE_MINIMAL, /* what programs need to start */
    SP_PLACE_PROJECT, /* the workspace roots; text: a path below each, or NULL */
    SP_PLACE_TMPDIR,
    SP_PLACE_SLASH_TMP,
    SP_PLACE_UNKNOWN, /* a word of a newer version: text and subpath are kept, it means nothing */
};

struct sp_entry {
    enum sp_place place;
    enum sp_access access;
    bool skips_missing; /* a generated default: nothing is made for a path that is not there */
    char *text;         /* owned; see enum sp_place; else NULL */
    char *subpath;      /* owned; UNKNOWN alone */
};

enum sp_profile_kind {
    SP_PROFILE_MANAGED,
    SP_PROFILE_DISABLED, /* no restriction at all */
    SP_PROFILE_EXTERNAL, /* somebody else confines: the network setting alone counts */
};

/* All zero: managed, restricted, no entry, no network: nothing may be read. */
struct sp_profile {
    enum sp_profile_kind kind;
    bool is_unrestricted; /* managed, but the whole disk is open; then there are no entries */
    bool has_network;
    uint32_t glob_depth; /* 0: not given */
    struct sp_entry *entries;
    size_t count, cap;
};

void sp_profile_done(struct sp_profile *p);
bool sp_profile_copy(const struct sp_profile *p, struct sp_profile *ret); /* false: no memory */

/* Adds an entry; text and subpath (p NULL: none) are copied. The rules: a glob is DENY; a PATH is
 * absolute; a PROJECT's text is a relative path of normal components. */
int sp_profile_add(struct sp_profile *p, enum sp_place place, enum sp_access access,
                   bool skips_missing, struct sp_str text, struct sp_str subpath, struct sp_err *e);

/* Whether commands under it need a sandbox at all when the choice is ours (sandbox.md 2.11). */
bool sp_profile_needs_sandbox(const struct sp_profile *p);

/* ---- the four modes of old ---- */

enum sp_mode { SP_MODE_FULL_ACCESS, SP_MODE_READ_ONLY, SP_MODE_WORKSPACE_WRITE, SP_MODE_EXTERNAL };

struct sp_legacy {
    enum sp_mode mode;
    bool has_network;
    bool excludes_tmpdir, excludes_slash_tmp;
    char **roots; /* writable ones beside the workspace; owned */
    size_t root_count;
};
void sp_legacy_done(struct sp_legacy *l);

/* "read-only", ... ; false: no such mode */
bool sp_mode_read(struct sp_str name, enum sp_mode *ret);
const char *sp_mode_name(enum sp_mode m);

int sp_profile_from_legacy(const struct sp_legacy *l, struct sp_profile *ret, struct sp_err *e);

/* ---- policy: a profile and the surroundings that its words mean ---- */

struct sp_policy {
    struct sp_profile profile;
    char *cwd;    /* absolute; relative patterns are taken from here; NULL: none */
    char **roots; /* workspace roots, absolute */
    size_t root_count;
    bool cwd_is_root; /* without workspace roots the cwd is one */
    char *tmpdir;     /* NULL or not absolute: none */
    char *home;       /* for ~ in patterns; NULL: none */
};
void sp_policy_done(struct sp_policy *p);
bool sp_policy_add_root(struct sp_policy *p, struct sp_str root);      /* false: no memory */
bool sp_policy_copy(const struct sp_policy *p, struct sp_policy *ret); /* the same */

/* For displays of old clients (2.7). */
int sp_policy_to_legacy(const struct sp_policy *p, struct sp_legacy *ret, struct sp_err *e);

/* ---- more for one command (2.8) ---- */

/* What is asked for or granted beyond a profile: entries and, perhaps, the network. */
struct sp_grant {
    struct sp_profile extra; /* kind and is_unrestricted do not count */
};
void sp_grant_done(struct sp_grant *g);
int sp_grant_normalise(struct sp_grant *g, struct sp_err *e);
int sp_profile_widen(const struct sp_profile *p, const struct sp_grant *g, struct sp_profile *ret,
                     struct sp_err *e);
int sp_grant_merge(const struct sp_grant *a, const struct sp_grant *b, struct sp_grant *ret,
                   struct sp_err *e);
/* What was granted of what was asked. */
int sp_grant_intersect(const struct sp_grant *asked, const struct sp_grant *granted,
                       const struct sp_policy *context, struct sp_grant *ret, struct sp_err *e);
bool sp_profile_equal(const struct sp_profile *a, const struct sp_profile *b);

#endif
