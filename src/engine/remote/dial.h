/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dial: one attempt to reach a server: its URL is parsed, its name looked up, its addresses tried
 * in turn. Names other than addresses and localhost are looked up in a thread, so the loop never
 * blocks; an abandoned thread ends by itself.
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
    char host[SP_TARGET_MAX_HOST + 1]; /* name or address, without brackets */
    bool is_bracketed;                 /* was in brackets: an IPv6 address */
    uint16_t port;
    char path[SP_TARGET_MAX_PATH + 1]; /* request path with query; "": / */
    struct sockaddr_un un;
};

/* Parses ws://HOST[:PORT][/PATH] or unix:///PATH. SP_E_INVALID: the message names a remedy. */
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
    /* Called once, from the loop. fd: connected and non-blocking, owned by the callee; or -1 and e.
     */
    void (*done)(struct sp_dial *d, int fd, const struct sp_err *e);
    /* private */
    uint64_t deadline_ms;
    union sp_dial_address addresses[SP_DIAL_ADDRESSES];
    uint32_t count, next;
    int fd; /* socket being connected, or pipe of the look-up; -1: none */
    bool is_looking_up;
    struct sp_watch watch;
    struct sp_timer timer;
    struct sp_deferred step;
    struct sp_err error; /* error of the last address */
};

/* The caller has set loop, target and done. */
void sp_dial_begin(struct sp_dial *d, uint64_t timeout_ms);
void sp_dial_stop(struct sp_dial *d); /* done is not called; not started is fine */

#endif
