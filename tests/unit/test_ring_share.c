/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ring whose memory is bounded, and one that holds another life than before. All records carry
 * bytes that follow from their place in the stream and from the life.
 */
#include <sys/mman.h>
#include <sys/stat.h>

#include "process_fixture.h"
#include "ring_fixture.h"

#define PERIOD 4093U
static uint8_t pattern[SP_RING_CHUNK + PERIOD + 256];

static int make_pattern(void **state)
{
    uint64_t seed = 43;

    (void)state;
    for (size_t i = 0; i < sizeof pattern; i++)
        pattern[i] = (uint8_t)test_random(&seed);
    return 0;
}

struct life {
    struct rings rings;
    struct sp_ring ring;
    struct sp_ring_view view;
    uint8_t tag; /* of the life */
};

static const uint8_t *bytes_at(const struct life *l, uint64_t offset)
{
    return pattern + offset % PERIOD + l->tag;
}

static void begin_life(struct life *l)
{
    *l = (struct life){.rings = make_rings()};
    begin_ring(&l->rings, 3, 1, &l->ring, &l->view);
}

static void end_life(struct life *l)
{
    sp_ring_view_close(&l->view);
    drop_rings(&l->rings);
}

static uint32_t put(struct life *l, uint32_t len)
{
    uint8_t *room = sp_ring_room(&l->ring);

    len = len < l->ring.room ? len : l->ring.room;
    memcpy(room, bytes_at(l, l->ring.bytes), len);
    sp_ring_output(&l->ring, SP_STREAM_STDOUT, len);
    return len;
}

/* Reads to the end, looks at every byte, and returns the bytes. */
static uint64_t read_on(const struct life *l, struct sp_ring_cursor *at)
{
    struct sp_record r;
    uint64_t bytes = 0;
    int more;

    while ((more = sp_ring_next(&l->view, at, &r)) > 0) {
        if (r.type != SP_RECORD_OUTPUT)
            continue;
        assert_memory_equal(r.data, bytes_at(l, r.bytes_before), r.len);
        bytes += r.len;
    }
    assert_int_equal(more, 0);
    assert_int_equal(at->bytes, l->ring.bytes);
    assert_int_equal(at->seq, l->ring.seq - 1);
    return bytes;
}

static uint64_t kept(const struct life *l)
{
    struct sp_ring_cursor at = {0};
    const uint64_t bytes = read_on(l, &at);

    assert_int_equal(bytes + at.missed_bytes, l->ring.bytes);
    return bytes;
}

static uint32_t touched(const struct life *l)
{
    return atomic_load(&l->view.head->touched);
}

/* What the kernel holds; the headers take up to eight pages. */
static uint64_t held(const struct life *l)
{
    struct stat st;

    assert_int_equal(fstat(l->rings.cell->fd, &st), 0);
    return (uint64_t)st.st_blocks * 512;
}

static void holds_what_it_says(const struct life *l)
{
    assert_true(held(l) <= touched(l) + 8 * 4096);
    assert_true(held(l) >= touched(l));
}

/* ---- memory ---- */

static void test_a_ring_counts_the_memory_that_it_touches(void **state)
{
    struct life l;

    (void)state;
    begin_life(&l);
    assert_int_equal(touched(&l), 0);
    put(&l, 1);
    assert_int_equal(touched(&l), 4096);
    for (int i = 0; i < 30; i++)
        put(&l, 5000);
    holds_what_it_says(&l);
    for (int i = 0; i < 200; i++)
        put(&l, SP_RING_CHUNK);
    assert_true(touched(&l) > SP_RING_AREA - 2 * SP_RING_CHUNK);
    holds_what_it_says(&l);
    sp_ring_punch(&l.ring, false); /* the log stays */
    assert_true(kept(&l) >= SP_RING_RETAIN_BYTES - SP_RING_CHUNK);
    assert_true(touched(&l) < SP_RING_RETAIN_BYTES + SP_RING_CHUNK);
    holds_what_it_says(&l);
    sp_ring_punch(&l.ring, true);
    assert_int_equal(touched(&l), 0);
    holds_what_it_says(&l);
    end_life(&l);
}

static void test_a_share_leaves_the_newest(void **state)
{
    static const uint32_t sizes[] = {1, 100, 4000, 20000, 40000, SP_RING_CHUNK};
    static const uint32_t shares[] = {65536, 67108, 200000, 1 << 20, 2 << 20};

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (size_t k = 0; k < sizeof shares / sizeof shares[0]; k++) {
            struct life l;

            begin_life(&l);
            while (l.ring.bytes < 4000000 && l.ring.seq < 70000)
                put(&l, sizes[i]);
            const uint64_t before = kept(&l);
            sp_ring_set_share(&l.ring, shares[k], UINT64_MAX);
            const uint64_t now = kept(&l);
            print_message("# %u bytes, share %u: %llu kept of %llu, %u touched\n", sizes[i],
                          shares[k], (unsigned long long)now, (unsigned long long)before,
                          touched(&l));
            /* A record of one byte takes 32. */
            if (sizes[i] >= 4000)
                assert_true(now >=
                            (before < shares[k] / 4 * 3 ? before : shares[k] / 4 * 3) - 4096);
            assert_true(touched(&l) <= shares[k] / 4 * 3 + SP_RING_CHUNK + 3 * 4096);
            holds_what_it_says(&l);
            end_life(&l);
        }
}

/* A command that writes on and on stays within its share, lap after lap. */
static void test_a_share_holds_for_what_follows(void **state)
{
    static const uint32_t sizes[] = {1, 100, 3000, SP_RING_CHUNK};

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const uint32_t share = 100000;
        struct life l;

        begin_life(&l);
        for (int n = 0; n < 40; n++)
            put(&l, SP_RING_CHUNK);
        sp_ring_set_share(&l.ring, share, UINT64_MAX);
        for (uint64_t n = 0; n < 40000; n++) {
            put(&l, sizes[i]);
            if (n % 1999 == 0)
                (void)kept(&l);
        }
        assert_true(touched(&l) <= share);
        holds_what_it_says(&l);
        /* And back: as much as ever is kept. */
        sp_ring_set_share(&l.ring, 0, UINT64_MAX);
        for (int n = 0; n < 100; n++)
            put(&l, SP_RING_CHUNK);
        assert_true(kept(&l) > SP_RING_RETAIN_BYTES - SP_RING_CHUNK);
        end_life(&l);
    }
}

static void test_unsent_output_stays_above_the_share(void **state)
{
    struct sp_ring_cursor owner = {0};
    struct life l;

    (void)state;
    begin_life(&l);
    for (int i = 0; i < 4; i++)
        put(&l, SP_RING_CHUNK);
    (void)read_on(&l, &owner);
    const uint64_t sent = owner.pos;
    for (int i = 0; i < 6; i++)
        put(&l, SP_RING_CHUNK);
    sp_ring_set_share(&l.ring, SP_RING_LEAST_SHARE, sent);
    assert_int_equal(read_on(&l, &owner), 6 * SP_RING_CHUNK);
    assert_int_equal(owner.missed_bytes, 0);
    assert_int_equal(kept(&l), 6 * SP_RING_CHUNK);
    sp_ring_set_share(&l.ring, SP_RING_LEAST_SHARE, owner.pos);
    assert_int_equal(kept(&l), SP_RING_CHUNK);
    end_life(&l);
}

/* Shares come and go, an owner reads now and then, and other readers look in between. */
static void random_shares(uint64_t seed)
{
    static const uint32_t shares[] = {0,      1,       65536,   70000,  130000,
                                      300000, 1000000, 2500000, 5000000};
    struct sp_ring_cursor owner = {0};
    struct sp_ring_cursor other = {0};
    bool is_owned = false;
    struct life l;

    begin_life(&l);
    print_message("# seed %llu\n", (unsigned long long)seed);
    for (int i = 0; i < 30000; i++) {
        const uint32_t what = test_random(&seed) % 1000;
        const uint64_t mark = l.ring.share == 0 ? SP_RING_HIGH_WATER : l.ring.share / 2;

        l.ring.read = is_owned ? owner.pos : UINT64_MAX;
        if (what < 5) {
            const uint32_t share = shares[test_random(&seed) % 9];

            sp_ring_set_share(&l.ring, share, l.ring.read);
        } else if (what < 40) {
            (void)read_on(&l, &owner);
            is_owned = test_random(&seed) % 4 != 0;
            if (is_owned)
                owner.missed_bytes = 0;
        } else if (what < 50) {
            (void)read_on(&l, &other);
        } else if (what < 52) {
            sp_ring_punch(&l.ring, false);
        } else if (!is_owned || sp_ring_ahead(&l.ring, owner.pos) <= mark) {
            put(&l, 1 + test_random(&seed) % (what % 7 == 0 ? SP_RING_CHUNK : 3000));
        }
        assert_true(l.ring.end - l.ring.oldest <= SP_RING_AREA);
        if (is_owned)
            assert_true(l.ring.oldest <= owner.pos || owner.pos >= l.ring.jump_at);
        if (what % 100 == 0)
            holds_what_it_says(&l);
        if (is_owned && what < 3) {
            (void)read_on(&l, &owner);
            assert_int_equal(owner.missed_bytes, 0);
        }
    }
    const struct sp_exit how = {.code = 3};
    sp_ring_exited(&l.ring, &how);
    sp_ring_closed(&l.ring);
    (void)read_on(&l, &owner);
    if (is_owned)
        assert_int_equal(owner.missed_bytes, 0);
    (void)kept(&l);
    end_life(&l);
}

static void test_any_shares_lose_nothing_but_the_oldest(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++)
        random_shares(seed * 7919);
}

/* ---- what others write ---- */

/* The record headers that the writer reads back are any bytes: it goes on, within its area. */
static void test_damaged_records_harm_no_writer(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 30; seed++) {
        uint64_t random = seed * 104729;
        struct life l;

        begin_life(&l);
        for (int i = 0; i < 3000; i++) {
            put(&l, 1 + test_random(&random) % (i % 9 == 0 ? SP_RING_CHUNK : 500));
            if (i % 50 == 0)
                sp_ring_set_share(&l.ring, test_random(&random) % 3 == 0 ? 80000 : 0, UINT64_MAX);
            for (int k = 0; k < 8; k++) {
                const uint64_t at = test_random(&random) % SP_RING_AREA & ~(uint64_t)7;
                const uint64_t word = test_random(&random) % 2 == 0 ? test_random(&random) % 300
                                                                    : test_random(&random);

                memcpy(l.ring.data + at, &word, sizeof word);
            }
            assert_true(l.ring.oldest <= l.ring.end);
            assert_true(l.ring.end - l.ring.oldest <= SP_RING_AREA);
            assert_true(l.ring.kept_bytes <= SP_RING_RETAIN_BYTES);
            assert_true(l.ring.kept_chunks <= SP_RING_RETAIN_CHUNKS);
        }
        end_life(&l);
    }
}

/* A record of length 0xffffffff, and one that takes the writer to its own end. */
static void test_a_damaged_length_forgets_all(void **state)
{
    static const uint32_t lengths[] = {UINT32_MAX, SP_RING_CHUNK + 1, UINT32_MAX - 30};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct life l;

        begin_life(&l);
        for (int k = 0; k < 16; k++)
            put(&l, SP_RING_CHUNK);
        memcpy(l.ring.data + 16, &lengths[i], sizeof lengths[i]);
        put(&l, 100);
        assert_int_equal(l.ring.kept_bytes, 0);
        assert_int_equal(l.ring.oldest, l.ring.end);
        put(&l, 100);
        assert_int_equal(kept(&l), 100);
        end_life(&l);
    }
}

/* The cell punches what it likes: the front reads zeros, which are no record. */
static void test_a_hole_in_a_log_is_malformed(void **state)
{
    struct sp_ring_cursor at = {0};
    struct sp_record r;
    struct life l;

    (void)state;
    begin_life(&l);
    for (int i = 0; i < 10; i++)
        put(&l, 5000);
    assert_int_equal(madvise(l.ring.data, 8 * 4096, MADV_REMOVE), 0);
    assert_int_equal(sp_ring_next(&l.view, &at, &r), -SP_E_MALFORMED);
    end_life(&l);
}

/* ---- one life after another ---- */

static void test_no_life_sees_another(void **state)
{
    uint64_t seed = 5;
    struct life l;

    (void)state;
    begin_life(&l);
    sp_ring_view_close(&l.view);
    for (uint64_t number = 2; number < 100000; number++) {
        struct sp_ring_cursor at = {0};
        struct sp_ring_state s;

        l.tag = (uint8_t)number;
        begin_ring(&l.rings, 3, number, &l.ring, &l.view);
        assert_int_equal(sp_ring_catch_up(&l.view, &at, &s), 0);
        assert_int_equal(at.seq, 0);
        assert_int_equal(s.exit_seq + s.closed_seq + s.dropped_bytes, 0);
        assert_false(sp_ring_is_paused(&l.view));
        for (uint32_t n = test_random(&seed) % 4; n > 0; n--)
            put(&l, 1 + test_random(&seed) % (number % 1000 == 0 ? SP_RING_CHUNK : 300));
        if (test_random(&seed) % 2 == 0) {
            sp_ring_set_paused(&l.ring, true);
            sp_ring_exited(&l.ring, &(struct sp_exit){.code = (int32_t)number});
            sp_ring_closed(&l.ring);
            assert_int_equal(sp_ring_catch_up(&l.view, &at, &s), 0);
            assert_int_equal(s.exit.code, number);
        }
        at = (struct sp_ring_cursor){0};
        assert_int_equal(read_on(&l, &at), l.ring.bytes);
        sp_ring_view_close(&l.view);
    }
    assert_int_equal(sp_ring_view_open(l.rings.front, 3, 7, &l.view, NULL), -SP_E_MALFORMED);
    drop_rings(&l.rings);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_a_ring_counts_the_memory_that_it_touches),
    cmocka_unit_test(test_a_share_leaves_the_newest),
    cmocka_unit_test(test_a_share_holds_for_what_follows),
    cmocka_unit_test(test_unsent_output_stays_above_the_share),
    cmocka_unit_test(test_any_shares_lose_nothing_but_the_oldest),
    cmocka_unit_test(test_damaged_records_harm_no_writer),
    cmocka_unit_test(test_a_damaged_length_forgets_all),
    cmocka_unit_test(test_a_hole_in_a_log_is_malformed),
    cmocka_unit_test(test_no_life_sees_another),
};

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, make_pattern, NULL);
}
