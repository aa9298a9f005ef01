/* SPDX-License-Identifier: Apache-2.0 */
#include "server/rpc/start_network.h"

#define MAX_CALLBACK_ID 256
#define MAX_PORT        65535

/* ---- pieces ---- */

static int need_string(struct sp_json *j, uint32_t t, struct sp_err *e)
{
    return sp_json_type(j, t) == SP_JSON_STRING ? 0 : sp_json_wrong_type(j, t, "a string", e);
}

static int need_object(struct sp_json *j, uint32_t t, struct sp_err *e)
{
    return sp_json_type(j, t) == SP_JSON_OBJECT ? 0 : sp_json_wrong_type(j, t, "a map", e);
}

static int need_port(struct sp_json *j, uint32_t t, struct sp_err *e)
{
    int64_t port = 0;

    if (sp_json_type(j, t) < SP_JSON_INT || sp_json_type(j, t) > SP_JSON_REAL)
        return sp_json_wrong_type(j, t, "u16", e);
    if (!sp_json_i64(j, t, &port) || port < 0 || port > MAX_PORT)
        return sp_fail(e, SP_E_INVALID, 0, "invalid number");
    return 0;
}

/* A list that may be absent but not null. *ret_is: it is there. */
static int read_list(struct sp_json *j, uint32_t object, const char *key,
                     int (*check)(struct sp_json *j, uint32_t t, struct sp_err *e), bool *ret_is,
                     struct sp_err *e)
{
    const uint32_t list = sp_json_get(j, object, key);
    int r = 0;

    if (list == SP_JSON_NONE)
        return 0;
    if (sp_json_type(j, list) != SP_JSON_ARRAY)
        return sp_json_wrong_type(j, list, "a sequence", e);
    *ret_is = true;
    for (uint32_t t = sp_json_first(j, list); r == 0 && t != SP_JSON_NONE;
         t = sp_json_next(j, list, t))
        r = check(j, t, e);
    return r;
}

static int read_flag(struct sp_json *j, uint32_t object, const char *key, bool *ret_is,
                     struct sp_err *e)
{
    bool ignored = false;

    *ret_is = *ret_is || sp_json_get(j, object, key) != SP_JSON_NONE;
    return sp_json_def_bool(j, object, key, &ignored, e);
}

/* ---- facts about a proxy that runs already ---- */

static int read_facts(struct sp_json *j, uint32_t params, struct sp_start_network *n,
                      struct sp_err *e)
{
    uint32_t facts = SP_JSON_NONE;
    int r = sp_json_opt_object(j, params, "managedNetwork", &facts, e);

    if (r < 0 || facts == SP_JSON_NONE)
        return r;
    r = read_list(j, facts, "loopbackPorts", need_port, &n->has_facts, e);
    if (r == 0)
        r = read_flag(j, facts, "allowLocalBinding", &n->has_facts, e);
    if (r == 0)
        r = read_list(j, facts, "allowUnixSockets", need_string, &n->has_facts, e);
    if (r == 0)
        r = read_flag(j, facts, "dangerouslyAllowAllUnixSockets", &n->has_facts, e);
    return r;
}

/* ---- a proxy to be started ---- */

static int read_verdict(struct sp_json *j, uint32_t t, bool may_be_none, struct sp_err *e)
{
    if (sp_json_type(j, t) != SP_JSON_STRING)
        return sp_json_wrong_type(j, t, "string or map", e);
    const struct sp_str word = sp_json_str(j, t);
    if (sp_str_eq(word, SP_STR("allow")) || sp_str_eq(word, SP_STR("deny")) ||
        (may_be_none && sp_str_eq(word, SP_STR("none"))))
        return 0;
    return sp_fail(e, SP_E_INVALID, 0, "unknown variant `" SP_STR_FMT "`, expected %s",
                   SP_STR_ARG(word),
                   may_be_none ? "one of `none`, `allow`, `deny`" : "`allow` or `deny`");
}

static int read_domains(struct sp_json *j, uint32_t proxy, struct sp_start_network *n,
                        struct sp_err *e)
{
    uint32_t map = SP_JSON_NONE;
    int r = sp_json_opt_object(j, proxy, "domains", &map, e);

    if (r < 0 || map == SP_JSON_NONE)
        return r;
    for (uint32_t key = sp_json_first(j, map); r == 0 && key != SP_JSON_NONE;
         key = sp_json_next(j, map, key)) {
        n->has_empty_domain = n->has_empty_domain || sp_json_str(j, key).n == 0;
        r = read_verdict(j, key + 1, true, e);
    }
    return r;
}

static bool is_socket_path(struct sp_str s)
{
    return s.n != 0 && s.p[0] == '/' && !sp_str_has_nul(s);
}

static int read_sockets(struct sp_json *j, uint32_t proxy, struct sp_start_network *n,
                        struct sp_err *e)
{
    uint32_t map = SP_JSON_NONE;
    int r = sp_json_opt_object(j, proxy, "unixSockets", &map, e);

    if (r < 0 || map == SP_JSON_NONE)
        return r;
    for (uint32_t key = sp_json_first(j, map); r == 0 && key != SP_JSON_NONE;
         key = sp_json_next(j, map, key)) {
        if (n->bad_socket.p == NULL && !is_socket_path(sp_json_str(j, key)))
            n->bad_socket = sp_json_str(j, key);
        r = read_verdict(j, key + 1, false, e);
    }
    return r;
}

static int read_mode(struct sp_json *j, uint32_t proxy, struct sp_err *e)
{
    struct sp_str mode;
    const int r = sp_json_need_str(j, proxy, "mode", &mode, e);

    if (r < 0 || sp_str_eq(mode, SP_STR("limited")) || sp_str_eq(mode, SP_STR("full")))
        return r;
    return sp_fail(e, SP_E_INVALID, 0,
                   "unknown variant `" SP_STR_FMT "`, expected `limited` or `full`",
                   SP_STR_ARG(mode));
}

static int read_providers(struct sp_json *j, uint32_t proxy, struct sp_err *e)
{
    const uint32_t map = sp_json_get(j, proxy, "credentialProviders");
    int r = map == SP_JSON_NONE ? 0 : need_object(j, map, e);

    if (r < 0 || map == SP_JSON_NONE)
        return r;
    for (uint32_t key = sp_json_first(j, map); r == 0 && key != SP_JSON_NONE;
         key = sp_json_next(j, map, key))
        r = need_object(j, key + 1, e);
    return r;
}

static int read_proxy(struct sp_json *j, uint32_t launch, struct sp_start_network *n,
                      struct sp_err *e)
{
    static const char *const flags[] = {"enableSocks5", "enableSocks5Udp", "allowUpstreamProxy",
                                        "dangerouslyAllowAllUnixSockets"};
    uint32_t proxy = SP_JSON_NONE;
    bool ignored = false;
    int r = sp_json_need_object(j, launch, "proxy", &proxy, e);

    if (r == 0)
        r = sp_json_need_bool(j, proxy, "enabled", &n->is_proxy_enabled, e);
    for (size_t i = 0; r == 0 && i < sizeof flags / sizeof flags[0]; i++)
        r = sp_json_need_bool(j, proxy, flags[i], &ignored, e);
    if (r == 0)
        r = read_mode(j, proxy, e);
    if (r == 0)
        r = read_domains(j, proxy, n, e);
    if (r == 0)
        r = read_sockets(j, proxy, n, e);
    if (r == 0)
        r = sp_json_need_bool(j, proxy, "allowLocalBinding", &ignored, e);
    if (r == 0)
        r = read_list(j, proxy, "reviewDomains", need_string, &ignored, e);
    if (r == 0)
        r = sp_json_def_bool(j, proxy, "credentialMasking", &ignored, e);
    return r < 0 ? r : read_providers(j, proxy, e);
}

static int read_audit(struct sp_json *j, uint32_t launch, struct sp_err *e)
{
    static const char *const names[] = {"conversationId", "appVersion", "userAccountId",
                                        "authMode",       "originator", "userEmail",
                                        "terminalType",   "model",      "slug"};
    const uint32_t audit = sp_json_get(j, launch, "auditMetadata");
    struct sp_str ignored = {0};
    int r = audit == SP_JSON_NONE ? 0 : need_object(j, audit, e);

    for (size_t i = 0; r == 0 && audit != SP_JSON_NONE && i < sizeof names / sizeof names[0]; i++)
        r = sp_json_opt_str(j, audit, names[i], &ignored, e);
    return r;
}

static int read_launch(struct sp_json *j, uint32_t params, struct sp_start_network *n,
                       struct sp_err *e)
{
    uint32_t launch = SP_JSON_NONE;
    struct sp_str ignored = {0};
    int r = sp_json_opt_object(j, params, "networkProxy", &launch, e);

    if (r < 0 || launch == SP_JSON_NONE)
        return r;
    n->has_proxy = true;
    r = read_proxy(j, launch, n, e);
    if (r == 0)
        r = read_audit(j, launch, e);
    if (r == 0)
        r = sp_json_opt_str(j, launch, "environmentId", &ignored, e);
    if (r == 0)
        r = sp_json_opt_str(j, launch, "executionId", &ignored, e);
    const uint32_t timeout = sp_json_get(j, launch, "policyDecisionTimeoutMs");
    n->has_timeout = timeout != SP_JSON_NONE && sp_json_type(j, timeout) != SP_JSON_NULL;
    if (r == 0)
        r = sp_json_opt_u64(j, launch, "policyDecisionTimeoutMs", UINT64_MAX, &n->timeout_ms, e);
    return r;
}

int sp_start_network_read(struct sp_json *j, uint32_t params, struct sp_start_network *ret,
                          struct sp_err *e)
{
    int r = sp_json_def_bool(j, params, "enforceManagedNetwork", &ret->is_enforced, e);

    if (r == 0)
        r = read_facts(j, params, ret, e);
    return r < 0 ? r : read_launch(j, params, ret, e);
}

/* ---- judging ---- */

int sp_start_network_judge(const struct sp_start_network *n, struct sp_str process_id,
                           struct sp_err *e)
{
    if (n->has_timeout && n->timeout_ms == 0)
        return sp_fail(e, SP_E_INVALID, 0,
                       "network policy decision callback timeout must be nonzero");
    if (n->has_timeout && (process_id.n == 0 || process_id.n > MAX_CALLBACK_ID))
        return sp_fail(e, SP_E_INVALID, 0,
                       "callback-enabled process ID must be non-empty and at most %d bytes",
                       MAX_CALLBACK_ID);
    if (n->has_proxy && !n->is_proxy_enabled)
        return sp_fail(e, SP_E_INVALID, 0,
                       "invalid network proxy config: executor-local network proxy launch requires "
                       "an enabled proxy");
    if (n->has_empty_domain)
        return sp_fail(e, SP_E_INVALID, 0, "invalid network proxy config: domain pattern is empty");
    if (n->bad_socket.p != NULL)
        return sp_fail(e, SP_E_INVALID, 0,
                       "invalid network proxy config: `" SP_STR_FMT
                       "` is no absolute path of a socket",
                       SP_STR_ARG(n->bad_socket));
    return 0;
}

int sp_start_network_refuse(const struct sp_start_network *n, struct sp_err *e)
{
    if (n->has_proxy)
        return sp_fail(e, SP_E_INVALID, 0,
                       "managed network cannot be enforced on this executor: it starts no proxy "
                       "(networkProxy), as its capabilities say");
    if (n->is_enforced)
        return sp_fail(e, SP_E_INVALID, 0,
                       "managed network cannot be enforced on this executor: it has no proxy to "
                       "force traffic through (enforceManagedNetwork)");
    if (n->has_facts)
        return sp_fail(e, SP_E_INVALID, 0,
                       "managed network cannot be enforced on this executor: its sandbox lets no "
                       "one proxy through (managedNetwork)");
    return 0;
}
