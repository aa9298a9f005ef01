/* SPDX-License-Identifier: Apache-2.0 */
/*
 * socks: the messages of a SOCKS5 client, without authentication. Pure.
 */
#ifndef SP_PROXY_SOCKS_H
#define SP_PROXY_SOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

#define SP_SOCKS_HOST_MAX 255

enum sp_socks_reply {
    SP_SOCKS_DONE = 0,
    SP_SOCKS_FAILED = 1,
    SP_SOCKS_NOT_ALLOWED = 2,
    SP_SOCKS_NO_NETWORK = 3,
    SP_SOCKS_NO_HOST = 4,
    SP_SOCKS_REFUSED = 5,
    SP_SOCKS_TIMED_OUT = 6,
    SP_SOCKS_NO_COMMAND = 7, /* BIND, UDP ASSOCIATE */
    SP_SOCKS_NO_TYPE = 8,    /* of address */
};

/* The greeting. Bytes it takes; 0: not complete; -1: not SOCKS5. *ret_accepts: the client offers
 * method 0; otherwise answer 0xFF and close. */
ptrdiff_t sp_socks_read_greeting(struct sp_str bytes, bool *ret_accepts);

struct sp_socks_request {
    char host[SP_SOCKS_HOST_MAX + 1]; /* an address as text, or a name, unchecked but for NUL */
    size_t host_len;
    uint16_t port;
};
/* The request. Bytes it takes; 0: not complete; -1: malformed. *ret_reply: SP_SOCKS_DONE if it is a
 * CONNECT that can be served, else the reply to send. */
ptrdiff_t sp_socks_read_request(struct sp_str bytes, struct sp_socks_request *ret,
                                enum sp_socks_reply *ret_reply);

#define SP_SOCKS_REPLY_BYTES 10
void sp_socks_write_reply(enum sp_socks_reply reply, uint8_t out[SP_SOCKS_REPLY_BYTES]);

#endif
