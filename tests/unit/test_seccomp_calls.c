/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The filter as a program: run here, for every number, against plain lists of what is refused.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "bpf_fixture.h"
#include "os/seccomp.h"
#include "os/seccomp_calls.h"
#include "test.h"

#if defined(__x86_64__)
#define NATIVE  AUDIT_ARCH_X86_64
#define FOREIGN AUDIT_ARCH_I386
#else
#define NATIVE  AUDIT_ARCH_AARCH64
#define FOREIGN AUDIT_ARCH_ARM
#endif

#define ALLOWED SECCOMP_RET_ALLOW
#define TOLD    SECCOMP_RET_USER_NOTIF
#define EPERMED (SECCOMP_RET_ERRNO | EPERM)
#define NOSYSED (SECCOMP_RET_ERRNO | ENOSYS)

static struct bpf_run run(const struct sp_filter *f, const struct seccomp_data *data)
{
    return bpf_run(f->code, f->count, data);
}

static uint32_t result(const struct sp_filter *f, int nr, uint64_t a0, uint64_t a1, uint64_t a2)
{
    return run(f, &(struct seccomp_data){.nr = nr, .arch = NATIVE, .args = {a0, a1, a2}}).result;
}

/* ---- what is refused, as plain lists ---- */

static const int telling[] = {
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_pidfd_getfd,
    SYS_bpf,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_fanotify_init,
    SYS_fanotify_mark,
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_move_mount,
    SYS_open_tree,
    467 /* open_tree_attr */,
    SYS_fsopen,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_fspick,
    442 /* mount_setattr */,
    SYS_quotactl,
    443 /* quotactl_fd */,
    SYS_setns,
    SYS_open_by_handle_at,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_kexec_load,
    SYS_kexec_file_load,
    SYS_reboot,
    SYS_swapon,
    SYS_swapoff,
    SYS_acct,
    SYS_sethostname,
    SYS_setdomainname,
    SYS_settimeofday,
    SYS_clock_settime,
#if defined(__x86_64__)
    SYS_iopl,
    SYS_ioperm,
#endif
};

static const int silent[] = {
    440 /* process_madvise */,
    SYS_kcmp,
    SYS_migrate_pages,
    SYS_move_pages,
    SYS_remap_file_pages,
    SYS_add_key,
    SYS_request_key,
    SYS_keyctl,
    SYS_name_to_handle_at,
    SYS_syslog,
    SYS_vhangup,
    SYS_adjtimex,
    SYS_clock_adjtime,
#if defined(__x86_64__)
    SYS_modify_ldt,
    134 /* uselib */,
    136 /* ustat */,
    156 /* _sysctl */,
    180 /* nfsservctl */,
    212 /* lookup_dcookie */,
#else
    18 /* lookup_dcookie */,
    42 /* nfsservctl */,
#endif
};

static const int missing[] = {SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register,
                              447 /* memfd_secret */, SYS_clone3};

static const int without_network[] = {
    SYS_connect, SYS_accept,   SYS_accept4,  SYS_bind,       SYS_listen,     SYS_shutdown,
    SYS_sendto,  SYS_sendmmsg, SYS_recvmmsg, SYS_getsockopt, SYS_setsockopt,
};

static const int without_metadata[] = {
    SYS_fchmod,
    SYS_fchmodat,
    452 /* fchmodat2 */,
    SYS_fchown,
    SYS_fchownat,
    SYS_setxattr,
    SYS_lsetxattr,
    SYS_fsetxattr,
    463 /* setxattrat */,
    SYS_removexattr,
    SYS_lremovexattr,
    SYS_fremovexattr,
    466 /* removexattrat */,
    SYS_shmget,
    SYS_shmat,
    SYS_shmctl,
    SYS_msgget,
    SYS_msgsnd,
    SYS_msgrcv,
    SYS_msgctl,
    SYS_semget,
    SYS_semop,
    SYS_semtimedop,
    SYS_semctl,
    SYS_utimensat,
    469 /* file_setattr */,
#if defined(__x86_64__)
    SYS_chmod,
    SYS_chown,
    SYS_lchown,
    SYS_utime,
    SYS_utimes,
    SYS_futimesat,
#endif
};

#define HAS(list, nr) has(list, sizeof(list) / sizeof(list)[0], nr)

static bool has(const int *list, size_t count, int nr)
{
    for (size_t i = 0; i < count; i++)
        if (list[i] == nr)
            return true;
    return false;
}

static bool is_tested(int nr, const struct sp_filter_options *o)
{
    static const int tested[] = {SYS_clone,  SYS_unshare,    SYS_personality, SYS_ioctl,
                                 SYS_socket, SYS_socketpair, SYS_prlimit64,   SYS_prctl,
                                 SYS_fcntl,  SYS_setrlimit};

    return HAS(tested, nr) || (o->notifies && nr == SYS_seccomp) ||
           (o->notifies && nr == SYS_connect && o->net == SP_FILTER_LOOPBACK);
}

static uint32_t expected(int nr, const struct sp_filter_options *o)
{
    if (HAS(telling, nr))
        return o->notifies ? TOLD : EPERMED;
    if (HAS(missing, nr))
        return NOSYSED;
    if (HAS(silent, nr) || (o->net == SP_FILTER_NONE && HAS(without_network, nr)) ||
        (o->denies_metadata && HAS(without_metadata, nr)))
        return EPERMED;
    return ALLOWED;
}

/* ---- every filter ---- */

#define EACH_FILTER(o, f)                                                                      \
    static struct sp_filter f;                                                                 \
    for (unsigned n_ = 0; n_ < 12; n_++)                                                       \
        for (struct sp_filter_options o = {n_ % 3, n_ / 3 % 2 == 1, n_ / 6 == 1}, *once_ = &o; \
             once_ != NULL && (sp_filter_make(&o, &f), true); once_ = NULL)

static void test_every_number_is_answered_as_the_lists_say(void **state)
{
    (void)state;
    EACH_FILTER(o, f)
    {
        unsigned deepest = 0;

        for (int nr = 0; nr <= 1000; nr++) {
            const struct bpf_run r = run(&f, &(struct seccomp_data){.nr = nr, .arch = NATIVE});

            deepest = r.steps > deepest ? r.steps : deepest;
            assert_int_equal(r.reads_arguments, is_tested(nr, &o));
            if (!is_tested(nr, &o) && r.result != expected(nr, &o))
                fail_msg("net %d metadata %d notifies %d: call %d: %#x, not %#x", o.net,
                         o.denies_metadata, o.notifies, nr, r.result, expected(nr, &o));
        }
        print_message("# net %d metadata %d notifies %d: %d instructions, at most %u steps\n",
                      o.net, o.denies_metadata, o.notifies, f.count, deepest);
        assert_true(f.count < 280);
        assert_true(deepest <= 20); /* a list would take as many as there are calls */
    }
}

static void test_other_doors_into_the_kernel_are_shut(void **state)
{
    (void)state;
    EACH_FILTER(o, f)
    for (int nr = 0; nr <= 1000; nr++) {
        assert_int_equal(run(&f, &(struct seccomp_data){.nr = nr, .arch = FOREIGN}).result,
                         NOSYSED);
#if defined(__x86_64__)
        assert_int_equal(result(&f, nr + 0x40000000, 0, 0, 0), NOSYSED);
        assert_int_equal(result(&f, -1 - nr, 0, 0, 0), NOSYSED);
#endif
    }
}

static void test_namespaces_are_refused_by_flag(void **state)
{
    static const uint64_t namespaces[] = {CLONE_NEWNS,  CLONE_NEWCGROUP, CLONE_NEWUTS,
                                          CLONE_NEWIPC, CLONE_NEWUSER,   CLONE_NEWPID,
                                          CLONE_NEWNET};

    (void)state;
    EACH_FILTER(o, f)
    {
        const uint32_t refused = o.notifies ? TOLD : EPERMED;

        for (size_t i = 0; i < sizeof namespaces / sizeof namespaces[0]; i++) {
            assert_int_equal(result(&f, SYS_clone, namespaces[i], 0, 0), refused);
            assert_int_equal(result(&f, SYS_clone, namespaces[i] | 1ULL << 40, 0, 0), refused);
            assert_int_equal(result(&f, SYS_unshare, namespaces[i], 0, 0), refused);
            assert_int_equal(result(&f, SYS_unshare, namespaces[i] | CLONE_FS, 0, 0), refused);
        }
        assert_int_equal(result(&f, SYS_unshare, 0x80, 0, 0), refused);       /* CLONE_NEWTIME */
        assert_int_equal(result(&f, SYS_unshare, 0x00100000, 0, 0), refused); /* an empty NEWNS */
        assert_int_equal(result(&f, SYS_unshare, 1ULL << 37, 0, 0), refused);
        assert_int_equal(result(&f, SYS_unshare, 0, 0, 0), ALLOWED);
        assert_int_equal(result(&f, SYS_unshare, CLONE_FS | CLONE_FILES, 0, 0), ALLOWED);
        /* fork, a thread, our own start of commands */
        assert_int_equal(result(&f, SYS_clone, 17, 0, 0), ALLOWED);
        assert_int_equal(result(&f, SYS_clone, 0x3d0f00, 0, 0), ALLOWED);
        assert_int_equal(
            result(&f, SYS_clone, CLONE_VM | CLONE_VFORK | CLONE_FILES | CLONE_PIDFD | 17, 0, 0),
            ALLOWED);
    }
}

/* Pid 1 of a cell is under the filter whose notifications it answers. */
static void test_connects_are_told_but_those_of_pid_1(void **state)
{
    const uint64_t above = 1ULL << 32; /* which the kernel does not look at */

    (void)state;
    EACH_FILTER(o, f)
    {
        const bool is_told = o.net == SP_FILTER_LOOPBACK && o.notifies;
        const uint32_t others = o.net == SP_FILTER_NONE ? EPERMED : is_told ? TOLD : ALLOWED;
        const uint32_t own = o.net == SP_FILTER_NONE ? EPERMED : ALLOWED;

        for (uint64_t n = 0; n < 256; n++) {
            const uint32_t want = n == SP_FILTER_OWN_ADDRESS ? own : others;

            assert_int_equal(result(&f, SYS_connect, 3, 4096, n), want);
            assert_int_equal(result(&f, SYS_connect, 3, 4096, above | n), want);
        }
    }
}

static void test_sockets_are_refused_by_family_type_and_protocol(void **state)
{
    enum { ADDRESSES = AF_PACKET + 64 };

    (void)state;
    EACH_FILTER(o, f)
    for (int family = 0; family < ADDRESSES; family++)
        for (int type = 0; type < 16; type++)
            for (int protocol = 0; protocol < 3; protocol++) {
                const bool is_inet = family == AF_INET || family == AF_INET6;
                const bool is_raw = type == SOCK_RAW || type == SOCK_PACKET;
                const bool is_foul = family == AF_PACKET || family == AF_VSOCK;
                uint32_t want = EPERMED;

                if (o.net == SP_FILTER_NONE ? is_inet || is_foul : is_foul || (is_inet && is_raw))
                    want = o.notifies ? TOLD : EPERMED;
                else if (o.net == SP_FILTER_NONE
                             ? family == AF_UNIX && type != SOCK_DGRAM && type != SOCK_RAW
                             : is_inet || (o.net != SP_FILTER_NONE && family == AF_NETLINK &&
                                           protocol == 0))
                    want = ALLOWED;
                const uint64_t above = 1ULL << 32; /* which the kernel does not look at */
                const uint64_t flags = SOCK_CLOEXEC | SOCK_NONBLOCK;
                assert_int_equal(result(&f, SYS_socket, family, type, protocol), want);
                assert_int_equal(result(&f, SYS_socket, above | (unsigned)family,
                                        above | flags | (unsigned)type, above | (unsigned)protocol),
                                 want);
                assert_int_equal(result(&f, SYS_socketpair, family, type, protocol),
                                 family == AF_UNIX && type != SOCK_DGRAM && type != SOCK_RAW
                                     ? ALLOWED
                                     : EPERMED);
            }
}

static void test_requests_and_personalities_are_refused_by_value(void **state)
{
    static const uint32_t metadata[] = {(uint32_t)FS_IOC_SETFLAGS, (uint32_t)FS_IOC_FSSETXATTR,
                                        0x40806685, 0x800c6613, 0x40047211};
    static const uint32_t harmless[] = {TCGETS, TIOCGWINSZ, FIONREAD, TIOCGPTPEER, FS_IOC_GETFLAGS};

    (void)state;
    EACH_FILTER(o, f)
    for (uint64_t above = 0; above <= 1ULL << 33; above = above * 2 + (1ULL << 32)) {
        const uint32_t refused = o.notifies ? TOLD : EPERMED;

        assert_int_equal(result(&f, SYS_ioctl, 0, above | TIOCSTI, 0), refused);
        assert_int_equal(result(&f, SYS_ioctl, 0, above | TIOCLINUX, 0), refused);
        for (size_t i = 0; i < 5; i++)
            assert_int_equal(result(&f, SYS_ioctl, 0, above | metadata[i], 0),
                             o.denies_metadata ? EPERMED : ALLOWED);
        for (size_t i = 0; i < 5; i++)
            assert_int_equal(result(&f, SYS_ioctl, 0, above | harmless[i], 0), ALLOWED);
        assert_int_equal(result(&f, SYS_personality, above, 0, 0), ALLOWED);
        assert_int_equal(result(&f, SYS_personality, above | 0xffffffff, 0, 0), ALLOWED);
        assert_int_equal(result(&f, SYS_personality, above | 0x0400000, 0, 0), EPERMED);
        assert_int_equal(result(&f, SYS_personality, above | 8, 0, 0), EPERMED);
        assert_int_equal(result(&f, SYS_seccomp, 1, above, 0), ALLOWED);
        assert_int_equal(result(&f, SYS_seccomp, 1, above | SECCOMP_FILTER_FLAG_NEW_LISTENER, 0),
                         o.notifies ? EPERMED : ALLOWED);
    }
}

static bool is_telling(int nr)
{
    for (size_t i = 0; nr >= 0 && i < sp_syscall_rule_count; i++)
        if (sp_syscall_rules[i].nr == nr)
            return sp_syscall_rules[i].is_telling;
    return false;
}

static void test_calls_know_their_names_and_answers(void **state)
{
    (void)state;
    assert_string_equal(sp_syscall_name(SYS_ptrace), "ptrace");
    assert_string_equal(sp_syscall_name(469), "file_setattr");
    assert_null(sp_syscall_name(SYS_read));
    assert_null(sp_syscall_name(-1)); /* which is the number of calls that are not there */
    assert_int_equal(sp_syscall_errno(SYS_ptrace), EPERM);
    assert_int_equal(sp_syscall_errno(SYS_clone3), ENOSYS);
    assert_int_equal(sp_syscall_errno(SYS_connect), EPERM);
    assert_int_equal(sp_syscall_errno(SYS_socket), EPERM);
    assert_int_equal(sp_syscall_errno(SYS_read), 0);
    assert_int_equal(sp_syscall_errno(-1), 0);
    assert_true(is_telling(SYS_socket));
    assert_true(is_telling(SYS_unshare));
    assert_false(is_telling(SYS_keyctl));
    assert_false(is_telling(SYS_clone3));
    assert_false(is_telling(SYS_read));
    assert_false(is_telling(-1));
    for (int nr = 0; nr < 600; nr++)
        if (HAS(telling, nr))
            assert_true(is_telling(nr));
    for (size_t i = 0; i < sp_syscall_rule_count; i++)
        for (size_t k = 0; k < i; k++)
            assert_true(sp_syscall_rules[i].nr < 0 ||
                        sp_syscall_rules[i].nr != sp_syscall_rules[k].nr);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_every_number_is_answered_as_the_lists_say),
    cmocka_unit_test(test_other_doors_into_the_kernel_are_shut),
    cmocka_unit_test(test_namespaces_are_refused_by_flag),
    cmocka_unit_test(test_connects_are_told_but_those_of_pid_1),
    cmocka_unit_test(test_sockets_are_refused_by_family_type_and_protocol),
    cmocka_unit_test(test_requests_and_personalities_are_refused_by_value),
    cmocka_unit_test(test_calls_know_their_names_and_answers),
};

TEST_MAIN(tests)
