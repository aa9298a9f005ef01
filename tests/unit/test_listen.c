/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "net_fixture.h"
#include "server/net/listen.h"

static char directory[64];
static char unix_path[96];
static char unix_url[112];

static int make_directory(void **state)
{
    (void)snprintf(directory, sizeof directory, "/tmp/sallyport-test-XXXXXX");
    if (set_up(state) != 0 || mkdtemp(directory) == NULL)
        return -1;
    (void)snprintf(unix_path, sizeof unix_path, "%s/socket", directory);
    (void)snprintf(unix_url, sizeof unix_url, "unix://%s", unix_path);
    return 0;
}

static int set_up_unix(void **state)
{
    if (make_directory(state) != 0)
        return -1;
    listen_at(unix_url);
    return 0;
}

static int tear_down_unix(void **state)
{
    (void)tear_down(state);
    (void)unlink(unix_path);
    return rmdir(directory); /* fails if something was left behind */
}

/* ---- URLs ---- */

static void is_url(const char *url, enum sp_listen_kind kind, bool is_loopback)
{
    struct sp_listen_url u;
    struct sp_err e = {0};

    if (sp_listen_parse(url, &u, &e) < 0)
        fail_msg("%s", e.msg);
    assert_int_equal(u.kind, kind);
    assert_int_equal(u.is_loopback, is_loopback);
}

static void is_no_url(const char *url, const char *want)
{
    struct sp_listen_url u;
    struct sp_err e = {0};

    assert_int_equal(sp_listen_parse(url, &u, &e), -SP_E_INVALID);
    assert_string_equal(e.msg, want);
}

static void test_addresses_are_numbers(void **state)
{
    (void)state;
    is_url("stdio", SP_LISTEN_STDIO, true);
    is_url("stdio://", SP_LISTEN_STDIO, true);
    is_url("ws://127.0.0.1:8080", SP_LISTEN_WS, true);
    is_url("ws://127.9.9.9:0", SP_LISTEN_WS, true);
    is_url("ws://localhost:1", SP_LISTEN_WS, true);
    is_url("8799", SP_LISTEN_WS, true);
    is_url("ws://0.0.0.0:0", SP_LISTEN_WS, false);
    is_url("ws://[::1]:0", SP_LISTEN_WS, true);
    is_url("ws://[::]:65535", SP_LISTEN_WS, false);
    is_url("ws://[fe80::1%2]:1", SP_LISTEN_WS, false);
    is_url("unix:///run/x", SP_LISTEN_UNIX, true);
}

static void test_other_urls_are_refused_in_the_known_words(void **state)
{
    static const char *const foreign[] = {
        "",      "stdio:",   "WS://127.0.0.1:1", "wss://127.0.0.1:1",
        "unix:", "unix://x", "127.0.0.1:1",      "stdio:///"};
    static const char *const wrong[] = {"ws://",
                                        "ws://127.0.0.1",
                                        "ws://127.0.0.1:",
                                        "ws://127.0.0.1:1/",
                                        "ws://127.0.0.1:65536",
                                        "ws://127.0.0.1:x",
                                        "ws://127.0.0.01:1",
                                        "ws://::1:1",
                                        "ws://[::1]",
                                        "ws://[::1]1",
                                        "ws://[::1%]:1",
                                        "ws://[::1%x]:1",
                                        "ws://[]:1",
                                        "ws:// 127.0.0.1:1",
                                        "ws://127.0.0.1:+1"};
    char want[256];

    (void)state;
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        (void)snprintf(
            want, sizeof want,
            "unsupported --listen URL `%s`; expected `ws://IP:PORT`, `unix:///PATH` or `stdio`",
            foreign[i]);
        is_no_url(foreign[i], want);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        (void)snprintf(want, sizeof want,
                       "invalid websocket --listen URL `%s`; expected `ws://IP:PORT`", wrong[i]);
        is_no_url(wrong[i], want);
    }
    is_no_url("unix:///", "invalid unix --listen URL `unix:///`; expected `unix:///path`");
}

static void test_unix_path_must_fit(void **state)
{
    char url[300] = "unix:///";
    struct sp_listen_url u;
    struct sp_err e;

    (void)state;
    memset(url + 8, 'x', 106);
    assert_int_equal(sp_listen_parse(url, &u, &e), 0);
    url[8 + 106] = 'x';
    assert_int_equal(sp_listen_parse(url, &u, &e), -SP_E_INVALID);
}

/* ---- the HTTP surface, over a real socket ---- */

static void answers(const char *request, const char *status_line, const char *end)
{
    struct client *c = connect_client();

    put_text(c, request);
    until(has_ended);
    assert_true(sp_buf_add(&c->in, "", 1));
    if (strncmp(c->in.data, status_line, strlen(status_line)) != 0)
        fail_msg("%s", c->in.data);
    assert_non_null(strstr(c->in.data, "\r\nconnection: close\r\n"));
    assert_string_equal(strstr(c->in.data, "\r\n\r\n") + 4, end);
    (void)close(c->fd);
    sp_buf_done(&c->in);
    sp_buf_done(&c->out);
    *c = (struct client){.fd = -1};
}

static void test_requests_are_answered_and_the_connection_ends(void **state)
{
    struct sp_listener_stats s;

    (void)state;
    answers("GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 200 OK\r\n", "");
    answers("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", "HTTP/1.1 200 OK\r\n",
            "sallyport_up 1\n");
    answers("GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 404 Not Found\r\n", "");
    answers("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 400 Bad Request\r\n",
            "Connection header did not include 'upgrade'");
    answers("GET / HTTP/1.1\r\nOrigin: x\r\n\r\n", "HTTP/1.1 403 Forbidden\r\n", "");
    answers("GET / HTTP/1.1\r\n folded\r\n", "HTTP/1.1 400 Bad Request\r\n", "");
    answers("\x16\x03\x01", "HTTP/1.1 400 Bad Request\r\n", "");
    sp_listener_stats(fx.listener, &s);
    assert_int_equal(s.accepted, 7);
    assert_int_equal(s.active, 0);
    assert_true(s.bytes_in > 100 && s.bytes_out > 100 && s.queued_bytes == 0);
}

/* The client is still sending: it must be able to read why that is in vain. */
static void test_answer_reaches_a_client_that_sends_too_much(void **state)
{
    static char request[2 << 20];

    (void)state;
    memset(request, 'a', sizeof request - 1);
    (void)mempcpy(request, "GET / HTTP/1.1\r\nX: ", 19);
    answers(request, "HTTP/1.1 431 ", "");
}

static void test_connections_above_the_limit_hear_503(void **state)
{
    struct client *last;

    (void)state;
    sp_listener_free(fx.listener);
    fx.o.max_connections = 1;
    listen_at("ws://127.0.0.1:0");
    (void)connect_websocket();
    last = connect_client();
    put_text(last, UPGRADE);
    until(has_ended);
    assert_memory_equal(last->in.data, "HTTP/1.1 503 Service Unavailable\r\n", 34);
    assert_int_equal(fx.closes, 0);
}

static void test_layer_above_may_refuse(void **state)
{
    (void)state;
    fx.refuses = true;
    answers(UPGRADE, "HTTP/1.1 503 Service Unavailable\r\n", "too many connections");
}

static void test_ipv6_is_spoken(void **state)
{
    struct sp_listen_url u;
    struct sp_err e;

    (void)state;
    sp_listener_free(fx.listener);
    fx.listener = NULL;
    assert_int_equal(sp_listen_parse("ws://[::1]:0", &u, &e), 0);
    if (sp_listener_new(fx.loop, &u, &fx.o, &fx.listener, &e) < 0) {
        assert_int_equal(e.sys, EADDRNOTAVAIL); /* a host without IPv6 */
        skip();
    }
    assert_memory_equal(sp_listener_url(fx.listener), "ws://[::1]:", 11);
    assert_int_equal(sp_listen_parse(sp_listener_url(fx.listener), &u, &e), 0);
    struct client *c = connect_to(&u.addr.any, sizeof u.addr.in6);
    put_text(c, UPGRADE);
    until(has_switched);
    assert_memory_equal(sp_link_peer(fx.link), "[::1]:", 6);
}

static void test_address_in_use_is_an_error(void **state)
{
    struct sp_listen_url u;
    struct sp_listener *second = NULL;
    struct sp_err e = {0};

    (void)state;
    assert_int_equal(sp_listen_parse(sp_listener_url(fx.listener), &u, &e), 0);
    assert_int_equal(sp_listener_new(fx.loop, &u, &fx.o, &second, &e), -SP_E_SYSTEM);
    assert_int_equal(e.sys, EADDRINUSE);
    assert_null(second);
}

/* Out of descriptors: the connection waits, the loop sleeps, and later it is served. */
static void test_missing_descriptors_do_not_spin(void **state)
{
    struct rlimit was;
    struct client *c = connect_client();

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    const int next = dup(0);
    (void)close(next);
    const struct rlimit none = {.rlim_cur = (rlim_t)next, .rlim_max = was.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    put_text(c, UPGRADE);
    pass(30);
    assert_int_equal(c->in.len, 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    until(has_switched);
}

/* ---- unix sockets ---- */

static void test_unix_socket_is_private_and_goes_with_us(void **state)
{
    struct stat st;

    (void)state;
    assert_string_equal(sp_listener_url(fx.listener), unix_url);
    assert_int_equal(lstat(unix_path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    sp_listener_free(fx.listener);
    fx.listener = NULL;
    assert_int_equal(lstat(unix_path, &st), -1);
}

static void test_socket_of_a_live_server_is_not_taken(void **state)
{
    struct sp_listen_url u;
    struct sp_listener *second = NULL;
    struct sp_err e = {0};

    (void)state;
    assert_int_equal(sp_listen_parse(unix_url, &u, &e), 0);
    assert_int_equal(sp_listener_new(fx.loop, &u, &fx.o, &second, &e), -SP_E_SYSTEM);
    assert_non_null(strstr(e.msg, "is another server running?"));
}

static void test_stale_socket_is_replaced_and_a_file_is_not(void **state)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    struct sp_listen_url u;
    struct sp_err e = {0};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)state;
    (void)snprintf(un.sun_path, sizeof un.sun_path, "%s", unix_path);
    assert_int_equal(bind(fd, (const struct sockaddr *)&un, sizeof un), 0);
    (void)close(fd);
    listen_at(unix_url);
    (void)connect_client();
    sp_listener_free(fx.listener);
    fx.listener = NULL;

    fd = open(unix_path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(sp_listen_parse(unix_url, &u, &e), 0);
    assert_int_equal(sp_listener_new(fx.loop, &u, &fx.o, &fx.listener, &e), -SP_E_INVALID);
    assert_int_equal(access(unix_path, F_OK), 0);
}

static void test_successor_keeps_its_socket(void **state)
{
    struct sp_listener *first;

    (void)state;
    first = fx.listener;
    assert_int_equal(unlink(unix_path), 0);
    listen_at(unix_url);
    sp_listener_free(first);
    assert_int_equal(access(unix_path, F_OK), 0);
}

static bool has_reply(void)
{
    const struct client *c = fx.watched;

    return c->in.len != 0 && c->in.data[c->in.len - 1] == '\n';
}

static void test_unix_socket_speaks_lines(void **state)
{
    struct client *c = connect_client();

    (void)state;
    fx.echoes = true;
    put_text(c, "{\"a\":1}\r\n\n  \n");
    until(has_reply);
    assert_bytes(c->in.data, c->in.len, "{\"a\":1}\n");
    assert_int_equal(sp_link_kind(fx.link), SP_LINK_LINES);
    assert_string_equal(sp_link_peer(fx.link), "unix");
    put_text(c, "no newline");
    until_messages(1);
    (void)comes_true(never, 20);
    (void)shutdown(c->fd, SHUT_WR);
    until(has_ended);
    assert_heard("{\"a\":1}\nno newline\n");
    assert_bytes(c->in.data, c->in.len, "{\"a\":1}\nno newline\n"); /* it can still read */
}

static void test_unix_socket_speaks_websocket_too(void **state)
{
    struct client *c = connect_websocket();

    (void)state;
    fx.echoes = true;
    PUT_FRAME(c, 0x81, "hello");
    expect_text(c, "hello");
}

static void test_unix_socket_answers_requests_for_any_host(void **state)
{
    (void)state;
    answers("GET /readyz HTTP/1.1\r\nHost: whatever\r\n\r\n", "HTTP/1.1 200 OK\r\n", "");
}

static pid_t stranger;
static int stranger_status;

static bool has_stranger_left(void)
{
    return waitpid(stranger, &stranger_status, WNOHANG) == stranger;
}

/* Even where the path's mode lets it in. */
static void test_other_users_are_turned_away(void **state)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};

    (void)state;
    if (geteuid() != 0)
        skip();
    (void)snprintf(un.sun_path, sizeof un.sun_path, "%s", unix_path);
    assert_int_equal(chmod(directory, 0711), 0);
    assert_int_equal(chmod(unix_path, 0666), 0);
    stranger = fork();
    if (stranger == 0) {
        char byte;
        const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

        if (setuid(65534) < 0 || connect(fd, (const struct sockaddr *)&un, sizeof un) < 0)
            _exit(1);
        _exit(read(fd, &byte, 1) == 0 ? 0 : 2);
    }
    until(has_stranger_left);
    assert_int_equal(stranger_status, 0);
    assert_null(fx.link);
}

static void test_line_that_is_not_text_ends_the_link(void **state)
{
    struct client *c = connect_client();

    (void)state;
    put_text(c, "{}\n\xFF\n{}\n");
    until(has_ended);
    assert_heard("{}\n");
    assert_string_equal(fx.why, "line that is not UTF-8");
}

/* ---- stdio ---- */

static struct sp_link_host host;
static unsigned gone;

static bool pair_opened(void *user, struct sp_link *l)
{
    (void)user;
    fx.link = l;
    sp_link_serve(l, &fx_ops, &fx.link);
    return true;
}

static void pair_gone(void *user)
{
    (void)user;
    gone++;
}

static bool is_gone(void)
{
    return gone != 0;
}

static void open_pair(int in, int out)
{
    static char scratch[SP_INTAKE_SCRATCH + 1];
    struct sp_err e;

    gone = 0;
    host = (struct sp_link_host){
        .loop = fx.loop, .scratch = scratch, .opened = pair_opened, .gone = pair_gone};
    assert_int_equal(sp_link_new_pair(&host, in, out, "stdio", &e), 0);
}

static void test_pipes_carry_lines_and_keep_their_flags(void **state)
{
    int in[2];
    int out[2];
    char text[64];

    (void)state;
    fx.echoes = true;
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    open_pair(in[0], out[1]);
    assert_true((fcntl(out[1], F_GETFL) & O_NONBLOCK) != 0);
    assert_int_equal(write(in[1], "one\ntwo", 7), 7);
    until_messages(1);
    (void)close(in[1]);
    until(is_gone);
    assert_heard("one\ntwo\n");
    assert_int_equal(read(out[0], text, sizeof text), 8);
    assert_memory_equal(text, "one\ntwo\n", 8);
    assert_int_equal(fcntl(in[0], F_GETFL) & O_NONBLOCK, 0);
    assert_int_equal(fcntl(out[1], F_GETFL) & O_NONBLOCK, 0);
    (void)close(in[0]);
    (void)close(out[0]);
    (void)close(out[1]);
}

/* The reader of our output sleeps: the queue waits for it, and nothing is lost. */
static void test_full_pipe_is_waited_for(void **state)
{
    static char block[100000];
    int in[2];
    int out[2];
    size_t got = 0;

    (void)state;
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    open_pair(in[0], out[1]);
    memset(block, 'x', sizeof block);
    for (int i = 0; i < 5; i++)
        say(fx.link, block, sizeof block);
    pass(10);
    assert_true(sp_link_is_full(fx.link));
    while (got < 5 * (sizeof block + 1)) {
        const ssize_t n = read(out[0], block, sizeof block);

        assert_true(n > 0);
        got += (size_t)n;
        pass(0);
    }
    assert_int_equal(fx.drains, 1);
    (void)close(in[1]);
    until(is_gone);
    assert_int_equal(got, 5 * (sizeof block + 1));
    (void)close(in[0]);
    (void)close(out[0]);
    (void)close(out[1]);
}

static void test_the_end_of_a_paused_pipe_is_noticed(void **state)
{
    int in[2];
    const int out = open("/dev/null", O_WRONLY | O_CLOEXEC);

    (void)state;
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    open_pair(in[0], out);
    sp_link_pause(fx.link, true);
    assert_int_equal(write(in[1], "a\nb\n", 4), 4);
    (void)close(in[1]); /* the end of the connection, whatever is still to be read */
    until(is_gone);
    assert_int_equal(fx.messages, 0);
    (void)close(in[0]);
    (void)close(out);
}

static void test_plain_file_is_read_in_turns(void **state)
{
    char path[] = "/tmp/sallyport-test-XXXXXX";
    const int fd = mkstemp(path);
    const int out = open("/dev/null", O_WRONLY | O_CLOEXEC);

    (void)state;
    (void)unlink(path);
    fx.keeps_quiet = true;
    for (int i = 0; i < 20000; i++)
        assert_int_equal(write(fd, "{\"line\":1}\n", 11), 11);
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    open_pair(fd, out);
    until(is_gone);
    assert_int_equal(fx.messages, 20000);
    assert_string_equal(fx.why, "closed by the peer");
    (void)close(fd);
    (void)close(out);
}

static void test_empty_input_ends_at_once(void **state)
{
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    (void)state;
    open_pair(null, null);
    until(is_gone);
    assert_int_equal(fx.closes, 1);
    (void)close(null);
}

static void test_closed_output_ends_the_link(void **state)
{
    int in[2];
    int out[2];

    (void)state;
    (void)signal(SIGPIPE, SIG_IGN);
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    open_pair(in[0], out[1]);
    (void)close(out[0]);
    say(fx.link, "anybody?", 8);
    until(is_gone);
    assert_string_equal(fx.why, "the peer is gone");
    (void)close(in[0]);
    (void)close(in[1]);
    (void)close(out[1]);
}

#define PLAIN(test)   cmocka_unit_test_setup_teardown(test, set_up, tear_down)
#define WS(test)      cmocka_unit_test_setup_teardown(test, set_up_ws, tear_down)
#define UNIX(test)    cmocka_unit_test_setup_teardown(test, set_up_unix, tear_down_unix)
#define NO_UNIX(test) cmocka_unit_test_setup_teardown(test, make_directory, tear_down_unix)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_addresses_are_numbers),
        cmocka_unit_test(test_other_urls_are_refused_in_the_known_words),
        cmocka_unit_test(test_unix_path_must_fit),
        WS(test_requests_are_answered_and_the_connection_ends),
        WS(test_answer_reaches_a_client_that_sends_too_much),
        WS(test_connections_above_the_limit_hear_503),
        WS(test_layer_above_may_refuse),
        WS(test_ipv6_is_spoken),
        WS(test_address_in_use_is_an_error),
        WS(test_missing_descriptors_do_not_spin),
        UNIX(test_unix_socket_is_private_and_goes_with_us),
        UNIX(test_socket_of_a_live_server_is_not_taken),
        NO_UNIX(test_stale_socket_is_replaced_and_a_file_is_not),
        UNIX(test_successor_keeps_its_socket),
        UNIX(test_unix_socket_speaks_lines),
        UNIX(test_unix_socket_speaks_websocket_too),
        UNIX(test_unix_socket_answers_requests_for_any_host),
        UNIX(test_other_users_are_turned_away),
        UNIX(test_line_that_is_not_text_ends_the_link),
        PLAIN(test_pipes_carry_lines_and_keep_their_flags),
        PLAIN(test_full_pipe_is_waited_for),
        PLAIN(test_the_end_of_a_paused_pipe_is_noticed),
        PLAIN(test_plain_file_is_read_in_turns),
        PLAIN(test_empty_input_ends_at_once),
        PLAIN(test_closed_output_ends_the_link),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
