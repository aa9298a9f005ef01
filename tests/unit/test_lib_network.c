/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts of a managed network through libsallyport: the question, its answers, the receipt. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "lib_fixture.h"

#define GET "curl -sS --max-time 20 http://a.test/"

/* ---- a server on loopback, behind the name a.test ---- */

static pid_t web;

static void serve(int listener)
{
    static const char answer[] =
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\nyes";

    for (;;) {
        const int fd = accept(listener, NULL, NULL);
        char head[4096];

        if (fd < 0)
            _exit(0);
        if (read(fd, head, sizeof head) > 0)
            (void)!write(fd, answer, sizeof answer - 1);
        (void)close(fd);
    }
}

static int start_web(void **state)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof at;
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char hosts[128];

    (void)state;
    assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(listener, 16), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &n), 0);
    web = fork();
    if (web == 0)
        serve(listener);
    (void)close(listener);
    (void)snprintf(hosts, sizeof hosts, "a.test=127.0.0.1:%u*,a.test:80=127.0.0.1:%u*",
                   ntohs(at.sin_port), ntohs(at.sin_port));
    return setenv("SALLYPORT_TEST_HOSTS", hosts, 1);
}

static int stop_web(void **state)
{
    (void)state;
    (void)kill(web, SIGKILL);
    return waitpid(web, NULL, 0) == web ? 0 : -1;
}

/* ---- the engine, and who answers ---- */

static enum sp_consent consent;
static int questions;
static char question_json[4096], network[4096], config[sizeof test_dir + 16];

static void on_question(void *user, const struct sp_question *q)
{
    (void)user;
    questions++;
    assert_int_equal(q->topic, SP_QUESTION_HOST);
    copy_text(question_json, sizeof question_json, q->json, strlen(q->json));
    assert_int_equal(sp_engine_reply(engine, q->id, consent, NULL), 0);
}

static void on_network(void *user, const struct sp_answer *a)
{
    on_heard(user, a);
    copy_text(network, sizeof network, a->network_json != NULL ? a->network_json : "",
              a->network_json != NULL ? strlen(a->network_json) : 0);
}

static int open_engine(void **state)
{
    struct sp_engine_options o = default_options();

    (void)state;
    (void)snprintf(config, sizeof config, "%s/conf", test_dir);
    FILE *f = fopen(config, "we");
    assert_non_null(f);
    (void)fprintf(f, "[permissions.net]\nextends = \":workspace\"\n"
                     "[permissions.net.network]\nenabled = true\nmanaged = true\n");
    (void)fchmod(fileno(f), 0600);
    (void)fclose(f);
    o.program = getenv("SALLYPORT_TEST_PROGRAM");
    o.config = config;
    o.sandbox = "net";
    o.approve = "on-request";
    o.ask = on_question;
    o.cwd = test_home;
    engine = make_engine(&o);
    questions = 0;
    return 0;
}

static int close_engine(void **state)
{
    (void)state;
    sp_engine_free(engine);
    engine = NULL;
    return unlink(config);
}

static void run(struct heard *h, const char *script)
{
    const char *const argv[] = {"sh", "-c", script, NULL};
    const struct sp_run_options o = {.size = sizeof o, .argv = argv, .timeout_ms = 60000};

    memset(h, 0, sizeof *h);
    assert_ok(sp_engine_run(engine, &o, on_network, h, NULL, e));
    until_heard(h);
}

static void exec_command(struct heard *h, const char *script)
{
    const char *const argv[] = {"sh", "-c", script, NULL};
    const struct sp_exec_options o = {.size = sizeof o, .argv = argv, .yield_ms = 30000};

    memset(h, 0, sizeof *h);
    assert_ok(sp_engine_exec(engine, &o, on_network, h, NULL, e));
    until_heard(h);
}

/* ---- tests ---- */

static void test_yes_reaches_the_host_and_the_receipt_says_so(void **state)
{
    struct heard h;

    (void)state;
    consent = SP_CONSENT_YES;
    run(&h, GET " && " GET);
    assert_int_equal(h.exit_code, 0);
    assert_string_equal(h.out, "yesyes");
    assert_int_equal(questions, 1);
    assert_non_null(strstr(question_json, "\"host\":\"a.test\""));
    assert_non_null(strstr(network, "{\"host\":\"a.test\",\"port\":80,\"connections\":2,"
                                    "\"sent\":0,\"received\":6}"));
    exec_command(&h, GET);
    assert_string_equal(h.output, "yes");
    assert_int_equal(questions, 2); /* once is for one command */
    assert_non_null(strstr(network, "\"connections\":1,"));
    exec_command(&h, "true");
    assert_string_equal(network, "");
}

static void test_yes_for_the_session_is_asked_once(void **state)
{
    struct heard h;

    (void)state;
    consent = SP_CONSENT_FOR_SESSION;
    for (int i = 0; i < 2; i++) {
        run(&h, GET);
        assert_string_equal(h.out, "yes");
        exec_command(&h, GET);
        assert_string_equal(h.output, "yes");
    }
    assert_int_equal(questions, 1);
}

static void test_no_ends_the_command(void **state)
{
    struct heard h;

    (void)state;
    consent = SP_CONSENT_NO;
    run(&h, GET "; sleep 60");
    assert_int_equal(h.outcome, SP_OUTCOME_REFUSED);
    assert_string_equal(h.error, "rejected by user");
    exec_command(&h, GET "; sleep 60");
    assert_int_equal(h.outcome, SP_OUTCOME_FAILED);
    assert_non_null(strstr(h.error, "rejected by user"));
    assert_non_null(strstr(network, "\"denied\":[{\"host\":\"a.test\""));
    assert_int_equal(questions, 2);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(test_yes_reaches_the_host_and_the_receipt_says_so, open_engine,
                                    close_engine),
    cmocka_unit_test_setup_teardown(test_yes_for_the_session_is_asked_once, open_engine,
                                    close_engine),
    cmocka_unit_test_setup_teardown(test_no_ends_the_command, open_engine, close_engine),
};

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, start_web, stop_web);
}
