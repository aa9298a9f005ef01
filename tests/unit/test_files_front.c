/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The front's side of file operations against processes that say what a confined one might say
 * after it was taken over: here the test itself is at the other end of every socket. And what
 * happens at each limit, and when memory ends at any moment.
 */
#include <netinet/in.h>
#include <sys/socket.h>

#include "files_front_fixture.h"
#include "memory_fixture.h"

/* ---- answers ---- */

static void test_every_field_of_an_answer(void **state)
{
    static const struct {
        enum sp_file_op op;
        struct sp_file_wire_answer m; /* number: what is added to the right one */
        bool is_fine;
    } cases[] = {
        {SP_FILE_STAT, {.size = UINT64_MAX, .created_ms = INT64_MIN}, true},
        {SP_FILE_STAT,
         {.flags = UINT32_MAX & ~(uint32_t)(SP_FILES_APART | SP_FILES_OPENED | SP_FILES_CLOSED |
                                            SP_FILES_BEGUN)},
         true},
        {SP_FILE_STAT, {.flags = SP_FILES_CLOSED}, false},
        {SP_FILE_STAT, {.flags = SP_FILES_BEGUN}, false},
        {SP_FILE_READ, {.flags = SP_FILES_BEGUN | SP_FILES_CUT}, false},
        {SP_FILE_READ, {.flags = SP_FILES_BEGUN, .number = 1}, false},
        {SP_FILE_READ, {.data_len = SP_FILES_WINDOW}, true},
        {SP_FILE_READ, {.data_len = SP_FILES_WINDOW + 1}, false},
        {SP_FILE_READ, {.data_len = UINT64_MAX}, false},
        {SP_FILE_READ, {.err = ENOENT}, true},
        {SP_FILE_READ, {.err = ENOENT, .data_len = 1}, false},
        {SP_FILE_READ, {.err = -1}, false},
        {SP_FILE_READ, {.err = 4096}, false},
        {SP_FILE_READ, {.err = INT32_MIN}, false},
        {SP_FILE_READ, {.refusal = SP_FILE_REFUSAL_MAX - 1}, true},
        {SP_FILE_READ, {.refusal = SP_FILE_REFUSAL_MAX}, false},
        {SP_FILE_READ, {.refusal = UINT32_MAX}, false},
        {SP_FILE_READ, {.zero = 1}, false},
        {SP_FILE_READ, {.number = 1}, false},
        {SP_FILE_READ, {.number = UINT64_MAX}, false},
        {SP_FILE_READ, {.flags = SP_FILES_APART, .data_len = 1}, false},
        {SP_FILE_READ, {.flags = SP_FILES_OPENED}, false},
        {SP_FILE_READ, {.flags = SP_FILES_APART, .err = EIO}, false},
        {SP_FILE_READ_BLOCK, {.data_len = 8}, true},
        {SP_FILE_READ_BLOCK, {.data_len = 9}, false},
        {SP_FILE_OPEN, {.flags = SP_FILES_OPENED}, false},
        {SP_FILE_OPEN, {.flags = 0}, false},
        {SP_FILE_OPEN, {.err = EACCES}, true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct end *end = ask_one(cases[i].op);
        const int fds = open_fds() - 1; /* without its socket */
        struct sp_file_wire_answer m = cases[i].m;

        m.number += end->asked.number;
        say(end, &m, sizeof m, NULL, 0);
        if (!cases[i].is_fine) {
            is_not_believed(fds);
            continue;
        }
        awaits(&call);
        if (!call.has_answer)
            fail_msg("case %zu: %s", i, call.e.msg);
        assert_int_equal(call.answer.data_len, m.data_len);
        assert_int_equal(call.answer.err, m.err);
    }
}

static void test_datagrams_that_are_no_answers(void **state)
{
    char bytes[sizeof(struct sp_file_wire_answer) + 8] = {0};

    (void)state;
    for (size_t len = 0; len <= sizeof bytes; len += 7) {
        struct end *end = ask_one(SP_FILE_STAT);
        const int fds = open_fds() - 1;
        const struct sp_file_wire_answer m = fine(end);

        memcpy(bytes, &m, sizeof m);
        if (len != sizeof m) {
            say(end, bytes, len, &end->socket, len % 2 == 0);
            is_not_believed(fds);
        }
    }
    struct end *end = ask_one(SP_FILE_STAT);
    (void)shutdown(end->socket, SHUT_RDWR);
    awaits(&call);
    assert_false(call.has_answer);
    until_workers(0);
    /* Twice the same: the second is none. */
    end = ask_one(SP_FILE_STAT);
    const struct sp_file_wire_answer m = fine(end);
    say(end, &m, sizeof m, NULL, 0);
    say(end, &m, sizeof m, NULL, 0);
    awaits(&call);
    assert_true(call.has_answer);
    until_workers(0);
}

/* None of them stays with us. */
static void test_descriptors_that_nobody_wants(void **state)
{
    static const enum sp_file_op ops[] = {SP_FILE_STAT, SP_FILE_READ, SP_FILE_OPEN};
    static const uint32_t flags[] = {0, SP_FILES_APART, SP_FILES_OPENED,
                                     SP_FILES_APART | SP_FILES_OPENED};

    (void)state;
    const int some[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    for (size_t o = 0; o < 3; o++)
        for (size_t f = 0; f < 4; f++)
            for (int n = 1; n <= 8; n += n < 3 ? 1 : 5) {
                const struct end *end = ask_one(ops[o]);
                const int fds = open_fds() - 1;
                struct sp_file_wire_answer m = fine(end);

                m.flags = flags[f];
                m.data_len = flags[f] == SP_FILES_APART;
                say(end, &m, sizeof m, some, n);
                is_not_believed(fds);
            }
}

/* ---- memory files ---- */

static int memory_of(size_t size, unsigned seals, unsigned flags)
{
    const int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);

    if (fd < 0)
        return -1;
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    if (flags == 0 && size > 0)
        assert_int_equal(pwrite(fd, "data", 4, 0), 4);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

static void test_memory_files(void **state)
{
    const unsigned all = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
    const struct {
        size_t size;
        unsigned seals, flags;
        uint64_t data_len;
        bool is_fine;
    } cases[] = {
        {4096, all, 0, 4096, true},
        {4096, all, 0, 4, true},
        {4096, F_SEAL_SHRINK | F_SEAL_WRITE, 0, 4, true},
        {4096, F_SEAL_WRITE, 0, 4096, false},  /* may be cut */
        {4096, F_SEAL_SHRINK, 0, 4096, false}, /* may be written */
        {4096, 0, 0, 4096, false},
        {4096, all, 0, 4097, false},
        {4096, all, 0, UINT64_MAX, false},
        {(size_t)SP_FILES_SMALL_READ + 1, all, 0, SP_FILES_SMALL_READ + 1, false}, /* not asked */
        {4096, all, 0, 0, false},
        {0, all, 0, 1, false},
        {2U << 20, all, MFD_HUGETLB, 4, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct end *end = ask_one(SP_FILE_READ);
        const int fds = open_fds() - 1;
        const int fd = memory_of(cases[i].size, cases[i].seals, cases[i].flags);
        struct sp_file_wire_answer m = fine(end);

        m.flags = SP_FILES_APART;
        m.data_len = cases[i].data_len;
        say(end, &m, sizeof m, &fd, fd >= 0);
        (void)close(fd);
        if (!cases[i].is_fine) {
            is_not_believed(fds);
            continue;
        }
        awaits(&call);
        assert_true(call.has_answer);
        assert_memory_equal(call.data, "data", 4);
        assert_int_equal(call.answer.data_len, cases[i].data_len);
    }
}

static bool is_nothing_done(const void *nothing)
{
    (void)nothing;
    return server->files->working == 0;
}

/* It has closed what it has opened: until then it gets nothing to do. */
static void comes_back(const struct end *end)
{
    struct sp_file_wire_answer m = fine(end);

    let_pass(5);
    assert_int_equal(server->files->working, 1);
    m.flags = SP_FILES_CLOSED;
    say(end, &m, sizeof m, NULL, 0);
    until(is_nothing_done, NULL);
}

/* One that has an answer, but not of this kind at this time. */
static void test_what_comes_too_early_or_twice(void **state)
{
    (void)state;
    make_file("f", "text");
    const int file = open(at("f"), O_RDONLY | O_CLOEXEC);
    for (int i = 0; i < 3; i++) {
        const struct end *end = ask_one(SP_FILE_OPEN);
        struct sp_file_wire_answer m = fine(end);

        m.flags = i == 0 ? SP_FILES_CLOSED : SP_FILES_OPENED;
        say(end, &m, sizeof m, &file, i > 0);
        awaits(&call);
        assert_int_equal(call.has_answer, i > 0);
        if (i > 0)
            (void)close(call.answer.fd);
        if (i == 1) /* the same again */
            say(end, &m, sizeof m, &file, 1);
        if (i == 2)
            comes_back(end);
        until_workers(i == 2 ? 1 : 0);
    }
    (void)close(file);
}

static int begun, withdrawn;
static uint64_t begun_size;

static void on_some(struct sp_files_call *c, const char *window, const _Atomic uint64_t *filled,
                    uint64_t size)
{
    (void)c;
    assert_true(window == NULL || *filled == 0);
    begun += window != NULL;
    withdrawn += window == NULL;
    if (window != NULL)
        begun_size = size;
}

static bool is_withdrawn(const void *n)
{
    return withdrawn == *(const int *)n;
}

/* A READ tells once that it has begun; the answer follows at once, or later. */
static void test_a_read_that_has_begun(void **state)
{
    const int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const int once = 1;

    (void)state;
    for (int i = 0; i < 5; i++) {
        const struct end *end = ask_one(SP_FILE_READ);
        const int fds = open_fds() - 1;
        struct sp_file_wire_answer m = fine(end);

        begun = withdrawn = 0;
        call.call.some = i == 0 ? NULL : on_some;
        m.flags = SP_FILES_BEGUN;
        m.size = UINT64_MAX;
        say(end, &m, sizeof m, &file, i == 4);
        if (i == 2)
            until(is_withdrawn, &once); /* without the answer */
        m.flags = i == 3 ? SP_FILES_BEGUN : 0;
        m.data_len = i == 3 ? 0 : 8;
        if (i != 4)
            say(end, &m, sizeof m, NULL, 0);
        if (i >= 3) {
            is_not_believed(fds);
        } else {
            awaits(&call);
            assert_true(call.has_answer);
            assert_int_equal(call.answer.data_len, 8);
        }
        assert_int_equal(begun, i == 0 || i == 4 ? 0 : 1);
        assert_int_equal(withdrawn, i == 2 || i == 3 ? 1 : 0);
        if (begun > 0)
            assert_int_equal(begun_size, SP_FILES_WINDOW);
    }
    (void)close(file);
}

static void test_opened_things(void **state)
{
    int pipe_fds[2];

    (void)state;
    make_file("f", "text");
    assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
    const int things[] = {open(at("f"), O_RDONLY | O_CLOEXEC), pipe_fds[0],
                          open(tree, O_RDONLY | O_CLOEXEC), open("/dev/null", O_RDWR | O_CLOEXEC),
                          socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    for (size_t i = 0; i < sizeof things / sizeof things[0]; i++) {
        const struct end *end = ask_one(SP_FILE_OPEN);
        const int fds = open_fds() - 1;
        struct sp_file_wire_answer m = fine(end);

        m.flags = SP_FILES_OPENED;
        say(end, &m, sizeof m, &things[i], 1);
        if (i > 0) {
            is_not_believed(fds);
            continue;
        }
        awaits(&call);
        assert_true(call.has_answer);
        assert_true(call.answer.fd > 2);
        (void)close(call.answer.fd);
        comes_back(end);
        /* Dropped meanwhile: nobody is there to close it but us. */
        end = ask_one(SP_FILE_OPEN);
        sp_files_drop(&call.call);
        m = fine(end);
        m.flags = SP_FILES_OPENED;
        const int before = open_fds();
        say(end, &m, sizeof m, &things[i], 1);
        let_pass(20);
        assert_int_equal(open_fds(), before);
        assert_false(call.is_done);
        comes_back(end);
    }
    for (size_t i = 0; i < sizeof things / sizeof things[0]; i++)
        (void)close(things[i]);
    (void)close(pipe_fds[1]);
}

/* A socket that lingers does not make us wait. */
static void test_a_close_that_would_take_long(void **state)
{
    static char bytes[8U << 20];
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof where;
    const struct linger hour = {.l_onoff = 1, .l_linger = 3600};
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)state;
    if (bind(listener, (struct sockaddr *)&where, len) < 0 || listen(listener, 1) < 0 ||
        getsockname(listener, (struct sockaddr *)&where, &len) < 0) {
        (void)printf("# no network here\n");
        (void)close(listener);
        return;
    }
    const int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(s, (struct sockaddr *)&where, len), 0);
    assert_int_equal(setsockopt(s, SOL_SOCKET, SO_LINGER, &hour, sizeof hour), 0);
    while (send(s, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
        continue;
    const struct end *end = ask_one(SP_FILE_OPEN);
    const int fds = open_fds() - 2;
    struct sp_file_wire_answer m = fine(end);
    m.flags = SP_FILES_OPENED;
    const uint64_t began = test_now_ms();
    say(end, &m, sizeof m, &s, 1);
    (void)setsockopt(s, SOL_SOCKET, SO_LINGER, &hour, sizeof hour);
    (void)close(s); /* ours is not the last: that is the one in flight */
    is_not_believed(fds);
    assert_true(test_now_ms() - began < DEADLINE_MS / 2);
    (void)close(listener);
}

/* ---- limits ---- */

static void answer_all(void)
{
    for (int i = 0; i < end_count; i++)
        while (has_been_asked(&ends[i])) {
            const struct sp_file_wire_answer m = fine(&ends[i]);

            say(&ends[i], &m, sizeof m, NULL, 0);
        }
}

static struct call many[SP_FILES_WAITING_MAX + SP_FILES_CLIENT_MAX + 1];

static bool all_are_done(const void *count)
{
    answer_all();
    for (int i = 0; i < *(const int *)count; i++)
        if (!many[i].is_done)
            return false;
    return true;
}

static void test_the_limits_of_one_client(void **state)
{
    const int most = SP_FILES_WAITING_MAX + SP_FILES_CLIENT_MAX;
    const struct sp_files_job job = a_job(SP_FILE_STAT, "f");

    (void)state;
    for (int i = 0; i < most; i++)
        asks(&many[i], &job);
    assert_int_equal(ask(&many[most], &job), -SP_E_LIMIT);
    assert_non_null(strstr(error.msg, "1024"));
    assert_int_equal(count_workers(), SP_FILES_CLIENT_MAX);
    assert_int_equal(server->files->working, SP_FILES_CLIENT_MAX);
    assert_int_equal(server->files->waiting_count, SP_FILES_WAITING_MAX);
    /* Another client is not hindered. */
    static struct sp_files_client second;
    struct call theirs = {.call.done = on_done};
    assert_int_equal(sp_files_ask(server->files, &second, &job, &theirs.call, &error), 0);
    assert_int_equal(server->files->working, SP_FILES_CLIENT_MAX + 1);
    until(all_are_done, &most);
    for (int i = 1; i < most; i++) /* of one kind, so in order */
        assert_true(many[i].has_answer);
    until(is_done, &theirs);
    assert_int_equal(server->files->working + server->files->waiting_count, 0);
    assert_int_equal(count_workers(), SP_FILES_CLIENT_MAX + 1);
}

static void test_the_limit_of_all(void **state)
{
    static struct sp_files_client clients[SP_FILE_WORKERS_MAX / SP_FILES_CLIENT_MAX + 1];
    const int most = SP_FILE_WORKERS_MAX + 2;
    const struct sp_files_job job = a_job(SP_FILE_STAT, "f");

    (void)state;
    for (int i = 0; i < most; i++) {
        many[i] = (struct call){.call.done = on_done};
        assert_int_equal(sp_files_ask(server->files, &clients[i / SP_FILES_CLIENT_MAX], &job,
                                      &many[i].call, &error),
                         0);
    }
    assert_int_equal(count_workers(), SP_FILE_WORKERS_MAX);
    assert_int_equal(server->files->working, SP_FILE_WORKERS_MAX);
    assert_int_equal(server->files->waiting_count, 2);
    /* One that nobody wants any more still hangs where it hangs, but in nobody's way. */
    sp_files_drop(&many[0].call);
    many[0].is_done = true;
    let_pass(5);
    assert_int_equal(server->files->working, SP_FILE_WORKERS_MAX + 1);
    assert_int_equal(server->files->waiting_count, 1);
    until(all_are_done, &most);
    assert_int_equal(server->files->working + server->files->waiting_count, 0);
    assert_int_equal(count_workers(), SP_FILE_WORKERS_MAX);
}

static void test_bytes_that_wait(void **state)
{
    static char data[(1U << 20) + 1];
    const int most = (int)(SP_FILES_DATA_MAX >> 20) + 1;
    struct sp_files_job job;
    int r = 0;
    int i = 0;

    (void)state;
    memset(data, 'x', sizeof data - 1);
    job = a_write("f", data);
    for (; i < most + 1 && r == 0; i++)
        r = ask(&many[i], &job);
    assert_int_equal(r, -SP_E_LIMIT);
    assert_int_equal(i, most + 1); /* the first is in a window */
    for (int n = 0; n < i; n++)
        sp_files_drop(&many[n].call);
    answer_all();
    let_pass(5);
}

/* ---- memory ---- */

static void test_memory_ends_at_any_moment(void **state)
{
    bool has_ended = true;

    (void)state;
    is_real = true;
    for (long n = 1; has_ended; n++) {
        const struct sp_files_job write = a_write("f", "text");
        const struct sp_files_job read = a_job(SP_FILE_READ, "f");

        end_memory_at(n);
        const int a = ask(&many[0], &write);
        const int b = ask(&many[1], &read); /* waits for the first */
        has_ended = did_memory_end();
        if (a < 0)
            assert_true(error.code != SP_E_NONE || b == 0);
        if (a == 0)
            awaits(&many[0]);
        if (b == 0)
            awaits(&many[1]);
        if (a == 0 && b == 0 && many[0].has_answer && many[1].has_answer)
            assert_string_equal(many[1].data, "text");
        assert_true(sp_list_is_empty(&client.calls));
        if (n % 2 == 0) { /* begin without a process, too */
            sp_files_free(server->files);
            assert_int_equal(sp_files_new(server, &server->files, &error), 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        front_test(test_every_field_of_an_answer),
        front_test(test_datagrams_that_are_no_answers),
        front_test(test_descriptors_that_nobody_wants),
        front_test(test_memory_files),
        front_test(test_opened_things),
        front_test(test_what_comes_too_early_or_twice),
        front_test(test_a_read_that_has_begun),
        front_test(test_a_close_that_would_take_long),
        front_test(test_the_limits_of_one_client),
        front_test(test_the_limit_of_all),
        front_test(test_bytes_that_wait),
        front_test(test_memory_ends_at_any_moment),
    };

    return files_main(tests, sizeof tests / sizeof tests[0]);
}
