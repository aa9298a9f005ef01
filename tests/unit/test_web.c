/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The front's side of HTTP requests, with a worker that says what no worker of ours says: this
 * program itself, told by LANG what to be.
 */
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "core/http_client.h"
#include "test.h"

#define TURNS 2000 /* of 10 ms */

/* What the socket answers to the next sends, 0: what it answers. */
static int refusals[2];

int __real_sp_wire_send(int socket, bool can_wait, const void *msg, size_t len, const void *tail,
                        size_t tail_len, const int *fds, int fd_count);
int __wrap_sp_wire_send(int socket, bool can_wait, const void *msg, size_t len, const void *tail,
                        size_t tail_len, const int *fds, int fd_count);
int __wrap_sp_wire_send(int socket, bool can_wait, const void *msg, size_t len, const void *tail,
                        size_t tail_len, const int *fds, int fd_count)
{
    const int refusal = refusals[0];

    refusals[0] = refusals[1];
    refusals[1] = 0;
    return refusal != 0
               ? -refusal
               : __real_sp_wire_send(socket, can_wait, msg, len, tail, tail_len, fds, fd_count);
}

/* ---- the worker ---- */

static void say(enum sp_web_op op, uint64_t number, uint64_t value, struct sp_str bytes)
{
    struct {
        struct sp_web_message m;
        char bytes[SP_WEB_PIECE];
    } message = {.m = {.version = SP_WEB_VERSION,
                       .op = (uint16_t)op,
                       .len = (uint32_t)bytes.n,
                       .number = number,
                       .value = value}};

    if (bytes.n != 0)
        memcpy(message.bytes, bytes.p, bytes.n);
    (void)send(STDIN_FILENO, &message, sizeof message.m + bytes.n, MSG_NOSIGNAL);
}

/* The next one; what else is said, that one is dropped or how much may be sent, is not for us. */
static uint64_t hear_order(void)
{
    struct sp_web_order o;
    ssize_t n;

    do
        n = recv(STDIN_FILENO, &o, sizeof o, 0);
    while (n > 0 && n != (ssize_t)sizeof o);
    return n > 0 ? o.head.number : 0;
}

/* 4 fields of 60,000 bytes and one that does not fit any more. */
static void say_much_head(uint64_t number)
{
    auto_buf struct sp_buf b = {0};
    static char value[60000];

    memset(value, 'x', sizeof value);
    (void)sp_web_field_add(&b, SP_STR("a"), (struct sp_str){value, sizeof value});
    for (int i = 0; i < 5; i++)
        say(SP_WEB_FIELDS, number, 0, (struct sp_str){b.data, b.len});
    say(SP_WEB_HEAD, number, 200, SP_STR(""));
    say(SP_WEB_DONE, number, 0, SP_STR(""));
}

static void say_well(uint64_t number)
{
    auto_buf struct sp_buf b = {0};

    (void)sp_web_field_add(&b, SP_STR("x-a"), SP_STR("1"));
    say(SP_WEB_FIELDS, number, 0, (struct sp_str){b.data, 4});
    say(SP_WEB_FIELDS, number, 0, (struct sp_str){b.data + 4, b.len - 4});
    say(SP_WEB_HEAD, number, 207, SP_STR(""));
    say(SP_WEB_BODY, number, 0, SP_STR("hello "));
    say(SP_WEB_BODY, number, 0, SP_STR("there"));
    say(SP_WEB_DONE, number, 0, SP_STR(""));
}

/* At work on something that takes long. */
static int answer_pings(void)
{
    struct sp_web_order o;

    for (ssize_t n; (n = recv(STDIN_FILENO, &o, sizeof o, 0)) > 0;)
        if (o.head.op == SP_WEB_PING)
            say(SP_WEB_PONG, o.head.number, 0, SP_STR(""));
    return 0;
}

static int worker(const char *how)
{
    static char piece[SP_WEB_PIECE];

    if (strcmp(how, "pongs") == 0)
        return answer_pings();

    for (;;) {
        const uint64_t n = hear_order();

        if (n == 0)
            return 0;
        if (strcmp(how, "well") == 0)
            say_well(n);
        else if (strcmp(how, "dies") == 0)
            return 1;
        else if (strcmp(how, "unable") == 0)
            say(SP_WEB_UNABLE, 0, 0, SP_STR("not today"));
        else if (strcmp(how, "bytes") == 0)
            (void)send(STDIN_FILENO, "nonsense", 8, MSG_NOSIGNAL);
        else if (strcmp(how, "ask") == 0)
            say(SP_WEB_ASK, n, 0, SP_STR(""));
        else if (strcmp(how, "future") == 0)
            say(SP_WEB_DONE, n + 1, 0, SP_STR(""));
        else if (strcmp(how, "body-first") == 0)
            say(SP_WEB_BODY, n, 0, SP_STR("x"));
        else if (strcmp(how, "done-first") == 0)
            say(SP_WEB_DONE, n, 0, SP_STR(""));
        else if (strcmp(how, "two-heads") == 0)
            for (int i = 0; i < 2; i++)
                say(SP_WEB_HEAD, n, 200, SP_STR(""));
        else if (strcmp(how, "half-a-field") == 0) {
            say(SP_WEB_FIELDS, n, 0, SP_STR("abc"));
            say(SP_WEB_HEAD, n, 200, SP_STR(""));
        } else if (strcmp(how, "much-head") == 0)
            say_much_head(n);
        else if (strcmp(how, "flood") == 0) {
            say(SP_WEB_HEAD, n, 200, SP_STR(""));
            for (int i = 0; i < 5; i++)
                say(SP_WEB_BODY, n, 0, (struct sp_str){piece, sizeof piece});
        } else if (strcmp(how, "fails") == 0)
            say(SP_WEB_DONE, n, 1, SP_STR("no luck"));
    }
}

/* ---- the front ---- */

struct asked {
    struct sp_web_call call;
    int heads, ends, status;
    size_t bytes;
    bool takes, is_dropped_at_head;
    char why[256];
};

static void on_head(struct sp_web_call *c, int status, struct sp_str fields)
{
    struct asked *a = SP_CONTAINER(c, struct asked, call);

    assert_true(sp_web_fields_are_whole(fields));
    a->heads++;
    a->status = status;
    if (a->is_dropped_at_head)
        sp_web_drop(c);
}

static void on_body(struct sp_web_call *c, struct sp_str bytes)
{
    struct asked *a = SP_CONTAINER(c, struct asked, call);

    a->bytes += bytes.n;
    if (a->takes)
        sp_web_take(c, bytes.n);
}

static void on_done(struct sp_web_call *c, const char *why)
{
    struct asked *a = SP_CONTAINER(c, struct asked, call);

    a->ends++;
    (void)snprintf(a->why, sizeof a->why, "%s", why == NULL ? "" : why);
}

static const struct sp_web_ops ops = {.head = on_head, .body = on_body, .done = on_done};

struct front {
    struct sp_loop *loop;
    struct sp_web *web;
    struct sp_web_client client;
    char language[64];
    char *environ[2];
};

static void open_front(struct front *f, const char *how)
{
    struct sp_err e = {0};

    *f = (struct front){0};
    (void)snprintf(f->language, sizeof f->language, "LANG=%s", how);
    f->environ[0] = f->language;
    assert_int_equal(sp_loop_new(&f->loop, &e), 0);
    assert_int_equal(sp_web_new(f->loop, "/proc/self/exe", f->environ, &f->web, &e), 0);
}

static void close_front(struct front *f)
{
    sp_web_free(f->web);
    sp_loop_free(f->loop);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child is left */
}

static void begin(struct front *f, struct asked *a, uint64_t timeout_ms)
{
    const struct sp_web_ask ask = {
        .method = SP_STR("GET"), .url = SP_STR("http://site.example/"), .timeout_ms = timeout_ms};
    struct sp_err e = {0};

    a->call.ops = &ops;
    sp_loop_poke(f->loop);
    assert_int_equal(sp_web_ask(f->web, &f->client, &ask, &a->call, &e), 0);
    assert_int_equal(a->heads + a->ends, 0);
}

static void turn(struct front *f)
{
    struct sp_err e = {0};

    assert_int_equal(sp_loop_dispatch(f->loop, 10, &e), 0);
}

static void await_end(struct front *f, const struct asked *a)
{
    for (int i = 0; a->ends == 0 && i < TURNS; i++)
        turn(f);
    assert_int_equal(a->ends, 1);
}

static void test_a_response(void **state)
{
    struct front f;

    (void)state;
    open_front(&f, "well");
    for (int i = 0; i < 3; i++) {
        struct asked a = {.takes = true};

        begin(&f, &a, SP_WEB_NO_TIMEOUT);
        await_end(&f, &a);
        assert_string_equal(a.why, "");
        assert_int_equal(a.status, 207);
        assert_int_equal(a.bytes, 11);
    }
    assert_true(sp_web_is_possible(f.web) || !sp_web_is_possible(NULL));
    close_front(&f);
}

static void test_a_worker_that_is_not_ours(void **state)
{
    static const char *const ways[] = {"dies",       "bytes",     "ask",          "future",
                                       "body-first", "two-heads", "half-a-field", "much-head",
                                       "flood",      "done-first"};

    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        struct front f;

        open_front(&f, ways[i]);
        for (int again = 0; again < 2; again++) {
            struct asked a = {0};

            begin(&f, &a, SP_WEB_NO_TIMEOUT);
            await_end(&f, &a);
            assert_string_equal(a.why, "the process that did this request has ended; try it again");
            assert_true(a.bytes <= SP_WEB_WINDOW);
        }
        close_front(&f);
    }
}

static void test_failures(void **state)
{
    struct front f;
    struct asked a = {0};
    struct asked b = {0};

    (void)state;
    open_front(&f, "fails");
    begin(&f, &a, SP_WEB_NO_TIMEOUT);
    await_end(&f, &a);
    assert_string_equal(a.why, "no luck");
    close_front(&f);
    open_front(&f, "unable");
    begin(&f, &b, SP_WEB_NO_TIMEOUT);
    await_end(&f, &b);
    assert_string_equal(b.why, "libcurl cannot be used: not today");
    assert_false(sp_web_is_possible(f.web));
    close_front(&f);
}

static void test_drops(void **state)
{
    struct front f;
    struct asked silent = {0};
    struct asked at_head = {.is_dropped_at_head = true};
    struct asked last = {.takes = true};

    (void)state;
    open_front(&f, "silent");
    begin(&f, &silent, SP_WEB_NO_TIMEOUT);
    turn(&f);
    sp_web_drop(&silent.call);
    sp_web_drop(&silent.call);
    turn(&f);
    assert_int_equal(silent.heads + silent.ends, 0);
    assert_int_equal(f.client.working, 0);
    close_front(&f);
    open_front(&f, "well");
    begin(&f, &at_head, SP_WEB_NO_TIMEOUT);
    for (int i = 0; at_head.heads == 0 && i < TURNS; i++)
        turn(&f);
    assert_int_equal(at_head.heads, 1);
    sp_web_take(&at_head.call, 5); /* too late: fine */
    close_front(&f);
    open_front(&f, "well");
    begin(&f, &last, SP_WEB_NO_TIMEOUT);
    sp_web_drop(&last.call); /* before it was heard of */
    close_front(&f);
    assert_int_equal(last.ends, 0);
}

static void test_more_than_at_once(void **state)
{
    enum { MORE = SP_WEB_CLIENT_MAX + 3 };
    struct front f;
    struct asked *a = calloc(MORE, sizeof *a);

    (void)state;
    assert_non_null(a);
    open_front(&f, "silent");
    for (int i = 0; i < MORE; i++)
        begin(&f, &a[i], i == MORE - 1 ? 50 : SP_WEB_NO_TIMEOUT);
    assert_int_equal(f.client.working, SP_WEB_CLIENT_MAX);
    await_end(&f, &a[MORE - 1]); /* its time passed while it waited */
    assert_string_equal(a[MORE - 1].why, "the time for it has passed");
    sp_web_drop(&a[0].call);
    for (int i = 0; f.client.working < SP_WEB_CLIENT_MAX && i < TURNS; i++)
        turn(&f);
    assert_true(a[SP_WEB_CLIENT_MAX].call.is_working);
    assert_false(a[SP_WEB_CLIENT_MAX + 1].call.is_working);
    for (int i = 0; i < MORE; i++)
        sp_web_drop(&a[i].call);
    assert_int_equal(f.client.working, 0);
    close_front(&f);
    free(a);
}

static void test_one_that_hangs_is_ended(void **state)
{
    struct front f;

    (void)state;
    open_front(&f, "silent");
    f.web->ping_ms = 5;
    for (int again = 0; again < 2; again++) {
        struct asked a = {0};
        struct asked b = {0};

        begin(&f, &a, SP_WEB_NO_TIMEOUT);
        begin(&f, &b, SP_WEB_NO_TIMEOUT);
        await_end(&f, &a);
        await_end(&f, &b);
        assert_string_equal(a.why, "the process that did this request does not answer and was "
                                   "ended; try it again");
        assert_int_equal(f.client.working, 0);
    }
    close_front(&f);
}

static void test_one_that_takes_long_is_not(void **state)
{
    struct front f;
    struct asked a = {0};

    (void)state;
    open_front(&f, "pongs");
    f.web->ping_ms = 100; /* for a process that has to begin */
    begin(&f, &a, SP_WEB_NO_TIMEOUT);
    const struct sp_web_child *first = f.web->child;
    for (int i = 0; i < 100; i++)
        turn(&f);
    assert_int_equal(a.ends, 0);
    assert_ptr_equal(f.web->child, first);
    assert_true(f.web->child->ping.slot != 0);
    sp_web_drop(&a.call);
    for (int i = 0; f.web->child->ping.slot != 0 && i < TURNS; i++)
        turn(&f);
    assert_int_equal(f.web->child->ping.slot, 0); /* nothing to do: it is left alone */
    close_front(&f);
}

/* A request that cannot be handed over fails, alone. */
static void test_what_cannot_be_sent_is_told(void **state)
{
    const struct sp_web_ask ask = {.method = SP_STR("GET"),
                                   .url = SP_STR("http://site.example/"),
                                   .timeout_ms = SP_WEB_NO_TIMEOUT};
    struct front f;
    struct asked a = {.takes = true, .call.ops = &ops};
    struct asked b = {.takes = true};
    struct sp_err e = {0};

    (void)state;
    open_front(&f, "well");
    refusals[0] = ETOOMANYREFS;
    assert_int_equal(sp_web_ask(f.web, &f.client, &ask, &a.call, &e), -SP_E_FAILED);
    assert_int_equal(e.sys, ETOOMANYREFS);
    assert_int_equal(f.client.working, 0);
    begin(&f, &b, SP_WEB_NO_TIMEOUT);
    await_end(&f, &b);
    assert_string_equal(b.why, "");
    close_front(&f);
}

static void test_what_is_queued_is_sent_or_told(void **state)
{
    static const struct {
        int then;
        const char *why;
    } ways[] = {
        {EAGAIN, ""},
        {ENOBUFS, ""},
        {ETOOMANYREFS, "requests could not be handed to the process that does them; try it again"}};

    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        struct front f;
        struct asked a = {.takes = true};

        open_front(&f, "well");
        refusals[0] = EAGAIN;
        refusals[1] = ways[i].then;
        begin(&f, &a, SP_WEB_NO_TIMEOUT);
        await_end(&f, &a);
        assert_string_equal(a.why, ways[i].why);
        close_front(&f);
    }
}

static void test_what_is_refused_at_once(void **state)
{
    static char large[SP_WEB_MAX_URL + 1];
    struct front f;
    struct asked a = {.call.ops = &ops};
    struct sp_err e = {0};
    struct sp_web_ask ask = {.method = SP_STR("GET"), .url = {large, sizeof large}};

    (void)state;
    open_front(&f, "silent");
    ask.timeout_ms = SP_WEB_NO_TIMEOUT;
    assert_int_equal(sp_web_ask(f.web, &f.client, &ask, &a.call, &e), -SP_E_LIMIT);
    ask.url = SP_STR("http://a/");
    ask.timeout_ms = 0;
    assert_int_equal(sp_web_ask(f.web, &f.client, &ask, &a.call, &e), -SP_E_FAILED);
    ask.timeout_ms = 5;
    ask.method = (struct sp_str){large, SP_WEB_MAX_METHOD + 1};
    assert_int_equal(sp_web_ask(f.web, &f.client, &ask, &a.call, &e), -SP_E_LIMIT);
    assert_int_equal(f.client.working, 0);
    close_front(&f);
    sp_web_free(NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_a_response),
    cmocka_unit_test(test_a_worker_that_is_not_ours),
    cmocka_unit_test(test_failures),
    cmocka_unit_test(test_drops),
    cmocka_unit_test(test_more_than_at_once),
    cmocka_unit_test(test_what_is_refused_at_once),
    cmocka_unit_test(test_one_that_hangs_is_ended),
    cmocka_unit_test(test_one_that_takes_long_is_not),
    cmocka_unit_test(test_what_cannot_be_sent_is_told),
    cmocka_unit_test(test_what_is_queued_is_sent_or_told),
};

int main(int argc, char **argv)
{
    const char *how = getenv("LANG");

    if (argc == 2 && strcmp(argv[1], "http") == 0)
        return worker(how == NULL ? "" : how);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
