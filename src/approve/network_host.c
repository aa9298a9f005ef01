/* SPDX-License-Identifier: Apache-2.0 */
#include "approve/network_host.h"

#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>

#include "approve/rules/rules.h"

#define LABEL_MAX 63
#define SCOPE_MAX 15                         /* an interface's name */
#define RAW_MAX   (SP_NETWORK_HOST_MAX + 16) /* with blanks, brackets, a port */

/* ---- addresses that are not public ---- */

static bool is_local_v4(uint32_t a)
{
    static const struct {
        uint32_t net, bits;
    } nets[] = {
        {0x00000000, 8},  /* this network; unspecified */
        {0x0a000000, 8},  /* private */
        {0x64400000, 10}, /* carriers */
        {0x7f000000, 8},  /* loopback */
        {0xa9fe0000, 16}, /* link-local */
        {0xac100000, 12}, /* private */
        {0xc0000000, 24}, /* protocol assignments */
        {0xc0000200, 24}, /* documentation */
        {0xc0a80000, 16}, /* private */
        {0xc6120000, 15}, /* benchmarks */
        {0xc6336400, 24}, /* documentation */
        {0xcb007100, 24}, /* documentation */
        {0xe0000000, 4},  /* multicast */
        {0xf0000000, 4},  /* reserved; broadcast */
    };

    for (size_t i = 0; i < sizeof nets / sizeof nets[0]; i++)
        if ((a ^ nets[i].net) >> (32 - nets[i].bits) == 0)
            return true;
    return false;
}

static uint32_t v4_at(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static bool has_prefix(const uint8_t *address, const char *bytes, size_t n)
{
    return memcmp(address, bytes, n) == 0;
}
#define BEGINS(address, literal) has_prefix(address, literal, sizeof(literal) - 1)

#define MAPPED     "\0\0\0\0\0\0\0\0\0\0\xff\xff"
#define COMPATIBLE "\0\0\0\0\0\0\0\0\0\0\0\0"
#define NAT64      "\0\x64\xff\x9b\0\0\0\0\0\0\0\0"

/* An address that embeds an IPv4 address leads to that one. */
static bool is_local_v6(const uint8_t a[16])
{
    if (BEGINS(a, MAPPED) || BEGINS(a, COMPATIBLE) || BEGINS(a, NAT64))
        return is_local_v4(v4_at(a + 12));
    if (BEGINS(a, "\x20\x02")) /* 6to4 */
        return is_local_v4(v4_at(a + 2));
    return a[0] == 0xff ||                      /* multicast */
           (a[0] & 0xfe) == 0xfc ||             /* private */
           (a[0] == 0xfe && a[1] >= 0x80) ||    /* link-local, site-local */
           BEGINS(a, "\x20\x01\x0d\xb8") ||     /* documentation */
           BEGINS(a, "\0\x64\xff\x9b\0\x01") || /* local translation */
           BEGINS(a, "\x01\0\0\0\0\0\0\0");     /* to be discarded */
}

/* ---- reading ---- */

static void take_v4(uint32_t a, struct sp_network_host *ret)
{
    (void)snprintf(ret->text, sizeof ret->text, "%u.%u.%u.%u", a >> 24, a >> 16 & 255, a >> 8 & 255,
                   a & 255);
    ret->is_address = true;
    ret->is_local = is_local_v4(a);
}

static bool is_name_character(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static bool is_scope(const char *s)
{
    size_t n = 0;

    while (is_name_character(s[n]) || s[n] == '.')
        n++;
    return n > 0 && n <= SCOPE_MAX && s[n] == 0;
}

static const char *read_v6(char *text, struct sp_network_host *ret)
{
    char *scope = strchr(text, '%');
    char canonical[INET6_ADDRSTRLEN];
    uint8_t a[16];

    if (scope != NULL) {
        *scope++ = 0;
        if (!is_scope(scope))
            return "has a scope that is none";
    }
    if (inet_pton(AF_INET6, text, a) != 1 ||
        inet_ntop(AF_INET6, a, canonical, sizeof canonical) == NULL)
        return "is no IPv6 address";
    if (BEGINS(a, MAPPED) && scope == NULL) {
        take_v4(v4_at(a + 12), ret);
        return NULL;
    }
    (void)snprintf(ret->text, sizeof ret->text, "%s%s%s", canonical, scope == NULL ? "" : "%",
                   scope == NULL ? "" : scope);
    ret->is_address = true;
    ret->is_local = scope != NULL || is_local_v6(a); /* a scope is local to a link */
    return NULL;
}

static const char *check_labels(struct sp_str s)
{
    size_t n = 0;

    for (size_t i = 0; i <= s.n; i++) {
        if (i < s.n && s.p[i] != '.') {
            if (!is_name_character(s.p[i]))
                return "has a character that no name has";
            n++;
            continue;
        }
        if (n == 0)
            return "has an empty label";
        if (n > LABEL_MAX)
            return "has a label of more than 63 bytes";
        n = 0;
    }
    return NULL;
}

/* Whether the last label is a number: then the text is an address or invalid. */
static bool ends_in_number(const char *text)
{
    const char *dot = strrchr(text, '.');
    const char *last = dot == NULL ? text : dot + 1;

    if (last[0] == '0' && last[1] == 'x')
        return last[strspn(last + 2, "0123456789abcdef") + 2] == 0;
    return last[strspn(last, "0123456789")] == 0;
}

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text);
    const size_t m = strlen(end);

    return n >= m && strcmp(text + n - m, end) == 0;
}

/* The names of loopback in usual hosts files. */
static bool is_local_name(const char *text)
{
    static const char *const names[] = {
        "localhost",  "localhost.localdomain",   "localhost4",    "localhost4.localdomain4",
        "localhost6", "localhost6.localdomain6", "ip6-localhost", "ip6-loopback"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(text, names[i]) == 0)
            return true;
    return ends_with(text, ".localhost");
}

static const char *read_name(const char *text, size_t n, struct sp_network_host *ret)
{
    const char *wrong = check_labels((struct sp_str){text, n});
    struct in_addr a;

    if (wrong != NULL)
        return wrong;
    if (ends_in_number(text)) {
        if (inet_aton(text, &a) == 0)
            return "is no IPv4 address";
        take_v4(ntohl(a.s_addr), ret);
        return NULL;
    }
    memcpy(ret->text, text, n + 1);
    ret->is_local = is_local_name(text);
    return NULL;
}

static bool has_control(struct sp_str s)
{
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] < 0x20 || s.p[i] == 0x7f)
            return true;
    return false;
}

const char *sp_network_host_read(struct sp_str text, struct sp_network_host *ret)
{
    struct sp_network_host host = {0};
    char room[RAW_MAX + 1];
    struct sp_str normal;

    if (text.n > RAW_MAX)
        return "is too long";
    if (has_control(text))
        return "has a control character";
    const char *wrong = sp_rules_normal_host(text, room, &normal);
    if (wrong != NULL)
        return wrong;
    if (normal.n > SP_NETWORK_HOST_MAX)
        return "is too long";
    room[normal.n] = 0;
    const bool is_v6 = memchr(room, ':', normal.n) != NULL;
    if (!is_v6 && memchr(text.p, '[', text.n) != NULL)
        return "has brackets around what is no IPv6 address";
    wrong = is_v6 ? read_v6(room, &host) : read_name(room, normal.n, &host);
    if (wrong == NULL)
        *ret = host;
    return wrong;
}
