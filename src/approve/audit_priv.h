/* SPDX-License-Identifier: Apache-2.0 */
/*
 * audit_priv: what the writer and the reader of the log share.
 */
#ifndef SP_APPROVE_AUDIT_PRIV_H
#define SP_APPROVE_AUDIT_PRIV_H

#include "base/str.h"

#define SP_AUDIT_HASH     64          /* characters of a hash in hex */
#define SP_AUDIT_MAX_LINE (16U << 20) /* bytes */

/* Of a line without its LF. */
void sp_audit_hash(struct sp_str line, char ret[SP_AUDIT_HASH + 1]);

#endif
