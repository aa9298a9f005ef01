/* SPDX-License-Identifier: Apache-2.0 */
#include "approve/explain_host.h"

#define DEFAULT_PORT 443

/* ---- the question ---- */

int sp_explain_host(const struct sp_profile *p, const char *text, struct sp_host_explained *ret,
                    struct sp_err *e)
{
    struct sp_host_explained x = {0};
    uint16_t ports[SP_NETWORK_PORTS_MAX];
    const struct sp_str whole = sp_str_of(text);
    const char *colon = whole.n == 0 ? NULL : memrchr(whole.p, ':', whole.n);
    const bool is_bracketed = whole.n != 0 && whole.p[0] == '[';
    struct sp_str host = whole;
    uint64_t port = DEFAULT_PORT;

    /* An IPv6 address without brackets has no port. */
    if (strstr(text, "://") == NULL && colon != NULL &&
        (is_bracketed ? colon[-1] == ']' : memchr(whole.p, ':', whole.n) == colon)) {
        const struct sp_str digits = {colon + 1, (size_t)(whole.p + whole.n - colon - 1)};

        if (!sp_str_to_u64(digits, UINT16_MAX, &port) || port == 0)
            return sp_fail(e, SP_E_INVALID, 0, "`%.40s` is not a port", digits.p);
        host.n = (size_t)(colon - whole.p);
    }
    if (is_bracketed && host.n >= 2 && host.p[host.n - 1] == ']')
        host = (struct sp_str){host.p + 1, host.n - 2};
    const char *wrong = sp_hostname_read(host, &x.host);
    if (wrong != NULL)
        return sp_fail(e, SP_E_INVALID, 0, "host `%.*s`: %s",
                       (int)(host.n > SP_HOSTNAME_MAX ? SP_HOSTNAME_MAX : host.n), host.p, wrong);
    x.port = (uint16_t)port;
    x.policy = p->kind == SP_PROFILE_DISABLED ? NULL : sp_profile_managed(p);
    if (x.policy != NULL) {
        const enum sp_network_way way = x.port == 80    ? SP_NETWORK_WAY_HTTP
                                        : x.port == 443 ? SP_NETWORK_WAY_TUNNEL
                                                        : SP_NETWORK_WAY_TCP;
        const size_t count = sp_network_policy_ports(x.policy, ports);

        x.network = SP_HOST_NETWORK_MANAGED;
        x.standing =
            sp_network_policy_judge(x.policy, &x.host, x.port, way, SP_STR("GET"), &x.domain);
        for (size_t i = 0; i < count; i++)
            x.is_by_name |= ports[i] == x.port && !x.host.is_address && !x.host.is_local;
    } else if (p->has_network || p->kind == SP_PROFILE_DISABLED) {
        x.network = SP_HOST_NETWORK_OPEN;
    }
    *ret = x;
    return 0;
}

/* ---- the answer ---- */

static bool add_pattern(const struct sp_host_explained *x, struct sp_buf *out)
{
    return sp_buf_printf(out, "pattern `") && sp_domain_add_text(x->domain, out) &&
           sp_buf_printf(out, "`") &&
           (x->origin == NULL || sp_buf_printf(out, " of %s", x->origin));
}

static bool add_listed(const struct sp_host_explained *x, struct sp_buf *out)
{
    return sp_buf_printf(out, "  allowed: ") && add_pattern(x, out) && sp_buf_printf(out, "\n") &&
           (x->policy->allows_local || x->host.is_address || x->host.is_local ||
            sp_buf_printf(out, "  refused all the same if one of its addresses is not public\n")) &&
           (x->is_by_name
                ? sp_buf_printf(out, "  reached by name, and by programs that use the proxy\n")
                : sp_buf_printf(out, "  reached by programs that use the proxy, not by name%s\n",
                                x->host.is_address ? ""
                                : x->host.is_local ? ": that is the sandbox's own"
                                                   : " at this port"));
}

static bool add_local(const struct sp_host_explained *x, struct sp_buf *out)
{
    return sp_buf_printf(
        out, x->host.is_metadata
                 ? "  refused: clouds give out credentials there; it has to be listed itself\n"
                 : "  refused: not a public address; it has to be listed itself, patterns do not "
                   "count\n");
}

static bool add_unlisted(const struct sp_host_explained *x, struct sp_buf *out)
{
    return sp_buf_printf(out, "  refused: on no list") &&
           (x->remedy == NULL || sp_buf_printf(out, "; %s %s", x->remedy, x->host.text)) &&
           sp_buf_printf(out, "\n") &&
           (!x->policy->asks ||
            sp_buf_printf(out, "  rules (network_rule) and approvers are not considered here\n"));
}

static bool add_standing(const struct sp_host_explained *x, struct sp_buf *out)
{
    switch (x->standing) {
    case SP_STANDING_LISTED:
    case SP_STANDING_LITERAL:
        return add_listed(x, out);
    case SP_STANDING_DENIED:
        return sp_buf_printf(out, "  refused: ") && add_pattern(x, out) &&
               sp_buf_printf(out, " denies it\n");
    case SP_STANDING_LOCAL:
        return add_local(x, out);
    case SP_STANDING_METHOD:
        return sp_buf_printf(out, "  refused: mode `limited` allows plain HTTP only\n");
    case SP_STANDING_MITM:
        return sp_buf_printf(out, "  refused: mode `limited` refuses HTTPS, which it would have to "
                                  "decrypt\n");
    case SP_STANDING_UNLISTED:
        break;
    }
    return add_unlisted(x, out);
}

bool sp_host_explained_add_text(const struct sp_host_explained *x, struct sp_buf *out)
{
    const bool is_v6 = x->host.is_address && strchr(x->host.text, ':') != NULL;

    if (!sp_buf_printf(out, is_v6 ? "[%s]:%u\n" : "%s:%u\n", x->host.text, x->port))
        return false;
    switch (x->network) {
    case SP_HOST_NETWORK_OPEN:
        return sp_buf_printf(out, "  allowed: the network is the host's, and no list is read\n");
    case SP_HOST_NETWORK_MANAGED:
        return add_standing(x, out);
    case SP_HOST_NETWORK_NONE:
        break;
    }
    return sp_buf_printf(out, "  refused: there is no network") &&
           (x->remedy == NULL || sp_buf_printf(out, "; %s %s", x->remedy, x->host.text)) &&
           sp_buf_printf(out, "\n");
}
