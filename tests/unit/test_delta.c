/* SPDX-License-Identifier: Apache-2.0 */
#include "base/headtail.h"
#include "base/utf8.h"
#include "engine/delta.h"
#include "test.h"

struct seen {
    struct sp_buf bytes;
    size_t end[20001]; /* where each frame ends in them */
    size_t count;
    size_t longest;
};

static void see(void *arg, struct sp_str frame)
{
    struct seen *s = arg;

    assert_true(frame.n != 0);
    assert_true(sp_buf_add_str(&s->bytes, frame));
    assert_true(s->count < sizeof s->end / sizeof s->end[0]);
    s->end[s->count++] = s->bytes.len;
    if (frame.n > s->longest)
        s->longest = frame.n;
}

static struct seen watch; /* too large for a stack */

static struct sp_delta begin(unsigned *quota)
{
    struct sp_delta d;

    sp_buf_done(&watch.bytes);
    watch.count = watch.longest = 0;
    sp_delta_init(&d, quota, see, &watch);
    return d;
}

static int end_watch(void **state)
{
    (void)state;
    sp_buf_done(&watch.bytes);
    return 0;
}

/* On the heap and exact: nobody may look behind the end. */
static void push(struct sp_delta *d, struct sp_str bytes)
{
    char *exact = test_copy(bytes);

    sp_delta_push(d, (struct sp_str){exact, bytes.n});
    free(exact);
}

static void frame_is(size_t i, struct sp_str want)
{
    const size_t from = i == 0 ? 0 : watch.end[i - 1];

    assert_true(i < watch.count);
    assert_int_equal(watch.end[i] - from, want.n);
    assert_memory_equal(watch.bytes.data + from, want.p, want.n);
}

static void test_the_boundary_is_before_a_character_that_is_not_whole(void **state)
{
    static const struct {
        struct sp_str bytes;
        size_t boundary;
    } row[] = {
        {SP_STR(""), 0},
        {SP_STR("hello"), 5},
        {SP_STR("\xC3\xA9\xC3"), 2},
        {SP_STR("\xF0\x9F\x98"), 0},
        {SP_STR("\xF0\x9F\x98\x80"), 4},
        {SP_STR("\xF0\x9F\x98\x80\xC3"), 4},
        {SP_STR("\xFF\x61\x62"), 3},
        {SP_STR("\xFF\xC3"), 1},
        {SP_STR("\xFF\xC3\xA9"), 3},
        {SP_STR("\xE0\x80"), 2},
        {SP_STR("\x61\xFF\x62\x62\x62"), 5},
        /* the second byte's own ranges */
        {SP_STR("\xE0\x9F"), 2},
        {SP_STR("\xE0\xA0"), 0},
        {SP_STR("\xED\x9F"), 0},
        {SP_STR("\xED\xA0"), 2},
        {SP_STR("\xF0\x8F"), 2},
        {SP_STR("\xF0\x90"), 0},
        {SP_STR("\xF4\x8F"), 0},
        {SP_STR("\xF4\x90"), 2},
        {SP_STR("\xF4\x90\x80"), 3},
        {SP_STR("\xF4\x8F\xBF"), 0},
        /* no leads */
        {SP_STR("\xC0"), 1},
        {SP_STR("\xC1"), 1},
        {SP_STR("\xC2"), 0},
        {SP_STR("\xF4"), 0},
        {SP_STR("\xF5"), 1},
        {SP_STR("\x80\x80\x80"), 3},
        {SP_STR("\xF0\x9F\x98\x80\x80"), 5},
        {SP_STR("\xE2\x82\xE2"), 2},
        {SP_STR("\0\xE2\0"), 3},
    };

    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        char *exact = test_copy(row[i].bytes);

        assert_int_equal(sp_delta_boundary((struct sp_str){exact, row[i].bytes.n}),
                         row[i].boundary);
        free(exact);
    }
}

/* By the definition: is there anything that makes a character of it? */
static bool can_become_character(const unsigned char *p, size_t n)
{
    for (unsigned second = 0x80; second < 0xC0; second++)
        for (size_t len = n + 1; len <= 4; len++) {
            char text[4] = {0, (char)second, (char)0x80, (char)0x80};

            memcpy(text, p, n);
            /* one character: no shorter beginning of it is whole */
            if (sp_utf8_is_valid((struct sp_str){text, len}) &&
                sp_utf8_valid_prefix((struct sp_str){text, n}) == 0)
                return true;
        }
    return false;
}

static size_t boundary_slowly(const unsigned char *p, size_t n)
{
    for (size_t from = n > 3 ? n - 3 : 0; from < n; from++)
        if (can_become_character(p + from, n - from))
            return from;
    return n;
}

static void test_all_ends_of_three_bytes_are_cut_as_defined(void **state)
{
    (void)state;
    for (unsigned v = 0; v < 1U << 24; v += v >= 0xE00000 && v < 0xF50000 ? 41 : 1009) {
        const unsigned char p[3] = {(unsigned char)(v >> 16), (unsigned char)(v >> 8),
                                    (unsigned char)v};

        for (size_t n = 1; n <= 3; n++)
            if (sp_delta_boundary((struct sp_str){(const char *)p, n}) != boundary_slowly(p, n))
                fail_msg("%02x %02x %02x, %zu of them", p[0], p[1], p[2], n);
    }
}

static void test_frames_end_on_characters_until_the_quota_is_spent(void **state)
{
    unsigned quota = 2;
    struct sp_delta d = begin(&quota);
    auto_headtail struct sp_headtail transcript = {0};
    const struct sp_str chunk[] = {
        SP_STR("\xFF\xFF\xFF\xFF\xFF\xFF\xF0\x9F\x98\x80\xFF\xFF\xFF\xC3\xA9"),
        SP_STR("\xFE\xFE"),
    };

    (void)state;
    sp_headtail_init(&transcript, SP_HEADTAIL_CAPACITY);
    d.frame_max = 8;
    for (int i = 0; i < 2; i++) {
        assert_true(sp_headtail_push(&transcript, chunk[i]));
        push(&d, chunk[i]);
    }
    sp_delta_finish(&d);
    assert_int_equal(watch.count, 2);
    frame_is(0, SP_STR("\xFF\xFF\xFF\xFF\xFF\xFF"));
    frame_is(1, SP_STR("\xF0\x9F\x98\x80\xFF\xFF\xFF"));
    assert_int_equal(sp_headtail_total(&transcript), 17);
}

static void test_a_character_in_two_pieces_is_one_frame(void **state)
{
    unsigned quota = SP_DELTA_QUOTA;
    struct sp_delta d = begin(&quota);

    (void)state;
    push(&d, SP_STR("\xC3"));
    assert_int_equal(watch.count, 0);
    push(&d, SP_STR(""));
    push(&d, SP_STR("\xA9"));
    sp_delta_finish(&d);
    assert_int_equal(watch.count, 1);
    frame_is(0, SP_STR("\xC3\xA9"));
    assert_int_equal(quota, SP_DELTA_QUOTA - 1);
}

static void test_a_character_in_four_pieces_is_one_frame(void **state)
{
    unsigned quota = SP_DELTA_QUOTA;
    struct sp_delta d = begin(&quota);

    (void)state;
    push(&d, SP_STR("\xF0"));
    push(&d, SP_STR("\x9F"));
    push(&d, SP_STR("\x98"));
    assert_int_equal(watch.count, 0);
    push(&d, SP_STR("\x80\xE2"));
    push(&d, SP_STR("x"));
    assert_int_equal(watch.count, 2);
    frame_is(0, SP_STR("\xF0\x9F\x98\x80"));
    frame_is(1, SP_STR("\xE2x")); /* not a character after all */
}

static void test_what_is_torn_at_the_end_is_sent_as_it_is(void **state)
{
    unsigned quota = SP_DELTA_QUOTA;
    struct sp_delta d = begin(&quota);

    (void)state;
    push(&d, SP_STR("HELLO-UEXEC\xC3"));
    push(&d, SP_STR("\xA9\xC3"));
    sp_delta_finish(&d);
    sp_delta_finish(&d);
    assert_int_equal(watch.count, 3);
    frame_is(0, SP_STR("HELLO-UEXEC"));
    frame_is(1, SP_STR("\xC3\xA9"));
    frame_is(2, SP_STR("\xC3"));
}

static void test_many_small_frames_end_with_the_quota(void **state)
{
    unsigned quota = SP_DELTA_QUOTA;
    struct sp_delta d = begin(&quota);

    (void)state;
    for (int i = 0; i < 20000; i++)
        push(&d, SP_STR("x"));
    sp_delta_finish(&d);
    assert_int_equal(watch.count, 10000);
    assert_int_equal(quota, 0);
}

static void test_two_streams_of_a_call_share_its_quota_and_no_carry(void **state)
{
    unsigned quota = 3;
    struct sp_delta out = begin(&quota);
    struct sp_delta err;

    (void)state;
    sp_delta_init(&err, &quota, see, &watch);
    push(&out, SP_STR("o\xC3"));
    push(&err, SP_STR("e"));
    push(&out, SP_STR("\xA9"));
    push(&err, SP_STR("more"));
    assert_int_equal(watch.count, 3);
    frame_is(2, SP_STR("\xC3\xA9"));
}

static void test_a_burst_is_cut_into_frames_and_nothing_is_lost(void **state)
{
    unsigned quota = SP_DELTA_QUOTA;
    struct sp_delta d = begin(&quota);
    auto_buf struct sp_buf burst = {0};

    (void)state;
    assert_true(sp_buf_add(&burst, "x", 1)); /* so that frames would end within characters */
    while (burst.len < 100000)
        assert_true(sp_buf_add(&burst, "\xF0\x9F\x98\x80", 4));
    push(&d, (struct sp_str){burst.data, burst.len});
    sp_delta_finish(&d);
    assert_int_equal(watch.end[0], 8189);
    assert_int_equal(watch.longest, 8192);
    assert_int_equal(watch.count, 13);
    assert_int_equal(watch.bytes.len, burst.len);
    assert_memory_equal(watch.bytes.data, burst.data, burst.len);
    for (size_t i = 0; i < watch.count; i++)
        assert_int_equal(watch.end[i] % 4, 1);
}

static void test_binary_output_goes_in_bulk(void **state)
{
    unsigned quota = SP_DELTA_QUOTA;
    struct sp_delta d = begin(&quota);
    char bytes[3 * SP_DELTA_FRAME_MAX];

    (void)state;
    memset(bytes, 0xFF, sizeof bytes);
    push(&d, (struct sp_str){bytes, sizeof bytes});
    assert_int_equal(watch.count, 3);
    assert_int_equal(watch.longest, SP_DELTA_FRAME_MAX);
}

/* Bytes that often begin, continue and break characters. */
static char likely_byte(uint64_t *seed)
{
    static const unsigned char some[] = {'a',  'b',  0x80, 0x98, 0x9F, 0xA9, 0xBF,
                                         0xC3, 0xE0, 0xE2, 0xED, 0xF0, 0xF4, 0xFF};

    return (char)some[test_random(seed) % sizeof some];
}

/* Read frame by frame or at once, it is the same text: no frame's end has torn anything. */
static void frames_read_as(struct sp_str stream)
{
    auto_buf struct sp_buf whole = {0};
    auto_buf struct sp_buf parts = {0};

    assert_true(sp_buf_add(&whole, "<", 1) && sp_buf_add(&parts, "<", 1));
    assert_true(sp_utf8_add_lossy(&whole, stream));
    for (size_t i = 0; i < watch.count; i++) {
        const size_t from = i == 0 ? 0 : watch.end[i - 1];

        assert_true(sp_utf8_add_lossy(
            &parts, (struct sp_str){watch.bytes.data + from, watch.end[i] - from}));
    }
    assert_int_equal(parts.len, whole.len);
    assert_memory_equal(parts.data, whole.data, whole.len);
}

static void test_random_bytes_in_random_pieces_keep_their_order_and_characters(void **state)
{
    uint64_t seed = 63;

    (void)state;
    for (int turn = 0; turn < 3000; turn++) {
        unsigned quota = SP_DELTA_QUOTA;
        struct sp_delta d = begin(&quota);
        char stream[200];
        const size_t n = test_random(&seed) % sizeof stream;

        d.frame_max = 4 + test_random(&seed) % 12;
        for (size_t i = 0; i < n; i++)
            stream[i] = likely_byte(&seed);
        for (size_t at = 0; at < n;) {
            const size_t most = n - at;
            const size_t len = test_random(&seed) % 20 % (most + 1);

            push(&d, (struct sp_str){stream + at, len});
            at += len;
            assert_true(at - watch.bytes.len <= SP_DELTA_CARRY_MAX);
        }
        const size_t before = watch.count;
        sp_delta_finish(&d);
        assert_true(watch.count - before <= 1);
        assert_int_equal(watch.bytes.len, n);
        if (n != 0)
            assert_memory_equal(watch.bytes.data, stream, n);
        frames_read_as((struct sp_str){stream, n});
        assert_true(watch.longest <= d.frame_max);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_the_boundary_is_before_a_character_that_is_not_whole),
    cmocka_unit_test(test_all_ends_of_three_bytes_are_cut_as_defined),
    cmocka_unit_test_teardown(test_frames_end_on_characters_until_the_quota_is_spent, end_watch),
    cmocka_unit_test_teardown(test_a_character_in_two_pieces_is_one_frame, end_watch),
    cmocka_unit_test_teardown(test_a_character_in_four_pieces_is_one_frame, end_watch),
    cmocka_unit_test_teardown(test_what_is_torn_at_the_end_is_sent_as_it_is, end_watch),
    cmocka_unit_test_teardown(test_many_small_frames_end_with_the_quota, end_watch),
    cmocka_unit_test_teardown(test_two_streams_of_a_call_share_its_quota_and_no_carry, end_watch),
    cmocka_unit_test_teardown(test_a_burst_is_cut_into_frames_and_nothing_is_lost, end_watch),
    cmocka_unit_test_teardown(test_binary_output_goes_in_bulk, end_watch),
    cmocka_unit_test_teardown(test_random_bytes_in_random_pieces_keep_their_order_and_characters,
                              end_watch),
};

TEST_MAIN(tests)
