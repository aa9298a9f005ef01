/* SPDX-License-Identifier: Apache-2.0 */
/*
 * network_policy: which hosts a command may reach through the managed network, and how.
 *
 * Only the lists are judged here. Rules, earlier decisions and questions come on top of them
 * (approve/network.h). Nothing is resolved: a name that leads to an address that is not public is
 * refused by the proxy, which connects to the addresses it has judged.
 */
#ifndef SP_SANDBOX_NETWORK_POLICY_H
#define SP_SANDBOX_NETWORK_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/hostname.h"
#include "base/network_reason.h"
#include "base/str.h"

#define SP_NETWORK_DOMAINS_MAX 4096
#define SP_NETWORK_PORTS_MAX   16
#define SP_NETWORK_PROXY_PORT  808 /* of HTTP and SOCKS5, in the cell */

enum sp_domain_word { SP_DOMAIN_NONE, SP_DOMAIN_ALLOW, SP_DOMAIN_DENY };

struct sp_domain {
    struct sp_hostname_pattern pattern;
    enum sp_domain_word word;
};

struct sp_network_policy {
    bool is_limited;      /* mode `limited`: GET, HEAD and OPTIONS over plain HTTP only */
    bool asks;            /* about hosts on no list; false: they are refused */
    bool allows_local;    /* listed hosts may have addresses that are not public */
    bool has_socks;       /* SOCKS5 beside HTTP */
    bool checks_sni;      /* the server name of TLS must be listed, too */
    bool sets_env;        /* proxy variables are set */
    bool uses_upstream;   /* the server's own proxy variables count */
    bool upstream_strict; /* behind an upstream proxy, a name must resolve here, too */
    uint16_t ports[SP_NETWORK_PORTS_MAX]; /* reached by name */
    uint8_t port_count;
    struct sp_domain *domains;
    size_t count, cap;
};

/* No domains, ports 22, 80 and 443, everything else on but is_limited, allows_local and
 * upstream_strict. NULL: no memory. */
struct sp_network_policy *sp_network_policy_new(void);
void sp_network_policy_free(struct sp_network_policy *p); /* NULL is fine */
struct sp_network_policy *sp_network_policy_copy(const struct sp_network_policy *p);
/* Adds a text that is the same for equal policies, and different for others. false: no memory. */
bool sp_network_policy_add_key(const struct sp_network_policy *p, struct sp_buf *key);
static inline bool sp_network_policy_equal(const struct sp_network_policy *a,
                                           const struct sp_network_policy *b)
{
    auto_buf struct sp_buf x = {0};
    auto_buf struct sp_buf y = {0};

    if (a == NULL || b == NULL)
        return a == b;
    return sp_network_policy_add_key(a, &x) && sp_network_policy_add_key(b, &y) &&
           sp_str_eq(sp_buf_str(&x), sp_buf_str(&y));
}

/* Adds a pattern, or replaces the word of an equal one. Without replaces the stricter word stays:
 * DENY before ALLOW before NONE. takes_port: a ":PORT" at the end limits the pattern; otherwise it
 * is dropped. */
int sp_network_policy_add(struct sp_network_policy *p, struct sp_str pattern,
                          enum sp_domain_word word, bool takes_port, bool replaces,
                          struct sp_err *e);
int sp_network_policy_add_port(struct sp_network_policy *p, uint64_t port, struct sp_err *e);
/* The ports that are reached by name: `ports`, and those below 1024 of patterns. No command can
 * listen on them, so a port above is only taken if `ports` says so. Returns their count, at most
 * SP_NETWORK_PORTS_MAX. */
size_t sp_network_policy_ports(const struct sp_network_policy *p,
                               uint16_t ret[SP_NETWORK_PORTS_MAX]);

enum sp_network_way {
    SP_NETWORK_WAY_HTTP,   /* a plain HTTP request */
    SP_NETWORK_WAY_TUNNEL, /* CONNECT, or port 443 by name */
    SP_NETWORK_WAY_TCP,    /* anything else */
};

enum sp_network_standing {
    SP_STANDING_UNLISTED,
    SP_STANDING_LISTED,
    SP_STANDING_LITERAL, /* a local literal that is listed itself */
    SP_STANDING_DENIED,
    SP_STANDING_LOCAL,  /* not public, and not listed itself */
    SP_STANDING_METHOD, /* mode `limited` */
    SP_STANDING_MITM,   /* mode `limited`: HTTPS would have to be decrypted */
};

/* Why such a host is refused; NONE: it is allowed. UNLISTED: NOT_ALLOWED. */
enum sp_network_reason sp_network_standing_reason(enum sp_network_standing s);
/* *ret_domain: the pattern that decided, or NULL. method: of an HTTP request, n 0: none. */
enum sp_network_standing sp_network_policy_judge(const struct sp_network_policy *p,
                                                 const struct sp_hostname *host, uint16_t port,
                                                 enum sp_network_way way, struct sp_str method,
                                                 const struct sp_domain **ret_domain);
/* Whether a name is allowed for any port: it may be looked up. */
bool sp_network_policy_knows(const struct sp_network_policy *p, const struct sp_hostname *host);

/* The pattern as it is written. */
bool sp_domain_add_text(const struct sp_domain *d, struct sp_buf *out);

/* Calls `add` for each variable that points a command to the proxy; value NULL: the variable is
 * removed. Values are static strings. Stops when add returns false, and returns that. */
bool sp_network_policy_variables(const struct sp_network_policy *p,
                                 bool (*add)(void *user, const char *name, const char *value),
                                 void *user);

#endif
