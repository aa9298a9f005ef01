/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config_priv: what the files of the configuration share while it is read.
 */
#ifndef SP_CONFIG_CONFIG_PRIV_H
#define SP_CONFIG_CONFIG_PRIV_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/toml.h"
#include "config/config.h"

/* What a configuration owns. */
struct sp_config_impl {
    struct sp_arena arena;
    const char *user_home, *tmpdir; /* $HOME and $TMPDIR if absolute, else NULL */
    size_t warning_count;
};

struct sp_config_loading {
    struct sp_config *config;
    struct sp_config_impl *impl;
    struct sp_err *e;
};

int sp_config_no_memory(struct sp_err *e);

/* A string without NUL, in the arena. */
int sp_config_copy(struct sp_config_loading *l, const struct sp_toml_value *v, char **ret);
/* "It is taken, but": with the place of v. */
SP_PRINTF(3, 4)
int sp_config_warn(struct sp_config_loading *l, const struct sp_toml_value *v, const char *fmt,
                   ...);

/* Absolute, or below the home as ~ and ~/...; to be found in the arena. what: for messages. */
int sp_config_expand(struct sp_config_loading *l, const struct sp_toml_value *v, struct sp_str path,
                     char **ret);

/* ---- files ---- */

/* A regular file that nobody else may write. *ret_exists false, and 0: there is none. */
int sp_config_read_file(const char *path, struct sp_buf *out, bool *ret_exists, struct sp_err *e);

/* ---- URLs of servers ---- */

/* ws://HOST[:PORT][/PATH], wss://..., unix:///PATH. NULL: it is one; else what is wrong. */
const char *sp_config_check_url(const char *url);

/* ---- sections ---- */

int sp_config_read_environments(struct sp_config_loading *l, const struct sp_toml_value *table);
int sp_config_read_profiles(struct sp_config_loading *l, const struct sp_toml_value *table);
int sp_config_read_shell_policy(struct sp_config_loading *l, const struct sp_toml_value *table);
int sp_config_read_sandbox(struct sp_config_loading *l, const struct sp_toml_value *table);

#endif
