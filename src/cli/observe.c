/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection to one server. Requests are made one after the other: sp_observe_ask() runs the
 * loop until the answer is there, while notifications go to the ops of the command.
 */
#include "cli/observe.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/redact.h"
#include "cli/escape_text.h"
#include "cli/own_stdio.h"
#include "cli/sockets.h"
#include "config/config.h"

#define FALLBACK_URL "ws://127.0.0.1:8765"
#define RESUME_MS    5000 /* a person waits for the connection to come back */
#define MAX_SHOWN    6    /* servers that an error lists */

const struct sp_option sp_observe_options[] = {
    SP_OPT_HEADING("Which server:"),
    SP_OPT_STRING(struct sp_observe_options, server, "server", "NAME|URL",
                  "an environment of the configuration, ws://HOST:PORT or unix:///PATH (default: "
                  "`server` of the configuration, else the only server of this user on this "
                  "machine, else " FALLBACK_URL ")"),
    SP_OPT_STRING(struct sp_observe_options, token_file, "token-file", "FILE",
                  "the token of the server"),
    SP_OPT_TABLE(struct sp_observe_options, config, sp_config_options),
    SP_OPT_END,
};

/* ---- which server ---- */

/* The URL is copied twice: with its query for the connection, without it for messages. */
static int set_server(struct sp_observe *o, const char *url, const char *token_file,
                      struct sp_err *e)
{
    o->url = strdup(url);
    o->shown_url = sp_redact_url(url);
    if (o->url == NULL || o->shown_url == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "copy the URL of the server");
    return token_file == NULL ? 0 : sp_config_read_token(token_file, &o->token, e);
}

/* An environment of the configuration has a URL and a token file of its own. */
static int set_environment(struct sp_observe *o, const struct sp_config *c, const char *name,
                           const char *token_file, struct sp_err *e)
{
    const struct sp_config_environment *env = sp_config_find_environment(c, name);

    if (env == NULL)
        return sp_fail(e, SP_E_INVALID, 0,
                       "no such server: %s is neither a URL nor an [environments.%s] of the "
                       "configuration",
                       name, name);
    if (env->url == NULL)
        return sp_fail(e, SP_E_INVALID, 0,
                       "the environment %s is a program that is started for each use: no server "
                       "runs there",
                       name);
    o->connect_timeout_ms = env->connect_timeout_ms;
    return set_server(o, env->url, token_file != NULL ? token_file : env->token_file, e);
}

/* The only server of this user that runs here. Its socket needs no token. */
static int set_local(struct sp_observe *o, const char *token_file, struct sp_err *e)
{
    auto_free struct sp_socket *found = calloc(SP_MAX_SOCKETS, sizeof *found);
    auto_buf struct sp_buf list = {0};

    if (found == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "look for servers");
    const unsigned count = sp_sockets_find(found);
    if (count == 0)
        return set_server(o, FALLBACK_URL, token_file, e);
    if (count == 1)
        return set_server(o, found[0].url, NULL, e);
    for (unsigned i = 0; i < count && i < MAX_SHOWN; i++)
        (void)sp_buf_printf(&list, " %s", found[i].url); /* out of memory: a shorter list */
    return sp_fail(e, SP_E_INVALID, 0, "%u servers run here; name one with --server:%.*s%s", count,
                   (int)list.len, list.data != NULL ? list.data : "",
                   count > MAX_SHOWN ? " ..." : "");
}

/* --server, else `server` of the configuration, else the local socket of the only server here. */
static int find_server(struct sp_observe *o, const struct sp_observe_options *options,
                       struct sp_err *e)
{
    struct sp_config c __attribute__((cleanup(sp_config_done))) = {0};
    const int r = sp_cli_load_config(&options->config, "Warning", &c, e);

    if (r < 0)
        return r;
    /* The configured token is sent to the configured server only: not to one that --server names,
     * nor to a process that happens to listen at the fallback address. */
    const char *server = options->server != NULL ? options->server : c.server;
    const char *token_file = options->token_file;
    if (token_file == NULL && c.server != NULL && strcmp(server, c.server) == 0)
        token_file = c.token_file;
    if (server == NULL)
        return set_local(o, token_file, e);
    if (strstr(server, "://") != NULL)
        return set_server(o, server, token_file, e);
    return set_environment(o, &c, server, token_file, e);
}

/* ---- events of the connection ---- */

/* environmentInfo.capabilities.observe of the answer to `initialize` */
static bool has_capability(struct sp_json *j, uint32_t result)
{
    static const char *const path[] = {"environmentInfo", "capabilities", "observe"};
    uint32_t at = result;

    for (size_t i = 0; i < sizeof path / sizeof path[0] && at != SP_JSON_NONE; i++)
        at = sp_json_type(j, at) == SP_JSON_OBJECT ? sp_json_get(j, at, path[i]) : SP_JSON_NONE;
    return at != SP_JSON_NONE && sp_json_type(j, at) == SP_JSON_TRUE;
}

/* The first time this ends connect_to_server(); later it is a reconnect. */
static void on_ready(void *user, struct sp_json *j, uint32_t value, bool was_resumed)
{
    struct sp_observe *o = user;

    (void)was_resumed; /* attachments end with the connection also if the session is resumed */
    if (o->is_ready) {
        if (o->ops != NULL && o->ops->back != NULL)
            o->ops->back(o->user);
        return;
    }
    o->is_ready = true;
    o->can_observe = has_capability(j, value);
    sp_loop_stop(o->loop);
}

static void on_notified(void *user, struct sp_str method, struct sp_json *j, uint32_t params)
{
    struct sp_observe *o = user;

    if (o->ops != NULL && o->ops->notified != NULL)
        o->ops->notified(o->user, method, j, params);
}

static void on_interrupted(void *user, const char *why)
{
    struct sp_observe *o = user;

    if (o->ops != NULL && o->ops->interrupted != NULL)
        o->ops->interrupted(o->user, why);
}

/* The loop stops in any case, so that sp_observe_ask() does not wait for ever. */
static void on_dead(void *user, const struct sp_err *why)
{
    struct sp_observe *o = user;

    o->death = *why;
    if (o->death.code == SP_E_NONE)
        o->death.code = SP_E_FAILED;
    if (o->ops != NULL && o->ops->dead != NULL)
        o->ops->dead(o->user);
    sp_loop_stop(o->loop);
}

/* ---- opening and closing ---- */

static int connect_to_server(struct sp_observe *o, struct sp_err *e)
{
    static const struct sp_client_ops client_ops = {
        .ready = on_ready, .notified = on_notified, .interrupted = on_interrupted, .dead = on_dead};
    const struct sp_client_options options = {
        .url = o->url,
        .token = o->token,
        .connect_timeout_ms = o->connect_timeout_ms,
        .resume_ms = RESUME_MS,
        .client_name = "sallyport",
    };
    int r = sp_loop_new(&o->loop, e);

    if (r == 0)
        r = sp_client_new(o->loop, &options, &client_ops, o, &o->client, e);
    if (r < 0)
        return r;
    sp_client_connect(o->client);
    r = sp_loop_run(o->loop, e); /* until on_ready or on_dead */
    if (r < 0)
        return r;
    if (o->death.code != SP_E_NONE) {
        *e = o->death;
        return -(int)e->code;
    }
    return o->can_observe
               ? 0
               : sp_fail(e, SP_E_FAILED, 0,
                         "the server at %s does not let its processes be observed", o->shown_url);
}

int sp_observe_open(const struct sp_observe_options *options, struct sp_observe **ret)
{
    struct sp_err e = {0};
    struct sp_observe *o = calloc(1, sizeof *o);

    if (o == NULL) {
        (void)sp_fail(&e, SP_E_SYSTEM, ENOMEM, "connect to a server");
        return sp_cli_complain(&e);
    }
    sp_port_fill_gaps();
    (void)signal(SIGCHLD, SIG_DFL);
    int r = find_server(o, options, &e);
    if (r == 0)
        r = connect_to_server(o, &e);
    if (r == 0) {
        *ret = o;
        return SP_EXIT_OK;
    }
    const int status = sp_observe_complain(o, &e);
    sp_observe_free(o);
    return status;
}

void sp_observe_free(struct sp_observe *o)
{
    if (o == NULL)
        return;
    o->ops = NULL;
    sp_client_free(o->client);
    sp_loop_free(o->loop);
    free(o->url);
    free(o->shown_url);
    free(o->token);
    free(o);
}

/* ---- requests ---- */

struct question {
    struct sp_client_request request;
    struct sp_observe *observe;
    void (*fn)(void *user, struct sp_json *j, uint32_t result);
    void *user;
    struct sp_err *error;
    int result;
    bool is_answered;
};

/* The message of a refusal comes from the server, so it is escaped. */
static void on_answer(struct sp_client_request *r, const struct sp_client_reply *reply)
{
    struct question *q = SP_CONTAINER(r, struct question, request);
    auto_buf struct sp_buf text = {0};

    q->is_answered = true;
    sp_loop_stop(q->observe->loop);
    if (reply->fate == SP_CLIENT_RESULT) {
        if (q->fn != NULL)
            q->fn(q->user, reply->j, reply->value);
        return;
    }
    const bool is_attached =
        reply->fate == SP_CLIENT_REFUSED && reply->code == sp_code_wire(SP_E_ATTACHED);
    (void)sp_plain_add(&text, reply->message); /* out of memory: an error without text */
    q->result = sp_fail(q->error, is_attached ? SP_E_ATTACHED : SP_E_FAILED, 0, SP_STR_FMT,
                        (int)text.len, text.data != NULL ? text.data : "");
}

int sp_observe_ask(struct sp_observe *o, const char *method, struct sp_str params,
                   void (*fn)(void *user, struct sp_json *j, uint32_t result), void *user,
                   struct sp_err *e)
{
    struct question q = {
        .request = {.fn = on_answer, .is_repeatable = true},
        .observe = o,
        .fn = fn,
        .user = user,
        .error = e,
    };
    int r = 0;

    sp_client_ask(o->client, &q.request, method, params);
    while (r == 0 && !q.is_answered && o->death.code == SP_E_NONE)
        r = sp_loop_run(o->loop, e);
    if (q.is_answered)
        return q.result;
    sp_client_forget(&q.request);
    if (r == 0) {
        *e = o->death;
        r = -(int)o->death.code;
    }
    return r;
}

int sp_observe_complain(const struct sp_observe *o, const struct sp_err *e)
{
    (void)sp_cli_complain(e);
    return o->death.code != SP_E_NONE ? SP_EXIT_UNREACHABLE : SP_EXIT_FAILED;
}
