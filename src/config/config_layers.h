/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config_layers: the texts that make a configuration: the file, over it the environment, over that
 * --set.
 */
#ifndef SP_CONFIG_CONFIG_LAYERS_H
#define SP_CONFIG_CONFIG_LAYERS_H

#include "config/config_priv.h"

/* All texts that were read; the tree of the first is that of all of them. */
struct sp_config_layers {
    struct sp_toml *docs;
    size_t count;
};
void sp_config_layers_done(struct sp_config_layers *y);

/* Ours and the user's: config.home, impl.user_home, impl.tmpdir. */
int sp_config_find_home(struct sp_config_loading *l, char *const *environment);

/* After the home is known; config.path is the file that was read. */
int sp_config_read_layers(struct sp_config_loading *l, const struct sp_config_ask *ask,
                          struct sp_config_layers *y);

#endif
