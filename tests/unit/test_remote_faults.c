/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A remote job while memory ends, once, at every place in turn: it may be refused, it may fail, it
 * may not notice; it is always told how it went, and nothing is left.
 */
#include "memory_fixture.h"
#include "remote_fixture.h"

static bool has_ended(void *what)
{
    const struct told *t = what;

    return is_over(what) || (t->started != 0 && t->exited != 0);
}

/* The outcome in a letter; 0: it never came to a start. */
static char talk(void)
{
    const struct sp_client_options o = {.url = fx.url, .resume_ms = 3000};
    struct asked a = {.call.fn = fx_answered};
    struct sp_str argv[3];
    struct sp_start l = script("read x; echo \"$x\"; exit 3", argv);
    struct told t = {.keeps_none = true}; /* our own buffer is not what is tried */
    struct sp_err e;
    char outcome = 0;

    fx.backend = NULL;
    l.wants_stdin = true;
    if (sp_remote_new(fx.loop, &o, &fx.backend, &e) == 0 &&
        sp_job_start(fx.backend, &t.job, &fx_ops, &l, &e) == 0) {
        until(is_started, &t);
        if (t.started != 0 && !is_over(&t)) {
            sp_job_write(&t.job, &a.call, SP_STR("typed\n"));
            until(is_answered, &a);
            if (a.call.result != SP_JOB_OK && !is_over(&t)) {
                a.answers = 0;
                sp_job_terminate(&t.job, &a.call);
            }
        }
        until(has_ended, &t);
        outcome = t.refused != 0 ? 'r' : t.failed != 0 ? 'f' : 'x';
        if (outcome == 'x' && a.call.result == SP_JOB_OK)
            assert_true(t.code == 3 || t.code == 137);
    }
    sp_job_release(&t.job);
    sp_backend_free(TAKE_PTR(fx.backend));
    return outcome;
}

static void it_is_always_told_how_it_went(void **state)
{
    unsigned outcomes[128] = {0};
    long n = 1;

    (void)state;
    assert_int_equal(talk(), 'x');
    for (bool did_end = true; did_end; n++) {
        assert_true(n < 2000);
        end_memory_at(n);
        outcomes[(unsigned char)talk()]++;
        did_end = did_memory_end();
    }
    print_message(
        "# memory ended at %ld places: not started %u, refused %u, failed %u, exited %u\n", n - 1,
        outcomes[0], outcomes['r'], outcomes['f'], outcomes['x']);
    assert_true(n > 20);
}

static int setup(void **state)
{
    (void)fx_setup_bare(state);
    start_server("ws://127.0.0.1:0");
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(it_is_always_told_how_it_went, setup, fx_teardown),
};

TEST_MAIN(tests)
