/* SPDX-License-Identifier: Apache-2.0 */
/* Questions about hosts while memory ends: nothing is allowed by that, and nothing is lost. */
#include "memory_fixture.h"
#include "network_fixture.h"

/* Memory ends at the nth request while one waits, another joins, and the answer comes. */
static bool run_out_at(long n, const struct sp_decision *d, bool is_yes)
{
    struct request r[3];
    size_t told = 0;

    command = make_command("c1");
    end_memory_at(n);
    begin(&r[0], "x.com");
    begin(&r[1], "x.com");
    begin(&r[2], "y.com");
    for (size_t i = 0; i < 3; i++)
        told += r[i].r.state == SP_NETWORK_ASKING;
    while (open_count > 0) {
        const struct sp_decision again = *d;

        if (sp_str_eq(open_questions[0].question->host, SP_STR("x.com")))
            answer_with(0, &again);
        else
            answer(0, SP_DECISION_DENIED);
    }
    const bool did_end = did_memory_end();
    for (size_t i = 0; i < 3; i++) {
        assert_in_range(r[i].r.state, SP_NETWORK_ALLOWED_ONCE, SP_NETWORK_DENIED);
        assert_true(r[i].r.state == SP_NETWORK_DENIED || (is_yes && i < 2));
        assert_true(r[i].r.state != SP_NETWORK_DENIED || r[i].r.text.n != 0);
        assert_int_equal(r[i].told <= 1, 1);
        told -= r[i].told;
        end(&r[i]);
    }
    assert_int_equal(told, 0); /* whoever waited was told */
    remake(NULL);
    (void)unlink(rules_file);
    return did_end;
}

static void sweep(const struct sp_decision *d, bool is_yes)
{
    long n = 1;

    while (run_out_at(n, d, is_yes))
        n++;
    assert_in_range(n, 20, 1000); /* it did end now and then */
}

static void test_once(void **state)
{
    const struct sp_decision d = {.kind = SP_DECISION_APPROVED};

    (void)state;
    sweep(&d, true);
}

static void test_for_the_session(void **state)
{
    const struct sp_decision d = {.kind = SP_DECISION_APPROVED_FOR_SESSION};

    (void)state;
    sweep(&d, true);
}

static void test_for_good(void **state)
{
    const struct sp_decision d = about_host("x.com", true);

    (void)state;
    sweep(&d, true);
}

static void test_never_again(void **state)
{
    const struct sp_decision d = about_host("x.com", false);

    (void)state;
    sweep(&d, false);
}

static void test_about_another_host(void **state)
{
    const struct sp_decision d = about_host("z.com", true);

    (void)state;
    sweep(&d, false);
}

static void test_no(void **state)
{
    const struct sp_decision d = {.kind = SP_DECISION_DENIED, .rejection = SP_STR("no")};

    (void)state;
    sweep(&d, false);
}

static void test_a_hang_up(void **state)
{
    bool did_end = true;

    (void)state;
    for (long n = 1; did_end; n++) {
        struct request r;

        begin(&r, "x.com");
        assert_int_equal(r.r.state, SP_NETWORK_ASKING);
        end_memory_at(n);
        sp_network_hang_up(&r.r);
        did_end = did_memory_end();
        assert_int_equal(r.r.state, SP_NETWORK_DENIED);
        assert_int_not_equal(r.r.text.n, 0);
        assert_int_equal(open_count, 0);
        end(&r);
    }
}

static const struct CMUnitTest tests[] = {
    network_test(test_once),
    network_test(test_for_the_session),
    network_test(test_for_good),
    network_test(test_never_again),
    network_test(test_about_another_host),
    network_test(test_no),
    network_test(test_a_hang_up),
};

TEST_MAIN(tests)
