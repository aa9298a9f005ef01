/* SPDX-License-Identifier: Apache-2.0 */
/* A question as a form, and what its answer means. */
#include <stdio.h>

#include "base/auto.h"
#include "base/utf8.h"
#include "mcp/elicit.h"
#include "memory_fixture.h"
#include "test.h"

#define MESSAGE_MAX 8192

/* The form, read back. */
struct form {
    struct sp_buf text;
    struct sp_json json;
    char message[2 * MESSAGE_MAX];
    size_t message_len;
};

static void done_form(struct form *f)
{
    sp_json_done(&f->json);
    sp_buf_done(&f->text);
}

static uint32_t need(struct sp_json *j, uint32_t object, const char *name)
{
    const uint32_t token = sp_json_get(j, object, name);

    if (token == SP_JSON_NONE)
        fail_msg("there is no `%s`", name);
    return token;
}

static void make_form(struct form *f, const struct sp_approval_question *q, bool with_mode)
{
    struct sp_err e = {0};

    *f = (struct form){0};
    assert_true(sp_mcp_elicit_add(&f->text, q, with_mode) && sp_buf_add(&f->text, "", 1));
    assert_null(memchr(f->text.data, '\n', f->text.len));
    if (sp_json_parse(&f->json, f->text.data, f->text.len - 1, &e) < 0)
        fail_msg("%s", e.msg);
    const struct sp_str message = sp_json_str(&f->json, need(&f->json, 0, "message"));
    assert_true(message.n <= MESSAGE_MAX);
    assert_true(sp_utf8_is_valid(message));
    memcpy(f->message, message.p, message.n);
    f->message_len = message.n;
}

static void expect_message(const struct sp_approval_question *q, const char *want)
{
    struct form f;

    make_form(&f, q, true);
    assert_string_equal(f.message, want);
    done_form(&f);
}

/* The constants of its choices, each with a blank behind it. */
static void expect_choices(const struct sp_approval_question *q, const char *want)
{
    struct form f;
    char found[128] = "";

    make_form(&f, q, true);
    struct sp_json *j = &f.json;
    const uint32_t schema = need(j, 0, "requestedSchema");
    const uint32_t decision = need(j, need(j, schema, "properties"), "decision");
    const uint32_t list = need(j, decision, "oneOf");
    for (uint32_t i = sp_json_first(j, list); i != SP_JSON_NONE; i = sp_json_next(j, list, i)) {
        const struct sp_str name = sp_json_str(j, need(j, i, "const"));

        assert_true(sp_json_str(j, need(j, i, "title")).n != 0);
        (void)strncat(found, name.p, name.n);
        (void)strcat(found, " ");
    }
    assert_string_equal(found, want);
    done_form(&f);
}

static bool is_too_quick;

static bool read_answer(const char *text, const struct sp_approval_question *q,
                        struct sp_decision *ret)
{
    char *copy = strdup(text);
    struct sp_json j = {0};

    assert_non_null(copy);
    assert_int_equal(sp_json_parse(&j, copy, strlen(copy), NULL), 0);
    const bool is_answer = sp_mcp_elicit_read(&j, 0, q, is_too_quick, ret);
    sp_json_done(&j);
    free(copy);
    return is_answer;
}

#define ACCEPT(word) "{\"action\":\"accept\",\"content\":{\"decision\":\"" word "\"}}"

static const struct sp_str publish[] = {SP_STR("npm"), SP_STR("publish")};
static struct sp_policy confined = {.profile.kind = SP_PROFILE_MANAGED};

static struct sp_approval_question about(enum sp_question_kind kind)
{
    return (struct sp_approval_question){.id = 1,
                                         .kind = kind,
                                         .command = SP_STR("npm publish"),
                                         .argv = {publish, 2},
                                         .cwd = SP_STR("/site/w"),
                                         .profile = &confined};
}

/* ---- the form ---- */

static void test_the_form_has_one_field_with_the_choices_that_are_offered(void **state)
{
    struct sp_approval_question q = about(SP_QUESTION_RUN);
    auto_buf struct sp_buf text = {0};

    (void)state;
    q.amendment = (struct sp_words){publish, 2};
    q.is_free = true;
    assert_true(sp_mcp_elicit_add(&text, &q, true) && sp_buf_add(&text, "", 1));
    assert_string_equal(
        text.data,
        "{\"mode\":\"form\",\"message\":\"Run this WITHOUT A SANDBOX?\\ncommand: npm publish\\nin: "
        "/site/w\\nrule: npm publish\\nwith the "
        "rule: this, and all that begins with it, runs unasked and WITHOUT A SANDBOX\","
        "\"requestedSchema\":{\"type\":\"object\",\"properties\":{\"decision\":{\"type\":"
        "\"string\",\"title\":\"Decision\",\"oneOf\":["
        "{\"const\":\"once\",\"title\":\"Allow once, WITHOUT A SANDBOX\"},"
        "{\"const\":\"session\",\"title\":\"Allow for this session, WITHOUT A SANDBOX\"},"
        "{\"const\":\"rule\",\"title\":\"Always, unasked, WITHOUT A SANDBOX: npm publish\"},"
        "{\"const\":\"deny\",\"title\":\"Deny\"}]}},\"required\":[\"decision\"]}}");
}

static void test_older_hosts_get_titles_beside_the_choices(void **state)
{
    const struct sp_approval_question q = about(SP_QUESTION_RUN);
    auto_buf struct sp_buf text = {0};

    (void)state;
    assert_true(sp_mcp_elicit_add(&text, &q, false) && sp_buf_add(&text, "", 1));
    assert_null(strstr(text.data, "mode"));
    assert_non_null(strstr(text.data,
                           "\"enum\":[\"once\",\"session\",\"deny\"],\"enumNames\":[\"Allow "
                           "once\",\"Allow for this session\",\"Deny\"]}}"));
}

static void test_what_is_offered_is_what_may_be_answered(void **state)
{
    struct sp_approval_question q = about(SP_QUESTION_RUN);

    (void)state;
    expect_choices(&q, "once session deny ");
    q.amendment = (struct sp_words){publish, 2};
    expect_choices(&q, "once session rule deny ");
    q.kind = SP_QUESTION_ESCALATE;
    expect_choices(&q, "once session rule deny ");
    q.kind = SP_QUESTION_RETRY;
    expect_choices(&q, "once session rule deny ");
    q.kind = SP_QUESTION_ADDITIONAL;
    expect_choices(&q, "once session deny ");
    q.kind = SP_QUESTION_PATCH;
    expect_choices(&q, "once session deny ");
    q.kind = SP_QUESTION_PERMISSIONS;
    expect_choices(&q, "session deny ");
    q.turn_id = SP_STR("turn");
    expect_choices(&q, "once session deny ");
    q.kind = SP_QUESTION_NETWORK;
    expect_choices(&q, "once session deny ");
    q.host = SP_STR("example.org");
    expect_choices(&q, "once session rule deny ");
}

/* ---- the message ---- */

static void test_what_yes_would_mean(void **state)
{
    struct sp_approval_question q = about(SP_QUESTION_RUN);

    (void)state;
    q.reason = SP_STR("`npm publish` requires approval");
    q.environment = SP_STR("local");
    q.profile_name = ":workspace";
    expect_message(&q, "Run this in the sandbox :workspace?\ncommand: npm publish\nreason: `npm "
                       "publish` requires approval\nin: /site/w\nenvironment: local");
    q = about(SP_QUESTION_ESCALATE);
    q.is_free = true;
    expect_message(&q, "Run this WITHOUT A SANDBOX?\ncommand: npm publish\nin: /site/w");
    q.kind = SP_QUESTION_RETRY;
    expect_message(&q, "The sandbox denied it something. Run it again WITHOUT A "
                       "SANDBOX?\ncommand: npm publish\nin: /site/w");
    q.is_guess = true;
    expect_message(&q, "It says that the sandbox denied it something. Run it again WITHOUT A "
                       "SANDBOX?\ncommand: npm publish\nin: /site/w");
    q = about(SP_QUESTION_RUN);
    q.profile = NULL;
    expect_message(&q, "Run this WITHOUT A SANDBOX?\ncommand: npm publish\nin: /site/w");
}

static void add_place(struct sp_grant *g, enum sp_access access, const char *path)
{
    assert_int_equal(sp_profile_add(&g->extra, SP_PLACE_PATH, access, false, sp_str_of(path),
                                    (struct sp_str){0}, NULL),
                     0);
}

static void test_every_place_of_a_permission_is_named_or_counted(void **state)
{
    struct sp_grant asked = {.extra.has_network = true};
    struct sp_approval_question q = about(SP_QUESTION_ADDITIONAL);
    struct form f;

    (void)state;
    add_place(&asked, SP_ACCESS_READ, "/site/r\xe2\x80\xae");
    add_place(&asked, SP_ACCESS_WRITE, "/site/w");
    q.additional = &asked;
    expect_message(&q, "Run this with more than its sandbox allows?\ncommand: npm "
                       "publish\nalso allowed: all of the network\nalso allowed to read: "
                       "/site/r\\u{202e}\nalso allowed to write: /site/w\nin: /site/w");
    q.kind = SP_QUESTION_PERMISSIONS;
    q.turn_id = SP_STR("turn");
    expect_message(&q, "Let commands do this from now on?\nalso allowed: all of the "
                       "network\nalso allowed to read: /site/r\\u{202e}\nalso allowed to write: "
                       "/site/w\nin: /site/w");
    for (int i = 0; i < 200; i++) {
        char path[64];

        (void)snprintf(path, sizeof path, "/site/directory-number-%d", i);
        add_place(&asked, SP_ACCESS_WRITE, path);
    }
    make_form(&f, &q, true);
    assert_non_null(strstr(f.message, "also allowed: all of the network\n"));
    assert_non_null(strstr(f.message, "\nNOT SHOWN: "));
    done_form(&f);
    sp_grant_done(&asked);
}

static void test_a_host_and_who_wants_to_reach_it(void **state)
{
    const struct sp_str argv[] = {SP_STR("network-access"), SP_STR("https://example.org:443")};
    struct sp_approval_question q = about(SP_QUESTION_NETWORK);

    (void)state;
    q.argv = (struct sp_words){argv, 2};
    q.asking_command = SP_STR("curl x");
    q.host = SP_STR("example.org");
    q.shown_host = SP_STR("example.org, port 443, by https");
    expect_message(&q, "Let a command reach this host?\nhost: example.org, port 443, by https\n"
                       "command: curl x\nin: /site/w\nrule: allow example.org");
}

static void test_a_patch_shows_its_files_first(void **state)
{
    const struct sp_patch_change items[] = {
        {.kind = SP_PATCH_UPDATE,
         .full_path = "/site/a\x1b",
         .full_target = "/site/b",
         .before = SP_STR("one\n"),
         .after = SP_STR("two\n")},
        {.kind = SP_PATCH_ADD, .full_path = "/site/new", .after = SP_STR("x\n")},
        {.kind = SP_PATCH_DELETE, .full_path = "/site/old", .before = SP_STR("y\n")},
    };
    const struct sp_patch_changes changes = {.items = items, .count = 3};
    struct sp_approval_question q = about(SP_QUESTION_PATCH);
    struct form f;

    (void)state;
    q.changes = &changes;
    make_form(&f, &q, true);
    assert_int_equal(strncmp(f.message,
                             "Change these files?\nupdate: /site/a\\x1b\n  and move it to: "
                             "/site/b\nadd: /site/new\ndelete: /site/old\n",
                             95),
                     0);
    assert_non_null(strstr(f.message, "\n-one\n+two\n"));
    assert_null(strstr(f.message, "npm"));
    done_form(&f);
}

static void test_a_patch_of_many_files_says_how_many_are_not_shown(void **state)
{
    static struct sp_patch_change items[500];
    static char paths[500][64];
    const struct sp_patch_changes changes = {.items = items, .count = 500};
    struct sp_approval_question q = about(SP_QUESTION_PATCH);
    struct form f;

    (void)state;
    for (int i = 0; i < 500; i++) {
        (void)snprintf(paths[i], sizeof paths[i], "/site/file-number-%d", i);
        items[i] = (struct sp_patch_change){
            .kind = SP_PATCH_ADD, .full_path = paths[i], .after = SP_STR("some text\n")};
    }
    q.changes = &changes;
    make_form(&f, &q, true);
    assert_non_null(strstr(f.message, "\nadd: /site/file-number-0\n"));
    assert_non_null(strstr(f.message, " more files\n"));
    assert_non_null(strstr(f.message, "\nNOT SHOWN: "));
    done_form(&f);
    expect_choices(&q, "once deny ");
    q.is_free = true;
    expect_choices(&q, "deny ");
}

static void test_nothing_in_a_command_plays_with_its_reader(void **state)
{
    struct sp_approval_question q = about(SP_QUESTION_RUN);
    struct form f;

    (void)state;
    q.command = SP_STR("ls \x1b[2J\xe2\x80\xae"
                       "evil\xe2\x80\x8b\r\nallowed then: nothing\xff\x00z");
    make_form(&f, &q, true);
    assert_non_null(strstr(f.message, "\ncommand: ls \\x1b[2J\\u{202e}evil\\u{200b}\\r\\nallowed "
                                      "then: nothing\\xff\\x00z\nin: /site/w"));
    done_form(&f);
}

static void test_no_part_pushes_another_out(void **state)
{
    static char hostile[65536];
    struct sp_approval_question q = about(SP_QUESTION_RUN);
    struct sp_decision d = {0};
    struct form f;

    (void)state;
    memset(hostile, 1, sizeof hostile); /* each is four bytes when it is shown */
    memcpy(hostile, "first", 5);
    memcpy(hostile + sizeof hostile - 4, "last", 4);
    q.command = q.cwd = q.reason = q.environment = (struct sp_str){hostile, sizeof hostile};
    q.is_free = true;
    make_form(&f, &q, true);
    assert_int_equal(strncmp(f.message, "Run this WITHOUT A SANDBOX?\ncommand: first\\x01", 45), 0);
    assert_non_null(strstr(f.message, " [continued below]\nreason: first"));
    assert_non_null(strstr(f.message, "\nwhole command: first\\x01"));
    assert_non_null(strstr(f.message, "\\x01\nNOT SHOWN: "));
    assert_non_null(strstr(f.message, " bytes\n\\x01"));
    assert_non_null(strstr(f.message, "\\x01last\nNot all is shown, so it can not be allowed"));
    done_form(&f);
    expect_choices(&q, "deny "); /* whatever an answer says */
    assert_false(read_answer(ACCEPT("once"), &q, &d));
    q.is_free = false;
    expect_choices(&q, "once deny ");
    assert_true(read_answer(ACCEPT("once"), &q, &d));
    assert_false(read_answer(ACCEPT("session"), &q, &d));
}

/* ---- the rule ---- */

static void test_a_rule_is_shown_as_a_whole_or_not_offered(void **state)
{
    static char word[2000];
    const struct sp_str words[] = {{word, sizeof word}};
    struct sp_approval_question q = about(SP_QUESTION_RUN);

    (void)state;
    memset(word, 'x', sizeof word);
    q.amendment = (struct sp_words){words, 1};
    expect_choices(&q, "once session deny ");
}

/* ---- answers ---- */

static void expect_kind(const char *text, const struct sp_approval_question *q,
                        enum sp_decision_kind kind)
{
    struct sp_decision d = {.kind = SP_DECISION_MAX};

    if (!read_answer(text, q, &d))
        fail_msg("%s is no answer", text);
    assert_int_equal(d.kind, kind);
    assert_null(d.permissions);
}

static void test_each_answer_means_one_decision(void **state)
{
    struct sp_approval_question q = about(SP_QUESTION_RUN);
    struct sp_decision d = {0};

    (void)state;
    q.amendment = (struct sp_words){publish, 2};
    expect_kind(ACCEPT("once"), &q, SP_DECISION_APPROVED);
    expect_kind(ACCEPT("session"), &q, SP_DECISION_APPROVED_FOR_SESSION);
    expect_kind(ACCEPT("deny"), &q, SP_DECISION_DENIED);
    expect_kind("{\"action\":\"decline\"}", &q, SP_DECISION_DENIED);
    expect_kind("{\"action\":\"decline\",\"content\":{\"decision\":\"once\"}}", &q,
                SP_DECISION_DENIED);
    expect_kind("{\"action\":\"cancel\"}", &q, SP_DECISION_FAILED);
    is_too_quick = true; /* no person was there, unless the form itself was answered */
    expect_kind("{\"action\":\"decline\"}", &q, SP_DECISION_FAILED);
    expect_kind("{\"action\":\"accept\",\"content\":{\"decision\":\"deny\"}}", &q,
                SP_DECISION_DENIED);
    is_too_quick = false;
    assert_true(read_answer(ACCEPT("rule"), &q, &d));
    assert_int_equal(d.kind, SP_DECISION_AMENDMENT);
    assert_ptr_equal(d.amendment.items, publish);
    assert_int_equal(d.amendment.count, 2);
    q.kind = SP_QUESTION_NETWORK;
    q.host = SP_STR("example.org");
    assert_true(read_answer(ACCEPT("rule"), &q, &d));
    assert_int_equal(d.kind, SP_DECISION_NETWORK_AMENDMENT);
    assert_true(d.allows_host && sp_str_eq(d.host, q.host));
}

static void test_what_was_not_offered_is_no_answer(void **state)
{
    struct sp_approval_question q = about(SP_QUESTION_RUN);
    struct sp_decision d;

    (void)state;
    assert_false(read_answer(ACCEPT("rule"), &q, &d));
    q.amendment = (struct sp_words){publish, 2};
    q.kind = SP_QUESTION_ADDITIONAL;
    assert_false(read_answer(ACCEPT("rule"), &q, &d));
    q.kind = SP_QUESTION_PERMISSIONS;
    assert_false(read_answer(ACCEPT("once"), &q, &d));
    assert_true(read_answer(ACCEPT("session"), &q, &d));
}

static void test_nonsense_is_no_answer(void **state)
{
    static const char *const texts[] = {
        "null",
        "true",
        "[]",
        "{}",
        "\"accept\"",
        "17",
        "{\"action\":null}",
        "{\"action\":[\"accept\"]}",
        "{\"action\":\"Accept\",\"content\":{\"decision\":\"once\"}}",
        "{\"action\":\"accept\"}",
        "{\"action\":\"accept\",\"content\":null}",
        "{\"action\":\"accept\",\"content\":\"once\"}",
        "{\"action\":\"accept\",\"content\":[\"once\"]}",
        "{\"action\":\"accept\",\"content\":{}}",
        "{\"action\":\"accept\",\"content\":{\"decision\":true}}",
        "{\"action\":\"accept\",\"content\":{\"decision\":{\"const\":\"once\"}}}",
        "{\"action\":\"accept\",\"content\":{\"decision\":[\"once\"]}}",
        "{\"action\":\"accept\",\"content\":{\"decision\":\"\"}}",
        "{\"action\":\"accept\",\"content\":{\"decision\":\"once \"}}",
        "{\"action\":\"accept\",\"content\":{\"decision\":\"once\\u0000\"}}",
        "{\"action\":\"accept\",\"content\":{\"Decision\":\"once\"}}",
        "{\"action\":\"accept\",\"decision\":\"once\"}",
        "{\"content\":{\"decision\":\"once\"}}",
    };
    struct sp_approval_question q = about(SP_QUESTION_RUN);
    struct sp_decision d;
    struct sp_json j = {0};

    (void)state;
    q.amendment = (struct sp_words){publish, 2};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (read_answer(texts[i], &q, &d))
            fail_msg("%s is an answer", texts[i]);
    assert_false(sp_mcp_elicit_read(&j, SP_JSON_NONE, &q, false, &d));
}

/* ---- memory ---- */

static void test_without_memory_nothing_is_said(void **state)
{
    struct sp_approval_question q = about(SP_QUESTION_RUN);
    bool has_ended = true;

    (void)state;
    q.amendment = (struct sp_words){publish, 2};
    for (long n = 1; has_ended; n++) {
        struct sp_buf out = {0};

        end_memory_at(n);
        const bool ok = sp_mcp_elicit_add(&out, &q, true);
        has_ended = did_memory_end();
        if (!ok)
            assert_int_equal(out.len, 0);
        else if (!has_ended)
            assert_true(n > 5);
        sp_buf_done(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_form_has_one_field_with_the_choices_that_are_offered),
        cmocka_unit_test(test_older_hosts_get_titles_beside_the_choices),
        cmocka_unit_test(test_what_is_offered_is_what_may_be_answered),
        cmocka_unit_test(test_what_yes_would_mean),
        cmocka_unit_test(test_every_place_of_a_permission_is_named_or_counted),
        cmocka_unit_test(test_a_host_and_who_wants_to_reach_it),
        cmocka_unit_test(test_a_patch_shows_its_files_first),
        cmocka_unit_test(test_a_patch_of_many_files_says_how_many_are_not_shown),
        cmocka_unit_test(test_nothing_in_a_command_plays_with_its_reader),
        cmocka_unit_test(test_no_part_pushes_another_out),
        cmocka_unit_test(test_a_rule_is_shown_as_a_whole_or_not_offered),
        cmocka_unit_test(test_each_answer_means_one_decision),
        cmocka_unit_test(test_what_was_not_offered_is_no_answer),
        cmocka_unit_test(test_nonsense_is_no_answer),
        cmocka_unit_test(test_without_memory_nothing_is_said),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
