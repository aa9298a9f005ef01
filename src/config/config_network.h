/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config_network: [permissions.NAME.network]: none, the host's network, or a managed one.
 */
#ifndef SP_CONFIG_CONFIG_NETWORK_H
#define SP_CONFIG_CONFIG_NETWORK_H

#include "config/config_keys.h"

/* The keys of a profile and of those that it extends. They are kept for profiles without network,
 * too: a profile that extends one of these may enable it. */
struct sp_config_network {
    bool is_enabled;
    bool says_managed, is_managed;    /* the key `managed`, if it was given */
    bool has_settings;                /* a key that only a managed network has */
    struct sp_network_policy *policy; /* owned */
};

static inline void sp_config_network_done(struct sp_config_network *n)
{
    sp_network_policy_free(n->policy);
    *n = (struct sp_config_network){0};
}

/* parent NULL: none. table NULL: the profile has no such table. *ret is zero, and needs
 * sp_config_network_done also after a failure. */
int sp_config_network_read(struct sp_config_loading *l, const struct sp_toml_value *table,
                           const struct sp_config_network *parent, struct sp_config_network *ret);

/* Sets has_network and managed of the profile. */
int sp_config_network_apply(const struct sp_config_network *n, struct sp_profile *p,
                            struct sp_err *e);

#endif
