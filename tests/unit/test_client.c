/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client and the remote backend against a server that does what no real one does on demand.
 */
#include "engine/remote/dial.h"
#include "fake_server.h"

#define A "YQ=="
#define B "Yg=="
#define C "Yw=="

static bool has_three(void *what)
{
    return ((struct told *)what)->bytes >= 3;
}

/* ---- greeting ---- */

static void the_greeting_has_its_form(void **state)
{
    auto_told struct told t = {0};

    (void)state;
    start_fake(&t);
    assert_string_equal(
        fs.heard[0].text,
        "{\"id\":2,\"method\":\"initialize\",\"params\":{\"clientName\":\"test\","
        "\"resumeSessionId\":null,\"capabilities\":{\"receipts\":true,\"denials\":true}}}");
    assert_string_equal(fs.heard[1].text, "{\"method\":\"initialized\",\"params\":{}}");
    assert_int_equal(t.sandbox, SP_JOB_SANDBOX_LINUX);
    assert_int_equal(strncmp(wire_id(), "1000-", 5), 0);
    assert_int_equal(strlen(wire_id()), 5 + 36);
}

static void the_environment_is_asked_for_if_it_was_not_told(void **state)
{
    struct sp_backend_wait w = {.fn = fx_facts};

    (void)state;
    fs.info = "";
    sp_backend_ask_facts(fx.backend, &w);
    const struct heard *h = await("environment/info", 1);
    assert_non_null(strstr(h->text, "\"params\":null"));
    say_result(h, "{\"shell\":{\"name\":\"zsh\",\"path\":\"/bin/zsh\"},\"cwd\":\"file:///a%20b\"}");
    until(has_facts, NULL);
    assert_string_equal(fx.facts.shell_name, "zsh");
    assert_int_equal(fx.facts.shell_type, SP_SHELL_ZSH);
    assert_string_equal(fx.facts.cwd, "/a b");
    assert_false(fx.facts.can_close_stdin);
}

static void a_server_that_tells_nothing_has_no_shell(void **state)
{
    struct sp_backend_wait w = {.fn = fx_facts};

    (void)state;
    fs.info = "";
    sp_backend_ask_facts(fx.backend, &w);
    say_error(await("environment/info", 1), -32601, "no");
    until(has_facts, NULL);
    assert_int_equal(fx.facts.shell_type, SP_SHELL_UNKNOWN);
    assert_null(fx.facts.shell_path);
    assert_null(fx.facts.cwd);
}

static void a_server_that_does_not_answer_is_given_up(void **state)
{
    const struct sp_client_options o = {.url = fs.url, .connect_timeout_ms = 300};
    auto_told struct told t = {0};
    struct sp_err e;

    (void)state;
    fs.is_mute = true;
    sp_backend_free(fx.backend);
    assert_int_equal(sp_remote_new(fx.loop, &o, &fx.backend, &e), 0);
    start_script(&t, "x");
    until(is_over, &t);
    assert_int_equal(t.refused, 1);
    assert_non_null(strstr(t.error.msg, "did not answer initialize in time"));
}

static bool has_called(void *what)
{
    return fs.greeted >= *(unsigned *)what;
}

static void a_greeting_that_is_cut_is_tried_again(void **state)
{
    struct sp_backend_wait w = {.fn = fx_facts};
    unsigned calls = 1;

    (void)state;
    fs.is_mute = true;
    sp_backend_ask_facts(fx.backend, &w);
    until(has_called, &calls);
    hang_up();
    calls = 2;
    until(has_called, &calls);
    fs.is_mute = false;
    hang_up();
    until(has_facts, NULL);
    assert_string_equal(fx.facts.shell_name, "bash");
}

static void a_server_that_always_hangs_up_is_given_up(void **state)
{
    struct sp_backend_wait w = {.fn = fx_facts};

    (void)state;
    fs.is_mute = true;
    sp_backend_ask_facts(fx.backend, &w);
    for (unsigned calls = 1; calls <= 5; calls++) {
        until(has_called, &calls);
        hang_up();
    }
    until(has_facts, NULL);
    assert_non_null(strstr(fx.facts_error.msg, "the connection ended: closed by the peer"));
}

static void a_refused_greeting_is_the_end(void **state)
{
    struct sp_backend_wait w = {.fn = fx_facts};

    (void)state;
    fs.refuse_greetings = 1;
    fs.refuse_code = -32600;
    sp_backend_ask_facts(fx.backend, &w);
    until(has_facts, NULL);
    assert_non_null(strstr(fx.facts_error.msg, "the server refused the session: not now"));
}

/* ---- following ---- */

static void a_gap_is_read(void **state)
{
    auto_told struct told t = {0};

    (void)state;
    start_fake(&t);
    say_output(2, B);
    say_output(3, C);
    const struct heard *h = await("process/read", 1);
    assert_non_null(strstr(h->text, "\"afterSeq\":0,\"maxBytes\":null,\"waitMs\":0"));
    assert_int_equal(t.bytes, 0);
    say_result(h, "{\"chunks\":[{\"seq\":1,\"stream\":\"stdout\",\"chunk\":\"YQ==\"},"
                  "{\"seq\":2,\"stream\":\"stdout\",\"chunk\":\"Yg==\"},"
                  "{\"seq\":3,\"stream\":\"stdout\",\"chunk\":\"Yw==\"}],"
                  "\"nextSeq\":4,\"exited\":false,\"exitCode\":null,\"closed\":false}");
    until(has_three, &t);
    say_output(3, C);
    say_exited(4, 0, ",\"sandboxDenied\":false");
    say_closed(5);
    until(is_over, &t);
    assert_bytes(t.out.data, t.out.len, "abc");
    assert_int_equal(times("process/read"), 1);
    assert_string_equal(t.order, "soxc");
}

static void a_gap_that_closes_in_the_same_turn_is_not_read(void **state)
{
    auto_told struct told t = {0};

    (void)state;
    start_fake(&t);
    say_output(3, C);
    say_output(1, A);
    say_output(2, B);
    until(has_three, &t);
    assert_bytes(t.out.data, t.out.len, "abc");
    assert_int_equal(times("process/read"), 0);
}

static void an_exit_without_a_verdict_is_asked_about(void **state)
{
    auto_told struct told t = {0};

    (void)state;
    start_fake(&t);
    say_exited(1, 1, "");
    const struct heard *h = await("process/read", 1);
    assert_int_equal(t.exited, 0);
    say_result(h, "{\"chunks\":[],\"nextSeq\":2,\"exited\":true,\"exitCode\":1,\"closed\":false,"
                  "\"failure\":null,\"sandboxDenied\":true}");
    until(has_exited, &t);
    assert_int_equal(t.denied, 1);
    assert_int_equal(t.code, 1);
}

static void output_may_overtake_the_start(void **state)
{
    auto_told struct told t = {0};

    (void)state;
    start_script(&t, "x");
    (void)await("process/start", 1);
    say_output(1, A);
    say_exited(2, 0, ",\"sandboxDenied\":false");
    say_closed(3);
    pass(30);
    assert_string_equal(t.order, "");
    say_started();
    until(is_over, &t);
    assert_string_equal(t.order, "soxc");
}

/* More than is held behind a number that is missing. */
static void a_burst_behind_a_gap_is_read(void **state)
{
    auto_told struct told t = {0};

    (void)state;
    start_fake(&t);
    for (unsigned i = 2; i <= 600; i++) {
        say_output(i, A);
        if (i % 100 == 0) /* a socket holds but few messages */
            pass(5);
    }
    const struct heard *h = await("process/read", 1);
    say_result(h, "{\"chunks\":[{\"seq\":600,\"stream\":\"stdout\",\"chunk\":\"YQ==\"}],"
                  "\"nextSeq\":603,\"exited\":true,\"exitCode\":0,\"closed\":true,"
                  "\"sandboxDenied\":false}");
    until(is_over, &t);
    assert_int_equal(t.code, 0);
    assert_int_equal(t.gaps, 2); /* before 2, and where it was not held */
    assert_int_equal(times("process/read"), 1);
}

static void a_malformed_event_fails_its_process_alone(void **state)
{
    auto_told struct told t = {0};
    auto_told struct told u = {0};

    (void)state;
    start_fake(&u);
    start_fake(&t);
    say("{\"method\":\"process/output\",\"params\":{\"processId\":\"%s\",\"stream\":\"stdout\","
        "\"chunk\":\"YQ==\"}}",
        wire_id());
    until(is_over, &t);
    assert_int_equal(t.failed, 1);
    assert_non_null(strstr(t.why, "missing field `seq`"));
    say("{\"method\":\"process/output\",\"params\":{\"processId\":\"nobody\",\"seq\":\"x\"}}");
    say("{\"method\":\"process/output\",\"params\":7}");
    say("{\"method\":\"something/else\"}");
    pass(50);
    assert_int_equal(is_over(&u), false);
    assert_int_equal(fs.accepted, 1);
}

static void a_lost_process_fails(void **state)
{
    auto_told struct told t = {0};

    (void)state;
    start_fake(&t);
    say_output(2, B);
    say_error(await("process/read", 1), -32600, "unknown process id");
    until(is_over, &t);
    assert_int_equal(t.failed, 1);
    assert_non_null(strstr(t.why, "lost the process: unknown process id"));
    (void)await("process/terminate", 1);
}

static void a_failure_in_an_answer_is_the_servers_text(void **state)
{
    auto_told struct told t = {0};

    (void)state;
    start_fake(&t);
    say_output(2, B);
    say_result(await("process/read", 1),
               "{\"chunks\":[{\"seq\":1,\"stream\":\"stdout\",\"chunk\":\"YQ==\"}],\"nextSeq\":3,"
               "\"exited\":false,\"closed\":false,\"failure\":\"network denied\"}");
    until(is_over, &t);
    assert_string_equal(t.order, "sof");
    assert_string_equal(t.why, "network denied");
}

static void senseless_answers_fail_the_process(void **state)
{
    static const char *const answers[] = {
        "7",
        "{}",
        "{\"chunks\":[],\"nextSeq\":2,\"exited\":false}",
        "{\"chunks\":{},\"nextSeq\":2,\"exited\":false,\"closed\":false}",
        "{\"chunks\":[1],\"nextSeq\":2,\"exited\":false,\"closed\":false}",
        "{\"chunks\":[],\"nextSeq\":-2,\"exited\":false,\"closed\":false}",
        "{\"chunks\":[],\"nextSeq\":1,\"exited\":false,\"closed\":false}",
        "{\"chunks\":[{\"seq\":1,\"stream\":\"stdin\",\"chunk\":\"\"}],\"nextSeq\":2,"
        "\"exited\":false,\"closed\":false}",
        "{\"chunks\":[{\"seq\":1,\"stream\":\"stdout\",\"chunk\":\"?\"}],\"nextSeq\":2,"
        "\"exited\":false,\"closed\":false}",
    };

    (void)state;
    for (unsigned i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        auto_told struct told t = {0};

        start_fake(&t);
        say_output(2, B);
        say_result(await("process/read", i + 1), answers[i]);
        until(is_over, &t);
        assert_int_equal(t.failed, 1);
    }
}

/* ---- writing ---- */

static void write_statuses_are_told_apart(void **state)
{
    static const struct {
        const char *result;
        enum sp_job_result want;
    } cases[] = {
        {"{\"status\":\"accepted\"}", SP_JOB_OK},
        {"{\"status\":\"stdinClosed\"}", SP_JOB_NO_STDIN},
        {"{\"status\":\"unknownProcess\"}", SP_JOB_GONE},
        {"{\"status\":\"starting\"}", SP_JOB_NOT_YET},
        {"{\"status\":\"new word\"}", SP_JOB_REFUSED},
        {"[]", SP_JOB_REFUSED},
    };
    auto_told struct told t = {0};

    (void)state;
    start_fake(&t);
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct asked a = {.call.fn = fx_answered};

        sp_job_write(&t.job, &a.call, SP_STR("x"));
        const struct heard *h = await("process/write", i + 1);
        assert_non_null(strstr(h->text, "\"chunk\":\"eA==\""));
        say_result(h, cases[i].result);
        assert_int_equal(answer_of(&a), cases[i].want);
    }
    struct asked a = {.call.fn = fx_answered};
    sp_job_write(&t.job, &a.call, SP_STR("x"));
    say_error(await("process/write", 7), -32603, "failed to write to process stdin");
    assert_int_equal(answer_of(&a), SP_JOB_REFUSED);
    assert_string_equal(a.call.error.msg, "failed to write to process stdin");
}

static void input_is_bounded(void **state)
{
    auto_free char *block = calloc(1, 300000);
    struct asked asked[5] = {0};
    auto_told struct told t = {0};

    (void)state;
    start_fake(&t);
    fs_deafen();
    for (int i = 0; i < 5; i++) {
        asked[i].call.fn = fx_answered;
        sp_job_write(&t.job, &asked[i].call, (struct sp_str){block, 300000});
    }
    until(is_answered, &asked[3]);
    assert_int_equal(asked[3].call.result, SP_JOB_FULL);
    until(is_answered, &asked[4]);
    assert_int_equal(asked[0].answers, 0);
}

static void what_a_server_cannot_do_is_said(void **state)
{
    auto_told struct told t = {0};
    struct asked a = {.call.fn = fx_answered};

    (void)state;
    start_fake(&t);
    sp_job_resize(&t.job, &a.call, 10, 10);
    assert_int_equal(answer_of(&a), SP_JOB_REFUSED);
    a.answers = 0;
    sp_job_signal(&t.job, &a.call, SIGTERM);
    assert_int_equal(answer_of(&a), SP_JOB_REFUSED);
    a.answers = 0;
    sp_job_signal(&t.job, &a.call, SIGKILL);
    say_result(await("process/terminate", 1), "{\"running\":true}");
    assert_int_equal(answer_of(&a), SP_JOB_OK);
    a.answers = 0;
    sp_job_signal(&t.job, &a.call, SIGINT);
    assert_non_null(strstr(await("process/signal", 1)->text, "\"interrupt\""));
    hang_up(); /* and nobody knows whether it arrived */
    assert_int_equal(answer_of(&a), SP_JOB_REFUSED);
    assert_int_equal(times("process/signal"), 1);
}

/* ---- connections that end ---- */

static void what_is_no_message_costs_the_connection_alone(void **state)
{
    static const char *const nonsense[] = {"no json",
                                           "[]",
                                           "{}",
                                           "{\"id\":1}",
                                           "{\"method\":7}",
                                           "{\"error\":7,\"id\":1}",
                                           "{\"id\":1,\"id\":1,\"result\":{}}"};
    auto_told struct told t = {0};

    (void)state;
    start_fake(&t);
    for (unsigned i = 0; i < sizeof nonsense / sizeof nonsense[0]; i++) {
        say("%s", nonsense[i]);
        const struct heard *h = await("process/read", i + 1); /* what was missed */
        assert_int_equal(fs.accepted, i + 2);
        say_result(h, "{\"chunks\":[],\"nextSeq\":1,\"exited\":false,\"closed\":false}");
        assert_non_null(strstr(newest("initialize")->text, "\"resumeSessionId\":\"s-1\""));
    }
    say_output(1, A);
    until(has_output, &t);
}

static void a_server_that_only_talks_nonsense_is_given_up(void **state)
{
    const struct sp_client_options o = {.url = fs.url, .resume_ms = 700};
    auto_told struct told t = {0};
    struct sp_err e;

    (void)state;
    sp_backend_free(fx.backend);
    assert_int_equal(sp_remote_new(fx.loop, &o, &fx.backend, &e), 0);
    start_fake(&t);
    fs.may_hang_up = true;
    for (unsigned i = 1; !is_over(&t); i++) {
        assert_true(i < 20);
        say("nonsense");
        while (fs.greeted == i && !is_over(&t))
            pass(5);
        pass(5);
    }
    assert_int_equal(t.failed, 1);
    assert_non_null(strstr(t.why, "what is no message"));
}

static void answers_to_nobody_are_no_harm(void **state)
{
    auto_told struct told t = {0};

    (void)state;
    start_fake(&t);
    say("{\"id\":77,\"result\":{}}");
    say("{\"id\":\"x\",\"result\":{}}");
    say("{\"error\":{\"code\":1,\"message\":\"?\"},\"id\":99}");
    say("{\"id\":5,\"method\":\"network/other\",\"params\":{}}");
    say_output(1, A);
    until(has_output, &t);
    const struct heard *h = await("", 1);
    assert_non_null(strstr(h->text, "-32601"));
    assert_non_null(strstr(h->text, "does not implement `network/other` yet"));
    say("{\"id\":6,\"method\":\"network/policyRequest\",\"params\":{}}");
    h = await("", 2);
    assert_non_null(strstr(h->text, "\"id\":6"));
    assert_non_null(strstr(h->text, "{\"type\":\"deny\",\"reason\":\"not_allowed\"}"));
    assert_int_equal(fs.accepted, 1);
}

static void a_message_the_server_cannot_read_is_the_end(void **state)
{
    auto_told struct told t = {0};

    (void)state;
    start_fake(&t);
    say("{\"error\":{\"code\":-32600,\"message\":\"failed to parse\"},\"id\":-1}");
    until(is_over, &t);
    assert_int_equal(t.failed, 1);
    assert_non_null(strstr(t.why, "failed to parse"));
}

static void an_attached_session_is_asked_for_again(void **state)
{
    auto_told struct told t = {0};

    (void)state;
    start_fake(&t);
    fs.refuse_greetings = 3;
    hang_up();
    say_result(await("process/read", 1),
               "{\"chunks\":[],\"nextSeq\":3,\"exited\":true,\"exitCode\":9,\"closed\":true,"
               "\"sandboxDenied\":false}");
    until(is_over, &t);
    assert_int_equal(t.code, 9);
    assert_int_equal(fs.greeted, 5);
}

static void another_session_is_none(void **state)
{
    auto_told struct told t = {0};

    (void)state;
    start_fake(&t);
    fs.session = "s-2";
    hang_up();
    until(is_over, &t);
    assert_int_equal(t.failed, 1);
    assert_non_null(strstr(t.why, "another session"));
}

static void a_forgotten_session_is_the_end(void **state)
{
    auto_told struct told t = {0};

    (void)state;
    start_fake(&t);
    fs.refuse_greetings = 1;
    fs.refuse_code = -32600;
    hang_up();
    until(is_over, &t);
    assert_int_equal(t.failed, 1);
    assert_non_null(strstr(t.why, "has forgotten the session: not now"));
}

static void a_write_is_repeated_under_its_id(void **state)
{
    auto_told struct told t = {0};
    struct asked a = {.call.fn = fx_answered};

    (void)state;
    start_fake(&t);
    sp_job_write(&t.job, &a.call, SP_STR("x"));
    const struct heard first = *await("process/write", 1);
    hang_up();
    const struct heard *second = await("process/write", 2);
    assert_string_equal(first.text, second->text);
    say_result(second, "{\"status\":\"accepted\"}");
    assert_int_equal(answer_of(&a), SP_JOB_OK);
}

/* ---- starts whose answer was lost ---- */

static void start_and_hang_up(struct told *t)
{
    start_script(t, "x");
    (void)await("process/start", 1);
    hang_up();
}

static void a_start_that_arrived_is_found(void **state)
{
    auto_told struct told t = {0};

    (void)state;
    start_and_hang_up(&t);
    say_result(await("process/read", 1),
               "{\"chunks\":[{\"seq\":1,\"stream\":\"stdout\",\"chunk\":\"YQ==\"}],\"nextSeq\":4,"
               "\"exited\":true,\"exitCode\":3,\"closed\":true,\"sandboxDenied\":false}");
    until(is_over, &t);
    assert_string_equal(t.order, "soxc");
    assert_int_equal(t.code, 3);
    assert_int_equal(times("process/start"), 1);
}

static void a_start_that_did_not_arrive_is_asked_again(void **state)
{
    auto_told struct told t = {0};
    char id[300];

    (void)state;
    start_and_hang_up(&t);
    (void)snprintf(id, sizeof id, "%s", wire_id());
    say_error(await("process/read", 1), -32600, "unknown process id");
    (void)await("process/start", 2);
    assert_string_equal(id, wire_id());
    say_started();
    until(is_started, &t);
    assert_string_equal(t.order, "s");
}

static void a_start_that_is_under_way_is_waited_for(void **state)
{
    auto_told struct told t = {0};

    (void)state;
    start_and_hang_up(&t);
    say_error(await("process/read", 1), -32600, "process id is starting");
    say_error(await("process/start", 2), -32600, "process already exists");
    say_result(await("process/read", 2),
               "{\"chunks\":[],\"nextSeq\":1,\"exited\":false,\"closed\":false}");
    until(is_started, &t);
    assert_string_equal(t.order, "s");
}

static void a_start_that_is_refused_the_second_time_is_refused(void **state)
{
    auto_told struct told t = {0};

    (void)state;
    start_and_hang_up(&t);
    say_error(await("process/read", 1), -32600, "unknown process id");
    say_error(await("process/start", 2), -32603, "No such file or directory (os error 2)");
    until(is_over, &t);
    assert_string_equal(t.order, "r");
    assert_string_equal(t.error.msg, "No such file or directory (os error 2)");
}

/* ---- bounds of the client itself ---- */

static unsigned refused, answered;

static void count_answers(struct sp_client_request *r, const struct sp_client_reply *reply)
{
    (void)r;
    answered++;
    refused += reply->fate == SP_CLIENT_REFUSED && reply->code == -32603;
}

static bool has_refused(void *what)
{
    (void)what;
    return refused != 0;
}

static void no_ready(void *user, struct sp_json *j, uint32_t value, bool was_resumed)
{
    (void)user;
    (void)j;
    (void)value;
    (void)was_resumed;
}

static void requests_are_bounded(void **state)
{
    static struct sp_client_request requests[SP_CLIENT_MAX_REQUESTS + 2];
    static const struct sp_client_ops ops = {.ready = no_ready};
    const struct sp_client_options o = {.url = fs.url};
    struct sp_client *c;
    struct sp_err e;

    (void)state;
    fs.is_mute = true;
    refused = answered = 0;
    assert_int_equal(sp_client_new(fx.loop, &o, &ops, NULL, &c, &e), 0);
    for (unsigned i = 0; i < SP_CLIENT_MAX_REQUESTS + 2; i++) {
        requests[i] = (struct sp_client_request){.fn = count_answers};
        sp_client_ask(c, &requests[i], "environment/status", SP_STR("null"));
    }
    assert_int_equal(answered, 0);
    until(has_refused, NULL);
    assert_int_equal(refused, 2);
    sp_client_forget(&requests[0]);
    sp_client_forget(&requests[0]);
    sp_client_free(c, 0);
    assert_int_equal(answered, 2);
    assert_null(requests[5].client);
}

static void bad_places_are_refused_with_a_way_out(void **state)
{
    static const struct {
        const char *url, *text;
    } cases[] = {
        {"wss://host:1", "ssh"},
        {"http://host", "ws://HOST:PORT or unix:///PATH"},
        {"ws://", "write ws://HOST:PORT"},
        {"ws://host:0", "write ws://HOST:PORT"},
        {"ws://host:65536", "write ws://HOST:PORT"},
        {"ws://user@host", "write ws://HOST:PORT"},
        {"ws://[::1", "write ws://HOST:PORT"},
        {"ws://[::1]x", "write ws://HOST:PORT"},
        {"ws://ho st", "write ws://HOST:PORT"},
        {"unix://relative", "unix:///PATH"},
        {"", "ws://HOST:PORT"},
    };
    struct sp_backend *b;
    struct sp_err e;

    (void)state;
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct sp_client_options o = {.url = cases[i].url};

        assert_true(sp_remote_new(fx.loop, &o, &b, &e) < 0);
        if (strstr(e.msg, cases[i].text) == NULL)
            fail_msg("%s: %s", cases[i].url, e.msg);
    }
    const char *const program[] = {"x", NULL};
    const struct sp_client_options both = {.url = "ws://h", .program = program};
    assert_true(sp_remote_new(fx.loop, &both, &b, &e) < 0);
    const struct sp_client_options neither = {0};
    assert_true(sp_remote_new(fx.loop, &neither, &b, &e) < 0);
    const struct sp_client_options token = {.url = "ws://h", .token = "a\r\nb"};
    assert_true(sp_remote_new(fx.loop, &token, &b, &e) < 0);
}

static void good_places_are_understood(void **state)
{
    struct sp_target t;
    struct sp_err e;

    (void)state;
    assert_int_equal(sp_target_parse("ws://[::1]:8080/x?y", &t, &e), 0);
    assert_string_equal(t.host, "::1");
    assert_true(t.is_bracketed);
    assert_int_equal(t.port, 8080);
    assert_string_equal(t.path, "/x?y");
    assert_int_equal(sp_target_parse("ws://some.host", &t, &e), 0);
    assert_string_equal(t.host, "some.host");
    assert_int_equal(t.port, 80);
    assert_string_equal(t.path, "");
    assert_int_equal(sp_target_parse("ws://h:1?q", &t, &e), 0);
    assert_string_equal(t.path, "/?q");
    assert_int_equal(sp_target_parse("unix:///a/b", &t, &e), 0);
    assert_true(t.is_unix);
    assert_string_equal(t.un.sun_path, "/a/b");
}

static void a_name_that_is_none_is_said(void **state)
{
    struct sp_backend_wait w = {.fn = fx_facts};

    (void)state;
    sp_backend_free(fx.backend);
    connect_backend("ws://no-such-host.invalid:1");
    sp_backend_ask_facts(fx.backend, &w);
    until(has_facts, NULL);
    assert_non_null(strstr(fx.facts_error.msg, "no-such-host.invalid"));
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, fs_setup, fs_teardown)

static const struct CMUnitTest tests[] = {
    CASE(the_greeting_has_its_form),
    CASE(the_environment_is_asked_for_if_it_was_not_told),
    CASE(a_server_that_tells_nothing_has_no_shell),
    CASE(a_server_that_does_not_answer_is_given_up),
    CASE(a_greeting_that_is_cut_is_tried_again),
    CASE(a_server_that_always_hangs_up_is_given_up),
    CASE(a_refused_greeting_is_the_end),
    CASE(a_gap_is_read),
    CASE(a_gap_that_closes_in_the_same_turn_is_not_read),
    CASE(an_exit_without_a_verdict_is_asked_about),
    CASE(output_may_overtake_the_start),
    CASE(a_burst_behind_a_gap_is_read),
    CASE(a_malformed_event_fails_its_process_alone),
    CASE(a_lost_process_fails),
    CASE(a_failure_in_an_answer_is_the_servers_text),
    CASE(senseless_answers_fail_the_process),
    CASE(write_statuses_are_told_apart),
    CASE(input_is_bounded),
    CASE(what_a_server_cannot_do_is_said),
    CASE(what_is_no_message_costs_the_connection_alone),
    CASE(a_server_that_only_talks_nonsense_is_given_up),
    CASE(answers_to_nobody_are_no_harm),
    CASE(a_message_the_server_cannot_read_is_the_end),
    CASE(an_attached_session_is_asked_for_again),
    CASE(another_session_is_none),
    CASE(a_forgotten_session_is_the_end),
    CASE(a_write_is_repeated_under_its_id),
    CASE(a_start_that_arrived_is_found),
    CASE(a_start_that_did_not_arrive_is_asked_again),
    CASE(a_start_that_is_under_way_is_waited_for),
    CASE(a_start_that_is_refused_the_second_time_is_refused),
    CASE(requests_are_bounded),
    CASE(bad_places_are_refused_with_a_way_out),
    CASE(good_places_are_understood),
    CASE(a_name_that_is_none_is_said),
};

TEST_MAIN(tests)
