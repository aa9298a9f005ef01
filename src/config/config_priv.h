/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config_priv: what the files of src/config share while a configuration is read.
 */
#ifndef SP_CONFIG_CONFIG_PRIV_H
#define SP_CONFIG_CONFIG_PRIV_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/toml.h"
#include "config/config.h"

/* Memory of a configuration; freed by sp_config_done. */
struct sp_config_impl {
    struct sp_arena arena;
    char *user_home, *tmpdir; /* $HOME and $TMPDIR if absolute, else NULL */
    size_t warning_count;
};

struct sp_config_loading {
    struct sp_config *config;
    struct sp_config_impl *impl;
    struct sp_err *e;
};

int sp_config_no_memory(struct sp_err *e);

/* Copies into the arena. */
int sp_config_keep(struct sp_config_loading *l, struct sp_str text, char **ret);

/* Expands ~ and ~/...; any other path must be absolute. The result is in the arena; v is for the
 * position in messages. */
int sp_config_expand(struct sp_config_loading *l, const struct sp_toml_value *v, struct sp_str path,
                     char **ret);

/* NAME=VALUE of an `env` or `set` table: checks name and value; `key` is for the message. */
int sp_config_check_variable(struct sp_config_loading *l, const struct sp_toml_value *v,
                             const char *key);

/* A regular file of the user or root. */
struct stat;
int sp_config_check_owner(int fd, const char *path, struct stat *ret, struct sp_err *e);

/* ---- sections ---- */

int sp_config_read_environments(struct sp_config_loading *l, const struct sp_toml_value *table);
int sp_config_read_profiles(struct sp_config_loading *l, const struct sp_toml_value *table);

/* ws://HOST[:PORT][/PATH], wss://..., unix:///PATH. NULL: it is one; else what is wrong. */
const char *sp_config_check_url(const char *url);

#endif
