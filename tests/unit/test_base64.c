/* SPDX-License-Identifier: Apache-2.0 */
/* The .c itself: both forms are tested on every machine, whichever it would choose. */
#include <stdio.h>

#include "base/base64.c"
#include "test.h"

static struct sp_str decoded(const char *text, char *out)
{
    struct sp_err e = {0};
    size_t n = 0;

    assert_int_equal(sp_base64_decode(sp_str_of(text), out, &n, &e), 0);
    return (struct sp_str){out, n};
}

static void test_rfc_4648_vectors_hold_both_ways(void **state)
{
    static const char *const vector[][2] = {
        {"", ""},
        {"f", "Zg=="},
        {"fo", "Zm8="},
        {"foo", "Zm9v"},
        {"foob", "Zm9vYg=="},
        {"fooba", "Zm9vYmE="},
        {"foobar", "Zm9vYmFy"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof vector / sizeof vector[0]; i++) {
        char out[16];
        const char *end = sp_base64_encode(out, vector[i][0], strlen(vector[i][0]));

        assert_int_equal(end - out, SP_BASE64_LEN(strlen(vector[i][0])));
        assert_memory_equal(out, vector[i][1], strlen(vector[i][1]));
        assert_true(sp_str_eq(decoded(vector[i][1], out), sp_str_of(vector[i][0])));
    }
}

/* Plainly, bit by bit: the oracle of the fast ones. */
static void encode_slowly(char *out, const uint8_t *in, size_t n)
{
    for (size_t c = 0; c < SP_BASE64_LEN(n); c++) {
        unsigned index = 0;

        for (size_t bit = c * 6; bit < c * 6 + 6; bit++)
            index = index << 1 | (bit / 8 < n ? in[bit / 8] >> (7 - bit % 8) & 1U : 0U);
        out[c] = c * 6 < n * 8 ? alphabet[index] : '=';
    }
}

static void check_encoder(encoder *encoder_under_test)
{
    uint64_t seed = 1;

    for (size_t n = 0; n < 700; n++) {
        uint8_t *in = malloc(n + 1);
        char *want = malloc(SP_BASE64_LEN(n) + 1);
        char *got = malloc(SP_BASE64_LEN(n) + 1);
        uint8_t *exact = malloc(n == 0 ? 1 : n); /* a read past the end is seen by the sanitizer */

        assert_true(in && want && got && exact);
        for (size_t i = 0; i < n; i++)
            in[i] = exact[i] = (uint8_t)test_random(&seed);
        got[SP_BASE64_LEN(n)] = '#';
        encode_slowly(want, in, n);
        assert_ptr_equal(encoder_under_test(got, exact, n), got + SP_BASE64_LEN(n));
        assert_memory_equal(got, want, SP_BASE64_LEN(n));
        assert_int_equal(got[SP_BASE64_LEN(n)], '#');
        free(in);
        free(want);
        free(got);
        free(exact);
    }
}

static void test_every_encoder_agrees_with_the_definition_at_every_length(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4096; i++) {
        pairs[i][0] = alphabet[i >> 6];
        pairs[i][1] = alphabet[i & 63];
    }
    check_encoder(encode_scalar);
    check_encoder(encode_tail);
#if HAVE_AVX2
    if (has_avx2())
        check_encoder(encode_avx2);
#endif
    encoder *const chosen = atomic_load(&encode);
    check_encoder(chosen);
}

static void test_the_encoder_is_chosen_at_first_use(void **state)
{
    char out[4];

    (void)state;
    (void)sp_base64_encode(out, "abc", 3);
    assert_true(atomic_load(&encode) != encode_first);
}

/* In parts of every size, each into room of its own. */
static void check_parts(struct sp_str text, const uint8_t *want, size_t n)
{
    for (size_t part = 4; part < text.n + 4; part += 4 + part / 8 * 4) {
        size_t done = 0;

        for (size_t from = 0; from < text.n; from += part) {
            const size_t symbols = text.n - from < part ? text.n - from : part;
            uint8_t *out = malloc(symbols / 4 * 3); /* no byte more */
            size_t got = SIZE_MAX;

            assert_non_null(out);
            assert_int_equal(sp_base64_decode_part(text, from, symbols, out, &got, NULL), 0);
            assert_memory_equal(out, want + done, got);
            done += got;
            free(out);
        }
        assert_int_equal(done, n);
    }
}

static void check_decoder(void)
{
    uint64_t seed = 2;

    for (size_t n = 0; n < 500; n++) {
        uint8_t in[500];
        const size_t len = SP_BASE64_LEN(n);
        char *text = malloc(len + 1);
        char *out = malloc(len / 4 * 3 + 1);
        size_t got = SIZE_MAX;
        struct sp_err e;

        for (size_t i = 0; i < n; i++)
            in[i] = (uint8_t)test_random(&seed);
        assert_true(text && out);
        (void)sp_base64_encode(text, in, n);
        out[len / 4 * 3] = '#';
        assert_int_equal(sp_base64_decode((struct sp_str){text, len}, out, &got, &e), 0);
        assert_int_equal(got, n);
        assert_memory_equal(out, in, n);
        assert_int_equal(out[len / 4 * 3], '#');
        check_parts((struct sp_str){text, len}, in, n);
        got = SIZE_MAX;
        assert_int_equal(sp_base64_decode((struct sp_str){text, len}, text, &got, &e), 0);
        assert_int_equal(got, n);
        assert_memory_equal(text, in, n);
        free(text);
        free(out);
    }
}

/* Calls it with the decoder that this machine would choose, and with the scalar one. */
static void with_both_decoders(void (*fn)(void))
{
    size_t n;

    assert_int_equal(sp_base64_decode(SP_STR("AAAA"), (char[3]){0}, &n, NULL), 0);
    const bool was_wide = is_wide;
    fn();
    is_wide = false;
    fn();
    is_wide = was_wide;
}

static void test_all_bytes_come_back_in_place_and_out_of_place(void **state)
{
    (void)state;
    with_both_decoders(check_decoder);
}

static void refused(const char *text, const char *why)
{
    char *copy = test_copy(sp_str_of(text));
    struct sp_err e = {0};
    size_t n = 77;

    /* In place: the story must be that of the text as it came. */
    assert_int_equal(sp_base64_decode((struct sp_str){copy, strlen(text)}, copy, &n, &e),
                     -SP_E_INVALID);
    assert_string_equal(e.msg, why);
    assert_int_equal(n, 77);
    free(copy);
}

static void test_refusals_name_the_fault(void **state)
{
    (void)state;
    refused("!!!!", "Invalid symbol 33, offset 0.");
    refused("%%%", "Invalid symbol 37, offset 0.");
    refused("AAAAAAA!AAAA", "Invalid symbol 33, offset 7.");
    refused("AAAAAAAAAAA!", "Invalid symbol 33, offset 11.");
    refused("AAAA\nAAA", "Invalid symbol 10, offset 4.");
    refused("AAA AAA=", "Invalid symbol 32, offset 3.");
    refused("_-AA", "Invalid symbol 95, offset 0.");
    refused("AA=!", "Invalid symbol 33, offset 3.");
    refused("\xC3\xA9"
            "AA",
            "Invalid symbol 195, offset 0.");
    refused("A", "Invalid input length: 1");
    refused("AAAAA", "Invalid input length: 5");
    refused("QQ", "Invalid padding");
    refused("QUI", "Invalid padding");
    refused("QQ=", "Invalid padding");
    refused("=", "Invalid padding");
    refused("====", "Invalid padding");
    refused("A===", "Invalid padding");
    refused("QQ=Q", "Invalid padding");
    refused("QQ==QQ==", "Invalid padding");
    refused("QQ==AAAA", "Invalid padding");
    refused("AAAA====", "Invalid padding");
    refused("AAAA=", "Invalid padding");
    refused("Zh==", "Invalid last symbol 104, offset 1.");
    refused("ab==", "Invalid last symbol 98, offset 1.");
    refused("Zm9=", "Invalid last symbol 57, offset 2.");
    refused("AAAAZm9=", "Invalid last symbol 57, offset 6.");
}

static void test_every_byte_is_a_symbol_or_refused_at_every_place(void **state)
{
    (void)state;
    for (size_t place = 0; place < 12; place++)
        for (unsigned c = 0; c < 256; c++) {
            char text[12];
            char out[9];
            char why[64];
            size_t n = 0;
            struct sp_err e = {0};
            const bool is_of_alphabet = c != 0 && strchr(alphabet, (int)c) != NULL;

            memset(text, 'A', sizeof text);
            text[place] = (char)c;
            const int r = sp_base64_decode((struct sp_str){text, sizeof text}, out, &n, &e);
            if (is_of_alphabet || (c == '=' && place == 11)) {
                assert_int_equal(r, 0);
                assert_int_equal(n, c == '=' ? 8 : 9);
                continue;
            }
            (void)snprintf(why, sizeof why, "Invalid symbol %u, offset %zu.", c, place);
            assert_int_equal(r, -SP_E_INVALID);
            assert_string_equal(e.msg, c == '=' ? "Invalid padding" : why);
        }
}

/* In a long text, in place: wherever the fault is, it is told as if nothing had been written yet.
 */
static void check_faults(void)
{
    static const unsigned char fault[] = {0,   '!', '=', ',', '-',  '.',  ':',  '@',
                                          '[', '_', '`', '{', 0x7F, 0x80, 0xAB, 0xFF};
    enum { N = 400 };
    uint64_t seed = 3;

    for (size_t place = 0; place < N; place++)
        for (size_t i = 0; i < sizeof fault; i++) {
            char *text = malloc(N); /* no byte more */
            char why[64];
            size_t n = 77;
            struct sp_err e = {0};
            const unsigned c = fault[i];

            assert_non_null(text);
            for (size_t k = 0; k < N; k++)
                text[k] = alphabet[test_random(&seed) % 64];
            text[place] = (char)c;
            text[N - 1] = place == N - 1 ? (char)c : '!'; /* a second one, which is not the first */
            if (c == '=' && place == N - 1)
                text[N - 2] = '='; /* with bits behind the last byte: refused */
            if (c == '=' && place == N - 1)
                text[N - 3] = 'B';
            (void)snprintf(why, sizeof why, "Invalid symbol %u, offset %zu.", c == '=' ? 33 : c,
                           c == '=' ? N - 1UL : place);
            if (c == '=' && place == N - 1)
                (void)snprintf(why, sizeof why, "Invalid last symbol 66, offset %d.", N - 3);
            assert_int_equal(sp_base64_decode((struct sp_str){text, N}, text, &n, &e),
                             -SP_E_INVALID);
            assert_string_equal(e.msg, why);
            assert_int_equal(n, 77);
            free(text);
        }
}

static void test_faults_of_long_texts_are_found_where_they_are(void **state)
{
    (void)state;
    with_both_decoders(check_faults);
}

/* Every byte in every lane of the vector, held against the tables. */
static void test_the_wide_decoder_knows_every_symbol(void **state)
{
    (void)state;
#if HAVE_AVX2
    if (!has_avx2())
        return;
    for (size_t place = 0; place < 32; place++)
        for (unsigned c = 0; c < 256; c++) {
            unsigned char text[48];
            unsigned char out[36];

            memset(text, 'A', sizeof text);
            text[place] = (unsigned char)c;
            const bool is_of_alphabet = c != 0 && strchr(alphabet, (int)c) != NULL;
            assert_int_equal(decode_avx2(text, sizeof text, out), is_of_alphabet ? 32 : 0);
        }
#endif
}

static void test_faults_of_parts_are_those_of_the_whole(void **state)
{
    static const struct {
        const char *text, *why;
        size_t from;
    } row[] = {
        {"AAAAAAA!AAAA", "Invalid symbol 33, offset 7.", 4},
        {"AAAAQQ==AAAA", "Invalid padding", 4},
        {"AAAAQQ==AAA!", "Invalid symbol 33, offset 11.", 4},
        {"AAAAAAAAQR==", "Invalid last symbol 82, offset 9.", 8},
        {"AAAAAAAAA", "Invalid input length: 9", 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        struct sp_err e = {0};
        char out[3];
        size_t n;

        assert_int_equal(sp_base64_decode_part(sp_str_of(row[i].text), row[i].from, 4, out, &n, &e),
                         -SP_E_INVALID);
        assert_string_equal(e.msg, row[i].why);
    }
}

static void test_a_refusal_may_be_dropped(void **state)
{
    size_t n;
    char out[3];

    (void)state;
    assert_int_equal(sp_base64_decode(SP_STR("!!!!"), out, &n, NULL), -SP_E_INVALID);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_the_encoder_is_chosen_at_first_use),
    cmocka_unit_test(test_rfc_4648_vectors_hold_both_ways),
    cmocka_unit_test(test_every_encoder_agrees_with_the_definition_at_every_length),
    cmocka_unit_test(test_all_bytes_come_back_in_place_and_out_of_place),
    cmocka_unit_test(test_refusals_name_the_fault),
    cmocka_unit_test(test_every_byte_is_a_symbol_or_refused_at_every_place),
    cmocka_unit_test(test_faults_of_long_texts_are_found_where_they_are),
    cmocka_unit_test(test_the_wide_decoder_knows_every_symbol),
    cmocka_unit_test(test_faults_of_parts_are_those_of_the_whole),
    cmocka_unit_test(test_a_refusal_may_be_dropped),
};

TEST_MAIN(tests)
