/* SPDX-License-Identifier: Apache-2.0 */
/*
 * select: parts of a TOML document by their key paths.
 */
#ifndef SP_BASE_TOML_SELECT_H
#define SP_BASE_TOML_SELECT_H

#include "base/toml.h"

/* A path of keys from the root down: at least one. */
struct sp_toml_path {
    const struct sp_str *keys;
    uint32_t count;
};

/* Brings paths into the order that sp_toml_select wants. Their keys stay where they are. */
void sp_toml_sort_paths(struct sp_toml_path *paths, uint32_t count);

/*
 * Takes everything out of the table that no path leads to. A path that ends at a value has all of
 * it; one that wants to go on below a value that is no table has that value, for it still hides
 * what others say about this key. A table on the way stays, if only as an empty one.
 * false: nothing is left.
 */
bool sp_toml_select(struct sp_toml_value *table, const struct sp_toml_path *paths, uint32_t count);

#endif
