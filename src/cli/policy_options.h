/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy_options: the policy of commands, by --sandbox or --profile, --writable, --network,
 * --allow-host, --deny-host, --allow-port and --allow-local, and the ports of --publish. `exec`,
 * `mcp` and `sandbox` have them.
 */
#ifndef SP_CLI_POLICY_OPTIONS_H
#define SP_CLI_POLICY_OPTIONS_H

#include "cli/options.h"
#include "config/policy.h"
#include "engine/job.h"

struct sp_network_options {
    const char *access; /* none, enabled or managed; NULL: not given */
    struct sp_option_list allowed, denied, ports;
    bool allows_local;
};

struct sp_policy_options {
    const char *sandbox, *profile_file;
    struct sp_option_list writable;
    struct sp_network_options network;
    struct sp_option_list publish;
};
extern const struct sp_option sp_policy_options[];

/* The name of the policy, for people: that of --sandbox or the file of --profile, else `or_else`.
 */
const char *sp_policy_options_name(const struct sp_policy_options *o, const char *or_else);

/*
 * The policy that the options describe, `or_else` being the sandbox if they name none. is_here: the
 * commands run on this host, else the directories of --writable are not looked at. Refuses options
 * that contradict each other, or that the profile would leave without effect. *ret is zero, and to
 * be freed also after a failure. *ret_is_open: no sandbox is needed.
 */
int sp_policy_options_make(const struct sp_policy_options *o, const struct sp_config *c,
                           const char *or_else, const char *cwd, bool is_here,
                           struct sp_policy *ret, bool *ret_is_open, struct sp_err *e);

/* Listens for the ports of --publish, or else those of the configuration, on behalf of `here`,
 * which runs commands on this host; NULL: they run elsewhere. Refuses --publish where nothing can
 * be published; ports of the configuration are left out there, with a warning if a sandbox
 * elsewhere would need them, and if they are taken. p NULL: not known yet, which suits `here` NULL
 * alone. */
int sp_policy_options_publish(const struct sp_policy_options *o, const struct sp_config *c,
                              const struct sp_policy *p, struct sp_backend *here, struct sp_err *e);

/* "--allow-host", "--deny-host" or NULL: the option that has the pattern. */
const char *sp_network_options_origin(const struct sp_network_options *o,
                                      const struct sp_domain *domain);

#endif
