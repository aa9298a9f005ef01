/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config_place.h"

#include <stdlib.h>

#include "base/redact.h"
#include "config/config_priv.h"

#define CONNECT_MS 10000

void sp_config_place_done(struct sp_config_place *p)
{
    if (p->token != NULL)
        explicit_bzero(p->token, strlen(p->token));
    free(p->token);
    free(p->own_name);
    *p = (struct sp_config_place){0};
}

/* By its URL, so that a URL that is known is treated alike however it is named. */
static const struct sp_config_environment *find_url(const struct sp_config *c, const char *url)
{
    for (size_t i = 0; i < c->environment_count; i++)
        if (c->environments[i].url != NULL && strcmp(c->environments[i].url, url) == 0)
            return &c->environments[i];
    return NULL;
}

static struct sp_config_place of_environment(const struct sp_config_environment *env)
{
    return (struct sp_config_place){
        .name = env->name,
        .url = env->url,
        .program = (const char *const *)env->program,
        .env = (const char *const *)env->env,
        .cwd = env->cwd,
        .connect_timeout_ms = env->connect_timeout_ms,
    };
}

/* Whether it is `server`, which is named by its URL or as an environment. */
static bool is_server(const struct sp_config *c, const struct sp_config_place *p)
{
    return p->url != NULL && c->server != NULL &&
           (strcmp(c->server, p->url) == 0 || strcmp(c->server, p->name) == 0);
}

static int refuse_name(const struct sp_config *c, const char *name, struct sp_err *e)
{
    auto_buf struct sp_buf names = {0};

    for (size_t i = 0; i < c->environment_count; i++)
        (void)sp_buf_printf(&names, ", %s", c->environments[i].name); /* as many as there is room */
    return sp_fail(e, SP_E_NOT_FOUND, 0,
                   "there is no environment `%.80s`; there are local%.*s, and "
                   "[environments.%.80s] in the configuration would be one",
                   name, names.len > 160 ? 160 : (int)names.len, names.len == 0 ? "" : names.data,
                   name);
}

int sp_config_place(const struct sp_config *c, const char *name_or_url, struct sp_config_place *ret,
                    struct sp_err *e)
{
    const char *name = name_or_url == NULL ? c->default_environment : name_or_url;
    const bool is_url = strstr(name, "://") != NULL;
    const struct sp_config_environment *env =
        is_url ? find_url(c, name) : sp_config_find_environment(c, name);
    const char *token_file = env == NULL ? NULL : env->token_file;
    struct sp_config_place p = {.name = name, .url = name, .connect_timeout_ms = CONNECT_MS};
    int r = 0;

    if (strcmp(name, "local") == 0) {
        *ret = (struct sp_config_place){.is_local = true, .name = name};
        return 0;
    }
    if (env != NULL)
        p = of_environment(env);
    else if (!is_url)
        return refuse_name(c, name, e);
    const char *trouble = p.url == NULL ? NULL : sp_config_check_url(p.url);
    char shown[128];
    if (trouble != NULL)
        return sp_fail(e, SP_E_INVALID, 0, "`%s`: %s", sp_redact_url_to(p.url, shown, sizeof shown),
                       trouble);
    if (token_file == NULL && is_server(c, &p))
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
