/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy_words: the keywords of policies, for reading and writing, and parts that all readers of
 * policies share.
 */
#ifndef SP_SANDBOX_POLICY_WORDS_H
#define SP_SANDBOX_POLICY_WORDS_H

#include "base/json.h"
#include "sandbox/policy_json.h"

/* A list ends with a NULL name. */
struct sp_word {
    const char *name;
    int value;
    bool is_old; /* accepted, but neither written nor listed in error messages */
};

extern const struct sp_word sp_words_access[];      /* enum sp_access */
extern const struct sp_word sp_words_network[];     /* bool: enabled */
extern const struct sp_word sp_words_missing[];     /* bool: skipped */
extern const struct sp_word sp_words_kind[];        /* enum sp_profile_kind */
extern const struct sp_word sp_words_file_system[]; /* bool: unrestricted */
extern const struct sp_word sp_words_special[];     /* enum sp_place */

/* Appends the four legacy modes after the first `count` words of `list`, which has room for five.
 */
void sp_words_add_modes(struct sp_word *list, size_t count);

/* The name to write. */
const char *sp_word_name(const struct sp_word *list, int value);

/* Fails with "unknown KIND `x`, expected `a` or `b`". */
int sp_word_refuse(const char *kind, struct sp_str got, const struct sp_word *list,
                   struct sp_err *e);

/* Reads the token as a word of the list. */
int sp_word_read(struct sp_json *j, uint32_t token, const struct sp_word *list, int *ret,
                 struct sp_err *e);
/* Reads a required member; null is refused. */
int sp_word_need(struct sp_json *j, uint32_t object, const char *key, const struct sp_word *list,
                 int *ret, struct sp_err *e);
/* Reads an optional member; absent and null leave *ret unchanged. */
int sp_word_opt(struct sp_json *j, uint32_t object, const char *key, const struct sp_word *list,
                int *ret, struct sp_err *e);

/* Absent leaves *ret unchanged; anything but an array, also null, is refused. */
int sp_policy_def_array(struct sp_json *j, uint32_t object, const char *key, uint32_t *ret,
                        struct sp_err *e);

/* s truncated for an error message, at a character. */
struct sp_str sp_policy_shown(struct sp_str s);

/* Refuses a text that is too long or has a NUL. what: "permission path", "workspace root" ... */
int sp_policy_check_text(struct sp_str s, const char *what, struct sp_err *e);

/* Reads an absolute path and normalises it; the caller frees *ret. */
int sp_policy_read_path(struct sp_json *j, uint32_t token, enum sp_path_form form, const char *what,
                        char **ret, struct sp_err *e);

#define auto_profile __attribute__((cleanup(sp_profile_done)))
#define auto_legacy  __attribute__((cleanup(sp_legacy_done)))
#define auto_grant   __attribute__((cleanup(sp_grant_done)))
#define auto_policy  __attribute__((cleanup(sp_policy_done)))

#endif
