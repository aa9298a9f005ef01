/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "config/config.h"
#include "config_fixture.h"

static void test_without_a_file_there_are_defaults(void **state)
{
    auto_config struct sp_config c = {0};
    struct sp_err e = {0};

    (void)state;
    assert_int_equal(load_with(NULL, NULL, &c, &e), 0);
    assert_true(c.path == NULL || strcmp(c.path, "/etc/sallyport/sallyport.conf") == 0);
    assert_string_equal(c.home, test_home);
    assert_null(c.default_permissions);
    assert_null(c.approvers);
    assert_null(c.audit_log);
    assert_null(c.warnings);
    assert_string_equal(c.approval_policy, "on-request");
    assert_string_equal(c.known_safe, "list");
    assert_string_equal(c.default_environment, "local");
    assert_true(c.retry_on_heuristic && c.allow_login_shell && c.report_denied_start);
    assert_false(c.retry_reuses_approval || c.has_unified_exec || c.ignore_user_and_project_rules);
    assert_false(c.preserve_line_endings);
    assert_int_equal(c.poll_max_ms, 300000);
    assert_int_equal(c.tool_output_token_limit, 10000);
    assert_int_equal(c.exited_ttl_s, 600);
    assert_int_equal(c.detached_ttl_s, 600);
    assert_int_equal(c.idle_ttl_s, 0);
    assert_int_equal(c.env_policy.inherit, SP_ENV_ALL);
    assert_true(c.env_policy.ignores_default_excludes);
    assert_int_equal(c.env_policy.exclude_count + c.env_policy.include_only_count + c.env_set.count,
                     0);
}

static void test_every_key_goes_where_it_belongs(void **state)
{
    auto_config struct sp_config c =
        load("default_permissions = 'read-only'\napproval_policy = 'never'\n"
             "approver = 'program:/bin/ask'\napproval_timeout_s = 30\naudit_log = '~/audit'\n"
             "known_safe = 'off'\nretry_reuses_approval = true\nretry_on_heuristic = false\n"
             "trusted_projects = ['/p', '~/q']\nignore_user_and_project_rules = true\n"
             "preserve_line_endings = true\n"
             "server = 'ws://127.0.0.1:8765'\ntoken_file = '/t'\nallow_login_shell = false\n"
             "poll_max_ms = 6000\ntool_output_token_limit = 5\nnotify_at = 60\n"
             "report_denied_start = false\nexited_ttl_s = 1\ndetached_ttl_s = 2\nidle_ttl_s = 3\n"
             "[features]\nexec_permission_approvals = true\nwrite_stdin_no_timeout = true\n"
             "unified_exec = true\nshell_snapshot = true\n"
             "[shell_environment_policy]\ninherit = 'core'\nignore_default_excludes = false\n"
             "exclude = ['AWS_*']\ninclude_only = ['A', 'B?']\nset = {CI = '1', EMPTY = ''}\n"
             "[sandbox]\nisolation = 'session'\nprotected_names = ['.git']\n");
    char path[96];

    (void)state;
    assert_string_equal(c.path, test_file);
    assert_string_equal(c.default_permissions, "read-only");
    assert_string_equal(c.approval_policy, "never");
    assert_string_equal(c.approvers[0], "program:/bin/ask");
    assert_null(c.approvers[1]);
    assert_int_equal(c.approval_timeout_s, 30);
    (void)snprintf(path, sizeof path, "%s/audit", test_home);
    assert_string_equal(c.audit_log, path);
    assert_string_equal(c.known_safe, "off");
    assert_true(c.retry_reuses_approval && c.ignore_user_and_project_rules);
    assert_true(c.preserve_line_endings);
    assert_false(c.retry_on_heuristic || c.allow_login_shell || c.report_denied_start);
    assert_string_equal(c.trusted_projects[0], "/p");
    (void)snprintf(path, sizeof path, "%s/q", test_home);
    assert_string_equal(c.trusted_projects[1], path);
    assert_null(c.trusted_projects[2]);
    assert_string_equal(c.server, "ws://127.0.0.1:8765");
    assert_string_equal(c.token_file, "/t");
    assert_int_equal(c.poll_max_ms, 6000);
    assert_int_equal(c.tool_output_token_limit, 5);
    assert_int_equal(c.notify_at, 60);
    assert_int_equal(c.exited_ttl_s * 100 + c.detached_ttl_s * 10 + c.idle_ttl_s, 123);
    assert_true(c.has_exec_permission_approvals && c.has_write_stdin_no_timeout &&
                c.has_unified_exec && c.has_shell_snapshot);
    assert_int_equal(c.env_policy.inherit, SP_ENV_CORE);
    assert_false(c.env_policy.ignores_default_excludes);
    assert_int_equal(c.env_policy.exclude_count, 1);
    assert_true(sp_str_eq(c.env_policy.exclude[0], SP_STR("AWS_*")));
    assert_int_equal(c.env_policy.include_only_count, 2);
    assert_true(sp_str_eq(c.env_policy.include_only[1], SP_STR("B?")));
    assert_int_equal(c.env_set.count, 2);
    assert_true(sp_str_eq(c.env_set.items[0].name, SP_STR("CI")));
    assert_true(sp_str_eq(c.env_set.items[1].value, SP_STR("")));
}

static void test_what_is_wrong_is_refused_with_its_place(void **state)
{
    (void)state;
    refused("pol_max_ms = 1\n",
            ": line 1, column 1: unknown key `pol_max_ms` at the top; did you mean `poll_max_ms`?");
    refused("\n[features]\nunified = true\n",
            ": line 3, column 1: unknown key `unified` in features");
    refused("foo = 1\n", ": line 1, column 1: unknown key `foo` at the top");
    refused("poll_max_ms = '1'\n",
            ": line 1, column 15: `poll_max_ms`: expected an integer, not a string");
    refused("poll_max_ms = -1\n", ": line 1, column 15: `poll_max_ms`: expected an integer from 0");
    refused("notify_at = 4294967296\n",
            ": line 1, column 13: `notify_at`: expected an integer from");
    refused("retry_on_heuristic = 1\n",
            ": line 1, column 22: `retry_on_heuristic`: expected true or");
    refused("features = 1\n", ": line 1, column 12: `features`: expected a table, not an integer");
    refused("known_safe = 'all'\n",
            ": line 1, column 14: `known_safe`: expected `off`, `list` or `list+git`, not `all`");
    refused("trusted_projects = ['a']\n",
            ": line 1, column 21: expected an absolute path or `~/...`");
    refused("trusted_projects = '/a'\n",
            ": line 1, column 20: `trusted_projects`: expected an array");
    refused("trusted_projects = [1]\n",
            ": line 1, column 21: `trusted_projects`: expected a string");
    refused("token_file = 'a'\n", ": line 1, column 14: expected an absolute path");
    refused("server = \"a\\u0000\"\n", ": line 1, column 10: a string with a NUL");
    refused("approval_policy = 'x'\n",
            ": line 1, column 19: `approval_policy`: expected `untrusted`");
    refused("approval_policy = '{\"granular\":1}'\n",
            ": line 1, column 19: `approval_policy`: expected");
    refused("approval_policy = '{'\n", ": line 1, column 19: `approval_policy`: EOF");
    refused("approver = 'program:ask'\n",
            ": line 1, column 12: `approver`: `program:ask` is not `deny`, "
            "`terminal`, `client`, `console` or `program:/PATH`");
    refused("default_permissions = 'build'\n",
            ": line 1, column 23: `default_permissions`: there is no profile `build`");
    refused("default_environment = 'far'\n",
            ": line 1, column 23: `default_environment`: there is no environment `far`");
    refused("server = 'http://x'\n", ": line 1, column 10: `server`: expected ws://");
    refused("[shell_environment_policy]\ninherit = 'some'\n",
            ": line 2, column 11: `inherit`: expected `all`, `core` or `none`, not `some`");
    refused("[shell_environment_policy.set]\n'a=b' = ''\n",
            ": line 2, column 1: `set`: a variable's");
    refused("[sandbox]\nprotected_names = ['.git', '.vscode']\n",
            ": line 2, column 28: `protected_names`: this version");
    refused("[sandbox]\nisolation = 'command'\n", ": line 2, column 13: `isolation`: this version");
    refused("a = \n", ": line 1, column 5: expected a value");
}

static void test_a_granular_policy_is_kept_as_json(void **state)
{
    auto_config struct sp_config c = load("approval_policy = '{\"granular\":{\"rules\":true}}'\n");

    (void)state;
    assert_string_equal(c.approval_policy, "{\"granular\":{\"rules\":true}}");
}

static void test_a_small_poll_limit_is_raised(void **state)
{
    auto_config struct sp_config c = load("poll_max_ms = 1000\n");

    (void)state;
    assert_int_equal(c.poll_max_ms, 5000);
}

/* ---- layers ---- */

static void test_a_flag_wins_over_the_environment_and_that_over_the_file(void **state)
{
    const char *const sets[] = {"exited_ttl_s=3", "features.unified_exec=true",
                                "environments.far.cwd='/x'", NULL};
    auto_config struct sp_config file = load("exited_ttl_s = 1\n");
    struct sp_err e = {0};

    (void)state;
    write_file(test_file,
               "exited_ttl_s = 1\n[features]\nshell_snapshot = true\n[environments.far]\n"
               "url = 'unix:///s'\n",
               0600);
    assert_int_equal(file.exited_ttl_s, 1);
    {
        auto_config struct sp_config c = {0};
        assert_int_equal(load_with("SALLYPORT_EXITED_TTL_S=2", NULL, &c, &e), 0);
        assert_int_equal(c.exited_ttl_s, 2);
    }
    auto_config struct sp_config c = {0};
    assert_int_equal(load_with("SALLYPORT_EXITED_TTL_S=2", sets, &c, &e), 0);
    assert_int_equal(c.exited_ttl_s, 3);
    assert_true(c.has_unified_exec && c.has_shell_snapshot); /* a table is added to */
    assert_string_equal(c.environments[0].url, "unix:///s");
    assert_string_equal(c.environments[0].cwd, "/x");
}

static void environment_is_refused(const char *variable, const char *why)
{
    struct sp_config c = {0};
    struct sp_err e = {0};

    assert_int_equal(load_with(variable, NULL, &c, &e), -SP_E_INVALID);
    if (strncmp(e.msg, why, strlen(why)) != 0)
        fail_msg("%s\nsaid: %s\nwant: %s", variable, e.msg, why);
}

static void test_the_environment_speaks_by_type(void **state)
{
    struct sp_err e = {0};

    (void)state;
    {
        auto_config struct sp_config c = {0};
        assert_int_equal(load_with("SALLYPORT_SERVER=ws://h:1/\"x\"", NULL, &c, &e), 0);
        assert_string_equal(c.server, "ws://h:1/\"x\"");
    }
    {
        auto_config struct sp_config c = {0};
        assert_int_equal(load_with("SALLYPORT_RETRY_ON_HEURISTIC=false", NULL, &c, &e), 0);
        assert_false(c.retry_on_heuristic);
    }
    {
        auto_config struct sp_config c = {0};
        assert_int_equal(load_with("SALLYPORT_POLL_MAX_MS=", NULL, &c, &e), 0); /* as if not set */
        assert_int_equal(c.poll_max_ms, 300000);
    }
    environment_is_refused(
        "SALLYPORT_POLL_MAX_MS=soon",
        "$SALLYPORT_POLL_MAX_MS: `poll_max_ms`: expected an integer, not a string");
    environment_is_refused(
        "SALLYPORT_POLL_MAX_MS=1\nserver='x'",
        "$SALLYPORT_POLL_MAX_MS: `poll_max_ms`: expected an integer, not a string");
    environment_is_refused("SALLYPORT_SERVER=\xff", "$SALLYPORT_SERVER is not UTF-8");
    environment_is_refused("SALLYPORT_CONFIG=sallyport.conf",
                           "$SALLYPORT_CONFIG: expected an absolute path");
    environment_is_refused("SALLYPORT_CONFIG=/nowhere/x",
                           "$SALLYPORT_CONFIG: there is no file /nowhere/x");
}

static void set_is_refused(const char *set, const char *why)
{
    const char *const sets[] = {set, NULL};
    struct sp_config c = {0};
    struct sp_err e = {0};

    assert_int_equal(load_with(NULL, sets, &c, &e), -SP_E_INVALID);
    if (strncmp(e.msg, why, strlen(why)) != 0)
        fail_msg("%s\nsaid: %s\nwant: %s", set, e.msg, why);
}

static void test_a_set_that_is_wrong_is_named(void **state)
{
    (void)state;
    set_is_refused("", "--set : expected one KEY=VALUE");
    set_is_refused("server", "--set server: line 1, column 7: expected `=`");
    set_is_refused("server=ws://x", "--set server: line 1, column 8: expected a value (a string");
    set_is_refused("servre='x'",
                   "--set servre: line 1, column 1: unknown key `servre` at the top; did");
    set_is_refused("exited_ttl_s=1\nidle_ttl_s=2", "--set exited_ttl_s=1");
    set_is_refused("features=true",
                   "--set features: line 1, column 10: `features`: expected a table");
}

/* ---- the file ---- */

static void test_a_file_of_others_is_not_trusted(void **state)
{
    struct sp_config c = {0};
    struct sp_err e = {0};

    (void)state;
    write_file(test_file, "", 0620);
    assert_int_equal(load_with(NULL, NULL, &c, &e), -SP_E_INVALID);
    assert_non_null(strstr(e.msg, "others may write it (mode 0620)"));
    write_file(test_file, "", 0602);
    assert_int_equal(load_with(NULL, NULL, &c, &e), -SP_E_INVALID);
    write_file(test_file, "", 0644);
    assert_int_equal(load_with(NULL, NULL, &c, &e), 0);
    sp_config_done(&c);
    if (geteuid() != 0)
        return;
    assert_int_equal(chown(test_file, 12345, 0), 0);
    assert_int_equal(load_with(NULL, NULL, &c, &e), -SP_E_INVALID);
    assert_non_null(strstr(e.msg, "belongs to user 12345"));
}

static void test_what_is_no_file_is_refused_at_once(void **state)
{
    struct sp_config c = {0};
    struct sp_err e = {0};

    (void)state;
    assert_int_equal(mkfifo(test_file, 0600), 0);
    assert_int_equal(load_with(NULL, NULL, &c, &e), -SP_E_INVALID);
    assert_non_null(strstr(e.msg, "not a regular file"));
}

static void test_the_file_that_is_asked_for_is_read_alone(void **state)
{
    struct sp_err e = {0};
    char other[96];
    char named[128];
    struct sp_config_request ask = {.file = other};

    (void)state;
    (void)snprintf(other, sizeof other, "%s/other", test_home);
    (void)snprintf(named, sizeof named, "SALLYPORT_CONFIG=%s", test_file);
    char *environment[] = {test_variables[1], named, NULL};
    ask.env = environment;
    write_file(test_file, "exited_ttl_s = 1\nidle_ttl_s = 1\n", 0600);
    struct sp_config c = {0};
    assert_int_equal(sp_config_load(&ask, &c, &e), -SP_E_INVALID);
    assert_non_null(strstr(e.msg, "--config: there is no file"));
    write_file(other, "exited_ttl_s = 2\n", 0600);
    assert_int_equal(sp_config_load(&ask, &c, &e), 0);
    assert_int_equal(c.exited_ttl_s, 2);
    assert_int_equal(c.idle_ttl_s, 0);
    assert_string_equal(c.path, other);
    sp_config_done(&c);
    assert_int_equal(unlink(other), 0);

    ask.file = "/dev/null"; /* none, though there is one */
    assert_int_equal(sp_config_load(&ask, &c, &e), 0);
    assert_int_equal(c.exited_ttl_s, 600);
    assert_null(c.path);
    sp_config_done(&c);
}

static void test_a_file_of_the_project_is_not_looked_for(void **state)
{
    char before[PATH_MAX];
    char *environment[] = {NULL};
    const struct sp_config_request ask = {.env = environment};
    auto_config struct sp_config c = {0};
    struct sp_err e = {0};

    (void)state;
    write_file(test_file, "exited_ttl_s = 1\n", 0600);
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(test_home), 0);
    const int r = sp_config_load(&ask, &c, &e);
    assert_int_equal(chdir(before), 0);
    assert_int_equal(r, 0);
    assert_int_equal(c.exited_ttl_s, 600);
    assert_null(c.home);
}

/* ---- tokens ---- */

static void token_is_refused(const char *text, mode_t mode, const char *why)
{
    char *token = NULL;
    struct sp_err e = {0};

    write_file(test_file, text, mode);
    assert_int_equal(sp_config_read_token(test_file, &token, &e), -SP_E_INVALID);
    assert_non_null(strstr(e.msg, why));
    assert_null(token);
}

static void test_a_token_is_one_line_for_its_owner_alone(void **state)
{
    char *token = NULL;
    char large[9000];
    struct sp_err e = {0};

    (void)state;
    write_file(test_file, "s3cret-._~+/=\r\n", 0600);
    assert_int_equal(sp_config_read_token(test_file, &token, &e), 0);
    assert_string_equal(token, "s3cret-._~+/=");
    free(token);
    write_file(test_file, "x", 0400);
    assert_int_equal(sp_config_read_token(test_file, &token, &e), 0);
    free(token);
    token_is_refused("x", 0640, "chmod 600");
    token_is_refused("x", 0604, "chmod 600");
    token_is_refused("\n", 0600, "no token");
    token_is_refused("", 0600, "no token");
    token_is_refused("a\nb\n", 0600, "one line");
    token_is_refused("a b\n", 0600, "one line");
    token_is_refused("\xc3\xa9\n", 0600, "one line");
    memset(large, 'x', sizeof large - 1);
    large[sizeof large - 1] = 0;
    token_is_refused(large, 0600, "more than 8192 bytes");
    assert_int_equal(unlink(test_file), 0);
    assert_int_equal(sp_config_read_token(test_file, &token, &e), -SP_E_INVALID);
    assert_int_equal(e.sys, ENOENT);
}

/* ---- environments and places ---- */

static const char three_places[] =
    "server = 'ws://box:1'\ntoken_file = '~/sallyport.conf'\n"
    "[environments.far]\nurl = 'wss://box.example:443/x'\nconnect_timeout_s = 2.5\ncwd = '/w'\n"
    "[environments.near_1]\nprogram = 'ssh'\nargs = ['box', 'sallyport']\nenv = {A = '1', B = ''}\n"
    "[environments.box]\nurl = 'ws://box:2'\ntoken_file = '~/sallyport.conf'\n";

static void test_an_environment_is_a_url_or_a_program(void **state)
{
    auto_config struct sp_config c = load(three_places);
    const struct sp_config_environment *far = sp_config_find_environment(&c, "far");
    const struct sp_config_environment *near = sp_config_find_environment(&c, "near_1");

    (void)state;
    assert_int_equal(c.environment_count, 3);
    assert_null(sp_config_find_environment(&c, "local"));
    assert_string_equal(far->url, "wss://box.example:443/x");
    assert_int_equal(far->connect_timeout_ms, 2500);
    assert_string_equal(far->cwd, "/w");
    assert_null(far->program);
    assert_null(far->env);
    assert_null(near->url);
    assert_string_equal(near->program[0], "ssh");
    assert_string_equal(near->program[2], "sallyport");
    assert_null(near->program[3]);
    assert_string_equal(near->env[0], "A=1");
    assert_string_equal(near->env[1], "B=");
    assert_null(near->env[2]);
    assert_int_equal(near->connect_timeout_ms, 10000);
}

/* `server` may be named by its URL or as an environment: its token is the same. */
static void test_the_token_at_the_top_is_for_the_server_however_it_is_named(void **state)
{
    auto_config struct sp_config c = load("server = 'box'\ntoken_file = '~/token'\n"
                                          "[environments.box]\nurl = 'ws://box:2'\n"
                                          "[environments.other]\nurl = 'ws://other:2'\n");
    char file[96];
    struct sp_config_place p = {0};

    (void)state;
    (void)snprintf(file, sizeof file, "%s/token", test_home);
    write_file(file, "t\n", 0600);
    assert_int_equal(sp_config_place(&c, "box", &p, NULL), 0);
    assert_string_equal(p.token, "t");
    sp_config_place_done(&p);
    assert_int_equal(sp_config_place(&c, "ws://box:2", &p, NULL), 0);
    assert_string_equal(p.token, "t");
    sp_config_place_done(&p);
    assert_int_equal(sp_config_place(&c, "other", &p, NULL), 0);
    assert_null(p.token);
    assert_int_equal(unlink(file), 0);
}

static void test_an_environment_that_is_wrong_is_refused(void **state)
{
    (void)state;
    refused("[environments.local]\nurl='ws://x'\n", ": line 1, column 15: `local` is this host");
    refused("[environments.'a b']\nurl='ws://x'\n",
            ": line 1, column 15: the name of an environment");
    refused("[environments.a]\n", ": line 1, column 15: environment `a`: give `url` or `program`");
    refused("[environments.a]\nurl='ws://x'\nprogram='x'\n",
            ": line 1, column 15: environment `a`: give `url` or `program`, not both");
    refused("[environments.a]\nurl='ws://x'\nargs=['x']\n",
            ": line 1, column 15: environment `a`: `args`");
    refused("[environments.a]\nprogram='x'\ntoken_file='/x'\n",
            ": line 1, column 15: environment `a`: `token_file`");
    refused("[environments.a]\nprogram='./x'\n",
            ": line 2, column 9: `program`: expected an absolute");
    refused("[environments.a]\nprogram=''\n",
            ": line 2, column 9: `program`: expected an absolute");
    refused("[environments.a]\nurl='http://x'\n", ": line 2, column 5: `url`: expected ws://");
    refused("[environments.a]\nurl='ws://'\n", ": line 2, column 5: `url`: expected a host");
    refused("[environments.a]\nurl='ws://u@h'\n", ": line 2, column 5: `url`: a character");
    refused("[environments.a]\nurl='ws://h:0'\n", ": line 2, column 5: `url`: expected a port");
    refused("[environments.a]\nurl='ws://h:65536/'\n",
            ": line 2, column 5: `url`: expected a port");
    refused("[environments.a]\nurl='ws://[::1'\n", ": line 2, column 5: `url`: expected a host");
    refused("[environments.a]\nurl='ws://h x'\n", ": line 2, column 5: `url`: blanks");
    refused("[environments.a]\nurl='unix://x'\n",
            ": line 2, column 5: `url`: expected unix:///PATH");
    refused("[environments.a]\nurl='unix:///x'\ncwd='x'\n",
            ": line 3, column 5: `cwd`: expected an abs");
    refused("[environments.a]\nurl='ws://[::1]:9'\nconnect_timeout_s=0\n",
            ": line 3, column 19: `connect_timeout_s`: expected seconds");
    refused("[environments.a]\nurl='ws://x'\nconnect_timeout_s=nan\n",
            ": line 3, column 19: `connect_timeout_s`: expected seconds");
    refused("[environments.a]\nprogram='x'\nenv={A=1}\n",
            ": line 3, column 8: `env`: expected a string");
    refused("[environments.a]\nprogram='x'\nenv={'A=B'='1'}\n",
            ": line 3, column 6: `env`: a variable's");
    refused("[environments]\na=1\n", ": line 2, column 3: environment `a`: expected a table");
}

static void test_a_place_is_found_by_name_and_by_url(void **state)
{
    auto_config struct sp_config c = load(three_places);
    struct sp_config_place p = {0};
    struct sp_err e = {0};

    (void)state;
    write_file(test_file, "token", 0600); /* named as the token's file, too */
    assert_int_equal(sp_config_place(&c, NULL, &p, &e), 0);
    assert_true(p.is_local);
    assert_int_equal(sp_config_place(&c, "far", &p, &e), 0);
    assert_false(p.is_local);
    assert_string_equal(p.url, "wss://box.example:443/x");
    assert_null(p.token);
    assert_int_equal(sp_config_place(&c, "near_1", &p, &e), 0);
    assert_null(p.url);
    assert_string_equal(p.program[1], "box");
    assert_int_equal(sp_config_place(&c, "ws://box:2", &p, &e), 0); /* known by its URL */
    assert_string_equal(p.name, "box");
    assert_string_equal(p.token, "token");
    sp_config_place_done(&p);
    assert_int_equal(sp_config_place(&c, "ws://box:1", &p, &e), 0);
    assert_string_equal(p.token, "token");
    sp_config_place_done(&p);
    assert_int_equal(sp_config_place(&c, "ws://elsewhere:1", &p, &e), 0);
    assert_null(p.token); /* goes to nobody else */
    assert_int_equal(p.connect_timeout_ms, 10000);
    sp_config_place_done(&p);
    assert_int_equal(sp_config_place(&c, "nowhere", &p, &e), -SP_E_NOT_FOUND);
    assert_non_null(strstr(e.msg, "there are local, far, near_1, box"));
    assert_int_equal(sp_config_place(&c, "http://x", &p, &e), -SP_E_INVALID);
}

#define AT_HOME(test) cmocka_unit_test_setup_teardown(test, make_home, drop_home)

static const struct CMUnitTest tests[] = {
    AT_HOME(test_without_a_file_there_are_defaults),
    AT_HOME(test_every_key_goes_where_it_belongs),
    AT_HOME(test_what_is_wrong_is_refused_with_its_place),
    AT_HOME(test_a_granular_policy_is_kept_as_json),
    AT_HOME(test_a_small_poll_limit_is_raised),
    AT_HOME(test_a_flag_wins_over_the_environment_and_that_over_the_file),
    AT_HOME(test_the_environment_speaks_by_type),
    AT_HOME(test_a_set_that_is_wrong_is_named),
    AT_HOME(test_a_file_of_others_is_not_trusted),
    AT_HOME(test_what_is_no_file_is_refused_at_once),
    AT_HOME(test_the_file_that_is_asked_for_is_read_alone),
    AT_HOME(test_a_file_of_the_project_is_not_looked_for),
    AT_HOME(test_a_token_is_one_line_for_its_owner_alone),
    AT_HOME(test_an_environment_is_a_url_or_a_program),
    AT_HOME(test_the_token_at_the_top_is_for_the_server_however_it_is_named),
    AT_HOME(test_an_environment_that_is_wrong_is_refused),
    AT_HOME(test_a_place_is_found_by_name_and_by_url),
};

TEST_MAIN(tests)
