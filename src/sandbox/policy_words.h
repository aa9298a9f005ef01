/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy_words: the words of policies, both ways, and the parts that all their readers share.
 */
#ifndef SP_SANDBOX_POLICY_WORDS_H
#define SP_SANDBOX_POLICY_WORDS_H

#include "base/json.h"
#include "sandbox/policy_json.h"

/* A list of them ends with a name of NULL. */
struct sp_word {
    const char *name;
    int value;
    bool is_old; /* still read; not written, and not offered to who got a word wrong */
};

extern const struct sp_word sp_words_access[];      /* enum sp_access */
extern const struct sp_word sp_words_network[];     /* bool: enabled */
extern const struct sp_word sp_words_missing[];     /* bool: skipped */
extern const struct sp_word sp_words_kind[];        /* enum sp_profile_kind */
extern const struct sp_word sp_words_file_system[]; /* bool: unrestricted */
extern const struct sp_word sp_words_special[];     /* enum sp_place */

/* The four modes of old, after the first `count` words of `list`, which has room for five more. */
void sp_words_add_modes(struct sp_word *list, size_t count);

/* The name to write. */
const char *sp_word_name(const struct sp_word *list, int value);

/* "unknown KIND `x`, expected `a` or `b`": got is a variant or a field that is not in the list. */
int sp_word_refuse(const char *kind, struct sp_str got, const struct sp_word *list,
                   struct sp_err *e);

/* The word that this token is. */
int sp_word_read(struct sp_json *j, uint32_t token, const struct sp_word *list, int *ret,
                 struct sp_err *e);
/* That member must be there and must not be null. */
int sp_word_need(struct sp_json *j, uint32_t object, const char *key, const struct sp_word *list,
                 int *ret, struct sp_err *e);
/* Absent and null leave *ret as it is. */
int sp_word_opt(struct sp_json *j, uint32_t object, const char *key, const struct sp_word *list,
                int *ret, struct sp_err *e);

/* Absent leaves *ret as it is; null and all else that is no array is refused. */
int sp_policy_def_array(struct sp_json *j, uint32_t object, const char *key, uint32_t *ret,
                        struct sp_err *e);

/* s as it is shown in a message: cut between two characters. */
struct sp_str sp_policy_shown(struct sp_str s);

/* Refuses what is too long or holds a NUL. what: "permission path", "workspace root" ... */
int sp_policy_check_text(struct sp_str s, const char *what, struct sp_err *e);

/* The absolute path that this token spells, normalised; to be freed. */
int sp_policy_read_path(struct sp_json *j, uint32_t token, enum sp_path_form form, const char *what,
                        char **ret, struct sp_err *e);

/* A profile in its canonical form: `type` says which. */
int sp_profile_read_tagged(struct sp_json *j, uint32_t object, enum sp_path_form form,
                           struct sp_profile *ret, struct sp_err *e);

#define auto_profile __attribute__((cleanup(sp_profile_done)))
#define auto_legacy  __attribute__((cleanup(sp_legacy_done)))
#define auto_grant   __attribute__((cleanup(sp_grant_done)))
#define auto_policy  __attribute__((cleanup(sp_policy_done)))

#endif
