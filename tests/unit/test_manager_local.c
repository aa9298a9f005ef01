/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The manager over real processes.
 */
#include "engine/local.h"
#include "manager_fixture.h"

static struct sp_backend *backend;
static int fds_before;

static int begin(void **state)
{
    const struct sp_local_options o = {.program = getenv("SALLYPORT"), .cwd = "/"};
    static struct sp_environment place;
    struct sp_error e = {0};

    (void)state;
    fds_before = open_fds();
    if (sp_loop_new(&loop, &e) < 0 || sp_local_new(loop, &o, &backend, &e) < 0)
        return -1;
    begin_manager();
    place = (struct sp_environment){"local", backend, "/"};
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_command_answers_with_its_output_and_code, begin,
                                        end),
        cmocka_unit_test_setup_teardown(test_a_terminal_is_typed_into_until_it_ends, begin, end),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
