/* SPDX-License-Identifier: Apache-2.0 */
#include "server/rpc/start_network.h"

#define MAX_CALLBACK_ID 256
#define MAX_PORT        65535

/* ---- members that are checked and then ignored ---- */

static void check_string(const struct sp_params *p, uint32_t t)
{
    if (sp_json_type(p->json, t) != SP_JSON_STRING)
        (void)sp_json_wrong_type(p->json, t, "a string", p->err);
}

static void check_map(const struct sp_params *p, uint32_t t)
{
    if (sp_json_type(p->json, t) != SP_JSON_OBJECT)
        (void)sp_json_wrong_type(p->json, t, "a map", p->err);
}

static void check_port(const struct sp_params *p, uint32_t t)
{
    int64_t port = 0;

    if (sp_json_type(p->json, t) < SP_JSON_INT || sp_json_type(p->json, t) > SP_JSON_REAL)
        (void)sp_json_wrong_type(p->json, t, "u16", p->err);
    else if (!sp_json_i64(p->json, t, &port) || port < 0 || port > MAX_PORT)
        (void)sp_fail(p->err, SP_E_INVALID, 0, "invalid number");
}

/* A list that may be absent but not null. *ret_is: it is there. */
static void check_list(const struct sp_params *p, const char *key,
                       void (*check)(const struct sp_params *p, uint32_t t), bool *ret_is)
{
    struct sp_json *j = p->json;
    const uint32_t list = sp_params_ok(p) ? sp_json_get(j, p->object, key) : SP_JSON_NONE;

    if (list == SP_JSON_NONE)
        return;
    if (sp_json_type(j, list) != SP_JSON_ARRAY) {
        (void)sp_json_wrong_type(j, list, "a sequence", p->err);
        return;
    }
    *ret_is = true;
    for (uint32_t t = sp_json_first(j, list); sp_params_ok(p) && t != SP_JSON_NONE;
         t = sp_json_next(j, list, t))
        check(p, t);
}

static void check_flag(const struct sp_params *p, const char *key, bool *ret_is)
{
    bool ignored = false;

    *ret_is = *ret_is || (sp_params_ok(p) && sp_json_get(p->json, p->object, key) != SP_JSON_NONE);
    sp_params_def_bool(p, key, &ignored);
}

/* ---- managedNetwork: facts about a proxy that runs already ---- */

static void read_facts(const struct sp_params *params, struct sp_start_network *n)
{
    struct sp_params p = {params->json, SP_JSON_NONE, params->err};

    sp_params_opt_object(params, "managedNetwork", &p.object);
    if (p.object == SP_JSON_NONE)
        return;
    check_list(&p, "loopbackPorts", check_port, &n->has_facts);
    check_flag(&p, "allowLocalBinding", &n->has_facts);
    check_list(&p, "allowUnixSockets", check_string, &n->has_facts);
    check_flag(&p, "dangerouslyAllowAllUnixSockets", &n->has_facts);
}

/* ---- networkProxy: a proxy to be started ---- */

/* Domains may have the verdict `none`, sockets may not. */
static void check_verdict(const struct sp_params *p, uint32_t t, bool may_be_none)
{
    if (sp_json_type(p->json, t) != SP_JSON_STRING) {
        (void)sp_json_wrong_type(p->json, t, "string or map", p->err);
        return;
    }
    const struct sp_str word = sp_json_str(p->json, t);
    if (!sp_str_eq(word, SP_STR("allow")) && !sp_str_eq(word, SP_STR("deny")) &&
        !(may_be_none && sp_str_eq(word, SP_STR("none"))))
        (void)sp_fail(p->err, SP_E_INVALID, 0, "unknown variant `" SP_STR_FMT "`, expected %s",
                      SP_STR_ARG(word),
                      may_be_none ? "one of `none`, `allow`, `deny`" : "`allow` or `deny`");
}

/* domains and unixSockets: a verdict for each pattern or path. */
static void read_verdicts(const struct sp_params *p, const char *key, bool is_domains,
                          struct sp_start_network *n)
{
    struct sp_json *j = p->json;
    uint32_t map = SP_JSON_NONE;

    sp_params_opt_object(p, key, &map);
    if (map == SP_JSON_NONE)
        return;
    for (uint32_t t = sp_json_first(j, map); sp_params_ok(p) && t != SP_JSON_NONE;
         t = sp_json_next(j, map, t)) {
        const struct sp_str name = sp_json_str(j, t);

        if (is_domains)
            n->has_empty_domain = n->has_empty_domain || name.n == 0;
        else if (n->bad_socket.p == NULL &&
                 (name.n == 0 || name.p[0] != '/' || sp_str_has_nul(name)))
            n->bad_socket = name;
        check_verdict(p, t + 1, is_domains);
    }
}

static void check_mode(const struct sp_params *p)
{
    struct sp_str mode = {0};

    sp_params_str(p, "mode", &mode);
    if (sp_params_ok(p) && !sp_str_eq(mode, SP_STR("limited")) && !sp_str_eq(mode, SP_STR("full")))
        (void)sp_fail(p->err, SP_E_INVALID, 0,
                      "unknown variant `" SP_STR_FMT "`, expected `limited` or `full`",
                      SP_STR_ARG(mode));
}

static void check_providers(const struct sp_params *p)
{
    const uint32_t map =
        sp_params_ok(p) ? sp_json_get(p->json, p->object, "credentialProviders") : SP_JSON_NONE;

    if (map == SP_JSON_NONE)
        return;
    check_map(p, map);
    if (!sp_params_ok(p))
        return;
    for (uint32_t t = sp_json_first(p->json, map); sp_params_ok(p) && t != SP_JSON_NONE;
         t = sp_json_next(p->json, map, t))
        check_map(p, t + 1);
}

static void read_proxy(const struct sp_params *launch, struct sp_start_network *n)
{
    static const char *const flags[] = {"enableSocks5", "enableSocks5Udp", "allowUpstreamProxy",
                                        "dangerouslyAllowAllUnixSockets"};
    struct sp_params p = {launch->json, SP_JSON_NONE, launch->err};
    bool ignored = false;

    sp_params_object(launch, "proxy", &p.object);
    sp_params_bool(&p, "enabled", &n->is_proxy_enabled);
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        sp_params_bool(&p, flags[i], &ignored);
    check_mode(&p);
    read_verdicts(&p, "domains", true, n);
    read_verdicts(&p, "unixSockets", false, n);
    sp_params_bool(&p, "allowLocalBinding", &ignored);
    check_list(&p, "reviewDomains", check_string, &ignored);
    sp_params_def_bool(&p, "credentialMasking", &ignored);
    check_providers(&p);
}

static void check_audit(const struct sp_params *launch)
{
    static const char *const names[] = {"conversationId", "appVersion", "userAccountId",
                                        "authMode",       "originator", "userEmail",
                                        "terminalType",   "model",      "slug"};
    struct sp_params p = *launch;
    struct sp_str ignored = {0};

    p.object =
        sp_params_ok(launch) ? sp_json_get(p.json, launch->object, "auditMetadata") : SP_JSON_NONE;
    if (p.object == SP_JSON_NONE)
        return;
    check_map(&p, p.object);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        sp_params_opt_str(&p, names[i], &ignored);
}

void sp_start_network_read(const struct sp_params *params, struct sp_start_network *ret)
{
    struct sp_params launch = {params->json, SP_JSON_NONE, params->err};
    struct sp_str ignored = {0};

    sp_params_def_bool(params, "enforceManagedNetwork", &ret->is_enforced);
    read_facts(params, ret);
    sp_params_opt_object(params, "networkProxy", &launch.object);
    if (launch.object == SP_JSON_NONE)
        return;
    ret->has_proxy = true;
    read_proxy(&launch, ret);
    check_audit(&launch);
    sp_params_opt_str(&launch, "environmentId", &ignored);
    sp_params_opt_str(&launch, "executionId", &ignored);
    const uint32_t timeout = sp_json_get(launch.json, launch.object, "policyDecisionTimeoutMs");
    ret->has_timeout =
        timeout != SP_JSON_NONE && sp_json_type(launch.json, timeout) != SP_JSON_NULL;
    sp_params_opt_u64(&launch, "policyDecisionTimeoutMs", UINT64_MAX, &ret->timeout_ms);
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
