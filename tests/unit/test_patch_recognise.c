/* SPDX-License-Identifier: Apache-2.0 */
#include "approve/patch/patch.h"
#include "base/auto.h"
#include "memory_fixture.h"
#include "test.h"

#define BODY  "*** Begin Patch\n*** Delete File: x\n*** End Patch\n"
#define HERE  "<<'EOF'\n" BODY "EOF"
#define WORDS 5

struct one {
    const char *argv[WORDS]; /* NULL at the end */
    enum sp_patch_call want;
    const char *cd; /* NULL: none */
};

#define ORDINARY(script)                                  \
    {                                                     \
        {"bash", "-lc", script}, SP_PATCH_CALL_NONE, NULL \
    }
#define PATCH(script, cd)                                \
    {                                                    \
        {"bash", "-lc", script}, SP_PATCH_CALL_PATCH, cd \
    }

static const struct one cases[] = {
    {{"apply_patch", BODY}, SP_PATCH_CALL_PATCH, NULL},
    {{"applypatch", BODY}, SP_PATCH_CALL_PATCH, NULL},
    {{"apply_patch", "what is no patch"}, SP_PATCH_CALL_PATCH, NULL},
    {{"/usr/bin/apply_patch", BODY}, SP_PATCH_CALL_NONE, NULL},
    {{"apply_patch", BODY, "more"}, SP_PATCH_CALL_NONE, NULL},
    {{"apply_patch"}, SP_PATCH_CALL_NONE, NULL},
    {{"ls", "-l"}, SP_PATCH_CALL_NONE, NULL},
    {{NULL}, SP_PATCH_CALL_NONE, NULL},

    PATCH("apply_patch " HERE, NULL),
    PATCH("apply_patch " HERE "\n", NULL),
    PATCH("\n  applypatch\t" HERE "\n \n", NULL),
    PATCH("apply_patch << 'EOF' \n" BODY "EOF\n", NULL),
    PATCH("apply_patch<<EOF\n" BODY "EOF", NULL),
    PATCH("apply_patch <<\"A B\"\n" BODY "A B", NULL),
    PATCH("apply_patch <<PATCH_1\n" BODY "PATCH_1", NULL),
    PATCH("cd sub && apply_patch " HERE, "sub"),
    PATCH("cd  /a/b-c.d  &&\n apply_patch " HERE, "/a/b-c.d"),
    PATCH("cd 'a b' && applypatch " HERE, "a b"),
    PATCH("cd \"a b\"&&apply_patch " HERE, "a b"),
    PATCH("cd .. && apply_patch <<'EOF'\nnot even a patch\nEOF", ".."),
    {{"/bin/sh", "-c", "apply_patch " HERE}, SP_PATCH_CALL_PATCH, NULL},
    {{"zsh", "-lc", "apply_patch " HERE}, SP_PATCH_CALL_PATCH, NULL},
    {{"pwsh", "-Command", "apply_patch " HERE}, SP_PATCH_CALL_PATCH, NULL},
    {{"powershell", "-NoProfile", "-Command", "cd d && apply_patch " HERE},
     SP_PATCH_CALL_PATCH,
     "d"},
    {{"pwsh", "-noprofile", "-command", "apply_patch " HERE}, SP_PATCH_CALL_PATCH, NULL},
    {{"cmd", "/c", "apply_patch " HERE}, SP_PATCH_CALL_PATCH, NULL},
    {{"cmd", "/C", "apply_patch " HERE}, SP_PATCH_CALL_PATCH, NULL},

    {{"fish", "-c", "apply_patch " HERE}, SP_PATCH_CALL_NONE, NULL},
    {{"bash", "-x", "apply_patch " HERE}, SP_PATCH_CALL_NONE, NULL},
    {{"bash", "-NoProfile", "-lc", "apply_patch " HERE}, SP_PATCH_CALL_NONE, NULL},
    {{"cmd", "-c", "apply_patch " HERE}, SP_PATCH_CALL_NONE, NULL},
    {{"pwsh", "-NoProfile", "apply_patch " HERE}, SP_PATCH_CALL_NONE, NULL},
    ORDINARY("echo x; apply_patch " HERE),
    ORDINARY("echo x && apply_patch " HERE),
    ORDINARY("cd a; apply_patch " HERE),
    ORDINARY("cd a || apply_patch " HERE),
    ORDINARY("cd a | apply_patch " HERE),
    ORDINARY("cd a & apply_patch " HERE),
    ORDINARY("cd a b && apply_patch " HERE),
    ORDINARY("cd && apply_patch " HERE),
    ORDINARY("cd '' && apply_patch " HERE),
    ORDINARY("cd - && apply_patch " HERE),
    ORDINARY("cd -P && apply_patch " HERE),
    ORDINARY("cd ~/a && apply_patch " HERE),
    ORDINARY("cd $HOME && apply_patch " HERE),
    ORDINARY("cd \"$HOME\" && apply_patch " HERE),
    ORDINARY("cd `pwd` && apply_patch " HERE),
    ORDINARY("cd a\\ b && apply_patch " HERE),
    ORDINARY("cd a'b' && apply_patch " HERE),
    ORDINARY("cd a* && apply_patch " HERE),
    ORDINARY("cd a && cd b && apply_patch " HERE),
    ORDINARY("cda && apply_patch " HERE),
    ORDINARY("apply_patch x " HERE),
    ORDINARY("'apply_patch' " HERE),
    ORDINARY("A=1 apply_patch " HERE),
    ORDINARY("! apply_patch " HERE),
    ORDINARY("(apply_patch " HERE "\n)"),
    ORDINARY("# x\napply_patch " HERE),
    ORDINARY("apply_patch " HERE " && echo done"),
    ORDINARY("apply_patch <<'EOF' && echo done\n" BODY "EOF"),
    ORDINARY("apply_patch <<'EOF' | cat\n" BODY "EOF"),
    ORDINARY("apply_patch <<'EOF' > f\n" BODY "EOF"),
    ORDINARY("apply_patch <<'EOF' # x\n" BODY "EOF"),
    ORDINARY("apply_patch " HERE "\necho done"),
    ORDINARY("apply_patch " HERE "\n# done"),
    ORDINARY("apply_patch <<'EOF'\n" BODY),
    ORDINARY("apply_patch <<'EOF'\n" BODY " EOF"),
    ORDINARY("apply_patch <<'EOF'\n" BODY "EOF "),
    ORDINARY("apply_patch <<-EOF\n" BODY "EOF"),
    ORDINARY("apply_patch <<<EOF\n" BODY "EOF"),
    ORDINARY("apply_patch <<\\EOF\n" BODY "EOF"),
    ORDINARY("apply_patch <<''\n" BODY "\n"),
    ORDINARY("apply_patch < f"),
    ORDINARY("apply_patch"),
    ORDINARY("cat <<'EOF'\n" BODY "EOF"),
    ORDINARY(""),

    {{BODY}, SP_PATCH_CALL_BARE, NULL},
    {{"bash", "-lc", BODY}, SP_PATCH_CALL_BARE, NULL},
    {{"sh", "-c", HERE}, SP_PATCH_CALL_BARE, NULL},
    {{"powershell", "-Command", BODY}, SP_PATCH_CALL_BARE, NULL},
    {{"*** Begin Patch\nfoo\n*** End Patch"}, SP_PATCH_CALL_NONE, NULL},
};

static int recognise(const struct one *c, enum sp_patch_call *ret, struct sp_buf *text,
                     struct sp_buf *cd, struct sp_err *e)
{
    struct sp_str items[WORDS];
    struct sp_words argv = {items, 0};

    for (; c->argv[argv.count] != NULL; argv.count++)
        items[argv.count] = sp_str_of(c->argv[argv.count]);
    return sp_patch_recognise(argv, ret, text, cd, e);
}

static void test_what_is_a_call_and_what_is_not(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct one *c = &cases[i];
        auto_buf struct sp_buf text = {0};
        auto_buf struct sp_buf cd = {0};
        struct sp_err e = {0};
        enum sp_patch_call got;

        assert_int_equal(recognise(c, &got, &text, &cd, &e), 0);
        if (got != c->want)
            fail_msg("case %zu: %d, not %d: %s", i, got, c->want, c->argv[2]);
        const bool has_cd = cd.len > 0;
        assert_int_equal(has_cd, c->cd != NULL);
        if (has_cd) {
            assert_int_equal(cd.len, strlen(c->cd));
            assert_memory_equal(cd.data, c->cd, cd.len);
        }
        assert_int_equal(text.len > 0, got == SP_PATCH_CALL_PATCH);
        if (got == SP_PATCH_CALL_PATCH && strstr(c->argv[1], "no patch") == NULL &&
            strstr(c->argv[c->argv[2] == NULL ? 1 : 2], "not even") == NULL) {
            assert_true(text.len >= strlen(BODY));
            assert_memory_equal(text.data, BODY, strlen(BODY));
        }
    }
}

static void test_memory_that_ends(void **state)
{
    const struct one c = PATCH("cd sub && apply_patch " HERE, "sub");

    (void)state;
    for (long n = 1;; n++) {
        auto_buf struct sp_buf text = {0};
        auto_buf struct sp_buf cd = {0};
        struct sp_err e = {0};
        enum sp_patch_call got;

        memory_left = n;
        has_memory_ended = false;
        const int r = recognise(&c, &got, &text, &cd, &e);
        memory_left = 0;
        if (r == 0 && !has_memory_ended)
            break;
        assert_int_equal(r, -SP_E_SYSTEM);
        assert_int_equal(e.sys, ENOMEM);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_what_is_a_call_and_what_is_not),
    cmocka_unit_test(test_memory_that_ends),
};

TEST_MAIN(tests)
