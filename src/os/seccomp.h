/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seccomp: the filter that confined commands run under, as a balanced tree.
 */
#ifndef SP_OS_SECCOMP_H
#define SP_OS_SECCOMP_H

#include <linux/filter.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum sp_filter_net {
    SP_FILTER_LOOPBACK, /* a network of its own: AF_INET and AF_INET6 sockets */
    SP_FILTER_NONE,     /* the host's network around it: no socket but AF_UNIX (streams, packets; no
                         * datagrams, which go anywhere by sendmsg), no address calls */
    SP_FILTER_ENABLED,  /* the network may be used: AF_INET, AF_INET6, route netlink */
};

struct sp_filter_options {
    enum sp_filter_net net;
    bool denies_metadata; /* chmod, chown, xattr, times: where no mount view keeps them out */
    bool notifies;        /* telling denials (sp_syscall_is_telling) go to the listener; with
                             SP_FILTER_LOOPBACK every connect, too, to be allowed */
};

#define SP_FILTER_MAX 1024 /* instructions */

struct sp_filter {
    struct sock_filter code[SP_FILTER_MAX];
    uint16_t count;
};

void sp_filter_make(const struct sp_filter_options *o, struct sp_filter *ret);

/* Installs it for this thread and all it starts; no_new_privs must be set. notifies: *ret_listener
 * is the listener, else -1. 0, or minus errno: -EBUSY or -EPERM if we are under a listener already.
 * Whoever makes a telling call waits until the listener's holder answers: who installs the filter
 * and is under it itself must hand the listener over before it tries one. */
int sp_filter_install(const struct sp_filter *f, bool notifies, int *ret_listener);

/* ---- the other end of a notification ---- */

struct sp_notice {
    uint64_t id;
    int pid; /* as our pid namespace numbers it */
    int call;
    uint64_t args[6];
};
/* Never waits. 1: *ret is filled; 0: nothing there, or not any more; or minus errno, -ENOTCONN if
 * nobody is left under the filter: then the listener may be closed. */
int sp_notice_take(int listener, struct sp_notice *ret);
/* Answers as the filter would have: with the errno that this call is refused with. */
void sp_notice_refuse(int listener, const struct sp_notice *n);

/* The call is made as if there were no filter. Only for calls that are allowed to everybody. */
void sp_notice_allow(int listener, const struct sp_notice *n);
/* Whether a connect is to an address beyond loopback. What its memory says may be changed before
 * the kernel reads it: that is good enough to explain a failure, and for nothing else. false also
 * where we may not read it. */
bool sp_notice_leaves_loopback(int listener, const struct sp_notice *n);

/* The errno a refused call answers with; 0: the filter refuses no such call. */
int sp_syscall_errno(int call);
/* Refusing it means that something was tried which the sandbox forbids, and not that a library
 * looked around: worth a notification. Of calls that are refused by their arguments (socket, ioctl,
 * clone ...) true if some of the refusals are telling: the filter itself decides which. */
bool sp_syscall_is_telling(int call);
/* "ptrace", or NULL. */
const char *sp_syscall_name(int call);

#endif
