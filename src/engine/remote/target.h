/* SPDX-License-Identifier: Apache-2.0 */
/*
 * target: where a server is, as its URL says.
 */
#ifndef SP_ENGINE_REMOTE_TARGET_H
#define SP_ENGINE_REMOTE_TARGET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/un.h>

#include "base/error.h"

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

#endif
