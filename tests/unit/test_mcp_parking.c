/* SPDX-License-Identifier: Apache-2.0 */
/* Tickets, and runs that wait for somebody to come back. */
#include "mcp/parking.h"
#include "mcp_digest_fixture.h"
#include "mcp_run_fixture.h"
#include "memory_fixture.h"

/* ---- a clock that can be put forward ---- */

static uint64_t ahead_ms;

int __real_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *t)
{
    const int r = __real_clock_gettime(id, t);

    t->tv_sec += (time_t)(ahead_ms / 1000);
    return r;
}

static void on_turned(struct sp_deferred *d)
{
    (void)d;
    sp_loop_stop(loop);
}

/* And one turn, so that the loop has looked at it before it sleeps again. */
static void put_forward(uint64_t ms)
{
    struct sp_deferred d = {0};

    ahead_ms += ms;
    sp_loop_again(loop, &d, on_turned);
    assert_int_equal(sp_loop_run(loop, NULL), 0);
}

static int begin_at_zero(void **state)
{
    ahead_ms = 0;
    return begin(state);
}
#define parking_test(f) cmocka_unit_test_setup_teardown(f, begin_at_zero, end)

/* ---- tickets ---- */

static const char a_call[] = "{\"cmd\":\"ls\"}";

static uint64_t park(struct sp_mcp_run *r, bool wants_repeat)
{
    const struct sp_mcp_digest d = digest_of("wait", a_call);
    uint64_t number = 0;

    assert_true(sp_mcp_park(r, &d, wants_repeat, &number));
    assert_true(number != 0);
    return number;
}

static uint64_t park_one(struct waiter *w, bool wants_repeat)
{
    return park(start(w, "wait", a_call), wants_repeat);
}

static void make_ticket(struct sp_buf *out, uint64_t number)
{
    const struct sp_mcp_digest d = digest_of("wait", a_call);

    assert_true(sp_mcp_ticket_add(out, caller, number, &d));
}

static int read_ticket(struct sp_str state, const struct sp_mcp_caller *c, const char *arguments,
                       uint64_t *ret)
{
    const struct sp_mcp_digest d = digest_of("wait", arguments);
    char *copy = test_copy(state);
    struct sp_err e = {0};
    const int r = sp_mcp_ticket_read((struct sp_str){copy, state.n}, c, &d, ret, &e);

    assert_true(r == 0 || ((r == -SP_E_INVALID || r == -SP_E_MALFORMED) && e.msg[0] != 0));
    free(copy);
    return r;
}

static struct sp_str view(const struct sp_buf *b)
{
    return (struct sp_str){b->data, b->len};
}

static void test_a_ticket_leads_back_to_its_run_once(void **state)
{
    auto_buf struct sp_buf ticket = {0};
    struct waiter w;
    struct waiter back;
    uint64_t number = 0;

    (void)state;
    const uint64_t parked = park_one(&w, false);
    make_ticket(&ticket, parked);
    assert_memory_equal(ticket.data, "v1.", 3);
    assert_null(memchr(ticket.data, '=', ticket.len));
    assert_int_equal(read_ticket(view(&ticket), caller, a_call, &number), 0);
    assert_int_equal(number, parked);
    assert_int_equal(read_ticket(view(&ticket), caller, " {\"cmd\" : \"l\\u0073\"}", &number), 0);
    struct sp_mcp_run *r = sp_mcp_unpark(caller, number);
    assert_ptr_equal(r, w.run);
    assert_null(sp_mcp_unpark(caller, number));
    assert_int_equal(read_ticket(view(&ticket), caller, a_call, &number), 0);
    attach(&back, r);
    sp_mcp_run_answer_now(r);
    until(back.is_done);
    assert_string_equal(back.text, "waited");
    assert_string_equal(w.story, "");
}

static void test_every_changed_bit_is_refused(void **state)
{
    auto_buf struct sp_buf ticket = {0};
    struct waiter w;
    uint64_t number = 77;

    (void)state;
    make_ticket(&ticket, park_one(&w, false));
    for (size_t i = 0; i < ticket.len; i++)
        for (unsigned bit = 0; bit < 8; bit++) {
            ticket.data[i] ^= (char)(1U << bit);
            if (read_ticket(view(&ticket), caller, a_call, &number) == 0)
                fail_msg("bit %u of byte %zu does not matter", bit, i);
            ticket.data[i] ^= (char)(1U << bit);
        }
    for (size_t n = 0; n < ticket.len; n++)
        assert_int_equal(read_ticket((struct sp_str){ticket.data, n}, caller, a_call, &number),
                         -SP_E_MALFORMED);
    for (unsigned c = 0; c < 256; c++) {
        assert_true(sp_buf_add(&ticket, &(char){(char)c}, 1));
        assert_int_equal(read_ticket(view(&ticket), caller, a_call, &number), -SP_E_MALFORMED);
        ticket.len--;
    }
    assert_int_equal(number, 77);
    assert_int_equal(read_ticket(view(&ticket), caller, a_call, &number), 0);
}

static void test_nonsense_is_no_ticket(void **state)
{
    static const char *const texts[] = {
        "",
        "v1",
        "v1.",
        "v1..",
        "v1.a.b",
        "v2.AAAA.AAAA",
        "....",
        "v1.====.====",
        "v1.AAAA.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "v1..AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    };
    static char huge[1 << 20];
    uint64_t number;

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        assert_int_equal(read_ticket(sp_str_of(texts[i]), caller, a_call, &number),
                         -SP_E_MALFORMED);
    memset(huge, 'A', sizeof huge);
    memcpy(huge, "v1.", 3);
    huge[sizeof huge - 44] = '.';
    assert_int_equal(read_ticket((struct sp_str){huge, sizeof huge}, caller, a_call, &number),
                     -SP_E_MALFORMED);
}

static void test_a_ticket_is_good_for_its_call_and_its_caller_alone(void **state)
{
    auto_buf struct sp_buf ticket = {0};
    struct waiter w;
    uint64_t number;

    (void)state;
    make_ticket(&ticket, park_one(&w, false));
    assert_int_equal(read_ticket(view(&ticket), caller, "{\"cmd\":\"ls -l\"}", &number),
                     -SP_E_INVALID);
    assert_int_equal(read_ticket(view(&ticket), hold("uid 1000"), a_call, &number), -SP_E_INVALID);
    w.run->asked++; /* another question has come: this one is not asked any more */
    assert_int_equal(read_ticket(view(&ticket), caller, a_call, &number), -SP_E_INVALID);
}

static void test_a_ticket_of_another_server_is_none(void **state)
{
    auto_buf struct sp_buf ticket = {0};
    struct waiter w;
    uint64_t number;

    (void)state;
    make_ticket(&ticket, park_one(&w, false));
    sp_mcp_free(mcp);
    make_server();
    (void)park_one(&w, false);
    assert_int_equal(read_ticket(view(&ticket), caller, a_call, &number), -SP_E_MALFORMED);
}

/* One that ended and came again has the same name and begins to count anew. */
static void test_a_ticket_of_a_former_caller_is_none(void **state)
{
    auto_buf struct sp_buf ticket = {0};
    struct waiter w;
    uint64_t number;

    (void)state;
    sp_mcp_free(mcp);
    mcp_options.detached_ttl_ms = 1;
    make_server();
    make_ticket(&ticket, park_one(&w, false));
    sp_mcp_caller_release(caller);
    until(waits_freed == 1);
    caller = hold("stdio");
    (void)park_one(&w, false);
    assert_int_equal(read_ticket(view(&ticket), caller, a_call, &number), -SP_E_INVALID);
}

static void test_a_ticket_expires(void **state)
{
    auto_buf struct sp_buf ticket = {0};
    struct waiter w;
    uint64_t number;

    (void)state;
    make_ticket(&ticket, park_one(&w, false));
    put_forward(SP_MCP_PARKED_MS - 60000);
    assert_int_equal(read_ticket(view(&ticket), caller, a_call, &number), 0);
    assert_non_null(sp_mcp_parked(caller, number));
    put_forward(61000);
    assert_int_equal(read_ticket(view(&ticket), caller, a_call, &number), -SP_E_INVALID);
    until(waits_freed == 1);
    assert_null(sp_mcp_parked(caller, number));
    assert_null(sp_mcp_unpark(caller, number));
    assert_true(sp_list_is_empty(&caller->runs));
}

static void test_there_is_no_ticket_to_what_is_not_parked(void **state)
{
    const struct sp_mcp_digest d = digest_of("wait", a_call);
    auto_buf struct sp_buf ticket = {0};

    (void)state;
    assert_false(sp_mcp_ticket_add(&ticket, caller, 1, &d));
    assert_int_equal(ticket.len, 0);
}

/* ---- parking ---- */

static void test_the_same_call_gets_it_once_if_it_may(void **state)
{
    const struct sp_mcp_digest d = digest_of("wait", a_call);
    const struct sp_mcp_digest other = digest_of("wait", "{}");
    struct waiter first;
    struct waiter second;
    struct waiter third;

    (void)state;
    assert_null(sp_mcp_unpark_same(caller, &d));
    const uint64_t by_ticket = park_one(&first, false);
    const uint64_t by_repeat = park_one(&second, true);
    (void)park_one(&third, true);
    assert_null(sp_mcp_unpark_same(hold("uid 1000"), &d));
    assert_null(sp_mcp_unpark_same(caller, &other));
    assert_ptr_equal(sp_mcp_unpark_same(caller, &d), second.run); /* the oldest of them */
    assert_null(sp_mcp_parked(caller, by_repeat));
    assert_ptr_equal(sp_mcp_unpark_same(caller, &d), third.run);
    assert_null(sp_mcp_unpark_same(caller, &d));
    assert_ptr_equal(sp_mcp_parked(caller, by_ticket), first.run);
    sp_mcp_run_cancel(second.run);
    sp_mcp_run_cancel(third.run);
    until(waits_freed == 2);
}

static void test_no_more_than_so_many_are_parked(void **state)
{
    static struct waiter waiters[SP_MCP_PARKED_MAX + 2];
    uint64_t numbers[SP_MCP_PARKED_MAX + 2];

    (void)state;
    for (size_t i = 0; i < SP_MCP_PARKED_MAX + 2; i++) {
        numbers[i] = park_one(&waiters[i], false);
        assert_true(i == 0 || numbers[i] > numbers[i - 1]);
    }
    until(waits_freed == 2);
    assert_null(sp_mcp_unpark(caller, numbers[0]));
    assert_null(sp_mcp_unpark(caller, numbers[1]));
    assert_int_equal(caller->run_count, SP_MCP_PARKED_MAX);
    for (size_t i = 2; i < SP_MCP_PARKED_MAX + 2; i++)
        assert_ptr_equal(sp_mcp_parked(caller, numbers[i]), waiters[i].run);
}

static void test_each_goes_when_its_own_time_is_over(void **state)
{
    struct waiter first;
    struct waiter second;

    (void)state;
    (void)park_one(&first, false);
    put_forward(SP_MCP_PARKED_MS / 2);
    const uint64_t later = park_one(&second, false);
    put_forward(SP_MCP_PARKED_MS / 2 + 1000);
    until(waits_freed == 1);
    assert_ptr_equal(sp_mcp_parked(caller, later), second.run);
    put_forward(SP_MCP_PARKED_MS / 2);
    until(waits_freed == 2);
    assert_null(sp_mcp_parked(caller, later));
}

static void test_what_ended_meanwhile_is_told_to_who_comes_back(void **state)
{
    struct waiter w;
    struct waiter back;

    (void)state;
    const uint64_t number = park(start(&w, "wait", "{\"now\":true}"), false);
    run_for(5);
    assert_string_equal(w.story, "");
    struct sp_mcp_run *r = sp_mcp_unpark(caller, number);
    assert_non_null(r);
    attach(&back, r);
    until(back.is_done);
    assert_string_equal(back.story, "done ");
    assert_string_equal(back.text, "waited");
    assert_string_equal(back.note, "a note");
    assert_int_equal(waits_freed, 1);
    assert_true(sp_list_is_empty(&caller->runs));
}

static void test_what_ended_meanwhile_goes_with_its_place(void **state)
{
    struct waiter w;

    (void)state;
    (void)park(start(&w, "wait", "{\"now\":true}"), false);
    run_for(5);
    put_forward(SP_MCP_PARKED_MS + 1000);
    until(sp_list_is_empty(&caller->runs));
    assert_string_equal(w.story, "");
}

/* ---- memory ---- */

static void test_without_memory_the_run_is_cancelled_or_the_ticket_is_not_made(void **state)
{
    const struct sp_mcp_digest d = digest_of("wait", a_call);
    bool has_ended = true;
    unsigned cancelled = 0;

    (void)state;
    for (long n = 1; has_ended; n++) {
        struct sp_buf ticket = {0};
        struct waiter w;
        uint64_t number = 0;
        struct sp_mcp_run *r = start(&w, "wait", a_call);

        end_memory_at(n);
        const bool is_parked = sp_mcp_park(r, &d, false, &number);
        const bool has_ticket = is_parked && sp_mcp_ticket_add(&ticket, caller, number, &d);
        has_ended = did_memory_end();
        assert_true(has_ended || has_ticket);
        cancelled += !is_parked;
        until(waits_freed == cancelled);
        if (is_parked)
            assert_ptr_equal(sp_mcp_parked(caller, number), r);
        if (!has_ticket)
            assert_int_equal(ticket.len, 0);
        sp_buf_done(&ticket);
    }
    assert_true(cancelled != 0);
}

int main(void)
{
    const struct CMUnitTest tests_of_this[] = {
        parking_test(test_a_ticket_leads_back_to_its_run_once),
        parking_test(test_every_changed_bit_is_refused),
        parking_test(test_nonsense_is_no_ticket),
        parking_test(test_a_ticket_is_good_for_its_call_and_its_caller_alone),
        parking_test(test_a_ticket_of_another_server_is_none),
        parking_test(test_a_ticket_of_a_former_caller_is_none),
        parking_test(test_a_ticket_expires),
        parking_test(test_there_is_no_ticket_to_what_is_not_parked),
        parking_test(test_the_same_call_gets_it_once_if_it_may),
        parking_test(test_no_more_than_so_many_are_parked),
        parking_test(test_each_goes_when_its_own_time_is_over),
        parking_test(test_what_ended_meanwhile_is_told_to_who_comes_back),
        parking_test(test_what_ended_meanwhile_goes_with_its_place),
        parking_test(test_without_memory_the_run_is_cancelled_or_the_ticket_is_not_made),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests_of_this, NULL, NULL);
}
