/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are closed by threads, on disks that take their time. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/auto.h"
#include "core/files.h"
#include "test.h"

#define TURNS 2000 /* of 10 ms */

/* ---- a disk that hangs: files whose device is DEAD are closed when it is let go ---- */

#define DEAD 4711U

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static atomic_int dead_first, dead_last; /* numbers of descriptors on it */
static atomic_int hanging, closed_by_front;
static pthread_t front;
static int refused_threads;

int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd)
{
    if (pthread_equal(pthread_self(), front))
        atomic_fetch_add(&closed_by_front, 1);
    if (fd >= dead_first && fd <= dead_last) {
        atomic_fetch_add(&hanging, 1);
        (void)pthread_mutex_lock(&gate);
        (void)pthread_mutex_unlock(&gate);
        atomic_fetch_sub(&hanging, 1);
    }
    return __real_close(fd);
}

int __real_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg)
{
    if (refused_threads > 0) {
        refused_threads--;
        return EAGAIN;
    }
    return __real_pthread_create(t, a, fn, arg);
}

static int device_shift; /* 0: all are of one; else each number has its own */

int __real_statx(int dir, const char *path, int flags, unsigned mask, struct statx *sx);
int __wrap_statx(int dir, const char *path, int flags, unsigned mask, struct statx *sx);
int __wrap_statx(int dir, const char *path, int flags, unsigned mask, struct statx *sx)
{
    const int r = __real_statx(dir, path, flags, mask, sx);

    assert_true((flags & AT_STATX_DONT_SYNC) != 0);
    if (dir >= dead_first && dir <= dead_last)
        sx->stx_dev_minor = DEAD + (unsigned)(device_shift * dir);
    return r;
}

/* ---- the front ---- */

struct file {
    struct sp_closing closing;
    unsigned done;
};

static struct sp_loop *loop;
static struct sp_front host;
static struct sp_files *files;
static unsigned done;

static void on_done(struct sp_closing *c)
{
    struct file *f = SP_CONTAINER(c, struct file, closing);

    assert_true(pthread_equal(pthread_self(), front));
    f->done++;
    done++;
}

static void give(struct file *f, int fd)
{
    *f = (struct file){.closing.done = on_done};
    sp_files_close(files, &f->closing, fd);
    assert_int_equal(f->done, 0); /* never from within */
}

static bool is_full(void)
{
    struct sp_err e = {0};

    return sp_files_can_open(files, &e) == -SP_E_LIMIT;
}

static int a_file(void)
{
    const int fd = memfd_create("test", MFD_CLOEXEC);

    assert_true(fd > 2);
    return fd;
}

static void turn(void)
{
    struct sp_err e = {0};

    assert_int_equal(sp_loop_dispatch(loop, 10, &e), 0);
}

static void until_done(unsigned n)
{
    for (int i = 0; done < n && i < TURNS; i++)
        turn();
    assert_int_equal(done, n);
}

static void until_hanging(int n)
{
    for (int i = 0; hanging < n && i < TURNS; i++)
        turn();
    assert_int_equal(hanging, n);
}

static int set_up(void **state)
{
    struct sp_err e = {0};

    (void)state;
    front = pthread_self();
    done = 0;
    refused_threads = 0;
    device_shift = 0;
    dead_first = 1;
    dead_last = 0;
    assert_int_equal(sp_loop_new(&loop, &e), 0);
    host = (struct sp_front){.loop = loop};
    assert_int_equal(sp_files_new(&host, &files, &e), 0);
    assert_int_equal(sp_files_can_open(files, &e), 0); /* has the threads' descriptor */
    sp_loop_poke(loop);
    closed_by_front = 0;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    sp_files_free(files);
    sp_loop_free(loop);
    return 0;
}

/* ---- tests ---- */

static void test_closed_and_told(void **state)
{
    static struct file f[3];
    const int before = a_file(); /* the lowest number that is free */

    (void)state;
    (void)__real_close(before);
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 3; i++)
            give(&f[i], a_file());
        until_done((unsigned)(round + 1) * 3);
    }
    const int after = a_file();
    assert_int_equal(after, before);
    (void)__real_close(after);
    assert_int_equal(closed_by_front, 0);
    assert_false(is_full());
}

static void test_a_disk_that_hangs_holds_up_its_own_alone(void **state)
{
    static struct file dead[3];
    static struct file f[5];
    int fds[3];

    (void)state;
    for (int i = 0; i < 3; i++)
        fds[i] = a_file();
    dead_first = fds[0];
    dead_last = fds[2];
    (void)pthread_mutex_lock(&gate);
    for (int i = 0; i < 3; i++)
        give(&dead[i], fds[i]);
    until_hanging(1); /* one thread for one disk */
    for (int i = 0; i < 5; i++) {
        give(&f[i], a_file());
        until_done((unsigned)i + 1);
    }
    assert_int_equal(hanging, 1);
    (void)pthread_mutex_unlock(&gate);
    until_done(8);
    assert_int_equal(closed_by_front, 0);
}

static void test_as_many_dead_disks_as_threads(void **state)
{
    enum { MORE = SP_CLOSING_THREADS + 3 };
    static struct file f[MORE];
    static int fds[MORE];

    (void)state;
    device_shift = 1;
    for (int i = 0; i < MORE; i++)
        fds[i] = a_file();
    dead_first = fds[0];
    dead_last = fds[MORE - 1];
    (void)pthread_mutex_lock(&gate);
    for (int i = 0; i < MORE; i++)
        give(&f[i], fds[i]);
    until_hanging(SP_CLOSING_THREADS);
    for (int i = 0; i < 30; i++)
        turn();
    assert_int_equal(hanging, SP_CLOSING_THREADS);
    assert_int_equal(done, 0);
    (void)pthread_mutex_unlock(&gate);
    until_done(MORE);
}

static void test_full(void **state)
{
    static struct file f[SP_CLOSING_MAX];
    struct rlimit nofile;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &nofile), 0);
    nofile.rlim_cur = nofile.rlim_max;
    if (nofile.rlim_max < SP_CLOSING_MAX + 64 || setrlimit(RLIMIT_NOFILE, &nofile) < 0) {
        (void)printf("# so many files may not be open here\n");
        return;
    }
    const int first = a_file();
    dead_first = first;
    dead_last = first + SP_CLOSING_MAX;
    (void)pthread_mutex_lock(&gate);
    give(&f[0], first);
    for (int i = 1; i < SP_CLOSING_MAX; i++) {
        assert_false(is_full());
        give(&f[i], fcntl(first, F_DUPFD_CLOEXEC, first + i));
    }
    assert_true(is_full());
    (void)pthread_mutex_unlock(&gate);
    until_done(SP_CLOSING_MAX);
    assert_false(is_full());
}

static void test_threads_that_are_not_to_be_had(void **state)
{
    static struct file f[2];

    (void)state;
    refused_threads = 5;
    give(&f[0], a_file());
    give(&f[1], a_file());
    for (int i = 0; i < 3; i++)
        turn();
    assert_int_equal(done, 0);
    until_done(2);
    assert_int_equal(refused_threads, 0);
    assert_int_equal(closed_by_front, 0);
}

static atomic_int signals;

static void on_signal(int n)
{
    (void)n;
    assert_true(pthread_equal(pthread_self(), front));
    atomic_fetch_add(&signals, 1);
}

static void test_signals_are_the_fronts(void **state)
{
    struct sigaction new = {.sa_handler = on_signal};
    struct sigaction old;
    static struct file f;
    const int fd = a_file();
    sigset_t usr1;
    sigset_t before;

    (void)state;
    assert_int_equal(sigaction(SIGUSR1, &new, &old), 0);
    dead_first = dead_last = fd;
    (void)pthread_mutex_lock(&gate);
    give(&f, fd);
    until_hanging(1);
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    (void)pthread_sigmask(SIG_BLOCK, &usr1, &before); /* the other would have to take it */
    (void)kill(getpid(), SIGUSR1);
    for (int i = 0; i < 5; i++)
        turn();
    assert_int_equal(signals, 0);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    assert_int_equal(signals, 1);
    (void)pthread_mutex_unlock(&gate);
    until_done(1);
    (void)sigaction(SIGUSR1, &old, NULL);
}

/* The end waits for what is about to be closed, and not for what hangs. */
static void test_the_end(void **state)
{
    static struct file hangs;
    static struct file f;
    struct sp_err e = {0};

    (void)state;
    give(&f, a_file());
    sp_files_free(files);
    assert_int_equal(done, 1);
    host = (struct sp_front){.loop = loop};
    assert_int_equal(sp_files_new(&host, &files, &e), 0);
    assert_int_equal(sp_files_can_open(files, &e), 0); /* has the threads' descriptor */
    const int fd = a_file();
    dead_first = dead_last = fd;
    (void)pthread_mutex_lock(&gate);
    give(&hangs, fd);
    until_hanging(1);
    sp_files_free(files);
    files = NULL;
    assert_int_equal(done, 1);
    (void)pthread_mutex_unlock(&gate);
    for (int i = 0; hanging != 0 && i < TURNS; i++)
        turn();
    assert_int_equal(hanging, 0);
}

#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_closed_and_told),
        T(test_a_disk_that_hangs_holds_up_its_own_alone),
        T(test_as_many_dead_disks_as_threads),
        T(test_full),
        T(test_threads_that_are_not_to_be_had),
        T(test_signals_are_the_fronts),
        T(test_the_end),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
