/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/hostname.h"
#include "proxy/names.h"
#include "test.h"

/* The layout of the memory, written down once more. */
#define HEAD_BYTES  8
#define ENTRY_BYTES 272
#define NEXT_AT     4
#define ADDRESS_AT  0
#define LISTED_AT   4
#define USED_AT     8
#define TEXT_AT     16

struct table {
    int memory;
    struct sp_names *names;
};

static int begin(void **state)
{
    static struct table t;
    struct sp_err e;

    t.memory = memfd_create("names", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(t.memory >= 0);
    assert_int_equal(ftruncate(t.memory, (off_t)sp_names_bytes()), 0);
    assert_int_equal(sp_names_open(t.memory, &t.names, &e), 0);
    *state = &t;
    return 0;
}

static int end(void **state)
{
    struct table *t = *state;

    sp_names_close(t->names);
    (void)close(t->memory);
    return 0;
}

/* The next proxy of the cell. */
static void reopen(struct table *t)
{
    struct sp_err e;

    sp_names_close(t->names);
    t->names = NULL;
    assert_int_equal(sp_names_open(t->memory, &t->names, &e), 0);
}

static uint32_t give(struct table *t, unsigned number, bool is_listed)
{
    char text[40];

    (void)snprintf(text, sizeof text, "n%u.example", number);
    return sp_names_address(t->names, sp_str_of(text), is_listed);
}

/* Without marking it as used. */
static bool is_live(struct table *t, uint32_t address)
{
    for (size_t i = 0; i < SP_NAMES_MAX; i++) {
        uint32_t a;

        assert_int_equal(pread(t->memory, &a, 4, (off_t)(HEAD_BYTES + i * ENTRY_BYTES)), 4);
        if (a == address)
            return true;
    }
    return false;
}

static void poke(struct table *t, size_t entry, size_t at, const void *bytes, size_t n)
{
    assert_int_equal(pwrite(t->memory, bytes, n, (off_t)(HEAD_BYTES + entry * ENTRY_BYTES + at)),
                     (ssize_t)n);
}

static void test_addresses_stay(void **state)
{
    struct table *t = *state;

    assert_int_equal(sp_names_bytes(), HEAD_BYTES + SP_NAMES_MAX * ENTRY_BYTES);
    assert_int_equal(sp_names_count(t->names), 0);
    for (unsigned i = 0; i < SP_NAMES_MAX; i++)
        assert_int_equal(give(t, i, i % 2 == 0), SP_NAMES_FIRST + i);
    for (unsigned i = 0; i < SP_NAMES_MAX; i++) {
        char text[40];

        assert_int_equal(give(t, i, i % 2 == 0), SP_NAMES_FIRST + i);
        (void)snprintf(text, sizeof text, "n%u.example", i);
        assert_string_equal(sp_names_find(t->names, SP_NAMES_FIRST + i), text);
    }
    assert_int_equal(sp_names_count(t->names), SP_NAMES_MAX);
    assert_null(sp_names_find(t->names, 0));
    assert_null(sp_names_find(t->names, SP_NAMES_FIRST - 1));
    assert_null(sp_names_find(t->names, SP_NAMES_FIRST + SP_NAMES_MAX));
    assert_null(sp_names_find(t->names, UINT32_MAX));
    for (int round = 0; round < 3; round++) { /* proxies come and go */
        reopen(t);
        assert_int_equal(sp_names_count(t->names), SP_NAMES_MAX);
        for (unsigned i = 0; i < SP_NAMES_MAX; i++)
            assert_int_equal(give(t, i, false), SP_NAMES_FIRST + i);
    }
}

static void test_names_that_are_none(void **state)
{
    struct table *t = *state;
    char longest[SP_HOSTNAME_MAX + 2];

    memset(longest, 'x', sizeof longest);
    assert_int_equal(sp_names_address(t->names, SP_STR(""), false), 0);
    assert_int_equal(sp_names_address(t->names, SP_STR("a\0b"), false), 0);
    assert_int_equal(
        sp_names_address(t->names, (struct sp_str){longest, sizeof longest - 1}, false), 0);
    assert_int_equal(sp_names_address(t->names, (struct sp_str){longest, SP_HOSTNAME_MAX}, false),
                     SP_NAMES_FIRST);
    longest[SP_HOSTNAME_MAX] = 0;
    assert_string_equal(sp_names_find(t->names, SP_NAMES_FIRST), longest);
}

static void test_the_longest_unused_makes_room(void **state)
{
    struct table *t = *state;
    const uint32_t first = SP_NAMES_FIRST;

    for (unsigned i = 0; i < SP_NAMES_MAX; i++)
        (void)give(t, i, i < 3);              /* 0, 1, 2 are listed */
    (void)give(t, 4, false);                  /* used again, by a question */
    (void)sp_names_find(t->names, first + 3); /* and by a connection */
    assert_int_equal(give(t, 5000, false), first + SP_NAMES_MAX);
    assert_false(is_live(t, first + 5));
    assert_null(sp_names_find(t->names, first + 5));
    assert_int_equal(give(t, 5001, true), first + SP_NAMES_MAX + 1);
    assert_false(is_live(t, first + 6));
    /* a name that was dropped comes back with another address */
    assert_int_equal(give(t, 5, false), first + SP_NAMES_MAX + 2);
    assert_false(is_live(t, first + 7));
    assert_int_equal(sp_names_count(t->names), SP_NAMES_MAX);
    for (unsigned i = 0; i < 5; i++)
        assert_true(is_live(t, first + i));
    /* listed names go last, the longest unused first; listing is not for ever */
    for (unsigned i = 0; i < SP_NAMES_MAX; i++)
        (void)give(t, 10000 + i, true);
    assert_false(is_live(t, first));
    (void)give(t, 10010, false);
    (void)give(t, 6000, true);
    assert_int_equal(give(t, 10000, true), first + SP_NAMES_MAX + 3);
    assert_int_not_equal(give(t, 10010, true), first + SP_NAMES_MAX + 13);
}

/* The order of uses survives the proxy. */
static void test_order_after_a_restart(void **state)
{
    struct table *t = *state;

    for (unsigned i = 0; i < SP_NAMES_MAX; i++)
        (void)give(t, i, i == 1);
    (void)give(t, 0, false);
    reopen(t);
    (void)give(t, 5000, false);
    assert_true(is_live(t, SP_NAMES_FIRST));
    assert_true(is_live(t, SP_NAMES_FIRST + 1));
    assert_false(is_live(t, SP_NAMES_FIRST + 2));
}

static void test_names_with_a_connection_stay(void **state)
{
    struct table *t = *state;

    for (unsigned i = 0; i < SP_NAMES_MAX; i++) {
        const uint32_t a = give(t, i, false);

        sp_names_hold(t->names, a, true);
        if (i == 7) /* two connections, of which one ends */
            sp_names_hold(t->names, a, true);
    }
    sp_names_hold(t->names, SP_NAMES_FIRST + 7, false);
    assert_int_equal(give(t, 5000, true), 0);
    assert_int_equal(give(t, 9, true), SP_NAMES_FIRST + 9); /* known ones work */
    (void)sp_names_find(t->names, SP_NAMES_FIRST + 9);
    assert_int_equal(give(t, 5000, true), 0);
    sp_names_hold(t->names, SP_NAMES_FIRST + 9, false);
    assert_int_equal(give(t, 5000, true), SP_NAMES_FIRST + SP_NAMES_MAX);
    assert_null(sp_names_find(t->names, SP_NAMES_FIRST + 9));
    /* of dead addresses, and more ends than beginnings */
    sp_names_hold(t->names, SP_NAMES_FIRST + 9, false);
    sp_names_hold(t->names, SP_NAMES_FIRST + 9, true);
    sp_names_hold(t->names, 0, true);
    sp_names_hold(t->names, SP_NAMES_FIRST + 3, false);
    sp_names_hold(t->names, SP_NAMES_FIRST + 3, false);
    sp_names_hold(t->names, SP_NAMES_FIRST + 3, true);
    sp_names_hold(t->names, SP_NAMES_FIRST + 3, false);
    assert_int_equal(give(t, 5001, true),
                     SP_NAMES_FIRST + SP_NAMES_MAX + 1); /* the held 5000 not */
    assert_int_equal(give(t, 5002, true), SP_NAMES_FIRST + SP_NAMES_MAX + 2);
    reopen(t); /* connections end with the proxy */
    assert_int_equal(give(t, 5003, true), SP_NAMES_FIRST + SP_NAMES_MAX + 3);
}

/* 100,000 names: no address twice, listed ones keep theirs. */
static void test_never_twice(void **state)
{
    struct table *t = *state;
    uint32_t last = 0;

    for (unsigned i = 0; i < 100; i++)
        assert_int_equal(give(t, 1000000 + i, true), SP_NAMES_FIRST + i);
    for (unsigned i = 0; i < 100000; i++) {
        const uint32_t a = give(t, i, false);

        assert_true(a > last && a >= SP_NAMES_FIRST + 100 && a <= SP_NAMES_LAST);
        last = a;
        if (i % 30011 == 0)
            reopen(t);
    }
    for (unsigned i = 0; i < 100; i++)
        assert_int_equal(give(t, 1000000 + i, true), SP_NAMES_FIRST + i);
    assert_int_equal(sp_names_count(t->names), SP_NAMES_MAX);
}

static void test_the_last_address(void **state)
{
    struct table *t = *state;
    const uint32_t next = SP_NAMES_LAST;

    assert_int_equal(give(t, 1, false), SP_NAMES_FIRST);
    assert_int_equal(pwrite(t->memory, &next, 4, NEXT_AT), 4);
    reopen(t);
    assert_int_equal(give(t, 2, false), SP_NAMES_LAST);
    assert_int_equal(give(t, 3, false), 0);
    assert_int_equal(give(t, 1, false), SP_NAMES_FIRST);
    reopen(t);
    assert_int_equal(give(t, 4, false), 0);
    assert_int_equal(give(t, 2, false), SP_NAMES_LAST);
    assert_int_equal(sp_names_count(t->names), 2);
}

/* ---- what a proxy leaves that was taken over ---- */

static void test_malformed_entries_are_dropped(void **state)
{
    static const char *const bad[] = {"",    "UPPER.example", "a..b",       "a b",   "127.0.0.1",
                                      "::1", "a\nb",          "trailing.",  "[::1]", "a/b",
                                      "*.x", "0x7f.1",        "n30.example"};
    const size_t count = sizeof bad / sizeof bad[0];
    struct table *t = *state;
    char no_end[254];

    for (unsigned i = 0; i < 40; i++)
        (void)give(t, i, true);
    for (size_t i = 0; i < count; i++)
        poke(t, i, TEXT_AT, bad[i], strlen(bad[i]) + 1);
    memset(no_end, 'x', sizeof no_end);
    poke(t, 20, TEXT_AT, no_end, sizeof no_end);
    static const uint32_t addresses[] = {1,          0x7f000001,        SP_NAMES_FIRST - 1,
                                         UINT32_MAX, SP_NAMES_LAST + 1, SP_NAMES_FIRST + 33};
    for (size_t i = 0; i < 6; i++)
        poke(t, 21 + i, ADDRESS_AT, &addresses[i], 4);
    reopen(t);
    /* Of the two with the text of n30, and of the two with the address of n33, one is left. */
    assert_int_equal(sp_names_count(t->names), 40 - count - 1 - 6);
    for (unsigned i = 0; i < SP_NAMES_MAX + 10; i++) {
        const char *text = sp_names_find(t->names, SP_NAMES_FIRST + i);
        struct sp_hostname h;

        assert_true(text == NULL || (sp_hostname_read(sp_str_of(text), &h) == NULL &&
                                     !h.is_address && strcmp(h.text, text) == 0));
    }
    assert_int_equal(give(t, 100, false), SP_NAMES_FIRST + 40);
}

static void test_wrong_numbers(void **state)
{
    const uint32_t low = 5;
    const uint32_t high = UINT32_MAX;
    const uint64_t latest = UINT64_MAX;
    struct table *t = *state;

    for (unsigned i = 0; i < 10; i++)
        (void)give(t, i, false);
    poke(t, 3, USED_AT, &latest, 8);
    poke(t, 4, USED_AT, &latest, 8);
    poke(t, 5, LISTED_AT, &high, 4);
    assert_int_equal(pwrite(t->memory, &low, 4, NEXT_AT), 4);
    reopen(t);
    assert_int_equal(sp_names_count(t->names), 10);
    assert_int_equal(give(t, 10, false), SP_NAMES_FIRST + 10); /* behind all live ones */
    assert_int_equal(pwrite(t->memory, &high, 4, NEXT_AT), 4);
    reopen(t);
    assert_int_equal(give(t, 11, false), 0); /* none left rather than one twice */
    assert_int_equal(give(t, 10, false), SP_NAMES_FIRST + 10);
}

static void test_another_version_begins_anew(void **state)
{
    struct table *t = *state;

    (void)give(t, 0, false);
    (void)give(t, 1, false);
    assert_int_equal(pwrite(t->memory, "xxxx", 4, 0), 4);
    reopen(t);
    assert_int_equal(sp_names_count(t->names), 0);
    assert_null(sp_names_find(t->names, SP_NAMES_FIRST));
    assert_int_equal(give(t, 1, false), SP_NAMES_FIRST);
    reopen(t);
    assert_int_equal(sp_names_count(t->names), 1);
}

static void test_noise(void **state)
{
    struct table *t = *state;
    uint64_t seed = 65;

    for (int round = 0; round < 50; round++) {
        for (unsigned i = 0; i < 50; i++)
            (void)give(t, test_random(&seed) % 2000, i % 3 == 0);
        for (int i = 0; i < 2000; i++) {
            const off_t at = (off_t)(4 + test_random(&seed) % (sp_names_bytes() - 4));
            const char byte = (char)test_random(&seed);

            assert_int_equal(pwrite(t->memory, &byte, 1, at), 1);
        }
        reopen(t);
        assert_true(sp_names_count(t->names) <= SP_NAMES_MAX);
    }
}

/* What an earlier proxy still writes changes nothing. */
static void test_the_memory_is_read_once(void **state)
{
    struct table *t = *state;

    (void)give(t, 0, false);
    poke(t, 0, TEXT_AT, "evil.example", 13);
    assert_string_equal(sp_names_find(t->names, SP_NAMES_FIRST), "n0.example");
    assert_int_equal(give(t, 0, false), SP_NAMES_FIRST);
}

static void test_memory_that_is_too_small(void **state)
{
    struct table *t = *state;
    const int small = memfd_create("small", MFD_CLOEXEC);
    struct sp_names *n = NULL;
    struct sp_err e;

    assert_int_equal(ftruncate(small, (off_t)sp_names_bytes() - 1), 0);
    assert_int_equal(sp_names_open(small, &n, &e), -SP_E_MALFORMED);
    assert_int_equal(sp_names_open(-1, &n, &e), -SP_E_MALFORMED);
    assert_null(n);
    (void)close(small);
    assert_int_equal(ftruncate(t->memory, 0), -1); /* sealed */
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(test_addresses_stay, begin, end),
    cmocka_unit_test_setup_teardown(test_names_that_are_none, begin, end),
    cmocka_unit_test_setup_teardown(test_the_longest_unused_makes_room, begin, end),
    cmocka_unit_test_setup_teardown(test_order_after_a_restart, begin, end),
    cmocka_unit_test_setup_teardown(test_names_with_a_connection_stay, begin, end),
    cmocka_unit_test_setup_teardown(test_never_twice, begin, end),
    cmocka_unit_test_setup_teardown(test_the_last_address, begin, end),
    cmocka_unit_test_setup_teardown(test_malformed_entries_are_dropped, begin, end),
    cmocka_unit_test_setup_teardown(test_wrong_numbers, begin, end),
    cmocka_unit_test_setup_teardown(test_another_version_begins_anew, begin, end),
    cmocka_unit_test_setup_teardown(test_noise, begin, end),
    cmocka_unit_test_setup_teardown(test_the_memory_is_read_once, begin, end),
    cmocka_unit_test_setup_teardown(test_memory_that_is_too_small, begin, end),
};

TEST_MAIN(tests)
