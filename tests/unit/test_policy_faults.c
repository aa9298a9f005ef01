/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fail the first allocation, then the second ... until none fails: every reader and writer says so,
 * and leaves what it was given as it was. That nothing leaks on the way, the sanitizer sees.
 */
#include "memory_fixture.h"
#include "policy_fixture.h"

/* The C library's own calls of malloc are not counted: so these are. */
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t n);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t n);

char *__wrap_strdup(const char *text)
{
    return memory_ends() ? NULL : __real_strdup(text);
}

char *__wrap_strndup(const char *text, size_t n)
{
    return memory_ends() ? NULL : __real_strndup(text, n);
}

/* A step reads `text`, and writes what it read, with one allocation that fails. */
typedef int step_fn(struct sp_json *j, struct sp_buf *out, struct sp_err *e);

static void survives(step_fn *step, const char *text, int least)
{
    for (int n = 1;; n++) {
        struct doc d = parse(text);
        struct sp_buf out = {0};
        struct sp_err e = {0};

        end_memory_at(n);
        const int r = step(&d.j, &out, &e);
        const bool has_failed = did_memory_end();
        assert_int_equal(r, has_failed ? -SP_E_SYSTEM : 0);
        assert_true((out.len == 0) == has_failed);
        sp_buf_done(&out);
        done(&d);
        if (!has_failed) {
            assert_true(n > least); /* the calls were in fact counted */
            return;
        }
        assert_string_not_equal(e.msg, "");
    }
}

static int policy_step(struct sp_json *j, struct sp_buf *out, struct sp_err *e)
{
    struct sp_policy p = {0};
    int r = sp_policy_read(j, 0, "/work", "/tmp", &p, e);

    if (r == 0)
        r = sp_profile_write(out, &p.profile, SP_PATH_URI, e);
    else
        assert_true(p.cwd == NULL && p.roots == NULL && p.profile.entries == NULL);
    sp_policy_done(&p);
    return r;
}

static int profile_step(struct sp_json *j, struct sp_buf *out, struct sp_err *e)
{
    struct sp_profile p = {0};
    int r = sp_profile_read(j, 0, &p, e);

    if (r == 0)
        r = sp_profile_write(out, &p, SP_PATH_NATIVE, e);
    else
        assert_null(p.entries);
    sp_profile_done(&p);
    return r;
}

static int legacy_step(struct sp_json *j, struct sp_buf *out, struct sp_err *e)
{
    struct sp_legacy l = {0};
    struct sp_profile p = {0};
    int r = sp_legacy_read(j, 0, &l, e);

    if (r < 0)
        assert_null(l.roots);
    else if ((r = sp_profile_from_legacy(&l, &p, e)) == 0)
        r = sp_profile_write(out, &p, SP_PATH_NATIVE, e);
    sp_profile_done(&p);
    sp_legacy_done(&l);
    return r;
}

static int grant_step(struct sp_json *j, struct sp_buf *out, struct sp_err *e)
{
    struct sp_grant g = {0};
    int r = sp_grant_read(j, 0, &g, e);

    if (r == 0)
        r = sp_grant_write(out, &g, e);
    else
        assert_null(g.extra.entries);
    sp_grant_done(&g);
    return r;
}

static void test_a_request_survives_every_fault(void **state)
{
    (void)state;
    survives(policy_step,
             "{\"permissions\":" RESTRICTED(ENTRY(LITERAL("file:///a"), "read") "," ENTRY(
                 GLOB("**/x"),
                 "deny")) ",\"workspaceRoots\":[\"file:///r\",\"file:///s\"],\"cwd\":\"file:///c\","
                          "\"userHomeDir\":\"file:///h\",\"temporaryDirectories\":[\"file:///t\"],"
                          "\"windowsSandboxLevel\":\"disabled\"}",
             20);
    survives(policy_step,
             "{\"permissions\":{\"type\":\"disabled\"},\"windowsSandboxLevel\":\"disabled\"}", 2);
}

static void test_files_survive_every_fault(void **state)
{
    static const char mode[] =
        "{\"type\":\"workspace-write\",\"writable_roots\":[\"/a\",\"/b\"],\"network_access\":true}";
    static const char lists[] = "{\"file_system\":{\"read\":[\"/a\"],\"write\":[\"/b\"]}}";

    (void)state;
    survives(profile_step, RESTRICTED(ENTRY(LITERAL("/a"), "read")), 4);
    survives(profile_step, lists, 4);
    survives(profile_step, mode, 8);
    survives(legacy_step, mode, 4);
    survives(grant_step, lists, 4);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_a_request_survives_every_fault),
    cmocka_unit_test(test_files_survive_every_fault),
};

TEST_MAIN(tests)
