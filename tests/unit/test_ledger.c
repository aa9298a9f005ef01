/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/hash.h"
#include "core/ledger.h"
#include "test.h"

#define INDEX_AT 8192U
#define HEAP_AT  (INDEX_AT + SP_LEDGER_RECORDS * 8)

static struct sp_ledger *make(void)
{
    struct sp_ledger *l;
    struct sp_err e;

    assert_int_equal(sp_ledger_new(&l, &e), 0);
    return l;
}

/* What a front finds after this one was killed. */
static struct sp_ledger *inherit(const struct sp_ledger *l)
{
    struct sp_ledger *heir;
    struct sp_err e;
    const int fd = dup(sp_ledger_fd(l));

    assert_true(fd >= 0);
    if (sp_ledger_open(fd, &heir, &e) != 0)
        fail_msg("%s", e.msg);
    return heir;
}

static struct sp_ledger *succeed(struct sp_ledger *l)
{
    struct sp_ledger *heir = inherit(l);

    sp_ledger_close(l);
    return heir;
}

static uint64_t *word_at(const struct sp_ledger *l, uint8_t **map, uint32_t slot)
{
    if (*map == NULL)
        *map = mmap(NULL, HEAP_AT, PROT_READ | PROT_WRITE, MAP_SHARED, sp_ledger_fd(l), 0);
    assert_true(*map != MAP_FAILED);
    return (uint64_t *)(void *)(*map + INDEX_AT) + slot;
}

static void *add(struct sp_ledger *l, enum sp_ledger_kind kind, const char *loose,
                 const char *fixed)
{
    const size_t loose_size = (strlen(loose) + 7) / 8 * 8;
    char *r = sp_ledger_alloc(l, kind, loose_size, strlen(fixed));

    assert_non_null(r);
    assert_int_equal((uintptr_t)r % 16, 0);
    memcpy(r, loose, strlen(loose));
    memcpy(r + loose_size, fixed, strlen(fixed));
    sp_ledger_commit(l, r);
    return r;
}

static unsigned count(struct sp_ledger *l, enum sp_ledger_kind kind)
{
    size_t loose;
    size_t fixed;
    unsigned n = 0;

    for (void *r = NULL; (r = sp_ledger_next(l, kind, r, &loose, &fixed)) != NULL;)
        n++;
    return n;
}

static uint64_t memory_of(const struct sp_ledger *l)
{
    struct stat st;

    assert_int_equal(fstat(sp_ledger_fd(l), &st), 0);
    return (uint64_t)st.st_blocks * 512;
}

static void test_crc(void **state)
{
    char text[200];

    (void)state;
    assert_int_equal(sp_crc32c(0, "123456789", 9), 0xe3069283);
    assert_int_equal(sp_crc32c(sp_crc32c(0, "1234", 4), "56789", 5), 0xe3069283);
    assert_int_equal(sp_crc32c(0, "", 0), 0);
    memset(text, 0, sizeof text);
    assert_int_equal(sp_crc32c(0, text, 32), 0x8a9136aa);
    for (size_t n = 0; n < 100; n++) /* in parts, however they are aligned */
        assert_int_equal(sp_crc32c(sp_crc32c(0, text + 3, n), text + 3 + n, 100 - n),
                         sp_crc32c(0, text, 100));
}

static void test_an_heir_finds_what_was_committed(void **state)
{
    struct sp_ledger *l = make();
    size_t loose;
    size_t fixed;

    (void)state;
    (void)add(l, SP_LEDGER_PROC, "loose", "fixed bytes");
    void *gone = add(l, SP_LEDGER_PROC, "", "gone");
    (void)add(l, SP_LEDGER_CELL, "12345678", "");
    sp_ledger_free(l, gone);
    sp_ledger_free(l, NULL);
    void *never = sp_ledger_alloc(l, SP_LEDGER_PROC, 8, 8);
    assert_non_null(never);
    assert_int_equal(count(l, SP_LEDGER_PROC), 1);
    l = succeed(l);
    assert_int_equal(sp_ledger_removed(l), 0);
    const char *r = sp_ledger_next(l, SP_LEDGER_PROC, NULL, &loose, &fixed);
    assert_non_null(r);
    assert_int_equal(loose, 8);
    assert_int_equal(fixed, 11);
    assert_memory_equal(r, "loose\0\0\0fixed bytes", 19);
    assert_null(sp_ledger_next(l, SP_LEDGER_PROC, r, &loose, &fixed));
    assert_int_equal(count(l, SP_LEDGER_CELL), 1);
    assert_int_equal(count(l, SP_LEDGER_SESSION), 0);
    sp_ledger_close(l);
}

static void test_names_are_distinct(void **state)
{
    struct sp_ledger *l = make();
    void *r = add(l, SP_LEDGER_PROC, "", "one");
    const uint64_t first = sp_ledger_name(l, r);

    (void)state;
    assert_true(first != 0);
    sp_ledger_free(l, r);
    r = add(l, SP_LEDGER_PROC, "", "two");
    const uint64_t second = sp_ledger_name(l, r);
    assert_true(second != first);
    l = succeed(l);
    r = add(l, SP_LEDGER_PROC, "", "two");
    assert_true(sp_ledger_name(l, r) != first && sp_ledger_name(l, r) != second);
    sp_ledger_close(l);
}

static void test_loose_bytes_change_and_fixed_ones_do_not(void **state)
{
    struct sp_ledger *l = make();
    char *changed = add(l, SP_LEDGER_PROC, "12345678", "abcdefgh");
    char *broken = add(l, SP_LEDGER_PROC, "12345678", "abcdefgh");
    size_t loose;
    size_t fixed;

    (void)state;
    memcpy(changed, "87654321", 8);
    broken[11] ^= 1;
    l = succeed(l);
    assert_int_equal(sp_ledger_removed(l), 1);
    assert_int_equal(count(l, SP_LEDGER_PROC), 1);
    const char *r = sp_ledger_next(l, SP_LEDGER_PROC, NULL, &loose, &fixed);
    assert_memory_equal(r, "87654321abcdefgh", 16);
    l = succeed(l); /* the removed one is gone for good */
    assert_int_equal(sp_ledger_removed(l), 0);
    sp_ledger_close(l);
}

static void test_the_header_outlives_its_front(void **state)
{
    struct sp_ledger *l = make();
    uint64_t key[2];

    (void)state;
    sp_hash_key(key);
    assert_memory_equal(sp_ledger_header(l)->hash_key, key, sizeof key);
    assert_false(sp_hash_set_key((const uint64_t[]){1, 2}));
    atomic_store(&sp_ledger_header(l)->generation, 7);
    l = succeed(l);
    assert_int_equal(atomic_load(&sp_ledger_header(l)->generation), 7);
    sp_ledger_close(l);
}

static void test_a_full_index(void **state)
{
    struct sp_ledger *l = make();
    void *last = NULL;
    void *r;
    uint32_t n = 0;

    (void)state;
    while ((r = sp_ledger_alloc(l, SP_LEDGER_DECISION, 0, 40)) != NULL) {
        sp_ledger_commit(l, last = r);
        n++;
    }
    assert_int_equal(n, SP_LEDGER_RECORDS);
    sp_ledger_free(l, last);
    assert_non_null(last = sp_ledger_alloc(l, SP_LEDGER_DECISION, 0, 40));
    assert_null(sp_ledger_alloc(l, SP_LEDGER_DECISION, 0, 40));
    l = succeed(l);
    assert_int_equal(sp_ledger_removed(l), 0);
    assert_int_equal(count(l, SP_LEDGER_DECISION), SP_LEDGER_RECORDS - 1);
    sp_ledger_close(l);
}

static void test_a_full_heap(void **state)
{
    struct sp_ledger *l = make();
    void *records[64];
    unsigned n = 0;

    (void)state;
    assert_null(sp_ledger_alloc(l, SP_LEDGER_PROC, 0, SP_LEDGER_RECORD));
    assert_null(sp_ledger_alloc(l, SP_LEDGER_PROC, 0, SIZE_MAX));
    assert_null(sp_ledger_alloc(l, SP_LEDGER_PROC, SIZE_MAX / 8 * 8, 1));
    const uint64_t before = memory_of(l);
    while (n < 64 && (records[n] = sp_ledger_alloc(l, SP_LEDGER_PROC, 0, 16 << 20)) != NULL)
        n++;
    assert_int_equal(n, 31); /* of 512 MiB: each has a header too */
    assert_true(memory_of(l) >= before + (496U << 20));
    for (unsigned i = 0; i < n; i += 2)
        sp_ledger_free(l, records[i]);
    assert_null(sp_ledger_alloc(l, SP_LEDGER_PROC, 0, 40 << 20));
    for (unsigned i = 1; i < n; i += 2)
        sp_ledger_free(l, records[i]);
    assert_true(memory_of(l) < before + (1U << 20));
    assert_non_null(sp_ledger_alloc(l, SP_LEDGER_PROC, 0, 40 << 20));
    sp_ledger_close(l);
}

/* ---- the same operations on a ledger and on a list ---- */

struct model {
    unsigned char *record; /* NULL: none */
    size_t loose, fixed;
    unsigned char fill;
    bool is_committed;
};

static size_t some_size(uint64_t *seed)
{
    switch (test_random(seed) % 16) {
    case 0:
        return 0;
    case 1:
        return test_random(seed) % 300000;
    case 2:
        return test_random(seed) % 20000;
    default:
        return test_random(seed) % 700;
    }
}

static void check_model(const struct model *m)
{
    for (size_t i = 0; i < m->loose + m->fixed; i++)
        if (m->record[i] != m->fill)
            fail_msg("byte %zu of %zu is %u, not %u", i, m->loose + m->fixed, m->record[i],
                     m->fill);
}

static void change(struct sp_ledger *l, struct model *m, uint64_t *seed)
{
    if (m->record != NULL) {
        check_model(m);
        sp_ledger_free(l, m->record);
        m->record = NULL;
        return;
    }
    m->loose = some_size(seed) / 8 * 8;
    m->fixed = some_size(seed);
    m->fill = (unsigned char)test_random(seed);
    m->record = sp_ledger_alloc(l, SP_LEDGER_PAST, m->loose, m->fixed);
    assert_non_null(m->record);
    for (size_t i = 0; i < m->loose + m->fixed; i++)
        assert_int_equal(m->record[i], 0);
    if (m->loose + m->fixed > 0)
        memset(m->record, m->fill, m->loose + m->fixed);
    m->is_committed = test_random(seed) % 8 != 0;
    if (m->is_committed)
        sp_ledger_commit(l, m->record);
}

/* The heir has the file elsewhere in memory. */
static struct sp_ledger *move_models(struct sp_ledger *l, struct model *models, unsigned n)
{
    struct sp_ledger *heir = inherit(l);
    const uintptr_t from = (uintptr_t)sp_ledger_header(l);
    unsigned committed = 0;

    for (unsigned i = 0; i < n; i++) {
        struct model *m = &models[i];

        if (m->record == NULL)
            continue;
        committed += m->is_committed;
        m->record = m->is_committed
                        ? (unsigned char *)sp_ledger_header(heir) + ((uintptr_t)m->record - from)
                        : NULL;
    }
    assert_int_equal(sp_ledger_removed(heir), 0);
    assert_int_equal(count(heir, SP_LEDGER_PAST), committed);
    sp_ledger_close(l);
    return heir;
}

static void test_any_order(void **state)
{
    static struct model models[400];
    struct sp_ledger *l = make();
    uint64_t seed = 1;

    (void)state;
    const uint64_t before = memory_of(l);
    for (unsigned i = 0; i < 40000; i++) {
        change(l, &models[test_random(&seed) % 400], &seed);
        if (i % 4000 == 3999)
            l = move_models(l, models, 400);
    }
    for (unsigned i = 0; i < 400; i++)
        if (models[i].record != NULL)
            change(l, &models[i], &seed);
    assert_true(memory_of(l) < before + (2U << 20));
    for (unsigned i = 0; i < 10; i++) /* one extent again */
        assert_non_null(sp_ledger_alloc(l, SP_LEDGER_PAST, 0, 40 << 20));
    sp_ledger_close(l);
}

/* ---- what a hostile front may leave ---- */

static void test_words_that_name_nothing(void **state)
{
    struct sp_ledger *l = make();
    uint8_t *map = NULL;
    uint64_t seed = 2;

    (void)state;
    for (unsigned i = 0; i < 100; i++)
        (void)add(l, SP_LEDGER_PROC, "loose bytes", "some fixed bytes");
    const uint64_t good = *word_at(l, &map, 50);
    *word_at(l, &map, 200) = good; /* twice the same place */
    *word_at(l, &map, 201) = UINT64_MAX;
    *word_at(l, &map, 202) = good & 0x7fffff;                         /* no units, no kind */
    *word_at(l, &map, 203) = good + 1;                                /* the next unit */
    *word_at(l, &map, 50) = good ^ (uint64_t)1 << 48;                 /* another serial */
    *word_at(l, &map, 51) = good ^ (uint64_t)1 << 43;                 /* another kind */
    *word_at(l, &map, 204) = (uint64_t)0x7fffff | (uint64_t)9 << 23 | /* behind the end */
                             (uint64_t)1 << 43;
    for (unsigned i = 300; i < 1000; i++)
        *word_at(l, &map, i) = (uint64_t)test_random(&seed) << 32 | test_random(&seed);
    munmap(map, HEAP_AT);
    l = succeed(l);
    assert_in_range(count(l, SP_LEDGER_PROC), 90, 98);
    l = succeed(l);
    assert_int_equal(sp_ledger_removed(l), 0);
    for (unsigned i = 0; i < 100; i++)
        (void)add(l, SP_LEDGER_CELL, "loose", "fixed");
    assert_int_equal(count(l, SP_LEDGER_CELL), 100);
    sp_ledger_close(l);
}

/* Each word names all of the heap that one can: the memory is looked at once. */
static void test_many_large_lies(void **state)
{
    struct sp_ledger *l = make();
    uint8_t *map = NULL;

    (void)state;
    for (uint32_t i = 0; i < SP_LEDGER_RECORDS; i++)
        *word_at(l, &map, i) = (uint64_t)(SP_LEDGER_RECORDS - i) | (uint64_t)0xbffff << 23 |
                               (uint64_t)1 << 43 | (uint64_t)1 << 48;
    munmap(map, HEAP_AT);
    l = succeed(l);
    assert_int_equal(sp_ledger_removed(l), SP_LEDGER_RECORDS);
    assert_non_null(sp_ledger_alloc(l, SP_LEDGER_PAST, 0, 40 << 20));
    sp_ledger_close(l);
}

static void assert_refused(int fd, const char *text)
{
    struct sp_ledger *l;
    struct sp_err e;

    assert_int_equal(sp_ledger_open(fd, &l, &e), -SP_E_MALFORMED);
    assert_non_null(strstr(e.msg, text));
    assert_int_equal(close(fd), 0);
}

static void test_files_that_are_no_ledger(void **state)
{
    struct sp_ledger *l = make();
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    (void)state;
    assert_int_equal(ftruncate(fd, HEAP_AT + (1 << 20)), 0);
    assert_refused(dup(fd), "not sealed");
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL), 0);
    assert_refused(fd, "no ledger");
    fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, HEAP_AT), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL), 0);
    assert_refused(fd, "wrong size");
    sp_ledger_header(l)->min_reader = SP_LEDGER_FORMAT + 1;
    assert_refused(dup(sp_ledger_fd(l)), "format");
    sp_ledger_header(l)->min_reader = SP_LEDGER_FORMAT;
    sp_ledger_header(l)->format = SP_LEDGER_FORMAT + 1; /* newer, and we may read it */
    sp_ledger_close(inherit(l));
    sp_ledger_header(l)->heap_units--;
    assert_refused(dup(sp_ledger_fd(l)), "layout");
    sp_ledger_close(l);
}

static void test_a_limit_of_file_sizes(void **state)
{
    const pid_t pid = fork();
    int status;

    (void)state;
    assert_true(pid >= 0);
    if (pid == 0) {
        struct sp_ledger *l;
        struct sp_err e;
        unsigned n = 0;

        (void)setrlimit(RLIMIT_FSIZE, &(struct rlimit){100 << 20, 100 << 20});
        if (sp_ledger_new(&l, &e) != 0)
            _exit(1);
        while (sp_ledger_alloc(l, SP_LEDGER_PROC, 0, 1 << 20) != NULL)
            n++;
        if (n < 60 || n > 64)
            _exit(2);
        (void)setrlimit(RLIMIT_FSIZE, &(struct rlimit){1 << 20, 1 << 20});
        _exit(sp_ledger_new(&l, &e) == -SP_E_SYSTEM && e.sys == EFBIG ? 0 : 3);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_crc),
    cmocka_unit_test(test_an_heir_finds_what_was_committed),
    cmocka_unit_test(test_names_are_distinct),
    cmocka_unit_test(test_loose_bytes_change_and_fixed_ones_do_not),
    cmocka_unit_test(test_the_header_outlives_its_front),
    cmocka_unit_test(test_a_full_index),
    cmocka_unit_test(test_a_full_heap),
    cmocka_unit_test(test_any_order),
    cmocka_unit_test(test_words_that_name_nothing),
    cmocka_unit_test(test_many_large_lies),
    cmocka_unit_test(test_files_that_are_no_ledger),
    cmocka_unit_test(test_a_limit_of_file_sizes),
};

TEST_MAIN(tests)
