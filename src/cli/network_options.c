/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/network_options.h"

#include <errno.h>
#include <string.h>

static const char *const accesses[] = {"none", "enabled", "managed", NULL};

const struct sp_option sp_network_options[] = {
    SP_OPT(CHOICE,
           SP_OPT_WORDS("network", "ACCESS",
                        "none; enabled, the host's network, which is also what --network alone "
                        "means; or managed: the hosts that are allowed (default: as the policy "
                        "says)"),
           SP_OPT_AT(struct sp_network_options, access, const char *), .choices = accesses,
           .bare = "enabled"),
    SP_OPT_LIST(struct sp_network_options, allowed, "allow-host", "PATTERN",
                "let this host be reached: a name, *.NAME, **.NAME or an address, perhaps with "
                ":PORT; makes the network managed (repeatable)"),
    SP_OPT_LIST(struct sp_network_options, denied, "deny-host", "PATTERN",
                "do not let it be reached, whatever allows it (repeatable)"),
    SP_OPT_LIST(struct sp_network_options, ports, "allow-port", "PORT",
                "let hosts be reached by name at this port, too, besides 22, 80 and 443 "
                "(repeatable)"),
    SP_OPT_FLAG(struct sp_network_options, allows_local, "allow-local",
                "let allowed hosts have addresses that are not public"),
    SP_OPT_END,
};

/* An option that only a managed network has; NULL: none is given. */
static const char *find_managed_option(const struct sp_network_options *o)
{
    return o->allowed.count != 0  ? "--allow-host"
           : o->denied.count != 0 ? "--deny-host"
           : o->ports.count != 0  ? "--allow-port"
           : o->allows_local      ? "--allow-local"
                                  : NULL;
}

static int check_options(const struct sp_network_options *o, const struct sp_profile *p,
                         struct sp_err *e)
{
    const char *option = find_managed_option(o);
    const bool wants_managed = o->access != NULL && strcmp(o->access, "managed") == 0;

    if (option != NULL && o->access != NULL && !wants_managed)
        return sp_fail(e, SP_E_INVALID, 0,
                       "%s is for a managed network: give it without --network, or with --network "
                       "managed",
                       option);
    if (option != NULL && !wants_managed && o->allowed.count == 0 && sp_profile_managed(p) == NULL)
        return sp_fail(e, SP_E_INVALID, 0,
                       "%s: the network of this policy is not managed: give --network managed, or "
                       "--allow-host",
                       option);
    if (p->kind == SP_PROFILE_DISABLED &&
        (option != NULL || wants_managed || (o->access != NULL && strcmp(o->access, "none") == 0)))
        return sp_fail(e, SP_E_INVALID, 0,
                       "%s: this policy has no sandbox that could restrict the network: choose "
                       "another one, such as workspace-write",
                       option != NULL ? option : "--network");
    return 0;
}

/* A pattern that the profile denies stays denied. */
static int add_hosts(const struct sp_option_list *list, enum sp_domain_word word,
                     const char *option, struct sp_network_policy *p, struct sp_err *e)
{
    for (size_t i = 0; i < list->count; i++)
        if (sp_network_policy_add(p, sp_str_of(list->items[i]), word, true, false, e) < 0)
            return sp_wrap(e, "%s", option);
    return 0;
}

static int add_ports(const struct sp_option_list *list, struct sp_network_policy *p,
                     struct sp_err *e)
{
    for (size_t i = 0; i < list->count; i++) {
        uint64_t port;

        if (!sp_str_to_u64(sp_str_of(list->items[i]), UINT16_MAX, &port))
            return sp_fail(e, SP_E_INVALID, 0, "--allow-port: `%.40s` is not a port",
                           list->items[i]);
        if (sp_network_policy_add_port(p, port, e) < 0)
            return sp_wrap(e, "--allow-port");
    }
    return 0;
}

int sp_network_options_apply(const struct sp_network_options *o, struct sp_profile *p,
                             struct sp_err *e)
{
    const char *option = find_managed_option(o);
    int r = check_options(o, p, e);

    if (r < 0 || (o->access == NULL && option == NULL))
        return r;
    if (option == NULL && strcmp(o->access, "managed") != 0) {
        sp_network_policy_free(p->managed);
        p->managed = NULL;
        p->has_network = strcmp(o->access, "enabled") == 0;
        return 0;
    }
    p->has_network = false;
    if (p->managed == NULL && (p->managed = sp_network_policy_new()) == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a policy");
    p->managed->allows_local |= o->allows_local;
    r = add_ports(&o->ports, p->managed, e);
    if (r == 0)
        r = add_hosts(&o->allowed, SP_DOMAIN_ALLOW, "--allow-host", p->managed, e);
    return r < 0 ? r : add_hosts(&o->denied, SP_DOMAIN_DENY, "--deny-host", p->managed, e);
}

static bool has_pattern(const struct sp_option_list *list, bool is_deny,
                        const struct sp_hostname_pattern *wanted)
{
    struct sp_hostname_pattern p;

    for (size_t i = 0; i < list->count; i++)
        if (sp_hostname_pattern_read(sp_str_of(list->items[i]), is_deny, &p) == NULL &&
            p.port == wanted->port && strcmp(p.text, wanted->text) == 0)
            return true;
    return false;
}

const char *sp_network_options_origin(const struct sp_network_options *o,
                                      const struct sp_domain *domain)
{
    const bool is_deny = domain->word == SP_DOMAIN_DENY;

    if (!has_pattern(is_deny ? &o->denied : &o->allowed, is_deny, &domain->pattern))
        return NULL;
    return is_deny ? "--deny-host" : "--allow-host";
}
