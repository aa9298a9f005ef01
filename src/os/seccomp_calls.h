/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seccomp_calls: the table of system calls that are refused to confined commands, and what all
 * filters need to know about this architecture.
 */
#ifndef SP_OS_SECCOMP_CALLS_H
#define SP_OS_SECCOMP_CALLS_H

#include <linux/audit.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__)
#define SP_NATIVE_ARCH AUDIT_ARCH_X86_64
#define SP_X32_FIRST   0x40000000U /* call numbers of the x32 ABI */
#elif defined(__aarch64__)
#define SP_NATIVE_ARCH AUDIT_ARCH_AARCH64
#else
#error "seccomp: this architecture is not known yet"
#endif

/* The offset in struct seccomp_data. Calls with int arguments ignore the high half: a 64-bit
 * comparison would miss values that differ only there. */
static inline size_t sp_syscall_low_half(unsigned arg)
{
    const bool is_big = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__;

    return offsetof(struct seccomp_data, args) + arg * sizeof(uint64_t) + (is_big ? 4 : 0);
}

enum sp_syscall_when {
    SP_WHEN_ALWAYS,
    SP_WHEN_NO_NETWORK,  /* SP_FILTER_NONE */
    SP_WHEN_NO_METADATA, /* denies_metadata */
    SP_WHEN_LISTENER,    /* notifies */
};

/* The test of the arguments; NONE: always refused. */
enum sp_syscall_test {
    SP_TEST_NONE,
    SP_TEST_CLONE,
    SP_TEST_UNSHARE,
    SP_TEST_PERSONALITY,
    SP_TEST_IOCTL,
    SP_TEST_SOCKET,
    SP_TEST_SOCKETPAIR,
    SP_TEST_SECCOMP,
    SP_TEST_PRLIMIT,
    SP_TEST_SETRLIMIT,
    SP_TEST_PRCTL,
    SP_TEST_FCNTL,
    SP_TEST_CONNECT, /* of no rule: see sp_filter_make */
    SP_TEST_MAX,
};

struct sp_syscall_rule {
    const char *name;
    int nr; /* -1: this architecture has no such call */
    int error;
    enum sp_syscall_when when;
    enum sp_syscall_test test;
    /* A refusal shows that a command tried something forbidden, so that it is worth a notification;
     * libraries only probe the other calls. With a test of arguments: some refusals are telling. */
    bool is_telling;
};

extern const struct sp_syscall_rule sp_syscall_rules[];
extern const size_t sp_syscall_rule_count;

#endif
