/* SPDX-License-Identifier: Apache-2.0 */
/* The variables of a command, rule by rule. */
#include "base/env.h"
#include "process_fixture.h"

/* The layers as a start lays them. */
enum { RANK_DEFAULT, RANK_INHERIT, RANK_SET, RANK_ENV, RANK_METADATA };

static bool has_metadata;

static char *const no_own[] = {NULL};

/* The result as one line: pairs with a blank behind each. */
static const char *written(struct sp_env *e, uint32_t *ret_count)
{
    static char line[4096];
    struct sp_buf out = {0};

    assert_true(sp_env_write(e, RANK_METADATA, has_metadata, &out, ret_count));
    assert_true(out.len < sizeof line);
    for (size_t i = 0; i < out.len; i++)
        line[i] = out.data[i] != 0 ? out.data[i] : ' ';
    line[out.len] = 0;
    sp_buf_done(&out);
    return line;
}

static void is_written(struct sp_env *e, const char *want)
{
    uint32_t count = 0;
    uint32_t blanks = 0;

    assert_string_equal(written(e, &count), want);
    for (const char *p = want; *p != 0; p++)
        blanks += *p == ' ';
    assert_int_equal(count, blanks);
    sp_env_done(e);
}

static void inherits(const struct sp_env_policy *p, char *const *own, const char *want)
{
    struct sp_env e = {0};

    assert_true(sp_env_inherit(&e, p, own, RANK_INHERIT));
    is_written(&e, want);
}

#define OWN(...) ((char *const[]){__VA_ARGS__, NULL})
#define S(text)  ((char *)(uintptr_t)(text))

static void test_patterns_match_the_whole_name(void **state)
{
    static const struct {
        const char *pattern, *name;
        bool matches;
    } c[] = {
        {"A", "A", true},          {"A", "a", true},           {"a", "A", true},
        {"A", "AB", false},        {"AB", "A", false},         {"A", "BA", false},
        {"", "", false},           {"", "A", false},           {"*", "", true},
        {"*", "anything", true},   {"**", "", true},           {"***", "x", true},
        {"?", "", false},          {"?", "x", true},           {"?", "xy", false},
        {"??", "xy", true},        {"?*", "", false},          {"?*", "x", true},
        {"*?", "x", true},         {"*?", "", false},          {"*KEY*", "KEY", true},
        {"*KEY*", "MONKEY", true}, {"*KEY*", "monkeys", true}, {"*KEY*", "KEEY", false},
        {"*KEY*", "KE", false},    {"A*", "A", true},          {"A*", "ABC", true},
        {"A*", "BA", false},       {"*A", "BA", true},         {"*A", "AB", false},
        {"A*B", "AB", true},       {"A*B", "AxxB", true},      {"A*B", "AxxBx", false},
        {"A*B*C", "AxBxC", true},  {"A*B*C", "AxCxB", false},  {"*AB", "AAB", true},
        {"*AAB", "AAAAB", true},   {"*A*B*A", "ABABA", true},  {"[A]", "A", false},
        {"[A]", "[a]", true},      {"\\*", "*", false},        {"\\*", "\\x", true},
        {"A.B", "AxB", false},     {"A.B", "a.b", true},       {"*\xC3*", "x\xC3y", true},
        {"\xE4", "\xC4", false},   {"?", "\xFF", true},        {"^A$", "A", false},
        {"A_B", "a_b", true},      {"@", "`", false},          {"[", "{", false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof c / sizeof c[0]; i++)
        if (sp_env_matches(sp_str_of(c[i].pattern), sp_str_of(c[i].name)) != c[i].matches)
            fail_msg("'%s' against '%s'", c[i].pattern, c[i].name);
}

/* All patterns and names over a small alphabet, against the definition. */
static bool matches_by_definition(const char *p, const char *n)
{
    if (*p == 0)
        return *n == 0;
    if (*p == '*')
        return matches_by_definition(p + 1, n) || (*n != 0 && matches_by_definition(p, n + 1));
    return *n != 0 && (*p == '?' || *p == *n) && matches_by_definition(p + 1, n + 1);
}

static void test_patterns_agree_with_their_definition(void **state)
{
    char pattern[6];
    char name[6];

    (void)state;
    for (unsigned p = 1; p < 1024; p++)
        for (unsigned n = 0; n < 243; n++) {
            size_t i = 0;
            size_t k = 0;

            for (unsigned x = p; x != 0; x /= 4)
                pattern[i++] = "*?AB"[x % 4];
            for (unsigned x = n; x != 0; x /= 3)
                name[k++] = "ABC"[x % 3];
            pattern[i] = name[k] = 0;
            if (sp_env_matches(sp_str_of(pattern), sp_str_of(name)) !=
                matches_by_definition(pattern, name))
                fail_msg("'%s' against '%s'", pattern, name);
        }
}

static void test_a_pattern_of_stars_takes_no_exponential_time(void **state)
{
    char pattern[400];
    char name[2000];

    (void)state;
    for (size_t i = 0; i < sizeof pattern; i += 2)
        memcpy(pattern + i, "*a", 2);
    memset(name, 'a', sizeof name);
    name[sizeof name - 1] = 'b';
    const uint64_t before = test_now_ms();
    for (int i = 0; i < 20; i++)
        assert_false(sp_env_matches((struct sp_str){pattern, sizeof pattern},
                                    (struct sp_str){name, sizeof name}));
    assert_true(test_now_ms() - before < 5000);
}

static void test_inherit_all_core_and_none(void **state)
{
    char *const own[] = {
        S("HOME=/h"),   S("Path=/p"), S("EDITOR=vi"), S("LC_ALL=C"),   S("LC_TIME=C"),
        S("LOGNAME=l"), S("lang=de"), S("SHELL=/s"),  S("TEMP=t"),     S("TMP=t"),
        S("TMPDIR=t"),  S("USER=u"),  S("USERS=x"),   S("LC_CTYPE=U"), NULL};

    (void)state;
    inherits(&(struct sp_env_policy){.inherit = SP_ENV_NONE}, own, "");
    inherits(&(struct sp_env_policy){.inherit = SP_ENV_CORE}, own,
             "HOME=/h LC_ALL=C LC_CTYPE=U LOGNAME=l Path=/p SHELL=/s TEMP=t TMP=t TMPDIR=t USER=u "
             "lang=de ");
    inherits(
        &(struct sp_env_policy){.inherit = SP_ENV_ALL}, own,
        "EDITOR=vi HOME=/h LC_ALL=C LC_CTYPE=U LC_TIME=C LOGNAME=l Path=/p SHELL=/s TEMP=t TMP=t "
        "TMPDIR=t USER=u USERS=x lang=de ");
}

static void test_default_excludes_go_unless_ignored(void **state)
{
    char *const own[] = {S("MONKEY=1"), S("my_Secret_x=1"), S("TOKENS=1"),
                         S("KEE=1"),    S("A=1"),           NULL};

    (void)state;
    inherits(&(struct sp_env_policy){.inherit = SP_ENV_ALL}, own, "A=1 KEE=1 ");
    inherits(&(struct sp_env_policy){.inherit = SP_ENV_ALL, .ignores_default_excludes = true}, own,
             "A=1 KEE=1 MONKEY=1 TOKENS=1 my_Secret_x=1 ");
}

/* Steps a, b, c, d: set brings back what a or b dropped, and include_only has the last word. */
static void test_the_steps_of_a_policy_come_in_their_order(void **state)
{
    const struct sp_str exclude[] = {SP_STR("D*"), SP_STR("")};
    const struct sp_str only[] = {SP_STR("A*"), SP_STR("D*"), SP_STR("*KEY")};
    struct sp_env_policy p = {.inherit = SP_ENV_ALL, .exclude = exclude, .exclude_count = 2};
    char *const own[] = {S("A=own"), S("B=own"), S("DROP=own"), S("API_KEY=own"), NULL};
    const struct {
        struct sp_str name, value;
    } set[] = {{SP_STR("DROP"), SP_STR("set")},
               {SP_STR("API_KEY"), SP_STR("set")},
               {SP_STR("C"), SP_STR("set")},
               {SP_STR("A"), SP_STR("set")}};
    struct sp_env e = {0};

    (void)state;
    inherits(&p, own, "A=own B=own ");
    p.include_only = only;
    p.include_only_count = 3;
    inherits(&p, own, "A=own ");
    for (int round = 0; round < 2; round++) {
        p.include_only_count = round == 0 ? 0 : 3;
        assert_true(sp_env_inherit(&e, &p, own, RANK_INHERIT));
        for (size_t i = 0; i < sizeof set / sizeof set[0]; i++)
            if (sp_env_is_included(&p, set[i].name))
                assert_true(sp_env_add(&e, set[i].name, set[i].value, RANK_SET));
        is_written(&e, round == 0 ? "A=set API_KEY=set B=own C=set DROP=set "
                                  : "A=set API_KEY=set DROP=set ");
    }
}

static void test_the_overlay_is_above_the_policy_whatever_came_first(void **state)
{
    struct sp_env e = {0};

    (void)state;
    assert_true(sp_env_add(&e, SP_STR("A"), SP_STR("env"), RANK_ENV));
    assert_true(sp_env_add(&e, SP_STR("A"), SP_STR("set"), RANK_SET));
    assert_true(sp_env_inherit(&e, &(struct sp_env_policy){.inherit = SP_ENV_ALL},
                               OWN(S("A=own"), S("B=own")), RANK_INHERIT));
    assert_true(sp_env_add(&e, SP_STR("SECRET_KEY"), SP_STR("env"), RANK_ENV));
    assert_true(sp_env_add(&e, SP_STR("a"), SP_STR("other"), RANK_ENV)); /* names have a case */
    is_written(&e, "A=env B=own SECRET_KEY=env a=other ");
}

static void test_of_equal_names_in_one_layer_the_last_wins(void **state)
{
    struct sp_env e = {0};

    (void)state;
    for (int i = 0; i < 200; i++)
        assert_true(sp_env_add(&e, SP_STR("A"), i == 199 ? SP_STR("last") : SP_STR("x"), RANK_ENV));
    is_written(&e, "A=last ");
}

static void test_hidden_names_never_pass(void **state)
{
    static const char *const any_case[] = {
        "CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN", "NODE_REPL_AUTH_TOKEN",
        "OPENAI_FEDERATION_RULE_ID",          "OPENAI_IDENTITY_TOKEN_FILE",
        "OPENAI_WORKLOAD_IDENTITY_CONTEXT",   "CODEX_GUARDIAN_DECISIONS_API_KEY"};
    char lower[64];

    (void)state;
    for (size_t i = 0; i < sizeof any_case / sizeof any_case[0]; i++)
        for (int rank = RANK_INHERIT; rank <= RANK_METADATA; rank++) {
            struct sp_env e = {0};
            size_t n = strlen(any_case[i]);

            for (size_t k = 0; k <= n; k++)
                lower[k] = (char)(any_case[i][k] |
                                  (any_case[i][k] >= 'A' && any_case[i][k] <= 'Z' ? 32 : 0));
            assert_true(sp_env_add(&e, sp_str_of(any_case[i]), SP_STR("x"), rank));
            assert_true(sp_env_add(&e, sp_str_of(lower), SP_STR("x"), rank));
            is_written(&e, "");
        }
    struct sp_env e = {0};
    assert_true(
        sp_env_add(&e, SP_STR("CODEX_EXEC_SERVER_EXIT_ON_STDIN_CLOSE"), SP_STR("1"), RANK_ENV));
    assert_true(
        sp_env_add(&e, SP_STR("CODEX_EXEC_SERVER_EXIT_ON_STDIN_CLOS"), SP_STR("1"), RANK_ENV));
    is_written(&e, "CODEX_EXEC_SERVER_EXIT_ON_STDIN_CLOS=1 ");
}

static void test_a_tool_call_id_comes_from_the_metadata_alone(void **state)
{
    struct sp_env e = {0};

    (void)state;
    for (int rank = RANK_INHERIT; rank < RANK_METADATA; rank++) {
        assert_true(sp_env_add(&e, SP_STR("CODEX_TOOL_CALL_ID"), SP_STR("x"), rank));
        is_written(&e, "");
    }
    assert_true(sp_env_add(&e, SP_STR("CODEX_TOOL_CALL_ID"), SP_STR("real"), RANK_METADATA));
    assert_true(sp_env_add(&e, SP_STR("CODEX_TOOL_CALL_ID"), SP_STR("forged"), RANK_ENV));
    assert_true(sp_env_add(&e, SP_STR("codex_tool_call_id"), SP_STR("other"), RANK_ENV));
    is_written(&e, "CODEX_TOOL_CALL_ID=real codex_tool_call_id=other ");
}

static void test_a_thread_id_comes_from_the_metadata_if_there_is_one(void **state)
{
    struct sp_env e = {0};

    (void)state;
    assert_true(sp_env_add(&e, SP_STR("CODEX_THREAD_ID"), SP_STR("own"), RANK_ENV));
    is_written(&e, "CODEX_THREAD_ID=own ");
    has_metadata = true;
    assert_true(sp_env_add(&e, SP_STR("CODEX_THREAD_ID"), SP_STR("own"), RANK_ENV));
    is_written(&e, "");
    assert_true(sp_env_add(&e, SP_STR("CODEX_THREAD_ID"), SP_STR("own"), RANK_ENV));
    assert_true(sp_env_add(&e, SP_STR("CODEX_THREAD_ID"), SP_STR("told"), RANK_METADATA));
    is_written(&e, "CODEX_THREAD_ID=told ");
    has_metadata = false;
}

static void test_bytes_that_are_not_utf8_pass_through(void **state)
{
    (void)state;
    inherits(&(struct sp_env_policy){.inherit = SP_ENV_ALL},
             OWN(S("N\xFFME=v\x80l"), S("OK=\xC3\x28")), "N\xFFME=v\x80l OK=\xC3\x28 ");
}

static void test_odd_names_of_our_own_environment(void **state)
{
    /* Without '=', or empty: no variable. A name may begin with '='. A value may hold more. */
    (void)state;
    inherits(&(struct sp_env_policy){.inherit = SP_ENV_ALL},
             OWN(S("NOTHING"), S(""), S("="), S("=x"), S("=C:=dir"), S("E="), S("V=a=b")),
             "=C:=dir E= V=a=b ");
}

static void test_empty_names_and_names_with_a_sign_are_passed_on(void **state)
{
    struct sp_env e = {0};

    (void)state;
    assert_true(sp_env_add(&e, SP_STR(""), SP_STR("empty"), RANK_ENV));
    assert_true(sp_env_add(&e, SP_STR("A=B"), SP_STR("c"), RANK_ENV));
    is_written(&e, "=empty A=B=c ");
}

static void test_nothing_is_added(void **state)
{
    struct sp_env e = {0};

    (void)state;
    assert_true(
        sp_env_inherit(&e, &(struct sp_env_policy){.inherit = SP_ENV_ALL}, no_own, RANK_INHERIT));
    is_written(&e, "");
}

static void test_the_result_is_sorted_by_bytes(void **state)
{
    (void)state;
    inherits(&(struct sp_env_policy){.inherit = SP_ENV_ALL},
             OWN(S("b=1"), S("B=1"), S("AA=1"), S("A=1"), S("\xC3\xA4=1"), S("_=1"), S("A_=1")),
             "A=1 AA=1 A_=1 B=1 _=1 b=1 \xC3\xA4=1 ");
}

static void test_a_default_yields_to_every_layer(void **state)
{
    struct sp_env e = {0};

    (void)state;
    assert_true(sp_env_add(&e, SP_STR("shell"), SP_STR("x"), RANK_ENV));
    assert_true(sp_env_add(&e, SP_STR("SHELL"), SP_STR("/bin/sh"), RANK_DEFAULT));
    is_written(&e, "SHELL=/bin/sh shell=x ");
    assert_true(sp_env_add(&e, SP_STR("SHELL"), SP_STR(""), RANK_INHERIT));
    assert_true(sp_env_add(&e, SP_STR("SHELL"), SP_STR("/bin/sh"), RANK_DEFAULT));
    is_written(&e, "SHELL= ");
    sp_env_done(&e); /* is_written has done so already */
}

static void test_a_hundred_thousand_entries_are_settled_quickly(void **state)
{
    const unsigned count = 100000;
    char *names = malloc((size_t)count * 16);
    struct sp_buf out = {0};
    struct sp_env e = {0};
    uint64_t seed = 5;
    uint32_t written_count = 0;

    (void)state;
    assert_non_null(names);
    const uint64_t before = test_now_ms();
    for (unsigned i = 0; i < count; i++) {
        char *name = names + (size_t)i * 16;

        (void)snprintf(name, 16, "V%07u", test_random(&seed) % (count / 2));
        assert_true(sp_env_add(&e, sp_str_of(name), SP_STR("x"), (int)(i % 4)));
    }
    assert_true(sp_env_write(&e, RANK_METADATA, false, &out, &written_count));
    assert_true(test_now_ms() - before < 5000);
    assert_true(written_count > count / 4 && written_count <= count / 2);
    assert_int_equal(out.len, (size_t)written_count * 11);
    for (uint32_t i = 1; i < written_count; i++)
        assert_true(memcmp(out.data + (size_t)(i - 1) * 11, out.data + (size_t)i * 11, 8) < 0);
    sp_buf_done(&out);
    sp_env_done(&e);
    free(names);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_patterns_match_the_whole_name),
    cmocka_unit_test(test_patterns_agree_with_their_definition),
    cmocka_unit_test(test_a_pattern_of_stars_takes_no_exponential_time),
    cmocka_unit_test(test_inherit_all_core_and_none),
    cmocka_unit_test(test_default_excludes_go_unless_ignored),
    cmocka_unit_test(test_the_steps_of_a_policy_come_in_their_order),
    cmocka_unit_test(test_the_overlay_is_above_the_policy_whatever_came_first),
    cmocka_unit_test(test_of_equal_names_in_one_layer_the_last_wins),
    cmocka_unit_test(test_hidden_names_never_pass),
    cmocka_unit_test(test_a_tool_call_id_comes_from_the_metadata_alone),
    cmocka_unit_test(test_a_thread_id_comes_from_the_metadata_if_there_is_one),
    cmocka_unit_test(test_bytes_that_are_not_utf8_pass_through),
    cmocka_unit_test(test_odd_names_of_our_own_environment),
    cmocka_unit_test(test_empty_names_and_names_with_a_sign_are_passed_on),
    cmocka_unit_test(test_nothing_is_added),
    cmocka_unit_test(test_the_result_is_sorted_by_bytes),
    cmocka_unit_test(test_a_default_yields_to_every_layer),
    cmocka_unit_test(test_a_hundred_thousand_entries_are_settled_quickly),
};

TEST_MAIN(tests)
