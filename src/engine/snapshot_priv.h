/* SPDX-License-Identifier: Apache-2.0 */
/* snapshot_priv: shared by snapshot.c (captures and files) and snapshot_text.c (scripts and texts).
 */
#ifndef SP_ENGINE_SNAPSHOT_PRIV_H
#define SP_ENGINE_SNAPSHOT_PRIV_H

#include "base/buf.h"
#include "engine/snapshot.h"

#define SP_SNAPSHOT_MAX         16
#define SP_SNAPSHOT_BYTES       ((size_t)512 * 1024)
#define SP_SNAPSHOT_VALUE_BYTES ((size_t)60 * 1024)
#define SP_SNAPSHOT_LIMIT_MS    10000
#define SP_SNAPSHOT_AGE_S       259200 /* three days */
#define SP_SNAPSHOT_NONCE       16     /* hex digits */

/* The script by which a login shell prints its state. The nonce marks the parts. */
bool sp_snapshot_add_capture(struct sp_buf *out, enum sp_shell_type type, const char *nonce);
/* The snapshot made of the printed parts. false: incomplete, too large, or out of memory. */
bool sp_snapshot_compose(struct sp_buf *out, enum sp_shell_type type, const char *nonce,
                         struct sp_str printed);
/* The script that checks that a shell can source the file. false: out of memory. */
bool sp_snapshot_add_check(struct sp_buf *out, const char *path);

#endif
