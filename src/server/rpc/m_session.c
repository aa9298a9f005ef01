/* SPDX-License-Identifier: Apache-2.0 */
/* initialize, session/end, environment/info and environment/status. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/log.h"
#include "base/utf8.h"
#include "server/rpc/conn.h"
#include "server/rpc/fs.h"

/* ---- environmentInfo ---- */

/* What each limit of process/start counts on this host; one that cannot be enforced is left out. */
static bool add_limits(struct sp_buf *b, const struct sp_front *front)
{
    const unsigned controllers = sp_leaves_prepare(front->leaves, ~0U, false);
    bool ok = sp_json_add_key(b, "limits") && sp_buf_add(b, "{", 1);

    for (int i = 0; ok && i < SP_LIMIT_COUNT; i++) {
        const char *scope = sp_limit_scope_names[sp_limits_scope(controllers, (enum sp_limit)i)];

        ok = scope == NULL ||
             sp_json_add_member(b, sp_limit_kinds[i].keys[SP_LIMIT_CAMEL], sp_str_of(scope));
    }
    return ok && sp_buf_add(b, "}", 1);
}

/* The members that Codex sends, in its order, and our additions at the end. */
static bool add_info(struct sp_buf *b, const struct sp_conn *conn)
{
    const struct sp_rpc *rpc = conn->rpc;
    const struct sp_host *h = &rpc->host;
    /* Over the local socket of another front nothing is started, so its host is not probed. */
    const bool starts = conn->door != SP_DOOR_OVERSEER;
    auto_free char *cwd = getcwd(NULL, 0);
    char tmp[4096];
    const bool has_cwd = cwd != NULL && cwd[0] == '/'; /* getcwd may return "(unreachable)/..." */
    const char *t = getenv("TMPDIR"); /* a relative one is taken below the working directory */
    int n = -1;

    if (t != NULL && t[0] != 0)
        n = t[0] == '/' ? snprintf(tmp, sizeof tmp, "%s", t)
                        : snprintf(tmp, sizeof tmp, "%s/%s", has_cwd ? cwd : "", t);
    const bool has_tmp = n > 0 && n < (int)sizeof tmp;
    bool ok =
        sp_buf_printf(b, "{\"shell\":{\"name\":\"%s\",\"path\":", h->shell_name) &&
        sp_json_add_str(b, sp_str_of(h->shell_path)) &&
        sp_buf_printf(b, "},\"executorVersion\":\"%s\",\"providerId\":\"%s\",\"cwd\":", SP_VERSION,
                      h->provider_id) &&
        (has_cwd ? sp_fs_add_uri(b, sp_str_of(cwd)) : sp_buf_printf(b, "null")) &&
        sp_buf_printf(b, ",\"userHomeDir\":") &&
        (h->home[0] == '/' ? sp_fs_add_uri(b, sp_str_of(h->home)) : sp_buf_printf(b, "null"));
    ok = ok &&
         sp_buf_printf(
             b, ",\"platformOs\":\"linux\",\"prependPathDirs\":[],\"temporaryDirectories\":[") &&
         (!has_tmp || sp_fs_add_uri(b, sp_str_of(tmp))) && sp_buf_printf(b, "],\"tempDir\":") &&
         sp_fs_add_uri(b, sp_str_of(has_tmp ? tmp : "/tmp"));
    /* Clients use only the additions that are listed here. */
    return ok &&
           sp_buf_printf(
               b,
               ",\"capabilities\":{\"processResize\":true,\"processCloseStdin\":true,"
               "\"processList\":true,\"processInspect\":true,\"processSignals\":true,"
               "\"ptySize\":true,\"processNames\":true,"
               "\"observe\":true,\"history\":%s,\"sessionEnd\":true,\"fsWatchMissing\":true,"
               "\"environmentConfigRead\":true,\"capabilityDiscoverySandbox\":true,"
               "\"sandboxedFileStreaming\":true,\"fileWriteStreaming\":true,"
               "\"approvalWatch\":true,\"processLimits\":true,"
               "\"httpHeaderEnvVars\":%s,\"networkProxyLaunch\":%s%s%s%s}",
               rpc->front->history != NULL ? "true" : "false",
               starts && sp_web_is_possible(rpc->web) ? "true" : "false",
               starts && sp_cell_pool_has_networks(rpc->front->cell_pool) ? "true" : "false",
               rpc->gate != NULL ? ",\"judgesStarts\":true" : "",
               conn->takes_receipts ? ",\"receipts\":true" : "",
               conn->takes_denials ? ",\"denials\":true" : "") &&
           add_limits(b, rpc->front) && sp_buf_add(b, "}", 1);
}

/* ---- methods ---- */

/* No params: absent, null or {}; and the state. */
static int check_bare(const struct sp_rpc_call *c, struct sp_err *e)
{
    const bool is_object =
        c->params != SP_JSON_NONE && sp_json_type(c->json, c->params) == SP_JSON_OBJECT;

    if (c->params != SP_JSON_NONE && sp_json_type(c->json, c->params) != SP_JSON_NULL &&
        !(is_object && c->json->tokens[c->params].children == 0))
        return sp_json_wrong_type(c->json, c->params, "unit", e);
    return sp_rpc_call_check(c, e);
}

/* What a person who has several servers tells them apart by; for local sockets. */
static bool add_server(struct sp_buf *b, const struct sp_conn *conn)
{
    return conn->door == SP_DOOR_CLIENTS ||
           sp_buf_printf(b, ",\"server\":{\"kind\":\"%s\",\"pid\":%d,\"startedAtMs\":%lld}",
                         conn->rpc->kind,
                         (int)(conn->rpc->keeper != 0 ? conn->rpc->keeper : getpid()),
                         (long long)conn->rpc->started_ms);
}

#define CONSOLE_NAME_MAX 128 /* bytes of who and via */

/* console:{who,roles,via} makes the connection a console's: over a local socket only. */
static void read_console(const struct sp_params *params, const struct sp_conn *conn,
                         struct sp_console_peer *ret)
{
    struct sp_params console = {params->json, SP_JSON_NONE, params->err};
    struct sp_str who = {0};
    struct sp_str via = {0};
    uint32_t roles = SP_JSON_NONE;

    sp_params_opt_object(params, "console", &console.object);
    if (!sp_params_ok(params) || console.object == SP_JSON_NONE)
        return;
    sp_params_str(&console, "who", &who);
    sp_params_str(&console, "via", &via);
    sp_params_array(&console, "roles", &roles);
    if (!sp_params_ok(params))
        return;
    if (conn->door == SP_DOOR_CLIENTS) {
        (void)sp_fail(params->err, SP_E_INVALID, 0,
                      "console: only over the local socket of this server (`--on PID`, or its "
                      "name)");
    } else if (who.n == 0 || who.n > CONSOLE_NAME_MAX || via.n == 0 || via.n > CONSOLE_NAME_MAX ||
               sp_str_has_nul(who) || sp_str_has_nul(via)) {
        (void)sp_fail(params->err, SP_E_INVALID, 0,
                      "console: who and via have 1 to %d bytes, and no NUL", CONSOLE_NAME_MAX);
    } else {
        sp_params_each(params, roles, i) {
            if (sp_json_type(params->json, i) != SP_JSON_STRING)
                (void)sp_json_wrong_type(params->json, i, "a string", params->err);
            else
                ret->may_decide |= sp_str_eq(sp_json_str(params->json, i), SP_STR("approver"));
        }
        ret->who = strndup(who.p, who.n);
        ret->via = strndup(via.p, via.n);
        if (ret->who == NULL || ret->via == NULL)
            (void)sp_fail(params->err, SP_E_SYSTEM, ENOMEM, "keep the name of the console");
    }
}

/* Only a client that asks gets new members: others see the messages that they know. */
static bool asks_for(const struct sp_params *params, const char *what)
{
    const uint32_t object = sp_json_get(params->json, params->object, "capabilities");

    if (object == SP_JSON_NONE || sp_json_type(params->json, object) != SP_JSON_OBJECT)
        return false;
    const uint32_t asks = sp_json_get(params->json, object, what);
    return asks != SP_JSON_NONE && sp_json_type(params->json, asks) == SP_JSON_TRUE;
}

static int initialize(struct sp_rpc_call *c, struct sp_err *e)
{
    const struct sp_params params = sp_rpc_call_params(c, e);
    struct sp_params capabilities = {params.json, SP_JSON_NONE, e};
    struct sp_conn *conn = c->conn;
    struct sp_str name = {0};
    struct sp_str resume = {0};
    bool takes_approvals = false;
    struct sp_console_peer console = {0};
    auto_buf struct sp_buf b = {0};

    sp_params_str(&params, "clientName", &name);
    sp_params_opt_str(&params, "resumeSessionId", &resume);
    if (conn->rpc->gate != NULL) /* elsewhere the client is never asked */
        sp_params_opt_object(&params, "capabilities", &capabilities.object);
    if (capabilities.object != SP_JSON_NONE)
        sp_params_def_bool(&capabilities, "approvals", &takes_approvals);
    read_console(&params, conn, &console);
    int r = sp_params_result(&params);
    if (r == 0 && conn->session != NULL)
        r = sp_fail(e, SP_E_STATE, 0, "initialize may only be sent once per connection");
    const struct sp_session *resumed =
        r < 0 || resume.p == NULL ? NULL : sp_front_find(conn->rpc->front, resume);
    if (resumed != NULL)
        r = sp_strikes_check(&conn->rpc->strikes, resumed->number, "", e);
    if (r == 0)
        r = resume.p != NULL
                ? sp_session_resume(conn->rpc->front, resume, &conn->client, &conn->session, e)
                : sp_session_new(conn->rpc->front, &conn->client, &conn->session, e);
    if (r < 0) {
        free(console.who);
        free(console.via);
        return r;
    }
    conn->console = console;
    conn->state = SP_CONN_GREETED;
    sp_link_widen(conn->link);
    conn->takes_approvals = takes_approvals;
    conn->takes_receipts = asks_for(&params, "receipts");
    conn->takes_denials = asks_for(&params, "denials");
    /* A resumed session keeps the name of the client that made it. */
    if (resume.p == NULL && name.n > 0)
        memcpy(conn->session->client_name, name.p,
               sp_utf8_valid_prefix(
                   (struct sp_str){name.p, name.n < SP_CLIENT_NAME ? name.n : SP_CLIENT_NAME}));
    if (resume.p == NULL && sp_session_keep(conn->session, e) < 0)
        return -(int)e->code; /* the session ends with the connection: its client has no id */
    sp_log(SP_LOG_INFO, "client \"" SP_STR_FMT "\" has session %.8s", SP_STR_ARG(name),
           conn->session->id);
    if (!sp_buf_printf(&b, "{\"sessionId\":\"%s\",\"environmentInfo\":", conn->session->id) ||
        !add_info(&b, conn) || !add_server(&b, conn) || !sp_buf_add(&b, "}", 1))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "describe the environment");
    return sp_rpc_call_reply(c, sp_buf_str(&b));
}

/* The connection closes, and its processes end with it: the session cannot be resumed. */
static int session_end(struct sp_rpc_call *c, struct sp_err *e)
{
    struct sp_conn *conn = c->conn;

    if (check_bare(c, e) < 0)
        return -(int)e->code;
    conn->ends_session = true;
    (void)sp_rpc_call_reply(c, SP_STR("{}"));
    sp_conn_hang_up(conn, "its session was ended"); /* the reply is sent first */
    return 0;
}

static int environment_info(struct sp_rpc_call *c, struct sp_err *e)
{
    auto_buf struct sp_buf b = {0};

    if (check_bare(c, e) < 0)
        return -(int)e->code;
    if (!add_info(&b, c->conn))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "describe the environment");
    return sp_rpc_call_reply(c, sp_buf_str(&b));
}

static int environment_status(struct sp_rpc_call *c, struct sp_err *e)
{
    if (check_bare(c, e) < 0)
        return -(int)e->code;
    return sp_rpc_call_reply(c, SP_STR("{\"status\":\"ready\"}"));
}

static const struct sp_method methods[] = {
    {"initialize", NULL, .fn = initialize},
    {"session/end", "session", .fn = session_end},
    {"environment/info", "environment info", .fn = environment_info},
    {"environment/status", "environment status", .fn = environment_status},
    {0},
};

const struct sp_family sp_session_family = {.methods = methods};
