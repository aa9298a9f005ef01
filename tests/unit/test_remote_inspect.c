/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a job on a server is doing: asked of a real one, of one that cannot tell, and of one that
 * answers what no real one does.
 */
#include "fake_server.h"

#define CAN_INSPECT                                                               \
    ",\"environmentInfo\":{\"shell\":{\"name\":\"bash\",\"path\":\"/bin/bash\"}," \
    "\"cwd\":\"file:///srv\",\"capabilities\":{\"processInspect\":true}}"

struct looked {
    struct sp_job_inspection look;
    unsigned answers;
};

static void on_looked(struct sp_job_call *c)
{
    struct sp_job_inspection *l = SP_CONTAINER(c, struct sp_job_inspection, call);

    SP_CONTAINER(l, struct looked, look)->answers++;
}

static bool is_looked(void *what)
{
    return ((struct looked *)what)->answers != 0;
}

static struct looked a_look(bool wants_doing, uint16_t first, uint16_t second)
{
    return (struct looked){.look = {.call.fn = on_looked,
                                    .wants_doing = wants_doing,
                                    .ports = {first, second},
                                    .port_count = first == 0    ? 0
                                                  : second == 0 ? 1
                                                                : 2}};
}

static enum sp_job_result result_of(struct looked *l)
{
    until(is_looked, l);
    assert_int_equal(l->answers, 1);
    return l->look.call.result;
}

/* ---- a real server ---- */

static void a_real_server_tells(void **state)
{
    auto_told struct told t = {0};
    struct sp_str argv[3];
    struct sp_start l = script("sleep 600 & read x; echo $x", argv);
    const uint64_t end = test_now_ms() + DEADLINE_MS;
    struct looked k;

    (void)state;
    l.wants_stdin = true;
    start(&t, &l);
    until(is_started, &t);
    do {
        assert_true(test_now_ms() < end);
        k = a_look(true, 9, 10);
        assert_true(sp_job_inspect(&t.job, &k.look));
        assert_int_equal(k.answers, 0);
        assert_int_equal(result_of(&k), SP_JOB_OK);
    } while (k.look.found.doing != SP_DOING_READING_STDIN);
    assert_int_equal(k.look.found.holder_count, 0);
    assert_int_equal(k.look.found.listening, 0);
    assert_int_equal(write_text(&t, "word\n"), SP_JOB_OK);
    until(has_exited, &t);
    do {
        assert_true(test_now_ms() < end);
        k = a_look(true, 0, 0);
        assert_true(sp_job_inspect(&t.job, &k.look));
        assert_int_equal(result_of(&k), SP_JOB_OK);
    } while (k.look.found.holder_count != 1 || strcmp(k.look.found.holders[0].name, "sleep") != 0);
    assert_int_equal(k.look.found.doing, SP_DOING_UNKNOWN);
    assert_int_equal(kill(k.look.found.holders[0].pid, SIGKILL), 0);
    until(is_over, &t);
    k = a_look(true, 0, 0);
    assert_true(sp_job_inspect(&t.job, &k.look));
    assert_int_equal(result_of(&k), SP_JOB_GONE);
}

/* ---- one that cannot ---- */

static void of_one_that_cannot_tell_nothing_is_asked(void **state)
{
    auto_told struct told t = {0};
    struct looked k = a_look(true, 0, 0);

    (void)state;
    start_fake(&t);
    assert_false(sp_job_inspect(&t.job, &k.look));
    pass(20);
    assert_int_equal(k.answers, 0);
    assert_int_equal(times("process/inspect"), 0);
}

/* ---- one that says what it likes ---- */

static int inspect_setup(void **state)
{
    const int r = fs_setup(state);

    fs.info = CAN_INSPECT;
    return r;
}

static struct looked told_by(struct told *t, struct looked k, const char *answer)
{
    const unsigned before = times("process/inspect");

    assert_true(sp_job_inspect(&t->job, &k.look));
    say_result(await("process/inspect", before + 1), answer);
    (void)result_of(&k);
    return k;
}

static void the_question_has_its_form(void **state)
{
    auto_told struct told t = {0};
    char wanted[400];

    (void)state;
    start_fake(&t);
    (void)told_by(&t, a_look(true, 0, 0), "{\"state\":\"running\"}");
    (void)snprintf(wanted, sizeof wanted, "\"params\":{\"processId\":\"%s\"}}", wire_id());
    assert_non_null(strstr(newest("process/inspect")->text, wanted));
    (void)told_by(&t, a_look(false, 80, 65535), "{\"state\":\"running\"}");
    (void)snprintf(wanted, sizeof wanted, "\"params\":{\"processId\":\"%s\",\"ports\":[80,65535]}}",
                   wire_id());
    assert_non_null(strstr(newest("process/inspect")->text, wanted));
}

static void every_state_is_understood(void **state)
{
    auto_told struct told t = {0};

    (void)state;
    start_fake(&t);
    for (int d = SP_DOING_UNKNOWN; d < SP_DOING_MAX; d++) {
        char answer[80];

        (void)snprintf(answer, sizeof answer, "{\"state\":\"%s\",\"holders\":[]}",
                       sp_doing_name((enum sp_doing)d));
        const struct looked k = told_by(&t, a_look(true, 0, 0), answer);
        assert_int_equal(k.look.call.result, SP_JOB_OK);
        assert_int_equal(k.look.found.doing, d);
    }
    assert_int_equal(told_by(&t, a_look(true, 0, 0), "{\"state\":\"dancing\"}").look.found.doing,
                     SP_DOING_UNKNOWN);
}

static void holders_and_ports_are_taken_with_care(void **state)
{
    auto_told struct told t = {0};
    char many[4096] = "{\"state\":\"exited\",\"holders\":[";

    (void)state;
    start_fake(&t);
    struct looked k =
        told_by(&t, a_look(true, 80, 81),
                "{\"state\":\"exited\",\"holders\":[{\"pid\":7,\"name\":\"a\\n\\u001b\\u00e9b\"},"
                "{\"pid\":2147483647,\"name\":\"\",\"more\":[1]}],\"listening\":81,\"new\":{}}");
    assert_int_equal(k.look.call.result, SP_JOB_OK);
    assert_int_equal(k.look.found.holder_count, 2);
    assert_int_equal(k.look.found.holders[0].pid, 7);
    assert_string_equal(k.look.found.holders[0].name, "a????b");
    assert_string_equal(k.look.found.holders[1].name, "");
    assert_int_equal(k.look.found.listening, 81);

    /* Nobody asked for that one; and who asks for ports alone is told nothing else. */
    k = told_by(
        &t, a_look(false, 80, 81),
        "{\"state\":\"running\",\"holders\":[{\"pid\":7,\"name\":\"a\"}],\"listening\":82}");
    assert_int_equal(k.look.found.listening, 0);
    assert_int_equal(k.look.found.doing, SP_DOING_UNKNOWN);
    assert_int_equal(k.look.found.holder_count, 0);

    for (int i = 0; i < 20; i++)
        (void)snprintf(many + strlen(many), sizeof many - strlen(many),
                       "%s{\"pid\":%d,\"name\":\"%080d\"}", i == 0 ? "" : ",", i + 1, i);
    (void)snprintf(many + strlen(many), sizeof many - strlen(many),
                   "],\"holderCount\":4000000000}");
    k = told_by(&t, a_look(true, 0, 0), many);
    assert_int_equal(k.look.call.result, SP_JOB_OK);
    assert_int_equal(k.look.found.holder_count, 4000000000U);
    assert_int_equal(k.look.found.holders[SP_INSPECT_HOLDERS - 1].pid, SP_INSPECT_HOLDERS);
    assert_int_equal(strlen(k.look.found.holders[0].name), sizeof k.look.found.holders[0].name - 1);
}

static void an_answer_without_sense_is_refused(void **state)
{
    static const char *const answers[] = {
        "null",
        "[]",
        "{}",
        "7",
        "{\"state\":7}",
        "{\"state\":\"running\",\"holders\":{}}",
        "{\"state\":\"running\",\"holders\":[7]}",
        "{\"state\":\"running\",\"holders\":[{}]}",
        "{\"state\":\"running\",\"holders\":[{\"pid\":-1,\"name\":\"a\"}]}",
        "{\"state\":\"running\",\"holders\":[{\"pid\":4294967296,\"name\":\"a\"}]}",
        "{\"state\":\"running\",\"holders\":[{\"pid\":1,\"name\":7}]}",
        "{\"state\":\"running\",\"holders\":[],\"holderCount\":-1}",
        "{\"state\":\"running\",\"holders\":[],\"listening\":65536}",
        "{\"state\":\"running\",\"holders\":[],\"listening\":\"80\"}",
    };
    auto_told struct told t = {0};

    (void)state;
    start_fake(&t);
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        const struct looked k = told_by(&t, a_look(true, 80, 0), answers[i]);

        assert_int_equal(k.look.call.result, SP_JOB_REFUSED);
        assert_non_null(strstr(k.look.call.error.msg, "makes no sense"));
        assert_int_equal(k.look.found.doing, SP_DOING_UNKNOWN);
        assert_int_equal(k.look.found.holder_count, 0);
        assert_int_equal(k.look.found.listening, 0);
    }
    struct looked k = a_look(true, 0, 0);
    assert_true(sp_job_inspect(&t.job, &k.look));
    say_error(await("process/inspect", sizeof answers / sizeof answers[0] + 1), -32600, "no");
    assert_int_equal(result_of(&k), SP_JOB_REFUSED);
    assert_string_equal(k.look.call.error.msg, "no");
}

static void before_its_start_it_is_too_early(void **state)
{
    auto_told struct told t = {0};
    struct sp_backend_wait w = {.fn = fx_facts};
    struct looked k = a_look(true, 0, 0);

    (void)state;
    sp_backend_ask_facts(fx.backend, &w);
    until(has_facts, NULL);
    start_script(&t, "true");
    (void)await("process/start", 1);
    assert_true(sp_job_inspect(&t.job, &k.look));
    assert_int_equal(k.answers, 0);
    assert_int_equal(result_of(&k), SP_JOB_NOT_YET);
    assert_int_equal(times("process/inspect"), 0);
    say_started();
    until(is_started, &t);
}

static void a_job_that_is_released_hears_no_answer(void **state)
{
    struct told t = {0};
    struct looked k = a_look(true, 0, 0);

    (void)state;
    start_fake(&t);
    assert_true(sp_job_inspect(&t.job, &k.look));
    const struct heard *h = await("process/inspect", 1);
    told_done(&t);
    say_result(h, "{\"state\":\"running\"}");
    pass(20);
    assert_int_equal(k.answers, 0);
}

#define real(f)    cmocka_unit_test_setup_teardown(f, fx_setup, fx_teardown)
#define fake(f)    cmocka_unit_test_setup_teardown(f, fs_setup, fs_teardown)
#define inspect(f) cmocka_unit_test_setup_teardown(f, inspect_setup, fs_teardown)

static const struct CMUnitTest tests[] = {
    real(a_real_server_tells),
    fake(of_one_that_cannot_tell_nothing_is_asked),
    inspect(the_question_has_its_form),
    inspect(every_state_is_understood),
    inspect(holders_and_ports_are_taken_with_care),
    inspect(an_answer_without_sense_is_refused),
    inspect(before_its_start_it_is_too_early),
    inspect(a_job_that_is_released_hears_no_answer),
};

TEST_MAIN(tests)
