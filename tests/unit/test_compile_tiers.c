/* SPDX-License-Identifier: Apache-2.0 */
/* What a host must offer for a policy: a tier that keeps all of it, or a refusal that says what to
 * do. And plans in words, and plans without memory. */
#include "compile_fixture.h"
#include "memory_fixture.h"

/* ---- policies ---- */

static void open_policy(void)
{
    policy.profile.is_unrestricted = true;
}

static void open_but_covered(void)
{
    policy.profile.is_unrestricted = true;
    hidden_paths[0] = at("secret");
}

static void read_only(void)
{
    reads_all();
}

static void read_but_a_cover(void)
{
    reads_all();
    hidden_paths[0] = at("secret");
}

static void read_but_one(void)
{
    reads_all();
    denied("secret");
}

static void read_but_a_pattern(void)
{
    reads_all();
    denied_glob("w/**/*.env");
}

static void write_one(void)
{
    reads_all();
    can_write("w");
}

static void write_a_file(void)
{
    reads_all();
    can_write("w/f");
}

static void read_one(void)
{
    can_read("w");
}

static void nothing(void)
{
}

static void write_but_one(void)
{
    say_place(SP_PLACE_ROOT, SP_ACCESS_WRITE, NULL, false);
    can_read("secret");
}

static const struct kind {
    void (*make)(void);
    enum sp_plan_view view;
    bool is_thin_enough; /* without namespaces */
    bool needs_landlock; /* ... but with this */
} kinds[] = {
    {open_policy, SP_VIEW_OPEN, true, false},    {open_but_covered, SP_VIEW_OPEN, true, false},
    {read_only, SP_VIEW_READ, true, true},       {read_but_a_cover, SP_VIEW_READ, true, true},
    {read_but_one, SP_VIEW_READ, false, true},   {read_but_a_pattern, SP_VIEW_READ, false, true},
    {write_one, SP_VIEW_READ, false, true},      {write_a_file, SP_VIEW_READ, false, true},
    {read_one, SP_VIEW_NEW, false, true},        {nothing, SP_VIEW_NEW, false, true},
    {write_but_one, SP_VIEW_OPEN, false, false},
};
#define KINDS (sizeof kinds / sizeof kinds[0])

static void make_ground(void)
{
    make_dir("secret");
    make_file("w/f", "");
    make_file("w/x.env", "");
}

/* ---- tiers ---- */

static bool is_enough(const struct kind *k)
{
    if (!host_features.has_filter)
        return false;
    if (host_features.has_full_tier)
        return true;
    return k->is_thin_enough && (!k->needs_landlock || host_features.landlock >= 3);
}

static void check_tier(const struct kind *k, bool has_network)
{
    const enum sp_plan_net without =
        host_features.has_full_tier && host_features.has_own_network ? SP_NET_OWN : SP_NET_FILTER;

    check_plan();
    assert_int_equal(plan->tier, host_features.has_full_tier ? SP_TIER_CELL : SP_TIER_THIN);
    assert_int_equal(plan->view, k->view);
    assert_int_equal(plan->net, has_network ? SP_NET_HOST : without);
    assert_int_equal(plan->landlock, host_features.landlock);
    assert_int_equal(plan->notifies, host_features.has_notices);
    if (!host_features.has_full_tier)
        assert_int_equal(plan->op_count, 0);
}

static void check_refusal(const struct kind *k, int r)
{
    const char *missing = !host_features.has_filter ? "seccomp filters are missing; "
                          : k->is_thin_enough ? "neither namespaces nor Landlock (level 3) can be "
                                                "used; "
                                              : "namespaces cannot be used, which this policy "
                                                "needs; ";
    const char *remedy = sp_host_features_remedy(
        host_features.has_filter ? host_features.failed_step : SP_BUILD_SECCOMP,
        host_features.failed_errno);
    char text[sizeof error.msg];

    (void)snprintf(text, sizeof text, "sandbox intent cannot be enforced on this executor: %s%s",
                   missing, remedy);
    assert_string_equal(error.msg, text);
    assert_int_equal(r, -(int)SP_E_INVALID);
    assert_int_equal(flat.len, 0);
}

/* bits: one power each */
static void set_powers(unsigned bits, int landlock)
{
    host_features = (struct sp_host_features){
        .has_filter = (bits & 1) != 0,
        .has_full_tier = (bits & 2) != 0,
        .has_own_network = (bits & 4) != 0,
        .has_notices = (bits & 8) != 0,
        .landlock = landlock,
        .failed_step = (bits & 2) != 0 ? SP_BUILD_NONE : SP_BUILD_NAMESPACES,
        .failed_errno = (bits & 2) != 0 ? 0 : EPERM,
    };
}

static void test_a_tier_keeps_the_policy_or_is_refused(void **state)
{
    unsigned taken = 0;
    unsigned refused = 0;

    (void)state;
    make_ground();
    for (size_t i = 0; i < KINDS; i++) {
        compile_reset();
        kinds[i].make();
        survey_now();
        for (unsigned n = 0; n < 2 * 16 * 8; n++) {
            const bool has_network = (n & 1) != 0;

            set_powers((n >> 1) & 15, (int)(n >> 5));
            const int r = compile_try(has_network);
            if ((r == 0) != is_enough(&kinds[i]))
                fail_msg("policy %zu, host_features %u: %d %s", i, n, r, error.msg);
            if (r == 0)
                check_tier(&kinds[i], has_network);
            else
                check_refusal(&kinds[i], r);
            taken += r == 0;
            refused += r != 0;
        }
    }
    print_message("# %u taken, %u refused\n", taken, refused);
}

/* What a view of its own would have hidden is not shown because there is none. */
static void test_what_is_denied_is_denied_without_namespaces_too(void **state)
{
    static const char *const places[] = {"/run", "/run/lock", "/dev/kmsg", "/dev/mem"};
    struct stat st;

    (void)state;
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        if (lstat(places[i], &st) < 0)
            continue;
        compile_reset();
        reads_all();
        say_place(SP_PLACE_PATH, SP_ACCESS_DENY, places[i], false);
        survey_now();
        assert_int_equal(compile_try(false), 0);
        if (i < 2)
            assert_int_equal(plan_access("/run/lock"), SP_ACCESS_DENY);
        set_powers(1 | 8, 6);
        assert_int_equal(compile_try(false), -(int)SP_E_INVALID);
    }
}

static void test_what_is_written_in_run_is_not_forgotten_without_namespaces(void **state)
{
    struct stat st;

    (void)state;
    if (lstat("/run/lock", &st) < 0 || !S_ISDIR(st.st_mode))
        return;
    reads_all();
    say_place(SP_PLACE_PATH, SP_ACCESS_WRITE, "/run/lock", false);
    survey_now();
    set_powers(1 | 8, 6);
    assert_int_equal(compile_try(false), -(int)SP_E_INVALID);
}

static void test_each_missing_piece_has_its_remedy(void **state)
{
    static const struct {
        uint32_t step;
        int err;
        const char *word;
    } c[] = {
        {SP_BUILD_NAMESPACES, ENOSPC, "user.max_user_namespaces"},
        {SP_BUILD_NAMESPACES, EPERM, "kernel.unprivileged_userns_clone"},
        {SP_BUILD_NAMESPACES, ENOSYS, "kernel with user, pid and network namespaces"},
        {SP_BUILD_NAMESPACES, EINVAL, "kernel with user, pid and network namespaces"},
        {SP_BUILD_ID_MAP, EPERM, "AppArmor"},
        {SP_BUILD_MOUNT_PRIVATE, EACCES, "AppArmor"},
        {SP_BUILD_ROOT_READONLY, EPERM, "AppArmor"},
        {SP_BUILD_PROC, EPERM, "unmask /proc"},
        {SP_BUILD_SECCOMP, EINVAL, "seccomp filters"},
        {SP_BUILD_LANDLOCK, ENOSYS, "lsm="},
        {SP_BUILD_DEV, EIO, "doctor"},
        {UINT32_MAX, 0, "doctor"},
    };

    (void)state;
    make_ground();
    reads_all();
    can_write("w");
    survey_now();
    for (size_t i = 0; i < sizeof c / sizeof c[0]; i++) {
        const char *remedy = sp_host_features_remedy(c[i].step, c[i].err);

        assert_non_null(strstr(remedy, c[i].word));
        set_powers(1, 6);
        host_features.failed_step = c[i].step;
        host_features.failed_errno = c[i].err;
        assert_int_equal(compile_try(false), -(int)SP_E_INVALID);
        assert_non_null(strstr(error.msg, remedy)); /* whole: a cut remedy helps nobody */
    }
}

/* ---- words ---- */

static void prints(const char *expected)
{
    auto_buf struct sp_buf words = {0};

    assert_true(sp_plan_print(plan, &words));
    assert_true(sp_buf_add(&words, "", 1));
    assert_string_equal(words.data, expected);
}

static void test_a_plan_in_words(void **state)
{
    char text[16 * PATH_MAX];

    (void)state;
    make_dir("real/w/.git");
    make_dir("real/w/a/no/yes");
    make_dir("real/w/b/ro");
    make_link("real", "alias");
    can_write("alias/w");
    denied("real/w/a/no");
    can_read("real/w/a/no/yes");
    can_read("real/w/b/ro");
    denied("real/w/.codex");
    hidden_paths[0] = at("real/w/b/ro");
    compile_now();
    const char *const format = "confinement: full\nfiles: an empty root with the places below\n"
                               "network: none but a loopback of its own\n"
                               "namespaces: user mount pid ipc uts cgroup net\n"
                               "landlock: level 6\nseccomp: filter, refusals are told\nplaces:\n"
                               "  write        %1$s/real/w\n"
                               "  placeholder  %1$s/real/w/.agents\n"
                               "  denied       %1$s/real/w/.codex\n"
                               "  read-only    %1$s/real/w/.git\n"
                               "  pinned       %1$s/real/w/a\n"
                               "  denied       %1$s/real/w/a/no (something below it is open)\n"
                               "  read-only    %1$s/real/w/a/no/yes\n"
                               "  pinned       %1$s/real/w/b\n"
                               "  denied       %1$s/real/w/b/ro\n"
                               "  link         %1$s/alias -> real\n";
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    (void)snprintf(text, sizeof text, format, tree);
#pragma GCC diagnostic pop
    prints(text);
}

static void test_plans_of_other_hosts_in_words(void **state)
{
    (void)state;
    make_ground();
    reads_all();
    survey_now();
    set_powers(1, 3);
    assert_int_equal(compile_try(true), 0);
    prints("confinement: thin\nfiles: the host's files, read-only\nnetwork: the host's\n"
           "landlock: level 3\nseccomp: filter\nplaces:\n");
    compile_reset();
    open_policy();
    survey_now();
    set_powers(1 | 2 | 8, 0);
    assert_int_equal(compile_try(false), 0);
    prints("confinement: full\nfiles: the host's files as they are\nnetwork: none: sockets are "
           "refused\n"
           "namespaces: user mount pid ipc uts cgroup\nlandlock: not there\n"
           "seccomp: filter, refusals are told\nplaces:\n");
}

static void test_tiers_have_names(void **state)
{
    (void)state;
    assert_string_equal(sp_tier_name(SP_TIER_NONE), "none");
    assert_string_equal(sp_tier_name(SP_TIER_THIN), "thin");
    assert_string_equal(sp_tier_name(SP_TIER_CELL), "cell");
    assert_string_equal(sp_tier_name(UINT32_MAX), "unknown");
}

/* ---- bounds ---- */

/* A survey of our own making: nobody wants that many directories on a disk. */
static void survey_of(struct sp_spot *spots, size_t count)
{
    survey_reset();
    survey.spots = spots;
    survey.count = count;
}

static void test_a_plan_is_as_large_as_a_cell_takes_and_no_larger(void **state)
{
    const size_t count = SP_PLAN_MAX / (sizeof(struct sp_place_op) + 9) + 2;
    struct sp_spot *spots = calloc(count, sizeof *spots);
    char *paths = calloc(count, 9);

    (void)state;
    assert_true(spots != NULL && paths != NULL);
    for (size_t i = 0; i < count; i++) {
        (void)snprintf(paths + i * 9, 9, "/%07zu", i);
        spots[i] = (struct sp_spot){.path = paths + i * 9,
                                    .access = SP_ACCESS_READ,
                                    .kind = SP_SPOT_DIR,
                                    .who = {.dev = 1, .ino = i + 1}};
    }
    survey_of(spots, count);
    assert_int_equal(compile_try(false), -(int)SP_E_INVALID);
    assert_string_equal(error.msg, "the sandbox policy names too many places");
    assert_int_equal(flat.len, 0);
    survey.count = (SP_PLAN_MAX - sizeof(struct sp_plan)) / (sizeof(struct sp_place_op) + 9);
    assert_int_equal(compile_try(false), 0);
    assert_non_null(plan);
    assert_int_equal(plan->op_count, survey.count);
    survey = (struct sp_survey){0};
    free(spots);
    free(paths);
}

/* ---- no memory ---- */

static void make_everything(void)
{
    char name[64];

    make_dir("real/w/.git");
    make_dir("real/w/a/no/yes");
    make_link("real", "alias");
    for (int i = 0; i < 40; i++) { /* more than the first block takes */
        (void)snprintf(name, sizeof name, "real/w/n%d/ro", i);
        make_dir(name);
        can_read(name);
    }
    can_write("alias/w");
    denied("real/w/a/no");
    can_read("real/w/a/no/yes");
}

static void test_no_memory_is_an_error_and_no_plan(void **state)
{
    long n = 1;

    (void)state;
    make_everything();
    compile_now();
    for (;; n++) {
        struct sp_buf out = {0};

        error = (struct sp_err){0};
        end_memory_at(n);
        const int r = sp_plan_compile(&survey, &(struct sp_profile){.has_network = true},
                                      &host_features, &out, &error);
        if (!did_memory_end()) {
            assert_int_equal(r, 0);
            sp_buf_done(&out);
            break;
        }
        assert_int_equal(r, -(int)SP_E_SYSTEM);
        assert_int_equal(error.sys, ENOMEM);
        assert_string_not_equal(error.msg, "");
        sp_buf_done(&out);
    }
    print_message("# %ld requests\n", n - 1);
    assert_true(n > 5);
}

static void test_no_memory_is_no_words(void **state)
{
    long n = 1;

    (void)state;
    make_everything();
    compile_now();
    for (;; n++) {
        struct sp_buf out = {0};

        end_memory_at(n);
        const bool ok = sp_plan_print(plan, &out);
        const bool did_end = did_memory_end();
        sp_buf_done(&out);
        assert_int_equal(ok, !did_end);
        if (!did_end)
            break;
    }
    assert_true(n > 2);
}

static const struct CMUnitTest tests[] = {
    compile_test(test_a_tier_keeps_the_policy_or_is_refused),
    compile_test(test_what_is_denied_is_denied_without_namespaces_too),
    compile_test(test_what_is_written_in_run_is_not_forgotten_without_namespaces),
    compile_test(test_each_missing_piece_has_its_remedy),
    compile_test(test_a_plan_in_words),
    compile_test(test_plans_of_other_hosts_in_words),
    cmocka_unit_test(test_tiers_have_names),
    compile_test(test_a_plan_is_as_large_as_a_cell_takes_and_no_larger),
    compile_test(test_no_memory_is_an_error_and_no_plan),
    compile_test(test_no_memory_is_no_words),
};

TEST_MAIN(tests)
