/* SPDX-License-Identifier: Apache-2.0 */
/* observe: which server. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/auto.h"
#include "base/redact.h"
#include "cli/observe.h"
#include "cli/sockets.h"
#include "config/config.h"

#define FALLBACK_URL "ws://127.0.0.1:8765"

static bool copy(const char *text, char **ret)
{
    *ret = text == NULL ? NULL : strdup(text);
    return text == NULL || *ret != NULL;
}

static int set_place(const char *url, const char *token_file, struct sp_observe_server *ret,
                     struct sp_err *e)
{
    if (!copy(url, &ret->url) || (ret->shown = sp_redact_url(url)) == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "remember the server");
    return token_file == NULL ? 0 : sp_config_read_token(token_file, &ret->token, e);
}

/* An environment of the configuration. */
static int use_environment(const struct sp_config *c, const char *name, const char *token_file,
                           struct sp_observe_server *ret, struct sp_err *e)
{
    const struct sp_config_environment *env = sp_config_find_environment(c, name);

    if (env == NULL)
        return sp_fail(e, SP_E_INVALID, 0,
                       "no such server: %s is neither a URL nor an [environments.%s] of the "
                       "configuration",
                       name, name);
    if (env->url == NULL)
        return sp_fail(e, SP_E_INVALID, 0,
                       "the environment %s is a program that is started for each use: nothing runs "
                       "there to look at",
                       name);
    ret->connect_timeout_ms = env->connect_timeout_ms;
    return set_place(env->url, token_file != NULL ? token_file : env->token_file, ret, e);
}

static int too_many(const struct sp_socket *found, unsigned count, struct sp_err *e)
{
    auto_buf struct sp_buf list = {0};

    for (unsigned i = 0; i < count && i < 6; i++)
        (void)sp_buf_printf(&list, " %s", found[i].url); /* shorter is good enough */
    return sp_fail(e, SP_E_INVALID, 0, "%u servers run here; name one with --server:%.*s%s", count,
                   (int)list.len, list.data != NULL ? list.data : "", count > 6 ? " ..." : "");
}

/* The one that runs here. Its socket needs no token. */
static int use_local(const char *token_file, struct sp_observe_server *ret, struct sp_err *e)
{
    auto_free struct sp_socket *found = calloc(SP_MAX_SOCKETS, sizeof *found);

    if (found == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "look for servers");
    const unsigned count = sp_sockets_find(found);
    if (count > 1)
        return too_many(found, count, e);
    return count == 1 ? set_place(found[0].url, NULL, ret, e)
                      : set_place(FALLBACK_URL, token_file, ret, e);
}

/* A configured token is for the configured server: not for one that is named now, nor for whoever
 * listens at the usual address. */
static int choose(const struct sp_observe_flags *f, const struct sp_config *c,
                  struct sp_observe_server *ret, struct sp_err *e)
{
    const char *server = f->server != NULL ? f->server : c->server;
    const bool is_configured =
        c->server != NULL && (f->server == NULL || strcmp(f->server, c->server) == 0);
    const char *token_file = f->token_file;

    if (token_file == NULL && is_configured)
        token_file = c->token_file;
    if (server == NULL)
        return use_local(token_file, ret, e);
    if (strstr(server, "://") != NULL)
        return set_place(server, token_file, ret, e);
    return use_environment(c, server, token_file, ret, e);
}

int sp_observe_find(const struct sp_observe_flags *f, struct sp_observe_server *ret,
                    struct sp_err *e)
{
    const struct sp_config_ask ask = {.file = f->config, .sets = f->sets, .environment = environ};
    struct sp_config c = {0};
    struct sp_observe_server s = {0};
    int r = sp_config_load(&ask, &c, e);

    if (r < 0)
        return r;
    for (char *const *w = c.warnings; w != NULL && *w != NULL; w++)
        (void)fprintf(stderr, "Warning: %s\n", *w);
    r = choose(f, &c, &s, e);
    sp_config_done(&c);
    if (r < 0)
        sp_observe_server_done(&s);
    else
        *ret = s;
    return r;
}

void sp_observe_server_done(struct sp_observe_server *s)
{
    free(s->url);
    free(s->shown);
    free(s->token);
    *s = (struct sp_observe_server){0};
}
