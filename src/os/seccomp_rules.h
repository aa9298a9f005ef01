/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seccomp_rules: filters of our own processes, from a list of rules: what a process needs is known,
 * so the list may say what is allowed and kill the process for any other call.
 */
#ifndef SP_OS_SECCOMP_RULES_H
#define SP_OS_SECCOMP_RULES_H

#include <stddef.h>
#include <stdint.h>

#include "os/seccomp.h"

enum sp_call_verdict {
    SP_CALL_ALLOW,
    SP_CALL_REFUSE,  /* EPERM */
    SP_CALL_MISSING, /* ENOSYS */
    SP_CALL_KILL,    /* the process, by a SIGSYS that cannot be caught */
};

#define SP_CALL_TESTS_MAX 3

/* (argument & mask) == value, of the low half: for int arguments and flags. */
struct sp_call_test {
    uint8_t arg;
    uint32_t mask, value; /* mask 0: all bits */
};

/* The first rule for a call whose tests all hold decides. */
struct sp_call_rule {
    int nr;
    enum sp_call_verdict verdict;
    uint8_t test_count;
    struct sp_call_test tests[SP_CALL_TESTS_MAX];
};

/* Adds rules to *f; an empty filter has count 0. The kernel remembers the answer for calls that
 * have no tests, for the others it walks the list: frequent ones first. */
void sp_filter_add_rules(struct sp_filter *f, const struct sp_call_rule *rules, size_t count);
/* Completes the filter; sp_filter_install takes it. Calls of another architecture kill. */
void sp_filter_end_rules(struct sp_filter *f, enum sp_call_verdict otherwise);

#endif
