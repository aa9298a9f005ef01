/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring against a model that keeps every record, against
 * memory that a hostile writer left, and across two processes. The source is included: the tests
 * corrupt what only it can see.
 */
#include "bell_fixture.h"
#include "cell/bell.h"
#include "cell/ring.c" /* NOLINT: see above */
#include "process_fixture.h"
#include "ring_fixture.h"

/* ---- what the output is: any record's bytes follow from its place in the stream ---- */

#define PERIOD 4093U
static uint8_t pattern[SP_RING_CHUNK + PERIOD];

static int make_pattern(void **state)
{
    uint64_t seed = 42;

    (void)state;
    for (size_t i = 0; i < sizeof pattern; i++)
        pattern[i] = (uint8_t)test_random(&seed);
    return 0;
}

static const uint8_t *bytes_at(uint64_t offset)
{
    return pattern + offset % PERIOD;
}

static void put_output(struct sp_ring *r, enum sp_stream stream, uint32_t len)
{
    uint8_t *room = sp_ring_room(r);

    memcpy(room, bytes_at(r->bytes), len);
    sp_ring_output(r, stream, len);
}

/* ---- the model: every record ever, and which of them are kept ---- */

struct model_record {
    uint64_t bytes_before;
    uint32_t len;
    enum sp_record_type type;
    enum sp_stream stream;
};

struct model {
    struct model_record *all; /* all[i] has number i + 1 */
    size_t count, cap;
    size_t first; /* the oldest that is kept */
    size_t evict; /* where eviction goes on */
    uint64_t kept_bytes, kept_chunks;
    uint64_t bytes, dropped;
    uint64_t exit_seq, closed_seq;
};

static void model_add(struct model *m, enum sp_record_type type, enum sp_stream stream,
                      uint32_t len)
{
    if (m->count == m->cap) {
        m->cap = m->cap == 0 ? 1024 : m->cap * 2;
        m->all = realloc(m->all, m->cap * sizeof *m->all);
        assert_non_null(m->all);
    }
    m->all[m->count++] =
        (struct model_record){.bytes_before = m->bytes, .len = len, .type = type, .stream = stream};
    if (type != SP_RECORD_OUTPUT)
        return;
    m->bytes += len;
    m->kept_bytes += len;
    m->kept_chunks++;
    for (; m->kept_bytes > 1048576 || m->kept_chunks > 50000; m->evict++) {
        const struct model_record *old = &m->all[m->evict];

        if (old->type != SP_RECORD_OUTPUT)
            continue;
        m->kept_bytes -= old->len;
        m->kept_chunks--;
        m->dropped += old->len;
        m->first = m->evict + 1;
    }
}

struct reader {
    struct sp_ring_cursor at;
    size_t next; /* in the model */
    uint64_t missed_records, missed_bytes;
};

static void check_record(const struct sp_ring_view *v, const struct model *m, size_t i,
                         const struct sp_record *r)
{
    const struct model_record *want = &m->all[i];

    assert_int_equal(r->seq, i + 1);
    assert_int_equal(r->type, want->type);
    assert_int_equal(r->bytes_before, want->bytes_before);
    assert_true(r->data >= v->data && r->data + r->len <= v->data + AREA);
    assert_true(sp_ring_is_intact(v, r));
    if (want->type != SP_RECORD_OUTPUT)
        return;
    assert_int_equal(r->len, want->len);
    assert_int_equal(r->stream, want->stream);
    assert_memory_equal(r->data, bytes_at(want->bytes_before), want->len);
}

/* One record for this reader; false: it has read all. */
static bool read_one(const struct sp_ring_view *v, const struct model *m, struct reader *r)
{
    struct sp_record rec;
    const int more = sp_ring_next(v, &r->at, &rec);

    if (r->next == m->count) {
        assert_int_equal(more, 0);
        return false;
    }
    assert_int_equal(more, 1);
    if (r->next < m->first) {
        const uint64_t had =
            r->next == 0
                ? 0
                : m->all[r->next - 1].bytes_before +
                      (m->all[r->next - 1].type == SP_RECORD_OUTPUT ? m->all[r->next - 1].len : 0);

        r->missed_records += m->first - r->next;
        r->missed_bytes += m->all[m->first].bytes_before - had;
        r->next = m->first;
    }
    check_record(v, m, r->next, &rec);
    r->next++;
    assert_int_equal(r->at.seq, r->next);
    assert_int_equal(r->at.missed_records, r->missed_records);
    assert_int_equal(r->at.missed_bytes, r->missed_bytes);
    return true;
}

static void check_all(const struct sp_ring_view *v, const struct model *m)
{
    struct reader fresh = {0};
    struct reader tail = {0};
    struct sp_ring_state s;
    size_t n = 0;

    while (read_one(v, m, &fresh))
        n++;
    assert_int_equal(n, m->count - m->first);
    assert_int_equal(sp_ring_catch_up(v, &tail.at, &s), 0);
    assert_memory_equal(&tail.at, &fresh.at, sizeof tail.at);
    assert_int_equal(s.exit_seq, m->exit_seq);
    assert_int_equal(s.closed_seq, m->closed_seq);
    assert_int_equal(s.dropped_bytes, m->dropped);
    if (m->exit_seq != 0)
        assert_int_equal(s.exit.code, 7);
}

/* ---- random lives ---- */

enum size_kind { TINY, SMALL, ODD, LARGE, FULL, ANY, SIZE_KINDS };

static uint32_t a_size(enum size_kind kind, uint64_t *seed)
{
    switch (kind) {
    case TINY:
        return 1;
    case SMALL:
        return 1 + test_random(seed) % 40;
    case ODD: /* the most padding */
        return test_random(seed) % 2 == 0 ? 17 : 25;
    case LARGE:
        return 30000 + test_random(seed) % (SP_RING_CHUNK - 30000);
    case FULL:
        return SP_RING_CHUNK - (test_random(seed) % 4) * 8;
    case ANY:
    case SIZE_KINDS:
        break;
    }
    return 1 + (test_random(seed) % SP_RING_CHUNK) / (1 + test_random(seed) % 200);
}

#define READERS 5

struct life {
    struct rings rings;
    struct sp_ring ring;
    struct sp_ring_view view;
    struct model model;
    struct reader readers[READERS];
};

static void life_step(struct life *l, enum size_kind kind, uint64_t *seed)
{
    const uint32_t what = test_random(seed) % 1000;

    if (what < 900) {
        const uint32_t len = a_size(kind, seed);
        const enum sp_stream stream = (enum sp_stream)(test_random(seed) % SP_STREAM_MAX);

        put_output(&l->ring, stream, len);
        model_add(&l->model, SP_RECORD_OUTPUT, stream, len);
    } else if (what < 901) {
        if (test_random(seed) % 8 != 0)
            return;
        /* A whole read's worth of room is written to, and nothing is published: nothing is lost. */
        memset(sp_ring_room(&l->ring), 0xA5, SP_RING_CHUNK);
        check_all(&l->view, &l->model);
    } else if (what < 910) {
        const bool is_paused = test_random(seed) % 2 == 0;

        sp_ring_set_paused(&l->ring, is_paused);
        assert_int_equal(sp_ring_is_paused(&l->view), is_paused);
    } else {
        struct reader *r = &l->readers[test_random(seed) % READERS];

        for (uint32_t n = test_random(seed) % (1U << (4 * (r - l->readers))); n > 0; n--)
            if (!read_one(&l->view, &l->model, r))
                break;
    }
}

static void begin_life(struct life *l)
{
    *l = (struct life){.rings = make_rings()};
    begin_ring(&l->rings, 5, 99, &l->ring, &l->view);
}

static void end_life(struct life *l)
{
    sp_ring_view_close(&l->view);
    drop_rings(&l->rings);
    free(l->model.all);
}

static void exit_now(struct life *l)
{
    const struct sp_exit how = {.code = 7};

    sp_ring_exited(&l->ring, &how);
    l->model.exit_seq = l->model.count + 1;
    model_add(&l->model, SP_RECORD_EXITED, SP_STREAM_STDOUT, sizeof how);
}

static void close_now(struct life *l)
{
    sp_ring_closed(&l->ring);
    l->model.closed_seq = l->model.count + 1;
    model_add(&l->model, SP_RECORD_CLOSED, SP_STREAM_STDOUT, 0);
}

static void live(uint64_t seed)
{
    struct life l;

    begin_life(&l);
    print_message("# seed %llu\n", (unsigned long long)seed);
    check_all(&l.view, &l.model);
    for (int phase = 0; phase < 14; phase++) {
        const enum size_kind kind = (enum size_kind)(test_random(&seed) % SIZE_KINDS);
        const int steps = kind < LARGE ? 25000 : 300;

        for (int i = 0; i < steps; i++)
            life_step(&l, kind, &seed);
        check_all(&l.view, &l.model);
        if (phase == 9) {
            exit_now(&l);
            check_all(&l.view, &l.model);
        }
    }
    close_now(&l);
    check_all(&l.view, &l.model);
    for (int i = 0; i < READERS; i++)
        while (read_one(&l.view, &l.model, &l.readers[i])) {
        }
    end_life(&l);
}

static void test_a_random_life_is_the_models(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 5; seed++)
        live(seed * 7919);
}

static void test_what_is_kept_is_the_newest_mebibyte(void **state)
{
    struct life l;

    (void)state;
    begin_life(&l);
    for (int i = 0; i < 16; i++) {
        put_output(&l.ring, SP_STREAM_STDOUT, SP_RING_CHUNK);
        model_add(&l.model, SP_RECORD_OUTPUT, SP_STREAM_STDOUT, SP_RING_CHUNK);
    }
    assert_int_equal(l.model.first, 0); /* exactly 1,048,576 bytes: all are kept */
    check_all(&l.view, &l.model);
    put_output(&l.ring, SP_STREAM_STDOUT, 1);
    model_add(&l.model, SP_RECORD_OUTPUT, SP_STREAM_STDOUT, 1);
    assert_int_equal(l.model.first, 1); /* one byte more: the first chunk is gone */
    check_all(&l.view, &l.model);
    end_life(&l);
}

static void test_what_is_kept_is_fifty_thousand_chunks(void **state)
{
    struct life l;

    (void)state;
    begin_life(&l);
    for (int i = 0; i < 50000; i++) {
        put_output(&l.ring, SP_STREAM_STDERR, 1);
        model_add(&l.model, SP_RECORD_OUTPUT, SP_STREAM_STDERR, 1);
    }
    assert_int_equal(l.model.first, 0);
    check_all(&l.view, &l.model);
    put_output(&l.ring, SP_STREAM_STDERR, 1);
    model_add(&l.model, SP_RECORD_OUTPUT, SP_STREAM_STDERR, 1);
    assert_int_equal(l.model.first, 1);
    check_all(&l.view, &l.model);
    end_life(&l);
}

/* The most that headers and padding can take, with a read's room and both end records on top. */
static void test_the_fullest_ring_still_has_room(void **state)
{
    struct life l;

    (void)state;
    begin_life(&l);
    for (int i = 0; i < 150000; i++) {
        const uint32_t len = i % 2 == 0 ? 17 : 24; /* 20.5 on average: under 1 MiB in all */

        put_output(&l.ring, SP_STREAM_STDOUT, len);
        model_add(&l.model, SP_RECORD_OUTPUT, SP_STREAM_STDOUT, len);
        if (i > 49990 && i % 5003 == 0) {
            assert_int_equal(l.model.kept_chunks, 50000);
            memset(sp_ring_room(&l.ring), 0xEE, SP_RING_CHUNK);
            check_all(&l.view, &l.model);
        }
    }
    exit_now(&l);
    memset(sp_ring_room(&l.ring), 0xEE, SP_RING_CHUNK);
    close_now(&l);
    memset(sp_ring_room(&l.ring), 0xEE, SP_RING_CHUNK);
    check_all(&l.view, &l.model);
    end_life(&l);
}

/* Writes until exactly `left` bytes remain before the end of the area. */
static void fill_until(struct life *l, uint64_t left)
{
    for (;;) {
        const uint64_t now = AREA - l->ring.end % AREA;
        uint32_t len = SP_RING_CHUNK;

        assert_true(now > left);
        if (now == left + LARGEST)
            len = SP_RING_CHUNK;
        else if (now < left + 2 * LARGEST + 32)
            len = (uint32_t)((now - left - LARGEST >= 32 + LARGEST ? LARGEST / 2
                                                                   : now - left - LARGEST) -
                             RECORD_HEADER);
        put_output(&l->ring, SP_STREAM_STDOUT, len);
        model_add(&l->model, SP_RECORD_OUTPUT, SP_STREAM_STDOUT, len);
        if (AREA - l->ring.end % AREA == left)
            return;
    }
}

static void test_every_tail_of_the_area_is_skipped(void **state)
{
    (void)state;
    for (uint64_t left = 8; left <= 96; left += 8)
        for (int what = 0; what < 3; what++) {
            struct life l;

            begin_life(&l);
            fill_until(&l, left);
            if (what == 1)
                exit_now(&l);
            if (what == 2)
                close_now(&l);
            put_output(&l.ring, SP_STREAM_STDERR, 100);
            model_add(&l.model, SP_RECORD_OUTPUT, SP_STREAM_STDERR, 100);
            check_all(&l.view, &l.model);
            for (int i = 0; i < 40; i++) { /* until the tail is forgotten too */
                put_output(&l.ring, SP_STREAM_STDOUT, 60000);
                model_add(&l.model, SP_RECORD_OUTPUT, SP_STREAM_STDOUT, 60000);
            }
            check_all(&l.view, &l.model);
            end_life(&l);
        }
}

/* ---- facts ---- */

static void test_a_new_ring_says_nothing(void **state)
{
    struct sp_ring_cursor at = {0};
    struct sp_ring_state s;
    struct sp_record r;
    struct life l;

    (void)state;
    begin_life(&l);
    assert_int_equal(sp_ring_next(&l.view, &at, &r), 0);
    assert_int_equal(sp_ring_catch_up(&l.view, &at, &s), 0);
    assert_int_equal(s.exit_seq, 0);
    assert_int_equal(s.closed_seq, 0);
    assert_int_equal(s.dropped_bytes, 0);
    assert_false(sp_ring_is_paused(&l.view));
    end_life(&l);
}

static void test_the_exit_is_told_as_it_was_written(void **state)
{
    const struct sp_exit how = {
        .code = 139, .signal = 11, .has_core = 1, .max_rss_kb = 77, .user_us = 1, .system_us = 2};
    struct sp_ring_cursor at = {0};
    struct sp_ring_state s;
    struct sp_record r;
    struct life l;

    (void)state;
    begin_life(&l);
    sp_ring_exited(&l.ring, &how);
    assert_int_equal(sp_ring_next(&l.view, &at, &r), 1);
    assert_int_equal(r.type, SP_RECORD_EXITED);
    assert_int_equal(r.len, sizeof how);
    assert_memory_equal(r.data, &how, sizeof how);
    assert_int_equal(sp_ring_catch_up(&l.view, &at, &s), 0);
    assert_int_equal(s.exit_seq, 1);
    assert_int_equal(s.closed_seq, 0);
    assert_memory_equal(&s.exit, &how, sizeof how);
    end_life(&l);
}

static void test_a_ring_leaves_no_descriptor_and_no_mapping(void **state)
{
    const int before = open_fds();
    struct life l;

    (void)state;
    begin_life(&l);
    assert_int_equal(open_fds(), before + 1);
    end_life(&l);
    assert_int_equal(open_fds(), before);
    sp_ring_view_close(&l.view); /* accepts none */
}

/* ---- hostile memory ---- */

#define SIZE ((off_t)SP_SEGMENT_RINGS * SP_RING_HEADER + 8 * (off_t)SP_RING_AREA)

static void refuses(int seals, off_t size, int want)
{
    int fd = memfd_create("sallyport-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    struct sp_segment *s = NULL;
    struct sp_err e = {0};

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, size), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    assert_int_equal(sp_segment_take(&fd, true, &s, &e), want);
    if (want != 0) {
        assert_string_not_equal(e.msg, "");
        assert_null(s);
        (void)close(fd);
    }
    sp_segment_drop(s);
}

static void test_only_sealed_memory_of_the_right_size_is_taken(void **state)
{
    const int all = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    struct sp_segment *s;
    int fd[2];

    (void)state;
    refuses(all, SIZE, 0);
    refuses(0, SIZE, -SP_E_MALFORMED);
    refuses(all & ~F_SEAL_SHRINK, SIZE, -SP_E_MALFORMED);
    refuses(all & ~F_SEAL_GROW, SIZE, -SP_E_MALFORMED);
    refuses(all & ~F_SEAL_SEAL, SIZE, -SP_E_MALFORMED);
    refuses(all, SIZE - 7 * (off_t)SP_RING_AREA, 0);
    refuses(all, SIZE - 8 * (off_t)SP_RING_AREA, -SP_E_MALFORMED);
    refuses(all, SIZE + 56 * (off_t)SP_RING_AREA, 0);
    refuses(all, SIZE + 57 * (off_t)SP_RING_AREA, -SP_E_MALFORMED);
    refuses(all, 0, -SP_E_MALFORMED);
    refuses(all, SIZE - 1, -SP_E_MALFORMED);
    refuses(all, SIZE - 4096, -SP_E_MALFORMED);
    refuses(all, SIZE + 1, -SP_E_MALFORMED);
    /* Not a memfd at all. */
    assert_int_equal(pipe2(fd, O_CLOEXEC), 0);
    assert_int_equal(sp_segment_take(&fd[0], true, &s, NULL), -SP_E_MALFORMED);
    assert_int_equal(sp_segment_take(&(int){-1}, true, &s, NULL), -SP_E_MALFORMED);
    (void)close(fd[0]);
    (void)close(fd[1]);
}

/* The kernel holds the cell to its size, and the front's reads of a hole are zeros. */
static void test_a_segment_cannot_change_its_size(void **state)
{
    struct rings s = make_rings();

    (void)state;
    assert_int_equal(ftruncate(s.cell->fd, SIZE - 4096), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(ftruncate(s.cell->fd, SIZE + 4096), -1);
    assert_int_equal(errno, EPERM);
    drop_rings(&s);
}

static void test_only_the_process_that_was_asked_for_is_read(void **state)
{
    struct rings s = make_rings();
    struct sp_ring_view v = {0};
    struct sp_ring r = {0};

    (void)state;
    assert_int_equal(sp_ring_view_open(s.front, 7, 0, &v, NULL), -SP_E_MALFORMED); /* none yet */
    begin_ring(&s, 7, 41, &r, &v);
    sp_ring_view_close(&v);
    assert_int_equal(sp_ring_view_open(s.front, 7, 42, &v, NULL), -SP_E_MALFORMED);
    assert_int_equal(sp_ring_view_open(s.front, 6, 41, &v, NULL), -SP_E_MALFORMED);
    assert_null(v.head);
    drop_rings(&s);
}

/* The ring after three records of 100 bytes (128 with header and padding), for a test to spoil. */
static void begin_spoiled(struct life *l)
{
    begin_life(l);
    for (int i = 0; i < 3; i++)
        put_output(&l->ring, SP_STREAM_STDOUT, 100);
}

#define THREE (3 * PADDED(100))

static void set_end(struct life *l, uint64_t end)
{
    atomic_store(&l->ring.head->end, end);
}

static void set_oldest(struct life *l, uint64_t oldest)
{
    atomic_store(&l->ring.head->oldest, oldest);
}

static struct record_header *header_of(struct life *l, int i)
{
    return header_at(&l->ring, (uint64_t)i * PADDED(100));
}

/* Reads what it says, looks at every byte of it, and returns how it ended. */
static int read_all(const struct life *l, uint64_t *ret_records)
{
    struct sp_ring_cursor at = {0};
    struct sp_record r;
    int more;

    for (*ret_records = 0; (more = sp_ring_next(&l->view, &at, &r)) > 0; ++*ret_records) {
        volatile uint8_t sink = 0;

        CHILD_CHECK(r.len <= SP_RING_CHUNK && r.stream < SP_STREAM_MAX);
        CHILD_CHECK(r.type >= SP_RECORD_OUTPUT && r.type <= SP_RECORD_CLOSED);
        CHILD_CHECK(r.data >= l->view.data && r.data + r.len <= l->view.data + AREA);
        for (uint32_t i = 0; i < r.len; i++)
            sink = (uint8_t)(sink ^ r.data[i]);
        (void)sink;
    }
    return more;
}

/* In a child with a deadline: a reader that never comes back must not stop the tests. */
static void ends_with(const struct life *l, int want, uint64_t want_records)
{
    const pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        struct sp_ring_cursor at = {0};
        struct sp_ring_state s;
        uint64_t records;

        CHILD_CHECK(read_all(l, &records) == want);
        CHILD_CHECK(records == want_records);
        CHILD_CHECK(sp_ring_catch_up(&l->view, &at, &s) == want);
        _exit(0);
    }
    assert_int_equal(reap(pid, 2000), 0);
}

static void test_broken_positions_are_malformed(void **state)
{
    struct life l;

    (void)state;
    begin_spoiled(&l);
    ends_with(&l, 0, 3);
    set_end(&l, THREE + 4); /* not aligned */
    ends_with(&l, -SP_E_MALFORMED, 0);
    set_end(&l, THREE);
    set_oldest(&l, 4);
    ends_with(&l, -SP_E_MALFORMED, 0);
    set_oldest(&l, THREE + 8); /* behind the end */
    ends_with(&l, -SP_E_MALFORMED, 0);
    set_oldest(&l, THREE);
    ends_with(&l, 0, 0); /* everything forgotten */
    set_oldest(&l, 0);
    set_end(&l, THREE - 8); /* in the middle of the last */
    ends_with(&l, -SP_E_MALFORMED, 2);
    set_end(&l, THREE + 8); /* less than a header more */
    ends_with(&l, -SP_E_MALFORMED, 3);
    end_life(&l);
}

static void test_an_end_that_goes_back_is_malformed(void **state)
{
    struct sp_ring_cursor at = {0};
    struct sp_record r;
    struct life l;

    (void)state;
    begin_spoiled(&l);
    for (int i = 0; i < 3; i++)
        assert_int_equal(sp_ring_next(&l.view, &at, &r), 1);
    set_end(&l, PADDED(100));
    assert_int_equal(sp_ring_next(&l.view, &at, &r), -SP_E_MALFORMED);
    set_end(&l, 0);
    assert_int_equal(sp_ring_next(&l.view, &at, &r), -SP_E_MALFORMED);
    end_life(&l);
}

/* More between oldest and end than the area holds cannot be, whatever is written there. */
static void test_a_log_longer_than_the_area_is_malformed(void **state)
{
    struct life l;

    (void)state;
    begin_spoiled(&l);
    *header_of(&l, 0) =
        (struct record_header){.len = (uint32_t)AREA - RECORD_HEADER, .type = SP_RECORD_PAD};
    set_end(&l, (uint64_t)1 << 63);
    ends_with(&l, -SP_E_MALFORMED, 0);
    set_end(&l, UINT64_MAX - 7);
    ends_with(&l, -SP_E_MALFORMED, 0);
    set_end(&l, 2 * AREA);
    ends_with(&l, -SP_E_MALFORMED, 0);
    end_life(&l);
}

static void test_broken_records_are_malformed(void **state)
{
    static const struct {
        struct record_header h;
        int want;
        uint64_t records;
    } c[] = {
        {{.seq = 2, .bytes_before = 100, .len = 100, .type = 0}, -SP_E_MALFORMED, 1},
        {{.seq = 2, .bytes_before = 100, .len = 100, .type = 5}, -SP_E_MALFORMED, 1},
        {{.seq = 2, .bytes_before = 100, .len = 100, .type = 255}, -SP_E_MALFORMED, 1},
        {{.seq = 2, .bytes_before = 100, .len = 100, .type = 1, .stream = 3}, -SP_E_MALFORMED, 1},
        {{.seq = 2, .bytes_before = 100, .len = 300, .type = 1}, -SP_E_MALFORMED, 1},
        {{.seq = 2, .bytes_before = 100, .len = SP_RING_CHUNK + 1, .type = 1}, -SP_E_MALFORMED, 1},
        {{.seq = 2, .bytes_before = 100, .len = UINT32_MAX, .type = 1}, -SP_E_MALFORMED, 1},
        {{.seq = 2, .bytes_before = 100, .len = UINT32_MAX - 30, .type = 4}, -SP_E_MALFORMED, 1},
        {{.seq = 2, .bytes_before = 100, .len = 100, .type = 2}, -SP_E_MALFORMED, 1},
        {{.seq = 1, .bytes_before = 100, .len = 100, .type = 1}, -SP_E_MALFORMED, 1},
        {{.seq = 0, .bytes_before = 100, .len = 100, .type = 1}, -SP_E_MALFORMED, 1},
        {{.seq = 2, .bytes_before = 99, .len = 100, .type = 1}, -SP_E_MALFORMED, 1},
        {{.seq = 5, .bytes_before = 100, .len = 100, .type = 1}, -SP_E_MALFORMED, 2},
        /* A shorter one, whose rest is taken for a record. */
        {{.seq = 2, .bytes_before = 100, .len = 8, .type = 1}, -SP_E_MALFORMED, 2},
    };

    (void)state;
    for (size_t i = 0; i < sizeof c / sizeof c[0]; i++) {
        struct life l;

        begin_spoiled(&l);
        *header_of(&l, 1) = c[i].h;
        if (i == sizeof c / sizeof c[0] - 1)
            memset((uint8_t *)header_of(&l, 1) + PADDED(8), 0xFF, 64);
        print_message("# record %zu\n", i);
        ends_with(&l, c[i].want, c[i].records);
        end_life(&l);
    }
}

/* A record may not reach over the end of the area, however far the log goes. */
static void test_a_record_over_the_edge_is_malformed(void **state)
{
    struct life l;

    (void)state;
    begin_life(&l);
    fill_until(&l, 64);
    put_output(&l.ring, SP_STREAM_STDOUT, SP_RING_CHUNK);
    const uint64_t at = l.ring.end - LARGEST - 64;
    const uint64_t seq = l.ring.seq - 1;
    header_at(&l.ring, at)->len = 64; /* the PAD: 64 bytes are left, this wants 88 */
    set_oldest(&l, at);
    ends_with(&l, -SP_E_MALFORMED, 0);
    *header_at(&l.ring, at) =
        (struct record_header){.seq = seq, .len = 41, .type = SP_RECORD_OUTPUT};
    ends_with(&l, -SP_E_MALFORMED, 0);
    *header_at(&l.ring, at) =
        (struct record_header){.seq = seq, .len = 40, .type = SP_RECORD_OUTPUT};
    ends_with(&l, -SP_E_MALFORMED, 1); /* it fits; the next has the same number */
    end_life(&l);
}

static void test_facts_ahead_of_the_log_are_not_believed(void **state)
{
    struct sp_ring_cursor at = {0};
    struct sp_ring_state s;
    struct life l;

    (void)state;
    begin_spoiled(&l);
    atomic_store(&l.ring.head->exit_seq, 4);
    atomic_store(&l.ring.head->closed_seq, UINT64_MAX);
    assert_int_equal(sp_ring_catch_up(&l.view, &at, &s), 0);
    assert_int_equal(s.exit_seq, 0);
    assert_int_equal(s.closed_seq, 0);
    end_life(&l);
}

/* Any bytes: the reader ends, and looks at nothing but the area. */
static void random_damage(uint64_t seed)
{
    struct life l;

    begin_life(&l);
    for (int i = 0; i < 50; i++)
        put_output(&l.ring, SP_STREAM_STDOUT, a_size(ANY, &seed));
    const uint64_t end = l.ring.end;
    for (int round = 0; round < 400; round++) {
        uint64_t records;

        for (int i = 0; i < 4; i++) {
            const uint64_t at = test_random(&seed) % end & ~(uint64_t)7;
            uint64_t word =
                test_random(&seed) % 3 == 0 ? test_random(&seed) % 200 : test_random(&seed);

            memcpy(l.ring.data + at % AREA, &word, sizeof word);
        }
        if (test_random(&seed) % 4 == 0)
            set_oldest(&l, test_random(&seed) % (end + 100) & ~(uint64_t)7);
        if (test_random(&seed) % 4 == 0)
            set_end(&l, test_random(&seed) % AREA & ~(uint64_t)7);
        const int r = read_all(&l, &records);
        CHILD_CHECK(r == 0 || r == -SP_E_MALFORMED);
        CHILD_CHECK(records <= AREA / RECORD_HEADER);
    }
    _exit(0);
}

static void test_random_damage_harms_no_reader(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        const pid_t pid = fork();

        assert_true(pid >= 0);
        if (pid == 0)
            random_damage(seed);
        const int r = reap(pid, DEADLINE_MS);
        if (r != 0)
            fail_msg("seed %llu: %d", (unsigned long long)seed, r);
    }
}

/* ---- two processes ---- */

static uint32_t len_of(uint64_t seq)
{
    uint64_t seed = seq * 0x9E3779B97F4A7C15U;
    const uint32_t kind = test_random(&seed) % 64;

    return 1 + test_random(&seed) % (kind == 0 ? SP_RING_CHUNK : kind < 8 ? 4096 : 100);
}

#define FLOOD 200000U

struct tally {
    uint64_t seq, bytes; /* of all that was read or missed */
    uint64_t read_records, read_bytes, torn;
    bool has_exited, has_closed;
};

/* A record is what its number says, or was forgotten while we looked. */
static void count_record(struct tally *t, const struct sp_ring_view *v, const struct sp_record *r)
{
    static uint8_t copy[SP_RING_CHUNK];

    memcpy(copy, r->data, r->len);
    const bool is_intact = sp_ring_is_intact(v, r);
    for (uint64_t seq = t->seq + 1; seq < r->seq; seq++)
        t->bytes += seq <= FLOOD ? len_of(seq) : 0;
    t->seq = r->seq;
    assert_int_equal(r->bytes_before, t->bytes);
    t->read_records++;
    if (r->type != SP_RECORD_OUTPUT) {
        t->has_exited = t->has_exited || r->type == SP_RECORD_EXITED;
        t->has_closed = t->has_closed || r->type == SP_RECORD_CLOSED;
        return;
    }
    assert_int_equal(r->len, len_of(r->seq));
    if (is_intact)
        assert_memory_equal(copy, bytes_at(r->bytes_before), r->len);
    else
        t->torn++;
    t->bytes += r->len;
    t->read_bytes += r->len;
}

static void test_a_flood_without_flow_control_is_told_exactly(void **state)
{
    const uint64_t until = test_now_ms() + DEADLINE_MS;
    struct sp_ring_cursor at = {0};
    struct tally t = {0};
    struct sp_record r;
    struct life l;

    (void)state;
    begin_life(&l);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        for (uint64_t seq = 1; seq <= FLOOD; seq++)
            put_output(&l.ring, SP_STREAM_STDOUT, len_of(seq));
        sp_ring_exited(&l.ring, &(struct sp_exit){0});
        sp_ring_closed(&l.ring);
        _exit(0);
    }
    while (!t.has_closed) {
        const int more = sp_ring_next(&l.view, &at, &r);

        assert_true(more >= 0);
        if (more > 0)
            count_record(&t, &l.view, &r);
        if (test_now_ms() >= until)
            fail_msg("%s", "the flood does not end");
    }
    assert_int_equal(reap(pid, DEADLINE_MS), 0);
    assert_int_equal(t.seq, FLOOD + 2);
    assert_int_equal(t.read_records + at.missed_records, FLOOD + 2);
    assert_int_equal(t.read_bytes + at.missed_bytes, t.bytes);
    print_message("# read %llu, missed %llu, torn %llu\n", (unsigned long long)t.read_records,
                  (unsigned long long)at.missed_records, (unsigned long long)t.torn);
    end_life(&l);
}

/* More readers than processors, so that each is interrupted between any two of its looks. */
static void test_an_interrupted_reader_is_told_no_lie(void **state)
{
    enum { CROWD = 6 };
    pid_t crowd[CROWD];
    struct life l;

    (void)state;
    begin_life(&l);
    for (int i = 0; i < CROWD; i++) {
        crowd[i] = fork();
        assert_true(crowd[i] >= 0);
        if (crowd[i] == 0) {
            struct sp_ring_cursor at = {0};
            struct sp_record r = {0};
            struct sp_ring_state s;

            while (r.type != SP_RECORD_CLOSED) {
                const int more = sp_ring_next(&l.view, &at, &r);

                CHILD_CHECK(more >= 0);
                CHILD_CHECK(more == 0 || at.seq > FLOOD || r.len == len_of(at.seq));
                if (i % 2 == 0 && more > 0 && r.type != SP_RECORD_CLOSED)
                    CHILD_CHECK(sp_ring_catch_up(&l.view, &(struct sp_ring_cursor){0}, &s) == 0);
            }
            _exit(0);
        }
    }
    const pid_t writer = fork();
    assert_true(writer >= 0);
    if (writer == 0) {
        const uint64_t until = test_now_ms() + 1500;

        for (uint64_t seq = 1; seq <= FLOOD || test_now_ms() < until; seq++)
            put_output(&l.ring, SP_STREAM_STDOUT, len_of(seq));
        sp_ring_closed(&l.ring);
        _exit(0);
    }
    assert_int_equal(reap(writer, DEADLINE_MS), 0);
    for (int i = 0; i < CROWD; i++)
        assert_int_equal(reap(crowd[i], DEADLINE_MS), 0);
    end_life(&l);
}

static void ignore_slot(void *user, uint32_t slot)
{
    (void)user;
    (void)slot;
}

/* Sleeps as a side does: unless a mark is there, until the other side rings. */
static bool doze(struct sp_bell *b)
{
    bool is_fine = true;

    if (sp_bell_may_sleep(b)) {
        is_fine = wait_fd(b->wake[b->side], POLLIN, DEADLINE_MS);
        sp_bell_drain(b);
    }
    sp_bell_awake(b);
    (void)sp_bell_answer(b, ignore_slot, NULL);
    return is_fine;
}

static bool is_ahead(const struct sp_bell *b, const struct sp_ring *r, uint64_t limit)
{
    struct sp_served served;

    return sp_bell_served(b, 3, &served) && r->end - served.sent > limit;
}

SP_NORETURN static void flood_politely(struct sp_ring *r, struct sp_bell *b, uint64_t *ret_pauses)
{
    for (uint64_t seq = 1; seq <= FLOOD; seq++) {
        put_output(r, SP_STREAM_STDOUT, len_of(seq));
        if (is_ahead(b, r, SP_RING_HIGH_WATER)) {
            sp_ring_set_paused(r, true);
            ring_bell(b, 3);
            if (is_ahead(b, r, SP_RING_HIGH_WATER)) {
                ++*ret_pauses;
                while (is_ahead(b, r, SP_RING_LOW_WATER))
                    CHILD_CHECK(doze(b));
            }
            sp_ring_set_paused(r, false);
        }
        if (seq % 16 == 0)
            ring_bell(b, 3);
    }
    sp_ring_exited(r, &(struct sp_exit){0});
    sp_ring_closed(r);
    ring_bell(b, 3);
    _exit(0);
}

static void test_with_flow_control_nothing_is_missed(void **state)
{
    struct sp_ring_cursor at = {0};
    struct sp_bell front;
    struct sp_bell cell;
    struct tally t = {0};
    struct sp_record r;
    struct life l;
    uint64_t *pauses = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    (void)state;
    assert_true(pauses != MAP_FAILED);
    begin_life(&l);
    assert_int_equal(sp_bell_new(8, &front, NULL), 0);
    sp_bell_serve(&front, 3, true, (struct sp_served){0});
    assert_int_equal(sp_bell_join(front.page_fd, 8, -1, dup(front.wake[SP_SIDE_CELL]), &cell, NULL),
                     0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        flood_politely(&l.ring, &cell, pauses);
    while (!t.has_closed) {
        int more;

        for (int i = 0; i < 100 && (more = sp_ring_next(&l.view, &at, &r)) > 0; i++)
            count_record(&t, &l.view, &r);
        assert_true(more >= 0);
        sp_bell_serve(&front, 3, true, (struct sp_served){at.pos, at.pos});
        if (l.view.head->end - at.pos <= SP_RING_LOW_WATER && sp_ring_is_paused(&l.view))
            ring_bell(&front, 3);
        if (more == 0 && !t.has_closed && !doze(&front))
            fail_msg("no news of record %llu", (unsigned long long)at.seq + 1);
    }
    assert_int_equal(reap(pid, DEADLINE_MS), 0);
    assert_int_equal(at.missed_records, 0);
    assert_int_equal(at.missed_bytes, 0);
    assert_int_equal(t.torn, 0);
    assert_int_equal(t.read_records, FLOOD + 2);
    assert_true(t.has_exited);
    assert_true(*pauses > 0);
    sp_bell_free(&cell);
    sp_bell_free(&front);
    (void)munmap(pauses, 4096);
    end_life(&l);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_a_random_life_is_the_models),
    cmocka_unit_test(test_what_is_kept_is_the_newest_mebibyte),
    cmocka_unit_test(test_what_is_kept_is_fifty_thousand_chunks),
    cmocka_unit_test(test_the_fullest_ring_still_has_room),
    cmocka_unit_test(test_every_tail_of_the_area_is_skipped),
    cmocka_unit_test(test_a_new_ring_says_nothing),
    cmocka_unit_test(test_the_exit_is_told_as_it_was_written),
    cmocka_unit_test(test_a_ring_leaves_no_descriptor_and_no_mapping),
    cmocka_unit_test(test_only_sealed_memory_of_the_right_size_is_taken),
    cmocka_unit_test(test_a_segment_cannot_change_its_size),
    cmocka_unit_test(test_only_the_process_that_was_asked_for_is_read),
    cmocka_unit_test(test_broken_positions_are_malformed),
    cmocka_unit_test(test_an_end_that_goes_back_is_malformed),
    cmocka_unit_test(test_a_log_longer_than_the_area_is_malformed),
    cmocka_unit_test(test_broken_records_are_malformed),
    cmocka_unit_test(test_a_record_over_the_edge_is_malformed),
    cmocka_unit_test(test_facts_ahead_of_the_log_are_not_believed),
    cmocka_unit_test(test_random_damage_harms_no_reader),
    cmocka_unit_test(test_a_flood_without_flow_control_is_told_exactly),
    cmocka_unit_test(test_an_interrupted_reader_is_told_no_lie),
    cmocka_unit_test(test_with_flow_control_nothing_is_missed),
};

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, make_pattern, NULL);
}
