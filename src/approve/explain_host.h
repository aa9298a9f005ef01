/* SPDX-License-Identifier: Apache-2.0 */
/*
 * explain_host: whether the lists of a profile let a host be reached, and which pattern says so.
 *
 * Rules, earlier decisions and questions come on top of the lists. Nothing is resolved: a name that
 * leads to an address that is not public is refused when a command connects to it.
 */
#ifndef SP_APPROVE_EXPLAIN_HOST_H
#define SP_APPROVE_EXPLAIN_HOST_H

#include "sandbox/profile.h"

enum sp_host_network {
    SP_HOST_NETWORK_NONE,
    SP_HOST_NETWORK_OPEN, /* the host's: no list is read */
    SP_HOST_NETWORK_MANAGED,
};

struct sp_host_explained {
    enum sp_host_network network;
    struct sp_hostname host;
    uint16_t port;
    /* MANAGED only */
    const struct sp_network_policy *policy;
    enum sp_network_standing standing;
    const struct sp_domain *domain; /* the pattern that decides, of the policy; NULL: none */
    bool is_by_name;                /* reached without a proxy variable, too */
    /* for the text; set by the caller; NULL: left out */
    const char *origin; /* where the pattern is written: an option, a file */
    const char *remedy; /* allows a host that is not listed: "give --allow-host" */
};

/* text: HOST, HOST:PORT, ADDRESS or [ADDRESS]:PORT; without a port 443 is meant. Borrows the policy
 * of the profile. */
int sp_explain_host(const struct sp_profile *p, const char *text, struct sp_host_explained *ret,
                    struct sp_err *e);

/* Some lines. false: no memory. */
bool sp_host_explained_add_text(const struct sp_host_explained *x, struct sp_buf *out);

#endif
