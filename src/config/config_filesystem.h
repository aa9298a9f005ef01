/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config_filesystem: [permissions.NAME.filesystem], places and what may be done there.
 */
#ifndef SP_CONFIG_CONFIG_FILESYSTEM_H
#define SP_CONFIG_CONFIG_FILESYSTEM_H

#include "config/config_priv.h"

/* Adds the entries of the table, and the depth of patterns if it has one. */
int sp_config_read_filesystem(struct sp_config_loading *l, const struct sp_toml_value *table,
                              struct sp_profile *p);

#endif
