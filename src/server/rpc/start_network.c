/* SPDX-License-Identifier: Apache-2.0 */
#include "server/rpc/start_network.h"

#include <errno.h>
#include <stdio.h>

#define CALLBACK_ID_MAX 256 /* bytes of a process id in network/policyRequest */
#define CANNOT          "managed network cannot be enforced on this executor: "

/* ---- members that are checked and then ignored ---- */

static void check_string(const struct sp_params *p, uint32_t t)
{
    if (sp_json_type(p->json, t) != SP_JSON_STRING)
        (void)sp_json_wrong_type(p->json, t, "a string", p->err);
}

static void check_port(const struct sp_params *p, uint32_t t)
{
    int64_t port = 0;

    if (sp_json_type(p->json, t) < SP_JSON_INT || sp_json_type(p->json, t) > SP_JSON_REAL)
        (void)sp_json_wrong_type(p->json, t, "u16", p->err);
    else if (!sp_json_i64(p->json, t, &port) || port < 0 || port > UINT16_MAX)
        (void)sp_fail(p->err, SP_E_INVALID, 0, "invalid number");
}

/* A list that may be absent but not null. Returns its token, or SP_JSON_NONE. */
static uint32_t check_list(const struct sp_params *p, const char *key,
                           void (*check)(const struct sp_params *p, uint32_t t))
{
    struct sp_json *j = p->json;
    const uint32_t list = sp_params_ok(p) ? sp_json_get(j, p->object, key) : SP_JSON_NONE;

    if (list == SP_JSON_NONE)
        return SP_JSON_NONE;
    if (sp_json_type(j, list) != SP_JSON_ARRAY) {
        (void)sp_json_wrong_type(j, list, "a sequence", p->err);
        return SP_JSON_NONE;
    }
    sp_params_each(p, list, t)
        check(p, t);
    return list;
}

static bool has_flag(const struct sp_params *p, const char *key)
{
    const bool is_there = sp_params_ok(p) && sp_json_get(p->json, p->object, key) != SP_JSON_NONE;
    bool ignored = false;

    sp_params_def_bool(p, key, &ignored);
    return is_there;
}

/* ---- networkProxy ---- */

/* domains and unixSockets: a verdict for each pattern or path. Domains may have the verdict `none`,
 * sockets may not. Returns the token of the map, or SP_JSON_NONE. */
static uint32_t read_verdicts(const struct sp_params *p, const char *key, bool is_domains,
                              struct sp_start_network *n)
{
    struct sp_json *j = p->json;
    uint32_t map = SP_JSON_NONE;

    sp_params_opt_object(p, key, &map);
    sp_params_each(p, map, t) {
        const struct sp_str name = sp_json_str(j, t);

        if (!is_domains && n->bad_socket.p == NULL &&
            (name.n == 0 || name.p[0] != '/' || sp_str_has_nul(name)))
            n->bad_socket = name;
        if (sp_json_type(j, t + 1) != SP_JSON_STRING) {
            (void)sp_json_wrong_type(j, t + 1, "string or map", p->err);
            return SP_JSON_NONE;
        }
        const struct sp_str word = sp_json_str(j, t + 1);
        if (!sp_str_eq(word, SP_STR("allow")) && !sp_str_eq(word, SP_STR("deny")) &&
            !(is_domains && sp_str_eq(word, SP_STR("none"))))
            (void)sp_fail(p->err, SP_E_INVALID, 0, "unknown variant `" SP_STR_FMT "`, expected %s",
                          SP_STR_ARG(word),
                          is_domains ? "one of `none`, `allow`, `deny`" : "`allow` or `deny`");
    }
    return map;
}

/* A map that may be absent but not null; *ret is SP_JSON_NONE then. */
static void read_map(const struct sp_params *p, const char *key, uint32_t *ret)
{
    *ret = sp_params_ok(p) ? sp_json_get(p->json, p->object, key) : SP_JSON_NONE;
    if (*ret != SP_JSON_NONE && sp_json_type(p->json, *ret) != SP_JSON_OBJECT)
        (void)sp_json_wrong_type(p->json, *ret, "a map", p->err);
}

static bool has_children(const struct sp_params *p, uint32_t container)
{
    return sp_params_ok(p) && container != SP_JSON_NONE && p->json->tokens[container].children != 0;
}

static void read_proxy(const struct sp_params *launch, struct sp_start_network *n)
{
    struct sp_params p = {launch->json, SP_JSON_NONE, launch->err};
    uint32_t providers;
    struct sp_str mode = {0};
    bool ignored = false;

    sp_params_object(launch, "proxy", &p.object);
    sp_params_bool(&p, "enabled", &n->is_proxy_enabled);
    sp_params_bool(&p, "enableSocks5", &n->has_socks);
    sp_params_bool(&p, "enableSocks5Udp", &ignored); /* no UDP: SOCKS5 refuses the command */
    sp_params_bool(&p, "allowUpstreamProxy", &n->uses_upstream);
    sp_params_bool(&p, "dangerouslyAllowAllUnixSockets", &ignored); /* no effect on Linux */
    sp_params_str(&p, "mode", &mode);
    n->is_limited = sp_str_eq(mode, SP_STR("limited"));
    if (sp_params_ok(&p) && !n->is_limited && !sp_str_eq(mode, SP_STR("full")))
        (void)sp_fail(p.err, SP_E_INVALID, 0,
                      "unknown variant `" SP_STR_FMT "`, expected `limited` or `full`",
                      SP_STR_ARG(mode));
    n->domains = read_verdicts(&p, "domains", true, n);
    (void)read_verdicts(&p, "unixSockets", false, n); /* no effect on Linux */
    sp_params_bool(&p, "allowLocalBinding", &n->allows_local);
    n->reviews_domains = has_children(&p, check_list(&p, "reviewDomains", check_string));
    sp_params_def_bool(&p, "credentialMasking", &n->holds_credentials);
    read_map(&p, "credentialProviders", &providers);
    sp_params_each(&p, providers, t)
        if (sp_json_type(p.json, t + 1) != SP_JSON_OBJECT)
            (void)sp_json_wrong_type(p.json, t + 1, "a map", p.err);
    n->holds_credentials = n->holds_credentials || has_children(&p, providers);
}

void sp_start_network_read(const struct sp_params *params, struct sp_start_network *ret)
{
    static const char *const audit_names[] = {"conversationId", "appVersion", "userAccountId",
                                              "authMode",       "originator", "userEmail",
                                              "terminalType",   "model",      "slug"};
    struct sp_params facts = {params->json, SP_JSON_NONE, params->err};
    struct sp_params launch = facts;
    struct sp_params audit = facts;
    struct sp_str ignored = {0};

    ret->domains = SP_JSON_NONE;
    sp_params_def_bool(params, "enforceManagedNetwork", &ret->is_enforced);
    sp_params_opt_object(params, "managedNetwork", &facts.object);
    if (facts.object != SP_JSON_NONE) {
        ret->has_facts |= check_list(&facts, "loopbackPorts", check_port) != SP_JSON_NONE;
        ret->has_facts |= has_flag(&facts, "allowLocalBinding");
        ret->has_facts |= check_list(&facts, "allowUnixSockets", check_string) != SP_JSON_NONE;
        ret->has_facts |= has_flag(&facts, "dangerouslyAllowAllUnixSockets");
    }
    sp_params_opt_object(params, "networkProxy", &launch.object);
    if (launch.object == SP_JSON_NONE)
        return;
    ret->has_proxy = true;
    read_proxy(&launch, ret);
    read_map(&launch, "auditMetadata", &audit.object);
    for (size_t i = 0;
         audit.object != SP_JSON_NONE && i < sizeof audit_names / sizeof audit_names[0]; i++)
        sp_params_opt_str(&audit, audit_names[i], &ignored);
    sp_params_opt_str(&launch, "environmentId", &ignored);
    sp_params_opt_str(&launch, "executionId", &ignored);
    const uint32_t timeout = sp_json_get(launch.json, launch.object, "policyDecisionTimeoutMs");
    ret->has_timeout =
        timeout != SP_JSON_NONE && sp_json_type(launch.json, timeout) != SP_JSON_NULL;
    sp_params_opt_u64(&launch, "policyDecisionTimeoutMs", UINT64_MAX, &ret->timeout_ms);
}

/* ---- refusals ---- */

/* Ports of patterns are dropped, as in Codex. */
static int make_policy(struct sp_start_network *n, struct sp_json *j, struct sp_err *e)
{
    struct sp_network_policy *p = n->policy = sp_network_policy_new();
    struct sp_err why = {0};

    if (p == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "keep a network policy");
    p->is_limited = n->is_limited;
    p->has_socks = n->has_socks;
    p->allows_local = n->allows_local;
    p->uses_upstream = n->uses_upstream;
    if (n->domains == SP_JSON_NONE)
        return 0;
    sp_json_each(j, n->domains, t) {
        const struct sp_str pattern = sp_json_str(j, t);
        const struct sp_str word = sp_json_str(j, t + 1);
        const enum sp_domain_word verdict = sp_str_eq(word, SP_STR("allow"))  ? SP_DOMAIN_ALLOW
                                            : sp_str_eq(word, SP_STR("deny")) ? SP_DOMAIN_DENY
                                                                              : SP_DOMAIN_NONE;

        if (pattern.n == 0)
            (void)sp_fail(&why, SP_E_INVALID, 0, "domain pattern is empty");
        else if (sp_network_policy_add(p, pattern, verdict, false, false, &why) == 0)
            continue;
        if (why.code == SP_E_INVALID)
            return sp_fail(e, SP_E_INVALID, 0, "invalid network proxy config: %s", why.msg);
        *e = why;
        return -(int)e->code;
    }
    return 0;
}

int sp_start_network_judge(struct sp_start_network *n, struct sp_json *j, struct sp_str process_id,
                           struct sp_err *e)
{
    if (n->has_timeout && n->timeout_ms == 0)
        return sp_fail(e, SP_E_INVALID, 0,
                       "network policy decision callback timeout must be nonzero");
    if (n->has_timeout && (process_id.n == 0 || process_id.n > CALLBACK_ID_MAX))
        return sp_fail(e, SP_E_INVALID, 0,
                       "callback-enabled process ID must be non-empty and at most %d bytes",
                       CALLBACK_ID_MAX);
    if (!n->has_proxy)
        return 0;
    if (!n->is_proxy_enabled)
        return sp_fail(e, SP_E_INVALID, 0,
                       "invalid network proxy config: executor-local network proxy launch requires "
                       "an enabled proxy");
    if (make_policy(n, j, e) < 0)
        return -(int)e->code;
    if (n->bad_socket.p != NULL)
        return sp_fail(e, SP_E_INVALID, 0,
                       "invalid network proxy config: `" SP_STR_FMT
                       "` is no absolute path of a socket",
                       SP_STR_ARG(n->bad_socket));
    return 0;
}

int sp_start_network_check(const struct sp_start_network *n, bool has_sandbox, struct sp_err *e)
{
    if (n->has_facts)
        return sp_fail(e, SP_E_INVALID, 0,
                       CANNOT "its sandbox cannot open the way to one proxy only (managedNetwork)");
    if (n->reviews_domains)
        return sp_fail(e, SP_E_INVALID, 0,
                       CANNOT "it does not review domains (reviewDomains), as its capabilities "
                              "say");
    if (n->holds_credentials)
        return sp_fail(e, SP_E_INVALID, 0,
                       CANNOT "it does not hold credentials (credentialMasking, "
                              "credentialProviders), as its capabilities say");
    if (n->has_proxy && !has_sandbox)
        return sp_fail(e, SP_E_INVALID, 0, CANNOT "networkProxy needs a sandbox");
    return 0;
}

int sp_start_network_apply(struct sp_start_network *n, struct sp_profile *profile, struct sp_err *e)
{
    const bool is_confined = profile->kind != SP_PROFILE_DISABLED;

    if (n->has_proxy && !is_confined)
        return sp_start_network_check(n, false, e);
    if (is_confined && (n->has_proxy || n->is_enforced))
        profile->has_network = false;
    sp_network_policy_free(profile->managed);
    profile->managed = n->policy;
    n->policy = NULL;
    return 0;
}
