/* SPDX-License-Identifier: Apache-2.0 */
/* What a plain script runs, tests/functional/test_script_oracle.py asks the shells themselves. */
#include <stdio.h>

#include "approve/script/script.h"
#include "base/buf.h"
#include "memory_fixture.h"
#include "test.h"

/* Segments as text: words between <>, segments between blanks. */
static void add_segments(struct sp_buf *out, const struct sp_segments *s)
{
    for (uint32_t i = 0; i < s->count; i++) {
        if (i != 0)
            assert_true(sp_buf_add(out, " ", 1));
        for (uint32_t k = 0; k < s->items[i].count; k++)
            assert_true(sp_buf_printf(out, "<" SP_STR_FMT ">", SP_STR_ARG(s->items[i].items[k])));
    }
    assert_true(sp_buf_add(out, "", 1));
}

static void is_read_as(const char *script, const char *want)
{
    char *copy = test_copy(sp_str_of(script));
    const struct sp_str argv[] = {SP_STR("/bin/bash"), SP_STR("-lc"), {copy, strlen(script)}};
    auto_segments struct sp_segments s = {0};
    auto_buf struct sp_buf text = {0};
    struct sp_err e = {0};

    assert_int_equal(sp_segments_read(&s, (struct sp_words){argv, 3}, &e), 0);
    assert_true(s.is_wrapper);
    if (want == NULL) {
        if (!s.is_opaque || s.count != 1)
            fail_msg("%s: is taken for plain", script);
        assert_true(sp_words_equal(s.items[0], (struct sp_words){argv, 3}));
    } else {
        add_segments(&text, &s);
        if (s.is_opaque || strcmp(text.data, want) != 0)
            fail_msg("%s: %s, not %s", script, s.is_opaque ? "opaque" : text.data, want);
    }
    free(copy);
}

static void test_plain_scripts(void **state)
{
    static const char *const rows[][2] = {
        {"ls", "<ls>"},
        {"ls -l", "<ls><-l>"},
        {" \t\n ls \n", "<ls>"},
        {"ls | wc -l", "<ls> <wc><-l>"},
        {"a && b || c; d | e\nf", "<a> <b> <c> <d> <e> <f>"},
        {"a&&b||c;d|e", "<a> <b> <c> <d> <e>"},
        {"a &&\n\n b |\n c ||\n d", "<a> <b> <c> <d>"},
        {"a;", "<a>"},
        {"a;\n", "<a>"},
        {"a\n\n\nb;\n", "<a> <b>"},
        {"cargo  test", "<cargo><test>"},
        {"echo 'a b' \"c d\"", "<echo><a b><c d>"},
        {"echo ''", "<echo><>"},
        {"echo \"\" x", "<echo><><x>"},
        {"echo a'b'\"c\"d", "<echo><abcd>"},
        {"echo --x='a b'", "<echo><--x=a b>"},
        {"echo \"a\\b\"", "<echo><a\\b>"},
        {"echo \"a\nb\"", "<echo><a\nb>"},
        {"echo '$x `y` \\'", "<echo><$x `y` \\>"},
        {"echo 12 -3 a=b %1 a:b @ , + !", "<echo><12><-3><a=b><%1><a:b><@><,><+><!>"},
        {"rg -n 'foo|bar' src", "<rg><-n><foo|bar><src>"},
        {"echo \xc3\xa4", "<echo><\xc3\xa4>"},
        {"echo if then", "<echo><if><then>"},
        {"test -d x", "<test><-d><x>"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        is_read_as(rows[i][0], rows[i][1]);
}

static void test_whatever_is_more_is_opaque(void **state)
{
    static const char *const rows[] = {
        "",
        " ",
        "\n",
        ";",
        "&&",
        "a &&",
        "a ||",
        "a |",
        "| a",
        "&& a",
        "; a",
        "a ; ; b",
        "a;;b",
        "a\n;b",
        "a\n&& b",
        "a & b",
        "a &",
        "a |& b",
        "! a",
        "!a",
        "(a)",
        "{ a; }",
        "a > o",
        "a < i",
        "a 2>&1",
        "a <<E\nE\n",
        "A=1 a",
        "A=1",
        "a=b c",
        "A+=1 b",
        "$a",
        "a $b",
        "a \"$b\"",
        "a $(b)",
        "a `b`",
        "a \"`b`\"",
        "a *",
        "a ?",
        "a [b]",
        "a {b,c}",
        "a ~",
        "a ^b",
        "a # b",
        "a#b",
        "a \\b",
        "a \"\\$b\"",
        "a \"\\\"\"",
        "a \"\\\\\"",
        "a \"b\\\nc\"",
        "a \\\nb",
        "'ls -l'",
        "l's'",
        "\"ls\"",
        "''",
        "a 'b",
        "a \"b",
        "a \"b\\",
        "a =b",
        "=a",
        "a ''=b",
        "a ''\"\"",
        "if a; then b; fi",
        "for a in b; do c; done",
        "while a; do b; done",
        "do",
        "case a in esac",
        "f() a",
        "function f { a; }",
        "[ a ]",
        "[[ a ]]",
        "((a))",
        "time a",
        "coproc a",
        "a; if b",
        "a && time b",
        "a | then",
        "export A=1",
        "declare x",
        "local x",
        "readonly x",
        "typeset x",
        "unset x",
        "a \x01",
        "a '\x7f'",
        "a\rb",
        "a\vb",
        "a \xff",
        "find . -{delete,print}",
        "find . -del*",
        "find . -de\\lete",
        "find . \"-de\\\nlete\"",
        "repeat 3 a",
        "foreach x",
        "nocorrect a",
        "a $'b'",
        "a $\"b\"",
        "a <(b)",
        "a;b)",
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        is_read_as(rows[i], NULL);
}

static void test_a_wrapper_has_three_words(void **state)
{
    static const struct {
        const char *argv[4];
        bool is_wrapper;
    } rows[] = {
        {{"bash", "-lc", "ls"}, true},    {{"sh", "-c", "ls"}, true},
        {{"/opt/zsh", "-c", "ls"}, true}, {{"bash", "-c", ""}, true},
        {{"bash", "-x", "ls"}, false},    {{"bash", "-cl", "ls"}, false},
        {{"dash", "-c", "ls"}, false},    {{"bash.x", "-c", "ls"}, false},
        {{"bash", "-c"}, false},          {{"bash", "-lc", "ls", "x"}, false},
        {{"xbash", "-c", "ls"}, false},   {{"bash/", "-c", "ls"}, false},
        {{"", "-c", "ls"}, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sp_str argv[4];
        struct sp_words words = {argv, 0};
        auto_segments struct sp_segments s = {0};
        struct sp_err e = {0};

        for (; words.count < 4 && rows[i].argv[words.count] != NULL; words.count++)
            argv[words.count] = sp_str_of(rows[i].argv[words.count]);
        assert_int_equal(sp_segments_read(&s, words, &e), 0);
        assert_int_equal(s.is_wrapper, rows[i].is_wrapper);
        assert_int_equal(s.count, 1);
        if (!rows[i].is_wrapper || s.is_opaque)
            assert_true(sp_words_equal(s.items[0], words));
    }
}

static void test_an_empty_command_is_one_empty_segment(void **state)
{
    auto_segments struct sp_segments s = {0};
    struct sp_err e = {0};

    (void)state;
    assert_int_equal(sp_segments_read(&s, (struct sp_words){NULL, 0}, &e), 0);
    assert_int_equal(s.count, 1);
    assert_int_equal(s.items[0].count, 0);
}

static void test_shells_that_are_trusted(void **state)
{
    (void)state;
    assert_true(sp_script_is_trusted_shell(SP_STR("/bin/bash"), NULL));
    assert_true(sp_script_is_trusted_shell(SP_STR("/usr/bin/zsh"), NULL));
    assert_true(sp_script_is_trusted_shell(SP_STR("/opt/bash"), "/opt/bash"));
    assert_true(sp_script_is_trusted_shell(SP_STR("zsh"), "zsh"));
    assert_false(sp_script_is_trusted_shell(SP_STR("/opt/bash"), "/bin/bash"));
    assert_false(sp_script_is_trusted_shell(SP_STR("/opt/bash"), NULL));
    assert_false(sp_script_is_trusted_shell(SP_STR("bash"), "/bin/bash"));
    assert_false(sp_script_is_trusted_shell(SP_STR("/bin/../w/bash"), NULL));
    assert_false(sp_script_is_trusted_shell(SP_STR("/bin/x/bash"), NULL));
    assert_false(sp_script_is_trusted_shell(SP_STR("/bin/"), NULL));
    assert_false(sp_script_is_trusted_shell(SP_STR("/usr/local/bin/bash"), NULL));
    assert_false(sp_script_is_trusted_shell(SP_STR(""), "x"));
}

/* ---- commands anywhere ---- */

static void has_literals(const char *script, const char *want)
{
    char *copy = test_copy(sp_str_of(script));
    auto_segments struct sp_segments s = {0};
    auto_buf struct sp_buf text = {0};
    struct sp_err e = {0};

    assert_int_equal(sp_script_literals(&s, (struct sp_str){copy, strlen(script)}, &e), 0);
    assert_false(s.is_opaque);
    add_segments(&text, &s);
    if (strcmp(text.data, want) != 0)
        fail_msg("%s: %s, not %s", script, text.data, want);
    free(copy);
}

static void test_commands_are_found_anywhere(void **state)
{
    static const char *const rows[][2] = {
        {"", ""},
        {"# nothing", ""},
        {"rm -rf x", "<rm><-rf><x>"},
        {"printf x | rm -rf y", "<printf><x> <rm><-rf><y>"},
        {"a; b & c && d || e |& f", "<a> <b> <c> <d> <e> <f>"},
        {"for t in a b; do rm -rf \"$t\"; done", "<rm><-rf>"},
        {"for t\ndo rm x\ndone", "<rm><x>"},
        {"for ((i = 0; i < $(rm a); i++)); do rm b; done", "<rm><a> <rm><b>"},
        {"for x in $(rm a) # it's\ndo b; done", "<rm><a> <b>"},
        {"select x in a; do b; done", "<b>"},
        {"while a; do b; done; until c; do d; done", "<a> <b> <c> <d>"},
        {"if test -d x; then rm --force x; fi", "<test><-d><x> <rm><--force><x>"},
        {"if a\nthen b\nelif c; then d; else e; fi; f", "<a> <b> <c> <d> <e> <f>"},
        {"if (a) then b; fi", "<a> <b>"},
        {"case $x in a) b;; (c|d) e; f;& *) g;; esac; h", "<b> <e> <f> <g> <h>"},
        {"case x in\n a) b\n ;;\n c) ;;\nesac\nd", "<b> <d>"},
        {"case x in a) b; esac", "<b>"},
        {"f() { rm x; }; f", "<rm><x> <f>"},
        {"f ()\n{\n rm x\n}", "<rm><x>"},
        {"function f { rm x; }", "<rm><x>"},
        {"function f() { rm x; }", "<rm><x>"},
        {"f() (rm x)", "<rm><x>"},
        {"(a; (b)); { c; }", "<a> <b> <c>"},
        {"((x + $(rm y))) && a", "<rm><y> <x><+> <rm><y> <a>"}, /* to a shell without arithmetic */
        {"((rm x); y)", "<rm><x> <y>"},
        {"echo $((rm x); y)", "<rm><x> <y> <echo>"},
        {"echo $((1 + (2 << 3)))", "<echo>"},
        {"echo \"$(rm -rf x)\"", "<rm><-rf><x> <echo>"},
        {"echo \"a $(echo \"b $(rm x)\") c\"", "<rm><x> <echo> <echo>"},
        {"echo `rm x` \"`rm y`\"", "<rm><x> <rm><y> <echo>"},
        {"echo `echo \\`rm x\\``", "<rm><x> <echo> <echo>"},
        {"echo ${x:-$(rm y)} \"${z:-`rm w`}\"", "<rm><y> <rm><w> <echo>"},
        {"echo \"${x:-it's}\" && a", "<echo> <a>"},
        {"echo $x${y}z $1 $? $@ $", "<echo><$>"},
        {"$c -rf x", "<-rf><x>"},
        {"c=rm; $c -rf x", "<-rf><x>"},
        {"A=1 B='x y' C=$(d) rm x", "<d> <rm><x>"},
        {"a=(b $(c) d) e; f", "<c> <e> <f>"},
        {"declare -a x=(1 2); b", "<declare><-a> <b>"},
        {"x[1]=2 a", "<a>"},
        {"rm -rf \"$T\" >/dev/null 2>&1", "<rm><-rf>"},
        {">/dev/null rm x", "<rm><x>"},
        {"a &>o b &>>p c >&2 d 3<i <>r >|s <&- e", "<a><b><c><d><e>"},
        {"a <(rm x) >(rm y) < <(rm z)", "<rm><x> <rm><y> <rm><z> <a>"},
        {"a <<< \"$(rm x)\" b", "<rm><x> <a><b>"},
        {"cat <<E\n$(rm x) `rm y`\nrm z\nE\nb", "<cat> <rm><x> <rm><y> <b>"},
        {"cat <<'E'\n$(rm x)\nE\nb", "<cat> <b>"},
        {"cat <<\\E <<-\"F\" | d\n$(rm x)\nE\n\tit's\n\tF\nb", "<cat> <d> <b>"},
        {"cat <<EF\nE\\\nF\nrm x", "<cat> <rm><x>"},
        {"cat <<'EF'\nE\\\nF\nrm x\nEF\nb", "<cat> <b>"},
        {"cat <<E\nx\\\\\nE\nrm x", "<cat> <rm><x>"},
        {"cat <<E\nx\\\nE\nrm x\nE\nb", "<cat> <b>"},
        {"cat <<E", "<cat>"},
        {"cat <<$(a)E\n`rm x`\n$(a)E\nb", "<a> <cat> <rm><x> <b>"},
        {"x=$(cat <<E\nrm x\nE\n)\nb", "<cat> <b>"},
        {"x=$(cat <<E\nrm x\nE)\nb", "<cat> <b>"},
        {"x=$(cat <<-E\nEx\n\tE rm x)\nb", "<cat> <rm><x> <b>"},
        {"cat <<E\nE;rm x)\nE\nb", "<cat> <b>"},
        {"! rm x", "<rm><x>"},
        {"time -p rm x", "<rm><x>"},
        {"coproc rm x", "<rm><x>"},
        {"[[ -d x && $(rm y) =~ (a|b) ]] && c", "<rm><y> <c>"},
        {"'rm' \\-rf r\"m\"", "<rm><-rf><rm>"},
        {"\\rm -f x", "<rm><-f><x>"},
        {"r\\\nm x", "<rm><x>"},
        {"rm \\\n -f", "<rm><-f>"},
        {"echo $'a' $'\\x41' $\"b\"", "<echo><a><b>"},
        {"a \\", "<a><\\>"},
        {"a $\\\n(rm x) \"$\\\n\\\n{b:-$(rm y)}\"", "<rm><x> <rm><y> <a>"},
        {"a &\\\n& b |\\\n| c |\\\n& d |\\\n e", "<a> <b> <c> <d> <e>"},
        {"for v in\\\n a; do\\\n b; done", "<b>"},
        {"a 2\\\n>o b", "<a><b>"},
        {"a $((1 + (2 `b '('`)0)) c", "<b><(> <a><c>"},
        {"a @(b|c d)*.x; d", "<a><@b|c d*.x> <d>"},
        {"bash -c 'rm -rf x'", "<bash><-c><rm -rf x>"},
        {"echo 'rm -rf x'", "<echo><rm -rf x>"},
        {"a # it's\nb", "<a> <b>"},
        {"a#b", "<a#b>"},
        {"a;b # c\n# d\ne", "<a> <b> <e>"},
        {"{ a; } >o 2>&1 | b", "<a> <b>"},
        {"if a; then b; fi <<E\n$(rm x)\nE\nc", "<a> <b> <rm><x> <c>"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        has_literals(rows[i][0], rows[i][1]);
}

static void test_commands_before_an_error_count(void **state)
{
    static const char *const rows[][2] = {
        {"rm -rf x\nif then\nrm y", "<rm><-rf><x>"},
        {"a; b )\nc", "<a> <b>"},
        {"a; 'b\nrm x", "<a>"},
        {"a; \"b\nrm x", "<a>"},
        {"a; $(b", "<a> <b>"},
        {"a; `b", "<a>"},
        {"a; ${b", "<a>"},
        {"a; fi; b", "<a>"},
        {"a && ; b", "<a>"},
        {"a;; b", "<a>"},
        {"a | | b", "<a>"},
        {"for; do a; done; b", ""},
        {"while do a; done", ""},
        {"case a in b c) d;; esac; e", ""},
        {"a >; b", ""},
        {"{ a", "<a>"},
        {"(a", "<a>"},
        {"a <<", ""},
        /* what a shell looks at only when it comes to it */
        {"cat <<E\n$(a; fi\nE\nrm x", "<cat> <a> <rm><x>"},
        {"cat <<E\n$(a <<F\nE\nrm x\nF\nb", "<cat> <a> <rm><x> <F> <b>"},
        {"a $((1 + 2)>) b; c", "<1><+><2> <a><b> <c>"},
        {"a <<E $((b <<F\n) >)\nF\nE\nc", "<b> <a> <c>"},
        {"echo `a; fi` b; c", "<a> <echo><b> <c>"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        has_literals(rows[i][0], rows[i][1]);
}

static void test_what_is_too_deep_says_so(void **state)
{
    static const char *const openers[] = {
        "( ", "{ ", "$(", "\"$(", "${x:-", "$((", "f() ", "<(", "if ", "a @(", "((1+$(", "`(",
    };

    (void)state;
    for (size_t i = 0; i < sizeof openers / sizeof *openers; i++) {
        auto_segments struct sp_segments s = {0};
        auto_buf struct sp_buf text = {0};
        struct sp_err e = {0};

        for (int k = 0; k < 1000; k++)
            assert_true(sp_buf_add(&text, openers[i], strlen(openers[i])));
        assert_true(sp_buf_add(&text, "rm -rf x", 8));
        for (int k = 0; k < 2000; k++)
            assert_true(sp_buf_add(&text, ")", 1));
        assert_int_equal(sp_script_literals(&s, (struct sp_str){text.data, text.len}, &e), 0);
        if (!s.is_opaque)
            fail_msg("%s is read to any depth", openers[i]);
    }
}

static void test_what_no_kernel_would_start_is_not_read(void **state)
{
    const size_t n = (256 << 10) + 1;
    char *script = malloc(n);
    const struct sp_str argv[] = {SP_STR("sh"), SP_STR("-c"), {script, n}};
    const struct sp_str one_less[] = {SP_STR("sh"), SP_STR("-c"), {script, n - 1}};
    struct sp_err e = {0};

    (void)state;
    assert_non_null(script);
    memset(script, 'a', n);
    for (int i = 0; i < 2; i++) {
        const struct sp_str *const words = i == 0 ? one_less : argv;
        auto_segments struct sp_segments plain = {0};
        auto_segments struct sp_segments literals = {0};

        assert_int_equal(sp_segments_read(&plain, (struct sp_words){words, 3}, &e), 0);
        assert_int_equal(sp_script_literals(&literals, words[2], &e), 0);
        assert_int_equal(plain.is_opaque, i);
        assert_int_equal(literals.is_opaque, i);
    }
    free(script);
}

/* ---- words ---- */

static void test_splitting(void **state)
{
    static const char *const rows[][2] = {
        {"", ""},
        {"  # x", ""},
        {"a b\tc\nd", "<a><b><c><d>"},
        {"'a b' \"c d\" e\\ f", "<a b><c d><e f>"},
        {"a'b'\"c\"", "<abc>"},
        {"'' \"\"", "<><>"},
        {"\"a\\\"\\$\\`\\\\\\x\\\nb\"", "<a\"$`\\\\xb>"},
        {"a # b\nc #", "<a><c>"},
        {"a#b", "<a#b>"},
        {"a\\\nb", "<ab>"},
        {"$x *", "<$x><*>"},
        {"'a", NULL},
        {"\"a", NULL},
        {"\"a\\", NULL},
        {"a\\", NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *copy = test_copy(sp_str_of(rows[i][0]));
        auto_segments struct sp_segments s = {0};
        auto_buf struct sp_buf text = {0};
        struct sp_err e = {0};
        const int r = sp_words_split(&s, (struct sp_str){copy, strlen(rows[i][0])}, &e);

        assert_int_equal(r, rows[i][1] == NULL ? -SP_E_INVALID : 0);
        add_segments(&text, &s);
        assert_string_equal(text.data, rows[i][1] == NULL ? "" : rows[i][1]);
        free(copy);
    }
}

static void test_quoting(void **state)
{
    static const char *const rows[][2] = {
        {"ls", "ls"},
        {"", "''"},
        {"rm -rf /x", "'rm -rf /x'"},
        {"a+-./:@]_9Z", "a+-./:@]_9Z"},
        {"it's", "\"it's\""},
        {"a\\b", "\"a\\\\b\""},
        {"say \"it's\"", "\"say \\\"it's\\\"\""},
        {"$x", "'$x'"},
        {"it's $x", "\"it's \"'$x'"},
        {"a^b", "a'^b'"},
        {"^^", "'^''^'"},
        {"!", "'!'"},
        {"a=b", "'a=b'"},
        {"a,b", "'a,b'"},
        {"a%b", "'a%b'"},
        {"\n", "'\n'"},
        {"\xc3\xa4", "'\xc3\xa4'"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct sp_str word = sp_str_of(rows[i][0]);
        auto_buf struct sp_buf text = {0};

        assert_true(sp_words_add_quoted(&text, (struct sp_words){&word, 1}));
        assert_int_equal(text.len, strlen(rows[i][1]));
        assert_memory_equal(text.data, rows[i][1], text.len);
    }
}

static void test_quoted_words_split_into_themselves(void **state)
{
    static const char bytes[] = "ab '\"\\$`^!#\n=*~\xc3\xa4";
    uint64_t seed = 1;

    (void)state;
    for (int round = 0; round < 2000; round++) {
        char text[3][8];
        struct sp_str words[3];
        auto_segments struct sp_segments s = {0};
        auto_buf struct sp_buf quoted = {0};
        struct sp_err e = {0};

        for (int i = 0; i < 3; i++) {
            words[i] = (struct sp_str){text[i], test_random(&seed) % 8};
            for (size_t k = 0; k < words[i].n; k++)
                text[i][k] = bytes[test_random(&seed) % (sizeof bytes - 1)];
        }
        const struct sp_words want = {words, 3};
        assert_true(sp_words_add_quoted(&quoted, want));
        assert_int_equal(sp_words_split(&s, (struct sp_str){quoted.data, quoted.len}, &e), 0);
        assert_true(sp_words_equal(s.items[0], want));
    }
}

static void test_a_nul_is_not_quoted(void **state)
{
    const struct sp_str words[] = {SP_STR("a"), SP_STR("b\0c")};
    auto_buf struct sp_buf text = {0};

    (void)state;
    assert_true(sp_words_add_quoted(&text, (struct sp_words){words, 2}));
    assert_bytes(text.data, text.len, "<command included NUL byte>");
}

static void test_memory_that_ends_is_told(void **state)
{
    const struct sp_str argv[] = {SP_STR("bash"), SP_STR("-c"), SP_STR("a 'b'c; d")};
    const struct sp_str script = SP_STR("a `b` <<E\n$(c)\nE\n");

    (void)state;
    for (long n = 1;; n++) {
        auto_segments struct sp_segments plain = {0};
        auto_segments struct sp_segments literals = {0};
        auto_segments struct sp_segments words = {0};
        struct sp_err e = {0};

        end_memory_at(n);
        const int r = sp_segments_read(&plain, (struct sp_words){argv, 3}, &e);
        const int s = sp_script_literals(&literals, script, &e);
        const int t = sp_words_split(&words, script, &e);
        if (!did_memory_end()) {
            assert_true(r == 0 && s == 0 && t == 0 && n > 3);
            return;
        }
        assert_int_equal(r + s + t, -SP_E_SYSTEM);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_plain_scripts),
    cmocka_unit_test(test_whatever_is_more_is_opaque),
    cmocka_unit_test(test_a_wrapper_has_three_words),
    cmocka_unit_test(test_an_empty_command_is_one_empty_segment),
    cmocka_unit_test(test_shells_that_are_trusted),
    cmocka_unit_test(test_commands_are_found_anywhere),
    cmocka_unit_test(test_commands_before_an_error_count),
    cmocka_unit_test(test_what_is_too_deep_says_so),
    cmocka_unit_test(test_what_no_kernel_would_start_is_not_read),
    cmocka_unit_test(test_splitting),
    cmocka_unit_test(test_quoting),
    cmocka_unit_test(test_quoted_words_split_into_themselves),
    cmocka_unit_test(test_a_nul_is_not_quoted),
    cmocka_unit_test(test_memory_that_ends_is_told),
};
TEST_MAIN(tests)
