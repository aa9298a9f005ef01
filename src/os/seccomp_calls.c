/* SPDX-License-Identifier: Apache-2.0 */
#include "os/seccomp_calls.h"

#include <asm/unistd.h>
#include <errno.h>

/*
 * Call numbers come from the kernel headers. Calls newer than these have the same number on all
 * architectures. Calls that were removed from the headers still exist in older kernels.
 */
#ifndef __NR_process_madvise
#define __NR_process_madvise 440
#endif
#ifndef __NR_mount_setattr
#define __NR_mount_setattr 442
#endif
#ifndef __NR_quotactl_fd
#define __NR_quotactl_fd 443
#endif
#ifndef __NR_memfd_secret
#define __NR_memfd_secret 447
#endif
#ifndef __NR_fchmodat2
#define __NR_fchmodat2 452
#endif
#ifndef __NR_setxattrat
#define __NR_setxattrat 463
#endif
#ifndef __NR_removexattrat
#define __NR_removexattrat 466
#endif
#ifndef __NR_open_tree_attr
#define __NR_open_tree_attr 467
#endif
#ifndef __NR_file_setattr
#define __NR_file_setattr 469
#endif

#if defined(__x86_64__) && !defined(__ILP32__)
#ifndef __NR_uselib
#define __NR_uselib 134
#endif
#ifndef __NR_ustat
#define __NR_ustat 136
#endif
#ifndef __NR__sysctl
#define __NR__sysctl 156
#endif
#ifndef __NR_nfsservctl
#define __NR_nfsservctl 180
#endif
#ifndef __NR_lookup_dcookie
#define __NR_lookup_dcookie 212
#endif
#elif defined(__aarch64__) && !defined(__ILP32__)
#ifndef __NR_lookup_dcookie
#define __NR_lookup_dcookie 18
#endif
#ifndef __NR_nfsservctl
#define __NR_nfsservctl 42
#endif
#define __NR_chmod      (-1)
#define __NR_chown      (-1)
#define __NR_futimesat  (-1)
#define __NR_ioperm     (-1)
#define __NR_iopl       (-1)
#define __NR_lchown     (-1)
#define __NR_modify_ldt (-1)
#define __NR_uselib     (-1)
#define __NR_ustat      (-1)
#define __NR_utime      (-1)
#define __NR_utimes     (-1)
#define __NR__sysctl    (-1)
#else
#error "seccomp_calls: this architecture has no table yet"
#endif

/*
 * TELLS: ordinary programs do not probe this call, so a refusal shows that something forbidden was
 * tried. A refusal of a call that libraries probe (keys, handles, calls of old kernels) shows
 * nothing, nor one of adjtimex, which also reads the state of the clock.
 * vm86 is missing: only 32-bit processes have it, and all their calls are refused.
 */
#define TELLS  true
#define SILENT false

#define CALL(call)             #call, __NR_##call
#define REFUSED(call)          CALL(call), EPERM, SP_WHEN_ALWAYS, SP_TEST_NONE
#define MISSING(call)          CALL(call), ENOSYS, SP_WHEN_ALWAYS, SP_TEST_NONE, SILENT
#define TESTED(call, test)     CALL(call), EPERM, SP_WHEN_ALWAYS, SP_TEST_##test
#define WITHOUT_NETWORK(call)  CALL(call), EPERM, SP_WHEN_NO_NETWORK, SP_TEST_NONE, SILENT
#define WITHOUT_METADATA(call) CALL(call), EPERM, SP_WHEN_NO_METADATA, SP_TEST_NONE, SILENT

const struct sp_syscall_rule sp_syscall_rules[] = {
    /* other processes */
    {REFUSED(ptrace), TELLS},
    {REFUSED(process_vm_readv), TELLS},
    {REFUSED(process_vm_writev), TELLS},
    {REFUSED(process_madvise), SILENT},
    {REFUSED(pidfd_getfd), TELLS},
    {REFUSED(kcmp), SILENT},
    {REFUSED(migrate_pages), SILENT},
    {REFUSED(move_pages), SILENT},
    {TESTED(prlimit64, PRLIMIT), SILENT},   /* the kernel requires only the same user */
    {TESTED(setrlimit, SETRLIMIT), SILENT}, /* with RLIMIT_CORE 0 the host's core handler runs */
    {TESTED(prctl, PRCTL),
     SILENT}, /* orphans would leave the tree of a command that stops being a subreaper */
    {TESTED(fcntl, FCNTL), SILENT}, /* a lease delays writers outside of the sandbox */
    /* io_uring: its operations bypass the filter */
    {MISSING(io_uring_setup)},
    {MISSING(io_uring_enter)},
    {MISSING(io_uring_register)},
    /* kernel surface */
    {REFUSED(bpf), TELLS},
    {REFUSED(perf_event_open), TELLS},
    {REFUSED(userfaultfd), TELLS},
    {REFUSED(fanotify_init), TELLS},
    {REFUSED(fanotify_mark), TELLS},
    {REFUSED(lookup_dcookie), SILENT},
    {MISSING(memfd_secret)},
    {TESTED(personality, PERSONALITY), SILENT},
    {REFUSED(modify_ldt), SILENT},
    {REFUSED(uselib), SILENT},
    {REFUSED(remap_file_pages), SILENT},
    /* keys */
    {REFUSED(add_key), SILENT},
    {REFUSED(request_key), SILENT},
    {REFUSED(keyctl), SILENT},
    /* mounts */
    {REFUSED(mount), TELLS},
    {REFUSED(umount2), TELLS},
    {REFUSED(pivot_root), TELLS},
    {REFUSED(chroot), TELLS},
    {REFUSED(move_mount), TELLS},
    {REFUSED(open_tree), TELLS},
    {REFUSED(open_tree_attr), TELLS},
    {REFUSED(fsopen), TELLS},
    {REFUSED(fsconfig), TELLS},
    {REFUSED(fsmount), TELLS},
    {REFUSED(fspick), TELLS},
    {REFUSED(mount_setattr), TELLS},
    {REFUSED(quotactl), TELLS},
    {REFUSED(quotactl_fd), TELLS},
    /* namespaces; clone3 has its flags in memory, and libc falls back to clone */
    {TESTED(unshare, UNSHARE), TELLS},
    {REFUSED(setns), TELLS},
    {TESTED(clone, CLONE), TELLS},
    {MISSING(clone3)},
    /* handles */
    {REFUSED(name_to_handle_at), SILENT},
    {REFUSED(open_by_handle_at), TELLS},
    /* system */
    {REFUSED(init_module), TELLS},
    {REFUSED(finit_module), TELLS},
    {REFUSED(delete_module), TELLS},
    {REFUSED(kexec_load), TELLS},
    {REFUSED(kexec_file_load), TELLS},
    {REFUSED(reboot), TELLS},
    {REFUSED(swapon), TELLS},
    {REFUSED(swapoff), TELLS},
    {REFUSED(acct), TELLS},
    {REFUSED(syslog), SILENT},
    {REFUSED(vhangup), SILENT},
    {REFUSED(sethostname), TELLS},
    {REFUSED(setdomainname), TELLS},
    {REFUSED(settimeofday), TELLS},
    {REFUSED(clock_settime), TELLS},
    {REFUSED(adjtimex), SILENT},
    {REFUSED(clock_adjtime), SILENT},
    {REFUSED(iopl), TELLS},
    {REFUSED(ioperm), TELLS},
    {REFUSED(nfsservctl), SILENT},
    {REFUSED(_sysctl), SILENT},
    {REFUSED(ustat), SILENT},
    /* terminal, and with denies_metadata the flags of files */
    {TESTED(ioctl, IOCTL), TELLS},
    /* network */
    {TESTED(socket, SOCKET), TELLS},
    {TESTED(socketpair, SOCKETPAIR), SILENT},
    {WITHOUT_NETWORK(connect)},
    {WITHOUT_NETWORK(accept)},
    {WITHOUT_NETWORK(accept4)},
    {WITHOUT_NETWORK(bind)},
    {WITHOUT_NETWORK(listen)},
    {WITHOUT_NETWORK(shutdown)},
    {WITHOUT_NETWORK(sendto)},
    {WITHOUT_NETWORK(sendmmsg)},
    {WITHOUT_NETWORK(recvmmsg)},
    {WITHOUT_NETWORK(getsockopt)},
    {WITHOUT_NETWORK(setsockopt)},
    /* metadata: Landlock does not restrict it */
    {WITHOUT_METADATA(chmod)},
    {WITHOUT_METADATA(fchmod)},
    {WITHOUT_METADATA(fchmodat)},
    {WITHOUT_METADATA(fchmodat2)},
    {WITHOUT_METADATA(chown)},
    {WITHOUT_METADATA(lchown)},
    {WITHOUT_METADATA(fchown)},
    {WITHOUT_METADATA(fchownat)},
    {WITHOUT_METADATA(setxattr)},
    {WITHOUT_METADATA(lsetxattr)},
    {WITHOUT_METADATA(fsetxattr)},
    {WITHOUT_METADATA(setxattrat)},
    {WITHOUT_METADATA(removexattr)},
    {WITHOUT_METADATA(lremovexattr)},
    {WITHOUT_METADATA(fremovexattr)},
    {WITHOUT_METADATA(removexattrat)},
    {WITHOUT_METADATA(utime)},
    {WITHOUT_METADATA(utimes)},
    {WITHOUT_METADATA(utimensat)},
    {WITHOUT_METADATA(futimesat)},
    {WITHOUT_METADATA(file_setattr)},
    /* IPC objects of other processes: without namespaces they are in reach */
    {WITHOUT_METADATA(shmget)},
    {WITHOUT_METADATA(shmat)},
    {WITHOUT_METADATA(shmctl)},
    {WITHOUT_METADATA(msgget)},
    {WITHOUT_METADATA(msgsnd)},
    {WITHOUT_METADATA(msgrcv)},
    {WITHOUT_METADATA(msgctl)},
    {WITHOUT_METADATA(semget)},
    {WITHOUT_METADATA(semop)},
    {WITHOUT_METADATA(semtimedop)},
    {WITHOUT_METADATA(semctl)},
    /* the listener: see SP_TEST_SECCOMP in seccomp.c */
    {CALL(seccomp), EPERM, SP_WHEN_LISTENER, SP_TEST_SECCOMP, SILENT},
};

const size_t sp_syscall_rule_count = sizeof sp_syscall_rules / sizeof sp_syscall_rules[0];
