/* SPDX-License-Identifier: Apache-2.0 */
/*
 * network_host: the name of a host as a command gives it, in canonical form.
 *
 * A name is a DNS name in lower case. An address is what the resolver would take the text for:
 * 0x7f.1, 2130706433 and ::ffff:127.0.0.1 are 127.0.0.1. Nothing is resolved.
 */
#ifndef SP_APPROVE_NETWORK_HOST_H
#define SP_APPROVE_NETWORK_HOST_H

#include <stdbool.h>

#include "base/str.h"

#define SP_NETWORK_HOST_MAX 253 /* bytes of a name */

struct sp_network_host {
    char text[SP_NETWORK_HOST_MAX + 1];
    bool is_address; /* rather than a name */
    bool is_local;   /* a name of this machine, or an address that is not public */
};

/* NULL, or the error text; *ret is unchanged then. */
const char *sp_network_host_read(struct sp_str text, struct sp_network_host *ret);

#endif
