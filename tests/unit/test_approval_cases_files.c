/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Acceptance cases of approvals about rule files, from the file to the judgement; and files
 * and folders that are none.
 */
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include "judge_fixture.h"
#include "rules_fixture.h"

static char root[64];

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *w)
{
    (void)st, (void)type, (void)w;
    return remove(path);
}

static int set_up(void **state)
{
    (void)state;
    (void)snprintf(root, sizeof root, "/tmp/sp-case-XXXXXX");
    return mkdtemp(root) == NULL;
}

static int tear_down(void **state)
{
    (void)state;
    return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
#define file_test(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

/* A path below the root; a few at a time. */
static const char *at(const char *path)
{
    static char paths[8][512];
    static unsigned next;
    char *p = paths[next++ % 8];

    (void)snprintf(p, 512, "%s/%s", root, path);
    return p;
}

static void make_parents(char *path)
{
    for (char *slash = strchr(path + strlen(root) + 1, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = 0;
        (void)mkdir(path, 0755);
        *slash = '/';
    }
}

static void write_file(const char *path, const char *text)
{
    char full[512];

    (void)snprintf(full, sizeof full, "%s", at(path));
    make_parents(full);
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static char warnings[4096];

static void note(void *user, const char *text)
{
    (void)user;
    (void)snprintf(warnings + strlen(warnings), sizeof warnings - strlen(warnings), "%s\n", text);
}

static int load(const struct sp_rules_places *places, struct sp_rules **ret, struct sp_err *e)
{
    warnings[0] = 0;
    *ret = NULL;
    return sp_rules_load(places, NULL, note, NULL, ret, e);
}

static struct sp_rules *loaded(const struct sp_rules_places *places)
{
    struct sp_rules *r;
    struct sp_err e = {0};

    if (load(places, &r, &e) < 0)
        fail_msg("%s", e.msg);
    return r;
}

/* What the rules of these places make of a command under a policy, in a read-only sandbox. */
static void expect(const struct sp_rules_places *places, enum sp_approval_kind policy,
                   const char *command, enum judge_want want, const char *reason)
{
    auto_segments struct sp_segments words = {0};
    struct sp_rules *rules = loaded(places);
    struct sp_requirement q;
    struct sp_policy profile;
    struct sp_err e = {0};

    judge_profile_of(RO, &profile);
    assert_int_equal(sp_words_split(&words, sp_str_of(command), &e), 0);
    const struct sp_judge_request ask = {.argv = words.items[0],
                                         .rules = rules,
                                         .policy = {.kind = policy},
                                         .profile = &profile,
                                         .shell = "/bin/bash"};
    assert_int_equal(sp_judge(&ask, &q, &e), 0);
    assert_int_equal(judge_kind_of(&q), want);
    assert_int_equal(q.reason.len, strlen(reason));
    assert_memory_equal(reason, q.reason.data, q.reason.len);
    sp_requirement_done(&q);
    sp_rules_unref(rules);
    sp_policy_done(&profile);
}

/* ---- cases ---- */

/* 82 */
static void test_with_a_broken_file_nothing_runs_free(void **state)
{
    char home[512];
    const struct sp_rules_places places = {.user_dir = home};

    (void)state;
    (void)snprintf(home, sizeof home, "%s", at("home"));
    write_file("home/rules/a.rules", "prefix_rule([\"cat\"], decision=\"allow\")\n"
                                     "prefix_rule([\"curl\"], decision=\"forbidden\")\n");
    expect(&places, SP_APPROVAL_UNTRUSTED, "cat f", FREE, "");
    write_file("home/rules/b.rules", "prefix_rule(");
    expect(&places, SP_APPROVAL_UNTRUSTED, "cat f", SKIP, "");
    assert_non_null(strstr(warnings, "/home/rules/b.rules:1:13: "));
    expect(&places, SP_APPROVAL_UNTRUSTED, "curl x", REJ,
           "`curl x` rejected: policy forbids commands starting with `curl`");
    write_file("home/rules/b.rules", "");
    expect(&places, SP_APPROVAL_UNTRUSTED, "cat f", FREE, "");
}

/* 83 */
static void test_a_projects_rules_need_trust(void **state)
{
    char cwd[512];
    const char *const projects[] = {cwd, NULL};
    struct sp_rules_places places = {0};

    (void)state;
    (void)snprintf(cwd, sizeof cwd, "%s", at("p"));
    write_file("p/.git/HEAD", "");
    write_file("p/.sallyport/rules/a.rules", "prefix_rule([\"ls\"], \"forbidden\")\n");
    expect(&places, SP_APPROVAL_ON_REQUEST, "ls", SKIP, "");
    places.projects = projects;
    expect(&places, SP_APPROVAL_ON_REQUEST, "ls", REJ,
           "`ls` rejected: policy forbids commands starting with `ls`");
}

/* 84 */
static void test_rules_of_two_files_add_up(void **state)
{
    char home[512];
    char cwd[512];
    const char *const projects[] = {cwd, NULL};
    const struct sp_rules_places places = {.user_dir = home, .projects = projects};

    (void)state;
    (void)snprintf(home, sizeof home, "%s", at("home"));
    (void)snprintf(cwd, sizeof cwd, "%s", at("p"));
    write_file("home/rules/u.rules", "prefix_rule([\"rm\"], \"forbidden\")\n");
    write_file("p/.git/HEAD", "");
    write_file("p/.sallyport/rules/p.rules", "prefix_rule([\"ls\"], \"prompt\")\n");
    expect(&places, SP_APPROVAL_ON_REQUEST, "rm x", REJ,
           "`rm x` rejected: policy forbids commands starting with `rm`");
    expect(&places, SP_APPROVAL_ON_REQUEST, "ls", ASK, "`ls` requires approval by policy");
    expect(&places, SP_APPROVAL_ON_REQUEST, "/bin/bash -lc 'ls; rm x'", REJ,
           "`/bin/bash -lc 'ls; rm x'` rejected: policy forbids commands starting with `rm`");
}

/* 85 and 86 */
static void test_examples_that_fail_are_named(void **state)
{
    static const char *const rows[][2] = {
        {"prefix_rule([\"ls\"], match=[\"cat x\"])",
         "x:1:1: expected every example to match at least one rule. rules: "
         "[prefix_rule([\"ls\"])]; unmatched examples: [\"cat x\"]"},
        {"prefix_rule([\"ls\"], not_match=[\"ls -l\"])",
         "x:1:1: expected example to not match rule `prefix_rule([\"ls\"])`: ls -l"},
    };

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct sp_rules_maker *m = sp_rules_maker_new();
        struct sp_err e = {0};

        assert_int_equal(sp_rules_add_text(m, "x", sp_str_of(rows[i][0]), NULL, NULL, &e),
                         -SP_E_INVALID);
        assert_string_equal(e.msg, rows[i][1]);
        sp_rules_maker_free(m);
    }
}

/* 92 and 93, up to what the line is good for */
static void test_an_amendment_makes_the_command_free(void **state)
{
    static const struct sp_str hello[] = {SP_STR("echo"), SP_STR("Hello, world!")};
    static const char line[] =
        "prefix_rule(pattern=[\"echo\", \"Hello, world!\"], decision=\"allow\")\n";
    char home[512];
    char text[512] = "";
    struct sp_err e = {0};
    const struct sp_rules_places places = {.user_dir = home};

    (void)state;
    (void)snprintf(home, sizeof home, "%s", at("home"));
    write_file("home/rules/default.rules", "# no newline");
    for (int i = 0; i < 2; i++)
        assert_int_equal(amend_prefix(home, (struct sp_words){hello, 2}, &e), 0);
    FILE *f = fopen(at("home/rules/default.rules"), "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    assert_int_equal(fclose(f), 0);
    assert_memory_equal(text, "# no newline\n", 13);
    assert_string_equal(text + 13, line);
    expect(&places, SP_APPROVAL_UNTRUSTED, "echo 'Hello, world!' x", FREE, "");
    expect(&places, SP_APPROVAL_UNTRUSTED, "echo Hello", SKIP, "");
    assert_int_equal(amend_prefix(home, (struct sp_words){0}, &e), -SP_E_INVALID);
    assert_string_equal(e.msg, "prefix rule requires at least one token");
}

/* ---- what is no file of rules ---- */

/* No rules, or an error that names the folder: but an answer, and nothing that it would allow. */
static void has_no_rules(const struct sp_rules_places *places)
{
    struct sp_rules *r;
    struct sp_err e = {0};

    if (load(places, &r, &e) < 0) {
        assert_non_null(strstr(e.msg, "failed to read rules files from "));
        assert_non_null(strstr(e.msg, "/home/rules"));
        return;
    }
    assert_int_equal(count_rules(r), 0);
    sp_rules_unref(r);
}

static void test_a_folder_that_is_no_folder(void **state)
{
    char home[512];
    const struct sp_rules_places places = {.user_dir = home};

    (void)state;
    (void)snprintf(home, sizeof home, "%s", at("home"));
    write_file("home/rules", "prefix_rule([\"cat\"])");
    has_no_rules(&places);
    assert_int_equal(unlink(at("home/rules")), 0);
    assert_int_equal(mkfifo(at("home/rules"), 0600), 0); /* would keep whoever opens it to read */
    has_no_rules(&places);
    assert_int_equal(unlink(at("home/rules")), 0);
    assert_int_equal(symlink("/dev/zero", at("home/rules")), 0);
    has_no_rules(&places);
    assert_int_equal(unlink(at("home/rules")), 0);
    assert_int_equal(symlink("rules", at("home/rules")), 0);
    has_no_rules(&places);
}

static void test_files_that_are_no_files(void **state)
{
    char home[512];
    const struct sp_rules_places places = {.user_dir = home};

    (void)state;
    (void)snprintf(home, sizeof home, "%s", at("home"));
    write_file("home/rules/a.rules", "prefix_rule([\"cat\"])");
    write_file("home/secret", "prefix_rule([\"curl\"])");
    assert_int_equal(mkfifo(at("home/rules/b.rules"), 0600), 0); /* nobody will ever write there */
    assert_int_equal(symlink("../secret", at("home/rules/c.rules")), 0);
    assert_int_equal(symlink("c.rules", at("home/rules/d.rules")), 0);
    assert_int_equal(symlink("/dev/zero", at("home/rules/e.rules")), 0);
    assert_int_equal(symlink("f.rules", at("home/rules/f.rules")), 0);
    assert_int_equal(mkdir(at("home/rules/g.rules"), 0700), 0);
    expect(&places, SP_APPROVAL_UNTRUSTED, "cat f", FREE, "");
    for (const char *name = "cdef"; *name != 0; name++) {
        char expected[600];

        (void)snprintf(expected, sizeof expected, "%s/rules/%c.rules: a symbolic link, skipped\n",
                       home, *name);
        assert_non_null(strstr(warnings, expected));
    }
    expect(&places, SP_APPROVAL_UNTRUSTED, "curl x", ASK, "");
}

/* --rules FIFO is an error, at once. */
static void test_a_named_file_that_is_no_file(void **state)
{
    char path[512];
    char expected[600];
    const char *const files[] = {path, NULL};
    struct sp_rules *r;
    struct sp_err e = {0};

    (void)state;
    (void)snprintf(path, sizeof path, "%s", at("pipe.rules"));
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_true(load(&(struct sp_rules_places){.files = files}, &r, &e) < 0);
    (void)snprintf(expected, sizeof expected, "failed to read rules file %s", path);
    assert_non_null(strstr(e.msg, expected));
    (void)snprintf(path, sizeof path, "/dev/zero");
    assert_true(load(&(struct sp_rules_places){.files = files}, &r, &e) < 0);
    (void)snprintf(path, sizeof path, "%s", at("link.rules"));
    write_file("real.rules", "prefix_rule([\"cat\"])");
    assert_int_equal(symlink("real.rules", path), 0);
    assert_int_equal(load(&(struct sp_rules_places){.files = files}, &r, &e), 0);
    assert_int_equal(count_rules(r), 1); /* a link that somebody named is meant */
    sp_rules_unref(r);
}

/* The work tree is whoever cloned it: neither its files nor its folders lead elsewhere. */
static void test_links_in_the_work_tree(void **state)
{
    char cwd[512];
    const char *const projects[] = {cwd, NULL};
    const struct sp_rules_places places = {.projects = projects};

    (void)state;
    (void)snprintf(cwd, sizeof cwd, "%s", at("p"));
    write_file("p/.git/HEAD", "");
    write_file("elsewhere/rules/x.rules", "prefix_rule([\"curl\"])");
    write_file("p/.sallyport/rules/a.rules", "prefix_rule([\"cat\"])");
    assert_int_equal(symlink("../../../elsewhere/rules/x.rules", at("p/.sallyport/rules/b.rules")),
                     0);
    expect(&places, SP_APPROVAL_UNTRUSTED, "cat f", FREE, "");
    assert_non_null(strstr(warnings, "/p/.sallyport/rules/b.rules: a symbolic link, skipped"));
    expect(&places, SP_APPROVAL_UNTRUSTED, "curl x", ASK, "");
}

/* The administrator's file must be his alone: whatever else is there stops everything, at once. */
static void test_managed_rules_that_anybody_may_write(void **state)
{
    static const mode_t modes[] = {0666, 0646, 0664, 0602, 0620, 0777};
    char etc[512];
    char expected[700];
    const struct sp_rules_places places = {.system_dir = etc};
    struct sp_rules *r;
    struct sp_err e = {0};

    (void)state;
    (void)snprintf(etc, sizeof etc, "%s", at("etc"));
    (void)snprintf(expected, sizeof expected,
                   "failed to read rules file %s/managed.rules: it must be a file that belongs to "
                   "root and that nobody else may write",
                   etc);
    write_file("etc/managed.rules", "prefix_rule([\"cat\"])");
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        char text[700];

        assert_int_equal(chmod(at("etc/managed.rules"), modes[i]), 0);
        if (load(&places, &r, &e) == 0)
            fail_msg("rules that mode %o lets others write are taken", (unsigned)modes[i]);
        assert_string_equal(sp_error_text(&e, text, sizeof text), expected);
    }
    assert_int_equal(unlink(at("etc/managed.rules")), 0);
    assert_int_equal(mkfifo(at("etc/managed.rules"), 0600), 0);
    assert_true(load(&places, &r, &e) < 0);
    assert_int_equal(unlink(at("etc/managed.rules")), 0);
    assert_int_equal(mkdir(at("etc/managed.rules"), 0700), 0);
    assert_true(load(&places, &r, &e) < 0);
}

static const struct CMUnitTest tests[] = {
    file_test(test_with_a_broken_file_nothing_runs_free),
    file_test(test_a_projects_rules_need_trust),
    file_test(test_rules_of_two_files_add_up),
    file_test(test_examples_that_fail_are_named),
    file_test(test_an_amendment_makes_the_command_free),
    file_test(test_a_folder_that_is_no_folder),
    file_test(test_files_that_are_no_files),
    file_test(test_a_named_file_that_is_no_file),
    file_test(test_links_in_the_work_tree),
    file_test(test_managed_rules_that_anybody_may_write),
};
TEST_MAIN(tests)
