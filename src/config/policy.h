/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy: from the name of a sandbox (--sandbox) to the policy for a working directory.
 */
#ifndef SP_CONFIG_POLICY_H
#define SP_CONFIG_POLICY_H

#include "config/config.h"

/* Whether the name is that of a built-in profile, of a mode or of a profile of the configuration.
 */
bool sp_config_has_sandbox(const struct sp_config *c, const char *name);

/*
 * name: a profile of the configuration, a built-in one, or a legacy mode (workspace-write); NULL:
 * default_permissions, or :read-only if that is not set. cwd: absolute; the workspace.
 * *ret_is_open: the policy restricts nothing, so no sandbox is needed. Without a configuration (c
 * NULL) only the built-in names exist, and HOME and TMPDIR are those of this process.
 */
int sp_config_policy(const struct sp_config *c, const char *name, const char *cwd,
                     struct sp_policy *ret, bool *ret_is_open, struct sp_err *e);

/* Whether the directory is the user's home or contains it; compares inodes, not paths. */
bool sp_config_holds_home(const struct sp_config *c, const char *dir);

/*
 * If a workspace root of the policy contains the user's home, makes its dot files (.ssh, .bashrc,
 * .config ...) read-only, except those that the profile has an entry for. Symlinks are left out:
 * mounts cannot protect them.
 */
int sp_config_keep_dot_files(const struct sp_config *c, struct sp_policy *p, struct sp_err *e);

#endif
