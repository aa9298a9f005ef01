/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Acceptance cases of approvals that other tests ask a part of the judge for, or whose texts
 * they leave open: here each is judged whole, to the letter.
 */
#include "judge_fixture.h"

#define FORCED       "rm -f style commands are not permitted. Use a safer approach"
#define NO(cmd)      "`" cmd "` rejected: " FORCED
#define BASH(script) "/bin/bash -lc '" script "'"
#define GRANULAR(s, r)                                                     \
    "Granular(GranularApprovalConfig { sandbox_approval: " s ", rules: " r \
    ", skill_approval: false, request_permissions: false, mcp_elicitations: false })"

/* 1 to 20, where a question has no reason and offers the command, and a skip keeps it. */
static void test_what_is_offered_for_unmatched_commands(void **state)
{
    static const struct judge_row rows[] = {
        {2, N, .profile = WS, .command = "cargo build", .want = SKIP, .amendment = ALL},
        {3, N, .profile = FA, .command = "touch /x", .want = SKIP, .amendment = ALL},
        {8, R, .profile = FA, .command = "madeup-cmd", .permissions = ESC, .want = SKIP,
         .amendment = ALL},
        {9, R, .profile = EX, .command = "make", .want = SKIP, .amendment = ALL},
        {12, U, .command = "ls -l", .known_safe = SP_KNOWN_SAFE_LIST, .want = SKIP,
         .amendment = ALL},
        {14, F, .profile = WS, .command = "curl x", .want = SKIP, .amendment = ALL},
        {15, F, .profile = WS, .command = "curl x", .permissions = ESC, .want = ASK,
         .amendment = ALL},
        {16, G, true, true, RO, .command = "madeup-cmd", .permissions = ESC, .want = ASK,
         .amendment = ALL},
        {19, G, false, true, WS, .command = "cargo build", .want = SKIP, .amendment = ALL},
    };

    (void)state;
    JUDGE_ALL(rows);
}

/* 21 to 27 and 34: untrusted, read-only, with the list. */
static void test_known_safe_commands_are_not_asked_about(void **state)
{
    static const struct {
        int number;
        enum judge_want want;
        const char *command;
        enum sp_known_safe known_safe;
    } rows[] = {
        {21, SKIP, "sed -n 1,5p f", SP_KNOWN_SAFE_LIST},
        {21, ASK, "sed -n xp f", SP_KNOWN_SAFE_LIST},
        {21, ASK, "sed -i s/a/b/ f", SP_KNOWN_SAFE_LIST},
        {21, ASK, "sed -n 1,5p f g", SP_KNOWN_SAFE_LIST},
        {22, SKIP, "find . -name x", SP_KNOWN_SAFE_LIST},
        {22, ASK, "find . -delete", SP_KNOWN_SAFE_LIST},
        {22, ASK, "find . -exec rm {} ;", SP_KNOWN_SAFE_LIST},
        {22, ASK, "find . -fprint o", SP_KNOWN_SAFE_LIST},
        {23, SKIP, "rg -n foo", SP_KNOWN_SAFE_LIST},
        {23, ASK, "rg --pre=sh foo", SP_KNOWN_SAFE_LIST},
        {23, ASK, "rg -z foo", SP_KNOWN_SAFE_LIST},
        {23, ASK, "rg -nz foo", SP_KNOWN_SAFE_LIST},
        {24, SKIP, "base64 f", SP_KNOWN_SAFE_LIST},
        {24, ASK, "base64 -o out f", SP_KNOWN_SAFE_LIST},
        {24, ASK, "base64 -oout", SP_KNOWN_SAFE_LIST},
        {24, ASK, "base64 --output=x", SP_KNOWN_SAFE_LIST},
        {25, ASK, "git status", SP_KNOWN_SAFE_LIST},
        {25, SKIP, "git status", SP_KNOWN_SAFE_LIST_GIT},
        {25, ASK, "git -C . status", SP_KNOWN_SAFE_LIST_GIT},
        {25, ASK, "git -p log", SP_KNOWN_SAFE_LIST_GIT},
        {25, SKIP, "git log -p", SP_KNOWN_SAFE_LIST_GIT},
        {25, ASK, "git diff --output=x", SP_KNOWN_SAFE_LIST_GIT},
        {25, SKIP, "git branch", SP_KNOWN_SAFE_LIST_GIT},
        {25, ASK, "git branch -d x", SP_KNOWN_SAFE_LIST_GIT},
        {25, ASK, "git branch new", SP_KNOWN_SAFE_LIST_GIT},
        {25, ASK, "git checkout status", SP_KNOWN_SAFE_LIST_GIT},
        {26, SKIP, "/usr/bin/cat f", SP_KNOWN_SAFE_LIST},
        {26, ASK, "./cat f", SP_KNOWN_SAFE_LIST}, /* stricter than the list */
        {27, ASK, "cargo check", SP_KNOWN_SAFE_LIST},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct judge_row row = {.number = rows[i].number,
                                      .policy = U,
                                      .profile = RO,
                                      .command = rows[i].command,
                                      .known_safe = rows[i].known_safe,
                                      .want = rows[i].want,
                                      .amendment = ALL};

        judge_one(&row);
    }
}

/* 28, 32 and 35: what is known to be safe runs confined, and not with an override. */
static void test_what_known_safe_does_not_give(void **state)
{
    static const struct judge_row rows[] = {
        {28, U, .script = "ls | wc -l", .want = SKIP, .amendment = "ls"},
        {32, U, .command = "/bin/zsh -lc ls", .want = SKIP, .amendment = "ls"},
        {35, R, .command = "echo hi", .permissions = ESC, .want = ASK, .amendment = "echo hi"},
    };

    (void)state;
    JUDGE_ALL(rows);
}

static void test_dangerous_commands_and_what_is_said(void **state)
{
    static const struct judge_row rows[] = {
        {39, R, .command = "rm -f x", .want = ASK, .amendment = "rm -f x"},
        {40, N, .command = "rm -r d", .want = SKIP, .amendment = "rm -r d"},
        {41, N, .command = "rm -- -f", .want = SKIP, .amendment = "rm -- -f"},
        {42, N, .command = "/bin/rm -fr x", .want = REJ, .reason = NO("/bin/rm -fr x")},
        {42, N, .command = "rm x -f", .want = REJ, .reason = NO("rm x -f")},
        {42, N, .command = "rm --force x", .want = REJ, .reason = NO("rm --force x")},
        {42, N, .command = "env -i -- rm -f x", .want = REJ, .reason = NO("env -i -- rm -f x")},
        {45, N, .script = "printf x | rm -rf y", .want = REJ,
         .reason = NO(BASH("printf x | rm -rf y"))},
        {45, N, .script = "if test -d x; then rm --force x; fi", .want = REJ,
         .reason = NO(BASH("if test -d x; then rm --force x; fi"))},
        {45, N, .script = "rm -rf \"$T\" >/dev/null", .want = REJ,
         .reason = NO(BASH("rm -rf \"$T\" >/dev/null"))},
        {45, N, .script = "echo \"$(rm -rf x)\"", .want = REJ,
         .reason = NO(BASH("echo \"$(rm -rf x)\""))},
        {45, N, .script = "bash -c 'rm -rf x'", .want = REJ,
         .reason = NO("/bin/bash -lc \"bash -c 'rm -rf x'\"")},
        {45, N, .script = "trap 'rm -rf x' EXIT", .want = REJ,
         .reason = NO("/bin/bash -lc \"trap 'rm -rf x' EXIT\"")},
        {46, N, .script = "echo 'rm -rf x'", .want = SKIP, .amendment = "echo 'rm -rf x'"},
        {46, N, .script = "c=rm; $c -rf x", .want = SKIP, .amendment = ALL},
        {46, N, .script = "trap 'echo rm -rf x' EXIT", .want = SKIP,
         .amendment = "trap 'echo rm -rf x' EXIT"},
        {48, N, .script = "rm -rf x\nif then", .want = REJ,
         .reason = NO(BASH("rm -rf x\nif then"))},
        {50, F, .profile = WS, .command = "rm -rf x", .want = ASK, .amendment = "rm -rf x"},
    };

    (void)state;
    JUDGE_ALL(rows);
}

/* 55 to 57 under the profiles and questions that the others leave out. */
static void test_policies_that_do_not_ask(void **state)
{
    static const char prompt[] = "prefix_rule([\"rm\"], \"prompt\")";
    static const struct judge_row rows[] = {
        {55, N, .profile = FA, .command = "rm", .rules = prompt, .want = REJ,
         .reason = "approval required by policy, but AskForApproval is set to Never"},
        {56, G, true, false, .profile = FA, .command = "rm", .rules = prompt, .want = REJ,
         .reason = "approval required by policy rule, but AskForApproval::Granular.rules is false"},
        {57, G, false, true, .profile = FA, .command = "rm", .rules = prompt, .want = ASK,
         .reason = "`rm` requires approval by policy"},
        {131, G, true, true, RO, .command = "ls", .permissions = ADD, .want = REJ,
         .reason = "approval policy is " GRANULAR(
             "true",
             "true") "; reject command \xe2\x80\x94 "
                     "you cannot request additional permissions unless the approval policy is "
                     "OnRequest"},
        {131, G, false, true, RO, .command = "ls", .permissions = ADD, .want = REJ,
         .reason = "approval policy is " GRANULAR(
             "false",
             "true") "; reject command \xe2\x80\x94 "
                     "you cannot ask for escalated permissions if the approval policy is " GRANULAR(
                         "false", "true")},
    };

    (void)state;
    JUDGE_ALL(rows);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_what_is_offered_for_unmatched_commands),
    cmocka_unit_test(test_known_safe_commands_are_not_asked_about),
    cmocka_unit_test(test_what_known_safe_does_not_give),
    cmocka_unit_test(test_dangerous_commands_and_what_is_said),
    cmocka_unit_test(test_policies_that_do_not_ask),
};
TEST_MAIN(tests)
