/* SPDX-License-Identifier: Apache-2.0 */
/* [shell_environment_policy] (unified-exec.md 9.2) and [sandbox]. */
#include "config/config_keys.h"
#include "sandbox/resolve.h"

/* ---- what the environment of a command is made of ---- */

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

static int make_variable(struct sp_config_loading *l, const struct sp_toml_value *v,
                         struct sp_environ_var *ret)
{
    if (v->key.n == 0 || memchr(v->key.p, '=', v->key.n) != NULL || sp_str_has_nul(v->key))
        return sp_toml_refuse_key(v, l->e, "`set`: a variable's name has no `=` and no NUL in it");
    if (v->type != SP_TOML_STRING || sp_str_has_nul(v->text))
        return sp_toml_refuse(v, l->e, "`set`: expected a string without NUL");
    const char *name = sp_arena_copy(&l->impl->arena, v->key);
    const char *value = sp_arena_copy(&l->impl->arena, v->text);
    if (name == NULL || value == NULL)
        return sp_config_no_memory(l->e);
    *ret = (struct sp_environ_var){.name = {name, v->key.n}, .value = {value, v->text.n}};
    return 0;
}

static int make_set(struct sp_config_loading *l, const struct sp_toml_value *table)
{
    uint32_t n = 0;
    int r = 0;

    if (table == NULL)
        return 0;
    struct sp_environ_var *vars = sp_arena_new(&l->impl->arena, (table->count + 1) * sizeof *vars);
    if (vars == NULL)
        return sp_config_no_memory(l->e);
    for (const struct sp_toml_value *v = table->first; r == 0 && v != NULL; v = v->next)
        r = make_variable(l, v, &vars[n++]);
    l->config->env_set = (struct sp_environ_vars){.items = vars, .count = n};
    return r;
}

static enum sp_env_inherit inherit_of(const char *word)
{
    if (word == NULL || strcmp(word, "all") == 0)
        return SP_ENV_ALL;
    return strcmp(word, "core") == 0 ? SP_ENV_CORE : SP_ENV_NONE;
}

int sp_config_read_shell_policy(struct sp_config_loading *l, const struct sp_toml_value *table)
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

/* ---- the sandbox's switches ---- */

static bool is_protected(struct sp_str name)
{
    for (size_t i = 0; i < SP_PROTECTED_COUNT; i++)
        if (sp_str_eq(name, sp_str_of(sp_protected_names[i])))
            return true;
    return false;
}

/* A protection that is asked for and cannot be given is refused, not forgotten. */
int sp_config_read_sandbox(struct sp_config_loading *l, const struct sp_toml_value *table)
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
