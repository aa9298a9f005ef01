/* SPDX-License-Identifier: Apache-2.0 */
/*
 * raw: system calls that do not touch errno, for a child that shares our memory (CLONE_VM) while
 * the parent runs.
 */
#ifndef SP_OS_RAW_H
#define SP_OS_RAW_H

/* Returns the result, or minus errno. */
static inline long sp_raw(long nr, long a, long b, long c, long d)
{
#if defined(__x86_64__)
    long ret;
    register long r10 __asm__("r10") = d;

    __asm__ volatile("syscall"
                     : "=a"(ret)
                     : "0"(nr), "D"(a), "S"(b), "d"(c), "r"(r10)
                     : "rcx", "r11", "memory");
    return ret;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = nr;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;

    __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
    return x0;
#else
#error "sp_raw: this architecture is not known yet"
#endif
}

#endif
