/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions are listed, signalled and resized; files are patched. */
#include <sys/stat.h>

#include "mcp_tools_fixture.h"

static void test_sessions_are_listed_with_what_they_do(void **state)
{
    auto_called struct called c = {0};

    (void)state;
    call(&c, "list_sessions", "");
    assert_string_equal(c.text, "There are no sessions.\n");
    assert_string_equal(c.json, "{\"sessions\":[]}");
    call(&c, "exec_command", "{\"argv\":[\"sleep\",\"300\"],\"yield_time_ms\":250}");
    call(&c, "exec_command", "{\"argv\":[\"cat\"],\"tty\":true,\"yield_time_ms\":250}");
    call(&c, "exec_command", "{\"argv\":[\"sh\",\"-c\",\"exit 7\"],\"workdir\":\"/tmp\"}");
    call(&c, "list_sessions", "{}");
    assert_has(c.text,
               "1000 sleeping: sleep 300\n1001 reading_terminal tty: cat\n1002 exited (code "
               "7): sh -c 'exit 7'\n");
    assert_has(c.json, "{\"session_id\":1000,\"command\":\"sleep 300\",\"cwd\":\"/\",\"tty\":false,"
                       "\"state\":\"sleeping\",\"started_at_ms\":1");
    assert_has(c.json, "\"cwd\":\"/tmp\",\"tty\":false,\"state\":\"exited\",\"exit_code\":7,");
}

static void test_a_session_is_ended_by_default(void **state)
{
    auto_called struct called c = {0};

    (void)state;
    call(&c, "exec_command", "{\"argv\":[\"sleep\",\"300\"],\"yield_time_ms\":250}");
    call(&c, "signal_session", "{\"session_id\":1000}");
    assert_has(c.text, "State: exited\nProcess exited with code 143\n");
    assert_has(c.json, "{\"state\":\"exited\",\"exit_code\":143,\"signal\":\"SIGTERM\"");
    call(&c, "signal_session", "{\"session_id\":1000}");
    assert_false(c.is_error);
    assert_has(c.json, "\"state\":\"exited\",\"exit_code\":143");
    call(&c, "write_stdin", "{\"session_id\":1000}");
    assert_has(c.json, "\"exit_code\":143");
    call(&c, "signal_session", "{\"session_id\":1000,\"signal\":\"KILL\"}");
    assert_has(c.json, "\"state\":\"exited\",\"exit_code\":143");
}

static void test_who_ignores_the_end_is_killed_with_its_children(void **state)
{
    auto_called struct called c = {0};
    const uint64_t before = test_now_ms();

    (void)state;
    call(&c, "exec_command",
         "{\"argv\":[\"sh\",\"-c\",\"trap '' TERM; echo $$; while :; do sleep 300 & wait; done\"],"
         "\"yield_time_ms\":250,\"until\":{\"pattern\":\"[0-9]\\\\n\"}}");
    call(&c, "signal_session", "{\"session_id\":1000,\"signal\":\"SIGTERM\"}");
    assert_hasnt(c.json, "exited");
    call(&c, "signal_session", "{\"session_id\":1000}");
    assert_true(test_now_ms() - before >= 2000);
    assert_has(c.json, "\"state\":\"exited\",\"exit_code\":137");
    assert_has(c.json, "\"end_reason\":\"terminated\"");
}

/* The process acts on a signal when it is scheduled next: on a busy machine the answer tells the
 * state before. */
static void signal_until(struct called *c, const char *args, const char *answer)
{
    const uint64_t begun = test_now_ms();

    do
        call(c, "signal_session", args);
    while (strcmp(c->json, answer) != 0 && test_now_ms() - begun < 20000);
    assert_string_equal(c->json, answer);
}

static void test_other_signals_are_sent_by_name(void **state)
{
    auto_called struct called c = {0};

    (void)state;
    call(&c, "exec_command", "{\"argv\":[\"sleep\",\"300\"],\"yield_time_ms\":250}");
    signal_until(&c, "{\"session_id\":1000,\"signal\":\"stop\"}", "{\"state\":\"stopped\"}");
    signal_until(&c, "{\"session_id\":1000,\"signal\":\"SIGCONT\"}", "{\"state\":\"sleeping\"}");
    call(&c, "signal_session", "{\"session_id\":1000,\"signal\":\"USR1\"}");
    assert_has(c.json, "\"signal\":\"SIGUSR1\"");
}

static void test_a_terminal_is_resized(void **state)
{
    auto_called struct called c = {0};

    (void)state;
    call(&c, "exec_command",
         "{\"argv\":[\"sh\",\"-c\",\"read x; stty size\"],\"tty\":true,"
         "\"yield_time_ms\":250}");
    call(&c, "resize_session", "{\"session_id\":1000,\"rows\":50,\"cols\":132.0}");
    assert_false(c.is_error);
    assert_string_equal(c.text, "The terminal of session 1000 has 50 rows and 132 columns.");
    call(&c, "write_stdin", "{\"session_id\":1000,\"keys\":[\"Enter\"],\"yield_time_ms\":20000}");
    assert_has(c.text, "50 132");
    assert_fails(&c, "resize_session", "{\"session_id\":1000,\"rows\":50,\"cols\":132}", "ended");
    call(&c, "exec_command", "{\"argv\":[\"sleep\",\"300\"],\"yield_time_ms\":250}");
    assert_fails(&c, "resize_session", "{\"session_id\":1001,\"rows\":50,\"cols\":132}",
                 "has no terminal; start it with tty=true");
}

/* ---- patches ---- */

static char directory[64];

static int begin_below(void **state)
{
    (void)state;
    (void)snprintf(directory, sizeof directory, "/tmp/mcp-patch.XXXXXX");
    if (mkdtemp(directory) == NULL || begin_at(directory) < 0)
        return -1;
    make_server();
    return 0;
}

static int end_below(void **state)
{
    char path[128];

    for (const char *const *name = (const char *const[]){"new.txt", "moved.txt", "old.txt", NULL};
         *name != NULL; name++) {
        (void)snprintf(path, sizeof path, "%s/%s", directory, *name);
        (void)unlink(path);
    }
    return end(state) == 0 && rmdir(directory) == 0 ? 0 : -1;
}

static void test_a_patch_changes_files(void **state)
{
    auto_called struct called c = {0};
    char want[256];

    (void)state;
    call(&c, "apply_patch",
         "{\"input\":\"*** Begin Patch\\n*** Add File: new.txt\\n+one\\n*** End "
         "Patch\"}");
    assert_false(c.is_error);
    assert_string_equal(c.text, "Success. Updated the following files:\nA new.txt\n");
    (void)snprintf(
        want, sizeof want,
        "{\"changes\":[{\"path\":\"%s/new.txt\",\"kind\":\"add\"}],\"output\":\"Success.",
        directory);
    assert_has(c.json, want);
    call(&c, "apply_patch",
         "{\"input\":\"*** Begin Patch\\n*** Update File: new.txt\\n*** Move to: moved.txt\\n@@\\n"
         "-one\\n+two\\n*** End Patch\",\"workdir\":\".\"}");
    assert_has(c.json, "\"kind\":\"update\",\"move_to\":\"");
    callf(&c, "exec_command", "{\"argv\":[\"cat\",\"moved.txt\"]}");
    assert_has(c.json, "\"output\":\"two\\n\"");
    assert_fails(&c, "apply_patch",
                 "{\"input\":\"*** Begin Patch\\n*** Delete File: none.txt\\n*** End Patch\"}",
                 "apply_patch verification failed: ");
    callf(&c, "apply_patch",
          "{\"input\":\"*** Begin Patch\\n*** Delete File: moved.txt\\n*** End Patch\","
          "\"workdir\":\"%s\"}",
          directory);
    assert_has(c.json, "\"kind\":\"delete\"");
}

/* A patch in a command is the engine's too, and is no session: a key does not do it again. */
static void test_a_patch_in_a_command_is_no_session(void **state)
{
    static const char patch[] =
        "{\"cmd\":\"apply_patch <<'EOF'\\n*** Begin Patch\\n*** Add File: old.txt\\n+1\\n*** End "
        "Patch\\nEOF\\n\",\"key\":\"p\",\"login\":false}";
    auto_called struct called c = {0};

    (void)state;
    call(&c, "exec_command", patch);
    assert_false(c.is_error);
    assert_has(c.text, "Wall time: 0.00 seconds\nOutput:\nSuccess.");
    assert_has(c.json, "\"state\":\"exited\"");
    assert_fails(&c, "exec_command", patch, "did its work without a session");
}

/* ---- an end while the answer is being written ---- */

static bool holds_look;
static sp_manager_inspect_fn *held_fn; /* NULL: no inspection is held */
static void *held_user;

void __real_sp_manager_inspect(struct sp_manager *m, int process_id, sp_manager_inspect_fn *fn,
                               void *user);
void __wrap_sp_manager_inspect(struct sp_manager *m, int process_id, sp_manager_inspect_fn *fn,
                               void *user);
void __wrap_sp_manager_inspect(struct sp_manager *m, int process_id, sp_manager_inspect_fn *fn,
                               void *user)
{
    if (!holds_look) {
        __real_sp_manager_inspect(m, process_id, fn, user);
        return;
    }
    held_fn = fn;
    held_user = user;
}

static bool has_exited(int id)
{
    struct sp_manager_view v;

    return sp_manager_view(caller->manager, id, &v) && v.has_exited;
}

/* Calls the tool for session 1000, which ends by the directory `over` while the tool's answer waits
 * for an inspection. The result, or the next one, must tell the end. */
static void assert_end_is_noted(const char *tool, const char *arguments)
{
    auto_called struct called c = {0};
    char over[80];

    (void)snprintf(over, sizeof over, "%s/over", directory);
    holds_look = true;
    begin_call(&c, tool, arguments);
    await(held_fn != NULL);
    holds_look = false;
    assert_int_equal(mkdir(over, 0700), 0);
    await(has_exited(1000));
    held_fn(held_user, NULL);
    held_fn = NULL;
    await(c.is_there);
    assert_hasnt(c.text, "exited");
    if (c.note[0] == 0) /* the machine is slow, and the inspection's deadline came first */
        call(&c, "list_sessions", "");
    assert_has(c.note, "Session 1000 has ended with code 3: ");
    assert_int_equal(rmdir(over), 0);
}

#define GATED                                                                                 \
    "{\"argv\":[\"sh\",\"-c\",\"while [ ! -e over ]; do sleep 0.02; done; exit 3\"],\"yield_" \
    "time_ms\":250}"

static void test_an_end_after_the_answer_of_exec_command_is_noted(void **state)
{
    (void)state;
    assert_end_is_noted("exec_command", GATED);
}

static void test_an_end_after_the_answer_of_read_output_is_noted(void **state)
{
    auto_called struct called c = {0};

    (void)state;
    call(&c, "exec_command", GATED);
    assert_end_is_noted("read_output", "{\"session_id\":1000}");
}

static const struct CMUnitTest tests[] = {
    tools_test(test_sessions_are_listed_with_what_they_do),
    tools_test(test_a_session_is_ended_by_default),
    tools_test(test_who_ignores_the_end_is_killed_with_its_children),
    tools_test(test_other_signals_are_sent_by_name),
    tools_test(test_a_terminal_is_resized),
    cmocka_unit_test_setup_teardown(test_a_patch_changes_files, begin_below, end_below),
    cmocka_unit_test_setup_teardown(test_a_patch_in_a_command_is_no_session, begin_below,
                                    end_below),
    cmocka_unit_test_setup_teardown(test_an_end_after_the_answer_of_exec_command_is_noted,
                                    begin_below, end_below),
    cmocka_unit_test_setup_teardown(test_an_end_after_the_answer_of_read_output_is_noted,
                                    begin_below, end_below),
};

TEST_MAIN(tests)
