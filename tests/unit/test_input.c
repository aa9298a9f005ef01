/* SPDX-License-Identifier: Apache-2.0 */
/* The input queue, on real pipes and terminals. */
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <termios.h>

#include "core/input.h"
#include "memory_fixture.h"
#include "os/pty.h"
#include "process_fixture.h"

static struct sp_loop *loop;
static struct sp_input input;
static int reader; /* the process's end; -1: closed */
static int fds_before;
static unsigned room_calls;
static struct sp_timer turn_timer;

static int short_writes; /* so many answer ENOMEM */
static int write_calls;

ssize_t __real_write(int fd, const void *bytes, size_t len);
ssize_t __wrap_write(int fd, const void *bytes, size_t len);
ssize_t __wrap_write(int fd, const void *bytes, size_t len)
{
    if (fd == input.fd)
        write_calls++;
    if (fd != input.fd || short_writes == 0)
        return __real_write(fd, bytes, len);
    short_writes--;
    errno = ENOMEM;
    return -1;
}

static bool is_epoll_short; /* each EPOLL_CTL_ADD answers ENOMEM */

int __real_epoll_ctl(int epoll, int op, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epoll, int op, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epoll, int op, int fd, struct epoll_event *event)
{
    if (op != EPOLL_CTL_ADD || !is_epoll_short)
        return __real_epoll_ctl(epoll, op, fd, event);
    errno = ENOMEM;
    return -1;
}

static void has_room(struct sp_input *in)
{
    assert_ptr_equal(in, &input);
    room_calls++;
}

static int open_pipe_input(void **state)
{
    int fd[2];

    (void)state;
    fds_before = open_fds();
    (void)signal(SIGPIPE, SIG_IGN); /* as the server does */
    if (sp_loop_new(&loop, NULL) != 0 || pipe2(fd, O_CLOEXEC | O_NONBLOCK) != 0)
        return -1;
    reader = fd[0];
    room_calls = 0;
    turn_timer = (struct sp_timer){0};
    sp_input_init(&input, loop, has_room);
    input.fd = fd[1];
    input.state = SP_INPUT_OPEN;
    return 0;
}

static void close_reader(void)
{
    if (reader >= 0)
        (void)close(reader);
    reader = -1;
}

static int done(void **state)
{
    (void)state;
    sp_input_done(&input);
    sp_loop_free(loop);
    close_reader();
    return open_fds() == fds_before ? 0 : -1;
}

static void on_turn(struct sp_timer *t)
{
    (void)t;
    sp_loop_stop(loop);
}

/* What is ready now is done. */
static void turn(void)
{
    assert_true(sp_loop_timer(loop, &turn_timer, sp_loop_now(loop), on_turn));
    assert_int_equal(sp_loop_run(loop, NULL), 0);
}

static enum sp_input_result put(const char *id, const char *bytes)
{
    return sp_input_write(&input, sp_str_of(id), sp_str_of(bytes));
}

static unsigned next_id;

static enum sp_input_result put_bytes(const char *bytes, size_t n)
{
    char id[32];

    (void)snprintf(id, sizeof id, "n%u", next_id++);
    return sp_input_write(&input, sp_str_of(id), (struct sp_str){bytes, n});
}

/* Everything that comes, the loop running in between, up to `want` bytes or the end. */
static size_t take(char *text, size_t want, bool *ret_ended)
{
    const uint64_t until = test_now_ms() + DEADLINE_MS;
    size_t len = 0;

    *ret_ended = false;
    while (len < want && !*ret_ended) {
        const ssize_t n = read(reader, text + len, want - len);

        if (n > 0)
            len += (size_t)n;
        *ret_ended = n == 0;
        if (n < 0)
            assert_int_equal(errno, EAGAIN);
        turn();
        assert_true(test_now_ms() < until);
    }
    return len;
}

static void test_bytes_are_written_at_once_and_in_order(void **state)
{
    char text[64];

    (void)state;
    assert_int_equal(put("1", "one "), SP_INPUT_ACCEPTED);
    assert_int_equal(put("2", ""), SP_INPUT_ACCEPTED);
    assert_int_equal(put("3", "three"), SP_INPUT_ACCEPTED);
    assert_int_equal(read(reader, text, sizeof text), 9);
    assert_memory_equal(text, "one three", 9);
}

static size_t fill_pipe(void)
{
    static char block[4096];
    size_t total = 0;

    while (input.chunks == 0) {
        assert_int_equal(put_bytes(block, sizeof block), SP_INPUT_ACCEPTED);
        total += sizeof block;
    }
    return total;
}

static void test_the_queue_holds_128_chunks(void **state)
{
    const size_t before = fill_pipe(); /* the last one is queued, whole or in part */
    unsigned queued = 1;

    (void)state;
    for (; queued < SP_INPUT_CHUNKS; queued++)
        assert_int_equal(put_bytes("x", 1), SP_INPUT_ACCEPTED);
    assert_int_equal(input.chunks, 128);
    assert_int_equal(put("late", "y"), SP_INPUT_FULL);
    assert_false(sp_input_knows(&input, SP_STR("late"))); /* not accepted: may come again */
    assert_int_equal(room_calls, 0);

    char *text = malloc(before + 200);
    bool has_ended;
    assert_non_null(text);
    assert_int_equal(take(text, before + 127, &has_ended), before + 127);
    assert_true(room_calls > 0);
    assert_int_equal(input.chunks, 0);
    assert_int_equal(put("late", "y"), SP_INPUT_ACCEPTED);
    assert_int_equal(take(text, 1, &has_ended), 1);
    assert_int_equal(text[0], 'y');
    free(text);
}

static void test_the_queue_holds_8_mib(void **state)
{
    char *big = calloc(1, SP_INPUT_BYTES);

    (void)state;
    assert_non_null(big);
    (void)fill_pipe();
    const size_t left = SP_INPUT_BYTES - input.bytes;
    assert_int_equal(put_bytes(big, left + 1), SP_INPUT_FULL);
    assert_int_equal(put_bytes(big, left), SP_INPUT_ACCEPTED);
    assert_int_equal(input.bytes, SP_INPUT_BYTES);
    assert_int_equal(put_bytes("x", 1), SP_INPUT_FULL);
    free(big);
}

static void test_one_chunk_of_any_size_fits_into_an_empty_queue(void **state)
{
    const size_t size = 3 * (size_t)SP_INPUT_BYTES + 17;
    char *big = malloc(size);
    char *text = malloc(size + 4);
    uint64_t seed = 3;
    bool has_ended;

    (void)state;
    assert_non_null(big);
    assert_non_null(text);
    for (size_t i = 0; i < size; i += 4) {
        const uint32_t word = test_random(&seed);

        memcpy(big + i, &word, size - i < 4 ? size - i : 4);
    }
    assert_int_equal(put_bytes(big, size), SP_INPUT_ACCEPTED);
    assert_int_equal(input.chunks, 1);
    assert_int_equal(put_bytes("x", 1), SP_INPUT_FULL);
    assert_int_equal(take(text, size, &has_ended), size);
    assert_memory_equal(text, big, size);
    turn();
    assert_int_equal(put_bytes("tail", 4), SP_INPUT_ACCEPTED);
    assert_int_equal(take(text, 4, &has_ended), 4);
    assert_memory_equal(text, "tail", 4);
    free(big);
    free(text);
}

static void test_queued_bytes_keep_their_order(void **state)
{
    char want[SP_INPUT_CHUNKS * 8];
    char text[sizeof want];
    size_t want_len = 0;
    size_t before = fill_pipe();
    bool has_ended;

    (void)state;
    for (int i = 0; i < SP_INPUT_CHUNKS - 1; i++) {
        const int n = snprintf(want + want_len, sizeof want - want_len, "%d,", i);

        assert_int_equal(put_bytes(want + want_len, (size_t)n), SP_INPUT_ACCEPTED);
        want_len += (size_t)n;
    }
    char *skipped = malloc(before);
    assert_non_null(skipped);
    assert_int_equal(take(skipped, before, &has_ended), before);
    assert_int_equal(take(text, want_len, &has_ended), want_len);
    assert_memory_equal(text, want, want_len);
    free(skipped);
}

static void test_a_repeated_id_is_accepted_and_not_written(void **state)
{
    char text[64];

    (void)state;
    assert_int_equal(put("7", "once"), SP_INPUT_ACCEPTED);
    assert_int_equal(put("7", "twice"), SP_INPUT_ACCEPTED);
    assert_int_equal(put("", "empty"), SP_INPUT_ACCEPTED);
    assert_int_equal(put("", "again"), SP_INPUT_ACCEPTED);
    assert_true(sp_input_knows(&input, SP_STR("7")));
    assert_true(sp_input_knows(&input, SP_STR("")));
    assert_false(sp_input_knows(&input, SP_STR("8")));
    assert_int_equal(read(reader, text, sizeof text), 9);
    assert_memory_equal(text, "onceempty", 9);
}

static void test_exactly_the_newest_4096_ids_are_known(void **state)
{
    char id[16];

    (void)state;
    for (unsigned i = 0; i < 2 * SP_INPUT_IDS + 100; i++) {
        (void)snprintf(id, sizeof id, "%u", i);
        assert_int_equal(put(id, ""), SP_INPUT_ACCEPTED);
        if (i >= SP_INPUT_IDS - 1) {
            (void)snprintf(id, sizeof id, "%u", i - (SP_INPUT_IDS - 1));
            assert_true(sp_input_knows(&input, sp_str_of(id)));
        }
        if (i >= SP_INPUT_IDS) {
            (void)snprintf(id, sizeof id, "%u", i - SP_INPUT_IDS);
            assert_false(sp_input_knows(&input, sp_str_of(id)));
        }
    }
    assert_int_equal(put("0", "forgotten"), SP_INPUT_ACCEPTED); /* long ago: written anew */
    char text[16];
    assert_int_equal(read(reader, text, sizeof text), 9);
}

/* Larger than a pipe: some of it is written, and the rest queued. */
static void test_a_write_that_failed_for_memory_has_written_nothing(void **state)
{
    const size_t size = 100000;
    char *big = malloc(size);
    char *text = malloc(size + 1);
    bool has_ended;
    long n = 0;
    enum sp_input_result result;
    int written;

    (void)state;
    assert_non_null(big);
    assert_non_null(text);
    memset(big, 'b', size);
    do {
        end_memory_at(++n);
        result = sp_input_write(&input, SP_STR("big"), (struct sp_str){big, size});
        if (!did_memory_end())
            break;
        assert_int_equal(result, SP_INPUT_FAILED);
        assert_int_equal(ioctl(reader, FIONREAD, &written), 0);
        assert_int_equal(written, 0);
    } while (n < 100);
    assert_true(n > 2);
    assert_int_equal(result, SP_INPUT_ACCEPTED);
    assert_int_equal(take(text, size, &has_ended), size);
    assert_memory_equal(text, big, size);
    turn();
    assert_true(read(reader, text, 1) < 0 && errno == EAGAIN);
    free(big);
    free(text);
}

static void test_a_write_that_failed_in_the_middle_is_not_repeated(void **state)
{
    const size_t size = 100000;
    char *big = calloc(1, size);
    int before;
    int after;

    (void)state;
    assert_non_null(big);
    is_epoll_short = true;
    assert_int_equal(sp_input_write(&input, SP_STR("big"), (struct sp_str){big, size}),
                     SP_INPUT_FAILED);
    is_epoll_short = false;
    assert_int_equal(ioctl(reader, FIONREAD, &before), 0);
    assert_true(before > 0);
    assert_int_equal(read(reader, big, 1000), 1000);
    assert_int_equal(sp_input_write(&input, SP_STR("big"), (struct sp_str){big, size}),
                     SP_INPUT_FAILED);
    assert_int_equal(ioctl(reader, FIONREAD, &after), 0);
    assert_int_equal(after, before - 1000);
    free(big);
}

static void test_a_reader_who_left_is_no_error(void **state)
{
    (void)state;
    close_reader();
    assert_int_equal(put("1", "x"), SP_INPUT_ACCEPTED);
    assert_int_equal(put("2", "x"), SP_INPUT_ACCEPTED);
    assert_int_equal(input.fd, -1); /* nothing is kept open for nobody */
    assert_int_equal(sp_input_close(&input), SP_INPUT_ACCEPTED);
    assert_int_equal(put("3", "x"), SP_INPUT_CLOSED);
}

static void test_a_reader_who_leaves_empties_the_queue(void **state)
{
    (void)state;
    (void)fill_pipe();
    for (int i = 0; i < 100; i++)
        assert_int_equal(put_bytes("x", 1), SP_INPUT_ACCEPTED);
    close_reader();
    turn();
    assert_int_equal(input.chunks, 0);
    assert_int_equal(input.bytes, 0);
    assert_true(room_calls > 0);
    assert_int_equal(put_bytes("x", 1), SP_INPUT_ACCEPTED);
    assert_int_equal(input.chunks, 0);
}

static void test_the_end_comes_after_what_is_queued(void **state)
{
    const size_t before = fill_pipe();
    char *text = malloc(before + 100);
    bool has_ended;

    (void)state;
    assert_non_null(text);
    assert_int_equal(put("last", "last"), SP_INPUT_ACCEPTED);
    assert_int_equal(sp_input_close(&input), SP_INPUT_ACCEPTED);
    assert_int_equal(sp_input_close(&input), SP_INPUT_CLOSED);
    assert_int_equal(put("later", "x"), SP_INPUT_CLOSED);
    assert_int_equal(put("last", "x"), SP_INPUT_ACCEPTED); /* a repeat is still one */
    assert_int_equal(take(text, before + 100, &has_ended), before + 4);
    assert_true(has_ended);
    assert_memory_equal(text + before, "last", 4);
    free(text);
}

static void test_without_a_stdin_everything_is_closed(void **state)
{
    struct sp_input none;

    (void)state;
    sp_input_init(&none, loop, has_room);
    assert_int_equal(sp_input_write(&none, SP_STR("1"), SP_STR("x")), SP_INPUT_CLOSED);
    assert_int_equal(sp_input_close(&none), SP_INPUT_CLOSED);
    sp_input_break(&none);
    sp_input_process_ended(&none, false);
    assert_int_equal(none.state, SP_INPUT_NONE);
    sp_input_done(&none);
}

static void test_after_a_terminate_writes_fail_and_the_stdin_stays_open(void **state)
{
    char text[8];

    (void)state;
    (void)fill_pipe();
    assert_int_equal(put("known", "x"), SP_INPUT_ACCEPTED);
    sp_input_break(&input);
    assert_true(room_calls > 0); /* who waits hears of it */
    assert_int_equal(put("1", "x"), SP_INPUT_FAILED);
    assert_int_equal(put("known", "x"), SP_INPUT_ACCEPTED);
    assert_int_equal(sp_input_close(&input), SP_INPUT_CLOSED);
    ssize_t n;
    while ((n = read(reader, text, sizeof text)) > 0) {
    }
    assert_int_equal(n, -1); /* not at its end: the process must not end by itself */
    sp_input_process_ended(&input, true);
    assert_int_equal(read(reader, text, sizeof text), 0);
    assert_int_equal(put("2", "x"), SP_INPUT_FAILED);
}

static void test_after_an_exit_writes_go_nowhere(void **state)
{
    char text[8];

    (void)state;
    assert_int_equal(put("1", "abc"), SP_INPUT_ACCEPTED);
    sp_input_process_ended(&input, false);
    assert_int_equal(room_calls, 1);
    assert_int_equal(put("2", "def"), SP_INPUT_ACCEPTED);
    assert_int_equal(read(reader, text, sizeof text), 3);
    assert_int_equal(read(reader, text, sizeof text), 0);
}

/* ---- terminals ---- */

static void open_terminal(void)
{
    struct sp_pty pty;

    sp_input_done(&input);
    close_reader();
    sp_input_init(&input, loop, has_room);
    assert_int_equal(sp_pty_open(24, 80, &pty, NULL), 0);
    assert_int_equal(fcntl(pty.slave, F_SETFL, O_RDWR | O_NONBLOCK), 0);
    reader = pty.slave;
    input.fd = pty.master;
    input.is_tty = true;
    input.state = SP_INPUT_OPEN;
}

/* One read of the program at the terminal: its bytes; 0 is its end of file, -1 nothing there. */
static ssize_t line(char *text, size_t size)
{
    (void)wait_fd(reader, POLLIN, 200);
    return read(reader, text, size);
}

/* The slave must outlive the master's close to be read: a duplicate keeps the terminal up. */
static void close_and_keep(int *ret_master)
{
    *ret_master = dup(input.fd);
    assert_true(*ret_master >= 0);
    assert_int_equal(sp_input_close(&input), SP_INPUT_ACCEPTED);
    assert_int_equal(input.fd, -1);
}

static void test_a_terminal_ends_at_the_start_of_a_line(void **state)
{
    static const char *const before[] = {"", "line\n", "line\r"};
    char text[64];
    int master;

    (void)state;
    for (int i = 0; i < 3; i++) {
        open_terminal();
        if (before[i][0] != 0) {
            assert_int_equal(put("1", before[i]), SP_INPUT_ACCEPTED);
            assert_int_equal(line(text, sizeof text), 5);
            assert_memory_equal(text, "line\n", 5);
        }
        close_and_keep(&master);
        assert_int_equal(line(text, sizeof text), 0);
        assert_int_equal(line(text, sizeof text), -1); /* one end of file, not two */
        (void)close(master);
    }
}

static void test_a_terminal_in_the_middle_of_a_line_ends_the_line_first(void **state)
{
    char text[64];
    int master;

    (void)state;
    open_terminal();
    assert_int_equal(put("1", "half"), SP_INPUT_ACCEPTED);
    close_and_keep(&master);
    assert_int_equal(line(text, sizeof text), 4);
    assert_memory_equal(text, "half", 4);
    assert_int_equal(line(text, sizeof text), 0);
    (void)close(master);
}

static void test_the_terminals_own_end_character_is_used(void **state)
{
    struct termios t;
    char text[64];
    int master;

    (void)state;
    open_terminal();
    assert_int_equal(tcgetattr(reader, &t), 0);
    t.c_cc[VEOF] = 'E' - '@';
    assert_int_equal(tcsetattr(reader, TCSANOW, &t), 0);
    close_and_keep(&master);
    assert_int_equal(line(text, sizeof text), 0);
    (void)close(master);
}

static void test_a_terminal_in_raw_mode_gets_no_end_character(void **state)
{
    struct termios t;
    char text[64];
    int master;

    (void)state;
    open_terminal();
    assert_int_equal(tcgetattr(reader, &t), 0);
    t.c_lflag &= ~(tcflag_t)ICANON;
    assert_int_equal(tcsetattr(reader, TCSANOW, &t), 0);
    close_and_keep(&master);
    assert_int_equal(line(text, sizeof text), -1);
    (void)close(master);
}

static void test_bytes_are_kept_while_the_kernel_has_no_memory(void **state)
{
    char got[16] = {0};

    (void)state;
    short_writes = 3;
    write_calls = 0;
    assert_int_equal(put("1", "first "), SP_INPUT_ACCEPTED);
    assert_int_equal(put("2", "second"), SP_INPUT_ACCEPTED);
    assert_int_equal(sp_input_close(&input), SP_INPUT_ACCEPTED);
    for (int i = 0; i < 1000 && input.first != NULL; i++) {
        turn();
        (void)poll(NULL, 0, 1);
    }
    assert_null(input.first);
    assert_int_equal(short_writes, 0);
    assert_true(write_calls < 20); /* tried now and then, not in a loop */
    assert_int_equal(read(reader, got, sizeof got), 12);
    assert_string_equal(got, "first second");
    assert_int_equal(read(reader, got, sizeof got), 0);
}

#define input_test(f) cmocka_unit_test_setup_teardown(f, open_pipe_input, done)

static const struct CMUnitTest tests[] = {
    input_test(test_bytes_are_written_at_once_and_in_order),
    input_test(test_the_queue_holds_128_chunks),
    input_test(test_the_queue_holds_8_mib),
    input_test(test_one_chunk_of_any_size_fits_into_an_empty_queue),
    input_test(test_queued_bytes_keep_their_order),
    input_test(test_a_repeated_id_is_accepted_and_not_written),
    input_test(test_exactly_the_newest_4096_ids_are_known),
    input_test(test_a_write_that_failed_for_memory_has_written_nothing),
    input_test(test_a_write_that_failed_in_the_middle_is_not_repeated),
    input_test(test_a_reader_who_left_is_no_error),
    input_test(test_a_reader_who_leaves_empties_the_queue),
    input_test(test_the_end_comes_after_what_is_queued),
    input_test(test_bytes_are_kept_while_the_kernel_has_no_memory),
    input_test(test_without_a_stdin_everything_is_closed),
    input_test(test_after_a_terminate_writes_fail_and_the_stdin_stays_open),
    input_test(test_after_an_exit_writes_go_nowhere),
    input_test(test_a_terminal_ends_at_the_start_of_a_line),
    input_test(test_a_terminal_in_the_middle_of_a_line_ends_the_line_first),
    input_test(test_the_terminals_own_end_character_is_used),
    input_test(test_a_terminal_in_raw_mode_gets_no_end_character),
};

TEST_MAIN(tests)
