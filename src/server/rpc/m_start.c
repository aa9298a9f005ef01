/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process/start: decode everything, refuse what cannot be done, pass the gate if there is one, then
 * start the process.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/auto.h"
#include "base/env.h"
#include "base/uri.h"
#include "sandbox/policy_json.h"
#include "server/rpc/conn.h"
#include "server/rpc/metrics.h"
#include "server/rpc/network_callback.h"
#include "server/rpc/start_gate.h"
#include "server/rpc/start_network.h"
#include "server/rpc/text.h"

/* Layers of a command's variables, each over the ones before. */
enum { RANK_DEFAULT, RANK_INHERITED, RANK_SET, RANK_REQUEST, RANK_METADATA, RANK_NETWORK };

#define NOT_GIVEN      UINT64_MAX
#define MAX_PROCESS_ID 65536
#define MAX_NAME       64
#define MAX_SCOPE      256 /* bytes of a snapshot's scopeId */

struct strings {
    struct sp_str *items;
    uint32_t count;
};

/* The params. */
struct start {
    struct sp_str id, arg0, name;
    struct strings argv;
    struct sp_uri cwd;
    bool is_tty, pipe_stdin;
    uint64_t rows, cols;
    uint32_t env;        /* token */
    bool has_env_policy; /* envPolicy is there; its members: */
    struct sp_env_policy env_policy;
    struct strings exclude, include_only;
    uint32_t set; /* token */
    bool has_metadata;
    char thread_id[40];
    struct sp_str tool_call_id;
    struct sp_start_network network;
    bool has_snapshot;
    struct sp_str snapshot_scope, snapshot_shell;
    uint32_t sandbox_token;  /* or SP_JSON_NONE */
    struct sp_policy policy; /* of the sandbox */
    struct sp_limit_ask limits;
};

static void start_done(struct start *s)
{
    free(s->argv.items);
    free(s->exclude.items);
    free(s->include_only.items);
    sp_uri_done(&s->cwd);
    sp_policy_done(&s->policy);
    sp_start_network_done(&s->network);
}

#define auto_start __attribute__((cleanup(start_done)))

/* ---- decoding ---- */

/* The strings are borrowed from the message; the array is freed by start_done. */
static void read_strings(const struct sp_params *p, const char *key, struct strings *ret)
{
    struct sp_json *j = p->json;
    uint32_t array = SP_JSON_NONE;

    sp_params_array(p, key, &array);
    if (!sp_params_ok(p))
        return;
    ret->items = calloc(j->tokens[array].children + 1, sizeof *ret->items);
    if (ret->items == NULL) {
        (void)sp_fail(p->err, SP_E_SYSTEM, ENOMEM, "read a list");
        return;
    }
    sp_params_each(p, array, t) {
        if (sp_json_type(j, t) != SP_JSON_STRING)
            (void)sp_json_wrong_type(j, t, "a string", p->err);
        else
            ret->items[ret->count++] = sp_json_str(j, t);
    }
}

/* An object with string members. */
static void read_string_map(const struct sp_params *p, const char *key, uint32_t *ret)
{
    struct sp_json *j = p->json;

    sp_params_object(p, key, ret);
    sp_params_each(p, *ret, t)
        if (sp_json_type(j, t + 1) != SP_JSON_STRING)
            (void)sp_json_wrong_type(j, t + 1, "a string", p->err);
}

static void read_env_policy(const struct sp_params *params, struct start *s)
{
    struct sp_params p = {params->json, SP_JSON_NONE, params->err};
    struct sp_str inherit = {0};

    sp_params_opt_object(params, "envPolicy", &p.object);
    if (p.object == SP_JSON_NONE)
        return;
    s->has_env_policy = true;
    sp_params_str(&p, "inherit", &inherit);
    if (sp_str_eq(inherit, SP_STR("all")))
        s->env_policy.inherit = SP_ENV_ALL;
    else if (sp_str_eq(inherit, SP_STR("core")))
        s->env_policy.inherit = SP_ENV_CORE;
    else if (sp_params_ok(&p) && !sp_str_eq(inherit, SP_STR("none")))
        (void)sp_fail(p.err, SP_E_INVALID, 0,
                      "unknown variant `" SP_STR_FMT "`, expected one of `core`, `all`, `none`",
                      SP_STR_ARG(inherit));
    sp_params_bool(&p, "ignoreDefaultExcludes", &s->env_policy.ignores_default_excludes);
    read_strings(&p, "exclude", &s->exclude);
    read_string_map(&p, "set", &s->set);
    read_strings(&p, "includeOnly", &s->include_only);
    s->env_policy.exclude = s->exclude.items;
    s->env_policy.exclude_count = s->exclude.count;
    s->env_policy.include_only = s->include_only.items;
    s->env_policy.include_only_count = s->include_only.count;
}

/* Accepts urn:uuid:, braces and a UUID without hyphens; *ret has hyphens and is in lower case. */
static bool read_uuid(struct sp_str s, char ret[40])
{
    char hex[32];
    size_t n = 0;

    if (s.n >= 9 && memcmp(s.p, "urn:uuid:", 9) == 0)
        s = (struct sp_str){s.p + 9, s.n - 9};
    else if (s.n == 38 && s.p[0] == '{' && s.p[37] == '}')
        s = (struct sp_str){s.p + 1, 36};
    if (s.n != 36 && s.n != 32)
        return false;
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];

        if (s.n == 36 && (i == 8 || i == 13 || i == 18 || i == 23)) {
            if (c != '-')
                return false;
            continue;
        }
        if (c >= 'A' && c <= 'F')
            c = (char)(c + 32);
        if (n == 32 || !((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
            return false;
        hex[n++] = c;
    }
    (void)snprintf(ret, 40, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12, hex + 16,
                   hex + 20);
    return n == 32;
}

static void read_metadata(const struct sp_params *params, struct start *s)
{
    struct sp_params p = {params->json, SP_JSON_NONE, params->err};
    struct sp_str thread = {0};

    sp_params_opt_object(params, "metadata", &p.object);
    if (p.object == SP_JSON_NONE)
        return;
    s->has_metadata = true;
    sp_params_opt_str(&p, "threadId", &thread);
    if (sp_params_ok(&p) && thread.p != NULL && !read_uuid(thread, s->thread_id))
        (void)sp_fail(p.err, SP_E_INVALID, 0, "invalid thread id: expected a UUID");
    sp_params_opt_str(&p, "toolCallId", &s->tool_call_id);
}

/* Shell snapshots are not offered: the command runs as a login shell instead. The member is checked
 * all the same, so that a mistake in it gets its own error. */
static void read_snapshot(const struct sp_params *params, struct start *s)
{
    struct sp_params p = {params->json, SP_JSON_NONE, params->err};
    struct sp_params shell = p;
    struct sp_str path = {0};

    sp_params_opt_object(params, "shellSnapshot", &p.object);
    if (p.object == SP_JSON_NONE)
        return;
    s->has_snapshot = true;
    sp_params_str(&p, "scopeId", &s->snapshot_scope);
    sp_params_object(&p, "shell", &shell.object);
    sp_params_str(&shell, "name", &s->snapshot_shell);
    sp_params_str(&shell, "path", &path);
}

static void read_limits(const struct sp_params *p, struct sp_limit_ask *ret)
{
    uint32_t object = SP_JSON_NONE;

    sp_params_opt_object(p, "limits", &object);
    if (object != SP_JSON_NONE)
        (void)sp_limits_read_json(p->json, object, SP_LIMIT_CAMEL, ret, p->err);
}

/* ---- all members ---- */

static int decode_start(struct sp_rpc_call *c, struct start *s, struct sp_err *e)
{
    const struct sp_params p = sp_rpc_call_params(c, e);
    struct sp_str cwd = {0};

    s->sandbox_token = SP_JSON_NONE;
    s->rows = s->cols = NOT_GIVEN;
    sp_params_str(&p, "processId", &s->id);
    read_metadata(&p, s);
    read_strings(&p, "argv", &s->argv);
    sp_params_str(&p, "cwd", &cwd);
    if (sp_params_ok(&p))
        (void)sp_uri_read(cwd, &s->cwd, e);
    read_env_policy(&p, s);
    read_snapshot(&p, s);
    read_string_map(&p, "env", &s->env);
    sp_params_bool(&p, "tty", &s->is_tty);
    sp_params_def_bool(&p, "pipeStdin", &s->pipe_stdin);
    sp_params_opt_str(&p, "arg0", &s->arg0);
    sp_params_opt_str(&p, "name", &s->name);
    sp_params_opt_object(&p, "sandbox", &s->sandbox_token);
    sp_start_network_read(&p, &s->network);
    read_limits(&p, &s->limits);
    sp_params_opt_u64(&p, "rows", UINT16_MAX, &s->rows);
    sp_params_opt_u64(&p, "cols", UINT16_MAX, &s->cols);
    if (sp_params_ok(&p) && (s->rows == 0 || s->cols == 0))
        (void)sp_fail(e, SP_E_INVALID, 0, "rows and cols must be between 1 and 65535");
    return sp_params_result(&p);
}

/* ---- refusals; their order is the protocol's ---- */

/* A name is typed in shells and shown in terminals. */
static bool is_name(struct sp_str s)
{
    for (size_t i = 0; i < s.n; i++) {
        const char c = s.p[i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '.' || c == '_' || c == '-'))
            return false;
    }
    return s.n > 0 && s.n <= MAX_NAME;
}

/* Params that are well-formed but cannot be started here. The variables, the sandbox and the id
 * are checked after this. */
static int check_start(struct start *s, struct sp_json *j, struct sp_err *e)
{
    if (sp_start_network_judge(&s->network, j, s->id, e) < 0)
        return -(int)e->code;
    if (s->cwd.is_foreign || s->cwd.path == NULL)
        return sp_fail(
            e, SP_E_INVALID, 0,
            "cwd URI `%s` is not valid on this exec-server host: '%s' is invalid on 'linux'",
            s->cwd.text, s->cwd.text);
    if (s->has_snapshot && (s->snapshot_scope.n == 0 || s->snapshot_scope.n > MAX_SCOPE))
        return sp_fail(e, SP_E_INVALID, 0,
                       "shell snapshot scope must be non-empty and at most %d bytes", MAX_SCOPE);
    /* The shell is checked only for a login shell, as in Codex. */
    if (s->has_snapshot && s->argv.count >= 3 && sp_str_eq(s->argv.items[1], SP_STR("-lc")) &&
        !sp_str_eq(s->snapshot_shell, SP_STR("bash")) &&
        !sp_str_eq(s->snapshot_shell, SP_STR("zsh")) && !sp_str_eq(s->snapshot_shell, SP_STR("sh")))
        return sp_fail(e, SP_E_INVALID, 0,
                       "shell snapshots are unsupported for shell `" SP_STR_FMT "`",
                       SP_STR_ARG(s->snapshot_shell));
    if (s->argv.count == 0)
        return sp_fail(e, SP_E_INVALID, 0, "argv must not be empty");
    if (sp_start_network_check(&s->network, s->sandbox_token != SP_JSON_NONE, e) < 0)
        return -(int)e->code;
    if (s->id.n > MAX_PROCESS_ID)
        return sp_fail(e, SP_E_INVALID, 0, "processId must not exceed %d bytes", MAX_PROCESS_ID);
    if (s->name.p != NULL && !is_name(s->name))
        return sp_fail(e, SP_E_INVALID, 0, "name must be 1 to %d letters, digits, `.`, `_` or `-`",
                       MAX_NAME);
    if (s->argv.items[0].n == 0)
        return sp_fail(e, SP_E_FAILED, 0, "missing program for %s spawn",
                       s->is_tty ? "PTY" : "pipe");
    bool has_nul = sp_str_has_nul(s->arg0);
    for (uint32_t i = 0; i < s->argv.count; i++)
        has_nul = has_nul || sp_str_has_nul(s->argv.items[i]);
    return has_nul ? sp_fail(e, SP_E_FAILED, 0, "nul byte found in provided data") : 0;
}

/* ---- the variables of the command ---- */

/* Adds the members of an object, those that the filter includes. Reports a NUL in any of them, also
 * in excluded ones. */
static bool add_map(struct sp_env *env, struct sp_json *j, uint32_t object, int rank,
                    const struct sp_env_policy *filter, bool *ret_has_nul)
{
    sp_json_each(j, object, key) {
        const struct sp_str name = sp_json_str(j, key);
        const struct sp_str value = sp_json_str(j, key + 1);

        *ret_has_nul = *ret_has_nul || sp_str_has_nul(name) || sp_str_has_nul(value);
        if ((filter == NULL || sp_env_is_included(filter, name)) &&
            !sp_env_add(env, name, value, rank))
            return false;
    }
    return true;
}

struct network_env {
    struct sp_env *env;
    struct sp_arena *values;
};

/* For sp_network_policy_variables: overrides what the client and the server have, or removes it. */
static bool add_network_variable(void *user, const char *name, const char *value)
{
    const struct network_env *n = user;
    const struct sp_str text = sp_str_of(name);
    struct sp_str copy = {0};
    uint32_t kept = 0;

    if (value != NULL)
        return sp_arena_str(n->values, sp_str_of(value), &copy) &&
               sp_env_add(n->env, text, copy, RANK_NETWORK);
    for (uint32_t i = 0; i < n->env->count; i++)
        if (!sp_str_eq(n->env->pairs[i].name, text))
            n->env->pairs[kept++] = n->env->pairs[i];
    n->env->count = kept;
    return true;
}

/* From the lowest layer to the highest: SHELL of a terminal, inherited variables, `set` of the
 * policy, `env` of the request, thread and tool call, then the proxy of a managed network. Without
 * an envPolicy nothing is inherited. */
static int make_env(struct sp_rpc_call *c, const struct start *s, struct sp_buf *out,
                    uint32_t *ret_count, struct sp_err *e)
{
    const struct sp_rpc *rpc = c->conn->rpc;
    struct sp_env env __attribute__((cleanup(sp_env_done))) = {0};
    struct sp_arena values __attribute__((cleanup(sp_arena_done))) = {0};
    struct network_env network = {&env, &values};
    bool has_nul = sp_str_has_nul(s->tool_call_id);
    bool ok = true;

    if (s->has_env_policy)
        ok = sp_env_inherit(&env, &s->env_policy, rpc->env, RANK_INHERITED) &&
             add_map(&env, c->json, s->set, RANK_SET, &s->env_policy, &has_nul);
    ok = ok && add_map(&env, c->json, s->env, RANK_REQUEST, NULL, &has_nul);
    if (s->thread_id[0] != 0)
        ok = ok &&
             sp_env_add(&env, SP_STR("CODEX_THREAD_ID"), sp_str_of(s->thread_id), RANK_METADATA);
    if (s->tool_call_id.p != NULL)
        ok = ok && sp_env_add(&env, SP_STR("CODEX_TOOL_CALL_ID"), s->tool_call_id, RANK_METADATA);
    if (s->is_tty)
        ok =
            ok && sp_env_add(&env, SP_STR("SHELL"), sp_str_of(rpc->host.login_shell), RANK_DEFAULT);
    if (s->network.policy != NULL)
        ok = ok && sp_network_policy_variables(s->network.policy, add_network_variable, &network);
    ok = ok && sp_env_write(&env, RANK_METADATA, s->has_metadata, out, ret_count);
    if (has_nul)
        return sp_fail(e, SP_E_FAILED, 0, "data provided contains a nul byte");
    return ok ? 0 : sp_fail(e, SP_E_SYSTEM, ENOMEM, "make the environment");
}

/* ---- starting ---- */

#define LIMITS_ROOM 320 /* bytes of put_scopes */

/* `limits` of the answer: what each limit in force counts. */
static char *put_scopes(char *o, const struct sp_proc_limits *l)
{
    const char *between = ",\"limits\":{";

    for (int i = 0; i < SP_LIMIT_COUNT; i++) {
        if (l->set.of[i] == 0 || l->scopes[i] == SP_LIMIT_NOWHERE)
            continue;
        o = sp_put_str(sp_put_literal(sp_put_str(o, sp_str_of(between)), "\""),
                       sp_str_of(sp_limit_kinds[i].keys[SP_LIMIT_CAMEL]));
        o = sp_put_str(sp_put_literal(o, "\":\""), sp_str_of(sp_limit_scope_names[l->scopes[i]]));
        o = sp_put_literal(o, "\"");
        between = ",";
    }
    return between[1] == 0 ? sp_put_literal(o, "}") : sp_put_literal(o, ",\"limits\":{}");
}

/* The cell has started the process, or has not. */
static void answer_start(struct sp_start_wait *w, struct sp_proc *p, const struct sp_err *e)
{
    struct sp_request *r = SP_CONTAINER(w, struct sp_request, start.wait);

    if (p == NULL) {
        sp_request_fail(r, e);
        return;
    }
    char *const begin =
        sp_reply_begin(r->conn, r->id, p->label.n + 48 + (p->limits.is_asked ? LIMITS_ROOM : 0));
    if (begin != NULL) {
        char *o = sp_put_literal(begin, "{\"processId\":");

        o = sp_put_str(o, p->label);
        o = p->is_confined ? sp_put_literal(o, ",\"sandboxType\":\"linuxSeccomp\"")
                           : sp_put_literal(o, ",\"sandboxType\":\"none\"");
        o = sp_put_literal(p->limits.is_asked ? put_scopes(o, &p->limits) : o, "}");
        sp_reply_end(r->conn, r->id, begin, o);
    }
    sp_request_end(r, true);
}

/* timeout_ms: of the client's callback; 0: it has none. false: the start failed, which was
 * answered: the request is gone. */
static bool start_process(struct sp_request *r, const struct sp_start *start, uint64_t timeout_ms)
{
    struct sp_start o = *start;
    struct sp_network_callback *callback = NULL;
    struct sp_err e = {0};
    struct sp_proc *p = NULL;

    if (o.policy != NULL && sp_profile_managed(&o.policy->profile) != NULL) {
        callback = sp_network_callback_new(r->conn->rpc, timeout_ms);
        if (callback == NULL) {
            sp_request_fail_memory(r, "make a managed network");
            return false;
        }
        o.net_ops = &sp_network_callback_ops;
        o.net_user = callback;
    }
    r->start.wait.done = answer_start;
    /* Again: another start may have taken the name while this one was judged. */
    if ((o.name.p != NULL && sp_proc_check_name(r->conn->rpc->front, o.name, &e) < 0) ||
        sp_proc_start(r->conn->session, &o, &r->start.wait, &p, &e) < 0) {
        sp_network_callback_free(callback);
        sp_request_fail(r, &e);
        return false;
    }
    if (callback != NULL)
        sp_network_callback_bind(callback, p);
    sp_request_hold(r, p);
    return true;
}

/* ---- through the gate ---- */

/* A start that the gate judges. Lives in the extra bytes of its request, followed by its argv and
 * the text of its strings. */
struct gated {
    struct sp_task task;
    struct sp_start_gate_case judged;
    struct sp_gated waits;
    struct sp_start start;
    struct sp_buf env; /* borrowed from the text */
    struct sp_policy policy;
    bool has_policy;
    uint64_t timeout_ms; /* of network/policyRequest; 0: none */
};

/* Copies a string to *at and moves *at behind it. */
static struct sp_str keep_str(char **at, struct sp_str s)
{
    if (s.p == NULL)
        return s;
    const struct sp_str kept = {*at, s.n};
    memcpy(*at, s.p, s.n);
    *at += s.n;
    return kept;
}

static void end_gated(struct sp_task *t)
{
    struct gated *g = SP_CONTAINER(t, struct gated, task);
    struct sp_start_gate *gate = g->waits.request->conn->rpc->gate;

    gate->ops->done(gate, &g->judged);
    sp_list_remove(&g->waits.link);
    if (g->has_policy)
        sp_policy_done(&g->policy);
}

/* The gate has decided. */
static void on_decided(struct sp_start_gate_case *judged)
{
    struct gated *g = SP_CONTAINER(judged, struct gated, judged);
    struct sp_request *r = g->waits.request;

    assert(judged->answer != SP_START_GATE_ASKING);
    if (r->conn->is_closing || r->conn->ends_session) {
        sp_metrics_count(r->stats, r->started_us, SP_RPC_OUTCOME_DISCONNECTED);
        sp_request_drop(r);
    } else if (judged->answer != SP_START_GATE_YES) {
        (judged->code == SP_E_STATE ? sp_conn_reply_rejected : sp_conn_reply_error)(
            r->conn, r->id, sp_code_wire(judged->code), judged->reason);
        sp_request_end(r, false);
    } else if (start_process(r, &g->start, g->timeout_ms)) {
        r->task = NULL;
        end_gated(&g->task);
    }
}

/* policy_bytes: about what the copy of the policy takes. */
static int start_gated(struct sp_rpc_call *c, const struct sp_start *o, size_t policy_bytes,
                       uint64_t timeout_ms, struct sp_err *e)
{
    struct sp_conn *conn = c->conn;
    struct sp_start_gate *gate = conn->rpc->gate;
    size_t size = sizeof(struct gated) + (size_t)o->argc * sizeof *o->argv + o->id.n + o->label.n +
                  o->name.n + o->cwd.n + o->arg0.n + o->env->len;

    for (uint32_t i = 0; i < o->argc; i++)
        size += o->argv[i].n;
    struct sp_request *r = sp_rpc_call_park(c, size, e);
    if (r == NULL)
        return -(int)e->code;
    if (sp_request_charge(r, policy_bytes, e) < 0) {
        sp_request_fail(r, e);
        return 0;
    }
    struct gated *g = (struct gated *)(void *)sp_request_extra(r);
    *g = (struct gated){.task.free = end_gated, .waits.request = r, .timeout_ms = timeout_ms};
    struct sp_str *argv = (struct sp_str *)(void *)(g + 1);
    char *text = (char *)(argv + o->argc);
    g->start = *o;
    g->start.id = keep_str(&text, o->id);
    g->start.label = keep_str(&text, o->label);
    g->start.name = keep_str(&text, o->name);
    g->start.cwd = keep_str(&text, o->cwd);
    g->start.arg0 = keep_str(&text, o->arg0);
    for (uint32_t i = 0; i < o->argc; i++)
        argv[i] = keep_str(&text, o->argv[i]);
    g->start.argv = argv;
    const struct sp_str env = keep_str(&text, sp_buf_str(o->env));
    g->env = (struct sp_buf){.data = (char *)(uintptr_t)env.p, .len = env.n};
    g->start.env = &g->env;
    if (o->policy != NULL) {
        if (!sp_policy_copy(o->policy, &g->policy)) {
            sp_request_fail_memory(r, "keep the request");
            return 0;
        }
        g->has_policy = true;
        g->start.policy = &g->policy;
    }
    g->judged = (struct sp_start_gate_case){
        .conn = conn,
        .session = conn->session->number,
        .takes_approvals = conn->takes_approvals,
        .start = &g->start,
        .decided = on_decided,
    };
    g->waits.id = g->start.id;
    sp_list_prepend(&conn->gated, &g->waits.link);
    gate->ops->judge(gate, &g->judged);
    r->task = &g->task;
    if (g->judged.answer != SP_START_GATE_ASKING)
        on_decided(&g->judged);
    return 0;
}

/* ---- the method ---- */

/* Multi-call programs (busybox) choose what to do by argv[0], so under a gate arg0 must name the
 * program that was judged. A leading hyphen, which makes a login shell, is allowed. */
static bool names_program(struct sp_str arg0, struct sp_str program)
{
    const struct sp_str name = sp_base_name(arg0);
    const size_t hyphen = name.n != 0 && name.p[0] == '-';

    return sp_str_eq((struct sp_str){name.p + hyphen, name.n - hyphen}, sp_base_name(program));
}

/* The order of the refusals is the protocol's: params, state of the connection, what cannot be
 * started here, the variables, the sandbox, the id. Nothing is kept before the request is parked.
 */
static int process_start(struct sp_rpc_call *c, struct sp_err *e)
{
    auto_start struct start s = {0};
    auto_buf struct sp_buf env = {0};
    auto_buf struct sp_buf label = {0};
    struct sp_proc *p = NULL;
    uint32_t envc = 0;
    int r = decode_start(c, &s, e);

    if (r == 0)
        r = sp_rpc_call_check(c, e);
    if (r == 0)
        r = check_start(&s, c->json, e);
    if (r == 0)
        r = make_env(c, &s, &env, &envc, e);
    if (r == 0 && s.sandbox_token != SP_JSON_NONE) {
        /* The command's, to which the policy may refer. */
        const char *tmpdir = sp_env_value(sp_buf_str(&env), "TMPDIR").p;

        r = sp_policy_read(c->json, s.sandbox_token, s.cwd.path, tmpdir, &s.policy, e);
        if (r == 0)
            r = sp_start_network_apply(&s.network, &s.policy.profile, e);
    }
    if (r == 0)
        r = sp_proc_target_find(c, &(struct sp_proc_target){.id = s.id}, &p, e);
    if (r != 0)
        return r;
    if (p != NULL)
        return sp_fail(e, SP_E_STATE, 0, "process " SP_STR_FMT " already exists", SP_STR_ARG(s.id));
    if (s.name.p != NULL && sp_proc_check_name(c->conn->rpc->front, s.name, e) < 0)
        return -(int)e->code;
    if (!sp_json_add_str(&label, s.id))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "keep the process id");
    const struct sp_start o = {
        .id = s.id,
        .label = {label.data, label.len},
        .name = s.name,
        .is_tty = s.is_tty,
        .wants_stdin = s.pipe_stdin,
        .rows = s.rows == NOT_GIVEN ? 0 : (uint16_t)s.rows,
        .cols = s.cols == NOT_GIVEN ? 0 : (uint16_t)s.cols,
        .cwd = sp_str_of(s.cwd.path),
        .arg0 = s.arg0,
        .argv = s.argv.items,
        .argc = s.argv.count,
        .limits = s.limits,
        .env = &env,
        .envc = envc,
        .policy = s.sandbox_token == SP_JSON_NONE ? NULL : &s.policy,
    };
    if (c->conn->rpc->gate != NULL) {
        /* Charged twice: our copy, and the one that the gate may make. */
        const struct sp_network_policy *managed = s.policy.profile.managed;
        const size_t domains = managed == NULL ? 0 : managed->count * sizeof *managed->domains;
        const size_t policy =
            o.policy == NULL ? 0 : 2 * (sp_json_raw(c->json, s.sandbox_token).n + domains);

        if (o.arg0.p != NULL && !names_program(o.arg0, o.argv[0]))
            return sp_fail(e, SP_E_INVALID, 0,
                           "this server judges commands: arg0 must be the name of the program");
        return start_gated(c, &o, policy, s.network.timeout_ms, e);
    }
    struct sp_request *request = sp_rpc_call_park(c, 0, e);
    if (request == NULL)
        return -(int)e->code;
    (void)start_process(request, &o, s.network.timeout_ms);
    return 0;
}

static const struct sp_method methods[] = {
    {"process/start", "exec", .fn = process_start, .gated = SP_GATED_EXISTS},
    {0},
};

const struct sp_family sp_start_family = {.methods = methods};
