/* SPDX-License-Identifier: Apache-2.0 */
/* Names of hosts, as hostile commands spell them. */
#include "base/hostname.h"
#include "test.h"

static const char *read_copy(struct sp_str text, struct sp_hostname *ret)
{
    char *copy = test_copy(text);
    const char *wrong = sp_hostname_read((struct sp_str){copy, text.n}, ret);

    free(copy);
    return wrong;
}

static void reads(const char *text, const char *want, bool is_address, bool is_local)
{
    struct sp_hostname h = {0};
    const char *wrong = read_copy(sp_str_of(text), &h);

    if (wrong != NULL)
        fail_msg("%s %s", text, wrong);
    assert_string_equal(h.text, want);
    if (h.is_address != is_address || h.is_local != is_local)
        fail_msg("%s: address %d, local %d", text, h.is_address, h.is_local);
}

static void refuses_bytes(struct sp_str text)
{
    struct sp_hostname h = {.text = "untouched"};

    if (read_copy(text, &h) == NULL)
        fail_msg("<%.*s> is taken for %s", (int)text.n, text.p, h.text);
    assert_string_equal(h.text, "untouched");
}

static void refuses(const char *text)
{
    refuses_bytes(sp_str_of(text));
}

static void test_a_name_has_one_spelling(void **state)
{
    (void)state;
    reads("x.com", "x.com", false, false);
    reads("X.CoM", "x.com", false, false);
    reads("x.com.", "x.com", false, false);
    reads("x.com..", "x.com", false, false);
    reads("Api.X.com.:443", "api.x.com", false, false);
    reads("  x.com ", "x.com", false, false);
    reads("r3---sn-a.x.com", "r3---sn-a.x.com", false, false);
    reads("_srv.x.com", "_srv.x.com", false, false);
    reads("xn--bcher-kva.example", "xn--bcher-kva.example", false, false);
    reads("1password.com", "1password.com", false, false);
    reads("0xabc.com", "0xabc.com", false, false);
    reads("intranet", "intranet", false, false);
}

static void test_what_is_no_host_is_refused(void **state)
{
    static const char *const bad[] = {
        "",
        " ",
        ".",
        "..",
        ".x.com",
        "x..com",
        "x com",
        "x\tcom",
        "x.com\n",
        "\nx.com",
        "x.com\r",
        "x.com\x01",
        "\x7fx.com",
        "x.com/",
        "http://x",
        "x?y",
        "x#y",
        "*.x.com",
        "*",
        "u@x.com",
        "x,y",
        "x.com:",
        ":80",
        "x:y",
        "x:80:80",
        "[x.com]",
        "[::1",
        "::1]",
        "[]",
        "[::1]x",
        "[127.0.0.1]",
        "[[::1]]",
        "x[1]",
        "\\x",
        "x%2ecom",
        "x.com\xe2\x80y", /* no white space: not even UTF-8 */
        "%00",
        "x\"y",
        "x'y",
        "$(x)",
        "x;y",
        "x&y",
        "<x>",
        "b\xC3\xBC",
        "\xff.com",
        "\xE2\x91\xA0.1.1.1",
        "x\xE3\x80\x82.com",
        "x=y",
        "x+y",
        "(x)",
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        refuses(bad[i]);
    refuses_bytes(SP_STR("x.com\0.y"));
    refuses_bytes(SP_STR("\0"));
    refuses_bytes((struct sp_str){0});
}

static void test_a_name_is_only_so_long(void **state)
{
    char name[600];

    (void)state;
    memset(name, 'a', sizeof name);
    refuses_bytes((struct sp_str){name, sizeof name});
    refuses_bytes((struct sp_str){name, 64}); /* one label */
    for (size_t i = 63; i < sizeof name; i += 64)
        name[i] = '.';
    struct sp_hostname h;
    assert_null(read_copy((struct sp_str){name, 63}, &h));
    assert_null(read_copy((struct sp_str){name, 253}, &h));
    assert_int_equal(strlen(h.text), 253);
    refuses_bytes((struct sp_str){name, 254});
    refuses_bytes((struct sp_str){name, 255});
}

static void test_an_address_is_what_the_resolver_takes_it_for(void **state)
{
    (void)state;
    reads("8.8.8.8", "8.8.8.8", true, false);
    reads("0x08.010.8.8", "8.8.8.8", true, false);
    reads("134744072", "8.8.8.8", true, false);
    reads("8.8.2056", "8.8.8.8", true, false);
    reads("8.8.8.8.", "8.8.8.8", true, false);
    reads("8.8.8.8:53", "8.8.8.8", true, false);
    reads("[2606:4700::1111]", "2606:4700::1111", true, false);
    reads("2606:4700:0:0::1111", "2606:4700::1111", true, false);
    reads("[2606:4700::1111]:443", "2606:4700::1111", true, false);
    reads("2606:4700::ABCD", "2606:4700::abcd", true, false);
    reads("::ffff:8.8.8.8", "8.8.8.8", true, false);
    reads("::ffff:808:808", "8.8.8.8", true, false);
    reads("::8.8.8.8", "::8.8.8.8", true, false);
}

static void test_numbers_that_are_no_address_are_no_name(void **state)
{
    static const char *const bad[] = {"256.1.1.1",    "1.2.3.4.5",
                                      "08.1.1.1",     "1.1.1.0x",
                                      "x.com.1",      "4294967296",
                                      "1.1.1.256",    "0x100000000",
                                      "x.0x7f",       "1.2.3.65536.1",
                                      "1:2:3",        "::g",
                                      ":::",          "1::2::3",
                                      "fe80::1%",     "fe80::1%a%b",
                                      "fe80::1%a/b",  "fe80::1%a.\xe2\x80\x83.",
                                      "::ffff:1.2.3", "::1%01234567890123456"};

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        refuses(bad[i]);
}

static void test_loopback_is_local_however_it_is_spelled(void **state)
{
    static const char *const spellings[] = {"127.0.0.1",
                                            "127.1",
                                            "0x7f.1",
                                            "0x7F.1",
                                            "2130706433",
                                            "0x7f000001",
                                            "017700000001",
                                            "127.0.1",
                                            "0177.0.0.1",
                                            "127.0.0.1.",
                                            "127.0.0.1:80",
                                            "::ffff:127.0.0.1",
                                            "[::ffff:127.0.0.1]:80",
                                            "::ffff:7f00:1",
                                            "[0:0:0:0:0:FFFF:7F00:0001]"};

    (void)state;
    for (size_t i = 0; i < sizeof spellings / sizeof spellings[0]; i++)
        reads(spellings[i], "127.0.0.1", true, true);
    reads("[::1]", "::1", true, true);
    reads("0:0:0:0:0:0:0:1", "::1", true, true);
    reads("0.0.0.0", "0.0.0.0", true, true);
    reads("0", "0.0.0.0", true, true);
    reads("::", "::", true, true);
    reads("127.255.255.254", "127.255.255.254", true, true);
    reads("LOCALHOST.", "localhost", false, true);
    reads("a.b.localhost", "a.b.localhost", false, true);
    reads("ip6-loopback", "ip6-loopback", false, true);
    reads("localhost.localdomain", "localhost.localdomain", false, true);
    reads("notlocalhost", "notlocalhost", false, false);
    reads("localhost.x.com", "localhost.x.com", false, false);
}

static void test_what_is_not_public_is_local(void **state)
{
    static const char *const local[] = {
        "0.1.2.3",         "10.0.0.1",   "10.255.255.255", "100.64.0.1",      "100.127.255.255",
        "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.1",       "192.0.2.1",
        "192.168.1.1",     "198.18.0.1", "198.19.255.255", "198.51.100.1",    "203.0.113.9",
        "224.0.0.1",       "239.1.1.1",  "240.0.0.1",      "255.255.255.255",
    };
    static const char *const public[] = {
        "1.0.0.1",      "9.255.255.255", "11.0.0.0",       "100.63.255.255", "100.128.0.0",
        "126.1.1.1",    "128.0.0.1",     "169.253.1.1",    "172.15.0.1",     "172.32.0.1",
        "192.0.1.1",    "192.0.3.1",     "192.167.1.1",    "198.17.1.1",     "198.20.0.1",
        "198.51.101.1", "203.0.114.1",   "223.255.255.255"};
    static const char *const local_v6[] = {
        "ff02::1",           "fc00::1",      "fdff::1",      "fe80::1",     "febf::1",
        "fec0::1",           "::127.0.0.1",  "::10.0.0.1",   "2001:db8::1", "64:ff9b::10.0.0.1",
        "2002:7f00:1::1",    "2002:a00:1::", "64:ff9b:1::1", "100::1",      "2001::1",
        "2001:2::1",         "2001:1ff::1",  "3fff::1",      "3fff:fff::1", "5f00::1",
        "::ffff:0:127.0.0.1"};
    static const char *const public_v6[] = {"2001:200::1", "2001:4860::8888", "3ffe::1",
                                            "4000::1",     "5f01::1",         "2606:4700::1"};
    struct sp_hostname h;

    (void)state;
    for (size_t i = 0; i < sizeof local / sizeof local[0]; i++)
        reads(local[i], local[i], true, true);
    for (size_t i = 0; i < sizeof public / sizeof public[0]; i++)
        reads(public[i], public[i], true, false);
    for (size_t i = 0; i < sizeof local_v6 / sizeof local_v6[0]; i++) {
        assert_null(sp_hostname_read(sp_str_of(local_v6[i]), &h));
        if (!h.is_local)
            fail_msg("%s is not local", local_v6[i]);
    }
    for (size_t i = 0; i < sizeof public_v6 / sizeof public_v6[0]; i++)
        reads(public_v6[i], public_v6[i], true, false);
    reads("fe80::1%eth0", "fe80::1%eth0", true, true);
    reads("2606:4700::1%lo", "2606:4700::1%lo", true, true);
    assert_null(sp_hostname_read(SP_STR("64:ff9b::8.8.8.8"), &h));
    assert_false(h.is_local);
    assert_null(sp_hostname_read(SP_STR("2002:808:808::1"), &h));
    assert_false(h.is_local);
}

static void test_metadata_is_never_public(void **state)
{
    static const char *const metadata[] = {"169.254.169.254", "169.254.0.1",    "168.63.129.16",
                                           "100.100.100.200", "fd00:ec2::254",  "0xa83f8110",
                                           "::169.254.1.1",   "64:ff9b::a9fe:1"};
    static const char *const other[] = {"168.63.129.17", "10.0.0.1", "8.8.8.8", "fd00:ec2::253"};
    struct sp_hostname h;

    (void)state;
    for (size_t i = 0; i < sizeof metadata / sizeof metadata[0]; i++) {
        assert_null(sp_hostname_read(sp_str_of(metadata[i]), &h));
        if (!h.is_metadata || !h.is_local)
            fail_msg("%s counts as public", metadata[i]);
        assert_true(sp_address_is_metadata(h.family, h.address));
        assert_true(sp_address_is_local(h.family, h.address));
    }
    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++) {
        assert_null(sp_hostname_read(sp_str_of(other[i]), &h));
        assert_false(h.is_metadata);
    }
}

static bool matches(const char *pattern, const char *host, uint16_t port)
{
    struct sp_hostname_pattern p;
    const char *wrong = sp_hostname_pattern_read(sp_str_of(pattern), false, &p);

    if (wrong != NULL)
        fail_msg("%s %s", pattern, wrong);
    return sp_hostname_pattern_matches(&p, host, port);
}

static void test_patterns(void **state)
{
    static const struct {
        const char *pattern, *host;
        bool matches;
    } rows[] = {
        {"a.example", "a.example", true},
        {"A.Example.", "a.example", true},
        {"a.example", "b.a.example", false},
        {"*.a.example", "a.example", false},
        {"*.a.example", "b.a.example", true},
        {"*.a.example", "c.b.a.example", true},
        {"*.a.example", "ba.example", false},
        {"**.a.example", "a.example", true},
        {"**.a.example", "c.b.a.example", true},
        {"**.a.example", "ba.example", false},
        {"a*.example", "a.b.example", true},
        {"a*.example", "b.example", false},
        {"region-?.x.example", "region-1.x.example", true},
        {"region-?.x.example", "region-12.x.example", false},
        {"*", "anything.example", true},
        {"[::1]", "::1", true},
        {"0x7f.1", "127.0.0.1", true},
        {"a*b*c", "axxbyyc", true},
        {"a*b*c", "axxbyy", false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (matches(rows[i].pattern, rows[i].host, 443) != rows[i].matches)
            fail_msg("%s and %s", rows[i].pattern, rows[i].host);
    assert_true(matches("a.example:443", "a.example", 443));
    assert_false(matches("a.example:443", "a.example", 22));
    assert_true(matches("*.a.example:22", "b.a.example", 22));
    assert_true(matches("[::1]:8080", "::1", 8080));
    assert_false(matches("[::1]:8080", "::1", 80));
    assert_true(matches("::1", "::1", 80));
}

static void test_patterns_that_are_refused(void **state)
{
    static const char *const wrong[] = {"",           "a[bc].example", "a{b,c}.example",
                                        "*.[a].b",    "a b.*",         "a.example:0",
                                        "a.ex:99999", "http://a/*",    "*.a/b"};
    struct sp_hostname_pattern p = {.text = "untouched"};

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        if (sp_hostname_pattern_read(sp_str_of(wrong[i]), false, &p) == NULL)
            fail_msg("<%s> is taken for %s", wrong[i], p.text);
    assert_non_null(sp_hostname_pattern_read(SP_STR("*"), true, &p));
    assert_non_null(sp_hostname_pattern_read(SP_STR("**"), true, &p));
    assert_string_equal(p.text, "untouched");
    assert_null(sp_hostname_pattern_read(SP_STR("*.x"), true, &p));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_a_name_has_one_spelling),
    cmocka_unit_test(test_what_is_no_host_is_refused),
    cmocka_unit_test(test_a_name_is_only_so_long),
    cmocka_unit_test(test_an_address_is_what_the_resolver_takes_it_for),
    cmocka_unit_test(test_numbers_that_are_no_address_are_no_name),
    cmocka_unit_test(test_loopback_is_local_however_it_is_spelled),
    cmocka_unit_test(test_what_is_not_public_is_local),
    cmocka_unit_test(test_metadata_is_never_public),
    cmocka_unit_test(test_patterns),
    cmocka_unit_test(test_patterns_that_are_refused),
};

TEST_MAIN(tests)
