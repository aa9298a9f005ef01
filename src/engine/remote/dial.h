/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dial: one attempt to reach a target: its name is looked up, its addresses are tried in turn.
 * Never blocks the loop: a name that is neither an address nor localhost is looked up in a thread
 * of its own, which is left to itself if nobody waits for it any more.
 */
#ifndef SP_ENGINE_REMOTE_DIAL_H
#define SP_ENGINE_REMOTE_DIAL_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/un.h>

#include "base/error.h"
#include "os/loop.h"

#define SP_TARGET_MAX_HOST 255
#define SP_TARGET_MAX_PATH 1023

struct sp_target {
    bool is_unix;
    char host[SP_TARGET_MAX_HOST + 1]; /* a name or an address, without brackets */
    bool is_bracketed;                 /* it was in them: an IPv6 address */
    uint16_t port;
    char path[SP_TARGET_MAX_PATH + 1]; /* of the request, with its query; "": / */
    struct sockaddr_un un;
};

/* ws://HOST[:PORT][/PATH] or unix:///PATH. SP_E_INVALID, in words that name the way out. */
int sp_target_parse(const char *url, struct sp_target *ret, struct sp_err *e);

#define SP_DIAL_ADDRESSES 8

union sp_dial_address {
    struct sockaddr any;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
    struct sockaddr_un un;
};

struct sp_dial {
    struct sp_loop *loop;
    const struct sp_target *target;
    /* Called once, from the loop. fd: connected, non-blocking, the callee's; or -1 and e. */
    void (*done)(struct sp_dial *d, int fd, const struct sp_err *e);
    /* its own */
    uint64_t deadline_ms;
    union sp_dial_address addresses[SP_DIAL_ADDRESSES];
    uint32_t count, next;
    int fd; /* being connected, or the pipe of the name's look-up; -1: neither */
    bool is_looking_up;
    struct sp_watch watch;
    struct sp_timer timer;
    struct sp_deferred step;
    struct sp_err error; /* of the last address */
};

/* loop, target and done are set. */
void sp_dial_begin(struct sp_dial *d, uint64_t timeout_ms);
void sp_dial_stop(struct sp_dial *d); /* done is not called; not begun is fine */

#endif
