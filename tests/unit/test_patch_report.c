/* SPDX-License-Identifier: Apache-2.0 */
/* What one process tells another about the files of a patch, and what a hostile one may tell. */
#include "memory_fixture.h"
#include "patch_fixture.h"

#define HUNKS                                                                            \
    BEGIN "*** Add File: new\n+text\n*** Update File: old\n*** Move to: moved\n-a\n+b\n" \
          "*** Delete File: gone\n" END

static void put_all(void)
{
    put("old", "a\nz\n");
    put("gone", "last\n");
}

static struct sp_buf report_of(const char *patch)
{
    struct sp_patch_changes c = verified(patch, false);
    struct sp_buf out = {0};
    struct sp_err e = {0};

    if (sp_patch_add_report(&out, &c, &e) < 0)
        fail_msg("%s", e.msg);
    sp_patch_changes_done(&c);
    return out;
}

/* What is heard by somebody who has seen the patch alone. */
static int hear(const char *patch, struct sp_str report, struct sp_patch_changes *ret)
{
    struct sp_patch p = {0};
    struct sp_err e = {0};

    assert_int_equal(sp_patch_parse(sp_str_of(patch), &p, &e), 0);
    int r = sp_patch_list(&p, patch_base, ret, &e);
    sp_patch_done(&p);
    assert_int_equal(r, 0);
    r = sp_patch_read_report(report, ret, &e);
    if (r < 0) {
        assert_non_null(strstr(e.msg, "cannot be understood"));
        sp_patch_changes_done(ret);
    }
    return r;
}

static bool is_heard(const char *patch, const char *text, size_t n)
{
    struct sp_patch_changes c = {0};
    /* A copy of that size: whoever reads beyond it is seen. */
    auto_free char *copy = malloc(n + (n == 0));

    assert_non_null(copy);
    if (n > 0)
        memcpy(copy, text, n);
    const int r = hear(patch, (struct sp_str){copy, n}, &c);
    sp_patch_changes_done(&c);
    return r == 0;
}

static void assert_text(struct sp_str got, const char *want)
{
    assert_int_equal(got.n, strlen(want));
    assert_memory_equal(got.p, want, got.n);
}

static void test_what_is_told_is_heard(void **state)
{
    (void)state;
    put_all();
    auto_buf struct sp_buf report = report_of(HUNKS);
    struct sp_patch_changes c = {0};
    auto_buf struct sp_buf diff = {0};

    assert_int_equal(hear(HUNKS, (struct sp_str){report.data, report.len}, &c), 0);
    assert_int_equal(c.count, 3);
    assert_string_equal(c.items[0].full_path, at("new"));
    assert_text(c.items[0].after, "text\n");
    assert_string_equal(c.items[1].full_path, at("old"));
    assert_string_equal(c.items[1].full_target, at("moved"));
    assert_null(c.items[1].before.p);
    assert_true(sp_patch_add_diff(&diff, &c.items[1]));
    assert_text((struct sp_str){diff.data, diff.len}, "@@ -1,2 +1,2 @@\n-a\n+b\n z\n");
    assert_text(c.items[2].before, "last\n");
    sp_patch_changes_done(&c);
}

/* As a whole or not at all, and nothing behind it. */
static void test_every_prefix_is_refused(void **state)
{
    (void)state;
    put_all();
    auto_buf struct sp_buf report = report_of(HUNKS);

    for (size_t n = 0; n < report.len; n++)
        assert_false(is_heard(HUNKS, report.data, n));
    assert_true(is_heard(HUNKS, report.data, report.len));
    assert_true(sp_buf_add(&report, "\n", 1));
    assert_false(is_heard(HUNKS, report.data, report.len));
}

/* One byte is another: it is refused, or it is a text or a digest that has changed. */
static void test_every_byte_may_be_another(void **state)
{
    static const char others[] = {0, '\n', ' ', '-', '0', '9', 'a', 'z', (char)0x80, (char)0xff};

    (void)state;
    put_all();
    auto_buf struct sp_buf report = report_of(HUNKS);

    for (size_t i = 0; i < report.len; i++)
        for (size_t k = 0; k < sizeof others; k++) {
            const char was = report.data[i];

            report.data[i] = others[k];
            const bool ok = is_heard(HUNKS, report.data, report.len);
            if (ok)
                assert_true((unsigned char)others[k] < 0x80);
            report.data[i] = was;
        }
    assert_true(is_heard(HUNKS, report.data, report.len));
}

#define DIGEST "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static void test_what_is_refused(void **state)
{
    static const char update[] = BEGIN "*** Update File: x\n-a\n+b\n" END;
    static const char *const bad[] = {
        "",
        "Success. Updated the following files:\nM x\n",
        "sallyport-patch 2 1\n" DIGEST " 1\na\nend\n",
        "sallyport-patch 1 0\nend\n",
        "sallyport-patch 1 2\n" DIGEST " 1\na\n" DIGEST " 1\na\nend\n",
        "sallyport-patch 1 01\n" DIGEST " 1\na\nend\n",
        "sallyport-patch 1 4294967297\n" DIGEST " 1\na\nend\n",
        "sallyport-patch 1 1\n" DIGEST " -\nend\n", /* an update has a diff */
        "sallyport-patch 1 1\n" DIGEST " 01\na\nend\n",
        "sallyport-patch 1 1\n" DIGEST " +1\na\nend\n",
        "sallyport-patch 1 1\n" DIGEST " \na\nend\n",
        "sallyport-patch 1 1\n" DIGEST " 2\na\nend\n",
        "sallyport-patch 1 1\n" DIGEST " 16777217\na\nend\n",
        "sallyport-patch 1 1\n" DIGEST " 18446744073709551615\na\nend\n",
        "sallyport-patch 1 1\n" DIGEST " 18446744073709551616\na\nend\n",
        "sallyport-patch 1 1\n" DIGEST " 1\n\xff\nend\n",
        "sallyport-patch 1 1\n0" DIGEST " 1\na\nend\n",
        "sallyport-patch 1 1\nA" /* upper case */
        "0112233445566778899aabbccddeeff00112233445566778899aabbccddeeff 1\na\nend\n",
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (is_heard(update, bad[i], strlen(bad[i])))
            fail_msg("heard: %s", bad[i]);
    const char good[] = "sallyport-patch 1 1\n" DIGEST " 1\na\nend\n";
    assert_true(is_heard(update, good, sizeof good - 1));
    /* A new file has no text but the patch's. */
    assert_false(is_heard(BEGIN "*** Add File: x\n+a\n" END, good, sizeof good - 1));
}

static void test_a_diff_that_is_too_large(void **state)
{
    const size_t n = 9 << 20;
    auto_free char *line = malloc(n + 1);
    auto_buf struct sp_buf out = {0};
    struct sp_err e = {0};

    (void)state;
    assert_non_null(line);
    memset(line, 'x', n);
    const struct sp_patch_change items[] = {
        {.kind = SP_PATCH_UPDATE,
         .full_path = "/site/x",
         .before = {line, n},
         .after = {line, n - 1}},
    };
    const struct sp_patch_changes c = {items, 1, NULL};
    assert_int_equal(sp_patch_add_report(&out, &c, &e), -SP_E_LIMIT);
    assert_non_null(strstr(e.msg, "is larger than 16 MiB"));
}

/* Of many files that go, those beyond the bound are not shown, and the patch is one all the same.
 */
static void test_deleted_files_give_way(void **state)
{
    enum { FILES = 12 };
    const size_t n = 1 << 20;
    struct sp_patch_change items[FILES] = {0};
    auto_free char *text = malloc(n);
    auto_buf struct sp_buf out = {0};
    auto_buf struct sp_buf patch = {0};
    struct sp_patch_changes heard = {0};
    struct sp_err e = {0};
    uint32_t shown = 0;

    (void)state;
    assert_non_null(text);
    memset(text, 'x', n);
    assert_true(sp_buf_printf(&patch, BEGIN));
    for (uint32_t i = 0; i < FILES; i++) {
        items[i] = (struct sp_patch_change){
            .kind = SP_PATCH_DELETE, .full_path = "/site/x", .before = {text, n}};
        assert_true(sp_buf_printf(&patch, "*** Delete File: x%u\n", i));
    }
    assert_true(sp_buf_add(&patch, END, sizeof END));
    const struct sp_patch_changes c = {items, FILES, NULL};
    assert_int_equal(sp_patch_add_report(&out, &c, &e), 0);
    assert_true(out.len < SP_PATCH_REPORT_BYTES);
    assert_int_equal(hear(patch.data, (struct sp_str){out.data, out.len}, &heard), 0);
    for (uint32_t i = 0; i < FILES; i++)
        shown += heard.items[i].before.p != NULL;
    assert_int_equal(shown, 7);
    sp_patch_changes_done(&heard);
}

/* ---- what was approved ---- */

/* The digests that go before a patch, of what was told now. */
static struct sp_buf approve(const char *patch)
{
    auto_buf struct sp_buf report = report_of(patch);
    struct sp_patch_changes c = {0};
    struct sp_buf out = {0};

    assert_int_equal(hear(patch, (struct sp_str){report.data, report.len}, &c), 0);
    assert_true(sp_patch_add_approved(&out, &c, sp_str_of(patch)));
    sp_patch_changes_done(&c);
    return out;
}

/* Whether the files are still what they were then. */
static bool is_approved(const struct sp_buf *approved, struct sp_err *e)
{
    struct sp_str digests;
    struct sp_str text;
    struct sp_patch_changes c;

    assert_int_equal(
        sp_patch_find_approved((struct sp_str){approved->data, approved->len}, &digests, &text, e),
        0);
    auto_buf struct sp_buf patch = {0};
    assert_true(sp_buf_add_str(&patch, text) && sp_buf_add(&patch, "", 1));
    c = verified(patch.data, false);
    const bool is = sp_patch_check_approved(&c, digests, e) == 0;
    sp_patch_changes_done(&c);
    return is;
}

static void test_what_was_approved_is_what_is_there(void **state)
{
    struct sp_err e = {0};

    (void)state;
    put_all();
    auto_buf struct sp_buf approved = approve(HUNKS);
    assert_true(is_approved(&approved, &e));
    put("old", "a\nz\nmore\n");
    assert_false(is_approved(&approved, &e));
    assert_non_null(strstr(e.msg, "/old has changed since the patch was verified"));
    put_all();
    assert_true(is_approved(&approved, &e));
    put("gone", "other\n");
    assert_false(is_approved(&approved, &e));
    assert_non_null(strstr(e.msg, "/gone has changed since the patch was verified"));
}

static void test_another_patch_is_not_approved(void **state)
{
    static const char one[] = BEGIN "*** Add File: new\n+text\n" END;
    static const char two[] = BEGIN "*** Add File: new\n+other\n" END;
    static const char both[] = BEGIN "*** Add File: new\n+text\n*** Add File: b\n+b\n" END;
    const char *const others[] = {two, both};
    struct sp_err e = {0};

    (void)state;
    auto_buf struct sp_buf approved = approve(one);
    for (size_t i = 0; i < 2; i++) {
        auto_buf struct sp_buf forged = {0};

        assert_true(sp_buf_add(&forged, approved.data, approved.len - (sizeof one - 1)) &&
                    sp_buf_add_str(&forged, sp_str_of(others[i])));
        assert_false(is_approved(&forged, &e));
    }
}

static void test_digests_that_are_none(void **state)
{
    static const char *const bad[] = {"", BEGIN END, "sallyport-patch 1 1\n",
                                      "sallyport-patch 1 1\n" DIGEST,
                                      "sallyport-patch 1 4294967295\n" DIGEST "\n"};
    struct sp_str digests;
    struct sp_str patch;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct sp_err e = {0};

        assert_int_equal(sp_patch_find_approved(sp_str_of(bad[i]), &digests, &patch, &e),
                         -SP_E_INVALID);
    }
}

static void test_without_memory(void **state)
{
    (void)state;
    put_all();
    auto_buf struct sp_buf report = report_of(HUNKS);
    struct sp_patch_changes c = verified(HUNKS, false);
    struct sp_patch p = {0};

    assert_int_equal(sp_patch_parse(SP_STR(HUNKS), &p, NULL), 0);
    for (long n = 1;; n++) {
        auto_buf struct sp_buf out = {0};
        struct sp_patch_changes heard = {0};

        end_memory_at(n);
        int r = sp_patch_add_report(&out, &c, NULL);
        if (r == 0)
            r = sp_patch_list(&p, patch_base, &heard, NULL);
        if (r == 0)
            r = sp_patch_read_report((struct sp_str){report.data, report.len}, &heard, NULL);
        const bool has_ended = did_memory_end();
        sp_patch_changes_done(&heard);
        assert_int_equal(r < 0, has_ended);
        if (!has_ended)
            break;
    }
    sp_patch_done(&p);
    sp_patch_changes_done(&c);
}

static const struct CMUnitTest tests[] = {
    patch_test(test_what_is_told_is_heard),
    patch_test(test_every_prefix_is_refused),
    patch_test(test_every_byte_may_be_another),
    patch_test(test_what_is_refused),
    patch_test(test_a_diff_that_is_too_large),
    patch_test(test_deleted_files_give_way),
    patch_test(test_what_was_approved_is_what_is_there),
    patch_test(test_another_patch_is_not_approved),
    patch_test(test_digests_that_are_none),
    patch_test(test_without_memory),
};

TEST_MAIN(tests)
