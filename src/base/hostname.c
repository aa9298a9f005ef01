/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hostname.h"

#include <arpa/inet.h>
#include <stdio.h>

#include "base/utf8.h"

#define LABEL_MAX 63
#define SCOPE_MAX 15 /* an interface's name */
#define NO_SCHEME "must be a hostname or IP literal (without scheme or path)"
#define RAW_MAX   (SP_HOSTNAME_MAX + 16) /* with blanks, brackets, a port */

/* ---- addresses that are not public ---- */

#define METADATA_V4     0xa83f8110U /* 168.63.129.16: Azure */
#define METADATA_V4_ALI 0x646464c8U /* 100.100.100.200: Alibaba */
#define METADATA_V6_EC2 "\xfd\0\x0e\xc2\0\0\0\0\0\0\0\0\0\0\x02\x54"

static bool is_local_v4(uint32_t a)
{
    static const struct {
        uint32_t net, bits;
    } nets[] = {
        {0x00000000, 8},   /* this network; unspecified */
        {0x0a000000, 8},   /* private */
        {0x64400000, 10},  /* carriers */
        {0x7f000000, 8},   /* loopback */
        {METADATA_V4, 32}, /* a cloud's metadata at a public address */
        {0xa9fe0000, 16},  /* link-local */
        {0xac100000, 12},  /* private */
        {0xc0000000, 24},  /* protocol assignments */
        {0xc0000200, 24},  /* documentation */
        {0xc0a80000, 16},  /* private */
        {0xc6120000, 15},  /* benchmarks */
        {0xc6336400, 24},  /* documentation */
        {0xcb007100, 24},  /* documentation */
        {0xe0000000, 4},   /* multicast */
        {0xf0000000, 4},   /* reserved; broadcast */
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
    return a[0] == 0xff ||                           /* multicast */
           (a[0] & 0xfe) == 0xfc ||                  /* private */
           (a[0] == 0xfe && a[1] >= 0x80) ||         /* link-local, site-local */
           BEGINS(a, "\x20\x01\x0d\xb8") ||          /* documentation */
           (BEGINS(a, "\x3f\xff") && a[2] < 0x10) || /* documentation */
           (BEGINS(a, "\x20\x01") && a[2] < 2) ||    /* protocol assignments: Teredo, benchmarks */
           BEGINS(a, "\x5f\0") ||                    /* segment routing */
           BEGINS(a, "\0\0\0\0\0\0\0\0\xff\xff\0\0") || /* local translation */
           BEGINS(a, "\0\x64\xff\x9b\0\x01") ||         /* local translation */
           BEGINS(a, "\x01\0\0\0\0\0\0\0");             /* to be discarded */
}

bool sp_address_is_local(int family, const void *bytes)
{
    return family == AF_INET ? is_local_v4(v4_at(bytes)) : is_local_v6(bytes);
}

bool sp_address_is_metadata(int family, const void *bytes)
{
    const uint8_t *a = bytes;

    if (family != AF_INET && BEGINS(a, METADATA_V6_EC2))
        return true;
    if (family != AF_INET && BEGINS(a, "\x20\x02")) /* 6to4 */
        return sp_address_is_metadata(AF_INET, a + 2);
    if (family != AF_INET && !BEGINS(a, MAPPED) && !BEGINS(a, COMPATIBLE) && !BEGINS(a, NAT64))
        return false;
    const uint32_t v4 = v4_at(family == AF_INET ? a : a + 12);
    return v4 >> 16 == 0xa9fe || v4 == METADATA_V4 || v4 == METADATA_V4_ALI;
}

/* ---- the normal form ---- */

static struct sp_str behind(struct sp_str s, size_t n)
{
    return (struct sp_str){s.p + n, s.n - n};
}

static bool has(struct sp_str s, char c)
{
    return s.n != 0 && memchr(s.p, c, s.n) != NULL;
}

static bool is_port(struct sp_str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] < '0' || s.p[i] > '9')
            return false;
    return s.n != 0;
}

/* [ADDRESS] or [ADDRESS]:PORT. The error text, or NULL. */
static const char *strip_brackets(struct sp_str *s)
{
    const char *close = memchr(s->p, ']', s->n);

    if (close == NULL)
        return "has an invalid bracketed IPv6 literal";
    const struct sp_str rest = behind(*s, (size_t)(close - s->p) + 1);
    if (rest.n != 0 && (rest.p[0] != ':' || !is_port(behind(rest, 1))))
        return "contains an unsupported suffix: ";
    *s = (struct sp_str){s->p + 1, (size_t)(close - s->p) - 1};
    return NULL;
}

/* HOST:PORT. With more than one colon it is an IPv6 address. */
static void strip_port(struct sp_str *s)
{
    const char *colon = memchr(s->p, ':', s->n);

    if (colon == NULL || colon == s->p)
        return;
    const struct sp_str port = behind(*s, (size_t)(colon - s->p) + 1);
    if (is_port(port))
        s->n = (size_t)(colon - s->p);
}

const char *sp_hostname_normal(struct sp_str s, char *out, struct sp_str *ret)
{
    const char *wrong = NULL;

    s = sp_utf8_trim(s);
    if (s.n == 0)
        return "cannot be empty";
    if (has(s, '/') || has(s, '?') || has(s, '#'))
        return NO_SCHEME;
    if (s.p[0] == '[')
        wrong = strip_brackets(&s);
    else
        strip_port(&s);
    if (wrong != NULL)
        return wrong;
    while (s.n != 0 && s.p[s.n - 1] == '.')
        s.n--;
    s = sp_utf8_trim(s);
    if (s.n == 0)
        return "cannot be empty";
    if (has(s, '*'))
        return "must be a specific host; wildcards are not allowed";
    for (size_t i = 0; i < s.n; i++)
        if (sp_utf8_space_at(behind(s, i)) != 0)
            return "cannot contain whitespace";
    for (size_t i = 0; i < s.n; i++)
        out[i] = (char)(s.p[i] >= 'A' && s.p[i] <= 'Z' ? s.p[i] | 0x20 : s.p[i]);
    *ret = (struct sp_str){out, s.n};
    return NULL;
}

/* ---- reading ---- */

static void take_v4(uint32_t a, struct sp_hostname *ret)
{
    const uint32_t bytes = htonl(a);

    (void)snprintf(ret->text, sizeof ret->text, "%u.%u.%u.%u", a >> 24, a >> 16 & 255, a >> 8 & 255,
                   a & 255);
    memcpy(ret->address, &bytes, sizeof bytes);
    ret->family = AF_INET;
    ret->is_address = true;
    ret->is_local = sp_address_is_local(AF_INET, ret->address);
    ret->is_metadata = sp_address_is_metadata(AF_INET, ret->address);
}

static bool is_name_character(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static const char *read_v6(char *text, struct sp_hostname *ret)
{
    char *scope = strchr(text, '%');
    char canonical[INET6_ADDRSTRLEN];
    uint8_t a[16];

    if (scope != NULL) {
        size_t n = 0;

        *scope++ = 0;
        while (is_name_character(scope[n]) || scope[n] == '.')
            n++;
        if (n == 0 || n > SCOPE_MAX || scope[n] != 0 || scope[n - 1] == '.')
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
    ret->is_local =
        scope != NULL || sp_address_is_local(AF_INET6, a); /* a scope is local to a link */
    ret->is_metadata = sp_address_is_metadata(AF_INET6, a);
    ret->has_scope = scope != NULL;
    ret->family = AF_INET6;
    memcpy(ret->address, a, sizeof a);
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

static const char *read_name(const char *text, size_t n, struct sp_hostname *ret)
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

const char *sp_hostname_read(struct sp_str text, struct sp_hostname *ret)
{
    struct sp_hostname host = {0};
    char room[RAW_MAX + 1];
    struct sp_str normal;

    if (text.n > RAW_MAX)
        return "is too long";
    if (has_control(text))
        return "has a control character";
    const char *wrong = sp_hostname_normal(text, room, &normal);
    if (wrong != NULL)
        return wrong;
    if (normal.n > SP_HOSTNAME_MAX)
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

/* ---- patterns ---- */

static bool is_pattern_character(char c)
{
    return is_name_character(c) || c == '.' || c == '*' || c == '?';
}

/* Removes :PORT from the end. false: the digits are no port. */
static bool cut_port(struct sp_str *s, uint16_t *ret)
{
    const char *colon = s->n == 0 ? NULL : memrchr(s->p, ':', s->n);
    uint64_t port = 0;

    if (colon == NULL || (s->p[0] != '[' && memchr(s->p, ':', s->n) != colon) ||
        (s->p[0] == '[' && (colon == s->p || colon[-1] != ']')))
        return true; /* an IPv6 address alone */
    const size_t before = (size_t)(colon - s->p);
    if (!sp_str_to_u64(behind(*s, before + 1), UINT16_MAX, &port) || port == 0)
        return false;
    *ret = (uint16_t)port;
    s->n = before;
    return true;
}

const char *sp_hostname_pattern_read(struct sp_str text, bool is_deny,
                                     struct sp_hostname_pattern *ret)
{
    struct sp_hostname_pattern p = {0};
    struct sp_hostname exact;
    struct sp_str s = sp_str_trim(text);

    if (s.n != 0 && memmem(s.p, s.n, "://", 3) != NULL)
        return NO_SCHEME;
    if (!cut_port(&s, &p.port))
        return "has an invalid port";
    if (!has(s, '*') && !has(s, '?')) {
        if (s.n != 0 && s.p[0] != '[' && (has(s, '[') || has(s, '{')))
            return "has [ or {, which domain patterns do not support";
        const char *wrong = sp_hostname_read(s, &exact);
        if (wrong == NULL) {
            memcpy(p.text, exact.text, sizeof p.text);
            *ret = p;
        }
        return wrong;
    }
    while (s.n != 0 && s.p[s.n - 1] == '.')
        s.n--;
    if (s.n > SP_HOSTNAME_MAX)
        return "is too long";
    for (size_t i = 0; i < s.n; i++) {
        p.text[i] = (char)(s.p[i] >= 'A' && s.p[i] <= 'Z' ? s.p[i] | 0x20 : s.p[i]);
        if (p.text[i] == '[' || p.text[i] == '{')
            return "has [ or {, which domain patterns do not support";
        if (!is_pattern_character(p.text[i]))
            return "has a character that no name has";
    }
    p.has_wildcard = true;
    if (is_deny && strspn(p.text, "*") == s.n)
        return "unsupported global wildcard domain pattern \"*\"; use exact hosts or scoped "
               "wildcards like *.example.com or **.example.com";
    *ret = p;
    return NULL;
}

/* Greedy with one point to return to: the last star is enough, since a star matches dots too. */
static bool glob(const char *pattern, const char *text)
{
    const char *star = NULL;
    const char *resume = NULL;

    while (*text != 0) {
        if (*pattern == '*') {
            star = pattern++;
            resume = text;
        } else if (*pattern == '?' || *pattern == *text) {
            pattern++;
            text++;
        } else if (star != NULL) {
            pattern = star + 1;
            text = ++resume;
        } else {
            return false;
        }
    }
    return pattern[strspn(pattern, "*")] == 0;
}

bool sp_hostname_pattern_matches(const struct sp_hostname_pattern *p, const char *host,
                                 uint16_t port)
{
    if (p->port != 0 && p->port != port)
        return false;
    if (!p->has_wildcard)
        return strcmp(p->text, host) == 0;
    if (strncmp(p->text, "**.", 3) == 0)
        return glob(p->text + 3, host) || glob(p->text + 1, host);
    return glob(p->text, host);
}
