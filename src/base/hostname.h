/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hostname: the name of a host as a command gives it, in canonical form; addresses that are not
 * public; patterns of domains.
 *
 * A name is a DNS name in lower case. An address is what the resolver would take the text for:
 * 0x7f.1, 2130706433 and ::ffff:127.0.0.1 are 127.0.0.1. Nothing is resolved.
 */
#ifndef SP_BASE_HOSTNAME_H
#define SP_BASE_HOSTNAME_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

#define SP_HOSTNAME_MAX 253 /* bytes of a name */

struct sp_hostname {
    char text[SP_HOSTNAME_MAX + 1];
    bool is_address;     /* rather than a name */
    bool is_local;       /* a name of this machine, or an address that is not public */
    bool is_metadata;    /* an address where clouds give out credentials */
    bool has_scope;      /* fe80::1%eth0: reaches one link */
    uint8_t address[16]; /* is_address: in network order, 4 or 16 bytes */
    int family;          /* is_address: AF_INET or AF_INET6 */
};

/* NULL, or the error text; *ret is unchanged then. */
const char *sp_hostname_read(struct sp_str text, struct sp_hostname *ret);
/* Writes the host without port, brackets and final dots, in lower case, into `out` (s.n bytes of
 * room); an address keeps its spelling. NULL: *ret has it; otherwise the error text. */
const char *sp_hostname_normal(struct sp_str s, char *out, struct sp_str *ret);

/* AF_INET: 4 bytes in network order; AF_INET6: 16. IPv6 addresses that embed an IPv4 address are
 * judged by that one. */
bool sp_address_is_local(int family, const void *bytes);
/* Where clouds give out credentials; all of them are local, too. */
bool sp_address_is_metadata(int family, const void *bytes);

/*
 * "a.example" is that host, "*.a.example" its subdomains at any depth, "**.a.example" both; "*"
 * elsewhere is any run of characters, dots too, "?" one character. ":PORT" at the end limits the
 * pattern to that port.
 */
struct sp_hostname_pattern {
    char text[SP_HOSTNAME_MAX + 1];
    uint16_t port; /* 0: all */
    bool has_wildcard;
};
/* NULL, or the error text. A deny list takes no "*" alone. */
const char *sp_hostname_pattern_read(struct sp_str text, bool is_deny,
                                     struct sp_hostname_pattern *ret);
/* host: text of a struct sp_hostname */
bool sp_hostname_pattern_matches(const struct sp_hostname_pattern *p, const char *host,
                                 uint16_t port);

#endif
