/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/network_policy.h"

#include <errno.h>
#include <stdlib.h>

#include "base/auto.h"
#include "base/grow.h"

#define PRIVILEGED_PORTS 1024

struct sp_network_policy *sp_network_policy_new(void)
{
    struct sp_network_policy *p = malloc(sizeof *p);

    if (p != NULL)
        *p = (struct sp_network_policy){.asks = true,
                                        .has_socks = true,
                                        .checks_sni = true,
                                        .sets_env = true,
                                        .uses_upstream = true,
                                        .ports = {22, 80, 443},
                                        .port_count = 3};
    return p;
}

void sp_network_policy_free(struct sp_network_policy *p)
{
    if (p == NULL)
        return;
    free(p->domains);
    free(p);
}

struct sp_network_policy *sp_network_policy_copy(const struct sp_network_policy *p)
{
    struct sp_network_policy *copy = malloc(sizeof *copy);
    struct sp_domain *domains = malloc((p->count + 1) * sizeof *domains);

    if (copy == NULL || domains == NULL) {
        free(copy);
        free(domains);
        return NULL;
    }
    *copy = *p;
    copy->domains = domains;
    copy->cap = p->count + 1;
    if (p->count != 0)
        memcpy(domains, p->domains, p->count * sizeof *domains);
    return copy;
}

/* ---- patterns ---- */

bool sp_domain_add_text(const struct sp_domain *d, struct sp_buf *out)
{
    const bool is_v6 = strchr(d->pattern.text, ':') != NULL;

    return sp_buf_printf(out, is_v6 && d->pattern.port != 0 ? "[%s]" : "%s", d->pattern.text) &&
           (d->pattern.port == 0 || sp_buf_printf(out, ":%u", d->pattern.port));
}

int sp_network_policy_add(struct sp_network_policy *p, struct sp_str pattern,
                          enum sp_domain_word word, bool takes_port, bool replaces,
                          struct sp_err *e)
{
    struct sp_domain domain = {.word = word};
    const char *wrong = sp_hostname_pattern_read(pattern, word == SP_DOMAIN_DENY, &domain.pattern);

    if (wrong != NULL && strncmp(wrong, "unsupported", strlen("unsupported")) == 0)
        return sp_fail(e, SP_E_INVALID, 0, "%s", wrong);
    if (wrong != NULL)
        return sp_fail(e, SP_E_INVALID, 0, "domain pattern \"" SP_STR_FMT "\" %s",
                       SP_STR_ARG(pattern), wrong);
    if (!takes_port)
        domain.pattern.port = 0;
    struct sp_domain *known = NULL;
    for (size_t i = 0; known == NULL && i < p->count; i++)
        if (p->domains[i].pattern.port == domain.pattern.port &&
            strcmp(p->domains[i].pattern.text, domain.pattern.text) == 0)
            known = &p->domains[i];
    if (known != NULL) {
        if (replaces || word > known->word)
            known->word = word;
        return 0;
    }
    if (p->count == SP_NETWORK_DOMAINS_MAX)
        return sp_fail(e, SP_E_INVALID, 0, "a network policy has at most %d domains",
                       SP_NETWORK_DOMAINS_MAX);
    if (!SP_GROW(p->domains, p->count, p->cap))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "keep a network policy");
    p->domains[p->count++] = domain;
    return 0;
}

/* ---- ports ---- */

static bool has_port(const uint16_t *ports, size_t count, uint16_t port)
{
    for (size_t i = 0; i < count; i++)
        if (ports[i] == port)
            return true;
    return false;
}

int sp_network_policy_add_port(struct sp_network_policy *p, uint64_t port, struct sp_err *e)
{
    if (port == 0 || port > UINT16_MAX)
        return sp_fail(e, SP_E_INVALID, 0, "%llu is no port: they are from 1 to %d",
                       (unsigned long long)port, UINT16_MAX);
    if (port == 53 || port == SP_NETWORK_PROXY_PORT)
        return sp_fail(e, SP_E_INVALID, 0, "port %llu is used by the sandbox itself",
                       (unsigned long long)port);
    if (has_port(p->ports, p->port_count, (uint16_t)port))
        return 0;
    if (p->port_count == SP_NETWORK_PORTS_MAX)
        return sp_fail(e, SP_E_INVALID, 0, "a network policy has at most %d ports",
                       SP_NETWORK_PORTS_MAX);
    p->ports[p->port_count++] = (uint16_t)port;
    return 0;
}

static int compare_ports(const void *a, const void *b)
{
    return *(const uint16_t *)a - *(const uint16_t *)b;
}

size_t sp_network_policy_ports(const struct sp_network_policy *p,
                               uint16_t ret[SP_NETWORK_PORTS_MAX])
{
    size_t n = p->port_count;

    memcpy(ret, p->ports, n * sizeof *ret);
    for (size_t i = 0; i < p->count && n < SP_NETWORK_PORTS_MAX; i++) {
        const uint16_t port = p->domains[i].pattern.port;

        if (p->domains[i].word == SP_DOMAIN_ALLOW && port != 0 && port < PRIVILEGED_PORTS &&
            port != 53 && port != SP_NETWORK_PROXY_PORT && !has_port(ret, n, port))
            ret[n++] = port;
    }
    qsort(ret, n, sizeof *ret, compare_ports);
    return n;
}

/* ---- comparing ---- */

static int compare_domains(const void *a, const void *b)
{
    const struct sp_domain *x = *(const struct sp_domain *const *)a;
    const struct sp_domain *y = *(const struct sp_domain *const *)b;
    const int c = strcmp(x->pattern.text, y->pattern.text);

    return c != 0 ? c : x->pattern.port - y->pattern.port;
}

bool sp_network_policy_add_key(const struct sp_network_policy *p, struct sp_buf *key)
{
    uint16_t ports[SP_NETWORK_PORTS_MAX];
    const size_t port_count = sp_network_policy_ports(p, ports);
    auto_free const struct sp_domain **sorted = calloc(p->count + 1, sizeof(struct sp_domain *));
    bool ok = sorted != NULL && sp_buf_printf(key, "net %d%d%d%d%d%d%d%d", p->is_limited, p->asks,
                                              p->allows_local, p->has_socks, p->checks_sni,
                                              p->sets_env, p->uses_upstream, p->upstream_strict);

    if (sorted == NULL)
        return false;
    for (size_t i = 0; ok && i < port_count; i++)
        ok = sp_buf_printf(key, " %u", ports[i]);
    for (size_t i = 0; i < p->count; i++)
        sorted[i] = &p->domains[i];
    qsort(sorted, p->count, sizeof(struct sp_domain *), compare_domains);
    for (size_t i = 0; ok && i < p->count; i++)
        ok = sorted[i]->word == SP_DOMAIN_NONE ||
             (sp_buf_printf(key, " %c", sorted[i]->word == SP_DOMAIN_ALLOW ? '+' : '-') &&
              sp_domain_add_text(sorted[i], key));
    return ok && sp_buf_add(key, "", 1);
}

/* ---- judging ---- */

static const struct sp_domain *find_match(const struct sp_network_policy *p, const char *host,
                                          uint16_t port, enum sp_domain_word word, bool is_literal)
{
    for (size_t i = 0; i < p->count; i++) {
        const struct sp_domain *d = &p->domains[i];

        if (d->word == word && (!is_literal || !d->pattern.has_wildcard) &&
            sp_hostname_pattern_matches(&d->pattern, host, port))
            return d;
    }
    return NULL;
}

static bool is_reading(struct sp_str method)
{
    return sp_str_eq(method, SP_STR("GET")) || sp_str_eq(method, SP_STR("HEAD")) ||
           sp_str_eq(method, SP_STR("OPTIONS"));
}

enum sp_network_reason sp_network_standing_reason(enum sp_network_standing s)
{
    static const enum sp_network_reason reasons[] = {
        [SP_STANDING_UNLISTED] = SP_NETWORK_REASON_NOT_ALLOWED,
        [SP_STANDING_LISTED] = SP_NETWORK_REASON_NONE,
        [SP_STANDING_LITERAL] = SP_NETWORK_REASON_NONE,
        [SP_STANDING_DENIED] = SP_NETWORK_REASON_DENIED,
        [SP_STANDING_LOCAL] = SP_NETWORK_REASON_NOT_ALLOWED_LOCAL,
        [SP_STANDING_METHOD] = SP_NETWORK_REASON_METHOD_NOT_ALLOWED,
        [SP_STANDING_MITM] = SP_NETWORK_REASON_MITM_REQUIRED,
    };

    return reasons[s];
}

enum sp_network_standing sp_network_policy_judge(const struct sp_network_policy *p,
                                                 const struct sp_hostname *host, uint16_t port,
                                                 enum sp_network_way way, struct sp_str method,
                                                 const struct sp_domain **ret_domain)
{
    const struct sp_domain *literal = NULL;

    *ret_domain = find_match(p, host->text, port, SP_DOMAIN_DENY, false);
    if (*ret_domain != NULL)
        return SP_STANDING_DENIED;
    if (host->is_local) {
        literal = find_match(p, host->text, port, SP_DOMAIN_ALLOW, true);
        if (literal == NULL && (!p->allows_local || host->is_metadata))
            return SP_STANDING_LOCAL;
    }
    if (p->is_limited && way == SP_NETWORK_WAY_TUNNEL)
        return SP_STANDING_MITM;
    if (p->is_limited && (way != SP_NETWORK_WAY_HTTP || !is_reading(method)))
        return SP_STANDING_METHOD;
    *ret_domain =
        literal != NULL ? literal : find_match(p, host->text, port, SP_DOMAIN_ALLOW, false);
    if (literal != NULL)
        return SP_STANDING_LITERAL;
    return *ret_domain != NULL ? SP_STANDING_LISTED : SP_STANDING_UNLISTED;
}

bool sp_network_policy_knows(const struct sp_network_policy *p, const struct sp_hostname *host)
{
    bool is_known = false;

    for (size_t i = 0; i < p->count; i++) {
        struct sp_hostname_pattern any_port = p->domains[i].pattern;
        const bool is_partial = any_port.port != 0;

        any_port.port = 0;
        if (p->domains[i].word == SP_DOMAIN_NONE ||
            !sp_hostname_pattern_matches(&any_port, host->text, 0))
            continue;
        if (p->domains[i].word == SP_DOMAIN_DENY && !is_partial)
            return false;
        is_known |=
            p->domains[i].word == SP_DOMAIN_ALLOW && (!host->is_local || !any_port.has_wildcard);
    }
    return is_known;
}

/* ---- variables ---- */

#define HTTP_URL  "http://127.0.0.1:808"
#define SOCKS_URL "socks5h://127.0.0.1:808"

#define LISTED_LOCALHOST       (1U << 0) /* of `inside` below */
#define LISTED_BELOW_LOCALHOST (1U << 3)

/* What stays inside of the cell, less the names that a list allows: those mean the host's. */
static const char *find_no_proxy(const struct sp_network_policy *p)
{
    static const char *const inside[] = {"localhost", "127.0.0.1", "::1", ".localhost"};
    /* by the bits of the names that are listed */
    static const char *const texts[] = {
        "localhost,127.0.0.1,::1,.localhost",
        "127.0.0.1,::1,.localhost",
        "localhost,::1,.localhost",
        "::1,.localhost",
        "localhost,127.0.0.1,.localhost",
        "127.0.0.1,.localhost",
        "localhost,.localhost",
        ".localhost",
        "localhost,127.0.0.1,::1",
        "127.0.0.1,::1",
        "localhost,::1",
        "::1",
        "localhost,127.0.0.1",
        "127.0.0.1",
        "localhost",
        "",
    };
    unsigned listed = 0;

    for (unsigned i = 0; i < sizeof inside / sizeof inside[0]; i++)
        for (size_t k = 0; k < p->count; k++)
            if (p->domains[k].word == SP_DOMAIN_ALLOW &&
                strcmp(p->domains[k].pattern.text, inside[i]) == 0)
                listed |= 1U << i;
    if ((listed & LISTED_LOCALHOST) != 0)
        listed |= LISTED_BELOW_LOCALHOST; /* curl takes `.localhost` for `localhost`, too */
    return texts[listed];
}

bool sp_network_policy_variables(const struct sp_network_policy *p,
                                 bool (*add)(void *user, const char *name, const char *value),
                                 void *user)
{
    static const char *const http[] = {"HTTP_PROXY",
                                       "http_proxy",
                                       "HTTPS_PROXY",
                                       "https_proxy",
                                       "WS_PROXY",
                                       "ws_proxy",
                                       "WSS_PROXY",
                                       "wss_proxy",
                                       "NPM_CONFIG_PROXY",
                                       "npm_config_proxy",
                                       "NPM_CONFIG_HTTP_PROXY",
                                       "npm_config_http_proxy",
                                       "YARN_HTTP_PROXY",
                                       "YARN_HTTPS_PROXY",
                                       "NPM_CONFIG_HTTPS_PROXY",
                                       "BUNDLE_HTTP_PROXY",
                                       "BUNDLE_HTTPS_PROXY",
                                       "npm_config_https_proxy",
                                       "DOCKER_HTTP_PROXY",
                                       "DOCKER_HTTPS_PROXY",
                                       "PIP_PROXY"};
    static const char *const all[] = {"ALL_PROXY", "all_proxy", "FTP_PROXY", "ftp_proxy"};
    static const char *const none[] = {"NO_PROXY",           "no_proxy",      "NPM_CONFIG_NOPROXY",
                                       "npm_config_noproxy", "YARN_NO_PROXY", "BUNDLE_NO_PROXY"};
    const char *no_proxy = find_no_proxy(p);
    bool ok = true;

    for (size_t i = 0; ok && i < sizeof http / sizeof http[0]; i++)
        ok = add(user, http[i], p->sets_env ? HTTP_URL : NULL);
    for (size_t i = 0; ok && i < sizeof all / sizeof all[0]; i++)
        ok = add(user, all[i], !p->sets_env ? NULL : p->has_socks ? SOCKS_URL : HTTP_URL);
    for (size_t i = 0; ok && i < sizeof none / sizeof none[0]; i++)
        ok = add(user, none[i], p->sets_env ? no_proxy : NULL);
    return ok && add(user, "NODE_USE_ENV_PROXY", p->sets_env ? "1" : NULL) &&
           add(user, "ELECTRON_GET_USE_PROXY", p->sets_env ? "true" : NULL) &&
           add(user, "CODEX_NETWORK_PROXY_ACTIVE", "1") &&
           add(user, "CODEX_NETWORK_ALLOW_LOCAL_BINDING", p->allows_local ? "1" : "0") &&
           add(user, "CODEX_SANDBOX_NETWORK_DISABLED", NULL) &&
           add(user, "CODEX_NETWORK_PROXY_ATTRIBUTION", NULL);
}
