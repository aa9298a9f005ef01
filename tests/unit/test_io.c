/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/io.h"
#include "test.h"

static char dir[] = "/tmp/sp-test-io-XXXXXX";
static char path[64];

static int make_dir(void **state)
{
    (void)state;
    return mkdtemp(dir) == NULL || snprintf(path, sizeof path, "%s/file", dir) < 0;
}

static int remove_dir(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(dir);
}

static void write_file(const char *text, size_t n)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void test_a_file_is_read_up_to_its_end(void **state)
{
    auto_buf struct sp_buf b = {0};

    (void)state;
    write_file("two\0parts", 9);
    assert_true(sp_buf_add_str(&b, SP_STR("before ")));
    assert_int_equal(sp_read_file(path, 9, &b), 0);
    assert_bytes(b.data, b.len, "before two\0parts");
    assert_int_equal(sp_read_file(path, 8, &b), EFBIG);
}

static void test_only_regular_files_are_read(void **state)
{
    auto_buf struct sp_buf b = {0};

    (void)state;
    (void)unlink(path);
    assert_int_equal(sp_read_file(path, 9, &b), ENOENT);
    assert_int_equal(sp_read_file(dir, 9, &b), EISDIR);
    assert_int_equal(sp_read_file("/dev/zero", 9, &b), EINVAL);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(sp_read_file(path, 9, &b), EINVAL); /* and does not wait for a writer */
    assert_int_equal(b.len, 0);
}

static void test_a_pipe_is_written_and_read_whole(void **state)
{
    auto_buf struct sp_buf b = {0};
    char *sent = calloc(1, 1000000);
    int ends[2];

    (void)state;
    assert_non_null(sent);
    sent[999999] = 'z';
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(sp_write_all(ends[1], sent, 1000000));
    assert_int_equal(close(ends[1]), 0);
    assert_int_equal(sp_read_all(ends[0], 1000000, &b), 0);
    assert_int_equal(b.len, 1000000);
    assert_memory_equal(b.data, sent, 1000000);
    assert_int_equal(close(ends[0]), 0);
    free(sent);
}

static void test_errors_are_returned(void **state)
{
    auto_buf struct sp_buf b = {0};
    int ends[2];

    (void)state;
    assert_int_equal(sp_read_all(-1, 1, &b), EBADF);
    assert_int_equal(sp_write_all(-1, "x", 1), EBADF);
    assert_int_equal(sp_write_all(-1, "x", 0), 0);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(close(ends[0]), 0);
    assert_true(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
    assert_int_equal(sp_write_all(ends[1], "x", 1), EPIPE);
    assert_int_equal(close(ends[1]), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_a_file_is_read_up_to_its_end),
    cmocka_unit_test(test_only_regular_files_are_read),
    cmocka_unit_test(test_a_pipe_is_written_and_read_whole),
    cmocka_unit_test(test_errors_are_returned),
};

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
