/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writers of one stdin are killed, at random and after each instruction of a commit; the next one
 * goes on with the log. The reader gets each byte that was accepted once.
 */
#include <pty.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <termios.h>

#include "base/auto.h"
#include "core/input.h"
#include "core/input_log.h"
#include "step_fixture.h"

/* ---- a stdin with its reader ---- */

struct scene {
    struct sp_loop *loop;
    struct sp_input input;
    int target, reader, log; /* duplicates, as a cell has them */
    unsigned logs;
};

static bool note_log(struct sp_input *in, int fd)
{
    struct scene *s = SP_CONTAINER(in, struct scene, input);

    if (s->log >= 0)
        (void)close(s->log);
    s->log = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    s->logs++;
    return s->log >= 0;
}

static void no_room(struct sp_input *in)
{
    (void)in;
}

/* What the next front does. */
static void begin_front(struct scene *s, bool is_tty)
{
    assert_int_equal(sp_loop_new(&s->loop, NULL), 0);
    sp_input_init(&s->input, s->loop, no_room);
    s->input.is_tty = is_tty;
    s->input.log_made = note_log;
    sp_input_adopt(&s->input, dup(s->target), s->log < 0 ? -1 : dup(s->log));
}

/* As SIGKILL: nothing is tidied up that others can see. */
static void end_front(struct scene *s)
{
    sp_input_done(&s->input);
    sp_loop_free(s->loop);
}

static void new_pipe(struct scene *s)
{
    int fds[2];

    assert_int_equal(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
    *s = (struct scene){.target = fds[1], .reader = fds[0], .log = -1};
}

static void new_terminal(struct scene *s, bool is_raw)
{
    struct termios t;

    *s = (struct scene){.log = -1};
    assert_int_equal(openpty(&s->target, &s->reader, NULL, NULL, NULL), 0);
    assert_int_equal(tcgetattr(s->reader, &t), 0);
    if (is_raw)
        cfmakeraw(&t);
    else
        t.c_lflag &= ~(tcflag_t)ECHO;
    assert_int_equal(tcsetattr(s->reader, TCSANOW, &t), 0);
    (void)fcntl(s->target, F_SETFL, O_NONBLOCK);
    (void)fcntl(s->reader, F_SETFL, O_NONBLOCK);
}

static void drop_scene(struct scene *s)
{
    (void)close(s->target);
    (void)close(s->reader);
    if (s->log >= 0)
        (void)close(s->log);
}

static struct sp_str id_of(unsigned n, char room[16])
{
    (void)snprintf(room, 16, "w%u", n);
    return sp_str_of(room);
}

static enum sp_input_result write_text(struct scene *s, unsigned id, const char *text)
{
    char room[16];

    return sp_input_write(&s->input, id_of(id, room), sp_str_of(text));
}

static void assert_reads(struct scene *s, const char *text)
{
    char got[256] = {0};
    const ssize_t n = read(s->reader, got, sizeof got - 1);

    assert_int_equal(n, strlen(text) == 0 ? -1 : (ssize_t)strlen(text));
    assert_string_equal(got, text);
}

static void test_the_next_front_goes_on(void **state)
{
    struct scene s;

    (void)state;
    new_pipe(&s);
    begin_front(&s, false);
    assert_int_equal(write_text(&s, 1, "one "), SP_INPUT_ACCEPTED);
    assert_int_equal(write_text(&s, 1, "one "), SP_INPUT_ACCEPTED);
    end_front(&s);
    begin_front(&s, false);
    assert_int_equal(write_text(&s, 1, "one "), SP_INPUT_ACCEPTED);
    assert_int_equal(write_text(&s, 2, "two"), SP_INPUT_ACCEPTED);
    assert_reads(&s, "one two");
    assert_int_equal(sp_input_close(&s.input), SP_INPUT_ACCEPTED);
    end_front(&s);
    begin_front(&s, false); /* repeats the end of file */
    assert_int_equal(write_text(&s, 2, "two"), SP_INPUT_ACCEPTED);
    assert_int_equal(write_text(&s, 3, "three"), SP_INPUT_CLOSED);
    assert_int_equal(s.input.fd, -1);
    assert_int_equal(s.logs, 1);
    end_front(&s);
    drop_scene(&s);
}

static void test_ids_over_three_fronts(void **state)
{
    struct scene s;
    char room[16];

    (void)state;
    new_pipe(&s);
    for (unsigned front = 0; front < 3; front++) {
        begin_front(&s, false);
        for (unsigned i = 0; i < 2000; i++) {
            char drain[16];

            assert_int_equal(write_text(&s, front * 2000 + i, "x"), SP_INPUT_ACCEPTED);
            assert_int_equal(read(s.reader, drain, sizeof drain), 1);
        }
        end_front(&s);
    }
    begin_front(&s, false);
    assert_false(sp_input_knows(&s.input, id_of(6000 - SP_INPUT_IDS - 1, room)));
    assert_true(sp_input_knows(&s.input, id_of(6000 - SP_INPUT_IDS, room)));
    assert_true(sp_input_knows(&s.input, id_of(5999, room)));
    assert_false(sp_input_knows(&s.input, id_of(6000, room)));
    end_front(&s);
    drop_scene(&s);
}

static void test_what_was_queued_arrives(void **state)
{
    static char big[300000];
    struct scene s;
    char room[16];
    size_t got = 0;

    (void)state;
    memset(big, 'q', sizeof big);
    new_pipe(&s);
    begin_front(&s, false);
    assert_int_equal(sp_input_write(&s.input, id_of(1, room), (struct sp_str){big, sizeof big}),
                     SP_INPUT_ACCEPTED);
    assert_true(s.input.bytes > 0);
    end_front(&s);
    for (unsigned fronts = 0; got < sizeof big; fronts++) {
        char part[50000];

        assert_true(fronts < 100);
        const ssize_t n = read(s.reader, part, sizeof part);
        got += n > 0 ? (size_t)n : 0;
        begin_front(&s, false);
        end_front(&s);
    }
    assert_int_equal(got, sizeof big);
    assert_reads(&s, "");
    drop_scene(&s);
}

/* The end-of-file characters are typed once, however many fronts there are. */
static void test_the_end_of_a_terminal(void **state)
{
    struct scene s;
    char got[16];

    (void)state;
    new_terminal(&s, false);
    begin_front(&s, true);
    assert_int_equal(write_text(&s, 1, "line"), SP_INPUT_ACCEPTED);
    assert_int_equal(sp_input_close(&s.input), SP_INPUT_ACCEPTED);
    end_front(&s);
    begin_front(&s, true);
    end_front(&s);
    begin_front(&s, true);
    assert_int_equal(read(s.reader, got, sizeof got), 4);
    assert_int_equal(read(s.reader, got, sizeof got), 0);
    assert_int_equal(read(s.reader, got, sizeof got), -1);
    assert_int_equal(errno, EAGAIN);
    end_front(&s);
    drop_scene(&s);
}

static void test_a_broken_stdin_stays_broken(void **state)
{
    static char big[200000];
    struct scene s;
    char room[16];

    (void)state;
    new_pipe(&s);
    begin_front(&s, false);
    assert_int_equal(sp_input_write(&s.input, id_of(1, room), (struct sp_str){big, sizeof big}),
                     SP_INPUT_ACCEPTED);
    sp_input_break(&s.input);
    end_front(&s);
    begin_front(&s, false);
    assert_int_equal(write_text(&s, 1, "x"), SP_INPUT_ACCEPTED); /* a repetition */
    assert_int_equal(write_text(&s, 2, "x"), SP_INPUT_FAILED);
    assert_int_equal(s.input.bytes, 0);
    end_front(&s);
    drop_scene(&s);
}

static uint64_t memory_of(int fd)
{
    struct stat st;

    assert_int_equal(fstat(fd, &st), 0);
    return (uint64_t)st.st_blocks * 512;
}

/* A log gives memory back behind its position, and is replaced when it is long. */
static void test_a_log_does_not_grow(void **state)
{
    static char piece[1 << 20];
    static char got[1 << 20];
    struct scene s;
    char room[16];

    (void)state;
    new_pipe(&s);
    begin_front(&s, false);
    for (unsigned i = 0; i < 140; i++) {
        size_t n = 0;

        memset(piece, (int)('a' + i % 26), sizeof piece);
        assert_int_equal(
            sp_input_write(&s.input, id_of(i, room), (struct sp_str){piece, sizeof piece}),
            SP_INPUT_ACCEPTED);
        while (n < sizeof got) {
            const ssize_t k = read(s.reader, got + n, sizeof got - n);

            assert_true(k > 0);
            n += (size_t)k;
            if (s.input.bytes > 0)
                assert_int_equal(sp_loop_dispatch(s.loop, 100, NULL), 0);
        }
        assert_memory_equal(got, piece, sizeof got);
        assert_true(memory_of(s.log) < 3 << 20);
    }
    assert_int_equal(s.logs, 3);
    assert_true(sp_input_knows(&s.input, id_of(3, room)));
    end_front(&s);
    drop_scene(&s);
}

static void test_a_limit_of_file_sizes(void **state)
{
    static char piece[1 << 20];
    struct rlimit old;
    struct scene s;
    char room[16];

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    const struct rlimit low = {3 << 20, old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    new_pipe(&s);
    begin_front(&s, false);
    for (unsigned i = 0; i < 10; i++) {
        assert_int_equal(
            sp_input_write(&s.input, id_of(i, room), (struct sp_str){piece, sizeof piece}),
            SP_INPUT_ACCEPTED);
        while (s.input.bytes > 0) {
            static char got[65536];

            (void)!read(s.reader, got, sizeof got);
            assert_int_equal(sp_loop_dispatch(s.loop, 100, NULL), 0);
        }
        while (read(s.reader, piece, sizeof piece) > 0)
            ;
    }
    assert_int_equal(s.logs, 5);
    assert_int_equal(
        sp_input_write(&s.input, id_of(99, room), (struct sp_str){piece, sizeof piece}),
        SP_INPUT_ACCEPTED);
    assert_true(s.input.bytes > 0);
    static char four[4 << 20];
    assert_int_equal(sp_input_write(&s.input, id_of(100, room), (struct sp_str){four, sizeof four}),
                     SP_INPUT_FULL);
    end_front(&s);
    drop_scene(&s);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
}

/* sendfile refuses files that are opened for appending: as early kernels refuse terminals. */
static void test_without_sendfile(void **state)
{
    struct scene s = {.log = -1};
    char path[] = "/tmp/sallyport-input-XXXXXX";
    char got[64] = {0};

    (void)state;
    s.reader = mkostemp(path, O_CLOEXEC);
    assert_true(s.reader >= 0);
    s.target = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    assert_int_equal(unlink(path), 0);
    begin_front(&s, true);
    assert_int_equal(write_text(&s, 1, "one "), SP_INPUT_ACCEPTED);
    end_front(&s);
    begin_front(&s, true);
    assert_int_equal(write_text(&s, 2, "two"), SP_INPUT_ACCEPTED);
    assert_int_equal(pread(s.reader, got, sizeof got, 0), 7);
    assert_string_equal(got, "one two");
    end_front(&s);
    drop_scene(&s);
}

/* ---- killed at random ---- */

enum { PIECES = 3000 };

static size_t piece_size(unsigned n)
{
    return n % 50 == 49 ? 20000 : 1 + n * 7919U % 700;
}

static char piece_byte(unsigned n, size_t at)
{
    return (char)(1 + (n * 31U + at * 7U) % 120); /* no control character counts in raw mode */
}

/* Writes on from *next, whose write may have been accepted. */
static void write_on(struct scene *s, bool is_tty, _Atomic unsigned *next)
{
    static char bytes[20000];

    CHILD_CHECK(sp_loop_new(&s->loop, NULL) == 0);
    sp_input_init(&s->input, s->loop, no_room);
    s->input.is_tty = is_tty;
    s->input.log_made = note_log;
    sp_input_adopt(&s->input, dup(s->target), dup(s->log));
    while (*next < PIECES) {
        const unsigned n = *next;
        char room[16];
        enum sp_input_result r;

        for (size_t i = 0; i < piece_size(n); i++)
            bytes[i] = piece_byte(n, i);
        while ((r = sp_input_write(&s->input, id_of(n, room),
                                   (struct sp_str){bytes, piece_size(n)})) == SP_INPUT_FULL)
            CHILD_CHECK(sp_loop_dispatch(s->loop, 100, NULL) == 0);
        CHILD_CHECK(r == SP_INPUT_ACCEPTED);
        *next = n + 1;
    }
    while (s->input.bytes > 0)
        CHILD_CHECK(sp_loop_dispatch(s->loop, 100, NULL) == 0);
    _exit(0);
}

struct reading {
    unsigned piece;
    size_t at;
};

static void read_on(struct scene *s, struct reading *r)
{
    static char got[65536];
    const ssize_t n = read(s->reader, got, sizeof got);

    for (ssize_t i = 0; i < n; i++) {
        if (got[i] != piece_byte(r->piece, r->at))
            fail_msg("piece %u: byte %zu is %d", r->piece, r->at, got[i]);
        if (++r->at == piece_size(r->piece)) {
            r->piece++;
            r->at = 0;
        }
    }
}

#define ENOUGH_MS 10000 /* of kills at random */

static void kill_writers(struct scene *s, bool is_tty)
{
    _Atomic unsigned *next =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct reading r = {0};
    uint64_t seed = 17;
    unsigned kills = 0;
    const uint64_t until = test_now_ms() + ENOUGH_MS;

    assert_true(next != MAP_FAILED);
    /* The first log is there before the first kill: a cell would have it. */
    begin_front(s, is_tty);
    assert_int_equal(sp_input_write(&s->input, SP_STR("first"), SP_STR("")), SP_INPUT_ACCEPTED);
    end_front(s);
    /* On a slow machine fewer pieces, but always some kills. */
    while (r.piece < PIECES && (kills <= 3 || test_now_ms() < until)) {
        const pid_t pid = fork();
        int status = 0;

        assert_true(pid >= 0);
        if (pid == 0)
            write_on(s, is_tty, next);
        const unsigned reads = test_random(&seed) % 60;
        for (unsigned i = 0; i < reads; i++)
            read_on(s, &r);
        (void)kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (WIFEXITED(status))
            assert_int_equal(WEXITSTATUS(status), 0);
        kills += WIFSIGNALED(status);
    }
    assert_true(r.piece < PIECES || r.at == 0);
    assert_true(kills > 3);
    (void)munmap(next, 4096);
}

static void test_kills_at_a_pipe(void **state)
{
    struct scene s;

    (void)state;
    new_pipe(&s);
    kill_writers(&s, false);
    drop_scene(&s);
}

static void test_kills_at_a_terminal(void **state)
{
    struct scene s;

    (void)state;
    new_terminal(&s, true);
    kill_writers(&s, true);
    drop_scene(&s);
}

/* ---- killed after each instruction ---- */

static struct sp_input_log *stepped;

static void *make_stepped(void)
{
    const struct sp_hash id = {1, 1};

    stepped = sp_input_log_new();
    assert_non_null(stepped);
    assert_int_equal(sp_input_log_append(stepped, SP_STR("old"), &id, SP_INPUT_LOG_OPEN), 0);
    return NULL;
}

static void append(void *arg)
{
    const struct sp_hash id = {2, 2};

    (void)arg;
    if (sp_input_log_append(stepped, SP_STR("new"), &id, SP_INPUT_LOG_CLOSING) < 0)
        _exit(1);
}

static void check_append(void *arg, bool is_done)
{
    struct sp_input_log *heir = sp_input_log_open(dup(sp_input_log_fd(stepped)));

    (void)arg;
    assert_non_null(heir);
    const bool is_new = sp_input_log_state(heir) == SP_INPUT_LOG_CLOSING;
    assert_true(is_new || !is_done);
    assert_int_equal(sp_input_log_left(heir), is_new ? 6 : 3);
    assert_true(sp_input_log_knows(heir, (struct sp_hash){1, 1}));
    assert_int_equal(sp_input_log_knows(heir, (struct sp_hash){2, 2}), is_new);
    assert_int_equal(sp_input_log_last(heir), is_new ? 'w' : 'd');
    sp_input_log_free(heir);
    sp_input_log_free(stepped);
}

static void test_a_chunk_is_accepted_or_not(void **state)
{
    (void)state;
    step_through(make_stepped, append, check_append);
}

/* ---- what a hostile cell may send ---- */

static void test_files_that_are_no_log(void **state)
{
    struct sp_input_log *l = sp_input_log_new();
    uint64_t seed = 9;

    (void)state;
    assert_null(sp_input_log_open(-1));
    int fd = memfd_create("test", MFD_CLOEXEC);
    assert_null(sp_input_log_open(fd));
    assert_int_equal(close(fd), 0);
    for (unsigned i = 0; i < 2000; i++) {
        fd = dup(sp_input_log_fd(l));
        const uint8_t byte = (uint8_t)test_random(&seed);
        const off_t at = test_random(&seed) % 80;

        if (i % 2 == 0)
            assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        else
            (void)lseek(fd, test_random(&seed) % 100000, SEEK_SET);
        struct sp_input_log *heir = sp_input_log_open(fd);
        if (heir == NULL) {
            assert_int_equal(close(fd), 0);
            sp_input_log_free(l);
            l = sp_input_log_new();
            continue;
        }
        const int sink = open("/dev/null", O_WRONLY | O_CLOEXEC);
        for (unsigned k = 0; k < 10 && sp_input_log_left(heir) > 0; k++)
            (void)sp_input_log_send(heir, sink);
        (void)close(sink);
        sp_input_log_free(heir);
    }
    sp_input_log_free(l);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_the_next_front_goes_on),
    cmocka_unit_test(test_ids_over_three_fronts),
    cmocka_unit_test(test_what_was_queued_arrives),
    cmocka_unit_test(test_the_end_of_a_terminal),
    cmocka_unit_test(test_a_broken_stdin_stays_broken),
    cmocka_unit_test(test_a_log_does_not_grow),
    cmocka_unit_test(test_a_limit_of_file_sizes),
    cmocka_unit_test(test_without_sendfile),
    cmocka_unit_test(test_kills_at_a_pipe),
    cmocka_unit_test(test_kills_at_a_terminal),
    cmocka_unit_test(test_a_chunk_is_accepted_or_not),
    cmocka_unit_test(test_files_that_are_no_log),
};

TEST_MAIN(tests)
