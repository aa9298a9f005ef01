/* SPDX-License-Identifier: Apache-2.0 */
/* Patches that are carried out (cases 160 to 167), and what is said of them. */
#include "patch_fixture.h"

static int apply_changes(const struct sp_patch_changes *c, bool refuses_links, uint32_t *done,
                         struct sp_err *e)
{
    const int r = sp_patch_apply(c, refuses_links, false, done, e);

    if (r == 0)
        assert_int_equal(*done, c->count);
    return r;
}

/* Verified and applied; the summary in *out. */
static void apply_as(const char *text, bool refuses_links, struct sp_buf *out)
{
    struct sp_patch_changes c = verified(text, false);
    struct sp_err e = {0};
    char story[640];
    uint32_t done;

    if (apply_changes(&c, refuses_links, &done, &e) < 0)
        fail_msg("%s", sp_error_text(&e, story, sizeof story));
    if (out != NULL)
        assert_true(sp_patch_add_summary(out, &c));
    sp_patch_changes_done(&c);
}

static void apply(const char *text)
{
    apply_as(text, false, NULL);
}

/* Verified, and then refused with this text (one %s for the directory). */
#define is_not_applied(c, refuses, want)                                     \
    do {                                                                     \
        struct sp_err e_ = {0};                                              \
        uint32_t done_;                                                      \
        char got_[640];                                                      \
        char wanted_[640];                                                   \
        assert_true(sp_patch_apply(c, refuses, false, &done_, &e_) < 0);     \
        assert_int_equal(done_, 0);                                          \
        spell(want, wanted_, sizeof wanted_);                                \
        assert_string_equal(sp_error_text(&e_, got_, sizeof got_), wanted_); \
    } while (0)

static mode_t mode_of(const char *name)
{
    struct stat st;

    assert_int_equal(lstat(at(name), &st), 0);
    return st.st_mode & 07777;
}

/* Nothing but these many names is in the directory: no file of ours stays beside. */
static int count_entry(const char *path, const struct stat *st, int flag, struct FTW *where)
{
    (void)st;
    (void)flag;
    (void)where;
    return strstr(path, ".sallyport-patch-") != NULL;
}

static void is_tidy(void)
{
    assert_int_equal(nftw(patch_base, count_entry, 16, FTW_PHYS), 0);
}

static void test_each_kind_and_the_summary(void **state)
{
    auto_buf struct sp_buf out = {0};

    (void)state;
    put("m", "a\n");
    put("d", "x\n");
    put("from", "1\n2\n");
    apply_as(
        BEGIN
        "*** Delete File: d\n*** Update File: m\n-a\n+b\n"
        "*** Add File: new/deep/er\n+n\n*** Update File: from\n*** Move to: to/there\n-1\n+3\n" END,
        false, &out);
    assert_true(sp_buf_add(&out, "", 1));
    assert_string_equal(out.data, "Success. Updated the following files:\nA new/deep/er\nM m\n"
                                  "M to/there\nD d\n"); /* 166 */
    has("m", "b\n");
    has("new/deep/er", "n\n");
    has("to/there", "3\n2\n");
    assert_false(is_there("d"));
    assert_false(is_there("from"));
    is_tidy();
}

static void test_no_changes_say_so(void **state)
{
    const struct sp_patch_changes none = {0};
    auto_buf struct sp_buf out = {0};

    (void)state;
    assert_true(sp_patch_add_summary(&out, &none) && sp_buf_add(&out, "", 1));
    assert_string_equal(out.data, "No files were modified.\n");
}

static void test_an_added_file_replaces_one(void **state)
{
    (void)state;
    put("x", "old\n");
    assert_int_equal(chmod(at("x"), 0750), 0);
    apply(BEGIN "*** Add File: x\n+new\n" END); /* 160 */
    has("x", "new\n");
    assert_int_equal(mode_of("x"), 0750);
    apply(BEGIN "*** Add File: empty\n" END);
    has("empty", "");
    is_tidy();
}

static void test_modes_stay(void **state)
{
    const mode_t mask = umask(022);

    (void)state;
    put("x", "a\n");
    assert_int_equal(chmod(at("x"), 04711), 0);
    put("y", "a\n");
    assert_int_equal(chmod(at("y"), 0755), 0);
    put("z", "q\n");
    assert_int_equal(chmod(at("z"), 0600), 0);
    apply(BEGIN "*** Update File: x\n-a\n+b\n*** Update File: y\n*** Move to: z\n-a\n+b\n"
                "*** Add File: n\n+n\n" END);
    assert_int_equal(mode_of("x"), 0711); /* as after any write, nobody's rights are lent by it */
    assert_int_equal(mode_of("z"), 0755);
    assert_int_equal(mode_of("n"), 0644);
    (void)umask(mask);
}

static void test_another_name_of_a_file_keeps_the_old_text(void **state)
{
    (void)state;
    put("x", "a\n");
    assert_int_equal(link(at("x"), at("other")), 0);
    apply(BEGIN "*** Update File: x\n-a\n+b\n" END);
    has("x", "b\n");
    has("other", "a\n");
}

static void test_links_are_followed_when_confined(void **state)
{
    (void)state;
    put("real", "a\n");
    assert_int_equal(symlink("real", at("link")), 0);
    assert_int_equal(symlink("not/there", at("dangling")), 0);
    assert_int_equal(mkdir(at("not"), 0700), 0);
    assert_int_equal(mkdir(at("dir"), 0700), 0);
    assert_int_equal(symlink("dir", at("way")), 0);
    apply(BEGIN "*** Update File: link\n-a\n+b\n*** Add File: dangling\n+d\n"
                "*** Add File: way/x\n+x\n" END);
    has("real", "b\n");
    has("not/there", "d\n");
    has("dir/x", "x\n");
    char target[16] = {0};
    assert_int_equal(readlink(at("link"), target, sizeof target), 4); /* it is one still */
    apply(BEGIN "*** Delete File: link\n" END);
    assert_false(is_there("link"));
    has("real", "b\n");
}

static void test_links_are_refused_when_free(void **state)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"*** Update File: link\n-a\n+b\n", "Failed to write file %s/link"},
        {"*** Add File: link\n+b\n", "Failed to write file %s/link"},
        {"*** Add File: dangling\n+b\n", "Failed to write file %s/dangling"},
        {"*** Add File: way/x\n+b\n", "Failed to write file %s/way/x"},
        {"*** Add File: way/deep/x\n+b\n", "Failed to write file %s/way/deep/x"},
        {"*** Update File: way/y\n-y\n+b\n", "Failed to write file %s/way/y"},
        {"*** Update File: real\n*** Move to: way/z\n-a\n+b\n", "Failed to write file %s/way/z"},
        {"*** Delete File: link\n", "Failed to delete file %s/link"},
        {"*** Delete File: way/y\n", "Failed to delete file %s/way/y"},
    };

    (void)state;
    put("real", "a\n");
    assert_int_equal(mkdir(at("dir"), 0700), 0);
    put("dir/y", "y\n");
    assert_int_equal(symlink("real", at("link")), 0);
    assert_int_equal(symlink("nowhere", at("dangling")), 0);
    assert_int_equal(symlink("dir", at("way")), 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[512];
        char want[512];

        /* The first hunk is fine, and is not carried out either. */
        (void)snprintf(text, sizeof text, BEGIN "*** Add File: first\n+x\n%s" END, cases[i].text);
        spell(cases[i].want, want, sizeof want);
        strcat(want, ": a symbolic link is in the way");
        struct sp_patch_changes c = verified(text, false);
        is_not_applied(&c, true, want);
        sp_patch_changes_done(&c);
    }
    assert_false(is_there("first"));
    assert_false(is_there("nowhere"));
    has("real", "a\n");
    has("dir/y", "y\n");
    assert_false(is_there("dir/x"));
    apply_as(BEGIN "*** Update File: real\n-a\n+b\n*** Add File: p/q\n+x\n" END, true, NULL);
    has("real", "b\n");
    has("p/q", "x\n");
}

/* Between the verifying and the writing somebody puts a link where a file or directory was. */
static void test_a_link_that_is_put_there_leads_nowhere(void **state)
{
    (void)state;
    put("x", "a\n");
    put("secret", "a\n");
    assert_int_equal(mkdir(at("d"), 0700), 0);
    assert_int_equal(mkdir(at("elsewhere"), 0700), 0);
    struct sp_patch_changes c = verified(BEGIN "*** Update File: x\n-a\n+b\n" END, false);
    struct sp_patch_changes below = verified(BEGIN "*** Add File: d/n\n+n\n" END, false);
    assert_int_equal(unlink(at("x")), 0);
    assert_int_equal(symlink("secret", at("x")), 0);
    assert_int_equal(rmdir(at("d")), 0);
    assert_int_equal(symlink("elsewhere", at("d")), 0);
    is_not_applied(&c, true, "Failed to write file %s/x: a symbolic link is in the way");
    is_not_applied(&below, true, "Failed to write file %s/d/n: a symbolic link is in the way");
    has("secret", "a\n");
    assert_false(is_there("elsewhere/n"));
    sp_patch_changes_done(&c);
    sp_patch_changes_done(&below);
}

/* What a link led to when it was read does not come into a file that is there instead. */
static void test_a_file_that_has_changed_is_refused(void **state)
{
    static const char text[] = BEGIN "*** Update File: x\n-a\n+b\n" END;

    (void)state;
    put("secret", "a\nsecret\n");
    assert_int_equal(symlink("secret", at("x")), 0);
    struct sp_patch_changes c = verified(text, false);
    assert_int_equal(unlink(at("x")), 0);
    put("x", "a\n");
    is_not_applied(&c, true,
                   "Failed to write file %s/x: it has changed since the patch was verified");
    is_not_applied(&c, false,
                   "Failed to write file %s/x: it has changed since the patch was verified");
    has("x", "a\n");
    put("x", "a\nsecret\nmore\n");
    is_not_applied(&c, false,
                   "Failed to write file %s/x: it has changed since the patch was verified");
    assert_int_equal(unlink(at("x")), 0);
    is_not_applied(&c, false, "Failed to write file %s/x: No such file or directory");
    sp_patch_changes_done(&c);
    is_tidy();
}

/* Cases 167 and 161: all is verified before anything is written. */
static void test_nothing_is_written_if_one_hunk_fails(void **state)
{
    (void)state;
    put("x", "a\n");
    put("y", "a\n");
    assert_int_equal(mkdir(at("d"), 0700), 0);
    is_refused(BEGIN "*** Add File: n\n+n\n*** Update File: x\n-a\n+b\n*** Update File: y\n-q\n"
                     "*** Delete File: x\n" END,
               "invalid patch: multiple operations target %s/x");
    is_refused(BEGIN "*** Add File: n\n+n\n*** Update File: x\n-a\n+b\n*** Update File: y\n-q\n"
                     "*** Add File: o\n+o\n" END,
               "Failed to find expected lines in %s/y:\nq");
    is_refused(BEGIN "*** Add File: n\n+n\n*** Delete File: d\n" END,
               "Failed to delete file %s/d: path is a directory");
    has("x", "a\n");
    assert_false(is_there("n"));
    assert_true(is_there("d"));
}

/* What only the writing shows: what came before stays, and is counted. */
static void test_what_was_done_before_a_failure_is_counted(void **state)
{
    struct sp_patch_changes c;
    struct sp_err e = {0};
    uint32_t done = 99;
    char want[640];

    (void)state;
    put("file", "a\n");
    c = verified(BEGIN "*** Add File: one\n+1\n*** Add File: two\n+2\n*** Add File: file/x\n+3\n"
                       "*** Add File: four\n+4\n" END,
                 false);
    assert_int_equal(sp_patch_apply(&c, false, false, &done, &e), -SP_E_SYSTEM);
    assert_int_equal(done, 2);
    (void)snprintf(want, sizeof want, "Failed to create parent directories for %s/file/x",
                   patch_base);
    assert_string_equal(e.msg, want);
    assert_int_equal(e.sys, ENOTDIR);
    has("two", "2\n");
    assert_false(is_there("four"));
    sp_patch_changes_done(&c);
    is_tidy();
}

static void test_a_file_may_make_room_for_a_directory(void **state)
{
    (void)state;
    put("x", "a\n");
    apply(BEGIN "*** Delete File: x\n*** Add File: x/y\n+y\n" END);
    has("x/y", "y\n");
}

/* A directory that may not be written: the file itself may, and is written in place. */
static void test_a_file_in_a_closed_directory(void **state)
{
    const bool is_root = geteuid() == 0;

    (void)state;
    if (is_root) { /* to whom no directory is closed */
        assert_int_equal(chown(patch_base, 65534, 65534), 0);
        assert_int_equal(seteuid(65534), 0);
    }
    assert_int_equal(mkdir(at("d"), 0700), 0);
    put("d/x", "a longer text\n");
    assert_int_equal(chmod(at("d"), 0500), 0);
    apply(BEGIN "*** Update File: d/x\n-a longer text\n+b\n" END);
    has("d/x", "b\n");
    struct sp_patch_changes c = verified(BEGIN "*** Add File: d/n\n+n\n" END, false);
    is_not_applied(&c, false, "Failed to write file %s/d/n: Permission denied");
    sp_patch_changes_done(&c);
    assert_int_equal(chmod(at("d"), 0700), 0);
    if (is_root)
        assert_int_equal(seteuid(0), 0);
}

static void test_deep_paths(void **state)
{
    char text[4096] = BEGIN "*** Add File: ";
    size_t n = strlen(text);

    (void)state;
    for (int i = 0; i < 500; i++)
        n += (size_t)sprintf(text + n, "dir/");
    (void)sprintf(text + n, "x\n+x\n" END);
    apply_as(text, true, NULL);
    char *name = text + strlen(BEGIN "*** Add File: ");
    *strchr(name, '\n') = 0;
    char path[5000];
    (void)snprintf(path, sizeof path, "%s/%s", patch_base, name);
    assert_int_equal(access(path, F_OK), 0);
}

/* ---- diffs ---- */

static void diff_is(const char *before, const char *after, const char *want)
{
    const struct sp_patch_change c = {
        .kind = SP_PATCH_UPDATE, .before = sp_str_of(before), .after = sp_str_of(after)};
    auto_buf struct sp_buf out = {0};

    assert_true(sp_patch_add_diff(&out, &c) && sp_buf_add(&out, "", 1));
    assert_string_equal(out.data, want);
}

static void test_diffs(void **state)
{
    (void)state;
    diff_is("a\nb\nc\n", "a\nB\nc\n", "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n");
    diff_is("a\n", "a\n", "");
    diff_is("", "a\nb\n", "@@ -0,0 +1,2 @@\n+a\n+b\n");
    diff_is("a\n", "", "@@ -1 +0,0 @@\n-a\n");
    diff_is("a", "a\n", "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n");
    diff_is("1\n2\n3\n4\n5\n6\n7\n", "1\nx\n3\n4\n5\ny\n7\n",
            "@@ -1,3 +1,3 @@\n 1\n-2\n+x\n 3\n@@ -5,3 +5,3 @@\n 5\n-6\n+y\n 7\n");
    diff_is("1\n2\n3\n4\n5\n", "1\nx\n3\n4\ny\n", "@@ -1,5 +1,5 @@\n 1\n-2\n+x\n 3\n 4\n-5\n+y\n");
    diff_is("a\nb\n", "b\nc\n", "@@ -1,2 +1,2 @@\n-a\n b\n+c\n");
    const struct sp_patch_change gone = {.kind = SP_PATCH_DELETE};
    auto_buf struct sp_buf out = {0};
    assert_true(sp_patch_add_diff(&out, &gone));
    assert_int_equal(out.len, 0);
}

/* The old text with the diff laid over it, read the way `patch` does. */
static void lay_over(const char *before, const char *diff, char *out)
{
    unsigned line = 1; /* of before, the next one to copy */
    const char *b = before;

    while (*diff != 0) {
        unsigned from;
        unsigned count = 1;

        assert_true(sscanf(diff, "@@ -%u,%u", &from, &count) >= 1);
        if (count == 0)
            from++;
        diff = strchr(diff, '\n') + 1;
        for (; line < from; line++) {
            const char *end = strchr(b, '\n') + 1;

            out = mempcpy(out, b, (size_t)(end - b));
            b = end;
        }
        for (; *diff != 0 && *diff != '@'; diff = strchr(diff, '\n') + 1) {
            const size_t n = (size_t)(strchr(diff, '\n') + 1 - diff) - 1;

            if (*diff != '-')
                out = mempcpy(out, diff + 1, n);
            if (*diff == '+')
                continue;
            assert_memory_equal(b, diff + 1, n);
            b += n;
            line++;
        }
    }
    strcpy(out, b);
}

static void make_text(uint64_t *seed, char *out)
{
    const uint32_t lines = test_random(seed) % 30;

    *out = 0;
    for (uint32_t i = 0; i < lines; i++)
        out += sprintf(out, "%c\n", 'a' + (int)(test_random(seed) % 5));
}

static void test_diffs_at_random_make_the_new_text(void **state)
{
    uint64_t seed = 42;

    (void)state;
    for (int i = 0; i < 3000; i++) {
        char before[128];
        char after[128];
        char got[512];
        auto_buf struct sp_buf out = {0};

        make_text(&seed, before);
        make_text(&seed, after);
        const struct sp_patch_change c = {.before = sp_str_of(before), .after = sp_str_of(after)};
        assert_true(sp_patch_add_diff(&out, &c) && sp_buf_add(&out, "", 1));
        lay_over(before, out.data, got);
        assert_string_equal(got, after);
    }
}

static void test_a_diff_of_two_texts_that_have_nothing_in_common(void **state)
{
    auto_free char *before = malloc(1 << 20);
    auto_free char *after = malloc(1 << 20);
    auto_buf struct sp_buf out = {0};
    size_t n = 0;

    (void)state;
    for (int i = 0; i < 50000; i++) {
        (void)sprintf(before + n, "old %05d\n", i);
        n += (size_t)sprintf(after + n, "new %05d\n", i);
    }
    const struct sp_patch_change c = {.before = {before, n}, .after = {after, n}};
    assert_true(sp_patch_add_diff(&out, &c));
    assert_int_equal(out.len, 2 * n + 100000 + strlen("@@ -1,50000 +1,50000 @@\n"));
}

static const struct CMUnitTest tests[] = {
    patch_test(test_each_kind_and_the_summary),
    patch_test(test_no_changes_say_so),
    patch_test(test_an_added_file_replaces_one),
    patch_test(test_modes_stay),
    patch_test(test_another_name_of_a_file_keeps_the_old_text),
    patch_test(test_links_are_followed_when_confined),
    patch_test(test_links_are_refused_when_free),
    patch_test(test_a_link_that_is_put_there_leads_nowhere),
    patch_test(test_a_file_that_has_changed_is_refused),
    patch_test(test_nothing_is_written_if_one_hunk_fails),
    patch_test(test_what_was_done_before_a_failure_is_counted),
    patch_test(test_a_file_may_make_room_for_a_directory),
    patch_test(test_a_file_in_a_closed_directory),
    patch_test(test_deep_paths),
    patch_test(test_diffs),
    patch_test(test_diffs_at_random_make_the_new_text),
    patch_test(test_a_diff_of_two_texts_that_have_nothing_in_common),
};

TEST_MAIN(tests)
