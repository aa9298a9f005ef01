/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib_fixture: a program that uses libsallyport, as any other would: its header alone, and the
 * shared library. (So not test.h, which knows the house from inside.)
 */
#ifndef SP_LIB_FIXTURE_H
#define SP_LIB_FIXTURE_H

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
/* clang-format on */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sallyport.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DEADLINE_MS 20000

/* A copy of an answer. */
struct heard {
    bool has_receipt;
    struct sp_receipt receipt;
    char limits[256]; /* limits_json */
    int count;        /* how often the function was called: once, as it should be */
    uint64_t call;
    enum sp_outcome outcome;
    int session, exit_code, signal;
    bool was_denied;
    uint64_t wall_ns, omitted, from, to;
    size_t output_size;
    char output[8192], out[4096], err[4096], text[8192], error[512];
};

static struct sp_engine *engine;

static inline uint64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static inline int open_fds(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = -1; /* the directory's own */

    assert_non_null(d);
    for (const struct dirent *entry; (entry = readdir(d)) != NULL;)
        n += entry->d_name[0] != '.';
    (void)closedir(d);
    return n;
}

static inline void copy_text(char *to, size_t size, const char *from, size_t n)
{
    n = n < size - 1 ? n : size - 1;
    assert_non_null(from);
    memcpy(to, from, n);
    to[n] = 0;
}

static inline void on_heard(void *user, const struct sp_answer *a)
{
    struct heard *h = user;

    assert_int_equal(a->size, sizeof *a);
    h->count++;
    h->call = a->call;
    h->outcome = a->outcome;
    h->session = a->session;
    h->exit_code = a->exit_code;
    h->signal = a->signal;
    h->was_denied = a->was_denied;
    h->wall_ns = a->wall_ns;
    h->omitted = a->omitted;
    h->from = a->from;
    h->to = a->to;
    h->has_receipt = a->receipt != NULL;
    if (h->has_receipt)
        h->receipt = *a->receipt;
    copy_text(h->limits, sizeof h->limits, a->limits_json != NULL ? a->limits_json : "",
              a->limits_json != NULL ? strlen(a->limits_json) : 0);
    h->output_size = a->output_size;
    copy_text(h->output, sizeof h->output, a->output, a->output_size);
    copy_text(h->out, sizeof h->out, a->out, a->out_size);
    copy_text(h->err, sizeof h->err, a->err, a->err_size);
    copy_text(h->text, sizeof h->text, a->text, a->text_size);
    copy_text(h->error, sizeof h->error, a->error != NULL ? a->error : "",
              a->error != NULL ? strlen(a->error) : 0);
}

/* The user's own has nothing to do with it: what is decided is logged here. In a directory of its
 * own, for an engine hears of everything that comes and goes beside it. */
static char test_dir[] = "/tmp/sallyport-lib-XXXXXX";
static char test_home[sizeof test_dir + 8];
static pid_t test_home_owner;

/* A test that starts itself with an argument, as a command, needs none: it may be killed. */
__attribute__((constructor)) static void make_test_home(int argc, char **argv)
{
    (void)argv;
    if (argc > 1)
        return;
    test_home_owner = getpid();
    if (mkdtemp(test_dir) == NULL)
        abort();
    (void)snprintf(test_home, sizeof test_home, "%s/home", test_dir);
    if (mkdir(test_home, 0700) < 0 || setenv("SALLYPORT_HOME", test_home, 1) < 0)
        abort();
}

__attribute__((destructor)) static void drop_test_home(void)
{
    char log[sizeof test_home + 16];

    if (getpid() != test_home_owner)
        return; /* a child that was forked */
    (void)snprintf(log, sizeof log, "%s/audit.jsonl", test_home);
    (void)unlink(log);
    (void)rmdir(test_home);
    (void)rmdir(test_dir);
}

static inline struct sp_engine_options default_options(void)
{
    return (struct sp_engine_options){.size = sizeof(struct sp_engine_options),
                                      .program = getenv("SALLYPORT"),
                                      .config = "/dev/null"};
}

static inline struct sp_engine *make_engine(const struct sp_engine_options *o)
{
    struct sp_engine *made = NULL;
    struct sp_error e = {0};

    if (sp_engine_new(o, &made, &e) < 0)
        fail_msg("%s", e.msg);
    return made;
}

#define assert_ok(call)                        \
    do {                                       \
        struct sp_error e_ = {0};              \
        struct sp_error *e = &e_;              \
                                               \
        if ((call) < 0)                        \
            fail_msg("%s: %s", #call, e_.msg); \
    } while (0)

static inline void dispatch_once(struct sp_engine *en, int timeout_ms)
{
    struct sp_error e = {0};

    if (sp_engine_dispatch(en, timeout_ms, &e) < 0)
        fail_msg("dispatch: %s", e.msg);
}

/* Dispatches until a number has come to what is wanted. */
static inline void until(const int *number, int wanted)
{
    const uint64_t end = now_ms() + DEADLINE_MS;

    while (*number < wanted) {
        if (now_ms() > end)
            fail_msg("nothing came: %d of %d", *number, wanted);
        dispatch_once(engine, 1000);
    }
}

static inline void until_heard(struct heard *h)
{
    until(&h->count, 1);
    assert_int_equal(h->count, 1);
}

/* Starts `sh -c script` and returns its answer. */
static inline void do_exec(struct heard *h, const char *script, bool is_tty, uint64_t yield_ms)
{
    const char *const argv[] = {"sh", "-c", script, NULL};
    const struct sp_exec_options o = {
        .size = sizeof o, .argv = argv, .is_tty = is_tty, .yield_ms = yield_ms};

    memset(h, 0, sizeof *h);
    assert_ok(sp_engine_exec(engine, &o, on_heard, h, NULL, e));
    until_heard(h);
}

/* A session that lives. */
static inline int start_session(const char *script, bool is_tty)
{
    static struct heard h;

    do_exec(&h, script, is_tty, 250);
    if (h.outcome != SP_OUTCOME_RUNNING)
        fail_msg("`%s` does not run: %d %s %s", script, (int)h.outcome, h.output, h.error);
    return h.session;
}

static inline void do_write(struct heard *h, int session, const char *text, uint64_t yield_ms)
{
    memset(h, 0, sizeof *h);
    assert_ok(sp_engine_write(engine, session, text, strlen(text), yield_ms, on_heard, h, NULL, e));
    until_heard(h);
}

static inline void do_wait(struct heard *h, int session)
{
    memset(h, 0, sizeof *h);
    assert_ok(sp_engine_wait(engine, session, on_heard, h, NULL, e));
    until_heard(h);
}

static inline void do_run(struct heard *h, const char *script, uint64_t timeout_ms)
{
    const char *const argv[] = {"sh", "-c", script, NULL};
    const struct sp_run_options o = {.size = sizeof o, .argv = argv, .timeout_ms = timeout_ms};

    memset(h, 0, sizeof *h);
    assert_ok(sp_engine_run(engine, &o, on_heard, h, NULL, e));
    until_heard(h);
}

#define TEST_MAIN(tests)                                  \
    int main(void)                                        \
    {                                                     \
        cmocka_set_message_output(CM_OUTPUT_TAP);         \
        return cmocka_run_group_tests(tests, NULL, NULL); \
    }

#endif
