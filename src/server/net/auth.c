/* SPDX-License-Identifier: Apache-2.0 */
#include "server/net/auth.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/base64.h"
#include "base/buf.h"
#include "base/io.h"
#include "base/json.h"
#include "base/sha.h"

#define MAX_FILE       65536
#define MIN_SECRET     32
#define DEFAULT_SKEW_S 30
#define MAX_SKEW_S     (INT64_C(1) << 40) /* sums with a time do not overflow */

#define MAX_TOKEN 4096 /* in a query, decoded */

#define INVALID_HEADER "invalid authorization header"
#define INVALID_TOKEN  "invalid websocket bearer token"
#define MISSING_TOKEN  "missing websocket bearer token"
#define USE_PRINTED    "; use the URL the server printed"

struct sp_auth {
    bool is_signed;
    bool is_made;             /* the token is part of the URL that the server printed */
    uint8_t token_sha256[32]; /* capability token: only its digest is kept */
    struct sp_jwt_rules jwt;  /* signed: views of the strings below */
    char *secret, *issuer, *audience;
};

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* ---- JWT: HS256 in compact form ---- */

/* RFC 4648 section 5 without padding; unused bits must be 0. out has room for text.n + 3 bytes. */
static bool decode_base64url(struct sp_str text, char *out, size_t *ret_len)
{
    size_t n = 0;

    for (; n < text.n; n++) {
        const char c = text.p[n];

        if (c == '+' || c == '/' || c == '=')
            return false;
        out[n] = (char)(c == '-' ? '+' : c == '_' ? '/' : c);
    }
    while (n % 4 != 0)
        out[n++] = '=';
    return sp_base64_decode((struct sp_str){out, n}, out, ret_len, NULL) == 0;
}

static bool is_text(struct sp_json *j, uint32_t token, struct sp_str want)
{
    return token != SP_JSON_NONE && sp_json_type(j, token) == SP_JSON_STRING &&
           sp_str_eq(sp_json_str(j, token), want);
}

/* exp and nbf may be any number: arithmetic is done on now_s, which cannot overflow. */
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
    if (r->issuer.p != NULL && !is_text(j, sp_json_get(j, 0, "iss"), r->issuer))
        return false;
    const uint32_t aud = sp_json_get(j, 0, "aud"); /* one, or a list */
    if (r->audience.p == NULL || aud == SP_JSON_NONE || sp_json_type(j, aud) != SP_JSON_ARRAY)
        return r->audience.p == NULL || is_text(j, aud, r->audience);
    sp_json_each(j, aud, i)
        if (is_text(j, i, r->audience))
            return true;
    return false;
}

bool sp_jwt_is_valid(const struct sp_jwt_rules *rules, struct sp_str token, int64_t now_s)
{
    char room[SP_JWT_MAX + 3];
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
    if (!decode_base64url(signature, room, &n) || n != sizeof mac ||
        !sp_same_secret((struct sp_str){room, n}, (struct sp_str){(const char *)mac, sizeof mac}))
        return false;

    struct sp_json j = {0};
    /* crit lists extensions that a reader must support; none is supported. */
    const bool is_valid =
        decode_base64url(header, room, &n) && sp_json_parse(&j, room, n, NULL) == 0 &&
        sp_json_type(&j, 0) == SP_JSON_OBJECT &&
        is_text(&j, sp_json_get(&j, 0, "alg"), SP_STR("HS256")) &&
        sp_json_get(&j, 0, "crit") == SP_JSON_NONE && decode_base64url(claims, room, &n) &&
        sp_json_parse(&j, room, n, NULL) == 0 && are_claims_ours(rules, &j, now_s);
    sp_json_done(&j);
    return is_valid;
}

/* ---- configuration ---- */

/* The bytes of a small file without the white space at their end. The caller frees them. */
static int read_secret(const char *flag, const char *path, char **ret, size_t *ret_len,
                       struct sp_err *e)
{
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC); /* may be a pipe: not sp_read_file */
    auto_buf struct sp_buf text = {0};

    if (fd < 0)
        return sp_fail(e, SP_E_INVALID, errno, "read `%s` %s", flag, path);
    const int err = sp_read_all(fd, MAX_FILE, &text);
    if (err == EFBIG)
        return sp_fail(e, SP_E_INVALID, 0, "`%s` %s is larger than %d bytes", flag, path, MAX_FILE);
    if (err != 0)
        return sp_fail(e, err == ENOMEM ? SP_E_SYSTEM : SP_E_INVALID, err, "read `%s` %s", flag,
                       path);
    size_t n = text.len;
    while (n != 0 && is_space(text.data[n - 1]))
        n--;
    if (n == 0)
        return sp_fail(e, SP_E_INVALID, 0, "`%s` %s is empty", flag, path);
    *ret = TAKE_PTR(text.data);
    *ret_len = n;
    return 0;
}

static int set_digest(struct sp_auth *a, struct sp_str kept, struct sp_err *e)
{
    if (kept.n != sizeof a->token_sha256)
        return sp_fail(e, SP_E_INVALID, 0, "the token that was kept is none");
    memcpy(a->token_sha256, kept.p, kept.n);
    return 0;
}

/* Instead of reading the file. */
static int copy_secret(struct sp_str kept, char **ret, size_t *ret_len, struct sp_err *e)
{
    *ret = malloc(kept.n + 1);
    if (*ret == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "take the secret that was kept");
    memcpy(*ret, kept.p, kept.n);
    *ret_len = kept.n;
    return 0;
}

static int set_capability(struct sp_auth *a, const struct sp_auth_options *o, struct sp_err *e)
{
    char *token = NULL;
    size_t n = 0;

    if (o->token_file != NULL && o->token_sha256 != NULL)
        return sp_fail(e, SP_E_INVALID, 0,
                       "`--ws-token-file` and `--ws-token-sha256` are mutually exclusive");
    if (o->kept.p != NULL)
        return set_digest(a, o->kept, e);
    if (o->token_sha256 != NULL) {
        bool is_hex = strlen(o->token_sha256) == 64;

        for (size_t i = 0; is_hex && i < 32; i++) {
            const int high = sp_hex_digit(o->token_sha256[2 * i]);
            const int low = sp_hex_digit(o->token_sha256[2 * i + 1]);

            is_hex = high >= 0 && low >= 0;
            a->token_sha256[i] = (uint8_t)(is_hex ? high << 4 | low : 0);
        }
        return is_hex ? 0
                      : sp_fail(e, SP_E_INVALID, 0,
                                "`--ws-token-sha256` must be 64 hexadecimal digits");
    }
    if (o->token_file == NULL)
        return sp_fail(e, SP_E_INVALID, 0,
                       "`--ws-token-file` or `--ws-token-sha256` is required when "
                       "`--ws-auth capability-token` is set");
    const int r = read_secret(o->token_flag != NULL ? o->token_flag : "--ws-token-file",
                              o->token_file, &token, &n, e);
    if (token == NULL)
        return r;
    const bool is_one_line = o->token_flag == NULL || memchr(token, '\n', n) == NULL;
    const bool is_long = n >= SP_TOKEN_MIN;
    sp_sha256((struct sp_str){token, n}, a->token_sha256);
    explicit_bzero(token, n);
    free(token);
    if (!is_one_line) /* an HTTP header holds one line */
        return sp_fail(e, SP_E_INVALID, 0, "`%s` %s has more than one line; a token is one line",
                       o->token_flag, o->token_file);
    if (!is_long)
        return sp_fail(e, SP_E_INVALID, 0,
                       "`%s` %s: a token has at least %d characters, so that none can be guessed; "
                       "`openssl rand -hex 32` makes one",
                       o->token_flag != NULL ? o->token_flag : "--ws-token-file", o->token_file,
                       SP_TOKEN_MIN);
    return 0;
}

/* An empty text is refused: it would accept tokens with an empty claim. */
static int copy_claim(const char *flag, const char *text, char **ret, struct sp_str *ret_view,
                      struct sp_err *e)
{
    if (text == NULL)
        return 0;
    if (text[0] == 0)
        return sp_fail(e, SP_E_INVALID, 0, "`%s` must not be empty", flag);
    *ret = strdup(text);
    if (*ret == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read `%s`", flag);
    *ret_view = sp_str_of(*ret);
    return 0;
}

static int set_signed(struct sp_auth *a, const struct sp_auth_options *o, struct sp_err *e)
{
    uint64_t skew_s = DEFAULT_SKEW_S;
    size_t n = 0;
    int r;

    a->is_signed = true;
    if (o->shared_secret_file == NULL)
        return sp_fail(e, SP_E_INVALID, 0,
                       "`--ws-shared-secret-file` is required when "
                       "`--ws-auth signed-bearer-token` is set");
    if (o->max_clock_skew_seconds != NULL &&
        !sp_str_to_u64(sp_str_of(o->max_clock_skew_seconds), MAX_SKEW_S, &skew_s))
        return sp_fail(e, SP_E_INVALID, 0,
                       "`--ws-max-clock-skew-seconds` must be a whole number of seconds");
    a->jwt.skew_s = (int64_t)skew_s;
    r = o->kept.p != NULL
            ? copy_secret(o->kept, &a->secret, &n, e)
            : read_secret("--ws-shared-secret-file", o->shared_secret_file, &a->secret, &n, e);
    if (r < 0)
        return r;
    a->jwt.secret = (struct sp_str){a->secret, n};
    if (n < MIN_SECRET)
        return sp_fail(e, SP_E_INVALID, 0,
                       "`--ws-shared-secret-file` %s must hold at least %d bytes",
                       o->shared_secret_file, MIN_SECRET);
    r = copy_claim("--ws-issuer", o->issuer, &a->issuer, &a->jwt.issuer, e);
    if (r < 0)
        return r;
    return copy_claim("--ws-audience", o->audience, &a->audience, &a->jwt.audience, e);
}

/* Refuses the flags that belong to `mode`. */
static int refuse_flags_of(const struct sp_auth_options *o, const char *mode, struct sp_err *e)
{
    const struct {
        const char *mode, *flag, *value;
    } all[] = {
        {"capability-token", "--ws-token-file", o->token_file},
        {"capability-token", "--ws-token-sha256", o->token_sha256},
        {"signed-bearer-token", "--ws-shared-secret-file", o->shared_secret_file},
        {"signed-bearer-token", "--ws-issuer", o->issuer},
        {"signed-bearer-token", "--ws-audience", o->audience},
        {"signed-bearer-token", "--ws-max-clock-skew-seconds", o->max_clock_skew_seconds},
    };

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i].value != NULL && strcmp(all[i].mode, mode) == 0)
            return sp_fail(e, SP_E_INVALID, 0, "`%s` requires `--ws-auth %s`", all[i].flag, mode);
    return 0;
}

int sp_auth_new(const struct sp_auth_options *o, struct sp_auth **ret, struct sp_err *e)
{
    const char *mode = o->mode;
    int r;

    if (mode == NULL && o->token_file != NULL)
        mode = "capability-token";
    if (mode == NULL) {
        r = refuse_flags_of(o, "capability-token", e);
        if (r == 0)
            r = refuse_flags_of(o, "signed-bearer-token", e);
        if (r == 0)
            *ret = NULL;
        return r;
    }
    const bool is_signed = strcmp(mode, "signed-bearer-token") == 0;
    if (!is_signed && strcmp(mode, "capability-token") != 0)
        return sp_fail(e, SP_E_INVALID, 0,
                       "invalid value `%s` for `--ws-auth`; expected `capability-token` or "
                       "`signed-bearer-token`",
                       mode);
    r = refuse_flags_of(o, is_signed ? "capability-token" : "signed-bearer-token", e);
    if (r < 0)
        return r;
    struct sp_auth *a = calloc(1, sizeof *a);
    if (a == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read authentication flags");
    r = is_signed ? set_signed(a, o, e) : set_capability(a, o, e);
    if (r < 0) {
        sp_auth_free(a);
        return r;
    }
    *ret = a;
    return 0;
}

int sp_auth_make(struct sp_str kept, struct sp_auth **ret, char ret_token[SP_AUTH_TOKEN_LEN + 1],
                 struct sp_err *e)
{
    struct sp_auth *a = calloc(1, sizeof *a);
    int r = 0;

    if (a == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a token");
    a->is_made = true;
    if (kept.p != NULL)
        r = set_digest(a, kept, e);
    else if (!sp_hex_random(SP_AUTH_TOKEN_LEN / 2, ret_token))
        r = sp_fail(e, SP_E_SYSTEM, errno, "make a token: getrandom");
    else
        sp_sha256((struct sp_str){ret_token, SP_AUTH_TOKEN_LEN}, a->token_sha256);
    if (r < 0)
        free(a);
    else
        *ret = a;
    return r;
}

struct sp_str sp_auth_kept(const struct sp_auth *a)
{
    return a->is_signed ? a->jwt.secret
                        : (struct sp_str){(const char *)a->token_sha256, sizeof a->token_sha256};
}

void sp_auth_free(struct sp_auth *a)
{
    if (a == NULL)
        return;
    if (a->secret != NULL)
        explicit_bzero(a->secret, a->jwt.secret.n);
    free(a->secret);
    free(a->issuer);
    free(a->audience);
    free(a);
}

/* ---- checking a request ---- */

static bool is_valid(const struct sp_auth *a, struct sp_str token, int64_t now_s)
{
    uint8_t digest[32];

    if (a->is_signed)
        return sp_jwt_is_valid(&a->jwt, token, now_s);
    sp_sha256(token, digest);
    return sp_same_secret((struct sp_str){(const char *)digest, sizeof digest},
                          (struct sp_str){(const char *)a->token_sha256, sizeof a->token_sha256});
}

static const char *invalid(const struct sp_auth *a)
{
    return a->is_made ? INVALID_TOKEN USE_PRINTED : INVALID_TOKEN;
}

static const char *check_header(const struct sp_auth *a, struct sp_str header, int64_t now_s)
{
    for (size_t i = 0; i < header.n; i++)
        if (header.p[i] < ' ' || header.p[i] > '~')
            return INVALID_HEADER;
    const char *blank = memchr(header.p, ' ', header.n);
    if (blank == NULL ||
        !sp_str_eq_nocase((struct sp_str){header.p, (size_t)(blank - header.p)}, SP_STR("Bearer")))
        return INVALID_HEADER;

    const struct sp_str token =
        sp_str_trim((struct sp_str){blank, header.n - (size_t)(blank - header.p)});
    if (token.n == 0)
        return INVALID_HEADER;
    return is_valid(a, token, now_s) ? NULL : invalid(a);
}

/* Percent-decodes; `+` stays a plus. false: malformed or too long. */
static bool decode_percent(struct sp_str from, char ret[MAX_TOKEN], size_t *ret_len)
{
    size_t n = 0;

    for (size_t i = 0; i < from.n; i++, n++) {
        if (n == MAX_TOKEN)
            return false;
        ret[n] = from.p[i];
        if (from.p[i] != '%')
            continue;
        const int high = i + 2 < from.n ? sp_hex_digit(from.p[i + 1]) : -1;
        const int low = i + 2 < from.n ? sp_hex_digit(from.p[i + 2]) : -1;
        if (high < 0 || low < 0)
            return false;
        ret[n] = (char)(high << 4 | low);
        i += 2;
    }
    *ret_len = n;
    return true;
}

/* The parameter `token` must be there once. */
static const char *check_query(const struct sp_auth *a, struct sp_str query, int64_t now_s)
{
    struct sp_str found = {0};
    unsigned count = 0;
    char token[MAX_TOKEN];
    size_t n = 0;

    while (query.n != 0) {
        struct sp_str value = sp_str_cut(&query, '&');
        const bool has_value = value.n != 0 && memchr(value.p, '=', value.n) != NULL;

        if (sp_str_eq(sp_str_cut(&value, '='), SP_STR("token")) && has_value) {
            count++;
            found = value;
        }
    }
    if (count == 0)
        return a->is_made ? MISSING_TOKEN USE_PRINTED : MISSING_TOKEN;
    const bool may_pass = count == 1 && decode_percent(found, token, &n) &&
                          is_valid(a, (struct sp_str){token, n}, now_s);
    explicit_bzero(token, n);
    return may_pass ? NULL : invalid(a);
}

const char *sp_auth_check(const struct sp_auth *a, struct sp_str header, struct sp_str query,
                          int64_t now_s)
{
    return header.p != NULL ? check_header(a, header, now_s) : check_query(a, query, now_s);
}
