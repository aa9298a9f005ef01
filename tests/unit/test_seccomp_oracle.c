/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libseccomp as a second opinion: the same refusals as rules of the library, exported as a program,
 * must answer every call as our filter does.
 *
 * Its rules cannot say all that our filter says. A rule compares a whole 64-bit argument, or some
 * of its bits for equality; a call whose arguments match no rule gets the filter's default. So
 * "refuse each family but these", which must look at 32 bits only, has no rule: socket, socketpair,
 * personality, unshare and prlimit64 are left out here, and so are calls that the library is too
 * old to know.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/audit.h>
#include <linux/fs.h>
#include <sched.h>
#include <seccomp.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "bpf_fixture.h"
#include "os/seccomp.h"
#include "os/seccomp_calls.h"

#if defined(__x86_64__)
#define NATIVE AUDIT_ARCH_X86_64
#else
#define NATIVE AUDIT_ARCH_AARCH64
#endif
#define LOW     UINT32_MAX
#define SAMPLES 4000

static struct sock_filter theirs[16384];
static size_t their_count;
static bool is_known[512]; /* the call has rules of the library */

static void refuse(scmp_filter_ctx ctx, int call, uint32_t action)
{
    const int r = seccomp_rule_add(ctx, action, call, 0);

    if (r == 0)
        is_known[call] = true;
}

static void refuse_if(scmp_filter_ctx ctx, int call, uint32_t action, unsigned arg, uint64_t mask,
                      uint64_t value)
{
    const struct scmp_arg_cmp cmp = {arg, SCMP_CMP_MASKED_EQ, mask, value};

    assert_int_equal(seccomp_rule_add_array(ctx, action, call, 1, &cmp), 0);
    is_known[call] = true;
}

static bool is_wanted(const struct sp_syscall_rule *c, const struct sp_filter_options *o)
{
    return c->nr >= 0 && c->test == SP_TEST_NONE &&
           (c->when == SP_WHEN_ALWAYS ||
            (c->when == SP_WHEN_NO_NETWORK && o->net == SP_FILTER_NONE) ||
            (c->when == SP_WHEN_NO_METADATA && o->denies_metadata));
}

static void add_rules(scmp_filter_ctx ctx, const struct sp_filter_options *o)
{
    static const uint64_t flags[] = {FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR};

    for (size_t i = 0; i < sp_syscall_rule_count; i++)
        if (is_wanted(&sp_syscall_rules[i], o))
            refuse(ctx, sp_syscall_rules[i].nr,
                   SCMP_ACT_ERRNO((uint32_t)sp_syscall_rules[i].error));
    for (unsigned bit = 0; bit < 32; bit++)
        if ((0x7E020000U >> bit & 1) != 0)
            refuse_if(ctx, SYS_clone, SCMP_ACT_ERRNO(EPERM), 0, UINT64_C(1) << bit,
                      UINT64_C(1) << bit);
    refuse_if(ctx, SYS_ioctl, SCMP_ACT_ERRNO(EPERM), 1, LOW, TIOCSTI);
    refuse_if(ctx, SYS_ioctl, SCMP_ACT_ERRNO(EPERM), 1, LOW, TIOCLINUX);
    for (size_t i = 0; o->denies_metadata && i < sizeof flags / sizeof flags[0]; i++)
        refuse_if(ctx, SYS_ioctl, SCMP_ACT_ERRNO(EPERM), 1, LOW, flags[i]);
    refuse_if(ctx, SYS_fcntl, SCMP_ACT_ERRNO(EPERM), 1, LOW, F_SETLEASE);
    refuse_if(ctx, SYS_setrlimit, SCMP_ACT_ERRNO(0), 0, LOW, RLIMIT_CORE);
}

static void make_theirs(const struct sp_filter_options *o)
{
    scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
    const int fd = memfd_create("filter", MFD_CLOEXEC);

    assert_non_null(ctx);
    memset(is_known, 0, sizeof is_known);
    assert_int_equal(seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS)), 0);
    (void)seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2); /* a tree, as ours */
    add_rules(ctx, o);
    assert_int_equal(seccomp_export_bpf(ctx, fd), 0);
    const ssize_t n = pread(fd, theirs, sizeof theirs, 0);
    assert_in_range(n, 1, sizeof theirs - 1);
    their_count = (size_t)n / sizeof theirs[0];
    (void)close(fd);
    seccomp_release(ctx);
}

static uint64_t next_value(uint64_t *seed)
{
    static const uint64_t of_interest[] = {0,
                                           1,
                                           TIOCSTI,
                                           TIOCLINUX,
                                           CLONE_NEWUSER,
                                           CLONE_NEWNET,
                                           CLONE_THREAD,
                                           F_SETLEASE,
                                           RLIMIT_CORE,
                                           RLIMIT_NOFILE,
                                           FS_IOC_SETFLAGS,
                                           UINT64_MAX};

    *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407U;
    const uint64_t value =
        of_interest[(*seed >> 33) % (sizeof of_interest / sizeof of_interest[0])];
    return (*seed >> 60) % 3 == 0 ? value | *seed << 32
                                  : value; /* bits that an int does not have */
}

static void test_they_answer_every_call_alike(void **state)
{
    static struct sp_filter ours;
    uint64_t seed = 20261116;

    (void)state;
    for (unsigned n = 0; n < 6; n++) {
        const struct sp_filter_options o = {.net = n % 3, .denies_metadata = n / 3 == 1};
        unsigned compared = 0;

        make_theirs(&o);
        sp_filter_make(&o, &ours);
        for (int call = 0; call < 512; call++) {
            for (unsigned i = 0; is_known[call] && i < SAMPLES / 100; i++) {
                const struct seccomp_data data = {.nr = call,
                                                  .arch = NATIVE,
                                                  .args = {next_value(&seed), next_value(&seed),
                                                           next_value(&seed), next_value(&seed)}};
                const uint32_t mine = bpf_run(ours.code, ours.count, &data).result;
                const uint32_t other = bpf_run(theirs, their_count, &data).result;

                if (mine != other)
                    fail_msg("call %d(%#lx, %#lx): %#x, libseccomp %#x", call,
                             (unsigned long)data.args[0], (unsigned long)data.args[1], mine, other);
                compared++;
            }
        }
        assert_in_range(compared, 60 * SAMPLES / 100, UINT32_MAX);
        const struct seccomp_data foreign = {.nr = SYS_getpid, .arch = AUDIT_ARCH_PPC64};
        assert_int_equal(bpf_run(ours.code, ours.count, &foreign).result,
                         bpf_run(theirs, their_count, &foreign).result);
    }
}

/* Says what the choice between the two is about. */
static void test_ours_is_not_larger(void **state)
{
    static struct sp_filter ours;
    const struct sp_filter_options o = {.net = SP_FILTER_LOOPBACK};
    const struct seccomp_data read_call = {.nr = SYS_read, .arch = NATIVE};

    (void)state;
    uint64_t began = sp_clock_us();
    sp_filter_make(&o, &ours);
    const uint64_t mine = sp_clock_us() - began;
    began = sp_clock_us();
    make_theirs(&o);
    const uint64_t other = sp_clock_us() - began;
    print_message("# ours: %u instructions, %u for read, made in %" PRIu64
                  " us; libseccomp, with fewer "
                  "tests: %zu, %u, %" PRIu64 " us\n",
                  ours.count, bpf_run(ours.code, ours.count, &read_call).steps, mine, their_count,
                  bpf_run(theirs, their_count, &read_call).steps, other);
    assert_true(bpf_run(ours.code, ours.count, &read_call).steps <=
                bpf_run(theirs, their_count, &read_call).steps + 4);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_they_answer_every_call_alike),
    cmocka_unit_test(test_ours_is_not_larger),
};

TEST_MAIN(tests)
