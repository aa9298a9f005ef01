/* SPDX-License-Identifier: Apache-2.0 */
/*
 * network_options: --network, --allow-host, --deny-host, --allow-port and --allow-local of the
 * commands that run others under a profile.
 */
#ifndef SP_CLI_NETWORK_OPTIONS_H
#define SP_CLI_NETWORK_OPTIONS_H

#include "cli/options.h"
#include "sandbox/profile.h"

struct sp_network_options {
    const char *access; /* none, enabled or managed; NULL: not given */
    struct sp_option_list allowed, denied, ports;
    bool allows_local;
};
extern const struct sp_option sp_network_options[];

/* Lays the options on a profile. Refuses options that contradict each other, or that the profile
 * would leave without effect. */
int sp_network_options_apply(const struct sp_network_options *o, struct sp_profile *p,
                             struct sp_err *e);

/* "--allow-host", "--deny-host" or NULL: the option that has the pattern. */
const char *sp_network_options_origin(const struct sp_network_options *o,
                                      const struct sp_domain *domain);

#endif
