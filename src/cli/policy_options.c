/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/policy_options.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/io.h"
#include "cli/cli.h"
#include "engine/local.h"
#include "sandbox/policy_json.h"

#define MAX_DIRS    64         /* of --writable */
#define MAX_PROFILE (1U << 20) /* bytes of the file of --profile */

static const char *const accesses[] = {"none", "enabled", "managed", NULL};

const struct sp_option sp_policy_options[] = {
    SP_OPT_STRING(struct sp_policy_options, sandbox, "sandbox", "MODE",
                  "under this policy: :read-only, :workspace, :danger-full-access, a mode or a "
                  "profile of the configuration"),
    SP_OPT_STRING(struct sp_policy_options, sandbox, "mode", "MODE", "--sandbox",
                  .is_hidden = true),
    SP_OPT_STRING(struct sp_policy_options, profile_file, "profile", "FILE",
                  "or a profile as JSON"),
    SP_OPT_LIST(struct sp_policy_options, writable, "writable", "DIR",
                "let this directory be written, too (repeatable)", .max = MAX_DIRS),
    SP_OPT(CHOICE,
           SP_OPT_WORDS("network", "ACCESS",
                        "none; enabled, the host's network, which is also what --network alone "
                        "means; or managed: the hosts that are allowed (default: as the policy "
                        "says)"),
           SP_OPT_AT(struct sp_policy_options, network.access, const char *), .choices = accesses,
           .bare = "enabled"),
    SP_OPT_LIST(struct sp_policy_options, network.allowed, "allow-host", "PATTERN",
                "let this host be reached: a name, *.NAME, **.NAME or an address, perhaps with "
                ":PORT; makes the network managed (repeatable)"),
    SP_OPT_LIST(struct sp_policy_options, network.denied, "deny-host", "PATTERN",
                "do not let it be reached, whatever allows it (repeatable)"),
    SP_OPT_LIST(struct sp_policy_options, network.ports, "allow-port", "PORT",
                "let hosts be reached by name at this port, too, besides 22, 80 and 443 "
                "(repeatable)"),
    SP_OPT_FLAG(struct sp_policy_options, network.allows_local, "allow-local",
                "let allowed hosts have addresses that are not public"),
    SP_OPT_LIST(struct sp_policy_options, publish, "publish", "[HOST:]PORT",
                "let 127.0.0.1:HOST of this machine lead to the server at this port inside the "
                "sandbox (default: the same number; repeatable; not on a server)",
                .max = SP_PUBLISHED_MAX),
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

static int apply_network(const struct sp_network_options *o, struct sp_profile *p, struct sp_err *e)
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

/* ---- the policy ---- */

static int read_profile(const char *path, struct sp_profile *ret, struct sp_err *e)
{
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    struct sp_json json __attribute__((cleanup(sp_json_done))) = {0};
    auto_buf struct sp_buf text = {0};
    const int err = fd < 0 ? errno : sp_read_all(fd, MAX_PROFILE, &text);

    if (err == EFBIG)
        return sp_fail(e, SP_E_INVALID, 0, "%s: a profile has at most 1 MiB", path);
    if (err != 0)
        return sp_fail(e, SP_E_SYSTEM, err, "read %s", path);
    int r = sp_json_parse(&json, text.data, text.len, e);
    if (r == 0)
        r = sp_profile_read(&json, 0, ret, e);
    return r < 0 ? sp_wrap(e, "%s", path) : 0;
}

static int add_writable(const char *dir, bool is_here, struct sp_profile *profile, struct sp_err *e)
{
    auto_free char *real = is_here ? realpath(dir, NULL) : NULL;

    if (is_here && real == NULL)
        return sp_fail(e, SP_E_INVALID, errno, "--writable: %s", dir);
    if (!is_here && dir[0] != '/')
        return sp_fail(e, SP_E_INVALID, 0, "--writable: %s: on a server, give an absolute path",
                       dir);
    /* Only a managed profile has entries to add to. */
    if (profile->kind != SP_PROFILE_MANAGED || profile->is_unrestricted)
        return sp_fail(e, SP_E_INVALID, 0,
                       "--writable: %s: everything may be written under this policy already", dir);
    return sp_profile_add(profile, SP_PLACE_PATH, SP_ACCESS_WRITE, false,
                          sp_str_of(real != NULL ? real : dir), (struct sp_str){0}, e);
}

const char *sp_policy_options_name(const struct sp_policy_options *o, const char *or_else)
{
    return o->sandbox != NULL ? o->sandbox : o->profile_file != NULL ? o->profile_file : or_else;
}

int sp_policy_options_make(const struct sp_policy_options *o, const struct sp_config *c,
                           const char *or_else, const char *cwd, bool is_here,
                           struct sp_policy *ret, bool *ret_is_open, struct sp_err *e)
{
    struct sp_profile profile = {0};
    int r;

    if (o->sandbox != NULL && o->profile_file != NULL)
        return sp_fail(e, SP_E_INVALID, 0, "--sandbox and --profile: give one of them");
    r = o->profile_file != NULL ? read_profile(o->profile_file, &profile, e) : 0;
    if (r == 0) /* of :read-only only the directories remain, if there is a file */
        r = sp_config_policy(c,
                             o->profile_file != NULL ? ":read-only"
                             : o->sandbox != NULL    ? o->sandbox
                                                     : or_else,
                             cwd, ret, ret_is_open, e);
    if (r < 0) {
        sp_profile_done(&profile);
        return r;
    }
    if (o->profile_file != NULL) {
        sp_profile_done(&ret->profile);
        ret->profile = profile;
    }
    for (size_t i = 0; r == 0 && i < o->writable.count; i++)
        r = add_writable(o->writable.items[i], is_here, &ret->profile, e);
    if (r == 0)
        r = apply_network(&o->network, &ret->profile, e);
    *ret_is_open = ret->profile.kind == SP_PROFILE_DISABLED;
    return r;
}

/* ---- published ports ---- */

/* NULL: it can. */
static const char *why_not_published(const struct sp_policy *p, const struct sp_backend *here)
{
    if (here == NULL)
        return "only ports of our own sandboxes can be published, not those of a server: leave it "
               "out, or leave out what names the server (--on, --detach)";
    if (p->profile.kind == SP_PROFILE_DISABLED || p->profile.has_network)
        return "the command has the host's network and listens there itself, so nothing needs "
               "publishing: leave it out, or choose a sandbox without the host's network, such as "
               "--sandbox :workspace";
    return NULL;
}

int sp_policy_options_publish(const struct sp_policy_options *o, const struct sp_config *c,
                              const struct sp_policy *p, struct sp_backend *here, struct sp_err *e)
{
    struct sp_published ports[SP_PUBLISHED_MAX];
    const bool is_flag = o->publish.count != 0;
    const char *name = is_flag ? "--publish" : "publish";
    const char *why = why_not_published(p, here);
    const char *const *items = is_flag ? o->publish.items : (const char *const *)c->publish;
    size_t count = 0;

    if (is_flag && why != NULL)
        return sp_fail(e, SP_E_INVALID, 0, "--publish: %s", why);
    if (here == NULL && p != NULL && items != NULL && items[0] != NULL &&
        p->profile.kind != SP_PROFILE_DISABLED && !p->profile.has_network)
        sp_cli_warn(NULL, "`publish` of the configuration is left out: a server publishes no ports "
                          "of its sandboxes");
    for (; items != NULL && items[count] != NULL; count++) {
        const char *text = items[count];

        if (count == SP_PUBLISHED_MAX)
            return sp_fail(e, SP_E_LIMIT, 0, "%s: at most %d ports", name, SP_PUBLISHED_MAX);
        if (!sp_config_read_ports(sp_str_of(text), &ports[count].host, &ports[count].cell))
            return sp_fail(e, SP_E_INVALID, 0,
                           "%s: `%.40s` is neither a port nor HOST:PORT, two ports from 1 to %d",
                           name, text, UINT16_MAX);
        for (size_t i = 0; i < count; i++)
            if (ports[i].host == ports[count].host)
                return sp_fail(e, SP_E_INVALID, 0, "%s: port %u is given twice", name,
                               ports[i].host);
    }
    for (size_t i = 0; why == NULL && i < count; i++) {
        struct sp_err taken = {0};
        char text[256];

        if (sp_local_publish(here, &ports[i], &taken) == 0)
            continue;
        if (is_flag) {
            *e = taken;
            return sp_wrap(e, "--publish %s", items[i]);
        }
        (void)sp_error_text(&taken, text, sizeof text);
        sp_cli_warn(NULL, text);
    }
    return 0;
}

/* ---- explaining it ---- */

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
