/* SPDX-License-Identifier: Apache-2.0 */
/* A call that comes twice acts once: keys of starts and ids of writes; and memory that ends. */
#include "manager_state.h"
#include "mcp_tools_fixture.h"
#include "memory_fixture.h"

static char *counted(const char *what)
{
    static char text[512];

    (void)snprintf(text, sizeof text, "{\"argv\":[\"sh\",\"-c\",\"%s\"],\"yield_time_ms\":20000,%s",
                   what, "\"key\":\"k\"}");
    return text;
}

static void test_a_key_starts_one_session(void **state)
{
    auto_called struct called c = {0};

    (void)state;
    call(&c, "exec_command",
         "{\"argv\":[\"sh\",\"-c\",\"echo one; sleep 300\"],\"key\":\"k\",\"yield_time_ms\":500}");
    assert_has(c.json, "\"session_id\":1000");
    call(&c, "exec_command", "{\"argv\":[\"sh\",\"-c\",\"echo two\"],\"key\":\"k\"}");
    assert_true(c.is_error);
    assert_has(c.text, "belongs to an earlier call with another command");
    call(&c, "exec_command",
         "{\"argv\":[\"sh\",\"-c\",\"echo one; sleep "
         "300\"],\"key\":\"k\",\"until\":{\"quiet_ms\":100}}");
    assert_false(c.is_error);
    assert_has(c.json, "\"session_id\":1000");
    assert_has(c.json, "\"from_byte\":4,\"next_byte\":4");
    assert_int_equal(sp_manager_stored(caller->manager), 1);
    call(&c, "exec_command", "{\"argv\":[\"true\"],\"key\":\"other\"}");
    assert_has(c.json, "\"exit_code\":0");
}

static void test_a_key_answers_after_the_end(void **state)
{
    auto_called struct called c = {0};

    (void)state;
    call(&c, "exec_command", counted("echo once; exit 4"));
    assert_has(c.json, "\"exit_code\":4");
    call(&c, "exec_command", counted("echo once; exit 4"));
    assert_false(c.is_error);
    assert_has(c.text, "Process exited with code 4\n");
    assert_has(c.json, "\"exit_code\":4");
    assert_has(c.json, "\"output\":\"once\\n\"");
    assert_has(c.json, "\"from_byte\":0,\"next_byte\":5");
    assert_hasnt(c.json, "chunk_id");
}

static void test_a_key_of_a_call_that_runs_leads_to_its_session(void **state)
{
    auto_called struct called a = {0};
    auto_called struct called b = {0};
    auto_called struct called d = {0};

    (void)state;
    begin_call(&a, "exec_command", counted("echo $$; sleep 300"));
    begin_call(&b, "exec_command", counted("echo $$; sleep 300"));
    begin_call(&d, "exec_command", counted("echo $$; sleep 300"));
    await(a.session_id != 0);
    run_for(500);
    assert_int_equal(sp_manager_reserved(caller->manager), 1);
    sp_mcp_run_answer_now(a.run);
    await(a.is_there);
    sp_mcp_run_answer_now(b.run);
    await(b.is_there);
    assert_has(a.json, "\"session_id\":1000");
    assert_has(b.json, "\"session_id\":1000");
    sp_mcp_run_answer_now(d.run);
    await(d.is_there);
    assert_has(d.json, "\"session_id\":1000");
}

static void test_a_cancelled_start_leaves_its_key_to_the_next(void **state)
{
    auto_called struct called a = {0};
    auto_called struct called b = {0};

    (void)state;
    begin_call(&a, "exec_command", counted("echo one"));
    begin_call(&b, "exec_command", counted("echo one"));
    sp_mcp_run_cancel(a.run);
    a.run = NULL;
    await(b.is_there);
    assert_has(b.json, "\"output\":\"one\\n\"");
    assert_false(a.is_there);
}

static void test_who_waited_and_was_cancelled_starts_nothing(void **state)
{
    auto_called struct called a = {0};
    auto_called struct called b = {0};

    (void)state;
    begin_call(&a, "exec_command", counted("echo one"));
    begin_call(&b, "exec_command", counted("echo one"));
    sp_mcp_run_cancel(a.run);
    sp_mcp_run_cancel(b.run);
    a.run = b.run = NULL;
    run_for(300);
    assert_int_equal(sp_manager_reserved(caller->manager), 0);
    assert_int_equal(caller->run_count, 0);
    call(&a, "list_sessions", "");
    assert_string_equal(a.json, "{\"sessions\":[]}");
}

static void test_a_refused_start_refuses_those_who_wait_and_forgets_its_key(void **state)
{
    static const char bad[] = "{\"cmd\":\"true\",\"workdir\":\"/site/none\",\"key\":\"k\"}";
    auto_called struct called a = {0};
    auto_called struct called b = {0};

    (void)state;
    begin_call(&a, "exec_command", bad);
    begin_call(&b, "exec_command", bad);
    await(a.is_there && b.is_there);
    assert_true(a.is_error && b.is_error);
    assert_string_equal(a.text, b.text);
    call(&a, "exec_command", counted("echo now"));
    assert_has(a.json, "\"output\":\"now\\n\"");
}

/* Of a parked call nobody knows when its answer comes: nobody waits for it. */
static void test_a_parked_start_is_not_waited_for(void **state)
{
    auto_called struct called a = {0};
    auto_called struct called b = {0};

    (void)state;
    begin_call(&a, "exec_command", counted("echo one"));
    sp_mcp_run_attach(a.run, NULL, NULL);
    begin_call(&b, "exec_command", counted("echo one"));
    await(b.is_there);
    assert_has(b.text, "waits for an approval");
    sp_mcp_run_attach(a.run, &run_ops, &a);
}

static void test_who_waits_for_a_key_can_be_hurried(void **state)
{
    auto_called struct called a = {0};
    auto_called struct called b = {0};

    (void)state;
    begin_call(&a, "exec_command", counted("echo one"));
    begin_call(&b, "exec_command", counted("echo one"));
    assert_non_null(b.run->hurry);
    b.run->hurry(b.run);
    assert_has(b.text, "repeat the same call");
    await(a.is_there);
    assert_has(a.json, "\"output\":\"one\\n\"");
}

static void test_a_write_id_types_once(void **state)
{
    static const char text[] = "{\"session_id\":1000,\"chars\":\"hi\\n\",\"write_id\":\"w\","
                               "\"until\":{\"quiet_ms\":200},\"yield_time_ms\":5000}";
    auto_called struct called c = {0};

    (void)state;
    call(&c, "exec_command", "{\"argv\":[\"cat\"],\"tty\":true,\"yield_time_ms\":250}");
    call(&c, "write_stdin", text);
    assert_has(c.json, "\"output\":\"hi\\r\\nhi\\r\\n\"");
    call(&c, "write_stdin", text);
    assert_has(c.json, "\"output\":\"\"");
    assert_has(c.json, "\"woken_by\":{\"quiet_ms\":200}");
    call(&c, "exec_command", "{\"argv\":[\"cat\"],\"tty\":true,\"yield_time_ms\":250}");
    call(&c, "write_stdin", "{\"session_id\":1001,\"chars\":\"hi\\n\",\"write_id\":\"w\"}");
    assert_has(c.json, "\"output\":\"hi\\r\\n");
}

static void test_a_write_that_failed_may_be_said_again(void **state)
{
    static const char text[] = "{\"session_id\":1000,\"chars\":\"hi\\n\",\"write_id\":\"w\"}";
    auto_called struct called c = {0};

    (void)state;
    call(&c, "exec_command", "{\"argv\":[\"sleep\",\"300\"],\"yield_time_ms\":250}");
    for (int i = 0; i < 2; i++)
        assert_fails(&c, "write_stdin", text, "stdin is closed for this session");
}

static void test_a_write_that_was_cancelled_in_time_may_be_said_again(void **state)
{
    static const char text[] = "{\"session_id\":1000,\"chars\":\"hi\\n\",\"write_id\":\"w\","
                               "\"until\":{\"quiet_ms\":200},\"yield_time_ms\":5000}";
    auto_called struct called c = {0};

    (void)state;
    call(&c, "exec_command", "{\"argv\":[\"cat\"],\"tty\":true,\"yield_time_ms\":250}");
    end_call(&c);
    begin_call(&c, "write_stdin", text);
    sp_mcp_run_cancel(c.run); /* before the loop has begun it */
    c.run = NULL;
    run_for(50);
    call(&c, "write_stdin", text);
    assert_has(c.json, "\"output\":\"hi\\r\\nhi\\r\\n\"");
}

/* ---- what is remembered ---- */

static void test_only_so_many_are_remembered(void **state)
{
    struct sp_mcp_key *i = NULL;
    struct sp_mcp_key *busy = NULL;
    struct sp_mcp_run run = {0};
    struct sp_err e = {0};
    bool is_new = false;
    char id[SP_MCP_KEY_BYTES_MAX + 1];

    (void)state;
    memset(id, 'x', sizeof id);
    assert_int_equal(sp_mcp_key_take(caller, 0, (struct sp_str){id, sizeof id}, &i, &is_new, &e),
                     -SP_E_INVALID);
    assert_int_equal(sp_mcp_key_take(caller, 0, SP_STR("busy"), &busy, &is_new, &e), 0);
    busy->run = &run;
    for (int k = 0; k < 2 * SP_MCP_KEYS_MAX; k++) {
        const int n = snprintf(id, sizeof id, "%d", k);

        assert_int_equal(
            sp_mcp_key_take(caller, 0, (struct sp_str){id, (size_t)n}, &i, &is_new, &e), 0);
        assert_true(is_new);
    }
    assert_int_equal(sp_mcp_key_take(caller, 0, SP_STR("busy"), &i, &is_new, &e), 0);
    assert_false(is_new);
    assert_ptr_equal(i, busy);
    assert_int_equal(sp_mcp_key_take(caller, 0, SP_STR("2047"), &i, &is_new, &e), 0);
    assert_false(is_new);
    assert_int_equal(sp_mcp_key_take(caller, 1000, SP_STR("2047"), &i, &is_new, &e), 0);
    assert_true(is_new);
    assert_int_equal(sp_mcp_key_take(caller, 0, SP_STR("0"), &i, &is_new, &e), 0);
    assert_true(is_new);
    i->due_ms = 0; /* long ago, but behind younger ones */
    busy->due_ms = 0;
    assert_int_equal(sp_mcp_key_take(caller, 0, SP_STR("0"), &i, &is_new, &e), 0);
    assert_false(is_new);
    busy->run = NULL;
}

static void test_all_under_way_is_a_limit(void **state)
{
    struct sp_mcp_key *i = NULL;
    struct sp_mcp_run run = {0};
    struct sp_err e = {0};
    bool is_new = false;
    char id[16];

    (void)state;
    for (int k = 0; k < SP_MCP_KEYS_MAX; k++) {
        const int n = snprintf(id, sizeof id, "%d", k);

        assert_int_equal(
            sp_mcp_key_take(caller, 0, (struct sp_str){id, (size_t)n}, &i, &is_new, &e), 0);
        i->run = &run;
    }
    assert_int_equal(sp_mcp_key_take(caller, 0, SP_STR("more"), &i, &is_new, &e), -SP_E_LIMIT);
    assert_has(e.msg, "wait for some of them");
}

/* ---- memory that ends ---- */

/* Wherever it ends, a call that was begun is answered, and nothing is left. */
static void starve(const char *tool, const char *arguments, long most)
{
    for (long n = 1; n < most; n++) {
        struct sp_err e = {0};
        struct called c;

        end_memory_at(n);
        const int r = try_call(&c, tool, arguments, &e);
        if (r < 0) {
            assert_true(did_memory_end());
            assert_int_equal(r, -SP_E_SYSTEM);
            continue;
        }
        const bool has_ended = did_memory_end();
        await(c.is_there);
        end_call(&c);
        if (!has_ended)
            return;
    }
    fail_msg("%s never had enough", tool);
}

static void test_calls_begin_whole_or_not_at_all(void **state)
{
    auto_called struct called c = {0};

    (void)state;
    call(&c, "exec_command", "{\"argv\":[\"sleep\",\"300\"],\"yield_time_ms\":250}");
    starve("list_sessions", "{}", 100);
    starve("read_output", "{\"session_id\":1000}", 100);
    starve("signal_session", "{\"session_id\":1000,\"signal\":\"CONT\"}", 100);
    starve("resize_session", "{\"session_id\":1000,\"rows\":1,\"cols\":1}", 100);
    starve("explain_denial", "{\"session_id\":1000}", 100);
    starve("explain_denial", "{\"path\":\"/\"}", 100);
    starve("explain_denial", "{\"host\":\"x\"}", 100);
    starve("apply_patch", "{\"input\":\"x\"}", 100);
    starve("write_stdin", "{\"session_id\":1000,\"chars\":\"x\",\"write_id\":\"w\"}", 100);
    starve("exec_command",
           "{\"argv\":[\"true\"],\"env\":{\"a\":\"b\"},\"until\":{\"exit\":true},\"key\":\"k\"}",
           100);
}

static void test_a_policy_is_explained_whole_or_not_at_all(void **state)
{
    const struct sp_legacy read_only = {.mode = SP_MODE_READ_ONLY};
    struct sp_policy policy = {.cwd_is_root = true, .cwd = strdup("/")};
    struct sp_err e = {0};

    (void)state;
    assert_int_equal(sp_profile_from_legacy(&read_only, &policy.profile, &e), 0);
    end_server();
    manager_options.policy = &policy;
    make_server();
    starve("explain_denial", "{\"path\":\"/usr/bin\"}", 5000);
    starve("explain_denial", "{\"host\":\"x\"}", 100);
    end_server();
    manager_options.policy = NULL;
    make_server();
    sp_policy_done(&policy);
}

/* Wherever it ends later: every call is answered, be it that there is no memory. */
static unsigned starve_later(const char *tool, const char *arguments, long most)
{
    unsigned failed = 0;

    for (long n = 1; n < most; n++) {
        struct sp_timer guard = {0};
        struct called c;

        begin_call(&c, tool, arguments);
        assert_true(sp_loop_timer(loop, &guard, test_now_ms() + DEADLINE_MS, on_nap));
        is_starving = true;
        end_memory_at(n);
        while (!c.is_there && guard.slot != 0)
            assert_int_equal(sp_loop_run(loop, NULL), 0);
        const bool has_ended = did_memory_end();
        is_starving = false;
        sp_loop_cancel(loop, &guard);
        assert_true(c.is_there);
        failed += c.is_error;
        end_call(&c);
        run_for(1);
        if (!has_ended)
            return failed;
    }
    return failed;
}

static void test_an_answer_without_memory_says_so(void **state)
{
    auto_called struct called c = {0};

    (void)state;
    call(&c, "exec_command", "{\"argv\":[\"cat\"],\"tty\":true,\"yield_time_ms\":250}");
    assert_true(starve_later("list_sessions", "{}", 100) > 0);
    assert_true(starve_later("read_output", "{\"session_id\":1000}", 100) > 0);
    assert_true(starve_later("write_stdin",
                             "{\"session_id\":1000,\"chars\":\"x\",\"yield_time_ms\":250}",
                             100) > 0);
    assert_true(starve_later("resize_session", "{\"session_id\":1000,\"rows\":9,\"cols\":9}", 100) >
                0);
    assert_true(starve_later("exec_command", "{\"argv\":[\"false\"],\"key\":\"k\"}", 60) > 0);
    call(&c, "read_output", "{\"session_id\":1000}");
    assert_false(c.is_error);
}

static const struct CMUnitTest tests[] = {
    tools_test(test_a_key_starts_one_session),
    tools_test(test_a_key_answers_after_the_end),
    tools_test(test_a_key_of_a_call_that_runs_leads_to_its_session),
    tools_test(test_a_cancelled_start_leaves_its_key_to_the_next),
    tools_test(test_who_waited_and_was_cancelled_starts_nothing),
    tools_test(test_a_refused_start_refuses_those_who_wait_and_forgets_its_key),
    tools_test(test_a_parked_start_is_not_waited_for),
    tools_test(test_who_waits_for_a_key_can_be_hurried),
    tools_test(test_a_write_id_types_once),
    tools_test(test_a_write_that_failed_may_be_said_again),
    tools_test(test_a_write_that_was_cancelled_in_time_may_be_said_again),
    tools_test(test_only_so_many_are_remembered),
    tools_test(test_all_under_way_is_a_limit),
    tools_test(test_calls_begin_whole_or_not_at_all),
    tools_test(test_a_policy_is_explained_whole_or_not_at_all),
    tools_test(test_an_answer_without_memory_says_so),
};

TEST_MAIN(tests)
