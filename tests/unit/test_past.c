/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "core/ended.h"
#include "core/ledger.h"
#include "core/session.h"
#include "memory_fixture.h"
#include "ring_fixture.h"
#include "test.h"

/* A closed process whose log we write ourselves; nothing runs. */
struct scene {
    struct sp_front front;
    struct sp_session session;
    struct sp_proc proc;
    struct sp_limit_hits hits;
    struct rings rings;
    struct sp_ring ring;
};

static struct scene *new_scene(void)
{
    struct scene *s = calloc(1, sizeof *s);
    struct sp_proc *p;

    assert_non_null(s);
    p = &s->proc;
    assert_int_equal(sp_loop_new(&s->front.loop, NULL), 0);
    s->session.front = &s->front;
    p->session = &s->session;
    p->life = SP_PROC_CLOSED;
    p->number = 77;
    p->id = (struct sp_str){"a\"b", 3};
    p->label = SP_STR("\"a\\\"b\"");
    p->is_tty = p->is_confined = p->was_denied = true;
    p->pid = 4711;
    p->tier = 1;
    p->argc = 3;
    p->started_ms = 1000;
    p->ended_ms = 2000;
    s->hits = (struct sp_limit_hits){
        .count = 1, .items = {{.limit = SP_LIMIT_OUTPUT, .value = 1 << 20, .count = 1}}};
    p->limits.hits = &s->hits;
    sp_input_init(&p->input, s->front.loop, NULL);
    sp_list_init(&p->observers);
    assert_true(sp_buf_add(&p->strings, "/work\0/bin/sh\0sh\0-c\0make all", 28));
    assert_true(sp_buf_add(&p->strings, "", 1));
    s->rings = make_rings();
    begin_ring(&s->rings, 0, 1, &s->ring, &p->view.ring);
    return s;
}

static void free_scene(struct scene *s)
{
    sp_output_times_done(&s->proc.times);
    sp_buf_done(&s->proc.strings);
    sp_ring_view_close(&s->proc.view.ring);
    drop_rings(&s->rings);
    sp_loop_free(s->front.loop);
    free(s);
}

static void put(struct scene *s, enum sp_stream stream, char c, uint32_t len)
{
    memset(sp_ring_room(&s->ring), c, len);
    sp_ring_output(&s->ring, stream, len);
}

/* Output, the exit, more output, the close. */
static void write_log(struct scene *s)
{
    for (uint32_t i = 0; i < 40; i++)
        put(s, i % 3 == 0 ? SP_STREAM_STDERR : SP_STREAM_STDOUT, (char)('a' + i % 26), 1 + i * 7);
    sp_ring_exited(&s->ring, &(struct sp_exit){.code = -1,
                                               .signal = 9,
                                               .max_rss_kb = 1 << 20,
                                               .wall_us = 1ULL << 40,
                                               .refusal_count = 2,
                                               .refusals = {{.call = 41, .count = 3}}});
    put(s, SP_STREAM_STDOUT, 'z', 9000);
    sp_ring_closed(&s->ring);
    assert_int_equal(sp_ring_catch_up(&s->proc.view.ring, &s->proc.tail, &s->proc.state), 0);
    sp_output_times_note(&s->proc.times, 3, 1500);
    sp_output_times_note(&s->proc.times, 43, 9000);
}

static struct sp_proc *read_past(struct scene *s, struct sp_past *past)
{
    struct sp_proc *p = calloc(1, sizeof *p);

    if (p == NULL)
        return NULL;
    p->session = &s->session;
    sp_input_init(&p->input, s->front.loop, NULL);
    if (sp_past_read(past, p))
        return p;
    sp_proc_release(p);
    return NULL;
}

static void test_a_record_has_all_facts(void **state)
{
    struct scene *s = new_scene();

    (void)state;
    write_log(s);
    struct sp_past *past = sp_past_make(NULL, &s->proc);
    assert_non_null(past);
    struct sp_proc *p = read_past(s, past);
    assert_non_null(p);
    assert_int_equal(p->number, 77);
    assert_int_equal(p->id.n, 3);
    assert_memory_equal(p->id.p, "a\"b", 3);
    assert_int_equal(p->label.n, 6);
    assert_memory_equal(p->label.p, "\"a\\\"b\"", 6);
    assert_true(p->is_tty && p->is_confined && p->was_denied);
    assert_int_equal(p->pid, 4711);
    assert_int_equal(p->argc, 3);
    assert_memory_equal(p->strings.data, "/work\0\0sh\0-c\0make all", 22);
    assert_memory_equal(&p->state, &s->proc.state, sizeof p->state);
    assert_memory_equal(p->limits.hits, &s->hits, sizeof s->hits);
    assert_int_equal(sp_output_times_of(&p->times, 2), 1500);
    assert_int_equal(sp_output_times_of(&p->times, 43), 9000);
    sp_proc_release(p);
    free(past);
    free_scene(s);
}

static void assert_same(const struct sp_record *a, const struct sp_record *b)
{
    assert_int_equal(a->seq, b->seq);
    assert_int_equal(a->type, b->type);
    assert_int_equal(a->bytes_before, b->bytes_before);
    assert_int_equal(a->len, b->len);
    assert_memory_equal(a->data, b->data, a->len);
}

/* A reader that is anywhere in the ring goes on in the record. */
static void test_cursors_are_carried_over(void **state)
{
    struct scene *s = new_scene();

    (void)state;
    write_log(s);
    struct sp_past *past = sp_past_make(NULL, &s->proc);
    struct sp_proc *p = read_past(s, past);
    for (uint32_t before = 0; before <= 43; before++) {
        struct sp_ring_cursor ring = {0};
        struct sp_record want;
        struct sp_record got;
        uint32_t n = 0;

        while (n < before && sp_ring_next(&s->proc.view.ring, &ring, &want) > 0)
            n++;
        struct sp_ring_cursor record = ring;
        while (sp_ring_next(&s->proc.view.ring, &ring, &want) > 0) {
            assert_int_equal(sp_log_next(&p->view, &record, &got), 1);
            assert_same(&want, &got);
            assert_int_equal(record.missed_records, ring.missed_records);
            n++;
        }
        assert_int_equal(sp_log_next(&p->view, &record, &got), 0);
        assert_int_equal(n, 43);
    }
    sp_proc_release(p);
    free(past);
    free_scene(s);
}

/* What the record could not have is missed, as in a ring that has forgotten it. */
static void test_what_was_forgotten_is_counted(void **state)
{
    struct scene *s = new_scene();
    struct sp_ring_cursor c = {0};
    struct sp_record r;
    uint64_t bytes = 0;

    (void)state;
    for (int i = 0; i < 40; i++)
        put(s, SP_STREAM_STDOUT, 'x', SP_RING_CHUNK);
    write_log(s);
    struct sp_past *past = sp_past_make(NULL, &s->proc);
    struct sp_proc *p = read_past(s, past);
    while (sp_log_next(&p->view, &c, &r) > 0)
        bytes += r.type == SP_RECORD_OUTPUT ? r.len : 0;
    assert_int_equal(r.type, SP_RECORD_CLOSED);
    assert_true(bytes > SP_RING_RETAIN_BYTES / 2 && c.missed_bytes > 0);
    assert_int_equal(bytes + c.missed_bytes, s->proc.tail.bytes);
    assert_int_equal(c.seq, s->proc.tail.seq);
    sp_proc_release(p);
    free(past);
    free_scene(s);
}

static void test_no_memory_at_any_step(void **state)
{
    struct scene *s = new_scene();
    struct sp_past *past = NULL;
    struct sp_proc *p = NULL;

    (void)state;
    write_log(s);
    for (long n = 1; past == NULL; n++) {
        end_memory_at(n);
        past = sp_past_make(NULL, &s->proc);
        assert_true(did_memory_end() || past != NULL);
    }
    for (long n = 1; p == NULL; n++) {
        end_memory_at(n);
        p = read_past(s, past);
        assert_true(did_memory_end() || p != NULL);
    }
    sp_proc_release(p);
    free(past);
    free_scene(s);
}

/* ---- the store ---- */

static char evicted[64];

static void note_evicted(struct sp_pasts *of, struct sp_past *past)
{
    (void)snprintf(evicted + strlen(evicted), sizeof evicted - strlen(evicted), "%llu ",
                   (unsigned long long)past->number);
    sp_pasts_remove(of, past);
    free(past);
}

static struct sp_past *add(struct scene *s, struct sp_pasts *of, uint64_t number)
{
    char id[16];

    (void)snprintf(id, sizeof id, "p%llu", (unsigned long long)number);
    s->proc.id = sp_str_of(id);
    s->proc.number = number;
    struct sp_past *past = sp_past_make(NULL, &s->proc);
    assert_true(sp_pasts_add(of, past));
    sp_pasts_release(of, past, 0);
    return past;
}

static void test_the_largest_session_loses_the_oldest(void **state)
{
    struct scene *s = new_scene();
    struct sp_past_store store = {.evict = note_evicted};
    struct sp_pasts a = {0};
    struct sp_pasts b = {0};
    struct sp_proc reader = {0};

    (void)state;
    write_log(s);
    sp_pasts_init(&a, &store);
    sp_pasts_init(&b, &store);
    evicted[0] = 0;
    (void)add(s, &a, 1);
    for (uint64_t i = 10; i < 14; i++)
        (void)add(s, &b, i);
    const uint32_t one = sp_pasts_find(&a, SP_STR("p1"))->bytes;
    sp_pasts_open(&b, sp_pasts_find(&b, SP_STR("p11")), &reader);
    assert_true(sp_past_store_shrink(&store, store.bytes - one));
    assert_string_equal(evicted, "");
    assert_true(sp_pasts_find(&b, SP_STR("p10"))->is_output_evicted);
    assert_false(sp_pasts_find(&b, SP_STR("p11"))->is_output_evicted);
    assert_true(sp_pasts_find(&b, SP_STR("p12"))->is_output_evicted);
    assert_false(sp_pasts_find(&b, SP_STR("p13"))->is_output_evicted);
    assert_int_equal(store.evicted[SP_PAST_OUTPUT], 2);
    assert_true(sp_past_store_shrink(&store, 2 * one + 16)); /* p11 has a longer id */
    assert_string_equal(evicted, "10 12 13 "); /* 11 is open, 1 is of a session no larger */
    assert_false(sp_pasts_find(&a, SP_STR("p1"))->is_output_evicted);
    sp_pasts_shut(&b, sp_pasts_find(&b, SP_STR("p11")));
    assert_true(sp_past_store_shrink(&store, 0));
    assert_int_equal(store.bytes, 0);
    assert_int_equal(store.count, 0);
    assert_int_equal(store.heap_count, 0);
    assert_null(sp_pasts_find(&a, SP_STR("p1")));
    assert_false(sp_past_store_shrink(&store, 0));
    sp_pasts_done(&a);
    sp_pasts_done(&b);
    free(store.heap);
    free_scene(s);
}

/* A session whose records are all read keeps them, and no other session is spared for that. */
static void test_open_records_protect_no_other_session(void **state)
{
    struct scene *s = new_scene();
    struct sp_past_store store = {.evict = note_evicted};
    struct sp_pasts a = {0};
    struct sp_pasts b = {0};
    struct sp_proc reader = {0};

    (void)state;
    write_log(s);
    sp_pasts_init(&a, &store);
    sp_pasts_init(&b, &store);
    evicted[0] = 0;
    for (uint64_t i = 1; i < 5; i++)
        sp_pasts_open(&a, add(s, &a, i), &reader);
    for (uint64_t i = 10; i < 12; i++)
        (void)add(s, &b, i);
    assert_int_equal(a.shut_bytes, 0);
    assert_true(sp_past_store_shrink(&store, 0));
    assert_string_equal(evicted, "10 11 ");
    assert_int_equal(a.count, 4);
    /* They were open when it was their turn: the output goes first all the same. */
    for (uint64_t i = 1; i < 5; i++) {
        char id[16];

        (void)snprintf(id, sizeof id, "p%llu", (unsigned long long)i);
        sp_pasts_shut(&a, sp_pasts_find(&a, sp_str_of(id)));
    }
    evicted[0] = 0;
    assert_true(sp_past_store_shrink(&store, store.bytes - 1));
    assert_string_equal(evicted, "");
    assert_true(sp_pasts_find(&a, SP_STR("p1"))->is_output_evicted);
    assert_true(sp_past_store_shrink(&store, 0));
    assert_string_equal(evicted, "1 2 3 4 ");
    assert_int_equal(store.evicted[SP_PAST_OUTPUT], 6);
    assert_int_equal(store.heap_count, 0);
    sp_pasts_done(&a);
    sp_pasts_done(&b);
    free(store.heap);
    free_scene(s);
}

/* ---- records in a ledger ---- */

/* A front with a session, both without anything else. */
struct heir {
    struct sp_front front;
    struct sp_session session;
};

static void note_freed(struct sp_pasts *of, struct sp_past *past)
{
    sp_pasts_remove(of, past);
    sp_past_free(of->store->ledger, past);
}

static void begin_front(struct heir *h, struct sp_ledger *l)
{
    *h = (struct heir){.session = {.number = 5}};
    assert_int_equal(sp_loop_new(&h->front.loop, NULL), 0);
    h->front.options.ledger = h->front.pasts.ledger = l;
    h->front.options.closed_ttl_ms = 60000;
    h->front.pasts.evict = note_freed;
    h->session.front = &h->front;
    sp_list_init(&h->front.sessions);
    sp_list_append(&h->front.sessions, &h->session.link);
    h->front.session_count = 1;
    sp_pasts_init(&h->session.pasts, &h->front.pasts);
}

/* The front is killed, another one takes its ledger over. Returns how many records it dropped. */
static uint32_t succeed(struct heir *h)
{
    struct sp_ledger *l;
    struct sp_err e;

    assert_int_equal(sp_ledger_open(dup(sp_ledger_fd(h->front.pasts.ledger)), &l, &e), 0);
    sp_ledger_close(h->front.pasts.ledger);
    sp_loop_cancel(h->front.loop, &h->session.pasts.due);
    sp_pasts_done(&h->session.pasts);
    free(h->front.pasts.heap);
    sp_loop_free(h->front.loop);
    begin_front(h, l);
    const uint32_t broken = sp_ledger_removed(l);
    return broken + sp_ended_adopt_all(&h->front);
}

static struct sp_past *keep(struct scene *s, struct heir *h, uint64_t number, uint64_t kept_ms)
{
    static char id[16];
    static char label[20];

    (void)snprintf(id, sizeof id, "p%llu", (unsigned long long)number);
    (void)snprintf(label, sizeof label, "\"%s\"", id);
    s->proc.id = sp_str_of(id);
    s->proc.label = sp_str_of(label);
    s->proc.number = number;
    s->session.number = 5;
    struct sp_past *past = sp_past_make(h->front.pasts.ledger, &s->proc);
    assert_non_null(past);
    assert_true(sp_pasts_add(&h->session.pasts, past));
    sp_pasts_release(&h->session.pasts, past, kept_ms);
    return past;
}

static struct sp_ledger *new_ledger(void)
{
    struct sp_ledger *l;
    struct sp_err e;

    assert_int_equal(sp_ledger_new(&l, &e), 0);
    return l;
}

static void end_heir(struct heir *h)
{
    (void)sp_past_store_shrink(&h->front.pasts, 0);
    assert_int_equal(h->front.pasts.count, 0);
    sp_loop_cancel(h->front.loop, &h->session.pasts.due);
    sp_pasts_done(&h->session.pasts);
    free(h->front.pasts.heap);
    sp_loop_free(h->front.loop);
    sp_ledger_close(h->front.pasts.ledger);
}

static void test_an_heir_has_the_records(void **state)
{
    struct scene *s = new_scene();
    struct heir h;
    struct sp_ring_cursor c = {0};
    struct sp_record r;
    uint64_t bytes = 0;

    (void)state;
    write_log(s);
    begin_front(&h, new_ledger());
    const uint64_t now = sp_loop_now(h.front.loop);
    (void)keep(s, &h, 3, now - 1);
    (void)keep(s, &h, 1, now - 7);
    (void)keep(s, &h, 2, now - 3);
    (void)sp_past_make(h.front.pasts.ledger, &s->proc); /* and one that no session ever had */
    assert_int_equal(succeed(&h), 0);
    assert_int_equal(h.session.pasts.count, 3);
    uint64_t order = 0;
    sp_list_each(i, &h.session.pasts.list)
        order = order * 10 + SP_CONTAINER(i, struct sp_past, link)->number;
    assert_int_equal(order, 123);
    struct sp_past *past = sp_pasts_find(&h.session.pasts, SP_STR("p2"));
    struct sp_proc *p = read_past(s, past);
    while (sp_log_next(&p->view, &c, &r) > 0)
        bytes += r.type == SP_RECORD_OUTPUT ? r.len : 0;
    assert_int_equal(bytes, s->proc.tail.bytes);
    assert_memory_equal(&p->state, &s->proc.state, sizeof p->state);
    sp_proc_release(p);
    /* Without its output it is another record, and an heir finds that one. */
    (void)sp_past_store_shrink(&h.front.pasts, h.front.pasts.bytes - 1);
    assert_true(sp_pasts_find(&h.session.pasts, SP_STR("p1"))->is_output_evicted);
    assert_int_equal(succeed(&h), 0);
    assert_int_equal(h.session.pasts.count, 3);
    assert_true(sp_pasts_find(&h.session.pasts, SP_STR("p1"))->is_output_evicted);
    assert_false(sp_pasts_find(&h.session.pasts, SP_STR("p2"))->is_output_evicted);
    end_heir(&h);
    free_scene(s);
}

static void test_records_that_nobody_can_have(void **state)
{
    struct scene *s = new_scene();
    struct heir h;

    (void)state;
    write_log(s);
    begin_front(&h, new_ledger());
    (void)keep(s, &h, 1, 1);
    struct sp_past *twice = sp_past_make(h.front.pasts.ledger, &s->proc);
    sp_ledger_commit(h.front.pasts.ledger, twice);
    struct sp_past *strange = sp_past_make(h.front.pasts.ledger, &s->proc);
    strange->session = 6;
    sp_ledger_commit(h.front.pasts.ledger, strange);
    sp_ledger_commit(h.front.pasts.ledger,
                     sp_ledger_alloc(h.front.pasts.ledger, SP_LEDGER_PAST, 0, 10));
    assert_int_equal(succeed(&h), 3);
    assert_int_equal(h.session.pasts.count, 1);
    assert_int_equal(succeed(&h), 0);
    end_heir(&h);
    free_scene(s);
}

/* A compromised front may write any body, with a CRC that fits. */
static void test_hostile_bodies(void **state)
{
    struct scene *s = new_scene();
    struct heir h;
    uint64_t seed = 3;
    unsigned adopted = 0;

    (void)state;
    write_log(s);
    begin_front(&h, new_ledger());
    for (unsigned i = 0; i < 3000; i++) {
        struct sp_past *past = sp_past_make(h.front.pasts.ledger, &s->proc);
        const size_t fixed = sizeof *past - offsetof(struct sp_past, number) + past->size;
        const unsigned changes = 1 + test_random(&seed) % 4;

        for (unsigned k = 0; k < changes; k++) {
            const size_t at = test_random(&seed) % (k % 2 == 0 ? 260 : fixed);
            ((uint8_t *)&past->number)[at < fixed ? at : 0] ^=
                (uint8_t)(1U << test_random(&seed) % 8);
        }
        past->session = 5;
        sp_ledger_commit(h.front.pasts.ledger, past);
        adopted += succeed(&h) == 0;
        sp_list_each_safe(n, &h.session.pasts.list) {
            struct sp_past *one = SP_CONTAINER(n, struct sp_past, link);
            struct sp_proc *p = read_past(s, one);
            struct sp_ring_cursor c = {0};
            struct sp_record r;
            uint64_t sum = 0;

            assert_non_null(p);
            while (sp_log_next(&p->view, &c, &r) > 0)
                for (uint32_t b = 0; r.type == SP_RECORD_OUTPUT && b < r.len; b++)
                    sum += r.data[b];
            assert_true(sum < UINT64_MAX);
            sp_proc_release(p);
            note_freed(&h.session.pasts, one);
        }
    }
    assert_in_range(adopted, 1, 2999);
    end_heir(&h);
    free_scene(s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_a_record_has_all_facts),
    cmocka_unit_test(test_cursors_are_carried_over),
    cmocka_unit_test(test_what_was_forgotten_is_counted),
    cmocka_unit_test(test_no_memory_at_any_step),
    cmocka_unit_test(test_the_largest_session_loses_the_oldest),
    cmocka_unit_test(test_open_records_protect_no_other_session),
    cmocka_unit_test(test_an_heir_has_the_records),
    cmocka_unit_test(test_records_that_nobody_can_have),
    cmocka_unit_test(test_hostile_bodies),
};

TEST_MAIN(tests)
