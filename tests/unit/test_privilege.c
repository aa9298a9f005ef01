/* SPDX-License-Identifier: Apache-2.0 */
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "os/privilege.h"
#include "process_fixture.h"

#define NOBODY 65534

static int fds_before;

static int begin(void **state)
{
    (void)state;
    fds_before = open_fds();
    return 0;
}

static int end(void **state)
{
    (void)state;
    assert_no_children();
    return open_fds() == fds_before ? 0 : -1;
}

static void in_a_child(void (*act)(void))
{
    const pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        act();
        _exit(0);
    }
    const int status = reap(pid, DEADLINE_MS);
    if (status == 77)
        skip();
    assert_int_equal(status, 0);
}

static void skip_child(const char *why)
{
    (void)printf("# skipped: %s\n", why);
    (void)fflush(stdout);
    _exit(77);
}

/* A line of /proc/self/status as a number. */
static unsigned long long status_value(const char *name, int base)
{
    FILE *f = fopen("/proc/self/status", "re");
    char line[512];
    unsigned long long value = ~0ULL;

    CHILD_CHECK(f != NULL);
    while (fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, name, strlen(name)) == 0)
            value = strtoull(line + strlen(name), NULL, base);
    (void)fclose(f);
    return value;
}

static void check_nothing_left(void)
{
    CHILD_CHECK(status_value("CapEff:", 16) == 0);
    CHILD_CHECK(status_value("CapPrm:", 16) == 0);
    CHILD_CHECK(status_value("CapInh:", 16) == 0);
    CHILD_CHECK(status_value("CapAmb:", 16) == 0);
    CHILD_CHECK(status_value("NoNewPrivs:", 10) == 1);
}

/* A program of the same user gets none back. */
static void check_nothing_after_exec(void)
{
    const pid_t pid = fork();
    int status = -1;

    if (pid == 0) {
        (void)execl("/bin/sh", "sh", "-c", "grep -q '^CapEff:[[:space:]]*0*$' /proc/self/status",
                    NULL);
        _exit(98);
    }
    CHILD_CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

static bool has_setpcap(void)
{
    return (status_value("CapEff:", 16) >> CAP_SETPCAP & 1) != 0;
}

static void drop_as_we_are(void)
{
    const bool was_able = has_setpcap();

    CHILD_CHECK(sp_privilege_drop() == 0);
    check_nothing_left();
    if (was_able) {
        const int bits = prctl(PR_GET_SECUREBITS);

        CHILD_CHECK(status_value("CapBnd:", 16) == 0);
        CHILD_CHECK((bits & (SECBIT_NOROOT | SECBIT_NOROOT_LOCKED)) ==
                    (SECBIT_NOROOT | SECBIT_NOROOT_LOCKED));
        CHILD_CHECK((bits & (SECBIT_NO_SETUID_FIXUP | SECBIT_NO_SETUID_FIXUP_LOCKED)) ==
                    (SECBIT_NO_SETUID_FIXUP | SECBIT_NO_SETUID_FIXUP_LOCKED));
        CHILD_CHECK((bits & (SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED)) ==
                    (SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED));
        CHILD_CHECK((bits & (SECBIT_KEEP_CAPS | SECBIT_KEEP_CAPS_LOCKED)) ==
                    SECBIT_KEEP_CAPS_LOCKED);
    }
    check_nothing_after_exec();
    CHILD_CHECK(chroot("/") < 0 && errno == EPERM);
    CHILD_CHECK(sp_privilege_drop() == 0); /* once more does no harm */
}

static void test_nothing_is_left(void **state)
{
    (void)state;
    in_a_child(drop_as_we_are);
}

static void drop_as_nobody(void)
{
    if (geteuid() == 0)
        CHILD_CHECK(setresgid(NOBODY, NOBODY, NOBODY) == 0 &&
                    setresuid(NOBODY, NOBODY, NOBODY) == 0);
    CHILD_CHECK(!has_setpcap());
    drop_as_we_are();
}

static void test_who_never_had_any_passes(void **state)
{
    (void)state;
    in_a_child(drop_as_nobody);
}

static void drop_in_user_namespace(void)
{
    if (unshare(CLONE_NEWUSER) < 0)
        skip_child("no user namespace to be had");
    CHILD_CHECK(has_setpcap());
    drop_as_we_are();
    CHILD_CHECK(unshare(CLONE_NEWNET) < 0 && errno == EPERM);
}

static void test_capabilities_over_a_user_namespace_go_as_well(void **state)
{
    (void)state;
    in_a_child(drop_in_user_namespace);
}

/* Without the right to shrink the bounding set: what stays in it is of no use. */
static void drop_without_setpcap(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct caps[_LINUX_CAPABILITY_U32S_3];

    if (!has_setpcap())
        skip_child("needs a capability to begin with");
    CHILD_CHECK(syscall(SYS_capget, &head, caps) == 0);
    caps[0].effective &= ~(1U << CAP_SETPCAP);
    caps[0].permitted &= ~(1U << CAP_SETPCAP);
    CHILD_CHECK(syscall(SYS_capset, &head, caps) == 0);
    CHILD_CHECK(status_value("CapEff:", 16) != 0);
    drop_as_we_are();
    CHILD_CHECK(status_value("CapBnd:", 16) != 0);
}

static void test_a_bounding_set_that_stays_gives_nothing(void **state)
{
    (void)state;
    in_a_child(drop_without_setpcap);
}

/* As it is left by a parent that wanted its children to have something. */
static void drop_ambient(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct caps[_LINUX_CAPABILITY_U32S_3];

    if (!has_setpcap())
        skip_child("needs a capability to begin with");
    CHILD_CHECK(syscall(SYS_capget, &head, caps) == 0);
    caps[0].inheritable |= 1U << CAP_KILL;
    CHILD_CHECK(syscall(SYS_capset, &head, caps) == 0);
    CHILD_CHECK(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_KILL, 0, 0) == 0);
    CHILD_CHECK(prctl(PR_SET_KEEPCAPS, 1) == 0);
    drop_as_we_are();
}

static void test_ambient_and_kept_ones_go_as_well(void **state)
{
    (void)state;
    in_a_child(drop_ambient);
}

static void forbid_core(void)
{
    struct rlimit limit = {1, 1};

    CHILD_CHECK(sp_privilege_no_core() == 0);
    CHILD_CHECK(sp_privilege_drop() == 0);
    CHILD_CHECK(getrlimit(RLIMIT_CORE, &limit) == 0 && limit.rlim_cur == 1 && limit.rlim_max == 1);
    limit = (struct rlimit){1 << 20, 1 << 20};
    CHILD_CHECK(setrlimit(RLIMIT_CORE, &limit) < 0 && errno == EPERM);
}

static void test_no_core_is_for_good(void **state)
{
    (void)state;
    in_a_child(forbid_core);
}

#define privilege_test(f) cmocka_unit_test_setup_teardown(f, begin, end)

static const struct CMUnitTest tests[] = {
    privilege_test(test_nothing_is_left),
    privilege_test(test_who_never_had_any_passes),
    privilege_test(test_capabilities_over_a_user_namespace_go_as_well),
    privilege_test(test_a_bounding_set_that_stays_gives_nothing),
    privilege_test(test_ambient_and_kept_ones_go_as_well),
    privilege_test(test_no_core_is_for_good),
};

TEST_MAIN(tests)
