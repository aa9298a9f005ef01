/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write_priv: what the files of the TOML writer share. All return false without room.
 */
#ifndef SP_BASE_TOML_WRITE_PRIV_H
#define SP_BASE_TOML_WRITE_PRIV_H

#include "base/toml_write.h"

bool sp_toml_write_string(struct sp_buf *out, struct sp_str s);
bool sp_toml_write_key(struct sp_buf *out, struct sp_str key);
/* Anything that is no array and no table. */
bool sp_toml_write_scalar(struct sp_buf *out, const struct sp_toml_value *v);

#endif
