/* SPDX-License-Identifier: Apache-2.0 */
/* Converts the four legacy modes to profiles, and a policy to the closest mode, for display. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/auto.h"
#include "sandbox/profile_priv.h"
#include "sandbox/resolve.h"

static const char *const mode_names[] = {
    [SP_MODE_FULL_ACCESS] = "danger-full-access",
    [SP_MODE_READ_ONLY] = "read-only",
    [SP_MODE_WORKSPACE_WRITE] = "workspace-write",
    [SP_MODE_EXTERNAL] = "external-sandbox",
};

static int no_memory(struct sp_err *e)
{
    return sp_fail(e, SP_E_SYSTEM, ENOMEM, "convert a sandbox mode");
}

void sp_legacy_done(struct sp_legacy *l)
{
    for (size_t i = 0; i < l->root_count; i++)
        free(l->roots[i]);
    free(l->roots);
    *l = (struct sp_legacy){0};
}

bool sp_mode_read(struct sp_str name, enum sp_mode *ret)
{
    for (size_t i = 0; i < sizeof mode_names / sizeof mode_names[0]; i++)
        if (sp_str_eq(name, sp_str_of(mode_names[i]))) {
            *ret = (enum sp_mode)i;
            return true;
        }
    return false;
}

const char *sp_mode_name(enum sp_mode m)
{
    return mode_names[m];
}

/* ---- to a profile ---- */

static int add_word(struct sp_profile *p, enum sp_place place, enum sp_access access,
                    struct sp_err *e)
{
    return sp_profile_add(p, place, access, false, (struct sp_str){0}, (struct sp_str){0}, e);
}

static int add_default(struct sp_profile *p, enum sp_place place, const char *text,
                       struct sp_err *e)
{
    return sp_profile_add(p, place, SP_ACCESS_READ, true, sp_str_of(text), (struct sp_str){0}, e);
}

static bool is_there_to_protect(const char *path, const char *name)
{
    struct stat st;

    if (stat(path, &st) < 0)
        return false;
    return S_ISDIR(st.st_mode) || (S_ISREG(st.st_mode) && strcmp(name, ".git") == 0);
}

static int add_protected_below(struct sp_profile *p, const char *root, struct sp_err *e)
{
    for (size_t i = 0; i < SP_PROTECTED_COUNT; i++) {
        auto_free char *path = sp_path_normalise(sp_protected_names[i], root);

        if (path == NULL)
            return no_memory(e);
        const int r = is_there_to_protect(path, sp_protected_names[i])
                          ? add_default(p, SP_PLACE_PATH, path, e)
                          : 0;
        if (r < 0)
            return r;
    }
    return 0;
}

static int add_workspace(const struct sp_legacy *l, struct sp_profile *p, struct sp_err *e)
{
    int r = add_word(p, SP_PLACE_ROOT, SP_ACCESS_READ, e);

    if (r == 0)
        r = add_word(p, SP_PLACE_PROJECT, SP_ACCESS_WRITE, e);
    if (r == 0 && !l->excludes_slash_tmp)
        r = add_word(p, SP_PLACE_SLASH_TMP, SP_ACCESS_WRITE, e);
    if (r == 0 && !l->excludes_tmpdir)
        r = add_word(p, SP_PLACE_TMPDIR, SP_ACCESS_WRITE, e);
    for (size_t i = 0; r == 0 && i < l->root_count; i++)
        r = sp_profile_add(p, SP_PLACE_PATH, SP_ACCESS_WRITE, false, sp_str_of(l->roots[i]),
                           (struct sp_str){0}, e);
    for (size_t i = 0; r == 0 && i < SP_PROTECTED_COUNT; i++)
        r = add_default(p, SP_PLACE_PROJECT, sp_protected_names[i], e);
    for (size_t i = 0; r == 0 && i < l->root_count; i++)
        r = add_protected_below(p, l->roots[i], e);
    return r;
}

int sp_profile_from_legacy(const struct sp_legacy *l, struct sp_profile *ret, struct sp_err *e)
{
    struct sp_profile p = {.has_network = l->has_network};
    int r = 0;

    switch (l->mode) {
    case SP_MODE_FULL_ACCESS:
        p.kind = SP_PROFILE_DISABLED;
        p.has_network = true;
        break;
    case SP_MODE_EXTERNAL:
        p.kind = SP_PROFILE_EXTERNAL;
        break;
    case SP_MODE_READ_ONLY:
        r = add_word(&p, SP_PLACE_ROOT, SP_ACCESS_READ, e);
        break;
    case SP_MODE_WORKSPACE_WRITE:
        r = add_workspace(l, &p, e);
        break;
    }
    if (r < 0) {
        sp_profile_done(&p);
        return r;
    }
    *ret = p;
    return 0;
}

/* ---- and back ---- */

/* By path; for one path the deciding fact comes first. */
static int by_path(const void *a, const void *b)
{
    const struct sp_fact *x = *(const struct sp_fact *const *)a;
    const struct sp_fact *y = *(const struct sp_fact *const *)b;
    int c = strcmp(x->path, y->path);

    if (c == 0)
        c = sp_access_rank(y->access) - sp_access_rank(x->access);
    return c != 0 ? c : (x > y) - (x < y);
}

static bool add_root(struct sp_legacy *l, const char *path)
{
    auto_free char *copy = sp_path_normalise(path, NULL);

    if (copy == NULL)
        return false;
    char **roots = realloc(l->roots, (l->root_count + 1) * sizeof *roots);
    if (roots == NULL)
        return false;
    l->roots = roots;
    l->roots[l->root_count++] = TAKE_PTR(copy);
    return true;
}

/*
 * Collects the writable paths: the cwd and "/" as flags, others as roots. Skips `tmpdir` and
 * `slash_tmp`, which have members of their own. false: no memory
 */
static bool list_writable(const struct sp_policy *p, const struct sp_resolved *r,
                          struct sp_legacy *l, bool *ret_cwd, bool *ret_slash)
{
    auto_free const struct sp_fact **sorted = malloc((r->count + 1) * sizeof(struct sp_fact *));
    /* NULL for a relative cwd, too. */
    auto_free char *cwd = p->cwd == NULL ? NULL : sp_path_normalise(p->cwd, NULL);

    if (sorted == NULL || (cwd == NULL && p->cwd != NULL && errno == ENOMEM))
        return false;
    for (size_t i = 0; i < r->count; i++)
        sorted[i] = &r->facts[i];
    qsort(sorted, r->count, sizeof(struct sp_fact *), by_path);
    for (size_t i = 0; i < r->count; i++) {
        const struct sp_fact *fact = sorted[i];
        const enum sp_place place = p->profile.entries[fact->entry].place;

        if (fact->access != SP_ACCESS_WRITE || place == SP_PLACE_TMPDIR ||
            place == SP_PLACE_SLASH_TMP || (i != 0 && strcmp(sorted[i - 1]->path, fact->path) == 0))
            continue;
        if (cwd != NULL && strcmp(fact->path, cwd) == 0)
            *ret_cwd = true;
        else if (place == SP_PLACE_ROOT)
            *ret_slash = true;
        else if (!add_root(l, fact->path))
            return false;
    }
    return true;
}

static bool writes_word(const struct sp_profile *p, enum sp_place place)
{
    bool writes = false;

    for (size_t i = 0; i < p->count; i++) {
        if (p->entries[i].place == place && p->entries[i].access == SP_ACCESS_DENY)
            return false;
        writes |= p->entries[i].place == place && p->entries[i].access == SP_ACCESS_WRITE;
    }
    return writes;
}

static int choose_mode(const struct sp_policy *p, const struct sp_resolved *r, struct sp_legacy *l,
                       struct sp_err *e)
{
    const bool writes_tmpdir = writes_word(&p->profile, SP_PLACE_TMPDIR);
    const bool writes_tmp = writes_word(&p->profile, SP_PLACE_SLASH_TMP);
    bool writes_cwd = false;
    bool writes_slash = false;

    l->has_network = p->profile.has_network;
    if (!list_writable(p, r, l, &writes_cwd, &writes_slash))
        return no_memory(e);
    if (writes_cwd) {
        l->mode = SP_MODE_WORKSPACE_WRITE;
        l->excludes_tmpdir = !writes_tmpdir;
        l->excludes_slash_tmp = !writes_tmp;
        return 0;
    }
    l->mode = SP_MODE_READ_ONLY;
    if (writes_slash || l->root_count != 0 || writes_tmpdir || writes_tmp)
        return sp_fail(e, SP_E_INVALID, 0,
                       "permissions profile requests filesystem writes outside the workspace root, "
                       "which is not supported until the runtime enforces FileSystemSandboxPolicy "
                       "directly");
    return 0;
}

int sp_policy_to_legacy(const struct sp_policy *p, struct sp_legacy *ret, struct sp_err *e)
{
    const struct sp_profile *profile = &p->profile;
    struct sp_resolved resolved = {0};
    struct sp_legacy l = {.mode = SP_MODE_EXTERNAL, .has_network = profile->has_network};
    int r = sp_resolve(p, &resolved, e);

    if (r < 0)
        return r;
    if (profile->kind == SP_PROFILE_DISABLED ||
        (profile->kind == SP_PROFILE_MANAGED && resolved.is_full_write && profile->has_network))
        l = (struct sp_legacy){.mode = SP_MODE_FULL_ACCESS, .has_network = true};
    else if (profile->kind == SP_PROFILE_MANAGED && !resolved.is_full_write)
        r = choose_mode(p, &resolved, &l, e);
    sp_resolved_done(&resolved);
    if (r < 0) {
        sp_legacy_done(&l);
        return r;
    }
    *ret = l;
    return 0;
}
