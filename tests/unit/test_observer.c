/* SPDX-License-Identifier: Apache-2.0 */
#include "base/auto.h"
#include "core/observer.h"
#include "core/session.h"
#include "ring_fixture.h"
#include "test.h"

/* A process whose log we write ourselves; nothing runs. */
struct scene {
    struct sp_front server;
    struct sp_session session;
    struct sp_proc proc;
    struct rings rings;
    struct sp_ring ring;
};

static int set_up(void **state)
{
    struct scene *s = calloc(1, sizeof *s);

    assert_non_null(s);
    s->session.front = &s->server;
    s->proc.session = &s->session;
    sp_list_init(&s->proc.observers);
    s->proc.id = SP_STR("p");
    s->proc.life = SP_PROC_EXITED; /* so that nobody is asked to do anything */
    s->rings = make_rings();
    begin_ring(&s->rings, 0, 1, &s->ring, &s->proc.view.ring);
    *state = s;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *s = *state;

    assert_true(sp_list_is_empty(&s->proc.observers));
    assert_int_equal(s->proc.observer_count, 0);
    assert_null(s->proc.writer);
    sp_ring_view_close(&s->proc.view.ring);
    drop_rings(&s->rings);
    free(s);
    return 0;
}

static void put(struct scene *s, uint32_t len)
{
    memset(sp_ring_room(&s->ring), 'x', len);
    sp_ring_output(&s->ring, SP_STREAM_STDOUT, len);
    assert_int_equal(sp_ring_catch_up(&s->proc.view.ring, &s->proc.tail, &s->proc.state), 0);
}

struct watcher {
    struct sp_observer observer;
    unsigned news, displaced, ended;
};

static struct watcher *watcher_of(struct sp_observer *o)
{
    return SP_CONTAINER(o, struct watcher, observer);
}

static void on_news(struct sp_observer *o)
{
    watcher_of(o)->news++;
}

static void on_displaced(struct sp_observer *o)
{
    watcher_of(o)->displaced++;
}

static void on_ending(struct sp_observer *o)
{
    watcher_of(o)->ended++;
    sp_observer_end(o);
}

static const struct sp_observer_ops ops = {
    .news = on_news, .displaced = on_displaced, .ending = on_ending};

static void begin(struct scene *s, struct watcher *w, uint64_t after_seq)
{
    struct sp_err e = {0};

    *w = (struct watcher){0};
    assert_int_equal(sp_observer_begin(&w->observer, &ops, &s->proc, after_seq, &e), 0);
}

static void hears(struct watcher *w, uint64_t seq, uint64_t missing)
{
    struct sp_record r;
    struct sp_gap gap;

    assert_int_equal(sp_observer_next(&w->observer, &r, &gap), 1);
    assert_int_equal(r.seq, seq);
    assert_int_equal(gap.records, missing);
    sp_observer_told(&w->observer, &r);
}

static void hears_nothing(struct watcher *w)
{
    struct sp_record r;
    struct sp_gap gap;

    assert_int_equal(sp_observer_next(&w->observer, &r, &gap), 0);
}

/* ---- places ---- */

static void test_everybody_has_a_place_of_their_own(void **state)
{
    struct scene *s = *state;
    struct watcher all;
    struct watcher some;
    struct watcher none;
    struct watcher beyond;

    for (int i = 0; i < 3; i++)
        put(s, 10);
    begin(s, &all, 0);
    begin(s, &some, 2);
    begin(s, &none, UINT64_MAX);
    begin(s, &beyond, 1000);
    for (uint64_t seq = 1; seq <= 3; seq++)
        hears(&all, seq, 0);
    hears(&some, 3, 0);
    hears_nothing(&all);
    hears_nothing(&some);
    hears_nothing(&none);
    put(s, 1);
    sp_list_each_safe(i, &s->proc.observers)
        SP_CONTAINER(i, struct sp_observer, link)
            ->ops->news(SP_CONTAINER(i, struct sp_observer, link));
    for (struct watcher *const *w = (struct watcher *[]){&all, &some, &none, &beyond, NULL};
         *w != NULL; w++) {
        assert_int_equal((*w)->news, 1);
        hears(*w, 4, 0);
        hears_nothing(*w);
        sp_observer_end(&(*w)->observer);
        sp_observer_end(&(*w)->observer); /* ended already: fine */
    }
}

/* ---- gaps ---- */

static void test_what_was_forgotten_before_is_a_gap(void **state)
{
    struct scene *s = *state;
    struct sp_record r;
    struct sp_gap gap;
    struct watcher w;

    for (int i = 0; i < 40; i++)
        put(s, SP_RING_CHUNK);
    begin(s, &w, 0);
    assert_int_equal(sp_observer_next(&w.observer, &r, &gap), 1);
    assert_int_equal(gap.records, r.seq - 1);
    assert_true(gap.records > 0 && gap.has_bytes);
    assert_int_equal(gap.bytes, r.bytes_before);
    sp_observer_end(&w.observer);

    begin(s, &w, 3); /* how much of the missing bytes it knew, nobody knows */
    assert_int_equal(sp_observer_next(&w.observer, &r, &gap), 1);
    assert_int_equal(gap.records, r.seq - 4);
    assert_false(gap.has_bytes);
    sp_observer_told(&w.observer, &r);
    assert_int_equal(sp_observer_next(&w.observer, &r, &gap), 1);
    assert_int_equal(gap.records, 0);
    assert_true(gap.has_bytes);
    sp_observer_end(&w.observer);
}

static void test_a_record_that_was_not_told_is_missing_before_the_next(void **state)
{
    struct scene *s = *state;
    struct sp_record r;
    struct sp_gap gap;
    struct watcher w;

    begin(s, &w, 0);
    put(s, 10);
    put(s, 20);
    put(s, 30);
    hears(&w, 1, 0);
    assert_int_equal(sp_observer_next(&w.observer, &r, &gap), 1); /* torn: not told */
    assert_int_equal(sp_observer_next(&w.observer, &r, &gap), 1);
    assert_int_equal(r.seq, 3);
    assert_int_equal(gap.records, 1);
    assert_int_equal(gap.bytes, 20);
    sp_observer_end(&w.observer);
}

/* Told and missed together are all of it, in every order of writing and reading. */
static void test_nothing_is_missed_without_a_word(void **state)
{
    struct scene *s = *state;
    struct watcher w;
    uint64_t seed = 7;
    uint64_t records = 0;
    uint64_t bytes = 0;
    uint64_t gaps = 0;

    begin(s, &w, 0);
    for (int turn = 0; turn < 2000; turn++) {
        const uint32_t writes = test_random(&seed) % 8;
        uint32_t reads = test_random(&seed) % 6;
        struct sp_record r;
        struct sp_gap gap;

        for (uint32_t i = 0; i < writes; i++)
            put(s, 1 + test_random(&seed) % SP_RING_CHUNK);
        while (reads-- > 0 && sp_observer_next(&w.observer, &r, &gap) > 0) {
            assert_true(gap.has_bytes);
            assert_int_equal(r.seq, records + gap.records + 1);
            assert_int_equal(r.bytes_before, bytes + gap.bytes);
            records = r.seq;
            bytes = r.bytes_before + r.len;
            gaps += gap.records != 0;
            if (test_random(&seed) % 16 != 0) {
                sp_observer_told(&w.observer, &r);
            } else { /* torn */
                records -= gap.records + 1;
                bytes -= gap.bytes + r.len;
            }
        }
    }
    assert_true(gaps > 100);
    sp_observer_end(&w.observer);
}

static void test_the_end_of_a_lost_process_is_told(void **state)
{
    struct scene *s = *state;
    struct sp_proc *p = &s->proc;
    struct sp_record r;
    struct sp_gap gap;
    struct watcher w;

    put(s, 10);
    begin(s, &w, 0);
    p->is_lost = true;
    p->last_real_seq = 1;
    p->state = (struct sp_ring_state){.exit_seq = 2, .closed_seq = 3, .exit.code = -1};
    p->tail.seq = 3;
    hears(&w, 1, 0);
    assert_int_equal(sp_observer_next(&w.observer, &r, &gap), 1);
    assert_int_equal(r.type, SP_RECORD_EXITED);
    assert_int_equal(gap.records + gap.bytes, 0);
    sp_observer_told(&w.observer, &r);
    assert_int_equal(sp_observer_next(&w.observer, &r, &gap), 1);
    assert_int_equal(r.type, SP_RECORD_CLOSED);
    sp_observer_told(&w.observer, &r);
    hears_nothing(&w);
    sp_observer_end(&w.observer);
}

/* ---- who types ---- */

static void test_one_types_until_it_goes_or_is_displaced(void **state)
{
    struct scene *s = *state;
    struct sp_err e = {0};
    struct watcher a;
    struct watcher b;

    begin(s, &a, 0);
    begin(s, &b, 0);
    assert_int_equal(sp_observer_type(&a.observer, false, &e), 0);
    assert_int_equal(sp_observer_type(&a.observer, true, &e), 0); /* from itself: nothing happens */
    assert_int_equal(a.displaced, 0);
    assert_int_equal(sp_observer_type(&b.observer, false, &e), -SP_E_ATTACHED);
    assert_non_null(strstr(e.msg, "another connection types into process p"));
    assert_int_equal(sp_observer_type(&b.observer, true, &e), 0);
    assert_int_equal(a.displaced, 1);
    sp_observer_end(&a.observer);
    assert_ptr_equal(s->proc.writer, &b.observer);
    sp_observer_end(&b.observer);
    assert_null(s->proc.writer);
}

static void test_the_writers_size_holds_while_it_is_there(void **state)
{
    struct scene *s = *state;
    struct sp_err e = {0};
    struct watcher w;

    assert_true(sp_observers_resize(&s->proc, true, 10, 20));
    (void)sp_observers_resize(&s->proc, false, 1, 2); /* there is none */
    assert_true(sp_observers_resize(&s->proc, true, 11, 21));
    begin(s, &w, 0);
    assert_int_equal(sp_observer_type(&w.observer, false, &e), 0);
    assert_true(sp_observers_resize(&s->proc, true, 12, 22)); /* it has set none */
    (void)sp_observers_resize(&s->proc, false, 1, 2);
    assert_false(sp_observers_resize(&s->proc, true, 13, 23));
    sp_observer_end(&w.observer);
    assert_true(sp_observers_resize(&s->proc, true, s->proc.rows, s->proc.cols));
    assert_int_equal(s->proc.rows, 13);
}

/* ---- bounds and the end ---- */

static void test_a_process_has_so_many_observers(void **state)
{
    struct scene *s = *state;
    struct sp_err e = {0};
    static struct watcher many[SP_PROC_MAX_OBSERVERS];
    struct watcher one_more = {0};

    for (size_t i = 0; i < SP_PROC_MAX_OBSERVERS; i++)
        begin(s, &many[i], 0);
    assert_int_equal(sp_observer_begin(&one_more.observer, &ops, &s->proc, 0, &e), -SP_E_LIMIT);
    assert_null(one_more.observer.proc);
    sp_observer_end(&many[5].observer);
    begin(s, &one_more, 0);
    sp_list_each_safe(i, &s->proc.observers)
        SP_CONTAINER(i, struct sp_observer, link)
            ->ops->ending(SP_CONTAINER(i, struct sp_observer, link));
    for (size_t i = 0; i < SP_PROC_MAX_OBSERVERS; i++)
        assert_int_equal(many[i].ended, i == 5 ? 0 : 1);
    assert_int_equal(one_more.ended, 1);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(test_everybody_has_a_place_of_their_own, set_up, tear_down),
    cmocka_unit_test_setup_teardown(test_what_was_forgotten_before_is_a_gap, set_up, tear_down),
    cmocka_unit_test_setup_teardown(test_a_record_that_was_not_told_is_missing_before_the_next,
                                    set_up, tear_down),
    cmocka_unit_test_setup_teardown(test_nothing_is_missed_without_a_word, set_up, tear_down),
    cmocka_unit_test_setup_teardown(test_the_end_of_a_lost_process_is_told, set_up, tear_down),
    cmocka_unit_test_setup_teardown(test_one_types_until_it_goes_or_is_displaced, set_up,
                                    tear_down),
    cmocka_unit_test_setup_teardown(test_the_writers_size_holds_while_it_is_there, set_up,
                                    tear_down),
    cmocka_unit_test_setup_teardown(test_a_process_has_so_many_observers, set_up, tear_down),
};

TEST_MAIN(tests)
