/* SPDX-License-Identifier: Apache-2.0 */
/* What rules say of commands; that the peer says the same, test_rules_peer.py asks it. */
#include "base/auto.h"
#include "memory_fixture.h"
#include "rules_fixture.h"

/* ---- matching ---- */

static void test_a_rule_matches_a_prefix(void **state)
{
    (void)state;
    says("prefix_rule(['git', 'status'])", "git status", "allow git status");
    says("prefix_rule(['git', 'status'])", "git status -s x", "allow git status");
    says("prefix_rule(['git', 'status'])", "git", "");
    says("prefix_rule(['git', 'status'])", "git statu", "");
    says("prefix_rule(['git', 'status'])", "git statuss", "");
    says("prefix_rule(['git', 'status'])", "git x status", "");
    says("prefix_rule(['git', 'status'])", "", "");
    says("", "git status", "");
}

static void test_alternatives_stand_for_any_of_them(void **state)
{
    struct sp_rules *r = rules_of("prefix_rule([['npm', 'pnpm'], ['i', 'install']])");

    (void)state;
    assert_int_equal(count_rules(r), 2);
    assert_said(r, "npm i", "allow npm i");
    assert_said(r, "pnpm install x", "allow pnpm install");
    assert_said(r, "yarn i", "");
    assert_said(r, "npm", "");
    assert_said(r, "npm x", "");
    sp_rules_unref(r);
    says("prefix_rule([['a', 'a'], 'b'])", "a b", "allow a b, allow a b");
}

static void test_all_that_match_are_told_in_their_order(void **state)
{
    (void)state;
    says("prefix_rule(['git', 'status'], 'prompt')\n"
         "prefix_rule(['ls'])\n"
         "prefix_rule(['git'])\n"
         "prefix_rule(['git', 'push'], 'forbidden')\n"
         "prefix_rule(['git', 'status', '-s'], 'forbidden')\n",
         "git status -s", "prompt git status, allow git, forbidden git status -s");
}

static void test_words_are_bytes(void **state)
{
    static const struct sp_str odd[] = {{"a\0b", 3}, {"", 0}};
    struct sp_rules *r = rules_of("prefix_rule(['a\\0b', ''])\nprefix_rule(['a'])");

    (void)state;
    assert_string_equal(said_by(r, (struct sp_words){odd, 1}), "");
    struct sp_rule_matches m = {0};
    assert_true(sp_rules_match(r, (struct sp_words){odd, 2}, true, &m));
    assert_int_equal(m.count, 1);
    assert_int_equal(m.items[0].prefix.items[0].n, 3);
    sp_rule_matches_done(&m);
    sp_rules_unref(r);
}

static void test_matches_of_many_segments_add_up_and_outlive_the_rules(void **state)
{
    struct sp_rules *r = rules_of("prefix_rule(['a'], justification='why')\nprefix_rule(['b'])");
    struct sp_rule_matches m = {0};

    (void)state;
    assert_true(sp_rules_match(r, words("a x"), true, &m));
    assert_true(sp_rules_match(r, words("c"), true, &m));
    assert_true(sp_rules_match(r, words("/bin/b"), true, &m));
    sp_rules_unref(r);
    assert_int_equal(m.count, 2);
    assert_true(sp_str_eq(m.items[0].justification, SP_STR("why")));
    assert_null(m.items[0].resolved_program.p);
    assert_null(m.items[1].justification.p);
    assert_true(sp_str_eq(m.items[1].resolved_program, SP_STR("/bin/b")));
    sp_rule_matches_done(&m);
}

/* ---- paths that stand for names ---- */

static void test_a_path_stands_for_its_base_name(void **state)
{
    (void)state;
    says("prefix_rule(['git'])", "/opt/bin/git status", "allow git (/opt/bin/git)");
    says("prefix_rule(['git'])", "//usr//bin/./git", "allow git (/usr/bin/git)");
    says("prefix_rule(['git'])", "bin/git", "");
    says("prefix_rule(['git'])", "./git", "");
    says("prefix_rule(['git'])", "/bin/gitx", "");
    says("prefix_rule(['/'])", "/", "allow /");
    says("prefix_rule([''])", "/", "");
    struct sp_rules *r = rules_of("prefix_rule(['git'])");
    struct sp_rule_matches m = {0};
    assert_true(sp_rules_match(r, words("/usr/bin/git"), false, &m));
    assert_int_equal(m.count, 0);
    sp_rule_matches_done(&m);
    sp_rules_unref(r);
}

static void test_an_exact_rule_comes_before_the_base_name(void **state)
{
    (void)state;
    says("prefix_rule(['/usr/bin/git', 'status'])\nprefix_rule(['git'], 'prompt')",
         "/usr/bin/git status", "allow /usr/bin/git status");
    says("prefix_rule(['/usr/bin/git', 'status'])\nprefix_rule(['git'], 'prompt')",
         "/usr/bin/git log", "prompt git (/usr/bin/git)");
}

static void test_host_executables_say_which_paths_do(void **state)
{
    const char *rules = "host_executable('git', ['/usr/bin/git', '/a/../opt//git'])\n"
                        "prefix_rule(['git'])\n";

    (void)state;
    says(rules, "/usr/bin/git x", "allow git (/usr/bin/git)");
    says(rules, "/opt/git x", "allow git (/opt/git)");
    says(rules, "/opt/bin/git x", "");
    says(rules, "git x", "allow git");
    says("host_executable('git', [])\nprefix_rule(['git'])", "/usr/bin/git", "");
    says("prefix_rule(['git'])\nhost_executable('git', [])\nhost_executable('git', ['/b/git'])",
         "/b/git", "allow git (/b/git)");
    says("host_executable('ls', [])\nprefix_rule(['git'])", "/x/git", "allow git (/x/git)");
}

/* Links may lead elsewhere than `..` says: such a path is never free, but is forbidden all the
 * same. */
static void test_a_path_that_climbs_allows_nothing(void **state)
{
    const char *rules = "host_executable('git', ['/usr/bin/git'])\n"
                        "prefix_rule(['git'])\n"
                        "prefix_rule(['git', 'push'], 'forbidden')\n";

    (void)state;
    says(rules, "/tmp/link/../../usr/bin/git status", "");
    says(rules, "/tmp/link/../../usr/bin/git push", "forbidden git push (/usr/bin/git)");
    says(rules, "/../usr/bin/git push", "forbidden git push (/usr/bin/git)");
    says("prefix_rule(['/a/../git'])", "/a/../git", "allow /a/../git");
    refuses("prefix_rule(['git'], match=['/a/../b/git'])",
            "x.rules:1:1: expected every example to match at least one rule. rules: "
            "[prefix_rule([\"git\"])]; unmatched examples: [\"/a/../b/git\"]");
}

/* ---- prefixes ---- */

static void test_a_prefix_can_be_added(void **state)
{
    struct sp_rules *r = rules_of("prefix_rule([['a', 'b'], 'c'])\nprefix_rule(['p'], 'prompt')");
    struct sp_err e = {0};

    (void)state;
    struct sp_rules *same = sp_rules_with_prefix(r, NULL, words("b c"), &e);
    assert_ptr_equal(same, r);
    sp_rules_unref(same);
    struct sp_rules *more = sp_rules_with_prefix(r, NULL, words("p q"), &e);
    assert_ptr_not_equal(more, r);
    sp_rules_unref(r);
    assert_said(more, "p q r", "prompt p, allow p q");
    assert_true(sp_rules_are_complete(more));
    sp_rules_unref(more);
    struct sp_rules *first = sp_rules_with_prefix(NULL, NULL, words("x y"), &e);
    assert_said(first, "x y z", "allow x y");
    sp_rules_unref(first);
    assert_null(sp_rules_with_prefix(NULL, NULL, (struct sp_words){0}, &e));
    assert_string_equal(e.msg, "prefix rule requires at least one token");
}

static void test_what_a_prefix_would_match(void **state)
{
    struct sp_rules *r = rules_of("host_executable('git', ['/usr/bin/git'])");
    static const struct sp_str prefix_words[] = {{"git", 3}, {"log", 3}};
    const struct sp_words prefix = {prefix_words, 2};

    (void)state;
    assert_true(sp_rules_would_match(NULL, prefix, words("git log x")));
    assert_true(sp_rules_would_match(NULL, prefix, words("/opt/git log")));
    assert_true(sp_rules_would_match(r, prefix, words("/usr/bin/git log")));
    assert_false(sp_rules_would_match(r, prefix, words("/opt/git log")));
    assert_false(sp_rules_would_match(NULL, prefix, words("/opt/../git log")));
    assert_false(sp_rules_would_match(NULL, prefix, words("git")));
    assert_false(sp_rules_would_match(NULL, prefix, words("git status")));
    assert_false(sp_rules_would_match(NULL, (struct sp_words){0}, words("git")));
    sp_rules_unref(r);
}

/* ---- hosts of the network ---- */

static void test_network_rules_are_kept_in_order_and_normal(void **state)
{
    static const struct {
        const char *host, *protocol, *decision, *why;
    } expected[] = {
        {"api.x.com", "https", "allow", "why"},
        {"::1", "http", "deny", NULL},
        {"a:b:c", "https", "prompt", NULL},
        {"x", "https", "deny", NULL},
        {"10.0.0.1", "socks5_tcp", "allow", NULL},
        {"\xC3\x89.com", "socks5_udp", "allow", NULL},
        {":80", "http", "allow", NULL},
    };
    struct sp_rules *r = rules_of("network_rule('Api.X.com.:443', 'https', 'allow', 'why')\n"
                                  "network_rule('[::1]:80', 'http', 'deny')\n"
                                  "network_rule('A:B:c', 'https_connect', 'prompt')\n"
                                  "network_rule(' x.. ', 'http-connect', 'forbidden')\n"
                                  "network_rule('10.0.0.1', 'socks5_tcp', 'allow')\n"
                                  "network_rule('\xC3\x89.COM', 'socks5_udp', 'allow')\n"
                                  "network_rule(':80', 'http', 'allow', None)\n");
    struct sp_network_rule n;
    uint32_t i = 0;

    (void)state;
    for (; sp_rules_network(r, i, &n); i++) {
        assert_true(sp_str_eq(n.host, sp_str_of(expected[i].host)));
        assert_true(sp_str_eq(n.protocol, sp_str_of(expected[i].protocol)));
        assert_true(sp_str_eq(n.decision, sp_str_of(expected[i].decision)));
        assert_true(expected[i].why == NULL ? n.justification.p == NULL
                                            : sp_str_eq(n.justification, SP_STR("why")));
    }
    assert_int_equal(i, sizeof expected / sizeof *expected);
    assert_int_equal(count_rules(r), i);
    sp_rules_unref(r);
}

/* ---- check ---- */

static void checks(const char *rules, const char *command, bool is_pretty, const char *expected)
{
    struct sp_rules *r = rules_of(rules);
    auto_buf struct sp_buf out = {0};

    struct sp_rule_matches found = {0};

    assert_true(sp_rules_match(r, words(command), true, &found));
    assert_true(sp_rule_matches_add_json(&out, &found,
                                         is_pretty ? SP_MATCHES_CHECK_PRETTY : SP_MATCHES_CHECK));
    sp_rule_matches_done(&found);
    assert_true(sp_buf_add(&out, "", 1));
    assert_string_equal(out.data, expected);
    sp_rules_unref(r);
}

static void test_check_tells_matches_and_the_strictest_decision(void **state)
{
    (void)state;
    checks("prefix_rule(['git', 'status'])\nprefix_rule(['git'], 'prompt')", "git status", false,
           "{\"matchedRules\":[{\"prefixRuleMatch\":{\"matchedPrefix\":[\"git\",\"status\"],"
           "\"decision\":\"allow\"}},{\"prefixRuleMatch\":{\"matchedPrefix\":[\"git\"],"
           "\"decision\":\"prompt\"}}],\"decision\":\"prompt\"}");
    checks("prefix_rule(['git'], 'forbidden', justification='no \"x\"\\n')", "/usr/bin/git", false,
           "{\"matchedRules\":[{\"prefixRuleMatch\":{\"matchedPrefix\":[\"git\"],"
           "\"decision\":\"forbidden\",\"resolvedProgram\":\"/usr/bin/git\","
           "\"justification\":\"no \\\"x\\\"\\n\"}}],\"decision\":\"forbidden\"}");
    checks("", "git", false, "{\"matchedRules\":[]}");
    checks("", "git", true, "{\n  \"matchedRules\": []\n}");
    checks("prefix_rule(['a', 'b'])", "a b", true,
           "{\n  \"matchedRules\": [\n    {\n      \"prefixRuleMatch\": {\n"
           "        \"matchedPrefix\": [\n          \"a\",\n          \"b\"\n        ],\n"
           "        \"decision\": \"allow\"\n      }\n    }\n  ],\n  \"decision\": \"allow\"\n}");
}

/* ---- many ---- */

static void test_a_thousand_rules_are_found_by_their_first_word(void **state)
{
    auto_buf struct sp_buf text = {0};
    char command[64];

    (void)state;
    for (int i = 0; i < 1000; i++)
        assert_true(sp_buf_printf(&text, "prefix_rule(['program%d', 'word%d'])\n", i, i % 7));
    assert_true(sp_buf_add(&text, "", 1));
    struct sp_rules *r = rules_of(text.data);
    assert_int_equal(count_rules(r), 1000);
    for (int i = 0; i < 1000; i++) {
        char expected[64];

        (void)snprintf(command, sizeof command, "program%d word%d x", i, i % 7);
        (void)snprintf(expected, sizeof expected, "allow program%d word%d", i, i % 7);
        assert_said(r, command, expected);
        (void)snprintf(command, sizeof command, "program%d word%d", i, i % 7 + 1);
        assert_said(r, command, "");
    }
    sp_rules_unref(r);
}

/* ---- without memory ---- */

static bool make_and_ask(void)
{
    static const char text[] =
        "host_executable('git', ['/usr/bin/git', '/opt/git'])\n"
        "names = ['a', 'b'] + ['c']\n"
        "prefix_rule([names, 'x' + 'y'], 'prompt', match=['a xy', ['b', 'xy']], not_match=['q'],\n"
        "            justification='why')\n"
        "network_rule('X.com', 'https', 'deny')\n"
        "prefix_rule(['git'])\n";
    struct sp_rules_maker *m = sp_rules_maker_new();
    struct sp_rule_matches found = {0};
    auto_buf struct sp_buf out = {0};
    struct sp_err e = {0};
    bool is_good = m != NULL && sp_rules_add_text(m, "x", SP_STR(text), NULL, NULL, &e) == 0;
    struct sp_rules *r = is_good ? sp_rules_make(m) : NULL;
    struct sp_rules *one = r == NULL ? NULL : sp_rules_with_prefix(r, NULL, words("p q"), &e);
    struct sp_rules *more = one == NULL ? NULL : sp_rules_with_prefix(one, NULL, words("z"), &e);

    is_good = more != NULL && sp_rules_match(more, words("/usr/bin/git"), true, &found) &&
              sp_rules_match(more, words("a xy z"), true, &found) && found.count == 2 &&
              sp_rules_match(more, words("p q"), true, &found) &&
              sp_rule_matches_add_json(&out, &found, SP_MATCHES_CHECK_PRETTY);
    assert_true(is_good || e.code == SP_E_NONE || e.code == SP_E_SYSTEM);
    sp_rule_matches_done(&found);
    sp_rules_unref(more);
    sp_rules_unref(one);
    sp_rules_unref(r);
    sp_rules_maker_free(m);
    return is_good;
}

static void test_without_memory_nothing_is_half_done(void **state)
{
    long n = 1;

    (void)state;
    for (;; n++) {
        end_memory_at(n);
        const bool is_good = make_and_ask();
        if (!did_memory_end()) {
            assert_true(is_good);
            break;
        }
        assert_false(is_good);
    }
    assert_true(n > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_rule_matches_a_prefix),
        cmocka_unit_test(test_alternatives_stand_for_any_of_them),
        cmocka_unit_test(test_all_that_match_are_told_in_their_order),
        cmocka_unit_test(test_words_are_bytes),
        cmocka_unit_test(test_matches_of_many_segments_add_up_and_outlive_the_rules),
        cmocka_unit_test(test_a_path_stands_for_its_base_name),
        cmocka_unit_test(test_an_exact_rule_comes_before_the_base_name),
        cmocka_unit_test(test_host_executables_say_which_paths_do),
        cmocka_unit_test(test_a_path_that_climbs_allows_nothing),
        cmocka_unit_test(test_a_prefix_can_be_added),
        cmocka_unit_test(test_what_a_prefix_would_match),
        cmocka_unit_test(test_network_rules_are_kept_in_order_and_normal),
        cmocka_unit_test(test_check_tells_matches_and_the_strictest_decision),
        cmocka_unit_test(test_a_thousand_rules_are_found_by_their_first_word),
        cmocka_unit_test(test_without_memory_nothing_is_half_done),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
