/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dns: questions of a command's resolver, and our answers. Pure.
 */
#ifndef SP_PROXY_DNS_H
#define SP_PROXY_DNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

#define SP_DNS_MESSAGE_MAX 1232 /* of our answers, and of questions by UDP */
#define SP_DNS_TTL         60

enum sp_dns_type { SP_DNS_A = 1, SP_DNS_PTR = 12, SP_DNS_AAAA = 28 };

enum sp_dns_code { /* RCODE */
                   SP_DNS_OK = 0,
                   SP_DNS_FORMERR = 1,
                   SP_DNS_SERVFAIL = 2,
                   SP_DNS_NXDOMAIN = 3,
                   SP_DNS_NOTIMP = 4,
                   SP_DNS_REFUSED = 5,
};

struct sp_dns_question {
    uint16_t id, flags;
    uint16_t type;
    char name[256]; /* in lower case, without final dot; "" is the root */
    size_t name_len;
    uint8_t wire[260]; /* name, type and class as they came: echoed, case and all */
    size_t wire_len;
    bool has_opt; /* EDNS */
};

/* What to do with a datagram: answer it with the question (OK), answer it with this code alone, or
 * ignore it (-1: shorter than a head, or a response). One question, class IN, no compression
 * pointers, at most one OPT behind it; a label with a NUL or a dot in it is FORMERR. */
int sp_dns_read(struct sp_str bytes, struct sp_dns_question *ret);

/* All write the whole answer into out (SP_DNS_MESSAGE_MAX bytes) and return its length. */
size_t sp_dns_write_code(const struct sp_dns_question *q, enum sp_dns_code code, uint8_t *out);
size_t sp_dns_write_address(const struct sp_dns_question *q, int family, const void *address,
                            uint8_t *out);
size_t sp_dns_write_name(const struct sp_dns_question *q, const char *name, uint8_t *out); /* PTR */

/* The address of D.C.B.A.in-addr.arpa, in host order. false: another name. */
bool sp_dns_reverse(const char *name, uint32_t *ret);

#endif
