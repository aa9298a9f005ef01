/* SPDX-License-Identifier: Apache-2.0 */
/* Runs that wait for somebody to come back, and the tickets that lead there. */
#include "mcp/peer.h"
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

static void turn(void)
{
    struct sp_deferred d = {0};

    sp_loop_again(loop, &d, on_turned);
    assert_int_equal(sp_loop_run(loop, NULL), 0);
}

/* And one turn, so that the loop has looked at it before it sleeps again. */
static void put_forward(uint64_t ms)
{
    ahead_ms += ms;
    turn();
}

/* ---- a client ---- */

#define META                                                                 \
    "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\"," \
    "\"io.modelcontextprotocol/clientCapabilities\":{\"elicitation\":{}}}"
#define A_CALL "{\"cmd\":\"nice echo ran\"}"

static struct sp_mcp_peer *peer;
static char heard[65536]; /* the last answer; "": none yet */
static unsigned next_id;

static void on_send(struct sp_mcp_out *o, struct sp_str message, unsigned status)
{
    (void)o;
    if (status != 0)
        copy_str(heard, sizeof heard, message);
}

static bool is_never_full(struct sp_mcp_out *o)
{
    (void)o;
    return false;
}

static struct sp_mcp_out out = {.send = on_send, .is_full = is_never_full};

static void say(char *text)
{
    struct sp_mcp_message m = {0};

    heard[0] = 0;
    sp_mcp_message_read(&m, text, strlen(text));
    (void)sp_mcp_take(peer, &out, NULL, &m);
    sp_mcp_message_done(&m);
    free(text);
}

static void open_peer(void)
{
    peer = sp_mcp_peer_new(mcp, caller, NULL);
    assert_non_null(peer);
}

/* Calls `run`; more: further members of the params. */
static void call(const char *arguments, const char *more)
{
    char *text = NULL;

    assert_true(asprintf(&text,
                         "{\"jsonrpc\":\"2.0\",\"id\":%u,\"method\":\"tools/call\",\"params\":{"
                         "\"name\":\"run\",\"arguments\":%s%s}}",
                         ++next_id, arguments, more) > 0);
    say(text);
}

struct ticket {
    struct sp_mcp_run *run;
    size_t n;
    char text[512];
};

static struct sp_mcp_run *newest_run(void)
{
    return SP_CONTAINER(sp_list_first(&caller->runs), struct sp_mcp_run, link);
}

/* From an answer that asks. */
static void take_ticket(struct ticket *t)
{
    const char *at = strstr(heard, "\"requestState\":\"");

    if (at == NULL)
        fail_msg("no question: %s", heard);
    assert_non_null(strstr(heard, "\"resultType\":\"input_required\""));
    t->n = strcspn(at + 16, "\"");
    assert_true(t->n < sizeof t->text);
    memcpy(t->text, at + 16, t->n);
}

/* A call that is answered with a question: its run is parked. */
static void park(struct ticket *t)
{
    call(A_CALL, "," META);
    t->run = newest_run();
    until(heard[0] != 0);
    take_ticket(t);
    assert_true(t->run->is_held);
}

/* The call again, with a ticket whose bytes are all escaped, so that any can be sent. */
static void come_back(const char *text, size_t n, const char *arguments, unsigned yes_to)
{
    auto_buf struct sp_buf more = {0};

    assert_true(sp_buf_add_str(&more, SP_STR("," META ",\"requestState\":\"")));
    for (size_t i = 0; i < n; i++)
        assert_true(sp_buf_printf(&more, "\\u%04x", (unsigned char)text[i]));
    assert_true(sp_buf_add(&more, "\"", 1) &&
                (yes_to == 0 || sp_buf_printf(&more,
                                              ",\"inputResponses\":{\"approve_%u\":{\"action\":"
                                              "\"accept\",\"content\":{\"decision\":\"once\"}}}",
                                              yes_to)) &&
                sp_buf_add(&more, "", 1));
    call(arguments, more.data);
}

/* Whether a ticket is refused with this text. */
static bool is_refused(const char *text, size_t n, const char *arguments, const char *why)
{
    come_back(text, n, arguments, 0);
    return strstr(heard, why) != NULL;
}

#define FORGED "requestState: it was not made by this server, or was changed since"
#define USED   "requestState was used before, or its question is gone"
#define OTHERS "requestState: it belongs to another caller"

static void assert_forged(const char *text, size_t n)
{
    if (!is_refused(text, n, A_CALL, FORGED) || strstr(heard, "-32602") == NULL)
        fail_msg("taken: %.*s: %s", n < 1000 ? (int)n : 1000, text, heard);
}

static void assert_refused(const struct ticket *t, const char *why)
{
    if (!is_refused(t->text, t->n, A_CALL, why) || strstr(heard, "\"isError\":true") == NULL)
        fail_msg("not %s: %s", why, heard);
}

static int begin_at_zero(void **state)
{
    const int r = begin(state);

    ahead_ms = 0;
    if (r == 0)
        open_peer();
    return r;
}

static int end_all(void **state)
{
    sp_mcp_peer_free(peer);
    return end(state);
}
#define parking_test(f) cmocka_unit_test_setup_teardown(f, begin_at_zero, end_all)

/* ---- tickets ---- */

static void test_a_ticket_leads_back_to_its_run_once(void **state)
{
    struct ticket t;

    (void)state;
    park(&t);
    assert_memory_equal(t.text, "v1.", 3);
    assert_null(memchr(t.text, '=', t.n));
    assert_non_null(strstr(heard, "\"approve_1\":{"));
    come_back(t.text, t.n, " {\"cmd\" : \"nice echo r\\u0061n\"}", 1);
    assert_ptr_equal(newest_run(), t.run);
    assert_int_equal(caller->run_count, 1);
    until(heard[0] != 0);
    assert_non_null(strstr(heard, "\\nran\\n"));
    assert_true(sp_list_is_empty(&caller->runs));
    assert_refused(&t, USED);
}

/* Without an answer the same question comes again, with another ticket. */
static void test_a_ticket_without_an_answer_is_asked_again(void **state)
{
    struct ticket t;
    struct ticket again = {0};

    (void)state;
    park(&t);
    come_back(t.text, t.n, A_CALL, 0);
    until(heard[0] != 0);
    assert_non_null(strstr(heard, "\"approve_2\":{"));
    take_ticket(&again);
    assert_true(t.run->is_held);
    assert_refused(&t, USED);
    come_back(again.text, again.n, A_CALL, 2);
    until(heard[0] != 0);
    assert_non_null(strstr(heard, "\\nran\\n"));
}

static void test_every_changed_bit_is_refused(void **state)
{
    struct ticket t;

    (void)state;
    park(&t);
    for (size_t i = 0; i < t.n; i++)
        for (unsigned bit = 0; bit < 8; bit++) {
            t.text[i] ^= (char)(1U << bit);
            assert_forged(t.text, t.n);
            t.text[i] ^= (char)(1U << bit);
        }
    for (size_t n = 0; n < t.n; n++)
        assert_forged(t.text, n);
    for (unsigned c = 0; c < 256; c++) {
        t.text[t.n] = (char)c;
        assert_forged(t.text, t.n + 1);
    }
    assert_true(t.run->is_held);
    come_back(t.text, t.n, A_CALL, 1);
    until(heard[0] != 0);
    assert_non_null(strstr(heard, "\\nran\\n"));
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

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        assert_forged(texts[i], strlen(texts[i]));
    memset(huge, 'A', sizeof huge);
    memcpy(huge, "v1.", 3);
    huge[sizeof huge - 44] = '.';
    assert_forged(huge, sizeof huge);
}

static void use_caller(const char *identity)
{
    sp_mcp_peer_free(peer);
    caller = hold(identity);
    open_peer();
}

static void test_a_ticket_is_good_for_its_call_and_its_caller_alone(void **state)
{
    struct ticket t;

    (void)state;
    park(&t);
    assert_true(is_refused(t.text, t.n, "{\"cmd\":\"nice ls -l\"}",
                           "it belongs to a call of another tool, or with other arguments"));
    use_caller("uid 1000");
    assert_refused(&t, OTHERS);
    use_caller("stdio");
    t.run->asked++; /* another question has come: this one is not asked any more */
    assert_refused(&t, "its question is not asked any more");
    assert_true(t.run->is_held);
}

static void test_a_ticket_of_another_server_is_none(void **state)
{
    struct ticket t;
    struct ticket other;

    (void)state;
    park(&t);
    sp_mcp_peer_free(peer);
    sp_mcp_free(mcp);
    make_server();
    open_peer();
    park(&other);
    assert_forged(t.text, t.n);
}

/* One that ended and came again has the same name and begins to count anew. */
static void test_a_ticket_of_a_former_caller_is_none(void **state)
{
    struct ticket t;
    struct ticket other;

    (void)state;
    sp_mcp_peer_free(peer);
    sp_mcp_free(mcp);
    mcp_options.detached_ttl_ms = 1;
    make_server();
    open_peer();
    park(&t);
    sp_mcp_peer_free(peer);
    sp_mcp_caller_release(caller);
    until(sp_list_is_empty(&mcp->callers));
    caller = hold("stdio");
    open_peer();
    park(&other);
    assert_refused(&t, OTHERS);
}

static void test_a_ticket_expires(void **state)
{
    struct ticket first;
    struct ticket second;

    (void)state;
    park(&first);
    park(&second);
    put_forward(SP_MCP_PARKED_MS - 60000);
    come_back(first.text, first.n, A_CALL, 1);
    until(heard[0] != 0);
    assert_non_null(strstr(heard, "\\nran\\n"));
    assert_true(second.run->is_held);
    put_forward(61000);
    assert_refused(&second, "requestState: it has expired");
    until(sp_list_is_empty(&caller->runs));
}

/* ---- parking ---- */

/* A call of a legacy client with forms that nobody answers in time. */
static struct sp_mcp_run *call_legacy(void)
{
    call(A_CALL, "");
    struct sp_mcp_run *r = newest_run();
    until(sp_mcp_run_question(r) != NULL && r->is_told);
    return r;
}

static void test_the_same_call_gets_it_once_if_it_may(void **state)
{
    struct ticket by_ticket;

    (void)state;
    say(strdup("{\"jsonrpc\":\"2.0\",\"id\":\"i\",\"method\":\"initialize\",\"params\":{"
               "\"protocolVersion\":\"2025-11-25\",\"capabilities\":{\"elicitation\":{}}}}"));
    say(strdup("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}"));
    park(&by_ticket);
    const struct sp_mcp_run *second = call_legacy();
    const struct sp_mcp_run *third = call_legacy();
    put_forward(SP_MCP_PATIENCE_MS);
    assert_non_null(strstr(heard, "approval is still pending; repeat the same call"));
    assert_true(second->is_held && third->is_held && by_ticket.run->is_held);
    assert_int_equal(caller->run_count, 3);

    struct sp_mcp_peer *legacy = peer;
    struct sp_mcp_caller *here = caller;
    caller = hold("uid 1000"); /* another caller gets a run of its own */
    open_peer();
    call(A_CALL, "," META);
    assert_int_equal(caller->run_count, 1);
    sp_mcp_peer_free(peer);
    peer = legacy;
    caller = here;
    call("{\"cmd\":\"nice true\"}", ""); /* and so does another call */
    assert_int_equal(caller->run_count, 4);
    assert_true(second->is_held && third->is_held);
    call(A_CALL, "");
    assert_false(second->is_held); /* the oldest of them */
    assert_true(third->is_held);
    call(A_CALL, "");
    assert_false(third->is_held);
    assert_int_equal(caller->run_count, 4);
    call(A_CALL, "");
    assert_int_equal(caller->run_count, 5);
    assert_true(by_ticket.run->is_held);
}

static void test_no_more_than_so_many_are_parked(void **state)
{
    static struct ticket tickets[SP_MCP_PARKED_MAX + 2];

    (void)state;
    for (unsigned i = 0; i < SP_MCP_PARKED_MAX + 2; i++) {
        char number[32];

        park(&tickets[i]);
        (void)snprintf(number, sizeof number, "\"approve_%u\":{", i + 1);
        assert_non_null(strstr(heard, number));
    }
    until(caller->run_count == SP_MCP_PARKED_MAX);
    assert_refused(&tickets[0], USED);
    assert_refused(&tickets[1], USED);
    for (size_t i = 2; i < SP_MCP_PARKED_MAX + 2; i++)
        assert_true(tickets[i].run->is_held);
}

static void test_each_goes_when_its_own_time_is_over(void **state)
{
    struct ticket first;
    struct ticket second;

    (void)state;
    park(&first);
    put_forward(SP_MCP_PARKED_MS / 2);
    park(&second);
    put_forward(SP_MCP_PARKED_MS / 2 + 1000);
    until(caller->run_count == 1);
    assert_ptr_equal(newest_run(), second.run);
    assert_true(second.run->is_held);
    put_forward(SP_MCP_PARKED_MS / 2);
    until(caller->run_count == 0);
}

static void time_out_questions(void)
{
    sp_mcp_peer_free(peer);
    sp_mcp_free(mcp);
    manager_options.approvals.timeout_ms = 100;
    make_server();
    open_peer();
}

static void test_what_ended_meanwhile_is_told_to_who_comes_back(void **state)
{
    struct ticket t;
    struct waiter w;
    struct waiter back;

    (void)state;
    time_out_questions();
    park(&t);
    until(t.run->result != NULL);
    assert_int_equal(caller->run_count, 1);
    come_back(t.text, t.n, A_CALL, 0);
    until(heard[0] != 0);
    assert_non_null(strstr(heard, "approval request timed out"));
    assert_true(sp_list_is_empty(&caller->runs));

    struct sp_mcp_run *r = start(&w, "wait", "{\"now\":true}"); /* with all parts of a result */
    sp_mcp_run_attach(r, NULL, NULL);
    run_for(5);
    assert_string_equal(w.story, "");
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
    struct ticket t;

    (void)state;
    time_out_questions();
    park(&t);
    until(t.run->result != NULL);
    put_forward(SP_MCP_PARKED_MS + 1000);
    until(sp_list_is_empty(&caller->runs));
}

/* ---- memory ---- */

static void test_without_memory_the_run_is_cancelled_or_the_ticket_is_not_made(void **state)
{
    bool has_ended = true;
    unsigned cancelled = 0;
    unsigned left = 0; /* parked, but their ticket was not made */

    (void)state;
    for (long n = 1; has_ended; n++) {
        struct ticket t;
        struct ticket again;

        park(&t);
        come_back(t.text, t.n, A_CALL, 0); /* the loop asks again */
        heard[0] = 0;
        end_memory_at(n);
        turn();
        has_ended = did_memory_end();
        until(heard[0] != 0);
        if (!has_ended) {
            take_ticket(&again);
            assert_true(t.run->is_held);
            break;
        }
        assert_non_null(strstr(heard, "-32603"));
        turn();
        if (caller->run_count == left)
            cancelled++;
        else
            left++;
    }
    assert_true(cancelled != 0 && left != 0);
}

int main(void)
{
    const struct CMUnitTest tests_of_this[] = {
        parking_test(test_a_ticket_leads_back_to_its_run_once),
        parking_test(test_a_ticket_without_an_answer_is_asked_again),
        parking_test(test_every_changed_bit_is_refused),
        parking_test(test_nonsense_is_no_ticket),
        parking_test(test_a_ticket_is_good_for_its_call_and_its_caller_alone),
        parking_test(test_a_ticket_of_another_server_is_none),
        parking_test(test_a_ticket_of_a_former_caller_is_none),
        parking_test(test_a_ticket_expires),
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
