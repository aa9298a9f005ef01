/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel: calls that reach deep, and other doors to the same calls.
 *
 * Made so that they do no harm where they are allowed: with arguments that are refused after the
 * caller's rights have been looked at, or asking for what is already so.
 */
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/fanotify.h>
#include <linux/io_uring.h>
#include <linux/keyctl.h>
#include <linux/perf_event.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/quota.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timex.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "escape.h"
#include "tries.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

int try_io_uring_setup(const struct row *r)
{
    struct io_uring_params params = {0};

    (void)r;
    return answer_fd(syscall(SYS_io_uring_setup, 1, &params));
}

/* A call, n, with nothing but -1 and 0 in its arguments. */
int try_empty_call(const struct row *r)
{
    return answer(syscall(r->n, -1L, 0L, 0L, 0L, 0L, 0L));
}

int try_bpf(const struct row *r)
{
    union bpf_attr attr = {
        .map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1};

    return answer_fd(syscall(SYS_bpf, r->n, &attr, sizeof attr));
}

int try_perf(const struct row *r)
{
    struct perf_event_attr attr = {.type = PERF_TYPE_SOFTWARE,
                                   .size = sizeof attr,
                                   .config = PERF_COUNT_SW_TASK_CLOCK,
                                   .exclude_kernel = 1};

    (void)r;
    return answer_fd(syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0UL));
}

int try_userfaultfd(const struct row *r)
{
    (void)r;
    return answer_fd(syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY));
}

int try_keyctl(const struct row *r)
{
    return answer(syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, r->n, 0));
}

int try_add_key(const struct row *r)
{
    return answer(syscall(SYS_add_key, "user", "escape", "x", 1UL, r->n));
}

int try_request_key(const struct row *r)
{
    (void)r;
    return answer(syscall(SYS_request_key, "user", "escape-none", NULL, 0));
}

struct handle {
    struct file_handle head;
    unsigned char bytes[MAX_HANDLE_SZ];
};

static int handle_of(const char *path, struct handle *h, int *mount)
{
    *h = (struct handle){.head = {.handle_bytes = MAX_HANDLE_SZ}};
    return answer(name_to_handle_at(AT_FDCWD, path, &h->head, mount, 0));
}

int try_name_to_handle(const struct row *r)
{
    struct handle h;
    int mount;

    return handle_of(where(r->a), &h, &mount);
}

int try_open_by_handle(const struct row *r)
{
    struct handle h;
    int mount;
    const int dir = open(need("w"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (handle_of(where(r->a), &h, &mount) != 0) /* a handle is easily guessed */
        h = (struct handle){.head = {.handle_bytes = 8, .handle_type = 1}, .bytes = {2}};
    return answer_fd(open_by_handle_at(dir, &h.head, O_RDONLY | O_CLOEXEC));
}

int try_personality(const struct row *r)
{
    return answer(syscall(SYS_personality, r->n));
}

int try_quotactl(const struct row *r)
{
    (void)r;
    return answer(syscall(SYS_quotactl, QCMD(Q_SYNC, USRQUOTA), NULL, 0, NULL));
}

int try_syslog(const struct row *r)
{
    return answer(syscall(SYS_syslog, r->n, NULL, 0));
}

int try_init_module(const struct row *r)
{
    (void)r;
    return answer(syscall(SYS_init_module, NULL, 0UL, ""));
}

int try_finit_module(const struct row *r)
{
    (void)r;
    return answer(syscall(SYS_finit_module, -1, "", 0));
}

int try_delete_module(const struct row *r)
{
    (void)r;
    return answer(syscall(SYS_delete_module, "no-such-module", O_NONBLOCK));
}

int try_kexec(const struct row *r)
{
    (void)r;
    return answer(syscall(SYS_kexec_load, 0UL, 1000000UL, NULL, ~0UL));
}

/* swapon, swapoff and acct on a file that is not there. */
int try_missing_file_call(const struct row *r)
{
    return answer(syscall(r->n, "/no/such/file", 0));
}

int try_reboot(const struct row *r)
{
    (void)r;
    return answer(syscall(SYS_reboot, 0, 0, 0, NULL)); /* not the magic numbers */
}

int try_sethostname(const struct row *r)
{
    char name[256];

    (void)r;
    if (gethostname(name, sizeof name) < 0)
        return errno;
    return answer(sethostname(name, strlen(name))); /* as it is */
}

int try_setdomainname(const struct row *r)
{
    char name[256];

    (void)r;
    if (getdomainname(name, sizeof name) < 0)
        return errno;
    return answer(setdomainname(name, strlen(name)));
}

int try_settimeofday(const struct row *r)
{
    const struct timeval never = {.tv_usec = -1};

    (void)r;
    return answer(syscall(SYS_settimeofday, &never, NULL));
}

int try_clock_settime(const struct row *r)
{
    const struct timespec never = {.tv_nsec = -1};

    (void)r;
    return answer(syscall(SYS_clock_settime, CLOCK_REALTIME, &never));
}

int try_adjtimex(const struct row *r)
{
    struct timex nothing = {0}; /* only reads */

    return answer(r->n != 0 ? syscall(SYS_clock_adjtime, CLOCK_REALTIME, &nothing)
                            : syscall(SYS_adjtimex, &nothing));
}

int try_clock_read(const struct row *r)
{
    struct timespec now;

    (void)r;
    return answer(syscall(SYS_clock_gettime, CLOCK_REALTIME, &now));
}

/* Of a session without a terminal: nothing is hung up. */
int try_vhangup(const struct row *r)
{
    (void)r;
    (void)setsid();
    return answer(syscall(SYS_vhangup));
}

int try_fanotify(const struct row *r)
{
    (void)r;
    return answer_fd(
        syscall(SYS_fanotify_init, FAN_CLASS_NOTIF | FAN_REPORT_FID | FAN_CLOEXEC, O_RDONLY));
}

int try_kcmp(const struct row *r)
{
    (void)r;
    return answer(syscall(SYS_kcmp, getpid(), getpid(), 0, 0UL, 0UL));
}

/* ---- of one architecture ---- */

#ifdef __x86_64__

int try_iopl(const struct row *r)
{
    return answer(syscall(SYS_iopl, r->n));
}

int try_ioperm(const struct row *r)
{
    (void)r;
    return answer(syscall(SYS_ioperm, 0x80UL, 1UL, 1));
}

int try_modify_ldt(const struct row *r)
{
    char table[64];

    (void)r;
    return answer(syscall(SYS_modify_ldt, 0, table, sizeof table));
}

static long int80(long call)
{
    long result = call;

    __asm__ volatile("int $0x80"
                     : "+a"(result)
                     : "b"(2L), "c"(1L), "d"(0L)
                     : "memory", "r8", "r9", "r10", "r11");
    return result;
}

/* The gate of 32-bit programs, which numbers its calls differently. In a child: a kernel without
 * the gate sends SIGSEGV, a filter may send SIGSYS. */
int try_int80(const struct row *r)
{
    int status = 0;
    const pid_t child = fork();

    if (child == 0) {
        const long result = int80(r->n);

        _exit(result < 0 ? (int)-result : 0);
    }
    (void)waitpid(child, &status, 0);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV)
        skip("the kernel has no i386 gate");
    if (WIFSIGNALED(status))
        (void)raise(WTERMSIG(status));
    return WEXITSTATUS(status);
}

int try_x32(const struct row *r)
{
    return answer_fd(syscall(0x40000000L + r->n, 2, 1, 0));
}

#else

static int foreign(void)
{
    skip("not of this architecture");
}

int try_iopl(const struct row *r)
{
    (void)r;
    return foreign();
}

int try_ioperm(const struct row *r)
{
    (void)r;
    return foreign();
}

int try_modify_ldt(const struct row *r)
{
    (void)r;
    return foreign();
}

int try_int80(const struct row *r)
{
    (void)r;
    return foreign();
}

int try_x32(const struct row *r)
{
    (void)r;
    return foreign();
}

#endif
