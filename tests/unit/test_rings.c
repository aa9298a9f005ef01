/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The front's side of the memory of rings. The cell is played here: it maps what it is sent and
 * stores counts in the headers.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>

#include "core/rings.h"
#include "memory_fixture.h"
#include "process_fixture.h"
#include "ring_fixture.h"

#define COUNT 1000

static int failing; /* 1: memfd_create, 2: send; 0: none */

int __real_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags)
{
    errno = EMFILE;
    return failing == 1 ? -1 : __real_memfd_create(name, flags);
}

struct scene {
    struct sp_loop *loop;
    struct sp_bell bell;
    struct sp_rings rings;
    struct sp_ring_slots slots;
    struct sp_segment *cells[16]; /* the cell's, by index */
    uint32_t punched[COUNT];      /* by slot: messages */
    uint32_t sent, dropped, punches;
    int fds;
};

static struct scene *scene_of(struct sp_ring_slots *s)
{
    return SP_CONTAINER(s, struct scene, slots);
}

static struct sp_ring_header *header_of(struct scene *s, uint32_t slot)
{
    return (struct sp_ring_header *)(void *)(s->cells[slot / 64]->map + slot % 64 * SP_RING_HEADER);
}

static void touch(struct scene *s, uint32_t slot, uint32_t bytes)
{
    atomic_store(&header_of(s, slot)->touched, bytes);
    atomic_store(&header_of(s, slot)->end, bytes); /* all of it is log */
    sp_ring_slots_note(&s->slots, slot);
}

static int be_sent(struct sp_ring_slots *slots, const struct sp_wire_call *m, int fd)
{
    struct scene *s = scene_of(slots);

    if (failing == 2)
        return -ENOBUFS;
    if (m->head.op == SP_WIRE_PUNCH) {
        s->punches++;
        s->punched[m->head.slot]++;
        return 0;
    }
    assert_int_equal(m->head.op, SP_WIRE_SEGMENT);
    sp_segment_drop(TAKE_PTR(s->cells[m->a]));
    s->sent += fd >= 0;
    s->dropped += fd < 0;
    if (fd >= 0) {
        int ours = fcntl(fd, F_DUPFD_CLOEXEC, 3);

        assert_int_equal(sp_segment_take(&ours, true, &s->cells[m->a], NULL), 0);
    }
    return 0;
}

static int begin(void **state)
{
    struct scene *s = calloc(1, sizeof *s);

    assert_non_null(s);
    failing = 0;
    s->fds = open_fds();
    assert_int_equal(sp_loop_new(&s->loop, NULL), 0);
    assert_int_equal(sp_bell_new(COUNT, &s->bell, NULL), 0);
    s->rings.budget = SP_OUTPUT_LEAST;
    sp_rings_init(&s->rings, s->loop);
    s->slots = (struct sp_ring_slots){
        .rings = &s->rings, .bell = &s->bell, .send = be_sent, .count = COUNT};
    *state = s;
    return 0;
}

static int end(void **state)
{
    struct scene *s = *state;
    const int fds = s->fds;

    failing = 0;
    sp_ring_slots_done(&s->slots);
    assert_int_equal(s->rings.touched, 0);
    assert_int_equal(s->rings.warm_bytes, 0);
    for (size_t i = 0; i < 16; i++)
        sp_segment_drop(s->cells[i]);
    sp_loop_cancel(s->loop, &s->rings.on_pressure);
    sp_bell_free(&s->bell);
    sp_loop_free(s->loop);
    free(s);
    assert_int_equal(open_fds(), fds);
    return 0;
}

static uint32_t take(struct scene *s)
{
    struct sp_err e = {0};
    uint32_t slot;

    if (sp_ring_slots_take(&s->slots, &slot, &e) < 0)
        fail_msg("%s", e.msg);
    return slot;
}

static void take_many(struct scene *s, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(take(s), i);
}

/* ---- slots ---- */

static void test_the_lowest_segment_is_used_first(void **state)
{
    struct scene *s = *state;

    take_many(s, 200);
    assert_int_equal(s->sent, 4);
    sp_ring_slots_give(&s->slots, 130);
    sp_ring_slots_give(&s->slots, 5);
    sp_ring_slots_give(&s->slots, 70);
    sp_ring_slots_give(&s->slots, 6);
    assert_int_equal(take(s), 6); /* freed last */
    assert_int_equal(take(s), 5);
    assert_int_equal(take(s), 70);
    assert_int_equal(take(s), 130);
    assert_int_equal(take(s), 200);
    assert_int_equal(s->sent, 4);
}

static void test_there_are_as_many_slots_as_were_asked_for(void **state)
{
    struct scene *s = *state;
    struct sp_err e = {0};
    uint32_t slot;

    take_many(s, COUNT);
    assert_int_equal(s->sent, (COUNT + 63) / 64);
    assert_int_equal(sp_ring_slots_take(&s->slots, &slot, &e), -SP_E_LIMIT);
    sp_ring_slots_give(&s->slots, COUNT - 1);
    assert_int_equal(take(s), COUNT - 1);
}

static void take_rest(struct scene *s, uint32_t index)
{
    for (uint32_t i = 1; i < 64; i++)
        assert_int_equal(take(s), index * 64 + i);
}

static void limit(int what, rlim_t most)
{
    struct rlimit l;

    assert_int_equal(getrlimit(what, &l), 0);
    l.rlim_cur = most;
    assert_int_equal(setrlimit(what, &l), 0);
}

static void fails_and_leaves_nothing(struct scene *s, uint32_t next)
{
    struct sp_err e = {0};
    uint32_t slot;

    assert_int_equal(sp_ring_slots_take(&s->slots, &slot, &e), -SP_E_SYSTEM);
    assert_true(e.sys != 0);
    print_message("# %s\n", e.msg);
    failing = 0;
    (void)did_memory_end();
    limit(RLIMIT_FSIZE, RLIM_INFINITY);
    limit(RLIMIT_AS, RLIM_INFINITY);
    const int fds = open_fds();
    assert_int_equal(take(s), next);
    assert_int_equal(open_fds(), fds + 1); /* the cell's */
}

/* Every step of a segment fails once: the start is refused, nothing is left, the next one works. */
static void test_a_segment_that_cannot_be_made_leaves_nothing(void **state)
{
    struct scene *s = *state;

    failing = 1;
    fails_and_leaves_nothing(s, 0);
    take_rest(s, 0);
    failing = 2;
    fails_and_leaves_nothing(s, 64);
    take_rest(s, 1);
    end_memory_at(1);
    fails_and_leaves_nothing(s, 128);
    take_rest(s, 2);
    limit(RLIMIT_FSIZE, SP_RING_AREA);
    fails_and_leaves_nothing(s, 192);
    take_rest(s, 3);
#ifndef __SANITIZE_ADDRESS__ /* which needs the address space */
    limit(RLIMIT_AS, 1 << 20);
    fails_and_leaves_nothing(s, 256);
    take_rest(s, 4);
#endif
}

/* Where a whole segment finds no room, a part of one may. */
static void test_a_smaller_segment_is_better_than_none(void **state)
{
    struct scene *s = *state;

    end_memory_at(3);
    assert_int_equal(take(s), 0);
    assert_true(did_memory_end());
    assert_int_equal(s->cells[0]->rings, 32);
    limit(RLIMIT_FSIZE, 9 * SP_RING_AREA);
    for (uint32_t i = 1; i < 32; i++)
        assert_int_equal(take(s), i);
    assert_int_equal(take(s), 64);
    limit(RLIMIT_FSIZE, RLIM_INFINITY);
    assert_int_equal(s->cells[1]->rings, 8);
}

static void test_a_refused_segment_is_made_again_smaller(void **state)
{
    struct scene *s = *state;

    take_many(s, 64);
    const uint32_t slot = take(s);
    assert_int_equal(slot, 64);
    sp_ring_slots_refused(&s->slots, 1);
    assert_int_equal(s->dropped, 0); /* its start is not answered yet */
    assert_int_equal(take(s), 128);  /* and no other goes there */
    sp_ring_slots_give(&s->slots, 64);
    assert_int_equal(s->dropped, 1);
    sp_ring_slots_refused(&s->slots, 1); /* none any more */
    sp_ring_slots_refused(&s->slots, 9999);
    assert_int_equal(take(s), 64);
    assert_true(s->cells[1]->rings <= 64);
}

/* A log can be read on after its cell is gone. */
static void test_a_view_outlives_the_slots(void **state)
{
    struct scene *s = *state;
    struct sp_ring_view v = {0};
    struct sp_ring_cursor at = {0};
    struct sp_ring ring = {0};
    struct sp_record r;

    take_many(s, 3);
    sp_ring_begin(&ring, s->cells[0], 2, 77);
    memcpy(sp_ring_room(&ring), "hello", 5);
    sp_ring_output(&ring, SP_STREAM_STDOUT, 5);
    assert_int_equal(sp_ring_slots_view(&s->slots, 2, 78, &v, NULL), -SP_E_MALFORMED);
    assert_int_equal(sp_ring_slots_view(&s->slots, 2, 77, &v, NULL), 0);
    sp_ring_slots_done(&s->slots);
    assert_int_equal(sp_ring_next(&v, &at, &r), 1);
    assert_memory_equal(r.data, "hello", 5);
    sp_ring_view_close(&v);
}

/* ---- memory ---- */

static void test_free_slots_keep_the_newest_sixteen_mebibytes(void **state)
{
    struct scene *s = *state;
    const uint32_t kept = SP_RINGS_WARM / SP_RING_AREA;

    take_many(s, 20);
    for (uint32_t i = 0; i < 20; i++) {
        touch(s, i, SP_RING_AREA);
        sp_ring_slots_give(&s->slots, i);
        assert_true(s->rings.warm_bytes <= SP_RINGS_WARM);
    }
    assert_int_equal(s->punches, 20 - kept);
    for (uint32_t i = 0; i < 20; i++)
        assert_int_equal(s->punched[i], i < 20 - kept);
    for (uint32_t i = 0; i < 20 - kept; i++)
        touch(s, i, 0); /* the cell has done so */
    assert_int_equal(s->rings.touched, kept * SP_RING_AREA);
    assert_int_equal(take(s), 19); /* warm */
    assert_int_equal(s->rings.warm_bytes, (kept - 1) * SP_RING_AREA);
}

static void test_a_cell_is_not_believed_more_than_its_memory(void **state)
{
    struct scene *s = *state;

    take_many(s, 2);
    touch(s, 0, UINT32_MAX);
    assert_int_equal(s->rings.touched, SP_RING_AREA);
    touch(s, 0, 0);
    touch(s, 1, 4096);
    assert_int_equal(s->rings.touched, 4096);
    sp_ring_slots_note(&s->slots, 500); /* no segment */
    sp_ring_slots_note(&s->slots, UINT32_MAX);
}

static uint64_t evicted;

static uint64_t evict(void *user, uint64_t bytes)
{
    (void)user;
    evicted += bytes;
    return 0;
}

static void test_shares_are_fair(void **state)
{
    struct scene *s = *state;
    uint64_t sum = 0;

    evicted = 0;
    s->rings.evict = evict;
    take_many(s, 300);
    for (uint32_t i = 0; i < 300; i++)
        touch(s, i, i < 200 ? (i + 1) * 4096 % SP_RING_AREA : 4096);
    assert_int_equal(sp_loop_dispatch(s->loop, 1000, NULL), 0);
    const uint32_t share = s->rings.share;
    assert_true(share > SP_RING_LEAST_SHARE && share < SP_RING_AREA);
    assert_true(evicted > 0);
    for (uint32_t i = 0; i < 300; i++) {
        const uint32_t touched = i < 200 ? (i + 1) * 4096 : 4096;

        sum += touched < share ? touched : share;
        assert_int_equal(atomic_load(sp_bell_share(&s->bell, i)), share);
    }
    assert_true(sum <= s->rings.budget);
    assert_true(sum + 200 * 4096 > s->rings.budget); /* and no page more would do */
    for (uint32_t i = 0; i < 300; i++)
        if ((i < 200 ? (i + 1) * 4096 : 4096) > share)
            touch(s, i, share);
    assert_int_equal(take(s), 300); /* those that come later have it, too */
    assert_int_equal(atomic_load(sp_bell_share(&s->bell, 300)), share);
}

/* Less is used for some seconds: shares grow until none is needed. */
static void test_a_share_ends_with_the_pressure(void **state)
{
    const uint64_t until = test_now_ms() + DEADLINE_MS;
    struct scene *s = *state;

    take_many(s, 40);
    for (uint32_t i = 0; i < 40; i++)
        touch(s, i, SP_RING_AREA);
    assert_int_equal(sp_loop_dispatch(s->loop, 1000, NULL), 0);
    assert_true(s->rings.share > 1 << 20);
    for (uint32_t i = 0; i < 40; i++)
        touch(s, i, 4096);
    while (s->rings.share != 0) {
        assert_true(test_now_ms() < until);
        assert_int_equal(sp_loop_dispatch(s->loop, 1000, NULL), 0);
    }
    for (uint32_t i = 0; i < 40; i++)
        assert_int_equal(atomic_load(sp_bell_share(&s->bell, i)), 0);
}

#define scene_test(f) cmocka_unit_test_setup_teardown(f, begin, end)

static const struct CMUnitTest tests[] = {
    scene_test(test_the_lowest_segment_is_used_first),
    scene_test(test_there_are_as_many_slots_as_were_asked_for),
    scene_test(test_a_segment_that_cannot_be_made_leaves_nothing),
    scene_test(test_a_smaller_segment_is_better_than_none),
    scene_test(test_a_refused_segment_is_made_again_smaller),
    scene_test(test_a_view_outlives_the_slots),
    scene_test(test_free_slots_keep_the_newest_sixteen_mebibytes),
    scene_test(test_a_cell_is_not_believed_more_than_its_memory),
    scene_test(test_shares_are_fair),
    scene_test(test_a_share_ends_with_the_pressure),
};

TEST_MAIN(tests)
