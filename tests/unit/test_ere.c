/* SPDX-License-Identifier: Apache-2.0 */
#include "base/ere.h"
#include "ere_fixture.h"
#include "memory_fixture.h"
#include "test.h"

#define T(s)             \
    {                    \
        s, sizeof(s) - 1 \
    }
static const struct row {
    struct sp_str text, in;
    enum when when;
} rows[] = {
    /* literals */
    {T("abc"), T("xxabcxx"), AT_ONCE},
    {T("abc"), T("xxab"), NEVER},
    {T("abc"), T("ababc"), AT_ONCE},
    {T(""), T(""), AT_ONCE},
    {T(""), T("x"), AT_ONCE},
    {T("{"), T("{"), AT_ONCE},
    {T("{\"ready\":true}"), T("> {\"ready\":true}"), AT_ONCE},
    {T("a{b"), T("a{b"), AT_ONCE},
    {T("a{1"), T("a{1"), AT_ONCE},
    {T("a{,}"), T("a{,}"), AT_ONCE},
    {T("a}"), T("a}"), AT_ONCE},
    {T("a]"), T("a]"), AT_ONCE},
    {T("-"), T("-"), AT_ONCE},
    {T("a\0b"), T("a\0b"), AT_ONCE},
    {T("a\0b"), T("a"), NEVER},
    {T("\xFF"), T("\xFF"), AT_ONCE},
    /* dot and line feeds */
    {T("a.b"), T("a\nb"), NEVER},
    {T("a.b"), T("a\0b"), AT_ONCE},
    {T("a.b"),
     T("a\xFF"
       "b"),
     AT_ONCE},
    {T("a.b"), T("a\r"), NEVER},
    {T("a[^x]b"), T("a\nb"), NEVER},
    {T("a\\Db"), T("a\nb"), NEVER},
    {T("a\\Wb"), T("a\nb"), NEVER},
    {T("a\\Sb"), T("a\nb"), NEVER},
    {T("a\\sb"), T("a\nb"), AT_ONCE},
    {T("a\\nb"), T("a\nb"), AT_ONCE},
    {T("a\nb"), T("a\nb"), AT_ONCE},
    {T("a[\\n]b"), T("a\nb"), AT_ONCE},
    {T("a[[:space:]]b"), T("a\nb"), AT_ONCE},
    {T("a[^\\S]b"), T("a b"), AT_ONCE},
    {T("a[^\\S]b"), T("a\nb"), NEVER},
    /* anchors */
    {T("^a"), T("a"), AT_ONCE},
    {T("^a"), T("ba"), NEVER},
    {T("^a"), T("b\na"), AT_ONCE},
    {T("a$"), T("a"), AT_END},
    {T("a$"), T("a\n"), AT_ONCE},
    {T("a$"), T("ab"), NEVER},
    {T("a$"), T("a\r\n"), NEVER},
    {T("a\\r$"), T("a\r\n"), AT_ONCE},
    {T("^$"), T(""), AT_END},
    {T("^$"), T("a"), NEVER},
    {T("^$"), T("a\n\nb"), AT_ONCE},
    {T("^$"), T("a\n"), AT_END},
    {T("$^"), T("\n"), AT_ONCE},
    {T("a$\\nb"), T("a\nb"), AT_ONCE},
    {T("a\\n^b"), T("a\nb"), AT_ONCE},
    {T("a^b"), T("a^b"), NEVER},
    {T("a$b"), T("a$b"), NEVER},
    {T("(^|x)a"), T("ba xa"), AT_ONCE},
    {T("(^|x)a"), T("ba"), NEVER},
    {T("(^)*a"), T("ba"), AT_ONCE},
    {T("_([a-c]|^){2,}"), T("_a\nb"), NEVER},
    {T("(a|^){2}b"), T("xab"), NEVER},
    {T("(a|^){2}b"), T("x\nab"), AT_ONCE},
    {T("x(a|$){3}"), T("xa"), AT_END},
    {T("x(\\b|a)+b"), T("xab"), AT_ONCE},
    {T("a($|b)"), T("a"), AT_END},
    {T("\\$ $"), T("you@host:~$ "), AT_END},
    /* flags */
    {T("(?i)error"), T("an ERROR"), AT_ONCE},
    {T("(?i)error"), T("an Err"), NEVER},
    {T("(?i)[a-c]1"), T("B1"), AT_ONCE},
    {T("(?i)^[^a]"), T("A"), NEVER},
    {T("a(?i:b)c"), T("aBc"), AT_ONCE},
    {T("a(?i:b)c"), T("aBC"), NEVER},
    {T("((?i)a)b"), T("Ab"), AT_ONCE},
    {T("((?i)a)b"), T("AB"), NEVER},
    {T("(?i)a|b"), T("B"), AT_ONCE},
    {T("(?im)^x$"), T("a\nX\n"), AT_ONCE},
    {T("(?i)\\bready\\b.+?!"), T("Ready now!"), AT_ONCE},
    {T("(?i)\xc3\xa9"), T("\xc3\xa9"), AT_ONCE},
    /* words */
    {T("\\bfoo\\b"), T("a foo b"), AT_ONCE},
    {T("\\bfoo\\b"), T("foo"), AT_END},
    {T("\\bfoo\\b"), T("afoo"), NEVER},
    {T("\\bfoo\\b"), T("foo_"), NEVER},
    {T("\\bfoo\\b"), T("foo_ foo."), AT_ONCE},
    {T("\\b"), T("a"), AT_ONCE},
    {T("\\b"), T(" . "), NEVER},
    {T("a\\b$"), T("a"), AT_END},
    {T("a$\\b"), T("a\n"), AT_ONCE},
    {T("^\\ba"), T(" \na"), AT_ONCE},
    {T("\\b\\b\\ba"), T("a"), AT_ONCE},
    /* repetitions */
    {T("^ab*c$"), T("ac"), AT_END},
    {T("^ab*c$"), T("abbbc"), AT_END},
    {T("^ab+c$"), T("ac"), NEVER},
    {T("^ab+c$"), T("abc"), AT_END},
    {T("^ab?c$"), T("abbc"), NEVER},
    {T("^ab?c$"), T("ac"), AT_END},
    {T("^a{3}$"), T("aa"), NEVER},
    {T("^a{3}$"), T("aaa"), AT_END},
    {T("^a{3}$"), T("aaaa"), NEVER},
    {T("^a{2,}$"), T("a"), NEVER},
    {T("^a{2,}$"), T("aaaaa"), AT_END},
    {T("^a{0,}$"), T(""), AT_END},
    {T("^a{0,2}$"), T("aa"), AT_END},
    {T("^a{0,2}$"), T("aaa"), NEVER},
    {T("^a{,2}$"), T("aa"), AT_END},
    {T("^a{,2}$"), T("aaa"), NEVER},
    {T("^a{2,4}$"), T("a"), NEVER},
    {T("^a{2,4}$"), T("aaaa"), AT_END},
    {T("^a{2,4}$"), T("aaaaa"), NEVER},
    {T("^a{0}b$"), T("b"), AT_END},
    {T("^a{0}b$"), T("ab"), NEVER},
    {T("^a{0,0}$"), T(""), AT_END},
    {T("^(a{2}){3}$"), T("aaaaaa"), AT_END},
    {T("^a{2}{3}$"), T("aaaaa"), NEVER},
    {T("^(ab|c){2,3}$"), T("abcab"), AT_END},
    {T("^(ab|c){2,3}$"), T("abcabc"), NEVER},
    {T("^(a|b{2}){2}$"), T("bba"), AT_END},
    {T("^(){5}a$"), T("a"), AT_END},
    {T("^(a*)*$"), T("aaa"), AT_END},
    {T("^(a*)+b$"), T("aab"), AT_END},
    {T("^(|a)+$"), T("aa"), AT_END},
    {T("^.*?b$"), T("aab"), AT_END},
    {T("^a+?$"), T(""), NEVER}, /* few, not none */
    {T("^a+?$"), T("aa"), AT_END},
    {T("^a{2}?$"), T(""), NEVER},
    /* choices and groups */
    {T("^(a|b|)$"), T(""), AT_END},
    {T("^(a|b|)$"), T("c"), NEVER},
    {T("^a|b$"), T("xb"), AT_END},
    {T("^(a|b)$"), T("xb"), NEVER},
    {T("a|"), T(""), AT_ONCE},
    {T("|a"), T(""), AT_ONCE},
    {T("^(?:ab)+$"), T("abab"), AT_END},
    {T("^()$"), T(""), AT_END},
    {T("^(a(b(c|d)e)*f)$"), T("abcebdef"), AT_END},
    {T("^(foo|bar|baz|[0-9])x$"), T("bazx"), AT_END},
    /* brackets */
    {T("^[abc]+$"), T("cab"), AT_END},
    {T("^[a-c]+$"), T("abcd"), NEVER},
    {T("^[]a]+$"), T("]a]"), AT_END},
    {T("^[^]a]+$"), T("bc"), AT_END},
    {T("^[^]a]+$"), T("b]"), NEVER},
    {T("^[a-]+$"), T("a-"), AT_END},
    {T("^[-a]+$"), T("a-"), AT_END},
    {T("^[--/]+$"), T("-./"), AT_END},
    {T("^[a^]+$"), T("a^"), AT_END},
    {T("^[.*+?(){}|$]+$"), T("$.*+?(){}|"), AT_END},
    {T("^[[]$"), T("["), AT_END},
    {T("^[[:digit:]a-c_]+$"), T("1b_"), AT_END},
    {T("^[^[:digit:]]+$"), T("1"), NEVER},
    {T("^[[.-.]a]+$"), T("-a"), AT_END},
    {T("^[[=a=]]$"), T("a"), AT_END},
    {T("^[\\d\\s]+$"), T("1 2"), AT_END},
    {T("^[\\]\\\\]+$"), T("]\\"), AT_END},
    {T("^[\\W]$"), T("-"), AT_END},
    {T("^[!-\\/]$"), T("#"), AT_END},
    {T("[[:cntrl:]]"), T("\0"), AT_ONCE},
    /* what stands for something else */
    {T("^\\d+$"), T("0123456789"), AT_END},
    {T("^\\w+$"), T("aZ_9"), AT_END},
    {T("^\\s+$"), T(" \t\r\f\v"), AT_END},
    {T("^\\D\\W\\S$"), T("x-y"), AT_END},
    {T("^\\t\\r$"), T("\t\r"), AT_END},
    {T("^\\.\\[\\]\\(\\)\\|\\*\\+\\?\\{\\}\\^\\$\\\\$"), T(".[]()|*+?{}^$\\"), AT_END},
    {T("^\\/\\-\\_\\\"$"), T("/-_\""), AT_END},
    /* characters that are longer than a byte */
    {T("^\xC3\xA9+$"), T("\xC3\xA9\xC3\xA9"), AT_END},
    {T("^\xC3\xA9?$"), T("\xC3"), NEVER},
    {T("^[a\xC3\xA9z]+$"),
     T("z\xC3\xA9"
       "a"),
     AT_END},
    {T("^[a\xC3\xA9z]+$"), T("\xC3"), NEVER},
    {T("^[\xC3\xA9\xE2\x82\xAC]{2}$"), T("\xE2\x82\xAC\xC3\xA9"), AT_END},
    {T("^[\xFE\xFF]+$"), T("\xFF\xFE"), AT_END},
    {T("^..$"), T("\xC3\xA9"), AT_END}, /* bytes */
};

static void test_what_matches_and_when(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        auto_ere struct sp_ere *x = expression(rows[i].text);
        const enum when got = search(x, rows[i].in);

        if (got != rows[i].when)
            fail_msg("row %zu, " SP_STR_FMT ": %d", i, SP_STR_ARG(rows[i].text), got);
    }
}

static const struct refusal {
    const char *text, *why;
} refusals[] = {
    {"a(b", "`(` at byte 1 is never closed"},
    {"((a)", "`(` at byte 0 is never closed"},
    {"a)b", "`)` at byte 1 closes nothing; write \\) for itself"},
    {"[a", "`[` at byte 0 is never closed"},
    {"a[", "`[` at byte 1 is never closed"},
    {"a[^", "`[` at byte 1 is never closed"},
    {"[]", "`[` at byte 0 is never closed"},
    {"[^]", "`[` at byte 0 is never closed"},
    {"[a-", "`[` at byte 0 is never closed"},
    {"[[:alpha:]", "`[` at byte 0 is never closed"},
    {"[[:alpha", "`[` at byte 0 is never closed"},
    {"[[:", "`[` at byte 0 is never closed"},
    {"[a\\]", "`[` at byte 0 is never closed"},
    {"[\\", "`\\` at byte 1 has nothing behind it"},
    {"[c-a]", "the range at byte 1 ends before it begins"},
    {"[a-\\d]", "the range at byte 1 begins or ends with a class"},
    {"[[:digit:]-a]", "the range at byte 1 begins or ends with a class"},
    {"[\xC3\xA9-z]", "the range at byte 1 is not one of ASCII"},
    {"[a-\xC3\xA9]", "the range at byte 1 is not one of ASCII"},
    {"[\xFF-z]", "the range at byte 1 is not one of ASCII"},
    {"[^a\xC3\xA9]",
     "the [^ at byte 0 cannot leave out the character at byte 3, which is not ASCII"},
    {"[[:foo:]]", "the class at byte 1 is none of alnum alpha blank cntrl digit graph lower print "
                  "punct space upper word xdigit"},
    {"[[.hyphen.]]", "`[.` at byte 1: only one ASCII character can be named so"},
    {"[[==]]", "`[=` at byte 1: only one ASCII character can be named so"},
    {"[\\b]", "`\\b` at byte 1 is no byte that a [] could hold"},
    {"*a", "`*` at byte 0 has nothing to repeat; write \\* for itself"},
    {"a|+", "`+` at byte 2 has nothing to repeat; write \\+ for itself"},
    {"(?a)", "`(?` at byte 0 is unknown; known are (?: (?i) (?i: and (?m)"},
    {"(?", "`(?` at byte 0 is unknown; known are (?: (?i) (?i: and (?m)"},
    {"(?=a)", "`(?` at byte 0 is unknown; known are (?: (?i) (?i: and (?m)"},
    {"^*", "`*` at byte 1 has nothing to repeat; write \\* for itself"},
    {"\\b+", "`+` at byte 2 has nothing to repeat; write \\+ for itself"},
    {"{3}", "`{3}` at byte 0 has nothing to repeat; write \\{ for itself"},
    {"a{3,2}", "`{3,2}` at byte 1: at least 3 and at most 2"},
    {"(a{1,100}){1,100}", "`{1,100}` at byte 10 makes it longer than 2048 steps; ask for fewer"},
    {"a{9000}", "`{9000}` at byte 1 makes it longer than 2048 steps; ask for fewer"},
    {"a{99999999999999999999}",
     "`{99999999999999999999}` at byte 1 makes it longer than 2048 steps; ask for fewer"},
    {"a{1000}b{1000}(cd|ef){40}",
     "`{40}` at byte 21 makes it longer than 2048 steps; ask for fewer"},
    {"a{2047}b", "more than 2048 steps at byte 8: it is too long"},
    {"a{2046}|b", "more than 2048 steps at byte 8: it is too long"},
    {"a\\", "`\\` at byte 1 has nothing behind it"},
    {"(a)\\1", "`\\1` at byte 3: there are no references back to a group"},
    {"\\<a", "`\\<` at byte 0: the edge of a word is \\b, and < stands for itself"},
    {"\\q", "`\\q` at byte 0 is unknown; known are \\d \\w \\s \\D \\W \\S \\b \\t \\n \\r, and \\ "
            "before a punctuation mark"},
    {"\\\xC3\xA9", "`\\` at byte 0 stands before a byte that needs none"},
    {"\\\n", "`\\` at byte 0 stands before a byte that needs none"},
};

static void test_what_is_wrong_is_said(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        const struct sp_str text = sp_str_of(refusals[i].text);
        char *exact = test_copy(text);
        struct sp_ere *x = NULL;
        struct sp_err e = {0};

        assert_int_equal(sp_ere_new((struct sp_str){exact, text.n}, &x, &e), -SP_E_INVALID);
        assert_string_equal(e.msg, refusals[i].why);
        assert_null(x);
        free(exact);
    }
    sp_ere_free(NULL);
}

static void test_the_longest_text_and_the_longest_program(void **state)
{
    char text[SP_ERE_TEXT_MAX + 1];
    struct sp_ere *x = NULL;
    struct sp_err e = {0};

    (void)state;
    memset(text, 'a', sizeof text);
    assert_int_equal(sp_ere_new((struct sp_str){text, sizeof text}, &x, &e), -SP_E_INVALID);
    assert_string_equal(e.msg, "the expression is longer than 4096 bytes");
    static const char *const longest[] = {"", "(", ")", "[", "|", "\\d", "()|", "[a]", "(a|b)*"};
    for (size_t i = 0; i < sizeof longest / sizeof longest[0]; i++) {
        const size_t n = strlen(longest[i]);

        for (size_t at = 0; n != 0 && at < SP_ERE_TEXT_MAX; at++)
            text[at] = longest[i][at % n];
        x = NULL;
        if (sp_ere_new((struct sp_str){text, SP_ERE_TEXT_MAX}, &x, &e) == 0)
            (void)search(x, (struct sp_str){text, SP_ERE_TEXT_MAX});
        sp_ere_free(x);
    }
    memset(text, '(', SP_ERE_TEXT_MAX / 2);
    memset(text + SP_ERE_TEXT_MAX / 2, ')', SP_ERE_TEXT_MAX / 2);
    auto_ere struct sp_ere *nested = expression((struct sp_str){text, SP_ERE_TEXT_MAX});
    assert_int_equal(search(nested, SP_STR("")), AT_ONCE);

    char many[2048];
    memset(many, 'a', sizeof many);
    auto_ere struct sp_ere *most = expression(SP_STR("a{2047}"));
    assert_int_equal(search(most, (struct sp_str){many, 2046}), NEVER);
    assert_int_equal(search(most, (struct sp_str){many, 2047}), AT_ONCE);
    auto_ere struct sp_ere *optional = expression(SP_STR("^a{0,1022}$"));
    assert_int_equal(search(optional, (struct sp_str){many, 1022}), AT_END);
    assert_int_equal(search(optional, (struct sp_str){many, 1023}), NEVER);
}

static void test_without_memory_there_is_no_expression(void **state)
{
    static const char *const texts[] = {"a", "^(foo|[a-z\\d]{2,5})\\b$"};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        long at = 1;

        for (;; at++) {
            struct sp_ere *x = NULL;
            struct sp_err e = {0};

            end_memory_at(at);
            const int failed = sp_ere_new(sp_str_of(texts[i]), &x, &e);
            if (!did_memory_end()) {
                assert_int_equal(failed, 0);
                end_memory_at(1); /* a search asks for none */
                (void)sp_ere_feed(x, SP_STR("zz foo\n12"));
                assert_true(sp_ere_finish(x) || i == 0);
                assert_false(did_memory_end());
                sp_ere_free(x);
                break;
            }
            assert_int_equal(failed, -SP_E_SYSTEM);
            assert_int_equal(e.sys, ENOMEM);
            assert_null(x);
        }
        assert_true(at > 5);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_what_matches_and_when),
    cmocka_unit_test(test_what_is_wrong_is_said),
    cmocka_unit_test(test_the_longest_text_and_the_longest_program),
    cmocka_unit_test(test_without_memory_there_is_no_expression),
};

TEST_MAIN(tests)
