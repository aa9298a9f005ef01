/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each rule is a block: compare the number, compare arguments, return. A comparison that fails
 * jumps behind the block. Where the accumulator holds an argument, the next block loads the number
 * again.
 */
#include "os/seccomp_rules.h"

#include <assert.h>
#include <errno.h>

#include "os/seccomp_calls.h"

static void put(struct sp_filter *f, uint16_t code, uint32_t k, size_t no)
{
    assert(f->count < SP_FILTER_MAX && no <= UINT8_MAX);
    f->code[f->count++] = (struct sock_filter)BPF_JUMP(code, k, 0, (uint8_t)no);
}

static void put_load(struct sp_filter *f, size_t offset)
{
    put(f, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0);
}

static void put_return(struct sp_filter *f, enum sp_call_verdict v)
{
    static const uint32_t actions[] = {
        [SP_CALL_ALLOW] = SECCOMP_RET_ALLOW,
        [SP_CALL_REFUSE] = SECCOMP_RET_ERRNO | EPERM,
        [SP_CALL_MISSING] = SECCOMP_RET_ERRNO | ENOSYS,
        [SP_CALL_KILL] = SECCOMP_RET_KILL_PROCESS,
    };

    put(f, BPF_RET | BPF_K, actions[v], 0);
}

static void begin(struct sp_filter *f)
{
    put_load(f, offsetof(struct seccomp_data, arch));
    f->code[f->count++] =
        (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SP_NATIVE_ARCH, 1, 0);
    put_return(f, SP_CALL_KILL);
    put_load(f, offsetof(struct seccomp_data, nr));
#ifdef SP_X32_FIRST
    put(f, BPF_JMP | BPF_JGE | BPF_K, SP_X32_FIRST, 1);
    put_return(f, SP_CALL_KILL);
#endif
}

static size_t size_of(const struct sp_call_rule *r)
{
    size_t n = 2; /* the number, the return */

    for (size_t i = 0; i < r->test_count; i++)
        n += r->tests[i].mask != 0 ? 3 : 2;
    return r->test_count != 0 ? n + 1 : n;
}

static void add_rule(struct sp_filter *f, const struct sp_call_rule *r)
{
    const size_t end = f->count + size_of(r);
    /* Behind the return the number is loaded again, if a test has replaced it. */
    const size_t next = r->test_count != 0 ? end - 1 : end;

    put(f, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)r->nr, next - f->count - 1);
    for (size_t i = 0; i < r->test_count; i++) {
        const struct sp_call_test *t = &r->tests[i];

        put_load(f, sp_syscall_low_half(t->arg));
        if (t->mask != 0)
            put(f, BPF_ALU | BPF_AND | BPF_K, t->mask, 0);
        put(f, BPF_JMP | BPF_JEQ | BPF_K, t->value, next - f->count - 1);
    }
    put_return(f, r->verdict);
    if (r->test_count != 0)
        put_load(f, offsetof(struct seccomp_data, nr));
    assert(f->count == end);
}

void sp_filter_add_rules(struct sp_filter *f, const struct sp_call_rule *rules, size_t count)
{
    if (f->count == 0)
        begin(f);
    for (size_t i = 0; i < count; i++)
        add_rule(f, &rules[i]);
}

void sp_filter_end_rules(struct sp_filter *f, enum sp_call_verdict otherwise)
{
    if (f->count == 0)
        begin(f);
    put_return(f, otherwise);
}
