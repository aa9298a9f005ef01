/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "mcp/lines.h"
#include "test.h"

#define PATIENCE_MS 20000
#define MIB         ((size_t)1 << 20)

/* The relay is a process of its own, with pipes or sockets; the server is us. */
static struct {
    char directory[64], path[96];
    int listener;
    int server;  /* the connection, at our end */
    int in, out; /* the relay's stdin and stdout, at our ends */
    pid_t pid;
} fx;

static int set_up(void **state)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};

    (void)state;
    memset(&fx, 0, sizeof fx);
    fx.server = fx.in = fx.out = -1;
    (void)snprintf(fx.directory, sizeof fx.directory, "/tmp/sallyport-test-XXXXXX");
    if (mkdtemp(fx.directory) == NULL)
        return -1;
    (void)snprintf(fx.path, sizeof fx.path, "%s/socket", fx.directory);
    memcpy(a.sun_path, fx.path, strlen(fx.path) + 1);
    fx.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return fx.listener >= 0 && bind(fx.listener, (struct sockaddr *)&a, sizeof a) == 0 &&
                   listen(fx.listener, 1) == 0
               ? 0
               : -1;
}

static void close_all(void)
{
    int *const all[] = {&fx.server, &fx.in, &fx.out, &fx.listener};

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (*all[i] >= 0)
            (void)close(*all[i]);
        *all[i] = -1;
    }
}

static int tear_down(void **state)
{
    (void)state;
    close_all();
    if (fx.pid > 0) { /* a test failed */
        (void)kill(fx.pid, SIGKILL);
        (void)waitpid(fx.pid, NULL, 0);
    }
    (void)unlink(fx.path);
    return rmdir(fx.directory);
}

/* ---- the relay ---- */

static SP_NORETURN void be_the_relay(int in, int out)
{
    struct sp_err e = {0};

    if (dup2(in, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0)
        _exit(99);
    (void)close_range(STDERR_FILENO + 1, ~0U, 0);
    const int r = sp_mcp_relay(fx.path, &e);
    _exit(r == 1 && e.msg[0] == 0 ? 98 : r); /* it says why */
}

static void start(bool has_sockets)
{
    int in[2];
    int out[2];

    if (has_sockets) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in), 0);
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, out), 0);
    } else {
        assert_int_equal(pipe2(in, O_CLOEXEC), 0);
        assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    }
    (void)fflush(stdout);
    fx.pid = fork();
    assert_true(fx.pid >= 0);
    if (fx.pid == 0)
        be_the_relay(in[0], out[1]);
    (void)close(in[0]);
    (void)close(out[1]);
    fx.in = in[1];
    fx.out = out[0];
    (void)fcntl(fx.in, F_SETFL, O_NONBLOCK);
}

static void wait_for(int fd, short events)
{
    struct pollfd p = {.fd = fd, .events = events};

    assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
}

static void start_connected(bool has_sockets)
{
    start(has_sockets);
    wait_for(fx.listener, POLLIN);
    fx.server = accept4(fx.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    assert_true(fx.server >= 0);
}

static int exit_status(void)
{
    int status = -1;

    for (int i = 0; i < PATIENCE_MS / 5; i++) {
        if (waitpid(fx.pid, &status, WNOHANG) == fx.pid) {
            fx.pid = 0;
            assert_true(WIFEXITED(status));
            return WEXITSTATUS(status);
        }
        (void)usleep(5000);
    }
    fail_msg("the relay goes on");
    return -1;
}

static void says(int fd, const char *text)
{
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

static void hears(int fd, const char *want)
{
    char text[256];
    size_t n = 0;

    while (n < strlen(want)) {
        wait_for(fd, POLLIN);
        const ssize_t got = read(fd, text + n, strlen(want) - n);
        assert_true(got > 0);
        n += (size_t)got;
    }
    assert_memory_equal(text, want, n);
}

static void hears_the_end(int fd)
{
    char c;

    wait_for(fd, POLLIN);
    assert_int_equal(read(fd, &c, 1), 0);
}

static void hang_up(int *fd)
{
    (void)close(*fd);
    *fd = -1;
}

/* ---- tests ---- */

static void test_bytes_go_both_ways(void **state)
{
    (void)state;
    for (int has_sockets = 0; has_sockets < 2; has_sockets++) {
        start_connected(has_sockets != 0);
        says(fx.in, "{\"a\":1}\n");
        hears(fx.server, "{\"a\":1}\n");
        says(fx.server, "{\"b\":2}\n{\"c\"");
        hears(fx.out, "{\"b\":2}\n{\"c\"");
        hang_up(&fx.in);
        hears_the_end(fx.server);
        says(fx.server, ":3}\n"); /* the last words */
        hang_up(&fx.server);
        hears(fx.out, ":3}\n");
        hears_the_end(fx.out);
        assert_int_equal(exit_status(), 0);
        hang_up(&fx.out);
    }
}

static void test_what_was_said_before_the_end_arrives(void **state)
{
    (void)state;
    start(false);
    says(fx.in, "last\n");
    hang_up(&fx.in);
    wait_for(fx.listener, POLLIN);
    fx.server = accept4(fx.listener, NULL, NULL, SOCK_CLOEXEC);
    hears(fx.server, "last\n");
    hears_the_end(fx.server);
    hang_up(&fx.server);
    assert_int_equal(exit_status(), 0);
}

static void test_a_server_that_ends_is_told(void **state)
{
    (void)state;
    start_connected(false);
    says(fx.server, "bye\n");
    hang_up(&fx.server);
    hears(fx.out, "bye\n");
    hears_the_end(fx.out);
    assert_int_equal(exit_status(), 1);
}

static void test_nobody_reads(void **state)
{
    (void)state;
    start_connected(false);
    hang_up(&fx.out);
    says(fx.server, "anybody?\n");
    assert_int_equal(exit_status(), 1);
    hears_the_end(fx.server);
}

/* A buffer that was filled before it is drained: what stands still in one direction must not hold
 * up the other. */
static void test_each_direction_goes_on_alone(void **state)
{
    static char block[50000]; /* a pipe has room for one and a part of the next */

    (void)state;
    start_connected(false);
    while (write(fx.server, block, sizeof block) > 0) /* until the relay's stdout is full, too */
        (void)usleep(1000);
    assert_int_equal(errno, EAGAIN);
    for (int i = 0; i < 10; i++) {
        says(fx.in, "still here\n");
        hears(fx.server, "still here\n");
    }
    hang_up(&fx.out);
    assert_int_equal(exit_status(), 1);
}

struct side {
    size_t sent, got;
    uint64_t random;
};

static char byte_at(size_t i)
{
    return (char)(i ^ i >> 8 ^ i >> 16);
}

/* Sends bytes that can be foretold, and checks those that come. */
static void move(struct side *s, int from, int to, short events)
{
    char block[8192];

    if ((events & POLLOUT) != 0 && s->sent < 4 * MIB) {
        const size_t want = 1 + test_random(&s->random) % sizeof block;

        for (size_t i = 0; i < want; i++)
            block[i] = byte_at(s->sent + i);
        const ssize_t n = write(to, block, want);
        if (n > 0)
            s->sent += (size_t)n;
    }
    if ((events & (POLLIN | POLLHUP)) != 0) {
        const ssize_t n = read(from, block, sizeof block);

        assert_true(n != 0 || s->got == 4 * MIB);
        for (ssize_t i = 0; i < n; i++)
            assert_true(block[i] == byte_at(s->got + (size_t)i));
        if (n > 0)
            s->got += (size_t)n;
    }
}

static void test_much_goes_both_ways_at_once(void **state)
{
    struct side host = {.random = 1};
    struct side server = {.random = 2};

    (void)state;
    start_connected(false);
    (void)fcntl(fx.out, F_SETFL, O_NONBLOCK);
    while (host.got < 4 * MIB || server.got < 4 * MIB) {
        struct pollfd p[] = {
            {.fd = host.sent < 4 * MIB ? fx.in : -1, .events = POLLOUT},
            {.fd = fx.out, .events = POLLIN},
            {.fd = fx.server, .events = (short)(POLLIN | (server.sent < 4 * MIB ? POLLOUT : 0))}};

        assert_true(poll(p, 3, PATIENCE_MS) > 0);
        move(&host, fx.out, fx.in, p[0].revents | p[1].revents);
        move(&server, fx.server, fx.server, p[2].revents);
    }
    hang_up(&fx.in);
    hears_the_end(fx.server);
    hang_up(&fx.server);
    assert_int_equal(exit_status(), 0);
}

static void test_nobody_listens(void **state)
{
    struct sp_err e = {0};
    char long_path[200];

    (void)state;
    hang_up(&fx.listener);
    assert_int_equal(sp_mcp_relay(fx.path, &e), 1);
    assert_non_null(strstr(e.msg, "--listen"));
    assert_int_equal(e.sys, ECONNREFUSED);
    memset(long_path, '/', sizeof long_path - 1);
    long_path[sizeof long_path - 1] = 0;
    assert_int_equal(sp_mcp_relay(long_path, &e), 1);
    assert_non_null(strstr(e.msg, "longer than"));
}

static void test_the_server_is_our_own(void **state)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct sp_err e = {0};

    (void)state;
    if (geteuid() != 0) {
        print_message("# only root can be another user\n");
        return;
    }
    hang_up(&fx.listener);
    (void)unlink(fx.path);
    assert_int_equal(chmod(fx.directory, 0777), 0);
    memcpy(a.sun_path, fx.path, strlen(fx.path) + 1);
    assert_int_equal(seteuid(65534), 0);
    fx.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool listens =
        bind(fx.listener, (struct sockaddr *)&a, sizeof a) == 0 && listen(fx.listener, 1) == 0;
    assert_int_equal(seteuid(0), 0);
    assert_true(listens);
    assert_int_equal(sp_mcp_relay(fx.path, &e), 1);
    assert_non_null(strstr(e.msg, "another user"));
}

#define relay_test(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

static const struct CMUnitTest tests[] = {
    relay_test(test_bytes_go_both_ways),
    relay_test(test_what_was_said_before_the_end_arrives),
    relay_test(test_a_server_that_ends_is_told),
    relay_test(test_nobody_reads),
    relay_test(test_each_direction_goes_on_alone),
    relay_test(test_much_goes_both_ways_at_once),
    relay_test(test_nobody_listens),
    relay_test(test_the_server_is_our_own),
};

TEST_MAIN(tests)
