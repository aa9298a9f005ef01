/* SPDX-License-Identifier: Apache-2.0 */
/* [environments.NAME]: places to run commands; and the URLs that lead there. */
#include <stdlib.h>

#include "config/config_keys.h"

#define MAX_ENVIRONMENTS 256
#define MAX_NAME         64
#define CONNECT_MS       10000

/* ---- URLs ---- */

static bool is_host_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != 0 && strchr("-._~", c) != NULL);
}

/* [IPv6], or a name or an IPv4 address; moves behind it. */
static bool skip_host(const char **p)
{
    const char *first = *p;

    if (*first == '[') {
        *p += 1 + strspn(first + 1, "0123456789abcdefABCDEF:.");
        if (**p != ']' || *p == first + 1)
            return false;
        (*p)++;
        return true;
    }
    while (is_host_char(**p))
        (*p)++;
    return *p != first;
}

static const char *check_authority(const char *p)
{
    uint64_t port = 1;

    if (!skip_host(&p))
        return "expected a host after `//`";
    if (*p == ':') {
        const size_t n = strcspn(++p, "/?");

        if (!sp_str_to_u64((struct sp_str){p, n}, 65535, &port) || port == 0)
            return "expected a port from 1 to 65535 after the host's `:`";
        p += n;
    }
    return *p == 0 || *p == '/' || *p == '?' ? NULL : "a character that a host does not have";
}

const char *sp_config_check_url(const char *url)
{
    const char *rest = strstr(url, "://");
    const struct sp_str scheme = {url, rest == NULL ? 0 : (size_t)(rest - url)};

    for (const char *p = url; *p != 0; p++)
        if (*p <= ' ' || *p >= 0x7F || *p == '#')
            return "blanks, control characters, `#` and what is not ASCII must be escaped";
    if (sp_str_eq(scheme, SP_STR("unix")))
        return rest[3] == '/' && rest[4] != 0 ? NULL : "expected unix:///PATH";
    if (!sp_str_eq(scheme, SP_STR("ws")) && !sp_str_eq(scheme, SP_STR("wss")))
        return "expected ws://HOST:PORT, wss://HOST:PORT or unix:///PATH";
    return check_authority(rest + 3);
}

/* ---- one environment ---- */

static bool is_name(struct sp_str s)
{
    for (size_t i = 0; i < s.n; i++) {
        const char c = s.p[i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '-' || c == '_'))
            return false;
    }
    return s.n != 0 && s.n <= MAX_NAME;
}

static int check_name(const struct sp_toml_value *v, struct sp_err *e)
{
    if (!is_name(v->key))
        return sp_toml_refuse_key(
            v, e, "the name of an environment is 1 to %d letters, digits, - and _", MAX_NAME);
    if (sp_str_eq(v->key, SP_STR("local")))
        return sp_toml_refuse_key(v, e, "`local` is this host: choose another name");
    if (v->type != SP_TOML_TABLE)
        return sp_toml_refuse(v, e, "environment `%s`: expected a table, not %s", v->key.p,
                              sp_toml_type_name(v->type));
    return 0;
}

static int check_kind(const struct sp_toml_value *v, const struct sp_config_raw_environment *raw,
                      struct sp_err *e)
{
    if ((raw->is.url == NULL) == (raw->program == NULL))
        return sp_toml_refuse_key(v, e, "environment `%s`: give `url` or `program`%s", v->key.p,
                                  raw->program == NULL ? "" : ", not both");
    if (raw->program == NULL && (raw->args != NULL || raw->env != NULL))
        return sp_toml_refuse_key(v, e, "environment `%s`: `args` and `env` go with `program`",
                                  v->key.p);
    if (raw->program != NULL && raw->is.token_file != NULL)
        return sp_toml_refuse_key(v, e, "environment `%s`: `token_file` goes with `url`", v->key.p);
    return 0;
}

static int check_values(const struct sp_toml_value *v, const struct sp_config_raw_environment *raw,
                        struct sp_err *e)
{
    const char *trouble = raw->is.url == NULL ? NULL : sp_config_check_url(raw->is.url);

    if (trouble != NULL)
        return sp_toml_refuse(sp_toml_get(v, SP_STR("url")), e, "`url`: %s", trouble);
    if (raw->is.cwd != NULL && raw->is.cwd[0] != '/')
        return sp_toml_refuse(sp_toml_get(v, SP_STR("cwd")), e, "`cwd`: expected an absolute path");
    if (raw->program != NULL &&
        (raw->program[0] == 0 || (raw->program[0] != '/' && strchr(raw->program, '/') != NULL)))
        return sp_toml_refuse(sp_toml_get(v, SP_STR("program")), e,
                              "`program`: expected an absolute path, or a name to find in PATH");
    return 0;
}

/* ---- its program ---- */

static size_t count(char *const *list)
{
    size_t n = 0;

    while (list != NULL && list[n] != NULL)
        n++;
    return n;
}

static int make_argv(struct sp_config_loading *l, struct sp_config_raw_environment *raw)
{
    const size_t n = count(raw->args);
    char **argv = sp_arena_new(&l->impl->arena, (n + 2) * sizeof(char *));

    if (argv == NULL)
        return sp_config_no_memory(l->e);
    argv[0] = raw->program;
    if (n != 0)
        memcpy(argv + 1, raw->args, n * sizeof(char *));
    raw->is.program = argv;
    return 0;
}

static int make_variable(struct sp_config_loading *l, const struct sp_toml_value *v, char **ret)
{
    if (v->key.n == 0 || memchr(v->key.p, '=', v->key.n) != NULL || sp_str_has_nul(v->key))
        return sp_toml_refuse_key(v, l->e, "`env`: a variable's name has no `=` and no NUL in it");
    if (v->type != SP_TOML_STRING || sp_str_has_nul(v->text))
        return sp_toml_refuse(v, l->e, "`env`: expected a string without NUL");
    char *text = sp_arena_new(&l->impl->arena, v->key.n + v->text.n + 2);
    if (text == NULL)
        return sp_config_no_memory(l->e);
    memcpy(text, v->key.p, v->key.n);
    text[v->key.n] = '=';
    memcpy(text + v->key.n + 1, v->text.p, v->text.n);
    *ret = text;
    return 0;
}

static int make_env(struct sp_config_loading *l, struct sp_config_raw_environment *raw)
{
    size_t n = 0;
    int r = 0;

    if (raw->env == NULL)
        return 0;
    char **env = sp_arena_new(&l->impl->arena, (raw->env->count + 1) * sizeof(char *));
    if (env == NULL)
        return sp_config_no_memory(l->e);
    for (const struct sp_toml_value *v = raw->env->first; r == 0 && v != NULL; v = v->next)
        r = make_variable(l, v, &env[n++]);
    raw->is.env = env;
    return r;
}

/* ---- all of them ---- */

static int read_environment(struct sp_config_loading *l, const struct sp_toml_value *v,
                            struct sp_config_environment *ret)
{
    struct sp_config_raw_environment raw = {.is.connect_timeout_ms = CONNECT_MS};
    int r = check_name(v, l->e);

    if (r == 0)
        r = sp_config_read_section(l, "environments.NAME", v, &raw);
    if (r == 0)
        r = check_kind(v, &raw, l->e);
    if (r == 0)
        r = check_values(v, &raw, l->e);
    if (r == 0 && raw.program != NULL)
        r = make_argv(l, &raw);
    if (r == 0)
        r = make_env(l, &raw);
    if (r < 0)
        return r;
    raw.is.name = sp_arena_copy(&l->impl->arena, v->key);
    *ret = raw.is;
    return raw.is.name == NULL ? sp_config_no_memory(l->e) : 0;
}

int sp_config_read_environments(struct sp_config_loading *l, const struct sp_toml_value *table)
{
    struct sp_config *c = l->config;
    int r = 0;

    if (table == NULL)
        return 0;
    if (table->count > MAX_ENVIRONMENTS)
        return sp_toml_refuse_key(table, l->e, "more than %d environments", MAX_ENVIRONMENTS);
    c->environments = sp_arena_new(&l->impl->arena, (table->count + 1) * sizeof *c->environments);
    if (c->environments == NULL)
        return sp_config_no_memory(l->e);
    for (const struct sp_toml_value *v = table->first; r == 0 && v != NULL; v = v->next)
        r = read_environment(l, v, &c->environments[c->environment_count++]);
    return r;
}

const struct sp_config_environment *sp_config_find_environment(const struct sp_config *c,
                                                               const char *name)
{
    for (size_t i = 0; i < c->environment_count; i++)
        if (strcmp(c->environments[i].name, name) == 0)
            return &c->environments[i];
    return NULL;
}
