/* SPDX-License-Identifier: Apache-2.0 */
/*
 * denied: what a sandbox denied a command that failed, and how we know, in words.
 */
#ifndef SP_CLI_DENIED_TEXT_H
#define SP_CLI_DENIED_TEXT_H

#include "base/buf.h"
#include "cli/carry.h"

/* Lines for people; nothing if nothing was denied. is_long: each piece of evidence has a line of
 * its own. false: no memory. */
bool sp_denied_write(const struct sp_carry_result *r, bool is_long, struct sp_buf *out);

#endif
