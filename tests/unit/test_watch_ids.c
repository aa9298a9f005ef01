/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/notify.h"
#include "server/rpc/watches.h"
#include "test.h"

static char folder[64];

static int set_up(void **state)
{
    (void)state;
    (void)strcpy(folder, "/tmp/sallyport-ids-XXXXXX");
    return mkdtemp(folder) == NULL ? -1 : 0;
}

static int tear_down(void **state)
{
    (void)state;
    return rmdir(folder);
}

/* How many watches the kernel has for the descriptor. */
static int count_of(int fd)
{
    char path[64];
    char line[512];
    int n = 0;

    (void)snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    while (fgets(line, sizeof line, f) != NULL)
        n += strncmp(line, "inotify wd:", 11) == 0;
    (void)fclose(f);
    return n;
}

static void test_one_goes_with_its_last_user(void **state)
{
    struct sp_watch_ids ids = {.fd = sp_notify_open()};

    (void)state;
    assert_true(ids.fd >= 0);
    const int id = sp_notify_add(ids.fd, folder, SP_NOTIFY_NAMES);
    assert_true(sp_watch_ids_use(&ids, id));
    assert_true(sp_watch_ids_use(&ids, id));
    sp_watch_ids_leave(&ids, id);
    sp_watch_ids_sweep(&ids);
    assert_int_equal(count_of(ids.fd), 1);
    sp_watch_ids_leave(&ids, id);
    assert_int_equal(count_of(ids.fd), 1); /* not before somebody sweeps */
    sp_watch_ids_sweep(&ids);
    assert_int_equal(count_of(ids.fd), 0);
    assert_int_equal(ids.count, 0);
    sp_watch_ids_done(&ids);
    (void)close(ids.fd);
}

static void test_one_that_is_used_again_before_the_sweep_stays(void **state)
{
    struct sp_watch_ids ids = {.fd = sp_notify_open()};

    (void)state;
    const int id = sp_notify_add(ids.fd, folder, SP_NOTIFY_NAMES);
    assert_true(sp_watch_ids_use(&ids, id));
    sp_watch_ids_leave(&ids, id);
    assert_true(sp_watch_ids_use(&ids, id));
    sp_watch_ids_sweep(&ids);
    assert_int_equal(count_of(ids.fd), 1);
    sp_watch_ids_done(&ids);
    (void)close(ids.fd);
}

static void test_a_stray_is_removed_and_a_known_one_not(void **state)
{
    struct sp_watch_ids ids = {.fd = sp_notify_open()};

    (void)state;
    const int known = sp_notify_add(ids.fd, folder, SP_NOTIFY_NAMES);
    const int stray = sp_notify_add(ids.fd, "/", SP_NOTIFY_NAMES);
    assert_true(sp_watch_ids_use(&ids, known));
    sp_watch_ids_check(&ids, known);
    assert_int_equal(count_of(ids.fd), 2);
    sp_watch_ids_check(&ids, stray);
    assert_int_equal(count_of(ids.fd), 1);
    sp_watch_ids_done(&ids);
    (void)close(ids.fd);
}

static void test_many_in_any_order(void **state)
{
    struct sp_watch_ids ids = {.fd = -1};

    (void)state;
    for (int i = 0; i < 1000; i++)
        assert_true(sp_watch_ids_use(&ids, i * 7919 % 1009));
    for (int i = 0; i < 1000; i += 2)
        sp_watch_ids_leave(&ids, i * 7919 % 1009);
    sp_watch_ids_leave(&ids, 5000); /* nobody */
    sp_watch_ids_sweep(&ids);
    assert_int_equal(ids.count, 500);
    for (int i = 1; i < 1000; i += 2)
        sp_watch_ids_leave(&ids, i * 7919 % 1009);
    sp_watch_ids_sweep(&ids);
    assert_int_equal(ids.count, 0);
    sp_watch_ids_done(&ids);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(test_one_goes_with_its_last_user, set_up, tear_down),
    cmocka_unit_test_setup_teardown(test_one_that_is_used_again_before_the_sweep_stays, set_up,
                                    tear_down),
    cmocka_unit_test_setup_teardown(test_a_stray_is_removed_and_a_known_one_not, set_up, tear_down),
    cmocka_unit_test(test_many_in_any_order),
};

TEST_MAIN(tests)
