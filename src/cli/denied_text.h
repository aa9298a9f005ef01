/* SPDX-License-Identifier: Apache-2.0 */
/*
 * denied_text: what the sandbox denied a command that failed, and the evidence for it, as text.
 */
#ifndef SP_CLI_DENIED_TEXT_H
#define SP_CLI_DENIED_TEXT_H

#include "base/buf.h"
#include "cli/carry.h"

/* Writes it to stderr; nothing if nothing was denied. is_long: one line for each piece of evidence.
 */
void sp_denied_print(const struct sp_carry_result *r, bool is_long);

#endif
