/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write: a table as TOML text, in the form that the reference's library gives it: in every table
 * first the values, then the tables, each under a header of its own; arrays of tables as such;
 * strings in the quotes that need no escapes, if there are such.
 */
#ifndef SP_BASE_TOML_WRITE_H
#define SP_BASE_TOML_WRITE_H

#include "base/buf.h"
#include "base/toml.h"

/* A root as it was read (and perhaps selected from), not one that others were merged into. false:
 * no room in out; set out->max, for long names above many tables make a long text. */
bool sp_toml_write(struct sp_buf *out, const struct sp_toml_value *root);

#endif
