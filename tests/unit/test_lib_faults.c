/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libsallyport in a program whose memory ends, at every request in turn, and once: each function
 * fails in words or does its work, every call that was begun is answered, and nothing is left.
 * Linked from its parts, so that their requests can be counted.
 */
#include "lib_fixture.h"
#include "memory_fixture.h"

char *__real_strdup(const char *s);
char *__wrap_strdup(const char *s);

char *__wrap_strdup(const char *s)
{
    return memory_ends() ? NULL : __real_strdup(s);
}

static int events;

static void on_event(void *user, const struct sp_event *ev)
{
    (void)user;
    (void)ev;
    events++;
}

/* A run, a session, and a wait for it. Returns how many calls were begun. */
static int use_engine(struct heard *run, struct heard *exec)
{
    static const char *const argv[] = {"echo", "hello", NULL};
    static const char *const env[] = {"GREETING=hello", NULL};
    const struct sp_run_options ro = {.size = sizeof ro, .argv = argv, .env = env};
    const struct sp_exec_options eo = {.size = sizeof eo, .argv = argv, .env = env, .is_tty = true};
    struct sp_error e = {0};
    int begun = 0;

    if (sp_engine_run(engine, &ro, on_heard, run, NULL, &e) == 0)
        begun++;
    else
        assert_string_not_equal(e.msg, "");
    if (sp_engine_exec(engine, &eo, on_heard, exec, NULL, &e) == 0)
        begun++;
    else
        assert_string_not_equal(e.msg, "");
    return begun;
}

/* Whether memory sufficed. */
static bool try_with_memory_until(long at)
{
    struct sp_engine_options o = default_options();
    struct heard run = {0};
    struct heard exec = {0};
    struct sp_error e = {0};
    const uint64_t end = now_ms() + DEADLINE_MS;

    o.event = on_event;
    o.sandbox = at % 2 == 0 ? ":danger-full-access" : NULL;
    end_memory_at(at);
    if (sp_engine_new(&o, &engine, &e) < 0) {
        assert_true(did_memory_end());
        assert_string_not_equal(e.msg, "");
        return false;
    }
    const int begun = use_engine(&run, &exec);
    while (run.count + exec.count < begun) {
        if (now_ms() > end)
            fail_msg("at request %ld a call is not answered", at);
        (void)sp_engine_dispatch(engine, 1000, NULL);
    }
    const bool has_failed = did_memory_end();
    assert_true(run.count <= 1 && exec.count <= 1);
    if (!has_failed) {
        assert_int_equal(run.exit_code, 0);
        assert_int_equal(exec.exit_code, 0);
    }
    sp_engine_free(engine);
    return !has_failed;
}

static void test_an_engine_survives_the_end_of_memory_anywhere(void **state)
{
    const int before = open_fds();
    long at = 1;

    (void)state;
    while (!try_with_memory_until(at)) {
        assert_int_equal(open_fds(), before);
        if (waitpid(-1, NULL, WNOHANG) != -1)
            fail_msg("at request %ld a child is left", at);
        at++;
    }
    (void)printf("# %ld requests\n", at);
    assert_true(at > 30); /* it did ask for some */
    assert_true(events > 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_an_engine_survives_the_end_of_memory_anywhere),
};

TEST_MAIN(tests)
