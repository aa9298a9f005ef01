/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/uri.h"
#include "test.h"

/* Reads `text` from an exact copy on the heap. */
static int read_uri(struct sp_str text, struct sp_uri *u, struct sp_err *e)
{
    char *copy = test_copy(text);
    const int r = sp_uri_read((struct sp_str){copy, text.n}, u, e);

    free(copy);
    return r;
}

static void reads_as(const char *text, const char *canonical, const char *path)
{
    struct sp_uri u = {0};
    struct sp_err e = {0};

    if (read_uri(sp_str_of(text), &u, &e) < 0)
        fail_msg("%s: %s", text, e.msg);
    assert_string_equal(u.text, canonical);
    assert_false(u.is_foreign);
    assert_string_equal(u.path, path);
    sp_uri_done(&u);
}

static void is_foreign(const char *text, const char *canonical)
{
    struct sp_uri u = {0};
    struct sp_err e = {0};

    if (read_uri(sp_str_of(text), &u, &e) < 0)
        fail_msg("%s: %s", text, e.msg);
    assert_true(u.is_foreign);
    assert_null(u.path);
    assert_string_equal(u.text, canonical);
    sp_uri_done(&u);
}

static void refused_n(struct sp_str text, const char *why)
{
    struct sp_uri u = {.is_foreign = true};
    struct sp_err e = {0};

    assert_int_equal(read_uri(text, &u, &e), -SP_E_INVALID);
    assert_string_equal(e.msg, why);
    assert_true(u.is_foreign && u.text == NULL && u.path == NULL); /* untouched */
}

static void refused(const char *text, const char *why)
{
    refused_n(sp_str_of(text), why);
}

static void test_an_ordinary_uri_is_its_path(void **state)
{
    (void)state;
    reads_as("file:///tmp/example", "file:///tmp/example", "/tmp/example");
    reads_as("file:///", "file:///", "/");
    reads_as("file:///a%20b", "file:///a%20b", "/a b");
    reads_as("file:///caf%C3%A9", "file:///caf%C3%A9", "/caf\xC3\xA9");
    reads_as("file:///caf\xC3\xA9", "file:///caf%C3%A9", "/caf\xC3\xA9");
    reads_as("file:///a%ff", "file:///a%ff", "/a\xFF"); /* need not be UTF-8; hex case is kept */
}

static void test_rule_1_trims_and_deletes(void **state)
{
    (void)state;
    reads_as("  file:///x\t\r\n ", "file:///x", "/x");
    reads_as("\x01\x1F"
             "file:///x\x02",
             "file:///x", "/x");
    reads_as("fi\tle:\n//\r/x/\ty", "file:///x/y", "/x/y");
    reads_as("file:///a/%2\te%2\ne/b", "file:///b", "/b");
    reads_as("file:///a b", "file:///a%20b", "/a b");
    refused("", "invalid URI: relative URL without a base");
    refused(" \t\n", "invalid URI: relative URL without a base");
    refused("\t\x7F\n", "invalid URI: relative URL without a base");
}

static void test_rule_2_asks_for_the_scheme(void **state)
{
    (void)state;
    reads_as("FILE:///x", "file:///x", "/x");
    reads_as("FiLe:/x", "file:///x", "/x");
    refused("/tmp/x", "invalid URI: relative URL without a base");
    refused("tmp", "invalid URI: relative URL without a base");
    refused("file", "invalid URI: relative URL without a base");
    refused("://x", "invalid URI: relative URL without a base");
    refused("1file:///x", "invalid URI: relative URL without a base");
    refused("fi le:///x", "invalid URI: relative URL without a base");
    refused("http://host/x", "unsupported path URI scheme `http`");
    refused("HTTP://host/x", "unsupported path URI scheme `http`");
    refused("C:/x", "unsupported path URI scheme `c`");
    refused("filex:///x", "unsupported path URI scheme `filex`");
    refused("a1+-.:x", "unsupported path URI scheme `a1+-.`");
}

static void test_rule_3_counts_slashes_and_hosts(void **state)
{
    (void)state;
    reads_as("file:/x", "file:///x", "/x");
    reads_as("file:x", "file:///x", "/x");
    reads_as("file:x/y", "file:///x/y", "/x/y");
    reads_as("file:", "file:///", "/");
    reads_as("file://", "file:///", "/");
    reads_as("file:/", "file:///", "/");
    reads_as("file:\\\\\\x\\y", "file:///x/y", "/x/y");
    reads_as("file:\\x", "file:///x", "/x");
    reads_as("file://localhost/x", "file:///x", "/x");
    reads_as("file://LOCALhost/x", "file:///x", "/x");
    reads_as("file://localhost", "file:///", "/");
    reads_as("file://%6cocalhos%74/x", "file:///x", "/x");
    reads_as("file:\\\\localhost\\x", "file:///x", "/x");
    reads_as("file:////x", "file:////x", "//x");
    refused("file://user@host/x", "invalid URI: invalid international domain name");
    refused("file://user:pw@host/x", "invalid URI: invalid international domain name");
    refused("file://host:80/x", "invalid URI: invalid international domain name");
    refused("file://localhost:80/x", "invalid URI: invalid international domain name");
    refused("file://a b/x", "invalid URI: invalid international domain name");
    refused("file://a%00b/x", "invalid URI: invalid international domain name");
    refused("file://a%2Fb/x", "invalid URI: invalid international domain name");
    refused("file://%/x", "invalid URI: invalid international domain name");
    refused("file://h\xC3\xA9/x", "invalid URI: invalid international domain name");
    refused("file://[::1/x", "invalid URI: invalid international domain name");
    refused("file://[zz]/x", "invalid URI: invalid IPv6 address");
    refused("file://a@b/x?q", "invalid URI: invalid international domain name");
}

static void test_rule_4_allows_neither_query_nor_fragment(void **state)
{
    (void)state;
    refused("file:///x?y", "query parameters are not allowed in path URIs");
    refused("file:///x?", "query parameters are not allowed in path URIs");
    refused("file:///x#y", "fragments are not allowed in path URIs");
    refused("file:///x#", "fragments are not allowed in path URIs");
    refused("file:///x?y#z", "query parameters are not allowed in path URIs");
    refused("file:///x#y?z", "fragments are not allowed in path URIs");
    refused("file:?", "query parameters are not allowed in path URIs");
    refused("file://?", "query parameters are not allowed in path URIs");
    refused("file://host#", "fragments are not allowed in path URIs");
    refused("file:///tmp%00x#", "fragments are not allowed in path URIs");
    reads_as("file:///x%3Fy%23z", "file:///x%3Fy%23z", "/x?y#z");
}

static void test_rule_5_resolves_dots_in_every_spelling(void **state)
{
    (void)state;
    reads_as("file:///a/./b", "file:///a/b", "/a/b");
    reads_as("file:///a/../b", "file:///b", "/b");
    reads_as("file:///a/%2e%2e/b", "file:///b", "/b");
    reads_as("file:///a/%2E%2e/b", "file:///b", "/b");
    reads_as("file:///a/.%2e/b", "file:///b", "/b");
    reads_as("file:///a/%2E./b", "file:///b", "/b");
    reads_as("file:///a/%2e/b", "file:///a/b", "/a/b");
    reads_as("file:///a/..", "file:///", "/");
    reads_as("file:///a/b/..", "file:///a/", "/a/");
    reads_as("file:///a/.", "file:///a/", "/a/");
    reads_as("file:///../../etc", "file:///etc", "/etc");
    reads_as("file:///..", "file:///", "/");
    reads_as("file:..", "file:///", "/");
    reads_as("file:///a\\..\\b", "file:///b", "/b");
    reads_as("file:///a//../b", "file:///a/b", "/a/b");
    reads_as("file:////..", "file:///", "/");
    reads_as("file:///a/.../b", "file:///a/.../b", "/a/.../b");
    reads_as("file:///a/..b/.c", "file:///a/..b/.c", "/a/..b/.c");
    reads_as("file:///a/%2e%2e%2e", "file:///a/%2e%2e%2e", "/a/...");
    reads_as("file:///a/%2", "file:///a/%2", "/a/%2");
    /* Within a segment %2F makes no segments: the kernel gets what was meant. */
    reads_as("file:///a/x%2F..%2Fb", "file:///a/x%2F..%2Fb", "/a/x/../b");
}

static void test_rule_6_refuses_nul(void **state)
{
    (void)state;
    refused("file:///tmp%00x", "'file:///tmp%00x' is invalid on 'linux'");
    refused("file:///%00", "'file:///%00' is invalid on 'linux'");
    refused_n(SP_STR("file:///a\0b"), "'file:///a%00b' is invalid on 'linux'");
    refused("file://host/%00", "'file://host/%00' is invalid on 'linux'");
    reads_as("file:///%2500", "file:///%2500", "/%00");
    reads_as("file:///a/%00/../b", "file:///a/b", "/a/b");
}

static void test_rule_8_tells_the_foreign_apart(void **state)
{
    (void)state;
    is_foreign("file://host/tmp", "file://host/tmp");
    is_foreign("file://HOST/tmp", "file://host/tmp");
    is_foreign("file://host", "file://host/");
    is_foreign("file:\\\\server\\share", "file://server/share");
    is_foreign("file://localhost.example/x", "file://localhost.example/x");
    is_foreign("file://[::1]/x", "file://[::1]/x");
    is_foreign("file:///C:/x", "file:///C:/x");
    is_foreign("file:///c:/x", "file:///C:/x");
    is_foreign("file:///c|/x", "file:///C:/x");
    is_foreign("file:///C:", "file:///C:");
    is_foreign("file:///c:/", "file:///C:/");
    is_foreign("file:c:/x", "file:///C:/x");
    is_foreign("file:/c:/x", "file:///C:/x");
    is_foreign("file://c:/x", "file:///C:/x");
    is_foreign("file://c|/x", "file:///C:/x");
    is_foreign("file:////c:/x", "file:////C:/x");
    is_foreign("file://localhost/c:/x", "file:///C:/x");
    is_foreign("file:///a/../c:/x", "file:///C:/x");
    is_foreign("file:///C:/../x", "file:///C:/x"); /* a drive is not left */
    is_foreign("file:///C:/..", "file:///C:/");
    is_foreign("file:///%43:/x", "file:///%43:/x"); /* whatever way it is spelled */
    is_foreign("file:///C%3A/x", "file:///C%3A/x");
    is_foreign("file:///%2FC:%2Fx", "file:///%2FC:%2Fx");
    reads_as("file:///CC:/x", "file:///CC:/x", "/CC:/x");
    reads_as("file:///1:/x", "file:///1:/x", "/1:/x");
    reads_as("file:///C:x", "file:///C:x", "/C:x");
    reads_as("file:///a/C:/x", "file:///a/C:/x", "/a/C:/x");
    reads_as("file:///C%7C/x", "file:///C%7C/x", "/C|/x");
}

static void test_rule_9_decodes_to_bytes(void **state)
{
    (void)state;
    reads_as("file:///a%2Fb", "file:///a%2Fb", "/a/b");
    reads_as("file:///a%2fb", "file:///a%2fb", "/a/b");
    reads_as("file:///100%", "file:///100%", "/100%");
    reads_as("file:///%zz%4", "file:///%zz%4", "/%zz%4");
    reads_as("file:///%%41", "file:///%%41", "/%A");
    reads_as("file:///a%5Cb", "file:///a%5Cb", "/a\\b");
    reads_as("file:///a//b///", "file:///a//b///", "/a//b///");
    reads_as("file:///%E9%80", "file:///%E9%80", "/\xE9\x80");
    reads_as("file:///\"<>`{}^|[]'", "file:///%22%3C%3E%60%7B%7D^|[]'", "/\"<>`{}^|[]'");
    reads_as("file:///\x7F\x01x", "file:///%7F%01x", "/\x7F\x01x");
}

static void test_a_path_that_looks_like_a_drive_has_one_spelling(void **state)
{
    (void)state;
    /* "/C:/x", "/C:", "//c:/y" */
    reads_as("file:///%00/bad/path/L0M6L3g", "file:///%00/bad/path/L0M6L3g", "/C:/x");
    reads_as("file:///%00/bad/path/L0M6", "file:///%00/bad/path/L0M6", "/C:");
    reads_as("file:///%00/bad/path/Ly9jOi95", "file:///%00/bad/path/Ly9jOi95", "//c:/y");
    /* "/C:/\xFB\xFF" needs both letters of the URL-safe alphabet. */
    reads_as("file:///%00/bad/path/L0M6L_v_", "file:///%00/bad/path/L0M6L_v_", "/C:/\xFB\xFF");

#define REFUSED(code) \
    refused("file:///%00/bad/path/" code, "'file:///%00/bad/path/" code "' is invalid on 'linux'")
    REFUSED("L3RtcA");   /* /tmp has an ordinary spelling */
    REFUSED("L0M6L3g="); /* padded */
    REFUSED("L0M6L3h");  /* bits after the last byte */
    REFUSED("L0M6L/v/"); /* the other alphabet */
    REFUSED("L0M6L3g/"); /* nothing can be joined */
    REFUSED("L0M6L3g/y");
    REFUSED("QzoveA");   /* C:/x is not absolute */
    REFUSED("L0M6LwAA"); /* a NUL in it */
    REFUSED("L");
    REFUSED("");
#undef REFUSED
    refused("file:///%00/bad/path", "'file:///%00/bad/path' is invalid on 'linux'");
    refused("file:///%00/bad/Path/L0M6L3g", "'file:///%00/bad/Path/L0M6L3g' is invalid on 'linux'");
    refused("file://h/%00/bad/path/L0M6L3g",
            "'file://h/%00/bad/path/L0M6L3g' is invalid on 'linux'");
}

static void test_a_long_uri_does_not_crowd_out_what_is_wrong(void **state)
{
    char text[3000];
    struct sp_uri u;
    struct sp_err e = {0};

    (void)state;
    memset(text, 'x', sizeof text);
    memcpy(text, "file:///%00", 11);
    assert_int_equal(read_uri((struct sp_str){text, sizeof text}, &u, &e), -SP_E_INVALID);
    assert_non_null(strstr(e.msg, "xxx…' is invalid on 'linux'"));
    memset(text, 'x', sizeof text);
    text[2999] = ':';
    assert_int_equal(read_uri((struct sp_str){text, sizeof text}, &u, &e), -SP_E_INVALID);
    assert_true(strlen(e.msg) < 200);
}

static void writes_as(const char *path, const char *want)
{
    auto_buf struct sp_buf out = {0};

    assert_true(sp_uri_add(&out, sp_str_of(path)));
    assert_true(sp_buf_add(&out, "", 1));
    assert_string_equal(out.data, want);
}

static void test_every_byte_is_written_as_measured(void **state)
{
    static const char kept[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                               "/!$&'()*+,-.:;=@[]^_|~";

    (void)state;
    for (unsigned c = 0; c < 256; c++) {
        auto_buf struct sp_buf out = {0};
        const char path[] = {'/', 'x', (char)c, 'y'};
        char want[32];

        if (c != 0 && strchr(kept, (int)c) != NULL)
            (void)snprintf(want, sizeof want, "file:///x%cy", (int)c);
        else
            (void)snprintf(want, sizeof want, "file:///x%%%02Xy", c);
        assert_true(sp_uri_add(&out, (struct sp_str){path, sizeof path}));
        assert_int_equal(out.len, strlen(want));
        assert_memory_equal(out.data, want, out.len);
    }
}

static void test_writing_chooses_the_spelling(void **state)
{
    (void)state;
    writes_as("/", "file:///");
    writes_as("/tmp/example", "file:///tmp/example");
    writes_as("/100%", "file:///100%25");
    writes_as("//x", "file:////x");
    writes_as("/C:/x", "file:///%00/bad/path/L0M6L3g");
    writes_as("/C:", "file:///%00/bad/path/L0M6");
    writes_as("//c:/y", "file:///%00/bad/path/Ly9jOi95");
    writes_as("/C:/\xFB\xFF", "file:///%00/bad/path/L0M6L_v_");
    writes_as("/C|/x", "file:///C%7C/x"); /* or it would read back as /C:/x */
    writes_as("/C|", "file:///C%7C");
    writes_as("/C|x", "file:///C|x");
    writes_as("/C:x", "file:///C:x");
    writes_as("/a/C:/x", "file:///a/C:/x");
}

static void test_no_room_leaves_the_buffer_as_it_was(void **state)
{
    (void)state;
    for (size_t max = 1; max < 40; max++) {
        static const char *const path[] = {"/a b/c", "/C:/x", "/C|/x y"};

        for (size_t i = 0; i < 3; i++) {
            auto_buf struct sp_buf out = {.max = max};

            assert_true(sp_buf_add(&out, "<", 1));
            if (!sp_uri_add(&out, sp_str_of(path[i])))
                assert_bytes(out.data, out.len, "<");
            else
                assert_true(out.len <= max);
        }
    }
}

static bool has_dot_component(const char *path)
{
    for (const char *p = path; (p = strchr(p, '/')) != NULL;) {
        const size_t n = strcspn(++p, "/");

        if ((n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
            return true;
    }
    return false;
}

static void test_every_path_comes_back_and_its_uri_is_canonical(void **state)
{
    static const char likely[] = "//..CcZ:|%20eE\\ ?#a\x80\xFF\xC3\n\t";
    uint64_t seed = 3;

    (void)state;
    for (int round = 0; round < 200000; round++) {
        char path[24] = "/";
        const size_t n = 1 + test_random(&seed) % 20;

        for (size_t i = 1; i < n; i++) {
            const uint32_t any = test_random(&seed);

            path[i] = any & 1 ? likely[any / 2 % (sizeof likely - 1)] : (char)(any / 2 % 255 + 1);
        }
        path[n] = 0;
        if (has_dot_component(path))
            continue;
        auto_buf struct sp_buf out = {0};
        auto_uri struct sp_uri u = {0};
        struct sp_err e = {0};
        assert_true(sp_uri_add(&out, (struct sp_str){path, n}));
        if (sp_uri_read((struct sp_str){out.data, out.len}, &u, &e) < 0)
            fail_msg("%s: %s", path, e.msg);
        assert_false(u.is_foreign);
        assert_string_equal(u.path, path);
        assert_int_equal(strlen(u.text), out.len);
        assert_memory_equal(u.text, out.data, out.len);
    }
}

static void test_done_accepts_nothing(void **state)
{
    struct sp_uri u = {0};

    (void)state;
    sp_uri_done(&u);
    sp_uri_done(&u);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_an_ordinary_uri_is_its_path),
    cmocka_unit_test(test_rule_1_trims_and_deletes),
    cmocka_unit_test(test_rule_2_asks_for_the_scheme),
    cmocka_unit_test(test_rule_3_counts_slashes_and_hosts),
    cmocka_unit_test(test_rule_4_allows_neither_query_nor_fragment),
    cmocka_unit_test(test_rule_5_resolves_dots_in_every_spelling),
    cmocka_unit_test(test_rule_6_refuses_nul),
    cmocka_unit_test(test_rule_8_tells_the_foreign_apart),
    cmocka_unit_test(test_rule_9_decodes_to_bytes),
    cmocka_unit_test(test_a_path_that_looks_like_a_drive_has_one_spelling),
    cmocka_unit_test(test_a_long_uri_does_not_crowd_out_what_is_wrong),
    cmocka_unit_test(test_every_byte_is_written_as_measured),
    cmocka_unit_test(test_writing_chooses_the_spelling),
    cmocka_unit_test(test_no_room_leaves_the_buffer_as_it_was),
    cmocka_unit_test(test_every_path_comes_back_and_its_uri_is_canonical),
    cmocka_unit_test(test_done_accepts_nothing),
};

TEST_MAIN(tests)
