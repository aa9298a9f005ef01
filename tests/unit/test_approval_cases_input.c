/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands that somebody made to be misread: enormous, deep, torn, with bytes that play tricks on
 * readers. They are judged to the byte, in bounded time, and what cannot be read is never allowed.
 */
#include <time.h>

#include "judge_fixture.h"

#define ALLOW_PRINTF "prefix_rule([\"printf\"])\nprefix_rule([\"true\"])\n"

struct big {
    struct sp_buf text;
};

static void add(struct big *b, const char *text, size_t times)
{
    const size_t n = strlen(text);

    for (size_t i = 0; i < times; i++)
        assert_true(sp_buf_add(&b->text, text, n));
}

static double seconds(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

struct verdict {
    enum judge_want kind;
    uint32_t segments;
    bool is_whole_offered;
};

static struct verdict judge(const struct sp_str *argv, uint32_t count, enum sp_approval_kind policy,
                            const char *rules_text)
{
    const struct judge_row row = {0, .rules = rules_text};
    struct sp_rules *rules = judge_rules_of(&row);
    struct sp_policy profile;
    struct sp_requirement q;
    struct sp_err e = {0};

    judge_profile_of(RO, &profile);
    const struct sp_judge_request ask = {.argv = {argv, count},
                                         .rules = rules,
                                         .policy = {.kind = policy},
                                         .profile = &profile,
                                         .shell = "/bin/bash"};
    const double begin = seconds();
    if (sp_judge(&ask, &q, &e) < 0)
        fail_msg("%s", e.msg);
    assert_true(seconds() - begin < 20);
    const struct verdict v = {judge_kind_of(&q), q.segments.count,
                              sp_words_equal(q.amendment, ask.argv)};
    sp_requirement_done(&q);
    sp_rules_unref(rules);
    sp_policy_done(&profile);
    return v;
}

static struct verdict judge_script(struct sp_str script, enum sp_approval_kind policy,
                                   const char *rules_text)
{
    char *copy = test_copy(script); /* a byte too many is seen */
    const struct sp_str argv[] = {SP_STR("/bin/bash"), SP_STR("-lc"), {copy, script.n}};
    const struct verdict v = judge(argv, 3, policy, rules_text);

    free(copy);
    return v;
}

static struct verdict judge_big(const struct big *b, enum sp_approval_kind policy,
                                const char *rules_text)
{
    return judge_script((struct sp_str){b->text.data, b->text.len}, policy, rules_text);
}

/* ---- enormous ---- */

static void test_words_of_128_kib(void **state)
{
    struct big b = {0};

    (void)state;
    add(&b, "x", 128 << 10);
    const struct sp_str words[] = {SP_STR("printf"), {b.text.data, b.text.len}};
    const struct sp_str program[] = {{b.text.data, b.text.len}, SP_STR("-f")};
    assert_int_equal(judge(words, 2, SP_APPROVAL_UNTRUSTED, ALLOW_PRINTF).kind, FREE);
    const struct verdict v = judge(program, 2, SP_APPROVAL_UNTRUSTED, ALLOW_PRINTF);
    assert_int_equal(v.kind, ASK);
    assert_true(v.is_whole_offered);
    const struct sp_str rm[] = {SP_STR("rm"), {b.text.data, b.text.len}, SP_STR("-f")};
    assert_int_equal(judge(rm, 3, SP_APPROVAL_NEVER, NULL).kind, REJ);
    sp_buf_done(&b.text);
}

/* As much as a program can be given: the one command that matters is at its end. */
static void test_scripts_as_large_as_they_run(void **state)
{
    const uint32_t commands = (128 << 10) / 6;
    struct big b = {0};

    (void)state;
    add(&b, "true; ", commands);
    const struct verdict v = judge_big(&b, SP_APPROVAL_UNTRUSTED, ALLOW_PRINTF);
    assert_int_equal(v.kind, FREE);
    assert_int_equal(v.segments, commands);
    add(&b, "curl x", 1);
    assert_int_equal(judge_big(&b, SP_APPROVAL_UNTRUSTED, ALLOW_PRINTF).kind, ASK);
    add(&b, "; rm -rf x", 1);
    assert_int_equal(judge_big(&b, SP_APPROVAL_NEVER, ALLOW_PRINTF).kind, REJ);
    add(&b, " > o", 1); /* not plain now: nothing in it is allowed, and the danger is seen */
    assert_int_equal(judge_big(&b, SP_APPROVAL_NEVER, ALLOW_PRINTF).kind, REJ);
    assert_int_equal(judge_big(&b, SP_APPROVAL_ON_REQUEST, ALLOW_PRINTF).kind, ASK);
    sp_buf_done(&b.text);
    add(&b, "printf '", 1);
    add(&b, "; rm -rf x\n", (128 << 10) / 11);
    add(&b, "'", 1);
    assert_int_equal(judge_big(&b, SP_APPROVAL_NEVER, ALLOW_PRINTF).kind, FREE); /* one word */
    b.text.len--; /* and without its end: no command at all */
    assert_int_equal(judge_big(&b, SP_APPROVAL_UNTRUSTED, ALLOW_PRINTF).kind, ASK);
    sp_buf_done(&b.text);
}

/* More than can run is not read at all: whatever the rules say, it is asked about, or refused. */
static void test_scripts_of_2_mib(void **state)
{
    static const char *const lines[] = {"true; ", "printf x\n", "(", "'x' ", "x", "# \n", "$x"};
    struct big b = {0};

    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        add(&b, lines[i], (2 << 20) / strlen(lines[i]));
        const struct verdict v = judge_big(&b, SP_APPROVAL_ON_REQUEST, ALLOW_PRINTF);
        assert_int_equal(v.kind, ASK);
        assert_int_equal(v.segments, 1);
        assert_true(v.is_whole_offered);
        assert_int_equal(judge_big(&b, SP_APPROVAL_NEVER, ALLOW_PRINTF).kind, REJ);
        sp_buf_done(&b.text);
    }
}

/* ---- deep ---- */

static void test_scripts_10000_deep(void **state)
{
    static const char *const open[] = {
        "$(",      "echo $(", "`",           "(",  "{ ",     "\"$(",
        "if ",     "while ",  "for x in $(", "<(", "f() { ", "case x in x) ",
        "$((",     "${x:-$(", "! ",          "$[", "[[ ",    "<<E\n",
        "sh -c '", "eval \"", "env ",
    };
    struct big b = {0};

    (void)state;
    for (size_t i = 0; i < sizeof open / sizeof *open; i++) {
        add(&b, open[i], 10000);
        /* whatever it is: not free, and not known to be safe */
        enum judge_want kind = judge_big(&b, SP_APPROVAL_UNTRUSTED, ALLOW_PRINTF).kind;
        if (kind != ASK)
            fail_msg("%s 10000 deep: %d", open[i], kind);
        add(&b, "rm -rf x", 1);
        kind = judge_big(&b, SP_APPROVAL_UNTRUSTED, ALLOW_PRINTF).kind;
        if (kind != ASK)
            fail_msg("%s 10000 deep, and an rm: %d", open[i], kind);
        sp_buf_done(&b.text);
    }
}

/* Too deep to be looked at is dangerous. */
static void test_what_is_too_deep_is_refused_when_nobody_may_be_asked(void **state)
{
    static const char *const open[] = {"$(", "echo $(", "(", "{ ", "\"$(", "if ", "while "};
    struct big b = {0};

    (void)state;
    for (size_t i = 0; i < sizeof open / sizeof *open; i++) {
        add(&b, open[i], 10000);
        add(&b, "rm -rf x", 1);
        if (judge_big(&b, SP_APPROVAL_NEVER, ALLOW_PRINTF).kind != REJ)
            fail_msg("%s 10000 deep may run", open[i]);
        sp_buf_done(&b.text);
    }
}

/* What might be arithmetic or commands is read one way and then another: it takes no more room. */
static void test_text_that_is_read_more_than_once(void **state)
{
    static const char *const fronts[] = {
        "$((\") )", "$(($') )", "$((${) )",     "$((\") )$((${) )$(($') )",
        "$((`) )",  "((",       "$(( <<E\n) )",
    };
    static const char *const lines[] = {"x", "x ", "x;", "(", "((", "x\n", "$((\") )", "$((`) )"};
    struct big b = {0};

    (void)state;
    for (size_t i = 0; i < sizeof fronts / sizeof *fronts; i++)
        for (size_t k = 0; k < sizeof lines / sizeof *lines; k++) {
            add(&b, fronts[i], 1);
            add(&b, lines[k], 30000);
            assert_int_equal(judge_big(&b, SP_APPROVAL_UNTRUSTED, ALLOW_PRINTF).kind, ASK);
            sp_buf_done(&b.text);
        }
}

/* ---- torn ---- */

/* What a quote that has no end leaves behind is no word, and the command is nothing known. */
static void test_quotes_without_an_end(void **state)
{
    static const char *const scripts[] = {
        "printf 'x",
        "printf \"x",
        "printf 'x' \"",
        "printf x\\",
        "printf x \\",
        "printf $'x",
        "printf `x",
        "printf ${x",
        "printf $(x",
        "printf 'x' && 'y",
        "printf x; \"",
        "'",
        "\"",
        "\\",
        "printf <<E\nx",
        "printf <<'E\nE",
        "printf x &&",
        "printf x |",
        "&& printf x",
        "printf x ; ; printf x",
        "printf (",
        "printf )",
        "printf x & ",
        "printf x\n|| x",
    };

    (void)state;
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        const struct verdict v =
            judge_script(sp_str_of(scripts[i]), SP_APPROVAL_UNTRUSTED, ALLOW_PRINTF);

        if (v.kind != ASK || !v.is_whole_offered)
            fail_msg("`%s` is judged %d", scripts[i], v.kind);
    }
    /* what stands before them would run */
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        char script[128];

        (void)snprintf(script, sizeof script, "rm -rf x\n%s", scripts[i]);
        if (judge_script(sp_str_of(script), SP_APPROVAL_NEVER, ALLOW_PRINTF).kind != REJ)
            fail_msg("`%s` may run", script);
    }
}

/* ---- bytes that play tricks ---- */

/* They are bytes of words like others: nothing that looks alike is taken for what it looks like. */
static void test_bytes_that_look_like_others(void **state)
{
    static const struct sp_str programs[] = {
        SP_STR("printf\0"),           SP_STR("printf\0x"),     SP_STR("\xe2\x80\xaeprintf"),
        SP_STR("printf\xe2\x80\x8b"), SP_STR("printf\x1b[2J"), SP_STR("printf\r"),
        SP_STR("printf\n"),           SP_STR("printf\xff"),    SP_STR("\xef\xbb\xbfprintf"),
        SP_STR("pr\xc4\xb1ntf"),      SP_STR("PRINTF"),        SP_STR(" printf"),
        SP_STR("printf\xc2\xa0"),     SP_STR("\xd0\xa0rintf"), SP_STR("printf\x7f"),
        SP_STR("prin\xc2\xadtf"),
    };

    (void)state;
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        const struct sp_str argv[] = {programs[i], SP_STR("x")};

        if (judge(argv, 2, SP_APPROVAL_UNTRUSTED, ALLOW_PRINTF).kind != ASK)
            fail_msg("name %zu is taken for another", i);
    }
}

static void test_bytes_that_look_like_others_in_scripts(void **state)
{
    static const struct {
        struct sp_str script;
        enum judge_want want;
    } rows[] = {
        {SP_STR("printf x\r\nprintf y\r"), ASK}, /* shells differ on a CR: not plain */
        {SP_STR("printf\r x"), ASK},             /* and here of the name */
        {SP_STR("printf\xc2\xa0x"), ASK},        /* no blank to a shell */
        {SP_STR("printf\xe2\x80\xa8"
                "curl"),
         ASK},                                            /* no newline either */
        {SP_STR("printf '\xe2\x80\xae x' \x1b[2J"), ASK}, /* a bracket is no literal */
        {SP_STR("printf '\xe2\x80\xae\x1b[2J'"), FREE},
        {SP_STR("printf x\0; curl"), ASK},            /* a NUL ends what a shell sees */
        {SP_STR("printf \xff\xfe"), ASK},             /* no text: not plain */
        {SP_STR("printf x \xef\xbc\x9b curl"), FREE}, /* a wide semicolon is a word */
        {SP_STR("printf x\vcurl"), ASK},
        {SP_STR("printf\tx"), FREE},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const enum judge_want kind =
            judge_script(rows[i].script, SP_APPROVAL_UNTRUSTED, ALLOW_PRINTF).kind;

        if (kind != rows[i].want)
            fail_msg("script %zu: %d, not %d", i, kind, rows[i].want);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_words_of_128_kib),
    cmocka_unit_test(test_scripts_as_large_as_they_run),
    cmocka_unit_test(test_scripts_of_2_mib),
    cmocka_unit_test(test_scripts_10000_deep),
    cmocka_unit_test(test_what_is_too_deep_is_refused_when_nobody_may_be_asked),
    cmocka_unit_test(test_text_that_is_read_more_than_once),
    cmocka_unit_test(test_quotes_without_an_end),
    cmocka_unit_test(test_bytes_that_look_like_others),
    cmocka_unit_test(test_bytes_that_look_like_others_in_scripts),
};
TEST_MAIN(tests)
