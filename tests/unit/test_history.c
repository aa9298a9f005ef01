/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "core/history.h"
#include "core/session.h"
#include "ring_fixture.h"
#include "test.h"

/* A process whose log we write ourselves; nothing runs. */
struct scene {
    struct sp_session session;
    struct sp_proc proc;
    struct rings rings;
    struct sp_ring ring;
    struct sp_history *history;
    uint8_t *file; /* the memory file, mapped a second time */
    size_t file_size;
};

static void map_file(struct scene *s)
{
    char path[64];
    char name[64];

    for (int fd = 3; fd < 64 && s->file == NULL; fd++) {
        struct stat st;
        ssize_t n;

        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        n = readlink(path, name, sizeof name - 1);
        name[n < 0 ? 0 : n] = 0;
        if (strncmp(name, "/memfd:sallyport-history", 24) != 0)
            continue;
        assert_int_equal(fstat(fd, &st), 0);
        s->file_size = (size_t)st.st_size;
        s->file = mmap(NULL, s->file_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        assert_true(s->file != MAP_FAILED);
        assert_true(st.st_blocks * 512 <= 8192); /* committed when used */
    }
    assert_non_null(s->file);
}

static struct scene *new_scene(uint32_t entries)
{
    struct scene *s = calloc(1, sizeof *s);
    struct sp_err e = {0};

    assert_non_null(s);
    (void)snprintf(s->session.id, sizeof s->session.id, "123e4567-e89b-12d3-a456-426614174000");
    (void)snprintf(s->session.client_name, sizeof s->session.client_name, "tester");
    s->proc.session = &s->session;
    s->proc.id = SP_STR("build");
    s->proc.life = SP_PROC_CLOSED;
    s->proc.started_ms = 1000;
    s->proc.ended_ms = 2000;
    assert_true(sp_buf_add(&s->proc.strings, "/work\0/bin/sh\0sh\0-c\0make all", 28));
    assert_true(sp_buf_add(&s->proc.strings, "", 1));
    s->rings = make_rings();
    begin_ring(&s->rings, 0, 1, &s->ring, &s->proc.view.ring);
    assert_int_equal(sp_history_new(entries, &s->history, &e), 0);
    map_file(s);
    return s;
}

static void free_scene(struct scene *s)
{
    (void)munmap(s->file, s->file_size);
    sp_history_free(s->history);
    sp_output_times_done(&s->proc.times);
    sp_buf_done(&s->proc.strings);
    sp_ring_view_close(&s->proc.view.ring);
    drop_rings(&s->rings);
    free(s);
}

static void read_log(struct scene *s)
{
    assert_int_equal(sp_ring_catch_up(&s->proc.view.ring, &s->proc.tail, &s->proc.state), 0);
}

static void put(struct scene *s, enum sp_stream stream, char c, uint32_t len)
{
    memset(sp_ring_room(&s->ring), c, len);
    sp_ring_output(&s->ring, stream, len);
    read_log(s);
}

static void end_proc(struct scene *s, int code)
{
    sp_ring_exited(&s->ring, &(struct sp_exit){.code = code});
    sp_ring_closed(&s->ring);
    read_log(s);
}

/* "1:aaa 2:b", a stream and its bytes; runs of one byte are a^N. */
static void describe_output(const struct scene *s, uint64_t id, char *ret, size_t size)
{
    auto_buf struct sp_buf out = {0};
    struct sp_history_chunk c;
    struct sp_history_entry p;
    size_t n = 0;

    ret[0] = 0;
    assert_true(sp_history_get(s->history, id, &p));
    assert_true(sp_history_output(s->history, &p, &out));
    for (struct sp_str rest = sp_buf_str(&out); sp_history_chunk_next(&rest, &c);) {
        n += (size_t)snprintf(ret + n, size - n, "%s%d:", n == 0 ? "" : " ", (int)c.stream);
        for (size_t i = 0, k; i < c.bytes.n; i = k) {
            for (k = i; k < c.bytes.n && c.bytes.p[k] == c.bytes.p[i]; k++)
                ;
            n += (size_t)snprintf(ret + n, size - n, "%c^%zu", c.bytes.p[i], k - i);
        }
        assert_true(n < size);
    }
}

static void test_an_entry_has_all_facts(void **state)
{
    struct scene *s = new_scene(8);
    struct sp_history_entry p;

    (void)state;
    put(s, SP_STREAM_STDOUT, 'a', 3);
    end_proc(s, 7);
    sp_history_remember(s->history, &s->proc);
    assert_false(sp_history_get(s->history, 0, &p));
    assert_false(sp_history_get(s->history, 2, &p));
    assert_true(sp_history_get(s->history, 1, &p));
    assert_true(sp_str_eq(p.session, SP_STR("123e4567-e89b-12d3-a456-426614174000")));
    assert_true(sp_str_eq(p.process, SP_STR("build")));
    assert_true(sp_str_eq(p.client, SP_STR("tester")));
    assert_true(sp_str_eq(p.cwd, SP_STR("/work")));
    assert_bytes(p.argv.p, p.argv.n, "sh\0-c\0make all\0");
    assert_int_equal(p.reason, SP_HISTORY_EXITED);
    assert_int_equal(p.exit.code, 7);
    assert_int_equal(p.started_ms, 1000);
    assert_int_equal(p.ended_ms, 2000);
    assert_int_equal(p.next_seq, 4);
    assert_true(p.has_exited);
    free_scene(s);
}

static void test_reasons(void **state)
{
    struct scene *s = new_scene(8);
    struct sp_history_entry p;

    (void)state;
    sp_history_remember(s->history, &s->proc); /* killed with its session: no exit is known */
    sp_ring_exited(&s->ring, &(struct sp_exit){.code = 137, .signal = 9});
    read_log(s);
    sp_history_remember(s->history, &s->proc);
    s->proc.was_terminated = true;
    sp_history_remember(s->history, &s->proc);
    s->proc.is_lost = true;
    s->proc.state.exit = (struct sp_exit){.code = -1};
    sp_history_remember(s->history, &s->proc);
    static const enum sp_history_reason want[] = {SP_HISTORY_SESSION_ENDED, SP_HISTORY_SIGNALED,
                                                  SP_HISTORY_TERMINATED, SP_HISTORY_LOST};
    for (uint64_t id = 1; id <= 4; id++) {
        assert_true(sp_history_get(s->history, id, &p));
        assert_int_equal(p.reason, want[id - 1]);
    }
    free_scene(s);
}

static void test_the_newest_entries_stay(void **state)
{
    struct scene *s = new_scene(4);
    struct sp_history_entry p;

    (void)state;
    for (int i = 0; i < 6; i++)
        sp_history_remember(s->history, &s->proc);
    uint64_t before = UINT64_MAX;
    for (uint64_t want = 6; want > 2; want--) {
        assert_true(sp_history_before(s->history, before, &p));
        assert_int_equal(p.id, want);
        before = p.id;
    }
    assert_false(sp_history_before(s->history, before, &p));
    assert_true(sp_history_remove(s->history, 4));
    assert_false(sp_history_remove(s->history, 4));
    assert_false(sp_history_remove(s->history, 2));
    assert_true(sp_history_before(s->history, 5, &p));
    assert_int_equal(p.id, 3);
    free_scene(s);
}

/* Adjacent records of one stream are one chunk, in the order of arrival. */
static void test_output_is_joined(void **state)
{
    struct scene *s = new_scene(4);
    char text[256];
    struct sp_history_entry p;

    (void)state;
    put(s, SP_STREAM_STDOUT, 'a', 3);
    put(s, SP_STREAM_STDOUT, 'b', 2);
    put(s, SP_STREAM_STDERR, 'c', 1);
    put(s, SP_STREAM_STDOUT, 'd', 1);
    end_proc(s, 0);
    sp_history_remember(s->history, &s->proc);
    describe_output(s, 1, text, sizeof text);
    assert_string_equal(text, "0:a^3b^2 1:c^1 0:d^1");
    assert_true(sp_history_get(s->history, 1, &p));
    assert_int_equal(p.missed_bytes + p.missed_records, 0);
    assert_int_equal(p.kept_records, 4);
    free_scene(s);
}

static void test_the_end_of_the_output_is_kept(void **state)
{
    struct scene *s = new_scene(4);
    char text[256];
    struct sp_history_entry p;

    (void)state;
    put(s, SP_STREAM_STDOUT, 'a', 100);
    put(s, SP_STREAM_STDOUT, 'b', 50000);
    put(s, SP_STREAM_STDOUT, 'c', 60000);
    end_proc(s, 0);
    sp_history_remember(s->history, &s->proc);
    describe_output(s, 1, text, sizeof text);
    assert_string_equal(text, "0:b^5536c^60000");
    assert_true(sp_history_get(s->history, 1, &p));
    assert_int_equal(p.kept_bytes, SP_HISTORY_OUTPUT);
    assert_int_equal(p.missed_bytes, 100 + 50000 - 5536);
    assert_int_equal(p.missed_records, 2); /* one of them in part */
    free_scene(s);
}

/* Streams that alternate byte by byte: the number of chunks is bounded, the newest are kept. */
static void test_many_chunks(void **state)
{
    struct scene *s = new_scene(4);
    auto_buf struct sp_buf out = {0};
    struct sp_history_chunk c;
    struct sp_history_entry p;
    uint64_t seq = 0;
    unsigned n = 0;

    (void)state;
    for (int i = 0; i < 1000; i++)
        put(s, i % 2 == 0 ? SP_STREAM_STDOUT : SP_STREAM_STDERR, 'x', 1);
    sp_history_remember(s->history, &s->proc);
    assert_true(sp_history_get(s->history, 1, &p));
    assert_true(sp_history_output(s->history, &p, &out));
    for (struct sp_str rest = sp_buf_str(&out); sp_history_chunk_next(&rest, &c); n++)
        seq = c.seq;
    assert_int_equal(n, 256);
    assert_int_equal(seq, 1000);
    assert_int_equal(p.missed_records, 744);
    assert_int_equal(p.missed_bytes, 744);
    free_scene(s);
}

static unsigned count_outputs(const struct scene *s, uint64_t *oldest)
{
    unsigned n = 0;
    struct sp_history_entry p;

    for (uint64_t before = UINT64_MAX; sp_history_before(s->history, before, &p); before = p.id)
        if (p.kept_bytes > 0) {
            *oldest = p.id;
            n++;
        } else {
            assert_int_equal(p.missed_bytes, SP_HISTORY_OUTPUT); /* the entry stays, and says so */
        }
    return n;
}

static void test_the_oldest_output_goes_first(void **state)
{
    struct scene *s = new_scene(600);
    uint64_t oldest = 0;
    char text[64];

    (void)state;
    put(s, SP_STREAM_PTY, 'z', SP_HISTORY_OUTPUT);
    for (int i = 0; i < 600; i++)
        sp_history_remember(s->history, &s->proc);
    const unsigned n = count_outputs(s, &oldest);
    assert_true(n >= 240 && n <= 256); /* 16 MiB */
    assert_int_equal(oldest, 600 - n + 1);
    describe_output(s, oldest, text, sizeof text);
    assert_string_equal(text, "2:z^65536");
    /* What is removed makes room again, and nothing else is evicted for it. */
    for (uint64_t id = oldest; id < oldest + 10; id++)
        assert_true(sp_history_remove(s->history, id));
    for (int i = 0; i < 10; i++)
        sp_history_remember(s->history, &s->proc);
    assert_int_equal(count_outputs(s, &oldest), n);
    free_scene(s);
}

static bool is_in_file(const struct scene *s, const char *text)
{
    return memmem(s->file, s->file_size, text, strlen(text)) != NULL;
}

static void test_a_removed_entry_is_wiped(void **state)
{
    struct scene *s = new_scene(4);

    (void)state;
    memcpy(sp_ring_room(&s->ring), "the password", 12);
    sp_ring_output(&s->ring, SP_STREAM_STDOUT, 12);
    read_log(s);
    sp_history_remember(s->history, &s->proc);
    assert_true(is_in_file(s, "the password") && is_in_file(s, "make all"));
    assert_true(sp_history_remove(s->history, 1));
    assert_false(is_in_file(s, "the password") || is_in_file(s, "make all"));
    free_scene(s);
}

static void test_long_texts_are_truncated(void **state)
{
    struct scene *s = new_scene(4);
    char *const id = malloc(70000);
    struct sp_history_entry p;

    (void)state;
    assert_non_null(id);
    memset(id, 'i', 70000);
    s->proc.id = (struct sp_str){id, 70000};
    s->proc.strings.len = 0;
    for (int i = 0; i < 3000; i++)
        assert_true(sp_buf_add(&s->proc.strings, "/", 1));
    assert_true(sp_buf_add(&s->proc.strings, "\0/bin/sh\0sh", 12));
    for (int i = 0; i < 3000; i++)
        assert_true(sp_buf_add(&s->proc.strings, "word\0", 5));
    sp_history_remember(s->history, &s->proc);
    assert_true(sp_history_get(s->history, 1, &p));
    assert_int_equal(p.process.n, 256);
    assert_int_equal(p.cwd.n, 512);
    assert_true(p.argv.n > 500 && p.argv.n < SP_HISTORY_TEXT);
    assert_int_equal(p.argv.p[p.argv.n - 1], 0);
    free(id);
    free_scene(s);
}

/* Whatever another process writes to the file: a reader stays inside of it, and returns strings
 * inside of the copy. */
static void test_a_corrupted_file(void **state)
{
    struct scene *s = new_scene(4);
    const size_t entry = 4096 + 2304; /* of id 1 */
    uint8_t good[2304];
    unsigned refused = 0;
    struct sp_history_entry p;

    (void)state;
    put(s, SP_STREAM_STDOUT, 'a', 5000);
    end_proc(s, 0);
    sp_history_remember(s->history, &s->proc);
    memcpy(good, s->file + entry, sizeof good);
    for (size_t i = 0; i < 420; i++) {
        static const uint8_t bad[] = {0, 1, 0x7F, 0x80, 0xFF};

        for (size_t k = 0; k < sizeof bad; k++) {
            auto_buf struct sp_buf out = {0};
            struct sp_history_chunk c;

            memset(s->file + entry + i, bad[k], 1 + i % 8);
            if (!sp_history_get(s->history, 1, &p)) {
                refused++;
            } else {
                assert_true(p.process.p >= p.text && p.argv.p + p.argv.n <= p.text + sizeof p.text);
                assert_true(p.argv.n == 0 || p.argv.p[p.argv.n - 1] == 0);
                assert_true(sp_history_output(s->history, &p, &out));
                assert_true(out.len <= SP_HISTORY_OUTPUT * 2);
                for (struct sp_str rest = sp_buf_str(&out); sp_history_chunk_next(&rest, &c);)
                    assert_true(c.bytes.p + c.bytes.n <= out.data + out.len);
            }
            memcpy(s->file + entry, good, sizeof good);
        }
    }
    assert_true(refused > 100);
    assert_true(sp_history_get(s->history, 1, &p));
    memset(s->file + entry, 0, 8); /* half written: not published */
    assert_false(sp_history_get(s->history, 1, &p));
    assert_false(sp_history_before(s->history, UINT64_MAX, &p));
    free_scene(s);
}

/* A chunk that claims more than there is, or a stream that does not exist, ends the output. */
static void test_corrupted_chunks(void **state)
{
    struct scene *s = new_scene(4);
    const size_t block = 4096 + 4 * 2304; /* the first one that is used */
    char text[64];

    (void)state;
    put(s, SP_STREAM_STDOUT, 'a', 10);
    put(s, SP_STREAM_STDERR, 'b', 10);
    sp_history_remember(s->history, &s->proc);
    describe_output(s, 1, text, sizeof text);
    assert_string_equal(text, "0:a^10 1:b^10");
    memset(s->file + block + 24 + 10 + 20, 9, 1);
    describe_output(s, 1, text, sizeof text);
    assert_string_equal(text, "0:a^10");
    memset(s->file + block + 16, 0xFF, 4);
    describe_output(s, 1, text, sizeof text);
    assert_string_equal(text, "");
    free_scene(s);
}

/* ---- an heir ---- */

static void succeed(struct scene *s)
{
    struct sp_history *heir;
    struct sp_err e;

    if (sp_history_open(dup(sp_history_fd(s->history)), &heir, &e) != 0)
        fail_msg("%s", e.msg);
    sp_history_free(s->history);
    s->history = heir;
}

static void test_an_heir_has_all_of_it(void **state)
{
    struct scene *s = new_scene(600);
    struct sp_history_entry p;
    uint64_t oldest = 0;
    uint64_t oldest_then = 0;
    char text[64];

    (void)state;
    succeed(s);
    assert_false(sp_history_before(s->history, UINT64_MAX, &p));
    put(s, SP_STREAM_PTY, 'z', SP_HISTORY_OUTPUT);
    for (int i = 0; i < 1000; i++)
        sp_history_remember(s->history, &s->proc);
    assert_true(sp_history_remove(s->history, 990));
    const unsigned n = count_outputs(s, &oldest);
    succeed(s);
    assert_int_equal(count_outputs(s, &oldest_then), n);
    assert_int_equal(oldest, oldest_then);
    describe_output(s, 1000, text, sizeof text);
    assert_string_equal(text, "2:z^65536");
    assert_false(sp_history_get(s->history, 990, &p));
    assert_false(sp_history_get(s->history, 400, &p)); /* the entry of 1000 */
    for (int i = 0; i < 300; i++)
        sp_history_remember(s->history, &s->proc);
    assert_true(sp_history_before(s->history, UINT64_MAX, &p));
    assert_int_equal(p.id, 1300);
    assert_in_range(count_outputs(s, &oldest), n, n + 1);
    free_scene(s);
}

static void test_an_heir_believes_nothing(void **state)
{
    struct scene *s = new_scene(64);
    struct sp_history_entry p;
    uint64_t seed = 5;

    (void)state;
    put(s, SP_STREAM_PTY, 'z', 9000);
    for (unsigned round = 0; round < 200; round++) {
        for (int i = 0; i < 40; i++)
            sp_history_remember(s->history, &s->proc);
        for (unsigned i = 0; i < 50; i++) { /* in the entries, also their ids and blocks */
            const size_t at = 4096 + test_random(&seed) % (64 * 2304);
            s->file[at] = (uint8_t)test_random(&seed);
        }
        succeed(s);
        for (uint64_t before = UINT64_MAX; sp_history_before(s->history, before, &p);
             before = p.id) {
            auto_buf struct sp_buf out = {0};

            assert_true(sp_history_output(s->history, &p, &out));
        }
    }
    s->file[9] = 77; /* the version */
    struct sp_history *heir;
    const int fd = dup(sp_history_fd(s->history));
    assert_int_equal(sp_history_open(fd, &heir, NULL), -SP_E_MALFORMED);
    assert_int_equal(close(fd), 0);
    free_scene(s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_an_heir_has_all_of_it),
    cmocka_unit_test(test_an_heir_believes_nothing),
    cmocka_unit_test(test_an_entry_has_all_facts),
    cmocka_unit_test(test_reasons),
    cmocka_unit_test(test_the_newest_entries_stay),
    cmocka_unit_test(test_output_is_joined),
    cmocka_unit_test(test_the_end_of_the_output_is_kept),
    cmocka_unit_test(test_many_chunks),
    cmocka_unit_test(test_the_oldest_output_goes_first),
    cmocka_unit_test(test_a_removed_entry_is_wiped),
    cmocka_unit_test(test_long_texts_are_truncated),
    cmocka_unit_test(test_a_corrupted_file),
    cmocka_unit_test(test_corrupted_chunks),
};

TEST_MAIN(tests)
