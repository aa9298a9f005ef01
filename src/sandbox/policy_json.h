/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy_json: sandbox policies as JSON: on the executor's wire, in files, and back again.
 *
 * Two spellings of one thing. On the wire a literal path is a file: URI and a profile says its
 * `type`. In files a path is a native absolute one, and older shapes are understood as well.
 *
 * What is read comes from anyone: at most 4096 entries and 4096 roots, paths below 4096 bytes and
 * without NUL; literal paths are kept in lexically normal form. Every refusal is SP_E_INVALID with
 * a text for the client (SP_E_SYSTEM: no memory), and leaves *ret as it was. Tokens stay the
 * caller's; nothing read points into them.
 */
#ifndef SP_SANDBOX_POLICY_JSON_H
#define SP_SANDBOX_POLICY_JSON_H

#include "base/json.h"
#include "sandbox/profile.h"

#define SP_POLICY_MAX_ENTRIES 4096
#define SP_POLICY_MAX_ROOTS   4096
#define SP_POLICY_MAX_PATH    4095 /* bytes, without the NUL at the end */

/* How literal paths are spelled. */
enum sp_path_form { SP_PATH_NATIVE, SP_PATH_URI };

/* ---- reading ---- */

/*
 * The `sandbox` member of a request (exec-server-protocol.md 6.1). cwd: the command's, if the
 * object names none; NULL where there is no command: then permissions that depend on a cwd are
 * refused. tmpdir: the child's TMPDIR; NULL, relative or too long: none.
 */
int sp_policy_read(struct sp_json *j, uint32_t token, const char *cwd, const char *tmpdir,
                   struct sp_policy *ret, struct sp_err *e);

/* A profile from a file: tagged, untagged, or one of the modes of old (sandbox.md 2.1, 2.2). */
int sp_profile_read(struct sp_json *j, uint32_t token, struct sp_profile *ret, struct sp_err *e);

/* A mode of old, by `type` or, older, by `mode`. */
int sp_legacy_read(struct sp_json *j, uint32_t token, struct sp_legacy *ret, struct sp_err *e);

/* `additional_permissions` (sandbox.md 2.8). */
int sp_grant_read(struct sp_json *j, uint32_t token, struct sp_grant *ret, struct sp_err *e);

/* ---- writing: appends, or fails and leaves *out as it was ---- */

/* Refuses what has no spelling: a native path that is not UTF-8 (SP_E_INVALID). */
int sp_profile_write(struct sp_buf *out, const struct sp_profile *p, enum sp_path_form form,
                     struct sp_err *e);
int sp_legacy_write(struct sp_buf *out, const struct sp_legacy *l, struct sp_err *e);

/* As lists of paths, to read and to write, where they say it all; else as entries. */
int sp_grant_write(struct sp_buf *out, const struct sp_grant *g, struct sp_err *e);

#endif
