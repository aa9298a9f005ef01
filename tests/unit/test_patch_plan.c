/* SPDX-License-Identifier: Apache-2.0 */
/* The profile that a patch is verified under: the command's, to read with. */
#include "approve/approvals_priv.h"
#include "memory_fixture.h"
#include "profile_fixture.h"

static void is_read_only(struct sp_profile p, const char *want)
{
    assert_true(sp_run_plan_make_read_only(&p));
    assert_profile(&p, want);
    assert_int_equal(p.kind, SP_PROFILE_MANAGED);
    assert_false(p.has_network);
    assert_false(p.is_unrestricted);
    sp_profile_done(&p);
}

static void test_writes_become_reads(void **state)
{
    struct sp_profile p = profile_of("root=r project=w project:.git=r? slash_tmp=w tmpdir=w");

    (void)state;
    p.has_network = true;
    is_read_only(p, "root=r project=r project:.git=r? slash_tmp=r tmpdir=r");
    is_read_only(profile_of("root=w"), "root=r");
}

static void test_what_is_denied_stays_denied(void **state)
{
    const char line[] = "minimal=r /srv=d /srv/open=r glob:/site/**/*.env=d";

    (void)state;
    is_read_only(profile_of(line), line);
    is_read_only(profile_of("/srv=w /srv/secret=d"), "/srv=r /srv/secret=d");
}

static void test_an_open_one_reads_all(void **state)
{
    const struct sp_profile unrestricted = {.is_unrestricted = true, .has_network = true};
    const struct sp_profile disabled = {.kind = SP_PROFILE_DISABLED};

    (void)state;
    is_read_only(unrestricted, "root=r");
    is_read_only(disabled, "root=r");
}

static void test_without_memory_nothing_is_opened(void **state)
{
    struct sp_profile p = {.is_unrestricted = true};

    (void)state;
    end_memory_at(1);
    const bool ok = sp_run_plan_make_read_only(&p);
    assert_true(did_memory_end());
    assert_false(ok);
    assert_false(p.is_unrestricted);
    assert_int_equal(p.count, 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_writes_become_reads),
    cmocka_unit_test(test_what_is_denied_stays_denied),
    cmocka_unit_test(test_an_open_one_reads_all),
    cmocka_unit_test(test_without_memory_nothing_is_opened),
};

TEST_MAIN(tests)
