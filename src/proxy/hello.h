/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hello: the server name in the first message of a TLS client. Pure.
 */
#ifndef SP_PROXY_HELLO_H
#define SP_PROXY_HELLO_H

#include <stdbool.h>
#include <stddef.h>

#include "base/str.h"

#define SP_HELLO_MAX (16U << 10) /* a longer ClientHello is refused */

enum sp_hello {
    SP_HELLO_PARTIAL,  /* more bytes are needed */
    SP_HELLO_OTHER,    /* no TLS handshake */
    SP_HELLO_NO_NAME,  /* a ClientHello without a server name */
    SP_HELLO_NAMED,    /* *ret_name is set */
    SP_HELLO_TOO_LONG, /* more than SP_HELLO_MAX bytes */
    SP_HELLO_BROKEN,   /* begins like a ClientHello, and is malformed */
};

/* `bytes`: all that the client has sent so far; the hello may be spread over several records. The
 * name is copied into `name`, at most 255 bytes, as it came, and terminated. Two server names are
 * BROKEN. */
enum sp_hello sp_hello_read(struct sp_str bytes, char name[256], size_t *ret_len);

#endif
