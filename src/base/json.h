/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json: strict reading of one JSON text into a tape, and writing of strings.
 *
 * Reading copies nothing: tokens point into the text, sp_json_str unescapes strings in place.
 * The tape is one array, reused from message to message. Rules (those of Codex' parser): one
 * value and nothing after it but white space; no byte order mark; duplicate keys refused (compared
 * after unescaping), at any size without quadratic time; at most 262,144 values (keys not counted);
 * containers nest at most 127 deep; valid UTF-8; no lone surrogates; no control characters in
 * strings; numbers exact in the i64 and u64 range, else real.
 */
#ifndef SP_BASE_JSON_H
#define SP_BASE_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

#define SP_JSON_MAX_VALUES 262144
#define SP_JSON_MAX_DEPTH  127
#define SP_JSON_NONE       UINT32_MAX /* no such token */

enum sp_json_type {
    SP_JSON_NULL,
    SP_JSON_FALSE,
    SP_JSON_TRUE,
    SP_JSON_INT,  /* fits i64 */
    SP_JSON_UINT, /* above i64, fits u64 */
    SP_JSON_REAL, /* has a fraction or an exponent, or fits neither */
    SP_JSON_STRING,
    SP_JSON_ARRAY,
    SP_JSON_OBJECT,
};

struct sp_json_token {
    uint8_t type;
    bool is_escaped;   /* the string still has escapes in it */
    uint32_t off;      /* of the first byte; strings: after the quote */
    uint32_t len;      /* of the value's text; strings: without quotes */
    uint32_t children; /* array: values; object: members (each is a key token, then a value) */
    uint32_t next;     /* index of the token behind this value and everything in it */
};

struct sp_json {
    char *text; /* borrowed */
    struct sp_json_token *tokens;
    uint32_t count;
    uint32_t cap;
};

/* *j is {0} before the first use and may be reused. Text is at most 4 GiB - 1. Errors are
 * SP_E_MALFORMED with a text that ends in "at line L column C"; SP_E_SYSTEM if there is no memory
 * for the tape. */
int sp_json_parse(struct sp_json *j, char *text, size_t len, struct sp_err *e);
void sp_json_done(struct sp_json *j); /* frees the tape */
void sp_json_trim(struct sp_json *j); /* gives a tape above 64 KiB back */

/* The value of a member, or SP_JSON_NONE. The root is token 0. */
uint32_t sp_json_get(struct sp_json *j, uint32_t object, const char *key);

/*
 * First child of an array or object (SP_JSON_NONE if empty); step with sp_json_next(j, parent,
 * child). The child of an object is the key; its value is the token after it, child + 1.
 */
uint32_t sp_json_first(const struct sp_json *j, uint32_t parent);
uint32_t sp_json_next(const struct sp_json *j, uint32_t parent, uint32_t child);
/* NOLINTBEGIN(bugprone-macro-parentheses) */
#define sp_json_each(j, parent, child)                                     \
    for (uint32_t child = sp_json_first(j, parent); child != SP_JSON_NONE; \
         child = sp_json_next(j, parent, child))
/* NOLINTEND(bugprone-macro-parentheses) */

static inline enum sp_json_type sp_json_type(const struct sp_json *j, uint32_t token)
{
    return (enum sp_json_type)j->tokens[token].type;
}

/* The bytes of a string or key, unescaped in place at the first call. May hold NUL. */
struct sp_str sp_json_str(struct sp_json *j, uint32_t token);

/* The source text of a value, with quotes. Only valid before sp_json_str is called for a string in
 * it. */
struct sp_str sp_json_raw(const struct sp_json *j, uint32_t token);

/* true if the token is an INT (not UINT, not REAL); *ret is its value. */
bool sp_json_i64(const struct sp_json *j, uint32_t token, int64_t *ret);

/*
 * Members by type. Refusals are SP_E_INVALID: "missing field `NAME`", "invalid type: KIND, expected
 * TYPE", "invalid number" (a number that is not a plain non-negative integer in range for u64).
 * need_*: must be there and must not be null. opt_*: absent and null leave *ret as it is.
 * def_*: absent leaves *ret as it is, null is refused.
 */
int sp_json_need_str(struct sp_json *j, uint32_t object, const char *key, struct sp_str *ret,
                     struct sp_err *e);
int sp_json_opt_str(struct sp_json *j, uint32_t object, const char *key, struct sp_str *ret,
                    struct sp_err *e);
int sp_json_need_bool(struct sp_json *j, uint32_t object, const char *key, bool *ret,
                      struct sp_err *e);
int sp_json_def_bool(struct sp_json *j, uint32_t object, const char *key, bool *ret,
                     struct sp_err *e);
int sp_json_opt_u64(struct sp_json *j, uint32_t object, const char *key, uint64_t max,
                    uint64_t *ret, struct sp_err *e);
int sp_json_need_u64(struct sp_json *j, uint32_t object, const char *key, uint64_t max,
                     uint64_t *ret, struct sp_err *e);
/* need: object or array token into *ret. opt: *ret stays SP_JSON_NONE if absent or null. */
int sp_json_need_object(struct sp_json *j, uint32_t object, const char *key, uint32_t *ret,
                        struct sp_err *e);
int sp_json_need_array(struct sp_json *j, uint32_t object, const char *key, uint32_t *ret,
                       struct sp_err *e);
int sp_json_opt_object(struct sp_json *j, uint32_t object, const char *key, uint32_t *ret,
                       struct sp_err *e);
int sp_json_opt_array(struct sp_json *j, uint32_t object, const char *key, uint32_t *ret,
                      struct sp_err *e);

/* "invalid type: KIND, expected EXPECTED" for this token; returns -SP_E_INVALID. */
int sp_json_wrong_type(struct sp_json *j, uint32_t token, const char *expected, struct sp_err *e);

/* Appends s as a JSON string with quotes: compact, non-ASCII as it is, bytes that are not UTF-8 as
 * U+FFFD. false: no room. */
bool sp_json_add_str(struct sp_buf *out, struct sp_str s);

/* Members of an object that is being written: `"name":` with a string, or with a value in printf's
 * words. Each starts with a comma, unless it is the first: the text is empty or ends in `{`. false:
 * no room; a key without a value may be left. */
bool sp_json_add_key(struct sp_buf *out, const char *name);
bool sp_json_add_member(struct sp_buf *out, const char *name, struct sp_str value);
#define sp_json_add_value(out, name, ...) \
    (sp_json_add_key(out, name) && sp_buf_printf(out, __VA_ARGS__))

#endif
