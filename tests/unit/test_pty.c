/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <termios.h>

#include "os/pty.h"
#include "process_fixture.h"

static struct sp_pty pty;

static int open_pty(void **state)
{
    struct sp_err e = {0};

    (void)state;
    return sp_pty_open(24, 80, &pty, &e);
}

static int close_pty(void **state)
{
    (void)state;
    (void)close(pty.master);
    return close(pty.slave);
}

static void has_size(unsigned rows, unsigned cols)
{
    struct winsize size;

    assert_int_equal(ioctl(pty.slave, TIOCGWINSZ, &size), 0);
    assert_int_equal(size.ws_row, rows);
    assert_int_equal(size.ws_col, cols);
}

static void test_a_terminal_has_the_size_that_was_asked_for(void **state)
{
    (void)state;
    has_size(24, 80);
    assert_int_equal(sp_pty_resize(pty.master, 50, 132), 0);
    has_size(50, 132);
    assert_int_equal(sp_pty_resize(pty.master, 65535, 65535), 0);
    has_size(65535, 65535);
    assert_int_equal(sp_pty_resize(pty.master, 0, 0), 0);
    has_size(0, 0);
}

static void test_both_ends_are_closed_on_exec_and_the_master_does_not_block(void **state)
{
    char byte;

    (void)state;
    assert_int_equal(fcntl(pty.master, F_GETFD), FD_CLOEXEC);
    assert_int_equal(fcntl(pty.slave, F_GETFD), FD_CLOEXEC);
    assert_int_equal(read(pty.master, &byte, 1), -1);
    assert_int_equal(errno, EAGAIN);
    assert_int_equal(fcntl(pty.slave, F_GETFL) & O_NONBLOCK, 0);
    assert_true(isatty(pty.slave));
}

static void test_modes_are_the_kernels_own(void **state)
{
    struct termios t;

    (void)state;
    assert_int_equal(tcgetattr(pty.slave, &t), 0);
    assert_int_equal(t.c_lflag & (ICANON | ECHO | ISIG), ICANON | ECHO | ISIG);
    assert_int_equal(t.c_iflag & (ICRNL | IUTF8), ICRNL);
    assert_int_equal(t.c_oflag & (OPOST | ONLCR), OPOST | ONLCR);
    assert_int_equal(t.c_cc[VEOF], 4);
}

static void test_it_carries_bytes_both_ways(void **state)
{
    char text[64];

    (void)state;
    assert_int_equal(write(pty.slave, "a\nb", 3), 3);
    assert_true(read_until(pty.master, text, sizeof text, "a\r\nb", DEADLINE_MS));
    assert_int_equal(write(pty.master, "in\r", 3), 3);
    assert_true(wait_fd(pty.slave, POLLIN, DEADLINE_MS));
    assert_int_equal(read(pty.slave, text, sizeof text), 3);
    assert_memory_equal(text, "in\n", 3);
}

static void test_it_is_nobodys_controlling_terminal(void **state)
{
    pid_t session = 0;

    (void)state;
    assert_int_equal(ioctl(pty.slave, TIOCGSID, &session), -1);
    assert_int_equal(errno, ENOTTY);
}

static void test_a_resize_of_no_terminal_is_its_errno(void **state)
{
    int fd[2];

    (void)state;
    assert_int_equal(sp_pty_resize(-1, 1, 1), EBADF);
    assert_int_equal(pipe2(fd, O_CLOEXEC), 0);
    assert_int_equal(sp_pty_resize(fd[0], 1, 1), ENOTTY);
    (void)close(fd[0]);
    (void)close(fd[1]);
}

/* No descriptor left for the first, then for the second end: both times nothing stays open. */
static void test_without_descriptors_nothing_is_left_behind(void **state)
{
    const int before = open_fds();
    struct rlimit was;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    const int next = dup(0);
    (void)close(next);
    for (int room = 0; room < 2; room++) {
        struct sp_pty p = {.master = -7, .slave = -7};
        struct sp_err e = {0};

        assert_int_equal(
            setrlimit(RLIMIT_NOFILE, &(struct rlimit){(rlim_t)(next + room), was.rlim_max}), 0);
        const int r = sp_pty_open(24, 80, &p, &e);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
        assert_int_equal(r, -SP_E_SYSTEM);
        assert_int_equal(e.sys, EMFILE);
        assert_int_equal(p.master, -7); /* untouched */
        assert_int_equal(open_fds(), before);
    }
}

#define pty_test(f) cmocka_unit_test_setup_teardown(f, open_pty, close_pty)

static const struct CMUnitTest tests[] = {
    pty_test(test_a_terminal_has_the_size_that_was_asked_for),
    pty_test(test_both_ends_are_closed_on_exec_and_the_master_does_not_block),
    pty_test(test_modes_are_the_kernels_own),
    pty_test(test_it_carries_bytes_both_ways),
    pty_test(test_it_is_nobodys_controlling_terminal),
    cmocka_unit_test(test_a_resize_of_no_terminal_is_its_errno),
    cmocka_unit_test(test_without_descriptors_nothing_is_left_behind),
};

TEST_MAIN(tests)
