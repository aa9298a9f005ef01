/* SPDX-License-Identifier: Apache-2.0 */
/* Servers that are killed, and that come and go at the same time, in other processes; and runtime
 * directories that somebody else has had his hands on. */
#include <sys/file.h>

#include "placeholder_fixture.h"

/* ---- a server in another process ---- */

struct server {
    pid_t pid;
    int hold; /* it lives for as long as this is open */
};

static void serve(const char *dir, const char *const *below, int said, int hold)
{
    struct sp_placeholders *t = NULL;
    char byte = 0;

    CHILD_CHECK(table_new(dir, &t, &error) == 0);
    for (; *below != NULL; below++) {
        uint64_t dev;
        uint64_t ino;

        CHILD_CHECK(take_at(t, at(*below), &dev, &ino, &error) == 0);
    }
    CHILD_CHECK(write(said, "x", 1) == 1);
    CHILD_CHECK(read(hold, &byte, 1) >= 0);
    table_free(t);
    _exit(0);
}

/* Runs until it is ended, with these placeholders. */
static struct server start_server(const char *dir, const char *const *below)
{
    int said[2];
    int hold[2];
    char byte;

    assert_int_equal(pipe2(said, O_CLOEXEC), 0);
    assert_int_equal(pipe2(hold, O_CLOEXEC), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        for (int fd = 3; fd < 256; fd++) /* neither our tables' locks nor what ends other servers */
            if (fd != said[1] && fd != hold[0])
                (void)close(fd);
        serve(dir, below, said[1], hold[0]);
    }
    (void)close(said[1]);
    (void)close(hold[0]);
    assert_int_equal(read(said[0], &byte, 1), 1);
    (void)close(said[0]);
    return (struct server){pid, hold[1]};
}
#define SERVER(...) start_server(at("run"), (const char *const[]){__VA_ARGS__, NULL})

static void kill_server(struct server s)
{
    assert_int_equal(kill(s.pid, SIGKILL), 0);
    assert_int_equal(reap(s.pid, DEADLINE_MS), 128 + SIGKILL);
    (void)close(s.hold);
}

static void end_server(struct server s)
{
    (void)close(s.hold);
    assert_int_equal(reap(s.pid, DEADLINE_MS), 0);
}

static int files_in(const char *below, const char *prefix)
{
    DIR *d = opendir(at(below));
    int n = 0;

    assert_non_null(d);
    for (const struct dirent *i; (i = readdir(d)) != NULL;)
        n += strncmp(i->d_name, prefix, strlen(prefix)) == 0;
    (void)closedir(d);
    return n;
}
#define journals() files_in("run", "placeholders.")

/* A start that nobody waits for too long: what hangs is killed. */
static void starts_in_time(const char *dir)
{
    const pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        struct sp_placeholders *t = NULL;
        uint64_t dev;
        uint64_t ino;

        CHILD_CHECK(table_new(dir, &t, &error) == 0);
        CHILD_CHECK(take_at(t, at("w/.trial"), &dev, &ino, &error) == 0);
        sp_placeholder_drop(t, at("w/.trial"));
        table_free(t);
        _exit(0);
    }
    assert_int_equal(reap(pid, DEADLINE_MS), 0);
    assert_false(is_there("w/.trial"));
}

/* ---- the dead ---- */

static void test_the_next_server_removes_what_a_killed_one_has_left(void **state)
{
    (void)state;
    make_dir("w/sub");
    kill_server(SERVER("w/.git", "w/.codex", "w/sub/.git"));
    assert_true(is_there("w/.git"));
    assert_int_equal(journals(), 3);
    table_free(table);
    table = new_table(at("run"));
    assert_false(is_there("w/.git"));
    assert_false(is_there("w/.codex"));
    assert_false(is_there("w/sub/.git"));
    assert_int_equal(journals(), 2);
}

static void test_what_is_no_placeholder_any_more_is_left_to_its_owner(void **state)
{
    (void)state;
    make_dir("keep");
    const struct server s = SERVER("w/a", "w/b", "w/c", "w/d", "w/e");
    assert_int_equal(chmod(at("w/a"), 0755), 0);
    assert_int_equal(chmod(at("w/b"), 0755), 0);
    make_file("w/b/f", "");
    assert_int_equal(chmod(at("w/b"), 0500), 0);
    assert_int_equal(rmdir(at("w/c")), 0);
    make_file("w/c", "text");
    assert_int_equal(rmdir(at("w/d")), 0);
    make_link(at("keep"), "w/d");
    assert_int_equal(chmod(at("keep"), 0500), 0);
    assert_int_equal(rmdir(at("w/e")), 0);
    kill_server(s);
    table_free(table);
    table = new_table(at("run"));
    assert_true(is_there("w/a"));
    assert_true(is_there("w/b/f"));
    assert_true(is_there("w/c"));
    assert_true(is_there("w/d"));
    assert_true(is_there("keep"));
    assert_int_equal(journals(), 2);
}

/* The directory above was moved away and a symlink put in its place. */
static void test_no_symlink_leads_the_next_server_astray(void **state)
{
    (void)state;
    make_dir("w/sub");
    make_dir("precious/.git");
    assert_int_equal(chmod(at("precious/.git"), 0500), 0);
    const struct server s = SERVER("w/sub/.git");
    assert_int_equal(rename(at("w/sub"), at("w/moved")), 0);
    make_link("../precious", "w/sub");
    kill_server(s);
    table_free(table);
    table = new_table(at("run"));
    assert_true(is_there("precious/.git"));
}

static void test_what_a_living_server_uses_outlives_a_killed_one(void **state)
{
    (void)state;
    takes(table, "w/.git");
    takes(table, "w/.codex");
    kill_server(SERVER("w/.git", "w/.mine"));
    const struct server s = SERVER("w/.other"); /* finds the dead one's journal */
    assert_true(sp_placeholder_stands(table, at("w/.git")));
    assert_false(is_there("w/.mine"));
    end_server(s);
    kill_server(SERVER("w/.git", "w/.mine"));
    drop(table, "w/.codex"); /* so may we ourselves */
    assert_true(sp_placeholder_stands(table, at("w/.git")));
    takes(table, "w/.git");
    drop(table, "w/.git");
    assert_true(is_there("w/.git"));
    drop(table, "w/.git");
    assert_false(is_there("w/.git"));
}

static void test_what_a_killed_server_shared_goes_with_the_last_living_one(void **state)
{
    (void)state;
    const struct server dead = SERVER("w/.git");
    takes(table, "w/.git");
    kill_server(dead);
    assert_true(sp_placeholder_stands(table, at("w/.git")));
    drop(table, "w/.git");
    assert_false(is_there("w/.git"));
}

static void test_two_processes_share_one(void **state)
{
    (void)state;
    const struct server a = SERVER("w/.git");
    const struct server b = SERVER("w/.git", "w/.codex");
    end_server(a);
    assert_true(is_there("w/.git"));
    takes(table, "w/.git");
    end_server(b);
    assert_true(sp_placeholder_stands(table, at("w/.git")));
    assert_false(is_there("w/.codex"));
    drop(table, "w/.git");
    assert_false(is_there("w/.git"));
}

static void test_a_server_that_ends_leaves_no_journal(void **state)
{
    (void)state;
    end_server(SERVER("w/.git"));
    assert_int_equal(journals(), 2);
    table_free(table);
    table_free(other);
    table = other = NULL;
    assert_int_equal(journals(), 0);
}

/* ---- runtime directories ---- */

static void put_journal(const char *name, const void *bytes, size_t n)
{
    char path[PATH_MAX];

    (void)snprintf(path, sizeof path, "run/placeholders.%s", name);
    auto_close int fd = open(at(path), O_WRONLY | O_CREAT | O_CLOEXEC | O_EXCL, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), n);
}

static void test_garbage_in_journals_removes_nothing_else(void **state)
{
    static const char lines[] =
        "relative\0\0/\0//\0/..\0/proc/self/fd\0/tmp\0/etc\0\xff\xfe\0/no-end";
    uint64_t seed = 5;
    char noise[4096];
    char *big = calloc(1, (2U << 20) + 1);

    (void)state;
    assert_non_null(big);
    make_dir("w/keep");
    make_file("w/file", "");
    make_dir("w/.left");
    assert_int_equal(chmod(at("w/.left"), 0500), 0);
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (char)test_random(&seed);
    put_journal("lines", lines, sizeof lines);
    put_journal("noise", noise, sizeof noise);
    put_journal("empty", "", 0);
    put_journal("big", big, (2U << 20) + 1);
    put_journal("keep", at("w/keep"), strlen(at("w/keep")) + 1);
    put_journal("file", at("w/file"), strlen(at("w/file")));
    put_journal("no-end", at("w/.left"), strlen(at("w/.left"))); /* a last line that was cut */
    memset(noise, 'x', sizeof noise);
    noise[0] = '/';
    put_journal("long", noise, sizeof noise); /* one path, longer than any */
    make_dir("run/placeholders.dir");
    make_file("run/placeholders.dir/in", "");
    make_link("../w/file", "run/placeholders.link");
    assert_int_equal(mkfifo(at("run/placeholders.pipe"), 0600), 0);
    make_file("run/other", "");
    free(big);
    starts_in_time(at("run"));
    assert_true(is_there("w/keep"));
    assert_true(is_there("w/file"));
    assert_false(is_there("w/.left"));
    assert_true(is_there("run/placeholders.dir/in"));
    assert_true(is_there("run/other"));
}

/* Whatever it is, placeholders work; they are only not written down. */
static void works_without_journal(const char *dir)
{
    struct sp_placeholders *t = new_table(dir);

    takes(t, "w/.git");
    drop(t, "w/.git");
    assert_false(is_there("w/.git"));
    takes(t, "w/.git");
    table_free(t);
    assert_false(is_there("w/.git"));
    starts_in_time(dir);
}

static void test_a_directory_that_is_not_ours_alone_is_not_used(void **state)
{
    (void)state;
    make_dir("group");
    assert_int_equal(chmod(at("group"), 0770), 0);
    make_dir("all");
    assert_int_equal(chmod(at("all"), 0707), 0);
    make_dir("real");
    assert_int_equal(chmod(at("real"), 0700), 0);
    make_link("real", "link");
    make_file("file", "");
    assert_int_equal(mkfifo(at("pipe"), 0600), 0);
    make_link("nowhere", "dangling");
    make_dir("w/.left");
    assert_int_equal(chmod(at("w/.left"), 0500), 0);
    for (size_t i = 0; i < 2; i++) {
        const char *const dirs[] = {"group", "all"};
        char path[64];

        (void)snprintf(path, sizeof path, "%s/placeholders.1", dirs[i]);
        make_file(path, at("w/.left")); /* whoever can write there may say what he likes */
        (void)snprintf(path, sizeof path, "%s/placeholders.2", dirs[i]);
        make_file(path, at("w/.git"));
        auto_close int lock =
            open(at(path), O_RDONLY | O_CLOEXEC); /* or play a server that lives */
        assert_int_equal(flock(lock, LOCK_EX | LOCK_NB), 0);
        works_without_journal(at(dirs[i]));
        assert_true(is_there("w/.left"));
        assert_int_equal(files_in(dirs[i], "placeholders."), 2);
    }
    works_without_journal(at("link"));
    assert_int_equal(files_in("real", "placeholders."), 0);
    works_without_journal(at("file"));
    works_without_journal(at("pipe"));
    works_without_journal(at("dangling"));
    works_without_journal(at("gone/too"));
    works_without_journal(NULL);
    assert_false(is_there("gone"));
    assert_false(is_there("nowhere"));
    assert_true(is_there("w/.left"));
}

static void test_a_directory_of_somebody_else_is_not_used(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        works_without_journal("/usr");
        return;
    }
    make_dir("his");
    make_file("his/placeholders.1", at("w/.left"));
    make_dir("w/.left");
    assert_int_equal(chmod(at("w/.left"), 0500), 0);
    assert_int_equal(chmod(at("his"), 0755), 0);
    assert_int_equal(chown(at("his"), 65534, 65534), 0);
    works_without_journal(at("his"));
    assert_true(is_there("w/.left"));
    assert_true(is_there("his/placeholders.1"));
}

/* A journal tells nothing to a server that has another runtime directory: the lock does. */
static void test_servers_with_different_directories_leave_each_others_alone(void **state)
{
    struct sp_placeholders *third = new_table(at("elsewhere"));
    struct sp_placeholders *fourth = new_table(NULL);

    (void)state;
    takes(table, "w/.git");
    takes(third, "w/.git");
    takes(fourth, "w/.git");
    drop(third, "w/.git");
    assert_true(sp_placeholder_stands(table, at("w/.git")));
    table_free(third);
    assert_true(sp_placeholder_stands(table, at("w/.git")));
    drop(table, "w/.git");
    assert_true(sp_placeholder_stands(fourth, at("w/.git")));
    table_free(fourth);
    assert_false(is_there("w/.git"));
}

/* The duplicate of a cell that outlives its front. */
static void test_a_duplicate_of_the_lock_keeps_it(void **state)
{
    struct sp_placeholder_at in_use = {0};

    (void)state;
    assert_int_equal(sp_placeholder_take(table, at("w/.git"), &in_use, &error), 0);
    auto_close int cell = dup(in_use.fd);
    auto_close int front = open(at("w/.git"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(flock(front, LOCK_EX | LOCK_NB), -1);
    assert_true(sp_placeholder_remove(at("w/.git")));
    assert_true(is_there("w/.git"));
    drop(table, "w/.git"); /* our own duplicates are no reason to leave it */
    assert_false(is_there("w/.git"));
}

/* Whoever keeps it locked could remove it in the middle of a command. */
static void test_one_that_cannot_be_locked_is_refused(void **state)
{
    (void)state;
    make_dir("w/.git");
    assert_int_equal(chmod(at("w/.git"), 0500), 0);
    auto_close int lock = open(at("w/.git"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(flock(lock, LOCK_EX | LOCK_NB), 0);
    assert_int_equal(take(table, "w/.git"), -(int)SP_E_STATE);
    assert_int_equal(flock(lock, LOCK_UN), 0);
    takes(table, "w/.git");
}

/* ---- at the same time ---- */

#define ROUNDS 3000

/* Takes and drops, and while it has it looks. */
static void come_and_go(const char *dir, const char *path, unsigned seed_start)
{
    struct sp_placeholders *t = NULL;
    uint64_t seed = seed_start;
    int late = 0;

    CHILD_CHECK(table_new(dir, &t, &error) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t dev;
        uint64_t ino;
        struct stat st;
        const int r = take_at(t, path, &dev, &ino, &error);

        if (r == -(int)SP_E_STATE && ++late < ROUNDS / 10)
            continue; /* it was going that moment */
        CHILD_CHECK(r == 0);
        for (uint32_t k = test_random(&seed) % 4; k > 0; k--)
            CHILD_CHECK(lstat(path, &st) == 0 && st.st_ino == ino && st.st_dev == dev);
        sp_placeholder_drop(t, path);
        if (test_random(&seed) % 256 == 0) { /* a server ends, another starts */
            table_free(t);
            CHILD_CHECK(table_new(dir, &t, &error) == 0);
        }
    }
    table_free(t);
    _exit(0);
}

static void test_what_is_held_never_vanishes(void **state)
{
    pid_t pids[2];
    char dir[PATH_MAX + 16];
    char path[PATH_MAX + 16];

    (void)state;
    table_free(table);
    table_free(other);
    table = other = NULL;
    (void)snprintf(dir, sizeof dir, "%s/run", tree);
    (void)snprintf(path, sizeof path, "%s/w/.git", tree);
    for (unsigned i = 0; i < 2; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0)
            come_and_go(dir, path, 10 + i);
    }
    const int a = reap(pids[0], 3 * DEADLINE_MS);
    const int b = reap(pids[1], 3 * DEADLINE_MS);
    assert_int_equal(a, 0);
    assert_int_equal(b, 0);
    assert_false(is_there("w/.git"));
    assert_int_equal(journals(), 0);
}

/* One is killed again and again while the other holds and lets go. */
static void test_what_is_held_survives_the_deaths_of_others(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++) {
        takes(table, "w/.git");
        kill_server(SERVER("w/.git", "w/.codex"));
        assert_true(sp_placeholder_stands(table, at("w/.git")));
        end_server(SERVER("w/.git"));
        assert_true(sp_placeholder_stands(table, at("w/.git")));
        assert_false(is_there("w/.codex"));
        drop(table, "w/.git");
        assert_false(is_there("w/.git"));
    }
}

static const struct CMUnitTest tests[] = {
    placeholder_test(test_the_next_server_removes_what_a_killed_one_has_left),
    placeholder_test(test_what_is_no_placeholder_any_more_is_left_to_its_owner),
    placeholder_test(test_no_symlink_leads_the_next_server_astray),
    placeholder_test(test_what_a_living_server_uses_outlives_a_killed_one),
    placeholder_test(test_what_a_killed_server_shared_goes_with_the_last_living_one),
    placeholder_test(test_two_processes_share_one),
    placeholder_test(test_a_server_that_ends_leaves_no_journal),
    placeholder_test(test_garbage_in_journals_removes_nothing_else),
    placeholder_test(test_a_directory_that_is_not_ours_alone_is_not_used),
    placeholder_test(test_a_directory_of_somebody_else_is_not_used),
    placeholder_test(test_servers_with_different_directories_leave_each_others_alone),
    placeholder_test(test_a_duplicate_of_the_lock_keeps_it),
    placeholder_test(test_one_that_cannot_be_locked_is_refused),
    placeholder_test(test_what_is_held_never_vanishes),
    placeholder_test(test_what_is_held_survives_the_deaths_of_others),
};

int main(void)
{
    (void)sp_log_set_level("error");
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
