/* SPDX-License-Identifier: Apache-2.0 */
/* Rules, what is offered as one, and which commands run without a sandbox. */
#include "judge_fixture.h"
#include "memory_fixture.h"

#define ALLOW(words)       "prefix_rule([" words "], \"allow\")\n"
#define PROMPT(words)      "prefix_rule([" words "], \"prompt\")\n"
#define FORBID(words)      "prefix_rule([" words "], \"forbidden\")\n"
#define CAT_AND_MORE       "cat L && curl u -o s && bash s"
#define M9                 "approval required by policy, but AskForApproval is set to Never"
#define M10                "approval required by policy rule, but AskForApproval::Granular.rules is false"
#define GIT_HOST(paths)    "host_executable(\"git\", [" paths "])\n"
#define BY_POLICY(command) "`" command "` requires approval by policy"

static void test_strictness(void **state)
{
    static const struct judge_row rows[] = {
        {51, R, .profile = FA, .script = "rm -rf /some/important/folder", .rules = FORBID("\"rm\""),
         .want = REJ,
         .reason = "`/bin/bash -lc 'rm -rf /some/important/folder'` rejected: policy forbids "
                   "commands starting with `rm`"},
        {52, R, .command = "rm -rf /d",
         .rules = "prefix_rule([\"rm\"], \"forbidden\", justification=\"destructive command\")",
         .want = REJ, .reason = "`rm -rf /d` rejected: destructive command"},
        {53, R, .profile = FA, .command = "rm", .rules = PROMPT("\"rm\""), .want = ASK,
         .reason = BY_POLICY("rm")},
        {54, R, .profile = FA, .command = "rm",
         .rules = "prefix_rule([\"rm\"], \"prompt\", justification=\"why\")", .want = ASK,
         .reason = "`rm` requires approval: why"},
        {55, N, .command = "rm", .rules = PROMPT("\"rm\""), .want = REJ, .reason = M9},
        {56, G, true, false, .command = "rm", .rules = PROMPT("\"rm\""), .want = REJ,
         .reason = M10},
        {57, G, false, true, .command = "rm", .rules = PROMPT("\"rm\""), .want = ASK,
         .reason = BY_POLICY("rm")},
        {58, G, true, false, RO, .script = "git status && rm -rf /t", .permissions = ESC,
         .rules = PROMPT("\"git\""), .want = REJ, .reason = M10},
        {65, R, .command = "git push", .rules = ALLOW("\"git\"") PROMPT("\"git\", \"push\""),
         .want = ASK, .reason = BY_POLICY("git push")},
        {66, R, .command = "git status", .rules = ALLOW("\"git\", \"status\"") PROMPT("\"git\""),
         .want = ASK, .reason = BY_POLICY("git status")},
        {67, R, .command = "git status", .rules = FORBID("\"git\"") ALLOW("\"git\", \"status\""),
         .want = REJ,
         .reason = "`git status` rejected: policy forbids commands starting with `git`"},
        /* the longest rule is the one that is quoted, not the first */
        {67, R, .command = "git push -f",
         .rules = FORBID("\"git\"") FORBID("\"git\", \"push\"") ALLOW("\"git\""), .want = REJ,
         .reason = "`git push -f` rejected: policy forbids commands starting with `git push`"},
        {54, R, .command = "git push -f",
         .rules = "prefix_rule([\"git\", \"push\"], \"prompt\", justification=\"long\")\n"
                  "prefix_rule([\"git\"], \"prompt\", justification=\"short\")\n",
         .want = ASK, .reason = "`git push -f` requires approval: long"},
        {84, R, .command = "rm x", .rules = FORBID("\"rm\"") PROMPT("\"ls\""), .want = REJ,
         .reason = ANY},
        {84, R, .command = "ls", .rules = FORBID("\"rm\"") PROMPT("\"ls\""), .want = ASK,
         .reason = BY_POLICY("ls")},
        {84, N, .script = "ls; rm x", .rules = FORBID("\"rm\"") PROMPT("\"ls\""), .want = REJ,
         .reason = "`/bin/bash -lc 'ls; rm x'` rejected: policy forbids commands starting with "
                   "`rm`"},
    };

    (void)state;
    JUDGE_ALL(rows);
}

static void test_what_runs_free(void **state)
{
    static const struct judge_row rows[] = {
        {59, U, .profile = WS, .command = "git status", .rules = ALLOW("\"git\", \"status\""),
         .want = FREE},
        {60, R, .command = "python3 -c 'print(1)'", .rules = ALLOW("\"python3\""), .want = FREE},
        {61, R, .profile = WS, .script = CAT_AND_MORE, .rules = ALLOW("\"cat\""), .want = SKIP},
        {61, N, .profile = WS, .script = CAT_AND_MORE, .rules = ALLOW("\"cat\""), .want = SKIP},
        {62, R, .script = CAT_AND_MORE,
         .rules = ALLOW("\"cat\"") ALLOW("\"curl\"") ALLOW("\"bash\""), .want = FREE},
        {63, U, .profile = FA, .script = "apple | orange", .rules = ALLOW("\"apple\""), .want = ASK,
         .amendment = "orange"},
        {64, U, .script = "cat && apple", .rules = ALLOW("\"cat\""), .want = ASK,
         .amendment = "apple"},
        {68, R, .script = "python3 <<'P'\nprint(1)\nP\n", .rules = ALLOW("\"python3\""),
         .want = SKIP, .amendment = ALL},
        {69, R, .profile = WS, .script = "cat <<'E' > /x\na\nE\n", .permissions = ESC,
         .rules = ALLOW("\"cat\""), .want = ASK, .amendment = ALL},
        {70, R, .script = "PATH=/evil:$PATH cat f", .rules = ALLOW("\"cat\""), .want = SKIP,
         .amendment = ALL},
        {71, U, .script = "find ./t -{delete,print}",
         .rules = ALLOW("\"find\", \"./t\", \"-{delete,print}\""), .want = ASK, .amendment = ALL},
        {80, R, .profile = NO_READ, .command = "cat f", .rules = ALLOW("\"cat\""), .want = SKIP},
        {81, R, .command = "touch x", .permissions = ADD, .rules = ALLOW("\"touch\""),
         .want = FREE},
        {82, U, .command = "cat f", .rules = ALLOW("\"cat\""), .is_incomplete = true, .want = SKIP},
        /* known to be safe is not allowed by a rule */
        {61, U, .script = "cat a && ls", .rules = ALLOW("\"cat\""), .want = SKIP},
    };

    (void)state;
    JUDGE_ALL(rows);
}

static void test_programs_by_their_paths(void **state)
{
    static const struct judge_row rows[] = {
        {72, U, .command = "/usr/bin/git status",
         .rules = GIT_HOST("\"/usr/bin/git\"") ALLOW("\"git\""), .want = FREE},
        {73, U, .command = "/opt/bin/git status",
         .rules = GIT_HOST("\"/usr/bin/git\"") ALLOW("\"git\""), .want = ASK,
         .amendment = "/opt/bin/git status"},
        {74, U, .command = "/opt/bin/git status", .rules = ALLOW("\"git\""), .want = FREE},
        /* which file that is, program.h says */
        {74, U, .profile = WS, .command = "/tmp/bin/git status", .rules = ALLOW("\"git\""),
         .want = FREE},
        {75, U, .command = "/usr/bin/git status", .rules = GIT_HOST("") ALLOW("\"git\""),
         .want = ASK, .amendment = "/usr/bin/git status"},
        {76, U, .command = "/usr/bin/git status",
         .rules = ALLOW("\"/usr/bin/git\", \"status\"") PROMPT("\"git\""), .want = FREE},
        {77, U, .command = "npm i", .rules = ALLOW("[\"npm\", \"pnpm\"], [\"i\", \"install\"]"),
         .want = FREE},
        {77, U, .command = "pnpm install x",
         .rules = ALLOW("[\"npm\", \"pnpm\"], [\"i\", \"install\"]"), .want = FREE},
        {77, U, .command = "yarn i", .rules = ALLOW("[\"npm\", \"pnpm\"], [\"i\", \"install\"]"),
         .want = ASK, .amendment = "yarn i"},
        {77, U, .command = "npm", .rules = ALLOW("[\"npm\", \"pnpm\"], [\"i\", \"install\"]"),
         .want = ASK, .amendment = "npm"},
    };

    (void)state;
    JUDGE_ALL(rows);
}

static void test_foreign_shells(void **state)
{
    static const struct judge_row rows[] = {
        {78, U, .command = "/workspace/bash -c ls", .rules = ALLOW("\"ls\""), .want = ASK,
         .amendment = "/workspace/bash"},
        {78, U, .command = "/bin/../w/bash -c ls", .rules = ALLOW("\"ls\""), .want = ASK,
         .amendment = "/bin/../w/bash"},
        {78, R, .command = "/workspace/bash -c ls", .rules = ALLOW("\"ls\""), .want = SKIP},
        {78, U, .command = "/bin/bash -c ls", .rules = ALLOW("\"ls\""), .want = FREE},
        {79, R, .command = "/workspace/bash -c 'rm x'", .rules = FORBID("\"rm\""), .want = REJ,
         .reason = "`/workspace/bash -c 'rm x'` rejected: policy forbids commands starting with "
                   "`rm`"},
        /* what is not taken apart is offered as it is, not the shell with whatever script */
        {78, U, .command = "/workspace/bash -c 'ls > x'", .rules = ALLOW("\"ls\""), .want = ASK,
         .amendment = ALL},
        {78, N, .command = "/workspace/bash -c 'rm -f x'", .want = REJ,
         .reason = "`/workspace/bash -c 'rm -f x'` rejected: rm -f style commands are not "
                   "permitted. Use a safer approach"},
    };

    (void)state;
    JUDGE_ALL(rows);
}

static void test_amendments(void **state)
{
    static const struct judge_row rows[] = {
        {94, R, .command = "cargo install x", .permissions = ESC, .prefix = "cargo install",
         .want = ASK, .amendment = "cargo install"},
        {95, R, .profile = FA, .script = "cargo install x && rm -rf /t", .permissions = ESC,
         .prefix = "cargo install", .want = ASK, .amendment = "rm -rf /t"},
        {96, U, .command = "python3 a.py", .prefix = "python3", .want = ASK,
         .amendment = "python3 a.py"},
        {97, U, .command = "python -c 'print(1)' x", .prefix = "python -c 'print(1)'", .want = ASK,
         .amendment = "python -c 'print(1)'"},
        {98, U, .command = "/usr/bin/cargo install x", .prefix = "cargo install", .want = ASK,
         .amendment = "cargo install"},
        {98, U, .command = "/usr/bin/cargo install x", .prefix = "cargo install",
         .rules = "host_executable(\"cargo\", [\"/opt/cargo\"])", .want = ASK,
         .amendment = "/usr/bin/cargo install x"},
        {99, U, .script = "python3 <<'P'\nprint(1)\nP\n", .prefix = "python3", .want = ASK,
         .amendment = ALL},
        {100, U, .script = "apple && cargo install x", .prefix = "cargo install",
         .rules = ALLOW("\"apple\""), .want = ASK, .amendment = "cargo install x"},
        {100, R, .command = "cargo install x", .prefix = "cargo install",
         .rules = PROMPT("\"cargo\""), .want = ASK, .reason = ANY},
        {100, U, .script = "apple && orange", .rules = PROMPT("\"apple\""), .want = ASK,
         .reason = BY_POLICY("/bin/bash -lc 'apple && orange'")},
        /* one that has nothing to do with the command */
        {94, R, .command = "cargo install x", .prefix = "make x", .want = SKIP,
         .amendment = "cargo install x"},
        {94, R, .command = "cargo install x", .permissions = ESC, .prefix = "cargo install x y",
         .want = ASK, .amendment = "cargo install x"},
        {94, U, .script = "ls && cargo install x", .prefix = "cargo install", .want = ASK,
         .amendment = "cargo install"},
        {94, U, .script = "make && cargo install x", .prefix = "cargo install", .want = ASK,
         .amendment = "make"},
        {94, R, .command = "cargo build", .prefix = "cargo", .want = SKIP, .amendment = "cargo"},
        /* 5.7 holds for whole commands, too */
        {96, U, .command = "python3", .want = ASK},
        {96, R, .command = "git", .want = SKIP},
    };

    (void)state;
    JUDGE_ALL(rows);
}

static void test_every_match_is_told(void **state)
{
    static const struct judge_row row = {90, .rules = ALLOW("\"git\", \"status\"") PROMPT("\"git\"")
                                                 FORBID("\"rm\"")};
    const struct sp_str argv[] = {SP_STR("/workspace/sh"), SP_STR("-c"),
                                  SP_STR("git status && rm x; ls")};
    struct sp_rules *rules = judge_rules_of(&row);
    const struct sp_judge_request ask = {.argv = {argv, 3}, .rules = rules};
    struct sp_requirement q;
    struct sp_err e = {0};

    (void)state;
    assert_int_equal(sp_judge(&ask, &q, &e), 0);
    assert_int_equal(q.segments.count, 4); /* with the shell in front */
    assert_int_equal(q.segments.items[0].count, 1);
    assert_int_equal(q.matches.count, 3);
    sp_requirement_done(&q);
    sp_rules_unref(rules);
}

static void test_memory_that_ends_is_told(void **state)
{
    static const struct judge_row row = {0, .rules = PROMPT("\"git\", \"status\"")};
    const struct sp_str argv[] = {SP_STR("/workspace/sh"), SP_STR("-c"),
                                  SP_STR("cargo install x; sh -c 'a > b'")};
    const struct sp_str prefix[] = {SP_STR("cargo"), SP_STR("install")};
    struct sp_rules *rules = judge_rules_of(&row);
    const struct sp_judge_request asks[] = {
        {.argv = {argv, 3}, .rules = rules, .prefix = {prefix, 2}, .policy = {SP_APPROVAL_NEVER}},
        {.argv = {argv, 3}, .policy = {SP_APPROVAL_NEVER}, .permissions = ESC},
    };

    (void)state;
    for (size_t i = 0; i < 2; i++)
        for (long n = 1;; n++) {
            struct sp_requirement q;
            struct sp_err e = {0};

            end_memory_at(n);
            const int r = sp_judge(&asks[i], &q, &e);
            const bool is_over = !did_memory_end();
            assert_int_equal(r, is_over ? 0 : -SP_E_SYSTEM);
            assert_true(is_over || q.kind == SP_REQUIRE_REFUSAL);
            sp_requirement_done(&q);
            if (is_over)
                break;
        }
    sp_rules_unref(rules);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_strictness),
    cmocka_unit_test(test_what_runs_free),
    cmocka_unit_test(test_programs_by_their_paths),
    cmocka_unit_test(test_foreign_shells),
    cmocka_unit_test(test_amendments),
    cmocka_unit_test(test_every_match_is_told),
    cmocka_unit_test(test_memory_that_ends_is_told),
};
TEST_MAIN(tests)
