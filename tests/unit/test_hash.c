/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"
#include "process_fixture.h"

static bool is_equal(struct sp_hash x, struct sp_hash y)
{
    return x.a == y.a && x.b == y.b;
}

static int bits_apart(struct sp_hash x, struct sp_hash y)
{
    return __builtin_popcountll(x.a ^ y.a) + __builtin_popcountll(x.b ^ y.b);
}

static void test_the_same_bytes_have_the_same_hash(void **state)
{
    char text[80];

    (void)state;
    memset(text, 'x', sizeof text);
    for (size_t n = 0; n < 64; n++) {
        const struct sp_hash first = sp_hash((struct sp_str){text, n});
        char *copy = test_copy((struct sp_str){text + 5, n}); /* elsewhere, and otherwise aligned */

        assert_true(is_equal(first, sp_hash((struct sp_str){copy, n})));
        free(copy);
    }
    assert_true(is_equal(sp_hash(SP_STR("")), sp_hash((struct sp_str){NULL, 0})));
}

static void test_near_texts_are_far_apart(void **state)
{
    unsigned char text[64] = {0};

    (void)state;
    for (size_t n = 1; n <= sizeof text; n++) {
        const struct sp_hash whole = sp_hash((struct sp_str){(const char *)text, n});

        assert_false(is_equal(whole, sp_hash((struct sp_str){(const char *)text, n - 1})));
        for (size_t bit = 0; bit < n * 8; bit++) {
            text[bit / 8] ^= (unsigned char)(1U << bit % 8);
            const int apart = bits_apart(whole, sp_hash((struct sp_str){(const char *)text, n}));
            text[bit / 8] ^= (unsigned char)(1U << bit % 8);
            if (apart < 24 || apart > 104) /* 64 on average; this far off once in 10^12 */
                fail_msg("%zu bytes, bit %zu: %d bits apart", n, bit, apart);
        }
    }
}

static int by_value(const void *x, const void *y)
{
    return memcmp(x, y, sizeof(struct sp_hash));
}

static void test_a_hundred_thousand_numbers_never_meet(void **state)
{
    enum { COUNT = 100000 };
    struct sp_hash *all = calloc(COUNT, sizeof *all);
    unsigned buckets[64] = {0};
    char text[16];

    (void)state;
    assert_non_null(all);
    for (int i = 0; i < COUNT; i++) {
        const int n = snprintf(text, sizeof text, "%d", i);

        all[i] = sp_hash((struct sp_str){text, (size_t)n});
        buckets[all[i].a % 64]++;
    }
    for (int i = 0; i < 64; i++)
        assert_in_range(buckets[i], COUNT / 64 / 2, COUNT / 64 * 2);
    qsort(all, COUNT, sizeof *all, by_value);
    for (int i = 1; i < COUNT; i++)
        assert_false(is_equal(all[i - 1], all[i]));
    free(all);
}

/* The hash of a text in another process, which does what `word` says. */
static struct sp_hash hash_elsewhere(const char *word)
{
    struct sp_hash theirs;
    int fd[2];

    assert_int_equal(pipe2(fd, O_CLOEXEC), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char *const argv[] = {(char *)(uintptr_t) "hash", (char *)(uintptr_t)word, NULL};

        (void)dup2(fd[1], 1);
        (void)execv("/proc/self/exe", argv);
        _exit(127);
    }
    (void)close(fd[1]);
    assert_true(wait_fd(fd[0], POLLIN, DEADLINE_MS));
    assert_int_equal(read(fd[0], &theirs, sizeof theirs), sizeof theirs);
    (void)close(fd[0]);
    assert_int_equal(reap(pid, DEADLINE_MS), 0);
    return theirs;
}

/* Who does not know this process's key cannot prepare texts that meet. */
static void test_another_process_has_another_key(void **state)
{
    (void)state;
    assert_false(is_equal(hash_elsewhere("print"), sp_hash(SP_STR("text"))));
}

static void test_a_key_from_outside(void **state)
{
    (void)state;
    const struct sp_hash first = hash_elsewhere("print with key");
    assert_true(is_equal(hash_elsewhere("print with key"), first));
    assert_false(is_equal(sp_hash(SP_STR("text")), first));
    assert_false(sp_hash_set_key((const uint64_t[]){3, 4})); /* this process has hashed already */
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_the_same_bytes_have_the_same_hash),
    cmocka_unit_test(test_near_texts_are_far_apart),
    cmocka_unit_test(test_a_hundred_thousand_numbers_never_meet),
    cmocka_unit_test(test_another_process_has_another_key),
    cmocka_unit_test(test_a_key_from_outside),
};

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "print with key") == 0 &&
        !sp_hash_set_key((const uint64_t[]){1, 2}))
        return 1;
    if (argc == 2) {
        const struct sp_hash h = sp_hash(SP_STR("text"));

        return write(1, &h, sizeof h) == (ssize_t)sizeof h ? 0 : 1;
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
