/* SPDX-License-Identifier: Apache-2.0 */
/*
 * auth: checks the bearer token of a request: a token made when the server starts, a capability
 * token given by file or SHA-256, or an HS256 JWT.
 */
#ifndef SP_SERVER_NET_AUTH_H
#define SP_TOKEN_MIN 16 /* characters; a shorter token can be guessed */
#define SP_SERVER_NET_AUTH_H

#include <stdint.h>

#include "base/error.h"
#include "base/str.h"

struct sp_auth;

#define SP_AUTH_TOKEN_LEN 64   /* of a token made by us: 32 random bytes in hexadecimal */
#define SP_JWT_MAX        8192 /* bytes of a signed token */

/* Values of the --ws-... options, all optional (NULL). */
struct sp_auth_options {
    struct sp_str kept;     /* what sp_auth_kept gave: no file is read; p NULL: none */
    const char *mode;       /* "capability-token", "signed-bearer-token"; NULL: see token_file */
    const char *token_file; /* --ws-token-file, and our own --token-file (which implies the mode) */
    const char *token_flag; /* which of the two, for messages; NULL: the first */
    const char *token_sha256;       /* 64 hex digits */
    const char *shared_secret_file; /* at least 32 bytes after trimming */
    const char *issuer, *audience;
    const char *max_clock_skew_seconds; /* default 30 */
};

/* Without authentication in the options *ret is NULL. SP_E_INVALID: names the missing or
 * conflicting option. */
int sp_auth_new(const struct sp_auth_options *o, struct sp_auth **ret, struct sp_err *e);
/* Makes a random token; *ret keeps its digest only. The caller shows the token to the user and then
 * overwrites it. kept: of the token that another process has made (sp_auth_kept), which is taken
 * instead; p NULL: none. */
int sp_auth_make(struct sp_str kept, struct sp_auth **ret, char ret_token[SP_AUTH_TOKEN_LEN + 1],
                 struct sp_err *e);
/* What an sp_auth with these options is made of again in another process: a secret. A view. */
struct sp_str sp_auth_kept(const struct sp_auth *a);
void sp_auth_free(struct sp_auth *a);

/*
 * `header` is the value of Authorization (p NULL: absent), `query` the query of the request's
 * target without its `?`. Authorization decides where there is one, else the parameter `token` of
 * the query, percent-decoded. NULL: the token is valid; else the text of the 401 body. Comparison
 * takes constant time. now_s: seconds since 1970.
 */
const char *sp_auth_check(const struct sp_auth *a, struct sp_str header, struct sp_str query,
                          int64_t now_s);

/* A JWT in compact form (RFC 7515), HS256 only. */
struct sp_jwt_rules {
    struct sp_str secret;
    struct sp_str issuer, audience; /* p NULL: not required */
    int64_t skew_s;                 /* allowed clock difference */
};

/* The signature is checked before any claim. */
bool sp_jwt_is_valid(const struct sp_jwt_rules *rules, struct sp_str token, int64_t now_s);

#endif
