/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Somebody else in the same tree, who puts links where directories were, and back, as fast as he
 * can, while we copy, remove, walk and write there. Whatever our answers are: nothing outside is
 * touched, and nothing of it is read.
 */
#include <linux/fs.h>
#include <sys/prctl.h>

#include "file_fixture.h"

#define ROUNDS_MS 700 /* each test; thousands of swaps */

static pid_t rival;

/* ---- the other ---- */

static void swap(const char *a, const char *b)
{
    (void)syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE);
}

/* Exchanges two names for ever. */
static void let_swap(const char *a, const char *b)
{
    char first[PATH_MAX];
    char second[PATH_MAX];

    (void)snprintf(first, sizeof first, "%.4000s", at(a));
    (void)snprintf(second, sizeof second, "%.4000s", at(b));
    rival = fork();
    assert_true(rival >= 0);
    if (rival > 0)
        return;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;)
        swap(first, second);
}

static void stop_him(void)
{
    assert_int_equal(kill(rival, SIGKILL), 0);
    assert_int_equal(reap(rival, DEADLINE_MS), 128 + SIGKILL);
}

static bool can_swap(void)
{
    make_file("x", "");
    make_file("y", "");
    if (syscall(SYS_renameat2, AT_FDCWD, at("x"), AT_FDCWD, at("y"), RENAME_EXCHANGE) == 0)
        return true;
    (void)printf("# names cannot be exchanged here\n");
    return false;
}

static void make_outside(void)
{
    make_file("outside/secret", "outside");
    make_file("outside/sub/secret", "outside");
    make_link("../outside", "work/link");
}

static void assert_outside(void)
{
    assert_file("outside/secret", "outside");
    assert_file("outside/sub/secret", "outside");
    assert_int_equal(do_walk("outside", (struct sp_file_walk){9, 9, 99, false, false}), 0);
    assert_entries("F outside/secret\nD outside/sub\nF outside/sub/secret\n");
}

/* Ourselves we do not fall for him. */
static void make_in(const char *below, const char *name)
{
    const int dir = open(at(below), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (dir < 0)
        return;
    (void)mkdirat(dir, name, 0777);
    (void)close(dir);
}

static uint64_t rounds_end(void)
{
    return test_now_ms() + ROUNDS_MS;
}

/* ---- the tests ---- */

/* Between two system calls of the removal: it is a directory with something in it; then it is not.
 */
int __real_unlinkat(int dir, const char *name, int flags);
int __wrap_unlinkat(int dir, const char *name, int flags);

static char trapped[2][PATH_MAX]; /* are exchanged after the removal of `trap` has failed */
static const char *trap;

int __wrap_unlinkat(int dir, const char *name, int flags)
{
    const int r = __real_unlinkat(dir, name, flags);
    const int err = errno;

    if (trap != NULL && strcmp(name, trap) == 0 && flags == AT_REMOVEDIR && r < 0) {
        trap = NULL;
        swap(trapped[0], trapped[1]);
    }
    errno = err;
    return r;
}

static void test_the_moment_before_a_directory_is_entered(void **state)
{
    (void)state;
    if (!can_swap())
        return;
    make_outside();
    for (int depth = 0; depth < 2; depth++) {
        const char *const dir = depth == 0 ? "work/t" : "work/t/victim";

        make_dir("work/t");
        make_file("work/t/victim/f", "");
        (void)snprintf(trapped[0], PATH_MAX, "%.4000s", at(dir));
        (void)snprintf(trapped[1], PATH_MAX, "%.4000s", at("work/link"));
        trap = depth == 0 ? "t" : "victim";
        (void)do_remove("work/t", true, true);
        assert_null(trap);
        assert_outside();
        assert_int_equal(do_remove("work", true, true), 0);
        make_link("../outside", "work/link");
    }
}

#define PAIRS 8

static void test_a_tree_is_removed(void **state)
{
    static char dir[PAIRS][PATH_MAX];
    static char way_out[PAIRS][PATH_MAX];
    unsigned removed = 0;

    (void)state;
    if (!can_swap())
        return;
    make_outside();
    for (int i = 0; i < PAIRS; i++) {
        (void)snprintf(dir[i], PATH_MAX, "%.4000s/work/t/%d", tree, i);
        (void)snprintf(way_out[i], PATH_MAX, "%.4000s/work/out%d", tree, i);
    }
    rival = fork();
    assert_true(rival >= 0);
    if (rival == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (unsigned i = 0;; i++)
            swap(dir[i % PAIRS], way_out[i % PAIRS]);
    }
    /* On a busy machine the rival may win every round for a while. */
    for (const uint64_t end = rounds_end();
         test_now_ms() < end || (removed == 0 && test_now_ms() < end + 20000);) {
        (void)mkdir(at("work/t"), 0777);
        for (int i = 0; i < PAIRS; i++) {
            char below[32];

            (void)snprintf(below, sizeof below, "work/t/%d", i);
            (void)mkdir(at(below), 0777);
            make_in(below, "e");
            (void)symlink("../outside", way_out[i]);
        }
        removed += do_remove("work/t", true, true) == 0;
    }
    stop_him();
    assert_true(removed > 0);
    assert_outside();
}

/* What is emptied is moved away under us: its new place is not ours to empty. */
static void test_a_tree_is_removed_that_moves(void **state)
{
    char here[PATH_MAX];
    char there[PATH_MAX];

    (void)state;
    make_outside();
    make_dir("work/t");
    make_dir("work/t/d");
    (void)snprintf(here, sizeof here, "%.4000s/work/t/d", tree);
    (void)snprintf(there, sizeof there, "%.4000s/outside/d", tree);
    rival = fork();
    assert_true(rival >= 0);
    if (rival == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) {
            (void)rename(here, there);
            (void)rename(there, here);
        }
    }
    for (const uint64_t end = rounds_end(); test_now_ms() < end;) {
        (void)mkdir(at("work/t"), 0777);
        (void)mkdir(at("work/t/d"), 0777);
        for (char name[2] = "a"; name[0] < 'i'; name[0]++)
            make_in("work/t/d", name);
        (void)do_remove("work/t", true, true);
        assert_true(exists("outside/secret"));
    }
    stop_him();
    (void)do_remove("outside/d", true, true);
    assert_outside();
}

static void test_a_tree_is_copied(void **state)
{
    (void)state;
    if (!can_swap())
        return;
    make_outside();
    make_file("work/t/d/e/f", "inside");
    make_link("../../outside", "work/t/link");
    let_swap("work/t/d", "work/t/link");
    for (const uint64_t end = rounds_end(); test_now_ms() < end;) {
        const int r = do_copy("work/t", "work/u", true);

        if (r != 0 && r != ENOTDIR && r != EBUSY && r != EEXIST && r != ELOOP)
            fail_msg("%s", strerror(r));
        /* Links are copied as links: what lies behind them is not there as a file. */
        assert_int_equal(do_walk("work/u", (struct sp_file_walk){9, 99, 99, false, false}), 0);
        static char text[4096];
        entries_text(text, sizeof text);
        assert_null(strstr(text, "secret"));
        assert_int_equal(do_remove("work/u", true, true), 0);
    }
    stop_him();
    assert_outside();
}

/* On the side that is written. */
static void test_a_tree_is_copied_into_one_that_changes(void **state)
{
    (void)state;
    if (!can_swap())
        return;
    make_outside();
    make_file("t/d/sub/secret", "inside");
    make_file("t/d/secret", "inside");
    make_dir("work/u");
    make_dir("work/u/d");
    make_link("../../outside", "work/u/link");
    let_swap("work/u/d", "work/u/link");
    for (const uint64_t end = rounds_end(); test_now_ms() < end;)
        (void)do_copy("t", "work/u", true);
    stop_him();
    assert_outside();
}

static void test_a_walk(void **state)
{
    (void)state;
    if (!can_swap())
        return;
    make_outside();
    make_file("work/t/d/sub/f", "");
    make_link("../../outside", "work/t/link");
    let_swap("work/t/d", "work/t/link");
    for (const uint64_t end = rounds_end(); test_now_ms() < end;) {
        static char text[4096];

        assert_int_equal(do_walk("work/t", (struct sp_file_walk){9, 99, 99, false, false}), 0);
        entries_text(text, sizeof text);
        assert_null(strstr(text, "secret"));
    }
    stop_him();
    assert_outside();
}

static void test_without_links(void **state)
{
    unsigned written = 0;

    (void)state;
    if (!can_swap())
        return;
    make_outside();
    make_file("work/d/secret", "inside");
    let_swap("work/d", "work/link");
    for (const uint64_t end = rounds_end(); test_now_ms() < end;) {
        struct sp_file_request ask = an_ask(SP_FILE_READ, at("work/d/secret"));

        written += do_write("work/d/secret", "inside", false) == 0;
        ask.follows = false;
        if (carry_out(&ask) == 0)
            assert_true(answer.data_len == 0 || memcmp(window, "inside", 6) == 0);
        ask.op = SP_FILE_MAKE;
        ask.path = at("work/d/made");
        (void)carry_out(&ask);
        ask.op = SP_FILE_REMOVE;
        (void)carry_out(&ask);
        ask.path = at("work/d/sub/secret");
        (void)carry_out(&ask);
        ask.op = SP_FILE_STAT;
        assert_true(carry_out(&ask) != 0); /* there is no such thing inside */
    }
    stop_him();
    assert_true(written > 0);
    assert_outside();
}

/* A file grows and shrinks while it is read: what comes is some state of each part of it. */
static void test_a_file_that_changes_its_size(void **state)
{
    (void)state;
    make_file("f", "");
    rival = fork();
    assert_true(rival >= 0);
    if (rival == 0) {
        static char block[4 * WINDOW];
        const int fd = open(at("f"), O_WRONLY | O_CLOEXEC);

        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        memset(block, 'x', sizeof block);
        for (;;) {
            CHILD_CHECK(pwrite(fd, block, sizeof block, 0) == (ssize_t)sizeof block);
            CHILD_CHECK(ftruncate(fd, 5) == 0);
        }
    }
    for (const uint64_t end = rounds_end(); test_now_ms() < end;) {
        assert_int_equal(do_op(SP_FILE_READ, "f"), 0);
        assert_true(answer.data_len <= (uint64_t)4 * WINDOW);
        const char *data = answer.data_len == 0 ? "" : answer_data();
        for (uint64_t i = 0; i < answer.data_len; i += 997)
            assert_true(data[i] == 'x' || data[i] == 0);
        assert_int_equal(do_copy("f", "g", false), 0);
    }
    stop_him();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        file_test(test_the_moment_before_a_directory_is_entered),
        file_test(test_a_tree_is_removed),
        file_test(test_a_tree_is_removed_that_moves),
        file_test(test_a_tree_is_copied),
        file_test(test_a_tree_is_copied_into_one_that_changes),
        file_test(test_a_walk),
        file_test(test_without_links),
        file_test(test_a_file_that_changes_its_size),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
