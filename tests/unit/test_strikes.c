/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "core/strikes.h"
#include "test.h"

static struct sp_ledger *make(void)
{
    struct sp_ledger *l;

    (void)sp_log_set_level("error");
    assert_int_equal(sp_ledger_new(&l, NULL), 0);
    return l;
}

/* A front that ends with this status in a request. */
static void crash(struct sp_ledger *l, uint64_t session, const char *peer, int status, uint64_t at)
{
    struct sp_strikes s;

    sp_strikes_begin(&s, l, 0, at);
    sp_flight_begin(&s, session, peer);
    sp_flight_method(&s, SP_STR("process/start"));
    sp_strikes_begin(&s, l, status, at);
}

static int check(struct sp_ledger *l, uint64_t session, const char *peer, struct sp_err *e)
{
    struct sp_strikes s;

    sp_strikes_begin(&s, l, 0, sp_clock_ms());
    return sp_strikes_check(&s, session, peer, e);
}

static void third_crash_holds_a_session_back(void **state)
{
    struct sp_ledger *l = make();
    struct sp_err e = {0};

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(check(l, 7, "10.0.0.1:1", &e), 0);
        crash(l, 7, "10.0.0.1:1", SIGSEGV, sp_clock_ms());
    }
    assert_int_equal(check(l, 7, "10.0.0.1:1", &e), -SP_E_LIMIT);
    assert_string_equal(e.msg, "this session ended the server 3 times; it is held back for 60 s");
    assert_int_equal(check(l, 8, "10.0.0.1:1", &e), 0); /* others are undisturbed */
    assert_int_equal(check(l, 0, "10.0.0.1:1", &e), 0);
    sp_ledger_close(l);
}

static void crashes_far_apart_are_no_pattern(void **state)
{
    struct sp_ledger *l = make();
    const uint64_t now = sp_clock_ms() + 10000000;
    struct sp_strikes s;

    (void)state;
    for (unsigned i = 0; i < 9; i++)
        crash(l, 7, "unix", SIGABRT, now + i * (uint64_t)(SP_STRIKES_WITHIN_MS / 2 + 1));
    sp_strikes_begin(&s, l, 0, now + 9 * (uint64_t)(SP_STRIKES_WITHIN_MS / 2 + 1));
    assert_int_equal(sp_strikes_held(&s, now), 0);
    sp_ledger_close(l);
}

static void only_crashes_in_a_request_count(void **state)
{
    struct sp_ledger *l = make();
    struct sp_strikes s;
    struct sp_err e;

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        crash(l, 7, "10.0.0.1:1", SIGKILL, sp_clock_ms()); /* the fault of nobody */
        crash(l, 7, "10.0.0.1:1", 1 << 8, sp_clock_ms());  /* exit status 1 */
        sp_strikes_begin(&s, l, 0, sp_clock_ms());
        sp_flight_begin(&s, 7, "10.0.0.1:1");
        sp_flight_end(&s);
        sp_strikes_begin(&s, l, SIGSEGV, sp_clock_ms());
    }
    assert_int_equal(check(l, 7, "10.0.0.1:1", &e), 0);
    sp_ledger_close(l);
}

static void addresses_beyond_loopback_are_held_back(void **state)
{
    static const char *const local[] = {"127.0.0.1:5", "[::1]:5", "[::ffff:127.0.0.1]:5", "unix"};
    struct sp_ledger *l = make();
    struct sp_err e;

    (void)state;
    for (unsigned k = 0; k < 3; k++)
        for (unsigned i = 0; i < 4; i++)
            crash(l, 0, local[i], SIGSEGV, sp_clock_ms());
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(check(l, 0, local[i], &e), 0);
    for (unsigned k = 0; k < 3; k++)
        crash(l, 0, k == 0 ? "10.0.0.1:5" : "10.0.0.1:6", SIGSEGV, sp_clock_ms());
    assert_int_equal(check(l, 0, "10.0.0.1:7", &e), -SP_E_LIMIT);
    assert_int_equal(check(l, 0, "10.0.0.2:7", &e), 0);
    assert_int_equal(check(l, 9, "10.0.0.1:7", &e), 0);
    sp_ledger_close(l);
}

static void the_time_doubles_up_to_ten_minutes(void **state)
{
    static const unsigned seconds[] = {60, 120, 240, 480, 600, 600};
    struct sp_ledger *l = make();
    uint64_t now = sp_clock_ms();

    (void)state;
    for (unsigned i = 0; i < sizeof seconds / sizeof seconds[0]; i++) {
        for (unsigned k = 0; k < 3; k++)
            crash(l, 7, "unix", SIGBUS, now);
        assert_int_equal(sp_ledger_header(l)->strikes[0].held_until_ms - now, seconds[i] * 1000);
        now += seconds[i] * 1000;
    }
    sp_ledger_close(l);
}

static void old_entries_make_room(void **state)
{
    struct sp_ledger *l = make();
    const uint64_t now = sp_clock_ms();
    struct sp_err e;

    (void)state;
    for (unsigned k = 0; k < 3; k++)
        crash(l, 1, "unix", SIGSEGV, now);
    for (uint64_t i = 2; i < 2 + SP_LEDGER_STRIKES - 1; i++)
        crash(l, i, "unix", SIGSEGV, now);
    assert_int_equal(check(l, 1, "unix", &e), -SP_E_LIMIT);
    crash(l, 1000, "unix", SIGSEGV, now);
    for (unsigned k = 0; k < 3; k++)
        crash(l, 1000, "unix", SIGSEGV, now);
    assert_int_equal(check(l, 1000, "unix", &e), -SP_E_LIMIT);
    sp_ledger_close(l);
}

static void foreign_times_are_not_believed(void **state)
{
    struct sp_ledger *l = make();
    struct sp_ledger_strike *first = &sp_ledger_header(l)->strikes[0];
    struct sp_err e;

    (void)state;
    *first = (struct sp_ledger_strike){.who = 7, .held_until_ms = UINT64_MAX};
    assert_int_equal(check(l, 7, "unix", &e), 0);
    memset(&sp_ledger_header(l)->flight, 'x', sizeof sp_ledger_header(l)->flight);
    struct sp_strikes s;
    sp_strikes_begin(&s, l, SIGSEGV, sp_clock_ms());
    assert_false(sp_ledger_header(l)->flight.is_set);
    sp_ledger_close(l);
}

static void without_a_ledger_nothing_is_noted(void **state)
{
    struct sp_strikes s;

    (void)state;
    sp_strikes_begin(&s, NULL, SIGSEGV, 1);
    sp_flight_begin(&s, 1, "unix");
    sp_flight_method(&s, SP_STR("x"));
    sp_flight_end(&s);
    assert_int_equal(sp_strikes_check(&s, 1, "unix", NULL), 0);
    assert_int_equal(sp_strikes_held(&s, 1), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(third_crash_holds_a_session_back),
    cmocka_unit_test(crashes_far_apart_are_no_pattern),
    cmocka_unit_test(only_crashes_in_a_request_count),
    cmocka_unit_test(addresses_beyond_loopback_are_held_back),
    cmocka_unit_test(the_time_doubles_up_to_ten_minutes),
    cmocka_unit_test(old_entries_make_room),
    cmocka_unit_test(foreign_times_are_not_believed),
    cmocka_unit_test(without_a_ledger_nothing_is_noted),
};

TEST_MAIN(tests)
