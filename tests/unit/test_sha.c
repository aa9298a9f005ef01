/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/sha.h"
#include "test.h"

static void assert_hex(const uint8_t *digest, size_t n, const char *want)
{
    char hex[65];

    for (size_t i = 0; i < n; i++)
        (void)snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    assert_string_equal(hex, want);
}

static void sha1_is(struct sp_str s, const char *want)
{
    uint8_t digest[20];

    sp_sha1(s, digest);
    assert_hex(digest, sizeof digest, want);
}

static void sha256_is(struct sp_str s, const char *want)
{
    uint8_t digest[32];

    sp_sha256(s, digest);
    assert_hex(digest, sizeof digest, want);
}

static void hmac_is(struct sp_str key, struct sp_str s, const char *want)
{
    uint8_t digest[32];

    sp_hmac_sha256(key, s, digest);
    assert_hex(digest, sizeof digest, want);
}

#define TWO_BLOCKS SP_STR("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")

static void test_sha1_keeps_to_its_published_digests(void **state)
{
    (void)state;
    sha1_is(SP_STR(""), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
    sha1_is((struct sp_str){NULL, 0}, "da39a3ee5e6b4b0d3255bfef95601890afd80709");
    sha1_is(SP_STR("abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
    sha1_is(TWO_BLOCKS, "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
}

static void test_the_handshake_example_of_rfc_6455_holds(void **state)
{
    (void)state;
    sha1_is(SP_STR("dGhlIHNhbXBsZSBub25jZQ==258EAFA5-E914-47DA-95CA-C5AB0DC85B11"),
            "b37a4f2cc0624f1690f64606cf385945b2bec4ea");
}

static void test_sha256_keeps_to_its_published_digests(void **state)
{
    (void)state;
    sha256_is(SP_STR(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    sha256_is(SP_STR("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    sha256_is(TWO_BLOCKS, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

static void test_a_million_letters_are_no_different(void **state)
{
    const size_t n = 1000000;
    char *text = malloc(n);

    (void)state;
    assert_non_null(text);
    memset(text, 'a', n);
    sha1_is((struct sp_str){text, n}, "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
    sha256_is((struct sp_str){text, n},
              "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    free(text);
}

/* A chain of digests over every length to two blocks and more: the padding has no border case left.
 */
static void test_every_length_around_a_block_is_padded_right(void **state)
{
    char text[200];
    uint8_t one[20] = {0};
    uint8_t two[32] = {0};

    (void)state;
    for (size_t n = 0; n < sizeof text; n++) {
        memset(text, 'x', n);
        if (n >= 20)
            memcpy(text, one, 20);
        if (n >= 52)
            memcpy(text + 20, two, 32);
        sp_sha1((struct sp_str){text, n}, one);
        sp_sha256((struct sp_str){text, n}, two);
    }
    assert_hex(one, sizeof one, "f476f9418a6eeb35c93f08992a056e659519356b");
    assert_hex(two, sizeof two, "9aad1cf9305c6f2af7dac470519ec5d067d8d8fff17436f16313d1d492f423d5");
}

static void test_hmac_keeps_to_rfc_4231(void **state)
{
    char key[131];

    (void)state;
    memset(key, 0x0B, 20);
    hmac_is((struct sp_str){key, 20}, SP_STR("Hi There"),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    hmac_is(SP_STR("Jefe"), SP_STR("what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    memset(key, 0xAA, sizeof key);
    hmac_is((struct sp_str){key, sizeof key},
            SP_STR("Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    hmac_is((struct sp_str){NULL, 0}, (struct sp_str){NULL, 0},
            "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

static void test_secrets_are_the_same_only_when_every_byte_is(void **state)
{
    char a[40];
    char b[40];

    (void)state;
    memset(a, 'k', sizeof a);
    memset(b, 'k', sizeof b);
    assert_true(sp_same_secret((struct sp_str){a, 40}, (struct sp_str){b, 40}));
    assert_false(sp_same_secret((struct sp_str){a, 40}, (struct sp_str){b, 39}));
    assert_true(sp_same_secret((struct sp_str){NULL, 0}, SP_STR("")));
    for (size_t i = 0; i < sizeof b; i++)
        for (unsigned bit = 0; bit < 8; bit++) {
            b[i] = (char)(b[i] ^ (1 << bit));
            assert_false(sp_same_secret((struct sp_str){a, 40}, (struct sp_str){b, 40}));
            b[i] = (char)(b[i] ^ (1 << bit));
        }
    assert_false(sp_same_secret(SP_STR("a\0b"), SP_STR("a\0c")));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_sha1_keeps_to_its_published_digests),
    cmocka_unit_test(test_the_handshake_example_of_rfc_6455_holds),
    cmocka_unit_test(test_sha256_keeps_to_its_published_digests),
    cmocka_unit_test(test_a_million_letters_are_no_different),
    cmocka_unit_test(test_every_length_around_a_block_is_padded_right),
    cmocka_unit_test(test_hmac_keeps_to_rfc_4231),
    cmocka_unit_test(test_secrets_are_the_same_only_when_every_byte_is),
};

TEST_MAIN(tests)
