/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libsallyport in programs with habits: what they do to signals, children, descriptors and
 * themselves does not disturb it, and it does not disturb them.
 */
#include <sys/resource.h>
#include <sys/stat.h>

#include "lib_plain.h"

/* ---- hosts with habits ---- */

/* In a child of the test, which may spoil what it likes. */
static void in_a_child(void (*fn)(void))
{
    int status = 0;
    const pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        fn();
        _exit(0);
    }
    const uint64_t end = now_ms() + 2 * DEADLINE_MS;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (now_ms() > end) {
            (void)kill(pid, SIGKILL);
            fail_msg("the child hangs");
        }
        (void)poll(NULL, 0, 5);
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("the child ended with status %#x", (unsigned)status);
}

#define CHECK(condition)               \
    do {                               \
        if (!(condition))              \
            _exit(__LINE__ % 200 + 1); \
    } while (0)

static int plain_code;

static void on_plain(void *user, const struct sp_answer *a)
{
    (void)user;
    plain_code = a->outcome == SP_OUTCOME_EXITED ? a->exit_code : 1000 + (int)a->outcome;
}

static struct sp_engine *plain_engine(void)
{
    const struct sp_engine_options o = default_options();
    struct sp_engine *made = NULL;

    CHECK(sp_engine_new(&o, &made, NULL) == 0);
    return made;
}

/* The exit code of a command, in a child. */
static int plain_run(struct sp_engine *en, const char *script)
{
    const char *const argv[] = {"sh", "-c", script, NULL};
    const struct sp_run_options o = {.size = sizeof o, .argv = argv, .timeout_ms = 20000};

    plain_code = -1;
    CHECK(sp_engine_run(en, &o, on_plain, NULL, NULL, NULL) == 0);
    while (plain_code < 0)
        CHECK(sp_engine_dispatch(en, 1000, NULL) == 0);
    return plain_code;
}

static void host_ignores_children(void)
{
    (void)signal(SIGCHLD, SIG_IGN);
    struct sp_engine *en = plain_engine();
    CHECK(plain_run(en, "sleep 0.05; exit 7") == 7);
    sp_engine_free(en);
}

static void reap_all(int signal)
{
    const int before = errno;

    (void)signal;
    while (waitpid(-1, NULL, WNOHANG) > 0) {
    }
    errno = before;
}

static void host_reaps_everything(void)
{
    (void)signal(SIGCHLD, reap_all);
    struct sp_engine *en = plain_engine();
    CHECK(plain_run(en, "sleep 0.05; exit 7") == 7);
    sp_engine_free(en);
}

static void host_without_stdio(void)
{
    for (int fd = 0; fd < 3; fd++)
        (void)close(fd);
    struct sp_engine *en = plain_engine();
    CHECK(plain_run(en, "echo hello; cat; exit 7") == 7);
    sp_engine_free(en);
    CHECK(open("/", O_PATH) == 0); /* nothing is left on their numbers */
}

static void host_with_a_tight_umask_and_blocked_signals(void)
{
    sigset_t all;

    sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, NULL);
    (void)umask(0777);
    struct sp_engine *en = plain_engine();
    CHECK(plain_run(en, "kill -TERM $$; exit 1") == 1000 + SP_OUTCOME_SIGNALLED);
    sp_engine_free(en);
    CHECK(umask(0) == 0777);
}

static volatile sig_atomic_t ticks;

static void on_tick(int signal)
{
    (void)signal;
    ticks++;
}

static void host_with_a_ticking_signal(void)
{
    const struct sigaction tick = {.sa_handler =
                                       on_tick}; /* no SA_RESTART: calls are interrupted */
    struct itimerspec often = {.it_interval.tv_nsec = 300000, .it_value.tv_nsec = 300000};
    timer_t timer;

    CHECK(sigaction(SIGALRM, &tick, NULL) == 0);
    CHECK(timer_create(CLOCK_MONOTONIC, NULL, &timer) == 0);
    CHECK(timer_settime(timer, 0, &often, NULL) == 0);
    struct sp_engine *en = plain_engine();
    for (int i = 0; i < 30; i++)
        CHECK(plain_run(en, "echo hello; exit 7") == 7);
    sp_engine_free(en);
    CHECK(ticks > 10);
}

static void host_with_sigpipe_at_its_default(void)
{
    static const char *const argv[] = {"sh", "-c", "exec 0<&-; echo closed; sleep 5", NULL};
    const struct sp_exec_options o = {
        .size = sizeof o, .argv = argv, .has_stdin = true, .yield_ms = 300};
    static char much[100000];
    struct heard h = {0};

    (void)signal(SIGPIPE, SIG_DFL);
    struct sp_engine *en = plain_engine();
    CHECK(sp_engine_exec(en, &o, on_heard, &h, NULL, NULL) == 0);
    while (h.count == 0)
        CHECK(sp_engine_dispatch(en, 1000, NULL) == 0);
    CHECK(h.outcome == SP_OUTCOME_RUNNING);
    const int session = h.session;
    for (int i = 0; i < 3; i++) {
        h.count = 0;
        CHECK(sp_engine_write(en, session, much, sizeof much, 250, on_heard, &h, NULL, NULL) == 0);
        while (h.count == 0)
            CHECK(sp_engine_dispatch(en, 1000, NULL) == 0);
    }
    sp_engine_free(en);
    sigset_t pending;
    CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 0);
}

static int highest_fd(void)
{
    DIR *d = opendir("/proc/self/fd");
    int highest = 0;

    for (const struct dirent *entry; d != NULL && (entry = readdir(d)) != NULL;)
        if (atoi(entry->d_name) > highest && atoi(entry->d_name) != dirfd(d))
            highest = atoi(entry->d_name);
    (void)closedir(d);
    return highest;
}

/* With one descriptor more each time: an error or a result, and nothing is left of either. */
static void host_short_of_descriptors(void)
{
    static const char *const argv[] = {"true", NULL};
    const struct sp_run_options o = {.size = sizeof o, .argv = argv};
    const struct sp_engine_options eo = default_options();
    const int before = open_fds();
    struct rlimit limit;
    int successes = 0;

    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    const rlim_t lowest = (rlim_t)highest_fd() + 1;
    for (rlim_t n = 0; n < 40 && successes < 3; n++) {
        struct sp_engine *en = NULL;
        struct sp_error e = {0};

        limit.rlim_cur = lowest + n;
        CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
        if (sp_engine_new(&eo, &en, &e) < 0) {
            CHECK(e.msg[0] != 0);
        } else {
            plain_code = -1;
            if (sp_engine_run(en, &o, on_plain, NULL, NULL, &e) == 0)
                for (int i = 0; plain_code < 0; i++) {
                    CHECK(i < 1000);
                    CHECK(sp_engine_dispatch(en, 1000, NULL) == 0);
                }
            successes += plain_code == 0;
            sp_engine_free(en);
        }
        limit.rlim_cur = limit.rlim_max;
        CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
        CHECK(open_fds() == before);
        CHECK(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD);
    }
    CHECK(successes == 3);
}

static void test_a_host_may_be_short_of_descriptors(void **state)
{
    (void)state;
    in_a_child(host_short_of_descriptors);
}

static void test_a_host_may_ignore_its_children(void **state)
{
    (void)state;
    in_a_child(host_ignores_children);
}

static void test_a_host_may_reap_whatever_it_finds(void **state)
{
    (void)state;
    in_a_child(host_reaps_everything);
}

static void test_a_host_may_have_no_stdio(void **state)
{
    (void)state;
    in_a_child(host_without_stdio);
}

static void test_a_host_may_have_any_umask_and_mask(void **state)
{
    (void)state;
    in_a_child(host_with_a_tight_umask_and_blocked_signals);
}

static void test_signals_of_the_host_disturb_nothing(void **state)
{
    (void)state;
    in_a_child(host_with_a_ticking_signal);
}

static void test_a_command_that_does_not_read_kills_nobody(void **state)
{
    (void)state;
    in_a_child(host_with_sigpipe_at_its_default);
}

/* ---- fork, exec ---- */

static void in_the_forked_child(void)
{
    struct sp_error e = {0};
    const struct sp_exec_options o = {.size = sizeof o, .script = "true"};

    CHECK(sp_engine_exec(engine, &o, NULL, NULL, NULL, &e) == -SP_ERROR_STATE);
    CHECK(strstr(e.msg, "forked") != NULL);
    CHECK(sp_engine_dispatch(engine, 0, &e) == -SP_ERROR_STATE);
    sp_engine_free(engine); /* harms nobody */
}

static void test_a_fork_of_the_host_harms_nothing(void **state)
{
    const int session = start_session("read x; echo got $x", true);
    struct heard h;

    (void)state;
    in_a_child(in_the_forked_child);
    do_write(&h, session, "word\n", 5000);
    assert_int_equal(h.outcome, SP_OUTCOME_EXITED);
    assert_non_null(strstr(h.output, "got word"));
}

static void test_no_descriptor_reaches_what_the_host_executes(void **state)
{
    const int session = start_session("cat", true);
    DIR *d = opendir("/proc/self/fd");
    int seen = 0;

    (void)state;
    assert_true(session > 0);
    assert_non_null(d);
    for (const struct dirent *entry; (entry = readdir(d)) != NULL;) {
        const int fd = atoi(entry->d_name);
        char target[256];
        const ssize_t n = readlinkat(dirfd(d), entry->d_name, target, sizeof target - 1);

        if (entry->d_name[0] == '.' || fd < 3 || fd == dirfd(d) || n < 0)
            continue;
        target[n] = 0;
        seen++;
        if ((fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0 && strchr(target, ':') != NULL &&
            strncmp(target, "pipe:", 5) != 0) /* the test runner's own */
            fail_msg("%d (%s) would be inherited", fd, target);
    }
    (void)closedir(d);
    assert_true(seen >= 5);
}

static void test_commands_end_when_the_host_is_killed(void **state)
{
    int ends[2];
    char line[32] = "";

    (void)state;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    const pid_t host = fork();
    assert_true(host >= 0);
    if (host == 0) {
        struct sp_engine *en = plain_engine();
        static const char *const argv[] = {"sh", "-c", "echo $$; exec sleep 60", NULL};
        const struct sp_exec_options o = {.size = sizeof o, .argv = argv, .yield_ms = 250};
        struct heard h = {0};

        CHECK(sp_engine_exec(en, &o, on_heard, &h, NULL, NULL) == 0);
        while (h.count == 0)
            CHECK(sp_engine_dispatch(en, 1000, NULL) == 0);
        CHECK(write(ends[1], h.output, strlen(h.output)) > 0);
        for (;;)
            (void)pause();
    }
    assert_true(read(ends[0], line, sizeof line - 1) > 0);
    const pid_t command = atoi(line);
    assert_true(command > 0);
    assert_int_equal(kill(command, 0), 0);
    assert_int_equal(kill(host, SIGKILL), 0);
    assert_int_equal(waitpid(host, NULL, 0), host);
    const uint64_t end = now_ms() + DEADLINE_MS;
    while (kill(command, 0) == 0 && now_ms() < end)
        (void)poll(NULL, 0, 5);
    assert_int_equal(kill(command, 0), -1);
    (void)close(ends[0]);
    (void)close(ends[1]);
}

#define lib_test(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

static const struct CMUnitTest tests[] = {
    lib_test(test_a_host_may_be_short_of_descriptors),
    lib_test(test_a_host_may_ignore_its_children),
    lib_test(test_a_host_may_reap_whatever_it_finds),
    lib_test(test_a_host_may_have_no_stdio),
    lib_test(test_a_host_may_have_any_umask_and_mask),
    lib_test(test_signals_of_the_host_disturb_nothing),
    lib_test(test_a_command_that_does_not_read_kills_nobody),
    lib_test(test_a_fork_of_the_host_harms_nothing),
    lib_test(test_no_descriptor_reaches_what_the_host_executes),
    lib_test(test_commands_end_when_the_host_is_killed),
};

TEST_MAIN(tests)
