/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config_network.h"

#include "base/auto.h"

static const char *const domain_words[] = {
    [SP_DOMAIN_NONE] = "none", [SP_DOMAIN_ALLOW] = "allow", [SP_DOMAIN_DENY] = "deny"};

/* Adds the position in the file to an error of src/sandbox. */
static int refuse_at(const struct sp_config_loading *l, const struct sp_toml_value *v, int r)
{
    const struct sp_err why = r == -SP_E_INVALID && l->e != NULL ? *l->e : (struct sp_err){0};

    return why.code == SP_E_NONE ? r : sp_toml_refuse_key(v, l->e, "%s", why.msg);
}

/* ---- keys that are more than a word ---- */

/* Of two spellings of one pattern in the same table the stricter word counts. */
static int read_domains(struct sp_config_loading *l, const struct sp_toml_value *table,
                        struct sp_network_policy *ret)
{
    int r = 0;

    for (const struct sp_toml_value *v = table->first; r == 0 && v != NULL; v = v->next) {
        size_t word = 0;

        while (word < sizeof domain_words / sizeof domain_words[0] &&
               !(v->type == SP_TOML_STRING && sp_str_eq(v->text, sp_str_of(domain_words[word]))))
            word++;
        if (word == sizeof domain_words / sizeof domain_words[0])
            return sp_toml_refuse(v, l->e, "domain `%.60s`: expected `allow`, `deny` or `none`",
                                  v->key.p);
        r = refuse_at(
            l, v, sp_network_policy_add(ret, v->key, (enum sp_domain_word)word, true, false, l->e));
    }
    return r;
}

/* An entry replaces the inherited one of the same pattern. */
static int add_domains(struct sp_config_loading *l, const struct sp_toml_value *table,
                       struct sp_network_policy *ret)
{
    struct sp_network_policy own = {0};
    auto_buf struct sp_buf text = {0};
    int r = read_domains(l, table, &own);

    for (size_t i = 0; r == 0 && i < own.count; i++) {
        text.len = 0;
        r = sp_domain_add_text(&own.domains[i], &text)
                ? refuse_at(l, table,
                            sp_network_policy_add(ret, sp_buf_str(&text), own.domains[i].word, true,
                                                  true, l->e))
                : sp_config_no_memory(l->e);
    }
    free(own.domains);
    return r;
}

/* The list replaces the inherited one. */
static int set_ports(struct sp_config_loading *l, const struct sp_toml_value *array,
                     struct sp_network_policy *ret)
{
    int r = 0;

    if (array->type != SP_TOML_ARRAY)
        return sp_toml_refuse(array, l->e, "`ports`: expected an array of integers, not %s",
                              sp_toml_type_name(array->type));
    ret->port_count = 0;
    for (const struct sp_toml_value *v = array->first; r == 0 && v != NULL; v = v->next) {
        if (v->type != SP_TOML_INTEGER || v->integer < 1 || v->integer > UINT16_MAX)
            return sp_toml_refuse(v, l->e, "`ports`: expected an integer from 1 to %d", UINT16_MAX);
        r = refuse_at(l, array, sp_network_policy_add_port(ret, (uint64_t)v->integer, l->e));
    }
    return r;
}

/* ---- the table ---- */

static int copy_policy(const struct sp_config_network *parent, struct sp_network_policy **ret,
                       struct sp_err *e)
{
    *ret = parent != NULL && parent->policy != NULL ? sp_network_policy_copy(parent->policy)
                                                    : sp_network_policy_new();
    return *ret != NULL ? 0 : sp_config_no_memory(e);
}

static int check_switches(const struct sp_config_loading *l, const struct sp_toml_value *table,
                          const struct sp_config_network *n)
{
    const struct sp_toml_value *enabled = sp_toml_get(table, SP_STR("enabled"));
    const struct sp_toml_value *managed = sp_toml_get(table, SP_STR("managed"));

    if (enabled != NULL && managed != NULL && !enabled->boolean && managed->boolean)
        return sp_toml_refuse_key(managed, l->e,
                                  "`managed = true` contradicts `enabled = false`: leave one of "
                                  "them out");
    if (n->is_enabled && n->says_managed && !n->is_managed && n->has_settings)
        return sp_toml_refuse_key(table, l->e,
                                  "`managed = false` gives commands the host's network, but other "
                                  "keys of the profile restrict it: leave `managed` out, or them");
    return 0;
}

int sp_config_network_read(struct sp_config_loading *l, const struct sp_toml_value *table,
                           const struct sp_config_network *parent, struct sp_config_network *ret)
{
    struct sp_config_raw_network raw = {0};
    struct sp_network_policy *p;
    int r;

    if (parent != NULL)
        *ret = *parent;
    ret->policy = NULL;
    r = copy_policy(parent, &p, l->e);
    if (r < 0)
        return r;
    ret->policy = p;
    if (table == NULL)
        return 0;
    raw = (struct sp_config_raw_network){
        .is_enabled = ret->is_enabled,
        .is_managed = ret->is_managed,
        .asks = p->asks,
        .allows_local = p->allows_local,
        .has_socks = p->has_socks,
        .checks_sni = p->checks_sni,
        .sets_env = p->sets_env,
        .uses_upstream = p->uses_upstream,
    };
    r = sp_config_read_section(l, "permissions.NAME.network", table, &raw);
    if (r == 0 && raw.domains != NULL)
        r = add_domains(l, raw.domains, p);
    if (r == 0 && raw.ports != NULL)
        r = set_ports(l, raw.ports, p);
    if (r < 0)
        return r;
    if (raw.mode != NULL)
        p->is_limited = strcmp(raw.mode, "limited") == 0;
    if (raw.upstream_unresolved != NULL)
        p->upstream_strict = strcmp(raw.upstream_unresolved, "deny") == 0;
    p->asks = raw.asks;
    p->allows_local = raw.allows_local;
    p->has_socks = raw.has_socks;
    p->checks_sni = raw.checks_sni;
    p->sets_env = raw.sets_env;
    p->uses_upstream = raw.uses_upstream;

    const bool has_enabled = sp_toml_get(table, SP_STR("enabled")) != NULL;
    const bool has_managed = sp_toml_get(table, SP_STR("managed")) != NULL;
    const bool has_settings = table->count > (uint32_t)has_enabled + has_managed;
    ret->is_managed = raw.is_managed;
    ret->says_managed |= has_managed;
    ret->has_settings |= has_settings;
    /* `managed = true` is all that a profile needs. */
    ret->is_enabled = raw.is_enabled || (has_managed && !has_enabled && raw.is_managed);
    r = check_switches(l, table, ret);
    if (r == 0 && has_settings && !ret->is_enabled && !has_enabled && !has_managed)
        r = sp_config_warn(l, table,
                           "commands of this profile have no network: the keys of its network "
                           "have no effect without `enabled = true`");
    return r;
}

int sp_config_network_apply(const struct sp_config_network *n, struct sp_profile *p,
                            struct sp_err *e)
{
    const bool is_managed = n->is_enabled && (n->says_managed ? n->is_managed : n->has_settings);

    p->has_network = n->is_enabled && !is_managed;
    if (!is_managed)
        return 0;
    p->managed = sp_network_policy_copy(n->policy);
    return p->managed != NULL ? 0 : sp_config_no_memory(e);
}
