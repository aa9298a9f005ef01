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
