/* SPDX-License-Identifier: Apache-2.0 */
/* What a person at a terminal reads. The source is included: verbs are no library. */
#include "cli/question_text.c" /* NOLINT: see above */
#include "test.h"

static void expect(const struct sp_question *q, const char *want)
{
    auto_buf struct sp_buf text = {0};

    assert_true(sp_question_text_add(&text, q) && sp_buf_add(&text, "", 1));
    assert_string_equal(text.data, want);
}

static void test_a_permission_request_shows_all_that_is_asked(void **state)
{
    struct sp_grant asked = {.extra.has_network = true};
    const struct sp_question q = {
        .kind = SP_QUESTION_PERMISSIONS,
        .cwd = SP_STR("/site"),
        .environment = SP_STR("local"),
        .reason = SP_STR("a \x1b[2Jcache"),
        .additional = &asked,
    };

    (void)state;
    assert_int_equal(sp_profile_add(&asked.extra, SP_PLACE_PATH, SP_ACCESS_READ, false,
                                    SP_STR("/site/r\xe2\x80\xae"), (struct sp_str){0}, NULL),
                     0);
    assert_int_equal(sp_profile_add(&asked.extra, SP_PLACE_PATH, SP_ACCESS_WRITE, false,
                                    SP_STR("/site/w"), (struct sp_str){0}, NULL),
                     0);
    expect(&q, "\nsallyport: may commands do this from now on?\n"
               "  + read       /site/r\\u{202e}\n"
               "  + write      /site/w\n"
               "  + network    all of it\n"
               "  in:          /site\n"
               "  environment: local\n"
               "  reason:      a \\x1b[2Jcache\n"
               "  y yes for this turn, a yes for this session, n no, q no and stop: ");
    assert_false(sp_question_text_offers_rule(&q));
    sp_grant_done(&asked);
}

static void test_places_that_are_words_are_shown_as_well(void **state)
{
    struct sp_grant asked = {0};
    const struct sp_question q = {.kind = SP_QUESTION_PERMISSIONS, .additional = &asked};

    (void)state;
    assert_int_equal(sp_profile_add(&asked.extra, SP_PLACE_ROOT, SP_ACCESS_WRITE, false,
                                    (struct sp_str){0}, (struct sp_str){0}, NULL),
                     0);
    expect(&q, "\nsallyport: may commands do this from now on?\n"
               "  + write      / (everything)\n"
               "  y yes for this turn, a yes for this session, n no, q no and stop: ");
    sp_grant_done(&asked);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_permission_request_shows_all_that_is_asked),
        cmocka_unit_test(test_places_that_are_words_are_shown_as_well),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("question_text", tests, NULL, NULL);
}
