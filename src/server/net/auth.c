/* SPDX-License-Identifier: Apache-2.0 */
#include "server/net/auth.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/sha.h"
#include "server/net/jwt.h"

#define MAX_FILE       65536
#define MIN_SECRET     32
#define DEFAULT_SKEW_S 30
#define MAX_SKEW_S     (INT64_C(1) << 40) /* so that sums with a time do not overflow */

#define MAX_TOKEN 4096 /* in a query, decoded */

#define INVALID_HEADER "invalid authorization header"
#define INVALID_TOKEN  "invalid websocket bearer token"
#define MISSING_TOKEN  "missing websocket bearer token"
#define USE_PRINTED    "; use the URL the server printed"

struct sp_auth {
    bool is_signed;
    bool is_made;             /* the token is part of the URL that the server printed */
    uint8_t token_sha256[32]; /* capability token: its digest is all we keep */
    struct sp_jwt_rules jwt;  /* signed: views of what follows */
    char *secret, *issuer, *audience;
};

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* ---- start ---- */

/* The bytes of a small file without the white space at their end. The caller frees them. */
static int read_secret(const char *flag, const char *path, char **ret, size_t *ret_len,
                       struct sp_err *e)
{
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t n = 0;
    ssize_t got = 1;

    if (fd < 0)
        return sp_fail(e, SP_E_INVALID, errno, "read `%s` %s", flag, path);
    auto_free char *text = malloc(MAX_FILE + 1);
    if (text == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read `%s` %s", flag, path);
    while (got != 0 && n <= MAX_FILE) {
        got = read(fd, text + n, MAX_FILE + 1 - n);
        if (got < 0 && errno != EINTR)
            return sp_fail(e, SP_E_INVALID, errno, "read `%s` %s", flag, path);
        if (got > 0)
            n += (size_t)got;
    }
    if (n > MAX_FILE)
        return sp_fail(e, SP_E_INVALID, 0, "`%s` %s is larger than %d bytes", flag, path, MAX_FILE);
    while (n != 0 && is_space(text[n - 1]))
        n--;
    if (n == 0)
        return sp_fail(e, SP_E_INVALID, 0, "`%s` %s is empty", flag, path);
    *ret = TAKE_PTR(text);
    *ret_len = n;
    return 0;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int read_sha256(const char *hex, uint8_t ret[32], struct sp_err *e)
{
    bool is_hex = strlen(hex) == 64;

    for (size_t i = 0; is_hex && i < 32; i++) {
        const int high = hex_digit(hex[2 * i]);
        const int low = hex_digit(hex[2 * i + 1]);

        is_hex = high >= 0 && low >= 0;
        if (is_hex)
            ret[i] = (uint8_t)(high << 4 | low);
    }
    if (!is_hex)
        return sp_fail(e, SP_E_INVALID, 0, "`--ws-token-sha256` must be 64 hexadecimal digits");
    return 0;
}

static int set_capability(struct sp_auth *a, const struct sp_auth_options *o, struct sp_err *e)
{
    char *token = NULL;
    size_t n = 0;

    if (o->token_file != NULL && o->token_sha256 != NULL)
        return sp_fail(e, SP_E_INVALID, 0,
                       "`--ws-token-file` and `--ws-token-sha256` are mutually exclusive");
    if (o->token_sha256 != NULL)
        return read_sha256(o->token_sha256, a->token_sha256, e);
    if (o->token_file == NULL)
        return sp_fail(e, SP_E_INVALID, 0,
                       "`--ws-token-file` or `--ws-token-sha256` is required when "
                       "`--ws-auth capability-token` is set");
    const int r = read_secret("--ws-token-file", o->token_file, &token, &n, e);
    if (token == NULL)
        return r;
    sp_sha256((struct sp_str){token, n}, a->token_sha256);
    explicit_bzero(token, n);
    free(token);
    return 0;
}

/* "": text that no claim may have to match; refused, since it would let every empty claim pass. */
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
    r = read_secret("--ws-shared-secret-file", o->shared_secret_file, &a->secret, &n, e);
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

/* The first flag given that belongs to `mode`; NULL: none. */
static const char *flag_of(const struct sp_auth_options *o, const char *mode)
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
            return all[i].flag;
    return NULL;
}

static int refuse_flags_of(const struct sp_auth_options *o, const char *mode, struct sp_err *e)
{
    const char *flag = flag_of(o, mode);

    if (flag == NULL)
        return 0;
    return sp_fail(e, SP_E_INVALID, 0, "`%s` requires `--ws-auth %s`", flag, mode);
}

static int configure(struct sp_auth *a, const char *mode, const struct sp_auth_options *o,
                     struct sp_err *e)
{
    const bool is_signed = strcmp(mode, "signed-bearer-token") == 0;

    if (!is_signed && strcmp(mode, "capability-token") != 0)
        return sp_fail(e, SP_E_INVALID, 0,
                       "invalid value `%s` for `--ws-auth`; expected `capability-token` or "
                       "`signed-bearer-token`",
                       mode);
    const int r = refuse_flags_of(o, is_signed ? "capability-token" : "signed-bearer-token", e);
    if (r < 0)
        return r;
    return is_signed ? set_signed(a, o, e) : set_capability(a, o, e);
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
    struct sp_auth *a = calloc(1, sizeof *a);
    if (a == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read authentication flags");
    r = configure(a, mode, o, e);
    if (r < 0) {
        sp_auth_free(a);
        return r;
    }
    *ret = a;
    return 0;
}

int sp_auth_make(struct sp_auth **ret, char ret_token[SP_AUTH_TOKEN_LEN + 1], struct sp_err *e)
{
    uint8_t bytes[SP_AUTH_TOKEN_LEN / 2];
    struct sp_auth *a = calloc(1, sizeof *a);

    if (a == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a token");
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) {
        free(a);
        return sp_fail(e, SP_E_SYSTEM, errno, "make a token: getrandom");
    }
    for (size_t i = 0; i < sizeof bytes; i++)
        (void)snprintf(ret_token + 2 * i, 3, "%02x", bytes[i]);
    explicit_bzero(bytes, sizeof bytes);
    a->is_made = true;
    sp_sha256((struct sp_str){ret_token, SP_AUTH_TOKEN_LEN}, a->token_sha256);
    *ret = a;
    return 0;
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

/* ---- check ---- */

static bool is_capability(const struct sp_auth *a, struct sp_str token)
{
    uint8_t digest[32];

    sp_sha256(token, digest);
    return sp_same_secret((struct sp_str){(const char *)digest, sizeof digest},
                          (struct sp_str){(const char *)a->token_sha256, sizeof a->token_sha256});
}

static bool is_valid(const struct sp_auth *a, struct sp_str token, int64_t now_s)
{
    return a->is_signed ? sp_jwt_is_valid(&a->jwt, token, now_s) : is_capability(a, token);
}

static const char *missing(const struct sp_auth *a)
{
    return a->is_made ? MISSING_TOKEN USE_PRINTED : MISSING_TOKEN;
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

    struct sp_str token = {blank, header.n - (size_t)(blank - header.p)};
    while (token.n != 0 && token.p[0] == ' ')
        token = (struct sp_str){token.p + 1, token.n - 1};
    while (token.n != 0 && token.p[token.n - 1] == ' ')
        token.n--;
    if (token.n == 0)
        return INVALID_HEADER;
    return is_valid(a, token, now_s) ? NULL : invalid(a);
}

/* %XX becomes its byte; everything else, `+` too, stays as it is. false: malformed or too long. */
static bool decode(struct sp_str from, char ret[MAX_TOKEN], size_t *ret_len)
{
    size_t n = 0;

    for (size_t i = 0; i < from.n; i++, n++) {
        if (n == MAX_TOKEN)
            return false;
        ret[n] = from.p[i];
        if (from.p[i] != '%')
            continue;
        const int high = i + 2 < from.n ? hex_digit(from.p[i + 1]) : -1;
        const int low = i + 2 < from.n ? hex_digit(from.p[i + 2]) : -1;
        if (high < 0 || low < 0)
            return false;
        ret[n] = (char)(high << 4 | low);
        i += 2;
    }
    *ret_len = n;
    return true;
}

/* The value of the parameter `token`. false: there is none, or more than one. */
static bool find_token(struct sp_str query, struct sp_str *ret, bool *ret_is_there)
{
    *ret_is_there = false;
    while (query.n != 0) {
        struct sp_str value = sp_str_cut(&query, '&');
        const bool has_value = value.n != 0 && memchr(value.p, '=', value.n) != NULL;
        const struct sp_str name = sp_str_cut(&value, '=');

        if (!sp_str_eq(name, SP_STR("token")) || !has_value)
            continue;
        if (*ret_is_there)
            return false;
        *ret_is_there = true;
        *ret = value;
    }
    return *ret_is_there;
}

static const char *check_query(const struct sp_auth *a, struct sp_str query, int64_t now_s)
{
    struct sp_str value = {0};
    char token[MAX_TOKEN];
    size_t n = 0;
    bool is_there;

    if (!find_token(query, &value, &is_there))
        return is_there ? invalid(a) : missing(a);
    const bool may_pass = decode(value, token, &n) && is_valid(a, (struct sp_str){token, n}, now_s);
    explicit_bzero(token, n);
    return may_pass ? NULL : invalid(a);
}

const char *sp_auth_check(const struct sp_auth *a, struct sp_str header, struct sp_str query,
                          int64_t now_s)
{
    return header.p != NULL ? check_header(a, header, now_s) : check_query(a, query, now_s);
}
