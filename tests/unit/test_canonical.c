/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/canonical.h"
#include "tree_fixture.h"

static struct sp_canonical found;

static int end(void **state)
{
    sp_canonical_done(&found);
    return tree_end(state);
}

static void find(const char *path, enum sp_way way, const char *canonical)
{
    struct sp_err e = {0};

    sp_canonical_done(&found);
    if (sp_canonical_find(path, &found, &e) < 0)
        fail_msg("%s: %s (%s)", path, e.msg, strerror(e.sys));
    assert_int_equal(found.way, way);
    assert_string_equal(found.path, canonical);
}

static void refuses(const char *path, enum sp_code code, int sys)
{
    struct sp_err e = {0};

    sp_canonical_done(&found);
    assert_int_equal(sp_canonical_find(path, &found, &e), -(int)code);
    assert_int_equal(e.sys, sys);
    assert_null(found.path);
}

static void is_who(const struct sp_identity *who, const char *path)
{
    struct stat st;

    assert_int_equal(lstat(path, &st), 0);
    assert_true(st.st_dev == who->dev);
    assert_int_equal(st.st_ino, who->ino);
    assert_int_equal(st.st_mode, who->mode);
    assert_int_equal(st.st_size, who->size);
    assert_int_equal(st.st_ctim.tv_sec, who->changed.tv_sec);
    assert_int_equal(st.st_ctim.tv_nsec, who->changed.tv_nsec);
}

static void has_link(size_t i, const char *path, const char *target)
{
    assert_true(i < found.link_count);
    assert_string_equal(found.links[i].path, path);
    assert_string_equal(found.links[i].target, target);
    is_who(&found.links[i].who, path);
}

static void test_a_plain_path_is_itself(void **state)
{
    (void)state;
    make_file("a/b/f", "text");
    find(at("a/b"), SP_WAY_FOUND, at("a/b"));
    is_who(&found.who, at("a/b"));
    assert_int_equal(found.link_count, 0);
    assert_null(found.parent);
    find(at("a/b/f"), SP_WAY_FOUND, at("a/b/f"));
    is_who(&found.who, at("a/b/f"));
    find("/", SP_WAY_FOUND, "/");
    is_who(&found.who, "/");
    find("///..//.", SP_WAY_FOUND, "/");
    refuses("a/b", SP_E_INVALID, 0);
    refuses("", SP_E_INVALID, 0);
}

static void test_every_symlink_is_told_in_order(void **state)
{
    (void)state;
    make_dir("real/dir/sub");
    make_link("real", "one");
    make_link(at("one/dir"), "two");
    make_link("two", "three");
    find(at("three/sub"), SP_WAY_FOUND, at("real/dir/sub"));
    assert_int_equal(found.link_count, 3);
    has_link(0, at("three"), "two");
    has_link(1, at("two"), at("one/dir"));
    has_link(2, at("one"), "real");
}

static void test_a_link_inside_a_linked_directory_has_its_real_place(void **state)
{
    (void)state;
    make_dir("real/d");
    make_link("d", "real/l");
    make_link("real", "alias");
    find(at("alias/l"), SP_WAY_FOUND, at("real/d"));
    has_link(0, at("alias"), "real");
    has_link(1, at("real/l"), "d");
}

static void test_dots_go_where_the_kernel_goes(void **state)
{
    (void)state;
    make_dir("a/b/c");
    make_dir("x");
    make_link("a/b/c", "deep");
    find(at("deep/.."), SP_WAY_FOUND, at("a/b")); /* not the tree, as the text says */
    find(at("deep/../../../x/./"), SP_WAY_FOUND, at("x"));
    make_link("../../../x", "a/b/c/up");
    find(at("a/b/c/up"), SP_WAY_FOUND, at("x"));
    make_file("f", "");
    find(at("f/.."), SP_WAY_NO_DIR, at("f"));
}

static void test_the_first_missing_component_is_told(void **state)
{
    (void)state;
    make_dir("a");
    find(at("a/m/n/o"), SP_WAY_MISSING, at("a/m"));
    assert_string_equal(found.parent, at("a"));
    is_who(&found.who, at("a"));
    make_link("m/gone", "a/dangling");
    find(at("a/dangling/x"), SP_WAY_MISSING, at("a/m"));
    has_link(0, at("a/dangling"), "m/gone");
    find("/no-such-directory-here/x", SP_WAY_MISSING, "/no-such-directory-here");
    assert_string_equal(found.parent, "/");
}

static void test_what_cannot_be_there(void **state)
{
    char name[NAME_MAX + 2];
    char path[3 * NAME_MAX];

    (void)state;
    make_file("a/f", "");
    find(at("a/f/x"), SP_WAY_NO_DIR, at("a/f"));
    is_who(&found.who, at("a/f"));
    memset(name, 'n', sizeof name - 1);
    name[NAME_MAX + 1] = 0;
    (void)snprintf(path, sizeof path, "a/%s/x", name);
    find(at(path), SP_WAY_IMPOSSIBLE, at("a"));
    name[NAME_MAX] = 0; /* as long as it may be */
    (void)snprintf(path, sizeof path, "a/%s", name);
    find(at(path), SP_WAY_MISSING, at(path));
}

static void test_hostile_names_are_names(void **state)
{
    (void)state;
    make_dir("a\nb/\xFF\xFE/ \t/...");
    make_link("a\nb/\xFF\xFE", "l\n");
    find(at("l\n/ \t/..."), SP_WAY_FOUND, at("a\nb/\xFF\xFE/ \t/..."));
    has_link(0, at("l\n"), "a\nb/\xFF\xFE");
}

static void make_chain(int links)
{
    char name[16];
    char target[16];

    make_dir("end");
    for (int i = 1; i <= links; i++) {
        (void)snprintf(name, sizeof name, "l%d", i);
        (void)snprintf(target, sizeof target, i == 1 ? "end" : "l%d", i - 1);
        make_link(target, name);
    }
}

/* The kernel walks a path without locks first. If a rename elsewhere disturbs it, the second walk
 * goes on counting links where the first one stopped, and ELOOP comes too early. */
static bool kernel_follows(const char *path)
{
    for (int i = 0; i < 1000; i++)
        if (access(path, F_OK) == 0)
            return true;
    return false;
}

static void test_forty_links_and_no_more(void **state)
{
    (void)state;
    make_chain(41);
    find(at("l40"), SP_WAY_FOUND, at("end"));
    assert_int_equal(found.link_count, 40);
    assert_true(kernel_follows(at("l40"))); /* and so says the kernel */
    assert_int_equal(access(at("l41"), F_OK), -1);
    refuses(at("l41"), SP_E_INVALID, ELOOP);
    make_link("loop", "loop");
    refuses(at("loop"), SP_E_INVALID, ELOOP);
}

static void test_links_that_lead_to_objects_are_refused(void **state)
{
    char path[64];

    (void)state;
    refuses("/proc/self/cwd", SP_E_INVALID, 0);
    refuses("/proc/self/root/etc", SP_E_INVALID, 0);
    make_link("/proc/self/root", "magic");
    refuses(at("magic/etc"), SP_E_INVALID, 0);
    (void)snprintf(path, sizeof path, "/proc/%d", (int)getpid());
    find("/proc/self", SP_WAY_FOUND, path); /* this one has a text that is true */
}

static void test_a_path_too_long_for_the_kernel_is_refused(void **state)
{
    char path[2 * PATH_MAX];
    char name[NAME_MAX + 1];

    (void)state;
    memset(name, 'n', NAME_MAX);
    name[NAME_MAX] = 0;
    (void)snprintf(path, sizeof path, "%s", tree);
    int fd = open(tree, O_PATH | O_CLOEXEC);
    while (strlen(path) + 1 + NAME_MAX < PATH_MAX) { /* and then one more */
        assert_int_equal(mkdirat(fd, name, 0777), 0);
        const int next = openat(fd, name, O_PATH | O_CLOEXEC);
        (void)close(fd);
        fd = next;
        strcat(path, "/");
        strcat(path, name);
    }
    find(path, SP_WAY_FOUND, path);
    assert_int_equal(mkdirat(fd, name, 0777), 0);
    strcat(path, "/");
    strcat(path, name);
    refuses(path, SP_E_INVALID, ENAMETOOLONG);
    assert_int_equal(unlinkat(fd, name, AT_REMOVEDIR), 0);
    (void)close(fd);
}

static void test_where_we_may_not_look(void **state)
{
    (void)state;
    make_dir("closed/in");
    assert_int_equal(chmod(at("closed"), 0), 0);
    be_an_ordinary_user();
    find(at("closed/in"), SP_WAY_BARRED, at("closed/in"));
    assert_string_equal(found.parent, at("closed"));
}

static void test_a_new_inode_with_an_old_number_is_another(void **state)
{
    struct sp_identity a = {.dev = 1, .ino = 2, .mode = S_IFDIR | 0700, .born = {.tv_sec = 5}};
    struct sp_identity b = a;

    (void)state;
    b.mode = S_IFDIR | 0755;
    b.size = 7;
    assert_true(sp_identity_equal(&a, &b)); /* its rights and its length do not make it another */
    b.born.tv_nsec = 1;
    assert_false(sp_identity_equal(&a, &b));
    b = a;
    b.mode = S_IFREG;
    assert_false(sp_identity_equal(&a, &b));
    b = a;
    b.ino++;
    assert_false(sp_identity_equal(&a, &b));
    b = a;
    b.dev++;
    assert_false(sp_identity_equal(&a, &b));
}

#define tree_test(name) cmocka_unit_test_setup_teardown(name, tree_begin, end)

static const struct CMUnitTest tests[] = {
    tree_test(test_a_plain_path_is_itself),
    tree_test(test_every_symlink_is_told_in_order),
    tree_test(test_a_link_inside_a_linked_directory_has_its_real_place),
    tree_test(test_dots_go_where_the_kernel_goes),
    tree_test(test_the_first_missing_component_is_told),
    tree_test(test_what_cannot_be_there),
    tree_test(test_hostile_names_are_names),
    tree_test(test_forty_links_and_no_more),
    tree_test(test_links_that_lead_to_objects_are_refused),
    tree_test(test_a_path_too_long_for_the_kernel_is_refused),
    tree_test(test_where_we_may_not_look),
    tree_test(test_a_new_inode_with_an_old_number_is_another),
};

TEST_MAIN(tests)
