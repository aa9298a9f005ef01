/* SPDX-License-Identifier: Apache-2.0 */
/*
 * snapshot_priv: what the files of the snapshots share: who waits for which (snapshot.c), the
 * scripts and what is made of their output (snapshot_text.c), and the files (snapshot_file.c).
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

/* ---- texts ---- */

/* What a login shell runs to tell what it has. The nonce marks the parts of what it prints. */
bool sp_snapshot_add_capture(struct sp_buf *out, enum sp_shell_type type, const char *nonce);
/* The file made of that. false: it is not complete, too large, or there is no memory. */
bool sp_snapshot_compose(struct sp_buf *out, enum sp_shell_type type, const char *nonce,
                         struct sp_str printed);
/* What a shell runs to see whether the file can be read. false: no memory. */
bool sp_snapshot_add_check(struct sp_buf *out, const char *path);

/* ---- files ---- */

#endif
