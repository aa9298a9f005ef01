/* SPDX-License-Identifier: Apache-2.0 */
/* The language of rule files: what it is, and every way to get it wrong. */
#include "base/auto.h"
#include "base/buf.h"
#include "rules_fixture.h"

/* ---- what it is ---- */

/* The justification of one rule, which is the value that is read. */
static void value_is(const char *value, const char *expected, size_t n)
{
    char text[512];
    struct sp_rule_matches m = {0};

    (void)snprintf(text, sizeof text, "prefix_rule(['a'], justification=%s)", value);
    struct sp_rules *r = rules_of(text);
    assert_true(sp_rules_match(r, words("a"), true, &m));
    assert_int_equal(m.count, 1);
    assert_int_equal(m.items[0].justification.n, n);
    assert_memory_equal(m.items[0].justification.p, expected, n);
    sp_rule_matches_done(&m);
    sp_rules_unref(r);
}
#define VALUE(value, expected) value_is(value, expected, sizeof(expected) - 1)

static void test_strings(void **state)
{
    (void)state;
    VALUE("\"x\"", "x");
    VALUE("'x\"y'", "x\"y");
    VALUE("\"\"\"a\"b\"\"c\nd\"\"\"", "a\"b\"\"c\nd");
    VALUE("'''a\r\nb'''", "a\nb");
    VALUE("'a\rb'", "ab");
    VALUE("'\\\\\\\"\\'\\n\\r\\t\\b\\f\\v\\a\\0z'", "\\\"'\n\r\t\b\f\v\a\0z");
    VALUE("'\\x41\\xe9\\u00e9\\U0001F600'", "A\xC3\xA9\xC3\xA9\xF0\x9F\x98\x80");
    VALUE("'a\\\nb'", "ab");
    VALUE("'a\\\r\nbcdefghijklmnopqrstuvwxyzabcdefghijkl'",
          "abcdefghijklmnopqrstuvwxyzabcdefghijkl");
    VALUE("'\\08'", "\0"
                    "8");
    VALUE("r'a\\nb'", "a\\nb");
    VALUE("r'a\\'b'", "a'b");
    VALUE("r\"a\\\\\"", "a\\\\");
    VALUE("r'''a\\b'''", "a\\b");
    VALUE("'\x01\x7F'", "\x01\x7F");
    VALUE("'\xE2\x82\xAC'", "\xE2\x82\xAC");
}

static void test_values_are_joined_and_named(void **state)
{
    (void)state;
    VALUE("'a' + 'b' + r'c'", "abc");
    VALUE("('a' +\n ('b'))", "ab");
    says("x = 'git'\ny = [x, 'a' + 'b']\nx = 'other'\nprefix_rule(y + ['c'])", "git ab c",
         "allow git ab c");
    says("x = [1, None, True, False, 0x1F, 0o17, 0b1, 0, 99999999999999999999, []] + []\n"
         "x = 1 + 2\n_y1 = (x)\nprefix_rule(['a'])",
         "a", "allow a");
}

static void test_lines_blanks_and_comments(void **state)
{
    (void)state;
    says("# c\n\n   \n\t# d\nprefix_rule ( [ 'a' , # e\n 'b' , ] , )  # f\n#", "a b", "allow a b");
    says("prefix_rule(\npattern\n=\n['a'\n]\n)\r\n\r\nprefix_rule(['a'])\r\n", "a",
         "allow a, allow a");
    says("prefix_rule(['a'],'prompt',[],[],'why')", "a", "prompt a");
    says("prefix_rule(justification=None, pattern=['a'])", "a", "allow a");
    says("match = ['a']\nprefix_rule(match, match=['a b'])", "a", "allow a");
}

static void test_what_is_written_last_is_read(void **state)
{
    (void)state;
    says("prefix_rule(['a'])", "a", "allow a");
    says("", "a", "");
    says("\n", "a", "");
    says("#", "a", "");
    says("x=0", "a", "");
}

/* ---- what is wrong ---- */

static void test_calls_that_say_what_cannot_be(void **state)
{
    static const char *const cases[][2] = {
        {"prefix_rule([])", "invalid pattern element: pattern cannot be empty"},
        {"prefix_rule(['a', []])", "invalid pattern element: pattern alternatives cannot be empty"},
        {"prefix_rule([['a', 1]])",
         "invalid pattern element: pattern alternative must be a string (got int)"},
        {"prefix_rule([['a', ['b']]])",
         "invalid pattern element: pattern alternative must be a string (got list)"},
        {"prefix_rule([None])", "invalid pattern element: pattern element must be a string or list "
                                "of strings (got NoneType)"},
        {"prefix_rule([True])",
         "invalid pattern element: pattern element must be a string or list of strings (got bool)"},
        {"prefix_rule(['a'], 'deny')",
         "invalid decision: deny\n    it can be allow, prompt or forbidden"},
        {"prefix_rule(['a'], match=[''])", "invalid example: example cannot be an empty string"},
        {"prefix_rule(['a'], match=[' # c'])",
         "invalid example: example cannot be an empty string"},
        {"prefix_rule(['a'], not_match=[[]])", "invalid example: example cannot be an empty list"},
        {"prefix_rule(['a'], match=['a \"'])",
         "invalid example: example string has invalid shell syntax"},
        {"prefix_rule(['a'], match=[['a', 1]])",
         "invalid example: example tokens must be strings (got int)"},
        {"prefix_rule(['a'], match=[1])",
         "invalid example: example must be a string or list of strings (got int)"},
        {"prefix_rule(['a'], justification=' \\t\\u2003')",
         "invalid rule: justification cannot be empty"},
        {"host_executable('', [])", "invalid rule: host_executable name cannot be empty"},
        {"host_executable('a/b', [])",
         "invalid rule: host_executable name must be a bare executable name (got a/b)"},
        {"host_executable('..', [])",
         "invalid rule: host_executable name must be a bare executable name (got ..)"},
        {"host_executable('git', ['git'])",
         "invalid rule: host_executable paths must be absolute (got git)"},
        {"host_executable('git', [1])",
         "invalid rule: host_executable paths must be strings (got int)"},
        {"host_executable('git', ['/usr/bin/gitx'])",
         "invalid rule: host_executable path `/usr/bin/gitx` must have basename `git`"},
        {"network_rule(' ', 'https', 'allow')", "invalid rule: network_rule host cannot be empty"},
        {"network_rule('[]', 'https', 'allow')", "invalid rule: network_rule host cannot be empty"},
        {"network_rule('https://x', 'https', 'allow')",
         "invalid rule: network_rule host must be a hostname or IP literal (without scheme or "
         "path)"},
        {"network_rule('*.x', 'https', 'allow')",
         "invalid rule: network_rule host must be a specific host; wildcards are not allowed"},
        {"network_rule('x y', 'https', 'allow')",
         "invalid rule: network_rule host cannot contain whitespace"},
        {"network_rule('[::1', 'https', 'allow')",
         "invalid rule: network_rule host has an invalid bracketed IPv6 literal"},
        {"network_rule('[::1]:x', 'https', 'allow')",
         "invalid rule: network_rule host contains an unsupported suffix: [::1]:x"},
        {"network_rule('x', 'ftp', 'allow')",
         "invalid rule: network_rule protocol must be one of http, https, socks5_tcp, socks5_udp "
         "(got ftp)"},
        {"network_rule('x', 'http', 'ask')",
         "invalid decision: ask\n    it can be allow, prompt or deny"},
        {"network_rule('', 'http', 'allow', '')", "invalid rule: justification cannot be empty"},
        {"prefix_rule(['ls'], match=['cat x', 'ls', \"d 'e f'\"])",
         "expected every example to match at least one rule. rules: [prefix_rule([\"ls\"])]; "
         "unmatched examples: [\"cat x\", \"d 'e f'\"]"},
        {"prefix_rule([['ls', 'll'], ['a', 'b'], 'c'], not_match=['ls', 'll b c d'])",
         "expected example to not match rule `prefix_rule([[\"ls\", \"ll\"], [\"a\", \"b\"], "
         "\"c\"])`: ll b c d"},
        {"prefix_rule(1)",
         "Type of parameter `pattern` doesn't match, expected `list`, actual `int`"},
        {"prefix_rule(['a'], None)",
         "Type of parameter `decision` doesn't match, expected `str`, actual `NoneType`"},
        {"prefix_rule()", "Missing parameter `pattern` for call to `prefix_rule`"},
        {"network_rule('x', 'http')", "Missing parameter `decision` for call to `network_rule`"},
        {"host_executable('a', [], 1, 2, 3, 4)",
         "Found 4 extra positional argument(s) for call to host_executable"},
        {"prefix_rule(['a'], foo=1)",
         "Found `foo` extra named parameter(s) for call to prefix_rule"},
        {"prefix_rule(['a'], pattern=['b'])", "Argument `pattern` occurs more than once"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256];
        char expected[512];

        (void)snprintf(text, sizeof text, "# c\n%s\n", cases[i][0]);
        (void)snprintf(expected, sizeof expected, "x.rules:2:1: %s", cases[i][1]);
        refuses(text, expected);
    }
}

static void test_texts_that_are_not_of_the_language(void **state)
{
    static const char *const cases[][2] = {
        {"prefix_rule(['a']", "1:18: unexpected end of the file, expected `)`"},
        {"prefix_rule(['a'", "1:17: unexpected end of the file, expected `]`"},
        {"prefix_rule(['a'])]", "1:19: unexpected `]`, expected the end of the line"},
        {"prefix_rule(,)", "1:13: unexpected `,`, expected a value"},
        {"x = [,]", "1:6: unexpected `,`, expected a value"},
        {"x = ['a' 'b']", "1:10: unexpected `'`, expected `]`"},
        {"x =\n1", "1:4: unexpected end of the line, expected a value"},
        {"x = 'a", "1:5: unfinished string literal"},
        {"x = 'a\nb'", "1:5: unfinished string literal"},
        {"x = '''a'", "1:5: unfinished string literal"},
        {"x = 'a\\", "1:5: unfinished string literal"},
        {"x = r'\\", "1:5: unfinished string literal"},
        {"x = '\\q'", "1:7: unsupported string escape; a backslash itself is written `\\\\`"},
        {"x = '\\101'", "1:7: unsupported string escape; a backslash itself is written `\\\\`"},
        {"x = '\\x4'", "1:7: invalid string escape sequence: `\\x` needs 2 hexadecimal digits"},
        {"x = '\\uD800'", "1:7: invalid string escape sequence `uD800`: not a character"},
        {"x = '\xC3\xA9' 1", "1:9: unsupported expression"},
        {"x = y", "1:5: variable `y` not found"},
        {"x = 'a' + 1", "1:5: Operation `+` not supported for types `string` and `int`"},
        {"x = [] + 'a'", "1:5: Operation `+` not supported for types `list` and `string`"},
        {"x = True + True", "1:5: Operation `+` not supported for types `bool` and `bool`"},
        {"x = 007", "1:5: an integer does not begin with 0"},
        {"x = 1.5", "1:5: unsupported expression"},
        {"x = -1", "1:5: unsupported expression"},
        {"x = 1a", "1:5: unsupported expression"},
        {"x = ()", "1:6: unsupported expression"},
        {"x = (1, 2)", "1:7: unsupported expression"},
        {"x = {}", "1:5: unsupported expression"},
        {"x = f'a'", "1:5: unsupported expression"},
        {"x = len([])", "1:5: unsupported expression"},
        {"x = prefix_rule(['a'])", "1:5: unsupported expression"},
        {"x = [1][0]", "1:8: unsupported expression"},
        {"x = 'a'.upper()", "1:8: unsupported expression"},
        {"x = [y for y in []]", "1:6: variable `y` not found"},
        {"x = 'a' if True else 'b'", "1:9: unsupported expression"},
        {"x = not True", "1:5: unsupported expression"},
        {"x == 1", "1:1: unsupported expression"},
        {"x += 1", "1:1: unsupported expression"},
        {"x, y = 1, 2", "1:1: unsupported expression"},
        {"'doc'", "1:1: unsupported expression"},
        {"1", "1:1: unsupported expression"},
        {"x", "1:1: unsupported expression"},
        {"def f():\n  pass", "1:1: unsupported expression"},
        {"for x in []:\n  pass", "1:1: unsupported expression"},
        {"load('a', 'b')", "1:1: unsupported expression"},
        {"print('a')",
         "1:1: there is no `print`: a rule is prefix_rule, network_rule or host_executable"},
        {"prefixrule(['a'])", "1:1: there is no `prefixrule`; did you mean `prefix_rule`?"},
        {"prefix_rule(*[])", "1:13: unsupported expression"},
        {"prefix_rule(['a']); x = 1", "1:19: unsupported expression"},
        {"prefix_rule \\\n(['a'])", "1:1: unsupported expression"},
        {"prefix_rule(['a'])\rx = 1", "1:19: unsupported expression"},
        {"\xEF\xBB\xBFx = 1", "1:1: unsupported expression"},
        {" x = 1", "1:1: unexpected indentation"},
        {"x = 1\n\n\ty = 1", "3:1: unexpected indentation"},
        {"None = 1", "1:1: `None` cannot be given another value"},
        {"prefix_rule = 1", "1:1: `prefix_rule` cannot be given another value"},
        {"for = 1", "1:1: unsupported expression"},
        {"prefix_rule(pattern=['a'], 'allow')", "1:28: positional argument after non positional"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char expected[512];

        (void)snprintf(expected, sizeof expected, "x.rules:%s", cases[i][1]);
        refuses(cases[i][0], expected);
    }
}

static void refuses_bytes(struct sp_str text, const char *expected)
{
    struct sp_rules_maker *m = sp_rules_maker_new();
    struct sp_err e = {0};

    assert_int_equal(add_rules(m, text, &e), -SP_E_INVALID);
    assert_string_equal(e.msg, expected);
    sp_rules_maker_free(m);
}

static void test_bytes_that_are_no_text(void **state)
{
    (void)state;
    refuses_bytes(SP_STR("x = 1\n\0"), "x.rules:2:1: a NUL byte");
    refuses_bytes(SP_STR("x = '\xC3\xA9\xFF\0'"), "x.rules:1:7: not valid UTF-8");
    refuses_bytes(SP_STR("# \0\xFF"), "x.rules:1:3: a NUL byte");
    refuses_bytes(SP_STR("x = '\xED\xA0\x80'"), "x.rules:1:6: not valid UTF-8");
}

/* ---- bounds ---- */

static void add_times(struct sp_buf *b, const char *text, size_t times)
{
    for (size_t i = 0; i < times; i++)
        assert_true(sp_buf_add(b, text, strlen(text)));
}

static struct sp_str text_of(const struct sp_buf *b)
{
    return (struct sp_str){b->data, b->len};
}

static void test_a_file_is_at_most_a_mebibyte(void **state)
{
    auto_buf struct sp_buf text = {0};
    struct sp_rules_maker *m = sp_rules_maker_new();
    struct sp_err e = {0};

    (void)state;
    add_times(&text, "# 23456789abcde\n", 65536);
    assert_int_equal(text.len, 1 << 20);
    assert_int_equal(add_rules(m, text_of(&text), &e), 0);
    sp_rules_maker_free(m);
    add_times(&text, "\n", 1);
    refuses_bytes(text_of(&text), "x.rules:1:1: the file has more than 1048576 bytes");
    add_times(&text, "# 23456789abcde\n", 655360);
    refuses_bytes(text_of(&text), "x.rules:1:1: the file has more than 1048576 bytes");
}

static void test_brackets_nest_64_deep(void **state)
{
    auto_buf struct sp_buf text = {0};
    struct sp_rules_maker *m = sp_rules_maker_new();
    struct sp_err e = {0};

    (void)state;
    add_times(&text, "x = ", 1);
    add_times(&text, "[(", 32);
    add_times(&text, "1", 1);
    add_times(&text, ")]", 32);
    assert_int_equal(add_rules(m, text_of(&text), &e), 0);
    sp_rules_maker_free(m);
    text.len = 0;
    add_times(&text, "x = ", 1);
    add_times(&text, "[", 65);
    add_times(&text, "]", 65);
    refuses_bytes(text_of(&text), "x.rules:1:69: nested deeper than 64");
    text.len = 0;
    add_times(&text, "prefix_rule(", 1);
    add_times(&text, "(", 900000);
    refuses_bytes(text_of(&text), "x.rules:1:76: nested deeper than 64");
}

/* Small texts that would become large values, many rules or much work. */
static void test_no_text_takes_more_than_its_share(void **state)
{
    auto_buf struct sp_buf text = {0};
    struct sp_err e = {0};
    struct sp_rules_maker *m = sp_rules_maker_new();

    (void)state;
    add_times(&text, "x = 'aaaaaaaaaaaaaaaa'\n", 1);
    add_times(&text, "x = x + x\n", 60);
    assert_int_equal(add_rules(m, text_of(&text), &e), -SP_E_INVALID);
    assert_non_null(strstr(e.msg, "take more than 64 MiB"));
    text.len = 0;
    add_times(&text, "x = ['a']\n", 1);
    add_times(&text, "x = x + x\n", 60);
    assert_int_equal(add_rules(m, text_of(&text), &e), -SP_E_INVALID);
    assert_non_null(strstr(e.msg, "take more than 64 MiB"));
    text.len = 0;
    add_times(&text, "x = ['a']\n", 1);
    add_times(&text, "x = x + x\n", 12);
    add_times(&text, "prefix_rule([x, x])\n", 5000);
    assert_int_equal(add_rules(m, text_of(&text), &e), -SP_E_INVALID);
    assert_non_null(strstr(e.msg, "more than 1048576 words"));
    text.len = 0;
    add_times(&text, "x = ['a']\n", 1);
    add_times(&text, "x = x + x\n", 17);
    add_times(&text, "prefix_rule(['b', x], not_match=x)\n", 1);
    assert_int_equal(add_rules(m, text_of(&text), &e), -SP_E_INVALID);
    assert_non_null(strstr(e.msg, "too many examples for so many alternatives"));
    text.len = 0;
    add_times(&text, "x = 'aaaaaaaaaaaaaaaa'\n", 1);
    add_times(&text, "x = x + x\n", 16);
    add_times(&text, "prefix_rule([x, x, x, x, x, x, x, x])\n", 100);
    assert_int_equal(add_rules(m, text_of(&text), &e), -SP_E_INVALID);
    assert_non_null(strstr(e.msg, "take more than 64 MiB"));
    text.len = 0;
    for (int i = 0; i < 60000; i++)
        assert_true(sp_buf_printf(&text, "v%d = []\n", i));
    assert_int_equal(add_rules(m, text_of(&text), &e), 0);
    sp_rules_maker_free(m);
}

/* ---- examples ---- */

static void test_examples_see_all_host_executables_of_their_file_and_before(void **state)
{
    struct sp_rules_maker *m = sp_rules_maker_new();
    struct sp_err e = {0};

    (void)state;
    says("prefix_rule(['git'], match=['/usr/bin/git x'], not_match=['/opt/git'])\n"
         "host_executable('git', ['/usr/bin/git'])",
         "git", "allow git");
    assert_int_equal(add_rules(m, SP_STR("host_executable('git', [])"), &e), 0);
    assert_int_equal(add_rules(m, SP_STR("prefix_rule(['git'], match=['/bin/git'])"), &e),
                     -SP_E_INVALID);
    assert_int_equal(add_rules(m, SP_STR("prefix_rule(['git'], not_match=['/bin/git'])"), &e), 0);
    sp_rules_maker_free(m);
}

static void test_examples_are_held_against_their_own_call(void **state)
{
    (void)state;
    says("prefix_rule(['a'])\nprefix_rule(['b'], not_match=['a'])", "a", "allow a");
    refuses("prefix_rule(['a'])\nprefix_rule(['b'], match=['a'])",
            "x.rules:2:1: expected every example to match at least one rule. rules: "
            "[prefix_rule([\"b\"])]; unmatched examples: [\"a\"]");
    /* What must not match is looked at first, and only once all of the file was read. */
    refuses("prefix_rule(['a'], match=['b'], not_match=['a'])\nx = y",
            "x.rules:2:5: variable `y` not found");
    refuses("prefix_rule(['a'], match=['b'], not_match=['a'])",
            "x.rules:1:1: expected example to not match rule `prefix_rule([\"a\"])`: a");
}

static void count_fault(void *user, const char *text)
{
    char *all = user;

    (void)snprintf(all + strlen(all), 2000 - strlen(all), "%s\n", text);
}

static void test_who_wants_to_hears_of_every_fault(void **state)
{
    char path[] = "/tmp/sp-rules-XXXXXX";
    const int fd = mkstemp(path);
    static const char text[] = "prefix_rule([])\n"
                               "prefix_rule(['a'], not_match=['a', 'a b'], match=['c'])\n"
                               "prefix_rule(['a'], 'x')\n"
                               "x = y\n"
                               "prefix_rule([])\n";
    char faults[2000] = "";
    struct sp_rules_maker *m = sp_rules_maker_new();
    struct sp_err e = {0};

    (void)state;
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    assert_int_equal(sp_rules_add_file(m, path, count_fault, faults, &e), -SP_E_INVALID);
    assert_int_equal(unlink(path), 0);
    assert_non_null(strstr(faults, ":1:1: invalid pattern element: pattern cannot be empty\n"));
    assert_non_null(strstr(faults, ":3:1: invalid decision: x\n"));
    assert_non_null(strstr(faults, ":4:5: variable `y` not found\n"));
    assert_null(strstr(faults, ":5:1:")); /* how it goes on after that is not known */
    sp_rules_maker_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_values_are_joined_and_named),
        cmocka_unit_test(test_lines_blanks_and_comments),
        cmocka_unit_test(test_what_is_written_last_is_read),
        cmocka_unit_test(test_calls_that_say_what_cannot_be),
        cmocka_unit_test(test_texts_that_are_not_of_the_language),
        cmocka_unit_test(test_bytes_that_are_no_text),
        cmocka_unit_test(test_a_file_is_at_most_a_mebibyte),
        cmocka_unit_test(test_brackets_nest_64_deep),
        cmocka_unit_test(test_no_text_takes_more_than_its_share),
        cmocka_unit_test(test_examples_see_all_host_executables_of_their_file_and_before),
        cmocka_unit_test(test_examples_are_held_against_their_own_call),
        cmocka_unit_test(test_who_wants_to_hears_of_every_fault),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
