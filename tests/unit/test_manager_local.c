/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The manager over real processes.
 */
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/auto.h"
#include "engine/local.h"
#include "manager_fixture.h"

static struct sp_backend *backend;
static int fds_before;

static int begin(void **state)
{
    const struct sp_local_options o = {.program = getenv("SALLYPORT"), .cwd = "/"};
    static struct sp_environment_spec place;
    struct sp_err e = {0};

    (void)state;
    fds_before = open_fds();
    if (sp_loop_new(&loop, &e) < 0 || sp_local_new(loop, &o, &backend, &e) < 0)
        return -1;
    begin_manager();
    place = (struct sp_environment_spec){.id = "local", .backend = backend, .cwd = "/"};
    options.environments = &place;
    options.environment_count = 1;
    make_manager();
    return 0;
}

static int end(void **state)
{
    (void)state;
    end_manager();
    sp_backend_free(backend);
    sp_loop_free(loop);
    assert_no_children();
    return open_fds() == fds_before ? 0 : -1;
}

static void test_a_command_answers_with_its_output_and_code(void **state)
{
    struct answer a;

    (void)state;
    exec_for(&a, "echo hello; exit 3", false, 10000);
    until(a.is_there);
    assert_exit(&a, 3);
    assert_string_equal(a.output, "hello\n");
    assert_int_equal(a.answer.token_count, 2);
    assert_non_null(
        strstr(a.text, "\nProcess exited with code 3\nOriginal token count: 2\nOutput:\nhello\n"));
    assert_int_equal(sp_manager_reserved(manager), 0);
    until(strstr(story, "end:3:hello\n") != NULL);
    assert_string_equal(story, "begin delta:hello\n end:3:hello\n ");
}

static void test_a_terminal_is_typed_into_until_it_ends(void **state)
{
    struct answer a;

    (void)state;
    exec_for(&a, "/bin/cat", true, 300);
    until(a.is_there);
    assert_running(&a, 1000);
    assert_int_equal(a.output_len, 0);
    assert_true(a.answer.wall_ns >= 300000000);
    write_for(&a, 1000, "hello unified exec\n", 500);
    until(a.is_there);
    assert_running(&a, 1000);
    assert_string_equal(a.output, "hello unified exec\r\nhello unified exec\r\n");
    write_for(&a, 1000, "\004", 20000);
    until(a.is_there);
    assert_exit(&a, 0);
    write_for(&a, 1000, "", 0);
    until(a.is_there);
    assert_fault(&a, SP_FAULT_UNKNOWN, "write_stdin failed: Unknown process id 1000");
    assert_non_null(strstr(story, "interaction:\004 end:0:"));
}

static bool is_alive(pid_t pid)
{
    return pid > 1 && kill(pid, 0) == 0;
}

/* The number that a command has printed first. */
static pid_t printed_pid(const struct answer *a)
{
    return (pid_t)strtol(a->output, NULL, 10);
}

static void test_an_interrupted_command_lives_until_it_is_terminated(void **state)
{
    struct answer a;

    (void)state;
    exec_for(&a, "echo $$; exec sleep 3000", false, 30000);
    until(sp_manager_stored(manager) == 1);
    sp_manager_interrupt(manager);
    until(a.is_there);
    assert_int_equal(a.fault, SP_FAULT_ABORTED);
    write_for(&a, 1000, "", 5000);
    run_for(300);
    sp_manager_interrupt(manager);
    until(a.is_there);
    write_for(&a, 1000, "", 60000);
    run_for(50);
    sp_manager_terminate_all(manager);
    until(a.is_there);
    assert_exit(&a, 137);
    assert_int_equal(a.signal, SIGKILL);
    const pid_t pid = printed_pid(&a);
    assert_true(pid > 1);
    until(!is_alive(pid));
    until(strstr(story, "end:137:") != NULL);
    assert_int_equal(sp_manager_reserved(manager), 0);
}

static void test_what_is_starting_dies_with_its_call(void **state)
{
    struct answer a;

    (void)state;
    exec_for(&a, "sleep 3000", false, 30000);
    run_for(20);
    sp_manager_interrupt(manager);
    until(a.is_there);
    assert_int_equal(a.fault, SP_FAULT_ABORTED);
    assert_int_equal(sp_manager_reserved(manager), 0);
    run_for(300);
    assert_string_equal(story, "");
}

static void test_a_flood_is_counted_and_bounded(void **state)
{
    struct answer a;

    (void)state;
    exec_for(&a, "yes", false, 1000);
    until(a.is_there);
    assert_running(&a, 1000);
    assert_true(a.answer.omitted > 0);
    assert_true(a.output_len <= SP_HEADTAIL_CAPACITY + 100);
    assert_int_equal(a.answer.token_count, (a.to - a.from + 3) / 4);
    assert_true(a.answer.wall_ns < 2000000000);
    uint64_t bytes = 0;
    for (size_t i = 0; i < event_count; i++)
        bytes += events[i].type == SP_EVENT_DELTA;
    assert_true(bytes <= SP_DELTA_QUOTA);
    sp_manager_terminate(manager, 1000, NULL, NULL);
    until(sp_manager_stored(manager) == 0);
    until(events[event_count - 1].type == SP_EVENT_END);
}

static void test_a_poll_of_an_idle_process_takes_no_time_of_ours(void **state)
{
    struct timespec before;
    struct timespec after;
    struct answer a;

    (void)state;
    exec_for(&a, "sleep 3000", false, 250);
    until(a.is_there);
    write_for(&a, 1000, "", 5000);
    run_for(50);
    /* One sleep of the loop: nothing of the manager may end it. */
    struct sp_timer tick = {0};
    assert_true(sp_loop_timer(loop, &tick, test_now_ms() + 2000, stop_now));
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    assert_int_equal(sp_loop_run(loop, NULL), 0);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    const int64_t us =
        (after.tv_sec - before.tv_sec) * 1000000 + (after.tv_nsec - before.tv_nsec) / 1000;
    assert_true(us < 20000);
    sp_manager_interrupt(manager);
    until(a.is_there);
}

static void test_stdin_on_pipes_is_typed_into_and_closed(void **state)
{
    struct sp_exec_request ask = command("cat; echo over");
    const struct sp_env_var var = {SP_STR("TERM"), SP_STR("mine")};
    struct answer a;

    (void)state;
    ask.wants_stdin = true;
    ask.env = (struct sp_env_vars){&var, 1};
    ask.cmd = SP_STR("cat; echo $TERM");
    ask.yield = (struct sp_yield_request){true, 250};
    exec_ask(&a, &ask);
    until(a.is_there);
    assert_running(&a, 1000);
    write_for(&a, 1000, "typed\n", 250);
    until(a.is_there);
    assert_string_equal(a.output, "typed\n");
    sp_manager_close_stdin(manager, 1000, NULL, NULL);
    write_for(&a, 1000, "", 20000);
    until(a.is_there);
    assert_exit(&a, 0);
    assert_string_equal(a.output, "mine\n");
}

static void test_the_environment_is_plain_and_says_who_runs_it(void **state)
{
    struct answer a;

    (void)state;
    options.thread_id = "thread";
    options.conversation_id = "session";
    end_manager();
    make_manager();
    exec_for(&a,
             "echo $TERM $PAGER $CODEX_THREAD_ID $CODEX_SESSION_ID $CODEX_TOOL_CALL_ID $SALLYPORT",
             false, 10000);
    until(a.is_there);
    assert_string_equal(a.output, "dumb cat thread session call 1\n");
}

/* ---- waits, and what is left of an end ---- */

static void exec_until(struct answer *a, const char *cmd, const struct sp_until *items,
                       uint32_t count)
{
    struct sp_exec_request ask = command(cmd);

    ask.yield = (struct sp_yield_request){true, 20000};
    ask.is_tty = true;
    ask.until = items;
    ask.until_count = count;
    exec_ask(a, &ask);
    until(a->is_there);
}

static void test_words_and_silence_end_a_wait(void **state)
{
    const struct sp_until words[] = {{.kind = SP_UNTIL_QUIET, .quiet_ms = 15000},
                                     {.kind = SP_UNTIL_PATTERN, .pattern = SP_STR("^up [0-9]+")}};
    const struct sp_until prompt[] = {{.kind = SP_UNTIL_PATTERN, .pattern = SP_STR("name: $")}};
    const struct sp_until silence[] = {{.kind = SP_UNTIL_QUIET, .quiet_ms = 1500}};
    struct answer a;

    (void)state;
    exec_until(&a, "sleep 0.3; echo starting; printf 'up '; sleep 0.2; echo 17; sleep 600", words,
               2);
    assert_running(&a, 1000);
    assert_int_equal(a.woken_by, 1);
    assert_true(a.answer.wall_ns < 10000000000);
    exec_until(&a, "sleep 0.3; printf 'name: '; read x; sleep 600", prompt, 1);
    assert_running(&a, 1001);
    assert_int_equal(a.woken_by, 0);
    exec_until(&a, "for i in 1 2 3 4 5 6; do echo $i; sleep 0.1; done; sleep 600", silence, 1);
    assert_running(&a, 1002);
    assert_int_equal(a.woken_by, 0);
    assert_non_null(strstr(a.output, "6"));
}

static uint16_t free_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    auto_close int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(s >= 0 && bind(s, (struct sockaddr *)&at, n) == 0);
    assert_int_equal(getsockname(s, (struct sockaddr *)&at, &n), 0);
    return ntohs(at.sin_port);
}

/* What the command of the next test runs. */
static int listen_on(const char *number)
{
    const struct sockaddr_in at = {.sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)atoi(number)),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int s = socket(AF_INET, SOCK_STREAM, 0);

    if (s < 0 || bind(s, (const struct sockaddr *)&at, sizeof at) < 0 || listen(s, 1) < 0)
        return 1;
    (void)pause();
    return 0;
}

static void test_a_port_ends_a_wait(void **state)
{
    const uint16_t number = free_port();
    const struct sp_until port[] = {{.kind = SP_UNTIL_PORT, .port = number}};
    char path[4096] = "";
    char cmd[4200];
    struct answer a;

    (void)state;
    assert_true(readlink("/proc/self/exe", path, sizeof path - 1) > 0);
    (void)snprintf(cmd, sizeof cmd, "sleep 0.5; '%s' %u", path, number);
    exec_until(&a, cmd, port, 1);
    assert_running(&a, 1000);
    assert_int_equal(a.woken_by, 0);
    assert_true(a.answer.wall_ns > 500000000 && a.answer.wall_ns < 10000000000);
}

static void test_a_timeout_ends_the_whole_tree(void **state)
{
    struct sp_exec_request ask = command("sleep 601 & sleep 602");
    struct answer a;

    (void)state;
    options.remembers_ended = true;
    end_manager();
    make_manager();
    ask.timeout_ms = 500;
    ask.waits_for_end = true;
    exec_ask(&a, &ask);
    until(a.is_there);
    assert_exit(&a, 137);
    assert_int_equal(a.end_reason, SP_END_TIMEOUT);
    assert_int_equal(a.signal, SIGKILL);
    assert_true(a.has_kernel);
    assert_false(a.is_output_held); /* nobody is left who could */
    struct sp_manager_view v;
    assert_true(sp_manager_view(manager, 1000, &v));
    assert_int_equal(v.end_reason, SP_END_TIMEOUT);
}

static void on_look(void *user, const struct sp_inspection *look)
{
    *(struct sp_inspection *)user =
        look != NULL ? *look : (struct sp_inspection){.doing = SP_DOING_MAX};
}

static void test_it_is_seen_what_a_command_does(void **state)
{
    struct sp_inspection look = {.doing = SP_DOING_MAX + 1};
    struct answer a;

    (void)state;
    exec_for(&a, "/bin/cat", true, 500);
    until(a.is_there);
    assert_running(&a, 1000);
    sp_manager_inspect(manager, 1000, on_look, &look);
    until(look.doing != SP_DOING_MAX + 1);
    if (look.doing == SP_DOING_UNKNOWN)
        printf("# the kernel does not tell what it does here\n");
    else
        assert_int_equal(look.doing, SP_DOING_READING_TERMINAL);
}

int main(int argc, char **argv)
{
    if (argc == 2)
        return listen_on(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_command_answers_with_its_output_and_code, begin,
                                        end),
        cmocka_unit_test_setup_teardown(test_a_terminal_is_typed_into_until_it_ends, begin, end),
        cmocka_unit_test_setup_teardown(test_an_interrupted_command_lives_until_it_is_terminated,
                                        begin, end),
        cmocka_unit_test_setup_teardown(test_what_is_starting_dies_with_its_call, begin, end),
        cmocka_unit_test_setup_teardown(test_a_flood_is_counted_and_bounded, begin, end),
        cmocka_unit_test_setup_teardown(test_a_poll_of_an_idle_process_takes_no_time_of_ours, begin,
                                        end),
        cmocka_unit_test_setup_teardown(test_stdin_on_pipes_is_typed_into_and_closed, begin, end),
        cmocka_unit_test_setup_teardown(test_the_environment_is_plain_and_says_who_runs_it, begin,
                                        end),
        cmocka_unit_test_setup_teardown(test_words_and_silence_end_a_wait, begin, end),
        cmocka_unit_test_setup_teardown(test_a_port_ends_a_wait, begin, end),
        cmocka_unit_test_setup_teardown(test_a_timeout_ends_the_whole_tree, begin, end),
        cmocka_unit_test_setup_teardown(test_it_is_seen_what_a_command_does, begin, end),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
