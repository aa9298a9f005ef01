/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <unistd.h>

#include "base/sha.h"
#include "server/net/auth.h"
#include "test.h"

#define SECRET "0123456789abcdef0123456789abcdef"
#define NOW    INT64_C(1700000000)

static char file[64];

static const char *file_with(const char *text)
{
    (void)snprintf(file, sizeof file, "/tmp/sallyport-test-XXXXXX");
    const int fd = mkstemp(file);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    (void)close(fd);
    return file;
}

static int remove_file(void **state)
{
    (void)state;
    if (file[0] != 0)
        (void)unlink(file);
    file[0] = 0;
    return 0;
}

static struct sp_auth *make(const struct sp_auth_options *o)
{
    struct sp_auth *a = NULL;
    struct sp_err e = {0};

    if (sp_auth_new(o, &a, &e) < 0)
        fail_msg("%s", e.msg);
    return a;
}

static void refused(const struct sp_auth_options *o, const char *want)
{
    struct sp_auth *a = NULL;
    struct sp_err e = {0};

    assert_int_equal(sp_auth_new(o, &a, &e), -SP_E_INVALID);
    assert_null(a);
    if (strncmp(e.msg, want, strlen(want)) != 0)
        fail_msg("want %s\ngot  %s", want, e.msg);
}

/* ---- flags ---- */

static void test_no_flags_mean_no_authentication(void **state)
{
    (void)state;
    assert_null(make(&(struct sp_auth_options){0}));
}

static void test_refusals_name_the_flag(void **state)
{
    const char *const capability = "capability-token";
    const char *const signed_token = "signed-bearer-token";

    (void)state;
#define REFUSED(text, ...) refused(&(struct sp_auth_options){__VA_ARGS__}, text)
    REFUSED("`--ws-token-file` or `--ws-token-sha256` is required when "
            "`--ws-auth capability-token` is set",
            .mode = capability);
    REFUSED("`--ws-shared-secret-file` is required when `--ws-auth signed-bearer-token` is set",
            .mode = signed_token);
    REFUSED("invalid value `magic` for `--ws-auth`", .mode = "magic");
    REFUSED("`--ws-token-file` and `--ws-token-sha256` are mutually exclusive", .mode = capability,
            .token_file = "/x", .token_sha256 = "00");
    REFUSED("`--ws-token-sha256` requires `--ws-auth capability-token`", .token_sha256 = "00");
    REFUSED("`--ws-token-file` requires `--ws-auth capability-token`", .mode = signed_token,
            .token_file = "/x");
    REFUSED("`--ws-issuer` requires `--ws-auth signed-bearer-token`", .issuer = "x");
    REFUSED("`--ws-audience` requires `--ws-auth signed-bearer-token`", .mode = capability,
            .audience = "x");
    REFUSED("`--ws-max-clock-skew-seconds` requires `--ws-auth signed-bearer-token`",
            .token_file = "/x", .max_clock_skew_seconds = "1");
    REFUSED("`--ws-shared-secret-file` requires `--ws-auth signed-bearer-token`",
            .shared_secret_file = "/x");
    REFUSED("`--ws-token-sha256` must be 64 hexadecimal digits", .mode = capability,
            .token_sha256 = "00");
    REFUSED("`--ws-token-sha256` must be 64 hexadecimal digits", .mode = capability,
            .token_sha256 = "g000000000000000000000000000000000000000000000000000000000000000");
    REFUSED("read `--ws-token-file` /nowhere/at/all", .token_file = "/nowhere/at/all");
    REFUSED("`--ws-max-clock-skew-seconds` must be a whole number", .mode = signed_token,
            .shared_secret_file = "/x", .max_clock_skew_seconds = "-1");
}

static void test_empty_and_short_files_are_refused(void **state)
{
    (void)state;
    refused(&(struct sp_auth_options){.token_file = file_with(" \n\n")}, "`--ws-token-file` /tmp/");
    (void)remove_file(NULL);
    refused(&(struct sp_auth_options){.mode = "signed-bearer-token",
                                      .shared_secret_file =
                                          file_with("0123456789abcdef0123456789abcde\n")},
            "`--ws-shared-secret-file` /tmp/");
}

/* ---- capability tokens ---- */

static void answers(const struct sp_auth *a, const char *header, const char *want)
{
    const char *got =
        sp_auth_check(a, header == NULL ? (struct sp_str){NULL, 0} : sp_str_of(header),
                      (struct sp_str){"", 0}, NOW);

    assert_string_equal(got == NULL ? "pass" : got, want == NULL ? "pass" : want);
}

static void test_token_file_is_trimmed_at_its_end(void **state)
{
    struct sp_auth *a =
        make(&(struct sp_auth_options){.token_file = file_with("sesame-open-sesame \r\n\n")});

    (void)state;
    answers(a, "Bearer sesame-open-sesame", NULL);
    answers(a, "bEARER   sesame-open-sesame  ", NULL);
    answers(a, NULL, "missing websocket bearer token");
    answers(a, "", "invalid authorization header");
    answers(a, "Bearer", "invalid authorization header");
    answers(a, "Bearer  ", "invalid authorization header");
    answers(a, "Bearersesame-open-sesame", "invalid authorization header");
    answers(a, "Basic sesame-open-sesame", "invalid authorization header");
    answers(a, "Bearer s\xC3\xA9same", "invalid authorization header");
    answers(a, "Bearer sesame-open-sesam", "invalid websocket bearer token");
    answers(a, "Bearer sesame-open-sesame2", "invalid websocket bearer token");
    answers(a, "Bearer sesame-open-sesame sesame-open-sesame", "invalid websocket bearer token");
    sp_auth_free(a);
}

static void test_digest_of_a_token_is_enough(void **state)
{
    struct sp_auth *a = make(&(struct sp_auth_options){
        .mode = "capability-token", /* of "abc" */
        .token_sha256 = "BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410ff61f20015ad"});

    (void)state;
    answers(a, "Bearer abc", NULL);
    answers(a, "Bearer abd", "invalid websocket bearer token");
    sp_auth_free(a);
}

/* ---- signed tokens ---- */

static char *put_base64url(char *out, const void *bytes, size_t n)
{
    static const char alphabet[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    const uint8_t *p = bytes;

    for (size_t i = 0; i < n * 8; i += 6) {
        const unsigned low = i / 8 + 1 < n ? p[i / 8 + 1] : 0;
        const unsigned pair = (unsigned)p[i / 8] << 8 | low;

        *out++ = alphabet[pair >> (10 - i % 8) & 63];
    }
    *out = 0;
    return out;
}

static const char *sign(const char *header, const char *claims, const char *secret)
{
    static char text[9000];
    uint8_t mac[32];

    (void)snprintf(text, sizeof text, "Bearer ");
    char *end = put_base64url(text + 7, header, strlen(header));
    *end++ = '.';
    end = put_base64url(end, claims, strlen(claims));
    sp_hmac_sha256(sp_str_of(secret), sp_str_of(text + 7), mac);
    *end++ = '.';
    (void)put_base64url(end, mac, sizeof mac);
    return text;
}

#define HS256   "{\"alg\":\"HS256\",\"typ\":\"JWT\"}"
#define INVALID "invalid websocket bearer token"

static struct sp_auth *make_signed(const char *issuer, const char *audience, const char *skew)
{
    return make(&(struct sp_auth_options){.mode = "signed-bearer-token",
                                          .shared_secret_file = file_with(SECRET "\n"),
                                          .issuer = issuer,
                                          .audience = audience,
                                          .max_clock_skew_seconds = skew});
}

static void test_signed_token_lives_for_its_time(void **state)
{
    struct sp_auth *a = make_signed(NULL, NULL, NULL);

    (void)state;
    answers(a, sign(HS256, "{\"exp\":1700000001}", SECRET), NULL);
    answers(a, sign(HS256, "{\"exp\":1699999971}", SECRET), NULL); /* 30 s of leeway */
    answers(a, sign(HS256, "{\"exp\":1699999970}", SECRET), INVALID);
    answers(a, sign(HS256, "{\"exp\":1800000000,\"nbf\":1700000030}", SECRET), NULL);
    answers(a, sign(HS256, "{\"exp\":1800000000,\"nbf\":1700000031}", SECRET), INVALID);
    answers(a, sign(HS256, "{\"exp\":9223372036854775807}", SECRET), NULL);
    answers(a, sign(HS256, "{\"exp\":-9223372036854775808}", SECRET), INVALID);
    answers(a, sign(HS256, "{\"exp\":1800000000,\"nbf\":9223372036854775807}", SECRET), INVALID);
    answers(a, sign(HS256, "{}", SECRET), INVALID);
    answers(a, sign(HS256, "{\"exp\":\"1800000000\"}", SECRET), INVALID);
    answers(a, sign(HS256, "{\"exp\":1e10}", SECRET), INVALID);
    answers(a, sign(HS256, "{\"exp\":null}", SECRET), INVALID);
    answers(a, sign(HS256, "[1800000000]", SECRET), INVALID);
    answers(a, sign(HS256, "{\"exp\":1800000000} x", SECRET), INVALID);
    answers(a, sign(HS256, "{\"exp\":1800000000,\"exp\":1}", SECRET), INVALID);
    sp_auth_free(a);
}

static void test_leeway_can_be_set(void **state)
{
    struct sp_auth *a = make_signed(NULL, NULL, "0");

    (void)state;
    answers(a, sign(HS256, "{\"exp\":1700000001}", SECRET), NULL);
    answers(a, sign(HS256, "{\"exp\":1700000000}", SECRET), INVALID);
    sp_auth_free(a);
}

static void test_other_algorithms_and_secrets_are_refused(void **state)
{
    static const char good[] = "{\"exp\":1800000000}";
    struct sp_auth *a = make_signed(NULL, NULL, NULL);

    (void)state;
    answers(a, sign(HS256, good, "0123456789abcdef0123456789abcdeX"), INVALID);
    answers(a, sign("{\"alg\":\"none\"}", good, SECRET), INVALID);
    answers(a, sign("{\"alg\":\"HS512\"}", good, SECRET), INVALID);
    answers(a, sign("{\"alg\":\"hs256\"}", good, SECRET), INVALID);
    answers(a, sign("{}", good, SECRET), INVALID);
    answers(a, sign("{\"alg\":[\"HS256\"]}", good, SECRET), INVALID);
    answers(a, sign("\"HS256\"", good, SECRET), INVALID);
    answers(a, sign("{\"alg\":\"HS256\",\"crit\":[\"b64\"],\"b64\":false}", good, SECRET), INVALID);
    sp_auth_free(a);
}

static void test_issuer_and_audience_must_match_when_asked_for(void **state)
{
    struct sp_auth *a = make_signed("me", "you", NULL);

    (void)state;
#define CLAIMS(more) "{\"exp\":1800000000" more "}"
    answers(a, sign(HS256, CLAIMS(",\"iss\":\"me\",\"aud\":\"you\""), SECRET), NULL);
    answers(a, sign(HS256, CLAIMS(",\"iss\":\"me\",\"aud\":[\"x\",\"you\"]"), SECRET), NULL);
    answers(a, sign(HS256, CLAIMS(",\"iss\":\"m\\u0065\",\"aud\":\"you\""), SECRET), NULL);
    answers(a, sign(HS256, CLAIMS(",\"iss\":\"me\",\"aud\":[]"), SECRET), INVALID);
    answers(a, sign(HS256, CLAIMS(",\"iss\":\"me\",\"aud\":[[\"you\"]]"), SECRET), INVALID);
    answers(a, sign(HS256, CLAIMS(",\"iss\":\"me\""), SECRET), INVALID);
    answers(a, sign(HS256, CLAIMS(",\"aud\":\"you\""), SECRET), INVALID);
    answers(a, sign(HS256, CLAIMS(",\"iss\":\"me2\",\"aud\":\"you\""), SECRET), INVALID);
    answers(a, sign(HS256, CLAIMS(",\"iss\":[\"me\"],\"aud\":\"you\""), SECRET), INVALID);
    sp_auth_free(a);
}

/* Nothing but the one spelling of one signature passes. */
static void test_every_changed_character_is_noticed(void **state)
{
    struct sp_auth *a = make_signed(NULL, NULL, NULL);
    char token[9000];

    (void)state;
    (void)snprintf(token, sizeof token, "%s", sign(HS256, "{\"exp\":1800000000}", SECRET));
    answers(a, token, NULL);
    const size_t n = strlen(token);
    for (size_t i = 7; i < n; i++) {
        const char was = token[i];

        for (const char *c = "A-_.=+/"; *c != 0; c++) {
            token[i] = *c;
            answers(a, token, *c == was ? NULL : INVALID);
        }
        token[i] = was;
    }
    for (size_t i = n; i > 8; i--) {
        token[i - 1] = 0;
        answers(a, token, INVALID);
    }
    answers(a, "Bearer ..", INVALID);
    answers(a, "Bearer .", INVALID);
    memset(token + 7, 'A', sizeof token - 8);
    token[sizeof token - 1] = 0;
    answers(a, token, INVALID);
    sp_auth_free(a);
}

/* ---- a token that is made ---- */

static const char *check_query(const struct sp_auth *a, const char *query)
{
    char *copy = test_copy(sp_str_of(query));
    const char *got =
        sp_auth_check(a, (struct sp_str){NULL, 0}, (struct sp_str){copy, strlen(query)}, NOW);

    free(copy);
    return got;
}

static void test_a_made_token_opens_by_query_or_header(void **state)
{
    static const char missing[] = "missing websocket bearer token; use the URL the server printed";
    static const char invalid[] = "invalid websocket bearer token; use the URL the server printed";
    struct sp_auth *a = NULL;
    struct sp_auth *b = NULL;
    struct sp_err e = {0};
    char token[SP_AUTH_TOKEN_LEN + 1];
    char other[SP_AUTH_TOKEN_LEN + 1];
    char text[256];

    (void)state;
    assert_int_equal(sp_auth_make((struct sp_str){NULL, 0}, &a, token, &e), 0);
    assert_int_equal(sp_auth_make((struct sp_str){NULL, 0}, &b, other, &e), 0);
    assert_int_equal(strlen(token), SP_AUTH_TOKEN_LEN);
    assert_int_equal(strspn(token, "0123456789abcdef"), SP_AUTH_TOKEN_LEN);
    assert_string_not_equal(token, other);
    (void)snprintf(text, sizeof text, "Bearer %s", token);
    answers(a, text, NULL);
    answers(b, text, invalid);
    answers(a, NULL, missing);
    (void)snprintf(text, sizeof text, "x=1&token=%s&y", token);
    assert_null(check_query(a, text));
    assert_string_equal(check_query(b, text), invalid);
    for (size_t n = strlen(text); n > 0; n--) {
        text[n - 1] = 0;
        const char *got = check_query(a, text);
        if (n > 10 + SP_AUTH_TOKEN_LEN)
            assert_null(got);
        else
            assert_string_equal(got, n > 10 ? invalid : missing);
    }
    (void)snprintf(text, sizeof text, "token=%s&token=%s", token, token);
    assert_string_equal(check_query(a, text), invalid);
    assert_string_equal(check_query(a, "token=%"), invalid);
    assert_string_equal(check_query(a, "token=%4"), invalid);
    assert_string_equal(check_query(a, "token=%4g"), invalid);
    assert_string_equal(check_query(a, "token"), missing);
    assert_string_equal(check_query(a, "&&=&"), missing);
    sp_auth_free(a);
    sp_auth_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_no_flags_mean_no_authentication, remove_file),
        cmocka_unit_test_teardown(test_refusals_name_the_flag, remove_file),
        cmocka_unit_test_teardown(test_empty_and_short_files_are_refused, remove_file),
        cmocka_unit_test_teardown(test_token_file_is_trimmed_at_its_end, remove_file),
        cmocka_unit_test_teardown(test_digest_of_a_token_is_enough, remove_file),
        cmocka_unit_test_teardown(test_signed_token_lives_for_its_time, remove_file),
        cmocka_unit_test_teardown(test_leeway_can_be_set, remove_file),
        cmocka_unit_test_teardown(test_other_algorithms_and_secrets_are_refused, remove_file),
        cmocka_unit_test_teardown(test_issuer_and_audience_must_match_when_asked_for, remove_file),
        cmocka_unit_test_teardown(test_every_changed_character_is_noticed, remove_file),
        cmocka_unit_test(test_a_made_token_opens_by_query_or_header),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
