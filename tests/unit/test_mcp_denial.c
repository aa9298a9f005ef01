/* SPDX-License-Identifier: Apache-2.0 */
/* What a sandbox denies is told with the rule that says so, in the answer and when it is asked. */
#include <sys/stat.h>
#include <unistd.h>

#include "cell/ring.h"
#include "config/policy.h"
#include "mcp/tool_denial.h"
#include "mcp_tools_fixture.h"

static char directory[64];
static struct sp_policy policy;

/* A workspace below /var/tmp, which is writable to nobody else's commands. */
static int begin_confined(void **state)
{
    struct sp_err e = {0};
    bool is_open = false;

    (void)state;
    (void)snprintf(directory, sizeof directory, "/var/tmp/mcp-denial.XXXXXX");
    if (mkdtemp(directory) == NULL || begin_at(directory) < 0)
        return -1;
    policy = (struct sp_policy){0};
    if (sp_config_policy(NULL, ":workspace", directory, &policy, &is_open, &e) < 0)
        return -1;
    manager_options.policy = &policy;
    make_server();
    return 0;
}

static int end_confined(void **state)
{
    const int r = end(state);

    sp_policy_done(&policy);
    return rmdir(directory) == 0 ? r : -1;
}

#define confined_test(f) cmocka_unit_test_setup_teardown(f, begin_confined, end_confined)

/* Not everywhere can a sandbox be made. */
static bool can_confine(void)
{
    auto_called struct called c = {0};

    call(&c, "exec_command", "{\"argv\":[\"true\"]}");
    if (c.is_error)
        (void)printf("# no sandbox here: %s\n", c.text);
    return !c.is_error;
}

static void test_a_denied_write_is_told_in_both_forms(void **state)
{
    auto_called struct called c = {0};

    (void)state;
    if (!can_confine())
        return;
    call(&c, "exec_command", "{\"cmd\":\"echo x > /usr/mcp-denied\",\"login\":false}");
    assert_false(c.is_error);
    assert_hasnt(c.json, "\"exit_code\":0");
    assert_has(c.text, "\nSandbox denied: write /usr/mcp-denied: entry ");
    assert_has(c.json,
               "\"denials\":[{\"access\":\"write\",\"target\":\"/usr/mcp-denied\",\"rule\":\""
               "entry ");
    assert_has(c.json,
               "\"layer\":\"landlock/mounts\",\"evidence\":\"words\",\"proposed_amendment\":"
               "{\"file_system\":{\"write\":[\"/usr\"]}}}]");
    callf(&c, "explain_denial", "{\"session_id\":%d}", 1001);
    assert_has(c.text, "Sandbox denied: write /usr/mcp-denied: entry ");
    assert_has(c.text, "[landlock/mounts; known by: words]\nWhat to do: work inside the workspace");
    assert_has(c.text, "no person is asked under this approval policy");
    call(&c, "explain_denial", "{\"session_id\":1000}");
    assert_has(c.text, "Nothing points to the sandbox");
    assert_string_equal(c.json, "{\"denials\":[]}");
}

static void test_a_path_is_explained(void **state)
{
    auto_called struct called c = {0};

    (void)state;
    callf(&c, "explain_denial", "{\"path\":\"%s/x\"}", directory);
    assert_has(c.text, "read: yes, write: yes, by entry ");
    assert_has(c.json, "{\"read\":true,\"write\":true,\"allowed\":true,\"target\":\"");
    assert_has(c.json, "/x\",\"rule\":\"entry ");
    assert_has(c.json, ",\"denials\":[]}");
    call(&c, "explain_denial", "{\"path\":\"x/../y\"}");
    assert_has(c.text, "/y\nread: yes, write: yes");
    call(&c, "explain_denial", "{\"path\":\"/usr/bin\"}");
    assert_has(c.text, "/usr/bin\nread: yes, write: no, by entry ");
    assert_has(c.json, ",\"denials\":[{\"access\":\"write\",\"target\":\"/usr/bin\",");
    assert_has(c.json, "\"evidence\":\"policy\"");
    callf(&c, "explain_denial", "{\"path\":\"%s/.git\"}", directory);
    assert_has(c.text, ".git is protected in this sandbox, below a writable root");
    assert_fails(&c, "explain_denial", "{\"path\":\"\"}", "`path` is no path");
    assert_fails(&c, "explain_denial", "{\"path\":\"a\\u0000b\"}", "`path` is no path");
}

/* Neither whether something is there nor where its links lead. */
static void test_what_is_hidden_stays_so(void **state)
{
    auto_called struct called c = {0};
    char hidden[80];
    char inside[96];
    char beside[80];

    (void)state;
    (void)snprintf(hidden, sizeof hidden, "%s/hidden", directory);
    (void)snprintf(inside, sizeof inside, "%s/link", hidden);
    (void)snprintf(beside, sizeof beside, "%s/beside", directory);
    assert_int_equal(mkdir(hidden, 0700), 0);
    assert_int_equal(symlink("/usr/bin", inside), 0);
    assert_int_equal(symlink("hidden/link", beside), 0);
    assert_int_equal(sp_profile_add(&policy.profile, SP_PLACE_PATH, SP_ACCESS_DENY, false,
                                    sp_str_of(hidden), (struct sp_str){0}, NULL),
                     0);
    callf(&c, "explain_denial", "{\"path\":\"%s\"}", inside);
    assert_has(c.text, "/hidden/link\nread: no, write: no, by entry ");
    assert_null(strstr(c.json, "/usr/bin"));
    callf(&c, "explain_denial", "{\"path\":\"%s\"}", beside);
    assert_has(c.text, "/beside\nread: no, write: no, by entry ");
    assert_null(strstr(c.json, "/usr/bin"));
    assert_int_equal(unlink(beside), 0);
    assert_int_equal(symlink("/usr/../usr/bin", beside), 0);
    callf(&c, "explain_denial", "{\"path\":\"%s\"}", beside);
    assert_has(c.text, "read: yes, write: no, by entry ");
    assert_int_equal(unlink(beside), 0);
    assert_int_equal(unlink(inside), 0);
    assert_int_equal(rmdir(hidden), 0);
}

static void test_a_host_is_explained(void **state)
{
    auto_called struct called c = {0};

    (void)state;
    call(&c, "explain_denial", "{\"host\":\"Example.org:443\"}");
    assert_has(c.text, "Sandbox denied: connect example.org: the policy gives commands no network");
    assert_has(c.json, "\"layer\":\"network\",\"evidence\":\"policy\",\"proposed_amendment\":"
                       "{\"network\":{\"enabled\":true}}");
    assert_has(c.text, "What to do: do without the network");
    call(&c, "explain_denial", "{\"host\":\"*\"}");
    assert_true(c.is_error);
}

static void test_advice_depends_on_who_may_be_asked(void **state)
{
    auto_called struct called c = {0};

    (void)state;
    end_server();
    manager_options.approvals.policy.kind = SP_APPROVAL_ON_REQUEST;
    make_server();
    call(&c, "explain_denial", "{\"path\":\"/usr\"}");
    assert_has(c.text, "with sandbox_permissions \"require_escalated\" and a justification.");
    end_server();
    mcp_options.tools.has_additional_permissions = true;
    make_server();
    call(&c, "explain_denial", "{\"path\":\"/usr\"}");
    assert_has(c.text, "additional_permissions {\"file_system\":{\"write\":[\"/usr\"]}}.");
}

static void test_elsewhere_paths_are_not_looked_at(void **state)
{
    auto_called struct called c = {0};

    (void)state;
    end_server();
    mcp_options.is_remote = true;
    make_server();
    assert_fails(&c, "explain_denial", "{\"path\":\"/usr\"}", "on another host");
    mcp_options.is_remote = false;
}

static void test_without_a_sandbox_nothing_is_denied(void **state)
{
    auto_called struct called c = {0};

    (void)state;
    end_server();
    manager_options.policy = NULL;
    make_server();
    call(&c, "explain_denial", "{\"path\":\"/usr\"}");
    assert_has(c.text, "without a sandbox");
    call(&c, "explain_denial", "{\"host\":\"x\"}");
    assert_has(c.text, "may use the network");
    call(&c, "exec_command", "{\"cmd\":\"echo permission denied; exit 1\",\"login\":false}");
    assert_has(c.json, "\"denials\":[]");
}

/* ---- what the kernel told ---- */

static char *told(const struct sp_mcp_denied *what, bool as_lines)
{
    struct sp_mcp_denials d = {0};
    struct sp_buf b = {0};

    assert_true(sp_mcp_denials_find(&d, mcp, what));
    assert_true(sp_mcp_denials_add(&b, &d, !as_lines) && sp_buf_add(&b, "", 1));
    sp_mcp_denials_done(&d);
    return b.data;
}

static void test_what_the_kernel_told_comes_first(void **state)
{
    static const struct sp_exit how = {
        .code = 1,
        .signal = SIGSYS,
        .left_network = 2,
        .refusal_count = 2,
        .refusals = {{.call = SYS_mount, .count = 1}, {.call = SYS_socket, .count = 3}}};
    static const struct sp_denial_facts words = {.has_words = true, .reason = "permission_denied"};
    const struct sp_mcp_denied what = {
        .kernel = &how, .denial = &words, .was_confined = true, .was_denied = true};
    auto_free char *lines = told(&what, true);
    auto_free char *json = told(&what, false);

    (void)state;
    assert_string_equal(
        lines, "Sandbox denied: mount: the sandbox's filter refuses this system call to every "
               "command\nSandbox denied: socket: the policy gives commands no network\nSandbox "
               "denied: connect: the policy gives commands no network\n\xe2\x80\xa6 and 1 more\n");
    assert_has(json, "{\"access\":\"mount\",\"target\":\"\",");
    assert_has(json, "\"layer\":\"seccomp\",\"evidence\":\"kernel\"}");
    assert_has(json, "kills the process that makes it (SIGSYS)");
    assert_hasnt(json, "words");
    struct sp_mcp_denied unconfined = what;
    unconfined.was_confined = false; /* the command itself may raise SIGSYS */
    auto_free char *nothing = told(&unconfined, true);
    assert_string_equal(nothing, "");
    const struct sp_mcp_denied guess = {.denial = &words, .was_confined = true, .was_denied = true};
    auto_free char *guessed = told(&guess, false);
    assert_has(guessed, "\"access\":\"access\",\"target\":\"\",\"rule\":\"the words of its output "
                        "say so (permission_denied)\",\"layer\":\"words\",\"evidence\":\"words\"}");
}

static void test_a_path_of_words_is_hostile(void **state)
{
    struct sp_denial_facts words = {.has_words = true, .reason = "permission_denied"};
    const struct sp_mcp_denied what = {
        .denial = &words, .was_confined = true, .was_denied = true, .cwd = SP_STR("/usr")};

    (void)state;
    (void)strcpy(words.path, "a\033[2J\nb\xff");
    auto_free char *lines = told(&what, true);
    auto_free char *json = told(&what, false);
    assert_has(lines, "Sandbox denied: write /usr/a");
    assert_hasnt(lines, "\033");
    assert_ptr_equal(strchr(lines, '\n'), lines + strlen(lines) - 1);
    assert_hasnt(json, "\xff");
    /* What the policy allows was refused by somebody else. */
    (void)snprintf(words.path, sizeof words.path, "%s/x", directory);
    auto_free char *nothing = told(&what, true);
    assert_string_equal(nothing, "");
}

static void test_without_facts_there_is_the_output(void **state)
{
    const struct sp_mcp_denied read = {.was_confined = true,
                                       .was_denied = true,
                                       .output = SP_STR("sh: /site/a: Read-only file system\n"),
                                       .exit_code = 1};
    const struct sp_mcp_denied unread = {.was_confined = true, .was_denied = true, .exit_code = 1};
    const struct sp_mcp_denied allowed = {
        .was_confined = true, .output = read.output, .exit_code = 1};
    auto_free char *lines = told(&read, true);
    auto_free char *silent = told(&unread, true);
    auto_free char *nothing = told(&allowed, true);

    (void)state;
    assert_has(lines, "Sandbox denied: ");
    assert_has(lines, "/site/a: ");
    assert_string_equal(silent, "Sandbox denied: access: the executor says so\n");
    assert_string_equal(nothing, "");
}

static const struct CMUnitTest tests[] = {
    confined_test(test_without_facts_there_is_the_output),
    confined_test(test_a_denied_write_is_told_in_both_forms),
    confined_test(test_a_path_is_explained),
    confined_test(test_what_is_hidden_stays_so),
    confined_test(test_a_host_is_explained),
    confined_test(test_advice_depends_on_who_may_be_asked),
    confined_test(test_elsewhere_paths_are_not_looked_at),
    confined_test(test_without_a_sandbox_nothing_is_denied),
    confined_test(test_what_the_kernel_told_comes_first),
    confined_test(test_a_path_of_words_is_hostile),
};

TEST_MAIN(tests)
