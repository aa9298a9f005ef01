/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trees: copied, removed and walked, and held against what a few plain lines of this test say about
 * the same disk.
 */
#include "file_fixture.h"

#define DEEP 4000

static char text_a[1U << 20], text_b[1U << 20];

/* ---- the plain lines ---- */

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int no_dots(const struct dirent *d)
{
    return strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0;
}

/* All that is below, in order, with modes and contents; FIFOs do not count. */
static size_t describe(const char *below, const char *shown, char *text, size_t n, size_t size)
{
    struct dirent **names = NULL;
    const int count = scandir(at(below), &names, no_dots, by_name);

    assert_true(count >= 0);
    for (int i = 0; i < count; i++) {
        char path[PATH_MAX];
        char name[PATH_MAX];
        char content[PATH_MAX] = "";
        struct stat st;

        (void)snprintf(path, sizeof path, "%s/%s", below, names[i]->d_name);
        (void)snprintf(name, sizeof name, "%s/%s", shown, names[i]->d_name);
        assert_int_equal(lstat(at(path), &st), 0);
        if (S_ISLNK(st.st_mode))
            content[readlink(at(path), content, sizeof content - 1)] = 0;
        else if (S_ISREG(st.st_mode))
            (void)slurp(path, content, sizeof content);
        if (!S_ISFIFO(st.st_mode))
            n += (size_t)snprintf(text + n, size - n, "%s %o %s\n", name,
                                  S_ISREG(st.st_mode) ? st.st_mode : st.st_mode & S_IFMT, content);
        assert_true(n < size);
        if (S_ISDIR(st.st_mode))
            n = describe(path, name, text, n, size);
        free(names[i]);
    }
    free(names);
    return n;
}

static void assert_same_trees(const char *a, const char *b)
{
    text_a[0] = text_b[0] = 0;
    (void)describe(a, "", text_a, 0, sizeof text_a);
    (void)describe(b, "", text_b, 0, sizeof text_b);
    assert_string_equal(text_a, text_b);
}

/* What a walk says, the slow way: breadth first, whole paths in a list. */
static void walk_plainly(const char *below, struct sp_file_walk limits, char *text, size_t size)
{
    static struct {
        char path[256];
        uint32_t depth;
    } queue[4096];
    size_t head = 0;
    size_t tail = 1;
    size_t n = 0;
    uint32_t counted = 0;

    text[0] = 0;
    (void)snprintf(queue[0].path, sizeof queue[0].path, "%s", below);
    queue[0].depth = 0;
    for (; head < tail; head++) {
        struct dirent **names = NULL;
        char here[256];
        memcpy(here, queue[head].path, sizeof here);
        here[255] = 0;
        const int count = scandir(at(here), &names, no_dots, by_name);

        for (int i = 0; i < count; i++) {
            char path[512];
            struct stat st;

            (void)snprintf(path, sizeof path, "%s/%s", here, names[i]->d_name);
            const bool is_there = stat(at(path), &st) == 0;
            assert_int_equal(lstat(at(path), &st), 0);
            if (is_there && counted < limits.max_entries) {
                counted++;
                if (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode))
                    n += (size_t)snprintf(text + n, size - n, "%c %s\n",
                                          S_ISREG(st.st_mode) ? 'F' : 'D', path);
                const bool is_hidden = limits.prunes_hidden && names[i]->d_name[0] == '.';
                if (S_ISDIR(st.st_mode) && queue[head].depth < limits.max_depth && !is_hidden &&
                    tail < limits.max_directories) {
                    (void)snprintf(queue[tail].path, sizeof queue[tail].path, "%.250s", path);
                    queue[tail++].depth = queue[head].depth + 1;
                }
            }
            free(names[i]);
        }
        free(names);
    }
}

/* ---- trees of any shape ---- */

static uint64_t chance;

static void grow(const char *below, int depth)
{
    static const char *const names[] = {"a", "B", ".hid", "z z", "\xff\xfe", "-", "ab", "~"};
    static const mode_t modes[] = {0644, 0600, 0755, 04711, 0444, 02755};

    assert_int_equal(mkdir(at(below), 0777), 0);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[512];

        (void)snprintf(path, sizeof path, "%.400s/%s", below, names[i]);
        switch (test_random(&chance) % 7) {
        case 0:
        case 1:
            if (depth > 0)
                grow(path, depth - 1);
            break;
        case 2:
            make_file(path, names[test_random(&chance) % 8]);
            assert_int_equal(chmod(at(path), modes[test_random(&chance) % 6]), 0);
            break;
        case 3:
            make_link(test_random(&chance) % 2 == 0 ? "nowhere" : ".", path);
            break;
        case 4:
            assert_int_equal(mkfifo(at(path), 0600), 0);
            break;
        default:
            break;
        }
    }
}

/* Files lose what only their owner may give them. */
static void drop_special_modes(char *text)
{
    for (char *at_mode = text; (at_mode = strstr(at_mode, " 10")) != NULL; at_mode++)
        if (strspn(at_mode + 1, "01234567") == 6)
            at_mode[3] = '0';
}

static void test_any_tree_is_copied_walked_and_removed(void **state)
{
    (void)state;
    make_file("outside/precious", "here");
    for (uint64_t seed = 0; seed < 40; seed++) {
        chance = seed;
        grow("t", 3);
        make_link("../outside", "t/out");
        assert_int_equal(do_copy("t", "u", true), 0);
        assert_int_equal(answer.refusal, 0);
        text_a[0] = text_b[0] = 0;
        (void)describe("t", "", text_a, 0, sizeof text_a);
        (void)describe("u", "", text_b, 0, sizeof text_b);
        drop_special_modes(text_a);
        assert_string_equal(text_a, text_b);

        const struct sp_file_walk limits = {.max_depth = (uint32_t)(seed % 5),
                                            .max_directories = 1 + (uint32_t)(seed * seed % 99),
                                            .max_entries = 1 + (uint32_t)(seed * 7 % 300),
                                            .prunes_hidden = seed % 2 == 0};
        assert_int_equal(do_walk("t", limits), 0);
        entries_text(text_a, sizeof text_a);
        walk_plainly("t", limits, text_b, sizeof text_b);
        assert_string_equal(text_a, text_b);

        assert_int_equal(do_remove("t", true, false), 0);
        assert_int_equal(do_remove("u", true, false), 0);
        assert_false(exists("t") || exists("u"));
        assert_file("outside/precious", "here");
    }
}

/* ---- copying ---- */

static void test_one_thing_is_copied(void **state)
{
    (void)state;
    make_file("f", "text");
    assert_int_equal(chmod(at("f"), 04750), 0);
    assert_int_equal(do_copy("f", "g", false), 0);
    assert_file("g", "text");
    assert_int_equal(mode_of("g"), 0750);
    make_file("longer", "something longer than that");
    assert_int_equal(chmod(at("longer"), 0600), 0);
    assert_int_equal(do_copy("f", "longer", false), 0);
    assert_file("longer", "text");
    assert_int_equal(mode_of("longer"), 0750);
    make_link("f", "l");
    assert_int_equal(do_copy("l", "m", false), 0);
    char target[8] = "";
    assert_int_equal(readlink(at("m"), target, sizeof target), 1);
    assert_int_equal(target[0], 'f');
    assert_int_equal(do_copy("l", "m", false), EEXIST);
    make_dir("d");
    assert_int_equal(do_copy("d", "e", false), 0);
    assert_int_equal(answer.refusal, SP_FILE_COPY_TREE);
    assert_int_equal(do_copy("f", "d", false), EISDIR);
    assert_int_equal(do_copy("none", "x", false), ENOENT);
    assert_int_equal(do_copy("f", "none/x", false), ENOENT);
    assert_int_equal(mkfifo(at("fifo"), 0600), 0);
    assert_int_equal(do_copy("fifo", "x", true), 0);
    assert_int_equal(answer.refusal, SP_FILE_COPY_KIND);
    assert_int_equal(do_copy("f", "fifo", false), ENXIO);
    make_file("fine", "x");
    const struct sp_file_request from_proc = {
        .op = SP_FILE_COPY, .path = "/proc/self/stat", .other = at("stat"), .follows = true};
    assert_int_equal(carry_out(&from_proc), 0);
    char stat_text[512];
    assert_true(slurp("stat", stat_text, sizeof stat_text) > 20);
}

/* A hole selects the address, and the data behind it what is written there. */
static void test_no_copy_into_the_memory_of_a_process(void **state)
{
    const size_t address = 0x20000000;
    char *victim = mmap((void *)address, 4096, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

    (void)state;
    assert_ptr_equal(victim, (void *)address);
    make_file("sparse", "");
    const int fd = open(at("sparse"), O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "planted", 7, (off_t)address), 7);
    (void)close(fd);
    struct sp_file_request ask = an_ask(SP_FILE_COPY, at("sparse"));
    ask.other = "/proc/self/mem";
    assert_int_equal(carry_out(&ask), 0);
    assert_int_equal(answer.refusal, SP_FILE_COPY_KIND);
    assert_int_equal(victim[0], 0);
    assert_int_equal(munmap(victim, 4096), 0);
}

static void test_nothing_is_copied_onto_itself(void **state)
{
    static const char *const names[] = {"f", "hard", "to-f", "d/../f", "to-d/../f"};

    (void)state;
    make_file("f", "keep me");
    make_dir("d");
    make_link("d", "to-d");
    make_link("f", "to-f");
    assert_int_equal(link(at("f"), at("hard")), 0);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_int_equal(do_copy("f", names[i], false), 0);
        assert_int_equal(answer.refusal, SP_FILE_COPY_ONTO_ITSELF);
        assert_file("f", "keep me");
    }
    /* In a tree, too: the same file is in both. */
    make_dir("e");
    assert_int_equal(link(at("f"), at("d/f")), 0);
    assert_int_equal(link(at("f"), at("e/f")), 0);
    assert_int_equal(do_copy("d", "e", true), 0);
    assert_int_equal(answer.refusal, SP_FILE_COPY_ONTO_ITSELF);
    assert_file("f", "keep me");
}

static void test_no_tree_is_copied_into_itself(void **state)
{
    static const char *const inside[] = {"t",      "t/new",    "t/a/b/new", "t/x/y/z",
                                         "to-a/n", "t/../t/n", "to-a"};

    (void)state;
    make_file("t/a/b/f", "x");
    make_link("t/a", "to-a");
    for (size_t i = 0; i < sizeof inside / sizeof inside[0]; i++) {
        assert_int_equal(do_copy("t", inside[i], true), 0);
        assert_int_equal(answer.refusal, SP_FILE_COPY_INTO_ITSELF);
    }
    assert_int_equal(do_copy("t/a", "tt", true), 0); /* a longer name is no place inside */
    assert_int_equal(answer.refusal, 0);
    assert_same_trees("t/a", "tt");
    assert_int_equal(do_copy("t/a/b", "t", true), 0); /* upwards is fine */
    assert_file("t/f", "x");
    assert_int_equal(do_copy("t", "new/and/below", true), 0);
    assert_same_trees("t", "new/and/below");
    make_file("file", "");
    assert_int_equal(do_copy("t", "file", true), EEXIST);
    assert_int_equal(do_copy("t", "file/x", true), ENOTDIR);
}

static void test_trees_are_merged(void **state)
{
    (void)state;
    make_file("t/a/f", "new");
    make_file("t/b", "new");
    make_file("u/a/g", "old");
    make_file("u/b", "old and longer");
    assert_int_equal(do_copy("t", "u", true), 0);
    assert_file("u/a/f", "new");
    assert_file("u/a/g", "old");
    assert_file("u/b", "new");
    /* Not through a link, nor over a file. */
    make_dir("elsewhere");
    make_link("../elsewhere", "v/a");
    assert_int_equal(do_copy("t", "v", true), ENOTDIR);
    make_file("w/a", "");
    assert_int_equal(do_copy("t", "w", true), ENOTDIR);
    make_link("../elsewhere/f", "x/b");
    assert_int_equal(do_copy("t", "x", true), ELOOP);
    make_dir("y");
    make_link("y", "to-y"); /* the root itself may be one */
    assert_int_equal(do_copy("t", "to-y", true), 0);
    assert_same_trees("t", "y");
    assert_int_equal(rmdir(at("elsewhere")), 0); /* empty */
}

/* ---- removing ---- */

static void test_things_are_removed(void **state)
{
    (void)state;
    make_file("f", "");
    make_file("d/f", "");
    make_link("d", "to-d");
    make_link("nowhere", "dangling");
    assert_int_equal(do_remove("none", false, false), ENOENT);
    assert_int_equal(do_remove("none", true, true), 0);
    assert_int_equal(do_remove("none/x", true, true), 0);
    assert_int_equal(do_remove("f/x", true, true), ENOTDIR);
    assert_int_equal(do_remove("d", false, true), ENOTEMPTY);
    assert_int_equal(do_remove("to-d", true, false), 0);
    assert_true(exists("d/f"));
    make_link("d", "to-d");
    assert_int_equal(do_remove("to-d/", true, false), 0);
    assert_true(exists("d/f") && !exists("to-d"));
    assert_int_equal(do_remove("dangling", false, false), 0);
    assert_int_equal(do_remove("f", true, false), 0);
    make_dir("d/e");
    assert_int_equal(do_remove("d/e/..", true, true), EINVAL);
    assert_int_equal(do_remove("d/e/.", true, true), EINVAL);
    assert_true(exists("d/f") && exists("d/e"));
    const struct sp_file_request root = {
        .op = SP_FILE_REMOVE, .path = "//", .follows = true, .is_forced = true};
    assert_int_equal(carry_out(&root), EBUSY);
    assert_int_equal(do_remove("d/e", false, false), 0);
    assert_int_equal(do_remove("d//", true, false), 0);
    assert_false(exists("d"));
}

static void test_rights_are_respected(void **state)
{
    (void)state;
    make_file("drop/t/a/f", "");
    make_file("shut/f", "");
    make_file("own/f", "secret");
    assert_int_equal(chmod(at("own/f"), 0000), 0);
    if (geteuid() == 0) {
        static const char *const theirs[] = {"drop", "drop/t", "drop/t/a", "drop/t/a/f", "own"};

        for (size_t i = 0; i < sizeof theirs / sizeof theirs[0]; i++)
            assert_int_equal(chown(at(theirs[i]), 65534, 65534), 0);
    }
    assert_int_equal(chmod(at("drop"), 0333), 0); /* may be entered and written, not read */
    assert_int_equal(chmod(at("shut"), 0555), 0);
    be_an_ordinary_user();
    assert_int_equal(do_remove("shut", true, false), EACCES);
    assert_int_equal(do_remove("shut/f", true, false), EACCES);
    assert_int_equal(do_copy("own", "drop/o", true), EACCES);
    assert_int_equal(do_op(SP_FILE_READ, "own/f"), EACCES);
    assert_int_equal(do_op(SP_FILE_LIST, "drop"), EACCES);
    assert_int_equal(do_walk("drop", (struct sp_file_walk){1, 9, 9, false, false}), 0);
    assert_entries("E drop 13\n");
    assert_int_equal(do_remove("drop/t", true, false), 0);
    assert_int_equal(do_write("shut/f", "x", true), geteuid() == getuid() ? 0 : EACCES);
    assert_int_equal(do_write("shut/g", "x", true), EACCES);
    assert_int_equal(do_make("shut/d/e", true, true), EACCES);
    assert_int_equal(seteuid(getuid()), 0);
    assert_false(exists("drop/t"));
    assert_int_equal(chmod(at("drop"), 0777), 0);
    assert_int_equal(chmod(at("shut"), 0777), 0);
}

/* ---- depth ---- */

static void test_trees_of_any_depth(void **state)
{
    char name[256];
    int dir = open(tree, O_PATH | O_DIRECTORY | O_CLOEXEC);

    (void)state;
    memset(name, 'n', 255);
    name[255] = 0;
    make_dir("deep");
    for (int i = 0; i < DEEP; i++) {
        const char *const here = i == 0 ? "deep" : i % 100 == 0 ? name : "d";
        const int next = openat(dir, here, O_PATH | O_DIRECTORY | O_CLOEXEC);

        assert_true(next >= 0);
        (void)close(dir);
        dir = next;
        assert_int_equal(mkdirat(dir, (i + 1) % 100 == 0 ? name : "d", 0777), 0);
    }
    const int bottom = openat(dir, "f", O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    assert_int_equal(write(bottom, "bottom", 6), 6);
    (void)close(bottom);
    (void)close(dir);

    const uint64_t began = test_now_ms();
    assert_int_equal(do_copy("deep", "copy", true), 0);
    dir = open(at("copy"), O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (int i = 1; i < DEEP; i++) {
        const int next = openat(dir, i % 100 == 0 ? name : "d", O_PATH | O_DIRECTORY | O_CLOEXEC);

        assert_true(next >= 0);
        (void)close(dir);
        dir = next;
    }
    assert_int_equal(faccessat(dir, "f", R_OK, 0), 0);
    (void)close(dir);
    assert_int_equal(do_walk("deep", (struct sp_file_walk){64, 10000, 50000, false, false}), 0);
    entries_text(text_a, sizeof text_a);
    int lines = 0;
    for (const char *p = text_a; *p != 0; p++)
        lines += *p == '\n';
    assert_int_equal(lines, 65);
    assert_int_equal(do_remove("deep", true, false), 0);
    assert_int_equal(do_remove("copy", true, false), 0);
    assert_true(test_now_ms() - began < 3 * DEADLINE_MS); /* not in the square of the depth */
}

/* ---- walking ---- */

static void test_limits_of_a_walk(void **state)
{
    static const struct {
        struct sp_file_walk limits;
        enum sp_file_refusal refusal;
    } cases[] = {
        {{0, 0, 1, false, false}, SP_FILE_WALK_LIMITS_ZERO},
        {{0, 1, 0, false, false}, SP_FILE_WALK_LIMITS_ZERO},
        {{65, 1, 1, false, false}, SP_FILE_WALK_LIMITS_HIGH},
        {{64, 10001, 1, false, false}, SP_FILE_WALK_LIMITS_HIGH},
        {{64, 10000, 50001, false, false}, SP_FILE_WALK_LIMITS_HIGH},
        {{64, 10000, 50000, false, false}, SP_FILE_NOT_REFUSED},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(do_walk("", cases[i].limits), 0);
        assert_int_equal(answer.refusal, cases[i].refusal);
    }
    make_file("d/1", "");
    make_file("d/2/x", "");
    make_file("d/3/x", "");
    assert_int_equal(do_walk("d", (struct sp_file_walk){9, 2, 99, false, false}), 0);
    assert_entries("F d/1\nD d/2\nD d/3\nF d/2/x\n");
    assert_true(answer.is_cut);
    assert_int_equal(do_walk("d", (struct sp_file_walk){9, 9, 4, false, false}), 0);
    assert_entries("F d/1\nD d/2\nD d/3\nF d/2/x\n");
    assert_true(answer.is_cut);
    assert_int_equal(do_walk("d", (struct sp_file_walk){9, 9, 5, false, false}), 0);
    assert_false(answer.is_cut);
    assert_int_equal(do_walk("d", (struct sp_file_walk){0, 9, 9, false, false}), 0);
    assert_entries("F d/1\nD d/2\nD d/3\n");
    assert_false(answer.is_cut);
    assert_int_equal(do_walk("none", (struct sp_file_walk){9, 9, 9, false, false}), ENOENT);
    assert_int_equal(do_walk("d/1", (struct sp_file_walk){9, 9, 9, true, false}), 0);
    assert_entries("");
    assert_int_equal(do_walk("d/2//", (struct sp_file_walk){9, 9, 9, false, false}), 0);
    assert_entries("F d/2/x\n");
}

static void test_a_walk_through_links(void **state)
{
    const struct sp_file_walk following = {9, 99, 99, true, false};
    const struct sp_file_walk strict = {9, 99, 99, false, false};

    (void)state;
    make_file("d/a/f", "");
    make_link("a", "d/b");
    make_link("..", "d/a/up");
    make_link("nowhere", "d/dangling");
    make_link("a/f", "d/to-f");
    make_link("d", "to-d");
    assert_int_equal(do_walk("d", following), 0);
    assert_entries("D d/a\nD d/b\nF d/a/f\nD d/a/up\n");
    assert_int_equal(do_walk("d", strict), 0);
    assert_entries("D d/a\nF d/a/f\n");
    assert_int_equal(do_walk("to-d", strict), 0);
    assert_entries("");
    assert_int_equal(do_walk("to-d/", strict), 0);
    assert_entries("");
    assert_int_equal(do_walk("to-d", following), 0);
    assert_entries("D to-d/a\nD to-d/b\nF to-d/a/f\nD to-d/a/up\n");
}

static void test_a_walk_has_an_end_in_bytes(void **state)
{
    char path[300];

    (void)state;
    make_dir("w");
    const int dir = open(at("w"), O_PATH | O_DIRECTORY | O_CLOEXEC);
    memset(path, '\xff', 250);
    for (int i = 0; i < 6000; i++) { /* each byte of a name is three of its URI */
        (void)snprintf(path + 240, 12, "%d", i);
        assert_int_equal(mknodat(dir, path, S_IFREG | 0644, 0), 0);
    }
    (void)close(dir);
    assert_int_equal(do_walk("w", (struct sp_file_walk){1, 1, 50000, false, false}), 0);
    assert_true(answer.is_cut);
    assert_in_range(answer.data_len, 4000 * 240, 6000 * 280);
    assert_int_equal(do_remove("w", true, false), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        file_test(test_any_tree_is_copied_walked_and_removed),
        file_test(test_one_thing_is_copied),
        file_test(test_no_copy_into_the_memory_of_a_process),
        file_test(test_nothing_is_copied_onto_itself),
        file_test(test_no_tree_is_copied_into_itself),
        file_test(test_trees_are_merged),
        file_test(test_things_are_removed),
        file_test(test_rights_are_respected),
        file_test(test_trees_of_any_depth),
        file_test(test_limits_of_a_walk),
        file_test(test_a_walk_through_links),
        file_test(test_a_walk_has_an_end_in_bytes),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
