/* SPDX-License-Identifier: Apache-2.0 */
#include "config/policy.h"

#include <dirent.h>
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "config/config_keys.h"
#include "sandbox/policy_json.h"
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
                      struct sp_err *e)
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

bool sp_config_has_sandbox(const struct sp_config *c, const char *name)
{
    enum sp_mode mode;

    for (size_t i = 0; i < sizeof builtins / sizeof builtins[0]; i++)
        if (strcmp(name, builtins[i].name) == 0)
            return true;
    return sp_mode_read(sp_str_of(name), &mode) || sp_config_find_profile(c, name) != NULL;
}

/* Built-in names and modes win over profiles of the configuration. */
static int find_profile(const struct sp_config *c, const char *name, struct sp_profile *ret,
                        struct sp_err *e)
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

static const char *absolute_or_none(const char *path)
{
    return path != NULL && path[0] == '/' ? path : NULL;
}

int sp_config_policy(const struct sp_config *c, const char *name, const char *cwd,
                     struct sp_policy *ret, bool *ret_is_open, struct sp_err *e)
{
    const struct sp_config_impl *impl = c == NULL ? NULL : c->impl;
    const char *tmpdir = impl == NULL ? absolute_or_none(getenv("TMPDIR")) : impl->tmpdir;
    const char *home = impl == NULL ? absolute_or_none(getenv("HOME")) : impl->user_home;
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
    p.tmpdir = tmpdir == NULL ? NULL : strdup(tmpdir);
    p.home = home == NULL ? NULL : strdup(home);
    if ((tmpdir != NULL && p.tmpdir == NULL) || (home != NULL && p.home == NULL) ||
        !sp_policy_add_root(&p, sp_str_of(p.cwd)))
        return sp_config_no_memory(e);
    *ret_is_open = p.profile.kind == SP_PROFILE_DISABLED;
    *ret = p;
    p = (struct sp_policy){0};
    return 0;
}

/* ---- the home directory as a workspace ---- */

#define MAX_DOT_FILES 1024

/* The user has up to two homes: $HOME (i = 0), and the one of the account (i = 1), which $HOME may
 * hide. NULL: none. The caller frees it. */
static char *home_at(const struct sp_config *c, int i)
{
    const struct sp_config_impl *impl = c->impl;
    struct passwd *found = NULL;
    struct passwd entry;
    char text[4096];

    if (i != 0)
        (void)getpwuid_r(geteuid(), &entry, text, sizeof text, &found);
    const char *home = i == 0 ? impl->user_home : found == NULL ? NULL : found->pw_dir;
    return home == NULL || home[0] != '/' ? NULL : strdup(home);
}

/* Whether `dir` is `path` or a directory above it. */
static bool contains_path(const char *path, const struct stat *dir)
{
    auto_free char *real = realpath(path, NULL);
    struct stat st;

    while (real != NULL && real[0] != 0) {
        if (stat(real, &st) == 0 && st.st_dev == dir->st_dev && st.st_ino == dir->st_ino)
            return true;
        *strrchr(real, '/') = 0;
    }
    return real != NULL && stat("/", &st) == 0 && st.st_dev == dir->st_dev &&
           st.st_ino == dir->st_ino;
}

bool sp_config_holds_home(const struct sp_config *c, const char *dir)
{
    struct stat st;

    if (stat(dir, &st) < 0)
        return false;
    for (int i = 0; i < 2; i++) {
        auto_free char *home = home_at(c, i);

        if (home != NULL && contains_path(home, &st))
            return true;
    }
    return false;
}

static int protect_dot_files(struct sp_policy *p, const char *home, struct sp_err *e)
{
    auto_free char *real = realpath(home, NULL);
    struct sp_profile *f = &p->profile;
    DIR *dir = real == NULL ? NULL : opendir(real);
    int r = 0;

    if (dir == NULL)
        return real != NULL && errno == ENOMEM ? sp_config_no_memory(e) : 0;
    for (const struct dirent *d; r == 0 && (d = readdir(dir)) != NULL;) {
        auto_free char *path = NULL;
        struct stat st;
        size_t i = 0;

        if (d->d_name[0] != '.' || strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
            continue;
        if (asprintf(&path, "%s/%s", real, d->d_name) < 0) {
            path = NULL;
            r = sp_config_no_memory(e);
            break;
        }
        while (i < f->count &&
               !(f->entries[i].place == SP_PLACE_PATH && strcmp(f->entries[i].text, path) == 0))
            i++;
        if (lstat(path, &st) < 0 || S_ISLNK(st.st_mode) || i < f->count)
            continue;
        if (f->count > MAX_DOT_FILES)
            r = sp_fail(e, SP_E_LIMIT, 0,
                        "%.200s has too many names with a dot to be a workspace: use the directory "
                        "of a project",
                        real);
        else
            r = sp_profile_add(f, SP_PLACE_PATH, SP_ACCESS_READ, true, sp_str_of(path),
                               (struct sp_str){0}, e);
    }
    (void)closedir(dir);
    return r;
}

int sp_config_keep_dot_files(const struct sp_config *c, struct sp_policy *p, struct sp_err *e)
{
    int r = 0;

    if (p->profile.kind != SP_PROFILE_MANAGED || p->profile.is_unrestricted)
        return 0;
    for (size_t i = 0; r == 0 && i < p->root_count; i++)
        for (int k = 0; r == 0 && k < 2; k++) {
            auto_free char *home = home_at(c, k);
            struct sp_resolved resolved = {0};
            struct stat st;

            if (home == NULL || stat(p->roots[i], &st) < 0 || !contains_path(home, &st))
                continue;
            r = sp_resolve(p, &resolved, e);
            if (r == 0 && sp_resolved_can_write(&resolved, p->roots[i], NULL, NULL))
                r = protect_dot_files(p, home, e);
            sp_resolved_done(&resolved);
        }
    return r;
}
