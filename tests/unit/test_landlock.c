/* SPDX-License-Identifier: Apache-2.0 */
#include <ftw.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/auto.h"
#include "os/landlock.h"
#include "process_fixture.h"

/*
 * In a directory of its own: out/f outside of everything writable, in/a and in/b writable, lone a
 * writable file.
 */
static char scratch[256];
static int fds_before;
static int abi;

static void make_file(const char *path)
{
    auto_close int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, "text", 4), 4);
}

static int begin(void **state)
{
    const char *tmp = getenv("TMPDIR");

    (void)state;
    fds_before = open_fds();
    (void)snprintf(scratch, sizeof scratch, "%s/landlock.XXXXXX", tmp != NULL ? tmp : "/tmp");
    assert_non_null(mkdtemp(scratch));
    assert_int_equal(chdir(scratch), 0);
    assert_int_equal(mkdir("out", 0755) | mkdir("in", 0755), 0);
    assert_int_equal(mkdir("in/a", 0755) | mkdir("in/b", 0755), 0);
    make_file("out/f");
    make_file("in/a/f");
    make_file("lone");
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static int end(void **state)
{
    (void)state;
    assert_no_children();
    assert_int_equal(chdir("/"), 0);
    assert_int_equal(nftw(scratch, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
    return open_fds() == fds_before ? 0 : -1;
}

static void needs(int level)
{
    if (abi >= level)
        return;
    print_message("# skipped: Landlock is at level %d here, not %d\n", abi, level);
    skip();
}

static int error_of(long r)
{
    return r < 0 ? errno : 0;
}

static int open_error(const char *path, int flags)
{
    const int fd = open(path, flags | O_CLOEXEC, 0644);
    const int err = error_of(fd);

    if (fd >= 0)
        (void)close(fd);
    return err;
}

static void allow(int ruleset, int level, const char *path, enum sp_landlock_rights rights)
{
    auto_close int fd = open(path, O_PATH | O_CLOEXEC);

    CHILD_CHECK(fd >= 0);
    CHILD_CHECK(sp_landlock_allow(ruleset, level, fd, rights) == 0);
}

/* In a child that may read everything and write in/ and lone, by the rules of this level. */
static void confined(int level, void (*act)(int level))
{
    const pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        const int ruleset = sp_landlock_new(level);

        CHILD_CHECK(ruleset >= 0);
        CHILD_CHECK(fcntl(ruleset, F_GETFD) == FD_CLOEXEC);
        allow(ruleset, level, "/", SP_LANDLOCK_READ);
        allow(ruleset, level, "in", SP_LANDLOCK_WRITE);
        allow(ruleset, level, "lone", SP_LANDLOCK_WRITE);
        allow(ruleset, level, "/dev/null", SP_LANDLOCK_DEVICE);
        CHILD_CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
        CHILD_CHECK(sp_landlock_enter(ruleset) == 0);
        act(level);
        _exit(0);
    }
    assert_int_equal(reap(pid, DEADLINE_MS), 0);
}

static void try_outside(int level)
{
    CHILD_CHECK(open_error("out/f", O_RDONLY) == 0);
    CHILD_CHECK(open_error("out", O_RDONLY | O_DIRECTORY) == 0);
    CHILD_CHECK(open_error("out/f", O_WRONLY) == EACCES);
    CHILD_CHECK(open_error("out/f", O_RDWR) == EACCES);
    CHILD_CHECK(open_error("out/new", O_WRONLY | O_CREAT) == EACCES);
    CHILD_CHECK(open_error("in/../out/f", O_WRONLY) == EACCES);
    CHILD_CHECK(error_of(mkdir("out/d", 0755)) == EACCES);
    CHILD_CHECK(error_of(symlink("x", "out/s")) == EACCES);
    CHILD_CHECK(error_of(mkfifo("out/p", 0644)) == EACCES);
    CHILD_CHECK(error_of(unlink("out/f")) == EACCES);
    CHILD_CHECK(error_of(rmdir("out")) == EACCES);
    const int across = error_of(rename("out/f", "in/f"));
    CHILD_CHECK(across == EXDEV || across == EACCES);
    const int out = error_of(rename("in/a/f", "out/g"));
    CHILD_CHECK(out == EXDEV || out == EACCES);
    if (level >= 3) {
        CHILD_CHECK(error_of(truncate("out/f", 0)) == EACCES);
        CHILD_CHECK(open_error("out/f", O_RDONLY | O_TRUNC) == EACCES);
    }
}

static void test_outside_may_be_read_and_not_changed(void **state)
{
    (void)state;
    needs(1);
    for (int level = 1; level <= abi; level++)
        confined(level, try_outside);
}

static void try_inside(int level)
{
    CHILD_CHECK(open_error("in/a/f", O_RDWR | O_TRUNC) == 0);
    CHILD_CHECK(open_error("in/a/new", O_WRONLY | O_CREAT | O_EXCL) == 0);
    CHILD_CHECK(mkdir("in/a/d", 0755) == 0);
    CHILD_CHECK(symlink("x", "in/a/s") == 0);
    CHILD_CHECK(mkfifo("in/a/p", 0644) == 0);
    CHILD_CHECK(truncate("in/a/new", 100) == 0);
    CHILD_CHECK(rename("in/a/new", "in/a/newer") == 0);
    /* From one directory to another: until level 2 no rule can allow it. */
    CHILD_CHECK(error_of(rename("in/a/newer", "in/b/newer")) == (level >= 2 ? 0 : EXDEV));
    CHILD_CHECK(unlink(level >= 2 ? "in/b/newer" : "in/a/newer") == 0);
    CHILD_CHECK(unlink("in/a/s") == 0 && unlink("in/a/p") == 0 && rmdir("in/a/d") == 0);
}

static void test_inside_everything_goes(void **state)
{
    (void)state;
    needs(1);
    for (int level = 1; level <= abi; level++)
        confined(level, try_inside);
}

static void try_lone_file(int level)
{
    (void)level;
    CHILD_CHECK(open_error("lone", O_RDWR | O_TRUNC) == 0);
    CHILD_CHECK(truncate("lone", 3) == 0);
    CHILD_CHECK(error_of(unlink("lone")) == EACCES);
    CHILD_CHECK(open_error("beside", O_WRONLY | O_CREAT) == EACCES);
}

static void test_a_single_file_may_be_writable(void **state)
{
    (void)state;
    needs(1);
    for (int level = 1; level <= abi; level++)
        confined(level, try_lone_file);
}

static void try_devices(int level)
{
    const int null = open("/dev/null", O_RDWR | O_TRUNC | O_CLOEXEC);
    const int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    char termios[128];

    CHILD_CHECK(null >= 0 && zero >= 0);
    CHILD_CHECK(write(null, "x", 1) == 1);
    CHILD_CHECK(error_of(ioctl(null, TCGETS, termios)) == ENOTTY);
    CHILD_CHECK(error_of(ioctl(zero, TCGETS, termios)) == (level >= 5 ? EACCES : ENOTTY));
    CHILD_CHECK(open_error("/dev/zero", O_WRONLY) == EACCES);
}

static void test_a_device_may_be_written_and_asked(void **state)
{
    (void)state;
    needs(1);
    for (int level = 1; level <= abi; level++)
        confined(level, try_devices);
}

static void try_exec(int level)
{
    (void)level;
    (void)execl("/bin/sh", "sh", "-c",
                "! (: >out/f) 2>/dev/null && : >in/b/made && cat out/f >/dev/null", NULL);
    _exit(98);
}

static void test_what_is_readable_runs_and_stays_confined(void **state)
{
    (void)state;
    needs(1);
    for (int level = 1; level <= abi; level++)
        confined(level, try_exec);
}

/* A rule on a file that carries a directory's right is EINVAL. */
static void test_rights_fit_every_kind_of_file_at_every_level(void **state)
{
    static const char *const places[] = {"in", "lone", "/dev/null", "/dev", "pipe", "link"};

    (void)state;
    needs(1);
    assert_int_equal(mkfifo("pipe", 0644), 0);
    assert_int_equal(symlink("lone", "link"), 0);
    for (int level = 1; level <= abi; level++)
        for (unsigned i = 0; i < sizeof places / sizeof places[0] * 3; i++) {
            auto_close int ruleset = sp_landlock_new(level);
            auto_close int fd = open(places[i / 3], O_PATH | O_NOFOLLOW | O_CLOEXEC);

            assert_true(ruleset >= 0 && fd >= 0);
            assert_int_equal(sp_landlock_allow(ruleset, level, fd, i % 3), 0);
        }
}

/* ---- scopes ---- */

static int abstract_socket(const char *name, struct sockaddr_un *addr, socklen_t *len)
{
    *addr = (struct sockaddr_un){.sun_family = AF_UNIX};
    (void)snprintf(addr->sun_path + 1, sizeof addr->sun_path - 1, "%s", name);
    *len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
    return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

static struct sockaddr_un parents_addr;
static socklen_t parents_len;

static void try_scope(int level)
{
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un own_addr;
    socklen_t own_len;
    const int own = abstract_socket(strrchr(scratch, '/'), &own_addr, &own_len);
    const int refused = level >= 6 ? EPERM : 0;

    own_addr.sun_path[1] = '#'; /* not the parent's */
    CHILD_CHECK(error_of(kill(getppid(), 0)) == refused);
    CHILD_CHECK(kill(getpid(), 0) == 0);
    CHILD_CHECK(bind(own, (struct sockaddr *)&own_addr, own_len) == 0 && listen(own, 1) == 0);
    CHILD_CHECK(error_of(connect(fd, (struct sockaddr *)&parents_addr, parents_len)) == refused);
    if (refused != 0)
        CHILD_CHECK(connect(fd, (struct sockaddr *)&own_addr, own_len) == 0);
}

static void listen_in_parent(int *ret_fd)
{
    *ret_fd = abstract_socket(strrchr(scratch, '/'), &parents_addr, &parents_len);
    assert_true(*ret_fd >= 0);
    assert_int_equal(bind(*ret_fd, (struct sockaddr *)&parents_addr, parents_len), 0);
    assert_int_equal(listen(*ret_fd, 16), 0);
}

static void test_others_are_out_of_reach(void **state)
{
    int server;

    (void)state;
    needs(1);
    listen_in_parent(&server);
    for (int level = 1; level <= abi; level++)
        confined(level, try_scope);
    (void)close(server);
}

static void test_a_scope_alone_leaves_files_free(void **state)
{
    int server;

    (void)state;
    needs(6);
    assert_int_equal(sp_landlock_new_scope(5, -1), -ENOTSUP);
    assert_int_equal(sp_landlock_new_scope(0, -1), -ENOTSUP);
    listen_in_parent(&server);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        const int root = open("/", O_PATH | O_CLOEXEC);
        const int ruleset = sp_landlock_new_scope(abi, root);

        CHILD_CHECK(ruleset >= 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
        CHILD_CHECK(sp_landlock_enter(ruleset) == 0);
        try_scope(abi);
        CHILD_CHECK(open_error("out/f", O_RDWR | O_TRUNC) == 0);
        CHILD_CHECK(rename("in/a/f", "out/g") == 0); /* between directories */
        _exit(0);
    }
    assert_int_equal(reap(pid, DEADLINE_MS), 0);
    (void)close(server);
}

/* ---- refusals ---- */

static void try_depth(int level)
{
    const int ruleset = sp_landlock_new(level);

    allow(ruleset, level, "/", SP_LANDLOCK_WRITE);
    for (int depth = 2; depth <= 16; depth++)
        CHILD_CHECK(sp_landlock_enter(ruleset) == 0);
    CHILD_CHECK(sp_landlock_enter(ruleset) == -E2BIG);
    CHILD_CHECK(open_error("out/f", O_WRONLY) == EACCES); /* rules add up, they do not replace */
    CHILD_CHECK(open_error("in/a/f", O_WRONLY) == 0);
}

static void test_sixteen_domains_deep_is_the_end(void **state)
{
    (void)state;
    needs(1);
    confined(abi, try_depth);
}

static void test_what_cannot_be_is_said(void **state)
{
    (void)state;
    assert_int_equal(sp_landlock_new(0), -ENOTSUP);
    assert_int_equal(sp_landlock_allow(-1, 1, -1, SP_LANDLOCK_READ), -EBADF);
    needs(1);
    assert_true(sp_landlock_enter(-1) == -EBADF || sp_landlock_enter(-1) == -EPERM);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        const int ruleset = sp_landlock_new(abi);

        if (geteuid() == 0)
            CHILD_CHECK(setresuid(65534, 65534, 65534) == 0);
        CHILD_CHECK(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ||
                    sp_landlock_enter(ruleset) == -EPERM);
        _exit(0);
    }
    assert_int_equal(reap(pid, DEADLINE_MS), 0);
}

#define landlock_test(f) cmocka_unit_test_setup_teardown(f, begin, end)

static const struct CMUnitTest tests[] = {
    landlock_test(test_outside_may_be_read_and_not_changed),
    landlock_test(test_inside_everything_goes),
    landlock_test(test_a_single_file_may_be_writable),
    landlock_test(test_a_device_may_be_written_and_asked),
    landlock_test(test_what_is_readable_runs_and_stays_confined),
    landlock_test(test_rights_fit_every_kind_of_file_at_every_level),
    landlock_test(test_others_are_out_of_reach),
    landlock_test(test_a_scope_alone_leaves_files_free),
    landlock_test(test_sixteen_domains_deep_is_the_end),
    landlock_test(test_what_cannot_be_is_said),
};

int main(void)
{
    abi = sp_landlock_abi();
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
