/* SPDX-License-Identifier: Apache-2.0 */
/* Callers, and what belongs to each. */
#include "approve/approvals_priv.h"
#include "manager_state.h"
#include "mcp/caller.h"
#include "mcp_run_fixture.h"
#include "memory_fixture.h"

/* ---- callers ---- */

static void test_every_caller_has_its_own_sessions(void **state)
{
    struct sp_mcp_caller *other = hold("uid 1000");
    struct sp_manager_view v;
    struct sp_err e = {0};
    struct waiter w;
    struct waiter of_other;

    (void)state;
    assert_ptr_not_equal(other, caller);
    assert_ptr_equal(hold("uid 1000"), other);
    (void)start(&w, "run", "{\"cmd\":\"sleep 600\",\"yield\":300}");
    until(w.is_done);
    for (int id = 1000; id < 1100; id++)
        assert_false(sp_manager_view(other->manager, id, &v));
    assert_int_equal(
        try_start(other, &of_other, "run", "{\"cmd\":\"sleep 600\",\"yield\":300}", &e), 0);
    until(of_other.is_done);
    assert_int_equal(of_other.session_id, 1000);
    assert_true(sp_manager_view(other->manager, 1000, &v));
}

static void test_a_caller_that_is_away_too_long_ends_with_its_processes(void **state)
{
    struct waiter w;

    (void)state;
    sp_mcp_free(mcp);
    mcp_options.detached_ttl_ms = 300;
    make_server();
    (void)start(&w, "run", "{\"cmd\":\"exec sleep 600\",\"yield\":300}");
    until(w.is_done);
    sp_mcp_caller_release(caller);
    assert_ptr_equal(hold("stdio"), caller); /* back in time */
    run_for(500);
    assert_int_equal(mcp->caller_count, 1);
    assert_int_equal(sp_manager_stored(caller->manager), 1);
    assert_ptr_equal(hold("stdio"), caller);
    sp_mcp_caller_release(caller);
    run_for(500);
    assert_int_equal(mcp->caller_count, 1);
    (void)start(&w, "wait", "{}");
    sp_mcp_caller_release(caller);
    until(mcp->caller_count == 0);
    assert_int_equal(waits_freed, 1);
    assert_string_equal(w.story, "");
    caller = hold("stdio");
    assert_int_equal(sp_manager_stored(caller->manager), 0);
}

static unsigned seen_off;

static void on_caller_ends(struct sp_mcp_caller_watch *g)
{
    assert_null(g->caller);
    assert_int_equal(mcp->caller_count, 1); /* it is there still */
    seen_off++;
}

static void test_watches_are_told_of_the_end(void **state)
{
    struct sp_mcp_caller_watch watches[4] = {{.ended = on_caller_ends},
                                             {.ended = on_caller_ends},
                                             {.ended = on_caller_ends},
                                             {.ended = on_caller_ends}};

    (void)state;
    seen_off = 0;
    sp_mcp_free(mcp);
    mcp_options.detached_ttl_ms = 50;
    make_server();
    for (unsigned i = 0; i < 4; i++)
        sp_mcp_caller_watch(&watches[i], caller);
    sp_mcp_caller_watch(&watches[3], NULL);
    sp_mcp_caller_watch(&watches[1], NULL);
    sp_mcp_caller_watch(&watches[1], NULL); /* of none: nothing happens */
    run_for(150);
    assert_int_equal(seen_off, 0);
    sp_mcp_caller_release(caller);
    until(mcp->caller_count == 0);
    assert_int_equal(seen_off, 2);
    caller = hold("stdio");
}

static void test_a_caller_may_be_kept_for_ever(void **state)
{
    (void)state;
    sp_mcp_caller_release(caller);
    run_for(50);
    assert_ptr_equal(hold("stdio"), caller);
}

static void test_there_are_no_more_than_so_many_callers(void **state)
{
    struct sp_mcp_caller *c = NULL;
    struct sp_err e = {0};
    char name[32];

    (void)state;
    for (int i = 1; i < SP_MCP_CALLERS_MAX; i++) {
        (void)snprintf(name, sizeof name, "token %d", i);
        c = hold(name);
        assert_int_equal(c->number, i + 1);
    }
    assert_int_equal(sp_mcp_caller_hold(mcp, SP_STR("one more"), &c, &e), -SP_E_LIMIT);
    assert_ptr_equal(hold("stdio"), caller);
    assert_int_equal(sp_mcp_caller_hold(mcp, SP_STR(""), &c, &e), -SP_E_INVALID);
    assert_int_equal(sp_mcp_caller_hold(mcp, SP_STR("a\0b"), &c, &e), -SP_E_INVALID);
}

static void expect_forbidden(struct sp_mcp_caller *c, bool is_forbidden)
{
    struct sp_err e = {0};
    struct waiter w;

    assert_int_equal(try_start(c, &w, "run", "{\"cmd\":\"true\"}", &e), 0);
    until(w.is_done);
    assert_int_equal(w.is_error, is_forbidden);
}

static void test_new_rules_are_for_all_and_for_those_who_come_later(void **state)
{
    struct sp_mcp_caller *other = hold("uid 1000");
    struct sp_rules *others = rules_of("prefix_rule(pattern=[\"true\"], decision=\"forbidden\")\n");

    (void)state;
    expect_forbidden(caller, false);
    assert_true(sp_mcp_set_rules(mcp, others, SP_STR("fingerprint")));
    sp_rules_unref(others);
    expect_forbidden(caller, true);
    expect_forbidden(other, true);
    expect_forbidden(hold("uid 1001"), true);
}

/* ---- memory ---- */

static const struct sp_rules *rules_in(struct sp_mcp_caller *c)
{
    return sp_manager_approvals(c->manager)->options.rules;
}

/* The second has a rule of its own, for which its new ones need memory: by then the first has its
 * new ones already. */
static void test_without_memory_all_have_the_rules_of_before(void **state)
{
    struct sp_mcp_caller *other = hold("uid 1000");
    struct sp_rules *others = rules_of("prefix_rule(['true'], 'forbidden')\n");
    unsigned failed = 0;
    bool has_ended = true;

    (void)state;
    struct sp_rules **in = &sp_manager_approvals(other->manager)->options.rules;
    struct sp_rules *amended = sp_rules_with_prefix(*in, NULL, words("ls"), NULL);
    assert_non_null(amended);
    sp_rules_unref(*in);
    *in = amended;
    const struct sp_rules *own = rules_in(other);
    assert_ptr_not_equal(own, rules);
    for (long n = 1; has_ended; n++) {
        end_memory_at(n);
        const bool ok = sp_mcp_set_rules(mcp, others, SP_STR("fingerprint"));
        has_ended = did_memory_end();
        assert_int_equal(ok, !has_ended);
        assert_ptr_equal(rules_in(caller), ok ? others : rules);
        assert_int_equal(rules_in(other) == own, !ok);
        assert_ptr_equal(mcp->manager.approvals.rules, ok ? others : rules);
        failed += !ok;
    }
    assert_true(failed > 1);
    sp_rules_unref(others);
}

static void test_a_server_survives_every_lack_of_memory(void **state)
{
    bool has_ended = true;

    (void)state;
    for (long n = 1; has_ended; n++) {
        struct sp_mcp *m = NULL;
        struct sp_mcp_caller *c = NULL;
        struct sp_err e = {0};
        struct waiter w;

        end_memory_at(n);
        int r = sp_mcp_new(&mcp_options, &m, &e);
        if (r == 0)
            r = sp_mcp_caller_hold(m, SP_STR("stdio"), &c, &e);
        if (r == 0)
            r = try_start(c, &w, "wait", "{}", &e);
        has_ended = did_memory_end();
        assert_int_equal(r, has_ended ? -SP_E_SYSTEM : 0);
        sp_mcp_free(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests_of_this[] = {
        mcp_test(test_every_caller_has_its_own_sessions),
        mcp_test(test_a_caller_that_is_away_too_long_ends_with_its_processes),
        mcp_test(test_a_caller_may_be_kept_for_ever),
        mcp_test(test_watches_are_told_of_the_end),
        mcp_test(test_there_are_no_more_than_so_many_callers),
        mcp_test(test_new_rules_are_for_all_and_for_those_who_come_later),
        mcp_test(test_without_memory_all_have_the_rules_of_before),
        mcp_test(test_a_server_survives_every_lack_of_memory),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests_of_this, NULL, NULL);
}
