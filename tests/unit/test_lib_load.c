/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libsallyport under load: thousands of short commands leave memory and descriptors as they were,
 * and 64 commands that print all the time keep nobody from his deadline.
 *
 * SALLYPORT_LIB_COMMANDS=10000 for as many (2,000 unless it is set).
 */
#include "lib_fixture.h"

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define IS_SANITIZED 1 /* memory is kept back on purpose, and all is slow */
#else
#define IS_SANITIZED 0
#endif

#define AT_ONCE 16
#define WARM_UP 400

static int set_up(void **state)
{
    const struct sp_engine_options o = default_options();

    (void)state;
    engine = make_engine(&o);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    sp_engine_free(engine);
    engine = NULL;
    return 0;
}

/* ---- thousands of short ones ---- */

static int to_begin, answered, wrong;

static void begin_one(void);

static void on_short(void *user, const struct sp_answer *a)
{
    (void)user;
    answered++;
    wrong += a->outcome != SP_OUTCOME_EXITED || a->exit_code != 0 || a->output_size != 1000;
    begin_one();
}

static void begin_one(void)
{
    static const char *const argv[] = {"head", "-c", "1000", "/dev/zero", NULL};
    const struct sp_run_options run = {.size = sizeof run, .argv = argv};
    const struct sp_exec_options exec = {.size = sizeof exec, .argv = argv};

    if (to_begin == 0)
        return;
    to_begin--;
    if (to_begin % 2 == 0)
        assert_ok(sp_engine_run(engine, &run, on_short, NULL, NULL, e));
    else
        assert_ok(sp_engine_exec(engine, &exec, on_short, NULL, NULL, e));
}

static void run_short_ones(int count)
{
    const uint64_t end = now_ms() + 150000;
    uint64_t rest;

    to_begin = count;
    answered = wrong = 0;
    for (int i = 0; i < AT_ONCE; i++)
        begin_one();
    while (answered < count) {
        if (now_ms() > end)
            fail_msg("%d of %d are answered", answered, count);
        dispatch_once(engine, 1000);
    }
    assert_int_equal(wrong, 0);
    for (rest = now_ms() + 300; now_ms() < rest;)
        dispatch_once(engine, 50); /* what is kept a moment for last output goes */
}

/* A number in a file of /proc: the n-th. */
static long number_in(const char *path, int nth)
{
    FILE *f = fopen(path, "re");
    long n = -1;

    while (f != NULL && nth-- > 0 && fscanf(f, "%ld", &n) == 1) {
    }
    if (f != NULL)
        (void)fclose(f);
    return n;
}

static long rss_kb(long pid)
{
    char path[64];

    (void)snprintf(path, sizeof path, "/proc/%ld/statm", pid);
    return number_in(path, 2) * (sysconf(_SC_PAGESIZE) / 1024);
}

static int fds_of(long pid)
{
    char path[64];
    DIR *d;
    int n = 0;

    (void)snprintf(path, sizeof path, "/proc/%ld/fd", pid);
    d = opendir(path);
    assert_non_null(d);
    while (readdir(d) != NULL)
        n++;
    (void)closedir(d);
    return n;
}

/* The descriptors of the last commands are closed after their ends were reported. */
static void has_at_most(long pid, int fds)
{
    const uint64_t end = now_ms() + 10000;

    while (fds_of(pid) > fds && now_ms() < end)
        dispatch_once(engine, 20);
    assert_in_range(fds_of(pid), 1, fds);
}

static void test_thousands_of_commands_leave_memory_and_descriptors_flat(void **state)
{
    const char *asked = getenv("SALLYPORT_LIB_COMMANDS");
    const int count = asked != NULL ? atoi(asked) : IS_SANITIZED ? 600 : 2000;
    char children[64];

    (void)state;
    run_short_ones(WARM_UP);
    (void)snprintf(children, sizeof children, "/proc/self/task/%d/children", (int)getpid());
    const long cell = number_in(children, 1);
    assert_true(cell > 0);
    const long self = getpid();
    const long rss[] = {rss_kb(self), rss_kb(cell)};
    const int fds[] = {fds_of(self), fds_of(cell)};

    run_short_ones(count);
    (void)printf("# %d commands: %ld -> %ld KiB, cell %ld -> %ld KiB\n", count, rss[0],
                 rss_kb(self), rss[1], rss_kb(cell));
    if (!IS_SANITIZED) {
        assert_true(rss_kb(self) - rss[0] < 512);
        assert_true(rss_kb(cell) - rss[1] < 512);
    }
    has_at_most(self, fds[0]);
    has_at_most(cell, fds[1] + AT_ONCE); /* it keeps a cgroup for each command at once */
}

/* ---- 64 that never stop ---- */

#define LIVE        64
#define ROUNDS      3
#define LATE_MS     50
#define MAX_LATE_MS (IS_SANITIZED ? 2000 : 500)

/* What the live ones are: this program, called so. A line every 5 ms, until its stdin ends. */
static int chatter(void)
{
    static const char line[] =
        "all work and no play makes for a very dull stream of output indeed\n";
    struct pollfd p = {.fd = 0, .events = POLLIN};
    char input[64];

    for (;;) {
        if (write(1, line, sizeof line - 1) < 0)
            return 1;
        if (poll(&p, 1, 5) > 0 && read(0, input, sizeof input) <= 0)
            return 0;
    }
}

static struct {
    uint64_t yield_ms;
    int session, count;
    int64_t late_ms;
    size_t bytes;
} live[LIVE];
static int heard_of;

static void on_live(void *user, const struct sp_answer *a)
{
    const size_t i = (size_t)(uintptr_t)user;

    if (a->outcome != SP_OUTCOME_RUNNING)
        fail_msg("%zu: outcome %d, %s", i, (int)a->outcome, a->error != NULL ? a->error : "");
    live[i].session = a->session;
    live[i].late_ms = (int64_t)(a->wall_ns / 1000000) - (int64_t)live[i].yield_ms;
    live[i].bytes += a->output_size;
    heard_of++;
}

static void begin_live(size_t i, const char *self)
{
    const char *const argv[] = {self, "chatter", NULL};
    const struct sp_exec_options o = {
        .size = sizeof o, .argv = argv, .has_stdin = true, .yield_ms = live[i].yield_ms};

    assert_ok(sp_engine_exec(engine, &o, on_live, (void *)(uintptr_t)i, NULL, e));
}

static void write_live(size_t i)
{
    assert_ok(sp_engine_write(engine, live[i].session, "x", 1, live[i].yield_ms, on_live,
                              (void *)(uintptr_t)i, NULL, e));
}

/* How long this process has waited for a processor: other programs of the machine, not ours. */
static int64_t waited_ms(void)
{
    unsigned long long waited_ns = 0;
    FILE *f = fopen("/proc/self/schedstat", "re");

    if (f != NULL) {
        if (fscanf(f, "%*u %llu", &waited_ns) != 1)
            waited_ns = 0;
        (void)fclose(f);
    }
    return (int64_t)(waited_ns / 1000000);
}

static void test_64_commands_that_print_keep_every_deadline(void **state)
{
    char self[4096] = "";
    int late = 0;
    int64_t latest = 0;

    (void)state;
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    memset(live, 0, sizeof live);
    for (int round = 0; round <= ROUNDS; round++) {
        const int64_t waited_before = waited_ms();

        heard_of = 0;
        for (size_t i = 0; i < LIVE; i++) {
            live[i].yield_ms = 300 + (i * 37 + (size_t)round * 11) % 400;
            if (round == 0)
                begin_live(i, self);
            else
                write_live(i);
        }
        until(&heard_of, LIVE);
        const int64_t waited = waited_ms() - waited_before;
        for (size_t i = 0; round > 0 && i < LIVE; i++) { /* starting 64 at once takes its time */
            assert_true(live[i].late_ms >= -1);
            late += live[i].late_ms - waited > LATE_MS;
            latest = live[i].late_ms - waited > latest ? live[i].late_ms - waited : latest;
        }
    }
    (void)printf("# the latest of %d answers was %d ms late\n", LIVE * ROUNDS, (int)latest);
    assert_true(latest <= MAX_LATE_MS);
    if (!IS_SANITIZED)
        assert_true(late <= LIVE * ROUNDS / 20); /* the machine may be busy with others */
    for (size_t i = 0; i < LIVE; i++)
        assert_true(live[i].bytes > 2000);
}

#define lib_test(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

static const struct CMUnitTest tests[] = {
    lib_test(test_thousands_of_commands_leave_memory_and_descriptors_flat),
    lib_test(test_64_commands_that_print_keep_every_deadline),
};

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "chatter") == 0)
        return chatter();
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
