/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jwt: is this a signed token we accept? HS256 only, in the one form RFC 7515 calls compact.
 */
#ifndef SP_SERVER_NET_JWT_H
#define SP_SERVER_NET_JWT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

#define SP_JWT_MAX 8192 /* bytes of a token */

struct sp_jwt_rules {
    struct sp_str secret;
    struct sp_str issuer, audience; /* p NULL: not asked for */
    int64_t skew_s;                 /* how far clocks may be apart */
};

/* The signature is checked before anything in the token is believed. */
bool sp_jwt_is_valid(const struct sp_jwt_rules *rules, struct sp_str token, int64_t now_s);

#endif
