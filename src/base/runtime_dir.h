/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime_dir: the directory for the sockets, tokens and journals of a user's servers.
 */
#ifndef SP_BASE_RUNTIME_DIR_H
#define SP_BASE_RUNTIME_DIR_H

#include <stddef.h>

/* The directory for this process; it may not exist yet. */
void sp_runtime_dir(char *ret, size_t size);
/* All directories that sp_runtime_dir may choose for this user under any env; NULL at the end. The
 * strings are static buffers: not thread-safe. */
const char *const *sp_runtime_candidates(void);

#endif
