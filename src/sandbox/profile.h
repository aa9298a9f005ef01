/* SPDX-License-Identifier: Apache-2.0 */
/*
 * profile: what a command may read and write, as a client states it.
 *
 * Entries name places by path, by pattern or by keyword ("project_roots"); resolve.h turns them
 * into paths. Only sp_profile_from_legacy and sp_grant_normalise access the disk.
 */
#ifndef SP_SANDBOX_PROFILE_H
#define SP_SANDBOX_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"
#include "sandbox/network_policy.h"

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
    SP_PLACE_UNKNOWN, /* a keyword of a newer version: kept with text and subpath, has no effect */
};

struct sp_entry {
    enum sp_place place;
    enum sp_access access;
    bool skips_missing; /* a generated default: no placeholder if the path is missing */
    char *text;         /* owned; see enum sp_place; else NULL */
    char *subpath;      /* owned; only UNKNOWN */
};

enum sp_profile_kind {
    SP_PROFILE_MANAGED,
    SP_PROFILE_DISABLED, /* no restrictions */
    SP_PROFILE_EXTERNAL, /* confined by the host's own sandbox: only the network setting counts */
};

/* All zero: managed, no entries, no network: nothing may be read. */
struct sp_profile {
    enum sp_profile_kind kind;
    bool is_unrestricted; /* managed, but the whole disk is open; then there are no entries */
    bool has_network;     /* the host's network */
    uint32_t glob_depth;  /* 0: not given */
    struct sp_entry *entries;
    size_t count, cap;
    struct sp_network_policy *managed; /* owned; NULL: none. See sp_profile_managed */
};

/* The managed network of the profile; NULL: it has none, or has the host's network instead. Code
 * that does not know of it sees a profile without network. */
static inline const struct sp_network_policy *sp_profile_managed(const struct sp_profile *p)
{
    return p->has_network ? NULL : p->managed;
}

void sp_profile_done(struct sp_profile *p);
bool sp_profile_copy(const struct sp_profile *p, struct sp_profile *ret); /* false: no memory */

/* Adds an entry; copies text and subpath (p NULL: none). A glob must be DENY, a PATH absolute, the
 * text of a PROJECT a relative path without `.` and `..`. */
int sp_profile_add(struct sp_profile *p, enum sp_place place, enum sp_access access,
                   bool skips_missing, struct sp_str text, struct sp_str subpath, struct sp_err *e);

/* Whether commands under the profile must be confined: false if it allows all writes and the
 * network, or is not managed. */
bool sp_profile_needs_sandbox(const struct sp_profile *p);

/* ---- the four legacy modes ---- */

enum sp_mode { SP_MODE_FULL_ACCESS, SP_MODE_READ_ONLY, SP_MODE_WORKSPACE_WRITE, SP_MODE_EXTERNAL };

struct sp_legacy {
    enum sp_mode mode;
    bool has_network;
    bool excludes_tmpdir, excludes_slash_tmp;
    char **roots; /* further writable roots; owned */
    size_t root_count;
};
void sp_legacy_done(struct sp_legacy *l);

/* "read-only", ... ; false: no such mode */
bool sp_mode_read(struct sp_str name, enum sp_mode *ret);
const char *sp_mode_name(enum sp_mode m);

int sp_profile_from_legacy(const struct sp_legacy *l, struct sp_profile *ret, struct sp_err *e);

/* ---- policy: a profile with the paths that its keywords stand for ---- */

struct sp_policy {
    struct sp_profile profile;
    char *cwd;    /* absolute; base of relative patterns; NULL: none */
    char **roots; /* workspace roots, absolute */
    size_t root_count, root_cap;
    bool cwd_is_root; /* without workspace roots the cwd is the workspace root */
    char *tmpdir;     /* NULL or not absolute: none */
    char *home;       /* for ~ in patterns; NULL: none */
};
void sp_policy_done(struct sp_policy *p);
bool sp_policy_add_root(struct sp_policy *p, struct sp_str root);      /* false: no memory */
bool sp_policy_copy(const struct sp_policy *p, struct sp_policy *ret); /* the same */

/* ---- additional permissions of one command ---- */

/* Entries and, perhaps, the network: requested or granted in addition to a profile. */
struct sp_grant {
    struct sp_profile extra; /* kind and is_unrestricted are unused */
};
void sp_grant_done(struct sp_grant *g);
int sp_grant_normalise(struct sp_grant *g, struct sp_err *e);
int sp_profile_widen(const struct sp_profile *p, const struct sp_grant *g, struct sp_profile *ret,
                     struct sp_err *e);
int sp_grant_merge(const struct sp_grant *a, const struct sp_grant *b, struct sp_grant *ret,
                   struct sp_err *e);
/* The part of the request that was granted. */
int sp_grant_intersect(const struct sp_grant *asked, const struct sp_grant *granted,
                       const struct sp_policy *context, struct sp_grant *ret, struct sp_err *e);
bool sp_profile_equal(const struct sp_profile *a, const struct sp_profile *b);

#define auto_profile __attribute__((cleanup(sp_profile_done)))
#define auto_legacy  __attribute__((cleanup(sp_legacy_done)))
#define auto_grant   __attribute__((cleanup(sp_grant_done)))
#define auto_policy  __attribute__((cleanup(sp_policy_done)))

#endif
