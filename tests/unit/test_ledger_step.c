/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A front is killed after each instruction of what changes a ledger: its heir finds the state
 * before or the state after, nothing else.
 */
#include "core/ledger.h"
#include "step_fixture.h"

enum { OLD = 3, SIZE = 400, LOOSE = 64 };

struct scene {
    struct sp_ledger *ledger;
    unsigned char *old[OLD];
};

static unsigned char *build(struct sp_ledger *l, unsigned char fill)
{
    unsigned char *r = sp_ledger_alloc(l, SP_LEDGER_PROC, LOOSE, SIZE - LOOSE);

    if (r != NULL)
        memset(r, fill, SIZE);
    return r;
}

static void *make(void)
{
    static struct scene s;
    struct sp_err e;

    assert_int_equal(sp_ledger_new(&s.ledger, &e), 0);
    for (unsigned i = 0; i < OLD; i++) {
        s.old[i] = build(s.ledger, (unsigned char)('a' + i));
        assert_non_null(s.old[i]);
        sp_ledger_commit(s.ledger, s.old[i]);
    }
    return &s;
}

/* Which of the records a to z an heir finds, each of them whole; it can go on. */
static unsigned inherit(const struct scene *s)
{
    struct sp_ledger *heir;
    struct sp_err e;
    unsigned found = 0;
    size_t loose;
    size_t fixed;

    assert_int_equal(sp_ledger_open(dup(sp_ledger_fd(s->ledger)), &heir, &e), 0);
    sp_ledger_close(s->ledger);
    assert_int_equal(sp_ledger_removed(heir), 0);
    for (unsigned char *r = NULL;
         (r = sp_ledger_next(heir, SP_LEDGER_PROC, r, &loose, &fixed)) != NULL;) {
        assert_int_equal(loose, LOOSE);
        assert_int_equal(fixed, SIZE - LOOSE);
        for (size_t i = 1; i < SIZE; i++)
            assert_int_equal(r[i], r[0]);
        assert_in_range(r[0], 'a', 'z');
        assert_false(found & 1U << (r[0] - 'a'));
        found |= 1U << (r[0] - 'a');
    }
    for (unsigned i = 0; i < 20; i++) {
        unsigned char *more = build(heir, 'z');

        assert_non_null(more);
        sp_ledger_commit(heir, more);
    }
    sp_ledger_close(heir);
    return found;
}

#define A 1U
#define B 2U
#define C 4U
#define D 8U

static void add(void *arg)
{
    struct scene *s = arg;

    sp_ledger_commit(s->ledger, build(s->ledger, 'd'));
}

static void check_add(void *arg, bool is_done)
{
    const unsigned found = inherit(arg);

    assert_true(found == (A | B | C | D) || (!is_done && found == (A | B | C)));
}

static void test_a_record_is_there_or_not(void **state)
{
    (void)state;
    step_through(make, add, check_add);
}

static void take_away(void *arg)
{
    struct scene *s = arg;

    sp_ledger_free(s->ledger, s->old[1]);
}

static void check_take_away(void *arg, bool is_done)
{
    const unsigned found = inherit(arg);

    assert_true(found == (A | C) || (!is_done && found == (A | B | C)));
}

static void test_a_freed_record_is_there_or_not(void **state)
{
    (void)state;
    step_through(make, take_away, check_take_away);
}

/* The second record gets the memory of the first. */
static void replace(void *arg)
{
    struct scene *s = arg;

    sp_ledger_free(s->ledger, s->old[1]);
    sp_ledger_commit(s->ledger, build(s->ledger, 'd'));
}

static void check_replace(void *arg, bool is_done)
{
    const unsigned found = inherit(arg);

    assert_true(found == (A | C | D) || (!is_done && (found == (A | C) || found == (A | B | C))));
}

static void test_memory_is_used_again_only_after_the_free(void **state)
{
    (void)state;
    step_through(make, replace, check_replace);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_a_record_is_there_or_not),
    cmocka_unit_test(test_a_freed_record_is_there_or_not),
    cmocka_unit_test(test_memory_is_used_again_only_after_the_free),
};

TEST_MAIN(tests)
