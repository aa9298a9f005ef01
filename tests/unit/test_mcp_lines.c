/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <sys/stat.h>

#include "mcp/lines.h"
#include "mcp_transport_fixture.h"

#define OLD(method, id) "{\"jsonrpc\":\"2.0\",\"id\":" id ",\"method\":\"" method "\"}\n"
#define NOW             OLD("now", "1")
#define NOW_ANSWER      "{\"id\":1,\"result\":{}}\n"

static struct sp_mcp_lines *server;
static struct sp_mcp_lines_options options;
static unsigned finishes;
static char directory[64];
static char path[96];
static char url[sizeof path + 8];

static void on_finished(void *user)
{
    assert_ptr_equal(user, &finishes);
    finishes++;
    sp_mcp_lines_free(server);
    server = NULL;
}

static void start_server(void)
{
    struct sp_err e = {0};

    if (sp_mcp_lines_new(the_mcp(), &options, &server, &e) < 0)
        fail_msg("%s", e.msg);
}

static int lines_set_up(void **state)
{
    finishes = 0;
    server = NULL;
    (void)snprintf(directory, sizeof directory, "/tmp/sallyport-test-XXXXXX");
    if (mcp_set_up(state) != 0 || mkdtemp(directory) == NULL)
        return -1;
    (void)snprintf(path, sizeof path, "%s/socket", directory);
    (void)snprintf(url, sizeof url, "unix://%s", path);
    options = (struct sp_mcp_lines_options){
        .url = url, .max_connections = 3, .user = &finishes, .finished = on_finished};
    return 0;
}

static int lines_started(void **state)
{
    if (lines_set_up(state) != 0)
        return -1;
    start_server();
    return 0;
}

static int lines_tear_down(void **state)
{
    sp_mcp_lines_free(server);
    const int r = mcp_tear_down(state);
    return rmdir(directory) == 0 ? r : -1; /* fails if something was left behind */
}

static struct client *dial(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};

    memcpy(a.sun_path, path, strlen(path) + 1);
    return connect_to((struct sockaddr *)&a, sizeof a);
}

static void hang_up(struct client *c)
{
    (void)close(c->fd);
    sp_buf_done(&c->in);
    sp_buf_done(&c->out);
    *c = (struct client){.fd = -1};
}

static bool has_line(void)
{
    const struct client *c = fx.watched;

    return c->in.len > c->at && memchr(c->in.data + c->at, '\n', c->in.len - c->at) != NULL;
}

static void gets_line(struct client *c, const char *want)
{
    const size_t n = strlen(want);

    fx.watched = c;
    until(has_line);
    assert_true(c->in.len - c->at >= n);
    assert_memory_equal(c->in.data + c->at, want, n);
    c->at += n;
}

/* ---- the socket ---- */

static void test_lines_are_answered(void **state)
{
    struct client *c = dial();
    char want[64];

    (void)state;
    put_text(c, NOW "\r\n  \n{\n\"\xff\"\n" OLD("now", "2"));
    gets_line(c, NOW_ANSWER);
    gets_line(c, "{\"error\":\"broken\"}\n");
    gets_line(c, "{\"error\":\"broken\"}\n");
    gets_line(c, "{\"id\":2,\"result\":{}}\n");
    (void)snprintf(want, sizeof want, "uid %u", geteuid());
    assert_string_equal(mcp.callers[0], want);
    assert_string_equal(mcp.callers[1], "");
    assert_int_equal(mcp.peers, 1);
}

static void test_the_socket_is_ours_alone(void **state)
{
    struct stat st;

    (void)state;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_memory_equal(sp_mcp_lines_url(server), "unix:///", 8);
}

/* Only root can try: it becomes somebody else on the way, who is let through to the door. */
static void test_another_user_is_refused(void **state)
{
    struct client *c;

    (void)state;
    if (geteuid() != 0) {
        print_message("# only root can be another user\n");
        return;
    }
    assert_int_equal(chmod(directory, 0755), 0);
    assert_int_equal(chmod(path, 0666), 0);
    assert_int_equal(seteuid(65534), 0);
    c = dial();
    assert_int_equal(seteuid(0), 0);
    put_text(c, NOW);
    until(has_ended);
    assert_int_equal(c->in.len, 0);
    assert_int_equal(mcp.takes, 0);
}

/* Nor root, where the server is not root's. */
static void test_root_is_refused_by_a_user(void **state)
{
    struct client *c;

    (void)state;
    if (geteuid() != 0) {
        print_message("# only root can be root\n");
        return;
    }
    c = dial(); /* as root */
    put_text(c, NOW);
    assert_int_equal(seteuid(65534), 0); /* when it is accepted, the server is somebody else's */
    until(has_ended);
    assert_int_equal(seteuid(0), 0);
    assert_int_equal(c->in.len, 0);
    assert_int_equal(mcp.takes, 0);
}

static void test_there_is_no_web_here(void **state)
{
    struct client *c = dial();

    (void)state;
    put_text(c, UPGRADE);
    until(has_ended);
    assert_memory_equal(c->in.data, "HTTP/1.1 400 ", 13);
    assert_int_equal(mcp.peers, 0);
}

static bool has_two(void)
{
    return mcp.peers == 2;
}

static bool has_none(void)
{
    return mcp.peers == 0;
}

static void test_each_connection_is_a_peer_of_one_caller(void **state)
{
    struct client *a = dial();
    struct client *b = dial();

    (void)state;
    put_text(a, OLD("later", "1"));
    put_text(b, NOW);
    gets_line(b, NOW_ANSWER);
    until(has_two);
    assert_int_equal(mcp.held, 2);
    assert_string_equal(mcp.callers[1], "");
    hang_up(a);
    hang_up(b);
    until(has_none);
    assert_int_equal(mcp.held, 0);
    assert_int_equal(finishes, 0);
}

static void test_more_connections_than_allowed_are_closed(void **state)
{
    struct client *all[4];

    (void)state;
    for (int i = 0; i < 4; i++) {
        all[i] = dial();
        put_text(all[i], NOW);
        if (i < 3)
            gets_line(all[i], NOW_ANSWER);
    }
    until(has_ended);
    assert_int_equal(all[3]->in.len, 0);
    assert_int_equal(mcp.peers, 3);
}

static void test_no_caller_no_connection(void **state)
{
    struct client *c;

    (void)state;
    mcp.has_no_callers = true;
    c = dial();
    put_text(c, NOW);
    until(has_ended);
    mcp.has_no_callers = false;
    mcp.has_no_peers = true;
    c = dial();
    put_text(c, NOW);
    until(has_ended);
    assert_int_equal(mcp.held, 0);
}

static void test_a_line_has_a_bound(void **state)
{
    struct client *c = dial();
    char *blanks = filled(16 * MIB, ' ');

    (void)state;
    memcpy(blanks, NOW, strlen(NOW) - 1);
    put(c, blanks, 16 * MIB);
    put_text(c, "\n");
    gets_line(c, NOW_ANSWER);
    for (unsigned i = 0; i < 3; i++) { /* it is skipped to its end, however far that is */
        put(c, blanks, 16 * MIB);
        if (i != 0)
            put(c, blanks, 16 * MIB);
        put_text(c, " \n" NOW);
        gets_line(c, "{\"error\":\"broken\"}\n");
        gets_line(c, NOW_ANSWER);
    }
    assert_int_equal(mcp.takes, 7);
    free(blanks);
}

/* Nothing was taken for a while, after much was. */
static bool is_stuck(void)
{
    static unsigned last;
    static uint64_t since;

    if (mcp.takes != last || mcp.takes < 1000) {
        last = mcp.takes;
        since = test_now_ms();
    }
    return test_now_ms() - since > 100;
}

static unsigned answered;

static bool is_all_answered(void)
{
    struct client *c = fx.watched;
    const char *lf;

    while (c->in.len > c->at &&
           (lf = memchr(c->in.data + c->at, '\n', c->in.len - c->at)) != NULL) {
        c->at = (size_t)(lf - c->in.data) + 1;
        answered++;
    }
    return answered == 200000;
}

static void test_whoever_does_not_read_is_not_heard(void **state)
{
    struct client *c = dial();

    (void)state;
    answered = 0;
    c->is_reading = false;
    for (unsigned i = 0; i < 200000; i++)
        put_text(c, NOW);
    until(is_stuck);
    assert_true(mcp.takes < 100000);
    c->is_reading = true;
    until(is_all_answered);
    assert_int_equal(mcp.takes, 200000);
}

static void test_progress_is_left_out_when_nobody_reads(void **state)
{
    struct client *c = dial();
    char *big = filled(MIB, 'x');

    (void)state;
    c->is_reading = false;
    put_text(c, OLD("later", "1"));
    until(is_open);
    assert_false(mcp.out->is_full(mcp.out));
    mcp.out->send(mcp.out, (struct sp_str){big, MIB}, 0);
    assert_true(mcp.out->is_full(mcp.out));
    free(big);
}

static void test_the_end_of_the_server_is_told(void **state)
{
    struct client *c = dial();

    (void)state;
    put_text(c, OLD("listen", "1"));
    until(is_open);
    sp_mcp_lines_free(server);
    server = NULL;
    gets_line(c, "{\"farewell\":true}\n");
    until(has_ended);
    assert_int_not_equal(access(path, F_OK), 0);
}

static void test_paths(void **state)
{
    struct sp_err e = {0};

    (void)state;
    options.url = "unix://socket";
    assert_int_equal(sp_mcp_lines_new(the_mcp(), &options, &server, &e), -SP_E_INVALID);
    assert_non_null(strstr(e.msg, "unix://socket"));
    options.url = "unix:///nowhere/at/all";
    assert_int_equal(sp_mcp_lines_new(the_mcp(), &options, &server, &e), -SP_E_SYSTEM);
    sp_mcp_lines_free(NULL);
}

/* ---- stdio ---- */

/* The pipes that are our stdin and stdout while a test runs. */
static struct {
    int in, out; /* our ends */
    int old_in, old_out;
} pipes;

static void become_a_pipe(void)
{
    int in[2];
    int out[2];

    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    (void)fflush(stdout);
    pipes.old_in = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
    pipes.old_out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    assert_int_equal(dup2(in[0], STDIN_FILENO), STDIN_FILENO);
    assert_int_equal(dup2(out[1], STDOUT_FILENO), STDOUT_FILENO);
    (void)close(in[0]);
    (void)close(out[1]);
    pipes.in = in[1];
    pipes.out = out[0];
}

static void be_ourselves(void)
{
    (void)dup2(pipes.old_in, STDIN_FILENO);
    (void)dup2(pipes.old_out, STDOUT_FILENO);
    (void)close(pipes.old_in);
    (void)close(pipes.old_out);
    if (pipes.in >= 0)
        (void)close(pipes.in);
    (void)close(pipes.out);
}

static bool is_finished(void)
{
    return finishes != 0;
}

static void test_stdio_is_one_peer_until_its_end(void **state)
{
    char text[256] = "";

    (void)state;
    options.url = NULL;
    become_a_pipe();
    start_server();
    const bool is_named = strcmp(sp_mcp_lines_url(server), "stdio") == 0;
    const bool is_sent = write(pipes.in, NOW, strlen(NOW)) == (ssize_t)strlen(NOW);
    (void)close(pipes.in);
    pipes.in = -1;
    const bool is_over = comes_true(is_finished, 20000);
    const ssize_t n = read(pipes.out, text, sizeof text - 1);
    be_ourselves();
    assert_true(is_named && is_sent && is_over);
    assert_int_equal(n, strlen(NOW_ANSWER));
    assert_string_equal(text, NOW_ANSWER);
    assert_string_equal(mcp.callers[0], "stdio");
    assert_int_equal(mcp.peers, 0);
}

static void test_stdio_without_a_caller_is_refused(void **state)
{
    struct sp_err e = {0};

    (void)state;
    options.url = NULL;
    mcp.has_no_callers = true;
    assert_int_equal(sp_mcp_lines_new(the_mcp(), &options, &server, &e), -SP_E_LIMIT);
}

#define lines_test(f) cmocka_unit_test_setup_teardown(f, lines_started, lines_tear_down)
#define late_test(f)  cmocka_unit_test_setup_teardown(f, lines_set_up, lines_tear_down)

static const struct CMUnitTest tests[] = {
    lines_test(test_lines_are_answered),
    lines_test(test_the_socket_is_ours_alone),
    lines_test(test_another_user_is_refused),
    lines_test(test_root_is_refused_by_a_user),
    lines_test(test_there_is_no_web_here),
    lines_test(test_each_connection_is_a_peer_of_one_caller),
    lines_test(test_more_connections_than_allowed_are_closed),
    lines_test(test_no_caller_no_connection),
    lines_test(test_a_line_has_a_bound),
    lines_test(test_whoever_does_not_read_is_not_heard),
    lines_test(test_progress_is_left_out_when_nobody_reads),
    lines_test(test_the_end_of_the_server_is_told),
    late_test(test_paths),
    late_test(test_stdio_is_one_peer_until_its_end),
    late_test(test_stdio_without_a_caller_is_refused),
};

TEST_MAIN(tests)
