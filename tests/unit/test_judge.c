/* SPDX-License-Identifier: Apache-2.0 */
/* Commands that no rule knows: the matrix, questions that a policy does not let through, danger. */
#include "approve/approvals_priv.h"
#include "judge_fixture.h"

#define FORCED "rm -f style commands are not permitted. Use a safer approach"
#define M2                                                                                \
    "approval policy is Never; reject command \xe2\x80\x94 you cannot ask for escalated " \
    "permissions if the approval policy is Never"
#define GRANULAR_FALSE_TRUE                                                    \
    "Granular(GranularApprovalConfig { sandbox_approval: false, rules: true, " \
    "skill_approval: false, request_permissions: false, mcp_elicitations: false })"
#define M13                                                                           \
    "approval required, but the client cannot answer questions; allow it by a rule, " \
    "configure an approver, or change the approval policy"

static void test_unmatched(void **state)
{
    static const struct judge_row rows[] = {
        {1, .policy = N, .profile = RO, .command = "ls", .want = SKIP, .amendment = "ls"},
        {2, .policy = N, .profile = WS, .command = "cargo build", .want = SKIP, .amendment = ANY},
        {3, .policy = N, .profile = FA, .command = "touch /x", .want = SKIP, .amendment = ANY},
        {4, .policy = R, .profile = RO, .command = "echo safe", .amendment = "echo safe"},
        {5, .policy = R, .profile = WS, .script = "cargo build", .amendment = "cargo build"},
        {6, R, .command = "madeup-cmd", .permissions = ESC, .want = ASK, .amendment = "madeup-cmd"},
        {7, R, .profile = WS, .command = "echo hello", .permissions = ESC, .want = ASK,
         .amendment = "echo hello"},
        {8, R, .profile = FA, .command = "madeup-cmd", .permissions = ESC, .want = SKIP,
         .amendment = ANY},
        {9, R, .profile = EX, .command = "make", .want = SKIP, .amendment = ANY},
        {10, R, .script = "touch d/f", .permissions = ADD, .want = ASK, .amendment = "touch d/f"},
        {11, U, .profile = WS, .command = "git status", .want = ASK, .amendment = "git status"},
        {12, U, .command = "ls -l", .want = SKIP, .amendment = ANY},
        {12, U, .command = "ls -l", .known_safe = SP_KNOWN_SAFE_OFF, .want = ASK,
         .amendment = "ls -l"},
        {13, U, .profile = FA, .command = "curl x", .want = ASK, .amendment = "curl x"},
        {14, F, .profile = WS, .command = "curl x", .want = SKIP, .amendment = ANY},
        {15, F, .profile = WS, .command = "curl x", .permissions = ESC, .want = ASK,
         .amendment = ANY},
        {16, G, true, true, RO, .command = "madeup-cmd", .permissions = ESC, .want = ASK,
         .amendment = ANY},
        {17, G, false, true, RO, .command = "madeup-cmd", .permissions = ESC, .want = REJ,
         .reason = "approval policy is " GRANULAR_FALSE_TRUE
                   "; reject command \xe2\x80\x94 you cannot ask for escalated permissions if the "
                   "approval policy is " GRANULAR_FALSE_TRUE},
        {18, N, .command = "ls", .permissions = ESC, .want = REJ, .reason = M2},
        {19, G, false, true, WS, .command = "cargo build", .want = SKIP, .amendment = ANY},
        {5, R, .profile = WS, .script = "make && cargo build", .amendment = "make"},
        {20, U, .script = "cargo build && echo ok", .want = ASK, .amendment = "cargo build"},
    };

    (void)state;
    JUDGE_ALL(rows);
}

static void test_known_safe(void **state)
{
    static const struct judge_row rows[] = {
        {28, U, .script = "ls | wc -l", .want = SKIP, .amendment = ANY},
        {28, U, .script = "ls && rm x", .want = ASK, .amendment = "rm x"},
        {28, U, .script = "ls > o", .want = ASK, .amendment = ALL},
        {29, U, .script = "find . -{delete,print}", .want = ASK, .amendment = ALL},
        {30, U, .script = "find . -del*", .want = ASK, .amendment = ALL},
        {30, U, .script = "find . -de\\lete", .want = ASK, .amendment = ALL},
        {31, U, .script = "find . \"-de\\\nlete\"", .want = ASK, .amendment = ALL},
        {32, U, .command = "/bin/zsh -lc ls", .want = SKIP, .amendment = ANY},
        {32, U, .command = "zsh -lc ls", .want = ASK},
        {33, U, .script = "'ls -l'", .want = ASK, .amendment = ALL},
        {34, U, .command = "bash -lc ls x", .want = ASK, .amendment = "bash -lc ls x"},
        {35, R, .command = "echo hi", .permissions = ESC, .want = ASK, .amendment = ANY},
        {49, U, .command = "rm -rf x", .want = ASK, .amendment = "rm -rf x"},
        /* a known-safe command with an override is any command */
        {35, U, .command = "ls", .permissions = ESC, .want = ASK, .amendment = "ls"},
    };

    (void)state;
    JUDGE_ALL(rows);
}

static void test_dangerous(void **state)
{
    static const struct judge_row rows[] = {
        {36, R, .profile = FA, .command = "rm -rf /tmp/x", .want = ASK,
         .amendment = "rm -rf /tmp/x"},
        {37, N, .command = "rm -rf /important/data", .want = REJ,
         .reason = "`rm -rf /important/data` rejected: " FORCED},
        {38, N, .profile = EX, .command = "rm -rf /t", .want = REJ,
         .reason = "`rm -rf /t` rejected: " FORCED},
        {39, R, .command = "rm -f x", .want = ASK, .amendment = ANY},
        {40, N, .command = "rm -r d", .want = SKIP, .amendment = ANY},
        {41, N, .command = "rm -- -f", .want = SKIP, .amendment = ANY},
        {42, N, .command = "/bin/rm -fr x", .want = REJ, .reason = ANY},
        {42, N, .command = "rm x -f", .want = REJ, .reason = ANY},
        {42, N, .command = "rm --force x", .want = REJ, .reason = ANY},
        {42, N, .command = "sudo rm -rf x", .want = REJ,
         .reason = "`sudo rm -rf x` rejected: " FORCED},
        {42, N, .command = "env A=1 rm -rf x", .want = REJ,
         .reason = "`env 'A=1' rm -rf x` rejected: " FORCED},
        {42, N, .command = "env -i -- rm -f x", .want = REJ, .reason = ANY},
        {43, N, .command = "env env env env env env env env rm -rf x", .want = REJ,
         .reason = "`env env env env env env env env rm -rf x` rejected: " FORCED},
        {43, N, .command = "env env env env env env env env env rm -rf x", .want = REJ,
         .reason = "`env env env env env env env env env rm -rf x` rejected: blocked by policy"},
        {44, R, .profile = FA, .script = "for t in a b; do rm -rf \"$t\"; done", .want = ASK,
         .amendment = ALL},
        {45, N, .script = "printf x | rm -rf y", .want = REJ, .reason = ANY},
        {45, N, .script = "if test -d x; then rm --force x; fi", .want = REJ, .reason = ANY},
        {45, N, .script = "rm -rf \"$T\" >/dev/null", .want = REJ, .reason = ANY},
        {45, N, .script = "echo \"$(rm -rf x)\"", .want = REJ, .reason = ANY},
        {45, N, .script = "bash -c 'rm -rf x'", .want = REJ, .reason = ANY},
        {45, N, .script = "trap 'rm -rf x' EXIT", .want = REJ, .reason = ANY},
        {46, N, .script = "echo 'rm -rf x'", .want = SKIP, .amendment = ANY},
        {46, N, .script = "c=rm; $c -rf x", .want = SKIP, .amendment = ANY},
        {46, N, .script = "trap 'echo rm -rf x' EXIT", .want = SKIP, .amendment = ANY},
        {47, G, false, true, RO, .command = "rm -rf x", .want = REJ, .reason = FORCED},
        {48, N, .script = "rm -rf x\nif then", .want = REJ, .reason = ANY},
        {50, F, .profile = WS, .command = "rm -rf x", .want = ASK, .amendment = ANY},
        /* of two dangers the one that has a name */
        {43, N, .script = "rm -f x; env env env env env env env env env y", .want = REJ,
         .reason = "`/bin/bash -lc 'rm -f x; env env env env env env env env env y'` rejected: "
                   "" FORCED},
        {43, N, .script = "env env env env env env env env env y; rm -f x", .want = REJ,
         .reason = "`/bin/bash -lc 'env env env env env env env env env y; rm -f x'` rejected: "
                   "" FORCED},
        /* danger other than rm, where nobody may be asked */
        {47, G, false, true, RO, .command = "env env env env env env env env env x", .want = REJ,
         .reason = "approval required by policy, but AskForApproval::Granular.sandbox_approval is "
                   "false"},
    };

    (void)state;
    JUDGE_ALL(rows);
}

/* 7.2: nobody is there to be asked. */
static void test_nobody_answers(void **state)
{
    static const struct judge_row rows[] = {
        {0, U, .command = "cargo build", .has_no_approver = true, .want = REJ, .reason = M13},
        {0, U, .command = "ls", .has_no_approver = true, .want = SKIP, .amendment = ANY},
        {0, R, .command = "cargo build", .has_no_approver = true, .want = SKIP, .amendment = ANY},
        {0, R, .command = "ls", .permissions = ESC, .has_no_approver = true, .want = REJ,
         .reason = M13},
        /* An approver would not help: the policy cannot ask. */
        {0, N, .command = "ls", .permissions = ESC, .has_no_approver = true, .want = REJ,
         .reason = M2},
        {0, N, .command = "rm x", .has_no_approver = true,
         .rules = "prefix_rule([\"rm\"], \"prompt\")", .want = REJ,
         .reason = "approval required by policy, but AskForApproval is set to Never"},
        {0, G, true, false, RO, .command = "rm x", .has_no_approver = true,
         .rules = "prefix_rule([\"rm\"], \"prompt\")", .want = REJ,
         .reason = "approval required by policy rule, but AskForApproval::Granular.rules is false"},
        {0, G, false, true, RO, .command = "rm x", .has_no_approver = true,
         .rules = "prefix_rule([\"rm\"], \"prompt\")", .want = REJ, .reason = M13},
        {0, U, .command = "ls", .permissions = ADD, .has_no_approver = true, .want = REJ,
         .reason =
             "approval policy is UnlessTrusted; reject command \xe2\x80\x94 you cannot request "
             "additional permissions unless the approval policy is OnRequest"},
        {0, R, .command = "rm -f x", .has_no_approver = true, .want = REJ,
         .reason = "`rm -f x` rejected: " FORCED},
        {0, R, .command = "rm x", .has_no_approver = true,
         .rules = "prefix_rule([\"rm\"], \"prompt\")", .want = REJ, .reason = M13},
        {0, R, .command = "rm x", .has_no_approver = true,
         .rules = "prefix_rule([\"rm\"], \"allow\")", .want = FREE},
    };

    (void)state;
    JUDGE_ALL(rows);
}

static void test_more_permissions(void **state)
{
    static const struct judge_row rows[] = {
        {131, U, .command = "ls", .permissions = ADD, .want = REJ,
         .reason =
             "approval policy is UnlessTrusted; reject command \xe2\x80\x94 you cannot request "
             "additional permissions unless the approval policy is OnRequest"},
        {131, F, .command = "ls", .permissions = ADD, .want = REJ,
         .reason = "approval policy is OnFailure; reject command \xe2\x80\x94 you cannot request "
                   "additional permissions unless the approval policy is OnRequest"},
        {131, G, true, true, RO, .command = "ls", .permissions = ADD, .want = REJ, .reason = ANY},
        {131, N, .command = "ls", .permissions = ADD, .want = REJ, .reason = M2},
        {132, R, .command = "touch x", .permissions = ADD, .is_preapproved = true, .want = SKIP,
         .amendment = ANY},
        {132, N, .command = "touch x", .permissions = ADD, .is_preapproved = true, .want = SKIP,
         .amendment = ANY},
        {132, U, .command = "touch x", .permissions = ADD, .is_preapproved = true, .want = ASK,
         .amendment = ANY},
        /* a grant never covers an escalation */
        {132, N, .command = "touch x", .permissions = ESC, .is_preapproved = true, .want = REJ,
         .reason = M2},
    };

    (void)state;
    JUDGE_ALL(rows);
}

static void test_an_empty_command_is_nothing_known(void **state)
{
    static const struct judge_row rows[] = {
        {0, U, .command = "", .want = ASK},
        {0, N, .command = "", .want = SKIP},
        {0, U, .command = "", .rules = "prefix_rule([\"\"], \"allow\")", .want = ASK},
        {0, U, .command = "''", .rules = "prefix_rule([\"\"], \"allow\")", .want = FREE},
        {0, U, .script = "", .want = ASK, .amendment = ALL},
        {0, U, .script = " \n", .want = ASK, .amendment = ALL},
    };

    (void)state;
    JUDGE_ALL(rows);
}

static void test_questions_after_a_denial(void **state)
{
    static const struct {
        int number;
        enum judge_policy policy;
        bool sandbox, command, patch;
    } rows[] = {
        {118, U, false, true, true},  {119, F, false, true, true}, {120, R, true, false, true},
        {121, N, true, false, false}, {122, G, true, true, true},  {122, G, false, false, false},
    };

    struct sp_approver someone = {0};
    struct sp_approvals approvals = {.options.approver = &someone};
    struct sp_run_plan plan = {
        .state = SP_RUN_PLAN_GO, .has_policy = true, .approvals = &approvals};
    const struct sp_patch_changes changes = {0};

    (void)state;
    judge_profile_of(RO, &plan.policy);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct judge_row row = {.policy = rows[i].policy, .sandbox = rows[i].sandbox};

        plan.approval = judge_policy_of(&row);
        plan.request.changes = NULL;
        assert_int_equal(sp_run_plan_can_retry(&plan, false), rows[i].command);
        plan.request.changes = &changes;
        assert_int_equal(sp_run_plan_can_retry(&plan, false), rows[i].patch);
    }
    sp_policy_done(&plan.policy);
}

static void test_profiles_that_never_run_free(void **state)
{
    struct sp_policy p;

    (void)state;
    assert_true(sp_judge_may_run_free(NULL));
    for (int kind = RO; kind <= NO_READ; kind++) {
        judge_profile_of((enum judge_profile)kind, &p);
        assert_int_equal(sp_judge_may_run_free(&p), kind != NO_READ);
        p.profile.kind = SP_PROFILE_DISABLED; /* whose entries mean nothing */
        assert_true(sp_judge_may_run_free(&p));
        sp_policy_done(&p);
    }
}

/* Such a prefix is never offered as a rule. */
static void test_prefixes_that_are_too_wide(void **state)
{
    static const char *const wide[] = {
        "/bin/bash",     "/bin/sh -c", "/bin/zsh -lc", "bash",
        "sh -lc",        "zsh -c",     "dash",         "fish -c",
        "ksh",           "cmd",        "cmd.exe /c",   "cmd /k",
        "powershell",    "pwsh -File", "pwsh -ec",     "powershell.exe -EncodedCommand",
        "pwsh -Command", "pwsh -c",    "pwsh -e",      "pwsh -f",
        "python",        "python3 -c", "python -",     "py",
        "py -3",         "pythonw",    "pyw",          "pypy",
        "pypy3",         "node",       "nodejs -e",    "perl -e",
        "ruby",          "lua",        "julia -e",     "php",
        "php -r",        "deno",       "deno eval",    "bun",
        "bun -e",        "bun run",    "npm run",      "pnpm run",
        "yarn run",      "Rscript",    "osascript",    "env",
        "git",           "rm",         "sudo",
    };
    static const char *const fine[] = {
        "dash -lc",           "npm",       "npm install", "git status",    "python3 a.py",
        "python -c print(1)", "rm -rf",    "sudo ls",     "env X=1",       "deno run",
        "node a.js",          "/bin/dash", "Bash",        "powershell -e", "php -e",
        "bash -lc ls x",      "pypy -c",
    };

    struct judge_row row = {.policy = U, .known_safe = SP_KNOWN_SAFE_OFF, .want = ASK};

    (void)state;
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
        row.command = wide[i];
        judge_one(&row);
    }
    row.amendment = ALL;
    for (size_t i = 0; i < sizeof fine / sizeof *fine; i++) {
        row.command = fine[i];
        judge_one(&row);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_prefixes_that_are_too_wide),
    cmocka_unit_test(test_unmatched),
    cmocka_unit_test(test_known_safe),
    cmocka_unit_test(test_dangerous),
    cmocka_unit_test(test_nobody_answers),
    cmocka_unit_test(test_more_permissions),
    cmocka_unit_test(test_an_empty_command_is_nothing_known),
    cmocka_unit_test(test_questions_after_a_denial),
    cmocka_unit_test(test_profiles_that_never_run_free),
};
TEST_MAIN(tests)
