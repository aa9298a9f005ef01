/* SPDX-License-Identifier: Apache-2.0 */
/* The local backend as a guest in somebody else's program, which here is the test. */
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "engine/local.h"
#include "local_fixture.h"

static bool is_time_short; /* half a minute passes in half a second */

bool __real_sp_loop_timer(struct sp_loop *l, struct sp_timer *t, uint64_t due_ms,
                          void (*fn)(struct sp_timer *));
bool __wrap_sp_loop_timer(struct sp_loop *l, struct sp_timer *t, uint64_t due_ms,
                          void (*fn)(struct sp_timer *));
bool __wrap_sp_loop_timer(struct sp_loop *l, struct sp_timer *t, uint64_t due_ms,
                          void (*fn)(struct sp_timer *))
{
    const uint64_t now = sp_loop_now(l);

    return __real_sp_loop_timer(
        l, t, is_time_short && due_ms >= now + 30000 ? now + (due_ms - now) / 60 : due_ms, fn);
}

static void run_one(const char *text, const char *output)
{
    struct owner o = {0};

    start_script(&o, text, false, false);
    until(o.is_over);
    assert_string_equal(o.story, "started exited closed");
    assert_out(&o, output);
    finish(&o);
}

/* The cell's number: the one child that is not `except`. */
static pid_t cell_pid(pid_t except)
{
    char path[64];
    int found = 0;
    int pid;

    (void)snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    while (fscanf(f, "%d", &pid) == 1)
        if (pid != except)
            found = pid;
    (void)fclose(f);
    assert_true(found > 0);
    return found;
}

/* ---- children ---- */

static void test_the_hosts_children_are_left_alone_when_the_cell_dies(void **state)
{
    struct owner o = {0};
    const pid_t foreign = fork();

    (void)state;
    if (foreign == 0)
        for (;;)
            (void)pause();
    assert_true(foreign > 0);
    start_script(&o, "echo up; exec sleep 600", false, false);
    until(o.out.len > 0);
    assert_int_equal(kill(cell_pid(foreign), SIGKILL), 0);
    until(o.is_over);
    assert_string_equal(o.story, "started failed");
    finish(&o);
    run_one("echo anew", "anew\n");
    assert_int_equal(waitpid(foreign, NULL, WNOHANG), 0); /* it lives, and is ours to wait for */

    assert_int_equal(kill(foreign, SIGKILL), 0);
    run_one("echo once more", "once more\n");
    sp_backend_free(backend);
    backend = NULL;
    int status = 0;
    assert_int_equal(waitpid(foreign, &status, 0), foreign); /* a dead one, too */
    assert_true(WIFSIGNALED(status));
}

static void test_a_host_that_has_forked_is_not_kept_waiting(void **state)
{
    (void)state;
    run_one("echo x", "x\n");
    const pid_t copy = fork(); /* of every descriptor */
    if (copy == 0)
        for (;;)
            (void)pause();
    assert_true(copy > 0);
    const uint64_t before = test_now_ms();
    sp_backend_free(backend);
    backend = NULL;
    const uint64_t took = test_now_ms() - before;
    assert_int_equal(kill(copy, SIGKILL), 0);
    assert_int_equal(waitpid(copy, NULL, 0), copy);
    assert_true(took < 4000);
}

static void test_a_stopped_cell_does_not_stop_the_host(void **state)
{
    struct owner o = {0};
    struct owner late = {0};

    (void)state;
    start_script(&o, "kill -STOP $PPID; exec sleep 600", false, false);
    const uint64_t began = test_now_ms();
    while (test_now_ms() - began < 300) /* it may even be told that it has started */
        run_for(50);
    start_script(&late, "echo never", false, false);
    assert_int_equal(terminate(&late), SP_JOB_OK); /* in a moment, whoever answers */
    assert_true(test_now_ms() - began < DEADLINE_MS / 2);
    assert_string_equal(late.story, "");
    finish(&late);

    is_time_short = true;
    start_script(&late, "echo never", false, false);
    until(late.is_over && o.is_over);
    is_time_short = false;
    assert_string_equal(late.story, "refused");
    assert_string_equal(late.error.msg, "process cell does not answer");
    assert_true(has_told(&o, "failed") || has_told(&o, "refused"));
    finish(&late);
    finish(&o);
    run_one("echo anew", "anew\n");
}

static void test_the_host_does_not_become_a_subreaper(void **state)
{
    int is_subreaper = -1;

    (void)state;
    run_one("echo x", "x\n");
    assert_int_equal(prctl(PR_GET_CHILD_SUBREAPER, &is_subreaper), 0);
    assert_int_equal(is_subreaper, 0);
}

static void test_a_host_that_ignores_the_death_of_children(void **state)
{
    struct owner o = {0};

    (void)state;
    (void)signal(SIGCHLD, SIG_IGN);
    run_one("echo x; (exit 3) || echo three", "x\nthree\n"); /* commands have their children */
    start_script(&o, "echo up; exec sleep 600", false, false);
    until(o.out.len > 0);
    assert_int_equal(kill(cell_pid(0), SIGKILL), 0);
    until(o.is_over);
    finish(&o);
    run_one("echo anew", "anew\n");
    sp_backend_free(backend);
    backend = NULL;
    (void)signal(SIGCHLD, SIG_DFL);
}

static void reap_all(int signal)
{
    const int err = errno;

    (void)signal;
    while (waitpid(-1, NULL, WNOHANG) > 0) {
    }
    errno = err;
}

static void test_a_host_that_reaps_whatever_it_finds(void **state)
{
    const struct sigaction reap = {.sa_handler = reap_all}; /* and interrupts every wait */
    struct owner o = {0};

    (void)state;
    assert_int_equal(sigaction(SIGCHLD, &reap, NULL), 0);
    run_one("echo x", "x\n");
    start_script(&o, "echo up; exec sleep 600", false, false);
    until(o.out.len > 0);
    assert_int_equal(kill(cell_pid(0), SIGKILL), 0);
    until(o.is_over);
    finish(&o);
    run_one("echo anew", "anew\n");
    sp_backend_free(backend);
    backend = NULL;
    (void)signal(SIGCHLD, SIG_DFL);
}

/* ---- signals ---- */

static volatile sig_atomic_t pipe_signals;

static void count_pipe(int signal)
{
    (void)signal;
    pipe_signals++;
}

/* Its stdin breaks while more is queued than a pipe takes. */
static void break_stdin(void)
{
    struct owner o = {0};
    char *block = calloc(1, 1U << 20);

    start_script(&o, "read x; exec <&-; echo closed; exec sleep 600", false, true);
    until(has_told(&o, "started"));
    assert_int_equal(write_to(&o, "x\n", 2), SP_JOB_OK);
    until(o.out.len > 0);
    assert_int_equal(write_to(&o, block, 1U << 20), SP_JOB_NO_STDIN);
    assert_int_equal(write_to(&o, block, 1), SP_JOB_NO_STDIN);
    finish(&o);

    start_script(&o, "echo up; sleep 0.1; exec <&-; echo closed; exec sleep 600", false, true);
    until(o.out.len > 0);
    assert_int_equal(write_to(&o, block, 1U << 20), SP_JOB_OK); /* most of it waits */
    until(o.out.len == 10);
    while (write_to(&o, block, 1) != SP_JOB_NO_STDIN)
        run_for(5);
    finish(&o);
    free(block);
}

static void test_a_broken_stdin_raises_no_signal(void **state)
{
    const struct sigaction count = {.sa_handler = count_pipe};
    struct sigaction old;
    sigset_t pipe;
    sigset_t pending;

    (void)state;
    pipe_signals = 0;
    assert_int_equal(sigaction(SIGPIPE, &count, &old), 0);
    break_stdin();
    assert_int_equal(pipe_signals, 0);

    /* One that the host has pending stays so. */
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    assert_int_equal(sigprocmask(SIG_BLOCK, &pipe, NULL), 0);
    assert_int_equal(raise(SIGPIPE), 0);
    break_stdin();
    assert_int_equal(sigpending(&pending), 0);
    assert_int_equal(sigismember(&pending, SIGPIPE), 1);
    assert_int_equal(sigprocmask(SIG_UNBLOCK, &pipe, NULL), 0);
    assert_int_equal(pipe_signals, 1);
    assert_int_equal(sigaction(SIGPIPE, &old, NULL), 0);
}

static void test_what_the_host_does_with_signals_stays(void **state)
{
    struct sigaction before[65];
    sigset_t mask_before;
    sigset_t mask;

    (void)state;
    memset(before, 0, sizeof before);
    for (int i = 1; i < 65; i++)
        (void)sigaction(i, NULL, &before[i]);
    assert_int_equal(sigprocmask(SIG_SETMASK, NULL, &mask_before), 0);
    run_one("echo x", "x\n");
    sp_backend_free(backend);
    backend = NULL;
    assert_int_equal(sigprocmask(SIG_SETMASK, NULL, &mask), 0);
    for (int i = 1; i < 65; i++) {
        struct sigaction now = {0};

        assert_int_equal(sigismember(&mask, i), sigismember(&mask_before, i));
        if (sigaction(i, NULL, &now) == 0)
            assert_true(now.sa_handler == before[i].sa_handler);
    }
}

static void test_what_the_host_ignores_or_blocks_is_nothing_to_commands(void **state)
{
    struct owner o = {0};
    sigset_t usr;

    (void)state;
    sigemptyset(&usr);
    sigaddset(&usr, SIGUSR1);
    (void)signal(SIGUSR2, SIG_IGN);
    assert_int_equal(sigprocmask(SIG_BLOCK, &usr, NULL), 0);
    run_one("grep -E '^Sig(Blk|Ign)' /proc/self/status | tr -d '0\\t\\n'", "SigBlk:SigIgn:");
    assert_int_equal(sigprocmask(SIG_UNBLOCK, &usr, NULL), 0);
    (void)signal(SIGUSR2, SIG_DFL);
    finish(&o);
}

/* ---- descriptors ---- */

static void test_every_number_is_the_hosts(void **state)
{
    struct stat before[8];
    struct stat now;
    int ends[8][2];

    (void)state;
    for (int i = 0; i < 8; i++) { /* whatever is free of 3 to 9 is taken */
        assert_int_equal(pipe2(ends[i], O_CLOEXEC), 0);
        assert_int_equal(fstat(ends[i][0], &before[i]), 0);
    }
    run_one("echo x; ls /proc/self/fd | wc -l", "x\n4\n"); /* ls has its directory */
    for (int i = 0; i < 8; i++) {
        assert_int_equal(fstat(ends[i][0], &now), 0);
        assert_int_equal(now.st_ino, before[i].st_ino);
        assert_int_equal(write(ends[i][1], "y", 1), 1);
        char c = 0;
        assert_int_equal(read(ends[i][0], &c, 1), 1);
        (void)close(ends[i][0]);
        (void)close(ends[i][1]);
    }
}

/* In a process of its own: cmocka needs its stdout. */
static int without_stdio(int report)
{
    struct owner o = {0};
    struct sp_err e = {0};
    struct sp_str argv[3];
    struct sp_env_request env;

    for (int fd = 0; fd < 3; fd++)
        (void)close(fd);
    CHILD_CHECK(sp_loop_new(&loop, &e) == 0 && sp_local_new(loop, &options, &backend, &e) == 0);
    for (int i = 0; i < 3; i++) {
        struct sp_start l = script("read x; echo got $x; echo e >&2", argv, &env);
        struct asked a;

        o = (struct owner){0};
        l.wants_stdin = true;
        CHILD_CHECK(sp_job_start(backend, &o.job, &owner_ops, &l, &e) == 0);
        while (!has_told(&o, "started") && sp_loop_run(loop, &e) == 0) {
        }
        sp_job_write(&o.job, &prepare(&a)->call, SP_STR("word\n"));
        for (int fd = 0; fd < 3; fd++)
            CHILD_CHECK(fcntl(fd, F_GETFD) < 0); /* nothing of ours has its number */
        while (!o.is_over && sp_loop_run(loop, &e) == 0) {
        }
        CHILD_CHECK(o.out.len == 9 && memcmp(o.out.data, "got word\n", 9) == 0);
        CHILD_CHECK(o.err.len == 2 && o.exit.code == 0);
        finish(&o);
    }
    sp_backend_free(backend);
    sp_loop_free(loop);
    for (int fd = 0; fd < 3; fd++)
        CHILD_CHECK(fcntl(fd, F_GETFD) < 0);
    return write(report, "fine", 4) == 4 ? 0 : 1;
}

static void test_a_host_without_stdin_stdout_and_stderr(void **state)
{
    char text[8] = {0};
    int report[2];

    (void)state;
    assert_int_equal(pipe2(report, O_CLOEXEC), 0);
    const pid_t pid = fork();
    if (pid == 0)
        _exit(without_stdio(report[1]));
    (void)close(report[1]);
    assert_int_equal(reap(pid, DEADLINE_MS), 0);
    assert_int_equal(read(report[0], text, 7), 4);
    (void)close(report[0]);
    assert_string_equal(text, "fine");
}

/* ---- threads ---- */

struct guest {
    struct sp_loop *loop;
    struct sp_job job;
    unsigned done, started;
    uint64_t bytes;
};

static void guest_started(struct sp_job *j, enum sp_job_sandbox sandbox)
{
    (void)sandbox;
    SP_CONTAINER(j, struct guest, job)->started++;
}

static void guest_refused(struct sp_job *j, const struct sp_err *e)
{
    (void)e;
    sp_loop_stop(SP_CONTAINER(j, struct guest, job)->loop);
}

static bool guest_output(struct sp_job *j, enum sp_stream stream, struct sp_str bytes)
{
    (void)stream;
    SP_CONTAINER(j, struct guest, job)->bytes += bytes.n;
    return true;
}

static void guest_exited(struct sp_job *j, const struct sp_job_exit *how)
{
    SP_CONTAINER(j, struct guest, job)->done += how->code == 3;
}

static void guest_closed(struct sp_job *j)
{
    sp_loop_stop(SP_CONTAINER(j, struct guest, job)->loop);
}

static void guest_failed(struct sp_job *j, const char *why)
{
    (void)why;
    guest_closed(j);
}

static void *live_in_a_thread(void *user)
{
    static const struct sp_job_ops ops = {.started = guest_started,
                                          .refused = guest_refused,
                                          .output = guest_output,
                                          .exited = guest_exited,
                                          .closed = guest_closed,
                                          .failed = guest_failed};
    struct guest *g = user;
    struct sp_backend *b = NULL;
    struct sp_str argv[3];
    struct sp_env_request env;
    const struct sp_start l = script("echo some words; exit 3", argv, &env);

    if (sp_loop_new(&g->loop, NULL) < 0)
        return NULL;
    for (int round = 0; round < 3; round++) { /* three cells, one after the other */
        if (sp_local_new(g->loop, &options, &b, NULL) < 0)
            break;
        for (int i = 0; i < 10; i++)
            if (sp_job_start(b, &g->job, &ops, &l, NULL) < 0 || sp_loop_run(g->loop, NULL) < 0)
                break;
        sp_job_release(&g->job);
        sp_backend_free(b);
    }
    sp_loop_free(g->loop);
    return NULL;
}

static void test_each_thread_may_have_its_own(void **state)
{
    struct guest guests[4] = {0};
    pthread_t threads[4];

    (void)state;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, live_in_a_thread, &guests[i]), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(guests[i].started, 30);
        assert_int_equal(guests[i].done, 30);
        assert_int_equal(guests[i].bytes, 30 * 11);
    }
}

/* ---- sandboxes ---- */

static void test_a_guest_confines_and_tells_what_was_denied(void **state)
{
    const struct sp_legacy read_only = {.mode = SP_MODE_READ_ONLY};
    struct sp_policy policy = {.cwd_is_root = true, .cwd = strdup("/")};
    struct owner o = {0};
    struct sp_str argv[3];
    struct sp_env_request env;
    struct sp_start l = script("touch /var/tmp/not-allowed", argv, &env);
    struct sp_err e = {0};
    int is_subreaper = -1;

    (void)state;
    assert_int_equal(sp_profile_from_legacy(&read_only, &policy.profile, &e), 0);
    l.policy = &policy;
    if (start_launch(&o, &l, &e) < 0) {
        sp_policy_done(&policy);
        assert_non_null(strstr(e.msg, "sandbox")); /* a host that has none says so */
        skip();
    }
    until(o.is_over);
    sp_policy_done(&policy);
    if (has_told(&o, "refused")) {
        assert_non_null(strstr(o.error.msg, "sandbox"));
        finish(&o);
        skip();
    }
    assert_string_equal(o.story, "started exited closed");
    assert_int_equal(o.sandbox, SP_JOB_SANDBOX_LINUX);
    assert_int_not_equal(o.exit.code, 0);
    assert_int_equal(o.exit.denied, 1);
    assert_non_null(o.exit.denial);
    assert_int_not_equal(access("/var/tmp/not-allowed", F_OK), 0);
    assert_int_equal(prctl(PR_GET_CHILD_SUBREAPER, &is_subreaper), 0);
    assert_int_equal(is_subreaper, 0);
    finish(&o);
}

static const struct CMUnitTest tests[] = {
    local_test(test_the_hosts_children_are_left_alone_when_the_cell_dies),
    local_test(test_a_host_that_has_forked_is_not_kept_waiting),
    local_test(test_a_stopped_cell_does_not_stop_the_host),
    local_test(test_the_host_does_not_become_a_subreaper),
    local_test(test_a_host_that_ignores_the_death_of_children),
    local_test(test_a_host_that_reaps_whatever_it_finds),
    local_test(test_a_broken_stdin_raises_no_signal),
    local_test(test_what_the_host_does_with_signals_stays),
    local_test(test_what_the_host_ignores_or_blocks_is_nothing_to_commands),
    local_test(test_every_number_is_the_hosts),
    local_test(test_a_host_without_stdin_stdout_and_stderr),
    local_test(test_each_thread_may_have_its_own),
    local_test(test_a_guest_confines_and_tells_what_was_denied),
};

int main(void)
{
    if (getenv("SALLYPORT") == NULL)
        return 77;
    (void)sp_log_set_level("error");
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
