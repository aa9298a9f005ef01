/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bpf_fixture: runs a seccomp filter as the kernel would, on data that a test makes up.
 */
#ifndef SP_TESTS_BPF_FIXTURE_H
#define SP_TESTS_BPF_FIXTURE_H

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "test.h"

struct bpf_run {
    uint32_t result;
    unsigned steps;
    bool reads_arguments; /* then the kernel cannot remember the answer */
};

static inline uint32_t bpf_load(const struct seccomp_data *data, uint32_t offset)
{
    uint32_t value;

    assert_true(offset % 4 == 0 && offset + 4 <= sizeof *data);
    memcpy(&value, (const char *)data + offset, 4);
    return value;
}

static inline bool bpf_jumps(const struct sock_filter *i, uint32_t a)
{
    switch (BPF_OP(i->code)) {
    case BPF_JEQ:
        return a == i->k;
    case BPF_JGT:
        return a > i->k;
    case BPF_JGE:
        return a >= i->k;
    case BPF_JSET:
        return (a & i->k) != 0;
    default:
        fail_msg("jump %#x", i->code);
        return false;
    }
}

static inline struct bpf_run bpf_run(const struct sock_filter *code, size_t count,
                                     const struct seccomp_data *data)
{
    struct bpf_run r = {0};
    uint32_t a = 0;

    for (size_t pc = 0; pc < count; pc++) {
        const struct sock_filter *i = &code[pc];

        r.steps++;
        if (i->code == (BPF_RET | BPF_K)) {
            r.result = i->k;
            return r;
        }
        if (i->code == (BPF_LD | BPF_W | BPF_ABS)) {
            a = bpf_load(data, i->k);
            r.reads_arguments |= i->k >= offsetof(struct seccomp_data, args);
        } else if (i->code == (BPF_ALU | BPF_AND | BPF_K)) {
            a &= i->k;
        } else if (i->code == (BPF_JMP | BPF_JA)) {
            pc += i->k;
        } else {
            assert_int_equal(BPF_CLASS(i->code), BPF_JMP);
            pc += bpf_jumps(i, a) ? i->jt : i->jf;
        }
    }
    fail_msg("the program has no end");
    return r;
}

#endif
