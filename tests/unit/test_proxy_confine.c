/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Children that are confined as the proxy and the resolver are, and try what both need and what
 * neither may.
 */
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "os/fd.h"
#include "os/loop.h"
#include "process_fixture.h"
#include "proxy/names.h"
#include "proxy/proxy_confine.h"

/* Made before the confinement, as the front would hand them over. */
static int listener, memory, pair[2];
static struct sockaddr_in address;

static int begin(void **state)
{
    socklen_t n = sizeof address;

    (void)state;
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000001)};
    assert_int_equal(bind(listener, (void *)&address, sizeof address), 0);
    assert_int_equal(listen(listener, 10), 0);
    assert_int_equal(getsockname(listener, (void *)&address, &n), 0);
    memory = memfd_create("names", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(memory, (off_t)sp_names_bytes()), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    return 0;
}

static int end(void **state)
{
    (void)state;
    (void)close(listener);
    (void)close(memory);
    (void)close(pair[0]);
    (void)close(pair[1]);
    assert_no_children();
    return 0;
}

static int status_of(int (*confine)(struct sp_err *), void (*act)(void))
{
    const pid_t pid = fork();
    int status = 0;

    assert_true(pid >= 0);
    if (pid == 0) {
        struct sp_err e = {0};

        if (confine(&e) < 0) {
            (void)dprintf(2, "confine: %s\n", e.msg);
            _exit(98);
        }
        act();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

/* ---- the proxy ---- */

static void on_time(struct sp_timer *t)
{
    t->fn = NULL;
}

static struct sp_loop *loop;

static void on_accept(struct sp_watch *w, uint32_t events)
{
    struct sockaddr_in from;
    socklen_t n = sizeof from;
    const int fd = accept4(w->fd, (void *)&from, &n, SOCK_CLOEXEC | SOCK_NONBLOCK);
    const int one = 1;
    int value;
    char text[8];
    int pipes[2];

    (void)events;
    CHILD_CHECK(fd >= 0);
    CHILD_CHECK(getsockname(fd, (void *)&from, &n) == 0 && getpeername(fd, (void *)&from, &n) == 0);
    CHILD_CHECK(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0);
    n = sizeof value;
    CHILD_CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &value, &n) == 0);
    CHILD_CHECK(pipe2(pipes, O_CLOEXEC | O_NONBLOCK) == 0);
    CHILD_CHECK(fcntl(pipes[0], F_SETPIPE_SZ, 1 << 16) > 0);
    CHILD_CHECK(splice(fd, NULL, pipes[1], NULL, 100, SPLICE_F_MOVE | SPLICE_F_NONBLOCK) == 5);
    CHILD_CHECK(splice(pipes[0], NULL, fd, NULL, 100, SPLICE_F_MOVE | SPLICE_F_NONBLOCK) == 5);
    CHILD_CHECK(recv(fd, text, sizeof text, MSG_DONTWAIT) < 0 && errno == EAGAIN);
    CHILD_CHECK(shutdown(fd, SHUT_WR) == 0);
    CHILD_CHECK(close(fd) == 0 && close(pipes[0]) == 0 && close(pipes[1]) == 0);
    sp_loop_stop(loop);
}

static void carry_a_connection(void)
{
    const int out = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
    struct sp_watch w = {0};
    struct sp_timer t = {0};
    struct sp_err e;
    char text[8];

    CHILD_CHECK(out >= 0);
    CHILD_CHECK(connect(out, (void *)&address, sizeof address) == 0 || errno == EINPROGRESS);
    CHILD_CHECK(fcntl(out, F_SETFL, fcntl(out, F_GETFL) & ~O_NONBLOCK) == 0);
    CHILD_CHECK(send(out, "hello", 5, MSG_NOSIGNAL) == 5);
    CHILD_CHECK(sp_loop_new(&loop, &e) == 0);
    CHILD_CHECK(sp_loop_watch(loop, &w, listener, EPOLLIN, on_accept, &e) == 0);
    CHILD_CHECK(sp_loop_timer(loop, &t, sp_loop_now(loop) + 1, on_time));
    sp_loop_expect(loop, 10);
    CHILD_CHECK(sp_loop_run(loop, &e) == 0);
    CHILD_CHECK(read(out, text, sizeof text) == 5 && read(out, text, sizeof text) == 0);
    sp_loop_free(loop);
    (void)close(out);
}

static void use_messages(void)
{
    char text[100] = {0};
    struct iovec iov = {.iov_base = text, .iov_len = sizeof text};
    struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};
    int fd;
    int count;

    CHILD_CHECK(sendmsg(pair[0], &h, MSG_NOSIGNAL) == sizeof text);
    CHILD_CHECK(sp_fd_recv(pair[1], &h, MSG_DONTWAIT, &fd, 1, &count) == sizeof text);
    const int udp = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    CHILD_CHECK(udp >= 0 || errno == EAFNOSUPPORT);
    (void)close(udp);
    CHILD_CHECK(write(2, "", 0) == 0);
}

static void use_memory(void)
{
    struct sp_names *names;
    struct sp_err e;
    uint32_t random;

    for (size_t n = 16; n <= 8U << 20; n *= 4) { /* brk, mmap, mremap, munmap */
        char *block = malloc(n);

        CHILD_CHECK(block != NULL);
        memset(block, 1, n);
        block = realloc(block, n * 3);
        CHILD_CHECK(block != NULL);
        free(block);
    }
    CHILD_CHECK(sp_names_open(memory, &names, &e) == 0);
    CHILD_CHECK(sp_names_address(names, SP_STR("a.example"), false) == SP_NAMES_FIRST);
    sp_names_close(names);
    CHILD_CHECK(getrandom(&random, sizeof random, 0) == sizeof random);
}

static void work_as_proxy(void)
{
    carry_a_connection();
    use_messages();
    use_memory();
    CHILD_CHECK(sched_yield() == 0);
}

static void test_the_proxy_can_work(void **state)
{
    (void)state;
    assert_int_equal(status_of(sp_proxy_confine, work_as_proxy), 0);
}

static void abort_quietly(void)
{
    abort();
}

static void test_a_failed_assertion_shows(void **state)
{
    (void)state;
    const int status = status_of(sp_proxy_confine, abort_quietly);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
    assert_false(WCOREDUMP(status));
}

/* Each is a child's last act. */
#define TRY(name, call)    \
    static void name(void) \
    {                      \
        (void)(call);      \
    }

TRY(try_unix, socket(AF_UNIX, SOCK_STREAM, 0))
TRY(try_pair, syscall(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, pair))
TRY(try_raw, socket(AF_INET, SOCK_RAW, IPPROTO_TCP))
TRY(try_sctp, socket(AF_INET, SOCK_STREAM, 132))
TRY(try_packet, socket(AF_PACKET, SOCK_DGRAM, 0))
TRY(try_netlink, socket(AF_NETLINK, SOCK_RAW, 0))
TRY(try_bind, bind(pair[0], (void *)&address, sizeof address))
TRY(try_listen, listen(listener, 1))
TRY(try_exec, execl("/bin/true", "true", NULL))
TRY(try_vfork_call, syscall(SYS_clone, CLONE_VM | CLONE_VFORK | SIGCHLD, 0, 0, 0, 0))
TRY(try_clone3, syscall(SYS_clone3, NULL, 0))
TRY(try_kill, kill(getppid(), 0))
TRY(try_tgkill, syscall(SYS_tgkill, getppid(), getppid(), 0))
TRY(try_ptrace, syscall(SYS_ptrace, 0, 0, 0, 0))
TRY(try_setown, fcntl(pair[0], F_SETOWN, 1))
TRY(try_setsig, fcntl(pair[0], F_SETSIG, SIGKILL))
TRY(try_ioctl, syscall(SYS_ioctl, 0, 0x5412, ""))
TRY(try_memfd, syscall(SYS_memfd_create, "x", 0))
TRY(try_chdir, chdir("/"))
TRY(try_unlink, syscall(SYS_unlinkat, AT_FDCWD, "/nonexistent", 0))
TRY(try_dup, dup2(0, 100))
TRY(try_exec_memory, mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))
TRY(try_make_executable, syscall(SYS_mprotect, 0x1000, 4096, PROT_READ | PROT_EXEC))
TRY(try_io_uring, syscall(425, 1, NULL))
TRY(try_bpf, syscall(SYS_bpf, 0, NULL, 0))
TRY(try_unknown, syscall(9999, 0))
#ifndef __SANITIZE_ADDRESS__ /* a sanitizer may try these: they fail */
TRY(try_open, syscall(SYS_openat, AT_FDCWD, "/etc/passwd", O_RDONLY))
TRY(try_stat, syscall(SYS_newfstatat, AT_FDCWD, "/", NULL, 0))
TRY(try_fork, syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0))
TRY(try_prctl, prctl(PR_GET_DUMPABLE))
TRY(try_prlimit, syscall(SYS_prlimit64, 0, RLIMIT_AS, NULL, NULL))
#endif

static void test_what_kills_the_proxy(void **state)
{
    static void (*const tries[])(void) = {
        try_unix,        try_pair,
        try_raw,         try_sctp,
        try_packet,      try_netlink,
        try_bind,        try_listen,
        try_exec,        try_clone3,
        try_kill,        try_tgkill,
        try_ptrace,      try_setown,
        try_setsig,      try_ioctl,
        try_memfd,       try_chdir,
        try_unlink,      try_dup,
        try_exec_memory, try_make_executable,
        try_io_uring,    try_bpf,
        try_unknown,
#ifndef __SANITIZE_ADDRESS__
        try_open,        try_stat,
        try_fork,        try_vfork_call,
        try_prctl,       try_prlimit,
#endif
    };

    (void)state;
    (void)try_vfork_call;
    for (size_t i = 0; i < sizeof tries / sizeof tries[0]; i++) {
        const int status = status_of(sp_proxy_confine, tries[i]);

        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGSYS || WCOREDUMP(status))
            fail_msg("try %zu: wait status %#x", i, (unsigned)status);
    }
}

/* ---- the resolver ---- */

static int error_of(long r)
{
    return r < 0 ? errno : 0;
}

static void *look_up(void *user)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *all = NULL;

    (void)user;
    CHILD_CHECK(getaddrinfo("localhost", NULL, &hints, &all) == 0);
    freeaddrinfo(all);
    return NULL;
}

static void work_as_resolver(void)
{
    pthread_t threads[4];

    for (int i = 0; i < 4; i++)
        CHILD_CHECK(pthread_create(&threads[i], NULL, look_up, NULL) == 0);
    for (int i = 0; i < 4; i++)
        CHILD_CHECK(pthread_join(threads[i], NULL) == 0);
    const int fd = open("/etc/hosts", O_RDONLY | O_CLOEXEC);
    CHILD_CHECK(fd >= 0 || errno == ENOENT);
}

static void test_the_resolver_can_work(void **state)
{
    (void)state;
    assert_int_equal(status_of(sp_resolver_confine, work_as_resolver), 0);
}

static void try_all_of_the_resolver(void)
{
    const struct sockaddr_un path = {.sun_family = AF_UNIX, .sun_path = "/tmp/sallyport-no-such"};

    CHILD_CHECK(error_of(socket(AF_UNIX, SOCK_STREAM, 0)) == EPERM);
    CHILD_CHECK(error_of(bind(pair[0], (const void *)&path, sizeof path)) != 0);
    CHILD_CHECK(error_of(socket(AF_INET, SOCK_RAW, IPPROTO_TCP)) == EPERM);
    CHILD_CHECK(error_of(listen(listener, 1)) == EPERM);
    CHILD_CHECK(error_of(accept4(listener, NULL, NULL, SOCK_NONBLOCK)) == EPERM);
    CHILD_CHECK(error_of(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)) == EPERM);
    CHILD_CHECK(error_of(syscall(SYS_clone3, NULL, 0)) == ENOSYS);
    CHILD_CHECK(error_of(fork()) == EPERM);
    CHILD_CHECK(error_of(kill(getppid(), 0)) == EPERM);
    CHILD_CHECK(error_of(kill(getpid(), 0)) == EPERM);
    CHILD_CHECK(error_of(syscall(SYS_tgkill, getppid(), getppid(), 0)) == EPERM);
    CHILD_CHECK(error_of(syscall(SYS_tgkill, getpid(), gettid(), 0)) == 0);
    CHILD_CHECK(error_of(syscall(SYS_ptrace, 0, 0, 0, 0)) == EPERM);
    CHILD_CHECK(error_of(fcntl(pair[0], F_SETOWN, 1)) == EPERM);
    CHILD_CHECK(error_of(syscall(SYS_ioctl, pair[0], 0x8901, "\1\0\0\0")) == EPERM);
    /* files: only the few directories, and nothing is written */
    CHILD_CHECK(error_of(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC)) == EACCES);
    CHILD_CHECK(error_of(open("/proc/self/status", O_RDONLY | O_CLOEXEC)) == EACCES);
    CHILD_CHECK(error_of(open("/dev/null", O_RDONLY | O_CLOEXEC)) == EACCES);
    CHILD_CHECK(error_of(open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC)) == EACCES);
    CHILD_CHECK(error_of(open("/etc/sallyport-no-such", O_WRONLY | O_CREAT | O_CLOEXEC, 0600)) !=
                0);
    CHILD_CHECK(error_of(open("/etc/hosts", O_RDWR | O_CLOEXEC)) != 0);
}

static void test_what_the_resolver_may_not(void **state)
{
    (void)state;
    assert_int_equal(status_of(sp_resolver_confine, try_all_of_the_resolver), 0);
    const int status = status_of(sp_resolver_confine, try_exec);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(test_the_proxy_can_work, begin, end),
    cmocka_unit_test_setup_teardown(test_a_failed_assertion_shows, begin, end),
    cmocka_unit_test_setup_teardown(test_what_kills_the_proxy, begin, end),
    cmocka_unit_test_setup_teardown(test_the_resolver_can_work, begin, end),
    cmocka_unit_test_setup_teardown(test_what_the_resolver_may_not, begin, end),
};

TEST_MAIN(tests)
