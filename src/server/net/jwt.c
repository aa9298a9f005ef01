/* SPDX-License-Identifier: Apache-2.0 */
#include "server/net/jwt.h"

#include "base/json.h"
#include "base/sha.h"

static int digit(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '-' ? 62 : c == '_' ? 63 : -1;
}

/* RFC 4648 section 5 without padding; one spelling for each value. out has text.n * 3 / 4 bytes. */
static bool decode(struct sp_str text, char *out, size_t *ret_len)
{
    uint32_t bits = 0;
    unsigned count = 0;
    size_t n = 0;

    for (size_t i = 0; i < text.n; i++) {
        const int d = digit(text.p[i]);

        if (d < 0)
            return false;
        bits = bits << 6 | (uint32_t)d;
        count += 6;
        if (count >= 8) {
            count -= 8;
            out[n++] = (char)(bits >> count);
            bits &= (1U << count) - 1;
        }
    }
    if (count == 6 || bits != 0)
        return false;
    *ret_len = n;
    return true;
}

static bool is_text(struct sp_json *j, uint32_t token, struct sp_str want)
{
    return token != SP_JSON_NONE && sp_json_type(j, token) == SP_JSON_STRING &&
           sp_str_eq(sp_json_str(j, token), want);
}

static bool is_header_ours(struct sp_json *j)
{
    /* crit names extensions that must be understood; we understand none. */
    return sp_json_type(j, 0) == SP_JSON_OBJECT &&
           is_text(j, sp_json_get(j, 0, "alg"), SP_STR("HS256")) &&
           sp_json_get(j, 0, "crit") == SP_JSON_NONE;
}

static bool is_audience(struct sp_json *j, struct sp_str want)
{
    const uint32_t aud = sp_json_get(j, 0, "aud");

    if (aud == SP_JSON_NONE || sp_json_type(j, aud) != SP_JSON_ARRAY)
        return is_text(j, aud, want);
    for (uint32_t c = sp_json_first(j, aud); c != SP_JSON_NONE; c = sp_json_next(j, aud, c))
        if (is_text(j, c, want))
            return true;
    return false;
}

/* Times are compared by subtraction from ours, which cannot overflow where the sum could. */
static bool are_claims_ours(const struct sp_jwt_rules *r, struct sp_json *j, int64_t now_s)
{
    int64_t exp;
    int64_t nbf;

    if (sp_json_type(j, 0) != SP_JSON_OBJECT)
        return false;
    const uint32_t exp_at = sp_json_get(j, 0, "exp");
    const uint32_t nbf_at = sp_json_get(j, 0, "nbf");
    if (exp_at == SP_JSON_NONE || !sp_json_i64(j, exp_at, &exp) || exp <= now_s - r->skew_s)
        return false;
    if (nbf_at != SP_JSON_NONE && (!sp_json_i64(j, nbf_at, &nbf) || nbf > now_s + r->skew_s))
        return false;
    return (r->issuer.p == NULL || is_text(j, sp_json_get(j, 0, "iss"), r->issuer)) &&
           (r->audience.p == NULL || is_audience(j, r->audience));
}

/* Decodes one part and parses it; *j borrows from `room`. */
static bool read_json(struct sp_str part, char *room, struct sp_json *j)
{
    size_t n;

    return decode(part, room, &n) && sp_json_parse(j, room, n, NULL) == 0;
}

bool sp_jwt_is_valid(const struct sp_jwt_rules *rules, struct sp_str token, int64_t now_s)
{
    char room[SP_JWT_MAX];
    uint8_t mac[32];
    size_t n;

    if (token.n > SP_JWT_MAX || token.n == 0)
        return false;
    const char *end = token.p + token.n;
    const char *first = memchr(token.p, '.', token.n);
    const char *second = first == NULL ? NULL : memchr(first + 1, '.', (size_t)(end - first - 1));
    if (second == NULL)
        return false;
    const struct sp_str header = {token.p, (size_t)(first - token.p)};
    const struct sp_str claims = {first + 1, (size_t)(second - first - 1)};
    const struct sp_str signature = {second + 1, (size_t)(end - second - 1)};

    sp_hmac_sha256(rules->secret, (struct sp_str){token.p, (size_t)(second - token.p)}, mac);
    if (!decode(signature, room, &n) || n != sizeof mac ||
        !sp_same_secret((struct sp_str){room, n}, (struct sp_str){(const char *)mac, sizeof mac}))
        return false;

    struct sp_json j = {0};
    const bool is_valid = read_json(header, room, &j) && is_header_ours(&j) &&
                          read_json(claims, room, &j) && are_claims_ours(rules, &j, now_s);
    sp_json_done(&j);
    return is_valid;
}
