/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime_dir: the directory of a user's servers, for sockets, tokens and journals.
 */
#ifndef SP_BASE_RUNTIME_DIR_H
#define SP_BASE_RUNTIME_DIR_H

#include <stddef.h>

/* The directory that this process uses. It need not exist. */
void sp_runtime_dir(char *ret, size_t size);
/* Every directory that sp_runtime_dir may choose for this user, in any environment; NULL at the end.
 * The texts are static: one caller at a time. */
const char *const *sp_runtime_candidates(void);

#endif
