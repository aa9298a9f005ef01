/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy: from a word that names a sandbox to the policy for a working directory.
 */
#ifndef SP_CONFIG_POLICY_H
#define SP_CONFIG_POLICY_H

#include "config/config.h"

/* :read-only, :workspace, :danger-full-access. *ret_is_known false, and 0: it is none of them. */
int sp_config_builtin(const char *name, struct sp_profile *ret, bool *ret_is_known,
                      struct sp_err *e);

/*
 * name: a profile of the configuration, one that is built in, or a mode of old (sandbox.md 2.1,
 * 2.9); NULL: default_permissions, or :read-only if that is not set. cwd: absolute; the workspace.
 * *ret_is_open: it restricts nothing, so no sandbox is needed. Who gives no configuration (NULL)
 * has the built-in names, and HOME and TMPDIR of this process.
 */
int sp_config_policy(const struct sp_config *c, const char *name, const char *cwd,
                     struct sp_policy *ret, bool *ret_is_open, struct sp_err *e);

/* Whether the directory, which is there, is the user's home or above it, by whatever path. */
bool sp_config_holds_home(const struct sp_config *c, const char *dir);

/*
 * Where a workspace root of the policy holds the user's home: what is there under a name with a dot
 * (.ssh, .bashrc, .config ...) becomes read-only, but for what an entry of the profile names
 * itself. Symlinks are left out: they cannot be held.
 */
int sp_config_keep_dot_files(const struct sp_config *c, struct sp_policy *p, struct sp_err *e);

#endif
