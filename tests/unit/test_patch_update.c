/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of files' texts (cases 155 to 163), without a byte written. */
#include <time.h>

#include "memory_fixture.h"
#include "patch_fixture.h"

/* File x with this text under this update (what comes behind its header) is that one. */
static void becomes_in(bool keeps, const char *before, const char *chunks, const char *want)
{
    char text[8192];

    (void)snprintf(text, sizeof text, BEGIN "*** Update File: x\n%s" END, chunks);
    put("x", before);
    struct sp_patch_changes c = verified(text, keeps);
    assert_int_equal(c.count, 1);
    assert_int_equal(c.items[0].before.n, strlen(before));
    assert_int_equal(c.items[0].after.n, strlen(want));
    assert_memory_equal(c.items[0].after.p, want, strlen(want));
    sp_patch_changes_done(&c);
    has("x", before);
}

static void becomes(const char *before, const char *chunks, const char *want)
{
    becomes_in(false, before, chunks, want);
}

static void is_not_found(const char *before, const char *chunks, const char *want)
{
    char text[8192];
    char wanted[640];
    struct sp_patch_changes c = {0};
    auto_buf struct sp_buf why = {0};
    struct sp_err e = {0};

    (void)snprintf(text, sizeof text, BEGIN "*** Update File: x\n%s" END, chunks);
    put("x", before);
    assert_int_equal(verify_text(text, false, &c, &why, &e), -SP_E_FAILED);
    spell(want, wanted, sizeof wanted);
    assert_string_equal(e.msg, wanted);
    assert_int_equal(why.len, strlen(wanted));
    assert_memory_equal(why.data, wanted, why.len);
}

static void test_lines_are_replaced_removed_and_added(void **state)
{
    (void)state;
    becomes("a\nb\nc\n", "@@\n a\n-b\n+B\n+BB\n c\n", "a\nB\nBB\nc\n");
    becomes("a\nb\nc\n", "-b\n", "a\nc\n");
    becomes("a\nb\nc\n", "@@\n-a\n+A\n@@\n-c\n+C\n", "A\nb\nC\n");
    becomes("a\n", "-a\n", "");
    becomes("", "+a\n", "a\n");
    becomes("a\nb", "-a\n+A\n", "A\nb\n"); /* 162 */
    becomes("a", "-a\n+b\n", "b\n");
    becomes("a\n\nb\n", "@@\n a\n\n-b\n+c\n", "a\n\nc\n");
}

static void test_chunks_come_one_behind_the_other(void **state)
{
    (void)state;
    becomes("a\na\na\n", "@@\n-a\n+1\n@@\n-a\n+2\n", "1\n2\na\n");
    becomes("f\na\ng\na\n", "@@ g\n-a\n+b\n", "f\na\ng\nb\n");
    becomes("f\na\ng\na\n", "@@ f\n-a\n+1\n@@ g\n-a\n+2\n", "f\n1\ng\n2\n");
    is_not_found("a\nb\n", "@@\n-b\n+B\n@@\n-a\n+A\n", "Failed to find expected lines in %s/x:\na");
    is_not_found("a\nb\n", "@@ b\n-b\n+B\n", "Failed to find expected lines in %s/x:\nb");
}

static void test_a_chunk_of_new_lines_goes_to_the_end(void **state)
{
    (void)state;
    becomes("a\nb\n", "@@\n+c\n", "a\nb\nc\n");
    becomes("a\nb\n", "@@ a\n+c\n", "a\nb\nc\n");
    becomes("a\nb\n", "@@\n+c\n@@\n-a\n+A\n@@\n+d\n", "A\nb\nc\nd\n");
    becomes("a\n\n", "@@\n+c\n", "a\nc\n\n");
    becomes("a\n\n", "@@\n a\n-\n+b\n@@\n+c\n", "a\nb\nc\n");
    becomes_in(true, "a\n\n", "@@\n+c\n", "a\n\nc\n");
}

static void test_the_end_of_the_file_is_an_anchor(void **state)
{
    (void)state;
    becomes("a\nb\na\nb\n", "@@\n a\n-b\n+c\n*** End of File\n", "a\nb\na\nc\n");
    becomes("a\nb\na\nb\n", "@@\n a\n-b\n+c\n", "a\nc\na\nb\n");
    is_not_found("a\nb\n", "@@\n-a\n+c\n*** End of File\n",
                 "Failed to find expected lines in %s/x:\na");
    /* What was replaced already is not there for another. */
    is_not_found("a\nb\n", "@@\n a\n-b\n+b\n@@\n-b\n+c\n*** End of File\n",
                 "Failed to find expected lines in %s/x:\nb");
}

/* Case 158: what differs less counts first, wherever it is. */
static void test_lines_are_alike_at_four_levels(void **state)
{
    (void)state;
    becomes("a  \nb\n", "@@\n-a\n+A\n", "A\nb\n");
    becomes("    a\nb\n", "@@\n-a\n+A\n", "A\nb\n");
    becomes("a\nb\n", "@@\n-\ta \n+A\n", "A\nb\n");
    becomes("say “hi” – it’s\u00a0me\n", "@@\n-say \"hi\" - it's me\n+x\n", "x\n");
    becomes("a − b\n", "@@\n-a - b\n+x\n", "x\n");
    becomes("\u3000a\u2009b\n", "@@\n-a b\n+x\n", "x\n");
    becomes(" a\na \na\n", "@@\n-a\n+x\n", " a\na \nx\n");
    becomes(" a\na \n", "@@\n-a\n+x\n", " a\nx\n");
    becomes("  def f():\nx\n", "@@ def f():\n-x\n+y\n", "  def f():\ny\n");
    is_not_found("a\n", "@@\n-A\n+x\n", "Failed to find expected lines in %s/x:\nA");
    is_not_found("a – b\n", "@@\n-a _ b\n+x\n", "Failed to find expected lines in %s/x:\na _ b");
}

static void test_an_empty_line_may_stand_for_the_last_newline(void **state)
{
    (void)state;
    becomes("a\nb\n", "@@\n-b\n-\n+c\n+\n", "a\nc\n");
    becomes("a\nb\n", "@@\n-b\n-\n+c\n", "a\nc\n");
    becomes("a\nb\n", "@@\n b\n\n+c\n", "a\nb\n\nc\n");
    becomes("a\n", "@@\n\n+b\n", "\nb\na\n");
}

static void test_what_is_not_there_is_named(void **state)
{
    (void)state;
    is_not_found("a\n", "@@\n a\n-q\n+r\n-s\n", "Failed to find expected lines in %s/x:\na\nq\ns");
    is_not_found("a\n", "@@ foo bar\n-a\n", "Failed to find context 'foo bar' in %s/x");
    is_not_found("", "-a\n", "Failed to find expected lines in %s/x:\na");
}

static void test_a_long_story_is_told_whole_on_request(void **state)
{
    char text[4096] = BEGIN "*** Update File: x\n@@\n";
    struct sp_patch_changes c = {0};
    auto_buf struct sp_buf why = {0};
    struct sp_err e = {0};

    (void)state;
    for (int i = 0; i < 100; i++)
        strcat(text, "-a line that is not there\n");
    strcat(text, END);
    put("x", "y\n");
    assert_int_equal(verify_text(text, false, &c, &why, &e), -SP_E_FAILED);
    assert_true(why.len > 2400);
    assert_int_equal(strlen(e.msg), sizeof e.msg - 1);
    assert_memory_equal(why.data, e.msg, strlen(e.msg));
}

/* Case 163. */
static void test_line_endings(void **state)
{
    (void)state;
    becomes("a\r\nb\r\nc\r\nd\r\n", "@@\n a\n-b\n+B\n", "a\nB\nc\r\nd\r\n");
    becomes_in(true, "a\r\nb\r\nc\r\n", "@@\n a\n-b\n+B\n", "a\r\nB\r\nc\r\n");
    becomes_in(true, "a\r\nb\r\nc", "@@\n-b\n+B\n", "a\r\nB\r\nc\r\n");
    becomes_in(true, "a\r\nb\nc\r\n", "@@\n a\n-b\n+B\n c\n", "a\r\nB\r\nc\r\n");
    becomes_in(true, "a\nb\nc\r\n", "@@\n-c\n+C\n", "a\nb\nC\n");
    becomes_in(true, "a\r\nb\n", "@@\n-b\n+B\n", "a\r\nB\r\n"); /* two alike: the first */
    becomes_in(true, "a\nb\r\n", "@@\n-b\n+B\n", "a\nB\n");
    becomes_in(true, "a\rb\rc\r", "@@\n-b\n+B\n", "a\rB\rc\r");
    becomes_in(true, "a\r\nb\r\n", "@@\n+c\n", "a\r\nb\r\nc\r\n");
    becomes_in(true, "  a\nb\n", "@@\n a\n-b\n+c\n", "  a\nc\n"); /* context stays as it was */
    becomes("  a\nb\n", "@@\n a\n-b\n+c\n", "a\nc\n");
    becomes_in(true, "a\nb\na\n", "@@\n-a\n+a\n b\n-a\n+c\n+d\n", "a\nb\nc\nd\n");
}

static void test_files_that_cannot_be_read(void **state)
{
    (void)state;
    is_refused(BEGIN "*** Update File: no\n-a\n" END,
               "Failed to read file to update %s/no: No such file or directory");
    is_refused(BEGIN "*** Update File: .\n-a\n" END,
               "Failed to read file to update %s: Is a directory");
    put("x", "a\n\xFF\n");
    is_refused(BEGIN "*** Update File: x\n-a\n" END,
               "Failed to read file to update %s/x: it is not valid UTF-8");
    assert_int_equal(mkfifo(at("pipe"), 0600), 0);
    is_refused(BEGIN "*** Update File: pipe\n-a\n" END,
               "Failed to read file to update %s/pipe: it is not a regular file");
    is_refused(BEGIN "*** Add File: pipe\n+a\n" END,
               "Failed to write file %s/pipe: it is not a regular file");
    is_refused(BEGIN "*** Delete File: no\n" END,
               "Failed to delete file %s/no: No such file or directory");
    assert_int_equal(mkdir(at("d"), 0700), 0);
    is_refused(BEGIN "*** Delete File: d\n" END, /* 161 */
               "Failed to delete file %s/d: path is a directory");
    is_refused(BEGIN "*** Add File: d\n+a\n" END, "Failed to write file %s/d: Is a directory");
    put("x", "a\n");
    is_refused(BEGIN "*** Update File: x\n*** Move to: d\n-a\n" END,
               "Failed to write file %s/d: Is a directory");
}

/* Case 155, and its relatives: paths meet when they are made whole. */
static void test_a_file_is_touched_once(void **state)
{
    static const char *const texts[] = {
        BEGIN "*** Add File: x\n+a\n*** Add File: x\n+b\n" END,
        BEGIN "*** Delete File: x\n*** Add File: ./d/../x\n+b\n" END,
        BEGIN "*** Update File: y\n*** Move to: x\n-a\n*** Delete File: x\n" END,
        BEGIN
        "*** Update File: y\n*** Move to: x\n-a\n*** Update File: z\n*** Move to: x\n-a\n" END,
    };

    (void)state;
    put("x", "a\n");
    put("y", "a\n");
    put("z", "a\n");
    for (size_t i = 0; i < 4; i++)
        is_refused(texts[i], "invalid patch: multiple operations target %s/x");
}

static void test_paths_are_made_whole(void **state)
{
    char text[512];

    (void)state;
    put("x", "a\n");
    (void)snprintf(text, sizeof text,
                   BEGIN "*** Update File: %s\n*** Move to: a//b/./../c\n-a\n+b\n"
                         "*** Add File: ../../../../../../y\n+y\n" END,
                   at("x"));
    struct sp_patch_changes c = verified(text, false);
    assert_int_equal(c.count, 2);
    assert_string_equal(c.items[0].full_path, at("x"));
    assert_string_equal(c.items[0].full_target, at("a/c"));
    assert_memory_equal(c.items[0].move_to.p, "a//b/./../c", c.items[0].move_to.n);
    assert_string_equal(c.items[1].full_path, "/y");
    assert_null(c.items[1].full_target);
    sp_patch_changes_done(&c);
    c = verified(BEGIN "*** Update File: x\n*** Move to: ./x\n-a\n+b\n" END, false);
    assert_null(c.items[0].full_target);
    sp_patch_changes_done(&c);
}

static void test_paths_that_are_too_long(void **state)
{
    auto_free char *text = malloc(20000);
    size_t n = (size_t)sprintf(text, BEGIN "*** Add File: ");
    struct sp_patch_changes c = {0};
    struct sp_err e = {0};

    (void)state;
    assert_non_null(text);
    for (int i = 0; i < 2500; i++)
        n += (size_t)sprintf(text + n, "d/");
    (void)sprintf(text + n, "x\n+a\n" END);
    assert_int_equal(verify_text(text, false, &c, NULL, &e), -SP_E_INVALID);
    assert_non_null(strstr(e.msg, "is too long"));
}

static double seconds(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

struct big {
    char *text;
    size_t n;
};

static struct big big_new(size_t bytes, const char *begin)
{
    struct big b = {malloc(bytes), 0};

    assert_non_null(b.text);
    b.n = (size_t)sprintf(b.text, "%s", begin);
    return b;
}

static void big_add(struct big *b, const char *line, size_t times)
{
    const size_t n = strlen(line);

    for (; times > 0; times--, b->n += n)
        memcpy(b->text + b->n, line, n + 1);
}

/* A repetitive file and a pattern that nearly matches everywhere: a naive search takes hours. */
static void test_repetition_costs_one_pass(void **state)
{
    struct big file = big_new(1 << 22, "");
    struct big patch = big_new(1 << 22, BEGIN "*** Update File: x\n@@\n");
    struct sp_patch_changes c = {0};
    struct sp_err e = {0};

    (void)state;
    big_add(&file, "a\n", 800000);
    big_add(&file, "b\n", 1);
    big_add(&file, "a\n", 10);
    put_bytes("x", file.text, file.n);
    big_add(&patch, "-a\n", 400000);
    big_add(&patch, "-b\n-b\n" END, 1);
    const double begin = seconds();
    assert_int_equal(verify_text(patch.text, false, &c, NULL, &e), -SP_E_FAILED);
    assert_true(seconds() - begin < 20);
    free(file.text);
    free(patch.text);
}

/* Many chunks, each of which is found at a looser level close by. */
static void test_many_chunks_of_another_kind_of_lines(void **state)
{
    struct big file = big_new(1 << 22, "");
    struct big patch = big_new(1 << 22, BEGIN "*** Update File: x\n");
    char line[64];

    (void)state;
    for (int i = 0; i < 50000; i++) {
        (void)snprintf(line, sizeof line, "  line %d\r\n", i);
        big_add(&file, line, 1);
        (void)snprintf(line, sizeof line, "@@\n-line %d\n+new %d\n", i, i);
        big_add(&patch, line, 1);
    }
    big_add(&patch, END, 1);
    put_bytes("x", file.text, file.n);
    const double begin = seconds();
    struct sp_patch_changes c = verified(patch.text, false);
    assert_true(seconds() - begin < 20);
    assert_memory_equal(c.items[0].after.p, "new 0\nnew 1\n", 12);
    sp_patch_changes_done(&c);
    free(file.text);
    free(patch.text);
}

/* What is made to be slow meets a bound that says so. */
static void test_what_is_made_to_be_slow_is_refused(void **state)
{
    struct big file = big_new(1 << 22, "");
    struct big patch = big_new(1 << 22, BEGIN "*** Update File: x\n");
    struct sp_patch_changes c = {0};
    struct sp_err e = {0};

    (void)state;
    /* Each chunk is at hand with its blanks off, but its lines are in the rest as they are. */
    big_add(&file, "a \nb\nc\n", 100000);
    big_add(&file, "a\nc\nb\nc\n", 100000);
    put_bytes("x", file.text, file.n);
    big_add(&patch, "@@\n-a\n-b\n+x\n", 100000);
    big_add(&patch, END, 1);
    const double begin = seconds();
    assert_int_equal(verify_text(patch.text, false, &c, NULL, &e), -SP_E_LIMIT);
    assert_true(seconds() - begin < 60);
    assert_string_equal(e.msg, "the patch is too repetitive: make its chunks larger and fewer");
    free(file.text);
    free(patch.text);
}

static void test_memory_that_ends(void **state)
{
    static const char text[] = BEGIN
        "*** Update File: x\n*** Move to: y\n@@ a\n-b\n+B\n@@\n+z\n*** Update File: q\n-no\n" END;
    long runs = 0;

    (void)state;
    put("x", " a\n “b” \nb\n");
    put("q", "q\n");
    for (bool has_ended = true; has_ended; runs++) {
        struct sp_patch_changes c = {0};
        auto_buf struct sp_buf why = {0};
        struct sp_err e = {0};

        memory_left = runs + 1;
        has_memory_ended = false;
        const int r = verify_text(text, runs % 2 == 0, &c, &why, &e);
        memory_left = 0;
        has_ended = has_memory_ended;
        assert_int_equal(r, has_ended ? -SP_E_SYSTEM : -SP_E_FAILED);
        assert_int_equal(e.sys, has_ended ? ENOMEM : 0);
        assert_null(c.impl);
    }
    assert_true(runs > 20);
}

static const struct CMUnitTest tests[] = {
    patch_test(test_lines_are_replaced_removed_and_added),
    patch_test(test_chunks_come_one_behind_the_other),
    patch_test(test_a_chunk_of_new_lines_goes_to_the_end),
    patch_test(test_the_end_of_the_file_is_an_anchor),
    patch_test(test_lines_are_alike_at_four_levels),
    patch_test(test_an_empty_line_may_stand_for_the_last_newline),
    patch_test(test_what_is_not_there_is_named),
    patch_test(test_a_long_story_is_told_whole_on_request),
    patch_test(test_line_endings),
    patch_test(test_files_that_cannot_be_read),
    patch_test(test_a_file_is_touched_once),
    patch_test(test_paths_are_made_whole),
    patch_test(test_paths_that_are_too_long),
    patch_test(test_repetition_costs_one_pass),
    patch_test(test_many_chunks_of_another_kind_of_lines),
    patch_test(test_what_is_made_to_be_slow_is_refused),
    patch_test(test_memory_that_ends),
};

TEST_MAIN(tests)
