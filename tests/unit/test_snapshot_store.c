/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which snapshots there are: who waits for them, how many, and what is left in the directory.
 */
#include "engine/snapshot.h"
#include "sandbox/profile.h"
#include "snapshot_fixture.h"

#define COUNTING "echo x >> \"$HOME/count\"\n"

static const struct sp_shell sh = {SP_SHELL_SH, (char *)(uintptr_t) "/bin/sh"};

static off_t size_of(const char *name)
{
    char full[256];
    struct stat st;

    (void)snprintf(full, sizeof full, "%s/%s", home, name);
    return stat(full, &st) == 0 ? st.st_size : -1;
}

/* How many files there are in the store. */
static int files(void)
{
    DIR *d = opendir(store);
    int n = 0;

    assert_non_null(d);
    for (const struct dirent *entry; (entry = readdir(d)) != NULL;)
        n += entry->d_name[0] != '.';
    (void)closedir(d);
    return n;
}

/* ---- who waits ---- */

static void ask(struct sp_snapshot_wait *w, const char *cwd)
{
    const struct sp_env_request environment = plain_ask();

    *w = (struct sp_snapshot_wait){.fn = on_told};
    sp_snapshots_get(snapshots, &sh, sp_str_of(cwd), &environment, w);
}

static void wait_for(int count)
{
    while (told < count)
        assert_int_equal(sp_loop_run(loop, NULL), 0);
}

static void test_all_who_ask_share_one_capture(void **state)
{
    struct sp_snapshot_wait w[3];

    (void)state;
    write_profile(COUNTING);
    open_store();
    ask(&w[0], home);
    ask(&w[1], home);
    wait_for(2);
    assert_true(has_path);
    ask(&w[2], home);
    wait_for(3);
    assert_true(has_path);
    assert_int_equal(size_of("count"), 2);
    assert_int_equal(files(), 1);
}

static void test_a_capture_that_failed_is_not_tried_again(void **state)
{
    (void)state;
    write_profile(COUNTING "exit 3\n");
    open_store();
    assert_false(capture(&sh, home));
    assert_false(capture(&sh, home));
    assert_int_equal(size_of("count"), 2);
    assert_int_equal(files(), 0);
}

/* Out of memory, asprintf leaves its result unspecified. */
static bool has_no_memory;

int __wrap_asprintf(char **ret, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int __wrap_asprintf(char **ret, const char *fmt, ...)
{
    va_list args;

    if (has_no_memory) {
        *ret = (char *)(uintptr_t)8;
        return -1;
    }
    va_start(args, fmt);
    const int n = vasprintf(ret, fmt, args);
    va_end(args);
    return n;
}

static void test_a_capture_that_there_is_no_memory_for_leaves_nothing(void **state)
{
    (void)state;
    write_profile("");
    open_store();
    has_no_memory = true;
    const bool is_there = capture(&sh, home);
    has_no_memory = false;
    assert_false(is_there);
    assert_int_equal(files(), 0);
}

static void test_who_no_longer_waits_is_not_told(void **state)
{
    struct sp_snapshot_wait w[3];

    (void)state;
    write_profile("");
    open_store();
    for (int i = 0; i < 3; i++)
        ask(&w[i], home);
    sp_list_remove(&w[1].link);
    sp_list_remove(&w[1].link); /* again is fine */
    sp_list_remove(&w[0].link);
    wait_for(1);
    assert_int_equal(told, 1);
    assert_false(sp_list_is_linked(&w[2].link));
}

static void test_a_store_can_go_while_it_captures(void **state)
{
    struct sp_snapshot_wait w;

    (void)state;
    write_profile("sleep 60\n");
    open_store();
    ask(&w, home);
    sp_snapshots_free(snapshots);
    snapshots = NULL;
    assert_false(sp_list_is_linked(&w.link));
    assert_int_equal(told, 0);
    assert_int_equal(files(), 0);
}

static void test_a_profile_that_hangs_costs_ten_seconds_once(void **state)
{
    const uint64_t before = test_now_ms();

    (void)state;
    write_profile("sleep 60\n");
    open_store();
    assert_false(capture(&sh, home));
    assert_in_range(test_now_ms() - before, SP_SNAPSHOT_LIMIT_MS, DEADLINE_MS);
    assert_false(capture(&sh, home));
}

static void test_other_shells_have_none(void **state)
{
    const struct sp_shell pwsh = {SP_SHELL_POWERSHELL, (char *)(uintptr_t) "/bin/sh"};
    const struct sp_shell missing = {SP_SHELL_BASH, (char *)(uintptr_t) "/nonexistent/bash"};

    (void)state;
    open_store();
    assert_false(capture(&pwsh, home));
    assert_false(capture(&missing, home));
    assert_false(capture(&sh, "/nonexistent/directory"));
    assert_false(capture(&sh, ""));
}

/* ---- the files ---- */

static void test_a_file_is_private_and_holds_nothing_of_the_call(void **state)
{
    char text[65536];
    struct stat st;

    (void)state;
    write_profile("echo noise\n");
    open_store();
    assert_int_equal(stat(store, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_true(capture(&sh, home));
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = read(fd, text, sizeof text - 1);
    assert_true(n > 0);
    text[n] = 0;
    assert_memory_equal(text, "# Snapshot file\n", 16);
    assert_null(strstr(text, "call-7"));
    assert_null(strstr(text, "PWD="));
    assert_null(strstr(text, "noise"));
    sp_snapshots_free(snapshots);
    snapshots = NULL;
    assert_int_equal(files(), 0);
}

static void test_a_variable_of_one_call_is_not_of_the_next(void **state)
{
    struct sp_env_var vars[32];
    struct sp_env_request environment = plain_ask();
    struct sp_snapshot_wait w = {.fn = on_told};
    char text[65536];

    (void)state;
    write_profile("export COPY=\"$SECRET_OF_ONE_CALL\"\n");
    open_store();
    assert_true(environment.plain.count < 32);
    memcpy(vars, environment.plain.items, environment.plain.count * sizeof vars[0]);
    vars[environment.plain.count] =
        (struct sp_env_var){SP_STR("SECRET_OF_ONE_CALL"), SP_STR("its-value")};
    environment.plain = (struct sp_env_vars){vars, environment.plain.count + 1};
    sp_snapshots_get(snapshots, &sh, sp_str_of(home), &environment, &w);
    wait_for(1);
    assert_true(has_path);
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = read(fd, text, sizeof text - 1);
    assert_true(n > 0);
    text[n] = 0;
    assert_non_null(strstr(text, "export TERM='dumb'"));
    assert_non_null(strstr(text, "export COPY=''"));
    assert_null(strstr(text, "SECRET_OF_ONE_CALL"));
}

static void test_a_file_that_is_gone_is_made_again(void **state)
{
    (void)state;
    write_profile(COUNTING);
    open_store();
    assert_true(capture(&sh, home));
    assert_int_equal(unlink(path), 0);
    assert_true(capture(&sh, home));
    assert_int_equal(access(path, R_OK), 0);
    assert_int_equal(size_of("count"), 4);
}

static void test_of_many_directories_the_last_sixteen_are_kept(void **state)
{
    char first[256];
    char cwd[160];

    (void)state;
    write_profile("");
    open_store();
    for (int i = 0; i < SP_SNAPSHOT_MAX + 1; i++) {
        (void)snprintf(cwd, sizeof cwd, "%s/%d", home, i);
        assert_int_equal(mkdir(cwd, 0700), 0);
        assert_true(capture(&sh, cwd));
        if (i == 0)
            memcpy(first, path, sizeof first);
    }
    assert_int_equal(files(), SP_SNAPSHOT_MAX);
    assert_int_equal(access(first, F_OK), -1);
    for (int i = 0; i < SP_SNAPSHOT_MAX + 1; i++) {
        (void)snprintf(cwd, sizeof cwd, "%s/%d", home, i);
        assert_int_equal(rmdir(cwd), 0);
    }
}

static void make_leftover(const char *name, time_t days)
{
    const struct timespec then = {.tv_sec = time(NULL) - days * 86400 - 60};
    const struct timespec t[2] = {then, then};
    char full[256];

    (void)snprintf(full, sizeof full, "%s/%s", store, name);
    write_file(full, "x");
    assert_int_equal(utimensat(AT_FDCWD, full, t, 0), 0);
}

static bool is_left(const char *name)
{
    char full[256];
    struct stat st;

    (void)snprintf(full, sizeof full, "%s/%s", store, name);
    const bool is = lstat(full, &st) == 0;
    (void)unlink(full);
    return is;
}

static void test_only_our_own_old_files_are_removed(void **state)
{
    char full[256];

    (void)state;
    assert_int_equal(mkdir(store, 0700), 0);
    make_leftover("snapshot-0123456789abcdef.sh", 3);
    make_leftover("snapshot-0123456789abcde0.sh", 2);
    make_leftover("snapshot-0123456789abcdeg.sh", 9);
    make_leftover("snapshot-0123456789abcdef.sh.x", 9);
    make_leftover("notes", 9);
    (void)snprintf(full, sizeof full, "%s/snapshot-ffffffffffffffff.sh", store);
    assert_int_equal(symlink("notes", full), 0);
    open_store();
    assert_false(is_left("snapshot-0123456789abcdef.sh"));
    assert_true(is_left("snapshot-0123456789abcde0.sh"));
    assert_true(is_left("snapshot-0123456789abcdeg.sh"));
    assert_true(is_left("snapshot-0123456789abcdef.sh.x"));
    assert_true(is_left("notes"));
    assert_true(is_left("snapshot-ffffffffffffffff.sh"));
}

static void test_a_directory_that_others_can_reach_is_refused(void **state)
{
    struct sp_snapshots_options o = {.backend = backend, .directory = store};
    struct sp_err e = {0};
    char link[128];

    (void)state;
    assert_int_equal(mkdir(store, 0700), 0);
    assert_int_equal(chmod(store, 0755), 0);
    assert_int_equal(sp_snapshots_new(&o, &snapshots, &e), -SP_E_INVALID);
    assert_non_null(strstr(e.msg, "must be ours alone"));
    assert_int_equal(chmod(store, 0700), 0);
    (void)snprintf(link, sizeof link, "%s/link", home);
    assert_int_equal(symlink(store, link), 0);
    o.directory = link;
    assert_int_equal(sp_snapshots_new(&o, &snapshots, &e), -SP_E_SYSTEM);
    assert_int_equal(unlink(link), 0);
    o.directory = "store";
    assert_int_equal(sp_snapshots_new(&o, &snapshots, &e), -SP_E_INVALID);
    assert_null(snapshots);
}

/* ---- a capture in a sandbox ---- */

static void test_a_profile_can_be_kept_from_writing(void **state)
{
    const struct sp_legacy read_only = {.mode = SP_MODE_READ_ONLY};
    struct sp_policy p = {.cwd_is_root = true, .cwd = strdup("/")};

    (void)state;
    assert_int_equal(sp_profile_from_legacy(&read_only, &p.profile, NULL), 0);
    write_profile("export A=first\n" COUNTING "export A=$A-second\n");
    policy = &p;
    open_store();
    const bool is_there = capture(&sh, home);
    sp_snapshots_free(snapshots);
    snapshots = NULL;
    policy = NULL;
    sp_policy_done(&p);
    assert_int_equal(size_of("count"), -1);
    if (!is_there) {
        print_message("# no sandbox on this host, and so no snapshot\n");
        skip();
    }
}

/* ---- the script ---- */

static void test_a_script_that_no_program_could_be_told_is_none(void **state)
{
    auto_buf struct sp_buf script = {0};
    static char cmd[64 * 1024];

    (void)state;
    memset(cmd, '\'', sizeof cmd);
    assert_false(sp_snapshot_script(&script, &sh, "/x", (struct sp_str){cmd, sizeof cmd},
                                    (struct sp_str){0}, NULL, 0));
    assert_int_equal(script.len, 0);
    memset(cmd, 'a', sizeof cmd);
    assert_true(sp_snapshot_script(&script, &sh, "/x", (struct sp_str){cmd, sizeof cmd},
                                   (struct sp_str){0}, NULL, 0));
}

static void assert_not_composed(const char *printed)
{
    auto_buf struct sp_buf text = {0};

    assert_false(sp_snapshot_compose(&text, SP_SHELL_BASH, "n", sp_str_of(printed)));
}

static void test_what_is_printed_is_taken_whole_or_not_at_all(void **state)
{
    static const char all[] = "noise\n# n options\nset -o errexit\nset -o x; touch /tmp/x\n"
                              "set -o $(x)\nset -o noexec\n"
                              "\n# n early\nshopt -s extglob\nshopt -s login_shell\nshopt -s a b\n"
                              "\n# n functions\nf () { :; }\n"
                              "\n# n aliases\nalias a='b\nc'\nd=\"'\"\n"
                              "\n# n variables\nA=it's\0B-C=x\0PWD=/\0D=\n\0\n# n end\nlater";
    auto_buf struct sp_buf text = {0};

    (void)state;
    assert_not_composed("");
    assert_not_composed("\n# n options\n\n# n early\n\n# n functions\n\n# n aliases\n"
                        "\n# n variables\n");
    assert_not_composed("\n# n early\n\n# n options\n\n# n functions\n\n# n aliases\n"
                        "\n# n variables\n\n# n end\n");
    assert_true(
        sp_snapshot_compose(&text, SP_SHELL_BASH, "n", (struct sp_str){all, sizeof all - 1}));
    assert_bytes(text.data, text.len,
                 "# Snapshot file\n\\shopt -s extglob\nf () { :; }\n\n\\alias a='b\nc'\n"
                 "\\alias d=\"'\"\n\\export A='it'\\''s'\n\\export D='\n'\n\\set -o errexit\n"
                 "\\shopt -s expand_aliases\n:\n");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

static const struct CMUnitTest tests[] = {
    TEST(test_all_who_ask_share_one_capture),
    TEST(test_a_capture_that_failed_is_not_tried_again),
    TEST(test_a_capture_that_there_is_no_memory_for_leaves_nothing),
    TEST(test_who_no_longer_waits_is_not_told),
    TEST(test_a_store_can_go_while_it_captures),
    TEST(test_a_profile_that_hangs_costs_ten_seconds_once),
    TEST(test_other_shells_have_none),
    TEST(test_a_file_is_private_and_holds_nothing_of_the_call),
    TEST(test_a_variable_of_one_call_is_not_of_the_next),
    TEST(test_a_file_that_is_gone_is_made_again),
    TEST(test_of_many_directories_the_last_sixteen_are_kept),
    TEST(test_only_our_own_old_files_are_removed),
    TEST(test_a_directory_that_others_can_reach_is_refused),
    TEST(test_a_profile_can_be_kept_from_writing),
    TEST(test_a_script_that_no_program_could_be_told_is_none),
    TEST(test_what_is_printed_is_taken_whole_or_not_at_all),
};

TEST_MAIN(tests)
