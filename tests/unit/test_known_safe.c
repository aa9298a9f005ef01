/* SPDX-License-Identifier: Apache-2.0 */
#include "approve/judge.h"
#include "test.h"

struct row {
    int number;
    bool is_safe;
    const char *command;
};

static void check(const struct row *rows, size_t count, enum sp_known_safe how)
{
    for (size_t i = 0; i < count; i++) {
        auto_segments struct sp_segments words = {0};
        struct sp_err e = {0};

        assert_int_equal(sp_words_split(&words, sp_str_of(rows[i].command), &e), 0);
        if (sp_judge_is_known_safe(words.items[0], how) != rows[i].is_safe)
            fail_msg("case %d: %s is %s", rows[i].number, rows[i].command,
                     rows[i].is_safe ? "not known" : "taken for safe");
        assert_false(sp_judge_is_known_safe(words.items[0], SP_KNOWN_SAFE_OFF));
    }
}

static void test_the_list(void **state)
{
    static const struct row rows[] = {
        {21, true, "sed -n 1,5p f"},
        {21, true, "sed -n 10p"},
        {21, false, "sed -n xp f"},
        {21, false, "sed -i s/a/b/ f"},
        {21, false, "sed -n 1,5p f g"},
        {21, false, "sed -n p f"},
        {21, false, "sed -n 1,p f"},
        {21, false, "sed -n ,5p f"},
        {21, false, "sed -n 1p;w f"},
        {21, false, "sed -n 1w f"},
        {21, false, "sed -n"},
        {21, false, "sed"},
        {21, false, "sed -n 1p -fscript"},
        {21, false, "sed -n 1p '-e1e touch x'"},
        {22, true, "find . -name x"},
        {22, false, "find . -delete"},
        {22, false, "find . -exec rm {} ;"},
        {22, false, "find . -execdir rm {} ;"},
        {22, false, "find . -ok rm {} ;"},
        {22, false, "find . -okdir rm {} ;"},
        {22, false, "find . -fls o"},
        {22, false, "find . -fprint o"},
        {22, false, "find . -fprint0 o"},
        {22, false, "find . -fprintf o x"},
        {23, true, "rg -n foo"},
        {23, true, "rg --pretty foo"},
        {23, true, "rg --pre-glob x foo"},
        {23, false, "rg --pre=sh foo"},
        {23, false, "rg --pre sh foo"},
        {23, false, "rg --hostname-bin x foo"},
        {23, false, "rg --hostname-bin=x foo"},
        {23, false, "rg --search-zip foo"},
        {23, false, "rg -z foo"},
        {23, false, "rg -nz foo"},
        {24, true, "base64 f"},
        {24, true, "base64 -d f"},
        {24, true, "base64 --decode f"},
        {24, false, "base64 -o out f"},
        {24, false, "base64 -oout"},
        {24, false, "base64 -wo x"},
        {24, false, "base64 --output x"},
        {24, false, "base64 --output=x"},
        {24, false, "base64 --out=x"},
        {25, false, "git status"},
        {25, false, "git branch"},
        {26, true, "/usr/bin/cat f"},
        {26, true, "/bin/ls"},
        {26, false, "./ls"},
        {26, false, "ls/ls"},
        {26, false, "/site/w/ls"},
        {26, false, "/usr/local/bin/ls"},
        {26, false, "/bin/x/ls"},
        {26, false, "//bin/ls"},
        {26, false, "/bin//ls"},
        {26, false, "/bin/../w/ls"},
        {26, false, "bin/ls"},
        {26, false, "./sed -n 1p f"},
        {26, false, "./find ."},
        {27, false, "cargo check"},
        {27, true, "numfmt 1"},
        {27, true, "tac f"},
        {27, true, "cd"},
        {27, true, "uniq"},
        {27, true, "uniq f"},
        {27, true, "uniq -c f"},
        {27, true, "uniq -c -- f"},
        {27, true, "uniq -f 1 -s 2 f"},
        {27, true, "uniq -cf 1 f"},
        {27, true, "uniq -f1 -w3 f"},
        {27, true, "uniq --skip-fields=1 --count f"},
        {27, true, "uniq -"},
        {27, false, "uniq in out"},
        {27, false, "uniq - out"},
        {27, false, "uniq -c in out"},
        {27, false, "uniq -c 1 out"},
        {27, false, "uniq -- in out"},
        {27, false, "uniq in -- out"},
        {27, false, "uniq -f 1 in out"},
        {27, false, "uniq -fc in out"},
        {27, false, "uniq in -c out"},
        {27, false, "uniq -- -f out"},
        {27, false, "uniq +1 out"},
        {27, false, "uniq --skip-fields 1 f"},
        {27, false, "uniq --skip 1 out"},
        {27, false, "uniq -x f"},
        {27, true, "tail -f x"},
        {27, false, ""},
        {27, false, "''"},
        {27, false, "/"},
        {27, false, "catx"},
        {27, false, "ca"},
        {27, false, "/bin/cat/"},
        {27, false, "bash -lc ls"},
        {27, false, "tee x"},
        {27, false, "xargs rm"},
        {27, false, "env ls"},
    };

    (void)state;
    check(rows, sizeof rows / sizeof *rows, SP_KNOWN_SAFE_LIST);
    check(rows, 43, SP_KNOWN_SAFE_LIST_GIT); /* all that are before git */
}

static void test_git(void **state)
{
    static const struct row rows[] = {
        {25, true, "git status"},
        {25, true, "git log -p"},
        {25, true, "git --no-pager diff HEAD -- x"},
        {25, true, "git show HEAD"},
        {25, true, "/usr/bin/git status"},
        {25, false, "./git status"},
        {25, true, "git branch"},
        {25, true, "git branch --list -a"},
        {25, true, "git branch --format=%(refname) -vv"},
        {25, false, "git"},
        {25, false, "git --no-pager"},
        {25, false, "git -C . status"},
        {25, false, "git -C. status"},
        {25, false, "git -c a.b=c status"},
        {25, false, "git -ca.b=c status"},
        {25, false, "git -p log"},
        {25, false, "git --paginate log"},
        {25, false, "git --config-env=a=b log"},
        {25, false, "git --exec-path=x log"},
        {25, false, "git --git-dir x log"},
        {25, false, "git --git-dir=x log"},
        {25, false, "git --namespace=x log"},
        {25, false, "git --super-prefix=x log"},
        {25, false, "git --work-tree=x log"},
        {25, false, "git --attr-source log push"},
        {25, false, "git diff --output=x"},
        {25, false, "git diff --output x"},
        {25, false, "git diff --outp=x"},
        {25, false, "git diff --ext-diff"},
        {25, false, "git diff --ext"},
        {25, false, "git show --textconv"},
        {25, false, "git log --exec=x"},
        {25, false, "git branch -d x"},
        {25, false, "git branch new"},
        {25, false, "git branch --output=x"},
        {25, false, "git branch --format"},
        {25, false, "git checkout status"},
        {25, false, "git push"},
    };

    (void)state;
    check(rows, sizeof rows / sizeof *rows, SP_KNOWN_SAFE_LIST_GIT);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_the_list),
    cmocka_unit_test(test_git),
};
TEST_MAIN(tests)
