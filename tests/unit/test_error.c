/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "base/error.h"
#include "test.h"

static void test_a_failure_is_its_code_and_its_story(void **state)
{
    struct sp_err e = {0};

    (void)state;
    assert_int_equal(sp_fail(&e, SP_E_SYSTEM, ENOENT, "open %s", "x"), -SP_E_SYSTEM);
    assert_int_equal(e.code, SP_E_SYSTEM);
    assert_int_equal(e.sys, ENOENT);
    assert_string_equal(e.msg, "open x");
}

static void test_nobody_need_listen(void **state)
{
    (void)state;
    assert_int_equal(sp_fail(NULL, SP_E_LIMIT, 0, "x"), -SP_E_LIMIT);
    assert_true(sp_wrap(NULL, "x") < 0);
}

static void test_context_goes_in_front(void **state)
{
    struct sp_err e = {0};

    (void)state;
    (void)sp_fail(&e, SP_E_INVALID, 7, "open terminal");
    assert_int_equal(sp_wrap(&e, "start %s", "p7"), -SP_E_INVALID);
    assert_string_equal(e.msg, "start p7: open terminal");
    assert_int_equal(e.sys, 7);
}

static void test_a_story_of_every_length_is_cut_between_characters(void **state)
{
    static const char *const letters[] = {"x", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"};

    (void)state;
    for (size_t k = 0; k < 4; k++) {
        const size_t len = strlen(letters[k]);
        char text[900];

        for (size_t before = 0; before < 4; before++) {
            struct sp_err e = {0};

            memset(text, 'a', before);
            for (size_t i = before; i + len < sizeof text; i += len)
                memcpy(text + i, letters[k], len + 1);
            (void)sp_fail(&e, SP_E_INVALID, 0, "%s", text);
            const size_t room = sizeof e.msg - 1;
            assert_int_equal(strlen(e.msg), before + (room - before) / len * len);
            assert_memory_equal(e.msg, text, strlen(e.msg));

            (void)sp_wrap(&e, "w");
            assert_int_equal((strlen(e.msg) - before - 3) % len, 0);
            assert_true(strlen(e.msg) > room - len);
        }
    }
}

static void test_context_longer_than_the_room_is_cut_too(void **state)
{
    struct sp_err e = {0};
    char text[900];

    (void)state;
    for (size_t i = 0; i + 3 < sizeof text; i += 3)
        memcpy(text + i, "\xE2\x82\xAC", 4);
    (void)sp_fail(&e, SP_E_INVALID, 0, "story");
    assert_int_equal(sp_wrap(&e, "%s", text), -SP_E_INVALID);
    assert_int_equal(strlen(e.msg) % 3, 0);
    assert_memory_equal(e.msg, text, strlen(e.msg));
}

static void test_every_code_has_its_number_on_the_wire(void **state)
{
    (void)state;
    assert_int_equal(sp_code_wire(SP_E_MALFORMED), -32600);
    assert_int_equal(sp_code_wire(SP_E_STATE), -32600);
    assert_int_equal(sp_code_wire(SP_E_NO_METHOD), -32601);
    assert_int_equal(sp_code_wire(SP_E_INVALID), -32602);
    assert_int_equal(sp_code_wire(SP_E_NOT_FOUND), -32004);
    assert_int_equal(sp_code_wire(SP_E_ATTACHED), -32010);
    for (int code = 1; code < SP_E_MAX; code++)
        assert_true(sp_code_wire((enum sp_code)code) <= -32000);
    assert_int_equal(sp_code_wire((enum sp_code)SP_E_MAX), -32603);
}

static void test_people_are_told_the_cause(void **state)
{
    struct sp_err e = {0};
    char text[100];
    char tiny[8];

    (void)state;
    (void)sp_fail(&e, SP_E_SYSTEM, ENOENT, "open x");
    assert_string_equal(sp_error_text(&e, text, sizeof text), "open x: No such file or directory");
    assert_string_equal(sp_error_text(&e, tiny, sizeof tiny), "open x:");
    (void)sp_fail(&e, SP_E_INVALID, 0, "no");
    assert_string_equal(sp_error_text(&e, text, sizeof text), "no");
}

/* The kernel has numbers that the C library does not know: ENOTSUPP is 524. */
static void test_every_errno_has_a_text(void **state)
{
    (void)state;
    assert_string_equal(sp_errno_text(ENOENT), "No such file or directory");
    for (int err = -1; err < 1000; err++)
        assert_true(sp_errno_text(err) != NULL && sp_errno_text(err)[0] != 0);
    assert_string_equal(sp_errno_text(524), "Unknown error");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_a_failure_is_its_code_and_its_story),
    cmocka_unit_test(test_nobody_need_listen),
    cmocka_unit_test(test_context_goes_in_front),
    cmocka_unit_test(test_a_story_of_every_length_is_cut_between_characters),
    cmocka_unit_test(test_context_longer_than_the_room_is_cut_too),
    cmocka_unit_test(test_every_code_has_its_number_on_the_wire),
    cmocka_unit_test(test_people_are_told_the_cause),
    cmocka_unit_test(test_every_errno_has_a_text),
};

TEST_MAIN(tests)
