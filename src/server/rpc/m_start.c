/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process/start: decode everything, refuse what cannot be done, then ask for the process.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/auto.h"
#include "base/env.h"
#include "base/uri.h"
#include "sandbox/policy_json.h"
#include "server/rpc/gated.h"
#include "server/rpc/methods.h"
#include "server/rpc/start_network.h"
#include "server/rpc/text.h"

/* Layers of the environment, each over the ones before. */
enum { RANK_INHERITED, RANK_SET, RANK_REQUEST, RANK_METADATA };

#define NOT_GIVEN      UINT64_MAX
#define MAX_PROCESS_ID 65536
#define MAX_SCOPE      256 /* bytes of a snapshot's scopeId */

struct strings {
    struct sp_str *items;
    uint32_t count;
};

struct start {
    struct sp_str id, arg0;
    struct strings argv;
    struct sp_uri cwd;
    bool is_tty, pipe_stdin;
    uint64_t rows, cols;
    uint32_t env;    /* token */
    uint32_t policy; /* token, or SP_JSON_NONE */
    struct sp_env_policy rules;
    struct strings exclude, include_only;
    uint32_t set;
    bool has_metadata;
    char thread_id[40];
    struct sp_str tool_call_id;
    struct sp_start_network network;
    uint32_t snapshot; /* token, or SP_JSON_NONE */
    struct sp_str snapshot_scope, snapshot_shell;
    uint32_t sandbox; /* token, or SP_JSON_NONE */
    struct sp_policy confinement;
};

static void start_done(struct start *s)
{
    free(s->argv.items);
    free(s->exclude.items);
    free(s->include_only.items);
    sp_uri_done(&s->cwd);
    sp_policy_done(&s->confinement);
}

#define auto_start __attribute__((cleanup(start_done)))

/* ---- decoding ---- */

static int read_strings(struct sp_json *j, uint32_t array, struct strings *ret, struct sp_err *e)
{
    ret->items = calloc(j->tokens[array].children + 1, sizeof *ret->items);
    if (ret->items == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read a list");
    for (uint32_t t = sp_json_first(j, array); t != SP_JSON_NONE; t = sp_json_next(j, array, t)) {
        if (sp_json_type(j, t) != SP_JSON_STRING)
            return sp_json_wrong_type(j, t, "a string", e);
        ret->items[ret->count++] = sp_json_str(j, t);
    }
    return 0;
}

static int need_strings(struct sp_json *j, uint32_t object, const char *key, struct strings *ret,
                        struct sp_err *e)
{
    uint32_t array;
    const int r = sp_json_need_array(j, object, key, &array, e);

    return r < 0 ? r : read_strings(j, array, ret, e);
}

static int check_string_map(struct sp_json *j, uint32_t object, struct sp_err *e)
{
    for (uint32_t key = sp_json_first(j, object); key != SP_JSON_NONE;) {
        const uint32_t value = j->tokens[key].next;

        if (sp_json_type(j, value) != SP_JSON_STRING)
            return sp_json_wrong_type(j, value, "a string", e);
        key = sp_json_next(j, object, key);
    }
    return 0;
}

static int read_cwd(struct sp_json *j, uint32_t params, struct start *s, struct sp_err *e)
{
    struct sp_str text;
    int r = sp_json_need_str(j, params, "cwd", &text, e);

    if (r == 0)
        r = sp_uri_read(text, &s->cwd, e);
    return r;
}

static int read_policy(struct sp_json *j, struct start *s, struct sp_err *e)
{
    const uint32_t p = s->policy;
    struct sp_str inherit;
    int r = sp_json_need_str(j, p, "inherit", &inherit, e);

    if (r == 0 && sp_str_eq(inherit, SP_STR("all")))
        s->rules.inherit = SP_ENV_ALL;
    else if (r == 0 && sp_str_eq(inherit, SP_STR("core")))
        s->rules.inherit = SP_ENV_CORE;
    else if (r == 0 && !sp_str_eq(inherit, SP_STR("none")))
        r = sp_fail(e, SP_E_INVALID, 0,
                    "unknown variant `" SP_STR_FMT "`, expected one of `core`, `all`, `none`",
                    SP_STR_ARG(inherit));
    if (r == 0)
        r = sp_json_need_bool(j, p, "ignoreDefaultExcludes", &s->rules.ignores_default_excludes, e);
    if (r == 0)
        r = need_strings(j, p, "exclude", &s->exclude, e);
    if (r == 0)
        r = sp_json_need_object(j, p, "set", &s->set, e);
    if (r == 0)
        r = check_string_map(j, s->set, e);
    if (r == 0)
        r = need_strings(j, p, "includeOnly", &s->include_only, e);
    s->rules.exclude = s->exclude.items;
    s->rules.exclude_count = s->exclude.count;
    s->rules.include_only = s->include_only.items;
    s->rules.include_only_count = s->include_only.count;
    return r;
}

/* A UUID in any of its usual spellings, into the one with hyphens in lower case. */
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

static int read_metadata(struct sp_json *j, uint32_t params, struct start *s, struct sp_err *e)
{
    uint32_t metadata = SP_JSON_NONE;
    struct sp_str thread = {0};
    int r = sp_json_opt_object(j, params, "metadata", &metadata, e);

    if (r < 0 || metadata == SP_JSON_NONE)
        return r;
    s->has_metadata = true;
    r = sp_json_opt_str(j, metadata, "threadId", &thread, e);
    if (r == 0 && thread.p != NULL && !read_uuid(thread, s->thread_id))
        r = sp_fail(e, SP_E_INVALID, 0, "invalid thread id: expected a UUID");
    if (r == 0)
        r = sp_json_opt_str(j, metadata, "toolCallId", &s->tool_call_id, e);
    return r;
}

/* A shell whose state is to be kept. It is not offered: the command runs without, as a login shell,
 * but a mistake is called by its name. */
static int read_snapshot(struct sp_json *j, uint32_t params, struct start *s, struct sp_err *e)
{
    uint32_t shell = SP_JSON_NONE;
    struct sp_str path = {0};
    int r = sp_json_opt_object(j, params, "shellSnapshot", &s->snapshot, e);

    if (r < 0 || s->snapshot == SP_JSON_NONE)
        return r;
    r = sp_json_need_str(j, s->snapshot, "scopeId", &s->snapshot_scope, e);
    if (r == 0)
        r = sp_json_need_object(j, s->snapshot, "shell", &shell, e);
    if (r == 0)
        r = sp_json_need_str(j, shell, "name", &s->snapshot_shell, e);
    return r < 0 ? r : sp_json_need_str(j, shell, "path", &path, e);
}

static int decode(struct sp_rpc_call *c, struct start *s, struct sp_err *e)
{
    struct sp_json *j = c->json;
    const uint32_t p = c->params;
    int r = sp_rpc_call_params(c, e);

    s->policy = s->sandbox = s->snapshot = SP_JSON_NONE;
    s->rows = s->cols = NOT_GIVEN;
    if (r == 0)
        r = sp_json_need_str(j, p, "processId", &s->id, e);
    if (r == 0)
        r = read_metadata(j, p, s, e);
    if (r == 0)
        r = need_strings(j, p, "argv", &s->argv, e);
    if (r == 0)
        r = read_cwd(j, p, s, e);
    if (r == 0)
        r = sp_json_opt_object(j, p, "envPolicy", &s->policy, e);
    if (r == 0 && s->policy != SP_JSON_NONE)
        r = read_policy(j, s, e);
    if (r == 0)
        r = read_snapshot(j, p, s, e);
    if (r == 0)
        r = sp_json_need_object(j, p, "env", &s->env, e);
    if (r == 0)
        r = check_string_map(j, s->env, e);
    if (r == 0)
        r = sp_json_need_bool(j, p, "tty", &s->is_tty, e);
    if (r == 0)
        r = sp_json_def_bool(j, p, "pipeStdin", &s->pipe_stdin, e);
    if (r == 0)
        r = sp_json_opt_str(j, p, "arg0", &s->arg0, e);
    if (r == 0)
        r = sp_json_opt_object(j, p, "sandbox", &s->sandbox, e);
    if (r == 0)
        r = sp_start_network_read(j, p, &s->network, e);
    if (r == 0)
        r = sp_json_opt_u64(j, p, "rows", UINT16_MAX, &s->rows, e);
    if (r == 0)
        r = sp_json_opt_u64(j, p, "cols", UINT16_MAX, &s->cols, e);
    if (r == 0 && (s->rows == 0 || s->cols == 0))
        r = sp_fail(e, SP_E_INVALID, 0, "rows and cols must be between 1 and 65535");
    return r;
}

/* ---- judging ---- */

static int judge_snapshot(const struct start *s, struct sp_err *e)
{
    static const char *const known[] = {"bash", "zsh", "sh"};
    const bool is_login = s->argv.count >= 3 && sp_str_eq(s->argv.items[1], SP_STR("-lc"));

    if (s->snapshot == SP_JSON_NONE)
        return 0;
    if (s->snapshot_scope.n == 0 || s->snapshot_scope.n > MAX_SCOPE)
        return sp_fail(e, SP_E_INVALID, 0,
                       "shell snapshot scope must be non-empty and at most %d bytes", MAX_SCOPE);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (!is_login || sp_str_eq(s->snapshot_shell, sp_str_of(known[i])))
            return 0;
    return sp_fail(e, SP_E_INVALID, 0, "shell snapshots are unsupported for shell `" SP_STR_FMT "`",
                   SP_STR_ARG(s->snapshot_shell));
}

static int judge(const struct start *s, struct sp_err *e)
{
    int r = sp_start_network_judge(&s->network, s->id, e);

    if (r < 0)
        return r;
    if (s->cwd.is_foreign || s->cwd.path == NULL)
        return sp_fail(
            e, SP_E_INVALID, 0,
            "cwd URI `%s` is not valid on this exec-server host: '%s' is invalid on 'linux'",
            s->cwd.text, s->cwd.text);
    r = judge_snapshot(s, e);
    if (r < 0)
        return r;
    if (s->argv.count == 0)
        return sp_fail(e, SP_E_INVALID, 0, "argv must not be empty");
    r = sp_start_network_refuse(&s->network, e);
    if (r < 0)
        return r;
    if (s->id.n > MAX_PROCESS_ID)
        return sp_fail(e, SP_E_INVALID, 0, "processId must not exceed %d bytes", MAX_PROCESS_ID);
    if (s->argv.items[0].n == 0)
        return sp_fail(e, SP_E_FAILED, 0, "missing program for %s spawn",
                       s->is_tty ? "PTY" : "pipe");
    for (uint32_t i = 0; i < s->argv.count; i++)
        if (sp_str_has_nul(s->argv.items[i]))
            return sp_fail(e, SP_E_FAILED, 0, "nul byte found in provided data");
    if (sp_str_has_nul(s->arg0))
        return sp_fail(e, SP_E_FAILED, 0, "nul byte found in provided data");
    return 0;
}

/* ---- the environment ---- */

static bool add_map(struct sp_env *env, struct sp_json *j, uint32_t object, int rank,
                    const struct sp_env_policy *filter, bool *ret_has_nul)
{
    for (uint32_t key = sp_json_first(j, object); key != SP_JSON_NONE;
         key = sp_json_next(j, object, key)) {
        const struct sp_str name = sp_json_str(j, key);
        const struct sp_str value = sp_json_str(j, j->tokens[key].next);

        *ret_has_nul = *ret_has_nul || sp_str_has_nul(name) || sp_str_has_nul(value);
        if ((filter == NULL || sp_env_is_included(filter, name)) &&
            !sp_env_add(env, name, value, rank))
            return false;
    }
    return true;
}

static int make_environment(struct sp_rpc_call *c, const struct start *s, struct sp_buf *out,
                            uint32_t *ret_count, struct sp_err *e)
{
    const struct sp_rpc *rpc = c->conn->rpc;
    struct sp_env env __attribute__((cleanup(sp_env_done))) = {0};
    bool has_nul = sp_str_has_nul(s->tool_call_id);
    bool ok = true;

    if (s->policy != SP_JSON_NONE)
        ok = sp_env_inherit(&env, &s->rules, rpc->environ, RANK_INHERITED) &&
             add_map(&env, c->json, s->set, RANK_SET, &s->rules, &has_nul);
    ok = ok && add_map(&env, c->json, s->env, RANK_REQUEST, NULL, &has_nul);
    if (s->thread_id[0] != 0)
        ok = ok &&
             sp_env_add(&env, SP_STR("CODEX_THREAD_ID"), sp_str_of(s->thread_id), RANK_METADATA);
    if (s->tool_call_id.p != NULL)
        ok = ok && sp_env_add(&env, SP_STR("CODEX_TOOL_CALL_ID"), s->tool_call_id, RANK_METADATA);
    if (s->is_tty && !sp_env_has(&env, SP_STR("SHELL")))
        ok = ok &&
             sp_env_add(&env, SP_STR("SHELL"), sp_str_of(rpc->host.login_shell), RANK_METADATA);
    ok = ok && sp_env_write(&env, RANK_METADATA, s->has_metadata, out, ret_count);
    if (has_nul)
        return sp_fail(e, SP_E_FAILED, 0, "data provided contains a nul byte");
    return ok ? 0 : sp_fail(e, SP_E_SYSTEM, ENOMEM, "make the environment");
}

/* ---- the sandbox ---- */

/* NULL: the command has none. */
static const char *tmpdir_of(const struct sp_buf *env, uint32_t envc)
{
    const char *at = env->data;

    for (uint32_t i = 0; i < envc; i++, at += strlen(at) + 1)
        if (strncmp(at, "TMPDIR=", 7) == 0)
            return at + 7;
    return NULL;
}

static int read_sandbox(struct sp_rpc_call *c, struct start *s, const struct sp_buf *env,
                        uint32_t envc, struct sp_err *e)
{
    return s->sandbox == SP_JSON_NONE ? 0
                                      : sp_policy_read(c->json, s->sandbox, s->cwd.path,
                                                       tmpdir_of(env, envc), &s->confinement, e);
}

/* ---- starting ---- */

static void on_started(struct sp_start_wait *w, struct sp_proc *p, const struct sp_err *e)
{
    struct sp_request *r = SP_CONTAINER(w, struct sp_request, start.wait);

    if (p == NULL) {
        sp_request_fail(r, e);
        return;
    }
    char *const begin = sp_reply_begin(r->conn, r->id, p->label.n + 48);
    if (begin != NULL) {
        char *o = sp_put_literal(begin, "{\"processId\":");

        o = sp_put_str(o, p->label);
        o = p->is_confined ? sp_put_literal(o, ",\"sandboxType\":\"linuxSeccomp\"}")
                           : sp_put_literal(o, ",\"sandboxType\":\"none\"}");
        sp_reply_end(r->conn, r->id, begin, o);
    }
    sp_request_end(r, true);
}

bool sp_start_begin(struct sp_request *r, const struct sp_start *o)
{
    struct sp_err e = {0};
    struct sp_proc *p = NULL;

    r->start.wait.done = on_started;
    if (sp_proc_start(r->conn->session, o, &r->start.wait, &p, &e) < 0) {
        sp_request_fail(r, &e);
        return false;
    }
    sp_request_hold(r, p);
    return true;
}

static struct sp_str base_name(struct sp_str path)
{
    const char *slash = memrchr(path.p, '/', path.n);

    return slash == NULL ? path : (struct sp_str){slash + 1, (size_t)(path.p + path.n - slash) - 1};
}

/* A program that is many looks there which one it is to be, so it says what was judged; a hyphen
 * before that makes a login shell. */
static bool is_honest(struct sp_str arg0, struct sp_str program)
{
    const struct sp_str name = base_name(arg0);
    const size_t hyphen = name.n != 0 && name.p[0] == '-';

    return sp_str_eq((struct sp_str){name.p + hyphen, name.n - hyphen}, base_name(program));
}

static int begin_judged(struct sp_rpc_call *c, const struct start *s, const struct sp_start *o,
                        struct sp_err *e)
{
    /* The policy is kept twice: for the judgement and for the start. */
    const size_t policy = s->sandbox == SP_JSON_NONE ? 0 : 2 * sp_json_raw(c->json, s->sandbox).n;

    if (o->arg0.p != NULL && !is_honest(o->arg0, o->argv[0]))
        return sp_fail(e, SP_E_INVALID, 0,
                       "this server judges commands: arg0 must be the name of the program");
    return sp_gated_start(c, o, policy, e);
}

static int begin(struct sp_rpc_call *c, const struct start *s, const struct sp_buf *env,
                 uint32_t envc, struct sp_err *e)
{
    auto_buf struct sp_buf label = {0};

    if (!sp_json_add_str(&label, s->id))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "keep the process id");
    const struct sp_start o = {
        .id = s->id,
        .label = {label.data, label.len},
        .is_tty = s->is_tty,
        .wants_stdin = s->pipe_stdin,
        .rows = s->rows == NOT_GIVEN ? 0 : (uint16_t)s->rows,
        .cols = s->cols == NOT_GIVEN ? 0 : (uint16_t)s->cols,
        .cwd = sp_str_of(s->cwd.path),
        .arg0 = s->arg0,
        .argv = s->argv.items,
        .argc = s->argv.count,
        .env = env,
        .envc = envc,
        .policy = s->sandbox == SP_JSON_NONE ? NULL : &s->confinement,
    };
    if (c->conn->rpc->gate != NULL)
        return begin_judged(c, s, &o, e);
    struct sp_request *r = sp_rpc_call_park(c, 0, e);
    if (r == NULL)
        return -(int)e->code;
    (void)sp_start_begin(r, &o);
    return 0;
}

int sp_m_process_start(struct sp_rpc_call *c, struct sp_err *e)
{
    auto_start struct start s = {0};
    auto_buf struct sp_buf env = {0};
    struct sp_proc *p = NULL;
    uint32_t envc = 0;
    bool waits = false;
    int r = decode(c, &s, e);

    if (r == 0)
        r = sp_rpc_call_check(c, e);
    if (r == 0)
        r = judge(&s, e);
    if (r == 0)
        r = make_environment(c, &s, &env, &envc, e);
    if (r == 0)
        r = read_sandbox(c, &s, &env, envc, e);
    if (r == 0)
        r = sp_rpc_call_proc(c, c->conn->session, s.id, &p, &waits, e);
    if (r != 0 || waits)
        return r;
    if (p != NULL)
        return sp_fail(e, SP_E_STATE, 0, "process " SP_STR_FMT " already exists", SP_STR_ARG(s.id));
    return begin(c, &s, &env, envc, e);
}
