/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config: from the merged tree of all layers to a struct sp_config: the keys at the top,
 * [features], [shell_environment_policy] and [sandbox].
 */
#include "config/config.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "approve/approvers.h"
#include "base/auto.h"
#include "base/json.h"
#include "config/config_keys.h"
#include "config/policy.h"
#include "sandbox/resolve.h"

#define LEAST_POLL_MAX_MS 5000 /* an empty write_stdin waits at least this long */

int sp_config_no_memory(struct sp_err *e)
{
    return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read the configuration");
}

/* ---- for all sections ---- */

int sp_config_copy(struct sp_config_loading *l, const struct sp_toml_value *v, char **ret)
{
    if (sp_str_has_nul(v->text))
        return sp_toml_refuse(v, l->e, "a string with a NUL in it cannot be used here");
    char *copy = sp_arena_copy(&l->impl->arena, v->text);
    if (copy == NULL)
        return sp_config_no_memory(l->e);
    *ret = copy;
    return 0;
}

int sp_config_expand(struct sp_config_loading *l, const struct sp_toml_value *v, struct sp_str path,
                     char **ret)
{
    const bool is_home = path.n != 0 && path.p[0] == '~' && (path.n == 1 || path.p[1] == '/');
    auto_buf struct sp_buf full = {0};

    if (sp_str_has_nul(path))
        return sp_toml_refuse(v, l->e, "a path with a NUL in it cannot be used");
    if (!is_home && (path.n == 0 || path.p[0] != '/'))
        return sp_toml_refuse(v, l->e, "expected an absolute path or `~/...`, not `%.*s`",
                              (int)(path.n > 80 ? 80 : path.n), path.p);
    if (is_home && l->impl->user_home == NULL)
        return sp_toml_refuse(v, l->e, "`~` needs HOME, which is not set to an absolute path");
    if (is_home && !sp_buf_add_str(&full, sp_str_of(l->impl->user_home)))
        return sp_config_no_memory(l->e);
    const size_t skipped = is_home ? 1 : 0;
    if (path.n != skipped && !sp_buf_add(&full, path.p + skipped, path.n - skipped))
        return sp_config_no_memory(l->e);
    char *copy = sp_arena_copy(&l->impl->arena, sp_buf_str(&full));
    if (copy == NULL)
        return sp_config_no_memory(l->e);
    *ret = copy;
    return 0;
}

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
    char *copy = sp_arena_copy(&l->impl->arena, sp_str_of(said.msg));
    if (list == NULL || copy == NULL)
        return sp_config_no_memory(l->e);
    if (n != 0)
        memcpy(list, l->config->warnings, n * sizeof(char *));
    list[n] = copy;
    l->config->warnings = list;
    l->impl->warning_count = n + 1;
    return 0;
}

int sp_config_check_variable(struct sp_config_loading *l, const struct sp_toml_value *v,
                             const char *key)
{
    if (v->key.n == 0 || memchr(v->key.p, '=', v->key.n) != NULL || sp_str_has_nul(v->key))
        return sp_toml_refuse_key(v, l->e, "`%s`: a variable's name has no `=` and no NUL in it",
                                  key);
    if (v->type != SP_TOML_STRING || sp_str_has_nul(v->text))
        return sp_toml_refuse(v, l->e, "`%s`: expected a string without NUL", key);
    return 0;
}

/* ---- [shell_environment_policy] ---- */

/* The strings stay in the arena; only the views are new. */
static int make_patterns(struct sp_config_loading *l, char *const *list, const struct sp_str **ret,
                         uint32_t *ret_count)
{
    uint32_t n = 0;

    while (list != NULL && list[n] != NULL)
        n++;
    struct sp_str *patterns = sp_arena_new(&l->impl->arena, (n + 1) * sizeof *patterns);
    if (patterns == NULL)
        return sp_config_no_memory(l->e);
    for (uint32_t i = 0; i < n; i++)
        patterns[i] = sp_str_of(list[i]);
    *ret = patterns;
    *ret_count = n;
    return 0;
}

static int make_set(struct sp_config_loading *l, const struct sp_toml_value *table)
{
    uint32_t n = 0;

    if (table == NULL)
        return 0;
    struct sp_env_var *vars = sp_arena_new(&l->impl->arena, (table->count + 1) * sizeof *vars);
    if (vars == NULL)
        return sp_config_no_memory(l->e);
    for (const struct sp_toml_value *v = table->first; v != NULL; v = v->next) {
        const int r = sp_config_check_variable(l, v, "set");

        if (r < 0)
            return r;
        const char *name = sp_arena_copy(&l->impl->arena, v->key);
        const char *value = sp_arena_copy(&l->impl->arena, v->text);
        if (name == NULL || value == NULL)
            return sp_config_no_memory(l->e);
        vars[n++] = (struct sp_env_var){.name = {name, v->key.n}, .value = {value, v->text.n}};
    }
    l->config->env_set = (struct sp_env_vars){.items = vars, .count = n};
    return 0;
}

static enum sp_env_inherit inherit_of(const char *word)
{
    if (word == NULL || strcmp(word, "all") == 0)
        return SP_ENV_ALL;
    return strcmp(word, "core") == 0 ? SP_ENV_CORE : SP_ENV_NONE;
}

static int read_shell_policy(struct sp_config_loading *l, const struct sp_toml_value *table)
{
    struct sp_config_raw_shell_policy raw = {.ignores_default_excludes = true};
    struct sp_env_policy *p = &l->config->env_policy;
    int r = sp_config_read_section(l, "shell_environment_policy", table, &raw);

    if (r == 0)
        r = make_patterns(l, raw.exclude, &p->exclude, &p->exclude_count);
    if (r == 0)
        r = make_patterns(l, raw.include_only, &p->include_only, &p->include_only_count);
    if (r == 0)
        r = make_patterns(l, raw.keep, &p->keep, &p->keep_count);
    if (r == 0)
        r = make_set(l, raw.set);
    p->inherit = inherit_of(raw.inherit);
    p->ignores_default_excludes = raw.ignores_default_excludes;
    return r;
}

/* ---- [sandbox] ---- */

static bool is_protected(struct sp_str name)
{
    for (size_t i = 0; i < SP_PROTECTED_COUNT; i++)
        if (sp_str_eq(name, sp_str_of(sp_protected_names[i])))
            return true;
    return false;
}

/* Refuses protection that this version does not offer, instead of ignoring the key. */
static int read_sandbox(struct sp_config_loading *l, const struct sp_toml_value *table)
{
    struct sp_config_raw_sandbox raw = {0};
    const int r = sp_config_read_section(l, "sandbox", table, &raw);

    if (r < 0 || table == NULL)
        return r;
    const struct sp_toml_value *names = sp_toml_get(table, SP_STR("protected_names"));
    for (const struct sp_toml_value *v = names == NULL ? NULL : names->first; v != NULL;
         v = v->next)
        if (!is_protected(v->text))
            return sp_toml_refuse(v, l->e,
                                  "`protected_names`: this version protects .git .agents .codex "
                                  ".aws .sallyport and no other name; use a `deny` or `read` entry "
                                  "of a profile");
    if (raw.isolation != NULL && strcmp(raw.isolation, "session") != 0)
        return sp_toml_refuse(sp_toml_get(table, SP_STR("isolation")), l->e,
                              "`isolation`: this version has `session` alone");
    return 0;
}

/* ---- the keys at the top ---- */

/* As the table in config_keys.c has it for the manual. */
static struct sp_config defaults(void)
{
    static char on_request[] = "on-request";
    static char list[] = "list";
    static char local[] = "local";
    static char automatic[] = "auto";

    return (struct sp_config){
        .approval_policy = on_request,
        .known_safe = list,
        .default_environment = local,
        .retry_on_heuristic = true,
        .env_policy = {.inherit = SP_ENV_ALL, .ignores_default_excludes = true},
        .allow_login_shell = true,
        .poll_max_ms = 300000,
        .tool_output_token_limit = 10000,
        .exited_ttl_s = 600,
        .detached_ttl_s = 600,
        .report_denied_start = true,
        .mcp_structured_output = automatic,
    };
}

/* The members of `granular` are checked where the policy is used (approve/approvals.h). */
static int check_approval_policy(const struct sp_config_loading *l, const struct sp_toml_value *v)
{
    static const char *const names[] = {"untrusted", "on-failure", "on-request", "never"};
    struct sp_json j __attribute__((cleanup(sp_json_done))) = {0};
    struct sp_err why = {0};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (sp_str_eq(v->text, sp_str_of(names[i])))
            return 0;
    auto_free char *copy = malloc(v->text.n + 1);
    if (copy == NULL)
        return sp_config_no_memory(l->e);
    memcpy(copy, v->text.p, v->text.n);
    if (v->text.n == 0 || copy[0] != '{')
        return sp_toml_refuse(v, l->e,
                              "`approval_policy`: expected `untrusted`, `on-failure`, "
                              "`on-request`, `never` or the JSON object {\"granular\":{...}}");
    if (sp_json_parse(&j, copy, v->text.n, &why) < 0)
        return sp_toml_refuse(v, l->e, "`approval_policy`: %s", why.msg);
    uint32_t granular;
    if (j.tokens[0].children != 1 || sp_json_need_object(&j, 0, "granular", &granular, &why) < 0)
        return sp_toml_refuse(v, l->e,
                              "`approval_policy`: expected {\"granular\":{...}} and nothing else");
    return 0;
}

static int check_approver(const struct sp_config_loading *l, const struct sp_toml_value *v)
{
    struct sp_err why = {0};

    if (v->type == SP_TOML_ARRAY) {
        int r = v->count == 0 ? sp_toml_refuse(v, l->e, "`approver`: it names nobody") : 0;

        for (const struct sp_toml_value *item = v->first; r == 0 && item != NULL; item = item->next)
            r = check_approver(l, item);
        return r;
    }
    if (sp_approvers_check(v->text.p, "`deny`, `terminal`, `client` or `program:/PATH`", true,
                           &why) < 0)
        return sp_toml_refuse(v, l->e, "`approver`: %s", why.msg);
    return 0;
}

/* Unlike an approver, a reviewer can only be a program. */
static int check_reviewer(const struct sp_config_loading *l, const struct sp_toml_value *v)
{
    if (strncmp(v->text.p, "program:/", 9) == 0 && v->text.n > 9)
        return 0;
    return sp_toml_refuse(v, l->e, "`reviewer`: expected `program:/PATH`");
}

static int check_strict_review(const struct sp_config_loading *l, const struct sp_toml_value *v)
{
    if (!v->boolean || l->config->reviewer != NULL)
        return 0;
    return sp_toml_refuse(v, l->e, "`strict_review`: there is no `reviewer` to review anything");
}

/* After the profiles were read. */
static int check_permissions(const struct sp_config_loading *l, const struct sp_toml_value *v)
{
    struct sp_profile p = {0};
    enum sp_mode mode;
    bool is_builtin = false;
    const int r = sp_config_builtin(v->text.p, &p, &is_builtin, l->e);

    sp_profile_done(&p);
    if (r < 0 || is_builtin || sp_mode_read(v->text, &mode) ||
        sp_config_find_profile(l->config, v->text.p) != NULL)
        return r;
    return sp_toml_refuse(v, l->e,
                          "`default_permissions`: there is no profile `%.60s`; built in are "
                          ":read-only, :workspace and :danger-full-access",
                          v->text.p);
}

/* `server` and `default_environment`: the name of an environment, or a URL. */
static int check_place(const struct sp_config_loading *l, const struct sp_toml_value *v)
{
    const bool is_url = strstr(v->text.p, "://") != NULL;
    const char *trouble = is_url ? sp_config_check_url(v->text.p) : NULL;

    if (trouble != NULL)
        return sp_toml_refuse(v, l->e, "`%s`: %s", v->key.p, trouble);
    if (is_url || sp_config_find_environment(l->config, v->text.p) != NULL)
        return 0;
    if (sp_str_eq(v->key, SP_STR("default_environment")) && sp_str_eq(v->text, SP_STR("local")))
        return 0;
    return sp_toml_refuse(v, l->e, "`%s`: there is no environment `%.60s`, and it is no URL",
                          v->key.p, v->text.p);
}

/* Checks that need more than the type. The section was read, so strings have no NUL. */
static int check_top(struct sp_config_loading *l, const struct sp_toml_value *root)
{
    int r = 0;

    for (const struct sp_toml_value *v = root->first; r == 0 && v != NULL; v = v->next) {
        if (sp_str_eq(v->key, SP_STR("approval_policy")))
            r = check_approval_policy(l, v);
        else if (sp_str_eq(v->key, SP_STR("approver")))
            r = check_approver(l, v);
        else if (sp_str_eq(v->key, SP_STR("reviewer")))
            r = check_reviewer(l, v);
        else if (sp_str_eq(v->key, SP_STR("strict_review")))
            r = check_strict_review(l, v);
        else if (sp_str_eq(v->key, SP_STR("default_permissions")))
            r = check_permissions(l, v);
        else if (sp_str_eq(v->key, SP_STR("server")) ||
                 sp_str_eq(v->key, SP_STR("default_environment")))
            r = check_place(l, v);
        else if (sp_str_eq(v->key, SP_STR("audit_log")) && v->text.n != 0) /* "": no log */
            r = sp_config_expand(l, v, v->text, &l->config->audit_log);
    }
    return r;
}

/* Environments and profiles first: keys at the top refer to them by name. */
static int read_tree(struct sp_config_loading *l, const struct sp_toml_value *root)
{
    struct sp_config_top top = {.config = *l->config};
    int r = sp_config_read_section(l, "", root, &top);

    *l->config = top.config;
    if (r == 0)
        r = sp_config_read_section(l, "features", top.features, l->config);
    if (r == 0)
        r = read_shell_policy(l, top.shell_environment_policy);
    if (r == 0)
        r = read_sandbox(l, top.sandbox);
    if (r == 0)
        r = sp_config_read_environments(l, top.environments);
    if (r == 0)
        r = sp_config_read_profiles(l, top.permissions);
    if (r == 0)
        r = check_top(l, root);
    if (l->config->poll_max_ms < LEAST_POLL_MAX_MS)
        l->config->poll_max_ms = LEAST_POLL_MAX_MS;
    return r;
}

/* ---- load ---- */

/* The layers are freed at the end: all that is kept was copied into the arena. */
int sp_config_load(const struct sp_config_ask *ask, struct sp_config *ret, struct sp_err *e)
{
    struct sp_err own = {0};
    struct sp_config_layers layers __attribute__((cleanup(sp_config_layers_done))) = {0};
    struct sp_config c = defaults();
    struct sp_config_loading l = {.config = &c, .e = e == NULL ? &own : e};

    l.impl = calloc(1, sizeof *l.impl);
    if (l.impl == NULL)
        return sp_config_no_memory(e);
    c.impl = l.impl;
    int r = sp_config_find_home(&l, ask->env);
    if (r == 0)
        r = sp_config_read_layers(&l, ask, &layers);
    if (r == 0)
        r = read_tree(&l, layers.docs[0].root);
    if (r < 0) {
        sp_config_done(&c);
        return r;
    }
    *ret = c;
    return 0;
}

void sp_config_done(struct sp_config *c)
{
    struct sp_config_impl *impl = c->impl;

    for (size_t i = 0; i < c->profile_count; i++)
        sp_profile_done(&c->profiles[i].profile);
    if (impl != NULL)
        sp_arena_done(&impl->arena);
    free(impl);
    *c = (struct sp_config){0};
}
