/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config_keys.h"

#include <stdarg.h>
#include <stdio.h>

#define SHOWN_BYTES 60
#define SHOWN(s)    (int)((s).n > SHOWN_BYTES ? SHOWN_BYTES : (s).n), (s).p

#define MAX_MS INT64_MAX

/* ---- the table ---- */

static const char *const known_safe_words[] = {"off", "list", "list+git", NULL};
static const char *const inherit_words[] = {"all", "core", "none", NULL};
static const char *const structured_words[] = {"auto", "always", "never", NULL};
static const char *const busy_poll_words[] = {"auto", "off", "on", NULL};
static const char *const isolation_words[] = {"session", "command", NULL};
static const char *const mode_words[] = {"full", "limited", NULL};
static const char *const unresolved_words[] = {"pass", "deny", NULL};

#define AT(member)    offsetof(struct sp_config_top, config.member)
#define ASIDE(member) offsetof(struct sp_config_top, member)

const struct sp_config_key sp_config_top_keys[] = {
    {"default_permissions", SP_KEY_STRING, AT(default_permissions), "", NULL},
    {"permissions", SP_KEY_TABLE, ASIDE(permissions), "", NULL},
    {"sandbox", SP_KEY_TABLE, ASIDE(sandbox), "", NULL},
    {"approval_policy", SP_KEY_STRING, AT(approval_policy), "on-request", NULL},
    {"approver", SP_KEY_SOME_STRINGS, AT(approvers), "deny", NULL},
    {"approval_timeout_s", SP_KEY_INTEGER, AT(approval_timeout_s), "0", NULL},
    {"permission_hook", SP_KEY_SOME_PATHS, AT(permission_hooks), "[]", NULL},
    {"reviewer", SP_KEY_STRING, AT(reviewer), "", NULL},
    {"strict_review", SP_KEY_BOOLEAN, AT(strict_review), "false", NULL},
    {"audit_log", SP_KEY_STRING, AT(audit_log), "$SALLYPORT_HOME/audit.jsonl", NULL},
    {"audit_receipts", SP_KEY_BOOLEAN, AT(audit_receipts), "false", NULL},
    {"known_safe", SP_KEY_STRING, AT(known_safe), "list", known_safe_words},
    {"retry_reuses_approval", SP_KEY_BOOLEAN, AT(retry_reuses_approval), "false", NULL},
    {"retry_on_heuristic", SP_KEY_BOOLEAN, AT(retry_on_heuristic), "true", NULL},
    {"trusted_projects", SP_KEY_PATHS, AT(trusted_projects), "[]", NULL},
    {"ignore_user_and_project_rules", SP_KEY_BOOLEAN, AT(ignore_user_and_project_rules), "false",
     NULL},
    {"publish", SP_KEY_STRINGS, AT(publish), "[]", NULL},
    {"preserve_line_endings", SP_KEY_BOOLEAN, AT(preserve_line_endings), "false", NULL},
    {"server", SP_KEY_STRING, AT(server), "", NULL},
    {"token_file", SP_KEY_PATH, AT(token_file), "", NULL},
    {"default_environment", SP_KEY_STRING, AT(default_environment), "local", NULL},
    {"environments", SP_KEY_TABLE, ASIDE(environments), "", NULL},
    {"shell_environment_policy", SP_KEY_TABLE, ASIDE(shell_environment_policy), "", NULL},
    {"allow_login_shell", SP_KEY_BOOLEAN, AT(allow_login_shell), "true", NULL},
    {"poll_max_ms", SP_KEY_INTEGER, AT(poll_max_ms), "300000", NULL},
    {"tool_output_token_limit", SP_KEY_INTEGER, AT(tool_output_token_limit), "10000", NULL},
    {"notify_at", SP_KEY_COUNT, AT(notify_at), "0", NULL},
    {"report_denied_start", SP_KEY_BOOLEAN, AT(report_denied_start), "true", NULL},
    {"exited_ttl_s", SP_KEY_INTEGER, AT(exited_ttl_s), "600", NULL},
    {"detached_ttl_s", SP_KEY_INTEGER, AT(detached_ttl_s), "600", NULL},
    {"idle_ttl_s", SP_KEY_INTEGER, AT(idle_ttl_s), "0", NULL},
    {"mcp_structured_output", SP_KEY_STRING, AT(mcp_structured_output), "auto", structured_words},
    {"mcp_keep_cancelled", SP_KEY_BOOLEAN, AT(mcp_keep_cancelled), "false", NULL},
    {"busy_poll", SP_KEY_STRING, AT(busy_poll), "auto", busy_poll_words},
    {"features", SP_KEY_TABLE, ASIDE(features), "", NULL},
    {"limits", SP_KEY_TABLE, ASIDE(limits), "", NULL},
    {0},
};

#undef AT
#define AT(member) offsetof(struct sp_config, member)
static const struct sp_config_key feature_keys[] = {
    {"exec_permission_approvals", SP_KEY_BOOLEAN, AT(has_exec_permission_approvals), "false", NULL},
    {"write_stdin_no_timeout", SP_KEY_BOOLEAN, AT(has_write_stdin_no_timeout), "false", NULL},
    {"unified_exec", SP_KEY_BOOLEAN, AT(has_unified_exec), "false", NULL},
    {"shell_snapshot", SP_KEY_BOOLEAN, AT(has_shell_snapshot), "false", NULL},
    {0},
};

#undef AT
#define AT(member) offsetof(struct sp_config_raw_environment, member)
static const struct sp_config_key environment_keys[] = {
    {"url", SP_KEY_STRING, AT(is.url), "", NULL},
    {"program", SP_KEY_STRING, AT(program), "", NULL},
    {"args", SP_KEY_STRINGS, AT(args), "[]", NULL},
    {"env", SP_KEY_TABLE, AT(env), "", NULL},
    {"cwd", SP_KEY_STRING, AT(is.cwd), "", NULL},
    {"token_file", SP_KEY_PATH, AT(is.token_file), "", NULL},
    {"connect_timeout_s", SP_KEY_SECONDS, AT(is.connect_timeout_ms), "10", NULL},
    {0},
};

#undef AT
#define AT(member) offsetof(struct sp_config_raw_profile, member)
static const struct sp_config_key profile_keys[] = {
    {"extends", SP_KEY_STRING, AT(extends), "", NULL},
    {"description", SP_KEY_STRING, AT(description), "", NULL},
    {"filesystem", SP_KEY_TABLE, AT(filesystem), "", NULL},
    {"network", SP_KEY_TABLE, AT(network), "", NULL},
    {0},
};

#undef AT
#define AT(member) offsetof(struct sp_config_raw_network, member)
static const struct sp_config_key network_keys[] = {
    {"enabled", SP_KEY_BOOLEAN, AT(is_enabled), "false", NULL},
    {"managed", SP_KEY_BOOLEAN, AT(is_managed), "", NULL},
    {"mode", SP_KEY_STRING, AT(mode), "full", mode_words},
    {"domains", SP_KEY_TABLE, AT(domains), "", NULL},
    {"ports", SP_KEY_ANY, AT(ports), "[22, 80, 443]", NULL},
    {"ask", SP_KEY_BOOLEAN, AT(asks), "true", NULL},
    {"allow_local", SP_KEY_BOOLEAN, AT(allows_local), "false", NULL},
    {"allow_local_binding", SP_KEY_BOOLEAN, AT(allows_local), "false", NULL},
    {"enable_socks5", SP_KEY_BOOLEAN, AT(has_socks), "true", NULL},
    {"check_sni", SP_KEY_BOOLEAN, AT(checks_sni), "true", NULL},
    {"proxy_env", SP_KEY_BOOLEAN, AT(sets_env), "true", NULL},
    {"allow_upstream_proxy", SP_KEY_BOOLEAN, AT(uses_upstream), "true", NULL},
    {"upstream_unresolved", SP_KEY_STRING, AT(upstream_unresolved), "pass", unresolved_words},
    {"enable_socks5_udp", SP_KEY_UNUSED, 0, "", NULL},
    {"proxy_url", SP_KEY_UNUSED, 0, "", NULL},
    {"socks_url", SP_KEY_UNUSED, 0, "", NULL},
    {"unix_sockets", SP_KEY_UNUSED, 0, "", NULL},
    {"dangerously_*", SP_KEY_UNUSED, 0, "", NULL},
    {"mitm*", SP_KEY_REFUSED, 0, "", NULL},
    {"credential_broker", SP_KEY_REFUSED, 0, "", NULL},
    {"log", SP_KEY_REFUSED, 0, "", NULL},
    {0},
};

#undef AT
#define AT(member) offsetof(struct sp_config_raw_shell_policy, member)
static const struct sp_config_key shell_policy_keys[] = {
    {"inherit", SP_KEY_STRING, AT(inherit), "all", inherit_words},
    {"ignore_default_excludes", SP_KEY_BOOLEAN, AT(ignores_default_excludes), "true", NULL},
    {"exclude", SP_KEY_STRINGS, AT(exclude), "[]", NULL},
    {"set", SP_KEY_TABLE, AT(set), "", NULL},
    {"include_only", SP_KEY_STRINGS, AT(include_only), "[]", NULL},
    {"keep", SP_KEY_STRINGS, AT(keep), "[]", NULL},
    {0},
};

#undef AT
#define AT(member) offsetof(struct sp_config_raw_sandbox, member)
static const struct sp_config_key sandbox_keys[] = {
    {"protected_names", SP_KEY_STRINGS, AT(protected_names), "[]", NULL},
    {"isolation", SP_KEY_STRING, AT(isolation), "session", isolation_words},
    {0},
};

#undef AT
#define AT(level) offsetof(struct sp_config_raw_limits, levels[level])
static const struct sp_config_key limits_keys[] = {
    {"command", SP_KEY_TABLE, AT(SP_LIMIT_COMMAND), "", NULL},
    {"session", SP_KEY_TABLE, AT(SP_LIMIT_SESSION), "", NULL},
    {"server", SP_KEY_TABLE, AT(SP_LIMIT_SERVER), "", NULL},
    {0},
};

#undef AT
#define AT(limit) offsetof(struct sp_config_raw_limit_level, of[limit])
static const struct sp_config_key limit_level_keys[] = {
    {"memory", SP_KEY_ANY, AT(SP_LIMIT_MEMORY), "", NULL},
    {"pids", SP_KEY_ANY, AT(SP_LIMIT_PIDS), "", NULL},
    {"cpus", SP_KEY_ANY, AT(SP_LIMIT_CPUS), "", NULL},
    {"cpu", SP_KEY_ANY, AT(SP_LIMIT_CPU), "", NULL},
    {"wall", SP_KEY_ANY, AT(SP_LIMIT_WALL), "", NULL},
    {"output", SP_KEY_ANY, AT(SP_LIMIT_OUTPUT), "", NULL},
    {"files", SP_KEY_ANY, AT(SP_LIMIT_FILES), "", NULL},
    {"fsize", SP_KEY_ANY, AT(SP_LIMIT_FSIZE), "", NULL},
    {0},
};
#undef AT
#undef ASIDE

const struct sp_config_section sp_config_sections[] = {
    {"", sp_config_top_keys},
    {"features", feature_keys},
    {"environments.NAME", environment_keys},
    {"permissions.NAME", profile_keys},
    {"permissions.NAME.network", network_keys},
    {"shell_environment_policy", shell_policy_keys},
    {"sandbox", sandbox_keys},
    {"limits", limits_keys},
    {"limits.LEVEL", limit_level_keys},
    {0},
};

/* ---- unknown keys ---- */

/* The most similar key; NULL: none is similar. */
static const char *nearest(const struct sp_config_key *keys, struct sp_str name)
{
    struct sp_nearest near = sp_nearest_to(name);

    for (const struct sp_config_key *k = keys; k->name != NULL; k++)
        if (k->type != SP_KEY_UNUSED && k->type != SP_KEY_REFUSED)
            sp_nearest_offer(&near, k->name);
    return near.best;
}

/* ---- warnings ---- */

int sp_config_warn(struct sp_config_loading *l, const struct sp_toml_value *v, const char *fmt, ...)
{
    const size_t n = l->impl->warning_count;
    char **list = sp_arena_new(&l->impl->arena, (n + 2) * sizeof(char *));
    char story[240];
    struct sp_err said;
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(story, sizeof story, fmt, args);
    va_end(args);
    (void)sp_toml_refuse_key(v, &said, "%s", story); /* only for the text with its position */
    if (list == NULL || sp_config_keep(l, sp_str_of(said.msg), &list[n]) < 0)
        return sp_config_no_memory(l->e);
    if (n != 0)
        memcpy(list, l->config->warnings, n * sizeof(char *));
    l->config->warnings = list;
    l->impl->warning_count = n + 1;
    return 0;
}

/* ---- values ---- */

/* A value, its key and its destination. */
struct setting {
    struct sp_config_loading *l;
    const struct sp_config_key *key;
    const struct sp_toml_value *v;
    void *to;
};

static int refuse_type(const struct setting *p, const char *expected)
{
    return sp_toml_refuse(p->v, p->l->e, "`%s`: expected %s, not %s", p->key->name, expected,
                          sp_toml_type_name(p->v->type));
}

static int read_string(const struct setting *p)
{
    char names[160] = ""; /* the words that are allowed */
    size_t n = 0;

    if (p->v->type != SP_TOML_STRING)
        return refuse_type(p, "a string");
    if (sp_str_has_nul(p->v->text))
        return sp_toml_refuse(p->v, p->l->e, "a string with a NUL in it cannot be used here");
    for (const char *const *word = p->key->words; word != NULL; word++) {
        if (*word == NULL)
            return sp_toml_refuse(p->v, p->l->e, "`%s`: expected %s, not `%.*s`", p->key->name,
                                  names, SHOWN(p->v->text));
        if (sp_str_eq(p->v->text, sp_str_of(*word)))
            break;
        n += (size_t)snprintf(names + n, sizeof names - n, "%s`%s`",
                              n == 0            ? ""
                              : word[1] == NULL ? " or "
                                                : ", ",
                              *word);
    }
    return sp_config_keep(p->l, p->v->text, p->to);
}

static int read_path(const struct setting *p)
{
    if (p->v->type != SP_TOML_STRING)
        return refuse_type(p, "a string");
    return sp_config_expand(p->l, p->v, p->v->text, p->to);
}

static int read_integer(const struct setting *p, int64_t max)
{
    if (p->v->type != SP_TOML_INTEGER)
        return refuse_type(p, "an integer");
    if (p->v->integer < 0 || p->v->integer > max)
        return sp_toml_refuse(p->v, p->l->e, "`%s`: expected an integer from 0 to %lld",
                              p->key->name, (long long)max);
    if (p->key->type == SP_KEY_COUNT)
        *(uint32_t *)p->to = (uint32_t)p->v->integer;
    else
        *(uint64_t *)p->to = (uint64_t)p->v->integer;
    return 0;
}

static int read_seconds(const struct setting *p)
{
    const double max = 86400.0 * 365;
    const bool is_integer = p->v->type == SP_TOML_INTEGER;

    if (!is_integer && p->v->type != SP_TOML_FLOAT)
        return refuse_type(p, "a number of seconds");
    const double s = is_integer ? (double)p->v->integer : p->v->real;
    if (!(s >= 0.001 && s <= max)) /* written so that NaN is refused, too */
        return sp_toml_refuse(p->v, p->l->e, "`%s`: expected seconds from 0.001 to %.0f",
                              p->key->name, max);
    *(uint64_t *)p->to = (uint64_t)(s * 1000 + 0.5);
    return 0;
}

/* Strings or paths, with a NULL at the end. For SOME, a string alone is a list of one. */
static int read_list(const struct setting *p)
{
    const enum sp_key_type type = p->key->type;
    const bool takes_one = type == SP_KEY_SOME_PATHS || type == SP_KEY_SOME_STRINGS;
    const bool is_one = takes_one && p->v->type == SP_TOML_STRING;
    size_t n = 0;
    int r = 0;

    if (!is_one && p->v->type != SP_TOML_ARRAY)
        return refuse_type(p,
                           takes_one ? "a string or an array of strings" : "an array of strings");
    char **list =
        sp_arena_new(&p->l->impl->arena, ((is_one ? 1 : p->v->count) + 1) * sizeof(char *));
    if (list == NULL)
        return sp_config_no_memory(p->l->e);
    for (const struct sp_toml_value *v = is_one ? p->v : p->v->first; r == 0 && v != NULL;
         v = is_one ? NULL : v->next) {
        const struct setting item = {.l = p->l, .key = p->key, .v = v, .to = &list[n++]};

        r = type == SP_KEY_STRINGS || type == SP_KEY_SOME_STRINGS ? read_string(&item)
                                                                  : read_path(&item);
    }
    if (r == 0)
        *(char ***)p->to = list;
    return r;
}

static int read_value(const struct setting *p)
{
    switch (p->key->type) {
    case SP_KEY_STRING:
        return read_string(p);
    case SP_KEY_PATH:
        return read_path(p);
    case SP_KEY_INTEGER:
        return read_integer(p, MAX_MS / 1000); /* callers turn seconds into milliseconds */
    case SP_KEY_COUNT:
        return read_integer(p, UINT32_MAX);
    case SP_KEY_SECONDS:
        return read_seconds(p);
    case SP_KEY_BOOLEAN:
        if (p->v->type != SP_TOML_BOOLEAN)
            return refuse_type(p, "true or false");
        *(bool *)p->to = p->v->boolean;
        return 0;
    case SP_KEY_STRINGS:
    case SP_KEY_PATHS:
    case SP_KEY_SOME_PATHS:
    case SP_KEY_SOME_STRINGS:
        return read_list(p);
    case SP_KEY_TABLE:
        if (p->v->type != SP_TOML_TABLE)
            return refuse_type(p, "a table");
        *(const struct sp_toml_value **)p->to = p->v;
        return 0;
    case SP_KEY_ANY:
        *(const struct sp_toml_value **)p->to = p->v;
        return 0;
    case SP_KEY_UNUSED:
        return sp_config_warn(p->l, p->v, "`%.*s` has no effect here", SHOWN(p->v->key));
    case SP_KEY_REFUSED:
        return sp_toml_refuse_key(p->v, p->l->e, "`%.*s` is not part of this version",
                                  SHOWN(p->v->key));
    }
    return refuse_type(p, "nothing");
}

static bool is_named(const struct sp_config_key *k, struct sp_str name)
{
    const struct sp_str known = sp_str_of(k->name);

    if (known.p[known.n - 1] != '*')
        return sp_str_eq(name, known);
    return name.n >= known.n - 1 && memcmp(name.p, known.p, known.n - 1) == 0;
}

int sp_config_read_section(struct sp_config_loading *l, const char *section,
                           const struct sp_toml_value *table, void *target)
{
    const struct sp_config_section *s = sp_config_sections;
    int r = 0;

    while (strcmp(s->name, section) != 0)
        s++;
    for (const struct sp_toml_value *v = table == NULL ? NULL : table->first; r == 0 && v != NULL;
         v = v->next) {
        const struct sp_config_key *k = s->keys;

        while (k->name != NULL && !is_named(k, v->key))
            k++;
        if (k->name == NULL) {
            const char *near = nearest(s->keys, v->key);

            return sp_toml_refuse_key(v, l->e, "unknown key `%.*s` %s%s%s%s%s", SHOWN(v->key),
                                      s->name[0] == 0 ? "" : "in ",
                                      s->name[0] == 0 ? "at the top" : s->name,
                                      near == NULL ? "" : "; did you mean `",
                                      near == NULL ? "" : near, near == NULL ? "" : "`?");
        }
        const struct setting p = {.l = l, .key = k, .v = v, .to = (char *)target + k->offset};
        r = read_value(&p);
    }
    return r;
}
