/* SPDX-License-Identifier: Apache-2.0 */
/*
 * resolver: the process that looks up names for all proxies of a server (`sallyport
 * resolver`). getaddrinfo reads files, opens modules, blocks and may crash, so it has a process
 * of its own, with SP_RESOLVER_THREADS threads. It ends with its control socket (stdin).
 *
 * Over the control socket (SOCK_SEQPACKET) the front sends one byte with one descriptor: the
 * resolver's end of a seqpacket pair, whose other end a proxy gets. There the proxy sends struct
 * sp_resolver_ask and receives struct sp_resolver_answer, in any order. Of one proxy at most
 * SP_RESOLVER_WORKING are looked up at once and SP_RESOLVER_WAITING wait; one more is answered
 * FAILED at once.
 */
#ifndef SP_PROXY_RESOLVER_H
#define SP_PROXY_RESOLVER_H

#include <stdint.h>

#include "base/error.h"

#define SP_RESOLVER_THREADS   8
#define SP_RESOLVER_WORKING   4
#define SP_RESOLVER_WAITING   32
#define SP_RESOLVER_ADDRESSES 16

struct sp_resolver_ask {
    uint64_t number;
    char host[254]; /* canonical, terminated */
    uint16_t port;  /* only for the table of tests */
};

enum sp_resolver_status {
    SP_RESOLVER_FOUND,
    SP_RESOLVER_NONE,   /* the name does not exist, or has no address */
    SP_RESOLVER_FAILED, /* not known: a server did not answer, or too many names wait */
    SP_RESOLVER_STATUS_MAX
};

struct sp_resolver_address {
    uint8_t family;    /* 4 or 6 */
    uint8_t is_public; /* builds for tests alone: the table says that it counts as public */
    uint16_t port;     /* builds for tests alone: connect to this port; 0: the one asked for */
    uint8_t bytes[16];
    uint32_t zero;
};

struct sp_resolver_answer {
    uint64_t number;
    uint8_t status;
    uint8_t count;
    uint8_t zero[6];
    struct sp_resolver_address addresses[SP_RESOLVER_ADDRESSES];
};

/* Serves until the control socket ends. */
int sp_resolver_run(int control, struct sp_err *e);

#endif
