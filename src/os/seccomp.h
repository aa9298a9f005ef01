/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seccomp: the system call filter of confined commands, and its notifications.
 */
#ifndef SP_OS_SECCOMP_H
#define SP_OS_SECCOMP_H

#include <linux/filter.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum sp_filter_net {
    SP_FILTER_LOOPBACK, /* in a network namespace of its own: AF_INET and AF_INET6 sockets */
    SP_FILTER_NONE,     /* in the host's network namespace: only AF_UNIX streams and packets, no
                         * datagrams (sendmsg could send them anywhere), no bind or connect */
    SP_FILTER_ENABLED,  /* the network is allowed: AF_INET, AF_INET6, NETLINK_ROUTE */
};

struct sp_filter_options {
    enum sp_filter_net net;
    bool denies_metadata; /* chmod, chown, xattr, times: if no read-only mounts prevent them */
    bool notifies;        /* telling denials (seccomp_calls.h) go to the listener; with
                             SP_FILTER_LOOPBACK also connects, which the listener allows */
};

/* Connects with this address length are allowed without a notification: pid 1 of a cell serves the
 * listener, and would wait for itself. Programs use the size of a struct sockaddr. */
#define SP_FILTER_OWN_ADDRESS 120

#define SP_FILTER_MAX 1024 /* instructions */

struct sp_filter {
    struct sock_filter code[SP_FILTER_MAX];
    uint16_t count;
};

void sp_filter_make(const struct sp_filter_options *o, struct sp_filter *ret);

/* Installs the filter for this thread and its children; no_new_privs must be set. With notifies,
 * *ret_listener is the listener, else -1. 0, or minus errno: -EBUSY or -EPERM if a listener exists
 * already. A telling call blocks until the listener answers: the caller is under the filter itself,
 * and must pass the listener to another process before it makes such a call. */
int sp_filter_install(const struct sp_filter *f, bool notifies, int *ret_listener);

/* ---- the listener ---- */

struct sp_notice {
    uint64_t id;
    int pid; /* in our pid namespace */
    int call;
    uint64_t args[6];
};
/* Does not block. 1: *ret is filled; 0: nothing pending; or minus errno, -ENOTCONN if no process is
 * left under the filter: then the listener may be closed. */
int sp_notice_take(int listener, struct sp_notice *ret);
/* Lets the call continue, which is only for calls that every command may make, or answers as the
 * filter would: with the errno of sp_syscall_errno. */
void sp_notice_answer(int listener, const struct sp_notice *n, bool is_allowed);
/* Whether a connect is to an address beyond loopback; false also if it cannot be read. The caller
 * may change its memory before the kernel reads it, so this may only be used to explain a failure.
 */
bool sp_notice_leaves_loopback(int listener, const struct sp_notice *n);

/* The errno that the filter refuses this call with; 0: it is not refused. */
int sp_syscall_errno(int call);
/* "ptrace", or NULL. */
const char *sp_syscall_name(int call);

#endif
