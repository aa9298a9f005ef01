/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime_dir: the directory for the sockets, tokens and journals of a user's servers.
 */
#ifndef SP_BASE_RUNTIME_DIR_H
#define SP_BASE_RUNTIME_DIR_H

#include <stdbool.h>
#include <stddef.h>

/* The directory for this process; it may not exist yet. */
void sp_runtime_dir(char *ret, size_t size);

/* Each directory that sp_runtime_dir may choose for this user under any env, numbered from 0; ""
 * where the user has none of that kind. false: there is no such number. */
bool sp_runtime_candidate(unsigned number, char *ret, size_t size);

#endif
