/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "approve/approvals_priv.h"
#include "memory_fixture.h"
#include "test.h"

static const struct sp_str cargo_test[] = {SP_STR("/bin/bash"), SP_STR("-lc"),
                                           SP_STR("cargo  test")};

/* What the key of an approval is made of. */
struct command {
    struct sp_run_plan_request ask;
    struct sp_str fingerprint;
};
static const struct command plain = {.ask = {.environment = SP_STR("local"),
                                             .argv = {cargo_test, 3},
                                             .cwd = SP_STR("file:///repo")}};

/* Begins a plan for its key, with memory for `left` requests; 0: as many as it makes. */
static bool add_key(struct sp_buf *out, const struct command *c, long left)
{
    const struct sp_approvals_options o = {.policy.kind = SP_APPROVAL_ON_REQUEST,
                                           .fingerprint = c->fingerprint};
    struct sp_approvals *approvals;
    struct sp_run_plan p;

    assert_int_equal(sp_approvals_new(&o, &approvals, NULL), 0);
    end_memory_at(left);
    sp_run_plan_begin(&p, approvals, &c->ask, NULL);
    memory_left = 0;
    const bool is_made = p.state != SP_RUN_PLAN_FAILED;
    if (is_made)
        assert_true(sp_buf_add(out, p.key.data, p.key.len));
    sp_run_plan_done(&p);
    sp_approvals_free(approvals);
    return is_made;
}

static bool has_command(const struct sp_cache *cache, const struct command *c)
{
    auto_buf struct sp_buf key = {0};

    assert_true(add_key(&key, c, 0));
    return sp_cache_has(cache, sp_buf_str(&key), false);
}

static void store_command(struct sp_cache *cache, const struct command *c)
{
    auto_buf struct sp_buf key = {0};

    assert_true(add_key(&key, c, 0));
    assert_true(sp_cache_store(cache, sp_buf_str(&key), false));
}

static struct command with_argv(const struct sp_str *argv, uint32_t count)
{
    struct command c = plain;

    c.ask.argv = (struct sp_words){argv, count};
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
    const struct command asked[] = {with_argv(forged, 3), with_argv(shorter, 3)};
    store_command(cache, &asked[0]);
    store_command(cache, &asked[1]);
    const struct command wanted = with_argv(opaque, 3);
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
    const struct sp_grant network = {.extra.has_network = true};
    const struct sp_grant nothing = {0};
    struct command other[11];

    (void)state;
    assert_non_null(cache);
    assert_false(has_command(cache, &plain)); /* 105, 106, 110: nothing was stored */
    store_command(cache, &plain);
    const struct command same = with_argv(one_blank, 3);
    assert_true(has_command(cache, &same)); /* 102 */
    for (size_t i = 0; i < 11; i++)
        other[i] = plain;
    other[0] = with_argv(bare, 3);              /* 103 */
    other[1].ask.cwd = SP_STR("file:///other"); /* 104 */
    other[2].ask.is_tty = true;
    other[3].ask.permissions = SP_PERMISSIONS_ESCALATED;
    other[4].ask.environment = SP_STR("remote");
    other[5].ask.permissions = SP_PERMISSIONS_ADDITIONAL;
    other[5].ask.additional = &network;
    other[6].fingerprint = SP_STR("rules of another day"); /* 108 */
    other[7] = with_argv(two, 3);
    other[8] = with_argv(joined, 3);
    other[9] = with_argv(no_login, 3);
    other[10].ask = other[5].ask;
    other[10].ask.additional = &nothing;
    for (size_t i = 0; i < 11; i++)
        if (has_command(cache, &other[i]))
            fail_msg("command %zu is taken for the one that was approved", i);
    sp_cache_free(cache);
}

static void test_an_opaque_script_is_every_byte_of_it(void **state)
{
    const struct sp_str a[] = {SP_STR("/bin/bash"), SP_STR("-lc"), SP_STR("ls  > x")};
    const struct sp_str b[] = {SP_STR("/bin/bash"), SP_STR("-lc"), SP_STR("ls > x")};
    const struct sp_str c[] = {SP_STR("/bin/bash"), SP_STR("-c"), SP_STR("ls  > x")};
    const struct command commands[] = {with_argv(a, 3), with_argv(b, 3), with_argv(c, 3)};
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
            const struct command c = with_argv(argvs[i], n);

            assert_false(has_command(cache, &c));
            store_command(cache, &c);
            assert_true(has_command(cache, &c));
        }
    const struct command nothing = with_argv(NULL, 0);
    assert_false(has_command(cache, &nothing));
    sp_cache_free(cache);
}

/* An approver that approves everything for the session, and counts. */
static unsigned asked;

static void approve(struct sp_approver *a, const struct sp_approval_question *q,
                    sp_approver_fn *done, void *user)
{
    (void)a;
    asked++;
    done(user, q->id, &(struct sp_decision){.kind = SP_DECISION_APPROVED_FOR_SESSION});
}

static void apply(struct sp_approvals *approvals, const char *first, const char *second)
{
    const struct sp_patch_change items[] = {{.full_path = first}, {.full_path = second}};
    const struct sp_patch_changes changes = {items, second == NULL ? 1 : 2, NULL};
    const struct sp_run_plan_request ask = {.environment = SP_STR("local"), .changes = &changes};
    struct sp_run_plan p;

    sp_run_plan_begin(&p, approvals, &ask, NULL);
    assert_int_equal(p.state, SP_RUN_PLAN_GO);
    sp_run_plan_done(&p);
}

static void test_patches_have_a_key_a_file(void **state)
{
    const struct sp_approver_ops ops = {.ask = approve};
    struct sp_approver approver = {.ops = &ops};
    struct sp_approvals_options o = {.policy.kind = SP_APPROVAL_UNTRUSTED, .approver = &approver};
    struct sp_approvals *approvals;

    (void)state;
    assert_int_equal(sp_loop_new(&o.loop, NULL), 0);
    assert_int_equal(sp_approvals_new(&o, &approvals, NULL), 0);
    apply(approvals, "/r/a", "/r/b");
    assert_int_equal(asked, 1);
    apply(approvals, "/r/a", NULL); /* 109 */
    apply(approvals, "/r/b", NULL);
    assert_int_equal(asked, 1);
    apply(approvals, "/r/b", "/r/c");
    assert_int_equal(asked, 2);
    sp_approvals_free(approvals);
    sp_loop_free(o.loop);
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
        const bool is_there = add_key(&key, &plain, n);
        if (!did_memory_end()) {
            assert_true(is_there);
            break;
        }
        assert_false(is_there);
    }
    sp_cache_free(cache);
}

/* ---- what outlives the process ---- */

static char kept[8][8]; /* "": a free one */

static void *keep(void *user, struct sp_str key, bool covers_retry)
{
    (void)user;
    for (unsigned i = 0; i < 8; i++)
        if (kept[i][0] == 0) {
            (void)snprintf(kept[i], sizeof kept[i], "%.*s%s", (int)key.n, key.p,
                           covers_retry ? "+" : "");
            return kept[i];
        }
    return NULL;
}

static void drop(void *user, void *one)
{
    (void)user;
    *(char *)one = 0;
}

static void test_keys_are_kept_elsewhere(void **state)
{
    static const struct sp_cache_backing backing = {.keep = keep, .drop = drop};
    struct sp_cache *c = sp_cache_new();

    (void)state;
    assert_non_null(c);
    sp_cache_set_store(c, &backing);
    assert_true(sp_cache_store(c, SP_STR("a"), false));
    assert_true(sp_cache_store(c, SP_STR("b"), true));
    assert_true(sp_cache_store(c, SP_STR("a"), true)); /* covers more: another record */
    assert_true(sp_cache_store(c, SP_STR("a"), false));
    assert_string_equal(kept[0], "a+");
    assert_string_equal(kept[1], "b+");
    assert_string_equal(kept[2], "");
    sp_cache_clear(c);
    assert_string_equal(kept[0], "");
    assert_string_equal(kept[1], "");
    assert_true(sp_cache_restore(c, SP_STR("c"), true, keep(NULL, SP_STR("c"), true)));
    assert_true(sp_cache_restore(c, SP_STR("c"), true, keep(NULL, SP_STR("c"), true)));
    assert_true(sp_cache_has(c, SP_STR("c"), true));
    assert_string_equal(kept[0], "");
    assert_string_equal(kept[1], "c+");
    for (unsigned i = 0; i < SP_CACHE_KEYS; i++) { /* evicts all of them */
        char key[8];

        (void)snprintf(key, sizeof key, "k%u", i);
        assert_true(sp_cache_store(c, sp_str_of(key), false));
    }
    assert_string_not_equal(kept[1], "c+");
    sp_cache_free(c);
    for (unsigned i = 0; i < 8; i++)
        assert_string_equal(kept[i], "");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_keys_are_kept_elsewhere),
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
