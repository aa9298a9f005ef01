/* SPDX-License-Identifier: Apache-2.0 */
/* What a person at a terminal reads. The source is included: verbs are no library. */
#include "cli/approver_tty.c" /* NOLINT: see above */
#include "test.h"

/* No terminal is used here. */
bool sp_terminal_is_ours(int fd)
{
    return fd >= 0;
}

bool sp_plain_has_color(int fd)
{
    return fd < 0;
}

#define KEYS_NO                           \
    "  n                  no\n"           \
    "  q                  no, and stop\n" \
    "  ?                  explain these answers\n"

static void expect(const struct sp_approval_question *q, const char *want)
{
    auto_buf struct sp_buf text = {0};
    auto_buf struct sp_buf rest = {0};

    const struct offer all = {q, .is_all_shown = true};
    assert_true(sp_question_add_text(&text, q, &rest, false) &&
                add_answers(&text, &all, false, false) && sp_buf_add(&text, "", 1));
    assert_string_equal(text.data, want);
    assert_int_equal(rest.len, 0);
}

static void test_a_permission_request_shows_all_that_is_asked(void **state)
{
    struct sp_grant asked = {.extra.has_network = true};
    const struct sp_approval_question q = {
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
               "  y                  yes, for this turn\n"
               "  a                  yes, until this session ends\n" KEYS_NO);
    assert_false(sp_question_shows_rule(&q));
    sp_grant_done(&asked);
}

static void test_places_that_are_words_are_shown_as_well(void **state)
{
    struct sp_grant asked = {0};
    const struct sp_approval_question q = {.kind = SP_QUESTION_PERMISSIONS, .additional = &asked};

    (void)state;
    assert_int_equal(sp_profile_add(&asked.extra, SP_PLACE_ROOT, SP_ACCESS_WRITE, false,
                                    (struct sp_str){0}, (struct sp_str){0}, NULL),
                     0);
    expect(&q, "\nsallyport: may commands do this from now on?\n"
               "  + write      / (everything)\n"
               "  y                  yes, for this turn\n"
               "  a                  yes, until this session ends\n" KEYS_NO);
    sp_grant_done(&asked);
}

static const struct sp_str touch[] = {SP_STR("touch"), SP_STR("x")};

#define KEYS_WITH_RULE                                                                 \
    "  y                  yes, this once, in its sandbox\n"                            \
    "  a                  yes, and the same command unasked until this session ends\n" \
    "  always and Enter   yes, and keep the rule\n" KEYS_NO

static struct sp_approval_question about_touch(enum sp_question_kind kind)
{
    return (struct sp_approval_question){.kind = kind,
                                         .command = SP_STR("touch x"),
                                         .argv = {touch, 2},
                                         .amendment = {touch, 2},
                                         .cwd = SP_STR("/site")};
}

/* The rule says more than the question above it: so it is said what it says. */
static void test_what_comes_of_a_rule(void **state)
{
    struct sp_policy profile = {.profile.kind = SP_PROFILE_MANAGED};
    struct sp_approval_question q = about_touch(SP_QUESTION_RUN);

    (void)state;
    q.profile = &profile;
    q.profile_name = ":workspace";
    expect(
        &q,
        "\nsallyport: may this run?\n"
        "  command:     touch x\n"
        "  in:          /site\n"
        "  allowed:     what the sandbox :workspace allows\n"
        "  rule:        the command above\n"
        "  if kept:     what begins with it runs unasked and WITHOUT A SANDBOX\n" KEYS_WITH_RULE);
    assert_int_equal(sp_profile_add(&profile.profile, SP_PLACE_PATH, SP_ACCESS_DENY, false,
                                    SP_STR("/site/secret"), (struct sp_str){0}, NULL),
                     0);
    expect(&q, "\nsallyport: may this run?\n"
               "  command:     touch x\n"
               "  in:          /site\n"
               "  allowed:     what the sandbox :workspace allows\n"
               "  rule:        the command above\n"
               "  if kept:     what begins with it runs unasked\n" KEYS_WITH_RULE);
    sp_policy_done(&profile);
}

/* A command may print that it was denied something: only the sandbox knows. */
static void test_who_says_that_something_was_denied(void **state)
{
    struct sp_approval_question q = about_touch(SP_QUESTION_RETRY);
    auto_buf struct sp_buf known = {0};
    auto_buf struct sp_buf guessed = {0};
    auto_buf struct sp_buf rest = {0};

    (void)state;
    q.is_free = true;
    assert_true(sp_question_add_text(&known, &q, &rest, false) && sp_buf_add(&known, "", 1));
    q.is_guess = true;
    assert_true(sp_question_add_text(&guessed, &q, &rest, false) && sp_buf_add(&guessed, "", 1));
    assert_non_null(strstr(known.data, "the sandbox got in the way of this. Once more"));
    assert_non_null(strstr(guessed.data, "this says that its sandbox got in the way. Once more"));
}

/* Escape codes are ours alone, and only where they are asked for. */
static void test_what_is_bold(void **state)
{
    struct sp_approval_question q = about_touch(SP_QUESTION_RUN);
    const struct offer all = {&q, .is_all_shown = true};
    auto_buf struct sp_buf text = {0};
    auto_buf struct sp_buf rest = {0};

    (void)state;
    q.command = SP_STR("touch \x1b[1mx");
    assert_true(sp_question_add_text(&text, &q, &rest, true) &&
                add_answers(&text, &all, false, true) && sp_buf_add(&text, "", 1));
    assert_non_null(strstr(text.data, "sallyport: \x1b[1mmay this run?\x1b[22m\n"));
    assert_non_null(strstr(text.data, "touch \\x1b[1mx\n"));
    assert_non_null(strstr(text.data, "allowed:     \x1b[1meverything: no sandbox\x1b[22m\n"));
    assert_non_null(strstr(text.data, "  \x1b[1myes\x1b[22m and Enter      yes, this once, "
                                      "\x1b[1mWITHOUT A SANDBOX\x1b[22m\n"));
}

/* What runs without a sandbox, or is kept, is no single key. */
static void test_what_a_key_and_a_word_stand_for(void **state)
{
    struct sp_policy profile = {.profile.kind = SP_PROFILE_MANAGED};
    struct sp_approval_question q = about_touch(SP_QUESTION_RUN);
    const struct offer all = {&q, .is_all_shown = true};
    const struct offer once = {&q, .is_all_shown = true, .is_once = true};

    (void)state;
    q.profile = &profile;
    assert_int_equal(answer_of(&all, SP_STR("y")), SP_DECISION_APPROVED);
    assert_int_equal(answer_of(&all, SP_STR("a")), SP_DECISION_APPROVED_FOR_SESSION);
    assert_int_equal(answer_of(&once, SP_STR("y")), SP_DECISION_APPROVED);
    assert_int_equal(answer_of(&once, SP_STR("a")), SP_DECISION_MAX);
    assert_int_equal(answer_of(&all, SP_STR("p")), SP_DECISION_MAX);
    assert_int_equal(answer_of(&all, SP_STR("always")), SP_DECISION_AMENDMENT);
    q.is_free = true;
    assert_int_equal(answer_of(&all, SP_STR("y")), SP_DECISION_MAX);
    assert_int_equal(answer_of(&all, SP_STR("a")), SP_DECISION_MAX);
    assert_int_equal(answer_of(&all, SP_STR("n")), SP_DECISION_DENIED);
    assert_int_equal(answer_of(&all, SP_STR("y")), SP_DECISION_MAX);
    assert_int_equal(answer_of(&all, SP_STR("yes")), SP_DECISION_APPROVED);
    assert_int_equal(answer_of(&all, SP_STR("session")), SP_DECISION_APPROVED_FOR_SESSION);
    assert_int_equal(answer_of(&once, SP_STR("session")), SP_DECISION_MAX);
    assert_false(may_become_word(&once, SP_STR("s")));
}

/* Nothing is allowed for longer, or without a sandbox, by a person who has not seen all of it. */
static void test_what_was_not_shown(void **state)
{
    static const char *const free_words[] = {"yes", "session", "always"};
    struct sp_policy profile = {.profile.kind = SP_PROFILE_MANAGED};
    struct sp_approval_question q = about_touch(SP_QUESTION_RUN);
    auto_buf struct sp_buf text = {0};
    auto_buf struct sp_buf rest = {0};
    const struct offer unseen = {.question = &q};
    char command[10000];

    (void)state;
    memset(command, 'a', sizeof command);
    memcpy(command + 5000, "; rm -r x", 9);
    q.command = (struct sp_str){command, sizeof command};
    q.profile = &profile;
    assert_true(sp_question_add_text(&text, &q, &rest, false) &&
                add_answers(&text, &unseen, true, false) && add_choices(&text, &unseen) &&
                sp_buf_add(&text, "", 1) && sp_buf_add(&rest, "", 1));
    assert_non_null(strstr(text.data, "a\nNOT SHOWN: 5904 bytes\na"));
    assert_non_null(
        strstr(text.data,
               "NOT ALL IS SHOWN: show more; yes for more than this once can be said after that"));
    assert_null(strstr(text.data, "session"));
    assert_null(strstr(text.data, "always"));
    assert_null(strstr(text.data, "rm -r x"));
    assert_non_null(strstr(rest.data, "command: the 5904 bytes that were not shown:\na"));
    assert_non_null(strstr(rest.data, "; rm -r x"));
    assert_int_equal(answer_of(&unseen, SP_STR("y")), SP_DECISION_APPROVED);
    assert_int_equal(answer_of(&unseen, SP_STR("a")), SP_DECISION_MAX);
    q.is_free = true;
    assert_int_equal(answer_of(&unseen, SP_STR("y")), SP_DECISION_MAX);
    for (size_t i = 0; i < sizeof free_words / sizeof free_words[0]; i++)
        assert_int_equal(answer_of(&unseen, sp_str_of(free_words[i])), SP_DECISION_MAX);
    assert_int_equal(answer_of(&unseen, SP_STR("n")), SP_DECISION_DENIED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_permission_request_shows_all_that_is_asked),
        cmocka_unit_test(test_places_that_are_words_are_shown_as_well),
        cmocka_unit_test(test_what_comes_of_a_rule),
        cmocka_unit_test(test_who_says_that_something_was_denied),
        cmocka_unit_test(test_what_is_bold),
        cmocka_unit_test(test_what_a_key_and_a_word_stand_for),
        cmocka_unit_test(test_what_was_not_shown),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("question_text", tests, NULL, NULL);
}
