/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy_json: reads and writes sandbox policies as JSON, on the wire and in files.
 *
 * There are two forms. On the wire a literal path is a file: URI, and a profile has a `type`. In
 * files a path is a native absolute path, older forms are accepted as well, and the network may be
 * managed (network_json.h). On the wire a managed network is read as an error and written as none.
 *
 * The input is untrusted: at most 4096 entries and 4096 roots, paths below 4096 bytes and without
 * NUL; literal paths are normalised lexically. An error is SP_E_INVALID with a text for the client
 * (SP_E_SYSTEM: no memory) and leaves *ret unchanged. The result does not point into the tokens.
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

/* ---- keywords ---- */

/* A list ends with a NULL name. */
struct sp_word {
    const char *name;
    int value;
    bool is_old; /* accepted, but neither written nor listed in error messages */
};

extern const struct sp_word sp_words_access[];  /* enum sp_access */
extern const struct sp_word sp_words_special[]; /* enum sp_place */

/* The name to write. */
const char *sp_word_name(const struct sp_word *list, int value);

/* Fails with "unknown KIND `x`, expected `a` or `b`". */
int sp_word_refuse(const char *kind, struct sp_str got, const struct sp_word *list,
                   struct sp_err *e);

/* The value of a string that is in the list. */
int sp_word_read(struct sp_json *j, uint32_t token, const struct sp_word *list, int *ret,
                 struct sp_err *e);
/* Refuses a member that is not in the list: it might be a restriction that is not enforced. */
int sp_policy_check_members(struct sp_json *j, uint32_t object, const struct sp_word *known,
                            struct sp_err *e);

/* s truncated for an error message, at a character. */
struct sp_str sp_policy_shown(struct sp_str s);

/* Refuses a text that is too long or has a NUL. what: "permission path", "workspace root" ... */
int sp_policy_check_text(struct sp_str s, const char *what, struct sp_err *e);

/* ---- reading ---- */

/*
 * The `sandbox` member of a request. cwd: the command's working directory, used if the object has
 * none; NULL if there is no command: then permissions that depend on a cwd are refused. tmpdir: the
 * TMPDIR of the command, or of the server for a file operation; ignored if NULL, relative or too
 * long.
 */
int sp_policy_read(struct sp_json *j, uint32_t token, const char *cwd, const char *tmpdir,
                   struct sp_policy *ret, struct sp_err *e);

/* A profile from a file: with a `type`, without one, or a legacy mode. */
int sp_profile_read(struct sp_json *j, uint32_t token, struct sp_profile *ret, struct sp_err *e);

/* A legacy mode, named by `type` or, in the oldest form, by `mode`. */
int sp_legacy_read(struct sp_json *j, uint32_t token, struct sp_legacy *ret, struct sp_err *e);

/* `additional_permissions` of a command. */
int sp_grant_read(struct sp_json *j, uint32_t token, struct sp_grant *ret, struct sp_err *e);

/* ---- writing: appends, or fails and leaves *out as it was ---- */

/* A native path that is not UTF-8 cannot be written: SP_E_INVALID. */
int sp_profile_write(struct sp_buf *out, const struct sp_profile *p, enum sp_path_form form,
                     struct sp_err *e);

/* As lists of paths to read and to write where these suffice; else as entries. */
int sp_grant_write(struct sp_buf *out, const struct sp_grant *g, struct sp_err *e);

#endif
