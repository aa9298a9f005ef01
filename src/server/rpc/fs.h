/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fs: what the fs/ methods share: parameters, the sandbox they run in, error texts, and the open
 * files of a connection.
 */
#ifndef SP_SERVER_RPC_FS_H
#define SP_SERVER_RPC_FS_H

#include "base/uri.h"
#include "server/rpc/conn.h"

#define SP_FS_MAX_HANDLES   128
#define SP_FS_MAX_HANDLE_ID 32

/* A file URI; slashes at its end are dropped. */
void sp_fs_read_path(const struct sp_params *p, const char *key, struct sp_uri *ret);
/* The `sandbox` member. *ret_has: *ret needs sp_policy_done; *ret_restricts: the policy forbids
 * something on the disk. A policy that does not is as good as none. */
void sp_fs_read_policy(const struct sp_params *p, struct sp_policy *ret, bool *ret_has,
                       bool *ret_restricts);

/* Data of a file worker that is not what the operation returns: never told as a success. */
#define SP_FS_MALFORMED "the process for file operations gave a malformed answer"

/* Appends the path as a file URI in quotes. */
bool sp_fs_add_uri(struct sp_buf *b, struct sp_str path);

/* The text for an errno as Codex has it: "No such file or directory (os error 2)". */
void sp_fs_error_text(int err, char *ret, size_t size);

#endif
