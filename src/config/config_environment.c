/* SPDX-License-Identifier: Apache-2.0 */
/*
 * [environments.NAME], places to run commands: their URLs and programs, the bearer tokens for them,
 * and the choice of one by --on.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/redact.h"
#include "config/config_keys.h"
#include "config/config_place.h"

#define MAX_ENVIRONMENTS 256
#define MAX_NAME         64
#define CONNECT_MS       10000
#define MAX_TOKEN        8192 /* bytes of a token's file */

/* ---- URLs ---- */

/* HOST[:PORT] and what follows. HOST is a [IPv6] address, an IPv4 address or a name. */
static const char *check_authority(const char *p)
{
    static const char host[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~";
    const bool is_ipv6 = *p == '[';
    const size_t len = is_ipv6 ? strspn(p + 1, "0123456789abcdefABCDEF:.") : strspn(p, host);
    uint64_t port = 1;

    if (len == 0 || (is_ipv6 && p[1 + len] != ']'))
        return "expected a host after `//`";
    p += is_ipv6 ? len + 2 : len;
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

static int check_name(const struct sp_toml_value *v, struct sp_err *e)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";

    if (v->key.n == 0 || v->key.n > MAX_NAME || strspn(v->key.p, letters) != v->key.n)
        return sp_toml_refuse_key(
            v, e, "the name of an environment is 1 to %d letters, digits, - and _", MAX_NAME);
    if (sp_str_eq(v->key, SP_STR("local")))
        return sp_toml_refuse_key(v, e, "`local` is this host: choose another name");
    if (v->type != SP_TOML_TABLE)
        return sp_toml_refuse(v, e, "environment `%s`: expected a table, not %s", v->key.p,
                              sp_toml_type_name(v->type));
    return 0;
}

/* A program is executed, so it must not depend on the working directory. */
static int check_environment(const struct sp_toml_value *v,
                             const struct sp_config_raw_environment *raw, struct sp_err *e)
{
    const char *trouble = raw->is.url == NULL ? NULL : sp_config_check_url(raw->is.url);

    if ((raw->is.url == NULL) == (raw->program == NULL))
        return sp_toml_refuse_key(v, e, "environment `%s`: give `url` or `program`%s", v->key.p,
                                  raw->program == NULL ? "" : ", not both");
    if (raw->program == NULL && (raw->args != NULL || raw->env != NULL))
        return sp_toml_refuse_key(v, e, "environment `%s`: `args` and `env` go with `program`",
                                  v->key.p);
    if (raw->program != NULL && raw->is.token_file != NULL)
        return sp_toml_refuse_key(v, e, "environment `%s`: `token_file` goes with `url`", v->key.p);
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

static int read_environment(struct sp_config_loading *l, const struct sp_toml_value *v,
                            struct sp_config_environment *ret)
{
    struct sp_config_raw_environment raw = {.is.connect_timeout_ms = CONNECT_MS};
    size_t n = 0;
    int r = check_name(v, l->e);

    if (r == 0)
        r = sp_config_read_section(l, "environments.NAME", v, &raw);
    if (r == 0)
        r = check_environment(v, &raw, l->e);
    if (r == 0)
        r = sp_config_keep(l, v->key, &raw.is.name);
    if (r < 0)
        return r;
    if (raw.program != NULL) {
        while (raw.args != NULL && raw.args[n] != NULL)
            n++;
        raw.is.program = sp_arena_new(&l->impl->arena, (n + 2) * sizeof(char *));
        if (raw.is.program == NULL)
            return sp_config_no_memory(l->e);
        raw.is.program[0] = raw.program;
        if (n != 0)
            memcpy(raw.is.program + 1, raw.args, n * sizeof(char *));
    }
    if (raw.env != NULL) {
        raw.is.env = sp_arena_new(&l->impl->arena, (raw.env->count + 1) * sizeof(char *));
        if (raw.is.env == NULL)
            return sp_config_no_memory(l->e);
        n = 0;
        for (const struct sp_toml_value *w = raw.env->first; w != NULL; w = w->next) {
            auto_buf struct sp_buf text = {0};

            r = sp_config_check_variable(l, w, "env");
            if (r == 0 && !(sp_buf_add_str(&text, w->key) && sp_buf_add(&text, "=", 1) &&
                            sp_buf_add_str(&text, w->text)))
                r = sp_config_no_memory(l->e);
            if (r == 0)
                r = sp_config_keep(l, sp_buf_str(&text), &raw.is.env[n++]);
            if (r < 0)
                return r;
        }
    }
    *ret = raw.is;
    return 0;
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

/* ---- tokens ---- */

/* The token, in `text`. */
static int read_token(int fd, const char *path, struct sp_str *ret, char text[MAX_TOKEN + 1],
                      struct sp_err *e)
{
    struct stat st;
    size_t n = 0;
    ssize_t got = 1;
    const int r = sp_config_check_owner(fd, path, &st, e);

    if (r < 0)
        return r;
    if ((st.st_mode & (S_IRWXG | S_IRWXO | S_ISUID | S_ISGID)) != 0)
        return sp_fail(
            e, SP_E_INVALID, 0,
            "%s: others may read or write it (mode %04o); a token is for its owner alone: "
            "chmod 600 it",
            path, (unsigned)st.st_mode & 07777);
    while (n <= MAX_TOKEN && got != 0) {
        got = read(fd, text + n, MAX_TOKEN + 1 - n);
        if (got < 0 && errno != EINTR)
            return sp_fail(e, SP_E_SYSTEM, errno, "read %s", path);
        n += got > 0 ? (size_t)got : 0;
    }
    if (n > MAX_TOKEN)
        return sp_fail(e, SP_E_INVALID, 0, "%s: more than %d bytes", path, MAX_TOKEN);
    while (n != 0 && text[n - 1] != 0 && strchr(" \t\r\n", text[n - 1]) != NULL)
        n--;
    if (n == 0)
        return sp_fail(e, SP_E_INVALID, 0, "%s: there is no token in it", path);
    for (size_t i = 0; i < n; i++)
        if (text[i] <= ' ' || text[i] >= 0x7F) /* what an HTTP header carries; char may be signed */
            return sp_fail(e, SP_E_INVALID, 0,
                           "%s: a token is one line of visible ASCII characters", path);
    *ret = (struct sp_str){text, n};
    return 0;
}

int sp_config_read_token(const char *path, char **ret, struct sp_err *e)
{
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    char text[MAX_TOKEN + 1]; /* not a growing buffer, which would leave copies behind */
    struct sp_str token = SP_STR("");

    if (fd < 0)
        return sp_fail(e, SP_E_INVALID, errno, "read the token in %s", path);
    int r = read_token(fd, path, &token, text, e);
    if (r == 0 && (*ret = strndup(token.p, token.n)) == NULL)
        r = sp_fail(e, SP_E_SYSTEM, ENOMEM, "read %s", path);
    explicit_bzero(text, sizeof text);
    return r;
}

/* ---- --on ---- */

void sp_config_place_done(struct sp_config_place *p)
{
    if (p->token != NULL)
        explicit_bzero(p->token, strlen(p->token));
    free(p->token);
    free(p->own_name);
    *p = (struct sp_config_place){0};
}

/* The name of a URL that is not configured is redacted: it may contain a password. */
int sp_config_place(const struct sp_config *c, const char *name_or_url, struct sp_config_place *ret,
                    struct sp_err *e)
{
    const char *name = name_or_url == NULL ? c->default_environment : name_or_url;
    const bool is_url = strstr(name, "://") != NULL;
    const struct sp_config_environment *env = is_url ? NULL : sp_config_find_environment(c, name);
    struct sp_config_place p = {.name = name, .url = name, .connect_timeout_ms = CONNECT_MS};
    auto_buf struct sp_buf names = {0};
    int r = 0;

    if (strcmp(name, "local") == 0) {
        *ret = (struct sp_config_place){.is_local = true, .name = name};
        return 0;
    }
    /* A configured URL gets the settings of its environment even if --on gives the URL. */
    for (size_t i = 0; is_url && env == NULL && i < c->environment_count; i++)
        if (c->environments[i].url != NULL && strcmp(c->environments[i].url, name) == 0)
            env = &c->environments[i];
    if (env == NULL && !is_url) {
        for (size_t i = 0; i < c->environment_count; i++)
            (void)sp_buf_printf(&names, ", %s", c->environments[i].name); /* ENOMEM: fewer names */
        return sp_fail(e, SP_E_NOT_FOUND, 0,
                       "there is no environment `%.80s`; there are local%.*s, and "
                       "[environments.%.80s] in the configuration would be one",
                       name, names.len > 160 ? 160 : (int)names.len, sp_buf_str(&names).p, name);
    }
    if (env != NULL)
        p = (struct sp_config_place){
            .name = env->name,
            .url = env->url,
            .program = (const char *const *)env->program,
            .env = (const char *const *)env->env,
            .cwd = env->cwd,
            .connect_timeout_ms = env->connect_timeout_ms,
        };
    const char *trouble = p.url == NULL ? NULL : sp_config_check_url(p.url);
    char shown[128];
    if (trouble != NULL)
        return sp_fail(e, SP_E_INVALID, 0, "`%s`: %s", sp_redact_url_to(p.url, shown, sizeof shown),
                       trouble);
    const char *token_file = env == NULL ? NULL : env->token_file;
    if (token_file == NULL && p.url != NULL && c->server != NULL &&
        (strcmp(c->server, p.url) == 0 || strcmp(c->server, p.name) == 0))
        token_file = c->token_file;
    if (token_file != NULL)
        r = sp_config_read_token(token_file, &p.token, e);
    if (r == 0 && env == NULL) {
        p.name = p.own_name = sp_redact_url(p.url);
        r = p.name == NULL ? sp_config_no_memory(e) : 0;
    }
    if (r < 0)
        sp_config_place_done(&p);
    else
        *ret = p;
    return r;
}
