/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Filters from a list of rules, as the kernel's interpreter would run them.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/seccomp.h>

#include "bpf_fixture.h"
#include "os/seccomp_calls.h"
#include "os/seccomp_rules.h"

static struct sp_filter filter;

static uint32_t run(int nr, uint64_t a, uint64_t b, uint64_t c)
{
    const struct seccomp_data data = {.nr = nr, .arch = SP_NATIVE_ARCH, .args = {a, b, c}};

    return bpf_run(filter.code, filter.count, &data).result;
}

static void make(const struct sp_call_rule *rules, size_t count, enum sp_call_verdict otherwise)
{
    filter.count = 0;
    sp_filter_add_rules(&filter, rules, count);
    sp_filter_end_rules(&filter, otherwise);
}

static void test_verdicts(void **state)
{
    static const struct sp_call_rule rules[] = {
        {.nr = 1, .verdict = SP_CALL_ALLOW},
        {.nr = 2, .verdict = SP_CALL_REFUSE},
        {.nr = 3, .verdict = SP_CALL_MISSING},
        {.nr = 4, .verdict = SP_CALL_KILL},
    };

    (void)state;
    for (int otherwise = 0; otherwise <= SP_CALL_KILL; otherwise++) {
        static const uint32_t want[] = {SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO | EPERM,
                                        SECCOMP_RET_ERRNO | ENOSYS, SECCOMP_RET_KILL_PROCESS};

        make(rules, 4, (enum sp_call_verdict)otherwise);
        for (int nr = 1; nr <= 4; nr++)
            assert_int_equal(run(nr, 0, 0, 0), want[nr - 1]);
        assert_int_equal(run(0, 0, 0, 0), want[otherwise]);
        assert_int_equal(run(5, 0, 0, 0), want[otherwise]);
        assert_int_equal(run(500, 0, 0, 0), want[otherwise]);
    }
    make(NULL, 0, SP_CALL_REFUSE);
    assert_int_equal(run(1, 0, 0, 0), SECCOMP_RET_ERRNO | EPERM);
}

static void test_arguments(void **state)
{
    static const struct sp_call_rule rules[] = {
        {.nr = 41,
         .verdict = SP_CALL_ALLOW,
         .test_count = 3,
         .tests = {{0, 0, 2}, {1, 0xf, 1}, {2, 0, 0}}},
        {.nr = 41, .verdict = SP_CALL_REFUSE, .test_count = 1, .tests = {{0, 0, 10}}},
        {.nr = 9, .verdict = SP_CALL_ALLOW, .test_count = 1, .tests = {{2, 4, 0}}},
        {.nr = 10, .verdict = SP_CALL_ALLOW},
    };
    const uint64_t above = 1ULL << 32;

    (void)state;
    make(rules, 4, SP_CALL_KILL);
    assert_int_equal(run(41, 2, 1, 0), SECCOMP_RET_ALLOW);
    assert_int_equal(run(41, 2, 0x80801, 0), SECCOMP_RET_ALLOW);
    assert_int_equal(run(41, above | 2, 1, above), SECCOMP_RET_ALLOW); /* int arguments */
    assert_int_equal(run(41, 2, 2, 0), SECCOMP_RET_KILL_PROCESS);
    assert_int_equal(run(41, 2, 1, 6), SECCOMP_RET_KILL_PROCESS);
    assert_int_equal(run(41, 1, 1, 0), SECCOMP_RET_KILL_PROCESS);
    assert_int_equal(run(41, 10, 1, 0), SECCOMP_RET_ERRNO | EPERM); /* the second rule */
    assert_int_equal(run(9, 0, 0, 3), SECCOMP_RET_ALLOW);
    assert_int_equal(run(9, 0, 0, 7), SECCOMP_RET_KILL_PROCESS);
    assert_int_equal(run(10, 2, 4, 4), SECCOMP_RET_ALLOW);       /* the number is loaded again */
    assert_int_equal(run(2, 2, 1, 0), SECCOMP_RET_KILL_PROCESS); /* an argument is no number */
}

static void test_other_architectures(void **state)
{
    static const uint32_t others[] = {AUDIT_ARCH_I386, AUDIT_ARCH_ARM, 0};
    static const struct sp_call_rule rule = {.nr = 1, .verdict = SP_CALL_ALLOW};

    (void)state;
    make(&rule, 1, SP_CALL_ALLOW);
    for (size_t i = 0; i < 3; i++) {
        const struct seccomp_data data = {.nr = 1, .arch = others[i]};

        assert_int_equal(bpf_run(filter.code, filter.count, &data).result,
                         SECCOMP_RET_KILL_PROCESS);
    }
#ifdef SP_X32_FIRST
    assert_int_equal(run(0x40000001, 0, 0, 0), SECCOMP_RET_KILL_PROCESS);
    assert_int_equal(run(-1, 0, 0, 0), SECCOMP_RET_KILL_PROCESS);
#endif
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_verdicts),
    cmocka_unit_test(test_arguments),
    cmocka_unit_test(test_other_architectures),
};

TEST_MAIN(tests)
