/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/socket.h>
#include <sys/un.h>

#include "survey_fixture.h"

/* ---- facts ---- */

static void test_the_innermost_entry_decides(void **state)
{
    (void)state;
    make_dir("repo/a/b");
    can_write("repo");
    denied("repo/a");
    can_write("repo/a/b");
    survey_now();
    has("repo", WRITE, DIR, ENTRY);
    has("repo/a", DENY, DIR, ENTRY);
    has("repo/a/b", WRITE, DIR, ENTRY);
}

static void test_at_one_place_deny_is_over_write_over_read(void **state)
{
    (void)state;
    make_dir("rw");
    make_dir("dw");
    make_dir("dr");
    can_read("rw");
    can_write("rw");
    can_write("dw");
    denied("dw");
    denied("dr");
    can_read("dr");
    survey_now();
    has("rw", WRITE, DIR, ENTRY);
    has("dw", DENY, DIR, ENTRY);
    has("dr", DENY, DIR, ENTRY);
    has_no("dw/.git"); /* it is no root */
}

static void test_two_spellings_of_one_place_are_one(void **state)
{
    (void)state;
    make_dir("real");
    make_link("real", "alias");
    can_read("alias");
    can_write("real");
    survey_now();
    has("real", WRITE, DIR, ENTRY);
    has_no("alias");
    survey_reset();
    can_write("alias");
    denied("real");
    survey_now();
    has("real", DENY, DIR, ENTRY);
    survey_reset();
    can_write("alias");
    denied("real/x/y"); /* a carve-out in the root's other spelling */
    make_dir("real/x/y");
    survey_now();
    has("real", WRITE, DIR, ENTRY);
    has("real/x/y", DENY, DIR, ENTRY);
}

static void test_the_root_is_never_listed_as_denied(void **state)
{
    (void)state;
    make_dir("r");
    say_place(SP_PLACE_ROOT, SP_ACCESS_DENY, NULL, false);
    can_read("r");
    survey_now();
    assert_int_equal(survey.count, 1);
    has("r", READ, DIR, ENTRY);
    reads_all();
    survey_now();
    assert_null(spot_at("/"));
}

static void test_files_can_be_roots(void **state)
{
    (void)state;
    make_file("f", "");
    make_file("w/g", "");
    assert_int_equal(mkfifo(at("w/pipe"), 0666), 0);
    can_write("f");
    can_write("w");
    can_read("w/g");
    denied("w/pipe");
    survey_now();
    has("f", WRITE, FILE, ENTRY);
    has("w/g", READ, FILE, ENTRY);
    has("w/pipe", DENY, FILE, ENTRY);
    has_no("f/.git");
}

static void
test_the_same_entry_twice_counts_for_the_project_and_not_for_a_temporary_one(void **state)
{
    (void)state;
    make_dir("w");
    policy.tmpdir = strdup(at("w"));
    assert_true(sp_policy_add_root(&policy, sp_str_of(at("w"))));
    say_place(SP_PLACE_TMPDIR, SP_ACCESS_WRITE, NULL, false);
    say_place(SP_PLACE_PROJECT, SP_ACCESS_WRITE, NULL, false);
    survey_now();
    assert_int_equal(sure_spot(at("w"))->entry, 1);
    assert_int_equal(sure_spot(at("w/.git"))->entry, 1); /* a placeholder, then */
}

static void test_a_root_below_a_temporary_one(void **state)
{
    (void)state;
    make_dir("tmp/work");
    policy.tmpdir = strdup(at("tmp"));
    assert_true(sp_policy_add_root(&policy, sp_str_of(at("tmp/work"))));
    say_place(SP_PLACE_PROJECT, SP_ACCESS_WRITE, NULL, false);
    say_place(SP_PLACE_TMPDIR, SP_ACCESS_WRITE, NULL, false);
    survey_now();
    assert_int_equal(sure_spot(at("tmp/.codex"))->entry, 1);
    assert_int_equal(sure_spot(at("tmp/work/.codex"))->entry, 0);
    has("tmp", WRITE, DIR, ENTRY);
    has("tmp/work", WRITE, DIR, ENTRY);
}

static void test_the_platforms_defaults_fill_gaps_only(void **state)
{
    const struct sp_spot *usr;

    (void)state;
    say_place(SP_PLACE_MINIMAL, SP_ACCESS_READ, NULL, false);
    survey_now();
    usr = sure_spot("/usr");
    assert_non_null(usr);
    assert_int_equal(usr->access, SP_ACCESS_READ);
    survey_reset();
    say_place(SP_PLACE_MINIMAL, SP_ACCESS_READ, NULL, false);
    say_place(SP_PLACE_PATH, SP_ACCESS_DENY, "/usr", false);
    survey_now();
    assert_int_equal(sure_spot("/usr")->access, SP_ACCESS_DENY);
    assert_null(spot_at("/usr/bin")); /* where /bin leads: denied, and stays so */
}

/* ---- what is not there ---- */

static void test_missing_places_outside_of_roots_are_skipped(void **state)
{
    (void)state;
    make_dir("r");
    can_read("r");
    can_write("gone");
    can_read("gone2");
    denied("gone3");
    can_read("r/gone");
    denied("r/gone2/x");
    survey_now();
    assert_int_equal(survey.count, 1);
    make_dir("gone");
    assert_false(sp_survey_holds(&survey));
}

static void test_missing_places_in_a_root_are_held_at_the_first_component(void **state)
{
    (void)state;
    make_dir("w/sub/ro");
    can_write("w");
    can_read("w/m/n/o");
    denied("w/sub/x");
    read_if_there("w/default");
    can_write("w/later");
    can_read("w/sub/ro");
    can_read("w/sub/ro/x/y"); /* nobody makes anything there */
    survey_now();
    has("w/m", READ, MISSING, ENTRY);
    has("w/sub/x", DENY, MISSING, ENTRY);
    has_no("w/default");
    has_no("w/later");
    has_no("w/sub/ro/x");
    denied("w/m/p"); /* of one component the strictest decides */
    survey_now();
    has("w/m", DENY, MISSING, ENTRY);
}

static void test_a_file_in_the_way_of_a_carve_out_is_refused(void **state)
{
    char text[512];

    (void)state;
    make_file("w/f", "");
    can_write("w");
    can_read("w/f/x");
    (void)snprintf(text, sizeof text,
                   "cannot enforce sandbox read-only path %s because %s is not a directory",
                   at("w/f/x"), at("w/f"));
    survey_refused(SP_E_INVALID, text);
    survey_reset();
    make_file("r/f", "");
    can_read("r");
    denied("r/f/x");
    survey_now();
}

static void test_a_name_that_cannot_be_is_not_held(void **state)
{
    char name[NAME_MAX + 16] = "w/";

    (void)state;
    make_dir("w");
    memset(name + 2, 'n', NAME_MAX + 1);
    can_write("w");
    denied(name);
    survey_now();
    has_no(name);
}

/* ---- hidden paths ---- */

static void test_hidden_paths_are_over_everything(void **state)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};

    (void)state;
    make_dir("w/run/inner/deep");
    make_dir("w/other");
    make_link("w/run", "alias");
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(chdir(tree), 0); /* a socket's name is short */
    strcpy(name.sun_path, "w/sock");
    assert_int_equal(bind(fd, (struct sockaddr *)&name, sizeof name), 0);
    assert_int_equal(chdir("/"), 0);
    (void)close(fd);
    can_write("w");
    can_write("w/run");
    can_write("w/run/inner");
    can_read("w/run/inner/deep");
    can_write("w/other");
    hidden_paths[0] = at("alias");
    hidden_paths[1] = at("w/sock");
    hidden_paths[2] = at("none");
    hidden_paths[3] = at("w/.codex");
    make_dir("w/.codex");
    survey_now();
    has("w/run", DENY, DIR, HIDDEN);
    has("w/sock", DENY, FILE, HIDDEN);
    has("w/.codex", DENY, DIR, HIDDEN);
    has_no("w/run/inner");
    has_no("w/run/inner/deep");
    has_no("w/run/.git");
    has_no("none");
    has("w/other", WRITE, DIR, ENTRY);
    make_dir("none");
    assert_false(sp_survey_holds(&survey));
}

/* ---- places of our own ---- */

static void test_own_places_are_read_only(void **state)
{
    (void)state;
    make_dir("w/home/rules/sub");
    make_dir("w/home/work");
    make_file("w/my.rules", "");
    make_file("r/conf", "");
    make_dir("w/p/.codex");
    reads_all();
    can_write("w");
    can_write("w/home/work");      /* an entry below a directory of ours stays */
    can_write("w/home/rules/sub"); /* but not below rules */
    can_write("w/my.rules");       /* nor for the file itself */
    own_dirs[0] = at("w/home");
    own_dirs[1] = at("w/none/deep");
    own_dirs[2] = at("r/none");
    own_files[0] = at("w/home/rules");
    own_files[1] = at("w/my.rules");
    own_files[2] = at("r/conf");
    own_names[0] = at("w/p/.codex");
    own_names[1] = at("w/p/.sallyport");
    survey_now();
    has("w/home", READ, DIR, OWN);
    has("w/home/work", WRITE, DIR, ENTRY);
    has_no("w/home/rules/sub");
    has("w/my.rules", READ, FILE, OWN);
    has("w/none", READ, MISSING, OWN); /* the caller makes it */
    has_no("r/none");
    has_no("r/conf");
    has("w/p/.codex", READ, DIR, OWN);
    has("w/p/.sallyport", READ, MISSING, PROTECTED);
    assert_true(sp_survey_holds(&survey));
    make_dir("w/none");
    assert_false(sp_survey_holds(&survey));
}

static void test_a_symlink_to_an_own_place_is_refused_if_it_can_be_replaced(void **state)
{
    (void)state;
    make_dir("w");
    make_dir("r/home");
    make_link("r/home", "w/link");
    make_link("r/home", "r/link");
    reads_all();
    can_write("w");
    own_dirs[0] = at("r/link");
    survey_now();
    own_dirs[0] = at("w/link");
    assert_int_equal(survey_try(), -SP_E_INVALID);
    assert_non_null(strstr(error.msg, "could replace the symlink"));
}

static void test_an_open_policy_has_nothing_but_hidden_paths(void **state)
{
    (void)state;
    make_dir("a/run");
    policy.profile.kind = SP_PROFILE_DISABLED;
    survey_now();
    assert_true(survey.is_open);
    assert_int_equal(survey.count, 0);
    hidden_paths[0] = at("a/run");
    survey_now();
    assert_int_equal(survey.count, 1);
    has("a/run", DENY, DIR, HIDDEN);
    assert_true(is_pinned("a"));
}

static void test_the_root_cannot_be_covered(void **state)
{
    (void)state;
    hidden_paths[0] = "/";
    survey_refused(SP_E_INVALID, "the root directory cannot be hidden");
    hidden_paths[0] = "relative";
    survey_refused(SP_E_INVALID, "hidden path relative is not absolute");
}

/* ---- pins ---- */

static void test_directories_that_lead_to_carve_outs_are_pinned(void **state)
{
    (void)state;
    make_dir("w/a/b/ro");
    make_dir("w/a/c");
    make_dir("w/d/e");
    make_dir("r/x/y");
    can_write("w");
    can_read("w/a/b/ro");
    denied("w/a/c/m/n");
    can_read("r");
    denied("r/x/y");
    can_write("w/d/e");
    survey_now();
    assert_true(is_pinned("w/a"));
    assert_true(is_pinned("w/a/b"));
    assert_true(is_pinned("w/a/c"));
    assert_true(is_pinned("w/d")); /* else w/d/e/.git could be made anew */
    assert_int_equal(survey.pin_count, 4);
}

/* ---- hostile trees ---- */

static void test_hostile_names_are_surveyed_as_they_are(void **state)
{
    char name[NAME_MAX + 8] = "w/";

    (void)state;
    memset(name + 2, 'n', NAME_MAX);
    make_dir(name);
    make_dir("w/a\nb\xFF");
    make_dir("w/a.b");
    make_dir("w/a/x");
    can_write("w");
    can_read(name);
    denied("w/a\nb\xFF");
    can_read("w/a.b");
    can_read("w/a");
    denied("w/a/x");
    survey_now(); /* which also looks at the order: w/a/x comes before w/a.b */
    has(name, READ, DIR, ENTRY);
    has("w/a\nb\xFF", DENY, DIR, ENTRY);
    has("w/a/x", DENY, DIR, ENTRY);
}

static void test_paths_at_the_kernels_limit(void **state)
{
    char path[PATH_MAX + NAME_MAX];
    size_t len = strlen(tree);

    (void)state;
    /* So deep that what is protected below it has no path any more. */
    memcpy(path, tree, len + 1);
    while (len < PATH_MAX - 5) {
        size_t n = PATH_MAX - 5 - len - 1;

        if (n > NAME_MAX)
            n = n - NAME_MAX < 2 ? NAME_MAX - 2 : NAME_MAX;
        path[len] = '/';
        memset(path + len + 1, 'd', n);
        len += 1 + n;
        path[len] = 0;
        assert_int_equal(mkdir(path, 0777), 0);
    }
    say_place(SP_PLACE_PATH, SP_ACCESS_READ, path, false);
    survey_now();
    has_path(path, SP_ACCESS_READ, SP_SPOT_DIR, SP_WHY_ENTRY);
    say_place(SP_PLACE_PATH, SP_ACCESS_WRITE, path, false);
    assert_int_equal(survey_try(), -(int)SP_E_INVALID);
    assert_int_equal(error.sys, ENAMETOOLONG);
}

/* A directory and a symlink out of the root change places all the time. */
static pid_t start_swapping(void)
{
    const pid_t pid = fork();

    if (pid != 0)
        return pid;
    for (;;)
        (void)renameat2(AT_FDCWD, at("w/sub"), AT_FDCWD, at("w/other"), RENAME_EXCHANGE);
}

static void test_a_race_ends_in_a_refusal_or_in_what_was_seen(void **state)
{
    const uint64_t until = test_now_ms() + 1000;
    int refused = 0;
    int made = 0;
    struct stat inside;

    (void)state;
    make_dir("w/sub/ro");
    make_dir("out/ro");
    make_link("../out", "w/other");
    assert_int_equal(stat(at("w/sub/ro"), &inside), 0);
    can_write("w");
    denied("w/sub/ro");
    const pid_t pid = start_swapping();
    assert_true(pid > 0);
    while (test_now_ms() < until) {
        if (survey_try() < 0) {
            refused++;
            continue;
        }
        made++;
        const struct sp_spot *s = spot_at(at("w/sub/ro"));
        if (s == NULL || s->who.ino != inside.st_ino || spot_at(at("out/ro")) != NULL) {
            (void)kill(pid, SIGKILL);
            fail_msg("the survey took a way that is not there");
        }
    }
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    print_message("# %d refused, %d made\n", refused, made);
    assert_true(refused + made > 0);
}

static void test_where_we_may_not_look(void **state)
{
    (void)state;
    make_dir("closed/in");
    make_dir("w/closed/in");
    assert_int_equal(chmod(at("closed"), 0), 0);
    assert_int_equal(chmod(at("w/closed"), 0), 0);
    be_an_ordinary_user();
    can_write("w");
    denied("closed/in"); /* no command may look there either */
    survey_now();
    denied("w/closed/in"); /* but here it may open the door first */
    assert_int_equal(survey_try(), -(int)SP_E_SYSTEM);
    assert_int_equal(error.sys, EACCES);
}

static const struct CMUnitTest tests[] = {
    survey_test(test_the_innermost_entry_decides),
    survey_test(test_at_one_place_deny_is_over_write_over_read),
    survey_test(test_two_spellings_of_one_place_are_one),
    survey_test(test_the_root_is_never_listed_as_denied),
    survey_test(test_files_can_be_roots),
    survey_test(test_the_same_entry_twice_counts_for_the_project_and_not_for_a_temporary_one),
    survey_test(test_a_root_below_a_temporary_one),
    survey_test(test_the_platforms_defaults_fill_gaps_only),
    survey_test(test_missing_places_outside_of_roots_are_skipped),
    survey_test(test_missing_places_in_a_root_are_held_at_the_first_component),
    survey_test(test_a_file_in_the_way_of_a_carve_out_is_refused),
    survey_test(test_a_name_that_cannot_be_is_not_held),
    survey_test(test_hidden_paths_are_over_everything),
    survey_test(test_own_places_are_read_only),
    survey_test(test_a_symlink_to_an_own_place_is_refused_if_it_can_be_replaced),
    survey_test(test_an_open_policy_has_nothing_but_hidden_paths),
    survey_test(test_the_root_cannot_be_covered),
    survey_test(test_directories_that_lead_to_carve_outs_are_pinned),
    survey_test(test_hostile_names_are_surveyed_as_they_are),
    survey_test(test_paths_at_the_kernels_limit),
    survey_test(test_a_race_ends_in_a_refusal_or_in_what_was_seen),
    survey_test(test_where_we_may_not_look),
};

TEST_MAIN(tests)
