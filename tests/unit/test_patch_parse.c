/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "approve/patch/patch.h"
#include "base/auto.h"
#include "memory_fixture.h"
#include "test.h"

#define BEGIN "*** Begin Patch\n"
#define END   "*** End Patch\n"

static int parse(struct sp_str text, struct sp_patch *ret, struct sp_err *e)
{
    auto_free char *exact = test_copy(text);

    return sp_patch_parse((struct sp_str){exact, text.n}, ret, e);
}

static struct sp_patch parsed(const char *text)
{
    struct sp_patch p = {0};
    struct sp_err e = {0};

    if (parse(sp_str_of(text), &p, &e) < 0)
        fail_msg("%s\n%s", e.msg, text);
    return p;
}

static void is_text(struct sp_str s, const char *want)
{
    assert_non_null(s.p);
    assert_int_equal(s.n, strlen(want));
    assert_memory_equal(s.p, want, s.n);
}

static void is_refused(const char *text, const char *want)
{
    struct sp_patch p = {0};
    struct sp_err e = {0};

    assert_int_equal(parse(sp_str_of(text), &p, &e), -SP_E_INVALID);
    assert_string_equal(e.msg, want);
    assert_null(p.impl);
}

static void test_all_kinds_of_hunks(void **state)
{
    struct sp_patch p = parsed(BEGIN "*** Environment ID: far away \n"
                                     "*** Add File: a b\n+one\n++two\n+\n"
                                     "*** Delete File: gone\n"
                                     "*** Update File: x\n*** Move to: y\n@@ def f():\n-old\n+new\n"
                                     " same\n\n*** End of File\n\n@@\n+tail\n" END);

    (void)state;
    assert_int_equal(p.hunk_count, 3);
    is_text(p.environment_id, "far away");
    assert_int_equal(p.hunks[0].kind, SP_PATCH_ADD);
    is_text(p.hunks[0].path, "a b");
    is_text(p.hunks[0].content, "one\n+two\n\n");
    assert_int_equal(p.hunks[1].kind, SP_PATCH_DELETE);
    is_text(p.hunks[1].path, "gone");
    const struct sp_patch_hunk *u = &p.hunks[2];
    assert_int_equal(u->kind, SP_PATCH_UPDATE);
    is_text(u->path, "x");
    is_text(u->move_to, "y");
    assert_int_equal(u->chunk_count, 2);
    is_text(u->chunks[0].context, "def f():");
    assert_int_equal(u->chunks[0].old_count, 3);
    assert_int_equal(u->chunks[0].new_count, 3);
    is_text(u->chunks[0].old_lines[0], "old");
    is_text(u->chunks[0].new_lines[0], "new");
    is_text(u->chunks[0].old_lines[1], "same");
    assert_ptr_equal(u->chunks[0].old_lines[1].p, u->chunks[0].new_lines[1].p);
    is_text(u->chunks[0].old_lines[2], "");
    assert_true(u->chunks[0].is_at_end);
    assert_null(u->chunks[1].context.p);
    assert_int_equal(u->chunks[1].old_count, 0);
    is_text(u->chunks[1].new_lines[0], "tail");
    assert_false(u->chunks[1].is_at_end);
    sp_patch_done(&p);
}

static void test_no_hunks_are_a_patch(void **state)
{
    struct sp_patch p = parsed(BEGIN END);

    (void)state;
    assert_int_equal(p.hunk_count, 0);
    assert_null(p.environment_id.p);
    sp_patch_done(&p);
    sp_patch_done(&p);
}

/* Each is read as the one hunk of file x. */
static void test_leniencies(void **state)
{
    static const char *const texts[] = {
        "  *** Begin Patch  \n*** Update File: x\n-a\n+b\n\t*** End Patch  \n",
        BEGIN "*** Update File: x  \t\n@@\n-a\n+b\n" END,
        BEGIN "*** Update File: x\n@@   \n-a\n+b\n" END,
        "*** Begin Patch\r\n*** Update File: x\r\n@@\r\n-a\r\n+b\r\n*** End Patch\r\n",
        "<<EOF\n" BEGIN "*** Update File: x\n-a\n+b\n" END "EOF",
        "<<'EOF'\n" BEGIN "*** Update File: x\n-a\n+b\n" END "EOF\n",
        "<<\"EOF\"\r\n" BEGIN "*** Update File: x\n-a\n+b\n" END "EOF\n\n",
        "\n\n" BEGIN "*** Update File: x\n-a\n+b\n" END "\n \n\n",
        BEGIN "*** Update File: x\n-a\n+b\n*** End Patch\n\n\n*** End Patch",
        "\xC2\xA0" BEGIN "*** Update File: x\n-a\n+b\n" END "\xE3\x80\x80",
    };

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct sp_patch p = parsed(texts[i]);

        assert_int_equal(p.hunk_count, 1);
        is_text(p.hunks[0].path, "x");
        assert_int_equal(p.hunks[0].chunk_count, 1);
        is_text(p.hunks[0].chunks[0].old_lines[0], "a");
        is_text(p.hunks[0].chunks[0].new_lines[0], "b");
        sp_patch_done(&p);
    }
    struct sp_patch p = parsed(BEGIN "  *** Add File: x  \n+a \n \t*** Delete File: y \n" END);
    assert_int_equal(p.hunk_count, 2);
    is_text(p.hunks[0].path, "x");
    is_text(p.hunks[0].content, "a \n");
    is_text(p.hunks[1].path, "y");
    sp_patch_done(&p);
}

/* An indented header within an update is a line of it. */
static void test_markers_count_at_the_start_of_a_line(void **state)
{
    struct sp_patch p =
        parsed(BEGIN "*** Update File: x\n@@\n *** End Patch\n-*** Add File: y\n+z\n" END);

    (void)state;
    assert_int_equal(p.hunk_count, 1);
    is_text(p.hunks[0].chunks[0].old_lines[0], "*** End Patch");
    is_text(p.hunks[0].chunks[0].old_lines[1], "*** Add File: y");
    sp_patch_done(&p);
}

#define HEADERS                                                                       \
    "' is not a valid hunk header. Valid hunk headers: '*** Add File: {path}', '*** " \
    "Delete File: {path}', '*** Update File: {path}'"
#define SIGNS                                                                       \
    "'. Every line should start with ' ' (context line), '+' (added line), or '-' " \
    "(removed line)"

static void test_every_complaint(void **state)
{
    static const char first[] =
        "invalid patch: The first line of the patch must be '*** Begin Patch'";
    static const char last[] = "invalid patch: The last line of the patch must be '*** End Patch'";
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"", first},
        {"x", first},
        {"\n" END, first},
        {BEGIN, last},
        {BEGIN "*** Add File: x\n+a\n", last},
        {BEGIN END "x\n" END, last},
        {BEGIN END "x", last},
        {"<<EOF\nx\ny\nEOF", first},
        {"<<EOF\n" BEGIN "y\nEOF", last},
        {"<<EOF\n" BEGIN "EOF", first},
        {"<<EOX\n" BEGIN END "EOX", first},
        {"<<-EOF\n" BEGIN END "EOF", first},
        {BEGIN "foo\n" END, "invalid hunk at line 2, 'foo" HEADERS},
        {BEGIN " *** Frob: x \n" END, "invalid hunk at line 2, '*** Frob: x" HEADERS},
        {BEGIN "\n" END, "invalid hunk at line 2, '" HEADERS},
        {BEGIN "*** Add File: x\n+a\nb\n" END, "invalid hunk at line 4, 'b" HEADERS},
        {BEGIN "*** Add File: x\n+a\n\n" END, "invalid hunk at line 4, '" HEADERS},
        {BEGIN "*** Add File:\n+a\n" END, "invalid hunk at line 2, '*** Add File:" HEADERS},
        {BEGIN "*** Delete File: x\n-a\n" END, "invalid hunk at line 3, '-a" HEADERS},
        {BEGIN "*** Delete File: x\n*** Environment ID: y\n" END,
         "invalid hunk at line 3, '*** Environment ID: y" HEADERS},
        {BEGIN "*** Update File: x\n" END,
         "invalid hunk at line 2, Update file hunk for path 'x' is empty"},
        {BEGIN "*** Delete File: q\n*** Update File: x\n*** Move to: y\n*** Delete File: z\n" END,
         "invalid hunk at line 3, Update file hunk for path 'x' is empty"},
        {BEGIN "*** Update File: x\n*** End of File\n" END,
         "invalid hunk at line 2, Update file hunk for path 'x' is empty"},
        {BEGIN "*** Update File: x\n@@\n" END,
         "invalid hunk at line 4, Update hunk does not contain any lines"},
        {BEGIN "*** Update File: x\n@@ y\n*** End of File\n" END,
         "invalid hunk at line 4, Update hunk does not contain any lines"},
        {BEGIN "*** Update File: x\n@@\n*** Delete File: y\n" END,
         "invalid hunk at line 4, Unexpected line found in update hunk: '*** Delete File: y" SIGNS},
        {BEGIN "*** Update File: x\n@@\n@@ z\n-a\n" END,
         "invalid hunk at line 4, Unexpected line found in update hunk: '@@ z" SIGNS},
        {BEGIN "*** Update File: x\nfoo\n" END,
         "invalid hunk at line 3, Unexpected line found in update hunk: 'foo" SIGNS},
        {BEGIN "*** Update File: x\n@@\n\tfoo\n" END,
         "invalid hunk at line 4, Unexpected line found in update hunk: '\tfoo" SIGNS},
        {BEGIN "*** Update File: x\n*** Move to: y\n*** Move to: z\n-a\n" END,
         "invalid hunk at line 4, Unexpected line found in update hunk: '*** Move to: z" SIGNS},
        {BEGIN "*** Update File: x\n@@\n-a\nfoo\n" END,
         "invalid hunk at line 5, Expected update hunk to start with a @@ context marker, got: "
         "'foo'"},
        {BEGIN "*** Update File: x\n-a\n*** End of File\n+b\n" END,
         "invalid hunk at line 5, Expected update hunk to start with a @@ context marker, got: "
         "'+b'"},
        {BEGIN "*** Environment ID:\n" END,
         "invalid patch: apply_patch environment_id cannot be empty"},
        {BEGIN "*** Environment ID: \t \n" END,
         "invalid patch: apply_patch environment_id cannot be empty"},
        {BEGIN "*** Environment ID: a\n*** Environment ID: a\n" END,
         "invalid patch: apply_patch environment_id cannot be specified more than once"},
        {BEGIN "*** Add File: x\n+\xFF\n" END, "invalid patch: it is not valid UTF-8"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        is_refused(cases[i].text, cases[i].want);
}

static void test_nul_bytes_in_paths_are_refused(void **state)
{
    static const struct sp_str texts[] = {
        SP_STR(BEGIN "*** Add File: a\0b\n+x\n" END),
        SP_STR(BEGIN "*** Delete File: a\0b\n" END),
        SP_STR(BEGIN "*** Update File: a\0b\n-x\n" END),
        SP_STR(BEGIN "*** Update File: a\n*** Move to: \0\n-x\n" END),
    };

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        struct sp_patch p = {0};
        struct sp_err e = {0};

        assert_int_equal(parse(texts[i], &p, &e), -SP_E_INVALID);
        assert_string_equal(e.msg, i < 3 ? "invalid hunk at line 2, a path holds a NUL byte"
                                         : "invalid hunk at line 3, a path holds a NUL byte");
    }
    struct sp_patch p = {0};
    assert_int_equal(parse(SP_STR(BEGIN "*** Add File: a\n+x\0y\n" END), &p, NULL), 0);
    assert_bytes(p.hunks[0].content.p, p.hunks[0].content.n, "x\0y\n");
    sp_patch_done(&p);
}

/* A line is quoted up to a bound, so that the end of the complaint is there; no character is torn.
 */
static void test_long_lines_are_quoted_in_part(void **state)
{
    char text[2000] = BEGIN;
    struct sp_patch p = {0};
    struct sp_err e = {0};

    (void)state;
    for (int i = 0; i < 300; i++)
        strcat(text, "ü");
    strcat(text, "\n" END);
    assert_int_equal(parse(sp_str_of(text), &p, &e), -SP_E_INVALID);
    assert_non_null(strstr(e.msg, "'*** Update File: {path}'"));
    assert_non_null(strstr(e.msg, "ü' is not a valid"));
}

static char *repeat(const char *line, size_t bytes, size_t *ret)
{
    const size_t n = strlen(line);
    const size_t count = bytes / n;
    char *text = malloc(count * n + 100);

    assert_non_null(text);
    *ret = (size_t)sprintf(text, BEGIN "*** Update File: x\n");
    for (size_t i = 0; i < count; i++, *ret += n)
        memcpy(text + *ret, line, n);
    *ret += (size_t)sprintf(text + *ret, END);
    return text;
}

static void test_hostile_sizes(void **state)
{
    struct sp_patch p = {0};
    struct sp_err e = {0};
    size_t n;
    char *text = repeat("-aaaaaaaaaaaaaa\n", (16U << 20) - 200, &n);

    (void)state;
    assert_int_equal(sp_patch_parse((struct sp_str){text, n}, &p, &e), 0);
    assert_int_equal(p.hunks[0].chunks[0].old_count, (1U << 20) - 13);
    sp_patch_done(&p);
    free(text);
    text = repeat("-aaaaaaaaaaaaaa\n", 16U << 20, &n);
    assert_int_equal(sp_patch_parse((struct sp_str){text, n}, &p, &e), -SP_E_INVALID);
    assert_string_equal(e.msg, "invalid patch: it is larger than 16 MiB");
    free(text);
    text = repeat("\n", 15U << 20, &n);
    assert_int_equal(sp_patch_parse((struct sp_str){text, n}, &p, &e), -SP_E_INVALID);
    assert_string_equal(e.msg, "invalid patch: it has more than 4194304 lines");
    free(text);
    text = repeat("@@\n+a\n", 3U << 20, &n);
    assert_int_equal(sp_patch_parse((struct sp_str){text, n}, &p, &e), 0);
    assert_int_equal(p.hunks[0].chunk_count, 1U << 19);
    sp_patch_done(&p);
    free(text);
}

static void test_memory_that_ends(void **state)
{
    (void)state;
    for (long n = 1;; n++) {
        struct sp_patch p = {0};
        struct sp_err e = {0};

        memory_left = n;
        has_memory_ended = false;
        const int r = sp_patch_parse(SP_STR(BEGIN "*** Update File: x\n-a\n+b\n" END), &p, &e);
        memory_left = 0;
        if (r == 0) {
            assert_false(has_memory_ended);
            sp_patch_done(&p);
            break;
        }
        assert_int_equal(e.sys, ENOMEM);
        assert_null(p.impl);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_all_kinds_of_hunks),
    cmocka_unit_test(test_no_hunks_are_a_patch),
    cmocka_unit_test(test_leniencies),
    cmocka_unit_test(test_markers_count_at_the_start_of_a_line),
    cmocka_unit_test(test_every_complaint),
    cmocka_unit_test(test_nul_bytes_in_paths_are_refused),
    cmocka_unit_test(test_long_lines_are_quoted_in_part),
    cmocka_unit_test(test_hostile_sizes),
    cmocka_unit_test(test_memory_that_ends),
};

TEST_MAIN(tests)
