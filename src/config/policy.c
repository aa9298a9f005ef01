/* SPDX-License-Identifier: Apache-2.0 */
#include "config/policy.h"

#include <errno.h>
#include <stdlib.h>

#include "base/auto.h"
#include "config/config_priv.h"
#include "rpc/policy_words.h"
#include "sandbox/resolve.h"

static const struct {
    const char *name;
    enum sp_mode mode;
} builtins[] = {
    {":read-only", SP_MODE_READ_ONLY},
    {":workspace", SP_MODE_WORKSPACE_WRITE},
    {":danger-full-access", SP_MODE_FULL_ACCESS},
};

int sp_config_builtin(const char *name, struct sp_profile *ret, bool *ret_is_known,
                      struct sp_error *e)
{
    for (size_t i = 0; i < sizeof builtins / sizeof builtins[0]; i++)
        if (strcmp(name, builtins[i].name) == 0) {
            const struct sp_legacy l = {.mode = builtins[i].mode};

            *ret_is_known = true;
            return sp_profile_from_legacy(&l, ret, e);
        }
    *ret_is_known = false;
    return 0;
}

static int find_profile(const struct sp_config *c, const char *name, struct sp_profile *ret,
                        struct sp_error *e)
{
    struct sp_legacy l = {0};
    bool is_builtin = false;
    const int r = sp_config_builtin(name, ret, &is_builtin, e);

    if (r < 0 || is_builtin)
        return r;
    if (sp_mode_read(sp_str_of(name), &l.mode))
        return sp_profile_from_legacy(&l, ret, e);
    const struct sp_config_profile *p = c == NULL ? NULL : sp_config_find_profile(c, name);
    if (p == NULL)
        return sp_fail(e, SP_E_INVALID, 0,
                       "there is no sandbox `%.80s`; there are :read-only, :workspace, "
                       ":danger-full-access, the modes read-only, workspace-write, "
                       "danger-full-access, external-sandbox, and each [permissions.NAME] of the "
                       "configuration",
                       name);
    return sp_profile_copy(&p->profile, ret) ? 0 : sp_config_no_memory(e);
}

/* Nothing is copied as nothing. false: no memory */
static bool copy(const char *text, char **ret)
{
    *ret = text == NULL ? NULL : strdup(text);
    return *ret != NULL || text == NULL;
}

static const char *absolute_or_none(const char *path)
{
    return path != NULL && path[0] == '/' ? path : NULL;
}

static bool add_surroundings(const struct sp_config *c, struct sp_policy *p)
{
    const struct sp_config_impl *impl = c == NULL ? NULL : c->impl;
    const char *tmpdir = impl == NULL ? absolute_or_none(getenv("TMPDIR")) : impl->tmpdir;
    const char *home = impl == NULL ? absolute_or_none(getenv("HOME")) : impl->user_home;

    return copy(tmpdir, &p->tmpdir) && copy(home, &p->home) &&
           sp_policy_add_root(p, sp_str_of(p->cwd));
}

int sp_config_policy(const struct sp_config *c, const char *name, const char *cwd,
                     struct sp_policy *ret, bool *ret_is_open, struct sp_error *e)
{
    auto_policy struct sp_policy p = {.cwd_is_root = true};

    if (name == NULL && c != NULL)
        name = c->default_permissions;
    if (name == NULL)
        name = ":read-only";
    p.cwd = sp_path_normalise(cwd, NULL);
    if (p.cwd == NULL)
        return errno != EINVAL ? sp_config_no_memory(e)
                               : sp_fail(e, SP_E_INVALID, 0,
                                         "a policy needs an absolute directory, not `%.120s`", cwd);
    const int r = find_profile(c, name, &p.profile, e);
    if (r < 0)
        return r;
    if (!add_surroundings(c, &p))
        return sp_config_no_memory(e);
    *ret_is_open = p.profile.kind == SP_PROFILE_DISABLED;
    *ret = p;
    p = (struct sp_policy){0};
    return 0;
}
