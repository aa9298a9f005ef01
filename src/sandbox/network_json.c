/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/network_json.h"

#include <errno.h>

#include "sandbox/policy_json.h"

static const struct sp_word domain_words[] = {
    {"allow", SP_DOMAIN_ALLOW, false},
    {"deny", SP_DOMAIN_DENY, false},
    {"none", SP_DOMAIN_NONE, false},
    {0},
};

static const struct sp_word mode_words[] = {{"full", false, false}, {"limited", true, false}, {0}};
static const struct sp_word unresolved_words[] = {
    {"pass", false, false}, {"deny", true, false}, {0}};

static const struct sp_word members[] = {
    {.name = "mode"},
    {.name = "domains"},
    {.name = "ports"},
    {.name = "ask"},
    {.name = "allow_local"},
    {.name = "enable_socks5"},
    {.name = "check_sni"},
    {.name = "proxy_env"},
    {.name = "allow_upstream_proxy"},
    {.name = "upstream_unresolved"},
    {0},
};

/* ---- reading ---- */

/* Of two members that mean the same pattern the stricter word counts. */
static int read_domains(struct sp_json *j, uint32_t object, struct sp_network_policy *p,
                        struct sp_err *e)
{
    int r = 0;

    if (sp_json_type(j, object) != SP_JSON_OBJECT)
        return sp_json_wrong_type(j, object, "a map", e);
    sp_json_each(j, object, key) {
        int word = SP_DOMAIN_NONE;

        if ((r = sp_word_read(j, key + 1, domain_words, &word, e)) < 0 ||
            (r = sp_network_policy_add(p, sp_json_str(j, key), (enum sp_domain_word)word, true,
                                       false, e)) < 0)
            return r;
    }
    return 0;
}

static int read_ports(struct sp_json *j, uint32_t array, struct sp_network_policy *p,
                      struct sp_err *e)
{
    int r = 0;

    if (sp_json_type(j, array) != SP_JSON_ARRAY)
        return sp_json_wrong_type(j, array, "a sequence", e);
    p->port_count = 0;
    sp_json_each(j, array, t) {
        int64_t port = 0;

        if (!sp_json_i64(j, t, &port) || port < 0)
            return sp_json_wrong_type(j, t, "a port", e);
        if ((r = sp_network_policy_add_port(p, (uint64_t)port, e)) < 0)
            return r;
    }
    return 0;
}

static int read_members(struct sp_json *j, uint32_t object, struct sp_network_policy *p,
                        struct sp_err *e)
{
    int is_limited = false;
    int is_strict = false;
    int r = sp_policy_check_members(j, object, members, e);

    if (r < 0)
        return r;
    const uint32_t mode = sp_json_get(j, object, "mode");
    const uint32_t unresolved = sp_json_get(j, object, "upstream_unresolved");
    const uint32_t domains = sp_json_get(j, object, "domains");
    const uint32_t ports = sp_json_get(j, object, "ports");
    if ((mode != SP_JSON_NONE && (r = sp_word_read(j, mode, mode_words, &is_limited, e)) < 0) ||
        (unresolved != SP_JSON_NONE &&
         (r = sp_word_read(j, unresolved, unresolved_words, &is_strict, e)) < 0) ||
        (domains != SP_JSON_NONE && (r = read_domains(j, domains, p, e)) < 0) ||
        (ports != SP_JSON_NONE && (r = read_ports(j, ports, p, e)) < 0) ||
        (r = sp_json_def_bool(j, object, "ask", &p->asks, e)) < 0 ||
        (r = sp_json_def_bool(j, object, "allow_local", &p->allows_local, e)) < 0 ||
        (r = sp_json_def_bool(j, object, "enable_socks5", &p->has_socks, e)) < 0 ||
        (r = sp_json_def_bool(j, object, "check_sni", &p->checks_sni, e)) < 0 ||
        (r = sp_json_def_bool(j, object, "proxy_env", &p->sets_env, e)) < 0 ||
        (r = sp_json_def_bool(j, object, "allow_upstream_proxy", &p->uses_upstream, e)) < 0)
        return r;
    p->is_limited = is_limited;
    p->upstream_strict = is_strict;
    return 0;
}

int sp_network_policy_read(struct sp_json *j, uint32_t object, struct sp_network_policy **ret,
                           struct sp_err *e)
{
    if (sp_json_type(j, object) != SP_JSON_OBJECT)
        return sp_json_wrong_type(j, object, "a map", e);
    struct sp_network_policy *p = sp_network_policy_new();
    if (p == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read a sandbox policy");
    const int r = read_members(j, object, p, e);
    if (r < 0)
        sp_network_policy_free(p);
    else
        *ret = p;
    return r;
}

/* ---- writing ---- */

static bool add_flag(struct sp_buf *out, const char *name, bool value)
{
    return sp_buf_printf(out, ",\"%s\":%s", name, value ? "true" : "false");
}

/* Patterns and words are ASCII without characters that JSON escapes. */
bool sp_network_policy_write(const struct sp_network_policy *p, struct sp_buf *out)
{
    bool ok = sp_buf_printf(out, "{\"mode\":\"%s\",\"domains\":{",
                            sp_word_name(mode_words, p->is_limited));

    for (size_t i = 0; ok && i < p->count; i++)
        ok = sp_buf_printf(out, i == 0 ? "\"" : ",\"") && sp_domain_add_text(&p->domains[i], out) &&
             sp_buf_printf(out, "\":\"%s\"", sp_word_name(domain_words, (int)p->domains[i].word));
    ok = ok && sp_buf_printf(out, "},\"ports\":[");
    for (size_t i = 0; ok && i < p->port_count; i++)
        ok = sp_buf_printf(out, "%s%u", i == 0 ? "" : ",", p->ports[i]);
    return ok && sp_buf_printf(out, "]") && add_flag(out, "ask", p->asks) &&
           add_flag(out, "allow_local", p->allows_local) &&
           add_flag(out, "enable_socks5", p->has_socks) &&
           add_flag(out, "check_sni", p->checks_sni) && add_flag(out, "proxy_env", p->sets_env) &&
           add_flag(out, "allow_upstream_proxy", p->uses_upstream) &&
           sp_buf_printf(out, ",\"upstream_unresolved\":\"%s\"}",
                         sp_word_name(unresolved_words, p->upstream_strict));
}
