/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lookup: the addresses of a name, found in a thread. The answer is one write into a pipe, so that
 * nothing is shared: whoever does not want it any more closes his end.
 */
#ifndef SP_ENGINE_REMOTE_LOOKUP_H
#define SP_ENGINE_REMOTE_LOOKUP_H

#include "engine/remote/dial.h"

struct sp_lookup_answer {
    int error;     /* of getaddrinfo; 0: none */
    int sys_error; /* errno, if that says more */
    uint32_t count;
    union sp_dial_address addresses[SP_DIAL_ADDRESSES];
};

/* *ret_fd becomes readable with one struct sp_lookup_answer, or ends without. */
int sp_lookup_begin(const char *host, uint16_t port, int *ret_fd, struct sp_err *e);

/* What needs no look-up: addresses and localhost. How many; 0: a name. */
uint32_t sp_lookup_literal(const char *host, uint16_t port,
                           union sp_dial_address ret[SP_DIAL_ADDRESSES]);

#endif
