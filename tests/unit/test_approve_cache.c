/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "approve/cache.h"
#include "memory_fixture.h"
#include "test.h"

static const struct sp_str cargo_test[] = {SP_STR("/bin/bash"), SP_STR("-lc"),
                                           SP_STR("cargo  test")};
static const struct sp_cache_command plain = {
    .environment = SP_STR("local"), .argv = {cargo_test, 3}, .cwd = SP_STR("file:///repo")};

static struct sp_str key_of(struct sp_buf *b)
{
    return (struct sp_str){b->data, b->len};
}

static bool has_command(const struct sp_cache *cache, const struct sp_cache_command *c)
{
    auto_buf struct sp_buf key = {0};

    assert_true(sp_cache_add_command_key(&key, c));
    return sp_cache_has(cache, key_of(&key), false);
}

static void store_command(struct sp_cache *cache, const struct sp_cache_command *c)
{
    auto_buf struct sp_buf key = {0};

    assert_true(sp_cache_add_command_key(&key, c));
    assert_true(sp_cache_store(cache, key_of(&key), false));
}

static struct sp_cache_command with_argv(const struct sp_str *argv, uint32_t count)
{
    struct sp_cache_command c = plain;

    c.argv = (struct sp_words){argv, count};
    return c;
}

/* A plain script of the words by which another one would be told is not that other one. */
static void test_no_script_passes_for_another(void **state)
{
    const struct sp_str script = SP_STR("rm -r \"$X\"");
    const struct sp_str opaque[] = {cargo_test[0], SP_STR("-lc"), script};
    const struct sp_str forged[] = {cargo_test[0], SP_STR("-lc"),
                                    SP_STR("__codex_shell_script__ -lc 'rm -r \"$X\"'")};
    const struct sp_str shorter[] = {cargo_test[0], SP_STR("-lc"), SP_STR("-lc 'rm -r \"$X\"'")};
    struct sp_cache *cache = sp_cache_new();

    (void)state;
    assert_non_null(cache);
    const struct sp_cache_command asked[] = {with_argv(forged, 3), with_argv(shorter, 3)};
    store_command(cache, &asked[0]);
    store_command(cache, &asked[1]);
    const struct sp_cache_command wanted = with_argv(opaque, 3);
    assert_false(has_command(cache, &wanted));
    store_command(cache, &wanted);
    assert_true(has_command(cache, &wanted));
    sp_cache_free(cache);
}

/* Cases 102 to 108: every row but the first is another command. */
static void test_commands(void **state)
{
    const struct sp_str one_blank[] = {cargo_test[0], SP_STR("-lc"), SP_STR("cargo test")};
    const struct sp_str bare[] = {SP_STR("bash"), SP_STR("-lc"), SP_STR("cargo test")};
    const struct sp_str two[] = {cargo_test[0], SP_STR("-lc"), SP_STR("cargo test; ls")};
    const struct sp_str joined[] = {cargo_test[0], SP_STR("-lc"), SP_STR("'cargo test'")};
    const struct sp_str no_login[] = {cargo_test[0], SP_STR("-c"), SP_STR("cargo test")};
    struct sp_cache *cache = sp_cache_new();
    struct sp_cache_command other[10];

    (void)state;
    assert_non_null(cache);
    assert_false(has_command(cache, &plain)); /* 105, 106, 110: nothing was stored */
    store_command(cache, &plain);
    const struct sp_cache_command same = with_argv(one_blank, 3);
    assert_true(has_command(cache, &same)); /* 102 */
    for (size_t i = 0; i < 10; i++)
        other[i] = plain;
    other[0] = with_argv(bare, 3);          /* 103 */
    other[1].cwd = SP_STR("file:///other"); /* 104 */
    other[2].is_tty = true;
    other[3].permissions = SP_PERMISSIONS_ESCALATED;
    other[4].environment = SP_STR("remote");
    other[5].additional = SP_STR("{\"network\":true}");
    other[6].fingerprint = SP_STR("rules of another day"); /* 108 */
    other[7] = with_argv(two, 3);
    other[8] = with_argv(joined, 3);
    other[9] = with_argv(no_login, 3);
    for (size_t i = 0; i < 10; i++)
        if (has_command(cache, &other[i]))
            fail_msg("command %zu is taken for the one that was approved", i);
    sp_cache_free(cache);
}

static void test_an_opaque_script_is_every_byte_of_it(void **state)
{
    const struct sp_str a[] = {SP_STR("/bin/bash"), SP_STR("-lc"), SP_STR("ls  > x")};
    const struct sp_str b[] = {SP_STR("/bin/bash"), SP_STR("-lc"), SP_STR("ls > x")};
    const struct sp_str c[] = {SP_STR("/bin/bash"), SP_STR("-c"), SP_STR("ls  > x")};
    const struct sp_cache_command commands[] = {with_argv(a, 3), with_argv(b, 3), with_argv(c, 3)};
    struct sp_cache *cache = sp_cache_new();

    (void)state;
    assert_non_null(cache);
    for (size_t i = 0; i < 3; i++) {
        assert_false(has_command(cache, &commands[i])); /* 107 */
        store_command(cache, &commands[i]);
        assert_true(has_command(cache, &commands[i]));
    }
    sp_cache_free(cache);
}

/* Bytes of one text never count as those of its neighbour, and none of them as another. */
static void test_keys_are_told_apart(void **state)
{
    static const struct sp_str argvs[][3] = {
        {SP_STR("a"), SP_STR("b"), SP_STR("c")},    {SP_STR("a"), SP_STR("bc"), SP_STR("")},
        {SP_STR("a"), SP_STR("b,1:c"), SP_STR("")}, {SP_STR("ab"), SP_STR("c"), SP_STR("")},
        {SP_STR("a"), SP_STR("\xff"), SP_STR("")},  {SP_STR("a"), SP_STR("\xfe"), SP_STR("")},
        {SP_STR("a"), SP_STR(""), SP_STR("")},
    };
    struct sp_cache *cache = sp_cache_new();

    (void)state;
    assert_non_null(cache);
    for (size_t i = 0; i < sizeof argvs / sizeof *argvs; i++)
        for (uint32_t n = 2; n <= 3; n++) {
            const struct sp_cache_command c = with_argv(argvs[i], n);

            assert_false(has_command(cache, &c));
            store_command(cache, &c);
            assert_true(has_command(cache, &c));
        }
    const struct sp_cache_command nothing = with_argv(NULL, 0);
    assert_false(has_command(cache, &nothing));
    sp_cache_free(cache);
}

static struct sp_str patch_key(struct sp_buf *b, const char *path)
{
    b->len = 0;
    assert_true(sp_cache_add_patch_key(b, SP_STR("local"), sp_str_of(path)));
    return key_of(b);
}

static void test_patches_have_a_key_a_file(void **state)
{
    struct sp_cache *cache = sp_cache_new();
    auto_buf struct sp_buf key = {0};

    (void)state;
    assert_non_null(cache);
    assert_true(sp_cache_store(cache, patch_key(&key, "/r/a"), false));
    assert_true(sp_cache_store(cache, patch_key(&key, "/r/b"), false));
    assert_true(sp_cache_has(cache, patch_key(&key, "/r/a"), false)); /* 109 */
    assert_true(sp_cache_has(cache, patch_key(&key, "/r/b"), false));
    assert_false(sp_cache_has(cache, patch_key(&key, "/r/c"), false));
    sp_cache_free(cache);
}

static void test_a_retry_is_covered_only_if_that_was_approved(void **state)
{
    struct sp_cache *cache = sp_cache_new();

    (void)state;
    assert_non_null(cache);
    assert_true(sp_cache_store(cache, SP_STR("k"), false));
    assert_true(sp_cache_has(cache, SP_STR("k"), false));
    assert_false(sp_cache_has(cache, SP_STR("k"), true));
    assert_true(sp_cache_store(cache, SP_STR("k"), true));
    assert_true(sp_cache_has(cache, SP_STR("k"), true));
    assert_true(sp_cache_store(cache, SP_STR("k"), false)); /* takes nothing back */
    assert_true(sp_cache_has(cache, SP_STR("k"), true));
    sp_cache_free(cache);
}

static struct sp_str numbered(char *text, size_t size, int i)
{
    return (struct sp_str){text, (size_t)snprintf(text, size, "key %d", i)};
}

static void test_the_oldest_key_is_dropped(void **state)
{
    struct sp_cache *cache = sp_cache_new();
    char text[32];

    (void)state;
    assert_non_null(cache);
    for (int i = 0; i < 3 * SP_CACHE_KEYS; i++) {
        assert_true(sp_cache_store(cache, numbered(text, sizeof text, i), i % 2 == 0));
        assert_true(sp_cache_has(cache, numbered(text, sizeof text, i), i % 2 == 0));
        if (i >= SP_CACHE_KEYS)
            assert_false(
                sp_cache_has(cache, numbered(text, sizeof text, i - SP_CACHE_KEYS), false));
    }
    for (int i = 2 * SP_CACHE_KEYS; i < 3 * SP_CACHE_KEYS; i++)
        assert_true(sp_cache_has(cache, numbered(text, sizeof text, i), false));
    sp_cache_free(cache);
}

static void test_large_keys_are_bounded_too(void **state)
{
    struct sp_cache *cache = sp_cache_new();
    const size_t n = (size_t)1 << 20;
    char *key = calloc(1, 17 * n);

    (void)state;
    assert_non_null(cache);
    assert_non_null(key);
    for (int i = 0; i < 40; i++) {
        key[0] = (char)i;
        assert_true(sp_cache_store(cache, (struct sp_str){key, n}, false));
    }
    for (int i = 0; i < 40; i++) {
        key[0] = (char)i;
        assert_int_equal(sp_cache_has(cache, (struct sp_str){key, n}, false), i >= 24);
    }
    assert_false(sp_cache_store(cache, (struct sp_str){key, 17 * n}, false));
    free(key);
    sp_cache_free(cache);
}

static void test_without_memory_nothing_is_remembered(void **state)
{
    struct sp_cache *cache = sp_cache_new();
    auto_buf struct sp_buf key = {0};

    (void)state;
    end_memory_at(1);
    assert_null(sp_cache_new());
    assert_true(did_memory_end());
    sp_cache_free(NULL);
    end_memory_at(1);
    assert_false(sp_cache_store(cache, SP_STR("k"), false));
    assert_true(did_memory_end());
    assert_false(sp_cache_has(cache, SP_STR("k"), false));
    for (long n = 1;; n++) {
        sp_buf_done(&key);
        end_memory_at(n);
        const bool is_there = sp_cache_add_command_key(&key, &plain);
        if (!did_memory_end()) {
            assert_true(is_there);
            break;
        }
        assert_false(is_there);
    }
    sp_cache_free(cache);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_no_script_passes_for_another),
    cmocka_unit_test(test_commands),
    cmocka_unit_test(test_an_opaque_script_is_every_byte_of_it),
    cmocka_unit_test(test_keys_are_told_apart),
    cmocka_unit_test(test_patches_have_a_key_a_file),
    cmocka_unit_test(test_a_retry_is_covered_only_if_that_was_approved),
    cmocka_unit_test(test_the_oldest_key_is_dropped),
    cmocka_unit_test(test_large_keys_are_bounded_too),
    cmocka_unit_test(test_without_memory_nothing_is_remembered),
};
TEST_MAIN(tests)
