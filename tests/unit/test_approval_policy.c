/* SPDX-License-Identifier: Apache-2.0 */
#include "approve/judge.h"
#include "memory_fixture.h"
#include "test.h"

#define THREE "\"sandbox_approval\":true,\"rules\":false,\"mcp_elicitations\":true"

static int read(const char *text, struct sp_approval_policy *ret, struct sp_err *e)
{
    char *copy = test_copy(sp_str_of(text));
    const int r = sp_approval_read((struct sp_str){copy, strlen(text)}, ret, e);

    free(copy);
    return r;
}

static void test_names(void **state)
{
    static const struct {
        const char *wire, *text;
        enum sp_approval_kind kind;
    } rows[] = {
        {"untrusted", "UnlessTrusted", SP_APPROVAL_UNTRUSTED},
        {"on-failure", "OnFailure", SP_APPROVAL_ON_FAILURE},
        {"on-request", "OnRequest", SP_APPROVAL_ON_REQUEST},
        {"never", "Never", SP_APPROVAL_NEVER},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sp_approval_policy p;
        struct sp_err e = {0};
        auto_buf struct sp_buf name = {0};

        assert_int_equal(read(rows[i].wire, &p, &e), 0);
        assert_int_equal(p.kind, rows[i].kind);
        assert_true(sp_approval_add_name(&name, &p) && sp_buf_add(&name, "", 1));
        assert_string_equal(name.data, rows[i].text);
    }
}

static void test_granular(void **state)
{
    struct sp_approval_policy p;
    struct sp_err e = {0};
    auto_buf struct sp_buf name = {0};

    (void)state;
    assert_int_equal(read("{\"granular\":{" THREE "}}", &p, &e), 0);
    assert_int_equal(p.kind, SP_APPROVAL_GRANULAR);
    assert_true(p.sandbox_approval && !p.rules && p.mcp_elicitations);
    assert_false(p.skill_approval || p.request_permissions);
    assert_int_equal(read("{\"granular\":{" THREE ",\"skill_approval\":true,"
                          "\"request_permissions\":true}}",
                          &p, &e),
                     0);
    assert_true(p.skill_approval && p.request_permissions);
    assert_true(sp_approval_add_name(&name, &p) && sp_buf_add(&name, "", 1));
    assert_string_equal(name.data,
                        "Granular(GranularApprovalConfig { sandbox_approval: true, rules: false, "
                        "skill_approval: true, request_permissions: true, "
                        "mcp_elicitations: true })");
}

static void test_what_is_no_policy(void **state)
{
    static const char *const rows[][2] = {
        {"", "unknown approval policy ``, expected untrusted, on-failure, on-request, never, or an "
             "object {\"granular\":{...}}"},
        {"Never", NULL},
        {"never ", NULL},
        {"granular", NULL},
        {"\"never\"", NULL},
        {"{", NULL},
        {"{}", "approval policy: missing field `granular`"},
        {"{\"granular\":1}", NULL},
        {"{\"granular\":{}}", "approval policy: missing field `sandbox_approval`"},
        {"{\"granular\":{\"sandbox_approval\":true,\"rules\":true}}",
         "approval policy: missing field `mcp_elicitations`"},
        {"{\"granular\":{" THREE ",\"skill_approval\":1}}", NULL},
        {"{\"granular\":{" THREE ",\"skil_approval\":true}}",
         "approval policy: unknown field `skil_approval`"},
        {"{\"granular\":{" THREE "},\"never\":true}", "approval policy: unknown field `never`"},
        {"{\"granular\":{" THREE "}}x", NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sp_approval_policy p;
        struct sp_err e = {0};

        assert_int_equal(read(rows[i][0], &p, &e), -SP_E_INVALID);
        if (rows[i][1] != NULL)
            assert_string_equal(e.msg, rows[i][1]);
    }
}

static void test_memory_that_ends_is_told(void **state)
{
    (void)state;
    for (long n = 1;; n++) {
        struct sp_approval_policy p;
        struct sp_err e = {0};

        end_memory_at(n);
        const int r = sp_approval_read(SP_STR("{\"granular\":{" THREE "}}"), &p, &e);
        if (!did_memory_end()) {
            assert_int_equal(r, 0);
            assert_true(n > 1);
            return;
        }
        assert_int_equal(r, -SP_E_SYSTEM);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_names),
    cmocka_unit_test(test_granular),
    cmocka_unit_test(test_what_is_no_policy),
    cmocka_unit_test(test_memory_that_ends_is_told),
};
TEST_MAIN(tests)
