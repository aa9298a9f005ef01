/* SPDX-License-Identifier: Apache-2.0 */
#include "base/auto.h"
#include "core/http_url.h"
#include "test.h"

static void reads(const char *text, const char *want)
{
    auto_web_url struct sp_web_url u = {0};
    struct sp_err e = {0};
    char *exact = test_copy(sp_str_of(text));

    assert_int_equal(sp_web_url_read((struct sp_str){exact, strlen(text)}, &u, &e), 0);
    free(exact);
    assert_true(u.is_http);
    assert_string_equal(u.text.data, want);
    assert_int_equal(u.text.len, strlen(want));
}

static void refuses(const char *text, const char *why)
{
    auto_web_url struct sp_web_url u = {0};
    struct sp_err e = {0};
    char *exact = test_copy(sp_str_of(text));

    assert_int_equal(sp_web_url_read((struct sp_str){exact, strlen(text)}, &u, &e), -SP_E_INVALID);
    free(exact);
    assert_string_equal(e.msg, why);
}

static void test_addresses(void **state)
{
    (void)state;
    reads("http://a", "http://a/");
    reads("HTTP://Site.Example:80/X", "http://site.example:80/X");
    reads("https://a?b", "https://a/?b");
    reads("https://a#b", "https://a/");
    reads("http:a/b", "http://a/b");
    reads("http:\\\\a\\b\\c?d\\e", "http://a/b/c?d\\e");
    reads(" \t http://a/b\n\r\tc \n", "http://a/bc");
    reads("http://a/b c?d e#f", "http://a/b%20c?d%20e");
    reads("http://a/\"<>`{}|%41?'\"<>`", "http://a/%22%3C%3E%60%7B%7D|%41?%27%22%3C%3E`");
    reads("http://a/\xc3\xa9", "http://a/%C3%A9");
    reads("http://[::1]:8080/x", "http://[::1]:8080/x");
    reads("http://a:/x", "http://a/x");
    reads("http://127.1/x", "http://127.1/x");
    reads("http://1.2.3.4.example/", "http://1.2.3.4.example/");
    reads("http://u:p@a/b", "http://a/b");
    reads("http://u@v@a/b", "http://a/b");
}

static void test_users(void **state)
{
    static const struct {
        const char *url, *user;
    } table[] = {{"http://u:p@a", "u:p"},       {"http://u@a", "u:"},
                 {"http://:p@a", ":p"},         {"http://u%40x:p%3A@a", "u@x:p:"},
                 {"http://u:p:q@a", "u:p:q"},   {"http://u%zz%4@a", "u%zz%4:"},
                 {"http://a@b:c@host", "a@b:c"}};

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        auto_web_url struct sp_web_url u = {0};
        struct sp_err e = {0};

        assert_int_equal(sp_web_url_read(sp_str_of(table[i].url), &u, &e), 0);
        assert_true(u.has_userinfo);
        assert_int_equal(u.userinfo.len, strlen(table[i].user));
        assert_memory_equal(u.userinfo.data, table[i].user, u.userinfo.len);
        assert_null(strchr(u.text.data, '@'));
    }
    auto_web_url struct sp_web_url none = {0};
    struct sp_err e = {0};
    assert_int_equal(sp_web_url_read(SP_STR("http://@a"), &none, &e), 0);
    assert_false(none.has_userinfo);
}

static void test_what_is_no_address(void **state)
{
    static const char relative[] = "relative URL without a base";
    static const char name[] = "invalid international domain name";
    auto_free char *long_one = malloc(70001);
    struct sp_err e = {0};

    (void)state;
    refuses("", relative);
    refuses("   ", relative);
    refuses("a/b", relative);
    refuses("//a/b", relative);
    refuses(":a", relative);
    refuses("1http://a", relative);
    refuses("http", relative);
    refuses("http:", "empty host");
    refuses("http://", "empty host");
    refuses("http://?a", "empty host");
    refuses("http://:80", "empty host");
    refuses("http://u:p@", "empty host");
    refuses("http://a:65536/", "invalid port number");
    refuses("http://a:8a/", "invalid port number");
    refuses("http://a:-1/", "invalid port number");
    refuses("http://[::1", "invalid IPv6 address");
    refuses("http://[]/", "invalid IPv6 address");
    refuses("http://[::1]x/", "invalid IPv6 address");
    refuses("http://[fe80::1%25eth0]/", "invalid IPv6 address");
    refuses("http://1.2.3.256/", "invalid IPv4 address");
    refuses("http://a.1/", "invalid IPv4 address");
    refuses("http://a b/", name);
    refuses("http://a%00b/", name);
    refuses("http://a<b/", name);
    assert_non_null(long_one);
    memset(long_one, 'x', 70000);
    memcpy(long_one, "http://a/", 9);
    long_one[70000] = 0;
    auto_web_url struct sp_web_url u = {0};
    assert_int_equal(sp_web_url_read(sp_str_of(long_one), &u, &e), -SP_E_INVALID);
    auto_web_url struct sp_web_url nul = {0};
    assert_int_equal(sp_web_url_read(SP_STR("http://a\0b/"), &nul, &e), -SP_E_INVALID);
}

static void test_other_schemes(void **state)
{
    static const char *const table[][2] = {
        {"ftp://a", "ftp"}, {"FILE:///x", "file"}, {"data:,", "data"}, {"a+b-c.d:x", "a+b-c.d"}};

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        auto_web_url struct sp_web_url u = {0};
        struct sp_err e = {0};

        assert_int_equal(sp_web_url_read(sp_str_of(table[i][0]), &u, &e), 0);
        assert_false(u.is_http);
        assert_int_equal(u.scheme.len, strlen(table[i][1]));
        assert_memory_equal(u.scheme.data, table[i][1], u.scheme.len);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_addresses),
    cmocka_unit_test(test_users),
    cmocka_unit_test(test_what_is_no_address),
    cmocka_unit_test(test_other_schemes),
};

TEST_MAIN(tests)
