/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keeper and a front's side of it. The program starts itself as the front: `front MODE FD`,
 * which reports to the descriptor.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/log.h"
#include "keeper/hold.h"
#include "keeper/keeper.h"
#include "keeper/message.h"
#include "test.h"

#define PATIENCE_MS 20000
#define KEY         SP_HOLD_KEY(SP_HOLD_SETTINGS, 7)

/* ---- the front ---- */

static int make_file(const char *text)
{
    const int fd = memfd_create("held", MFD_CLOEXEC);

    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        abort();
    return fd;
}

/* What was left under the key, as "COUNT:TEXT:BYTES". */
static void describe(struct sp_hold *h, uint64_t key, char *ret, size_t size)
{
    int fds[SP_HOLD_FDS];
    char text[SP_HOLD_TEXT + 1];
    char bytes[20] = "";
    unsigned count = 0;

    if (!sp_hold_take(h, key, fds, &count, text)) {
        (void)snprintf(ret, size, "nothing");
        return;
    }
    if (pread(fds[0], bytes, sizeof bytes - 1, 0) < 0)
        (void)snprintf(bytes, sizeof bytes, "unreadable");
    (void)snprintf(ret, size, "%u:%s:%s", count, text, bytes);
    sp_keeper_close_fds(fds, count);
}

static void keep_text(struct sp_hold *h, uint64_t key, const char *text)
{
    const int fds[2] = {make_file(text), make_file("other")};

    if (sp_hold_keep(h, key, fds, 2, text, NULL) < 0)
        abort();
    sp_keeper_close_fds(fds, 2);
}

static void wait_for_signal(void)
{
    sigset_t set;
    int got;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    (void)sigwait(&set, &got);
}

/* GENERATION ROLE LAST_STATUS PID and what the mode adds. */
static void report(int fd, const struct sp_hold *h, const char *more)
{
    (void)dprintf(fd, "%llu %d %d %d %s\n", (unsigned long long)sp_hold_generation(h),
                  (int)sp_hold_role(h), sp_hold_last_status(h), (int)getpid(), more);
}

static int run_front(const char *mode, int to)
{
    struct sp_hold *h = NULL;
    struct sp_err e = {0};
    char left[80];
    uint64_t key = 0;

    if (strncmp(mode, "exit", 4) == 0)
        return atoi(mode + 4);
    if (sp_hold_begin(STDIN_FILENO, &h, &e) < 0)
        return 99;
    const uint64_t generation = sp_hold_generation(h);
    if (strcmp(mode, "mute") == 0 && generation == 2) {
        report(to, h, "mute");
        wait_for_signal();
    }
    if (strcmp(mode, "early") == 0 && generation > 1)
        return 5;
    if (sp_hold_keeper(h) != getppid())
        abort();
    describe(h, KEY, left, sizeof left);
    if (strcmp(mode, "keep") == 0 && generation == 1) {
        keep_text(h, KEY, "first");
        keep_text(h, KEY, "second");
        keep_text(h, KEY + 1, "dropped");
        sp_hold_drop(h, KEY + 1);
    }
    if (strcmp(mode, "fill") == 0 && generation == 1)
        for (unsigned i = 0; i < SP_KEEPER_KEYS; i++)
            keep_text(h, SP_HOLD_KEY(SP_HOLD_CELL, i * 3), "full");
    if (strcmp(mode, "fill") == 0 && generation == 1 &&
        sp_hold_keep(h, KEY, (const int[]){to}, 1, NULL, &e) == 0)
        abort();
    if (strcmp(mode, "fill") == 0 && generation > 1) {
        unsigned n = 0;

        while (sp_hold_next(h, SP_HOLD_CELL, key, &key)) {
            if (key != SP_HOLD_KEY(SP_HOLD_CELL, n * 3))
                abort();
            describe(h, key, left, sizeof left);
            n++;
        }
        (void)snprintf(left, sizeof left, "%u", n);
    }
    if (strcmp(mode, "stray") == 0) {
        const struct sp_keeper_message bad[] = {{.op = 77}, {.op = SP_KEEPER_KEEP, .key = KEY}};

        for (unsigned i = 0; i < 2; i++)
            (void)sp_keeper_send(sp_hold_fd(h), true, bad[i], NULL);
        (void)!write(sp_hold_fd(h), "short", 5);
        (void)!write(sp_hold_fd(h), left, sizeof left);
    }
    sp_hold_ready(h);
    report(to, h, left);
    if (strcmp(mode, "crash") == 0 && generation < 4)
        (void)raise(SIGKILL);
    if (strcmp(mode, "early") == 0)
        return 4;
    for (;;) {
        wait_for_signal();
        if (strcmp(mode, "stuck") != 0)
            break;
    }
    if (strcmp(mode, "slain") == 0 && generation == 1)
        (void)raise(SIGKILL);
    sp_hold_ending(h, 3);
    if (strcmp(mode, "slain") == 0)
        (void)raise(SIGKILL);
    return 3;
}

/* ---- the test's side ---- */

struct keeper {
    pid_t pid;
    FILE *reports;
};

static const struct sp_keeper_times quick = {
    .ready = 500, .ending = 500, .long_life = 600000, .delays = {0, 0, 0, 1, 1, 1, 1, 1, 1, 1}};

static void start(struct keeper *k, const char *mode)
{
    char fd[16];
    char name[] = "test_keeper";
    char verb[] = "front";
    int ends[2];

    assert_return_code(pipe(ends), errno);
    (void)snprintf(fd, sizeof fd, "%d", ends[1]);
    k->pid = fork();
    assert_return_code(k->pid, errno);
    if (k->pid == 0) {
        char *copy = strdup(mode);
        char *const argv[] = {name, verb, copy, fd, NULL};
        const struct sp_keeper_options o = {.argv = argv, .times = &quick};

        (void)close(ends[0]);
        (void)alarm(60);
        (void)sp_log_set_level("error");
        _exit(sp_keeper_run(&o));
    }
    (void)close(ends[1]);
    k->reports = fdopen(ends[0], "r");
    assert_non_null(k->reports);
}

struct report {
    unsigned long long generation;
    int role, last_status, pid;
    char more[80];
};

static bool read_report(struct keeper *k, struct report *r)
{
    char line[200];

    return fgets(line, sizeof line, k->reports) != NULL &&
           sscanf(line, "%llu %d %d %d %79[^\n]", &r->generation, &r->role, &r->last_status,
                  &r->pid, r->more) == 5;
}

static void expect_report(struct keeper *k, struct report *r, unsigned generation)
{
    assert_true(read_report(k, r));
    assert_int_equal(r->generation, generation);
    assert_int_equal(r->role, generation == 1 ? SP_HOLD_FIRST : SP_HOLD_HEIR);
}

/* Its exit status. No front is left: they have the other end of the pipe. */
static int finish(struct keeper *k)
{
    struct report r;
    int status = 0;

    while (read_report(k, &r))
        continue;
    assert_true(feof(k->reports));
    (void)fclose(k->reports);
    assert_int_equal(waitpid(k->pid, &status, 0), k->pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* ---- the tests ---- */

static void heir_gets_what_was_kept(void **state)
{
    struct keeper k;
    struct report r;

    (void)state;
    start(&k, "keep");
    expect_report(&k, &r, 1);
    assert_string_equal(r.more, "nothing");
    (void)kill(r.pid, SIGKILL);
    expect_report(&k, &r, 2);
    assert_string_equal(r.more, "2:second:second");
    assert_int_equal(r.last_status, SIGKILL);
    (void)kill(r.pid, SIGKILL);
    expect_report(&k, &r, 3); /* it was taken, and is kept all the same */
    assert_string_equal(r.more, "2:second:second");
    (void)kill(k.pid, SIGTERM);
    assert_int_equal(finish(&k), 3);
}

static void all_keys_come_back(void **state)
{
    struct keeper k;
    struct report r;
    char all[16];

    (void)state;
    (void)snprintf(all, sizeof all, "%d", SP_KEEPER_KEYS);
    start(&k, "fill");
    expect_report(&k, &r, 1);
    (void)kill(r.pid, SIGKILL);
    expect_report(&k, &r, 2);
    assert_string_equal(r.more, all);
    (void)kill(k.pid, SIGHUP);
    (void)kill(k.pid, SIGTERM);
    assert_int_equal(finish(&k), 3);
}

static void first_front_decides(void **state)
{
    struct keeper k;

    (void)state;
    start(&k, "exit2");
    assert_int_equal(finish(&k), 2);
}

static void crashes_are_survived(void **state)
{
    struct keeper k;
    struct report r;

    (void)state;
    start(&k, "crash");
    for (unsigned i = 1; i <= 4; i++)
        expect_report(&k, &r, i);
    (void)kill(k.pid, SIGTERM);
    assert_int_equal(finish(&k), 3);
}

static void early_deaths_end_the_server(void **state)
{
    struct keeper k;
    struct report r;

    (void)state;
    start(&k, "early");
    expect_report(&k, &r, 1);
    assert_int_equal(finish(&k), SP_KEEPER_GAVE_UP);
}

static void silent_front_is_killed(void **state)
{
    struct keeper k;
    struct report r;

    (void)state;
    start(&k, "mute");
    expect_report(&k, &r, 1);
    (void)kill(r.pid, SIGKILL);
    expect_report(&k, &r, 2);
    expect_report(&k, &r, 3);
    assert_int_equal(r.last_status, SIGALRM);
    (void)kill(k.pid, SIGTERM);
    assert_int_equal(finish(&k), 3);
}

static void front_that_does_not_end_is_killed(void **state)
{
    struct keeper k;
    struct report r;

    (void)state;
    start(&k, "stuck");
    expect_report(&k, &r, 1);
    (void)kill(k.pid, SIGTERM);
    assert_int_equal(finish(&k), 128 + SIGKILL);
}

/* Before it said ENDING another one goes on; after it, none does. */
static void front_that_is_killed_at_the_end_has_an_heir(void **state)
{
    struct keeper k;
    struct report r;

    (void)state;
    start(&k, "slain");
    expect_report(&k, &r, 1);
    (void)kill(k.pid, SIGTERM);
    expect_report(&k, &r, 2);
    assert_int_equal(r.last_status, SIGKILL);
    assert_int_equal(finish(&k), 3);
}

static void front_dies_with_its_keeper(void **state)
{
    struct keeper k;
    struct report r;
    int status;

    (void)state;
    start(&k, "stuck");
    expect_report(&k, &r, 1);
    (void)kill(k.pid, SIGKILL);
    assert_false(read_report(&k, &r)); /* the pipe has ended */
    assert_int_equal(waitpid(k.pid, &status, 0), k.pid);
    (void)fclose(k.reports);
}

static void bad_messages_are_dropped(void **state)
{
    struct keeper k;
    struct report r;

    (void)state;
    start(&k, "stray");
    expect_report(&k, &r, 1);
    (void)kill(r.pid, SIGKILL);
    expect_report(&k, &r, 2);
    assert_string_equal(r.more, "nothing");
    (void)kill(k.pid, SIGTERM);
    assert_int_equal(finish(&k), 3);
}

static void without_a_keeper_nothing_happens(void **state)
{
    int fds[SP_HOLD_FDS];
    unsigned count;
    uint64_t key;

    (void)state;
    assert_int_equal(sp_hold_generation(NULL), 0);
    assert_int_equal(sp_hold_keeper(NULL), 0);
    assert_int_equal(sp_hold_last_status(NULL), 0);
    assert_int_equal(sp_hold_fd(NULL), -1);
    assert_int_equal(sp_hold_role(NULL), SP_HOLD_FIRST);
    assert_false(sp_hold_take(NULL, KEY, fds, &count, NULL));
    assert_false(sp_hold_next(NULL, SP_HOLD_CELL, 0, &key));
    assert_int_equal(sp_hold_keep(NULL, KEY, fds, 1, NULL, NULL), 0);
    sp_hold_drop(NULL, KEY);
    sp_hold_ready(NULL);
    sp_hold_ending(NULL, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heir_gets_what_was_kept),
        cmocka_unit_test(all_keys_come_back),
        cmocka_unit_test(first_front_decides),
        cmocka_unit_test(crashes_are_survived),
        cmocka_unit_test(early_deaths_end_the_server),
        cmocka_unit_test(silent_front_is_killed),
        cmocka_unit_test(front_that_does_not_end_is_killed),
        cmocka_unit_test(front_that_is_killed_at_the_end_has_an_heir),
        cmocka_unit_test(front_dies_with_its_keeper),
        cmocka_unit_test(bad_messages_are_dropped),
        cmocka_unit_test(without_a_keeper_nothing_happens),
    };

    if (argc == 4 && strcmp(argv[1], "front") == 0)
        return run_front(argv[2], atoi(argv[3]));
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
