/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor_network: whether this host can make a managed network, found out by a command in one, and
 * the upstream proxies that it would use.
 */
#ifndef SP_CLI_DOCTOR_NETWORK_H
#define SP_CLI_DOCTOR_NETWORK_H

#include <stdbool.h>

#include "base/error.h"

/*
 * Runs a command in a managed cell that may reach a listener of ours on loopback, and nothing else.
 * It must reach the listener by CONNECT, get an address for a name, be refused at that address and
 * by CONNECT, and find no route to 192.0.2.1. Nothing is sent beyond the host, so no name is looked
 * up: that a listed name is reached is not tried.
 *
 * 0, or SP_E_FAILED with the step that failed.
 */
int sp_doctor_try_network(struct sp_err *e);

/* "HOST:PORT" without credentials; "": none. */
struct sp_doctor_upstream {
    char http[256], https[256];
    char no_proxy[512];
    bool is_unusable; /* a variable names a proxy that is not http:// */
};
void sp_doctor_find_upstream(struct sp_doctor_upstream *ret);

#endif
