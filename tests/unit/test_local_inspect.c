/* SPDX-License-Identifier: Apache-2.0 */
/* What jobs that run here are doing, as the kernel tells it: real programs, on pipes and terminals,
 * without a sandbox and in one. */
#include "inspect_fixture.h"

/* ---- one program ---- */

static void test_who_reads_its_stdin_is_told(void **state)
{
    (void)state;
    check("exec cat", false, SP_DOING_READING_STDIN);
    check("exec dd of=/dev/null", false, SP_DOING_READING_STDIN);
    check("read line", false, SP_DOING_READING_STDIN);
    check("cat; echo end", false, SP_DOING_READING_STDIN); /* behind a shell that waits */
    check("sh -c 'cat; :'; echo end", false, SP_DOING_READING_STDIN); /* behind two */
    check("exec 5<&0 </dev/null; exec cat <&5", false, SP_DOING_READING_STDIN);
}

static void test_who_reads_its_terminal_is_told(void **state)
{
    (void)state;
    check("exec cat", true, SP_DOING_READING_TERMINAL);
    check("read line", true, SP_DOING_READING_TERMINAL);
    check("cat; echo end", true, SP_DOING_READING_TERMINAL);
    check("exec cat </dev/tty", true, SP_DOING_READING_TERMINAL);
    check("exec sh -i", true, SP_DOING_READING_TERMINAL);
}

static void test_who_sleeps_or_is_busy_does_not_read(void **state)
{
    (void)state;
    for (int is_tty = 0; is_tty < 2; is_tty++) {
        check_stays("echo up; exec sleep 600", is_tty != 0, SP_DOING_SLEEPING);
        check_stays("echo up; sleep 600; :", is_tty != 0, SP_DOING_SLEEPING);
        check_stays("echo up; sleep 600 & wait", is_tty != 0, SP_DOING_SLEEPING);
        check_stays("echo up; while :; do :; done", is_tty != 0, SP_DOING_RUNNING);
        check_stays("echo up; (while :; do :; done) & wait", is_tty != 0, SP_DOING_RUNNING);
        check_stays("echo up; exec tail -f /dev/null", is_tty != 0, SP_DOING_SLEEPING);
        check_stays("echo up; exec tail -f /etc/passwd", is_tty != 0, SP_DOING_SLEEPING);
        check_stays("echo up; sleep 600 | cat", is_tty != 0, SP_DOING_SLEEPING);
        check_stays("mkfifo /tmp/sp-look-$$; exec 3<>/tmp/sp-look-$$; rm /tmp/sp-look-$$; echo up; "
                    "exec cat <&3",
                    is_tty != 0, SP_DOING_SLEEPING);
    }
}

static void test_a_pipeline_is_what_its_first_reader_is(void **state)
{
    (void)state;
    check("cat | sort", false, SP_DOING_READING_STDIN);
    check("cat | sort", true, SP_DOING_READING_TERMINAL);
    check("cat | (while :; do :; done)", false, SP_DOING_RUNNING);
}

static void test_without_a_stdin_nobody_reads_it(void **state)
{
    struct owner o = {0};

    (void)state;
    start_script(&o, "echo up; exec sleep 600", false, false);
    assert_stays(&o, SP_DOING_SLEEPING);
    end_job(&o);
}

static void test_what_is_stopped_is_told_and_goes_on(void **state)
{
    (void)state;
    for (int is_tty = 0; is_tty < 2; is_tty++) {
        struct owner o = {0};

        start_script(&o, "echo up; sleep 600; :", is_tty != 0, true);
        assert_stays(&o, SP_DOING_SLEEPING);
        assert_int_equal(signal_to(&o, SIGSTOP), SP_JOB_OK);
        await_doing(&o, SP_DOING_STOPPED);
        assert_int_equal(signal_to(&o, SIGCONT), SP_JOB_OK);
        await_doing(&o, SP_DOING_SLEEPING);
        end_job(&o);
    }
}

static void test_a_child_that_is_not_seen_is_waited_for(void **state)
{
    (void)state;
    if (!has_program("/usr/bin/setsid") || !has_program("/bin/bash"))
        return;
    /* In a group of its own on the same terminal, in the background: not the foreground's doing. */
    check_stays("exec bash -c 'set -m; trap : CHLD; sleep 600 & echo up; wait' </dev/null", true,
                SP_DOING_WAITING_FOR_CHILD);
}

/* ---- sets of descriptors ---- */

#define WAITS "import os,select,sys,time\nr,w=os.pipe()\nprint(1)\n"

static void test_poll_select_and_epoll_count_as_reading(void **state)
{
    (void)state;
    if (!has_program(PYTHON))
        return;
    for (int is_tty = 0; is_tty < 2; is_tty++) {
        const enum sp_doing reads = is_tty ? SP_DOING_READING_TERMINAL : SP_DOING_READING_STDIN;

        check(PY("import select; select.select([0],[],[])"), is_tty != 0, reads);
        check(PY(WAITS "select.select([r,0],[],[],600)"), is_tty != 0, reads);
        check(PY(WAITS "p=select.poll(); p.register(0,select.POLLIN); p.register(r); p.poll()"),
              is_tty != 0, reads);
        check(PY(WAITS "p=select.epoll(); p.register(r); p.register(0,1); p.poll()"), is_tty != 0,
              reads);
        check(PY("input()"), is_tty != 0, reads);
        check("exec " PYTHON " -i -q", is_tty != 0, reads);
        check(PY("import threading,time; threading.Thread(target=input).start(); time.sleep(600)"),
              is_tty != 0, reads);
        check_stays(PY(WAITS "select.select([r],[],[0],600)"), is_tty != 0, SP_DOING_SLEEPING);
        check_stays(PY(WAITS "p=select.poll(); p.register(0,select.POLLPRI); p.register(r); "
                             "p.poll()"),
                    is_tty != 0, SP_DOING_SLEEPING);
        check_stays(PY(WAITS "p=select.epoll(); p.register(r); p.poll()"), is_tty != 0,
                    SP_DOING_SLEEPING);
        check_stays(PY("import subprocess,time\nprint(1)\n"
                       "subprocess.run([\"sleep\",\"600\"],stdin=subprocess.DEVNULL)"),
                    is_tty != 0, SP_DOING_SLEEPING);
        check_stays(PY("import subprocess,time\nprint(1)\n"
                       "subprocess.run([\"sh\",\"-c\",\"while :; do :; done\"],"
                       "stdout=subprocess.PIPE)"),
                    is_tty != 0, SP_DOING_RUNNING);
    }
}

/* A number that was the stdin's when it was added, and is another's now. */
static void test_an_epoll_that_has_forgotten_stdin_does_not_read(void **state)
{
    (void)state;
    if (has_program(PYTHON))
        check_stays(PY(WAITS "p=select.epoll(); p.register(r); p.register(0); os.dup2(r,0); "
                             "print(2); p.poll()"),
                    false, SP_DOING_SLEEPING);
}

static void test_node_reads_as_well(void **state)
{
    (void)state;
    if (!has_program(NODE))
        return;
    check("exec " NODE " -e 'process.stdin.on(\"data\",()=>{})'", false, SP_DOING_READING_STDIN);
    check("exec " NODE " -i", true, SP_DOING_READING_TERMINAL);
    check_stays("exec " NODE " -e 'console.log(1);setTimeout(()=>{},600000)'", false,
                SP_DOING_SLEEPING);
}

/* ---- jobs of a shell ---- */

static void test_the_foreground_counts_on_a_terminal(void **state)
{
    struct owner o = {0};

    (void)state;
    if (!has_program("/bin/bash"))
        return;
    start_script(&o, "exec bash --norc -i", true, true);
    await_doing(&o, SP_DOING_READING_TERMINAL);
    assert_int_equal(write_to(&o, "(while :; do :; done) & sleep 600\n", 34), SP_JOB_OK);
    await_doing(&o, SP_DOING_SLEEPING);
    assert_int_equal(write_to(&o, "\x03", 1), SP_JOB_OK);
    await_doing(&o, SP_DOING_READING_TERMINAL); /* though another is busy in the background */
    assert_int_equal(write_to(&o, "kill %1; fg >/dev/null 2>&1; cat | sort\n", 40), SP_JOB_OK);
    run_for(100);
    await_doing(&o, SP_DOING_READING_TERMINAL);
    end_job(&o);
}

/* ---- when it is asked ---- */

static void test_it_is_answered_before_and_after_its_life(void **state)
{
    struct looked l = {.look.wants_doing = true};
    struct owner o = {0};

    (void)state;
    start_script(&o, "read line", false, true);
    assert_int_equal(look_for(&o, &l), SP_JOB_NOT_YET);
    await_doing(&o, SP_DOING_READING_STDIN);
    assert_int_equal(close_stdin_of(&o), SP_JOB_OK);
    until(o.is_over);
    assert_int_equal(look_for(&o, &l), SP_JOB_GONE);
    finish(&o);
    assert_false(sp_job_inspect(&o.job, &l.look)); /* released */
}

/* Nobody can write to it any more: whoever still reads would read its end. */
static void test_a_closed_stdin_is_not_waited_for(void **state)
{
    struct owner o = {0};

    (void)state;
    start_script(&o, "cat >/dev/null; echo up; exec sleep 600", false, true);
    await_doing(&o, SP_DOING_READING_STDIN);
    assert_int_equal(close_stdin_of(&o), SP_JOB_OK);
    assert_stays(&o, SP_DOING_SLEEPING);
    end_job(&o);
}

static void test_who_dies_meanwhile_does_no_harm(void **state)
{
    struct owner o = {0};

    (void)state;
    start_script(&o, "while :; do (sleep 0.002 & sleep 0.001); done", false, true);
    until(has_told(&o, "started"));
    for (int i = 0; i < 300; i++)
        assert_in_range(doing(&o), SP_DOING_UNKNOWN, SP_DOING_MAX - 1);
    end_job(&o);
}

static void test_very_many_children_are_not_all_looked_at(void **state)
{
    struct owner o = {0};

    (void)state;
    start_script(&o, "i=0; while [ $i -lt 1000 ]; do sleep 600 & i=$((i+1)); done; echo up; wait",
                 false, true);
    until(o.out.len > 0);
    await_doing(&o, SP_DOING_SLEEPING);
    const uint64_t before = test_now_ms();
    (void)doing(&o);
    assert_int_equal(listening(&o, 9, 10), 0);
    assert_true(test_now_ms() - before < 2000); /* some milliseconds, on an idle machine */
    end_job(&o);
}

/* The fields behind a name are found, whatever the name holds. */
static void test_a_name_does_not_lie_about_the_state(void **state)
{
    (void)state;
    if (has_program(PYTHON))
        check_stays(PY("import time\nopen(\"/proc/self/comm\",\"wb\").write(b\"x) R 1 1 (\")\n"
                       "print(1)\ntime.sleep(600)"),
                    false, SP_DOING_SLEEPING);
}

/* ---- in a sandbox ---- */

static void test_in_a_sandbox_all_is_the_same(void **state)
{
    static const struct {
        const char *text;
        bool is_tty;
        enum sp_doing wanted;
    } cases[] = {
        {"cat; :", false, SP_DOING_READING_STDIN},
        {"cat; :", true, SP_DOING_READING_TERMINAL},
        {"exec cat </dev/tty", true, SP_DOING_READING_TERMINAL},
        {"sleep 600; :", false, SP_DOING_SLEEPING},
        {"sleep 600; :", true, SP_DOING_SLEEPING},
        {"while :; do :; done", false, SP_DOING_RUNNING},
        {"exec " PYTHON " -i -q", true, SP_DOING_READING_TERMINAL},
        {PY("import select; select.select([0],[],[])"), false, SP_DOING_READING_STDIN},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct owner o = {0};

        if (strstr(cases[i].text, PYTHON) != NULL && !has_program(PYTHON))
            continue;
        if (!start_confined(&o, cases[i].text, cases[i].is_tty, false))
            return;
        await_doing(&o, cases[i].wanted);
        end_job(&o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        local_test(test_who_reads_its_stdin_is_told),
        local_test(test_who_reads_its_terminal_is_told),
        local_test(test_who_sleeps_or_is_busy_does_not_read),
        local_test(test_a_pipeline_is_what_its_first_reader_is),
        local_test(test_without_a_stdin_nobody_reads_it),
        local_test(test_what_is_stopped_is_told_and_goes_on),
        local_test(test_a_child_that_is_not_seen_is_waited_for),
        local_test(test_poll_select_and_epoll_count_as_reading),
        local_test(test_an_epoll_that_has_forgotten_stdin_does_not_read),
        local_test(test_node_reads_as_well),
        local_test(test_the_foreground_counts_on_a_terminal),
        local_test(test_it_is_answered_before_and_after_its_life),
        local_test(test_a_closed_stdin_is_not_waited_for),
        local_test(test_who_dies_meanwhile_does_no_harm),
        local_test(test_very_many_children_are_not_all_looked_at),
        local_test(test_a_name_does_not_lie_about_the_state),
        local_test(test_in_a_sandbox_all_is_the_same),
    };

    (void)sp_log_set_level("error");
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
